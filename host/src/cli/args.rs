//! The arguments of the command line: the commands of `capstan`, with examples.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use capstan_core::manifest::OnNewVersion;
use capstan_core::object::is_path_segment;
use capstan_core::object::labels::{is_domain, is_label};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::machine;

mod approve;
mod component;
mod crd;
mod dev;
mod init;
mod layout;
mod operators;
mod rbac;
mod registry;
mod signature;
mod source;
mod test;

pub use approve::{Approve, Pin};
pub use component::Component;
pub use crd::Crd;
pub use dev::Dev;
pub use init::{Init, Language};
pub use layout::{Load, Save};
pub use operators::Operators;
use operators::on_new_version;
pub use rbac::Rbac;
pub use registry::{Inspect, Pull, Push, Registry};
pub use signature::{Sign, Verify};
pub use source::Source;
pub use test::Test;

/// A Kubernetes operator daemon that runs reconcilers as sandboxed WebAssembly components.
#[derive(Debug, Parser)]
#[command(name = "capstan", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  capstan init --lang python greeting      begin an operator in a new folder
  capstan dev                              build, check and run it at each change
  capstan crd --check                      does crd.yaml say what the types say?
  capstan check -m webpage.yaml            is the manifest right, and does the component fit it?
  capstan test -m webpage.yaml             does it still write what its cases expect?
  capstan run -m operators/                run all operators of a folder
  capstan plugins                          how are the plugins of a running daemon?
  capstan rbac -m webpage.yaml             which rights in the cluster does it need?
  capstan graph -m webpage.yaml            in which order are its dependents reconciled?
  capstan push webpage.wasm ghcr.io/org/webpage:1.2     put its component into a registry
  capstan approve webpage -n capstan       let a version be put in force that wants more
  capstan schema > capstan.schema.json     completion and checks in your editor

Exit status: 0 success, 1 something is wrong (the message says what), 2 wrong usage, 130 aborted by a second signal.
Documentation: docs/ in the source tree.")]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one, for a moment")]
pub enum Command {
    /// Begin an operator: make a folder with one that works.
    Init(Init),
    /// Build, check and run the operator of a folder, again at each change, and show what its runs do.
    Dev(Dev),
    /// Write the definition of the custom resource (CRD) from the types of the source.
    Crd(Crd),
    /// Run the operators that manifests declare.
    Run(Run),
    /// Check manifests and components without a cluster.
    Check(Check),
    /// Play golden cases of operators without a cluster: what is written, and what the status says.
    Test(Test),
    /// Ask a running daemon how its plugins are: version, state, what they use.
    Plugins(Plugins),
    /// Print the roles that the daemon needs for manifests: all that they permit, and nothing else.
    Rbac(Rbac),
    /// Print the dependents of workflows in their order, as text or as a drawing.
    Graph(Graph),
    /// Put a component into a registry of OCI artifacts.
    Push(Push),
    /// Get a component from a registry.
    Pull(Pull),
    /// Say what a component is, in a file or in a registry: digest, size, imports, exports, annotations.
    Inspect(Inspect),
    /// Approve the version of an operator that waits, because it wants more than the one in force.
    Approve(Approve),
    /// Sign a component of a registry with a key.
    Sign(Sign),
    /// Say whether a component of a registry is signed by a key.
    Verify(Verify),
    /// Write components of registries into a file, with their signatures.
    Save(Save),
    /// Put the components of such a file into a registry, with their signatures.
    Load(Load),
    /// Print the JSON schema of the manifest, or of the daemon's defaults or ceilings, for editors.
    #[command(after_help = "\
Examples:
  capstan schema > capstan.schema.json
  capstan schema defaults
  capstan schema ceilings
Then, as the first line of a manifest:
  # yaml-language-server: $schema=capstan.schema.json")]
    Schema {
        /// The kind of document.
        #[arg(value_enum, default_value_t = Kind::Operator)]
        kind: Kind,
    },
    /// Print the definitions (CRDs) of operators that are objects of the cluster, which `capstan run --operators cluster` runs, and of their
    /// approvals.
    #[command(after_help = "\
Examples:
  capstan operator-crd | kubectl apply --server-side -f -")]
    OperatorCrd {
        /// The format of the definitions; in JSON they are one list.
        #[arg(short, long, value_enum, default_value_t = Documents::Yaml)]
        output: Documents,
    },
    /// Print a completion script for a shell.
    #[command(after_help = "\
Examples:
  source <(capstan completions bash)
  capstan completions zsh > ~/.zfunc/_capstan")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Compile the component on standard input to standard output: the daemon runs this as another process, so that
    /// the compiler's memory is bounded, and is freed with the process.
    #[command(hide = true)]
    CompileComponent {
        /// The most memory that it takes, in bytes.
        #[arg(long, value_name = "BYTES")]
        memory: u64,
        /// The most CPU time that it takes, in seconds.
        #[arg(long, value_name = "SECONDS")]
        cpu: u64,
    },
    /// Run the component whose compiled code is standard output, for the daemon at the other end of standard input:
    /// the daemon runs this as another process where the manifest says `isolation: process`.
    #[command(hide = true)]
    RunComponent,
    /// Make a component of parts that were compiled: the Go SDK's tool runs this.
    #[command(hide = true)]
    Component(Component),
    /// Print the version of the daemon and of the contract that it serves.
    Version {
        /// The format of the version.
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
}

/// `capstan run`.
#[derive(Args, Debug)]
#[command(mut_arg("manifests", |manifests| manifests.required(false).required_unless_present("operators")))]
#[command(after_help = "\
Examples:
  capstan run -m webpage.yaml
  capstan run -m operators/ --listen 0.0.0.0:8080 --log-format json
  capstan run --operators cluster                       those that are objects of the cluster
  KUBECONFIG=~/.kube/dev RUST_LOG=debug capstan run -m webpage.yaml

Changed manifests and components are taken while it runs; what can't be used is told, and the last good version goes on.
SIGHUP has everything looked at once more. The first SIGINT or SIGTERM lets runs under way finish (--drain); the second
aborts. Served on --listen: /livez, /readyz; on --admin-listen: /metrics, /debug/controllers, /debug/plugins.")]
pub struct Run {
    /// The manifests and the code cache.
    #[command(flatten)]
    pub source: Source,
    /// Where operators are beside the manifests, which may be left out then: `cluster` takes the objects of kind Operator in the daemon's own
    /// namespace (`capstan operator-crd` prints their definition).
    #[arg(long, value_enum, value_name = "WHERE", env = "CAPSTAN_OPERATORS")]
    pub operators: Option<Operators>,
    /// A file with one YAML document of kind `Ceilings` (`capstan schema ceilings`): objects of kind Operator in the namespaces that it names are taken
    /// as well, each within what it permits.
    #[arg(long, value_name = "FILE", env = "CAPSTAN_CEILINGS", requires = "operators")]
    pub ceilings: Option<PathBuf>,
    /// What becomes of versions that want more than the one in force, whatever their operators say: `ask` has each wait for
    /// `capstan approve`. Without it, each operator says so by `onNewVersion`.
    #[arg(long, value_parser = on_new_version, value_name = "apply|ask", env = "CAPSTAN_ON_NEW_VERSION", requires_if("ask", "operators"))]
    pub on_new_version: Option<OnNewVersion>,
    /// Nobody is asked, whatever operators say: this is `capstan dev`.
    #[arg(skip)]
    pub unasked: bool,
    /// The kubeconfig file; without it $KUBECONFIG, ~/.kube/config or, in a pod, the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; without it the current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The namespace that the daemon lives in, `own` in manifests; without it that of its pod, else that of the
    /// kubeconfig.
    #[arg(long, value_name = "NAME", value_parser = label, env = "CAPSTAN_NAMESPACE")]
    pub namespace: Option<String>,
    /// Let components reach what is in the daemon's own namespace, as far as their manifests permit it. A component
    /// that may write a config map, secret or pod there can do all that the daemon can.
    #[arg(long, env = "CAPSTAN_ALLOW_OWN_NAMESPACE")]
    pub allow_own_namespace: bool,
    /// The address of the probes; port 0 takes a free port and logs it. Here and below, `[::]` is all addresses of the machine, of IPv4 and
    /// IPv6.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address, env = "CAPSTAN_LISTEN")]
    pub listen: SocketAddr,
    /// The addresses of metrics and diagnostics; may be given several times. Without it they are served at --listen,
    /// if only this host can reach that (loopback), else at 127.0.0.1:8081. Clients on other hosts need a token (see
    /// --metrics-auth).
    #[arg(long, value_name = "ADDRESS", value_parser = address, env = "CAPSTAN_ADMIN_LISTEN", value_delimiter = ',')]
    pub admin_listen: Vec<SocketAddr>,
    /// The clients on other hosts that may read /metrics. Diagnostics need a token in any case.
    #[arg(long, value_enum, default_value_t = MetricsAuth::Token, env = "CAPSTAN_METRICS_AUTH")]
    pub metrics_auth: MetricsAuth,
    /// The address for requests from outside to sources with `inbound`, at /OPERATOR/CONTROLLER/SOURCE; open only while a
    /// manifest has such a source. Without it, none of them takes any.
    #[arg(long, value_name = "ADDRESS", value_parser = address, env = "CAPSTAN_INBOUND_LISTEN")]
    pub inbound_listen: Option<SocketAddr>,
    /// The certificate of that address in PEM, with those that vouch for it; taken again when it changes. Without it,
    /// requests come without TLS.
    #[arg(long, value_name = "FILE", env = "CAPSTAN_INBOUND_TLS_CERT", requires = "inbound_tls_key")]
    pub inbound_tls_cert: Option<PathBuf>,
    /// The private key of that certificate in PEM.
    #[arg(long, value_name = "FILE", env = "CAPSTAN_INBOUND_TLS_KEY", requires = "inbound_tls_cert")]
    pub inbound_tls_key: Option<PathBuf>,
    /// How long runs under way may take to finish after the first signal.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration, allow_hyphen_values = true, env = "CAPSTAN_DRAIN")]
    pub drain: Duration,
    /// The most requests a second to the API server that a manifest can permit a plugin (limits.requestsPerSecond).
    #[arg(
        long,
        value_name = "NUMBER",
        allow_hyphen_values = true,
        default_value = "1000",
        env = "CAPSTAN_PLUGIN_REQUESTS"
    )]
    pub plugin_requests: NonZeroU32,
    /// The most runs of one plugin that may be under way, whatever its manifest says; without it four per core, and
    /// at least 32.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true, env = "CAPSTAN_PLUGIN_CONCURRENCY")]
    pub plugin_concurrency: Option<NonZeroUsize>,
    /// The most memory that the instances of all plugins may have together; without it half of what the daemon may
    /// have (the limit of its container), or of the machine.
    #[arg(long, value_name = "SIZE", value_parser = bytes, allow_hyphen_values = true, env = "CAPSTAN_PLUGIN_MEMORY")]
    pub plugin_memory: Option<usize>,
    /// The most memory for the objects of one kind (and namespace, and selector); objects beyond it are left out, and
    /// the daemon is not ready.
    #[arg(long, value_name = "SIZE", default_value = "256Mi", value_parser = bytes, allow_hyphen_values = true, env = "CAPSTAN_CACHE_SIZE")]
    pub cache_size: usize,
    /// The most memory for the objects of all caches; without it a quarter of what the daemon may have (the limit of
    /// its container), or of the machine. Caches share it: one that wants all leaves something for the others.
    #[arg(long, value_name = "SIZE", value_parser = bytes, allow_hyphen_values = true, env = "CAPSTAN_CACHE_MEMORY")]
    pub cache_memory: Option<usize>,
    /// The format of log lines.
    #[arg(long, value_enum, default_value_t = LogFormat::Auto, env = "CAPSTAN_LOG_FORMAT")]
    pub log_format: LogFormat,
}

impl Run {
    /// Leaves out the manifests that the environment alone names and that are missing, if there are other operators: the image names a folder,
    /// whether or not something is mounted there.
    pub fn with_what_is_mounted(mut self) -> Self {
        if self.operators.is_some() {
            self.source.leave_unmounted(std::env::var_os(source::MANIFESTS).as_deref());
        }
        self
    }

    /// Returns how many runs of one plugin may be under way at the same time.
    pub fn plugin_concurrency(&self) -> usize {
        let usual = || {
            let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
            (4 * cores).max(32)
        };
        self.plugin_concurrency.map_or_else(usual, NonZeroUsize::get)
    }

    /// Returns how many bytes all caches may have together.
    pub fn cache_memory(&self) -> u64 {
        let given = self.cache_memory.and_then(|size| u64::try_from(size).ok());
        given.unwrap_or_else(|| machine::memory() / 4)
    }

    /// Returns how many bytes the instances of all plugins may have together.
    pub fn plugin_memory(&self) -> u64 {
        let given = self.plugin_memory.and_then(|size| u64::try_from(size).ok());
        given.unwrap_or_else(|| machine::memory() / 2)
    }
}

/// `capstan check`.
#[derive(Args, Debug)]
#[command(mut_arg("manifests", |manifests| manifests.required(false).required_unless_present("ceilings")))]
#[command(after_help = "\
Examples:
  capstan check -m webpage.yaml
  capstan check -m webpage.yaml --crd crd.yaml     and do the fields that it names exist?
  capstan check -m webpage.yaml --pull             also if its component is in a registry
  capstan check -m webpage.yaml --ceilings ceilings.yaml -n team-a
  capstan check --ceilings ceilings.yaml           are the ceilings right?
  capstan check -m operators/ -o json")]
pub struct Check {
    /// The manifests and the code cache.
    #[command(flatten)]
    pub source: Source,
    /// A file with definitions of kinds (CRDs), in YAML or JSON; may be given several times. What manifests name of these
    /// kinds has to be there: fields in keep, drop, pointers, field selectors and CEL, versions, and namespaces.
    #[arg(long = "crd", value_name = "FILE")]
    pub definitions: Vec<PathBuf>,
    /// Pull the components that are in registries, and check them, too; who asks is who `docker login` has logged in. Without it they
    /// are not looked at.
    #[arg(long)]
    pub pull: bool,
    /// A file with certificates to trust beside those of the system, where a manifest names no file of them: what it takes from a Secret or
    /// ConfigMap is not known here. For --pull.
    #[arg(long, value_name = "FILE", requires = "pull")]
    pub ca: Option<PathBuf>,
    /// A file of ceilings (`capstan run --ceilings`): whether it is right or, with --namespace, whether the operators stay within that of the
    /// namespace.
    #[arg(long, value_name = "FILE")]
    pub ceilings: Option<PathBuf>,
    /// The namespace that they will be applied to, for --ceilings.
    #[arg(short, long, value_name = "NAME", value_parser = label)]
    pub namespace: Option<String>,
    /// The format of the findings.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// `capstan plugins`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan plugins
  capstan plugins --address localhost:9090 -o json
  kubectl -n capstan-system exec deploy/capstan -- /capstan plugins

Exit status: 0 all that the manifests say is in force, 1 it is not, or no daemon answers.")]
pub struct Plugins {
    /// The address of the daemon's diagnostics (its --admin-listen, or --listen if it has none).
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", env = "CAPSTAN_ADDRESS")]
    pub address: String,
    /// The format of the answer.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// `capstan graph`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan graph -m webpage.yaml
  capstan graph -m operators/ -o mermaid     for Markdown
  capstan graph -m webpage.yaml -o svg > webpage.svg
  capstan graph -m webpage.yaml --object default/hello     and what each came to in its last run")]
pub struct Graph {
    /// A manifest, or a folder whose *.yaml and *.yml files are manifests; may be given several times.
    #[arg(short, long = "manifest", value_name = "PATH", required = true, value_delimiter = ',')]
    pub manifests: Vec<PathBuf>,
    /// How the workflows are shown.
    #[arg(short, long, value_enum, default_value_t = Drawing::Text)]
    pub output: Drawing,
    /// A primary, as NAMESPACE/NAME, or NAME if it lives in no namespace: a running daemon is asked what each dependent came to
    /// in its last run.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub object: Option<String>,
    /// The address of that daemon's diagnostics (its --admin-listen, or --listen if it has none).
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", env = "CAPSTAN_ADDRESS")]
    pub address: String,
}

/// The kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A manifest.
    Operator,
    /// The defaults of a daemon.
    Defaults,
    /// What operators of other namespaces than the daemon's own may have at most.
    Ceilings,
}

/// How workflows are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Drawing {
    /// A line for each dependent.
    Text,
    /// A flowchart of Mermaid.
    Mermaid,
    /// A drawing.
    Svg,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// As text; in colour on a terminal.
    Auto,
    /// As text, never in colour.
    Text,
    /// One JSON object per line.
    Json,
}

/// The clients on other hosts that may read metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MetricsAuth {
    /// Clients whose token the API server permits to get the nonResourceURL /metrics.
    Token,
    /// All clients that reach the port; diagnostics are then served on this host only.
    None,
}

/// The format of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// As JSON.
    Json,
    /// As YAML.
    Yaml,
}

/// The format of Kubernetes objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Documents {
    /// As YAML documents.
    Yaml,
    /// As a JSON object of kind `List`.
    Json,
}

impl Run {
    /// Returns the addresses of metrics and diagnostics beside [`Run::listen`]; empty = they are served there, too.
    pub fn admin_addresses(&self) -> Vec<SocketAddr> {
        let hidden = SocketAddr::from(([127, 0, 0, 1], 8081));
        match &*self.admin_listen {
            [] if self.listen.ip().is_loopback() => Vec::new(),
            [] => vec![hidden],
            given => given.to_owned(),
        }
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() => Ok((kind.to_owned(), name.to_owned())),
        Some(_) | None => Err("expected KIND=NAME, such as Pod=pods".to_owned()),
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let right = "expected an IP address and a port below 65536, such as 127.0.0.1:8080 or [::1]:8080";
    text.parse().map_err(|_| right.to_owned())
}

fn label(text: &str) -> Result<String, String> {
    let right = "expected lower case letters, digits and dashes between them, at most 63, such as capstan-system";
    if is_label(text) { Ok(text.to_owned()) } else { Err(right.to_owned()) }
}

fn name(text: &str) -> Result<String, String> {
    let right = "expected lower case letters and digits with dashes and dots between them, such as capstan";
    if is_domain(text) { Ok(text.to_owned()) } else { Err(right.to_owned()) }
}

fn segment(text: &str) -> Result<String, String> {
    let right = "expected a text that can stand in a path, such as capstan";
    if is_path_segment(text) { Ok(text.to_owned()) } else { Err(right.to_owned()) }
}

fn bytes(text: &str) -> Result<usize, String> {
    usize::try_from(size(text)?).map_err(|_| "more than this machine can count".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    capstan_core::manifest::duration(text)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration < Duration::from_secs(1) {
        return Err("expected one second or more".to_owned());
    }
    Ok(duration)
}

fn size(text: &str) -> Result<u64, String> {
    capstan_core::manifest::size(text)
}

#[cfg(test)]
mod documented;

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Cli, Command};

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_value_is_answered_with_what_would_be_right() {
        for (line, expected) in [
            ("run -m x.yaml --namespace B_", "such as capstan-system"),
            ("run -m x.yaml --listen foo", "such as 127.0.0.1:8080"),
            ("run -m x.yaml --admin-listen 127.0.0.1:99999", "a port below 65536"),
            ("run -m x.yaml --compile-timeout -1s", "'-1s' for '--compile-timeout <DURATION>'"),
            ("run -m x.yaml --plugin-memory -1Mi", "'-1Mi' for '--plugin-memory <SIZE>'"),
            ("run -m x.yaml --plugin-requests -1", "'-1' for '--plugin-requests <NUMBER>'"),
            ("run -m x.yaml --insecure-registry https://r.dev", "such as registry.dev.svc:5000, without https://"),
            ("rbac -m x.yaml --namespace a.b", "such as capstan-system"),
            ("rbac -m x.yaml --service-account A", "such as capstan"),
            ("rbac -m x.yaml --name a/b", "such as capstan"),
        ] {
            let words = std::iter::once("capstan").chain(line.split(' '));
            let said = Cli::try_parse_from(words).unwrap_err().to_string();
            assert!(said.contains(expected), "{line}: {said}");
        }
        assert!(Cli::try_parse_from(["capstan", "rbac", "-m", "x.yaml", "--name", "team:capstan"]).is_ok());
    }

    #[test]
    fn diagnostics_are_not_served_where_others_reach_them_unless_that_is_said() {
        let table = [
            ("127.0.0.1:8080", "", ""),
            ("[::1]:8080", "", ""),
            ("0.0.0.0:8080", "", "127.0.0.1:8081"),
            ("[::]:8080", "", "127.0.0.1:8081"),
            ("127.0.0.1:1", "127.0.0.1:2,0.0.0.0:3", "127.0.0.1:2,0.0.0.0:3"),
        ];
        for (listen, admin, expected) in table {
            let mut line = vec!["capstan", "run", "-m", "x.yaml", "--listen", listen];
            if !admin.is_empty() {
                line.extend(["--admin-listen", admin]);
            }
            let Command::Run(run) = Cli::parse_from(line).command else {
                panic!("another command");
            };
            let addresses: Vec<_> = run.admin_addresses().iter().map(ToString::to_string).collect();
            assert_eq!(addresses.join(","), expected, "{listen} {admin}");
        }
    }
}

//! The command line: what can be asked of `capstan`, with an example for each.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A Kubernetes operator daemon that runs reconcilers as sandboxed WebAssembly components.
#[derive(Debug, Parser)]
#[command(
    name = "capstan",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(after_help = "\
Examples:
  capstan check -m webpage.yaml            is the manifest right, and does the component fit it?
  capstan run -m operators/                run all operators of a folder
  capstan schema > capstan.schema.json     completion and checks in your editor

Exit status: 0 success, 1 something is wrong (the message says what), 2 wrong usage, 130 aborted by a second signal.
Documentation: docs/ in the source tree.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operators that manifests declare.
    Run(Run),
    /// Check manifests and components without a cluster.
    Check(Check),
    /// Print the JSON schema of the manifest, for editors.
    #[command(after_help = "\
Examples:
  capstan schema > capstan.schema.json
Then, as the first line of a manifest:
  # yaml-language-server: $schema=capstan.schema.json")]
    Schema,
    /// Print a completion script for a shell.
    #[command(after_help = "\
Examples:
  source <(capstan completions bash)
  capstan completions zsh > ~/.zfunc/_capstan")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Compile the component on standard input into a file: what the daemon has done by another process, so that the
    /// compiler's memory goes with it.
    #[command(hide = true)]
    CompileComponent {
        /// The file.
        file: PathBuf,
    },
    /// Print the version of the daemon and of the contract that it serves.
    Version {
        /// How to print it.
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
}

/// `capstan run`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan run -m webpage.yaml
  capstan run -m operators/ --listen 0.0.0.0:8080 --log-format json
  KUBECONFIG=~/.kube/dev RUST_LOG=debug capstan run -m webpage.yaml

The first SIGINT or SIGTERM lets runs under way finish (--drain); the second aborts.
Served on --listen: /livez, /readyz, /metrics, /debug/controllers.")]
pub struct Run {
    /// The manifests and the code cache.
    #[command(flatten)]
    pub source: Source,
    /// The kubeconfig file; without it $KUBECONFIG, ~/.kube/config or, in a pod, the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; without it the current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Where probes, metrics and diagnostics are served; port 0 takes a free one and logs it.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080",
        env = "CAPSTAN_LISTEN"
    )]
    pub listen: SocketAddr,
    /// How long runs under way may take to finish after the first signal.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration, env = "CAPSTAN_DRAIN")]
    pub drain: Duration,
    /// How log lines are written.
    #[arg(long, value_enum, default_value_t = LogFormat::Auto, env = "CAPSTAN_LOG_FORMAT")]
    pub log_format: LogFormat,
}

/// `capstan check`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan check -m webpage.yaml
  capstan check -m operators/ -o json")]
pub struct Check {
    /// The manifests and the code cache.
    #[command(flatten)]
    pub source: Source,
    /// How to print what was found.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Where operators come from.
#[derive(Args, Clone, Debug)]
pub struct Source {
    /// A manifest, or a folder whose *.yaml and *.yml files are manifests; may be given several times.
    #[arg(
        short,
        long = "manifest",
        value_name = "PATH",
        required = true,
        env = "CAPSTAN_MANIFESTS",
        value_delimiter = ','
    )]
    pub manifests: Vec<PathBuf>,
    /// Where compiled components are kept; without it capstan/code below `$XDG_CACHE_HOME` or ~/.cache.
    #[arg(long, value_name = "FOLDER", env = "CAPSTAN_CODE_CACHE")]
    pub code_cache: Option<PathBuf>,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// As text; in colour on a terminal.
    Auto,
    /// As text, never in colour.
    Text,
    /// One JSON object per line.
    Json,
}

/// How lists are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// As JSON.
    Json,
    /// As YAML.
    Yaml,
}

fn duration(text: &str) -> Result<Duration, String> {
    capstan_core::manifest::duration(text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}

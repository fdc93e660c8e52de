//! Runs the daemon as its users do, as a process of its own, and observes what it does on a real API server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]
#![allow(
    clippy::needless_pass_by_value,
    clippy::too_many_arguments,
    clippy::format_collect,
    reason = "calls read like sentences: values are given as they are written"
)]

pub mod mariadb;
pub mod memory;
pub mod proxy;
pub mod registry;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use cluster::{Cluster, Namespace, Options, wait};
use serde_json::{Value, json};

/// How long an effect may take that should come at once.
pub const SOON: Duration = Duration::from_secs(10);
/// How long an effect may take in which other processes have a part, such as garbage collection.
pub const LATER: Duration = Duration::from_mins(1);

/// A daemon under test. Dropping it ends it.
pub struct Daemon {
    child: Child,
    address: String,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

/// Manifests and components that a test changes while a daemon runs on them. Dropping it removes them.
pub struct Folder(tempfile::TempDir);

/// A file of a [`Folder`] that is being written in place: its first half is written, and the writer still has it
/// open.
pub struct Half {
    file: File,
    rest: Vec<u8>,
}

/// The options with which a daemon is started.
pub struct Start<'a> {
    manifests: Manifests,
    kubeconfig: Option<PathBuf>,
    arguments: Vec<&'a str>,
    environment: Vec<(&'a str, &'a str)>,
}

/// The manifests of a daemon.
enum Manifests {
    /// None: its operators are objects of the cluster.
    None,
    /// A file of its own with this text.
    Text(String),
    /// The file or folder at this path.
    At(PathBuf),
}

/// A test's own place on the shared API server: a namespace, and the kinds of the sample and the probe.
pub struct Place {
    /// The control plane.
    pub cluster: &'static Cluster,
    /// The namespace.
    pub namespace: Namespace,
}

impl Place {
    /// Returns a new namespace on the shared control plane, which has nodes and the kinds that the tests use.
    pub fn new(prefix: &str) -> Self {
        static NODE: OnceLock<()> = OnceLock::new();
        let cluster = cluster::shared_with(options).unwrap();
        NODE.get_or_init(|| {
            if cluster.api().find("/api/v1/nodes/node").unwrap().is_none() {
                cluster.add_node("node").unwrap();
            }
            let established = ["wait", "--for=condition=Established", "--timeout=30s"];
            let kinds = [
                "crd/webpages.sample.capstan.dev",
                "crd/configmapcopies.sample.capstan.dev",
                "crd/mysqlschemas.sample.capstan.dev",
                "crd/tomcats.sample.capstan.dev",
                "crd/webapps.sample.capstan.dev",
                "crd/quicktasks.sample.capstan.dev",
                "crd/slowtasks.sample.capstan.dev",
                "crd/probes.test.capstan.dev",
                "crd/clusterprobes.test.capstan.dev",
                "crd/operators.capstan.dev",
            ];
            cluster.kubectl(&[&established[..], &kinds[..]].concat()).unwrap();
        });
        Self { cluster, namespace: cluster.namespace(prefix).unwrap() }
    }

    /// Returns the path of probes.
    pub fn probes(&self) -> String {
        self.namespace.path("test.capstan.dev/v1", "probes")
    }

    /// Returns the path of config maps.
    pub fn config_maps(&self) -> String {
        self.namespace.path("v1", "configmaps")
    }

    /// Creates a probe with this spec.
    pub fn probe(&self, name: &str, spec: Value) -> Value {
        self.create("test.capstan.dev/v1", "Probe", &self.probes(), name, json!({ "spec": spec }))
    }

    /// Creates a probe with a label, by which one of several operators selects it.
    pub fn labelled_probe(&self, name: &str, label: &str, spec: Value) -> Value {
        self.create(
            "test.capstan.dev/v1",
            "Probe",
            &self.probes(),
            name,
            json!({ "metadata": { "labels": { label: "" } }, "spec": spec }),
        )
    }

    /// Creates an object with these fields beside its name.
    pub fn create(&self, api_version: &str, kind: &str, path: &str, name: &str, fields: Value) -> Value {
        let mut object = fields;
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = name.into();
        self.cluster.api().create(path, &object).unwrap()
    }

    /// Returns an object; `None` if there is none.
    pub fn find(&self, path: &str, name: &str) -> Option<Value> {
        self.cluster.api().find(&format!("{path}/{name}")).unwrap()
    }

    /// Waits until `wanted` returns true for an object, and returns it.
    pub fn await_object(&self, path: &str, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.await_within(SOON, path, name, what, wanted)
    }

    /// As [`Place::await_object`], in this time.
    pub fn await_within(
        &self,
        limit: Duration,
        path: &str,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let found = wait::until_ok(limit, what, || match self.find(path, name) {
            Some(object) if wanted(&object) => Ok(object),
            Some(object) => Err(object.to_string()),
            None => Err(format!("no {name}")),
        });
        found.unwrap()
    }

    /// Waits until an object is gone.
    pub fn await_gone(&self, path: &str, name: &str) {
        self.await_gone_within(LATER, path, name);
    }

    /// As [`Place::await_gone`], in this time.
    pub fn await_gone_within(&self, limit: Duration, path: &str, name: &str) {
        wait::until_ok(limit, "its end", || match self.find(path, name) {
            None => Ok(()),
            Some(object) => Err(object.to_string()),
        })
        .unwrap();
    }

    /// Merges a patch into an object.
    pub fn merge(&self, path: &str, name: &str, patch: &Value) -> Value {
        self.cluster.api().merge(&format!("{path}/{name}"), patch).unwrap()
    }

    /// Deletes an object.
    pub fn delete(&self, path: &str, name: &str) {
        self.cluster.api().delete(&format!("{path}/{name}")).unwrap();
    }

    /// Returns a manifest of one controller over probes of this namespace; `fields` are those of the controller, in
    /// YAML flow style, such as `retry: { maxAttempts: 3 }`, one per line.
    pub fn probe_manifest(&self, fields: &str) -> String {
        self.manifest("probe", "{ apiVersion: test.capstan.dev/v1, kind: Probe }", "", fields)
    }

    /// Returns a manifest of one controller over probes whose component may do everything with probes and config maps, and
    /// which has those that name their primary in an annotation as its source `maps`. A run may wait for [`Place::gate`].
    pub fn able_manifest(&self, fields: &str) -> String {
        const ABLE: &str = "limits: { timeout: 30s, requests: 1000 }
capabilities:
  kubernetes:
    - { apiVersion: test.capstan.dev/v1, kind: Probe, verbs: [get, create, apply, update, patch, delete] }
    - { apiVersion: v1, kind: ConfigMap, verbs: [get, create, apply, update, patch, delete] }
";
        const MAPS: &str = "sources:
  maps: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { annotations: {} } } }
";
        let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
        self.manifest("probe", primary, ABLE, &format!("{MAPS}{fields}"))
    }

    /// Returns a config map that names a probe as its primary.
    pub fn map_of(&self, primary: &str, name: &str, data: Value) -> Value {
        let annotations = json!({ "capstan.dev/primary-name": primary });
        let metadata = json!({ "name": name, "namespace": self.namespace.name(), "annotations": annotations });
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data })
    }

    /// Returns a step that a run is held at until [`Place::open_gate`].
    pub fn gate(&self) -> Value {
        let named = json!({ "namespace": self.namespace.name(), "name": "gate" });
        json!({ "await": { "in": { "source": "maps" }, "select": { "named": named } }, "tell": true })
    }

    /// Lets runs that are held go on, and all later ones pass.
    pub fn open_gate(&self) {
        self.create("v1", "ConfigMap", &self.config_maps(), "gate", json!({}));
    }

    /// Returns a manifest whose operator and controller have other names than the others of this place.
    pub fn renamed(&self, manifest: &str, suffix: &str) -> String {
        let name = self.namespace.name();
        // LC-3: beside the other it needs one of its own.
        let own = format!("      finalizer: {suffix}.test.capstan.dev/finalizer\n");
        let own = if manifest.contains("finalizer:") { "" } else { &own };
        manifest
            .replace(&format!("name: {name}"), &format!("name: {name}-{suffix}"))
            .replace(&format!("    {name}:\n"), &format!("    {name}-{suffix}:\n{own}"))
    }

    /// Returns a manifest of one controller with one plugin.
    pub fn manifest(&self, plugin: &str, primary: &str, plugin_fields: &str, fields: &str) -> String {
        let component = component(plugin);
        let namespace = self.namespace.name();
        let indent =
            |text: &str, by: usize| -> String { text.lines().map(|line| format!("{:by$}{line}\n", "")).collect() };
        format!(
            "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: {namespace} }}\nspec:\n  plugins:\n    {plugin}:\n      component: {{ path: {} }}\n{}  controllers:\n    {namespace}:\n      plugin: {plugin}\n      primary: {primary}\n      namespaces: [{namespace}]\n{}",
            component.display(),
            indent(plugin_fields, 6),
            indent(fields, 6),
        )
    }

    /// Returns the manifest of a sample, for this namespace alone.
    pub fn sample_manifest(&self, plugin: &str) -> String {
        let file = repository().join(format!("plugins/{plugin}/{plugin}.yaml"));
        let sample = fs::read_to_string(file).unwrap();
        let path = format!("path: {}", component(plugin).display());
        let sample = sample.replace(&format!("path: {plugin}.wasm"), &path);
        let primary = "primary: { apiVersion: sample.capstan.dev/v1, kind: WebPage }";
        let namespaces = format!("namespaces: [{}]", self.namespace.name());
        sample.replace(primary, &format!("{primary}\n      {namespaces}"))
    }

    /// Returns the path of web pages.
    pub fn pages(&self) -> String {
        self.namespace.path("sample.capstan.dev/v1", "webpages")
    }

    /// Starts a daemon with this manifest and waits until it is ready.
    pub fn daemon(&self, manifest: &str) -> Daemon {
        Start::new(manifest).run(self).until_ready()
    }
}

impl<'a> Start<'a> {
    /// Prepares a daemon with this manifest.
    pub fn new(manifest: &str) -> Self {
        Self::with(Manifests::Text(manifest.to_owned()))
    }

    /// Prepares a daemon with the manifest or the folder of manifests at `path`.
    pub fn at(path: &Path) -> Self {
        Self::with(Manifests::At(path.to_owned()))
    }

    /// Prepares a daemon whose operators are objects of the cluster.
    pub fn on_objects() -> Self {
        Self::with(Manifests::None)
    }

    fn with(manifests: Manifests) -> Self {
        Self { manifests, kubeconfig: None, arguments: Vec::new(), environment: Vec::new() }
    }

    /// Uses this kubeconfig instead of the administrator's.
    pub fn kubeconfig(mut self, file: PathBuf) -> Self {
        self.kubeconfig = Some(file);
        self
    }

    /// Adds arguments.
    pub fn arguments(mut self, arguments: &[&'a str]) -> Self {
        self.arguments.extend(arguments);
        self
    }

    /// Adds an environment variable.
    pub fn variable(mut self, name: &'a str, value: &'a str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// Starts the daemon and waits until it serves its probes.
    pub fn run(self, place: &Place) -> Daemon {
        self.run_on(place.cluster)
    }

    /// As [`Start::run`], on any control plane.
    pub fn run_on(self, cluster: &Cluster) -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        let manifests = match self.manifests {
            Manifests::None => None,
            Manifests::At(path) => Some(path),
            Manifests::Text(text) => {
                let manifest = folder.path().join("operator.yaml");
                fs::write(&manifest, text).unwrap();
                Some(manifest)
            }
        };
        let kubeconfig = self.kubeconfig.unwrap_or_else(|| cluster.admin_kubeconfig());
        let mut command = Command::new(capstan());
        command
            .args(["run", "--listen", "127.0.0.1:0", "--log-format", "json"])
            .args(manifests.iter().flat_map(|manifests| [Path::new("-m"), manifests]))
            .args(&self.arguments)
            .env("KUBECONFIG", kubeconfig)
            .env("RUST_LOG", "info,kube_client=off,capstan=debug,capstan_core=debug")
            .envs(self.environment);
        Daemon::spawn(command, folder)
    }
}

impl Daemon {
    /// Starts a daemon by a command, which has to make it log JSON lines, and waits until it serves its probes. The
    /// folder holds the files that it needs, and its log.
    pub fn spawn(mut command: Command, folder: tempfile::TempDir) -> Self {
        let log = folder.path().join("daemon.log");
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
        let mut daemon = Self { child, address: String::new(), log, _folder: folder };
        let address = wait::until_done(SOON, "the daemon to serve its probes", || {
            let serving = daemon.lines().into_iter().find(|line| line["message"] == "serving probes and metrics");
            match serving.and_then(|line| line["address"].as_str().map(str::to_owned)) {
                Some(address) => wait::Look::Done(address),
                None => match daemon.child.try_wait().unwrap() {
                    Some(status) => wait::Look::Never(anyhow::anyhow!("it ended with {status}: {}", daemon.log())),
                    None => wait::Look::NotYet(daemon.log()),
                },
            }
        });
        daemon.address = address.unwrap();
        daemon
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Folder {
    /// The link to the folder of the current version.
    const DATA: &str = "..data";

    /// Returns an empty folder.
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Returns the path of a file in the folder, or that of the folder for an empty name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Puts a whole file into the folder, by renaming another one to it.
    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        // By its name it is neither a manifest nor a component.
        let draft = self.path(&format!("{name}.draft"));
        fs::write(&draft, content).unwrap();
        fs::rename(draft, self.path(name)).unwrap();
    }

    /// Begins to write a file in place.
    pub fn begin(&self, name: &str, content: impl AsRef<[u8]>) -> Half {
        let content = content.as_ref();
        let (half, rest) = content.split_at(content.len() / 2);
        let mut file = File::create(self.path(name)).unwrap();
        file.write_all(half).unwrap();
        Half { file, rest: rest.to_owned() }
    }

    /// Puts several files into the folder at once, as the kubelet does with a config map: the names are links to
    /// `..data/name`, and `..data` is a link to the folder of a version, which is replaced.
    pub fn flip(&self, version: &str, files: &[(&str, &[u8])]) {
        let at = self.path(&format!("..{version}"));
        fs::create_dir(&at).unwrap();
        for (name, content) in files {
            fs::write(at.join(name), content).unwrap();
            if fs::symlink_metadata(self.path(name)).is_err() {
                symlink(Path::new(Self::DATA).join(name), self.path(name)).unwrap();
            }
        }
        let draft = self.path("..data_tmp");
        symlink(format!("..{version}"), &draft).unwrap();
        fs::rename(draft, self.path(Self::DATA)).unwrap();
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// Starts a daemon on all manifests in the folder and waits until it is ready.
    pub fn daemon(&self, place: &Place) -> Daemon {
        Start::at(self.0.path()).run(place).until_ready()
    }
}

impl Half {
    /// Writes the rest and closes the file.
    pub fn finish(self) {
        let Self { mut file, rest } = self;
        file.write_all(&rest).unwrap();
    }
}

impl Daemon {
    /// Waits until `/readyz?verbose` says that the daemon is ready, and that some operator lacks something, in these words.
    pub fn await_lacking(&self, words: &[&str]) {
        wait::until_ok(LATER, "what is lacking", || match self.get("/readyz?verbose") {
            (200, body) if words.iter().all(|word| body.contains(word)) => Ok(()),
            (code, body) => Err(format!("{code} {body}; {words:?}")),
        })
        .unwrap();
    }

    /// Waits until the daemon is ready and nothing is lacking, which may take until a component is compiled.
    pub fn until_ready(self) -> Self {
        wait::until_ok(LATER, "the daemon to be ready", || match self.get("/readyz?verbose") {
            (200, body) if body == "ok\n" => Ok(()),
            (code, body) => Err(format!("{code}: {body}; its log:\n{}", self.log())),
        })
        .unwrap();
        self
    }

    /// Returns the address at which it serves its pages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns status and body of a page.
    pub fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        (code, body.to_owned())
    }

    /// Returns the value of a metric, summed over all series whose line contains `labels`.
    pub fn metric(&self, name: &str, labels: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        let lines = text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(labels)
        });
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Returns the value of a metric that counts, summed as by [`Daemon::metric`].
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    pub fn count(&self, name: &str, labels: &str) -> u64 {
        self.metric(name, labels) as u64
    }

    /// Returns how many runs have been started.
    pub fn runs(&self) -> u64 {
        self.count("capstan_reconciliations_started_total", "")
    }

    /// Returns how many runs of this primary have ended.
    pub fn runs_of(&self, primary: &str) -> usize {
        let key = format!("/{primary}");
        let has_ended = |line: &&Value| {
            ["reconciled", "the run failed"].iter().any(|text| line["message"] == *text)
                && line["key"].as_str().is_some_and(|name| name.ends_with(&key))
        };
        self.lines().iter().filter(has_ended).count()
    }

    /// Returns what steps of probes have told under this name, in its order.
    pub fn told(&self, name: &str) -> Vec<Value> {
        let lines = self.lines().into_iter().filter(|line| line["message"] == "seen" && line["fields"]["name"] == name);
        lines.filter_map(|line| serde_json::from_str(line["fields"]["sight"].as_str()?).ok()).collect()
    }

    /// Returns how many runs are under way.
    pub fn active(&self) -> u64 {
        self.count("capstan_reconciliations_active", "")
    }

    /// Waits until at least `at_least` runs have been started.
    pub fn await_runs(&self, at_least: u64) {
        wait::until_ok(SOON, &format!("run {at_least}"), || match self.runs() {
            runs if runs >= at_least => Ok(()),
            runs => Err(format!("{runs} runs; log:\n{}", self.log())),
        })
        .unwrap();
    }

    /// Waits until no run is under way, none is due, and none has begun for several looks in a row; watches have shown the own
    /// writes by then, and the log tells how each run has ended. So all effects of the test so far are there.
    pub fn await_quiet(&self) {
        const LOOKS: u32 = 8;
        // Three seconds: what a selector leaves out is no longer awaited upon a bookmark, a minute later, and a run that was aborted
        // logs no end.
        const LOOKS_AT_MOST: u32 = 60;
        let (mut before, mut same, mut still) = (u64::MAX, 0, 0);
        wait::until_ok(SOON, "the daemon to be quiet", || {
            let controllers = self.controllers();
            let busy = |field: &str| controllers["controllers"].as_array().unwrap().iter().any(|c| c[field] != 0);
            let runs = self.runs();
            let is_still = runs == before && !busy("due") && !busy("inFlight");
            let is_quiet = is_still && !busy("ownWrites") && self.runs_told() >= runs;
            same = if is_quiet { same + 1 } else { 0 };
            still = if is_still { still + 1 } else { 0 };
            before = runs;
            if same >= LOOKS || still >= LOOKS_AT_MOST { Ok(()) } else { Err(controllers) }
        })
        .unwrap();
    }

    /// Returns how many runs have ended, as the log tells it.
    fn runs_told(&self) -> u64 {
        let log = self.log();
        let ends = ["reconciled", "the run failed", "the run's outcome is ignored: the controller was stopped"];
        let told = ends.map(|end| log.matches(&format!("\"message\":\"{end}\"")).count());
        u64::try_from(told.iter().sum::<usize>()).unwrap()
    }

    /// Returns the page `/debug/controllers`, once it is served.
    pub fn controllers(&self) -> Value {
        self.page("/debug/controllers")
    }

    /// Returns the page `/debug/plugins`, once it is served.
    pub fn plugins(&self) -> Value {
        self.page("/debug/plugins")
    }

    fn page(&self, path: &str) -> Value {
        let text = wait::until_ok(SOON, path, || match self.get(path) {
            (200, text) => Ok(text),
            (503, why) => Err(why),
            (code, text) => panic!("{path}: HTTP {code} {text}"),
        });
        serde_json::from_str(&text.unwrap()).unwrap()
    }

    /// Returns the entry of the plugin of this name in `/debug/plugins`; `None` if there is none.
    pub fn plugin(&self, name: &str) -> Option<Value> {
        let plugins = self.plugins();
        let mut rows = plugins["plugins"].as_array().unwrap().iter();
        rows.find(|row| row["name"] == name).cloned()
    }

    /// Waits until a plugin is in this state at this version (the number of versions put in place), and returns its
    /// entry.
    pub fn await_plugin(&self, name: &str, state: &str, version: u64) -> Value {
        let what = format!("plugin {name} to be {state} in version {version}");
        wait::until_ok(LATER, &what, || match self.plugin(name) {
            Some(row) if row["state"] == state && row["version"] == version => Ok(row),
            found => Err(format!("{found:?}")),
        })
        .unwrap()
    }

    /// Waits until `count` manifests can't be used, and returns the file and the problem of each.
    pub fn await_bad_manifests(&self, count: usize) -> Vec<(String, String)> {
        let what = format!("{count} manifests with problems");
        wait::until_ok(LATER, &what, || {
            let plugins = self.plugins();
            let manifests = plugins["manifests"].as_array().unwrap().iter();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let found: Vec<_> =
                manifests.map(|manifest| (text(&manifest["file"]), text(&manifest["problem"]))).collect();
            if found.len() == count { Ok(found) } else { Err(plugins) }
        })
        .unwrap()
    }

    /// Returns the entry of the controller of this name in `/debug/controllers`; `None` if it does not run.
    pub fn controller(&self, name: &str) -> Option<Value> {
        let controllers = self.controllers();
        let mut all = controllers["controllers"].as_array().unwrap().iter();
        all.find(|controller| controller["name"] == name).cloned()
    }

    /// Returns the entries of the informers in `/debug/controllers` that watch in this namespace.
    pub fn informers(&self, namespace: &str) -> Vec<Value> {
        let controllers = self.controllers();
        let all = controllers["informers"].as_array().unwrap().iter();
        all.filter(|informer| informer["scope"].as_str().unwrap().contains(namespace)).cloned().collect()
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the lines of the log, parsed.
    pub fn lines(&self) -> Vec<Value> {
        let file = BufReader::new(File::open(&self.log).unwrap());
        file.lines().map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok()).collect()
    }

    /// Waits for a log line that contains this text, and returns the line.
    pub fn await_line(&self, text: &str) -> String {
        wait::until_ok(SOON, &format!("a log line with {text:?}"), || {
            let log = self.log();
            log.lines().find(|line| line.contains(text)).map(str::to_owned).ok_or(log)
        })
        .unwrap()
    }

    /// Waits until it is told of an operator that harms others, or tries to: a line of the log, of those that are written without being asked
    /// for, has this text and the name, and a metric has counted something of it. The daemon is alive.
    pub fn blames(&self, operator: &str, text: &str, metric: &str) {
        wait::until_ok(LATER, &format!("a log line with {text:?} that names {operator}"), || {
            let is_told = |line: &Value| {
                let shown = ["INFO", "WARN", "ERROR"].iter().any(|level| line["level"] == *level);
                let line = line.to_string();
                shown && line.contains(text) && line.contains(operator)
            };
            if self.lines().iter().any(is_told) { Ok(()) } else { Err(self.log()) }
        })
        .unwrap();
        let counted = || self.count(metric, &format!("=\"{operator}\""));
        wait::until(LATER, &format!("{metric} of {operator}"), || (counted() > 0).then_some(())).unwrap();
        assert_eq!(self.get("/livez").0, 200);
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        self.signal("HUP");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Sends SIGTERM and waits until the process has ended.
    pub fn stop(mut self) -> ExitStatus {
        self.terminate();
        self.await_end()
    }

    /// Waits until the process has ended.
    pub fn await_end(&mut self) -> ExitStatus {
        wait::until(SOON, "the daemon's end", || self.ended()).unwrap()
    }

    /// Returns how the process has ended; `None` if it has not.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Sends SIGKILL and waits until the process has ended.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the daemon\n{}---", self.log());
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs `capstan` with arguments to its end, and returns its exit code, standard output and standard error.
pub fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(capstan()).args(arguments).env_remove("RUST_LOG").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// Returns the options of the shared control plane of the scenarios.
pub fn options() -> Options {
    Options::of_scenarios(repository()).unwrap()
}

/// Returns the daemon's binary, built by `cargo build -p capstan`.
pub fn capstan() -> PathBuf {
    let given = std::env::var_os("CAPSTAN_BIN").map(PathBuf::from);
    let binary = given.unwrap_or_else(|| target().join("debug/capstan"));
    assert!(binary.exists(), "{} is missing: run `cargo build -p capstan`, or set CAPSTAN_BIN", binary.display());
    binary
}

/// Returns a plugin's component, built by `cargo xtask plugins`.
pub fn component(name: &str) -> PathBuf {
    let file = target().join(format!("plugins/{name}.wasm"));
    assert!(file.exists(), "{} is missing: run `cargo xtask plugins`", file.display());
    file
}

/// Returns a component in which each occurrence of `from` is replaced by `to`, which has the same length.
pub fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(from.len()).position(|window| window == from) {
        bytes[at + found..at + found + to.len()].copy_from_slice(to);
        at += found + to.len();
    }
    assert!(at > 0, "nothing to replace");
    bytes
}

/// Returns a folder with this manifest of the probe, and a component beside it that does not have some exports: each has another
/// name, of the same length, under which the daemon knows none.
pub fn replaced_exports(manifest: &str, names: &[(&str, &str)]) -> Folder {
    replaced_exports_of("probe", manifest, names)
}

/// As [`replaced_exports`], of another component.
pub fn replaced_exports_of(plugin: &str, manifest: &str, names: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    let path = component(plugin);
    let mut bytes = fs::read(&path).unwrap();
    for (from, to) in names {
        let interface = |name: &str| format!("capstan:operator/{name}@").into_bytes();
        bytes = replace(&bytes, &interface(from), &interface(to));
    }
    folder.put("probe.wasm", bytes);
    let replaced = folder.path("probe.wasm").display().to_string();
    folder.put("operator.yaml", manifest.replace(&path.display().to_string(), &replaced));
    folder
}

/// Returns the folder of the sources.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    target.expect("a test runs from cargo's target folder").to_owned()
}

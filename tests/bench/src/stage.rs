//! Decides where is measured: a control plane of its own with the kinds of sample and probe, and a warm cache of compiled code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cluster::{ADMIN, Api, AuditScope, Cluster, Mark, Options, Query, User};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock::{Patience, Stopwatch, wall};
use crate::daemon::Daemon;
use crate::subject::{SAMPLE, Subject};
use crate::usage;

/// The daemon's user, the only one whose requests are logged.
const USER: &str = "operator";
/// All rights, and no limit by priority and fairness, as the peers had it.
const GROUP: &str = "system:masters";
/// How long the API server may take to serve a new kind.
const SERVED: Patience = Patience::new(20, 30);

/// How a daemon's log is written, and what is in it.
pub(crate) type Talk = [&'static str; 2];
/// What is wrong, for people.
pub(crate) const WRONG: Talk = ["text", "warn"];
/// Also what components log, and which versions of them come into force: for [`crate::diary`].
pub(crate) const DIARY: Talk = ["json", "warn,guest=info,capstan::supervisor=info"];

/// A control plane with the kinds that are needed, and the daemon's files.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    /// The daemon's.
    kubeconfig: PathBuf,
    /// Goes with the control plane.
    folder: PathBuf,
    capstan: PathBuf,
}

impl Stage {
    /// Starts a control plane and warms the cache of compiled code.
    pub(crate) fn set(subject: &Subject) -> Result<Self> {
        let user = User::new(USER)?.in_group(GROUP);
        let options = Options {
            extras: BTreeSet::new(),
            audit: AuditScope::Users(BTreeSet::from([USER.to_owned()])),
            manifests: Subject::crds(),
            ..Options::default()
        };
        let cluster = Cluster::start(&options.with_user(user.clone()))?;
        let folder = cluster.dir().join("bench");
        fs::create_dir(&folder)?;
        fs::copy(&subject.component, folder.join(SAMPLE)).context("copy the component")?;
        let stage = Self { kubeconfig: cluster.kubeconfig(&user)?, cluster, folder, capstan: subject.capstan.clone() };
        stage.check(&stage.manifest("warm", &Subject::sample()?)?)?;
        for kind in ["sample.capstan.dev/v1/webpages", "test.capstan.dev/v1/probes", "capstan.dev/v1alpha1/operators"] {
            SERVED.until(&format!("the API server to serve {kind}"), || {
                Ok(stage.cluster.api().find(&format!("/apis/{kind}?limit=1"))?)
            })?;
        }
        Ok(stage)
    }

    /// Returns a client of the administrator that shares no connection with others.
    pub(crate) fn connection(&self) -> Result<Api> {
        self.cluster.api_as(self.cluster.user(ADMIN)?)
    }

    pub(crate) fn namespace(&self, name: &str) -> Result<()> {
        let namespace = json!({ "metadata": { "name": name } });
        self.cluster.api().create("/api/v1/namespaces", &namespace)?;
        Ok(())
    }

    /// Returns the path of one of the files that go with the control plane.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a manifest beside the component and returns its path.
    pub(crate) fn manifest(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(format!("{name}.yaml"));
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// Puts a file beside the manifests in place of another, or for the first time: whoever looks sees one or the other,
    /// whole. Returns the wall clock just before, as [`wall`] has it.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<i64> {
        let (draft, path) = (self.folder.join("draft"), self.folder.join(name));
        let write = || -> std::io::Result<i64> {
            fs::write(&draft, bytes)?;
            let before = wall();
            fs::rename(&draft, &path)?;
            Ok(before)
        };
        write().with_context(|| format!("write {}", path.display()))
    }

    /// Forgets all compiled code: each component is compiled once more.
    pub(crate) fn forget_code(&self) -> Result<()> {
        fs::remove_dir_all(self.folder.join("code")).context("remove the compiled code")
    }

    /// Returns the daemon's binary.
    pub(crate) fn program(&self) -> Command {
        let mut program = Command::new(&self.capstan);
        // What `docker login` has left on this machine is for nobody here.
        program.env("DOCKER_CONFIG", self.file("docker"));
        program
    }

    /// Returns a command of the daemon's binary that uses the caches.
    fn cached(&self, command: &str) -> Command {
        let mut capstan = self.program();
        capstan.arg(command).arg("--code-cache").arg(self.file("code"));
        capstan.arg("--component-cache").arg(self.file("components"));
        capstan
    }

    /// Returns a command of the daemon's binary for a manifest.
    pub(crate) fn capstan(&self, command: &str, manifest: &Path) -> Command {
        let mut capstan = self.cached(command);
        capstan.arg("--manifest").arg(manifest);
        capstan
    }

    /// Starts a daemon with the manifest in this file.
    pub(crate) fn start(&self, manifest: &Path, talk: Talk) -> Result<Daemon> {
        self.launch(self.capstan("run", manifest), talk, manifest.with_extension("log"))
    }

    /// Starts a daemon with the operators that are objects of the cluster, and these further arguments.
    pub(crate) fn objects(&self, name: &str, more: &[&str], talk: Talk) -> Result<Daemon> {
        let mut command = self.cached("run");
        command.args(["--operators", "cluster"]).args(more);
        self.launch(command, talk, self.file(&format!("{name}.log")))
    }

    fn launch(&self, mut command: Command, [format, filter]: Talk, log: PathBuf) -> Result<Daemon> {
        command.args(["--log-format", format]).arg("--kubeconfig").arg(&self.kubeconfig).env("RUST_LOG", filter);
        Daemon::start(command, log)
    }

    /// Starts a daemon with this manifest, and waits until it is ready.
    pub(crate) fn ready(&self, name: &str, manifest: &str) -> Result<Daemon> {
        let mut daemon = self.start(&self.manifest(name, manifest)?, WRONG)?;
        daemon.until_ready()?;
        Ok(daemon)
    }

    /// Runs `capstan check` and returns how long it took.
    pub(crate) fn check(&self, manifest: &Path) -> Result<Duration> {
        let mut command = self.capstan("check", manifest);
        command.stdin(Stdio::null());
        let watch = Stopwatch::start();
        let output = command.output().context("run capstan check")?;
        let spent = watch.spent();
        if output.status.success() {
            return Ok(spent);
        }
        let text = [output.stdout, output.stderr].concat();
        bail!("capstan check: {}", String::from_utf8_lossy(&text).trim())
    }

    /// Returns the CPU time of etcd and the API server together, in seconds.
    pub(crate) fn server_cpu(&self) -> Result<f64> {
        self.cluster.processes().values().map(|pid| usage::cpu(*pid)).sum()
    }

    /// Counts the daemon's requests since then, as `create configmaps` or `patch webpages/status`.
    pub(crate) fn requests(&self, since: Mark) -> Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        let requests = self.cluster.audit()?.requests(&Query::since(since).user(USER))?;
        // Whoever hears nothing of the API server asks how it is, by this page.
        for request in requests.iter().filter(|request| request.uri != "/version") {
            let mut name = format!("{} {}", request.verb, request.resource);
            if !request.subresource.is_empty() {
                name = format!("{name}/{}", request.subresource);
            }
            *counts.entry(name).or_default() += 1;
        }
        Ok(counts)
    }

    /// Returns when the API server got the last status of each probe since then, in microseconds since 1970.
    pub(crate) fn statuses(&self, since: Mark) -> Result<BTreeMap<String, i64>> {
        let query = Query::since(since).user(USER).resource("probes").writes();
        let requests = self.cluster.audit()?.requests(&query)?.into_iter();
        let status = requests.filter(|request| request.subresource == "status");
        let timed = status.map(|request| {
            let at: Timestamp = request.time.parse().context("a time of the audit log")?;
            Ok((request.name, at.as_microsecond()))
        });
        timed.collect()
    }

    pub(crate) fn list(&self, path: &str) -> Result<Vec<Value>> {
        match self.cluster.api().get(path)?.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => bail!("{path} is no list"),
        }
    }
}

//! Decides how the processes of a control plane are started, in which order, and when each of them is ready.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use serde_json::Value;
use ureq::Agent;

use crate::api::Api;
use crate::audit::AuditScope;
use crate::cluster::{About, Options};
use crate::identity::{ADMIN, Identity, User, kubeconfig};
use crate::keeper::{Janitor, Job, Kept, tail};
use crate::tools::{Progress, Tool, Tools};
use crate::wait::{self, Look, Stopwatch};

/// How often a start is tried if another process takes a port that was free.
const TRIES: usize = 3;
/// The kernel's refusal of a port, as it is in a log.
const PORT_TAKEN: &str = "address already in use";
/// A file of this name in a control plane's folder keeps the folder after the end.
const KEEP: &str = "keep";

/// The processes of a control plane. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Running {
    folder: PathBuf,
    /// In the order of their start.
    processes: Vec<Kept>,
    /// Ends last.
    janitor: Option<Janitor>,
}

/// One start of a control plane.
struct Launch<'a> {
    options: &'a Options,
    tools: &'a Tools,
    progress: &'a dyn Fn(Progress),
    running: Running,
}

/// The addresses of one start.
struct Ports {
    etcd: u16,
    etcd_peer: u16,
    apiserver: u16,
}

/// Starts a control plane and waits until all its parts are ready.
pub(crate) fn start(
    options: &Options,
    users: &[User],
    tools: &Tools,
    progress: &dyn Fn(Progress),
) -> Result<(Running, About)> {
    if let Some(tool) = options.extras.iter().find(|tool| Tool::BASE.contains(tool)) {
        bail!("{tool} is part of every control plane, not an extra");
    }
    if let Some(tool) = options.extras.iter().find(|tool| matches!(tool, Tool::Helm | Tool::Cosign)) {
        bail!("{tool} is no part of a control plane: `prepare` builds it");
    }
    let mut tries = 1;
    loop {
        let mut launch = Launch { options, tools, progress, running: Running::prepare()? };
        match launch.run(users) {
            Ok(about) => return Ok((launch.running, about)),
            Err(error) if tries < TRIES && format!("{error:#}").contains(PORT_TAKEN) => tries += 1,
            Err(error) => {
                keep(&launch.running.folder)?;
                return Err(
                    error.context(format!("no control plane; its logs are in {}", launch.running.folder.display()))
                );
            }
        }
    }
}

/// Notes in a control plane's folder that it has to be kept.
pub(crate) fn keep(folder: &Path) -> Result<()> {
    fs::write(folder.join(KEEP), "").with_context(|| format!("keep {}", folder.display()))
}

// === impl Launch ===

impl Launch<'_> {
    /// Starts etcd → API server → manifests → controllers: each is there before the next one looks for it.
    fn run(&mut self, users: &[User]) -> Result<About> {
        let folder = self.running.folder.clone();
        let identity = Identity::write(&folder, users)?;
        let ports = Ports::free()?;
        let mut about = About {
            url: format!("https://127.0.0.1:{}", ports.apiserver),
            version: String::new(),
            ca: identity.ca.clone(),
            audit_log: (self.options.audit != AuditScope::Off).then(|| folder.join("audit.log")),
            kubectl: self.tools.path(Tool::Kubectl)?.to_owned(),
            users: users.to_vec(),
            processes: [].into(),
        };
        self.etcd(&ports)?;
        let api = Api::new(&about.url, &about.ca, about.user(ADMIN)?)?;
        about.version = self.apiserver(&ports, &identity, &about, &api)?;
        self.manifests(&about)?;
        for tool in &self.options.extras {
            self.controller(*tool, &identity, &about, &api)?;
        }
        for process in &self.running.processes {
            let pid = process.pid().with_context(|| format!("the process id of {}", process.name()))?;
            about.processes.insert(process.name().to_owned(), pid);
        }
        Ok(about)
    }

    fn etcd(&mut self, ports: &Ports) -> Result<()> {
        let client = format!("http://127.0.0.1:{}", ports.etcd);
        let flags = [
            format!("--data-dir={}", self.running.folder.join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls=http://127.0.0.1:{}", ports.etcd_peer),
            // The data is as short-lived as the process, and a benchmark may write a lot of it.
            "--unsafe-no-fsync".to_owned(),
            "--quota-backend-bytes=8589934592".to_owned(),
        ];
        let agent =
            Agent::config_builder().proxy(None).timeout_global(Some(Duration::from_secs(1))).build().new_agent();
        self.process(Tool::Etcd, &flags, || Ok(agent.get(format!("{client}/health")).call().map(|_| ())?))
    }

    /// Starts the API server, and returns the version that it reports.
    fn apiserver(&mut self, ports: &Ports, identity: &Identity, about: &About, api: &Api) -> Result<String> {
        let mut flags = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
            format!("--secure-port={}", ports.apiserver),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--tls-cert-file={}", identity.certificate.display()),
            format!("--tls-private-key-file={}", identity.key.display()),
            format!("--token-auth-file={}", identity.tokens.display()),
            "--authorization-mode=RBAC".to_owned(),
            format!("--service-account-key-file={}", identity.service_account_public_key.display()),
            format!("--service-account-signing-key-file={}", identity.service_account_key.display()),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
            // Pods are made before the controller manager has made their service account.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--allow-privileged".to_owned(),
        ];
        if let (Some(policy), Some(log)) = (self.options.audit.policy(), &about.audit_log) {
            let path = self.running.folder.join("audit-policy.yaml");
            fs::write(&path, policy.to_string())?;
            flags.push(format!("--audit-policy-file={}", path.display()));
            flags.push(format!("--audit-log-path={}", log.display()));
            flags.push("--audit-log-mode=blocking".to_owned());
            // Never rotated: a mark is a place in one file.
            flags.push("--audit-log-maxsize=0".to_owned());
        }
        flags.extend(self.options.apiserver_flags.iter().cloned());
        self.process(Tool::KubeApiserver, &flags, || {
            api.get("/readyz")?;
            // It is created only after `/readyz` answers 200.
            api.get("/api/v1/namespaces/default")?;
            Ok(())
        })?;
        let version = api.get("/version")?;
        version.get("gitVersion").and_then(Value::as_str).map(str::to_owned).context("the API server has no version")
    }

    fn manifests(&self, about: &About) -> Result<()> {
        if self.options.manifests.is_empty() {
            return Ok(());
        }
        let config = self.kubeconfig(about, ADMIN)?;
        let mut command = Command::new(&about.kubectl);
        command.env("KUBECONFIG", config).args(["apply", "--server-side", "--recursive"]);
        for path in &self.options.manifests {
            command.arg("-f").arg(path);
        }
        let output = command.output().context("start kubectl")?;
        if !output.status.success() {
            bail!("apply the manifests: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    fn controller(&mut self, tool: Tool, identity: &Identity, about: &About, api: &Api) -> Result<()> {
        let mut flags = vec![format!("--kubeconfig={}", self.kubeconfig(about, &format!("system:{tool}"))?.display())];
        match tool {
            Tool::Kwok => {
                flags.push("--manage-all-nodes=true".to_owned());
                flags.extend(self.tools.stages().iter().map(|stage| format!("--config={}", stage.display())));
            }
            Tool::KubeControllerManager => {
                flags.push(format!("--service-account-private-key-file={}", identity.service_account_key.display()));
                flags.push(format!("--root-ca-file={}", identity.ca.display()));
                flags.extend(["--leader-elect=false", "--secure-port=0"].map(str::to_owned));
                flags.extend(self.options.controller_manager_flags.iter().cloned());
            }
            Tool::KubeScheduler | Tool::Etcd | Tool::KubeApiserver | Tool::Kubectl | Tool::Helm | Tool::Cosign => {
                flags.extend(["--leader-elect=false", "--secure-port=0"].map(str::to_owned));
            }
        }
        self.process(tool, &flags, || {
            if tool == Tool::KubeControllerManager {
                // It listens nowhere; the objects that it creates show that it works.
                api.get("/api/v1/namespaces/default/serviceaccounts/default")?;
            }
            Ok(())
        })
    }

    /// Starts a process and waits until `works` returns no error.
    fn process(&mut self, tool: Tool, flags: &[String], works: impl Fn() -> Result<()>) -> Result<()> {
        (self.progress)(Progress::Starting { tool });
        let watch = Stopwatch::start();
        let folder = &self.running.folder;
        let mut kept = Kept::start(Job {
            name: tool.name(),
            program: self.tools.path(tool)?,
            arguments: flags,
            environment: &[],
            folder,
            log: folder.join("logs").join(format!("{tool}.log")),
            pid_file: folder.join("pids").join(tool.name()),
        })?;
        let outcome = wait::until_done(self.options.limit, tool.name(), || {
            if let Err(ended) = kept.check() {
                return Look::Never(ended);
            }
            match works() {
                Ok(()) if kept.pid().is_some() => Look::Done(()),
                Ok(()) => Look::NotYet("no process id".to_owned()),
                Err(error) => Look::NotYet(format!("{error:#}")),
            }
        });
        outcome.map_err(|error| with_tail(error, &kept))?;
        (self.progress)(Progress::Started { tool, took: watch.spent() });
        self.running.processes.push(kept);
        Ok(())
    }

    fn kubeconfig(&self, about: &About, user: &str) -> Result<PathBuf> {
        let user = about.user(user)?;
        let path = self.running.folder.join(format!("{}.kubeconfig", user.file_stem()));
        fs::write(&path, kubeconfig(&about.url, &about.ca, user))?;
        Ok(path)
    }
}

/// Returns the error with the end of the log, unless it has that already.
fn with_tail(error: Error, kept: &Kept) -> Error {
    let text = format!("{error:#}");
    let log = kept.log().display().to_string();
    if text.contains(&log) { error } else { anyhow!("{text}; the end of {log}:\n{}", tail(kept.log())) }
}

// === impl Ports ===

impl Ports {
    /// Returns ports that are free now. All are held until the last one is known, so that they differ.
    fn free() -> Result<Self> {
        let listen = || TcpListener::bind(("127.0.0.1", 0)).context("find a free port");
        let held = [listen()?, listen()?, listen()?];
        let [etcd, etcd_peer, apiserver] = &held;
        let port = |listener: &TcpListener| anyhow::Ok(listener.local_addr()?.port());
        Ok(Self { etcd: port(etcd)?, etcd_peer: port(etcd_peer)?, apiserver: port(apiserver)? })
    }
}

// === impl Running ===

impl Running {
    /// Makes the folder; from here on it is removed, however we end.
    fn prepare() -> Result<Self> {
        // A user who can read the tokens in it can use the API server.
        let mode = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix("capstan-cluster-").permissions(mode).tempdir()?;
        for part in ["logs", "pids"] {
            fs::create_dir(folder.path().join(part))?;
        }
        let janitor = Janitor::start(folder.path())?;
        Ok(Self { folder: folder.keep(), processes: Vec::new(), janitor: Some(janitor) })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if crate::is_kept() || std::thread::panicking() {
            // Without the note the folder is removed, which is the lesser evil.
            drop(keep(&self.folder));
            crate::say(&format!("the logs of the control plane are in {}", self.folder.display()));
        }
        for process in &mut self.processes {
            process.dismiss();
        }
        self.processes.clear();
        self.janitor = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_of_one_start_differ() {
        let Ports { etcd, etcd_peer, apiserver } = Ports::free().unwrap();
        assert!(etcd != etcd_peer && etcd != apiserver && etcd_peer != apiserver);
    }

    #[test]
    fn a_folder_with_tokens_is_closed_to_other_users() {
        let running = Running::prepare().unwrap();
        let mode = fs::metadata(running.folder()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_folder_goes_with_its_control_plane_unless_it_is_kept() {
        let gone = Running::prepare().unwrap();
        let kept = Running::prepare().unwrap();
        keep(kept.folder()).unwrap();
        let folders = [gone.folder().to_owned(), kept.folder().to_owned()];
        drop((gone, kept));
        assert_eq!(folders.each_ref().map(|folder| folder.exists()), [false, true]);
        fs::remove_dir_all(&folders[1]).unwrap();
    }
}

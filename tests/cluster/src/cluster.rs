//! Decides what a control plane offers to its user: its address, its users, its audit log, and when it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::Api;
use crate::audit::{Audit, AuditScope, MARKER};
use crate::connect::{Connection, connect};
use crate::identity::{self, ADMIN, User, VISITOR};
use crate::namespace::Namespace;
use crate::start::{self, Running};
use crate::tools::{self, Progress, Tool};

/// The file in a control plane's folder that says how to attach to it.
const ABOUT: &str = "cluster.json";

/// The parts of a control plane. The default has a controller manager, an audit log of all requests, and the users
/// [`ADMIN`] and [`VISITOR`], which every control plane has.
#[derive(Clone, Debug)]
pub struct Options {
    /// Flags added to the API server's; the last one of a name counts.
    pub apiserver_flags: Vec<String>,
    /// Flags added to the controller manager's.
    pub controller_manager_flags: Vec<String>,
    /// The processes beside etcd and the API server: any of the controller manager, the scheduler and kwok.
    pub extras: BTreeSet<Tool>,
    /// The users whose requests are logged.
    pub audit: AuditScope,
    /// Users on top of [`ADMIN`] and [`VISITOR`].
    pub users: Vec<User>,
    /// Files and folders to apply before the controllers start. The garbage collector knows the kind of a CRD at once
    /// if the CRD exists when it starts, otherwise up to 30 s later.
    pub manifests: Vec<PathBuf>,
    /// How long each process may take until it is ready.
    pub limit: Duration,
}

/// A control plane: one of our own, which ends when this is dropped, or one of another process.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    about: About,
    ca_pem: String,
    api: Api,
    audit: Option<Audit>,
    /// `None` for a control plane of another process.
    running: Option<Running>,
}

/// The facts that another process needs in order to attach.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct About {
    pub(crate) url: String,
    pub(crate) version: String,
    pub(crate) ca: PathBuf,
    /// `None` if there is no log.
    pub(crate) audit_log: Option<PathBuf>,
    pub(crate) kubectl: PathBuf,
    pub(crate) users: Vec<User>,
    /// The process ids, by name.
    pub(crate) processes: BTreeMap<String, u32>,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            apiserver_flags: Vec::new(),
            controller_manager_flags: Vec::new(),
            extras: BTreeSet::from([Tool::KubeControllerManager]),
            audit: AuditScope::default(),
            users: Vec::new(),
            manifests: Vec::new(),
            limit: Duration::from_mins(1),
        }
    }
}

impl Options {
    /// Returns those of the control plane that all scenarios share: workloads run, and the kinds of operators and of all samples and test
    /// guests in a repository are known to the garbage collector from its start.
    ///
    /// # Errors
    /// If the folders with these can't be read.
    pub fn of_scenarios(repository: &Path) -> Result<Self> {
        let mut manifests = ["operators", "approvals"]
            .map(|name| repository.join(format!("charts/capstan/files/{name}.yaml")))
            .to_vec();
        for folder in ["plugins", "tests/guests"].map(|folder| repository.join(folder)) {
            let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
            for entry in entries {
                manifests.extend(Some(entry?.path().join("crd.yaml")).filter(|file| file.is_file()));
            }
        }
        manifests.sort();
        Ok(Self { manifests, ..Self::default() }.with_nodes())
    }

    /// Returns the options with what runs workloads, on nodes that are none.
    #[must_use]
    pub fn with_nodes(self) -> Self {
        self.with(Tool::KubeScheduler).with(Tool::Kwok)
    }

    /// Returns the options with one more process.
    pub fn with(mut self, tool: Tool) -> Self {
        self.extras.insert(tool);
        self
    }

    /// Returns the options with one more user.
    pub fn with_user(mut self, user: User) -> Self {
        self.users.push(user);
        self
    }

    /// Returns the binaries that a control plane of these options needs, for [`tools::prepare`].
    pub fn needs(&self) -> BTreeSet<Tool> {
        Tool::BASE.into_iter().chain(self.extras.iter().copied()).collect()
    }

    /// Returns all users, those of every control plane first.
    fn all_users(&self) -> Result<Vec<User>> {
        let mut users = vec![User::master(ADMIN)?, User::new(VISITOR)?, User::new(MARKER)?];
        let controllers = self.extras.iter().map(|tool| User::master(&format!("system:{tool}")));
        users.extend(controllers.collect::<Result<Vec<_>>>()?);
        users.extend(self.users.iter().cloned());
        let names: BTreeSet<&str> = users.iter().map(|user| user.name.as_str()).collect();
        if names.len() < users.len() {
            bail!("two users of one name: {names:?}");
        }
        Ok(users)
    }
}

// === impl Cluster ===

impl Cluster {
    /// Builds missing binaries, starts a control plane and waits until it serves. Steps that take long are reported
    /// on standard error.
    ///
    /// # Errors
    /// As [`tools::prepare`]; and if a process ends, or is not ready within the limit, with the end of its log.
    pub fn start(options: &Options) -> Result<Self> {
        Self::start_with(options, &tools::to_stderr)
    }

    /// As [`Cluster::start`], but reports to `progress`.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_with(options: &Options, progress: &dyn Fn(Progress)) -> Result<Self> {
        let tools = tools::prepare(&options.needs(), progress)?;
        let users = options.all_users()?;
        let (running, about) = start::start(options, &users, &tools, progress)?;
        let text = serde_json::to_string_pretty(&about)?;
        let folder = running.folder().to_owned();
        let cluster = Self::open(folder, about, Some(running))?;
        fs::create_dir(cluster.folder.join("kubeconfigs"))?;
        for user in &cluster.about.users {
            cluster.write_kubeconfig(user)?;
        }
        // Written last: a process that finds it finds all the rest.
        let path = cluster.folder.join(ABOUT);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(cluster)
    }

    /// Attaches to a running control plane of another process, by its folder.
    ///
    /// # Errors
    /// If there is none, or it does not answer.
    pub fn attach(folder: &Path) -> Result<Self> {
        let path = folder.join(ABOUT);
        let text = fs::read_to_string(&path).with_context(|| format!("no control plane: read {}", path.display()))?;
        let about = serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))?;
        let cluster = Self::open(folder.to_owned(), about, None)?;
        cluster
            .api
            .get("/readyz")
            .with_context(|| format!("the control plane of {} is not there", folder.display()))?;
        Ok(cluster)
    }

    fn open(folder: PathBuf, about: About, running: Option<Running>) -> Result<Self> {
        let client = |name: &str| Api::new(&about.url, &about.ca, about.user(name)?);
        let audit = about.audit_log.clone().map(|log| anyhow::Ok(Audit::new(log, client(MARKER)?))).transpose()?;
        let ca_pem = fs::read_to_string(&about.ca)?;
        Ok(Self { api: client(ADMIN)?, audit, ca_pem, folder, about, running })
    }

    /// Returns the API server's address.
    pub fn url(&self) -> &str {
        &self.about.url
    }

    /// Returns the version of Kubernetes that the API server reports, such as `v1.36.3`.
    pub fn version(&self) -> &str {
        &self.about.version
    }

    /// Returns the certificate authority of the API server.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Opens a connection to the API server.
    ///
    /// # Errors
    /// If it can't be reached.
    pub fn connect(&self) -> Result<Connection> {
        connect(&self.about.url, &self.ca_pem)
    }

    /// Returns the folder with the logs and all other files; another process can attach to it.
    pub fn dir(&self) -> &Path {
        &self.folder
    }

    /// Returns the process ids by name.
    pub fn processes(&self) -> &BTreeMap<String, u32> {
        &self.about.processes
    }

    /// Returns a user of the start by name.
    ///
    /// # Errors
    /// If there is no such user.
    pub fn user(&self, name: &str) -> Result<&User> {
        self.about.user(name)
    }

    /// Returns the client of [`ADMIN`].
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Returns a client for a user: one of the start, or a service account.
    ///
    /// # Errors
    /// If the authority can't be read.
    pub fn api_as(&self, user: &User) -> Result<Api> {
        Api::new(&self.about.url, &self.about.ca, user)
    }

    /// Returns the kubeconfig of [`ADMIN`].
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfigs").join(format!("{ADMIN}.yaml"))
    }

    /// Returns the kubeconfig of a user, which is written on the first call.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn kubeconfig(&self, user: &User) -> Result<PathBuf> {
        if self.about.users.contains(user) { Ok(self.kubeconfig_path(user)) } else { self.write_kubeconfig(user) }
    }

    /// Returns the audit log.
    ///
    /// # Errors
    /// If the control plane was started without one.
    pub fn audit(&self) -> Result<&Audit> {
        self.audit.as_ref().context("this control plane has no audit log")
    }

    /// Makes a fresh namespace whose name starts with `prefix`; it is deleted when dropped.
    ///
    /// # Errors
    /// If the API server refuses, as it does for a prefix that can't be in a name.
    pub fn namespace(&self, prefix: &str) -> Result<Namespace> {
        Namespace::create(self.api.clone(), prefix)
    }

    /// Makes a node of kwok, which is ready at once and takes 5,000 pods.
    ///
    /// # Errors
    /// If the API server refuses.
    pub fn add_node(&self, name: &str) -> Result<()> {
        let room = json!({ "cpu": "32", "memory": "256Gi", "pods": "5000" });
        let node = json!({
            "metadata": { "name": name, "annotations": { "kwok.x-k8s.io/node": "fake" }, "labels": { "kubernetes.io/hostname": name } },
            "status": { "allocatable": room, "capacity": room },
        });
        self.api.create("/api/v1/nodes", &node)?;
        Ok(())
    }

    /// Returns the path of kubectl.
    pub fn kubectl_path(&self) -> &Path {
        &self.about.kubectl
    }

    /// Returns a command of kubectl that acts as [`ADMIN`], without arguments yet.
    pub fn kubectl_command(&self) -> Command {
        let mut command = Command::new(&self.about.kubectl);
        command.env("KUBECONFIG", self.admin_kubeconfig()).env("KUBECACHEDIR", self.folder.join("kubectl-cache"));
        command.stdin(Stdio::null());
        command
    }

    /// Runs kubectl as [`ADMIN`] and returns its standard output.
    ///
    /// # Errors
    /// If it fails, with its standard error.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl_with_input(arguments, "")
    }

    /// Runs kubectl as [`ADMIN`] with a standard input, as for `apply -f -`, and returns its standard output.
    ///
    /// # Errors
    /// As [`Cluster::kubectl`].
    pub fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut command = self.kubectl_command();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {}", self.about.kubectl.display()))?;
        let mut pipe = child.stdin.take().context("kubectl has no standard input")?;
        let output = std::thread::scope(|scope| {
            // A kubectl that ends without reading reports the reason itself.
            scope.spawn(move || drop(pipe.write_all(input.as_bytes())));
            child.wait_with_output()
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(anyhow!(
            "kubectl {}: {}: {}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ))
    }

    /// Applies manifests in YAML by server-side apply.
    ///
    /// # Errors
    /// As [`Cluster::kubectl`].
    pub fn apply(&self, yaml: &str) -> Result<String> {
        self.kubectl_with_input(&["apply", "--server-side", "--force-conflicts", "-f", "-"], yaml)
    }

    /// Keeps the folder with its logs after the end.
    ///
    /// # Errors
    /// If that can't be noted in the folder.
    pub fn keep(&self) -> Result<()> {
        start::keep(&self.folder)
    }

    /// Ends the control plane and waits until its processes and its folder are gone; a control plane of another
    /// process continues.
    pub fn stop(self) {
        let Self { running, .. } = self;
        drop(running);
    }

    fn kubeconfig_path(&self, user: &User) -> PathBuf {
        self.folder.join("kubeconfigs").join(format!("{}.yaml", user.file_stem()))
    }

    /// Writes the kubeconfig aside and moves it, as another process may be reading it.
    fn write_kubeconfig(&self, user: &User) -> Result<PathBuf> {
        let path = self.kubeconfig_path(user);
        let part = path.with_extension(identity::chance(4)?);
        fs::write(&part, identity::kubeconfig(&self.about.url, &self.about.ca, user))?;
        fs::rename(&part, &path).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }
}

// === impl About ===

impl About {
    pub(crate) fn user(&self, name: &str) -> Result<&User> {
        self.users.iter().find(|user| user.name == name).with_context(|| format!("no user {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_users_of_one_name_are_refused() {
        let options = Options::default().with_user(User::new(ADMIN).unwrap());
        let error = options.all_users().unwrap_err().to_string();
        assert!(error.starts_with("two users of one name"), "{error}");
    }

    #[test]
    fn kwok_and_the_scheduler_are_needed_only_on_demand() {
        let base = Options::default();
        assert_eq!(
            base.needs(),
            BTreeSet::from([Tool::Etcd, Tool::KubeApiserver, Tool::KubeControllerManager, Tool::Kubectl])
        );
        assert!(base.with(Tool::Kwok).needs().contains(&Tool::Kwok));
    }
}

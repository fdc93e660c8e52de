//! Decides where each binary of a control plane comes from, and builds those that are missing.
//!
//! A binary is looked for in the folder that `KUBEBUILDER_ASSETS` names, then in our cache; one that is in neither is
//! built from the Go modules under `go/`, pinned and checked by `go.sum`. The modules' files are part of this
//! library, so that a build never depends on the working folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use std::{env, io, process};

use anyhow::{Context, Result, anyhow, bail};
use ring::digest::{self, SHA256};

use crate::keeper::{Job, Kept};
use crate::wait::Stopwatch;

/// The folder of ready-made binaries, as `setup-envtest` lays it out.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// The names of kwok's stages in its module: nodes and pods that become ready at once, and nodes that stay ready.
const STAGES: [&str; 3] = ["node/fast", "node/heartbeat", "pod/fast"];
/// The prefix of the names of folders in which binaries are built.
const SOURCE: &str = "source-";
const WITHOUT_GO: &str = "install a newer Go from https://go.dev/dl, or set KUBEBUILDER_ASSETS to a folder that holds etcd, \
     kube-apiserver, kubectl and kube-controller-manager";

/// A binary of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// The database behind the API server.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// Garbage collection, namespace deletion, Deployments, Jobs and the rest.
    KubeControllerManager,
    /// The command line client.
    Kubectl,
    /// Puts pods on nodes.
    KubeScheduler,
    /// Simulates nodes and pods that become ready without containers.
    Kwok,
    /// Installs charts; not a part of a control plane, only for tests of a chart.
    Helm,
    /// Signs what registries have; not a part of a control plane, only for tests of signatures.
    Cosign,
}

/// A step in preparing and starting a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another process builds into the same cache, and we wait for its end.
    Waiting {
        /// The file that the other process has locked.
        lock: PathBuf,
    },
    /// A binary is being built, which takes minutes the first time.
    Building {
        /// The binary.
        tool: Tool,
        /// Its place among those to be built, from 1.
        position: usize,
        /// How many are to be built.
        of: usize,
    },
    /// A binary has been built.
    Built {
        /// The binary.
        tool: Tool,
        /// How long it took.
        took: Duration,
    },
    /// A process is being started.
    Starting {
        /// The binary.
        tool: Tool,
    },
    /// A process is ready.
    Started {
        /// The binary.
        tool: Tool,
        /// How long it took.
        took: Duration,
    },
}

/// The paths of the binaries.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    binaries: BTreeMap<Tool, PathBuf>,
    /// kwok's stage files; empty unless kwok was asked for.
    stages: Vec<PathBuf>,
}

/// A Go module of ours whose `tool` block names binaries.
struct Module {
    name: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
}

static CONTROL_PLANE: Module = Module {
    name: "control-plane",
    go_mod: include_str!("../go/control-plane/go.mod"),
    go_sum: include_str!("../go/control-plane/go.sum"),
};
static KWOK: Module =
    Module { name: "kwok", go_mod: include_str!("../go/kwok/go.mod"), go_sum: include_str!("../go/kwok/go.sum") };
static HELM: Module =
    Module { name: "helm", go_mod: include_str!("../go/helm/go.mod"), go_sum: include_str!("../go/helm/go.sum") };
static COSIGN: Module =
    Module { name: "cosign", go_mod: include_str!("../go/cosign/go.mod"), go_sum: include_str!("../go/cosign/go.sum") };

/// Returns the binaries asked for, and builds those that are missing; one build at a time per cache.
///
/// # Errors
/// If `KUBEBUILDER_ASSETS` is set and incomplete, if Go is needed and missing or too old (the text says what to do),
/// or if a build fails (the text has the end of its output).
pub fn prepare(needs: &BTreeSet<Tool>, progress: &dyn Fn(Progress)) -> Result<Tools> {
    let given = env::var_os(ASSETS).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let mut tools = Tools::default();
    for tool in needs {
        if let Some(binary) = given.as_deref().map(|folder| tool.given(folder)).transpose()?.flatten() {
            tools.binaries.insert(*tool, binary);
        }
    }
    for module in [&CONTROL_PLANE, &KWOK, &HELM, &COSIGN] {
        let wanted =
            needs.iter().filter(|tool| !tools.binaries.contains_key(tool) && tool.module().name == module.name);
        let wanted: Vec<Tool> = wanted.copied().collect();
        if wanted.is_empty() {
            continue;
        }
        let shelf = Shelf { module, folder: cache()?.join(module.name).join(module.key()) };
        shelf.fill(&wanted, progress)?;
        tools.binaries.extend(wanted.iter().map(|tool| (*tool, shelf.binary(*tool))));
    }
    if tools.binaries.contains_key(&Tool::Kwok) {
        tools.stages = Shelf { module: &KWOK, folder: cache()?.join(KWOK.name).join(KWOK.key()) }.stages()?;
    }
    Ok(tools)
}

/// Returns the version of Kubernetes that is built, such as `v1.36.3`.
pub fn kubernetes_version() -> &'static str {
    CONTROL_PLANE.version("k8s.io/kubernetes").unwrap_or("v0.0.0")
}

/// Writes steps that take long to standard error, one line each; quick ones are left out.
pub fn to_stderr(progress: Progress) {
    let line = match progress {
        Progress::Waiting { lock } => {
            format!("waiting for another process to build ({})", lock.display())
        }
        Progress::Building { tool, position, of } => {
            format!("building {tool} ({position} of {of}; minutes, the first time only)")
        }
        Progress::Built { tool, took } => format!("built {tool} in {} s", took.as_secs()),
        Progress::Starting { .. } | Progress::Started { .. } => return,
    };
    crate::say(&line);
}

/// Returns the folder for files that take long to make: `$CAPSTAN_CACHE`, else `$XDG_CACHE_HOME/capstan`, else
/// `~/.cache/capstan`.
///
/// # Errors
/// If none of the three variables is set.
pub fn cache() -> Result<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("CAPSTAN_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("capstan")))
        .or_else(|| set("HOME").map(|folder| folder.join(".cache/capstan")))
        .context("no folder for the binaries: set CAPSTAN_CACHE or HOME")?;
    Ok(std::path::absolute(folder)?)
}

// === impl Tool ===

impl Tool {
    /// The binaries that every control plane needs.
    pub const BASE: [Self; 3] = [Self::Etcd, Self::KubeApiserver, Self::Kubectl];

    /// Returns the file name of the binary.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::Kubectl => "kubectl",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Helm => "helm",
            Self::Cosign => "cosign",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::KubeScheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::Kwok => "sigs.k8s.io/kwok/cmd/kwok",
            Self::Helm => "helm.sh/helm/v4/cmd/helm",
            Self::Cosign => "github.com/sigstore/cosign/v3/cmd/cosign",
        }
    }

    fn module(self) -> &'static Module {
        match self {
            Self::Etcd | Self::KubeApiserver | Self::KubeControllerManager | Self::Kubectl | Self::KubeScheduler => {
                &CONTROL_PLANE
            }
            Self::Kwok => &KWOK,
            Self::Helm => &HELM,
            Self::Cosign => &COSIGN,
        }
    }

    /// Returns the ready-made binary in `folder`; `None` if it is missing and such a folder need not hold it.
    fn given(self, folder: &Path) -> Result<Option<PathBuf>> {
        let binary = std::path::absolute(folder.join(self.name()))?;
        match self {
            _ if binary.is_file() => Ok(Some(binary)),
            Self::Etcd | Self::KubeApiserver | Self::Kubectl => {
                bail!("{ASSETS} is set, but {} is not there", binary.display())
            }
            Self::KubeControllerManager | Self::KubeScheduler | Self::Kwok | Self::Helm | Self::Cosign => Ok(None),
        }
    }
}

impl Display for Tool {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

// === impl Tools ===

impl Tools {
    /// Returns the path of a binary that was asked for.
    ///
    /// # Errors
    /// If it was not asked for.
    pub fn path(&self, tool: Tool) -> Result<&Path> {
        self.binaries.get(&tool).map(PathBuf::as_path).with_context(|| format!("{tool} was not asked for"))
    }

    pub(crate) fn stages(&self) -> &[PathBuf] {
        &self.stages
    }
}

// === impl Module ===

impl Module {
    /// Returns the version in the `require` line of a module.
    fn version(&self, module: &str) -> Option<&'static str> {
        self.go_mod.lines().find_map(|line| {
            let mut words = line.trim().trim_start_matches("require ").split(' ');
            (words.next() == Some(module)).then(|| words.next())?
        })
    }

    /// Returns the Go version that is needed, from the `go` line.
    fn go(&self) -> Option<&'static str> {
        self.go_mod.lines().find_map(|line| line.strip_prefix("go "))
    }

    /// Returns the linker's flags. Clients parse the server's version, and without these it is a placeholder.
    fn linker_flags(&self) -> String {
        let mut flags = vec!["-s -w".to_owned()];
        if let Some(version) = self.version("helm.sh/helm/v4") {
            flags.push(format!("-X helm.sh/helm/v4/internal/version.version={version}"));
        }
        if let Some(version) = self.version("k8s.io/kubernetes") {
            let mut numbers = version.trim_start_matches('v').split('.');
            let mut number = || numbers.next().unwrap_or_default();
            let facts = [("gitVersion", version), ("gitMajor", number()), ("gitMinor", number())];
            for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
                flags.extend(facts.map(|(name, value)| format!("-X {package}.{name}={value}")));
            }
        }
        flags.join(" ")
    }

    /// Returns a folder name that is a digest of all that the binaries depend on.
    fn key(&self) -> String {
        let mut context = digest::Context::new(&SHA256);
        for part in [self.go_mod, self.go_sum, &self.linker_flags(), env::consts::OS, env::consts::ARCH] {
            context.update(part.as_bytes());
            context.update(&[0]);
        }
        crate::hex(context.finish().as_ref().iter().take(8))
    }
}

// === impl Shelf ===

/// The cached binaries of one module in one version.
struct Shelf {
    module: &'static Module,
    folder: PathBuf,
}

impl Shelf {
    fn binary(&self, tool: Tool) -> PathBuf {
        self.folder.join(tool.name())
    }

    fn missing(&self, wanted: &[Tool]) -> Vec<Tool> {
        wanted.iter().copied().filter(|tool| !self.binary(*tool).is_file()).collect()
    }

    /// Builds the missing binaries, unless another process does.
    fn fill(&self, wanted: &[Tool], progress: &dyn Fn(Progress)) -> Result<()> {
        if self.missing(wanted).is_empty() {
            return Ok(());
        }
        fs::create_dir_all(&self.folder).with_context(|| format!("create {}", self.folder.display()))?;
        let _lock = self.lock(progress)?;
        let missing = self.missing(wanted);
        if missing.is_empty() {
            return Ok(());
        }
        self.sweep()?;
        let source = tempfile::Builder::new().prefix(SOURCE).tempdir_in(&self.folder)?;
        fs::write(source.path().join("go.mod"), self.module.go_mod)?;
        fs::write(source.path().join("go.sum"), self.module.go_sum)?;
        self.check_go(source.path(), &missing)?;
        for (index, tool) in missing.iter().copied().enumerate() {
            progress(Progress::Building { tool, position: index + 1, of: missing.len() });
            let watch = Stopwatch::start();
            self.build(tool, source.path())?;
            progress(Progress::Built { tool, took: watch.spent() });
        }
        Ok(())
    }

    /// Removes the folders that killed builds have left. The lock must be held.
    fn sweep(&self) -> Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(SOURCE) {
                // The linker of a killed build may still be writing there; the next sweep gets it.
                drop(fs::remove_dir_all(entry.path()));
            }
        }
        Ok(())
    }

    /// Locks the cache until the returned file is dropped, or the process ends.
    fn lock(&self, progress: &dyn Fn(Progress)) -> Result<File> {
        let path = self.folder.join("lock");
        let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress(Progress::Waiting { lock: path });
                file.lock()?;
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).context("lock the folder of the binaries");
            }
        }
        Ok(file)
    }

    fn check_go(&self, source: &Path, missing: &[Tool]) -> Result<()> {
        let names: Vec<&str> = missing.iter().map(|tool| tool.name()).collect();
        let need = self.module.go().unwrap_or("1.26");
        let purpose = format!("Go {need} or newer is needed to build {}", names.join(", "));
        let output = match go(source, &["env", "GOVERSION"]) {
            Ok(output) => output,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!("{purpose}, and there is no `go`: {WITHOUT_GO}")
            }
            Err(error) => return Err(error).context("run `go env GOVERSION`"),
        };
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() {
            bail!("{purpose}: {WITHOUT_GO}\n{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        if numbers(said.trim_start_matches("go")) < numbers(need) {
            bail!("{purpose}, and this is {said}: {WITHOUT_GO}");
        }
        Ok(())
    }

    /// Builds a binary, under another name first: a build that is killed leaves no file that looks like a binary.
    fn build(&self, tool: Tool, source: &Path) -> Result<()> {
        let part = source.join(tool.name());
        let flags = self.module.linker_flags();
        let part_text = part.to_str().context("the cache's path is not UTF-8")?;
        let arguments = ["build", "-mod=readonly", "-trimpath", "-ldflags", &flags, "-o", part_text, tool.package()];
        // Files that a killed go leaves behind are removed with the folder.
        let scratch = source.join("tmp");
        fs::create_dir_all(&scratch)?;
        let scratch = scratch.to_str().context("the cache's path is not UTF-8")?;
        let mut environment = GO_ENVIRONMENT.to_vec();
        environment.push(("GOTMPDIR", scratch));
        let log = self.folder.join(format!("{tool}.log"));
        // Below a keeper, so that a build doesn't continue for minutes when no process waits for it any more.
        let job = Job {
            name: &format!("the build of {tool}"),
            program: Path::new("go"),
            arguments: &arguments.map(str::to_owned),
            environment: &environment,
            folder: source,
            log: log.clone(),
            pid_file: source.join("pid"),
        };
        Kept::start(job)?.finish()?;
        fs::remove_file(log)?;
        if tool == Tool::Kwok {
            self.copy_stages(source)?;
        }
        fs::rename(&part, self.binary(tool)).with_context(|| format!("put {tool} into {}", self.folder.display()))
    }

    /// Copies kwok's stage files beside the binaries; they exist whenever its binary does.
    fn copy_stages(&self, source: &Path) -> Result<()> {
        let output = go(source, &["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"])?;
        let module = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let part = source.join("stages");
        fs::create_dir_all(&part)?;
        for stage in STAGES {
            let from = module.join("kustomize/stage").join(stage);
            for entry in fs::read_dir(&from).with_context(|| format!("read kwok's stages in {}", from.display()))? {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if path.extension().is_some_and(|extension| extension == "yaml") && name != "kustomization.yaml" {
                    // The module cache is read-only and `fs::copy` would copy that too.
                    fs::write(part.join(format!("{}-{name}", stage.replace('/', "-"))), fs::read(&path)?)?;
                }
            }
        }
        let stages = self.folder.join("stages");
        if stages.exists() {
            fs::remove_dir_all(&stages)?;
        }
        fs::rename(part, &stages).with_context(|| format!("put {}", stages.display()))
    }

    fn stages(&self) -> Result<Vec<PathBuf>> {
        let folder = self.folder.join("stages");
        let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
        let mut stages = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
        stages.sort();
        if stages.is_empty() {
            return Err(anyhow!("no stage files for kwok in {}", folder.display()));
        }
        Ok(stages)
    }
}

/// The environment of a `go` command, on top of the user's: static binaries for this machine, and no settings that
/// belong to another module.
const GO_ENVIRONMENT: [(&str, &str); 6] =
    [("CGO_ENABLED", "0"), ("GOFLAGS", ""), ("GOWORK", "off"), ("GO111MODULE", "on"), ("GOOS", ""), ("GOARCH", "")];

fn go(folder: &Path, arguments: &[&str]) -> io::Result<Output> {
    Command::new("go").args(arguments).envs(GO_ENVIRONMENT).current_dir(folder).stdin(process::Stdio::null()).output()
}

/// Returns the leading numbers of a version, so that versions compare.
fn numbers(version: &str) -> Vec<u32> {
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
    version.split('.').map_while(|part| digits(part).parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_is_reported_is_the_one_that_is_required() {
        assert_eq!(kubernetes_version(), "v1.36.3");
        let flags = CONTROL_PLANE.linker_flags();
        for flag in ["gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36"] {
            assert!(flags.contains(&format!("-X k8s.io/component-base/version.{flag}")), "{flags}");
        }
        assert_eq!(KWOK.linker_flags(), "-s -w");
    }

    #[test]
    fn every_published_staging_module_is_of_the_release_that_is_built() {
        let published = kubernetes_version().replacen("v1.", "v0.", 1);
        let lines = CONTROL_PLANE.go_mod.lines();
        let replaced: Vec<_> = lines.filter_map(|line| line.trim().split_once(" => ")).collect();
        let right = |(name, other): &&(&str, &str)| *other == format!("{name} {published}");
        let wrong: Vec<_> = replaced.iter().filter(|pair| !right(pair)).collect();
        assert_eq!(wrong, Vec::<&(&str, &str)>::new());
        assert!(replaced.contains(&("k8s.io/api", &format!("k8s.io/api {published}"))));
    }

    #[test]
    fn every_tool_is_named_by_its_module() {
        use Tool::{Etcd, KubeApiserver, KubeControllerManager, KubeScheduler, Kubectl, Kwok};
        for tool in [Etcd, KubeApiserver, KubeControllerManager, Kubectl, KubeScheduler, Kwok] {
            let named =
                tool.module().go_mod.lines().any(|line| line.trim().trim_start_matches("tool ") == tool.package());
            assert!(named, "{tool}");
        }
    }

    #[test]
    fn another_go_sum_is_another_folder() {
        let other = Module { go_sum: "", ..CONTROL_PLANE };
        assert_eq!(CONTROL_PLANE.key().len(), 16);
        assert_ne!(CONTROL_PLANE.key(), other.key());
    }

    #[test]
    fn versions_of_go_compare_by_number() {
        let older = [("1.9.7", "1.26.0"), ("1.25.11", "1.26.0"), ("1.26", "1.26.1"), ("1.26rc1", "1.26.0")];
        let wrong: Vec<_> = older.into_iter().filter(|(old, new)| numbers(old) >= numbers(new)).collect();
        assert_eq!(wrong, []);
    }

    #[test]
    fn ready_made_binaries_are_taken_and_only_the_base_must_be_there() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("etcd"), "").unwrap();
        let given = |tool: Tool| tool.given(folder.path()).map_err(|error| error.to_string());
        assert_eq!(given(Tool::Etcd), Ok(Some(folder.path().join("etcd"))));
        assert_eq!(given(Tool::KubeControllerManager), Ok(None));
        let missing = folder.path().join("kubectl");
        assert_eq!(
            given(Tool::Kubectl),
            Err(format!("KUBEBUILDER_ASSETS is set, but {} is not there", missing.display()))
        );
    }
}

//! Decides what is measured: which daemon, and which components and manifest it runs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The lines of the sample's manifest below which settings of its plugin can be added.
const PLUGIN: &str = "  plugins:\n    webpage:\n";
/// The line of the sample's manifest below which settings of its controller can be added.
const CONTROLLER: &str = "      plugin: webpage\n";

/// A language that the sample is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// Compiled to WebAssembly.
    Rust,
    /// `CPython` inside of the component.
    Python,
    /// `QuickJS` inside of the component.
    JavaScript,
    /// Compiled, with Go's runtime.
    Go,
}

/// What is measured.
pub(crate) struct Subject {
    capstan: PathBuf,
    component: PathBuf,
    /// The component that does what its primary says.
    probe: PathBuf,
    /// Where components in all languages are put.
    plugins: PathBuf,
    /// The release, if it has been built: its size is what users get.
    release: Option<PathBuf>,
}

impl Subject {
    /// Builds the daemon and the components in Rust, so that what is measured is what the sources say.
    ///
    /// # Errors
    /// When a build fails.
    pub(crate) fn build() -> Result<Self> {
        let capstan = target()?.join("perf/capstan");
        cargo(&["--profile", "perf", "-p", "capstan"])?;
        cargo(&["--profile", "plugin", "--target", "wasm32-wasip2", "-p", "webpage", "-p", "probe"])?;
        Self::of(capstan)
    }

    /// Takes what has been built before.
    ///
    /// # Errors
    /// When something is missing.
    pub(crate) fn built(capstan: Option<PathBuf>) -> Result<Self> {
        let perf = target()?.join("perf/capstan");
        Self::of(capstan.unwrap_or(perf))
    }

    fn of(capstan: PathBuf) -> Result<Self> {
        let target = target()?;
        let built = target.join("wasm32-wasip2/plugin");
        let (component, probe) = (built.join("webpage.wasm"), built.join("probe.wasm"));
        for file in [&capstan, &component, &probe] {
            if !file.is_file() {
                bail!("{} is missing: leave out --no-build", file.display());
            }
        }
        let release = target.join("release/capstan");
        Ok(Self {
            capstan,
            component,
            probe,
            plugins: target.join("plugins"),
            release: Some(release).filter(|file| file.is_file()),
        })
    }

    /// Returns the daemon's binary.
    pub(crate) fn capstan(&self) -> &Path {
        &self.capstan
    }

    /// Returns the component.
    pub(crate) fn component(&self) -> &Path {
        &self.component
    }

    /// Returns the component that does what its primary says.
    pub(crate) fn probe(&self) -> &Path {
        &self.probe
    }

    /// Returns where the sample's component in a language is; only the one in Rust is always there.
    pub(crate) fn component_in(&self, language: Language) -> PathBuf {
        match language {
            Language::Rust => self.component.clone(),
            Language::Python => self.plugins.join("webpage-python.wasm"),
            Language::JavaScript => self.plugins.join("webpage-javascript.wasm"),
            Language::Go => self.plugins.join("webpage-go.wasm"),
        }
    }

    /// Returns the custom resource definitions of sample and probe.
    pub(crate) fn crds() -> Vec<PathBuf> {
        let kinds = ["webpage", "probe"];
        let file = |name| repository().join(format!("plugins/{name}/crd.yaml"));
        kinds.map(file).to_vec()
    }

    /// Returns the sample's manifest as it is delivered.
    ///
    /// # Errors
    /// When it can't be read.
    pub(crate) fn manifest() -> Result<String> {
        let path = repository().join("plugins/webpage/webpage.yaml");
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    }

    /// Returns the sample's manifest with one more setting of its controller.
    ///
    /// # Errors
    /// When the manifest has no place for it.
    pub(crate) fn manifest_with(setting: &str) -> Result<String> {
        after(&Self::manifest()?, CONTROLLER, setting)
    }

    /// Returns the sample's manifest for another component, with settings of the plugin and of the controller.
    ///
    /// # Errors
    /// When the manifest has no place for one of them.
    pub(crate) fn manifest_for(component: &str, plugin: &str, controller: &[&str]) -> Result<String> {
        let manifest = Self::manifest()?.replacen("webpage.wasm", component, 1);
        let mut manifest = after(&manifest, PLUGIN, plugin)?;
        for setting in controller {
            manifest = after(&manifest, CONTROLLER, setting)?;
        }
        Ok(manifest)
    }

    /// Returns the size of the release in MiB, if there is one.
    pub(crate) fn release_size(&self) -> Option<f64> {
        let size = fs::metadata(self.release.as_ref()?).ok()?.len();
        #[expect(clippy::cast_precision_loss, reason = "a size to be read by people")]
        let size = size as f64;
        Some(size / f64::from(1 << 20))
    }

    /// Returns what the daemon says of its version.
    ///
    /// # Errors
    /// When it can't be run.
    pub(crate) fn version(&self) -> Result<Value> {
        let mut command = Command::new(&self.capstan);
        let output = command.args(["version", "-o", "json"]).output();
        let output = output.with_context(|| format!("run {}", self.capstan.display()))?;
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
    }
}

// === impl Language ===

impl Language {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Rust, Self::Python, Self::JavaScript, Self::Go];

    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
            Self::Go => "Go",
        }
    }
}

/// Adds a setting after a line of a manifest, as deep as that.
fn after(manifest: &str, line: &str, setting: &str) -> Result<String> {
    let (before, after) = manifest.split_once(line).context("the sample's manifest has another shape")?;
    Ok(format!("{before}{line}      {setting}\n{after}"))
}

fn cargo(arguments: &[&str]) -> Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet"]).args(arguments);
    let status = command.current_dir(repository()).status();
    let status = status.context("start cargo")?;
    if !status.success() {
        bail!("cargo build {}: {status}", arguments.join(" "));
    }
    Ok(())
}

/// Returns the folder of the sources.
fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// Returns cargo's target folder, which this program runs from.
fn target() -> Result<PathBuf> {
    let program = env::current_exe()?;
    let mut folders = program.ancestors();
    let target = folders.find(|folder| folder.join("CACHEDIR.TAG").exists());
    Ok(target.context("this program runs from cargo's target folder")?.to_owned())
}

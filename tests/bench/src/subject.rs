//! Decides what is measured: which daemon, and which component and manifest it runs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The line of the sample's manifest below which settings of its controller can be added.
const CONTROLLER: &str = "      plugin: webpage\n";

/// What is measured.
pub(crate) struct Subject {
    capstan: PathBuf,
    component: PathBuf,
    /// The release, if it has been built: its size is what users get.
    release: Option<PathBuf>,
}

impl Subject {
    /// Builds the daemon and the sample's component, so that what is measured is what the sources say.
    ///
    /// # Errors
    /// When a build fails.
    pub(crate) fn build() -> Result<Self> {
        let target = target()?;
        cargo(&["--profile", "perf", "-p", "capstan"])?;
        cargo(&[
            "--profile",
            "plugin",
            "--target",
            "wasm32-wasip2",
            "-p",
            "webpage",
        ])?;
        Self::of(
            target.join("perf/capstan"),
            target.join("wasm32-wasip2/plugin/webpage.wasm"),
        )
    }

    /// Takes what has been built before.
    ///
    /// # Errors
    /// When something is missing.
    pub(crate) fn built(capstan: Option<PathBuf>) -> Result<Self> {
        let target = target()?;
        Self::of(
            capstan.unwrap_or_else(|| target.join("perf/capstan")),
            target.join("wasm32-wasip2/plugin/webpage.wasm"),
        )
    }

    fn of(capstan: PathBuf, component: PathBuf) -> Result<Self> {
        for file in [&capstan, &component] {
            if !file.is_file() {
                bail!("{} is missing: leave out --no-build", file.display());
            }
        }
        let release = target()?.join("release/capstan");
        Ok(Self {
            capstan,
            component,
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

    /// Returns the sample's custom resource definition.
    pub(crate) fn crd() -> PathBuf {
        repository().join("plugins/webpage/crd.yaml")
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
        let manifest = Self::manifest()?;
        let (before, after) = manifest
            .split_once(CONTROLLER)
            .context("the sample's manifest has another shape")?;
        Ok(format!("{before}{CONTROLLER}      {setting}\n{after}"))
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
    Ok(target
        .context("this program runs from cargo's target folder")?
        .to_owned())
}

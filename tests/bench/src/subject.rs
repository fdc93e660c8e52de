//! Decides what is measured: which daemon, and which components and manifest it runs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::measure::number;

/// The lines of the sample's manifest below which settings of its plugin can be added.
const PLUGIN: &str = "  plugins:\n    webpage:\n";
/// The line of the sample's manifest below which settings of its controller can be added.
const CONTROLLER: &str = "      plugin: webpage\n";
/// The component of the sample, as its manifest names it.
pub(crate) const SAMPLE: &str = "webpage.wasm";

pub(crate) struct Subject {
    pub(crate) capstan: PathBuf,
    pub(crate) component: PathBuf,
    /// The component that does what its primary says.
    pub(crate) probe: PathBuf,
    /// Where components in all languages are put.
    pub(crate) plugins: PathBuf,
    /// Where the release is, if it has been built.
    release: PathBuf,
}

impl Subject {
    /// Finds what is measured. Builds the daemon and the components in Rust before, so that it is what the sources say, unless
    /// another daemon is given or `is_built`.
    pub(crate) fn find(capstan: Option<PathBuf>, is_built: bool) -> Result<Self> {
        if capstan.is_none() && !is_built {
            cargo(&["--profile", "perf", "-p", "capstan"])?;
            cargo(&["--profile", "plugin", "--target", "wasm32-wasip2", "-p", "webpage", "-p", "probe"])?;
        }
        let target = target()?;
        let built = |path: &str| target.join(path);
        let subject = Self {
            capstan: capstan.unwrap_or_else(|| built("perf/capstan")),
            component: built("wasm32-wasip2/plugin/webpage.wasm"),
            probe: built("wasm32-wasip2/plugin/probe.wasm"),
            plugins: built("plugins"),
            release: built("release/capstan"),
        };
        for file in [&subject.capstan, &subject.component, &subject.probe] {
            ensure!(file.is_file(), "{} is missing: leave out --no-build", file.display());
        }
        Ok(subject)
    }

    /// Returns the custom resource definitions of sample and probe, and of operators and their approvals.
    pub(crate) fn crds() -> Vec<PathBuf> {
        let files = ["plugins/webpage/crd.yaml", "tests/guests/probe/crd.yaml"];
        let own = ["charts/capstan/files/operators.yaml", "charts/capstan/files/approvals.yaml"];
        files.into_iter().chain(own).map(|file| repository().join(file)).collect()
    }

    /// Returns the sample's manifest for a component, with more settings of the plugin and of the controller.
    pub(crate) fn manifest(component: &str, plugin: &[&str], controller: &[&str]) -> Result<String> {
        let path = repository().join("plugins/webpage/webpage.yaml");
        let manifest = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let mut manifest = manifest.replacen(SAMPLE, component, 1);
        for (line, settings) in [(PLUGIN, plugin), (CONTROLLER, controller)] {
            for setting in settings {
                let parts = manifest.split_once(line).context("the sample's manifest has another shape")?;
                manifest = format!("{}{line}      {setting}\n{}", parts.0, parts.1);
            }
        }
        Ok(manifest)
    }

    /// Returns the sample's manifest as it is delivered.
    pub(crate) fn sample() -> Result<String> {
        Self::manifest(SAMPLE, &[], &[])
    }

    /// Returns the size of the release in MiB, if it has been built: it is what users get.
    pub(crate) fn release_size(&self) -> Option<f64> {
        let size = fs::metadata(&self.release).ok()?.len();
        Some(number(usize::try_from(size).ok()?) / f64::from(1 << 20))
    }

    /// Returns what the daemon says of its version.
    pub(crate) fn version(&self) -> Result<Value> {
        let mut command = Command::new(&self.capstan);
        let output = command.args(["version", "-o", "json"]).output();
        let output = output.with_context(|| format!("run {}", self.capstan.display()))?;
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
    }
}

fn cargo(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet"]).args(arguments).current_dir(repository());
    let status = command.status().context("start cargo")?;
    ensure!(status.success(), "cargo build {}: {status}", arguments.join(" "));
    Ok(())
}

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

//! Decides how kubectl is called: what a visitor sees is what is run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// kubectl for one cluster and one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Kubectl {
    /// The binary.
    pub(crate) program: PathBuf,
    /// Who speaks to which cluster.
    pub(crate) kubeconfig: PathBuf,
    /// Where the page lives.
    pub(crate) namespace: String,
    /// Where commands run.
    pub(crate) root: PathBuf,
    /// Whether the kubeconfig says the namespace already.
    pub(crate) namespace_is_default: bool,
}

impl Kubectl {
    /// Returns a command as a visitor would type it.
    pub(crate) fn shown(&self, words: &str) -> String {
        if self.namespace_is_default {
            format!("kubectl {words}")
        } else {
            format!("kubectl -n {} {words}", self.namespace)
        }
    }

    /// Returns what a visitor's shell needs to be told first.
    pub(crate) fn exports(&self) -> Vec<String> {
        let mut lines = vec![format!("export KUBECONFIG={}", self.kubeconfig.display())];
        if let Some(folder) = self.program.parent().filter(|folder| folder.is_absolute()) {
            lines.push(format!("export PATH=$PATH:{}", folder.display()));
        }
        lines
    }

    /// Returns kubectl with its arguments.
    pub(crate) fn command<S: AsRef<str>>(&self, words: &[S]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .args(["--namespace", &self.namespace])
            .args(words.iter().map(AsRef::as_ref))
            .current_dir(&self.root)
            .stdin(Stdio::null());
        command
    }

    /// Runs kubectl and returns what it wrote. Ctrl-C doesn't end it, so that it can be used to tidy up.
    ///
    /// # Errors
    /// When it fails, with what it says.
    pub(crate) fn run(&self, words: &[&str]) -> Result<String> {
        let output = self.command(words).output().with_context(|| format!("start {}", self.program.display()))?;
        if !output.status.success() {
            bail!("kubectl {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Returns whether an object is there.
    ///
    /// # Errors
    /// When the cluster does not say.
    pub(crate) fn has(&self, kind: &str, name: &str) -> Result<bool> {
        let found = self.run(&["get", kind, name, "--ignore-not-found", "-o", "name"])?;
        Ok(!found.is_empty())
    }
}

/// Returns whether a kubectl can be run.
pub(crate) fn works(program: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(["version", "--client"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

//! Runs the daemon for the demo, and asks it what it says of itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use bench::daemon::Daemon;
use serde_json::Value;

use super::site::Site;
use crate::interrupt;
use crate::ui::{Task, size};

/// How many seconds it may take until it is ready.
const LIMIT: u64 = 60;

pub(super) fn start(binary: &Path, manifest: &Path, site: &Site, log: PathBuf) -> Result<Daemon> {
    let mut command = Command::new(binary);
    command.arg("run").arg("-m").arg(manifest).arg("--kubeconfig").arg(&site.kubeconfig).args(["--log-format", "json"]);
    // One of its own: what is compiled while somebody watches has not been compiled before.
    command.arg("--code-cache").arg(log.with_file_name("code"));
    Daemon::start(command, log)
}

/// Waits until it is ready; returns a sentence on it.
pub(super) fn wait(daemon: &mut Daemon, task: &mut Task) -> Result<String> {
    let mut unready = String::new();
    let ready = interrupt::until(LIMIT, "the daemon to be ready", || {
        daemon.check()?;
        // Without an answer, it does not listen yet.
        let Ok((code, text)) = daemon.get("/readyz") else { return Ok(None) };
        task.at(text.trim());
        unready = text;
        Ok((code == 200).then_some(()))
    });
    ready.with_context(|| format!("not ready: {}", unready.trim()))?;
    Ok(format!("ready as process {}, {}", daemon.pid(), memory(daemon)))
}

/// Returns its share of the machine's memory, for people.
pub(super) fn memory(daemon: &Daemon) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a process")]
    let said = daemon.memory().map(|[pss, _]| format!("{} of memory (Pss)", size((pss * 1_048_576.0) as u64)));
    said.unwrap_or_else(|_| "memory unknown".to_owned())
}

/// Returns what it says of its only plugin; fails if it says that a version of it is not taken.
pub(super) fn plugin(daemon: &Daemon) -> Result<Value> {
    let text = daemon.page("/debug/plugins")?;
    let mut report: Value = serde_json::from_str(&text)?;
    let row = report.pointer_mut("/plugins/0").with_context(|| format!("no plugin: {text}"))?.take();
    match row.get("problem") {
        None | Some(Value::Null) => Ok(row),
        Some(problem) => bail!("the daemon does not take the new version: {problem}"),
    }
}

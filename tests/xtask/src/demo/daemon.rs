//! Runs the daemon as a process of its own, and asks it what it says of itself.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use ureq::Agent;

use super::site::Site;
use crate::clock::Stopwatch;
use crate::interrupt;
use crate::process::Process;
use crate::ui::{Task, size};

/// How long it may take until it is ready.
const LIMIT: Duration = Duration::from_mins(1);
/// How long it may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// The running daemon. Dropping it ends it.
pub(super) struct Daemon {
    process: Process,
    since: Stopwatch,
    pub(super) log: PathBuf,
    pub(super) address: SocketAddr,
}

impl Daemon {
    pub(super) fn start(binary: &Path, manifest: &Path, site: &Site, log: PathBuf) -> Result<Self> {
        let output = File::create(&log).with_context(|| format!("write {}", log.display()))?;
        let address =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).context("find a free port")?;
        let mut command = Command::new(binary);
        command.arg("run").arg("-m").arg(manifest).arg("--kubeconfig").arg(&site.kubeconfig);
        command.args(["--listen", &address.to_string(), "--log-format", "json"]);
        // One of its own: what is compiled while somebody watches has not been compiled before.
        command.arg("--code-cache").arg(log.with_file_name("code"));
        command.stdout(output.try_clone()?).stderr(output);
        Ok(Self { process: Process::start(command)?, since: Stopwatch::start(), log, address })
    }

    pub(super) fn wait(&mut self, task: &mut Task) -> Result<String> {
        let mut unready = String::new();
        let ready = interrupt::until(LIMIT, "the daemon to be ready", || {
            self.check()?;
            // Without an answer, it does not listen yet.
            let Ok((code, text)) = self.get("/readyz") else { return Ok(None) };
            task.at(text.trim());
            unready = text;
            Ok((code == 200).then_some(()))
        });
        ready.with_context(|| format!("not ready: {}", unready.trim()))?;
        Ok(format!("ready as process {}, {}", self.process.id(), self.memory()))
    }

    /// Returns an error if it has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.process.ended()? {
            None => Ok(()),
            Some(status) => bail!("the daemon has ended ({status})"),
        }
    }

    /// Returns its process, and for how long it has been running. As long as [`Self::check`] finds no fault, it has been the
    /// same one.
    pub(super) fn id(&self) -> (u32, Duration) {
        (self.process.id(), self.since.spent())
    }

    /// Returns its share of the machine's memory, for people.
    pub(super) fn memory(&self) -> String {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.process.id())).unwrap_or_default();
        let pss = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kibibytes = pss.and_then(|pss| pss.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kibibytes.map_or_else(|| "memory unknown".to_owned(), |kib| format!("{} of memory (Pss)", size(kib * 1024)))
    }

    /// Returns the sum of a counter over its labels.
    pub(super) fn count(&self, name: &str) -> Result<u64> {
        Ok(sum(&self.get("/metrics")?.1, name))
    }

    /// Returns what it says of its only plugin; fails if it says that a version of it is not taken.
    pub(super) fn plugin(&self) -> Result<Value> {
        let (code, text) = self.get("/debug/plugins")?;
        ensure!(code == 200, "the daemon answers GET /debug/plugins with {code}: {text}");
        let mut report: Value = serde_json::from_str(&text)?;
        let row = report.pointer_mut("/plugins/0").with_context(|| format!("no plugin: {text}"))?.take();
        match row.get("problem") {
            None | Some(Value::Null) => Ok(row),
            Some(problem) => bail!("the daemon does not take the new version: {problem}"),
        }
    }

    fn get(&self, path: &str) -> Result<(u16, String)> {
        let agent = Agent::config_builder().proxy(None).http_status_as_error(false).timeout_global(Some(ANSWER));
        let url = format!("http://{}{path}", self.address);
        let mut response = agent.build().new_agent().get(&url).call().with_context(|| url.clone())?;
        Ok((response.status().as_u16(), response.body_mut().read_to_string().context(url)?))
    }
}

/// Returns the sum over all labels of a metric.
fn sum(metrics: &str, name: &str) -> u64 {
    let series =
        metrics.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    series.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let text = "# TYPE a_total counter\na_total{c=\"x\"} 3\na_total{c=\"y\"} 4\na_total_b 5\nb_total 6\n";
        assert_eq!([sum(text, "a_total"), sum(text, "b_total"), sum(text, "c")], [7, 6, 0]);
    }
}

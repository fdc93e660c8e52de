//! Runs the daemon as a process of its own and waits until it is ready.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use ureq::Agent;

use crate::clock::Stopwatch;
use crate::demo::kubectl::Kubectl;
use crate::demo::world::Plugin;
use crate::interrupt;
use crate::process::Process;
use crate::ui::{Task, size};

/// The log line that has the address.
const SERVING: &str = "serving probes and metrics";
/// The page that tells of plugins.
const PLUGINS: &str = "/debug/plugins";
/// How long it may take until it is ready.
const LIMIT: Duration = Duration::from_mins(1);

/// The running daemon. Dropping it ends it.
pub(crate) struct Daemon {
    process: Process,
    since: Stopwatch,
    log: PathBuf,
    /// Empty until it is known.
    address: String,
    agent: Agent,
}

impl Daemon {
    /// Starts a daemon, given its binary.
    ///
    /// # Errors
    /// When it can't be started.
    pub(crate) fn start(binary: &Path, manifest: &Path, kubectl: &Kubectl, log: PathBuf) -> Result<Self> {
        let output = File::create(&log).with_context(|| format!("write {}", log.display()))?;
        let mut command = Command::new(binary);
        command
            .arg("run")
            .arg("-m")
            .arg(manifest)
            .arg("--kubeconfig")
            .arg(&kubectl.kubeconfig)
            .args(["--listen", "127.0.0.1:0", "--log-format", "json"])
            // One of its own: what is compiled while somebody watches has not been compiled before.
            .arg("--code-cache")
            .arg(log.with_file_name("code"))
            // A filter of the visitor's could hide the line with the address.
            .env_remove("RUST_LOG")
            .stdout(output.try_clone()?)
            .stderr(output);
        let agent = Agent::config_builder()
            .proxy(None)
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(5)))
            .build()
            .new_agent();
        Ok(Self { process: Process::start(command)?, since: Stopwatch::start(), log, address: String::new(), agent })
    }

    /// Waits until it is ready; returns a sentence on it.
    ///
    /// # Errors
    /// When it ends or is not ready within a minute, with the reason it gives; or when interrupted.
    pub(crate) fn wait(&mut self, task: &mut Task) -> Result<String> {
        let watch = Stopwatch::start();
        self.address = interrupt::until(LIMIT, "the daemon's address in its log", || {
            self.check()?;
            Ok(address(&fs::read_to_string(&self.log)?))
        })?;
        let mut unready = String::new();
        let ready = interrupt::until(LIMIT.saturating_sub(watch.spent()), "the daemon to be ready", || {
            self.check()?;
            let (code, text) = self.get("/readyz")?;
            task.at(text.trim());
            unready = text;
            Ok((code == 200).then_some(()))
        });
        ready.with_context(|| format!("not ready: {}", unready.trim()))?;
        let memory = self.memory().map(|bytes| format!(", {}", size(bytes)));
        Ok(format!("ready as process {}{}", self.id(), memory.unwrap_or_default()))
    }

    /// Returns an error if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.process.ended()? {
            None => Ok(()),
            Some(status) => bail!("the daemon has ended ({status})"),
        }
    }

    /// Returns its process. As long as [`Self::check`] finds no fault, it has been the same one.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns for how long it has been running.
    pub(crate) fn up(&self) -> Duration {
        self.since.spent()
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns its share of the machine's memory in bytes, where the system says it.
    pub(crate) fn memory(&self) -> Option<u64> {
        pss(&fs::read_to_string(format!("/proc/{}/smaps_rollup", self.process.id())).ok()?)
    }

    /// Returns the sum of a counter.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn count(&self, name: &str) -> Result<u64> {
        Ok(sum(&self.get("/metrics")?.1, name))
    }

    /// Returns what it says of a plugin.
    ///
    /// # Errors
    /// When it does not answer, has no such page as it can't replace plugins, or does not know this one.
    pub(crate) fn plugin(&self, name: &str) -> Result<Plugin> {
        let (code, text) = self.get(PLUGINS)?;
        if code != 200 {
            bail!("this daemon does not replace components while it runs: it answers GET {PLUGINS} with {code}");
        }
        let report = serde_json::from_str(&text).with_context(|| format!("read {PLUGINS}"))?;
        plugin(&report, name).with_context(|| format!("{PLUGINS} has no plugin {name}: {text}"))
    }

    fn get(&self, path: &str) -> Result<(u16, String)> {
        let url = format!("http://{}{path}", self.address);
        let mut response = self.agent.get(&url).call().with_context(|| url.clone())?;
        let text = response.body_mut().read_to_string().context(url)?;
        Ok((response.status().as_u16(), text))
    }
}

/// Returns the last lines of a log.
pub(crate) fn tail(log: &Path, count: usize) -> Vec<String> {
    let text = match fs::read(log) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => return vec![format!("({error})")],
    };
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(count);
    let tail = lines.get(from..).unwrap_or_default();
    tail.iter().map(|&line| line.to_owned()).collect()
}

/// Returns the address that a log announces.
fn address(log: &str) -> Option<String> {
    log.lines().find_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let is_it = line.get("message").and_then(Value::as_str) == Some(SERVING);
        is_it.then(|| Some(line.get("address")?.as_str()?.to_owned()))?
    })
}

/// Returns what a report says of a plugin.
fn plugin(report: &Value, name: &str) -> Option<Plugin> {
    let text = |value: &Value, field: &str| Some(value.get(field)?.as_str()?.to_owned());
    let mut rows = report.get("plugins")?.as_array()?.iter();
    let row = rows.find(|row| row.get("name").and_then(Value::as_str) == Some(name))?;
    let problem = row.get("problem").and_then(|problem| {
        let (step, message) = (text(problem, "step")?, text(problem, "message")?);
        Some(format!("{step}: {message}"))
    });
    Some(Plugin {
        name: name.to_owned(),
        state: text(row, "state")?,
        version: row.get("version")?.as_u64()?,
        digest: text(row, "digest")?,
        problem,
    })
}

/// Returns the proportional set size in bytes.
fn pss(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Returns the sum over all labels of a metric.
fn sum(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.split_once('}') {
            Some((_, value)) if rest.starts_with('{') => value,
            Some(_) => return None,
            None => rest.strip_prefix(' ')?,
        };
        value.split_whitespace().next()?.parse::<u64>().ok()
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_address_is_in_the_line_that_announces_it() {
        let line = r#"{"level":"INFO","message":"serving probes and metrics","address":"127.0.0.1:4711"}"#;
        let table = [
            (format!("plain\n{{\"message\":\"other\"}}\n{line}\n"), Some("127.0.0.1:4711")),
            // Half a line: it is still being written.
            (line.split_at(60).0.to_owned(), None),
        ];
        for (log, expected) in table {
            assert_eq!(address(&log).as_deref(), expected);
        }
    }

    #[test]
    fn a_plugin_is_read_with_the_reason_why_a_version_is_refused() {
        let row = |name: &str, problem: Value| json!({ "operator": "o", "name": name, "state": "active", "version": 2, "digest": "5f3a", "problem": problem });
        let problem = json!({ "step": "link", "message": "no `reconcile`", "since": "2026-11-21T20:00:00Z" });
        let report = json!({ "plugins": [row("a", Value::Null), row("b", problem)], "manifests": [] });
        let expected = |name: &str, problem: Option<&str>| Plugin {
            name: name.to_owned(),
            state: "active".to_owned(),
            version: 2,
            digest: "5f3a".to_owned(),
            problem: problem.map(str::to_owned),
        };
        assert_eq!(plugin(&report, "a"), Some(expected("a", None)));
        assert_eq!(plugin(&report, "b"), Some(expected("b", Some("link: no `reconcile`"))));
        assert_eq!(plugin(&report, "c"), None);
    }

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let text = "# TYPE a_total counter\na_total{c=\"x\"} 3\na_total{c=\"y\"} 4\na_total_b 5\nb_total 6\n";
        assert_eq!([sum(text, "a_total"), sum(text, "b_total"), sum(text, "c")], [7, 6, 0]);
    }

    #[test]
    fn the_share_of_memory_is_read_in_bytes() {
        let text = "55d0-7ffc ---p 00000000 00:00 0   [rollup]\nRss:   5000 kB\nPss:       1024 kB\nPss_Dirty: 7 kB\n";
        assert_eq!(pss(text), Some(1_048_576));
    }
}

//! Starts a daemon, asks it for its pages and metrics, and makes sure that it ends.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ureq::Agent;

use crate::clock::{Patience, Stopwatch};
use crate::usage;

/// How long the daemon may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How often it is asked whether it is ready: this is how exact a start is measured.
const READY: Patience = Patience::new(2, 120);
/// How long it may take to end by itself.
const END: Patience = Patience::new(5, 40);
/// The end of its log that an error shows.
const TAIL: usize = 2000;

/// Kills a process when its own standard input ends, which it does however this program ends.
const WATCH: &str = "trap '' INT TERM HUP; read -r _; kill -KILL \"$1\" 2>/dev/null";

/// A running daemon. Dropping it kills it.
pub struct Daemon {
    child: Child,
    /// Kills the daemon if we are killed.
    watcher: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// The file of its log.
    pub log: PathBuf,
    /// Runs since its start.
    pub started: Stopwatch,
}

impl Daemon {
    /// Starts `capstan run`, with its log in this file.
    pub fn start(mut command: Command, log: PathBuf) -> Result<Self> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.context("find a free port")?;
        command.args(["--listen", &address.to_string()]).process_group(0);
        let output = File::create(&log).with_context(|| format!("write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let started = Stopwatch::start();
        let mut child = command.spawn().context("start capstan")?;
        let mut watch = Command::new("sh");
        watch.args(["-c", WATCH, "watch", &child.id().to_string()]).stdin(Stdio::piped()).stdout(Stdio::null());
        match watch.spawn() {
            Ok(watcher) => Ok(Self { child, watcher, address, log, started }),
            Err(error) => {
                kill(&mut child);
                Err(error).context("start sh")
            }
        }
    }

    /// Waits until it is ready: all caches filled, all plugins loaded. Returns the time since its start.
    pub fn until_ready(&mut self) -> Result<Duration> {
        READY.until("the daemon to be ready", || {
            self.check()?;
            // Else it does not listen yet, or says what it waits for.
            let is_ready = self.get("/readyz").is_ok_and(|(code, _)| code == 200);
            Ok(is_ready.then(|| self.started.spent()))
        })
    }

    /// Returns how long it takes to say that it is alive.
    pub fn livez(&self) -> Result<Duration> {
        let watch = Stopwatch::start();
        self.page("/livez")?;
        Ok(watch.spent())
    }

    /// Returns a metric, summed over its series.
    pub fn metric(&self, name: &str) -> Result<f64> {
        Ok(sum(&self.page("/metrics")?, name))
    }

    /// Returns how many of its runs have come so far: `started`, `success` or `failure`.
    pub fn runs(&self, how: &str) -> Result<f64> {
        self.metric(&format!("capstan_reconciliations_{how}_total"))
    }

    /// Returns its process id, by which [`crate::usage`] knows it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its CPU time in seconds.
    pub fn cpu(&self) -> Result<f64> {
        usage::cpu(self.pid())
    }

    /// Returns its memory in MiB, and the most that it has ever had.
    pub fn memory(&self) -> Result<[f64; 2]> {
        Ok([usage::pss(self.pid())?, usage::peak(self.pid())?])
    }

    /// Ends it as an operator does, by SIGTERM, and waits for that.
    pub fn stop(mut self) -> Result<()> {
        self.check()?;
        Command::new("kill").arg(self.pid().to_string()).status().context("run kill")?;
        let status = END.until("the daemon's end", || Ok(self.child.try_wait()?))?;
        ensure!(status.success(), "the daemon ended with {status}: {}", self.tail());
        Ok(())
    }

    /// Fails if it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the daemon ended with {status}: {}", self.tail()),
        }
    }

    /// Returns a page that has to be there.
    pub fn page(&self, path: &str) -> Result<String> {
        let (code, text) = self.get(path)?;
        ensure!(code == 200, "{path}: {code}: {text}");
        Ok(text)
    }

    /// Returns status and body of a page.
    pub fn get(&self, path: &str) -> Result<(u16, String)> {
        let agent = Agent::config_builder().proxy(None).http_status_as_error(false).timeout_global(Some(ANSWER));
        let mut answer = agent.build().new_agent().get(format!("http://{}{path}", self.address)).call()?;
        Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?))
    }

    /// Returns the end of its log.
    pub fn tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let from = log.char_indices().rev().nth(TAIL).map_or(0, |(at, _)| at);
        log.get(from..).unwrap_or_default().to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // First the watcher, which must not kill another process that has got the number.
        kill(&mut self.watcher);
        kill(&mut self.child);
    }
}

/// Ends a child and waits for it; one that has ended already is left in peace.
fn kill(child: &mut Child) {
    drop(child.kill());
    drop(child.wait());
}

/// Returns the sum of all series of a metric.
fn sum(text: &str, name: &str) -> f64 {
    let series = text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_series_and_not_mixed_up_with_a_longer_name() {
        let text = "# TYPE runs counter\nruns{controller=\"a\"} 2\nruns{controller=\"b\"} 3\nruns_active 7\n";
        assert_eq!((sum(text, "runs"), sum(text, "walks")), (5.0, 0.0));
    }
}

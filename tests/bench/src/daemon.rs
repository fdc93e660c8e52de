//! Starts a daemon to be measured, asks it for its metrics, and makes sure that it ends.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::clock::{Patience, Stopwatch};
use crate::stage::Stage;
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

/// How much a daemon writes to its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Talk {
    /// What is wrong, for people.
    Wrong,
    /// Also what components log, and which versions of them come into force: for [`crate::diary`].
    Diary,
}

/// A running daemon. Dropping it kills it.
pub(crate) struct Daemon {
    child: Child,
    /// Kills the daemon if we are killed.
    watcher: Child,
    address: SocketAddr,
    log: PathBuf,
    started: Stopwatch,
}

impl Daemon {
    /// Starts a daemon with this manifest.
    ///
    /// # Errors
    /// When the binary can't be started.
    pub(crate) fn start(stage: &Stage, manifest: &Path) -> Result<Self> {
        Self::start_to_talk(stage, manifest, Talk::Wrong)
    }

    /// Starts a daemon with this manifest that writes so much to its log.
    ///
    /// # Errors
    /// When the binary can't be started.
    pub(crate) fn start_to_talk(stage: &Stage, manifest: &Path, talk: Talk) -> Result<Self> {
        let address = free_address()?;
        let log = manifest.with_extension("log");
        let mut command = stage.capstan("run", manifest);
        command
            .args(["--log-format", talk.format()])
            .args(["--listen", &address.to_string()])
            .arg("--kubeconfig")
            .arg(stage.kubeconfig())
            .env("RUST_LOG", talk.filter())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        let started = Stopwatch::start();
        let mut child = command.spawn().context("start capstan")?;
        let watcher = match watch(child.id()) {
            Ok(watcher) => watcher,
            Err(error) => {
                kill(&mut child);
                return Err(error);
            }
        };
        Ok(Self { child, watcher, address, log, started })
    }

    /// Waits until it is ready: all caches filled, all plugins loaded. Returns the time since its start.
    ///
    /// # Errors
    /// When it ends before.
    pub(crate) fn until_ready(&mut self) -> Result<Duration> {
        READY.until("the daemon to be ready", || {
            self.check()?;
            Ok(match self.get("/readyz") {
                Ok((200, _)) => Some(self.started.spent()),
                // It does not listen yet, or says what it waits for.
                Ok(_) | Err(_) => None,
            })
        })
    }

    /// Returns the time since its start.
    pub(crate) fn age(&self) -> Duration {
        self.started.spent()
    }

    /// Returns how long it takes to say that it is alive.
    ///
    /// # Errors
    /// When it says that it is not.
    pub(crate) fn livez(&self) -> Result<Duration> {
        let watch = Stopwatch::start();
        let (code, text) = self.get("/livez")?;
        if code != 200 {
            bail!("/livez: {code}: {text}");
        }
        Ok(watch.spent())
    }

    /// Returns a metric, summed over its series.
    ///
    /// # Errors
    /// When it does not answer.
    fn metric(&self, name: &str) -> Result<f64> {
        let (code, text) = self.get("/metrics")?;
        if code != 200 {
            bail!("/metrics: {code}: {text}");
        }
        Ok(sum(&text, name))
    }

    /// Returns how many runs have ended well.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn reconciles(&self) -> Result<f64> {
        self.metric("capstan_reconciliations_success_total")
    }

    /// Returns how many runs have begun.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn started(&self) -> Result<f64> {
        self.metric("capstan_reconciliations_started_total")
    }

    /// Returns how long its runs have taken so far, all together, in seconds.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn time_of_runs(&self) -> Result<f64> {
        self.metric("capstan_reconciliations_execution_duration_seconds_sum")
    }

    /// Returns the most memory that an instance of its component has had, in MiB.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn instance_peak(&self) -> Result<f64> {
        let bytes = self.metric("capstan_plugin_instance_memory_peak_bytes")?;
        Ok(bytes / f64::from(1 << 20))
    }

    /// Returns how many runs have failed.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn failures(&self) -> Result<f64> {
        self.metric("capstan_reconciliations_failure_total")
    }

    /// Returns its CPU time in seconds.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn cpu(&self) -> Result<f64> {
        usage::cpu(self.child.id())
    }

    /// Returns its memory in MiB.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn pss(&self) -> Result<f64> {
        usage::pss(self.child.id())
    }

    /// Returns its highest memory in MiB.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn peak(&self) -> Result<f64> {
        usage::peak(self.child.id())
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the file of its log.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Ends it as an operator does, by SIGTERM, and waits for that.
    ///
    /// # Errors
    /// When it does not end, or says that something went wrong.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.check()?;
        let pid = self.child.id().to_string();
        Command::new("kill").arg(pid).status().context("run kill")?;
        let status = END.until("the daemon's end", || Ok(self.child.try_wait()?))?;
        if status.success() {
            return Ok(());
        }
        Err(anyhow!("the daemon ended with {status}: {}", self.tail()))
    }

    /// Fails if it has ended.
    ///
    /// # Errors
    /// With the end of its log, if it has.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the daemon ended with {status}: {}", self.tail()),
        }
    }

    /// Returns status and body of a page.
    fn get(&self, path: &str) -> Result<(u16, String)> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(ANSWER))?;
        write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        parse(&answer).with_context(|| format!("{path}: no HTTP answer"))
    }

    /// Returns the end of its log.
    pub(crate) fn tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let from = log.char_indices().rev().nth(TAIL).map_or(0, |(at, _)| at);
        log.get(from..).unwrap_or_default().to_owned()
    }
}

impl Talk {
    fn format(self) -> &'static str {
        match self {
            Self::Wrong => "text",
            Self::Diary => "json",
        }
    }

    fn filter(self) -> &'static str {
        match self {
            Self::Wrong => "warn",
            Self::Diary => "warn,guest=info,capstan::supervisor=info",
        }
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

fn watch(pid: u32) -> Result<Child> {
    Command::new("sh")
        .args(["-c", WATCH, "watch", &pid.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("start sh")
}

/// Returns an address that nobody listens on.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    Ok(listener.local_addr()?)
}

fn parse(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let code = head.split(' ').nth(1)?.parse().ok()?;
    Some((code, body.to_owned()))
}

/// Returns the sum of all series of a metric.
fn sum(text: &str, name: &str) -> f64 {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = rest.starts_with(['{', ' ']).then(|| line.rsplit(' ').next());
        value??.parse::<f64>().ok()
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_series_and_not_mixed_up_with_a_longer_name() {
        let text = "# TYPE runs counter\nruns{controller=\"a\"} 2\nruns{controller=\"b\"} 3\nruns_active 7\n";
        assert_eq!((sum(text, "runs"), sum(text, "walks")), (5.0, 0.0));
    }

    #[test]
    fn an_answer_has_a_code_and_a_body() {
        let answer = "HTTP/1.0 503 Service Unavailable\r\na: b\r\n\r\nno\n";
        assert_eq!(parse(answer), Some((503, "no\n".to_owned())));
        assert_eq!(parse("HTTP/1.0 200"), None);
    }
}

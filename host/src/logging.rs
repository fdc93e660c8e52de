//! Sets up the log: to standard error, as text or JSON, filtered by `RUST_LOG`; logging never waits for a reader.
//!
//! [`mod@line`] decides how a line looks, whatever the code that logs has done about it, [`meter`] how many similar lines pass, and
//! [`writer`] writes them on a thread of its own; [`runs`] has a line of another sort about each run.

use std::fmt;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::cli::args::LogFormat;

pub mod line;
pub mod meter;
pub mod runs;
pub mod writer;

use line::Lined;
use meter::Meter;
use runs::RUNS;
use writer::{Form, Queue, Speaker};

/// Of kube's client nothing is logged unless `RUST_LOG` names it, as we log failed requests ourselves.
const OTHERS: &str = "kube_client=off";

/// What levels without a target are about, as the beginnings of targets: Capstan's own, and what components log.
const OWN: [&str; 2] = ["capstan", "guest"];

/// The most that all others log unless `RUST_LOG` names them.
const MOST_OF_OTHERS: LevelFilter = LevelFilter::WARN;

/// What is logged of all else if `RUST_LOG` is not set or not valid.
const DEFAULT: &str = "info";

/// The same for an author, who sees the lines of [`runs`] instead of what is logged of runs.
const AUTHORS: &str = "warn,capstan::supervisor=info,capstan::plugin::loader=info,capstan_core::dispatcher=info,capstan::runs=debug,guest=info,capstan::controller::run=off";

/// How long the last lines may take to be written when the process ends.
pub const LAST_LINES: Duration = Duration::from_secs(1);

/// The log of this process.
#[derive(Clone, Default)]
pub struct Log {
    queue: Arc<Queue>,
    meter: Arc<Meter>,
}

/// Starts logging for the whole process. A second call does nothing.
pub fn start(format: LogFormat) -> Log {
    begin(format, DEFAULT, false)
}

/// Starts logging for whoever writes an operator: each run in one line, and of the rest what is of interest then.
pub fn start_for_author() -> Log {
    begin(LogFormat::Auto, AUTHORS, true)
}

fn begin(format: LogFormat, usual: &str, tells_runs: bool) -> Log {
    let log = Log::default();
    log.queue.start();
    let said = std::env::var_os(EnvFilter::DEFAULT_ENV);
    let (filter, wrong) = filter(said.as_ref().map(|said| said.to_string_lossy()).as_deref(), usual);
    let terminal = std::io::stderr().is_terminal();
    let lines = |form, ansi| {
        let lines = tracing_subscriber::fmt::layer().fmt_fields(JsonFields::new()).event_format(Lined(form));
        let lines = lines.with_ansi(ansi).log_internal_errors(false).with_writer(log.queue.lines(form));
        // They have lines of another sort.
        lines.with_filter(filter_fn(|about| about.target() != RUNS))
    };
    let lines = match format {
        LogFormat::Json => lines(Form::Json, false),
        LogFormat::Text => lines(Form::Text, false),
        LogFormat::Auto => lines(Form::Text, terminal),
    };
    let say = {
        let log = log.clone();
        move |line: &str| log.say(line)
    };
    let runs = tells_runs.then(|| runs::Layer::new(Box::new(say), terminal));
    let layers = tracing_subscriber::registry().with(filter).with(meter::Layer(Arc::clone(&log.meter)));
    let started = layers.with(runs).with(lines).try_init();
    if started.is_ok() {
        // The default hook would wait for the reader of standard error.
        std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a bug: please report it")));
    }
    if let Some(wrong) = wrong {
        tracing::warn!("{wrong}");
    }
    log
}

/// Returns what is logged where `RUST_LOG` says this, or else what is usual, and what is wrong with it.
fn filter(said: Option<&str>, usual: &str) -> (EnvFilter, Option<String>) {
    // Of directives about the same target the last one counts.
    let of = |said: &str| {
        let level = |word: &str| word.trim().parse::<LevelFilter>().ok();
        let of_all = said.split(',').filter_map(level).next_back().map(|level| {
            let own = OWN.map(|own| format!("{own}={level}")).join(",");
            format!("{},{own}", level.min(MOST_OF_OTHERS))
        });
        let named = said.split(',').filter(|word| level(word).is_none()).map(str::to_owned);
        let all: Vec<_> = [OTHERS.to_owned()].into_iter().chain(of_all).chain(named).collect();
        EnvFilter::try_new(all.join(","))
    };
    let usual_filter = || of(usual).unwrap_or_default();
    let Some(said) = said.filter(|said| !said.trim().is_empty()) else {
        return (usual_filter(), None);
    };
    let filter = match said.split(',').map(str::trim).find(|word| is_no_level(word)) {
        Some(word) => Err(format!("`{word}` is no level (off, error, warn, info, debug, trace)")),
        None => of(said).map_err(|error| error.to_string()),
    };
    match filter {
        Ok(filter) => (filter, None),
        Err(error) => {
            let wrong = format!(
                "RUST_LOG is {said:?}, which can't be read: {error}; expected levels by target, such as info,capstan=debug. What is logged is {usual}"
            );
            (usual_filter(), Some(wrong))
        }
    }
}

/// Whether this stands where a level does, and is none. It would be a target, and nothing else would be logged.
fn is_no_level(word: &str) -> bool {
    let is_word = !word.is_empty() && word.chars().all(char::is_alphanumeric);
    is_word && word.parse::<LevelFilter>().is_err() && !matches!(word, "capstan" | "guest")
}

impl Log {
    /// Writes a line that is not an event, such as why the process ends.
    pub fn say(&self, line: &str) {
        self.queue.push(Speaker::Daemon, &format!("{line}\n"));
    }

    /// Logs how many lines were left out or dropped since the last call.
    pub fn tell(&self) {
        self.meter.tell();
        let dropped = self.queue.dropped_since();
        if dropped > 0 {
            tracing::warn!(dropped, "log lines were dropped: standard error is read too slowly");
        }
    }

    /// Waits until all lines are written, at most for `limit`.
    pub fn flush(&self, limit: Duration) {
        self.queue.flush(limit);
    }

    /// Returns how many lines were dropped because standard error was read too slowly.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// Returns how many lines were left out because there were too many like them.
    pub fn left_out(&self) -> u64 {
        self.meter.left_out()
    }
}

impl Collector for Log {
    /// Encodes the metrics of the log when they are asked for.
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let metrics = [
            (
                "log_lines_dropped",
                "Log lines that were dropped because standard error is read too slowly",
                self.dropped(),
            ),
            (
                "log_lines_left_out",
                "Log lines that were left out because there were too many like them",
                self.left_out(),
            ),
        ];
        for (name, help, value) in metrics {
            let value = ConstCounter::new(value);
            value.encode(encoder.encode_descriptor(name, help, None, value.metric_type())?)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_can_not_be_read_is_named_and_the_usual_one_is_used() {
        let usual = filter(None, DEFAULT).0.to_string();
        for (said, wrong) in [(None, false), (Some("capstan=debug,info"), false), (Some("info,capstan=loud=x"), true)] {
            let (filter, found) = filter(said, DEFAULT);
            assert_eq!(found.is_some(), wrong, "{said:?} {found:?}");
            assert_eq!(filter.to_string() == usual, said.is_none() || wrong, "{said:?}");
            let begin = "RUST_LOG is \"info,capstan=loud=x\", which can't be read: ";
            assert!(found.is_none_or(|found| found.starts_with(begin)));
        }
        for (said, wrong) in
            [("inof", "`inof`"), ("warning,capstan=debug", "`warning`"), ("capstan", ""), ("kube_client,info", "")]
        {
            let found = filter(Some(said), DEFAULT).1;
            assert_eq!(found.is_some(), !wrong.is_empty(), "{said}");
            assert!(found.is_none_or(|found| found.contains(&format!(": {wrong} is no level (off, error"))));
        }
    }

    #[test]
    fn what_others_log_stays_quiet_unless_they_are_named() {
        let directives = |said: &str| {
            let text = filter(Some(said), DEFAULT).0.to_string();
            text.split(',').map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
        };
        for (said, logged, left_out) in [
            ("debug", "kube_client=off", "kube_client=debug"),
            ("debug", "capstan=debug", "debug"),
            ("debug", "guest=debug", "debug"),
            ("debug", "warn", "info"),
            ("capstan=warn,debug", "capstan=warn", "capstan=debug"),
            ("trace,ignore=debug", "ignore=debug", "trace"),
            ("error", "capstan=error", "warn"),
            ("warn,capstan=debug", "kube_client=off", "info"),
            ("debug,kube_client=trace", "kube_client=trace", "kube_client=off"),
            ("error", "error", "hyper=warn"),
            ("off", "off", "wasmtime=warn"),
            ("error,capstan=debug", "kube_client=off", "rustls=warn"),
            ("", "capstan=info", "info"),
        ] {
            let found = directives(said);
            assert!(found.contains(logged) && !found.contains(left_out), "{said:?}: {found:?}");
        }
    }
}

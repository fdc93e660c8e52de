//! Decides which measures there are, in which order they are taken, and what they share.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;

use self::spread::{Rank, Spread};
use crate::clock::{Stopwatch, pass};
use crate::daemon::Daemon;
use crate::report::{self, Row};
use crate::stage::Stage;
use crate::subject::Subject;
use crate::usage;

mod fleet;
mod follow;
mod languages;
mod lists;
mod neighbours;
mod pages;
mod probes;
mod spread;
mod starts;
mod swap;
mod swaps;
mod tenants;

/// After the end of what is measured, what it has set off is waited for and counted too.
const AFTERMATH: Duration = Duration::from_secs(5);

/// One thing that is measured, in the order in which they are taken; [`Measure::about`] says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Measure {
    Check,
    Idle,
    Create,
    Restart,
    Drift,
    Change,
    Noop,
    Cache,
    Swap,
    Swaps,
    Languages,
    Neighbours,
    Lists,
    Follow,
    Fleet,
    Tenants,
}

/// How much of everything there is.
#[derive(Args, Clone, Copy, Debug, Serialize)]
pub(crate) struct Sizes {
    /// How many pages; targets are set for 1,000.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) pages: usize,
    /// How many Deployments `cache` has; targets are set for 10,000.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) deployments: usize,
    /// How often `swaps` replaces a component; targets are set for 1,000. `swap` does it 40 times at most.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) swaps: usize,
    /// How many ConfigMaps of 2 KB `lists` has listed; targets are set for 20,000.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) listed: usize,
}

/// What rounds work with, and what has come out so far.
pub(crate) struct Rounds<'a> {
    pub(crate) subject: &'a Subject,
    pub(crate) wanted: &'a [Measure],
    pub(crate) sizes: Sizes,
    /// Whether somebody looks who wants to know what goes on.
    pub(crate) talkative: bool,
    /// Which one it is, from 1.
    pub(crate) number: usize,
    pub(crate) rows: Vec<Row>,
    /// What has to be known beside them.
    pub(crate) remarks: Vec<String>,
    /// The version of Kubernetes, once a control plane has run.
    pub(crate) kubernetes: String,
}

/// What had been used up when something began.
pub(crate) struct Span<'a> {
    stage: &'a Stage,
    watch: Stopwatch,
    cpu: [f64; 3],
    runs: f64,
    failures: f64,
    mark: cluster::Mark,
}

// === impl Measure ===

impl Measure {
    /// Returns its word on the command line.
    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Says what is measured, in half a line.
    pub(crate) fn about(self, sizes: Sizes) -> String {
        let half = report::count(languages::pages(sizes));
        let once = report::count(swap::swaps(sizes));
        let Sizes { pages, deployments, swaps, listed } = sizes;
        let [pages, deployments, swaps, listed] = [pages, deployments, swaps, listed].map(report::count);
        match self {
            Self::Check => "`capstan check` of the sample with a warm code cache".to_owned(),
            Self::Idle => "no objects, 10 s after the start".to_owned(),
            Self::Create => format!("{pages} pages of 2 KB are created"),
            Self::Restart => format!("start with {pages} pages and nothing to do"),
            Self::Drift => format!("{pages} ConfigMaps are deleted at one stroke"),
            Self::Change => format!("the HTML of {pages} pages changes"),
            Self::Noop => format!("{pages} pages again 1 ms after their last run, 20 s"),
            Self::Cache => format!("start beside {deployments} Deployments of 6 KB that are not its own"),
            Self::Swap => format!("{once} times, while events of {pages} primaries come at 200 a second"),
            Self::Swaps => format!("a component is replaced {swaps} times, each time 8 primaries run"),
            Self::Languages => format!("the sample in each language, with {half} pages"),
            Self::Lists => {
                format!("from a change to its run, 500 a second, while {listed} objects are listed again and again")
            }
            Self::Follow => "from a push to a tag that is asked for once a second to its version in force".to_owned(),
            Self::Fleet => "start of 100 operators with 20 components of a registry".to_owned(),
            Self::Tenants => "200 operators that are objects in 50 namespaces with a ceiling, and 20 more".to_owned(),
            Self::Neighbours => "from a change to its status, while runs of other plugins compute".to_owned(),
        }
    }
}

// === impl Rounds ===

type Take = fn(&mut Rounds<'_>, &Stage) -> Result<()>;

impl<'a> Rounds<'a> {
    pub(crate) fn new(subject: &'a Subject, wanted: &'a [Measure], sizes: Sizes, talkative: bool) -> Self {
        let (rows, remarks, kubernetes) = (Vec::new(), Vec::new(), String::new());
        Self { subject, wanted, sizes, talkative, number: 0, rows, remarks, kubernetes }
    }

    pub(crate) fn run(&mut self) -> Result<()> {
        use Measure::{
            Cache, Change, Check, Create, Drift, Fleet, Follow, Idle, Languages, Lists, Neighbours, Noop, Restart,
            Swap, Swaps, Tenants,
        };
        // Each row shares a control plane.
        let stages: [&[(&[Measure], Take)]; 8] = [
            &[
                (&[Check], starts::check),
                (&[Idle], starts::idle),
                (&[Create, Restart, Drift, Change, Noop], pages::measure),
            ],
            &[(&[Cache], starts::cache)],
            &[(&[Swap], swap::measure), (&[Swaps], swaps::measure)],
            &[(&[Languages], languages::measure)],
            &[(&[Neighbours], neighbours::measure)],
            &[(&[Lists], lists::measure)],
            &[(&[Follow], follow::measure), (&[Fleet], fleet::measure)],
            &[(&[Tenants], tenants::measure)],
        ];
        for takes in stages {
            let wanted: Vec<_> = takes.iter().filter(|(measures, _)| self.wants(measures)).collect();
            if wanted.is_empty() {
                continue;
            }
            self.tell("starting a control plane");
            let stage = Stage::set(self.subject)?;
            stage.cluster.version().clone_into(&mut self.kubernetes);
            for (_, take) in wanted {
                take(self, &stage)?;
            }
        }
        Ok(())
    }

    fn tell(&self, what: &str) {
        if self.talkative {
            eprintln!("round {}: {what}", self.number);
        }
    }

    /// Whether one of these was asked for.
    fn wants(&self, measures: &[Measure]) -> bool {
        measures.iter().any(|measure| self.wanted.contains(measure))
    }

    /// Notes a figure, if its measure was asked for.
    fn note(&mut self, measure: Measure, name: impl Into<String>, unit: &'static str, value: f64) {
        if self.wanted.contains(&measure) {
            report::add(&mut self.rows, measure, name.into(), unit, value);
        }
    }

    /// Notes these of many times.
    fn spread(&mut self, measure: Measure, name: &str, spread: &Spread, ranks: &[Rank]) {
        for rank in ranks {
            self.note(measure, format!("{name}, {}", rank.0), "ms", spread.at(*rank));
        }
    }

    /// Says something that has to be known beside the figures; once is enough.
    fn remark(&mut self, text: String) {
        if !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }
}

// === impl Span ===

impl<'a> Span<'a> {
    /// Begins to count. Without a daemon, one that starts now is meant.
    pub(crate) fn begin(stage: &'a Stage, daemon: Option<&Daemon>) -> Result<Self> {
        let runs = |how| daemon.map_or(Ok(0.0), |daemon| daemon.runs(how));
        Ok(Self {
            stage,
            mark: stage.cluster.audit()?.mark()?,
            runs: runs("success")?,
            failures: runs("failure")?,
            cpu: cpu(stage, daemon)?,
            watch: Stopwatch::start(),
        })
    }

    /// Returns how many runs have ended well since the beginning.
    pub(crate) fn runs(&self, daemon: &Daemon) -> Result<f64> {
        Ok(daemon.runs("success")? - self.runs)
    }

    /// Returns the CPU time of the daemon, of the server, and of what is neither of them nor we.
    pub(crate) fn cpu(&self, daemon: &Daemon) -> Result<[f64; 3]> {
        let now = cpu(self.stage, Some(daemon))?;
        Ok([now[0] - self.cpu[0], now[1] - self.cpu[1], (now[2] - self.cpu[2]).max(0.0)])
    }

    /// Waits for the aftermath and notes what has been used up and written.
    pub(crate) fn end(self, rounds: &mut Rounds<'_>, measure: Measure, daemon: &Daemon) -> Result<()> {
        pass(AFTERMATH);
        self.used(rounds, measure, daemon)?;
        rounds.note(measure, "reconciles", "", self.runs(daemon)?);
        rounds.note(measure, "failed runs", "", daemon.runs("failure")? - self.failures);
        let [pss, peak] = daemon.memory()?;
        rounds.note(measure, "Pss", "MiB", pss);
        rounds.note(measure, "peak RSS", "MiB", peak);
        self.requests(rounds, measure)
    }

    /// Notes the CPU time that has been used up.
    pub(crate) fn used(&self, rounds: &mut Rounds<'_>, measure: Measure, daemon: &Daemon) -> Result<()> {
        for (name, seconds) in ["operator CPU", "server CPU", "CPU of others"].into_iter().zip(self.cpu(daemon)?) {
            rounds.note(measure, name, "s", seconds);
        }
        Ok(())
    }

    /// Returns how many writes the daemon has asked of the API server.
    pub(crate) fn writes(&self) -> Result<f64> {
        let requests = self.stage.requests(self.mark)?;
        let writes = requests.iter().filter(|(name, _)| !is_read(name));
        Ok(number(writes.map(|(_, count)| count).sum()))
    }

    /// Notes what the daemon has asked of the API server: writes, and all the rest.
    pub(crate) fn requests(&self, rounds: &mut Rounds<'_>, measure: Measure) -> Result<()> {
        let requests = self.stage.requests(self.mark)?;
        let (reads, writes): (Vec<_>, Vec<_>) = requests.iter().partition(|(name, _)| is_read(name));
        let sum = |of: &[(&String, &usize)]| number(of.iter().map(|(_, count)| **count).sum());
        rounds.note(measure, "writes", "", sum(&writes));
        for (name, count) in &writes {
            rounds.note(measure, format!("  {name}"), "", number(**count));
        }
        rounds.note(measure, "reads", "", sum(&reads));
        Ok(())
    }
}

/// Returns the CPU time so far of the daemon, of the server, and of what is neither of them nor we. A daemon that is not there
/// yet has used nothing.
fn cpu(stage: &Stage, daemon: Option<&Daemon>) -> Result<[f64; 3]> {
    let (daemon, server) = (daemon.map_or(Ok(0.0), Daemon::cpu)?, stage.server_cpu()?);
    Ok([daemon, server, usage::machine_cpu()? - usage::cpu("self")? - server - daemon])
}

/// Whether a request, as `get configmaps`, changes nothing.
fn is_read(request: &str) -> bool {
    ["get ", "list ", "watch "].iter().any(|verb| request.starts_with(verb))
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

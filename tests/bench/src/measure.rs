//! Decides which measures there are, in which order they are taken, and what they share.

use std::time::Duration;

use anyhow::Result;

use crate::clock::{Stopwatch, pass};
use crate::daemon::Daemon;
use crate::report;
use crate::stage::Stage;
use crate::subject::Subject;
use crate::usage;

mod cache;
mod check;
mod idle;
mod languages;
mod neighbours;
mod pages;
mod probes;
mod spread;
mod swap;
mod swaps;

/// After the end of what is measured, what it has set off is waited for and counted too.
const AFTERMATH: Duration = Duration::from_secs(5);

/// One thing that is measured; its word on the command line is its name in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measure {
    /// The time of `capstan check`.
    Check,
    /// A daemon with nothing to do.
    Idle,
    /// Many pages are created.
    Create,
    /// A daemon is started where everything is as it should be.
    Restart,
    /// All config maps are deleted.
    Drift,
    /// All pages are changed.
    Change,
    /// Each page is reconciled again and again.
    Noop,
    /// A daemon is started beside many objects that it does not own.
    Cache,
    /// What runs is replaced while many events come.
    Swap,
    /// A component is replaced again and again.
    Swaps,
    /// The sample in each language.
    Languages,
    /// Others change while plugins compute all the time.
    Neighbours,
}

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    /// What it belongs to.
    pub(crate) measure: Measure,
    /// What it says.
    pub(crate) name: String,
    /// In what.
    pub(crate) unit: &'static str,
    /// How much.
    pub(crate) value: f64,
}

/// How much of everything there is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    /// Pages.
    pub(crate) pages: usize,
    /// Deployments that nobody owns.
    pub(crate) deployments: usize,
    /// How often a component is replaced.
    pub(crate) swaps: usize,
}

/// What has come out.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Told {
    /// The numbers.
    pub(crate) figures: Vec<Figure>,
    /// What has to be known beside them.
    pub(crate) remarks: Vec<String>,
}

/// What one round works with.
pub(crate) struct Round<'a> {
    /// What is measured.
    pub(crate) subject: &'a Subject,
    /// What was asked for, in order.
    pub(crate) wanted: &'a [Measure],
    /// How much of everything.
    pub(crate) sizes: Sizes,
    /// Is told what goes on.
    pub(crate) tell: &'a dyn Fn(&str),
    /// What has come out so far.
    pub(crate) told: Told,
    /// The version of Kubernetes, once a control plane has run.
    pub(crate) kubernetes: String,
}

/// What had been used up when something began.
pub(crate) struct Span<'a> {
    stage: &'a Stage,
    watch: Stopwatch,
    /// The daemon had used so much; a daemon that is not there yet has used nothing.
    daemon: f64,
    server: f64,
    machine: f64,
    own: f64,
    reconciles: f64,
    failures: f64,
    mark: cluster::Mark,
}

// === impl Measure ===

impl Measure {
    /// All, in the order in which they are taken.
    pub(crate) const ALL: [Self; 12] = [
        Self::Check,
        Self::Idle,
        Self::Create,
        Self::Restart,
        Self::Drift,
        Self::Change,
        Self::Noop,
        Self::Cache,
        Self::Swap,
        Self::Swaps,
        Self::Languages,
        Self::Neighbours,
    ];

    /// Returns its word on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Idle => "idle",
            Self::Create => "create",
            Self::Restart => "restart",
            Self::Drift => "drift",
            Self::Change => "change",
            Self::Noop => "noop",
            Self::Cache => "cache",
            Self::Swap => "swap",
            Self::Swaps => "swaps",
            Self::Languages => "languages",
            Self::Neighbours => "neighbours",
        }
    }

    /// Says what is measured, in half a line.
    pub(crate) fn about(self, sizes: Sizes) -> String {
        let half = report::count(languages::pages(sizes));
        let once = report::count(swap::swaps(sizes));
        let Sizes { pages, deployments, swaps } = sizes;
        let [pages, deployments, swaps] = [pages, deployments, swaps].map(report::count);
        match self {
            Self::Check => "`capstan check` of the sample with a warm code cache".to_owned(),
            Self::Idle => "no objects, 10 s after the start".to_owned(),
            Self::Create => format!("{pages} pages of 2 KB are created"),
            Self::Restart => format!("start with {pages} pages and nothing to do"),
            Self::Drift => format!("{pages} ConfigMaps are deleted at one stroke"),
            Self::Change => format!("the HTML of {pages} pages changes"),
            Self::Noop => format!("{pages} pages again 1 ms after their last run, 20 s"),
            Self::Cache => {
                format!("start beside {deployments} Deployments of 6 KB that are not its own")
            }
            Self::Swap => {
                format!("{once} times, while events of {pages} primaries come at 200 a second")
            }
            Self::Swaps => {
                format!("a component is replaced {swaps} times, each time 8 primaries run")
            }
            Self::Languages => {
                format!("the sample in each language, with {half} pages")
            }
            Self::Neighbours => "from a change to its status, while runs of other plugins compute".to_owned(),
        }
    }
}

// === impl Told ===

impl Told {
    /// Adds what another round has told.
    pub(crate) fn append(&mut self, other: Self) {
        self.figures.extend(other.figures);
        for remark in other.remarks {
            self.remark(remark);
        }
    }

    /// Says something that has to be known beside the figures; once is enough.
    fn remark(&mut self, text: String) {
        if !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }
}

// === impl Round ===

impl Round<'_> {
    /// Takes the measures that were asked for.
    ///
    /// # Errors
    /// When something does not happen within its limit.
    pub(crate) fn run(&mut self) -> Result<()> {
        use Measure::{Cache, Languages, Neighbours, Swap, Swaps};
        let apart = [Cache, Swap, Swaps, Languages, Neighbours];
        if self.wanted.iter().any(|measure| !apart.contains(measure)) {
            let stage = self.set()?;
            check::measure(self, &stage)?;
            idle::measure(self, &stage)?;
            pages::measure(self, &stage)?;
        }
        if self.wants(&[Cache]) {
            let stage = self.set()?;
            cache::measure(self, &stage)?;
        }
        if self.wants(&[Swap, Swaps]) {
            let stage = self.set()?;
            swap::measure(self, &stage)?;
            swaps::measure(self, &stage)?;
        }
        if self.wants(&[Languages]) {
            let stage = self.set()?;
            languages::measure(self, &stage)?;
        }
        if self.wants(&[Neighbours]) {
            let stage = self.set()?;
            neighbours::measure(self, &stage)?;
        }
        Ok(())
    }

    /// Whether one of these was asked for.
    fn wants(&self, measures: &[Measure]) -> bool {
        measures.iter().any(|measure| self.wanted.contains(measure))
    }

    /// Notes a figure, if its measure was asked for.
    fn note(&mut self, measure: Measure, name: impl Into<String>, unit: &'static str, value: f64) {
        if self.wanted.contains(&measure) {
            let name = name.into();
            self.told.figures.push(Figure { measure, name, unit, value });
        }
    }

    fn set(&mut self) -> Result<Stage> {
        (self.tell)("starting a control plane");
        let stage = Stage::set(self.subject)?;
        stage.version().clone_into(&mut self.kubernetes);
        Ok(stage)
    }
}

// === impl Span ===

impl<'a> Span<'a> {
    /// Begins to count. Without a daemon, one that starts now is meant.
    ///
    /// # Errors
    /// When a process has ended.
    pub(crate) fn begin(stage: &'a Stage, daemon: Option<&Daemon>) -> Result<Self> {
        Ok(Self {
            stage,
            mark: stage.mark()?,
            reconciles: daemon.map_or(Ok(0.0), Daemon::reconciles)?,
            failures: daemon.map_or(Ok(0.0), Daemon::failures)?,
            daemon: daemon.map_or(Ok(0.0), Daemon::cpu)?,
            server: stage.server_cpu()?,
            machine: usage::machine_cpu()?,
            own: usage::own_cpu()?,
            watch: Stopwatch::start(),
        })
    }

    /// Returns the time since the beginning.
    pub(crate) fn spent(&self) -> Duration {
        self.watch.spent()
    }

    /// Returns how many runs have ended well since the beginning.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub(crate) fn reconciles(&self, daemon: &Daemon) -> Result<f64> {
        Ok(daemon.reconciles()? - self.reconciles)
    }

    /// Waits for the aftermath and notes what has been used up and written.
    ///
    /// # Errors
    /// When a process has ended.
    pub(crate) fn end(self, round: &mut Round<'_>, measure: Measure, daemon: &Daemon) -> Result<()> {
        pass(AFTERMATH);
        self.used(round, measure, daemon)?;
        let failures = daemon.failures()? - self.failures;
        round.note(measure, "reconciles", "", self.reconciles(daemon)?);
        round.note(measure, "failed runs", "", failures);
        round.note(measure, "Pss", "MiB", daemon.pss()?);
        round.note(measure, "peak RSS", "MiB", daemon.peak()?);
        self.requests(round, measure)
    }

    /// Notes the CPU time of the daemon, of the server, and of what has nothing to do with either or with us.
    ///
    /// # Errors
    /// When a process has ended.
    pub(crate) fn used(&self, round: &mut Round<'_>, measure: Measure, daemon: &Daemon) -> Result<()> {
        let cpu = daemon.cpu()? - self.daemon;
        let server = self.stage.server_cpu()? - self.server;
        round.note(measure, "operator CPU", "s", cpu);
        round.note(measure, "server CPU", "s", server);
        round.note(measure, "CPU of others", "s", self.others(daemon)?);
        Ok(())
    }

    /// Returns the CPU time of what is neither daemon nor server nor we.
    ///
    /// # Errors
    /// When a process has ended.
    pub(crate) fn others(&self, daemon: &Daemon) -> Result<f64> {
        let cpu = daemon.cpu()? - self.daemon;
        let server = self.stage.server_cpu()? - self.server;
        let own = usage::own_cpu()? - self.own;
        let others = usage::machine_cpu()? - self.machine - own - server - cpu;
        Ok(others.max(0.0))
    }

    /// Returns how many writes the daemon has asked of the API server.
    ///
    /// # Errors
    /// When the audit log can't be read.
    pub(crate) fn writes(&self) -> Result<f64> {
        let requests = self.stage.requests(self.mark)?;
        let writes = requests.iter().filter(|(name, _)| !is_read(name));
        Ok(number(writes.map(|(_, count)| count).sum()))
    }

    /// Notes what the daemon has asked of the API server: writes, and all the rest.
    ///
    /// # Errors
    /// When the audit log can't be read.
    pub(crate) fn requests(&self, round: &mut Round<'_>, measure: Measure) -> Result<()> {
        let requests = self.stage.requests(self.mark)?;
        let sum = |reads: bool| -> usize {
            let counted = requests.iter().filter(|(name, _)| is_read(name) == reads);
            counted.map(|(_, count)| count).sum()
        };
        round.note(measure, "writes", "", number(sum(false)));
        for (name, count) in requests.iter().filter(|(name, _)| !is_read(name)) {
            round.note(measure, format!("  {name}"), "", number(*count));
        }
        round.note(measure, "reads", "", number(sum(true)));
        Ok(())
    }
}

/// Whether a request, as `get configmaps`, changes nothing.
fn is_read(request: &str) -> bool {
    ["get ", "list ", "watch "].iter().any(|verb| request.starts_with(verb))
}

/// Returns a count as a figure.
#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

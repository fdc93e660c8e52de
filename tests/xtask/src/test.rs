//! Decides which checks and tests run, in which order, and what their results add up to.

mod step;
mod stress;
pub(crate) mod tally;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use bench::clock::Stopwatch;
use clap::ValueEnum;
use cluster::Cluster;

use crate::interrupt::Interrupted;
use crate::process::Process;
use crate::test::step::Step;
use crate::test::tally::Tally;
use crate::ui::{self, Ui, bold, dim, green, red, said};
use crate::workspace::Workspace;

/// `cargo xtask test`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask test                           all, as CI does
  cargo xtask test --only core lint          two steps
  cargo xtask test --only scenarios -- s012  the scenarios whose name contains s012, on a control plane
  cargo xtask test retry                     all tests whose name contains retry
  cargo xtask test --only scenarios --stress --times 20 -- s012
                                             these scenarios 20 times on busy processors

A step that another one needs is added. cargo-nextest and cargo-deny are used where they are installed.
The last line is `N passed, N failed`; the exit status is 1 if anything failed.")]
pub(crate) struct Args {
    /// Only these steps, and what they need.
    #[arg(long, value_enum, value_name = "STEP", num_args = 1..)]
    only: Vec<Step>,
    /// Load all processors while tests run, as a busy machine does; they are compiled before.
    #[arg(long)]
    stress: bool,
    /// Run the scenarios so many times, or until one fails.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// Only tests whose name contains this; steps that run no tests are left out.
    filter: Option<String>,
}

/// What has become of a step.
struct Row {
    step: Step,
    shown: Shown,
    took: Duration,
}

/// How a step has ended.
struct Shown {
    outcome: Outcome,
    tally: Tally,
    /// What there is to say of it.
    detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

struct Run<'a> {
    ui: &'a Ui,
    workspace: &'a Workspace,
    filter: Option<&'a str>,
    stress: bool,
    /// How often scenarios are run.
    times: u32,
    /// The control plane that all scenarios share.
    cluster: Option<Cluster>,
    image: Option<PathBuf>,
    /// Builds the daemon for the image while tests wait, if that is wanted later.
    ahead: Option<Process>,
    is_image_wanted: bool,
    /// The variables that name the folders below which servers are, and these.
    servers: Vec<(&'static str, PathBuf)>,
}

pub(crate) fn run(ui: &Ui, workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let watch = Stopwatch::start();
    let Args { only, stress, times, filter } = args;
    let filter = filter.as_deref();
    let steps = plan(only, filter.is_some());
    let mut run = Run {
        ui,
        workspace,
        filter,
        stress: *stress,
        times: *times,
        cluster: None,
        image: None,
        ahead: None,
        is_image_wanted: steps.contains(&Step::Image),
        servers: Vec::new(),
    };
    let mut rows: Vec<Row> = Vec::new();
    for step in steps {
        let row = run.step(step, &rows)?;
        rows.push(row);
    }
    drop(run);
    ui.line("");
    ui.line(ui::table(&cells(&rows)));
    let mut failures = rows.iter().flat_map(|row| &row.shown.tally.failures).peekable();
    if failures.peek().is_some() {
        ui.line(format!("\n{}", red("failed:")));
        failures.for_each(|name| ui.line(format!("  {name}")));
    }
    let (passed, mut failed) = sum(&rows);
    if let Some(filter) = filter.filter(|_| passed + failed == 0) {
        ui.line(red(&format!("no test has {filter} in its name")));
        failed = 1;
    }
    ui.line(format!("\n{}", dim(&format!("in {}", said(watch.spent())))));
    ui.line(format!("{passed} passed, {failed} failed"));
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the steps to run, in order: those asked for and what they need.
fn plan(only: &[Step], filtered: bool) -> Vec<Step> {
    let wanted = Step::value_variants().iter().filter(|step| match only {
        [] => !filtered || step.has_tests(),
        only => only.contains(step),
    });
    let steps: BTreeSet<Step> = wanted.flat_map(|step| step.needs().iter().chain([step])).copied().collect();
    // Their order is that of the run.
    steps.into_iter().collect()
}

/// Returns how many tests have passed and failed; a step that fails by itself counts as one.
fn sum(rows: &[Row]) -> (u64, u64) {
    let passed = rows.iter().map(|row| row.shown.tally.passed).sum();
    let failed = rows.iter().map(|row| match row.shown.outcome {
        Outcome::Failed => row.shown.tally.failed.max(1),
        Outcome::Passed | Outcome::Skipped => 0,
    });
    (passed, failed.sum())
}

fn cells(rows: &[Row]) -> Vec<Vec<String>> {
    let head = ["step", "result", "", "time"].map(bold).to_vec();
    let body = rows.iter().map(|row| {
        let took = dim(&said(row.took));
        let (result, time) = match row.shown.outcome {
            Outcome::Passed => (green("ok"), took),
            Outcome::Failed => (red("failed"), took),
            Outcome::Skipped => (dim("skipped"), String::new()),
        };
        vec![row.step.name(), result, row.shown.detail.clone(), time]
    });
    std::iter::once(head).chain(body).collect()
}

impl Shown {
    /// Returns what a step without tests has come to.
    fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        Self { outcome, tally: Tally::default(), detail: detail.into() }
    }

    fn add(&mut self, tally: Tally, succeeded: bool) {
        self.tally.add(tally);
        self.detail = self.tally.to_string();
        if !succeeded {
            self.outcome = Outcome::Failed;
        }
    }
}

impl Run<'_> {
    fn step(&mut self, step: Step, before: &[Row]) -> Result<Row> {
        let mut task = self.ui.task(&step.name());
        // Without a server, the scenarios that talk to it fail by themselves.
        let is_needed = |row: &&Row| step.needs().contains(&row.step) && row.step != Step::Servers;
        let is_missing = |row: &&Row| is_needed(row) && row.shown.outcome != Outcome::Passed;
        let missing = before.iter().find(is_missing).map(|row| format!("needs {}", row.step.name()));
        let shown = if let Some(reason) = missing.or_else(|| step.absent(self.workspace)) {
            Shown::new(Outcome::Skipped, reason)
        } else {
            task.announce(&step.title());
            self.run(step, &mut task).or_else(|error| {
                if error.is::<Interrupted>() {
                    return Err(error);
                }
                task.whole(&[format!("{error:#}")]);
                Ok(Shown::new(Outcome::Failed, ""))
            })?
        };
        let took = match shown.outcome {
            Outcome::Passed => task.done(&shown.detail),
            Outcome::Failed => task.failed(&shown.detail),
            Outcome::Skipped => task.skipped(&shown.detail),
        };
        Ok(Row { step, shown, took })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(step: Step, outcome: Outcome, passed: u64, failed: u64) -> Row {
        let mut tally = Tally::default();
        (tally.passed, tally.failed) = (passed, failed);
        let shown = Shown { outcome, detail: tally.to_string(), tally };
        Row { step, shown, took: Duration::from_secs(3) }
    }

    #[test]
    fn steps_run_by_speed_with_what_they_need() {
        use Step::{Cluster, Core, Daemon, Fmt, Init, Plugins, Scenarios, Servers, Unit};
        let table = [
            (vec![], false, Step::value_variants().to_vec()),
            (vec![Core, Fmt], false, vec![Fmt, Core]),
            (vec![Scenarios], true, vec![Plugins, Daemon, Servers, Cluster, Scenarios]),
            (vec![], true, vec![Core, Plugins, Daemon, Unit, Servers, Cluster, Init, Scenarios]),
        ];
        for (only, filtered, expected) in table {
            assert_eq!(plan(&only, filtered), expected, "{only:?}");
        }
    }

    #[test]
    fn a_step_that_fails_without_a_failed_test_counts_as_one() {
        let rows = [
            row(Step::Fmt, Outcome::Failed, 0, 0),
            row(Step::Core, Outcome::Passed, 40, 0),
            row(Step::Unit, Outcome::Failed, 7, 3),
            row(Step::Deny, Outcome::Skipped, 0, 0),
        ];
        assert_eq!(sum(&rows), (47, 4));
    }

    #[test]
    fn the_table_has_a_row_for_each_step() {
        console::set_colors_enabled(false);
        let rows = [
            row(Step::Core, Outcome::Passed, 40, 0),
            row(Step::Unit, Outcome::Failed, 7, 3),
            row(Step::Deny, Outcome::Skipped, 0, 0),
        ];
        let lines = [
            "step  result                       time",
            "core  ok       40 passed           3.00 s",
            "unit  failed   7 passed, 3 failed  3.00 s",
            "deny  skipped",
        ];
        assert_eq!(ui::table(&cells(&rows)), lines.join("\n"));
    }
}

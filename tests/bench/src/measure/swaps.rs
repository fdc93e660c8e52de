//! Measures what is left of a component that is replaced again and again.

use std::time::Duration;

use anyhow::Result;

use super::probes::{Change, Rig};
use super::spread::Spread;
use super::{Measure, Round, number};
use crate::clock::pass;
use crate::daemon::Daemon;
use crate::stage::Stage;
use crate::usage;

/// How many primaries there are: as many as run at once.
const PRIMARIES: usize = 8;
/// What runs. Warm, because what is kept warm has to go with its version.
const RIG: Rig<'_> = Rig {
    name: "swaps",
    namespace: "swaps",
    plugin: "onSwap: reconcileAll, instances: warm",
    controller: "concurrency: 8",
};
/// In how many parts the swaps are told.
const PARTS: usize = 10;
/// How long the daemon is left alone before it is looked at.
const REST: Duration = Duration::from_millis(500);
/// Milliseconds in a second.
const MILLI: f64 = 1e3;
/// Hundredths in a whole.
const PER_CENT: f64 = 100.0;

/// What the daemon has in use.
struct Holdings {
    /// After so many swaps.
    swaps: usize,
    /// Memory in MiB.
    pss: f64,
    mappings: usize,
    files: usize,
    threads: usize,
}

/// How long swaps took, from the renaming on, in microseconds.
#[derive(Default)]
struct Times {
    /// Until the new version was in force.
    in_force: Vec<i64>,
    /// Until it had answered each primary.
    answered: Vec<i64>,
}

/// Takes the measure.
pub(super) fn measure(round: &mut Round<'_>, stage: &Stage) -> Result<()> {
    if !round.wants(&[Measure::Swaps]) {
        return Ok(());
    }
    (round.tell)("swaps");
    RIG.populate(stage, PRIMARIES)?;
    let mut show = RIG.start(round, stage, PRIMARIES)?;
    show.until_quiet()?;
    let (count, tell) = (round.sizes.swaps, round.tell);
    let part = (count / PARTS).max(1);
    let (mut times, mut held) = (Times::default(), Vec::new());
    let (before, mut rested) = (show.daemon.cpu()?, 0.0);
    for swap in 1..=count {
        let after = show.diary.answers.len();
        let renamed = show.change(Change::Component)?;
        let placed = show.until_placed(swap + 1)?;
        let answered = show.until_answered(after, PRIMARIES)?;
        times.in_force.push(placed.at - renamed);
        times.answered.push(answered - renamed);
        if swap % part == 0 {
            tell(&format!("swaps: {swap}"));
            let before = show.daemon.cpu()?;
            pass(REST);
            held.push(Holdings::of(&show.daemon, swap)?);
            rested += show.daemon.cpu()? - before;
        }
    }
    let cpu = show.daemon.cpu()? - before - rested;
    times.note(round);
    let each = cpu * MILLI / number(count.max(1));
    round.note(Measure::Swaps, "CPU of a swap", "ms", each);
    note_holdings(round, &held);
    show.daemon.stop()
}

impl Holdings {
    fn of(daemon: &Daemon, swaps: usize) -> Result<Self> {
        let pid = daemon.pid();
        Ok(Self {
            swaps,
            pss: daemon.pss()?,
            mappings: usage::mappings(pid)?,
            files: usage::open_files(pid)?,
            threads: usage::threads(pid)?,
        })
    }
}

impl Times {
    fn note(self, round: &mut Round<'_>) {
        let mut note = |name: &str, value| round.note(Measure::Swaps, name, "ms", value);
        let (in_force, answered) = (Spread::of_micros(self.in_force), Spread::of_micros(self.answered));
        note("rename to in force, median", in_force.median());
        note("rename to in force, p99", in_force.p99());
        note("rename to all answered, median", answered.median());
        note("rename to all answered, p99", answered.p99());
    }
}

/// Notes the memory after each part, and what there is more at the end than after the first one.
fn note_holdings(round: &mut Round<'_>, held: &[Holdings]) {
    let (Some(first), Some(last)) = (held.first(), held.last()) else {
        return;
    };
    let mut note = |name: &str, unit, value| round.note(Measure::Swaps, name, unit, value);
    for Holdings { swaps, pss, .. } in held {
        note(&format!("Pss after {swaps}"), "MiB", *pss);
    }
    let growth = (last.pss - first.pss) * PER_CENT / first.pss;
    note("growth of Pss since the first tenth", "%", growth);
    for (name, first, last) in [
        ("mappings", first.mappings, last.mappings),
        ("open files", first.files, last.files),
        ("threads", first.threads, last.threads),
    ] {
        note(&format!("{name} after the first tenth"), "", number(first));
        note(&format!("{name} at the end"), "", number(last));
    }
}

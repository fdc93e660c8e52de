//! Measures what is left of a component that is replaced again and again.

use std::time::Duration;

use anyhow::Result;

use super::probes::{Change, Rig};
use super::spread::{MEDIAN, P99, Spread};
use super::{Measure, Rounds, number};
use crate::clock::pass;
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
const MILLI: f64 = 1e3;
const PER_CENT: f64 = 100.0;

/// What the daemon has in use.
struct Holdings {
    /// After so many swaps.
    swaps: usize,
    /// Memory in MiB.
    pss: f64,
    /// Mappings of memory, open files and threads.
    counts: [usize; 3],
}

pub(super) fn measure(rounds: &mut Rounds<'_>, stage: &Stage) -> Result<()> {
    rounds.tell("swaps");
    RIG.populate(stage, PRIMARIES)?;
    let mut show = RIG.start(rounds, stage, PRIMARIES)?;
    show.until_quiet()?;
    let count = rounds.sizes.swaps;
    let part = (count / PARTS).max(1);
    // From the renaming on, in microseconds.
    let (mut in_force, mut answered, mut held) = (Vec::new(), Vec::new(), Vec::new());
    let (before, mut rested) = (show.daemon.cpu()?, 0.0);
    for swap in 1..=count {
        let after = show.diary.answers.len();
        let renamed = show.change(Change::Component)?;
        in_force.push(show.until_placed(swap + 1)? - renamed);
        answered.push(show.until_answered(after, PRIMARIES)? - renamed);
        if swap % part == 0 {
            rounds.tell(&format!("swaps: {swap}"));
            let before = show.daemon.cpu()?;
            pass(REST);
            let [pss, _] = show.daemon.memory()?;
            held.push(Holdings { swaps: swap, pss, counts: usage::holdings(show.daemon.pid())? });
            rested += show.daemon.cpu()? - before;
        }
    }
    let cpu = show.daemon.cpu()? - before - rested;
    for (name, times) in [("rename to in force", in_force), ("rename to all answered", answered)] {
        rounds.spread(Measure::Swaps, name, &Spread::of_micros(times), &[MEDIAN, P99]);
    }
    rounds.note(Measure::Swaps, "CPU of a swap", "ms", cpu * MILLI / number(count.max(1)));
    note_holdings(rounds, &held);
    show.daemon.stop()
}

/// Notes the memory after each part, and what there is more at the end than after the first one.
fn note_holdings(rounds: &mut Rounds<'_>, held: &[Holdings]) {
    let (Some(first), Some(last)) = (held.first(), held.last()) else {
        return;
    };
    for Holdings { swaps, pss, .. } in held {
        rounds.note(Measure::Swaps, format!("Pss after {swaps}"), "MiB", *pss);
    }
    let growth = (last.pss - first.pss) * PER_CENT / first.pss;
    rounds.note(Measure::Swaps, "growth of Pss since the first tenth", "%", growth);
    let counts = first.counts.into_iter().zip(last.counts);
    for (name, (first, last)) in ["mappings", "open files", "threads"].into_iter().zip(counts) {
        rounds.note(Measure::Swaps, format!("{name} after the first tenth"), "", number(first));
        rounds.note(Measure::Swaps, format!("{name} at the end"), "", number(last));
    }
}

//! Measures what a swap costs those who wait: a component or its configuration is replaced while events come at a constant rate.
//!
//! Every run says in the log which version it was of. At 200 events a second, answers are 5 ms apart anyway. So the gap at a
//! swap means something only beside the gaps at other times, and beside the time from an event to its answer. Where the daemon
//! is never without work, and after a swap that has everything run once more, gaps are as short as runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::json;

use super::probes::{Change, Rig, Show};
use super::spread::{MEDIAN, MOST, P99, Rank, Spread};
use super::{Measure, Rounds, Sizes, Span, number};
use crate::clock::{Patience, Stopwatch, wall};
use crate::load;
use crate::objects::{probe_name, probe_spec, probes_path};
use crate::stage::Stage;

mod record;

use record::{Record, Sent, Swapped};

const NAMESPACE: &str = "swap";
/// The time from one event to the next.
const EVERY: Duration = Duration::from_millis(5);
/// The time from one swap to the next.
const PAUSE: Duration = Duration::from_millis(500);
/// How many swaps there are at most; after more, nothing new is to be learned.
const SWAPS: usize = 40;
/// How many while the daemon is never without work: each of its many runs is a line in the log.
const BUSY_SWAPS: usize = 10;
/// How often the last events are looked for, and for how long; what is not answered then is lost.
const LAST: Patience = Patience::new(50, 20);
/// Events of different manners are numbered apart.
const APART: usize = 1_000_000;

/// One way to swap, and what happens meanwhile.
struct Manner {
    rig: Rig<'static>,
    change: Change,
    work: Work,
}

/// Why there are runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// An event causes one, and nothing else does.
    Events,
    /// An event causes one, and a swap one of each primary.
    EventsAndSwaps,
    /// There is always something to do, without events.
    Always,
}

const MANNERS: [Manner; 4] = [
    Manner::new("component", Change::Component, ["onSwap: nothing", EIGHT], Work::Events),
    Manner::new("config", Change::Config, ["onSwap: nothing", EIGHT], Work::Events),
    Manner::new("reconcileAll", Change::Component, ["onSwap: reconcileAll", EIGHT], Work::EventsAndSwaps),
    Manner::new("busy", Change::Component, ["onSwap: nothing", AGAIN], Work::Always),
];
const EIGHT: &str = "concurrency: 8";
const AGAIN: &str = "maxReconciliationInterval: 1ms\n      rateLimit: none";

pub(super) fn swaps(sizes: Sizes) -> usize {
    sizes.swaps.min(SWAPS)
}

pub(super) fn measure(rounds: &mut Rounds<'_>, stage: &Stage) -> Result<()> {
    rounds.tell("swap: creating probes");
    for (at, manner) in MANNERS.iter().enumerate() {
        if at == 0 {
            manner.rig.populate(stage, rounds.sizes.pages)?;
        }
        rounds.tell(&format!("swap: {}", manner.rig.name));
        let mut show = manner.rig.start(rounds, stage, rounds.sizes.pages)?;
        if manner.work != Work::Always {
            show.until_quiet()?;
        }
        show.diary.answers.clear();
        let span = Span::begin(stage, Some(&show.daemon))?;
        let record = manner.record(rounds.sizes, stage, &mut show, (at + 1) * APART)?;
        manner.note(rounds, &record)?;
        let name = |what: &str| format!("{}: {what}", manner.rig.name);
        let (writes, [_, _, others]) = (span.writes()?, span.cpu(&show.daemon)?);
        rounds.note(Measure::Swap, name("writes"), "", writes);
        rounds.note(Measure::Swap, name("CPU of others"), "s", others);
        show.daemon.stop()?;
    }
    Ok(())
}

impl Manner {
    const fn new(name: &'static str, change: Change, [plugin, controller]: [&'static str; 2], work: Work) -> Self {
        Self { rig: Rig { name, namespace: NAMESPACE, plugin, controller }, change, work }
    }

    /// Swaps while events come; those are numbered from `base` on.
    fn record(&self, sizes: Sizes, stage: &Stage, show: &mut Show<'_>, base: usize) -> Result<Record> {
        let started = show.daemon.runs("started")?;
        let watch = Stopwatch::start();
        let (stop, primaries) = (AtomicBool::new(self.work == Work::Always), sizes.pages);
        let send = |api: &cluster::Api, number: usize| {
            let name = probe_name(number % primaries);
            let (event, at) = (base + number, wall());
            let path = format!("{}/{name}", probes_path(NAMESPACE));
            api.merge(&path, &json!({ "spec": probe_spec(event) }))?;
            let probe = format!("{NAMESPACE}/{name}");
            Ok(Sent { at, probe, event })
        };
        let (swaps, sent) = thread::scope(|scope| {
            let events = scope.spawn(|| load::pace(stage, usize::MAX, EVERY, &stop, send));
            let swaps = self.swap(sizes, show, &stop);
            stop.store(true, Ordering::Relaxed);
            let panicked = || Err(anyhow!("the thread that sends events has panicked"));
            (swaps, events.join().unwrap_or_else(|_| panicked()))
        });
        let mut record =
            Record { swaps: swaps?, sent: sent?, seconds: watch.spent().as_secs_f64(), ..Record::default() };
        record.sent.sort_by_key(|sent| sent.event);
        self.await_answers(show, &mut record)?;
        record.started = show.daemon.runs("started")? - started;
        Ok(record)
    }

    fn swap(&self, sizes: Sizes, show: &mut Show<'_>, stop: &AtomicBool) -> Result<Vec<Swapped>> {
        let count = match self.work {
            Work::Events | Work::EventsAndSwaps => swaps(sizes),
            Work::Always => swaps(sizes).min(BUSY_SWAPS),
        };
        let mut swaps = Vec::new();
        // Before the first one there are answers to compare with.
        show.pass(PAUSE)?;
        for swap in 1..=count {
            let watch = Stopwatch::start();
            let after = show.diary.answers.len();
            let renamed = show.change(self.change)?;
            let placed = show.until_placed(swap + 1)?;
            let all_answered = match self.work {
                Work::EventsAndSwaps => Some(show.until_answered(after, sizes.pages)?),
                Work::Events | Work::Always => None,
            };
            swaps.push(Swapped { renamed, placed, all_answered, version: show.version });
            show.pass(PAUSE.saturating_sub(watch.spent()))?;
            if self.work != Work::Always && stop.load(Ordering::Relaxed) {
                // No more events: that thread says why.
                break;
            }
        }
        Ok(swaps)
    }

    /// Waits for the answers to the last events, and takes all answers in.
    fn await_answers(&self, show: &mut Show<'_>, record: &mut Record) -> Result<()> {
        let watch = Stopwatch::start();
        loop {
            record.answers.append(&mut show.diary.answers);
            // What is not answered by then is a result, not a failure of the measuring.
            if self.lost(record) == 0 || watch.spent() > LAST.limit {
                break;
            }
            show.pass(LAST.every)?;
        }
        if self.work != Work::Always {
            // A run too many would come after the one that was waited for.
            show.until_quiet()?;
            record.answers.append(&mut show.diary.answers);
        }
        record.answers.sort_by_key(|answer| answer.at);
        Ok(())
    }

    /// Counts the runs that there should have been and have not.
    fn lost(&self, record: &Record) -> usize {
        match self.work {
            Work::Events => record.unanswered(),
            Work::EventsAndSwaps => record.outdated(),
            Work::Always => 0,
        }
    }

    fn note(&self, rounds: &mut Rounds<'_>, record: &Record) -> Result<()> {
        let name = |what: &str| format!("{}: {what}", self.rig.name);
        let times = |rounds: &mut Rounds<'_>, what: &str, spread: &Spread, ranks: &[Rank]| {
            rounds.spread(Measure::Swap, &name(what), spread, ranks);
        };
        let count = |rounds: &mut Rounds<'_>, what: &str, value| rounds.note(Measure::Swap, name(what), "", value);
        let (events, swaps) = (number(record.sent.len()), number(record.swaps.len()));
        let gaps = record.gaps()?;
        times(rounds, "gap at a swap", &gaps.at_swaps, &[MEDIAN, MOST]);
        times(rounds, "gap elsewhere", &gaps.elsewhere, &[MEDIAN, P99, MOST]);
        let more = gaps.at_swaps.at(MEDIAN) - gaps.elsewhere.at(MEDIAN);
        rounds.note(Measure::Swap, name("more at a swap"), "ms", more);
        count(rounds, "old answers after a new one", number(record.late()?));
        times(rounds, "rename to in force", &record.placing(), &[MEDIAN, MOST]);
        match self.work {
            Work::Always => {
                count(rounds, "runs a second", record.started / record.seconds);
                return Ok(());
            }
            Work::Events => {
                count(rounds, "events", events);
                count(rounds, "doubled runs", record.started - events);
            }
            Work::EventsAndSwaps => {
                times(rounds, "in force to all answered", &record.all_again(), &[MEDIAN, MOST]);
                count(rounds, "events", events);
                count(rounds, "runs of a swap", (record.started - events) / swaps.max(1.0));
            }
        }
        count(rounds, "lost runs", number(self.lost(record)));
        let waits = record.waits();
        times(rounds, "event to answer at a swap", &waits.at_swaps, &[MEDIAN, MOST]);
        times(rounds, "event to answer elsewhere", &waits.elsewhere, &[MEDIAN, P99]);
        count(rounds, "events a second", events / record.seconds);
        Ok(())
    }
}

//! Checks retries, timers and starts without something while nothing else happens: what runs are told, and when they begin.

use std::time::Duration;

use model::{Fault, Loss};
use tokio::time::Instant;

use super::{Play, QUIET, SHORTLY};
use crate::plan::{Kind, Verb, Whim, Wrong};
use crate::stage::Told;
use crate::verdict;
use crate::world::{INTERVAL, RATE, Thing, Variant};

/// The delays before the first retries, as they follow from the manifest.
const DELAYS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(1), Duration::from_millis(1500), Duration::from_millis(2250)];

/// How much later than it is due a run may begin.
const SLACK: Duration = Duration::from_millis(50);

/// The longest pause of a primary that waits alone for the API server.
const PAUSE: Duration = Duration::from_secs(4);

/// A request that the API server fails at is sent again for so long: the run that it is of may have begun so much sooner.
const REPEATED: Duration = Duration::from_millis(500);

impl Play<'_> {
    /// Lets runs of a primary fail, meet an outage, and ask to run again.
    pub(super) async fn calm(&mut self) {
        let there = |thing: &Thing| self.object(*thing).is_some();
        let Some(thing) = Thing::all().find(there) else { return };
        self.retries(thing).await;
        self.outage(thing).await;
        self.again(thing).await;
        self.paced(thing).await;
    }

    /// RT-1, RT-2, RT-3, EP-34, EP-35: as many retries as the manifest says, each at its time, and told its number.
    async fn retries(&mut self, thing: Thing) {
        self.stage.note("=== runs fail");
        let bound = self.plan.setup.attempts;
        let (fails, last) = (4, bound.unwrap_or(4));
        for _ in 0..fails {
            self.stage.whim(Whim::Fail);
        }
        let runs = self.runs_of(thing, 6001).await;
        let numbers: Vec<_> = std::iter::once(None).chain((1..=last).map(Some)).collect();
        self.are_told(&runs, &numbers, bound.is_none());
        for (run, delay) in runs.windows(2).zip(DELAYS).take(numbers.len() - 1) {
            self.begins(&run[0], &run[1], delay);
        }
        for run in &runs {
            let is_last = run.retry.is_some_and(|retry| retry.last);
            if is_last != (bound.is_some() && run.retry.map(|retry| retry.attempt) == bound) {
                self.stage.wrong(format!("a run is told that no retry follows: {:?}", run.retry));
            }
        }
        if bound.is_some() {
            let runs = self.runs_of(thing, 6002).await;
            self.are_told(&runs, &[bound], true);
        }
        let runs = self.runs_of(thing, 6003).await;
        self.are_told(&runs, &[None], true);
    }

    /// EP-34: an outage uses up no attempt, and ends the wait for the API server.
    async fn outage(&mut self, thing: Thing) {
        self.stage.note("=== a run fails, and then there is an outage");
        self.stage.whim(Whim::Fail);
        self.stage.take_told();
        self.set(thing, "value", 6100.into());
        let begun = Instant::now();
        while !self.stage.told().iter().any(|run| run.end.is_some()) && begun.elapsed() < SHORTLY {
            self.until(Instant::now() + Duration::from_millis(20)).await;
        }
        let (fault, repeated) = match self.plan.seed % 2 {
            0 => (Fault::LoseRequest(Loss::Broken), Duration::ZERO),
            _ => (Fault::Answer { code: 503, retry_after: None }, REPEATED),
        };
        self.stage.outage(Some(fault));
        self.set(thing, "value", 6200.into());
        self.until(Instant::now() + Duration::from_secs(6)).await;
        self.stage.outage(None);
        let over = Instant::now();
        let quiet = self.quiet(SHORTLY).await;
        let runs = self.told_of(thing);
        let later = runs.iter().skip(1).take_while(|run| run.retry.is_some());
        let later: Vec<_> = later.collect();
        // What changed meanwhile may be seen only after it.
        let numbers = std::iter::once(None).chain(later.iter().map(|_| Some(1))).chain(std::iter::repeat(None));
        let numbers: Vec<_> = numbers.take(runs.len()).collect();
        self.are_told(&runs, &numbers, false);
        let in_time = later.last().is_some_and(|run| run.at + repeated >= over && run.at <= over + PAUSE + SLACK);
        if later.len() < 3 || !in_time || !quiet {
            self.stage.wrong(format!("an outage is over at {over:?}, and these have run: {runs:?}"));
        }
    }

    /// EP-23 (d): a run that asks to run again is run again, after that time.
    async fn again(&mut self, thing: Thing) {
        self.stage.note("=== a run asks to run again");
        let after = Duration::from_secs(7);
        // The event of the status that the first writes replaces what it has asked for.
        let asking = if self.plan.setup.generation_aware { 1 } else { 2 };
        for _ in 0..asking {
            self.stage.whim(Whim::Again(after));
        }
        let runs = self.runs_of(thing, 6300).await;
        self.are_told(&runs, &vec![None; asking + 1], false);
        if let [.., before, last] = &runs[..] {
            self.begins(before, last, after);
        }
    }

    /// IV-1, RL-1: with an interval, a primary runs again though nothing happens; with a rate limit it runs as often as
    /// that says at most, and sees the last change all the same.
    async fn paced(&mut self, thing: Thing) {
        self.stage.note("=== there are an interval and a rate limit");
        self.swap(Variant::Paced);
        self.until(Instant::now() + SHORTLY).await;
        // The interval counts from the next run on.
        self.set(thing, "value", 6399.into());
        self.until(Instant::now() + 2 * INTERVAL).await;
        self.stage.take_told();
        self.until(Instant::now() + 2 * INTERVAL + SHORTLY).await;
        let runs = self.told_of(thing);
        self.are_told(&runs, &vec![None; runs.len().max(2)], false);
        for pair in runs.windows(2) {
            self.begins(&pair[0], &pair[1], INTERVAL);
        }
        let (most, within) = RATE;
        self.stage.take_told();
        for value in 0..40_u32 {
            self.set(thing, "value", (6400 + value).into());
            self.until(Instant::now() + within / 20).await;
        }
        let runs = self.told_of(thing).len();
        // Two such times have passed, and each edit is a reason to run; no more than three have begun.
        let most = usize::try_from(most).unwrap_or_default();
        if !(2 * most..=3 * most).contains(&runs) {
            self.stage.wrong(format!("{runs} runs in {:?}, where {most} may be in {within:?}", 2 * within));
        }
        self.until(Instant::now() + within + SHORTLY).await;
        self.judge(verdict::unseen(&self.stage, self.plan.setup));
        self.swap(Variant::Usual);
        if !self.quiet(SHORTLY).await {
            self.stage.wrong("the daemon goes on writing");
        }
    }

    /// IE-1, EP-35: starts the daemon without what dependents are of, for longer than there are retries. Once that comes,
    /// all primaries run that were in need of it, and nothing else has to happen.
    pub(super) async fn lack(&mut self) {
        if self.plan.setup.hurry.is_none() {
            return;
        }
        self.stage.note("=== the daemon starts without what it needs");
        let lacking = match self.plan.seed % 3 {
            0 => Wrong::Unserved(Kind::Maps),
            1 => Wrong::Forbidden(Kind::Maps, Verb::All, None),
            _ => Wrong::Forbidden(Kind::Maps, Verb::List, None),
        };
        self.begin(lacking);
        self.end().await;
        self.start();
        self.until(Instant::now() + Duration::from_secs(4)).await;
        for thing in Thing::all() {
            self.set(thing, "value", 7000.into());
        }
        self.until(Instant::now() + Duration::from_secs(11)).await;
        self.stage.note("=== it comes");
        self.finish(lacking);
        self.revive().await;
        if !self.quiet(QUIET).await {
            self.stage.wrong("the daemon goes on writing");
        }
        self.judge(verdict::settled(&self.stage.model, self.plan.setup));
        self.judge(verdict::unseen(&self.stage, self.plan.setup));
        self.own_writes();
    }

    /// Edits a primary, and returns its runs until all is quiet.
    async fn runs_of(&mut self, thing: Thing, value: u64) -> Vec<Told> {
        self.stage.take_told();
        self.set(thing, "value", value.into());
        if !self.quiet(SHORTLY).await {
            self.stage.wrong("the daemon goes on writing");
        }
        self.told_of(thing)
    }

    fn told_of(&self, thing: Thing) -> Vec<Told> {
        let runs = self.stage.take_told().into_iter();
        runs.filter(|run| (&*run.key.0, &*run.key.1) == (thing.namespace(), thing.name())).collect()
    }

    /// Checks which retries runs are told to be. If the last of these `writes` a status, the event of that may make one
    /// more run.
    fn are_told(&self, runs: &[Told], numbers: &[Option<u32>], writes: bool) {
        let mut told: Vec<_> = runs.iter().map(|run| run.retry.map(|retry| retry.attempt)).collect();
        if writes && !self.plan.setup.generation_aware && told.len() == numbers.len() + 1 && told.last() == Some(&None)
        {
            told.pop();
        }
        if told != numbers {
            self.stage.wrong(format!("runs are told to be retries {told:?}, and should be {numbers:?}"));
        }
    }

    /// Checks that a run begins so much later than the one before has ended.
    fn begins(&self, before: &Told, run: &Told, after: Duration) {
        let since = before.end.map(|end| run.at.saturating_duration_since(end));
        if since.is_none_or(|since| since < after || since > after + SLACK) {
            self.stage.wrong(format!("a run begins {since:?} after the one before, and should after {after:?}"));
        }
    }
}

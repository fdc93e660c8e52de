//! Tests the rules of the queue by tables, and its invariants under any interleaving.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::{Failure, Level, Outcome};
use super::entry::Life;
use super::*;
use crate::guest::NextRetry;
use crate::manifest::{RateLimit, Retry};

const CHANGED: Event = Event::PrimaryChanged { deleting: false };
const DELETING: Event = Event::PrimaryChanged { deleting: true };
const DELETED: Event = Event::PrimaryDeleted { unknown: false };
const MISSED: Event = Event::PrimaryDeleted { unknown: true };
const RELATED: Event = Event::Related;

const FAILED: Finished = Finished::Failed(Failure::Unhandled);
const OUTAGE: Finished = Finished::Failed(Failure::Outage);
const FINALIZED: Finished = Finished::Done { finalizer_removed: true, again: None };

const TEN_HOURS: Duration = Duration::from_hours(10);

/// Returns an end of which nothing more is known.
fn whatever(finished: Finished) -> (Finished, Blame) {
    (finished, Blame::default())
}

fn again(ms: u64) -> Finished {
    Finished::Done { finalizer_removed: false, again: Some(millis(ms)) }
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn info(attempt: u32, last: bool) -> RetryInfo {
    RetryInfo { attempt, last }
}

fn all_events() -> Policy {
    Policy { mode: Mode::AllEvents, ..Policy::default() }
}

/// A state, a clock in milliseconds, and letters for keys.
struct Script {
    state: State,
    start: Instant,
    now: Instant,
}

impl Script {
    fn concerning(&mut self, which: Concerned) {
        let keys = self.state.concerned(which);
        self.state.event_for(which, &keys, self.now);
    }

    fn stopped(policy: Policy) -> Self {
        let start = Instant::now();
        Self { state: State::new(policy), start, now: start }
    }

    fn new(policy: Policy) -> Self {
        let mut script = Self::stopped(policy);
        script.start();
        script
    }

    /// Returns a script with key `a` in flight.
    fn in_flight(policy: Policy) -> Self {
        let mut script = Self::new(policy);
        script.event(CHANGED);
        assert_eq!(script.take(), Some("a".to_owned()));
        script
    }

    fn at(&mut self, ms: u64) -> &mut Self {
        self.now = self.start + millis(ms);
        self
    }

    fn start(&mut self) {
        self.state.start(self.now);
    }

    fn resume(&mut self) {
        self.state.resume(self.now);
        self.state.check();
    }

    fn event(&mut self, event: Event) -> Receipt {
        self.event_of("a", event)
    }

    fn event_of(&mut self, letter: &str, event: Event) -> Receipt {
        self.hear(letter, event, Urgency::Fresh)
    }

    fn replay_of(&mut self, letter: &str, event: Event) -> Receipt {
        self.hear(letter, event, Urgency::Replayed)
    }

    fn hear(&mut self, letter: &str, event: Event, urgency: Urgency) -> Receipt {
        let receipt = self.state.event(&ObjectRef::cluster(letter), (event, urgency), self.now);
        self.state.check();
        receipt
    }

    fn turn(&mut self) -> Turn {
        let turn = self.state.take(self.now);
        self.state.check();
        turn
    }

    fn take(&mut self) -> Option<String> {
        match self.turn() {
            Turn::Run(taken) => Some(taken.key.to_string()),
            Turn::Wait(_) | Turn::Closed => None,
        }
    }

    fn taken(&mut self) -> Taken {
        match self.turn() {
            Turn::Run(taken) => taken,
            turn @ (Turn::Wait(_) | Turn::Closed) => panic!("{turn:?}"),
        }
    }

    fn finish(&mut self, finished: Finished) -> Settled {
        self.finish_for(FailureClass::Other, finished)
    }

    fn finish_for(&mut self, class: FailureClass, finished: Finished) -> Settled {
        self.finish_as(Blame { class, ..Blame::default() }, finished)
    }

    fn finish_as(&mut self, blame: Blame, finished: Finished) -> Settled {
        let what = self.state.finish(&ObjectRef::cluster("a"), (finished, blame), self.now).unwrap();
        self.state.check();
        what
    }

    fn next(&mut self, finished: Finished) -> Next {
        self.finish(finished).next
    }

    /// Returns the time at which the next key is due, in milliseconds since the start.
    fn wakes(&mut self) -> Option<u128> {
        match self.turn() {
            Turn::Wait(at) => at.map(|at| (at - self.start).as_millis()),
            turn @ (Turn::Run(_) | Turn::Closed) => panic!("{turn:?}"),
        }
    }

    fn mark(&self) -> Option<Mark> {
        self.state.keys.get(&ObjectRef::cluster("a")).map(Entry::mark)
    }
}

impl State {
    /// Panics if entries, timetable and counters disagree.
    fn check(&self) {
        let Timetable { fresh, replayed, .. } = &self.timetable;
        assert!(fresh.keys().all(|due| due.urgency() == Urgency::Fresh));
        assert!(replayed.keys().all(|due| due.urgency() == Urgency::Replayed));
        let lines: BTreeMap<_, _> = fresh.iter().chain(replayed).map(|(due, key)| (*due, key.clone())).collect();
        let due = |(key, entry): (&ObjectRef, &Entry)| Some((entry.due?, key.clone()));
        assert_eq!(lines, self.keys.iter().filter_map(due).collect());
        let flying = self.keys.values().filter(|entry| entry.flight != Flight::Idle);
        assert_eq!(self.in_flight, flying.count());
        let waiting = self.keys.values().filter(|entry| entry.waits_for_server());
        assert_eq!(self.outage.waiting, waiting.count());
        for entry in self.keys.values() {
            assert!(entry.due.is_none() || entry.flight == Flight::Idle, "a key in flight has no line");
            assert!(entry.life != Life::Forgotten || entry.flight == Flight::Superseded, "forgotten keys go");
        }
    }
}

// === events ===

#[test]
fn only_the_primary_itself_makes_a_key() {
    // EP-1
    let table = [
        (Policy::default(), CHANGED, Receipt::Marked, 1),
        (Policy::default(), DELETING, Receipt::Marked, 1),
        (Policy::default(), DELETED, Receipt::Unknown, 0),
        (Policy::default(), RELATED, Receipt::Unknown, 0),
        (all_events(), CHANGED, Receipt::Marked, 1),
        (all_events(), DELETED, Receipt::Marked, 1),
        (all_events(), RELATED, Receipt::Unknown, 0),
    ];
    for (policy, event, receipt, keys) in table {
        let mut script = Script::new(policy);
        assert_eq!((script.event(event), script.state.len()), (receipt, keys), "{event:?}");
    }
}

#[test]
fn events_are_marked_as_of_the_table() {
    use Mark::{AdditionalAfterDelete, DeletePresent, Present, ProcessedDeletion};
    // EP-2
    let gone = Life::Gone(Deletion { unknown: false });
    #[rustfmt::skip] // one row, one line
    let table = [
        (Mode::Normal, Life::Exists, false, CHANGED, Receipt::Marked, Some(Present)),
        (Mode::Normal, Life::Exists, true, DELETING, Receipt::Marked, Some(Present)),
        (Mode::Normal, Life::Exists, false, RELATED, Receipt::Marked, Some(Present)),
        (Mode::Normal, Life::Exists, true, RELATED, Receipt::Marked, Some(Present)),
        (Mode::Normal, Life::Exists, true, DELETED, Receipt::Removed, None),
        (Mode::Normal, Life::Finalized, false, DELETING, Receipt::Ignored, Some(ProcessedDeletion)),
        (Mode::Normal, Life::Finalized, false, CHANGED, Receipt::Marked, Some(Present)),
        (Mode::Normal, Life::Finalized, false, RELATED, Receipt::Ignored, Some(ProcessedDeletion)),
        (Mode::Normal, Life::Finalized, false, DELETED, Receipt::Removed, None),
        (Mode::AllEvents, Life::Exists, false, RELATED, Receipt::Marked, Some(Present)),
        (Mode::AllEvents, Life::Exists, false, DELETED, Receipt::Marked, Some(DeletePresent)),
        (Mode::AllEvents, Life::Exists, true, MISSED, Receipt::Marked, Some(DeletePresent)),
        (Mode::AllEvents, gone, false, RELATED, Receipt::Marked, Some(AdditionalAfterDelete)),
        (Mode::AllEvents, gone, false, CHANGED, Receipt::Marked, Some(AdditionalAfterDelete)),
        (Mode::AllEvents, gone, true, DELETING, Receipt::Marked, Some(AdditionalAfterDelete)),
        (Mode::AllEvents, gone, true, DELETED, Receipt::Marked, Some(DeletePresent)),
    ];
    for (mode, life, pending, event, receipt, mark) in table {
        let mut script = Script::new(Policy { mode, ..Policy::default() });
        let entry = Entry { life, pending: pending.then_some(Urgency::Fresh), ..Entry::new() };
        script.state.keys.insert(ObjectRef::cluster("a"), entry);
        assert_eq!((script.event(event), script.mark()), (receipt, mark), "{mode:?} {life:?} {pending} {event:?}");
    }
}

#[test]
fn a_version_from_before_the_deletion_does_not_wake_what_is_cleaned_up() {
    // EP-2, EP-4: once the finalizer is removed, updates of a primary that is still marked for deletion are ignored;
    // a re-created primary is run, even if the deletion itself was missed.
    let mut script = Script::in_flight(Policy::default());
    assert_eq!(script.next(FINALIZED), Next::AwaitDeletion);
    assert_eq!(script.event(DELETING), Receipt::Ignored);
    assert_eq!((script.take(), script.wakes()), (None, None));
    assert_eq!(script.event(CHANGED), Receipt::Marked);
    assert_eq!(script.take(), Some("a".to_owned()));
}

#[test]
fn a_deletion_drops_the_key_with_its_timer() {
    // EP-4, TM-2
    let mut script = Script::in_flight(Policy::default());
    script.finish(again(1000));
    assert_eq!(script.wakes(), Some(1000));
    assert_eq!(script.event(DELETED), Receipt::Removed);
    assert_eq!((script.wakes(), script.state.len()), (None, 0));
}

// === running ===

#[test]
fn a_key_in_flight_is_held_back_until_done() {
    // EP-10, EP-11, EP-13, EP-15
    let mut script = Script::in_flight(Policy::default());
    for event in [RELATED, CHANGED, RELATED] {
        assert_eq!(script.event(event), Receipt::Marked);
        assert_eq!(script.take(), None);
    }
    assert_eq!(script.next(Finished::DONE), Next::AtOnce);
    assert_eq!(script.take(), Some("a".to_owned()));
    assert_eq!(script.next(Finished::DONE), Next::Idle(Some(TEN_HOURS)));
    assert_eq!(script.take(), None);
}

#[test]
fn an_event_is_imminent_only_if_it_came_during_the_run() {
    // EP-24
    let mut script = Script::in_flight(Policy::default());
    let key = ObjectRef::cluster("a");
    assert!(!script.state.imminent(&key));
    script.event(RELATED);
    assert!(script.state.imminent(&key));
    assert!(!script.state.imminent(&ObjectRef::cluster("b")));
}

#[test]
fn keys_run_in_the_order_in_which_they_became_due() {
    let mut script = Script::new(Policy::default());
    for (ms, letter) in [(0, "c"), (0, "b"), (5, "a")] {
        script.at(ms).event_of(letter, CHANGED);
    }
    // An event for a key that is already waiting does not move it to the end.
    script.at(6).event_of("c", CHANGED);
    let order: Vec<_> = std::iter::from_fn(|| script.take()).collect();
    assert_eq!(order, ["c", "b", "a"]);
}

#[test]
fn a_key_that_is_always_due_does_not_starve_the_others() {
    let mut script = Script::new(Policy::default());
    script.event(CHANGED);
    script.take();
    script.at(1).event_of("b", CHANGED);
    script.event(RELATED);
    script.at(2).finish(Finished::DONE);
    assert_eq!(script.take(), Some("b".to_owned()));
}

#[test]
fn what_has_changed_comes_before_what_is_replayed_and_after_three_of_it_comes_one_that_is() {
    // EP-13
    let mut script = Script::new(Policy::default());
    for letter in ["r", "s", "t"] {
        script.replay_of(letter, CHANGED);
    }
    script.now += millis(1);
    for letter in ["a", "b", "c", "d"] {
        script.event_of(letter, CHANGED);
    }
    // It has waited for longer than they have, and has changed now.
    script.event_of("t", RELATED);
    let order: Vec<_> = std::iter::from_fn(|| script.take()).collect();
    assert_eq!(order, ["t", "a", "b", "r", "c", "d", "s"]);
}

#[test]
fn a_change_during_a_run_a_start_or_a_limit_is_as_urgent_as_any_other() {
    // EP-13
    let limit = RateLimit { max_reconciliations: 1, within: millis(3000) };
    let mut script = Script::stopped(Policy { rate_limit: Some(limit), ..Policy::default() });
    for letter in ["a", "b", "c"] {
        script.event_of(letter, CHANGED);
    }
    // What comes before the start is no more urgent than what is there, but what comes after it.
    script.start();
    script.event_of("b", RELATED);
    assert_eq!((script.take(), script.take()), (Some("b".to_owned()), Some("a".to_owned())));
    // `a` waits for its window since a change; `c` has run and waits for its timer, `d` is replayed.
    script.event_of("a", RELATED);
    assert_eq!(script.next(again(1)), Next::AtOnce);
    assert_eq!(script.take(), Some("c".to_owned()));
    let c = ObjectRef::cluster("c");
    script.state.finish(&c, whatever(again(2000)), script.now).unwrap();
    script.at(2500).replay_of("d", CHANGED);
    script.at(3000);
    assert_eq!((script.take(), script.take()), (Some("a".to_owned()), Some("c".to_owned())));
}

#[test]
fn what_concerns_all_keys_and_retries_come_after_what_has_changed() {
    // EP-13
    for which in [None, Some(Concerned::All), Some(Concerned::Failed), Some(Concerned::Finalized)] {
        let mut script = Script::in_flight(Policy::default());
        let finished = if which == Some(Concerned::Finalized) { FINALIZED } else { FAILED };
        script.finish(finished);
        script.at(2000);
        if let Some(which) = which {
            script.concerning(which);
        }
        script.at(2001).event_of("b", CHANGED);
        assert_eq!((script.take(), script.take()), (Some("b".to_owned()), Some("a".to_owned())), "{which:?}");
    }
}

#[test]
fn a_key_that_runs_too_often_waits() {
    // EP-12, RL-2
    let limit = RateLimit { max_reconciliations: 1, within: millis(3000) };
    let mut script = Script::in_flight(Policy { rate_limit: Some(limit), ..Policy::default() });
    // A timer is put off too, and counts as an event from then on.
    script.finish(again(1000));
    assert_eq!(script.at(1000).wakes(), Some(3000));
    assert_eq!(script.mark(), Some(Mark::Present));
    script.at(2990).event(RELATED);
    assert_eq!(script.wakes(), Some(3040));
    script.at(3000).event(RELATED);
    assert_eq!(script.take(), Some("a".to_owned()));
    // A retry and an instant resubmission are limited like any other run.
    assert_eq!(script.next(FAILED), Next::Retry(millis(2000)));
    assert_eq!(script.at(5000).wakes(), Some(6000));
    assert_eq!(script.at(6000).take(), Some("a".to_owned()));
    script.event(RELATED);
    assert_eq!(script.next(Finished::DONE), Next::AtOnce);
    assert_eq!(script.wakes(), Some(9000));
}

// === ends ===

#[test]
fn the_end_of_a_run_decides_as_of_the_list() {
    // EP-23, EC-5, UC-6, EP-14; the events come during the run
    let normal = Policy::default;
    #[rustfmt::skip] // one row, one line
    let table: [(Policy, &[Event], _, _, _); 19] = [
        (normal(), &[], Finished::DONE, Next::Idle(Some(TEN_HOURS)), Some(Mark::None)),
        (normal(), &[], again(500), Next::Again(millis(500)), Some(Mark::None)),
        (normal(), &[], again(0), Next::Again(Duration::ZERO), Some(Mark::None)),
        (normal(), &[], Finished::NoRetry { again: None }, Next::Idle(Some(TEN_HOURS)), Some(Mark::None)),
        (normal(), &[], Finished::NoRetry { again: Some(millis(5)) }, Next::Again(millis(5)), Some(Mark::None)),
        // (c) before (d): the event comes first
        (normal(), &[RELATED], again(500), Next::AtOnce, Some(Mark::Present)),
        // (a)
        (normal(), &[RELATED, DELETED], again(500), Next::Dropped, None),
        (normal(), &[DELETED], FINALIZED, Next::Dropped, None),
        // (b) before (c)
        (normal(), &[DELETING, RELATED], FINALIZED, Next::AwaitDeletion, Some(Mark::ProcessedDeletion)),
        // A re-created primary is not lost.
        (normal(), &[DELETED, CHANGED], FINALIZED, Next::AtOnce, Some(Mark::Present)),
        (normal(), &[DELETED, DELETING], FINALIZED, Next::AtOnce, Some(Mark::Present)),
        (normal(), &[DELETED, RELATED], FINALIZED, Next::Dropped, None),
        (normal(), &[CHANGED], FINALIZED, Next::AtOnce, Some(Mark::Present)),
        // EP-14
        (normal(), &[], Finished::Gone, Next::Dropped, None),
        (normal(), &[CHANGED], Finished::Gone, Next::AtOnce, Some(Mark::Present)),
        // AE-2: its deletion is still to be told.
        (all_events(), &[], Finished::Gone, Next::Idle(Some(TEN_HOURS)), Some(Mark::None)),
        (all_events(), &[RELATED], Finished::Gone, Next::AtOnce, Some(Mark::Present)),
        // (c): the deletion is run next.
        (all_events(), &[DELETED], again(500), Next::AtOnce, Some(Mark::DeletePresent)),
        (all_events(), &[DELETED], Finished::Gone, Next::AtOnce, Some(Mark::DeletePresent)),
    ];
    for (policy, events, finished, next, mark) in table {
        let mut script = Script::in_flight(policy);
        for event in events {
            script.event(*event);
        }
        let what = script.finish(finished);
        assert_eq!(what, Settled { outcome: Outcome::Succeeded, next, retry: None }, "{events:?} {finished:?}");
        assert_eq!(script.mark(), mark, "{events:?} {finished:?}");
        // `AtOnce` makes the key due at once; any other answer is a timer.
        assert_eq!(script.take().is_some(), next.after() == Some(Duration::ZERO), "{events:?} {finished:?}");
    }
}

#[test]
fn without_a_maximal_interval_an_idle_key_has_no_timer() {
    // IV-1
    for max_interval in [None, Some(Duration::ZERO)] {
        let mut script = Script::in_flight(Policy { max_interval, ..Policy::default() });
        assert_eq!(script.at(70).next(Finished::DONE), Next::Idle(None));
        assert_eq!(script.wakes(), None);
    }
    let mut script = Script::in_flight(Policy::default());
    script.at(70).finish(Finished::DONE);
    assert_eq!(script.wakes(), Some(36_000_070));
}

#[test]
fn a_timer_is_replaced_by_the_next() {
    // TM-1
    let mut script = Script::in_flight(Policy::default());
    script.finish(again(1000));
    script.at(400).event(RELATED);
    assert_eq!(script.take(), Some("a".to_owned()));
    script.finish(again(5000));
    assert_eq!(script.wakes(), Some(5400));
    assert_eq!(script.at(5400).take(), Some("a".to_owned()));
}

// === failures ===

#[test]
fn a_failing_key_is_retried_and_then_left_to_the_maximal_interval() {
    // EP-34, EP-35, EP-36, RT-2, RT-3
    let mut script = Script::in_flight(Policy::default());
    let warning = Outcome::Failed(Level::Warning);
    let mut ms = 0;
    for (attempt, delay) in (1..).zip([2000, 2000, 3000, 4500, 6750]) {
        let retry = Some(info(attempt, attempt == 5));
        assert_eq!(script.finish(FAILED), Settled { outcome: warning, next: Next::Retry(millis(delay)), retry });
        ms += delay;
        assert_eq!(script.at(ms - 1).take(), None);
        assert_eq!(script.at(ms).taken().retry, retry);
    }
    let exhausted = Settled {
        outcome: Outcome::Failed(Level::Error),
        next: Next::Exhausted(Some(TEN_HOURS)),
        retry: Some(info(5, true)),
    };
    assert_eq!(script.finish(FAILED), exhausted);
    // A new event still causes a run at once, which gets the retry state of the last attempt until a success.
    script.event(RELATED);
    assert_eq!(script.taken().retry, Some(info(5, true)));
    assert_eq!(script.finish(FAILED), exhausted);
    assert_eq!(script.at(36_000_000 + ms).taken().retry, Some(info(5, true)));
    assert_eq!(script.finish(Finished::DONE).retry, None);
    script.event(RELATED);
    assert_eq!(script.taken().retry, None);
}

#[test]
fn an_outage_uses_up_no_attempt_however_long_it_lasts() {
    // With one attempt, or no attempts at all.
    for max_attempts in [Some(1), None] {
        let retry = max_attempts.map(|max| Retry { max_attempts: Some(max), ..Retry::default() });
        let mut script = Script::in_flight(Policy { retry, ..Policy::default() });
        for failures in 1..1000 {
            let Settled { outcome, next, retry } = script.finish(OUTAGE);
            let level = if failures == 1 { Level::Warning } else { Level::Debug };
            assert_eq!((outcome, retry), (Outcome::Failed(level), None));
            let Next::Outage(pause) = next else { panic!("{next:?}") };
            assert!(pause >= millis(250) && pause <= millis(4000), "{pause:?}");
            script.now += pause.saturating_sub(millis(1));
            assert_eq!(script.take(), None);
            script.now += millis(1);
            assert_eq!(script.taken().retry, None);
        }
        assert_eq!(script.next(Finished::DONE), Next::Idle(Some(TEN_HOURS)));
    }
}

#[test]
fn an_outage_leaves_the_attempts_before_it_as_they_were() {
    let mut script = Script::in_flight(Policy::default());
    script.finish(FAILED);
    script.at(2000).take();
    assert_eq!(script.finish(OUTAGE).retry, Some(info(1, false)));
    script.at(6000);
    assert_eq!(script.taken().retry, Some(info(1, false)));
    assert_eq!(script.next(FAILED), Next::Retry(millis(2000)));
}

#[test]
fn who_is_asked_to_leave_the_api_server_alone_waits_so_long_though_others_get_through() {
    // EP-34
    let minute = Duration::from_mins(1);
    let asked = |after| Blame { next: NextRetry::After(after), ..Blame::default() };
    let mut script = Script::in_flight(Policy::default());
    assert_eq!(script.finish_as(asked(minute), OUTAGE).next, Next::Outage(minute));
    script.now += millis(1000);
    script.state.resume(script.now);
    assert_eq!(script.wakes(), Some(60_000));
    script.at(60_000).taken();
    // Its own pause may be longer, and what was asked for then counts no more.
    let Next::Outage(pause) = script.finish_as(asked(millis(1)), OUTAGE).next else { panic!("no outage") };
    assert!(pause >= millis(250), "{pause:?}");
    script.state.resume(script.now);
    assert!(script.wakes().unwrap() <= 62_000);
    // What has changed is worth a try.
    script.event(RELATED);
    assert_eq!(script.take(), Some("a".to_owned()));
}

#[test]
fn an_event_during_an_outage_wakes_who_waits_and_not_who_has_just_failed() {
    let mut script = Script::in_flight(Policy::default());
    script.event(RELATED);
    assert!(matches!(script.next(OUTAGE), Next::Outage(_)));
    assert_eq!(script.take(), None);
    script.event(RELATED);
    assert_eq!(script.take(), Some("a".to_owned()));
}

#[test]
fn the_first_that_gets_through_brings_the_others_forward_within_two_seconds() {
    let mut script = Script::new(Policy::default());
    let names: Vec<_> = (0..300).map(|n| format!("k{n}")).collect();
    for name in &names {
        script.event_of(name, CHANGED);
        script.take();
        let key = ObjectRef::cluster(name);
        script.state.finish(&key, whatever(OUTAGE), script.now).unwrap();
    }
    script.state.check();
    let probe = loop {
        match script.turn() {
            Turn::Run(taken) => break taken.key,
            Turn::Wait(at) => script.now = at.unwrap(),
            Turn::Closed => panic!("closed"),
        }
    };
    let back = script.now;
    script.state.finish(&probe, whatever(Finished::DONE), back).unwrap();
    let mut times = Vec::new();
    while times.len() < names.len() - 1 {
        match script.turn() {
            Turn::Run(taken) => {
                times.push(script.now - back);
                let now = script.now;
                script.state.finish(&taken.key, whatever(Finished::DONE), now).unwrap();
            }
            Turn::Wait(at) => script.now = at.unwrap(),
            Turn::Closed => panic!("closed"),
        }
    }
    assert!(times.iter().all(|time| *time <= millis(2000)), "{times:?}");
    let first_tenth = times.iter().filter(|time| **time < millis(200)).count();
    assert!(first_tenth < 60, "{first_tenth} at once");
}

#[test]
fn when_the_server_is_said_to_be_back_who_waits_runs_within_two_seconds_and_nobody_else_is_moved() {
    let mut script = Script::in_flight(Policy::default());
    for _ in 0..10 {
        script.next(OUTAGE);
        script.now += millis(4000);
        script.take();
    }
    script.next(OUTAGE);
    script.event_of("b", CHANGED);
    script.take();
    let (key, now) = (ObjectRef::cluster("b"), script.now);
    script.state.finish(&key, whatever(FAILED), now).unwrap();
    script.resume();
    let due = |script: &Script, letter| script.state.keys[&ObjectRef::cluster(letter)].due.unwrap().at - now;
    assert!(due(&script, "a") <= millis(2000));
    assert_eq!(due(&script, "b"), millis(2000), "its own retry");
    script.now += millis(2000);
    assert_eq!(script.taken().retry, None);
}

#[test]
fn a_run_that_asks_to_run_again_at_once_waits_for_the_shortest_time() {
    let mut script = Script::in_flight(Policy { min_reschedule: millis(100), ..Policy::default() });
    for (asked, given) in [(0, 100), (99, 100), (100, 100), (500, 500)] {
        assert_eq!(script.next(again(asked)), Next::Again(millis(given)));
        script.now += millis(given);
        script.take();
    }
    // An event still causes a run at once.
    script.event(RELATED);
    assert_eq!(script.next(again(0)), Next::AtOnce);
}

#[test]
fn a_failure_with_an_event_behind_it_runs_again_at_once_and_consumes_nothing() {
    // EP-30, EP-32
    let mut script = Script::in_flight(Policy::default());
    script.event(RELATED);
    let at_once = Settled { outcome: Outcome::Failed(Level::Warning), next: Next::AtOnce, retry: Some(info(0, false)) };
    assert_eq!(script.finish(FAILED), at_once);
    assert_eq!(script.taken().retry, Some(info(0, false)));
    assert_eq!(script.next(FAILED), Next::Retry(millis(2000)));
}

#[test]
fn a_failure_inside_of_a_back_off_goes_on_waiting() {
    // EP-33, for a linear minute; after five events nothing is consumed
    let minute = Retry { initial_interval: millis(60_000), max_interval: None, ..Retry::default() };
    let mut script = Script::in_flight(Policy { retry: Some(minute), ..Policy::default() });
    assert_eq!(script.next(FAILED), Next::Retry(millis(60_000)));
    let table = [
        (1_000, Next::Resume(millis(59_000)), 60_000),
        (54_999, Next::Resume(millis(5_001)), 60_000),
        // No more than five seconds left: this was the retry.
        (55_000, Next::Retry(millis(60_000)), 115_000),
        (60_000, Next::Resume(millis(55_000)), 115_000),
    ];
    for (ms, next, wakes) in table {
        script.at(ms).event(RELATED);
        script.take();
        assert_eq!((script.next(FAILED), script.wakes()), (next, Some(wakes)));
    }
}

#[test]
fn a_back_off_belongs_to_the_last_failure() {
    // EP-33, RT-5, RT-7: an hour for what is returned, seconds for conflicts, nothing for what is rejected
    let every = |secs: u64, max| Retry {
        initial_interval: millis(secs * 1000),
        multiplier: 1.0,
        max_interval: None,
        max_attempts: Some(max),
        ..Retry::default()
    };
    let retry_by = BTreeMap::from([(FailureClass::Conflict, every(2, 5)), (FailureClass::Rejected, every(2, 0))]);
    let policy = || Policy { retry: Some(every(3600, 5)), retry_by: retry_by.clone(), ..Policy::default() };
    let after = |secs: u64| NextRetry::After(Duration::from_secs(secs));
    let resumes = |secs: u64| Next::Resume(Duration::from_secs(secs));
    let declared = NextRetry::Declared;
    let (returned, conflict, rejected) = (FailureClass::Returned, FailureClass::Conflict, FailureClass::Rejected);
    let table = [
        (returned, declared, resumes(3540)),
        (conflict, declared, resumes(2)),
        (rejected, declared, Next::Exhausted(Some(TEN_HOURS))),
        (returned, after(7), resumes(7)),
        (returned, after(7200), resumes(7200)),
        (conflict, after(9), resumes(9)),
        (rejected, after(9), Next::Exhausted(Some(TEN_HOURS))),
    ];
    for (class, next, wanted) in table {
        let mut script = Script::in_flight(policy());
        assert_eq!(script.finish_for(returned, FAILED).next, Next::Retry(Duration::from_hours(1)));
        script.at(60_000).event(RELATED);
        script.take();
        let settled = script.finish_as(Blame { class, next }, FAILED);
        assert_eq!((settled.next, settled.retry), (wanted, Some(info(1, false))), "{class:?} {next:?}");
    }
    // Nor does one go on that belonged to a failure before one that is not retried.
    for (class, next) in [(returned, NextRetry::Stop), (rejected, declared)] {
        let mut script = Script::in_flight(policy());
        script.finish_for(returned, FAILED);
        for (ms, class, next) in [(60_000, class, next), (61_000, returned, declared)] {
            script.at(ms).event(RELATED);
            script.take();
            let settled = script.finish_as(Blame { class, next }, FAILED).next;
            let wanted =
                if ms == 60_000 { Next::Exhausted(Some(TEN_HOURS)) } else { Next::Retry(Duration::from_hours(1)) };
            assert_eq!(settled, wanted, "{class:?} {next:?}");
        }
    }
    // What took its place is a back-off like any other, and the retry after it uses up an attempt.
    let mut script = Script::in_flight(policy());
    script.finish_for(returned, FAILED);
    script.at(60_000).event(RELATED);
    script.take();
    script.finish_for(conflict, FAILED);
    assert_eq!(script.wakes(), Some(62_000));
    script.at(62_000).take();
    let settled = script.finish_for(returned, FAILED);
    assert_eq!((settled.next, settled.retry), (Next::Retry(Duration::from_hours(1)), Some(info(2, false))));
    // The handler of errors says it, too.
    script.at(63_000).event(RELATED);
    script.take();
    let delayed = Finished::Failed(Failure::Delayed(millis(9000)));
    assert_eq!(script.finish_for(returned, delayed).next, resumes(9));
}

#[test]
fn without_a_policy_a_failure_goes_on_like_a_success_but_counts_as_a_failure() {
    // EP-22
    let policy = || Policy { retry: None, ..Policy::default() };
    for (event, next) in [(None, Next::Idle(Some(TEN_HOURS))), (Some(RELATED), Next::AtOnce)] {
        let mut script = Script::in_flight(policy());
        event.map(|event| script.event(event));
        let what = Settled { outcome: Outcome::Failed(Level::Error), next, retry: None };
        assert_eq!(script.finish(FAILED), what);
    }
}

#[test]
fn without_a_policy_a_run_about_a_deletion_that_fails_is_due_again_until_it_succeeds() {
    // AE-3, EP-22
    let mut script = Script::new(Policy { retry: None, ..all_events() });
    script.event(DELETED);
    for _ in 0..2 {
        assert!(script.taken().deletion.is_some());
        let (outcome, next) = (Outcome::Failed(Level::Error), Next::Idle(Some(TEN_HOURS)));
        assert_eq!(script.finish(FAILED), Settled { outcome, next, retry: None });
        script.concerning(Concerned::All);
    }
    assert!(script.taken().deletion.is_some());
    assert_eq!((script.next(Finished::DONE), script.state.len()), (Next::Dropped, 0));
}

#[test]
fn without_a_policy_a_run_about_a_deletion_is_due_again_when_its_error_handler_asks_for_it() {
    // AE-3, EC-3
    for max_interval in [Some(TEN_HOURS), None] {
        let mut script = Script::new(Policy { retry: None, max_interval, ..all_events() });
        script.event(DELETED);
        assert!(script.taken().deletion.is_some());
        let delayed = Finished::Failed(Failure::Delayed(millis(5000)));
        let (outcome, next) = (Outcome::Failed(Level::Error), Next::Again(millis(5000)));
        assert_eq!(script.finish(delayed), Settled { outcome, next, retry: None });
        assert!(script.at(5000).taken().deletion.is_some());
        assert_eq!((script.next(Finished::DONE), script.state.len()), (Next::Dropped, 0));
    }
}

#[test]
fn a_failure_of_what_is_gone_is_as_good_as_a_success() {
    // EP-21
    let mut script = Script::in_flight(Policy::default());
    script.event(DELETED);
    assert_eq!(script.finish(FAILED), Settled { outcome: Outcome::Succeeded, next: Next::Dropped, retry: None });
}

#[test]
fn a_primary_that_is_created_anew_during_a_run_begins_anew() {
    // ID-1, EP-15: the old run is awaited; its failures do not count for the new primary
    let mut script = Script::in_flight(Policy::default());
    script.finish(FAILED);
    assert_eq!(script.at(2000).taken().retry, Some(info(1, false)));
    assert_eq!((script.event(DELETED), script.event(RELATED)), (Receipt::Removed, Receipt::Unknown));
    assert_eq!((script.event(CHANGED), script.take()), (Receipt::Marked, None));
    assert_eq!(script.finish(FAILED), Settled { outcome: Outcome::Succeeded, next: Next::AtOnce, retry: None });
    assert_eq!(script.taken().retry, None);
}

#[test]
fn a_primary_that_is_created_anew_has_the_whole_rate_limit() {
    let limit = RateLimit { max_reconciliations: 1, within: millis(3000) };
    let mut script = Script::in_flight(Policy { rate_limit: Some(limit), ..Policy::default() });
    script.event(DELETED);
    script.event(CHANGED);
    script.finish(Finished::DONE);
    assert_eq!(script.take(), Some("a".to_owned()));
}

#[test]
fn failures_are_logged_as_loudly_as_they_matter() {
    // EP-36; (failure, last attempt, event pending)
    let table = [
        (Failure::Conflict, false, false, Level::Info),
        (Failure::Conflict, false, true, Level::Info),
        (Failure::Conflict, true, false, Level::Error),
        (Failure::Conflict, true, true, Level::Warning),
        (Failure::Handled, false, false, Level::Warning),
        (Failure::Handled, false, true, Level::Warning),
        (Failure::Handled, true, false, Level::Error),
        (Failure::Handled, true, true, Level::Warning),
        (Failure::Unhandled, false, false, Level::Warning),
        (Failure::Unhandled, false, true, Level::Warning),
        (Failure::Unhandled, true, false, Level::Error),
        (Failure::Unhandled, true, true, Level::Warning),
    ];
    for (failure, last, pending, level) in table {
        let retry = Retry { max_attempts: Some(u32::from(!last)), ..Retry::default() };
        let mut script = Script::in_flight(Policy { retry: Some(retry), ..Policy::default() });
        if pending {
            script.event(RELATED);
        }
        let outcome = script.finish(Finished::Failed(failure)).outcome;
        assert_eq!(outcome, Outcome::Failed(level), "{failure:?} {last} {pending}");
    }
}

#[test]
fn an_error_handler_always_has_a_retry_state() {
    // EC-2
    for (retry, first) in [
        (Some(Retry::default()), info(0, false)),
        (Some(Retry { max_attempts: Some(0), ..Retry::default() }), info(0, true)),
        (None, info(0, true)),
    ] {
        let mut script = Script::new(Policy { retry, ..Policy::default() });
        script.event(CHANGED);
        let taken = script.taken();
        assert_eq!((taken.retry, script.state.retry_if(0, FailureClass::Other)), (None, first));
    }
}

#[test]
fn a_class_of_failures_has_delays_and_attempts_of_its_own_and_all_are_counted_together() {
    // RT-7
    let often = Retry { initial_interval: millis(100), max_attempts: Some(4), ..Retry::default() };
    let never = Retry { max_attempts: Some(0), ..Retry::default() };
    let few = Retry { max_attempts: Some(3), ..Retry::default() };
    let retry_by = BTreeMap::from([(FailureClass::Conflict, often), (FailureClass::Rejected, never)]);
    let mut script = Script::in_flight(Policy { retry: Some(few), retry_by, ..Policy::default() });
    let (conflict, unhandled) = (Finished::Failed(Failure::Conflict), FAILED);
    let exhausted = || Next::Exhausted(Some(TEN_HOURS));
    let (retry, info_level) = (|ms| Next::Retry(millis(ms)), Level::Info);
    let table = [
        (FailureClass::Conflict, conflict, retry(100), info_level, info(1, false)),
        (FailureClass::Trap, unhandled, retry(2000), Level::Warning, info(2, false)),
        // Nothing is retried that would fail again.
        (FailureClass::Rejected, unhandled, exhausted(), Level::Error, info(2, false)),
        (FailureClass::Conflict, conflict, retry(150), info_level, info(3, false)),
        // The attempts of others are used up, those of conflicts are not: only then is it the last of all.
        (FailureClass::Returned, unhandled, exhausted(), Level::Error, info(3, false)),
        (FailureClass::Conflict, conflict, retry(225), info_level, info(4, true)),
        (FailureClass::Conflict, conflict, exhausted(), Level::Error, info(4, true)),
    ];
    for (class, finished, next, level, retry) in table {
        let settled = Settled { outcome: Outcome::Failed(level), next, retry: Some(retry) };
        assert_eq!(script.finish_for(class, finished), settled, "{class:?}");
        script.now += millis(10_000);
        script.event(RELATED);
        assert_eq!(script.taken().retry, Some(retry), "{class:?}");
    }
    // What an error handler is told is about the class of the failure before it.
    let told = |attempt, class| script.state.retry_if(attempt, class);
    assert_eq!(told(0, FailureClass::Rejected), info(0, true));
    assert_eq!((told(3, FailureClass::Other), told(3, FailureClass::Conflict)), (info(3, true), info(3, false)));
}

#[test]
fn a_component_says_when_it_is_retried_or_that_it_is_not() {
    // RT-5
    let policy = || Policy { min_reschedule: millis(100), ..Policy::default() };
    let blame = |next| Blame { next, ..Blame::default() };
    let mut script = Script::in_flight(policy());
    let warning = Outcome::Failed(Level::Warning);
    for (next, delay, attempt) in [
        (NextRetry::After(millis(700)), 700, 1),
        (NextRetry::After(millis(5)), 100, 2),
        // The manifest's delay is that of the attempt, whatever those before had.
        (NextRetry::Declared, 3000, 3),
    ] {
        let settled = Settled { outcome: warning, next: Next::Retry(millis(delay)), retry: Some(info(attempt, false)) };
        assert_eq!(script.finish_as(blame(next), FAILED), settled);
        script.now += millis(delay);
        assert_eq!(script.take(), Some("a".to_owned()));
    }
    let exhausted = Settled {
        outcome: Outcome::Failed(Level::Error),
        next: Next::Exhausted(Some(TEN_HOURS)),
        retry: Some(info(3, false)),
    };
    assert_eq!(script.finish_as(blame(NextRetry::Stop), FAILED), exhausted);
    // An event runs it all the same; and no retry follows the last attempt, whatever the component wants.
    script.event(RELATED);
    assert_eq!(script.taken().retry, Some(info(3, false)));
    script.event(RELATED);
    let woken = script.finish_as(blame(NextRetry::Stop), FAILED);
    assert_eq!((woken.outcome, woken.next), (warning, Next::AtOnce));
    for _ in 0..2 {
        script.taken();
        let next = script.finish_as(blame(NextRetry::After(millis(200))), FAILED).next;
        assert_eq!(next, Next::Retry(millis(200)));
        script.now += millis(200);
    }
    script.taken();
    let next = script.finish_as(blame(NextRetry::After(millis(200))), FAILED).next;
    assert_eq!(next, Next::Exhausted(Some(TEN_HOURS)));
}

#[test]
fn only_what_is_in_flight_can_be_finished() {
    let mut script = Script::new(Policy::default());
    let key = ObjectRef::cluster("a");
    for _ in 0..2 {
        let error = script.state.finish(&key, whatever(Finished::DONE), script.now).unwrap_err();
        assert_eq!(error.to_string(), "finish a: it is not in flight");
        script.event(CHANGED);
    }
}

// === stopped ===

#[test]
fn while_stopped_events_are_only_marked() {
    // EP-3
    let mut script = Script::stopped(Policy::default());
    script.at(10).event_of("b", CHANGED);
    script.at(20).event_of("a", CHANGED);
    script.at(30).event_of("c", CHANGED);
    assert_eq!(script.event_of("c", DELETED), Receipt::Removed);
    assert_eq!((script.take(), script.wakes()), (None, None));
    script.at(1000).start();
    let order: Vec<_> = std::iter::from_fn(|| script.take()).collect();
    assert_eq!(order, ["b", "a"]);
}

#[test]
fn a_start_replays_what_is_marked_and_only_that() {
    // EP-3: `a` waits for a retry, `b` for its interval
    let mut script = Script::in_flight(Policy::default());
    script.finish(FAILED);
    script.event_of("b", CHANGED);
    script.take();
    script.state.finish(&ObjectRef::cluster("b"), whatever(Finished::DONE), script.now).unwrap();
    script.state.stop();
    assert_eq!(script.at(100).take(), None);
    script.start();
    assert_eq!(script.take(), Some("a".to_owned()));
    assert_eq!(script.wakes(), Some(36_000_000));
}

#[test]
fn a_start_replays_in_the_order_of_the_timers_and_what_has_none_last() {
    let retry = Retry { max_attempts: Some(1), ..Retry::default() };
    let mut script = Script::new(Policy { retry: Some(retry), max_interval: None, ..Policy::default() });
    // `a` fails for the last time before `c` and `b` fail for the first.
    for (ms, letter) in [(0, "a"), (2000, "a"), (2001, "c"), (2002, "b")] {
        script.at(ms).event_of(letter, CHANGED);
        assert_eq!(script.take(), Some(letter.to_owned()));
        let key = ObjectRef::cluster(letter);
        script.state.finish(&key, whatever(FAILED), script.now).unwrap();
    }
    script.state.stop();
    script.at(2003).start();
    let order: Vec<_> = std::iter::from_fn(|| script.take()).collect();
    assert_eq!(order, ["c", "b", "a"]);
}

#[test]
fn a_start_replays_what_has_used_up_its_attempts() {
    let retry = Retry { max_attempts: Some(0), ..Retry::default() };
    let mut script = Script::in_flight(Policy { retry: Some(retry), max_interval: None, ..Policy::default() });
    assert_eq!(script.next(FAILED), Next::Exhausted(None));
    assert_eq!(script.wakes(), None);
    script.state.stop();
    script.start();
    assert_eq!(script.take(), Some("a".to_owned()));
}

#[test]
fn what_ends_while_stopped_is_ignored_and_runs_at_the_next_start() {
    // LC-22, EP-20: the key is free again; the events come after the stop
    #[rustfmt::skip] // one row, one line
    let table: [(Policy, &[Event], Finished, Next); 10] = [
        (Policy::default(), &[], Finished::DONE, Next::AtStart),
        (Policy::default(), &[], again(5), Next::AtStart),
        (Policy::default(), &[], FAILED, Next::AtStart),
        (Policy::default(), &[RELATED], Finished::Gone, Next::AtStart),
        (Policy::default(), &[DELETING], FINALIZED, Next::AwaitDeletion),
        (Policy::default(), &[DELETED], FINALIZED, Next::Dropped),
        (Policy::default(), &[DELETED, CHANGED], FINALIZED, Next::AtStart),
        (Policy::default(), &[DELETED, DELETING], FINALIZED, Next::AtStart),
        (all_events(), &[DELETED], FAILED, Next::Dropped),
        (all_events(), &[DELETED, CHANGED], FAILED, Next::AtStart),
    ];
    for (policy, events, finished, next) in table {
        let mut script = Script::in_flight(policy);
        script.state.stop();
        for event in events {
            script.event(*event);
        }
        let what = Settled { outcome: Outcome::Ignored, next, retry: None };
        assert_eq!(script.finish(finished), what, "{events:?} {finished:?}");
        assert_eq!(script.take(), None);
        script.at(50).start();
        assert_eq!(script.take().is_some(), next == Next::AtStart, "{events:?} {finished:?}");
    }
}

#[test]
fn a_run_that_outlasts_a_stop_and_a_start_is_taken_seriously() {
    let mut script = Script::in_flight(Policy::default());
    script.state.stop();
    script.start();
    assert_eq!(script.take(), None); // EP-15
    assert_eq!(script.next(again(500)), Next::Again(millis(500)));
}

#[test]
fn a_closed_state_hands_out_nothing_for_good() {
    let mut script = Script::in_flight(Policy::default());
    script.event_of("b", CHANGED);
    script.state.close();
    script.state.stop();
    script.start();
    assert!(matches!(script.turn(), Turn::Closed));
    assert_eq!(script.finish(FAILED).outcome, Outcome::Ignored);
}

#[test]
fn keys_of_a_dropped_namespace_are_forgotten() {
    // NS-3; `b` is in flight, and in all-events mode too no deletion is run
    for policy in [Policy::default(), all_events()] {
        let mut script = Script::new(policy);
        for letter in ["b", "a", "c"] {
            script.event_of(letter, CHANGED);
        }
        script.take();
        script.state.retain(|key| key.name.as_ref() == "c");
        script.state.check();
        assert_eq!(script.state.len(), 2);
        let what = script.state.finish(&ObjectRef::cluster("b"), whatever(FAILED), script.now).unwrap();
        assert_eq!((what.next, script.state.len()), (Next::Dropped, 1));
        assert_eq!((script.take(), script.take()), (Some("c".to_owned()), None));
    }
}

#[test]
fn an_error_handler_can_say_how_long_a_retry_waits_and_uses_up_an_attempt() {
    // RT-5
    let delayed = |ms| Finished::Failed(Failure::Delayed(millis(ms)));
    let retry = Some(Retry { max_attempts: Some(2), ..Retry::default() });
    let mut script = Script::in_flight(Policy { retry, min_reschedule: millis(100), ..Policy::default() });
    let settled = script.finish(delayed(700));
    assert_eq!((settled.next, settled.retry), (Next::Retry(millis(700)), Some(info(1, false))));
    assert_eq!(settled.outcome, Outcome::Failed(Level::Warning));
    script.at(700).take();
    assert_eq!(script.next(delayed(5)), Next::Retry(millis(100)), "no sooner than anything that is asked for");
    script.at(800).take();
    let settled = script.finish(delayed(5));
    assert_eq!((settled.next, settled.outcome), (Next::Exhausted(Some(TEN_HOURS)), Outcome::Failed(Level::Error)));
    let mut script = Script::in_flight(Policy { retry: None, ..Policy::default() });
    assert_eq!(script.next(delayed(5)), Next::Idle(Some(TEN_HOURS)), "the manifest wants no retries");
}

#[test]
fn jitter_tells_keys_apart_and_is_the_same_again() {
    // RT-2
    let delay = |letter: &str| {
        let retry = Some(Retry { jitter: 0.5, ..Retry::default() });
        let mut script = Script::new(Policy { retry, ..Policy::default() });
        script.state.event(&ObjectRef::cluster(letter), (CHANGED, Urgency::Fresh), script.now);
        let Turn::Run(taken) = script.state.take(script.now) else { panic!("nothing runs") };
        let next = script.state.finish(&taken.key, whatever(FAILED), script.now).unwrap().next;
        let Next::Retry(delay) = next else { panic!("{next:?}") };
        delay
    };
    let delays: Vec<_> = ["a", "b", "c", "d"].map(delay).into();
    assert!(delays.iter().all(|delay| (millis(1000)..=millis(2000)).contains(delay)), "{delays:?}");
    assert!(delays.windows(2).all(|pair| pair[0] != pair[1]), "{delays:?}");
    assert_eq!(delay("a"), delays[0]);
}

// === all events ===

#[test]
fn a_deletion_is_run_until_it_succeeds() {
    // AE-2, AE-3, AE-4
    let mut script = Script::in_flight(all_events());
    script.finish(Finished::DONE);
    script.event(MISSED);
    let taken = script.taken();
    assert_eq!((taken.deletion, taken.retry), (Some(Deletion { unknown: true }), None));
    assert_eq!(script.next(FAILED), Next::Retry(millis(2000)));
    let taken = script.at(2000).taken();
    assert_eq!((taken.deletion, taken.retry), (Some(Deletion { unknown: true }), Some(info(1, false))));
    // An event during a failing deletion run: one more, right after.
    assert_eq!(script.event(RELATED), Receipt::Marked);
    assert_eq!(script.next(FAILED), Next::AtOnce);
    assert!(script.taken().deletion.is_some());
    // There is no reschedule, and an event during a deletion run that succeeds changes nothing.
    script.event(RELATED);
    assert_eq!((script.next(again(5)), script.state.len()), (Next::Dropped, 0));
}

#[test]
fn a_deletion_that_is_told_twice_during_its_run_is_an_event_like_others() {
    let mut script = Script::new(all_events());
    script.event(DELETED);
    script.take();
    script.event(DELETED);
    assert_eq!(script.next(FAILED), Next::AtOnce);
    script.take();
    script.event(DELETED);
    assert_eq!(script.next(Finished::DONE), Next::Dropped);
}

#[test]
fn a_deletion_that_a_pause_puts_off_is_run_once_that_ends() {
    // PA-2, AE-3
    let mut script = Script::new(all_events());
    script.event(DELETED);
    assert!(script.taken().deletion.is_some());
    assert_eq!(script.next(Finished::Postponed { until: None }), Next::Idle(Some(TEN_HOURS)));
    assert_eq!((script.take(), script.mark()), (None, Some(Mark::DeletePresent)));
    script.concerning(Concerned::All);
    assert!(script.taken().deletion.is_some());
    assert_eq!((script.next(Finished::DONE), script.state.len()), (Next::Dropped, 0));
}

#[test]
fn failures_of_another_primary_of_its_name_do_not_count() {
    // EP-4
    let mut script = Script::in_flight(Policy::default());
    let a = ObjectRef::cluster("a");
    assert!(script.state.about(&a, "u-1"));
    assert!(matches!(script.next(FAILED), Next::Retry(_)));
    for (uid, before, after) in [("u-1", 1, 2), ("u-2", 2, 1), ("u-2", 1, 2)] {
        script.event(CHANGED);
        assert_eq!(script.taken().retry.map(|retry| retry.attempt), Some(before));
        assert_eq!(script.state.about(&a, uid), after == 1, "{uid}");
        assert_eq!(script.finish(FAILED).retry.map(|retry| retry.attempt), Some(after), "{uid}");
    }
}

#[test]
fn other_finalizers_concern_primaries_whose_end_is_awaited_and_runs_under_way() {
    let mut script = Script::in_flight(Policy::default());
    assert_eq!(script.next(FINALIZED), Next::AwaitDeletion);
    script.concerning(Concerned::All);
    assert_eq!(script.take(), None, "nothing is left to do for it");
    script.concerning(Concerned::Finalized);
    assert_eq!(script.take(), Some("a".to_owned()));
    script.concerning(Concerned::Finalized);
    assert_eq!(script.next(FINALIZED), Next::AtOnce, "it has not removed what it did not know");
    script.take();
    assert_eq!(script.next(FINALIZED), Next::AwaitDeletion);
    let mut script = Script::in_flight(Policy::default());
    script.finish(Finished::DONE);
    script.concerning(Concerned::Finalized);
    assert_eq!(script.take(), None, "that is a matter of `onSwap`");
}

#[test]
fn an_event_for_those_that_have_failed_runs_no_others() {
    // EP-30, EP-35
    for retry in [Some(Retry::default()), None] {
        for (ends, runs) in [
            (&[Finished::DONE][..], false),
            (&[FAILED], true),
            (&[FAILED, Finished::DONE], false),
            (&[FAILED, Finished::NoRetry { again: None }], false),
            // What waits for the API server runs when that does its work.
            (&[OUTAGE], false),
            (&[FAILED, OUTAGE], true),
        ] {
            let mut script = Script::new(Policy { retry: retry.clone(), ..Policy::default() });
            for finished in ends {
                script.event(CHANGED);
                script.now += Duration::from_hours(1);
                assert_eq!(script.take(), Some("a".to_owned()));
                script.finish(*finished);
            }
            script.concerning(Concerned::Failed);
            assert_eq!(script.take().is_some(), runs, "{ends:?} {retry:?}");
        }
    }
    // Another one of its name has not failed.
    let mut script = Script::in_flight(Policy { retry: None, ..Policy::default() });
    script.finish(FAILED);
    script.event(CHANGED);
    assert_eq!(script.take(), Some("a".to_owned()));
    script.state.about(&ObjectRef::cluster("a"), "another");
    assert_eq!(script.state.concerned(Concerned::Failed), []);
}

#[test]
fn what_is_forgotten_in_all_events_mode_is_gone_without_a_run() {
    let mut script = Script::in_flight(all_events());
    script.finish(Finished::DONE);
    assert_eq!(script.event(Event::PrimaryForgotten), Receipt::Removed);
    assert_eq!((script.take(), script.state.len()), (None, 0));
    assert_eq!((script.event(Event::PrimaryForgotten), script.state.len()), (Receipt::Unknown, 0));
}

#[test]
fn a_deletion_during_a_failing_run_is_run_at_once() {
    let mut script = Script::in_flight(all_events());
    script.event(DELETED);
    assert_eq!(script.next(FAILED), Next::AtOnce);
    assert!(script.taken().deletion.is_some());
}

#[test]
fn what_comes_back_is_run_after_its_deletion() {
    // The table says how often the primary is deleted (-) and created (+) before and during the deletion run, and what
    // runs after it: the deletion again (-), the new one (+), or nothing.
    for (before, during, after) in [
        ("-", "", ""),
        ("-", "+", "+"),
        ("-+", "", "+"),
        ("-+-", "", ""),
        ("-", "+-", "-"),
        ("-", "+-+", "-+"),
        ("-", "-", ""),
    ] {
        let mut script = Script::in_flight(all_events());
        script.finish(Finished::DONE);
        let hear = |script: &mut Script, signs: &str| {
            for sign in signs.chars() {
                script.event(if sign == '-' { DELETED } else { CHANGED });
            }
        };
        hear(&mut script, before);
        assert!(script.taken().deletion.is_some());
        hear(&mut script, during);
        script.finish(Finished::DONE);
        let mut runs = String::new();
        while let Turn::Run(taken) = script.turn() {
            runs.push(if taken.deletion.is_some() { '-' } else { '+' });
            script.finish(Finished::DONE);
        }
        assert_eq!(runs, after, "{before} {during}");
        assert_eq!(script.state.len(), usize::from(after.ends_with('+')));
    }
}

// === looks ===

#[test]
fn states_say_why_a_key_does_not_run() {
    let mut script = Script::in_flight(Policy::default());
    script.finish(FAILED);
    for letter in ["b", "c"] {
        script.at(500).event_of(letter, CHANGED);
    }
    script.take();
    script.event_of("b", RELATED);
    let states = script.state.states(script.now, None, usize::MAX);
    let first = ObjectRef::cluster("a");
    assert_eq!(script.state.states(script.now, None, 1), states[..1]);
    assert_eq!(script.state.states(script.now, Some(&first), 1), states[1..2]);
    let state = |letter, in_flight, retry, due_in: Option<u64>| KeyState {
        key: ObjectRef::cluster(letter),
        in_flight,
        mark: Mark::Present,
        retry,
        due_in: due_in.map(millis),
    };
    let wanted = [
        state("a", false, Some(info(1, false)), Some(1500)),
        state("b", true, None, None),
        state("c", false, None, Some(0)),
    ];
    assert_eq!(states, wanted);
    assert_eq!(script.state.counts(script.now), Counts { keys: 3, due: 1, in_flight: 1 });
}

#[test]
fn an_idle_key_is_small() {
    // Both are needed for each key; a bucket of the map and a line of the timetable are 72 and 56 bytes.
    assert!(size_of::<(ObjectRef, Entry)>() <= 72, "{}", size_of::<(ObjectRef, Entry)>());
    assert!(size_of::<(Due, ObjectRef)>() <= 56, "{}", size_of::<(Due, ObjectRef)>());
}

// === laws ===

/// A step of a random history. Keys and tickets are picked by number, modulo their count.
#[derive(Clone, Copy, Debug)]
enum Step {
    Event(u8, Event),
    Take,
    Finish(u8, Finished),
    Wait(u64),
    Resume,
    Stop,
    Start,
}

fn step() -> impl Strategy<Value = Step> {
    let event = prop_oneof![
        4 => Just(CHANGED),
        2 => Just(DELETING),
        1 => Just(DELETED),
        1 => Just(MISSED),
        4 => Just(RELATED),
    ];
    let finished = prop_oneof![
        3 => Just(Finished::DONE),
        2 => Just(FINALIZED),
        1 => (0..9000_u64).prop_map(again),
        1 => Just(Finished::NoRetry { again: None }),
        3 => Just(FAILED),
        2 => Just(OUTAGE),
        1 => Just(Finished::Gone),
    ];
    prop_oneof![
        8 => (0..3_u8, event).prop_map(|(key, event)| Step::Event(key, event)),
        6 => Just(Step::Take),
        4 => (any::<u8>(), finished).prop_map(|(ticket, finished)| Step::Finish(ticket, finished)),
        3 => (0..4000_u64).prop_map(Step::Wait),
        1 => Just(Step::Resume),
        1 => Just(Step::Stop),
        2 => Just(Step::Start),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let retry = prop_oneof![
        Just(None),
        Just(Some(Retry::default())),
        Just(Some(Retry { max_attempts: Some(1), ..Retry::default() })),
    ];
    let limit = prop::option::of(Just(RateLimit { max_reconciliations: 2, within: millis(3000) }));
    let mode = prop_oneof![Just(Mode::Normal), Just(Mode::AllEvents)];
    let interval = prop::option::of(Just(TEN_HOURS));
    (retry, limit, mode, interval).prop_map(|(retry, rate_limit, mode, max_interval)| Policy {
        retry,
        rate_limit,
        max_interval,
        mode,
        ..Policy::default()
    })
}

/// Plays random steps and records the runs that the queue owes.
struct Play {
    script: Script,
    in_flight: Vec<String>,
    /// Keys with an accepted event since their last run began.
    owed: BTreeSet<String>,
    /// Keys whose cleanup may end them without a further run: no version that is not marked for deletion has come
    /// since the run began.
    dying: BTreeSet<String>,
}

impl Play {
    fn new(policy: Policy) -> Self {
        let script = Script::new(policy);
        Self { script, in_flight: Vec::new(), owed: BTreeSet::new(), dying: BTreeSet::new() }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Event(key, event) => self.event(["a", "b", "c"][usize::from(key)], event),
            Step::Take => self.take(),
            Step::Finish(ticket, finished) if !self.in_flight.is_empty() => {
                let letter = self.in_flight.remove(usize::from(ticket) % self.in_flight.len());
                self.finish(&letter, finished);
            }
            Step::Finish(..) => {}
            Step::Wait(ms) => self.script.now += millis(ms),
            Step::Resume => self.script.resume(),
            Step::Stop => self.script.state.stop(),
            Step::Start => self.script.start(),
        }
    }

    fn event(&mut self, letter: &str, event: Event) {
        if event == CHANGED {
            self.dying.remove(letter);
        }
        match self.script.event_of(letter, event) {
            Receipt::Marked => {
                self.owed.insert(letter.to_owned());
            }
            Receipt::Removed => {
                self.owed.remove(letter);
            }
            Receipt::Ignored | Receipt::Unknown => {}
        }
    }

    fn take(&mut self) {
        if let Some(letter) = self.script.take() {
            assert!(!self.in_flight.contains(&letter), "{letter} is in flight twice");
            self.owed.remove(&letter);
            self.dying.insert(letter.clone());
            self.in_flight.push(letter);
        }
    }

    fn finish(&mut self, letter: &str, finished: Finished) {
        let what = self.script.state.finish(&ObjectRef::cluster(letter), whatever(finished), self.script.now).unwrap();
        self.script.state.check();
        if what.next == Next::AwaitDeletion {
            assert!(finished == FINALIZED && self.dying.contains(letter), "{letter} lives");
            self.owed.remove(letter);
        }
        if what.next == Next::Dropped && self.script.state.policy.mode == Mode::AllEvents {
            self.owed.remove(letter); // AE-3: events that are older than the end of a successful deletion run
        }
    }

    /// Ends all runs with success and takes all keys that are due, for longer than any limit, retry or reschedule
    /// lasts.
    fn wind_up(&mut self) {
        self.script.start();
        for _ in 0..200 {
            while let Some(letter) = self.in_flight.pop() {
                self.finish(&letter, Finished::DONE);
            }
            self.take();
            self.script.now += millis(100);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_key_is_in_flight_twice_no_mark_is_lost_and_no_key_is_stuck(
        policy in policy(),
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let mut play = Play::new(policy);
        for step in steps {
            play.step(step);
        }
        play.wind_up();
        prop_assert_eq!(&play.owed, &BTreeSet::new());
        let interval = play.script.state.policy.max_interval;
        for (key, entry) in &play.script.state.keys {
            // EP-35: a key that has used up its attempts waits for the interval too, or else for an event.
            let exhausted = entry.retry(&play.script.state.policy).is_some_and(|retry| retry.last);
            let timed = entry.due.is_some() == interval.is_some();
            let waits = match entry.mark() {
                Mark::None => timed,
                Mark::ProcessedDeletion => entry.due.is_none(),
                // AE-3: without retries, too, as long as there is an interval.
                Mark::DeletePresent if play.script.state.policy.retry.is_none() => entry.due.is_some(),
                Mark::Present | Mark::DeletePresent | Mark::AdditionalAfterDelete => exhausted && timed,
            };
            prop_assert!(waits && entry.flight == Flight::Idle, "{} is stuck: {:?}", key, entry);
        }
    }

    #[test]
    fn fresh_keys_come_first_in_their_order_and_of_four_one_is_of_the_others(
        steps in prop::collection::vec((0..12_u8, any::<bool>(), 0..3_u64), 1..60),
    ) {
        let mut script = Script::new(Policy::default());
        // By key: its time, the number of the step that made it what it is, and whether it is fresh.
        let mut due = BTreeMap::<u8, (u64, usize, bool)>::new();
        let mut now = 0;
        for (number, (key, fresh, ms)) in steps.into_iter().enumerate() {
            now += ms;
            let letter = key.to_string();
            let script = script.at(now);
            if fresh { script.event_of(&letter, CHANGED) } else { script.replay_of(&letter, CHANGED) };
            let entry = due.entry(key).or_insert((now, number, fresh));
            if fresh && !entry.2 {
                *entry = (entry.0, number, true);
            }
        }
        let ordered = |fresh: bool| {
            let mut keys: Vec<_> = due.iter().filter(|(_, entry)| entry.2 == fresh).collect();
            keys.sort_by_key(|(_, entry)| **entry);
            keys.into_iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>()
        };
        let (fresh, replayed) = (ordered(true), ordered(false));
        let taken: Vec<_> = std::iter::from_fn(|| script.take()).collect();
        let of = |sort: &[String]| taken.iter().filter(|key| sort.contains(key)).cloned().collect::<Vec<_>>();
        prop_assert_eq!((of(&fresh), of(&replayed)), (fresh.clone(), replayed.clone()));
        // How many of each are left, and how many fresh ones have come in a row.
        let (mut left, mut row) = ((fresh.len(), replayed.len()), 0);
        for key in &taken {
            let both = left.0 > 0 && left.1 > 0;
            if fresh.contains(key) {
                prop_assert!(!both || row < 3, "{:?}", taken);
                (left.0, row) = (left.0 - 1, row + 1);
            } else {
                prop_assert!(!both || row == 3, "{:?}", taken);
                (left.1, row) = (left.1 - 1, 0);
            }
        }
    }

    #[test]
    fn due_keys_are_taken_in_the_order_in_which_they_became_due(
        steps in prop::collection::vec((0..6_u8, 0..3_u64), 1..60),
    ) {
        let mut script = Script::new(Policy::default());
        let mut order = Vec::new();
        for (key, ms) in steps {
            script.now += millis(ms);
            let letter = ["a", "b", "c", "d", "e", "f"][usize::from(key)];
            script.event_of(letter, CHANGED);
            if !order.contains(&letter) {
                order.push(letter);
            }
        }
        let taken: Vec<_> = std::iter::from_fn(|| script.take()).collect();
        prop_assert_eq!(taken, order);
    }
}

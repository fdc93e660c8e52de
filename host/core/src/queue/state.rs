//! Decides what an event, the passing of time and the end of a run mean for a key, and which key is next (EP, TM).
//!
//! Everything is a function of state, input and `now`. [`Entry`] is the state machine of one key. [`State`] has all
//! keys and one timetable, which holds both timers and keys that wait for another run to end.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::outage::Outage;
use super::retry::Attempts;
use super::{
    Blame, Counts, Deletion, Event, FOREVER, Finished, KeyState, Mark, Mode, Next, Policy, Receipt, Settled, Urgency,
};
use crate::guest::{FailureClass, RetryInfo};
use crate::manifest::Retry;
use crate::object::ObjectRef;

mod entry;
mod timetable;

use entry::{Entry, Flight};
use timetable::{Due, Timetable};

/// EP-33: with more than this left of a back-off, a failed run does not count as the retry.
const RESUME: Duration = Duration::from_secs(5);

/// All keys of a controller.
#[derive(Debug)]
pub(super) struct State {
    policy: Policy,
    phase: Phase,
    keys: HashMap<ObjectRef, Entry>,
    timetable: Timetable,
    outage: Outage,
    in_flight: usize,
}

/// The phase of the queue, which says if keys are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No keys for now.
    Stopped,
    /// Keys are handed out.
    Running,
    /// No keys ever again.
    Closed,
}

/// The keys that an event concerns which is about more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concerned {
    /// All of them.
    All,
    /// All of them, whose failures were those of another version of the plugin or its settings.
    Anew,
    /// Those whose last run has failed.
    Failed,
    /// Those whose deletion is awaited: the finalizers that are removed are others now.
    Finalized,
}

/// The answer to a request for work.
#[derive(Debug)]
pub(super) enum Turn {
    /// A key to run.
    Run(Taken),
    /// No key before this time; `None`: no key before the state changes.
    Wait(Option<Instant>),
    /// No key ever.
    Closed,
}

/// A key to run.
#[derive(Debug)]
pub(super) struct Taken {
    /// The key.
    pub(super) key: ObjectRef,
    /// The retry state; `None` on a fresh run.
    pub(super) retry: Option<RetryInfo>,
    /// The number of runs in a row before it that failed for an outage of the API server.
    pub(super) outages: u32,
    /// The deletion, if the run is about it.
    pub(super) deletion: Option<Deletion>,
}

/// A call that the rules do not allow: a bug of the caller. Retrying does not help.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// Only a key that was taken can be finished, and only once.
    #[error("finish {0}: it is not in flight")]
    NotInFlight(ObjectRef),
}

// === impl State ===

impl State {
    /// Returns a stopped state without keys.
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            policy: policy.normal(),
            phase: Phase::Stopped,
            keys: HashMap::new(),
            timetable: Timetable::default(),
            outage: Outage::default(),
            in_flight: 0,
        }
    }

    /// Returns the keys that an event concerns.
    pub(super) fn concerned(&self, which: Concerned) -> Vec<ObjectRef> {
        let concerns = |entry: &Entry| match which {
            Concerned::All | Concerned::Anew | Concerned::Finalized => true,
            Concerned::Failed => entry.has_failed(),
        };
        self.keys.iter().filter(|(_, entry)| concerns(entry)).map(|(key, _)| key.clone()).collect()
    }

    /// Takes in an event that concerns these keys, if it still does, as if each had an event of its own.
    pub(super) fn event_for(&mut self, which: Concerned, concerned: &[ObjectRef], now: Instant) {
        let Self { keys, timetable, .. } = self;
        for key in concerned {
            let Some(entry) = keys.get_mut(key) else {
                continue;
            };
            if which == Concerned::Anew {
                entry.forget_attempts();
            }
            let marked = match which {
                Concerned::Failed if !entry.has_failed() => false,
                Concerned::All | Concerned::Anew | Concerned::Failed => {
                    entry.hear((Event::Related, Urgency::Replayed), false) == Receipt::Marked
                }
                Concerned::Finalized => entry.reopen(),
            };
            if marked && entry.flight == Flight::Idle {
                timetable.bring_forward(key, entry, now);
            }
        }
    }

    /// Takes in which primary a run that has begun is about. Returns true if its retries are those of another one.
    pub(super) fn about(&mut self, key: &ObjectRef, uid: &str) -> bool {
        self.keys.get_mut(key).is_some_and(|entry| entry.about(uid))
    }

    /// Returns the retry state of a run that was told of so many attempts, once it is known of which class its failure is
    /// (`EC-2`).
    pub(super) fn retry_if(&self, attempt: u32, class: FailureClass) -> RetryInfo {
        Attempts::told(attempt).info(self.policy.retry_of(class))
    }

    /// Changes the policy from now on.
    pub(super) fn set_policy(&mut self, policy: Policy) {
        self.policy = policy.normal();
    }

    /// Takes in an event (EP-1 … EP-4).
    pub(super) fn event(&mut self, key: &ObjectRef, (event, urgency): (Event, Urgency), now: Instant) -> Receipt {
        let urgency = match self.phase {
            Phase::Running => urgency,
            // What is there at the start is nothing new.
            Phase::Stopped | Phase::Closed => Urgency::Replayed,
        };
        // EP-3: while stopped, a deletion is the end of a key in either mode.
        let deletions_run = self.runs_deletions();
        if !self.keys.contains_key(key) {
            let begins = match event {
                Event::PrimaryChanged { .. } => true,
                Event::PrimaryDeleted { .. } => deletions_run,
                Event::PrimaryForgotten | Event::Related => false, // EP-1
            };
            if !begins {
                return Receipt::Unknown;
            }
            self.keys.insert(key.clone(), Entry::new());
        }
        let Self { keys, timetable, outage, .. } = self;
        let Some(entry) = keys.get_mut(key) else {
            return Receipt::Unknown;
        };
        let waited = entry.waits_for_server();
        let receipt = entry.hear((event, urgency), deletions_run);
        outage.waiting -= usize::from(waited && !entry.waits_for_server());
        match (receipt, entry.flight) {
            (Receipt::Marked, Flight::Idle) => timetable.bring_forward(key, entry, now),
            (Receipt::Removed, Flight::Idle) => self.remove(key),
            // EP-10: the end of the run looks at the mark.
            (Receipt::Marked | Receipt::Removed, Flight::Run | Flight::DeletionRun | Flight::Superseded)
            | (Receipt::Unknown | Receipt::Ignored, _) => {}
        }
        receipt
    }

    /// Returns true if a deletion is run for like any other event. While stopped, it is the end of a key (`EP-3`).
    pub(super) fn runs_deletions(&self) -> bool {
        self.policy.mode == Mode::AllEvents && self.phase == Phase::Running
    }

    /// Returns true if a key is gone, and a run about that has to follow.
    pub(super) fn is_gone(&self, key: &ObjectRef) -> bool {
        self.keys.get(key).is_some_and(|entry| matches!(entry.life, entry::Life::Gone(_)))
    }

    /// Begins to hand out keys. Marked keys are due at once (`EP-3`).
    pub(super) fn start(&mut self, now: Instant) {
        if self.phase != Phase::Stopped {
            return;
        }
        self.phase = Phase::Running;
        let Self { keys, timetable, .. } = self;
        let owed = |entry: &Entry| entry.flight == Flight::Idle && entry.marked();
        let mut marked: Vec<_> = keys.iter_mut().filter(|(_, entry)| owed(entry)).collect();
        // A key without a line has used up its attempts, and comes last.
        let order = |entry: &Entry| (entry.due.is_none(), entry.due);
        marked.sort_by(|(a, one), (b, two)| order(one).cmp(&order(two)).then_with(|| a.cmp(b)));
        for (key, entry) in marked {
            timetable.bring_forward(key, entry, now);
        }
    }

    /// Takes in that the API server works again: the keys that wait for it run soon, spread over a short time.
    pub(super) fn resume(&mut self, now: Instant) {
        let Self { keys, timetable, outage, .. } = self;
        if !outage.end(now) {
            return;
        }
        for (key, entry) in keys {
            let waits = entry.waits_for_server();
            entry.forget_outages();
            // A key in flight starts counting outages anew if it fails once more.
            if !waits || entry.flight != Flight::Idle {
                continue;
            }
            let at = Outage::place(key, now).max(entry.left_alone().unwrap_or(now));
            if entry.due.is_none_or(|due| due.at > at) {
                timetable.put(key, entry, at);
            }
        }
    }

    /// Hands out no more keys for now.
    pub(super) fn stop(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Stopped;
        }
    }

    /// Hands out no more keys for good.
    pub(super) fn close(&mut self) {
        self.phase = Phase::Closed;
    }

    /// Drops all keys for which `keep` returns false; those in flight are dropped when their runs end.
    pub(super) fn retain(&mut self, keep: impl Fn(&ObjectRef) -> bool) {
        let Self { keys, timetable, outage, .. } = self;
        keys.retain(|key, entry| {
            if keep(key) {
                return true;
            }
            timetable.strike(&mut entry.due);
            outage.waiting -= usize::from(entry.waits_for_server());
            entry.forget();
            entry.flight != Flight::Idle
        });
    }

    /// Returns the earliest line of the timetable; `None` unless the queue is running.
    pub(super) fn earliest(&self) -> Option<Due> {
        let running = self.phase == Phase::Running;
        running.then(|| self.timetable.earliest()).flatten()
    }

    /// Takes the key that has been due for longest, or returns the time at which to ask again (EP-10 … EP-15).
    pub(super) fn take(&mut self, now: Instant) -> Turn {
        match self.phase {
            Phase::Stopped => return Turn::Wait(None),
            Phase::Closed => return Turn::Closed,
            Phase::Running => {}
        }
        let Self { policy, keys, timetable, in_flight, .. } = self;
        while let Some((urgency, key)) = timetable.pop(now) {
            let Some(entry) = keys.get_mut(&key) else {
                continue;
            };
            entry.due = None;
            if let Err(at) = entry.permit(policy, now) {
                entry.mark_as(Urgency::Replayed); // EP-12: also if it was a timer that was put off
                timetable.put(&key, entry, at);
                continue;
            }
            timetable.taken(urgency, now);
            *in_flight += 1;
            return Turn::Run(entry.take_off(key, policy));
        }
        Turn::Wait(timetable.earliest().map(|due| due.at))
    }

    /// Takes in the result of a run, and returns what follows (EP-20 … EP-35).
    pub(super) fn finish(
        &mut self,
        key: &ObjectRef,
        (finished, blame): (Finished, Blame),
        now: Instant,
    ) -> Result<Settled, Error> {
        let Self { policy, phase, keys, timetable, outage, in_flight } = self;
        let entry = keys.get_mut(key).filter(|entry| entry.flight != Flight::Idle);
        let Some(entry) = entry else {
            return Err(Error::NotInFlight(key.clone()));
        };
        *in_flight = in_flight.saturating_sub(1);
        let waited = entry.waits_for_server();
        let what = match phase {
            Phase::Running => entry.settle(policy, (finished, blame), now, (key, outage)),
            Phase::Stopped | Phase::Closed => entry.break_off(policy, finished),
        };
        let waits = entry.waits_for_server() && what.next != Next::Dropped;
        outage.waiting += usize::from(waits);
        outage.waiting -= usize::from(waited);
        match (what.next, what.next.after()) {
            (Next::Dropped, _) => self.remove(key),
            (_, Some(after)) => timetable.put(key, entry, now + after.min(FOREVER)),
            (_, None) => {}
        }
        // The key waited for the API server and now got an answer, so the others need not wait.
        if waited && finished.was_answered() {
            self.resume(now);
        }
        Ok(what)
    }

    fn remove(&mut self, key: &ObjectRef) {
        if let Some(mut entry) = self.keys.remove(key) {
            self.timetable.strike(&mut entry.due); // TM-2
        }
    }

    /// Returns true if an event is waiting (`EP-24`).
    pub(super) fn imminent(&self, key: &ObjectRef) -> bool {
        self.keys.get(key).is_some_and(|entry| entry.mark() == Mark::Present)
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns true if there is a key for a primary.
    pub(super) fn knows(&self, key: &ObjectRef) -> bool {
        self.keys.contains_key(key)
    }

    /// Returns the number of keys, by state.
    pub(super) fn counts(&self, now: Instant) -> Counts {
        let due = self.timetable.due(now);
        Counts { keys: self.keys.len(), due, in_flight: self.in_flight }
    }

    /// Returns the first `limit` keys after `after`, ordered.
    pub(super) fn states(&self, now: Instant, after: Option<&ObjectRef>, limit: usize) -> Vec<KeyState> {
        let behind = |key: &ObjectRef| after.is_none_or(|after| key > after);
        let mut found: Vec<_> = self.keys.iter().filter(|(key, _)| behind(key)).collect();
        if limit < found.len() {
            found.select_nth_unstable_by_key(limit, |(key, _)| *key);
            found.truncate(limit);
        }
        found.sort_unstable_by_key(|(key, _)| *key);
        let state = |(key, entry): (&ObjectRef, &Entry)| KeyState {
            key: key.clone(),
            in_flight: entry.flight != Flight::Idle,
            mark: entry.mark(),
            retry: entry.retry(&self.policy),
            due_in: entry.due.map(|due| due.at.saturating_duration_since(now)),
        };
        found.into_iter().map(state).collect()
    }
}

// === impl Policy ===

impl Policy {
    /// Returns the policy by which failures of a class are retried; `None`: they are not.
    fn retry_of(&self, class: FailureClass) -> Option<&Retry> {
        self.retry.as_ref().map(|retry| self.retry_by.get(&class).unwrap_or(retry))
    }

    /// Returns the policies by which failures of any class are retried.
    fn retries(&self) -> impl Iterator<Item = &Retry> {
        FailureClass::ALL.iter().filter_map(|class| self.retry_of(*class))
    }

    fn normal(mut self) -> Self {
        self.max_interval = self.max_interval.filter(|interval| !interval.is_zero()); // IV-1
        self
    }
}

#[cfg(test)]
mod tests;

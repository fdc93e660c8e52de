//! Decides what an event, the end of a run and a timer mean for one key.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use super::super::limiter::{self, Window};
use super::super::outage::{self, Outage};
use super::super::retry::{self, Attempts, Cause};
use super::super::{
    Blame, Deletion, Event, Failure, Finished, Level, Mark, Mode, Next, Outcome, Policy, Receipt, Settled, Urgency,
};
use super::{Due, RESUME, Taken};
use crate::guest::{NextRetry, RetryInfo};
use crate::object::ObjectRef;

/// One key. Most keys are idle and wait for their maximal interval, so what few keys need is in a box.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its line in the timetable; `None` while it is in flight. A run removes a pending timer, which would otherwise
    /// fire during the run and only cause one more run.
    pub(super) due: Option<Due>,
    /// The history of earlier runs; `None` if there is nothing to remember.
    pub(super) history: Option<Box<History>>,
    pub(super) life: Life,
    pub(super) flight: Flight,
    /// The most urgent event since the last run began; something if the last run failed, too (`EP-30`).
    pub(super) pending: Option<Urgency>,
    /// True if a version of the primary has been seen that is not the one that was cleaned up or deleted. In normal
    /// mode: a version that is not marked for deletion, since the run began; in all-events mode: any version, since
    /// the deletion.
    pub(super) renewed: bool,
    pub(super) last: Last,
}

/// What is known of the last run of a key, in one word: keys are many.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Last(u32);

/// The history of a key's runs.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The retries since the last success; `None` right after a success.
    retry: Option<Attempts>,
    /// The rate-limit window; `None` before the first run under a limit.
    window: Option<Window>,
    /// The number of runs in a row that failed for an outage of the API server.
    outages: u32,
    /// Until when the API server asks to be left alone by it, since the last of them.
    left_alone: Option<Instant>,
}

/// The known state of the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It exists.
    Exists,
    /// Our finalizer is removed.
    Finalized,
    /// It is gone, and a run about that has to follow. In all-events mode only.
    Gone(Deletion),
    /// It is gone, and no run has to follow: the entry lasts as long as the run in flight.
    Forgotten,
}

/// The run of a key that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flight {
    /// No run is under way.
    Idle,
    /// A run is under way.
    Run,
    /// A run about the end of the primary is under way. In all-events mode only.
    DeletionRun,
    /// A run about a primary that has gone meanwhile is under way: its outcome has no effect.
    Superseded,
}

impl Last {
    /// The bit that says whether it has failed; the others are of the hash of the uid of its primary, 0 before the first.
    const FAILED: u32 = 1;

    /// Takes in which primary a run is about. Returns true if it is another one than before, which has not failed.
    fn begin(&mut self, uid: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        uid.hash(&mut hasher);
        // Half of it: two uids that look alike would only share failures.
        let about = u32::try_from(hasher.finish() >> 32).unwrap_or_default() & !Self::FAILED;
        let another = self.0 & !Self::FAILED != about;
        if another {
            self.0 = about;
        }
        another
    }

    /// Takes in whether it has failed. An outage of the API server says nothing of that.
    fn end(&mut self, failed: bool) {
        self.0 = self.0 & !Self::FAILED | u32::from(failed);
    }

    fn has_failed(self) -> bool {
        self.0 & Self::FAILED != 0
    }
}

impl Entry {
    pub(super) fn new() -> Self {
        Self {
            due: None,
            history: None,
            life: Life::Exists,
            flight: Flight::Idle,
            pending: None,
            renewed: false,
            last: Last::default(),
        }
    }

    /// Takes in an event (`EP-2`), and returns the receipt, which tells the timetable if the key is due.
    pub(super) fn hear(&mut self, (event, urgency): (Event, Urgency), deletions_run: bool) -> Receipt {
        match event {
            Event::PrimaryChanged { deleting } => self.change(deleting, urgency),
            Event::PrimaryDeleted { unknown } if deletions_run => {
                self.expire(Deletion { unknown });
                Receipt::Marked
            }
            Event::PrimaryDeleted { .. } | Event::PrimaryForgotten => {
                self.forget();
                Receipt::Removed
            }
            Event::Related => match self.life {
                Life::Exists | Life::Gone(_) => {
                    self.mark_as(urgency);
                    Receipt::Marked
                }
                Life::Finalized => Receipt::Ignored,
                Life::Forgotten => Receipt::Unknown,
            },
        }
    }

    fn change(&mut self, deleting: bool, urgency: Urgency) -> Receipt {
        match self.life {
            Life::Finalized if deleting => return Receipt::Ignored,
            // The run about the deletion comes first, the run about the new primary after it.
            Life::Gone(_) => self.renewed = true,
            Life::Exists | Life::Finalized | Life::Forgotten => {
                self.life = Life::Exists;
                self.renewed |= !deleting;
            }
        }
        self.mark_as(urgency);
        Receipt::Marked
    }

    /// Takes in that a run has to follow. What is fresh remains that.
    pub(super) fn mark_as(&mut self, urgency: Urgency) {
        self.pending = Some(self.pending.map_or(urgency, |pending| pending.min(urgency)));
    }

    /// Returns among which keys it comes next.
    pub(super) fn urgency(&self) -> Urgency {
        match self.life {
            Life::Gone(_) => Urgency::Fresh,
            Life::Exists | Life::Finalized | Life::Forgotten => self.pending.unwrap_or(Urgency::Replayed),
        }
    }

    /// Takes in that the primary is gone, and that a run about that follows.
    fn expire(&mut self, deletion: Deletion) {
        if self.flight == Flight::DeletionRun && self.renewed {
            self.flight = Flight::Superseded; // gone, back, and gone again
        }
        self.life = Life::Gone(deletion);
        // AE-3: if the deletion is reported a second time during a deletion run that fails, the next run follows at
        // once.
        self.pending = (self.flight == Flight::DeletionRun).then_some(Urgency::Fresh);
        self.renewed = false;
    }

    /// Takes in that the primary is gone, and that no run about that follows.
    pub(super) fn forget(&mut self) {
        if self.flight != Flight::Idle {
            self.flight = Flight::Superseded;
        }
        self.life = Life::Forgotten;
        self.pending = None;
        self.last.end(false);
        self.history = None;
    }

    /// Takes in which primary the run is about. Returns true if the runs before were about another one, whose history is none of its own:
    /// that it is gone may be told later.
    pub(super) fn about(&mut self, uid: &str) -> bool {
        let another = self.last.begin(uid);
        if let Some(history) = self.history.as_mut().filter(|_| another) {
            history.retry = None;
        }
        another
    }

    /// Takes in that the finalizers that are removed are others now. Returns true if a run has to follow, as the primary may carry one
    /// of them.
    pub(super) fn reopen(&mut self) -> bool {
        let removes = self.flight == Flight::Run && self.life == Life::Exists;
        if self.life != Life::Finalized && !removes {
            return false;
        }
        self.life = Life::Exists;
        self.mark_as(Urgency::Replayed);
        self.renewed |= self.flight == Flight::Run;
        true
    }

    /// Asks the rate limit (`RL-2`: before every run). The error is the time at which to ask again.
    pub(super) fn permit(&mut self, policy: &Policy, now: Instant) -> Result<(), Instant> {
        let Some(limit) = &policy.rate_limit else {
            return Ok(());
        };
        limiter::permit(limit, &mut self.history.get_or_insert_default().window, now)
    }

    /// Begins a run, which consumes the mark (`EP-13`).
    pub(super) fn take_off(&mut self, key: ObjectRef, policy: &Policy) -> Taken {
        self.pending = None;
        let deletion = match self.life {
            Life::Gone(deletion) => Some(deletion),
            Life::Exists | Life::Finalized | Life::Forgotten => None,
        };
        if deletion.is_some() {
            self.flight = Flight::DeletionRun;
        } else {
            self.flight = Flight::Run;
            self.renewed = false;
        }
        let outages = self.history.as_ref().map_or(0, |history| history.outages);
        Taken { key, retry: self.retry(policy), outages, deletion }
    }

    /// Ends a run that was under way when the queue was stopped. Its outcome is ignored, except that our finalizer
    /// has been removed (`LC-22`). The key is free again (`EP-20`).
    pub(super) fn break_off(&mut self, policy: &Policy, finished: Finished) -> Settled {
        let flight = mem::replace(&mut self.flight, Flight::Idle);
        let next = if self.life == Life::Forgotten {
            Next::Dropped
        } else if flight == Flight::Run && self.finalized_by(finished) {
            self.succeed(flight, finished, (policy.mode, None))
        } else {
            self.mark_as(Urgency::Replayed);
            Next::AtStart
        };
        Settled { outcome: Outcome::Ignored, next, retry: self.retry(policy) }
    }

    /// Ends a run of `key`.
    pub(super) fn settle(
        &mut self,
        policy: &Policy,
        (finished, blame): (Finished, Blame),
        now: Instant,
        (key, outage): (&ObjectRef, &Outage),
    ) -> Settled {
        let flight = mem::replace(&mut self.flight, Flight::Idle);
        // EP-21: the primary is gone, so nothing is left to do, whatever the result is.
        let finished =
            if flight == Flight::Superseded { Finished::DONE } else { finished.no_sooner_than(policy.min_reschedule) };
        let (outcome, next) = match finished {
            Finished::Failed(Failure::Outage) => {
                let asked = match blame.next {
                    NextRetry::After(asked) => Some(asked),
                    NextRetry::Declared | NextRetry::Stop => None,
                };
                self.wait((asked, now), |failures| outage.pause(key, failures))
            }
            Finished::Failed(failure) => self.fail(policy, flight, (failure, blame), (key, now)),
            Finished::Done { .. } | Finished::NoRetry { .. } | Finished::Gone | Finished::Postponed { .. } => {
                (Outcome::Succeeded, self.succeed(flight, finished, (policy.mode, policy.max_interval)))
            }
        };
        Settled { outcome, next, retry: self.retry(policy) }
    }

    /// Decides what follows a success: the first case that applies (`EP-23`).
    fn succeed(&mut self, flight: Flight, finished: Finished, (mode, max_interval): (Mode, Option<Duration>)) -> Next {
        self.forget_failures();
        let again = match finished {
            Finished::Done { again, .. } | Finished::NoRetry { again } => again,
            Finished::Postponed { until } => until,
            Finished::Failed(_) | Finished::Gone => None,
        };
        match self.life {
            Life::Gone(_) if matches!(finished, Finished::Postponed { .. }) => {
                again.map_or(Next::Idle(max_interval), Next::Again)
            }
            Life::Gone(_) if flight != Flight::DeletionRun => Next::AtOnce,
            Life::Gone(_) if self.renewed => {
                self.life = Life::Exists;
                self.mark_as(Urgency::Fresh);
                Next::AtOnce
            }
            Life::Gone(_) | Life::Forgotten => Next::Dropped,
            Life::Exists | Life::Finalized if self.finalized_by(finished) => {
                self.life = Life::Finalized;
                self.pending = None;
                Next::AwaitDeletion
            }
            // The event comes first; the time that the component asked for is discarded.
            Life::Exists | Life::Finalized if self.pending.is_some() => Next::AtOnce,
            // AE-2: in all-events mode it is still to be told that it has gone, and a run about that follows.
            Life::Exists | Life::Finalized if finished == Finished::Gone && mode == Mode::Normal => Next::Dropped,
            Life::Exists | Life::Finalized => again.map_or(Next::Idle(max_interval), Next::Again),
        }
    }

    /// Returns true if the run has removed our finalizer from the primary that exists, and not from a predecessor of
    /// the same name.
    fn finalized_by(&self, finished: Finished) -> bool {
        let removed = matches!(finished, Finished::Done { finalizer_removed: true, .. });
        removed && self.life == Life::Exists && !self.renewed
    }

    /// Waits for the API server, for as long as that has asked for at least. No attempt of the key is consumed, as the key is not the
    /// cause. An event during the run does not shorten the pause.
    fn wait(
        &mut self,
        (asked, now): (Option<Duration>, Instant),
        outage: impl FnOnce(u32) -> Duration,
    ) -> (Outcome, Next) {
        self.mark_as(Urgency::Replayed);
        let History { outages, left_alone, .. } = &mut **self.history.get_or_insert_default();
        *outages = outages.saturating_add(1);
        *left_alone = asked.map(|asked| now + asked.min(super::super::FOREVER));
        // One warning is enough: further failures in a row belong to the same outage.
        let level = if *outages == 1 { Level::Warning } else { Level::Debug };
        (Outcome::Failed(level), Next::Outage(outage(*outages).max(asked.unwrap_or_default())))
    }

    /// Decides what follows a failure, and at which level it is logged (EP-30 … EP-36).
    fn fail(
        &mut self,
        policy: &Policy,
        flight: Flight,
        (failure, blame): (Failure, Blame),
        (key, now): (&ObjectRef, Instant),
    ) -> (Outcome, Next) {
        let Some(retry) = policy.retry_of(blame.class) else {
            // AE-3: only its success ends a key whose primary is gone, as long as it comes again.
            let is_owed = flight == Flight::DeletionRun && matches!(self.life, Life::Gone(_)) && !self.renewed;
            let asked_for = if let Failure::Delayed(after) = failure { Some(Next::Again(after)) } else { None };
            let later = asked_for.or_else(|| policy.max_interval.map(|interval| Next::Idle(Some(interval))));
            if let Some(later) = later.filter(|_| is_owed) {
                self.forget_failures();
                self.last.end(true);
                let next = if self.pending.is_some() { Next::AtOnce } else { later };
                return (Outcome::Failed(Level::Error), next);
            }
            // EP-22: what follows is the same as after a success, but the outcome is a failure.
            let next = self.succeed(flight, Finished::Failed(failure), (policy.mode, policy.max_interval));
            self.last.end(true);
            return (Outcome::Failed(Level::Error), next);
        };
        self.forget_outages();
        self.last.end(true);
        let woken = self.pending.is_some() || (flight == Flight::Run && self.marked());
        self.mark_as(Urgency::Replayed);
        let attempts = self.history.get_or_insert_default().retry.get_or_insert_default();
        let stop = blame.next == NextRetry::Stop;
        let last = stop || attempts.info(Some(retry)).last;
        let left = attempts.left(now);
        // RT-5
        let said = match (failure, blame.next) {
            (Failure::Delayed(after), _) => Some(after),
            (_, NextRetry::After(after)) => Some(after.max(policy.min_reschedule)),
            (_, NextRetry::Declared | NextRetry::Stop) => None,
        };
        let delay = |number: u32| said.unwrap_or_else(|| retry::delay(retry, number, outage::share(key, number)));
        let cause = Cause { class: blame.class, said: said.is_some() };
        let next = if woken {
            Next::AtOnce
        } else if stop {
            attempts.end_delay();
            Next::Exhausted(policy.max_interval)
        } else if left > RESUME {
            attempts.resume((retry, cause), now, delay).map_or(Next::Exhausted(policy.max_interval), Next::Resume)
        } else if let Some(delay) = attempts.consume((retry, cause), now, delay) {
            Next::Retry(delay)
        } else {
            Next::Exhausted(policy.max_interval)
        };
        let level = match failure {
            Failure::Conflict if !last => Level::Info,
            Failure::Unhandled | Failure::Handled | Failure::Delayed(_) | Failure::Conflict | Failure::Outage
                if woken || !last =>
            {
                Level::Warning
            }
            Failure::Unhandled | Failure::Handled | Failure::Delayed(_) | Failure::Conflict | Failure::Outage => {
                Level::Error
            }
        };
        (Outcome::Failed(level), next)
    }

    pub(super) fn forget_outages(&mut self) {
        if let Some(history) = &mut self.history {
            history.outages = 0;
        }
    }

    /// Returns until when the API server asks to be left alone by it.
    pub(super) fn left_alone(&self) -> Option<Instant> {
        self.history.as_ref().and_then(|history| history.left_alone)
    }

    /// Returns true if its last run failed for an outage of the API server.
    pub(super) fn waits_for_server(&self) -> bool {
        let history = self.history.as_ref();
        history.is_some_and(|history| history.outages > 0)
    }

    fn forget_failures(&mut self) {
        self.last.end(false);
        if let Some(history) = &mut self.history {
            history.retry = None;
            history.outages = 0;
            if history.window.is_none() {
                self.history = None;
            }
        }
    }

    /// Returns true if its last run has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.last.has_failed()
    }

    /// Forgets the attempts so far, and what is left of the delay before the next one.
    pub(super) fn forget_attempts(&mut self) {
        if let Some(history) = &mut self.history {
            history.retry = None;
        }
    }

    /// Returns which attempt the next run is.
    pub(super) fn retry(&self, policy: &Policy) -> Option<RetryInfo> {
        let attempts = self.history.as_ref()?.retry?;
        Some(attempts.info(policy.retries()))
    }

    /// Returns true if a run has to follow.
    pub(super) fn marked(&self) -> bool {
        match self.life {
            Life::Exists => self.pending.is_some(),
            Life::Gone(_) => true,
            Life::Finalized | Life::Forgotten => false,
        }
    }

    /// Returns the events of the primary since its last run began (`EP-2`).
    pub(super) fn mark(&self) -> Mark {
        match (self.life, self.pending.is_some()) {
            (Life::Exists, false) => Mark::None,
            (Life::Exists, true) => Mark::Present,
            (Life::Finalized, _) => Mark::ProcessedDeletion,
            (Life::Gone(_), true) => Mark::AdditionalAfterDelete,
            (Life::Gone(_), false) | (Life::Forgotten, _) => Mark::DeletePresent,
        }
    }
}

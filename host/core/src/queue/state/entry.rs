//! Decides what an event, the end of a run and a timer mean for one key.

use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use super::super::limiter::{self, Window};
use super::super::retry::Attempts;
use super::super::{Deletion, Event, Failure, Finished, Level, Mark, Next, Outcome, Policy, Receipt, Settled};
use super::{Due, RESUME, Taken};
use crate::guest::RetryInfo;
use crate::object::ObjectRef;

/// One key. An idle key that is waiting for its maximal interval is the usual case, hence the box for the rest.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its line in the timetable; none while it is in flight. A run replaces a pending timer: it does not fire into the
    /// run, where it would only cause one more.
    pub(super) due: Option<Due>,
    /// What is remembered of earlier runs; none if that is nothing.
    pub(super) history: Option<Box<History>>,
    pub(super) life: Life,
    pub(super) flight: Flight,
    /// Whether an event has come since the last run began, or the last run failed (`EP-30`).
    pub(super) pending: bool,
    /// Whether a version of the primary has shown up that is not the one that was cleaned up or deleted. In normal mode:
    /// one that is not marked for deletion, since the run began; in all-events mode: any, since the deletion.
    pub(super) renewed: bool,
}

/// What is remembered of the runs of a key.
#[derive(Debug, Default)]
pub(super) struct History {
    /// None after a success.
    retry: Option<Attempts>,
    /// None before the first run under a limit.
    window: Option<Window>,
    /// How often in a row the API server was away.
    outages: u32,
}

/// What is known of the life of the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It exists.
    Exists,
    /// Our finalizer is removed.
    Finalized,
    /// It is gone, and a run has to be told. In all-events mode only.
    Gone(Deletion),
    /// It is gone, and nobody has to be told: the entry lasts as long as the run in flight.
    Forgotten,
}

/// Whether a run is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flight {
    /// No.
    Idle,
    /// Yes.
    Run,
    /// Yes, one about the end of the primary. In all-events mode only.
    DeletionRun,
    /// Yes, one about a primary that is gone by now: its outcome means nothing.
    Superseded,
}

impl Entry {
    pub(super) fn new() -> Self {
        Self { due: None, history: None, life: Life::Exists, flight: Flight::Idle, pending: false, renewed: false }
    }

    /// Takes in an event (`EP-2`). The receipt says what the timetable needs to know.
    pub(super) fn hear(&mut self, event: Event, deletions_run: bool) -> Receipt {
        match event {
            Event::PrimaryChanged { deleting } => self.change(deleting),
            Event::PrimaryDeleted { unknown } if deletions_run => {
                self.expire(Deletion { unknown });
                Receipt::Marked
            }
            Event::PrimaryDeleted { .. } => {
                self.forget();
                Receipt::Removed
            }
            Event::Related => match self.life {
                Life::Exists | Life::Gone(_) => {
                    self.pending = true;
                    Receipt::Marked
                }
                Life::Finalized => Receipt::Ignored,
                Life::Forgotten => Receipt::Unknown,
            },
        }
    }

    fn change(&mut self, deleting: bool) -> Receipt {
        match self.life {
            Life::Finalized if deleting => return Receipt::Ignored,
            // The deletion is run first; what came back, after it.
            Life::Gone(_) => self.renewed = true,
            Life::Exists | Life::Finalized | Life::Forgotten => {
                self.life = Life::Exists;
                self.renewed |= !deleting;
            }
        }
        self.pending = true;
        Receipt::Marked
    }

    /// The primary is gone, and a run will be about that.
    fn expire(&mut self, deletion: Deletion) {
        if self.flight == Flight::DeletionRun && self.renewed {
            self.flight = Flight::Superseded; // gone, back, and gone again
        }
        self.life = Life::Gone(deletion);
        // AE-3: told twice, a deletion run that fails still runs again right after.
        self.pending = self.flight == Flight::DeletionRun;
        self.renewed = false;
    }

    /// The primary is gone, and that is all.
    pub(super) fn forget(&mut self) {
        if self.flight != Flight::Idle {
            self.flight = Flight::Superseded;
        }
        self.life = Life::Forgotten;
        self.pending = false;
        self.history = None;
    }

    /// Asks the rate limit (`RL-2`: before every run).
    pub(super) fn permit(&mut self, policy: &Policy, now: Instant) -> Result<(), Instant> {
        let Some(limit) = &policy.rate_limit else {
            return Ok(());
        };
        limiter::permit(limit, &mut self.history.get_or_insert_default().window, now)
    }

    /// Begins a run: the mark is consumed (`EP-13`).
    pub(super) fn take_off(&mut self, key: ObjectRef, policy: &Policy) -> Taken {
        self.pending = false;
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
        let first = Attempts::default().info(policy.retry.as_ref());
        Taken { key, retry: self.retry(policy), first, deletion }
    }

    /// Ends a run that was under way when the queue was stopped: its outcome is ignored, but that our finalizer is gone
    /// remains true (`LC-22`). The key is free again (`EP-20`).
    pub(super) fn break_off(&mut self, policy: &Policy, finished: Finished) -> Settled {
        let flight = mem::replace(&mut self.flight, Flight::Idle);
        let next = if self.life == Life::Forgotten {
            Next::Dropped
        } else if flight == Flight::Run && self.finalized_by(finished) {
            self.succeed(flight, finished, None)
        } else {
            self.pending = true;
            Next::AtStart
        };
        Settled { outcome: Outcome::Ignored, next, retry: self.retry(policy) }
    }

    /// Ends a run. `outage` says how long to wait after so many runs in a row that failed for an outage.
    pub(super) fn settle(
        &mut self,
        policy: &Policy,
        finished: Finished,
        now: Instant,
        outage: impl FnOnce(u32) -> Duration,
    ) -> Settled {
        let flight = mem::replace(&mut self.flight, Flight::Idle);
        // EP-21: whatever came of it, nothing is left to do about what is gone.
        let finished =
            if flight == Flight::Superseded { Finished::DONE } else { finished.no_sooner_than(policy.min_reschedule) };
        let (outcome, next) = match finished {
            Finished::Failed(Failure::Outage) => self.wait(outage),
            Finished::Failed(failure) => self.fail(policy, flight, failure, now),
            Finished::Done { .. } | Finished::NoRetry { .. } | Finished::Gone => {
                (Outcome::Succeeded, self.succeed(flight, finished, policy.max_interval))
            }
        };
        Settled { outcome, next, retry: self.retry(policy) }
    }

    /// Decides what follows a success: the first that applies (`EP-23`).
    fn succeed(&mut self, flight: Flight, finished: Finished, max_interval: Option<Duration>) -> Next {
        self.forget_failures();
        let again = match finished {
            Finished::Done { again, .. } | Finished::NoRetry { again } => again,
            Finished::Failed(_) | Finished::Gone => None,
        };
        match self.life {
            Life::Gone(_) if flight != Flight::DeletionRun => Next::AtOnce,
            Life::Gone(_) if self.renewed => {
                self.life = Life::Exists;
                self.pending = true;
                Next::AtOnce
            }
            Life::Gone(_) | Life::Forgotten => Next::Dropped,
            Life::Exists | Life::Finalized if self.finalized_by(finished) => {
                self.life = Life::Finalized;
                self.pending = false;
                Next::AwaitDeletion
            }
            // What the component asked for is discarded: the event comes first.
            Life::Exists | Life::Finalized if self.pending => Next::AtOnce,
            Life::Exists | Life::Finalized if finished == Finished::Gone => Next::Dropped,
            Life::Exists | Life::Finalized => again.map_or(Next::Idle(max_interval), Next::Again),
        }
    }

    /// Whether the run has removed our finalizer from what exists, and not from a predecessor of the same name.
    fn finalized_by(&self, finished: Finished) -> bool {
        let removed = matches!(finished, Finished::Done { finalizer_removed: true, .. });
        removed && self.life == Life::Exists && !self.renewed
    }

    /// Waits for the API server. Nothing that is remembered of the key changes: it has done nothing wrong. An event during the
    /// run does not shorten the pause.
    fn wait(&mut self, outage: impl FnOnce(u32) -> Duration) -> (Outcome, Next) {
        self.pending = true;
        let outages = &mut self.history.get_or_insert_default().outages;
        *outages = outages.saturating_add(1);
        // Told once: what follows is the same outage.
        let level = if *outages == 1 { Level::Warning } else { Level::Debug };
        (Outcome::Failed(level), Next::Outage(outage(*outages)))
    }

    /// Decides what follows a failure, and how loudly it is logged (EP-30 … EP-36).
    fn fail(&mut self, policy: &Policy, flight: Flight, failure: Failure, now: Instant) -> (Outcome, Next) {
        let Some(retry) = &policy.retry else {
            // EP-22: goes on like a success, but does not count as one.
            let next = self.succeed(flight, Finished::Failed(failure), policy.max_interval);
            return (Outcome::Failed(Level::Error), next);
        };
        self.forget_outages();
        let woken = self.pending || (flight == Flight::Run && self.marked());
        self.pending = true;
        let attempts = self.history.get_or_insert_default().retry.get_or_insert_default();
        let last = attempts.info(Some(retry)).last;
        let left = attempts.left(now);
        let next = if woken {
            Next::AtOnce
        } else if left > RESUME {
            Next::Resume(left)
        } else if let Some(delay) = attempts.consume(retry, now) {
            Next::Retry(delay)
        } else {
            Next::Exhausted(policy.max_interval)
        };
        let level = match failure {
            Failure::Conflict if !last => Level::Info,
            Failure::Handled if !last => Level::Debug,
            Failure::Unhandled | Failure::Handled | Failure::Conflict | Failure::Outage if woken || !last => {
                Level::Warning
            }
            Failure::Unhandled | Failure::Handled | Failure::Conflict | Failure::Outage => Level::Error,
        };
        (Outcome::Failed(level), next)
    }

    pub(super) fn forget_outages(&mut self) {
        if let Some(history) = &mut self.history {
            history.outages = 0;
        }
    }

    /// Whether its last run failed because the API server was away.
    pub(super) fn waits_for_server(&self) -> bool {
        let history = self.history.as_ref();
        history.is_some_and(|history| history.outages > 0)
    }

    fn forget_failures(&mut self) {
        if let Some(history) = &mut self.history {
            history.retry = None;
            history.outages = 0;
            if history.window.is_none() {
                self.history = None;
            }
        }
    }

    pub(super) fn retry(&self, policy: &Policy) -> Option<RetryInfo> {
        let attempts = self.history.as_ref()?.retry?;
        Some(attempts.info(policy.retry.as_ref()))
    }

    /// Whether a run is owed.
    pub(super) fn marked(&self) -> bool {
        match self.life {
            Life::Exists => self.pending,
            Life::Gone(_) => true,
            Life::Finalized | Life::Forgotten => false,
        }
    }

    /// Returns what has been heard of the primary since its last run began (`EP-2`).
    pub(super) fn mark(&self) -> Mark {
        match (self.life, self.pending) {
            (Life::Exists, false) => Mark::None,
            (Life::Exists, true) => Mark::Present,
            (Life::Finalized, _) => Mark::ProcessedDeletion,
            (Life::Gone(_), true) => Mark::AdditionalAfterDelete,
            (Life::Gone(_), false) | (Life::Forgotten, _) => Mark::DeletePresent,
        }
    }
}

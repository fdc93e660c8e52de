//! How runs end: results, and failures before it is decided what follows from them.

use std::time::Duration;

use super::{blame, managed};
use crate::budget::Exceeded;
use crate::cluster;
use crate::guest::{CallReason, Cause, Failure, FailureClass, FailureOrigin, Invalid, NextRetry, NodeFailure};
use crate::queue::{self, Blame, Finished};
use crate::text;
use crate::writes;

/// How much of what is wrong with a primary is named.
const NAMED: usize = 8;

/// The result of a run, for the queue and for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The result for the queue.
    pub finished: Finished,
    /// The text of the failure, also of one that the component has dealt with; `None` if the run did not fail.
    pub error: Option<String>,
    /// The texts of failures of dependents that did not fail the run: they are left to the component (`WF-9`).
    pub tolerated: Option<String>,
    /// The origin of that failure, if it is known.
    pub origin: Option<FailureOrigin>,
    /// What is known of the failure; of no interest if the run did not fail.
    pub blame: Blame,
    /// The last refusal of the run's budget for work on documents; `None` if there was none. A run with a refusal
    /// need not have failed.
    pub exceeded: Option<Exceeded>,
    /// How many objects were read from the API server because a bounded source had forgotten them (`BC-1`).
    pub recalled: u32,
}

/// The failure of a run, before it is decided what follows from it.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) origin: FailureOrigin,
    pub(super) message: String,
    pub(super) refused: Option<CallReason>,
    pub(super) dependents: Vec<(String, NodeFailure)>,
    pub(super) sort: queue::Failure,
    pub(super) class: FailureClass,
}

// === impl Ended ===

impl Ended {
    /// Success, without a time for the next run.
    pub(super) const DONE: Self = Self::well(Finished::DONE);

    /// Success; only the deletion event is awaited.
    pub(super) const FINALIZER_REMOVED: Self = Self::well(Finished::Done { finalizer_removed: true, again: None });

    pub(super) fn unread(error: &cluster::Error) -> Self {
        let message = format!("reading the primary: {error}");
        Self::of(Failed { message, ..Failed::of_write(error) }).heeding(error.retry_after)
    }

    pub(super) fn not_added(error: &cluster::Error) -> Self {
        Self::of(Failed::of_finalizer("adding", error)).heeding(error.retry_after)
    }

    pub(super) fn not_removed(error: &cluster::Error) -> Self {
        Self::of(Failed::of_finalizer("removing", error)).heeding(error.retry_after)
    }

    pub(super) const fn well(finished: Finished) -> Self {
        Self {
            finished,
            error: None,
            tolerated: None,
            origin: None,
            blame: Blame::UNKNOWN,
            exceeded: None,
            recalled: 0,
        }
    }

    pub(super) fn again(again: Option<Duration>) -> Self {
        Self::well(Finished::Done { finalizer_removed: false, again })
    }

    /// Returns the same, with another run at the latest after this time, unless one follows for another reason.
    pub(super) fn at_the_latest(self, after: Option<Duration>) -> Self {
        let sooner = |again: Option<Duration>| again.into_iter().chain(after).min();
        let finished = match self.finished {
            Finished::Done { finalizer_removed: false, again } => {
                Finished::Done { finalizer_removed: false, again: sooner(again) }
            }
            Finished::NoRetry { again } => Finished::NoRetry { again: sooner(again) },
            other @ (Finished::Done { finalizer_removed: true, .. }
            | Finished::Failed(_)
            | Finished::Gone
            | Finished::Postponed { .. }) => other,
        };
        Self { finished, ..self }
    }

    /// Returns the same, with how long the API server asks to be left alone, if that is why it failed (`EP-34`).
    pub(super) fn heeding(self, asked: Option<Duration>) -> Self {
        let is_outage = self.finished == Finished::Failed(queue::Failure::Outage);
        let Some(asked) = asked.filter(|_| is_outage) else {
            return self;
        };
        let other = if let NextRetry::After(other) = self.blame.next { other } else { Duration::ZERO };
        Self { blame: Blame { next: NextRetry::After(asked.max(other)), ..self.blame }, ..self }
    }

    pub(super) fn of(failed: Failed) -> Self {
        Self::failed(failed.message, failed.sort, failed.class).from(failed.origin)
    }

    pub(super) fn from(self, origin: FailureOrigin) -> Self {
        // VA-2: the same primary is as wrong the next time.
        let next = if origin == FailureOrigin::Invalid { NextRetry::Stop } else { self.blame.next };
        Self { origin: Some(origin), blame: Blame { next, ..self.blame }, ..self }
    }

    pub(super) fn failed(error: String, sort: queue::Failure, class: FailureClass) -> Self {
        let blame = Blame { class, ..Blame::UNKNOWN };
        Self { blame, error: Some(text::kept(error)), ..Self::well(Finished::Failed(sort)) }
    }
}

// === impl Failed ===

impl Failed {
    pub(super) fn of_guest(failure: Failure, sort: queue::Failure) -> Self {
        let origin = match failure.cause {
            Cause::Returned => FailureOrigin::Reconciler,
            Cause::Trap => FailureOrigin::Trap,
            Cause::Timeout => FailureOrigin::Timeout,
            Cause::OutOfMemory => FailureOrigin::OutOfMemory,
            Cause::Other => FailureOrigin::Other,
        };
        let class = blame::of_guest(failure.cause);
        Self { origin, message: failure.message, refused: None, dependents: Vec::new(), sort, class }
    }

    /// Returns the failure of a primary that is wrong.
    pub(super) fn of_primary(found: &[Invalid]) -> Self {
        let named = found.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let more = found.len().saturating_sub(NAMED);
        let message = if more == 0 { named } else { format!("{named}; and {more} more") };
        Self {
            origin: FailureOrigin::Invalid,
            message: text::kept(message),
            refused: None,
            dependents: Vec::new(),
            sort: queue::Failure::Unhandled,
            class: FailureClass::Returned,
        }
    }

    pub(super) fn of_finalizer(what: &str, error: &cluster::Error) -> Self {
        Self { message: format!("{what} the finalizer: {error}"), ..Self::of_write(error) }
    }

    pub(super) fn of_write(error: &cluster::Error) -> Self {
        Self {
            origin: FailureOrigin::Update,
            message: error.message.clone(),
            refused: Some(writes::refused(error.clone()).reason),
            dependents: Vec::new(),
            sort: sort(error),
            class: blame::of_write(error.reason),
        }
    }

    pub(super) fn of_workflow(failed: managed::Failed, sort: queue::Failure) -> Self {
        let sort = failed.sort(sort);
        let managed::Failed { dependents } = failed;
        let message = text::kept(format!("the workflow failed: {}", managed::listed(&dependents)));
        let class = blame::of_workflow(dependents.iter().map(|(_, failure)| failure.refused));
        Self {
            origin: FailureOrigin::Workflow,
            message,
            class,
            refused: (sort == queue::Failure::Conflict).then_some(CallReason::Conflict),
            dependents,
            sort,
        }
    }
}

/// Returns the kind of failure that an error of the API server is for the queue.
fn sort(error: &cluster::Error) -> queue::Failure {
    if error.is_outage() {
        queue::Failure::Outage
    } else if error.is_conflict() {
        queue::Failure::Conflict
    } else {
        queue::Failure::Unhandled
    }
}

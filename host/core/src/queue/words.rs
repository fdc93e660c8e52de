//! The words in which a queue is spoken to: its settings, events, what runs end with, and what follows.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::guest::{FailureClass, NextRetry, RetryInfo};
use crate::manifest::{RateLimit, Retry};
use crate::object::ObjectRef;

/// The settings by which a controller's keys run.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The retry policy for failures (RT rules); `None`: failures are not retried (`EP-22`).
    pub retry: Option<Retry>,
    /// The policies of single classes of failures (`RT-7`); none without a retry policy.
    pub retry_by: BTreeMap<FailureClass, Retry>,
    /// The limit of runs per window and key (RL rules); `None`: no limit.
    pub rate_limit: Option<RateLimit>,
    /// The maximal interval (`IV-1`), counted from the end of a run: a key runs at least this often. `None` or zero:
    /// a key never runs without an event.
    pub max_interval: Option<Duration>,
    /// The shortest time after which a key runs again if its run asks for that.
    pub min_reschedule: Duration,
    /// The meaning of a deletion.
    pub mode: Mode,
}

/// The meaning of a deletion to a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The end of the key: the cleanup has already been done, by finalizers.
    #[default]
    Normal,
    /// An event like any other: the key runs until a run succeeds (AE rules).
    AllEvents,
}

/// An event of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The primary was added or updated.
    PrimaryChanged {
        /// True if it is marked for deletion.
        deleting: bool,
    },
    /// The primary is gone.
    PrimaryDeleted {
        /// True if a list no longer contained it, so its final state was not seen.
        unknown: bool,
    },
    /// The primary is gone, and nothing is known of it any more that a run could be about.
    PrimaryForgotten,
    /// Anything else that concerns the primary: a secondary, a poll, an event from outside.
    Related,
}

/// Which of the keys that are due come first (`EP-13`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Something has changed.
    Fresh,
    /// Nothing has, as far as is known: the key runs because something has begun, or begun anew, or because of a timer.
    Replayed,
}

/// The queue's answer to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// Dropped, and not counted: the primary has not been seen (`EP-1`).
    Unknown,
    /// Dropped: our finalizer is removed, and nothing is left to do for the primary (`EP-2`).
    Ignored,
    /// A run that starts after this will follow.
    Marked,
    /// The primary's state is dropped: "cleanup done" (`EP-4`).
    Removed,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The run succeeded.
    Done {
        /// True if our finalizer was removed, so only the deletion event is awaited (`EP-23`).
        finalizer_removed: bool,
        /// The time after which the key runs again, but no shorter than the policy's `min_reschedule`.
        again: Option<Duration>,
    },
    /// The run failed, and the error handler wants no retry (`EC-5`).
    NoRetry {
        /// The time after which the key runs again, but no shorter than the policy's `min_reschedule`.
        again: Option<Duration>,
    },
    /// The run failed (also by a trap, a timeout or a panic).
    Failed(Failure),
    /// The primary was no longer in the cache, so nothing was done (`EP-14`).
    Gone,
    /// The controller is paused, or another daemon held the primary, so nothing was done about its end, which is still to do (`PA-2`, `PA-6`).
    Postponed {
        /// The time after which it is done; `None`: the end of the pause is an event of all keys.
        until: Option<Duration>,
    },
}

/// The kind of a failure, which decides the log level (`EP-36`) and, for an outage, the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Any other failure.
    Unhandled,
    /// The error handler has handled the failure, and wants a retry.
    Handled,
    /// The error handler has handled the failure, and wants a retry after this time, but no shorter than the policy's
    /// `min_reschedule` (`RT-5`).
    Delayed(Duration),
    /// The API server answered 409.
    Conflict,
    /// The API server could not be reached, was too busy, or failed itself. The key is not the cause.
    Outage,
}

/// What is known of a failure beside its kind, by which its retry differs; of no interest after a success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blame {
    /// The class.
    pub class: FailureClass,
    /// When the component wants the retry; a delay is no shorter than the policy's `min_reschedule` (`RT-5`). Of an outage, how long the
    /// API server asks to be left alone (`EP-34`).
    pub next: NextRetry,
}

/// The queue's answer to the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The outcome that the run counts as.
    pub outcome: Outcome,
    /// The next run of the key.
    pub next: Next,
    /// The retry state that the next run gets; `None` after a success.
    pub retry: Option<RetryInfo>,
}

/// The outcome that a run counts as, for metrics and log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A success.
    Succeeded,
    /// A failure, to be logged at this level.
    Failed(Level),
    /// Neither: the queue was stopped during the run (`LC-22`).
    Ignored,
}

/// The level at which a failure is logged (`EP-36`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It is known already: an outage goes on.
    Debug,
    /// A conflict, which the next try resolves: one line.
    Info,
    /// The key is retried.
    Warning,
    /// The key is not retried without an event, or only much later.
    Error,
}

/// The time of a key's next run after a run; an event brings any of them forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once: an event came during the run (`EP-23`, `EP-32`).
    AtOnce,
    /// After this back-off; one attempt is consumed (`EP-34`).
    Retry(Duration),
    /// After the rest of an earlier back-off, during which an event came, or after the one that took its place; no attempt
    /// is consumed (`EP-33`).
    Resume(Duration),
    /// After this pause, or soon after the API server works again; no attempt is consumed.
    Outage(Duration),
    /// The attempts are used up; after the maximal interval, if there is one (`EP-35`).
    Exhausted(Option<Duration>),
    /// After the time that the run asked for.
    Again(Duration),
    /// After the maximal interval, if there is one (`IV-1`).
    Idle(Option<Duration>),
    /// Never: our finalizer is removed, and the deletion event will follow.
    AwaitDeletion,
    /// Never: the primary is gone, and its state is dropped.
    Dropped,
    /// Once the queue is started again.
    AtStart,
}

/// The present state of a key, for diagnostics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// The key.
    pub key: ObjectRef,
    /// True while the key is in a run.
    pub in_flight: bool,
    /// The events since the key's last run began.
    pub mark: Mark,
    /// The retry state; `None` unless the last run failed.
    pub retry: Option<RetryInfo>,
    /// The time until the key runs, unless an event comes first: zero if it only waits for another run to end; `None`
    /// if it is in flight or waits for an event.
    pub due_in: Option<Duration>,
}

/// The events of a key since its last run began (`EP-2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// No event.
    None,
    /// An event, so the key runs again.
    Present,
    /// Our finalizer is removed; the deletion event is awaited.
    ProcessedDeletion,
    /// The primary is gone. In all-events mode a run follows; in normal mode this ends the key.
    DeletePresent,
    /// The primary is gone, and another event came after that; in all-events mode only.
    AdditionalAfterDelete,
}

/// The number of keys, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Keys with state: about as many as primaries exist.
    pub keys: usize,
    /// Keys that could run now if `concurrency` permitted.
    pub due: usize,
    /// Keys in a run.
    pub in_flight: usize,
}

/// The end of a primary, as a run in all-events mode learns of it (`AE-2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// True if a list no longer contained it, so its final state was not seen.
    pub unknown: bool,
}

impl Default for Policy {
    /// Returns the default: five retries (`RT-1`), no rate limit, a maximal interval of ten hours (`IV-1`), no
    /// minimal time before a run that was asked for.
    fn default() -> Self {
        Self {
            retry: Some(Retry::default()),
            retry_by: BTreeMap::new(),
            rate_limit: None,
            max_interval: Some(Duration::from_hours(10)),
            min_reschedule: Duration::ZERO,
            mode: Mode::Normal,
        }
    }
}

impl Blame {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { class: FailureClass::Other, next: NextRetry::Declared };
}

impl Finished {
    /// Success, without a removed finalizer or a time for the next run.
    pub const DONE: Self = Self::Done { finalizer_removed: false, again: None };

    /// Returns the same result, but with the time that the run asked for raised to `least` if it is shorter.
    pub(super) fn no_sooner_than(self, least: Duration) -> Self {
        let later = |again: Option<Duration>| again.map(|again| again.max(least));
        match self {
            Self::Done { finalizer_removed, again } => Self::Done { finalizer_removed, again: later(again) },
            Self::NoRetry { again } => Self::NoRetry { again: later(again) },
            Self::Failed(Failure::Delayed(after)) => Self::Failed(Failure::Delayed(after.max(least))),
            Self::Failed(_) | Self::Gone | Self::Postponed { .. } => self,
        }
    }

    /// Returns true if the run failed, and the component has dealt with the failure (`EC-5`).
    pub fn is_handled(self) -> bool {
        match self {
            Self::Failed(Failure::Handled | Failure::Delayed(_)) | Self::NoRetry { .. } => true,
            Self::Failed(Failure::Unhandled | Failure::Conflict | Failure::Outage)
            | Self::Done { .. }
            | Self::Gone
            | Self::Postponed { .. } => false,
        }
    }

    /// Returns true if the result shows that the API server works. (A run without a request counts as one with
    /// requests.)
    pub(super) fn was_answered(self) -> bool {
        match self {
            Self::Done { .. } | Self::NoRetry { .. } | Self::Failed(Failure::Conflict) => true,
            Self::Failed(Failure::Unhandled | Failure::Handled | Failure::Delayed(_) | Failure::Outage)
            | Self::Gone
            | Self::Postponed { .. } => false,
        }
    }
}

impl Next {
    /// Returns the time until the key runs without an event; `None` if it does not.
    pub fn after(self) -> Option<Duration> {
        match self {
            Self::AtOnce | Self::AtStart => Some(Duration::ZERO),
            Self::Retry(after) | Self::Resume(after) | Self::Again(after) | Self::Outage(after) => Some(after),
            Self::Exhausted(after) | Self::Idle(after) => after,
            Self::AwaitDeletion | Self::Dropped => None,
        }
    }
}

//! The two faces of a plugin: [`Guest`], what the daemon calls, and [`Context`], what a component may ask during a call.
//!
//! The types mirror the contract in `wit/`; documents are JSON text. What crosses to a component in another process and back is
//! made for serde: lists in it that a component writes are bounded, for a few bytes may say a long one.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::room::Holding;
use crate::text;

mod context;

pub use context::{
    CallError, CallReason, CompareQuestion, Comparison, ConditionRole, Context, Event, Lifetime, NodeFailure,
    NodeResult, ObjectTarget, Operation, Page, Place, Query, RunInfo, Selection, WorkflowCall, WorkflowResult,
    WriteMode, WriteOptions, WriteRequest, WriteVerb,
};

/// A loaded component.
pub trait Guest: Send + Sync + 'static {
    /// Opens a session for one run: its calls share an instance while they come one after another; a call beside
    /// another gets its own; a trap ends the instance. Nothing is started before the first call.
    fn open(&self, run: Arc<dyn Context>) -> Box<dyn Session>;

    /// Opens a session for calls made on behalf of a session that is in a call itself: in an instance of its own, on the
    /// permit of the other (rule 8 of the contract).
    fn open_nested(&self, run: Arc<dyn Context>) -> Box<dyn Session>;

    /// Returns what the component exports.
    fn exports(&self) -> Exports;

    /// Returns what is borrowed for what the daemon makes and keeps on the plugin's behalf: nothing yet. None: nobody counts it.
    fn holding(&self) -> Option<Holding> {
        None
    }
}

/// Which interfaces a component exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one fact per optional interface")]
pub struct Exports {
    /// `reconciler`
    pub reconciler: bool,
    /// `cleaner`
    pub cleaner: bool,
    /// `error-handler`
    pub error_handler: bool,
    /// `dependent`
    pub dependent: bool,
    /// `matcher`
    pub matcher: bool,
    /// `condition`
    pub condition: bool,
}

/// The calls of one run.
pub trait Session: Send + Sync {
    /// Brings the world in line with a primary.
    fn reconcile<'a>(&'a self, primary: &'a str) -> BoxFuture<'a, Result<UpdateControl, Failure>>;
    /// Tidies up before a primary goes.
    fn cleanup<'a>(&'a self, primary: &'a str) -> BoxFuture<'a, Result<DeleteControl, Failure>>;
    /// Decides what a failed run leaves behind.
    fn handle_error<'a>(
        &'a self,
        primary: &'a str,
        failed: &'a FailureInfo,
    ) -> BoxFuture<'a, Result<ErrorControl, Failure>>;
    /// Returns the object that a dependent should be.
    fn desired<'a>(&'a self, name: &'a str, primary: &'a str) -> BoxFuture<'a, Result<String, Failure>>;
    /// Says whether a dependent is as desired, in the component's own way.
    fn matches<'a>(&'a self, question: MatchQuestion<'a>) -> BoxFuture<'a, Result<MatchResult, Failure>>;
    /// Says whether a condition is met for a dependent.
    fn is_met<'a>(
        &'a self,
        name: &'a str,
        dependent: &'a str,
        primary: &'a str,
    ) -> BoxFuture<'a, Result<ConditionResult, Failure>>;
}

/// The arguments of [`Session::matches`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MatchQuestion<'a> {
    /// The matcher, as the manifest names it.
    pub name: &'a str,
    /// The object as it is.
    pub actual: &'a str,
    /// The object as it should be.
    pub desired: &'a str,
    /// The primary.
    pub primary: &'a str,
}

/// Why a call did not do its job. Made by [`Failure::new`], which bounds what it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct Failure {
    /// How it failed.
    pub cause: Cause,
    /// The explanation, for people: one line, bounded.
    pub message: String,
}

/// How a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The component returned an error.
    Returned,
    /// The component trapped.
    Trap,
    /// The call took longer than the manifest allows.
    Timeout,
    /// The component wanted more memory than the manifest allows.
    OutOfMemory,
    /// The daemon could not make the call, or not understand its answer.
    Other,
}

/// What to write to the primary, and when to come back (UC rules).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateControl {
    /// What to write.
    pub update: PrimaryUpdate,
    /// Run again after this time; none = at the next event.
    pub reschedule: Option<Duration>,
}

/// What to write to the primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PrimaryUpdate {
    /// Nothing.
    Nothing,
    /// The object without its status.
    Object(String),
    /// The `status` of this object.
    Status(String),
    /// The object, then its status.
    ObjectAndStatus(String),
}

/// Whether the primary may go (DC rules).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeleteControl {
    /// Yes.
    RemoveFinalizer,
    /// Not yet; called again at the next event, or after this time.
    KeepFinalizer(Option<Duration>),
}

/// What failed, as an error handler is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureInfo {
    /// Where it comes from.
    pub origin: FailureOrigin,
    /// The text of the failure.
    pub message: String,
    /// How the API server refused, or could not be asked, if that is why.
    pub refused: Option<CallReason>,
    /// The dependents that failed; empty unless the origin is the workflow (`WF-9`).
    pub dependents: Vec<(String, NodeFailure)>,
    /// The retry state (`EC-2`).
    pub retry: RetryInfo,
}

/// Where a failure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureOrigin {
    /// `reconcile` returned it.
    Reconciler,
    /// The managed workflow.
    Workflow,
    /// The write that `reconcile` asked for.
    Update,
    /// The component trapped.
    Trap,
    /// The call took too long.
    Timeout,
    /// The component wanted too much memory.
    OutOfMemory,
    /// Anything else.
    Other,
}

/// What to do about a failure (EC rules).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorControl {
    /// Log it and retry.
    Unhandled,
    /// It is dealt with.
    Handled {
        /// An object whose status is written.
        status: Option<String>,
        /// How to go on.
        next: NextStep,
    },
}

/// How to go on after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NextStep {
    /// Retry by the policy.
    Retry,
    /// Wait for the next event.
    Stop,
    /// Run again after this time, without counting it as a retry.
    Reschedule(Duration),
}

/// How often the primary has failed in a row (RT rules).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryInfo {
    /// The number of retries so far; 0 at the first failure.
    pub attempt: u32,
    /// True if no retry follows a failure of this run.
    pub last: bool,
}

/// Whether an object is as desired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchResult {
    /// It is.
    Matches,
    /// It is not; the text says what differs.
    Differs(String),
}

/// Whether a condition is met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionResult {
    /// True if it is.
    pub met: bool,
    /// Anything worth keeping, as JSON (`WF-8`).
    pub detail: Option<String>,
}

impl Failure {
    /// Returns a failure. Whoever the message is from, it is kept as one line of bounded length.
    pub fn new(cause: Cause, message: impl AsRef<str>) -> Self {
        Self { cause, message: text::said(message.as_ref()).into_owned() }
    }

    /// Returns a failure of the daemon's own making.
    pub fn other(message: impl AsRef<str>) -> Self {
        Self::new(Cause::Other, message)
    }
}

impl ConditionResult {
    /// Returns that a condition is met.
    pub fn met() -> Self {
        Self { met: true, detail: None }
    }

    /// Returns that a condition is not met, for this reason.
    pub fn unmet(reason: &str) -> Self {
        Self { met: false, detail: Some(serde_json::Value::from(reason).to_string()) }
    }
}

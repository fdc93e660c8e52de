//! Defines the two sides of a plugin: [`Guest`], the calls of the daemon, and [`Context`], the calls that a component
//! may make in return.
//!
//! The types mirror the contract in `wit/`; documents are JSON text. Types that cross to a component in another
//! process and back derive serde's traits. Lists in them that a component writes are bounded, because a few bytes may
//! stand for a long list.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::object::ObjectRef;
use crate::room::Holding;
use crate::text;
use crate::wire;

mod call;
mod context;
mod invalid;

pub use call::{Answer, Call, Function, Interface, Session};
pub use context::{
    CallError, CallReason, CompareQuestion, Comparison, ConditionRole, Context, Event, Expectation, Lifetime,
    NodeFailure, NodeResult, ObjectTarget, Operation, Page, Place, Query, RunInfo, Selection, WorkflowCall,
    WorkflowResult, WriteMode, WriteOptions, WriteRequest, WriteVerb,
};
pub use invalid::{Found, Invalid};

/// A loaded component.
pub trait Guest: Send + Sync + 'static {
    /// Opens a session for one run. Calls that come one after another share an instance; a concurrent call gets its
    /// own; a trap ends the instance. No instance is started before the first call.
    fn open(&self, run: Arc<dyn Context>) -> Box<dyn Session>;

    /// Opens a session for calls made on behalf of a session that is in a call itself. It uses an instance of its own
    /// and the permit of the other session (rule 8 of the contract).
    fn open_nested(&self, run: Arc<dyn Context>) -> Box<dyn Session>;

    /// Returns true if the component exports an interface.
    fn exports(&self, interface: Interface) -> bool;

    /// Returns which names the component answers to; `None` if it does not say (`LC-15`).
    fn description(&self) -> Option<&Description> {
        None
    }

    /// Returns an empty holding, to which memory that the daemon uses on the plugin's behalf is charged. `None`: that
    /// memory is not counted.
    fn holding(&self) -> Option<Holding> {
        None
    }

    /// Returns the same for what lasts longer than a call.
    fn lasting(&self) -> Option<Holding> {
        self.holding().map(Holding::lasting)
    }
}

/// A failed call. Made by [`Failure::new`], which bounds the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct Failure {
    /// The kind of failure.
    pub cause: Cause,
    /// The explanation, for people: one line, bounded.
    pub message: String,
}

/// The kinds of failure of a call.
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
    /// The daemon could not make the call, or could not read its answer.
    Other,
}

/// The answer of `reconcile`: what to write to the primary, and when to run again (UC rules).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateControl {
    /// The write to the primary.
    pub update: PrimaryUpdate,
    /// Run again after this time; `None`: at the next event.
    pub reschedule: Option<Duration>,
}

/// A write to the primary.
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

/// The answer of `cleanup`: whether the primary may be deleted (DC rules).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeleteControl {
    /// Yes: the finalizer is removed.
    RemoveFinalizer,
    /// Not yet; `cleanup` is called again at the next event, or after this time.
    KeepFinalizer(Option<Duration>),
}

/// A failure, as it is passed to an error handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureInfo {
    /// The origin of the failure.
    pub origin: FailureOrigin,
    /// The text of the failure.
    pub message: String,
    /// Why the API server refused, or could not be asked, if that is the cause.
    pub refused: Option<CallReason>,
    /// The dependents that failed; empty unless the origin is the workflow (`WF-9`).
    pub dependents: Vec<(String, NodeFailure)>,
    /// The retry state (`EC-2`).
    pub retry: RetryInfo,
}

/// The origin of a failure.
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
    /// `validate` found the primary wrong (`VA-1`).
    Invalid,
    /// Anything else.
    Other,
}

/// The classes of failures, by which retries may differ (`RT-7`). An outage of the API server is none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FailureClass {
    /// The component returned an error.
    Returned,
    /// Dependents of the managed workflow failed, and not all of them for a conflict, or for a refusal.
    Workflow,
    /// A write met a newer version.
    Conflict,
    /// A write was refused.
    Rejected,
    /// The component trapped.
    Trap,
    /// A call, or the run, took too long.
    Timeout,
    /// The component wanted too much memory.
    OutOfMemory,
    /// Anything else.
    #[default]
    Other,
}

/// The answer of an error handler (EC rules).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorControl {
    /// Log it and retry.
    Unhandled,
    /// The component has handled the failure.
    Handled {
        /// An object whose status is written.
        status: Option<String>,
        /// The next step.
        next: NextStep,
    },
}

/// The next step after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NextStep {
    /// Retry by the policy.
    Retry,
    /// Retry after this time, in place of the policy's delay (`RT-5`).
    RetryAfter(Duration),
    /// Wait for the next event.
    Stop,
    /// Run again after this time, without counting it as a retry.
    Reschedule(Duration),
}

/// A failed run, as it is passed to a retry policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRun {
    /// The class of the failure.
    pub class: FailureClass,
    /// The text of the failure.
    pub message: String,
    /// The retry state (`EC-2`).
    pub retry: RetryInfo,
}

/// The answer of a retry policy (`RT-5`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NextRetry {
    /// As the manifest says.
    #[default]
    Declared,
    /// After this time, in place of the delay that the manifest says.
    After(Duration),
    /// Not at all: wait for the next event.
    Stop,
}

/// The retry state of a primary: how often it has failed in a row (RT rules).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryInfo {
    /// The number of retries so far; 0 at the first failure.
    pub attempt: u32,
    /// True if no retry follows a failure of this run.
    pub last: bool,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchResult {
    /// The object is as desired.
    Matches,
    /// The object is not as desired; the text says what differs.
    Differs(String),
}

/// The answer of a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionResult {
    /// True if the condition is met.
    pub met: bool,
    /// Any detail worth keeping, as JSON (`WF-8`).
    pub detail: Option<String>,
}

/// The answer of `desired-set`: the objects of a bulk dependent (`BD-1`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredSet {
    /// The objects, as JSON.
    #[serde(deserialize_with = "wire::few")]
    pub objects: Vec<String>,
}

/// The answer of `create`: a thing outside of the cluster that there is now (`XD-2`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    /// The thing, as JSON.
    pub actual: String,
    /// The Kubernetes object that remembers its id, as JSON; only if the manifest wants one.
    pub state: Option<String>,
}

/// The answer of `poll`: things outside of the cluster, by primary (`PP-1`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolledAll {
    /// The primaries that have any.
    #[serde(deserialize_with = "wire::few")]
    pub primaries: Vec<PrimaryThings>,
}

/// The things of one primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrimaryThings {
    /// The primary.
    pub primary: ObjectRef,
    /// The things, as JSON.
    #[serde(deserialize_with = "wire::few")]
    pub things: Vec<String>,
}

/// The answer of `poll-one`: the things of one primary outside of the cluster (`PP-2`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolledOne {
    /// The things, as JSON.
    #[serde(deserialize_with = "wire::few")]
    pub things: Vec<String>,
    /// The time until they are to be read again; `None`: as the manifest says.
    pub again: Option<Duration>,
}

/// A request from outside, as `receive` is told of it (IB rules).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundRequest {
    /// What follows the source's own address, with the query.
    pub path: String,
    /// The headers, names in small letters.
    #[serde(deserialize_with = "wire::few")]
    pub headers: Vec<(String, String)>,
    /// The body, as a text or in base64.
    pub body: String,
}

/// The answer of `receive`: what to answer the request with, and what was learned from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
    /// What was learned, in order.
    #[serde(deserialize_with = "wire::few")]
    pub events: Vec<SourceEvent>,
}

/// Something that a source has learned about a primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceEvent {
    /// The primary.
    pub primary: ObjectRef,
    /// What was learned.
    pub learned: Learned,
}

/// What a source has learned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Learned {
    /// That the primary should run (`IB-1`).
    Wake,
    /// A thing, as JSON, that is there or has changed (`IB-2`).
    Present(String),
    /// The id of a thing that is gone (`IB-2`).
    Gone(String),
}

/// A change of an object, as `accepts` is asked about it (`IS-1`): objects as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Changed<'a> {
    /// It is new.
    Added(&'a str),
    /// It has changed.
    Updated {
        /// As it was.
        before: &'a str,
        /// As it is.
        after: &'a str,
    },
    /// It is gone.
    Deleted {
        /// As it was last seen.
        last: &'a str,
        /// True if the deletion was missed.
        unknown: bool,
    },
}

/// The answer of `to-primaries` and `to-secondaries`: objects by their names (`IM-3`, `IM-4`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The objects. One without a namespace is in that of the object that was asked about.
    #[serde(deserialize_with = "wire::few")]
    pub keys: Vec<ObjectRef>,
}

/// The answer of `describe`: which names the exports of a component answer to (`LC-15`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The names by interface and controller. All entries that are for a controller, and for all of them, count together.
    #[serde(deserialize_with = "wire::few")]
    pub entries: Vec<KnownNames>,
}

/// The names that an exported interface answers to, for one controller or for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownNames {
    /// The interface, by its name in the contract.
    pub exported: String,
    /// The controller; `None`: all of them.
    pub controller: Option<String>,
    /// The names.
    pub names: Names,
}

/// Names that an exported interface answers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Names {
    /// These.
    These(#[serde(deserialize_with = "wire::few")] Vec<String>),
    /// The interface's function takes no name, or only the component knows at run time which names there are.
    Open,
}

impl Description {
    /// The most names that there may be, and the longest, in bytes.
    pub const NAMES: usize = 1024;
    const LONGEST: usize = 253;

    /// Returns it, if it is no more than it may be.
    ///
    /// # Errors
    /// What is too much of it.
    pub fn bounded(self) -> Result<Self, String> {
        let names = self.entries.iter().map(|entry| match &entry.names {
            Names::These(names) => names.as_slice(),
            Names::Open => &[],
        });
        let count = self.entries.len().max(names.clone().map(<[_]>::len).sum());
        if count > Self::NAMES {
            return Err(format!("it describes {count} names, and may describe {}", Self::NAMES));
        }
        let others = self.entries.iter().flat_map(|entry| entry.controller.iter().chain([&entry.exported]));
        match names.flatten().chain(others).map(String::len).max() {
            Some(length) if length > Self::LONGEST => {
                Err(format!("it describes a name of {length} bytes, and may one of {}", Self::LONGEST))
            }
            Some(_) | None => Ok(self),
        }
    }
}

impl FailureClass {
    /// All there are.
    pub const ALL: &[Self] = &[
        Self::Returned,
        Self::Workflow,
        Self::Conflict,
        Self::Rejected,
        Self::Trap,
        Self::Timeout,
        Self::OutOfMemory,
        Self::Other,
    ];

    /// Returns its name in a manifest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Returned => "returned",
            Self::Workflow => "workflow",
            Self::Conflict => "conflict",
            Self::Rejected => "rejected",
            Self::Trap => "trap",
            Self::Timeout => "timeout",
            Self::OutOfMemory => "outOfMemory",
            Self::Other => "other",
        }
    }
}

impl Failure {
    /// Returns a failure. The message is kept as one line of bounded length, whatever its source.
    pub fn new(cause: Cause, message: impl AsRef<str>) -> Self {
        Self { cause, message: text::said(message.as_ref()).into_owned() }
    }

    /// Returns a failure with [`Cause::Other`].
    pub fn other(message: impl AsRef<str>) -> Self {
        Self::new(Cause::Other, message)
    }
}

impl ConditionResult {
    /// Returns the answer that a condition is met.
    pub fn met() -> Self {
        Self { met: true, detail: None }
    }

    /// Returns the answer that a condition is not met, for this reason.
    pub fn unmet(reason: &str) -> Self {
        Self { met: false, detail: Some(serde_json::Value::from(reason).to_string()) }
    }
}

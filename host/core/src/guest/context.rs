//! Defines what a component may ask during a run: [`Context`] with its arguments and answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{ConditionResult, MatchResult, RetryInfo};
use crate::cluster::Deletion;
use crate::object::{Gvk, ObjectRef};
use crate::text;
use crate::wire;

/// The imports of a component that concern its run, or the call that it is in beside all runs. Permissions have been checked before
/// these are called.
pub trait Context: Send + Sync + 'static {
    /// Returns the facts about the run that are known from its start.
    fn info(&self) -> RunInfo;
    /// Returns the counter of requests that the component has made in this run, in all of its sessions.
    fn requests(&self) -> &AtomicU32;
    /// Takes in that whoever waits for an answer has gone: if there is none, nobody else is to blame.
    fn asker_gone(&self) {}
    /// Returns when the run is given up, whatever a call of it may still take; `None`: a call's own time alone counts.
    fn until(&self) -> Option<Instant> {
        None
    }
    /// Returns true if an event for this primary is already waiting (`EP-24`).
    fn next_imminent(&self) -> bool;
    /// Returns the current settings, as a JSON object.
    fn settings(&self) -> String;
    /// Returns a page of objects from the caches; those that a bounded cache has forgotten, from the API server. Waits only for
    /// these, and for things outside of the cluster that have not been read yet.
    fn find_all(&self, query: Query) -> BoxFuture<'_, Result<Page, CallError>>;
    /// Returns the one object of a place that belongs to the primary. Waits as [`Context::find_all`].
    fn find_one(&self, place: Place) -> BoxFuture<'_, Result<Option<String>, CallError>>;
    /// Returns an object by its name. Waits as [`Context::find_all`].
    fn find_named(&self, place: Place, key: ObjectRef) -> BoxFuture<'_, Result<Option<String>, CallError>>;
    /// Writes an object and returns it as it is afterwards.
    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<String, CallError>>;
    /// Deletes an object.
    fn remove(&self, target: ObjectTarget, deletion: Deletion) -> BoxFuture<'_, Result<(), CallError>>;
    /// Adds a finalizer to the primary (`None`: the controller's) and returns the primary as it is afterwards.
    fn add_finalizer(&self, finalizer: Option<String>) -> BoxFuture<'_, Result<String, CallError>>;
    /// Removes a finalizer from the primary (`None`: the controller's) and returns the primary as it is afterwards.
    fn remove_finalizer(&self, finalizer: Option<String>) -> BoxFuture<'_, Result<String, CallError>>;
    /// Compares two documents without writing.
    fn compare(&self, question: CompareQuestion) -> Result<MatchResult, CallError>;
    /// Runs a workflow or a dependent explicitly, for a call that has to be over `by` then.
    fn workflow(&self, call: WorkflowCall, by: Instant) -> BoxFuture<'_, Result<WorkflowResult, CallError>>;
    /// Returns the result that the managed workflow (`None`), or a standalone one, has had in this run; `None` if it
    /// has not run.
    fn last_result(&self, name: Option<&str>) -> Option<WorkflowResult>;
    /// Registers a source, and waits until it is filled, or it is `by` then. Returns false if there is one of that name (`ES-4`).
    fn register(&self, name: String, declaration: String, by: Instant) -> BoxFuture<'_, Result<bool, CallError>>;
    /// Ends a source that was registered (`ES-4`).
    fn deregister(&self, name: &str) -> Result<(), CallError>;
    /// Takes in a thing that the run has made, or put in the place of another, outside of the cluster (`XC-4`).
    fn remember(&self, source: &str, actual: String, replaced: Option<String>) -> Result<(), CallError>;
    /// Takes in that the run has removed a thing outside of the cluster (`XC-4`).
    fn forget(&self, source: &str, id: &str) -> Result<(), CallError>;
    /// Returns a value kept for the run or the primary.
    fn memo(&self, lifetime: Lifetime, key: &str) -> Option<String>;
    /// Sets or removes (`None`) a value kept for the run or the primary.
    fn set_memo(&self, lifetime: Lifetime, key: &str, value: Option<String>) -> Result<(), CallError>;
    /// Expects something of the primary, in place of anything else (`XP-1`).
    fn expect(&self, name: &str, timeout: Duration) -> Result<(), CallError>;
    /// Returns what is expected of the primary.
    fn pending_expectation(&self) -> Option<Expectation>;
    /// Expects nothing more of the primary, if this was expected. Returns whether it was.
    fn clear_expectation(&self, name: &str) -> bool;
    /// Records a Kubernetes Event about the primary. Never waits, never fails (`ER-6`).
    fn publish(&self, event: Event);
}

/// The facts about a run that are known from its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The controller's name.
    #[serde(with = "wire::shared")]
    pub controller: Arc<str>,
    /// The primary; `None` in a call for all of them.
    pub primary: Option<ObjectRef>,
    /// True if the call belongs to no run.
    pub beside: bool,
    /// The retry state; `None` if the run is not a retry.
    pub retry: Option<RetryInfo>,
    /// In all-events mode: the primary is gone (`AE-2`).
    pub primary_deleted: bool,
    /// In all-events mode: the deletion was missed (`AE-2`).
    pub final_state_unknown: bool,
}

/// The caches that a question is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// One source.
    Source(String),
    /// All sources of a kind.
    Kind(Gvk),
    /// The primaries of this controller.
    Primaries,
}

/// The objects of a place that a question is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Selection {
    /// Those that belong to the primary (`IM-6`).
    Related,
    /// All in one namespace.
    Namespaced(String),
    /// All.
    Everywhere,
    /// Those under a key of an index (IX rules).
    Indexed {
        /// The index.
        index: String,
        /// The key.
        key: String,
    },
}

/// A question for many objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    /// The place.
    pub place: Place,
    /// The selection of objects in the place.
    pub selection: Selection,
    /// A label selector, as for kubectl; `None`: all objects.
    pub labels: Option<String>,
    /// JSON pointers of the fields to return; empty: all fields.
    #[serde(deserialize_with = "wire::few")]
    pub fields: Vec<String>,
    /// True to return only the newest version of an object that several sources hold.
    pub newest_only: bool,
    /// The most objects to return; `None`: as many as the manifest allows.
    pub limit: Option<u32>,
    /// The `next` of the previous page.
    pub after: Option<String>,
}

/// Part of a long answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The objects, ordered by namespace and name.
    pub items: Vec<String>,
    /// Where the next page begins; `None` on the last page.
    pub next: Option<String>,
}

/// An object as a component names it, before the daemon knows its scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectTarget {
    /// Its kind.
    pub gvk: Gvk,
    /// Its name.
    pub key: ObjectRef,
}

/// A write that a component asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteRequest {
    /// The verb and the document.
    pub verb: WriteVerb,
    /// The options.
    pub options: WriteOptions,
}

/// The ways in which a component can ask for a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteVerb {
    /// POST of this object.
    Create(String),
    /// Server-side apply of this object; with force only if the object belongs to the primary.
    Apply(String),
    /// Server-side apply of this object, with force.
    ForceApply(String),
    /// PUT of this object.
    Update(String),
    /// The JSON patch from the cached object to this one.
    Edit(String),
    /// A JSON patch.
    JsonPatch(ObjectTarget, String),
    /// A JSON merge patch.
    MergePatch(ObjectTarget, String),
}

/// The options of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteOptions {
    /// How the write is treated.
    pub mode: WriteMode,
    /// How the object is compared; `None`: as the mode says.
    pub compare_by: Option<Comparison>,
    /// The subresource to write.
    pub subresource: Option<String>,
    /// The source that the write concerns, if several watch the kind.
    pub source: Option<String>,
    /// An object to compare with instead of the cached one.
    pub actual: Option<String>,
}

/// How a write is treated (`RO-3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteMode {
    /// The verb's default (`RO-4`).
    #[default]
    Usual,
    /// The object is not written if it matches; the event of the write causes no run.
    MatchAndFilter,
    /// A newer version is a conflict; the event causes no run.
    Optimistic,
    /// The answer is put into the caches; the event causes a run.
    CacheOnly,
    /// The object is written in any case; the event causes no run.
    ForceFilter,
    /// A plain write, as by any client, without the caches.
    Plain,
}

/// The ways to compare objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// The comparison that fits the verb (`RO-6`).
    ByVerb,
    /// By our managed fields (SSA rules).
    Applied,
    /// By differences; additions are tolerated (GM rules).
    Generic,
    /// By differences under `status` only (`GM-4`).
    StatusOnly,
    /// Everything must be equal.
    Equality,
}

/// The arguments of [`Context::compare`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompareQuestion {
    /// The way to compare.
    pub by: Comparison,
    /// The object as it is.
    pub actual: String,
    /// The object as it should be.
    pub desired: String,
    /// JSON pointers under which differences do not count.
    #[serde(deserialize_with = "wire::few")]
    pub ignore: Vec<String>,
}

/// A workflow or dependent to run explicitly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkflowCall {
    /// Reconcile the managed workflow (`None`) or a standalone one.
    Reconcile(Option<String>),
    /// Clean up the managed workflow (`None`) or a standalone one.
    Cleanup(Option<String>),
    /// Reconcile one standalone dependent.
    ReconcileDependent(String),
    /// Delete one standalone dependent.
    RemoveDependent(String),
}

/// The result of a workflow (`WF-8`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowResult {
    /// The nodes that were reached, in the order of the graph.
    pub nodes: Vec<NodeResult>,
    /// True if no node failed and no postcondition is unmet.
    pub complete: bool,
}

/// The result of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeResult {
    /// The dependent's name.
    pub name: String,
    /// The operation on each object; empty if the node failed or was inactive.
    pub done: Vec<(String, Operation)>,
    /// The conditions that were evaluated.
    pub conditions: Vec<(ConditionRole, ConditionResult)>,
    /// Why the node failed; `None` if it did not.
    pub failed: Option<NodeFailure>,
}

/// The failure of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFailure {
    /// The text of the failure.
    pub message: String,
    /// Why the API server refused, or could not be asked, if that is the cause.
    pub refused: Option<CallReason>,
}

/// The operation that a run has done on an object (`DR-2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// No operation: the object is as desired, or read only.
    Unchanged,
    /// It was created.
    Created,
    /// It was updated.
    Updated,
    /// It was deleted.
    Deleted,
}

/// The roles of a condition (`WF-1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConditionRole {
    /// The node takes part.
    Activation,
    /// The dependent should exist.
    ReconcilePrecondition,
    /// Nodes that depend on it may be visited.
    ReadyPostcondition,
    /// Nodes that it depends on may be deleted.
    DeletePostcondition,
}

/// The time for which a value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    /// As long as the run.
    Run,
    /// As long as the primary.
    Primary,
    /// As long as the plugin's version is loaded.
    Plugin,
}

/// What is expected of a primary (XP rules).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// Its name.
    pub name: String,
    /// True once its time is over.
    pub timed_out: bool,
}

/// A Kubernetes Event (ER rules).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// True for `Warning`, false for `Normal`.
    pub warning: bool,
    /// One word in CamelCase.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Events with the same key are counted as one.
    pub key: Option<String>,
    /// The action that was under way.
    pub action: Option<String>,
    /// The part of the component that reports it.
    pub component: Option<String>,
    /// Labels of the Event.
    #[serde(deserialize_with = "wire::few_pairs")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Event.
    #[serde(deserialize_with = "wire::few_pairs")]
    pub annotations: BTreeMap<String, String>,
}

impl Event {
    /// Returns a Warning that the daemon itself records; those with the same reason and key are counted as one.
    pub fn warning(reason: &str, message: String, key: String) -> Self {
        Self {
            warning: true,
            reason: reason.to_owned(),
            message,
            key: Some(key),
            action: None,
            component: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }
}

/// The error of an import. Made by [`CallError::new`], which bounds the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
#[non_exhaustive]
pub struct CallError {
    /// The reason.
    pub reason: CallReason,
    /// The API server's HTTP status; 0 if it was not asked.
    pub code: u16,
    /// The explanation.
    pub message: String,
}

/// The reasons for which an import fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallReason {
    /// The manifest does not permit it.
    Denied,
    /// An argument is wrong.
    Invalid,
    /// Not possible in this call.
    Misplaced,
    /// It does not exist.
    Missing,
    /// There are several objects, and one was asked for.
    Ambiguous,
    /// Another client has created or changed the object in the meantime.
    Conflict,
    /// The API server has rejected the request.
    Rejected,
    /// The API server could not be reached, or failed.
    Unreachable,
    /// A workflow ran and a node failed.
    Failed,
    /// A limit of the manifest is reached.
    Exhausted,
    /// Anything else.
    Other,
}

impl From<String> for NodeFailure {
    /// Returns a failure without a reason of the API server.
    fn from(message: String) -> Self {
        Self { message, refused: None }
    }
}

impl CallError {
    /// Returns an error that does not come from the API server: its code is 0.
    pub fn new(reason: CallReason, message: impl AsRef<str>) -> Self {
        Self { reason, code: 0, message: text::said(message.as_ref()).into_owned() }
    }
}

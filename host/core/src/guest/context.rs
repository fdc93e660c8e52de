//! What a component may ask during a run: [`Context`] and the questions and answers that cross it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::{ConditionResult, MatchResult, RetryInfo};
use crate::cluster::Deletion;
use crate::object::{Gvk, ObjectRef};
use crate::text;
use crate::wire;

/// What a component may ask during a call: the imports that concern the run. Permissions have been checked by then.
pub trait Context: Send + Sync + 'static {
    /// Returns what is known about the run from its start.
    fn info(&self) -> RunInfo;
    /// Returns the number of requests that the component has asked for in this run, in whichever of its sessions.
    fn requests(&self) -> &AtomicU32;
    /// Says whether an event for this primary is waiting already (`EP-24`).
    fn next_imminent(&self) -> bool;
    /// Returns the settings in force, as a JSON object.
    fn settings(&self) -> String;
    /// Returns many objects out of the caches.
    fn find_all(&self, query: Query) -> Result<Page, CallError>;
    /// Returns the one object that belongs to the primary.
    fn find_one(&self, place: Place) -> Result<Option<String>, CallError>;
    /// Returns an object by its name.
    fn find_named(&self, place: Place, key: ObjectRef) -> Result<Option<String>, CallError>;
    /// Writes, and returns the object as it is then.
    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<String, CallError>>;
    /// Deletes.
    fn remove(&self, target: ObjectTarget, deletion: Deletion) -> BoxFuture<'_, Result<(), CallError>>;
    /// Adds a finalizer to the primary (none = the controller's), and returns the primary as it is then.
    fn add_finalizer(&self, finalizer: Option<String>) -> BoxFuture<'_, Result<String, CallError>>;
    /// Removes a finalizer from the primary (none = the controller's), and returns the primary as it is then.
    fn remove_finalizer(&self, finalizer: Option<String>) -> BoxFuture<'_, Result<String, CallError>>;
    /// Compares without writing.
    fn compare(&self, question: CompareQuestion) -> Result<MatchResult, CallError>;
    /// Runs a workflow or a dependent by hand.
    fn workflow(&self, call: WorkflowCall) -> BoxFuture<'_, Result<WorkflowResult, CallError>>;
    /// Returns what became of the managed workflow (none), or of a standalone one, in this run.
    fn last_result(&self, name: Option<&str>) -> Option<WorkflowResult>;
    /// Returns a value kept for the run or the primary.
    fn memo(&self, lifetime: Lifetime, key: &str) -> Option<String>;
    /// Sets or removes (none) a value kept for the run or the primary.
    fn set_memo(&self, lifetime: Lifetime, key: &str, value: Option<String>) -> Result<(), CallError>;
    /// Records a Kubernetes Event about the primary. Never waits, never fails (`ER-6`).
    fn publish(&self, event: Event);
}

/// What is known about a run from its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The controller's name.
    #[serde(with = "wire::shared")]
    pub controller: Arc<str>,
    /// The primary.
    pub primary: ObjectRef,
    /// The retry state; none on a fresh run.
    pub retry: Option<RetryInfo>,
    /// In all-events mode: the primary is gone (`AE-2`).
    pub primary_deleted: bool,
    /// In all-events mode: the deletion was missed (`AE-2`).
    pub final_state_unknown: bool,
}

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// One source.
    Source(String),
    /// All sources of a kind.
    Kind(Gvk),
    /// The primaries of this controller.
    Primaries,
}

/// Which objects of a place.
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
    /// Where to look.
    pub place: Place,
    /// Which objects.
    pub selection: Selection,
    /// A label selector, as for kubectl; none = all.
    pub labels: Option<String>,
    /// JSON pointers of the fields to return; empty = all.
    #[serde(deserialize_with = "wire::few")]
    pub fields: Vec<String>,
    /// Of an object that several sources hold, only the newest version.
    pub newest_only: bool,
    /// At most so many; none = as many as the manifest allows.
    pub limit: Option<u32>,
    /// The `next` of the page before.
    pub after: Option<String>,
}

/// Part of a long answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The objects, ordered by namespace and name.
    pub items: Vec<String>,
    /// Where the next page begins; none = this was the last.
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
    /// How, and what.
    pub verb: WriteVerb,
    /// The fine print.
    pub options: WriteOptions,
}

/// How a component wants something written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteVerb {
    /// POST of this object.
    Create(String),
    /// Server-side apply of this object: by force only if it is the primary's.
    Apply(String),
    /// Server-side apply of this object, by force.
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

/// The fine print of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteOptions {
    /// How it is treated.
    pub mode: WriteMode,
    /// How it is compared; none = as the mode says.
    pub compare_by: Option<Comparison>,
    /// The subresource to write.
    pub subresource: Option<String>,
    /// The source that it concerns, if several watch the kind.
    pub source: Option<String>,
    /// An object to compare with instead of the cached one.
    pub actual: Option<String>,
}

/// How a write is treated (`RO-3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteMode {
    /// As is usual for the verb (`RO-4`).
    #[default]
    Usual,
    /// Not written if it matches; the event of the write causes no run.
    MatchAndFilter,
    /// A newer version is a conflict; the event causes no run.
    Optimistic,
    /// The caches get the answer; the event causes a run.
    CacheOnly,
    /// Written in any case; the event causes no run.
    ForceFilter,
    /// As from any client, caches not involved.
    Plain,
}

/// How objects are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// As fits the verb (`RO-6`).
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
    /// How.
    pub by: Comparison,
    /// The object as it is.
    pub actual: String,
    /// The object as it should be.
    pub desired: String,
    /// JSON pointers under which differences do not count.
    #[serde(deserialize_with = "wire::few")]
    pub ignore: Vec<String>,
}

/// A workflow or dependent to run by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkflowCall {
    /// Reconcile the managed workflow (none) or a standalone one.
    Reconcile(Option<String>),
    /// Clean up the managed workflow (none) or a standalone one.
    Cleanup(Option<String>),
    /// Reconcile one standalone dependent.
    ReconcileDependent(String),
    /// Delete one standalone dependent.
    RemoveDependent(String),
}

/// What became of a workflow (`WF-8`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowResult {
    /// The nodes that were reached, in the order of the graph.
    pub nodes: Vec<NodeResult>,
    /// True if no node failed and no postcondition is unmet.
    pub complete: bool,
}

/// What became of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeResult {
    /// The dependent's name.
    pub name: String,
    /// What was done with which object; empty if it failed or was inactive.
    pub done: Vec<(String, Operation)>,
    /// The conditions that were evaluated.
    pub conditions: Vec<(ConditionRole, ConditionResult)>,
    /// Why it failed.
    pub failed: Option<NodeFailure>,
}

/// Why a node failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFailure {
    /// The text of the failure.
    pub message: String,
    /// How the API server refused, or could not be asked, if that is why.
    pub refused: Option<CallReason>,
}

/// What can be done with an object (`DR-2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Nothing: it is as desired, or read only.
    Unchanged,
    /// It was created.
    Created,
    /// It was updated.
    Updated,
    /// It was deleted.
    Deleted,
}

/// What a condition is for (`WF-1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConditionRole {
    /// The node takes part.
    Activation,
    /// The dependent should exist.
    ReconcilePrecondition,
    /// What depends on it may go on.
    ReadyPostcondition,
    /// What it depends on may go.
    DeletePostcondition,
}

/// How long a value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    /// As long as the run.
    Run,
    /// As long as the primary.
    Primary,
    /// As long as the plugin's version is loaded.
    Plugin,
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
    /// What was being done.
    pub action: Option<String>,
    /// Which part of the component reports it.
    pub component: Option<String>,
    /// Labels of the Event.
    #[serde(deserialize_with = "wire::few_pairs")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Event.
    #[serde(deserialize_with = "wire::few_pairs")]
    pub annotations: BTreeMap<String, String>,
}

/// Why an import did not do what it was asked. Made by [`CallError::new`], which bounds what it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
#[non_exhaustive]
pub struct CallError {
    /// The sort of refusal.
    pub reason: CallReason,
    /// The API server's HTTP status; 0 if it was not asked.
    pub code: u16,
    /// The explanation.
    pub message: String,
}

/// The sorts of refusal.
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
    /// There are several and one was asked for.
    Ambiguous,
    /// Somebody else was faster.
    Conflict,
    /// The API server said no.
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
    /// Returns a failure that the API server had no part in.
    fn from(message: String) -> Self {
        Self { message, refused: None }
    }
}

impl CallError {
    /// Returns a refusal that the API server had no part in.
    pub fn new(reason: CallReason, message: impl AsRef<str>) -> Self {
        Self { reason, code: 0, message: text::said(message.as_ref()).into_owned() }
    }
}

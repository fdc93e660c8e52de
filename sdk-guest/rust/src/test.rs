//! Runs an author's functions with values, without a cluster: stands in for the daemon in native unit tests.
//!
//! ```
//! use capstan_guest::test::{self, Run};
//! use capstan_guest::{Result, Update, secondary};
//! use serde_json::{Value, json};
//!
//! fn reconcile(_page: &Value) -> Result<Update> {
//!     let ready = secondary("deployment")?.is_some_and(|d| d["status"]["readyReplicas"].as_u64() > Some(0));
//!     capstan_guest::info!("reconciled", ready);
//!     Ok(Update::status(json!({ "areWeGood": ready })))
//! }
//!
//! let run = Run::new().secondary("deployment", json!({ "status": { "readyReplicas": 1 } }));
//! let recorded = test::with(run, || reconcile(&json!({})));
//! assert_eq!(recorded.answer, Ok(Update::status(json!({ "areWeGood": true }))));
//! assert_eq!(recorded.logs[0].message, "reconciled");
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::bindings::imports::capstan::operator as contract;
use crate::context::{Retry, RunInfo};
use crate::expectations::Expectation;
use crate::log::Level;
use crate::memo::Lifetime;
use crate::operations::Mode;
use crate::workflow::{NodeResult, WorkflowResult};
use crate::{ObjectRef, Reason};
use contract::cache::Place;
use contract::operations::WriteOptions;
use contract::types::CallError;

pub(crate) mod objects;

/// What the daemon knows in a test, before the author's function is called.
#[derive(Debug, Clone)]
#[must_use = "hand it to `with`"]
pub struct Run(State);

/// What an author's function did.
#[derive(Debug, Clone)]
pub struct Recorded<T> {
    /// What it returned.
    pub answer: T,
    /// What it wrote, in order.
    pub writes: Vec<Write>,
    /// Its lines in the log.
    pub logs: Vec<Line>,
    /// The Kubernetes Events that it recorded.
    pub events: Vec<Event>,
    /// The values that are kept now, by lifetime and key.
    pub memos: BTreeMap<(Lifetime, String), Value>,
    /// What is expected of the primary now.
    pub expectation: Option<Expectation>,
    /// The sources that are registered now, by name, as they were declared.
    pub registered: BTreeMap<String, Value>,
    /// What it told sources of things outside of the cluster, in order.
    pub remembered: Vec<Remembered>,
}

/// What an author's function told a source of things outside of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum Remembered {
    /// By `sources::remember`.
    Thing {
        /// The source.
        source: String,
        /// The thing.
        actual: Value,
        /// What it has replaced.
        replaced: Option<Value>,
    },
    /// By `sources::forget`.
    Forgotten {
        /// The source.
        source: String,
        /// The id of the thing.
        id: String,
    },
}

/// A write that an author's function asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// What was asked for.
    pub verb: Verb,
    /// The object that it concerns.
    pub target: ObjectRef,
    /// The object or the patch; the finalizer's name; null for a deletion.
    pub body: Value,
    /// How it is treated.
    pub mode: Mode,
    /// The subresource, if not the object itself.
    pub subresource: Option<String>,
}

/// The verbs of `operations`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the functions")]
pub enum Verb {
    Create,
    Apply,
    ForceApply,
    Update,
    Edit,
    JsonPatch,
    MergePatch,
    Remove,
    AddFinalizer,
    RemoveFinalizer,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// How important it is.
    pub level: Level,
    /// What happened.
    pub message: String,
    /// The facts.
    pub fields: BTreeMap<String, String>,
}

/// A Kubernetes Event.
pub type Event = contract::recorder::Event;

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State::new());
}

/// Runs a function as if the daemon had called it in this run.
pub fn with<T>(run: Run, function: impl FnOnce() -> T) -> Recorded<T> {
    let before = STATE.replace(run.0);
    let answer = function();
    let State { writes, logs, events, memos, expectation, registered, remembered, .. } = STATE.replace(before);
    Recorded { answer, writes, logs, events, memos, expectation, registered, remembered }
}

/// Gives the state of the current run to one import.
pub(crate) fn state<T>(import: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(import)
}

impl Run {
    /// A fresh run of the controller `test`, with empty caches.
    pub fn new() -> Self {
        Self(State::new())
    }

    /// Names the controller.
    pub fn controller(mut self, name: &str) -> Self {
        name.clone_into(&mut self.0.run.controller);
        self
    }

    /// Makes it a retry: `attempt` is the number of retries so far.
    pub fn retry(mut self, attempt: u32, last: bool) -> Self {
        self.0.run.retry = Some(Retry { attempt, last });
        self
    }

    /// Lets the call belong to no run, as those of validators, pollers, receivers, filters and mappers.
    pub fn beside(mut self) -> Self {
        self.0.is_beside = true;
        self
    }

    /// In all-events mode: the primary is gone.
    pub fn primary_deleted(mut self) -> Self {
        self.0.run.primary_deleted = true;
        self
    }

    /// An event for the primary is waiting already.
    pub fn next_imminent(mut self) -> Self {
        self.0.next_imminent = true;
        self
    }

    /// Says that the controller has a source of this name. Once one is named, those that nothing is known of are refused, as the daemon refuses them.
    pub fn source(mut self, name: &str) -> Self {
        self.0.objects.declare(name);
        self
    }

    /// Puts an object that belongs to the primary into a source's cache.
    pub fn secondary(mut self, source: &str, object: Value) -> Self {
        self.0.objects.add(objects::Home::Secondary(source.to_owned()), object);
        self
    }

    /// Puts an object that does not belong to the primary into a source's cache.
    pub fn unrelated(mut self, source: &str, object: Value) -> Self {
        self.0.objects.add(objects::Home::Unrelated(source.to_owned()), object);
        self
    }

    /// Puts a thing outside of the cluster, of the primary, into a source, with its id.
    pub fn thing(mut self, source: &str, id: &str, thing: Value) -> Self {
        self.0.objects.add(objects::Home::Thing(source.to_owned(), id.to_owned()), thing);
        self
    }

    /// Puts a primary into the cache. The first one is that of the run.
    pub fn primary(mut self, object: Value) -> Self {
        self.0.objects.add(objects::Home::Primaries, object);
        self
    }

    /// Puts the named object under a key of an index.
    pub fn indexed(mut self, index: &str, key: &str, object_name: &str) -> Self {
        self.0.objects.index(index, key, object_name);
        self
    }

    /// Sets the plugin's `config`.
    pub fn config(mut self, config: Value) -> Self {
        self.0.config = config;
        self
    }

    /// Sets the settings in force.
    pub fn settings(mut self, settings: Value) -> Self {
        self.0.settings = settings;
        self
    }

    /// Keeps a value from an earlier call.
    pub fn memo(mut self, lifetime: Lifetime, key: &str, value: Value) -> Self {
        self.0.memos.insert((lifetime, key.to_owned()), value);
        self
    }

    /// Says what is expected of the primary, and whether its time is over.
    pub fn expectation(mut self, name: &str, timed_out: bool) -> Self {
        self.0.expectation = Some(Expectation { name: name.to_owned(), timed_out });
        self
    }

    /// Registers a source from an earlier run.
    pub fn registered(mut self, name: &str, declaration: Value) -> Self {
        self.0.registered.insert(name.to_owned(), declaration);
        self
    }

    /// Refuses to register the source of this name.
    pub fn refuse_source(mut self, name: &str, reason: Reason, message: &str) -> Self {
        let refusal = CallError { reason, code: 0, message: message.to_owned() };
        self.0.refused_sources.insert(name.to_owned(), refusal);
        self
    }

    /// Sets the clock, which stands still: the text, and the same in milliseconds since 1970.
    pub fn now(mut self, text: &str, ms: f64) -> Self {
        (self.0.now, self.0.now_ms) = (text.to_owned(), ms);
        self
    }

    /// Says what becomes of a workflow when it is run; `None` = the managed one.
    pub fn workflow<'a>(mut self, name: impl Into<Option<&'a str>>, result: WorkflowResult) -> Self {
        self.0.workflows.results.insert(name.into().map(str::to_owned), result);
        self
    }

    /// Says that the managed workflow has run before `reconcile`, and what became of it.
    pub fn workflow_has_run(mut self, result: WorkflowResult) -> Self {
        self.0.workflows.last.insert(None, result);
        self
    }

    /// Says what becomes of a standalone dependent when it is reconciled or removed.
    pub fn dependent(mut self, result: NodeResult) -> Self {
        self.0.workflows.dependents.insert(result.name.clone(), result);
        self
    }

    /// Refuses all writes with this verb.
    pub fn refuse(mut self, verb: Verb, reason: Reason, message: &str) -> Self {
        self.0.refusals.push((verb, CallError { reason, code: 0, message: message.to_owned() }));
        self
    }
}

impl Default for Run {
    fn default() -> Self {
        Self::new()
    }
}

/// The daemon's side of a test.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) run: RunInfo,
    pub(crate) is_beside: bool,
    pub(crate) next_imminent: bool,
    pub(crate) time_left_ms: u32,
    pub(crate) settings: Value,
    pub(crate) config: Value,
    pub(crate) objects: objects::Objects,
    pub(crate) workflows: Workflows,
    pub(crate) memos: BTreeMap<(Lifetime, String), Value>,
    pub(crate) expectation: Option<Expectation>,
    pub(crate) registered: BTreeMap<String, Value>,
    pub(crate) remembered: Vec<Remembered>,
    refused_sources: BTreeMap<String, CallError>,
    pub(crate) now: String,
    pub(crate) now_ms: f64,
    pub(crate) logs: Vec<Line>,
    pub(crate) events: Vec<Event>,
    writes: Vec<Write>,
    refusals: Vec<(Verb, CallError)>,
    random: u8,
}

impl State {
    fn new() -> Self {
        let run =
            RunInfo { controller: "test".to_owned(), retry: None, primary_deleted: false, final_state_unknown: false };
        Self {
            run,
            is_beside: false,
            next_imminent: false,
            time_left_ms: 5_000,
            settings: json!({
                "controller": { "name": "test" },
                "daemon": { "identity": "test", "namespace": "default", "version": "0.1.0" },
            }),
            config: json!({}),
            objects: objects::Objects::default(),
            workflows: Workflows::default(),
            memos: BTreeMap::new(),
            expectation: None,
            registered: BTreeMap::new(),
            remembered: Vec::new(),
            refused_sources: BTreeMap::new(),
            now: "2026-01-31T12:00:00Z".to_owned(),
            now_ms: 1_769_860_800_000.0,
            logs: Vec::new(),
            events: Vec::new(),
            writes: Vec::new(),
            refusals: Vec::new(),
            random: 0,
        }
    }

    /// Returns the caches for a question about a place, unless it is none.
    pub(crate) fn known(&self, place: &Place) -> Result<&objects::Objects, CallError> {
        self.objects.knows(place, &self.registered)?;
        Ok(&self.objects)
    }

    /// Returns the next of a sequence that looks like chance.
    pub(crate) fn next_random(&mut self) -> u8 {
        self.random = self.random.wrapping_mul(5).wrapping_add(113);
        self.random
    }

    /// Expects something in place of anything else, as long as the run.
    pub(crate) fn expect(&mut self, name: &str) -> Result<(), CallError> {
        if name.is_empty() || name.len() > 253 {
            let message = format!("the name of an expectation has {} bytes; it may have 1 to 253", name.len());
            return Err(CallError { reason: Reason::Invalid, code: 0, message });
        }
        self.expectation = Some(Expectation { name: name.to_owned(), timed_out: false });
        Ok(())
    }

    /// Registers a source, unless there is one of this name.
    pub(crate) fn register(&mut self, name: &str, declaration: Value) -> Result<bool, CallError> {
        if let Some(refusal) = self.refused_sources.get(name) {
            return Err(refusal.clone());
        }
        let new = !self.registered.contains_key(name);
        self.registered.entry(name.to_owned()).or_insert(declaration);
        Ok(new)
    }

    /// Records a write of a whole object, and keeps the object.
    pub(crate) fn write(
        &mut self,
        verb: Verb,
        object: &str,
        options: Option<&WriteOptions>,
    ) -> Result<String, CallError> {
        let object = objects::read(object)?;
        let target = ObjectRef::of(&object).map_err(|error| objects::invalid(error.message()))?;
        self.record(verb, &target, object.clone(), options)?;
        if verb == Verb::Create && self.objects.get(&target).is_some() {
            let message = format!("{} {} exists", target.kind, target.name);
            return Err(CallError { reason: Reason::Conflict, code: 409, message });
        }
        let text = object.to_string();
        self.objects.put(&target, object);
        Ok(text)
    }

    /// Records a patch, and keeps the patched object.
    pub(crate) fn patch(
        &mut self,
        verb: Verb,
        target: &ObjectRef,
        patch: &str,
        options: Option<&WriteOptions>,
    ) -> Result<String, CallError> {
        let patch = objects::read(patch)?;
        self.record(verb, target, patch.clone(), options)?;
        let mut object = self.objects.get(target).cloned().ok_or_else(|| objects::missing(target))?;
        if verb == Verb::MergePatch {
            json_patch::merge(&mut object, &patch);
        } else {
            let patch: json_patch::Patch = serde_json::from_value(patch).map_err(objects::invalid)?;
            json_patch::patch(&mut object, &patch).map_err(objects::invalid)?;
        }
        let text = object.to_string();
        self.objects.put(target, object);
        Ok(text)
    }

    /// Records a deletion, and forgets the object.
    pub(crate) fn remove(&mut self, target: &ObjectRef) -> Result<(), CallError> {
        self.record(Verb::Remove, target, Value::Null, None)?;
        self.objects.remove(target);
        Ok(())
    }

    /// Records that a finalizer of the primary was added or removed.
    pub(crate) fn finalizer(&mut self, verb: Verb, finalizer: Option<&str>) -> Result<String, CallError> {
        let primary = self.objects.primary().cloned().ok_or_else(|| CallError {
            reason: Reason::Missing,
            code: 0,
            message: "the test has no primary".to_owned(),
        })?;
        let target = ObjectRef::of(&primary).map_err(|error| objects::invalid(error.message()))?;
        let name = finalizer.unwrap_or("test/finalizer");
        self.record(verb, &target, json!(name), None)?;
        let primary = objects::with_finalizer(primary, name, verb);
        let text = primary.to_string();
        self.objects.put(&target, primary);
        Ok(text)
    }

    fn record(
        &mut self,
        verb: Verb,
        target: &ObjectRef,
        body: Value,
        options: Option<&WriteOptions>,
    ) -> Result<(), CallError> {
        if let Some((_, refusal)) = self.refusals.iter().find(|(refused, _)| *refused == verb) {
            return Err(refusal.clone());
        }
        let mode = options.map_or(Mode::Usual, |options| options.mode);
        let subresource = options.and_then(|options| options.subresource.clone());
        self.writes.push(Write { verb, target: target.clone(), body, mode, subresource });
        Ok(())
    }
}

/// What becomes of workflows in a test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workflows {
    results: BTreeMap<Option<String>, WorkflowResult>,
    dependents: BTreeMap<String, NodeResult>,
    last: BTreeMap<Option<String>, WorkflowResult>,
}

impl Workflows {
    pub(crate) fn run(&mut self, name: Option<&str>) -> Result<WorkflowResult, CallError> {
        let name = name.map(str::to_owned);
        let result = self.results.get(&name).ok_or_else(|| CallError {
            reason: Reason::Missing,
            code: 0,
            message: format!("the test has no workflow {}", name.as_deref().unwrap_or("of the controller")),
        })?;
        self.last.insert(name, result.clone());
        Ok(result.clone())
    }

    pub(crate) fn run_dependent(&self, name: &str) -> Result<NodeResult, CallError> {
        self.dependents.get(name).cloned().ok_or_else(|| CallError {
            reason: Reason::Missing,
            code: 0,
            message: format!("the test has no dependent {name}"),
        })
    }

    pub(crate) fn last(&self, name: Option<&str>) -> Option<WorkflowResult> {
        self.last.get(&name.map(str::to_owned)).cloned()
    }
}

#[cfg(test)]
mod tests;

//! What a test hands to a plugin: a manifest, and a run that answers from a script and records what it was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use capstan_core::cluster::{Deletion, FieldValidation};
use capstan_core::guest::{
    CallError, CallReason, CompareQuestion, Context, Event, Expectation, Lifetime, MatchResult, ObjectTarget, Page,
    Place, Query, RetryInfo, RunInfo, WorkflowCall, WorkflowResult, WriteRequest,
};
use capstan_core::manifest::{
    Capabilities, Component, Controller, Dependent, Grant, Instances, Isolation, Limits, Manage, Namespaces,
    OnStartError, OnSwap, Operator, Permission, Plugin, Reconciler, TriggeredBy, Workflow,
};
use capstan_core::object::{Gvk, ObjectRef};
use futures::future::{self, BoxFuture};
use parking_lot::Mutex;
use tokio::time::Instant;

/// What a scripted run answers to `workflow`.
pub type OnWorkflow = Box<dyn Fn(WorkflowCall) -> BoxFuture<'static, Result<WorkflowResult, CallError>> + Send + Sync>;

/// A run of the controller `web`.
#[derive(Default)]
pub struct Script {
    /// The primary's name in the namespace `default`; none: `page`.
    pub page: Option<&'static str>,
    /// What was asked, one line each.
    pub asked: Mutex<Vec<String>>,
    /// Values kept, whatever their lifetime.
    pub memos: Mutex<BTreeMap<String, String>>,
    /// What is expected.
    pub expected: Mutex<Option<Expectation>>,
    /// What `find_named` answers, by name.
    pub objects: BTreeMap<String, String>,
    /// What `workflow` answers; none: an empty result.
    pub on_workflow: Option<OnWorkflow>,
    /// It is no run.
    pub beside: bool,
    /// Writes never end.
    pub hang: bool,
    /// When it is given up.
    pub until: Option<Instant>,
    /// Requests so far.
    pub requests: AtomicU32,
}

impl Script {
    fn ask(&self, what: String) {
        self.asked.lock().push(what);
    }

    fn answer(&self, what: String) -> BoxFuture<'_, Result<String, CallError>> {
        self.ask(what);
        if self.hang {
            Box::pin(future::pending())
        } else {
            Box::pin(future::ready(Ok(r#"{"metadata":{"name":"written"}}"#.to_owned())))
        }
    }
}

impl Context for Script {
    fn requests(&self) -> &AtomicU32 {
        &self.requests
    }

    fn info(&self) -> RunInfo {
        RunInfo {
            controller: "web".into(),
            primary: Some(ObjectRef::namespaced("default", self.page.unwrap_or("page"))),
            beside: self.beside,
            retry: Some(RetryInfo { attempt: 2, last: true }),
            primary_deleted: false,
            final_state_unknown: false,
        }
    }

    fn until(&self) -> Option<Instant> {
        self.until
    }

    fn next_imminent(&self) -> bool {
        true
    }

    fn settings(&self) -> String {
        r#"{"daemon":{"namespace":"capstan"}}"#.to_owned()
    }

    fn find_all(&self, query: Query) -> BoxFuture<'_, Result<Page, CallError>> {
        self.ask(format!("find all in {:?}, {:?}, at most {:?}", query.place, query.selection, query.limit));
        Box::pin(future::ready(Ok(Page::default())))
    }

    fn find_one(&self, place: Place) -> BoxFuture<'_, Result<Option<String>, CallError>> {
        self.ask(format!("find one in {place:?}"));
        Box::pin(future::ready(Err(CallError::new(CallReason::Ambiguous, "there are two"))))
    }

    fn find_named(&self, place: Place, key: ObjectRef) -> BoxFuture<'_, Result<Option<String>, CallError>> {
        self.ask(format!("find {key} in {place:?}"));
        Box::pin(future::ready(Ok(self.objects.get(&*key.name).cloned())))
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<String, CallError>> {
        self.answer(format!("{:?} with {:?}", request.verb, request.options))
    }

    fn remove(&self, target: ObjectTarget, deletion: Deletion) -> BoxFuture<'_, Result<(), CallError>> {
        self.ask(format!("remove {} {} with {deletion:?}", target.gvk, target.key));
        Box::pin(future::ready(Ok(())))
    }

    fn add_finalizer(&self, finalizer: Option<String>) -> BoxFuture<'_, Result<String, CallError>> {
        self.answer(format!("add finalizer {finalizer:?}"))
    }

    fn remove_finalizer(&self, finalizer: Option<String>) -> BoxFuture<'_, Result<String, CallError>> {
        self.answer(format!("remove finalizer {finalizer:?}"))
    }

    fn compare(&self, question: CompareQuestion) -> Result<MatchResult, CallError> {
        self.ask(format!("compare {:?} ignoring {:?}", question.by, question.ignore));
        Ok(MatchResult::Differs("/data".to_owned()))
    }

    fn workflow(&self, call: WorkflowCall, _: Instant) -> BoxFuture<'_, Result<WorkflowResult, CallError>> {
        self.ask(format!("workflow {call:?}"));
        match &self.on_workflow {
            Some(on_workflow) => on_workflow(call),
            None => Box::pin(future::ready(Ok(WorkflowResult::default()))),
        }
    }

    fn last_result(&self, _name: Option<&str>) -> Option<WorkflowResult> {
        None
    }

    fn register(&self, name: String, declaration: String, by: Instant) -> BoxFuture<'_, Result<bool, CallError>> {
        let left = by.saturating_duration_since(Instant::now()).as_secs();
        self.ask(format!("register {name}: {declaration}, for {left} s and more"));
        Box::pin(future::ready(Ok(true)))
    }

    fn deregister(&self, name: &str) -> Result<(), CallError> {
        self.ask(format!("deregister {name}"));
        Ok(())
    }

    fn remember(&self, source: &str, actual: String, replaced: Option<String>) -> Result<(), CallError> {
        self.ask(format!("remember {source}: {actual} {replaced:?}"));
        Ok(())
    }

    fn forget(&self, source: &str, id: &str) -> Result<(), CallError> {
        self.ask(format!("forget {source}: {id}"));
        Ok(())
    }

    fn memo(&self, _lifetime: Lifetime, key: &str) -> Option<String> {
        self.memos.lock().get(key).cloned()
    }

    fn set_memo(&self, _lifetime: Lifetime, key: &str, value: Option<String>) -> Result<(), CallError> {
        match value {
            Some(value) => self.memos.lock().insert(key.to_owned(), value),
            None => self.memos.lock().remove(key),
        };
        Ok(())
    }

    fn expect(&self, name: &str, timeout: Duration) -> Result<(), CallError> {
        self.ask(format!("expect {name} within {timeout:?}"));
        *self.expected.lock() = Some(Expectation { name: name.to_owned(), timed_out: false });
        Ok(())
    }

    fn pending_expectation(&self) -> Option<Expectation> {
        self.expected.lock().clone()
    }

    fn clear_expectation(&self, name: &str) -> bool {
        self.expected.lock().take_if(|expected| expected.name == name).is_some()
    }

    fn publish(&self, event: Event) {
        self.ask(format!("event {} {}", event.reason, event.message));
    }
}

/// Returns an operator with the plugin `guest` and the controller `web`, which may apply config maps and watches services.
pub fn operator(component: &Path, limits: Limits) -> Operator {
    let verbs = BTreeSet::from([Permission::Apply, Permission::Delete]);
    let grant = Grant { gvk: gvk("v1", "ConfigMap"), verbs, namespaces: None };
    let capabilities = Capabilities { kubernetes: vec![grant], ..Capabilities::default() };
    let config = serde_json::json!({ "pageTitle": "hello" });
    let plugin = Plugin {
        component: Some(Component::File(component.to_owned())),
        limits,
        capabilities,
        config: config.into(),
        config_from: BTreeMap::new(),
        instances: Instances::Fresh,
        isolation: isolation(),
        on_swap: OnSwap::Nothing,
    };
    let workflow = Workflow {
        dependents: BTreeMap::from([("service".into(), read_only(gvk("v1", "Service")))]),
        ..Workflow::default()
    };
    Operator {
        name: "test".into(),
        plugins: BTreeMap::from([("guest".into(), plugin)]),
        controllers: BTreeMap::from([("web".into(), controller(workflow))]),
        on_new_version: capstan_core::manifest::OnNewVersion::Apply,
        origin: capstan_core::manifest::Origin::default(),
    }
}

fn controller(workflow: Workflow) -> Controller {
    Controller {
        name: "web".into(),
        own_name: "web".into(),
        plugin: "guest".into(),
        reconciler: Reconciler::Component,
        primary: gvk("sample.capstan.dev/v1", "WebPage"),
        namespaces: Namespaces::All,
        label_selector: None,
        field_selector: None,
        shard_selector: None,
        cluster: None,
        remotes: BTreeMap::new(),
        page_size: 500,
        bounded: None,
        keep: capstan_core::manifest::Keep::Whole,
        stored: capstan_core::manifest::Stored::Plain,
        filters: capstan_core::manifest::Filters::default(),
        generation_aware: true,
        triggered_by: TriggeredBy::Changes,
        run_timeout: None,
        paused: false,
        events: capstan_core::manifest::Events::default(),
        status_conditions: capstan_core::manifest::StatusConditions::None,
        finalizer: Some("sample.capstan.dev/finalizer".into()),
        former_finalizers: BTreeSet::default(),
        cache_sync_timeout: Duration::from_mins(2),
        on_start_error: OnStartError::default(),
        field_manager: "web".into(),
        server_side_apply: true,
        field_validation: FieldValidation::Strict,
        retry: None,
        retry_by: BTreeMap::new(),
        rate_limit: None,
        max_interval: None,
        min_reschedule: Duration::ZERO,
        concurrency: 8,
        indexes: BTreeMap::new(),
        sources: BTreeMap::new(),
        externals: BTreeMap::new(),
        inbound: BTreeMap::new(),
        workflow,
        standalone: BTreeMap::new(),
        service_account: None,
        home: None,
    }
}

/// Returns a dependent that the daemon does not write.
pub fn read_only(gvk: Gvk) -> Dependent {
    Dependent { manage: Manage { create: false, update: false, delete: false }, ..Dependent::of(gvk) }
}

pub fn gvk(api_version: &str, kind: &str) -> Gvk {
    Gvk::parse(api_version, kind).unwrap()
}

/// Writes a component into a folder.
pub fn write(dir: &tempfile::TempDir, name: &str, wasm: &[u8]) -> PathBuf {
    let file = dir.path().join(format!("{name}.wasm"));
    std::fs::write(&file, wasm).unwrap();
    file
}

/// Returns a run that answers nothing in particular.
pub fn script() -> Arc<Script> {
    Arc::new(Script::default())
}

/// Says in which process instances are, where a test does not: `process` for one of their own.
pub const ISOLATION: &str = "CAPSTAN_TEST_ISOLATION";

fn isolation() -> Isolation {
    match std::env::var_os(ISOLATION) {
        Some(word) if word == "process" => Isolation::Process,
        Some(_) | None => Isolation::Shared,
    }
}

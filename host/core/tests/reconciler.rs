//! One run from top to bottom, with a scripted guest and a small API server in verdicts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]
#![allow(
    clippy::too_many_lines,
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    clippy::format_collect,
    reason = "builders that are read beside their use"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use capstan_core::cache::{Event as Watch, Writer};
use capstan_core::cluster::{Cluster, Deletion, Error, Reason, Verb, Write};
use capstan_core::external::External;
use capstan_core::guest::*;
use capstan_core::manifest::{self, Keep, Mapper as Mapping};
use capstan_core::object::hold::Hold;
use capstan_core::object::{Gvk, Managers, Object, ObjectRef, Scope, Version};
use capstan_core::permission::{Home, Permissions};
use capstan_core::queue::{self, Finished, Policy, Queue, Urgency};
use capstan_core::reconciler::departed::Trace;
use capstan_core::reconciler::verdicts::{Asleep, Verdicts};
use capstan_core::reconciler::{Controller, Elsewhere, execute};
use capstan_core::room::Room;
use capstan_core::source::filter::Filter;
use capstan_core::source::mapper::Mapper;
use capstan_core::source::registered::Registered;
use capstan_core::source::{Bounded, Role, Source, Spec, Trigger, TriggerKind, Within};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

mod bulk;
mod conditions;
mod contests;
mod outside;
mod templates;
mod tried;
mod wanted;

// === the API server ===

/// Keeps objects as trees, and what was asked of it.
#[derive(Default)]
struct Server {
    objects: Mutex<BTreeMap<(Gvk, ObjectRef), Value>>,
    version: Mutex<u64>,
    writes: Mutex<Vec<String>>,
    /// Answers to the next writes that are failures.
    failures: Mutex<Vec<Error>>,
    /// It answers no write.
    hangs: AtomicBool,
    /// It carries out the next write, and its answer is lost.
    loses: AtomicBool,
    /// It writes what it stores in its own way: in small letters.
    respells: AtomicBool,
    /// It answers no read.
    away: AtomicBool,
    /// It is known to do no work for anybody.
    down: AtomicBool,
    /// What happens before it carries out a write, which is named as in `writes`.
    meanwhile: Mutex<Option<Meanwhile>>,
}

type Meanwhile = Box<dyn Fn(&str) + Send>;

impl Server {
    fn put(&self, gvk: &Gvk, mut tree: Value) -> Object {
        let mut version = self.version.lock();
        *version += 1;
        tree["apiVersion"] = gvk.api_version().into();
        tree["kind"] = (*gvk.kind).into();
        tree["metadata"]["resourceVersion"] = version.to_string().into();
        tree["metadata"].as_object_mut().unwrap().entry("uid").or_insert_with(|| json!("u-1"));
        let object = Object::parse(&tree.to_string(), gvk, &Managers::all()).unwrap();
        self.objects.lock().insert((gvk.clone(), object.key().clone()), tree);
        object
    }

    fn carry_out(&self, write: Write) -> Result<Option<Object>, Error> {
        let Write { target, verb, .. } = write;
        let what = target.subresource.as_deref().map(|s| format!("/{s}")).unwrap_or_default();
        let name = format!("{} {}{what}", target.gvk.kind, target.key.name);
        if let Some(failure) = self.failures.lock().pop() {
            self.writes.lock().push(format!("{} {name} failed", verb.rbac()));
            return Err(failure);
        }
        let name = format!("{} {name}", verb.rbac());
        if let Some(meanwhile) = &*self.meanwhile.lock() {
            meanwhile(&name);
        }
        self.writes.lock().push(name);
        let old = self.objects.lock().get(&(target.gvk.clone(), target.key.clone())).cloned();
        let held = |body: &str| holds(&serde_json::from_str(body).unwrap(), old.as_ref());
        let share = share(&verb, target.subresource.as_deref());
        let mut tree = match verb {
            Verb::Create { .. } if old.is_some() => return Err(conflict("it exists")),
            Verb::Apply { ref body, .. } if !held(body) => return Err(conflict("another one")),
            Verb::Create { body, .. } | Verb::Replace { body, .. } => serde_json::from_str(&body).unwrap(),
            Verb::Apply { body, .. } => {
                let (mut tree, mut body) =
                    (old.clone().unwrap_or_else(|| json!({})), serde_json::from_str(&body).unwrap());
                merge_conditions(&tree, &mut body);
                json_patch::merge(&mut tree, &body);
                tree
            }
            Verb::MergePatch { body, .. } => {
                let mut tree = old.clone().unwrap_or_else(|| json!({}));
                json_patch::merge(&mut tree, &serde_json::from_str(&body).unwrap());
                tree
            }
            Verb::JsonPatch { patch, .. } => {
                let mut tree = old.clone().unwrap();
                json_patch::patch(&mut tree, &serde_json::from_str::<json_patch::Patch>(&patch.text()).unwrap())
                    .map_err(|e| conflict(&e.to_string()))?;
                tree
            }
            Verb::Delete(deletion) => {
                let version = old.as_ref().map(|old| &old["metadata"]["resourceVersion"]);
                if deletion.version.is_some_and(|wanted| version.is_some_and(|version| *version != *wanted)) {
                    return Err(conflict("another version"));
                }
                self.objects.lock().remove(&(target.gvk, target.key));
                return Ok(None);
            }
        };
        if let (true, Some(text)) = (self.respells.load(Ordering::Relaxed), tree["data"]["x"].as_str()) {
            tree["data"]["x"] = text.to_lowercase().into();
        }
        let old = old.unwrap_or_default();
        let version = |tree: &Value| tree["metadata"]["resourceVersion"].clone();
        let mut shares = old["metadata"]["managedFields"].clone();
        if !shares.as_array().is_some_and(|shares| shares.contains(&share)) {
            let others = shares.as_array_mut().map(std::mem::take);
            shares = others.into_iter().flatten().chain([share]).collect();
        }
        tree["metadata"]["managedFields"] = shares;
        tree["metadata"]["resourceVersion"] = version(&old);
        if tree == old {
            let same = Object::parse(&old.to_string(), &target.gvk, &Managers::all());
            return Ok(Some(same.unwrap()));
        }
        Ok(Some(self.put(&target.gvk, tree)))
    }
}

/// Puts conditions that are there and not applied to those that are: the list is a map by type. Nothing of it is given up.
fn merge_conditions(old: &Value, applied: &mut Value) {
    let Some(new) = applied.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else {
        return;
    };
    let mut all = old["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for entry in std::mem::take(new) {
        match all.iter_mut().find(|old| old["type"] == entry["type"]) {
            Some(old) => *old = entry,
            None => all.push(entry),
        }
    }
    *new = all;
}

/// Returns what a write is recorded as in `managedFields`, about.
fn share(verb: &Verb, subresource: Option<&str>) -> Value {
    let (operation, manager) = match verb {
        Verb::Apply { manager, .. } => ("Apply", &**manager),
        Verb::Create { manager, .. }
        | Verb::Replace { manager, .. }
        | Verb::JsonPatch { manager, .. }
        | Verb::MergePatch { manager, .. } => ("Update", &**manager),
        Verb::Delete(_) => return Value::Null,
    };
    let written = serde_json::from_str(&verb.body()).unwrap();
    json!({ "manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": fields(&written) })
}

/// Returns the fields of a document. All that a JSON patch touches is owned as a whole.
fn fields(written: &Value) -> Value {
    match written {
        Value::Object(map) => {
            let nobodys = ["apiVersion", "kind", "name", "namespace", "uid", "resourceVersion"];
            let owned = map.iter().filter(|(name, _)| !nobodys.contains(&&***name));
            let owned = owned.map(|(name, value)| (name, value, fields(value)));
            // Where nothing is owned of what is there, it is not owned itself.
            let owned = owned.filter(|(_, value, owned)| {
                owned != &json!({}) || value.as_object().is_none_or(serde_json::Map::is_empty)
            });
            owned.map(|(name, _, owned)| (format!("f:{name}"), owned)).collect()
        }
        Value::Array(entries) if entries.iter().any(|entry| entry["type"].is_string()) => {
            let owned = entries.iter().map(|entry| (format!("k:{}", json!({ "type": entry["type"] })), fields(entry)));
            owned.collect()
        }
        Value::Array(steps) => {
            let paths = steps.iter().filter_map(|step| step["path"].as_str());
            let first = paths.filter_map(|path| path.split('/').nth(1));
            let owned = first.filter(|name| *name != "metadata");
            owned.map(|name| (format!("f:{name}"), json!({}))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => json!({}),
    }
}

/// Whether an apply is for the object that is there: a uid must be its own, and a version holds for none but itself.
fn holds(body: &Value, old: Option<&Value>) -> bool {
    let named = |tree: &Value, field: &str| tree["metadata"][field].as_str().map(str::to_owned);
    let same = |field| {
        let (wanted, there) = (named(body, field), old.and_then(|old| named(old, field)));
        wanted.is_none() || wanted == there
    };
    let fresh = old.is_none() && named(body, "uid").is_none();
    fresh || (same("uid") && same("resourceVersion"))
}

fn unavailable(reason: Reason, code: u16) -> Error {
    Error::new(reason, code, format!("HTTP {code}"))
}

fn conflict(message: &str) -> Error {
    Error::new(Reason::Conflict, 409, message)
}

impl Cluster for Server {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        if self.hangs.load(Ordering::Relaxed) {
            return std::future::pending().boxed();
        }
        let lost = self.loses.swap(false, Ordering::Relaxed);
        async move {
            let answer = self.carry_out(write);
            if lost { Err(unavailable(Reason::Unreachable, 0)) } else { answer }
        }
        .boxed()
    }

    fn dry_run(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        async move {
            let objects = self.objects.lock().clone();
            let answer = self.carry_out(write);
            *self.objects.lock() = objects;
            if let Some(told) = self.writes.lock().last_mut() {
                told.insert_str(0, "try to ");
            }
            answer
        }
        .boxed()
    }

    fn get<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, Error>> {
        if self.away.load(Ordering::Relaxed) {
            return async { Err(unavailable(Reason::Unreachable, 503)) }.boxed();
        }
        let tree = self.objects.lock().get(&(gvk.clone(), key.clone())).cloned();
        async move { Ok(tree.map(|tree| Object::parse(&tree.to_string(), gvk, &Managers::all()).unwrap())) }.boxed()
    }

    fn scope(&self, _: &Gvk) -> Option<Scope> {
        Some(Scope::Namespaced)
    }

    fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }
}

// === the guest ===

/// What the guest answers; each field is one export.
#[derive(Clone)]
struct Script {
    exports: &'static [Interface],
    validate: Result<Vec<Invalid>, Failure>,
    initialize: Result<(), Failure>,
    reconcile: Result<UpdateControl, Failure>,
    cleanup: Result<DeleteControl, Failure>,
    handle_error: ErrorControl,
    decide_retry: Result<NextRetry, Failure>,
    desired: Result<Value, String>,
    matches: Result<MatchResult, Failure>,
    /// `reconcile` and `cleanup` ask for this write first, and fail if that fails or does not end within a second.
    asks: Option<WriteRequest>,
    run: Option<Arc<dyn Context>>,
    /// What was called.
    calls: Arc<Mutex<Vec<String>>>,
    /// What they ask the daemon before.
    ask: Option<Ask>,
}

/// Questions to the daemon, and what is noted of the answers.
type Ask = Arc<dyn Fn(Arc<dyn Context>) -> BoxFuture<'static, Vec<String>> + Send + Sync>;

impl Default for Script {
    fn default() -> Self {
        Self {
            exports: &[Interface::Reconciler, Interface::Dependent],
            validate: Ok(Vec::new()),
            initialize: Ok(()),
            reconcile: Ok(UpdateControl { update: PrimaryUpdate::Nothing, reschedule: None }),
            cleanup: Ok(DeleteControl::RemoveFinalizer),
            handle_error: ErrorControl::Unhandled,
            decide_retry: Ok(NextRetry::Declared),
            desired: Ok(json!({ "metadata": { "name": "a" }, "data": { "x": "y" } })),
            matches: Ok(MatchResult::Matches),
            asks: None,
            run: None,
            calls: Arc::default(),
            ask: None,
        }
    }
}

impl Guest for Script {
    fn open(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
        Box::new(Self { run: Some(run), ..self.clone() })
    }

    fn open_nested(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
        self.open(run)
    }

    fn exports(&self, interface: Interface) -> bool {
        self.exports.contains(&interface)
    }
}

impl Script {
    fn answer(&self, what: String, answer: Result<Answer, Failure>) -> BoxFuture<'_, Result<Answer, Failure>> {
        self.calls.lock().push(what);
        async move { answer }.boxed()
    }

    /// Asks before the answer.
    fn asking(&self, what: &str, answer: Result<Answer, Failure>) -> BoxFuture<'_, Result<Answer, Failure>> {
        self.calls.lock().push(what.to_owned());
        let asked = match (&self.ask, &self.run) {
            (Some(ask), Some(run)) => Some(ask(Arc::clone(run))),
            _ => None,
        };
        async move {
            if let Some(asked) = asked {
                let answers = asked.await;
                self.calls.lock().extend(answers);
            }
            if let (Some(request), Some(run)) = (&self.asks, &self.run) {
                let asked = timeout(Duration::from_secs(1), run.write(request.clone())).await;
                let asked = asked.unwrap_or_else(|_| Err(CallError::new(CallReason::Other, "the call took too long")));
                asked.map_err(|error| Failure::new(Cause::Returned, error.message))?;
            }
            answer
        }
        .boxed()
    }
}

impl Session for Script {
    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<Answer, Failure>> {
        match call {
            Call::Start => unreachable!("nothing is loaded"),
            Call::Validate { old, .. } => {
                assert_eq!(old, None);
                self.asking("validate", self.validate.clone().map(|problems| Answer::Validate(Found { problems })))
            }
            Call::Initialize { .. } => {
                self.answer("initialize".to_owned(), self.initialize.clone().map(Answer::Initialize))
            }
            Call::Reconcile { .. } => self.asking("reconcile", self.reconcile.clone().map(Answer::Reconcile)),
            Call::Cleanup { .. } => self.asking("cleanup", self.cleanup.clone().map(Answer::Cleanup)),
            Call::DecideRetry { failed, .. } => {
                let FailedRun { class, message, retry } = &*failed;
                let what = format!("decide-retry {class:?} {message:?} attempt {}", retry.attempt);
                self.answer(what, self.decide_retry.clone().map(Answer::DecideRetry))
            }
            Call::HandleError { failed, .. } => {
                let FailureInfo { origin, message, refused, dependents, retry } = &*failed;
                let dependents: Vec<_> =
                    dependents.iter().map(|(name, failure)| (name, &failure.message, failure.refused)).collect();
                let what = format!(
                    "handle-error {origin:?} {message:?} {refused:?} {dependents:?} attempt {} last {}",
                    retry.attempt, retry.last
                );
                self.answer(what, Ok(Answer::HandleError(self.handle_error.clone())))
            }
            // Under the name that the primary's spec has for the dependent, or for all, if it has one.
            Call::Desired { name, primary } => {
                let primary: Value = serde_json::from_str(primary).unwrap();
                let names = &primary["spec"];
                let called = [&names["names"][name], &names["name"]].into_iter().find(|called| called.is_string());
                let answer = self.desired.clone().map(|mut tree| {
                    if let Some(called) = called {
                        tree["metadata"]["name"] = called.clone();
                    }
                    Answer::Desired(tree.to_string())
                });
                let answer = answer.map_err(|message| Failure::new(Cause::Returned, message));
                self.answer(format!("desired {name}"), answer)
            }
            // As many as the primary's spec says: a name and a value of each.
            Call::DesiredSet { name, primary } => {
                let primary: Value = serde_json::from_str(primary).unwrap();
                let object = |one: &Value| {
                    let mut metadata = json!({ "name": one[0] });
                    if let Some((namespace, name)) = one[0].as_str().and_then(|name| name.split_once('/')) {
                        metadata = json!({ "name": name, "namespace": namespace });
                    }
                    if let Some(owners) = one.get(2) {
                        metadata["ownerReferences"] = owners.clone();
                    }
                    json!({ "metadata": metadata, "data": { "x": one[1] } }).to_string()
                };
                let objects = primary["spec"]["set"].as_array().into_iter().flatten().map(object).collect();
                self.answer(format!("desired-set {name}"), Ok(Answer::DesiredSet(DesiredSet { objects })))
            }
            Call::Match { name, .. } => self.answer(format!("match {name}"), self.matches.clone().map(Answer::Match)),
            Call::IsMet { name, .. } => {
                let few = ConditionResult { met: false, detail: Some("\"1 of 2\"".to_owned()) };
                let result = if name == "enough" { few } else { ConditionResult::met() };
                self.answer(format!("is-met {name}"), Ok(Answer::IsMet(result)))
            }
            Call::Create { .. } | Call::Update { .. } | Call::Remove { .. } => unreachable!("nothing is outside"),
            Call::Poll { .. } | Call::PollOne { .. } | Call::Receive { .. } => unreachable!("nothing is polled"),
            Call::Accepts { .. } | Call::ToPrimaries { .. } | Call::ToSecondaries { .. } | Call::Describe {} => {
                unreachable!("nothing is asked about changes")
            }
        }
    }
}

// === putting them together ===

fn outside_of((name, spec): (&Arc<str>, &manifest::External)) -> (Arc<str>, Arc<External>) {
    (Arc::clone(name), Arc::new(External::new(name, spec.clone())))
}

/// A controller over pages, with one config map as its dependent.
struct Bench {
    controller: Arc<Controller>,
    server: Arc<Server>,
    calls: Arc<Mutex<Vec<String>>>,
    queue: Queue,
    /// What own writes held back until they ended.
    told: Arc<Mutex<Vec<Trigger>>>,
    /// The Kubernetes Events about the page, by their reasons and texts.
    published: Arc<Mutex<Vec<(String, String)>>>,
    /// When the page runs again, as of its last run.
    next: Mutex<Option<queue::Next>>,
    pages: Writer,
    maps: Writer,
}

impl Bench {
    fn new(script: Script, fields: &str) -> Self {
        Self::granted(script, "", fields)
    }

    /// A bench whose plugin has these grants, in YAML flow style.
    fn granted(script: Script, grants: &str, fields: &str) -> Self {
        let text = format!(
            "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  clusters: {{ edge: {{ kubeconfig: {{ secret: {{ name: edge }} }} }} }}\n  plugins: {{ p: {{ component: {{ path: p.wasm }}, capabilities: {{ kubernetes: [{grants}] }} }} }}\n  controllers:\n    pages:\n      plugin: p\n      primary: {{ apiVersion: sample.dev/v1, kind: Page }}\n      finalizer: sample.dev/finalizer\n{}",
            fields.lines().map(|line| format!("      {line}\n")).collect::<String>()
        );
        Self::of(script, &text)
    }

    /// A bench for the controller `pages` of a manifest.
    fn of(script: Script, text: &str) -> Self {
        let operator = manifest::parse(text, Path::new("a.yaml")).unwrap().remove(0);
        let spec = operator.controllers["pages"].clone();
        let plugin = &operator.plugins[&spec.plugin];
        let (mut pages, mut maps) = (Writer::default(), Writer::default());
        for writer in [&mut pages, &mut maps] {
            writer.start_list();
            writer.finish_list(Version(0));
        }
        let source = |gvk: Gvk, role, (keep, bounded): (&Keep, Option<Bounded>), writer: &Writer| {
            let source = Source::new(Spec {
                name: "s".into(),
                cluster: None,
                gvk,
                role,
                filter: Filter::default(),
                indexes: BTreeMap::new(),
                fields: keep.fields(),
                bounded,
                packed: false,
                faults: Arc::default(),
            });
            source.attach(None, writer.cache());
            Arc::new(source)
        };
        let mapping = match spec.dependents().next() {
            Some((_, cm)) if !cm.garbage_collected => Mapping::Annotations(cm.mapping.clone()),
            _ => Mapping::OwnerReference,
        };
        let mapper = Mapper::new(spec.primary.clone(), Scope::Namespaced, mapping);
        let declared = spec.sources.get("s");
        let kept = declared.map(|source| source.keep.clone()).unwrap_or_default();
        let bounded = declared.and_then(|source| Some(Bounded { stays: source.stays(), bound: source.bounded? }));
        let maps_source =
            source(Gvk::parse("v1", "ConfigMap").unwrap(), Role::Secondary(mapper), (&kept, bounded), &maps);
        maps.keep(maps_source.spec().stays().clone());
        let bounded = spec.bounded.map(|bound| Bounded { stays: spec.stays(), bound });
        let primaries = source(spec.primary.clone(), Role::Primary, (&spec.keep, bounded), &pages);
        pages.keep(primaries.spec().stays().clone());
        let server = Arc::new(Server::default());
        let mode = if spec.all_events() { queue::Mode::AllEvents } else { queue::Mode::Normal };
        let (retry, retry_by) = (spec.retry.clone(), spec.retry_by.clone());
        let queue = Queue::new(Policy { retry, retry_by, max_interval: None, mode, ..Policy::default() });
        queue.start(Instant::now());
        let calls = Arc::clone(&script.calls);
        let told = Arc::<Mutex<Vec<Trigger>>>::default();
        let published = Arc::<Mutex<Vec<(String, String)>>>::default();
        let controller = Controller {
            operator: Arc::clone(&operator.name),
            limits: plugin.limits.clone(),
            primaries,
            secondaries: spec.dependents().map(|(name, _)| (Arc::clone(name), Arc::clone(&maps_source))).collect(),
            externals: spec.externals.iter().map(outside_of).collect(),
            on_demand: Arc::default(),
            registered: Registered::none(),
            finalizer: "sample.dev/finalizer".into(),
            guest: Arc::new(script),
            permissions: Permissions::new(&spec, &plugin.capabilities, Home::default()),
            cluster: Arc::clone(&server) as Arc<dyn Cluster>,
            elsewhere: BTreeMap::new(),
            tell: {
                let told = Arc::clone(&told);
                Arc::new(move |triggers| told.lock().extend(triggers))
            },
            queue: queue.clone(),
            verdicts: Arc::new(Verdicts::default()),
            edition: 1,
            settings: json!({}),
            holder: None,
            events: {
                let published = Arc::clone(&published);
                Box::new(move |_, event, _| {
                    published.lock().push((event.reason, event.message));
                })
            },
            conditions: Arc::default(),
            spec,
        };
        Self {
            controller: Arc::new(controller),
            server,
            calls,
            queue,
            told,
            published,
            next: Mutex::default(),
            pages,
            maps,
        }
    }

    /// Puts a page on the server and into the cache.
    fn page(&mut self, metadata: Value) {
        self.page_of(metadata, json!({}));
    }

    /// The same with this spec.
    fn page_of(&mut self, metadata: Value, spec: Value) {
        let mut tree = json!({ "metadata": { "name": "a", "namespace": "n", "generation": 1 }, "spec": spec });
        json_patch::merge(&mut tree, &json!({ "metadata": metadata }));
        let page = self.server.put(&self.controller.spec.primary, tree);
        self.pages.apply(Watch::Applied(page));
    }

    /// Puts a source of pages in place that has no memory for answers beyond the least, and returns it.
    fn without_memory(&mut self) -> Arc<Source> {
        let controller = Arc::get_mut(&mut self.controller).unwrap();
        let room = Room::new(0);
        let pages = Source::new(controller.primaries.spec().clone()).charging(|| Some(room.holding(&"p".into())));
        pages.attach(None, self.pages.cache());
        controller.primaries = Arc::new(pages);
        Arc::clone(&controller.primaries)
    }

    /// Returns a page that takes more than that.
    fn large(&self, name: &str, metadata: Value) -> Object {
        let mut tree = json!({ "metadata": { "name": name, "namespace": "n", "uid": "u-1", "resourceVersion": "1000" }, "spec": { "filler": "x".repeat(2 << 20) } });
        json_patch::merge(&mut tree, &json!({ "metadata": metadata }));
        Object::parse(&tree.to_string(), &self.controller.spec.primary, &Managers::all()).unwrap()
    }

    /// Has the watch bring a page, and returns what the queue is told of it.
    fn watched(&mut self, page: Object) -> Vec<Trigger> {
        let change = self.pages.apply(Watch::Applied(page));
        let told = change.map(|change| self.controller.primaries.on(change));
        told.unwrap_or_default()
    }

    /// Returns the data of a config map on the server.
    fn data(&self, name: &str) -> Value {
        let key = (Gvk::parse("v1", "ConfigMap").unwrap(), ObjectRef::namespaced("n", name));
        self.server.objects.lock()[&key]["data"].clone()
    }

    /// Runs the page once, and returns how that ended, what was called, and what was written.
    async fn run(&self) -> (Finished, Vec<String>, Vec<String>) {
        let key = ObjectRef::namespaced("n", "a");
        self.queue.event(&key, queue::Event::PrimaryChanged { deleting: false }, Instant::now());
        let mut ticket = self.queue.next().await.unwrap();
        let ended = execute(Arc::clone(&self.controller), &mut ticket, NOW).await;
        let what = ticket.finish(ended.finished, Instant::now());
        *self.next.lock() = Some(what.next);
        (ended.finished, std::mem::take(&mut self.calls.lock()), std::mem::take(&mut self.server.writes.lock()))
    }
}

const WORKFLOW: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }";
const EXPLICIT: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, garbageCollected: false } } }";
const DONE: Finished = Finished::DONE;
/// When runs take place: by this, pauses end.
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn status(text: &str) -> Result<UpdateControl, Failure> {
    Ok(UpdateControl { update: PrimaryUpdate::Status(text.to_owned()), reschedule: None })
}

fn returned<T>(message: &str) -> Result<T, Failure> {
    Err(Failure::new(Cause::Returned, message))
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_is_gone_needs_nothing() {
    // EP-14
    let bench = Bench::new(Script::default(), "");
    assert_eq!(bench.run().await, (Finished::Gone, vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_for_a_primary_while_it_is_paused() {
    // PA-1, PA-4, PA-5
    let nothing = |again| (Finished::Done { finalizer_removed: false, again }, vec![], vec![]);
    let paused = |value: Option<&str>| json!({ "annotations": { "capstan.dev/paused": value } });
    let mut bench = Bench::new(Script::default(), EXPLICIT);
    for (value, again) in [("true", None), ("sometimes", None), ("1970-01-01T00:01:00Z", Some(Duration::from_mins(1)))]
    {
        bench.page(paused(Some(value)));
        assert_eq!(bench.run().await, nothing(again), "{value}: not even the finalizer is added");
        assert_eq!(bench.controller.verdicts.paused(), 1);
    }
    bench.page(paused(None));
    assert_eq!(bench.run().await, (DONE, vec![], strings(&["patch Page a"])));
    assert_eq!(bench.controller.verdicts.paused(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_primary_is_done_by_its_holder_alone_for_as_long_as_it_holds_it() {
    // PA-6
    let nothing = |again| (Finished::Done { finalizer_removed: false, again }, vec![], vec![]);
    let hold = Hold::new("ana", NOW, NOW + Duration::from_mins(1)).text();
    let held = json!({ "annotations": { "capstan.dev/held": hold } });
    let script = Script { ask: Some(Arc::new(|_| std::future::pending().boxed())), ..Script::default() };
    let mut bench = Bench::new(script, EXPLICIT);
    let with = |bench: &mut Bench, holder: Option<&str>| {
        Arc::get_mut(&mut bench.controller).unwrap().holder = holder.map(Arc::from);
    };
    bench.page(held.clone());
    assert_eq!(bench.run().await, nothing(Some(Duration::from_mins(1))), "not even the finalizer is added");
    assert_eq!(bench.controller.verdicts.paused(), 1);
    with(&mut bench, Some("bo"));
    assert_eq!(bench.run().await, nothing(None));
    with(&mut bench, Some("ana"));
    assert_eq!(bench.run().await, (DONE, vec![], strings(&["patch Page a"])));
    // It is not renewed while a run goes on.
    let mut protected = held;
    protected["finalizers"] = json!(["sample.dev/finalizer"]);
    bench.page(protected);
    let begun = Instant::now();
    let (finished, calls, _) = bench.run().await;
    assert_eq!((finished, calls), (DONE, strings(&["desired cm", "reconcile"])));
    assert_eq!(begun.elapsed().as_secs(), 45, "the margin before its end");
    with(&mut bench, None);
    bench.page(json!({ "annotations": { "capstan.dev/held": "ana" } }));
    assert_eq!(bench.run().await, nothing(None), "whoever set it wants something to stop");
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_is_deleted_while_it_is_paused_is_cleaned_up_once_it_is_not() {
    // PA-1, PA-2
    let going = |value: Option<&str>| {
        json!({
            "annotations": { "capstan.dev/paused": value },
            "finalizers": ["sample.dev/finalizer"],
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        })
    };
    let mut bench = Bench::new(Script::default(), EXPLICIT);
    bench.page(going(Some("true")));
    assert_eq!(bench.run().await, (DONE, vec![], vec![]));
    bench.page(going(None));
    let with = |bench: &mut Bench, paused| Arc::get_mut(&mut bench.controller).unwrap().spec.paused = paused;
    with(&mut bench, true);
    assert_eq!(bench.run().await, (DONE, vec![], vec![]), "its controller is paused");
    with(&mut bench, false);
    let (finished, _, writes) = bench.run().await;
    assert_eq!(finished, Finished::Done { finalizer_removed: true, again: None });
    assert_eq!(writes.last().map(String::as_str), Some("patch Page a"));
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_is_wrong_is_told_so_and_nothing_is_written_for_it_but_that() {
    // VA-1, VA-2, VA-3
    let exports = &[Interface::Reconciler, Interface::Dependent, Interface::Validator, Interface::RetryPolicy];
    let wrong = |field: &str, message: &str| Invalid { field: Some(field.to_owned()), message: message.to_owned() };
    let found = vec![wrong("spec.a", "no"), Invalid { field: None, message: "so".to_owned() }];
    let script = || Script { exports, validate: Ok(found.clone()), ..Script::default() };
    let mut bench = Bench::new(script(), EXPLICIT);
    let held = json!({ "finalizers": ["sample.dev/finalizer"] });
    bench.page(json!({}));
    assert_eq!(bench.run().await, (DONE, vec![], strings(&["patch Page a"])), "its finalizer is no matter of that");
    bench.page(held.clone());
    let failed = Finished::Failed(queue::Failure::Unhandled);
    assert_eq!(bench.run().await, (failed, strings(&["validate"]), vec![]));
    assert!(matches!(*bench.next.lock(), Some(queue::Next::Exhausted(_))), "nobody is asked for a retry");
    assert_eq!(
        *bench.published.lock(),
        [(
            "Invalid".to_owned(),
            "spec.a: no; so; the next run follows a change of it, of the component, or of its settings".to_owned()
        )]
    );
    let mut going = held;
    going["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    bench.page(going);
    let (finished, calls, writes) = bench.run().await;
    assert_eq!(finished, Finished::Done { finalizer_removed: true, again: None });
    assert_eq!((calls, writes.last().map(String::as_str)), (vec![], Some("patch Page a")));
    // That it can't say is a failure like others.
    let mut bench = Bench::new(Script { validate: returned("can't say"), ..script() }, WORKFLOW);
    bench.page(json!({}));
    assert_eq!(
        bench.run().await,
        (failed, strings(&["validate", "decide-retry Returned \"can't say\" attempt 0"]), vec![])
    );
    assert!(matches!(*bench.next.lock(), Some(queue::Next::Retry(_))));
}

#[tokio::test(start_paused = true)]
async fn a_primary_of_which_nothing_can_be_desired_any_more_takes_what_was_made_of_it_along() {
    // VA-3, DR-5: known by its name, and after a start of the daemon by its mark
    for starts in [false, true] {
        let mut bench = Bench::new(Script::default(), EXPLICIT);
        bench.page(json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] }));
        assert_eq!(bench.run().await.2, strings(&["create ConfigMap a"]));
        bench.show();
        let controller = Arc::get_mut(&mut bench.controller).unwrap();
        controller.guest = Arc::new(Script { desired: Err("no".to_owned()), ..Script::default() });
        if starts {
            controller.verdicts = Arc::new(Verdicts::default());
        }
        let going = json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" });
        bench.page(going);
        assert_eq!(bench.run().await.2, strings(&["delete ConfigMap a", "patch Page a"]), "{starts}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_begins_to_be_garbage_collected_gets_its_owner_however_it_is_compared() {
    // KD-2
    for matching in ["generic: {}", "export: same"] {
        let declared = |collected: &str| {
            format!(
                "workflow: {{ dependents: {{ cm: {{ apiVersion: v1, kind: ConfigMap, match: {{ {matching} }}{collected} }} }} }}"
            )
        };
        let mut bench = Bench::new(Script::default(), &declared(", garbageCollected: false"));
        let page = json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] });
        bench.page(page.clone());
        assert_eq!(bench.run().await.2, strings(&["create ConfigMap a"]));
        bench.show();
        let next = Bench::new(Script::default(), &declared(""));
        let controller = Arc::get_mut(&mut bench.controller).unwrap();
        (controller.spec, controller.edition) = (next.controller.spec.clone(), 2);
        let writes = bench.run().await.2;
        assert!(writes.contains(&"update ConfigMap a".to_owned()), "{matching}: {writes:?}");
        let map = bench.server.objects.lock()[&(config_map(), ObjectRef::namespaced("n", "a"))].clone();
        assert_eq!(map["metadata"]["ownerReferences"][0]["uid"], "page");
        bench.show();
        assert_eq!(bench.run().await.2, vec![""; 0], "{matching}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_validates_sees_the_primary_alone() {
    // VA-1
    let ask: Ask = Arc::new(|run| {
        async move {
            let kind = ObjectTarget { gvk: config_map(), key: ObjectRef::namespaced("n", "a") };
            let read = run.find_named(Place::Kind(kind.gvk.clone()), kind.key.clone()).await;
            let removed = run.remove(kind, Deletion::default()).await;
            let reason = |error: Option<CallError>| format!("{:?}", error.map(|error| error.reason));
            let memo = run.set_memo(Lifetime::Primary, "a", None);
            vec![reason(read.err()), reason(removed.err()), reason(memo.err()), run.info().beside.to_string()]
        }
        .boxed()
    });
    let exports = &[Interface::Validator, Interface::Reconciler, Interface::Dependent];
    let found = Ok(vec![Invalid { field: None, message: "no".to_owned() }]);
    let mut bench = Bench::new(Script { exports, validate: found, ask: Some(ask), ..Script::default() }, WORKFLOW);
    bench.page(json!({}));
    let misplaced = "Some(Misplaced)";
    let calls = strings(&["validate", misplaced, misplaced, misplaced, "true"]);
    assert_eq!(bench.run().await, (Finished::Failed(queue::Failure::Unhandled), calls, vec![]));
}

#[tokio::test(start_paused = true)]
async fn the_workflow_runs_before_the_reconciler_and_a_second_run_writes_nothing() {
    // WF-2
    let mut bench =
        Bench::new(Script { reconcile: status(r#"{"status":{"ok":true}}"#), ..Script::default() }, WORKFLOW);
    bench.page(json!({}));
    let calls = strings(&["desired cm", "reconcile"]);
    assert_eq!(bench.run().await, (DONE, calls.clone(), strings(&["create ConfigMap a", "patch Page a/status"])));
    assert_eq!(bench.run().await, (DONE, calls, vec![]));
}

#[tokio::test(start_paused = true)]
async fn the_desired_state_is_asked_for_once_however_often_a_run_needs_it() {
    // CX-3: the condition can be met only if it is known which object is meant
    const READY: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, \
         readyPostcondition: { cel: dependent.data.x == \"y\" } } } }";
    let mut bench = Bench::new(Script::default(), READY);
    bench.page(json!({ "uid": "page" }));
    let calls = strings(&["desired cm", "reconcile"]);
    assert_eq!(bench.run().await, (DONE, calls, strings(&["create ConfigMap a"])));
}

#[tokio::test(start_paused = true)]
async fn what_exists_already_is_ours_only_by_uid() {
    const APPLIED: &str =
        "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, serverSideApply: true } } }";
    const ADOPTED: &str =
        "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, serverSideApply: true, adopt: true } } }";
    let owned = |uid: &str| json!({ "ownerReferences": [{ "apiVersion": "sample.dev/v1", "kind": "Page", "name": "a", "uid": uid }] });
    // Neither tells whose it is: a mapping by name, and the cache.
    let mapped = json!({ "annotations": { "capstan.dev/primary-name": "a" } });
    let written: &[&str] = &["patch ConfigMap a", "patch ConfigMap a"];
    let refused: &[&str] = &["patch ConfigMap a"];
    for (fields, metadata, writes) in [
        (APPLIED, json!({}), refused),
        (APPLIED, mapped.clone(), refused),
        (APPLIED, owned("u-2"), refused),
        (APPLIED, owned("page"), written),
        (ADOPTED, json!({}), written),
        (ADOPTED, mapped, written),
        (ADOPTED, owned("u-2"), refused),
    ] {
        for seen in [false, true] {
            let mut bench = Bench::new(Script::default(), fields);
            bench.page(json!({ "uid": "page" }));
            let mut map = json!({ "metadata": { "name": "a", "namespace": "n", "uid": "map" } });
            json_patch::merge(&mut map, &json!({ "metadata": metadata }));
            let map = bench.server.put(&Gvk::parse("v1", "ConfigMap").unwrap(), map);
            let known = seen && metadata == owned("page");
            if seen {
                bench.maps.apply(Watch::Applied(map));
            }
            let writes = if known { refused } else { writes };
            let what = format!("{fields} {metadata} {seen}");
            assert_eq!(bench.run().await.2, strings(writes), "{what}");
            let taken = known || writes.len() == 2;
            assert_eq!(bench.data("a")["x"] == "y", taken, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_made_once_and_adopted_is_tied_to_the_primary_and_stays_as_it_is() {
    // KD-6
    for (fields, written, tied) in [
        ("", "update ConfigMap a", false),
        (", serverSideApply: true", "patch ConfigMap a", false),
        (", garbageCollected: false", "update ConfigMap a", true),
        (", serverSideApply: true, garbageCollected: false", "patch ConfigMap a", true),
    ] {
        let fields = format!(
            "workflow: {{ dependents: {{ cm: {{ apiVersion: v1, kind: ConfigMap, manage: [create], adopt: true{fields} }} }} }}"
        );
        let desired = json!({ "metadata": { "name": "a", "labels": { "l": "ours" }, "annotations": { "n": "ours" } }, "data": { "x": "y" } });
        let mut bench = Bench::new(Script { desired: Ok(desired), ..Script::default() }, &fields);
        bench.page(json!({ "uid": "page" }));
        let theirs = json!({ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u-2" });
        // Owned by somebody else as well, it would not be taken over: of a mark of a primary that is gone, it is.
        let gone = json!({ "operator": "a", "controller": "pages", "dependent": "cm",
            "primary": { "apiVersion": "sample.dev/v1", "kind": "Page", "namespace": "n", "name": "gone", "uid": "u-3" } });
        let map = json!({ "immutable": true, "data": { "x": "old", "extra": "keep" }, "metadata": { "name": "a", "namespace": "n",
            "uid": "map", "labels": { "l": "theirs" }, "annotations": { "n": "theirs", "capstan.dev/made-for": gone.to_string() },
            "ownerReferences": [theirs] } });
        bench.server.put(&config_map(), map.clone());
        let created = if fields.contains("serverSideApply") { "patch ConfigMap a" } else { "create ConfigMap a" };
        let writes: Vec<_> = bench.run().await.2.into_iter().filter(|write| write.contains("ConfigMap")).collect();
        assert_eq!(writes, strings(&[created, written]), "{fields}");
        let key = (config_map(), ObjectRef::namespaced("n", "a"));
        let mut now = bench.server.objects.lock()[&key].clone();
        let metadata = now["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
        let mark = metadata["annotations"].as_object_mut().unwrap().remove("capstan.dev/made-for").unwrap();
        let mark: Value = serde_json::from_str(mark.as_str().unwrap()).unwrap();
        assert_eq!(mark["primary"]["uid"], if tied { "page" } else { "u-3" }, "{fields}");
        let mut expected = map;
        let all = &mut expected["metadata"];
        all["annotations"].as_object_mut().unwrap().remove("capstan.dev/made-for");
        if tied {
            for (key, value) in [("name", "a"), ("namespace", "n"), ("type", "sample.dev/v1/Page")] {
                all["annotations"][format!("capstan.dev/primary-{key}")] = value.into();
            }
        } else {
            let owner = json!({ "apiVersion": "sample.dev/v1", "kind": "Page", "name": "a", "uid": "page", "controller": false, "blockOwnerDeletion": false });
            all["ownerReferences"].as_array_mut().unwrap().push(owner);
        }
        expected["apiVersion"] = "v1".into();
        expected["kind"] = "ConfigMap".into();
        assert_eq!(now, expected, "{fields}");
        // It is the primary's from then on.
        assert!(bench.run().await.2.iter().all(|write| !write.contains("ConfigMap") || write == created), "{fields}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_suggests_to_adopt_what_was_made_for_a_primary_that_is_gone_and_that_alone() {
    let adopt = "set `adopt: true` on dependent cm to take it over";
    let rename = "nothing is taken from another owner";
    for (there, cure) in [(None, adopt), (Some("u-4"), adopt), (Some("u-3"), rename)] {
        let mut bench = Bench::new(Script::default(), EXPLICIT);
        bench.page(json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] }));
        if let Some(uid) = there {
            let first = json!({ "metadata": { "name": "first", "namespace": "n", "uid": uid } });
            bench.server.put(&page_kind(), first);
        }
        let mark = json!({ "operator": "a", "controller": "pages", "dependent": "cm",
            "primary": { "apiVersion": "sample.dev/v1", "kind": "Page", "namespace": "n", "name": "first", "uid": "u-3" } });
        let annotations = json!({ "capstan.dev/made-for": mark.to_string() });
        let map = json!({ "metadata": { "name": "a", "namespace": "n", "uid": "map", "annotations": annotations } });
        bench.server.put(&config_map(), map);
        let error = bench.ended().await.0.error.unwrap();
        assert!(error.contains("made for Page n/first (uid u-3)") && error.contains(cure), "{there:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_found_to_be_ours_is_cleaned_up_though_no_cache_shows_it() {
    // OV-1
    let page = json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] });
    let mut before = Bench::new(Script::default(), EXPLICIT);
    before.page(page.clone());
    before.run().await;
    let made = (config_map(), ObjectRef::namespaced("n", "a"));
    let made = before.server.objects.lock()[&made].clone();
    // The answer was lost, and the watch lags behind.
    let mut bench = Bench::new(Script::default(), EXPLICIT);
    bench.page(page.clone());
    bench.server.put(&config_map(), made);
    assert_eq!(bench.run().await.2, strings(&["create ConfigMap a"]));
    let mut going = page;
    going["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    bench.page(going);
    let writes = strings(&["delete ConfigMap a", "patch Page a"]);
    assert_eq!(bench.run().await.2, writes);
}

#[tokio::test(start_paused = true)]
async fn what_a_creation_without_an_answer_has_made_is_not_left_behind() {
    const RENAMED: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, garbageCollected: false, onRename: delete } } }";
    // KD-9: no cache has shown it, nor a conflict, when the primary is deleted or the dependent gets another name.
    let ours = json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] });
    let mut going = ours.clone();
    going["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let lost = |fields: &'static str, refused: Option<Error>| {
        let ours = ours.clone();
        async move {
            let mut bench = Bench::new(Script::default(), fields);
            bench.page(ours);
            bench.server.loses.store(true, Ordering::Relaxed);
            assert_eq!(bench.run().await.2, strings(&["create ConfigMap a"]));
            // What is refused afterwards says nothing of it.
            if let Some(refused) = refused {
                bench.server.failures.lock().push(refused);
                bench.run().await;
            }
            bench
        }
    };
    for refused in [None, Some(unavailable(Reason::Rejected, 422)), Some(unavailable(Reason::Unreachable, 503))] {
        let mut bench = lost(EXPLICIT, refused).await;
        bench.page(going.clone());
        assert_eq!(bench.run().await.2, strings(&["delete ConfigMap a", "patch Page a"]));
    }
    let mut bench = lost(RENAMED, None).await;
    bench.page_of(ours.clone(), json!({ "name": "b" }));
    assert_eq!(bench.run().await.2, strings(&["create ConfigMap b", "delete ConfigMap a"]));
    // What was made by others since then is theirs.
    let mut bench = lost(EXPLICIT, None).await;
    bench.server.put(&config_map(), json!({ "metadata": { "name": "a", "namespace": "n", "uid": "theirs" } }));
    bench.page(going);
    assert_eq!(bench.run().await.2, strings(&["patch Page a"]));
}

#[tokio::test(start_paused = true)]
async fn what_took_the_place_of_ours_behind_the_caches_is_not_written() {
    const APPLIED: &str =
        "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, serverSideApply: true } } }";
    let kind = Gvk::parse("v1", "ConfigMap").unwrap();
    let owner = json!([{ "apiVersion": "sample.dev/v1", "kind": "Page", "name": "a", "uid": "page" }]);
    let ours = json!({ "metadata": { "name": "a", "namespace": "n", "uid": "old", "ownerReferences": owner } });
    let mut theirs = ours.clone();
    theirs["metadata"]["uid"] = "new".into();
    let mut again = theirs.clone();
    theirs["metadata"]["ownerReferences"] = json!([]);
    again["data"] = json!({ "x": "before" });
    for (there, writes) in [
        (Some(theirs), &["patch ConfigMap a"][..]),
        // Made again, by us.
        (Some(again), &["patch ConfigMap a", "patch ConfigMap a"]),
        (None, &["patch ConfigMap a", "patch ConfigMap a"]),
    ] {
        let mut bench = Bench::new(Script::default(), APPLIED);
        bench.page(json!({ "uid": "page" }));
        let seen = bench.server.put(&kind, ours.clone());
        bench.maps.apply(Watch::Applied(seen));
        bench.server.objects.lock().remove(&(kind.clone(), ObjectRef::namespaced("n", "a")));
        let left = there.as_ref().map(|tree| bench.server.put(&kind, tree.clone()));
        assert_eq!(bench.run().await.2, strings(writes), "{left:?}");
        assert_eq!(bench.data("a")["x"] == "y", writes.len() == 2, "{left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_comes_first_if_something_needs_cleanup() {
    // DI-2, DI-4
    let mut bench = Bench::new(Script::default(), EXPLICIT);
    bench.page(json!({}));
    assert_eq!(bench.run().await, (DONE, vec![], strings(&["patch Page a"])));
    // Its answer is in the overlay: the next run sees it, whether or not the event has come.
    assert_eq!(bench.run().await.1, strings(&["desired cm", "reconcile"]));
}

#[tokio::test(start_paused = true)]
async fn what_a_run_came_to_is_kept_for_people_until_its_primary_is_gone() {
    // WF-8
    let mut bench = Bench::new(Script::default(), EXPLICIT);
    let key = ObjectRef::namespaced("n", "a");
    let nodes = |bench: &Bench| {
        let walk = bench.controller.verdicts.walks.of(&key, Instant::now())?;
        Some(serde_json::from_str::<Value>(&walk.workflows).unwrap()[0]["nodes"].clone())
    };
    bench.page(json!({ "finalizers": ["sample.dev/finalizer"] }));
    assert_eq!(nodes(&bench), None);
    bench.run().await;
    assert_eq!(nodes(&bench), Some(json!([{ "name": "cm", "created": 1 }])));
    bench.pages.apply(Watch::Deleted(bench.controller.primaries.get(&key).unwrap()));
    bench.run().await;
    assert_eq!(nodes(&bench), None);
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_that_finds_nothing_asks_for_no_desired_state_and_lets_the_primary_go() {
    // DC-1
    let exports = &[Interface::Reconciler, Interface::Cleaner, Interface::Dependent];
    let mut bench = Bench::new(Script { exports, ..Script::default() }, EXPLICIT);
    bench.page(json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    let (finished, calls, writes) = bench.run().await;
    assert_eq!(finished, Finished::Done { finalizer_removed: true, again: None });
    // Nothing that could be the dependent exists, so its desired state is not asked for.
    assert_eq!((calls, writes), (strings(&["cleanup"]), strings(&["patch Page a"])));
}

#[tokio::test(start_paused = true)]
async fn a_component_cleans_up_after_the_workflow_and_the_primary_goes_once_both_agree() {
    // DC-1, DC-2, DC-5
    let fields = |more: &str, node: &str| {
        format!(
            "workflow: {{ {more}dependents: {{ cm: {{ apiVersion: v1, kind: ConfigMap, garbageCollected: false{node} }} }} }}"
        )
    };
    let (managed, waited) = (fields("", ""), fields("", ", deletePostcondition: gone"));
    let explicit = fields("invocation: explicit, ", "");
    let all: &[Interface] = &[Interface::Reconciler, Interface::Cleaner, Interface::Dependent];
    let page = json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] });
    let mut going = page.clone();
    going["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let key = ObjectRef::namespaced("n", "a");
    let mut before = Bench::new(Script::default(), &managed);
    before.page(page);
    before.run().await;
    let made = before.server.objects.lock()[&(config_map(), key.clone())].clone();
    let (delete, patch) = ("delete ConfigMap a", "patch Page a");
    // With what had been written when it was called.
    let (last, first) = (strings(&["cleanup", delete]), strings(&["cleanup"]));
    for (fields, exports, cleanup, called, writes, goes) in [
        (&managed, all, DeleteControl::RemoveFinalizer, last.clone(), strings(&[delete, patch]), true),
        (&managed, all, DeleteControl::KeepFinalizer(None), last.clone(), strings(&[delete]), false),
        (&waited, all, DeleteControl::RemoveFinalizer, last, strings(&[delete]), false),
        (&explicit, all, DeleteControl::RemoveFinalizer, first.clone(), strings(&[patch]), true),
        (&explicit, Script::default().exports, DeleteControl::RemoveFinalizer, vec![], strings(&[delete, patch]), true),
    ] {
        let server = Arc::<OnceLock<Arc<Server>>>::default();
        let ask: Ask = Arc::new({
            let server = Arc::clone(&server);
            move |_| {
                let written = server.get().unwrap().writes.lock().clone();
                async move { written }.boxed()
            }
        });
        let mut bench =
            Bench::new(Script { exports, cleanup: Ok(cleanup), ask: Some(ask), ..Script::default() }, fields);
        assert!(server.set(Arc::clone(&bench.server)).is_ok());
        let map = bench.server.put(&config_map(), made.clone());
        let source = Arc::clone(&bench.controller.secondaries["cm"]);
        bench.maps.apply(Watch::Applied(map.clone())).map(|change| source.on(change));
        bench.page(going.clone());
        let (finished, mut calls, written) = bench.run().await;
        calls.retain(|call| call != "desired cm");
        assert_eq!(finished, Finished::Done { finalizer_removed: goes, again: None }, "{fields}");
        assert_eq!((calls, written), (called, writes), "{fields}");
        if fields.contains("gone") {
            bench.maps.apply(Watch::Deleted(map)).map(|change| source.on(change));
            let gone = Finished::Done { finalizer_removed: true, again: None };
            assert_eq!(bench.run().await, (gone, first.clone(), strings(&[patch])), "at the next event");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_dependent_elsewhere_is_found_by_name_and_namespace() {
    // KD-4
    let bench = |namespace: &str| {
        let fields = format!(
            "workflow: {{ dependents: {{ cm: {{ apiVersion: v1, kind: ConfigMap, garbageCollected: false, mapping: {{ acrossNamespaces: true }}, name: {{ cel: '\"a\"' }}{namespace} }} }} }}"
        );
        let desired = Ok(json!({ "metadata": { "name": "a", "namespace": "m" } }));
        let exports = &[Interface::Reconciler, Interface::ErrorHandler, Interface::Dependent];
        let script = Script { exports, desired, ..Script::default() };
        let mut bench = Bench::new(script, &fields);
        bench.page(json!({ "finalizers": ["sample.dev/finalizer"] }));
        bench
    };
    let mut there = bench(", namespace: { cel: '\"m\"' }");
    assert_eq!(there.run().await.2, strings(&["create ConfigMap a"]));
    // After a restart.
    Arc::get_mut(&mut there.controller).unwrap().verdicts = Arc::default();
    there.page(json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    assert_eq!(there.run().await.2, strings(&["delete ConfigMap a", "patch Page a"]));
    // What the manifest says of it and what the component answers must be the same.
    for other in ["", ", namespace: { cel: '\"o\"' }"] {
        let bench = bench(other);
        let (finished, calls, writes) = bench.run().await;
        assert_eq!((finished, writes), (UNHANDLED, vec![]), "{other}");
        let told = calls.iter().any(|call| call.contains("let `name` and `namespace` say the same"));
        assert!(told, "{calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_in_a_namespace_that_is_not_watched_is_not_taken_for_gone() {
    // KD-9, NS-2
    let called = ", name: { cel: '\"a\"' }, namespace: { cel: '\"m\"' }";
    for (called, calls) in [(called, vec![]), ("", strings(&["desired cm"]))] {
        let fields = format!(
            "workflow: {{ dependents: {{ cm: {{ apiVersion: v1, kind: ConfigMap, garbageCollected: false, mapping: {{ acrossNamespaces: true }}{called} }} }} }}"
        );
        let desired = Ok(json!({ "metadata": { "name": "a", "namespace": "m" } }));
        let mut bench = Bench::new(Script { desired, ..Script::default() }, &fields);
        let source = &bench.controller.secondaries["cm"];
        source.detach(None);
        source.attach(Some("n"), bench.maps.cache());
        let going = json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" });
        bench.page(going.clone());
        assert_eq!(bench.run().await, (UNHANDLED, calls, vec![]), "{called}");
        // It is looked for again: there was none.
        bench.controller.secondaries["cm"].attach(None, bench.maps.cache());
        bench.page(going);
        assert_eq!(bench.run().await.2, strings(&["patch Page a"]), "{called}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_waits_for_its_own_object_if_that_cant_be_read_and_for_no_other() {
    // IE-2, KD-9
    for (name, writes) in [("a", vec![]), ("other", strings(&["patch Page a"]))] {
        let mut bench = Bench::new(Script::default(), EXPLICIT);
        bench.maps.quarantine(Some(&ObjectRef::namespaced("n", name)));
        bench.page(json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" }));
        let (_, calls, written) = bench.run().await;
        assert_eq!((calls, written), (strings(&["desired cm"]), writes), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_a_version_has_given_until_the_end_is_let_go_by_the_next_one() {
    // DI-2
    let exports = &[Interface::Reconciler, Interface::Cleaner, Interface::Dependent];
    let mut before = Bench::new(Script { exports, ..Script::default() }, "");
    let mut unused = Bench::new(Script::default(), "");
    Arc::get_mut(&mut unused.controller).unwrap().heed_finalizers_of(&before.controller);
    assert!(unused.controller.spec.former_finalizers.is_empty(), "nobody carries it: it may be another controller's");
    // One carries it, perhaps: there was no memory for what was written last.
    let mut forgets = Bench::new(Script { exports, ..Script::default() }, "");
    let pages = forgets.without_memory();
    forgets.page(json!({}));
    pages.put(forgets.large("a", json!({ "finalizers": ["sample.dev/finalizer"] })));
    let mut next = Bench::new(Script::default(), "");
    Arc::get_mut(&mut next.controller).unwrap().heed_finalizers_of(&forgets.controller);
    assert!(next.controller.spec.former_finalizers.contains("sample.dev/finalizer"));
    let mut elsewhere = Bench::new(Script::default(), "cluster: edge");
    Arc::get_mut(&mut elsewhere.controller).unwrap().heed_finalizers_of(&forgets.controller);
    assert!(elsewhere.controller.spec.former_finalizers.is_empty(), "they are other primaries");
    before.page(json!({ "finalizers": ["sample.dev/finalizer"] }));
    let mut after = Bench::new(Script::default(), "");
    Arc::get_mut(&mut after.controller).unwrap().heed_finalizers_of(&before.controller);
    after.page(json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    assert_eq!(after.run().await.2, strings(&["patch Page a"]));
    let mut stays = Bench::new(Script { exports, ..Script::default() }, "");
    Arc::get_mut(&mut stays.controller).unwrap().heed_finalizers_of(&before.controller);
    assert!(stays.controller.spec.former_finalizers.is_empty(), "it is in use");
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_whose_namespace_is_left_meanwhile_does_not_let_the_primary_go() {
    // NS-2
    let exports = &[Interface::Reconciler, Interface::Cleaner, Interface::Dependent];
    let leave = Arc::<Mutex<Option<Arc<Source>>>>::default();
    let ask: Ask = Arc::new({
        let leave = Arc::clone(&leave);
        move |_| {
            leave.lock().as_ref().unwrap().detach(None);
            async { vec![] }.boxed()
        }
    });
    let mut bench = Bench::new(Script { exports, ask: Some(ask), ..Script::default() }, EXPLICIT);
    *leave.lock() = Some(Arc::clone(&bench.controller.primaries));
    bench.page(json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    assert_eq!(bench.run().await, (UNHANDLED, strings(&["cleanup"]), vec![]));
}

#[tokio::test(start_paused = true)]
async fn what_was_made_under_former_names_goes_with_the_primary() {
    let mut bench = Bench::new(Script::default(), EXPLICIT);
    let metadata = json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] });
    for name in ["first", "second"] {
        bench.page_of(metadata.clone(), json!({ "name": name }));
        let made = format!("create ConfigMap {name}");
        assert_eq!(bench.run().await.2, [made]);
    }
    let mut leaving = metadata;
    leaving["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    bench.page_of(leaving, json!({ "name": "third" }));
    let writes = ["delete ConfigMap first", "delete ConfigMap second", "patch Page a"];
    assert_eq!(bench.run().await.2, writes);
}

#[tokio::test(start_paused = true)]
async fn a_former_object_goes_once_the_new_one_is_ready_if_the_manifest_says_so() {
    let foreign: [(&str, Value, Option<&str>); 5] = [
        ("by-hand", json!(null), Some("page")),
        ("sibling", json!({ "dependent": "other" }), Some("page")),
        ("of-another-operator", json!({ "operator": "b" }), Some("page")),
        ("of-another-controller", json!({ "controller": "c" }), Some("page")),
        ("of-another-page", json!({ "primary": { "uid": "old" } }), Some("page")),
    ];
    let delete = strings(&["delete ConfigMap first"]);
    for (rename, last) in [("", vec![]), (", onRename: keep", vec![]), (", onRename: delete", delete)] {
        let fields = format!(
            "workflow: {{ dependents: {{ cm: {{ apiVersion: v1, kind: ConfigMap, readyPostcondition: {{ cel: primary.spec.ready }}{rename} }} }} }}"
        );
        let mut bench = Bench::new(Script::default(), &fields);
        let kind = Gvk::parse("v1", "ConfigMap").unwrap();
        for (name, differs, owner) in &foreign {
            let mut mark = json!({ "operator": "a", "controller": "pages", "dependent": "cm",
                "primary": { "apiVersion": "sample.dev/v1", "kind": "Page", "namespace": "n", "name": "a", "uid": "page" } });
            json_patch::merge(&mut mark, differs);
            let annotations =
                if differs.is_null() { json!({}) } else { json!({ "capstan.dev/made-for": mark.to_string() }) };
            let owners = json!([{ "apiVersion": "sample.dev/v1", "kind": "Page", "name": "a", "uid": owner }]);
            let tree = json!({ "metadata": { "name": name, "namespace": "n", "uid": name, "annotations": annotations, "ownerReferences": owners } });
            let object = bench.server.put(&kind, tree);
            bench.maps.apply(Watch::Applied(object));
        }
        for (name, ready, writes) in [
            ("first", true, strings(&["create ConfigMap first"])),
            ("second", false, strings(&["create ConfigMap second"])),
            ("second", true, last),
        ] {
            bench.page_of(json!({ "uid": "page" }), json!({ "name": name, "ready": ready }));
            assert_eq!(bench.run().await.2, writes, "{rename} {name} {ready}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dependents_that_exchange_their_names_delete_nothing() {
    for (rename, restarted) in [("delete", false), ("keep", false), ("keep", true)] {
        let fields = format!(
            "workflow: {{ dependents: {{ one: {{ apiVersion: v1, kind: ConfigMap, onRename: delete }}, two: {{ apiVersion: v1, kind: ConfigMap, onRename: {rename}, activation: {{ cel: primary.spec.on }} }} }} }}"
        );
        let mut bench = Bench::new(Script::default(), &fields);
        bench.page_of(json!({ "uid": "page" }), json!({ "on": true, "names": { "one": "x", "two": "y" } }));
        assert_eq!(bench.run().await.2, strings(&["create ConfigMap x", "create ConfigMap y"]));
        let exchanged = json!({ "one": "y", "two": "x" });
        bench.page_of(json!({ "uid": "page" }), json!({ "on": true, "names": exchanged }));
        assert!(bench.run().await.2.iter().all(|write| write.starts_with("update")));
        if restarted {
            // Nothing is remembered any more, and the other one is not visited: what it means is asked for.
            Arc::get_mut(&mut bench.controller).unwrap().verdicts = Arc::default();
            bench.page_of(json!({ "uid": "page" }), json!({ "on": false, "names": exchanged }));
            let (_, calls, writes) = bench.run().await;
            assert_eq!(writes, strings(&[]));
            assert!(calls.contains(&"desired two".to_owned()), "{calls:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_can_keep_the_finalizer_and_come_back() {
    // DC-2
    let exports = &[Interface::Reconciler, Interface::Cleaner];
    let cleanup = Ok(DeleteControl::KeepFinalizer(Some(Duration::from_secs(3))));
    let mut bench = Bench::new(Script { exports, cleanup, ..Script::default() }, "");
    bench.page(json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    let again = Finished::Done { finalizer_removed: false, again: Some(Duration::from_secs(3)) };
    assert_eq!(bench.run().await, (again, strings(&["cleanup"]), vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_on_removing_the_finalizer_is_resolved_by_reading_again() {
    // FI-4
    let exports = &[Interface::Reconciler, Interface::Cleaner];
    let mut bench = Bench::new(Script { exports, ..Script::default() }, "");
    bench.page(
        json!({ "finalizers": ["o.dev/f", "sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" }),
    );
    bench.server.failures.lock().push(conflict("too old"));
    let (finished, _, writes) = bench.run().await;
    assert_eq!(finished, Finished::Done { finalizer_removed: true, again: None });
    assert_eq!(writes, strings(&["patch Page a failed", "patch Page a"]));
    let key = (bench.controller.spec.primary.clone(), ObjectRef::namespaced("n", "a"));
    assert_eq!(bench.server.objects.lock()[&key]["metadata"]["finalizers"], json!(["o.dev/f"]));
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_added_and_removed_upon_what_is_there_though_the_cache_is_older() {
    // FI-2, FI-3, FI-4
    const OWN: &str = "sample.dev/finalizer";
    let exports = &[Interface::Reconciler, Interface::Cleaner];
    for (deleted, cached, meanwhile, left) in [
        (Value::Null, json!([]), json!(["o.dev/f"]), json!(["o.dev/f", OWN])),
        (json!("2026-01-01T00:00:00Z"), json!([OWN]), json!(["o.dev/f", OWN]), json!(["o.dev/f"])),
    ] {
        let mut bench = Bench::new(Script { exports, ..Script::default() }, "serverSideApply: false");
        bench.page(json!({ "finalizers": cached, "deletionTimestamp": deleted }));
        let key = (page_kind(), ObjectRef::namespaced("n", "a"));
        let finalizers = || bench.server.objects.lock()[&key]["metadata"]["finalizers"].clone();
        let mut newer = bench.server.objects.lock()[&key].clone();
        newer["metadata"]["finalizers"] = meanwhile;
        bench.server.put(&page_kind(), newer);
        let (finished, _, writes) = bench.run().await;
        assert_eq!(finished, Finished::Done { finalizer_removed: !deleted.is_null(), again: None });
        assert_eq!((writes, finalizers()), (strings(&["patch Page a", "patch Page a"]), left), "the first is refused");
    }
}

#[tokio::test(start_paused = true)]
async fn ten_conflicts_are_a_failure() {
    // FI-4
    let exports = &[Interface::Reconciler, Interface::Cleaner];
    let going = json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" });
    for metadata in [json!({}), going] {
        let mut bench = Bench::new(Script { exports, ..Script::default() }, "serverSideApply: false");
        bench.page(metadata);
        // One more would be answered.
        bench.server.failures.lock().extend((0..10).map(|_| conflict("too old")));
        let (finished, _, writes) = bench.run().await;
        assert_eq!((finished, writes.len()), (Finished::Failed(queue::Failure::Conflict), 10));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_workflow_keeps_the_reconciler_from_running_and_is_told_to_the_error_handler() {
    // WF-9, EC-1, EC-2
    let exports = &[Interface::Reconciler, Interface::ErrorHandler, Interface::Dependent];
    let mut bench = Bench::new(Script { exports, desired: Err("no disk".to_owned()), ..Script::default() }, WORKFLOW);
    bench.page(json!({}));
    let told = "handle-error Workflow \"the workflow failed: cm: no disk\" None [(\"cm\", \"no disk\", None)] attempt 0 last false";
    let failed = Finished::Failed(queue::Failure::Unhandled);
    assert_eq!(bench.run().await, (failed, strings(&["desired cm", told]), vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_run_is_prepared_before_anything_else_is_called_and_ends_if_that_fails() {
    // CI-1
    let exports = &[
        Interface::Reconciler,
        Interface::Cleaner,
        Interface::ErrorHandler,
        Interface::Initializer,
        Interface::Dependent,
    ];
    let failed = Finished::Failed(queue::Failure::Unhandled);
    let removed = Finished::Done { finalizer_removed: true, again: None };
    let told = "handle-error Reconciler \"not yet\" None [] attempt 0 last false";
    let stays = json!({ "finalizers": ["sample.dev/finalizer"] });
    let mut goes = stays.clone();
    goes["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    for (metadata, initialize, finished, calls) in [
        (&stays, Ok(()), DONE, &["initialize", "desired cm", "reconcile"][..]),
        (&stays, returned("not yet"), failed, &["initialize", told]),
        (&goes, Ok(()), removed, &["initialize", "cleanup"]),
        (&goes, returned("not yet"), failed, &["initialize"]),
    ] {
        let mut bench = Bench::new(Script { exports, initialize, ..Script::default() }, EXPLICIT);
        bench.page(metadata.clone());
        let (ended, called, _) = bench.run().await;
        assert_eq!((ended, called), (finished, strings(calls)), "{metadata}");
    }
    // What runs nothing prepares nothing.
    let mut bench = Bench::new(Script { exports, ..Script::default() }, EXPLICIT);
    bench.page(json!({}));
    assert_eq!(bench.run().await.1, strings(&[]));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_too_long_in_all_is_given_up_and_told_to_the_error_handler() {
    // RT-6
    const LIMITED: &str = "reconciliationTimeout: 500ms";
    let exports = &[Interface::Reconciler, Interface::Cleaner, Interface::ErrorHandler];
    let slow: Ask = Arc::new(|_| {
        async {
            sleep(Duration::from_mins(1)).await;
            vec![]
        }
        .boxed()
    });
    let script = Script { exports, ask: Some(slow), ..Script::default() };
    let told =
        "handle-error Timeout \"the run took longer than 500ms (reconciliationTimeout)\" None [] attempt 0 last false";
    let stays = json!({ "finalizers": ["sample.dev/finalizer"] });
    let mut goes = stays.clone();
    goes["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    for (metadata, calls) in [(stays, &["reconcile", told][..]), (goes, &["cleanup"])] {
        let mut bench = Bench::new(script.clone(), LIMITED);
        bench.page(metadata);
        let begun = Instant::now();
        assert_eq!(bench.run().await, (UNHANDLED, strings(calls), vec![]));
        assert_eq!(begun.elapsed(), Duration::from_millis(500));
    }
    // What the API server keeps waiting is an outage, whatever it was asked for.
    let exports = &[Interface::Reconciler];
    let reconcile = status(r#"{"status":{"ok":true}}"#);
    let mut bench = Bench::new(Script { exports, reconcile, ..Script::default() }, LIMITED);
    bench.page(json!({}));
    bench.server.hangs.store(true, Ordering::Relaxed);
    assert_eq!(bench.run().await.0, Finished::Failed(queue::Failure::Outage));
}

const ALL_EVENTS: &str = "triggerOnAllEvents: true";

#[tokio::test(start_paused = true)]
async fn in_all_events_mode_a_primary_is_reconciled_however_it_is_and_its_finalizers_are_left_alone() {
    // AE-1
    for metadata in [
        json!({}),
        json!({ "finalizers": ["sample.dev/finalizer"] }),
        json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }),
        json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" }),
    ] {
        let mut bench = Bench::new(Script::default(), ALL_EVENTS);
        bench.page(metadata.clone());
        assert_eq!(bench.run().await, (DONE, strings(&["reconcile"]), vec![]), "{metadata}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_run_in_all_events_mode_writes_to_a_primary_that_it_has_let_go_is_no_failure() {
    // AE-1
    for (fields, finished) in [(ALL_EVENTS, DONE), ("", UNHANDLED)] {
        let reconcile = status(r#"{"status":{"ok":true}}"#);
        let mut bench = Bench::new(Script { reconcile, ..Script::default() }, fields);
        bench.page(json!({}));
        bench.server.failures.lock().push(unavailable(Reason::Missing, 404));
        assert_eq!(bench.run().await.0, finished, "{fields}");
    }
    // What names the uid is a conflict.
    let object = || UpdateControl { update: PrimaryUpdate::Object(r#"{"spec":{"a":1}}"#.to_owned()), reschedule: None };
    for (there, finished) in
        [(None, DONE), (Some("u-2"), DONE), (Some("u-1"), Finished::Failed(queue::Failure::Conflict))]
    {
        let mut bench = Bench::new(Script { reconcile: Ok(object()), ..Script::default() }, ALL_EVENTS);
        bench.page(json!({ "uid": "u-1" }));
        let key = (page_kind(), ObjectRef::namespaced("n", "a"));
        match there {
            Some(uid) => bench.server.objects.lock().get_mut(&key).unwrap()["metadata"]["uid"] = uid.into(),
            None => drop(bench.server.objects.lock().remove(&key)),
        }
        bench.server.failures.lock().push(conflict("uid mismatch"));
        assert_eq!(bench.run().await.0, finished, "{there:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_apply_in_all_events_mode_repeats_the_finalizer_if_it_is_there() {
    // FI-5, AE-1
    for carried in [&[][..], &["sample.dev/finalizer"]] {
        let object =
            UpdateControl { update: PrimaryUpdate::Object(r#"{"spec":{"a":1}}"#.to_owned()), reschedule: None };
        let mut bench = Bench::new(Script { reconcile: Ok(object), ..Script::default() }, ALL_EVENTS);
        bench.page(json!({ "finalizers": carried }));
        bench.run().await;
        let key = (bench.controller.spec.primary.clone(), ObjectRef::namespaced("n", "a"));
        let finalizers = bench.server.objects.lock()[&key]["metadata"]["finalizers"].clone();
        assert_eq!(finalizers, json!(carried));
    }
}

/// Runs what follows once a page is gone, and returns how that ended, what was called, and what was written.
async fn depart(bench: &Bench, unknown: bool) -> (Finished, Vec<String>, Vec<String>) {
    let key = ObjectRef::namespaced("n", "a");
    bench.queue.event(&key, queue::Event::PrimaryDeleted { unknown }, Instant::now());
    let mut ticket = bench.queue.next().await.unwrap();
    let ended = execute(Arc::clone(&bench.controller), &mut ticket, NOW).await;
    let what = ticket.finish(ended.finished, Instant::now());
    *bench.next.lock() = Some(what.next);
    (ended.finished, std::mem::take(&mut bench.calls.lock()), std::mem::take(&mut bench.server.writes.lock()))
}

#[tokio::test(start_paused = true)]
async fn a_run_about_a_deletion_gets_the_last_known_object_and_neither_writes_nor_comes_back() {
    // AE-2, AE-4, UC-6
    let exports = &[Interface::Reconciler, Interface::ErrorHandler];
    let ask: Ask = Arc::new(|run: Arc<dyn Context>| {
        let info = run.info();
        async move { vec![format!("deleted {} unknown {}", info.primary_deleted, info.final_state_unknown)] }.boxed()
    });
    let reconcile = UpdateControl {
        update: PrimaryUpdate::Status(r#"{"status":{"ok":true}}"#.to_owned()),
        reschedule: Some(Duration::from_secs(1)),
    };
    let script = Script { exports, reconcile: Ok(reconcile), ask: Some(ask), ..Script::default() };
    let handled = ErrorControl::Handled { status: Some(r#"{"status":{}}"#.to_owned()), next: NextStep::Retry };
    let fails = Script { reconcile: returned("no"), handle_error: handled, ..script.clone() };
    let said = "handle-error Reconciler \"no\" None [] attempt 0 last false";
    let minute = Duration::from_mins(1);
    let later = ErrorControl::Handled { status: None, next: NextStep::Reschedule(minute) };
    let later = Script { handle_error: later, ..fails.clone() };
    let delayed = Finished::Failed(queue::Failure::Delayed(minute));
    for (script, unknown, finished, calls) in [
        (script.clone(), false, DONE, vec!["reconcile", "deleted true unknown false"]),
        (script, true, DONE, vec!["reconcile", "deleted true unknown true"]),
        (fails, true, Finished::Failed(queue::Failure::Handled), vec!["reconcile", "deleted true unknown true", said]),
        // AE-3: it is not over before it has succeeded.
        (later, true, delayed, vec!["reconcile", "deleted true unknown true", said]),
    ] {
        let mut bench = Bench::new(script, ALL_EVENTS);
        bench.page(json!({ "annotations": { "capstan.dev/paused": "true" } }));
        let last = bench.controller.primaries.get(&ObjectRef::namespaced("n", "a")).unwrap();
        bench.pages.apply(Watch::Deleted(last.clone()));
        assert_eq!(bench.controller.verdicts.departed.keep(&last, || None), Trace::Whole);
        assert_eq!(depart(&bench, unknown).await, (finished, strings(&calls), vec![]));
    }
    // Not while the controller is paused.
    let mut bench = Bench::new(Script::default(), "triggerOnAllEvents: true\npaused: true");
    bench.page(json!({}));
    assert_eq!(depart(&bench, false).await, (Finished::Postponed { until: None }, vec![], vec![]));
    assert_eq!(bench.controller.verdicts.paused(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_primary_that_another_daemon_held_is_run_once_its_hold_is_over() {
    // AE-2, PA-6: that daemon may have gone before it has run.
    let mut bench = Bench::new(Script::default(), ALL_EVENTS);
    let hold = Hold::new("ana", NOW, NOW + Duration::from_mins(1)).text();
    bench.page(json!({ "annotations": { "capstan.dev/held": hold } }));
    let last = bench.controller.primaries.get(&ObjectRef::namespaced("n", "a")).unwrap();
    bench.pages.apply(Watch::Deleted(last.clone()));
    assert_eq!(bench.controller.verdicts.departed.keep(&last, || None), Trace::Whole);
    let left = Duration::from_mins(1);
    assert_eq!(depart(&bench, false).await, (Finished::Postponed { until: Some(left) }, vec![], vec![]));
    assert_eq!(*bench.next.lock(), Some(queue::Next::Again(left)), "its end is still to do");
    let begun = Instant::now();
    let mut ticket = bench.queue.next().await.unwrap();
    assert_eq!((begun.elapsed(), ticket.deletion().is_some()), (left, true));
    let ended = execute(Arc::clone(&bench.controller), &mut ticket, NOW + left).await;
    assert_eq!((ended.finished, bench.calls.lock().clone()), (DONE, strings(&["reconcile"])));
    // Another one of its name that nobody holds changes nothing.
    let mut bench = Bench::new(Script::default(), ALL_EVENTS);
    bench.page(json!({ "uid": "next" }));
    assert_eq!(bench.controller.verdicts.departed.keep(&last, || None), Trace::Whole);
    assert_eq!(depart(&bench, false).await, (Finished::Postponed { until: Some(left) }, vec![], vec![]));
    // Another one of its name is there by then, and held as this one was: nothing is left to do.
    let mut bench = Bench::new(Script::default(), ALL_EVENTS);
    bench.page(
        json!({ "uid": "next", "annotations": { "capstan.dev/held": Hold::new("ana", NOW, NOW + left * 2).text() } }),
    );
    assert_eq!(bench.controller.verdicts.departed.keep(&last, || None), Trace::Whole);
    assert_eq!(depart(&bench, false).await, (DONE, vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn failures_can_be_left_to_the_reconciler() {
    // WF-9
    let lenient = "workflow: { errors: reconciler, dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }";
    let mut bench = Bench::new(Script { desired: Err("no disk".to_owned()), ..Script::default() }, lenient);
    bench.page(json!({}));
    assert_eq!(bench.run().await, (DONE, strings(&["desired cm", "reconcile"]), vec![]));
}

#[tokio::test(start_paused = true)]
async fn the_log_hears_of_a_dependent_that_failed_whatever_the_run_comes_to() {
    // WF-9
    const DEPENDENTS: &str = "dependents: { cm: { apiVersion: v1, kind: Secret } } }";
    let broken = || Err("no disk".to_owned());
    let lenient = format!("workflow: {{ errors: reconciler, {DEPENDENTS}");
    for (script, fields, error, tolerated) in [
        (Script { desired: broken(), ..Script::default() }, &lenient, None, Some("cm: no disk")),
        (
            Script { desired: broken(), reconcile: returned("no theme"), ..Script::default() },
            &lenient,
            Some("no theme"),
            Some("cm: no disk"),
        ),
        (
            Script { desired: broken(), reconcile: returned("cm says: no disk"), ..Script::default() },
            &lenient,
            Some("cm says: no disk"),
            None,
        ),
        (
            Script { desired: broken(), ..Script::default() },
            &format!("workflow: {{ {DEPENDENTS}"),
            Some("the workflow failed: cm: no disk"),
            None,
        ),
        (Script::default(), &lenient, None, None),
    ] {
        let mut bench = Bench::new(script, fields);
        bench.page(json!({}));
        let (ended, _) = bench.ended().await;
        assert_eq!((ended.error.as_deref(), ended.tolerated.as_deref()), (error, tolerated));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_leaves_a_warning_unless_the_component_or_the_next_try_deals_with_it() {
    // ER-8
    const MAP: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }";
    const SECRET: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: Secret } } }";
    let broken = || Script { reconcile: returned("broken"), ..Script::default() };
    let handler = &[Interface::Reconciler, Interface::ErrorHandler];
    let handled =
        |next| Script { exports: handler, handle_error: ErrorControl::Handled { status: None, next }, ..broken() };
    let refused = |code| vec![unavailable(Reason::Rejected, code)];
    for (about, script, fields, failures, expected) in [
        ("it is well", Script::default(), "", vec![], None),
        ("it fails", broken(), "", vec![], Some(("RunFailed", "broken; the run is retried"))),
        (
            "the last attempt",
            broken(),
            "retry: none",
            vec![],
            Some(("RunFailed", "broken; that was the last attempt: the next run follows the next change")),
        ),
        (
            "a dependent",
            Script::default(),
            MAP,
            refused(400),
            Some(("DependentFailed", "failed: cm (HTTP 400); the run is retried")),
        ),
        (
            "a secret",
            Script::default(),
            SECRET,
            refused(400),
            Some(("DependentFailed", "failed: cm (the log says why); the run is retried")),
        ),
        ("an outage", Script::default(), MAP, vec![unavailable(Reason::Unreachable, 503)], None),
        ("a conflict", Script::default(), MAP, vec![conflict("too old")], None),
        ("it is dealt with", handled(NextStep::Retry), "", vec![], None),
        ("it is not retried", handled(NextStep::Stop), "", vec![], None),
        (
            "the handler says nothing",
            Script { exports: handler, ..broken() },
            "",
            vec![],
            Some(("RunFailed", "broken; the run is retried")),
        ),
        ("it is not wanted", broken(), "events: { ofFailures: false }", vec![], None),
    ] {
        let mut bench = Bench::new(script, fields);
        bench.page(json!({}));
        bench.server.failures.lock().extend(failures);
        bench.run().await;
        let published = std::mem::take(&mut *bench.published.lock());
        let expected: Vec<_> =
            expected.iter().map(|(reason, text)| ((*reason).to_owned(), (*text).to_owned())).collect();
        assert_eq!(published, expected, "{about}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_handler_can_write_a_status_and_end_the_retries() {
    // EC-3, EC-5
    let exports = &[Interface::Reconciler, Interface::ErrorHandler];
    let handle_error =
        ErrorControl::Handled { status: Some(r#"{"status":{"error":"x"}}"#.to_owned()), next: NextStep::Stop };
    let mut bench =
        Bench::new(Script { exports, reconcile: returned("broken"), handle_error, ..Script::default() }, "");
    bench.page(json!({}));
    let (finished, _, writes) = bench.run().await;
    assert_eq!((finished, writes), (Finished::NoRetry { again: None }, strings(&["patch Page a/status"])));
}

#[tokio::test(start_paused = true)]
async fn an_error_handler_can_say_how_long_the_retry_waits() {
    // RT-5
    let exports = &[Interface::Reconciler, Interface::ErrorHandler];
    let after = Duration::from_millis(700);
    let handle_error = ErrorControl::Handled { status: None, next: NextStep::RetryAfter(after) };
    let mut bench =
        Bench::new(Script { exports, reconcile: returned("broken"), handle_error, ..Script::default() }, "");
    bench.page(json!({}));
    assert_eq!(bench.run().await.0, Finished::Failed(queue::Failure::Delayed(after)));
    assert_eq!(*bench.next.lock(), Some(queue::Next::Retry(after)));
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_by_the_policy_of_their_class_and_the_error_handler_knows_whether_they_are() {
    // RT-7, EC-2
    let fields = "retry: { initialInterval: 1s, by: { returned: { initialInterval: 2s }, conflict: { initialInterval: 3s }, rejected: none, trap: { initialInterval: 4s }, timeout: { initialInterval: 5s }, outOfMemory: none } }\nreconciliationTimeout: 1m\n";
    let failed = |cause| Err(Failure::new(cause, "broken"));
    let written = || status(r#"{"status":{"ok":true}}"#);
    let retry = |seconds| (queue::Next::Retry(Duration::from_secs(seconds)), "last false");
    let none = (queue::Next::Exhausted(None), "last true");
    for (reconcile, refused, (next, told)) in [
        (failed(Cause::Returned), None, retry(2)),
        (failed(Cause::Trap), None, retry(4)),
        (failed(Cause::Timeout), None, retry(5)),
        (failed(Cause::OutOfMemory), None, none),
        (failed(Cause::Other), None, retry(1)),
        (written(), Some(conflict("too old")), retry(3)),
        (written(), Some(unavailable(Reason::Rejected, 422)), none),
        (written(), Some(unavailable(Reason::Unusable, 200)), retry(1)),
    ] {
        let exports = &[Interface::Reconciler, Interface::ErrorHandler];
        let mut bench = Bench::new(Script { exports, reconcile, ..Script::default() }, fields);
        bench.page(json!({}));
        bench.server.failures.lock().extend(refused.clone());
        let (_, calls, _) = bench.run().await;
        assert_eq!(*bench.next.lock(), Some(next), "{calls:?} {refused:?}");
        assert!(calls.last().unwrap().ends_with(told), "{calls:?} {refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_component_decides_when_a_failed_run_is_retried() {
    // RT-5
    let seconds = Duration::from_secs;
    let retry = |after| queue::Next::Retry(seconds(after));
    let asked = "decide-retry Returned \"no\" attempt 0";
    let handled = |next| ErrorControl::Handled { status: None, next };
    let (unhandled, none) = (ErrorControl::Unhandled, queue::Next::Exhausted(None));
    for (decide_retry, handle_error, fields, next, calls) in [
        (Ok(NextRetry::Declared), unhandled.clone(), "", retry(2), Some(asked)),
        (Ok(NextRetry::After(seconds(7))), unhandled.clone(), "", retry(7), Some(asked)),
        (Ok(NextRetry::Stop), unhandled.clone(), "", none, Some(asked)),
        // Its failure leaves the delay to the manifest.
        (Err(Failure::new(Cause::Trap, "broken")), unhandled.clone(), "", retry(2), Some(asked)),
        // What the error handler has dealt with is retried, too; if it says when, nobody else is asked.
        (Ok(NextRetry::After(seconds(7))), handled(NextStep::Retry), "", retry(7), Some(asked)),
        (Ok(NextRetry::After(seconds(7))), handled(NextStep::RetryAfter(seconds(3))), "", retry(3), None),
        (Ok(NextRetry::After(seconds(7))), handled(NextStep::Stop), "", queue::Next::Idle(None), None),
        // No retry would follow.
        (Ok(NextRetry::After(seconds(7))), unhandled.clone(), "retry: { by: { returned: none } }", none, None),
        (Ok(NextRetry::After(seconds(7))), unhandled.clone(), "retry: none", queue::Next::Idle(None), None),
    ] {
        let exports = &[Interface::Reconciler, Interface::ErrorHandler, Interface::RetryPolicy];
        let script = Script { exports, reconcile: returned("no"), handle_error, decide_retry, ..Script::default() };
        let mut bench = Bench::new(script, fields);
        bench.page(json!({}));
        let (_, told, _) = bench.run().await;
        assert_eq!(*bench.next.lock(), Some(next), "{told:?}");
        assert_eq!(told.iter().find(|call| call.starts_with("decide-retry")).map(String::as_str), calls, "{fields}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_component_decides_about_clean_ups_and_never_about_an_outage() {
    // RT-5
    let exports = &[Interface::Reconciler, Interface::Cleaner, Interface::RetryPolicy];
    let decide_retry = Ok(NextRetry::After(Duration::from_secs(7)));
    let going = json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" });
    let stays = json!({ "finalizers": ["sample.dev/finalizer"] });
    let away = || unavailable(Reason::Unreachable, 503);
    let trap = || Err(Failure::new(Cause::Trap, "broken"));
    for (metadata, cleanup, refused, decided) in [
        (&going, trap(), None, true),
        (&going, Ok(DeleteControl::RemoveFinalizer), Some(away()), false),
        (&stays, Ok(DeleteControl::RemoveFinalizer), Some(away()), false),
    ] {
        let reconcile = status(r#"{"status":{"ok":true}}"#);
        let script = Script { exports, reconcile, cleanup, decide_retry: decide_retry.clone(), ..Script::default() };
        let mut bench = Bench::new(script, "");
        bench.page(metadata.clone());
        bench.server.failures.lock().extend(refused);
        bench.run().await;
        let next = *bench.next.lock();
        assert_eq!(next == Some(queue::Next::Retry(Duration::from_secs(7))), decided, "{next:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_in_a_clean_up_and_on_finalizers_has_a_class_too() {
    // RT-7
    let fields = "retry: { by: { conflict: { initialInterval: 3s }, trap: { initialInterval: 4s }, rejected: none } }";
    let exports = &[Interface::Reconciler, Interface::Cleaner];
    let retry = |seconds| queue::Next::Retry(Duration::from_secs(seconds));
    let going = json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" });
    let trap = || Err(Failure::new(Cause::Trap, "broken"));
    let goes = || Ok(DeleteControl::RemoveFinalizer);
    for (metadata, cleanup, refused, next) in [
        (&going, trap(), vec![], retry(4)),
        (&going, goes(), vec![conflict("too old"); 10], retry(3)),
        (&going, goes(), vec![unavailable(Reason::Forbidden, 403)], queue::Next::Exhausted(None)),
        (&json!({}), goes(), vec![unavailable(Reason::Forbidden, 403)], queue::Next::Exhausted(None)),
    ] {
        let mut bench = Bench::new(Script { exports, cleanup, ..Script::default() }, fields);
        bench.page(metadata.clone());
        bench.server.failures.lock().extend(refused.clone());
        bench.run().await;
        assert_eq!(*bench.next.lock(), Some(next), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_error_status_does_not_replace_the_first() {
    // EC-4
    let exports = &[Interface::Reconciler, Interface::ErrorHandler];
    let handle_error = ErrorControl::Handled { status: Some(r#"{"status":{}}"#.to_owned()), next: NextStep::Retry };
    let mut bench =
        Bench::new(Script { exports, reconcile: returned("broken"), handle_error, ..Script::default() }, "");
    bench.page(json!({}));
    bench.server.failures.lock().push(conflict("too old"));
    assert_eq!(bench.run().await.0, Finished::Failed(queue::Failure::Handled));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_on_the_status_is_a_failure_that_is_logged_quietly() {
    // EP-36
    let mut bench = Bench::new(Script { reconcile: status(r#"{"status":{"ok":true}}"#), ..Script::default() }, "");
    bench.page(json!({}));
    bench.server.failures.lock().push(conflict("too old"));
    assert_eq!(bench.run().await.0, Finished::Failed(queue::Failure::Conflict));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_object_of_the_same_name_is_not_taken_for_the_dependent() {
    // KD-4: only what belongs to the primary is looked at; creating then meets what is there.
    let mut bench = Bench::new(Script::default(), WORKFLOW);
    bench.page(json!({}));
    let gvk = Gvk::parse("v1", "ConfigMap").unwrap();
    let foreign =
        bench.server.put(&gvk, json!({ "metadata": { "name": "a", "namespace": "n", "uid": "f" }, "data": {} }));
    bench.maps.apply(Watch::Applied(foreign));
    assert_eq!(bench.run().await.2, strings(&["create ConfigMap a"]));
}

// === what a component may ask ===

fn config_map() -> Gvk {
    Gvk::parse("v1", "ConfigMap").unwrap()
}

fn target(namespace: &str, name: &str) -> ObjectTarget {
    ObjectTarget { gvk: config_map(), key: ObjectRef::namespaced(namespace, name) }
}

fn document(namespace: &str, name: &str, metadata: Value) -> String {
    let mut document = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
    document["metadata"]["namespace"] = namespace.into();
    document["metadata"]["name"] = name.into();
    document.to_string()
}

fn plain(verb: WriteVerb) -> WriteRequest {
    let options = WriteOptions { mode: WriteMode::Plain, ..WriteOptions::default() };
    WriteRequest { verb, options }
}

/// Notes the answer to a write, or why there is none.
async fn written(run: &Arc<dyn Context>, verb: WriteVerb) -> String {
    match run.write(plain(verb)).await {
        Ok(answer) => answer,
        Err(error) => format!("{:?}: {}", error.reason, error.message),
    }
}

/// Runs a page once whose component asks; somebody's config maps `a/safe` and `n/safe` are there.
async fn asked<F>(grants: &str, fields: &str, ask: fn(Arc<dyn Context>) -> F) -> (Vec<String>, Vec<String>)
where
    F: Future<Output = Vec<String>> + Send + 'static,
{
    let script = Script { ask: Some(Arc::new(move |run| ask(run).boxed())), ..Script::default() };
    let mut bench = Bench::granted(script, grants, fields);
    bench.page(json!({ "uid": "u-page" }));
    for namespace in ["m", "n"] {
        let metadata = json!({ "namespace": namespace, "name": "safe", "finalizers": ["other.dev/f"] });
        let map = bench.server.put(&config_map(), json!({ "metadata": metadata, "data": { "k": "v" } }));
        bench.maps.apply(Watch::Applied(map));
    }
    let (_, calls, writes) = bench.run().await;
    let answers = calls.into_iter().filter(|call| call != "reconcile");
    (answers.filter(|call| !call.starts_with("desired")).collect(), writes)
}

const EXPLICITLY: &str =
    "namespaces: [n]\nworkflow: { invocation: explicit, dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }";

#[tokio::test(start_paused = true)]
async fn a_dependents_source_shows_nothing_of_others() {
    async fn ask(run: Arc<dyn Context>) -> Vec<String> {
        let mut answers = Vec::new();
        for place in [Place::Source("cm".to_owned()), Place::Kind(config_map())] {
            for selection in [Selection::Everywhere, Selection::Namespaced("n".to_owned()), Selection::Related] {
                let query = Query {
                    place: place.clone(),
                    selection,
                    labels: None,
                    fields: Vec::new(),
                    newest_only: false,
                    limit: None,
                    after: None,
                };
                answers.push(match run.find_all(query).await {
                    Ok(page) => page.items.len().to_string(),
                    Err(error) => format!("{:?}", error.reason),
                });
            }
            let named = run.find_named(place, ObjectRef::namespaced("n", "safe")).await;
            answers.push(named.unwrap().map_or("none", |_| "found").to_owned());
        }
        answers
    }
    let get = |more: &str| format!("{{ apiVersion: v1, kind: ConfigMap, verbs: [get]{more} }}");
    for (grants, expected) in [
        (String::new(), ["Denied", "Denied", "0", "none"]),
        (get(""), ["1", "1", "0", "found"]),
        (get(", namespaces: all"), ["2", "1", "0", "found"]),
        (get(", namespaces: [m]"), ["1", "0", "0", "none"]),
    ] {
        let (answers, _) = asked(&grants, EXPLICITLY, ask).await;
        assert_eq!(answers, [expected, expected].concat(), "{grants}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_by_kind_leaves_out_no_source_that_may_have_something_of_the_primary() {
    // CX-1a, WF-12
    let two = "workflow: { invocation: explicit, dependents: { cm: { apiVersion: v1, kind: ConfigMap }, late: { apiVersion: v1, kind: ConfigMap, activation: { export: wanted } } } }";
    let mut bench = asking("", two, |run| async move {
        let place = || Place::Kind(config_map());
        let query = Query {
            place: place(),
            selection: Selection::Related,
            labels: None,
            fields: Vec::new(),
            newest_only: false,
            limit: None,
            after: None,
        };
        let named = run.find_named(place(), ObjectRef::namespaced("n", "a")).await;
        [run.find_all(query).await.map(drop), run.find_one(place()).await.map(drop), named.map(drop)].map(told).to_vec()
    });
    let late = Source::new(Spec { name: "late".into(), ..bench.controller.secondaries["late"].spec().clone() });
    late.rests("it rests");
    Arc::get_mut(&mut bench.controller).unwrap().secondaries.insert("late".into(), Arc::new(late));
    map(&mut bench, &ObjectRef::namespaced("n", "a"), Some("page"));
    let missing = "Missing: source late has no objects to be read: it rests";
    let several = "Ambiguous: several sources watch v1 ConfigMap: name one";
    assert_eq!(asked_and_written(&bench).await.0, [missing, several, missing], "no run has visited it");
    let page = bench.controller.primaries.get(&ObjectRef::namespaced("n", "a")).unwrap();
    let (source, sharers, object) = ("late".into(), vec!["late".into()], None);
    let asleep = Asleep { source, sharers: sharers.into(), object };
    bench.controller.verdicts.begin(1);
    bench.controller.verdicts.keep_activity(1, &page, (&"late".into(), Some(asleep)), || None);
    assert_eq!(asked_and_written(&bench).await.0, ["done"; 3], "it is inactive");
    bench.controller.verdicts.begin(2);
    bench.controller.verdicts.keep_activity(2, &page, (&"late".into(), None), || None);
    assert_eq!(asked_and_written(&bench).await.0, [missing, several, missing]);
    let edition = bench.controller.edition;
    bench.controller.verdicts.keep_walked(edition + 1, &page);
    assert_eq!(asked_and_written(&bench).await.0[0], missing, "another edition has walked the workflow");
    bench.controller.verdicts.keep_walked(edition, &page);
    assert_eq!(asked_and_written(&bench).await.0, ["done"; 3], "the workflow did not reach it");
}

#[tokio::test(start_paused = true)]
async fn writes_end_where_the_controller_does_and_show_nothing_of_others() {
    async fn ask(run: Arc<dyn Context>) -> Vec<String> {
        let nothing = || "{}".to_owned();
        let gone = json!({ "apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "none" });
        let finalizers = r#"[{"op":"remove","path":"/metadata/finalizers"}]"#.to_owned();
        vec![
            written(&run, WriteVerb::MergePatch(target("m", "safe"), nothing())).await,
            written(&run, WriteVerb::MergePatch(target("n", "safe"), nothing())).await,
            written(&run, WriteVerb::JsonPatch(target("n", "safe"), finalizers)).await,
            written(&run, WriteVerb::Create(document("n", "new", json!({ "ownerReferences": [gone] })))).await,
            written(&run, WriteVerb::Create(document("n", "new", json!({ "managedFields": [{}] })))).await,
        ]
    }
    let grants = "{ apiVersion: v1, kind: ConfigMap, verbs: [create, patch] }";
    let (answers, writes) = asked(grants, EXPLICITLY, ask).await;
    let field = "spec.plugins.p.capabilities.kubernetes";
    let delete = format!("takes `delete`: the manifest does not permit `delete` on v1 ConfigMap; add it to {field}");
    assert_eq!(
        answers,
        [
            format!(
                "Denied: the manifest permits `patch` on v1 ConfigMap, but not in namespace m; add it to `namespaces` of that entry in {field}"
            ),
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"safe","namespace":"n","resourceVersion":"4","uid":"u-1"}}"#.to_owned(),
            format!("Denied: v1 ConfigMap n/safe: it changes /metadata/finalizers, which {delete}"),
            format!("Denied: v1 ConfigMap n/new: it would be owned by Pod gone (uid none), which {delete}"),
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new","namespace":"n","resourceVersion":"5","uid":"u-1"}}"#.to_owned(),
        ]
    );
    assert_eq!(writes, ["patch ConfigMap safe", "create ConfigMap new"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_shows_nothing_of_an_object_that_the_component_may_not_see() {
    async fn ask(run: Arc<dyn Context>) -> Vec<String> {
        let nothing = || "{}".to_owned();
        let of = ObjectTarget { gvk: config_map(), key: ObjectRef::namespaced("n", "safe") };
        let removed = run.remove(of, Deletion::default()).await.unwrap_err();
        vec![
            written(&run, WriteVerb::Create(document("n", "new", json!({})))).await,
            written(&run, WriteVerb::MergePatch(target("n", "safe"), nothing())).await,
            removed.message,
        ]
    }
    let rights = r#"configmaps "safe" is forbidden: User "u" cannot patch resource "configmaps" in API group "" in the namespace "n""#;
    let denied = r#"admission webhook "w" denied the request: label team=s3cr3t: User "u" cannot patch resource "a""#;
    let violates = r#"configmaps "safe" is forbidden: s3cr3t is no value for k"#;
    let own = "verbs: [create, patch, delete]";
    let all = "verbs: [create, patch, delete, get]";
    for (verbs, (code, text), seen) in [
        (own, (403, denied), false),
        (own, (403, violates), false),
        (own, (500, "failed calling webhook: s3cr3t"), false),
        (own, (422, "s3cr3t"), false),
        (own, (403, rights), true),
        (own, (409, "it has changed"), true),
        (all, (403, denied), true),
    ] {
        let mut bench = asking(&format!("{{ apiVersion: v1, kind: ConfigMap, {verbs} }}"), EXPLICITLY, ask);
        map(&mut bench, &ObjectRef::namespaced("n", "safe"), None);
        let reason = if code == 403 { Reason::Forbidden } else { Reason::Rejected };
        let mut refusal = Error::new(reason, code, text);
        refusal.fields = "data[s3cr3t], metadata.labels".to_owned();
        bench.server.failures.lock().extend(std::iter::repeat_n(refusal, 3));
        let (answers, _) = asked_and_written(&bench).await;
        let [created, patched, removed] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(*created, format!("Rejected: {text}"), "it is its own");
        let unseen = format!(
            "v1 ConfigMap n/safe: refused for data, metadata.labels (HTTP {code}); why is told to those who may see the object, which takes `get`"
        );
        let expected = if seen { text } else { &unseen };
        assert_eq!(*patched, format!("Rejected: {expected}"), "{verbs} {code} {text}");
        assert_eq!(*removed, expected, "{verbs} {code} {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_shows_nothing_of_an_object_that_is_to_be_adopted_and_may_not_be_seen() {
    let fields =
        "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, serverSideApply: true, adopt: true } } }";
    let grant = "{ apiVersion: v1, kind: ConfigMap, verbs: [get] }";
    let unseen = "the workflow failed: cm: v1 ConfigMap n/a: refused (HTTP 403); why is told to those who may see the object, which takes `get`";
    for (grants, expected) in [("", unseen), (grant, "the workflow failed: cm: w denied the request: s3cr3t")] {
        let mut bench = Bench::granted(Script::default(), grants, fields);
        bench.server.put(&config_map(), json!({ "metadata": { "name": "a", "namespace": "n", "uid": "map" } }));
        bench.page(json!({ "uid": "page" }));
        let denied = Error::new(Reason::Forbidden, 403, "w denied the request: s3cr3t");
        *bench.server.failures.lock() = vec![denied, conflict("it exists")];
        assert_eq!(bench.ended().await.0.error.as_deref(), Some(expected), "{grants}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_is_not_the_controllers_own_takes_patch_and_delete() {
    // LC-3
    async fn ask(run: Arc<dyn Context>) -> Vec<String> {
        let told =
            |done: Result<String, CallError>| done.map_or_else(|e| format!("{:?}", e.reason), |_| "done".to_owned());
        let finalizers = r#"{"metadata":{"finalizers":["sample.dev/finalizer"]}}"#;
        let target = ObjectTarget { gvk: page_kind(), key: ObjectRef::namespaced("n", "a") };
        let patch = WriteVerb::MergePatch(target, finalizers.to_owned());
        vec![
            told(run.add_finalizer(None).await),
            told(run.add_finalizer(Some("sample.dev/finalizer".to_owned())).await),
            told(run.add_finalizer(Some("other.dev/f".to_owned())).await),
            told(run.write(WriteRequest { verb: patch, options: WriteOptions::default() }).await),
            told(run.remove_finalizer(None).await),
        ]
    }
    const DENIED: &str = "Denied";
    const MINE: [&str; 5] = ["done", "done", DENIED, DENIED, "done"];
    let grant = |verbs: &str| format!("{{ apiVersion: sample.dev/v1, kind: Page, verbs: [{verbs}] }}");
    let (cleaner, none): (&[Interface], &[Interface]) = (CLEANER, &[Interface::Reconciler]);
    for (exports, fields, named, grants, expected) in [
        (cleaner, "", true, String::new(), MINE),
        (cleaner, "", false, String::new(), MINE),
        (cleaner, "", true, grant("delete"), MINE),
        (cleaner, "", true, grant("patch"), MINE),
        (cleaner, "", true, grant("patch, delete"), ["done"; 5]),
        (none, ALL_EVENTS, true, String::new(), MINE),
        // Another controller may use the default one.
        (none, ALL_EVENTS, false, String::new(), [DENIED; 5]),
        (none, ALL_EVENTS, false, grant("patch"), [DENIED; 5]),
        (none, ALL_EVENTS, false, grant("patch, delete"), ["done"; 5]),
        // Nobody would take it away.
        (none, "", true, String::new(), [DENIED; 5]),
        (none, "", false, grant("patch"), [DENIED; 5]),
    ] {
        let script = Script { exports, ask: Some(Arc::new(move |run| ask(run).boxed())), ..Script::default() };
        let mut bench = Bench::granted(script, &grants, fields);
        if !named {
            Arc::get_mut(&mut bench.controller).unwrap().spec.finalizer = None;
        }
        bench.page(json!({ "uid": "page", "finalizers": if exports == CLEANER { json!(["sample.dev/finalizer"]) } else { json!([]) } }));
        let (_, calls, _) = bench.run().await;
        assert_eq!(&calls[1..], strings(&expected), "{fields} {named} {grants}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_run_adds_again_after_it_has_removed_it_is_there() {
    // FI-1
    let ask = |run: Arc<dyn Context>| async move {
        let done = (run.remove_finalizer(None).await.is_ok(), run.add_finalizer(None).await.is_ok());
        vec![format!("{done:?}")]
    };
    let mut bench = asking("", ALL_EVENTS, ask);
    bench.page(json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] }));
    assert_eq!(asked_and_written(&bench).await.0, ["(true, true)"]);
    let page = bench.server.get(&page_kind(), &ObjectRef::namespaced("n", "a")).await.unwrap().unwrap();
    assert!(page.header().has_finalizer("sample.dev/finalizer"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_of_a_former_primary_to_what_was_made_anew_under_its_name() {
    // ID-1, UC-2
    let answer = |update| Ok(UpdateControl { update, reschedule: None });
    let ok = || r#"{"status":{"ok":true}}"#.to_owned();
    let handled = ErrorControl::Handled { status: Some(ok()), next: NextStep::Stop };
    let handler = &[Interface::Reconciler, Interface::ErrorHandler];
    for (fields, script) in [
        ("", Script { reconcile: answer(PrimaryUpdate::Status(ok())), ..Script::default() }),
        (
            "",
            Script { reconcile: answer(PrimaryUpdate::Object(r#"{"spec":{"a":1}}"#.to_owned())), ..Script::default() },
        ),
        ("serverSideApply: false", Script { reconcile: answer(PrimaryUpdate::Status(ok())), ..Script::default() }),
        (
            "",
            Script { exports: handler, reconcile: returned("no"), handle_error: handled.clone(), ..Script::default() },
        ),
    ] {
        for again in [false, true] {
            let primaries = Arc::<OnceLock<Arc<Source>>>::default();
            let made_again = {
                let primaries = Arc::clone(&primaries);
                move |_| {
                    let next = json!({ "apiVersion": "sample.dev/v1", "kind": "Page", "metadata": { "name": "a", "namespace": "n", "uid": "u-2", "resourceVersion": "9" } });
                    let next = Object::parse(&next.to_string(), &page_kind(), &Managers::all()).unwrap();
                    if again {
                        primaries.get().unwrap().put(next);
                    }
                    async { Vec::new() }.boxed()
                }
            };
            let mut bench = Bench::new(Script { ask: Some(Arc::new(made_again)), ..script.clone() }, fields);
            bench.page(json!({ "uid": "u-1" }));
            assert!(primaries.set(Arc::clone(&bench.controller.primaries)).is_ok());
            let (_, _, writes) = bench.run().await;
            assert_eq!(writes.is_empty(), again, "{fields} {writes:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_told_when_its_run_is_given_up() {
    // RT-6
    fn left(run: &dyn Context) -> String {
        let left = run.until().map(|until| until.saturating_duration_since(Instant::now()).as_secs());
        format!("{left:?}")
    }
    let ask = |run: Arc<dyn Context>| async move {
        let before = left(&*run);
        let walk = run.workflow(WorkflowCall::Reconcile(None), Instant::now() + Duration::from_secs(7));
        let mut walk = pin!(walk);
        assert!(timeout(Duration::ZERO, &mut walk).await.is_err(), "the API server hangs");
        vec![before, left(&*run)]
    };
    for (fields, before, nested) in [
        ("", "None", "Some(7)"),
        ("reconciliationTimeout: 30s", "Some(30)", "Some(7)"),
        ("reconciliationTimeout: 5s", "Some(5)", "Some(5)"),
    ] {
        let bench = asking("", &format!("{EXPLICITLY}\n{fields}"), ask);
        bench.server.hangs.store(true, Ordering::Relaxed);
        let (answers, _) = asked_and_written(&bench).await;
        let answers: Vec<_> = answers.iter().filter(|call| *call != "desired cm").collect();
        assert_eq!(answers, [before, nested], "{fields}");
    }
    // What is given up leaves nothing behind.
    let ask = |run: Arc<dyn Context>| async move {
        let walk = run.workflow(WorkflowCall::Reconcile(None), Instant::now() + Duration::from_secs(7));
        assert!(timeout(Duration::ZERO, walk).await.is_err(), "the API server hangs");
        vec![left(&*run)]
    };
    let bench = asking("", EXPLICITLY, ask);
    bench.server.hangs.store(true, Ordering::Relaxed);
    assert_eq!(asked_and_written(&bench).await.0, ["desired cm", "None"]);
}

#[tokio::test(start_paused = true)]
async fn several_shares_of_our_manager_are_an_error_wherever_one_is_asked_for() {
    // SSA-1
    fn ask(run: &dyn Context) -> Vec<String> {
        let desired = document("n", "two", json!({}));
        let compared = run.compare(CompareQuestion {
            by: Comparison::Applied,
            actual: desired.clone(),
            desired,
            ignore: Vec::new(),
        });
        vec![match compared {
            Ok(verdict) => format!("{verdict:?}"),
            Err(error) => format!("{:?}: {}", error.reason, error.message),
        }]
    }
    let script = Script { ask: Some(Arc::new(|run| async move { ask(&*run) }.boxed())), ..Script::default() };
    let get = "{ apiVersion: v1, kind: ConfigMap, verbs: [get] }";
    let mut bench = Bench::granted(script, get, EXPLICITLY);
    bench.page(json!({ "uid": "u-page" }));
    let share = |at: &str| json!({ "manager": "pages", "operation": "Apply", "time": at, "fieldsType": "FieldsV1", "fieldsV1": {} });
    let two = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "two", "namespace": "n", "uid": "u-two", "resourceVersion": "2", "managedFields": [share("2026-01-01T00:00:00Z"), share("2026-01-02T00:00:00Z")] },
    });
    let two = Object::parse(&two.to_string(), &config_map(), &Managers::all()).unwrap();
    bench.maps.apply(Watch::Applied(two));
    let (_, calls, _) = bench.run().await;
    let said = "Other: n/two has 2 entries in managedFields for pages with operation Apply; one is right";
    assert_eq!(calls, ["reconcile", said]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_gives_the_primary_an_owner_or_takes_one_is_a_failure() {
    let gone = json!({ "apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "none" });
    let other = json!({ "apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "v" });
    for (manner, metadata, fails) in [
        ("", json!({ "ownerReferences": [gone] }), true),
        ("", json!({ "finalizers": ["third.dev/f"] }), true),
        ("", json!({ "ownerReferences": [other], "finalizers": ["other.dev/f"] }), false),
        ("", json!({ "labels": { "a": "b" } }), false),
        ("serverSideApply: false", json!({ "labels": { "a": "b" } }), true),
        (
            "serverSideApply: false",
            json!({ "ownerReferences": [other], "finalizers": ["other.dev/f"], "labels": { "a": "b" } }),
            false,
        ),
    ] {
        let object = json!({ "metadata": metadata, "spec": {} }).to_string();
        let script = Script {
            reconcile: Ok(UpdateControl { update: PrimaryUpdate::Object(object), reschedule: None }),
            ..Script::default()
        };
        let mut bench = Bench::new(script, manner);
        bench.page(json!({ "ownerReferences": [other], "finalizers": ["other.dev/f"] }));
        let (finished, _, writes) = bench.run().await;
        assert_eq!((finished != DONE, writes.is_empty()), (fails, fails), "{manner} {metadata}");
    }
}

const OUTAGE: Finished = Finished::Failed(queue::Failure::Outage);
const UNHANDLED: Finished = Finished::Failed(queue::Failure::Unhandled);

const CREATES: &str = "{ apiVersion: v1, kind: ConfigMap, verbs: [create] }";

fn creates() -> Option<WriteRequest> {
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x", "namespace": "n" } });
    Some(WriteRequest {
        verb: WriteVerb::Create(object.to_string()),
        options: WriteOptions { mode: WriteMode::Plain, ..WriteOptions::default() },
    })
}

#[tokio::test(start_paused = true)]
async fn whatever_of_the_daemons_writes_an_outage_stops_the_run_waits_for_its_end() {
    let cleaner = &[Interface::Reconciler, Interface::Cleaner, Interface::Dependent][..];
    let finalizer = json!({ "finalizers": ["sample.dev/finalizer"] });
    let deleting = json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" });
    let table = [
        ("the finalizer is added", cleaner, json!({}), ""),
        ("a dependent", &[Interface::Reconciler, Interface::Dependent], json!({}), WORKFLOW),
        ("the status", cleaner, finalizer, ""),
        ("the finalizer is removed", cleaner, deleting.clone(), ""),
    ];
    let mut asks = unavailable(Reason::Busy, 429);
    asks.retry_after = Some(Duration::from_mins(1));
    for (what, exports, metadata, fields) in table {
        for (error, wanted) in [
            (unavailable(Reason::Unreachable, 0), OUTAGE),
            (unavailable(Reason::Unreachable, 503), OUTAGE),
            (unavailable(Reason::Busy, 429), OUTAGE),
            (asks.clone(), OUTAGE),
            (unavailable(Reason::Forbidden, 403), UNHANDLED),
            (unavailable(Reason::Unusable, 200), UNHANDLED),
        ] {
            let reconcile = status(r#"{"status":{"ok":true}}"#);
            let mut bench = Bench::new(Script { exports, reconcile, ..Script::default() }, fields);
            bench.page(metadata.clone());
            bench.server.failures.lock().push(error.clone());
            assert_eq!(bench.run().await.0, wanted, "{what}: {error:?}");
            // EP-34: no sooner than the API server asks for.
            let next = *bench.next.lock();
            let is_asked = next == Some(queue::Next::Outage(Duration::from_mins(1)));
            assert_eq!(is_asked, error.retry_after.is_some(), "{what}: {next:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_component_that_fails_because_of_an_outage_has_not_failed_by_itself() {
    let script = || Script { asks: creates(), ..Script::default() };
    for (error, wanted) in [
        (unavailable(Reason::Unreachable, 503), OUTAGE),
        (unavailable(Reason::Busy, 429), OUTAGE),
        (conflict("there is one"), UNHANDLED),
    ] {
        let mut bench = Bench::granted(script(), CREATES, "");
        bench.page(json!({}));
        bench.server.failures.lock().push(error.clone());
        assert_eq!(bench.run().await.0, wanted, "{error:?}");
    }
    // Its time is up before the API server answers.
    let mut bench = Bench::granted(script(), CREATES, "");
    bench.page(json!({}));
    bench.server.hangs.store(true, Ordering::Relaxed);
    assert_eq!(bench.run().await.0, OUTAGE);
    bench.server.hangs.store(false, Ordering::Relaxed);
    assert_eq!(bench.run().await.0, DONE, "an outage before means nothing to the next run");
}

#[tokio::test(start_paused = true)]
async fn what_the_watch_has_still_to_show_of_an_own_write_uses_up_no_attempt() {
    // OV-1
    let mut bench = Bench::new(Script::default(), "");
    let pages = bench.without_memory();
    bench.page(json!({}));
    pages.put(bench.large("a", json!({})));
    assert_eq!(bench.run().await.0, OUTAGE);
    bench.pages.apply(Watch::Applied(bench.large("a", json!({}))));
    assert_eq!(bench.run().await.0, DONE, "it is shown");

    // The same for what a component reads or writes, and for dependents.
    let ask: Ask = Arc::new(|run| {
        async move {
            let found = run.find_named(Place::Primaries, ObjectRef::namespaced("n", "b")).await;
            vec![format!("{:?}", found.unwrap_err().reason)]
        }
        .boxed()
    });
    let reads = Script { ask: Some(ask), reconcile: returned("it was not there"), ..Script::default() };
    let mut bench = Bench::new(reads, "");
    let pages = bench.without_memory();
    bench.page(json!({}));
    pages.put(bench.large("b", json!({})));
    let (finished, calls, _) = bench.run().await;
    assert_eq!((finished, calls), (OUTAGE, strings(&["reconcile", "Unreachable"])));

    let mut bench = Bench::new(Script::default(), WORKFLOW);
    let room = Room::new(0);
    let maps = Source::new(bench.controller.secondaries["cm"].spec().clone());
    let maps = Arc::new(maps.charging(|| Some(room.holding(&"p".into()))));
    maps.attach(None, bench.maps.cache());
    Arc::get_mut(&mut bench.controller).unwrap().secondaries.insert("cm".into(), Arc::clone(&maps));
    bench.page(json!({}));
    let tree = json!({ "metadata": { "name": "a", "namespace": "n", "uid": "a", "resourceVersion": "1000" }, "data": { "filler": "x".repeat(2 << 20) } });
    maps.put(Object::parse(&tree.to_string(), &config_map(), &Managers::all()).unwrap());
    let (finished, _, writes) = bench.run().await;
    assert_eq!((finished, writes), (OUTAGE, vec![]));
}

#[tokio::test(start_paused = true)]
async fn in_an_outage_an_error_handler_is_never_told_of_a_last_attempt_and_can_t_end_the_retries() {
    let exports = &[Interface::Reconciler, Interface::ErrorHandler];
    let handle_error = ErrorControl::Handled { status: None, next: NextStep::Stop };
    let mut bench = Bench::new(
        Script { exports, handle_error, reconcile: status(r#"{"status":{"ok":true}}"#), ..Script::default() },
        "retry: none\n",
    );
    bench.page(json!({}));
    bench.server.failures.lock().push(unavailable(Reason::Unreachable, 503));
    let (finished, calls, _) = bench.run().await;
    assert_eq!(finished, OUTAGE);
    let told = "handle-error Update \"HTTP 503\" Some(Unreachable) [] attempt 0 last false";
    assert_eq!(calls, strings(&["reconcile", told]));
}

#[tokio::test(start_paused = true)]
async fn what_was_only_read_is_no_own_write() {
    // FI-3, FW-1
    let ours = json!({ "finalizers": ["sample.dev/finalizer"] });
    for (cached, conflicts) in [(json!({}), 0), (ours, 1)] {
        let ask: Ask =
            Arc::new(|run| async move { vec![run.remove_finalizer(None).await.is_ok().to_string()] }.boxed());
        let script = Script { ask: Some(ask), ..Script::default() };
        let mut bench = Bench::new(script, ALL_EVENTS);
        bench.page(cached);
        let edited =
            json!({ "metadata": { "name": "a", "namespace": "n", "generation": 2 }, "spec": { "by": "somebody" } });
        // The watch has not brought it yet.
        let edited = bench.server.put(&bench.controller.spec.primary, edited);
        let failures = (0..conflicts).map(|_| conflict("too old"));
        bench.server.failures.lock().extend(failures);
        let (finished, calls, _) = bench.run().await;
        assert_eq!((finished, &*calls[1]), (DONE, "true"));
        let told = bench.watched(edited);
        assert_eq!(told.len(), 1, "after {conflicts} conflicts");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_component_writes_of_another_primary_is_news_to_that_one() {
    // RO-2, RO-4
    let kind = Gvk::parse("sample.dev/v1", "Page").unwrap();
    let key = |name: &str| ObjectRef::namespaced("n", name);
    let page = r#"{"apiVersion":"sample.dev/v1","kind":"Page","metadata":{"name":"b","namespace":"n"}}"#;
    let merge = |name| {
        let target = ObjectTarget { gvk: kind.clone(), key: key(name) };
        WriteVerb::MergePatch(target, r#"{"spec":{"by":"a"}}"#.to_owned())
    };
    for (verb, name, heard) in [
        (WriteVerb::Create(page.to_owned()), "b", true),
        (WriteVerb::Apply(page.to_owned()), "b", true),
        (merge("c"), "c", true),
        // The run's own.
        (merge("a"), "a", false),
    ] {
        let options = WriteOptions::default();
        let script = Script { asks: Some(WriteRequest { verb, options }), ..Script::default() };
        let grants = "{ apiVersion: sample.dev/v1, kind: Page, verbs: [create, apply, patch] }";
        let mut bench = Bench::granted(script, grants, "");
        bench.page(json!({}));
        bench.page(json!({ "name": "c" }));
        assert_eq!(bench.run().await.0, DONE);
        let written = bench.server.get(&kind, &key(name)).await.unwrap().unwrap();
        let read = bench.controller.primaries.get(&key(name));
        assert_eq!(read.as_ref(), Some(&written), "{name} is read at once");
        let what = TriggerKind::Changed { deleting: false };
        let news = Trigger { primary: key(name), what, urgency: Urgency::Fresh };
        let told = if heard { vec![news] } else { Vec::new() };
        assert_eq!(bench.watched(written), told, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_write_has_held_back_goes_the_way_of_all_events() {
    // FW-5
    let target =
        ObjectTarget { gvk: Gvk::parse("sample.dev/v1", "Page").unwrap(), key: ObjectRef::namespaced("n", "a") };
    let verb = WriteVerb::MergePatch(target, r#"{"spec":{"by":"a"}}"#.to_owned());
    let options = WriteOptions::default();
    let script = Script { asks: Some(WriteRequest { verb, options }), ..Script::default() };
    let grants = "{ apiVersion: sample.dev/v1, kind: Page, verbs: [patch] }";
    let mut bench = Bench::granted(script, grants, "");
    bench.page(json!({}));
    bench.server.hangs.store(true, Ordering::Relaxed);
    let edited =
        json!({ "metadata": { "name": "a", "namespace": "n", "generation": 2 }, "spec": { "by": "somebody" } });
    let edited = bench.server.put(&bench.controller.spec.primary, edited);
    let mut pages = std::mem::take(&mut bench.pages);
    let meanwhile = async {
        sleep(Duration::from_millis(500)).await;
        let change = pages.apply(Watch::Applied(edited)).unwrap();
        bench.controller.primaries.on(change)
    };
    let (_, at_once) = tokio::join!(bench.run(), meanwhile);
    assert_eq!(at_once, []);
    let what = TriggerKind::Changed { deleting: false };
    let primary = ObjectRef::namespaced("n", "a");
    assert_eq!(*bench.told.lock(), [Trigger { primary, what, urgency: Urgency::Fresh }]);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_of_a_version_before_goes_with_the_next_run() {
    const FORMERLY: &str = "finalizers: { formerly: [old.dev/f] }";
    let exports = &[Interface::Reconciler, Interface::Cleaner, Interface::Dependent];
    let going = "2026-01-01T00:00:00Z";
    let (old, other, own) = ("old.dev/f", "o.dev/f", "sample.dev/finalizer");
    let keep = Ok(DeleteControl::KeepFinalizer(None));
    for (what, cleaner, cleanup, carried, mark, called, left) in [
        ("it stays", false, None, vec![old, other], None, "reconcile", vec![other]),
        ("it has ours, too", true, None, vec![old, own], None, "reconcile", vec![own]),
        ("it is going", true, None, vec![old, other], Some(going), "cleanup", vec![other]),
        ("it has both", true, None, vec![other, own, old], Some(going), "cleanup", vec![other]),
        ("it is kept", true, Some(keep), vec![old, own], Some(going), "cleanup", vec![old, own]),
        ("nothing to clean up", false, None, vec![other, old], Some(going), "", vec![other]),
    ] {
        let mut script = Script::default();
        if cleaner {
            script.exports = exports;
        }
        script.cleanup = cleanup.unwrap_or(script.cleanup);
        let mut bench = Bench::new(script, FORMERLY);
        bench.page(json!({ "finalizers": carried, "deletionTimestamp": mark }));
        let (finished, calls, writes) = bench.run().await;
        assert!(matches!(finished, Finished::Done { .. }), "{what}: {finished:?}");
        assert_eq!(calls.join(" "), called, "{what}");
        let patches = usize::from(left.len() < carried.len());
        assert_eq!(writes.len(), patches, "{what}: {writes:?}");
        let (kind, key) = (&bench.controller.spec.primary, ObjectRef::namespaced("n", "a"));
        let page = bench.server.get(kind, &key).await.unwrap().unwrap();
        let names = page.header().finalizers.iter();
        let names: Vec<_> = names.map(|name| &**name).collect();
        assert_eq!(names, left, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_source_does_not_know_yet_is_neither_made_nor_taken_for_gone() {
    let unlisted = |script, fields| {
        let mut bench = Bench::new(script, fields);
        bench.maps = Writer::default();
        let source = &bench.controller.secondaries["cm"];
        source.attach(None, bench.maps.cache());
        bench
    };
    let ask: Ask = Arc::new(|run| {
        async move {
            let found = run.find_one(Place::Source("cm".to_owned())).await;
            vec![format!("{:?}", found.unwrap_err().reason)]
        }
        .boxed()
    });
    let explicitly = "workflow: { invocation: explicit, dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }";
    let script = Script { ask: Some(ask), ..Script::default() };
    let mut asking = unlisted(script, explicitly);
    asking.page(json!({}));
    assert_eq!(asking.run().await.1, strings(&["reconcile", "Unreachable"]));

    let mut bench = unlisted(Script::default(), WORKFLOW);
    bench.page(json!({}));
    let (finished, _, writes) = bench.run().await;
    assert_eq!((finished, writes), (UNHANDLED, vec![]));
    bench.maps.start_list();
    bench.maps.finish_list(Version(9));
    assert_eq!(bench.run().await.2, strings(&["create ConfigMap a"]));

    let mut going = unlisted(Script::default(), EXPLICIT);
    let finalizers = json!(["sample.dev/finalizer"]);
    going.page(json!({ "finalizers": finalizers, "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    let (finished, _, writes) = going.run().await;
    assert_eq!((finished, writes), (UNHANDLED, vec![]), "it may be there");
}

// === whose change an answer is ===

fn page_kind() -> Gvk {
    Gvk::parse("sample.dev/v1", "Page").unwrap()
}

/// Has the watch bring a config map as the server has it, and returns how many primaries are told.
fn echo(bench: &mut Bench, name: &str) -> usize {
    let key = ObjectRef::namespaced("n", name);
    let now = bench.server.get(&config_map(), &key).now_or_never();
    let change = bench.maps.apply(Watch::Applied(now.unwrap().unwrap().unwrap()));
    let source = &bench.controller.secondaries["cm"];
    change.map_or(0, |change| source.on(change).len())
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changed_nothing_does_not_swallow_what_somebody_else_did_before() {
    // FW-8, RO-7
    let target = ObjectTarget { gvk: page_kind(), key: ObjectRef::namespaced("n", "a") };
    let options = WriteOptions { mode: WriteMode::ForceFilter, ..WriteOptions::default() };
    let verb = WriteVerb::MergePatch(target, r#"{"spec":{"by":"a"}}"#.to_owned());
    let script = Script { asks: Some(WriteRequest { verb, options }), ..Script::default() };
    let grants = "{ apiVersion: sample.dev/v1, kind: Page, verbs: [patch] }";
    for late in [false, true] {
        let mut bench = Bench::granted(script.clone(), grants, "");
        bench.page(json!({}));
        let key = ObjectRef::namespaced("n", "a");
        let kind = page_kind();
        let patched = strings(&["patch Page a"]);
        assert_eq!(bench.run().await.2, patched);
        let ours = bench.server.get(&kind, &key).await.unwrap().unwrap();
        assert_eq!(bench.watched(ours), [], "our own");
        let mut edited = bench.server.objects.lock()[&(kind.clone(), key.clone())].clone();
        edited["metadata"]["labels"] = json!({ "by": "somebody" });
        let edited = bench.server.put(&kind, edited);
        if late {
            assert_eq!(bench.run().await.2, patched);
            let read = bench.controller.primaries.get(&key);
            assert_eq!(read.as_ref(), Some(&edited), "it is read at once");
        }
        assert_eq!(bench.watched(edited.clone()).len(), 1, "theirs, {late}");
        assert_eq!(bench.run().await.2, patched, "it changes nothing");
        assert_eq!(bench.controller.own_writes(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_event_of_a_dependents_write_is_swallowed_unless_somebody_else_has_changed_it_too() {
    // FW-1, FW-8
    const APPLIED: &str =
        "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, serverSideApply: true } } }";
    for theirs in [false, true] {
        let mut bench = Bench::new(Script::default(), APPLIED);
        bench.page_of(json!({ "uid": "page" }), json!({ "name": "x" }));
        assert_eq!(bench.run().await.2, ["patch ConfigMap x"]);
        assert_eq!(echo(&mut bench, "x"), 0, "it is made");
        let key = (config_map(), ObjectRef::namespaced("n", "x"));
        let mut now = bench.server.objects.lock()[&key].clone();
        now["data"]["x"] = "drifted".into();
        let drifted = bench.server.put(&config_map(), now.clone());
        let change = bench.maps.apply(Watch::Applied(drifted)).unwrap();
        let source = Arc::clone(&bench.controller.secondaries["cm"]);
        assert_eq!(source.on(change).len(), 1, "somebody has changed it");
        if theirs {
            now["data"]["theirs"] = "more".into();
            bench.server.put(&config_map(), now);
        }
        assert_eq!(bench.run().await.2, ["patch ConfigMap x"]);
        assert_eq!(echo(&mut bench, "x"), usize::from(theirs));
        assert_eq!(bench.data("x")["x"], "y");
        assert_eq!(bench.controller.own_writes(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_on_a_dependent_is_known_as_one_by_the_queue_and_the_error_handler() {
    // EP-36, EC-2
    const TWO: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap }, other: { apiVersion: v1, kind: ConfigMap } } }";
    const ONCE: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, createOnly: true } } }";
    let forbidden = || unavailable(Reason::Forbidden, 403);
    let unhandled = queue::Failure::Unhandled;
    for (fields, spec, failures, wanted, told) in [
        (
            WORKFLOW,
            json!({}),
            vec![conflict("too old")],
            queue::Failure::Conflict,
            "Some(Conflict) [(\"cm\", \"too old\", Some(Conflict))]",
        ),
        (WORKFLOW, json!({}), vec![forbidden()], unhandled, "None [(\"cm\", \"HTTP 403\", Some(Rejected))]"),
        (
            TWO,
            json!({ "names": { "other": "b" } }),
            vec![forbidden(), conflict("too old")],
            unhandled,
            "None [(\"cm\", \"too old\", Some(Conflict)), (\"other\", \"HTTP 403\", Some(Rejected))]",
        ),
        // That it exists does not pass.
        (ONCE, json!({}), vec![conflict("it exists")], unhandled, "None [(\"cm\", \"it exists\", None)]"),
    ] {
        let exports = &[Interface::Reconciler, Interface::ErrorHandler, Interface::Dependent];
        let script = Script { exports, ..Script::default() };
        let mut bench = Bench::new(script, fields);
        bench.page_of(json!({ "uid": "page" }), spec);
        if fields != ONCE {
            let owner = json!([{ "apiVersion": "sample.dev/v1", "kind": "Page", "name": "a", "uid": "page" }]);
            for name in ["a", "b"] {
                let metadata = json!({ "name": name, "namespace": "n", "uid": name, "ownerReferences": owner });
                let old = json!({ "metadata": metadata, "data": { "x": "old" } });
                let map = bench.server.put(&config_map(), old);
                bench.maps.apply(Watch::Applied(map));
            }
        }
        bench.server.failures.lock().extend(failures);
        let (finished, calls, _) = bench.run().await;
        assert_eq!(finished, Finished::Failed(wanted), "{fields}");
        assert!(calls.last().unwrap().contains(told), "{calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_on_deleting_a_dependent_is_known_as_one() {
    // EP-36
    let mut bench = Bench::new(Script::default(), EXPLICIT);
    bench.page(json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] }));
    assert_eq!(bench.run().await.2, strings(&["create ConfigMap a"]));
    let key = ObjectRef::namespaced("n", "a");
    let map = bench.server.objects.lock()[&(config_map(), key)].clone();
    let map = bench.server.put(&config_map(), map);
    bench.maps.apply(Watch::Applied(map));
    let going = "2026-01-01T00:00:00Z";
    bench.page(json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": going }));
    bench.server.failures.lock().push(conflict("another uid"));
    let (finished, _, writes) = bench.run().await;
    assert_eq!(finished, Finished::Failed(queue::Failure::Conflict));
    assert_eq!(writes, strings(&["delete ConfigMap a failed"]));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_object_of_an_inactive_dependent_wakes_nobody() {
    // WF-4
    const SWITCHED: &str =
        "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, activation: { cel: primary.spec.on } } } }";
    let mut bench = Bench::new(Script::default(), SWITCHED);
    bench.controller.verdicts.begin(bench.controller.edition);
    let map = ObjectRef::namespaced("n", "a");
    for on in [false, true, false] {
        bench.page_of(json!({ "uid": "page" }), json!({ "on": on }));
        assert_eq!(bench.run().await.0, DONE);
        let verdicts = &bench.controller.verdicts;
        assert_eq!(verdicts.wakes(&map, "s", &map), on);
    }
}

// === what else a component may ask ===

/// Returns a bench whose component asks this.
fn asking<F>(grants: &str, fields: &str, ask: impl Fn(Arc<dyn Context>) -> F + Send + Sync + 'static) -> Bench
where
    F: Future<Output = Vec<String>> + Send + 'static,
{
    let script = Script { ask: Some(Arc::new(move |run| ask(run).boxed())), ..Script::default() };
    let mut bench = Bench::granted(script, grants, fields);
    bench.page(json!({ "uid": "page" }));
    bench
}

/// Puts a config map on the server and into the cache, and returns it. What has an owner belongs to the page.
fn map(bench: &mut Bench, key: &ObjectRef, owner: Option<&str>) -> Object {
    let owners = owner.map(|uid| json!([{ "apiVersion": "sample.dev/v1", "kind": "Page", "name": "a", "uid": uid }]));
    let tree = json!({
        "metadata": { "namespace": key.namespace.as_deref(), "name": &*key.name, "uid": &*key.name, "ownerReferences": owners.unwrap_or(json!([])) },
        "data": { "k": "v" },
    });
    let map = bench.server.put(&config_map(), tree);
    let change = bench.maps.apply(Watch::Applied(map.clone()));
    change.map(|change| bench.controller.secondaries["cm"].on(change));
    map
}

/// Notes how a call ended.
fn told<T>(done: Result<T, CallError>) -> String {
    done.map_or_else(|error| format!("{:?}: {}", error.reason, error.message), |_| "done".to_owned())
}

#[tokio::test(start_paused = true)]
async fn what_one_source_waits_to_see_of_an_own_write_is_not_read_from_another_one_of_the_kind() {
    // OV-1, CX-1a
    let key = || ObjectRef::namespaced("n", "safe");
    let two = "workflow: { invocation: explicit, dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }\nsources: { more: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { annotations: {} } } } }";
    let ask = move |run: Arc<dyn Context>| async move {
        let found = run.find_named(Place::Kind(config_map()), key()).await;
        let metadata = json!({ "namespace": "n", "name": "safe" });
        let document = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
        let verb = WriteVerb::Apply(document.to_string());
        [found.map(drop), run.write(WriteRequest { verb, options: WriteOptions::default() }).await.map(drop)]
            .map(told)
            .to_vec()
    };
    let grants = "{ apiVersion: v1, kind: ConfigMap, verbs: [get, create, apply] }";
    let mut bench = asking(grants, two, ask);
    map(&mut bench, &key(), None);
    let object = |version: u64| {
        let tree = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "n", "name": "safe", "resourceVersion": version.to_string() } });
        Object::parse(&tree.to_string(), &config_map(), &Managers::default()).unwrap()
    };
    for (name, written) in [("cm", Some(50_000)), ("more", None)] {
        let source = Source::new(Spec { name: name.into(), ..bench.controller.secondaries["cm"].spec().clone() });
        let mut writer = Writer::default();
        source.attach(None, writer.cache());
        if let Some(version) = written {
            source.detach(None);
            source.put(object(version));
            writer.finish_list(Version(5));
            source.attach(None, writer.cache());
        } else {
            writer.list_item(object(5));
            writer.finish_list(Version(5));
        }
        Arc::get_mut(&mut bench.controller).unwrap().secondaries.insert(name.into(), Arc::new(source));
    }
    let (answers, writes) = asked_and_written(&bench).await;
    for answer in &answers {
        assert!(answer.starts_with("Unreachable: source cm does not know all"), "{answers:?}");
    }
    assert_eq!((answers.len(), writes.len()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn what_was_written_while_a_source_rests_is_known_once_its_cache_has_it() {
    // OV-1, WF-12
    let key = || ObjectRef::namespaced("n", "safe");
    for (mode, known) in [(WriteMode::MatchAndFilter, false), (WriteMode::Plain, true)] {
        let ask = move |run: Arc<dyn Context>| async move {
            let metadata = json!({ "namespace": "n", "name": "safe" });
            let document = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
            let options = WriteOptions { mode, ..WriteOptions::default() };
            let verb = WriteVerb::Apply(document.to_string());
            vec![told(run.write(WriteRequest { verb, options }).await)]
        };
        let grants = "{ apiVersion: v1, kind: ConfigMap, verbs: [create, apply] }";
        let mut bench = asking(grants, EXPLICITLY, ask);
        let controller = Arc::get_mut(&mut bench.controller).unwrap();
        let source = Source::new(controller.secondaries["cm"].spec().clone()).beside(&controller.primaries);
        let source = Arc::new(source);
        source.rests("it rests");
        controller.secondaries.insert("cm".into(), Arc::clone(&source));
        assert_eq!(asked_and_written(&bench).await.0, ["done"], "{mode:?}");
        let written = bench.server.objects.lock()[&(config_map(), key())].clone();
        let version = written["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let mut writer = Writer::default();
        writer.finish_list(Version(version - 1));
        source.is_demanded();
        source.attach(None, writer.cache());
        let said = source.known(Within::Object(&key()));
        assert_eq!(said.as_ref().is_ok(), known, "{mode:?}");
        assert!(said.map_or_else(|doubt| doubt.is_of_own_write(), |()| true));
        writer.apply(Watch::Bookmark(Version(version)));
        source.passed(None);
        assert_eq!(source.known(Within::Object(&key())), Ok(()), "{mode:?}");
    }
}

/// Returns what was asked and written in a run.
async fn asked_and_written(bench: &Bench) -> (Vec<String>, Vec<String>) {
    let (_, calls, writes) = bench.run().await;
    let answers = calls.into_iter().filter(|call| call != "reconcile");
    (answers.collect(), writes)
}

#[tokio::test(start_paused = true)]
async fn an_optimistic_edit_is_of_the_version_that_it_names_or_a_conflict() {
    // RO-3
    let key = ObjectRef::namespaced("n", "safe");
    for (what, named, newer, expected, writes) in [
        ("it is cached", Some(0), false, "done", 1),
        ("it is older", Some(-1), false, "Conflict", 1),
        ("it names none", None, false, "Invalid", 0),
        ("the server has a newer one", Some(0), true, "Conflict", 1),
    ] {
        let asked = key.clone();
        let ask = move |run: Arc<dyn Context>| {
            let key = asked.clone();
            async move {
                let found = run.find_named(Place::Kind(config_map()), key).await;
                let mut tree: Value = serde_json::from_str(&found.unwrap().unwrap()).unwrap();
                let metadata = tree["metadata"].as_object_mut().unwrap();
                let version: i64 = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
                metadata.insert("labels".to_owned(), json!({ "more": "yes" }));
                match named {
                    Some(offset) => {
                        metadata["resourceVersion"] = (version + offset).to_string().into();
                    }
                    None => drop(metadata.remove("resourceVersion")),
                }
                let options = WriteOptions { mode: WriteMode::Optimistic, ..WriteOptions::default() };
                let verb = WriteVerb::Edit(tree.to_string());
                vec![told(run.write(WriteRequest { verb, options }).await)]
            }
        };
        let grants = "{ apiVersion: v1, kind: ConfigMap, verbs: [get, patch] }";
        let mut bench = asking(grants, EXPLICITLY, ask);
        map(&mut bench, &key, None);
        if newer {
            let mut tree = bench.server.objects.lock()[&(config_map(), key.clone())].clone();
            tree["data"]["k"] = "theirs".into();
            bench.server.put(&config_map(), tree);
        }
        let (answers, written) = asked_and_written(&bench).await;
        assert!(answers[0].starts_with(expected), "{what}: {answers:?}");
        assert_eq!(written, vec!["patch ConfigMap safe"; writes], "{what}");
        let now = bench.server.objects.lock()[&(config_map(), key.clone())].clone();
        let edited = now["metadata"]["labels"]["more"] == "yes";
        assert_eq!(edited, expected == "done", "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_cleanup_keeps_the_finalizer_though_errors_go_to_the_reconciler() {
    // WF-9, DC-5
    const LENIENT: &str = "workflow: { errors: reconciler, dependents: { cm: { apiVersion: v1, kind: ConfigMap, garbageCollected: false } } }";
    for (exports, called) in [
        (&[Interface::Reconciler, Interface::Dependent][..], vec![]),
        (&[Interface::Reconciler, Interface::Dependent, Interface::Cleaner], strings(&["cleanup"])),
    ] {
        let script = Script { exports, ..Script::default() };
        let mut bench = Bench::new(script, LENIENT);
        let metadata = json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] });
        bench.page(metadata.clone());
        assert_eq!(bench.run().await.2, ["create ConfigMap a"]);
        let mut going = metadata;
        going["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        bench.page(going);
        let refused = unavailable(Reason::Rejected, 400);
        bench.server.failures.lock().push(refused);
        let (finished, calls, writes) = bench.run().await;
        assert_eq!(finished, UNHANDLED);
        assert_eq!(writes, ["delete ConfigMap a failed"]);
        let calls = calls.into_iter().filter(|call| call == "cleanup");
        assert_eq!(calls.collect::<Vec<_>>(), called);
        let (kind, key) = (page_kind(), ObjectRef::namespaced("n", "a"));
        let page = bench.server.get(&kind, &key).await.unwrap().unwrap();
        assert!(page.header().has_finalizer("sample.dev/finalizer"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_made_anew_under_the_name_keeps_its_finalizer() {
    // FI-3, FI-4
    let mut bench = Bench::new(Script::default(), EXPLICIT);
    let going = |uid: &str| json!({ "uid": uid, "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" });
    bench.page(going("u-1"));
    let mut other = json!({ "metadata": going("u-2") });
    json_patch::merge(&mut other, &json!({ "metadata": { "name": "a", "namespace": "n" } }));
    let other = bench.server.put(&page_kind(), other);
    let (finished, _, writes) = bench.run().await;
    let removed = Finished::Done { finalizer_removed: true, again: None };
    assert_eq!((finished, writes), (removed, strings(&["patch Page a"])));
    let now = bench.server.get(&page_kind(), other.key()).await.unwrap();
    assert_eq!(now, Some(other));
}

const CLEANER: &[Interface] = &[Interface::Reconciler, Interface::Cleaner];

#[tokio::test(start_paused = true)]
async fn a_cleanup_that_fails_is_retried_and_keeps_the_finalizer() {
    // DC-4
    let script = Script { exports: CLEANER, cleanup: returned("no"), ..Script::default() };
    let mut bench = Bench::new(script, "");
    bench.page(json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    let cleanup = strings(&["cleanup"]);
    assert_eq!(bench.run().await, (UNHANDLED, cleanup, vec![]));
    let next = bench.next.lock().take();
    assert_eq!(next, Some(queue::Next::Retry(Duration::from_secs(2))));
    let page = bench.controller.primaries.get(&ObjectRef::namespaced("n", "a"));
    let page = page.unwrap();
    assert!(page.header().has_finalizer("sample.dev/finalizer"));
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_may_write_the_status_before_the_primary_goes() {
    // DC-6
    let target = ObjectTarget { gvk: page_kind(), key: ObjectRef::namespaced("n", "a") };
    let verb = WriteVerb::MergePatch(target, r#"{"status":{"left":0}}"#.to_owned());
    let options = WriteOptions { subresource: Some("status".to_owned()), ..WriteOptions::default() };
    let script = Script { exports: CLEANER, asks: Some(WriteRequest { verb, options }), ..Script::default() };
    let grants = "{ apiVersion: sample.dev/v1, kind: Page, verbs: [patch] }";
    let mut bench = Bench::granted(script, grants, "");
    bench.page(json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    let writes = strings(&["patch Page a/status", "patch Page a"]);
    let removed = Finished::Done { finalizer_removed: true, again: None };
    let cleanup = strings(&["cleanup"]);
    assert_eq!(bench.run().await, (removed, cleanup, writes));
    let key = (page_kind(), ObjectRef::namespaced("n", "a"));
    let page = bench.server.objects.lock()[&key].clone();
    assert_eq!(page["status"], json!({ "left": 0 }));
    assert_eq!(page["metadata"]["finalizers"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn one_object_of_several_is_ambiguous() {
    // IM-7
    let several = "Ambiguous: several objects of source cm belong to the primary: n/one, n/two";
    for (names, expected) in [(&[][..], "none"), (&["two"], "two"), (&["two", "one"], several)] {
        let ask = |run: Arc<dyn Context>| async move {
            let found = run.find_one(Place::Source("cm".to_owned())).await;
            let name = |text: String| {
                let tree: Value = serde_json::from_str(&text).unwrap();
                tree["metadata"]["name"].as_str().unwrap().to_owned()
            };
            vec![match found {
                Ok(found) => found.map_or("none".to_owned(), name),
                Err(error) => told::<()>(Err(error)),
            }]
        };
        let mut bench = asking("", EXPLICITLY, ask);
        for name in names {
            map(&mut bench, &ObjectRef::namespaced("n", name), Some("page"));
        }
        map(&mut bench, &ObjectRef::namespaced("n", "other"), None);
        let (answers, _) = asked_and_written(&bench).await;
        assert_eq!(answers, [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_mode_says_whether_a_write_that_matches_is_sent_and_whether_its_event_causes_a_run() {
    // RO-3
    use Comparison::ByVerb;
    use WriteMode::{CacheOnly, ForceFilter, MatchAndFilter, Optimistic, Plain};
    // How it is written, whether upon the cached version, whether it is sent though it matches, and how many are told if it does not.
    for (mode, compare_by, upon, sent, told_of) in [
        (MatchAndFilter, None, false, false, 0),
        (Optimistic, None, true, true, 0),
        (Optimistic, Some(ByVerb), true, false, 0),
        (CacheOnly, None, false, true, 1),
        (CacheOnly, Some(ByVerb), false, false, 1),
        (ForceFilter, None, false, true, 0),
        (Plain, None, false, true, 1),
    ] {
        for (value, sent) in [("v", sent), ("w", true)] {
            let what = format!("{mode:?} {compare_by:?} {value}");
            let ask = move |run: Arc<dyn Context>| async move {
                let mut patch = json!({ "data": { "k": value } });
                if upon {
                    // The page is the first, and this the second.
                    patch["metadata"] = json!({ "resourceVersion": "2" });
                }
                let verb = WriteVerb::MergePatch(target("n", "x"), patch.to_string());
                let options = WriteOptions { mode, compare_by, ..WriteOptions::default() };
                vec![told(run.write(WriteRequest { verb, options }).await)]
            };
            let grants = "{ apiVersion: v1, kind: ConfigMap, verbs: [get, patch] }";
            let mut bench = asking(grants, EXPLICITLY, ask);
            let key = ObjectRef::namespaced("n", "x");
            let before = map(&mut bench, &key, Some("page"));
            let writes = vec!["patch ConfigMap x".to_owned(); usize::from(sent)];
            let done = (strings(&["done"]), writes);
            assert_eq!(asked_and_written(&bench).await, done, "{what}");
            let read = bench.controller.secondaries["cm"].get(&key).unwrap();
            let fresh = read.version() > before.version();
            assert_eq!(fresh, sent && mode != Plain, "{what}: what is read at once");
            if sent {
                assert_eq!(echo(&mut bench, "x"), told_of, "{what}");
            }
        }
    }
    let ask = |run: Arc<dyn Context>| async move {
        let verb = WriteVerb::MergePatch(target("n", "x"), r#"{"data":{}}"#.to_owned());
        let options = WriteOptions { mode: Optimistic, ..WriteOptions::default() };
        vec![told(run.write(WriteRequest { verb, options }).await)]
    };
    let grants = "{ apiVersion: v1, kind: ConfigMap, verbs: [get, patch] }";
    let mut bench = asking(grants, EXPLICITLY, ask);
    map(&mut bench, &ObjectRef::namespaced("n", "x"), Some("page"));
    let (answers, writes) = asked_and_written(&bench).await;
    assert!(answers[0].starts_with("Invalid"), "{answers:?}");
    assert_eq!(writes, strings(&[]));
}

#[tokio::test(start_paused = true)]
async fn what_is_usual_for_a_verb() {
    // RO-4
    async fn ask(run: Arc<dyn Context>) -> Vec<String> {
        let owners = json!([{ "apiVersion": "sample.dev/v1", "kind": "Page", "name": "a", "uid": "page" }]);
        let document = |name: &str, metadata: &Value| {
            let mut tree: Value = serde_json::from_str(&document("n", name, metadata.clone())).unwrap();
            tree["data"] = json!({ "k": "v" });
            tree.to_string()
        };
        let owned = json!({ "ownerReferences": owners });
        let (created, applied) = (document("created", &owned), document("applied", &json!({})));
        let same = r#"[{"op":"replace","path":"/data/k","value":"v"}]"#.to_owned();
        let usual = WriteOptions::default;
        let matching = WriteOptions { mode: WriteMode::MatchAndFilter, ..usual() };
        let compared = WriteOptions { compare_by: Some(Comparison::Generic), ..usual() };
        let mut answers = Vec::new();
        for (verb, options) in [
            (WriteVerb::Create(created.clone()), matching),
            (WriteVerb::Create(created.clone()), compared),
            (WriteVerb::Create(created), usual()),
            (WriteVerb::Update(applied.clone()), usual()),
            (WriteVerb::Apply(applied.clone()), usual()),
            (WriteVerb::Apply(applied), usual()),
            (WriteVerb::JsonPatch(target("n", "applied"), same), usual()),
            (WriteVerb::MergePatch(target("n", "applied"), r#"{"data":{"k":"v"}}"#.to_owned()), usual()),
        ] {
            answers.push(told(run.write(WriteRequest { verb, options }).await));
        }
        answers
    }
    let grants = "{ apiVersion: v1, kind: ConfigMap, verbs: [get, create, apply, update, patch] }";
    let mut bench = asking(grants, EXPLICITLY, ask);
    let (answers, writes) = asked_and_written(&bench).await;
    let refused = "Invalid: there is nothing to compare a creation with";
    let versionless = "Invalid: mode optimistic needs a resourceVersion in the document, or a test of it in the patch";
    assert_eq!(answers, [refused, refused, "done", versionless, "done", "done", "done", "done"]);
    assert_eq!(writes, ["create ConfigMap created", "patch ConfigMap applied"]);
    for name in ["created", "applied"] {
        assert_eq!(echo(&mut bench, name), 0, "{name}");
    }
    assert_eq!(bench.controller.own_writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_managed_workflow_is_called_by_hand_only_if_the_manifest_leaves_it_to_the_component() {
    // CX-2, WF-6
    let refused = "Misplaced: the managed workflow runs by itself; `invocation: explicit` in the manifest leaves it to the component";
    let kept = EXPLICITLY.replace("kind: ConfigMap", "kind: ConfigMap, garbageCollected: false");
    let made = "create ConfigMap a";
    for (fields, expected, writes) in [
        (WORKFLOW, refused, &[made][..]),
        (EXPLICITLY, "done", &[made]),
        (&*kept, "done", &[made, "delete ConfigMap a"]),
    ] {
        let ask = |run: Arc<dyn Context>| async move {
            vec![
                told(run.workflow(WorkflowCall::Reconcile(None), Instant::now()).await),
                told(run.workflow(WorkflowCall::Cleanup(None), Instant::now()).await),
            ]
        };
        let mut bench = asking("", fields, ask);
        bench.page(json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] }));
        let (answers, written) = asked_and_written(&bench).await;
        let answers = answers.iter().filter(|call| *call != "desired cm");
        assert_eq!(answers.collect::<Vec<_>>(), [expected, expected]);
        assert_eq!(written, writes, "what owner references see to stays: {fields}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_former_object_stays_if_what_depends_on_it_is_not_reconciled_with_it() {
    // KD-4, CX-2
    const CM: &str = "cm: { apiVersion: v1, kind: ConfigMap, onRename: delete }";
    const OTHER: &str = ", other: { apiVersion: v1, kind: ConfigMap, dependsOn: [cm] }";
    for (other, deletes) in [("", true), (OTHER, false)] {
        let fields = format!("standalone: {{ w: {{ dependents: {{ {CM}{other} }} }} }}");
        let ask = |run: Arc<dyn Context>| async move {
            vec![told(run.workflow(WorkflowCall::ReconcileDependent("cm".to_owned()), Instant::now()).await)]
        };
        let mut bench = asking("", &fields, ask);
        assert_eq!(bench.run().await.2, strings(&["create ConfigMap a"]));
        bench.show();
        bench.page_of(json!({ "uid": "page" }), json!({ "names": { "cm": "b" } }));
        let writes = bench.run().await.2;
        assert_eq!(writes[0], "create ConfigMap b");
        assert_eq!(writes.contains(&"delete ConfigMap a".to_owned()), deletes, "{writes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_follow_one_another_in_order_whatever_goes_meanwhile() {
    let keys = [("n", "c"), ("n", "a"), ("m", "z"), ("n", "b")];
    let [first, second] = [["m/z", "n/a"], ["n/b", "n/c"]];
    for newest_only in [false, true] {
        let after = Arc::<Mutex<Option<String>>>::default();
        let ask = {
            let after = Arc::clone(&after);
            move |run: Arc<dyn Context>| {
                let after = Arc::clone(&after);
                async move {
                    let query = Query {
                        place: Place::Kind(config_map()),
                        selection: Selection::Everywhere,
                        labels: None,
                        fields: Vec::new(),
                        newest_only,
                        limit: Some(2),
                        after: after.lock().take(),
                    };
                    let page = run.find_all(query).await.unwrap();
                    *after.lock() = page.next;
                    let name = |text: &String| {
                        let metadata = &serde_json::from_str::<Value>(text).unwrap()["metadata"];
                        let [namespace, name] =
                            ["namespace", "name"].map(|field| metadata[field].as_str().unwrap().to_owned());
                        format!("{namespace}/{name}")
                    };
                    page.items.iter().map(name).collect()
                }
            }
        };
        let grants = "{ apiVersion: v1, kind: ConfigMap, verbs: [get], namespaces: all }";
        let mut bench = asking(grants, EXPLICITLY, ask);
        // Another source of the kind, which has one of them in a later version.
        let (mut writer, now) = (Writer::default(), ObjectRef::namespaced("n", "b"));
        let maps = keys.map(|(namespace, name)| map(&mut bench, &ObjectRef::namespaced(namespace, name), None));
        let mut later = bench.server.objects.lock()[&(config_map(), now)].clone();
        later["data"]["k"] = "later".into();
        let later = bench.server.put(&config_map(), later);
        writer.start_list();
        writer.list_item(later);
        writer.finish_list(Version(9));
        let spec = bench.controller.secondaries["cm"].spec().clone();
        let other = Source::new(spec);
        other.attach(None, writer.cache());
        let controller = Arc::get_mut(&mut bench.controller).unwrap();
        controller.secondaries.insert("other".into(), Arc::new(other));

        assert_eq!(asked_and_written(&bench).await.0, first);
        assert_eq!(after.lock().as_deref(), Some("n/a"));
        // The last one of the page goes before the next is asked for.
        bench.maps.apply(Watch::Deleted(maps[1].clone()));
        let second: &[&str] = if newest_only { &second } else { &["n/b", "n/b"] };
        assert_eq!(asked_and_written(&bench).await.0, second);
        if !newest_only {
            assert_eq!(after.lock().as_deref(), Some("n/b"));
            assert_eq!(asked_and_written(&bench).await.0, ["n/c"]);
        }
        assert_eq!(*after.lock(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_replaces_the_version_that_was_checked_or_none() {
    const GRANTS: &str = "apiVersion: v1, kind: ConfigMap, verbs: [get, patch, update";
    for (verbs, named, expected) in [
        ("", None, "done"),
        ("", Some("known"), "done"),
        ("", Some("empty"), "done"),
        ("", Some("newer"), "Conflict"),
        (", delete", Some("newer"), "done"),
    ] {
        let ask = move |run: Arc<dyn Context>| async move {
            let key = ObjectRef::namespaced("n", "x");
            let found = run.find_named(Place::Kind(config_map()), key.clone()).await.unwrap().unwrap();
            let mut seen: Value = serde_json::from_str(&found).unwrap();
            // Nobody has seen yet that somebody has given it a finalizer; the answer to a plain write shows the version.
            let options = WriteOptions { mode: WriteMode::Plain, ..WriteOptions::default() };
            let verb =
                WriteVerb::MergePatch(ObjectTarget { gvk: config_map(), key }, r#"{"data":{"more":"1"}}"#.to_owned());
            let newer = run.write(WriteRequest { verb, options }).await.unwrap();
            let newer: Value = serde_json::from_str(&newer).unwrap();
            let metadata = seen["metadata"].as_object_mut().unwrap();
            metadata.remove("finalizers");
            match named {
                Some("newer") => metadata["resourceVersion"] = newer["metadata"]["resourceVersion"].clone(),
                Some("empty") => metadata["resourceVersion"] = "".into(),
                Some(_) => {}
                None => drop(metadata.remove("resourceVersion")),
            }
            seen["data"] = json!({ "k": "w" });
            let options = WriteOptions { mode: WriteMode::ForceFilter, ..WriteOptions::default() };
            vec![told(run.write(WriteRequest { verb: WriteVerb::Update(seen.to_string()), options }).await)]
        };
        let mut bench = asking(&format!("{{ {GRANTS}{verbs}] }}"), EXPLICITLY, ask);
        map(&mut bench, &ObjectRef::namespaced("n", "x"), Some("page"));
        let (answers, _) = asked_and_written(&bench).await;
        let [answer] = &answers[..] else { panic!("{answers:?}") };
        assert!(answer.starts_with(expected), "{verbs} {named:?}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_of_another_kind_says_not_whose_subresource_it_is() {
    let scale = |verb: fn(String) -> WriteVerb| {
        let tree = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x", "namespace": "n" } });
        verb(tree.to_string())
    };
    let target = || ObjectTarget { gvk: config_map(), key: ObjectRef::namespaced("n", "x") };
    for (verb, expected) in [
        (scale(WriteVerb::Create), "Invalid"),
        (scale(WriteVerb::Apply), "Invalid"),
        (scale(WriteVerb::ForceApply), "Invalid"),
        (scale(WriteVerb::Update), "Invalid"),
        (scale(WriteVerb::Edit), "Invalid"),
        (WriteVerb::MergePatch(target(), r#"{"spec":{"replicas":3}}"#.to_owned()), "done"),
    ] {
        let options = WriteOptions { subresource: Some("scale".to_owned()), ..WriteOptions::default() };
        let what = format!("{verb:?}");
        let request = WriteRequest { verb, options };
        let ask = move |run: Arc<dyn Context>| {
            let request = request.clone();
            async move { vec![told(run.write(request).await)] }
        };
        let grants = "{ apiVersion: v1, kind: ConfigMap, verbs: [get, create, apply, patch, update, delete] }";
        let mut bench = asking(grants, EXPLICITLY, ask);
        map(&mut bench, &ObjectRef::namespaced("n", "x"), Some("page"));
        let (answers, _) = asked_and_written(&bench).await;
        assert!(answers[0].starts_with(expected), "{what}: {answers:?}");
    }
}

/// Returns a write about what a component has seen of an object, given what changes its data.
type Writing = fn(Value, fn(Value, Value) -> String) -> WriteVerb;

#[tokio::test(start_paused = true)]
async fn what_a_component_has_not_seen_of_an_object_it_does_not_delete() {
    // BC-2
    let change = |mut seen: Value, data: Value| {
        json_patch::merge(&mut seen, &json!({ "data": data }));
        seen.to_string()
    };
    let refused = |what: &str| format!("Invalid: {what}");
    let source = "source s does not keep all";
    let table: [(&str, Writing, String, usize); 6] = [
        (
            "an update replaces all",
            |seen, change| WriteVerb::Update(change(seen, json!({ "k": "w" }))),
            refused(&format!(
                "update of v1 ConfigMap n/x: {source} fields (`keep`, `drop`), and an update would delete the others: use `edit`, `apply` or a patch"
            )),
            0,
        ),
        (
            "an edit of what is seen",
            |seen, change| WriteVerb::Edit(change(seen, json!({ "k": "w" }))),
            "done".into(),
            1,
        ),
        ("an edit of nothing", |seen, _| WriteVerb::Edit(seen.to_string()), "done".into(), 0),
        (
            "an edit beside what is seen",
            |seen, change| WriteVerb::Edit(change(seen, json!({ "hidden": "new" }))),
            refused(&format!(
                "edit of v1 ConfigMap n/x: it changes /data/hidden, of which {source} (`keep`, `drop`): use `apply` or a patch"
            )),
            0,
        ),
        (
            "a patch that changes nothing of what is seen",
            |_, _| WriteVerb::MergePatch(target("n", "x"), r#"{"data":{"k":"v"}}"#.to_owned()),
            "done".into(),
            1,
        ),
        ("an apply as well", |_, _| WriteVerb::Apply(document("n", "x", json!({}))), "done".into(), 1),
    ];
    for (what, verb, expected, sent) in table {
        let ask = move |run: Arc<dyn Context>| async move {
            let found =
                run.find_named(Place::Kind(config_map()), ObjectRef::namespaced("n", "x")).await.unwrap().unwrap();
            let seen: Value = serde_json::from_str(&found).unwrap();
            let verb = verb(seen.clone(), change);
            let done = run.write(WriteRequest { verb, options: WriteOptions::default() }).await;
            let answer = done.as_ref().map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
            [&seen, &answer]
                .into_iter()
                .map(|object| object["data"]["hidden"].to_string())
                .chain([told(done)])
                .collect()
        };
        let grants = "{ apiVersion: v1, kind: ConfigMap, verbs: [get, update, patch, apply] }";
        let keep = "sources: { s: { informer: { apiVersion: v1, kind: ConfigMap, keep: [/data/k] } } }";
        let mut bench = asking(grants, &format!("{EXPLICITLY}\n{keep}"), ask);
        let tree =
            json!({ "metadata": { "namespace": "n", "name": "x", "uid": "x" }, "data": { "k": "v", "hidden": "h" } });
        let map = bench.server.put(&config_map(), tree);
        bench.maps.apply(Watch::Applied(map));
        let (answers, writes) = asked_and_written(&bench).await;
        assert_eq!(answers, ["null", "null", &expected], "{what}");
        assert_eq!((writes.len(), bench.data("x")["hidden"].as_str()), (sent, Some("h")), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_changes_nothing_of_the_primary_that_the_component_has_not_seen() {
    // BC-2, UC-4
    for (update, error, writes) in [
        (PrimaryUpdate::Object(r#"{"spec":{"a":2}}"#.to_owned()), None, 1),
        (PrimaryUpdate::Object(r#"{"spec":{}}"#.to_owned()), None, 1),
        (PrimaryUpdate::Object(r#"{"spec":{"a":1,"b":3}}"#.to_owned()), Some("(object) changes /spec/b"), 0),
        (PrimaryUpdate::Object("{}".to_owned()), Some("(object) changes /spec"), 0),
        (PrimaryUpdate::Status(r#"{"status":{"s":1}}"#.to_owned()), Some("(status) changes /status"), 0),
    ] {
        let what = format!("{update:?}");
        let script = Script {
            reconcile: Ok(UpdateControl { update, reschedule: None }),
            exports: &[Interface::Reconciler],
            ..Script::default()
        };
        let mut bench = Bench::new(script, "serverSideApply: false\nkeep: [/spec/a]");
        bench.page_of(json!({ "uid": "page" }), json!({ "a": 1, "b": 2 }));
        let key = ObjectRef::namespaced("n", "a");
        bench.queue.event(&key, queue::Event::PrimaryChanged { deleting: false }, Instant::now());
        let mut ticket = bench.queue.next().await.unwrap();
        let ended = execute(Arc::clone(&bench.controller), &mut ticket, NOW).await;
        ticket.finish(ended.finished, Instant::now());
        match error {
            None => assert_eq!(ended.error, None, "{what}"),
            Some(error) => {
                let said = ended.error.unwrap();
                assert!(
                    said.contains(error) && said.contains("of which the cache does not keep all"),
                    "{what}: {said}"
                );
            }
        }
        assert_eq!(bench.server.writes.lock().len(), writes, "{what}");
        let page = bench.server.objects.lock()[&(bench.controller.spec.primary.clone(), key)].clone();
        assert_eq!(page["spec"]["b"], 2, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_bounded_cache_has_forgotten_is_read_from_the_api_server_and_never_taken_for_absent() {
    // BC-1
    let ask = |run: Arc<dyn Context>| async move {
        let data = |text: &str| serde_json::from_str::<Value>(text).unwrap()["data"]["k"].to_string();
        let mut answers = Vec::new();
        for name in ["one", "two", "gone"] {
            let found = run.find_named(Place::Kind(config_map()), ObjectRef::namespaced("n", name)).await;
            let found = found.map(|found| found.map_or("none".to_owned(), |text| data(&text)));
            answers.push(found.unwrap_or_else(|error| format!("{:?}: {}", error.reason, error.message)));
        }
        let all = |fields: &[&str]| Query {
            place: Place::Kind(config_map()),
            selection: Selection::Everywhere,
            labels: None,
            fields: fields.iter().map(|&field| field.to_owned()).collect(),
            newest_only: false,
            limit: None,
            after: None,
        };
        for fields in [&["/metadata/uid"][..], &[]] {
            let page = run.find_all(all(fields)).await;
            let items = page.map(|page| page.items.iter().map(|text| data(text)).collect::<Vec<_>>().join(" "));
            answers.push(items.unwrap_or_else(|error| format!("{:?}: {}", error.reason, error.message)));
        }
        answers.push(run.requests().load(Ordering::Relaxed).to_string());
        answers
    };
    let grants = "{ apiVersion: v1, kind: ConfigMap, verbs: [get] }";
    let source = "sources: { s: { informer: { apiVersion: v1, kind: ConfigMap, bounded: { objects: 1 } } } }";
    let forgotten = r#""v" "v" none|null null null|"v" "v"|"#;
    let exhausted = "Exhausted: this run has made its 3 requests already (limits.requests)";
    for (what, limit, away, expected) in [
        // One of the two is whole at any time, and the third is gone.
        ("each read", 100, false, format!("{forgotten}5")),
        ("too many", 3, false, format!(r#""v" "v" none|null null null|{exhausted}|3"#)),
        ("the API server is away", 100, true, r#"away "v" away|null null null|away|3"#.to_owned()),
    ] {
        let mut bench = asking(grants, &format!("{EXPLICITLY}\n{source}"), ask);
        Arc::get_mut(&mut bench.controller).unwrap().limits.requests = limit;
        for name in ["one", "gone", "two"] {
            map(&mut bench, &ObjectRef::namespaced("n", name), None);
        }
        assert_eq!(bench.controller.secondaries["cm"].remembers(), 1);
        bench.server.objects.lock().remove(&(config_map(), ObjectRef::namespaced("n", "gone")));
        bench.server.away.store(away, Ordering::Relaxed);
        let (answers, _) = asked_and_written(&bench).await;
        let short = |text: &String| if text.starts_with("Unreachable") { "away".to_owned() } else { text.clone() };
        let answers: Vec<_> = answers.iter().map(short).collect();
        let (named, rest) = answers.split_at(3);
        assert_eq!([vec![named.join(" ")], rest.to_vec()].concat().join("|"), expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_was_forgotten_is_read_before_it_runs_and_one_that_is_gone_does_not_run() {
    // BC-1
    for (what, there, away, error, seen, recalled) in [
        ("forgotten", Some("page"), false, None, r#"reconcile "kept""#, 1),
        ("gone", None, false, None, "", 0),
        ("made again", Some("another"), false, None, "", 0),
        ("the API server is away", Some("page"), true, Some("reading the primary: "), "", 0),
    ] {
        let ask: Ask = Arc::new(|run: Arc<dyn Context>| {
            async move {
                let found = run.find_named(Place::Primaries, ObjectRef::namespaced("n", "a")).await.unwrap().unwrap();
                vec![serde_json::from_str::<Value>(&found).unwrap()["spec"]["text"].to_string()]
            }
            .boxed()
        });
        let script = Script { exports: &[Interface::Reconciler], ask: Some(ask), ..Script::default() };
        let calls = Arc::clone(&script.calls);
        let mut bench = Bench::new(script, "bounded: { objects: 1 }");
        bench.page_of(json!({ "uid": "page" }), json!({ "text": "kept" }));
        let key = ObjectRef::namespaced("n", "a");
        let primaries = &bench.controller.primaries;
        assert!(primaries.has_forgotten(&primaries.get(&key).unwrap()), "{what}");
        {
            let mut objects = bench.server.objects.lock();
            let page = objects.remove(&(bench.controller.spec.primary.clone(), key.clone())).unwrap();
            if let Some(uid) = there {
                let mut page = page;
                page["metadata"]["uid"] = uid.into();
                objects.insert((bench.controller.spec.primary.clone(), key.clone()), page);
            }
        }
        bench.server.away.store(away, Ordering::Relaxed);
        bench.queue.event(&key, queue::Event::PrimaryChanged { deleting: false }, Instant::now());
        let mut ticket = bench.queue.next().await.unwrap();
        let ended = execute(Arc::clone(&bench.controller), &mut ticket, NOW).await;
        ticket.finish(ended.finished, Instant::now());
        match error {
            None => assert_eq!(ended.error, None, "{what}"),
            Some(error) => assert!(ended.error.unwrap().starts_with(error), "{what}"),
        }
        assert_eq!((calls.lock().join(" ").as_str(), ended.recalled), (seen, recalled), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_what_a_bounded_cache_has_forgotten_is_upon_what_is_there() {
    // BC-1
    let ask = |run: Arc<dyn Context>| async move {
        let document =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "n", "name": "one" } });
        let found = run.find_named(Place::Kind(config_map()), ObjectRef::namespaced("n", "one")).await.unwrap();
        let mut tree: Value = found.map_or(document, |text| serde_json::from_str(&text).unwrap());
        tree["data"]["k"] = "w".into();
        let forget = run.find_named(Place::Kind(config_map()), ObjectRef::namespaced("n", "two")).await;
        let options = WriteOptions::default();
        let done = run.write(WriteRequest { verb: WriteVerb::Edit(tree.to_string()), options }).await;
        vec![told(forget), told(done), run.requests().load(Ordering::Relaxed).to_string()]
    };
    let grants = "{ apiVersion: v1, kind: ConfigMap, verbs: [get, patch] }";
    let source = "sources: { s: { informer: { apiVersion: v1, kind: ConfigMap, bounded: { objects: 1 } } } }";
    let mut bench = asking(grants, &format!("{EXPLICITLY}\n{source}"), ask);
    for name in ["one", "two"] {
        map(&mut bench, &ObjectRef::namespaced("n", name), None);
    }
    let (answers, writes) = asked_and_written(&bench).await;
    // Each was forgotten when it was looked at: twice by the component, and once for the edit.
    assert_eq!((answers, writes), (strings(&["done", "done", "3"]), strings(&["patch ConfigMap one"])));
    assert_eq!(bench.data("one"), json!({ "k": "w" }));
}

/// Gives a bench a source `remote` of config maps in another cluster, which has listed `far` or nothing yet.
fn remote(bench: &mut Bench, listed: bool, away: bool) -> Writer {
    let mut writer = Writer::default();
    let mapper = Mapping::Annotations(manifest::MappingKeys::default());
    let source = Source::new(Spec {
        name: "remote".into(),
        gvk: config_map(),
        cluster: Some("edge".into()),
        role: Role::Secondary(Mapper::new(bench.controller.spec.primary.clone(), Scope::Namespaced, mapper)),
        filter: Filter::default(),
        indexes: BTreeMap::new(),
        fields: Keep::Whole.fields(),
        bounded: None,
        packed: false,
        faults: Arc::default(),
    });
    source.attach(None, writer.cache());
    if listed {
        writer.start_list();
        writer.finish_list(Version(0));
        let tree = json!({ "metadata": { "namespace": "n", "name": "far", "uid": "far" }, "data": { "k": "v" } });
        let map = bench.server.put(&config_map(), tree);
        writer.apply(Watch::Applied(map));
    }
    let controller = Arc::get_mut(&mut bench.controller).expect("nothing runs yet");
    controller.secondaries.insert("remote".into(), Arc::new(source));
    let cluster = Arc::clone(&controller.cluster);
    controller.elsewhere.insert("edge".into(), Elsewhere { cluster, away: Box::new(move || away) });
    writer
}

const REMOTE: &str = "sources: { remote: { informer: { apiVersion: v1, kind: ConfigMap, cluster: edge, mapper: { annotations: {} } } } }\nworkflow: { invocation: explicit, dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }";

#[tokio::test(start_paused = true)]
async fn what_another_cluster_has_is_read_by_the_name_of_its_source_and_not_written() {
    // CU-4, CU-5
    let ask = |run: Arc<dyn Context>| async move {
        let key = || ObjectRef::namespaced("n", "far");
        let kind = || Place::Kind(config_map());
        let mut answers = Vec::new();
        for place in [Place::Source("remote".to_owned()), kind()] {
            let found = run.find_named(place, key()).await.unwrap();
            answers.push(found.map_or("none", |_| "found").to_owned());
        }
        let document =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "n", "name": "far" } });
        for source in [Some("remote".to_owned()), None] {
            let options = WriteOptions { source, ..WriteOptions::default() };
            let verb = WriteVerb::Apply(document.to_string());
            answers.push(told(run.write(WriteRequest { verb, options }).await));
        }
        answers
    };
    let grants = "{ apiVersion: v1, kind: ConfigMap, verbs: [get, create, apply] }";
    let mut bench = asking(grants, REMOTE, ask);
    let _remote = remote(&mut bench, true, false);
    let before = bench.controller.secondaries["remote"].get(&ObjectRef::namespaced("n", "far")).unwrap();
    let (answers, writes) = asked_and_written(&bench).await;
    let denied = "Denied: source remote watches the cluster edge, which is only read: what a component writes goes to the cluster of its controller";
    assert_eq!(answers, ["found", "none", denied, "done"]);
    assert_eq!(writes.len(), 1);
    let after = bench.controller.secondaries["remote"].get(&ObjectRef::namespaced("n", "far")).unwrap();
    assert_eq!(after.version(), before.version(), "what is written here is not what is there");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_reads_of_a_cluster_which_is_away_uses_up_no_attempt() {
    // CU-7
    for (away, expected) in [(true, queue::Failure::Outage), (false, queue::Failure::Unhandled)] {
        let ask: Ask =
            Arc::new(|run| async move { vec![told(run.find_one(Place::Source("remote".to_owned())).await)] }.boxed());
        let reconcile = Err(Failure::new(Cause::Returned, "what it reads is not known"));
        let mut bench = Bench::new(Script { ask: Some(ask), reconcile, ..Script::default() }, REMOTE);
        bench.page(json!({ "uid": "page" }));
        let _remote = remote(&mut bench, false, away);
        let (finished, calls, _) = bench.run().await;
        assert!(calls[0] == "reconcile" && calls[1].starts_with("Unreachable: "), "{calls:?}");
        assert_eq!(finished, Finished::Failed(expected));
    }
}

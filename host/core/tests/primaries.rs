//! Rules of finalizers, of what `reconcile` answers and of a queue that stands still, each from its text alone: by what is sent, in which order, and
//! what of it wakes the primary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cache::{Event as Watch, Writer};
use capstan_core::cluster::{Cluster, Error, Reason, Verb, Write};
use capstan_core::guest::*;
use capstan_core::manifest;
use capstan_core::object::{Gvk, Managers, Object, ObjectRef, Scope, Version};
use capstan_core::permission::{Home, Permissions};
use capstan_core::queue::{self, Failure as Failed, Finished, Mark, Mode, Policy, Queue, Receipt, Ticket};
use capstan_core::reconciler::triggers::enqueue;
use capstan_core::reconciler::verdicts::Verdicts;
use capstan_core::reconciler::{Controller, execute};
use capstan_core::source::filter::{Filter, PrimaryFilter};
use capstan_core::source::mapper::Mapper;
use capstan_core::source::registered::Registered;
use capstan_core::source::{Role, Source, Spec, Trigger, TriggerKind};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

const OURS: &str = "sample.dev/finalizer";
const DONE: Finished = Finished::DONE;
const REMOVED: Finished = Finished::Done { finalizer_removed: true, again: None };
const BY_PATCHES: &str = "serverSideApply: false";
const GOING: &str = "2026-01-01T00:00:00Z";

type Log = Arc<Mutex<Vec<String>>>;

// === the API server ===

/// Keeps objects as trees. All that is asked of it is in the log, together with what is asked of the component.
#[derive(Default)]
struct Server {
    objects: Mutex<BTreeMap<(Gvk, ObjectRef), Value>>,
    version: Mutex<u64>,
    log: Log,
    writes: Mutex<Vec<Write>>,
    /// What somebody else does to the page before each of the next writes: a merge patch; `null` deletes it.
    others: Mutex<VecDeque<Value>>,
    /// The answers to the next writes.
    refusals: Mutex<VecDeque<Error>>,
}

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

    /// Merges into the page what somebody else changes.
    fn change(&self, patch: &Value) -> Option<Object> {
        let place = (page_kind(), page());
        let found = self.objects.lock().remove(&place);
        if patch.is_null() {
            return None;
        }
        let mut tree = found.unwrap();
        json_patch::merge(&mut tree, patch);
        Some(self.put(&place.0, tree))
    }

    /// Returns the page as it is there.
    fn page(&self) -> Value {
        self.objects.lock().get(&(page_kind(), page())).cloned().unwrap_or_default()
    }

    fn carry_out(&self, write: Write) -> Result<Option<Object>, Error> {
        let subresource = write.target.subresource.as_deref().map(|name| format!("/{name}")).unwrap_or_default();
        self.log.lock().push(format!("{} {}{subresource}", write.verb.rbac(), write.target.gvk.kind));
        self.writes.lock().push(write.clone());
        if let Some(other) = self.others.lock().pop_front() {
            self.change(&other);
        }
        if let Some(refusal) = self.refusals.lock().pop_front() {
            return Err(refusal);
        }
        let Write { target, verb, .. } = write;
        let old = self.objects.lock().get(&(target.gvk.clone(), target.key.clone())).cloned();
        let tree = match verb {
            Verb::Create { body, .. } => serde_json::from_str(&body).unwrap(),
            Verb::Apply { body, .. } => apply(old, serde_json::from_str(&body).unwrap())?,
            Verb::JsonPatch { patch, .. } => {
                let mut tree = old.ok_or_else(|| Error::new(Reason::Missing, 404, "it is gone"))?;
                let steps: json_patch::Patch = serde_json::from_str(&patch.text()).unwrap();
                json_patch::patch(&mut tree, &steps).map_err(|e| Error::new(Reason::Conflict, 422, e.to_string()))?;
                tree
            }
            verb @ (Verb::Replace { .. } | Verb::MergePatch { .. } | Verb::Delete(_)) => panic!("{verb:?}"),
        };
        Ok(Some(self.put(&target.gvk, tree)))
    }
}

/// Applies a document: finalizers are a set, and a uid or version that it names must be that of the object.
fn apply(old: Option<Value>, mut body: Value) -> Result<Value, Error> {
    let mut tree = old.unwrap_or_else(|| json!({}));
    for field in ["uid", "resourceVersion"] {
        let named = &body["metadata"][field];
        if !named.is_null() && *named != tree["metadata"][field] {
            return Err(Error::new(Reason::Conflict, 409, format!("another {field}")));
        }
    }
    let mut finalizers = tree["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let applied = body["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.extend(applied.into_iter().filter(|one| !finalizers.contains(one)).collect::<Vec<_>>());
    body["metadata"]["finalizers"] = finalizers.into();
    json_patch::merge(&mut tree, &body);
    Ok(tree)
}

impl Cluster for Server {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        async move { self.carry_out(write) }.boxed()
    }

    fn dry_run(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        panic!("nothing is tried: {write:?}")
    }

    fn get<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, Error>> {
        self.log.lock().push(format!("get {}", gvk.kind));
        let tree = self.objects.lock().get(&(gvk.clone(), key.clone())).cloned();
        async move { Ok(tree.map(|tree| Object::parse(&tree.to_string(), gvk, &Managers::all()).unwrap())) }.boxed()
    }

    fn scope(&self, _: &Gvk) -> Option<Scope> {
        Some(Scope::Namespaced)
    }
}

// === the component ===

/// Answers `reconcile` with one update, after it has asked for a write.
#[derive(Clone)]
struct Script {
    exports: &'static [Interface],
    answer: PrimaryUpdate,
    asks: Option<WriteVerb>,
    log: Log,
    run: Option<Arc<dyn Context>>,
}

const PLAIN: &[Interface] = &[Interface::Reconciler, Interface::Initializer, Interface::Dependent];
const CLEANER: &[Interface] =
    &[Interface::Reconciler, Interface::Initializer, Interface::Dependent, Interface::Cleaner];

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

impl Session for Script {
    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<Answer, Failure>> {
        let function = call.function().unwrap();
        self.log.lock().push(function.name().to_owned());
        async move {
            Ok(match function.name() {
                "initialize" => Answer::Initialize(()),
                "desired" => Answer::Desired(json!({ "metadata": { "name": "a" }, "data": { "x": "y" } }).to_string()),
                "reconcile" => {
                    if let (Some(verb), Some(run)) = (&self.asks, &self.run) {
                        let options = WriteOptions { mode: WriteMode::Plain, ..WriteOptions::default() };
                        run.write(WriteRequest { verb: verb.clone(), options }).await.unwrap();
                    }
                    Answer::Reconcile(UpdateControl { update: self.answer.clone(), reschedule: None })
                }
                "cleanup" => Answer::Cleanup(DeleteControl::RemoveFinalizer),
                name => panic!("{name} is not exported"),
            })
        }
        .boxed()
    }
}

// === putting them together ===

fn page_kind() -> Gvk {
    Gvk::parse("sample.dev/v1", "Page").unwrap()
}

fn page() -> ObjectRef {
    ObjectRef::namespaced("n", "a")
}

fn parse(tree: &Value) -> Object {
    Object::parse(&tree.to_string(), &page_kind(), &Managers::all()).unwrap()
}

/// A controller over pages, from its informers to the API server.
struct Bench {
    controller: Controller,
    server: Arc<Server>,
    log: Log,
    pages: Writer,
    told: Arc<Mutex<Vec<Trigger>>>,
}

fn source(gvk: Gvk, role: Role, filter: Filter, writer: &Writer) -> Arc<Source> {
    let fields = manifest::Keep::default().fields();
    let (indexes, faults) = (BTreeMap::new(), Arc::default());
    let spec = Spec {
        name: "s".into(),
        cluster: None,
        gvk,
        role,
        filter,
        indexes,
        fields,
        bounded: None,
        packed: false,
        faults,
    };
    let source = Source::new(spec);
    source.attach(None, writer.cache());
    Arc::new(source)
}

fn listed() -> Writer {
    let mut writer = Writer::default();
    writer.start_list();
    writer.finish_list(Version(0));
    writer
}

impl Bench {
    fn new(exports: &'static [Interface], fields: &str) -> Self {
        Self::answering(exports, fields, PrimaryUpdate::Nothing, None)
    }

    fn answering(exports: &'static [Interface], fields: &str, answer: PrimaryUpdate, asks: Option<WriteVerb>) -> Self {
        let text = format!(
            "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  plugins: {{ p: {{ component: {{ path: p.wasm }}, capabilities: {{ kubernetes: [{{ apiVersion: sample.dev/v1, kind: Page, verbs: [apply] }}] }} }} }}\n  controllers:\n    pages:\n      plugin: p\n      primary: {{ apiVersion: sample.dev/v1, kind: Page }}\n      finalizer: {OURS}\n{}",
            fields.lines().map(|line| format!("      {line}\n")).collect::<Vec<_>>().concat()
        );
        let operator = manifest::parse(&text, Path::new("a.yaml")).unwrap().remove(0);
        let spec = operator.controllers["pages"].clone();
        let plugin = &operator.plugins[&spec.plugin];
        let (pages, maps, log) = (listed(), listed(), Log::default());
        let mapper = Mapper::new(spec.primary.clone(), Scope::Namespaced, manifest::Mapper::OwnerReference);
        let config_maps =
            source(Gvk::parse("v1", "ConfigMap").unwrap(), Role::Secondary(mapper), Filter::default(), &maps);
        let server = Arc::new(Server { log: Arc::clone(&log), ..Server::default() });
        let queue = Queue::new(Policy { max_interval: None, ..Policy::default() });
        queue.start(Instant::now());
        let told = Arc::<Mutex<Vec<Trigger>>>::default();
        let mut controller = Controller {
            operator: Arc::clone(&operator.name),
            limits: plugin.limits.clone(),
            primaries: source(spec.primary.clone(), Role::Primary, Filter::default(), &pages),
            secondaries: spec.dependents().map(|(name, _)| (Arc::clone(name), Arc::clone(&config_maps))).collect(),
            externals: BTreeMap::new(),
            on_demand: Arc::default(),
            registered: Registered::none(),
            finalizer: OURS.into(),
            guest: Arc::new(Script { exports, answer, asks, log: Arc::clone(&log), run: None }),
            permissions: Permissions::new(&spec, &plugin.capabilities, Home::default()),
            cluster: Arc::clone(&server) as Arc<dyn Cluster>,
            elsewhere: BTreeMap::new(),
            tell: {
                let told = Arc::clone(&told);
                Arc::new(move |triggers| told.lock().extend(triggers))
            },
            queue,
            verdicts: Arc::new(Verdicts::default()),
            edition: 1,
            settings: json!({}),
            holder: None,
            events: Box::new(|_, _, _| {}),
            conditions: Arc::default(),
            spec,
        };
        // As the daemon has it: the filter knows the finalizer that is used.
        let generation_aware = controller.spec.generation_aware;
        let built_in = PrimaryFilter { generation_aware, finalizer: controller.used_finalizer().map(Arc::from) };
        let filter = Filter::primary(built_in, controller.spec.filters.clone());
        controller.primaries = source(controller.spec.primary.clone(), Role::Primary, filter, &pages);
        Self { controller, server, log, pages, told }
    }
}

/// The same while it runs.
struct Running {
    controller: Arc<Controller>,
    server: Arc<Server>,
    log: Log,
    pages: Writer,
    told: Arc<Mutex<Vec<Trigger>>>,
}

impl Bench {
    /// Begins with a page of these fields, which the informer has seen and the queue has heard of.
    fn with(self, fields: &Value) -> Running {
        let Self { controller, server, log, pages, told } = self;
        let mut running = Running { controller: Arc::new(controller), server, log, pages, told };
        let mut tree = json!({ "metadata": { "name": "a", "namespace": "n", "generation": 1 }, "spec": {} });
        json_patch::merge(&mut tree, fields);
        let page = running.server.put(&page_kind(), tree);
        assert_eq!(running.seen(page), 1, "an addition");
        running
    }
}

impl Running {
    /// Has the watch bring a page, tells the queue, and returns how many triggers that were.
    fn seen(&mut self, page: Object) -> usize {
        let change = self.pages.apply(Watch::Applied(page));
        let mut triggers: Vec<_> = change.into_iter().flat_map(|change| self.controller.primaries.on(change)).collect();
        triggers.append(&mut self.told.lock());
        let count = triggers.len();
        enqueue(&self.controller.queue, &self.controller.verdicts, triggers, || None);
        count
    }

    /// Has the watch bring the page as the server has it.
    fn caught_up(&mut self) -> usize {
        self.seen(parse(&self.server.page()))
    }

    /// Runs what is due, and returns how that ended; `None` if nothing is.
    async fn run(&self) -> Option<Finished> {
        let mut ticket = self.controller.queue.next().now_or_never()??;
        let ended = execute(Arc::clone(&self.controller), &mut ticket, Timestamp::UNIX_EPOCH).await;
        ticket.finish(ended.finished, Instant::now());
        Some(ended.finished)
    }

    /// Returns what was asked of the component and of the API server since the last time, in order.
    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock())
    }

    /// Returns the writes since the last time.
    fn writes(&self) -> Vec<Write> {
        std::mem::take(&mut self.server.writes.lock())
    }

    /// Returns the documents that were applied since the last time, all of which were forced and of the controller's manager.
    fn applied(&self) -> Vec<Value> {
        let document = |write: Write| {
            let Verb::Apply { body, manager, force: true } = &write.verb else { panic!("{write:?}") };
            assert_eq!(&**manager, "pages");
            serde_json::from_str(body).unwrap()
        };
        self.writes().into_iter().map(document).collect()
    }

    /// Returns the JSON patches since the last time, each as a list of steps.
    fn patches(&self) -> Vec<Value> {
        let steps = |write: Write| {
            let Verb::JsonPatch { patch, manager } = &write.verb else { panic!("{write:?}") };
            assert_eq!(&**manager, "pages");
            serde_json::from_str(&patch.text()).unwrap()
        };
        self.writes().into_iter().map(steps).collect()
    }
}

fn held(finalizers: &[&str]) -> Value {
    json!({ "metadata": { "finalizers": finalizers } })
}

fn going(finalizers: &[&str]) -> Value {
    json!({ "metadata": { "finalizers": finalizers, "deletionTimestamp": GOING } })
}

fn refused(reason: Reason, code: u16) -> Error {
    Error::new(reason, code, format!("HTTP {code}"))
}

/// Returns the steps of a patch that are no tests.
fn changes(patch: &Value) -> Vec<Value> {
    patch.as_array().unwrap().iter().filter(|step| step["op"] != "test").cloned().collect()
}

// === whether a finalizer is used ===

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_used_by_whoever_cleans_up_or_has_a_managed_dependent_to_delete_by_itself() {
    // DI-2
    let map = |more: &str| format!("{{ apiVersion: v1, kind: ConfigMap{more} }}");
    let managed = |more: &str| format!("workflow: {{ dependents: {{ cm: {} }} }}", map(more));
    let own = ", garbageCollected: false";
    let two = format!("workflow: {{ dependents: {{ cm: {}, other: {} }} }}", map(""), map(own));
    let standalone = format!("standalone: {{ w: {{ dependents: {{ cm: {} }} }} }}", map(own));
    let explicit = format!("workflow: {{ invocation: explicit, dependents: {{ cm: {} }} }}", map(own));
    let condition = ", garbageCollected: false, reconcilePrecondition: { cel: 'false' }";
    let inactive = ", garbageCollected: false, activation: { cel: 'false' }";
    for (exports, fields, used) in [
        (PLAIN, String::new(), false),
        (CLEANER, String::new(), true),
        (PLAIN, managed(""), false),
        (CLEANER, managed(""), true),
        (PLAIN, managed(own), true),
        (PLAIN, two, true),
        (PLAIN, explicit, true),
        // What may come to exist later counts now.
        (PLAIN, managed(condition), true),
        (PLAIN, managed(inactive), true),
        // Who may not delete is no deleter.
        (PLAIN, managed(", garbageCollected: false, manage: [create, update]"), false),
        (PLAIN, managed(", readOnly: true"), false),
        (PLAIN, standalone.clone(), false),
        (CLEANER, standalone, true),
    ] {
        let case = format!("{} {fields}", exports.contains(&Interface::Cleaner));
        let bench = Bench::new(exports, &fields).with(&json!({}));
        assert_eq!(bench.controller.used_finalizer(), used.then_some(OURS), "{case}");
        assert_eq!(bench.run().await, Some(DONE), "{case}");
        let finalizers = if used { json!([OURS]) } else { Value::Null };
        assert_eq!(bench.server.page()["metadata"]["finalizers"], finalizers, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_is_missing_is_all_of_a_run_and_its_event_causes_the_one_that_reconciles() {
    // DI-4
    const MANAGED: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }";
    for (applies, others) in
        [("", &[][..]), ("", &["others.dev/f"]), (BY_PATCHES, &[]), (BY_PATCHES, &["others.dev/f"])]
    {
        let mut bench = Bench::new(CLEANER, &format!("{MANAGED}\n{applies}")).with(&held(others));
        let generation = bench.server.page()["metadata"]["generation"].clone();
        assert_eq!(bench.run().await, Some(DONE));
        assert_eq!(bench.log(), ["patch Page"], "nothing of the component, and no dependent");
        let finalizers = [others, &[OURS]].concat();
        assert_eq!(bench.server.page()["metadata"]["finalizers"], json!(finalizers));
        assert_eq!(bench.run().await, None, "nothing is due until its event has come");
        assert_eq!(bench.server.page()["metadata"]["generation"], generation);
        assert_eq!(bench.caught_up(), 1, "though its generation is the same");
        assert_eq!(bench.run().await, Some(DONE));
        assert_eq!(bench.log(), ["initialize", "desired", "create ConfigMap", "reconcile"]);
        assert_eq!(bench.run().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_going_and_lacks_no_finalizer_is_reconciled_after_its_workflow() {
    // DI-5
    const COLLECTED: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }";
    let all: &[&str] = &["initialize", "desired", "create ConfigMap", "reconcile"];
    for (exports, page, expected) in [
        (PLAIN, json!({}), all),
        // Those of others are no matter of a controller.
        (PLAIN, held(&["others.dev/f"]), all),
        (PLAIN, held(&[OURS]), all),
        (CLEANER, held(&[OURS]), all),
        (CLEANER, held(&["others.dev/f", OURS]), all),
        (CLEANER, json!({}), &["patch Page"]),
        (CLEANER, held(&["sample.dev/finalizer2"]), &["patch Page"]),
        (PLAIN, going(&["others.dev/f"]), &[]),
        (CLEANER, going(&["others.dev/f"]), &[]),
    ] {
        let bench = Bench::new(exports, COLLECTED).with(&page);
        assert_eq!(bench.run().await, Some(DONE), "{page}");
        assert_eq!(bench.log(), expected, "{} {page}", exports.contains(&Interface::Cleaner));
    }
}

// === how it is added and removed ===

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_applied_with_nothing_else_and_is_read_before_its_event_which_counts() {
    // FI-1
    let labels = json!({ "metadata": { "labels": { "a": "b" }, "annotations": { "c": "d" }, "finalizers": ["others.dev/f"], "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "o" }] }, "spec": { "text": "x" }, "status": { "ok": true } });
    let mut bench = Bench::new(CLEANER, "").with(&labels);
    let before = bench.server.page();
    assert_eq!(bench.run().await, Some(DONE));
    let mut document = bench.applied().remove(0);
    // Ours: it makes no new object if this one is gone.
    assert_eq!(document["metadata"].as_object_mut().unwrap().remove("uid"), Some(json!("u-1")));
    let alone = json!({
        "apiVersion": "sample.dev/v1", "kind": "Page",
        "metadata": { "name": "a", "namespace": "n", "finalizers": [OURS] },
    });
    assert_eq!(document, alone);
    let read = |bench: &Running| bench.controller.primaries.get(&page()).unwrap();
    assert!(read(&bench).header().has_finalizer(OURS), "the answer is read at once");
    assert_eq!(bench.seen(parse(&before)), 0, "what was there before is no news");
    assert!(read(&bench).header().has_finalizer(OURS), "and does not hide it");
    assert_eq!(bench.caught_up(), 1, "the event of the write counts");
    assert_eq!(bench.controller.own_writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_applied_under_the_field_manager_that_the_manifest_names() {
    // FI-1, LC-4
    let bench = Bench::new(CLEANER, "fieldManager: pages-of-two").with(&json!({}));
    assert_eq!(bench.run().await, Some(DONE));
    let write = bench.writes().remove(0);
    assert!(
        matches!(&write.verb, Verb::Apply { manager, force: true, .. } if &**manager == "pages-of-two"),
        "{write:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn only_our_finalizer_is_patched_away_wherever_it_is_and_only_the_event_of_that_is_swallowed() {
    // FI-3
    let (a, b) = ("a.dev/f", "b.dev/f");
    for mode in ["", BY_PATCHES] {
        for (there, left) in [(&[OURS, a, b][..], &[a, b][..]), (&[a, OURS, b], &[a, b]), (&[a, b, OURS], &[a, b])] {
            let mut bench = Bench::new(CLEANER, mode).with(&going(there));
            assert_eq!(bench.run().await, Some(REMOVED));
            assert_eq!(bench.log(), ["initialize", "cleanup", "patch Page"]);
            let place = there.iter().position(|one| *one == OURS).unwrap();
            let removal = json!({ "op": "remove", "path": format!("/metadata/finalizers/{place}") });
            let patches = bench.patches();
            assert_eq!(patches.iter().flat_map(changes).collect::<Vec<_>>(), [removal]);
            assert_eq!(bench.server.page()["metadata"]["finalizers"], json!(left));
            assert_eq!(bench.caught_up(), 0, "our own");
            // Without ours, each update passes the filter of primaries: this one was not ours.
            bench.server.change(&json!({ "metadata": { "labels": { "by": "others" } } }));
            assert_eq!(bench.caught_up(), 1);
            assert_eq!(bench.run().await, None, "nothing is left to do for it");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_is_gone_already_needs_no_second_patch() {
    // FI-3, FI-4
    let removed = json!({ "metadata": { "finalizers": ["a.dev/f"] } });
    for other in [Value::Null, removed, json!({ "metadata": { "finalizers": null } })] {
        let bench = Bench::new(CLEANER, "").with(&going(&["a.dev/f", OURS]));
        bench.server.others.lock().push_back(other.clone());
        assert_eq!(bench.run().await, Some(REMOVED), "{other}");
        let log = bench.log();
        assert_eq!(log.iter().filter(|line| *line == "patch Page").count(), 1, "{other}: {log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_whose_place_has_changed_is_removed_at_its_new_one() {
    // FI-3, FI-4
    let bench = Bench::new(CLEANER, "").with(&going(&[OURS]));
    for others in [["a.dev/f", OURS], ["b.dev/f", OURS]] {
        bench.server.others.lock().push_back(json!({ "metadata": { "finalizers": others } }));
    }
    assert_eq!(bench.run().await, Some(REMOVED));
    assert_eq!(bench.log(), ["initialize", "cleanup", "patch Page", "get Page", "patch Page"]);
    assert_eq!(bench.server.page()["metadata"]["finalizers"], json!(["b.dev/f"]));
}

#[tokio::test(start_paused = true)]
async fn a_write_of_a_finalizer_is_tried_ten_times_each_upon_a_fresh_read_after_conflicts_and_no_other_failures() {
    // FI-4
    let (conflict, once) = (Failed::Conflict, Failed::Unhandled);
    let add = (json!({}), &[][..]);
    let remove = (going(&[OURS]), &["initialize", "cleanup"][..]);
    for (page, before) in [add, remove] {
        for (refusal, tries, ends) in [
            (refused(Reason::Conflict, 409), 10, conflict),
            (refused(Reason::Conflict, 422), 10, conflict),
            (refused(Reason::Rejected, 422), 1, once),
            (refused(Reason::Rejected, 400), 1, once),
            (refused(Reason::Forbidden, 403), 1, once),
            (refused(Reason::Unreachable, 500), 1, Failed::Outage),
        ] {
            let bench = Bench::new(CLEANER, BY_PATCHES).with(&page);
            bench.server.refusals.lock().extend(std::iter::repeat_n(refusal.clone(), 20));
            assert_eq!(bench.run().await, Some(Finished::Failed(ends)), "{refusal:?} {page}");
            let expected = [before, &["patch Page"]].concat();
            let again = std::iter::repeat_n(["get Page", "patch Page"], tries - 1).flatten();
            let expected: Vec<_> = expected.into_iter().chain(again).collect();
            assert_eq!(bench.log(), expected, "{refusal:?} {page}");
        }
        // The tenth may succeed.
        let bench = Bench::new(CLEANER, BY_PATCHES).with(&page);
        bench.server.refusals.lock().extend(std::iter::repeat_n(refused(Reason::Conflict, 409), 9));
        assert!(matches!(bench.run().await, Some(Finished::Done { .. })), "{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn whether_a_finalizer_is_still_to_be_added_is_asked_anew_after_each_conflict() {
    // FI-4, FI-2
    let marked = json!({ "metadata": { "finalizers": ["a.dev/f"], "deletionTimestamp": GOING } });
    let by_others = json!({ "metadata": { "finalizers": [OURS] } });
    for other in [marked, by_others, Value::Null] {
        let bench = Bench::new(CLEANER, BY_PATCHES).with(&json!({}));
        bench.server.others.lock().push_back(other.clone());
        assert_eq!(bench.run().await, Some(DONE), "{other}");
        let log = bench.log();
        assert_eq!(log.iter().filter(|line| *line == "patch Page").count(), 1, "{other}: {log:?}");
    }
    // What is there is patched as it is there.
    let bench = Bench::new(CLEANER, BY_PATCHES).with(&json!({}));
    bench.server.others.lock().push_back(json!({ "metadata": { "finalizers": ["a.dev/f"] } }));
    assert_eq!(bench.run().await, Some(DONE));
    assert_eq!(bench.log(), ["patch Page", "get Page", "patch Page"]);
    assert_eq!(bench.server.page()["metadata"]["finalizers"], json!(["a.dev/f", OURS]));
}

// === what `reconcile` answers ===

/// Returns an answer with these finalizers; without them, if it is to have no such field.
fn answered(finalizers: Option<Value>) -> String {
    let mut object = json!({ "apiVersion": "sample.dev/v1", "kind": "Page", "metadata": { "name": "a", "namespace": "n" }, "spec": { "text": "x" }, "status": { "ok": true } });
    if let Some(finalizers) = finalizers {
        object["metadata"]["finalizers"] = finalizers;
    }
    object.to_string()
}

#[tokio::test(start_paused = true)]
async fn an_applied_answer_has_our_finalizer_once_and_a_status_none() {
    // FI-5
    for (exports, answer, applied) in [
        (CLEANER, None, &[OURS][..]),
        (CLEANER, Some(json!([])), &[OURS]),
        (CLEANER, Some(json!([OURS])), &[OURS]),
        (CLEANER, Some(json!(["a.dev/f"])), &["a.dev/f", OURS]),
        (CLEANER, Some(json!([OURS, "a.dev/f"])), &["a.dev/f", OURS]),
        // It has none to lose.
        (PLAIN, None, &[]),
        (PLAIN, Some(json!(["a.dev/f"])), &["a.dev/f"]),
    ] {
        let update = PrimaryUpdate::ObjectAndStatus(answered(answer.clone()));
        let bench = Bench::answering(exports, "", update, None).with(&held(&["a.dev/f", OURS]));
        assert_eq!(bench.run().await, Some(DONE), "{answer:?}");
        let written = bench.writes();
        let finalizers = |at: usize| {
            let body: Value = serde_json::from_str(&written[at].verb.body()).unwrap();
            let list = body["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            let mut names: Vec<_> = list.iter().map(|one| one.as_str().unwrap().to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(finalizers(0), applied, "{answer:?}");
        assert_eq!(written[1].target.subresource.as_deref(), Some("status"));
        assert_eq!(finalizers(1), [""; 0], "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_applied_answer_in_which_the_finalizers_are_null_has_ours_all_the_same() {
    // FI-5
    let update = PrimaryUpdate::Object(answered(Some(Value::Null)));
    let bench = Bench::answering(CLEANER, "", update, None).with(&held(&[OURS]));
    assert_eq!(bench.run().await, Some(DONE));
    assert_eq!(bench.applied()[0]["metadata"]["finalizers"], json!([OURS]));
}

#[tokio::test(start_paused = true)]
async fn what_a_component_applies_of_its_primary_by_itself_is_sent_without_our_finalizer() {
    // FI-5
    let document = json!({ "apiVersion": "sample.dev/v1", "kind": "Page", "metadata": { "name": "a", "namespace": "n" }, "spec": { "text": "x" } });
    let asks = Some(WriteVerb::ForceApply(document.to_string()));
    let bench = Bench::answering(CLEANER, "", PrimaryUpdate::Nothing, asks).with(&held(&[OURS]));
    assert_eq!(bench.run().await, Some(DONE));
    let applied = bench.applied();
    assert_eq!(applied.len(), 1);
    assert_eq!((&applied[0]["metadata"]["finalizers"], &applied[0]["spec"]), (&Value::Null, &document["spec"]));
}

#[tokio::test(start_paused = true)]
async fn an_object_is_applied_as_it_is_answered_and_nothing_of_the_primary_is_filled_in() {
    // UC-3
    let there = json!({
        "metadata": { "labels": { "a": "b" }, "annotations": { "c": "d" }, "finalizers": [OURS] },
        "spec": { "text": "before", "more": [1, 2] }, "status": { "ok": true },
    });
    let answered = json!({
        "apiVersion": "sample.dev/v1", "kind": "Page",
        "metadata": { "name": "a", "namespace": "n", "labels": { "e": "f" }, "managedFields": [{ "manager": "x" }] },
        "spec": { "text": "after", "none": null, "empty": {}, "list": [] },
    });
    for exports in [PLAIN, CLEANER] {
        let update = PrimaryUpdate::Object(answered.to_string());
        let bench = Bench::answering(exports, "", update, None).with(&there);
        assert_eq!(bench.run().await, Some(DONE));
        let applied = bench.applied();
        let mut expected = answered.clone();
        let metadata = expected["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata.insert("uid".to_owned(), json!("u-1"));
        if exports == CLEANER {
            metadata.insert("finalizers".to_owned(), json!([OURS]));
        }
        assert_eq!(applied, [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn without_apply_an_object_is_upon_its_version_and_a_status_upon_none() {
    // UC-4
    let there = json!({ "spec": { "text": "x", "gone": 1 }, "status": { "ok": false, "gone": 1 } });
    let other = json!({ "metadata": { "annotations": { "by": "others" } } });
    for (versioned, conflicts) in [(true, true), (false, false)] {
        let bench = |update: fn(String) -> PrimaryUpdate| {
            let mut tree = json!({
                "apiVersion": "sample.dev/v1", "kind": "Page", "metadata": { "name": "a", "namespace": "n", "uid": "u-1", "generation": 1 },
                "spec": { "text": "y", "gone": null }, "status": { "ok": true, "gone": null },
            });
            if versioned {
                tree["metadata"]["resourceVersion"] = json!("1");
            }
            let bench = Bench::answering(PLAIN, BY_PATCHES, update(tree.to_string()), None).with(&there);
            bench.server.others.lock().push_back(other.clone());
            bench
        };
        let status = bench(PrimaryUpdate::Status);
        assert_eq!(status.run().await, Some(DONE), "{versioned}");
        let page = status.server.page();
        assert_eq!(page["status"], json!({ "ok": true }), "null removes, {versioned}");
        assert_eq!(page["spec"], there["spec"], "it is a status alone");
        assert_eq!(page["metadata"]["annotations"]["by"], "others");
        assert!(status.log().ends_with(&["patch Page/status".to_owned()]));
        let patch = status.patches().remove(0);
        let about_version = |step: &Value| step["path"] == "/metadata/resourceVersion";
        assert!(!patch.as_array().unwrap().iter().any(about_version), "{patch}");
        let object = bench(PrimaryUpdate::Object);
        let ends = if conflicts { Finished::Failed(Failed::Conflict) } else { DONE };
        assert_eq!(object.run().await, Some(ends), "{versioned}");
        let page = object.server.page();
        let spec = if conflicts { there["spec"].clone() } else { json!({ "text": "y" }) };
        assert_eq!((&page["spec"], &page["metadata"]["annotations"]["by"]), (&spec, &json!("others")));
        assert_eq!(page["status"], there["status"], "it is the object alone");
        // Both: nobody is in between, and the status needs no version of what the object has led to.
        let both = bench(PrimaryUpdate::ObjectAndStatus);
        both.server.others.lock().clear();
        assert_eq!(both.run().await, Some(DONE), "{versioned}");
        let page = both.server.page();
        assert_eq!((&page["spec"], &page["status"]), (&json!({ "text": "y" }), &json!({ "ok": true })));
        assert!(both.log().ends_with(&["patch Page".to_owned(), "patch Page/status".to_owned()]));
    }
}

// === a queue that stands still ===

const CHANGED: queue::Event = queue::Event::PrimaryChanged { deleting: false };
const DELETED: queue::Event = queue::Event::PrimaryDeleted { unknown: false };

fn named(name: &str) -> ObjectRef {
    ObjectRef::namespaced("n", name)
}

/// Tells the queue of an event now.
fn hear(queue: &Queue, name: &str, event: queue::Event) -> Receipt {
    queue.event(&named(name), event, Instant::now())
}

/// Takes what is due.
fn taken(queue: &Queue) -> Vec<Ticket> {
    std::iter::from_fn(|| queue.next().now_or_never().flatten()).collect()
}

/// Takes what is due and ends it well, and returns the names.
fn done(queue: &Queue) -> Vec<String> {
    let end = |ticket: Ticket| {
        let name = ticket.key().name.to_string();
        ticket.finish(DONE, Instant::now());
        name
    };
    taken(queue).into_iter().map(end).collect()
}

#[tokio::test(start_paused = true)]
async fn what_happens_before_a_queue_starts_is_run_for_once_and_what_is_deleted_then_is_dropped_at_once() {
    // EP-3
    for mode in [Mode::Normal, Mode::AllEvents] {
        let queue = Queue::new(Policy { max_interval: None, mode, ..Policy::default() });
        for _ in 0..3 {
            assert_eq!(hear(&queue, "often", CHANGED), Receipt::Marked);
        }
        hear(&queue, "going", queue::Event::PrimaryChanged { deleting: true });
        assert_eq!(hear(&queue, "often", queue::Event::Related), Receipt::Marked);
        hear(&queue, "gone", CHANGED);
        hear(&queue, "again", CHANGED);
        assert_eq!(hear(&queue, "gone", DELETED), Receipt::Removed, "{mode:?}");
        assert!(!queue.knows(&named("gone")), "{mode:?}");
        assert_eq!(hear(&queue, "gone", queue::Event::Related), Receipt::Unknown, "{mode:?}");
        hear(&queue, "again", DELETED);
        hear(&queue, "again", CHANGED);
        advance(Duration::from_hours(24)).await;
        assert_eq!(done(&queue), [""; 0], "nothing is handed out, however long it takes");
        queue.start(Instant::now());
        let mut ran = done(&queue);
        ran.sort();
        assert_eq!(ran, ["again", "going", "often"], "{mode:?}");
        assert_eq!(done(&queue), [""; 0], "each once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_stops_replays_what_it_was_told_and_drops_what_was_deleted_meanwhile() {
    // EP-3, LC-22
    let queue = Queue::new(Policy { max_interval: None, ..Policy::default() });
    queue.start(Instant::now());
    for name in ["idle", "told", "fails", "released", "gone", "runs", "ends"] {
        hear(&queue, name, CHANGED);
    }
    let mut running = Vec::new();
    for ticket in taken(&queue) {
        match &*ticket.key().name {
            "fails" => drop(ticket.finish(Finished::Failed(Failed::Unhandled), Instant::now())),
            "released" => drop(ticket.finish(REMOVED, Instant::now())),
            "runs" | "ends" => running.push(ticket),
            _ => drop(ticket.finish(DONE, Instant::now())),
        }
    }
    queue.stop();
    hear(&queue, "told", queue::Event::Related);
    hear(&queue, "fresh", CHANGED);
    assert_eq!(hear(&queue, "gone", DELETED), Receipt::Removed);
    assert_eq!(hear(&queue, "ends", DELETED), Receipt::Removed, "in the midst of a run");
    hear(&queue, "released", queue::Event::PrimaryChanged { deleting: true });
    for ticket in running {
        ticket.finish(Finished::Failed(Failed::Unhandled), Instant::now());
    }
    advance(Duration::from_mins(1)).await;
    assert_eq!(done(&queue), [""; 0]);
    assert!(!queue.knows(&named("gone")) && !queue.knows(&named("ends")));
    let state = queue.states(Instant::now(), None, usize::MAX);
    let mark = |name: &str| state.iter().find(|state| *state.key.name == *name).map(|state| state.mark);
    assert_eq!((mark("told"), mark("idle")), (Some(Mark::Present), Some(Mark::None)));
    queue.start(Instant::now());
    let mut ran = done(&queue);
    ran.sort();
    // `fails` is marked until its retry, and `runs` is free again; nothing is left to do for what was let go.
    assert_eq!(ran, ["fails", "fresh", "runs", "told"]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_before_the_start_wakes_nobody_in_any_mode_of_a_source() {
    // EP-3
    for fields in ["", "triggerOnAllEvents: true"] {
        let bench = Bench::new(PLAIN, fields);
        let mode = if bench.controller.spec.all_events() { Mode::AllEvents } else { Mode::Normal };
        let queue = Queue::new(Policy { mode, ..Policy::default() });
        let last = parse(
            &json!({ "apiVersion": "sample.dev/v1", "kind": "Page", "metadata": { "name": "a", "namespace": "n", "uid": "u-1", "resourceVersion": "1" } }),
        );
        let trigger = |what| vec![Trigger { primary: page(), what, urgency: queue::Urgency::Fresh }];
        let tell = |what| enqueue(&queue, &bench.controller.verdicts, trigger(what), || None);
        tell(TriggerKind::Changed { deleting: false });
        tell(TriggerKind::Deleted { last, unknown: false });
        assert!(queue.is_empty() && !bench.controller.verdicts.departed.has(&page()), "{fields}");
        queue.start(Instant::now());
        assert_eq!(done(&queue), [""; 0], "{fields}");
    }
}

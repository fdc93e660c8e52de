//! One execution from top to bottom, with a scripted guest and a small API server in memory.

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
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cache::{Event as Watch, Writer};
use capstan_core::cluster::{Cluster, Error, Reason, Verb, Write};
use capstan_core::filter::Filter;
use capstan_core::guest::*;
use capstan_core::manifest::{self, Mapper as Mapping};
use capstan_core::mapper::Mapper;
use capstan_core::object::{Gvk, Managers, Object, ObjectRef, Scope};
use capstan_core::queue::{self, Finished, Policy, Queue};
use capstan_core::reconciler::memory::Memory;
use capstan_core::reconciler::visit::Flow;
use capstan_core::reconciler::{Controller, execute};
use capstan_core::source::{Role, Source, Spec};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

// === the API server ===

/// Keeps objects as trees, and what was asked of it.
#[derive(Default)]
struct Server {
    objects: Mutex<BTreeMap<(Gvk, ObjectRef), Value>>,
    version: Mutex<u64>,
    writes: Mutex<Vec<String>>,
    /// Answers to the next writes that are failures.
    failures: Mutex<Vec<Error>>,
}

impl Server {
    fn put(&self, gvk: &Gvk, mut tree: Value) -> Object {
        let mut version = self.version.lock();
        *version += 1;
        tree["apiVersion"] = gvk.api_version().into();
        tree["kind"] = (*gvk.kind).into();
        tree["metadata"]["resourceVersion"] = version.to_string().into();
        tree["metadata"]
            .as_object_mut()
            .unwrap()
            .entry("uid")
            .or_insert_with(|| json!("u-1"));
        let object = Object::parse(&tree.to_string(), gvk, &Managers::default()).unwrap();
        self.objects
            .lock()
            .insert((gvk.clone(), object.key().clone()), tree);
        object
    }

    fn carry_out(&self, write: Write) -> Result<Option<Object>, Error> {
        let Write { target, verb } = write;
        let what = target
            .subresource
            .as_deref()
            .map(|s| format!("/{s}"))
            .unwrap_or_default();
        let name = format!("{} {}{what}", target.gvk.kind, target.key.name);
        if let Some(failure) = self.failures.lock().pop() {
            self.writes
                .lock()
                .push(format!("{} {name} failed", verb.rbac()));
            return Err(failure);
        }
        self.writes.lock().push(format!("{} {name}", verb.rbac()));
        let old = self
            .objects
            .lock()
            .get(&(target.gvk.clone(), target.key.clone()))
            .cloned();
        let tree = match verb {
            Verb::Create { body, .. } | Verb::Replace { body, .. } => {
                serde_json::from_str(&body).unwrap()
            }
            Verb::Apply { body, .. } | Verb::MergePatch { body, .. } => {
                let mut tree = old.unwrap_or_else(|| json!({}));
                json_patch::merge(&mut tree, &serde_json::from_str(&body).unwrap());
                tree
            }
            Verb::JsonPatch { body, .. } => {
                let mut tree = old.unwrap();
                json_patch::patch(
                    &mut tree,
                    &serde_json::from_str::<json_patch::Patch>(&body).unwrap(),
                )
                .map_err(|e| conflict(&e.to_string()))?;
                tree
            }
            Verb::Delete(_) => {
                self.objects.lock().remove(&(target.gvk, target.key));
                return Ok(None);
            }
        };
        Ok(Some(self.put(&target.gvk, tree)))
    }
}

fn conflict(message: &str) -> Error {
    Error {
        reason: Reason::Conflict,
        code: 409,
        message: message.to_owned(),
    }
}

impl Cluster for Server {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        async move { self.carry_out(write) }.boxed()
    }

    fn get<'a>(
        &'a self,
        gvk: &'a Gvk,
        key: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<Option<Object>, Error>> {
        let tree = self
            .objects
            .lock()
            .get(&(gvk.clone(), key.clone()))
            .cloned();
        async move {
            Ok(tree
                .map(|tree| Object::parse(&tree.to_string(), gvk, &Managers::default()).unwrap()))
        }
        .boxed()
    }

    fn scope(&self, _: &Gvk) -> Option<Scope> {
        Some(Scope::Namespaced)
    }
}

// === the guest ===

/// What the guest answers; each field is one export.
#[derive(Clone)]
struct Script {
    exports: Exports,
    reconcile: Result<UpdateControl, Failure>,
    cleanup: Result<DeleteControl, Failure>,
    handle_error: ErrorControl,
    desired: Result<Value, String>,
    /// What was called.
    calls: Arc<Mutex<Vec<String>>>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            exports: Exports {
                reconciler: true,
                dependent: true,
                ..Exports::default()
            },
            reconcile: Ok(UpdateControl {
                update: PrimaryUpdate::Nothing,
                reschedule: None,
            }),
            cleanup: Ok(DeleteControl::RemoveFinalizer),
            handle_error: ErrorControl::Unhandled,
            desired: Ok(json!({ "metadata": { "name": "a" }, "data": { "x": "y" } })),
            calls: Arc::default(),
        }
    }
}

impl Guest for Script {
    fn open(&self, _: Arc<dyn Run>) -> Box<dyn Session> {
        Box::new(self.clone())
    }

    fn open_nested(&self, run: Arc<dyn Run>) -> Box<dyn Session> {
        self.open(run)
    }

    fn exports(&self) -> Exports {
        self.exports
    }
}

impl Script {
    fn call<T: Send + 'static>(&self, what: String, answer: T) -> BoxFuture<'static, T> {
        self.calls.lock().push(what);
        async move { answer }.boxed()
    }
}

impl Session for Script {
    fn reconcile<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<UpdateControl, Failure>> {
        self.call("reconcile".to_owned(), self.reconcile.clone())
    }

    fn cleanup<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<DeleteControl, Failure>> {
        self.call("cleanup".to_owned(), self.cleanup.clone())
    }

    fn handle_error<'a>(
        &'a self,
        _: &'a str,
        failed: &'a FailureInfo,
    ) -> BoxFuture<'a, Result<ErrorControl, Failure>> {
        let FailureInfo {
            origin,
            message,
            dependents,
            retry,
        } = failed;
        let what = format!(
            "handle-error {origin:?} {message:?} {dependents:?} attempt {} last {}",
            retry.attempt, retry.last
        );
        self.call(what, Ok(self.handle_error.clone()))
    }

    fn desired<'a>(&'a self, name: &'a str, _: &'a str) -> BoxFuture<'a, Result<String, Failure>> {
        let answer = self.desired.clone().map(|tree| tree.to_string());
        self.call(
            format!("desired {name}"),
            answer.map_err(|message| Failure {
                cause: Cause::Returned,
                message,
            }),
        )
    }

    fn matches<'a>(
        &'a self,
        question: MatchQuestion<'a>,
    ) -> BoxFuture<'a, Result<MatchResult, Failure>> {
        self.call(format!("match {}", question.name), Ok(MatchResult::Matches))
    }

    fn is_met<'a>(
        &'a self,
        name: &'a str,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<ConditionResult, Failure>> {
        self.call(
            format!("is-met {name}"),
            Ok(ConditionResult {
                met: true,
                detail: None,
            }),
        )
    }
}

// === putting them together ===

/// A controller over pages, with one config map as its dependent.
struct Bench {
    controller: Arc<Controller>,
    server: Arc<Server>,
    calls: Arc<Mutex<Vec<String>>>,
    queue: Queue,
    pages: Writer,
    maps: Writer,
}

impl Bench {
    fn new(script: Script, fields: &str) -> Self {
        let text = format!(
            "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    pages:\n      plugin: p\n      primary: {{ apiVersion: sample.dev/v1, kind: Page }}\n      finalizer: sample.dev/finalizer\n{}",
            fields
                .lines()
                .map(|line| format!("      {line}\n"))
                .collect::<String>()
        );
        let operator = manifest::parse(&text, Path::new("a.yaml"))
            .unwrap()
            .remove(0);
        let spec = operator.controllers["pages"].clone();
        let (mut pages, mut maps) = (Writer::default(), Writer::default());
        for writer in [&mut pages, &mut maps] {
            writer.start_list();
            writer.finish_list(capstan_core::object::Version(0));
        }
        let source = |gvk: Gvk, role, writer: &Writer| {
            let source = Source::new(Spec {
                name: "s".into(),
                gvk,
                role,
                filter: Filter::default(),
                indexes: BTreeMap::new(),
            });
            source.attach(None, writer.cache());
            Arc::new(source)
        };
        let mapper = Mapper::new(
            spec.primary.clone(),
            Scope::Namespaced,
            Mapping::OwnerReference,
        );
        let maps_source = source(
            Gvk::parse("v1", "ConfigMap").unwrap(),
            Role::Secondary(mapper),
            &maps,
        );
        let server = Arc::new(Server::default());
        let queue = Queue::new(Policy {
            retry: spec.retry.clone(),
            max_interval: None,
            ..Policy::default()
        });
        queue.start(Instant::now());
        let calls = Arc::clone(&script.calls);
        let controller = Controller {
            limits: operator.plugins["p"].limits.clone(),
            primaries: source(spec.primary.clone(), Role::Primary, &pages),
            secondaries: spec
                .dependents()
                .map(|(name, _)| (Arc::clone(name), Arc::clone(&maps_source)))
                .collect(),
            workflow: Flow::new(&spec.workflow).unwrap(),
            standalone: BTreeMap::new(),
            finalizer: "sample.dev/finalizer".into(),
            guest: Arc::new(script),
            cluster: Arc::clone(&server) as Arc<dyn Cluster>,
            queue: queue.clone(),
            memory: Arc::new(Memory::default()),
            edition: 1,
            settings: json!({}),
            events: Box::new(|_, _| {}),
            spec,
        };
        Self {
            controller: Arc::new(controller),
            server,
            calls,
            queue,
            pages,
            maps,
        }
    }

    /// Puts a page on the server and into the cache.
    fn page(&mut self, metadata: Value) {
        let mut tree =
            json!({ "metadata": { "name": "a", "namespace": "n", "generation": 1 }, "spec": {} });
        json_patch::merge(&mut tree, &json!({ "metadata": metadata }));
        let page = self.server.put(&self.controller.spec.primary, tree);
        self.pages.apply(Watch::Applied(page));
    }

    /// Runs the page once, and returns how that ended, what was called, and what was written.
    async fn run(&mut self) -> (Finished, Vec<String>, Vec<String>) {
        let key = ObjectRef::namespaced("n", "a");
        self.queue.event(
            &key,
            queue::Event::PrimaryChanged { deleting: false },
            Instant::now(),
        );
        let ticket = self.queue.next().await.unwrap();
        let ended = execute(Arc::clone(&self.controller), &ticket).await;
        ticket.finish(ended.finished, Instant::now());
        (
            ended.finished,
            std::mem::take(&mut self.calls.lock()),
            std::mem::take(&mut self.server.writes.lock()),
        )
    }
}

const WORKFLOW: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }";
const EXPLICIT: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, garbageCollected: false } } }";
const DONE: Finished = Finished::DONE;

fn status(text: &str) -> Result<UpdateControl, Failure> {
    Ok(UpdateControl {
        update: PrimaryUpdate::Status(text.to_owned()),
        reschedule: None,
    })
}

fn returned<T>(message: &str) -> Result<T, Failure> {
    Err(Failure {
        cause: Cause::Returned,
        message: message.to_owned(),
    })
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_is_gone_needs_nothing() {
    // EP-14
    let mut bench = Bench::new(Script::default(), "");
    assert_eq!(bench.run().await, (Finished::Gone, vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn the_workflow_runs_before_the_reconciler_and_a_second_run_writes_nothing() {
    let mut bench = Bench::new(
        Script {
            reconcile: status(r#"{"status":{"ok":true}}"#),
            ..Script::default()
        },
        WORKFLOW,
    );
    bench.page(json!({}));
    let calls = strings(&["desired cm", "reconcile"]);
    assert_eq!(
        bench.run().await,
        (
            DONE,
            calls.clone(),
            strings(&["create ConfigMap a", "patch Page a/status"])
        )
    );
    assert_eq!(bench.run().await, (DONE, calls, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_comes_first_if_something_needs_cleanup() {
    // DI-4
    let mut bench = Bench::new(Script::default(), EXPLICIT);
    bench.page(json!({}));
    assert_eq!(
        bench.run().await,
        (DONE, vec![], strings(&["patch Page a"]))
    );
    // Its answer is in the overlay: the next run sees it, whether or not the event has come.
    assert_eq!(bench.run().await.1, strings(&["desired cm", "reconcile"]));
}

#[tokio::test(start_paused = true)]
async fn cleanup_deletes_what_is_not_garbage_collected_and_lets_the_primary_go() {
    // DC-5
    let exports = Exports {
        reconciler: true,
        cleaner: true,
        dependent: true,
        ..Exports::default()
    };
    let mut bench = Bench::new(
        Script {
            exports,
            ..Script::default()
        },
        EXPLICIT,
    );
    bench.page(json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    let (finished, calls, writes) = bench.run().await;
    assert_eq!(
        finished,
        Finished::Done {
            finalizer_removed: true,
            again: None
        }
    );
    // Nothing that could be the dependent exists, so its desired state is not asked for.
    assert_eq!(
        (calls, writes),
        (strings(&["cleanup"]), strings(&["patch Page a"]))
    );
}

#[tokio::test(start_paused = true)]
async fn a_guest_can_keep_the_finalizer_and_come_back() {
    // DC-2
    let exports = Exports {
        reconciler: true,
        cleaner: true,
        ..Exports::default()
    };
    let cleanup = Ok(DeleteControl::KeepFinalizer(Some(Duration::from_secs(3))));
    let mut bench = Bench::new(
        Script {
            exports,
            cleanup,
            ..Script::default()
        },
        "",
    );
    bench.page(json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    let again = Finished::Done {
        finalizer_removed: false,
        again: Some(Duration::from_secs(3)),
    };
    assert_eq!(bench.run().await, (again, strings(&["cleanup"]), vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_on_removing_the_finalizer_is_resolved_by_reading_again() {
    // FI-4
    let exports = Exports {
        reconciler: true,
        cleaner: true,
        ..Exports::default()
    };
    let mut bench = Bench::new(
        Script {
            exports,
            ..Script::default()
        },
        "",
    );
    bench.page(json!({ "finalizers": ["o.dev/f", "sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    bench.server.failures.lock().push(conflict("too old"));
    let (finished, _, writes) = bench.run().await;
    assert_eq!(
        finished,
        Finished::Done {
            finalizer_removed: true,
            again: None
        }
    );
    assert_eq!(writes, strings(&["patch Page a failed", "patch Page a"]));
    let key = (
        bench.controller.spec.primary.clone(),
        ObjectRef::namespaced("n", "a"),
    );
    assert_eq!(
        bench.server.objects.lock()[&key]["metadata"]["finalizers"],
        json!(["o.dev/f"])
    );
}

#[tokio::test(start_paused = true)]
async fn ten_conflicts_are_a_failure() {
    // FI-4
    let exports = Exports {
        reconciler: true,
        cleaner: true,
        ..Exports::default()
    };
    let mut bench = Bench::new(
        Script {
            exports,
            ..Script::default()
        },
        "",
    );
    bench.page(json!({ "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    bench
        .server
        .failures
        .lock()
        .extend((0..10).map(|_| conflict("too old")));
    let (finished, _, writes) = bench.run().await;
    assert_eq!(
        (finished, writes.len()),
        (Finished::Failed(queue::Failure::Conflict), 10)
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_workflow_keeps_the_reconciler_from_running_and_is_told_to_the_error_handler() {
    // WF-9, EC-1, EC-2
    let exports = Exports {
        reconciler: true,
        dependent: true,
        error_handler: true,
        ..Exports::default()
    };
    let mut bench = Bench::new(
        Script {
            exports,
            desired: Err("no disk".to_owned()),
            ..Script::default()
        },
        WORKFLOW,
    );
    bench.page(json!({}));
    let told = "handle-error Workflow \"the workflow failed: cm: no disk\" [(\"cm\", \"no disk\")] attempt 0 last false";
    let failed = Finished::Failed(queue::Failure::Unhandled);
    assert_eq!(
        bench.run().await,
        (failed, strings(&["desired cm", told]), vec![])
    );
}

#[tokio::test(start_paused = true)]
async fn failures_can_be_left_to_the_reconciler() {
    // WF-9
    let lenient =
        "workflow: { errors: reconciler, dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }";
    let mut bench = Bench::new(
        Script {
            desired: Err("no disk".to_owned()),
            ..Script::default()
        },
        lenient,
    );
    bench.page(json!({}));
    assert_eq!(
        bench.run().await,
        (DONE, strings(&["desired cm", "reconcile"]), vec![])
    );
}

#[tokio::test(start_paused = true)]
async fn an_error_handler_can_write_a_status_and_end_the_retries() {
    // EC-3, EC-5
    let exports = Exports {
        reconciler: true,
        error_handler: true,
        ..Exports::default()
    };
    let handle_error = ErrorControl::Handled {
        status: Some(r#"{"status":{"error":"x"}}"#.to_owned()),
        next: NextStep::Stop,
    };
    let mut bench = Bench::new(
        Script {
            exports,
            reconcile: returned("broken"),
            handle_error,
            ..Script::default()
        },
        "",
    );
    bench.page(json!({}));
    let (finished, _, writes) = bench.run().await;
    assert_eq!(
        (finished, writes),
        (
            Finished::NoRetry { again: None },
            strings(&["patch Page a/status"])
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_error_status_does_not_replace_the_first() {
    // EC-4
    let exports = Exports {
        reconciler: true,
        error_handler: true,
        ..Exports::default()
    };
    let handle_error = ErrorControl::Handled {
        status: Some(r#"{"status":{}}"#.to_owned()),
        next: NextStep::Retry,
    };
    let mut bench = Bench::new(
        Script {
            exports,
            reconcile: returned("broken"),
            handle_error,
            ..Script::default()
        },
        "",
    );
    bench.page(json!({}));
    bench.server.failures.lock().push(conflict("too old"));
    assert_eq!(
        bench.run().await.0,
        Finished::Failed(queue::Failure::Handled)
    );
}

#[tokio::test(start_paused = true)]
async fn a_conflict_on_the_status_is_a_failure_that_is_logged_quietly() {
    // EP-36
    let mut bench = Bench::new(
        Script {
            reconcile: status(r#"{"status":{"ok":true}}"#),
            ..Script::default()
        },
        "",
    );
    bench.page(json!({}));
    bench.server.failures.lock().push(conflict("too old"));
    assert_eq!(
        bench.run().await.0,
        Finished::Failed(queue::Failure::Conflict)
    );
}

#[tokio::test(start_paused = true)]
async fn a_foreign_object_of_the_same_name_is_not_taken_for_the_dependent() {
    // KD-4: only what belongs to the primary is looked at; creating then meets what is there.
    let mut bench = Bench::new(Script::default(), WORKFLOW);
    bench.page(json!({}));
    let gvk = Gvk::parse("v1", "ConfigMap").unwrap();
    let foreign = bench.server.put(
        &gvk,
        json!({ "metadata": { "name": "a", "namespace": "n", "uid": "f" }, "data": {} }),
    );
    bench.maps.apply(Watch::Applied(foreign));
    assert_eq!(bench.run().await.2, strings(&["create ConfigMap a"]));
}

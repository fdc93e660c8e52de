use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan::metrics::Metrics;
use capstan::plugin::engine::Engine;
use capstan::plugin::loader::CodeCache;
use capstan::plugin::{Outside, Plugin};
use capstan_core::guest::{
    CallReason, Cause, Changed, ConditionResult, DeleteControl, ErrorControl, FailedRun, Failure, FailureClass,
    FailureInfo, FailureOrigin, Guest as _, MatchResult, Named, NextRetry, NextStep, NodeFailure, PolledAll, PolledOne,
    PrimaryUpdate, RetryInfo,
};
use capstan_core::manifest::{Instances, Limits};
use capstan_core::object::ObjectRef;
use capstan_core::room::Room;
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::subscriber::DefaultGuard;

use crate::calls::engine;
use crate::guests::sample;
use crate::runs::{Script, operator, script};

/// Loads the probe, which does what the spec of its primary says.
async fn probe(limits: Limits) -> Plugin {
    probe_as(limits, Instances::Fresh).await
}

/// Loads the probe with instances that are treated like that.
pub async fn probe_as(limits: Limits, instances: Instances) -> Plugin {
    probe_in(&engine(&limits), limits, instances).await
}

pub async fn probe_in(engine: &Engine, limits: Limits, instances: Instances) -> Plugin {
    // Compiled once, by the first test.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let cache = CodeCache::at(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"));
    let mut operator = operator(&sample("probe"), limits);
    operator.plugins.get_mut("guest").unwrap().instances = instances;
    let _turn = TURN.lock().await;
    Plugin::load(engine, &cache, &operator, "guest").await.unwrap()
}

fn primary(spec: &Value) -> String {
    json!({
        "apiVersion": "test.capstan.dev/v1", "kind": "Probe",
        "metadata": { "name": "page", "namespace": "default", "generation": 1 }, "spec": spec,
    })
    .to_string()
}

/// Reconciles with these steps, and returns what they saw.
pub async fn seen(plugin: &Plugin, run: &Arc<Script>, steps: Value) -> Value {
    let primary = primary(&json!({ "reconcile": { "do": steps } }));
    let control = plugin.open(Arc::clone(run) as _).reconcile(&primary).await.unwrap();
    let PrimaryUpdate::Status(document) = control.update else { panic!("{control:?}") };
    let mut status = serde_json::from_str::<Value>(&document).unwrap()["status"].take();
    status.as_object_mut().unwrap().remove("observedGeneration");
    status
}

async fn failure(plugin: &Plugin, steps: Value) -> Failure {
    let primary = primary(&json!({ "reconcile": { "do": steps } }));
    plugin.open(script()).reconcile(&primary).await.unwrap_err()
}

fn refused(reason: &str, message: &str) -> Value {
    json!({ "refused": { "refused": reason, "code": null, "message": message } })
}

/// Writes an object of this kind.
fn apply(kind: &str) -> Value {
    let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "a", "namespace": "default" } });
    json!({ "write": { "verb": "apply", "object": object }, "mayFail": true })
}

#[tokio::test]
async fn writes_reach_the_run_which_knows_what_is_permitted() {
    let (plugin, run) = (probe(Limits::default()).await, script());
    let target = json!({ "apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "a" });
    assert_eq!(seen(&plugin, &run, apply("ConfigMap")).await, json!({ "write": "written" }));
    let remove = json!({ "write": { "verb": "remove", "target": target, "propagation": "orphan", "graceSeconds": 3 } });
    assert_eq!(seen(&plugin, &run, remove).await, json!({ "write": null }));
    let add = json!({ "write": { "verb": "addFinalizer", "finalizer": "other.dev/f" } });
    assert_eq!(seen(&plugin, &run, add).await, json!({ "write": "written" }));
    assert_eq!(
        *run.asked.lock(),
        [
            r#"Apply("{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\",\"namespace\":\"default\"}}") with WriteOptions { mode: Usual, compare_by: None, subresource: None, source: None, actual: None }"#,
            "remove v1 ConfigMap default/a with Deletion { propagation: Some(Orphan), uid: None, version: None, grace_seconds: Some(3) }",
            "add finalizer Some(\"other.dev/f\")",
        ]
    );
}

#[tokio::test]
async fn requests_of_a_run_are_counted_and_so_is_who_asks_for_more() {
    let limits = Limits { requests: 2, ..Limits::default() };
    let metrics = Arc::<Metrics>::default();
    let engine = engine(&limits).with_outside(Outside::new(BTreeSet::new(), Arc::clone(&metrics)));
    let (plugin, run) = (probe_in(&engine, limits, Instances::Fresh).await, script());
    let steps = json!([apply("ConfigMap"), apply("ConfigMap"), apply("ConfigMap")]);
    let seen = seen(&plugin, &run, steps).await;
    assert_eq!(
        seen["refused"],
        refused("exhausted", "this run has made its 2 requests already (limits.requests)")["refused"]
    );
    assert_eq!(run.asked.lock().len(), 2);
    let mut text = String::new();
    encode(&mut text, &metrics.registry()).unwrap();
    assert!(text.contains(r#"plugin="guest",to="capabilities.kubernetes",result="limited"} 1"#), "{text}");
}

/// Reads objects of this kind.
fn read(kind: &str, select: impl Into<Value>, limit: Option<u32>) -> Value {
    let place = json!({ "kind": { "apiVersion": "v1", "kind": kind } });
    json!({ "read": { "in": place, "select": select.into(), "limit": limit }, "mayFail": true })
}

fn named() -> Value {
    json!({ "named": { "namespace": "default", "name": "a" } })
}

#[tokio::test]
async fn what_is_asked_of_the_cache_reaches_the_run_bounded_by_the_limit() {
    let (plugin, run) = (probe(Limits { page: 10, ..Limits::default() }).await, script());
    for (step, expected) in [
        (read("Service", json!("everywhere"), Some(3)), json!({ "read": [] })),
        (read("Service", named(), None), json!({ "read": null })),
        (read("Secret", json!("related"), Some(1000)), json!({ "read": [] })),
        (json!({ "read": { "in": "primaries", "select": "everywhere" } }), json!({ "read": [] })),
        (read("Secret", json!("one"), None), refused("ambiguous", "there are two")),
        (
            json!({ "read": { "in": { "kind": { "apiVersion": "a/b/c", "kind": "X" } }, "select": "one" }, "mayFail": true }),
            refused("invalid", "apiVersion \"a/b/c\" is not of the form \"v1\" or \"group/v1\""),
        ),
    ] {
        assert_eq!(seen(&plugin, &run, step).await, expected);
    }
    let kind = |kind| format!(r#"Kind(Gvk {{ group: "", version: "v1", kind: "{kind}" }})"#);
    assert_eq!(
        *run.asked.lock(),
        [
            format!("find all in {}, Everywhere, at most Some(3)", kind("Service")),
            format!("find default/a in {}", kind("Service")),
            format!("find all in {}, Related, at most Some(10)", kind("Secret")),
            "find all in Primaries, Everywhere, at most Some(10)".to_owned(),
            format!("find one in {}", kind("Secret")),
        ]
    );
}

// ES-4
#[tokio::test]
async fn what_a_component_has_written_outside_of_the_cluster_reaches_the_run() {
    // XC-4
    let (plugin, run) = (probe(Limits::default()).await, script());
    let steps = json!([
        { "remember": { "name": "domains", "actual": { "id": "a" } } },
        { "remember": { "name": "domains", "actual": { "id": "a", "b": 1 }, "replaced": { "id": "a" } } },
        { "forget": { "name": "domains", "id": "a" } },
    ]);
    assert_eq!(seen(&plugin, &run, steps).await, json!({ "remember": null, "forget": null }));
    let asked = [
        r#"remember domains: {"id":"a"} None"#,
        r#"remember domains: {"b":1,"id":"a"} Some("{\"id\":\"a\"}")"#,
        "forget domains: a",
    ];
    assert_eq!(*run.asked.lock(), asked);
}

#[tokio::test]
async fn what_a_component_registers_reaches_the_run_with_the_time_that_is_left() {
    let (plugin, run) = (probe(Limits::default()).await, script());
    let declaration = json!({ "informer": { "apiVersion": "v1", "kind": "Secret" } });
    let steps = json!([{ "register": { "name": "keys", "declaration": declaration } }, { "deregister": "keys" }]);
    assert_eq!(seen(&plugin, &run, steps).await, json!({ "register": true, "deregister": null }));
    let asked =
        [r#"register keys: {"informer":{"apiVersion":"v1","kind":"Secret"}}, for 4 s and more"#, "deregister keys"];
    assert_eq!(*run.asked.lock(), asked);
}

// CX-2
#[tokio::test]
async fn workflows_run_in_reconcile_and_cleanup_only() {
    let (plugin, run) = (probe(Limits::default()).await, script());
    let step = json!({ "workflow": { "run": "reconcile", "name": "preview" } });
    let result = json!({ "nodes": [], "complete": false });
    assert_eq!(seen(&plugin, &run, step.clone()).await, json!({ "workflow": result }));
    let session = plugin.open(Arc::clone(&run) as _);
    let spec = json!({ "cleanup": { "do": step }, "dependents": { "cm": { "$do": step } }, "onError": { "do": step } });
    assert_eq!(session.cleanup(&primary(&spec)).await, Ok(DeleteControl::RemoveFinalizer));
    let refusal = |call| {
        let message = format!("a workflow runs in `reconcile` and `cleanup`, not in `{call}`");
        Failure::new(Cause::Returned, message)
    };
    assert_eq!(session.desired("cm", &primary(&spec)).await, Err(refusal("desired")));
    assert_eq!(session.handle_error(&primary(&spec), Cow::Owned(failure_info())).await, Err(refusal("handle-error")));
    assert_eq!(*run.asked.lock(), [r#"workflow Reconcile(Some("preview"))"#; 2]);
}

fn failure_info() -> FailureInfo {
    let no = NodeFailure { message: "no".to_owned(), refused: Some(CallReason::Conflict) };
    FailureInfo {
        origin: FailureOrigin::Workflow,
        message: "one failed".to_owned(),
        refused: None,
        dependents: vec![("cm".to_owned(), no)],
        retry: RetryInfo { attempt: 1, last: false },
    }
}

#[tokio::test]
async fn all_exports_are_called_with_their_arguments_and_answer() {
    let plugin = probe(Limits::default()).await;
    let session = plugin.open(script());
    let cm = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "cm" } });
    let primary = primary(&json!({
        "reconcile": { "reschedule": 500 },
        "cleanup": { "keep": true, "reschedule": 150 },
        "retry": { "after": 30, "stopAt": 2 },
        "onError": { "failure": true, "next": { "reschedule": 20 } },
        "dependents": { "cm": cm },
        "bulks": { "maps": [cm, { "$text": "{" }] },
        "conditions": { "ready": { "met": false, "detail": { "why": "not yet" } } },
    }));
    let control = session.reconcile(&primary).await.unwrap();
    assert_eq!((control.update, control.reschedule), (PrimaryUpdate::Nothing, Some(Duration::from_millis(500))));
    let keep = DeleteControl::KeepFinalizer(Some(Duration::from_millis(150)));
    assert_eq!(session.cleanup(&primary).await, Ok(keep));
    assert_eq!(serde_json::from_str::<Value>(&session.desired("cm", &primary).await.unwrap()).unwrap(), cm);
    let set = session.desired_set("maps", &primary).await.unwrap();
    assert_eq!(set.objects.iter().map(|text| serde_json::from_str(text).ok()).collect::<Vec<_>>(), [Some(cm), None]);
    let (one, two) = (r#"{"data":{"a":"1"}}"#, r#"{"data":{"a":"2"}}"#);
    assert_eq!(session.matches("same", two, two, &primary).await, Ok(MatchResult::Matches));
    let failed = |attempt| {
        Cow::Owned(FailedRun {
            class: FailureClass::OutOfMemory,
            message: "no".to_owned(),
            retry: RetryInfo { attempt, last: false },
        })
    };
    let decided = [session.decide_retry(&primary, failed(0)).await, session.decide_retry(&primary, failed(2)).await];
    assert_eq!(decided, [Ok(NextRetry::After(Duration::from_millis(30))), Ok(NextRetry::Stop)]);
    let Ok(MatchResult::Differs(what)) = session.matches("same", one, two, &primary).await else {
        panic!("it matches");
    };
    assert!(what.contains("data"), "{what}");
    let detail = Some(r#"{"why":"not yet"}"#.to_owned());
    assert_eq!(session.is_met("ready", "cm", &primary).await, Ok(ConditionResult { met: false, detail }));
    let handled = session.handle_error(&primary, Cow::Owned(failure_info())).await.unwrap();
    let ErrorControl::Handled { status: Some(status), next } = handled else { panic!("{handled:?}") };
    assert_eq!(next, NextStep::Reschedule(Duration::from_millis(20)));
    for fact in ["workflow", "one failed", r#""cm""#, r#""no""#, "conflict"] {
        assert!(status.contains(fact), "{status}");
    }
}

#[tokio::test]
async fn polls_answer_with_things_and_belong_to_no_run() {
    // PP-1, PP-2
    // What is first logged where nobody listens is not heard by others either.
    let _lines = Lines::capture();
    let plugin = probe(Limits::default()).await;
    let beside = || Arc::new(Script { beside: true, ..Script::default() });
    let run = beside();
    assert_eq!(plugin.open(Arc::clone(&run) as _).poll("themes").await, Ok(PolledAll::default()));
    assert_eq!(*run.asked.lock(), ["find all in Primaries, Everywhere, at most Some(500)"]);
    let things = json!([{ "id": 1 }, { "id": 2 }]);
    let polls = |things: &Value| json!({ "domains": { "do": { "see": ["run"] }, "things": things, "again": 200 } });
    let asked = |polls| {
        let (plugin, primary) = (plugin.clone(), primary(&json!({ "polls": polls })));
        async move { plugin.open(beside()).poll_one("domains", &primary).await }
    };
    let found = asked(polls(&things)).await.unwrap();
    let again = Some(Duration::from_millis(200));
    assert_eq!(found, PolledOne { things: vec![r#"{"id":1}"#.to_owned(), r#"{"id":2}"#.to_owned()], again });
    let failed = asked(json!({ "domains": { "do": { "fail": "no way" } } })).await;
    assert_eq!(failed, Err(Failure::new(Cause::Returned, "no way")));
    // More than the daemon takes of one answer.
    let much =
        asked(json!({ "domains": { "texts": vec![format!("{:?}", "x".repeat(1 << 20)); 5] } })).await.unwrap_err();
    assert_eq!(much.cause, Cause::Other, "{much}");
    let seen = plugin.open(beside()).reconcile(&primary(&json!({ "reconcile": { "do": { "see": ["run"] } } }))).await;
    assert!(format!("{seen:?}").contains(r#"\"run\":null"#), "{seen:?}");
}

#[tokio::test]
async fn filters_and_mappers_are_asked_about_objects_and_belong_to_no_run() {
    // IM-3, IM-4, IS-1
    let _lines = Lines::capture();
    let plugin = probe(Limits::default()).await;
    let session = plugin.open(Arc::new(Script { beside: true, ..Script::default() }));
    let accepts =
        |accepts: bool| primary(&json!({ "filters": { "f": { "do": { "see": ["run"] }, "accepts": accepts } } }));
    let (yes, no) = (accepts(true), accepts(false));
    for (changed, accepted) in [
        (Changed::Added(&yes), true),
        (Changed::Added(&no), false),
        (Changed::Updated { before: &yes, after: &no }, false),
        (Changed::Updated { before: &no, after: &yes }, true),
        (Changed::Deleted { last: &no, unknown: true }, false),
    ] {
        assert_eq!(session.accepts("f", changed).await, Ok(accepted), "{changed:?}");
    }
    let named = |keys: &[&str]| {
        let keys = keys.iter().map(|key| match key.split_once('/') {
            Some((namespace, name)) => ObjectRef::namespaced(namespace, name),
            None => ObjectRef::cluster(key),
        });
        Ok(Named { keys: keys.collect() })
    };
    let spec = json!({ "mappers": { "m": { "keys": ["a", "n/b"] } }, "secondaryMappers": { "s": { "keys": ["c"] } } });
    let object = primary(&spec);
    assert_eq!(session.to_primaries("m", &object).await, named(&["a", "n/b"]));
    assert_eq!(session.to_primaries("x", &object).await, named(&[]));
    assert_eq!(session.to_secondaries("s", &object).await, named(&["c"]));
    // More than the daemon takes of one answer.
    let many: Vec<_> = (0..=65536).map(|n| n.to_string()).collect();
    let much = session.to_primaries("m", &primary(&json!({ "mappers": { "m": { "keys": many } } }))).await.unwrap_err();
    assert_eq!(much.cause, Cause::Other, "{much}");
    assert!(much.message.contains("65537"), "{much}");
    let fails = primary(&json!({ "mappers": { "m": { "do": { "fail": "no way" } } } }));
    assert_eq!(session.to_primaries("m", &fails).await, Err(Failure::new(Cause::Returned, "no way")));
}

#[tokio::test]
async fn a_component_learns_what_is_known_about_its_run() {
    let plugin = probe(Limits::default()).await;
    let sights = ["retry", "nextImminent", "timeLeftMs", "settings", "config", "now", "nowMs", "uuid", "random"];
    let seen = seen(&plugin, &script(), json!({ "see": sights })).await;
    assert_eq!(seen["retry"], json!({ "attempt": 2, "last": true }));
    assert_eq!(seen["nextImminent"], true);
    assert_eq!(seen["settings"], json!({ "daemon": { "namespace": "capstan" } }));
    assert_eq!(seen["config"], json!({ "pageTitle": "hello" }));
    assert!((4000..=5000).contains(&seen["timeLeftMs"].as_u64().unwrap()), "{seen}");
    let now: k8s_openapi::jiff::Timestamp = seen["now"].as_str().unwrap().parse().unwrap();
    assert_eq!(seen["now"].as_str().unwrap().len(), "2026-01-31T12:00:00Z".len());
    assert!(
        (seen["nowMs"].as_f64().unwrap() / 1000.0
            - now.duration_since(k8s_openapi::jiff::Timestamp::UNIX_EPOCH).as_secs_f64())
        .abs()
            < 5.0,
        "{seen}"
    );
    assert_eq!(seen["uuid"].as_str().unwrap().len(), 36);
    assert_eq!(seen["random"].as_array().unwrap().len(), 8);
}

#[tokio::test]
async fn a_call_is_told_that_its_run_is_given_up_sooner() {
    let plugin = probe(Limits::default()).await;
    for (until, least, most) in [(2, 1000, 2000), (60, 4000, 5000)] {
        let until = Some(Instant::now() + Duration::from_secs(until));
        let run = Arc::new(Script { until, ..Script::default() });
        let left = seen(&plugin, &run, json!({ "see": ["timeLeftMs"] })).await["timeLeftMs"].as_u64().unwrap();
        assert!((least..=most).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn there_are_no_memos_while_a_primary_is_validated() {
    // VA-1
    let plugin = probe(Limits::default()).await;
    let run = Arc::new(Script { beside: true, ..Script::default() });
    assert_eq!(
        seen(&plugin, &script(), json!({ "memo": { "lifetime": "plugin", "count": "runs" } })).await,
        json!({ "memo": 1 })
    );
    let put =
        primary(&json!({ "validate": { "do": { "memo": { "lifetime": "plugin", "put": "runs", "value": "7" } } } }));
    let failed = plugin.open(Arc::clone(&run) as _).validate(&put, None).await.unwrap_err();
    assert!(failed.message.contains("there are no memos in `validate`"), "{failed:?}");
    // None is found either, so that it is the first again.
    let count = primary(&json!({ "validate": { "do": { "memo": { "lifetime": "plugin", "count": "runs" } } } }));
    let failed = plugin.open(run as _).validate(&count, None).await.unwrap_err();
    assert!(failed.message.contains("there are no memos in `validate`"), "{failed:?}");
    assert_eq!(
        seen(&plugin, &script(), json!({ "memo": { "lifetime": "plugin", "count": "runs" } })).await,
        json!({ "memo": 2 })
    );
}

#[tokio::test]
async fn a_plugins_memos_outlive_its_runs_and_are_bounded() {
    let (plugin, run) = (probe(Limits { memo_plugin: 20, ..Limits::default() }).await, script());
    let count = |lifetime: &str| json!({ "memo": { "lifetime": lifetime, "count": "runs" } });
    for n in 1..3 {
        assert_eq!(seen(&plugin, &run, count("plugin")).await, json!({ "memo": n }));
    }
    // The others are the run's affair.
    assert_eq!(seen(&plugin, &run, count("primary")).await, json!({ "memo": 1 }));
    assert_eq!(run.memos.lock()["runs"], "1");
    let put = json!({ "memo": { "lifetime": "plugin", "put": "long", "value": "x".repeat(20) }, "mayFail": true });
    assert_eq!(
        seen(&plugin, &run, put).await,
        refused("exhausted", "memo \"long\" would make 31 bytes, 20 are allowed (limits.memo.plugin)")
    );
}

#[tokio::test]
async fn a_plugins_memos_leave_memory_to_its_calls() {
    let limits = Limits { memo_plugin: 32 << 20, ..Limits::default() };
    let engine = engine(&limits).with_room(Room::new(48 << 20));
    let (plugin, run) = (probe_in(&engine, limits, Instances::Fresh).await, script());
    let put = |key: &str| {
        let value = "x".repeat(5 << 19);
        json!({ "memo": { "lifetime": "plugin", "put": key, "value": value }, "mayFail": true })
    };
    for key in ["a", "b"] {
        assert_eq!(seen(&plugin, &run, put(key)).await["refused"], Value::Null, "{key}");
    }
    let no_room = refused("exhausted", "memo \"c\": there is no memory for it (--plugin-memory)");
    assert_eq!(seen(&plugin, &run, put("c")).await, no_room, "they have an eighth");
}

#[tokio::test]
async fn what_is_expected_is_kept_by_the_run() {
    let (plugin, run) = (probe(Limits::default()).await, script());
    let expect = |name: &str, is: bool| json!({ "expect": { "name": name, "timeoutMs": 1500, "is": is } });
    for (name, is, outcome, pending) in [
        ("ready", true, "Fulfilled", None),
        ("ready", false, "Pending", Some("ready")),
        ("ready", false, "Pending", Some("ready")),
        ("gone", false, "Pending", Some("gone")),
        ("gone", true, "Fulfilled", None),
    ] {
        let expected = json!({ "expect": { "outcome": outcome, "pending": pending } });
        assert_eq!(seen(&plugin, &run, expect(name, is)).await, expected, "{name} {is}");
    }
    assert_eq!(*run.asked.lock(), ["expect ready within 1.5s", "expect gone within 1.5s"]);
    seen(&plugin, &run, expect("ready", false)).await;
    run.expected.lock().as_mut().unwrap().timed_out = true;
    let late = json!({ "expect": { "outcome": "TimedOut", "pending": "ready" } });
    assert_eq!(seen(&plugin, &run, expect("ready", false)).await, late);
}

#[tokio::test]
async fn what_ends_a_real_component_is_told_in_one_line() {
    let plugin = probe(Limits::default()).await;
    let trap = failure(&plugin, json!("trap")).await;
    assert_eq!(trap.cause, Cause::Trap);
    let expected = "the component trapped: panicked at tests/guests/probe/src/steps.rs:";
    assert!(trap.message.starts_with(expected) && trap.message.contains(": traps on purpose"), "{trap}");
    let memory = failure(&plugin, json!("allocate")).await;
    let over = "the component wanted more than 64Mi of memory (limits.memory)";
    assert_eq!(memory, Failure::new(Cause::OutOfMemory, over));
    let recursion = failure(&plugin, json!("recurse")).await;
    assert_eq!(recursion.cause, Cause::Trap);
    assert!(recursion.message.contains("as by a recursion without end"), "{recursion}");
    let plugin = probe(Limits { timeout: Duration::from_millis(500), ..Limits::default() }).await;
    let endless = failure(&plugin, json!("loop")).await;
    assert_eq!(endless, Failure::new(Cause::Timeout, "the component took longer than 500ms (limits.timeout)"));
    let spinning = failure(&plugin, json!({ "busyMs": 60_000 })).await;
    assert_eq!(spinning, endless);
    let hanging = Arc::new(Script { hang: true, ..Script::default() });
    let waiting = primary(&json!({ "reconcile": { "do": apply("ConfigMap") } }));
    assert_eq!(plugin.open(hanging).reconcile(&waiting).await, Err(endless));
}

#[tokio::test]
async fn a_conditions_detail_is_bounded() {
    let plugin = probe(Limits::default()).await;
    let detail = |size| json!("x".repeat(size));
    let primary = primary(&json!({ "conditions": {
        "short": { "met": true, "detail": detail((16 << 10) - 2) },
        "long": { "met": true, "detail": detail((16 << 10) - 1) },
    } }));
    let session = plugin.open(script());
    let kept = session.is_met("short", "cm", &primary).await.unwrap();
    assert_eq!(kept.detail.unwrap().len(), 16 << 10);
    let failure = session.is_met("long", "cm", &primary).await.unwrap_err();
    let why = "`is-met` answered with a `detail` of 16385 bytes, and may with 16384";
    assert!(failure.message.ends_with(why), "{}", failure.message);
}

#[tokio::test]
async fn prints_reach_the_log_up_to_the_limit() {
    let (lines, _guard) = Lines::capture();
    let plugin = probe(Limits {
        // Each line counts for 256 bytes besides its own.
        log: 10 * (80 + 256),
        ..Limits::default()
    })
    .await;
    let text = primary(&json!({ "reconcile": { "do": { "print": 1_000_000 } } }));
    plugin.open(script()).reconcile(&text).await.unwrap();
    let text = lines.text();
    let (prints, others): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.contains("xxx"));
    assert_eq!(prints.len(), 10);
    let start = format!(
        " INFO guest: {} operator=test plugin=guest controller=web key=default/page call=\"reconcile\"",
        "x".repeat(79)
    );
    assert!(prints[0].starts_with(&start), "{}", prints[0]);
    let dropped: Vec<_> = others.iter().filter(|line| line.contains("dropped")).collect();
    assert_eq!(dropped.len(), 1);
    assert!(dropped[0].contains("dropped=999200"), "{}", dropped[0]);
}

/// What is logged.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Takes what this thread logs, until the guard is dropped.
    pub fn capture() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).without_time();
        let guard = tracing::subscriber::set_default(subscriber.finish());
        (lines, guard)
    }

    /// Returns all of it.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

use std::sync::Arc;
use std::time::Duration;

use capstan::plugin::engine::{Engine, Pool};
use capstan::plugin::weight::Weight;
use capstan::plugin::{Component as _, Plugin};
use capstan_core::guest::{Cause, Failure, Guest as _, UpdateControl, WorkflowResult};
use capstan_core::manifest::{Instances, Limits, Warm};
use futures::FutureExt as _;
use parking_lot::Mutex;

use crate::asks::{Lines, probe_as, seen};
use crate::calls::{IF_TOLD, WORKFLOW, failed, failures, load_as, load_into, nth, reconciler, short};
use crate::guests::{Guest, RECONCILER};
use crate::runs::{Script, script};

/// What is usual for the limits of a test.
fn usual() -> Warm {
    Warm::within(Limits::default().memory)
}

async fn warm(wasm: &[u8], bounds: Warm) -> Plugin {
    load_as(wasm, Limits::default(), Instances::Warm(bounds)).await
}

/// Has a run of its own call once.
async fn run(plugin: &Plugin, primary: &str) -> Result<UpdateControl, Failure> {
    plugin.open(script()).reconcile(primary).await
}

/// Returns how many instances there are, and how many of them wait.
fn instances(plugin: &Plugin) -> (usize, usize) {
    let usage = plugin.usage();
    (usage.instances, usage.instances_idle)
}

#[tokio::test]
async fn a_warm_instance_is_used_again() {
    let plugin = warm(&reconciler("", ""), usual()).await;
    for n in 1..=3 {
        assert_eq!(run(&plugin, "").await, nth(n));
        assert_eq!(instances(&plugin), (1, 1));
    }
}

#[tokio::test]
async fn a_fresh_instance_is_used_once() {
    let plugin = load_as(&reconciler("", ""), Limits::default(), Instances::Fresh).await;
    for _ in 1..=3 {
        assert_eq!(run(&plugin, "").await, nth(1));
        assert_eq!(instances(&plugin), (0, 0));
    }
}

#[tokio::test]
async fn an_execution_has_its_instance_to_itself() {
    let plugin = warm(&reconciler("", ""), usual()).await;
    let (one, other) = (plugin.open(script()), plugin.open(script()));
    assert_eq!(one.reconcile("").await, nth(1));
    assert_eq!(other.reconcile("").await, nth(1));
    assert_eq!(one.reconcile("").await, nth(2));
    assert_eq!(instances(&plugin), (2, 0));
    drop(one);
    assert_eq!(instances(&plugin), (2, 1));
    drop(other);
    // The one that was used last is the first to be used again.
    assert_eq!(run(&plugin, "").await, nth(2));
    assert_eq!(instances(&plugin), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn executions_at_once_never_meet_in_an_instance() {
    // Traps if it is entered while it waits for the workflow.
    let functions = format!("{WORKFLOW}\n(global $inside (mut i32) (i32.const 0))");
    let body = "(if (global.get $inside) (then unreachable)) (global.set $inside (i32.const 1)) (call $do) (global.set $inside (i32.const 0))";
    let plugin = warm(&reconciler(&functions, body), usual()).await;
    let executions = (0..200).map(|_| {
        let plugin = plugin.clone();
        let on_workflow = |_| tokio::task::yield_now().map(|()| Ok(WorkflowResult::default())).boxed();
        let run = Script { on_workflow: Some(Box::new(on_workflow)), ..Script::default() };
        tokio::spawn(async move { plugin.open(Arc::new(run)).reconcile("").await.is_ok() })
    });
    let well = futures::future::join_all(executions).await;
    assert!(well.into_iter().all(Result::unwrap));
    let usage = plugin.usage();
    assert!(usage.instances_started <= 1 + 8, "{usage:?}");
    assert_eq!((usage.instances, usage.calls), (usage.instances_idle, 200));
}

// Contract, rule 8.
#[tokio::test]
async fn what_a_call_asks_for_has_a_warm_instance_of_its_own() {
    let plugin = warm(&reconciler(WORKFLOW, IF_TOLD), usual()).await;
    let nested: Arc<Mutex<Vec<_>>> = Arc::default();
    let on_workflow = {
        let (plugin, nested) = (plugin.clone(), Arc::clone(&nested));
        Box::new(move |_| {
            let (session, nested) = (plugin.open_nested(script()), Arc::clone(&nested));
            async move {
                let answer = session.reconcile("").await;
                nested.lock().push(answer);
                Ok(WorkflowResult::default())
            }
            .boxed()
        })
    };
    let asking = Arc::new(Script { on_workflow: Some(on_workflow), ..Script::default() });
    for n in 1..=2 {
        let session = plugin.open(Arc::clone(&asking) as _);
        assert_eq!(session.reconcile("{}").await, nth(n));
    }
    assert_eq!(*nested.lock(), [nth(1), nth(2)]);
    assert_eq!(instances(&plugin), (2, 2));
}

#[tokio::test]
async fn an_instance_that_failed_is_never_used_again() {
    for (functions, expected) in failures() {
        let plugin = load_as(&reconciler(functions, IF_TOLD), short(), Instances::Warm(usual())).await;
        assert_eq!(run(&plugin, "").await, nth(1));
        assert_eq!(run(&plugin, "").await, nth(2));
        assert_eq!(run(&plugin, "{}").await, expected, "{functions}");
        assert_eq!(instances(&plugin), (0, 0), "{functions}");
        assert_eq!(run(&plugin, "").await, nth(1), "{functions}");
    }
}

#[tokio::test]
async fn an_instance_whose_call_was_given_up_is_never_used_again() {
    let plugin = warm(&reconciler(WORKFLOW, IF_TOLD), usual()).await;
    let waiting = Script { on_workflow: Some(Box::new(|_| Box::pin(futures::future::pending()))), ..Script::default() };
    assert_eq!(run(&plugin, "").await, nth(1));
    let session = plugin.open(Arc::new(waiting));
    assert_eq!(futures::poll!(Box::pin(session.reconcile("{}"))), std::task::Poll::Pending);
    drop(session);
    assert_eq!(instances(&plugin), (0, 0));
    assert_eq!(run(&plugin, "").await, nth(1));
}

#[tokio::test]
async fn an_error_that_the_component_returns_does_not_cost_the_instance() {
    let error = "(func $do (i32.store8 (i32.const 1024) (i32.const 1)) (i64.store (i32.const 1028) (i64.const 0)))";
    let clear = "(i32.store8 (i32.const 1024) (i32.const 0))";
    let wasm = reconciler(error, &format!("{clear} {IF_TOLD}"));
    let plugin = warm(&wasm, usual()).await;
    assert_eq!(run(&plugin, "").await, nth(1));
    assert_eq!(run(&plugin, "{}").await, failed(Cause::Returned, ""));
    assert_eq!(run(&plugin, "").await, nth(3));
}

#[tokio::test]
async fn an_instance_is_replaced_after_so_many_runs() {
    let plugin = warm(&reconciler("", ""), Warm { runs: 2, ..usual() }).await;
    for n in [1, 2, 1, 2, 1] {
        // Two calls are one run.
        let session = plugin.open(script());
        assert_eq!(session.reconcile("").await, nth(2 * n - 1));
        assert_eq!(session.reconcile("").await, nth(2 * n));
    }
    assert_eq!(plugin.usage().instances_started, 1 + 3);
}

#[tokio::test]
async fn an_instance_that_has_grown_beyond_its_bound_is_replaced() {
    const PAGE: u64 = 64 << 10;
    let grower = reconciler("(func $do (drop (memory.grow (i32.const 10))))", IF_TOLD);
    // What describes it counts, too.
    let all = 11 * PAGE + Weight::of(&grower).unwrap().instance;
    for (memory, then) in [(all, 3), (all - 1, 1)] {
        let bounds = Warm { memory, ..usual() };
        let plugin = warm(&grower, bounds).await;
        assert_eq!(run(&plugin, "").await, nth(1));
        assert_eq!(run(&plugin, "{}").await, nth(2));
        assert_eq!(run(&plugin, "").await, nth(then), "{memory}");
        assert_eq!(plugin.usage().peak_memory_bytes, all);
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_nobody_uses_is_dropped_and_then_nothing_wakes_up() {
    let plugin = warm(&reconciler("", ""), usual()).await;
    for n in 1..=3 {
        assert_eq!(run(&plugin, "").await, nth(n));
        tokio::time::sleep(Duration::from_secs(299)).await;
    }
    assert_eq!(instances(&plugin), (1, 1));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(instances(&plugin), (0, 0));
    let tasks = tokio::runtime::Handle::current().metrics();
    assert_eq!(tasks.num_alive_tasks(), 0);
    assert_eq!(run(&plugin, "").await, nth(1));
}

/// Loads a plugin into an engine that has room for one instance, or says that there is one already.
async fn load_alone(engine: &Engine) -> Option<Plugin> {
    let wasm = reconciler("", "");
    let loaded = load_into(engine, &wasm, Limits::default(), Instances::Warm(usual())).await;
    match loaded {
        Ok(plugin) => Some(plugin),
        Err(error) => {
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains("limit of 1 for component instances"), "{cause}");
            None
        }
    }
}

#[tokio::test]
async fn warm_instances_go_with_the_version_and_its_last_run() {
    let engine = Engine::new(Pool { instances: 1 }).unwrap();
    let plugin = load_alone(&engine).await.unwrap();
    assert_eq!(run(&plugin, "").await, nth(1));
    assert!(load_alone(&engine).await.is_none(), "one waits");
    let last = plugin.open(script());
    drop(plugin);
    assert_eq!(last.reconcile("").await, nth(2));
    assert!(load_alone(&engine).await.is_none(), "one is in use");
    drop(last);
    assert!(load_alone(&engine).await.is_some());
}

#[tokio::test]
async fn a_version_that_is_retired_keeps_no_instance_and_works_as_before() {
    let plugin = warm(&reconciler("", ""), usual()).await;
    let last = plugin.open(script());
    assert_eq!(last.reconcile("").await, nth(1));
    assert_eq!(run(&plugin, "").await, nth(1));
    assert_eq!(instances(&plugin), (2, 1));
    plugin.retire();
    assert_eq!(instances(&plugin), (1, 0));
    assert_eq!(last.reconcile("").await, nth(2));
    drop(last);
    assert_eq!(instances(&plugin), (0, 0));
    assert_eq!(run(&plugin, "").await, nth(1));
}

#[tokio::test]
async fn an_instance_that_waits_holds_nothing_of_the_run_before() {
    let plugin = warm(&reconciler("", ""), usual()).await;
    let before = script();
    let session = plugin.open(Arc::clone(&before) as _);
    assert_eq!(session.reconcile("").await, nth(1));
    drop(session);
    assert_eq!(instances(&plugin), (1, 1));
    assert_eq!(Arc::strong_count(&before), 1);
}

/// Opens standard output once, as C does, and prints what it is told without an end of line.
fn printer() -> Vec<u8> {
    let text = r#"(import "wasi:cli/stdout@0.2.0" "get-stdout" (func $open (result i32)))
        (import "wasi:io/streams@0.2.0" "[method]output-stream.blocking-write-and-flush" (func $write (param i32 i32 i32 i32)))
        (global $stdout (mut i32) (i32.const 0))
        (func (export "capstan:operator/reconciler@0.1.0#reconcile") (param i32 i32) (result i32)
            (if (i32.eqz (global.get $stdout)) (then (global.set $stdout (call $open))))
            (call $write (global.get $stdout) (local.get 0) (local.get 1) (i32.const 2048))
            i32.const 1024)"#;
    let world = format!("import wasi:cli/stdout@0.2.0; import wasi:io/streams@0.2.0; {RECONCILER}");
    Guest { world: &world, text, ..Guest::default() }.build()
}

#[tokio::test]
async fn what_a_run_prints_is_logged_as_its_own_to_the_last_half_line() {
    let (lines, _guard) = Lines::capture();
    let plugin = warm(&printer(), usual()).await;
    for page in ["first", "second"] {
        let run = Script { page: Some(page), ..Script::default() };
        let session = plugin.open(Arc::new(run));
        session.reconcile(page).await.unwrap();
    }
    assert_eq!(instances(&plugin), (1, 1));
    let printed = |page| {
        format!(
            r#" INFO guest: {page} operator=test plugin=guest controller=web key=default/{page} call="reconcile" fields="""#
        )
    };
    let text = lines.text();
    let guest: Vec<_> = text.lines().filter(|line| line.contains("guest:")).collect();
    assert_eq!(guest, [printed("first"), printed("second")]);
}

#[tokio::test]
async fn memos_are_kept_as_long_as_ever() {
    let plugin = probe_as(Limits::default(), Instances::Warm(usual())).await;
    let count = |lifetime: &str| serde_json::json!({ "memo": { "lifetime": lifetime, "count": "runs" } });
    for n in 1..=3 {
        assert_eq!(seen(&plugin, &script(), count("plugin")).await, serde_json::json!({ "memo": n }));
        // Another run has no memos yet.
        assert_eq!(seen(&plugin, &script(), count("run")).await, serde_json::json!({ "memo": 1 }));
    }
    assert_eq!(instances(&plugin), (1, 1));
}

use std::sync::Arc;
use std::time::Duration;

use capstan::plugin::engine::{Engine, Pool};
use capstan::plugin::loader::{CodeCache, Error};
use capstan::plugin::{Component as _, Plugin};
use capstan::workers::Workers;
use capstan_core::cpu::Job;
use capstan_core::guest::{Cause, Failure, Guest as _, PrimaryUpdate, UpdateControl, WorkflowResult};
use capstan_core::manifest::{self, Instances, Limits};
use capstan_core::room::Room;
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::guests::{Guest, RECONCILER};
use crate::runs::{Script, operator, script, write};

/// A reconciler with these functions, and `reconcile` that runs `body` and answers how often this instance was called,
/// in `reschedule`.
pub fn reconciler(functions: &str, body: &str) -> Vec<u8> {
    let text = format!(
        r#"{functions}
        (global $calls (mut i32) (i32.const 0))
        (func $reconcile (export "capstan:operator/reconciler@0.1.0#reconcile") (param i32 i32) (result i32)
            (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
            (i32.store8 (i32.const 1040) (i32.const 1))
            (i32.store (i32.const 1044) (global.get $calls))
            {body}
            i32.const 1024)"#
    );
    let imports = if functions.contains("(import") { "import capstan:operator/workflow@0.1.0;" } else { "" };
    let dependent = if functions.contains("desired") { "export capstan:operator/dependent@0.1.0;" } else { "" };
    Guest { world: &format!("{imports} {dependent} {RECONCILER}"), text: &text, ..Guest::default() }.build()
}

/// Runs `body` in the first call of an instance that is told to (its primary is not empty).
pub const IF_TOLD: &str = "(if (local.get 1) (then (call $do)))";

async fn load(wasm: &[u8], limits: Limits) -> Plugin {
    load_as(wasm, limits, Instances::Fresh).await
}

/// Loads a component whose instances are treated like that.
pub async fn load_as(wasm: &[u8], limits: Limits, instances: Instances) -> Plugin {
    let engine = engine(&limits);
    load_into(&engine, wasm, limits, instances).await.unwrap()
}

/// The same into an engine that is there already.
pub async fn load_into(engine: &Engine, wasm: &[u8], limits: Limits, instances: Instances) -> Result<Plugin, Error> {
    load_declared(engine, wasm, limits, |guest| guest.instances = instances).await
}

/// Loads a component of which the manifest says this, too.
pub async fn load_declared(
    engine: &Engine,
    wasm: &[u8],
    limits: Limits,
    declare: impl FnOnce(&mut manifest::Plugin),
) -> Result<Plugin, Error> {
    let dir = tempfile::tempdir().unwrap();
    let mut operator = operator(&write(&dir, "guest", wasm), limits);
    declare(operator.plugins.get_mut("guest").unwrap());
    Plugin::load(engine, &CodeCache::none(), &operator, "guest").await
}

/// Returns an engine that can start processes.
pub fn engine(limits: &Limits) -> Engine {
    let command = [env!("CARGO_BIN_EXE_capstan").into(), "run-component".into()];
    Engine::new(Pool::of([limits])).unwrap().with_processes(command)
}

pub fn short() -> Limits {
    Limits { timeout: Duration::from_millis(250), ..Limits::default() }
}

/// What an instance answers at its `n`th call.
#[expect(clippy::unnecessary_wraps, reason = "what calls answer is compared with it")]
pub fn nth(n: u64) -> Result<UpdateControl, Failure> {
    Ok(UpdateControl { update: PrimaryUpdate::Nothing, reschedule: Some(Duration::from_millis(n)) })
}

pub fn failed<T>(cause: Cause, message: &str) -> Result<T, Failure> {
    Err(Failure::new(cause, message))
}

#[tokio::test]
async fn calls_of_one_execution_share_an_instance_and_executions_do_not() {
    let plugin = load(&reconciler("", ""), Limits::default()).await;
    let one = plugin.open(script());
    assert_eq!([one.reconcile("").await, one.reconcile("").await], [nth(1), nth(2)]);
    assert_eq!(plugin.open(script()).reconcile("").await, nth(1));
}

#[tokio::test]
async fn calls_beside_one_another_take_turns() {
    let plugin = load(&reconciler("", ""), Limits::default()).await;
    let session = plugin.open(script());
    let answers = futures::join!(session.reconcile(""), session.reconcile(""), session.reconcile(""));
    assert_eq!([answers.0, answers.1, answers.2], [nth(1), nth(2), nth(3)]);
}

#[tokio::test]
async fn what_the_component_returns_as_an_error_is_a_failure_and_keeps_the_instance() {
    let error = r#"(func $do (i32.store8 (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1028) (i32.const 2048)) (i32.store (i32.const 1032) (i32.const 9)))
        (data (i32.const 2048) "no <html>")"#;
    let clear = "(i32.store8 (i32.const 1024) (i32.const 0)) (i64.store (i32.const 1028) (i64.const 0))";
    let plugin = load(&reconciler(error, &format!("{clear} {IF_TOLD}")), Limits::default()).await;
    let session = plugin.open(script());
    assert_eq!(session.reconcile("{}").await, failed(Cause::Returned, "no <html>"));
    assert_eq!(session.reconcile("").await, nth(2));
}

/// What a component does when it is told to, and the failure that follows.
pub fn failures() -> Vec<(&'static str, Result<UpdateControl, Failure>)> {
    vec![
        (
            "(func $probe::do unreachable) (func $do (call $probe::do))",
            failed(Cause::Trap, "the component trapped: unreachable executed (in `probe::do`)"),
        ),
        (
            "(func $do (call $do))",
            failed(
                Cause::Trap,
                "the component trapped: its stack is exhausted, as by a recursion without end (in `do`)",
            ),
        ),
        (
            "(func $do (drop (i32.load (i32.const -4))))",
            failed(
                Cause::Trap,
                "the component trapped: memory access out of bounds, as by a recursion without end (in `do`)",
            ),
        ),
        (
            "(func $do (drop (i32.div_u (i32.const 1) (i32.const 0))))",
            failed(Cause::Trap, "the component trapped: integer divide by zero (in `do`)"),
        ),
        (
            "(func $do (drop (memory.grow (i32.const 1024))))",
            failed(Cause::OutOfMemory, "the component wanted more than 64Mi of memory (limits.memory)"),
        ),
        ("(func $do (loop (br 0)))", failed(Cause::Timeout, "the component took longer than 250ms (limits.timeout)")),
        // The answer is a text outside of memory.
        (
            "(func $do (i32.store8 (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1028) (i32.const -1)) (i32.store (i32.const 1032) (i32.const 9)))",
            failed(
                Cause::Other,
                "the call could not be made, or its answer not be read: string pointer/length out of bounds of memory",
            ),
        ),
    ]
}

#[tokio::test]
async fn a_failed_call_costs_the_instance_and_says_why() {
    for (functions, expected) in failures() {
        let plugin = load(&reconciler(functions, IF_TOLD), short()).await;
        let session = plugin.open(script());
        assert_eq!(session.reconcile("").await, nth(1));
        assert_eq!(session.reconcile("{}").await, expected, "{functions}");
        assert_eq!(session.reconcile("").await, nth(1), "{functions}");
    }
}

#[tokio::test]
async fn memory_within_the_limit_is_given() {
    let limits = Limits { memory: 128 << 20, ..Limits::default() };
    let plugin = load(
        &reconciler(
            "(func $do (if (i32.eq (memory.grow (i32.const 1024)) (i32.const -1)) (then unreachable)))",
            IF_TOLD,
        ),
        limits,
    )
    .await;
    assert_eq!(plugin.open(script()).reconcile("{}").await, nth(1));
}

#[tokio::test]
async fn all_instances_have_memory_together_and_one_that_finds_none_says_who_has_it() {
    let limits = Limits { memory: 128 << 20, ..short() };
    let engine = engine(&limits);
    let engine = engine.with_room(Room::new(100 << 20));
    let grows = "(func $do (if (i32.eq (memory.grow (i32.const 1024)) (i32.const -1)) (then unreachable)))";
    let wasm = reconciler(grows, IF_TOLD);
    let plugin = load_into(&engine, &wasm, limits, Instances::Fresh);
    let plugin = plugin.await.unwrap();
    let first = plugin.open(script());
    assert_eq!(first.reconcile("{}").await, nth(1));
    let failure = plugin.open(script()).reconcile("{}").await.unwrap_err();
    assert_eq!(failure.cause, Cause::OutOfMemory);
    let said = "the component could not have more memory: the 104857600 bytes that the daemon has for plugins (--plugin-memory) are used up: 67108864 more were waited for in vain, ";
    assert!(failure.message.starts_with(said), "{}", failure.message);
    assert!(failure.message.ends_with("/guest"), "{}", failure.message);
    drop(first);
    assert_eq!(plugin.open(script()).reconcile("{}").await, nth(1));
}

#[tokio::test]
async fn an_instance_has_its_stack_as_long_as_it_lives() {
    let limits = Limits { concurrency: 32, ..short() };
    let engine = engine(&limits).with_room(Room::new(8 << 20));
    let plugin = load_into(&engine, &reconciler("", ""), limits, Instances::Fresh).await.unwrap();
    let mut live = Vec::new();
    // Alone, it may have three quarters of the memory: a stack of 1 MiB and one page for each.
    for _ in 0..5 {
        let session = plugin.open(script());
        assert_eq!(session.reconcile("").await, nth(1));
        live.push(session);
    }
    let failure = plugin.open(script()).reconcile("").await.unwrap_err();
    assert_eq!(failure.cause, Cause::OutOfMemory, "{}", failure.message);
    drop(live.pop());
    assert_eq!(plugin.open(script()).reconcile("").await, nth(1));
}

/// Asserts that a call that would never end is over in time.
async fn ends_in_time(plugin: &Plugin, run: Arc<Script>) {
    let begun = Instant::now();
    let answer = plugin.open(run).reconcile("{}").await;
    assert_eq!(answer, failed(Cause::Timeout, "the component took longer than 250ms (limits.timeout)"));
    let took = begun.elapsed();
    assert!(took >= short().timeout && took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn calls_that_compute_for_ever_let_others_run_and_end_in_time() {
    let plugin = load(&reconciler("(func $do (loop (br 0)))", IF_TOLD), short()).await;
    let (plugin, workers) = (Arc::new(plugin), Workers::start().unwrap());
    let execute = |name: &str, execution: futures::future::BoxFuture<'static, ()>| {
        let account = workers.account(name, None);
        let job = Job { controller: name.into(), key: None };
        let run = async move { account.run(job, execution).await };
        workers.runtime().spawn(run)
    };
    let ticks = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&ticks);
    let beside = async move {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            *counted.lock() += 1;
        }
    };
    let beside = execute("beside", Box::pin(beside));
    // More than the threads that compute.
    let spin = |_| {
        let plugin = Arc::clone(&plugin);
        execute("spinning", Box::pin(async move { ends_in_time(&plugin, script()).await }))
    };
    for spinning in (0..32).map(spin).collect::<Vec<_>>() {
        spinning.await.unwrap();
    }
    beside.abort();
    assert!(*ticks.lock() >= 5, "the other plugin had {} turns", ticks.lock());
}

/// Asks for the managed workflow.
pub const WORKFLOW: &str = r#"(import "capstan:operator/workflow@0.1.0" "reconcile" (func $workflow (param i32 i32 i32 i32)))
    (func $do (call $workflow (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2048)))
    (func (export "capstan:operator/dependent@0.1.0#desired") (param i32 i32 i32 i32) (result i32) i32.const 3072)"#;

#[tokio::test]
async fn a_call_that_waits_for_ever_ends_in_time() {
    let plugin = load(&reconciler(WORKFLOW, IF_TOLD), short()).await;
    let run = Script { on_workflow: Some(Box::new(|_| Box::pin(futures::future::pending()))), ..Script::default() };
    ends_in_time(&plugin, Arc::new(run)).await;
}

// Contract, rule 8.
#[tokio::test]
async fn what_a_call_asks_for_runs_on_its_permit_in_another_instance() {
    let limits = Limits { concurrency: 1, ..Limits::default() };
    let plugin = load(&reconciler(WORKFLOW, IF_TOLD), limits).await;
    let nested: Arc<Mutex<Vec<_>>> = Arc::default();
    let on_workflow = {
        let (plugin, nested) = (plugin.clone(), Arc::clone(&nested));
        Box::new(move |_| {
            let (session, nested) = (plugin.open_nested(script()), Arc::clone(&nested));
            async move {
                let answers = (session.desired("service", "").await, session.reconcile("").await);
                nested.lock().push(answers);
                Ok(WorkflowResult { nodes: Vec::new(), complete: true })
            }
            .boxed()
        })
    };
    let run = Arc::new(Script { on_workflow: Some(on_workflow), ..Script::default() });
    let session = plugin.open(Arc::clone(&run) as _);
    assert_eq!(session.reconcile("{}").await, nth(1));
    assert_eq!(*nested.lock(), [(Ok(String::new()), nth(1))]);
    assert_eq!(*run.asked.lock(), ["workflow Reconcile(None)"]);
}

#[tokio::test]
async fn a_run_beyond_the_limit_waits_and_its_waiting_does_not_count() {
    let limits = Limits { concurrency: 1, ..short() };
    let plugin = load(&reconciler("", ""), limits).await;
    let first = plugin.open(script());
    let busy = || plugin.drain()().now_or_never().is_none();
    assert!(!busy());
    assert_eq!(first.reconcile("").await, nth(1));
    assert!(busy());
    let second = plugin.open(script());
    let mut waiting = Box::pin(second.reconcile(""));
    let begun = Instant::now();
    while begun.elapsed() < 2 * short().timeout {
        assert_eq!(futures::poll!(&mut waiting), std::task::Poll::Pending);
        tokio::task::yield_now().await;
    }
    drop(first);
    assert_eq!(waiting.await, nth(1));
    drop(second);
    assert!(!busy());
}

#[tokio::test]
async fn a_call_that_is_given_up_costs_the_instance() {
    let plugin = load(&reconciler(WORKFLOW, IF_TOLD), Limits::default()).await;
    let run = Script { on_workflow: Some(Box::new(|_| Box::pin(futures::future::pending()))), ..Script::default() };
    let session = plugin.open(Arc::new(run));
    assert_eq!(session.reconcile("").await, nth(1));
    assert_eq!(futures::poll!(Box::pin(session.reconcile("{}"))), std::task::Poll::Pending);
    assert_eq!(session.reconcile("").await, nth(1));
}

#[tokio::test]
async fn what_is_not_exported_cannot_be_called() {
    let plugin = load(&reconciler("", ""), Limits::default()).await;
    let answer = plugin.open(script()).cleanup("{}").await;
    let message = "the call could not be made, or its answer not be read: the component does not export `cleaner`";
    assert_eq!(answer, failed(Cause::Other, message));
}

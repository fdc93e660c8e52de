use std::sync::Arc;
use std::time::Duration;

use capstan::plugin::{Component as _, Usage};
use capstan_core::guest::Guest as _;
use capstan_core::manifest::{Instances, Limits, Warm};

use crate::calls::{IF_TOLD, failures, load_as, nth, reconciler, short};
use crate::runs::{Script, script};

/// Without what differs from time to time, from process to process, and from component to component: what describes its instances.
fn timeless(usage: Usage) -> Usage {
    let pages = usage.peak_memory_bytes / LOADED.peak_memory_bytes;
    Usage { call_ms: 0, processes_started: 0, peak_memory_bytes: pages * LOADED.peak_memory_bytes, ..usage }
}

/// What a plugin has used that is loaded and nothing else: one page of memory, for a try.
const LOADED: Usage = Usage {
    calls: 0,
    errors: 0,
    traps: 0,
    timeouts: 0,
    out_of_memory: 0,
    unusable: 0,
    call_ms: 0,
    executions: 0,
    processes_started: 0,
    instances_started: 1,
    instances: 0,
    instances_idle: 0,
    peak_memory_bytes: 64 << 10,
};

#[tokio::test]
async fn what_is_under_way_is_counted_while_it_is() {
    let instances = Instances::Warm(Warm::within(Limits::default().memory));
    let plugin = load_as(&reconciler("", ""), Limits::default(), instances).await;
    assert_eq!(timeless(plugin.usage()), LOADED);
    let (one, other) = (plugin.open(script()), plugin.open_nested(script()));
    assert_eq!(one.reconcile("").await, nth(1));
    let begun = Usage { calls: 1, executions: 2, instances_started: 2, instances: 1, ..LOADED };
    assert_eq!(timeless(plugin.usage()), begun);
    drop((one, other));
    let over = Usage { executions: 0, instances_idle: 1, ..begun };
    assert_eq!(timeless(plugin.usage()), over);
}

#[tokio::test]
async fn failures_are_counted_by_their_cause() {
    let mut counted = Vec::new();
    for (functions, _) in failures() {
        let wasm = reconciler(functions, IF_TOLD);
        let plugin = load_as(&wasm, short(), Instances::Fresh).await;
        drop(plugin.open(script()).reconcile("{}").await);
        counted.push(timeless(plugin.usage()));
    }
    let called = Usage { calls: 1, instances_started: 2, ..LOADED };
    let trapped = Usage { traps: 1, ..called };
    assert_eq!(
        counted,
        [
            trapped,
            trapped,
            trapped,
            trapped,
            Usage { out_of_memory: 1, ..called },
            Usage { timeouts: 1, ..called },
            Usage { unusable: 1, ..called },
        ]
    );
}

#[tokio::test]
async fn errors_are_apart_from_what_costs_an_instance_and_so_is_what_nobody_waits_for() {
    let error = "(func $do (i32.store8 (i32.const 1024) (i32.const 1)) (i64.store (i32.const 1028) (i64.const 0)))";
    let plugin = load_as(&reconciler(error, IF_TOLD), Limits::default(), Instances::Fresh).await;
    assert!(plugin.open(script()).reconcile("{}").await.is_err());
    let expected = Usage { calls: 1, errors: 1, instances_started: 2, ..LOADED };
    assert_eq!(timeless(plugin.usage()), expected);

    let wasm = reconciler(crate::calls::WORKFLOW, IF_TOLD);
    let plugin = load_as(&wasm, Limits::default(), Instances::Fresh).await;
    let waiting = Script { on_workflow: Some(Box::new(|_| Box::pin(futures::future::pending()))), ..Script::default() };
    let session = plugin.open(Arc::new(waiting));
    assert!(futures::poll!(Box::pin(session.reconcile("{}"))).is_pending());
    drop(session);
    let expected = Usage { calls: 1, instances_started: 2, ..LOADED };
    assert_eq!(timeless(plugin.usage()), expected);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_calls_is_summed_up() {
    let wasm = reconciler(crate::calls::WORKFLOW, IF_TOLD);
    let plugin = load_as(&wasm, Limits::default(), Instances::Fresh).await;
    let second = Duration::from_secs(1);
    let slow = Arc::new(Script {
        on_workflow: Some(Box::new(move |_| {
            Box::pin(async move {
                tokio::time::sleep(second).await;
                Ok(capstan_core::guest::WorkflowResult::default())
            })
        })),
        ..Script::default()
    });
    for _ in 0..3 {
        let session = plugin.open(Arc::clone(&slow) as _);
        assert_eq!(session.reconcile("{}").await, nth(1));
        // Between its calls time is not counted.
        tokio::time::sleep(second).await;
    }
    assert_eq!(plugin.usage().call_ms, 3000);
}

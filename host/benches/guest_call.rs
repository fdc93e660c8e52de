//! What one call of a component costs, from opening a session to dropping it: the sample `webpage`, a page of 2 KB, in fresh
//! instances and in warm ones, and both in a process of their own.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub, reason = "a benchmark may fail loudly")]
#![allow(dead_code, reason = "shared with the tests")]

use std::path::Path;

use capstan::plugin::Plugin;
use capstan::plugin::engine::{Engine, Pool};
use capstan::plugin::loader::CodeCache;
use capstan_core::guest::{Guest as _, PrimaryUpdate};
use capstan_core::manifest::{Instances, Isolation, Limits, Warm};
use divan::Bencher;
use tokio::runtime::{Builder, Runtime};

#[path = "../tests/plugin/guests.rs"]
mod guests;
#[path = "../tests/plugin/runs.rs"]
mod runs;

fn main() {
    divan::main();
}

fn warm() -> Instances {
    Instances::Warm(Warm::within(Limits::default().memory))
}

fn webpage(instances: Instances, isolation: Isolation) -> (Runtime, Plugin, String) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let limits = Limits::default();
    let command = [env!("CARGO_BIN_EXE_capstan").into(), "run-component".into()];
    let engine = Engine::new(Pool::of([&limits])).unwrap().with_processes(command);
    let mut operator = runs::operator(&guests::sample("webpage"), limits);
    let guest = operator.plugins.get_mut("guest").unwrap();
    (guest.instances, guest.isolation) = (instances, isolation);
    let cache = CodeCache::at(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"));
    let plugin = runtime.block_on(Plugin::load(&engine, &cache, &operator, "guest")).unwrap();
    let html = format!("<html><body>{}</body></html>", "Hello, Capstan! ".repeat(100));
    let page = serde_json::json!({
        "apiVersion": "sample.capstan.dev/v1", "kind": "WebPage",
        "metadata": {
            "name": "page", "namespace": "default", "generation": 3, "resourceVersion": "4711",
            "uid": "3f1c8e0a-9b51-4c9e-8a75-0f6c2d2c5f11", "creationTimestamp": "2026-01-31T12:00:00Z",
            "labels": { "app": "web" }, "finalizers": ["sample.capstan.dev/finalizer"],
        },
        "spec": { "html": html, "exposed": true },
        "status": { "areWeGood": true, "htmlConfigMap": "page-html", "observedGeneration": 2 },
    });
    (runtime, plugin, page.to_string())
}

/// One run: an instance, which reconciles once.
fn reconcile(bencher: Bencher<'_, '_>, instances: Instances, isolation: Isolation) {
    let (runtime, plugin, page) = webpage(instances, isolation);
    bencher.bench_local(|| {
        let answer = runtime.block_on(plugin.open(runs::script()).reconcile(&page)).unwrap();
        assert!(matches!(answer.update, PrimaryUpdate::Status(_)));
    });
}

#[divan::bench]
fn reconcile_fresh(bencher: Bencher<'_, '_>) {
    reconcile(bencher, Instances::Fresh, Isolation::Shared);
}

#[divan::bench]
fn reconcile_warm(bencher: Bencher<'_, '_>) {
    reconcile(bencher, warm(), Isolation::Shared);
}

#[divan::bench]
fn reconcile_fresh_apart(bencher: Bencher<'_, '_>) {
    reconcile(bencher, Instances::Fresh, Isolation::Process);
}

#[divan::bench]
fn reconcile_warm_apart(bencher: Bencher<'_, '_>) {
    reconcile(bencher, warm(), Isolation::Process);
}

/// A run that asks for a desired object before.
fn desired_and_reconcile(bencher: Bencher<'_, '_>, instances: Instances, isolation: Isolation) {
    let (runtime, plugin, page) = webpage(instances, isolation);
    bencher.bench_local(|| {
        let session = plugin.open(runs::script());
        runtime.block_on(session.desired("deployment", &page)).unwrap();
        runtime.block_on(session.reconcile(&page)).unwrap()
    });
}

#[divan::bench]
fn desired_and_reconcile_fresh(bencher: Bencher<'_, '_>) {
    desired_and_reconcile(bencher, Instances::Fresh, Isolation::Shared);
}

#[divan::bench]
fn desired_and_reconcile_warm(bencher: Bencher<'_, '_>) {
    desired_and_reconcile(bencher, warm(), Isolation::Shared);
}

#[divan::bench]
fn desired_and_reconcile_fresh_apart(bencher: Bencher<'_, '_>) {
    desired_and_reconcile(bencher, Instances::Fresh, Isolation::Process);
}

#[divan::bench]
fn desired_and_reconcile_warm_apart(bencher: Bencher<'_, '_>) {
    desired_and_reconcile(bencher, warm(), Isolation::Process);
}

/// A call of an instance that runs already.
fn again(bencher: Bencher<'_, '_>, isolation: Isolation) {
    let (runtime, plugin, page) = webpage(Instances::Fresh, isolation);
    let session = plugin.open(runs::script());
    bencher.bench_local(|| runtime.block_on(session.reconcile(&page)).unwrap());
}

#[divan::bench]
fn reconcile_again(bencher: Bencher<'_, '_>) {
    again(bencher, Isolation::Shared);
}

#[divan::bench]
fn reconcile_again_apart(bencher: Bencher<'_, '_>) {
    again(bencher, Isolation::Process);
}

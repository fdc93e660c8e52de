//! Tests of a controller from its start to its end, over an API server without sockets.

use std::path::Path;
use std::time::Duration;

use capstan_core::cpu::Slots;
use capstan_core::guest::{Context, Guest, Interface, Session};
use capstan_core::manifest;
use capstan_core::object::Managers;
use capstan_core::permission::Home;
use capstan_core::room::Room;
use parking_lot::Mutex;
use tokio::runtime::Handle as Runtime;
use tokio::time::sleep;

use super::*;
use crate::client::ApiServer;
use crate::client::meter::Meters;
use crate::client::recorder::recorder;
use crate::client::tests::{Answer, Step as Body, scripted};
use crate::informer::list_watch::tests::end_of_list;
use crate::informer::pool::Pool;
use crate::metrics::Metrics;
use crate::workers::Workers;

/// A component that is never called.
struct Unasked;

impl Guest for Unasked {
    fn open(&self, _: Arc<dyn Context>) -> Box<dyn Session> {
        unreachable!("there are no primaries")
    }

    fn open_nested(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
        self.open(run)
    }

    fn exports(&self, _: Interface) -> bool {
        false
    }
}

/// Returns what controllers share, over an API server that serves the kind `Page` without any objects; and the paths
/// of the requests that it got.
fn environment() -> (Arc<Environment>, Arc<Mutex<Vec<String>>>) {
    let (client, asked) = scripted(|path| {
        let kinds = r#"{"resources":[{"name":"pages","kind":"Page","namespaced":true}]}"#;
        if path == "/apis/sample.dev/v1" {
            return Answer(Some(200), vec![Body::Comes(kinds.to_owned())]);
        }
        Answer(Some(200), vec![Body::Comes(end_of_list(7)), Body::Silent])
    });
    let api = Arc::new(ApiServer::new(client, Managers::default()));
    let metrics = Arc::<Metrics>::default();
    let size = (1 << 20, Room::default());
    let slots = Slots { usual: 1, extra: 1 };
    let environment = Environment {
        pool: Pool::new(Arc::clone(&api), Arc::clone(&metrics), size, CancellationToken::new()),
        recorder: recorder(Arc::clone(&api), "test".to_owned()).0,
        api,
        metrics,
        meters: Meters::default(),
        requests_per_second: 1,
        home: Home::default(),
        identity: "test".into(),
        drain: Duration::ZERO,
        workers: Workers::here(Runtime::current(), slots),
    };
    (Arc::new(environment), asked)
}

/// Returns a controller of pages in these namespaces.
fn pages(namespaces: &str, environment: &Environment) -> Declared {
    let text = format!(
        "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    pages: {{ plugin: p, primary: {{ apiVersion: sample.dev/v1, kind: Page }}, namespaces: {namespaces} }}\n"
    );
    let operator = manifest::parse(&text, Path::new("a.yaml")).unwrap().remove(0);
    Declared {
        spec: operator.controllers["pages"].clone(),
        plugin: operator.plugins["p"].clone(),
        operator: operator.name,
        guest: Arc::new(Unasked),
        component: "p".into(),
        account: environment.workers.account("a/p", None),
    }
}

fn phase(handle: &Handle) -> Phase {
    handle.phase.lock().clone()
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_stopped_before_it_starts_asks_for_nothing_and_ends() {
    // LC-20
    let (environment, asked) = environment();
    let handle = Arc::new(Handle::new(pages("[n]", &environment), &environment));
    let stop = CancellationToken::new();
    stop.cancel();
    run(Arc::clone(&handle), Arc::clone(&environment), stop).await;
    assert_eq!(phase(&handle), Phase::Stopped);
    assert_eq!(*asked.lock(), [""; 0]);
    assert!(environment.pool.states().is_empty());
    assert!(handle.queue.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_controller_that_has_stopped_does_nothing() {
    // NS-4
    let (environment, asked) = environment();
    let handle = Arc::new(Handle::new(pages("[n]", &environment), &environment));
    let stop = CancellationToken::new();
    let task = run(Arc::clone(&handle), Arc::clone(&environment), stop.clone());
    let task = tokio::spawn(task);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(phase(&handle), Phase::Running);
    let before = asked.lock().clone();
    assert_eq!(before.len(), 2, "its kind and its list: {before:?}");
    stop.cancel();
    task.await.unwrap();
    handle.change(pages("[n, m]", &environment), &environment);
    handle.change(pages("all", &environment), &environment);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(phase(&handle), Phase::Stopped);
    assert!(handle.controller().is_none());
    assert!(environment.pool.states().is_empty());
    assert_eq!(*asked.lock(), before);
}

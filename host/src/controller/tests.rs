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
use serde_json::json;
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
    environment_of(|path| (path == "/apis/sample.dev/v1").then(|| vec![kinds(&["Page"])]))
}

/// The same, with these answers; a list of no objects where there is none.
fn environment_of(
    mut answer: impl FnMut(&str) -> Option<Vec<Body>> + Send + 'static,
) -> (Arc<Environment>, Arc<Mutex<Vec<String>>>) {
    let (client, asked) = scripted(move |path| {
        let nothing = || vec![Body::Comes(end_of_list(7)), Body::Silent];
        Answer(Some(200), answer(path).unwrap_or_else(nothing))
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

/// Returns what an API server answers that serves these kinds.
fn kinds(served: &[&str]) -> Body {
    let name = |kind: &&str| format!("{}s", kind.to_lowercase());
    let all = served.iter().map(|kind| json!({ "name": name(kind), "kind": kind, "namespaced": true }));
    Body::Comes(json!({ "resources": all.collect::<Vec<_>>() }).to_string())
}

/// Returns a controller of pages in these namespaces.
fn pages(namespaces: &str, environment: &Environment) -> Declared {
    pages_with(&format!("namespaces: {namespaces}"), environment)
}

/// Returns a controller of pages with these fields.
fn pages_with(fields: &str, environment: &Environment) -> Declared {
    let text = format!(
        "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    pages: {{ plugin: p, primary: {{ apiVersion: sample.dev/v1, kind: Page }}, {fields} }}\n"
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

#[tokio::test(start_paused = true)]
async fn what_comes_while_a_controller_is_prepared_anew_for_it_does_not_begin_that_again() {
    // IE-1: its list takes longer than the questions whether the kind is served.
    const SERVED: Duration = Duration::from_mins(1);
    const LISTED: Duration = Duration::from_secs(50);
    let (start, mut questions) = (Instant::now(), 0);
    let (environment, asked) = environment_of(move |path| {
        questions += 1;
        assert!(questions < 1000, "it asks without a pause");
        let served: &[_] = if start.elapsed() < SERVED { &["Page"] } else { &["Page", "Theme"] };
        let slow = || vec![Body::Rests(LISTED), Body::Comes(end_of_list(8)), Body::Silent];
        match path {
            "/apis/sample.dev/v1" => Some(vec![kinds(served)]),
            _ => path.contains("/themes").then(slow),
        }
    });
    let themes =
        "sources: { themes: { informer: { apiVersion: sample.dev/v1, kind: Theme, mapper: ownerReference } } }";
    let fields = format!("namespaces: [n], cacheSyncTimeout: 55s, {themes}");
    let handle = Arc::new(Handle::new(pages_with(&fields, &environment), &environment));
    let stop = CancellationToken::new();
    let task = run(Arc::clone(&handle), Arc::clone(&environment), stop.clone());
    let task = tokio::spawn(task);
    let lists = |what: &str| asked.lock().iter().filter(|path| path.contains(what)).count();
    sleep(SERVED).await;
    assert!(handle.without.lock().is_some(), "it runs without themes");
    sleep(LISTED + SERVED).await;
    assert_eq!(*handle.without.lock(), None);
    assert_eq!((lists("/pages?watch=true&send"), lists("/themes?")), (1, 1));
    stop.cancel();
    task.await.unwrap();
}

//! Tests of a controller from its start to its end, over an API server without sockets.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use capstan_core::cache::Cache;
use capstan_core::cpu::Slots;
use capstan_core::guest::{Answer as ToGuest, Call, Context, Failure, Guest, Interface, PolledAll, Session};
use capstan_core::manifest;
use capstan_core::object::{Gvk, Managers};
use capstan_core::permission::Home;
use capstan_core::rollout::values::Values;
use capstan_core::source::on_demand::{Telling, Users};
use capstan_core::source::{Listener, Source, Trigger, TriggerKind};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::declared::{KindAt, Kinds};
use super::demand::join;
use super::late::{Failing as WhatFails, Places};
use super::plan::Plan;
use super::*;
use crate::client::meter::Meters;
use crate::client::recorder::recorder;
use crate::client::tests::{Answer, Step as Body, scripted};
use crate::client::{ApiServer, Kind, Link};
use crate::clusters::tests::other;
use crate::clusters::{Clusters, Other, Own};
use crate::informer::list_watch::tests::end_of_list;
use crate::informer::pool::Pool;
use crate::informer::{Memory, Need, Scope, Subscriber};
use crate::metrics::Metrics;
use crate::readiness::Matter;
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
pub(super) fn environment_of(
    mut answer: impl FnMut(&str) -> Option<Vec<Body>> + Send + 'static,
) -> (Arc<Environment>, Arc<Mutex<Vec<String>>>) {
    let (client, asked) = scripted(move |path| {
        let nothing = || vec![Body::Comes(end_of_list(7)), Body::Silent];
        Answer(Some(200), answer(path).unwrap_or_else(nothing))
    });
    let api = Arc::new(ApiServer::new(client, Managers::default()));
    let metrics = Arc::<Metrics>::default();
    let memory = Memory::new(1 << 20, u64::MAX);
    let slots = Slots { usual: 1, extra: 1 };
    let environment = Environment {
        clusters: Arc::new(Clusters::new(Own {
            api: Arc::clone(&api),
            metrics: Arc::clone(&metrics),
            memory: memory.clone(),
            stop: CancellationToken::new(),
            namespace: "home".into(),
            reach: Arc::new(|_, _| Ok(())),
            identity: "test".into(),
        })),
        pool: Pool::new(Arc::clone(&api), Arc::clone(&metrics), memory, CancellationToken::new()),
        recorder: recorder("test".to_owned()).0,
        api,
        metrics,
        meters: Meters::default(),
        requests_per_second: 1,
        home: Home::default(),
        identity: "test".into(),
        drain: Duration::ZERO,
        workers: Workers::here(Runtime::current(), slots),
        swapped: Notify::new(),
        holder: None,
        ceilings: Arc::default(),
    };
    (Arc::new(environment), asked)
}

/// Returns what an API server answers that serves these kinds.
pub(super) fn kinds(served: &[&str]) -> Body {
    let name = |kind: &&str| format!("{}s", kind.to_lowercase());
    let all = served.iter().map(|kind| json!({ "name": name(kind), "kind": kind, "namespaced": true }));
    Body::Comes(json!({ "resources": all.collect::<Vec<_>>() }).to_string())
}

/// Returns a controller of pages in these namespaces.
fn pages(namespaces: &str, environment: &Environment) -> Declared {
    pages_with(&format!("namespaces: {namespaces}"), environment)
}

/// Returns a controller of pages with these fields.
pub(super) fn pages_with(fields: &str, environment: &Environment) -> Declared {
    let text = format!(
        "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    pages: {{ plugin: p, primary: {{ apiVersion: sample.dev/v1, kind: Page }}, {fields} }}\n"
    );
    declared(&text, environment)
}

/// Returns the controller of pages of a manifest.
fn declared(text: &str, environment: &Environment) -> Declared {
    let operator = manifest::parse(text, Path::new("a.yaml")).unwrap().remove(0);
    Declared {
        spec: operator.controllers["pages"].clone(),
        plugin: operator.plugins["p"].clone(),
        operator: operator.name,
        guest: Arc::new(Unasked),
        component: "p".into(),
        values: Values::default(),
        account: environment.workers.account("a/p", None),
        others: BTreeMap::new(),
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

/// Returns the document of these kinds, which have one field each, in their spec.
fn document(kinds: &[(&str, &str)]) -> Body {
    let schema = |(kind, field): &(&str, &str)| {
        let spec = json!({ "type": "object", "properties": { *field: { "type": "string" } } });
        let of = json!([{ "group": "sample.dev", "version": "v1", "kind": kind }]);
        let schema = json!({ "type": "object", "properties": { "spec": spec }, "x-kubernetes-group-version-kind": of });
        ((*kind).to_owned(), schema)
    };
    let schemas: serde_json::Map<_, _> = kinds.iter().map(schema).collect();
    Body::Comes(json!({ "components": { "schemas": schemas } }).to_string())
}

/// Returns what is found of a controller of pages with these fields, after which time, and how often documents were asked for. The API
/// server publishes this.
async fn found(fields: &str, mut published: impl FnMut() -> Body + Send + 'static) -> (Vec<String>, Duration, usize) {
    let (environment, asked) = environment_of(move |path| match path {
        "/apis/sample.dev/v1" => Some(vec![kinds(&["Page", "Theme"])]),
        _ => path.starts_with("/openapi/").then(|| vec![published()]),
    });
    let declared = pages_with(fields, &environment);
    environment.api.resolve(&declared.spec.primary).await.unwrap();
    let handle = Handle::new(pages_with(fields, &environment), &environment);
    let began = Instant::now();
    let found = fitting::look(&handle, &declared, &environment).await;
    let fields = found.into_iter().map(|misfit| misfit.field.replace("spec.controllers.pages.", ""));
    let times = asked.lock().iter().filter(|path| *path == "/openapi/v3/apis/sample.dev/v1").count();
    (fields.collect(), began.elapsed(), times)
}

/// LC-14
#[tokio::test(start_paused = true)]
async fn what_a_manifest_names_is_looked_for_in_one_document_of_each_group_and_version() {
    let theme = "sources: { themes: { informer: { apiVersion: sample.dev/v1, kind: Theme, keep: [/spec/colour] } } }";
    let both = format!("keep: [/spec/title], {theme}");
    let map = "sources: { maps: { informer: { apiVersion: v1, kind: ConfigMap, keep: [/nothing] } } }";
    let has = || document(&[("Page", "titel"), ("Theme", "colour")]);
    for (fields, expected, times) in [
        (&*both, &["keep[0]"][..], 1),
        (theme, &[], 1),
        (map, &[], 0),
        ("namespaces: [n]", &[], 0),
        ("filters: { generic: { cel: has(object.spec.title) } }", &["filters.generic.cel"], 1),
    ] {
        assert_eq!(
            found(fields, has).await,
            (expected.iter().map(ToString::to_string).collect(), Duration::ZERO, times)
        );
    }
}

/// LC-14
#[tokio::test(start_paused = true)]
async fn a_schema_that_is_published_late_is_waited_for_and_one_that_never_is_leaves_nothing_to_be_told() {
    let mut times = 0;
    let late = move || {
        times += 1;
        if times < 3 { document(&[("Other", "title")]) } else { document(&[("Page", "titel")]) }
    };
    let (told, after, times) = found("keep: [/spec/title]", late).await;
    assert_eq!((told, times), (vec!["keep[0]".to_owned()], 3));
    assert!(after < Duration::from_secs(4), "{after:?}");
    let (told, after, times) = found("keep: [/spec/title]", || document(&[("Other", "title")])).await;
    assert_eq!((told, times), (Vec::new(), 5));
    assert!(after < Duration::from_secs(20), "{after:?}");
    for unread in ["<html>", "{}"] {
        let (told, after, times) = found("keep: [/spec/title]", || Body::Comes(unread.to_owned())).await;
        assert_eq!((told, after, times), (Vec::new(), Duration::ZERO, 1), "{unread}");
    }
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

#[tokio::test(start_paused = true)]
async fn sources_are_listed_in_the_order_of_their_priority_and_what_has_none_last_each_in_its_time() {
    // ES-2, IE-1, LC-11: by how long the lists of colours and themes take, when each list begins
    let ends = Duration::from_secs;
    let never = Duration::from_hours(1);
    for (colours, themes, begins) in
        [(ends(3), ends(4), [0, 3, 7, 7]), (ends(3), never, [0, 3, 13, 13]), (never, never, [0, 10, 20, 20])]
    {
        let (start, times) = (Instant::now(), Arc::<Mutex<BTreeMap<String, u64>>>::default());
        let (environment, _) = environment_of({
            let times = Arc::clone(&times);
            move |path| {
                let plural =
                    ["colours", "themes", "fonts", "pages"].into_iter().find(|it| path.contains(&format!("/{it}?")));
                let Some(plural) = plural else {
                    return Some(vec![kinds(&["Page", "Theme", "Colour", "Font"])]);
                };
                times.lock().entry(plural.to_owned()).or_insert(start.elapsed().as_secs());
                let takes = match plural {
                    "colours" => colours,
                    "themes" => themes,
                    _ => Duration::ZERO,
                };
                Some(vec![Body::Rests(takes), Body::Comes(end_of_list(8)), Body::Silent])
            }
        });
        let source = |kind: &str, more: &str| {
            let name = kind.to_lowercase();
            format!(
                "{name}: {{ informer: {{ apiVersion: sample.dev/v1, kind: {kind}, mapper: ownerReference{more} }} }}"
            )
        };
        let sources =
            [source("Theme", ", startPriority: 20"), source("Colour", ", startPriority: 3"), source("Font", "")];
        let fields = format!("namespaces: [n], cacheSyncTimeout: 10s, sources: {{ {} }}", sources.join(", "));
        let handle = Arc::new(Handle::new(pages_with(&fields, &environment), &environment));
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
        sleep(Duration::from_secs(30)).await;
        let times = times.lock().clone();
        let begun = ["colours", "themes", "fonts", "pages"].map(|plural| times.get(plural).copied());
        assert_eq!(begun, begins.map(Some), "{colours:?} {themes:?}");
        assert_eq!(phase(&handle), Phase::Running);
        stop.cancel();
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_waits_is_put_in_place_though_something_else_comes_meanwhile() {
    // IE-1: the themes come while the list of colours is awaited.
    let slow =
        |seconds| Some(vec![Body::Rests(Duration::from_secs(seconds)), Body::Comes(end_of_list(8)), Body::Silent]);
    let (environment, _) = environment_of(move |path| match path {
        "/apis/sample.dev/v1" => Some(vec![kinds(&["Page", "Theme", "Colour"])]),
        _ if path.contains("/themes") => slow(40),
        _ => path.contains("/colours").then(|| slow(50)).flatten(),
    });
    let source = |name: &str, kind: &str| {
        format!("{name}: {{ informer: {{ apiVersion: sample.dev/v1, kind: {kind}, mapper: ownerReference }} }}")
    };
    let declared = |sources: &str| {
        let fields = format!("namespaces: [n], cacheSyncTimeout: 5s, onStartError: goOn, sources: {{ {sources} }}");
        pages_with(&fields, &environment)
    };
    let themes = source("themes", "Theme");
    let handle = Arc::new(Handle::new(declared(&themes), &environment));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
    sleep(Duration::from_secs(20)).await;
    assert!(handle.without.lock().is_some(), "it runs without themes");
    let all = declared(&format!("{themes}, {}", source("colours", "Colour")));
    handle.change(
        Declared { spec: manifest::Controller { cache_sync_timeout: Duration::from_hours(1), ..all.spec }, ..all },
        &environment,
    );
    sleep(Duration::from_secs(30)).await;
    assert_eq!(*handle.without.lock(), None, "the themes are there");
    let sources = || handle.controller().map_or(0, |now| now.secondaries.len());
    assert_eq!(sources(), 1);
    sleep(Duration::from_mins(2)).await;
    assert_eq!((sources(), phase(&handle)), (2, Phase::Running));
    stop.cancel();
    task.await.unwrap();
}

/// Returns the event of a namespace that comes to be selected, or is no more.
fn selected(kind: &str, name: &str, version: u64) -> Body {
    let metadata = json!({ "name": name, "uid": name, "resourceVersion": version.to_string() });
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
    Body::Comes(format!("{}\n", json!({ "type": kind, "object": object })))
}

/// Returns the answer to who may not watch.
fn refused() -> Vec<Body> {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no" });
    vec![Body::Comes(format!("{}\n", json!({ "type": "ERROR", "object": status })))]
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_selected_no_more_is_left_at_once_although_another_cant_be_listed() {
    // NS-5
    let seconds = Duration::from_secs;
    let mut namespaces = Some(vec![
        selected("ADDED", "a", 6),
        selected("ADDED", "x", 7),
        Body::Comes(end_of_list(7)),
        Body::Rests(seconds(10)),
        selected("ADDED", "b", 8),
        Body::Rests(seconds(10)),
        selected("DELETED", "x", 9),
        Body::Silent,
    ]);
    let (environment, _) = environment_of(move |path| match path {
        "/apis/sample.dev/v1" => Some(vec![kinds(&["Page"])]),
        _ if path.starts_with("/api/v1/namespaces?") => namespaces.take(),
        _ => path.contains("/namespaces/b/").then(refused),
    });
    let handle = Arc::new(Handle::new(pages("{ selector: a=b }", &environment), &environment));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
    let watched = || {
        let places = handle.controller().map(|now| now.primaries.places()).unwrap_or_default();
        places.keys().flatten().map(ToString::to_string).collect::<Vec<_>>()
    };
    sleep(seconds(18)).await;
    assert_eq!(watched(), ["a", "x"]);
    sleep(seconds(12)).await;
    assert_eq!(watched(), ["a"]);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn namespaces_that_come_and_go_one_after_another_are_each_listed_once_and_none_waits_for_the_last() {
    // NS-2, NS-5
    let seconds = Duration::from_secs;
    // One comes every five seconds; the list of the first takes a minute, those of the others eight seconds.
    let comes = (0..20).flat_map(|n| [selected("ADDED", &format!("n{n:02}"), n + 8), Body::Rests(seconds(5))]);
    let goes = [selected("ADDED", "z", 40), Body::Rests(seconds(4)), selected("DELETED", "n05", 41), Body::Silent];
    let start = [selected("ADDED", "a", 7), Body::Comes(end_of_list(7)), Body::Rests(seconds(10))];
    let mut namespaces = Some(start.into_iter().chain(comes).chain([Body::Rests(seconds(30))]).chain(goes).collect());
    let (environment, asked) = environment_of(move |path| {
        let slow = |seconds| Some(vec![Body::Rests(seconds), Body::Comes(end_of_list(8)), Body::Silent]);
        match path {
            "/apis/sample.dev/v1" => Some(vec![kinds(&["Page"])]),
            _ if path.starts_with("/api/v1/namespaces?") => namespaces.take(),
            _ if path.contains("/namespaces/a/") => None,
            _ if path.contains("/namespaces/n00/") => slow(seconds(60)),
            _ => slow(seconds(8)),
        }
    });
    let handle = Arc::new(Handle::new(pages("{ selector: a=b }", &environment), &environment));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
    let watched = || handle.controller().map_or(0, |now| now.primaries.places().len());
    sleep(seconds(8)).await;
    assert_eq!(watched(), 1);
    sleep(seconds(70)).await;
    assert!((2..=15).contains(&watched()), "{} although others still come", watched());
    sleep(seconds(60)).await;
    assert_eq!(watched(), 21);
    sleep(seconds(60)).await;
    assert_eq!(watched(), 21, "one has come, and one has gone");
    let lists = |name: &str| {
        let path = format!("/namespaces/{name}/pages?watch=true&sendInitialEvents");
        asked.lock().iter().filter(|asked| asked.contains(&path)).count()
    };
    let names = (0..20).map(|n| format!("n{n:02}")).chain(["a".to_owned(), "z".to_owned()]);
    let twice: Vec<_> = names.map(|name| (lists(&name), name)).filter(|(lists, _)| *lists != 1).collect();
    assert_eq!(twice, []);
    assert!(handle.begun.lock().is_empty());
    stop.cancel();
    task.await.unwrap();
    assert!(environment.pool.states().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_may_not_list_namespaces_says_so_and_runs_once_it_may() {
    // NS-5
    let mut asked = 0;
    let (environment, _) = environment_of(move |path| match path {
        "/apis/sample.dev/v1" => Some(vec![kinds(&["Page"])]),
        _ if path.starts_with("/api/v1/namespaces?") => {
            asked += 1;
            let denied = json!({ "type": "ERROR", "object": { "code": 403, "message": "namespaces is forbidden" } });
            Some(match asked {
                1..=3 => vec![Body::Comes(format!("{denied}\n"))],
                _ => vec![selected("ADDED", "a", 7), Body::Comes(end_of_list(7)), Body::Silent],
            })
        }
        _ => None,
    });
    let handle = Arc::new(Handle::new(pages("{ selector: a=b }", &environment), &environment));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
    sleep(Duration::from_millis(100)).await;
    let why = "waiting for the namespaces that `a=b` selects: watch v1 Namespace: namespaces is forbidden (HTTP 403)";
    assert_eq!(lacks(&handle), Some(why.to_owned()));
    sleep(Duration::from_mins(2)).await;
    assert_eq!((phase(&handle), lacks(&handle)), (Phase::Running, None));
    assert_eq!(handle.selection.lock().names(), Some(vec!["a".to_owned()]));
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_controller_has_in_another_cluster_it_selects_there() {
    // NS-5, CU-6
    let (there, asked) = scripted(|path| {
        let all = match path {
            "/apis/sample.dev/v1" => vec![kinds(&["Page"])],
            _ if path.starts_with("/api/v1/namespaces?") => {
                vec![selected("ADDED", "a", 7), Body::Comes(end_of_list(7)), Body::Silent]
            }
            _ => vec![Body::Comes(end_of_list(7)), Body::Silent],
        };
        Answer(Some(200), all)
    });
    let (environment, own) = environment();
    let edge = other("a/edge", there);
    let text = "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: { name: a }\nspec:\n  clusters: { edge: { kubeconfig: { secret: { name: edge } } } }\n  plugins: { p: { component: { path: p.wasm } } }\n  controllers:\n    pages: { plugin: p, primary: { apiVersion: sample.dev/v1, kind: Page }, cluster: edge, namespaces: { selector: a=b } }\n";
    let others = [("edge".into(), Arc::clone(&edge))].into();
    let handle = Arc::new(Handle::new(Declared { others, ..declared(text, &environment) }, &environment));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
    sleep(Duration::from_secs(10)).await;
    assert_eq!((phase(&handle), lacks(&handle)), (Phase::Running, None));
    assert!(asked.lock().iter().any(|path| path.contains("/namespaces/a/pages?")), "{:?}", asked.lock());
    assert_eq!(*own.lock(), [""; 0]);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn more_namespaces_than_can_be_watched_leave_those_that_are_and_those_that_go_are_left_all_the_same() {
    // NS-5
    let seconds = Duration::from_secs;
    let rest = (0..500).map(|n| match selected("ADDED", &format!("n{n}"), n + 8) {
        Body::Comes(text) => text,
        Body::Rests(_) | Body::Awaits(_) | Body::Silent | Body::Cut => unreachable!("an event comes"),
    });
    let start = [selected("ADDED", "a", 7), Body::Comes(end_of_list(7)), Body::Rests(seconds(20))];
    let more = [Body::Comes(rest.collect()), Body::Rests(seconds(20))];
    let less = [selected("DELETED", "a", 600), Body::Rests(seconds(60)), selected("DELETED", "n0", 601), Body::Silent];
    let mut namespaces = Some(start.into_iter().chain(more).chain(less).collect());
    let (environment, _) = environment_of(move |path| match path {
        "/apis/sample.dev/v1" => Some(vec![kinds(&["Page"])]),
        _ if path.starts_with("/api/v1/namespaces?") => namespaces.take(),
        _ => None,
    });
    let handle = Arc::new(Handle::new(pages("{ selector: a=b }", &environment), &environment));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
    let watched = || handle.controller().map_or(0, |now| now.primaries.places().len());
    sleep(seconds(30)).await;
    assert_eq!((watched(), phase(&handle)), (1, Phase::Running));
    let why = handle.unselected.borrow().clone().unwrap_or_default();
    assert!(why.starts_with("it selects 501 namespaces, and at most 500 can be watched"), "{why}");
    sleep(seconds(40)).await;
    assert_eq!(watched(), 500, "one has gone");
    assert_eq!(*handle.unselected.borrow(), None);
    sleep(seconds(60)).await;
    assert_eq!((watched(), phase(&handle)), (499, Phase::Running));
    stop.cancel();
    task.await.unwrap();
}

/// A component whose runs fail.
#[derive(Default)]
struct Failing(Arc<Mutex<usize>>);

impl Guest for Failing {
    fn open(&self, _: Arc<dyn Context>) -> Box<dyn Session> {
        *self.0.lock() += 1;
        Box::new(Self::default())
    }

    fn open_nested(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
        self.open(run)
    }

    fn exports(&self, _: Interface) -> bool {
        false
    }
}

impl Session for Failing {
    fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<ToGuest, Failure>> {
        std::future::ready(Err(Failure::other("as always"))).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_no_attempts_left_runs_again_once_a_kind_that_was_missing_is_there() {
    // EP-1, IE-1: the key would wait for the primary's next change.
    let start = Instant::now();
    let page = r#"{"type":"ADDED","object":{"apiVersion":"sample.dev/v1","kind":"Page","metadata":{"namespace":"n","name":"a","uid":"a","resourceVersion":"3"}}}"#;
    let (environment, _) = environment_of(move |path| {
        let served: &[_] = if start.elapsed() < Duration::from_mins(5) { &["Page"] } else { &["Page", "Theme"] };
        match path {
            "/apis/sample.dev/v1" => Some(vec![kinds(served)]),
            _ if path.contains("/pages") => {
                Some(vec![Body::Comes(format!("{page}\n")), Body::Comes(end_of_list(7)), Body::Silent])
            }
            _ => None,
        }
    });
    let themes =
        "sources: { themes: { informer: { apiVersion: sample.dev/v1, kind: Theme, mapper: ownerReference } } }";
    let fields = "namespaces: [n], cacheSyncTimeout: 5s, retry: { maxAttempts: 1 }, maxReconciliationInterval: none";
    let runs = Arc::default();
    let declared = Declared {
        guest: Arc::new(Failing(Arc::clone(&runs))),
        ..pages_with(&format!("{fields}, {themes}"), &environment)
    };
    let handle = Arc::new(Handle::new(declared, &environment));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
    sleep(Duration::from_mins(4)).await;
    let before = *runs.lock();
    assert!((1..=2).contains(&before), "{before} runs");
    sleep(Duration::from_mins(10)).await;
    assert_eq!(*handle.without.lock(), None);
    assert!(*runs.lock() > before, "nothing has told it");
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_comes_to_live_in_namespaces_is_watched_in_those_of_the_manifest_and_nobody_runs_before() {
    // IN-6
    let (anew, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let (environment, asked) = environment_of({
        let (anew, ends) = (Arc::clone(&anew), Arc::clone(&ends));
        move |path| {
            let anew = anew.load(Ordering::Relaxed);
            match path {
                "/apis/sample.dev/v1" => {
                    let kind = json!({ "name": "pages", "kind": "Page", "namespaced": anew });
                    Some(vec![Body::Comes(json!({ "resources": [kind] }).to_string())])
                }
                // There is one in a namespace that is not the manifest's.
                _ if path.starts_with("/apis/sample.dev/v1/pages?") => Some(if anew {
                    vec![added("Page", "a", 9, None), Body::Comes(end_of_list(9)), Body::Silent]
                } else {
                    vec![Body::Comes(end_of_list(7)), Body::Awaits(Arc::clone(&ends))]
                }),
                _ => None,
            }
        }
    });
    let handle = Arc::new(Handle::new(pages("[m]", &environment), &environment));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
    sleep(Duration::from_mins(1)).await;
    let places = || environment.pool.states().into_iter().map(|seen| seen.scope.namespace).collect::<Vec<_>>();
    assert_eq!((phase(&handle), places()), (Phase::Running, vec![None]));
    anew.store(true, Ordering::Relaxed);
    ends.notify_one();
    sleep(Duration::from_secs(5)).await;
    assert_eq!((phase(&handle), places()), (Phase::Running, vec![Some("m".into())]));
    let watches = |path: &str| asked.lock().iter().filter(|asked| asked.starts_with(path)).count();
    assert_eq!(watches("/apis/sample.dev/v1/namespaces/m/pages?watch=true"), 1);
    sleep(Duration::from_mins(2)).await;
    assert_eq!((handle.queue.len(), places()), (0, vec![Some("m".into())]));
    stop.cancel();
    task.await.unwrap();
}

/// Returns the event of an object that was added.
pub(super) fn added(kind: &str, name: &str, version: u64, owner: Option<&str>) -> Body {
    event("ADDED", kind, name, version, owner)
}

/// Returns an event of an object.
pub(super) fn event(what: &str, kind: &str, name: &str, version: u64, owner: Option<&str>) -> Body {
    let owners =
        owner.map(|owner| json!([{ "apiVersion": "sample.dev/v1", "kind": "Page", "name": owner, "uid": owner }]));
    let object = json!({ "apiVersion": "sample.dev/v1", "kind": kind, "metadata": {
        "namespace": "n", "name": name, "uid": name, "resourceVersion": version.to_string(), "ownerReferences": owners,
    } });
    Body::Comes(format!("{}\n", json!({ "type": what, "object": object })))
}

/// Waits until something is so.
fn until(so: impl Fn() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(20), "it is not so");
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_comes_while_a_controller_moves_to_other_sources_is_told() {
    // NS-2, PO-3: a page is added while the themes are told, before the new source of pages is in place.
    let go = Arc::new(Notify::new());
    let (environment, _) = environment_of({
        let go = Arc::clone(&go);
        move |path| match path {
            "/apis/sample.dev/v1" => Some(vec![kinds(&["Page", "Theme"])]),
            _ if path.contains("/pages") => Some(vec![
                added("Page", "a", 3, None),
                Body::Comes(end_of_list(7)),
                Body::Awaits(Arc::clone(&go)),
                added("Page", "b", 8, None),
                Body::Silent,
            ]),
            _ => Some(vec![added("Theme", "t", 4, Some("a")), Body::Comes(end_of_list(7)), Body::Silent]),
        }
    });
    let mut known = Kinds::new();
    for kind in ["Page", "Theme"] {
        let gvk = Gvk::parse("sample.dev/v1", kind).unwrap();
        let kind = environment.api.resolve(&gvk).await.unwrap();
        known.insert(KindAt { cluster: None, gvk }, kind);
    }
    let plan = |declared: &Declared| {
        Plan::new(&declared.spec, None, (&known, &BTreeMap::new()), &environment.home, &Arc::default())
    };
    let told = Arc::<Mutex<Vec<String>>>::default();
    let has = |what: &str| told.lock().iter().any(|told| told == what);
    let pages_cache = Arc::<Mutex<Option<Cache>>>::default();
    let listener: Listener = Arc::new({
        let (told, pages_cache) = (Arc::clone(&told), Arc::clone(&pages_cache));
        move |triggers| {
            for Trigger { primary, what, .. } in triggers {
                if matches!(what, TriggerKind::Related { .. }) {
                    go.notify_one();
                    let cache = pages_cache.lock().clone().unwrap();
                    until(|| cache.len() == 2);
                }
                told.lock().push(primary.to_string());
            }
        }
    });
    let before = pages("[n]", &environment);
    let (handle, first) = (Arc::new(Handle::new(pages("[n]", &environment), &environment)), plan(&before));
    let mut joined = Joined::default();
    let mut sources = Sources::planned(&first, "f".into(), None, &joined, &Unasked);
    joined.become_as(&mut sources, &first, &Users::new(), (&before.sites(&environment), &listener));
    until(|| has("n/a"));
    let controller = handle.assemble(&before, &environment, sources, None);
    *pages_cache.lock() = controller.primaries.places().into_values().next();
    let themes =
        "sources: { themes: { informer: { apiVersion: sample.dev/v1, kind: Theme, mapper: ownerReference } } }";
    let second = plan(&pages_with(&format!("namespaces: [n], {themes}"), &environment));
    let kept: Vec<_> = second
        .scopes()
        .map(|(scope, kind, planned)| environment.pool.keep(scope, kind, Need::of(&planned.spec)))
        .collect();
    until(|| kept.iter().all(|kept| kept.cache.is_synced()));
    let mut sources = Sources::planned(&second, "f".into(), Some((&controller, Step::Rewatch)), &joined, &Unasked);
    joined.become_as(&mut sources, &second, &Users::new(), (&before.sites(&environment), &listener));
    until(|| has("n/b"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_cut_off_while_a_source_is_listed_is_woken_once_that_is() {
    // ES-4, WF-12
    let go = Arc::new(Notify::new());
    let (environment, _) = environment_of({
        let go = Arc::clone(&go);
        move |path| match path {
            "/apis/sample.dev/v1" => Some(vec![kinds(&["Page"])]),
            _ => Some(vec![Body::Awaits(Arc::clone(&go)), Body::Comes(end_of_list(7)), Body::Silent]),
        }
    });
    let (declared, mut known) = (pages("[n]", &environment), Kinds::new());
    let gvk = &declared.spec.primary;
    known.insert(KindAt { cluster: None, gvk: gvk.clone() }, environment.api.resolve(gvk).await.unwrap());
    let plan = Plan::new(&declared.spec, None, (&known, &BTreeMap::new()), &environment.home, &Arc::default());
    let (scope, kind) = &plan.primaries.scopes[0];
    let source = Arc::new(Source::new(plan.primaries.spec.clone()));
    let subscriber = Subscriber { source, listener: Arc::new(|_| ()) };
    let woken = Arc::<AtomicUsize>::default();
    let places = Places::new(vec![environment.pool.join(scope, kind, subscriber).into()], {
        let woken = Arc::clone(&woken);
        move || {
            woken.fetch_add(1, Ordering::Relaxed);
        }
    });
    let by = Instant::now() + Duration::from_hours(1);
    for failing in [WhatFails::Waits, WhatFails::GivesUp] {
        assert!(places.filled(by, failing).now_or_never().is_none());
    }
    assert_eq!(woken.load(Ordering::Relaxed), 0);
    go.notify_one();
    until(|| woken.load(Ordering::Relaxed) == 1);
    assert_eq!(places.filled(by, WhatFails::Waits).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_in_which_a_source_cant_be_listed_holds_up_nobody_in_another_and_all_are_woken_once_it_can() {
    // ES-4, IE-1, WF-12
    let served = Arc::new(AtomicUsize::new(0));
    let (environment, _) = environment_of({
        let served = Arc::clone(&served);
        move |path| match path {
            "/apis/sample.dev/v1" => Some(vec![kinds(&["Page"])]),
            _ if path.contains("/namespaces/m/") && served.load(Ordering::Relaxed) < 2 => Some(refused()),
            _ if path.contains("/namespaces/n/") && served.load(Ordering::Relaxed) < 1 => Some(refused()),
            _ => Some(vec![Body::Comes(end_of_list(7)), Body::Silent]),
        }
    });
    let (declared, mut known) = (pages("[n, m]", &environment), Kinds::new());
    let gvk = &declared.spec.primary;
    known.insert(KindAt { cluster: None, gvk: gvk.clone() }, environment.api.resolve(gvk).await.unwrap());
    let plan = Plan::new(&declared.spec, None, (&known, &BTreeMap::new()), &environment.home, &Arc::default());
    let source = Arc::new(Source::new(plan.primaries.spec.clone()));
    let join = |(scope, kind): &(Scope, Kind)| {
        let subscriber = Subscriber { source: Arc::clone(&source), listener: Arc::new(|_| ()) };
        Arc::new(environment.pool.join(scope, kind, subscriber))
    };
    let woken = Arc::<AtomicUsize>::default();
    let places = Places::new(plan.primaries.scopes.iter().map(join).collect(), {
        let woken = Arc::clone(&woken);
        move || {
            woken.fetch_add(1, Ordering::Relaxed);
        }
    });
    let minute = Duration::from_mins(1);
    for failing in [WhatFails::Waits, WhatFails::GivesUp] {
        let unfilled = places.filled(Instant::now() + minute, failing).await.unwrap_err();
        assert!(!unfilled.outage && unfilled.why.contains("can't be listed"), "{unfilled:?}");
    }
    served.store(1, Ordering::Relaxed);
    sleep(minute).await;
    for failing in [WhatFails::Waits, WhatFails::GivesUp] {
        assert_eq!(places.filled(Instant::now() + minute, failing).await, Ok(()));
    }
    assert_eq!(woken.load(Ordering::Relaxed), 1, "once for the one that can be listed");
    served.store(2, Ordering::Relaxed);
    sleep(minute).await;
    assert_eq!(woken.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn whoever_demands_a_source_is_not_held_up_by_what_there_is_to_tell() {
    // WF-12, PO-3
    let (environment, _) = environment_of(|path| match path {
        "/apis/sample.dev/v1" => Some(vec![kinds(&["Page"])]),
        _ => Some(vec![added("Page", "a", 3, None), Body::Comes(end_of_list(7)), Body::Silent]),
    });
    let (declared, mut known) = (pages("[n]", &environment), Kinds::new());
    let gvk = &declared.spec.primary;
    known.insert(KindAt { cluster: None, gvk: gvk.clone() }, environment.api.resolve(gvk).await.unwrap());
    let Plan { primaries: planned, .. } =
        Plan::new(&declared.spec, None, (&known, &BTreeMap::new()), &environment.home, &Arc::default());
    let (scope, kind) = &planned.scopes[0];
    let listed = environment.pool.keep(scope, kind, Need::of(&planned.spec));
    sleep(Duration::from_secs(1)).await;
    assert!(listed.is_filled());
    for (telling, at_once) in [(Telling::Beside, 0), (Telling::AtOnce, 1)] {
        let (source, told) = (Arc::new(Source::new(planned.spec.clone())), Arc::<AtomicUsize>::default());
        let listener: Listener = {
            let told = Arc::clone(&told);
            Arc::new(move |triggers| {
                told.fetch_add(triggers.len(), Ordering::Relaxed);
            })
        };
        let watch = join(&source, &planned, &declared.sites(&environment), &listener)(telling);
        assert_eq!(told.load(Ordering::Relaxed), at_once);
        watch.filled(Instant::now() + Duration::from_secs(1)).await.unwrap();
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn whoever_leaves_a_source_that_is_still_being_listed_leaves_its_informers_at_once() {
    // ES-4, PO-1
    let (environment, _) = environment_of(|path| match path {
        "/apis/sample.dev/v1" => Some(vec![kinds(&["Page"])]),
        _ => Some(vec![Body::Silent]),
    });
    let (declared, mut known) = (pages("[n]", &environment), Kinds::new());
    let gvk = &declared.spec.primary;
    known.insert(KindAt { cluster: None, gvk: gvk.clone() }, environment.api.resolve(gvk).await.unwrap());
    let plan = Plan::new(&declared.spec, None, (&known, &BTreeMap::new()), &environment.home, &Arc::default());
    let (scope, kind) = &plan.primaries.scopes[0];
    let source = Arc::new(Source::new(plan.primaries.spec.clone()));
    let subscriber = Subscriber { source, listener: Arc::new(|_| ()) };
    let places =
        Places::new(vec![environment.pool.join(scope, kind, subscriber).into()], || unreachable!("nobody waits"));
    // Nobody waits any more, but somebody is to be woken.
    assert!(places.filled(Instant::now() + Duration::from_hours(1), WhatFails::Waits).now_or_never().is_none());
    tokio::task::yield_now().await;
    assert_eq!(environment.pool.states().len(), 1);
    drop(places);
    assert!(environment.pool.states().is_empty(), "before anything else is done");
}

// === other clusters ===

/// Returns an API server that serves these kinds without any objects.
fn serving(served: &'static [&'static str]) -> kube::Client {
    let (client, _) = scripted(move |path| match path {
        "/apis/sample.dev/v1" => Answer(Some(200), vec![kinds(served)]),
        _ => Answer(Some(200), vec![Body::Comes(end_of_list(7)), Body::Silent]),
    });
    client
}

/// Returns a controller of pages with these fields, and a source of themes in each of these other clusters.
fn apart(fields: &str, clusters: &[&Arc<Other>], environment: &Environment) -> Declared {
    let name = |other: &Arc<Other>| other.id.split_once('/').unwrap().1.to_owned();
    let names = || clusters.iter().map(|other| name(other));
    let all = names().map(|name| format!("{name}: {{ kubeconfig: {{ secret: {{ name: {name} }} }} }}"));
    let all = all.collect::<Vec<_>>().join(", ");
    let source = |name| {
        format!(
            "{name}: {{ informer: {{ apiVersion: sample.dev/v1, kind: Theme, cluster: {name}, mapper: {{ labels: {{ name: n, namespace: m }} }} }} }}"
        )
    };
    let sources = names().map(source).collect::<Vec<_>>().join(", ");
    let text = format!(
        "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  clusters: {{ {all} }}\n  plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    pages: {{ plugin: p, primary: {{ apiVersion: sample.dev/v1, kind: Page }}, namespaces: [n], sources: {{ {sources} }}, {fields} }}\n"
    );
    let others = clusters.iter().map(|other| (name(other).into(), Arc::clone(other))).collect();
    Declared { others, ..declared(&text, environment) }
}

/// Returns what a controller lacks: that is a matter of its operator.
fn lacks(handle: &Handle) -> Option<String> {
    let unready = handle.unready()?;
    assert_eq!(unready.matter, Matter::Operator, "{unready:?}");
    Some(unready.why)
}

#[tokio::test(start_paused = true)]
async fn what_another_cluster_lacks_is_told_and_hides_nothing_that_is_lacking_here() {
    // CU-7
    const THEME: &str = "sample.dev/v1 Theme of cluster a/edge";
    const NOT_SERVED: &str = "the API server does not serve sample.dev/v1 Page: install its CustomResourceDefinition, or correct the manifest";
    let closed = |other: &Arc<Other>| other.site.api.lead(Link::Closed("there is none".into()));
    for (policy, own, there, is_closed, expected) in [
        ("goOn", &["Page"][..], &["Theme"][..], false, None),
        ("goOn", &["Page"], &[], false, Some(format!("runs without {THEME}"))),
        ("goOn", &["Page"], &["Theme"], true, Some(format!("runs without {THEME}"))),
        ("wait", &["Page"], &["Theme"], true, Some("cluster a/edge: there is none".to_owned())),
        ("fail", &["Page"], &["Theme"], true, Some(format!("{THEME}: cluster a/edge: there is none"))),
        ("wait", &[], &["Theme"], true, Some(NOT_SERVED.to_owned())),
    ] {
        let (environment, _) = environment_of(move |path| (path == "/apis/sample.dev/v1").then(|| vec![kinds(own)]));
        let edge = other("a/edge", serving(there));
        if is_closed {
            closed(&edge);
        }
        let declared = apart(&format!("onStartError: {policy}, cacheSyncTimeout: 5s"), &[&edge], &environment);
        let handle = Arc::new(Handle::new(declared, &environment));
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
        sleep(Duration::from_mins(1)).await;
        assert_eq!(lacks(&handle), expected, "{policy} {own:?} {there:?} {is_closed}");
        stop.cancel();
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_has_lost_another_cluster_goes_on_once_that_may_be_used_again() {
    // CU-7, IE-1
    let (environment, _) = environment();
    let edge = other("a/edge", serving(&["Theme"]));
    let declared = apart("onStartError: fail, cacheSyncTimeout: 5s", &[&edge], &environment);
    let handle = Arc::new(Handle::new(declared, &environment));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(phase(&handle), Phase::Running);
    edge.site.api.lead(Link::Closed("it is gone".into()));
    sleep(Duration::from_mins(10)).await;
    assert_eq!(lacks(&handle), Some("cluster a/edge: it is gone".to_owned()));
    edge.site.api.lead(Link::Open(serving(&["Theme"])));
    sleep(Duration::from_mins(1)).await;
    assert_eq!(phase(&handle), Phase::Running);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_loses_two_clusters_at_once_goes_on_without_both() {
    // CU-7
    let (environment, _) = environment();
    let [edge, far] = ["a/edge", "a/far"].map(|id| other(id, serving(&["Theme"])));
    let declared = apart("onStartError: goOn, cacheSyncTimeout: 1h", &[&edge, &far], &environment);
    let handle = Arc::new(Handle::new(declared, &environment));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
    sleep(Duration::from_secs(1)).await;
    for other in [&edge, &far] {
        other.site.api.lead(Link::Closed("it is gone".into()));
    }
    sleep(Duration::from_mins(1)).await;
    let both = "runs without sample.dev/v1 Theme of cluster a/edge, sample.dev/v1 Theme of cluster a/far";
    assert_eq!((phase(&handle), lacks(&handle)), (Phase::Running, Some(both.to_owned())));
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_answer_delays_no_question_to_another() {
    // CU-7
    let (environment, _) = environment();
    let (hangs, _) = scripted(|_| Answer(None, Vec::new()));
    let (answers, asked) = scripted(|_| Answer(Some(200), vec![kinds(&["Theme"])]));
    let [edge, far] = [("a/edge", hangs), ("a/far", answers)].map(|(id, client)| other(id, client));
    let handle = Arc::new(Handle::new(apart("", &[&edge, &far], &environment), &environment));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(*asked.lock(), ["/apis/sample.dev/v1"]);
    stop.cancel();
    task.await.unwrap();
}

/// A component that is asked for things outside of the cluster, of which there are none, and notes when.
#[derive(Clone)]
pub(super) struct Asked {
    start: Instant,
    /// Seconds since the start.
    polls: Arc<Mutex<Vec<u64>>>,
    /// Polls that never end.
    hanging: usize,
}

impl Asked {
    pub(super) fn hanging(hanging: usize) -> Self {
        Self { start: Instant::now(), polls: Arc::default(), hanging }
    }

    /// Returns a paused controller with this component, in this version.
    pub(super) fn declared(&self, component: &str, environment: &Environment) -> Declared {
        let polled = "paused: true, sources: { things: { poll: { every: 100s, id: /id } } }, cacheSyncTimeout: 55s";
        Declared { guest: Arc::new(self.clone()), component: component.into(), ..pages_with(polled, environment) }
    }
}

impl Guest for Asked {
    fn open(&self, _: Arc<dyn Context>) -> Box<dyn Session> {
        Box::new(self.clone())
    }

    fn open_nested(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
        self.open(run)
    }

    fn exports(&self, _: Interface) -> bool {
        false
    }
}

impl Session for Asked {
    fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<ToGuest, Failure>> {
        Box::pin(async move {
            let polls = {
                let mut polls = self.polls.lock();
                polls.push(self.start.elapsed().as_secs());
                polls.len()
            };
            if polls <= self.hanging {
                std::future::pending::<()>().await;
            }
            Ok(ToGuest::Poll(PolledAll::default()))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_polls_before_it_runs_and_each_period_and_after_a_swap_until_it_is_stopped() {
    // PP-1, LC-11
    let (environment, _) = environment();
    let asked = Asked::hanging(0);
    let handle = Arc::new(Handle::new(asked.declared("one", &environment), &environment));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
    sleep(Duration::from_secs(250)).await;
    assert_eq!(phase(&handle), Phase::Running);
    let polls = asked.polls.lock().clone();
    assert_eq!(polls.len(), 3, "{polls:?}");
    assert!(
        polls[0] == 0 && (90..=100).contains(&polls[1]) && (90..=100).contains(&(polls[2] - polls[1])),
        "{polls:?}"
    );
    // The settings that its runs use are others, and so may be what it answers.
    handle.change(asked.declared("two", &environment), &environment);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(asked.polls.lock()[3..], [250]);
    // The same once more is no swap.
    handle.change(asked.declared("two", &environment), &environment);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(asked.polls.lock().len(), 4);
    stop.cancel();
    task.await.unwrap();
    sleep(Duration::from_secs(1000)).await;
    assert_eq!(asked.polls.lock().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_controller_waits_for_its_first_poll_no_longer_than_for_its_caches() {
    // PP-1
    let (environment, _) = environment();
    let asked = Asked::hanging(2);
    let handle = Arc::new(Handle::new(asked.declared("one", &environment), &environment));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
    sleep(Duration::from_secs(50)).await;
    assert!(matches!(phase(&handle), Phase::Filling(obstacle) if obstacle.under_way));
    // Something else is wanted meanwhile: that is not waited with.
    handle.change(asked.declared("two", &environment), &environment);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(phase(&handle), Phase::Running);
    stop.cancel();
    task.await.unwrap();
    let handle = Arc::new(Handle::new(asked.declared("one", &environment), &environment));
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
    sleep(Duration::from_secs(50)).await;
    assert!(matches!(phase(&handle), Phase::Filling(obstacle) if obstacle.under_way));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(phase(&handle), Phase::Running);
    assert_eq!(asked.polls.lock().len(), 2, "one poll after another");
    stop.cancel();
    task.await.unwrap();
}

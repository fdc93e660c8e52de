//! Sources that runs register and deregister: what they are told, whom they wake, what they may watch, and how long they last.

use std::fs;

use cluster::wait;
use scenarios::{Daemon, Folder, LATER, Place, SOON, replaced_exports};
use serde_json::{Value, json};

const PROBES: &str = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";

/// What a component may do that watches config maps and secrets.
const GRANTS: &str = "capabilities:
  kubernetes:
    - { apiVersion: v1, kind: ConfigMap, verbs: [watch, apply] }
    - { apiVersion: v1, kind: Secret, verbs: [watch, apply] }
";

/// Returns a step that registers a source of this kind, whose objects name their primary in an annotation.
fn register(name: &str, kind: &str) -> Value {
    let informer = json!({ "apiVersion": "v1", "kind": kind, "mapper": { "annotations": {} } });
    json!({ "register": { "name": name, "declaration": { "informer": informer } }, "as": name })
}

/// Returns a step that applies an object of this kind, which names a primary.
fn applied(place: &Place, kind: &str, primary: &str) -> Value {
    let annotations = json!({ "capstan.dev/primary-name": primary });
    let metadata = json!({ "name": primary, "namespace": place.namespace.name(), "annotations": annotations });
    let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata });
    json!({ "write": { "verb": "apply", "object": object }, "as": kind })
}

/// Returns what is registered for a controller, by name.
fn registered(daemon: &Daemon, controller: &str) -> Value {
    daemon.controller(controller).unwrap()["registered"].clone()
}

/// Returns how many informers of config maps there are for the place.
fn informers_of_maps(daemon: &Daemon, place: &Place) -> usize {
    let informers = daemon.informers(place.namespace.name());
    informers.iter().filter(|informer| informer["scope"].as_str().unwrap().starts_with("v1 ConfigMap ")).count()
}

/// Waits until a primary has run more often than that.
fn runs_more(daemon: &Daemon, primary: &str, before: usize) {
    wait::until(LATER, "a run", || (daemon.runs_of(primary) > before).then_some(())).unwrap();
}

#[test]
fn s020_a_run_registers_two_sources_and_what_comes_in_them_wakes_its_primary() {
    // ES-4
    let place = Place::new("s020");
    let name = place.namespace.name();
    let daemon = place.daemon(&place.manifest("probe", PROBES, GRANTS, ""));
    let steps = json!([
        register("maps", "ConfigMap"),
        register("keys", "Secret"),
        applied(&place, "ConfigMap", "p"),
        applied(&place, "Secret", "p"),
    ]);
    place.probe("p", json!({ "reconcile": { "do": steps } }));
    let secrets = place.namespace.path("v1", "secrets");
    for path in [&place.config_maps(), &secrets] {
        place.await_object(path, "p", "what the run writes", |_| true);
    }
    let both = json!({ "keys": "v1 Secret", "maps": "v1 ConfigMap" });
    assert_eq!(registered(&daemon, name), both);
    daemon.await_quiet();
    let told = || {
        let status = place.find(&place.probes(), "p").unwrap()["status"].take();
        (status["maps"].clone(), status["keys"].clone())
    };
    assert_eq!(told(), (json!(true), json!(true)));
    for path in [&place.config_maps(), &secrets] {
        let before = daemon.runs_of("p");
        place.merge(path, "p", &json!({ "metadata": { "labels": { "changed": "by-others" } } }));
        runs_more(&daemon, "p", before);
        daemon.await_quiet();
    }
    assert_eq!(told(), (json!(false), json!(false)), "later runs find them");
    assert_eq!(registered(&daemon, name), both);
    assert_eq!(informers_of_maps(&daemon, &place), 1);
}

#[test]
fn s155_a_source_that_is_registered_later_shares_the_informer_and_is_told_what_there_is() {
    // ES-4, PO-1, PO-3
    let place = Place::new("s155");
    let source = "sources:\n  maps: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { annotations: {} } } }\n";
    let pages = place
        .renamed(&place.manifest("probe", "{ apiVersion: sample.capstan.dev/v1, kind: WebPage }", "", source), "pages");
    place.cluster.api().create(&place.config_maps(), &place.map_of("p", "third", json!({}))).unwrap();
    let daemon = place.daemon(&format!("{pages}---\n{}", place.manifest("probe", PROBES, GRANTS, "")));
    assert_eq!(informers_of_maps(&daemon, &place), 1);
    let read = json!({ "read": { "in": { "source": "maps" }, "select": "related" } });
    place.probe("p", json!({ "reconcile": { "do": [register("maps", "ConfigMap"), read] } }));
    place.await_object(&place.probes(), "p", "what there is", |p| p["status"]["read"] == json!(["third"]));
    // The first run adds the finalizer; what the source is told wakes the primary again.
    wait::until(SOON, "its run for what there is", || (daemon.runs_of("p") >= 3).then_some(())).unwrap();
    assert_eq!(informers_of_maps(&daemon, &place), 1);
    daemon.await_quiet();
    let before = daemon.runs_of("p");
    place.merge(&place.config_maps(), "third", &json!({ "data": { "a": "1" } }));
    runs_more(&daemon, "p", before);
}

/// Lets a probe register what may be refused, and returns what it was told.
fn refused(place: &Place, name: &str, declared: Value) -> (String, String) {
    let step = json!({ "register": { "name": "other", "declaration": declared }, "mayFail": true });
    place.probe(name, json!({ "reconcile": { "do": step } }));
    let told = |probe: &Value| !probe["status"]["refused"].is_null();
    let refused = place.await_object(&place.probes(), name, "a refusal", told)["status"]["refused"].take();
    let text = |field: &str| refused[field].as_str().unwrap_or_default().to_owned();
    (text("refused"), text("message"))
}

#[test]
fn what_is_not_permitted_not_served_or_not_right_is_refused_by_name_and_leaves_nothing() {
    // ES-4
    let place = Place::new("refused");
    let name = place.namespace.name();
    let grants = "limits: { sources: 1 }
capabilities:
  kubernetes:
    - { apiVersion: v1, kind: ConfigMap, verbs: [watch] }
    - { apiVersion: v1, kind: Node, verbs: [watch] }
    - { apiVersion: nobody.example.com/v1, kind: Thing, verbs: [watch] }
";
    let daemon = place.daemon(&place.manifest("probe", PROBES, grants, ""));
    let informer = |fields: Value| json!({ "informer": fields });
    let (maps, nodes) =
        (json!({ "apiVersion": "v1", "kind": "ConfigMap" }), json!({ "apiVersion": "v1", "kind": "Node" }));
    let with = |name: &str, value: Value| {
        let mut maps = maps.clone();
        maps[name] = value;
        informer(maps)
    };
    for (probe, declared, reason, message) in [
        (
            "secret",
            informer(json!({ "apiVersion": "v1", "kind": "Secret" })),
            "denied",
            "does not permit `watch` on v1 Secret; add it to spec.plugins.probe.capabilities.kubernetes",
        ),
        ("everywhere", with("namespaces", json!("all")), "denied", "but not in all namespaces"),
        ("elsewhere", with("namespaces", json!(["kube-system"])), "denied", "but not in namespace kube-system"),
        ("node", informer(nodes), "denied", "v1 Node in namespaces only; add `namespaces: all`"),
        ("unserved", informer(json!({ "apiVersion": "nobody.example.com/v1", "kind": "Thing" })), "missing", "Thing"),
        ("field", with("kinds", json!(1)), "invalid", "source \"other\": informer"),
        ("poll", json!({ "poll": { "every": "1s", "id": "/id" } }), "invalid", "expected `informer`"),
        (
            "across",
            with("mapper", json!({ "annotations": { "acrossNamespaces": true } })),
            "invalid",
            "only a manifest",
        ),
        (
            "index",
            with("mapper", json!({ "index": { "name": "none" } })),
            "invalid",
            "there is no index of the primaries `none`",
        ),
        ("selector", with("labelSelector", json!("a b")), "invalid", "informer.labelSelector"),
        (
            "deep",
            with("filters", json!({ "generic": { "cel": "(".repeat(8000) } })),
            "invalid",
            "informer.filters.generic",
        ),
        ("long", with("labelSelector", json!("a".repeat(20_000))), "invalid", "at most 16384"),
    ] {
        let (found, told) = refused(&place, probe, declared);
        assert!(found == reason && told.contains(message), "{probe}: {found}: {told}");
    }
    assert_eq!(registered(&daemon, name), json!({}));
    assert_eq!(daemon.informers(name).len(), 1, "that of the primaries");
    // One is permitted, of whichever run.
    let label = "labelSelector: nobody=has";
    let declared = with("labelSelector", json!("nobody=has"));
    let step = json!({ "register": { "name": "one", "declaration": declared } });
    place.probe("one", json!({ "reconcile": { "do": step } }));
    place.await_object(&place.probes(), "one", label, |one| one["status"]["register"] == true);
    let (found, told) = refused(&place, "two", with("labelSelector", json!("nobody=had")));
    assert_eq!((&*found, &*told), ("exhausted", "there are 1 registered sources already (limits.sources): one"));
}

#[test]
fn a_deregistered_source_wakes_nobody_and_its_informer_ends_with_its_last_user() {
    // ES-4, PO-1, PO-2
    let place = Place::new("ending");
    let name = place.namespace.name();
    let daemon = place.daemon(&place.manifest("probe", PROBES, GRANTS, ""));
    let both = json!([register("maps", "ConfigMap"), register("more", "ConfigMap")]);
    place.probe("p", json!({ "reconcile": { "do": both } }));
    place.probe("q", json!({}));
    place.await_object(&place.probes(), "p", "its sources", |p| p["status"]["more"] == true);
    // Whoever has not registered them has them too.
    daemon.await_quiet();
    for primary in ["p", "q"] {
        let before = daemon.runs_of(primary);
        place.cluster.api().create(&place.config_maps(), &place.map_of(primary, primary, json!({}))).unwrap();
        runs_more(&daemon, primary, before);
    }
    assert_eq!(informers_of_maps(&daemon, &place), 1);
    place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "do": { "deregister": "more" } } } }));
    let one = json!({ "maps": "v1 ConfigMap" });
    wait::until(SOON, "the end of one source", || (registered(&daemon, name) == one).then_some(())).unwrap();
    daemon.await_quiet();
    assert_eq!(informers_of_maps(&daemon, &place), 1, "the other needs it");
    let deregister = json!({ "deregister": "maps" });
    let read = json!({ "read": { "in": { "source": "maps" }, "select": "related" }, "mayFail": true });
    let steps = json!([register("maps", "ConfigMap"), deregister, deregister, read]);
    place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "do": steps } } }));
    let missing = |p: &Value| p["status"]["refused"]["refused"] == "missing";
    place.await_object(&place.probes(), "p", "the end of its source", missing);
    wait::until(SOON, "the end of the informer", || (informers_of_maps(&daemon, &place) == 0).then_some(())).unwrap();
    assert_eq!(registered(&daemon, name), json!({}));
    daemon.await_quiet();
    let before = (daemon.runs_of("p"), daemon.runs_of("q"));
    for map in ["p", "q"] {
        place.merge(&place.config_maps(), map, &json!({ "data": { "a": "1" } }));
    }
    // A run of another primary shows that what came in before it has been heard.
    place.probe("r", json!({}));
    runs_more(&daemon, "r", 1);
    daemon.await_quiet();
    assert_eq!((daemon.runs_of("p"), daemon.runs_of("q")), before);
}

#[test]
fn what_is_registered_ends_with_the_version_and_all_primaries_run_once_to_register_it_again() {
    // ES-4
    let place = Place::new("again");
    let name = place.namespace.name();
    let folder = Folder::new();
    let manifest = |plugin: &str, fields: &str| place.manifest("probe", PROBES, &format!("{plugin}{GRANTS}"), fields);
    let nothing = "onSwap: nothing\n";
    folder.put("probes.yaml", manifest(nothing, ""));
    let daemon = folder.daemon(&place);
    let registering = json!({ "reconcile": { "do": register("maps", "ConfigMap") } });
    place.probe("p", registering);
    place.probe("q", json!({}));
    place.await_object(&place.probes(), "p", "its source", |p| p["status"]["maps"] == true);
    daemon.await_quiet();
    let maps = json!({ "maps": "v1 ConfigMap" });
    // Other settings, other sources; other namespaces beside its own, and what else is no other version for a run.
    let elsewhere =
        manifest(nothing, "retry: none\nsources: { keys: { informer: { apiVersion: v1, kind: Secret } } }\n");
    let wider = elsewhere.replace(&format!("[{name}]"), &format!("[{name}, default]"));
    for (text, more, seen) in [
        (manifest(nothing, "retry: none\n"), 1, ""),
        (elsewhere.clone(), 1, ""),
        (wider.clone(), 0, "r"),
        (wider.replace("onSwap: nothing", "onSwap: reconcileAll"), 0, "s"),
    ] {
        let before = (daemon.runs_of("p"), daemon.runs_of("q"));
        folder.put("probes.yaml", &text);
        if more > 0 {
            runs_more(&daemon, "p", before.0);
            runs_more(&daemon, "q", before.1);
        } else {
            let wider = || daemon.informers("default").iter().any(|informer| informer["state"] == "watching");
            wait::until(LATER, "another namespace", || wider().then_some(())).unwrap();
            place.probe(seen, json!({}));
            runs_more(&daemon, seen, 1);
        }
        daemon.await_quiet();
        let after = (daemon.runs_of("p"), daemon.runs_of("q"));
        assert_eq!(after, (before.0 + more, before.1 + more), "{text}");
        assert_eq!(registered(&daemon, name), maps, "{text}");
        assert_eq!(informers_of_maps(&daemon, &place), 1);
    }
    // What is not permitted any more is not registered again.
    folder.put("probes.yaml", wider.replace("verbs: [watch, apply]", "verbs: [apply]"));
    wait::until(LATER, "its end", || (registered(&daemon, name) == json!({})).then_some(())).unwrap();
    daemon.await_line("does not permit `watch` on v1 ConfigMap");
    wait::until(SOON, "the end of the informer", || (informers_of_maps(&daemon, &place) == 0).then_some(())).unwrap();
    // Nor is it known to another daemon before a run has registered it there.
    folder.put("probes.yaml", wider.replace("onSwap: nothing", "onSwap: reconcileAll"));
    wait::until(LATER, "its return", || (registered(&daemon, name) == maps).then_some(())).unwrap();
    daemon.kill();
    let daemon = folder.daemon(&place);
    wait::until(SOON, "its return", || (registered(&daemon, name) == maps).then_some(())).unwrap();
}

#[test]
fn a_run_that_registers_after_a_swap_is_followed_by_one_of_the_new_version() {
    // ES-4
    for in_place in [true, false] {
        let place = Place::new("late");
        let name = place.namespace.name();
        let folder = Folder::new();
        let plugin = format!("onSwap: nothing\nlimits: {{ timeout: 30s, requests: 1000 }}\n{GRANTS}");
        let maps =
            "sources: { maps: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { annotations: {} } } } }\n";
        let manifest = place.manifest("probe", PROBES, &plugin, maps);
        folder.put("probes.yaml", &manifest);
        let daemon = folder.daemon(&place);
        place.probe("p", json!({ "reconcile": { "do": [place.gate(), register("keys", "Secret")] } }));
        let held = || (daemon.runs() == 2 && daemon.active() == 1).then_some(());
        wait::until(SOON, "a run that waits", held).unwrap();
        if in_place {
            folder.put(
                "probes.yaml",
                manifest.replace("onSwap: nothing", "onSwap: nothing\n      config: { new: true }"),
            );
            daemon.await_plugin("probe", "active", 2);
        } else {
            folder.put("probes.yaml", manifest.replace(&format!("[{name}]"), &format!("[{name}, default]")));
            // Its informers watch a while before the controller uses them.
            let started = || daemon.log().matches("controller started").count() == 2;
            wait::until(LATER, "another namespace", || started().then_some(())).unwrap();
        }
        place.open_gate();
        wait::until(LATER, "the source", || {
            (registered(&daemon, name) == json!({ "keys": "v1 Secret" })).then_some(())
        })
        .unwrap();
        daemon.await_quiet();
        // In other namespaces, it is of the same version.
        assert_eq!(daemon.runs_of("p"), if in_place { 3 } else { 2 }, "in place: {in_place}");
        assert_eq!(registered(&daemon, name), json!({ "keys": "v1 Secret" }));
    }
}

#[test]
fn a_run_that_registers_does_not_wait_for_filters_that_wait_for_it() {
    // ES-4, IS-1
    let place = Place::new("waits");
    let name = place.namespace.name();
    let plugin = format!("limits: {{ timeout: 30s, concurrency: 1, requests: 1000 }}\n{GRANTS}");
    let fields = "filters: { generic: { export: wanted } }
indexes: { by-map: { cel: object.metadata.name } }
sources: { maps: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { annotations: {} } } } }
";
    let daemon = place.daemon(&place.manifest("probe", PROBES, &plugin, fields));
    let informer = json!({ "apiVersion": "v1", "kind": "Secret", "mapper": { "index": { "name": "by-map", "key": { "cel": "object.metadata.name" } } } });
    let registers = json!({ "register": { "name": "keys", "declaration": { "informer": informer } }, "as": "keys" });
    place.probe("p", json!({ "reconcile": { "do": [place.gate(), registers] } }));
    let held = || (daemon.runs() == 2 && daemon.active() == 1).then_some(());
    wait::until(SOON, "a run that waits", held).unwrap();
    // Whether they count is asked of the component, which the run has for itself: one after the other.
    for name in ["q", "r", "s"] {
        place.probe(name, json!({}));
    }
    let secrets = place.namespace.path("v1", "secrets");
    place.create("v1", "Secret", &secrets, "p", json!({}));
    let begun = tokio::time::Instant::now();
    place.open_gate();
    place.await_object(&place.probes(), "p", "its source", |p| p["status"]["keys"].is_boolean());
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(registered(&daemon, name), json!({ "keys": "v1 Secret" }));
    daemon.await_quiet();
    let before = daemon.runs_of("p");
    place.merge(&secrets, "p", &json!({ "metadata": { "labels": { "changed": "by-others" } } }));
    runs_more(&daemon, "p", before);
}

#[test]
fn a_source_that_a_run_registers_asks_the_component_whose_its_objects_are_and_which_changes_count() {
    // ES-4, IM-3, IS-1
    let place = Place::new("regexport");
    // One call for the run that registers, and one for the mapper.
    let plugin = format!("limits: {{ concurrency: 2 }}\n{GRANTS}");
    let daemon = place.daemon(&place.manifest("probe", PROBES, &plugin, ""));
    let asked = |keys: &str, accepts: bool| {
        let spec = json!({ "mappers": { "lead": { "keys": [keys] } }, "filters": { "shown": { "accepts": accepts } } });
        json!({ "test.capstan.dev/spec": spec.to_string() })
    };
    let map = |annotations: Value| json!({ "metadata": { "annotations": annotations } });
    place.create("v1", "ConfigMap", &place.config_maps(), "m", json!({}));
    place.merge(&place.config_maps(), "m", &map(asked("p", true)));
    let informer = json!({ "apiVersion": "v1", "kind": "ConfigMap", "mapper": { "export": "lead" }, "filters": { "generic": { "export": "shown" } } });
    let register = json!({ "register": { "name": "maps", "declaration": { "informer": informer } }, "as": "maps" });
    let read = json!({ "read": { "in": { "source": "maps" }, "select": "related" } });
    place.probe("p", json!({ "reconcile": { "do": [register, read] } }));
    place.await_object(&place.probes(), "p", "what belongs to it", |p| p["status"]["read"] == json!(["m"]));
    daemon.await_quiet();
    let before = daemon.runs_of("p");
    place.merge(&place.config_maps(), "m", &map(asked("p", false)));
    daemon.await_quiet();
    assert_eq!(daemon.runs_of("p"), before, "the filter does not want it");
    place.merge(&place.config_maps(), "m", &map(asked("q", true)));
    runs_more(&daemon, "p", before);
    place.await_object(&place.probes(), "p", "that it belongs to another one", |p| p["status"]["read"] == json!([]));
}

#[test]
fn what_is_registered_goes_on_in_the_namespaces_that_come_and_wakes_nobody_for_that() {
    // ES-4, NS-2
    let (own, other) = (Place::new("regns"), Place::new("regns-other"));
    let (first, second) = (own.namespace.name(), other.namespace.name());
    // Without a cleaner there are no runs for finalizers.
    let folder = replaced_exports(&own.manifest("probe", PROBES, GRANTS, ""), &[("cleaner", "tidying")]);
    let manifest = fs::read_to_string(folder.path("operator.yaml")).unwrap();
    let daemon = folder.daemon(&own);
    let watch = |names: &str| {
        let moved = manifest.replace(&format!("namespaces: [{first}]"), &format!("namespaces: [{names}]"));
        folder.put("operator.yaml", moved);
    };
    for (place, name) in [(&own, "p"), (&other, "q")] {
        let steps = json!([register("maps", "ConfigMap"), applied(place, "ConfigMap", name)]);
        place.probe(name, json!({ "reconcile": { "do": steps } }));
    }
    own.await_object(&own.config_maps(), "p", "what the run writes", |_| true);
    daemon.await_quiet();
    let (before, maps) = (daemon.runs_of("p"), json!({ "maps": "v1 ConfigMap" }));
    assert_eq!((registered(&daemon, first), daemon.runs_of("q")), (maps.clone(), 0));

    watch(&format!("{first}, {second}"));
    other.await_object(&other.config_maps(), "q", "what the run writes", |_| true);
    daemon.await_quiet();
    assert_eq!((registered(&daemon, first), daemon.runs_of("p")), (maps.clone(), before), "only what is new has run");
    assert_eq!((informers_of_maps(&daemon, &own), informers_of_maps(&daemon, &other)), (1, 1));
    for (place, name) in [(&own, "p"), (&other, "q")] {
        let before = daemon.runs_of(name);
        place.merge(&place.config_maps(), name, &json!({ "metadata": { "labels": { "changed": "by-others" } } }));
        runs_more(&daemon, name, before);
        daemon.await_quiet();
    }

    let before = daemon.runs_of("q");
    watch(second);
    wait::until(LATER, "the namespace is left", || (informers_of_maps(&daemon, &own) == 0).then_some(())).unwrap();
    daemon.await_quiet();
    let (left, stays) = (daemon.runs_of("p"), daemon.runs_of("q"));
    assert_eq!((registered(&daemon, first), stays), (maps, before));
    for (place, name) in [(&own, "p"), (&other, "q")] {
        place.merge(&place.config_maps(), name, &json!({ "metadata": { "labels": { "changed": "again" } } }));
    }
    runs_more(&daemon, "q", stays);
    daemon.await_quiet();
    assert_eq!(daemon.runs_of("p"), left);
}

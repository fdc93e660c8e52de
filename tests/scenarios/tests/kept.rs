//! What is kept of what controllers watch, and with whom they share it.

use cluster::wait;
use scenarios::{Daemon, Folder, LATER, Place, SOON};
use serde_json::{Value, json};

const PROBES: &str = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
const PAGES: &str = "{ apiVersion: sample.capstan.dev/v1, kind: WebPage }";

/// The sources of a controller: config maps that name their primary in an annotation.
fn maps(more: &str) -> String {
    format!(
        "sources:\n  maps: {{ informer: {{ apiVersion: v1, kind: ConfigMap, mapper: {{ annotations: {{}} }}{more} }} }}\n"
    )
}

/// Returns the scopes of the informers of config maps of this place, in order.
fn informers_of_maps(daemon: &Daemon, place: &Place) -> Vec<String> {
    let informers = daemon.informers(place.namespace.name()).into_iter();
    let mut scopes: Vec<_> = informers.map(|informer| informer["scope"].as_str().unwrap().to_owned()).collect();
    scopes.retain(|scope| scope.starts_with("v1 ConfigMap"));
    scopes.sort_unstable();
    scopes
}

/// Makes a primary of each controller, with this spec of the probe.
fn primaries(place: &Place, spec: Value) {
    place.probe("p", spec);
    place.create("sample.capstan.dev/v1", "WebPage", &place.pages(), "page", json!({ "spec": { "html": "" } }));
}

/// Makes a config map, and waits for the run of its primary.
fn wakes(daemon: &Daemon, place: &Place, primary: &str, name: &str) {
    let before = daemon.runs_of(primary);
    place.cluster.api().create(&place.config_maps(), &place.map_of(primary, name, json!({ "a": "1" }))).unwrap();
    wait::until(SOON, "a run", || (daemon.runs_of(primary) > before).then_some(())).unwrap();
}

#[test]
fn s152_two_controllers_have_an_informer_of_a_kind_each() {
    // PO-4
    let place = Place::new("s152");
    let name = place.namespace.name();
    let manifest = |kind: &str| place.manifest("probe", kind, "", &maps(", shared: false"));
    let pages = place.renamed(&manifest(PAGES), "pages");
    let daemon = place.daemon(&format!("{}---\n{pages}", manifest(PROBES)));
    primaries(&place, json!({}));
    daemon.await_runs(4);
    daemon.await_quiet();
    let expected =
        [format!("{name}-pages"), name.to_owned()].map(|who| format!("v1 ConfigMap in {name} for {who}/maps alone"));
    assert_eq!(informers_of_maps(&daemon, &place), expected);
    assert_eq!(daemon.informers(name).len(), 4, "and one of each kind of primaries");
    for primary in ["p", "page"] {
        wakes(&daemon, &place, primary, primary);
    }
}

#[test]
fn s154_one_of_two_informers_of_a_kind_goes_with_its_controller_and_the_other_stays() {
    // PO-4
    let place = Place::new("s154");
    let name = place.namespace.name();
    let folder = Folder::new();
    let manifest = |kind: &str| place.manifest("probe", kind, "", &maps(", shared: false"));
    folder.put("probes.yaml", manifest(PROBES));
    folder.put("pages.yaml", place.renamed(&manifest(PAGES), "pages"));
    let daemon = folder.daemon(&place);
    primaries(&place, json!({}));
    daemon.await_runs(4);
    daemon.await_quiet();
    assert_eq!(informers_of_maps(&daemon, &place).len(), 2);
    std::fs::remove_file(folder.path("pages.yaml")).unwrap();
    let left = format!("v1 ConfigMap in {name} for {name}/maps alone");
    wait::until(LATER, "the end of one informer", || {
        (informers_of_maps(&daemon, &place) == [left.clone()]).then_some(())
    })
    .unwrap();
    let of_page = daemon.runs_of("page");
    wakes(&daemon, &place, "p", "one");
    place.cluster.api().create(&place.config_maps(), &place.map_of("page", "other", json!({}))).unwrap();
    wakes(&daemon, &place, "p", "two");
    assert_eq!(daemon.runs_of("page"), of_page);
}

/// Returns a step that registers a source with an informer of its own.
fn register() -> Value {
    let mapper = json!({ "annotations": {} });
    let informer = json!({ "apiVersion": "v1", "kind": "ConfigMap", "mapper": mapper, "shared": false });
    json!({ "register": { "name": "maps", "declaration": { "informer": informer } }, "as": "maps" })
}

/// Returns the manifests of a controller whose runs may register a source, and of one that declares the same.
fn registers_and_declares(place: &Place) -> String {
    let watches = "capabilities:\n  kubernetes: [{ apiVersion: v1, kind: ConfigMap, verbs: [watch] }]\n";
    let pages = place.renamed(&place.manifest("probe", PAGES, "", &maps(", shared: false")), "pages");
    format!("{pages}---\n{}", place.manifest("probe", PROBES, watches, ""))
}

#[test]
fn s154_one_of_two_informers_of_a_kind_goes_when_a_run_deregisters_it_and_the_other_stays() {
    // ES-4, PO-4
    let place = Place::new("s154b");
    let name = place.namespace.name();
    let daemon = place.daemon(&registers_and_declares(&place));
    primaries(&place, json!({ "reconcile": { "do": [register()] } }));
    wait::until(SOON, "the second informer", || (informers_of_maps(&daemon, &place).len() == 2).then_some(())).unwrap();
    daemon.await_runs(4);
    daemon.await_quiet();
    for primary in ["p", "page"] {
        wakes(&daemon, &place, primary, primary);
    }
    place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "do": [{ "deregister": "maps" }] } } }));
    let left = format!("v1 ConfigMap in {name} for {name}-pages/maps alone");
    wait::until_ok(SOON, "the end of one informer", || match informers_of_maps(&daemon, &place) {
        informers if informers == [left.clone()] => Ok(()),
        informers => Err(format!("{informers:?}")),
    })
    .unwrap();
    daemon.await_quiet();
    let before = daemon.runs_of("p");
    place.cluster.api().create(&place.config_maps(), &place.map_of("p", "one", json!({}))).unwrap();
    wakes(&daemon, &place, "page", "other");
    daemon.await_quiet();
    assert_eq!(daemon.runs_of("p"), before);
}

#[test]
fn s156_a_source_that_a_run_registers_has_an_informer_of_its_own_and_is_told_what_there_is() {
    // ES-4, PO-2, PO-3, PO-4: the run that begins it sees what there is.
    let place = Place::new("s156");
    place.cluster.api().create(&place.config_maps(), &place.map_of("p", "third", json!({}))).unwrap();
    let daemon = place.daemon(&registers_and_declares(&place));
    assert_eq!(informers_of_maps(&daemon, &place).len(), 1);
    let read = json!({ "read": { "in": { "source": "maps" }, "select": "related" } });
    primaries(&place, json!({ "reconcile": { "do": [register(), read] } }));
    place.await_object(&place.probes(), "p", "what there is", |p| p["status"]["read"] == json!(["third"]));
    // The first run adds the finalizer; what the source is told wakes the primary again.
    wait::until(SOON, "its run for what there is", || (daemon.runs_of("p") >= 3).then_some(())).unwrap();
    assert_eq!(informers_of_maps(&daemon, &place).len(), 2);
}

#[test]
fn a_source_that_a_manifest_brings_later_has_an_informer_of_its_own_and_is_told_what_there_is() {
    // PO-3, PO-4
    let place = Place::new("brought");
    let folder = Folder::new();
    // Only what the source is told can cause a run.
    let manifest = |fields: &str| place.manifest("probe", PROBES, "onSwap: nothing\n", fields);
    folder.put("probes.yaml", manifest(""));
    folder.put("pages.yaml", place.renamed(&place.manifest("probe", PAGES, "", &maps(", shared: false")), "pages"));
    let daemon = folder.daemon(&place);
    let read = json!({ "read": { "in": { "source": "maps" }, "select": "related" }, "mayFail": true });
    primaries(&place, json!({ "reconcile": { "do": [read] } }));
    place.cluster.api().create(&place.config_maps(), &place.map_of("p", "m", json!({}))).unwrap();
    daemon.await_runs(4);
    daemon.await_quiet();
    let before = daemon.runs_of("p");
    assert_eq!(informers_of_maps(&daemon, &place).len(), 1);
    folder.put("probes.yaml", manifest(&maps(", shared: false")));
    place.await_object(&place.probes(), "p", "what there is", |p| p["status"]["read"] == json!(["m"]));
    daemon.await_quiet();
    assert_eq!((daemon.runs_of("p"), informers_of_maps(&daemon, &place).len()), (before + 1, 2));
}

#[test]
fn controllers_that_share_a_watch_see_of_it_what_each_keeps() {
    // BC-2
    let place = Place::new("kept");
    let grants = "capabilities:\n  kubernetes: [{ apiVersion: v1, kind: ConfigMap, verbs: [get, update, patch] }]\n";
    let manifest = |which: &str, more: &str| {
        let fields = format!("labelSelector: test.capstan.dev/which={which}\n{}", maps(more));
        place.renamed(&place.manifest("probe", PROBES, grants, &fields), which)
    };
    let folder = Folder::new();
    folder.put("a.yaml", manifest("a", ", keep: [/data/a]"));
    let daemon = folder.daemon(&place);
    for (which, seen) in [
        ("a", json!([{ "/data/a": "1", "/data/b": null, "/kind": "ConfigMap" }])),
        ("b", json!([{ "/data/a": null, "/data/b": "2", "/kind": "ConfigMap" }])),
        ("c", json!([{ "/data/a": null, "/data/b": null, "/kind": "ConfigMap" }])),
    ] {
        let name = format!("map-{which}");
        place
            .cluster
            .api()
            .create(&place.config_maps(), &place.map_of(which, &name, json!({ "a": "1", "b": "2" })))
            .unwrap();
        let read = json!({ "read": { "in": { "source": "maps" }, "select": "related" }, "show": ["/data/a", "/data/b", "/kind"] });
        let labels = json!({ "test.capstan.dev/which": which });
        let probe = json!({ "metadata": { "labels": labels }, "spec": { "reconcile": { "do": [read] } } });
        place.create("test.capstan.dev/v1", "Probe", &place.probes(), which, probe);
        // Each comes while the others run, and needs other fields than they.
        match which {
            "b" => folder.put("b.yaml", manifest("b", ", drop: [/data/a]")),
            "c" => folder.put("c.yaml", manifest("c", ", keep: metadata")),
            _ => {}
        }
        place.await_object(&place.probes(), which, "what it sees", |p| p["status"]["read"] == seen);
    }
    daemon.await_quiet();
    assert_eq!(informers_of_maps(&daemon, &place).len(), 1);

    // An update would delete what it has not seen; a patch does not.
    let done = |deed: Value, what: &str, wanted: &dyn Fn(&Value) -> bool| {
        let steps = json!([{ "write": deed, "mayFail": true, "as": "done", "show": ["/data/a", "/data/b"] }]);
        place.merge(&place.probes(), "a", &json!({ "spec": { "reconcile": { "do": steps } } }));
        let probe = place.await_object(&place.probes(), "a", what, |p| wanted(&p["status"]["done"]));
        probe["status"]["done"].clone()
    };
    let update =
        json!({ "verb": "update", "mode": "force-filter", "object": place.map_of("a", "map-a", json!({ "a": "3" })) });
    let refused = done(update, "the refusal", &|done| done["refused"] == "invalid");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("source maps does not keep all fields"), "{message}");
    let target =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "namespace": place.namespace.name(), "name": "map-a" });
    let patch = json!({ "verb": "mergePatch", "target": target, "patch": { "data": { "a": "3" } } });
    let answer = done(patch, "the patch", &|done| done["/data/a"] == "3");
    assert_eq!(answer["/data/b"], Value::Null, "nor is it told by the answer");
    let map = place.find(&place.config_maps(), "map-a").unwrap();
    assert_eq!(map["data"], json!({ "a": "3", "b": "2" }));
}

#[test]
fn a_watch_that_one_of_two_sources_wants_packed_is_packed_and_both_see_all_of_it() {
    // BC-4
    let place = Place::new("packed");
    let settings = |n: usize| {
        let lines = (0..100).map(|i| format!("tenant-{n}.setting.{i}.enabled = false   # see the handbook\n"));
        lines.collect::<Vec<_>>().concat()
    };
    let text: usize = (0..200).map(|n| settings(n).len()).sum();
    for n in 0..200 {
        let which = if n % 2 == 0 { "a" } else { "b" };
        let mut map = place.map_of(which, &format!("map-{n}"), json!({ "settings": settings(n) }));
        map["metadata"]["labels"] = json!({ "number": n.to_string() });
        place.cluster.api().create(&place.config_maps(), &map).unwrap();
    }
    let manifest = |which: &str, more: &str| {
        let fields = format!("labelSelector: test.capstan.dev/which={which}\n{}", maps(more));
        place.renamed(&place.manifest("probe", PROBES, "", &fields), which)
    };
    let folder = Folder::new();
    folder.put("a.yaml", manifest("a", ", packed: true"));
    folder.put("b.yaml", manifest("b", ", filters: { onUpdate: { cel: object.data != oldObject.data } }"));
    let daemon = folder.daemon(&place);
    let name = place.namespace.name();
    assert_eq!(informers_of_maps(&daemon, &place).len(), 1);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a number of bytes")]
    let cached = || daemon.metric("capstan_informer_bytes", name) as usize;
    wait::until(SOON, "what is there packed", || (cached() < text / 3).then_some(())).unwrap();

    // One is found by its name, one by its label, which are in no header.
    for (which, n) in [("a", 6), ("b", 7)] {
        let named = json!({ "named": { "namespace": name, "name": format!("map-{n}") } });
        let one =
            json!({ "read": { "in": { "source": "maps" }, "select": named }, "show": ["/data/settings"], "as": "one" });
        let labelled = json!({ "read": { "in": { "source": "maps" }, "select": "related", "labels": format!("number={n}") }, "show": ["/metadata/name", "/data/settings"], "as": "labelled" });
        let labels = json!({ "test.capstan.dev/which": which });
        let probe = json!({ "metadata": { "labels": labels }, "spec": { "reconcile": { "do": [one, labelled] } } });
        place.create("test.capstan.dev/v1", "Probe", &place.probes(), which, probe);
        place.await_object(&place.probes(), which, "what was packed", |p| {
            let [one, labelled] = ["one", "labelled"].map(|name| &p["status"][name]);
            *one == json!({ "/data/settings": settings(n) })
                && *labelled == json!([{ "/metadata/name": format!("map-{n}"), "/data/settings": settings(n) }])
        });
    }
    daemon.await_quiet();

    // What was packed before is compared with what comes.
    let before = daemon.runs_of("b");
    place.merge(&place.config_maps(), "map-9", &json!({ "metadata": { "labels": { "more": "1" } } }));
    place.merge(&place.config_maps(), "map-7", &json!({ "data": { "settings": "none" } }));
    place.await_object(&place.probes(), "b", "the change", |p| p["status"]["one"]["/data/settings"] == "none");
    daemon.await_quiet();
    assert_eq!(daemon.runs_of("b"), before + 1, "a label is filtered out");

    // Once nobody wants that any more, all goes on as it is.
    folder.remove("a.yaml");
    wait::until(LATER, "the end of one", || daemon.controller(&format!("{name}-a")).is_none().then_some(())).unwrap();
    place.merge(&place.config_maps(), "map-7", &json!({ "data": { "settings": settings(7) } }));
    place.await_object(&place.probes(), "b", "a change", |p| p["status"]["one"]["/data/settings"] == settings(7));
    place.merge(&place.probes(), "b", &json!({ "spec": { "reconcile": { "do": [{ "read": { "in": { "source": "maps" }, "select": { "named": { "namespace": name, "name": "map-11" } } }, "show": ["/data/settings"], "as": "one" }] } } }));
    place.await_object(&place.probes(), "b", "what is packed still", |p| {
        p["status"]["one"]["/data/settings"] == settings(11)
    });
    assert!(cached() < text / 3);
}

#[test]
fn metadata_alone_are_watched_if_nobody_needs_more() {
    // BC-2
    let place = Place::new("metadata");
    let large = json!({ "a": "x".repeat(100_000) });
    place.cluster.api().create(&place.config_maps(), &place.map_of("p", "large", large)).unwrap();
    let daemon = place.daemon(&place.probe_manifest(&maps(", keep: metadata")));
    let shown = ["/apiVersion", "/kind", "/metadata/annotations", "/data"];
    let read = json!({ "read": { "in": { "source": "maps" }, "select": "one" }, "show": shown });
    place.probe("p", json!({ "reconcile": { "do": [read] } }));
    let probe = place.await_object(&place.probes(), "p", "what it sees", |p| p["status"]["read"].is_object());
    let annotations = json!({ "capstan.dev/primary-name": "p" });
    let seen =
        json!({ "/apiVersion": "v1", "/kind": "ConfigMap", "/metadata/annotations": annotations, "/data": null });
    assert_eq!(probe["status"]["read"], seen);
    wakes(&daemon, &place, "p", "later");
}

/// Three primaries, each with a config map that it owns, over a source that keeps one of them whole.
fn bounded(place: &Place, (kind, path): (&str, &str), names: &[String; 3]) {
    let primary = format!("{{ apiVersion: test.capstan.dev/v1, kind: {kind} }}");
    let namespace = place.namespace.name();
    // Only these are looked at: there is one of the whole cluster's kind for each test.
    let fields = format!(
        "labelSelector: test.capstan.dev/of={namespace}\nsources:\n  maps: {{ informer: {{ apiVersion: v1, kind: ConfigMap, bounded: {{ objects: 1, unused: 1m }} }} }}\n"
    );
    let grants = format!(
        "capabilities:\n  kubernetes: [{{ apiVersion: v1, kind: ConfigMap, verbs: [get, create], namespaces: [{namespace}] }}]\n"
    );
    let daemon = place.daemon(&place.manifest("probe", &primary, &grants, &fields));
    for (i, name) in names.iter().enumerate() {
        let labels = json!({ "test.capstan.dev/of": namespace });
        let primary = json!({ "metadata": { "labels": labels }, "spec": {} });
        let uid = place.create("test.capstan.dev/v1", kind, path, name, primary)["metadata"]["uid"].take();
        let owner = json!({ "apiVersion": "test.capstan.dev/v1", "kind": kind, "name": name, "uid": uid });
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "dataKey": format!("data-{i}") },
            "metadata": { "name": name, "namespace": namespace, "ownerReferences": [owner] },
        });
        let read = json!({ "read": { "in": { "source": "maps" }, "select": { "named": { "namespace": namespace, "name": name } } }, "show": ["/data/dataKey"] });
        let create = json!({ "write": { "verb": "create", "object": map }, "mayFail": true, "as": "created" });
        place.merge(path, name, &json!({ "spec": { "reconcile": { "do": [create, read] } } }));
    }
    let seen = |what: &str, value: &dyn Fn(usize) -> String| {
        for (i, name) in names.iter().enumerate() {
            place.await_object(path, name, what, |p| p["status"]["read"]["/data/dataKey"] == value(i).as_str());
        }
    };
    let has = |value: &dyn Fn(usize) -> String| {
        for (i, name) in names.iter().enumerate() {
            let map = place.find(&place.config_maps(), name).unwrap();
            assert_eq!(map["data"]["dataKey"], value(i), "{name}");
        }
    };
    seen("what was made", &|i| format!("data-{i}"));
    has(&|i| format!("data-{i}"));
    for (i, name) in names.iter().enumerate() {
        let value = format!("updatedPrefix{i}");
        place.merge(&place.config_maps(), name, &json!({ "data": { "dataKey": value } }));
    }
    seen("what others have made of it", &|i| format!("updatedPrefix{i}"));
    daemon.await_quiet();
    let reads = || daemon.count("capstan_reconciliations_recalled_total", "");
    // Each of these runs finds all but one forgotten.
    let before = reads();
    for name in names {
        place.merge(path, name, &json!({ "spec": { "again": true } }));
        let generation = place.find(path, name).unwrap()["metadata"]["generation"].clone();
        place.await_object(path, name, "a run", |p| p["status"]["observedGeneration"] == generation);
    }
    daemon.await_quiet();
    assert!(reads() >= before + 2, "{before} to {}", reads());
    seen("the same", &|i| format!("updatedPrefix{i}"));
    assert_eq!(daemon.count("capstan_reconciliations_failure_total", ""), 0);
    has(&|i| format!("updatedPrefix{i}"));
    for name in names {
        place.delete(path, name);
    }
    // The config maps go with their owners.
    for name in names {
        place.await_gone(path, name);
        place.await_gone(&place.config_maps(), name);
    }
}

#[test]
fn s139_a_bounded_cache_forgets_nothing_that_primaries_of_the_whole_cluster_need() {
    // BC-1
    let place = Place::new("s139");
    let names = [0, 1, 2].map(|i| format!("{}-{i}", place.namespace.name()));
    bounded(&place, ("ClusterProbe", "/apis/test.capstan.dev/v1/clusterprobes"), &names);
}

#[test]
fn s140_a_bounded_cache_forgets_nothing_that_primaries_of_a_namespace_need() {
    // BC-1
    let place = Place::new("s140");
    let names = [0, 1, 2].map(|i| format!("p{i}"));
    bounded(&place, ("Probe", &place.probes()), &names);
}

#[test]
fn primaries_of_which_few_are_kept_whole_run_and_are_cleaned_up_like_others() {
    // BC-1
    let place = Place::new("bounded-own");
    let daemon = place.daemon(&place.probe_manifest("bounded: { objects: 1 }\nindexes: { by-theme: { pointer: /spec/theme } }\nsources: { maps: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { index: { name: by-theme } } } } }\n"));
    for name in ["a", "b", "c"] {
        place.probe(
            name,
            json!({ "theme": format!("of-{name}"), "reconcile": { "status": { "seen": format!("1 {name}") } } }),
        );
    }
    let await_seen = |name: &str, what: &str| {
        place.await_object(&place.probes(), name, what, |probe| probe["status"]["seen"] == format!("{what} {name}"))
    };
    for name in ["a", "b", "c"] {
        await_seen(name, "1");
    }
    daemon.await_quiet();
    let recalled = || daemon.count("capstan_reconciliations_recalled_total", "");
    // What leads to a primary stays of it, and it is read again for its run.
    let before = recalled();
    for name in ["a", "b", "c"] {
        let runs = daemon.runs_of(name);
        place.create("v1", "ConfigMap", &place.config_maps(), &format!("of-{name}"), json!({}));
        wait::until(SOON, "a run for what is of its theme", || (daemon.runs_of(name) > runs).then_some(())).unwrap();
    }
    assert!(recalled() >= before + 2, "{before} {}", recalled());
    daemon.await_quiet();
    let runs: usize = ["a", "b", "c"].map(|name| daemon.runs_of(name)).into_iter().sum();
    for name in ["a", "b", "c"] {
        place.merge(&place.probes(), name, &json!({ "metadata": { "labels": { "generation": "stays" } } }));
    }
    daemon.await_quiet();
    let now: usize = ["a", "b", "c"].map(|name| daemon.runs_of(name)).into_iter().sum();
    assert_eq!(now, runs, "an update without a new generation causes no run, of whatever is forgotten");
    for name in ["a", "b", "c"] {
        place.merge(
            &place.probes(),
            name,
            &json!({ "spec": { "reconcile": { "status": { "seen": format!("2 {name}") } } } }),
        );
        await_seen(name, "2");
    }
    for name in ["a", "b", "c"] {
        place.delete(&place.probes(), name);
        place.await_gone(&place.probes(), name);
    }
}

//! Dependents and workflows: what is made, in which order, and what becomes of it.

use cluster::{Mark, Query, wait};
use scenarios::{Daemon, Folder, LATER, Place, SOON};
use serde_json::{Value, json};

fn config_map(name: &str, data: &Value) -> Value {
    json!({ "metadata": { "name": name }, "data": data })
}

/// Returns a manifest with these dependents, in YAML flow style, one per line.
fn manifest(place: &Place, dependents: &str) -> String {
    let lines: String = dependents.lines().map(|line| format!("    {}\n", line.trim())).collect();
    place.probe_manifest(&format!("workflow:\n  dependents:\n{lines}"))
}

fn gone(place: &Place, name: &str) {
    wait::until_ok(SOON, &format!("the end of {name}"), || match place.find(&place.config_maps(), name) {
        None => Ok(()),
        Some(object) => Err(object.to_string()),
    })
    .unwrap();
}

#[test]
fn s087_dependents_alone_can_need_a_finalizer() {
    let place = Place::new("s087");
    // The probe exports a cleaner, so the finalizer alone would prove nothing: the config map is deleted by the workflow.
    let daemon = place.daemon(&manifest(&place, "cm: { apiVersion: v1, kind: ConfigMap, garbageCollected: false }"));
    place.probe("p", json!({ "dependents": { "cm": config_map("s087", &json!({ "a": "b" })) } }));
    place.await_object(&place.config_maps(), "s087", "the config map", |_| true);
    place.await_object(&place.probes(), "p", "the finalizer", |p| {
        p["metadata"]["finalizers"].as_array().is_some_and(|f| f.len() == 1)
    });
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
    gone(&place, "s087");
    assert_eq!(daemon.log().matches("dependent deleted").count(), 1);
}

#[test]
fn s087_dependents_alone_need_a_finalizer_where_no_cleaner_is_exported() {
    let place = Place::new("s087alone");
    let page = "{ apiVersion: sample.capstan.dev/v1, kind: WebPage }";
    let workflow =
        "workflow:\n  dependents:\n    configmap: { apiVersion: v1, kind: ConfigMap, garbageCollected: false }\n";
    let daemon = place.daemon(&place.manifest("webpage", page, "", workflow));
    let spec = json!({ "spec": { "html": "<html>1</html>" } });
    place.create("sample.capstan.dev/v1", "WebPage", &place.pages(), "page", spec);
    let made = place.await_object(&place.pages(), "page", "the finalizer", |p| {
        p["metadata"]["finalizers"].as_array().is_some_and(|f| f.len() == 1)
    });
    place.await_object(&place.config_maps(), "page-html", "the config map", |_| true);
    daemon.await_quiet();
    place.delete(&place.pages(), "page");
    place.await_gone(&place.pages(), "page");
    place.await_gone(&place.config_maps(), "page-html");
    assert_eq!(daemon.log().matches("dependent deleted").count(), 1, "{made}");
    // One adds the finalizer, one reconciles, one deletes.
    assert_eq!(daemon.runs(), 3);
}

#[test]
fn s088_a_create_only_dependent_leaves_what_exists_alone() {
    let place = Place::new("s088");
    place.create("v1", "ConfigMap", &place.config_maps(), "taken", json!({ "data": { "key": "value" } }));
    let daemon = place
        .daemon(&manifest(&place, "cm: { apiVersion: v1, kind: ConfigMap, serverSideApply: true, createOnly: true }"));
    place.probe("p", json!({ "dependents": { "cm": config_map("taken", &json!({ "other": "x" })) } }));
    let line = daemon.await_line("the run failed");
    assert!(line.contains("409"), "{line}");
    let map = place.find(&place.config_maps(), "taken").unwrap();
    assert_eq!(map["data"], json!({ "key": "value" }));
}

#[test]
fn s089_annotations_map_a_dependent_that_is_not_garbage_collected() {
    let place = Place::new("s089");
    let daemon = place.daemon(&manifest(&place, "cm: { apiVersion: v1, kind: ConfigMap, garbageCollected: false }"));
    place.probe("p", json!({ "dependents": { "cm": config_map("s089", &json!({ "a": "b" })) } }));
    let map = place.await_object(&place.config_maps(), "s089", "the config map", |_| true);
    let annotations = &map["metadata"]["annotations"];
    assert_eq!(annotations["capstan.dev/primary-name"], "p");
    assert_eq!(annotations["capstan.dev/primary-namespace"], place.namespace.name());
    assert_eq!(map["metadata"]["ownerReferences"], Value::Null);
    daemon.await_quiet();
    // One run adds the finalizer, one reconciles; the write's own event causes none.
    assert_eq!(daemon.runs(), 2);
    place.merge(&place.config_maps(), "s089", &json!({ "data": { "a": "edited" } }));
    place.await_object(&place.config_maps(), "s089", "the repair", |map| map["data"]["a"] == "b");
    daemon.await_quiet();
    assert_eq!(daemon.runs(), 3);
}

#[test]
fn s104_a_garbage_collected_dependent_goes_with_its_primary() {
    let place = Place::new("s104");
    let _daemon = place.daemon(&manifest(&place, "cm: { apiVersion: v1, kind: ConfigMap }"));
    let probe = place.probe("p", json!({ "dependents": { "cm": config_map("s104", &json!({ "a": "b" })) } }));
    let map = place.await_object(&place.config_maps(), "s104", "the config map", |_| true);
    let owners = map["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0]["uid"], probe["metadata"]["uid"]);
    place.await_object(&place.probes(), "p", "the finalizer", |p| p["metadata"]["finalizers"].is_array());
    place.delete(&place.probes(), "p");
    place.await_gone(&place.config_maps(), "s104");
}

#[test]
fn s104_a_dependent_goes_when_its_precondition_ceases_to_be_met() {
    let place = Place::new("s104b");
    let line = "cm: { apiVersion: v1, kind: ConfigMap, reconcilePrecondition: { cel: primary.spec.createConfigMap } }";
    let _daemon = place.daemon(&manifest(&place, line));
    place.probe(
        "p",
        json!({ "createConfigMap": true, "dependents": { "cm": config_map("s104b", &json!({ "a": "b" })) } }),
    );
    place.await_object(&place.config_maps(), "s104b", "the config map", |_| true);
    place.merge(&place.probes(), "p", &json!({ "spec": { "createConfigMap": false } }));
    gone(&place, "s104b");
    place.merge(&place.probes(), "p", &json!({ "spec": { "createConfigMap": true } }));
    place.await_object(&place.config_maps(), "s104b", "its return", |_| true);
}

#[test]
fn an_inactive_dependent_is_left_alone_and_wakes_nobody() {
    let place = Place::new("asleep");
    let line = "cm: { apiVersion: v1, kind: ConfigMap, activation: { cel: primary.spec.createConfigMap } }";
    let daemon = place.daemon(&manifest(&place, line));
    let made = json!({ "a": "b" });
    place.probe("p", json!({ "createConfigMap": true, "dependents": { "cm": config_map("asleep", &made) } }));
    place.await_object(&place.config_maps(), "asleep", "the config map", |_| true);
    let switch = |on| {
        let spec = json!({ "spec": { "createConfigMap": on } });
        place.merge(&place.probes(), "p", &spec);
        daemon.await_quiet();
    };
    let edit = || {
        let edited = json!({ "data": { "a": "c" } });
        place.merge(&place.config_maps(), "asleep", &edited);
        daemon.await_quiet();
        let object = place.find(&place.config_maps(), "asleep").unwrap();
        (daemon.runs(), object["data"] == made)
    };
    switch(false);
    let runs = daemon.runs();
    assert_eq!(edit(), (runs, false));
    switch(true);
    place.await_object(&place.config_maps(), "asleep", "what is desired", |map| map["data"] == made);
    let runs = daemon.runs();
    assert_eq!(edit(), (runs + 1, true));
}

#[test]
fn the_informer_of_a_dependent_comes_with_its_first_activation_and_goes_with_the_last() {
    // WF-4, WF-12
    let place = Place::new("demand");
    let line = "cm: { apiVersion: v1, kind: ConfigMap, activation: { cel: primary.spec.on } }";
    let folder = Folder::new();
    folder.put("probes.yaml", manifest(&place, line));
    let daemon = folder.daemon(&place);
    let informers = |daemon: &Daemon| {
        let informers = daemon.informers(place.namespace.name());
        let of_maps = informers.iter().filter(|one| one["scope"].as_str().unwrap().starts_with("v1 ConfigMap "));
        // Those that nobody needs any more are kept for a while.
        of_maps.filter(|informer| informer["needed"] == true).count()
    };
    let await_informers = |daemon: &Daemon, count: usize| {
        wait::until(SOON, "informers", || (informers(daemon) == count).then_some(())).unwrap();
    };
    let made = json!({ "a": "b" });
    for name in ["one", "two"] {
        place.probe(name, json!({ "on": false, "dependents": { "cm": config_map(name, &made) } }));
    }
    daemon.await_runs(4);
    daemon.await_quiet();
    assert_eq!(informers(&daemon), 0);
    let switch = |name: &str, on: bool| drop(place.merge(&place.probes(), name, &json!({ "spec": { "on": on } })));
    let edit = |name: &str| drop(place.merge(&place.config_maps(), name, &json!({ "data": { "a": "c" } })));
    let repaired =
        |name: &str| drop(place.await_object(&place.config_maps(), name, "repair", |map| map["data"] == made));
    for name in ["one", "two"] {
        switch(name, true);
        repaired(name);
        daemon.await_quiet();
        assert_eq!(informers(&daemon), 1);
    }
    edit("one");
    repaired("one");
    // Where it is watched, a change that leads to other sources leaves it so.
    let keys = "sources:\n  keys: { informer: { apiVersion: v1, kind: Secret } }\n";
    let other = manifest(&place, line).replace("workflow:", &format!("{}workflow:", keys.replace('\n', "\n      ")));
    folder.put("probes.yaml", other.replace("    probe:\n", "    probe:\n      onSwap: nothing\n"));
    wait::until(LATER, "other sources", || (daemon.informers(place.namespace.name()).len() == 3).then_some(()))
        .unwrap();
    edit("two");
    repaired("two");

    switch("one", false);
    daemon.await_quiet();
    assert_eq!(informers(&daemon), 1, "the other's is active");
    switch("two", false);
    await_informers(&daemon, 0);
    daemon.await_quiet();
    let runs = daemon.runs();
    edit("one");
    edit("two");
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs);
    switch("one", true);
    repaired("one");
    daemon.await_quiet();
    assert_eq!(informers(&daemon), 1);
    // The last one goes with its primary.
    place.delete(&place.probes(), "one");
    place.await_gone(&place.probes(), "one");
    await_informers(&daemon, 0);
    assert_eq!(place.find(&place.config_maps(), "two").unwrap()["data"], json!({ "a": "c" }), "it is left alone");
}

#[test]
fn nothing_is_read_of_a_dependent_that_is_inactive_for_all_and_all_of_one_that_is_active_for_another() {
    // CX-1a, WF-12
    let place = Place::new("unwatched");
    let daemon = place
        .daemon(&manifest(&place, "cm: { apiVersion: v1, kind: ConfigMap, activation: { cel: primary.spec.on } }"));
    let kind = json!({ "kind": { "apiVersion": "v1", "kind": "ConfigMap" } });
    let reads = [
        ("one", json!({ "source": "cm" }), json!("one")),
        ("some", json!({ "source": "cm" }), json!("related")),
        ("kind", kind.clone(), json!("one")),
        ("kinds", kind, json!("related")),
        ("named", json!({ "source": "cm" }), json!({ "named": { "namespace": place.namespace.name(), "name": "p" } })),
    ];
    let read = |(name, place, select): &(&str, Value, Value)| json!({ "read": { "in": place, "select": select }, "as": name, "mayFail": true });
    let steps: Vec<_> = reads.iter().map(read).collect();
    let spec = |name: &str, on: bool| json!({ "on": on, "dependents": { "cm": config_map(name, &json!({ "a": "b" })) }, "reconcile": { "do": steps } });
    place.probe("p", spec("p", true));
    let sees = |map: &Value| {
        let what = format!("{map} as what is read");
        place.await_object(&place.probes(), "p", &what, |p| {
            reads.iter().all(|(name, ..)| {
                let found = &p["status"][*name];
                [found, &found[0], &found["refused"]].contains(&map)
            })
        })
    };
    sees(&json!("p"));
    place.merge(&place.probes(), "p", &json!({ "spec": { "on": false } }));
    place.await_object(&place.probes(), "p", "nothing as what is read", |p| {
        reads.iter().all(|(name, ..)| [json!(null), json!([])].contains(&p["status"][*name]))
    });
    assert!(place.find(&place.config_maps(), "p").is_some(), "it is there all the same");
    // As soon as somebody else's is watched, it is seen.
    place.probe("q", spec("q", true));
    place.await_object(&place.config_maps(), "q", "the other one", |_| true);
    daemon.await_quiet();
    place.merge(&place.probes(), "p", &json!({ "spec": { "again": true } }));
    sees(&json!("p"));
}

#[test]
fn a_source_that_another_dependent_holds_after_a_change_is_watched_without_a_run() {
    // WF-12, PO-3
    let place = Place::new("holder");
    let folder = Folder::new();
    let line =
        |name: &str| format!("{name}: {{ apiVersion: v1, kind: ConfigMap, activation: {{ cel: primary.spec.on }} }}\n");
    let put = |lines: &str| {
        let manifest = manifest(&place, lines);
        folder.put("probes.yaml", manifest.replace("    probe:\n", "    probe:\n      onSwap: nothing\n"));
    };
    put(&format!("{}{}", line("first"), line("second")));
    let daemon = folder.daemon(&place);
    let made = json!({ "a": "b" });
    let maps = json!({ "first": config_map("first", &made), "second": config_map("second", &made) });
    place.probe("p", json!({ "on": true, "dependents": maps }));
    place.await_object(&place.config_maps(), "second", "the map", |_| true);
    daemon.await_quiet();
    let runs = daemon.runs();
    put(&line("second"));
    daemon.await_plugin("probe", "active", 2);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs);
    place.merge(&place.config_maps(), "second", &json!({ "data": { "a": "c" } }));
    place.await_object(&place.config_maps(), "second", "repair", |map| map["data"] == made);
}

#[test]
fn s127_dependents_are_made_in_their_order() {
    // WF-1
    let place = Place::new("s127");
    let lines = "cm2: { apiVersion: v1, kind: ConfigMap, dependsOn: [cm1] }\ncm1: { apiVersion: v1, kind: ConfigMap }";
    let daemon =
        place.daemon(&manifest(&place, lines).replace("plugin: probe\n", "plugin: probe\n      finalizer: a.dev/f\n"));
    let dependents = json!({ "cm1": config_map("s127-1", &json!({})), "cm2": config_map("s127-2", &json!({})) });
    place.probe("p", json!({ "dependents": dependents }));
    let second = place.await_object(&place.config_maps(), "s127-2", "the second", |_| true);
    let first = place.find(&place.config_maps(), "s127-1").unwrap();
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(version(&first) < version(&second));
    daemon.await_quiet();
    // The finalizer's run, and one that makes both.
    assert_eq!(daemon.runs(), 2, "{}", daemon.log());
}

#[test]
fn what_depends_on_an_unready_dependent_waits() {
    // WF-4
    let place = Place::new("ready");
    let lines = "second: { apiVersion: v1, kind: ConfigMap, dependsOn: [first] }\nfirst: { apiVersion: v1, kind: ConfigMap, readyPostcondition: { export: green } }";
    let daemon = place.daemon(&manifest(&place, lines));
    let dependents = json!({ "first": config_map("first", &json!({})), "second": config_map("second", &json!({})) });
    let steps = json!([{ "workflow": { "run": "lastResult" } }]);
    place.probe("p", json!({ "dependents": dependents, "conditions": { "green": false }, "reconcile": { "do": steps, "status": {} } }));
    let probe = place.await_object(&place.probes(), "p", "its status", |p| p["status"]["workflow"].is_object());
    assert_eq!(probe["status"]["workflow"]["complete"], false, "{probe}");
    daemon.await_quiet();
    assert!(place.find(&place.config_maps(), "first").is_some());
    assert!(place.find(&place.config_maps(), "second").is_none());
    place.merge(&place.probes(), "p", &json!({ "spec": { "conditions": { "green": true } } }));
    place.await_object(&place.config_maps(), "second", "the second", |_| true);
}

#[test]
fn a_workflow_that_the_reconciler_calls_runs_when_it_is_called() {
    // WF-10
    let place = Place::new("explicit");
    let fields = "workflow:\n  invocation: explicit\n  dependents:\n    cm: { apiVersion: v1, kind: ConfigMap }\n";
    let daemon = place.daemon(&place.probe_manifest(fields));
    let dependents = json!({ "cm": config_map("called", &json!({ "a": "b" })) });
    place.probe("p", json!({ "dependents": dependents }));
    daemon.await_runs(2);
    daemon.await_quiet();
    assert!(place.find(&place.config_maps(), "called").is_none());
    place.merge(
        &place.probes(),
        "p",
        &json!({ "spec": { "reconcile": { "do": [{ "workflow": { "run": "reconcile" } }], "status": {} } } }),
    );
    place.await_object(&place.config_maps(), "called", "the config map", |_| true);
}

#[test]
fn a_standalone_dependent_runs_by_name() {
    // WF-2
    let place = Place::new("standalone");
    let fields = "standalone:\n  preview:\n    dependents:\n      pre: { apiVersion: v1, kind: ConfigMap }\n";
    let _daemon = place.daemon(&place.probe_manifest(fields));
    let dependents = json!({ "pre": config_map("preview", &json!({ "a": "b" })) });
    let make = json!([{ "dependent": { "run": "reconcile", "name": "pre" } }]);
    place.probe("p", json!({ "dependents": dependents, "reconcile": { "do": make } }));
    place.await_object(&place.config_maps(), "preview", "the config map", |_| true);
    let remove = json!([{ "dependent": { "run": "remove", "name": "pre" } }]);
    place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "do": remove } } }));
    gone(&place, "preview");
}

#[test]
fn a_component_compares_in_its_own_way() {
    // SSA-6
    let place = Place::new("match");
    let daemon = place.daemon(&manifest(
        &place,
        "cm: { apiVersion: v1, kind: ConfigMap, serverSideApply: true, match: { export: same-data } }",
    ));
    place.probe("p", json!({ "dependents": { "cm": config_map("matched", &json!({ "a": "b" })) } }));
    let before = place.await_object(&place.config_maps(), "matched", "the config map", |_| true);
    daemon.await_quiet();
    place.merge(&place.config_maps(), "matched", &json!({ "metadata": { "labels": { "foreign": "label" } } }));
    daemon.await_quiet();
    place.merge(&place.config_maps(), "matched", &json!({ "data": { "a": "edited" } }));
    let after = place.await_object(&place.config_maps(), "matched", "the repair", |map| map["data"]["a"] == "b");
    assert_eq!(after["metadata"]["labels"]["foreign"], "label");
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
}

#[test]
fn a_field_that_is_desired_no_more_is_removed_by_server_side_apply() {
    // SSA-5
    let place = Place::new("ssa");
    let _daemon = place.daemon(&manifest(&place, "cm: { apiVersion: v1, kind: ConfigMap, serverSideApply: true }"));
    place.probe("p", json!({ "dependents": { "cm": config_map("ssa", &json!({ "a": "b", "old": "x" })) } }));
    place.await_object(&place.config_maps(), "ssa", "the config map", |map| map["data"]["old"] == "x");
    place.merge(&place.config_maps(), "ssa", &json!({ "data": { "foreign": "y" } }));
    place.merge(&place.probes(), "p", &json!({ "spec": { "dependents": { "cm": { "data": { "old": null } } } } }));
    let map = place.await_object(&place.config_maps(), "ssa", "the field to go", |map| map["data"]["old"].is_null());
    assert_eq!(map["data"], json!({ "a": "b", "foreign": "y" }));
}

#[test]
fn a_dependent_is_not_taken_for_another_of_its_kind() {
    let place = Place::new("two");
    let lines = "one: { apiVersion: v1, kind: ConfigMap }\ntwo: { apiVersion: v1, kind: ConfigMap, dependsOn: [one], reconcilePrecondition: { export: wanted } }";
    let _daemon = place.daemon(&manifest(&place, lines));
    let dependents = json!({ "one": config_map("two-1", &json!({})), "two": config_map("two-2", &json!({})) });
    let read = json!([
        { "read": { "in": { "source": "one" }, "select": "one" }, "as": "one" },
        { "read": { "in": { "source": "two" }, "select": "one" }, "as": "two" },
    ]);
    place.probe("p", json!({ "dependents": dependents, "conditions": { "wanted": false }, "reconcile": { "do": read, "status": { "done": true } } }));
    let probe = place.await_object(&place.probes(), "p", "its status", |p| p["status"]["done"] == true);
    assert!(probe["status"]["one"].to_string().contains("two-1"), "{probe}");
    assert_eq!(probe["status"]["two"], Value::Null, "{probe}");
}

#[test]
fn a_dependent_where_nobody_watches_is_refused() {
    let place = Place::new("unwatched");
    let daemon = place.daemon(&manifest(
        &place,
        "cm: { apiVersion: v1, kind: ConfigMap, garbageCollected: false, mapping: { acrossNamespaces: true } }",
    ));
    let map = json!({ "metadata": { "name": "unwatched", "namespace": "default" }, "data": {} });
    place.probe("p", json!({ "dependents": { "cm": map } }));
    let line = daemon.await_line("the run failed");
    assert!(line.contains("default/unwatched is in a namespace that this controller does not watch"), "{line}");
}

#[test]
fn a_dependent_of_a_primary_without_a_namespace_is_found_by_name_and_namespace() {
    // KD-4
    const KIND: (&str, &str) = ("test.capstan.dev/v1", "ClusterProbe");
    let place = Place::new("called");
    let own = place.namespace.name();
    let fields = format!(
        "labelSelector: place={own}\nworkflow:\n  dependents:\n    \
         cm: {{ apiVersion: v1, kind: ConfigMap, garbageCollected: false, name: {{ cel: primary.metadata.name }}, namespace: {{ cel: primary.spec.where }}, readyPostcondition: {{ cel: dependent != null }} }}\n    \
         after: {{ apiVersion: v1, kind: ConfigMap, dependsOn: [cm], garbageCollected: false }}\n"
    );
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: ClusterProbe }";
    let _daemon = place.daemon(&place.manifest("probe", primary, "", &fields));
    let map = |name: &str| json!({ "metadata": { "name": name, "namespace": own }, "data": {} });
    let spec = json!({ "where": own, "dependents": { "cm": map(own), "after": map("after") } });
    let probes = "/apis/test.capstan.dev/v1/clusterprobes";
    let probe = json!({ "metadata": { "labels": { "place": own } }, "spec": spec });
    place.create(KIND.0, KIND.1, probes, own, probe);
    place.await_object(&place.config_maps(), own, "the config map", |_| true);
    place.await_object(&place.config_maps(), "after", "the one after it", |_| true);
    place.delete(probes, own);
    place.await_gone(probes, own);
    gone(&place, own);
    gone(&place, "after");
}

#[test]
fn an_object_under_a_former_name_goes_once_the_new_one_is_ready() {
    let place = Place::new("renamed");
    let line = "cm: { apiVersion: v1, kind: ConfigMap, serverSideApply: true, onRename: delete, readyPostcondition: { cel: dependent.data.ready == 'yes' } }";
    let daemon = place.daemon(&manifest(&place, line));
    let map = |name: &str, ready: &str| json!({ "metadata": { "name": name }, "data": { "ready": ready } });
    let spec = |name: &str, ready: &str| json!({ "spec": { "dependents": { "cm": map(name, ready) } } });
    let probe = place.probe("p", spec("first", "yes")["spec"].clone());
    let first = place.await_object(&place.config_maps(), "first", "the first", |_| true);
    let mark = &first["metadata"]["annotations"]["capstan.dev/made-for"];
    assert!(mark.as_str().unwrap().contains("\"dependent\":\"cm\""), "{first}");
    // Somebody's, whatever its owner reference says.
    let owner =
        json!({ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "name": "p", "uid": probe["metadata"]["uid"] });
    let by_hand = json!({ "metadata": { "ownerReferences": [owner] } });
    place.create("v1", "ConfigMap", &place.config_maps(), "by-hand", by_hand);
    place.merge(&place.probes(), "p", &spec("second", "no"));
    place.await_object(&place.config_maps(), "second", "the second", |_| true);
    daemon.await_quiet();
    assert!(place.find(&place.config_maps(), "first").is_some());
    place.merge(&place.probes(), "p", &spec("second", "yes"));
    gone(&place, "first");
    daemon.await_line("the former object is deleted");
    daemon.await_quiet();
    assert_eq!(daemon.log().matches("the former object is deleted").count(), 1);
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
    for name in ["second", "by-hand"] {
        assert!(place.find(&place.config_maps(), name).is_some(), "{name}");
    }
}

#[test]
fn an_object_under_a_former_name_stays_by_default_and_goes_before_the_primary() {
    let place = Place::new("formerly");
    let line = "cm: { apiVersion: v1, kind: ConfigMap, garbageCollected: false }";
    let daemon = place.daemon(&manifest(&place, line));
    place.probe("p", json!({ "dependents": { "cm": config_map("first", &json!({})) } }));
    place.await_object(&place.config_maps(), "first", "the first", |_| true);
    let second = json!({ "spec": { "dependents": { "cm": { "metadata": { "name": "second" } } } } });
    place.merge(&place.probes(), "p", &second);
    place.await_object(&place.config_maps(), "second", "the second", |_| true);
    daemon.await_line("its former object stays");
    assert!(place.find(&place.config_maps(), "first").is_some());
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
    gone(&place, "first");
    gone(&place, "second");
}

/// Waits until a config map has this value under `v`.
fn await_value(place: &Place, name: &str, value: &str) -> Value {
    place.await_object(&place.config_maps(), name, value, |map| map["data"]["v"] == value)
}

/// Returns how many writes of this kind the daemon has made in the place since a mark.
fn writes(place: &Place, mark: Mark, resource: &str) -> usize {
    let query = Query::since(mark).user_agent("capstan/").namespace(place.namespace.name()).resource(resource).writes();
    place.cluster.audit().unwrap().count(&query).unwrap()
}

/// Returns a deployment with so many replicas, as a dependent.
fn deployment(name: &str, replicas: u32, cpu: &str) -> Value {
    let container = json!({ "name": "c", "image": "nginx", "resources": { "requests": { "cpu": cpu } } });
    let labels = json!({ "app": name });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
    let spec = json!({ "replicas": replicas, "selector": { "matchLabels": labels }, "template": template });
    json!({ "metadata": { "name": name }, "spec": spec })
}

#[test]
fn s079_a_dependent_keeps_a_part_of_what_is_there() {
    let place = Place::new("s079");
    let _daemon = place.daemon(&manifest(&place, "cm: { apiVersion: v1, kind: ConfigMap }"));
    let spec = |value: &str| {
        let kept = json!({ "/data/initial": { "source": "cm", "field": "/data/initial" } });
        let map = json!({ "metadata": { "name": "s079" }, "data": { "initial": value, "v": value }, "$copy": kept });
        json!({ "dependents": { "cm": map } })
    };
    place.probe("p", spec("first"));
    await_value(&place, "s079", "first");
    place.merge(&place.probes(), "p", &json!({ "spec": spec("second") }));
    let map = await_value(&place, "s079", "second");
    assert_eq!(map["data"]["initial"], "first");
}

#[test]
fn s094_two_operators_in_turn_start_and_stop_with_the_same_dependents() {
    let place = Place::new("s094");
    let first = manifest(&place, "cm: { apiVersion: v1, kind: ConfigMap }");
    let second = place.renamed(&first, "second");
    let spec = |value: &str| json!({ "dependents": { "cm": config_map("s094", &json!({ "v": value })) } });
    place.probe("p", spec("0"));
    for (turn, manifest) in [&first, &second, &first, &second].into_iter().enumerate() {
        let value = turn.to_string();
        place.merge(&place.probes(), "p", &json!({ "spec": spec(&value) }));
        let daemon = place.daemon(manifest);
        await_value(&place, "s094", &value);
        daemon.await_quiet();
        assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
        assert!(daemon.stop().success());
    }
}

#[test]
fn s095_a_dependent_reads_another_one() {
    const ALL: usize = 50;
    let place = Place::new("s095");
    let lines = "secret: { apiVersion: v1, kind: Secret, garbageCollected: false }\ncm: { apiVersion: v1, kind: ConfigMap, garbageCollected: false, dependsOn: [secret] }";
    let daemon = place.daemon(&manifest(&place, lines));
    let secrets = place.namespace.path("v1", "secrets");
    for n in 0..ALL {
        let name = format!("p{n}");
        // What a Secret has is in base64.
        let secret = json!({ "metadata": { "name": name }, "data": { "v": "c2VjcmV0" } });
        let copy = json!({ "/data/v": { "source": "secret", "field": "/data/v" } });
        let map = json!({ "metadata": { "name": name }, "$copy": copy });
        place.probe(&name, json!({ "dependents": { "secret": secret, "cm": map } }));
    }
    let count = |path: &str| {
        let list = place.cluster.api().get(path).unwrap();
        list["items"].as_array().unwrap().iter().filter(|object| object["data"]["v"] == "c2VjcmV0").count()
    };
    let await_both = |wanted: usize| {
        let both = || [&secrets, &place.config_maps()].map(|path| count(path));
        wait::until_ok(LATER, "all objects", || if both() == [wanted; 2] { Ok(()) } else { Err(json!(both())) })
            .unwrap();
    };
    await_both(ALL);
    daemon.await_quiet();
    for n in 0..ALL {
        place.delete(&place.probes(), &format!("p{n}"));
    }
    await_both(0);
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
}

#[test]
fn s097_a_dependent_changes_between_replacing_and_applying() {
    // Under one name, and under another one where it is replaced.
    for replacing in [None, Some("capstan-replacing")] {
        let place = Place::new("s097");
        let own = place.namespace.name();
        let replacing = replacing.unwrap_or(own);
        let spec = |value: &str| json!({ "dependents": { "cm": config_map("s097", &json!({ "v": value })) } });
        place.probe("p", spec("initial"));
        let [update, apply] = [format!("Update {replacing}"), format!("Apply {own}")];
        for (applies, value, operations) in [
            (false, "initial", &[&update][..]),
            (true, "changed", &[&apply, &update][..]),
            (false, "initial", &[&apply, &update][..]),
        ] {
            place.merge(&place.probes(), "p", &json!({ "spec": spec(value) }));
            let manager = if applies { own } else { replacing };
            let dependent = format!("cm: {{ apiVersion: v1, kind: ConfigMap, serverSideApply: {applies} }}");
            let fields = format!("fieldManager: {manager}\nworkflow:\n  dependents:\n    {dependent}\n");
            let daemon = place.daemon(&place.probe_manifest(&fields));
            await_value(&place, "s097", value);
            daemon.await_quiet();
            let map = place.find(&place.config_maps(), "s097").unwrap();
            let records = map["metadata"]["managedFields"].as_array().unwrap();
            let text = |record: &Value, field: &str| record[field].as_str().unwrap().to_owned();
            let mut found: Vec<_> = records
                .iter()
                .map(|record| format!("{} {}", text(record, "operation"), text(record, "manager")))
                .collect();
            found.sort_unstable();
            assert_eq!(found.iter().collect::<Vec<_>>(), operations, "{map}");
            assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
            assert!(daemon.stop().success());
        }
    }
}

#[test]
fn s111_what_the_api_server_writes_in_another_way_causes_no_endless_updates() {
    // SN-1
    let place = Place::new("s111");
    let daemon = place.daemon(&manifest(&place, "d: { apiVersion: apps/v1, kind: Deployment }"));
    let mark = place.cluster.audit().unwrap().mark().unwrap();
    place.probe("p", json!({ "dependents": { "d": deployment("s111", 1, "2000m") } }));
    let deployments = place.namespace.path("apps/v1", "deployments");
    let is_ready = |deployment: &Value| deployment["status"]["readyReplicas"] == 1;
    wait::until(LATER, "its replica", || place.find(&deployments, "s111").filter(is_ready)).unwrap();
    daemon.await_quiet();
    assert!((2..10).contains(&daemon.runs_of("p")), "{}", daemon.runs_of("p"));
    assert_eq!(writes(&place, mark, "deployments"), 1);
    let stored = place.find(&deployments, "s111").unwrap();
    let container = &stored["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"]["requests"]["cpu"], "2", "the API server has its own spelling");
}

#[test]
fn s116_a_kind_whose_fields_are_not_in_a_spec_is_updated() {
    let place = Place::new("s116");
    let lines = "applied: { apiVersion: v1, kind: ServiceAccount }\nreplaced: { apiVersion: v1, kind: ServiceAccount, serverSideApply: false }";
    let _daemon = place.daemon(&manifest(&place, lines));
    let names = ["applied", "replaced"];
    let accounts = place.namespace.path("v1", "serviceaccounts");
    let spec = |mounted: bool| {
        let account = |name: &str| json!({ "metadata": { "name": name }, "automountServiceAccountToken": mounted });
        json!({ "dependents": { "applied": account("applied"), "replaced": account("replaced") } })
    };
    place.probe("p", spec(true));
    for mounted in [true, false] {
        place.merge(&place.probes(), "p", &json!({ "spec": spec(mounted) }));
        for name in names {
            place.await_object(&accounts, name, "the field", |account| {
                account["automountServiceAccountToken"] == mounted
            });
        }
    }
}

#[test]
fn s117_what_is_applied_is_compared_in_another_way() {
    // SSA-6
    let place = Place::new("s117");
    let line = "cm: { apiVersion: v1, kind: ConfigMap, serverSideApply: true, match: { generic: {} } }";
    let daemon = place.daemon(&manifest(&place, line));
    let mark = place.cluster.audit().unwrap().mark().unwrap();
    place.probe("p", json!({ "dependents": { "cm": config_map("s117", &json!({ "v": "made" })) } }));
    await_value(&place, "s117", "made");
    daemon.await_quiet();
    let runs = daemon.runs_of("p");
    // By its owned fields it differs from now on: nothing is recorded as ours.
    let map = place.find(&place.config_maps(), "s117").unwrap();
    let mut records = map["metadata"]["managedFields"].clone();
    records[0]["manager"] = "somebody".into();
    place.merge(&place.config_maps(), "s117", &json!({ "metadata": { "managedFields": records } }));
    place.merge(&place.probes(), "p", &json!({ "spec": { "anything": 1 } }));
    daemon.await_quiet();
    assert!(daemon.runs_of("p") > runs);
    assert_eq!(writes(&place, mark, "configmaps"), 1);
}

#[test]
fn s118_a_deployment_that_the_component_calls_gets_more_replicas() {
    let place = Place::new("s118");
    let fields = "standalone:\n  alone:\n    dependents:\n      d: { apiVersion: apps/v1, kind: Deployment }\n";
    let daemon = place.daemon(&place.probe_manifest(fields));
    let cached =
        json!({ "read": { "in": { "source": "d" }, "select": "one" }, "show": ["/spec/replicas"], "as": "cached" });
    let steps = json!([{ "dependent": { "run": "reconcile", "name": "d" }, "tell": true }, cached]);
    let deployments = place.namespace.path("apps/v1", "deployments");
    place.probe("p", json!({ "reconcile": { "do": steps, "status": {} } }));
    for replicas in [1, 2] {
        let dependents = json!({ "d": deployment("s118", replicas, "1m") });
        place.merge(&place.probes(), "p", &json!({ "spec": { "dependents": dependents } }));
        let is_ready = |deployment: &Value| deployment["status"]["readyReplicas"] == replicas;
        wait::until(LATER, "its replicas", || place.find(&deployments, "s118").filter(is_ready)).unwrap();
        // It is written by the first run that sees the generation.
        let probe = place.await_object(&place.probes(), "p", "its status", |p| {
            p["status"]["observedGeneration"] == p["metadata"]["generation"]
        });
        assert_eq!(probe["status"]["cached"]["/spec/replicas"], replicas, "{probe}");
    }
    daemon.await_quiet();
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
}

#[test]
fn an_object_goes_from_one_dependent_to_another_and_two_do_not_undo_each_other() {
    // KD-13
    let place = Place::new("shared");
    let retry = "retry: { initialInterval: 100ms, multiplier: 1, maxAttempts: 3 }";
    let dependent = |on: &str| {
        format!("{{ apiVersion: v1, kind: ConfigMap, reconcilePrecondition: {{ cel: primary.spec.by {on} }} }}")
    };
    let (one, two) = (dependent("!= 'two'"), dependent("!= 'one'"));
    let workflow = format!("workflow:\n  dependents:\n    one: {one}\n    two: {two}\n");
    let daemon = place.daemon(&place.probe_manifest(&format!("{retry}\n{workflow}")));
    let map = |by: &str| config_map("shared", &json!({ "v": by }));
    place.probe("p", json!({ "by": "one", "dependents": { "one": map("one"), "two": map("two") } }));
    let made = await_value(&place, "shared", "one");
    for by in ["two", "one"] {
        place.merge(&place.probes(), "p", &json!({ "spec": { "by": by } }));
        let map = await_value(&place, "shared", by);
        assert_eq!(map["metadata"]["uid"], made["metadata"]["uid"], "{by}");
    }
    daemon.await_quiet();
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
    let mark = place.cluster.audit().unwrap().mark().unwrap();
    place.merge(&place.probes(), "p", &json!({ "spec": { "by": "both" } }));
    let line = daemon.await_line("no retries left");
    let object = format!("ConfigMap {}/shared", place.namespace.name());
    assert!(line.contains(&format!("two: {object} is desired by one and by two")), "{line}");
    assert_eq!(writes(&place, mark, "configmaps"), 0, "{}", daemon.log());
    assert!(!daemon.log().contains("others keep changing"), "{}", daemon.log());
}

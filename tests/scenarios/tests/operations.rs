//! Writes and reads that a component asks for itself.

use std::time::Duration;

use cluster::wait;
use scenarios::Place;
use serde_json::{Value, json};

/// The probe has a cleaner, so the first run of each probe adds the finalizer and does no more (DI-4).
const FINALIZER_RUN: usize = 1;

const PERMITTED: &str = "capabilities:\n  kubernetes: [{ apiVersion: v1, kind: ConfigMap, verbs: [get, create, apply, update, patch, delete] }]\n";
const SOURCE: &str =
    "sources:\n  maps: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { annotations: {} } } }\n";

fn manifest(place: &Place, fields: &str) -> String {
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    place.manifest("probe", primary, PERMITTED, &format!("{SOURCE}{fields}"))
}

fn map(place: &Place, name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": { "name": name, "namespace": place.namespace.name(), "annotations": { "capstan.dev/primary-name": "p" } },
    })
}

#[test]
fn s017_filtered_writes_cause_no_run() {
    let place = Place::new("s017");
    let daemon = place.daemon(&manifest(&place, ""));
    let write =
        |value: &str| json!([{ "write": { "verb": "apply", "object": map(&place, "s017", &json!({ "v": value })) } }]);
    place.probe("p", json!({ "reconcile": { "do": write("one") } }));
    place.await_object(&place.config_maps(), "s017", "the first write", |m| m["data"]["v"] == "one");
    daemon.await_quiet();
    // The probe has a cleaner: one run adds the finalizer.
    assert_eq!(daemon.runs(), 2);
    place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "do": write("two") } } }));
    place.await_object(&place.config_maps(), "s017", "the second write", |m| m["data"]["v"] == "two");
    daemon.await_quiet();
    assert_eq!(daemon.runs(), 3);
}

#[test]
fn s062_each_verb_writes_a_secondary() {
    // RO-1
    let place = Place::new("s062");
    let named = |name: &str, value: &str| {
        let mut map = map(&place, name, &json!({ "v": value }));
        map["metadata"]["annotations"]["capstan.dev/primary-name"] = name.into();
        map
    };
    for name in ["updated", "edited", "patched", "merged", "removed"] {
        place.cluster.api().create(&place.config_maps(), &named(name, "before")).unwrap();
    }
    let daemon = place.daemon(&manifest(&place, ""));
    let whole = |verb: &str, name: &str| json!({ "verb": verb, "object": named(name, "written") });
    let patch = |verb: &str, name: &str, patch: Value| {
        let target =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "namespace": place.namespace.name(), "name": name });
        json!({ "verb": verb, "target": target, "patch": patch })
    };
    let mut updated = place.find(&place.config_maps(), "updated").unwrap();
    updated["apiVersion"] = "v1".into();
    updated["kind"] = "ConfigMap".into();
    updated["data"]["v"] = "written".into();
    // Each by a primary of its own, which an endless change of runs and events would show.
    let verbs = [
        ("created", whole("create", "created")),
        ("applied", whole("apply", "applied")),
        ("updated", json!({ "verb": "update", "object": updated })),
        ("edited", whole("edit", "edited")),
        ("patched", patch("jsonPatch", "patched", json!([{ "op": "replace", "path": "/data/v", "value": "written" }]))),
        ("merged", patch("mergePatch", "merged", json!({ "data": { "v": "written" } }))),
        ("removed", patch("remove", "removed", Value::Null)),
    ];
    for (name, write) in &verbs {
        place.probe(name, json!({ "reconcile": { "do": { "write": write }, "status": { "done": true } } }));
    }
    for (name, _) in &verbs {
        place.await_object(&place.probes(), name, "the end of the run", |p| p["status"]["done"] == true);
        let value = place.find(&place.config_maps(), name).map(|map| map["data"]["v"].clone());
        assert_eq!(value, (*name != "removed").then(|| json!("written")), "{name}");
    }
    daemon.await_quiet();
    wait::holds(Duration::from_secs(2), "few runs", || {
        let many = verbs.iter().map(|(name, _)| (name, daemon.runs_of(name)));
        let many: Vec<_> = many.filter(|(_, runs)| !(FINALIZER_RUN + 1..=FINALIZER_RUN + 4).contains(runs)).collect();
        if many.is_empty() { Ok(()) } else { Err(format!("{many:?}")) }
    })
    .unwrap();
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
}

#[test]
fn a_422_is_a_conflict_of_a_json_patch_whose_test_does_not_hold_and_of_nothing_else() {
    // FI-4
    let place = Place::new("invalid");
    let _daemon = place.daemon(&manifest(&place, ""));
    let maps = place.config_maps();
    let created = map(&place, "m", &json!({ "v": "before" }));
    place.cluster.api().create(&maps, &created).unwrap();
    let target = json!({ "apiVersion": "v1", "kind": "ConfigMap", "namespace": place.namespace.name(), "name": "m" });
    let mut updated = place.find(&maps, "m").unwrap();
    updated["apiVersion"] = "v1".into();
    updated["kind"] = "ConfigMap".into();
    updated["metadata"]["labels"] = json!({ "x": "a b" });
    let version = &updated["metadata"]["resourceVersion"];
    let test = |value: &str| json!({ "op": "test", "path": "/data/v", "value": value });
    let label = json!({ "op": "add", "path": "/metadata/labels", "value": { "x": "a b", "op": "test" } });
    let known = json!({ "resourceVersion": version, "labels": { "x": "a b" } });
    let patch = |name: &str, patch: Value| json!({ "write": { "verb": "jsonPatch", "target": target, "patch": patch }, "mayFail": true, "as": name });
    let steps = json!([
        patch("another", json!([test("another"), { "op": "remove", "path": "/data/v" }])),
        patch("held", json!([test("before"), label])),
        patch("free", json!([label])),
        patch("nowhere", json!([{ "op": "remove", "path": "/data/none" }])),
        { "write": { "verb": "update", "object": updated }, "mayFail": true, "as": "updated" },
        { "write": { "verb": "mergePatch", "target": target, "patch": { "metadata": known } }, "mayFail": true, "as": "merged" },
    ]);
    place.probe("p", json!({ "reconcile": { "do": steps, "status": { "done": true } } }));
    let probe = place.await_object(&place.probes(), "p", "its status", |p| p["status"]["done"] == true);
    for (name, expected) in [
        ("another", "conflict"),
        ("held", "rejected"),
        ("free", "rejected"),
        ("nowhere", "rejected"),
        ("updated", "rejected"),
        ("merged", "rejected"),
    ] {
        let refusal = &probe["status"][name];
        assert_eq!(refusal["refused"], expected, "{name}: {probe}");
        let message = refusal["message"].as_str().unwrap();
        assert!(message.contains("HTTP 422"), "{name}: {message}");
    }
}

#[test]
fn own_writes_are_read_at_once() {
    // OV-3
    let place = Place::new("ov");
    let _daemon = place.daemon(&manifest(&place, ""));
    let steps = json!([
        { "write": { "verb": "apply", "object": map(&place, "own", &json!({ "v": "1" })) } },
        { "read": { "in": { "source": "maps" }, "select": "one" }, "show": ["/data/v"], "as": "one" },
        { "read": { "in": { "kind": { "apiVersion": "v1", "kind": "ConfigMap" } }, "select": { "named": { "namespace": place.namespace.name(), "name": "own" } } }, "show": ["/data/v"], "as": "named" },
    ]);
    place.probe("p", json!({ "reconcile": { "do": steps, "status": {} } }));
    let probe = place.await_object(&place.probes(), "p", "its status", |p| p["status"]["one"].is_object());
    assert_eq!(probe["status"]["one"]["/data/v"], "1", "{probe}");
    assert_eq!(probe["status"]["named"]["/data/v"], "1", "{probe}");
}

#[test]
fn an_index_finds_primaries_by_a_field() {
    // IX-2
    let place = Place::new("ix");
    let daemon = place.daemon(&manifest(&place, "indexes: { by-config: { pointer: /spec/config } }\n"));
    place.probe("other", json!({ "config": "common" }));
    place.probe("none", json!({ "config": "another" }));
    daemon.await_runs(4);
    let steps = json!([{ "read": { "in": "primaries", "select": { "indexed": { "index": "by-config", "key": "common" } } }, "show": ["/metadata/name"] }]);
    place.probe("p", json!({ "reconcile": { "do": steps, "status": {} } }));
    let probe = place.await_object(&place.probes(), "p", "its status", |p| p["status"]["read"].is_array());
    assert_eq!(probe["status"]["read"], json!([{ "/metadata/name": "other" }]), "{probe}");
}

#[test]
fn a_name_leads_to_no_other_object_than_the_one_that_is_permitted() {
    let place = Place::new("escape");
    let _daemon = place.daemon(&manifest(&place, ""));
    let secrets = place.namespace.path("v1", "secrets");
    place.create("v1", "Secret", &secrets, "safe", json!({ "stringData": { "k": "v" } }));
    let namespace = place.namespace.name();
    let target = |namespace: &str, name: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": name });
    let around = target(&format!("{namespace}/secrets/safe?x="), "y");
    let patch = json!({ "data": { "k": null } });
    let steps = json!([
        { "write": { "verb": "mergePatch", "target": around, "patch": patch, "mode": "plain" }, "mayFail": true, "as": "patched" },
        { "write": { "verb": "remove", "target": around }, "mayFail": true, "as": "removed" },
        { "write": { "verb": "remove", "target": target(namespace, "..") }, "mayFail": true, "as": "up" },
        { "write": { "verb": "mergePatch", "target": target(namespace, "y"), "patch": patch, "subresource": "../../secrets/safe", "mode": "plain" }, "mayFail": true, "as": "sub" },
    ]);
    place.probe("p", json!({ "reconcile": { "do": steps, "status": { "done": true } } }));
    let probe = place.await_object(&place.probes(), "p", "its status", |p| p["status"]["done"] == true);
    for name in ["patched", "removed", "up", "sub"] {
        assert_eq!(probe["status"][name]["refused"], "invalid", "{name}: {probe}");
    }
    assert_eq!(place.find(&secrets, "safe").unwrap()["data"]["k"], "dg==");
}

#[test]
fn another_finalizer_is_added_and_removed_beside_the_controllers_own() {
    let place = Place::new("finalizers");
    let daemon = place.daemon(&manifest(&place, "finalizer: own.dev/f\n").replace(
        "kubernetes: [",
        "kubernetes: [{ apiVersion: test.capstan.dev/v1, kind: Probe, verbs: [patch, delete] }, ",
    ));
    let add = json!([{ "write": { "verb": "addFinalizer", "finalizer": "other.dev/f" } }]);
    place.probe("p", json!({ "reconcile": { "do": add, "status": { "step": 1 } } }));
    let probe = place.await_object(&place.probes(), "p", "its status", |p| p["status"]["step"] == 1);
    assert_eq!(probe["metadata"]["finalizers"], json!(["own.dev/f", "other.dev/f"]));
    daemon.await_quiet();
    assert!(daemon.runs() < 5, "{}", daemon.runs());
    let both = json!([
        { "write": { "verb": "removeFinalizer", "finalizer": "other.dev/f" } },
        { "write": { "verb": "addFinalizer", "finalizer": "third.dev/f" } },
        { "write": { "verb": "removeFinalizer", "finalizer": "third.dev/f" } },
    ]);
    place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "do": both, "status": { "step": 2 } } } }));
    let probe = place.await_object(&place.probes(), "p", "its status", |p| p["status"]["step"] == 2);
    assert_eq!(probe["metadata"]["finalizers"], json!(["own.dev/f"]));
}

#[test]
fn an_object_and_its_status_are_written_upon_one_version() {
    // UC-2
    let place = Place::new("both");
    let daemon = place.daemon(&manifest(&place, ""));
    let probe = place.probe("p", json!({}));
    daemon.await_runs(2);
    daemon.await_quiet();
    let spec =
        json!({ "reconcile": { "object": { "metadata": { "labels": { "a": "b" } } }, "status": { "seen": true } } });
    let probe = place.merge(&place.probes(), probe["metadata"]["name"].as_str().unwrap(), &json!({ "spec": spec }));
    drop(probe);
    let probe = place.await_object(&place.probes(), "p", "both", |p| p["status"]["seen"] == true);
    assert_eq!(probe["metadata"]["labels"]["a"], "b");
}

#[test]
fn requests_are_counted_per_run_and_not_per_session() {
    let place = Place::new("spent");
    let fields = "limits: { requests: 2 }\n";
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    let standalone = "standalone:\n  s:\n    dependents:\n      pre: { apiVersion: v1, kind: ConfigMap }\n";
    let plugin = format!("{PERMITTED}{fields}");
    let _daemon = place.daemon(&place.manifest("probe", primary, &plugin, &format!("{SOURCE}{standalone}")));
    // `desired` asks for a write in a session of its own, and `reconcile` for another afterwards.
    let write = |name: &str| json!({ "verb": "apply", "object": map(&place, name, &json!({ "v": "1" })) });
    let pre = json!({ "$do": { "write": write("inner") }, "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "pre" } });
    let steps = json!([
        { "dependent": { "run": "reconcile", "name": "pre" }, "mayFail": true },
        { "write": write("outer"), "mayFail": true, "as": "outer" },
    ]);
    place.probe("p", json!({ "dependents": { "pre": pre }, "reconcile": { "do": steps, "status": { "done": true } } }));
    let probe = place.await_object(&place.probes(), "p", "its status", |p| p["status"]["done"] == true);
    assert_eq!(probe["status"]["outer"]["refused"], "exhausted", "{probe}");
    assert!(place.find(&place.config_maps(), "inner").is_some());
    assert!(place.find(&place.config_maps(), "outer").is_none());
}

#[test]
fn a_cleanup_writes_the_status_of_a_primary_that_is_going() {
    // DC-6
    let place = Place::new("going");
    let probe = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    let patches = "capabilities:\n  kubernetes: [{ apiVersion: test.capstan.dev/v1, kind: Probe, verbs: [patch] }]\n";
    let daemon = place.daemon(&place.manifest("probe", probe, patches, ""));
    let target = json!({ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "namespace": place.namespace.name(), "name": "p" });
    let write = json!({ "verb": "mergePatch", "target": target, "patch": { "status": { "left": 0 } }, "subresource": "status" });
    place.probe("p", json!({ "cleanup": { "do": [{ "write": write }], "keep": true } }));
    place.await_object(&place.probes(), "p", "the finalizer", |p| p["metadata"]["finalizers"].is_array());
    daemon.await_quiet();
    place.delete(&place.probes(), "p");
    let going = place.await_object(&place.probes(), "p", "its status", |p| p["status"]["left"] == 0);
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    daemon.await_quiet();
    // For the finalizer, to reconcile, and to clean up.
    assert_eq!(daemon.runs(), 3);
    place.merge(&place.probes(), "p", &json!({ "spec": { "cleanup": { "keep": false } } }));
    place.await_gone(&place.probes(), "p");
}

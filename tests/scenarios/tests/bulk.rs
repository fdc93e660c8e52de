//! Dependents of which there are as many as the primary says.

use cluster::{Query, wait};
use scenarios::{Daemon, LATER, Place};
use serde_json::{Value, json};

const MAPS: &str = "apiVersion: v1, kind: ConfigMap, bulk: true";

/// What all config maps of a bulk are labelled with.
const LABEL: &str = "of=bulk";

/// Returns the spec of a probe that has so many config maps, each with this text.
fn spec(count: usize, text: &str) -> Value {
    let map = |n: usize| {
        let metadata = json!({ "name": format!("map-{n}"), "labels": { "of": "bulk" } });
        json!({ "metadata": metadata, "data": { "number": n.to_string(), "additional": text } })
    };
    json!({ "bulks": { "maps": (0..count).map(map).collect::<Vec<_>>() } })
}

/// Returns the labelled config maps that there are.
fn maps(place: &Place) -> Vec<Value> {
    let path = format!("{}?labelSelector={LABEL}", place.config_maps());
    place.cluster.api().get(&path).unwrap()["items"].as_array().unwrap().clone()
}

/// Waits until there are so many config maps, each with this text, and returns them.
fn await_maps(place: &Place, count: usize, text: &str) -> Vec<Value> {
    wait::until_ok(LATER, &format!("{count} config maps with {text:?}"), || {
        let maps = maps(place);
        let all = maps.len() == count && maps.iter().all(|map| map["data"]["additional"] == text);
        if all { Ok(maps) } else { Err(json!(maps)) }
    })
    .unwrap()
}

/// Shows that the config maps of a probe are as many as it says, and go with it.
fn follow(place: &Place, daemon: &Daemon, fields: &Value) {
    let with = |count: usize, text: &str| {
        let mut spec = spec(count, text);
        let own = spec.as_object_mut().unwrap();
        own.extend(fields.as_object().unwrap().clone());
        spec
    };
    place.probe("p", with(3, "first"));
    for (count, text) in [(3, "first"), (1, "first"), (5, "first"), (5, "second")] {
        place.merge(&place.probes(), "p", &json!({ "spec": with(count, text) }));
        await_maps(place, count, text);
    }
    daemon.await_quiet();
    // One that somebody changes or deletes comes back, and the others are not written.
    let mark = place.cluster.audit().unwrap().mark().unwrap();
    place.merge(&place.config_maps(), "map-2", &json!({ "data": { "additional": "by hand" } }));
    place.delete(&place.config_maps(), "map-4");
    await_maps(place, 5, "second");
    daemon.await_quiet();
    let query = Query::since(mark).user_agent("capstan/").namespace(place.namespace.name()).resource("configmaps");
    let mut written: Vec<_> = place.cluster.audit().unwrap().requests(&query.writes()).unwrap();
    written.sort_by(|a, b| a.verb.cmp(&b.verb));
    let written: Vec<_> = written.iter().map(|write| (&*write.verb, &*write.name)).collect();
    assert_eq!(written, [("create", "map-4"), ("update", "map-2")]);
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
    await_maps(place, 0, "");
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
}

#[test]
fn s081_a_bulk_follows_the_primary_and_is_deleted_with_it() {
    // BD-1, BD-3
    let place = Place::new("s081");
    let fields = format!("workflow:\n  dependents:\n    maps: {{ {MAPS}, garbageCollected: false }}\n");
    let daemon = place.daemon(&place.probe_manifest(&fields));
    follow(&place, &daemon, &json!({}));
    assert!(daemon.log().contains("dependent deleted"));
}

#[test]
fn s082_a_bulk_that_is_garbage_collected_follows_the_primary_too() {
    // BD-3: what is too much is deleted while the primary is there.
    let place = Place::new("s082");
    let daemon = place.daemon(&place.probe_manifest(&format!("workflow:\n  dependents:\n    maps: {{ {MAPS} }}\n")));
    follow(&place, &daemon, &json!({}));
}

#[test]
fn s083_a_bulk_that_the_component_calls_follows_the_primary_too() {
    // BD-1, WF-10
    let place = Place::new("s083");
    let fields = format!("standalone:\n  alone:\n    dependents:\n      maps: {{ {MAPS} }}\n");
    let daemon = place.daemon(&place.probe_manifest(&fields));
    let called = json!({ "workflow": { "run": "reconcile", "name": "alone" } });
    follow(&place, &daemon, &json!({ "reconcile": { "do": called, "status": {} } }));
}

#[test]
fn s084_a_bulk_is_ready_when_all_its_objects_are() {
    // BD-3, WF-8
    let place = Place::new("s084");
    let ready =
        "readyPostcondition: { cel: \"size(dependents) == 3 && dependents.all(map, map.data.additional == 'ready')\" }";
    let fields = format!(
        "workflow:\n  dependents:\n    maps: {{ {MAPS}, {ready} }}\n    after: {{ apiVersion: v1, kind: Secret, dependsOn: [maps] }}\n"
    );
    let daemon = place.daemon(&place.probe_manifest(&fields));
    let result = json!({ "workflow": { "run": "lastResult" } });
    let with = |text: &str| {
        let mut spec = spec(3, text);
        spec["dependents"] = json!({ "after": { "metadata": { "name": "after" } } });
        spec["reconcile"] = json!({ "do": result, "status": {} });
        spec
    };
    let seen = |complete: bool| {
        move |probe: &Value| {
            let (status, generation) = (&probe["status"], &probe["metadata"]["generation"]);
            status["observedGeneration"] == *generation && status["workflow"]["complete"] == complete
        }
    };
    place.probe("p", with("not yet"));
    await_maps(&place, 3, "not yet");
    place.await_object(&place.probes(), "p", "an unready status", seen(false));
    let secrets = place.namespace.path("v1", "secrets");
    daemon.await_quiet();
    assert!(place.find(&secrets, "after").is_none(), "it waits");
    place.merge(&place.probes(), "p", &json!({ "spec": with("ready") }));
    let probe = place.await_object(&place.probes(), "p", "a ready status", seen(true));
    assert_eq!(maps(&place).len(), 3);
    place.await_object(&secrets, "after", "what depends on it", |_| true);
    let node = &probe["status"]["workflow"]["nodes"][0];
    let done = ["map-0", "map-1", "map-2"]
        .map(|name| json!({ "key": format!("{}/{name}", place.namespace.name()), "operation": "updated" }));
    assert_eq!((&node["name"], &node["done"]), (&json!("maps"), &json!(done)), "{node}");
    daemon.await_quiet();
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
}

#[test]
fn s120_a_bulk_of_an_inactive_parent_is_deleted_without_an_error() {
    // WF-5: its source is watched before anything is deleted.
    let place = Place::new("s120");
    let fields = format!(
        "workflow:\n  dependents:\n    parent: {{ apiVersion: v1, kind: Secret, reconcilePrecondition: {{ cel: \"false\" }} }}\n    maps: {{ {MAPS}, dependsOn: [parent], activation: {{ cel: \"true\" }} }}\n"
    );
    let daemon = place.daemon(&place.probe_manifest(&fields));
    let mut spec = spec(2, "never");
    spec["dependents"] = json!({ "parent": { "metadata": { "name": "parent" } } });
    spec["reconcile"] = json!({ "do": { "log": { "message": "reconciles" } }, "status": { "done": true } });
    place.probe("p", spec);
    place.await_object(&place.probes(), "p", "its status", |probe| probe["status"]["done"] == true);
    daemon.await_quiet();
    assert_eq!(daemon.log().matches("\"reconciles\"").count(), 1, "{}", daemon.log());
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
    assert_eq!(maps(&place), [] as [Value; 0]);
    assert!(place.find(&place.namespace.path("v1", "secrets"), "parent").is_none());
}

#[test]
fn a_bulk_of_1000_objects_is_made_and_costs_no_request_when_nothing_changes() {
    // BD-1
    const ALL: usize = 1_000;
    let place = Place::new("bulk-many");
    let daemon = place.daemon(&place.probe_manifest(&format!("workflow:\n  dependents:\n    maps: {{ {MAPS} }}\n")));
    place.probe("p", spec(ALL, "first"));
    await_maps(&place, ALL, "first");
    daemon.await_quiet();
    let (mark, runs) = (place.cluster.audit().unwrap().mark().unwrap(), daemon.runs_of("p"));
    place.merge(&place.probes(), "p", &json!({ "spec": { "anything": 1 } }));
    wait::until(LATER, "a run", || (daemon.runs_of("p") > runs).then_some(())).unwrap();
    daemon.await_quiet();
    let query = Query::since(mark).user_agent("capstan/").namespace(place.namespace.name()).resource("configmaps");
    assert_eq!(place.cluster.audit().unwrap().count(&query.writes()).unwrap(), 0);
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
}

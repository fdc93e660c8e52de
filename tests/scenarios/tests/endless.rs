//! Dependents of many kinds, into whose objects the API server writes what nobody asked for: they are written once.

use std::collections::BTreeMap;

use cluster::{Mark, Query};
use scenarios::{Daemon, Place};
use serde_json::{Value, json};

/// An object as an author writes it.
struct Shape {
    /// The name of the dependent, and of its object unless the shape has another one.
    name: String,
    api_version: String,
    kind: String,
    /// It has no namespace.
    wide: bool,
    desired: Value,
}

/// Returns all shapes, with names of their own.
fn shapes(place: &Place) -> Vec<Shape> {
    let namespace = place.namespace.name();
    let shapes: Vec<Value> = serde_yaml::from_str(include_str!("endless/shapes.yaml")).unwrap();
    let named = shapes.into_iter().enumerate().map(|(i, shape)| {
        let kind = shape["kind"].as_str().unwrap().to_owned();
        let name = format!("{}-{i}", kind.to_lowercase());
        let wide = shape["wide"] == true;
        let object = if wide { format!("{namespace}-{i}") } else { name.clone() };
        let text = shape.to_string().replace("NAMESPACE", namespace).replace("NAME", &object);
        let shape: Value = serde_json::from_str(&text).unwrap();
        let mut desired = shape["desired"].clone();
        desired["metadata"] = json!({ "name": shape["name"].as_str().unwrap_or(&object) });
        Shape { name, api_version: shape["apiVersion"].as_str().unwrap().to_owned(), kind, wide, desired }
    });
    named.collect()
}

/// Returns the writes of a place's daemon since a mark, but for those of its primary: `resource/name` with their number.
fn writes(place: &Place, mark: Mark) -> BTreeMap<String, usize> {
    let namespace = place.namespace.name();
    let query = Query::since(mark).user_agent("capstan/").writes();
    let requests = place.cluster.audit().unwrap().requests(&query).unwrap();
    let mut found = BTreeMap::new();
    for request in requests {
        let ours = request.namespace == namespace || request.uri.contains(namespace);
        let carried_out = !request.uri.contains("dryRun=");
        if ours && carried_out && !["probes", "events"].contains(&&*request.resource) {
            *found
                .entry(format!("{} {}/{} {}", request.verb, request.resource, request.name, request.code))
                .or_default() += 1;
        }
    }
    found
}

/// Changes all objects as another field manager, in what nobody else wants.
fn touch(place: &Place, shapes: &[Shape]) {
    let item = |shape: &Shape| {
        let metadata = json!({ "name": shape.desired["metadata"]["name"] });
        json!({ "apiVersion": shape.api_version, "kind": shape.kind, "metadata": metadata })
    };
    let items: Vec<_> = shapes.iter().map(item).collect();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string();
    let annotate = ["annotate", "-n", place.namespace.name(), "-f", "-", "others.example.com/seen=true"];
    place.cluster.kubectl_with_input(&annotate, &list).unwrap();
}

/// Has all shapes made in one way, and fails if any is written again though nothing else is wanted: by runs of who has written it, after another
/// manager has, and by a daemon that knows nothing of either.
fn written_once(place: &Place, way: &str) {
    let shapes = shapes(place);
    let line = |shape: &Shape| {
        let Shape { name, api_version, kind, wide, .. } = shape;
        let wide = if *wide { ", garbageCollected: false" } else { "" };
        format!("    {name}: {{ apiVersion: {api_version}, kind: {kind}{wide}{way} }}\n")
    };
    let lines: String = shapes.iter().map(line).collect();
    let manifest = place.probe_manifest(&format!("workflow:\n  dependents:\n{lines}"));
    let daemon = place.daemon(&manifest);
    let desired: BTreeMap<_, _> = shapes.iter().map(|shape| (&*shape.name, &shape.desired)).collect();
    let mark = || place.cluster.audit().unwrap().mark().unwrap();
    let start = mark();
    place.probe("p", json!({ "dependents": desired, "reconcile": { "status": {} } }));
    let done = |daemon: &Daemon, generation: u64| {
        place.await_object(&place.probes(), "p", "a run that changes nothing any more", |p| {
            p["status"]["observedGeneration"] == generation
        });
        daemon.await_quiet();
    };
    let run = |daemon: &Daemon, generation: u64| {
        place.merge(&place.probes(), "p", &json!({ "spec": { "more": generation } }));
        done(daemon, generation);
    };
    done(&daemon, 1);
    let made = writes(place, start);
    assert!(made.len() == shapes.len() && made.values().all(|times| *times == 1), "{}: {made:?}", shapes.len());
    let by_itself = mark();
    run(&daemon, 2);
    assert_eq!(writes(place, by_itself), BTreeMap::new());
    let after_others = mark();
    touch(place, &shapes);
    for generation in [3, 4] {
        run(&daemon, generation);
    }
    assert_eq!(writes(place, after_others), BTreeMap::new(), "after another manager");
    drop(daemon);
    let by_another = mark();
    let daemon = place.daemon(&manifest);
    for generation in [5, 6] {
        run(&daemon, generation);
    }
    assert_eq!(writes(place, by_another), BTreeMap::new(), "by another daemon");
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
}

#[test]
fn what_is_applied_is_written_once_whatever_the_api_server_adds_and_whoever_looks() {
    // SN-1, SN-2, SSA-1
    written_once(&Place::new("endless"), "");
}

#[test]
fn what_is_replaced_is_written_once_whatever_the_api_server_adds_and_whoever_looks() {
    // SN-1, SN-2
    written_once(&Place::new("endless2"), ", serverSideApply: false");
}

#[test]
fn what_is_tried_first_is_written_once_whatever_the_api_server_adds_and_whoever_looks() {
    // TR-1
    written_once(&Place::new("endless3"), ", match: dryRun");
}

#[test]
fn what_is_tried_and_replaced_is_written_once_whatever_the_api_server_adds_and_whoever_looks() {
    // TR-1
    written_once(&Place::new("endless4"), ", serverSideApply: false, match: dryRun");
}

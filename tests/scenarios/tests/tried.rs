//! Writes that the API server is asked about before they are sent, and objects that can't be updated.

use scenarios::Place;
use serde_json::{Value, json};

/// Returns a config map that can't be changed, with this text.
fn fixed(text: &str) -> Value {
    json!({ "metadata": { "name": "cm" }, "immutable": true, "data": { "a": text } })
}

/// Returns a manifest with a dependent `cm` with these further fields.
fn manifest(place: &Place, fields: &str) -> String {
    place.probe_manifest(&format!(
        "retry: {{ initialInterval: 100ms, maxAttempts: 1 }}\nworkflow:\n  dependents:\n    cm: {{ apiVersion: v1, kind: ConfigMap, {fields} }}\n"
    ))
}

// TR-2
#[test]
fn what_can_not_be_updated_is_made_anew_if_that_is_wanted_and_possible() {
    let place = Place::new("anew");
    let daemon = place.daemon(&manifest(&place, "onImmutable: recreate"));
    place.probe("p", json!({ "dependents": { "cm": fixed("b") }, "reconcile": { "status": { "ok": true } } }));
    let made = place.await_object(&place.config_maps(), "cm", "to be made", |_| true);
    let wants = |map: Value| place.merge(&place.probes(), "p", &json!({ "spec": { "dependents": { "cm": map } } }));
    wants(fixed("c"));
    let anew = place.await_object(&place.config_maps(), "cm", "to be made anew", |map| map["data"]["a"] == "c");
    assert_ne!(made["metadata"]["uid"], anew["metadata"]["uid"]);
    daemon.await_line("made anew, because it can't be updated");
    // What is wrong in itself deletes nothing.
    wants(json!({ "metadata": { "name": "cm", "labels": { "a": "no label!" } } }));
    let line = daemon.await_line("no retries left");
    assert!(line.contains("the workflow failed: cm: ") && line.contains("metadata.labels: Invalid value"), "{line}");
    let left = place.find(&place.config_maps(), "cm").unwrap();
    assert_eq!(left["metadata"]["uid"], anew["metadata"]["uid"]);
}

// TR-2
#[test]
fn what_can_not_be_updated_stays_and_the_failure_says_what_would_help() {
    let place = Place::new("stays");
    let daemon = place.daemon(&manifest(&place, "match: usual"));
    place.probe("p", json!({ "dependents": { "cm": fixed("b") }, "reconcile": { "status": { "ok": true } } }));
    place.await_object(&place.config_maps(), "cm", "to be made", |_| true);
    place.merge(&place.probes(), "p", &json!({ "spec": { "dependents": { "cm": fixed("c") } } }));
    let line = daemon.await_line("no retries left");
    assert!(line.contains("the workflow failed: cm: ") && line.contains("field is immutable"), "{line}");
    assert!(line.contains("onImmutable: recreate"), "{line}");
    assert_eq!(place.find(&place.config_maps(), "cm").unwrap()["data"]["a"], "b");
}

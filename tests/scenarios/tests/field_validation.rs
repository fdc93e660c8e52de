//! Fields that are written and that a kind does not have: refused by name, or dropped with a warning.

use scenarios::Place;
use serde_json::json;

/// Returns a manifest with a dependent `cm`, which is not applied, and these fields of the controller.
fn manifest(place: &Place, dependent: &str, fields: &str) -> String {
    let cm = format!("cm: {{ apiVersion: v1, kind: ConfigMap{dependent} }}");
    place.probe_manifest(&format!(
        "retry: {{ initialInterval: 100ms, maxAttempts: 1 }}\n{fields}workflow:\n  dependents:\n    {cm}\n"
    ))
}

/// Creates a probe whose dependent has a misspelt field.
fn misspelt(place: &Place) {
    let map = json!({ "metadata": { "name": "cm" }, "dataa": { "a": "b" } });
    place.probe("p", json!({ "dependents": { "cm": map }, "reconcile": { "status": { "ok": true } } }));
}

// FV-1
#[test]
fn a_field_that_its_kind_does_not_have_is_refused_with_its_path_and_the_dependents_name() {
    let place = Place::new("strict");
    let daemon = place.daemon(&manifest(&place, "", ""));
    misspelt(&place);
    let line = daemon.await_line("no retries left");
    for words in
        ["cm: create v1 ConfigMap", "unknown field \\\"dataa\\\"", "fieldValidation: warn", "\"class\":\"rejected\""]
    {
        assert!(line.contains(words), "{words} is not in {line}");
    }
    assert_eq!(place.find(&place.config_maps(), "cm"), None);
    let right = json!({ "spec": { "dependents": { "cm": { "dataa": null, "data": { "a": "b" } } } } });
    place.merge(&place.probes(), "p", &right);
    place.await_object(&place.config_maps(), "cm", "to be made", |map| map["data"]["a"] == "b");
}

// FV-1, FV-2
#[test]
fn what_is_dropped_is_told_once_by_the_api_servers_own_warning() {
    let place = Place::new("warn");
    let daemon = place.daemon(&manifest(&place, ", fieldValidation: warn, match: { generic: {} }", ""));
    misspelt(&place);
    place.await_object(&place.config_maps(), "cm", "to be made", |map| map["dataa"].is_null());
    let line = daemon.await_line("the API server warns");
    assert!(line.contains("unknown field") && line.contains("dataa") && line.contains("create v1 ConfigMap"), "{line}");
    assert!(daemon.count("capstan_api_server_warnings_total", "") > 0);
    let ignoring = Place::new("ignore");
    let daemon = ignoring.daemon(&manifest(&ignoring, "", "fieldValidation: ignore\n"));
    misspelt(&ignoring);
    ignoring.await_object(&ignoring.config_maps(), "cm", "to be made", |_| true);
    assert!(!daemon.log().contains("the API server warns"), "{}", daemon.log());
}

//! Whether a primary is one that the component can work with, asked before anything but its finalizer is written for it.

use cluster::wait;
use scenarios::{Daemon, Folder, Place, SOON};
use serde_json::{Value, json};

const FIELDS: &str = "statusConditions: standard
retry: { initialInterval: 100ms, maxAttempts: 2 }
workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }
";

/// A probe with a config map, which `validate` finds right, or wrong at a field.
fn spec(wrong: Option<&str>) -> Value {
    let wrong: Value = wrong.map_or_else(|| json!({}), |message| json!({ "spec.text": message }));
    json!({ "validate": { "wrong": wrong }, "dependents": { "cm": { "metadata": { "name": "map" }, "data": { "a": "b" } } } })
}

/// Waits until a condition of a probe has this status and reason, and returns its message.
fn await_condition(place: &Place, kind: &str, status: &str, reason: &str) -> String {
    let of = |probe: &Value| {
        let all = probe["status"]["conditions"].as_array().into_iter().flatten();
        all.clone().find(|one| one["type"] == *kind).cloned().unwrap_or_default()
    };
    let probe = place.await_object(&place.probes(), "p", &format!("{kind}={status}/{reason}"), |probe| {
        let found = of(probe);
        found["status"] == *status && found["reason"] == *reason
    });
    of(&probe)["message"].as_str().unwrap().to_owned()
}

/// Returns how often `validate` was called for what is logged there.
fn failures(daemon: &Daemon) -> usize {
    daemon.lines().iter().filter(|line| line["message"] == "the run failed").count()
}

#[test]
fn a_primary_that_is_wrong_says_why_and_nothing_is_written_until_it_is_right() {
    // VA-1, VA-2
    let place = Place::new("invalid");
    let daemon = place.daemon(&place.probe_manifest(FIELDS));
    place.probe("p", spec(Some("it is empty; expected a text")));
    let why = "spec.text: it is empty; expected a text";
    assert_eq!(await_condition(&place, "Ready", "False", "Invalid"), why);
    let then = "the next run follows a change of it, of the component, or of its settings";
    assert_eq!(await_condition(&place, "Progressing", "False", "Invalid"), then);
    assert_eq!(await_condition(&place, "Degraded", "True", "Invalid"), format!("{why}; {then}"));
    let path = place.namespace.path("v1", "events");
    let told = wait::until_ok(SOON, "the Event", || {
        let list = place.cluster.api().get(&path).unwrap();
        let event = list["items"].as_array().unwrap().iter().find(|event| event["reason"] == "Invalid").cloned();
        event.ok_or(list)
    });
    let told = told.unwrap();
    assert_eq!((&told["type"], &told["message"]), (&json!("Warning"), &json!(format!("{why}; {then}"))));
    daemon.await_quiet();
    assert_eq!(failures(&daemon), 1, "it is not retried");
    assert!(place.find(&place.config_maps(), "map").is_none());
    let shown = daemon.controllers();
    assert_eq!(shown["controllers"][0]["states"][0]["lastError"]["message"], json!(why), "{shown}");
    place.merge(&place.probes(), "p", &json!({ "spec": { "validate": { "wrong": null } } }));
    await_condition(&place, "Ready", "True", "Succeeded");
    place.await_object(&place.config_maps(), "map", "to be there", |_| true);
}

#[test]
fn a_primary_that_is_wrong_is_looked_at_again_by_a_new_version_and_goes_when_it_is_to_go() {
    // VA-2, VA-3
    let (place, folder) = (Place::new("invalidgoes"), Folder::new());
    let manifest = place.probe_manifest(FIELDS);
    folder.put("operator.yaml", &manifest);
    let daemon = folder.daemon(&place);
    place.probe("p", spec(Some("no")));
    await_condition(&place, "Degraded", "True", "Invalid");
    daemon.await_quiet();
    assert_eq!(failures(&daemon), 1);
    folder.put("operator.yaml", manifest.replace("maxAttempts: 2", "maxAttempts: 3"));
    let again = || if failures(&daemon) == 2 { Ok(()) } else { Err(daemon.log()) };
    wait::until_ok(SOON, "another look, with other settings", again).unwrap();
    let finalizers = place.find(&place.probes(), "p").unwrap()["metadata"]["finalizers"].clone();
    assert!(finalizers.as_array().is_some_and(|all| !all.is_empty()), "{finalizers}");
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
}

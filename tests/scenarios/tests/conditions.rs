//! The standard conditions that the daemon keeps in the status of primaries.

use cluster::{Mark, Query, wait};
use scenarios::{Daemon, LATER, Place};
use serde_json::{Value, json};

const STANDARD: &str = "statusConditions: standard\n";
/// A config map as a dependent, which is ready once its data say so.
const GATED: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, readyPostcondition: { cel: dependent.data.ready == 'yes' } } } }\n";
const SOON_RETRIED: &str = "retry: { initialInterval: 100ms, maxAttempts: 2 }\n";
const READY: [&str; 3] = ["Ready=True/Succeeded", "Progressing=False/Succeeded", "Degraded=False/Succeeded"];

fn daemon(place: &Place, fields: &str) -> Daemon {
    place.daemon(&place.probe_manifest(&format!("{STANDARD}{fields}")))
}

/// Returns the conditions of an object, each as `Ready=True/Succeeded`.
fn conditions(object: &Value) -> Vec<String> {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    all.iter().map(|one| format!("{}={}/{}", text(one, "type"), text(one, "status"), text(one, "reason"))).collect()
}

fn condition(object: &Value, kind: &str) -> Value {
    let mut all = object["status"]["conditions"].as_array().into_iter().flatten();
    all.find(|one| one["type"] == *kind).cloned().unwrap_or_default()
}

/// Waits until a probe has these conditions, and perhaps others, for its generation.
fn await_conditions(place: &Place, name: &str, expected: &[&str]) -> Value {
    place.await_object(&place.probes(), name, &expected.join(" "), |probe| {
        let found = conditions(probe);
        let current = condition(probe, "Ready")["observedGeneration"] == probe["metadata"]["generation"];
        current && expected.iter().all(|one| found.contains(&(*one).to_owned()))
    })
}

/// Waits for a condition as people do.
fn kubectl_wait(place: &Place, name: &str, condition: &str) {
    let (of, probe) = (format!("--for=condition={condition}"), format!("probe/{name}"));
    let arguments = ["wait", "-n", place.namespace.name(), &of, &probe, "--timeout=30s"];
    place.cluster.kubectl(&arguments).unwrap();
}

fn mark(place: &Place) -> Mark {
    place.cluster.audit().unwrap().mark().unwrap()
}

/// Returns how often the status of probes was written since a mark.
fn status_writes(place: &Place, since: Mark) -> usize {
    let query =
        Query::since(since).user_agent("capstan/").namespace(place.namespace.name()).resource("probes").writes();
    let writes = place.cluster.audit().unwrap().requests(&query).unwrap();
    writes.iter().filter(|write| write.subresource == "status").count()
}

fn map(ready: &str) -> Value {
    json!({ "cm": { "metadata": { "name": "map" }, "data": { "ready": ready } } })
}

#[test]
fn a_primary_is_ready_once_its_dependents_are_as_kubectl_wait_sees_it() {
    // SC-1, SC-2
    let place = Place::new("conditions");
    let daemon = daemon(&place, GATED);
    place.probe("p", json!({ "dependents": map("no") }));
    let waiting = ["Ready=False/DependentNotReady", "Progressing=True/DependentNotReady", "Degraded=False/Succeeded"];
    let before = await_conditions(&place, "p", &waiting);
    assert_eq!(condition(&before, "Ready")["message"], "not ready: cm");
    kubectl_wait(&place, "p", "Ready=False");
    // Somebody else makes it ready, for now: nothing of the primary changes.
    place.merge(&place.probes(), "p", &json!({ "spec": { "dependents": map("yes") } }));
    kubectl_wait(&place, "p", "Ready");
    let after = await_conditions(&place, "p", &READY);
    let time = |probe: &Value, kind: &str| condition(probe, kind)["lastTransitionTime"].clone();
    assert_eq!(time(&before, "Degraded"), time(&after, "Degraded"), "its status has not changed");
    daemon.await_quiet();
    let records = after["metadata"]["managedFields"].as_array().unwrap();
    let manager = format!("{}/conditions", place.namespace.name());
    assert!(records.iter().any(|record| record["manager"] == manager && record["operation"] == "Apply"), "{after}");
}

#[test]
fn a_failure_shows_until_a_run_succeeds() {
    // SC-1
    let place = Place::new("degraded");
    let _daemon = daemon(&place, SOON_RETRIED);
    place.probe("p", json!({ "reconcile": { "do": { "fail": "no theme" } } }));
    let last = ["Ready=False/RunFailed", "Progressing=False/RetriesExhausted", "Degraded=True/RunFailed"];
    let failed = await_conditions(&place, "p", &last);
    let message = condition(&failed, "Degraded")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("no theme") && message.contains("that was the last attempt"), "{message}");
    kubectl_wait(&place, "p", "Degraded");
    place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": null } }));
    kubectl_wait(&place, "p", "Ready");
    await_conditions(&place, "p", &READY);
    for (step, text) in [(json!("trap"), "traps on purpose"), (json!("loop"), "took longer")] {
        place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "do": step } } }));
        let failed = await_conditions(&place, "p", &["Degraded=True/RunFailed"]);
        let message = condition(&failed, "Ready")["message"].to_string();
        assert!(message.contains(text), "{message}");
    }
}

#[test]
fn a_dependent_that_fails_is_named() {
    // SC-1
    let place = Place::new("broken");
    let fields = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }\n";
    let _daemon = daemon(&place, &format!("{SOON_RETRIED}{fields}"));
    place.probe("p", json!({ "dependents": { "cm": { "metadata": { "name": "cm" }, "data": { "no/key": "a" } } } }));
    let last = ["Ready=False/DependentFailed", "Progressing=False/RetriesExhausted", "Degraded=True/DependentFailed"];
    let failed = await_conditions(&place, "p", &last);
    let message = condition(&failed, "Ready")["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("failed: cm ("), "{message}");
    assert!(message.contains("data[no/key]: Invalid value"), "what the API server says: {message}");
}

#[test]
fn a_status_that_the_component_answers_takes_no_conditions_away_and_there_is_no_endless_loop() {
    // SC-3, UC-5
    for (prefix, fields) in [("applied", ""), ("patched", "serverSideApply: false\n")] {
        let place = Place::new(prefix);
        let daemon = daemon(&place, &format!("generationAware: false\n{fields}"));
        let synced =
            json!([{ "type": "Synced", "status": "True", "reason": "Own" }, { "type": "Ready", "status": "Unknown" }]);
        place.probe("without", json!({ "reconcile": { "status": { "ok": true } } }));
        place.probe("with", json!({ "reconcile": { "status": { "ok": true, "conditions": synced } } }));
        for (name, own) in [("without", &[][..]), ("with", &["Synced=True/Own"])] {
            let probe = await_conditions(&place, name, &[&READY[..], own].concat());
            assert_eq!(conditions(&probe).len(), 3 + own.len(), "{probe}");
        }
        daemon.await_quiet();
        let (since, runs) = (mark(&place), daemon.runs());
        // The finalizer, the run, and one for the event of the answered status.
        assert!(daemon.runs_of("without") <= 4, "{}", daemon.log());
        for name in ["without", "with"] {
            place.merge(&place.probes(), name, &json!({ "metadata": { "labels": { "by": "others" } } }));
        }
        daemon.await_runs(runs + 2);
        daemon.await_quiet();
        assert_eq!(status_writes(&place, since), 0, "what is no news is not written");
        for (name, own) in [("without", 0), ("with", 1)] {
            let probe = place.find(&place.probes(), name).unwrap();
            assert_eq!((conditions(&probe).len(), &probe["status"]["ok"]), (3 + own, &json!(true)), "{probe}");
        }
    }
}

#[test]
fn what_a_component_takes_away_by_a_patch_is_there_again_after_the_run() {
    // SC-3
    let place = Place::new("taken");
    let daemon = place.daemon(&place.able_manifest(STANDARD));
    let target = json!({ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "namespace": place.namespace.name(), "name": "p" });
    let patch = json!([{ "op": "add", "path": "/status", "value": { "taken": true } }]);
    let write = json!({ "verb": "jsonPatch", "target": target, "patch": patch, "subresource": "status" });
    place.probe("p", json!({ "reconcile": { "do": { "write": write, "tell": true } } }));
    for generation in [1, 2] {
        let probe = await_conditions(&place, "p", &READY);
        assert_eq!(probe["metadata"]["generation"], generation);
        daemon.await_quiet();
        let probe = place.find(&place.probes(), "p").unwrap();
        assert_eq!((conditions(&probe), &probe["status"]["taken"]), (READY.map(str::to_owned).to_vec(), &json!(true)));
        place.merge(&place.probes(), "p", &json!({ "spec": { "anything": 1 } }));
    }
}

#[test]
fn conditions_are_written_once_and_their_event_causes_no_run() {
    // SC-2
    let place = Place::new("once");
    let daemon = daemon(&place, "generationAware: false\n");
    let since = mark(&place);
    place.probe("p", json!({}));
    await_conditions(&place, "p", &READY);
    daemon.await_quiet();
    // The first run adds the finalizer.
    assert_eq!((daemon.runs_of("p"), status_writes(&place, since)), (2, 1), "{}", daemon.log());
    // Whoever takes them away sees them again.
    place
        .cluster
        .api()
        .merge(&format!("{}/p/status", place.probes()), &json!({ "status": { "conditions": null } }))
        .unwrap();
    await_conditions(&place, "p", &READY);
}

#[test]
fn a_primary_that_is_deleted_says_what_it_waits_for() {
    // SC-1
    let place = Place::new("deleting");
    let _daemon = daemon(&place, "");
    place.probe("p", json!({ "cleanup": { "keep": true } }));
    await_conditions(&place, "p", &READY);
    place.delete(&place.probes(), "p");
    let deleting = ["Ready=False/Deleting", "Progressing=True/Deleting"];
    let probe = place.await_object(&place.probes(), "p", "its end", |probe| {
        deleting.iter().all(|one| conditions(probe).contains(&(*one).to_owned()))
    });
    let message = condition(&probe, "Progressing")["message"].clone();
    assert_eq!(message, "being deleted: the component is not done with its clean-up");
    place.merge(&place.probes(), "p", &json!({ "spec": { "cleanup": null } }));
    place.await_gone(&place.probes(), "p");
}

#[test]
fn a_kind_without_conditions_gets_none_until_its_definition_has_them() {
    // SC-5
    let place = Place::new("without");
    let group = format!("{}.capstan.dev", place.namespace.name());
    let definition = |status: Value| {
        let spec = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let schema = json!({ "type": "object", "properties": { "spec": spec, "status": status } });
        json!({ "name": "v1", "served": true, "storage": true, "subresources": { "status": {} }, "schema": { "openAPIV3Schema": schema } })
    };
    let entry = ["type", "status", "lastTransitionTime", "reason", "message"]
        .map(|name| (name.to_owned(), json!({ "type": "string" })));
    let mut fields: serde_json::Map<_, _> = entry.into_iter().collect();
    fields.insert("observedGeneration".to_owned(), json!({ "type": "integer" }));
    let list = json!({ "type": "array", "items": { "type": "object", "required": ["type"], "properties": fields } });
    let mut map = list.clone();
    map["x-kubernetes-list-type"] = "map".into();
    map["x-kubernetes-list-map-keys"] = json!(["type"]);
    let status = |list: &Value| json!({ "type": "object", "properties": { "conditions": list } });
    let names = json!({ "kind": "Plain", "plural": "plains", "singular": "plain" });
    let crd = json!({ "spec": { "group": group, "names": names, "scope": "Namespaced", "versions": [definition(status(&list))] } });
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    place.create("apiextensions.k8s.io/v1", "CustomResourceDefinition", crds, &format!("plains.{group}"), crd);
    let wait = ["wait", "--for=condition=Established", "--timeout=30s", &format!("crd/plains.{group}")];
    place.cluster.kubectl(&wait).unwrap();
    let primary = format!("{{ apiVersion: {group}/v1, kind: Plain }}");
    let daemon = place.daemon(&place.manifest("probe", &primary, "", STANDARD));
    let path = place.namespace.path(&format!("{group}/v1"), "plains");
    place.create(&format!("{group}/v1"), "Plain", &path, "p", json!({}));
    let line = daemon.await_line("not as a map by `type`");
    assert!(line.contains("statusConditions") && line.contains("WARN"), "{line}");
    daemon.await_quiet();
    assert_eq!(conditions(&place.find(&path, "p").unwrap()), [""; 0]);
    let versions = json!({ "spec": { "versions": [definition(status(&map))] } });
    place.cluster.api().merge(&format!("{crds}/plains.{group}"), &versions).unwrap();
    let ready = || place.find(&path, "p").filter(|object| conditions(object) == READY);
    wait::until(LATER, "its conditions", ready).unwrap();
    daemon.stop();
    place.delete(crds, &format!("plains.{group}"));
}

//! Which changes of what a controller watches make which primaries run.

use scenarios::Place;
use serde_json::{Value, json};

/// The probe has a cleaner, so the first run of each probe adds the finalizer and does no more (DI-4).
const FINALIZER_RUN: u64 = 1;

const PERMITTED: &str = "capabilities:\n  kubernetes: [{ apiVersion: v1, kind: ConfigMap, verbs: [get, apply] }]\n";

/// Returns a manifest of a controller over probes that may apply config maps.
fn manifest(place: &Place, fields: &str) -> String {
    place.manifest("probe", "{ apiVersion: test.capstan.dev/v1, kind: Probe }", PERMITTED, fields)
}

/// Returns a step that applies a config map of the probe `p`, in a mode in which its event is not filtered as one's own.
fn applied(place: &Place, value: &str) -> Value {
    let owner = json!({ "name": "map", "namespace": place.namespace.name(), "annotations": { "capstan.dev/primary-name": "p" } });
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": owner, "data": { "value": value } });
    json!([{ "write": { "verb": "apply", "mode": "plain", "object": map } }])
}

#[test]
fn s026_filters_decide_which_changes_of_primaries_and_secondaries_count() {
    // CF-5, IS-1
    let place = Place::new("s026");
    let daemon = place.daemon(&manifest(
        &place,
        "filters: { onUpdate: { cel: \"!has(object.spec.value) || object.spec.value != 'custom_resource_skip_this'\" } }
sources:
  maps:
    informer:
      apiVersion: v1
      kind: ConfigMap
      mapper: { annotations: {} }
      filters: { onUpdate: { cel: \"object.data.value != 'config_map_skip_this'\" } }
",
    ));
    place.probe("p", json!({ "reconcile": { "do": applied(&place, "first") } }));
    place.await_object(&place.config_maps(), "map", "the config map", |map| map["data"]["value"] == "first");
    daemon.await_quiet();
    let settled = FINALIZER_RUN + 2;
    assert_eq!(daemon.runs(), settled, "its own run, and that for the config map");

    place.merge(&place.probes(), "p", &json!({ "spec": { "value": "custom_resource_skip_this" } }));
    daemon.await_quiet();
    assert_eq!(daemon.runs(), settled, "the primary's change is filtered");

    let spec = json!({ "spec": { "value": "counts", "reconcile": { "do": applied(&place, "config_map_skip_this") } } });
    place.merge(&place.probes(), "p", &spec);
    let skipped = |map: &Value| map["data"]["value"] == "config_map_skip_this";
    place.await_object(&place.config_maps(), "map", "the second value", skipped);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), settled + 1, "the config map's change is filtered");
    assert_eq!(daemon.count("capstan_callback_failures_total", "filter"), 0);
}

#[test]
fn s092_the_filter_of_a_dependent_decides_which_changes_of_it_count() {
    // IS-1
    let place = Place::new("s092");
    let daemon = place.daemon(&place.probe_manifest(
        "workflow:
  dependents:
    cm: { apiVersion: v1, kind: ConfigMap, filters: { onUpdate: { cel: \"object.data.value != 'skip'\" } } }
",
    ));
    let map = json!({ "metadata": { "name": "map" }, "data": { "value": "right" } });
    place.probe("p", json!({ "dependents": { "cm": map } }));
    place.await_object(&place.config_maps(), "map", "the config map", |_| true);
    daemon.await_quiet();
    let settled = daemon.runs();
    assert_eq!(settled, FINALIZER_RUN + 1);
    place.merge(&place.config_maps(), "map", &json!({ "data": { "value": "skip" } }));
    daemon.await_quiet();
    assert_eq!(daemon.runs(), settled);
    assert_eq!(place.find(&place.config_maps(), "map").unwrap()["data"]["value"], "skip", "nobody has looked");
    place.merge(&place.config_maps(), "map", &json!({ "data": { "value": "other" } }));
    place.await_object(&place.config_maps(), "map", "the repair", |map| map["data"]["value"] == "right");
}

#[test]
fn without_the_built_in_rules_every_change_of_a_primary_counts_and_a_filter_alone_decides() {
    // CF-3
    let place = Place::new("nodefault");
    let filter = "defaultFilters: false\nfilters: { generic: { cel: \"!('quiet' in object.metadata.labels)\" } }\n";
    let daemon = place.daemon(&place.probe_manifest(filter));
    place.labelled_probe("p", "loud", json!({}));
    place.await_object(&place.probes(), "p", "the finalizer", |p| p["metadata"]["finalizers"].is_array());
    daemon.await_quiet();
    let settled = daemon.runs();
    place.merge(&place.probes(), "p", &json!({ "metadata": { "annotations": { "a": "b" } } }));
    daemon.await_runs(settled + 1);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), settled + 1, "no generation says so");
    place.merge(&place.probes(), "p", &json!({ "metadata": { "labels": { "quiet": "" } }, "spec": { "n": 1 } }));
    daemon.await_quiet();
    assert_eq!(daemon.runs(), settled + 1);
    assert_eq!(daemon.count("capstan_callback_failures_total", "filter"), 0);
    // Without labels the filter has no answer: the change counts.
    place.merge(&place.probes(), "p", &json!({ "metadata": { "labels": null } }));
    daemon.await_runs(settled + 2);
    daemon.await_line("a filter has no answer");
    assert_eq!(daemon.count("capstan_callback_failures_total", "filter"), 1);
    // What it can't filter is the end.
    place.merge(&place.probes(), "p", &json!({ "metadata": { "labels": { "quiet": "" } } }));
    daemon.await_quiet();
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
}

#[test]
fn primaries_that_a_changed_filter_lets_pass_run() {
    // CF-1
    let place = Place::new("refilter");
    let folder = scenarios::Folder::new();
    let manifest = |label: &str| {
        place.probe_manifest(&format!("filters: {{ onAdd: {{ cel: \"'{label}' in object.metadata.labels\" }} }}\n"))
    };
    folder.put("operator.yaml", manifest("one"));
    for label in ["one", "other"] {
        place.labelled_probe(label, label, json!({ "reconcile": { "status": { "seen": true } } }));
    }
    let daemon = folder.daemon(&place);
    let seen = |p: &Value| p["status"]["seen"] == true;
    place.await_object(&place.probes(), "one", "its status", seen);
    daemon.await_quiet();
    assert!(!seen(&place.find(&place.probes(), "other").unwrap()), "it is filtered");
    folder.put("operator.yaml", manifest("other"));
    place.await_object(&place.probes(), "other", "its status", seen);
}

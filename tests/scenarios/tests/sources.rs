//! Which changes of what a controller watches make which primaries run.

use std::time::Duration;

use cluster::wait;
use scenarios::{Daemon, Place};
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
    let settled = FINALIZER_RUN + 2;
    daemon.await_runs(settled);
    daemon.await_quiet();
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

/// A source of config maps that are found by an index of the primaries, by their names.
const BY_INDEX: &str = "indexes: { by-config: { pointer: /spec/config } }
sources:
  configs: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { index: { name: by-config } } } }
";

/// Returns a spec that names a config map, and reads what belongs to the primary in the source `configs`.
fn configured(name: &str) -> Value {
    let read = json!({ "read": { "in": { "source": "configs" }, "select": "related" }, "as": "configs" });
    json!({ "config": name, "reconcile": { "do": [read], "status": {} } })
}

fn config_map(place: &Place, name: &str) {
    place.create("v1", "ConfigMap", &place.config_maps(), name, json!({ "data": { "a": "b" } }));
}

/// Waits until a probe has seen these config maps.
fn await_seen(place: &Place, probe: &str, names: Value) {
    place.await_object(&place.probes(), probe, &format!("{names}"), |p| p["status"]["configs"] == names);
}

#[test]
fn s048_an_index_of_primaries_says_who_refers_to_an_object() {
    // IM-4, IX-2
    let place = Place::new("s048");
    let daemon = place.daemon(&place.probe_manifest(BY_INDEX));
    for name in ["one", "two"] {
        place.probe(name, configured("common-config-map"));
        await_seen(&place, name, json!([]));
    }
    place.probe("three", configured("another"));
    await_seen(&place, "three", json!([]));
    daemon.await_quiet();
    let settled = 3 * (FINALIZER_RUN + 1);
    assert_eq!(daemon.runs(), settled);
    config_map(&place, "common-config-map");
    for name in ["one", "two"] {
        await_seen(&place, name, json!(["common-config-map"]));
    }
    daemon.await_quiet();
    // Each writes its status once more, which leaves its generation as it is.
    assert_eq!(daemon.runs(), settled + 2, "the two that name it, and each once");
    // Of another primary from now on.
    place.merge(&place.probes(), "two", &json!({ "spec": { "config": "another" } }));
    await_seen(&place, "two", json!([]));
    daemon.await_quiet();
    let settled = daemon.runs();
    place.merge(&place.config_maps(), "common-config-map", &json!({ "data": { "a": "c" } }));
    daemon.await_runs(settled + 1);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), settled + 1);
}

#[test]
fn s049_a_primary_that_names_a_secondary_finds_it_and_follows_it() {
    // IM-4, IM-6
    let place = Place::new("s049");
    let daemon = place.daemon(&place.probe_manifest(
        "indexes: { by-cluster: { cel: \"[object.spec.cluster]\" } }
sources:
  clusters:
    informer:
      apiVersion: v1
      kind: ConfigMap
      mapper: { index: { name: by-cluster, key: { cel: object.metadata.name } } }
      secondaries: { cel: primary.spec.cluster }
",
    ));
    config_map(&place, "cluster");
    let read =
        json!({ "read": { "in": { "source": "clusters" }, "select": "one" }, "show": ["/data/a"], "as": "cluster" });
    place.probe("job", json!({ "cluster": "cluster", "reconcile": { "do": [read], "status": {} } }));
    let seen = |value: &'static str| move |p: &Value| p["status"]["cluster"]["/data/a"] == value;
    place.await_object(&place.probes(), "job", "its cluster's value", seen("b"));
    daemon.await_quiet();
    assert_eq!(daemon.runs(), FINALIZER_RUN + 1);
    place.merge(&place.config_maps(), "cluster", &json!({ "data": { "a": "CHANGED_VALUE" } }));
    place.await_object(&place.probes(), "job", "the changed value", seen("CHANGED_VALUE"));
    daemon.await_quiet();
    assert_eq!(daemon.count("capstan_callback_failures_total", ""), 0);
}

#[test]
fn s050_without_a_way_back_a_run_finds_no_secondary_and_can_read_it_by_its_name() {
    // IM-4
    let place = Place::new("s050");
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    let fields = "retry: none
sources:
  clusters: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { pointer: /data/job } } }
";
    let daemon = place.daemon(&place.manifest("probe", primary, "limits: { timeout: 3s }\n", fields));
    config_map(&place, "cluster");
    let from = json!({ "source": "clusters" });
    let (name, namespace) = ("cluster", place.namespace.name());
    let related = json!({ "in": from, "select": "one" });
    // A run that can't do without it comes to nothing, however long it asks.
    place.probe("needy", json!({ "cluster": name, "reconcile": { "do": { "await": related }, "status": {} } }));
    let line = daemon.await_line("the run failed");
    assert!(line.contains("/needy\""), "{line}");
    daemon.await_quiet();
    let ended = ["success", "failure"].map(|end| daemon.count(&format!("capstan_reconciliations_{end}_total"), ""));
    assert_eq!(ended, [FINALIZER_RUN, 1]);
    assert_eq!(place.find(&place.probes(), "needy").unwrap()["status"], Value::Null);
    let by_name = json!({ "read": { "in": from, "select": { "named": { "namespace": namespace, "name": name } } }, "as": "named" });
    let related = json!({ "read": related, "as": "related" });
    place.probe("job", json!({ "cluster": name, "reconcile": { "do": [related, by_name], "status": {} } }));
    let job = place.await_object(&place.probes(), "job", "what it has read", |p| p["status"]["named"] == name);
    assert_eq!(job["status"]["related"], Value::Null, "nothing leads from the job to its cluster");
    daemon.await_quiet();
    assert_eq!(daemon.runs_of("job") as u64, FINALIZER_RUN + 1);
    // What the secondary says of its primary leads there and back.
    place.merge(&place.config_maps(), name, &json!({ "data": { "job": "job" } }));
    place.await_object(&place.probes(), "job", "its cluster", |p| p["status"]["related"] == name);
}

#[test]
fn s112_a_dependent_is_found_by_an_index_of_primaries() {
    // IX-2, KD-10
    let place = Place::new("s112");
    let workflow = "workflow:\n  dependents:\n    config: { apiVersion: v1, kind: ConfigMap, source: configs, readOnly: true, readyPostcondition: { cel: dependent != null } }\n";
    let daemon = place.daemon(&place.probe_manifest(&format!("{BY_INDEX}{workflow}")));
    for name in ["one", "two"] {
        let desired = json!({ "metadata": { "name": "common-config-map" } });
        let spec = configured("common-config-map");
        place.probe(
            name,
            json!({ "config": spec["config"], "reconcile": spec["reconcile"], "dependents": { "config": desired } }),
        );
        await_seen(&place, name, json!([]));
    }
    daemon.await_quiet();
    let settled = 2 * (FINALIZER_RUN + 1);
    assert_eq!(daemon.runs(), settled);
    config_map(&place, "common-config-map");
    for name in ["one", "two"] {
        await_seen(&place, name, json!(["common-config-map"]));
    }
    daemon.await_quiet();
    assert_eq!(daemon.runs(), settled + 2);
}

#[test]
fn s067_two_operators_share_primaries_by_shards() {
    // IN-3
    let place = Place::new("s067");
    let shard = |from: &str, to: &str| {
        place.probe_manifest(&format!("shardSelector: \"shardRange(object.metadata.uid, '0x{from}', '0x{to}')\"\n"))
    };
    let daemons = [
        place.daemon(&shard("0000000000000000", "8000000000000000")),
        place.daemon(&place.renamed(&shard("8000000000000000", "10000000000000000"), "two")),
    ];
    let names: Vec<String> = (0..20).map(|n| format!("p{n}")).collect();
    for name in &names {
        place.probe(name, json!({ "reconcile": { "status": { "seen": true } } }));
    }
    for name in &names {
        place.await_object(&place.probes(), name, "its status", |p| p["status"]["seen"] == true);
    }
    daemons.iter().for_each(Daemon::await_quiet);
    // Exactly one of both reconciles each of them, whether the API server knows shards or not.
    wait::holds(Duration::from_millis(500), "each primary's one daemon", || {
        let keys = daemons.each_ref().map(|daemon| daemon.count("capstan_custom_resources", ""));
        let ran = |name: &String| daemons.each_ref().map(|daemon| daemon.runs_of(name) as u64);
        let once = FINALIZER_RUN + 1;
        let divided = names.iter().all(|name| [[once, 0], [0, once]].contains(&ran(name)));
        let both = keys.iter().all(|keys| *keys > 0) && keys.iter().sum::<u64>() == names.len() as u64;
        if both && divided { Ok(()) } else { Err(format!("{keys:?} {:?}", names.iter().map(ran).collect::<Vec<_>>())) }
    })
    .unwrap();
}

#[test]
fn only_what_a_field_selector_selects_is_watched() {
    // IN-3
    let place = Place::new("fields");
    let source = "sources:\n  maps: { informer: { apiVersion: v1, kind: ConfigMap, fieldSelector: metadata.name=map, pageSize: 10, mapper: { pointer: /data/page } } }\n";
    let daemon = place.daemon(&place.probe_manifest(&format!("fieldSelector: metadata.name!=other\n{source}")));
    for name in ["other", "map"] {
        let data = json!({ "data": { "page": "p" } });
        place.create("v1", "ConfigMap", &place.config_maps(), name, data);
    }
    let read = json!({ "read": { "in": { "source": "maps" }, "select": "everywhere" }, "as": "maps" });
    for name in ["other", "p"] {
        place.probe(name, json!({ "reconcile": { "do": [read], "status": {} } }));
    }
    place.await_object(&place.probes(), "p", "the one map", |p| p["status"]["maps"] == json!(["map"]));
    daemon.await_quiet();
    assert_eq!(place.find(&place.probes(), "other").unwrap()["status"], Value::Null);
}

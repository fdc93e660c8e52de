//! Objects that a component writes and reads beside its primary: which events they cause, and what the caches have of them.

use std::time::Duration;

use cluster::wait;
use scenarios::{LATER, Place, SOON};
use serde_json::{Value, json};

/// The probe has a cleaner, so the first run of each probe adds the finalizer and does no more (DI-4).
const FINALIZER_RUN: usize = 1;
const ANY_EVENT: &str = "generationAware: false\n";

/// Returns a step that writes, and does not show in the status what was written.
fn quietly(write: Value) -> Value {
    json!({ "write": write, "tell": true })
}

/// Returns a step that applies a config map that belongs to probe `primary`.
fn apply(place: &Place, primary: &str, name: &str, value: &str) -> Value {
    quietly(json!({ "verb": "apply", "object": place.map_of(primary, name, json!({ "v": value })) }))
}

fn await_value(place: &Place, name: &str, value: &str) -> Value {
    place.await_object(&place.config_maps(), name, value, |map| map["data"]["v"] == value)
}

/// Returns the names of the objects of a kind that have a label.
fn labelled(place: &Place, path: &str, label: &str) -> Vec<Value> {
    let list = place.cluster.api().get(&format!("{path}?labelSelector={label}")).unwrap();
    list["items"].as_array().unwrap().clone()
}

#[test]
fn s005_many_primaries_at_once_have_what_they_want() {
    let (all, updated, deleted) = (50, 20, 30);
    let place = Place::new("s005");
    let daemon = place.daemon(&place.able_manifest(""));
    let name = |n: usize| format!("p{n}");
    let spec = |name: &str, value: &str| {
        let mut object = place.map_of(name, name, json!({ "v": value }));
        object["metadata"]["labels"] = json!({ "of": "s005" });
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "namespace": place.namespace.name(), "name": name });
        json!({
            "reconcile": { "do": quietly(json!({ "verb": "apply", "object": object })), "status": { "value": value } },
            "cleanup": { "do": quietly(json!({ "verb": "remove", "target": map })) },
        })
    };
    let await_maps = |count: usize, value: &str, with: usize| {
        wait::until_ok(LATER, "the config maps", || {
            let maps = labelled(&place, &place.config_maps(), "of=s005");
            let found = (maps.len(), maps.iter().filter(|map| map["data"]["v"] == value).count());
            if found == (count, with) { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .unwrap();
    };
    for n in 0..all {
        place.labelled_probe(&name(n), "of", spec(&name(n), "first"));
    }
    await_maps(all, "first", all);
    for n in deleted..deleted + updated {
        place.merge(&place.probes(), &name(n), &json!({ "spec": spec(&name(n), "second") }));
    }
    for n in 0..deleted {
        place.delete(&place.probes(), &name(n));
    }
    await_maps(all - deleted, "second", updated);
    daemon.await_quiet();
    let probes = labelled(&place, &place.probes(), "of");
    assert_eq!((probes.len(), labelled(&place, &place.config_maps(), "of=s005").len()), (updated, updated));
    assert!(probes.iter().all(|probe| probe["status"]["value"] == "second"), "{probes:?}");
}

#[test]
fn s018_own_writes_that_are_not_filtered_cause_runs() {
    // RO-3: it is said of each write, and not of all that a source shows.
    let place = Place::new("s018");
    let daemon = place.daemon(&place.able_manifest(""));
    let write = |value: &str| {
        let object = place.map_of("p", "s018", json!({ "v": value }));
        quietly(json!({ "verb": "apply", "object": object, "mode": "cache-only" }))
    };
    place.probe("p", json!({ "reconcile": { "do": write("one") } }));
    await_value(&place, "s018", "one");
    let ran = |runs: usize| {
        wait::until(SOON, "the run for its own write", || (daemon.runs_of("p") >= runs).then_some(())).unwrap();
        daemon.await_quiet();
        assert_eq!(daemon.runs_of("p"), runs);
    };
    ran(FINALIZER_RUN + 2);
    place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "do": write("two") } } }));
    await_value(&place, "s018", "two");
    ran(FINALIZER_RUN + 4);
}

#[test]
fn s029_an_object_is_written_changed_and_collected() {
    // IM-1
    let place = Place::new("s029");
    let _daemon = place.daemon(&place.able_manifest("").replace("{ annotations: {} }", "ownerReference"));
    let uid = place.probe("p", json!({}))["metadata"]["uid"].clone();
    let spec = |value: &str| {
        let mut object = place.map_of("p", "s029", json!({ "v": value }));
        let owner = json!({ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "name": "p", "uid": uid });
        object["metadata"]["ownerReferences"] = json!([owner]);
        json!({ "spec": { "reconcile": { "do": quietly(json!({ "verb": "apply", "object": object })) } } })
    };
    for value in ["initial", "changed"] {
        place.merge(&place.probes(), "p", &spec(value));
        await_value(&place, "s029", value);
    }
    place.delete(&place.probes(), "p");
    place.await_gone(&place.config_maps(), "s029");
}

#[test]
fn s035_one_object_in_two_sources_is_read_once() {
    // ES-1
    let place = Place::new("s035");
    let maps = "maps: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { annotations: {} } } }";
    let both = format!("{maps}\n        again{}", &maps["maps".len()..]);
    let daemon = place.daemon(&place.able_manifest("").replace(maps, &both));
    let map = place.map_of("p", "s035", json!({ "v": "before" }));
    place.cluster.api().create(&place.config_maps(), &map).unwrap();
    let read = |newest: bool, name: &str| {
        let kind = json!({ "apiVersion": "v1", "kind": "ConfigMap" });
        json!({ "read": { "in": { "kind": kind }, "select": "related", "newestOnly": newest }, "as": name })
    };
    let target =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "namespace": place.namespace.name(), "name": "s035" });
    let patch =
        json!({ "verb": "mergePatch", "target": target, "patch": { "data": { "v": "written" } }, "source": "again" });
    let steps = json!([read(true, "once"), read(false, "each"), quietly(patch)]);
    let within = Duration::from_secs(5);
    place.probe("p", json!({ "reconcile": { "do": steps, "status": {} } }));
    place.await_within(within, &place.probes(), "p", "what it has read", |p| p["status"]["once"].is_array());
    await_value(&place, "s035", "written");
    daemon.await_quiet();
    let before = daemon.runs();
    place.merge(&place.config_maps(), "s035", &json!({ "data": { "w": "by others" } }));
    wait::until(within, "another run", || (daemon.runs() > before).then_some(())).unwrap();
    wait::holds(Duration::from_secs(2), "one run for each source at most", || match daemon.runs() {
        runs if runs <= before + 2 => Ok(()),
        runs => Err(format!("{runs} runs after {before}")),
    })
    .unwrap();
    let status = &place.find(&place.probes(), "p").unwrap()["status"];
    assert_eq!((&status["once"], &status["each"]), (&json!(["s035"]), &json!(["s035", "s035"])), "{status}");
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
}

#[test]
fn s053_a_change_by_others_between_two_own_writes_is_not_lost() {
    // FW-8
    let place = Place::new("s053");
    let daemon = place.daemon(&place.able_manifest(""));
    let labels = json!({ "read": { "in": { "source": "maps" }, "select": "one" }, "show": ["/metadata/labels"], "as": "labels", "tell": true });
    let steps = json!([labels, apply(&place, "p", "s053", "one"), place.gate(), apply(&place, "p", "s053", "two")]);
    place.probe("p", json!({ "reconcile": { "do": steps } }));
    await_value(&place, "s053", "one");
    place.merge(&place.config_maps(), "s053", &json!({ "metadata": { "labels": { "by": "others" } } }));
    place.open_gate();
    let sees = || daemon.told("labels").last().filter(|sight| sight["/metadata/labels"]["by"] == "others").map(drop);
    wait::until(SOON, "a run that sees the label", sees).unwrap();
    daemon.await_quiet();
    let map = await_value(&place, "s053", "two");
    assert_eq!(map["metadata"]["labels"]["by"], "others");
    assert!(daemon.runs_of("p") > FINALIZER_RUN + 1);
}

#[test]
fn s057_several_own_writes_of_one_object_cause_no_run() {
    let place = Place::new("s057");
    let daemon = place.daemon(&place.able_manifest(ANY_EVENT));
    let steps = json!(["1", "2", "3"].map(|value| apply(&place, "p", "s057", value)));
    place.probe("p", json!({ "reconcile": { "do": steps } }));
    await_value(&place, "s057", "3");
    daemon.await_quiet();
    wait::holds(Duration::from_secs(2), "one run", || match daemon.runs_of("p") {
        runs if runs == FINALIZER_RUN + 1 => Ok(()),
        runs => Err(format!("{runs} runs")),
    })
    .unwrap();
}

#[test]
fn s059_own_writes_are_read_at_once_one_by_one_in_lists_and_in_indexes() {
    // OV-3, OV-4
    const ALL: usize = 250;
    let place = Place::new("s059");
    let _daemon = place.daemon(&place.able_manifest("indexes: { by-own: { pointer: /metadata/labels/own } }\n"));
    let namespace = place.namespace.name();
    for n in 0..ALL {
        let name = format!("p{n}");
        let metadata = json!({
            "name": name, "namespace": namespace,
            "labels": { "own": name }, "finalizers": ["probes.test.capstan.dev/finalizer"],
        });
        let object = json!({ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "metadata": metadata });
        let read = |select: Value, name: &str| {
            let labels = format!("own=p{n}");
            let mut read = json!({ "in": "primaries", "select": select });
            if name == "list" {
                read["labels"] = labels.into();
            }
            json!({ "read": read, "show": ["/metadata/resourceVersion"], "as": name })
        };
        let steps = json!([
            { "write": { "verb": "apply", "object": object }, "show": ["/metadata/resourceVersion"], "as": "written" },
            read(json!({ "named": { "namespace": namespace, "name": name } }), "get"),
            read(json!({ "namespace": namespace }), "list"),
            read(json!({ "indexed": { "index": "by-own", "key": name } }), "index"),
        ]);
        place.probe(&name, json!({ "reconcile": { "do": steps, "status": { "updated": true } } }));
    }
    let done = wait::until(LATER, "all to be updated", || {
        let list = place.cluster.api().get(&place.probes()).unwrap();
        let probes = list["items"].as_array().unwrap();
        probes.iter().all(|probe| probe["status"]["updated"] == true).then(|| probes.clone())
    });
    let probes = done.unwrap();
    assert_eq!(probes.len(), ALL);
    for probe in probes {
        let status = &probe["status"];
        assert!(status["written"]["/metadata/resourceVersion"].is_string(), "{status}");
        let seen = (&status["get"], &status["list"], &status["index"]);
        let written = json!([status["written"]]);
        assert_eq!(seen, (&status["written"], &written, &written), "{status}");
    }
}

#[test]
fn s071_the_first_run_after_the_start_sees_all_secondaries() {
    // EP-3
    const MAPS: usize = 200;
    let place = Place::new("s071");
    let read = json!({ "read": { "in": { "source": "maps" }, "select": "related" }, "as": "maps" });
    let runs = json!({ "memo": { "lifetime": "primary", "count": "runs" }, "as": "runs" });
    // A run that adds the finalizer would come before.
    let probe = json!({
        "metadata": { "finalizers": ["probes.test.capstan.dev/finalizer"] },
        "spec": { "reconcile": { "do": [runs, read], "status": {} } },
    });
    place.create("test.capstan.dev/v1", "Probe", &place.probes(), "p", probe);
    for n in 0..MAPS {
        let map = place.map_of("p", &format!("m{n}"), json!({}));
        place.cluster.api().create(&place.config_maps(), &map).unwrap();
    }
    let daemon = place.daemon(&place.able_manifest(""));
    let probe = place.await_object(&place.probes(), "p", "its first run", |p| p["status"]["runs"].is_number());
    assert_eq!(probe["status"]["runs"], 1);
    assert_eq!(probe["status"]["maps"].as_array().unwrap().len(), MAPS);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), 1);
}

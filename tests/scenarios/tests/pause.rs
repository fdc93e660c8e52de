//! Pauses: which primaries are left alone, for how long, and what happens when that ends.

use cluster::wait;
use jiff::{SignedDuration, Timestamp};
use scenarios::{Daemon, Folder, Place, SOON, component};
use serde_json::{Value, json};

/// Pauses a probe, or ends that (null).
fn pause(place: &Place, name: &str, value: Value) {
    let annotations = json!({ "capstan.dev/paused": value });
    place.merge(&place.probes(), name, &json!({ "metadata": { "annotations": annotations } }));
}

fn spec(text: &str) -> Value {
    json!({ "reconcile": { "status": { "text": text } } })
}

fn await_text(place: &Place, name: &str, text: &str) {
    place.await_object(&place.probes(), name, "its status", |p| p["status"]["text"] == text);
}

fn await_paused(daemon: &Daemon, primaries: u64) {
    let paused = || daemon.count("capstan_custom_resources_paused", "");
    wait::until_ok(SOON, "the pause", || if paused() == primaries { Ok(()) } else { Err(paused()) }).unwrap();
}

#[test]
fn a_primary_is_left_alone_while_its_annotation_says_so_and_runs_once_afterwards() {
    // PA-1, PA-3, PA-5
    let place = Place::new("paused");
    let daemon = place.daemon(&place.probe_manifest(""));
    place.probe("p", spec("first"));
    place.probe("q", spec("first"));
    await_text(&place, "p", "first");
    pause(&place, "p", json!("true"));
    await_paused(&daemon, 1);
    let shown = daemon.controllers();
    let states = shown["controllers"][0]["states"].as_array().unwrap();
    let paused: Vec<&Value> =
        states.iter().filter(|state| state["paused"] == true).map(|state| &state["key"]).collect();
    assert_eq!(paused, [&json!(format!("{}/p", place.namespace.name()))], "{shown}");
    for name in ["p", "q"] {
        place.merge(&place.probes(), name, &json!({ "spec": spec("second") }));
    }
    await_text(&place, "q", "second");
    daemon.await_quiet();
    await_text(&place, "p", "first");
    let runs = ["p", "q"].map(|name| daemon.runs_of(name));
    pause(&place, "p", Value::Null);
    await_text(&place, "p", "second");
    daemon.await_quiet();
    await_paused(&daemon, 0);
    assert_eq!(["p", "q"].map(|name| daemon.runs_of(name)), [runs[0] + 1, runs[1]]);
}

#[test]
fn a_primary_that_is_deleted_while_it_is_paused_stays_until_it_is_not() {
    // PA-1
    let place = Place::new("pausedgone");
    let daemon = place.daemon(&place.probe_manifest(""));
    place.probe("p", spec("first"));
    await_text(&place, "p", "first");
    pause(&place, "p", json!("true"));
    await_paused(&daemon, 1);
    place.delete(&place.probes(), "p");
    daemon.await_quiet();
    let going = place.find(&place.probes(), "p").unwrap();
    assert!(going["metadata"]["finalizers"].is_array(), "{going}");
    pause(&place, "p", json!("false"));
    place.await_gone(&place.probes(), "p");
    await_paused(&daemon, 0);
}

#[test]
fn a_pause_with_a_time_ends_then_and_one_that_is_unclear_does_not() {
    // PA-1, PA-4
    let place = Place::new("pausedtime");
    let daemon = place.daemon(&place.probe_manifest(""));
    for name in ["p", "q"] {
        place.probe(name, spec("first"));
        await_text(&place, name, "first");
    }
    let end = Timestamp::now() + SignedDuration::from_secs(3);
    pause(&place, "p", json!(end.to_string()));
    pause(&place, "q", json!("soon"));
    await_paused(&daemon, 2);
    let line = daemon.await_line("paused: the annotation capstan.dev/paused should be true, false or a time");
    assert!(line.contains("soon"), "{line}");
    for name in ["p", "q"] {
        place.merge(&place.probes(), name, &json!({ "spec": spec("second") }));
    }
    await_text(&place, "p", "second");
    assert!(Timestamp::now() >= end);
    await_text(&place, "q", "first");
}

#[test]
fn a_controller_that_its_manifest_pauses_does_nothing_until_it_does_not_and_then_runs_all_once() {
    // PA-2, PA-3
    let (place, folder) = (Place::new("pausedall"), Folder::new());
    folder.put("probe.wasm", std::fs::read(component("probe")).unwrap());
    let manifest = |fields: &str| {
        let manifest =
            place.manifest("probe", "{ apiVersion: test.capstan.dev/v1, kind: Probe }", "onSwap: nothing\n", fields);
        manifest.replace(&component("probe").display().to_string(), "probe.wasm")
    };
    folder.put("operator.yaml", manifest("paused: true\n"));
    let daemon = folder.daemon(&place);
    place.probe("p", spec("first"));
    await_paused(&daemon, 1);
    daemon.await_quiet();
    let left = place.find(&place.probes(), "p").unwrap();
    assert!(left["status"].is_null() && left["metadata"]["finalizers"].is_null(), "{left}");
    let runs = daemon.runs_of("p");
    folder.put("operator.yaml", manifest(""));
    await_text(&place, "p", "first");
    daemon.await_quiet();
    assert_eq!(daemon.runs_of("p"), runs + 2, "the first adds the finalizer");
    folder.put("operator.yaml", manifest("paused: true\n"));
    await_paused(&daemon, 1);
    place.merge(&place.probes(), "p", &json!({ "spec": spec("second") }));
    daemon.await_quiet();
    await_text(&place, "p", "first");
    let runs = daemon.runs_of("p");
    folder.put("operator.yaml", manifest(""));
    await_text(&place, "p", "second");
    daemon.await_quiet();
    assert_eq!(daemon.runs_of("p"), runs + 1);
}

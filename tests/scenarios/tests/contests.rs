//! What becomes of a dependent that others keep changing.

use cluster::{Query, wait};
use scenarios::{LATER, Place};
use serde_json::{Value, json};

const TWO: &str = "statusConditions: standard\nworkflow:\n  dependents:\n    cm: { apiVersion: v1, kind: ConfigMap, serverSideApply: true }\n    sibling: { apiVersion: v1, kind: ConfigMap }\n";

/// So often in a row a dependent is put right at once.
const FREE: usize = 5;

#[test]
fn a_dependent_that_another_manager_keeps_changing_is_written_less_often_and_its_sibling_at_once() {
    // LG-1, LG-3
    let place = Place::new("contests");
    let daemon = place.daemon(&place.probe_manifest(TWO));
    let map = |name: &str| json!({ "metadata": { "name": name }, "data": { "v": "ours", "w": "ours" } });
    place.probe("p", json!({ "dependents": { "cm": map("contested"), "sibling": map("sibling") } }));
    let is_ours = |map: &Value| map["data"]["v"] == "ours";
    for name in ["contested", "sibling"] {
        place.await_object(&place.config_maps(), name, "it", is_ours);
    }
    daemon.await_quiet();
    let since = place.cluster.audit().unwrap().mark().unwrap();
    // Its user agent says which manager it is.
    let meddler = place.cluster.api().with_user_agent("meddler/1");
    let meddle = |name: &str| {
        let path = format!("{}/{name}", place.config_maps());
        meddler.merge(&path, &json!({ "data": { "v": "theirs" } })).unwrap();
    };
    for _ in 0..FREE {
        meddle("contested");
        place.await_object(&place.config_maps(), "contested", "it put right at once", is_ours);
    }
    meddle("contested");
    let line = daemon.await_line("others keep changing a dependent");
    assert!(line.contains("WARN") && line.contains("others keep changing /data/v, last meddler"), "{line}");
    // Meanwhile its sibling is put right, and only that.
    meddle("sibling");
    place.await_object(&place.config_maps(), "sibling", "its sibling put right", is_ours);
    let conditions =
        |probe: &Value| -> Vec<Value> { probe["status"]["conditions"].as_array().cloned().unwrap_or_default() };
    let contested = |probe: &Value| {
        conditions(probe).iter().any(|one| one["type"] == "Ready" && one["reason"] == "DependentContested")
    };
    let probe = place.await_object(&place.probes(), "p", "its conditions", contested);
    let message = "contested: cm (others keep changing /data/v, last meddler)";
    assert!(conditions(&probe).iter().all(|one| one["message"] == message), "{probe}");
    let events = place.namespace.path("v1", "events");
    let told = || {
        let all = place.cluster.api().get(&events).unwrap();
        let all = all["items"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|event| event["reason"] == "DependentContested")
    };
    let event = wait::until(LATER, "an Event", told).unwrap();
    assert_eq!((&event["type"], &event["count"]), (&json!("Warning"), &json!(1)), "{event}");
    // Once more, and once more after a longer pause.
    let right = || place.find(&place.config_maps(), "contested").filter(is_ours);
    for _ in 0..2 {
        wait::until(LATER, "it put right again", right).unwrap();
        meddle("contested");
    }
    let query =
        Query::since(since).user_agent("capstan/").namespace(place.namespace.name()).resource("configmaps").writes();
    let writes = place.cluster.audit().unwrap().requests(&query).unwrap();
    let of = |name: &str| -> Vec<&str> {
        writes.iter().filter(|write| write.name == name).map(|write| &*write.time).collect()
    };
    let (times, sibling) = (of("contested"), of("sibling"));
    assert_eq!((times.len(), sibling.len()), (FREE + 2, 1), "{times:?}");
    assert!(sibling[0] < times[FREE], "the sibling was put right meanwhile: {times:?} {sibling:?}");
    let second = |time: &str| -> f64 {
        let (_, time) = time.split_once('T').unwrap();
        let parts: Vec<f64> = time.trim_end_matches('Z').split(':').map(|part| part.parse().unwrap()).collect();
        (parts[0] * 60.0 + parts[1]) * 60.0 + parts[2]
    };
    let gap = |one: usize| (second(times[one + 1]) - second(times[one])).rem_euclid(86_400.0);
    assert!(gap(FREE - 1) > 4.5 && gap(FREE) > 9.5, "{times:?}");
    assert_eq!(daemon.log().matches("others keep changing a dependent").count(), 1);
}

//! Expectations: one thing per primary that is to come true in time, and what is told if it does not.

use cluster::wait;
use scenarios::{Daemon, LATER, Place};
use serde_json::{Value, json};

/// Deployments belong to the probe that their label names.
const DEPLOYMENTS: &str = "sources: { deployments: { informer: { apiVersion: apps/v1, kind: Deployment, mapper: { labels: { name: probe, namespace: none, kind: none } } } } }\n";
const GRANT: &str = "capabilities: { kubernetes: [{ apiVersion: apps/v1, kind: Deployment, verbs: [apply] }] }\n";
const REPLICAS: u32 = 3;

fn manifest(place: &Place, plugin: &str, fields: &str) -> String {
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    place.manifest(plugin, primary, GRANT, &format!("{DEPLOYMENTS}{fields}"))
}

/// Returns a probe that makes a deployment, and expects so many replicas of it to be ready.
fn probe(place: &Place, name: &str, timeout_ms: u32, ready: u32) -> Value {
    let labels = json!({ "probe": name });
    let metadata = json!({ "name": name, "namespace": place.namespace.name(), "labels": labels });
    let template =
        json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "page", "image": "page:1" }] } });
    let spec = json!({ "replicas": REPLICAS, "selector": { "matchLabels": labels }, "template": template });
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec });
    let expect = json!({ "name": "ready", "timeoutMs": timeout_ms, "source": "deployments", "pointer": "/status/readyReplicas", "is": ready });
    let steps = json!([
        { "write": { "verb": "forceApply", "object": deployment }, "when": "present" },
        { "expect": expect, "when": "present", "tell": true, "as": format!("expected {name}") },
        { "expect": expect, "when": "present" },
    ]);
    json!({ "reconcile": { "do": steps, "status": {} } })
}

/// Has probes wait for their deployments, long and short, and asserts that each expects something at first, and is told in the end
/// that it is ready.
fn comes_true(place: &Place, daemon: &Daemon) {
    for (name, timeout_ms) in [("patient", 30_000), ("hasty", 300)] {
        place.probe(name, probe(place, name, timeout_ms, REPLICAS));
    }
    for name in ["patient", "hasty"] {
        let expected = wait::until_ok(LATER, "its deployment", || {
            let expected = place.find(&place.probes(), name).unwrap()["status"]["expect"].take();
            if expected["outcome"] == "Fulfilled" { Ok(expected) } else { Err(expected) }
        });
        assert_eq!(expected.unwrap()["pending"], Value::Null, "it is expected no more");
        daemon.await_quiet();
        let told = daemon.told(&format!("expected {name}"));
        assert_eq!(told.first(), Some(&json!({ "outcome": "Pending", "pending": "ready" })), "{told:?}");
    }
}

#[test]
fn s023_what_is_expected_comes_true_in_all_events_mode() {
    // XP-1, XP-2, XP-3
    let place = Place::new("s023");
    let daemon = place.daemon(&manifest(&place, "probe-events", "triggerOnAllEvents: true\n"));
    comes_true(&place, &daemon);
}

#[test]
fn s024_what_is_expected_comes_true_or_times_out_and_goes_with_its_primary() {
    // XP-3, XP-4, XP-5
    let place = Place::new("s024");
    let daemon = place.daemon(&manifest(&place, "probe", ""));
    comes_true(&place, &daemon);

    let mut never = probe(&place, "never", 300, REPLICAS + 1);
    never["reconcile"]["reschedule"] = 400.into();
    place.probe("never", never);
    let outcome = |wanted: &'static str| move |probe: &Value| probe["status"]["expect"]["outcome"] == wanted;
    let late = place.await_object(&place.probes(), "never", "that it takes too long", outcome("TimedOut"));
    assert_eq!(late["status"]["expect"]["pending"], "ready", "it is kept");
    place.delete(&place.probes(), "never");
    place.await_gone(&place.probes(), "never");
    daemon.await_quiet();
    // Nothing wakes the next one, so what it is told is what its last event has led to.
    place.probe("never", probe(&place, "never", 60_000, REPLICAS + 1));
    place.await_object(&place.probes(), "never", "an expectation of its own", outcome("Pending"));
}

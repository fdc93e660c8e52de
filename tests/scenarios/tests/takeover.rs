//! Whose an object is: what is there already is not taken over, not written and not deleted, unless the manifest says so.

use scenarios::{Daemon, Place, SOON};
use serde_json::{Value, json};

use cluster::wait;

fn manifest(place: &Place, dependent: &str) -> String {
    place.probe_manifest(&format!("workflow:\n  dependents:\n    own: {dependent}\n"))
}

fn map(name: &str, value: &str) -> Value {
    json!({ "metadata": { "name": name }, "data": { "key": value } })
}

/// Creates a probe whose dependent `own` is this object.
fn wanting(place: &Place, name: &str, object: Value) -> Value {
    place.probe(name, json!({ "dependents": { "own": object } }))
}

/// Creates a config map as somebody else.
fn foreign(place: &Place, name: &str) -> Value {
    let path = format!("{}?fieldManager=argocd", place.config_maps());
    place.create("v1", "ConfigMap", &path, name, json!({ "data": { "key": "theirs" } }))
}

/// Waits until the failure of a run says all of this, and returns the line.
fn failure(daemon: &Daemon, texts: &[&str]) -> String {
    let has = |line: &Value| {
        let line = line.to_string();
        (line.contains("the run failed") && texts.iter().all(|text| line.contains(text))).then_some(line)
    };
    let found = wait::until_ok(SOON, "a failure that says whose it is", || {
        daemon.lines().iter().find_map(has).ok_or_else(|| daemon.log())
    });
    found.unwrap()
}

fn await_value(place: &Place, name: &str, value: &str) -> Value {
    place.await_object(&place.config_maps(), name, value, |map| map["data"]["key"] == value)
}

#[test]
fn a_deployment_of_another_team_is_not_taken_over_by_a_page_of_its_name() {
    let place = Place::new("payments");
    let deployments = place.namespace.path("apps/v1", "deployments");
    let labels = json!({ "app": "payments" });
    let container = json!({ "name": "app", "image": "registry/payments:1" });
    let spec = json!({
        "replicas": 3, "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
    });
    place.create(
        "apps/v1",
        "Deployment",
        &format!("{deployments}?fieldManager=argocd"),
        "payments",
        json!({ "spec": spec }),
    );
    let daemon = place.daemon(&place.sample_manifest("webpage"));
    let html = json!({ "spec": { "html": "<html><title>x</title></html>" } });
    place.create("sample.capstan.dev/v1", "WebPage", &place.pages(), "payments", html);
    let key = format!("{}/payments", place.namespace.name());
    failure(
        &daemon,
        &[
            &format!("Deployment {key} exists and is not ours: managed by argocd"),
            "set `adopt: true` on dependent deployment to take it over",
        ],
    );
    daemon.blames("webpage", "exists and is not ours", "capstan_reconciliations_failure_total");
    let is_theirs = || {
        let found = place.find(&deployments, "payments").unwrap();
        let content = &found["spec"];
        assert_eq!(content["replicas"], 3);
        assert_eq!(content["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
        assert_eq!(found["metadata"]["ownerReferences"], Value::Null);
        assert_eq!(found["metadata"]["generation"], 1);
    };
    is_theirs();
    place.delete(&place.pages(), "payments");
    place.await_gone(&place.config_maps(), "payments-html");
    is_theirs();
}

#[test]
fn what_exists_is_named_with_who_manages_it_however_it_would_be_written() {
    for (prefix, dependent) in [
        ("posted", "{ apiVersion: v1, kind: ConfigMap }"),
        ("applied", "{ apiVersion: v1, kind: ConfigMap, serverSideApply: true }"),
        ("marked", "{ apiVersion: v1, kind: ConfigMap, serverSideApply: true, garbageCollected: false }"),
        ("named", "{ apiVersion: v1, kind: ConfigMap, serverSideApply: true, name: { cel: '\"taken\"' } }"),
    ] {
        let place = Place::new(prefix);
        let before = foreign(&place, "taken");
        let daemon = place.daemon(&manifest(&place, dependent));
        wanting(&place, "p", map("taken", "ours"));
        let key = format!("{}/taken", place.namespace.name());
        let text = format!("ConfigMap {key} exists and is not ours: managed by argocd");
        failure(&daemon, &[&text, "set `adopt: true` on dependent own to take it over"]);
        place.delete(&place.probes(), "p");
        place.await_gone(&place.probes(), "p");
        daemon.await_quiet();
        let after = place.find(&place.config_maps(), "taken").unwrap();
        assert_eq!(after["metadata"], before["metadata"], "{prefix}");
        assert_eq!(after["data"], before["data"], "{prefix}");
    }
}

#[test]
fn a_source_that_does_not_see_an_object_does_not_make_it_ours() {
    let place = Place::new("unseen");
    let before = foreign(&place, "taken");
    let source = "sources:\n  some: { informer: { apiVersion: v1, kind: ConfigMap, labelSelector: mine=yes } }\n";
    let dependent =
        "workflow:\n  dependents:\n    own: { apiVersion: v1, kind: ConfigMap, serverSideApply: true, source: some }\n";
    let daemon = place.daemon(&place.probe_manifest(&format!("{source}{dependent}")));
    let labelled =
        |value: &str| json!({ "metadata": { "name": "taken", "labels": { "mine": "yes" } }, "data": { "key": value } });
    wanting(&place, "p", labelled("ours"));
    failure(&daemon, &["exists and is not ours: managed by argocd"]);
    assert_eq!(place.find(&place.config_maps(), "taken").unwrap()["metadata"], before["metadata"]);

    // What is ours stays ours, seen or not.
    let blind = json!({ "metadata": { "name": "blind" }, "data": { "key": "1" } });
    wanting(&place, "q", blind);
    await_value(&place, "blind", "1");
    let change = json!({ "spec": { "dependents": { "own": { "data": { "key": "2" } } } } });
    place.merge(&place.probes(), "q", &change);
    await_value(&place, "blind", "2");
}

#[test]
fn the_second_primary_that_wants_an_object_is_told_of_the_first() {
    for (prefix, dependent, owner) in [
        ("owned", "{ apiVersion: v1, kind: ConfigMap, serverSideApply: true, adopt: true }", "owned by Probe first"),
        ("created", "{ apiVersion: v1, kind: ConfigMap, adopt: true }", "owned by Probe first"),
        ("annotated", "{ apiVersion: v1, kind: ConfigMap, garbageCollected: false, adopt: true }", "/first (uid "),
    ] {
        let place = Place::new(prefix);
        let daemon = place.daemon(&manifest(&place, dependent));
        wanting(&place, "first", map("wanted", "first"));
        let before = await_value(&place, "wanted", "first");
        wanting(&place, "second", map("wanted", "second"));
        failure(&daemon, &["wanted exists and is not ours", owner]);
        place.delete(&place.probes(), "second");
        place.await_gone(&place.probes(), "second");
        daemon.await_quiet();
        let after = place.find(&place.config_maps(), "wanted").unwrap();
        assert_eq!(after["metadata"], before["metadata"], "{prefix}");
    }
}

#[test]
fn what_nobody_owns_is_adopted_where_the_manifest_says_so() {
    for (prefix, more, annotated) in [
        ("adopt", "", false),
        ("adopt-ssa", ", serverSideApply: true", false),
        ("adopt-mark", ", serverSideApply: true, garbageCollected: false", true),
    ] {
        let place = Place::new(prefix);
        foreign(&place, "orphan");
        let dependent = format!("{{ apiVersion: v1, kind: ConfigMap, adopt: true{more} }}");
        let daemon = place.daemon(&manifest(&place, &dependent));
        let probe = wanting(&place, "p", map("orphan", "ours"));
        let adopted = await_value(&place, "orphan", "ours");
        let metadata = &adopted["metadata"];
        let uid = probe["metadata"]["uid"].as_str().unwrap();
        if annotated {
            let mark = metadata["annotations"]["capstan.dev/made-for"].as_str().unwrap();
            let mark: Value = serde_json::from_str(mark).unwrap();
            assert_eq!(mark["primary"]["uid"], uid);
            assert_eq!(mark["operator"], place.namespace.name());
            assert_eq!(mark["dependent"], "own");
        } else {
            assert_eq!(metadata["ownerReferences"][0]["uid"], uid);
        }
        // Drift in what is ours is put right, whoever made it.
        place.merge(&place.config_maps(), "orphan", &json!({ "data": { "key": "edited" } }));
        await_value(&place, "orphan", "ours");
        daemon.await_quiet();
        place.delete(&place.probes(), "p");
        place.await_gone(&place.config_maps(), "orphan");
    }
}

#[test]
fn what_is_made_once_and_adopted_is_its_primarys_and_stays_as_it_is() {
    // KD-6
    for (prefix, more) in [("once", ""), ("once-ssa", ", serverSideApply: true")] {
        let place = Place::new(prefix);
        let before = foreign(&place, "orphan");
        let dependent = format!("{{ apiVersion: v1, kind: ConfigMap, manage: [create], adopt: true{more} }}");
        let daemon = place.daemon(&manifest(&place, &dependent));
        let object = json!({ "metadata": { "name": "orphan", "labels": { "mine": "yes" } }, "data": { "key": "ours", "new": "1" } });
        let probe = wanting(&place, "p", object);
        let is_owned = |map: &Value| map["metadata"]["ownerReferences"][0]["uid"] == probe["metadata"]["uid"];
        let adopted = place.await_object(&place.config_maps(), "orphan", "with an owner", is_owned);
        daemon.await_quiet();
        let after = place.find(&place.config_maps(), "orphan").unwrap();
        assert_eq!(after["metadata"]["resourceVersion"], adopted["metadata"]["resourceVersion"], "{prefix}");
        assert_eq!((&after["data"], &after["metadata"]["labels"]), (&before["data"], &Value::Null), "{prefix}");
        place.delete(&place.probes(), "p");
        place.await_gone(&place.config_maps(), "orphan");
    }
}

#[test]
fn an_object_that_was_made_for_a_primary_that_is_gone_can_be_adopted() {
    let place = Place::new("heir");
    let fields = "{ apiVersion: v1, kind: ConfigMap, garbageCollected: false, adopt: true }";
    let daemon = place.daemon(&manifest(&place, fields));
    wanting(&place, "first", map("left", "first"));
    await_value(&place, "left", "first");
    daemon.await_quiet();
    assert!(daemon.stop().success());
    place.delete(&place.probes(), "first");
    place.merge(&place.probes(), "first", &json!({ "metadata": { "finalizers": null } }));
    place.await_gone(&place.probes(), "first");
    let _daemon = place.daemon(&manifest(&place, fields));
    wanting(&place, "second", map("left", "second"));
    await_value(&place, "left", "second");
}

#[test]
fn what_somebody_else_put_in_the_place_of_ours_is_left_alone() {
    let place = Place::new("replaced");
    let dependent = "{ apiVersion: v1, kind: ConfigMap, garbageCollected: false, reconcilePrecondition: { cel: primary.spec.wanted } }";
    let daemon = place.daemon(&manifest(&place, dependent));
    place.probe("p", json!({ "wanted": true, "dependents": { "own": map("swapped", "ours") } }));
    let ours = await_value(&place, "swapped", "ours");
    daemon.await_quiet();
    assert!(daemon.stop().success());
    place.delete(&place.config_maps(), "swapped");
    // It names the primary as ours did, but for what proves it.
    let mut annotations = ours["metadata"]["annotations"].clone();
    annotations.as_object_mut().unwrap().remove("capstan.dev/made-for");
    let fields = json!({ "metadata": { "annotations": annotations }, "data": { "key": "theirs" } });
    let theirs = place.create("v1", "ConfigMap", &place.config_maps(), "swapped", fields);

    let daemon = place.daemon(&manifest(&place, dependent));
    failure(&daemon, &["swapped exists and is not ours"]);
    place.merge(&place.probes(), "p", &json!({ "spec": { "wanted": false } }));
    daemon.await_quiet();
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
    let left = place.find(&place.config_maps(), "swapped").unwrap();
    assert_eq!(left["metadata"]["uid"], theirs["metadata"]["uid"]);
    assert_eq!(left["data"]["key"], "theirs");
}

#[test]
fn a_component_applies_by_force_what_is_its_primarys_or_what_it_says() {
    let place = Place::new("force");
    foreign(&place, "taken");
    let permitted = "capabilities:\n  kubernetes: [{ apiVersion: v1, kind: ConfigMap, verbs: [apply] }]\n";
    let source = "sources:\n  maps: { informer: { apiVersion: v1, kind: ConfigMap } }\n";
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    let _daemon = place.daemon(&place.manifest("probe", primary, permitted, source));
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "key": "ours" },
        "metadata": { "name": "taken", "namespace": place.namespace.name() } });
    let step = |name: &str, verb: &str| {
        let write = json!({ "write": { "verb": verb, "object": object }, "mayFail": true, "as": "seen" });
        place.probe(name, json!({ "reconcile": { "do": [write], "status": { "done": true } } }));
        let probe = place.await_object(&place.probes(), name, "its status", |p| p["status"]["done"] == true);
        probe["status"]["seen"].clone()
    };
    let refused = step("usual", "apply");
    assert_eq!(refused["refused"], "conflict", "{refused}");
    let message = refused["message"].to_string();
    assert!(message.contains("argocd"), "{refused}");
    assert_eq!(step("always", "forceApply")["refused"], Value::Null);
    await_value(&place, "taken", "ours");

    // What is the primary's is applied by force, so that changes by others are put right.
    let probe = place.find(&place.probes(), "usual").unwrap();
    let owner = json!([{ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "name": "usual", "uid": probe["metadata"]["uid"] }]);
    let mut own = object.clone();
    own["metadata"]["name"] = "own".into();
    own["metadata"]["ownerReferences"] = owner;
    let write = |turn: u32| json!({ "spec": { "turn": turn, "reconcile": { "do": [{ "write": { "verb": "apply", "object": own } }] } } });
    place.merge(&place.probes(), "usual", &write(1));
    await_value(&place, "own", "ours");
    let edit = json!({ "data": { "key": "edited" } });
    place.merge(&place.config_maps(), "own", &edit);
    place.merge(&place.probes(), "usual", &write(2));
    await_value(&place, "own", "ours");
}

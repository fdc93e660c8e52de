//! What is written to the primary itself: by the answer of a run, and by the component meanwhile.

use std::time::Duration;

use cluster::{ADMIN, Call, Query, wait};
use scenarios::proxy::Line;
use scenarios::{Daemon, Place, SOON, Start, replaced_exports};
use serde_json::{Value, json};

const FINALIZER: &str = "probes.test.capstan.dev/finalizer";
/// The probe has a cleaner, so the first run of each probe adds the finalizer and does no more (DI-4).
const FINALIZER_RUN: usize = 1;
const ANY_EVENT: &str = "generationAware: false\n";
const WITHOUT_APPLY: &str = "serverSideApply: false\n";

/// Returns probe `name` as a document with these fields.
fn document(place: &Place, name: &str, mut fields: Value) -> Value {
    fields["apiVersion"] = "test.capstan.dev/v1".into();
    fields["kind"] = "Probe".into();
    fields["metadata"]["name"] = name.into();
    fields["metadata"]["namespace"] = place.namespace.name().into();
    fields
}

/// Returns probe `name` as the target of a write.
fn target(place: &Place, name: &str) -> Value {
    json!({ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "namespace": place.namespace.name(), "name": name })
}

/// Returns a step that writes the status by a merge patch; its event is filtered.
fn write_status(place: &Place, name: &str, status: Value) -> Value {
    let patch = json!({ "status": status });
    let write = json!({ "verb": "mergePatch", "target": target(place, name), "patch": patch, "subresource": "status" });
    quietly(write)
}

/// Returns a step that writes, and does not show in the status what was written.
fn quietly(write: Value) -> Value {
    json!({ "write": write, "tell": true })
}

/// Returns a step that tells the labels that the cache has of a probe.
fn tell_labels(place: &Place, name: &str) -> Value {
    let named = json!({ "namespace": place.namespace.name(), "name": name });
    let read = json!({ "in": "primaries", "select": { "named": named } });
    json!({ "read": read, "show": ["/metadata/labels"], "as": "labels", "tell": true })
}

/// Returns true if the last run was told of the label of [`label`].
fn knows_label(daemon: &Daemon) -> bool {
    daemon.told("labels").last().is_some_and(|sight| sight["/metadata/labels"]["by"] == "others")
}

/// Has somebody else set a label.
fn label(place: &Place, name: &str) {
    place.merge(&place.probes(), name, &json!({ "metadata": { "labels": { "by": "others" } } }));
}

fn annotate(place: &Place, name: &str) {
    place.merge(&place.probes(), name, &json!({ "metadata": { "annotations": { "by": "others" } } }));
}

fn await_status(place: &Place, name: &str, field: &str, value: Value) -> Value {
    place.await_object(&place.probes(), name, "its status", |p| p["status"][field] == value)
}

fn await_gone(place: &Place, name: &str) {
    place.delete(&place.probes(), name);
    place.await_gone(&place.probes(), name);
}

#[test]
fn s028_a_finalizer_is_added_without_apply() {
    // FI-2
    let place = Place::new("s028");
    let daemon = place.daemon(&place.probe_manifest(WITHOUT_APPLY));
    let cleanup = json!({ "do": { "log": { "message": "cleaned up" } } });
    place.probe("p", json!({ "reconcile": { "do": { "log": { "message": "reconciles" } } }, "cleanup": cleanup }));
    let added = |p: &Value| p["metadata"]["finalizers"] == json!([FINALIZER]);
    let probe = place.await_within(Duration::from_secs(5), &place.probes(), "p", "the finalizer", added);
    let records = probe["metadata"]["managedFields"].as_array().unwrap();
    assert!(records.iter().all(|record| record["operation"] == "Update"), "{probe}");
    daemon.await_quiet();
    await_gone(&place, "p");
    daemon.await_quiet();
    let log = daemon.log();
    assert_eq!((log.matches("\"reconciles\"").count(), log.matches("cleaned up").count()), (1, 1), "{log}");
}

#[test]
fn s044_object_and_status_are_patched_in_one_outcome() {
    // UC-4
    let place = Place::new("s044");
    let daemon = place.daemon(&place.probe_manifest(WITHOUT_APPLY));
    for (name, before, after) in [("added", Value::Null, json!("value")), ("removed", json!("value"), Value::Null)] {
        // The null of the spec stays there: that is how it was.
        let change = json!({ "metadata": { "annotations": { "note": after } } });
        let spec = json!({ "reconcile": { "change": change, "status": { "state": "SUCCESS" } } });
        let annotations = if before.is_null() { json!({}) } else { json!({ "note": before }) };
        let probe = json!({ "metadata": { "annotations": annotations }, "spec": spec });
        place.create("test.capstan.dev/v1", "Probe", &place.probes(), name, probe);
        let probe = await_status(&place, name, "state", json!("SUCCESS"));
        daemon.await_quiet();
        assert_eq!(probe["metadata"]["annotations"]["note"], after, "{name}: {probe}");
        assert_eq!(daemon.runs_of(name), FINALIZER_RUN + 1, "{name}");
    }
}

#[test]
fn s046_object_and_status_are_applied_in_two_runs_by_one_manager() {
    // UC-3, FI-5
    let place = Place::new("s046");
    let daemon = place.daemon(&place.probe_manifest(""));
    let first = json!({ "object": { "spec": { "controllerManagedValue": "Added Value" } }, "reschedule": 100 });
    let turns = json!([first, { "status": { "updated": true } }]);
    place.probe("p", json!({ "initValue": "init", "reconcile": { "turns": turns } }));
    await_status(&place, "p", "updated", json!(true));
    daemon.await_quiet();
    let probe = place.find(&place.probes(), "p").unwrap();
    assert_eq!(
        (&probe["spec"]["initValue"], &probe["spec"]["controllerManagedValue"]),
        (&json!("init"), &json!("Added Value"))
    );
    assert_eq!(probe["metadata"]["finalizers"], json!([FINALIZER]));
    let records = probe["metadata"]["managedFields"].as_array().unwrap();
    let ours = records.iter().filter(|record| record["manager"] == place.namespace.name());
    assert_eq!(ours.count(), 2, "{probe}");
}

const TWO_SECONDS: Duration = Duration::from_secs(2);

const BEGIN: &str = "begins to write";

/// A daemon whose requests can be held back.
struct Held<'a> {
    place: &'a Place,
    line: Line,
    daemon: Daemon,
    _folder: tempfile::TempDir,
}

impl<'a> Held<'a> {
    fn new(place: &'a Place, fields: &str) -> Self {
        let (line, folder) = (Line::to(place.cluster), tempfile::tempdir().unwrap());
        let admin = place.cluster.user(ADMIN).unwrap();
        let kubeconfig = line.kubeconfig(place.cluster, admin, &folder);
        let daemon = Start::new(&place.able_manifest(fields)).kubeconfig(kubeconfig).run(place).until_ready();
        Self { place, line, daemon, _folder: folder }
    }

    /// Lets probe `p` do these steps, and something else happen while the request of the last one is on its way: the daemon
    /// knows of it before the API server has that request.
    fn meanwhile(&self, steps: Value, happens: impl Fn()) {
        let Self { place, line, daemon, .. } = self;
        let begun = daemon.log().matches(BEGIN).count();
        line.hold_requests();
        place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "do": steps } } }));
        let begins = || (daemon.log().matches(BEGIN).count() > begun).then_some(());
        wait::until(SOON, "the run", begins).unwrap();
        line.await_held();
        happens();
        // Events come in their order.
        let primaries = daemon.count("capstan_custom_resources", "") + 1;
        place.probe(&format!("p{primaries}"), json!({}));
        let primaries = || (daemon.count("capstan_custom_resources", "") == primaries).then_some(());
        wait::until(SOON, "the daemon to know of it", primaries).unwrap();
        line.release();
    }
}

#[test]
fn s052_a_deletion_during_an_own_write_is_not_lost() {
    // FW-8
    let place = Place::new("s052");
    let held = Held::new(&place, "");
    let probe = json!({ "cleanup": { "do": { "log": { "message": "cleaned up" } } } });
    place.probe("p", probe);
    held.daemon.await_runs(2);
    held.daemon.await_quiet();
    let steps = json!([{ "log": { "message": BEGIN } }, write_status(&place, "p", json!({ "seen": true }))]);
    held.meanwhile(steps, || place.delete(&place.probes(), "p"));
    place.await_gone_within(Duration::from_secs(30), &place.probes(), "p");
    held.daemon.await_quiet();
    assert_eq!(held.daemon.log().matches("cleaned up").count(), 1);
}

#[test]
fn s054_a_change_by_others_during_an_own_write_is_not_lost() {
    // FW-8
    let place = Place::new("s054");
    let held = Held::new(&place, ANY_EVENT);
    place.probe("p", json!({}));
    held.daemon.await_runs(2);
    held.daemon.await_quiet();
    let before = held.daemon.runs_of("p");
    let write = write_status(&place, "p", json!({ "seen": true }));
    let steps = json!([tell_labels(&place, "p"), { "log": { "message": BEGIN } }, write]);
    held.meanwhile(steps, || label(&place, "p"));
    wait::until(SOON, "a run that sees the label", || knows_label(&held.daemon).then_some(())).unwrap();
    assert!(held.daemon.runs_of("p") > before);
    assert_eq!(held.daemon.told("labels")[0]["/metadata/labels"], Value::Null, "the first run could not see it");
    assert_eq!(place.find(&place.probes(), "p").unwrap()["status"]["seen"], true);
}

#[test]
fn s055_a_filtered_write_of_the_status_causes_no_run_and_an_answer_does() {
    // UC-5, RO-3
    let place = Place::new("s055");
    let daemon = place.daemon(&place.able_manifest(ANY_EVENT));
    let state = json!({ "state": "updated" });
    place.probe("filtered", json!({ "reconcile": { "do": write_status(&place, "filtered", state) } }));
    place.probe("answered", json!({ "reconcile": { "status": { "state": "updated" } } }));
    for name in ["filtered", "answered"] {
        await_status(&place, name, "state", json!("updated"));
    }
    wait::until(SOON, "a run for the answer", || (daemon.runs_of("answered") > FINALIZER_RUN + 1).then_some(()))
        .unwrap();
    daemon.await_quiet();
    assert_eq!(daemon.runs_of("filtered"), FINALIZER_RUN + 1);
}

#[test]
fn s058_an_applied_status_causes_no_run_and_a_change_by_others_does() {
    let place = Place::new("s058");
    let daemon = place.daemon(&place.able_manifest(ANY_EVENT));
    let object = document(&place, "p", json!({ "status": { "value": "set" } }));
    let apply = quietly(json!({ "verb": "apply", "object": object, "subresource": "status" }));
    place.probe("p", json!({ "reconcile": { "do": [tell_labels(&place, "p"), apply] } }));
    await_status(&place, "p", "value", json!("set"));
    daemon.await_quiet();
    wait::holds(TWO_SECONDS, "one run", || match daemon.runs_of("p") {
        runs if runs == FINALIZER_RUN + 1 => Ok(()),
        runs => Err(format!("{runs} runs")),
    })
    .unwrap();
    label(&place, "p");
    wait::until(SOON, "a run that sees the label", || knows_label(&daemon).then_some(())).unwrap();
    daemon.await_quiet();
    assert_eq!(daemon.runs_of("p"), FINALIZER_RUN + 2);
}

#[test]
fn s061_each_verb_writes_the_primary_and_nothing_runs_for_ever() {
    // RO-1
    let place = Place::new("s061");
    let daemon = place.daemon(&place.able_manifest(ANY_EVENT));
    let (value, status, spec) =
        (json!("written"), json!({ "status": { "value": "written" } }), json!({ "spec": { "value": "written" } }));
    let add = |path: &str, value: &Value| json!([{ "op": "add", "path": path, "value": value }]);
    let applied = json!({ "metadata": { "finalizers": [FINALIZER] }, "spec": spec["spec"] });
    let label = json!({ "metadata": { "labels": { "resolved": "true" } } });
    let (in_spec, in_status) = ("/spec/value", "/status/value");
    // The name, what is written, into which subresource, and where it is then.
    let verbs = [
        ("apply", json!({ "verb": "apply", "object": applied }), None, in_spec),
        ("apply-status", json!({ "verb": "apply", "object": status }), Some("status"), in_status),
        ("update", json!({ "verb": "update", "change": spec }), None, in_spec),
        ("update-status", json!({ "verb": "update", "change": status }), Some("status"), in_status),
        ("json-patch", json!({ "verb": "jsonPatch", "patch": add(in_spec, &value) }), None, in_spec),
        (
            "json-patch-status",
            json!({ "verb": "jsonPatch", "patch": add("/status", &status["status"]) }),
            Some("status"),
            in_status,
        ),
        ("merge-patch", json!({ "verb": "mergePatch", "patch": spec }), None, in_spec),
        ("merge-patch-status", json!({ "verb": "mergePatch", "patch": status }), Some("status"), in_status),
        ("partial-merge", json!({ "verb": "mergePatch", "patch": label }), None, "/metadata/labels/resolved"),
    ];
    for (name, write, subresource, _) in &verbs {
        let mut write = write.clone();
        write["subresource"] = json!(subresource);
        match write.get("object").cloned() {
            Some(object) => write["object"] = document(&place, name, object),
            None if write.get("change").is_none() => write["target"] = target(&place, name),
            None => {}
        }
        place.probe(name, json!({ "kept": true, "reconcile": { "do": quietly(write) } }));
    }
    for (name, _, _, at) in &verbs {
        let wanted = if at.contains("labels") { json!("true") } else { value.clone() };
        place.await_object(&place.probes(), name, at, |p| p.pointer(at) == Some(&wanted));
    }
    daemon.await_quiet();
    for (name, ..) in &verbs {
        assert_eq!(place.find(&place.probes(), name).unwrap()["spec"]["kept"], true, "{name}");
    }
    wait::holds(TWO_SECONDS, "few runs", || {
        let many = verbs.iter().map(|(name, ..)| (name, daemon.runs_of(name)));
        let many: Vec<_> = many.filter(|(_, runs)| !(FINALIZER_RUN + 1..=FINALIZER_RUN + 3).contains(runs)).collect();
        if many.is_empty() { Ok(()) } else { Err(format!("{many:?}")) }
    })
    .unwrap();
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
}

#[test]
fn s069_who_applies_as_the_controller_loses_what_that_does_not_apply() {
    // FI-1
    let place = Place::new("s069");
    let daemon = place.daemon(&place.probe_manifest(""));
    let probe = document(&place, "p", json!({ "spec": { "value": "lost" } }));
    let path = format!("{}/p", place.probes());
    place.cluster.api().apply(&path, place.namespace.name(), &probe).unwrap();
    daemon.await_runs(2);
    daemon.await_quiet();
    let probe = place.find(&place.probes(), "p").unwrap();
    assert_eq!((&probe["metadata"]["finalizers"], &probe["spec"]), (&json!([FINALIZER]), &Value::Null));
}

#[test]
fn s070_a_primary_applied_without_its_finalizer_loses_it() {
    // FI-5
    let place = Place::new("s070");
    let daemon = place.daemon(&place.able_manifest(""));
    let object = document(&place, "p", json!({ "spec": { "value": "set" } }));
    place.probe("p", json!({ "reconcile": { "do": quietly(json!({ "verb": "apply", "object": object })) } }));
    place.await_object(&place.probes(), "p", "the value", |p| p["spec"]["value"] == "set");
    daemon.await_quiet();
    let probe = place.find(&place.probes(), "p").unwrap();
    assert_eq!((&probe["spec"]["value"], &probe["metadata"]["finalizers"]), (&json!("set"), &Value::Null));
}

#[test]
fn a_primary_keeps_its_finalizer_though_an_applied_answer_has_null_in_its_place() {
    // FI-5
    let place = Place::new("null-finalizers");
    let daemon = place.daemon(&place.probe_manifest(""));
    let object = json!({ "metadata": { "finalizers": null }, "spec": { "value": "set" } });
    place.probe("p", json!({ "reconcile": { "object": object } }));
    place.await_object(&place.probes(), "p", "the value", |p| p["spec"]["value"] == "set");
    daemon.await_quiet();
    let probe = place.find(&place.probes(), "p").unwrap();
    assert_eq!(probe["metadata"]["finalizers"], json!([FINALIZER]));
    // The value is a new generation; nothing else has to be written.
    assert_eq!(daemon.runs_of("p"), FINALIZER_RUN + 2);
}

/// Has somebody annotate the primary during a run, which answers this, and asserts that its status is written all the same, by one
/// run.
fn annotated_meanwhile(prefix: &str, mut answer: Value) {
    // UC-4
    let place = Place::new(prefix);
    let daemon = place.daemon(&place.able_manifest(WITHOUT_APPLY));
    let count = json!({ "memo": { "lifetime": "primary", "count": "runs" }, "as": "value" });
    answer["do"] = json!([{ "log": { "message": "is held" } }, place.gate(), count]);
    answer["status"] = json!({});
    place.probe("p", json!({ "reconcile": answer }));
    daemon.await_line("is held");
    annotate(&place, "p");
    place.open_gate();
    await_status(&place, "p", "value", json!(1));
    daemon.await_quiet();
    let probe = place.find(&place.probes(), "p").unwrap();
    assert_eq!((&probe["status"]["value"], &probe["metadata"]["generation"]), (&json!(1), &json!(1)));
    assert_eq!(probe["metadata"]["annotations"]["by"], "others");
    assert_eq!(daemon.runs_of("p"), FINALIZER_RUN + 1);
}

#[test]
fn s073_a_status_overwrites_nothing_that_came_meanwhile() {
    annotated_meanwhile("s073", json!({}));
}

#[test]
fn s075_a_status_is_written_upon_a_version_that_is_not_the_newest() {
    annotated_meanwhile("s075", json!({ "onlyAt": "given" }));
}

#[test]
fn s073_a_status_loses_what_is_null() {
    // UC-4
    let place = Place::new("s073b");
    let _daemon = place.daemon(&place.probe_manifest(WITHOUT_APPLY));
    place.probe("p", json!({ "reconcile": { "status": { "message": "there", "value": 1 } } }));
    await_status(&place, "p", "message", json!("there"));
    let null = json!([{ "op": "add", "path": "/spec/reconcile/status/message", "value": null }]);
    place.cluster.api().call(&format!("{}/p", place.probes()), Call::JsonPatch(&null)).unwrap();
    let probe = await_status(&place, "p", "observedGeneration", json!(2));
    assert_eq!(probe["status"], json!({ "value": 1, "observedGeneration": 2 }));
}

#[test]
fn s074_what_was_written_without_apply_stays_until_its_record_is_taken_away() {
    let place = Place::new("s074");
    let status =
        |value: u32, message: Value| json!({ "reconcile": { "status": { "value": value, "message": message } } });
    let names = ["kept", "cleared"];
    let turn = |value: u32, message: Value| {
        for name in names {
            place.merge(&place.probes(), name, &json!({ "spec": status(value, message.clone()) }));
            await_status(&place, name, "value", json!(value));
        }
    };
    let message = |name: &str| place.find(&place.probes(), name).unwrap()["status"]["message"].clone();
    let daemon = place.daemon(&place.probe_manifest(WITHOUT_APPLY));
    for name in names {
        place.probe(name, status(1, json!("there")));
        await_status(&place, name, "value", json!(1));
    }
    assert!(daemon.stop().success());
    let records = &place.find(&place.probes(), "cleared").unwrap()["metadata"]["managedFields"];
    let is_its = |record: &&Value| !(record["operation"] == "Update" && record["subresource"] == "status");
    let rest: Vec<_> = records.as_array().unwrap().iter().filter(is_its).collect();
    place.merge(&place.probes(), "cleared", &json!({ "metadata": { "managedFields": rest } }));
    let _daemon = place.daemon(&place.probe_manifest(""));
    turn(2, json!("there"));
    turn(3, Value::Null);
    assert_eq!((message("kept"), message("cleared")), (json!("there"), Value::Null));
}

/// Has a run patch the status and wait, with or without a cleaner, and so with or without a run for the finalizer.
fn patches_the_status(prefix: &str, finalizer_run: usize) {
    // FW-8
    let place = Place::new(prefix);
    let without: &[_] = if finalizer_run == 0 { &[("cleaner", "tidying")] } else { &[] };
    let folder = replaced_exports(&place.able_manifest(ANY_EVENT), without);
    let daemon = folder.daemon(&place);
    let names = ["alone", "changed"];
    for name in names {
        let patch = json!([{ "op": "add", "path": "/status", "value": { "state": "SUCCESS" } }]);
        let write =
            json!({ "verb": "jsonPatch", "target": target(&place, name), "patch": patch, "subresource": "status" });
        place.probe(name, json!({ "reconcile": { "do": [quietly(write), place.gate()] } }));
    }
    for name in names {
        await_status(&place, name, "state", json!("SUCCESS"));
    }
    place.merge(&place.probes(), "changed", &json!({ "spec": { "anything": 1 } }));
    place.open_gate();
    wait::until(SOON, "the run for the change", || (daemon.runs_of("changed") >= finalizer_run + 2).then_some(()))
        .unwrap();
    daemon.await_quiet();
    wait::holds(Duration::from_millis(500), "one run and two or three", || {
        let (alone, changed) = (daemon.runs_of("alone"), daemon.runs_of("changed"));
        let few = finalizer_run + 2..=finalizer_run + 3;
        let held = alone == finalizer_run + 1 && few.contains(&changed);
        if held { Ok(()) } else { Err(format!("{alone} and {changed} runs")) }
    })
    .unwrap();
    let finalizers = &place.find(&place.probes(), "alone").unwrap()["metadata"]["finalizers"];
    assert_eq!(finalizers.as_array().map_or(0, Vec::len), finalizer_run);
}

#[test]
fn s076_an_own_patch_of_the_status_causes_no_run_and_a_change_meanwhile_does() {
    patches_the_status("s076", FINALIZER_RUN);
}

#[test]
fn s076_the_same_holds_without_a_finalizer() {
    patches_the_status("s076b", 0);
}

#[test]
fn s150_a_finalizer_is_added_alone_and_none_is_left_without_it() {
    const OTHER: &str = "other.dev/finalizer";
    let place = Place::new("s150b");
    // Without a cleaner there is no other one.
    let folder = replaced_exports(&place.able_manifest(""), &[("cleaner", "tidying")]);
    let daemon = folder.daemon(&place);
    place.probe("p", json!({}));
    for (verb, expected) in [("addFinalizer", json!([OTHER])), ("removeFinalizer", Value::Null)] {
        let steps = json!([quietly(json!({ "verb": verb, "finalizer": OTHER })), { "log": { "message": verb } }]);
        place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "do": steps } } }));
        daemon.await_line(&format!("\"{verb}\""));
        daemon.await_quiet();
        assert_eq!(place.find(&place.probes(), "p").unwrap()["metadata"]["finalizers"], expected, "{verb}");
    }
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
}

#[test]
fn s150_finalizers_are_added_and_removed_upon_an_old_version_too() {
    // FI-4
    const OTHER: &str = "other.dev/finalizer";
    let place = Place::new("s150");
    let held = Held::new(&place, "");
    place.probe("p", json!({}));
    held.daemon.await_runs(2);
    held.daemon.await_quiet();
    // An addition is upon a version, a removal upon a place in the list.
    let labelled = json!({ "labels": { "by": "others" } });
    let shifted = json!({ "finalizers": ["first.dev/finalizer", FINALIZER, OTHER] });
    for (verb, change, expected) in [
        ("addFinalizer", labelled, json!([FINALIZER, OTHER])),
        ("removeFinalizer", shifted, json!(["first.dev/finalizer", FINALIZER])),
    ] {
        let mark = place.cluster.audit().unwrap().mark().unwrap();
        let write = quietly(json!({ "verb": verb, "finalizer": OTHER }));
        let change = || drop(place.merge(&place.probes(), "p", &json!({ "metadata": change })));
        held.meanwhile(json!([{ "log": { "message": format!("{BEGIN}: {verb}") } }, write]), change);
        place.await_object(&place.probes(), "p", verb, |p| p["metadata"]["finalizers"] == expected);
        let query = Query::since(mark).user_agent("capstan/").namespace(place.namespace.name()).verbs(["patch"]);
        let patches = place.cluster.audit().unwrap().requests(&query).unwrap();
        let codes = patches.iter().filter(|patch| patch.name == "p").map(|patch| patch.code);
        assert_eq!(codes.collect::<Vec<_>>(), [422, 200], "{patches:?}");
    }
    held.daemon.await_quiet();
    assert!(!held.daemon.log().contains("the run failed"), "{}", held.daemon.log());
    place.merge(&place.probes(), "p", &json!({ "metadata": { "finalizers": [FINALIZER] } }));
}

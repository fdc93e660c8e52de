//! Rules that were drawn by lot, each tested as its text says it, by what shows outside of the daemon.

use std::time::Duration;

use cluster::{ADMIN, Cluster, Mark, Query, wait};
use scenarios::proxy::Line;
use scenarios::proxy::meddler::{Fault, Meddler, Sort};
use scenarios::{Daemon, Folder, Place, SOON, Start, replaced_exports, run};
use serde_json::{Value, json};

use crate::inbound::Door;

const FINALIZER: &str = "probes.test.capstan.dev/finalizer";
const FOREIGN: &str = "other.dev/finalizer";
/// The export that makes a controller use its finalizer, and a name under which the daemon does not know it.
const NO_CLEANER: &[(&str, &str)] = &[("cleaner", "tidying")];
/// The first run of a primary adds the finalizer, where one is used.
const FINALIZER_RUN: usize = 1;
const HELD: Duration = Duration::from_secs(2);

/// Returns a daemon whose component has no cleaner, so that no run is about a finalizer.
fn without_cleaner(place: &Place, manifest: &str) -> (Daemon, Folder) {
    let folder = replaced_exports(manifest, NO_CLEANER);
    (folder.daemon(place), folder)
}

/// Returns what steps have told under this name in runs for this primary.
fn told(daemon: &Daemon, primary: &str, name: &str) -> Vec<Value> {
    let key = format!("/{primary}");
    let of = |line: &Value| line["message"] == "seen" && line["key"].as_str().is_some_and(|of| of.ends_with(&key));
    let lines = daemon.lines().into_iter().filter(of);
    let named = lines.filter(|line| line["fields"]["name"] == name);
    named.filter_map(|line| serde_json::from_str(line["fields"]["sight"].as_str()?).ok()).collect()
}

/// A step that tells when it was done, in milliseconds.
fn tell_time() -> Value {
    json!({ "see": ["nowMs"], "tell": true })
}

/// Returns when this many runs for a primary have told their time, in milliseconds, once they have.
fn times(daemon: &Daemon, primary: &str, at_least: usize) -> Vec<u64> {
    let found = wait::until_ok(Duration::from_secs(30), &format!("{at_least} runs of {primary}"), || {
        let times = told(daemon, primary, "nowMs");
        if times.len() >= at_least { Ok(times) } else { Err(format!("{times:?}")) }
    });
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds")]
    found.unwrap().iter().map(|time| time.as_f64().unwrap() as u64).collect()
}

fn finalizers(probe: &Value) -> Vec<&str> {
    let list = probe["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().map(|one| one.as_str().unwrap()).collect()
}

fn await_status(place: &Place, name: &str, field: &str, value: Value) -> Value {
    place.await_object(&place.probes(), name, "its status", |p| p["status"][field] == value)
}

fn status(fields: Value) -> Value {
    json!({ "reconcile": { "status": fields } })
}

fn holds_runs(daemon: &Daemon, name: &str, runs: usize) {
    wait::holds(HELD, "the number of runs", || match daemon.runs_of(name) {
        found if found == runs => Ok(()),
        found => Err(format!("{found} runs of {name}, not {runs}: {}", daemon.log())),
    })
    .unwrap();
}

fn mark(place: &Place) -> Mark {
    place.cluster.audit().unwrap().mark().unwrap()
}

/// Returns verb, subresource and code of the daemon's requests about a probe.
fn requests(place: &Place, since: Mark, name: &str) -> Vec<(String, String, u16)> {
    let query = Query::since(since).user_agent("capstan/").namespace(place.namespace.name()).resource("probes");
    let found = place.cluster.audit().unwrap().requests(&query).unwrap();
    found.into_iter().filter(|r| r.name == name).map(|r| (r.verb, r.subresource, r.code)).collect()
}

/// Returns the fields that the daemon owns in a probe by applying, of its status or of all else.
fn owned(place: &Place, probe: &Value, subresource: &Value) -> Value {
    let records = probe["metadata"]["managedFields"].as_array().unwrap();
    let mut ours = records.iter().filter(|record| {
        record["manager"] == place.namespace.name()
            && record["operation"] == "Apply"
            && record["subresource"] == *subresource
    });
    let found = ours.next().map_or(Value::Null, |record| record["fieldsV1"].clone());
    assert!(ours.next().is_none(), "{probe}");
    found
}

#[test]
fn what_is_neither_going_nor_lacks_a_finalizer_is_reconciled_by_the_workflow_and_then_the_component() {
    // DI-5
    // Breaks by: a component that is asked before the workflow has written, or in another run than that.
    let place = Place::new("lot-di5");
    let manifest = place.able_manifest("workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }\n");
    let read = json!({ "read": { "in": { "source": "cm" }, "select": "one" }, "show": ["/data/a"], "as": "made" });
    let spec = |name: &str| {
        let made =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "a": "b" } });
        json!({ "dependents": { "cm": made }, "reconcile": { "do": read, "status": { "ok": true } } })
    };
    let expected = |p: &Value| (p["status"]["ok"].clone(), p["status"]["made"].clone());
    let (daemon, _folder) = without_cleaner(&place, &manifest);
    place.probe("unused", spec("unused"));
    let probe = await_status(&place, "unused", "ok", json!(true));
    assert_eq!(expected(&probe), (json!(true), json!({ "/data/a": "b" })));
    daemon.await_quiet();
    holds_runs(&daemon, "unused", 1);
    place.delete(&place.probes(), "unused");
    drop(daemon);
    let daemon = place.daemon(&manifest);
    let there = json!({ "metadata": { "finalizers": [FINALIZER] }, "spec": spec("there") });
    place.create("test.capstan.dev/v1", "Probe", &place.probes(), "there", there);
    let probe = await_status(&place, "there", "ok", json!(true));
    assert_eq!(expected(&probe), (json!(true), json!({ "/data/a": "b" })));
    daemon.await_quiet();
    holds_runs(&daemon, "there", 1);
}

#[test]
fn a_finalizer_is_used_for_a_cleaner_and_for_a_managed_dependent_that_only_the_daemon_can_delete() {
    // DI-2
    // Breaks by: a finalizer for any dependent, for one that the daemon may not delete, or for one that is not in the managed
    // workflow; or none without a cleaner, or where the component starts the workflow.
    const MAP: &str = "apiVersion: v1, kind: ConfigMap";
    let managed = |fields: &str| format!("workflow: {{ dependents: {{ cm: {{ {MAP}, {fields} }} }} }}\n");
    let cases = [
        ("nothing", true, String::new(), false),
        ("collected", true, managed("garbageCollected: true"), false),
        ("deleted", true, managed("garbageCollected: false"), true),
        ("only-deleted", true, managed("garbageCollected: false, manage: [delete], mapping: {}"), true),
        ("conditioned", true, managed("garbageCollected: false, activation: { cel: \"false\" }"), true),
        ("read-only", true, managed("garbageCollected: false, readOnly: true, mapping: {}"), false),
        ("undeleted", true, managed("garbageCollected: false, manage: [create, update]"), false),
        (
            "explicit",
            true,
            format!(
                "workflow: {{ invocation: explicit, dependents: {{ cm: {{ {MAP}, garbageCollected: false }} }} }}\n"
            ),
            true,
        ),
        (
            "alone",
            true,
            format!("standalone: {{ preview: {{ dependents: {{ cm: {{ {MAP}, garbageCollected: false }} }} }} }}\n"),
            false,
        ),
        ("cleaner", false, String::new(), true),
    ];
    for (name, replaced, fields, uses) in cases {
        let place = Place::new(&format!("lot-di2-{name}"));
        let manifest = place.probe_manifest(&fields);
        let folder = replaced_exports(&manifest, if replaced { NO_CLEANER } else { &[] });
        let daemon = folder.daemon(&place);
        let made = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "made" } });
        let mut spec = status(json!({ "ok": true }));
        spec["dependents"] = json!({ "cm": made });
        place.probe("p", spec);
        let probe = await_status(&place, "p", "ok", json!(true));
        assert_eq!(finalizers(&probe), if uses { vec![FINALIZER] } else { vec![] }, "{name}");
        daemon.await_quiet();
        assert_eq!(daemon.runs_of("p"), if uses { FINALIZER_RUN + 1 } else { 1 }, "{name}");
        place.delete(&place.probes(), "p");
        place.await_gone(&place.probes(), "p");
    }
}

#[test]
fn a_run_for_a_primary_without_its_finalizer_adds_that_alone_and_its_event_causes_the_next() {
    // DI-4
    // Breaks by: a dependent, a status or a call of the component in the run that adds the finalizer; no run after it; or a finalizer
    // that stays away once somebody has taken it.
    let place = Place::new("lot-di4");
    let daemon =
        place.daemon(&place.able_manifest("workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }\n"));
    let made = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "made" } });
    let steps = json!([{ "see": ["primary"], "tell": true }, tell_time()]);
    let since = mark(&place);
    place.probe("p", json!({ "dependents": { "cm": made }, "reconcile": { "do": steps, "status": { "ok": true } } }));
    await_status(&place, "p", "ok", json!(true));
    daemon.await_quiet();
    assert_eq!((daemon.runs_of("p"), told(&daemon, "p", "nowMs").len()), (2, 1));
    let query = Query::since(since).user_agent("capstan/").namespace(place.namespace.name()).writes();
    let writes = place.cluster.audit().unwrap().requests(&query).unwrap();
    let writes: Vec<_> = writes.iter().map(|w| (w.resource.as_str(), w.subresource.as_str())).collect();
    assert_eq!(writes, [("probes", ""), ("configmaps", ""), ("probes", "status")]);
    // Somebody takes it away: no other generation, and yet it counts.
    place.merge(&place.probes(), "p", &json!({ "metadata": { "finalizers": null } }));
    place.await_object(&place.probes(), "p", "its finalizer again", |p| finalizers(p) == [FINALIZER]);
    times(&daemon, "p", 2);
    daemon.await_quiet();
    assert_eq!((daemon.runs_of("p"), told(&daemon, "p", "nowMs").len()), (4, 2));
}

#[test]
fn names_of_operators_and_controllers_are_taken_once_and_a_manifest_has_a_controller() {
    // LC-1
    // Breaks by: a second one that runs, that ends the first, that is refused without both places, or that never gets the name once it
    // is free; or a manifest without controllers that counts.
    let (one, two) = (Place::new("lot-lc1-one"), Place::new("lot-lc1-two"));
    let folder = Folder::new();
    folder.put("one.yaml", one.able_manifest(""));
    let daemon = folder.daemon(&one);
    one.probe("p", status(json!({ "text": "first" })));
    await_status(&one, "p", "text", json!("first"));
    let (taken, own) = (one.namespace.name(), two.namespace.name());
    let of_two = two.able_manifest("");
    let operator = of_two.replacen(&format!("name: {own}"), &format!("name: {taken}"), 1);
    let controller = of_two.replacen(&format!("    {own}:\n"), &format!("    {taken}:\n"), 1);
    two.probe("p", status(json!({ "text": "first" })));
    for (text, manifest) in [("second", operator), ("third", controller)] {
        folder.put("two.yaml", manifest);
        let [(file, problem)] = <[_; 1]>::try_from(daemon.await_bad_manifests(1)).unwrap();
        assert!(
            file.ends_with("two.yaml") && problem.contains(taken) && problem.contains("one.yaml"),
            "{file}: {problem}"
        );
        one.merge(&one.probes(), "p", &json!({ "spec": status(json!({ "text": text })) }));
        await_status(&one, "p", "text", json!(text));
        assert_eq!(two.find(&two.probes(), "p").unwrap()["status"], Value::Null);
        folder.remove("two.yaml");
        daemon.await_bad_manifests(0);
    }
    // Within one file, too: neither of both is taken for the other.
    let (code, out, _) = {
        let alone = Folder::new();
        alone.put(
            "both.yaml",
            format!("{}---\n{}", of_two, of_two.replacen(&format!("    {own}:\n"), "    else:\n", 1)),
        );
        run(&["check", "-m", alone.path("both.yaml").to_str().unwrap()])
    };
    assert!(code != 0 && out.matches("both.yaml:").count() >= 2 && out.contains(own), "{code} {out}");
    // It comes while the daemon runs, and may have the name once that is free.
    folder.put("two.yaml", of_two.replacen(&format!("    {own}:\n"), &format!("    {taken}:\n"), 1));
    daemon.await_bad_manifests(1);
    folder.remove("one.yaml");
    two.await_within(scenarios::LATER, &two.probes(), "p", "its status", |p| p["status"]["text"] == "first");
    for (none, told) in [("{}", "expected at least one controller"), ("", "the field `controllers` is missing")] {
        let (head, _) = of_two.split_once("  controllers:\n").unwrap();
        let alone = Folder::new();
        alone.put("none.yaml", format!("{head}  controllers: {none}\n"));
        let (code, out, errors) = run(&["check", "-m", alone.path("none.yaml").to_str().unwrap()]);
        assert!(code != 0 && out.contains(told), "{code} {out} {errors}");
    }
}

#[test]
fn a_mapper_names_a_set_of_primaries_which_each_run_once_or_none() {
    // IM-3
    // Breaks by: a run for each time that a primary is named, one of those named that does not run, or others that do.
    let place = Place::new("lot-im3");
    let cel = "by-cel: { informer: { apiVersion: v1, kind: ConfigMap, labelSelector: by=cel, mapper: { cel: \"object.data.names.split(',').filter(n, n != '')\" } } }";
    let export = "by-export: { informer: { apiVersion: v1, kind: ConfigMap, labelSelector: by=export, mapper: { export: to-probes } } }";
    let manifest = place.probe_manifest(&format!("sources:\n  {cel}\n  {export}\n"));
    let (daemon, _folder) = without_cleaner(&place, &manifest);
    for name in ["a", "b", "c"] {
        place.probe(name, json!({ "reconcile": { "do": tell_time() } }));
        times(&daemon, name, 1);
    }
    daemon.await_quiet();
    let mut expected = [1, 1, 1];
    for by in ["cel", "export"] {
        for (n, names) in [&["a", "b", "a"][..], &[], &["c"]].into_iter().enumerate() {
            let answers = json!({ "mappers": { "to-probes": { "keys": names } } }).to_string();
            let metadata = json!({ "labels": { "by": by }, "annotations": { "test.capstan.dev/spec": answers } });
            let fields = json!({ "metadata": metadata, "data": { "names": names.join(",") } });
            place.create("v1", "ConfigMap", &place.config_maps(), &format!("{by}-{n}"), fields);
            for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
                expected[at] += usize::from(names.contains(&name));
                times(&daemon, name, expected[at]);
            }
            daemon.await_quiet();
            for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
                assert_eq!(daemon.runs_of(name), expected[at], "{by} {names:?}: {name}");
            }
        }
    }
    // What names nobody, as it is no list of names, or fails, wakes nobody and harms no other.
    let labels = json!({ "labels": { "by": "cel" } });
    place.create("v1", "ConfigMap", &place.config_maps(), "fails", json!({ "metadata": labels }));
    let answers = json!({ "mappers": { "to-probes": { "do": { "fail": "no" } } } }).to_string();
    let metadata = json!({ "labels": { "by": "export" }, "annotations": { "test.capstan.dev/spec": answers } });
    place.create("v1", "ConfigMap", &place.config_maps(), "fails-too", json!({ "metadata": metadata }));
    place.create(
        "v1",
        "ConfigMap",
        &place.config_maps(),
        "last",
        json!({ "metadata": labels, "data": { "names": "c" } }),
    );
    times(&daemon, "c", expected[2] + 1);
    daemon.await_quiet();
    assert_eq!(["a", "b", "c"].map(|name| daemon.runs_of(name)), [expected[0], expected[1], expected[2] + 1]);
    assert!(!daemon.log().contains("the run failed"));
}

#[test]
fn an_event_of_a_secondary_for_a_primary_that_is_not_there_is_neither_run_nor_counted_nor_kept() {
    // EP-1
    // Breaks by: a key, a run, a failure or a count for a primary that nobody has, or that is gone.
    let place = Place::new("lot-ep1");
    let (daemon, _folder) = without_cleaner(&place, &place.able_manifest(""));
    let events = || daemon.count("capstan_events_received_total", "");
    let change = |primary: &str, name: &str, value: &str| {
        let map = place.map_of(primary, name, json!({ "value": value }));
        place.create("v1", "ConfigMap", &place.config_maps(), name, map);
    };
    let related = json!({ "read": { "in": { "source": "maps" }, "select": "related" }, "as": "maps" });
    let spec = json!({ "reconcile": { "do": [related, tell_time()], "status": { "ok": true } } });
    place.probe("p", spec.clone());
    // Its timer is none of the primary's own events, either.
    let mut asks = spec.clone();
    asks["reconcile"]["reschedule"] = json!(2500);
    place.probe("left", asks);
    times(&daemon, "p", 1);
    times(&daemon, "left", 1);
    place.delete(&place.probes(), "left");
    place.await_gone(&place.probes(), "left");
    daemon.await_quiet();
    let (counted, runs, left) = (events(), daemon.runs(), daemon.runs_of("left"));
    change("ghost", "of-ghost", "1");
    place.merge(&place.config_maps(), "of-ghost", &json!({ "data": { "value": "2" } }));
    change("left", "of-left", "1");
    // Events of a kind come in their order: this one is after the others.
    let before = daemon.runs_of("p");
    change("p", "of-p", "1");
    times(&daemon, "p", before + 1);
    daemon.await_quiet();
    assert_eq!((daemon.runs(), daemon.runs_of("left")), (runs + 1, left));
    assert_eq!(events(), counted + 1, "{}", daemon.get("/metrics").1);
    let shown = daemon.controllers().to_string();
    assert!(shown.contains("/p\"") && !shown.contains("/ghost") && !shown.contains("/left"), "{shown}");
    place.probe("ghost", spec);
    let probe = await_status(&place, "ghost", "ok", json!(true));
    assert_eq!(probe["status"]["maps"], json!(["of-ghost"]));
    daemon.await_quiet();
    assert_eq!(daemon.runs_of("ghost"), 1);
    holds_runs(&daemon, "left", left);
    assert_eq!(told(&daemon, "left", "nowMs").len(), 1);
}

#[test]
fn what_comes_from_outside_for_a_primary_that_is_not_there_is_neither_run_nor_counted() {
    // EP-1
    // Breaks by: a key, a run or a count for a name that a request makes up.
    let place = Place::new("lot-ep1-inbound");
    let manifest = place.probe_manifest("sources: { hooks: { inbound: { token: none, requestsPerSecond: 1000 } } }\n");
    let (daemon, door) = Door::of(&place, &manifest);
    place.probe("p", json!({ "reconcile": { "do": tell_time() } }));
    times(&daemon, "p", 1);
    daemon.await_quiet();
    let events = || daemon.count("capstan_events_received_total", "");
    let (counted, runs) = (events(), daemon.runs());
    let tell = |name: &str| {
        let event = json!({ "namespace": place.namespace.name(), "name": name, "present": { "id": "1" } });
        door.send("POST", "", None, &json!({ "events": [event] }).to_string())
    };
    let answers = [tell("ghost"), tell("p")];
    times(&daemon, "p", 2);
    daemon.await_quiet();
    assert_eq!((daemon.runs(), events()), (runs + 1, counted + 1), "{answers:?}");
    assert!(!daemon.controllers().to_string().contains("/ghost"));
}

/// What a finalizer needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Finalizer {
    Added,
    Removed,
}

/// Has so many writes of the daemon be answered by a conflict while it adds or removes a finalizer. Returns how many have been, which
/// requests about the primary have come through, and whether the run failed.
fn contested(what: Finalizer, times: usize) -> (usize, Vec<(String, String, u16)>, bool) {
    let place = Place::new("lot-fi4");
    let (meddler, folder) = (Meddler::to(place.cluster), tempfile::tempdir().unwrap());
    let kubeconfig = meddler.kubeconfig(place.cluster.user(ADMIN).unwrap(), &folder);
    // No second attempt, and no Event about the first one, which is not the last.
    let manifest = place.able_manifest("retry: { initialInterval: 1h, maxInterval: none }\n");
    let daemon = Start::new(&manifest).kubeconfig(kubeconfig).run(&place).until_ready();
    if what == Finalizer::Removed {
        let fields = json!({ "metadata": { "finalizers": [FINALIZER, FOREIGN] } });
        place.create("test.capstan.dev/v1", "Probe", &place.probes(), "p", fields);
        wait::until(SOON, "the first run", || (daemon.runs_of("p") > 0).then_some(())).unwrap();
        daemon.await_quiet();
    }
    let runs = daemon.runs_of("p");
    meddler.meddle(Some(Fault::Answers(Sort::Write, 409, "", times)));
    let since = mark(&place);
    match what {
        Finalizer::Added => drop(place.probe("p", status(json!({ "ok": true })))),
        Finalizer::Removed => place.delete(&place.probes(), "p"),
    }
    let ended = || (daemon.runs_of("p") > runs).then_some(());
    wait::until(Duration::from_mins(1), "the end of the run", ended).unwrap();
    daemon.await_quiet();
    let failed = daemon.log().contains("the run failed");
    (meddler.spoiled(), requests(&place, since, "p"), failed)
}

#[test]
fn after_a_conflict_the_primary_is_read_anew_and_the_tenth_try_is_the_last() {
    // FI-4
    // Breaks by: another number of tries, a try upon what the cache has, or a run that fails at the first conflict.
    for what in [Finalizer::Added, Finalizer::Removed] {
        let (spoiled, through, failed) = contested(what, usize::MAX);
        assert_eq!((spoiled, failed), (10, true), "{through:?}");
        assert!(through.iter().all(|(verb, ..)| verb == "get"), "{through:?}");
        assert!((9..=10).contains(&through.len()), "each try but the first is upon what was read: {through:?}");
        let (spoiled, through, failed) = contested(what, 9);
        assert_eq!((spoiled, failed), (9, false), "{through:?}");
        assert_eq!(through.iter().filter(|(verb, ..)| verb == "get").count(), 9, "{through:?}");
        let done = |(verb, sub, code): &&(String, String, u16)| verb == "patch" && sub.is_empty() && *code == 200;
        assert_eq!(through.iter().filter(done).count(), 1, "{through:?}");
    }
}

/// The paths of a policy and what binds it, which are of the whole cluster and go with the test.
struct Policy(&'static Cluster, [String; 2]);

impl Drop for Policy {
    fn drop(&mut self) {
        for path in &self.1 {
            drop(self.0.api().delete(path));
        }
    }
}

#[test]
fn a_refusal_that_is_no_conflict_is_not_repeated() {
    // FI-4
    // Breaks by: any 422 that counts as a conflict.
    let place = Place::new("lot-fi4-refused");
    let namespace = place.namespace.name();
    let about = json!({
        "resourceRules": [{ "apiGroups": ["test.capstan.dev"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["probes"] }],
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
    });
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": about,
        "validations": [{ "expression": "!has(object.metadata.finalizers)", "reason": "Invalid" }],
    });
    let (api, at) = (place.cluster.api(), "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic");
    let object = |kind: &str, spec: Value| json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": namespace }, "spec": spec });
    api.create(&format!("{at}ies"), &object("ValidatingAdmissionPolicy", spec)).unwrap();
    let _ends = Policy(place.cluster, [format!("{at}ybindings/{namespace}"), format!("{at}ies/{namespace}")]);
    let binding = json!({ "policyName": namespace, "validationActions": ["Deny"] });
    api.create(&format!("{at}ybindings"), &object("ValidatingAdmissionPolicyBinding", binding)).unwrap();
    place.probe("p", json!({}));
    let path = format!("{}/p?dryRun=All", place.probes());
    wait::until_ok(scenarios::LATER, "the policy to hold", || {
        match api.merge(&path, &json!({ "metadata": { "finalizers": [FOREIGN] } })) {
            Err(error) if error.code() == Some(422) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .unwrap();
    let since = mark(&place);
    let daemon = place.daemon(&place.able_manifest("retry: none\n"));
    daemon.await_line("the run failed");
    daemon.await_quiet();
    let sent = requests(&place, since, "p");
    assert_eq!(sent.iter().filter(|(verb, ..)| verb == "patch").count(), 1, "{sent:?}");
    assert!(sent.iter().all(|(verb, _, code)| verb != "patch" || *code == 422), "{sent:?}");
}

#[test]
fn what_somebody_else_has_done_before_the_second_try_is_not_done_again() {
    // FI-3, FI-4
    // Breaks by: a condition that is not asked again for each try, or a finalizer that is taken from another primary of the name.
    let place = Place::new("lot-fi4-meanwhile");
    let (line, folder) = (Line::to(place.cluster), tempfile::tempdir().unwrap());
    let kubeconfig = line.kubeconfig(place.cluster, place.cluster.user(ADMIN).unwrap(), &folder);
    // An apply of a finalizer meets no conflict.
    let manifest = place.able_manifest("serverSideApply: false\nretry: { initialInterval: 1h, maxInterval: none }\n");
    let daemon = Start::new(&manifest).kubeconfig(kubeconfig).run(&place).until_ready();
    daemon.await_quiet();
    let patches = |since: Mark| -> Vec<u16> {
        let sent = requests(&place, since, "p");
        sent.into_iter().filter(|(verb, sub, _)| verb == "patch" && sub.is_empty()).map(|sent| sent.2).collect()
    };
    // It is added, with something else.
    let mut since = mark(&place);
    line.hold_requests();
    place.probe("p", status(json!({ "ok": 1 })));
    line.await_held();
    let added = json!({ "metadata": { "finalizers": [FOREIGN, FINALIZER], "labels": { "by": "others" } } });
    place.merge(&place.probes(), "p", &added);
    line.release();
    let probe = await_status(&place, "p", "ok", json!(1));
    daemon.await_quiet();
    assert_eq!((finalizers(&probe), patches(since)), (vec![FOREIGN, FINALIZER], vec![422]));
    // It is removed, and the other one stays.
    since = mark(&place);
    line.hold_requests();
    place.delete(&place.probes(), "p");
    line.await_held();
    place.merge(&place.probes(), "p", &json!({ "metadata": { "finalizers": [FOREIGN] } }));
    line.release();
    wait::until(SOON, "the patch", || (!patches(since).is_empty()).then_some(())).unwrap();
    daemon.await_quiet();
    assert_eq!((finalizers(&place.find(&place.probes(), "p").unwrap()), patches(since)), (vec![FOREIGN], vec![422]));
    place.merge(&place.probes(), "p", &json!({ "metadata": { "finalizers": null } }));
    place.await_gone(&place.probes(), "p");
    daemon.await_quiet();
    // It goes with its primary, and there is another one of that name, which has its own at the same place.
    let of = |n: u32| json!({ "metadata": { "finalizers": [FINALIZER] }, "spec": status(json!({ "ok": n })) });
    place.create("test.capstan.dev/v1", "Probe", &place.probes(), "p", of(2));
    await_status(&place, "p", "ok", json!(2));
    daemon.await_quiet();
    since = mark(&place);
    line.hold_requests();
    place.delete(&place.probes(), "p");
    line.await_held();
    place.merge(&place.probes(), "p", &json!({ "metadata": { "finalizers": null } }));
    place.create("test.capstan.dev/v1", "Probe", &place.probes(), "p", of(3));
    line.release();
    let probe = await_status(&place, "p", "ok", json!(3));
    daemon.await_quiet();
    assert_eq!((finalizers(&probe), patches(since)), (vec![FINALIZER], vec![422]));
    assert!(!daemon.log().contains("the run failed"));
}

#[test]
fn an_answer_for_a_primary_that_is_gone_makes_none_and_changes_none_that_came_after_it() {
    // UC-2, UC-3
    // Breaks by: an apply by name alone, which creates what is not there.
    let place = Place::new("lot-uc3-gone");
    let (daemon, _folder) = without_cleaner(&place, &place.able_manifest(""));
    let held = json!([{ "log": { "message": "is held" } }, place.gate()]);
    let labels = json!({ "metadata": { "labels": { "from": "before" } } });
    for (name, answer) in [
        ("object-gone", json!({ "do": held, "object": labels })),
        ("object-again", json!({ "do": held, "object": labels })),
        ("status-gone", json!({ "do": held, "status": { "from": "before" } })),
        ("status-again", json!({ "do": held, "status": { "from": "before" } })),
    ] {
        place.probe(name, json!({ "reconcile": answer }));
    }
    wait::until(SOON, "all", || (daemon.log().matches("\"is held\"").count() == 4).then_some(())).unwrap();
    for name in ["object-gone", "object-again", "status-gone", "status-again"] {
        place.delete(&place.probes(), name);
        place.await_gone(&place.probes(), name);
    }
    for name in ["object-again", "status-again"] {
        place.probe(name, json!({}));
    }
    place.open_gate();
    for name in ["object-again", "status-again"] {
        wait::until(SOON, "the run for the next one", || (daemon.runs_of(name) == 2).then_some(())).unwrap();
    }
    daemon.await_quiet();
    for name in ["object-gone", "status-gone"] {
        assert_eq!(place.find(&place.probes(), name), None);
    }
    for name in ["object-again", "status-again"] {
        let probe = place.find(&place.probes(), name).unwrap();
        assert_eq!((&probe["metadata"]["labels"], &probe["status"]), (&Value::Null, &Value::Null), "{name}");
    }
}

#[test]
fn a_finalizer_goes_whoever_has_added_it_and_what_is_gone_already_is_a_success() {
    // FI-3
    // Breaks by: an apply, which takes only what its manager owns; a patch that takes what stands beside it; a run for the own write; or
    // a failure where somebody else was faster.
    let place = Place::new("lot-fi3");
    let daemon = place.daemon(&place.able_manifest(""));
    let cleanup = json!({ "do": { "log": { "message": "cleaned up" } } });
    let others =
        json!({ "metadata": { "finalizers": ["first.dev/f", FINALIZER, FOREIGN] }, "spec": { "cleanup": cleanup } });
    place.create("test.capstan.dev/v1", "Probe", &place.probes(), "p", others);
    daemon.await_runs(1);
    daemon.await_quiet();
    let runs = daemon.runs_of("p");
    let since = mark(&place);
    place.delete(&place.probes(), "p");
    place.await_object(&place.probes(), "p", "the other two", |p| finalizers(p) == ["first.dev/f", FOREIGN]);
    daemon.await_quiet();
    holds_runs(&daemon, "p", runs + 1);
    let patches = requests(&place, since, "p");
    assert_eq!(patches.iter().filter(|(verb, ..)| verb == "patch").count(), 1, "{patches:?}");
    // Who else changes it then wakes nobody.
    place.merge(&place.probes(), "p", &json!({ "metadata": { "finalizers": [FOREIGN] } }));
    daemon.await_quiet();
    holds_runs(&daemon, "p", runs + 1);
    place.merge(&place.probes(), "p", &json!({ "metadata": { "finalizers": null } }));
    place.await_gone(&place.probes(), "p");
    // Somebody takes it during the clean-up: with what stands beside it, the object goes; or it stays for that.
    let cleanup = json!({ "do": [{ "log": { "message": "is held" } }, place.gate()] });
    for (name, beside) in [("goes", json!([FINALIZER])), ("stays", json!([FOREIGN, FINALIZER]))] {
        let probe = json!({ "metadata": { "finalizers": beside }, "spec": { "cleanup": cleanup } });
        place.create("test.capstan.dev/v1", "Probe", &place.probes(), name, probe);
        wait::until(SOON, name, || (daemon.runs_of(name) > 0).then_some(())).unwrap();
        place.delete(&place.probes(), name);
    }
    wait::until(SOON, "both", || (daemon.log().matches("\"is held\"").count() == 2).then_some(())).unwrap();
    place.merge(&place.probes(), "goes", &json!({ "metadata": { "finalizers": null } }));
    place.merge(&place.probes(), "stays", &json!({ "metadata": { "finalizers": [FOREIGN] } }));
    place.await_gone(&place.probes(), "goes");
    place.open_gate();
    daemon.await_quiet();
    for name in ["goes", "stays"] {
        assert_eq!(daemon.runs_of(name), 2, "{name}");
    }
    assert_eq!(finalizers(&place.find(&place.probes(), "stays").unwrap()), [FOREIGN]);
    assert!(!daemon.log().contains("the run failed"));
    let shown = || if daemon.log().contains("\"ERROR\"") { Err(daemon.log()) } else { Ok(()) };
    wait::until_ok(SOON, "no error", shown).unwrap();
    assert_eq!(daemon.log().matches("\"cleaned up\"").count(), 1);
}

#[test]
fn what_a_run_about_a_deletion_asks_for_is_ignored_with_a_warning() {
    // UC-6
    // Breaks by: another run for what is gone, a key that stays for its timer, or silence.
    let place = Place::new("lot-uc6");
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    let daemon = place.daemon(&place.manifest("probe-events", primary, "", "triggerOnAllEvents: true\n"));
    let steps = json!([{ "see": ["nowMs"], "tell": true, "when": "gone" }, { "see": ["uuid"], "tell": true, "when": "present" }]);
    // It asks for it while it is there, too: that counts.
    place.probe("p", json!({ "reconcile": { "do": steps, "reschedule": 300 } }));
    wait::until(SOON, "runs", || (told(&daemon, "p", "uuid").len() > 2).then_some(())).unwrap();
    assert!(daemon.controllers().to_string().contains("/p\""));
    place.delete(&place.probes(), "p");
    times(&daemon, "p", 1);
    let runs = wait::until(SOON, "the end of it", || (daemon.active() == 0).then(|| daemon.runs_of("p"))).unwrap();
    holds_runs(&daemon, "p", runs);
    assert_eq!(told(&daemon, "p", "nowMs").len(), 1);
    assert!(!daemon.controllers().to_string().contains("/p\""), "{}", daemon.controllers());
    let warns = |line: &Value| line["level"] == "WARN" && line.to_string().contains("/p\"");
    assert!(daemon.lines().iter().any(warns), "no warning: {}", daemon.log());
}

#[test]
fn a_status_is_applied_alone_and_fails_upon_an_older_version_only_if_that_was_answered() {
    // UC-2
    // Breaks by: a version that is sent though none was answered, or is left out; a field beside the status; or a status that takes or
    // keeps what it should not.
    let place = Place::new("lot-uc2");
    let daemon = place.daemon(&place.able_manifest("retry: { initialInterval: 1h, maxInterval: none }\n"));
    let held =
        json!([{ "log": { "message": "is held" } }, place.gate(), { "see": ["primary"], "as": "read", "tell": true }]);
    let spec = |only_at: Value| {
        let mut reconcile = json!({ "do": held, "status": { "ours": 1 } });
        if !only_at.is_null() {
            reconcile["onlyAt"] = only_at;
        }
        json!({ "value": 1, "reconcile": reconcile })
    };
    place.probe("versioned", spec(json!("given")));
    place.probe("free", spec(Value::Null));
    wait::until(SOON, "both", || (daemon.log().matches("\"is held\"").count() == 2).then_some(())).unwrap();
    for name in ["versioned", "free"] {
        place.merge(&place.probes(), name, &json!({ "metadata": { "labels": { "by": "others" } } }));
        let path = format!("{}/{name}/status", place.probes());
        place.cluster.api().merge(&path, &json!({ "status": { "theirs": 1 } })).unwrap();
    }
    let since = mark(&place);
    place.open_gate();
    let free = await_status(&place, "free", "ours", json!(1));
    daemon.await_line("the run failed");
    daemon.await_quiet();
    let codes = |name: &str| -> Vec<_> { requests(&place, since, name).into_iter().map(|r| (r.1, r.2)).collect() };
    assert_eq!(codes("free"), [("status".to_owned(), 200)]);
    assert_eq!(codes("versioned"), [("status".to_owned(), 409)]);
    assert_eq!(place.find(&place.probes(), "versioned").unwrap()["status"], json!({ "theirs": 1 }));
    assert_eq!((&free["status"]["theirs"], &free["spec"]["value"]), (&json!(1), &json!(1)));
    assert_eq!(
        owned(&place, &free, &json!("status")),
        json!({ "f:status": { "f:ours": {}, "f:observedGeneration": {} } })
    );
    // What is not answered any more goes, and what others have stays.
    place.merge(
        &place.probes(),
        "free",
        &json!({ "spec": { "reconcile": { "status": { "ours": null, "other": 1 } } } }),
    );
    let free = await_status(&place, "free", "other", json!(1));
    assert_eq!(free["status"], json!({ "other": 1, "theirs": 1, "observedGeneration": 2 }));
}

#[test]
fn an_object_is_applied_with_the_fields_that_are_answered_and_no_others() {
    // UC-3
    // Breaks by: a field that the controller owns and has not answered, one that it keeps, one of others that is lost; or an owner that
    // an answer gives.
    let place = Place::new("lot-uc3");
    let daemon = place.daemon(&place.able_manifest("retry: none\n"));
    let answer = |metadata: Value| json!({ "theirs": 1, "reconcile": { "object": { "metadata": metadata } } });
    let both = json!({ "labels": { "one": "1", "two": "2" } });
    place.probe("p", answer(both));
    let has = |name: &'static str| move |p: &Value| p["metadata"]["labels"][name].is_string();
    let probe = place.await_object(&place.probes(), "p", "labels", has("two"));
    let expected = json!({
        "f:metadata": { "f:finalizers": { "v:\"probes.test.capstan.dev/finalizer\"": {} }, "f:labels": { "f:one": {}, "f:two": {} } },
    });
    let found = |probe: &Value| {
        let mut fields = owned(&place, probe, &Value::Null);
        // The set itself has a place of its own.
        for set in ["f:finalizers", "f:labels"] {
            drop(fields["f:metadata"][set].as_object_mut().unwrap().remove("."));
        }
        fields
    };
    assert_eq!(found(&probe), expected);
    place.merge(&place.probes(), "p", &json!({ "metadata": { "labels": { "three": "3" } } }));
    let one = json!({ "one": "1", "two": null });
    place.merge(
        &place.probes(),
        "p",
        &json!({ "spec": { "reconcile": { "object": { "metadata": { "labels": one } } } } }),
    );
    let probe = place.await_object(&place.probes(), "p", "one label less", |p| !has("two")(p));
    assert_eq!(probe["metadata"]["labels"], json!({ "one": "1", "three": "3" }));
    assert_eq!((finalizers(&probe), &probe["spec"]["theirs"]), (vec![FINALIZER], &json!(1)));
    daemon.await_quiet();
    assert!(!daemon.log().contains("the run failed"));
    let map = place.create("v1", "ConfigMap", &place.config_maps(), "owner", json!({}));
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": map["metadata"]["uid"] });
    place.probe("owned", answer(json!({ "ownerReferences": [owner] })));
    daemon.await_line("the run failed");
    assert_eq!(place.find(&place.probes(), "owned").unwrap()["metadata"]["ownerReferences"], Value::Null);
}

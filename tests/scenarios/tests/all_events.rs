//! All-events mode: runs for deletions, too, and finalizers that are the component's own.

use cluster::wait;
use scenarios::{Daemon, Folder, Place, SOON};
use serde_json::{Value, json};

fn manifest(place: &Place, fields: &str) -> String {
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    place.manifest("probe-events", primary, "", &format!("triggerOnAllEvents: true\n{fields}"))
}

/// Returns what runs have told of primaries that were gone, as `name`, what was seen.
fn seen(daemon: &Daemon, name: &str, key: &str) -> Vec<Value> {
    let of = |line: &Value| line["message"] == "seen" && line["key"].as_str().is_some_and(|of| of.ends_with(key));
    let lines = daemon.lines().into_iter().filter(of);
    let named = lines.filter(|line| line["fields"]["name"] == name);
    named.filter_map(|line| serde_json::from_str(line["fields"]["sight"].as_str()?).ok()).collect()
}

#[test]
fn s078_finalizers_are_the_components_own_and_each_deletion_is_run_for_with_the_last_known_object() {
    // AE-1, AE-2, ES-6
    let place = Place::new("s078");
    let daemon = place.daemon(&manifest(&place, "finalizer: probes.test.capstan.dev/finalizer\n"));
    let with = json!([
        { "write": { "verb": "addFinalizer" }, "when": "present" },
        { "write": { "verb": "removeFinalizer" }, "when": "going" },
        { "log": { "message": "let go" }, "when": "going" },
        { "see": ["run", "primary"], "when": "gone" },
    ]);
    let without = json!([{ "see": ["run", "primary"], "when": "gone" }]);
    for (name, steps) in [("with", with), ("without", without)] {
        place.probe(name, json!({ "mark": name, "reconcile": { "do": steps, "status": { "ok": true } } }));
    }
    let carried = |name: &str| {
        let probe = place.await_object(&place.probes(), name, "its status", |p| p["status"]["ok"] == true);
        probe["metadata"]["finalizers"].clone()
    };
    assert_eq!(carried("without"), Value::Null);
    assert_eq!(carried("with"), json!(["probes.test.capstan.dev/finalizer"]));
    for name in ["with", "without"] {
        place.delete(&place.probes(), name);
        place.await_gone(&place.probes(), name);
        let last = |what: &str| seen(&daemon, what, name).pop();
        wait::until(SOON, "the run about the deletion", || last("run").zip(last("primary"))).unwrap();
        let (run, primary) = (last("run").unwrap(), last("primary").unwrap());
        assert_eq!((&run["primaryDeleted"], &run["finalStateUnknown"]), (&json!(true), &json!(false)), "{name}");
        assert_eq!((&primary["name"], primary["deletionTimestamp"].is_string()), (&json!(name), name == "with"));
    }
    daemon.await_quiet();
    assert_eq!(daemon.log().matches("let go").count(), 1, "of the one that the finalizer held");
    assert!(!daemon.log().contains("the run failed"), "not even the one that has let it go, and then answers a status");
    for name in ["with", "without"] {
        assert_eq!(seen(&daemon, "run", name).len(), 1, "one run about each deletion");
    }
    let primaries = || daemon.metric("capstan_custom_resources", "");
    wait::until_ok(SOON, "no primaries", || if primaries() == 0.0 { Ok(()) } else { Err(primaries()) }).unwrap();
}

#[test]
fn a_run_about_a_deletion_is_retried_and_what_comes_back_is_run_after_it() {
    // AE-3, AE-4
    let place = Place::new("ae3");
    let retry = "retry: { initialInterval: 300ms, multiplier: 1, maxAttempts: 5 }\n";
    let daemon = place.daemon(&manifest(&place, retry));
    let steps = json!([
        { "memo": { "lifetime": "primary", "count": "runs" }, "as": "runs" },
        { "failTimes": 2, "when": "gone" },
        { "see": ["retry", "primary"], "when": "gone" },
    ]);
    let spec = |mark: &str| json!({ "mark": mark, "reconcile": { "do": steps, "status": { "mark": mark }, "reschedule": 3_600_000 } });
    let uid = place.probe("p", spec("first"))["metadata"]["uid"].take();
    place.await_object(&place.probes(), "p", "its status", |p| p["status"]["mark"] == "first");
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
    place.probe("p", spec("second"));
    let probe =
        place.await_object(&place.probes(), "p", "the status of the next one", |p| p["status"]["mark"] == "second");
    assert_eq!(probe["status"]["runs"], 1, "it is another primary");
    let [run] = <[Value; 1]>::try_from(seen(&daemon, "primary", "/p")).unwrap();
    assert_eq!(run["uid"], uid);
    assert_eq!(seen(&daemon, "retry", "/p"), [json!({ "attempt": 2, "last": false })]);
    let runs = seen(&daemon, "runs", "/p");
    assert!(runs.len() == 1 && runs[0].as_u64() > Some(3), "memos last until the run has succeeded: {runs:?}");
    daemon.await_line("asks to run again for a primary that is gone");
}

#[test]
fn a_controller_takes_over_its_own_finalizer_when_it_comes_to_run_for_all_events() {
    // AE-1, LC-5
    let place = Place::new("becomes");
    let manifest = |component: &str, fields: &str| {
        place.probe_manifest(fields).replace("/probe.wasm", &format!("/{component}.wasm"))
    };
    let folder = Folder::new();
    folder.put("operator.yaml", manifest("probe", "finalizer: a.dev/old\n"));
    let daemon = folder.daemon(&place);
    let steps =
        json!([{ "write": { "verb": "removeFinalizer" }, "when": "going" }, { "see": ["run"], "when": "gone" }]);
    place.probe("p", json!({ "reconcile": { "do": steps, "status": { "ok": true } } }));
    let probe = place.await_object(&place.probes(), "p", "its status", |p| p["status"]["ok"] == true);
    assert_eq!(probe["metadata"]["finalizers"], json!(["a.dev/old"]));
    for (component, finalizer, words) in [
        ("probe", "a.dev/old", "`cleaner` (spec.controllers."),
        ("probe-events", "a.dev/new", "say `finalizer: a.dev/old`"),
    ] {
        folder
            .put("operator.yaml", manifest(component, &format!("triggerOnAllEvents: true\nfinalizer: {finalizer}\n")));
        let problem = || {
            let problem = daemon.plugin("probe").unwrap()["problem"].to_string();
            if problem.contains(words) { Ok(()) } else { Err(problem) }
        };
        wait::until_ok(scenarios::LATER, "the refusal", problem).unwrap();
    }
    folder.put("operator.yaml", manifest("probe-events", "triggerOnAllEvents: true\nfinalizer: a.dev/old\n"));
    daemon.await_plugin("probe", "active", 2);
    daemon.await_quiet();
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
    let run = wait::until(SOON, "the run about the deletion", || seen(&daemon, "run", "/p").pop());
    assert_eq!(run.unwrap()["primaryDeleted"], true);
}

#[test]
fn what_a_run_about_a_deletion_has_watched_is_left_with_it() {
    // AE-3, WF-12
    let place = Place::new("leaves");
    let fields = "standalone:
  preview:
    dependents:
      cm: { apiVersion: v1, kind: ConfigMap, activation: { cel: primary.spec.on } }
";
    let daemon = place.daemon(&manifest(&place, fields));
    let step =
        json!({ "dependent": { "run": "reconcile", "name": "cm" }, "when": "gone", "mayFail": true, "tell": true });
    let made = json!({ "cm": { "metadata": { "name": "leaves" }, "data": { "a": "b" } } });
    place.probe("p", json!({ "on": true, "dependents": made, "reconcile": { "do": step, "status": { "ok": true } } }));
    place.await_object(&place.probes(), "p", "its status", |p| p["status"]["ok"] == true);
    daemon.await_quiet();
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
    wait::until(SOON, "the run about the deletion", || (!seen(&daemon, "dependent", "p").is_empty()).then_some(()))
        .unwrap();
    assert!(daemon.log().contains("a dependent is active: its source is watched"), "{}", daemon.log());
    wait::until(SOON, "that nobody needs the informer", || {
        let informers = daemon.informers(place.namespace.name());
        let mut of_maps = informers.iter().filter(|one| one["scope"].as_str().unwrap().starts_with("v1 ConfigMap "));
        // Those that nobody needs any more are kept for a while.
        of_maps.all(|one| one["needed"] == false).then_some(())
    })
    .unwrap();
}

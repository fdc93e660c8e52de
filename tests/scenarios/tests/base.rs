//! Reconciling, cleaning up, retrying, rescheduling: what any controller does.

use std::fs;
use std::time::Duration;

use cluster::wait;
use scenarios::{Daemon, Folder, LATER, Place, SOON, Start, run};
use serde_json::{Value, json};

/// The probe has a cleaner, so the first run of each probe adds the finalizer and does no more (DI-4).
const FINALIZER_RUN: u64 = 1;

const CLEANER: &str = "finalizer: probes.test.capstan.dev/finalizer\n";

fn finalizers(object: &Value) -> usize {
    object["metadata"]["finalizers"].as_array().map_or(0, Vec::len)
}

#[test]
fn s001_a_controller_is_found_by_its_name_and_none_is_an_error() {
    let place = Place::new("s001");
    let folder = Folder::new();
    let path = folder.path("");
    let (code, _, error) = run(&["run", "--listen", "127.0.0.1:0", "-m", path.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(error.contains("has no *.yaml"), "{error}");
    let (first, second) = (place.namespace.name().to_owned(), format!("{}-second", place.namespace.name()));
    let manifest = place.probe_manifest("");
    folder.put("first.yaml", &manifest);
    let daemon = folder.daemon(&place);
    let running = |name: &str| daemon.controller(name).map(|controller| controller["phase"].clone());
    assert_eq!((running(&first), running(&second)), (Some(json!("running")), None));
    assert_eq!(daemon.controllers()["controllers"].as_array().unwrap().len(), 1);
    folder.put("second.yaml", place.renamed(&manifest, "second"));
    wait::until(LATER, "the second", || (running(&second) == Some(json!("running"))).then_some(())).unwrap();
    assert_eq!(daemon.controllers()["controllers"].as_array().unwrap().len(), 2);
}

#[test]
fn s012_cleanup_runs_once_and_the_resource_goes() {
    // DC-1
    let place = Place::new("s012");
    let daemon = place.daemon(&place.probe_manifest(CLEANER));
    place.probe("p", json!({ "reconcile": { "status": { "seen": true } }, "cleanup": { "do": [{ "log": { "message": "cleaned up" } }] } }));
    let probe = place.await_object(&place.probes(), "p", "the finalizer and the status", |p| {
        finalizers(p) == 1 && p["status"]["seen"] == true
    });
    assert_eq!(probe["metadata"]["finalizers"][0], "probes.test.capstan.dev/finalizer");
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
    daemon.await_quiet();
    let log = daemon.log();
    assert_eq!(log.matches("cleaned up").count(), 1);
    // One reconciles, one cleans up.
    assert_eq!(daemon.runs(), FINALIZER_RUN + 2, "{log}");
}

#[test]
fn two_controllers_of_a_kind_clean_up_each_behind_a_finalizer_of_its_own() {
    // LC-3
    let place = Place::new("two-finalizers");
    let folder = Folder::new();
    folder.put("first.yaml", place.probe_manifest(CLEANER));
    let daemon = folder.daemon(&place);
    let second = |finalizer: &str| place.renamed(&place.probe_manifest(finalizer), "second");
    folder.put("second.yaml", second(CLEANER));
    daemon.await_lacking(&["so that a primary of both would go once one of them has cleaned up"]);
    folder.put("second.yaml", second("finalizer: second.test.capstan.dev/finalizer\n"));
    let daemon = daemon.until_ready();
    let says = json!([{ "log": { "message": "swept" } }]);
    place.probe("p", json!({ "cleanup": { "do": says } }));
    place.await_object(&place.probes(), "p", "both finalizers", |p| finalizers(p) == 2);
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
    assert_eq!(daemon.log().matches("swept").count(), 2);
}

#[test]
fn s012_cleanup_comes_back_until_it_lets_the_resource_go() {
    let place = Place::new("s012b");
    let daemon = place.daemon(&place.probe_manifest(CLEANER));
    place.probe(
        "p",
        json!({ "cleanup": { "do": [{ "log": { "message": "asked again" } }], "keep": true, "reschedule": 150 } }),
    );
    place.await_object(&place.probes(), "p", "the finalizer", |p| finalizers(p) == 1);
    place.delete(&place.probes(), "p");
    wait::until(SOON, "more than five calls", || (daemon.log().matches("asked again").count() > 5).then_some(()))
        .unwrap();
    place.merge(&place.probes(), "p", &json!({ "spec": { "cleanup": { "keep": false } } }));
    place.await_gone(&place.probes(), "p");
}

#[test]
fn s016_settings_of_the_manifest_hold() {
    let place = Place::new("s016");
    let defaults = tempfile::NamedTempFile::new().unwrap();
    let document =
        "apiVersion: capstan.dev/v1alpha1\nkind: Defaults\nspec: { controllers: { concurrency: 2, retry: none } }\n";
    fs::write(defaults.path(), document).unwrap();
    let manifest = place.probe_manifest("retry: { initialInterval: 100ms, multiplier: 1, maxAttempts: 5 }\n");
    let defaults = ["--defaults", defaults.path().to_str().unwrap()];
    let daemon = Start::new(&manifest).arguments(&defaults).run(&place).until_ready();
    let steps = json!([{ "failTimes": 2 }, { "see": ["settings"] }]);
    place.probe("p", json!({ "reconcile": { "do": steps, "status": { "state": "SUCCESS" } } }));
    let probe = place.await_object(&place.probes(), "p", "success", |p| p["status"]["state"] == "SUCCESS");
    let controller = &probe["status"]["settings"]["controller"];
    let retry = &controller["retry"];
    assert_eq!(
        (&controller["concurrency"], &retry["initialInterval"], &retry["maxAttempts"]),
        (&json!(2), &json!("100ms"), &json!(5))
    );
    daemon.await_quiet();
    assert_eq!(daemon.runs(), FINALIZER_RUN + 3);
}

#[test]
fn s021_the_error_handler_writes_the_status_with_each_attempt() {
    // EC-1, EC-2
    let place = Place::new("s021");
    let retry = "retry: { initialInterval: 100ms, multiplier: 1, maxAttempts: 3 }\n";
    let daemon = place.daemon(&place.probe_manifest(retry));
    let fails = json!({ "do": { "fail": "Error Retries Exceeded" } });
    place.probe("p", json!({ "reconcile": fails, "onError": { "failures": true } }));
    let all = json!([0, 1, 2, 3].map(|attempt| format!("{attempt}: Error Retries Exceeded")));
    place.await_object(&place.probes(), "p", "all attempts", |p| p["status"]["failures"] == all);
    daemon.await_quiet();
    assert_eq!(place.find(&place.probes(), "p").unwrap()["status"]["failures"], all);
}

#[test]
fn s022_a_rescheduled_primary_comes_back_by_itself() {
    let place = Place::new("s022");
    let daemon = place.daemon(&place.probe_manifest(""));
    place.probe("p", json!({ "reconcile": { "reschedule": 500 } }));
    let four = || (daemon.runs() >= FINALIZER_RUN + 4).then_some(());
    wait::until(Duration::from_secs(5), "four runs", four).unwrap();
    // Of more gaps a long one is a smaller part.
    daemon.await_runs(FINALIZER_RUN + 8);
    // From the end of a run to that of the next.
    let gaps = gaps(&daemon);
    let after_reschedule = &gaps[usize::try_from(FINALIZER_RUN).unwrap()..];
    assert!(mean(after_reschedule) >= 0.45, "{gaps:?}");
}

#[test]
fn s034_only_what_the_selector_selects_is_reconciled() {
    // IN-3
    let place = Place::new("s034");
    let daemon = place.daemon(&place.probe_manifest("labelSelector: app=myapp\n"));
    let labelled = json!({ "metadata": { "labels": { "app": "myapp" } }, "spec": { "reconcile": { "status": { "seen": true } } } });
    place.probe("other", json!({ "reconcile": { "status": { "seen": true } } }));
    place.create("test.capstan.dev/v1", "Probe", &place.probes(), "mine", labelled);
    place.await_object(&place.probes(), "mine", "its status", |p| p["status"]["seen"] == true);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), FINALIZER_RUN + 1);
    assert_eq!(place.find(&place.probes(), "other").unwrap()["status"], Value::Null);
}

#[test]
fn s036_the_status_follows_the_generation() {
    let place = Place::new("s036");
    let daemon = place.daemon(&place.probe_manifest(""));
    place.probe("p", json!({ "reconcile": { "status": { "seen": true } } }));
    place.await_object(&place.probes(), "p", "generation 1", |p| p["status"]["observedGeneration"] == 1);
    place.merge(&place.probes(), "p", &json!({ "spec": { "anything": 1 } }));
    let probe = place.await_object(&place.probes(), "p", "generation 2", |p| p["status"]["observedGeneration"] == 2);
    assert_eq!(probe["metadata"]["generation"], 2);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), FINALIZER_RUN + 2, "the status's own events cause no run");
}

#[test]
fn s037_a_primary_runs_at_least_once_per_interval() {
    let place = Place::new("s037");
    let daemon = place.daemon(&place.probe_manifest("maxReconciliationInterval: 50ms\n"));
    place.probe("p", json!({}));
    daemon.await_runs(FINALIZER_RUN + 20);
    let gaps = gaps(&daemon);
    let idle = &gaps[usize::try_from(FINALIZER_RUN).unwrap()..];
    assert!(mean(idle) >= 0.045, "{gaps:?}");
    let fastest = idle.windows(3).map(|gaps| gaps.iter().sum::<f64>()).fold(f64::MAX, f64::min);
    assert!(fastest <= 0.5, "four runs within {fastest} s at best");
}

#[test]
fn s064_events_between_retries_use_up_no_attempt() {
    // EP-33
    let place = Place::new("s064");
    let retry = "retry: { initialInterval: 60s, multiplier: 1, maxAttempts: 3 }\n";
    let daemon = place.daemon(&place.probe_manifest(retry));
    let attempts = json!([{ "see": ["retry"], "tell": true }, { "fail": "always" }]);
    place.probe("p", json!({ "reconcile": { "do": attempts } }));
    for n in 0..6 {
        let due = || (daemon.runs() > FINALIZER_RUN + n).then_some(());
        wait::until(Duration::from_secs(5), "a run", due).unwrap();
        daemon.await_quiet();
        if n < 5 {
            place.merge(&place.probes(), "p", &json!({ "spec": { "anything": n } }));
        }
    }
    let told = daemon.told("retry");
    let attempts = told.iter().map(|retry| retry["attempt"].as_u64().unwrap_or_default());
    assert_eq!((told.len(), attempts.max()), (6, Some(1)), "{told:?}");
}

#[test]
fn s063_failures_are_retried_until_they_cease() {
    let place = Place::new("s063");
    let retry = "retry: { initialInterval: 150ms, multiplier: 1, maxAttempts: 5 }\n";
    let daemon = place.daemon(&place.probe_manifest(retry));
    let steps = json!([{ "failTimes": 3 }, { "see": ["retry"] }]);
    place.probe("p", json!({ "reconcile": { "do": steps, "status": { "state": "SUCCESS" } } }));
    let succeeds = |p: &Value| p["status"]["state"] == "SUCCESS";
    let probe = place.await_within(Duration::from_secs(5), &place.probes(), "p", "success", succeeds);
    assert_eq!(probe["status"]["retry"]["attempt"], 3);
    assert_eq!(probe["status"]["retry"]["last"], false);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), FINALIZER_RUN + 4);
}

#[test]
fn s065_retries_end_after_the_last_attempt() {
    // EP-31
    let place = Place::new("s065");
    let retry = "retry: { initialInterval: 100ms, multiplier: 1, maxAttempts: 3 }\n";
    let daemon = place.daemon(&place.probe_manifest(retry));
    place.probe("p", json!({ "reconcile": { "do": [{ "fail": "never works" }] } }));
    daemon.await_line("no retries left");
    daemon.await_quiet();
    assert_eq!(daemon.runs(), FINALIZER_RUN + 4);
    let failures = daemon.log().matches("never works").count();
    assert_eq!(failures, 4, "each failure is told once");
    let counted = ["failure", "retries"].map(|what| daemon.count(&format!("capstan_reconciliations_{what}_total"), ""));
    assert_eq!(counted, [4, 3]);
}

#[test]
fn an_error_handler_writes_the_status_and_stops_the_retries() {
    let place = Place::new("ec");
    let daemon = place.daemon(&place.probe_manifest(""));
    place.probe(
        "p",
        json!({
            "reconcile": { "do": [{ "fail": "the disk is full" }] },
            "onError": { "failure": true, "status": { "ok": false }, "next": "stop" },
        }),
    );
    let probe = place.await_object(&place.probes(), "p", "the error status", |p| p["status"]["ok"] == false);
    assert_eq!(probe["status"]["failure"]["message"], "the disk is full");
    assert_eq!(probe["status"]["failure"]["origin"], "reconciler");
    daemon.await_quiet();
    assert_eq!(daemon.runs(), FINALIZER_RUN + 1);
    // EC-5: seen where people look, once for each cause.
    let warnings = || {
        let lines = daemon.lines().into_iter().filter(|line| line["level"] == "WARN");
        lines.filter(|line| line["message"] == "the run failed" && line["handled"] == true).count()
    };
    let counted =
        || ["handled", "failure"].map(|end| daemon.count(&format!("capstan_reconciliations_{end}_total"), ""));
    assert_eq!((warnings(), counted()), (1, [1, 0]));
    for times in [2, 3] {
        place.merge(&place.probes(), "p", &json!({ "spec": { "anything": times } }));
        daemon.await_runs(FINALIZER_RUN + times);
        daemon.await_quiet();
        assert_eq!((warnings(), counted()), (1, [times, 0]));
    }
}

#[test]
fn an_error_handler_says_how_long_a_retry_waits() {
    // RT-3, RT-5
    let place = Place::new("rt5");
    let retry = "retry: { initialInterval: 1h, maxInterval: none, maxAttempts: 2 }\n";
    let daemon = place.daemon(&place.probe_manifest(retry));
    let on_error = json!({ "failure": true, "status": {}, "next": { "retryAfter": 300 } });
    place.probe("p", json!({ "reconcile": { "do": [{ "fail": "not yet" }] }, "onError": on_error }));
    let last = |p: &Value| p["status"]["failure"]["retry"]["last"] == true;
    let probe = place.await_object(&place.probes(), "p", "the last attempt", last);
    assert_eq!(probe["status"]["failure"]["retry"]["attempt"], 2);
    daemon.await_line("no retries left");
    daemon.await_quiet();
    assert_eq!(daemon.runs(), FINALIZER_RUN + 3);
}

#[test]
fn a_component_decides_when_its_failures_are_retried() {
    // RT-5
    let place = Place::new("rt5-own");
    let retry = "retry: { initialInterval: 1h, maxInterval: none, maxAttempts: unlimited, by: { trap: { initialInterval: 100ms, maxInterval: none } } }\n";
    let daemon = place.daemon(&place.probe_manifest(retry));
    let decides = json!({ "after": 200, "stopAt": 2 });
    for (name, step, class) in [("returns", json!({ "fail": "not yet" }), "returned"), ("traps", json!("trap"), "trap")]
    {
        let before = daemon.runs();
        place.probe(name, json!({ "reconcile": { "do": [step] }, "retry": decides }));
        let last = |line: &str| line.contains("no retries left") && line.contains(&format!("\"class\":\"{class}\""));
        let found = || daemon.log().lines().any(last).then_some(());
        wait::until(Duration::from_secs(10), name, found).unwrap();
        assert_eq!(daemon.runs() - before, FINALIZER_RUN + 3, "{name}");
    }
    // What it says nothing about is retried as the manifest says.
    let before = daemon.runs();
    place.probe("leaves-it", json!({ "reconcile": { "do": "trap" } }));
    daemon.await_runs(before + FINALIZER_RUN + 3);
    // A clean-up, too.
    place.probe("goes", json!({ "cleanup": { "do": [{ "failTimes": 2 }] }, "retry": { "after": 200 } }));
    place.delete(&place.probes(), "goes");
    place.await_gone(&place.probes(), "goes");
}

#[test]
fn failures_of_one_class_are_retried_otherwise_than_others() {
    // RT-7
    let place = Place::new("rt7");
    let retry = "retry: { initialInterval: 100ms, multiplier: 1, maxAttempts: 2, by: { trap: { maxAttempts: 4 }, rejected: none } }\n";
    let workflow = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, reconcilePrecondition: { cel: has(primary.spec.dependents) } } } }\n";
    let daemon = place.daemon(&place.probe_manifest(&format!("{retry}{workflow}")));
    let refused =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" }, "data": { "no/key": "a" } });
    for (name, spec, class, runs) in [
        ("returns", json!({ "reconcile": { "do": { "fail": "always" } } }), "returned", 3),
        ("traps", json!({ "reconcile": { "do": "trap" } }), "trap", 5),
        ("is-refused", json!({ "dependents": { "cm": refused } }), "rejected", 1),
    ] {
        let before = daemon.runs();
        place.probe(name, spec);
        let class = format!("\"class\":\"{class}\"");
        let last = |line: &str| line.contains("no retries left") && line.contains(&class);
        let found = || daemon.log().lines().any(last).then_some(());
        wait::until(Duration::from_secs(10), name, found).unwrap();
        assert_eq!(daemon.runs() - before, FINALIZER_RUN + runs, "{name}");
    }
}

#[test]
fn a_run_that_takes_too_long_in_all_is_given_up() {
    // RT-6
    let place = Place::new("rt6");
    let daemon = place.daemon(&place.probe_manifest("reconciliationTimeout: 1s\nretry: none\n"));
    let on_error = json!({ "failure": true, "status": {} });
    place.probe("p", json!({ "reconcile": { "do": [{ "busyMs": 3000 }] }, "onError": on_error }));
    let told = |p: &Value| p["status"]["failure"]["origin"] == "timeout";
    let probe = place.await_object(&place.probes(), "p", "the failure", told);
    let said = "the run took longer than 1s (reconciliationTimeout)";
    assert_eq!(probe["status"]["failure"]["message"], said);
    place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "do": null, "status": { "ok": true } } } }));
    place.await_object(&place.probes(), "p", "the next run", |p| p["status"]["ok"] == true);
    drop(daemon);
}

#[test]
fn a_run_is_prepared_before_its_workflow_whether_it_reconciles_or_cleans_up() {
    // CI-1
    let place = Place::new("ci");
    let manifest = format!(
        "{CLEANER}workflow: {{ dependents: {{ cm: {{ apiVersion: v1, kind: ConfigMap, reconcilePrecondition: {{ export: prepared }} }} }} }}\n"
    );
    let daemon = place.daemon(&place.probe_manifest(&manifest));
    let seen = json!([{ "memo": { "lifetime": "run", "get": "prepared" }, "as": "prepared" }]);
    let too_late = json!({ "workflow": { "run": "reconcile" }, "mayFail": true, "as": "workflow" });
    place.probe(
        "p",
        json!({
            "initialize": { "do": [{ "memo": { "lifetime": "run", "put": "prepared", "value": "yes" } }, too_late] },
            "conditions": { "prepared": { "do": seen, "met": true } },
            "dependents": { "cm": { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "cm" } } },
            "reconcile": { "do": seen, "status": {} },
            "cleanup": { "do": seen },
        }),
    );
    place.await_object(&place.probes(), "p", "the value in reconcile", |p| p["status"]["prepared"] == "yes");
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
    daemon.await_quiet();
    let seen = |call: &str| {
        let told = |line: &Value| line["call"] == call && line["message"] == "seen";
        daemon.lines().into_iter().filter(told).map(|mut line| line["fields"].take()).collect::<Vec<_>>()
    };
    let yes = json!({ "name": "prepared", "sight": "\"yes\"" });
    assert_eq!(seen("is-met"), std::slice::from_ref(&yes));
    assert_eq!(seen("cleanup"), [yes]);
    let refused = seen("initialize").into_iter().filter(|line| line.to_string().contains("misplaced"));
    assert_eq!(refused.count(), 2, "no workflow runs there");

    // A failure is one of the run.
    place.probe("q", json!({ "initialize": { "do": [{ "fail": "not yet" }] }, "onError": { "failure": true } }));
    let probe = place.await_object(&place.probes(), "q", "the failure", |p| p["status"]["failure"].is_object());
    let failure = &probe["status"]["failure"];
    assert_eq!((&failure["origin"], &failure["message"]), (&json!("reconciler"), &json!("not yet")));
}

#[test]
fn runs_of_one_primary_never_overlap_and_events_meanwhile_collapse() {
    // EP-11, EP-15
    let place = Place::new("ep11");
    let daemon = place.daemon(&place.probe_manifest(""));
    place.probe("p", json!({ "reconcile": { "do": [{ "busyMs": 700 }] } }));
    let busy = || daemon.runs() == FINALIZER_RUN + 1 && daemon.metric("capstan_reconciliations_active", "") > 0.0;
    wait::until(SOON, "a run under way", || busy().then_some(())).unwrap();
    for n in 0..5 {
        place.merge(&place.probes(), "p", &json!({ "spec": { "anything": n } }));
    }
    daemon.await_runs(FINALIZER_RUN + 2);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), FINALIZER_RUN + 2);
}

#[test]
fn a_rate_limit_spaces_runs() {
    // RL-1
    let place = Place::new("rl");
    let daemon = place.daemon(&place.probe_manifest("rateLimit: { maxReconciliations: 2, within: 2s }\n"));
    place.probe("p", json!({ "reconcile": { "reschedule": 10 } }));
    daemon.await_runs(6);
    let times: Vec<_> = daemon
        .lines()
        .into_iter()
        .filter(|l| l["message"] == "reconciled")
        .map(|l| l["timestamp"].to_string())
        .collect();
    assert!(times.len() >= 4, "{times:?}");
    // The finalizer's run is the first of the window.
    let gap = (seconds_of_day(&times[2]) - seconds_of_day(&times[0])).rem_euclid(86_400.0);
    assert!(gap >= 1.9, "the third run waits for the window: {gap} s");
}

/// Returns the times between the ends of runs, in seconds.
fn gaps(daemon: &Daemon) -> Vec<f64> {
    let ended = |line: &Value| line["message"] == "reconciled";
    let lines = daemon.lines().into_iter().filter(ended);
    let times: Vec<_> = lines.map(|line| seconds_of_day(&line["timestamp"].to_string())).collect();
    let gap = |pair: &[f64]| (pair[1] - pair[0]).rem_euclid(86_400.0);
    times.windows(2).map(gap).collect()
}

/// Returns the mean of gaps. A busy machine may hold up single lines of the log, and so lengthen one gap and shorten the next.
fn mean(gaps: &[f64]) -> f64 {
    gaps.iter().sum::<f64>() / f64::from(u32::try_from(gaps.len()).unwrap())
}

/// Returns the time of day of a log line, in seconds.
fn seconds_of_day(timestamp: &str) -> f64 {
    let time = timestamp.trim_matches('"').split_once('T').unwrap().1.trim_end_matches('Z');
    let parts: Vec<f64> = time.split(':').map(|part| part.parse().unwrap()).collect();
    parts[0] * 3600.0 + parts[1] * 60.0 + parts[2]
}

#[test]
fn memos_outlive_runs_as_long_as_they_were_asked_to() {
    let place = Place::new("memo");
    let daemon = place.daemon(&place.probe_manifest("generationAware: true\n"));
    let steps = json!([
        { "memo": { "lifetime": "primary", "count": "runs" }, "as": "primary" },
        { "memo": { "lifetime": "run", "count": "runs" }, "as": "run" },
        { "memo": { "lifetime": "plugin", "count": "runs" }, "as": "plugin" },
    ]);
    place.probe("p", json!({ "reconcile": { "do": steps, "status": {} } }));
    place.await_object(&place.probes(), "p", "the first run", |p| p["status"]["primary"] == 1);
    place.merge(&place.probes(), "p", &json!({ "spec": { "anything": 1 } }));
    let probe = place.await_object(&place.probes(), "p", "the second run", |p| p["status"]["observedGeneration"] == 2);
    assert_eq!(probe["status"]["run"], 1);
    assert_eq!(probe["status"]["primary"], 2);
    assert_eq!(probe["status"]["plugin"], 2);
    drop(daemon);
}

#[test]
fn s138_no_series_names_a_primary() {
    let place = Place::new("s138");
    let daemon = place.daemon(&place.probe_manifest(""));
    place.probe("named-nowhere", json!({ "reconcile": { "status": { "seen": true } } }));
    place.await_object(&place.probes(), "named-nowhere", "its status", |p| p["status"]["seen"] == true);
    daemon.await_quiet();
    let (_, metrics) = daemon.get("/metrics");
    assert!(metrics.contains(place.namespace.name()), "the controller is named");
    assert!(!metrics.contains("named-nowhere"), "{metrics}");
}

#[test]
fn s160_events_about_a_primary_are_counted() {
    // ER-2, ER-4, ER-5
    let place = Place::new("s160");
    let daemon = place.daemon(&place.probe_manifest("generationAware: false\n"));
    let normal = json!({ "event": { "reason": "Mounted", "message": "there is a disk" } });
    let warning = json!({ "event": { "warning": true, "reason": "DiskFull", "message": "no room left" } });
    let uid = place.probe("p", json!({ "reconcile": { "do": [normal, warning] } }))["metadata"]["uid"].clone();
    let path = place.namespace.path("v1", "events");
    let counted = |reason: &str, count: u64| {
        wait::until_ok(SOON, &format!("{reason} counted {count} times"), || {
            let list = place.cluster.api().get(&path).unwrap();
            let all = list["items"].as_array().unwrap().iter();
            let events: Vec<_> = all.filter(|event| event["reason"] == reason).cloned().collect();
            match &events[..] {
                [event] if event["count"] == count => Ok(event.clone()),
                _ => Err(list),
            }
        })
        .unwrap()
    };
    let reporter = format!("capstan/{}", place.namespace.name());
    for round in 1..=2 {
        for (reason, kind, message) in
            [("Mounted", "Normal", "there is a disk"), ("DiskFull", "Warning", "no room left")]
        {
            let event = counted(reason, round);
            let about = &event["involvedObject"];
            assert_eq!((&event["type"], &event["message"]), (&json!(kind), &json!(message)));
            assert_eq!((&about["kind"], &about["name"], &about["uid"]), (&json!("Probe"), &json!("p"), &uid));
            assert_eq!(event["reportingComponent"], reporter);
            for field in ["reportingInstance", "firstTimestamp", "lastTimestamp"] {
                assert!(event[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {event}");
            }
        }
        place.merge(&place.probes(), "p", &json!({ "metadata": { "labels": { "run": "again" } } }));
    }
    daemon.await_quiet();
    assert_eq!(daemon.runs(), FINALIZER_RUN + 2);
}

#[test]
fn events_are_counted_named_and_owned_as_the_manifest_says() {
    // ER-3, ER-7
    let place = Place::new("er7");
    let events = "events: { key: typeAndReason, name: { cel: \"event.reason == 'Mounted' ? primary.metadata.name + '.mounted' : ''\" }, ownerReference: true }\n";
    let path = place.namespace.path("v1", "events");
    let api = place.cluster.api();
    let of_another = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "q.mounted" }, "reason": "Mounted", "message": "not ours", "type": "Normal", "count": 1,
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "name": "q", "namespace": place.namespace.name() },
    });
    api.create(&path, &of_another).unwrap();
    let daemon = place.daemon(&place.probe_manifest(events));
    let event = |reason: &str, message: &str| json!({ "event": { "reason": reason, "message": message } });
    let steps = [event("Mounted", "one"), event("Mounted", "two"), event("Odd", "one"), event("Odd", "two")];
    for (name, mounted) in [("p", Some("p.mounted")), ("q", None)] {
        let uid = place.probe(name, json!({ "reconcile": { "do": steps } }))["metadata"]["uid"].clone();
        let owner = json!([{ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "name": name, "uid": uid }]);
        for (reason, called) in [("Mounted", mounted), ("Odd", None)] {
            let found = wait::until_ok(SOON, &format!("{reason} about {name}"), || {
                let list = api.get(&path).unwrap();
                let all = list["items"].as_array().unwrap().iter();
                let about = |event: &&Value| event["reason"] == reason && event["involvedObject"]["uid"] == uid;
                match &all.filter(about).collect::<Vec<_>>()[..] {
                    [event] if event["count"] == 2 => Ok((*event).clone()),
                    _ => Err(list.clone()),
                }
            });
            let found = found.unwrap();
            let metadata = &found["metadata"];
            assert_eq!((&found["message"], &metadata["ownerReferences"]), (&json!("two"), &owner));
            let by_default = metadata["name"].as_str().is_some_and(|found| found.len() == name.len() + 33);
            assert_eq!(metadata["name"].as_str().filter(|_| !by_default), called, "{found}");
        }
    }
    assert_eq!(api.get(&format!("{path}/q.mounted")).unwrap()["message"], "not ours");
    drop(daemon);
    // Why Events about what lives in no namespace are in `default`: nothing else is taken.
    let about_nothing = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "a" }, "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": "n" },
    });
    assert_eq!(api.create(&path, &about_nothing).unwrap_err().code(), Some(422));
}

#[test]
fn a_run_that_fails_leaves_one_warning_that_is_counted_and_none_if_the_manifest_says_so() {
    // ER-8
    for (prefix, fields, records) in [("er8", "", true), ("er8-off", "events: { ofFailures: false }\n", false)] {
        let place = Place::new(prefix);
        let retry = "retry: { initialInterval: 50ms, maxAttempts: 2 }\n";
        let daemon = place.daemon(&place.probe_manifest(&format!("{retry}{fields}")));
        place.probe("p", json!({ "reconcile": { "do": [{ "fail": "no disk" }] } }));
        wait::until(SOON, "all attempts", || (daemon.runs() >= FINALIZER_RUN + 3).then_some(())).unwrap();
        daemon.await_quiet();
        let path = place.namespace.path("v1", "events");
        let api = place.cluster.api();
        let found = || api.get(&path).unwrap()["items"].as_array().unwrap().clone();
        if records {
            let event = wait::until_ok(SOON, "three failures in one Event", || match &found()[..] {
                [event] if event["count"] == 3 => Ok(event.clone()),
                others => Err(json!(others)),
            });
            let event = event.unwrap();
            assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("RunFailed")));
            let message = "no disk; that was the last attempt: the next run follows the next change";
            assert_eq!(event["message"], message);
        } else {
            assert!(found().is_empty(), "{:?}", found());
        }
    }
}

#[test]
fn memos_of_a_primary_go_with_it() {
    // EP-4
    let place = Place::new("forget");
    let daemon = place.daemon(&place.probe_manifest(""));
    let count = json!([{ "memo": { "lifetime": "primary", "count": "runs" }, "as": "runs" }]);
    for _ in 0..2 {
        place.probe("p", json!({ "reconcile": { "do": count, "status": {} } }));
        let probe = place.await_object(&place.probes(), "p", "its status", |p| p["status"]["runs"].is_number());
        assert_eq!(probe["status"]["runs"], 1);
        place.delete(&place.probes(), "p");
        place.await_gone(&place.probes(), "p");
        let primaries = || daemon.metric("capstan_custom_resources", "");
        wait::until_ok(SOON, "no primaries", || if primaries() == 0.0 { Ok(()) } else { Err(primaries()) }).unwrap();
    }
}

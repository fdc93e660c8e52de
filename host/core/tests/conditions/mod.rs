//! Runs whose primaries are given standard conditions.

use super::*;

const STANDARD: &str = "statusConditions: standard";
const STATUS: &str = "patch Page a/status";

/// A bench whose pages are given conditions, with these fields of the controller.
fn bench(script: Script, fields: &str) -> Bench {
    const GRANT: &str = "{ apiVersion: sample.dev/v1, kind: Page, verbs: [get, apply, update, patch] }";
    let bench = Bench::granted(script, GRANT, &format!("{STANDARD}\n{fields}"));
    bench.controller.conditions.learn(true);
    bench
}

fn failing(failure: Failure) -> Script {
    Script { reconcile: Err(failure), ..Script::default() }
}

impl Bench {
    fn live(&self) -> Value {
        let key = (self.controller.spec.primary.clone(), ObjectRef::namespaced("n", "a"));
        self.server.objects.lock()[&key].clone()
    }

    /// Returns the conditions of the page on the server, each as `Ready=True/Succeeded`.
    fn conditions(&self) -> Vec<String> {
        let page = self.live();
        let all = page["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        all.iter().map(|one| format!("{}={}/{}", text(one, "type"), text(one, "status"), text(one, "reason"))).collect()
    }

    fn message(&self, kind: &str) -> String {
        let page = self.live();
        let mut all = page["status"]["conditions"].as_array().unwrap().iter();
        all.find(|entry| entry["type"] == *kind).unwrap()["message"].as_str().unwrap().to_owned()
    }

    /// Has the watch show the page as it is, and returns what the queue is told of it.
    fn shown(&mut self) -> Vec<Trigger> {
        let page = Object::parse(&self.live().to_string(), &self.controller.spec.primary, &Managers::all()).unwrap();
        self.watched(page)
    }

    async fn writes(&self) -> Vec<String> {
        self.run().await.2
    }
}

const READY: [&str; 3] = ["Ready=True/Succeeded", "Progressing=False/Succeeded", "Degraded=False/Succeeded"];

#[tokio::test(start_paused = true)]
async fn a_primary_whose_run_succeeds_is_ready_and_what_is_no_news_is_not_written() {
    // SC-1, SC-2
    let script = Script { reconcile: status(r#"{"status":{"ok":true}}"#), ..Script::default() };
    let mut bench = bench(script, WORKFLOW);
    bench.page(json!({ "uid": "page" }));
    assert_eq!(bench.writes().await, strings(&["create ConfigMap a", STATUS, STATUS]));
    assert_eq!(bench.conditions(), READY);
    assert_eq!(bench.live()["status"]["ok"], true, "each has its own fields");
    let shares = bench.live()["metadata"]["managedFields"].to_string();
    assert!(shares.contains("pages/conditions") && shares.contains("\"pages\""), "{shares}");
    assert_eq!(bench.writes().await, [""; 0]);
    bench.page_of(json!({ "uid": "page", "generation": 2 }), json!({}));
    assert_eq!(bench.writes().await, strings(&[STATUS, STATUS]), "the page was put there anew");
    assert_eq!(bench.live()["status"]["conditions"][0]["observedGeneration"], 2);
}

#[tokio::test(start_paused = true)]
async fn no_conditions_are_written_unless_the_manifest_asks_for_them() {
    // SC-1
    let mut bench = Bench::new(Script::default(), WORKFLOW);
    bench.page(json!({ "uid": "page" }));
    assert_eq!(bench.writes().await, strings(&["create ConfigMap a"]));
}

#[tokio::test(start_paused = true)]
async fn the_event_of_written_conditions_causes_no_run() {
    // SC-2
    let mut bench = bench(Script::default(), "");
    bench.page(json!({ "uid": "page" }));
    assert_eq!(bench.writes().await, strings(&[STATUS]));
    assert_eq!(bench.shown(), []);
    // What another client writes meanwhile does.
    let mut page = bench.live();
    page["spec"] = json!({ "x": 1 });
    bench.server.put(&bench.controller.spec.primary.clone(), page);
    assert_eq!(bench.shown().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dependent_that_is_not_ready_is_named() {
    // SC-1
    const UNREADY: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, readyPostcondition: { cel: primary.spec.ready } } } }";
    let mut bench = bench(Script::default(), UNREADY);
    let page = json!({ "uid": "page" });
    bench.page_of(page.clone(), json!({ "ready": false }));
    bench.run().await;
    let unready = ["Ready=False/DependentNotReady", "Progressing=True/DependentNotReady", "Degraded=False/Succeeded"];
    assert_eq!(bench.conditions(), unready);
    assert_eq!(bench.message("Ready"), "not ready: cm");
    let mut now = bench.live();
    now["spec"]["ready"] = true.into();
    bench.server.put(&bench.controller.spec.primary.clone(), now);
    bench.shown();
    bench.run().await;
    assert_eq!(bench.conditions(), READY);
}

#[tokio::test(start_paused = true)]
async fn what_the_component_says_of_a_condition_that_is_not_met_is_shown() {
    // SC-1
    const ENOUGH: &str =
        "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, readyPostcondition: { export: enough } } } }";
    let exports = &[Interface::Reconciler, Interface::Dependent, Interface::Condition];
    let mut bench = bench(Script { exports, ..Script::default() }, ENOUGH);
    bench.page(json!({ "uid": "page" }));
    bench.run().await;
    assert_eq!(bench.message("Ready"), "not ready: cm (1 of 2)");
}

#[tokio::test(start_paused = true)]
async fn a_failure_shows_until_a_run_succeeds_and_the_last_attempt_says_so() {
    // SC-1
    let denied = plain(WriteVerb::Create(
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "x", "namespace": "n" } }).to_string(),
    ));
    let denied = Script { asks: Some(denied), ..Script::default() };
    let failures = [
        (failing(Failure::new(Cause::Returned, "no theme")), "no theme"),
        (failing(Failure::new(Cause::Trap, "it trapped")), "it trapped"),
        (failing(Failure::new(Cause::Timeout, "it took too long")), "it took too long"),
        (denied, "capabilities.kubernetes"),
    ];
    for (script, text) in failures {
        let mut bench = bench(script, "retry: { maxAttempts: 1 }");
        bench.page(json!({ "uid": "page" }));
        assert_eq!(bench.writes().await, strings(&[STATUS]), "{text}");
        assert_eq!(
            bench.conditions(),
            ["Ready=False/RunFailed", "Progressing=True/Retrying", "Degraded=True/RunFailed"]
        );
        assert!(bench.message("Ready").contains(text), "{}", bench.message("Ready"));
        assert!(bench.message("Degraded").ends_with("; the run is retried"));
        bench.run().await;
        assert_eq!(
            bench.conditions(),
            ["Ready=False/RunFailed", "Progressing=False/RetriesExhausted", "Degraded=True/RunFailed"]
        );
        assert!(bench.message("Degraded").contains("that was the last attempt"));
    }
    let mut bench = bench(Script::default(), "");
    let page = json!({ "uid": "page" });
    bench.page(page);
    let failed = json!([
        { "type": "Ready", "status": "False" }, { "type": "Synced", "status": "True" }, { "type": "Degraded", "status": "True" },
    ]);
    let mut now = bench.live();
    now["status"]["conditions"] = failed;
    bench.server.put(&bench.controller.spec.primary.clone(), now);
    bench.shown();
    assert_eq!(bench.writes().await, strings(&[STATUS]));
    let expected = ["Ready=True/Succeeded", "Synced=True/", "Degraded=False/Succeeded", "Progressing=False/Succeeded"];
    assert_eq!(bench.conditions(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_dependent_that_fails_is_named_and_what_is_said_of_a_secret_is_not_shown() {
    // SC-1, SSA-7
    for (kind, shown) in [("ConfigMap", "failed: cm (no name)"), ("Secret", "failed: cm (the log says why)")] {
        let fields = format!("retry: none\nworkflow: {{ dependents: {{ cm: {{ apiVersion: v1, kind: {kind} }} }} }}");
        let mut bench = bench(Script { desired: Err("no name".to_owned()), ..Script::default() }, &fields);
        bench.page(json!({ "uid": "page" }));
        bench.run().await;
        let failed =
            ["Ready=False/DependentFailed", "Progressing=False/RetriesExhausted", "Degraded=True/DependentFailed"];
        assert_eq!((bench.conditions(), bench.message("Ready")), (strings(&failed), shown.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_component_has_dealt_with_shows_all_the_same() {
    // SC-1, EC-5
    let stopped = ["Ready=False/RunFailed", "Progressing=False/RetriesStopped", "Degraded=True/RunFailed"];
    let again = ["Ready=False/RunFailed", "Progressing=True/Retrying", "Degraded=True/RunFailed"];
    for (next, expected) in [
        (NextStep::Stop, stopped),
        (NextStep::Reschedule(Duration::from_mins(1)), again),
        (NextStep::Retry, again),
        (NextStep::RetryAfter(Duration::from_mins(1)), again),
    ] {
        let handle_error = ErrorControl::Handled { status: Some(r#"{"status":{"error":"x"}}"#.to_owned()), next };
        let exports = &[Interface::Reconciler, Interface::ErrorHandler];
        let script = Script { exports, handle_error, ..failing(Failure::new(Cause::Returned, "no theme")) };
        let mut bench = bench(script, "");
        bench.page(json!({ "uid": "page" }));
        assert_eq!(bench.writes().await, strings(&[STATUS, STATUS]), "{next:?}");
        assert_eq!(bench.conditions(), expected, "{next:?}");
        assert_eq!(bench.live()["status"]["error"], "x");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_found_nothing_out_leaves_conditions_as_they_are() {
    // SC-1: an outage, and a conflict that the next try resolves
    for refused in [unavailable(Reason::Unreachable, 503), conflict("newer")] {
        let script = Script { reconcile: status(r#"{"status":{"ok":true}}"#), ..Script::default() };
        let mut bench = bench(script, "");
        bench.page(json!({ "uid": "page" }));
        bench.server.failures.lock().push(refused);
        assert_eq!(bench.writes().await, strings(&["patch Page a/status failed"]));
        assert_eq!(bench.conditions(), [""; 0]);
        assert_eq!(bench.writes().await, strings(&[STATUS, STATUS]));
        assert_eq!(bench.conditions(), READY);
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_can_not_be_added_is_a_failure_that_shows() {
    // SC-1
    let mut bench = bench(Script::default(), EXPLICIT);
    bench.page(json!({ "uid": "page" }));
    bench.server.failures.lock().push(unavailable(Reason::Forbidden, 403));
    assert_eq!(bench.writes().await, strings(&["patch Page a failed", STATUS]));
    assert_eq!(bench.message("Ready"), "adding the finalizer: HTTP 403");
}

#[tokio::test(start_paused = true)]
async fn a_status_without_conditions_takes_none_of_ours_away() {
    // SC-3
    const CONDITIONS: &str = r#"{"status":{"ok":true,"conditions":[{"type":"Synced","status":"True"},{"type":"Ready","status":"Unknown"}]}}"#;
    for fields in ["", "serverSideApply: false"] {
        for (answer, synced) in [(r#"{"status":{"ok":true}}"#, false), (CONDITIONS, true)] {
            let script = Script { reconcile: status(answer), ..Script::default() };
            let mut bench = bench(script, fields);
            bench.page(json!({ "uid": "page" }));
            assert_eq!(bench.writes().await, strings(&[STATUS, STATUS]), "{fields} {answer}");
            let mut expected = strings(&READY);
            expected.splice(0..0, synced.then(|| "Synced=True/".to_owned()));
            assert_eq!(bench.conditions(), expected, "{fields} {answer}");
            assert_eq!(bench.writes().await, [""; 0], "{fields} {answer}");
            assert_eq!(bench.conditions(), expected, "{fields} {answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_a_component_writes_itself_takes_none_of_ours_away() {
    // SC-3
    let named = json!({ "apiVersion": "sample.dev/v1", "kind": "Page", "metadata": { "name": "a", "namespace": "n" } });
    let document = |status: &Value| {
        let mut tree = named.clone();
        tree["status"] = status.clone();
        tree.to_string()
    };
    let target =
        || ObjectTarget { gvk: Gvk::parse("sample.dev/v1", "Page").unwrap(), key: ObjectRef::namespaced("n", "a") };
    let plain = json!({ "ok": true });
    let synced = json!({ "ok": true, "conditions": [{ "type": "Synced", "status": "True" }, { "type": "Ready", "status": "Unknown" }] });
    for (written, others) in [(&plain, 0), (&synced, 1)] {
        let merged = json!({ "status": written }).to_string();
        for (verb, mode) in [
            WriteVerb::Apply(document(written)),
            WriteVerb::ForceApply(document(written)),
            WriteVerb::Update(document(written)),
            WriteVerb::Edit(document(written)),
            WriteVerb::MergePatch(target(), merged),
        ]
        .into_iter()
        .flat_map(|verb| [WriteMode::MatchAndFilter, WriteMode::Plain].map(|mode| (verb.clone(), mode)))
        {
            let what = format!("{verb:?} {mode:?}");
            // An edit in mode `plain` needs the object as it is.
            if mode == WriteMode::Plain && what.starts_with("Edit") {
                continue;
            }
            // What the component says of the object is not what counts.
            let actual = (mode == WriteMode::Plain).then(|| document(&json!({ "was": true })));
            let options =
                WriteOptions { subresource: Some("status".to_owned()), mode, actual, ..WriteOptions::default() };
            let script = Script { asks: Some(WriteRequest { verb, options }), ..Script::default() };
            let mut bench = bench(script, "");
            bench.page(json!({}));
            bench.run().await;
            assert_eq!(bench.live()["status"]["ok"], true, "{what}");
            let (conditions, writes) = (bench.conditions(), bench.writes().await);
            assert!(READY.iter().all(|ready| conditions.contains(&(*ready).to_owned())), "{what}: {conditions:?}");
            assert_eq!(conditions.len(), 3 + others, "{what}: {conditions:?}");
            // An edit has the whole object; this one would take its spec away.
            assert!(writes.is_empty() || mode == WriteMode::Plain || what.starts_with("Edit"), "{what}: {writes:?}");
            assert_eq!(bench.conditions(), conditions, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_away_all_the_same_is_put_back_by_the_same_run() {
    // SC-3
    let target =
        ObjectTarget { gvk: Gvk::parse("sample.dev/v1", "Page").unwrap(), key: ObjectRef::namespaced("n", "a") };
    let replaced = r#"[{"op":"add","path":"/status","value":{"ok":true}}]"#.to_owned();
    for verb in
        [WriteVerb::JsonPatch(target.clone(), replaced), WriteVerb::MergePatch(target, r#"{"status":null}"#.to_owned())]
    {
        for mode in [WriteMode::ForceFilter, WriteMode::Plain] {
            let what = format!("{verb:?} {mode:?}");
            let options = WriteOptions { subresource: Some("status".to_owned()), mode, ..WriteOptions::default() };
            let script = Script { asks: Some(WriteRequest { verb: verb.clone(), options }), ..Script::default() };
            let mut bench = bench(script, "");
            bench.page(json!({ "uid": "page" }));
            for _ in 0..2 {
                assert_eq!(bench.writes().await, strings(&[STATUS, STATUS]), "{what}");
                assert_eq!(bench.conditions(), READY, "{what}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn conditions_that_can_not_be_written_use_up_no_attempt_of_a_good_run() {
    // SC-4
    let outage = Finished::Failed(queue::Failure::Outage);
    for (reason, code, times, finished, there) in [
        (Reason::Conflict, 409, 2, DONE, true),
        (Reason::Conflict, 409, 3, DONE, false),
        (Reason::Forbidden, 403, 1, DONE, false),
        (Reason::Rejected, 422, 1, DONE, false),
        (Reason::Missing, 404, 1, DONE, false),
        (Reason::Unreachable, 500, 1, outage, false),
        (Reason::Busy, 429, 1, outage, false),
    ] {
        let mut bench = bench(Script::default(), "retry: { maxAttempts: 1 }");
        bench.page(json!({ "uid": "page" }));
        for _ in 0..times {
            bench.server.failures.lock().push(unavailable(reason, code));
        }
        let (ended, _, writes) = bench.run().await;
        let sent = times + usize::from(there);
        assert_eq!(
            (ended, writes.len(), bench.conditions().len()),
            (finished, sent, if there { 3 } else { 0 }),
            "{code}"
        );
        bench.run().await;
        assert_eq!(bench.conditions(), READY, "{code}: the next run sees what is missing");
    }
    // A run that has failed has failed for its own reason.
    let mut bench = bench(failing(Failure::new(Cause::Returned, "no theme")), "");
    bench.page(json!({ "uid": "page" }));
    bench.server.failures.lock().push(unavailable(Reason::Unreachable, 503));
    assert_eq!(bench.run().await.0, Finished::Failed(queue::Failure::Unhandled));
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_fails_at_again_and_again_for_one_primary_is_told_and_an_outage_is_not() {
    // EP-34, SC-1
    let failed = ["Ready=False/RunFailed", "Progressing=True/Retrying", "Degraded=True/RunFailed"];
    let (own, outage) = ((Reason::Unreachable, 500), (Reason::Unreachable, 503));
    for (what, runs, (reason, code), down, told) in [
        ("it may be over soon", 2, own, false, false),
        ("the third time", 3, own, false, true),
        ("it fails for everybody", 3, own, true, false),
        ("it is away", 3, outage, false, false),
        ("it is busy", 3, (Reason::Busy, 429), false, false),
    ] {
        let script = Script { reconcile: status(r#"{"status":{"ok":true}}"#), ..Script::default() };
        let mut bench = bench(script, "retry: { maxAttempts: 1 }");
        bench.page(json!({ "uid": "page" }));
        bench.server.down.store(down, Ordering::Relaxed);
        for _ in 0..runs {
            bench.server.failures.lock().push(unavailable(reason, code));
            assert_eq!(bench.run().await.0, Finished::Failed(queue::Failure::Outage), "{what}: no attempt is used up");
        }
        let expected = if told { strings(&failed) } else { Vec::new() };
        assert_eq!((bench.conditions(), bench.published.lock().len()), (expected, usize::from(told)), "{what}");
        bench.run().await;
        assert_eq!(bench.conditions(), READY, "{what}");
    }
    // What is failed at as well is no proof that others are answered.
    let script = Script { reconcile: status(r#"{"status":{"ok":true}}"#), ..Script::default() };
    let mut bench = bench(script, "");
    bench.page(json!({ "uid": "page" }));
    for failures in [1, 1, 2] {
        bench.server.failures.lock().extend((0..failures).map(|_| unavailable(Reason::Unreachable, 500)));
        bench.run().await;
    }
    assert_eq!((bench.conditions(), bench.published.lock().len()), (strings(&[]), 0));
}

#[tokio::test(start_paused = true)]
async fn conditions_come_where_nothing_can_be_applied_to_what_is_there_and_those_of_others_stay() {
    // SC-3
    let mut bench = bench(failing(Failure::new(Cause::Returned, "no theme")), "");
    let mut page = json!({ "metadata": { "name": "a", "namespace": "n", "uid": "page" }, "status": { "n": 3 } });
    page["status"]["conditions"] = json!([{ "type": "Own", "status": "True" }]);
    let page = bench.server.put(&bench.controller.spec.primary.clone(), page);
    bench.pages.apply(Watch::Applied(page));
    bench.server.failures.lock().push(Error::new(Reason::Rejected, 500, "to smd typed: .status.n: expected string"));
    assert_eq!(bench.writes().await, strings(&["patch Page a/status failed", STATUS]));
    let all = bench.conditions();
    assert!(all.contains(&"Own=True/".to_owned()) && all.contains(&"Ready=False/RunFailed".to_owned()), "{all:?}");
    assert_eq!(bench.live()["status"]["n"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_stored_status_that_does_not_fit_its_schema_any_more_is_put_right_by_one_that_does() {
    // UC-2
    let misfit = || Error::new(Reason::Rejected, 500, "failed to create typed live object");
    for (failures, finished) in [(1, DONE), (2, Finished::Failed(queue::Failure::Unhandled))] {
        let script = Script { reconcile: status(r#"{"status":{"n":"3"}}"#), ..Script::default() };
        let mut bench = bench(script, "");
        bench.page(json!({ "uid": "page" }));
        bench.server.failures.lock().extend((0..failures).map(|_| misfit()));
        assert_eq!(bench.run().await.0, finished);
        let ready = if failures == 1 { "Ready=True/Succeeded" } else { "Ready=False/RunFailed" };
        assert_eq!((bench.live()["status"]["n"] == "3", &*bench.conditions()[0]), (failures == 1, ready));
    }
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_waits_for_its_clean_up_says_for_what() {
    // SC-1
    let going =
        json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" });
    let exports = &[Interface::Reconciler, Interface::Cleaner];
    let keep = Ok(DeleteControl::KeepFinalizer(None));
    let deleting = ["Ready=False/Deleting", "Progressing=True/Deleting", "Degraded=False/Succeeded"];
    let failed = ["Ready=False/Deleting", "Progressing=True/Retrying", "Degraded=True/RunFailed"];
    for (cleanup, expected, message) in [
        (keep, deleting, "being deleted: the component is not done with its clean-up"),
        (returned("not empty"), failed, "not empty"),
    ] {
        let mut bench = bench(Script { exports, cleanup, ..Script::default() }, "");
        bench.page(going.clone());
        assert_eq!(bench.writes().await, strings(&[STATUS]));
        assert_eq!((bench.conditions(), &*bench.message("Ready")), (strings(&expected), message));
        assert_eq!(bench.writes().await, [""; 0]);
    }
    // What goes needs none any more.
    let mut bench = bench(Script { exports, ..Script::default() }, "");
    bench.page(going);
    assert_eq!(bench.writes().await, strings(&["patch Page a"]));
}

#[tokio::test(start_paused = true)]
async fn conditions_that_a_kind_can_not_have_are_left_out_and_written_once_it_can() {
    // SC-5
    let mut bench = Bench::new(Script::default(), STANDARD);
    bench.page(json!({ "uid": "page" }));
    let possible = Arc::clone(&bench.controller.conditions);
    assert_eq!(bench.writes().await, [""; 0], "it is not known");
    assert!(!possible.learn(false));
    assert_eq!(bench.writes().await, [""; 0]);
    assert!(possible.learn(true), "runs have left them out");
    assert_eq!(bench.writes().await, strings(&[STATUS]));
    assert!(!possible.learn(true));
}

//! An API server that is away, hangs, or takes no writes: what waits for its end goes on by itself, and nothing is used up.

use std::time::Duration;

use cluster::wait;
use scenarios::proxy::Line;
use scenarios::proxy::meddler::{Fault, Meddler, Sort};
use scenarios::{Daemon, LATER, Place, SOON, Start};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Probes that run again and again.
const TICKING: usize = 10;
/// How soon all goes on once the API server is back.
const BACK: Duration = Duration::from_secs(5);
/// One attempt, which is used up after two seconds.
const ONE_ATTEMPT: &str = "retry: { maxAttempts: 1 }\n";
/// How long an outage lasts here: longer than two failures and the pause between them.
const OUTAGE: Duration = Duration::from_secs(7);

fn start(place: &Place, line: &Line, folder: &tempfile::TempDir) -> Daemon {
    let admin = place.cluster.user(cluster::ADMIN).unwrap();
    let kubeconfig = line.kubeconfig(place.cluster, admin, folder);
    let manifest = place.probe_manifest(ONE_ATTEMPT);
    Start::new(&manifest).kubeconfig(kubeconfig).run(place).until_ready()
}

/// Creates probes that count their runs in their status, one each 300 ms.
fn ticking(place: &Place) {
    let count = json!([{ "memo": { "lifetime": "primary", "count": "runs" }, "as": "runs" }]);
    for n in 0..TICKING {
        let spec = json!({ "reconcile": { "do": count, "status": {}, "reschedule": 300 } });
        place.probe(&format!("p{n}"), spec);
    }
}

/// Returns how often each probe says that it has run.
fn ticks(place: &Place) -> Vec<u64> {
    let runs = |n| {
        let probe = place.find(&place.probes(), &format!("p{n}")).unwrap();
        probe["status"]["runs"].as_u64().unwrap_or_default()
    };
    (0..TICKING).map(runs).collect()
}

/// Waits until each probe has run twice more than `before`.
fn go_on(place: &Place, before: &[u64], daemon: &Daemon) -> Duration {
    let since = Instant::now();
    wait::until_ok(LATER, "all probes to go on", || {
        let now = ticks(place);
        if now.iter().zip(before).all(|(now, before)| *now >= before + 2) {
            Ok(())
        } else {
            Err(format!("{before:?} {now:?} {}", daemon.controllers()))
        }
    })
    .unwrap();
    since.elapsed()
}

/// Waits until an outage has lasted for long enough, by the clock of the test.
fn last(since: Instant) {
    wait::until(LATER, "the outage to last", || (since.elapsed() > OUTAGE).then_some(())).unwrap();
}

#[test]
fn an_outage_that_outlasts_all_attempts_is_over_within_seconds_of_its_end() {
    let place = Place::new("outage");
    let (line, folder) = (Line::to(place.cluster), tempfile::tempdir().unwrap());
    let daemon = start(&place, &line, &folder);
    ticking(&place);
    go_on(&place, &[0; TICKING], &daemon);
    line.cut();
    last(Instant::now());
    wait::until_ok(LATER, "/readyz to say so", || match daemon.get("/readyz") {
        (503, body) if body.contains("the API server: nothing heard of it") => Ok(()),
        (code, body) => Err(format!("{code} {body}")),
    })
    .unwrap();
    let before = ticks(&place);
    line.mend();
    let took = go_on(&place, &before, &daemon);
    assert!(took <= BACK, "{took:?}; {}", daemon.log());
    assert!(!daemon.log().contains("no retries left"), "no attempt is used up");
    assert!(daemon.count("capstan_reconciliations_outage_retries_total", "") > 0);
    assert_eq!(daemon.count("capstan_reconciliations_retries_total", ""), 0);
    daemon.until_ready();
}

#[test]
fn what_a_run_registers_while_the_api_server_is_away_uses_up_no_attempt() {
    // ES-4
    let place = Place::new("registers");
    let (line, folder) = (Line::to(place.cluster), tempfile::tempdir().unwrap());
    let admin = place.cluster.user(cluster::ADMIN).unwrap();
    let kubeconfig = line.kubeconfig(place.cluster, admin, &folder);
    let plugin = "limits: { timeout: 1s }
capabilities: { kubernetes: [{ apiVersion: v1, kind: Secret, verbs: [watch] }] }
";
    let manifest = place.manifest("probe", "{ apiVersion: test.capstan.dev/v1, kind: Probe }", plugin, ONE_ATTEMPT);
    let daemon = Start::new(&manifest).kubeconfig(kubeconfig).run(&place).until_ready();
    let informer = json!({ "apiVersion": "v1", "kind": "Secret" });
    let registers = json!({ "register": { "name": "keys", "declaration": { "informer": informer } }, "tell": true });
    let steps = json!([registers, { "deregister": "keys", "tell": true }]);
    place.probe("p", json!({ "reconcile": { "do": steps, "reschedule": 1000 } }));
    let goes_on = || {
        let before = daemon.runs_of("p");
        wait::until(LATER, "two more runs", || (daemon.runs_of("p") > before + 1).then_some(())).unwrap();
    };
    goes_on();
    line.cut();
    last(Instant::now());
    line.mend();
    goes_on();
    assert!(daemon.log().contains("source keys: "), "runs have failed for it: {}", daemon.log());
    assert!(!daemon.log().contains("no retries left"), "no attempt is used up: {}", daemon.log());
    assert!(daemon.count("capstan_reconciliations_outage_retries_total", "") > 0);
    assert_eq!(daemon.count("capstan_reconciliations_retries_total", ""), 0);
}

#[test]
fn an_api_server_that_hangs_is_told_and_all_goes_on_after_it() {
    let place = Place::new("hang");
    let (line, folder) = (Line::to(place.cluster), tempfile::tempdir().unwrap());
    let daemon = start(&place, &line, &folder);
    ticking(&place);
    go_on(&place, &[0; TICKING], &daemon);
    line.hold();
    let told = wait::until_ok(LATER, "/readyz to say so", || match daemon.get("/readyz") {
        (503, body) if body.contains("the API server") => Ok(body),
        (code, body) => Err(format!("{code} {body}")),
    });
    assert!(told.unwrap().contains("nothing heard of it for 1"));
    assert_eq!(daemon.get("/livez").0, 200);
    let before = ticks(&place);
    line.release();
    let took = go_on(&place, &before, &daemon);
    assert!(took <= BACK, "{took:?}; {}", daemon.log());
    daemon.until_ready();
}

/// Makes the API server fail at writing the status of probes in this namespace, until it is dropped.
struct NoWrites<'a> {
    place: &'a Place,
    path: String,
}

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

impl<'a> NoWrites<'a> {
    fn begin(place: &'a Place) -> Self {
        let name = place.namespace.name();
        let webhook = json!({
            "name": "fails.test.capstan.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "clientConfig": { "url": "https://127.0.0.1:1/" },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } },
            "rules": [{ "apiGroups": ["test.capstan.dev"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["probes/status"] }],
        });
        let object = json!({ "metadata": { "name": name }, "webhooks": [webhook] });
        place.cluster.api().create(WEBHOOKS, &object).unwrap();
        let path = format!("{WEBHOOKS}/{name}");
        Self { place, path }
    }
}

impl Drop for NoWrites<'_> {
    fn drop(&mut self) {
        self.place.cluster.api().delete(&self.path).unwrap();
    }
}

#[test]
fn an_api_server_that_only_takes_no_writes_uses_up_no_attempt_either() {
    let place = Place::new("writes");
    let daemon = place.daemon(&place.probe_manifest(ONE_ATTEMPT));
    ticking(&place);
    go_on(&place, &[0; TICKING], &daemon);
    let outage = NoWrites::begin(&place);
    wait::until_ok(LATER, "/readyz to say so", || match daemon.get("/readyz") {
        (503, body) if body.contains("writes fail") => Ok(()),
        (code, body) => Err(format!("{code} {body}")),
    })
    .unwrap();
    let before = ticks(&place);
    drop(outage);
    // The API server itself takes a moment to forget the webhook.
    let took = go_on(&place, &before, &daemon);
    assert!(took <= BACK * 2, "{took:?}; {}", daemon.log());
    assert!(!daemon.log().contains("no retries left"), "no attempt is used up");
    daemon.until_ready();
}

#[test]
fn writes_that_fail_for_one_operator_alone_keep_the_daemon_ready() {
    let place = Place::new("one-fails");
    let other = place.renamed(&place.probe_manifest("labelSelector: other"), "other");
    let own = place.probe_manifest("labelSelector: own");
    let daemon = place.daemon(&format!("{own}---\n{other}"));
    place.labelled_probe("p", "own", json!({ "reconcile": { "status": { "t": 1 }, "reschedule": 100 } }));
    place.await_object(&place.probes(), "p", "its status", |probe| probe["status"]["t"] == 1);
    let outage = NoWrites::begin(&place);
    place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "status": { "t": 2 } } } }));
    let line = format!("operator {}: all its writes fail for", place.namespace.name());
    daemon.await_lacking(&[&line]);
    assert_eq!(daemon.get("/readyz"), (200, "ok\n".to_owned()));
    drop(outage);
    place.await_within(LATER, &place.probes(), "p", "its status", |probe| probe["status"]["t"] == 2);
    daemon.until_ready();
}

#[test]
fn whatever_the_api_server_answers_each_change_of_a_primary_gets_its_run_and_no_storm_follows() {
    /// Three changes take no more requests than this, whatever is wrong.
    const MOST: usize = 60;
    // EP-34, IE-2, IE-3
    let place = Place::new("meddled");
    let (meddler, folder) = (Meddler::to(place.cluster), tempfile::tempdir().unwrap());
    let kubeconfig = meddler.kubeconfig(place.cluster.user(cluster::ADMIN).unwrap(), &folder);
    let daemon = Start::new(&place.probe_manifest(ONE_ATTEMPT)).kubeconfig(kubeconfig).run(&place).until_ready();
    let spec = |n: usize| json!({ "reconcile": { "status": { "n": n } } });
    let await_run = |n: usize, what: &str| {
        place.await_within(LATER, &place.probes(), "p", what, |probe| probe["status"]["n"] == n);
    };
    place.probe("p", spec(0));
    await_run(0, "the first run");
    let soon = "retry-after: 1\r\n";
    for (row, (fault, least)) in [
        (Fault::Answers(Sort::Write, 429, soon, 2), 2),
        (Fault::Answers(Sort::Write, 500, "", 2), 2),
        // More often than a request is sent again.
        (Fault::Answers(Sort::Write, 503, "", 6), 6),
        (Fault::Answers(Sort::Watch, 410, "", 3), 1),
        (Fault::Answers(Sort::Watch, 429, soon, 3), 1),
        (Fault::Answers(Sort::Watch, 500, "", 3), 1),
        (Fault::WatchesEnd, 2),
        (Fault::HalfClosed, 1),
        (Fault::Drips, 3),
    ]
    .into_iter()
    .enumerate()
    {
        let before = meddler.requests();
        meddler.meddle(Some(fault));
        for n in 3 * row + 1..=3 * row + 3 {
            place.merge(&place.probes(), "p", &json!({ "spec": spec(n) }));
            await_run(n, &format!("run {n}, {fault:?}"));
        }
        let met = || if meddler.spoiled() >= least { Ok(()) } else { Err(meddler.spoiled()) };
        wait::until_ok(LATER, &format!("{fault:?} to be met"), met).unwrap();
        meddler.meddle(None);
        daemon.await_quiet();
        let requests = meddler.requests() - before;
        assert!(requests <= MOST, "{fault:?}: {requests} requests");
    }
    assert!(!daemon.log().contains("no retries left"), "no attempt is used up: {}", daemon.log());
    daemon.until_ready();
}

#[test]
fn a_plugin_that_floods_events_keeps_no_other_from_writing_its_own() {
    // ER-6
    let place = Place::new("events");
    let event = |reason: &str| json!({ "event": { "reason": reason, "message": "m" } });
    let other = place.probe_manifest("labelSelector: calm\n");
    let flood = place.probe_manifest("labelSelector: flood\nminRescheduleInterval: none\n");
    let name = place.namespace.name();
    let flood = place.renamed(&flood, "flood");
    let daemon = place.daemon(&format!("{other}---\n{flood}"));
    let create = |name: &str, label: &str, run: Value| {
        place.labelled_probe(name, label, json!({ "reconcile": run }));
    };
    for n in 0..8 {
        let events: Vec<_> = (0..90).map(|e| event(&format!("Flood{e}"))).collect();
        let run = json!({ "do": events, "reschedule": 1 });
        create(&format!("flood{n}"), "flood", run);
    }
    wait::until(SOON, "events to be dropped", || {
        (daemon.count("capstan_plugin_events_dropped_total", "flood") > 1000).then_some(())
    })
    .unwrap();
    for n in 0..20 {
        create(&format!("calm{n}"), "calm", json!({ "do": [event("Calm")] }));
    }
    let events = place.namespace.path("v1", "events");
    wait::until_ok(SOON, "all events of the calm one", || {
        let list = place.cluster.api().get(&events).unwrap();
        let items = list["items"].as_array().unwrap();
        match items.iter().filter(|event| event["reason"] == "Calm").count() {
            20 => Ok(()),
            some => Err(some),
        }
    })
    .unwrap();
    assert_eq!(daemon.count("capstan_plugin_events_dropped_total", &format!("operator=\"{name}\"")), 0);
    daemon.blames(&format!("{name}-flood"), "kubernetes events dropped", "capstan_plugin_events_dropped_total");
    let told = daemon.log().matches("kubernetes events dropped").count();
    assert!((1..=2).contains(&told), "{told} warnings");
}

#[test]
fn a_plugin_that_never_comes_to_rest_runs_as_often_as_its_rate_permits() {
    let place = Place::new("spin");
    let daemon = place.daemon(&place.probe_manifest(""));
    let count = json!([{ "memo": { "lifetime": "primary", "count": "runs" }, "as": "runs" }]);
    place.probe("p", json!({ "reconcile": { "do": count, "status": {}, "reschedule": 0 } }));
    daemon.await_runs(5);
    let (runs, since) = (daemon.runs(), Instant::now());
    wait::until(SOON, "two seconds", || (since.elapsed() > Duration::from_secs(2)).then_some(())).unwrap();
    let more = daemon.runs() - runs;
    assert!((5..=21).contains(&more), "{more} runs in two seconds");
}

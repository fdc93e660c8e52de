//! Starting, stopping, being killed and started again.

use std::fs;
use std::time::Duration;

use cluster::{ADMIN, Query, wait};
use scenarios::proxy::Line;
use scenarios::{LATER, Place, SOON, Start};
use serde_json::{Value, json};

fn page(place: &Place, name: &str) {
    let spec = json!({ "spec": { "html": "<html><title>hello</title></html>" } });
    place.create("sample.capstan.dev/v1", "WebPage", &place.pages(), name, spec);
}

fn count(place: &Place, path: &str, wanted: impl Fn(&Value) -> bool) -> usize {
    place.cluster.api().get(path).unwrap()["items"].as_array().unwrap().iter().filter(|item| wanted(item)).count()
}

#[test]
fn s006_a_daemon_that_has_not_started_its_work_ends_at_once() {
    // LC-20
    let place = Place::new("s006");
    // The API server answers nothing.
    let (line, folder) = (Line::to(place.cluster), tempfile::tempdir().unwrap());
    let kubeconfig = line.kubeconfig(place.cluster, place.cluster.user(ADMIN).unwrap(), &folder);
    line.hold();
    let mut daemon = Start::new(&place.probe_manifest("")).kubeconfig(kubeconfig).run(&place);
    line.await_held();
    assert_eq!(daemon.get("/readyz").0, 503);
    daemon.terminate();
    let status = wait::until(Duration::from_secs(5), "its end", || daemon.ended());
    assert!(status.unwrap().success());
}

#[test]
fn s030_a_run_under_way_ends_before_the_daemon_does() {
    let place = Place::new("s030");
    let daemon = place.daemon(&place.probe_manifest(""));
    place.probe("p", json!({ "reconcile": { "do": [{ "busyMs": 2000 }], "status": {} } }));
    place.await_object(&place.probes(), "p", "generation 1", |p| p["status"]["observedGeneration"] == 1);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), 2, "that of the finalizer, and one");
    place.merge(&place.probes(), "p", &json!({ "spec": { "anything": 1 } }));
    // After that of the finalizer, and not the end of the first.
    wait::until(SOON, "the second run", || (daemon.runs() == 3 && daemon.active() == 1).then_some(())).unwrap();
    let status = daemon.stop();
    assert!(status.success());
    let probe = place.find(&place.probes(), "p").unwrap();
    assert_eq!(probe["status"]["observedGeneration"], 2);
}

#[test]
fn a_run_under_way_at_the_end_sees_what_the_watches_still_show() {
    // ES-3
    let place = Place::new("last-event");
    let mut daemon = place.daemon(&place.able_manifest(""));
    let held = json!({ "log": { "message": "is held" } });
    place.probe("p", json!({ "reconcile": { "do": [held, place.gate()], "status": {} } }));
    daemon.await_line("is held");
    daemon.terminate();
    daemon.await_line("letting runs under way finish");
    place.open_gate();
    assert!(daemon.await_end().success());
    let probe = place.find(&place.probes(), "p").unwrap();
    assert_eq!(probe["status"]["observedGeneration"], 1);
}

#[test]
fn s148_a_namespace_goes_once_its_primaries_are_cleaned_up() {
    let place = Place::new("s148");
    let daemon = place.daemon(&place.probe_manifest("finalizer: probes.test.capstan.dev/finalizer\n"));
    // What the daemon needs there stays until all is done, as its rights would.
    let held = json!({ "metadata": { "finalizers": ["test.capstan.dev/held"] } });
    place.create("v1", "ConfigMap", &place.config_maps(), "held", held);
    let log = |message: &str| json!({ "log": { "message": message } });
    let cleanup = json!({ "do": [log("begins to clean up"), { "busyMs": 2000 }, log("has cleaned up")] });
    place.probe("p", json!({ "reconcile": { "status": { "seen": true } }, "cleanup": cleanup }));
    place.await_object(&place.probes(), "p", "its status", |p| p["status"]["seen"] == true);
    let (namespaces, name) = ("/api/v1/namespaces", place.namespace.name());
    place.cluster.api().delete(&format!("{namespaces}/{name}")).unwrap();
    daemon.await_line("begins to clean up");
    assert!(place.find(&place.probes(), "p").is_some(), "it stays until that has ended");
    place.await_gone(&place.probes(), "p");
    assert_eq!(daemon.log().matches("has cleaned up").count(), 1, "{}", daemon.log());
    assert_eq!(place.find(namespaces, name).unwrap()["status"]["phase"], "Terminating");
    place.merge(&place.config_maps(), "held", &json!({ "metadata": { "finalizers": null } }));
    place.await_gone(namespaces, name);
    assert_eq!(daemon.get("/livez").0, 200);
    assert!(daemon.stop().success());
}

#[test]
fn what_a_manifest_leaves_out_is_as_the_defaults_of_the_daemon_say() {
    let place = Place::new("defaults");
    let file = tempfile::NamedTempFile::new().unwrap();
    let document = |fields: &str| {
        let text =
            format!("apiVersion: capstan.dev/v1alpha1\nkind: Defaults\nspec: {{ controllers: {{ {fields} }} }}\n");
        fs::write(file.path(), text).unwrap();
    };
    document("retry: none");
    let defaults = ["--defaults", file.path().to_str().unwrap()];
    let manifest = place.probe_manifest("");
    let daemon = Start::new(&manifest).arguments(&defaults).run(&place).until_ready();
    place.probe("p", json!({ "reconcile": { "do": [{ "fail": "never works" }] } }));
    daemon.await_line("never works");
    daemon.await_quiet();
    assert_eq!(daemon.log().matches("never works").count(), 1, "it is not retried");
    document("retries: none");
    let mut refused = Start::new(&manifest).arguments(&defaults).run(&place);
    refused.await_line("spec.controllers.retries: unknown field `retries`");
    assert_eq!(refused.await_end().code(), Some(1));
}

#[test]
fn a_run_that_outlasts_the_drain_is_aborted() {
    let place = Place::new("drain");
    let manifest = place.probe_manifest("");
    let mut daemon = Start::new(&manifest).arguments(&["--drain", "200ms"]).run(&place).until_ready();
    place.probe("p", json!({ "reconcile": { "do": [{ "busyMs": 4000 }], "status": {} } }));
    wait::until(SOON, "the run", || {
        (daemon.runs() == 2 && daemon.metric("capstan_reconciliations_active", "") > 0.0).then_some(())
    })
    .unwrap();
    daemon.terminate();
    daemon.await_line("\"aborted\":1");
    assert!(daemon.await_end().success());
    assert_eq!(place.find(&place.probes(), "p").unwrap()["status"], Value::Null);
}

#[test]
fn the_second_signal_aborts() {
    let place = Place::new("abort");
    let mut daemon = place.daemon(&place.probe_manifest(""));
    place.probe("p", json!({ "reconcile": { "do": [{ "busyMs": 4000 }] } }));
    wait::until(SOON, "the run", || {
        (daemon.runs() == 2 && daemon.metric("capstan_reconciliations_active", "") > 0.0).then_some(())
    })
    .unwrap();
    daemon.terminate();
    daemon.await_line("signal received");
    daemon.terminate();
    assert_eq!(daemon.await_end().code(), Some(130));
}

#[test]
fn s114_a_daemon_started_again_reconciles_again() {
    let place = Place::new("s114");
    let manifest = place.probe_manifest("");
    place.probe("p", json!({ "reconcile": { "status": { "seen": true } } }));
    for _ in 0..2 {
        let daemon = place.daemon(&manifest);
        daemon.await_runs(1);
        place.await_object(&place.probes(), "p", "its status", |p| p["status"]["seen"] == true);
        assert!(daemon.stop().success());
    }
}

#[test]
fn a_daemon_killed_in_the_middle_of_its_work_ends_it_when_started_again() {
    const PAGES: usize = 200;
    let place = Place::new("killed");
    // One at a time, so that it is in the middle of them for a while.
    let manifest = place
        .sample_manifest("webpage")
        .replace("      plugin: webpage\n", "      plugin: webpage\n      concurrency: 1\n");
    assert!(manifest.contains("concurrency: 1"));
    for n in 0..PAGES {
        page(&place, &format!("page-{n}"));
    }
    let daemon = place.daemon(&manifest);
    let maps = place.config_maps();
    let ours = |map: &Value| map["metadata"]["name"].as_str().unwrap().starts_with("page-");
    let made = wait::until(LATER, "some of the objects", || {
        let made = count(&place, &maps, ours);
        (made > 20).then_some(made)
    });
    daemon.kill();
    assert!(made.unwrap() < PAGES, "it was killed too late to show anything");
    let daemon = place.daemon(&manifest);
    let good = |page: &Value| page["status"]["areWeGood"] == true;
    wait::until_ok(LATER, "all pages to be good", || match count(&place, &place.pages(), good) {
        PAGES => Ok(()),
        good => Err(good),
    })
    .unwrap();
    let deployments = place.namespace.path("apps/v1", "deployments");
    let services = place.namespace.path("v1", "services");
    for path in [&maps, &deployments, &services] {
        assert_eq!(count(&place, path, ours), PAGES, "{path}");
    }
    drop(daemon);
}

#[test]
fn a_run_that_changes_nothing_makes_no_request() {
    const RUNS: u64 = 1000;
    let place = Place::new("noop");
    // The page is run again each millisecond, without any change.
    let manifest = place
        .sample_manifest("webpage")
        .replace("plugin: webpage\n", "plugin: webpage\n      maxReconciliationInterval: 1ms\n      rateLimit: none\n");
    let daemon = place.daemon(&manifest);
    page(&place, "page");
    place.await_object(&place.pages(), "page", "its status", |page| page["status"]["areWeGood"] == true);
    let deployments = place.namespace.path("apps/v1", "deployments");
    // Its changes on the way to being ready cause runs and no requests, but the test is about none of them.
    let ready = |d: &Value| d["status"]["readyReplicas"] == 1;
    wait::until(LATER, "its deployment to be ready", || place.find(&deployments, "page").filter(ready)).unwrap();
    daemon.await_runs(10);
    let audit = place.cluster.audit().unwrap();
    let (mark, runs) = (audit.mark().unwrap(), daemon.runs());
    wait::until(LATER, "1,000 runs", || (daemon.runs() > runs + RUNS).then_some(())).unwrap();
    let requests =
        audit.requests(&Query::since(mark).user_agent("capstan/").namespace(place.namespace.name())).unwrap();
    assert_eq!(requests, []);
}

#[test]
fn the_sample_makes_exactly_four_writes_per_page() {
    let place = Place::new("writes");
    let audit = place.cluster.audit().unwrap();
    let mark = audit.mark().unwrap();
    let daemon = place.daemon(&place.sample_manifest("webpage"));
    for n in 0..10 {
        page(&place, &format!("page-{n}"));
    }
    let good = |page: &Value| page["status"]["areWeGood"] == true;
    wait::until(LATER, "all pages to be good", || (count(&place, &place.pages(), good) == 10).then_some(())).unwrap();
    daemon.await_quiet();
    let query = Query::since(mark).user_agent("capstan/").namespace(place.namespace.name()).writes();
    let writes = audit.requests(&query).unwrap();
    assert_eq!(writes.len(), 40, "{writes:#?}");
}

#[test]
fn an_api_server_that_is_away_for_a_while_is_waited_for() {
    // A daemon that starts before its API server says so and goes on trying.
    let place = Place::new("away");
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let text = fs::read_to_string(place.cluster.admin_kubeconfig()).unwrap();
    let (head, port) = place.cluster.url().rsplit_once(':').unwrap();
    let nowhere = text.replace(&format!("{head}:{port}"), &format!("{head}:1"));
    assert_ne!(text, nowhere);
    fs::write(&kubeconfig, nowhere).unwrap();
    let manifest = place.probe_manifest("");
    let daemon = Start::new(&manifest).kubeconfig(kubeconfig).run(&place);
    daemon.await_line("the API server can't be reached");
    let (code, body) = daemon.get("/readyz");
    assert_eq!(code, 503);
    assert!(body.contains("can't be reached"), "{body}");
    assert_eq!(daemon.get("/livez").0, 200);
    wait::until(Duration::from_secs(5), "another try", || {
        (daemon.log().matches("does not tell its kinds").count() >= 2).then_some(())
    })
    .unwrap();
    // LC-20
    assert!(daemon.stop().success());
}

#[test]
fn a_daemon_whose_credentials_the_api_server_does_not_take_is_not_ready() {
    let place = Place::new("expired");
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let visitor = place.cluster.user(cluster::VISITOR).unwrap();
    let text = fs::read_to_string(place.cluster.kubeconfig(visitor).unwrap()).unwrap();
    let expired = text.replace(&visitor.token, "expired");
    assert_ne!(text, expired);
    fs::write(&kubeconfig, expired).unwrap();
    let daemon = Start::new(&place.probe_manifest("")).kubeconfig(kubeconfig).run(&place);
    wait::until_ok(LATER, "/readyz to say so", || match daemon.get("/readyz") {
        (503, body) if body.contains("the API server: nothing heard of it") && body.contains("401") => Ok(()),
        (code, body) => Err(format!("{code} {body}")),
    })
    .unwrap();
    assert_eq!(daemon.get("/livez").0, 200);
}

#[test]
fn a_kind_that_is_deleted_and_comes_back_is_served_again() {
    let place = Place::new("crd");
    let group = format!("{}.test.capstan.dev", place.namespace.name());
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let name = format!("things.{group}");
    let version = json!({
        "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
        "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
    });
    let crd = json!({
        "metadata": { "name": name },
        "spec": { "group": group, "names": { "kind": "Thing", "plural": "things" }, "scope": "Namespaced", "versions": [version] },
    });
    let manifest = place.manifest("probe", &format!("{{ apiVersion: {group}/v1, kind: Thing }}"), "", "");
    let daemon = Start::new(&manifest).run(&place);
    let things = place.namespace.path(&format!("{group}/v1"), "things");
    for round in 0..2 {
        place.cluster.api().create(crds, &crd).unwrap();
        let wait = ["wait", "--for=condition=Established", "--timeout=30s", &format!("crd/{name}")];
        place.cluster.kubectl(&wait).unwrap();
        let spec = json!({ "apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": { "name": "t" }, "spec": { "reconcile": { "status": { "seen": round } } } });
        wait::until_ok(SOON, "the kind to be served", || place.cluster.api().create(&things, &spec)).unwrap();
        wait::until_ok(LATER, "the thing to be served", || match place.find(&things, "t") {
            Some(thing) if thing["status"]["seen"] == round => Ok(()),
            found => Err(format!("{found:?}\n{}", daemon.log())),
        })
        .unwrap();
        place.delete(&things, "t");
        place.cluster.api().delete(&format!("{crds}/{name}")).unwrap();
        wait::until(LATER, "the kind to go", || {
            place.cluster.api().find(&format!("{crds}/{name}")).unwrap().is_none().then_some(())
        })
        .unwrap();
    }
}

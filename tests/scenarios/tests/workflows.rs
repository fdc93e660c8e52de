//! Workflows: dependents that wait for each other, are inactive, fail, or are of kinds that nobody serves.

use cluster::{Query, wait};
use scenarios::{Folder, LATER, Place, SOON, run};
use serde_json::{Value, json};

use crate::webpage::await_endpoint;

/// A dependent of a kind that is not served.
const NOWHERE: &str = "apiVersion: nowhere.dev/v1, kind: Route";
const MAP: &str = "apiVersion: v1, kind: ConfigMap";
const SECRET: &str = "apiVersion: v1, kind: Secret";

/// Returns a manifest with these dependents, in YAML flow style, without the braces around them.
fn manifest(place: &Place, dependents: &[(&str, String)]) -> String {
    let lines: String = dependents.iter().map(|(name, fields)| format!("    {name}: {{ {fields} }}\n")).collect();
    place.probe_manifest(&format!("workflow:\n  dependents:\n{lines}"))
}

fn named(name: &str, data: Value) -> Value {
    json!({ "metadata": { "name": name }, "data": data })
}

/// Returns a step that keeps what became of the workflow.
fn last_result() -> Value {
    json!({ "workflow": { "run": "lastResult" } })
}

#[test]
fn s121_sets_and_services_wait_for_each_other() {
    // WF-4
    let place = Place::new("s121");
    let (set, service) = (
        "apiVersion: apps/v1, kind: StatefulSet, readyPostcondition: { ready: statefulSet }",
        "apiVersion: v1, kind: Service",
    );
    let after = |fields: &str, before: &str| format!("{fields}, dependsOn: [{before}]");
    let daemon = place.daemon(&manifest(
        &place,
        &[
            ("second-set", after(set, "second-service")),
            ("second-service", after(service, "first-set")),
            ("first-set", after(set, "first-service")),
            ("first-service", service.to_owned()),
        ],
    ));
    let labels = |name: &str| json!({ "app": name });
    let service = |name: &str| json!({ "metadata": { "name": name }, "spec": { "selector": labels(name), "ports": [{ "port": 80 }] } });
    let set = |name: &str| {
        let pod = json!({ "metadata": { "labels": labels(name) }, "spec": { "containers": [{ "name": "c", "image": "nginx" }] } });
        let spec =
            json!({ "replicas": 1, "serviceName": name, "selector": { "matchLabels": labels(name) }, "template": pod });
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let dependents = json!({
        "first-service": service("first"), "second-service": service("second"), "first-set": set("first"), "second-set": set("second"),
    });
    let mark = place.cluster.audit().unwrap().mark().unwrap();
    place.probe("p", json!({ "dependents": dependents, "reconcile": { "do": last_result(), "status": {} } }));
    let complete = || place.find(&place.probes(), "p").filter(|p| p["status"]["workflow"]["complete"] == true);
    wait::until(LATER, "the workflow to be complete", complete).unwrap();
    let sets = place.namespace.path("apps/v1", "statefulsets");
    for name in ["first", "second"] {
        assert_eq!(place.find(&sets, name).unwrap()["status"]["readyReplicas"], 1, "{name}");
    }
    daemon.await_quiet();
    let query = Query::since(mark).user_agent("capstan/").namespace(place.namespace.name()).writes();
    let writes = place.cluster.audit().unwrap().requests(&query).unwrap();
    let writes = writes.iter().filter(|write| write.resource != "probes");
    let order: Vec<_> = writes.map(|write| (&*write.resource, &*write.name)).collect();
    let expected =
        [("services", "first"), ("statefulsets", "first"), ("services", "second"), ("statefulsets", "second")];
    assert_eq!(order, expected);
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
}

#[test]
fn s123_what_belongs_to_an_inactive_dependent_can_be_read() {
    // CX-1
    let place = Place::new("s123");
    let daemon = place.daemon(&manifest(&place, &[("cm", format!("{MAP}, activation: {{ cel: \"false\" }}"))]));
    let read = json!({ "read": { "in": { "source": "cm" }, "select": "related" } });
    place.probe("p", json!({ "reconcile": { "do": read, "status": { "done": true } } }));
    let probe = place.await_object(&place.probes(), "p", "its status", |p| p["status"]["done"] == true);
    assert_eq!(probe["status"]["read"], json!([]));
    daemon.await_quiet();
    // The first run adds the finalizer.
    assert_eq!(daemon.runs_of("p"), 2);
}

#[test]
fn s125_two_dependents_become_active_together() {
    let place = Place::new("s125");
    let behind = format!("{MAP}, activation: {{ cel: primary.spec.on }}");
    let daemon =
        place.daemon(&manifest(&place, &[("one", behind.clone()), ("two", behind), ("secret", SECRET.to_owned())]));
    let spec = |on: bool, value: &str| {
        let of = |name: &str| named(name, json!({ "v": format!("{value} {name}") }));
        let secret = json!({ "metadata": { "name": "secret" }, "stringData": {} });
        json!({ "on": on, "dependents": { "one": of("one"), "two": of("two"), "secret": secret } })
    };
    place.probe("p", spec(false, "initial"));
    let secrets = place.namespace.path("v1", "secrets");
    place.await_object(&secrets, "secret", "it", |_| true);
    daemon.await_quiet();
    let maps = ["one", "two"];
    assert!(maps.iter().all(|name| place.find(&place.config_maps(), name).is_none()));
    place.merge(&place.probes(), "p", &json!({ "spec": spec(true, "changed") }));
    for name in maps {
        let value = format!("changed {name}");
        place.await_object(&place.config_maps(), name, &value, |map| map["data"]["v"] == value);
    }
}

#[test]
fn s128_a_parent_without_its_precondition_makes_nothing_whatever_depends_on_it() {
    let place = Place::new("s128");
    let nodes = [
        ("parent", format!("{MAP}, reconcilePrecondition: {{ cel: \"false\" }}")),
        ("child", format!("{SECRET}, dependsOn: [parent]")),
        ("inactive", format!("{NOWHERE}, dependsOn: [parent], activation: {{ cel: \"false\" }}")),
    ];
    let daemon = place.daemon(&manifest(&place, &nodes));
    let dependents = json!({ "parent": named("parent", json!({})), "child": named("child", json!({})), "inactive": named("inactive", json!({})) });
    place.probe("p", json!({ "dependents": dependents, "reconcile": { "status": { "done": true } } }));
    place.await_object(&place.probes(), "p", "its status", |p| p["status"]["done"] == true);
    daemon.await_quiet();
    assert!(place.find(&place.config_maps(), "parent").is_none());
    assert!(place.find(&place.namespace.path("v1", "secrets"), "child").is_none());
}

#[test]
fn s129_a_primary_that_is_going_at_the_start_is_cleaned_up_whatever_is_inactive() {
    const FINALIZER: &str = "probes.test.capstan.dev/finalizer";
    let place = Place::new("s129");
    let nodes = [
        ("inactive", format!("{MAP}, garbageCollected: false, activation: {{ cel: \"false\" }}")),
        ("unserved", format!("{NOWHERE}, garbageCollected: false, activation: {{ cel: \"false\" }}")),
    ];
    let probe = json!({ "metadata": { "finalizers": [FINALIZER] }, "spec": { "cleanup": { "do": { "log": { "message": "cleans up" } } } } });
    place.create("test.capstan.dev/v1", "Probe", &place.probes(), "p", probe);
    place.delete(&place.probes(), "p");
    assert!(place.find(&place.probes(), "p").unwrap()["metadata"]["deletionTimestamp"].is_string());
    let daemon = place.daemon(&manifest(&place, &nodes));
    place.await_gone(&place.probes(), "p");
    assert_eq!(daemon.log().matches("\"cleans up\"").count(), 1);
}

#[test]
fn s130_a_dependent_of_a_kind_that_only_some_clusters_have_is_left_out_elsewhere() {
    let place = Place::new("s130");
    let nodes = [("cm", MAP.to_owned()), ("route", format!("{NOWHERE}, activation: {{ export: on-openshift }}"))];
    let daemon = place.daemon(&manifest(&place, &nodes));
    let dependents = json!({ "cm": named("s130", json!({ "v": "test" })), "route": named("route", json!({})) });
    place.probe("p", json!({ "dependents": dependents, "conditions": { "on-openshift": false } }));
    place.await_object(&place.config_maps(), "s130", "the config map", |map| map["data"]["v"] == "test");
    daemon.await_quiet();
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
}

#[test]
fn s135_failures_of_dependents_are_left_to_the_component() {
    // WF-9
    let place = Place::new("s135");
    let unjudged = "int(primary.metadata.name) == 1";
    let fields = format!(
        "workflow:\n  errors: reconciler\n  dependents:\n    cm: {{ {MAP}, garbageCollected: false, deletePostcondition: {{ cel: {unjudged} }} }}\n"
    );
    let daemon = place.daemon(&place.probe_manifest(&fields));
    let (object, steps) = (named("s135", json!({})), json!({ "do": last_result(), "status": {} }));
    place.probe("p", json!({ "dependents": { "cm": object }, "reconcile": steps, "cleanup": { "do": last_result() } }));
    place.await_object(&place.config_maps(), "s135", "the config map", |_| true);
    place.merge(&place.probes(), "p", &json!({ "spec": { "dependents": { "cm": { "$do": { "fail": "no luck" } } } } }));
    let failed = |result: &Value, why: &str| {
        let node = &result["nodes"][0];
        node["name"] == "cm" && node["failed"].to_string().contains(why)
    };
    place.await_object(&place.probes(), "p", "the failure", |p| failed(&p["status"]["workflow"], "no luck"));
    daemon.await_quiet();
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
    // The next run meets the same.
    place.merge(&place.probes(), "p", &json!({ "spec": { "anything": "else" } }));
    let seen = |p: &Value| p["status"]["observedGeneration"] == p["metadata"]["generation"];
    place.await_object(&place.probes(), "p", "the next run", seen);
    daemon.await_quiet();
    let log = daemon.log();
    let told: Vec<_> = log.lines().filter(|line| line.contains("dependents failed") && line.contains("WARN")).collect();
    assert!(told.len() == 1 && told[0].contains("cm: no luck"), "{told:?}: {log}");
    place.delete(&place.probes(), "p");
    wait::until_ok(SOON, "what the clean-up sees", || match daemon.told("workflow").last() {
        Some(result) if failed(result, unjudged) => Ok(()),
        found => Err(format!("{found:?}: {}", daemon.log())),
    })
    .unwrap();
}

#[test]
fn s147_a_site_is_a_workflow_that_the_component_calls() {
    let place = Place::new("s147");
    let fields = "standalone:\n  site:\n    dependents:\n      html: { apiVersion: v1, kind: ConfigMap }\n      server: { apiVersion: apps/v1, kind: Deployment, dependsOn: [html] }\n      port: { apiVersion: v1, kind: Service, dependsOn: [server] }\n";
    let daemon = place.daemon(&place.probe_manifest(fields));
    let labels = json!({ "app": "site" });
    let spec = |title: &str| {
        let pod =
            json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "nginx" }] } });
        let server = json!({ "replicas": 1, "selector": { "matchLabels": labels }, "template": pod });
        json!({
            "dependents": {
                "html": named("site", json!({ "index.html": format!("<title>{title}</title>") })),
                "server": { "metadata": { "name": "site" }, "spec": server },
                "port": { "metadata": { "name": "site" }, "spec": { "selector": labels, "ports": [{ "port": 80 }] } },
            },
            "reconcile": { "do": { "workflow": { "run": "reconcile", "name": "site" }, "tell": true }, "status": { "areWeGood": true } },
        })
    };
    place.probe("p", spec("first"));
    place.await_object(&place.probes(), "p", "its status", |p| p["status"]["areWeGood"] == true);
    let deployments = place.namespace.path("apps/v1", "deployments");
    let is_ready = |deployment: &Value| deployment["status"]["readyReplicas"] == 1;
    wait::until(LATER, "its replica", || place.find(&deployments, "site").filter(is_ready)).unwrap();
    assert!(place.find(&place.namespace.path("v1", "services"), "site").is_some());
    await_endpoint(&place, "site");
    place.merge(&place.probes(), "p", &json!({ "spec": spec("second") }));
    let page = |title: &str| format!("<title>{title}</title>");
    place.await_object(&place.config_maps(), "site", "the title", |map| map["data"]["index.html"] == page("second"));
    daemon.await_quiet();
    place.delete(&place.probes(), "p");
    place.await_gone(&deployments, "site");
    place.await_gone(&place.config_maps(), "site");
}

#[test]
fn what_each_dependent_of_a_primary_came_to_is_shown_while_the_daemon_runs() {
    // WF-8, SSA-7
    let place = Place::new("graph");
    let off = "reconcilePrecondition: { cel: primary.spec.on }";
    let dependents = [
        ("one", MAP.to_owned()),
        ("off", format!("{MAP}, dependsOn: [one], {off}")),
        ("refused", format!("{SECRET}, dependsOn: [one]")),
        ("after", format!("{MAP}, dependsOn: [refused]")),
    ];
    let text = manifest(&place, &dependents);
    let folder = Folder::new();
    folder.put("operator.yaml", &text);
    let daemon = place.daemon(&text);
    let secret = json!({ "metadata": { "name": "refused" }, "data": { "k": "very-s3cr3t!" } });
    let dependents = json!({ "one": named("one", json!({ "a": "b" })), "off": named("off", json!({})), "refused": secret, "after": named("after", json!({})) });
    place.probe("p", json!({ "on": false, "dependents": dependents }));
    let (file, object) = (folder.path("operator.yaml").display().to_string(), format!("{}/p", place.namespace.name()));
    let graph = |object: &str, output: &str| {
        run(&["graph", "-m", &file, "--object", object, "--address", daemon.address(), "-o", output])
    };
    let shown = || match graph(&object, "text") {
        (0, text, _) if text.contains("last: unchanged") => Ok(text),
        (_, text, errors) => Err(format!("{text}{errors}")),
    };
    let text = wait::until_ok(LATER, "the last run", shown).unwrap();
    let last = |name: &str| {
        let line = text.lines().find(|line| line.contains(&format!(". {name} "))).unwrap();
        line.split_once("last: ").unwrap().1.to_owned()
    };
    assert_eq!([last("one"), last("off"), last("after")], ["unchanged", "not wanted", "not reached"], "{text}");
    assert!(last("refused").starts_with("failed: "), "{text}");
    for output in ["mermaid", "svg"] {
        let (code, drawing, errors) = graph(&object, output);
        assert!(code == 0 && drawing.contains("not wanted"), "{drawing}{errors}");
        assert!(!drawing.contains("s3cr3t"), "{drawing}");
    }
    let page = daemon.get("/debug/workflows").1;
    assert!(page.contains("\"refused\"") && !page.contains("s3cr3t") && !text.contains("s3cr3t"), "{page}");
    let (code, _, errors) = graph("default/nobody", "text");
    assert!(code == 1 && errors.contains("knows of no run of default/nobody"), "{errors}");
    // A page has no more than it is asked for, and says how to go on.
    let maps = json!({ "one": named("q", json!({})), "off": named("off", json!({})), "refused": named("q", json!({})), "after": named("after", json!({})) });
    place.probe("q", json!({ "on": false, "dependents": maps }));
    let part = |query: &str| {
        let page: Value = serde_json::from_str(&daemon.get(&format!("/debug/workflows?limit=1{query}")).1).unwrap();
        (page["primaries"][0]["primary"].clone(), page["continue"].as_str().map(str::to_owned))
    };
    let next = wait::until(LATER, "the second primary", || part("").1).unwrap();
    assert_eq!(part("").0, json!(object));
    assert_eq!(part(&format!("&continue={next}")), (json!(format!("{}/q", place.namespace.name())), None));
    place.delete(&place.probes(), "p");
    let gone = || (graph(&object, "text").0 == 1).then_some(());
    wait::until(LATER, "what is known of it to be forgotten", gone).unwrap();
}

#[test]
fn a_condition_that_traps_fails_its_dependent_by_name_and_its_sibling_is_made() {
    // WF-7
    let place = Place::new("trapping");
    let nodes = [
        ("broken", format!("{MAP}, reconcilePrecondition: {{ export: breaks }}")),
        ("sibling", SECRET.to_owned()),
        ("later", format!("{MAP}, dependsOn: [broken]")),
    ];
    let daemon = place.daemon(&manifest(&place, &nodes));
    let dependents = json!({ "broken": named("broken", json!({})), "sibling": named("sibling", json!({})), "later": named("later", json!({})) });
    let breaks = json!({ "do": "trap", "met": true });
    place.probe("p", json!({ "dependents": dependents, "conditions": { "breaks": breaks } }));
    let line = daemon.await_line("the run failed");
    assert!(line.contains("broken: condition breaks: ") && line.contains("traps on purpose"), "{line}");
    assert!(!line.contains("sibling:") && !line.contains("later:"), "{line}");
    place.await_object(&place.namespace.path("v1", "secrets"), "sibling", "the other one", |_| true);
    place.merge(&place.probes(), "p", &json!({ "spec": { "conditions": { "breaks": true } } }));
    for name in ["broken", "later"] {
        place.await_object(&place.config_maps(), name, "it, once the condition is answered", |_| true);
    }
}

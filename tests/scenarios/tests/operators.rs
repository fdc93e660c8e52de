//! Operators that are objects of the cluster: applied, changed, refused, kept over restarts, and deleted.

use std::fs;
use std::process::Command;

use cluster::{Query, wait};
use scenarios::registry::Registry;
use scenarios::{Daemon, Folder, LATER, Place, Start, capstan, component, repository};
use serde_json::{Value, json};

mod approvals;

/// A place whose daemon takes operators out of its namespace.
struct Desk {
    place: Place,
}

impl Desk {
    fn new(prefix: &str) -> Self {
        Self { place: Place::new(prefix) }
    }

    fn name(&self) -> &str {
        self.place.namespace.name()
    }

    /// Returns the path of operators.
    fn operators(&self) -> String {
        self.place.namespace.path("capstan.dev/v1alpha1", "operators")
    }

    /// Returns an operator of this name, whose config maps say this.
    fn operator(&self, name: &str, says: &str) -> Value {
        let template = json!({ "metadata": { "name": "${primary.metadata.name}" }, "data": { "says": says } });
        let dependent = json!({ "apiVersion": "v1", "kind": "ConfigMap", "desired": { "template": template } });
        let controller = json!({
            "primary": { "apiVersion": "test.capstan.dev/v1", "kind": "Probe" },
            "namespaces": [self.name()],
            "workflow": { "dependents": { "map": dependent } },
        });
        json!({
            "apiVersion": "capstan.dev/v1alpha1",
            "kind": "Operator",
            "metadata": { "name": name, "namespace": self.name() },
            "spec": { "controllers": { name: controller } },
        })
    }

    fn apply(&self, operator: &Value) {
        self.place.cluster.kubectl_with_input(&["apply", "-f", "-"], &operator.to_string()).unwrap();
    }

    fn start<'a>(&'a self, start: Start<'a>) -> Daemon {
        let own = ["--operators", "cluster", "--allow-own-namespace", "--namespace", self.name()];
        start.arguments(&own).run(&self.place)
    }

    fn daemon(&self) -> Daemon {
        self.start(Start::on_objects())
    }

    fn wait_for(&self, condition: &str, name: &str) {
        let condition = format!("--for=condition={condition}");
        let operator = format!("operators.capstan.dev/{name}");
        self.place.cluster.kubectl(&["wait", &condition, "--timeout=60s", "-n", self.name(), &operator]).unwrap();
    }

    /// Waits until the state of an operator is this for what its object says now, and returns the object.
    fn await_state(&self, name: &str, state: &str) -> Value {
        self.place.await_within(LATER, &self.operators(), name, state, |object| {
            object["status"]["state"] == state
                && object["status"]["observedGeneration"] == object["metadata"]["generation"]
        })
    }

    fn await_map(&self, name: &str, says: &str) {
        self.place.await_within(LATER, &self.place.config_maps(), name, says, |map| map["data"]["says"] == says);
    }
}

/// Returns the reason and message of a condition.
fn condition(object: &Value, kind: &str) -> (String, String) {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == kind).unwrap();
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    (text("reason"), text("message"))
}

#[test]
fn an_object_of_the_cluster_keeps_every_field_of_a_manifest() {
    // OP-1
    let desk = Desk::new("op-fields");
    let complete = fs::read_to_string(repository().join("host/core/tests/manifest/good/complete.yaml")).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, complete.replace("namespace: capstan,", &format!("namespace: {},", desk.name()))).unwrap();
    let kubectl = |arguments: &[&str]| -> Value {
        serde_json::from_str(&desk.place.cluster.kubectl(arguments).unwrap()).unwrap()
    };
    let (file, namespace) = (file.path().to_str().unwrap(), desk.name());
    let given = kubectl(&["create", "--dry-run=client", "-o", "json", "-f", file]);
    let made = kubectl(&["create", "--validate=strict", "-o", "json", "-f", file]);
    assert_eq!(made["spec"], given["spec"]);
    // A field that there is not is told at once.
    let other = json!({ "apiVersion": "capstan.dev/v1alpha1", "kind": "Operator", "metadata": { "name": "other", "namespace": namespace } });
    for (spec, expected) in [
        (json!({ "controlers": {} }), "unknown field \"spec.controlers\""),
        (
            json!({ "controllers": { "web": { "primary": { "apiVersion": "v1" } } } }),
            "spec.controllers.web.primary.kind: Required value",
        ),
    ] {
        let mut other = other.clone();
        other["spec"] = spec;
        let refused = desk.place.cluster.kubectl_with_input(&["apply", "-f", "-"], &other.to_string());
        let refused = format!("{:#}", refused.unwrap_err());
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn an_operator_is_applied_changed_refused_and_deleted_as_an_object() {
    // OP-2, OP-3
    let desk = Desk::new("op-life");
    let (place, name) = (&desk.place, desk.name());
    let daemon = desk.daemon();
    desk.apply(&desk.operator(name, "one"));
    desk.wait_for("Ready", name);
    place.probe("first", json!({}));
    desk.await_map("first", "one");
    let table = place.cluster.kubectl(&["get", "operators.capstan.dev", "-n", name]).unwrap();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<_> = table.lines().map(words).collect();
    assert_eq!(lines[0], ["NAME", "STATE", "VERSION", "DIGEST", "READY", "AGE"], "{table}");
    assert_eq!(lines[1][..3], [name, "Active", "1"], "{table}");

    desk.apply(&desk.operator(name, "two"));
    let second = desk.await_state(name, "Active");
    assert_eq!((&second["status"]["version"], &second["metadata"]["generation"]), (&json!(2), &json!(2)));
    desk.await_map("first", "two");

    // What is wrong with it is said with its field, and what was in force goes on.
    let mut broken = desk.operator(name, "three");
    broken["spec"]["controllers"][name]["workflow"]["dependents"]["map"]["dependsOn"] = json!(["mop"]);
    desk.apply(&broken);
    let refused = desk.await_state(name, "Outdated");
    let wrong = format!("spec.controllers.{name}.workflow.dependents.map.dependsOn[0]: there is no dependent `mop`");
    let (reason, message) = condition(&refused, "Loaded");
    assert!(reason == "Invalid" && message.starts_with(&wrong), "{reason}: {message}");
    let (_, message) = condition(&refused, "Ready");
    assert!(message.starts_with(&format!("the last good version goes on: {wrong}")), "{message}");
    assert_eq!(refused["status"]["inForce"]["generation"], 2);
    place.probe("second", json!({}));
    desk.await_map("second", "two");
    // Nothing is written that was said already.
    let later = place.find(&desk.operators(), name).unwrap();
    assert_eq!(later["metadata"]["resourceVersion"], refused["metadata"]["resourceVersion"]);

    let mut with_file = desk.operator(name, "four");
    with_file["spec"]["plugins"] = json!({ "web": { "component": { "path": "web.wasm" } } });
    desk.apply(&with_file);
    let found = |object: &Value| {
        object["status"]["conditions"][0]["message"]
            .as_str()
            .is_some_and(|message| message.contains("spec.plugins.web.component.path: found a file"))
    };
    place.await_within(LATER, &desk.operators(), name, "the path to be refused", found);

    place.delete(&desk.operators(), name);
    place.await_gone(&desk.operators(), name);
    wait::until_ok(LATER, "nothing to be left", || match daemon.plugins() {
        found if found["plugins"] == json!([]) && found["manifests"] == json!([]) => Ok(()),
        found => Err(found.to_string()),
    })
    .unwrap();
    // Made again, it begins anew.
    desk.apply(&desk.operator(name, "five"));
    desk.wait_for("Ready", name);
    assert_eq!(desk.await_state(name, "Active")["status"]["version"], 1);
    desk.await_map("first", "five");
    daemon.stop();
}

#[test]
fn an_operator_that_is_deleted_and_made_anew_at_once_is_told_and_runs_whether_or_not_it_says_the_same() {
    // OP-3
    let desk = Desk::new("op-anew");
    let (place, name) = (&desk.place, desk.name());
    let daemon = desk.daemon();
    desk.apply(&desk.operator(name, "one"));
    let mut former = desk.await_state(name, "Active");
    place.probe("first", json!({}));
    desk.await_map("first", "one");
    for says in ["one", "two"] {
        // Nobody waits for the end of the former one.
        place.delete(&desk.operators(), name);
        desk.apply(&desk.operator(name, says));
        let next = desk.await_state(name, "Active");
        assert_ne!(next["metadata"]["uid"], former["metadata"]["uid"]);
        assert_eq!((&next["metadata"]["generation"], &next["status"]["inForce"]["generation"]), (&json!(1), &json!(1)));
        desk.wait_for("Ready", name);
        desk.await_map("first", says);
        former = next;
    }
    daemon.stop();
}

#[test]
fn an_operator_that_is_deleted_ends_though_another_wants_its_controller_and_cannot_have_it() {
    // OP-4
    let desk = Desk::new("op-gone");
    let daemon = desk.daemon();
    desk.apply(&desk.operator("one", "one"));
    desk.await_state("one", "Active");
    desk.place.probe("p", json!({}));
    desk.await_map("p", "one");
    let mut other = desk.operator("two", "two");
    let mut controller = other["spec"]["controllers"]["two"].take();
    controller["plugin"] = json!("two");
    let component = json!({ "oci": "registry.invalid/two:1" });
    other["spec"] = json!({ "plugins": { "two": { "component": component } }, "controllers": { "one": controller } });
    desk.apply(&other);
    desk.await_state("two", "Failed");
    desk.place.delete(&desk.operators(), "one");
    let ended = daemon.await_line("no manifest declares it any more");
    assert!(ended.contains("one/templates"), "{ended}");
    desk.place.delete(&desk.place.config_maps(), "p");
    daemon.await_quiet();
    assert_eq!(desk.place.find(&desk.place.config_maps(), "p"), None);
    // The former one may come back.
    desk.place.delete(&desk.operators(), "two");
    desk.apply(&desk.operator("one", "again"));
    desk.await_map("p", "again");
}

#[test]
fn a_folder_of_manifests_may_be_empty_beside_objects_and_is_not_missed_if_only_the_environment_names_it() {
    // OP-1
    let desk = Desk::new("op-env");
    let folder = Folder::new();
    let (empty, missing) = (folder.path(""), folder.path("missing"));
    let named = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    for start in [
        Start::at(&empty),
        Start::on_objects().variable("CAPSTAN_MANIFESTS", &named(&empty)),
        Start::on_objects().variable("CAPSTAN_MANIFESTS", &named(&missing)),
    ] {
        assert!(desk.start(start).until_ready().stop().success());
    }
    let arguments = ["run", "--operators", "cluster", "-m", &named(&missing)];
    let kubeconfig = desk.place.cluster.admin_kubeconfig();
    let output = Command::new(capstan()).args(arguments).env("KUBECONFIG", kubeconfig).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(&named(&missing)), "{said}");
}

#[test]
fn the_last_good_version_of_an_object_goes_on_over_a_restart() {
    // OP-5
    let desk = Desk::new("op-restart");
    let (place, name) = (&desk.place, desk.name());
    let daemon = desk.daemon();
    desk.apply(&desk.operator(name, "one"));
    desk.wait_for("Ready", name);
    daemon.kill();
    let mut broken = desk.operator(name, "two");
    broken["spec"]["controllers"][name]["plugin"] = json!("nobody");
    desk.apply(&broken);
    place.probe("first", json!({}));
    let daemon = desk.daemon();
    desk.await_map("first", "one");
    let refused = desk.await_state(name, "Outdated");
    let (_, message) = condition(&refused, "Loaded");
    assert!(message.contains(&format!("spec.controllers.{name}.plugin: there is no plugin `nobody`")), "{message}");
    assert_eq!((&refused["status"]["version"], &refused["status"]["inForce"]["generation"]), (&json!(1), &json!(1)));
    desk.apply(&desk.operator(name, "three"));
    desk.await_state(name, "Active");
    desk.await_map("first", "three");
    daemon.stop();
}

#[test]
fn a_name_in_a_file_is_no_objects_and_goes_to_it_with_the_end_of_the_file() {
    // OP-4
    let desk = Desk::new("op-names");
    let (place, name) = (&desk.place, desk.name());
    let mut of_file = desk.operator(name, "file");
    of_file["metadata"].as_object_mut().unwrap().remove("namespace");
    let folder = Folder::new();
    folder.put("operator.yaml", of_file.to_string());
    let mut other = desk.operator("another", "another");
    other["spec"]["controllers"]["another"]["labelSelector"] = json!("nobody");
    folder.put("another.yaml", {
        other["metadata"].as_object_mut().unwrap().remove("namespace");
        other.to_string()
    });
    let files = folder.path("");
    let daemon = desk.start(Start::at(&files));
    place.probe("first", json!({}));
    desk.await_map("first", "file");
    desk.apply(&desk.operator(name, "object"));
    let refused = desk.await_state(name, "Failed");
    let (reason, message) = condition(&refused, "Loaded");
    assert!(
        reason == "NameTaken" && message.starts_with(&format!("the operator `{name}` is in the file ")),
        "{reason}: {message}"
    );
    folder.remove("operator.yaml");
    desk.wait_for("Ready", name);
    desk.await_map("first", "object");
    folder.put("operator.yaml", of_file.to_string());
    desk.await_map("first", "file");
    desk.await_state(name, "Failed");
    daemon.stop();
}

#[test]
fn two_daemons_with_the_same_operators_notice_each_other_and_do_not_fight() {
    // OP-6
    let desk = Desk::new("op-two");
    let (place, name) = (&desk.place, desk.name());
    let first = desk.daemon();
    desk.apply(&desk.operator(name, "one"));
    desk.wait_for("Ready", name);
    let said = |object: &Value| object["status"]["daemon"].as_str().unwrap().to_owned();
    let before = said(&desk.await_state(name, "Active"));
    let second = desk.daemon();
    let after =
        place.await_within(LATER, &desk.operators(), name, "the second daemon", |object| said(object) != before);
    first.await_lacking(&[&format!("operator {name}: the daemon {}", said(&after)), "two daemons run it"]);
    first.await_line("another daemon says the status of an operator, too");
    assert_eq!(first.count("capstan_operator_rivals", ""), 1);
    // The first leaves it to the second, which goes on with it.
    desk.apply(&desk.operator(name, "two"));
    let later = desk.await_state(name, "Active");
    assert_eq!(said(&later), said(&after));
    assert_eq!(first.log().matches("another daemon says the status").count(), 1);
    // Once the second has gone, the first says it again, also what is new.
    second.kill();
    desk.apply(&desk.operator(name, "three"));
    let is_said = |object: &Value| {
        said(object) == before && object["status"]["observedGeneration"] == object["metadata"]["generation"]
    };
    place.await_within(3 * LATER, &desk.operators(), name, "the first daemon", is_said);
    wait::until(LATER, "no rival", || (first.count("capstan_operator_rivals", "") == 0).then_some(())).unwrap();
    first.stop();
}

#[test]
fn an_operator_that_leaves_finalizers_behind_says_how_many_and_how_they_are_let_go() {
    // OP-8
    let desk = Desk::new("op-leaves");
    let (place, name) = (&desk.place, desk.name());
    let daemon = desk.daemon();
    let mut operator = desk.operator(name, "one");
    operator["spec"]["controllers"][name]["workflow"]["dependents"]["map"]["garbageCollected"] = json!(false);
    desk.apply(&operator);
    place.probe("first", json!({}));
    desk.await_map("first", "one");
    place.delete(&desk.operators(), name);
    let events = place.namespace.path("v1", "events");
    let event = wait::until_ok(LATER, "an Event", || {
        let found = place.cluster.api().get(&events).unwrap();
        let mut events = found["items"].as_array().unwrap().iter();
        events.find(|event| event["reason"] == "FinalizersLeft").cloned().ok_or(found)
    })
    .unwrap();
    assert_eq!(
        (&event["involvedObject"]["kind"], &event["involvedObject"]["name"]),
        (&json!("Operator"), &json!(name))
    );
    let message = event["message"].as_str().unwrap();
    assert!(message.starts_with("1 of test.capstan.dev/v1 Probe carry the finalizer"), "{message}");
    daemon.await_line("primaries carry the finalizer of a controller that goes");
    // As it says.
    let arguments =
        message.split_once("kubectl ").unwrap().1.replace("KIND", "probes.test.capstan.dev").replace('\'', "");
    let arguments = arguments.replace("NAMESPACE", name).replace("NAME", "first");
    place.cluster.kubectl(&arguments.split(' ').collect::<Vec<_>>()).unwrap();
    place.delete(&place.probes(), "first");
    place.await_gone(&place.probes(), "first");
    daemon.stop();
}

#[test]
fn a_component_of_an_object_is_the_last_good_one_after_a_restart_though_its_tag_names_another_by_then() {
    // OP-5
    const OLD: &str = "nginx:1.29";
    let desk = Desk::new("op-digest");
    let (place, name, mut registry) = (&desk.place, desk.name(), Registry::start());
    let label = json!({ "labels": { "capstan.dev/config-for": name } });
    let secret = json!({
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": label,
        "stringData": { ".dockerconfigjson": registry.login() },
    });
    place.create("v1", "Secret", &place.namespace.path("v1", "secrets"), "pull", secret);
    let ca = fs::read_to_string(registry.certificate()).unwrap();
    place.create("v1", "ConfigMap", &place.config_maps(), "ca", json!({ "metadata": label, "data": { "ca.crt": ca } }));
    let reference = format!("{}/team/webpage:1", registry.address());
    let push = |file: &str| {
        let ca = registry.certificate().display().to_string();
        let mut command = Command::new(capstan());
        command.args(["push", file, &reference, "--ca", &ca]).env_remove("RUST_LOG");
        let output = command.env("DOCKER_CONFIG", registry.docker_config()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    push(&component("webpage").display().to_string());
    let sample: Value = serde_yaml::from_str(&place.sample_manifest("webpage")).unwrap();
    let mut operator = json!({ "apiVersion": "capstan.dev/v1alpha1", "kind": "Operator", "spec": sample["spec"] });
    operator["metadata"] = json!({ "name": name, "namespace": name });
    operator["spec"]["plugins"]["webpage"]["component"] =
        json!({ "oci": reference, "pullSecret": "pull", "interval": "1s", "ca": { "configMap": { "name": "ca" } } });
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("components").display().to_string();
    let start = || desk.start(Start::on_objects().arguments(&["--component-cache", &cache]));
    let daemon = start();
    desk.apply(&operator);
    desk.wait_for("Ready", name);
    let first = desk.await_state(name, "Active");
    let digest = first["status"]["digest"].clone();
    assert!(first["status"]["inForce"]["images"]["webpage"].as_str().unwrap().starts_with("sha256:"), "{first}");
    assert_eq!(first["status"]["plugins"][0]["component"], reference);
    daemon.kill();
    // It is a component, but none of an operator.
    push(&component("tomcat").display().to_string());
    let daemon = start();
    let outdated = desk.await_state(name, "Outdated");
    assert_eq!((&outdated["status"]["digest"], &outdated["status"]["version"]), (&digest, &json!(1)), "{outdated}");
    place.create(
        "sample.capstan.dev/v1",
        "WebPage",
        &place.pages(),
        "page",
        json!({ "spec": { "html": "<html>1</html>" } }),
    );
    let deployments = place.namespace.path("apps/v1", "deployments");
    place.await_within(LATER, &deployments, "page", OLD, |found| {
        found["spec"]["template"]["spec"]["containers"][0]["image"] == OLD
    });
    daemon.kill();
    // The same where nobody is asked.
    registry.stop();
    let daemon = start();
    wait::until_ok(LATER, "the last good version", || match daemon.plugin("webpage") {
        Some(plugin) if plugin["digest"].as_str().is_some_and(|found| found.starts_with(digest.as_str().unwrap())) => {
            Ok(())
        }
        found => Err(format!("{found:?}")),
    })
    .unwrap();
    registry.resume();
    daemon.stop();
}

#[test]
fn many_operators_are_told_in_few_writes_and_one_that_claims_the_name_of_another_is_refused() {
    // OP-3, OP-4
    const MANY: usize = 30;
    let desk = Desk::new("op-fleet");
    let (place, name) = (&desk.place, desk.name());
    let daemon = desk.daemon();
    let operators: Vec<Value> = (0..MANY)
        .map(|n| {
            let of = format!("o{n}");
            let mut operator = desk.operator(&of, "one");
            operator["spec"]["controllers"][&of]["labelSelector"] = json!(of);
            operator
        })
        .collect();
    desk.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": operators }));
    let ready = ["wait", "--for=condition=Ready", "--timeout=120s", "-n", name, "--all", "operators.capstan.dev"];
    place.cluster.kubectl(&ready).unwrap();
    let written = || {
        let query = Query::default().namespace(name).resource("operators").verbs(["patch"]);
        let requests = place.cluster.audit().unwrap().requests(&query).unwrap();
        requests.iter().filter(|request| request.subresource == "status").count()
    };
    let before = written();
    assert!((MANY..=4 * MANY).contains(&before), "{before} writes");
    let mut twin = desk.operator("twin", "two");
    twin["spec"]["controllers"]["o0"] = twin["spec"]["controllers"]["twin"].clone();
    desk.apply(&twin);
    let (_, message) = condition(&desk.await_state("twin", "Failed"), "Loaded");
    let first =
        format!("spec.controllers.o0: found a second controller `o0`; the first is at operators.capstan.dev/{name}/o0");
    assert!(message.starts_with(&first), "{message}");
    place.labelled_probe("first", "o0", json!({}));
    desk.await_map("first", "one");
    // Nobody is told of the others again.
    let after = written();
    assert!(after <= before + 4, "{before} writes, then {after}");
    daemon.stop();
}

//! Operators that are objects of the cluster: applied, changed, refused, kept over restarts, and deleted.

use cluster::wait;
use scenarios::{Daemon, Folder, LATER, Place, Start, repository};
use serde_json::{Value, json};

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
    let file = repository().join("host/core/tests/manifest/good/complete.yaml");
    let kubectl = |arguments: &[&str]| -> Value {
        serde_json::from_str(&desk.place.cluster.kubectl(arguments).unwrap()).unwrap()
    };
    let file = file.display().to_string();
    let namespace = desk.name();
    let given = kubectl(&["create", "--dry-run=client", "-o", "json", "-n", namespace, "-f", &file]);
    let strict = ["create", "--validate=strict", "-o", "json", "-n", namespace, "-f", &file];
    let made = kubectl(&strict);
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
    // The first leaves it to the second, which goes on with it.
    desk.apply(&desk.operator(name, "two"));
    let later = desk.await_state(name, "Active");
    assert_eq!(said(&later), said(&after));
    assert_eq!(first.log().matches("another daemon says the status").count(), 1);
    first.stop();
    second.stop();
}

//! Versions of operators that want more than the one in force, and wait until somebody approves them.

use std::fs;

use cluster::wait;
use scenarios::{Daemon, Folder, LATER, Start, component, replace, run};
use serde_json::{Value, json};

use super::{Desk, condition};

const WAITS: &str = "WaitingForApproval";

impl Desk {
    /// Returns an operator that asks, whose config maps say this, and which has these dependents besides.
    fn asking(&self, says: &str, besides: &[&str]) -> Value {
        let mut operator = self.operator(self.name(), says);
        operator["spec"]["onNewVersion"] = json!("ask");
        for kind in besides {
            let template = json!({ "metadata": { "name": "${primary.metadata.name}" } });
            let dependent = json!({ "apiVersion": "v1", "kind": kind, "desired": { "template": template } });
            operator["spec"]["controllers"][self.name()]["workflow"]["dependents"][kind.to_lowercase()] = dependent;
        }
        operator
    }

    fn approvals(&self) -> String {
        self.place.namespace.path("capstan.dev/v1alpha1", "operatorapprovals")
    }

    /// Approves what this object says that waits, as who writes the object does; with another digest of what is given, if there is one.
    fn approve_by_hand(&self, waiting: &Value, given: Option<&str>) {
        let name = self.name();
        let mut spec = json!({ "operator": name, "components": waiting["components"], "given": waiting["given"] });
        if let Some(given) = given {
            spec["given"] = given.into();
        }
        self.apply(&json!({
            "apiVersion": "capstan.dev/v1alpha1",
            "kind": "OperatorApproval",
            "metadata": { "name": name, "namespace": name },
            "spec": spec,
        }));
    }

    /// Runs `capstan approve` as an administrator, and returns its exit code and what it says.
    fn approve(&self, arguments: &[&str]) -> (i32, String, String) {
        let kubeconfig = self.place.cluster.admin_kubeconfig().display().to_string();
        let own = ["approve", self.name(), "-n", self.name(), "--kubeconfig", &kubeconfig, "--by", "me"];
        run(&[&own, arguments].concat())
    }

    /// Makes a primary, and waits until its config map says this.
    fn shows(&self, primary: &str, says: &str) {
        self.place.probe(primary, json!({}));
        self.await_map(primary, says);
    }
}

/// Returns whether the log has a line with this.
fn has_line(daemon: &Daemon, text: &str) -> bool {
    daemon.log().lines().any(|line| line.contains(text))
}

#[test]
fn a_version_of_an_operator_that_wants_more_waits_until_it_is_approved_as_it_is() {
    // AP-1, AP-2, AP-3, AP-6
    let desk = Desk::new("op-ask");
    let (place, name) = (&desk.place, desk.name());
    let daemon = desk.daemon();
    // The first version wants something, and nothing is in force.
    desk.apply(&desk.asking("one", &[]));
    let first = desk.await_state(name, WAITS);
    let (reason, message) = condition(&first, "Progressing");
    assert_eq!(reason, "ApprovalRequired");
    let wants = json!(format!("controller {name}: create v1 ConfigMap in + {name} (more)"));
    assert!(first["status"]["waiting"]["difference"].as_array().unwrap().contains(&wants), "{first}");
    assert!(message.ends_with(&format!("approve it by `capstan approve {name} -n {name}`")), "{message}");
    assert_eq!(condition(&first, "Ready").0, "ApprovalRequired");
    desk.approve_by_hand(&first["status"]["waiting"], None);
    desk.wait_for("Ready", name);
    desk.shows("first", "one");

    // What wants no more is put in force.
    desk.apply(&desk.asking("two", &[]));
    let second = desk.await_state(name, "Active");
    assert_eq!(second["status"]["version"], 2, "{second}");
    desk.await_map("first", "two");

    desk.apply(&desk.asking("three", &["Secret"]));
    let third = desk.await_state(name, WAITS);
    let expected = [
        format!("controller {name}: create v1 Secret in + {name} (more)"),
        format!("controller {name}: delete v1 Secret in + {name} (more)"),
        format!("controller {name}: update v1 Secret in + {name} (more)"),
        format!("controller {name}: watch v1 Secret in + {name} (more)"),
    ];
    assert_eq!(third["status"]["waiting"]["difference"], json!(expected), "{third}");
    assert_eq!((&third["status"]["version"], &third["status"]["inForce"]["generation"]), (&json!(2), &json!(2)));
    let (_, message) = condition(&third, "Ready");
    assert!(message.starts_with("the last good version goes on: it wants more than what is in force"), "{message}");
    desk.shows("second", "two");
    daemon.await_line("a version waits for an approval");
    let events = place.namespace.path("v1", "events");
    wait::until_ok(LATER, "an Event", || {
        let found = place.cluster.api().get(&events).unwrap();
        let mut events = found["items"].as_array().unwrap().iter();
        let of_it = |event: &&Value| event["message"].as_str().is_some_and(|message| message.contains(&expected[0]));
        events.find(of_it).filter(|event| event["reason"] == "ApprovalRequired").map(drop).ok_or(found.to_string())
    })
    .unwrap();
    let labels = format!("operator=\"{name}\",plugin=\"templates\"");
    assert_eq!(daemon.count("capstan_plugin_approval_required", &labels), 1);

    // An approval of something else is none.
    desk.approve_by_hand(&third["status"]["waiting"], Some(&format!("sha256:{}", "0".repeat(64))));
    desk.shows("third", "two");
    assert_eq!(desk.await_state(name, WAITS)["status"]["version"], 2);
    // Neither is one under another name, which is not even taken.
    let other = json!({
        "apiVersion": "capstan.dev/v1alpha1",
        "kind": "OperatorApproval",
        "metadata": { "name": "other", "namespace": name },
        "spec": { "operator": name, "given": third["status"]["waiting"]["given"] },
    });
    let refused = place.cluster.kubectl_with_input(&["apply", "-f", "-"], &other.to_string()).unwrap_err();
    assert!(format!("{refused:#}").contains("an approval has the name of its operator"), "{refused:#}");

    // A newer version takes the place of the one that waits.
    desk.apply(&desk.asking("four", &["Secret", "ServiceAccount"]));
    let fourth = desk.await_state(name, WAITS);
    assert_ne!(fourth["status"]["waiting"]["given"], third["status"]["waiting"]["given"]);
    desk.approve_by_hand(&third["status"]["waiting"], None);
    desk.shows("fourth", "two");
    // Nobody has said yes, as there is no terminal; and what is only printed is not written.
    let (code, _, said) = desk.approve(&[]);
    assert!(code == 1 && said.contains(&expected[0]) && said.contains("there is no terminal to ask on"), "{said}");
    let (code, _, said) = desk.approve(&["--yes", "--digest", &format!("sha256:{}", "0".repeat(64))]);
    assert!(code == 1 && said.contains("does not wait for an approval; what waits has no component at all"), "{said}");
    let (code, printed, _) = desk.approve(&["-o", "json", "--reason", "it was looked at"]);
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let (given, said) = (&fourth["status"]["waiting"]["given"], &printed["spec"]);
    let found = (code, &said["given"], &said["by"], &said["reason"], &printed["metadata"]["name"]);
    assert_eq!(found, (0, given, &json!("me"), &json!("it was looked at"), &json!(name)));
    assert_ne!(&place.find(&desk.approvals(), name).unwrap()["spec"]["given"], given);
    let (code, said, error) = desk.approve(&["--yes"]);
    assert!(code == 0 && said.contains(&format!("operatorapproval.capstan.dev/{name} is written")), "{said}{error}");
    let now = desk.await_state(name, "Active");
    assert_eq!((&now["status"]["version"], &now["status"]["waiting"]), (&json!(3), &Value::Null));
    assert_eq!(now["status"]["lastChange"].as_array().unwrap().len(), 8, "{now}");
    desk.await_map("first", "four");
    daemon.await_line("a new version is in force");
    let (code, _, said) = desk.approve(&["--yes"]);
    assert!(code == 1 && said.contains(&format!("the state of the operator {name} is Active")), "{said}");
    daemon.stop();
}

#[test]
fn what_is_in_force_of_an_operator_goes_on_over_a_restart_and_an_edit_does_not_go_around_the_approval() {
    // AP-2, AP-4
    let desk = Desk::new("op-ask-again");
    let (place, name) = (&desk.place, desk.name());
    let daemon = desk.daemon();
    desk.apply(&desk.asking("one", &[]));
    let first = desk.await_state(name, WAITS);
    desk.approve_by_hand(&first["status"]["waiting"], None);
    desk.wait_for("Ready", name);
    // It wants less: nobody is asked, and nobody has approved it.
    let mut less = desk.asking("two", &[]);
    less["spec"]["controllers"][name]["labelSelector"] = json!("kept");
    desk.apply(&less);
    assert_eq!(desk.await_state(name, "Active")["status"]["version"], 2);
    daemon.kill();
    place.delete(&desk.approvals(), name);

    let daemon = desk.daemon();
    daemon.await_plugin("templates", "active", 1);
    assert!(!has_line(&daemon, "a version waits for an approval"), "{}", daemon.log());
    // Who writes the manifest may write `apply`, and wants more by that alone; also while no daemon is there to see it.
    let waits = |edited: &Value| {
        desk.apply(edited);
        let waits = || desk.await_state(name, WAITS);
        move || {
            let waits = waits();
            let difference = waits["status"]["waiting"]["difference"].to_string();
            assert!(difference.contains("operator: new versions + without an approval (more)"), "{difference}");
            assert_ne!(waits["status"]["inForce"]["generation"], waits["metadata"]["generation"]);
        }
    };
    let mut edited = less.clone();
    edited["spec"]["onNewVersion"] = json!("apply");
    waits(&edited)();
    desk.apply(&less);
    desk.await_state(name, "Active");
    daemon.kill();
    let waits = waits(&desk.operator(name, "three"));
    let daemon = desk.daemon();
    waits();
    daemon.kill();
    // What waits goes on waiting, and what was in force is at work.
    let daemon = desk.daemon();
    let labelled = json!({ "metadata": { "labels": { "kept": "yes" } } });
    place.create("test.capstan.dev/v1", "Probe", &place.probes(), "kept", labelled);
    desk.await_map("kept", "two");
    let waits = desk.await_state(name, WAITS);
    assert_eq!(waits["status"]["version"], 3);
    desk.approve_by_hand(&waits["status"]["waiting"], None);
    desk.await_state(name, "Active");
    desk.await_map("kept", "three");
    daemon.stop();
}

#[test]
fn a_daemon_that_asks_has_operators_in_files_wait_too_and_one_that_can_not_refuses_them() {
    // AP-2, AP-4, AP-5
    let desk = Desk::new("op-ask-file");
    let (place, name) = (&desk.place, desk.name());
    let folder = Folder::new();
    let of_file = |operator: &Value| {
        let mut operator = operator.clone();
        operator["metadata"].as_object_mut().unwrap().remove("namespace");
        folder.put("operator.yaml", operator.to_string());
    };
    of_file(&desk.operator(name, "one"));
    let files = folder.path("");
    let start = || desk.start(Start::at(&files).arguments(&["--on-new-version", "ask"]));
    let daemon = start();
    let waiting = |daemon: &Daemon| {
        wait::until_ok(LATER, "a version to wait", || {
            let log = daemon.log();
            let line = log.lines().rev().find(|line| line.contains("a version waits for an approval"));
            let given = line.and_then(|line| Some(line.split_once("--given ")?.1[..71].to_owned()));
            given.ok_or(log)
        })
        .unwrap()
    };
    let given = waiting(&daemon);
    desk.approve_by_hand(&json!({ "components": {}, "given": given }), None);
    desk.shows("first", "one");
    daemon.kill();
    let daemon = start();
    of_file(&desk.operator(name, "two"));
    desk.await_map("first", "two");
    daemon.stop();

    // Nobody could approve it where nobody looks for approvals.
    of_file(&desk.asking("three", &[]));
    let own = ["--allow-own-namespace", "--namespace", name];
    let other = desk.operator("other", "other");
    folder.put("other.yaml", {
        let mut other = other;
        other["metadata"].as_object_mut().unwrap().remove("namespace");
        other["spec"]["controllers"]["other"]["labelSelector"] = json!("nobody");
        other.to_string()
    });
    let daemon = Start::at(&files).arguments(&own).run(place);
    daemon.await_line("spec.onNewVersion: found `ask`, and this daemon looks for approvals nowhere");
    daemon.stop();
}

#[test]
fn an_approval_of_an_operator_in_a_file_is_of_its_component_and_the_log_has_the_command() {
    // AP-3, AP-4, AP-6
    let desk = Desk::new("op-ask-wasm");
    let (place, name) = (&desk.place, desk.name());
    let path = component("webpage").display().to_string();
    let folder = Folder::new();
    folder.put("webpage.wasm", fs::read(&path).unwrap());
    let manifest = place.sample_manifest("webpage").replace(&path, "webpage.wasm");
    folder.put("operator.yaml", manifest.replacen("spec:\n", "spec:\n  onNewVersion: ask\n", 1));
    let files = folder.path("");
    let daemon = desk.start(Start::at(&files));
    let kubeconfig = place.cluster.admin_kubeconfig().display().to_string();
    // Runs the command of the line of the log with this number.
    let approve = |number: usize| {
        let command = wait::until_ok(LATER, "a version to wait", || {
            let lines = daemon.lines();
            let mut lines = lines.iter().filter_map(|line| line["command"].as_str());
            lines.nth(number).map(str::to_owned).ok_or_else(|| daemon.log())
        });
        let command = command.unwrap();
        let words: Vec<&str> = command.split(' ').skip(1).chain(["--kubeconfig", &kubeconfig, "--yes"]).collect();
        assert!(command.contains(&format!(" -n {name} --digest webpage=sha256:")), "{command}");
        let (code, _, error) = run(&words);
        assert_eq!(code, 0, "{error}");
    };
    assert_eq!(daemon.plugin("webpage").map(|plugin| plugin["version"].clone()).unwrap_or(json!(0)), 0);
    approve(0);
    daemon.await_plugin("webpage", "active", 1);
    // The same manifest with another component.
    folder.put("webpage.wasm", replace(&fs::read(&path).unwrap(), b"nginx:1.29", b"nginx:1.30"));
    daemon.await_plugin("webpage", "waitingForApproval", 1);
    approve(1);
    daemon.await_plugin("webpage", "active", 2);
    daemon.stop();
}

#[test]
fn nothing_that_an_operator_runs_may_touch_approvals() {
    // AP-5
    let desk = Desk::new("op-ask-own");
    let name = desk.name();
    let daemon = desk.daemon();
    let mut operator = desk.operator(name, "one");
    operator["spec"]["controllers"][name]["workflow"]["dependents"]["own"] =
        json!({ "apiVersion": "capstan.dev/v1alpha1", "kind": "OperatorApproval", "desired": { "template": {} } });
    desk.apply(&operator);
    let (reason, message) = condition(&desk.await_state(name, "Failed"), "Loaded");
    let expected =
        format!("spec.controllers.{name}.workflow.dependents.own.kind: found approvals of operators of Capstan itself");
    assert!(reason == "Invalid" && message.contains(&expected), "{reason}: {message}");
    daemon.stop();
}

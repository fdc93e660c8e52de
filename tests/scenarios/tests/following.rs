//! Config maps that follow their primary – made, changed, and gone with it – however the manifest declares them.

use cluster::Namespace;
use scenarios::{Daemon, Place, replaced_exports};
use serde_json::{Value, json};

/// A probe whose dependents are config maps.
struct Following<'a> {
    place: &'a Place,
    /// Where the config maps are.
    namespace: &'a Namespace,
    /// The names of the dependents; each is the end of its config map's name, too.
    dependents: &'a [&'a str],
    /// What else the spec of the probe has.
    spec: Value,
}

impl<'a> Following<'a> {
    fn new(place: &'a Place, dependents: &'a [&'a str]) -> Self {
        Self { place, namespace: &place.namespace, dependents, spec: json!({}) }
    }

    /// The probe does these steps when it is reconciled.
    fn doing(mut self, steps: Value) -> Self {
        self.spec["reconcile"] = json!({ "do": steps });
        self
    }

    fn map(&self, dependent: &str) -> String {
        format!("{}-{dependent}", self.place.namespace.name())
    }

    fn path(&self) -> String {
        self.namespace.path("v1", "configmaps")
    }

    fn spec(&self, value: &str) -> Value {
        let mut spec = self.spec.clone();
        for dependent in self.dependents {
            let metadata = json!({ "name": self.map(dependent), "namespace": self.namespace.name() });
            let data = json!({ "v": format!("{value} {dependent}") });
            spec["dependents"][dependent] = json!({ "metadata": metadata, "data": data });
        }
        spec
    }

    /// Waits until all config maps have this value, and returns them.
    fn await_value(&self, value: &str) -> Vec<Value> {
        let has = |dependent: &&str| {
            let wanted = format!("{value} {dependent}");
            self.place.await_object(&self.path(), &self.map(dependent), &wanted, |map| map["data"]["v"] == wanted)
        };
        self.dependents.iter().map(has).collect()
    }

    /// Creates the probe, and returns the config maps.
    fn are_made(&self) -> Vec<Value> {
        self.place.probe("p", self.spec("initial"));
        self.await_value("initial")
    }

    fn are_changed(&self) {
        self.place.merge(&self.place.probes(), "p", &json!({ "spec": self.spec("changed") }));
        self.await_value("changed");
    }

    fn are_gone_with_it(&self, daemon: &Daemon) {
        daemon.await_quiet();
        self.place.delete(&self.place.probes(), "p");
        for dependent in self.dependents {
            self.place.await_gone(&self.path(), &self.map(dependent));
        }
        self.place.await_gone(&self.place.probes(), "p");
        assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
    }
}

/// Runs a controller with these fields, and sees the config maps made, changed and gone; `look` gets them once they are made.
fn follow(prefix: &str, fields: &str, dependents: &[&str], steps: Value, look: impl Fn(&Place, &Daemon, Vec<Value>)) {
    let place = Place::new(prefix);
    let daemon = place.daemon(&place.probe_manifest(fields));
    let following = Following::new(&place, dependents).doing(steps);
    look(&place, &daemon, following.are_made());
    following.are_changed();
    following.are_gone_with_it(&daemon);
}

/// Returns how many informers of config maps there are for the place.
fn informers(place: &Place, daemon: &Daemon) -> usize {
    let informers = daemon.informers(place.namespace.name());
    informers.iter().filter(|informer| informer["scope"].as_str().unwrap().contains(" ConfigMap ")).count()
}

const ONE: &str = "workflow:\n  dependents:\n    one: { apiVersion: v1, kind: ConfigMap }\n";
const BOTH: &str = "workflow:\n  dependents:\n    one: { apiVersion: v1, kind: ConfigMap }\n    two: { apiVersion: v1, kind: ConfigMap }\n";

/// As [`BOTH`], with the source of each.
fn sourced(one: &str, two: &str) -> String {
    let source = |name: &str| {
        format!("  {name}: {{ informer: {{ apiVersion: v1, kind: ConfigMap, mapper: ownerReference }} }}\n")
    };
    let sources = if one == two { source(one) } else { source(one) + &source(two) };
    let dependent =
        |name: &str, source: &str| format!("    {name}: {{ apiVersion: v1, kind: ConfigMap, source: {source} }}\n");
    format!("sources:\n{sources}workflow:\n  dependents:\n{}{}", dependent("one", one), dependent("two", two))
}

#[test]
fn s090_annotations_with_other_keys_map_a_dependent() {
    // KD-3
    let mapping = "{ name: example.com/name, namespace: example.com/namespace, kind: none }";
    let fields = ONE.replace("ConfigMap }", &format!("ConfigMap, garbageCollected: false, mapping: {mapping} }}"));
    follow("s090", &fields, &["one"], json!([]), |place, _, maps| {
        let annotations = &maps[0]["metadata"]["annotations"];
        assert_eq!(annotations["example.com/name"], "p");
        assert_eq!(annotations["example.com/namespace"], place.namespace.name());
        assert_eq!(annotations["capstan.dev/primary-name"], Value::Null);
    });
}

#[test]
fn s091_a_dependent_is_in_another_namespace() {
    let (place, other) = (Place::new("s091"), Place::new("s091-other"));
    let across = "acrossNamespaces: true";
    let fields = format!(
        "sources:\n  maps: {{ informer: {{ apiVersion: v1, kind: ConfigMap, namespaces: [{}], mapper: {{ annotations: {{ {across} }} }} }} }}\nworkflow:\n  dependents:\n    one: {{ apiVersion: v1, kind: ConfigMap, source: maps, garbageCollected: false, mapping: {{ {across} }} }}\n",
        other.namespace.name()
    );
    let daemon = place.daemon(&place.probe_manifest(&fields));
    let following = Following { namespace: &other.namespace, ..Following::new(&place, &["one"]) };
    following.are_made();
    following.are_changed();
    following.are_gone_with_it(&daemon);
}

#[test]
fn s101_a_managed_dependent_follows() {
    follow("s101", ONE, &["one"], json!([]), |_, _, _| ());
}

#[test]
fn s102_a_standalone_dependent_follows() {
    let steps = json!({ "workflow": { "run": "reconcile", "name": "alone" }, "tell": true });
    follow("s102", &standalone(ONE), &["one"], steps, |_, _, _| ());
}

/// Turns a managed workflow into one that is called by the name `alone`.
fn standalone(fields: &str) -> String {
    let fields: String = fields.lines().map(|line| format!("  {line}\n")).collect();
    format!("standalone:\n{}", fields.replace("workflow:", "alone:"))
}

#[test]
fn s105_two_dependents_called_by_hand_share_an_informer() {
    let run = |name: &str| json!({ "dependent": { "run": "reconcile", "name": name }, "tell": true });
    follow("s105", &standalone(BOTH), &["one", "two"], json!([run("one"), run("two")]), |place, daemon, _| {
        assert_eq!(informers(place, daemon), 1);
    });
}

#[test]
fn s106_two_dependents_of_one_kind_are_told_apart() {
    // KD-4
    follow("s106", BOTH, &["one", "two"], json!([]), |_, daemon, _| {
        daemon.await_quiet();
        // The first run adds the finalizer.
        assert_eq!(daemon.runs_of("p"), 2);
    });
}

#[test]
fn s107_two_dependents_of_one_kind_have_a_source_each() {
    // KD-10
    follow("s107", &sourced("first", "second"), &["one", "two"], json!([]), |_, _, _| ());
}

#[test]
fn s108_two_managed_dependents_of_one_kind_share_a_source() {
    follow("s108", BOTH, &["one", "two"], json!([]), |place, daemon, _| assert_eq!(informers(place, daemon), 1));
}

#[test]
fn s109_two_dependents_name_the_same_source() {
    follow("s109", &sourced("maps", "maps"), &["one", "two"], json!([]), |place, daemon, _| {
        assert_eq!(informers(place, daemon), 1);
    });
}

#[test]
fn s149_a_text_is_copied_to_a_config_map() {
    let place = Place::new("s149");
    let daemon = place.daemon(&place.probe_manifest(ONE));
    let mut following = Following::new(&place, &["one"]);
    let observed = |message: &str| json!({ "status": { "observedMessage": message } });
    let await_status = |message: &str| {
        place.await_object(&place.probes(), "p", "its status", |p| p["status"]["observedMessage"] == message)
    };
    following.spec["reconcile"] = observed("initial");
    let maps = following.are_made();
    assert_eq!(maps[0]["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    await_status("initial");
    following.spec["reconcile"] = observed("changed");
    following.are_changed();
    await_status("changed");
    following.are_gone_with_it(&daemon);
}

#[test]
fn s132_a_workflow_that_is_called_is_cleaned_up_without_a_cleaner() {
    // WF-10, DI-2
    let place = Place::new("s132");
    let fields = ONE.replace("dependents:", "invocation: explicit\n  dependents:");
    let fields = fields.replace("ConfigMap }", "ConfigMap, garbageCollected: false }");
    let folder = replaced_exports(&place.probe_manifest(&fields), &[("cleaner", "tidying")]);
    let daemon = folder.daemon(&place);
    let following = Following::new(&place, &["one"]);
    let following = following.doing(json!({ "workflow": { "run": "reconcile" }, "tell": true }));
    let maps = following.are_made();
    assert_eq!(maps[0]["metadata"]["ownerReferences"], Value::Null);
    following.are_gone_with_it(&daemon);
}

#[test]
fn s133_a_workflow_runs_only_when_it_is_called() {
    // WF-10
    let place = Place::new("s133");
    let daemon =
        place.daemon(&place.probe_manifest(&ONE.replace("dependents:", "invocation: explicit\n  dependents:")));
    let following = Following::new(&place, &["one"]);
    place.probe("p", following.spec("initial"));
    daemon.await_runs(2);
    daemon.await_quiet();
    // The first run adds the finalizer.
    assert_eq!(daemon.runs_of("p"), 2);
    assert!(place.find(&following.path(), &following.map("one")).is_none());
    let following = following.doing(json!({ "workflow": { "run": "reconcile" }, "tell": true }));
    following.are_changed();
    daemon.await_quiet();
    assert_eq!(daemon.runs_of("p"), 3);
    following.are_gone_with_it(&daemon);
}

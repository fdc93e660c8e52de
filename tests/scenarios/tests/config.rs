//! Values of `config` from Secrets and ConfigMaps of the daemon's own namespace: who is given them, and what follows when they change.

use cluster::{Cluster, wait};
use scenarios::{LATER, Place, Start};
use serde_json::{Value, json};

/// A Secret and a ConfigMap in the namespace in which these daemons are, which go with the test.
struct Held {
    cluster: &'static Cluster,
    operator: String,
}

impl Held {
    fn new(place: &Place) -> Self {
        let held = Self { cluster: place.cluster, operator: place.namespace.name().to_owned() };
        for (resource, kind) in [("secrets", "Secret"), ("configmaps", "ConfigMap")] {
            let data = if kind == "Secret" { "stringData" } else { "data" };
            let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": held.operator }, data: { "word": "old" } });
            held.cluster.api().create(&format!("/api/v1/namespaces/default/{resource}"), &object).unwrap();
        }
        held
    }

    fn path(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/default/{resource}/{}", self.operator)
    }

    fn change(&self, resource: &str, patch: Value) {
        self.cluster.api().merge(&self.path(resource), &patch).unwrap();
    }

    /// Lets it be read by these operators; by nobody without any.
    fn permit(&self, resource: &str, operators: Option<&str>) {
        self.change(resource, json!({ "metadata": { "labels": { "capstan.dev/config-for": operators } } }));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for resource in ["secrets", "configmaps"] {
            drop(self.cluster.api().delete(&self.path(resource)));
        }
    }
}

/// Returns a manifest whose `config` has a word of its own, one of a Secret, and one of a ConfigMap.
fn manifest(place: &Place) -> String {
    let name = place.namespace.name();
    let fields = format!(
        "config: {{ plain: mine }}\nconfigFrom:\n  word: {{ secret: {{ name: {name} }} }}\n  other: {{ configMap: {{ name: {name}, key: word }} }}\n"
    );
    place.manifest("probe", "{ apiVersion: test.capstan.dev/v1, kind: Probe }", &fields, "")
}

/// Creates a probe that puts its component's `config` into its status.
fn reader(place: &Place) {
    place.probe("p", json!({ "reconcile": { "do": [{ "see": ["config"] }], "status": {} } }));
}

fn await_config(place: &Place, expected: Value) {
    let told = |probe: &Value| probe["status"]["config"] == expected;
    // It is read every 15 s.
    place.await_within(LATER, &place.probes(), "p", &expected.to_string(), told);
}

#[test]
fn a_component_is_given_what_secrets_and_config_maps_permit_and_a_change_of_it_is_a_change_of_its_settings() {
    // CV-1, CV-2
    let place = Place::new("values");
    let held = Held::new(&place);
    let name = place.namespace.name();
    held.permit("secrets", Some(&format!("other_{name}")));
    let daemon = Start::new(&manifest(&place)).run(&place);
    reader(&place);
    let refused = daemon.await_plugin("probe", "failed", 0);
    let why = format!(
        "configFrom.other: ConfigMap {name}: its label capstan.dev/config-for does not name the operator {name}"
    );
    assert!(refused.to_string().contains(&why), "{refused}");
    assert_eq!(
        place.find(&place.probes(), "p").unwrap()["status"],
        Value::Null,
        "nothing runs with half of its settings"
    );

    held.permit("configmaps", Some(name));
    await_config(&place, json!({ "plain": "mine", "word": "old", "other": "old" }));
    held.change("secrets", json!({ "stringData": { "word": "changed" } }));
    await_config(&place, json!({ "plain": "mine", "word": "changed", "other": "old" }));
    daemon.await_plugin("probe", "active", 2);
    held.change("configmaps", json!({ "data": { "word": "newer" } }));
    await_config(&place, json!({ "plain": "mine", "word": "changed", "other": "newer" }));
    assert!(!daemon.log().contains("changed\""), "no value is in the log: {}", daemon.log());
}

#[test]
fn what_is_not_given_any_more_keeps_the_settings_in_force_and_what_holds_a_credential_is_never_given() {
    // CV-2, CV-3
    let place = Place::new("withheld");
    let held = Held::new(&place);
    let name = place.namespace.name();
    for resource in ["secrets", "configmaps"] {
        held.permit(resource, Some(name));
    }
    let daemon = place.daemon(&manifest(&place));
    reader(&place);
    await_config(&place, json!({ "plain": "mine", "word": "old", "other": "old" }));
    let problem = |why: &str| {
        let told = || match daemon.plugin("probe") {
            Some(row) if row.to_string().contains(why) => Ok(row),
            row => Err(format!("{row:?}")),
        };
        let row = wait::until_ok(LATER, why, told).unwrap();
        assert_eq!(row["version"], 1, "{row}");
        let runs = daemon.runs();
        place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "status": { "why": why } } } }));
        daemon.await_runs(runs + 1);
        await_config(&place, json!({ "plain": "mine", "word": "old", "other": "old" }));
    };
    held.permit("secrets", None);
    problem("its label capstan.dev/config-for does not name the operator");
    held.permit("secrets", Some(name));
    held.change("secrets", json!({ "metadata": { "labels": { "capstan.dev/kubeconfig-for": name } } }));
    problem("it is a kubeconfig of another cluster, which no component is given, whatever its labels say");
    held.cluster.api().delete(&held.path("secrets")).unwrap();
    problem("there is none in the namespace default");
}

//! Kinds: built-in ones, those of the whole cluster, several versions of one, several controllers of one, and objects that no
//! component can read.

use std::time::Duration;

use cluster::{Call, wait};
use scenarios::{LATER, Place, SOON};
use serde_json::{Value, json};

/// The annotation by which the probe reads what to do from an object of another kind.
const SPEC: &str = "test.capstan.dev/spec";

const THIRTY_SECONDS: Duration = Duration::from_secs(30);

/// A kind `Thing` of a test's own, with these versions; the last one is stored. Dropping it removes it.
struct Things<'a> {
    place: &'a Place,
    group: String,
    plural: &'static str,
    /// As its definition has it.
    scope: &'static str,
}

impl<'a> Things<'a> {
    const DEFINITIONS: &'static str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

    fn new(place: &'a Place, versions: &[&str]) -> Self {
        Self::called(place, versions, ("things", "Namespaced"))
    }

    fn called(place: &'a Place, versions: &[&str], (plural, scope): (&'static str, &'static str)) -> Self {
        let things = Self { place, group: format!("{}.test.capstan.dev", place.namespace.name()), plural, scope };
        place.cluster.api().create(Self::DEFINITIONS, &things.definition(versions)).unwrap();
        things.await_served(versions);
        things
    }

    /// Returns the kind as it is made anew, with this plural and in this scope, once nothing is left of it.
    fn made_anew(self, plural: &'static str, scope: &'static str) -> Self {
        let (place, name) = (self.place, self.name());
        drop(self);
        place.await_gone(Self::DEFINITIONS, &name);
        Self::called(place, &["v1"], (plural, scope))
    }

    fn definition(&self, versions: &[&str]) -> Value {
        let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let schema = json!({ "type": "object", "properties": { "foo": { "type": "string" }, "spec": anything, "status": anything } });
        let version = |name: &&str| {
            let is_last = versions.last() == Some(name);
            json!({
                "name": name, "served": true, "storage": is_last, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": schema },
            })
        };
        let versions: Vec<_> = versions.iter().map(version).collect();
        let names = json!({ "kind": "Thing", "plural": self.plural });
        json!({
            "metadata": { "name": self.name() },
            "spec": { "group": self.group, "names": names, "scope": self.scope, "versions": versions },
        })
    }

    fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    fn change(&self, versions: &[&str]) {
        self.place.merge(Self::DEFINITIONS, &self.name(), &json!({ "spec": self.definition(versions)["spec"] }));
        self.await_served(versions);
    }

    fn await_served(&self, versions: &[&str]) {
        for version in versions {
            let path = self.path(version);
            wait::until_ok(LATER, &path, || self.place.cluster.api().get(&path)).unwrap();
        }
    }

    fn path(&self, version: &str) -> String {
        let api = format!("{}/{version}", self.group);
        match self.scope {
            "Cluster" => format!("/apis/{api}/{}", self.plural),
            _ => self.place.namespace.path(&api, self.plural),
        }
    }

    /// Makes one, and waits until it has been reconciled.
    fn is_run(&self, name: &str) {
        self.create("v1", name, seen());
        let is_seen = |thing: &Value| thing["status"]["seen"] == true;
        self.place.await_within(LATER, &self.path("v1"), name, "its status", is_seen);
    }

    fn create(&self, version: &str, name: &str, fields: Value) {
        self.place.create(&format!("{}/{version}", self.group), "Thing", &self.path(version), name, fields);
    }

    /// Returns a manifest of one controller over this version.
    fn manifest(&self, version: &str, fields: &str) -> String {
        let primary = format!("{{ apiVersion: {}/{version}, kind: Thing }}", self.group);
        self.place.manifest("probe", &primary, "", fields)
    }
}

/// Returns what has a run say that there was one.
fn seen() -> Value {
    json!({ "spec": { "reconcile": { "status": { "seen": true } } } })
}

impl Drop for Things<'_> {
    fn drop(&mut self) {
        drop(self.place.cluster.api().delete(&format!("{}/{}", Self::DEFINITIONS, self.name())));
    }
}

#[test]
fn s002_kinds_come_from_files_and_from_objects() {
    let place = Place::new("s002");
    let things = Things::new(&place, &["v1"]);
    for (name, field) in [
        ("webpages.sample.capstan.dev", "/spec/properties/html"),
        ("clusterprobes.test.capstan.dev", "/status"),
        (&things.name(), "/foo"),
    ] {
        let definition = place.find(Things::DEFINITIONS, name).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        assert!(schema.pointer(field).is_some(), "{name}: {schema}");
    }
}

// WF-11
#[test]
fn s122_a_dependent_is_active_while_its_kind_is_defined_and_nobody_waits_for_it_else() {
    let place = Place::new("s122");
    let kind = format!("apiVersion: {}.test.capstan.dev/v1, kind: Thing", place.namespace.name());
    let fields = format!("workflow:\n  dependents:\n    thing: {{ {kind}, activation: crdPresent }}\nretry: none\n");
    let daemon = place.daemon(&place.probe_manifest(&fields));
    let thing = json!({ "metadata": { "name": "p" }, "foo": "a" });
    place.probe("p", json!({ "dependents": { "thing": thing }, "reconcile": { "status": { "ok": true } } }));
    let reconciled = |number: usize| {
        let changed = place.merge(&place.probes(), "p", &json!({ "spec": { "anything": number.to_string() } }));
        let generation = changed["metadata"]["generation"].clone();
        place.await_object(&place.probes(), "p", "to be reconciled", |probe| {
            probe["status"]["observedGeneration"] == generation
        });
    };
    let failed = || daemon.count("capstan_reconciliations_failure_total", "");
    reconciled(1);
    assert_eq!(failed(), 0);
    for round in 0..2 {
        let things = Things::new(&place, &["v1"]);
        let path = things.path("v1");
        place.await_within(LATER, &path, "p", "to be made", |thing| thing["foo"] == "a");
        reconciled(2 * round + 2);
        daemon.await_quiet();
        drop(things);
        wait::until_ok(LATER, "the kind to be gone", || match place.cluster.api().get(&path) {
            Ok(list) => Err(list),
            Err(_) => Ok(()),
        })
        .unwrap();
        let noticed = || daemon.log().matches("a kind of its dependents has come or gone").count();
        wait::until(LATER, "the end of the kind to be noticed", || (noticed() >= 2 * (round + 1)).then_some(()))
            .unwrap();
        // A run that has come upon this before may have failed.
        daemon.await_quiet();
        let before = failed();
        reconciled(2 * round + 3);
        daemon.await_quiet();
        assert_eq!((daemon.get("/readyz").0, failed() - before), (200, 0));
    }
}

#[test]
fn a_kind_that_is_made_anew_with_another_plural_or_scope_is_watched_as_it_is_then() {
    // IN-6
    let place = Place::new("renamed");
    let mut things = Things::new(&place, &["v1"]);
    let daemon = place.daemon(&things.manifest("v1", ""));
    things.is_run("first");
    for (plural, scope, name) in [("items", "Namespaced", "second"), ("items", "Cluster", "third")] {
        things = things.made_anew(plural, scope);
        things.is_run(name);
        daemon.await_quiet();
        assert_eq!(daemon.get("/readyz").0, 200, "{plural} {scope}");
        let finalizers = place.find(&things.path("v1"), name).unwrap()["metadata"]["finalizers"].clone();
        assert_eq!(finalizers, json!([format!("{}/finalizer", things.name())]), "that of its name");
    }
}

#[test]
fn a_dependent_whose_kind_goes_while_it_is_watched_fails_by_name_and_is_made_anew_once_the_kind_is_back() {
    let place = Place::new("without");
    let things = Things::new(&place, &["v1"]);
    let path = things.path("v1");
    let fields = format!(
        "retry: {{ initialInterval: 200ms, multiplier: 1, maxAttempts: unlimited }}\nworkflow:\n  dependents:\n    cm: {{ apiVersion: v1, kind: ConfigMap }}\n    thing: {{ apiVersion: {}/v1, kind: Thing }}\n",
        things.group
    );
    let daemon = place.daemon(&place.probe_manifest(&fields));
    let spec = |value: &str| {
        let (map, thing) = (
            json!({ "metadata": { "name": "cm" }, "data": { "v": value } }),
            json!({ "metadata": { "name": "t" }, "foo": value }),
        );
        json!({ "dependents": { "cm": map, "thing": thing }, "reconcile": { "status": { "ok": true } } })
    };
    place.probe("p", spec("a"));
    place.await_within(LATER, &path, "t", "to be made", |thing| thing["foo"] == "a");
    daemon.await_quiet();
    drop(things);
    let gone = || place.cluster.api().get(&path).err();
    wait::until(LATER, "the kind to be gone", gone).unwrap();
    place.merge(&place.probes(), "p", &json!({ "spec": spec("b") }));
    place.await_within(LATER, &place.config_maps(), "cm", "its sibling", |map| map["data"]["v"] == "b");
    let line = daemon.await_line("the run failed");
    assert!(line.contains("the workflow failed: thing: "), "{line}");
    assert_eq!(daemon.get("/livez").0, 200);
    let _things = Things::new(&place, &["v1"]);
    place.await_within(LATER, &path, "t", "to be made anew", |thing| thing["foo"] == "b");
    let daemon = daemon.until_ready();
    let failed = || daemon.count("capstan_reconciliations_failure_total", "");
    daemon.await_quiet();
    let before = failed();
    place.merge(&place.probes(), "p", &json!({ "spec": spec("c") }));
    place.await_within(LATER, &path, "t", "to be updated", |thing| thing["foo"] == "c");
    daemon.await_quiet();
    assert_eq!(failed(), before, "{}", daemon.log());
}

#[test]
fn what_was_applied_as_another_version_is_applied_once_more_where_that_is_wanted() {
    // KD-12
    let place = Place::new("versions");
    let things = Things::new(&place, &["v1", "v2"]);
    place.probe("p", json!({ "dependents": { "thing": { "metadata": { "name": "t" }, "foo": "a" } } }));
    let applied_as = |thing: &Value| {
        let mut records = thing["metadata"]["managedFields"].as_array().into_iter().flatten();
        let own = records.find(|record| record["manager"] == place.namespace.name() && record["operation"] == "Apply");
        own.map(|record| record["apiVersion"].as_str().unwrap().to_owned())
    };
    for (version, detects, applied) in [("v1", "true", "v1"), ("v2", "false", "v1"), ("v2", "true", "v2")] {
        let thing = format!("apiVersion: {}/{version}, kind: Thing, detectApiVersionChange: {detects}", things.group);
        let daemon =
            place.daemon(&place.probe_manifest(&format!("workflow:\n  dependents:\n    thing: {{ {thing} }}\n")));
        daemon.await_runs(1);
        let applied = format!("{}/{applied}", things.group);
        let thing = place.await_object(&things.path("v1"), "t", &applied, |t| applied_as(t).as_ref() == Some(&applied));
        daemon.await_quiet();
        let later = place.find(&things.path("v1"), "t").unwrap();
        assert_eq!(later["metadata"]["managedFields"], thing["metadata"]["managedFields"], "once: {later}");
        assert!(daemon.stop().success());
    }
}

#[test]
fn objects_of_a_kind_that_lives_in_namespaces_by_now_are_run_in_those_of_the_manifest_alone() {
    // IN-1, IN-6
    let place = Place::new("moved");
    let other = place.cluster.namespace("moved-other").unwrap();
    let things = Things::called(&place, &["v1"], ("things", "Cluster"));
    let daemon = place.daemon(&things.manifest("v1", ""));
    things.is_run("first");
    let things = things.made_anew("things", "Namespaced");
    let api = format!("{}/v1", things.group);
    let elsewhere = other.path(&api, "things");
    place.create(&api, "Thing", &elsewhere, "elsewhere", seen());
    things.is_run("here");
    daemon.await_quiet();
    let untouched = place.find(&elsewhere, "elsewhere").unwrap();
    assert_eq!([&untouched["status"], &untouched["metadata"]["finalizers"]], [&Value::Null; 2]);
    assert_eq!(daemon.runs_of("elsewhere"), 0);
    let scope = format!("{api} Thing in {}", place.namespace.name());
    let informers = daemon.informers(place.namespace.name());
    assert!(informers.iter().any(|informer| informer["scope"] == scope.as_str()), "{informers:?}");
}

#[test]
fn a_kind_that_is_not_served_for_a_while_is_watched_again() {
    // IN-6, IE-2
    let place = Place::new("unserved");
    let things = Things::new(&place, &["v1"]);
    let daemon = place.daemon(&things.manifest("v1", "retry: none\n"));
    things.is_run("before");
    daemon.await_quiet();
    let runs = daemon.runs_of("before");
    let serve = |served: bool| {
        let patch = json!([{ "op": "replace", "path": "/spec/versions/0/served", "value": served }]);
        let definition = format!("{}/{}", Things::DEFINITIONS, things.name());
        place.cluster.api().call(&definition, Call::JsonPatch(&patch)).unwrap();
        wait::until(LATER, "the definition to hold", || {
            (place.cluster.api().get(&things.path("v1")).is_ok() == served).then_some(())
        })
        .unwrap();
    };
    serve(false);
    wait::until(LATER, "that to be told", || daemon.get("/readyz?verbose").1.contains("HTTP 404").then_some(()))
        .unwrap();
    serve(true);
    things.is_run("after");
    daemon.await_quiet();
    assert_eq!((daemon.get("/readyz").0, daemon.runs_of("before")), (200, runs), "nothing has changed for it");
}

#[test]
fn s010_a_built_in_kind_is_reconciled_and_cleaned_up() {
    let place = Place::new("s010");
    let primary = "{ apiVersion: v1, kind: Service }";
    let daemon = place.daemon(&place.manifest("probe", primary, "", "labelSelector: builtintest=true\n"));
    let log = |message: &str| json!({ "do": { "log": { "message": message } } });
    let spec = json!({ "reconcile": log("reconciles"), "cleanup": log("cleans up") }).to_string();
    let service = |label: &str| {
        let metadata = json!({ "labels": { "builtintest": label }, "annotations": { SPEC: spec } });
        json!({ "metadata": metadata, "spec": { "ports": [{ "port": 80 }] } })
    };
    let services = place.namespace.path("v1", "services");
    for (name, label) in [("s", "true"), ("other", "false")] {
        place.create("v1", "Service", &services, name, service(label));
    }
    daemon.await_line("\"reconciles\"");
    place.await_object(&services, "s", "the finalizer", |service| {
        service["metadata"]["finalizers"] == json!(["services.capstan.dev/finalizer"])
    });
    place.delete(&services, "s");
    place.await_gone(&services, "s");
    daemon.await_line("\"cleans up\"");
    assert_eq!(place.find(&services, "other").unwrap()["metadata"]["finalizers"], Value::Null);
}

#[test]
fn s014_a_primary_of_the_whole_cluster_owns_an_object_in_a_namespace() {
    // KD-2, IM-1
    let place = Place::new("s014");
    let own = place.namespace.name();
    let fields = format!(
        "labelSelector: place={own}\nworkflow:\n  dependents:\n    cm: {{ apiVersion: v1, kind: ConfigMap }}\n"
    );
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: ClusterProbe }";
    let _daemon = place.daemon(&place.manifest("probe", primary, "", &fields));
    let spec = |value: &str| {
        let map = json!({ "metadata": { "name": "s014", "namespace": own }, "data": { "v": value } });
        json!({ "dependents": { "cm": map }, "reconcile": { "status": { "created": true } } })
    };
    let probes = "/apis/test.capstan.dev/v1/clusterprobes";
    let probe = json!({ "metadata": { "labels": { "place": own } }, "spec": spec("initial") });
    place.create("test.capstan.dev/v1", "ClusterProbe", probes, own, probe);
    let has = |value: &str| place.await_object(&place.config_maps(), "s014", value, |map| map["data"]["v"] == value);
    let map = has("initial");
    assert_eq!(map["metadata"]["ownerReferences"][0]["kind"], "ClusterProbe");
    place.await_object(probes, own, "its status", |p| p["status"]["created"] == true);
    place.merge(probes, own, &json!({ "spec": spec("changed") }));
    has("changed");
    place.merge(&place.config_maps(), "s014", &json!({ "data": { "v": "by others" } }));
    has("changed");
    place.delete(probes, own);
    place.await_gone(&place.config_maps(), "s014");
}

#[test]
fn s015_two_controllers_let_go_of_one_primary_at_once() {
    // FI-3, FI-4
    let place = Place::new("s015");
    let manifest = |n: u32| place.probe_manifest(&format!("finalizer: reconciler{n}.sample/finalizer\nretry: none\n"));
    let daemon = place.daemon(&format!("{}---\n{}", manifest(1), place.renamed(&manifest(2), "second")));
    for round in 0..10 {
        let name = format!("p{round}");
        place.probe(&name, json!({}));
        place.await_object(&place.probes(), &name, "both finalizers", |p| {
            let mut finalizers: Vec<_> = p["metadata"]["finalizers"].as_array().into_iter().flatten().collect();
            finalizers.sort_by_key(ToString::to_string);
            finalizers == ["reconciler1.sample/finalizer", "reconciler2.sample/finalizer"]
        });
        place.delete(&place.probes(), &name);
        place.await_gone(&place.probes(), &name);
    }
    daemon.await_quiet();
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
}

#[test]
fn s019_a_condition_is_written_to_a_deployment() {
    const MESSAGE: &str = "Reconciled by DeploymentReconciler";
    let place = Place::new("s019");
    let primary = "{ apiVersion: apps/v1, kind: Deployment }";
    let able = "capabilities: { kubernetes: [{ apiVersion: apps/v1, kind: Deployment, verbs: [apply] }] }\n";
    let daemon = place.daemon(&place.manifest("probe", primary, able, "labelSelector: test=s019\n"));
    let condition = json!({ "type": "Reconciled", "status": "True", "reason": "Done", "message": MESSAGE });
    let named = json!({ "name": "d", "namespace": place.namespace.name() });
    let object = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": named, "status": { "conditions": [condition] } });
    let write = json!({ "write": { "verb": "apply", "object": object, "subresource": "status" }, "tell": true });
    let spec = json!({ "reconcile": { "do": write } }).to_string();
    let pod = json!({ "metadata": { "labels": { "app": "s019" } }, "spec": { "containers": [{ "name": "c", "image": "nginx" }] } });
    let deployment = json!({
        "metadata": { "labels": { "test": "s019" }, "annotations": { SPEC: spec } },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "s019" } }, "template": pod },
    });
    let deployments = place.namespace.path("apps/v1", "deployments");
    place.create("apps/v1", "Deployment", &deployments, "d", deployment);
    let is_done = |deployment: &Value| {
        let conditions = deployment["status"]["conditions"].as_array().into_iter().flatten();
        let ours = conditions.filter(|condition| condition["message"] == MESSAGE).count();
        deployment["status"]["readyReplicas"].as_u64() >= Some(1) && ours == 1
    };
    let done = || place.find(&deployments, "d").filter(is_done);
    wait::until(LATER, "a ready replica and the condition", done).unwrap();
    daemon.await_quiet();
    assert!(is_done(&place.find(&deployments, "d").unwrap()));
}

#[test]
fn s039_two_controllers_divide_primaries_by_selectors() {
    // IN-3, CF-8
    let place = Place::new("s039");
    let manifest = |selector: &str| place.probe_manifest(&format!("labelSelector: {selector}\n"));
    let second = place.renamed(&manifest("reconciler!=1"), "second");
    let daemon = place.daemon(&format!("{}---\n{second}", manifest("reconciler=1")));
    let own = place.namespace.name();
    for (name, label, controller) in [("one", "1", own.to_owned()), ("other", "2", format!("{own}-second"))] {
        let spec = json!({ "reconcile": { "do": { "see": ["settings"] }, "status": {} } });
        let probe = json!({ "metadata": { "labels": { "reconciler": label } }, "spec": spec });
        place.create("test.capstan.dev/v1", "Probe", &place.probes(), name, probe);
        let probe = place.await_object(&place.probes(), name, "its status", |p| p["status"]["settings"].is_object());
        assert_eq!(probe["status"]["settings"]["controller"]["name"], controller, "{name}");
    }
    daemon.await_quiet();
    // The first run of each adds the finalizer.
    assert_eq!((daemon.runs_of("one"), daemon.runs_of("other")), (2, 2));
    // What leaves the one selection is as deleted there, without its clean-up, and is new in the other.
    place.merge(&place.probes(), "one", &json!({ "metadata": { "labels": { "reconciler": "2" } } }));
    let moved = place.await_object(&place.probes(), "one", "the other's status", |p| {
        p["status"]["settings"]["controller"]["name"] == format!("{own}-second")
    });
    let finalizers = json!(["probes.test.capstan.dev/finalizer", "second.test.capstan.dev/finalizer"]);
    assert_eq!(moved["metadata"]["finalizers"], finalizers);
    daemon.await_quiet();
    let primaries = [own.to_owned(), format!("{own}-second")]
        .map(|name| daemon.count("capstan_custom_resources", &format!("controller=\"{name}\"")));
    assert_eq!(primaries, [0, 2]);
}

#[test]
fn s041_versions_of_a_kind_have_a_controller_each_and_what_can_not_be_read_stops_nobody_else() {
    let place = Place::new("s041");
    let things = Things::new(&place, &["v1", "v2"]);
    let manifest =
        |version: &str, selector: &str| things.manifest(version, &format!("labelSelector: {selector}\nretry: none\n"));
    let second = place.renamed(&manifest("v2", "version in (v2)"), "second");
    let daemon = place.daemon(&format!("{}---\n{second}", manifest("v1", "\"!version\"")));
    let spec = json!({ "reconcile": { "do": { "see": ["settings"] }, "status": {} } });
    let both = |round: u32| {
        for (version, labels) in [("v1", json!({})), ("v2", json!({ "version": "v2" }))] {
            let name = format!("{version}-{round}");
            things.create(version, &name, json!({ "metadata": { "labels": labels }, "spec": spec }));
            let path = things.path(version);
            let thing = place.await_object(&path, &name, "its status", |t| t["status"]["settings"].is_object());
            let primary = &thing["status"]["settings"]["controller"]["primary"]["apiVersion"];
            assert_eq!(primary, &json!(format!("{}/{version}", things.group)), "{name}");
        }
    };
    both(1);
    things.create("v2", "bad", json!({ "spec": { "reconcile": "a text" } }));
    let line = daemon.await_line("the run failed");
    assert!(line.contains("/bad") && line.contains("invalid type: string"), "{line}");
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["controller"], place.namespace.name(), "that of v1");
    both(2);
    assert_eq!(place.find(&things.path("v1"), "bad").unwrap()["status"], Value::Null);
    assert_eq!(daemon.get("/readyz").0, 200);
}

#[test]
fn s043_an_owner_reference_of_an_old_version_leads_to_the_primary() {
    // IM-1
    let place = Place::new("s043");
    let things = Things::new(&place, &["v1"]);
    let fields = "workflow:\n  dependents:\n    cm: { apiVersion: v1, kind: ConfigMap }\n";
    let daemon = place.daemon(&things.manifest("v1", fields));
    let map = json!({ "metadata": { "name": "s043" }, "data": { "v": "made" } });
    things.create("v1", "t", json!({ "spec": { "dependents": { "cm": map } } }));
    let made = |map: &Value| map["data"]["v"] == "made";
    let has = || place.await_within(THIRTY_SECONDS, &place.config_maps(), "s043", "what is desired", made);
    let owners = has()["metadata"]["ownerReferences"].clone();
    assert_eq!(owners.as_array().unwrap().len(), 1);
    assert_eq!(owners[0]["apiVersion"], format!("{}/v1", things.group));
    let is_repaired = || {
        place.merge(&place.config_maps(), "s043", &json!({ "data": { "v": "by others" } }));
        assert_eq!(has()["metadata"]["ownerReferences"], owners);
    };
    things.change(&["v1", "v2"]);
    is_repaired();
    assert!(daemon.stop().success());
    let daemon = place.daemon(&things.manifest("v2", fields));
    daemon.await_quiet();
    is_repaired();
}

#[test]
fn s151_two_controllers_share_the_informer_of_a_kind() {
    // PO-1
    let place = Place::new("s151");
    let source = "sources:\n  maps: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { annotations: {} } } }\n";
    let manifest = |kind: &str| place.manifest("probe", kind, "", source);
    let pages = place.renamed(&manifest("{ apiVersion: sample.capstan.dev/v1, kind: WebPage }"), "pages");
    let daemon = place.daemon(&format!("{}---\n{pages}", manifest("{ apiVersion: test.capstan.dev/v1, kind: Probe }")));
    place.probe("p", json!({}));
    place.create("sample.capstan.dev/v1", "WebPage", &place.pages(), "page", json!({ "spec": { "html": "" } }));
    daemon.await_runs(4);
    daemon.await_quiet();
    // The first run of each adds the finalizer.
    assert_eq!((daemon.runs_of("p"), daemon.runs_of("page")), (2, 2));
    let informers = daemon.informers(place.namespace.name());
    let mut kinds: Vec<_> = informers.iter().map(|informer| informer["scope"].as_str().unwrap().to_owned()).collect();
    kinds.sort_unstable();
    let scopes = ["sample.capstan.dev/v1 WebPage", "test.capstan.dev/v1 Probe", "v1 ConfigMap"];
    assert_eq!(kinds, scopes.map(|kind| format!("{kind} in {}", place.namespace.name())));
    for name in ["p", "page"] {
        place.cluster.api().create(&place.config_maps(), &place.map_of(name, name, json!({}))).unwrap();
        wait::until(SOON, "a run", || (daemon.runs_of(name) == 3).then_some(())).unwrap();
    }
}

#[test]
fn s162_a_primary_that_can_not_be_read_keeps_nobody_from_working() {
    let place = Place::new("s162");
    let bad = json!({ "reconcile": "a text" });
    place.probe("p", bad);
    let daemon = place.daemon(&place.probe_manifest(""));
    let line = daemon.await_line("the run failed");
    assert!(line.contains("/p\"") && line.contains("invalid type: string"), "{line}");
    let good = json!({ "reconcile": { "status": { "seen": true } } });
    place.probe("other", good.clone());
    let seen = |name: &str| place.await_object(&place.probes(), name, "its status", |p| p["status"]["seen"] == true);
    seen("other");
    // Nor can it be cleaned up: its finalizer is taken away by hand.
    place.delete(&place.probes(), "p");
    let nothing = json!([{ "op": "remove", "path": "/metadata/finalizers" }]);
    place.cluster.api().call(&format!("{}/p", place.probes()), Call::JsonPatch(&nothing)).unwrap();
    place.await_gone(&place.probes(), "p");
    place.probe("p", good);
    seen("p");
    assert_eq!(daemon.get("/readyz").0, 200);
}

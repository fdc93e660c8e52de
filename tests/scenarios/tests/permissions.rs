//! What a component can't do, whatever it tries: beyond its grants, beyond its namespaces, and by a verb that means another.

use cluster::{Namespace, wait};
use scenarios::{Daemon, LATER, Place, SOON, Start};
use serde_json::{Value, json};

/// Counts what a component asks for and may not have.
const REFUSED: &str = "capstan_plugin_connections_total";

const PRIMARY: &str = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";

/// A test's own place, and a namespace of somebody else.
struct Two {
    place: Place,
    other: Namespace,
}

impl Two {
    fn new(prefix: &str) -> Self {
        let place = Place::new(prefix);
        let other = place.cluster.namespace(&format!("{prefix}-other")).unwrap();
        Self { place, other }
    }

    /// Starts a daemon on a controller of the first namespace, whose plugin has these grants.
    fn daemon(&self, grants: &str, fields: &str) -> Daemon {
        self.place.daemon(&self.manifest(grants, fields))
    }

    fn manifest(&self, grants: &str, fields: &str) -> String {
        let plugin = format!("capabilities: {{ kubernetes: [{grants}] }}\n");
        self.place.manifest("probe", PRIMARY, &plugin, fields)
    }

    fn name(&self) -> &str {
        self.place.namespace.name()
    }

    /// Creates a config map of somebody in a namespace.
    fn safe(&self, namespace: &Namespace) -> String {
        let maps = namespace.path("v1", "configmaps");
        self.place.create("v1", "ConfigMap", &maps, "safe", json!({ "data": { "v": "safe" } }));
        maps
    }

    /// Lets a probe do these steps, and returns its status.
    fn seen(&self, steps: Value) -> Value {
        let status = json!({ "done": true });
        let spec = json!({ "reconcile": { "do": steps, "status": status } });
        self.place.probe("p", spec);
        let done = |probe: &Value| probe["status"]["done"] == true;
        self.place.await_object(&self.place.probes(), "p", "its status", done)["status"].clone()
    }
}

fn target(kind: &str, namespace: &str, name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": kind, "namespace": namespace, "name": name })
}

fn map(namespace: &str, name: &str, more: Value) -> Value {
    let mut object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "v": "taken" } });
    object["metadata"] = more;
    object["metadata"]["name"] = name.into();
    object["metadata"]["namespace"] = namespace.into();
    object
}

/// Every way to write a config map, each as a step that may fail.
fn all_writes(namespace: &str, name: &str, metadata: &Value) -> Value {
    let object = map(namespace, name, metadata.clone());
    let target = target("ConfigMap", namespace, name);
    let add = json!([{ "op": "add", "path": "/data/w", "value": "taken" }]);
    let step = |name: &str, mut write: Value| {
        if write["verb"] != "remove" {
            write["mode"] = "plain".into();
        }
        json!({ "write": write, "mayFail": true, "as": name })
    };
    json!([
        step("apply", json!({ "verb": "apply", "object": object })),
        step("create", json!({ "verb": "create", "object": object })),
        step("update", json!({ "verb": "update", "object": object })),
        step("edit", json!({ "verb": "edit", "object": object, "actual": {} })),
        step("jsonPatch", json!({ "verb": "jsonPatch", "target": target, "patch": add })),
        step("mergePatch", json!({ "verb": "mergePatch", "target": target, "patch": { "data": { "v": "taken" } } })),
        step("status", json!({ "verb": "mergePatch", "target": target, "patch": {}, "subresource": "status" })),
        step("remove", json!({ "verb": "remove", "target": target })),
    ])
}

const WRITES: [&str; 8] = ["apply", "create", "update", "edit", "jsonPatch", "mergePatch", "status", "remove"];

fn assert_denied(status: &Value, writes: &[&str], text: &str) {
    for name in writes {
        let told = &status[name];
        assert_eq!(told["refused"], "denied", "{name}: {status}");
        let message = told["message"].as_str().unwrap();
        assert!(message.contains(text), "{name}: {message}");
    }
}

const MAPS: &str = "apiVersion: v1, kind: ConfigMap, verbs: [get, create, apply, update, patch, delete]";

#[test]
fn a_grant_ends_where_the_controller_does() {
    let two = Two::new("bounds");
    let maps = two.safe(&two.other);
    let daemon = two.daemon(&format!("{{ {MAPS} }}"), "");
    let status = two.seen(all_writes(two.other.name(), "safe", &json!({})));
    let text = format!("but not in namespace {}", two.other.name());
    assert_denied(&status, &WRITES, &text);
    daemon.blames(two.name(), &text, REFUSED);
    assert_eq!(two.place.find(&maps, "safe").unwrap()["data"], json!({ "v": "safe" }));
}

#[test]
fn a_grant_that_names_another_namespace_holds_there() {
    let two = Two::new("names");
    let maps = two.safe(&two.other);
    let other = two.other.name();
    let _daemon = two.daemon(&format!("{{ {MAPS}, namespaces: [{other}] }}"), "");
    let write = |namespace: &str| json!({ "verb": "mergePatch", "mode": "plain", "patch": { "data": { "v": "new" } }, "target": target("ConfigMap", namespace, "safe") });
    let status = two.seen(json!([
        { "write": write(other) },
        { "write": write(two.name()), "mayFail": true, "as": "here" },
    ]));
    assert_denied(&status, &["here"], "but not in namespace");
    assert_eq!(two.place.find(&maps, "safe").unwrap()["data"]["v"], "new");
}

#[test]
fn what_lives_in_no_namespace_is_written_only_if_that_is_said() {
    let two = Two::new("scopes");
    let granted = "{ apiVersion: v1, kind: Namespace, verbs: [patch] }";
    let _daemon = two.daemon(granted, "");
    let target = json!({ "apiVersion": "v1", "kind": "Namespace", "name": two.other.name() });
    let patch = json!({ "metadata": { "labels": { "taken": "yes" } } });
    let status = two.seen(json!([
        { "write": { "verb": "mergePatch", "mode": "plain", "target": target, "patch": patch }, "mayFail": true, "as": "it" },
    ]));
    assert_denied(&status, &["it"], "`namespaces: all`");
}

#[test]
fn nothing_reaches_the_daemons_own_namespace() {
    let two = Two::new("home");
    let home = two.other.name();
    let maps = two.safe(&two.other);
    let fields = "sources:\n  maps: { informer: { apiVersion: v1, kind: ConfigMap, namespaces: all, mapper: { annotations: { acrossNamespaces: true } } } }\n\
                  workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, garbageCollected: false, mapping: { acrossNamespaces: true } } } }\n";
    let manifest = two.manifest(&format!("{{ {MAPS}, namespaces: all }}"), fields);
    let namespaces = format!("namespaces: [{}]", two.name());
    let manifest = manifest.replace(&namespaces, &format!("namespaces: [{}, {home}]", two.name()));
    let start = || Start::new(&manifest);
    let daemon = start().arguments(&["--namespace", home]).run(&two.place).until_ready();
    // A dependent there is none of the daemon's, nor is one that stands there under the name.
    let cm = map(home, "safe", json!({}));
    two.place.probe("q", json!({ "dependents": { "cm": cm } }));
    daemon.await_line("is out of reach");
    let mut steps = all_writes(home, "safe", &json!({}));
    let everywhere = json!({ "read": { "in": { "source": "maps" }, "select": { "namespace": home } }, "as": "all" });
    let named = json!({ "read": { "in": { "source": "maps" }, "select": { "named": { "namespace": home, "name": "safe" } } }, "as": "named" });
    steps.as_array_mut().unwrap().extend([everywhere, named]);
    let fine = map(two.name(), "fine", json!({}));
    let spec = json!({ "dependents": { "cm": fine }, "reconcile": { "do": steps, "status": { "done": true } } });
    two.place.probe("p", spec);
    let probe = two.place.await_object(&two.place.probes(), "p", "its status", |p| p["status"]["done"] == true);
    assert_denied(&probe["status"], &WRITES, "the daemon's own namespace");
    daemon.blames(two.name(), "the daemon's own namespace, which its user can open", REFUSED);
    assert_eq!(probe["status"]["all"], json!([]), "{probe}");
    assert_eq!(probe["status"]["named"], Value::Null);
    let safe = two.place.find(&maps, "safe").unwrap();
    assert_eq!(safe["data"]["v"], "safe");
    assert_eq!(safe["metadata"]["annotations"], Value::Null);
    drop(daemon);
    // Opened by the daemon's user.
    let daemon = start().arguments(&["--namespace", home, "--allow-own-namespace"]).run(&two.place).until_ready();
    two.place.await_object(&maps, "safe", "a patch", |map| map["data"]["v"] == "taken");
    drop(daemon);
}

#[test]
fn the_daemons_own_namespace_is_no_primary_of_anybody() {
    // IN-1
    let two = Two::new("space");
    let (own, home) = (two.name(), two.other.name());
    let space = |name: &str| two.place.cluster.api().get(&format!("/api/v1/namespaces/{name}")).unwrap();
    let label = json!({ "metadata": { "labels": { "test.capstan.dev/space": own } } });
    for name in [own, home] {
        two.place.cluster.api().merge(&format!("/api/v1/namespaces/{name}"), &label).unwrap();
    }
    let fields = format!("labelSelector: test.capstan.dev/space={own}\nfinalizer: {own}.test.capstan.dev/f\n");
    let manifest = two.place.manifest("probe", "{ apiVersion: v1, kind: Namespace }", "", &fields);
    let manifest = manifest.replace(&format!("namespaces: [{own}]"), "namespaces: all");
    let daemon = Start::new(&manifest).arguments(&["--namespace", home]).run(&two.place).until_ready();
    daemon.await_line("nothing is done for the daemon's own namespace");
    let has_it = |name: &str| !space(name)["metadata"]["finalizers"].is_null();
    wait::until(SOON, "the finalizer of the other", || has_it(own).then_some(())).unwrap();
    daemon.await_quiet();
    assert!(!has_it(home), "{}", space(home));
    assert!(daemon.stop().success());
    // Nobody would remove it any more.
    let none = json!({ "metadata": { "finalizers": null } });
    two.place.cluster.api().merge(&format!("/api/v1/namespaces/{own}"), &none).unwrap();
}

/// Has admission refuse all changes of config maps in a namespace, and say what they hold, until it is dropped.
struct Telling<'a> {
    place: &'a Place,
    paths: [String; 2],
}

impl<'a> Telling<'a> {
    fn begin(place: &'a Place, map: &str) -> Self {
        const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
        let (api, name) = (place.cluster.api(), place.namespace.name());
        let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE", "DELETE"], "resources": ["configmaps"] });
        let here = json!({ "matchLabels": { "kubernetes.io/metadata.name": name } });
        let says = json!({ "expression": "false", "messageExpression": "'it holds ' + oldObject.data.v", "reason": "Forbidden" });
        let policy = json!({
            "matchConstraints": { "namespaceSelector": here, "resourceRules": [rule] },
            "validations": [says],
        });
        let binding = json!({ "policyName": name, "validationActions": ["Deny"] });
        let paths = [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)].map(
            |(plural, spec)| {
                let path = format!("{GROUP}/{plural}");
                api.create(&path, &json!({ "metadata": { "name": name }, "spec": spec })).unwrap();
                format!("{path}/{name}")
            },
        );
        // The API server takes a moment to know of it.
        let patch = json!({ "metadata": { "labels": { "touched": "yes" } } });
        wait::until(LATER, "a refusal", || {
            let refused = api.merge(map, &patch).err().filter(|error| error.code() == Some(403));
            refused.map(drop)
        })
        .unwrap();
        Self { place, paths }
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        for path in &self.paths {
            self.place.cluster.api().delete(path).unwrap();
        }
    }
}

#[test]
fn a_refusal_by_admission_tells_of_an_object_only_whoever_may_see_it() {
    let two = Two::new("telling");
    let maps = two.place.config_maps();
    two.place.create("v1", "ConfigMap", &maps, "safe", json!({ "data": { "v": "s3cr3t" } }));
    let _telling = Telling::begin(&two.place, &format!("{maps}/safe"));
    let target = target("ConfigMap", two.name(), "safe");
    let patch = json!({ "verb": "mergePatch", "mode": "plain", "target": target, "patch": { "data": { "w": "x" } } });
    let steps = json!([
        { "write": patch, "mayFail": true, "as": "patched" },
        { "write": { "verb": "remove", "target": target }, "mayFail": true, "as": "removed" },
    ]);
    for (verbs, seen) in [("patch, delete", false), ("get, patch, delete", true)] {
        let daemon = two.daemon(&format!("{{ apiVersion: v1, kind: ConfigMap, verbs: [{verbs}] }}"), "");
        let status = two.seen(steps.clone());
        for step in ["patched", "removed"] {
            assert_eq!(status[step]["refused"], "rejected", "{verbs} {step}: {status}");
            let message = status[step]["message"].as_str().unwrap();
            assert_eq!(message.contains("it holds s3cr3t"), seen, "{verbs} {step}: {message}");
            assert_eq!(message.contains("why is told to those who may see the object"), !seen, "{message}");
        }
        two.place.delete(&two.place.probes(), "p");
        two.place.await_gone(&two.place.probes(), "p");
        drop(daemon);
    }
}

#[test]
fn a_dependent_lets_nobody_read_what_is_not_the_primarys() {
    let two = Two::new("loot");
    let secrets = two.place.namespace.path("v1", "secrets");
    two.place.create("v1", "Secret", &secrets, "loot", json!({ "stringData": { "k": "v" } }));
    let fields = "workflow: { dependents: { sec: { apiVersion: v1, kind: Secret } } }\n";
    let daemon = two.place.daemon(&two.place.probe_manifest(fields));
    let namespace = two.name();
    let own =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "own" }, "stringData": { "k": "w" } });
    let kind = json!({ "kind": { "apiVersion": "v1", "kind": "Secret" } });
    let source = json!({ "source": "sec" });
    let read = |place: &Value, select: Value, name: &str| json!({ "read": { "in": place, "select": select }, "show": ["/data/k"], "mayFail": true, "as": name });
    let by_name = |name: &str| json!({ "named": { "namespace": namespace, "name": name } });
    let seen = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": namespace, "name": "loot" } });
    let steps = json!([
        read(&source, json!("everywhere"), "everywhere"),
        read(&source, json!({ "namespace": namespace }), "namespace"),
        read(&kind, json!("everywhere"), "kind"),
        read(&source, by_name("loot"), "loot"),
        read(&kind, by_name("loot"), "alsoLoot"),
        read(&source, by_name("own"), "own"),
        read(&source, json!("related"), "related"),
        { "compare": { "by": "applied", "actual": seen, "desired": seen }, "mayFail": true, "as": "compare" },
    ]);
    let spec = json!({ "dependents": { "sec": own }, "reconcile": { "do": steps, "status": { "done": true } } });
    two.place.probe("p", spec);
    let probe = two.place.await_object(&two.place.probes(), "p", "its status", |p| p["status"]["done"] == true);
    let status = &probe["status"];
    assert_denied(status, &["everywhere", "namespace", "kind"], "does not permit `get` on v1 Secret");
    daemon.blames(namespace, "does not permit `get` on v1 Secret", REFUSED);
    for name in ["loot", "alsoLoot"] {
        assert_eq!(status[name], Value::Null, "{status}");
    }
    assert_eq!(status["compare"]["refused"], "missing", "{status}");
    let own = json!({ "/data/k": "dw==" });
    assert_eq!(status["own"], own, "{status}");
    assert_eq!(status["related"], json!([own]), "{status}");
}

#[test]
fn a_write_that_writes_nothing_shows_nothing() {
    // RO-5, RO-6
    let two = Two::new("peek");
    let secrets = two.place.namespace.path("v1", "secrets");
    two.place.create("v1", "Secret", &secrets, "loot", json!({ "stringData": { "k": "v" } }));
    let fields = "workflow: { invocation: explicit, dependents: { sec: { apiVersion: v1, kind: Secret } } }\n";
    let _daemon = two.daemon("{ apiVersion: v1, kind: Secret, verbs: [apply, patch] }", fields);
    let object =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": two.name(), "name": "loot" } });
    let target = target("Secret", two.name(), "loot");
    let write = |name: &str, write: Value| json!({ "write": write, "show": ["/data/k", "/metadata/name"], "as": name });
    let names = ["merge", "json", "apply", "edit", "plain"];
    let status = two.seen(json!([
        write("merge", json!({ "verb": "mergePatch", "target": target, "patch": {} })),
        write("json", json!({ "verb": "jsonPatch", "target": target, "patch": [] })),
        write("edit", json!({ "verb": "edit", "object": object, "compareBy": "generic" })),
        write("plain", json!({ "verb": "mergePatch", "target": target, "patch": {}, "mode": "plain" })),
        write("apply", json!({ "verb": "apply", "object": object })),
    ]));
    for name in names {
        assert_eq!(status[name], json!({ "/data/k": null, "/metadata/name": "loot" }), "{name}: {status}");
    }
}

#[test]
fn nothing_is_deleted_or_held_back_without_delete() {
    let two = Two::new("ties");
    let maps = two.safe(&two.place.namespace);
    let held = json!({ "metadata": { "finalizers": ["other.dev/f"] } });
    two.place.create("v1", "ConfigMap", &maps, "held", held);
    let grants = "{ apiVersion: v1, kind: ConfigMap, verbs: [create, apply, update, patch] }, { apiVersion: test.capstan.dev/v1, kind: Probe, verbs: [patch, apply] }";
    let sources = "sources:\n  maps: { informer: { apiVersion: v1, kind: ConfigMap } }\n";
    let daemon = two.daemon(grants, sources);
    let nobody = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000" });
    let owned = json!({ "ownerReferences": [nobody] });
    let object = map(two.name(), "safe", owned.clone());
    let made = map(two.name(), "made", owned.clone());
    let step = |name: &str, write: Value| json!({ "write": write, "mayFail": true, "as": name });
    let on = |name: &str| target("ConfigMap", two.name(), name);
    let add = json!([{ "op": "add", "path": "/metadata/ownerReferences", "value": [nobody] }]);
    let loosen = json!([{ "op": "remove", "path": "/metadata/finalizers" }]);
    let mut released = map(two.name(), "held", json!({ "finalizers": [] }));
    released["metadata"]["resourceVersion"] =
        two.place.find(&maps, "held").unwrap()["metadata"]["resourceVersion"].clone();
    let steps = json!([
        step("apply", json!({ "verb": "apply", "object": object })),
        step("create", json!({ "verb": "create", "object": made })),
        step("edit", json!({ "verb": "edit", "object": object })),
        step("jsonPatch", json!({ "verb": "jsonPatch", "target": on("safe"), "patch": add })),
        step("mergePatch", json!({ "verb": "mergePatch", "target": on("safe"), "patch": { "metadata": owned } })),
        step("update", json!({ "verb": "update", "object": released })),
        step("loosen", json!({ "verb": "jsonPatch", "target": on("held"), "patch": loosen })),
        step(
            "mergeLoosen",
            json!({ "verb": "mergePatch", "target": on("held"), "patch": { "metadata": { "finalizers": null } } })
        ),
        step(
            "hold",
            json!({ "verb": "apply", "object": map(two.name(), "safe", json!({ "finalizers": ["third.dev/f"] })) })
        ),
        step("addFinalizer", json!({ "verb": "addFinalizer", "finalizer": "third.dev/f" })),
    ]);
    let status = two.seen(steps);
    let writes = [
        "apply",
        "create",
        "edit",
        "jsonPatch",
        "mergePatch",
        "update",
        "loosen",
        "mergeLoosen",
        "hold",
        "addFinalizer",
    ];
    assert_denied(&status, &writes, "`delete`");
    daemon.blames(two.name(), "`delete`", REFUSED);
    let safe = two.place.find(&maps, "safe").unwrap();
    assert_eq!((&safe["data"]["v"], &safe["metadata"]["ownerReferences"]), (&json!("safe"), &Value::Null));
    assert_eq!(two.place.find(&maps, "held").unwrap()["metadata"]["finalizers"], json!(["other.dev/f"]));
}

#[test]
fn an_object_is_adopted_only_if_it_is_new() {
    let two = Two::new("adopt");
    let maps = two.safe(&two.place.namespace);
    // Nothing watches config maps, so that nobody knows which there are.
    let daemon = two.daemon("{ apiVersion: v1, kind: ConfigMap, verbs: [apply] }", "");
    let probe = two.place.probe("p", json!({}));
    daemon.await_quiet();
    let owner =
        json!({ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "name": "p", "uid": probe["metadata"]["uid"] });
    let write = |name: &str| json!({ "write": { "verb": "apply", "mode": "plain", "object": map(two.name(), name, json!({ "ownerReferences": [owner] })) }, "mayFail": true, "as": name });
    let steps = json!([write("safe"), write("new")]);
    let spec = json!({ "spec": { "reconcile": { "do": steps, "status": { "done": true } } } });
    two.place.merge(&two.place.probes(), "p", &spec);
    let probe = two.place.await_object(&two.place.probes(), "p", "its status", |p| p["status"]["done"] == true);
    assert_eq!(probe["status"]["safe"]["refused"], "conflict", "{probe}");
    assert_eq!(two.place.find(&maps, "safe").unwrap()["data"]["v"], "safe");
    let new = two.place.find(&maps, "new").unwrap();
    assert_eq!(new["metadata"]["ownerReferences"][0]["name"], "p");
}

#[test]
fn an_answer_of_reconcile_ties_the_primary_to_nothing() {
    let two = Two::new("answer");
    for (serves, fields) in [("applied", ""), ("patched", "serverSideApply: false\n")] {
        let daemon = two.place.daemon(&two.place.probe_manifest(fields));
        let nobody = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000" });
        let object = json!({ "metadata": { "ownerReferences": [nobody] } });
        two.place.probe(serves, json!({ "reconcile": { "object": object } }));
        let line = daemon.await_line("it would be owned by ConfigMap gone");
        assert!(line.contains("the answer of `reconcile` (object)"), "{line}");
        daemon.blames(two.name(), "it would be owned by ConfigMap gone", "capstan_reconciliations_failure_total");
        let probe = two.place.find(&two.place.probes(), serves).unwrap();
        assert_eq!(probe["metadata"]["ownerReferences"], Value::Null);
        assert_eq!(probe["metadata"]["deletionTimestamp"], Value::Null);
    }
}

#[test]
fn an_annotation_leads_to_no_primary_of_another_namespace() {
    let two = Two::new("mapped");
    let (here, other) = (two.name(), two.other.name());
    let source = |more: &str| {
        format!(
            "sources:\n  maps: {{ informer: {{ apiVersion: v1, kind: ConfigMap, namespaces: [{here}, {other}], mapper: {{ annotations: {{ {more} }} }} }} }}\n"
        )
    };
    let tags = json!({ "capstan.dev/primary-name": "p", "capstan.dev/primary-namespace": here });
    let maps = two.other.path("v1", "configmaps");
    two.place.create("v1", "ConfigMap", &maps, "attached", json!({ "metadata": { "annotations": tags } }));
    let read = json!([{ "read": { "in": { "source": "maps" }, "select": "related" } }]);
    for (more, expected) in [("", json!([])), ("acrossNamespaces: true", json!(["attached"]))] {
        let daemon = two.place.daemon(&two.place.probe_manifest(&source(more)));
        two.place.probe("p", json!({ "reconcile": { "do": read, "status": { "done": true } } }));
        let probe = two.place.await_object(&two.place.probes(), "p", "its status", |p| p["status"]["done"] == true);
        assert_eq!(probe["status"]["read"], expected, "{more}");
        daemon.await_quiet();
        let runs = daemon.runs();
        two.place.merge(&maps, "attached", &json!({ "data": { "touched": more } }));
        if more.is_empty() {
            daemon.await_quiet();
            assert_eq!(daemon.runs(), runs, "nobody is woken");
        } else {
            daemon.await_runs(runs + 1);
        }
        two.place.delete(&two.place.probes(), "p");
        two.place.await_gone(&two.place.probes(), "p");
    }
}

#[test]
fn a_refused_write_shows_nothing_of_what_may_not_be_read() {
    let two = Two::new("quoted");
    let secrets = two.place.namespace.path("v1", "secrets");
    let fields = json!({ "stringData": { "k": "hunter2 pass!" } });
    two.place.create("v1", "Secret", &secrets, "safe", fields);
    let daemon = two.daemon("{ apiVersion: v1, kind: Secret, verbs: [patch] }", "");
    let target = target("Secret", two.name(), "safe");
    let copy = |path: &str| {
        let patch = json!([{ "op": "copy", "from": "/data/k", "path": path }]);
        json!({ "write": { "verb": "jsonPatch", "mode": "plain", "target": target, "patch": patch }, "mayFail": true, "as": path })
    };
    let paths = ["/metadata/labels", "/metadata/labels/x", "/type", "/immutable"];
    let status = two.seen(paths.map(copy).into());
    let encoded = "aHVudGVyMiBwYXNzIQ";
    for path in paths {
        let message = status[path]["message"].as_str().unwrap();
        assert!(message.contains("which takes `get`"), "{path}: {message}");
        assert!(!message.contains(encoded), "{path}: {message}");
    }
    assert!(!daemon.log().contains(encoded));
}

#[test]
fn a_grant_opens_no_door_beside_the_object() {
    let two = Two::new("doors");
    let _daemon = two.daemon("{ apiVersion: v1, kind: Pod, verbs: [create, patch, update] }", "");
    let target = target("Pod", two.name(), "p");
    let doors = ["attach", "exec", "portforward", "proxy", "token"];
    let write = |name: &str| json!({ "write": { "verb": "mergePatch", "subresource": name, "target": target, "patch": {} }, "mayFail": true, "as": name });
    let status = two.seen(doors.map(write).into());
    assert_denied(&status, &doors, "components can't write the subresource");
}

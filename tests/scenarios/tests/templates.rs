//! What the manifest says by templates, with a component and without one.

use std::fs;

use cluster::{Query, wait};
use scenarios::{Daemon, Folder, LATER, Place, SOON, repository, run};
use serde_json::{Value, json};

const MAP: &str = "apiVersion: v1, kind: ConfigMap";

/// Returns a manifest of one controller over probes of this namespace that has no component.
fn manifest(place: &Place, fields: &str) -> String {
    let name = place.namespace.name();
    let fields: String = fields.lines().map(|line| format!("      {line}\n")).collect();
    format!(
        "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: {name} }}\nspec:\n  controllers:\n    {name}:\n      primary: {{ apiVersion: test.capstan.dev/v1, kind: Probe }}\n      namespaces: [{name}]\n{fields}"
    )
}

/// Returns the sample's manifest, for this namespace alone.
fn sample(place: &Place) -> String {
    let file = repository().join("plugins/configmap-copy/configmap-copy.yaml");
    let primary = "primary: { apiVersion: sample.capstan.dev/v1, kind: ConfigMapCopy }";
    let sample = fs::read_to_string(file).unwrap();
    assert!(sample.contains(primary));
    sample.replace(primary, &format!("{primary}\n      namespaces: [{}]", place.namespace.name()))
}

/// Returns what the daemon has written since.
fn writes_since(place: &Place, mark: cluster::Mark) -> Vec<String> {
    let query = Query::since(mark).user_agent("capstan/").namespace(place.namespace.name());
    let writes = place.cluster.audit().unwrap().requests(&query.writes()).unwrap();
    let writes = writes.iter().filter(|write| write.resource != "events");
    let mut writes: Vec<_> =
        writes.map(|write| format!("{} {}/{} {}", write.verb, write.resource, write.name, write.subresource)).collect();
    writes.sort();
    writes
}

/// Waits until a config map has this data, and returns it.
fn await_data(place: &Place, name: &str, data: Value) -> Value {
    place.await_object(&place.config_maps(), name, &format!("{data}"), |map| map["data"] == data)
}

/// Waits until a primary has this status.
fn await_status(place: &Place, path: &str, name: &str, status: Value) {
    place.await_object(path, name, &format!("{status}"), |object| object["status"] == status);
}

fn no_run_failed(daemon: &Daemon) {
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
}

#[test]
fn the_sample_copies_a_config_map_without_a_component() {
    // DT-1, DT-3, DT-5, DT-6
    let place = Place::new("templates-sample");
    let daemon = place.daemon(&sample(&place));
    let (maps, copies) = (place.config_maps(), place.namespace.path("sample.capstan.dev/v1", "configmapcopies"));
    let copy = json!({ "spec": { "source": "settings", "labels": { "app": "one" } } });
    let copy = place.create("sample.capstan.dev/v1", "ConfigMapCopy", &copies, "copy", copy);
    assert_eq!(copy["metadata"]["finalizers"], Value::Null);
    // It waits for what is not there.
    await_status(&place, &copies, "copy", json!({ "ready": false, "keys": 0 }));
    place.create("v1", "ConfigMap", &maps, "settings", json!({ "data": { "theme": "dark" } }));
    let made = await_data(&place, "settings-copy", json!({ "theme": "dark" }));
    let (metadata, namespace) = (&made["metadata"], place.namespace.name());
    assert_eq!(metadata["labels"], json!({ "app": "one" }));
    assert_eq!(metadata["annotations"]["sample.capstan.dev/copy-of"], format!("{namespace}/settings"));
    assert_eq!(metadata["ownerReferences"][0]["uid"], copy["metadata"]["uid"]);
    await_status(&place, &copies, "copy", json!({ "ready": true, "copy": "settings-copy", "keys": 1 }));
    // The source changes, then the spec.
    place.merge(&maps, "settings", &json!({ "data": { "theme": "light", "font": "large" } }));
    await_data(&place, "settings-copy", json!({ "theme": "light", "font": "large" }));
    await_status(&place, &copies, "copy", json!({ "ready": true, "copy": "settings-copy", "keys": 2 }));
    place.merge(&maps, "settings", &json!({ "data": { "font": null } }));
    await_data(&place, "settings-copy", json!({ "theme": "light" }));
    place.merge(&copies, "copy", &json!({ "spec": { "labels": { "app": null, "tier": "two" } } }));
    let labelled = |map: &Value| map["metadata"]["labels"] == json!({ "tier": "two" });
    place.await_object(&maps, "settings-copy", "other labels", labelled);
    // A run in which nothing differs writes nothing.
    daemon.await_quiet();
    let (mark, runs) = (place.cluster.audit().unwrap().mark().unwrap(), daemon.runs());
    place.merge(&maps, "settings", &json!({ "metadata": { "labels": { "of": "no-matter" } } }));
    daemon.await_runs(runs + 1);
    daemon.await_quiet();
    assert_eq!(writes_since(&place, mark), [""; 0]);
    // What somebody else changes is put right, by one write.
    place.merge(&maps, "settings-copy", &json!({ "data": { "theme": "by hand" } }));
    await_data(&place, "settings-copy", json!({ "theme": "light" }));
    daemon.await_quiet();
    assert_eq!(writes_since(&place, mark), ["patch configmaps/settings-copy "]);
    // With another name the former copy goes.
    place.merge(&copies, "copy", &json!({ "spec": { "suffix": "twin" } }));
    await_data(&place, "settings-twin", json!({ "theme": "light" }));
    place.await_gone(&maps, "settings-copy");
    // Without its source it stays.
    place.delete(&maps, "settings");
    await_status(&place, &copies, "copy", json!({ "ready": false, "copy": "settings-twin", "keys": 1 }));
    place.delete(&copies, "copy");
    place.await_gone(&maps, "settings-twin");
    no_run_failed(&daemon);
}

#[test]
fn the_sample_is_right_and_its_operator_is_shown_as_one_without_a_component() {
    // DT-7
    let place = Place::new("templates-shown");
    let folder = repository().join("plugins/configmap-copy");
    let [manifest, definition] =
        ["configmap-copy.yaml", "crd.yaml"].map(|file| folder.join(file).display().to_string());
    let (code, output, errors) = run(&["check", "-m", &manifest, "--crd", &definition]);
    assert_eq!((code, &*errors), (0, ""), "{output}");
    assert!(output.contains("ok     controller  configmap-copy"), "{output}");
    let daemon = place.daemon(&sample(&place));
    let row = daemon.await_plugin("templates", "active", 1);
    let shown = ["operator", "digest", "component", "usage", "controllers"].map(|field| row[field].clone());
    let expected = [json!("configmap-copy"), Value::Null, json!(""), Value::Null, json!(["configmap-copy"])];
    assert_eq!(shown, expected, "{row}");
    assert_eq!(daemon.count("capstan_plugin_in_force", "plugin=\"templates\""), 1);
    let copies = place.namespace.path("sample.capstan.dev/v1", "configmapcopies");
    place.create("sample.capstan.dev/v1", "ConfigMapCopy", &copies, "copy", json!({ "spec": { "source": "no" } }));
    await_status(&place, &copies, "copy", json!({ "ready": false, "keys": 0 }));
    daemon.await_quiet();
    let spent = daemon.metric("capstan_plugin_cpu_seconds_total", "plugin=\"templates\"");
    assert!(spent > 0.0, "its runs are counted as its own");
    let (code, table, _) = run(&["plugins", "--address", daemon.address()]);
    let line: Vec<_> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(code, 0, "{table}");
    assert_eq!(line[..5], ["configmap-copy", "templates", "active", "1", "-"]);
    assert_eq!(line[6..], ["1", "0", "-", "-", "-", "-"], "one primary, which does not fail, and no component");
    assert_eq!(daemon.controller("configmap-copy").unwrap()["phase"], "running", "{}", daemon.controllers());
}

#[test]
fn a_missing_field_is_told_with_its_place_and_what_does_not_need_it_goes_on() {
    // DT-4, DT-6
    let place = Place::new("templates-missing");
    let fields = format!(
        r#"workflow:
  dependents:
    page: {{ {MAP}, desired: {{ template: {{ metadata: {{ name: page }}, data: {{ index.html: "<h1>${{primary.spec.title}}</h1>" }} }} }} }}
    other: {{ {MAP}, desired: {{ template: {{ metadata: {{ name: other }}, data: {{ of: "${{primary.metadata.name}}" }} }} }} }}
    after: {{ {MAP}, dependsOn: [page], desired: {{ template: {{ metadata: {{ name: after }}, data: {{ uid: "${{dependents.page.metadata.uid}}" }} }} }} }}
status: {{ template: {{ ready: "${{workflow.ready.page}}", after: "${{workflow.ready.after}}", problem: "${{has(workflow.failed.page) ? workflow.failed.page : null}}" }} }}
"#
    );
    let daemon = place.daemon(&manifest(&place, &fields));
    let why =
        "the template at /data/index.html: CEL expression \"primary.spec.title\" failed: there is no field \"title\"";
    place.probe("p", json!({}));
    await_data(&place, "other", json!({ "of": "p" }));
    await_status(&place, &place.probes(), "p", json!({ "ready": false, "after": false, "problem": why }));
    daemon.await_line(&format!("the workflow failed: page: {}", why.replace('"', "\\\"")));
    assert_eq!(place.find(&place.config_maps(), "after"), None, "it waits");
    place.merge(&place.probes(), "p", &json!({ "spec": { "title": "one" } }));
    let page = await_data(&place, "page", json!({ "index.html": "<h1>one</h1>" }));
    await_data(&place, "after", json!({ "uid": page["metadata"]["uid"] }));
    await_status(&place, &place.probes(), "p", json!({ "ready": true, "after": true }));
}

#[test]
fn what_a_secret_holds_is_copied_and_never_told() {
    // DT-4, SSA-7
    const HIDDEN: &str = "aGlkZGVu";
    let place = Place::new("templates-secret");
    let fields = format!(
        r#"indexes: {{ by-secret: {{ pointer: /spec/secret }} }}
sources: {{ secrets: {{ informer: {{ apiVersion: v1, kind: Secret, mapper: {{ index: {{ name: by-secret }} }} }} }} }}
workflow:
  dependents:
    secret: {{ apiVersion: v1, kind: Secret, source: secrets, readOnly: true, name: {{ cel: primary.spec.secret }}, readyPostcondition: {{ cel: dependent != null }} }}
    copy: {{ apiVersion: v1, kind: Secret, dependsOn: [secret], desired: {{ template: {{ metadata: {{ name: copy }}, data: "${{dependents.secret.data}}" }} }} }}
    map: {{ {MAP}, dependsOn: [secret], desired: {{ template: {{ metadata: {{ name: map }}, data: "${{dependents.secret.data}}" }} }} }}
    wrong: {{ {MAP}, dependsOn: [secret], desired: {{ template: {{ metadata: {{ name: wrong }}, data: {{ a: "${{dependents.secret.data[dependents.secret.data.key]}}" }} }} }} }}
    refused: {{ {MAP}, dependsOn: [secret], desired: {{ template: {{ metadata: {{ name: "Refused-${{dependents.secret.data.key}}" }} }} }} }}
status: {{ template: {{ problem: "${{has(workflow.failed.wrong) ? workflow.failed.wrong : null}}", refused: "${{has(workflow.failed.refused) ? workflow.failed.refused : null}}" }} }}
"#
    );
    let daemon = place.daemon(&manifest(&place, &fields));
    let secrets = place.namespace.path("v1", "secrets");
    place.create("v1", "Secret", &secrets, "mine", json!({ "data": { "key": HIDDEN } }));
    place.probe("p", json!({ "secret": "mine" }));
    place.await_object(&secrets, "copy", "the same", |copy| copy["data"] == json!({ "key": HIDDEN }));
    let why = "the template at /data/a: CEL expression \"dependents.secret.data[dependents.secret.data.key]\" failed: on values of a Secret";
    let refused =
        "the API server refuses it for metadata.name (HTTP 422); what it says may quote a Secret, and is kept back";
    await_status(&place, &place.probes(), "p", json!({ "problem": why, "refused": refused }));
    daemon.await_line("on values of a Secret");
    // Nor is it told how a copy differs.
    await_data(&place, "map", json!({ "key": HIDDEN }));
    place.merge(&place.config_maps(), "map", &json!({ "data": { "key": "by hand" } }));
    daemon.await_line("in what may be of a Secret");
    await_data(&place, "map", json!({ "key": HIDDEN }));
    daemon.await_quiet();
    assert!(!daemon.log().contains(HIDDEN), "{}", daemon.log());
}

#[test]
fn a_finalizer_is_used_only_where_something_has_to_be_deleted() {
    // DT-1, DT-5
    let place = Place::new("templates-finalizer");
    let fields = |more: &str| {
        format!(
            r#"workflow: {{ dependents: {{ map: {{ {MAP}, {more}desired: {{ template: {{ metadata: {{ name: "${{primary.metadata.name}}-map" }}, data: {{ a: "${{primary.spec.a}}" }} }} }} }} }} }}"#
        )
    };
    let folder = Folder::new();
    folder.put("operator.yaml", manifest(&place, &fields("")));
    let daemon = folder.daemon(&place);
    place.probe("p", json!({ "a": "1" }));
    await_data(&place, "p-map", json!({ "a": "1" }));
    daemon.await_quiet();
    let finalizers = |name: &str| place.find(&place.probes(), name).unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers("p"), Value::Null);
    // From now on nothing else sees to its end.
    folder.put("operator.yaml", manifest(&place, &fields("garbageCollected: false, ")));
    daemon.await_plugin("templates", "active", 2);
    place.await_object(&place.probes(), "p", "a finalizer", |probe| probe["metadata"]["finalizers"][0].is_string());
    place.probe("q", json!({ "a": "2" }));
    let map = await_data(&place, "q-map", json!({ "a": "2" }));
    assert_eq!(map["metadata"]["ownerReferences"], Value::Null);
    // Its name is all that is needed of the template.
    place.cluster.api().merge(&format!("{}/q", place.probes()), &json!({ "spec": { "a": null } })).unwrap();
    place.delete(&place.probes(), "q");
    place.await_gone(&place.probes(), "q");
    assert_eq!(place.find(&place.config_maps(), "q-map"), None);
}

#[test]
fn a_changed_template_is_in_force_at_once_and_a_wrong_one_changes_nothing() {
    // DT-5
    let place = Place::new("templates-swap");
    let fields = |text: &str| {
        format!(
            r#"workflow: {{ dependents: {{ map: {{ {MAP}, desired: {{ template: {{ metadata: {{ name: "${{primary.metadata.name}}" }}, data: {{ a: "{text}" }} }} }} }} }} }}
status: {{ template: {{ a: "${{dependents.map.data.a}}" }} }}"#
        )
    };
    let folder = Folder::new();
    folder.put("operator.yaml", manifest(&place, &fields("first ${primary.spec.n}")));
    let daemon = folder.daemon(&place);
    for name in ["p", "q"] {
        place.probe(name, json!({ "n": 1 }));
        await_status(&place, &place.probes(), name, json!({ "a": "first 1" }));
    }
    daemon.await_quiet();
    folder.put("operator.yaml", manifest(&place, &fields("second ${primary.spec.n + 1}")));
    daemon.await_plugin("templates", "active", 2);
    for name in ["p", "q"] {
        await_data(&place, name, json!({ "a": "second 2" }));
        await_status(&place, &place.probes(), name, json!({ "a": "second 2" }));
    }
    daemon.await_quiet();
    let runs = daemon.runs();
    folder.put("operator.yaml", manifest(&place, &fields("third ${primry.spec.n}")));
    let (_, problem) = daemon.await_bad_manifests(1).remove(0);
    assert!(problem.contains("unknown variable `primry`, did you mean `primary`?"), "{problem}");
    place.merge(&place.probes(), "p", &json!({ "spec": { "n": 2 } }));
    await_data(&place, "p", json!({ "a": "second 3" }));
    daemon.await_quiet();
    assert!(daemon.runs() > runs);
    // The component that takes over has what the templates made.
    let component = "workflow: { dependents: { map: { apiVersion: v1, kind: ConfigMap } } }\n";
    folder.put("operator.yaml", place.probe_manifest(component));
    daemon.await_plugin("probe", "active", 1);
    let desired = |a: &str| json!({ "dependents": { "map": { "metadata": { "name": "p" }, "data": { "a": a } } }, "reconcile": { "status": { "by": "component" } } });
    place.merge(&place.probes(), "p", &json!({ "spec": desired("third") }));
    await_data(&place, "p", json!({ "a": "third" }));
    wait::until(SOON, "the plugin of templates to go", || daemon.plugin("templates").is_none().then_some(())).unwrap();
    let formerly = "finalizers: { formerly: [probes.test.capstan.dev/finalizer] }\n";
    folder.put("operator.yaml", manifest(&place, &format!("{formerly}{}", fields("fourth ${primary.spec.n}"))));
    await_data(&place, "p", json!({ "a": "fourth 2" }));
    wait::until(LATER, "the component to go", || daemon.plugin("probe").is_none().then_some(())).unwrap();
}

#[test]
fn a_template_stands_beside_the_dependents_of_a_component() {
    // DT-1, DT-3
    let place = Place::new("templates-mixed");
    let fields = format!(
        r#"workflow:
  dependents:
    own: {{ {MAP} }}
    made: {{ {MAP}, dependsOn: [own], desired: {{ template: {{ metadata: {{ name: made }}, data: {{ uid: "${{dependents.own.metadata.uid}}", a: "${{dependents.own.data.a}}" }} }} }} }}
"#
    );
    let daemon = place.daemon(&place.probe_manifest(&fields));
    let own = json!({ "metadata": { "name": "own" }, "data": { "a": "1" } });
    place.probe("p", json!({ "dependents": { "own": own }, "reconcile": { "status": { "done": true } } }));
    let own = await_data(&place, "own", json!({ "a": "1" }));
    await_data(&place, "made", json!({ "uid": own["metadata"]["uid"], "a": "1" }));
    place.await_object(&place.probes(), "p", "the component's status", |probe| probe["status"]["done"] == true);
    place.merge(&place.config_maps(), "own", &json!({ "data": { "a": "by hand" } }));
    await_data(&place, "own", json!({ "a": "1" }));
    await_data(&place, "made", json!({ "uid": own["metadata"]["uid"], "a": "1" }));
    no_run_failed(&daemon);
}

#[test]
fn what_would_be_huge_is_refused_and_harms_nobody() {
    // DT-4
    let place = Place::new("templates-huge");
    let items = format!("[{}]", ["0"; 40].join(","));
    let huge = format!("{items}.map(i, {items}.map(j, {items}.map(k, primary.spec.text)))");
    let fields = format!(
        r#"workflow:
  dependents:
    huge: {{ {MAP}, reconcilePrecondition: {{ cel: has(primary.spec.text) }}, desired: {{ template: {{ metadata: {{ name: huge }}, data: {{ a: "${{{huge}}}" }} }} }} }}
    small: {{ {MAP}, desired: {{ template: {{ metadata: {{ name: "small-${{primary.metadata.name}}" }}, data: {{ a: "1" }} }} }} }}
"#
    );
    let daemon = place.daemon(&manifest(&place, &fields));
    place.probe("p", json!({ "text": "x".repeat(1000) }));
    daemon.await_line("huge: the template at /data/a: what it makes is larger than 4194304 bytes");
    await_data(&place, "small-p", json!({ "a": "1" }));
    place.probe("q", json!({}));
    await_data(&place, "small-q", json!({ "a": "1" }));
    assert_eq!(place.find(&place.config_maps(), "huge"), None);
}

#[test]
fn what_is_somebody_elses_is_left_alone_unless_it_is_adopted() {
    // DT-1, KD-6
    let place = Place::new("templates-adopt");
    let fields = |more: &str| {
        format!(
            r#"workflow: {{ dependents: {{ map: {{ {MAP}, {more}desired: {{ template: {{ metadata: {{ name: map }}, data: {{ a: "1" }} }} }} }} }} }}"#
        )
    };
    place.create("v1", "ConfigMap", &place.config_maps(), "map", json!({ "data": { "b": "2" } }));
    let folder = Folder::new();
    folder.put("operator.yaml", manifest(&place, &fields("")));
    let daemon = folder.daemon(&place);
    place.probe("p", json!({}));
    daemon.await_line("the run failed");
    assert_eq!(place.find(&place.config_maps(), "map").unwrap()["data"], json!({ "b": "2" }));
    folder.put("operator.yaml", manifest(&place, &fields("adopt: true, ")));
    let taken = |map: &Value| map["data"]["a"] == "1" && map["metadata"]["ownerReferences"][0]["name"] == "p";
    place.await_within(LATER, &place.config_maps(), "map", "its owner", taken);
}

//! In whose name the daemon acts: an operator with a service account of its own has the rights of that account, and no others.

use cluster::{Query, User};
use scenarios::{Daemon, Folder, LATER, Place, SOON, Start, run};
use serde_json::{Value, json};

use cluster::wait;

const MAP: &str = "workflow:\n  dependents:\n    own: { apiVersion: v1, kind: ConfigMap, garbageCollected: false }\n";

/// Returns a manifest of one controller over probes, whose operator acts as `pages`.
fn manifest(place: &Place) -> String {
    manifest_with(place, "")
}

/// The same with fields of the plugin.
fn manifest_with(place: &Place, plugin: &str) -> String {
    let account = format!("serviceAccount: {{ name: pages, namespace: {} }}", place.namespace.name());
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    let manifest = place.manifest("probe", primary, plugin, MAP);
    manifest.replace("spec:\n  plugins:", &format!("spec:\n  {account}\n  plugins:"))
}

/// Gives the daemon and the operator the rights that the daemon prints, and returns the daemon's account.
fn permit(place: &Place, manifest: &str) -> User {
    give_rights(place, manifest);
    place.namespace.service_account("daemon").unwrap()
}

/// Gives the daemon and the operator the rights that the daemon prints, in place of those that they had.
fn give_rights(place: &Place, manifest: &str) {
    let namespace = place.namespace.name();
    let folder = tempfile::tempdir().unwrap();
    let (file, rights) = (folder.path().join("o.yaml"), folder.path().join("rights.json"));
    std::fs::write(&file, manifest).unwrap();
    let file = file.to_str().unwrap();
    let daemon = ["--namespace", namespace, "--service-account", "daemon", "--name", "rights"];
    let (code, out, err) = run(&[&["rbac", "-o", "json", "-m", file], &daemon[..]].concat());
    assert_eq!(code, 0, "{err}");
    std::fs::write(&rights, out).unwrap();
    let rights = rights.to_str().unwrap();
    place.cluster.kubectl(&["apply", "-f", rights]).unwrap();
}

#[test]
fn an_account_registers_sources_of_what_it_may_list_and_for_as_long_as_it_may() {
    // ES-4
    let place = Place::new("listing");
    let name = place.namespace.name();
    let grants = "capabilities: { kubernetes: [{ apiVersion: v1, kind: Secret, verbs: [watch] }] }\n";
    let account = permit(&place, &manifest(&place));
    let daemon = Start::new(&manifest_with(&place, grants))
        .kubeconfig(place.cluster.kubeconfig(&account).unwrap())
        .run(&place)
        .until_ready();
    let informer = json!({ "apiVersion": "v1", "kind": "Secret" });
    let step = json!({ "register": { "name": "keys", "declaration": { "informer": informer } }, "mayFail": true });
    let map = json!({ "metadata": { "name": "made" }, "data": { "a": "b" } });
    place.probe("p", json!({ "dependents": { "own": map }, "reconcile": { "do": step } }));
    let refused = |p: &Value| {
        let message = p["status"]["refused"]["message"].as_str().unwrap_or_default();
        p["status"]["refused"]["refused"] == "rejected" && message.contains(":pages may not list v1 Secret")
    };
    place.await_object(&place.probes(), "p", "a refusal", refused);
    assert_eq!(daemon.controller(name).unwrap()["registered"], json!({}));

    give_rights(&place, &manifest_with(&place, grants));
    let mut tries = 0;
    wait::until_ok(LATER, "the right", || {
        tries += 1;
        place.merge(&place.probes(), "p", &json!({ "spec": { "tries": tries } }));
        daemon.await_quiet();
        let found = place.find(&place.probes(), "p").unwrap()["status"].take();
        if found["register"].is_boolean() { Ok(()) } else { Err(found) }
    })
    .unwrap();
    assert_eq!(daemon.controller(name).unwrap()["registered"], json!({ "keys": "v1 Secret" }));

    give_rights(&place, &manifest(&place));
    wait::until(LATER, "a refusal", || refused(&place.find(&place.probes(), "p").unwrap()).then_some(())).unwrap();
    assert_eq!(daemon.controller(name).unwrap()["registered"], json!({}));
    daemon.await_line("a registered source ends with a right that it had");
}

#[test]
fn what_an_operator_writes_and_reads_live_is_asked_for_in_its_name() {
    let place = Place::new("acting");
    let manifest = manifest(&place);
    let account = permit(&place, &manifest);
    let operator = format!("system:serviceaccount:{}:pages", place.namespace.name());
    let mark = place.cluster.audit().unwrap().mark().unwrap();
    let daemon =
        Start::new(&manifest).kubeconfig(place.cluster.kubeconfig(&account).unwrap()).run(&place).until_ready();
    place.create("v1", "ConfigMap", &place.config_maps(), "taken", json!({}));
    let event = json!({ "event": { "reason": "Told", "message": "told" } });
    let spec = |name: &str| {
        json!({
            "dependents": { "own": { "metadata": { "name": name }, "data": { "a": "b" } } },
            "reconcile": { "do": [event], "status": { "done": true } },
        })
    };
    place.probe("p", spec("made"));
    place.probe("q", spec("taken"));
    place.await_object(&place.probes(), "p", "its status", |p| p["status"]["done"] == true);
    daemon.await_line("taken exists and is not ours");
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
    let events = place.namespace.path("v1", "events");
    wait::until_ok(SOON, "the event", || {
        let found = place.cluster.api().get(&events).unwrap();
        let told = |event: &Value| event["reason"] == "Told";
        let any = found["items"].as_array().unwrap().iter().any(told);
        any.then_some(()).ok_or_else(|| found.to_string())
    })
    .unwrap();
    assert!(daemon.stop().success());

    let query = Query::since(mark).user(&account.name);
    let requests = place.cluster.audit().unwrap().requests(&query).unwrap();
    let requests = requests.iter().filter(|request| !request.resource.is_empty());
    let mut written = std::collections::BTreeSet::new();
    for request in requests {
        assert!(request.code < 400 || [404, 409].contains(&request.code), "{request:?}");
        let cached = request.uri.contains("watch=") || !request.uri.contains("fieldSelector");
        if ["list", "watch"].contains(&&*request.verb) && cached {
            assert_eq!(request.impersonated, "", "{request:?}");
        } else {
            assert_eq!(request.impersonated, operator, "{request:?}");
            written.insert(format!("{} {}", request.verb, request.resource));
        }
    }
    for expected in [
        "create configmaps",
        "delete configmaps",
        "list configmaps",
        "create events",
        "create selfsubjectaccessreviews",
        "patch probes",
    ] {
        assert!(written.contains(expected), "{expected} in {written:?}");
    }
}

/// The rights of an operator's account, as the daemon prints them, or those to read alone.
fn rights(place: &Place) -> [Value; 2] {
    let namespace = place.namespace.name();
    let binding = format!("rights:{namespace}:pages");
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    let whole = place.find(&path, &binding).unwrap();
    let named = json!({ "name": binding, "namespace": namespace });
    let mut reading = whole.clone();
    reading["metadata"] = named.clone();
    reading["roleRef"]["name"] = json!("reading");
    let rule = json!({ "apiGroups": ["*"], "resources": ["*"], "verbs": ["list"] });
    let role = json!({ "metadata": { "name": "reading" }, "rules": [rule] });
    let roles = path.replace("rolebindings", "roles");
    place.cluster.api().create(&roles, &role).unwrap();
    let whole = json!({ "metadata": named, "roleRef": whole["roleRef"], "subjects": whole["subjects"] });
    [whole, reading]
}

/// Takes the rights of the operator's account away, and gives it others.
fn grant(place: &Place, binding: Option<&Value>) {
    let namespace = place.namespace.name();
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    let name = format!("rights:{namespace}:pages");
    place.cluster.api().delete(&format!("{path}/{name}")).ok();
    if let Some(binding) = binding {
        place.cluster.api().create(&path, binding).unwrap();
    }
}

fn start(place: &Place, manifest: &str, account: &User) -> Daemon {
    Start::new(manifest).kubeconfig(place.cluster.kubeconfig(account).unwrap()).run(place)
}

#[test]
fn a_right_that_is_missing_is_told_with_who_lacks_it() {
    let place = Place::new("lacking");
    let manifest = manifest(&place);
    let account = permit(&place, &manifest);
    let namespace = place.namespace.name();
    let operator = format!("system:serviceaccount:{namespace}:pages");
    let [_, reading] = rights(&place);
    grant(&place, Some(&reading));
    place.probe("p", json!({}));
    let lacking = start(&place, &manifest, &account).until_ready();
    lacking.await_line(&format!("the operator acts as {operator}, which lacks that right"));
    assert!(lacking.stop().success());
    let command = ["-n", namespace, "delete", "rolebinding", "rights:impersonate"];
    place.cluster.kubectl(&command).unwrap();
    let text = format!("the daemon's own service account lacks the right to impersonate {operator}");
    start(&place, &manifest, &account).await_line(&text);
}

#[test]
fn caches_are_read_for_an_operator_only_while_its_account_may_list_what_is_in_them() {
    let place = Place::new("reading");
    let manifest = manifest(&place);
    let account = permit(&place, &manifest);
    let [whole, _] = rights(&place);
    grant(&place, None);
    let own = json!({ "metadata": { "name": "own" } });
    let runs = |n: u32| json!({ "dependents": { "own": own }, "reconcile": { "do": [{ "see": ["config"] }], "status": { "n": n } } });
    place.probe("p", runs(1));
    let folder = Folder::new();
    folder.put("operator.yaml", &manifest);
    let daemon = Start::at(&folder.path("")).kubeconfig(place.cluster.kubeconfig(&account).unwrap()).run(&place);
    let namespace = place.namespace.name();
    let missing = format!(
        "system:serviceaccount:{namespace}:pages may not list test.capstan.dev/v1 Probe in namespace {namespace}"
    );
    daemon.await_line(&missing);
    daemon.await_lacking(&[&missing]);
    assert_eq!(daemon.runs(), 0);

    grant(&place, Some(&whole));
    let daemon = daemon.until_ready();
    let seen = |n: u32| {
        place.await_object(&place.probes(), "p", "its status", |p| p["status"]["n"] == n);
    };
    seen(1);

    grant(&place, None);
    let lost = "the controller waits for a right that it had";
    wait::until_ok(LATER, lost, || {
        let log = daemon.log();
        log.contains(lost).then_some(()).ok_or(log)
    })
    .unwrap();
    let before = daemon.runs();
    place.merge(&place.probes(), "p", &json!({ "spec": runs(2) }));
    place.merge(&place.probes(), "p", &json!({ "spec": runs(3) }));
    assert_eq!(daemon.runs(), before);

    // What is put in place meanwhile counts afterwards.
    folder.put("operator.yaml", manifest_with(&place, "config: { word: new }\n"));
    daemon.await_plugin("probe", "active", 2);
    grant(&place, Some(&whole));
    seen(3);
    place.await_object(&place.probes(), "p", "the new configuration", |p| p["status"]["config"]["word"] == "new");
    assert!(daemon.stop().success());
}

#[test]
fn what_the_account_may_not_read_does_not_keep_the_rest_from_working() {
    // IE-1
    let (one, two) = (Place::new("granted"), Place::new("denied"));
    let spec = format!("spec:\n  serviceAccount: {{ name: pages, namespace: {} }}\n  plugins:", one.namespace.name());
    let both = format!("namespaces: [{}, {}]", one.namespace.name(), two.namespace.name());
    let manifest = one
        .probe_manifest("cacheSyncTimeout: 2s\n")
        .replace("spec:\n  plugins:", &spec)
        .replace(&format!("namespaces: [{}]", one.namespace.name()), &both);
    let account = permit(&one, &manifest);
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings", two.namespace.name());
    // In another namespace, roles have the name of the daemon's before their own.
    let name = format!("{0}:rights:{0}:pages", one.namespace.name());
    let mut binding = two.find(&path, &name).unwrap();
    binding["metadata"] = json!({ "name": name });
    let forbid = || two.delete(&path, &name);
    forbid();
    let seen = |place: &Place, n: u32| {
        place.await_object(&place.probes(), "p", "its status", |p| p["status"]["n"] == n);
    };
    let runs = |n: u32| json!({ "reconcile": { "status": { "n": n } } });
    for place in [&one, &two] {
        place.probe("p", runs(1));
    }
    let daemon = start(&one, &manifest, &account);
    seen(&one, 1);
    let missing = format!("the right to list test.capstan.dev/v1 Probe in namespace {}", two.namespace.name());
    let told = || daemon.await_lacking(&[&missing]);
    told();
    assert!(two.find(&two.probes(), "p").unwrap()["status"].is_null(), "it may not be read");

    two.cluster.api().create(&path, &binding).unwrap();
    seen(&two, 1);
    forbid();
    told();
    one.merge(&one.probes(), "p", &json!({ "spec": runs(2) }));
    two.merge(&two.probes(), "p", &json!({ "spec": runs(2) }));
    seen(&one, 2);
    assert_eq!(two.find(&two.probes(), "p").unwrap()["status"]["n"], 1);
}

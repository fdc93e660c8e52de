//! What bad input gets: one clear message, and everything else goes on.

use std::fs;
use std::path::Path;
use std::time::Duration;

use cluster::wait;
use scenarios::proxy::Line;
use scenarios::{Folder, LATER, Place, SOON, Start, component, replace, run};
use serde_json::{Value, json};

use crate::languages::compile;

/// Returns what `capstan check` says of a manifest: exit code, and all of its output.
fn check(manifest: &str) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("operator.yaml");
    fs::write(&file, manifest).unwrap();
    let cache = folder.path().join("code");
    let (code, out, err) = run(&["check", "-m", file.to_str().unwrap(), "--code-cache", cache.to_str().unwrap()]);
    (code, format!("{out}{err}").replace(folder.path().to_str().unwrap(), "."))
}

fn manifest(component: &Path, controller: &str) -> String {
    let controller: String = controller.lines().map(|line| format!("      {line}\n")).collect();
    format!(
        "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: sample }}\nspec:\n  plugins:\n    sample:\n      component: {{ path: {} }}\n  controllers:\n    sample:\n      plugin: sample\n      primary: {{ apiVersion: test.capstan.dev/v1, kind: Probe }}\n{controller}",
        component.display()
    )
}

/// Asserts that a manifest is refused with all of these texts in the message.
fn refused(manifest: &str, texts: &[&str]) {
    let (code, said) = check(manifest);
    assert_eq!(code, 1, "{said}");
    for text in texts {
        assert!(said.contains(text), "{text:?} is not in:\n{said}");
    }
}

// === manifests ===

#[test]
fn manifests_are_refused_with_place_and_remedy() {
    let probe = component("probe");
    for (controller, texts) in [
        ("finaliser: a.dev/f", &["operator.yaml:12:7", "finaliser", "finalizer"][..]),
        ("generationAware: 1", &["operator.yaml:12:", "generationAware", "expected `true` or `false`"][..]),
        ("maxReconciliationInterval: 30", &["operator.yaml:12:", "30s"][..]),
        ("labelSelector: \"a in (\"", &["operator.yaml:12:", "labelSelector"][..]),
        ("concurrency: 4294967295", &["operator.yaml:12:", "a whole number from 1 to 1024"][..]),
        ("fieldManager: kubectl-client-side-apply", &["operator.yaml:12:", "under which others write"][..]),
        (
            "workflow: { dependents: { a: { apiVersion: v1, kind: Pod, dependsOn: [b] } } }",
            &["operator.yaml:12:", "`b`"][..],
        ),
        (
            "workflow: { dependents: { a: { apiVersion: v1, kind: Pod, dependsOn: [b] }, b: { apiVersion: v1, kind: Pod, dependsOn: [a] } } }",
            &["operator.yaml:12:", "a → b → a"][..],
        ),
    ] {
        refused(&manifest(&probe, controller), texts);
    }
}

#[test]
fn two_controllers_of_one_name_are_refused() {
    let one = manifest(&component("probe"), "");
    refused(
        &format!("{one}---\n{}", one.replace("name: sample", "name: other")),
        &["controller", "sample", "operator.yaml:"],
    );
}

// === components ===

#[test]
fn a_component_that_is_none_is_refused_with_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let whole = fs::read(component("probe")).unwrap();
    for (path, texts) in [
        (folder.path().join("missing.wasm"), &["missing.wasm", "No such file"][..]),
        (file("text.wasm", b"hello"), &["text.wasm", "is not WebAssembly"][..]),
        (file("core.wasm", b"\0asm\x01\0\0\0"), &["core.wasm", "is a core module, not a component"][..]),
        (file("cut.wasm", &whole[..whole.len() / 2]), &["cut.wasm", "is cut off"][..]),
    ] {
        refused(&manifest(&path, ""), texts);
    }
}

#[test]
fn a_component_of_another_contract_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("newer.wasm");
    let bytes = fs::read(component("probe")).unwrap();
    // The version stands in the names of imports and exports, whose length it leaves as it is.
    fs::write(&path, replace(&bytes, b"@0.1.0", b"@0.2.0")).unwrap();
    refused(&manifest(&path, ""), &["was built for capstan:operator 0.2.0, this daemon offers 0.1.0"]);
}

#[test]
fn a_component_that_imports_what_there_is_not_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("imports.wasm");
    let bytes = fs::read(component("probe")).unwrap();
    fs::write(&path, replace(&bytes, b"capstan:operator/recorder@", b"capstan:operator/telegram@")).unwrap();
    refused(&manifest(&path, ""), &["imports what this daemon does not offer", "telegram"]);
}

#[test]
fn exports_that_the_manifest_needs_are_all_named() {
    // The sample has dependents, but neither conditions nor matchers.
    let controller = "workflow:\n  dependents:\n    a: { apiVersion: v1, kind: Pod, match: { export: same }, readyPostcondition: { export: green } }";
    refused(&manifest(&component("webpage"), controller), &["matcher", "condition", "match"]);
}

#[test]
fn a_broken_plugin_leaves_the_others_running() {
    let place = Place::new("broken");
    let good = place.probe_manifest("");
    let bad = manifest(Path::new("/nowhere/missing.wasm"), "").replace("name: sample", "name: bad");
    let daemon = Start::new(&format!("{good}---\n{bad}")).run(&place);
    place.probe("p", json!({ "reconcile": { "status": { "seen": true } } }));
    place.await_object(&place.probes(), "p", "its status", |p| p["status"]["seen"] == true);
    daemon.await_lacking(&["plugin sample", "missing.wasm"]);
    assert_eq!(daemon.get("/readyz"), (200, "ok\n".to_owned()), "it is a matter of its operator");
}

#[test]
fn a_component_has_no_network_even_where_its_language_brings_one_along() {
    let place = Place::new("network");
    let _daemon = place.daemon(&place.probe_manifest(""));
    // Somebody listens there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    place.probe("p", json!({ "reconcile": { "do": [{ "connect": address }], "status": {} } }));
    let probe = place.await_object(&place.probes(), "p", "its status", |p| p["status"]["connect"].is_object());
    let connect = &probe["status"]["connect"];
    for attempt in ["tcp", "listen", "udp"] {
        assert_eq!(connect[attempt], "permission denied", "{attempt}");
    }
    // The C library has no better word for it.
    assert_eq!(connect["lookup"], "uncategorized error");
}

// === the cluster ===

#[test]
fn a_kind_that_is_not_installed_is_named_and_waited_for() {
    let place = Place::new("nocrd");
    let manifest = place.manifest("probe", "{ apiVersion: nowhere.dev/v1, kind: Nothing }", "", "");
    let daemon = Start::new(&manifest).run(&place);
    let line = daemon.await_line("waiting for a kind");
    assert!(line.contains("nowhere.dev/v1 Nothing") && line.contains("CustomResourceDefinition"), "{line}");
    daemon.await_lacking(&["controller", "nowhere.dev/v1 Nothing"]);
    assert_eq!(daemon.count("capstan_controller_ready", place.namespace.name()), 0);
    assert_eq!(daemon.get("/livez").0, 200);
}

#[test]
fn a_refusing_api_server_is_quoted_with_verb_and_kind() {
    let place = Place::new("forbidden");
    let visitor = place.cluster.kubeconfig(place.cluster.user(cluster::VISITOR).unwrap()).unwrap();
    let manifest = place.probe_manifest("");
    let daemon = Start::new(&manifest).kubeconfig(visitor).run(&place);
    let line = daemon.await_line("watching failed");
    assert!(line.contains("probes") && line.contains("forbidden") && line.contains("403"), "{line}");
    daemon.await_lacking(&["informer", "403"]);
}

#[test]
fn s007_a_daemon_without_any_right_starts_and_says_what_it_lacks() {
    // IE-1
    let place = Place::new("s007");
    let visitor = place.cluster.kubeconfig(place.cluster.user(cluster::VISITOR).unwrap()).unwrap();
    let primary = "{ apiVersion: v1, kind: ConfigMap }";
    let manifest = |on_start_error: &str| {
        let fields = format!("cacheSyncTimeout: 2s\nonStartError: {on_start_error}\n");
        place.manifest("probe", primary, "", &fields)
    };
    let both = format!("{}---\n{}", manifest("goOn"), place.renamed(&manifest("fail"), "fails"));
    // A start takes what its time says, and no compiler's.
    compile(&both);
    let daemon = Start::new(&both).kubeconfig(visitor).run(&place);
    let name = place.namespace.name();
    let phase = |name: &str| daemon.controller(name).map_or(Value::Null, |controller| controller["phase"].clone());
    let ends_as = |limit: Duration, name: &str, wanted: &str| {
        wait::until_ok(limit, &format!("{name} to be {wanted}"), || match phase(name) {
            phase if phase == wanted => Ok(()),
            phase => Err(phase),
        })
        .unwrap();
    };
    ends_as(Duration::from_secs(5), name, "running");
    assert_eq!(daemon.get("/livez").0, 200);
    daemon.await_lacking(&["ConfigMap", "visitor", "403"]);
    ends_as(LATER, &format!("{name}-fails"), "failed");
    assert_eq!((phase(name), daemon.get("/livez").0), (json!("running"), 200));
}

#[test]
fn a_token_that_is_not_accepted_is_told() {
    let place = Place::new("unauthorized");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let text = fs::read_to_string(place.cluster.admin_kubeconfig()).unwrap();
    let token = &place.cluster.user(cluster::ADMIN).unwrap().token;
    fs::write(&file, text.replace(token.as_str(), "wrong")).unwrap();
    let manifest = place.probe_manifest("");
    let daemon = Start::new(&manifest).kubeconfig(file).run(&place);
    let line = daemon.await_line("HTTP 401");
    assert!(line.contains("Unauthorized"), "{line}");
}

/// A service account that may do with probes what it likes, and read config maps.
fn account(place: &Place) -> cluster::User {
    let account = place.namespace.service_account("daemon").unwrap();
    let maps = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"] });
    admit(place, place, &[maps]);
    account
}

/// Lets the service account of a place do with probes of another what it likes, and this.
fn admit(of: &Place, place: &Place, more: &[Value]) {
    let probes = json!({ "apiGroups": ["test.capstan.dev"], "resources": ["probes", "probes/status"], "verbs": ["*"] });
    let rules: Vec<_> = [&probes].into_iter().chain(more).collect();
    let path = |plural| place.namespace.path("rbac.authorization.k8s.io/v1", plural);
    let role = json!({ "metadata": { "name": "daemon" }, "rules": rules });
    let binding = json!({
        "metadata": { "name": "daemon" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "daemon" },
        "subjects": [{ "kind": "ServiceAccount", "name": "daemon", "namespace": of.namespace.name() }],
    });
    let api = place.cluster.api();
    api.create(&path("roles"), &role).unwrap();
    api.create(&path("rolebindings"), &binding).unwrap();
}

#[test]
fn s033_few_rights_are_enough_and_what_lacks_is_refused_in_the_daemons_name() {
    let place = Place::new("s033");
    let account = account(&place);
    let kubeconfig = place.cluster.kubeconfig(&account).unwrap();
    let kind = "apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition";
    let fields = format!(
        "cacheSyncTimeout: 1s\nsources:\n  definitions: {{ informer: {{ {kind}, mapper: {{ labels: {{}} }} }} }}\n"
    );
    let daemon = Start::new(&place.probe_manifest(&fields)).kubeconfig(kubeconfig).run(&place);
    place.probe("p", json!({ "reconcile": { "status": { SEEN: true } } }));
    await_seen(&place);
    daemon.await_quiet();
    // The first run adds the finalizer.
    assert_eq!(daemon.runs_of("p"), 2);
    let line = daemon.await_line("watching failed");
    assert!(line.contains(&account.name) && line.contains("cannot watch resource"), "{line}");
    assert!(line.contains("customresourcedefinitions"), "{line}");
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    place.cluster.api().get(definitions).unwrap();
}

const MAP: &str = "workflow:\n  dependents:\n    cm: { apiVersion: v1, kind: ConfigMap }\n";

#[test]
fn a_write_that_is_forbidden_is_quoted_with_verb_and_kind() {
    let place = Place::new("nowrite");
    let kubeconfig = place.cluster.kubeconfig(&account(&place)).unwrap();
    let manifest = place.probe_manifest(MAP);
    let daemon = Start::new(&manifest).kubeconfig(kubeconfig).run(&place).until_ready();
    place.probe("p", json!({ "dependents": { "cm": { "metadata": { "name": "cm" } } } }));
    let line = daemon.await_line("the run failed");
    assert!(line.contains("create v1 ConfigMap") && line.contains("forbidden"), "{line}");
    assert_eq!(daemon.get("/livez").0, 200);
}

#[test]
fn s103_rights_that_are_lost_later_are_told_and_watching_goes_on_once_they_are_back() {
    // IE-4, IE-5, ES-5, HE-1
    let place = Place::new("lost");
    let account = account(&place);
    let (line, folder) = (Line::to(place.cluster), tempfile::tempdir().unwrap());
    let kubeconfig = line.kubeconfig(place.cluster, &account, &folder);
    let manifest = place.probe_manifest("");
    let daemon = Start::new(&manifest).kubeconfig(kubeconfig).run(&place).until_ready();
    let roles = place.namespace.path("rbac.authorization.k8s.io/v1", "roles");
    let role = place.find(&roles, "daemon").unwrap();
    place.delete(&roles, "daemon");
    line.interrupt();
    let told = daemon.await_line("watching failed");
    assert!(told.contains("test.capstan.dev/v1 Probe"), "{told}");
    daemon.await_lacking(&["403"]);
    assert_eq!(daemon.get("/livez").0, 200);
    let again = json!({ "metadata": { "name": "daemon" }, "rules": role["rules"] });
    place.cluster.api().create(&roles, &again).unwrap();
    place.probe("p", json!({ "reconcile": { "status": { "seen": true } } }));
    let seen = wait::until(LATER, "the probe to be served", || {
        place.find(&place.probes(), "p").filter(|p| p["status"]["seen"] == true)
    });
    seen.unwrap();
    daemon.until_ready();
}

#[test]
fn s103_a_primary_that_may_not_be_listed_has_no_run_until_it_may() {
    // IE-1, IE-4
    let place = Place::new("unread");
    let account = place.namespace.service_account("daemon").unwrap();
    let kubeconfig = place.cluster.kubeconfig(&account).unwrap();
    place.probe("p", json!({ "reconcile": { "status": { SEEN: true } } }));
    let daemon = Start::new(&place.probe_manifest("cacheSyncTimeout: 1s\n")).kubeconfig(kubeconfig).run(&place);
    daemon.await_line("the controller starts without something that it watches");
    daemon.await_lacking(&["test.capstan.dev/v1 Probe", "403"]);
    assert_eq!((daemon.runs(), daemon.get("/livez").0), (0, 200));
    admit(&place, &place, &[]);
    await_seen(&place);
    let daemon = daemon.until_ready();
    let controller = daemon.controller(place.namespace.name()).unwrap();
    assert_eq!((&controller["phase"], &controller["why"]), (&json!("running"), &Value::Null));
}

#[test]
fn s103_a_dependent_that_may_not_be_listed_any_more_is_put_right_once_it_may() {
    // IE-4
    let place = Place::new("lostmaps");
    let account = place.namespace.service_account("daemon").unwrap();
    admit(&place, &place, &[json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] })]);
    let (line, folder) = (Line::to(place.cluster), tempfile::tempdir().unwrap());
    let kubeconfig = line.kubeconfig(place.cluster, &account, &folder);
    let daemon = Start::new(&place.probe_manifest(MAP)).kubeconfig(kubeconfig).run(&place).until_ready();
    let map = json!({ "metadata": { "name": "cm" }, "data": { "v": "wanted" } });
    place.probe("p", json!({ "dependents": { "cm": map } }));
    let is_wanted = |map: &Value| map["data"]["v"] == "wanted";
    place.await_within(LATER, &place.config_maps(), "cm", "it", is_wanted);
    daemon.await_quiet();
    let roles = place.namespace.path("rbac.authorization.k8s.io/v1", "roles");
    let rules = place.find(&roles, "daemon").unwrap()["rules"].as_array().unwrap().clone();
    let grant = |rules: &[Value]| place.merge(&roles, "daemon", &json!({ "rules": rules }));
    grant(&rules[..1]);
    line.interrupt();
    let told = daemon.await_line("watching failed");
    assert!(told.contains("v1 ConfigMap"), "{told}");
    daemon.await_lacking(&["v1 ConfigMap", "403"]);
    place.merge(&place.config_maps(), "cm", &json!({ "data": { "v": "changed" } }));
    grant(&rules);
    place.await_within(LATER, &place.config_maps(), "cm", "it put right", is_wanted);
    daemon.until_ready();
}

#[test]
fn an_api_server_that_goes_away_is_waited_for_and_nothing_is_lost() {
    let place = Place::new("cut");
    let admin = place.cluster.user(cluster::ADMIN).unwrap();
    let (line, folder) = (Line::to(place.cluster), tempfile::tempdir().unwrap());
    let kubeconfig = line.kubeconfig(place.cluster, admin, &folder);
    let manifest = place.probe_manifest("");
    let daemon = Start::new(&manifest).kubeconfig(kubeconfig).run(&place).until_ready();
    place.probe("before", json!({ "reconcile": { "status": { "seen": true } } }));
    place.await_object(&place.probes(), "before", "its status", |p| p["status"]["seen"] == true);
    line.cut();
    daemon.await_line("watching failed");
    place.probe("meanwhile", json!({ "reconcile": { "status": { "seen": true } } }));
    place.delete(&place.probes(), "before");
    assert_eq!(daemon.get("/livez").0, 200);
    line.mend();
    let served = wait::until(LATER, "what came meanwhile to be served", || {
        place.find(&place.probes(), "meanwhile").filter(|p| p["status"]["seen"] == true)
    });
    served.unwrap();
    place.await_gone(&place.probes(), "before");
    daemon.until_ready();
}

// === the guest ===

/// What the daemon's log says of a probe that does this; a good probe beside it is served all the same.
fn guest(name: &str, spec: Value, plugin: &str) -> String {
    let place = Place::new(name);
    let retry = "retry: { initialInterval: 100ms, multiplier: 1, maxAttempts: 1 }\n";
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    let daemon = place.daemon(&place.manifest("probe", primary, plugin, retry));
    place.probe("bad", spec);
    place.probe("good", json!({ "reconcile": { "status": { "seen": true } } }));
    let line = daemon.await_line("no retries left");
    assert!(line.contains("bad"), "{line}");
    place.await_object(&place.probes(), "good", "its status", |p| p["status"]["seen"] == true);
    assert_eq!(daemon.get("/livez").0, 200);
    // The finalizer's run, the first try and one retry; the good one has two.
    wait::until_ok(SOON, "five runs", || if daemon.runs() == 5 { Ok(()) } else { Err(daemon.log()) }).unwrap();
    daemon.log()
}

#[test]
fn a_guest_that_returns_no_json_fails_that_call() {
    let log = guest("badjson", json!({ "reconcile": { "badJson": true } }), "");
    assert!(log.contains("the answer of `reconcile` (status) is not JSON"), "{log}");
}

#[test]
fn a_guest_that_returns_another_object_fails_that_call() {
    let log = guest("othername", json!({ "reconcile": { "otherName": "somebody-else" } }), "");
    assert!(log.contains("is about another object: metadata.name is \\\"somebody-else\\\""), "{log}");
}

#[test]
fn a_guest_that_traps_fails_that_call() {
    let log = guest("traps", json!({ "reconcile": { "do": ["trap"] } }), "");
    assert!(log.contains("trapped") && log.contains("traps on purpose"), "{log}");
}

#[test]
fn a_guest_that_loops_for_ever_is_stopped() {
    let log = guest("loops", json!({ "reconcile": { "do": ["loop"] } }), "limits: { timeout: 200ms }\n");
    assert!(log.contains("200ms") && log.contains("limits.timeout"), "{log}");
}

#[test]
fn a_guest_that_allocates_without_end_is_stopped() {
    let log = guest("allocates", json!({ "reconcile": { "do": ["allocate"] } }), "limits: { memory: 16Mi }\n");
    assert!(log.contains("16Mi") && log.contains("limits.memory"), "{log}");
}

#[test]
fn a_guest_that_recurses_without_end_is_stopped() {
    let log = guest("recurses", json!({ "reconcile": { "do": ["recurse"] } }), "");
    assert!(log.contains("stack"), "{log}");
}

#[test]
fn a_guest_that_asks_for_a_kind_that_it_may_not_is_refused() {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "default" } });
    let log =
        guest("denied", json!({ "reconcile": { "do": [{ "write": { "verb": "apply", "object": secret } }] } }), "");
    assert!(log.contains("does not permit `apply` on v1 Secret"), "{log}");
}

#[test]
fn a_guest_that_prints_a_megabyte_is_cut_short_and_goes_on() {
    let place = Place::new("prints");
    let daemon = place.daemon(&place.probe_manifest(""));
    place.probe("p", json!({ "reconcile": { "do": [{ "print": 1_000_000 }], "status": { "seen": true } } }));
    place.await_object(&place.probes(), "p", "its status", |p| p["status"]["seen"] == true);
    let log = daemon.log();
    assert!(log.len() < 400_000, "{} bytes", log.len());
    assert!(log.contains("dropped"), "it is told that something is missing");
    let line = log
        .lines()
        .find(|line| line.contains("\"key\"") && line.contains("xxxx") || line.contains("guest"))
        .unwrap_or_default();
    assert!(line.contains("probe") && line.contains("/p"), "lines name plugin and object: {line}");
}

/// A manifest of one controller over the probes of two places.
fn of_both(one: &Place, two: &Place, fields: &str) -> String {
    let alone = one.probe_manifest(fields);
    let first = format!("namespaces: [{}]", one.namespace.name());
    let both = format!("namespaces: [{}, {}]", one.namespace.name(), two.namespace.name());
    assert!(alone.contains(&first), "{alone}");
    alone.replace(&first, &both)
}

const SEEN: &str = "seen";

/// Waits for a run, which may take until a component is compiled.
fn await_seen(place: &Place) {
    place.await_within(LATER, &place.probes(), "p", "its run", |p| p["status"][SEEN] == true);
}

#[test]
fn s103_a_forbidden_namespace_keeps_the_others_from_nothing() {
    let (one, two) = (Place::new("s103a"), Place::new("s103b"));
    let kubeconfig = one.cluster.kubeconfig(&account(&one)).unwrap();
    for place in [&one, &two] {
        place.probe("p", json!({ "reconcile": { "status": { SEEN: true } } }));
    }
    let daemon = Start::new(&of_both(&one, &two, "cacheSyncTimeout: 2s\n")).kubeconfig(kubeconfig).run(&one);
    await_seen(&one);
    daemon.await_lacking(&["runs without", two.namespace.name()]);
    admit(&one, &two, &[]);
    await_seen(&two);
    let daemon = daemon.until_ready();
    let controller = daemon.controller(one.namespace.name()).unwrap();
    assert_eq!((&controller["phase"], &controller["why"]), (&json!("running"), &Value::Null));
}

#[test]
fn a_finalizer_is_not_left_behind_on_primaries_that_can_not_be_seen() {
    let (one, two) = (Place::new("unseen1"), Place::new("unseen2"));
    let kubeconfig = one.cluster.kubeconfig(&account(&one)).unwrap();
    let manifest = |fields: &str| of_both(&one, &two, &format!("cacheSyncTimeout: 1s\n{fields}"));
    let folder = Folder::new();
    folder.put("operator.yaml", manifest("finalizer: a.dev/old"));
    let path = format!("{}/p", two.probes());
    two.probe("p", json!({ "reconcile": { "status": { SEEN: true } } }));
    two.merge(&two.probes(), "p", &json!({ "metadata": { "finalizers": ["a.dev/old"] } }));
    let daemon = Start::at(&folder.path("")).kubeconfig(kubeconfig).run(&one);
    daemon.await_line("the controller starts without something that it watches");
    folder.put("operator.yaml", manifest("finalizer: a.dev/new"));
    let problem = daemon.await_plugin("probe", "outdated", 1)["problem"].to_string();
    for words in ["it is not known whether primaries carry it", two.namespace.name(), "tried again"] {
        assert!(problem.contains(words), "{problem}");
    }
    admit(&one, &two, &[]);
    await_seen(&two);
    folder.put("operator.yaml", manifest("finalizer: a.dev/newer"));
    wait::until_ok(SOON, "it to be known", || {
        let problem = daemon.plugin("probe").map_or_else(String::new, |plugin| plugin["problem"].to_string());
        if problem.contains("1 primaries carry the finalizer a.dev/old") { Ok(()) } else { Err(problem) }
    })
    .unwrap();
    let finalizers = one.cluster.api().get(&path).unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["a.dev/old"]));
    folder.put("operator.yaml", manifest("finalizer: a.dev/new\nfinalizers: { formerly: [a.dev/old] }"));
    two.await_object(&two.probes(), "p", "its new finalizer", |p| p["metadata"]["finalizers"] == json!(["a.dev/new"]));
}

#[test]
fn s103_a_controller_that_is_to_wait_or_to_fail_runs_nothing_without_all_that_it_watches() {
    for (policy, phase) in [("wait", "filling"), ("fail", "failed")] {
        let (one, two) = (Place::new("strict"), Place::new("strictb"));
        let kubeconfig = one.cluster.kubeconfig(&account(&one)).unwrap();
        one.probe("p", json!({ "reconcile": { "status": { SEEN: true } } }));
        let fields = format!("cacheSyncTimeout: 1s\nonStartError: {policy}\n");
        let daemon = Start::new(&of_both(&one, &two, &fields)).kubeconfig(kubeconfig).run(&one);
        if policy == "fail" {
            let line = daemon.await_line("the controller does not start");
            assert!(line.contains(two.namespace.name()), "{line}");
        }
        wait::until_ok(LATER, phase, || match daemon.controller(one.namespace.name()) {
            Some(controller) if controller["phase"] == phase => Ok(()),
            found => Err(json!(found)),
        })
        .unwrap();
        daemon.await_lacking(&[one.namespace.name(), two.namespace.name()]);
        assert_eq!(daemon.runs(), 0, "{policy}");
    }
}

#[test]
fn s103_a_dependent_of_what_can_not_be_listed_is_not_made_and_fails_by_name() {
    let (place, nowhere) = (Place::new("unlisted"), "nowhere.dev/v1");
    let fields = format!(
        "cacheSyncTimeout: 1s\nworkflow:\n  dependents:\n    cm: {{ apiVersion: v1, kind: ConfigMap }}\n    route: {{ apiVersion: {nowhere}, kind: Route }}\n"
    );
    let daemon = Start::new(&place.probe_manifest(&fields)).run(&place);
    let map = json!({ "metadata": { "name": "cm" } });
    let route = json!({ "metadata": { "name": "r" } });
    place.probe("p", json!({ "dependents": { "cm": map, "route": route } }));
    let line = daemon.await_line("the run failed");
    assert!(line.contains("does not know all of nowhere.dev/v1 Route"), "{line}");
    place.await_object(&place.config_maps(), "cm", "what can be made", |_| true);
}

#[test]
fn s126_what_only_an_inactive_dependent_needs_is_not_waited_for() {
    let place = Place::new("inactive");
    let fields = "workflow:\n  dependents:\n    route: { apiVersion: nowhere.dev/v1, kind: Route, activation: { cel: \"false\" } }\n";
    let daemon = Start::new(&place.probe_manifest(fields)).run(&place).until_ready();
    place.probe("p", json!({ "reconcile": { "status": { SEEN: true } } }));
    await_seen(&place);
    drop(daemon);
}

//! Shows that the control plane does what tests rely on; tests share one unless their reason says otherwise.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cluster::{AuditScope, Call, Cluster, Mark, Options, Query, User, VISITOR, kubernetes_version, shared, wait};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(30);

fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "key": "value" } })
}

#[test]
#[ignore = "needs cluster"]
fn it_serves_and_says_its_version() {
    let cluster = shared().unwrap();
    assert_eq!(cluster.version(), kubernetes_version());
    let version: Value = serde_json::from_str(&cluster.kubectl(&["version", "-o", "json"]).unwrap()).unwrap();
    let versions = ["clientVersion", "serverVersion"].map(|side| version[side]["gitVersion"].clone());
    assert_eq!(versions, [json!(kubernetes_version()), json!(kubernetes_version())]);
}

#[test]
#[ignore = "needs cluster (creates a namespace)"]
fn kubectl_and_the_client_see_the_same_objects() {
    let cluster = shared().unwrap();
    let namespace = cluster.namespace("objects").unwrap();
    let maps = namespace.path("v1", "configmaps");
    let yaml = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {key: value}}";
    let refused = cluster.kubectl_with_input(&["-n", "no-such", "apply", "-f", "-"], yaml).unwrap_err();
    assert!(refused.to_string().contains("namespaces \"no-such\" not found"), "{refused}");
    cluster.kubectl_with_input(&["-n", namespace.name(), "apply", "-f", "-"], yaml).unwrap();
    let api = cluster.api();
    let read = |name: &str| Some(api.find(&format!("{maps}/{name}")).unwrap()?["data"].clone());
    assert_eq!((read("a"), read("b")), (Some(json!({ "key": "value" })), None));

    api.merge(&format!("{maps}/a"), &json!({ "data": { "key": null, "other": "1" } })).unwrap();
    assert_eq!(read("a"), Some(json!({ "other": "1" })));
    api.apply(&format!("{maps}/b"), "test", &config_map("b")).unwrap();
    let patch = json!([{ "op": "replace", "path": "/data/key", "value": "patched" }]);
    api.call(&format!("{maps}/b"), Call::JsonPatch(&patch)).unwrap();
    assert_eq!(read("b"), Some(json!({ "key": "patched" })));
    api.delete(&format!("{maps}/b")).unwrap();
    assert_eq!(read("b"), None);
    assert_eq!(api.create(&maps, &config_map("a")).unwrap_err().code(), Some(409));
}

#[test]
#[ignore = "needs cluster (creates a namespace)"]
fn a_user_may_do_only_what_a_role_says() {
    let cluster = shared().unwrap();
    let namespace = cluster.namespace("roles").unwrap();
    let maps = namespace.path("v1", "configmaps");
    let account = namespace.service_account("reader").unwrap();
    let reader = cluster.api_as(&account).unwrap();
    let visitor = cluster.api_as(cluster.user(VISITOR).unwrap()).unwrap();
    let stranger = cluster.api_as(&User::new("stranger").unwrap()).unwrap();
    let codes = |path: &str| [&reader, &visitor, &stranger].map(|api| api.send(path, Call::Get).unwrap().code);
    assert_eq!(codes(&maps), [403, 403, 401]);

    let yaml = format!(
        "{{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {{name: view, namespace: {0}}},
           roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}},
           subjects: [{{kind: ServiceAccount, name: reader, namespace: {0}}}]}}",
        namespace.name()
    );
    cluster.apply(&yaml).unwrap();
    wait::until(LIMIT, "the role to be known", || (codes(&maps) == [200, 403, 401]).then_some(())).unwrap();
    assert_eq!(reader.create(&maps, &config_map("a")).unwrap_err().code(), Some(403));

    let config = cluster.kubeconfig(&account).unwrap();
    let output =
        cluster.kubectl_command().env("KUBECONFIG", config).args(["auth", "whoami", "-o", "json"]).output().unwrap();
    let review: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(review["status"]["userInfo"]["username"], json!(account.name));
}

#[test]
#[ignore = "needs cluster (creates a namespace)"]
fn the_audit_log_counts_the_requests_of_a_program_exactly() {
    let cluster = shared().unwrap();
    let namespace = cluster.namespace("audit").unwrap();
    let maps = namespace.path("v1", "configmaps");
    let audit = cluster.audit().unwrap();
    let api = cluster.api().with_user_agent("audit-test/1.0");
    api.get(&maps).unwrap();

    let mark = audit.mark().unwrap();
    for index in 0..50 {
        api.create(&maps, &config_map(&format!("map-{index}"))).unwrap();
    }
    api.get(&maps).unwrap();
    api.merge(&format!("{maps}/map-0?dryRun=All"), &json!({ "data": { "key": "other" } })).unwrap();
    api.send(&format!("{maps}/none"), Call::Delete).unwrap();
    cluster.api().get(&maps).unwrap();

    let ours = Query::since(mark).user_agent("audit-test/");
    let count = |query: &Query| audit.count(query).unwrap();
    assert_eq!([count(&ours), count(&ours.clone().writes()), count(&ours.clone().verbs(["list"]))], [53, 52, 1]);
    let last = audit.requests(&ours).unwrap().pop().unwrap();
    let seen = (last.verb.as_str(), last.resource.as_str(), last.namespace.as_str(), last.name.as_str(), last.code);
    assert_eq!(seen, ("delete", "configmaps", namespace.name(), "none", 404));
    assert_eq!((last.user.as_str(), last.user_agent.as_str()), ("admin", "audit-test/1.0"));
    assert_eq!(count(&Query::since(audit.mark().unwrap()).user_agent("audit-test/")), 0);
}

#[test]
#[ignore = "needs cluster (creates a namespace)"]
fn a_watch_and_a_refused_token_are_one_request_each() {
    let cluster = shared().unwrap();
    let namespace = cluster.namespace("watch").unwrap();
    let maps = namespace.path("v1", "configmaps");
    let api = cluster.api().with_user_agent("watch-test/1.0");
    let stranger = cluster.api_as(&User::new("stranger").unwrap()).unwrap().with_user_agent("watch-test/1.0");
    api.send(&format!("{maps}?watch=true&timeoutSeconds=1"), Call::Get).unwrap();
    stranger.send(&maps, Call::Get).unwrap();
    let requests = cluster.audit().unwrap().requests(&Query::default().user_agent("watch-test/")).unwrap();
    let seen: Vec<_> = requests.iter().map(|request| (request.verb.as_str(), request.code)).collect();
    assert_eq!(seen, [("watch", 200), ("list", 401)]);
}

#[test]
#[ignore = "needs cluster (creates a namespace)"]
fn what_is_owned_goes_with_its_owner() {
    let cluster = shared().unwrap();
    let namespace = cluster.namespace("garbage").unwrap();
    let maps = namespace.path("v1", "configmaps");
    let api = cluster.api();
    let owner = api.create(&maps, &config_map("owner")).unwrap();
    let mut owned = config_map("owned");
    let reference =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"] });
    owned["metadata"]["ownerReferences"] = json!([reference]);
    api.create(&maps, &owned).unwrap();
    api.create(&maps, &config_map("free")).unwrap();
    api.delete(&format!("{maps}/owner")).unwrap();
    wait::until(LIMIT, "the owned object to go", || {
        api.find(&format!("{maps}/owned")).unwrap().is_none().then_some(())
    })
    .unwrap();
    assert!(api.find(&format!("{maps}/free")).unwrap().is_some());
}

#[test]
#[ignore = "needs cluster (creates namespaces)"]
fn namespaces_of_one_prefix_are_apart_and_go_when_dropped() {
    let cluster = shared().unwrap();
    let [one, two] = [(), ()].map(|()| cluster.namespace("apart").unwrap());
    let api = cluster.api();
    api.create(&one.path("v1", "configmaps"), &config_map("mine")).unwrap();
    let map = |namespace: &cluster::Namespace| format!("{}/mine", namespace.path("v1", "configmaps"));
    assert_eq!([&one, &two].map(|namespace| api.find(&map(namespace)).unwrap().is_some()), [true, false]);

    let path = format!("/api/v1/namespaces/{}", one.name());
    drop(one);
    wait::until(LIMIT, "the namespace to go", || api.find(&path).unwrap().is_none().then_some(())).unwrap();
}

#[test]
#[ignore = "needs cluster"]
fn another_process_attaches_by_the_folder() {
    let cluster = shared().unwrap();
    let other = Cluster::attach(cluster.dir()).unwrap();
    assert_eq!(
        (other.url(), other.ca_pem(), other.admin_kubeconfig()),
        (cluster.url(), cluster.ca_pem(), cluster.admin_kubeconfig())
    );
    let mark = other.audit().unwrap().mark().unwrap();
    assert!(mark > Mark::default());
    other.stop();
    cluster.api().get("/readyz").unwrap();
    let error = Cluster::attach(Path::new("/no/such/folder")).unwrap_err().to_string();
    assert!(error.starts_with("no control plane"), "{error}");
}

#[test]
#[ignore = "needs cluster (its own)"]
fn a_process_that_is_killed_takes_its_control_plane_along() {
    let mut holder =
        Command::new(env!("CARGO_BIN_EXE_hold")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let folder = Path::new(line.trim());
    let held = Cluster::attach(folder).unwrap();
    let names: BTreeSet<&str> = held.processes().keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["etcd", "kube-apiserver", "kube-controller-manager"]));
    assert_eq!(held.processes().values().filter(|pid| is_running(**pid)).count(), 3);

    // SIGKILL: nothing of the process itself runs any more.
    holder.kill().unwrap();
    holder.wait().unwrap();
    wait::until(LIMIT, "the processes to end", || held.processes().values().all(|pid| !is_running(*pid)).then_some(()))
        .unwrap();
    wait::until(LIMIT, "the folder to go", || (!folder.exists()).then_some(())).unwrap();
}

#[test]
#[ignore = "needs cluster (its own)"]
fn a_control_plane_is_made_as_the_options_say() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("map.json");
    let mut map = config_map("first");
    map["metadata"]["namespace"] = json!("default");
    fs::write(&manifest, map.to_string()).unwrap();
    let user = User::new("counted").unwrap().in_group("system:masters");
    let options = Options {
        apiserver_flags: vec!["--feature-gates=AllAlpha=false".to_owned()],
        extras: BTreeSet::new(),
        audit: AuditScope::Users(BTreeSet::from([user.name.clone()])),
        users: vec![user.clone()],
        manifests: vec![manifest],
        ..Options::default()
    };
    let cluster = Cluster::start(&options).unwrap();
    let names: Vec<&str> = cluster.processes().keys().map(String::as_str).collect();
    assert_eq!(names, ["etcd", "kube-apiserver"]);

    let path = "/api/v1/namespaces/default/configmaps/first";
    assert_eq!(cluster.api().get(path).unwrap()["data"], json!({ "key": "value" }));
    cluster.api_as(cluster.user("counted").unwrap()).unwrap().get(path).unwrap();
    let requests = cluster.audit().unwrap().requests(&Query::default()).unwrap();
    let seen: Vec<_> = requests.iter().map(|request| (request.user.as_str(), request.name.as_str())).collect();
    assert_eq!(seen, [("counted", "first")]);

    let (folder, pids) = (cluster.dir().to_owned(), cluster.processes().clone());
    cluster.stop();
    assert!(!folder.exists() && !pids.values().any(|pid| is_running(*pid)));
}

#[test]
#[ignore = "needs cluster (its own)"]
fn a_control_plane_that_can_not_start_says_why_and_keeps_its_logs() {
    let options =
        Options { apiserver_flags: vec!["--no-such-flag".to_owned()], audit: AuditScope::Off, ..Options::default() };
    let error = format!("{:#}", Cluster::start(&options).unwrap_err());
    assert!(
        error.contains("kube-apiserver ended (exit status: 1)") && error.contains("unknown flag: --no-such-flag"),
        "{error}"
    );
    let folder = error.strip_prefix("no control plane; its logs are in ").unwrap().split(':').next().unwrap();
    wait::until(LIMIT, "the data to go", || (!Path::new(folder).join("etcd").exists()).then_some(())).unwrap();
    assert!(Path::new(folder).join("logs/kube-apiserver.log").exists());
    fs::remove_dir_all(folder).unwrap();
}

/// A process that has ended and was not asked for by its parent yet is not running.
fn is_running(pid: u32) -> bool {
    let output = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output().unwrap();
    let state = String::from_utf8(output.stdout).unwrap();
    !state.trim().is_empty() && !state.starts_with('Z')
}

//! The rights of the daemon: those of the chart and of `capstan rbac` are one, and are what the daemon makes use of.

use super::*;

/// Returns a manifest with one plugin and one controller over probes, both with more fields.
pub(super) fn manifest(plugin: Value, controller: Value) -> Value {
    let mut plugins = json!({ "p": plugin });
    plugins["p"]["component"] = json!({ "path": "p.wasm" });
    let mut controllers = json!({ "c": controller });
    controllers["c"]["plugin"] = "p".into();
    if controllers["c"]["primary"].is_null() {
        controllers["c"]["primary"] = json!({ "apiVersion": "test.capstan.dev/v1", "kind": "Probe" });
    }
    json!({
        "apiVersion": "capstan.dev/v1alpha1", "kind": "Operator", "metadata": { "name": "o" },
        "spec": { "plugins": plugins, "controllers": controllers },
    })
}

/// Returns what `capstan rbac` prints for a manifest in namespace `home`.
fn printed(manifest: &Value, flags: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("o.yaml");
    fs::write(&file, manifest.to_string()).unwrap();
    let arguments = ["rbac", "-o", "json", "--namespace", "home", "--name", "capstan", "-m", file.to_str().unwrap()];
    let (code, out, err) = run(&[&arguments[..], flags].concat());
    assert_eq!(code, 0, "{err}");
    let list: Value = serde_json::from_str(&out).unwrap();
    sorted(list["items"].as_array().unwrap().clone())
}

/// Returns a document of the daemon's own, and a file with it.
fn document(kind: &str, spec: Value) -> (Value, tempfile::NamedTempFile) {
    let document = json!({ "apiVersion": "capstan.dev/v1alpha1", "kind": kind, "spec": spec });
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, document.to_string()).unwrap();
    (document, file)
}

/// Returns what the chart makes of a manifest in namespace `home`.
fn installed(manifest: &Value, rbac: &Value) -> Vec<Value> {
    installed_with(manifest, &json!({ "rbac": rbac }))
}

/// The same with further values.
fn installed_with(manifest: &Value, values: &Value) -> Vec<Value> {
    let mut values = values.clone();
    values["operators"]["o"] = json!({ "manifest": manifest, "components": {} });
    sorted(template("rbac.yaml", "home", &values).unwrap().into_iter().map(unlabelled).collect())
}

/// Returns an object without the labels that are the chart's.
fn unlabelled(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    let labels = metadata["labels"].as_object_mut().unwrap();
    labels.retain(|name, _| name.starts_with("rbac.authorization.k8s.io/"));
    if labels.is_empty() {
        metadata.remove("labels");
    }
    object
}

/// Returns objects by kind and namespace; helm has an order of its own.
fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    let place = |object: &Value| format!("{} {}", object["metadata"]["namespace"], object["metadata"]["name"]);
    objects.sort_by_key(|object| format!("{} {}", object["kind"], place(object)));
    objects
}

/// Every declaration that a right follows from.
fn manifests() -> Vec<(&'static str, Value)> {
    let pod = |more: Value| {
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod" });
        pod.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        pod
    };
    let informer = |more: Value| json!({ "informer": pod(more) });
    let of = |dependents: Value| json!({ "workflow": { "dependents": dependents } });
    let grants = json!({ "capabilities": { "kubernetes": [
        { "apiVersion": "v1", "kind": "Secret", "verbs": ["get"] },
        { "apiVersion": "v1", "kind": "ConfigMap", "verbs": ["get", "create", "update"] },
        { "apiVersion": "apps/v1", "kind": "Deployment", "verbs": ["apply", "delete"] },
        { "apiVersion": "batch/v1", "kind": "Job", "verbs": ["patch", "watch"] },
        { "apiVersion": "example.com/v1", "kind": "Tenant", "verbs": ["create", "apply"] },
        { "apiVersion": "v1", "kind": "Secret", "verbs": ["apply"], "namespaces": ["vault", "b"] },
        { "apiVersion": "v1", "kind": "Service", "verbs": ["apply"], "namespaces": "own" },
        { "apiVersion": "v1", "kind": "Pod", "verbs": ["delete", "watch"], "namespaces": "all" },
        { "apiVersion": "v1", "kind": "Node", "verbs": ["patch", "watch"] },
        { "apiVersion": "v1", "kind": "Namespace", "verbs": ["patch"], "namespaces": "all" },
        { "apiVersion": "v1", "kind": "PersistentVolume", "verbs": ["patch"], "namespaces": ["a"] },
    ] } });
    let in_clusters = |controller: Value| {
        let mut manifest = manifest(grants.clone(), controller);
        let cluster = |secret: &str| json!({ "kubeconfig": { "secret": { "name": secret } } });
        manifest["spec"]["clusters"] =
            json!({ "edge": cluster("z"), "spare": cluster("a.kubeconfig"), "unused": cluster("u") });
        manifest
    };
    let configured = || {
        let mut manifest = manifest(grants.clone(), json!({}));
        let plugins = manifest["spec"]["plugins"].as_object_mut().unwrap();
        plugins.values_mut().next().unwrap()["configFrom"] = json!({
            "password": { "secret": { "name": "z" } }, "user": { "secret": { "name": "z", "key": "u" } },
            "token": { "secret": { "name": "a.token" } }, "theme": { "configMap": { "name": "looks" } },
        });
        manifest
    };
    let pulled = || {
        let mut manifest = manifest(grants.clone(), json!({}));
        let component = |ca: Value| json!({ "component": { "oci": "r.io/a:1", "pullSecret": "regcred", "ca": ca } });
        manifest["spec"]["plugins"] = json!({
            "p": component(json!({ "configMap": { "name": "authority" } })),
            "q": component(json!({ "secret": { "name": "z" } })),
            "r": component(json!({ "file": "ca.pem" })),
        });
        manifest
    };
    let condition = json!({ "cel": "primary.spec.exposed" });
    let acting = |account: Value, controller: Value| {
        let mut manifest = manifest(grants.clone(), controller);
        manifest["spec"]["serviceAccount"] = account;
        manifest
    };
    let templates = || {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "desired": { "template": { "metadata": { "name": "${primary.metadata.name}" } } } });
        let controller = json!({ "namespaces": ["a"], "workflow": { "dependents": { "map": map } }, "status": { "template": { "a": "b" } } });
        let mut manifest = manifest(json!({}), controller);
        manifest["spec"].as_object_mut().unwrap().remove("plugins");
        manifest["spec"]["controllers"]["c"].as_object_mut().unwrap().remove("plugin");
        manifest
    };
    vec![
        ("templates alone", templates()),
        ("an account", acting(json!({ "name": "pages" }), json!({ "namespaces": ["a", "b"] }))),
        (
            "an account elsewhere",
            acting(json!({ "name": "pages", "namespace": "far" }), json!({ "namespaces": "all" })),
        ),
        ("values of config", configured()),
        ("components of registries", pulled()),
        (
            "tokens of requests",
            manifest(
                json!({}),
                json!({ "sources": {
                    "hooks": { "inbound": { "token": { "secret": { "name": "b-token" } } } },
                    "more": { "inbound": { "token": { "secret": { "name": "a-token", "key": "k" } } } },
                    "open": { "inbound": { "token": "none" } },
                } }),
            ),
        ),
        ("an account of selected", acting(json!({ "name": "pages" }), json!({ "namespaces": { "selector": "a=b" } }))),
        ("all", manifest(json!({}), json!({ "namespaces": "all" }))),
        ("selected", manifest(grants.clone(), json!({ "namespaces": { "selector": "a in (b, c)" } }))),
        ("own", manifest(json!({}), json!({ "namespaces": "own" }))),
        ("listed", manifest(json!({}), json!({ "namespaces": ["a", "b", "home"] }))),
        ("capabilities", manifest(grants.clone(), json!({}))),
        ("capabilities in listed", manifest(grants.clone(), json!({ "namespaces": ["a", "b"] }))),
        (
            "capabilities on what the controller writes",
            manifest(
                grants.clone(),
                json!({
                    "primary": { "apiVersion": "v1", "kind": "PersistentVolume" },
                    "namespaces": ["a"],
                    "standalone": { "s": { "dependents": { "node": pod(json!({ "kind": "Node" })) } } },
                }),
            ),
        ),
        (
            "manage",
            manifest(
                json!({}),
                of(json!({
                    "all": pod(json!({})),
                    "create": pod(json!({ "kind": "Service", "manage": ["create"] })),
                    "update": pod(json!({ "kind": "Endpoints", "manage": ["update"] })),
                    "found": { "apiVersion": "v1", "kind": "Secret", "manage": ["create"], "adopt": true },
                    "once": { "apiVersion": "batch/v1", "kind": "Job", "manage": ["create", "delete"], "createOnly": true },
                    "read": pod(json!({ "kind": "Secret", "readOnly": true })),
                    "plain": pod(json!({ "kind": "ConfigMap" })),
                    "applied": { "apiVersion": "apps/v1", "kind": "StatefulSet", "serverSideApply": true },
                    "written": { "apiVersion": "apps/v1", "kind": "DaemonSet", "serverSideApply": false },
                    "renamed": { "apiVersion": "batch/v1", "kind": "CronJob", "onRename": "delete" },
                    "named": { "apiVersion": "apps/v1", "kind": "ReplicaSet", "onRename": "keep" },
                    "kept": { "apiVersion": "apps/v1", "kind": "Deployment", "garbageCollected": false },
                    "many": { "apiVersion": "v1", "kind": "ServiceAccount", "bulk": true },
                    "single": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "bulk": false },
                })),
            ),
        ),
        (
            "outside of the cluster",
            manifest(
                json!({}),
                json!({
                    "sources": { "things": { "poll": { "every": "1m", "id": "/id" } }, "others": { "poll": { "every": "1m", "id": "/id" } } },
                    "workflow": { "dependents": {
                        "forgotten": { "external": { "source": "things" } },
                        "remembered": { "external": { "source": "others", "state": { "apiVersion": "v1", "kind": "ConfigMap" } } },
                    } },
                }),
            ),
        ),
        (
            "conditions",
            manifest(
                json!({}),
                of(json!({
                    "a": pod(json!({ "kind": "Service" })),
                    "b": pod(json!({ "dependsOn": ["a"], "reconcilePrecondition": condition })),
                    "c": pod(json!({ "kind": "Secret", "dependsOn": ["b"] })),
                    "d": { "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "dependsOn": ["c"], "manage": ["create", "update"] },
                    "e": { "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "dependsOn": ["a", "c"] },
                    "f": { "apiVersion": "apps/v1", "kind": "ReplicaSet", "activation": condition },
                })),
            ),
        ),
        (
            "standalone",
            manifest(
                json!({}),
                json!({ "namespaces": "own", "standalone": {
            "one": { "dependents": { "x": pod(json!({})), "y": pod(json!({ "kind": "Service", "manage": ["update"] })) } },
        } }),
            ),
        ),
        (
            "sources",
            manifest(
                json!({}),
                json!({ "namespaces": ["a"], "sources": {
            "here": informer(json!({})),
            "own": informer(json!({ "kind": "Secret", "namespaces": "own" })),
            "there": informer(json!({ "kind": "ConfigMap", "namespaces": ["b", "c"] })),
            "everywhere": informer(json!({ "kind": "Service", "namespaces": "all" })),
            "nodes": informer(json!({ "kind": "Node" })),
        }, "workflow": { "dependents": {
            "map": pod(json!({ "kind": "ConfigMap", "source": "there" })),
            "service": pod(json!({ "kind": "Service" })),
            "pod": pod(json!({ "source": "here" })),
        } } }),
            ),
        ),
        (
            "other clusters",
            in_clusters(json!({ "namespaces": ["a"], "sources": {
                    "far": informer(json!({ "cluster": "edge", "mapper": { "annotations": {} } })),
                    "here": informer(json!({ "kind": "ConfigMap" })),
                    "too": informer(json!({ "kind": "Secret", "cluster": "spare", "mapper": { "annotations": {} } })),
                } })),
        ),
        (
            "a controller in another cluster",
            in_clusters(json!({ "cluster": "spare", "sources": { "too": informer(json!({})) } })),
        ),
        (
            "a cluster-scoped primary",
            manifest(
                json!({}),
                json!({
                    "namespaces": "own", "primary": { "apiVersion": "v1", "kind": "Namespace" },
                }),
            ),
        ),
        (
            "many plurals",
            manifest(
                json!({}),
                of(json!({
                    "policy": { "apiVersion": "policy/v1", "kind": "PodDisruptionBudget" },
                    "class": { "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass" },
                    "gateway": { "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway" },
                    "other": { "apiVersion": "example.com/v1", "kind": "Gateway" },
                    "batch": { "apiVersion": "example.com/v1", "kind": "Batch" },
                    "mesh": { "apiVersion": "example.com/v1", "kind": "Mesh" },
                    "proxy": { "apiVersion": "example.com/v1", "kind": "Proxy" },
                    "sandbox": { "apiVersion": "example.com/v1", "kind": "Sandbox" },
                    "waltz": { "apiVersion": "example.com/v1", "kind": "Waltz" },
                })),
            ),
        ),
    ]
}

#[test]
fn the_chart_gives_the_rights_that_the_daemon_prints() {
    for (about, manifest) in manifests() {
        let (printed, installed) = (printed(&manifest, &[]), installed(&manifest, &json!({})));
        assert!(!printed.is_empty());
        assert_eq!(installed, printed, "{about}");
    }
}

#[test]
fn the_chart_gives_the_rights_that_the_daemon_prints_for_ceilings() {
    // CE-3
    let ceilings = json!({
        "teams": {
            "namespaces": ["team-b", "team-a"],
            "serviceAccounts": ["shops", "pages"],
            "rules": [
                { "apiGroups": ["example.com"], "resources": ["pages", "pages/status"], "verbs": ["patch", "watch", "get", "list"] },
                { "apiGroups": ["", "apps"], "resources": ["events"], "verbs": ["create", "watch"] },
                { "apiGroups": [""], "resources": ["events"], "verbs": ["create", "get"] },
            ],
        },
        "more": { "namespaces": ["c"], "serviceAccounts": ["pages"], "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }] },
    });
    let (document, file) = document("Ceilings", json!({ "ceilings": ceilings }));
    let at = |own: &str| run(&["rbac", "-o", "json", "--namespace", own, "--ceilings", file.path().to_str().unwrap()]);
    let (code, out, err) = at("home");
    assert_eq!(code, 0, "{err}");
    // CE-1
    let (code, _, refused) = at("team-a");
    let expected = "spec.ceilings.teams.namespaces: found `team-a`, the daemon's own namespace";
    assert!(code == 1 && refused.contains(expected), "{refused}");
    let list: Value = serde_json::from_str(&out).unwrap();
    let printed = sorted(list["items"].as_array().unwrap().clone());
    assert_eq!(printed.len(), 31);
    // CE-7: the status of one whose namespace has no ceiling any more is written after the roles there are gone.
    let everywhere = printed.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
    let expected = json!([{ "apiGroups": ["capstan.dev"], "resources": ["operators/status"], "verbs": ["patch"] }]);
    assert_eq!(everywhere["rules"], expected);
    let values = json!({ "operatorObjects": { "enabled": true, "ceilings": ceilings } });
    let objects = template("rbac.yaml", "home", &values).unwrap();
    assert_eq!(sorted(objects.into_iter().map(unlabelled).collect()), printed);
    // The daemon is given the same document.
    let map = template("ceilings.yaml", "home", &values).unwrap().remove(0);
    let given: Value = serde_yaml::from_str(map["data"]["ceilings.yaml"].as_str().unwrap()).unwrap();
    assert_eq!(given, document);
}

#[test]
fn roles_of_kubernetes_collect_what_people_may_do_with_operators_and_primaries() {
    let tenant = json!({ "primary": { "apiVersion": "example.com/v1", "kind": "Tenant" }, "namespaces": ["a"] });
    let mut manifest = manifest(json!({}), tenant);
    let secrets = json!({ "plugin": "p", "primary": { "apiVersion": "v1", "kind": "Secret" }, "namespaces": ["a"] });
    manifest["spec"]["controllers"]["secrets"] = secrets;
    let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]);
    let ceilings = json!({ "teams": { "namespaces": ["team-a"], "serviceAccounts": ["pages"], "rules": rules } });
    let (_, file) = document("Ceilings", json!({ "ceilings": ceilings }));
    let flags = ["--aggregate-to", "view,edit,admin", "--plural", "Tenant.example.com=tenantry"];
    let flags = [&flags[..], &["--ceilings", file.path().to_str().unwrap()]].concat();
    let values = json!({
        "operatorObjects": { "enabled": true, "ceilings": ceilings },
        "rbac": { "aggregateTo": ["admin", "view", "edit"], "plurals": { "Tenant.example.com": "tenantry" } },
    });
    let is_for_people = |object: &Value| object["metadata"]["name"].as_str().unwrap().contains(":aggregate-to-");
    let for_people = |objects: Vec<Value>| -> Vec<Value> { objects.into_iter().filter(is_for_people).collect() };
    let printed = for_people(printed(&manifest, &flags));
    assert_eq!(for_people(installed_with(&manifest, &values)), printed);
    let names: Vec<_> = printed.iter().map(|role| role["metadata"]["name"].as_str().unwrap()).collect();
    let expected = ["", "operators:"]
        .map(|of| ["admin", "edit", "view"].map(|collector| format!("home:capstan:{of}aggregate-to-{collector}")));
    assert_eq!(names, expected.concat());
    assert_eq!(printed[1]["metadata"]["labels"], json!({ "rbac.authorization.k8s.io/aggregate-to-edit": "true" }));
    // Nobody reads Secrets for that some operator works on them.
    let rule = |resource: &str, verbs: &[&str]| json!({ "apiGroups": ["example.com"], "resources": [resource], "verbs": verbs });
    let read = ["get", "list", "watch"];
    assert_eq!(printed[2]["rules"], json!([rule("tenantry", &read), rule("tenantry/status", &["get"])]));
    let write = ["get", "list", "watch", "create", "update", "patch", "delete"];
    assert_eq!(printed[1]["rules"], json!([rule("tenantry", &write), rule("tenantry/status", &["get"])]));
    // Who writes operators does not approve them, unless they are an admin.
    let approves = |role: &Value| role["rules"][0]["verbs"].as_array().unwrap().contains(&json!("create"));
    assert_eq!(printed[3..].iter().map(approves).collect::<Vec<_>>(), [true, false, false]);
    // What nobody has asked for is not there.
    assert!(for_people(installed_with(&manifest, &json!({ "operatorObjects": { "enabled": true } }))).is_empty());
}

#[test]
fn an_account_of_an_operator_in_the_values_and_of_a_ceiling_is_made_once() {
    let mut operator = manifest(json!({}), json!({ "namespaces": ["team-a"] }));
    operator["spec"]["serviceAccount"] = json!({ "name": "pages", "namespace": "team-a" });
    let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]);
    let ceiling = json!({ "namespaces": ["team-a"], "serviceAccounts": ["pages", "shops"], "rules": rules });
    let values = json!({
        "operatorObjects": { "enabled": true, "ceilings": { "teams": ceiling } },
        "operators": { "o": { "manifest": operator, "components": {} } },
    });
    let objects = template("rbac.yaml", "home", &values).unwrap();
    let mut places: Vec<_> = objects
        .iter()
        .map(|object| {
            let place = [&object["kind"], &object["metadata"]["namespace"], &object["metadata"]["name"]];
            place.map(|part| part.as_str().unwrap_or_default()).join(" ")
        })
        .collect();
    places.sort();
    assert!(places.contains(&"ServiceAccount team-a pages".to_owned()), "{places:?}");
    let all = places.len();
    places.dedup();
    assert_eq!(places.len(), all, "{places:?}");
}

#[test]
fn the_defaults_of_the_daemon_count_for_both() {
    // KD-5
    let thing = |api_version: &str, kind: &str| json!({ "apiVersion": api_version, "kind": kind });
    let dependents = json!({ "map": thing("v1", "ConfigMap"), "service": thing("v1", "Service"), "other": thing("a.dev/v1", "Service") });
    let manifest = manifest(json!({}), json!({ "namespaces": ["a"], "workflow": { "dependents": dependents } }));
    for defaults in [
        json!({ "dependents": { "serverSideApply": false } }),
        json!({ "dependents": { "serverSideApplyExcept": [thing("v1", "Service")] } }),
        json!({ "dependents": { "serverSideApplyExcept": [] } }),
        json!({ "controllers": { "serverSideApply": false } }),
    ] {
        let (_, file) = document("Defaults", defaults.clone());
        let printed = printed(&manifest, &["--defaults", file.path().to_str().unwrap()]);
        assert_eq!(installed_with(&manifest, &json!({ "defaults": defaults })), printed, "{defaults}");
    }
}

#[test]
fn what_users_say_of_kinds_counts_for_both() {
    let grants = json!({ "capabilities": { "kubernetes": [
        { "apiVersion": "apps/v1", "kind": "Deployment", "verbs": ["patch", "update", "watch"] },
        { "apiVersion": "example.com/v1", "kind": "Tenant", "verbs": ["delete"], "namespaces": "all" },
        { "apiVersion": "v1", "kind": "Pod", "verbs": ["create"] },
    ] } });
    let manifest = manifest(grants, json!({ "namespaces": ["a"] }));
    let flags = [
        "--plural",
        "Tenant.example.com=tenantry",
        "--plural",
        "Pod=podlings",
        "--cluster-scoped",
        "Tenant.example.com",
        "--subresource",
        "Deployment.apps=scale",
        "--subresource",
        "Deployment.apps=status",
    ];
    let rbac = json!({
        "plurals": { "Tenant.example.com": "tenantry", "Pod": "podlings" },
        "clusterScoped": ["Tenant.example.com"],
        "subresources": { "Deployment.apps": ["scale", "status"] },
    });
    let printed = printed(&manifest, &flags);
    assert_eq!(installed(&manifest, &rbac), printed);
    let text = json!(printed).to_string();
    for name in ["tenantry", "podlings", "deployments/scale"] {
        assert!(text.contains(&format!("{name:?}")), "{name} in {text}");
    }
}

#[test]
fn kinds_of_kubernetes_are_known_by_plural_and_scope() {
    let place = Place::new("kinds");
    let api = place.cluster.api();
    let groups = api.get("/apis").unwrap();
    let groups = groups["groups"].as_array().unwrap().iter();
    let versions = groups.map(|group| group["preferredVersion"]["groupVersion"].as_str().unwrap());
    let paths = versions.map(|version| (version.to_owned(), format!("/apis/{version}")));
    let mut wrong = Vec::new();
    for (version, path) in paths.chain([("v1".to_owned(), "/api/v1".to_owned())]) {
        // What tests install is nothing that the daemon could know.
        if version.contains("capstan.dev") {
            continue;
        }
        let resources = api.get(&path).unwrap();
        for resource in resources["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let watched = resource["verbs"].as_array().unwrap().contains(&json!("watch"));
            if name.contains('/') || !watched {
                continue;
            }
            let source = json!({ "informer": { "apiVersion": version, "kind": resource["kind"] } });
            let manifest = manifest(json!({}), json!({ "namespaces": "own", "sources": { "s": source } }));
            let role = if resource["namespaced"] == true { "Role" } else { "ClusterRole" };
            let objects = printed(&manifest, &[]);
            let known = objects.iter().filter(|object| object["kind"] == role).any(|role| {
                let rules = role["rules"].as_array().unwrap();
                rules.iter().any(|rule| rule["resources"] == json!([name]))
            });
            if !known {
                wrong.push(format!("{version} {}: {name}, for a {role}", resource["kind"]));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

// === the audit log is the judge ===

/// A right, or the use that was made of it: the verb, and the resource with its group.
type Right = (String, String);

fn right(verb: &str, group: &str, resource: &str) -> Right {
    let group = if group.is_empty() { String::new() } else { format!(".{group}") };
    (verb.to_owned(), format!("{resource}{group}"))
}

/// An API server that asks for more: it serves no streaming lists, and checks who may set which owner references.
struct Strict {
    cluster: Cluster,
    account: User,
    namespace: cluster::Namespace,
}

impl Strict {
    fn start() -> Self {
        let flags =
            ["--feature-gates=WatchList=false", "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"];
        let options = Options {
            apiserver_flags: flags.map(str::to_owned).to_vec(),
            extras: BTreeSet::new(),
            ..scenarios::options()
        };
        let cluster = Cluster::start(&options).unwrap();
        let namespace = cluster.namespace("home").unwrap();
        let account = namespace.service_account("capstan").unwrap();
        Self { cluster, account, namespace }
    }

    fn api(&self) -> &Api {
        self.cluster.api()
    }

    /// Gives the daemon the rights that it prints for a manifest, and returns them.
    fn permit(&self, name: &str, manifest: &str) -> BTreeSet<Right> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("o.yaml");
        fs::write(&file, manifest).unwrap();
        let arguments =
            ["rbac", "-o", "json", "--namespace", self.namespace.name(), "--name", name, "-m", file.to_str().unwrap()];
        let (code, out, err) = run(&arguments);
        assert_eq!(code, 0, "{err}");
        self.cluster.apply(&out).unwrap();
        let list: Value = serde_json::from_str(&out).unwrap();
        let mut rights = BTreeSet::new();
        for rule in
            list["items"].as_array().unwrap().iter().flat_map(|item| item["rules"].as_array().into_iter().flatten())
        {
            for verb in rule["verbs"].as_array().unwrap() {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                rights.insert(right(&text(verb), &text(&rule["apiGroups"][0]), &text(&rule["resources"][0])));
            }
        }
        rights
    }

    /// Takes away what [`Strict::permit`] gave.
    fn forbid(&self, name: &str) {
        let namespace = self.namespace.name();
        let wide = format!("{namespace}:{name}");
        for (kinds, name) in [("roles,rolebindings", name), ("clusterroles,clusterrolebindings", &wide)] {
            for kind in kinds.split(',') {
                self.cluster.kubectl(&["-n", namespace, "delete", kind, name, "--ignore-not-found"]).unwrap();
            }
        }
    }

    fn daemon(&self, manifest: &str) -> Daemon {
        let kubeconfig = self.cluster.kubeconfig(&self.account).unwrap();
        Start::new(manifest).kubeconfig(kubeconfig).run_on(&self.cluster).until_ready()
    }

    /// Returns the rights that the daemon has made use of since `mark`; none may have been refused.
    fn used(&self, mark: cluster::Mark) -> BTreeSet<Right> {
        let query = Query::since(mark).user(&self.account.name);
        let requests = self.cluster.audit().unwrap().requests(&query).unwrap();
        let refused: Vec<_> = requests.iter().filter(|request| request.code == 403).collect();
        assert!(refused.is_empty(), "{refused:#?}");
        let mut used = BTreeSet::new();
        for request in requests.iter().filter(|request| !request.resource.is_empty()) {
            let resource = match request.subresource.as_str() {
                "" => request.resource.clone(),
                subresource => format!("{}/{subresource}", request.resource),
            };
            used.insert(right(&request.verb, &request.group, &resource));
            // An apply that has made an object was allowed to.
            if request.verb == "patch" && request.code == 201 {
                used.insert(right("create", &request.group, &resource));
            }
        }
        used
    }

    fn await_object(&self, path: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        wait::until_ok(SOON, what, || match self.api().find(path).unwrap() {
            Some(object) if wanted(&object) => Ok(object),
            Some(object) => Err(object.to_string()),
            None => Err(format!("no {path}")),
        })
        .unwrap()
    }

    fn await_gone(&self, path: &str) {
        wait::until_ok(SOON, "its end", || match self.api().find(path).unwrap() {
            None => Ok(()),
            Some(object) => Err(object.to_string()),
        })
        .unwrap();
    }
}

/// Lets the sample do all that it can do.
fn webpage(strict: &Strict) {
    let pages = strict.namespace.path("sample.capstan.dev/v1", "webpages");
    let ingress = format!("{}/site", strict.namespace.path("networking.k8s.io/v1", "ingresses"));
    let map = format!("{}/site-html", strict.namespace.path("v1", "configmaps"));
    let page = json!({
        "apiVersion": "sample.capstan.dev/v1", "kind": "WebPage", "metadata": { "name": "site" },
        "spec": { "html": HTML, "exposed": true },
    });
    let site = format!("{pages}/site");
    strict.api().create(&pages, &page).unwrap();
    strict.await_object(&site, "a good status", |page| page["status"]["areWeGood"] == true);
    strict.await_object(&ingress, "the ingress", |_| true);
    let changed = HTML.replace("Hello", "Changed");
    strict.api().merge(&site, &json!({ "spec": { "html": changed, "exposed": false } })).unwrap();
    strict.await_object(&map, "the new title", |map| map["data"]["index.html"] == changed);
    strict.await_gone(&ingress);
}

/// Lets the probe do all that its manifest permits.
fn probe(strict: &Strict) {
    let probes = strict.namespace.path("test.capstan.dev/v1", "probes");
    let maps = strict.namespace.path("v1", "configmaps");
    let namespace = strict.namespace.name();
    let target = |name: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": name });
    let map = |name: &str, value: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "v": value },
            "metadata": { "name": name, "namespace": namespace },
        })
    };
    let write = |verb: &str, fields: Value| {
        let mut write = json!({ "verb": verb, "mode": "plain" });
        write.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ "write": write })
    };
    let event = json!({ "event": { "reason": "Looked", "message": "as it should" } });
    let steps = json!([
        write("create", json!({ "object": map("made", "1") })),
        write("update", json!({ "object": map("made", "2") })),
        write("apply", json!({ "object": map("applied", "1") })),
        write("mergePatch", json!({ "target": target("made"), "patch": { "data": { "v": "3" } } })),
        { "write": { "verb": "remove", "target": target("made") } },
        // In no cache, so that it is looked for at the API server.
        { "write": { "verb": "removeFinalizer", "finalizer": "other.dev/finalizer" } },
        { "write": { "verb": "remove", "target": { "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "namespace": namespace, "name": "none" } } },
        event, event,
    ]);
    let spec = json!({
        "reconcile": { "do": steps, "status": { "done": true }, "object": { "metadata": { "labels": { "seen": "yes" } } } },
        "dependents": { "kept": { "metadata": { "name": "kept" }, "spec": { "ports": [{ "port": 1 }] } } },
    });
    let probe =
        json!({ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "metadata": { "name": "p" }, "spec": spec });
    let path = format!("{probes}/p");
    strict.api().create(&probes, &probe).unwrap();
    strict.await_object(&path, "its status", |probe| probe["status"]["done"] == true);
    strict.await_object(&format!("{maps}/applied"), "what was applied", |_| true);
    let events = strict.namespace.path("v1", "events");
    // Equal ones that wait are written as one.
    let counted = |at_least: u64| {
        let found = wait::until_ok(SOON, "an event that was counted", || {
            let list = strict.api().get(&events).unwrap();
            let mut items = list["items"].as_array().unwrap().iter();
            let counted = items.any(|event| event["count"].as_u64() >= Some(at_least));
            if counted { Ok(()) } else { Err(list.to_string()) }
        });
        found.unwrap();
    };
    counted(2);
    let again = json!({ "spec": { "again": true } });
    strict.api().merge(&path, &again).unwrap();
    counted(3);
    strict.api().delete(&path).unwrap();
    strict.await_gone(&path);
    strict.await_gone(&format!("{}/kept", strict.namespace.path("v1", "services")));
}

#[test]
fn the_daemon_makes_use_of_every_right_and_needs_no_other() {
    let strict = Strict::start();
    let audit = strict.cluster.audit().unwrap();

    let sample = fs::read_to_string(scenarios::repository().join("plugins/webpage/webpage.yaml")).unwrap();
    let path = format!("path: {}", component("webpage").display());
    let sample = sample.replace("path: webpage.wasm", &path);
    let mark = audit.mark().unwrap();
    let rights = strict.permit("webpage", &sample);
    let daemon = strict.daemon(&sample);
    webpage(&strict);
    assert!(daemon.stop().success());
    strict.forbid("webpage");
    // Any component may change its primary, have a finalizer and write Events; this one does not.
    let spared = BTreeSet::from([
        right("create", "", "events"),
        right("get", "", "events"),
        right("patch", "", "events"),
        right("get", "sample.capstan.dev", "webpages"),
        right("patch", "sample.capstan.dev", "webpages"),
    ]);
    let used = strict.used(mark);
    assert_eq!(rights.difference(&used).cloned().collect::<BTreeSet<_>>(), spared);
    assert_eq!(used.difference(&rights).collect::<Vec<_>>(), Vec::<&Right>::new());

    let grants = json!({ "capabilities": { "kubernetes": [
        { "apiVersion": "v1", "kind": "ConfigMap", "verbs": ["get", "create", "apply", "update", "patch", "delete"] },
        { "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "verbs": ["patch", "delete"] },
    ] } });
    let controller = json!({
        "namespaces": [strict.namespace.name()],
        "workflow": { "dependents": { "kept": { "apiVersion": "v1", "kind": "Service", "garbageCollected": false } } },
    });
    let mut other = manifest(grants, controller);
    other["spec"]["plugins"]["p"]["component"]["path"] = component("probe").to_str().unwrap().into();
    let other = other.to_string();
    let mark = audit.mark().unwrap();
    let rights = strict.permit("probe", &other);
    let daemon = strict.daemon(&other);
    probe(&strict);
    assert!(daemon.stop().success());
    assert_eq!(strict.used(mark), rights);
}

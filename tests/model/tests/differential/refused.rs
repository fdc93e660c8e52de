//! Holds to the real API server what the model answers to a user who may not do something, and about a kind that is no
//! longer served.

use model::{Denied, Model, Which};
use serde_json::{Value, json};

use crate::cases::{APPLY, JSON, MERGE, PATCH, Request, comparable};
use crate::lists::{LATE, until};
use crate::side::Side;
use crate::sides;

/// A user who may read the ConfigMaps of one namespace, and do anything with its things but change or delete them.
const USER: &str = "limited";

const LATES: Which<'static> = Which { api_version: "late.capstan.dev/v1", kind: "Late" };
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The requests of a user with few rights; `~` is the namespace, `!` the path of things in it.
#[rustfmt::skip]
fn wishes() -> Vec<Request> {
    let map = |name: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    let thing = |name: &str| json!({ "apiVersion": "model.capstan.dev/v1", "kind": "Thing", "metadata": { "name": name } });
    vec![
        ("GET", "~/configmaps/a", JSON, Value::Null),
        ("GET", "~/configmaps", JSON, Value::Null),
        ("GET", "/api/v1/configmaps", JSON, Value::Null),
        ("GET", "/api/v1/configmaps?watch=true&timeoutSeconds=1", JSON, Value::Null),
        ("GET", "/api/v1/namespaces/default/configmaps", JSON, Value::Null),
        ("GET", "/api/v1/namespaces/default/configmaps/a", JSON, Value::Null),
        ("GET", "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=1", JSON, Value::Null),
        ("POST", "~/configmaps", JSON, map("b")),
        ("PUT", "~/configmaps/a", JSON, map("a")),
        ("PATCH", "~/configmaps/a", MERGE, json!({})),
        ("PATCH", "~/configmaps/a", PATCH, json!([])),
        ("PATCH", "~/configmaps/b?fieldManager=x", APPLY, map("b")),
        ("DELETE", "~/configmaps/a", JSON, Value::Null),
        ("DELETE", "~/configmaps/b", JSON, Value::Null),
        ("GET", "~/secrets/a", JSON, Value::Null),
        ("GET", "~/nothings", JSON, Value::Null),
        ("POST", "!", JSON, thing("b")),
        ("GET", "!/a", JSON, Value::Null),
        ("GET", "!/a/status", JSON, Value::Null),
        ("PATCH", "!/a", MERGE, json!({})),
        ("PATCH", "!/a/status", MERGE, json!({})),
        // An apply of what is not there takes the right to create it, too.
        ("PATCH", "!/c?fieldManager=x", APPLY, thing("c")),
        ("PUT", "!/a", JSON, thing("a")),
        ("PUT", "!/a/status", JSON, thing("a")),
        ("DELETE", "!/a", JSON, Value::Null),
    ]
}

/// Returns the differences between what both answer to a user with few rights.
pub(crate) async fn forbidden(real: &Side, modelled: &Side, model: &Model) -> Vec<String> {
    let namespace = real.namespace();
    for side in [real, modelled] {
        for (kind, path) in
            [("v1/ConfigMap", "/api/v1/namespaces/~/configmaps"), ("model.capstan.dev/v1/Thing", THINGS)]
        {
            let (api_version, kind) = kind.rsplit_once('/').unwrap();
            let object = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "a" } });
            assert_eq!(side.send("POST", &path.replace('~', namespace), JSON, &object).await.code, 201);
        }
    }
    permit(real).await;
    for (verbs, kind) in [
        (&["create", "update", "patch", "delete"][..], Some("configmaps")),
        (&["patch", "update", "delete"][..], Some("things.model.capstan.dev")),
    ] {
        let denied = |verb: &&str| Denied {
            user: Some(USER.to_owned()),
            verb: Some((*verb).to_owned()),
            kind: kind.map(str::to_owned),
            namespace: Some(namespace.to_owned()),
        };
        verbs.iter().map(denied).for_each(|denied| model.forbid(denied));
    }
    model.forbid(Denied { user: Some(USER.to_owned()), namespace: Some("default".to_owned()), ..Denied::default() });
    for kind in ["secrets", "nothings"] {
        model.forbid(Denied { user: Some(USER.to_owned()), kind: Some(kind.to_owned()), ..Denied::default() });
    }
    let [real, modelled] = [real, modelled].map(|side| side.of(USER));
    let granted = format!("/api/v1/namespaces/{namespace}/configmaps/a");
    until(|| async { real.send("GET", &granted, "", &Value::Null).await.code == 200 }).await;
    compare(&real, &modelled, wishes()).await
}

const THINGS: &str = "/apis/model.capstan.dev/v1/namespaces/~/things";

/// Gives the user its rights at the real API server.
async fn permit(real: &Side) {
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}", real.namespace());
    let rules = json!([
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"] },
        { "apiGroups": ["model.capstan.dev"], "resources": ["things", "things/status"], "verbs": ["get", "list", "watch", "create"] },
    ]);
    let metadata = json!({ "name": USER });
    let role =
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules });
    assert_eq!(real.send("POST", &format!("{path}/roles"), JSON, &role).await.code, 201);
    let subject = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": USER },
        "subjects": [subject],
    });
    assert_eq!(real.send("POST", &format!("{path}/rolebindings"), JSON, &binding).await.code, 201);
}

/// The requests about a kind that may not be served; `?` is the path of its objects.
#[rustfmt::skip]
fn late() -> Vec<Request> {
    let object = |name: &str| json!({ "apiVersion": "late.capstan.dev/v1", "kind": "Late", "metadata": { "name": name } });
    vec![
        ("GET", "?", JSON, Value::Null),
        ("GET", "?/a", JSON, Value::Null),
        ("GET", "?/none", JSON, Value::Null),
        ("GET", "?&watch=true&timeoutSeconds=1", JSON, Value::Null),
        ("POST", "?", JSON, object("b")),
        ("PUT", "?/a", JSON, object("a")),
        ("PATCH", "?/a", MERGE, json!({ "spec": { "a": 1 } })),
        ("PATCH", "?/a&fieldManager=x", APPLY, object("a")),
        ("DELETE", "?/b", JSON, Value::Null),
    ]
}

/// Returns the differences between what both answer about a kind before it ceases to be served, then, and once it is served again.
pub(crate) async fn unserved(real: &Side, modelled: &Side, model: &Model) -> Vec<String> {
    let definition: Value = serde_yaml::from_str(LATE).unwrap();
    model.install(&definition);
    assert_eq!(real.send("POST", DEFINITIONS, JSON, &definition).await.code, 201);
    let path = format!("/apis/late.capstan.dev/v1/namespaces/{}/lates", real.namespace());
    let serves = |code| {
        let path = &path;
        until(move || async move { real.send("GET", path, "", &Value::Null).await.code == code })
    };
    serves(200).await;
    let requests = || {
        let full = |path: &str| {
            let (object, query) =
                path.trim_start_matches('?').split_once('&').unwrap_or((path.trim_start_matches('?'), ""));
            format!("/apis/late.capstan.dev/v1/namespaces/~/lates{object}?{query}")
        };
        late().into_iter().map(move |(method, path, content, body)| (method, full(path), content, body))
    };
    let object = json!({ "apiVersion": "late.capstan.dev/v1", "kind": "Late", "metadata": { "name": "a" } });
    for side in [real, modelled] {
        assert_eq!(side.send("POST", &path, JSON, &object).await.code, 201);
    }
    let mut found = Vec::new();
    for served in [true, false, true] {
        model.serve(LATES, served);
        let patch = json!([{ "op": "replace", "path": "/spec/versions/0/served", "value": served }]);
        let name = definition["metadata"]["name"].as_str().unwrap();
        assert_eq!(real.send("PATCH", &format!("{DEFINITIONS}/{name}"), PATCH, &patch).await.code, 200);
        serves(if served { 200 } else { 404 }).await;
        let differences = compare(real, modelled, requests()).await;
        found.extend(differences.into_iter().map(|difference| format!("served: {served}, {difference}")));
    }
    found
}

/// Returns the differences between the answers of both.
async fn compare<P: AsRef<str>>(
    real: &Side,
    modelled: &Side,
    requests: impl IntoIterator<Item = (&'static str, P, &'static str, Value)>,
) -> Vec<String> {
    let namespace = real.namespace();
    let mut found = Vec::new();
    for (method, path, content, body) in requests {
        let path = path.as_ref().replace('!', THINGS);
        let path = if path.starts_with('~') { format!("/api/v1/namespaces/{path}") } else { path };
        let path = path.replace('~', namespace);
        let [expected, answer] = [real, modelled].map(|side| side.send(method, &path, content, &body));
        let [expected, answer] = comparable(expected.await, answer.await);
        if expected != answer {
            found.push(format!("{method} {path} {body}\n{}", sides(&expected, &answer)));
        }
    }
    found
}

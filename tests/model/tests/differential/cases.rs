//! Holds single answers of the model to those of the real API server, word by word.

use serde_json::{Value, json};

use crate::normal;
use crate::side::{Answer, Side};
use crate::sides;

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const PATCH: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// A request: method, path, content type, body.
pub(crate) type Request = (&'static str, &'static str, &'static str, Value);

/// The requests, in their order; `~` is the namespace, `!` the path of things in it.
fn requests() -> Vec<Request> {
    [creates(), updates(), applies(), deletes(), reads(), things()].concat()
}

fn map(name: &str, fields: Value) -> Value {
    let mut object = fields;
    object["apiVersion"] = "v1".into();
    object["kind"] = "ConfigMap".into();
    object["metadata"]["name"] = name.into();
    object
}

fn thing(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "model.capstan.dev/v1", "kind": "Thing", "metadata": { "name": name }, "spec": spec })
}

#[rustfmt::skip]
fn creates() -> Vec<Request> {
    vec![
        ("GET", "~/configmaps/a", JSON, Value::Null),
        ("POST", "~/configmaps", JSON, map("a", json!({ "data": { "a": "1" } }))),
        ("POST", "~/configmaps", JSON, map("a", json!({}))),
        ("POST", "~/configmaps", JSON, map("A_b", json!({}))),
        ("POST", "~/configmaps", JSON, json!({ "metadata": {} })),
        ("POST", "~/configmaps", JSON, map("c", json!({ "metadata": { "namespace": "other" } }))),
        ("POST", "~/configmaps", JSON, map("c", json!({ "metadata": { "resourceVersion": "1" } }))),
        ("POST", "~/configmaps", JSON, map("c", json!({ "metadata": { "finalizers": ["x"] } }))),
        ("POST", "~/configmaps", JSON, map("c", json!({ "data": { "a b": "1" } }))),
        ("POST", "~/configmaps", JSON, map("c", json!({ "data": { "a": 1 } }))),
        ("POST", "~/configmaps?fieldValidation=Strict", JSON, map("c", json!({ "other": 1, "metadata": { "what": 1 } }))),
        ("POST", "~/configmaps?fieldValidation=Perhaps", JSON, map("c", json!({}))),
        ("POST", "~/configmaps", JSON, thing("c", &json!({}))),
        ("POST", "/api/v1/namespaces/none/configmaps", JSON, map("c", json!({}))),
    ]
}

#[rustfmt::skip]
fn updates() -> Vec<Request> {
    vec![
        ("PUT", "~/configmaps/b", JSON, map("b", json!({}))),
        ("PUT", "~/configmaps/a", JSON, map("b", json!({}))),
        ("PUT", "~/configmaps/a", JSON, map("a", json!({ "metadata": { "resourceVersion": "1" } }))),
        ("PUT", "~/configmaps/a", JSON, map("a", json!({ "metadata": { "resourceVersion": "x" } }))),
        ("PUT", "~/configmaps/a", JSON, map("a", json!({ "metadata": { "uid": "x" } }))),
        ("PATCH", "~/configmaps/a", MERGE, json!({ "metadata": { "uid": "x" } })),
        ("PATCH", "~/configmaps/a", MERGE, json!({ "metadata": { "name": "b" } })),
        ("PATCH", "~/configmaps/a", MERGE, json!({ "metadata": { "resourceVersion": "1" } })),
        ("PATCH", "~/configmaps/a", MERGE, json!({ "metadata": { "ownerReferences": [{ "kind": "X" }] } })),
        ("PATCH", "~/configmaps/a", MERGE, json!({ "data": { "a": 1 } })),
        ("PATCH", "~/configmaps/b", MERGE, json!({})),
        ("PATCH", "~/configmaps/a", PATCH, json!([{ "op": "test", "path": "/data/a", "value": "2" }])),
        ("PATCH", "~/configmaps/a", PATCH, json!([{ "op": "remove", "path": "/data/x" }])),
        ("PATCH", "~/configmaps/a", PATCH, json!({})),
        ("PATCH", "~/configmaps/a?force=true", MERGE, json!({})),
        ("PATCH", "~/configmaps/a", "text/plain", json!({})),
    ]
}

#[rustfmt::skip]
fn applies() -> Vec<Request> {
    vec![
        ("PATCH", "~/configmaps/a", APPLY, map("a", json!({}))),
        ("PATCH", "~/configmaps/a?fieldManager=x", APPLY, map("b", json!({}))),
        ("PATCH", "~/configmaps/a?fieldManager=x", APPLY, json!({ "data": {} })),
        ("PATCH", "~/configmaps/a?fieldManager=x", APPLY, thing("a", &json!({}))),
        ("PATCH", "~/configmaps/a?fieldManager=x", APPLY, map("a", json!({ "other": 1 }))),
        ("PATCH", "~/configmaps/a?fieldManager=x", APPLY, map("a", json!({ "data": { "a": 1 } }))),
        ("PATCH", "~/configmaps/a?fieldManager=x", APPLY, map("a", json!({ "metadata": { "managedFields": [] } }))),
        ("PATCH", "~/configmaps/a?fieldManager=x", APPLY, map("a", json!({ "metadata": { "uid": "x" } }))),
        ("PATCH", "~/configmaps/a?fieldManager=x", APPLY, map("a", json!({ "data": { "a": "2" } }))),
        ("PATCH", "~/configmaps/a?fieldManager=x", APPLY, map("a", json!({ "data": { "b": "2", "c": "2" } }))),
        ("PATCH", "~/configmaps/a?fieldManager=y", APPLY, map("a", json!({ "data": { "a": "3", "b": "3", "c": "3" } }))),
        ("PATCH", "~/configmaps/a?fieldManager=y", APPLY, map("a", json!({ "data": { "b": "3" } }))),
        ("PATCH", "~/configmaps/b?fieldManager=y", APPLY, map("b", json!({ "metadata": { "uid": "x" } }))),
    ]
}

#[rustfmt::skip]
fn deletes() -> Vec<Request> {
    vec![
        ("PATCH", "~/configmaps/a", MERGE, json!({ "immutable": true })),
        ("PATCH", "~/configmaps/a", MERGE, json!({ "data": { "a": "9" } })),
        ("DELETE", "~/configmaps/b", JSON, Value::Null),
        ("DELETE", "~/configmaps/a", JSON, json!({ "preconditions": { "uid": "x" } })),
        ("DELETE", "~/configmaps/a", JSON, json!({ "preconditions": { "resourceVersion": "1" } })),
        ("DELETE", "~/configmaps/a", JSON, json!({ "propagationPolicy": "Perhaps" })),
        ("DELETE", "~/configmaps/a", JSON, json!({ "propagationPolicy": "Foreground" })),
        ("PATCH", "~/configmaps/a", MERGE, json!({ "metadata": { "finalizers": ["x/y", "foregroundDeletion"] } })),
        ("DELETE", "~/configmaps/a", JSON, json!({ "propagationPolicy": "Orphan" })),
        ("DELETE", "~/configmaps/a", JSON, json!({ "propagationPolicy": "Background" })),
    ]
}

#[rustfmt::skip]
fn reads() -> Vec<Request> {
    vec![
        ("GET", "~/configmaps?labelSelector=a%20b", JSON, Value::Null),
        ("GET", "~/configmaps?fieldSelector=x%3D1", JSON, Value::Null),
        ("GET", "~/configmaps?continue=x", JSON, Value::Null),
        ("GET", "~/configmaps?resourceVersion=x", JSON, Value::Null),
        ("GET", "~/configmaps?resourceVersionMatch=Exact", JSON, Value::Null),
        ("GET", "~/configmaps?resourceVersion=1&resourceVersionMatch=Perhaps", JSON, Value::Null),
        ("GET", "~/configmaps?resourceVersion=0&resourceVersionMatch=Exact", JSON, Value::Null),
        ("GET", "~/configmaps?watch=true&sendInitialEvents=true", JSON, Value::Null),
        ("GET", "~/configmaps?watch=true&resourceVersionMatch=NotOlderThan", JSON, Value::Null),
        ("GET", "~/nothings", JSON, Value::Null),
        ("GET", "/apis/nobody.dev/v1", JSON, Value::Null),
        ("GET", "/apis/nobody.dev/v1/nothings", JSON, Value::Null),
        ("GET", "/apis/model.capstan.dev/v1/nothings", JSON, Value::Null),
        ("GET", "~/configmaps/a/status", JSON, Value::Null),
    ]
}

#[rustfmt::skip]
fn things() -> Vec<Request> {
    vec![
        ("POST", "!", JSON, thing("a", &json!({ "number": "x", "parts": [{ "size": 1 }] }))),
        ("POST", "!?fieldValidation=Strict", JSON, thing("a", &json!({ "unknown": 1 }))),
        ("POST", "!", JSON, thing("a", &json!({ "parts": [{ "name": "a" }, { "name": "a" }] }))),
        ("POST", "!", JSON, thing("a", &json!({ "set": ["a", "a"] }))),
        ("POST", "!", JSON, thing("a", &json!({}))),
        ("PUT", "!/a", JSON, thing("a", &json!({}))),
        ("PUT", "!/b", JSON, thing("b", &json!({}))),
        ("PATCH", "!/a", MERGE, json!({ "spec": null })),
        ("PATCH", "!/a/status?fieldManager=x", APPLY, json!({ "apiVersion": "model.capstan.dev/v1", "kind": "Thing", "metadata": { "name": "a" }, "status": { "a": 1 } })),
        ("PATCH", "!/a/status?fieldManager=y", APPLY, json!({ "apiVersion": "model.capstan.dev/v1", "kind": "Thing", "metadata": { "name": "a" }, "status": { "a": 2 } })),
        ("PATCH", "!/a?fieldManager=x", APPLY, thing("a", &json!({ "parts": [{ "name": "a" }, { "name": "a" }] }))),
        ("DELETE", "!/a", JSON, Value::Null),
        ("GET", "!/a", JSON, Value::Null),
    ]
}

/// Returns the differences.
pub(crate) async fn differences(real: &Side, modelled: &Side, namespace: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (method, path, content, body) in requests() {
        let path = path.replace('~', &format!("/api/v1/namespaces/{namespace}"));
        let path = path.replace('!', &format!("/apis/model.capstan.dev/v1/namespaces/{namespace}/things"));
        let [expected, answer] = [real, modelled].map(|side| side.send(method, &path, content, &body));
        let [expected, answer] = comparable(expected.await, answer.await);
        if expected != answer {
            found.push(format!("{method} {path} {body}\n{}", sides(&expected, &answer)));
        }
    }
    found
}

/// What is in messages that are worded by the insides of the real API server: those are not compared.
const INSIDES: [&str; 10] = [
    "json: cannot unmarshal",
    "registered for version",
    "strconv",
    "StorageError",
    "is invalid: patch:",
    "valueUnstructured",
    "unable to parse requirement",
    "continue token",
    "Go value",
    "is invalid: [",
];

/// Returns what is compared of two answers: of an object, only that it is one.
pub(crate) fn comparable(real: Answer, modelled: Answer) -> [Value; 2] {
    let message = real.body["message"].as_str().unwrap_or_default();
    let free = INSIDES.iter().any(|words| message.contains(words));
    [real, modelled].map(|Answer { code, mut body, .. }| {
        if body["kind"] != "Status" && !body.is_string() {
            let metadata = &body["metadata"];
            return json!({ "code": code, "kind": body["kind"], "spec": body["spec"], "finalizers": metadata["finalizers"], "deleting": metadata["deletionTimestamp"].is_string() });
        }
        let message = body["message"].as_str().filter(|_| !free).map(unnumbered);
        normal::status(&mut body);
        json!({ "code": code, "body": body, "message": message })
    })
}

/// Returns a message without numbers, times and uids.
fn unnumbered(message: &str) -> String {
    let words = message.split_inclusive([' ', '"', '(', ')', ',']);
    let plain = |word: &str| {
        if word.bytes().any(|byte| byte.is_ascii_digit()) { "#".to_owned() } else { word.to_owned() }
    };
    words.map(plain).collect()
}

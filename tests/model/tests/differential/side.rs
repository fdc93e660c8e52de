//! Decides how an operation is put to one API server, and what of its answer is compared.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use crate::normal;
use crate::operation::{Act, Kind, Operation, Said};

/// An API server, and what is known of the objects there.
pub(crate) struct Side {
    client: kube::Client,
    /// The user whose requests these are; `None`: one who may do everything.
    user: Option<&'static str>,
    namespace: String,
    known: BTreeMap<(Kind, &'static str), Known>,
}

/// What was seen of an object.
#[derive(Clone, Debug, Default)]
struct Known {
    versions: Vec<String>,
    uids: Vec<String>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warned: bool,
}

impl Side {
    pub(crate) fn new(client: kube::Client, namespace: &str) -> Self {
        Self { client, user: None, namespace: namespace.to_owned(), known: BTreeMap::new() }
    }

    /// Returns the same API server, as it is to a user.
    pub(crate) fn of(&self, user: &'static str) -> Self {
        Self { user: Some(user), ..Self::new(self.client.clone(), &self.namespace) }
    }

    /// Carries an operation out, and returns what is compared of its answer.
    pub(crate) async fn carry_out(&mut self, operation: &Operation) -> Answer {
        let Operation { kind, name, status, query, act } = operation;
        let collection = kind.path(&self.namespace);
        let part = if *status { "/status" } else { "" };
        let object = format!("{collection}/{name}{part}");
        let found = match act {
            Act::Replace { .. } => {
                Some(self.send("GET", &object, "", &Value::Null).await).filter(|found| found.code == 200)
            }
            Act::Create(_)
            | Act::Merge { .. }
            | Act::Json(_)
            | Act::Apply { .. }
            | Act::Delete { .. }
            | Act::Get
            | Act::List => None,
        };
        let (method, content) = act.method();
        let path = if matches!(act, Act::Create(_) | Act::List) { collection } else { object };
        let body = self.body(operation, found.map(|found| found.body));
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let answer = self.send(method, &format!("{path}?{}", query.join("&")), content, &body).await;
        let dry = query.iter().any(|part| part.starts_with("dryRun"));
        self.compared(operation, answer, dry)
    }

    /// Returns the body of the request; `found` is the object that is there, if that has been looked for.
    fn body(&self, operation: &Operation, found: Option<Value>) -> Value {
        let versioned = |body: &Value, version: Said| {
            let mut body = body.clone();
            if version != Said::Nothing {
                self.say(operation, &mut body, version, "resourceVersion");
            }
            body
        };
        match &operation.act {
            Act::Create(body) | Act::Json(body) => body.clone(),
            Act::Merge { patch: body, version } | Act::Apply { object: body, version } => versioned(body, *version),
            Act::Replace { change, version, uid } => {
                let mut body = found.unwrap_or_else(|| json!({ "metadata": { "name": operation.name } }));
                json_patch::merge(&mut body, change);
                self.say(operation, &mut body, *version, "resourceVersion");
                self.say(operation, &mut body, *uid, "uid");
                body
            }
            Act::Delete { version, uid } => {
                let mut body = json!({ "metadata": {} });
                self.say(operation, &mut body, *version, "resourceVersion");
                self.say(operation, &mut body, *uid, "uid");
                json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": body["metadata"] })
            }
            Act::Get | Act::List => Value::Null,
        }
    }

    /// Puts a version or a uid into metadata, as it is said.
    fn say(&self, operation: &Operation, body: &mut Value, said: Said, field: &str) {
        let known = self.known.get(&(operation.kind, operation.name)).cloned().unwrap_or_default();
        let (all, other) =
            if field == "uid" { (known.uids, "00000000-0000-4000-8000-000000000000") } else { (known.versions, "1") };
        let value = match said {
            Said::Nothing => Value::Null,
            Said::Current => all.last().map_or(Value::Null, |value| value.as_str().into()),
            Said::Former => all.iter().rev().nth(1).map_or(other, String::as_str).into(),
        };
        let Some(metadata) = body.as_object_mut().map(|body| body.entry("metadata").or_insert_with(|| json!({})))
        else {
            return;
        };
        if value.is_null() {
            metadata.as_object_mut().unwrap().remove(field);
        } else {
            metadata[field] = value;
        }
    }

    /// Sends a request and returns the whole answer.
    pub(crate) async fn send(&self, method: &str, path: &str, content: &str, body: &Value) -> Answer {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let mut request =
            Request::builder().method(method).uri(path).header("content-type", content).header("user-agent", "agent/1");
        if let Some(user) = self.user {
            request = request.header("impersonate-user", user);
        }
        let response = self.client.send(request.body(Body::from(bytes)).unwrap()).await.unwrap();
        let (code, warned) = (response.status().as_u16(), response.headers().contains_key("warning"));
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
        Answer { code, body, warned }
    }

    fn compared(&mut self, operation: &Operation, answer: Answer, dry: bool) -> Answer {
        let Answer { code, mut body, warned } = answer;
        if let Some(items) = body.get_mut("items").and_then(Value::as_array_mut) {
            for item in items {
                let name = if item["metadata"]["name"] == "a" { "a" } else { "b" };
                let known = self.known.entry((operation.kind, name)).or_default();
                normal::object(item, known.versions.last());
            }
            normal::list(&mut body);
        } else if body.get("kind").and_then(Value::as_str) == Some("Status") {
            normal::status(&mut body);
        } else {
            let known = self.known.entry((operation.kind, operation.name)).or_default();
            let text = |field: &str| body["metadata"][field].as_str().unwrap_or_default().to_owned();
            let (version, uid) = (text("resourceVersion"), text("uid"));
            let last = known.versions.last().cloned();
            normal::object(&mut body, last.as_ref());
            if !dry {
                if last != Some(version.clone()) {
                    known.versions.push(version);
                }
                if known.uids.last() != Some(&uid) {
                    known.uids.push(uid);
                }
            }
        }
        Answer { code, body, warned }
    }

    /// Returns the version of all that is there. Watches of all kinds can go on from it: a kind that nobody has asked for yet is
    /// watched by the API server from its first list on.
    pub(crate) async fn version(&self) -> String {
        for kind in Kind::ALL {
            self.send("GET", &kind.path(&self.namespace), "", &Value::Null).await;
        }
        let list = self.send("GET", &Kind::ConfigMap.path(&self.namespace), "", &Value::Null).await;
        list.body["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    }

    /// Returns what a watch of a kind shows until it has lasted this many seconds, without the bookmarks that may come
    /// at any time.
    pub(crate) async fn events(&self, kind: Kind, query: &str, seconds: u64) -> Vec<Value> {
        let mut events = self.lines(&kind.path(&self.namespace), query, seconds).await;
        events.retain(|event| event["type"] != "BOOKMARK" || event["object"]["metadata"]["annotations"].is_object());
        for event in &mut events {
            let is_bookmark = event["type"] == "BOOKMARK";
            let object = &mut event["object"];
            if is_bookmark {
                let metadata = &object["metadata"];
                *object = json!({ "kind": object["kind"], "apiVersion": object["apiVersion"], "annotations": metadata["annotations"], "version": metadata["resourceVersion"].is_string() });
            } else {
                normal::object(object, None);
            }
        }
        events
    }

    /// Returns the lines of a watch that lasts this many seconds.
    pub(crate) async fn lines(&self, path: &str, query: &str, seconds: u64) -> Vec<Value> {
        let path = format!("{path}?watch=true&timeoutSeconds={seconds}&{query}");
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = self.client.send(request).await.unwrap();
        let bytes: Bytes = response.into_body().collect().await.unwrap().to_bytes();
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    /// Returns the namespace of its objects.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

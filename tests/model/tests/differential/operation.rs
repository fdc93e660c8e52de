//! Decides which operations there are, and what is in them.

use std::fmt::{self, Display, Formatter};

use serde_json::{Value, json};

use crate::chance::Chance;

/// A kind that operations are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
    Service,
    Deployment,
    Thing,
    Probe,
}

/// What a request says of a version or a uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Nothing,
    /// That of the object as it is.
    Current,
    /// One that it had once; another if it had none.
    Former,
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    pub(crate) status: bool,
    /// What stands in the query.
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) act: Act,
}

/// What an operation does.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Create(Value),
    /// Reads the object, merges this into it, and puts it.
    Replace {
        change: Value,
        version: Said,
        uid: Said,
    },
    Merge {
        patch: Value,
        version: Said,
    },
    Json(Value),
    Apply {
        object: Value,
        version: Said,
    },
    Delete {
        version: Said,
        uid: Said,
    },
    Get,
    List,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::ConfigMap,
        Self::Secret,
        Self::Service,
        Self::Deployment,
        Self::Thing,
        Self::Probe,
    ];

    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::ConfigMap | Self::Secret | Self::Service => "v1",
            Self::Deployment => "apps/v1",
            Self::Thing => "model.capstan.dev/v1",
            Self::Probe => "test.capstan.dev/v1",
        }
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
            Self::Service => "services",
            Self::Deployment => "deployments",
            Self::Thing => "things",
            Self::Probe => "probes",
        }
    }

    /// Returns the path of its objects in a namespace.
    pub(crate) fn path(self, namespace: &str) -> String {
        let root = if self.api_version() == "v1" {
            "/api"
        } else {
            "/apis"
        };
        format!(
            "{root}/{}/namespaces/{namespace}/{}",
            self.api_version(),
            self.plural()
        )
    }

    /// Returns whether `/status` is a path of its own.
    fn has_status(self) -> bool {
        !matches!(self, Self::ConfigMap | Self::Secret)
    }
}

/// Draws an operation on one of these kinds.
pub(crate) fn draw(chance: &mut Chance, kinds: &[Kind]) -> Operation {
    let kind = chance.of(kinds);
    let name = chance.of(&["a", "b"]);
    let status = kind.has_status() && chance.once_in(4);
    let said = |chance: &mut Chance| {
        chance.of(&[
            Said::Nothing,
            Said::Nothing,
            Said::Current,
            Said::Current,
            Said::Former,
        ])
    };
    let act = match chance.below(16) {
        0 | 1 => Act::Create(whole(chance, kind, name)),
        2..=4 => Act::Replace {
            change: change(chance, kind, status),
            version: said(chance),
            uid: chance.of(&[Said::Nothing, Said::Current, Said::Current, Said::Former]),
        },
        5 | 6 => Act::Merge {
            patch: change(chance, kind, status),
            version: if chance.once_in(3) {
                said(chance)
            } else {
                Said::Nothing
            },
        },
        7 => Act::Json(json_patch(chance, kind)),
        8..=11 => Act::Apply {
            object: applied(chance, kind, name, status),
            version: if chance.once_in(8) {
                said(chance)
            } else {
                Said::Nothing
            },
        },
        12 | 13 => Act::Delete {
            version: if chance.once_in(3) {
                said(chance)
            } else {
                Said::Nothing
            },
            uid: if chance.once_in(3) {
                said(chance)
            } else {
                Said::Nothing
            },
        },
        14 => Act::Get,
        _ => Act::List,
    };
    let query = query(chance, &act);
    Operation {
        kind,
        name,
        status: status
            && matches!(
                act,
                Act::Replace { .. } | Act::Merge { .. } | Act::Apply { .. } | Act::Get
            ),
        query,
        act,
    }
}

fn query(chance: &mut Chance, act: &Act) -> Vec<(&'static str, String)> {
    let mut query = Vec::new();
    match act {
        Act::Get => {}
        Act::List => {
            if chance.once_in(2) {
                let selector = chance.of(&["x", "x=1", "!x", "x!=1", "x in (1,2)", "y notin (1)"]);
                query.push(("labelSelector", selector.to_owned()));
            }
            if chance.once_in(3) {
                query.push((
                    "fieldSelector",
                    chance
                        .of(&[
                            "metadata.name=a",
                            "metadata.name!=a",
                            "metadata.namespace!=default",
                            "spec.x=1",
                        ])
                        .to_owned(),
                ));
            }
            if chance.once_in(2) {
                query.push(("limit", "1".to_owned()));
            }
        }
        Act::Create(_)
        | Act::Replace { .. }
        | Act::Merge { .. }
        | Act::Json(_)
        | Act::Apply { .. }
        | Act::Delete { .. } => {
            let applies = matches!(act, Act::Apply { .. });
            if !matches!(act, Act::Delete { .. }) && (applies || chance.once_in(2)) {
                query.push(("fieldManager", chance.of(&["m1", "m2", "m3"]).to_owned()));
            }
            if applies && chance.once_in(3) {
                query.push(("force", "true".to_owned()));
            }
            if chance.once_in(12) {
                query.push(("dryRun", "All".to_owned()));
            }
            if !matches!(act, Act::Delete { .. }) && chance.once_in(8) {
                query.push((
                    "fieldValidation",
                    chance.of(&["Strict", "Ignore", "Warn"]).to_owned(),
                ));
            }
        }
    }
    query
}

fn labels(chance: &mut Chance) -> Value {
    chance.map(&["x", "y"], &[json!("1"), json!("2")])
}

/// Takes empty labels, annotations and finalizers out of what is written to a custom resource: see `KNOWN`.
fn without_empty(kind: Kind, metadata: &mut Value) {
    if !matches!(kind, Kind::Thing | Kind::Probe) {
        return;
    }
    let empty = |value: &Value| *value == json!({}) || *value == json!([]);
    metadata
        .as_object_mut()
        .unwrap()
        .retain(|name, value| name == "managedFields" || !empty(value));
}

fn metadata(chance: &mut Chance, kind: Kind) -> Value {
    let mut metadata = json!({});
    if chance.once_in(2) {
        metadata["labels"] = labels(chance);
    }
    if chance.once_in(3) {
        metadata["annotations"] = chance.map(&["example.com/n", "m"], &[json!("1"), json!("")]);
    }
    if chance.once_in(4) {
        metadata["finalizers"] = json!(chance.some(&["example.com/a", "example.com/b"]));
    }
    if chance.once_in(10) {
        let uid = chance.of(&[
            "00000000-0000-4000-8000-000000000001",
            "00000000-0000-4000-8000-000000000002",
        ]);
        metadata["ownerReferences"] =
            json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid }]);
    }
    without_empty(kind, &mut metadata);
    metadata
}

/// Returns what is in an object beside its metadata.
fn inside(chance: &mut Chance, kind: Kind) -> Value {
    match kind {
        Kind::ConfigMap => match chance.below(8) {
            0 => json!({}),
            1 => json!({ "binaryData": { "b": "AAAA" } }),
            2 => json!({ "data": { "a": "1" }, "unknown": 1 }),
            _ => {
                json!({ "data": chance.map(&["a", "b", "c"], &[json!("1"), json!("2"), json!("")]) })
            }
        },
        Kind::Secret => match chance.below(4) {
            0 => json!({ "stringData": chance.map(&["a", "b"], &[json!("1"), json!("hello")]) }),
            _ => json!({ "data": chance.map(&["a", "b", "c"], &[json!("MQ=="), json!("Mg==")]) }),
        },
        Kind::Service => {
            let port = |port: u16, target: u16| json!({ "name": format!("p{port}"), "port": port, "targetPort": target });
            let mut ports = vec![port(80, chance.of(&[80, 8080]))];
            if chance.once_in(2) {
                ports.insert(chance.below(2), port(81, 81));
            }
            json!({ "spec": { "ports": ports, "selector": chance.map(&["app", "tier"], &[json!("a"), json!("b")]) } })
        }
        Kind::Deployment => {
            let value = chance.of(&["1", "2"]);
            let env: Vec<Value> = chance
                .some(&["A", "B", "C"])
                .into_iter()
                .map(|name| json!({ "name": name, "value": value }))
                .collect();
            let mut container = json!({ "name": "main", "image": chance.of(&["a:1", "a"]) });
            if !env.is_empty() {
                container["env"] = env.into();
            }
            if chance.once_in(3) {
                container["ports"] = json!([{ "containerPort": 80 }]);
            }
            json!({ "spec": {
                "replicas": chance.below(3), "selector": { "matchLabels": { "app": "a" } },
                "template": { "metadata": { "labels": { "app": "a" } }, "spec": { "containers": [container] } },
            } })
        }
        Kind::Thing => json!({ "spec": thing(chance) }),
        Kind::Probe => match chance.below(6) {
            0 => json!({}),
            1 => json!({ "spec": chance.any(2), "other": 1 }),
            _ => {
                json!({ "spec": { "n": chance.below(3), "free": chance.any(2), "list": chance.some(&[1, 2]) } })
            }
        },
    }
}

fn thing(chance: &mut Chance) -> Value {
    let mut spec = json!({});
    let fields = chance.some(&[
        "text", "number", "flag", "words", "set", "parts", "names", "whole", "free", "wrong",
        "unknown",
    ]);
    for field in fields {
        spec[field] = match field {
            "text" => json!(chance.of(&["a", ""])),
            "number" => json!(chance.below(3)),
            "flag" => json!(chance.once_in(2)),
            "words" | "set" => json!(chance.some(&["a", "b", "c"])),
            "parts" => {
                let size = chance.below(2);
                let names = chance.some(&["a", "b", "c"]);
                let parts = names.into_iter().map(|name| {
                    if size == 0 {
                        json!({ "name": name })
                    } else {
                        json!({ "name": name, "size": size })
                    }
                });
                parts.collect()
            }
            "names" | "whole" => chance.map(&["a", "b"], &[json!("1"), json!("2")]),
            "free" => json!({ "v": chance.any(2) }),
            "wrong" if chance.once_in(4) => {
                spec["number"] = json!("text");
                continue;
            }
            "unknown" if chance.once_in(4) => json!(1),
            _ => continue,
        };
    }
    spec
}

fn status(chance: &mut Chance, kind: Kind) -> Value {
    match kind {
        Kind::Deployment => {
            let conditions: Vec<Value> = chance
                .some(&["Available", "Progressing"])
                .into_iter()
                .map(|kind| json!({ "type": kind, "status": "True" }))
                .collect();
            json!({ "observedGeneration": 1, "replicas": 2, "readyReplicas": chance.below(3), "conditions": conditions })
        }
        Kind::Service => {
            json!({ "conditions": [{ "type": "Ready", "status": chance.of(&["True", "False"]), "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }] })
        }
        Kind::ConfigMap | Kind::Secret | Kind::Thing | Kind::Probe => chance.any(2),
    }
}

fn whole(chance: &mut Chance, kind: Kind, name: &str) -> Value {
    let mut object = inside(chance, kind);
    object["metadata"] = metadata(chance, kind);
    object["metadata"]["name"] = name.into();
    if !chance.once_in(12) {
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = format!("{kind:?}").into();
    }
    if chance.once_in(5) && kind.has_status() {
        object["status"] = json!({ "x": 1 });
        if matches!(kind, Kind::Service | Kind::Deployment) {
            object["status"] = json!({});
        }
    }
    object
}

/// Returns what is merged into an object.
fn change(chance: &mut Chance, kind: Kind, of_status: bool) -> Value {
    let mut change = drawn_change(chance, kind, of_status);
    if let Some(metadata) = change.get_mut("metadata") {
        without_empty(kind, metadata);
    }
    change
}

fn drawn_change(chance: &mut Chance, kind: Kind, of_status: bool) -> Value {
    if of_status && !chance.once_in(4) {
        return json!({ "status": status(chance, kind) });
    }
    match chance.below(6) {
        0 => {
            json!({ "metadata": { "labels": { chance.of(&["x", "y"]): chance.of(&[json!("1"), json!("2"), Value::Null]) } } })
        }
        1 => {
            json!({ "metadata": { "finalizers": chance.of(&[Value::Null, json!([]), json!(["example.com/a"]), json!(["example.com/b"])]) } })
        }
        2 => {
            json!({ "metadata": { "annotations": { "m": chance.of(&[json!("1"), json!("2"), Value::Null]) } } })
        }
        3 if chance.once_in(3) => {
            json!({ "metadata": { "managedFields": chance.of(&[json!([]), json!([{}]), Value::Null]) } })
        }
        _ => {
            let mut change = inside(chance, kind);
            if kind == Kind::Deployment {
                // A selector can't be changed; nothing else of a patch is in its way.
                change = json!({ "spec": { "replicas": change["spec"]["replicas"], "template": change["spec"]["template"] } });
            }
            change
        }
    }
}

fn json_patch(chance: &mut Chance, kind: Kind) -> Value {
    let value = chance.of(&["1", "2"]);
    let inside = match kind {
        Kind::ConfigMap | Kind::Secret => {
            json!({ "op": chance.of(&["add", "remove", "replace"]), "path": "/data/a", "value": if kind == Kind::Secret { "MQ==" } else { value } })
        }
        Kind::Service => {
            json!({ "op": "add", "path": "/spec/selector", "value": { "app": value } })
        }
        Kind::Deployment => {
            json!({ "op": "replace", "path": "/spec/replicas", "value": chance.below(3) })
        }
        Kind::Thing => {
            json!({ "op": chance.of(&["add", "remove"]), "path": "/spec/text", "value": value })
        }
        Kind::Probe => {
            json!({ "op": chance.of(&["add", "remove"]), "path": "/spec/n", "value": value })
        }
    };
    let test = json!({ "op": "test", "path": "/metadata/name", "value": chance.of(&["a", "b"]) });
    let mut labelled = json!({ "labels": labels(chance) });
    without_empty(kind, &mut labelled);
    let labels = labelled
        .get("labels")
        .cloned()
        .unwrap_or_else(|| json!({ "x": "1" }));
    let label = json!({ "op": "add", "path": "/metadata/labels", "value": labels });
    let finalizer = json!({ "op": "remove", "path": "/metadata/finalizers" });
    Value::Array(chance.some(&[test, inside, label, finalizer]))
}

fn applied(chance: &mut Chance, kind: Kind, name: &str, of_status: bool) -> Value {
    let mut object = if of_status {
        json!({ "status": status(chance, kind) })
    } else {
        inside(chance, kind)
    };
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = format!("{kind:?}").into();
    object["metadata"] = if of_status && !chance.once_in(4) {
        json!({})
    } else {
        metadata(chance, kind)
    };
    object["metadata"]["name"] = name.into();
    object
}

impl Display for Operation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            name,
            status,
            query,
            act,
        } = self;
        let part = if *status { "/status" } else { "" };
        write!(f, "{kind:?} {name}{part} {query:?} ")?;
        match act {
            Act::Create(object) => write!(f, "create {object}"),
            Act::Replace {
                change,
                version,
                uid,
            } => write!(f, "replace {change} version {version:?} uid {uid:?}"),
            Act::Merge { patch, version } => write!(f, "merge {patch} version {version:?}"),
            Act::Json(patch) => write!(f, "patch {patch}"),
            Act::Apply { object, version } => write!(f, "apply {object} version {version:?}"),
            Act::Delete { version, uid } => write!(f, "delete version {version:?} uid {uid:?}"),
            Act::Get => f.write_str("get"),
            Act::List => f.write_str("list"),
        }
    }
}

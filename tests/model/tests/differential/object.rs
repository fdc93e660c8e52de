//! Decides what is in the objects and patches that are drawn.

use serde_json::{Value, json};

use crate::chance::Chance;
use crate::operation::Kind;

fn labels(chance: &mut Chance) -> Value {
    chance.map(&["x", "y"], &[json!("1"), json!("2")])
}

fn metadata(chance: &mut Chance) -> Value {
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
        let uid = chance.of(&["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"]);
        metadata["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid }]);
    }
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
            let port =
                |port: u16, target: u16| json!({ "name": format!("p{port}"), "port": port, "targetPort": target });
            let mut ports = vec![port(80, chance.of(&[80, 8080]))];
            if chance.once_in(2) {
                ports.insert(chance.below(2), port(81, 81));
            }
            json!({ "spec": { "ports": ports, "selector": chance.map(&["app", "tier"], &[json!("a"), json!("b")]) } })
        }
        Kind::Deployment => {
            let value = chance.of(&["1", "2"]);
            let env: Vec<Value> =
                chance.some(&["A", "B", "C"]).into_iter().map(|name| json!({ "name": name, "value": value })).collect();
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
    let fields =
        chance.some(&["text", "number", "flag", "words", "set", "parts", "names", "whole", "free", "wrong", "unknown"]);
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
                    if size == 0 { json!({ "name": name }) } else { json!({ "name": name, "size": size }) }
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

pub(crate) fn whole(chance: &mut Chance, kind: Kind, name: &str) -> Value {
    let mut object = inside(chance, kind);
    object["metadata"] = metadata(chance);
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
pub(crate) fn change(chance: &mut Chance, kind: Kind, of_status: bool) -> Value {
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

pub(crate) fn json_patch(chance: &mut Chance, kind: Kind) -> Value {
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
    let label = json!({ "op": "add", "path": "/metadata/labels", "value": labels(chance) });
    let finalizer = json!({ "op": "remove", "path": "/metadata/finalizers" });
    Value::Array(chance.some(&[test, inside, label, finalizer]))
}

pub(crate) fn applied(chance: &mut Chance, kind: Kind, name: &str, of_status: bool) -> Value {
    let mut object = if of_status { json!({ "status": status(chance, kind) }) } else { inside(chance, kind) };
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = format!("{kind:?}").into();
    object["metadata"] = if of_status && !chance.once_in(4) { json!({}) } else { metadata(chance) };
    object["metadata"]["name"] = name.into();
    object
}

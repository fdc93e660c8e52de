//! Decides what of an answer is compared: all but what is another at each API server.

use serde_json::{Value, json};

/// What stands for a value that is there.
const SET: &str = "set";

/// Makes an object comparable; `last` is the version that it had before.
pub(crate) fn object(object: &mut Value, last: Option<&String>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    for field in ["uid", "creationTimestamp", "deletionTimestamp"] {
        if let Some(value) = metadata.get_mut(field) {
            *value = SET.into();
        }
    }
    if let Some(version) = metadata.get_mut("resourceVersion") {
        *version = match last {
            Some(last) if *version == **last => "as before".into(),
            _ => "another".into(),
        };
    }
    if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
        for entry in entries.iter_mut() {
            entry.as_object_mut().unwrap().remove("time");
        }
        entries.sort_by_key(Value::to_string);
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        for field in ["clusterIP", "clusterIPs"] {
            if let Some(value) = spec.get_mut(field) {
                *value = SET.into();
            }
        }
    }
}

/// Makes a list comparable, but for its items.
pub(crate) fn list(list: &mut Value) {
    for field in ["resourceVersion", "continue"] {
        if let Some(value) = list["metadata"].get_mut(field).filter(|value| *value != "") {
            *value = SET.into();
        }
    }
}

/// Makes a refusal comparable: what it says is free but for reason, and what it is about.
pub(crate) fn status(status: &mut Value) {
    let Some(body) = status.as_object_mut() else {
        return;
    };
    if body.get("status") == Some(&"Success".into()) {
        status["details"]["uid"] = SET.into();
        return;
    }
    body.remove("message");
    let Some(details) = body.get_mut("details") else {
        return;
    };
    let Some(causes) = details.get_mut("causes").and_then(Value::as_array_mut) else {
        return;
    };
    for cause in causes.iter_mut() {
        let reason = cause["reason"].clone();
        // Who is in conflict is part of the rules; other words are free.
        let message = if reason == "FieldManagerConflict" {
            timeless(cause["message"].as_str().unwrap()).into()
        } else {
            Value::Null
        };
        *cause = json!({ "reason": reason, "field": cause["field"], "message": message });
    }
    // The real one looks at some fields several times.
    causes.sort_by_key(Value::to_string);
    causes.dedup();
}

/// Returns a message without the time at its end.
fn timeless(message: &str) -> String {
    message.split(" at ").next().unwrap_or_default().to_owned()
}

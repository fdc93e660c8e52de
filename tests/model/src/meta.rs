//! Decides how parts of an object that may be absent are read and set.

use serde_json::{Map as Json, Value};

/// Returns a text of an object's metadata; empty if it has none.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    get(object, field).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a field of an object's metadata.
pub(crate) fn get<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field)
}

/// Returns an object's finalizers.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let finalizers = get(object, "finalizers").and_then(Value::as_array);
    finalizers.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns true if an object is being deleted.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// Returns the uids of an object's owners.
pub(crate) fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    get(object, "ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

/// Sets a field of an object's metadata; `None` removes it.
pub(crate) fn set(object: &mut Value, field: &str, value: Option<Value>) {
    put(of(object), field, value);
}

/// Sets a field of an object; `None` removes it.
pub(crate) fn set_part(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(object) = object.as_object_mut() {
        put(object, field, value);
    }
}

fn put(map: &mut Json<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => map.insert(field.to_owned(), value),
        None => map.remove(field),
    };
}

/// Returns an object's metadata, and creates it if it is missing.
///
/// # Panics
/// Never: a value that is not a map becomes one.
fn of(object: &mut Value) -> &mut Json<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Json::new());
    }
    let metadata = match object {
        Value::Object(map) => map.entry("metadata").or_insert(Value::Null),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => other,
    };
    if !metadata.is_object() {
        *metadata = Value::Object(Json::new());
    }
    match metadata {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            unreachable!("it has just been made a map")
        }
    }
}

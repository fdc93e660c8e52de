//! Decides which fields of an incoming object are kept, and which are wrong.

use serde_json::{Map as Json, Value};

use crate::duplicate::{Duplicate, duplicates};
use crate::kinds::Kind;
use crate::schema::{Map, Scalar, Schema, field_of};
use crate::status::Refusal;
use crate::wrong::Wrong;

/// How a request wants fields to be treated that the kind does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validation {
    /// They are dropped.
    Ignore,
    /// They are dropped, and the answer says so.
    Warn,
    /// The request is refused.
    Strict,
}

/// An object as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) object: Value,
    /// The warnings of the answer.
    pub(crate) warnings: Vec<String>,
}

/// Returns an object without the fields that its kind does not have.
///
/// # Errors
/// If it has such fields and `validation` is strict; if it is of another kind; if a field of the API server's own
/// kinds has another type.
pub(crate) fn decode(kind: &Kind, object: &Value, validation: Validation) -> Result<Decoded, Refusal> {
    let mut object = named(kind, object)?;
    let schema = &kind.schema;
    let cannot = |why: &str| {
        let Kind { name, version, .. } = kind;
        Refusal::bad(format!("{name} in version {version:?} cannot be handled as a {name}: {why}"))
    };
    let mut wrong = Vec::new();
    if kind.custom {
        // Metadata is the API server's own even where the kind is not.
        let metadata = object.get("metadata").cloned().unwrap_or_default();
        check(&metadata, metadata_of(schema), Null::Nothing, "", &mut wrong);
    } else {
        check(&object, schema, Null::Nothing, "", &mut wrong);
    }
    if let Some(Wrong { message, .. }) = wrong.first() {
        return Err(cannot(message));
    }
    let mut unknown = Vec::new();
    prune(&mut object, schema, "", &mut unknown);
    unknown.sort();
    let warnings: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    if validation == Validation::Strict && !warnings.is_empty() {
        return Err(cannot(&format!("strict decoding error: {}", warnings.join(", "))));
    }
    if !kind.custom {
        tidy(&mut object, schema);
        fill_up(&mut object, &kind.empty);
    } else if let Some(metadata) = object.get_mut("metadata") {
        tidy(metadata, metadata_of(schema));
    }
    if let Some(map) = object.as_object_mut().filter(|map| !map.get("metadata").is_some_and(Value::is_object)) {
        map.insert("metadata".to_owned(), Value::Object(Json::new()));
    }
    let warnings = if validation == Validation::Warn { warnings } else { Vec::new() };
    Ok(Decoded { object, warnings })
}

/// Returns an object with its kind in it.
fn named(kind: &Kind, object: &Value) -> Result<Value, Refusal> {
    let name = &kind.name;
    let Some(map) = object.as_object() else {
        return Err(Refusal::bad("couldn't get version/kind; json parse error"));
    };
    let text = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or_default();
    let (version, found) = (text("apiVersion"), text("kind"));
    if (!version.is_empty() && version != kind.api_version()) || (!found.is_empty() && found != name) {
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let message = format!(
            "{found} in version {version:?} of {group:?} cannot be handled as a {name}: the object provided is unrecognized"
        );
        return Err(Refusal::bad(message));
    }
    if kind.custom && (version.is_empty() || found.is_empty()) {
        return Err(Refusal::bad("Object 'Kind' is missing"));
    }
    let mut map = map.clone();
    map.insert("apiVersion".to_owned(), kind.api_version().into());
    map.insert("kind".to_owned(), name.clone().into());
    Ok(Value::Object(map))
}

/// Returns the shape of metadata.
fn metadata_of(schema: &Schema) -> &Schema {
    match schema {
        Schema::Map(map) => field_of(Some(map), "metadata"),
        Schema::Scalar(_) | Schema::List(_) | Schema::Any => schema,
    }
}

/// Removes fields that the schema does not have, and adds their paths to `unknown`.
fn prune(value: &mut Value, schema: &Schema, path: &str, unknown: &mut Vec<String>) {
    let join = |name: &str| {
        if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
    };
    match (schema, value) {
        (Schema::Map(map), Value::Object(fields)) => {
            fields.retain(|name, _| {
                let known = map.field(name).is_some();
                if !known {
                    unknown.push(join(name));
                }
                known
            });
            for (name, value) in fields {
                if let Some(schema) = map.field(name) {
                    prune(value, schema, &join(name), unknown);
                }
            }
        }
        (Schema::List(list), Value::Array(items)) => {
            for (at, item) in items.iter_mut().enumerate() {
                prune(item, &list.items, &format!("{path}[{at}]"), unknown);
            }
        }
        (Schema::Scalar(_) | Schema::Map(_) | Schema::List(_) | Schema::Any, _) => {}
    }
}

/// Removes what the API server's own types don't keep: null, empty texts, lists and maps. Values under names that the
/// object chooses stay.
fn tidy(value: &mut Value, schema: &Schema) {
    match (schema, value) {
        (Schema::Map(map), Value::Object(fields)) => {
            fields.retain(|name, value| {
                if !map.names(name) {
                    return true;
                }
                tidy(value, field_of(Some(map), name));
                let kept = map.kept.contains(name);
                match value {
                    Value::Null => false,
                    Value::String(text) => kept || !text.is_empty(),
                    Value::Array(items) => kept || !items.is_empty(),
                    Value::Object(fields) => kept || !fields.is_empty() || KEPT.contains(&name.as_str()),
                    Value::Bool(flag) => *flag || is_not(map, name, Scalar::Flag),
                    Value::Number(number) => number.as_i64() != Some(0) || is_not(map, name, Scalar::Count),
                }
            });
            for (name, value) in &map.always {
                fields.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        (Schema::List(list), Value::Array(items)) => {
            for item in items {
                tidy(item, &list.items);
            }
        }
        (Schema::Scalar(_) | Schema::Map(_) | Schema::List(_) | Schema::Any, _) => {}
    }
}

fn is_not(map: &Map, name: &str, scalar: Scalar) -> bool {
    *field_of(Some(map), name) != Schema::Scalar(scalar)
}

/// Fields that are kept though they are empty.
const KEPT: [&str; 6] = ["metadata", "spec", "status", "resources", "securityContext", "rollingUpdate"];

/// Sets the fields of `empty` that are missing in an object.
fn fill_up(object: &mut Value, empty: &Json<String, Value>) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    for (name, inner) in empty {
        match (object.get_mut(name), inner) {
            (None | Some(Value::Null), _) => {
                object.insert(name.clone(), inner.clone());
            }
            (Some(found), Value::Object(inner)) => fill_up(found, inner),
            (Some(_), Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {}
        }
    }
}

/// Returns what of a configuration can't be applied: what has another type than its schema, or is not in it, or is
/// there twice.
pub(crate) fn misfits(value: &Value, schema: &Schema) -> Vec<String> {
    let (mut wrong, mut unknown) = (Vec::new(), Vec::new());
    check(value, schema, Null::Nothing, "", &mut wrong);
    prune(&mut value.clone(), schema, "", &mut unknown);
    let wrong = wrong.into_iter().map(|Wrong { field, message, .. }| format!(".{field}: {message}"));
    let unknown = unknown.into_iter().map(|path| format!(".{path}: field not declared in schema"));
    let twice = duplicates(value, schema);
    wrong.chain(unknown).chain(twice.iter().map(Duplicate::said)).collect()
}

/// The meaning of null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Null {
    /// Nothing: it fits everywhere.
    Nothing,
    /// A value, which has another type than all others.
    Value,
}

/// Finds values of another type than their schema, and adds them to `wrong`.
pub(crate) fn check(value: &Value, schema: &Schema, null: Null, path: &str, wrong: &mut Vec<Wrong>) {
    let join = |name: &str| {
        if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
    };
    let (well, wanted) = match schema {
        Schema::Any => (true, ""),
        Schema::Scalar(Scalar::Text) => (value.is_string(), "string"),
        Schema::Scalar(Scalar::Integer | Scalar::Count) => (value.is_i64() || value.is_u64(), "integer"),
        Schema::Scalar(Scalar::Number) => (value.is_number(), "number"),
        Schema::Scalar(Scalar::Boolean | Scalar::Flag) => (value.is_boolean(), "boolean"),
        Schema::Scalar(Scalar::Either) => {
            (value.is_string() || value.is_number() || value.is_boolean(), "integer or string")
        }
        Schema::Map(_) => (value.is_object(), "object"),
        Schema::List(_) => (value.is_array(), "array"),
    };
    if !well && (null == Null::Value || !value.is_null()) {
        wrong.push(Wrong::type_of(path, value, wanted));
        return;
    }
    match schema {
        Schema::Map(map) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                if let Some(schema) = map.field(name) {
                    check(value, schema, null, &join(name), wrong);
                }
            }
        }
        Schema::List(list) => {
            for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                check(item, &list.items, null, &format!("{path}[{at}]"), wrong);
            }
        }
        Schema::Scalar(_) | Schema::Any => {}
    }
}

/// Finds required values that are missing, and adds them to `wrong`.
pub(crate) fn required(value: &Value, schema: &Schema, path: &str, wrong: &mut Vec<Wrong>) {
    let join = |name: &str| {
        if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
    };
    match (schema, value) {
        (Schema::Map(map), Value::Object(fields)) => {
            let absent = map.required.iter().filter(|name| !fields.contains_key(*name));
            wrong.extend(absent.map(|name| Wrong::required(&join(name), "")));
            for (name, value) in fields {
                if let Some(schema) = map.field(name) {
                    required(value, schema, &join(name), wrong);
                }
            }
        }
        (Schema::List(list), Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                required(item, &list.items, &format!("{path}[{at}]"), wrong);
            }
        }
        (Schema::Scalar(_) | Schema::Map(_) | Schema::List(_) | Schema::Any, _) => {}
    }
}

/// Sets absent fields to the defaults of their `CustomResourceDefinition`.
pub(crate) fn set_defaults(value: &mut Value, schema: &Schema) {
    match (schema, value) {
        (Schema::Map(Map { fields: known, rest, defaults, .. }), Value::Object(fields)) => {
            for (name, default) in defaults {
                let nullable = fields.get(name).is_some_and(Value::is_null);
                if nullable || !fields.contains_key(name) {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields {
                if let Some(schema) = known.get(name).or(rest.as_ref()) {
                    set_defaults(value, schema);
                }
            }
        }
        (Schema::List(list), Value::Array(items)) => {
            for item in items {
                set_defaults(item, &list.items);
            }
        }
        (Schema::Scalar(_) | Schema::Map(_) | Schema::List(_) | Schema::Any, _) => {}
    }
}

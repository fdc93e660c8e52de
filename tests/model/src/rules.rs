//! Decides how the API server changes an object before it stores it, and which changes of an object are not allowed.

use serde_json::{Map, Value, json};

use crate::decode::{Null, check, required};
use crate::duplicate::{Duplicate, duplicates};
use crate::fields::Fields;
use crate::kinds::{Generation, Kind};
use crate::meta::{self, finalizers, is_deleting};
use crate::wrong::Wrong;

/// The path by which an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The object.
    Main,
    /// `/status`.
    Status,
}

impl Part {
    /// Returns the name that managers have it under.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
        }
    }

    /// Returns the fields that this path leaves as they are.
    pub(crate) fn reset(self, kind: &Kind) -> Fields {
        match self {
            Self::Main if kind.status => Fields::of(&[&["status"]]),
            Self::Main => Fields::default(),
            Self::Status if kind.custom => Fields::of(&[&["metadata"], &["spec"]]),
            Self::Status if kind.name == "Deployment" => Fields::of(&[&["spec"], &["metadata", "labels"]]),
            Self::Status => Fields::of(&[&["spec"]]),
        }
    }
}

/// Prepares an object that is new.
pub(crate) fn prepare_new(kind: &Kind, object: &mut Value) {
    if kind.status {
        meta::set_part(object, "status", None);
    }
    if kind.name == "Namespace" && kind.group.is_empty() {
        meta::set_part(object, "spec", Some(json!({ "finalizers": ["kubernetes"] })));
        meta::set_part(object, "status", Some(json!({ "phase": "Active" })));
    }
    if kind.name == "Deployment" || kind.name == "Ingress" {
        meta::set_part(object, "status", Some(json!({})));
    }
    if kind.name == "Service" {
        meta::set_part(object, "status", Some(json!({ "loadBalancer": {} })));
    }
    if kind.name == "Ingress" {
        meta::set_part(object, "status", Some(json!({ "loadBalancer": {} })));
    }
    let generation = (kind.generation != Generation::None).then(|| json!(1));
    meta::set(object, "generation", generation);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        meta::set(object, field, None);
    }
}

/// Prepares an object that takes the place of another.
pub(crate) fn prepare(kind: &Kind, part: Part, old: &Value, new: &mut Value) {
    meta::set(new, "generation", meta::get(old, "generation").cloned());
    match part {
        Part::Status if kind.custom => {
            let status = new.get("status").cloned();
            let managed = meta::get(new, "managedFields").cloned();
            let version = meta::get(new, "resourceVersion").cloned();
            *new = old.clone();
            meta::set_part(new, "status", status);
            meta::set(new, "managedFields", managed);
            meta::set(new, "resourceVersion", version);
        }
        Part::Status => {
            meta::set_part(new, "spec", old.get("spec").cloned());
            if kind.name == "Deployment" {
                meta::set(new, "labels", meta::get(old, "labels").cloned());
            }
        }
        Part::Main => {
            if kind.status {
                meta::set_part(new, "status", old.get("status").cloned());
            }
            if is_another(kind, old, new) {
                let before = meta::get(old, "generation").and_then(Value::as_u64).unwrap_or_default();
                meta::set(new, "generation", Some(json!(before + 1)));
            }
        }
    }
    if meta::text(new, "uid").is_empty() {
        meta::set(new, "uid", meta::get(old, "uid").cloned());
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        meta::set(new, field, meta::get(old, field).cloned());
    }
}

/// True if a change makes another generation.
fn is_another(kind: &Kind, old: &Value, new: &Value) -> bool {
    let spec = old.get("spec") != new.get("spec");
    match kind.generation {
        Generation::None => false,
        Generation::Spec => spec,
        Generation::SpecAndAnnotations => spec || meta::get(old, "annotations") != meta::get(new, "annotations"),
        Generation::AllButMetadata => {
            let rest = |object: &Value| {
                let mut object = object.clone();
                meta::set_part(&mut object, "metadata", None);
                object
            };
            rest(old) != rest(new)
        }
    }
}

/// Returns what is wrong with an object.
pub(crate) fn validate(kind: &Kind, object: &Value) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    if kind.custom {
        let mut inside = object.clone();
        meta::set_part(&mut inside, "metadata", None);
        check(&inside, &kind.schema, Null::Value, "", &mut wrong);
        required(object, &kind.schema, "", &mut wrong);
        let twice = duplicates(&inside, &kind.schema);
        wrong.extend(twice.iter().map(Duplicate::wrong));
    }
    wrong.extend(validate_metadata(kind, object));
    match kind.name.as_str() {
        "Service" => wrong.extend(validate_ports(object)),
        "ConfigMap" => wrong.extend(wrong_keys(object)),
        _ => {}
    }
    wrong
}

fn validate_metadata(kind: &Kind, object: &Value) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    let name = meta::text(object, "name");
    if name.is_empty() {
        wrong.push(Wrong::required("metadata.name", "name or generateName is required"));
    } else if !is_name(kind, name) {
        let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        wrong.push(Wrong::invalid("metadata.name", &name.into(), why));
    }
    for (at, finalizer) in finalizers(object).into_iter().enumerate() {
        let known = ["orphan", "foregroundDeletion", "kubernetes"].contains(&finalizer);
        if !known && !finalizer.contains('/') && !kind.custom {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            let path = format!("metadata.finalizers[{at}]");
            wrong.push(Wrong::invalid(&path, &finalizer.into(), why));
        }
    }
    for owner in meta::owners(object) {
        for (field, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner.get(field).and_then(Value::as_str).is_none_or(str::is_empty) {
                wrong.push(Wrong::invalid(&format!("metadata.ownerReferences.{field}"), &"".into(), why));
            }
        }
    }
    let controls = |owner: &&Value| owner.get("controller") == Some(&Value::Bool(true));
    if meta::owners(object).filter(controls).count() > 1 {
        let owners = meta::get(object, "ownerReferences").cloned().unwrap_or_default();
        let why = "Only one reference can have Controller set to true";
        wrong.push(Wrong::invalid("metadata.ownerReferences", &owners, why));
    }
    wrong
}

/// Returns an error if a Service has no ports, though it has an address.
fn validate_ports(object: &Value) -> Option<Wrong> {
    let text = |field: &str| object.pointer(&format!("/spec/{field}")).and_then(Value::as_str);
    let ports = object.pointer("/spec/ports").and_then(Value::as_array);
    let some = ports.is_some_and(|ports| !ports.is_empty());
    let none = !some && text("clusterIP") != Some("None") && text("type") != Some("ExternalName");
    none.then(|| Wrong::required("spec.ports", ""))
}

/// Returns the invalid keys of a `ConfigMap`.
fn wrong_keys(object: &Value) -> Vec<Wrong> {
    let keys = |field: &str| object.get(field).and_then(Value::as_object).into_iter().flat_map(Map::keys);
    let mut wrong = Vec::new();
    for field in ["data", "binaryData"] {
        for name in keys(field).filter(|name| !is_key(name)) {
            let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
            wrong.push(Wrong::invalid(&format!("{field}[{name}]"), &name.as_str().into(), why));
        }
    }
    for name in keys("binaryData").filter(|name| keys("data").any(|other| other == *name)) {
        let why = "duplicate of key present in binaryData";
        wrong.push(Wrong::invalid(&format!("data[{name}]"), &name.as_str().into(), why));
    }
    wrong
}

/// Returns what is wrong with a change.
pub(crate) fn validate_change(kind: &Kind, old: &Value, new: &Value) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    for field in ["name", "namespace", "uid"] {
        if meta::get(old, field) != meta::get(new, field) {
            let found = meta::get(new, field).cloned().unwrap_or_default();
            wrong.push(Wrong::invalid(&format!("metadata.{field}"), &found, "field is immutable"));
        }
    }
    if is_deleting(old) {
        let before = finalizers(old);
        let added: Vec<&str> = finalizers(new).into_iter().filter(|finalizer| !before.contains(finalizer)).collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                quoted(&added)
            );
            wrong.push(Wrong::forbidden("metadata.finalizers", &why));
        }
    }
    if ["ConfigMap", "Secret"].contains(&kind.name.as_str()) && old.get("immutable") == Some(&Value::Bool(true)) {
        if new.get("immutable") != Some(&Value::Bool(true)) {
            wrong.push(Wrong::forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        for field in ["data", "binaryData"] {
            if old.get(field) != new.get(field) {
                wrong.push(Wrong::forbidden(field, "field is immutable when `immutable` is set"));
            }
        }
    }
    if kind.name == "Deployment" && old.pointer("/spec/selector") != new.pointer("/spec/selector") {
        let found = new.pointer("/spec/selector").cloned().unwrap_or_default();
        wrong.push(Wrong::invalid("spec.selector", &found, "field is immutable"));
    }
    wrong.extend(validate(kind, new));
    wrong
}

fn quoted(texts: &[&str]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    texts.join(", ")
}

/// True if a name is a DNS name; for a Service or a Namespace, a DNS label.
fn is_name(kind: &Kind, name: &str) -> bool {
    let label = |part: &str| {
        let inside = part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        inside && !part.is_empty() && !part.starts_with('-') && !part.ends_with('-')
    };
    let one = ["Service", "Namespace"].contains(&kind.name.as_str());
    let parts = name.split('.').count();
    name.split('.').all(label) && name.len() <= if one { 63 } else { 253 } && (!one || parts == 1)
}

fn is_key(name: &str) -> bool {
    let inside = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    inside && !name.is_empty() && name.len() <= 253 && name != "." && !name.starts_with("..")
}

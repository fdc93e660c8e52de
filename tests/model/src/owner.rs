//! Decides how the owners of an object's fields are written down: its `managedFields`.

use serde_json::{Map as Json, Value};

use crate::fields::Fields;

/// How a manager came to own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// By applying them.
    Apply,
    /// In any other way.
    Update,
}

/// A manager, which owns fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

/// The fields that a manager owns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) manager: Manager,
    pub(crate) time: Option<String>,
    pub(crate) fields: Fields,
}

impl Manager {
    /// True if it is the same manager: one that applies is the same in all API versions.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let version = self.operation == Operation::Apply || self.api_version == other.api_version;
        self.name == other.name && self.operation == other.operation && self.subresource == other.subresource && version
    }
}

impl Entry {
    /// Returns its name as in the message of a conflict.
    pub(crate) fn said(&self) -> String {
        let Manager { name, operation, api_version, subresource } = &self.manager;
        let part = if subresource.is_empty() { String::new() } else { format!(" with subresource {subresource:?}") };
        let by = match operation {
            Operation::Apply => String::new(),
            Operation::Update => format!(" using {api_version}"),
        };
        format!("{name:?}{part}{by}")
    }
}

/// Reads the entries of an object; returns an empty list if anything is wrong with one.
pub(crate) fn read(object: &Value) -> Vec<Entry> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let entries: Option<Vec<Entry>> = entries.into_iter().flatten().map(read_entry).collect();
    entries.unwrap_or_default()
}

fn read_entry(json: &Value) -> Option<Entry> {
    let text = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let manager =
        Manager { name: text("manager"), operation, api_version: text("apiVersion"), subresource: text("subresource") };
    let well = text("fieldsType") == "FieldsV1" && !manager.api_version.is_empty();
    well.then(|| Entry {
        manager,
        time: json.get("time").and_then(Value::as_str).map(str::to_owned),
        fields: Fields::read(json.get("fieldsV1").unwrap_or(&Value::Null)),
    })
}

/// Writes entries into an object, in the API server's order.
pub(crate) fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.sort_by(|a, b| {
        let key = |entry: &Entry| {
            let Manager { name, operation, api_version, subresource } = entry.manager.clone();
            (operation, entry.time.clone(), name, api_version, subresource)
        };
        key(a).cmp(&key(b))
    });
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    metadata.remove("managedFields");
    if !entries.is_empty() {
        let entries = entries.iter().map(write_entry).collect();
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

fn write_entry(entry: &Entry) -> Value {
    let Manager { name, operation, api_version, subresource } = &entry.manager;
    let operation = match operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut json = Json::new();
    let mut set = |field: &str, value: Value| json.insert(field.to_owned(), value);
    set("manager", name.as_str().into());
    set("operation", operation.into());
    set("apiVersion", api_version.as_str().into());
    set("fieldsType", "FieldsV1".into());
    set("fieldsV1", entry.fields.write());
    if let Some(time) = &entry.time {
        set("time", time.as_str().into());
    }
    if !subresource.is_empty() {
        set("subresource", subresource.as_str().into());
    }
    Value::Object(json)
}

/// Returns an object without its `managedFields`.
pub(crate) fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

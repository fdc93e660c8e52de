//! Decides which kinds there are, and how their rules differ.

use std::sync::Arc;

use serde_json::{Map as Json, Value, json};

use crate::schema::{Map, Schema};

/// A kind as the API server serves it.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    /// As in objects: `ConfigMap`.
    pub(crate) name: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) namespaced: bool,
    /// True if `/status` is a path of its own.
    pub(crate) status: bool,
    /// True if a `CustomResourceDefinition` made it.
    pub(crate) custom: bool,
    /// Which changes make another generation.
    pub(crate) generation: Generation,
    pub(crate) quirks: Quirks,
    pub(crate) schema: Schema,
    /// The content of an empty object, beside its name: the fields that the API server's own types always have.
    pub(crate) empty: Json<String, Value>,
}

/// The ways in which a few kinds differ from all others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quirks {
    /// A PUT of an object that does not exist creates it.
    pub(crate) put_creates: bool,
    /// A DELETE answers with the object, not with a `Status`.
    pub(crate) returns_deleted: bool,
}

/// Which changes make another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// None: its objects have no generation.
    None,
    /// Changes of `spec` and of annotations, as with a Deployment.
    SpecAndAnnotations,
    /// Changes of `spec`.
    Spec,
    /// Changes of anything but `metadata`, and `status` where that has a path of its own.
    AllButMetadata,
}

const BUILT_IN: &str = include_str!("kinds/built_in.json");

/// Returns the kinds that every API server has, as far as they are modelled.
///
/// # Panics
/// Never: the table is part of the package, and a test reads it.
pub(crate) fn built_in() -> Vec<Kind> {
    let table: Value = serde_json::from_str(BUILT_IN).unwrap_or_default();
    let entries = table.as_array().cloned().unwrap_or_default();
    entries.iter().filter_map(read).collect()
}

fn read(entry: &Value) -> Option<Kind> {
    let text = |name: &str| Some(entry.get(name)?.as_str()?.to_owned());
    let flag = |name: &str| entry.get(name) == Some(&Value::Bool(true));
    let name = text("kind")?;
    let mut fields = entry.get("schema")?.as_object()?.clone();
    fields.extend(of_every_kind());
    Some(Kind {
        group: text("group")?,
        version: text("version")?,
        plural: text("plural")?,
        singular: name.to_lowercase(),
        name,
        namespaced: !flag("cluster"),
        status: flag("status"),
        custom: false,
        generation: match entry.get("generation").and_then(Value::as_str) {
            Some("spec") => Generation::Spec,
            Some("spec+annotations") => Generation::SpecAndAnnotations,
            _ => Generation::None,
        },
        quirks: Quirks { put_creates: flag("putCreates"), returns_deleted: flag("returnsDeleted") },
        schema: Schema::short(&Value::Object(fields)),
        empty: entry.get("empty").and_then(Value::as_object).cloned().unwrap_or_default(),
    })
}

/// Returns the fields that every object has, in short form.
fn of_every_kind() -> Json<String, Value> {
    let text = || json!("string");
    let owner = json!({ "!": true, "apiVersion": "string", "kind": "string", "name": "string", "uid": "string", "controller": "boolean", "blockOwnerDeletion": "boolean" });
    let metadata = json!({
        "name": "string", "generateName": "string", "namespace": "string", "selfLink": "string", "uid": "string",
        "resourceVersion": "string", "generation": "integer", "creationTimestamp": "string", "deletionTimestamp": "string",
        "deletionGracePeriodSeconds": "integer", "labels": { "*": "string" }, "annotations": { "*": "string" },
        "finalizers": ["set", "string"], "ownerReferences": ["keys:uid", owner], "managedFields!": ["atomic", "any"],
    });
    let fields = [("apiVersion", text()), ("kind", text()), ("metadata", metadata)];
    fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

/// Reads a `CustomResourceDefinition`: a kind for each version that is served.
pub(crate) fn custom(definition: &Value) -> Vec<Kind> {
    let text = |path: &str| definition.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let served = versions.into_iter().flatten().filter(|version| version.get("served") == Some(&Value::Bool(true)));
    let kind = |version: &Value| {
        let name = text("/spec/names/kind");
        let singular = text("/spec/names/singular");
        let schema = version.pointer("/schema/openAPIV3Schema").map_or(Schema::Any, Schema::open_api);
        Kind {
            group: text("/spec/group"),
            version: version.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            plural: text("/spec/names/plural"),
            singular: if singular.is_empty() { name.to_lowercase() } else { singular },
            name,
            namespaced: text("/spec/scope") == "Namespaced",
            status: version.pointer("/subresources/status").is_some(),
            custom: true,
            generation: Generation::AllButMetadata,
            quirks: Quirks::default(),
            schema: with_metadata(schema),
            empty: Json::new(),
        }
    };
    served.map(kind).collect()
}

/// Returns the schema of a custom resource with the fields of every kind.
fn with_metadata(schema: Schema) -> Schema {
    let mut map = match schema {
        Schema::Map(map) => map,
        Schema::Scalar(_) | Schema::List(_) | Schema::Any => {
            Map { rest: Some(Arc::new(Schema::Any)), ..Map::default() }
        }
    };
    if let Schema::Map(every) = Schema::short(&Value::Object(of_every_kind())) {
        map.fields.extend(every.fields);
    }
    Schema::Map(map)
}

/// Returns `deployments.apps`, or `configmaps`.
pub(crate) fn full_name(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

impl Kind {
    /// Returns `apps/v1`, or `v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns `deployments.apps`, or `configmaps`.
    pub(crate) fn full_name(&self) -> String {
        full_name(&self.plural, &self.group)
    }

    /// Returns the empty object that stands for an object before it is created.
    pub(crate) fn nothing(&self) -> Value {
        let mut nothing = self.empty.clone();
        nothing.insert("apiVersion".to_owned(), self.api_version().into());
        nothing.insert("kind".to_owned(), self.name.clone().into());
        nothing.insert("metadata".to_owned(), json!({}));
        Value::Object(nothing)
    }

    /// Returns true if it is this kind.
    pub(crate) fn is(&self, api_version: &str, kind: &str) -> bool {
        self.name == kind && self.api_version() == api_version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        let table: Value = serde_json::from_str(BUILT_IN).unwrap();
        assert_eq!(built_in().len(), table.as_array().unwrap().len());
        let names: Vec<String> = built_in().iter().map(Kind::full_name).collect();
        assert!(names.contains(&"deployments.apps".to_owned()), "{names:?}");
    }
}

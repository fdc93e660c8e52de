//! Schemas of kinds, as whoever writes definitions, or runs the API server of another cluster, may have made them.

use std::path::Path;

use capstan_core::budget::Budget;
use capstan_core::object::Gvk;
use capstan_core::schema::{Definition, Holder, Known, Schema, definitions, drift, structural};
use serde_json::{Value, json};

use crate::bounded::within_bounds;
use crate::{STEPS, with};

/// A definition is read or refused; whatever its schema says, and that which an API server publishes, it is known of each path whether it leads
/// to something, or the search is given up.
pub fn schemas(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    within_bounds(|| read(&text, &[]));
    with(data, |documents| {
        let (schema, other) = documents.schemas()?;
        let paths = documents.paths()?;
        within_bounds(|| {
            read(&definition(&schema), &paths);
            let kind = json!([{ "group": "sample.dev", "version": "v1", "kind": "Page" }]);
            let mut root = schema.clone();
            if let Some(root) = root.as_object_mut() {
                root.insert("x-kubernetes-group-version-kind".to_owned(), kind);
            }
            // What it refers to is itself, or the other one.
            let published = json!({ "components": { "schemas": { "a": root, "b": other } } }).to_string();
            if let Ok(Some(schema)) = Schema::published(&published, &page(), &mut Budget::of(STEPS)) {
                about(&schema, &paths);
            }
            drop(structural(&schema));
            assert!(drift(&schema, &schema).is_empty());
            drop(drift(&schema, &other));
        });
        Ok(())
    });
}

fn page() -> Gvk {
    Gvk::parse("sample.dev/v1", "Page").expect("a kind")
}

/// Returns a file with a definition that has this schema.
fn definition(schema: &Value) -> String {
    let version = json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "pages.sample.dev" },
        "spec": { "group": "sample.dev", "scope": "Namespaced", "names": { "kind": "Page", "plural": "pages" }, "versions": [version] },
    })
    .to_string()
}

/// Reads a file of definitions, and looks up paths in what it says of a kind.
fn read(text: &str, paths: &[Vec<String>]) {
    match definitions(text, Path::new("crd.yaml")) {
        Ok(found) => {
            if let Known::Served(kind) = Definition::known(&found, &page())
                && let Some(schema) = &kind.schema
            {
                about(schema, paths);
            }
        }
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
}

fn about(schema: &Schema<'_>, paths: &[Vec<String>]) {
    for path in paths {
        let path: Vec<_> = path.iter().map(String::as_str).collect();
        let budget = &mut Budget::of(STEPS);
        if let Ok(Some(lack)) = schema.lack(&path, budget) {
            assert!(lack.known < path.len(), "{path:?}: {lack:?}");
            if let Holder::Object(names) = &lack.holder {
                assert!(!names.iter().any(|name| *name == path[lack.known]), "{path:?}: {lack:?}");
            }
        }
        // Either will do.
        let _is_map = schema.is_map_by("name", &path, budget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_read() {
        let schema = json!({ "type": "object", "properties": { "spec": { "type": "object" } } });
        let found = definitions(&definition(&schema), Path::new("crd.yaml")).unwrap();
        assert!(matches!(Definition::known(&found, &page()), Known::Served(kind) if kind.schema.is_some()));
    }
}

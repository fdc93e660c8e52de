//! Decides which `CustomResourceDefinition` an author's types come to, by what the SDK of their language says of them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::structural::{Misfit, structural};
use crate::yaml;

/// The most nodes of what is said.
const NODES: usize = 250_000;

/// The field in which a status has its conditions.
const CONDITIONS: &str = "conditions";

/// Why types come to no definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untyped {
    /// What was said is no JSON.
    #[error("what it prints is neither JSON nor YAML: {0}")]
    Syntax(String),
    /// What was said is not said of a resource.
    #[error("what it prints is not what an SDK says of types: {0}")]
    Form(String),
    /// Nothing was said.
    #[error("it prints no resource; mark the type of one, as the README of the SDK shows")]
    Nothing,
    /// The schema can't be that of a definition.
    #[error("{kind}: {misfit}")]
    Schema {
        /// The kind.
        kind: String,
        /// The field, and what is wrong with it.
        misfit: Misfit,
    },
    /// What is said of the kind is wrong.
    #[error("{kind}: {message}")]
    Resource {
        /// The kind.
        kind: String,
        /// What was found, and what would be right.
        message: String,
    },
}

/// One version of a resource, as types say it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Resource {
    api_version: String,
    kind: String,
    #[serde(default)]
    plural: Option<String>,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    columns: Vec<Column>,
    /// Whether the status has conditions although its type does not.
    #[serde(default)]
    conditions: bool,
    /// Whether this version is the one that is stored; one that is alone is.
    #[serde(default)]
    storage: bool,
    #[serde(default)]
    scale: Option<Value>,
    #[serde(default)]
    selectable_fields: Vec<String>,
    /// The schema of the whole resource: its spec and status.
    schema: Value,
}

/// A column of `kubectl get`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Column {
    name: String,
    json_path: String,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    format: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    priority: Option<i32>,
}

/// Returns the definitions that types come to, in order. `said` is what an SDK prints of them, as JSON or YAML: a resource, several, or definitions, which
/// are taken as they are. `plural` says what several of a kind are called where the types do not.
///
/// # Errors
/// [`Untyped`] if they come to none.
pub fn typed(said: &str, plural: impl Fn(&str) -> String) -> Result<Vec<Value>, Untyped> {
    let trees = yaml::documents_within(said, NODES).map_err(|syntax| Untyped::Syntax(syntax.message))?;
    let (mut whole, mut kinds) = (Vec::new(), BTreeMap::<(String, String), Vec<Resource>>::new());
    for document in trees.iter().flat_map(|tree| one_by_one(tree.root.json())) {
        if document.get("kind").is_some_and(|kind| kind == "CustomResourceDefinition") {
            whole.push(document);
            continue;
        }
        let resource: Resource = serde_json::from_value(document).map_err(|error| Untyped::Form(error.to_string()))?;
        let group = resource.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let key = (group.to_owned(), resource.kind.clone());
        kinds.entry(key).or_default().push(resource);
    }
    for ((group, kind), versions) in &kinds {
        whole.push(definition(group, kind, versions, &plural)?);
    }
    if whole.is_empty() { Err(Untyped::Nothing) } else { Ok(whole) }
}

fn one_by_one(document: Value) -> Vec<Value> {
    match document {
        Value::Array(all) => all,
        Value::Null => Vec::new(),
        one @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => vec![one],
    }
}

/// Returns the definition of a kind in all of its versions.
fn definition(
    group: &str,
    kind: &str,
    versions: &[Resource],
    plural: &impl Fn(&str) -> String,
) -> Result<Value, Untyped> {
    let wrong = |message: String| Untyped::Resource { kind: kind.to_owned(), message };
    if group.is_empty() {
        return Err(wrong("its apiVersion has no group; expected one such as `example.com/v1alpha1`".to_owned()));
    }
    let stored = versions.iter().filter(|version| version.storage).count();
    if stored > 1 || (stored == 0 && versions.len() > 1) {
        return Err(wrong(format!(
            "of its {} versions {stored} are marked as the one that is stored; expected one",
            versions.len()
        )));
    }
    let said = |of: fn(&Resource) -> Option<&String>| versions.iter().find_map(of);
    let all = said(|version| version.plural.as_ref()).cloned().unwrap_or_else(|| plural(kind));
    let scope = said(|version| version.scope.as_ref()).map_or("Namespaced", |scope| &**scope);
    if !["Namespaced", "Cluster"].contains(&scope) {
        return Err(wrong(format!("found the scope `{scope}`; expected `Namespaced` or `Cluster`")));
    }
    let mut names = json!({ "kind": kind, "plural": all, "singular": kind.to_lowercase() });
    for (field, of) in [
        ("shortNames", (|version| &version.short_names) as fn(&Resource) -> &Vec<String>),
        ("categories", |version| &version.categories),
    ] {
        let words: Vec<_> = versions.iter().flat_map(of).fold(Vec::new(), |mut words, word| {
            if !words.contains(word) {
                words.push(word.clone());
            }
            words
        });
        if let (false, Some(names)) = (words.is_empty(), names.as_object_mut()) {
            names.insert(field.to_owned(), json!(words));
        }
    }
    let versions = versions.iter().map(|one| version(one, versions.len() == 1)).collect::<Result<Vec<_>, _>>()?;
    Ok(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{all}.{group}") },
        "spec": { "group": group, "names": names, "scope": scope, "versions": versions },
    }))
}

fn version(resource: &Resource, alone: bool) -> Result<Value, Untyped> {
    let kind = &resource.kind;
    let misfit = |misfit| Untyped::Schema { kind: kind.clone(), misfit };
    let mut said = resource.schema.clone();
    shorten(&mut said);
    let schema = structural(&said).map_err(misfit)?;
    let schema = whole(schema, resource)?;
    let name = resource.api_version.rsplit('/').next().unwrap_or_default();
    let mut version = json!({ "name": name, "served": true, "storage": alone || resource.storage });
    let mut put =
        |field: &str, value: Value| drop(version.as_object_mut().map(|all| all.insert(field.to_owned(), value)));
    if schema.pointer("/properties/status").is_some() {
        let mut parts = json!({ "status": {} });
        if let (Some(scale), Some(parts)) = (&resource.scale, parts.as_object_mut()) {
            parts.insert("scale".to_owned(), scale.clone());
        }
        put("subresources", parts);
    }
    if !resource.columns.is_empty() {
        put("additionalPrinterColumns", columns(&resource.columns, &schema));
    }
    if !resource.selectable_fields.is_empty() {
        let fields = resource.selectable_fields.iter().map(|path| json!({ "jsonPath": path }));
        put("selectableFields", fields.collect());
    }
    put("schema", json!({ "openAPIV3Schema": schema }));
    Ok(version)
}

/// Returns the schema of a resource: without what all objects have, and with the conditions of its status as the list that they are.
fn whole(mut schema: Value, resource: &Resource) -> Result<Value, Untyped> {
    let wrong = |message: &str| Untyped::Resource { kind: resource.kind.clone(), message: message.to_owned() };
    let of_all = ["apiVersion", "kind", "metadata"];
    let all = schema.as_object_mut().ok_or_else(|| wrong("its schema is no object"))?;
    all.remove("nullable");
    if let Some(Value::Array(names)) = all.get_mut("required") {
        // A status is written by whoever works on it, and not there before.
        names.retain(|name| !name.as_str().is_some_and(|name| of_all.contains(&name) || name == "status"));
        if names.is_empty() {
            all.remove("required");
        }
    }
    let Some(Value::Object(fields)) = all.get_mut("properties") else {
        return Err(wrong("its type has no fields; expected one with `spec`"));
    };
    fields.retain(|name, _| !of_all.contains(&&**name));
    if resource.conditions && !fields.contains_key("status") {
        fields.insert("status".to_owned(), json!({ "type": "object" }));
    }
    if let Some(Value::Object(status)) = fields.get_mut("status") {
        status.remove("nullable");
        // It is written part by part: the conditions by the daemon, before the component has said anything.
        status.remove("required");
        let inner = status.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(inner) = inner else { return Err(wrong("its status has no fields")) };
        if resource.conditions {
            let says_little = |list: &Value| list.pointer("/items/properties").is_none();
            if inner.get(CONDITIONS).is_none_or(says_little) {
                inner.insert(CONDITIONS.to_owned(), conditions());
            }
        }
        if let Some(Value::Object(list)) = inner.get_mut(CONDITIONS) {
            one_of_each_type(list);
        }
    }
    Ok(schema)
}

/// Cuts what is said of each field after the first paragraph: what follows is for who reads the source, such as examples.
fn shorten(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (&**name, value) {
                    ("description", Value::String(text)) => text.truncate(text.find("\n\n").unwrap_or(text.len())),
                    // These are values, which may be anything.
                    ("default" | "enum" | "const" | "examples", _) => {}
                    (_, value) => shorten(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Says that a list of conditions has one of each type, unless something else is said of it.
fn one_of_each_type(list: &mut Map<String, Value>) {
    let required = list.get("items").and_then(|items| items.get("required")).and_then(Value::as_array);
    if required.is_some_and(|names| names.iter().any(|name| name == "type"))
        && !list.contains_key("x-kubernetes-list-type")
    {
        list.insert("x-kubernetes-list-type".to_owned(), "map".into());
        list.insert("x-kubernetes-list-map-keys".to_owned(), json!(["type"]));
    }
}

/// Returns the schema of conditions that nothing else is known of.
fn conditions() -> Value {
    json!({
        "description": "What is so, and since when.",
        "type": "array",
        "items": {
            "type": "object",
            "required": ["type", "status"],
            "properties": {
                "type": { "type": "string" },
                "status": { "type": "string" },
                "observedGeneration": { "type": "integer", "format": "int64" },
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "reason": { "type": "string" },
                "message": { "type": "string" },
            },
        },
    })
}

/// Returns the columns, and behind them the age if no column says it: with columns of its own, a kind has no others.
fn columns(said: &[Column], schema: &Value) -> Value {
    let age = ".metadata.creationTimestamp";
    let mut all: Vec<Value> = said.iter().map(|column| column.shown(schema)).collect();
    if said.iter().all(|column| column.json_path != age) {
        all.push(json!({ "name": "Age", "type": "date", "jsonPath": age }));
    }
    Value::Array(all)
}

impl Column {
    fn shown(&self, schema: &Value) -> Value {
        let kind = self.kind.as_deref().unwrap_or_else(|| type_at(&self.json_path, schema));
        let mut shown = json!({ "name": self.name, "type": kind, "jsonPath": self.json_path });
        let more = [
            ("format", self.format.clone().map(Value::String)),
            ("description", self.description.clone().map(Value::String)),
            ("priority", self.priority.map(Value::from)),
        ];
        for (field, value) in more {
            if let (Some(value), Some(all)) = (value, shown.as_object_mut()) {
                all.insert(field.to_owned(), value);
            }
        }
        shown
    }
}

/// Returns the type that a column has for what its path leads to, as far as the schema says.
fn type_at(path: &str, schema: &Value) -> &'static str {
    let mut place = Some(schema);
    for name in path.split('.').filter(|name| !name.is_empty()) {
        place = place.and_then(|place| place.get("properties")?.get(name));
    }
    let word = |key: &str| place.and_then(|place| place.get(key)).and_then(Value::as_str);
    match (word("type"), word("format")) {
        (Some("integer"), _) => "integer",
        (Some("number"), _) => "number",
        (Some("boolean"), _) => "boolean",
        (Some("string"), Some("date-time" | "date")) => "date",
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(said: &Value) -> Result<Value, String> {
        let mut all =
            typed(&said.to_string(), |kind| format!("{}s", kind.to_lowercase())).map_err(|error| error.to_string())?;
        assert_eq!(all.len(), 1, "{all:?}");
        Ok(all.remove(0))
    }

    #[test]
    fn of_what_is_said_of_a_field_the_first_paragraph_is_taken() {
        let mut said = page("v1", &json!({}));
        let text = "What is shown.\nAll of it.\n\n```\n# hidden\n```";
        said["schema"]["properties"]["spec"]["properties"]["size"]["description"] = text.into();
        said["schema"]["properties"]["spec"]["properties"]["size"]["default"] = json!({ "description": text });
        let made = made(&said).unwrap();
        let size = made.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size").unwrap();
        assert_eq!(
            (&size["description"], &size["default"]["description"]),
            (&json!("What is shown.\nAll of it."), &json!(text))
        );
    }

    #[test]
    fn conditions_of_which_a_type_says_nothing_are_those_that_the_daemon_writes() {
        let of = |list: Option<Value>| {
            let mut said = page("v1", &json!({ "conditions": true }));
            if let Some(list) = list {
                said["schema"]["properties"]["status"]["properties"]["conditions"] = list;
            }
            let made = made(&said).unwrap();
            made.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/conditions")
                .unwrap()
                .clone()
        };
        let usual = of(None);
        assert_eq!(usual["x-kubernetes-list-type"], "map");
        assert_eq!(of(Some(json!({ "type": "array", "items": {} }))), usual);
        let own = json!({ "type": "array", "items": { "type": "object", "required": ["type"], "properties": { "type": { "type": "string" } } } });
        assert_ne!(of(Some(own)), usual);
    }

    fn page(version: &str, more: &Value) -> Value {
        let spec = json!({ "type": "object", "properties": { "size": { "type": "integer" } } });
        let status = json!({ "type": ["object", "null"], "required": ["since"], "properties": { "since": { "type": "string", "format": "date-time" } } });
        let schema = json!({
            "type": "object",
            "required": ["metadata", "spec", "status"],
            "properties": { "metadata": {}, "spec": spec, "status": status },
        });
        let mut page = json!({ "apiVersion": format!("sample.dev/{version}"), "kind": "Page", "schema": schema });
        page.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        page
    }

    #[test]
    fn a_type_comes_to_a_definition_with_names_columns_and_conditions() {
        let columns = json!([
            { "name": "Size", "jsonPath": ".spec.size" },
            { "name": "Since", "jsonPath": ".status.since", "priority": 1 },
            { "name": "Ready", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status" },
        ]);
        let said =
            page("v1", &json!({ "columns": columns, "conditions": true, "shortNames": ["pg"], "scope": "Cluster" }));
        let made = made(&said).unwrap();
        assert_eq!(made["metadata"]["name"], "pages.sample.dev");
        assert_eq!(made["spec"]["scope"], "Cluster");
        let names = json!({ "kind": "Page", "plural": "pages", "singular": "page", "shortNames": ["pg"] });
        assert_eq!(made["spec"]["names"], names);
        let version = &made["spec"]["versions"][0];
        assert_eq!((&version["storage"], &version["subresources"]), (&json!(true), &json!({ "status": {} })));
        let shown: Vec<_> =
            version["additionalPrinterColumns"].as_array().unwrap().iter().map(|column| &column["type"]).collect();
        assert_eq!(shown, ["integer", "date", "string", "date"]);
        let schema = &version["schema"]["openAPIV3Schema"];
        assert_eq!((&schema["required"], schema["properties"]["status"].get("required")), (&json!(["spec"]), None));
        assert_eq!(
            schema["properties"]["status"]["properties"]["conditions"]["x-kubernetes-list-map-keys"],
            json!(["type"])
        );
        assert!(
            schema["properties"].get("metadata").is_none() && schema["properties"]["status"].get("nullable").is_none()
        );
    }

    #[test]
    fn conditions_that_a_type_has_are_one_of_each_type() {
        let condition =
            json!({ "type": "object", "properties": { "type": { "type": "string" } }, "required": ["type"] });
        let mut said = page("v1", &json!({}));
        said["schema"]["properties"]["status"]["properties"]["conditions"] =
            json!({ "type": "array", "items": condition });
        let made = made(&said).unwrap();
        let list =
            made.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/conditions").unwrap();
        assert_eq!(list["x-kubernetes-list-type"], "map");
    }

    #[test]
    fn versions_of_a_kind_are_one_definition_of_which_one_is_stored() {
        let both = json!([page("v1", &json!({})), page("v2", &json!({ "storage": true }))]);
        let made = made(&both).unwrap();
        let stored: Vec<_> = made["spec"]["versions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|version| (&version["name"], &version["storage"]))
            .collect();
        assert_eq!(stored, [(&json!("v1"), &json!(false)), (&json!("v2"), &json!(true))]);
    }

    #[test]
    fn definitions_are_taken_as_they_are() {
        let text = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: { name: a }\n";
        let expected = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "a" } });
        assert_eq!(typed(text, str::to_owned), Ok(vec![expected]));
    }

    #[test]
    fn what_comes_to_no_definition_is_told_with_kind_and_field() {
        let mut map = page("v1", &json!({}));
        map["schema"]["properties"]["spec"]["properties"]["size"] = json!({ "type": ["string", "boolean"] });
        let mut bare = page("v1", &json!({}));
        bare["apiVersion"] = json!("v1");
        for (said, expected) in [
            (json!([]), "it prints no resource; mark the type of one"),
            (json!({ "kind": "Page" }), "what it prints is not what an SDK says of types: missing field `apiVersion`"),
            (map, "Page: spec.size: found the type \"boolean or string\"; expected one"),
            (bare, "Page: its apiVersion has no group; expected one such as `example.com/v1alpha1`"),
            (page("v1", &json!({ "scope": "All" })), "Page: found the scope `All`; expected `Namespaced` or `Cluster`"),
            (json!([page("v1", &json!({})), page("v2", &json!({}))]), "Page: of its 2 versions 0 are marked"),
        ] {
            let found = made(&said).unwrap_err();
            assert!(found.starts_with(expected), "{found}");
        }
        assert!(matches!(typed("{", str::to_owned), Err(Untyped::Syntax(_))));
    }
}

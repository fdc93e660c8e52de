//! Makes the definition (CRD) of operators out of the manifest's JSON schema, as far as a structural schema can say the same.
//!
//! What takes one of several forms has no type there, and is kept whole: the daemon judges it (`OP-1`).

use serde_json::{Map, Value, json};

use super::raw;

/// Keywords of a JSON schema that mean the same in a structural one.
const SAME: [&str; 12] = [
    "description",
    "type",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
];

/// What keeps a value whole, whatever it is.
const WHOLE: &str = "x-kubernetes-preserve-unknown-fields";

/// Returns the definition of the kind `Operator` of `capstan.dev/v1alpha1`, as JSON.
pub fn definition() -> Value {
    let root = raw::schema();
    let spec = structural(&root, root.pointer("/properties/spec").unwrap_or(&Value::Null));
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    let columns = [
        [
            "State",
            "string",
            ".status.state",
            "How it is: Loading, Active, Waiting, Outdated, WaitingForApproval or Failed",
        ],
        ["Version", "integer", ".status.version", "Counts what has been in force"],
        ["Digest", "string", ".status.digest", "The components in force"],
        ["Ready", "string", ready, "Whether what it says is in force, and has all that it needs"],
        ["Age", "date", ".metadata.creationTimestamp", "Since when it is there"],
    ];
    let description = "An operator that the daemon Capstan runs: components of registries, or templates, and the controllers that they serve.";
    let schema = json!({ "description": description });
    let version = json!({ "subresources": { "status": {} } });
    let names = json!({ "categories": ["capstan"] });
    of_kind("Operator", &columns, json!({ "spec": spec, "status": status() }), [schema, version, names])
}

/// Returns the definition of a kind of `capstan.dev/v1alpha1` with these fields. `schema`, `version` and `names` are what is said there beside
/// what is said of each kind.
pub(crate) fn of_kind(kind: &str, columns: &[[&str; 4]], fields: Value, [schema, version, names]: [Value; 3]) -> Value {
    let column = |[name, kind, path, says]: &[&str; 4]| json!({ "name": name, "type": kind, "jsonPath": path, "description": says });
    let columns: Vec<_> = columns.iter().map(column).collect();
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let of_all =
        json!({ "apiVersion": { "type": "string" }, "kind": { "type": "string" }, "metadata": { "type": "object" } });
    let schema = with(json!({ "type": "object", "required": ["spec"], "properties": with(of_all, fields) }), schema);
    let version = with(
        json!({
            "name": "v1alpha1",
            "served": true,
            "storage": true,
            "additionalPrinterColumns": columns,
            "schema": { "openAPIV3Schema": schema },
        }),
        version,
    );
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.capstan.dev") },
        "spec": {
            "group": "capstan.dev",
            "scope": "Namespaced",
            "names": with(json!({ "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular }), names),
            "versions": [version],
        },
    })
}

/// Returns the fields of both.
fn with(one: Value, other: Value) -> Value {
    let fields = |value: Value| if let Value::Object(fields) = value { fields } else { Map::new() };
    fields(one).into_iter().chain(fields(other)).collect()
}

/// Returns the schema of a text.
fn text(says: &str) -> Value {
    json!({ "type": "string", "description": says })
}

/// Returns the schema of a whole number.
fn number(says: &str) -> Value {
    json!({ "type": "integer", "format": "int64", "description": says })
}

/// Returns the schema of a condition.
fn condition() -> Value {
    json!({
        "type": "object",
        "required": ["type", "status", "lastTransitionTime", "reason", "message"],
        "properties": {
            "type": text("Loaded, Ready or Progressing."),
            "status": text("True, False or Unknown."),
            "observedGeneration": number("The generation that it is about."),
            "lastTransitionTime": text("When its status has changed."),
            "reason": text("A word for programs."),
            "message": text("What is to be known, for people."),
        },
    })
}

/// Returns the schema of lines of text.
fn lines(says: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": says })
}

/// Returns the schema of a version that waits.
fn waiting() -> Value {
    json!({
        "type": "object",
        "description": "The version that waits for an approval (`capstan approve`).",
        "properties": {
            "components": { "type": "object", "additionalProperties": { "type": "string" }, "description": "The digests of its components, by plugin." },
            "given": text("The digest of all that its manifest gives it."),
            "approval": text("The object that approves it, as NAMESPACE/NAME."),
            "since": text("Since when it waits."),
            "difference": lines("What is otherwise in it than in what is in force, line by line."),
        },
    })
}

/// Returns the schema of what the daemon says.
fn status() -> Value {
    let plugin = json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": text("Its name in the manifest."),
            "state": text("How it is, as `capstan plugins` says."),
            "component": text("The reference of its component."),
            "image": text("What of its registry is in force: the digest of the artifact."),
            "digest": text("SHA-256 of the component in force."),
            "since": text("When that was put in place."),
            "step": text("At which step a newer version has failed."),
            "problem": text("Why a newer version is not in force."),
        },
    });
    let version = json!({
        "type": "object",
        "required": ["version", "time"],
        "properties": {
            "version": number("Its number."),
            "generation": number("The generation of the object."),
            "digest": text("Its components."),
            "time": text("When it was put in place."),
        },
    });
    let in_force = json!({
        "type": "object",
        "description": "What was in force last as it was wanted: the daemon starts with it if what is wanted can't be used.",
        "properties": {
            "generation": number("Its generation."),
            "spec": text("Its `spec`, as JSON."),
            "images": { "type": "object", "additionalProperties": { "type": "string" }, "description": "The digests of artifacts, by plugin." },
            "components": { "type": "object", "additionalProperties": { "type": "string" }, "description": "The digests of components, by plugin." },
        },
    });
    let list = |name: &str, item: Value| json!({ "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [name], "items": item });
    json!({
        "type": "object",
        "description": "What the daemon says of it.",
        "properties": {
            "observedGeneration": number("The generation that all of this is about."),
            "state": text("How it is: Loading, Active, Waiting, Outdated, WaitingForApproval or Failed."),
            "version": number("The number of what is in force."),
            "digest": text("The components in force, shortened."),
            "daemon": text("Who says this: the daemon's pod."),
            "conditions": list("type", condition()),
            "plugins": list("name", plugin),
            "versions": list("version", version),
            "inForce": in_force,
            "waiting": waiting(),
            "lastChange": lines("What was otherwise in the version that was put in force last, line by line."),
        },
    })
}

/// Returns what a structural schema can say of what `schema` says, which is part of `root`.
fn structural(root: &Value, schema: &Value) -> Value {
    let (schema, is_nullable) = without_null(schema);
    let Some(found) = schema.as_object() else {
        return json!({ WHOLE: true });
    };
    let own = |keyword: &&str| Some(((*keyword).to_owned(), found.get(*keyword)?.clone()));
    let mut said: Map<String, Value> = SAME.iter().filter_map(own).collect();
    if is_nullable {
        said.insert("nullable".to_owned(), true.into());
    }
    let below = |schema: &Value| structural(root, schema);
    let part = |keyword: &str| found.get(keyword).cloned();
    if let Some(reference) = found.get("$ref").and_then(Value::as_str) {
        let target = below(root.pointer(reference.trim_start_matches('#')).unwrap_or(&Value::Null));
        // What is said of the field goes before what is said of its type.
        let target = target.as_object().cloned().unwrap_or_default();
        said = target.into_iter().chain(said).collect();
    } else if let Some(forms) = part("anyOf").or_else(|| part("oneOf")).as_ref().and_then(Value::as_array) {
        let forms: Vec<Value> = forms.iter().map(below).collect();
        let form = match forms.as_slice() {
            [form] => form.as_object().cloned().unwrap_or_default(),
            forms => one_of(forms),
        };
        said = form.into_iter().chain(said).collect();
    } else if let Some(constant) = found.get("const") {
        said.insert("type".to_owned(), type_of(constant).into());
        said.insert("enum".to_owned(), json!([constant]));
    } else if let Some(fields) = found.get("properties").and_then(Value::as_object) {
        said.insert("properties".to_owned(), fields.iter().map(|(name, field)| (name.clone(), below(field))).collect());
        said.extend(part("required").map(|required| ("required".to_owned(), required)));
    } else if let Some(values) = found.get("additionalProperties").filter(|values| values.is_object()) {
        said.insert("additionalProperties".to_owned(), below(values));
    } else if let Some(items) = found.get("items") {
        said.insert("items".to_owned(), below(items));
    } else if !["string", "integer", "number", "boolean"]
        .iter()
        .any(|kind| said.get("type").is_some_and(|is| is == kind))
    {
        said.retain(|keyword, _| keyword == "description" || keyword == "nullable");
        said.insert(WHOLE.to_owned(), true.into());
    }
    if said.contains_key(WHOLE) {
        // It may be null as well as anything else.
        said.remove("nullable");
    }
    Value::Object(said)
}

/// Returns a schema without the part that permits null, and whether it had one.
fn without_null(schema: &Value) -> (Value, bool) {
    let mut schema = schema.clone();
    let mut is_nullable = false;
    for keyword in ["type", "enum", "anyOf", "oneOf"] {
        let Some(forms) = schema.get_mut(keyword).and_then(Value::as_array_mut) else {
            continue;
        };
        let is_null = |form: &Value| form.is_null() || *form == "null" && keyword == "type" || form["type"] == "null";
        let before = forms.len();
        forms.retain(|form| !is_null(form));
        is_nullable |= forms.len() < before;
        let kind = forms.first().filter(|_| keyword == "type" && forms.len() == 1).cloned();
        if let (Some(kind), Some(schema)) = (kind, schema.as_object_mut()) {
            schema.insert(keyword.to_owned(), kind);
        }
    }
    (schema, is_nullable)
}

/// Returns what can be said of a value that has one of these forms.
fn one_of(forms: &[Value]) -> Map<String, Value> {
    let all = |kind: &str| forms.iter().all(|form| form["type"] == kind);
    let words = || forms.iter().map(|form| form["enum"].as_array()).collect::<Option<Vec<_>>>();
    let fields = || forms.iter().map(|form| form["properties"].as_object()).collect::<Option<Vec<_>>>();
    let said = match () {
        () if all("string") => match words() {
            Some(words) => json!({ "type": "string", "enum": words.into_iter().flatten().collect::<Vec<_>>() }),
            None => json!({ "type": "string" }),
        },
        // One mapping with one of several fields.
        () if all("object") && fields().is_some() => {
            let fields = fields().into_iter().flatten().flatten();
            let fields: Map<_, _> = fields.map(|(name, field)| (name.clone(), field.clone())).collect();
            json!({ "type": "object", "properties": fields, "minProperties": 1, "maxProperties": 1 })
        }
        () => json!({ WHOLE: true }),
    };
    said.as_object().cloned().unwrap_or_default()
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Null | Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns where a node lacks what makes a schema structural.
    fn lacking(node: &Value, path: &str) -> Vec<String> {
        let below = |map: &Value, step: &str| -> Vec<String> {
            let fields = map.as_object().into_iter().flatten();
            fields.flat_map(|(name, node)| lacking(node, &format!("{path}{step}.{name}"))).collect()
        };
        let typed = node["type"].is_string() || node[WHOLE] == true;
        let own = (!typed).then(|| path.to_owned());
        let both = (node["properties"].is_object() && node["additionalProperties"].is_object())
            .then(|| format!("{path}: both"));
        let mut found: Vec<_> = own.into_iter().chain(both).chain(below(&node["properties"], "")).collect();
        for step in ["additionalProperties", "items"] {
            if node[step].is_object() {
                found.extend(lacking(&node[step], &format!("{path}.{step}")));
            }
        }
        found
    }

    #[test]
    fn each_node_has_a_type_or_is_kept_whole() {
        // OP-1
        let definition = definition();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(lacking(schema, ""), Vec::<String>::new());
        // Where it is applied from the client, a copy of it is in an annotation.
        assert!(definition.to_string().len() < 256 << 10, "{}", definition.to_string().len());
    }

    #[test]
    fn forms_are_told_as_far_as_one_schema_can() {
        let whole = json!({ WHOLE: true });
        for (schema, expected) in [
            (json!(true), whole.clone()),
            (json!({ "type": "object" }), whole.clone()),
            (
                json!({ "type": ["string", "number"], "pattern": "a", "description": "a" }),
                json!({ "description": "a", WHOLE: true }),
            ),
            (
                json!({ "type": ["string", "null"], "enum": ["a", null] }),
                json!({ "type": "string", "enum": ["a"], "nullable": true }),
            ),
            (
                json!({ "anyOf": [{ "type": "array", "items": { "type": "string" } }, { "type": "null" }], "description": "a" }),
                json!({ "type": "array", "items": { "type": "string" }, "description": "a", "nullable": true }),
            ),
            (
                json!({ "anyOf": [{ "const": "all" }, { "enum": ["a", "b"], "type": "string" }] }),
                json!({ "type": "string", "enum": ["all", "a", "b"] }),
            ),
            (
                json!({ "anyOf": [{ "const": "none" }, { "type": "string", "pattern": "^a" }] }),
                json!({ "type": "string" }),
            ),
            (json!({ "anyOf": [{ "const": "none" }, { "type": "array", "items": { "type": "string" } }] }), whole),
            (
                json!({ "oneOf": [{ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] }, { "type": "object", "properties": { "b": true } }] }),
                json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { WHOLE: true } }, "minProperties": 1, "maxProperties": 1 }),
            ),
            (
                json!({ "type": "object", "properties": { "a": { "type": "integer", "default": 1, "title": "x" } }, "required": ["a"], "additionalProperties": false }),
                json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a"] }),
            ),
            (
                json!({ "type": "object", "propertyNames": { "pattern": "a" }, "additionalProperties": { "type": "boolean" } }),
                json!({ "type": "object", "additionalProperties": { "type": "boolean" } }),
            ),
        ] {
            assert_eq!(structural(&Value::Null, &schema), expected, "{schema}");
        }
    }
}

//! Makes of the schemas of manifests and ceilings what `charts/capstan/values.schema.json` says of these in values, as all versions of Helm 3 read it: draft 7,
//! with `definitions` in the same file, and nothing beside a `$ref`.

use serde_json::{Map, Value, json};

/// What begins what is generated: all that comes before is written by hand.
pub(crate) const BEGINNING: &str = "\n    \"manifest\": {\n";

/// Returns the end of the file, from the definition of a manifest on: what it is made of, and what ceilings are made of.
pub(crate) fn end(schema: &Value, ceilings: &Value) -> String {
    let mut definitions = schema["$defs"].as_object().unwrap().clone();
    for (name, definition) in ceilings["$defs"].as_object().unwrap().iter().filter(|(name, _)| *name != "Spec") {
        let before = definitions.insert(name.clone(), definition.clone());
        assert!(before.is_none(), "manifests and ceilings have a {name} each");
    }
    // The chart gives what is left out here.
    forget(&mut definitions["Metadata"], "required");
    let plugin = &mut definitions["Plugin"]["required"];
    plugin.as_array_mut().unwrap().retain(|field| field != "component");
    for definition in definitions.values_mut() {
        convert(definition);
    }
    let mut manifest = schema.as_object().unwrap().clone();
    manifest.retain(|keyword, _| !keyword.starts_with('$') && keyword != "title");
    manifest.insert("required".to_owned(), json!(["spec"]));
    manifest.insert(
        "$comment".to_owned(),
        "Generated, as all that follows: BLESS=1 cargo test -p capstan-core --test manifest".into(),
    );
    let mut manifest = Value::Object(manifest);
    convert(&mut manifest);
    let all = std::iter::once(("manifest".to_owned(), manifest)).chain(definitions);
    let all: Vec<_> = all.map(|(name, definition)| format!("    \"{name}\": {}", indented(&definition))).collect();
    format!("\n{}\n  }}\n}}\n", all.join(",\n"))
}

fn indented(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap().replace('\n', "\n    ")
}

fn forget(schema: &mut Value, keyword: &str) {
    schema.as_object_mut().unwrap().remove(keyword);
}

/// Turns a schema of draft 2020-12, with the keywords that [`json_schema`](super::json_schema) knows, into one of draft 7. What is said of a field stays;
/// what is left out of a field is for the daemon to say.
fn convert(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(convert),
        Value::Object(keywords) => {
            keywords.values_mut().for_each(convert);
            if let Some(Value::String(name)) = keywords.get("$ref") {
                let name = name.replace("#/$defs/", "#/definitions/");
                let beside =
                    |keyword: &&String| !matches!(keyword.as_str(), "$ref" | "description" | "default" | "title");
                assert_eq!(keywords.keys().find(beside), None, "it would not be looked at: {name}");
                *keywords = Map::from_iter([("$ref".to_owned(), name.into())]);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

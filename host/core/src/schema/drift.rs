//! Says where a `CustomResourceDefinition` differs from what the types come to, field by field.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The most differences that are told.
const TOLD: usize = 20;

/// The longest value that is shown, in characters.
const SHOWN: usize = 60;

/// Returns what differs, a line each, by the names of fields as people write them; nothing if the definitions say the same.
///
/// ```
/// # use capstan_core::schema::drift;
/// # use serde_json::json;
/// let of = |length: u8| json!({ "spec": { "versions": [{ "name": "v1", "schema": { "openAPIV3Schema": { "properties": {
///     "spec": { "properties": { "name": { "maxLength": length } } }
/// } } } }] } });
/// assert_eq!(drift(&of(64), &of(63)), ["v1: spec.name: found maxLength 64; the types say 63"]);
/// ```
pub fn drift(found: &Value, typed: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    outside(&mut lines, "", (found, typed));
    let more = lines.len().saturating_sub(TOLD);
    lines.truncate(TOLD);
    lines.extend((more > 0).then(|| format!("and {more} more")));
    lines
}

/// Compares what is no schema: names, versions, columns.
fn outside(lines: &mut Vec<String>, place: &str, (found, typed): (&Value, &Value)) {
    match (found, typed) {
        (Value::Object(found), Value::Object(typed)) => {
            for (key, pair) in both(found, typed) {
                let inner = joined(place, key);
                match pair {
                    (Some(found), Some(typed)) if key == "versions" => versions(lines, (found, typed)),
                    (Some(found), Some(typed)) => outside(lines, &inner, (found, typed)),
                    (Some(found), None) => {
                        lines.push(format!("{inner}: found {}; the types say nothing of it", shown(found)));
                    }
                    (None, typed) => lines
                        .push(format!("{inner}: is missing; the types say {}", shown(typed.unwrap_or(&Value::Null)))),
                }
            }
        }
        _ if found == typed => {}
        _ => lines.push(format!("{place}: found {}; the types say {}", shown(found), shown(typed))),
    }
}

/// Compares the versions of a kind, by their names.
fn versions(lines: &mut Vec<String>, (found, typed): (&Value, &Value)) {
    let named = |all: &Value| -> Map<String, Value> {
        let all = all.as_array().into_iter().flatten();
        all.filter_map(|one| Some((one.get("name")?.as_str()?.to_owned(), one.clone()))).collect()
    };
    let (found, typed) = (named(found), named(typed));
    for (name, pair) in both(&found, &typed) {
        let (Some(Value::Object(found)), Some(Value::Object(typed))) = pair else {
            let what = if pair.0.is_some() { "is not in the types" } else { "is missing; the types have it" };
            lines.push(format!("version {name}: {what}"));
            continue;
        };
        let (mut found, mut typed) = (found.clone(), typed.clone());
        let schemas = [&mut found, &mut typed].map(|version| {
            version
                .get_mut("schema")
                .and_then(|schema| schema.as_object_mut()?.remove("openAPIV3Schema"))
                .unwrap_or_default()
        });
        outside(lines, &format!("version {name}"), (&Value::Object(found), &Value::Object(typed)));
        let mut fields = Vec::new();
        schema(&mut fields, "", (&schemas[0], &schemas[1]));
        lines.extend(fields.into_iter().map(|line| format!("{name}: {line}")));
    }
}

/// Compares what schemas say of a field.
fn schema(lines: &mut Vec<String>, field: &str, (found, typed): (&Value, &Value)) {
    let (Value::Object(found), Value::Object(typed)) = (found, typed) else {
        if found != typed {
            lines.push(format!("{}: found {}; the types say {}", named(field), shown(found), shown(typed)));
        }
        return;
    };
    for (key, pair) in both(found, typed) {
        match (key, pair) {
            ("properties", (Some(Value::Object(found)), Some(Value::Object(typed)))) => {
                for (name, pair) in both(found, typed) {
                    let inner = joined(field, name);
                    match pair {
                        (Some(found), Some(typed)) => schema(lines, &inner, (found, typed)),
                        (Some(_), None) => lines.push(format!("{inner}: is not in the types")),
                        (None, _) => lines.push(format!("{inner}: is missing; the types have it")),
                    }
                }
            }
            ("items", (Some(found), Some(typed))) => schema(lines, &format!("{field}[]"), (found, typed)),
            ("additionalProperties", (Some(found), Some(typed))) => schema(lines, &joined(field, "*"), (found, typed)),
            ("required", (found, typed)) => required(lines, field, (found, typed)),
            (_, (Some(found), Some(typed))) if found == typed => {}
            (_, (Some(found), Some(typed))) => {
                lines.push(format!("{}: found {key} {}; the types say {}", named(field), shown(found), shown(typed)));
            }
            (_, (Some(found), None)) => {
                lines.push(format!("{}: found {key} {}; the types say no {key}", named(field), shown(found)));
            }
            (_, (None, Some(typed))) => {
                lines.push(format!("{}: found no {key}; the types say {}", named(field), shown(typed)));
            }
            (_, (None, None)) => {}
        }
    }
}

fn required(lines: &mut Vec<String>, field: &str, (found, typed): (Option<&Value>, Option<&Value>)) {
    let names = |all: Option<&Value>| -> BTreeSet<String> {
        let all = all.and_then(Value::as_array).into_iter().flatten();
        all.filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let (found, typed) = (names(found), names(typed));
    for name in found.difference(&typed) {
        lines.push(format!("{}: is required; the types say that it may be left out", joined(field, name)));
    }
    for name in typed.difference(&found) {
        lines.push(format!("{}: may be left out; the types say that it is required", joined(field, name)));
    }
}

/// Returns the keys of two objects in order, each with what both have.
fn both<'a>(
    found: &'a Map<String, Value>,
    typed: &'a Map<String, Value>,
) -> impl Iterator<Item = (&'a str, (Option<&'a Value>, Option<&'a Value>))> {
    let keys: BTreeSet<_> = found.keys().chain(typed.keys()).collect();
    keys.into_iter().map(move |key| (&**key, (found.get(key), typed.get(key))))
}

fn joined(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

fn named(field: &str) -> &str {
    if field.is_empty() { "the resource" } else { field }
}

/// Returns a value in one line, cut off where it is long.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(schema: &Value) -> Value {
        let version = json!({ "name": "v1", "served": true, "schema": { "openAPIV3Schema": schema } });
        json!({ "metadata": { "name": "pages.sample.dev" }, "spec": { "scope": "Namespaced", "versions": [version] } })
    }

    #[test]
    fn each_difference_names_its_field_and_what_either_says() {
        let typed = json!({
            "type": "object",
            "required": ["spec"],
            "properties": { "spec": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": { "type": "string", "maxLength": 63 },
                    "tags": { "type": "array", "items": { "type": "string", "pattern": "^a" } },
                    "size": { "type": "integer" },
                },
            } },
        });
        assert_eq!(drift(&definition(&typed), &definition(&typed)), Vec::<String>::new());
        let found = json!({
            "type": "object",
            "properties": { "spec": {
                "type": "object",
                "required": ["name", "tags"],
                "properties": {
                    "name": { "type": "string", "minLength": 1 },
                    "tags": { "type": "array", "items": { "type": "string", "pattern": "^b" } },
                    "theme": { "type": "string" },
                },
            } },
        });
        let mut other = definition(&found);
        other["spec"]["scope"] = json!("Cluster");
        other["spec"]["versions"][0]["served"] = json!(false);
        assert_eq!(
            drift(&other, &definition(&typed)),
            [
                "spec.scope: found \"Cluster\"; the types say \"Namespaced\"",
                "version v1.served: found false; the types say true",
                "v1: spec.name: found no maxLength; the types say 63",
                "v1: spec.name: found minLength 1; the types say no minLength",
                "v1: spec.size: is missing; the types have it",
                "v1: spec.tags[]: found pattern \"^b\"; the types say \"^a\"",
                "v1: spec.theme: is not in the types",
                "v1: spec.tags: is required; the types say that it may be left out",
                "v1: spec: may be left out; the types say that it is required",
            ]
        );
    }

    #[test]
    fn versions_are_compared_by_name_and_no_more_is_told_than_can_be_read() {
        let mut other = definition(&json!({}));
        other["spec"]["versions"][0]["name"] = json!("v2");
        assert_eq!(
            drift(&other, &definition(&json!({}))),
            ["version v1: is missing; the types have it", "version v2: is not in the types"]
        );
        let many: Map<String, Value> = (0..50).map(|n| (format!("f{n}"), json!({ "type": "string" }))).collect();
        let lines = drift(&definition(&json!({ "properties": {} })), &definition(&json!({ "properties": many })));
        assert_eq!((lines.len(), lines.last().map(String::as_str)), (TOLD + 1, Some("and 30 more")));
    }
}

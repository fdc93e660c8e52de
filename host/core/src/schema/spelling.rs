//! Decides which fields of a definition are spelled otherwise than Kubernetes spells fields.

use serde_json::Value;

/// The most fields that are told.
const TOLD: usize = 20;

/// Returns the fields with `_` or with a capital letter first, a line each, and how Kubernetes would spell them. The API server takes them all
/// the same.
///
/// ```
/// # use capstan_core::schema::misspelt;
/// # use serde_json::json;
/// let made = json!({ "spec": { "versions": [{ "name": "v1", "schema": { "openAPIV3Schema": { "properties": {
///     "spec": { "properties": { "default_memory": { "type": "string" } } }
/// } } } }] } });
/// assert_eq!(misspelt(&made), ["v1: spec.default_memory: Kubernetes spells it defaultMemory"]);
/// ```
pub fn misspelt(definition: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for version in definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten() {
        let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
        let mut waiting = Vec::new();
        waiting.extend(version.pointer("/schema/openAPIV3Schema").map(|schema| (String::new(), "", schema)));
        while let Some((place, field, schema)) = waiting.pop() {
            lines.extend(usual(field).map(|usual| format!("{name}: {place}: Kubernetes spells it {usual}")));
            waiting.extend(schema.get("items").map(|inner| (format!("{place}[]"), "", inner)));
            waiting.extend(schema.get("additionalProperties").map(|inner| (format!("{place}.*"), "", inner)));
            // What is last in line comes first.
            let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten().rev();
            waiting.extend(fields.map(|(field, inner)| {
                let place = if place.is_empty() { field.clone() } else { format!("{place}.{field}") };
                (place, field.as_str(), inner)
            }));
        }
    }
    let more = lines.len().saturating_sub(TOLD);
    lines.truncate(TOLD);
    lines.extend((more > 0).then(|| format!("and {more} more")));
    lines
}

/// Returns how Kubernetes would spell the name of a field, if otherwise: `defaultMemory`.
fn usual(field: &str) -> Option<String> {
    let is_usual = !field.contains('_') && !field.starts_with(|first: char| first.is_ascii_uppercase());
    let mut spelt = String::new();
    for word in field.split('_').filter(|word| !word.is_empty()) {
        let is_shouted = !word.contains(|letter: char| letter.is_ascii_lowercase());
        let word = if is_shouted { word.to_ascii_lowercase() } else { word.to_owned() };
        let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        spelt += &if spelt.is_empty() { first.to_ascii_lowercase() } else { first.to_ascii_uppercase() };
        spelt += rest;
    }
    (!is_usual && !spelt.is_empty()).then_some(spelt)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn told(schema: &Value) -> Vec<String> {
        let version = json!({ "name": "v1", "schema": { "openAPIV3Schema": schema } });
        misspelt(&json!({ "spec": { "versions": [version] } }))
    }

    #[test]
    fn a_name_is_as_in_kubernetes_if_it_has_no_underscore_and_begins_small() {
        for (field, expected) in [
            ("defaultMemory", None),
            ("clusterIP", None),
            ("x509", None),
            ("a-b", None),
            ("ähnlich", None),
            ("_", None),
            ("default_memory", Some("defaultMemory")),
            ("Memory", Some("memory")),
            ("MAX_SIZE", Some("maxSize")),
            ("URL", Some("url")),
            ("_id", Some("id")),
            ("a__ä", Some("aä")),
        ] {
            assert_eq!(usual(field).as_deref(), expected, "{field}");
        }
    }

    #[test]
    fn fields_are_told_wherever_they_are_and_no_more_than_can_be_read() {
        let inner = json!({ "properties": { "in_side": {} } });
        let spec = json!({ "properties": {
            "list_of": { "items": inner },
            "map": { "additionalProperties": inner },
            "open": { "additionalProperties": true },
        } });
        assert_eq!(
            told(&json!({ "properties": { "spec": spec, "status": inner } })),
            [
                "v1: spec.list_of: Kubernetes spells it listOf",
                "v1: spec.list_of[].in_side: Kubernetes spells it inSide",
                "v1: spec.map.*.in_side: Kubernetes spells it inSide",
                "v1: status.in_side: Kubernetes spells it inSide",
            ]
        );
        let many: Map<String, Value> = (0..50).map(|n| (format!("f_{n}"), json!({}))).collect();
        let lines = told(&json!({ "properties": many }));
        assert_eq!((lines.len(), lines.last().map(String::as_str)), (TOLD + 1, Some("and 30 more")));
    }
}

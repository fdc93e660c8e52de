//! Decides which items of a list can't be told apart, though they should be.

use serde_json::{Map as Json, Value};

use crate::schema::{List, ListKind, Schema, Shape, field_of};
use crate::wrong::Wrong;

/// An item that is like one before it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Duplicate {
    /// The path of the list: `spec.parts`.
    path: String,
    at: usize,
    /// The key by which items are told apart.
    key: Value,
}

impl Duplicate {
    /// Returns it in the words of a validation.
    pub(crate) fn wrong(&self) -> Wrong {
        let Self { path, at, key } = self;
        Wrong::duplicate(&format!("{path}[{at}]"), key)
    }

    /// Returns it in the words of an apply.
    pub(crate) fn said(&self) -> String {
        let Self { path, key, .. } = self;
        let key = match key.as_object() {
            Some(keys) => {
                let keys = keys.iter().map(|(name, value)| format!("{name}={value}"));
                keys.collect::<Vec<_>>().join(",")
            }
            None => format!("={key}"),
        };
        format!(".{path}: duplicate entries for key [{key}]")
    }
}

/// Returns all duplicates in a value.
pub(crate) fn duplicates(value: &Value, schema: &Schema) -> Vec<Duplicate> {
    let mut found = Vec::new();
    look(value, schema, "", &mut found);
    found
}

fn look(value: &Value, schema: &Schema, path: &str, found: &mut Vec<Duplicate>) {
    match schema.shape(value) {
        Shape::Scalar | Shape::List(None) | Shape::Map(None) => {}
        Shape::Map(map) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                look(value, field_of(map, name), &path, found);
            }
        }
        Shape::List(Some(list)) => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            for (at, item) in items.iter().enumerate() {
                let step = list.step(item);
                let before = items.iter().take(at).any(|other| list.step(other) == step);
                if step.is_some() && before {
                    let (path, key) = (path.to_owned(), key(item, list));
                    found.push(Duplicate { path, at, key });
                }
                look(item, &list.items, &format!("{path}[{at}]"), found);
            }
        }
    }
}

/// Returns the key by which an item is told apart.
fn key(item: &Value, list: &List) -> Value {
    match &list.kind {
        ListKind::Atomic | ListKind::Set => item.clone(),
        ListKind::Keys(keys) => {
            let given = keys
                .iter()
                .filter_map(|(key, default)| Some((key.clone(), item.get(key).or(default.as_ref())?.clone())));
            Value::Object(given.collect::<Json<String, Value>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_item_like_one_before_is_named_with_its_place() {
        let schema = Schema::short(
            &json!({ "set": ["set", "string"], "parts": ["keys:name,kind=X", "any"], "list": ["atomic", "string"] }),
        );
        let value = json!({ "set": ["a", "b", "a"], "parts": [{ "name": "a" }, { "name": "a", "kind": "X" }], "list": ["a", "a"] });
        let said: Vec<String> = duplicates(&value, &schema).iter().map(Duplicate::said).collect();
        assert_eq!(
            said,
            [".parts: duplicate entries for key [kind=\"X\",name=\"a\"]", ".set: duplicate entries for key [=\"a\"]"]
        );
    }
}

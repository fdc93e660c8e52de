//! Decides what becomes of a live object when a configuration is applied to it.

use serde_json::{Map as Json, Value};

use crate::fields::Step;
use crate::schema::{List, ListKind, Map, Schema, Shape, field_of};

/// Returns `live` with the fields of `config`; fields that `config` does not have stay.
///
/// # Errors
/// The path of a list in which two items can't be told apart.
pub(crate) fn merge(live: &Value, config: &Value, schema: &Schema) -> Result<Value, String> {
    let merged = both(Some(live), Some(config), schema)?;
    Ok(merged.unwrap_or_else(|| Value::Object(Json::new())))
}

fn both(live: Option<&Value>, config: Option<&Value>, schema: &Schema) -> Result<Option<Value>, String> {
    let Some(config) = config else {
        return Ok(live.cloned());
    };
    match schema.shape(config) {
        Shape::Scalar | Shape::List(None) | Shape::Map(Some(Map { atomic: true, .. })) => Ok(Some(config.clone())),
        Shape::Map(map) => maps(live, config, map),
        Shape::List(Some(list)) if list.kind == ListKind::Atomic => Ok(Some(config.clone())),
        Shape::List(Some(list)) => lists(live, config, list),
    }
}

fn maps(live: Option<&Value>, config: &Value, map: Option<&Map>) -> Result<Option<Value>, String> {
    let full = |value: &Value| value.as_object().filter(|map| !map.is_empty()).cloned();
    let (old, new) = (live.and_then(full), full(config));
    let (old, new) = match (old, new) {
        (None, None) => return Ok(Some(config.clone())),
        (old, new) => (old.unwrap_or_default(), new.unwrap_or_default()),
    };
    let mut merged = old.clone();
    for (name, value) in &new {
        if let Some(value) = both(old.get(name), Some(value), field_of(map, name))? {
            merged.insert(name.clone(), value);
        }
    }
    Ok(Some(Value::Object(merged)))
}

/// Merges two lists. Items of `config` come in its order; those of `live` alone stay behind the items that they were
/// behind.
fn lists(live: Option<&Value>, config: &Value, list: &List) -> Result<Option<Value>, String> {
    let old = keyed(live, list)?;
    let new = keyed(Some(config), list)?;
    if old.is_empty() && new.is_empty() {
        return Ok(Some(config.clone()));
    }
    for (at, (step, _)) in new.iter().enumerate() {
        if new.iter().skip(at + 1).any(|(other, _)| other == step) {
            return Err(format!("duplicate entries for key [{step}]"));
        }
    }
    let in_new = |step: &Step| new.iter().any(|(other, _)| other == step);
    let in_old = |step: &Step| old.iter().find(|(other, _)| other == step).map(|(_, value)| *value);
    let mut shared = new.iter().map(|(step, _)| step).filter(|step| in_old(step).is_some()).peekable();
    let (mut left, mut right) = (old.iter().peekable(), new.iter().peekable());
    let mut merged = Vec::new();
    let mut taken = Vec::<&Step>::new();
    loop {
        match (left.peek().copied(), right.peek().copied()) {
            (None, None) => break,
            // An item of `live` alone.
            (Some((step, value)), _) if !in_new(step) => {
                merged.push((*value).clone());
                left.next();
            }
            (Some((step, _)), _) if taken.contains(&step) => {
                left.next();
            }
            (Some((step, _)), Some((other, _))) if step != other && shared.peek().is_some_and(|next| *next != step) => {
                // Its turn comes where `config` has it.
                left.next();
            }
            (_, Some((step, value))) => {
                let item = both(in_old(step), Some(value), &list.items)?;
                merged.extend(item);
                taken.push(step);
                right.next();
                shared.next_if(|next| *next == step);
            }
            (Some(_), None) => {
                left.next();
            }
        }
    }
    Ok(Some(Value::Array(merged)))
}

/// Returns the items of a list, each with the step to it.
fn keyed<'a>(value: Option<&'a Value>, list: &List) -> Result<Vec<(Step, &'a Value)>, String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    let step = |item: &'a Value| match list.step(item) {
        Some(step) => Ok((step, item)),
        None => Err("associative list with keys has an element that omits all key fields".to_owned()),
    };
    items.map(step).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(live: &Value, config: &Value) -> Value {
        let schema =
            Schema::short(&json!({ "set": ["set", "string"], "map": { "*": "any" }, "list": ["atomic", "string"] }));
        merge(live, config, &schema).unwrap()
    }

    #[test]
    fn items_come_in_the_order_of_the_configuration_and_others_stay_where_they_were() {
        let table = [
            (json!(["a", "b"]), json!(["b", "a"]), json!(["b", "a"])),
            (json!(["a", "b", "c"]), json!(["c", "a"]), json!(["b", "c", "a"])),
            (json!(["x", "a", "y"]), json!(["a", "z"]), json!(["x", "a", "y", "z"])),
            (json!([]), json!(["a"]), json!(["a"])),
        ];
        for (live, config, expected) in table {
            let found = merged(&json!({ "set": live }), &json!({ "set": config }));
            assert_eq!(found, json!({ "set": expected }), "{live} {config}");
        }
    }

    #[test]
    fn maps_are_merged_and_other_lists_are_replaced() {
        let live = json!({ "map": { "a": { "x": 1 }, "b": 1 }, "list": ["a"] });
        let config = json!({ "map": { "a": { "y": 2 } }, "list": ["b"] });
        assert_eq!(merged(&live, &config), json!({ "map": { "a": { "x": 1, "y": 2 }, "b": 1 }, "list": ["b"] }));
    }
}

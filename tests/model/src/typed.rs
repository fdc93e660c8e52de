//! Decides which fields a value has, how two values differ, and what is left of a value without some of its fields.

use serde_json::{Map as Json, Value};

use crate::fields::{Fields, Step, field};
use crate::schema::{List, ListKind, Map, Schema, Shape, below, field_of, is_named};

/// The differences of one value from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// The fields that are there only now.
    pub(crate) added: Fields,
    /// The fields with another value.
    pub(crate) modified: Fields,
    /// The fields that are not there any more.
    pub(crate) removed: Fields,
}

impl Comparison {
    /// Returns the comparison without the fields in `fields` or below them.
    pub(crate) fn outside(&self, fields: &Fields) -> Self {
        Self {
            added: self.added.outside(fields),
            modified: self.modified.outside(fields),
            removed: self.removed.outside(fields),
        }
    }

    /// Returns the fields that are added or modified.
    pub(crate) fn found(&self) -> Fields {
        self.added.union(&self.modified)
    }
}

// === the fields of a value ===

/// Returns the fields of a value that a manager owns who applies it.
pub(crate) fn fields_of(value: &Value, schema: &Schema) -> Fields {
    let mut fields = Fields::default();
    collect(value, schema, &mut Vec::new(), &mut fields);
    fields
}

fn collect(value: &Value, schema: &Schema, path: &mut Vec<Step>, fields: &mut Fields) {
    match schema.shape(value) {
        Shape::Scalar | Shape::List(None) | Shape::Map(Some(Map { atomic: true, .. })) => {
            fields.insert(path);
        }
        Shape::Map(map) => {
            for (name, inner) in value.as_object().into_iter().flatten() {
                path.push(field(name));
                collect(inner, field_of(map, name), path, fields);
                let empty = inner.is_null() || inner.as_object().is_some_and(Json::is_empty);
                if empty || !map.is_some_and(|map| map.names(name)) {
                    fields.insert(path);
                }
                path.pop();
            }
        }
        Shape::List(Some(list)) if list.kind == ListKind::Atomic => fields.insert(path),
        Shape::List(Some(list)) => collect_items(value, list, path, fields),
    }
}

fn collect_items(value: &Value, list: &List, path: &mut Vec<Step>, fields: &mut Fields) {
    let items = steps(value, list);
    for (step, item) in &items {
        path.push(step.clone());
        // Items that can't be told apart are owned as they are.
        if items.iter().filter(|(other, _)| other == step).count() == 1 {
            collect(item, &list.items, path, fields);
        }
        fields.insert(path);
        path.pop();
    }
}

/// Returns the items of a list that can be told apart, each with the step to it.
fn steps<'a>(value: &'a Value, list: &List) -> Vec<(Step, &'a Value)> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(|item| Some((list.step(item)?, item))).collect()
}

// === how two values differ ===

/// Returns how `new` differs from `old`.
pub(crate) fn compare(old: &Value, new: &Value, schema: &Schema) -> Comparison {
    let mut walk = Walk::default();
    walk.compare(Some(old), Some(new), schema);
    walk.found
}

/// A walk along both values.
#[derive(Default)]
struct Walk {
    path: Vec<Step>,
    found: Comparison,
}

impl Walk {
    fn compare(&mut self, old: Option<&Value>, new: Option<&Value>, schema: &Schema) {
        let shapes = [old, new].map(|value| value.map(|value| schema.shape(value)));
        let whole = match shapes {
            [Some(before), Some(after)] if before != after => {
                let first = self.inside(old, new, before);
                self.inside(old, new, after) || first
            }
            [Some(shape), None] | [_, Some(shape)] => self.inside(old, new, shape),
            [None, None] => return,
        };
        if whole {
            self.leaf(old, new);
        } else if old.is_none() {
            self.found.added.insert(&self.path);
        } else if new.is_none() {
            self.found.removed.insert(&self.path);
        }
    }

    /// Compares what is inside. Returns true if the values have to be compared as wholes instead.
    fn inside(&mut self, old: Option<&Value>, new: Option<&Value>, shape: Shape<'_>) -> bool {
        match shape {
            Shape::Scalar
            | Shape::List(None | Some(List { kind: ListKind::Atomic, .. }))
            | Shape::Map(Some(Map { atomic: true, .. })) => true,
            Shape::Map(map) => {
                let [old, new] = [old, new].map(|value| value.and_then(Value::as_object).filter(|map| !map.is_empty()));
                self.maps(old, new, map);
                old.is_none() && new.is_none()
            }
            Shape::List(Some(list)) => {
                let [old, new] =
                    [old, new].map(|value| value.filter(|value| value.as_array().is_some_and(|list| !list.is_empty())));
                self.lists(old, new, list);
                old.is_none() && new.is_none()
            }
        }
    }

    fn maps(&mut self, old: Option<&Json<String, Value>>, new: Option<&Json<String, Value>>, map: Option<&Map>) {
        let names =
            |map: Option<&Json<String, Value>>| map.into_iter().flat_map(Json::keys).cloned().collect::<Vec<_>>();
        for name in names(old) {
            let [before, after] = [old, new].map(|map| map.and_then(|map| map.get(&name)));
            self.step(field(&name), before, after, field_of(map, &name));
        }
        for name in names(new).into_iter().filter(|name| !old.is_some_and(|old| old.contains_key(name))) {
            let after = new.and_then(|map| map.get(&name));
            self.step(field(&name), None, after, field_of(map, &name));
        }
    }

    fn lists(&mut self, old: Option<&Value>, new: Option<&Value>, list: &List) {
        let [old, new] = [old, new].map(|value| value.map(|value| steps(value, list)).unwrap_or_default());
        let mut done = Vec::<&Step>::new();
        for (step, _) in old.iter().chain(&new) {
            if done.contains(&step) {
                continue;
            }
            done.push(step);
            let of = |items: &[(Step, &Value)]| -> Vec<Value> {
                let same = items.iter().filter(|(other, _)| other == step);
                same.map(|(_, item)| (*item).clone()).collect()
            };
            self.items(step, &of(&old), &of(&new), list);
        }
    }

    /// Compares the items of one step; several that can't be told apart are one whole.
    fn items(&mut self, step: &Step, old: &[Value], new: &[Value], list: &List) {
        let (several_before, several_after) = (old.len() > 1, new.len() > 1);
        let whole = [self.path.clone(), vec![step.clone()]].concat();
        match (several_before, several_after) {
            (false, false) => self.step(step.clone(), old.first(), new.first(), &list.items),
            (true, true) if old != new => self.found.modified.insert(&whole),
            (true, true) => {}
            (true, false) => {
                self.step(step.clone(), None, new.first(), &list.items);
                self.found.removed.insert(&whole);
            }
            (false, true) => {
                self.step(step.clone(), old.first(), None, &list.items);
                self.found.added.insert(&whole);
            }
        }
    }

    fn step(&mut self, step: Step, old: Option<&Value>, new: Option<&Value>, schema: &Schema) {
        self.path.push(step);
        self.compare(old, new, schema);
        self.path.pop();
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        let Comparison { added, modified, removed } = &mut self.found;
        match (old, new) {
            (None, _) => added.insert(&self.path),
            (_, None) => removed.insert(&self.path),
            (Some(old), Some(new)) if old != new => modified.insert(&self.path),
            (Some(_), Some(_)) => {}
        }
    }
}

// === without some fields ===

/// Returns the value without some of its fields. A map or list that is empty then is null.
pub(crate) fn without(value: &Value, gone: &Fields, schema: &Schema) -> Value {
    match schema.shape(value) {
        Shape::Scalar => value.clone(),
        Shape::List(None) | Shape::Map(Some(Map { atomic: true, .. })) => Value::Null,
        Shape::Map(map) => {
            let mut left = Json::new();
            for (name, inner) in value.as_object().into_iter().flatten() {
                let step = field(name);
                if gone.has(&step) {
                    continue;
                }
                let inner = match gone.below(&step) {
                    Some(gone) => without(inner, gone, field_of(map, name)),
                    None => inner.clone(),
                };
                left.insert(name.clone(), inner);
            }
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        Shape::List(Some(list)) => {
            let items = value.as_array().into_iter().flatten();
            let left: Vec<Value> = items
                .filter_map(|item| {
                    let Some(step) = list.step(item) else {
                        return Some(item.clone());
                    };
                    if gone.has(&step) {
                        return None;
                    }
                    Some(gone.below(&step).map_or_else(|| item.clone(), |gone| without(item, gone, &list.items)))
                })
                .collect();
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
    }
}

/// Returns the set with each field that the kind names and that has something below it: the owner of `spec.replicas`
/// has a part in `spec`, too.
pub(crate) fn with_named(fields: &Fields, schema: &Schema) -> Fields {
    fields.map_below(|step, member, inner| {
        let named = !inner.is_empty() && is_named(schema, step);
        (member || named, with_named(inner, below(schema, step)))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Schema {
        Schema::short(&json!({
            "data": { "*": "string" },
            "ports": ["keys:port,protocol=TCP", { "name": "string", "port": "integer", "protocol": "string" }],
            "finalizers": ["set", "string"],
            "selector": { "!": true, "*": "string" },
            "spec": "any",
        }))
    }

    #[test]
    fn named_fields_are_no_members_and_given_names_are() {
        let value = json!({ "data": { "a": "1" }, "ports": [{ "port": 80, "name": "x" }], "finalizers": ["b"], "selector": { "a": "b" }, "spec": { "x": { "y": [1] } } });
        let expected = json!({
            "f:data": { "f:a": {} },
            "f:ports": { "k:{\"port\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:name": {}, "f:port": {} } },
            "f:finalizers": { "v:\"b\"": {} },
            "f:selector": {},
            "f:spec": { "f:x": { ".": {}, "f:y": {} } },
        });
        assert_eq!(fields_of(&value, &schema()).write(), expected);
    }

    #[test]
    fn what_is_added_has_the_map_around_it_and_what_is_modified_has_not() {
        let found = compare(&json!({}), &json!({ "data": { "a": "1" } }), &schema());
        assert_eq!(found.added.write(), json!({ "f:data": { ".": {}, "f:a": {} } }));
        let found = compare(&json!({ "data": { "a": "1", "b": "1" } }), &json!({ "data": { "a": "2" } }), &schema());
        assert_eq!(found.modified.write(), json!({ "f:data": { "f:a": {} } }));
        assert_eq!(found.removed.write(), json!({ "f:data": { "f:b": {} } }));
    }

    #[test]
    fn what_changes_its_shape_is_modified_and_what_was_inside_is_removed() {
        let found = compare(&json!({ "spec": { "a": { "b": 1 } } }), &json!({ "spec": { "a": 1 } }), &schema());
        assert_eq!(found.modified.write(), json!({ "f:spec": { "f:a": {} } }));
        assert_eq!(found.removed.write(), json!({ "f:spec": { "f:a": { "f:b": {} } } }));
    }

    #[test]
    fn a_map_from_which_all_is_taken_is_null() {
        let gone = Fields::of(&[&["data", "a"]]);
        assert_eq!(
            without(&json!({ "data": { "a": "1" }, "spec": 1 }), &gone, &schema()),
            json!({ "data": null, "spec": 1 })
        );
    }
}

//! Bounds what of an operator is kept as trees: its CEL expressions, templates and settings (`OP-2`).
#![expect(clippy::ref_option, reason = "a field that may be left out is looked at where it is")]

use std::sync::Arc;

use serde_json::{Map, Value};

use super::super::raw::Maybe;
use super::{Check, located};
use crate::yaml::{Any, Located, Slot};

/// The most parts of an operator that are kept as trees: a tree takes up to some 350 bytes for each part, and a list in CEL has one for every two bytes of
/// text. The samples have some hundred at most.
const MOST_PARTS: usize = 20_000;

impl Check<'_> {
    /// Adds parts of a field to those that are kept. Says whether they may be; if not, that is told once.
    pub(super) fn keep_parts(&mut self, place: usize, parts: usize) -> bool {
        if self.has_too_many_parts() {
            return false;
        }
        self.parts += parts;
        let what = "values of templates and `config`, and parts of CEL expressions, so far";
        self.few(place, (self.parts, what), MOST_PARTS, " in one operator")
    }

    /// Whether that has been told.
    pub(super) fn has_too_many_parts(&self) -> bool {
        self.parts > MOST_PARTS
    }

    /// Returns settings.
    pub(super) fn config(&mut self, field: &Maybe<Map<String, Value>>) -> Arc<Value> {
        let fields = located(field).map(|Located { value, place }| {
            let may_be = self.keep_parts(*place, value.values().map(values).sum());
            if may_be { value.clone() } else { Map::new() }
        });
        Arc::new(Value::Object(fields.unwrap_or_default()))
    }
}

/// Returns how many values there are.
fn values(value: &Value) -> usize {
    1 + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => items.iter().map(values).sum(),
        Value::Object(fields) => fields.values().map(values).sum(),
    }
}

/// Returns how many values a part of a template has.
pub(super) fn values_of(part: &Slot<Any>) -> usize {
    1 + match part.read().map(|part| &part.value) {
        None | Some(Any::Plain(_) | Any::Text(_)) => 0,
        Some(Any::List(items)) => items.iter().map(values_of).sum(),
        Some(Any::Map(fields)) => fields.iter().map(|(_, value)| values_of(value)).sum(),
    }
}

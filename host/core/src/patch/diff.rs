//! Decides the patch that leads from one document to another.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Operation, Patch, Path, Size};
use crate::budget::{Budget, Exceeded};

/// A map or list is replaced as a whole if its differences, field by field, take more bytes than this and than its
/// new value.
const LONG: usize = 64 << 10;

/// Returns the patch that leads from one document to another; empty if they are equal. It is at most about as long as
/// `after`: where the differences field by field would be longer than the wanted value, that value is put there as a
/// whole.
///
/// # Errors
/// [`Exceeded`] if it costs too much.
pub fn diff(before: &Value, after: &Value, budget: &mut Budget) -> Result<Patch, Exceeded> {
    let mut walk = Walk { way: Vec::new(), way_bytes: 0, found: Vec::new(), bytes: 0, budget };
    walk.compare(before, after)?;
    Ok(Patch(walk.found))
}

/// A walk through both documents at once.
struct Walk<'b> {
    way: Vec<String>,
    /// Bytes of the current path, as a pointer.
    way_bytes: usize,
    found: Vec<Operation>,
    /// Bytes of the operations found so far, as JSON.
    bytes: usize,
    budget: &'b mut Budget,
}

impl Walk<'_> {
    /// Adds the operations that lead from one value to the other. Returns about how many bytes the second has as
    /// JSON.
    fn compare(&mut self, before: &Value, after: &Value) -> Result<usize, Exceeded> {
        self.budget.step(1)?;
        let (found, bytes) = (self.found.len(), self.bytes);
        let size = match (before, after) {
            (Value::Object(before), Value::Object(fields)) => {
                let names: BTreeSet<_> = before.keys().chain(fields.keys()).collect();
                let parts = names.into_iter();
                let parts = parts.map(|name| (name.clone(), before.get(name), fields.get(name)));
                self.parts(parts, after, bytes)?
            }
            (Value::Array(before), Value::Array(list)) => {
                let common = before.len().min(list.len());
                let there = list.iter().enumerate();
                let there = there.map(|(index, value)| (index, before.get(index), Some(value)));
                // From the end, so that the indexes before stay the same.
                let gone = (common..before.len()).rev();
                let gone = gone.map(|index| (index, Some(&Value::Null), None));
                let parts = there.chain(gone);
                let parts = parts.map(|(index, before, after)| (index.to_string(), before, after));
                self.parts(parts, after, bytes)?
            }
            (before, after) if before == after => Size::of(after, self.budget)?.weight,
            (_, after) => {
                let size = Size::of(after, self.budget)?.weight;
                self.note(size, |path| Operation::Replace { path, value: after.clone() });
                size
            }
        };
        if self.is_long(bytes, size) {
            self.found.truncate(found);
            self.bytes = bytes;
            self.note(size, |path| Operation::Replace { path, value: after.clone() });
        }
        Ok(size)
    }

    /// Adds the operations for the parts of a map or list, until they are longer than `whole`, the new map or list.
    /// `from` is the length of the operations found before.
    fn parts<'v>(
        &mut self,
        parts: impl Iterator<Item = (String, Option<&'v Value>, Option<&'v Value>)>,
        whole: &Value,
        from: usize,
    ) -> Result<usize, Exceeded> {
        let (mut size, mut all) = (2, None);
        for (step, before, after) in parts {
            size += step.len() + 4;
            self.enter(step);
            size += self.part(before, after)?;
            self.leave();
            if self.is_long(from, 0) {
                let all = match all {
                    Some(all) => all,
                    None => *all.insert(Size::of(whole, self.budget)?.weight),
                };
                if self.is_long(from, all) {
                    return Ok(all);
                }
            }
        }
        Ok(size)
    }

    /// Returns true if the operations found since `from` are longer than the whole value, which has `size` bytes.
    fn is_long(&self, from: usize, size: usize) -> bool {
        // The document and its metadata are never replaced as a whole: most of the metadata belongs to the API
        // server.
        let apart = self.way.is_empty() || self.way == ["metadata"];
        self.bytes - from > LONG.max(size) && !apart
    }

    fn part(&mut self, before: Option<&Value>, after: Option<&Value>) -> Result<usize, Exceeded> {
        match (before, after) {
            (Some(before), Some(after)) => self.compare(before, after),
            (None, Some(after)) => {
                let size = Size::of(after, self.budget)?.weight;
                self.note(size, |path| Operation::Add { path, value: after.clone() });
                Ok(size)
            }
            (Some(_), None) => {
                self.budget.step(1)?;
                self.note(0, |path| Operation::Remove { path });
                Ok(0)
            }
            (None, None) => Ok(0),
        }
    }

    fn note(&mut self, size: usize, operation: impl FnOnce(Path) -> Operation) {
        self.bytes += size + self.way_bytes + 32;
        self.found.push(operation(Path(self.way.clone())));
    }

    fn enter(&mut self, step: String) {
        self.way_bytes += step.len() + 1;
        self.way.push(step);
    }

    fn leave(&mut self) {
        if let Some(step) = self.way.pop() {
            self.way_bytes -= step.len() + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::*;
    use crate::budget::RUN;

    #[test]
    fn a_difference_of_many_fields_below_a_long_name_repeats_that_name_few_times() {
        let long = "k".repeat(LONG);
        let many = |value: u32| {
            let fields: Map<String, Value> = (0..5_000).map(|n| (format!("f{n}"), json!(value))).collect();
            json!({ "spec": { &*long: fields } })
        };
        let (before, after) = (many(1), many(2));
        let mut walk = Walk {
            way: Vec::new(),
            way_bytes: 0,
            found: Vec::with_capacity(0),
            bytes: 0,
            budget: &mut Budget::of(RUN),
        };
        walk.compare(&before, &after).unwrap();
        assert_eq!(walk.found.len(), 1);
        assert!(walk.found.capacity() < 100, "{} were there at once", walk.found.capacity());
    }

    #[test]
    fn a_difference_is_told_field_by_field_unless_the_whole_is_shorter() {
        let mut budget = Budget::of_run();
        let (before, after) = (json!({"a": 1, "l": [1, 2, 3], "o": 1}), json!({"a": 2, "l": [1, 4], "n": {}}));
        let text = r#"[{"op":"replace","path":"/a","value":2},{"op":"replace","path":"/l/1","value":4},{"op":"remove","path":"/l/2"},{"op":"add","path":"/n","value":{}},{"op":"remove","path":"/o"}]"#;
        assert_eq!(diff(&before, &after, &mut budget).unwrap().text(), text);

        let long = "k".repeat(100_000);
        let many = |value: u32| json!({"metadata": {"name": "a"}, "spec": {&long: (0..1000).map(|n| (n.to_string(), json!(value))).collect::<Map<_, _>>()}});
        let patch = diff(&many(1), &many(2), &mut budget).unwrap();
        assert_eq!(patch.0.len(), 1);
        assert!(patch.text().len() < 300_000, "{}", patch.text().len());
        assert_eq!(patch.apply(many(1), &mut budget).unwrap(), many(2));
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..4).prop_map(Value::from),
            "[a-c/~]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c/~]{0,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_difference_leads_from_one_document_to_the_other(before in document(), after in document()) {
            let mut budget = Budget::of_run();
            let patch = diff(&before, &after, &mut budget).unwrap();
            prop_assert_eq!(patch.0.is_empty(), before == after);
            let read = Patch::read(&patch.text(), &mut budget).unwrap();
            prop_assert_eq!(read.apply(before, &mut budget).unwrap(), after);
        }
    }
}

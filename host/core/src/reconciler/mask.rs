//! Decides which fields of an object a guest gets if it asked for only some of them.
//!
//! Works on the text, level by level, and skips fields that were not asked for: an object may be deeper than any tree
//! that is built.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::budget::{Budget, Exceeded};
use crate::guest::{CallError, CallReason};
use crate::object::fields::Fields;
use crate::object::{Object, Text};

/// The fields that identify an object. They are always included.
const ALWAYS: [&str; 4] = ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"];

/// The most pointers of one query.
const FIELDS: usize = 256;

/// The most steps of one pointer: no object that is parsed into a tree is deeper.
const STEPS: usize = 128;

/// The fields that were asked for.
pub struct Mask(Option<Level>);

/// The fields that were asked for at one level.
#[derive(Default)]
struct Level {
    /// True if the whole value was asked for.
    whole: bool,
    /// The fields below, by name.
    below: BTreeMap<String, Level>,
}

impl Mask {
    /// Parses JSON pointers; an empty list asks for everything.
    ///
    /// # Errors
    /// `invalid` for a text that is not a pointer, for a pointer of too many steps, and for too many pointers.
    pub fn of(fields: &[String]) -> Result<Self, CallError> {
        let invalid = |message| Err(CallError::new(CallReason::Invalid, message));
        if fields.is_empty() {
            return Ok(Self(None));
        }
        if fields.len() > FIELDS {
            let count = fields.len();
            return invalid(format!("fields: {count} pointers, at most {FIELDS} are taken"));
        }
        let mut all = Level::default();
        for pointer in ALWAYS.into_iter().chain(fields.iter().map(String::as_str)) {
            if pointer.split('/').nth(STEPS + 1).is_some() {
                return invalid(format!("fields: a pointer of more than {STEPS} steps"));
            }
            match pointer.strip_prefix('/') {
                Some(path) => all.ask(path),
                None if pointer.is_empty() => return Ok(Self(None)),
                None => return invalid(format!("fields: {pointer:?} is not a JSON pointer")),
            }
        }
        Ok(Self(Some(all)))
    }

    /// Returns true if everything is asked for.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if a set of fields has all that is asked for.
    pub fn is_within(&self, fields: &Fields) -> bool {
        self.0.as_ref().map_or_else(|| fields.is_whole(), |level| level.is_within(fields, &mut Vec::new()))
    }

    /// Returns the object with only these fields. A pointer into a list selects the whole list.
    ///
    /// # Errors
    /// [`Exceeded`] if that costs more than the budget allows.
    pub fn apply(&self, object: &Object, budget: &mut Budget) -> Result<String, Exceeded> {
        budget.text(object.unmade())?;
        self.take(object.json(), budget)
    }

    /// Returns the document with only these fields.
    ///
    /// # Errors
    /// As [`Mask::apply`].
    pub fn take(&self, json: &str, budget: &mut Budget) -> Result<String, Exceeded> {
        let Some(level) = &self.0 else {
            budget.text(json.len())?;
            return Ok(json.to_owned());
        };
        let found = level.take(json, budget)?;
        Ok(found.unwrap_or_else(|| "{}".to_owned()))
    }
}

impl Level {
    fn ask(&mut self, path: &str) {
        let mut level = self;
        for step in path.split('/') {
            let step = step.replace("~1", "/").replace("~0", "~");
            level = level.below.entry(step).or_default();
        }
        level.whole = true;
    }

    fn is_within<'l>(&'l self, fields: &Fields, path: &mut Vec<&'l str>) -> bool {
        if self.whole {
            return fields.has(path.iter().copied());
        }
        self.below.iter().all(|(name, below)| {
            path.push(name);
            let within = below.is_within(fields, path);
            path.pop();
            within
        })
    }

    /// Returns the text of the wanted fields of a map; `None` if it has none of them.
    fn take(&self, json: &str, budget: &mut Budget) -> Result<Option<String>, Exceeded> {
        budget.text(json.len())?;
        let mut json = serde_json::Deserializer::from_str(json);
        let Ok(entries) = json.deserialize_map(Entries) else {
            return Ok(None);
        };
        budget.step(u64::try_from(entries.len()).unwrap_or(u64::MAX))?;
        let mut text = String::from("{");
        for (name, value) in entries {
            let Some(below) = self.below.get(&name) else {
                continue;
            };
            let value = value.get();
            let taken = if below.whole || !value.starts_with('{') {
                budget.text(value.len())?;
                value.to_owned()
            } else if let Some(taken) = below.take(value, budget)? {
                taken
            } else {
                continue;
            };
            let gap = if text.len() > 1 { "," } else { "" };
            let name = serde_json::Value::from(name);
            // Writing to a string can't fail.
            let _infallible = write!(text, "{gap}{name}:{taken}");
        }
        text.push('}');
        Ok(Some(text).filter(|text| text.len() > 2))
    }
}

/// Reads the entries of a map, their values as text.
struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((name, value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
            entries.push((name.0.into_owned(), value));
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::object::packed::{Dictionary, Packed};
    use crate::object::{Gvk, Managers};

    fn masked(object: &Value, fields: &[&str]) -> Result<Value, CallError> {
        let gvk = Gvk::parse("v1", "Thing").unwrap();
        let object = Object::parse(&object.to_string(), &gvk, &Managers::default()).unwrap();
        let fields: Vec<_> = fields.iter().map(|&field| field.to_owned()).collect();
        let text = Mask::of(&fields)?.apply(&object, &mut Budget::of_run());
        Ok(serde_json::from_str(&text.unwrap()).unwrap())
    }

    #[test]
    fn a_pointer_of_too_many_steps_is_refused() {
        let object = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}});
        assert_eq!(masked(&object, &[&"/a".repeat(STEPS)]), Ok(object.clone()));
        let refused = masked(&object, &[&"/a".repeat(1 << 20)]).unwrap_err();
        assert_eq!(refused.reason, CallReason::Invalid);
    }

    #[test]
    fn fields_are_copied_and_lists_stay_whole() {
        let with = |more: Value| {
            let mut object = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}});
            object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            object
        };
        let spec = json!({"a": 1, "list": [{"x": 1}, {"x": 2}]});
        let object = with(json!({"spec": spec, "data": {"k/1": "v", "\"": 1}}));
        for (fields, expected) in [
            (&["/spec/a"][..], with(json!({"spec": {"a": 1}}))),
            (&["/spec/a/b"], with(json!({"spec": {"a": 1}}))),
            (&["/spec/list/1/x", "/spec/list"], with(json!({"spec": {"list": [{"x": 1}, {"x": 2}]}}))),
            (&["/spec/a", "/spec"], with(json!({"spec": spec}))),
            (&["/spec", "/spec/a"], with(json!({"spec": spec}))),
            (&["/data/k~11", "/nothing/here", "/spec/nothing"], with(json!({"data": {"k/1": "v"}}))),
            (&["/data/\""], with(json!({"data": {"\"": 1}}))),
            (&[""], object.clone()),
            (&[], object.clone()),
        ] {
            assert_eq!(masked(&object, fields), Ok(expected), "{fields:?}");
        }
        let said = masked(&object, &["spec"]).unwrap_err().message;
        assert_eq!(said, "fields: \"spec\" is not a JSON pointer");
    }

    #[test]
    fn a_packed_object_is_unpacked_only_within_the_budget() {
        // BC-4
        let object = |n: usize| {
            let text =
                format!(r#"{{"metadata":{{"name":"o{n}"}},"data":"{}"}}"#, format!("a line of {n}, ").repeat(200));
            Object::parse(&text, &Gvk::parse("v1", "Thing").unwrap(), &Managers::default()).unwrap()
        };
        let objects: Vec<_> = (0..200).map(object).collect();
        let bytes = objects.iter().map(Object::size).sum();
        let dictionary = Dictionary::of(objects.iter().cloned(), objects.len(), bytes).unwrap();
        let packed = Packed::of(&objects[7], &dictionary).unwrap().object();
        let (all, whole) = (Mask::of(&[]).unwrap(), packed.size());
        let steps = |bytes: usize| 1 + bytes as u64 / 16;
        assert_eq!(all.apply(&packed, &mut Budget::of(steps(whole) - 1)), Err(Exceeded::Steps(steps(whole) - 1)));
        assert_eq!(packed.unmade(), whole, "it is as it was");
        let mut budget = Budget::of(2 * steps(whole));
        assert_eq!(all.apply(&packed, &mut budget), Ok(objects[7].json().to_owned()));
        assert_eq!((packed.unmade(), budget.left()), (0, 0), "unpacked, and copied");
    }

    #[test]
    fn an_object_that_is_deeper_than_any_tree_is_masked_like_others() {
        let deep = format!("{}1{}", "[".repeat(9_000), "]".repeat(9_000));
        let text =
            format!(r#"{{"apiVersion":"v1","kind":"Thing","metadata":{{"name":"a"}},"spec":{{"deep":{deep},"a":1}}}}"#);
        let gvk = Gvk::parse("v1", "Thing").unwrap();
        let object = Object::parse(&text, &gvk, &Managers::default()).unwrap();
        let mask = Mask::of(&["/spec/a".to_owned()]).unwrap();
        let masked = mask.apply(&object, &mut Budget::of_run()).unwrap();
        let expected = r#"{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a"},"spec":{"a":1}}"#;
        assert_eq!(masked, expected);
    }
}

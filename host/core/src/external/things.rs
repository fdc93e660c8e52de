//! Reads what a component answers as things: each has an id, and equal ones are written the same (XC-3).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::budget::{self, Budget};
use crate::object::pointer::Pointer;
use crate::text;

/// The things of one primary, as JSON, by their ids.
pub type Things = BTreeMap<Arc<str>, Arc<str>>;

/// The longest id, in bytes.
pub(super) const LONGEST: usize = 512;

/// Why an answer can't be read. Trying again does not help until the component answers otherwise.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A thing is no JSON, or costs too much.
    #[error("a thing can't be read: {0}")]
    Unreadable(#[from] budget::Error),
    /// A thing has no id.
    #[error("a thing has no id: at {at:?} there is {found}; a text that is not empty, or a whole number, was expected")]
    NoId {
        /// The pointer of the manifest.
        at: Arc<str>,
        /// What is there.
        found: &'static str,
    },
    /// An id is too long.
    #[error("a thing has an id of {0} bytes; at most {LONGEST} are taken")]
    LongId(usize),
    /// Two things have the same id.
    #[error("two things of a primary have the id {:?}", text::said(.0))]
    Twice(Arc<str>),
}

/// Reads the things of one primary, which the budget pays for. Equal things are written the same, whatever the order of their
/// fields was.
///
/// # Errors
/// [`Problem`].
pub fn read(answer: &[String], id: &Pointer, budget: &mut Budget) -> Result<Things, Problem> {
    let mut things = Things::new();
    for text in answer {
        let tree = budget.read(text)?;
        let id = id_of(&tree, id)?;
        let written = tree.to_string();
        budget.text(written.len()).map_err(budget::Error::from)?;
        if things.insert(Arc::clone(&id), written.into()).is_some() {
            return Err(Problem::Twice(id));
        }
    }
    Ok(things)
}

/// Returns the id of what is desired; `None` if it has none yet.
///
/// # Errors
/// [`Problem`], if there is something else in its place.
pub(super) fn id_if_any(tree: &Value, id: &Pointer) -> Result<Option<Arc<str>>, Problem> {
    let there = tree.pointer(id.text()).is_some_and(|found| !found.is_null());
    if there { id_of(tree, id).map(Some) } else { Ok(None) }
}

fn id_of(tree: &Value, id: &Pointer) -> Result<Arc<str>, Problem> {
    let at = id.text();
    let found = match tree.pointer(at) {
        Some(Value::String(text)) if text.len() > LONGEST => return Err(Problem::LongId(text.len())),
        Some(Value::String(text)) if !text.is_empty() => return Ok(text.as_str().into()),
        Some(Value::Number(number)) if number.is_i64() || number.is_u64() => return Ok(number.to_string().into()),
        Some(Value::String(_)) => "an empty text",
        Some(Value::Number(_)) => "a number with a fraction",
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "a truth value",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "a map",
        None => "nothing",
    };
    Err(Problem::NoId { at: Arc::clone(at), found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_has_an_id_and_equal_things_are_written_the_same() {
        // XC-3
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(LONGEST + 1));
        let nothing = |found: &str| {
            format!(
                "a thing has no id: at \"/id\" there is {found}; a text that is not empty, or a whole number, was expected"
            )
        };
        for (answer, expected) in [
            (vec![], Ok(vec![])),
            (vec![r#"{"z":1,"id":"a"}"#], Ok(vec![("a", r#"{"id":"a","z":1}"#)])),
            (vec![r#"{ "id" : "a", "z":1 }"#], Ok(vec![("a", r#"{"id":"a","z":1}"#)])),
            (vec![r#"{"id":7}"#, r#"{"id":"b"}"#], Ok(vec![("7", r#"{"id":7}"#), ("b", r#"{"id":"b"}"#)])),
            (vec![r#"{"id":"a"}"#, r#"{"id":"a","z":1}"#], Err("two things of a primary have the id \"a\"".to_owned())),
            (vec![r#"{"id":""}"#], Err(nothing("an empty text"))),
            (vec![r#"{"id":1.5}"#], Err(nothing("a number with a fraction"))),
            (vec![r#"{"id":null}"#], Err(nothing("null"))),
            (vec![r#"{"id":true}"#], Err(nothing("a truth value"))),
            (vec![r#"{"id":["a"]}"#], Err(nothing("a list"))),
            (vec![r#"{"id":{}}"#], Err(nothing("a map"))),
            (vec!["3"], Err(nothing("nothing"))),
            (vec![&long], Err("a thing has an id of 513 bytes; at most 512 are taken".to_owned())),
            (vec!["{"], Err("a thing can't be read: EOF while parsing an object at line 1 column 1".to_owned())),
        ] {
            let answer: Vec<_> = answer.into_iter().map(str::to_owned).collect();
            let found = read(&answer, &Pointer::parse("/id").unwrap(), &mut Budget::of_run());
            let found = found.map_err(|problem| problem.to_string());
            let expected =
                expected.map(|things| things.into_iter().map(|(id, text)| (id.into(), text.into())).collect());
            assert_eq!(found, expected, "{answer:?}");
        }
        let found = read(&["[]".to_owned()], &Pointer::parse("/id").unwrap(), &mut Budget::of(0));
        assert_eq!(found.unwrap_err().to_string(), "a thing can't be read: it takes more than 0 steps");
    }
}

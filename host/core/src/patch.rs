//! Decides, within bounds, the result of a JSON patch or merge patch.
//!
//! Like the API server, it bounds how much a patch may copy: a patch of a kilobyte may ask for gigabytes.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::budget::{self, Budget, Exceeded, LEVELS, WEIGHT};

mod diff;

pub use diff::diff;

/// The most operations of a patch that is applied here. The API server accepts ten times as many.
pub const OPERATIONS: usize = 1000;

/// The most bytes of memory that the copies of one patch may take.
const COPIES: usize = WEIGHT / 4;

/// A JSON patch (RFC 6902).
///
/// ```
/// # use capstan_core::budget::Budget;
/// # use capstan_core::patch::Patch;
/// # use serde_json::json;
/// let mut budget = Budget::of_run();
/// let patch = Patch::read(r#"[{"op": "add", "path": "/a", "value": 1}]"#, &mut budget).unwrap();
/// assert_eq!(patch.apply(json!({}), &mut budget).unwrap(), json!({"a": 1}));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Patch(pub Vec<Operation>);

/// An operation of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// Sets a field, or inserts an element.
    Add {
        /// The place.
        path: Path,
        /// The value.
        value: Value,
    },
    /// Removes the value at a place.
    Remove {
        /// The place.
        path: Path,
    },
    /// Replaces the value at a place.
    Replace {
        /// The place.
        path: Path,
        /// The value.
        value: Value,
    },
    /// Removes a value and adds it elsewhere.
    Move {
        /// The place of the value.
        from: Path,
        /// The new place.
        path: Path,
    },
    /// Adds a copy of a value elsewhere.
    Copy {
        /// The place of the value.
        from: Path,
        /// The new place.
        path: Path,
    },
    /// Fails unless this value is at the place.
    Test {
        /// The place.
        path: Path,
        /// The value.
        value: Value,
    },
}

/// A place in a document: the steps of a JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Path(Vec<String>);

/// The errors of patches. Not worth retrying.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not a JSON patch.
    #[error("not a JSON patch: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A text is not a pointer.
    #[error("{0:?} is not a JSON pointer such as \"/spec/replicas\"")]
    Pointer(String),
    /// There is no value at this place, or no map or list that could take the new value.
    #[error("there is no {0}")]
    Missing(Path),
    /// A test has failed.
    #[error("there is something else at {0}")]
    Test(Path),
    /// It costs too much.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
}

impl From<budget::Error> for Error {
    fn from(error: budget::Error) -> Self {
        match error {
            budget::Error::Json(error) => Self::Malformed(error),
            budget::Error::Exceeded(exceeded) => Self::Exceeded(exceeded),
        }
    }
}

// === impl Path ===

impl Path {
    /// Returns the place that these steps lead to.
    pub fn of<S: Into<String>>(steps: impl IntoIterator<Item = S>) -> Self {
        Self(steps.into_iter().map(Into::into).collect())
    }

    /// Returns the steps.
    pub fn steps(&self) -> &[String] {
        &self.0
    }

    fn find<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(document, |value, step| match value {
            Value::Object(map) => map.get(step),
            Value::Array(list) => list.get(index(step)?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }

    /// Returns the map or list that contains the place, and the last step.
    fn parent<'v, 's>(&'s self, document: &'v mut Value) -> Result<(&'v mut Value, &'s str), Error> {
        let missing = || Error::Missing(self.clone());
        let (last, way) = self.0.split_last().ok_or_else(missing)?;
        let parent = way.iter().try_fold(document, |value, step| match value {
            Value::Object(map) => map.get_mut(step),
            Value::Array(list) => list.get_mut(index(step)?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        });
        Ok((parent.ok_or_else(missing)?, last))
    }
}

impl TryFrom<String> for Path {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        if text.split('/').nth(LEVELS + 1).is_some() {
            return Err(Exceeded::Levels(LEVELS).into());
        }
        let steps = match text.strip_prefix('/') {
            Some(rest) => rest.split('/').map(unescape).collect::<Option<_>>(),
            None => text.is_empty().then(Vec::new),
        };
        steps.map(Self).ok_or(Error::Pointer(text))
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.to_string()
    }
}

impl fmt::Display for Path {
    /// Writes the path as a JSON pointer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| write!(f, "/{}", step.replace('~', "~0").replace('/', "~1")))
    }
}

fn unescape(step: &str) -> Option<String> {
    let mut rest = step.split('~').skip(1);
    rest.all(|rest| rest.starts_with(['0', '1'])).then(|| step.replace("~1", "/").replace("~0", "~"))
}

/// Checks that a patch has at most [`OPERATIONS`] steps.
fn few(steps: usize) -> Result<(), Exceeded> {
    if steps > OPERATIONS {
        let most = u64::try_from(OPERATIONS).unwrap_or(u64::MAX);
        return Err(Exceeded::Steps(most));
    }
    Ok(())
}

fn index(step: &str) -> Option<usize> {
    let plain = step == "0" || !step.starts_with(['0', '+']);
    step.parse().ok().filter(|_| plain)
}

impl Operation {
    /// Returns the place that the operation changes or tests.
    pub fn path(&self) -> &Path {
        match self {
            Self::Add { path, .. }
            | Self::Remove { path }
            | Self::Replace { path, .. }
            | Self::Move { path, .. }
            | Self::Copy { path, .. }
            | Self::Test { path, .. } => path,
        }
    }
}

// === impl Patch ===

impl Patch {
    /// Reads a patch.
    ///
    /// # Errors
    /// [`Error::Malformed`], [`Error::Exceeded`].
    pub fn read(text: &str, budget: &mut Budget) -> Result<Self, Error> {
        let steps = budget.read(text)?;
        few(steps.as_array().map_or(0, Vec::len)).map_err(|exceeded| budget.refuse(exceeded))?;
        Ok(serde_json::from_value(steps)?)
    }

    /// Returns the patch as JSON.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns true if the patch contains a test.
    pub fn tests(&self) -> bool {
        let mut steps = self.0.iter();
        steps.any(|step| matches!(step, Operation::Test { .. }))
    }

    /// Returns the document with the patch applied.
    ///
    /// # Errors
    /// [`Error`]; the document is dropped then.
    pub fn apply(&self, document: Value, budget: &mut Budget) -> Result<Value, Error> {
        let led_to = self.led_to(document, budget);
        if let Err(Error::Exceeded(exceeded)) = led_to {
            budget.refuse(exceeded);
        }
        led_to
    }

    fn led_to(&self, mut document: Value, budget: &mut Budget) -> Result<Value, Error> {
        few(self.0.len())?;
        let mut copied = 0;
        for operation in &self.0 {
            match operation {
                Operation::Add { path, value } => {
                    let value = Size::of(value, budget)?.copy(value, path)?;
                    add(&mut document, path, value, budget)?;
                }
                Operation::Remove { path } => drop(remove(&mut document, path, budget)?),
                Operation::Replace { path, value } => {
                    let value = Size::of(value, budget)?.copy(value, path)?;
                    replace(&mut document, path, value)?;
                }
                Operation::Move { from, path } => {
                    let value = remove(&mut document, from, budget)?;
                    Size::of(&value, budget)?.fits(path)?;
                    add(&mut document, path, value, budget)?;
                }
                Operation::Copy { from, path } => {
                    let value = from.find(&document).ok_or_else(|| Error::Missing(from.clone()))?;
                    let size = Size::of(value, budget)?;
                    copied += size.weight;
                    if copied > COPIES {
                        return Err(Exceeded::Weight(COPIES).into());
                    }
                    let value = size.copy(value, path)?;
                    add(&mut document, path, value, budget)?;
                }
                Operation::Test { path, value } => match path.find(&document) {
                    Some(found) if found == value => {}
                    Some(_) => return Err(Error::Test(path.clone())),
                    None => return Err(Error::Missing(path.clone())),
                },
            }
        }
        Ok(document)
    }
}

fn add(document: &mut Value, path: &Path, value: Value, budget: &mut Budget) -> Result<(), Error> {
    if path.0.is_empty() {
        *document = value;
        return Ok(());
    }
    match path.parent(document)? {
        (Value::Object(map), name) => drop(map.insert(name.to_owned(), value)),
        (Value::Array(list), "-") => list.push(value),
        (Value::Array(list), step) => {
            let at = index(step).filter(|at| *at <= list.len());
            let at = at.ok_or_else(|| Error::Missing(path.clone()))?;
            budget.text(list.len())?;
            list.insert(at, value);
        }
        (_, _) => return Err(Error::Missing(path.clone())),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &Path, budget: &mut Budget) -> Result<Value, Error> {
    let removed = match path.parent(document)? {
        (Value::Object(map), name) => map.remove(name),
        (Value::Array(list), step) => {
            budget.text(list.len())?;
            index(step).filter(|at| *at < list.len()).map(|at| list.remove(at))
        }
        (_, _) => None,
    };
    removed.ok_or_else(|| Error::Missing(path.clone()))
}

fn replace(document: &mut Value, path: &Path, value: Value) -> Result<(), Error> {
    if path.0.is_empty() {
        *document = value;
        return Ok(());
    }
    let place = match path.parent(document)? {
        (Value::Object(map), name) => map.get_mut(name),
        (Value::Array(list), step) => index(step).and_then(|at| list.get_mut(at)),
        (_, _) => None,
    };
    *place.ok_or_else(|| Error::Missing(path.clone()))? = value;
    Ok(())
}

/// The size of a value.
#[derive(Clone, Copy)]
struct Size {
    levels: usize,
    /// Bytes of memory, as [`budget::weight`] estimates them.
    weight: usize,
}

impl Size {
    fn of(value: &Value, budget: &mut Budget) -> Result<Self, Exceeded> {
        budget.step(1)?;
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(Self { levels: 0, weight: 8 }),
            Value::String(text) => {
                budget.text(text.len())?;
                Ok(Self { levels: 0, weight: text.len() })
            }
            Value::Array(list) => Self::around(list.iter().map(|part| (32, part)), 128, budget),
            Value::Object(map) => {
                let parts = map.iter().map(|(name, part)| (32 + name.len(), part));
                Self::around(parts, 640, budget)
            }
        }
    }

    /// Returns the size of a list or map: its own weight, and for each part the size of the part and of its name.
    fn around<'v>(
        mut parts: impl Iterator<Item = (usize, &'v Value)>,
        weight: usize,
        budget: &mut Budget,
    ) -> Result<Self, Exceeded> {
        parts.try_fold(Self { levels: 1, weight }, |all, (name, part)| {
            let part = Self::of(part, budget)?;
            Ok(Self { levels: all.levels.max(part.levels + 1), weight: all.weight + part.weight + name })
        })
    }

    /// Checks that a document with a value of this size at this place is not too deep.
    fn fits(self, path: &Path) -> Result<(), Exceeded> {
        if path.0.len() + self.levels > LEVELS {
            return Err(Exceeded::Levels(LEVELS));
        }
        Ok(())
    }

    fn copy(self, value: &Value, path: &Path) -> Result<Value, Exceeded> {
        self.fits(path).map(|()| value.clone())
    }
}

// === merge patches ===

/// Applies a merge patch (RFC 7386) to a document.
///
/// # Errors
/// [`Exceeded`] if it costs too much.
pub fn merge(document: &mut Value, patch: &Value, budget: &mut Budget) -> Result<(), Exceeded> {
    budget.step(1)?;
    let Value::Object(patch) = patch else {
        Size::of(patch, budget)?;
        *document = patch.clone();
        return Ok(());
    };
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    if let Value::Object(document) = document {
        for (name, value) in patch {
            if value.is_null() {
                document.remove(name);
            } else {
                let place = document.entry(name.as_str()).or_insert(Value::Null);
                merge(place, value, budget)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::budget::RUN;

    fn apply(document: Value, patch: &Value) -> Result<Value, String> {
        let mut budget = Budget::of_run();
        let read = Patch::read(&patch.to_string(), &mut budget);
        let done = read.and_then(|patch| patch.apply(document, &mut budget));
        if let Err(Error::Exceeded(exceeded)) = &done {
            assert_eq!(budget.refused(), Some(*exceeded), "the run is counted for it");
        }
        done.map_err(|error| error.to_string())
    }

    #[test]
    #[rustfmt::skip]
    fn a_patch_does_what_the_standard_says() {
        let document = json!({"a": {"b": [1, 2]}, "x/y": 1, "~": 2});
        for (patch, expected) in [
            (json!([{"op": "add", "path": "/a/b/1", "value": 9}]), Ok(json!({"a": {"b": [1, 9, 2]}, "x/y": 1, "~": 2}))),
            (json!([{"op": "add", "path": "/a/b/-", "value": 9}]), Ok(json!({"a": {"b": [1, 2, 9]}, "x/y": 1, "~": 2}))),
            (json!([{"op": "add", "path": "", "value": null}]), Ok(json!(null))),
            (json!([{"op": "remove", "path": "/a/b/0"}]), Ok(json!({"a": {"b": [2]}, "x/y": 1, "~": 2}))),
            (json!([{"op": "replace", "path": "/x~1y", "value": 3}]), Ok(json!({"a": {"b": [1, 2]}, "x/y": 3, "~": 2}))),
            (json!([{"op": "move", "from": "/a/b", "path": "/~0"}]), Ok(json!({"a": {}, "x/y": 1, "~": [1, 2]}))),
            (json!([{"op": "copy", "from": "/a", "path": "/a/c"}]), Ok(json!({"a": {"b": [1, 2], "c": {"b": [1, 2]}}, "x/y": 1, "~": 2}))),
            (json!([{"op": "test", "path": "/a/b/1", "value": 2}]), Ok(document.clone())),
            (json!([{"op": "test", "path": "/a/b/1", "value": 3}]), Err("there is something else at /a/b/1")),
            (json!([{"op": "test", "path": "/q", "value": null}]), Err("there is no /q")),
            (json!([{"op": "add", "path": "/a/b/3", "value": 9}]), Err("there is no /a/b/3")),
            (json!([{"op": "add", "path": "/a/b/01", "value": 9}]), Err("there is no /a/b/01")),
            (json!([{"op": "add", "path": "/q/r", "value": 9}]), Err("there is no /q/r")),
            (json!([{"op": "replace", "path": "/q", "value": 9}]), Err("there is no /q")),
            (json!([{"op": "remove", "path": "/q"}]), Err("there is no /q")),
            (json!([{"op": "move", "from": "/a", "path": "/a/b/0"}]), Err("there is no /a/b/0")),
            (json!([{"op": "add", "path": "a", "value": 9}]), Err("not a JSON patch: \"a\" is not a JSON pointer such as \"/spec/replicas\"")),
            (json!([{"op": "add", "path": "/~2", "value": 9}]), Err("not a JSON patch: \"/~2\" is not a JSON pointer such as \"/spec/replicas\"")),
            (json!([{"op": "add", "path": "/a"}]), Err("not a JSON patch: missing field `value`")),
            (json!([{"op": "burn", "path": "/a"}]), Err("not a JSON patch: unknown variant `burn`, expected one of `add`, `remove`, `replace`, `move`, `copy`, `test`")),
            (json!({}), Err("not a JSON patch: invalid type: map, expected a sequence")),
        ] {
            assert_eq!(apply(document.clone(), &patch), expected.map_err(str::to_owned), "{patch}");
        }
    }

    #[test]
    fn a_patch_that_would_grow_without_bound_is_refused_while_it_is_small() {
        let copy = |from: &str, path: String| json!({"op": "copy", "from": from, "path": path});
        // Each operation copies a chain onto its own end, or a map into itself.
        let deep: Vec<_> = (0..30).map(|n| copy("/c", format!("/c{}", "/c".repeat(1 << n.min(12))))).collect();
        let wide: Vec<_> = (0..40).map(|n| copy("/c", format!("/c/{n}"))).collect();
        let list: Vec<_> = (0..40).map(|_| copy("/l", "/l/-".to_owned())).collect();
        let many = vec![json!({"op": "test", "path": "", "value": 1}); OPERATIONS + 1];
        for (about, patch) in [("deep", deep), ("wide", wide), ("list", list), ("many", many)] {
            let document = json!({"c": {"c": {}}, "l": [[], []]});
            let said = apply(document, &Value::Array(patch)).unwrap_err();
            let said = said.trim_start_matches("not a JSON patch: ");
            assert!(said.starts_with("it ") || said.starts_with("there is no"), "{about}: {said}");
        }
        let deep = (0..LEVELS - 2).fold(json!(1), |inner, _| json!([inner]));
        let patch = json!([{"op": "move", "from": "/v", "path": "/a/b/c"}]);
        let said = apply(json!({"v": deep, "a": {"b": {}}}), &patch);
        assert_eq!(said, Err("it is more than 127 levels deep".to_owned()));
        let front = vec![json!({"op": "add", "path": "/l/0", "value": 1}); OPERATIONS];
        let mut budget = Budget::of(RUN);
        let patch = Patch::read(&Value::Array(front).to_string(), &mut budget).unwrap();
        let done = patch.apply(json!({"l": vec![0; 500_000]}), &mut budget);
        assert!(matches!(done, Err(Error::Exceeded(Exceeded::Steps(RUN)))), "{budget:?}");
    }

    #[test]
    fn what_a_patch_makes_can_be_read_again_however_deep_it_is() {
        for (levels, expected) in [(LEVELS - 1, Ok(())), (LEVELS, Err("it is more than 127 levels deep".to_owned()))] {
            let deep = (0..levels).fold(json!(1), |inner, _| json!([inner]));
            let patch = Patch(vec![Operation::Add { path: Path::of(["a"]), value: deep }]);
            let patched = patch.apply(json!({}), &mut Budget::of_run());
            let read = patched.map(|patched| {
                Budget::of_run().read(&patched.to_string()).unwrap();
            });
            assert_eq!(read.map_err(|error| error.to_string()), expected);
        }
    }

    #[test]
    fn a_merge_patch_does_what_the_standard_says() {
        let mut document = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        let patch = json!({"a": {"b": null, "e": {"f": null, "g": 1}}, "d": {"h": 1}});
        merge(&mut document, &patch, &mut Budget::of_run()).unwrap();
        assert_eq!(document, json!({"a": {"c": 2, "e": {"g": 1}}, "d": {"h": 1}}));
    }
}

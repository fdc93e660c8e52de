//! Decides, within bounds, the result of a JSON patch or merge patch, and the patch that leads from one document to
//! another.
//!
//! Like the API server, it bounds how much a patch may copy: a patch of a kilobyte may ask for gigabytes.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::budget::{self, Budget, Exceeded, LEVELS, WEIGHT};

/// The most operations of a patch that is applied here. The API server accepts ten times as many.
pub const OPERATIONS: usize = 1000;

/// The most bytes of memory that the copies of one patch may take.
const COPIES: usize = WEIGHT / 4;

/// A map or list is replaced as a whole if its differences, field by field, take more bytes than this and than its
/// new value.
const LONG: usize = 64 << 10;

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
        few(steps.as_array().map_or(0, Vec::len))?;
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
    pub fn apply(&self, mut document: Value, budget: &mut Budget) -> Result<Value, Error> {
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

// === differences ===

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
    use serde_json::json;

    use super::*;
    use crate::budget::RUN;

    fn apply(document: Value, patch: &Value) -> Result<Value, String> {
        let mut budget = Budget::of_run();
        let patch = Patch::read(&patch.to_string(), &mut budget).map_err(|e| e.to_string())?;
        let done = patch.apply(document, &mut budget);
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

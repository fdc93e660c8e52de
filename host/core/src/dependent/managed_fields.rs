//! Decides whether our share of an object is as we want it, by the fields that the API server has recorded for our field
//! manager (SSA rules).
//!
//! The rule is: prune the object by the recorded fields, and what is left must equal what is wanted. Nothing is pruned
//! here, though: the recorded fields and both trees are walked together, which finds the same differences and copies
//! nothing.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::difference::{Differences, Secrecy, Step};
use super::sanitize::{self, Difference, Extent, Kind, Storage};
use crate::guest::MatchResult;

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a, P> {
    /// The `fieldsV1` document of our share; none if there is no share, which is a difference (`SSA-1`).
    pub fields: Option<&'a str>,
    /// The object as it is.
    pub actual: &'a Value,
    /// The object as it should be.
    pub desired: &'a Value,
    /// Which part of it.
    pub part: Part,
    /// JSON pointers under which differences do not count.
    pub ignore: &'a [P],
}

/// Which part of an object a write concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The object. Its status counts only if our share says that it is no subresource.
    Object,
    /// Its status alone.
    Status,
}

/// Returns whether what we applied is still what we want.
///
/// # Errors
/// If `fields` is no `fieldsV1` document.
///
/// ```
/// # use capstan_core::dependent::managed_fields::{Comparison, Part, compare};
/// # use capstan_core::guest::MatchResult;
/// # use serde_json::json;
/// let (actual, desired) = (json!({"data": {"ours": "a", "theirs": "b"}}), json!({"data": {"ours": "c"}}));
/// let fields = Some(r#"{"f:data":{"f:ours":{}}}"#);
/// let ignore: &[&str] = &[];
/// let verdict = compare(&Comparison { fields, actual: &actual, desired: &desired, part: Part::Object, ignore });
/// assert_eq!(verdict.unwrap(), MatchResult::Differs(r#"/data/ours: found "a", wanted "c""#.to_owned()));
/// ```
pub fn compare<P: AsRef<str>>(comparison: &Comparison<'_, P>) -> Result<MatchResult, serde_json::Error> {
    let Comparison { fields, actual, desired, part, ignore } = *comparison;
    let set: Option<Set<'_>> = fields.map(serde_json::from_str).transpose()?;
    let kind = Kind::of([desired, actual]);
    let secrecy = if kind.is_secret() { Secrecy::Secret } else { Secrecy::Open };
    let mut walk = Walk { kind, differences: Differences::new(secrecy, ignore) };
    match (part, &set) {
        (Part::Object, None) => walk.differences.note("nothing of it has been applied by us yet"),
        (Part::Object, Some(set)) => walk.object(set, actual, desired),
        (Part::Status, set) => walk.status(set.as_ref(), actual, desired),
    }
    Ok(walk.differences.verdict())
}

// === the recorded fields ===

/// A set of fields: a level of a `fieldsV1` document.
#[derive(Debug, Default)]
struct Set<'a> {
    /// Whether the value itself is owned, beside some of its parts: the member `.`.
    itself: bool,
    /// The parts.
    parts: Vec<(Name<'a>, Set<'a>)>,
}

/// What a part is called.
#[derive(Debug)]
enum Name<'a> {
    /// `f:` a field of a map.
    Field(Cow<'a, str>),
    /// `k:` the element of a list that has these key fields, a JSON object.
    Keyed(Cow<'a, str>),
    /// `v:` the element of a list that is this JSON value.
    Member(Cow<'a, str>),
    /// `.` the value itself.
    Itself,
    /// Anything else, such as `i:` (quirk 10: a difference, not an error).
    Unknown,
}

impl Set<'_> {
    /// Whether all of the value is owned.
    fn is_whole(&self) -> bool {
        self.parts.is_empty() && !self.itself
    }

    fn fields(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.parts.iter().filter_map(|(name, set)| match name {
            Name::Field(name) => Some((&**name, set)),
            Name::Keyed(_) | Name::Member(_) | Name::Itself | Name::Unknown => None,
        })
    }

    fn field(&self, wanted: &str) -> Option<&Self> {
        self.fields().find_map(|(name, set)| (name == wanted).then_some(set))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Set<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Level<'a>(std::marker::PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for Level<'a> {
            type Value = Set<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a set of fields")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Set<'a>, A::Error> {
                let mut set = Set::default();
                while let Some(name) = map.next_key()? {
                    let child = map.next_value()?;
                    match name {
                        Name::Itself => set.itself = true,
                        name => set.parts.push((name, child)),
                    }
                }
                Ok(set)
            }
        }

        deserializer.deserialize_map(Level(std::marker::PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Label<'a>(std::marker::PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for Label<'a> {
            type Value = Name<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'a>, E> {
                Ok(Name::new(text, Cow::Borrowed))
            }

            fn visit_str<E>(self, text: &str) -> Result<Name<'a>, E> {
                Ok(Name::new(text, |rest| Cow::Owned(rest.to_owned())))
            }
        }

        deserializer.deserialize_str(Label(std::marker::PhantomData))
    }
}

impl<'a> Name<'a> {
    fn new<'t>(text: &'t str, keep: impl FnOnce(&'t str) -> Cow<'a, str>) -> Self {
        match text.split_at_checked(2) {
            Some(("f:", rest)) => Self::Field(keep(rest)),
            Some(("k:", rest)) => Self::Keyed(keep(rest)),
            Some(("v:", rest)) => Self::Member(keep(rest)),
            None if text == "." => Self::Itself,
            Some(_) | None => Self::Unknown,
        }
    }
}

// === the walk ===

/// A walk through the recorded fields and both trees at once.
struct Walk<'a> {
    kind: Kind<'a>,
    differences: Differences<'a>,
}

impl<'a> Walk<'a> {
    /// Compares an object (`SSA-3` says which of its fields count).
    fn object(&mut self, set: &'a Set<'a>, found: &'a Value, wanted: &'a Value) {
        for (name, owned) in set.fields() {
            self.below(Step::Key(name), |walk| walk.owned(owned, found.get(name), wanted.get(name)));
        }
        for (name, value) in wanted.as_object().into_iter().flatten() {
            let counts = match name.as_str() {
                "apiVersion" | "kind" | "status" => false,
                "metadata" => value.as_object().is_some_and(|fields| fields.keys().any(|name| is_own_metadata(name))),
                _ => !value.is_null(),
            };
            if counts && set.field(name).is_none() {
                self.below(Step::Key(name), |walk| walk.unowned(found.get(name), value));
            }
        }
    }

    /// Compares the status alone. Without a share, no status is as wanted.
    fn status(&mut self, set: Option<&'a Set<'a>>, found: &'a Value, wanted: &'a Value) {
        let (found, wanted) = (found.get("status"), wanted.get("status").filter(|status| !status.is_null()));
        self.below(Step::Key("status"), |walk| match (set.and_then(|set| set.field("status")), wanted) {
            (Some(set), wanted) => walk.owned(set, found, wanted),
            (None, Some(wanted)) => walk.unowned(found, wanted),
            (None, None) => {}
        });
    }

    /// Compares a field that is owned, or some of it (`SSA-2`).
    fn owned(&mut self, set: &'a Set<'a>, found: Option<&'a Value>, wanted: Option<&'a Value>) {
        let Some(wanted) = wanted else {
            // SSA-5: applying gives it up. Even if it is missing already, for the claim on it goes.
            return self.differences.values(found, None);
        };
        if set.is_whole() {
            return self.same(found, Some(wanted), Extent::Field);
        }
        match (set.parts.first(), wanted) {
            (Some((Name::Keyed(_), _)), Value::Array(wanted)) => self.keyed(set, found, wanted),
            (Some((Name::Member(_), _)), Value::Array(wanted)) => self.members(set, found, wanted),
            (Some((Name::Field(_), _)) | None, Value::Object(wanted)) => self.map(set, found, wanted),
            (None, Value::Array(wanted)) if wanted.is_empty() => {}
            (Some((Name::Unknown, _)), _) => self.differences.note("is recorded in a way that is not understood"),
            _ => self.differences.values(found, Some(wanted)),
        }
    }

    /// Compares the owned fields of a map.
    fn map(&mut self, set: &'a Set<'a>, found: Option<&'a Value>, wanted: &'a Map<String, Value>) {
        let found = match found {
            None | Some(Value::Null) => None,
            Some(Value::Object(found)) => Some(found),
            Some(_) => return self.differences.note("is no map"),
        };
        let mut met = 0;
        for (name, owned) in set.fields() {
            let value = wanted.get(name);
            met += usize::from(value.is_some_and(|value| self.counts(name, value)));
            let found = found.and_then(|found| found.get(name));
            self.below(Step::Key(name), |walk| walk.owned(owned, found, value));
        }
        if set.fields().count() < set.parts.len() {
            self.differences.note("is recorded in a way that is not understood");
        }
        let counted = wanted.iter().filter(|(name, value)| self.counts(name, value));
        if met < counted.count() {
            for (name, value) in wanted {
                if self.counts(name, value) && set.field(name).is_none() {
                    let found = found.and_then(|found| found.get(name));
                    self.below(Step::Key(name), |walk| walk.unowned(found, value));
                }
            }
        }
    }

    /// Compares the owned elements of a keyed list, in the order that they have in the actual list.
    fn keyed(&mut self, set: &'a Set<'a>, found: Option<&'a Value>, wanted: &'a [Value]) {
        let found = found.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut placed = Vec::with_capacity(set.parts.len());
        for (name, owned) in &set.parts {
            match place(name, found) {
                Ok(element) => placed.push((element, owned)),
                // Quirk 10: a difference, not an error.
                Err(problem) => return self.differences.note(&problem),
            }
        }
        if placed.len() != wanted.len() {
            let text = format!("{} elements are ours, {} are wanted", placed.len(), wanted.len());
            return self.differences.note(&text);
        }
        placed.sort_unstable_by_key(|((index, _), _)| *index);
        for (position, (((_, found), owned), wanted)) in placed.into_iter().zip(wanted).enumerate() {
            self.below(Step::Index(position), |walk| match wanted {
                Value::Object(wanted) if !owned.is_whole() => walk.map(owned, Some(found), wanted),
                wanted => walk.same(Some(found), Some(wanted), Extent::Within),
            });
        }
    }

    /// Compares the owned members of a set, which has no order.
    fn members(&mut self, set: &'a Set<'a>, found: Option<&'a Value>, wanted: &'a [Value]) {
        let found = found.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (name, _) in &set.parts {
            let Name::Member(text) = name else {
                return self.differences.note("is recorded in a way that is not understood");
            };
            let Ok(member) = serde_json::from_str::<Value>(text) else {
                return self.differences.note("is recorded in a way that is not understood");
            };
            let is_in = |list: &[Value]| list.iter().any(|other| sanitize::same_scalar(other, &member));
            match (is_in(found), is_in(wanted)) {
                (true, true) => {}
                (_, false) => self.differences.values(Some(&member), None),
                (false, true) => self.differences.values(None, Some(&member)),
            }
        }
        if set.parts.len() != wanted.len() {
            let text = format!("{} elements are ours, {} are wanted", set.parts.len(), wanted.len());
            self.differences.note(&text);
        }
    }

    /// Compares what is owned as a whole (`SSA-4`).
    fn same(&mut self, found: Option<&'a Value>, wanted: Option<&'a Value>, extent: Extent) {
        let (found, wanted) = (self.present(found), self.present(wanted));
        match (found, wanted) {
            (Some(Value::Object(a)), Some(Value::Object(b))) if !b.is_empty() || a.is_empty() => self.same_maps(a, b),
            (Some(Value::Array(a)), Some(Value::Array(b))) if a.len() == b.len() => {
                for (index, (a, b)) in a.iter().zip(b).enumerate() {
                    self.below(Step::Index(index), |walk| walk.same(Some(a), Some(b), Extent::Within));
                }
            }
            (Some(a), Some(b)) if sanitize::same_scalar(a, b) => {}
            _ => {
                let difference = Difference { path: self.differences.path(), extent, found, wanted };
                if !sanitize::excused(self.kind, &difference) {
                    self.differences.values(found, wanted);
                }
            }
        }
    }

    fn same_maps(&mut self, found: &'a Map<String, Value>, wanted: &'a Map<String, Value>) {
        let mut met = 0;
        for (name, wanted) in wanted {
            let found = found.get(name);
            met += usize::from(found.is_some());
            self.below(Step::Key(name), |walk| walk.same(found, Some(wanted), Extent::Within));
        }
        if met < found.len() {
            for (name, found) in found {
                if !wanted.contains_key(name) {
                    self.below(Step::Key(name), |walk| walk.same(Some(found), None, Extent::Within));
                }
            }
        }
    }

    /// Notes a value that is wanted but not owned: it has never been applied, or somebody took it over.
    fn unowned(&mut self, found: Option<&Value>, wanted: &Value) {
        match found {
            Some(found) if found == wanted => self.differences.note("is as wanted, but not by us"),
            found => self.differences.values(found, Some(wanted)),
        }
    }

    /// Whether a wanted field has to be owned.
    fn counts(&self, name: &str, value: &Value) -> bool {
        match self.differences.path() {
            [Step::Key("metadata")] => is_own_metadata(name) && !value.is_null(),
            path => !value.is_null() || self.kind.storage_at(path) == Storage::Verbatim,
        }
    }

    /// Returns a value unless it is a null that means nothing.
    fn present<'v>(&self, value: Option<&'v Value>) -> Option<&'v Value> {
        let null = value.is_some_and(Value::is_null);
        value.filter(|_| !null || self.kind.storage_at(self.differences.path()) == Storage::Verbatim)
    }

    fn below(&mut self, step: Step<'a>, compare: impl FnOnce(&mut Self)) {
        self.differences.enter(step);
        compare(self);
        self.differences.leave();
    }
}

/// Whether a field of the metadata can be owned. The others are never recorded, so they never count (`SSA-3`).
fn is_own_metadata(name: &str) -> bool {
    !matches!(
        name,
        "name"
            | "namespace"
            | "creationTimestamp"
            | "deletionTimestamp"
            | "deletionGracePeriodSeconds"
            | "generation"
            | "managedFields"
            | "resourceVersion"
            | "selfLink"
            | "uid"
    )
}

/// Returns the one element of a list that has the key fields of `name`.
fn place<'a>(name: &Name<'_>, list: &'a [Value]) -> Result<(usize, &'a Value), String> {
    let Name::Keyed(text) = name else {
        return Err("is recorded in a way that is not understood".to_owned());
    };
    let Ok(keys) = serde_json::from_str::<Map<String, Value>>(text) else {
        return Err("is recorded in a way that is not understood".to_owned());
    };
    let has_keys = |element: &Value| keys.iter().all(|(name, key)| element.get(name) == Some(key));
    let mut hits = list.iter().enumerate().filter(|(_, element)| has_keys(element));
    match (hits.next(), hits.next()) {
        (Some(hit), None) => Ok(hit),
        (None, _) => Err(format!("the element {text} is missing")),
        (Some(_), Some(_)) => Err(format!("the element {text} is there more than once")),
    }
}

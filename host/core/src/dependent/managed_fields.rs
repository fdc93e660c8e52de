//! Decides whether our share of an object is as we want it, by the fields that the API server has recorded for our
//! field manager (SSA rules).
//!
//! The rule is: reduce the object to the recorded fields, and the rest must equal the desired state. No tree is
//! reduced here, though: the recorded fields and both trees are walked together, which finds the same differences
//! without a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::defaults::{self, Difference, Extent, Kind, Storage};
use super::difference::{Differences, Secrecy, Step, Stop, Walked};
use crate::budget::{Budget, OPERATION};
use crate::guest::MatchResult;

mod beside;
mod owner;
mod set;

pub use beside::is_our_change;
pub use owner::owners;
use set::{NOTHING, Name, Set};

/// The arguments of [`compare`].
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a, P> {
    /// The `fieldsV1` document of our share; `None` if there is no share, which is a difference (`SSA-1`).
    pub fields: Option<&'a str>,
    /// The object as it is.
    pub actual: &'a Value,
    /// The object as it should be.
    pub desired: &'a Value,
    /// The part of the object that is compared.
    pub part: Part,
    /// JSON pointers under which differences do not count.
    pub ignore: &'a [P],
}

/// The part of an object that a write concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The object. Its status counts only if our share contains it, so that it is not a subresource.
    Object,
    /// Its status alone.
    Status,
}

/// Returns whether the fields that we have applied are still as we want them.
///
/// # Errors
/// If `fields` is not a `fieldsV1` document.
///
/// ```
/// # use capstan_core::budget::Budget;
/// # use capstan_core::dependent::managed_fields::{Comparison, Part, compare};
/// # use capstan_core::guest::MatchResult;
/// # use serde_json::json;
/// let (actual, desired) = (json!({"data": {"ours": "a", "theirs": "b"}}), json!({"data": {"ours": "c"}}));
/// let fields = Some(r#"{"f:data":{"f:ours":{}}}"#);
/// let ignore: &[&str] = &[];
/// let comparison = Comparison { fields, actual: &actual, desired: &desired, part: Part::Object, ignore };
/// let verdict = compare(&comparison, &mut Budget::of_run());
/// assert_eq!(verdict.unwrap(), MatchResult::Differs(r#"/data/ours: found "a", wanted "c""#.to_owned()));
/// ```
pub fn compare<P: AsRef<str>>(
    comparison: &Comparison<'_, P>,
    budget: &mut Budget,
) -> Result<MatchResult, serde_json::Error> {
    let Comparison { fields, actual, desired, part, ignore } = *comparison;
    let set = fields.map(Set::read).transpose()?;
    let kind = Kind::of([desired, actual]);
    let secrecy = if kind.is_secret() { Secrecy::Secret } else { Secrecy::Open };
    Ok(budget.within(OPERATION, |budget| {
        let mut walk = Walk { kind, differences: Differences::new(secrecy, ignore, budget) };
        let walked = walk.differences.pay(fields.map_or(0, str::len)).and_then(|()| match (part, &set) {
            (Part::Object, None) => walk.differences.note("nothing of it has been applied by us yet"),
            (Part::Object, Some(set)) => walk.object(set, actual, desired),
            (Part::Status, set) => walk.status(set.as_ref(), actual, desired),
        });
        walk.differences.verdict(walked)
    }))
}

// === the recorded fields ===

// === the walk ===

/// A walk through the recorded fields and both trees at once.
struct Walk<'a, 'b> {
    kind: Kind<'a>,
    differences: Differences<'a, 'b>,
}

impl<'a> Walk<'a, '_> {
    /// Compares an object. Of its metadata, only fields that can be owned count (`SSA-3`).
    fn object(&mut self, set: &'a Set<'a>, found: &'a Value, wanted: &'a Value) -> Walked {
        for (name, owned) in set.fields() {
            self.below(Step::Key(name), |walk| walk.owned(owned, found.get(name), wanted.get(name)))?;
        }
        for (name, value) in wanted.as_object().into_iter().flatten().filter(|(name, _)| set.field(name).is_none()) {
            self.below(Step::Key(name), |walk| match (name.as_str(), value) {
                ("apiVersion" | "kind" | "status", _) | (_, Value::Null) => Ok(()),
                ("metadata", Value::Object(wanted)) => walk.map(NOTHING, found.get(name), wanted),
                _ => walk.unowned(found.get(name), value),
            })?;
        }
        Ok(())
    }

    /// Compares the status alone. Without a share, the status matches only if none is wanted.
    fn status(&mut self, set: Option<&'a Set<'a>>, found: &'a Value, wanted: &'a Value) -> Walked {
        let (found, wanted) = (found.get("status"), wanted.get("status").filter(|status| !status.is_null()));
        self.below(Step::Key("status"), |walk| match (set.and_then(|set| set.field("status")), wanted) {
            (Some(set), wanted) => walk.owned(set, found, wanted),
            (None, Some(wanted)) => walk.unowned(found, wanted),
            (None, None) => Ok(()),
        })
    }

    /// Compares a field that is owned, as a whole or in part (`SSA-2`).
    fn owned(&mut self, set: &'a Set<'a>, found: Option<&'a Value>, wanted: Option<&'a Value>) -> Walked {
        let Some(wanted) = wanted else {
            // SSA-5: an apply gives the field up. This holds even if the field is missing already, because the entry
            // for it is removed.
            return self.differences.values(found, None);
        };
        if set.is_whole() {
            return self.same(found, Some(wanted), Extent::Field);
        }
        match (set.parts.first(), wanted) {
            (Some((Name::Keyed(_), _)), Value::Array(wanted)) => self.keyed(set, found, wanted),
            (Some((Name::Member(_), _)), Value::Array(wanted)) => self.members(set, found, wanted),
            (Some((Name::Field(_), _)) | None, Value::Object(wanted)) => self.map(set, found, wanted),
            (None, Value::Array(wanted)) if wanted.is_empty() => Ok(()),
            (Some((Name::Unknown, _)), _) => self.differences.note("is recorded in a way that is not understood"),
            _ => self.differences.values(found, Some(wanted)),
        }
    }

    /// Compares the owned fields of a map.
    fn map(&mut self, set: &'a Set<'a>, found: Option<&'a Value>, wanted: &'a Map<String, Value>) -> Walked {
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
            self.below(Step::Key(name), |walk| walk.owned(owned, found, value))?;
        }
        if set.fields().count() < set.parts.len() {
            self.differences.note("is recorded in a way that is not understood")?;
        }
        let counted = wanted.iter().filter(|(name, value)| self.counts(name, value));
        if met < counted.count() {
            for (name, value) in wanted {
                if self.counts(name, value) && set.field(name).is_none() {
                    let found = found.and_then(|found| found.get(name));
                    self.below(Step::Key(name), |walk| walk.unowned(found, value))?;
                }
            }
        }
        Ok(())
    }

    /// Compares the owned elements of a keyed list, in the order that they have in the actual list.
    fn keyed(&mut self, set: &'a Set<'a>, found: Option<&'a Value>, wanted: &'a [Value]) -> Walked {
        let found = found.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut placed = Vec::with_capacity(set.parts.len());
        let mut places = Places::default();
        for (name, owned) in &set.parts {
            match places.of(name, found, &mut self.differences)? {
                Ok(element) => placed.push((element, owned)),
                // SSA-2: a difference, not an error.
                Err(problem) => return self.differences.note(&problem),
            }
        }
        if placed.len() != wanted.len() {
            let text = format!("{} of its elements are ours, wanted: {}", placed.len(), wanted.len());
            return self.differences.note(&text);
        }
        placed.sort_unstable_by_key(|((index, _), _)| *index);
        for (position, (((_, found), owned), wanted)) in placed.into_iter().zip(wanted).enumerate() {
            self.below(Step::Index(position), |walk| match wanted.as_object() {
                Some(wanted) if !owned.is_whole() => walk.map(owned, Some(found), wanted),
                Some(_) | None => walk.same(Some(found), Some(wanted), Extent::Within),
            })?;
        }
        Ok(())
    }

    /// Compares the owned members of a set, which has no order.
    fn members(&mut self, set: &'a Set<'a>, found: Option<&'a Value>, wanted: &'a [Value]) -> Walked {
        let found = found.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        self.differences.pay(found.len() + wanted.len() + set.parts.len())?;
        let (there, asked) = (Members::of(found), Members::of(wanted));
        for (name, _) in &set.parts {
            let Name::Member(text) = name else {
                return self.differences.note("is recorded in a way that is not understood");
            };
            let Ok(member) = self.differences.read(text) else {
                return self.differences.note("is recorded in a way that is not understood");
            };
            match (there.contains(&member), asked.contains(&member)) {
                (true, true) => {}
                (_, false) => self.differences.values(Some(&member), None)?,
                (false, true) => self.differences.values(None, Some(&member))?,
            }
        }
        if set.parts.len() != wanted.len() {
            let text = format!("{} of its elements are ours, wanted: {}", set.parts.len(), wanted.len());
            self.differences.note(&text)?;
        }
        Ok(())
    }

    /// Compares a value that is owned as a whole (`SSA-4`).
    fn same(&mut self, found: Option<&'a Value>, wanted: Option<&'a Value>, extent: Extent) -> Walked {
        let (found, wanted) = (self.present(found), self.present(wanted));
        match (found, wanted) {
            (Some(Value::Object(a)), Some(Value::Object(b))) if !b.is_empty() || a.is_empty() => self.same_maps(a, b),
            (Some(Value::Array(a)), Some(Value::Array(b))) if a.len() == b.len() => {
                for (index, (a, b)) in a.iter().zip(b).enumerate() {
                    self.below(Step::Index(index), |walk| walk.same(Some(a), Some(b), Extent::Within))?;
                }
                Ok(())
            }
            (Some(a), Some(b)) if defaults::same_scalar(a, b) => Ok(()),
            _ => {
                let difference = Difference { path: self.differences.path(), extent, found, wanted };
                if defaults::excused(self.kind, &difference) {
                    return Ok(());
                }
                self.differences.values(found, wanted)
            }
        }
    }

    fn same_maps(&mut self, found: &'a Map<String, Value>, wanted: &'a Map<String, Value>) -> Walked {
        let mut met = 0;
        for (name, wanted) in wanted {
            let found = found.get(name);
            met += usize::from(found.is_some());
            self.below(Step::Key(name), |walk| walk.same(found, Some(wanted), Extent::Within))?;
        }
        if met < found.len() {
            for (name, found) in found {
                if !wanted.contains_key(name) {
                    self.below(Step::Key(name), |walk| walk.same(Some(found), None, Extent::Within))?;
                }
            }
        }
        Ok(())
    }

    /// Adds the difference of a value that is wanted but not owned: it has never been applied, or another manager has
    /// taken it over.
    fn unowned(&mut self, found: Option<&Value>, wanted: &Value) -> Walked {
        match found {
            Some(found) if found == wanted => self.differences.note("is as wanted, but not by us"),
            found => self.differences.values(found, Some(wanted)),
        }
    }

    /// Returns true if a wanted field has to be owned.
    fn counts(&self, name: &str, value: &Value) -> bool {
        match self.differences.path() {
            [Step::Key("metadata")] => is_own_metadata(name) && !value.is_null(),
            path => !value.is_null() || self.kind.storage_at(path) == Storage::Verbatim,
        }
    }

    /// Returns a value unless it is a null that counts as missing.
    fn present<'v>(&self, value: Option<&'v Value>) -> Option<&'v Value> {
        let null = value.is_some_and(Value::is_null);
        value.filter(|_| !null || self.kind.storage_at(self.differences.path()) == Storage::Verbatim)
    }

    fn below(&mut self, step: Step<'a>, compare: impl FnOnce(&mut Self) -> Walked) -> Walked {
        self.differences.enter(step)?;
        let walked = compare(self);
        self.differences.leave();
        walked
    }
}

/// Returns true if a field of the metadata can be owned. The other fields are never recorded, so they never count
/// (`SSA-3`).
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

/// The positions of the elements of a list, by the values of their key fields: made once for each choice of key
/// fields.
#[derive(Default)]
struct Places(BTreeMap<Vec<String>, BTreeMap<String, Spot>>);

/// The position of an element.
#[derive(Clone, Copy)]
enum Spot {
    Once(usize),
    Several,
}

impl Places {
    /// Returns the one element that has the key fields of `name`, with its position; or the text of the difference.
    fn of<'v>(
        &mut self,
        name: &Name<'_>,
        list: &'v [Value],
        differences: &mut Differences<'_, '_>,
    ) -> Result<Result<(usize, &'v Value), String>, Stop> {
        let unknown = || Ok(Err("is recorded in a way that is not understood".to_owned()));
        let Name::Keyed(text) = name else {
            return unknown();
        };
        let Ok(Value::Object(keys)) = differences.read(text) else {
            return unknown();
        };
        let names: Vec<_> = keys.keys().cloned().collect();
        if !self.0.contains_key(&names) {
            differences.pay(list.len().saturating_mul(1 + names.len()))?;
        }
        let spots = self.0.entry(names).or_insert_with_key(|names| spots(list, names));
        let values: Vec<_> = keys.values().collect();
        Ok(match spots.get(&Self::key(&values)) {
            Some(Spot::Once(index)) => list
                .get(*index)
                .map(|element| (*index, element))
                .ok_or_else(|| format!("the element {text} is missing")),
            None => Err(format!("the element {text} is missing")),
            Some(Spot::Several) => Err(format!("the element {text} is there more than once")),
        })
    }

    fn key(values: &[&Value]) -> String {
        let mut key = String::new();
        for value in values {
            // JSON has no raw line breaks, so different values never give the same key.
            let _infallible = writeln!(key, "{value}");
        }
        key
    }
}

/// Returns the positions of the elements that have all of these fields.
fn spots(list: &[Value], names: &[String]) -> BTreeMap<String, Spot> {
    let mut spots = BTreeMap::new();
    for (index, element) in list.iter().enumerate() {
        let values: Option<Vec<_>> = names.iter().map(|name| element.get(name)).collect();
        if let Some(values) = values {
            spots.entry(Places::key(&values)).and_modify(|spot| *spot = Spot::Several).or_insert(Spot::Once(index));
        }
    }
    spots
}

/// The scalars of a list, to be looked up as [`defaults::same_scalar`] compares them.
#[derive(Default)]
struct Members {
    exact: BTreeSet<String>,
    /// All numbers, as bits of a float.
    numbers: BTreeSet<u64>,
    /// The numbers that are written as floats.
    floats: BTreeSet<u64>,
}

impl Members {
    fn of(list: &[Value]) -> Self {
        let mut members = Self::default();
        for value in list {
            members.exact.insert(value.to_string());
            if let Some((bits, float)) = bits(value) {
                members.numbers.insert(bits);
                if float {
                    members.floats.insert(bits);
                }
            }
        }
        members
    }

    fn contains(&self, value: &Value) -> bool {
        let like = || match bits(value) {
            Some((bits, true)) => self.numbers.contains(&bits),
            Some((bits, false)) => self.floats.contains(&bits),
            None => false,
        };
        self.exact.contains(&value.to_string()) || like()
    }
}

/// Returns a number as the bits of a float, and whether it is written as one.
fn bits(value: &Value) -> Option<(u64, bool)> {
    let Value::Number(number) = value else {
        return None;
    };
    // 0.0 and -0.0 are the same number.
    Some(((number.as_f64()? + 0.0).to_bits(), number.is_f64()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the differences, or `None`.
    fn differences(
        fields: Option<&Value>,
        actual: &Value,
        desired: &Value,
        part: Part,
        ignore: &[&str],
    ) -> Option<String> {
        let fields = fields.map(Value::to_string);
        let comparison = Comparison { fields: fields.as_deref(), actual, desired, part, ignore };
        match compare(&comparison, &mut Budget::of_run()).unwrap() {
            MatchResult::Matches => None,
            MatchResult::Differs(text) => Some(text),
        }
    }

    /// Checks rows: a name, the recorded fields of `spec`, the actual and the wanted `spec`, the expected
    /// differences.
    fn check(api_version: &str, rows: &[(&str, Value, Value, Value, Option<&str>)]) {
        for (about, fields, actual, desired, expected) in rows {
            let object = |spec: &Value| json!({"apiVersion": api_version, "kind": "Thing", "metadata": {"name": "a"}, "spec": spec});
            let fields = json!({"f:spec": fields});
            let found = differences(Some(&fields), &object(actual), &object(desired), Part::Object, &[]);
            assert_eq!(found.as_deref(), *expected, "{about}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn a_map_is_compared_field_by_field_where_it_is_recorded_so() {
        // SSA-2, SSA-5
        let fields = json!({"f:a": {}, "f:b": {".": {}, "f:c": {}}});
        let wanted = json!({"a": 1, "b": {"c": "x"}});
        check(
            "sample.dev/v1",
            &[
                ("equal", fields.clone(), wanted.clone(), wanted.clone(), None),
                ("of others", fields.clone(), json!({"a": 1, "b": {"c": "x", "d": 1}, "e": 2}), wanted.clone(), None),
                ("a value", fields.clone(), json!({"a": 2, "b": {"c": "x"}}), wanted.clone(), Some("/spec/a: found 2, wanted 1")),
                ("missing", fields.clone(), json!({"a": 1}), wanted.clone(), Some("/spec/b/c: found nothing, wanted \"x\"")),
                ("no map", fields.clone(), json!({"a": 1, "b": 5}), wanted.clone(), Some("/spec/b: is no map")),
                ("given up", fields.clone(), wanted.clone(), json!({"b": {"c": "x"}}), Some("/spec/a: found 1, no longer wanted")),
                ("given up and gone", fields.clone(), json!({"b": {"c": "x"}}), json!({"b": {"c": "x"}}), Some("/spec/a: found nothing, no longer wanted")),
                ("all given up", fields.clone(), wanted.clone(), json!({}), Some("/spec/a: found 1, no longer wanted; /spec/b: found {\"c\":\"x\"}, no longer wanted")),
                ("new", fields.clone(), wanted.clone(), json!({"a": 1, "b": {"c": "x", "d": 1}}), Some("/spec/b/d: found nothing, wanted 1")),
                ("taken over", json!({"f:b": {"f:c": {}}}), wanted.clone(), wanted.clone(), Some("/spec/a: is as wanted, but not by us")),
                ("the map itself", json!({"f:b": {".": {}}}), json!({"b": {"theirs": 1}}), json!({"b": {}}), None),
                ("another type", fields.clone(), wanted.clone(), json!({"a": 1, "b": [1]}), Some("/spec/b: found {\"c\":\"x\"}, wanted [1]")),
                ("null where it is no value", json!({"f:a": {}}), json!({}), json!({"a": null}), None),
                ("null that is a value", json!({"f:a": {}}), json!({"a": 1}), json!({"a": null}), Some("/spec/a: found 1, wanted null")),
                ("a null not applied yet", json!({"f:a": {}}), json!({"a": 1}), json!({"a": 1, "b": null}), Some("/spec/b: found nothing, wanted null")),
                ("numbers as numbers", json!({"f:a": {}}), json!({"a": 1}), json!({"a": 1.0}), None),
            ],
        );
    }

    #[test]
    #[rustfmt::skip]
    fn what_is_owned_as_a_whole_must_be_equal() {
        // SSA-2: a field without parts; SSA-4
        let fields = json!({"f:a": {}});
        check(
            "sample.dev/v1",
            &[
                ("equal", fields.clone(), json!({"a": {"x": [1, {"y": 2}]}}), json!({"a": {"x": [1, {"y": 2}]}}), None),
                ("more", fields.clone(), json!({"a": {"x": 1, "y": 2}}), json!({"a": {"x": 1}}), Some("/spec/a/y: found 2, no longer wanted")),
                ("less", fields.clone(), json!({"a": {"x": 1}}), json!({"a": {"x": 1, "y": 2}}), Some("/spec/a/y: found nothing, wanted 2")),
                ("an order", fields.clone(), json!({"a": [1, 2]}), json!({"a": [2, 1]}), Some("/spec/a/0: found 1, wanted 2; /spec/a/1: found 2, wanted 1")),
                ("a length", fields.clone(), json!({"a": [1, 2]}), json!({"a": [1]}), Some("/spec/a: found [1,2], wanted [1]")),
                ("nothing wanted inside", fields.clone(), json!({"a": {"x": 1}}), json!({"a": {}}), Some("/spec/a: found {\"x\":1}, wanted {}")),
                ("a null inside", fields.clone(), json!({"a": {"x": null}}), json!({"a": {}}), Some("/spec/a: found {\"x\":null}, wanted {}")),
                ("a zero is not nothing", fields.clone(), json!({}), json!({"a": false}), Some("/spec/a: found nothing, wanted false")),
            ],
        );
        let whole = |actual: &Value, desired: &Value| {
            let object = |spec: &Value| json!({"apiVersion": "v1", "spec": spec});
            differences(
                Some(&json!({"f:spec": {}})),
                &object(actual),
                &object(desired),
                Part::Object,
                &[],
            )
        };
        assert_eq!(
            whole(&json!({"a": 1}), &json!({"a": 1})),
            None,
            "an empty set is the whole value"
        );
    }

    #[test]
    #[rustfmt::skip]
    fn elements_of_a_keyed_list_are_found_by_their_keys() {
        // SSA-2: by their keys; one that is missing or there twice is a difference
        let one = json!({"f:list": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:x": {}}, "k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}});
        let wanted = json!({"list": [{"name": "a", "x": 1}, {"name": "b"}]});
        let two =
            json!({"f:list": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}});
        let whole = json!({"f:list": {"k:{\"uid\":\"1\"}": {}}});
        check(
            "sample.dev/v1",
            &[
                ("equal", one.clone(), wanted.clone(), wanted.clone(), None),
                ("others between", one.clone(), json!({"list": [{"name": "c"}, {"name": "a", "x": 1, "y": 2}, {"name": "d"}, {"name": "b"}]}), wanted.clone(), None),
                ("the order of the actual list", one.clone(), json!({"list": [{"name": "b"}, {"name": "a", "x": 1}]}), json!({"list": [{"name": "b"}, {"name": "a", "x": 1}]}), None),
                ("another order", one.clone(), json!({"list": [{"name": "b"}, {"name": "a", "x": 1}]}), wanted.clone(), Some("/spec/list/0/name: found \"b\", wanted \"a\"; /spec/list/0/x: found nothing, wanted 1; /spec/list/1/name: found \"a\", wanted \"b\"; and 1 more")),
                ("an element of ours missing", one.clone(), json!({"list": [{"name": "b"}]}), wanted.clone(), Some("/spec/list: the element {\"name\":\"a\"} is missing")),
                ("twice", one.clone(), json!({"list": [{"name": "a"}, {"name": "a"}, {"name": "b"}]}), wanted.clone(), Some("/spec/list: the element {\"name\":\"a\"} is there more than once")),
                ("no list", one.clone(), json!({}), wanted.clone(), Some("/spec/list: the element {\"name\":\"a\"} is missing")),
                ("one more wanted", one.clone(), wanted.clone(), json!({"list": [{"name": "a", "x": 1}, {"name": "b"}, {"name": "c"}]}), Some("/spec/list: 2 of its elements are ours, wanted: 3")),
                ("one less wanted", one.clone(), wanted.clone(), json!({"list": [{"name": "b"}]}), Some("/spec/list: 2 of its elements are ours, wanted: 1")),
                ("no list wanted", one.clone(), wanted.clone(), json!({"list": {}}), Some("/spec/list: found [{\"name\":\"a\",\"x\":1},{\"name\":\"b\"}], wanted {}")),
                ("two keys, one of them a default", two.clone(), json!({"list": [{"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP"}]}), json!({"list": [{"port": 80}]}), None),
                ("two keys, one wrong", two.clone(), json!({"list": [{"port": 80, "protocol": "UDP"}]}), json!({"list": [{"port": 80}]}), Some("/spec/list: the element {\"port\":80,\"protocol\":\"TCP\"} is missing")),
                ("an element as a whole", whole.clone(), json!({"list": [{"uid": "2"}, {"uid": "1", "x": 1}]}), json!({"list": [{"uid": "1", "x": 1}]}), None),
                ("an element as a whole, changed", whole.clone(), json!({"list": [{"uid": "1", "x": 1}]}), json!({"list": [{"uid": "1"}]}), Some("/spec/list/0/x: found 1, no longer wanted")),
            ],
        );
    }

    #[test]
    #[rustfmt::skip]
    fn members_of_a_set_have_no_order() {
        // SSA-2: by their values
        let fields = json!({"f:set": {"v:\"a\"": {}, "v:\"b\"": {}}});
        let maps = json!({"f:set": {"v:{\"x\":1}": {}}});
        check(
            "sample.dev/v1",
            &[
                ("equal", fields.clone(), json!({"set": ["b", "theirs", "a"]}), json!({"set": ["b", "a"]}), None),
                ("numbers", json!({"f:set": {"v:1": {}}}), json!({"set": [1, 2]}), json!({"set": [1]}), None),
                ("maps", maps.clone(), json!({"set": [{"x": 1}, {"x": 2}]}), json!({"set": [{"x": 1}]}), None),
                ("maps that differ", maps.clone(), json!({"set": [{"x": 1}]}), json!({"set": [{"x": 2}]}), Some("/spec/set: found {\"x\":1}, no longer wanted")),
                ("a member gone", fields.clone(), json!({"set": ["a"]}), json!({"set": ["a", "b"]}), Some("/spec/set: found nothing, wanted \"b\"")),
                ("no list", fields.clone(), json!({}), json!({"set": ["a", "b"]}), Some("/spec/set: found nothing, wanted \"a\"; /spec/set: found nothing, wanted \"b\"")),
                ("one more wanted", fields.clone(), json!({"set": ["a", "b"]}), json!({"set": ["a", "b", "c"]}), Some("/spec/set: 2 of its elements are ours, wanted: 3")),
                ("one less wanted", fields.clone(), json!({"set": ["a", "b"]}), json!({"set": ["a"]}), Some("/spec/set: found \"b\", no longer wanted; /spec/set: 2 of its elements are ours, wanted: 1")),
                ("none of it ours", json!({"f:set": {".": {}}}), json!({"set": ["theirs"]}), json!({"set": []}), None),
                ("none of it ours, one wanted", json!({"f:set": {".": {}}}), json!({"set": ["a"]}), json!({"set": ["a"]}), Some("/spec/set: found [\"a\"], wanted [\"a\"]")),
            ],
        );
    }

    #[test]
    fn what_is_recorded_in_an_unknown_way_is_a_difference() {
        // SSA-2: and no error
        let text = Some("/spec/list: is recorded in a way that is not understood");
        let list = json!({"list": [1]});
        for fields in [json!({"i:0": {}}), json!({"x": {}}), json!({"v:{": {}}), json!({"k:{": {}})] {
            check("sample.dev/v1", &[("", json!({"f:list": fields}), list.clone(), list.clone(), text)]);
        }
        let map = json!({"list": {"a": 1}});
        check("sample.dev/v1", &[("", json!({"f:list": {"f:a": {}, "i:0": {}}}), map.clone(), map, text)]);
        let ignore: &[&str] = &[];
        let (actual, desired) = (json!({}), json!({}));
        for fields in ["", "[]", "{\"f:a\": 1}"] {
            let comparison =
                Comparison { fields: Some(fields), actual: &actual, desired: &desired, part: Part::Object, ignore };
            assert!(compare(&comparison, &mut Budget::of_run()).is_err(), "{fields}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn a_built_in_kind_drops_zeros_and_spells_quantities_its_own_way() {
        // SN-2 and beyond
        let container = |fields: Value| json!({"f:containers": {"k:{\"name\":\"c\"}": fields}});
        let env = container(
            json!({".": {}, "f:name": {}, "f:env": {"k:{\"name\":\"E\"}": {".": {}, "f:name": {}, "f:value": {}}}}),
        );
        let resources =
            container(json!({".": {}, "f:name": {}, "f:resources": {"f:limits": {"f:cpu": {}}}}));
        let with_env = |env: Value| json!({"containers": [{"name": "c", "env": [env]}]});
        let with_cpu = |cpu: Value| json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": cpu}}}]});
        check(
            "apps/v1",
            &[
                ("an empty variable", env.clone(), with_env(json!({"name": "E"})), with_env(json!({"name": "E", "value": ""})), None),
                ("a null variable", env.clone(), with_env(json!({"name": "E"})), with_env(json!({"name": "E", "value": null})), None),
                ("a variable gone", env.clone(), with_env(json!({"name": "E"})), with_env(json!({"name": "E", "value": "x"})), Some("/spec/containers/0/env/0/value: found nothing, wanted \"x\"")),
                ("a variable to empty", env.clone(), with_env(json!({"name": "E", "value": "x"})), with_env(json!({"name": "E", "value": ""})), Some("/spec/containers/0/env/0/value: found \"x\", wanted \"\"")),
                ("a variable is no quantity", env.clone(), with_env(json!({"name": "E", "value": "1"})), with_env(json!({"name": "E", "value": "1000m"})), Some("/spec/containers/0/env/0/value: found \"1\", wanted \"1000m\"")),
                ("a limit", resources.clone(), with_cpu(json!("1")), with_cpu(json!("1000m")), None),
                ("a limit as a number", resources.clone(), with_cpu(json!("500m")), with_cpu(json!(0.5)), None),
                ("another limit", resources.clone(), with_cpu(json!("1")), with_cpu(json!("1001m")), Some("/spec/containers/0/resources/limits/cpu: found \"1\", wanted \"1001m\"")),
                ("false", json!({"f:paused": {}}), json!({}), json!({"paused": false}), None),
                ("true", json!({"f:paused": {}}), json!({}), json!({"paused": true}), Some("/spec/paused: found nothing, wanted true")),
                ("zero within an atomic value", json!({"f:tolerations": {}}), json!({"tolerations": [{"key": "k"}]}), json!({"tolerations": [{"key": "k", "tolerationSeconds": 0}]}), Some("/spec/tolerations/0/tolerationSeconds: found nothing, wanted 0")),
                ("an empty text within an atomic value", json!({"f:tolerations": {}}), json!({"tolerations": [{"operator": "Exists"}]}), json!({"tolerations": [{"key": "", "operator": "Exists"}]}), None),
                ("a default within an atomic value", json!({"f:ingress": {}}), json!({"ingress": [{"ports": [{"protocol": "TCP", "port": 80}]}]}), json!({"ingress": [{"ports": [{"port": 80}]}]}), None),
                ("no default within an atomic value", json!({"f:ingress": {}}), json!({"ingress": [{"ports": [{"protocol": "UDP", "port": 80}]}]}), json!({"ingress": [{"ports": [{"port": 80}]}]}), Some("/spec/ingress/0/ports/0/protocol: found \"UDP\", no longer wanted")),
                ("an empty struct that is merged", json!({"f:strategy": {}}), json!({"strategy": {"type": "Recreate"}}), json!({"strategy": {}}), None),
                ("an empty map that is not", json!({"f:nodeSelector": {}}), json!({"nodeSelector": {"a": "b"}}), json!({"nodeSelector": {}}), Some("/spec/nodeSelector: found {\"a\":\"b\"}, wanted {}")),
            ],
        );
    }

    #[test]
    fn claim_templates_of_a_stateful_set_are_compared_without_defaults() {
        // SN-1
        let fields = json!({"f:spec": {"f:volumeClaimTemplates": {}}});
        let object = |kind: &str, template: Value| json!({"apiVersion": "apps/v1", "kind": kind, "spec": {"volumeClaimTemplates": [template]}});
        let wanted = json!({"metadata": {"name": "d"}, "spec": {"resources": {"requests": {"storage": "1024Mi"}}}});
        let found = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "d", "creationTimestamp": null},
            "spec": {"resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem"}, "status": {"phase": "Pending"}});
        let differ = |kind: &str, wanted: Value| {
            differences(Some(&fields), &object(kind, found.clone()), &object(kind, wanted), Part::Object, &[])
        };
        assert_eq!(differ("StatefulSet", wanted.clone()), None);
        assert!(differ("Other", wanted.clone()).is_some());
        let mut block = wanted;
        block["spec"]["volumeMode"] = json!("Block");
        let text = "/spec/volumeClaimTemplates/0/spec/volumeMode: found \"Filesystem\", wanted \"Block\"";
        assert_eq!(differ("StatefulSet", block).as_deref(), Some(text));
    }

    #[test]
    fn metadata_counts_only_where_it_can_be_owned() {
        // SSA-3
        let fields = json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:data": {"f:x": {}}});
        let actual = json!({"metadata": {"name": "n", "uid": "1", "labels": {"a": "b", "c": "d"}}, "data": {"x": "1"}});
        let desired = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "1"}, "status": {}, "metadata": {
            "name": "n", "namespace": "default", "creationTimestamp": null, "deletionTimestamp": "x", "generation": 5,
            "selfLink": "x", "uid": "2", "resourceVersion": "1", "labels": {"a": "b"}}});
        assert_eq!(differences(Some(&fields), &actual, &desired, Part::Object, &[]), None);
        let mut more = desired.clone();
        more["metadata"]["annotations"] = json!({"k": "v"});
        let text = "/metadata/annotations: found nothing, wanted {\"k\":\"v\"}";
        assert_eq!(differences(Some(&fields), &actual, &more, Part::Object, &[]).as_deref(), Some(text));
        let bare = json!({"f:data": {"f:x": {}}});
        let named = json!({"data": {"x": "1"}, "metadata": {"name": "n"}});
        assert_eq!(differences(Some(&bare), &actual, &named, Part::Object, &[]), None);
        let labelled = json!({"data": {"x": "1"}, "metadata": {"labels": {"a": "b"}, "name": "n"}});
        let text = "/metadata/labels: found {\"a\":\"b\",\"c\":\"d\"}, wanted {\"a\":\"b\"}";
        assert_eq!(differences(Some(&bare), &actual, &labelled, Part::Object, &[]).as_deref(), Some(text));
    }

    #[test]
    #[rustfmt::skip]
    fn without_a_share_nothing_matches_but_no_status() {
        // SSA-1
        let thing = |status: Value| json!({"apiVersion": "sample.dev/v1", "kind": "Thing", "status": status});
        let text = "the object: nothing of it has been applied by us yet";
        assert_eq!(
            differences(None, &thing(json!({})), &json!({}), Part::Object, &[]).as_deref(),
            Some(text)
        );
        for (found, wanted, text) in [
            (json!({"x": 1}), json!({"x": 1}), Some("/status: is as wanted, but not by us")),
            (json!(null), json!({"x": 1}), Some("/status: found null, wanted {\"x\":1}")),
            (json!({"x": 1}), json!(null), None),
        ] {
            assert_eq!(
                differences(None, &thing(found), &thing(wanted), Part::Status, &[]).as_deref(),
                text
            );
        }
    }

    #[test]
    #[rustfmt::skip]
    fn a_status_is_compared_by_our_share_of_it() {
        let fields = json!({"f:status": {"f:x": {}, "f:conditions": {}}});
        let thing = |status: Value| json!({"apiVersion": "sample.dev/v1", "kind": "Thing", "spec": {"ignored": status.clone()}, "status": status});
        for (found, wanted, text) in [
            (json!({"x": 1, "conditions": [], "theirs": 2}), json!({"x": 1, "conditions": []}), None),
            (json!({"x": 1, "conditions": []}), json!({"x": 2, "conditions": []}), Some("/status/x: found 1, wanted 2")),
            (json!({"x": 1, "conditions": []}), json!({"conditions": []}), Some("/status/x: found 1, no longer wanted")),
            (json!({"x": 1, "conditions": []}), json!({"x": 1, "conditions": [], "y": 1}), Some("/status/y: found nothing, wanted 1")),
            (json!({"x": 1}), json!(null), Some("/status: found {\"x\":1}, no longer wanted")),
        ] {
            assert_eq!(
                differences(
                    Some(&fields),
                    &thing(found),
                    &thing(wanted),
                    Part::Status,
                    &[]
                )
                .as_deref(),
                text
            );
        }
    }

    #[test]
    fn ignored_differences_do_not_count() {
        let fields = json!({"f:spec": {"f:replicas": {}, "f:image": {}}});
        let (actual, desired) =
            (json!({"spec": {"replicas": 5, "image": "a"}}), json!({"spec": {"replicas": 2, "image": "b"}}));
        let found = differences(Some(&fields), &actual, &desired, Part::Object, &["/spec/replicas"]);
        assert_eq!(found.as_deref(), Some("/spec/image: found \"a\", wanted \"b\""));
        assert_eq!(differences(Some(&fields), &actual, &desired, Part::Object, &["/spec"]), None);
    }

    #[test]
    fn contents_of_a_secret_are_not_told() {
        // SSA-7
        let fields = json!({"f:data": {"f:password": {}}, "f:stringData": {"f:user": {}}});
        let secret = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "data": data});
        let found = differences(
            Some(&fields),
            &secret(json!({"password": "b2xk"})),
            &secret(json!({"password": "bmV3", "more": "c2VjcmV0"})),
            Part::Object,
            &[],
        );
        assert_eq!(
            found.as_deref(),
            Some("/data/password: differs; /data/more: is missing; /stringData: is no longer wanted")
        );
    }

    #[test]
    fn what_a_comparison_costs_grows_with_the_documents_and_no_faster() {
        const COUNT: usize = 20_000;
        let each = |part: &dyn Fn(usize) -> (String, Value)| Value::Object((0..COUNT).map(part).collect());
        let list = |element: &dyn Fn(usize) -> Value| Value::Array((0..COUNT).map(element).collect());
        let fields = each(&|n| (format!("f:k{n}"), json!({})));
        let keyed = each(&|n| (format!(r#"k:{{"name":"n{n}"}}"#), json!({"f:name": {}})));
        let members = each(&|n| (format!("v:{n}"), json!({})));
        for (about, fields, actual, desired) in [
            (
                "all other fields",
                fields.clone(),
                each(&|n| (format!("k{n}"), json!(1))),
                each(&|n| (format!("x{n}"), json!(1))),
            ),
            (
                "all other values",
                fields,
                each(&|n| (format!("k{n}"), json!(1))),
                each(&|n| (format!("k{n}"), json!(2))),
            ),
            ("keyed", keyed, list(&|n| json!({"name": format!("n{n}")})), list(&|n| json!({"name": format!("n{n}")}))),
            ("members", members, list(&|n| json!(n)), list(&|n| json!(n))),
        ] {
            let text = json!({"f:spec": fields}).to_string();
            let object = |spec| json!({"apiVersion": "sample.dev/v1", "spec": spec});
            let mut budget = Budget::of_run();
            let comparison = Comparison {
                fields: Some(&text),
                actual: &object(actual),
                desired: &object(desired),
                part: Part::Object,
                ignore: &[] as &[&str],
            };
            let verdict = compare(&comparison, &mut budget).unwrap();
            let spent = crate::budget::RUN - budget.left();
            let bound = u64::try_from(text.len() + 10 * COUNT).unwrap();
            assert!(spent <= bound, "{about}: {spent} of {bound} steps, {verdict:?}");
            assert_eq!(verdict == MatchResult::Matches, matches!(about, "keyed" | "members"), "{about}: {verdict:?}");
        }
    }
}

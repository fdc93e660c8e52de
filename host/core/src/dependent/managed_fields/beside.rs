//! Decides whether the answer to a write differs from the object known before only in fields that are ours: then it
//! contains no change by another client.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Name, Places, Set};
use crate::budget::{self, Budget, OPERATION};
use crate::dependent::difference::{Differences, Secrecy, Stop};
use crate::object::Object;

/// Returns true if the version in the answer to a write is that of the write itself, as far as the object `known`
/// before shows (`FW-8`). A write that changes nothing is answered with the version of the last change by any client
/// (`RO-7`), and so maybe with a change that is not known. If no object was known, a share of ours means that we have
/// created it.
///
/// Returns false if the comparison would cost much.
pub fn is_our_change(known: Option<&Object>, answer: &Object, manager: &str) -> bool {
    let Some(known) = known else {
        return ours(answer, manager).next().is_some();
    };
    known.version() < answer.version() && is_same_beside(known, answer, manager).unwrap_or(false)
}

/// Returns the `fieldsV1` documents of a field manager on an object, whatever the operation.
fn ours<'a>(object: &'a Object, manager: &str) -> impl Iterator<Item = &'a str> {
    let shares = object.header().shares.iter();
    let ours = shares.filter(move |share| *share.manager == *manager);
    ours.map(|share| &*share.fields)
}

/// Returns true if both objects are equal beside our fields; `None` if that is not known.
fn is_same_beside(known: &Object, answer: &Object, manager: &str) -> Option<bool> {
    let both = || ours(known, manager).chain(ours(answer, manager));
    let texts = both().chain([known.json(), answer.json()]);
    // The run's budget does not pay for this, so it is done for small objects only.
    if texts.map(budget::weight).sum::<usize>() > budget::FREE {
        return None;
    }
    let budget = &mut Budget::of(OPERATION);
    // A field that we own no longer counts as ours only if it is gone; otherwise another manager has taken it.
    let before = rest(known, (both(), std::iter::empty()), budget)?;
    let after = rest(answer, (ours(answer, manager), ours(known, manager)), budget)?;
    Some(before == after)
}

/// Returns an object without these sets of fields, and without the fields that differ with each change. The `others` are what we owned
/// before: where they have parts of a field of which a set has none, all of these have been taken, and the field is not ours as a whole.
fn rest<'a>(
    object: &Object,
    (fields, others): (impl Iterator<Item = &'a str>, impl Iterator<Item = &'a str>),
    budget: &mut Budget,
) -> Option<Value> {
    let mut tree = object.tree(budget).ok()?;
    let metadata = tree.get_mut("metadata").and_then(Value::as_object_mut)?;
    for name in ["resourceVersion", "generation"] {
        metadata.remove(name);
    }
    let [sets, others] = [fields.map(Set::read).collect::<Result<Vec<_>, _>>(), others.map(Set::read).collect()];
    let (sets, others) = (sets.ok()?, others.ok()?);
    let all: Vec<_> = sets.iter().map(|set| (set, true)).chain(others.iter().map(|set| (set, false))).collect();
    let nothing: &[&str] = &[];
    let mut cut = Cut(Differences::new(Secrecy::Secret, nothing, budget));
    cut.below(&all, &mut tree).ok()?;
    Some(tree)
}

/// A set of fields, and whether they are removed.
type Cutting<'s, 'd> = (&'s Set<'d>, bool);

/// Removes the fields of some sets from a tree.
struct Cut<'b>(Differences<'static, 'b>);

impl Cut<'_> {
    /// Removes the owned fields from a value. Returns true if nothing is left.
    fn below(&mut self, sets: &[Cutting<'_, '_>], value: &mut Value) -> Result<bool, Stop> {
        match value {
            Value::Object(map) => self.fields(sets, map)?,
            Value::Array(list) => self.elements(sets, list)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(match value {
            Value::Object(map) => map.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        })
    }

    fn owned(&mut self, sets: &[Cutting<'_, '_>], value: &mut Value) -> Result<bool, Stop> {
        self.0.pay(1 + sets.len())?;
        let is_whole = sets.iter().any(|(set, cuts)| *cuts && set.is_whole());
        let has_parts = sets.iter().any(|(set, _)| set.has_parts());
        Ok((is_whole && !has_parts) || self.below(sets, value)?)
    }

    fn fields(&mut self, sets: &[Cutting<'_, '_>], map: &mut Map<String, Value>) -> Result<(), Stop> {
        let fields = sets.iter().filter(|(_, cuts)| *cuts).flat_map(|(set, _)| set.fields());
        let names: BTreeSet<_> = fields.map(|(name, _)| name).collect();
        for name in names {
            let Some(value) = map.get_mut(name) else {
                continue;
            };
            let owned: Vec<_> = sets.iter().filter_map(|(set, cuts)| Some((set.field(name)?, *cuts))).collect();
            if self.owned(&owned, value)? {
                map.remove(name);
            }
        }
        Ok(())
    }

    fn elements(&mut self, sets: &[Cutting<'_, '_>], list: &mut Vec<Value>) -> Result<(), Stop> {
        let (mut places, mut keyed) = (Places::default(), BTreeMap::<_, Vec<_>>::new());
        let mut members = BTreeSet::new();
        let parts = sets.iter().flat_map(|(set, cuts)| set.parts.iter().map(move |(name, set)| (name, set, *cuts)));
        for (name, set, cuts) in parts {
            match name {
                Name::Keyed(_) => {
                    if let Ok((index, _)) = places.of(name, list, &mut self.0)? {
                        keyed.entry(index).or_default().push((set, cuts));
                    }
                }
                Name::Member(text) if cuts => {
                    members.extend(self.0.read(text).map(|member| member.to_string()));
                }
                Name::Member(_) | Name::Field(_) | Name::Itself | Name::Unknown => {}
            }
        }
        let mut gone = BTreeSet::new();
        for (index, sets) in keyed {
            if let Some(element) = list.get_mut(index)
                && self.owned(&sets, element)?
            {
                gone.insert(index);
            }
        }
        let mut index = 0..;
        list.retain(|element| {
            let cut = index.next().is_some_and(|index| gone.contains(&index));
            !cut && (members.is_empty() || !members.contains(&element.to_string()))
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::{Gvk, Managers};

    fn object(version: u64, body: &Value, shares: &[(&str, Value)]) -> Object {
        let shares: Vec<_> = shares
            .iter()
            .map(|(manager, fields)| json!({ "manager": manager, "operation": "Apply", "fieldsV1": fields }))
            .collect();
        let mut tree = json!({ "metadata": { "name": "a", "generation": version, "resourceVersion": version.to_string(), "managedFields": shares } });
        let merged = tree.as_object_mut().unwrap();
        merged.extend(body.as_object().unwrap().clone());
        let gvk = Gvk::parse("v1", "ConfigMap").unwrap();
        Object::parse(&tree.to_string(), &gvk, &Managers::all()).unwrap()
    }

    const DATA: [&str; 4] =
        ["{}", r#"{"f:data":{"f:a":{}}}"#, r#"{"f:data":{"f:b":{}}}"#, r#"{"f:data":{"f:a":{},"f:b":{}}}"#];
    const IMAGE: &str = r#"{"f:pods":{"k:{\"name\":\"c\"}":{".":{},"f:name":{},"f:image":{}}}}"#;
    const MEMBER: &str = r#"{"f:set":{"v:\"ours\"":{}}}"#;
    const LIST: &str = r#"{"f:ports":{}}"#;

    /// Rows: a name; the object known, with our share of it; the answer, with our share of it; true if the change is
    /// ours.
    const CHANGES: [(&str, [&str; 2], [&str; 2], bool); 15] = [
        ("our value", [r#"{"data":{"a":"1","b":"x"}}"#, DATA[1]], [r#"{"data":{"a":"2","b":"x"}}"#, DATA[1]], true),
        ("our first", ["{}", DATA[0]], [r#"{"data":{"a":"1"}}"#, DATA[1]], true),
        ("given up by us, and gone", [r#"{"data":{"a":"1"}}"#, DATA[1]], ["{}", DATA[0]], true),
        ("taken by us", [r#"{"data":{"a":"1"}}"#, DATA[2]], [r#"{"data":{"a":"2"}}"#, DATA[3]], true),
        ("taken from us", [r#"{"data":{"a":"1"}}"#, DATA[1]], [r#"{"data":{"a":"2"}}"#, DATA[2]], false),
        (
            "theirs beside ours",
            [r#"{"data":{"a":"1","b":"x"}}"#, DATA[1]],
            [r#"{"data":{"a":"2","b":"y"}}"#, DATA[1]],
            false,
        ),
        ("theirs, new", [r#"{"data":{"a":"1"}}"#, DATA[1]], [r#"{"data":{"a":"1","b":"y"}}"#, DATA[1]], false),
        ("theirs, gone", [r#"{"data":{"a":"1","b":"y"}}"#, DATA[1]], [r#"{"data":{"a":"1"}}"#, DATA[1]], false),
        (
            "our element",
            [r#"{"pods":[{"name":"o"},{"name":"c","image":"1","pull":"p"}]}"#, IMAGE],
            [r#"{"pods":[{"name":"o"},{"name":"c","image":"2","pull":"p"}]}"#, IMAGE],
            true,
        ),
        (
            "theirs in our element",
            [r#"{"pods":[{"name":"c","image":"1","pull":"p"}]}"#, IMAGE],
            [r#"{"pods":[{"name":"c","image":"2","pull":"q"}]}"#, IMAGE],
            false,
        ),
        ("our member", [r#"{"set":["o"]}"#, DATA[0]], [r#"{"set":["o","ours"]}"#, MEMBER], true),
        ("their member", [r#"{"set":["ours"]}"#, MEMBER], [r#"{"set":["ours","o"]}"#, MEMBER], false),
        (
            "all of our parts taken from us",
            [r#"{"data":{"a":"1","b":"x"}}"#, r#"{"f:data":{".":{},"f:a":{}}}"#],
            [r#"{"data":{"a":"2","b":"x"}}"#, r#"{"f:data":{}}"#],
            false,
        ),
        (
            "all of our parts given up by us",
            [r#"{"data":{"a":"1","b":"x"}}"#, r#"{"f:data":{".":{},"f:a":{}}}"#],
            [r#"{"data":{"b":"x"}}"#, r#"{"f:data":{}}"#],
            true,
        ),
        ("our list", [r#"{"ports":[1]}"#, LIST], [r#"{"ports":[2,3]}"#, LIST], true),
    ];

    #[test]
    fn an_answer_is_of_our_own_change_if_nothing_else_differs() {
        // FW-8, RO-7
        for (what, known, answer, is_ours) in CHANGES {
            let [known, answer] = [(1, known), (2, answer)].map(|(version, [body, fields])| {
                let [body, fields] = [body, fields].map(|text| serde_json::from_str(text).unwrap());
                object(version, &body, &[("web", fields)])
            });
            let of_ours = is_our_change(Some(&known), &answer, "web");
            assert_eq!(of_ours, is_ours, "{what}");
            let of_another = is_our_change(Some(&known), &answer, "other");
            assert!(!of_another, "{what}, to another manager");
        }
    }

    #[test]
    fn a_version_that_was_known_is_none_of_ours_and_nor_is_what_carries_no_share_of_ours() {
        // RO-7
        let share = [("web", json!({ "f:data": {} }))];
        let (ours, other) = (object(2, &json!({}), &share), object(2, &json!({}), &[("other", json!({}))]));
        assert!(!is_our_change(Some(&ours), &ours, "web"));
        assert!(is_our_change(None, &ours, "web"), "it was made");
        assert!(!is_our_change(None, &other, "web"), "it was there");
    }

    #[test]
    fn what_costs_much_to_compare_counts_as_somebody_elses() {
        let share = [("web", json!({ "f:data": {} }))];
        for (bytes, is_ours) in [(1000, true), (budget::FREE, false)] {
            let body = |text: &str| json!({ "data": { "a": text.repeat(bytes) } });
            let (known, answer) = (object(1, &body("x"), &share), object(2, &body("y"), &share));
            assert_eq!(is_our_change(Some(&known), &answer, "web"), is_ours, "{bytes}");
        }
    }
}

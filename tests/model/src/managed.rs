//! Decides who owns which fields of an object after a write, and who may change what by applying.

use serde_json::{Value, json};

use crate::decode::{Null, check};
use crate::fields::Fields;
use crate::kinds::Kind;
use crate::merge::merge;
use crate::meta;
use crate::owner::{Entry, Manager, Operation, bare, read, write};
use crate::status::Refusal;
use crate::typed::{compare, fields_of, with_named, without};

/// How a kind's fields are owned by way of one of its paths.
#[derive(Clone, Debug)]
pub(crate) struct Rules<'a> {
    pub(crate) kind: &'a Kind,
    /// The fields that this path leaves as they are; no manager owns them by way of this path.
    pub(crate) reset: Fields,
    /// The time, as it is written.
    pub(crate) now: &'a str,
}

/// The owner of fields that were there before the first apply, if the owner is not known.
const BEFORE: &str = "before-first-apply";

/// Returns the fields that no manager owns.
fn nobodys() -> Fields {
    let of = |name| ["metadata", name];
    let metadata = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ]
    .map(of);
    let mut paths: Vec<&[&str]> = metadata.iter().map(<[&str; 2]>::as_slice).collect();
    paths.extend::<[&[&str]; 3]>([&["apiVersion"], &["kind"], &["metadata"]]);
    Fields::of(&paths)
}

/// Returns the object with its entries after a write that made `new` of `live` and was not an apply. If `new` itself
/// has managers, these count. An object that has lost all its managers has none until the next apply.
pub(crate) fn updated(live: &Value, new: &Value, manager: &Manager, rules: &Rules<'_>) -> Value {
    let said = meta::get(new, "managedFields").and_then(Value::as_array);
    let reset = said.is_some_and(|said| said.is_empty() && !rules.kind.custom || *said == [json!({})]);
    let part = !manager.subresource.is_empty();
    let mut entries = if part { Vec::new() } else { read(new) };
    if entries.is_empty() && (part || !reset) {
        entries = read(live);
    }
    if entries.is_empty() && !meta::text(live, "uid").is_empty() {
        return bare(new);
    }
    let mut wrong = Vec::new();
    check(&bare(new), &rules.kind.schema, Null::Nothing, "", &mut wrong);
    if !wrong.is_empty() {
        // The owner is not known; if the write is not refused, the object has no managers.
        return bare(new);
    }
    taken(live, new, entries, manager, rules)
}

/// Returns the object after a manager has taken the fields that differ from `live`.
fn taken(live: &Value, new: &Value, mut entries: Vec<Entry>, manager: &Manager, rules: &Rules<'_>) -> Value {
    let (live, mut new) = (bare(live), bare(new));
    let compared = compare(&live, &new, &rules.kind.schema).outside(&rules.reset);
    let found = compared.found();
    for entry in &mut entries {
        entry.fields = entry.fields.difference(&found).difference(&compared.removed);
    }
    let mine = found.outside(&rules.reset).difference(&nobodys());
    if !mine.is_empty() {
        let time = Some(rules.now.to_owned());
        match entries.iter_mut().find(|entry| entry.manager.same(manager)) {
            Some(entry) => {
                entry.fields = entry.fields.union(&mine);
                entry.time = time;
            }
            None => entries.push(Entry { manager: manager.clone(), time, fields: mine }),
        }
    }
    entries.retain(|entry| !entry.fields.is_empty());
    write(&mut new, entries);
    new
}

/// Returns the object with its entries after `manager` has applied `config` to `live`.
///
/// # Errors
/// A conflict if other managers own fields that are applied with another value, unless it is forced.
pub(crate) fn applied(
    live: &Value,
    config: &Value,
    manager: &Manager,
    force: bool,
    rules: &Rules<'_>,
) -> Result<Value, Refusal> {
    let Rules { kind, reset, now } = rules;
    let schema = &kind.schema;
    let mut entries = read(live);
    if entries.is_empty() {
        // The fields that were there before belong to a manager without a name of its own.
        let before = Manager { name: BEFORE.to_owned(), operation: Operation::Update, ..manager.clone() };
        entries = read(&taken(&kind.nothing(), live, entries, &before, rules));
    }
    let live = bare(live);
    let mut merged =
        merge(&live, config, schema).map_err(|why| Refusal::unknown(&format!("failed to merge config: {why}")))?;
    let before = entries.iter().position(|entry| entry.manager.same(manager)).map(|at| entries.remove(at));
    let mine = Entry {
        manager: manager.clone(),
        time: before.as_ref().and_then(|before| before.time.clone()),
        fields: fields_of(config, schema).outside(reset),
    };
    entries.push(mine);
    if let Some(last) = before.map(|before| before.fields).filter(|last| !last.is_empty()) {
        merged = pruned(&merged, &entries, &last, kind);
    }
    let compared = compare(&live, &merged, schema).outside(reset);
    let found = compared.found();
    let others = || entries.iter().filter(|entry| !entry.manager.same(manager));
    let mut conflicts: Vec<(String, String)> = others()
        .flat_map(|entry| {
            let paths = entry.fields.intersection(&found).paths();
            paths.into_iter().map(|path| (entry.said(), path))
        })
        .collect();
    conflicts.sort();
    if !force && !conflicts.is_empty() {
        return Err(Refusal::owned(&conflicts));
    }
    let changed = live != merged;
    for entry in &mut entries {
        if entry.manager.same(manager) {
            entry.fields = entry.fields.difference(&nobodys());
            if changed {
                entry.time = Some((*now).to_owned());
            }
        } else {
            entry.fields = entry.fields.difference(&found).difference(&compared.removed);
        }
    }
    entries.retain(|entry| !entry.fields.is_empty());
    write(&mut merged, entries);
    Ok(merged)
}

/// Returns the object without the fields that a manager applied the last time and does not apply any more, unless
/// another manager owns them.
fn pruned(merged: &Value, entries: &[Entry], last: &Fields, kind: &Kind) -> Value {
    let schema = &kind.schema;
    let named = |fields: &Fields| with_named(fields, schema);
    let all = named(&fields_of(merged, schema));
    let last = named(last);
    let first = without(merged, &last, schema);
    let owned = entries.iter().fold(Fields::default(), |owned, entry| owned.union(&entry.fields));
    let kept = named(&fields_of(&first, schema)).union(&named(&owned));
    let second = without(merged, &all.difference(&kept), schema);
    let kept = named(&fields_of(&second, schema));
    without(merged, &all.difference(&kept).intersection(&last), schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn config_maps() -> Kind {
        kinds::built_in().into_iter().find(|kind| kind.name == "ConfigMap").unwrap()
    }

    fn manager(name: &str, operation: Operation) -> Manager {
        Manager { name: name.to_owned(), operation, api_version: "v1".to_owned(), subresource: String::new() }
    }

    fn map(data: &Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data })
    }

    fn apply(live: &Value, data: &Value, name: &str, force: bool) -> Result<Value, Refusal> {
        let kind = config_maps();
        let rules = Rules { kind: &kind, reset: Fields::default(), now: "2026-01-01T00:00:00Z" };
        applied(live, &map(data), &manager(name, Operation::Apply), force, &rules)
    }

    fn empty() -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } })
    }

    #[test]
    fn what_is_not_applied_any_more_goes_unless_another_owns_it() {
        let live = apply(&empty(), &json!({ "a": "1", "b": "1" }), "x", false).unwrap();
        let live = apply(&live, &json!({ "b": "1", "c": "1" }), "y", false).unwrap();
        let live = apply(&live, &json!({ "d": "1" }), "x", false).unwrap();
        assert_eq!(live["data"], json!({ "b": "1", "c": "1", "d": "1" }));
    }

    #[test]
    fn another_value_is_a_conflict_and_by_force_another_owner() {
        let live = apply(&empty(), &json!({ "a": "1" }), "x", false).unwrap();
        let refusal = apply(&live, &json!({ "a": "2" }), "y", false).unwrap_err();
        assert_eq!(refusal, Refusal::owned(&[("\"x\"".to_owned(), ".data.a".to_owned())]));
        let live = apply(&live, &json!({ "a": "2" }), "y", true).unwrap();
        let owners: Vec<String> = read(&live).into_iter().map(|entry| entry.manager.name).collect();
        assert_eq!(owners, ["y"]);
    }

    #[test]
    fn the_same_value_has_two_owners() {
        let live = apply(&empty(), &json!({ "a": "1" }), "x", false).unwrap();
        let live = apply(&live, &json!({ "a": "1" }), "y", false).unwrap();
        assert_eq!(read(&live).len(), 2);
    }

    #[test]
    fn an_update_takes_what_it_changes_and_nothing_else() {
        let kind = config_maps();
        let rules = Rules { kind: &kind, reset: Fields::default(), now: "2026-01-01T00:00:00Z" };
        let live = apply(&empty(), &json!({ "a": "1", "b": "1" }), "x", false).unwrap();
        let mut new = live.clone();
        new["data"]["a"] = "2".into();
        let live = updated(&live, &new, &manager("y", Operation::Update), &rules);
        let owned: Vec<Value> = read(&live).into_iter().map(|entry| entry.fields.write()).collect();
        assert_eq!(owned, [json!({ "f:data": { "f:b": {} } }), json!({ "f:data": { "f:a": {} } })]);
    }
}

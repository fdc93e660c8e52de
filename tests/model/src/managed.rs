//! Decides who owns which fields of an object: what `managedFields` say, and who may change what by applying.

use serde_json::{Map as Json, Value, json};

use crate::decode::{Null, check};
use crate::fields::Fields;
use crate::kinds::Kind;
use crate::merge::merge;
use crate::meta;
use crate::status::Refusal;
use crate::typed::{compare, fields_of, with_named, without};

/// How somebody came to own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// By applying them.
    Apply,
    /// In any other way.
    Update,
}

/// Somebody who owns fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

/// What somebody owns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) manager: Manager,
    pub(crate) time: Option<String>,
    pub(crate) fields: Fields,
}

/// How a kind's fields are owned by way of one of its paths.
#[derive(Clone, Debug)]
pub(crate) struct Rules<'a> {
    pub(crate) kind: &'a Kind,
    /// What this path leaves as it is; nobody owns it by way of this path.
    pub(crate) reset: Fields,
    /// The time, as it is written.
    pub(crate) now: &'a str,
}

/// Who owns what was there before anybody applied, where that is not known.
const BEFORE: &str = "before-first-apply";

/// Fields that nobody owns.
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

impl Manager {
    /// Whether it is the same: who applies is so in all versions.
    fn same(&self, other: &Self) -> bool {
        let version = self.operation == Operation::Apply || self.api_version == other.api_version;
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && version
    }
}

impl Entry {
    /// Returns who it is, as a conflict names them.
    fn said(&self) -> String {
        let Manager {
            name,
            operation,
            api_version,
            subresource,
        } = &self.manager;
        let part = if subresource.is_empty() {
            String::new()
        } else {
            format!(" with subresource {subresource:?}")
        };
        let by = match (operation, &self.time) {
            (Operation::Apply, _) => String::new(),
            (Operation::Update, None) => format!(" using {api_version}"),
            (Operation::Update, Some(time)) => format!(" using {api_version} at {time}"),
        };
        format!("{name:?}{part}{by}")
    }
}

/// Reads the entries of an object; none if there is anything wrong with one.
pub(crate) fn read(object: &Value) -> Vec<Entry> {
    let entries = object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    let entries: Option<Vec<Entry>> = entries.into_iter().flatten().map(read_entry).collect();
    entries.unwrap_or_default()
}

fn read_entry(json: &Value) -> Option<Entry> {
    let text = |name: &str| {
        json.get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let manager = Manager {
        name: text("manager"),
        operation,
        api_version: text("apiVersion"),
        subresource: text("subresource"),
    };
    let well = text("fieldsType") == "FieldsV1" && !manager.api_version.is_empty();
    well.then(|| Entry {
        manager,
        time: json.get("time").and_then(Value::as_str).map(str::to_owned),
        fields: Fields::read(json.get("fieldsV1").unwrap_or(&Value::Null)),
    })
}

/// Writes entries into an object, in the API server's order.
pub(crate) fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.sort_by(|a, b| {
        let key = |entry: &Entry| {
            let Manager {
                name,
                operation,
                api_version,
                subresource,
            } = entry.manager.clone();
            (
                operation,
                entry.time.clone(),
                name,
                api_version,
                subresource,
            )
        };
        key(a).cmp(&key(b))
    });
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    metadata.remove("managedFields");
    if !entries.is_empty() {
        let entries = entries.iter().map(write_entry).collect();
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

fn write_entry(entry: &Entry) -> Value {
    let Manager {
        name,
        operation,
        api_version,
        subresource,
    } = &entry.manager;
    let operation = match operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut json = Json::new();
    let mut set = |field: &str, value: Value| json.insert(field.to_owned(), value);
    set("manager", name.as_str().into());
    set("operation", operation.into());
    set("apiVersion", api_version.as_str().into());
    set("fieldsType", "FieldsV1".into());
    set("fieldsV1", entry.fields.write());
    if let Some(time) = &entry.time {
        set("time", time.as_str().into());
    }
    if !subresource.is_empty() {
        set("subresource", subresource.as_str().into());
    }
    Value::Object(json)
}

/// Returns an object without what it says of managers.
pub(crate) fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// Returns the object with its entries once somebody has made it of `live`, in any way but by applying. What `new` itself says of
/// managers counts, unless it says nothing. An object that has lost all its managers has none until somebody applies.
pub(crate) fn updated(live: &Value, new: &Value, manager: &Manager, rules: &Rules<'_>) -> Value {
    let said = meta::get(new, "managedFields").and_then(Value::as_array);
    let reset =
        said.is_some_and(|said| said.is_empty() && !rules.kind.custom || *said == [json!({})]);
    let part = !manager.subresource.is_empty();
    let mut entries = if part { Vec::new() } else { read(new) };
    if entries.is_empty() && (part || !reset) {
        entries = read(live);
    }
    if entries.is_empty() && !meta::text(live, "uid").is_empty() {
        return bare(new);
    }
    let mut wrong = Vec::new();
    check(
        &bare(new),
        &rules.kind.schema,
        Null::Nothing,
        "",
        &mut wrong,
    );
    if !wrong.is_empty() {
        // Whose that would be is not known; if it is not refused, it has no managers.
        return bare(new);
    }
    taken(live, new, entries, manager, rules)
}

/// Returns the object once a manager has taken what is another than in `live`.
fn taken(
    live: &Value,
    new: &Value,
    mut entries: Vec<Entry>,
    manager: &Manager,
    rules: &Rules<'_>,
) -> Value {
    let (live, mut new) = (bare(live), bare(new));
    let compared = compare(&live, &new, &rules.kind.schema).outside(&rules.reset);
    let found = compared.new();
    for entry in &mut entries {
        entry.fields = entry
            .fields
            .difference(&found)
            .difference(&compared.removed);
    }
    let mine = found.outside(&rules.reset).difference(&nobodys());
    if !mine.is_empty() {
        let time = Some(rules.now.to_owned());
        match entries.iter_mut().find(|entry| entry.manager.same(manager)) {
            Some(entry) => {
                entry.fields = entry.fields.union(&mine);
                entry.time = time;
            }
            None => entries.push(Entry {
                manager: manager.clone(),
                time,
                fields: mine,
            }),
        }
    }
    entries.retain(|entry| !entry.fields.is_empty());
    write(&mut new, entries);
    new
}

/// Returns the object with its entries once somebody has applied `config` to `live`.
///
/// # Errors
/// A conflict if others own what is applied as another value, unless it is forced.
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
        // What was there before belongs to somebody without a name.
        let before = Manager {
            name: BEFORE.to_owned(),
            operation: Operation::Update,
            ..manager.clone()
        };
        entries = read(&taken(&kind.nothing(), live, entries, &before, rules));
    }
    let live = bare(live);
    let mut merged = merge(&live, config, schema)
        .map_err(|why| Refusal::unknown(&format!("failed to merge config: {why}")))?;
    let before = entries
        .iter()
        .position(|entry| entry.manager.same(manager))
        .map(|at| entries.remove(at));
    let mine = Entry {
        manager: manager.clone(),
        time: before.as_ref().and_then(|before| before.time.clone()),
        fields: fields_of(config, schema).outside(reset),
    };
    entries.push(mine);
    if let Some(last) = before
        .map(|before| before.fields)
        .filter(|last| !last.is_empty())
    {
        merged = pruned(&merged, &entries, &last, kind);
    }
    let compared = compare(&live, &merged, schema).outside(reset);
    let found = compared.new();
    let others = || entries.iter().filter(|entry| !entry.manager.same(manager));
    let conflicts: Vec<(String, String)> = others()
        .flat_map(|entry| {
            let paths = entry.fields.intersection(&found).paths();
            paths.into_iter().map(|path| (entry.said(), path))
        })
        .collect();
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
            entry.fields = entry
                .fields
                .difference(&found)
                .difference(&compared.removed);
        }
    }
    entries.retain(|entry| !entry.fields.is_empty());
    write(&mut merged, entries);
    Ok(merged)
}

/// Returns what is left once what a manager applied the last time, and does not any more, is gone: unless another owns it.
fn pruned(merged: &Value, entries: &[Entry], last: &Fields, kind: &Kind) -> Value {
    let schema = &kind.schema;
    let named = |fields: &Fields| with_named(fields, schema);
    let all = named(&fields_of(merged, schema));
    let last = named(last);
    let first = without(merged, &last, schema);
    let owned = entries
        .iter()
        .fold(Fields::default(), |owned, entry| owned.union(&entry.fields));
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
        kinds::built_in()
            .into_iter()
            .find(|kind| kind.kind == "ConfigMap")
            .unwrap()
    }

    fn manager(name: &str, operation: Operation) -> Manager {
        Manager {
            name: name.to_owned(),
            operation,
            api_version: "v1".to_owned(),
            subresource: String::new(),
        }
    }

    fn map(data: &Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data })
    }

    fn apply(live: &Value, data: &Value, name: &str, force: bool) -> Result<Value, Refusal> {
        let kind = config_maps();
        let rules = Rules {
            kind: &kind,
            reset: Fields::default(),
            now: "2026-01-01T00:00:00Z",
        };
        applied(
            live,
            &map(data),
            &manager(name, Operation::Apply),
            force,
            &rules,
        )
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
        assert_eq!(
            refusal,
            Refusal::owned(&[("\"x\"".to_owned(), ".data.a".to_owned())])
        );
        let live = apply(&live, &json!({ "a": "2" }), "y", true).unwrap();
        let owners: Vec<String> = read(&live)
            .into_iter()
            .map(|entry| entry.manager.name)
            .collect();
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
        let rules = Rules {
            kind: &kind,
            reset: Fields::default(),
            now: "2026-01-01T00:00:00Z",
        };
        let live = apply(&empty(), &json!({ "a": "1", "b": "1" }), "x", false).unwrap();
        let mut new = live.clone();
        new["data"]["a"] = "2".into();
        let live = updated(&live, &new, &manager("y", Operation::Update), &rules);
        let owned: Vec<Value> = read(&live)
            .into_iter()
            .map(|entry| entry.fields.write())
            .collect();
        assert_eq!(
            owned,
            [
                json!({ "f:data": { "f:b": {} } }),
                json!({ "f:data": { "f:a": {} } })
            ]
        );
    }
}

//! Decides whether a write changes the owner references or finalizers of an object, which can delete it or keep it
//! forever.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::object::{Gvk, MARK, OF_SERVER, Object, ObjectRef, clean_metadata};
use crate::patch::{Operation, Patch, Path};

const OWNERS: &str = "ownerReferences";

const FINALIZERS: &str = "finalizers";

const ANNOTATIONS: &str = "annotations";

/// The most owner references, or finalizers, that a document may have.
const MOST: usize = 1_000;

/// The most owner references with one uid that are compared.
const ALIKE: usize = 16;

/// The writer: a run of a controller.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The primary, which may own the objects that are created for it.
    pub primary: &'a Object,
    /// Its kind.
    pub primary_gvk: &'a Gvk,
    /// The finalizer that is the controller's own, which it may add and remove.
    pub finalizer: Option<&'a str>,
}

/// The object before a write, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub enum Before<'a> {
    /// The object exists with this content.
    Known(&'a Value),
    /// The object is in no cache: it may exist or not.
    Unknown,
    /// The object does not exist, or else the write fails.
    Absent,
}

/// The meaning of fields that are missing in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Missing fields are removed.
    Whole,
    /// Missing fields stay as they are.
    Part,
}

/// The effect of a write on owner references, finalizers and mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes only the writer's own ties, or none.
    Harmless,
    /// Harmless if the object does not exist yet; an existing object would get the primary as its owner, and be
    /// deleted with it.
    HarmlessIfNew,
    /// It changes other ties, as this text says: the grant `delete` is needed.
    Foreign(String),
}

// === documents ===

/// Returns the effect of writing the document `after` to the object `key`.
pub fn of_document(after: &Value, before: Before<'_>, manner: Manner, key: &ObjectRef, writer: &Writer<'_>) -> Effect {
    let (wanted, known) = (
        Ties::of(after),
        match before {
            Before::Known(tree) => Ties::of(tree),
            Before::Unknown | Before::Absent => Ties::default(),
        },
    );
    if wanted.owners.len().max(wanted.finalizers.len()) > MOST {
        return Effect::Foreign(format!("it would get more than {MOST} owners or finalizers"));
    }
    if wanted.mark.is_some() && wanted.mark != known.mark {
        return Effect::Foreign(format!("it would get another annotation {MARK}"));
    }
    let by_uid = known.by_uid();
    let has = |owner: &Value| has(&by_uid, owner);
    let finalizers_before: BTreeSet<&str> = known.finalizers.iter().copied().collect();
    let is_own = |owner: &Value| writer.is_primary(owner, key);
    let added = wanted.owners.iter().filter(|owner| !has(owner));
    let (own, foreign): (Vec<&Value>, Vec<&Value>) = added.partition(|owner| is_own(owner));
    if let Some(owner) = foreign.first() {
        return Effect::Foreign(format!("it would be owned by {}", named(owner)));
    }
    let mut finalizers = wanted.finalizers.iter();
    if let Some(finalizer) = finalizers.find(|f| !finalizers_before.contains(*f) && Some(**f) != writer.finalizer) {
        return Effect::Foreign(format!("it would get the finalizer {finalizer:?}"));
    }
    if manner == Manner::Whole {
        match before {
            Before::Unknown => {
                let why =
                    "no source watches it, so that nobody knows whose owner references and finalizers it would lose";
                return Effect::Foreign(why.to_owned());
            }
            Before::Known(_) => {
                if let Some(lost) = known.lost(&wanted, writer, key) {
                    return Effect::Foreign(lost);
                }
            }
            Before::Absent => {}
        }
    }
    // A reference with the same uid but other fields is there already.
    let adopts = own.iter().any(|owner| !by_uid.contains_key(uid(owner)));
    match before {
        Before::Known(_) if adopts => {
            Effect::Foreign("it would be owned by the primary, which did not make it".to_owned())
        }
        Before::Unknown if adopts => Effect::HarmlessIfNew,
        Before::Known(_) | Before::Unknown | Before::Absent => Effect::Harmless,
    }
}

/// Returns true if a document has owner references, finalizers or the mark.
pub fn is_tied(document: &Value) -> bool {
    let Ties { owners, finalizers, mark } = Ties::of(document);
    !owners.is_empty() || !finalizers.is_empty() || mark.is_some()
}

/// Removes fields from a document that only the API server may set.
pub fn clean(document: &mut Value) {
    if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
        clean_metadata(metadata);
    }
}

impl Writer<'_> {
    fn is_primary(&self, owner: &Value, key: &ObjectRef) -> bool {
        self.primary.is_owner(self.primary_gvk, owner, key)
    }
}

/// Owner references and finalizers of a document, and the daemon's mark.
#[derive(Default)]
struct Ties<'a> {
    owners: Vec<&'a Value>,
    finalizers: Vec<&'a str>,
    mark: Option<&'a Value>,
}

/// Owner references by their uid.
type ByUid<'a> = BTreeMap<&'a str, Vec<&'a Value>>;

/// Returns true if `owners` has this owner reference, as it is written or with more fields.
fn has(owners: &ByUid<'_>, owner: &Value) -> bool {
    let alike = owners.get(uid(owner)).into_iter().flatten();
    alike.take(ALIKE).any(|known| within(owner, known))
}

impl<'a> Ties<'a> {
    fn of(document: &'a Value) -> Self {
        let list = |field| {
            let list = document.get("metadata").and_then(|meta| meta.get(field));
            list.and_then(Value::as_array).into_iter().flatten()
        };
        Self {
            owners: list(OWNERS).collect(),
            finalizers: list(FINALIZERS).filter_map(Value::as_str).collect(),
            mark: document.get("metadata").and_then(|metadata| metadata.get(ANNOTATIONS)?.get(MARK)),
        }
    }

    fn by_uid(&self) -> ByUid<'a> {
        let mut owners = ByUid::new();
        for owner in &self.owners {
            owners.entry(uid(owner)).or_default().push(owner);
        }
        owners
    }

    /// Returns the first tie of others that is here and not in `after`, as a text.
    fn lost(&self, after: &Self, writer: &Writer<'_>, key: &ObjectRef) -> Option<String> {
        if self.mark.is_some() && after.mark.is_none() {
            return Some(format!("it would lose the annotation {MARK}"));
        }
        let kept = after.by_uid();
        let mut owners = self.owners.iter();
        let owner = owners.find(|owner| !has(&kept, owner) && !writer.is_primary(owner, key));
        if let Some(owner) = owner {
            return Some(format!("it would no longer be owned by {}", named(owner)));
        }
        let kept: BTreeSet<&str> = after.finalizers.iter().copied().collect();
        let mut finalizers = self.finalizers.iter();
        let lost = finalizers.find(|f| !kept.contains(*f) && Some(**f) != writer.finalizer);
        lost.map(|finalizer| format!("it would lose the finalizer {finalizer:?}"))
    }
}

/// Returns true if `known` has all fields of `owner`, with the same values.
fn within(owner: &Value, known: &Value) -> bool {
    match owner {
        Value::Object(fields) => fields.iter().all(|(name, value)| value.is_null() || known.get(name) == Some(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => owner == known,
    }
}

fn uid(owner: &Value) -> &str {
    owner.get("uid").and_then(Value::as_str).unwrap_or_default()
}

fn named(owner: &Value) -> String {
    let text = |field| owner.get(field).and_then(Value::as_str).unwrap_or("?");
    format!("{} {} (uid {})", text("kind"), text("name"), text("uid"))
}

// === patches ===

/// Returns the effect of a JSON patch. The element at an index when the patch arrives is not known here, so any
/// change of a tie counts. `marked` is asked if all annotations are changed at once: true if the object may have the
/// mark.
///
/// # Errors
/// The text of a refusal, if the patch changes fields that only the API server may set, or the object or its metadata
/// as a whole.
pub fn of_patch(patch: &Patch, marked: impl Fn() -> bool) -> Result<Effect, String> {
    let mut effect = Effect::Harmless;
    for step in &patch.0 {
        let paths = match step {
            // A test changes nothing.
            Operation::Test { .. } => continue,
            Operation::Move { from, path } => vec![path, from],
            Operation::Add { path, .. }
            | Operation::Remove { path }
            | Operation::Replace { path, .. }
            | Operation::Copy { path, .. } => vec![path],
        };
        for path in paths {
            match field(path) {
                Field::Another => {}
                Field::All => {
                    let pointer = path.to_string();
                    return Err(format!("a patch of {pointer:?} as a whole: name the fields in it"));
                }
                Field::Servers => {
                    return Err(format!("a patch of {path}, which only the API server may set"));
                }
                Field::Ties => effect = Effect::Foreign(format!("it changes {path}")),
                Field::Annotations => {
                    if sets_mark(step) || marked() {
                        effect = Effect::Foreign(format!("it changes {path}, and {MARK} in it"));
                    }
                }
            }
        }
    }
    Ok(effect)
}

/// Removes operations from a patch whose fields only the API server may set.
pub fn clean_patch(patch: &mut Patch) {
    patch.0.retain(|step| field(step.path()) != Field::Servers);
}

/// Returns the effect of a merge patch, which replaces lists as a whole. `marked` is as for [`of_patch`].
pub fn of_merge_patch(patch: &Value, marked: impl Fn() -> bool) -> Effect {
    let metadata = patch.get("metadata");
    let touched =
        [OWNERS, FINALIZERS].into_iter().find(|field| metadata.is_some_and(|metadata| metadata.get(field).is_some()));
    let annotations = metadata.and_then(|metadata| metadata.get(ANNOTATIONS));
    let marks = annotations.is_some_and(|annotations| match annotations {
        Value::Object(annotations) => annotations.contains_key(MARK),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => marked(),
    });
    match (touched, metadata) {
        (Some(field), _) => Effect::Foreign(format!("it changes /metadata/{field}")),
        (None, Some(_)) if marks => Effect::Foreign(format!("it changes the annotation {MARK}")),
        (None, Some(metadata)) if !metadata.is_object() => Effect::Foreign("it changes /metadata".to_owned()),
        (None, _) => Effect::Harmless,
    }
}

/// The field that a pointer leads to, as far as ties are concerned.
#[derive(PartialEq, Eq)]
enum Field {
    /// The object, or its metadata.
    All,
    Servers,
    Ties,
    /// All annotations.
    Annotations,
    Another,
}

/// Returns true if an operation on all annotations may set the mark.
fn sets_mark(step: &Operation) -> bool {
    match step {
        Operation::Add { value, .. } | Operation::Replace { value, .. } => value.get(MARK).is_some(),
        Operation::Remove { .. } | Operation::Test { .. } => false,
        // The value that is moved or copied is not known here.
        Operation::Move { .. } | Operation::Copy { .. } => true,
    }
}

fn field(path: &Path) -> Field {
    let mut steps = path.steps().iter().map(String::as_str);
    match (steps.next(), steps.next()) {
        (None, _) | (Some("metadata"), None) => Field::All,
        (Some("metadata"), Some(OWNERS | FINALIZERS)) => Field::Ties,
        (Some("metadata"), Some(ANNOTATIONS)) => match steps.next() {
            None => Field::Annotations,
            Some(MARK) => Field::Ties,
            Some(_) => Field::Another,
        },
        (Some("metadata"), Some(name)) if OF_SERVER.contains(&name) => Field::Servers,
        (Some(_), _) => Field::Another,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::Managers;

    fn gvk() -> Gvk {
        Gvk::parse("a.dev/v1", "Page").unwrap()
    }

    fn page() -> Object {
        let text = r#"{"metadata":{"name":"p","namespace":"n","uid":"u"}}"#;
        Object::parse(text, &gvk(), &Managers::default()).unwrap()
    }

    fn owner(kind: &str, name: &str, uid: &str) -> Value {
        json!({ "apiVersion": "a.dev/v1", "kind": kind, "name": name, "uid": uid })
    }

    fn tied(owners: &[&Value], finalizers: &[&str]) -> Value {
        json!({ "metadata": { "ownerReferences": owners, "finalizers": finalizers } })
    }

    /// Returns `ok`, `if new`, or the text of a foreign effect.
    fn told(after: &Value, before: Before<'_>, manner: Manner, namespace: &str) -> String {
        let (primary, gvk) = (page(), gvk());
        let writer = Writer { primary: &primary, primary_gvk: &gvk, finalizer: Some("own.dev/f") };
        let key = ObjectRef::namespaced(namespace, "x");
        match of_document(after, before, manner, &key, &writer) {
            Effect::Harmless => "ok".to_owned(),
            Effect::HarmlessIfNew => "if new".to_owned(),
            Effect::Foreign(what) => what,
        }
    }

    #[test]
    fn a_document_may_have_ties_to_the_primary_and_those_that_are_there() {
        let own = owner("Page", "p", "u");
        let other = owner("Site", "s", "v");
        let mut held = other.clone();
        held["blockOwnerDeletion"] = true.into();
        let none = json!({ "metadata": {} });
        let there = tied(&[&other, &own], &["other.dev/f"]);
        let (part, whole) = (Manner::Part, Manner::Whole);
        let known = |tree| Before::Known(tree);
        for (after, before, manner, expected) in [
            (&none, Before::Unknown, part, "ok"),
            (&none, known(&there), part, "ok"),
            (&there, known(&there), whole, "ok"),
            (&tied(&[&own], &["own.dev/f"]), Before::Absent, part, "ok"),
            (&tied(&[&own], &[]), Before::Unknown, part, "if new"),
            (&tied(&[&own], &[]), known(&none), part, "it would be owned by the primary, which did not make it"),
            (&tied(&[&own], &[]), known(&there), part, "ok"),
            (&tied(&[&other], &[]), Before::Absent, part, "it would be owned by Site s (uid v)"),
            (&tied(&[&other], &[]), Before::Unknown, part, "it would be owned by Site s (uid v)"),
            // The same uid under another name is an owner that does not exist.
            (&tied(&[&owner("Page", "q", "u")], &[]), Before::Absent, part, "it would be owned by Page q (uid u)"),
            (&tied(&[&held], &[]), known(&there), part, "it would be owned by Site s (uid v)"),
            (&tied(&[], &["other.dev/f"]), known(&none), part, "it would get the finalizer \"other.dev/f\""),
            (&none, known(&there), whole, "it would no longer be owned by Site s (uid v)"),
            (&tied(&[&other], &[]), known(&there), whole, "it would lose the finalizer \"other.dev/f\""),
            (&none, known(&tied(&[&own], &["own.dev/f"])), whole, "ok"),
            (
                &none,
                Before::Unknown,
                whole,
                "no source watches it, so that nobody knows whose owner references and finalizers it would lose",
            ),
        ] {
            assert_eq!(told(after, before, manner, "n"), expected, "{after}");
        }
        // A primary of another namespace owns nothing here.
        let after = tied(&[&own], &[]);
        let foreign = "it would be owned by Page p (uid u)";
        assert_eq!(told(&after, Before::Absent, part, "m"), foreign);
    }

    #[test]
    fn patches_count_by_what_they_touch() {
        for (patch, expected) in [
            (json!([{ "op": "add", "path": "/data/a", "value": "b" }]), Ok("ok")),
            (json!([{ "op": "add", "path": "/metadata/labels", "value": {} }]), Ok("ok")),
            (json!([{ "op": "test", "path": "/metadata/finalizers/0", "value": "x" }]), Ok("ok")),
            (json!([{ "op": "remove", "path": "/metadata/finalizers/0" }]), Ok("it changes /metadata/finalizers/0")),
            (
                json!([{ "op": "move", "from": "/metadata/ownerReferences", "path": "/data/x" }]),
                Ok("it changes /metadata/ownerReferences"),
            ),
            (
                json!([{ "op": "copy", "from": "/spec/x", "path": "/metadata/ownerReferences" }]),
                Ok("it changes /metadata/ownerReferences"),
            ),
            (
                json!([{ "op": "replace", "path": "/metadata", "value": {} }]),
                Err("a patch of \"/metadata\" as a whole: name the fields in it"),
            ),
            (
                json!([{ "op": "replace", "path": "", "value": {} }]),
                Err("a patch of \"\" as a whole: name the fields in it"),
            ),
            (
                json!([{ "op": "replace", "path": "/metadata/managedFields", "value": [{}] }]),
                Err("a patch of /metadata/managedFields, which only the API server may set"),
            ),
        ] {
            let read: Patch = serde_json::from_value(patch.clone()).unwrap();
            let found = of_patch(&read, || true).map(|effect| match effect {
                Effect::Foreign(what) => what,
                Effect::Harmless | Effect::HarmlessIfNew => "ok".to_owned(),
            });
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(found, expected, "{patch}");
        }
        for (patch, harmless) in [
            (json!({ "data": {} }), true),
            (json!({ "metadata": { "labels": null } }), true),
            (json!({ "metadata": { "ownerReferences": null } }), false),
            (json!({ "metadata": { "finalizers": [] } }), false),
            (json!({ "metadata": null }), false),
        ] {
            assert_eq!(of_merge_patch(&patch, || true) == Effect::Harmless, harmless, "{patch}");
        }
    }

    #[test]
    fn a_patch_of_all_annotations_counts_if_the_mark_may_be_among_them() {
        let at = |op: &str, value: Value| json!([{ "op": op, "path": "/metadata/annotations", "value": value }]);
        let moved = json!([{ "op": "move", "from": "/data", "path": "/metadata/annotations" }]);
        // Harmless without the mark, and harmless if the object may have it.
        for (patch, without, with) in [
            (at("test", json!({})), true, true),
            (at("add", json!({ "a": "b" })), true, false),
            (at("replace", json!({})), true, false),
            (at("remove", Value::Null), true, false),
            (at("add", json!({ MARK: "x" })), false, false),
            (moved, false, false),
        ] {
            let read: Patch = serde_json::from_value(patch.clone()).unwrap();
            let harmless = |marked| of_patch(&read, || marked).unwrap() == Effect::Harmless;
            assert_eq!((harmless(false), harmless(true)), (without, with), "{patch}");
        }
        for (annotations, without, with) in [
            (json!({ "a": null }), true, true),
            (json!({ MARK: null }), false, false),
            (json!(null), true, false),
            (json!("x"), true, false),
        ] {
            let patch = json!({ "metadata": { "annotations": annotations } });
            let harmless = |marked| of_merge_patch(&patch, || marked) == Effect::Harmless;
            assert_eq!((harmless(false), harmless(true)), (without, with), "{patch}");
        }
    }

    #[test]
    fn what_is_the_api_servers_is_not_sent() {
        let mut document = json!({ "metadata": { "name": "a", "managedFields": [{}], "deletionTimestamp": "x", "deletionGracePeriodSeconds": 1 } });
        clean(&mut document);
        assert_eq!(document, json!({ "metadata": { "name": "a" } }));
    }
}

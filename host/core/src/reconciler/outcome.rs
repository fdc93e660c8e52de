//! Decides which writes to the primary the guest's answer means, and when the primary runs again (UC and EC rules).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::budget::{self, Budget};
use crate::cluster::{FieldValidation, Target, Verb, Write};
use crate::conditions;
use crate::guest::{Failure, PrimaryUpdate};
use crate::object::{Gvk, Object, Version, clean_metadata};
use crate::patch::{self, Patch};
use crate::permission::ties::{self, Before, Effect, Writer};
use crate::writes;

/// The manner in which a controller writes to its primaries.
#[derive(Clone, Debug)]
pub struct Manner {
    /// The kind of the primaries.
    pub gvk: Gvk,
    /// The field manager.
    pub manager: Arc<str>,
    /// True if it writes by server-side apply, false for JSON patches.
    pub apply: bool,
    /// The finalizer that an apply must repeat, because it would be dropped otherwise (`FI-5`).
    pub finalizer: Option<Arc<str>>,
    /// True if the standard conditions are the daemon's, so that no status of the component has them (`SC-3`).
    pub conditions: bool,
    /// What becomes of fields that the kind does not have.
    pub validation: FieldValidation,
}

/// A write to the primary, which is left out if it would change nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The write.
    pub write: Write,
    /// With server-side apply, the document as a tree: nothing changes if our share of the object equals it.
    pub applied: Option<Value>,
}

impl Planned {
    /// Replaces the version in a write that names one by `version`, which our own write before it has led to.
    pub(crate) fn now_upon(&mut self, version: Version) {
        let Self { write, applied: Some(document) } = self else {
            return;
        };
        if let (Some(named), Verb::Apply { body, .. }) =
            (document.pointer_mut("/metadata/resourceVersion"), &mut write.verb)
        {
            *named = version.to_string().into();
            *body = document.to_string();
        }
    }
}

/// Returns the writes that an update asks for, in order. `primary` is the object as the guest received it.
///
/// # Errors
/// A [`Failure`] that names the fault of the document: it is not a JSON object, for example, or is about another
/// object.
pub fn writes(
    update: &PrimaryUpdate,
    primary: &Object,
    manner: &Manner,
    budget: &mut Budget,
) -> Result<Vec<Planned>, Failure> {
    match update {
        PrimaryUpdate::Nothing => Ok(Vec::new()),
        PrimaryUpdate::Object(text) => {
            let document = document(text, "object", primary, manner, budget)?;
            Ok(object(document, primary, manner, budget)?.into_iter().collect())
        }
        PrimaryUpdate::Status(text) => {
            let document = document(text, "status", primary, manner, budget)?;
            Ok(status(&document, primary, manner, budget)?.into_iter().collect())
        }
        PrimaryUpdate::ObjectAndStatus(text) => {
            let document = document(text, "object-and-status", primary, manner, budget)?;
            let status = status(&document, primary, manner, budget)?;
            Ok(object(document, primary, manner, budget)?.into_iter().chain(status).collect())
        }
    }
}

/// Returns the delay before the next run, at most the longest that the contract can express.
pub fn reschedule(after: Option<Duration>) -> Option<Duration> {
    after.map(|after| after.min(Duration::from_millis(u64::from(u32::MAX))))
}

/// Parses a document and checks that it is about this primary; sets missing fields that identify it.
fn document(
    text: &str,
    case: &str,
    primary: &Object,
    manner: &Manner,
    budget: &mut Budget,
) -> Result<Map<String, Value>, Failure> {
    let wrong = |found: String| Failure::other(format!("the answer of `reconcile` ({case}) {found}"));
    let value = budget.read(text).map_err(|error| match error {
        budget::Error::Json(error) => wrong(format!("is not JSON: {error}")),
        budget::Error::Exceeded(error) => wrong(format!("is too large: {error}")),
    })?;
    let Value::Object(mut document) = value else {
        return Err(wrong("is not a JSON object".to_owned()));
    };
    let key = primary.key();
    let kind = [("apiVersion", Some(&*manner.gvk.api_version())), ("kind", Some(&*manner.gvk.kind))];
    fill(&mut document, "", &kind).map_err(&wrong)?;
    let meta = document.entry("metadata").or_insert_with(|| json!({}));
    let Value::Object(meta) = meta else {
        return Err(wrong("has a metadata that is not an object".to_owned()));
    };
    fill(meta, "metadata.", &[("name", Some(&key.name)), ("namespace", key.namespace.as_deref())]).map_err(&wrong)?;
    Ok(document)
}

/// Sets missing fields; a field with another value is an error.
fn fill(map: &mut Map<String, Value>, path: &str, fields: &[(&str, Option<&str>)]) -> Result<(), String> {
    for (name, wanted) in fields {
        match (map.get(*name), wanted) {
            (Some(Value::String(found)), Some(wanted)) if found == wanted => {}
            (None | Some(Value::Null), Some(wanted)) => {
                map.insert((*name).to_owned(), (*wanted).into());
            }
            (None | Some(Value::Null), None) => {}
            (Some(found), Some(wanted)) => {
                return Err(format!(
                    "is about another object: {path}{name} is {found}, this run is about \"{wanted}\""
                ));
            }
            (Some(found), None) => {
                return Err(format!("has {path}{name} {found}, but the primary has none"));
            }
        }
    }
    Ok(())
}

/// Returns the document if it leaves owner references, and finalizers other than the controller's, as they are: these
/// decide if an object is deleted or kept.
fn tied_as_before(
    document: Map<String, Value>,
    primary: &Object,
    manner: &Manner,
    budget: &mut Budget,
) -> Result<Map<String, Value>, Failure> {
    let document = Value::Object(document);
    if !manner.apply || ties::is_tied(&document) {
        let before = Value::Object(tree(primary, budget)?);
        let writer = Writer { primary, primary_gvk: &manner.gvk, finalizer: manner.finalizer.as_deref() };
        let how = if manner.apply { ties::Manner::Part } else { ties::Manner::Whole };
        let known = Before::Known(&before);
        if let Effect::Foreign(what) = ties::of_document(&document, known, how, primary.key(), &writer) {
            return Err(Failure::other(format!(
                "the answer of `reconcile` (object) can't be written: {what}; owner references, and finalizers other than the controller's, are as they were in a right answer"
            )));
        }
    }
    match document {
        Value::Object(document) => Ok(document),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Ok(Map::new()),
    }
}

/// Returns what a write of the object itself is about.
fn without_status(mut document: Map<String, Value>) -> Map<String, Value> {
    document.remove("status");
    if let Some(Value::Object(meta)) = document.get_mut("metadata") {
        clean_metadata(meta);
    }
    document
}

fn object(
    document: Map<String, Value>,
    primary: &Object,
    manner: &Manner,
    budget: &mut Budget,
) -> Result<Option<Planned>, Failure> {
    let target = Target::object(manner.gvk.clone(), primary.key().clone());
    let mut document = tied_as_before(without_status(document), primary, manner, budget)?;
    if !manner.apply {
        let before = without_status(tree(primary, budget)?);
        let document = without_nulls(document, &before);
        // UC-4: a version that the guest left in makes the patch fail if another client has written since.
        let version = document.get("metadata").and_then(|meta| meta.get("resourceVersion")).cloned();
        let difference = difference(before, document, version, budget)?;
        not_torn(&difference, "object", primary)?;
        return Ok(patched(target, difference, manner));
    }
    if let Some(Value::Object(meta)) = document.get_mut("metadata") {
        // What is null there is absent to the API server, the list of finalizers, too.
        meta.retain(|_, value| !value.is_null());
        meta.insert("uid".to_owned(), (&*primary.header().uid).into());
        if let Some(finalizer) = &manner.finalizer {
            let list = meta.entry("finalizers").or_insert_with(|| json!([]));
            if let Value::Array(list) = list
                && !list.iter().any(|f| f == &**finalizer)
            {
                list.push((&**finalizer).into());
            }
        }
    }
    Ok(Some(applied(target, document, manner)))
}

fn status(
    document: &Map<String, Value>,
    primary: &Object,
    manner: &Manner,
    budget: &mut Budget,
) -> Result<Option<Planned>, Failure> {
    let target = Target::status(manner.gvk.clone(), primary.key().clone());
    let costly = |error| Failure::other(format!("the answer of `reconcile` (status) can't be written: {error}"));
    let mut status = document.get("status").cloned().unwrap_or(Value::Null);
    if manner.conditions && manner.apply {
        conditions::without_ours(&mut status, budget).map_err(costly)?;
    }
    if !manner.apply {
        // UC-4: no optimistic locking.
        let mut before = tree(primary, budget)?;
        before.retain(|name, _| name == "status");
        if manner.conditions {
            let of_before = before.get("status").and_then(|status| status.get("conditions")).unwrap_or(&Value::Null);
            conditions::with_ours(&mut status, of_before, budget).map_err(costly)?;
        }
        let after = without_nulls(Map::from_iter([("status".to_owned(), status)]), &before);
        let mut difference = difference(before, after, None, budget)?;
        not_torn(&difference, "status", primary)?;
        if !difference.0.is_empty() {
            // Not what has been made again under its name. An apply can't say so: the API server looks at nothing but the status.
            let (path, value) = (patch::Path::of(["metadata", "uid"]), (&*primary.header().uid).into());
            difference.0.insert(0, patch::Operation::Test { path, value });
        }
        return Ok(patched(target, difference, manner));
    }
    let mut body = Map::new();
    for name in ["apiVersion", "kind"] {
        body.insert(name.to_owned(), document.get(name).cloned().unwrap_or_default());
    }
    let mut meta = json!({ "name": &*primary.key().name });
    let given = document.get("metadata").and_then(|meta| meta.get("resourceVersion")).cloned();
    for (name, value) in
        [("namespace", primary.key().namespace.as_deref().map(Value::from)), ("resourceVersion", given)]
    {
        if let (Some(meta), Some(value)) = (meta.as_object_mut(), value) {
            meta.insert(name.to_owned(), value);
        }
    }
    body.insert("metadata".to_owned(), meta);
    if !status.is_null() {
        body.insert("status".to_owned(), status);
    }
    Ok(Some(applied(target, body, manner)))
}

fn applied(target: Target, document: Map<String, Value>, manner: &Manner) -> Planned {
    let document = Value::Object(document);
    let verb = Verb::Apply { body: document.to_string(), manager: Arc::clone(&manner.manager), force: true };
    Planned { write: Write::new(target, verb, manner.validation), applied: Some(document) }
}

/// Returns the patch from one document to another. With a `version`, the patch fails if the object has another one.
fn difference(
    before: Map<String, Value>,
    after: Map<String, Value>,
    version: Option<Value>,
    budget: &mut Budget,
) -> Result<Patch, Failure> {
    let (before, after) = (Value::Object(before), Value::Object(after));
    let mut patch = patch::diff(&before, &after, budget)
        .map_err(|error| Failure::other(format!("comparing the primary with the answer: {error}")))?;
    if let Some(value) = version.filter(|_| !patch.0.is_empty()) {
        let path = patch::Path::of(["metadata", "resourceVersion"]);
        patch.0.insert(0, patch::Operation::Test { path, value });
    }
    Ok(patch)
}

/// Checks that a patch changes nothing of which the cache keeps only a part: the component has not seen the rest.
fn not_torn(patch: &Patch, case: &str, primary: &Object) -> Result<(), Failure> {
    match writes::torn(patch, primary.fields()) {
        None => Ok(()),
        Some(path) => Err(Failure::other(format!(
            "the answer of `reconcile` ({case}) changes {path}, of which the cache does not keep all (`keep`, `drop`): apply or patch that through `operations`"
        ))),
    }
}

/// Returns the write that sends a patch; `None` if it is empty.
fn patched(target: Target, patch: Patch, manner: &Manner) -> Option<Planned> {
    if patch.0.is_empty() {
        return None;
    }
    let verb = Verb::JsonPatch { patch, manager: Arc::clone(&manner.manager) };
    Some(Planned { write: Write::new(target, verb, manner.validation), applied: None })
}

/// Returns a document without the fields that are null in it, but for those that were null `before`: an explicit null removes a
/// field, and an answer that repeats what was received changes nothing.
fn without_nulls(document: Map<String, Value>, before: &Map<String, Value>) -> Map<String, Value> {
    let field = |(name, value)| {
        let value = match (value, before.get(&name)) {
            (Value::Null, Some(Value::Null)) => Value::Null,
            (Value::Null, _) => return None,
            (Value::Object(map), Some(Value::Object(before))) => Value::Object(without_nulls(map, before)),
            (Value::Object(map), _) => Value::Object(without_nulls(map, &Map::new())),
            (other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)), _) => other,
        };
        Some((name, value))
    };
    document.into_iter().filter_map(field).collect()
}

fn tree(object: &Object, budget: &mut Budget) -> Result<Map<String, Value>, Failure> {
    match object.tree(budget) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Failure::other("the cached primary is not a JSON object")),
        Err(error) => Err(Failure::other(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Managers;

    fn primary() -> Object {
        let text = json!({
            "apiVersion": "sample.dev/v1", "kind": "Page",
            "metadata": { "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7" },
            "spec": { "html": "x" }, "status": { "old": 1 },
        });
        Object::parse(&text.to_string(), &manner(true).gvk, &Managers::default()).unwrap()
    }

    fn manner(apply: bool) -> Manner {
        Manner {
            gvk: Gvk::parse("sample.dev/v1", "Page").unwrap(),
            manager: "pages".into(),
            apply,
            finalizer: Some("x.dev/f".into()),
            conditions: true,
            validation: FieldValidation::Strict,
        }
    }

    fn bodies(update: &PrimaryUpdate, apply: bool) -> Vec<(Option<String>, String)> {
        let planned = writes(update, &primary(), &manner(apply), &mut Budget::of_run()).unwrap();
        planned
            .into_iter()
            .map(|p| (p.write.target.subresource.map(|s| s.to_string()), p.write.verb.body().into_owned()))
            .collect()
    }

    #[test]
    fn a_status_is_applied_with_nothing_but_itself() {
        // UC-2
        let update = PrimaryUpdate::Status(r#"{"spec":{"html":"y"},"status":{"ok":true}}"#.to_owned());
        let body = r#"{"apiVersion":"sample.dev/v1","kind":"Page","metadata":{"name":"a","namespace":"n"},"status":{"ok":true}}"#;
        assert_eq!(bodies(&update, true), [(Some("status".to_owned()), body.to_owned())]);
    }

    #[test]
    fn a_version_left_in_the_status_makes_it_optimistic() {
        // UC-2
        let update = PrimaryUpdate::Status(r#"{"metadata":{"resourceVersion":"7"},"status":{}}"#.to_owned());
        assert!(bodies(&update, true)[0].1.contains(r#""resourceVersion":"7""#));
    }

    #[test]
    fn an_applied_object_keeps_the_finalizer_and_comes_before_its_status() {
        // FI-5, UC-3
        let update = PrimaryUpdate::ObjectAndStatus(r#"{"spec":{"html":"y"},"status":{"ok":true}}"#.to_owned());
        let bodies = bodies(&update, true);
        assert_eq!(bodies[0].0, None);
        assert_eq!(
            bodies[0].1,
            r#"{"apiVersion":"sample.dev/v1","kind":"Page","metadata":{"finalizers":["x.dev/f"],"name":"a","namespace":"n","uid":"u"},"spec":{"html":"y"}}"#
        );
        assert_eq!(bodies[1].0.as_deref(), Some("status"));
    }

    #[test]
    fn without_server_side_apply_the_difference_is_sent() {
        // UC-4
        let update = PrimaryUpdate::Status(r#"{"status":{"old":null,"ok":true}}"#.to_owned());
        let body = r#"[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"add","path":"/status/ok","value":true},{"op":"remove","path":"/status/old"}]"#;
        assert_eq!(bodies(&update, false), [(Some("status".to_owned()), body.to_owned())]);
        let same = PrimaryUpdate::Status(r#"{"status":{"old":1}}"#.to_owned());
        assert_eq!(bodies(&same, false), []);
    }

    #[test]
    fn what_is_null_in_the_primary_stays_so_if_it_is_answered_as_it_was() {
        // UC-4
        let text = json!({
            "apiVersion": "sample.dev/v1", "kind": "Page",
            "metadata": { "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7" },
            "spec": { "html": "x", "theme": null, "menu": { "left": null } }, "status": { "old": null },
        });
        let primary = Object::parse(&text.to_string(), &manner(false).gvk, &Managers::default()).unwrap();
        let mut answer = text;
        answer["spec"]["html"] = Value::Null;
        answer["spec"]["menu"]["right"] = Value::Null;
        answer["status"]["ok"] = json!(true);
        let update = PrimaryUpdate::ObjectAndStatus(answer.to_string());
        let planned = writes(&update, &primary, &manner(false), &mut Budget::of_run()).unwrap();
        let bodies = planned.into_iter().map(|planned| planned.write.verb.body().into_owned());
        let expected = [
            r#"[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"remove","path":"/spec/html"}]"#,
            r#"[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"add","path":"/status/ok","value":true}]"#,
        ];
        assert_eq!(bodies.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_answer_that_is_wrong_is_refused_with_what_is_wrong() {
        for (text, message) in [
            ("{", "the answer of `reconcile` (status) is not JSON: EOF while parsing an object at line 1 column 1"),
            ("[]", "the answer of `reconcile` (status) is not a JSON object"),
            (
                r#"{"metadata":{"name":"b"}}"#,
                "the answer of `reconcile` (status) is about another object: metadata.name is \"b\", this run is about \"a\"",
            ),
        ] {
            let failure =
                writes(&PrimaryUpdate::Status(text.to_owned()), &primary(), &manner(true), &mut Budget::of_run())
                    .unwrap_err();
            assert_eq!(failure.message, message);
        }
    }
}

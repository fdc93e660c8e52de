//! Answers the requests of a rehearsal as an API server would, as far as runs look at it: objects in memory, and what was asked of them.

#![expect(
    clippy::indexing_slicing,
    reason = "a JSON value that is not there is null, and what is written to has been read as an object"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_core::budget::{Budget, Exceeded};
use capstan_core::cluster::{Cluster, Deletion, Error, Reason, Target, Verb, Write};
use capstan_core::object::{Gvk, Managers, Object, ObjectRef, Scope};
use capstan_core::schema::{Definition, Known, Nulls, Schema, Unfit};
use capstan_core::{kinds, patch, rbac};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::plugin::REHEARSED;

/// When everything takes place.
pub(super) const NOW: &str = REHEARSED;

/// The entries of a list that API servers merge by a field of each, and that field.
const CONDITIONS: &str = "type";

/// Kinds without a status, whose documents are kept whole.
const STATELESS: [&str; 2] = ["ConfigMap", "Secret"];

/// An API server of objects in memory.
pub(super) struct Server {
    state: Mutex<State>,
    /// What is known of custom kinds.
    definitions: Arc<[Definition]>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<(Gvk, ObjectRef), Value>,
    /// The version that was given last, of which uids are made too.
    version: u64,
    writes: Vec<Written>,
}

/// A write that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The verb and the object: `create v1 ConfigMap default/hello`.
    pub what: String,
    /// What was sent; null for a deletion.
    pub body: Value,
    /// Why it was refused, if so.
    pub refused: Option<String>,
}

impl Server {
    /// Returns one without objects.
    pub(super) fn new(definitions: Arc<[Definition]>) -> Self {
        Self { state: Mutex::default(), definitions }
    }

    /// Returns where a kind lives; custom kinds that nothing is known of are taken to live in namespaces.
    pub(super) fn place(&self, gvk: &Gvk) -> Scope {
        match Definition::known(&self.definitions, gvk) {
            Known::Served(kind) => kind.scope,
            Known::Nothing | Known::Otherwise(_) => kinds::scope(gvk).unwrap_or(Scope::Namespaced),
        }
    }

    /// Returns what several of a kind are called, as the cluster would say.
    pub(super) fn plural(&self, gvk: &Gvk) -> String {
        Definition::plural(&self.definitions, gvk).map_or_else(|| rbac::plural_of(gvk), str::to_owned)
    }

    /// Puts an object there that nobody has written meanwhile. If a field manager is given, all of the object that can be somebody's is its
    /// own, unless it says itself whose it is.
    pub(super) fn put(&self, gvk: &Gvk, mut tree: Value, manager: Option<&str>) -> Result<Object, Error> {
        if let Some(manager) = manager
            && tree["metadata"]["managedFields"].is_null()
        {
            let mut written = tree.clone();
            if !STATELESS.contains(&&*gvk.kind) {
                set(&mut written, "status", None);
            }
            tree["metadata"]["managedFields"] = json!([share(manager, "Apply", None, &written)]);
        }
        self.state.lock().store(gvk, tree)
    }

    /// Returns all objects of a kind.
    pub(super) fn list(&self, gvk: &Gvk) -> Result<Vec<Object>, Error> {
        let state = self.state.lock();
        let those = state.objects.iter().filter(|((kind, _), _)| kind == gvk);
        those.map(|(_, tree)| parsed(gvk, tree)).collect()
    }

    /// Returns an object as a tree.
    pub(super) fn tree(&self, gvk: &Gvk, key: &ObjectRef) -> Option<Value> {
        self.state.lock().objects.get(&(gvk.clone(), key.clone())).cloned()
    }

    /// Returns what was asked for so far.
    pub(super) fn writes(&self) -> Vec<Written> {
        self.state.lock().writes.clone()
    }
}

impl State {
    /// Keeps an object under a new version, and returns it.
    fn store(&mut self, gvk: &Gvk, mut tree: Value) -> Result<Object, Error> {
        self.version += 1;
        tree["apiVersion"] = gvk.api_version().into();
        tree["kind"] = (*gvk.kind).into();
        if let Some(metadata) = tree["metadata"].as_object_mut() {
            metadata.insert("resourceVersion".to_owned(), self.version.to_string().into());
            metadata.entry("uid").or_insert_with(|| format!("00000000-0000-0000-0000-{:012}", self.version).into());
            metadata.entry("generation").or_insert_with(|| 1.into());
            metadata.entry("creationTimestamp").or_insert_with(|| NOW.into());
        }
        let object = parsed(gvk, &tree)?;
        self.objects.insert((gvk.clone(), object.key().clone()), tree);
        Ok(object)
    }

    fn carry_out(&mut self, definitions: &[Definition], write: &Write) -> Result<Option<Object>, Error> {
        let Write { target: Target { gvk, key, subresource }, verb, .. } = write;
        let place = (gvk.clone(), key.clone());
        let old = self.objects.get(&place).cloned();
        let is_applied = matches!(verb, Verb::Apply { .. });
        let nulls = if is_applied { Nulls::Refused } else { Nulls::LeftOut };
        let new = match (verb, old.clone()) {
            (Verb::Delete(deletion), old) => return self.delete(&place, deletion, old),
            (Verb::Create { .. }, Some(_)) => return Err(refused(Reason::Conflict, 409, "it exists already")),
            (Verb::Create { body, .. }, None) => read(body)?,
            (Verb::Apply { body, .. }, None) => {
                let mut body = read(body)?;
                // A version means that there may be nothing yet (KD-6).
                if let Some(metadata) = body["metadata"].as_object_mut() {
                    metadata.remove("resourceVersion");
                }
                body
            }
            (_, None) => return Err(refused(Reason::Missing, 404, "it does not exist")),
            (Verb::Replace { body, .. }, Some(old)) => {
                let body = read(body)?;
                upon(&body, &old)?;
                body
            }
            (Verb::Apply { body, .. } | Verb::MergePatch { body, .. }, Some(old)) => {
                let body = read(body)?;
                upon(&body, &old)?;
                let mut new = merged(old, &body)?;
                if is_applied && schema_of(definitions, gvk).is_some() {
                    keep_nulls(&mut new, &body);
                }
                new
            }
            (Verb::JsonPatch { patch, .. }, Some(old)) => {
                let done = patch.apply(old, &mut Budget::of_run());
                done.map_err(|error| refused(Reason::Conflict, 422, &error.to_string()))?
            }
        };
        if !new["metadata"].is_object() {
            return Err(refused(Reason::Invalid, 400, "it would be no object with metadata"));
        }
        let mut new = kept(gvk, old.as_ref(), new, (subresource.as_deref(), verb));
        let unfit = admit(definitions, gvk, &mut new, nulls)
            .map_err(|error| refused(Reason::Invalid, 0, &error.to_string()))?;
        let unfit: Vec<_> = unfit.iter().filter(|unfit| !unfit.unknown).map(ToString::to_string).collect();
        if !unfit.is_empty() {
            return Err(refused(Reason::Invalid, 422, &unfit.join("; ")));
        }
        if Some(&new) == old.as_ref() {
            return parsed(gvk, &new).map(Some);
        }
        let is_gone = !new["metadata"]["deletionTimestamp"].is_null() && !is_held(&new);
        let object = self.store(gvk, new)?;
        if is_gone {
            self.objects.remove(&place);
        }
        Ok(Some(object))
    }

    fn delete(
        &mut self,
        place: &(Gvk, ObjectRef),
        deletion: &Deletion,
        old: Option<Value>,
    ) -> Result<Option<Object>, Error> {
        let Some(mut old) = old else { return Ok(None) };
        let Deletion { uid, version, .. } = deletion;
        for (name, wanted) in [("uid", uid), ("resourceVersion", version)] {
            if wanted.as_ref().is_some_and(|wanted| old["metadata"][name] != **wanted) {
                return Err(refused(Reason::Conflict, 409, &format!("it has another {name}")));
            }
        }
        if is_held(&old) {
            old["metadata"]["deletionTimestamp"] = NOW.into();
            return self.store(&place.0, old).map(Some);
        }
        self.objects.remove(place);
        Ok(None)
    }
}

impl Cluster for Server {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        let mut state = self.state.lock();
        let done = state.carry_out(&self.definitions, &write);
        let body = serde_json::from_str(&write.verb.body()).unwrap_or_default();
        let refused = done.as_ref().err().map(ToString::to_string);
        state.writes.push(Written { what: called(&write), body, refused });
        drop(state);
        ready(done).boxed()
    }

    fn dry_run(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        let mut state = self.state.lock();
        let objects = state.objects.clone();
        let done = state.carry_out(&self.definitions, &write);
        state.objects = objects;
        drop(state);
        ready(done).boxed()
    }

    fn get<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, Error>> {
        ready(self.tree(gvk, key).map(|tree| parsed(gvk, &tree)).transpose()).boxed()
    }

    fn scope(&self, gvk: &Gvk) -> Option<Scope> {
        Some(self.place(gvk))
    }
}

/// Makes of an object what its definition says, if there is one. Returns what does not fit.
///
/// # Errors
/// [`Exceeded`] if that costs too much.
pub fn admit(definitions: &[Definition], gvk: &Gvk, object: &mut Value, nulls: Nulls) -> Result<Vec<Unfit>, Exceeded> {
    schema_of(definitions, gvk).map_or(Ok(Vec::new()), |schema| schema.admit(object, nulls, &mut Budget::of_run()))
}

fn schema_of<'a>(definitions: &'a [Definition], gvk: &Gvk) -> Option<&'a Schema<'a>> {
    match Definition::known(definitions, gvk) {
        Known::Served(kind) => kind.schema.as_ref(),
        Known::Nothing | Known::Otherwise(_) => None,
    }
}

/// Puts the nulls of what is applied back, which a merge has taken for a deletion; those of the metadata are nothing to a server.
fn keep_nulls(merged: &mut Value, applied: &Value) {
    let mut left = vec![(merged, applied, true)];
    while let Some((merged, applied, is_root)) = left.pop() {
        let (Some(merged), Some(applied)) = (merged.as_object_mut(), applied.as_object()) else { continue };
        let nulls = applied.iter().filter(|(name, value)| value.is_null() && !(is_root && *name == "metadata"));
        merged.extend(nulls.map(|(name, _)| (name.clone(), Value::Null)));
        let below = merged.iter_mut().filter(|(name, _)| !(is_root && *name == "metadata"));
        left.extend(below.filter_map(|(name, value)| Some((value, applied.get(name)?, false))));
    }
}

/// Returns what a write is called: its verb, and the object.
fn called(write: &Write) -> String {
    let Write { target: Target { gvk, key, subresource }, verb, .. } = write;
    let part = subresource.as_ref().map(|part| format!("{part} of ")).unwrap_or_default();
    format!("{} {part}{} {} {key}", verb.name(), gvk.api_version(), gvk.kind)
}

/// Returns a document after a write: a write to the status changes nothing else, and all others leave the status alone.
fn kept(gvk: &Gvk, old: Option<&Value>, mut new: Value, (subresource, verb): (Option<&str>, &Verb)) -> Value {
    let written: Value = serde_json::from_str(&verb.body()).unwrap_or_default();
    if subresource != Some("status") && !STATELESS.contains(&&*gvk.kind) {
        set(&mut new, "status", old.and_then(|old| old.get("status")));
    }
    if let Some(old) = old {
        set(&mut new["metadata"], "deletionTimestamp", old["metadata"].get("deletionTimestamp"));
        if subresource == Some("status") {
            let status = new["status"].take();
            new = old.clone();
            new["status"] = status;
        } else if new["spec"] != old["spec"] {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
            new["metadata"]["generation"] = generation.saturating_add(1).into();
        }
        for name in ["uid", "generation", "creationTimestamp", "resourceVersion", "managedFields"] {
            if new["metadata"][name].is_null() || name == "resourceVersion" || name == "managedFields" {
                new["metadata"][name] = old["metadata"][name].clone();
            }
        }
    }
    if let Some(share) = share_of(verb, subresource, &written) {
        let shares = new["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let is_other =
            |other: &Value| ["manager", "operation", "subresource"].iter().any(|field| other[field] != share[field]);
        new["metadata"]["managedFields"] =
            shares.iter().filter(|other| is_other(other)).cloned().chain([share.clone()]).collect();
    }
    new
}

/// Makes a field what it was, or nothing.
fn set(object: &mut Value, field: &str, was: Option<&Value>) {
    match (object.as_object_mut(), was) {
        (Some(fields), Some(was)) => drop(fields.insert(field.to_owned(), was.clone())),
        (Some(fields), None) => drop(fields.remove(field)),
        (None, _) => {}
    }
}

fn share_of(verb: &Verb, subresource: Option<&str>, written: &Value) -> Option<Value> {
    let (manager, operation) = match verb {
        Verb::Apply { manager, .. } => (manager, "Apply"),
        Verb::Create { manager, .. }
        | Verb::Replace { manager, .. }
        | Verb::JsonPatch { manager, .. }
        | Verb::MergePatch { manager, .. } => (manager, "Update"),
        Verb::Delete(_) => return None,
    };
    Some(share(manager, operation, subresource, written))
}

/// Returns an entry of `managedFields`, about as an API server makes it.
fn share(manager: &str, operation: &str, subresource: Option<&str>, written: &Value) -> Value {
    let mut share = json!({ "manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields(written, Place::Root) });
    if let Some(subresource) = subresource {
        share["subresource"] = subresource.into();
    }
    share
}

/// Where in a document fields are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Metadata,
    Below,
}

/// Returns the fields of a document as `managedFields` names them.
fn fields(written: &Value, place: Place) -> Value {
    const OF_METADATA: [&str; 9] = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "managedFields",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ];
    let nobodys: &[&str] = match place {
        Place::Root => &["apiVersion", "kind"],
        Place::Metadata => &OF_METADATA,
        Place::Below => &[],
    };
    let keyed = |entries: &[Value], field: &str| entries.iter().all(|entry| entry[field].is_string());
    match written {
        Value::Object(map) => {
            let owned = map.iter().filter(|(name, _)| !nobodys.contains(&&***name));
            let below =
                |name: &str| if place == Place::Root && name == "metadata" { Place::Metadata } else { Place::Below };
            owned.map(|(name, value)| (format!("f:{name}"), fields(value, below(name)))).collect()
        }
        Value::Array(entries) if !entries.is_empty() && keyed(entries, CONDITIONS) => {
            let key = |entry: &Value| format!("k:{}", json!({ CONDITIONS: entry[CONDITIONS] }));
            entries.iter().map(|entry| (key(entry), fields(entry, Place::Below))).collect()
        }
        // Owner references belong to their managers one by one, and whole.
        Value::Array(entries) if !entries.is_empty() && keyed(entries, "uid") => {
            entries.iter().map(|entry| (format!("k:{}", json!({ "uid": entry["uid"] })), json!({}))).collect()
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Value::Object(Map::new())
        }
    }
}

/// Merges what is applied or patched: conditions by their types, other lists as a whole.
fn merged(mut old: Value, new: &Value) -> Result<Value, Error> {
    let mut new = new.clone();
    if let Some(conditions) = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        let mut all = old.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        for entry in std::mem::take(conditions) {
            match all.iter_mut().find(|old| old[CONDITIONS] == entry[CONDITIONS]) {
                Some(old) => *old = entry,
                None => all.push(entry),
            }
        }
        *conditions = all;
    }
    patch::merge(&mut old, &new, &mut Budget::of_run())
        .map_err(|error| refused(Reason::Invalid, 0, &error.to_string()))?;
    Ok(old)
}

/// Refuses what is meant for another object, or another version of it.
fn upon(body: &Value, old: &Value) -> Result<(), Error> {
    for field in ["uid", "resourceVersion"] {
        let wanted = body["metadata"][field].as_str();
        if wanted.is_some() && wanted != old["metadata"][field].as_str() {
            return Err(refused(Reason::Conflict, 409, &format!("it has another {field}")));
        }
    }
    Ok(())
}

fn is_held(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

fn read(body: &str) -> Result<Value, Error> {
    serde_json::from_str(body).map_err(|error| refused(Reason::Invalid, 0, &error.to_string()))
}

fn parsed(gvk: &Gvk, tree: &Value) -> Result<Object, Error> {
    Object::parse(&tree.to_string(), gvk, &Managers::all())
        .map_err(|error| refused(Reason::Unusable, 0, &error.to_string()))
}

fn refused(reason: Reason, code: u16, message: &str) -> Error {
    Error::new(reason, code, message)
}

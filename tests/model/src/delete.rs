//! Decides what a delete does: it removes the object at once, or marks it until the last finalizer is gone.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::meta::{self, finalizers};
use crate::status::Refusal;
use crate::store::Id;
use crate::world::{At, Whole, World};
use crate::wrong::Wrong;

/// What happens to the objects that a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// The finalizers by which the garbage collector knows what to do.
pub(crate) const ORPHAN: &str = "orphan";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

impl World {
    /// DELETE of an object.
    pub(crate) fn delete(&mut self, at: &At<'_>, name: &str) -> Result<Whole, Refusal> {
        let options = if at.asked.body.is_empty() {
            json!({})
        } else {
            at.asked.json().ok_or_else(|| Refusal::bad("couldn't get version/kind; json parse error"))?
        };
        let id = at.id(name);
        let old = self.store.get(&id).cloned().ok_or_else(|| Refusal::not_found(&at.kind, name))?;
        fits_conditions(at, &options, &old)?;
        let propagation = propagation(at, &options)?;
        // The query counts only if there is no body.
        let all = |all: &Vec<Value>| !all.is_empty();
        let dry = if at.asked.body.is_empty() {
            at.asked.parameter("dryRun") == Some("All")
        } else {
            options.get("dryRun").and_then(Value::as_array).is_some_and(all)
        };
        let (uid, last) = (meta::text(&old, "uid").to_owned(), Arc::clone(&old));
        match marked(self, &id, &old, propagation, at.now) {
            Some(new) if new == *old => Ok(Whole::ok(new)),
            Some(new) if dry => Ok(Whole::ok(new)),
            Some(new) => Ok(Whole::ok(self.commit(&id, Some(new), &Value::Null, at.now).as_ref().clone())),
            None => {
                let last = if dry { last } else { self.commit(&id, None, &last, at.now) };
                if at.kind.quirks.returns_deleted {
                    return Ok(Whole::ok(last.as_ref().clone()));
                }
                let mut details = json!({ "name": name, "kind": at.kind.plural, "uid": uid });
                if !at.kind.group.is_empty() {
                    meta::set_part(&mut details, "group", Some(at.kind.group.clone().into()));
                }
                Ok(Whole::ok(
                    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details }),
                ))
            }
        }
    }

    /// Deletes an object as a client without conditions does. Returns true if there was one.
    pub(crate) fn remove(&mut self, id: &Id, now: Instant) -> bool {
        self.remove_as(id, None, now)
    }

    /// Deletes an object and says what happens to the objects that it owns. Returns true if there was one.
    pub(crate) fn remove_as(&mut self, id: &Id, propagation: Option<Propagation>, now: Instant) -> bool {
        let Some(old) = self.store.get(id).cloned() else {
            return false;
        };
        match marked(self, id, &old, propagation, now) {
            Some(new) if new == *old => {}
            Some(new) => {
                self.commit(id, Some(new), &Value::Null, now);
            }
            None => {
                self.commit(id, None, &old, now);
            }
        }
        true
    }
}

fn fits_conditions(at: &At<'_>, options: &Value, old: &Value) -> Result<(), Refusal> {
    let table = [
        ("uid", "UID", "The object might have been deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "The object might have been modified"),
    ];
    for (field, word, perhaps) in table {
        let wanted = options.pointer(&format!("/preconditions/{field}")).and_then(Value::as_str);
        let found = meta::text(old, field);
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            let why = format!(
                "the {word} in the precondition ({wanted}) does not match the {word} in record ({found}). {perhaps}"
            );
            return Err(Refusal::condition(&at.kind, meta::text(old, "name"), &why));
        }
    }
    Ok(())
}

/// Returns what is to happen to the objects that an object owns; `None` if the request does not say.
fn propagation(at: &At<'_>, options: &Value) -> Result<Option<Propagation>, Refusal> {
    let given = options.get("propagationPolicy").and_then(Value::as_str);
    match given.or(at.asked.parameter("propagationPolicy")) {
        None => Ok(None),
        Some("Background") => Ok(Some(Propagation::Background)),
        Some("Foreground") => Ok(Some(Propagation::Foreground)),
        Some("Orphan") => Ok(Some(Propagation::Orphan)),
        Some(other) => {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            Err(Refusal::options("DeleteOptions", &Wrong::unsupported("propagationPolicy", other, &known)))
        }
    }
}

/// Returns an object as it is once it is marked as deleted; `None` if it is removed at once.
fn marked(world: &World, id: &Id, old: &Value, propagation: Option<Propagation>, now: Instant) -> Option<Value> {
    let mut new = old.clone();
    let before = finalizers(old);
    let others = before.iter().copied().filter(|finalizer| ![ORPHAN, FOREGROUND].contains(finalizer));
    let mut kept: Vec<&str> = others.collect();
    let kind = |name: &str| match name {
        ORPHAN => Propagation::Orphan,
        _ => Propagation::Foreground,
    };
    for finalizer in [ORPHAN, FOREGROUND] {
        let wanted = propagation.map_or(before.contains(&finalizer), |wanted| wanted == kind(finalizer));
        if wanted {
            kept.push(finalizer);
        }
    }
    let namespace = world.kind(id.kind).is_some_and(|kind| kind.name == "Namespace");
    if kept.is_empty() && !namespace {
        return None;
    }
    if !kept.iter().all(|finalizer| before.contains(finalizer)) || kept.len() != before.len() {
        let kept: Vec<Value> = kept.into_iter().map(Value::from).collect();
        meta::set(&mut new, "finalizers", (!kept.is_empty()).then_some(Value::Array(kept)));
    }
    if !meta::is_deleting(old) {
        let generation = meta::get(old, "generation").and_then(Value::as_u64);
        meta::set(&mut new, "generation", generation.map(|generation| json!(generation + 1)));
        meta::set(&mut new, "deletionTimestamp", Some(world.written(now).into()));
        if namespace {
            meta::set_part(&mut new, "status", Some(json!({ "phase": "Terminating" })));
        } else {
            meta::set(&mut new, "deletionGracePeriodSeconds", Some(json!(0)));
        }
    }
    Some(new)
}

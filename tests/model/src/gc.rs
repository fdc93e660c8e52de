//! Decides what the garbage collector and the namespace controller do, one step at a time and only on request.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::time::Instant;

use crate::delete::{FOREGROUND, ORPHAN, Propagation};
use crate::meta::{self, finalizers, is_deleting, owners};
use crate::store::Id;
use crate::world::World;

/// One thing to do.
enum Step {
    /// Delete this object, and what happens to what it owns; `None` = what its finalizers say.
    Delete(Id, Option<Propagation>),
    /// Remove this finalizer from the object.
    Release(Id, &'static str),
    /// Remove the owner references with these uids from the object.
    Disown(Id, Vec<String>),
    /// End a namespace in which nothing is left.
    End(Id),
}

/// What an owner is to an object that refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// It is there.
    Solid,
    /// It is being deleted and waits for the objects that it owns.
    Waiting,
    /// No such object exists.
    Absent,
}

impl World {
    /// Does what is due by now, and returns the number of objects changed. What becomes due because of that is left
    /// for the next call.
    pub(crate) fn collect_garbage(&mut self, now: Instant) -> usize {
        let all: BTreeMap<&str, (&Id, &Value)> =
            self.store.all().map(|(id, object)| (meta::text(object, "uid"), (id, &**object))).collect();
        let steps: Vec<Step> = self.store.all().flat_map(|(id, object)| self.due(id, object, &all)).collect();
        steps.into_iter().filter(|step| self.take_step(step, now)).count()
    }

    fn due(&self, id: &Id, object: &Value, all: &BTreeMap<&str, (&Id, &Value)>) -> Vec<Step> {
        if is_deleting(object) {
            let mut steps = self.due_in_namespace(id, object);
            steps.extend(self.due_of_owner(id, object, meta::text(object, "uid")));
            return steps;
        }
        let kinds: Vec<(&str, Owner)> =
            owners(object).map(|reference| (uid_of(reference), owner(id, reference, all))).collect();
        let count = |kind: Owner| kinds.iter().filter(|(_, other)| *other == kind).count();
        let owns =
            || self.store.all().any(|(_, other)| owners(other).any(|owner| is_owner(owner, meta::text(object, "uid"))));
        match (count(Owner::Solid), count(Owner::Waiting)) {
            (0, 0) if kinds.is_empty() => Vec::new(),
            (0, 1..) if owns() => vec![Step::Delete(id.clone(), Some(Propagation::Foreground))],
            (0, _) => vec![Step::Delete(id.clone(), None)],
            // Another owner keeps it.
            (solid, _) if solid == kinds.len() => Vec::new(),
            (_, _) => {
                let left = kinds.into_iter().filter(|(_, kind)| *kind != Owner::Solid).map(|(uid, _)| uid.to_owned());
                vec![Step::Disown(id.clone(), left.collect())]
            }
        }
    }

    /// Returns the steps that a namespace that is being deleted waits for.
    fn due_in_namespace(&self, id: &Id, object: &Value) -> Vec<Step> {
        let namespace = self.kind(id.kind).is_some_and(|kind| kind.is("v1", "Namespace"));
        if !namespace {
            return Vec::new();
        }
        let inside = || self.store.all().filter(|(other, _)| other.namespace() == Some(id.name()));
        if inside().next().is_none() && finalizers(object).is_empty() {
            return vec![Step::End(id.clone())];
        }
        let left = inside().filter(|(_, object)| !is_deleting(object));
        left.map(|(id, _)| Step::Delete(id.clone(), None)).collect()
    }

    /// Returns the steps that an owner that is being deleted waits for.
    fn due_of_owner(&self, id: &Id, object: &Value, uid: &str) -> Vec<Step> {
        let is_owned = |other: &Value| owners(other).any(|owner| is_owner(owner, uid));
        let owned: Vec<(&Id, &Value)> =
            self.store.all().map(|(id, other)| (id, &**other)).filter(|(_, other)| is_owned(other)).collect();
        let mut steps = Vec::new();
        if finalizers(object).contains(&ORPHAN) {
            steps.extend(owned.is_empty().then(|| Step::Release(id.clone(), ORPHAN)));
            steps.extend(owned.iter().map(|(id, _)| Step::Disown((*id).clone(), vec![uid.to_owned()])));
        }
        if finalizers(object).contains(&FOREGROUND) {
            let blocks =
                |owner: &Value| is_owner(owner, uid) && owner.get("blockOwnerDeletion") == Some(&Value::Bool(true));
            let blocked = owned.iter().any(|(_, other)| owners(other).any(blocks));
            steps.extend((!blocked).then(|| Step::Release(id.clone(), FOREGROUND)));
        }
        steps
    }

    fn take_step(&mut self, step: &Step, now: Instant) -> bool {
        match step {
            Step::Delete(id, propagation) => self.remove_as(id, *propagation, now),
            Step::End(id) => {
                let last = self.store.get(id).cloned();
                last.is_some_and(|last| {
                    self.commit(id, None, &last, now);
                    true
                })
            }
            Step::Release(id, finalizer) => self.edit(id, now, |object| {
                let left: Vec<Value> =
                    finalizers(object).into_iter().filter(|other| other != finalizer).map(Value::from).collect();
                meta::set(object, "finalizers", (!left.is_empty()).then_some(Value::Array(left)));
            }),
            Step::Disown(id, uids) => self.edit(id, now, |object| {
                let stays = |owner: &&Value| !uids.iter().any(|uid| is_owner(owner, uid));
                let left: Vec<Value> = owners(object).filter(stays).cloned().collect();
                meta::set(object, "ownerReferences", (!left.is_empty()).then_some(Value::Array(left)));
            }),
        }
    }
}

/// Returns what the owner that a reference names is to the object with the reference.
fn owner(id: &Id, reference: &Value, all: &BTreeMap<&str, (&Id, &Value)>) -> Owner {
    let Some((at, found)) = all.get(uid_of(reference)) else {
        return Owner::Absent;
    };
    let named = reference.get("name").and_then(Value::as_str) == Some(at.name());
    let reached = at.namespace().is_none() || at.namespace() == id.namespace();
    match (named && reached, is_deleting(found) && finalizers(found).contains(&FOREGROUND)) {
        (false, _) => Owner::Absent,
        (true, true) => Owner::Waiting,
        (true, false) => Owner::Solid,
    }
}

fn uid_of(owner: &Value) -> &str {
    owner.get("uid").and_then(Value::as_str).unwrap_or_default()
}

fn is_owner(owner: &Value, uid: &str) -> bool {
    uid_of(owner) == uid
}

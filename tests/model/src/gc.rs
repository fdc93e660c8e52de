//! Decides what the garbage collector and the namespace controller do, one step at a time and only on request.

use std::collections::BTreeSet;

use serde_json::Value;
use tokio::time::Instant;

use crate::delete::{FOREGROUND, ORPHAN};
use crate::meta::{self, finalizers, is_deleting, owners};
use crate::store::Id;
use crate::world::World;

/// One thing to do.
enum Step {
    /// Delete this object.
    Delete(Id),
    /// Remove this finalizer from the object.
    Release(Id, &'static str),
    /// Remove the owner reference with this uid from the object.
    Disown(Id, String),
    /// End a namespace in which nothing is left.
    End(Id),
}

impl World {
    /// Does what is due by now, and returns the number of objects changed. What becomes due because of that is left
    /// for the next call.
    pub(crate) fn collect_garbage(&mut self, now: Instant) -> usize {
        let mut steps = Vec::new();
        let uids: BTreeSet<String> = self.store.all().map(|(_, object)| meta::text(object, "uid").to_owned()).collect();
        for (id, object) in self.store.all() {
            steps.extend(self.due(id, object, &uids));
        }
        steps.into_iter().filter(|step| self.take_step(step, now)).count()
    }

    fn due(&self, id: &Id, object: &Value, uids: &BTreeSet<String>) -> Vec<Step> {
        let uid = meta::text(object, "uid");
        let mut steps = Vec::new();
        if is_deleting(object) {
            steps.extend(self.due_in_namespace(id, object));
            steps.extend(self.due_of_owner(id, object, uid));
        }
        let mut references = owners(object).peekable();
        let alone = references.peek().is_some() && references.all(|owner| !uids.contains(uid_of(owner)));
        if alone && !is_deleting(object) {
            steps.push(Step::Delete(id.clone()));
        }
        steps
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
        left.map(|(id, _)| Step::Delete(id.clone())).collect()
    }

    /// Returns the steps that an owner that is being deleted waits for.
    fn due_of_owner(&self, id: &Id, object: &Value, uid: &str) -> Vec<Step> {
        let is_owned = |other: &Value| owners(other).any(|owner| is_owner(owner, uid));
        let owned: Vec<(&Id, &Value)> =
            self.store.all().map(|(id, other)| (id, &**other)).filter(|(_, other)| is_owned(other)).collect();
        let mut steps = Vec::new();
        if finalizers(object).contains(&ORPHAN) {
            steps.extend(owned.is_empty().then(|| Step::Release(id.clone(), ORPHAN)));
            steps.extend(owned.iter().map(|(id, _)| Step::Disown((*id).clone(), uid.to_owned())));
        }
        if finalizers(object).contains(&FOREGROUND) {
            let blocks =
                |owner: &Value| is_owner(owner, uid) && owner.get("blockOwnerDeletion") == Some(&Value::Bool(true));
            let blocked = owned.iter().any(|(_, other)| owners(other).any(blocks));
            steps.extend((!blocked).then(|| Step::Release(id.clone(), FOREGROUND)));
            let left = owned.iter().filter(|(_, other)| !is_deleting(other));
            steps.extend(left.map(|(id, _)| Step::Delete((*id).clone())));
        }
        steps
    }

    fn take_step(&mut self, step: &Step, now: Instant) -> bool {
        match step {
            Step::Delete(id) => self.remove(id, now),
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
            Step::Disown(id, uid) => self.edit(id, now, |object| {
                let left: Vec<Value> = owners(object).filter(|owner| !is_owner(owner, uid)).cloned().collect();
                meta::set(object, "ownerReferences", (!left.is_empty()).then_some(Value::Array(left)));
            }),
        }
    }
}

fn uid_of(owner: &Value) -> &str {
    owner.get("uid").and_then(Value::as_str).unwrap_or_default()
}

fn is_owner(owner: &Value, uid: &str) -> bool {
    uid_of(owner) == uid
}

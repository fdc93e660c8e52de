//! Decides what the garbage collector and the namespace controller do, one step at a time and only when they are told to.

use std::collections::BTreeSet;

use serde_json::Value;
use tokio::time::Instant;

use crate::delete::{FOREGROUND, ORPHAN};
use crate::meta::{self, finalizers, is_deleting, owners};
use crate::store::Id;
use crate::world::World;

/// What is to be done.
enum Step {
    /// Delete it.
    Delete(Id),
    /// Take a finalizer off.
    Release(Id, &'static str),
    /// Take the owner of this uid off.
    Disown(Id, String),
    /// End a namespace in which nothing is left.
    End(Id),
}

impl World {
    /// Does what is due by now, and returns how many objects that changed. What is due because of that is left for the next
    /// time.
    pub(crate) fn collect_garbage(&mut self, now: Instant) -> usize {
        let mut steps = Vec::new();
        let uids: BTreeSet<String> = self
            .store
            .all()
            .map(|(_, object)| meta::text(object, "uid").to_owned())
            .collect();
        for (id, object) in self.store.all() {
            steps.extend(self.due(id, object, &uids));
        }
        steps
            .into_iter()
            .filter(|step| self.take_step(step, now))
            .count()
    }

    fn due(&self, id: &Id, object: &Value, uids: &BTreeSet<String>) -> Vec<Step> {
        let mut steps = Vec::new();
        let uid = meta::text(object, "uid");
        let namespace = self
            .kind(id.kind)
            .is_some_and(|kind| kind.kind == "Namespace" && kind.group.is_empty());
        if namespace && is_deleting(object) {
            let inside: Vec<&Id> = self
                .store
                .all()
                .map(|(id, _)| id)
                .filter(|other| other.namespace() == Some(id.name()))
                .collect();
            if inside.is_empty() && finalizers(object).is_empty() {
                return vec![Step::End(id.clone())];
            }
            steps.extend(
                inside
                    .into_iter()
                    .filter(|id| {
                        self.store
                            .get(id)
                            .is_some_and(|object| !is_deleting(object))
                    })
                    .cloned()
                    .map(Step::Delete),
            );
        }
        let owned = || {
            self.store
                .all()
                .filter(|(_, other)| owners(other).any(|owner| is_owner(owner, uid)))
        };
        if is_deleting(object) && finalizers(object).contains(&ORPHAN) {
            let owned: Vec<Id> = owned().map(|(id, _)| id.clone()).collect();
            if owned.is_empty() {
                steps.push(Step::Release(id.clone(), ORPHAN));
            }
            steps.extend(owned.into_iter().map(|id| Step::Disown(id, uid.to_owned())));
        }
        if is_deleting(object) && finalizers(object).contains(&FOREGROUND) {
            let mut blocks = false;
            for (id, other) in owned() {
                let of_owner = |owner: &Value| {
                    is_owner(owner, uid)
                        && owner.get("blockOwnerDeletion") == Some(&Value::Bool(true))
                };
                blocks |= owners(other).any(of_owner);
                if !is_deleting(other) {
                    steps.push(Step::Delete(id.clone()));
                }
            }
            if !blocks {
                steps.push(Step::Release(id.clone(), FOREGROUND));
            }
        }
        let mut references = owners(object).peekable();
        let alone =
            references.peek().is_some() && references.all(|owner| !uids.contains(uid_of(owner)));
        if alone && !is_deleting(object) {
            steps.push(Step::Delete(id.clone()));
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
                let left: Vec<Value> = finalizers(object)
                    .into_iter()
                    .filter(|other| other != finalizer)
                    .map(Value::from)
                    .collect();
                meta::set(
                    object,
                    "finalizers",
                    (!left.is_empty()).then_some(Value::Array(left)),
                );
            }),
            Step::Disown(id, uid) => self.edit(id, now, |object| {
                let left: Vec<Value> = owners(object)
                    .filter(|owner| !is_owner(owner, uid))
                    .cloned()
                    .collect();
                meta::set(
                    object,
                    "ownerReferences",
                    (!left.is_empty()).then_some(Value::Array(left)),
                );
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

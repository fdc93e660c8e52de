//! Decides to which of the dependents that mean the same object it is left: to the one that wants it in this run (`KD-13`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::visitor::{Stopped, Visitor};
use crate::manifest::{Dependent, Node};
use crate::object::{Object, ObjectRef};
use crate::workflow::Mode;

impl Visitor<'_> {
    /// Takes in that a node wants an object.
    ///
    /// # Errors
    /// A text that names the other node that wants it in this run.
    pub(super) fn want(&self, name: &Arc<str>, spec: &Dependent, key: &ObjectRef) -> Result<(), Stopped> {
        let kind = &spec.gvk.kind;
        self.run.want(&spec.gvk, key, name).map_err(|other| {
            format!("{kind} {key} is desired by {other} and by {name}, so that each would undo what the other writes: give one of them another name, or conditions of which only one is met at a time").into()
        })
    }

    /// Returns true if an object is another dependent's, which wants it in this run and has it, or may take it.
    pub(super) fn is_taken(&self, name: &str, spec: &Dependent, object: &Object) -> bool {
        let Some(by) = self.run.wanted_by(&spec.gvk, object.key()) else {
            return false;
        };
        let other = self.others(name, spec).find(|(other, _)| **other == by);
        other.is_some_and(|(other, spec)| self.belongs(other, spec, object))
    }

    /// Returns true if another node may want an object that is to be deleted: one that is not visited, as what it depends on is not ready, or
    /// whose visit has failed, where its name can be found out. Whoever finds out that it is not wanted deletes it. In a clean-up nothing is wanted.
    pub(super) async fn may_be_wanted(&self, name: &str, spec: &Dependent, object: &Object) -> bool {
        if self.mode == Mode::Cleanup {
            return false;
        }
        let may_want = |(other, spec): &(&Arc<str>, &Dependent)| {
            let writes = !spec.bulk && (spec.manage.create || spec.manage.update);
            let is_undecided = self.workflow.dependents.contains_key(*other) && !self.is_decided(other);
            writes && is_undecided && self.belongs(other, spec, object)
        };
        for (other, spec) in self.others(name, spec).filter(may_want).collect::<Vec<_>>() {
            let key = match self.run.known_key(other) {
                Some(key) => Some(key),
                None => self.meant(other, spec).await.ok().flatten(),
            };
            if key.as_ref() == Some(object.key()) {
                tracing::debug!(dependent = %name, %other, object = %object.key(), "not deleted: another dependent may want it");
                return true;
            }
        }
        false
    }

    /// Returns true if it is known of a node whether it is wanted: it was visited, or depends on one that is not wanted.
    fn is_decided(&self, name: &str) -> bool {
        let (mut seen, mut rest) = (BTreeSet::new(), vec![name]);
        while let Some(parents) = rest.pop().and_then(|name| self.workflow.node(name)).map(Node::depends_on) {
            if parents.iter().any(|parent| self.run.is_unwanted(parent)) {
                return true;
            }
            rest.extend(parents.iter().filter(|parent| seen.insert(Arc::clone(*parent))).map(|parent| &**parent));
        }
        self.run.is_decided(name)
    }
}

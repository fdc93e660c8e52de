//! Decides what follows when the object of a dependent turns out to be there already, or to be another one than the caches had.

use std::collections::BTreeSet;

use super::visitor::{Basis, Visitor};
use crate::cluster::Reason;
use crate::dependent::ownership::{self, Mark, Whose};
use crate::manifest::Dependent;
use crate::object::Object;

impl Visitor<'_> {
    /// Returns the mark of what a dependent makes in this run.
    pub(super) fn mark(&self, dependent: &str) -> Mark {
        let controller = &self.run.controller;
        let made_by = (&*controller.operator, &*controller.spec.name, dependent);
        Mark::new(made_by, &self.run.primary, &controller.spec.primary)
    }

    fn whose(&self, dependent: &str, object: &Object) -> Whose {
        let declared: BTreeSet<&str> = self.run.controller.spec.dependents().map(|(name, _)| &**name).collect();
        ownership::whose(object, &self.mark(dependent), &declared)
    }

    /// Whether an object may be written and deleted as this dependent's.
    pub(super) fn belongs(&self, dependent: &str, spec: &Dependent, object: &Object) -> bool {
        let uid = &self.run.primary.header().uid;
        let mut owners = object.header().owners.iter();
        if owners.any(|owner| owner.uid == *uid) {
            return true;
        }
        let whose = self.whose(dependent, object);
        if spec.manage.create {
            return whose == Whose::Ours;
        }
        // What others create carries no mark of ours: it belongs to the primary that it is mapped to, unless it says that
        // it was made for another one.
        let mapped = || {
            let source = self.run.controller.secondaries.get(dependent);
            source.is_some_and(|source| source.relates(object, self.run.primary.key()))
        };
        match whose {
            Whose::Ours => true,
            Whose::Sibling(_) | Whose::Unclaimed => mapped(),
            Whose::Owned(owner) => !owner.is_of(&self.run.controller.spec.primary) && mapped(),
            Whose::Marked(_) => false,
        }
    }

    /// Returns what to write upon after a refusal, given what is there. None if that has nothing to do with the refusal.
    ///
    /// # Errors
    /// A text that says whose the object is.
    pub(super) async fn settle(
        &self,
        dependent: &str,
        spec: &Dependent,
        basis: Basis,
        live: Option<Object>,
    ) -> Result<Option<Basis>, String> {
        let live = match (live, basis) {
            (None, Basis::Absent | Basis::Adopted(_)) => return Ok(None),
            (None, Basis::Ours(_)) => return Ok(Some(Basis::Absent)),
            (Some(live), Basis::Ours(seen)) if seen.header().uid == live.header().uid => {
                return Ok(None);
            }
            (Some(live), _) => live,
        };
        if self.belongs(dependent, spec, &live) {
            return Ok(Some(Basis::Ours(live)));
        }
        let whose = self.whose(dependent, &live);
        if spec.adopt && self.is_adoptable(&whose).await {
            tracing::info!(dependent, object = %live.key(), "taking over an object that was not ours");
            return Ok(Some(Basis::Adopted(live)));
        }
        Err(whose.refusal(&spec.gvk.kind, &live, dependent))
    }

    /// Whether `adopt` extends to an object: not if it belongs to another primary that is there, or may be.
    async fn is_adoptable(&self, whose: &Whose) -> bool {
        match whose {
            Whose::Ours | Whose::Sibling(_) | Whose::Unclaimed => true,
            Whose::Owned(_) => false,
            Whose::Marked(mark) => {
                let Some((gvk, key)) = mark.primary.place() else {
                    return false;
                };
                let looking = self.run.controller.cluster.look(&gvk, &key);
                match self.run.asked(looking).await {
                    Ok(Some(primary)) => *primary.header().uid != *mark.primary.uid,
                    Ok(None) => true,
                    Err(error) => matches!(error.reason, Reason::UnknownKind),
                }
            }
        }
    }
}

//! Decides what follows when a dependent's object already exists, or is another one than the caches had.

use std::collections::BTreeSet;

use super::visitor::{Basis, Stopped, Visitor};
use crate::cluster::{Reason, Write};
use crate::dependent::ownership::{self, Mark, Whose};
use crate::dependent::{self, Desired};
use crate::manifest::Dependent;
use crate::object::Object;

impl Visitor<'_> {
    fn whose(&self, dependent: &str, spec: &Dependent, object: &Object) -> Whose {
        let declared: BTreeSet<&str> = self.run.controller.spec.dependents().map(|(name, _)| &**name).collect();
        let mark = self.run.mark(dependent);
        // A bulk has what bears its mark, and takes nothing from another dependent.
        let sibling = if spec.bulk { ownership::sibling(object, &mark, &declared) } else { None };
        let whose = sibling.map_or_else(|| ownership::whose(object, &mark, &declared), Whose::Sibling);
        let is_doubtful = spec.bulk && whose == Whose::Ours && self.may_be_another(dependent, spec, object);
        if is_doubtful { Whose::Unmarked } else { whose }
    }

    /// Returns why the write of a dependent upon an object has stopped, without what the API server says of that if it is not the
    /// primary's yet, and the component may not see it.
    pub(super) fn told_upon(&self, basis: &Basis, spec: &Dependent, stopped: Stopped) -> Stopped {
        let permissions = &self.run.controller.permissions;
        match (basis, stopped) {
            (Basis::Adopted(found), Stopped::Refused(error))
                if !permissions.may_read(&spec.gvk, found.key().namespace.as_deref()) =>
            {
                Stopped::Refused(error.unseen(&spec.gvk, found.key()))
            }
            (_, stopped) => stopped,
        }
    }

    /// Returns true if an object may be written and deleted as this dependent's.
    pub(super) fn belongs(&self, dependent: &str, spec: &Dependent, object: &Object) -> bool {
        let uid = &self.run.primary.header().uid;
        let mut owners = object.header().owners.iter();
        if !spec.bulk && owners.any(|owner| owner.uid == *uid) {
            return true;
        }
        let whose = self.whose(dependent, spec, object);
        if spec.manage.create {
            return whose == Whose::Ours;
        }
        // An object that others create has no mark of ours: it belongs to the primary that it is mapped to, unless
        // its owner reference or mark shows that it was made for another primary.
        let mapped = || {
            let source = self.run.controller.secondaries.get(dependent);
            source.is_some_and(|source| source.relates(object, self.run.primary.key()))
        };
        match whose {
            Whose::Ours | Whose::Unmarked => true,
            Whose::Sibling(_) | Whose::Unclaimed => mapped(),
            Whose::Owned(owner) => !owner.is_of(&self.run.controller.spec.primary) && mapped(),
            Whose::Marked(_) => false,
        }
    }

    /// Returns true if an object without a mark may be what a single dependent of the kind has made: an owner reference does not say
    /// which dependent it is of.
    fn may_be_another(&self, dependent: &str, spec: &Dependent, object: &Object) -> bool {
        let unmarked = Mark::of(object).is_none();
        let mut others = self.others(dependent, spec).filter(|(_, other)| !other.bulk && other.manage.create);
        unmarked && others.any(|(other, _)| self.run.known_key(other).is_none_or(|key| key == *object.key()))
    }

    /// Returns the basis for another write after a refusal, given the live object. `None` if the live object is not
    /// the reason for the refusal.
    ///
    /// # Errors
    /// A text that names the owner of the object.
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
        let whose = self.whose(dependent, spec, &live);
        let is_adoptable = self.is_adoptable(&whose).await;
        if spec.adopt && is_adoptable {
            tracing::info!(dependent, object = %live.key(), "taking over an object that was not ours");
            return Ok(Some(Basis::Adopted(live)));
        }
        Err(whose.refusal(&spec.gvk.kind, &live, dependent, is_adoptable))
    }

    /// Returns the write by which an object that is there becomes the dependent's. What is not updated stays as it is (`KD-6`).
    pub(super) fn take_over(
        &self,
        name: &str,
        spec: &Dependent,
        found: &Object,
        desired: &Desired,
    ) -> Result<Write, dependent::Error> {
        let (manager, budget) = (&self.run.controller.spec.field_manager, &mut self.run.budget.lock());
        if spec.manage.update {
            return dependent::adopt(found, desired, spec, manager, budget);
        }
        let source = self.run.controller.secondaries.get(name);
        let signs = source.map_or_else(Vec::new, |source| source.signs());
        dependent::tie(found, (desired, &signs), spec, manager, budget)
    }

    /// Returns true if `adopt` permits taking over an object: not if it belongs to another primary that exists, or
    /// may exist.
    async fn is_adoptable(&self, whose: &Whose) -> bool {
        match whose {
            Whose::Ours | Whose::Sibling(_) | Whose::Unmarked | Whose::Unclaimed => true,
            Whose::Owned(_) => false,
            Whose::Marked(mark) => {
                let Some((gvk, key)) = mark.primary.place() else {
                    return false;
                };
                // The version that it was marked with may be served no more.
                let own = &self.run.controller.spec.primary;
                let looking = self.run.controller.cluster.look(if gvk.is_kind_of(own) { own } else { &gvk }, &key);
                match self.run.asked(looking).await {
                    Ok(Some(primary)) => *primary.header().uid != *mark.primary.uid,
                    Ok(None) => true,
                    Err(error) => matches!(error.reason, Reason::UnknownKind),
                }
            }
        }
    }
}

//! Decides what a run of a primary that is not paused does: reconcile, clean up, add or remove finalizers, or nothing
//! (DI rules).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::object::Header;

/// The task of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Do nothing: the primary is being deleted, and no finalizer of ours holds it back (`DI-3`).
    Nothing,
    /// Add the finalizer; the event of that write causes the next run (`DI-4`).
    AddFinalizer,
    /// Reconcile the primary (`DI-5`).
    Reconcile,
    /// Clean up: the primary is being deleted, and a finalizer of ours holds it back (`DI-3`).
    Cleanup,
    /// Remove former finalizers: the primary is being deleted, and only finalizers of earlier versions hold it back.
    /// There is no longer anything to clean up.
    LetGo,
}

/// The finalizers that a controller uses and has used.
#[derive(Clone, Copy, Debug)]
pub struct Finalizers<'a> {
    /// The finalizer that it uses; `None` if nothing needs cleanup (`DI-2`).
    pub own: Option<&'a str>,
    /// The finalizers that earlier versions have used.
    pub former: &'a BTreeSet<Arc<str>>,
}

impl Finalizers<'_> {
    /// Returns the decision for a primary, from its header.
    pub fn decide(&self, primary: &Header) -> Decision {
        let held = self.own.is_some_and(|own| primary.has_finalizer(own));
        let left = !self.left(primary).is_empty();
        match (primary.deleting, self.own) {
            // A former finalizer holds it back for the same cleanup.
            (true, Some(_)) if held || left => Decision::Cleanup,
            (true, None) if left => Decision::LetGo,
            (true, _) => Decision::Nothing,
            (false, Some(_)) if !held => Decision::AddFinalizer,
            (false, _) => Decision::Reconcile,
        }
    }

    /// Returns the finalizers of earlier versions that a primary carries.
    pub fn left<'h>(&self, primary: &'h Header) -> Vec<&'h str> {
        let names = primary.finalizers.iter().map(|name| &**name);
        let left = |name: &&str| Some(*name) != self.own && self.former.contains(*name);
        names.filter(left).collect()
    }

    /// Returns the finalizers that the version `by` would leave behind if it replaced this one, each with the number
    /// of primaries that carry it and could never be deleted. The finalizer in use counts even if no primary carries
    /// it yet: a run may be adding it.
    pub fn left_behind(&self, by: Finalizers<'_>, carrying: impl Fn(&str) -> usize) -> BTreeMap<Arc<str>, usize> {
        let heeded = |name: &str| by.own == Some(name) || by.former.contains(name);
        let own = self.own.map(|name| (name, true));
        let former = self.former.iter().map(|name| (&**name, false));
        let lost = own.into_iter().chain(former);
        let lost = lost.filter(|(name, _)| !heeded(name));
        let counted = lost.map(|(name, in_use)| (name, in_use, carrying(name)));
        let behind = counted.filter(|(_, in_use, primaries)| *in_use || *primaries > 0);
        behind.map(|(name, _, primaries)| (name.into(), primaries)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers, Object};

    #[test]
    fn deletion_mark_and_finalizers_decide() {
        const OURS: &str = "sample.dev/finalizer";
        const FORMER: &str = "sample.dev/old";
        use Decision::{AddFinalizer, Cleanup, LetGo, Nothing, Reconcile};
        let former = BTreeSet::from([FORMER.into()]);
        let gvk = Gvk::parse("v1", "Service").unwrap();
        // The finalizer is used, the finalizer is there, a former one is there; the decision for a primary that
        // stays, and for one that is being deleted.
        for (used, present, left, stays, going) in [
            (false, false, false, Reconcile, Nothing), // DI-5, DI-3
            (false, false, true, Reconcile, LetGo),
            (false, true, false, Reconcile, Nothing), // DI-3: not in use any more
            (false, true, true, Reconcile, LetGo),
            (true, false, false, AddFinalizer, Nothing), // DI-4, DI-3
            (true, false, true, AddFinalizer, Cleanup),
            (true, true, false, Reconcile, Cleanup), // DI-3
            (true, true, true, Reconcile, Cleanup),
        ] {
            let carried = [Some("other.dev/f"), present.then_some(OURS), left.then_some(FORMER)];
            let carried: Vec<_> = carried.into_iter().flatten().collect();
            for (mark, wanted) in [(None, stays), (Some("2026-01-01T00:00:00Z"), going)] {
                let metadata = serde_json::json!({ "name": "a", "finalizers": carried, "deletionTimestamp": mark });
                let text = serde_json::json!({ "metadata": metadata }).to_string();
                let object = Object::parse(&text, &gvk, &Managers::default()).unwrap();
                let (own, former) = (used.then_some(OURS), &former);
                let finalizers = Finalizers { own, former };
                let decision = finalizers.decide(object.header());
                assert_eq!(decision, wanted, "used {used}, {carried:?}, {mark:?}");
                let found = finalizers.left(object.header());
                assert_eq!(found.len(), usize::from(left));
            }
        }
        let former = BTreeSet::from([OURS.into()]);
        let (own, former) = (Some(OURS), &former);
        let text = format!(r#"{{"metadata":{{"name":"a","finalizers":["{OURS}"]}}}}"#);
        let object = Object::parse(&text, &gvk, &Managers::default()).unwrap();
        let left = Finalizers { own, former }.left(object.header()).len();
        assert_eq!(left, 0, "the one in use is none of before");
    }

    #[test]
    fn a_finalizer_is_left_behind_unless_the_next_version_uses_or_names_it() {
        const A: &str = "a.dev/f";
        const B: &str = "b.dev/f";
        type Names = &'static [&'static str];
        type Left = &'static [(&'static str, usize)];
        let set = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
        let carried = |name: &str| if name == A { 3 } else { 0 };
        // The finalizer and the former finalizers of this version, the same of the next version, and the finalizers
        // that are left behind.
        let table: [(_, Names, _, Names, Left); 9] = [
            (None, &[], None, &[], &[]),
            (Some(A), &[], Some(A), &[], &[]),
            (Some(A), &[], Some(B), &[], &[(A, 3)]),
            (Some(A), &[], None, &[], &[(A, 3)]),
            (Some(B), &[], None, &[], &[(B, 0)]),
            (Some(A), &[], Some(B), &[A], &[]),
            (Some(A), &[], None, &[A], &[]),
            (Some(B), &[A], Some(B), &[], &[(A, 3)]),
            (Some(A), &[B], Some(A), &[], &[]),
        ];
        for (own, former, then, named, wanted) in table {
            let (former, named): (BTreeSet<_>, BTreeSet<_>) = (set(former), set(named));
            let heeded = |own, former| Finalizers { own, former };
            let behind = heeded(own, &former).left_behind(heeded(then, &named), carried);
            let behind: Vec<_> = behind.iter().map(|(name, n)| (&**name, *n)).collect();
            assert_eq!(behind, wanted, "{own:?} {former:?} -> {then:?} {named:?}");
        }
    }
}

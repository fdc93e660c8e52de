//! Decides which dependent has an object in a run: the first that wants it, and no other one beside it (`KD-13`).

use std::collections::HashMap;
use std::sync::Arc;

use crate::object::{Gvk, ObjectRef};

/// Group and kind, whatever the version.
type Kind = (Arc<str>, Arc<str>);

/// The objects that dependents want in a run, by their kind, with who wants each.
#[derive(Debug, Default)]
pub(super) struct Wants(HashMap<Kind, HashMap<ObjectRef, Arc<str>>>);

impl Wants {
    /// Takes in that a dependent wants an object.
    ///
    /// # Errors
    /// The other one that wants it.
    pub(super) fn take(&mut self, gvk: &Gvk, key: &ObjectRef, dependent: &Arc<str>) -> Result<(), Arc<str>> {
        let taken = self.0.entry(gvk.group_kind()).or_default();
        let first = taken.entry(key.clone()).or_insert_with(|| Arc::clone(dependent));
        if first == dependent { Ok(()) } else { Err(Arc::clone(first)) }
    }

    /// Returns the dependent that wants an object.
    pub(super) fn by(&self, gvk: &Gvk, key: &ObjectRef) -> Option<Arc<str>> {
        self.0.get(&gvk.group_kind())?.get(key).cloned()
    }

    /// Takes in that a dependent wants nothing any more, or something else.
    pub(super) fn release(&mut self, gvk: &Gvk, dependent: &str) {
        if let Some(taken) = self.0.get_mut(&gvk.group_kind()) {
            taken.retain(|_, by| **by != *dependent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_wanted_by_one_until_that_one_wants_it_no_more() {
        // KD-13
        let gvk = |version: &str, kind: &str| Gvk::parse(version, kind).unwrap();
        let (old, new, other) = (gvk("a.dev/v1", "A"), gvk("a.dev/v2", "A"), gvk("b.dev/v1", "A"));
        let (x, y) = (ObjectRef::namespaced("n", "x"), ObjectRef::namespaced("n", "y"));
        let [one, two]: [Arc<str>; 2] = ["one".into(), "two".into()];
        let mut wants = Wants::default();
        assert_eq!(
            [wants.take(&old, &x, &one), wants.take(&old, &y, &one), wants.take(&other, &x, &two)],
            [Ok(()), Ok(()), Ok(())]
        );
        assert_eq!(wants.take(&new, &x, &one), Ok(()), "again");
        assert_eq!(wants.take(&new, &x, &two), Err(Arc::clone(&one)));
        assert_eq!(wants.by(&new, &x), Some(Arc::clone(&one)));
        wants.release(&new, "one");
        assert_eq!((wants.by(&old, &x), wants.by(&other, &x)), (None, Some(Arc::clone(&two))));
        assert_eq!(wants.take(&new, &x, &two), Ok(()));
    }
}

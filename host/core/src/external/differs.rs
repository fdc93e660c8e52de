//! Says what has become of the things of a primary (XC-1).

use std::sync::Arc;

use super::Things;
use crate::object::ObjectRef;

/// A primary whose things have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differs {
    /// The primary.
    pub primary: ObjectRef,
    /// What has become of them, at least of one.
    pub things: Vec<Change>,
}

/// What has become of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added(Arc<str>),
    /// It is otherwise than it was.
    Updated {
        /// As it was.
        before: Arc<str>,
        /// As it is.
        now: Arc<str>,
    },
    /// It is gone: as it was last seen.
    Removed(Arc<str>),
}

impl Change {
    /// Returns what has become of a thing, of what it was and of what it is; `None` if that is the same.
    pub(super) fn of(before: Option<&Arc<str>>, now: Option<&Arc<str>>) -> Option<Self> {
        match (before.cloned(), now.cloned()) {
            (before, now) if before == now => None,
            (Some(before), Some(now)) => Some(Self::Updated { before, now }),
            (None, Some(now)) => Some(Self::Added(now)),
            (Some(before), None) => Some(Self::Removed(before)),
            (None, None) => None,
        }
    }

    /// Returns what has become of things.
    pub(super) fn all(before: &Things, now: &Things) -> Vec<Self> {
        let there = now.iter().filter_map(|(id, thing)| Self::of(before.get(id), Some(thing)));
        let gone = before.iter().filter(|(id, _)| !now.contains_key(*id));
        there.chain(gone.filter_map(|(_, thing)| Self::of(Some(thing), None))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::external::tests::things;

    #[test]
    fn things_are_added_updated_and_removed_by_their_ids() {
        // XC-1
        let [added, removed] = [Change::Added, Change::Removed].map(|of: fn(Arc<str>) -> Change| of("x".into()));
        let updated = Change::Updated { before: "x".into(), now: "y".into() };
        for (before, now, expected) in [
            ("", "", vec![]),
            ("1=x", "1=x", vec![]),
            ("", "1=x", vec![added.clone()]),
            ("1=x", "1=y", vec![updated.clone()]),
            ("1=x", "", vec![removed.clone()]),
            ("1=x 2=x 3=z", "2=y 3=z 4=x", vec![updated, added, removed]),
        ] {
            assert_eq!(Change::all(&things(before), &things(now)), expected, "{before} {now}");
        }
    }
}

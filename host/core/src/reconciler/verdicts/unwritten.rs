//! Decides which objects are kept that should remember the ids of things outside of the cluster, until they can be written: as many as their
//! plugin has memory for.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::room::Holding;
use crate::room::charge::Charge;

/// The memory that one takes beside its texts, in bytes.
const EACH: usize = 160;

/// The objects that could not be written, by the keys of their things. Their memory is given back when they are dropped.
#[derive(Default)]
pub struct Unwritten {
    all: BTreeMap<Arc<str>, Kept>,
    taken: Charge,
}

/// An object that could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// As the component answered it; `None` if it answered none.
    pub state: Option<Arc<str>>,
    /// The thing that it should remember: the id, and what it is.
    pub thing: (Arc<str>, Arc<str>),
}

impl Unwritten {
    /// Returns the first one.
    pub fn first(&self) -> Option<(Arc<str>, Kept)> {
        self.all.first_key_value().map(|(key, kept)| (Arc::clone(key), kept.clone()))
    }

    /// Keeps one, unless there is no memory for it: then the thing is created a second time.
    pub fn keep(&mut self, key: &Arc<str>, kept: Kept, holding: impl FnOnce() -> Option<Holding>) {
        self.forget(key);
        self.taken.begin(holding);
        if self.taken.set(self.taken.bytes() + size(key, &kept)) {
            self.all.insert(Arc::clone(key), kept);
        }
    }

    /// Forgets one.
    pub fn forget(&mut self, key: &str) {
        if let Some((key, kept)) = self.all.remove_entry(key) {
            self.taken.give_back(size(&key, &kept));
        }
    }
}

fn size(key: &str, Kept { state, thing: (id, actual) }: &Kept) -> u64 {
    (EACH + key.len() + state.as_ref().map_or(0, |state| state.len()) + id.len() + actual.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::Room;

    #[test]
    fn what_could_not_be_written_borrows_what_it_takes_until_it_is() {
        // XD-2
        let room = Room::new(8 * 2 * (EACH as u64 + 4));
        let mut all = Unwritten::default();
        let kept = Kept { state: Some("x".into()), thing: ("1".into(), "y".into()) };
        let keep = |all: &mut Unwritten, key: &str| {
            all.keep(&key.into(), kept.clone(), || Some(room.holding(&"p".into()).lasting()));
            all.all.contains_key(key)
        };
        assert_eq!(["a", "b", "a", "c"].map(|key| keep(&mut all, key)), [true, true, true, false]);
        assert_eq!(all.first(), Some(("a".into(), kept.clone())));
        all.forget("a");
        all.forget("a");
        assert_eq!((keep(&mut all, "c"), all.first()), (true, Some(("b".into(), kept.clone()))));
    }
}

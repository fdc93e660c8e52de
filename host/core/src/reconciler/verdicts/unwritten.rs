//! Decides which objects are kept that should remember the ids of things outside of the cluster, until they can be written: as many as their
//! plugin has memory for.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::room::Holding;
use crate::room::charge::Charge;

/// The memory that one takes beside its texts, in bytes.
const EACH: usize = 160;

/// The objects that could not be written, as the component answered them, by the keys of their things. Their memory is given back when they
/// are dropped.
#[derive(Default)]
pub struct Unwritten {
    answers: BTreeMap<Arc<str>, Arc<str>>,
    taken: Charge,
}

impl Unwritten {
    /// Returns the first one.
    pub fn first(&self) -> Option<(Arc<str>, Arc<str>)> {
        self.answers.first_key_value().map(|(key, answer)| (Arc::clone(key), Arc::clone(answer)))
    }

    /// Keeps one, unless there is no memory for it: then the thing is created a second time.
    pub fn keep(&mut self, key: &Arc<str>, answer: Arc<str>, holding: impl FnOnce() -> Option<Holding>) {
        self.forget(key);
        self.taken.begin(holding);
        if self.taken.set(self.taken.bytes() + size(key, &answer)) {
            self.answers.insert(Arc::clone(key), answer);
        }
    }

    /// Forgets one.
    pub fn forget(&mut self, key: &str) {
        if let Some((key, answer)) = self.answers.remove_entry(key) {
            self.taken.give_back(size(&key, &answer));
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

fn size(key: &str, answer: &str) -> u64 {
    (EACH + key.len() + answer.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::Room;

    #[test]
    fn what_could_not_be_written_borrows_what_it_takes_until_it_is() {
        // XD-2
        let room = Room::new(8 * 2 * (EACH as u64 + 2));
        let mut all = Unwritten::default();
        let keep = |all: &mut Unwritten, key: &str| {
            all.keep(&key.into(), "x".into(), || Some(room.holding(&"p".into()).lasting()));
            all.answers.contains_key(key)
        };
        assert_eq!(["a", "b", "a", "c"].map(|key| keep(&mut all, key)), [true, true, true, false]);
        assert_eq!(all.first(), Some(("a".into(), "x".into())));
        all.forget("a");
        all.forget("a");
        assert_eq!((keep(&mut all, "c"), all.first()), (true, Some(("b".into(), "x".into()))));
        all.clear();
        assert_eq!(all.first(), None);
    }
}

//! Keeps which objects were seen under a key (IX, IM-4).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::object::ObjectRef;

/// The memory that a key of an object takes besides its text, in bytes.
const EACH: usize = 128;

/// A key of a look-up.
pub trait Key: Ord + Clone {
    /// Returns the bytes of its text, if it has one of its own.
    fn bytes(&self) -> usize;
}

/// The objects under each key. An object may be under many keys, and a key may have many objects.
#[derive(Clone, Debug)]
pub struct Lookup<K> {
    pairs: BTreeSet<(K, ObjectRef)>,
    /// The memory that they take.
    bytes: usize,
    /// The keys of each object, if they are remembered: for keys that cost too much to be found again at each look.
    known: Option<BTreeMap<ObjectRef, BTreeSet<K>>>,
}

// === impl Lookup ===

impl<K> Default for Lookup<K> {
    fn default() -> Self {
        Self { pairs: BTreeSet::new(), bytes: 0, known: None }
    }
}

impl Key for Box<str> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Key for ObjectRef {
    fn bytes(&self) -> usize {
        0
    }
}

impl<K: Key> Lookup<K> {
    /// Returns an empty look-up that remembers the keys of each object, so that it never has too many objects.
    pub fn exact() -> Self {
        Self { known: Some(BTreeMap::new()), ..Self::default() }
    }

    /// Returns true if every object is under exactly the keys that it was last moved to.
    pub fn is_exact(&self) -> bool {
        self.known.is_some()
    }

    /// Moves an object from the keys that it had `before` to the keys that it has `after`. If keys are remembered, it
    /// is moved from those.
    pub fn moved(&mut self, object: &ObjectRef, before: &BTreeSet<K>, after: &BTreeSet<K>) {
        let remembered = self.known.as_mut().map(|known| {
            let last =
                if after.is_empty() { known.remove(object) } else { known.insert(object.clone(), after.clone()) };
            last.unwrap_or_default()
        });
        for key in remembered.as_ref().unwrap_or(before).difference(after) {
            if self.pairs.remove(&(key.clone(), object.clone())) {
                self.bytes -= self.weight(key);
            }
        }
        for key in after {
            if self.pairs.insert((key.clone(), object.clone())) {
                self.bytes += self.weight(key);
            }
        }
    }

    /// Returns the memory that its keys take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn weight(&self, key: &K) -> usize {
        let each = EACH + key.bytes();
        if self.is_exact() { 2 * each } else { each }
    }

    /// Returns the objects under a key, ordered by namespace and name.
    pub fn get(&self, key: &K) -> impl Iterator<Item = &ObjectRef> {
        let first = (key.clone(), ObjectRef::cluster(""));
        let range = self.pairs.range((Bound::Included(&first), Bound::Unbounded));
        // The range borrows only from the set: its start may be moved.
        range.take_while(move |(other, _)| *other == first.0).map(|(_, object)| object)
    }

    /// Returns the keys that an object was last moved to, if they are remembered.
    pub fn known(&self, object: &ObjectRef) -> Option<&BTreeSet<K>> {
        self.known.as_ref()?.get(object)
    }

    /// Keeps only the objects that `keep` accepts.
    pub fn retain(&mut self, keep: impl Fn(&ObjectRef) -> bool) {
        self.pairs.retain(|(_, object)| keep(object));
        self.bytes = self.pairs.iter().map(|(key, _)| self.weight(key)).sum();
        if let Some(known) = &mut self.known {
            known.retain(|object, _| keep(object));
        }
    }

    /// Returns the number of pairs of key and object.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Returns true if no object is under any key.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_moves_between_keys() {
        let [a, b] = ["a", "b"].map(|name| ObjectRef::namespaced("n", name));
        let set = |keys: &[&'static str]| keys.iter().map(|key| Box::<str>::from(*key)).collect::<BTreeSet<_>>();
        let mut lookup = Lookup::default();
        lookup.moved(&b, &set(&[]), &set(&["x", "y"]));
        lookup.moved(&a, &set(&[]), &set(&["x"]));
        assert_eq!(lookup.get(&"x".into()).collect::<Vec<_>>(), [&a, &b]);
        lookup.moved(&b, &set(&["x", "y"]), &set(&["y", "z"]));
        for (key, objects) in [("w", vec![]), ("x", vec![&a]), ("y", vec![&b]), ("z", vec![&b])] {
            assert_eq!(lookup.get(&key.into()).collect::<Vec<_>>(), objects, "{key}");
        }
        let mut exact = Lookup::exact();
        exact.moved(&a, &set(&[]), &set(&["x"]));
        // Where it was deleted, and under which other keys, has not been seen.
        exact.moved(&a, &set(&["y"]), &set(&["z"]));
        exact.moved(&b, &set(&[]), &set(&["z"]));
        for (key, objects) in [("x", vec![]), ("y", vec![]), ("z", vec![&a, &b])] {
            assert_eq!(exact.get(&key.into()).collect::<Vec<_>>(), objects, "{key}");
        }
        exact.retain(|object| *object != a);
        exact.moved(&b, &set(&[]), &set(&[]));
        assert!(exact.is_empty() && exact.known.is_some_and(|known| known.is_empty()));
        lookup.retain(|object| *object != b);
        let one = EACH + "x".len();
        assert_eq!((lookup.len(), lookup.bytes()), (1, one));
        lookup.moved(&a, &set(&["x"]), &set(&[]));
        lookup.moved(&a, &set(&["x"]), &set(&[]));
        assert!(lookup.is_empty() && lookup.bytes() == 0);
    }
}

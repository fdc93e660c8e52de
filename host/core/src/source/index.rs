//! Keeps which objects were seen under a key (IX, IM-4).

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::object::ObjectRef;

/// The objects under each key. An object may be under many keys, and a key may have many objects.
#[derive(Clone, Debug)]
pub struct Lookup<K>(BTreeSet<(K, ObjectRef)>);

// === impl Lookup ===

impl<K> Default for Lookup<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Ord + Clone> Lookup<K> {
    /// Moves an object from the keys that it had `before` to the keys that it has `after`.
    pub fn moved(&mut self, object: &ObjectRef, before: &BTreeSet<K>, after: &BTreeSet<K>) {
        for key in before.difference(after) {
            self.0.remove(&(key.clone(), object.clone()));
        }
        for key in after {
            self.0.insert((key.clone(), object.clone()));
        }
    }

    /// Returns the objects under a key, ordered by namespace and name.
    pub fn get(&self, key: &K) -> impl Iterator<Item = &ObjectRef> {
        let first = (key.clone(), ObjectRef::cluster(""));
        let range = self.0.range((Bound::Included(&first), Bound::Unbounded));
        // The range borrows only from the set: its start may be moved.
        range.take_while(move |(other, _)| *other == first.0).map(|(_, object)| object)
    }

    /// Keeps only the objects that `keep` accepts.
    pub fn retain(&mut self, keep: impl Fn(&ObjectRef) -> bool) {
        self.0.retain(|(_, object)| keep(object));
    }

    /// Returns the number of pairs of key and object.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no object is under any key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_moves_between_keys() {
        let [a, b] = ["a", "b"].map(|name| ObjectRef::namespaced("n", name));
        let set = |keys: &[&'static str]| keys.iter().copied().collect::<BTreeSet<_>>();
        let mut lookup = Lookup::default();
        lookup.moved(&b, &set(&[]), &set(&["x", "y"]));
        lookup.moved(&a, &set(&[]), &set(&["x"]));
        assert_eq!(lookup.get(&"x").collect::<Vec<_>>(), [&a, &b]);
        lookup.moved(&b, &set(&["x", "y"]), &set(&["y", "z"]));
        for (key, objects) in [("w", vec![]), ("x", vec![&a]), ("y", vec![&b]), ("z", vec![&b])] {
            assert_eq!(lookup.get(&key).collect::<Vec<_>>(), objects, "{key}");
        }
        lookup.retain(|object| *object != b);
        lookup.moved(&a, &set(&["x"]), &set(&[]));
        assert!(lookup.is_empty());
    }
}

//! Decides which objects of a bounded source are in memory whole: those that came or were read last, within bounds (BC).

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

use crate::manifest::Bound;
use crate::object::{Object, ObjectRef, Version};
use crate::room::Holding;
use crate::room::charge::Charge;

/// What an entry takes beside the text.
const EACH: usize = 512;

/// The objects that came or were read last. An older version of an object than the cache has is never returned.
#[derive(Debug)]
pub(super) struct Recent {
    bound: Bound,
    objects: HashMap<ObjectRef, Entry>,
    /// The keys by their last use.
    order: BTreeMap<u64, ObjectRef>,
    /// The number of the last use.
    uses: u64,
    /// The memory that the plugin borrows for them.
    taken: Charge,
}

#[derive(Debug)]
struct Entry {
    object: Object,
    number: u64,
    used: Instant,
}

impl Recent {
    pub(super) fn new(bound: Bound) -> Self {
        Self { bound, objects: HashMap::new(), order: BTreeMap::new(), uses: 0, taken: Charge::default() }
    }

    /// Lets the plugin borrow the memory: what finds none is not remembered.
    pub(super) fn charge(&mut self, holding: Option<Holding>) {
        self.taken = Charge::by(holding);
    }

    /// Returns an object, if it is there and at least as new as `version`, and notes its use.
    pub(super) fn get(&mut self, key: &ObjectRef, version: Version, now: Instant) -> Option<Object> {
        self.expire(now);
        let object = self.objects.get(key)?.object.clone();
        if object.version() < version {
            self.remove(key);
            return None;
        }
        self.touch(key, now);
        Some(object)
    }

    /// Takes in an object, unless a newer version is there, and forgets what is beyond the bounds then.
    pub(super) fn put(&mut self, object: Object, now: Instant) {
        let key = object.key().clone();
        if self.objects.get(&key).is_some_and(|known| known.object.version() > object.version()) {
            return;
        }
        self.remove(&key);
        if !self.taken.set(self.taken.bytes() + size(&object)) {
            return;
        }
        self.objects.insert(key.clone(), Entry { object, number: 0, used: now });
        self.touch(&key, now);
        self.expire(now);
        while self.objects.len() > self.bound.objects || self.taken.bytes() > self.bound.bytes as u64 {
            let Some((_, oldest)) = self.order.first_key_value() else {
                break;
            };
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
    }

    /// Forgets an object.
    pub(super) fn remove(&mut self, key: &ObjectRef) {
        if let Some(Entry { object, number, .. }) = self.objects.remove(key) {
            self.order.remove(&number);
            self.taken.give_back(size(&object));
        }
    }

    /// Returns how many objects there are.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    fn touch(&mut self, key: &ObjectRef, now: Instant) {
        if let Some(entry) = self.objects.get_mut(key) {
            self.order.remove(&entry.number);
            self.uses += 1;
            (entry.number, entry.used) = (self.uses, now);
            self.order.insert(self.uses, key.clone());
        }
    }

    /// Forgets what has not been used for too long.
    fn expire(&mut self, now: Instant) {
        let Some(unused) = self.bound.unused else {
            return;
        };
        while let Some((_, oldest)) = self.order.first_key_value() {
            let used = self.objects.get(oldest).map(|entry| entry.used);
            if used.is_some_and(|used| now.saturating_duration_since(used) < unused) {
                return;
            }
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
    }
}

fn size(object: &Object) -> u64 {
    (EACH + object.size()) as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::object::{Gvk, Managers};

    fn object(name: &str, version: u64, size: usize) -> Object {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}},"data":"{}"}}"#,
            "x".repeat(size)
        );
        Object::parse(&text, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
    }

    fn names(recent: &Recent) -> String {
        recent.order.values().map(|key| &*key.name).collect()
    }

    #[test]
    fn what_was_used_last_is_there_within_the_bounds() {
        // BC-1
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let key = ObjectRef::cluster;
        let mut recent = Recent::new(Bound { objects: 3, bytes: 10_000, unused: Some(Duration::from_mins(1)) });
        for name in ["a", "b", "c"] {
            recent.put(object(name, 1, 10), at(0));
        }
        assert!(recent.get(&key("a"), Version(1), at(1)).is_some());
        recent.put(object("d", 1, 10), at(2));
        assert_eq!(names(&recent), "cad", "by number");
        recent.put(object("e", 1, 8_500), at(3));
        assert_eq!(names(&recent), "de", "by bytes");
        recent.put(object("f", 1, 20_000), at(3));
        assert_eq!((names(&recent).as_str(), recent.taken.bytes()), ("", 0), "too large for any");
        recent.put(object("a", 5, 10), at(4));
        recent.put(object("a", 4, 10), at(4));
        recent.put(object("b", 1, 10), at(60));
        let version = |found: Option<Object>| found.map(|object| object.version().0);
        assert_eq!(version(recent.get(&key("a"), Version(4), at(60))), Some(5), "the newer one stays");
        assert_eq!(version(recent.get(&key("b"), Version(2), at(60))), None, "the cache has a newer one");
        assert_eq!(version(recent.get(&key("a"), Version(5), at(120))), None, "not used for long");
        assert_eq!((recent.len(), recent.order.len(), recent.taken.bytes()), (0, 0, 0));
    }
}

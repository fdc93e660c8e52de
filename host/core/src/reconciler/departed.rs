//! Keeps the last known objects of primaries that are gone, until a run about that has succeeded (AE rules).

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::object::{Object, ObjectRef};
use crate::room::Holding;

/// The most bytes of all objects of a controller, in all-events mode: what is beyond is not run for.
const MOST: u64 = 32 << 20;

/// The memory that an object takes besides its text, in bytes.
const EACH: u64 = 512;

/// The last known objects of a controller. Their memory is borrowed by its plugin, and given back when they go.
#[derive(Default)]
pub struct Departed(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    objects: HashMap<ObjectRef, Object>,
    bytes: u64,
    holding: Option<Holding>,
}

impl Departed {
    /// Keeps the last known object of a primary that is gone, in place of an earlier one of the same name. `holding`
    /// returns the memory to borrow from, and is called for the first object. Returns false if there is no room for it;
    /// then nothing is kept under its name.
    #[must_use]
    pub fn keep(&self, last: &Object, holding: impl FnOnce() -> Option<Holding>) -> bool {
        let mut kept = self.0.lock();
        kept.forget(last.key());
        let size = size(last);
        if kept.bytes + size > MOST {
            return false;
        }
        if kept.holding.is_none() {
            kept.holding = holding();
        }
        if let Some(holding) = &mut kept.holding
            && !holding.try_grow(size)
        {
            return false;
        }
        kept.bytes += size;
        kept.objects.insert(last.key().clone(), last.clone());
        true
    }

    /// Returns the last known object of a primary that is gone.
    pub fn get(&self, key: &ObjectRef) -> Option<Object> {
        self.0.lock().objects.get(key).cloned()
    }

    /// Whether the last known object of a primary is kept.
    pub fn has(&self, key: &ObjectRef) -> bool {
        self.0.lock().objects.contains_key(key)
    }

    /// Forgets an object, after a run about it that has succeeded; not one that has come under the same name since.
    pub fn forget(&self, last: &Object) {
        let mut kept = self.0.lock();
        if kept.objects.get(last.key()).is_some_and(|other| other.header().uid == last.header().uid) {
            kept.forget(last.key());
        }
    }

    /// Forgets what is kept under a name.
    pub fn forget_named(&self, key: &ObjectRef) {
        self.0.lock().forget(key);
    }

    /// Forgets all objects for which `keep` returns false.
    pub fn retain(&self, keep: impl Fn(&ObjectRef) -> bool) {
        let mut kept = self.0.lock();
        let gone: Vec<_> = kept.objects.keys().filter(|key| !keep(key)).cloned().collect();
        for key in gone {
            kept.forget(&key);
        }
    }
}

impl Kept {
    fn forget(&mut self, key: &ObjectRef) {
        if let Some(last) = self.objects.remove(key) {
            let size = size(&last);
            self.bytes -= size;
            if let Some(holding) = &mut self.holding {
                holding.shrink(size);
            }
        }
        if self.objects.is_empty() {
            // The next version of the plugin may be another.
            self.holding = None;
        }
    }
}

fn size(object: &Object) -> u64 {
    EACH + u64::try_from(object.json().len()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers};
    use crate::room::Room;

    fn page(name: &str, uid: &str, length: usize) -> Object {
        let gvk = Gvk::parse("sample.dev/v1", "Page").unwrap();
        let text = format!(r#"{{"metadata":{{"name":"{name}","uid":"{uid}"}},"text":"{}"}}"#, "x".repeat(length));
        Object::parse(&text, &gvk, &Managers::default()).unwrap()
    }

    #[test]
    fn the_last_object_of_a_name_is_kept_until_its_own_run_is_done() {
        // AE-2, AE-3
        let departed = Departed::default();
        let (first, second) = (page("a", "1", 0), page("a", "2", 0));
        for last in [&first, &second] {
            assert!(departed.keep(last, || None));
            assert_eq!(departed.get(last.key()).as_ref(), Some(last));
        }
        departed.forget(&first);
        assert!(departed.has(second.key()), "it has come since");
        departed.forget(&second);
        assert_eq!(departed.get(second.key()), None);
    }

    #[test]
    fn what_is_kept_is_borrowed_and_bounded() {
        let room = Room::new(4_000);
        let departed = Departed::default();
        let keep = |name: &str, length| departed.keep(&page(name, name, length), || Some(room.holding(&"p".into())));
        assert!(keep("a", 2_000));
        assert!(!keep("b", 2_000), "the plugins' memory is used up");
        assert!(!keep("a", 4_000), "and nothing is kept in its place");
        assert!(!departed.has(page("a", "a", 0).key()));
        assert!(keep("b", 2_000));
        departed.retain(|_| false);
        assert!(keep("c", 2_000), "all is given back");

        let unbounded = Departed::default();
        let kept = (0..40).filter(|n| unbounded.keep(&page(&n.to_string(), "u", 1 << 20), || None)).count();
        assert_eq!(kept, 31);
    }
}

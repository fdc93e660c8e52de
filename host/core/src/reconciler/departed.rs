//! Keeps the last known objects of primaries that are gone, until a run about that has succeeded (AE rules).

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::object::{Object, ObjectRef};
use crate::room::Holding;
use crate::room::charge::Charge;

/// The most bytes of all objects of a controller, in all-events mode: of what is beyond, only names are kept.
const MOST: u64 = 32 << 20;

/// The most bytes of objects and names: what is beyond is not run for.
const NAMES: u64 = MOST + (8 << 20);

/// The memory that an object takes besides its text, in bytes.
const EACH: u64 = 512;

/// The last known objects of a controller. Their memory is borrowed by its plugin, and given back when they go.
#[derive(Default)]
pub struct Departed(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    objects: HashMap<ObjectRef, Object>,
    taken: Charge,
}

/// What is kept of a primary that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Its last known object.
    Whole,
    /// Its type, name, uid, version and generation.
    Name,
    /// Nothing.
    Nothing,
}

impl Departed {
    /// Returns the number of primaries that are gone, and about which no run has succeeded.
    pub fn len(&self) -> usize {
        self.0.lock().objects.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps the last known object of a primary that is gone, in place of an earlier one of the same name; if there is no
    /// room for it, what tells it from others. `holding` returns the memory to borrow from, and is called for the first
    /// object. Returns what is kept; nothing under its name, if there is no room for that, either.
    #[must_use]
    pub fn keep(&self, last: &Object, holding: impl FnOnce() -> Option<Holding>) -> Trace {
        let mut kept = self.0.lock();
        kept.forget(last.key());
        kept.taken.begin(holding);
        if kept.take(last, MOST) {
            return Trace::Whole;
        }
        // Primaries whose runs fail may have taken it all.
        match last.bare() {
            Ok(bare) if kept.take(&bare, NAMES) => Trace::Name,
            Ok(_) | Err(_) => Trace::Nothing,
        }
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
    fn take(&mut self, object: &Object, most: u64) -> bool {
        let bytes = self.taken.bytes() + size(object);
        let fits = bytes <= most && self.taken.set(bytes);
        if fits {
            self.objects.insert(object.key().clone(), object.clone());
        }
        fits
    }

    fn forget(&mut self, key: &ObjectRef) {
        if let Some(last) = self.objects.remove(key) {
            self.taken.give_back(size(&last));
        }
        if self.objects.is_empty() {
            // The next version of the plugin may be another.
            self.taken = Charge::default();
        }
    }
}

fn size(object: &Object) -> u64 {
    EACH + u64::try_from(object.size()).unwrap_or(u64::MAX / 2)
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
            assert_eq!(departed.keep(last, || None), Trace::Whole);
            assert_eq!(departed.get(last.key()).as_ref(), Some(last));
        }
        departed.forget(&first);
        assert!(departed.has(second.key()), "it has come since");
        departed.forget(&second);
        assert_eq!(departed.get(second.key()), None);
    }

    #[test]
    fn what_is_kept_is_borrowed_and_bounded_and_of_what_finds_no_room_the_name_is_kept() {
        // AE-2
        use Trace::{Name, Nothing, Whole};
        let room = Room::new(6_400);
        let departed = Departed::default();
        let keep = |name: &str, length| departed.keep(&page(name, name, length), || Some(room.holding(&"p".into())));
        assert_eq!(keep("a", 2_000), Whole);
        assert_eq!(keep("b", 2_000), Name, "the plugins' memory is used up");
        let kept = departed.get(page("b", "b", 0).key()).unwrap();
        let bare =
            r#"{"apiVersion":"sample.dev/v1","kind":"Page","metadata":{"name":"b","resourceVersion":"0","uid":"b"}}"#;
        assert_eq!(kept.json(), bare);
        let names = (0..100).map(|n| keep(&n.to_string(), 2_000)).take_while(|kept| *kept == Name).count();
        assert!((1..10).contains(&names), "{names}");
        assert_eq!((keep("d", 2_000), departed.len()), (Nothing, 2 + names));
        assert_eq!(keep("b", 4_000), Name, "in place of what was there");
        departed.retain(|_| false);
        assert_eq!(keep("c", 2_000), Whole, "all is given back");

        let unbounded = Departed::default();
        let large = (0..40).filter(|n| unbounded.keep(&page(&n.to_string(), "u", 1 << 20), || None) == Whole).count();
        assert_eq!((large, unbounded.len()), (31, 40));
    }
}

//! The cached objects of one informer: decides what a watch event or a list changes, and keeps the objects as JSON
//! text beside a small header, or packed.
//!
//! An informer has one kind, one namespace or all of them, and one set of selectors. Its task owns the [`Writer`];
//! all others read through clones of the [`Cache`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering as Memory};

use parking_lot::RwLock;

use crate::object::fields::Fields;
use crate::object::{Change, Object, ObjectRef, Version};
use crate::room::Holding;

mod packing;
mod slot;

use packing::Packing;
use slot::Slot;

/// The most objects of which it is noted that they can't be read; the cache is incomplete if there are more.
const MOST_UNREADABLE: usize = 1000;

/// The approximate bytes that such a note takes beside the name.
const NOTE: usize = 128;

/// The reading end: cheap to clone, never waits for more than one event to be applied.
#[derive(Clone, Default)]
pub struct Cache(Arc<Shared>);

/// The writing end. There is one per cache, in the informer's task.
///
/// A cache may be bounded in bytes. An object that does not fit is left out, and a known object that has grown too
/// much stays as it was: neither is ever taken for deleted. The cache is then incomplete, until a list in which
/// everything fits.
///
/// An object that can't be read also stays as it was. [`Cache::unreadable`] returns its key until it can be read or
/// is gone; if there are too many, or there is no room to note it, it counts as left out.
#[derive(Debug)]
pub struct Writer {
    cache: Cache,
    /// The number of the list under way, or of the last one.
    list: u32,
    /// The fields that are kept of objects; what a change shows of a new one may be more.
    fields: Fields,
    packing: Packing,
    /// The most bytes that all objects may take.
    bound: usize,
    /// Their shares of memory that caches have together: of each, there has to be enough.
    holdings: Vec<Holding>,
    /// True if an object of the list under way has been left out.
    short: bool,
    /// True if that was for want of memory.
    full: bool,
    /// True if an object of the list under way has no readable key: it may be any object that the list does not
    /// mention.
    nameless: bool,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// `ADDED` or `MODIFIED`: the present object.
    Applied(Object),
    /// `DELETED`: the last state of the object.
    Deleted(Object),
    /// `BOOKMARK`: everything up to this version has been sent.
    Bookmark(Version),
}

#[derive(Default)]
struct Shared {
    objects: RwLock<Objects>,
    /// Everything up to this version is in `objects`. Written with `objects` locked; read without that lock where
    /// another lock is held.
    version: AtomicU64,
    synced: AtomicBool,
    /// The size of the objects in bytes; written with `objects` locked.
    bytes: AtomicUsize,
    /// True if an object has been left out.
    incomplete: AtomicBool,
}

#[derive(Clone, Default)]
struct Objects {
    /// Ordered by key, so that lists need no sorting and a namespace is one range of it. A slot is found by the key in
    /// its object's own header: there is no second copy of any name.
    slots: BTreeSet<Slot>,
    /// The objects whose newest version can't be read, with the list that mentioned them last.
    unreadable: BTreeMap<ObjectRef, u32>,
}

/// The versions up to which a cache shows its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    synced: Version,
    /// The objects that are shown in an older version, or not.
    older: BTreeSet<ObjectRef>,
}

impl Seen {
    /// Returns that all objects are shown up to a version.
    pub fn up_to(synced: Version) -> Self {
        Self { synced, older: BTreeSet::new() }
    }

    /// Returns the version up to which an object is shown: zero if its newest version can't be read or has found no room, because an
    /// older one is shown then, or none.
    pub fn of(&self, object: &ObjectRef) -> Version {
        if self.older.contains(object) { Version::default() } else { self.synced }
    }
}

// === impl Cache ===

impl Cache {
    /// Returns an object; `None` if it is not there, or is in a namespace that is not watched (`IN-4`).
    pub fn get(&self, key: &ObjectRef) -> Option<Object> {
        self.look(key).0
    }

    /// Returns an object, together with the version up to which the cache shows it ([`Seen::of`]).
    pub fn look(&self, key: &ObjectRef) -> (Option<Object>, Version) {
        let Objects { slots, unreadable } = &*self.0.objects.read();
        let slot = slots.get(key);
        let older = unreadable.contains_key(key) || slot.is_some_and(|slot| slot.outgrown);
        (slot.map(|slot| slot.stored.object()), if older { Version::default() } else { self.version() })
    }

    /// Returns all objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Object> {
        self.snapshot(None).0
    }

    /// Returns the objects of one namespace, or of all (`None`), ordered by namespace and name, together with the
    /// versions up to which the cache shows them.
    pub fn snapshot(&self, namespace: Option<&str>) -> (Vec<Object>, Seen) {
        let Objects { slots, unreadable } = &*self.0.objects.read();
        let mut older: BTreeSet<_> = unreadable.keys().cloned().collect();
        let mut shown = |slot: &Slot| {
            if slot.outgrown {
                older.insert(slot.key().clone());
            }
            slot.stored.object()
        };
        let found = match namespace {
            None => slots.iter().map(shown).collect(),
            Some(namespace) => {
                let first = ObjectRef::namespaced(namespace, "");
                let range = slots.range::<ObjectRef, _>((Bound::Included(&first), Bound::Unbounded));
                let inside = range.take_while(|slot| slot.key().namespace.as_deref() == Some(namespace));
                inside.map(&mut shown).collect()
            }
        };
        (found, Seen { synced: self.version(), older })
    }

    /// Returns a cache that shows, and goes on showing, what this one shows now. It shares the objects, and counts none of their bytes.
    #[must_use]
    pub fn frozen(&self) -> Self {
        let Shared { objects, version, synced, incomplete, .. } = &*self.0;
        let locked = objects.read();
        let flag = |flag: &AtomicBool| AtomicBool::new(flag.load(Memory::Acquire));
        let shared = Shared {
            objects: RwLock::new(locked.clone()),
            version: AtomicU64::new(version.load(Memory::Acquire)),
            synced: flag(synced),
            bytes: AtomicUsize::default(),
            incomplete: flag(incomplete),
        };
        Self(Arc::new(shared))
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.0.objects.read().slots.len()
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.0.objects.read().slots.is_empty()
    }

    /// Returns the last synced version: everything up to it has been seen. Zero before the first list has ended.
    /// Takes no lock.
    pub fn version(&self) -> Version {
        Version(self.0.version.load(Memory::Acquire))
    }

    /// Returns the approximate size of the objects in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes.load(Memory::Relaxed)
    }

    /// Returns true if the cache has everything that was seen: nothing has been left out because the cache was full.
    pub fn is_complete(&self) -> bool {
        !self.0.incomplete.load(Memory::Acquire)
    }

    /// Returns the keys of objects whose newest version can't be read; readers get an older version of them.
    pub fn unreadable(&self) -> Vec<ObjectRef> {
        self.0.objects.read().unreadable.keys().cloned().collect()
    }

    /// Returns the number of these objects.
    pub fn unreadable_count(&self) -> usize {
        self.0.objects.read().unreadable.len()
    }

    /// Returns true if the newest version of this object can't be read.
    pub fn is_unreadable(&self, key: &ObjectRef) -> bool {
        self.0.objects.read().unreadable.contains_key(key)
    }

    /// Returns true if the cache is synced: a first list has ended.
    pub fn is_synced(&self) -> bool {
        self.0.synced.load(Memory::Acquire)
    }
}

impl fmt::Debug for Cache {
    /// Writes the size and the version, not the objects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({} objects@{})", self.len(), self.version())
    }
}

// === impl Writer ===

impl Default for Writer {
    /// Returns the writer of an empty cache without a bound.
    fn default() -> Self {
        Self::bounded(usize::MAX)
    }
}

impl Writer {
    /// Returns the writer of an empty cache whose objects may take `bound` bytes.
    pub fn bounded(bound: usize) -> Self {
        let (cache, fields, packing) = (Cache::default(), Fields::whole(), Packing::default());
        Self {
            cache,
            list: 0,
            fields,
            packing,
            bound,
            holdings: Vec::new(),
            short: false,
            full: false,
            nameless: false,
        }
    }

    /// Returns the writer with one more share in memory that caches have together.
    #[must_use]
    pub fn sharing(mut self, holding: Holding) -> Self {
        self.holdings.push(holding);
        self
    }

    /// Keeps only these fields of objects that come in from now on.
    pub fn keep(&mut self, fields: Fields) {
        self.fields = fields;
    }

    /// Returns a reader.
    pub fn cache(&self) -> Cache {
        self.cache.clone()
    }

    /// Takes in a watch event and returns the change. `None` for a version that is already known, an object that does
    /// not fit, the deletion of an object that is not there, and a bookmark.
    pub fn apply(&mut self, event: Event) -> Option<Change> {
        match event {
            Event::Applied(object) => {
                let version = object.version();
                self.replace(object, version)
            }
            Event::Deleted(last) => {
                let known = self.take_out(last.key(), last.version());
                known.map(|_| Change::Deleted { last, unknown: false })
            }
            Event::Bookmark(version) => {
                let _guard = self.cache.0.objects.write();
                self.advance(version);
                None
            }
        }
    }

    /// Takes in that the newest version of an object can't be read: the last readable one stays. An object without a
    /// readable key (`None`) may be any object, so all objects that the list under way does not mention count as
    /// there. Returns false if the object was already known as unreadable.
    pub fn quarantine(&mut self, object: Option<&ObjectRef>) -> bool {
        let Some(key) = object else {
            return !std::mem::replace(&mut self.nameless, true);
        };
        let (list, shared) = (self.list, Arc::clone(&self.cache.0));
        let Objects { slots, unreadable } = &mut *shared.objects.write();
        if let Some(slot) = slots.take(key) {
            slots.insert(Slot { list, ..slot });
        }
        if let Some(seen) = unreadable.get_mut(key) {
            *seen = list;
            return false;
        }
        if unreadable.len() >= MOST_UNREADABLE {
            self.leave_out();
            return false;
        }
        if !self.takes(0, note(key)) {
            self.leave_out_for_room();
            return false;
        }
        unreadable.insert(key.clone(), list);
        true
    }

    /// Whether something has been left out for want of memory since the last list began.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Takes in that an object is left out for want of memory.
    fn leave_out_for_room(&mut self) {
        self.full = true;
        self.leave_out();
    }

    /// Takes in that an object is left out.
    fn leave_out(&mut self) {
        self.short = true;
        self.cache.0.incomplete.store(true, Memory::Release);
    }

    /// Forgets that an object can't be read. The caller holds the lock on `objects`.
    fn forget_unreadable(&mut self, unreadable: &mut BTreeMap<ObjectRef, u32>, key: &ObjectRef) {
        if unreadable.remove(key).is_some() {
            self.give_back(note(key));
        }
    }

    /// Takes in that an object is gone whose last version can't be read. Returns the change; `None` if the object was
    /// not in the cache.
    pub fn lose(&mut self, key: &ObjectRef) -> Option<Change> {
        let slot = self.take_out(key, Version::default())?;
        Some(Change::Deleted { last: slot.stored.object(), unknown: true })
    }

    fn take_out(&mut self, key: &ObjectRef, synced: Version) -> Option<Slot> {
        let shared = Arc::clone(&self.cache.0);
        let mut objects = shared.objects.write();
        let known = objects.slots.take(key);
        if let Some(slot) = &known {
            self.give_back(slot.size());
        }
        self.advance(synced);
        self.forget_unreadable(&mut objects.unreadable, key);
        known
    }

    /// Begins a list. A list that was begun before and not finished is forgotten.
    pub fn start_list(&mut self) {
        self.list = self.list.wrapping_add(1);
        (self.short, self.full, self.nameless) = (false, false, false);
    }

    /// Takes in an object of the list at once, so that there is never a second set of objects. Returns the change;
    /// `None` for a version that is already known, and for an object that does not fit.
    ///
    /// The last synced version stays: older objects may still be missing in a list that is not finished.
    pub fn list_item(&mut self, object: Object) -> Option<Change> {
        self.replace(object, Version::default())
    }

    /// Ends the list, which was taken at `version`. Returns deletions for all objects that it did not mention; their
    /// final states were not seen.
    pub fn finish_list(&mut self, version: Version) -> Vec<Change> {
        let shared = Arc::clone(&self.cache.0);
        let Shared { objects, version: synced_version, synced, incomplete, .. } = &*shared;
        let Objects { slots, unreadable } = &mut *objects.write();
        let (list, nameless) = (self.list, self.nameless);
        let gone = slots.extract_if(.., |slot| slot.list != list && !nameless);
        let changes = gone
            .map(|slot| {
                self.give_back(slot.size());
                Change::Deleted { last: slot.stored.object(), unknown: true }
            })
            .collect();
        for (key, _) in unreadable.extract_if(.., |_, seen| *seen != list && !nameless) {
            self.give_back(note(&key));
        }
        incomplete.store(self.short, Memory::Release);
        // A list is right even if its version is lower, as after a restored backup.
        synced_version.store(version.0, Memory::Release);
        synced.store(true, Memory::Release);
        changes
    }

    fn replace(&mut self, object: Object, synced: Version) -> Option<Change> {
        let new = object;
        let stored = self.packing.store(new.clone().cut(&self.fields));
        let slot = Slot { stored, list: self.list, outgrown: false };
        let shared = Arc::clone(&self.cache.0);
        let Objects { slots, unreadable } = &mut *shared.objects.write();
        let known = slots.get(slot.key()).map_or(0, Slot::size);
        if !self.takes(known, slot.size()) {
            // The list mentions the known object, which stays in its old version.
            if let Some(Slot { stored, .. }) = slots.take(slot.key()) {
                slots.insert(Slot { stored, outgrown: true, ..slot });
            }
            self.leave_out_for_room();
            self.advance(synced);
            return None;
        }
        self.forget_unreadable(unreadable, new.key());
        let before = slots.replace(slot);
        self.advance(synced);
        match before {
            None => Some(Change::Added(new)),
            Some(slot) if slot.stored.header().version == new.version() => None,
            Some(slot) => Some(Change::Updated { old: slot.stored.object(), new }),
        }
    }

    /// Takes room for an object in place of its known version; returns false if there is not enough. Known objects
    /// may exceed the bound by an eighth, and what other caches leave by an eighth of what this one has, so that small changes can
    /// be seen: that an object is being deleted, for instance.
    fn takes(&mut self, before: usize, after: usize) -> bool {
        if after <= before {
            self.give_back(before - after);
            return true;
        }
        let (is_new, more) = (before == 0, after - before);
        let bytes = self.cache.bytes() + more;
        let bound = if is_new { self.bound } else { self.bound.saturating_add(self.bound / 8) };
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        let fits = bytes <= bound && self.borrows(more, is_new);
        if fits {
            self.cache.0.bytes.store(bytes, Memory::Relaxed);
        }
        fits
    }

    /// Takes memory of all shares, or of none; returns false if one has not enough.
    fn borrows(&mut self, more: u64, is_new: bool) -> bool {
        let take = |holding: &mut Holding| if is_new { holding.try_grow(more) } else { holding.exceed(more) };
        let Some(lacks) = self.holdings.iter_mut().position(|holding| !take(holding)) else {
            return true;
        };
        self.holdings.iter_mut().take(lacks).for_each(|holding| holding.shrink(more));
        false
    }

    /// Gives room back. The caller holds the lock on `objects`.
    fn give_back(&mut self, less: usize) {
        let bytes = self.cache.bytes().saturating_sub(less);
        self.cache.0.bytes.store(bytes, Memory::Relaxed);
        for holding in &mut self.holdings {
            holding.shrink(u64::try_from(less).unwrap_or(u64::MAX));
        }
    }

    /// Moves the last synced version forward. The caller holds the lock on `objects`.
    fn advance(&self, version: Version) {
        self.cache.0.version.fetch_max(version.0, Memory::AcqRel);
    }
}

/// Returns the approximate bytes that it takes to note that an object can't be read.
fn note(key: &ObjectRef) -> usize {
    NOTE + key.name.len() + key.namespace.as_deref().map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers};
    use crate::room::Room;

    fn object(namespace: &str, name: &str, version: u64) -> Object {
        let json =
            format!(r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","resourceVersion":"{version}"}}}}"#);
        Object::parse(&json, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
    }

    fn keys(objects: &[Object]) -> Vec<String> {
        objects.iter().map(|object| format!("{}@{}", object.key(), object.version())).collect()
    }

    #[test]
    fn an_event_changes_what_it_says_and_nothing_twice() {
        let [one, two, last] = [1, 2, 3].map(|version| object("n", "a", version));
        let mut writer = Writer::default();
        let script = [
            (Event::Applied(one.clone()), Some(Change::Added(one.clone())), Version(1)),
            (Event::Applied(one.clone()), None, Version(1)),
            (Event::Applied(two.clone()), Some(Change::Updated { old: one, new: two }), Version(2)),
            (Event::Deleted(last.clone()), Some(Change::Deleted { last: last.clone(), unknown: false }), Version(3)),
            (Event::Deleted(last), None, Version(3)),
            (Event::Bookmark(Version(9)), None, Version(9)),
            (Event::Bookmark(Version(8)), None, Version(9)),
        ];
        for (event, change, version) in script {
            assert_eq!((writer.apply(event), writer.cache().version()), (change, version));
        }
        assert!(writer.cache().is_empty());
    }

    #[test]
    fn a_list_is_taken_in_page_by_page_and_what_it_lacks_is_gone_at_its_end() {
        // BC-3
        let mut writer = Writer::default();
        let cache = writer.cache();
        for name in ["kept", "changed", "gone"] {
            writer.apply(Event::Applied(object("n", name, 5)));
        }
        assert!(!cache.is_synced());

        writer.start_list();
        let changed = object("n", "changed", 7);
        let new = object("n", "new", 6);
        assert_eq!(writer.list_item(object("n", "kept", 5)), None);
        assert_eq!(
            writer.list_item(changed.clone()),
            Some(Change::Updated { old: object("n", "changed", 5), new: changed })
        );
        assert_eq!(writer.list_item(new.clone()), Some(Change::Added(new)));
        assert_eq!((cache.len(), cache.version()), (4, Version(5)), "an unfinished list promises nothing");

        let gone = Change::Deleted { last: object("n", "gone", 5), unknown: true };
        assert_eq!(writer.finish_list(Version(8)), [gone]);
        assert_eq!(keys(&cache.list()), ["n/changed@7", "n/kept@5", "n/new@6"]);
        assert_eq!((cache.version(), cache.is_synced()), (Version(8), true));
    }

    #[test]
    fn a_list_that_broke_off_and_began_again_deletes_what_only_the_first_had() {
        let mut writer = Writer::default();
        writer.start_list();
        writer.list_item(object("n", "a", 1));
        writer.start_list();
        writer.list_item(object("n", "b", 2));
        let gone = Change::Deleted { last: object("n", "a", 1), unknown: true };
        assert_eq!(writer.finish_list(Version(3)), [gone]);
    }

    fn large(name: &str, version: u64, size: usize) -> Object {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}},"data":"{}"}}"#,
            "x".repeat(size)
        );
        let gvk = Gvk::parse("v1", "ConfigMap").unwrap();
        Object::parse(&json, &gvk, &Managers::default()).unwrap()
    }

    #[test]
    fn what_cant_be_read_stays_as_it_was_and_is_named() {
        let mut writer = Writer::default();
        let (cache, odd) = (writer.cache(), ObjectRef::namespaced("n", "odd"));
        writer.start_list();
        for name in ["kept", "odd", "old"] {
            writer.list_item(object("n", name, 1));
        }
        writer.finish_list(Version(1));

        writer.start_list();
        writer.list_item(object("n", "kept", 1));
        assert!(writer.quarantine(Some(&odd)), "news");
        assert!(!writer.quarantine(Some(&odd)), "known");
        let gone = writer.finish_list(Version(2));
        assert_eq!((gone.len(), keys(&cache.list())), (1, vec!["n/kept@1".into(), "n/odd@1".into()]));
        assert_eq!(cache.unreadable(), std::slice::from_ref(&odd));

        assert!(writer.apply(Event::Applied(object("n", "odd", 3))).is_some());
        assert_eq!(cache.unreadable(), []);
        writer.quarantine(Some(&odd));
        let lost = writer.lose(&odd).map(|change| change.object().version());
        assert_eq!((lost, cache.unreadable()), (Some(Version(3)), vec![]));

        writer.quarantine(Some(&odd));
        writer.start_list();
        assert!(writer.quarantine(None));
        assert_eq!(writer.finish_list(Version(4)), [], "it may be any");
        writer.start_list();
        assert_eq!(writer.finish_list(Version(5)).len(), 1);
        assert_eq!((cache.len(), cache.unreadable()), (0, vec![]));
    }

    #[test]
    fn what_cant_be_read_takes_no_more_memory_than_it_may() {
        // IE-2
        let room = Room::new(1 << 20);
        let mut writer = Writer::bounded(1 << 20).sharing(room.holding(&"c".into()));
        let cache = writer.cache();
        let odd = |n: usize, length: usize| ObjectRef::namespaced("n", &format!("{n:08}{}", "x".repeat(length - 8)));
        writer.start_list();
        for round in 0..2 {
            let news = (0..2 * MOST_UNREADABLE).filter(|n| writer.quarantine(Some(&odd(*n, 8)))).count();
            assert_eq!((news, cache.unreadable_count()), ((1 - round) * MOST_UNREADABLE, MOST_UNREADABLE));
            assert_eq!(cache.bytes(), MOST_UNREADABLE * (NOTE + 9));
            assert!(!cache.is_complete(), "what is not noted may be any");
            assert!(!writer.is_full(), "nobody has to make room");
        }
        assert!(writer.quarantine(None) && !writer.quarantine(None), "told once");
        // What can be read by now, is gone, or is in no list any more is noted no more.
        assert!(writer.apply(Event::Applied(object("n", "00000000", 3))).is_some());
        assert!(writer.lose(&odd(1, 8)).is_none());
        assert_eq!(cache.unreadable_count(), MOST_UNREADABLE - 2);
        writer.start_list();
        writer.finish_list(Version(4));
        assert_eq!((cache.unreadable_count(), cache.bytes(), cache.is_complete()), (0, 0, true));
        // Long names take what they take.
        let news = (0..10).filter(|n| writer.quarantine(Some(&odd(*n, 200 << 10)))).count();
        assert_eq!((news, cache.is_complete(), writer.is_full()), (3, false, true));
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_never_taken_for_deleted() {
        let mut writer = Writer::bounded(10_000);
        let cache = writer.cache();
        let mut applied = |name, version, size| {
            let change = writer.apply(Event::Applied(large(name, version, size)));
            let what = match change {
                None => "nothing",
                Some(Change::Added(_)) => "added",
                Some(Change::Updated { .. }) => "updated",
                Some(Change::Deleted { .. }) => "deleted",
            };
            (what, cache.is_complete())
        };
        assert_eq!(applied("a", 1, 4000), ("added", true));
        assert_eq!(applied("b", 2, 4000), ("added", true));
        assert_eq!(applied("c", 3, 4000), ("nothing", false));
        assert_eq!(applied("a", 4, 5000), ("updated", false), "known ones may grow a little");
        assert_eq!(applied("a", 5, 9000), ("nothing", false));
        assert_eq!(applied("b", 6, 10), ("updated", false));
        assert_eq!(applied("c", 7, 100), ("added", false), "there is room by now");
        assert_eq!(keys(&cache.list()), ["a@4", "b@6", "c@7"]);

        let gone = |changes: Vec<Change>| changes.len();
        for (a, complete) in [(20_000, false), (100, true)] {
            writer.start_list();
            for (name, size) in [("a", a), ("b", 10), ("c", 100)] {
                writer.list_item(large(name, 8, size));
            }
            assert_eq!(gone(writer.finish_list(Version(8))), 0);
            assert_eq!((cache.len(), cache.is_complete()), (3, complete));
        }
        for name in ["a", "b", "c"] {
            writer.apply(Event::Deleted(large(name, 9, 0)));
        }
        assert_eq!(cache.bytes(), 0);
        assert_eq!(writer.apply(Event::Deleted(large("left-out", 9, 0))), None);
    }

    #[test]
    fn lists_are_ordered_by_namespace_and_name() {
        let mut writer = Writer::default();
        for (namespace, name) in [("b", "a"), ("a", "z"), ("ab", "c"), ("a", "b")] {
            writer.apply(Event::Applied(object(namespace, name, 1)));
        }
        let cluster = r#"{"metadata":{"name":"x","resourceVersion":"1"}}"#;
        let gvk = Gvk::parse("v1", "Node").unwrap();
        writer.apply(Event::Applied(Object::parse(cluster, &gvk, &Managers::default()).unwrap()));
        let cache = writer.cache();
        assert_eq!(keys(&cache.list()), ["x@1", "a/b@1", "a/z@1", "ab/c@1", "b/a@1"]);
        assert_eq!(keys(&cache.snapshot(Some("a")).0), ["a/b@1", "a/z@1"]);
        // IN-4
        assert_eq!(cache.snapshot(Some("aa")), (vec![], Seen::up_to(Version(1))));
        assert_eq!(cache.get(&ObjectRef::namespaced("c", "a")), None);
    }

    #[test]
    fn a_cache_takes_of_each_memory_that_it_shares_or_of_none() {
        // CU-1
        let [all, few] = [1 << 20, 40_000].map(Room::new);
        let one = |name: &str| {
            Writer::bounded(usize::MAX).sharing(all.holding(&name.into())).sharing(few.holding(&name.into()))
        };
        let (mut first, mut second) = (one("first"), one("second"));
        let fill = |writer: &mut Writer| {
            (1..100).take_while(|n| writer.apply(Event::Applied(large(&format!("o{n}"), *n, 1_000))).is_some()).count()
        };
        assert!((15..20).contains(&fill(&mut first)));
        assert!((1..5).contains(&fill(&mut second)));
        let taken = first.cache().bytes() + second.cache().bytes();
        assert!(taken <= 40_000, "{taken}");
        // What was refused by the one was given back to the other.
        let left = all.holding(&"third".into()).try_grow((3 << 18) - u64::try_from(taken).unwrap());
        assert!(left);
        drop((first, second));
        assert!(few.holding(&"third".into()).try_grow(30_000));
    }

    #[test]
    fn caches_that_share_leave_something_for_one_another_and_give_back_what_goes() {
        let room = Room::new(40_000);
        let one = |name: &str| Writer::bounded(usize::MAX).sharing(room.holding(&name.into()));
        let (mut large, mut small) = (one("large"), one("small"));
        let put = |writer: &mut Writer, name: &str, version: u64, text: &str| {
            let text = format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"{version}"}},"text":"{text}"}}"#
            );
            let gvk = Gvk::parse("v1", "ConfigMap").unwrap();
            let object = Object::parse(&text, &gvk, &Managers::default()).unwrap();
            writer.apply(Event::Applied(object.clone())).map(|_| object)
        };
        let text = "x".repeat(1_000);
        let stored = (1..100).take_while(|n| put(&mut large, &format!("o{n}"), *n, &text).is_some());
        let stored = stored.count();
        assert!((15..20).contains(&stored), "{stored}");
        assert!(!large.cache().is_complete());
        assert!(put(&mut small, "o", 1, &text).is_some(), "another cache");
        let grown = put(&mut large, "o1", 200, &text.repeat(3));
        assert!(grown.is_some(), "what is known stays true");
        for (version, name) in (300..).zip(["o2", "o3", "o4"]) {
            put(&mut large, name, version, &text.repeat(40));
        }
        let taken = large.cache().bytes();
        assert!(taken < 40_000 + (64 << 10) + 40_000 / 8, "{taken}: however much it grows");
        assert!(put(&mut small, "q", 1, &text).is_some(), "nobody else has less for that");
        for n in 1..=stored {
            let key = ObjectRef::namespaced("n", &format!("o{n}"));
            let last = large.cache().get(&key).unwrap();
            large.apply(Event::Deleted(last));
        }
        assert_eq!(large.cache().bytes(), 0);
        assert!(put(&mut small, "p", 2, &text.repeat(25)).is_some());
    }
}

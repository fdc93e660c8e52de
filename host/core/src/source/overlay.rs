//! Read-your-writes: decides whether the answer of an own write or the cache has the newer version of an object (OV).

use std::collections::{BTreeMap, BTreeSet};

use crate::cache::Seen;
use crate::object::{Change, Object, ObjectRef, Version};

/// The memory that an answer takes beside its text, in bytes.
const EACH: usize = 256;

/// The answers of own writes that the watch has not caught up with yet. Usually empty.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    answers: BTreeMap<ObjectRef, Answer>,
    /// The bytes of their texts.
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Answer {
    version: Version,
    /// `None` if it has found no memory.
    object: Option<Object>,
    /// The primaries that the object belonged to in own writes that the watch has not caught up with.
    mapped: BTreeSet<ObjectRef>,
}

impl Overlay {
    /// Keeps the answer of a write, and the primaries that it belongs to, unless it has no version, the cache has already seen its version
    /// (`synced`), or an answer that is at least as new is there (`OV-1`).
    pub fn put(&mut self, answer: Object, synced: Version, mut mapped: BTreeSet<ObjectRef>) {
        let (key, version) = (answer.key().clone(), answer.version());
        let known = self.answers.get(&key).map(|known| known.version).unwrap_or_default();
        if version > synced.max(known) {
            let bytes = answer.json().len();
            if let Some(before) = self.take(&key) {
                mapped.extend(before.mapped);
            }
            self.bytes += bytes;
            self.answers.insert(key, Answer { version, object: Some(answer), mapped });
        }
    }

    /// Keeps only the version of the answer about an object, and whose it was: there is no memory for the rest.
    pub fn lose(&mut self, key: &ObjectRef) {
        if let Some(answer) = self.take(key) {
            self.answers.insert(key.clone(), Answer { object: None, ..answer });
        }
    }

    /// Returns the version of an answer that has found no memory.
    pub fn lost(&self, key: &ObjectRef) -> Option<Version> {
        self.answers.get(key).filter(|own| own.object.is_none()).map(|own| own.version)
    }

    /// Returns the objects whose answers have found no memory.
    pub fn all_lost(&self) -> impl Iterator<Item = (&ObjectRef, Version)> {
        let lost = self.answers.iter().filter(|(_, own)| own.object.is_none());
        lost.map(|(key, own)| (key, own.version))
    }

    /// Returns all objects with the versions of their answers, with those that have found no memory.
    pub fn versions(&self) -> impl Iterator<Item = (&ObjectRef, Version)> {
        self.answers.iter().map(|(key, own)| (key, own.version))
    }

    /// Drops the answer that a change from the watch, or from a list, has caught up with (`OV-2`). A deletion that was
    /// missed has no version of its own: it happened before `synced`, which the cache has come to. Returns the primaries that the object
    /// belonged to as it was written: no event may have shown that (`IM-5`).
    pub fn saw(&mut self, change: &Change, synced: Version) -> BTreeSet<ObjectRef> {
        let object = change.object();
        let seen = match change {
            Change::Deleted { unknown: true, .. } => synced,
            Change::Added(_) | Change::Updated { .. } | Change::Deleted { unknown: false, .. } => object.version(),
        };
        // Of one that was made in its place, and has gone too, the end of the list tells.
        let is_another = |own: &Answer| own.object.as_ref().is_some_and(|own| own.header().uid != object.header().uid);
        let missed = matches!(change, Change::Deleted { unknown: true, .. });
        let caught_up = |own: &Answer| seen >= own.version && !(missed && is_another(own));
        let dropped =
            if self.answers.get(object.key()).is_some_and(caught_up) { self.take(object.key()) } else { None };
        dropped.map(|own| own.mapped).unwrap_or_default()
    }

    /// Returns the answer about an object. It may be older than the cache: [`newest`] decides that.
    pub fn get(&self, key: &ObjectRef) -> Option<&Object> {
        self.answers.get(key)?.object.as_ref()
    }

    /// Returns all answers, ordered by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &Object> {
        self.answers.values().filter_map(|own| own.object.as_ref())
    }

    /// Drops exactly this answer; a newer one stays. Returns true if the answer was there.
    pub fn remove(&mut self, answer: &Object) -> bool {
        let there = self.get(answer.key()).is_some_and(|own| own.version() == answer.version());
        if there {
            self.take(answer.key());
        }
        there
    }

    fn take(&mut self, key: &ObjectRef) -> Option<Answer> {
        let answer = self.answers.remove(key)?;
        self.bytes -= answer.object.as_ref().map_or(0, |object| object.json().len());
        Some(answer)
    }

    /// Keeps only the answers that `keep` accepts, by object and version.
    pub fn retain(&mut self, keep: impl Fn(&ObjectRef, Version) -> bool) {
        self.answers.retain(|key, own| keep(key, own.version));
        self.bytes = self.iter().map(|own| own.json().len()).sum();
    }

    /// Returns the number of answers, with those that have found no memory.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Returns true if there are no answers.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Returns the memory that they take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + EACH * self.len()
    }
}

/// Returns the newest known version of an object: the answer of an own write if it is newer than all that the cache
/// has seen, else the cached object (`OV-3`).
pub fn newest(own: Option<&Object>, cached: Option<Object>, synced: Version) -> Option<Object> {
    let known = cached.as_ref().map(Object::version).unwrap_or_default();
    match own {
        // The object can be newer than `synced` while a list is read.
        Some(own) if own.version() > synced.max(known) => Some(own.clone()),
        Some(_) | None => cached,
    }
}

/// Returns a list from the cache, with newer versions from own writes, and with objects that only own writes have
/// (`OV-4`). Both lists are ordered by key, and so is the result.
pub fn merge<'a>(own: impl IntoIterator<Item = &'a Object>, cached: Vec<Object>, seen: &Seen) -> Vec<Object> {
    let mut own = own.into_iter().filter(|own| own.version() > seen.of(own.key())).peekable();
    if own.peek().is_none() {
        return cached;
    }
    let mut merged = Vec::with_capacity(cached.len());
    for object in cached {
        while let Some(alone) = own.next_if(|own| own.key() < object.key()) {
            merged.push(alone.clone());
        }
        let same = own.next_if(|own| own.key() == object.key());
        let synced = seen.of(object.key());
        merged.extend(newest(same, Some(object), synced));
    }
    merged.extend(own.cloned());
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cache::{Cache, Event, Writer};
    use crate::object::{Gvk, Managers};

    fn object(name: &str, version: u64) -> Object {
        let json = format!(r#"{{"metadata":{{"namespace":"n","name":"{name}","resourceVersion":"{version}"}}}}"#);
        Object::parse(&json, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
    }

    fn versions<'a>(objects: impl IntoIterator<Item = &'a Object>) -> Vec<(String, u64)> {
        objects.into_iter().map(|object| (object.key().name.to_string(), object.version().0)).collect()
    }

    fn held(overlay: &Overlay) -> Vec<(String, u64)> {
        versions(overlay.iter())
    }

    #[test]
    fn an_answer_is_kept_only_if_nothing_as_new_is_known() {
        // OV-1
        let nameless = r#"{"metadata":{"namespace":"n","name":"a"}}"#;
        let unversioned =
            Object::parse(nameless, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap();
        for (case, first, answer, synced, kept) in [
            ("newer than the cache", None, object("a", 5), 4, Some(5)),
            ("the cache is as far", None, object("a", 5), 5, None),
            ("the cache is further", None, object("a", 5), 6, None),
            ("a newer answer is there", Some(7), object("a", 5), 4, Some(7)),
            ("an equal answer is there", Some(5), object("a", 5), 4, Some(5)),
            ("an older answer is there", Some(5), object("a", 6), 4, Some(6)),
            ("no version", None, unversioned, 0, None),
        ] {
            let mut overlay = Overlay::default();
            if let Some(first) = first {
                overlay.put(object("a", first), Version(0), BTreeSet::new());
            }
            overlay.put(answer, Version(synced), BTreeSet::new());
            assert_eq!(overlay.iter().next().map(|object| object.version().0), kept, "{case}");
        }
    }

    #[test]
    fn an_event_as_new_removes_the_answer() {
        // OV-2
        let updated = |version| Change::Updated { old: object("a", version - 1), new: object("a", version) };
        let deleted = |version, unknown| Change::Deleted { last: object("a", version), unknown };
        for (case, change, left) in [
            ("older", updated(4), 1),
            ("equal", updated(5), 0),
            ("newer", updated(6), 0),
            ("another object", Change::Added(object("b", 9)), 1),
            ("older deletion", deleted(4, false), 1),
            ("newer deletion", deleted(6, false), 0),
            ("missed deletion", deleted(4, true), 0),
            ("missed deletion before the write", deleted(3, true), 1),
        ] {
            let mut overlay = Overlay::default();
            overlay.put(object("a", 5), Version(0), BTreeSet::new());
            // What was missed is one version older than the list that misses it.
            let synced = Version(change.object().version().0 + 1);
            drop(overlay.saw(&change, synced));
            assert_eq!(overlay.iter().count(), left, "{case}");
        }
    }

    #[test]
    fn a_read_prefers_the_answer_until_the_cache_has_come_as_far() {
        // OV-3
        for (own, cached, synced, expected) in [
            (None, Some(3), 9, Some(3)),
            (Some(5), None, 4, Some(5)),
            (Some(5), Some(3), 4, Some(5)),
            (Some(5), Some(3), 5, Some(3)),
            (Some(5), None, 6, None),
            (Some(5), Some(7), 4, Some(7)), // while a list is taken in
        ] {
            let own = own.map(|version| object("a", version));
            let cached = cached.map(|version| object("a", version));
            let read = newest(own.as_ref(), cached, Version(synced));
            assert_eq!(read.map(|object| object.version().0), expected);
        }
    }

    #[test]
    fn a_list_holds_the_newer_of_both_and_what_only_one_has() {
        // OV-4
        let own = [
            object("a", 11),
            object("c", 12),
            object("d", 9),
            object("dd", 10), // a ghost: the cache is as far and does not have it
            object("f", 13),
        ];
        let cached = vec![object("b", 1), object("c", 2), object("d", 3), object("e", 4)];
        let merged = merge(&own, cached, &Seen::up_to(Version(10)));
        let expected = [("a", 11), ("b", 1), ("c", 12), ("d", 3), ("e", 4), ("f", 13)];
        assert_eq!(versions(&merged), expected.map(|(name, version)| (name.to_owned(), version)));
    }

    /// A server with two objects, and a cache that gets the event of each write later, or a list that may be old.
    #[derive(Default)]
    struct World {
        version: u64,
        server: BTreeMap<&'static str, Object>,
        /// The states of the server that the cache has not come to.
        states: Vec<(u64, BTreeMap<&'static str, Object>)>,
        late: std::collections::VecDeque<Event>,
        writer: Writer,
        overlay: Overlay,
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Own(&'static str),
        Foreign(&'static str),
        Delete(&'static str),
        Deliver,
        /// The watch is lost, and a list shows the state after so many of the changes that are late.
        List(usize),
    }

    impl World {
        fn step(&mut self, step: Step) {
            match step {
                Step::Own(name) => {
                    let answer = self.write(name);
                    self.overlay.put(answer, self.writer.cache().version(), BTreeSet::new());
                }
                Step::Foreign(name) => drop(self.write(name)),
                Step::Delete(name) => {
                    if self.server.remove(name).is_some() {
                        self.version += 1;
                        self.late.push_back(Event::Deleted(object(name, self.version)));
                        self.states.push((self.version, self.server.clone()));
                    }
                }
                Step::Deliver => {
                    if let Some(event) = self.late.pop_front() {
                        self.states.remove(0);
                        let change = self.writer.apply(event);
                        self.saw(change);
                    }
                }
                Step::List(number) => {
                    if self.states.is_empty() {
                        return;
                    }
                    let number = number % self.states.len();
                    let (version, state) = self.states.drain(..=number).next_back().unwrap();
                    self.late.drain(..=number);
                    self.writer.start_list();
                    for object in state.into_values() {
                        let change = self.writer.list_item(object);
                        self.saw(change);
                    }
                    let gone = self.writer.finish_list(Version(version));
                    self.saw(gone);
                    let synced = self.writer.cache().version();
                    self.overlay.retain(|_, version| version > synced);
                }
            }
        }

        fn saw(&mut self, changes: impl IntoIterator<Item = Change>) {
            let synced = self.writer.cache().version();
            for change in changes {
                drop(self.overlay.saw(&change, synced));
            }
        }

        fn write(&mut self, name: &'static str) -> Object {
            self.version += 1;
            let written = object(name, self.version);
            self.server.insert(name, written.clone());
            self.late.push_back(Event::Applied(written.clone()));
            self.states.push((self.version, self.server.clone()));
            written
        }

        fn read(&self) -> Vec<Object> {
            let (cached, seen) = self.writer.cache().snapshot(None);
            merge(self.overlay.iter(), cached, &seen)
        }
    }

    fn step() -> impl Strategy<Value = Step> {
        let name = || prop_oneof![Just("a"), Just("b")];
        prop_oneof![
            name().prop_map(Step::Own),
            name().prop_map(Step::Foreign),
            name().prop_map(Step::Delete),
            Just(Step::Deliver),
            (0..4_usize).prop_map(Step::List),
        ]
    }

    proptest! {
        #[test]
        fn overlay_with_a_late_watch_ends_as_an_eager_watch(steps in prop::collection::vec(step(), 0..60)) {
            let mut world = World::default();
            for step in steps {
                world.step(step);
            }
            while !world.late.is_empty() {
                world.step(Step::Deliver);
            }
            prop_assert_eq!(world.read(), world.server.values().cloned().collect::<Vec<_>>());
            prop_assert_eq!(held(&world.overlay), vec![]);
        }

        #[test]
        fn overlay_never_goes_back_in_time(steps in prop::collection::vec(step(), 0..60)) {
            let mut world = World::default();
            // The newest version of each object that a reader has seen, and the newest own answer.
            let mut seen: BTreeMap<ObjectRef, Version> = BTreeMap::new();
            for step in steps {
                world.step(step);
                let read = world.read();
                for object in &read {
                    let before = seen.insert(object.key().clone(), object.version()).unwrap_or_default();
                    prop_assert!(object.version() >= before, "{:?} after {before}", object);
                }
                if let Step::Own(name) = step {
                    let answer = &world.server[name];
                    prop_assert!(read.contains(answer), "an own write is read at once: {:?}", answer);
                }
                for object in &read {
                    let alone = newest(
                        world.overlay.get(object.key()),
                        world.writer.cache().get(object.key()),
                        Cache::version(&world.writer.cache()),
                    );
                    prop_assert_eq!(alone.as_ref(), Some(object), "get and list agree");
                }
            }
        }
    }
}

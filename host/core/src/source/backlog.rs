//! Keeps the objects about which costly questions are still to be asked: each once, with the change that its events add up to.
//!
//! Questions in CEL would hold up the informer, and with it all other controllers that share it. So what changes is only
//! noted there, and asked about when it is the operator's turn. The namespaces take turns: what changes in one of them, however much, delays
//! others by one object at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::object::{Change, Object, ObjectRef, Version};

/// The most bytes of objects that are kept for questions, beside those that the caches have.
const MOST: usize = 4 << 20;

/// What an object takes that waits, in bytes: its key in each list, and what is known of it beside objects.
pub(super) const EACH: usize = 256;

/// The objects that wait, in each namespace in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    order: Turns,
    waiting: HashMap<ObjectRef, Waiting>,
    /// How many of them are in each namespace; in "", those in none.
    homes: HashMap<Arc<str>, usize>,
    /// What is being asked about.
    asked: Option<Asked>,
    /// The number of the last object that has come.
    last: u64,
    bytes: usize,
    /// True if the caches have less of the objects than what comes.
    apart: bool,
    /// True if the end of each object is to be told, also if another one has its name by then.
    ends: bool,
}

/// A change that there is no room to keep.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) change: Change,
    /// The object before the first change that waited.
    pub(super) first: Option<Object>,
    /// The primaries that are to be told of it besides those of the change.
    pub(super) mapped: BTreeSet<ObjectRef>,
}

/// The order of objects, each with its number.
#[derive(Clone, Debug, Default)]
struct Turns {
    /// Those of each namespace; in "", those in none. None is empty.
    queues: BTreeMap<Arc<str>, VecDeque<(u64, ObjectRef)>>,
    /// The namespaces, the next one first.
    next: VecDeque<Arc<str>>,
    /// The numbers of all.
    numbers: BTreeSet<u64>,
}

/// An object that is being asked about.
#[derive(Clone, Debug)]
struct Asked {
    number: u64,
    key: ObjectRef,
    waiting: Waiting,
    /// True if its look-ups have followed.
    found: bool,
    /// True if it has changed meanwhile, and found no room to wait once more.
    overtaken: bool,
}

/// What waits for one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    /// The object before the first change that waits; `None` if it was new then, or if that is not kept.
    pub(super) first: Option<Object>,
    /// How it is now; `None` if no change of it counts, and only the look-ups have to follow.
    pub(super) now: Option<Now>,
    /// The primaries that get a trigger besides those of the change.
    pub(super) mapped: BTreeSet<ObjectRef>,
    /// True if the change stands for several of different sorts, or it is not known which: a question about one sort
    /// does not decide about it.
    pub(super) mixed: bool,
}

/// How an object is after all changes that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Now {
    /// It is there.
    There(Object),
    /// It is there, as the caches have it, in this version or a later one.
    Cached(Version),
    /// It is gone.
    Gone {
        /// The object as it was last seen.
        last: Object,
        /// True if the deletion itself was missed.
        unknown: bool,
    },
}

impl Backlog {
    /// Returns one for a source whose caches have all of the objects that come, or less (`apart`).
    pub(super) fn new(apart: bool) -> Self {
        Self { apart, ..Self::default() }
    }

    /// Has it tell of the end of each object, as of primaries: what tells one apart that another one has followed is kept in any case (`AE-2`).
    #[must_use]
    pub(super) fn with_ends(self, ends: bool) -> Self {
        Self { ends, ..self }
    }

    /// Returns true if an object waits.
    pub(super) fn waits(&self, key: &ObjectRef) -> bool {
        self.waiting.contains_key(key)
    }

    /// Returns what those that wait take beside objects, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.waiting.len() * EACH
    }

    /// Notes that the look-ups of an object have to follow it.
    pub(super) fn note(&mut self, key: &ObjectRef) {
        if !self.waiting.contains_key(key) {
            self.last += 1;
            self.order.push(self.last, key.clone());
            self.waiting.insert(key.clone(), Waiting::default());
            *self.homes.entry(home(key)).or_default() += 1;
        }
    }

    /// Takes in primaries that have seen an object of theirs while it waits: they are told of what becomes of it, also if it is not theirs any
    /// more by then. Returns false if it does not wait.
    pub(super) fn concerns(&mut self, key: &ObjectRef, primaries: BTreeSet<ObjectRef>) -> bool {
        let waiting = self.waiting.get_mut(key);
        waiting.map(|waiting| waiting.mapped.extend(primaries)).is_some()
    }

    /// Notes a change, and more primaries that are to be told of it. Returns a deletion again if there is no room to keep
    /// it: then it has to be passed on without a question, and nothing of its object waits any more.
    pub(super) fn add(&mut self, change: Change, mapped: BTreeSet<ObjectRef>) -> Option<Refused> {
        let key = change.object().key();
        let more = change.object().held();
        if matches!(change, Change::Deleted { .. }) && self.bytes + more > MOST {
            let waiting = self.remove(key).unwrap_or_default();
            self.bytes -= waiting.bytes(self.apart);
            let Waiting { first, mapped: more, .. } = waiting;
            return Some(Refused { change, first, mapped: more.into_iter().chain(mapped).collect() });
        }
        self.put(change, mapped);
        None
    }

    /// Notes an object as it is: its primaries have not been told of it, for it was not known whose it is.
    pub(super) fn add_again(&mut self, object: Object) {
        let key = object.key().clone();
        self.put(Change::Added(object), BTreeSet::new());
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.mixed = true;
        }
    }

    /// Notes an object of which somebody else has to say whose it is than who was asked: with its change, if that is what was asked about.
    pub(super) fn ask_another(&mut self, object: &Object) {
        let asked = self.asked.as_ref().filter(|asked| asked.key == *object.key());
        if asked.is_some_and(|asked| asked.waiting.now.is_some()) {
            self.add_again(object.clone());
        } else {
            self.note(object.key());
        }
    }

    fn put(&mut self, change: Change, mapped: BTreeSet<ObjectRef>) {
        let key = change.object().key().clone();
        self.note(&key);
        let Some(waiting) = self.waiting.get_mut(&key) else {
            return;
        };
        self.bytes -= waiting.bytes(self.apart);
        waiting.add(change);
        waiting.mapped.extend(mapped);
        if self.bytes + waiting.bytes(self.apart) > MOST && waiting.first.is_some() {
            // What it was is not kept: it counts as new.
            waiting.mixed = true;
            waiting.first = waiting.former().filter(|_| self.ends).and_then(|former| former.bare().ok());
        }
        if self.apart && self.bytes + waiting.bytes(self.apart) > MOST {
            waiting.forget_contents();
        }
        self.bytes += waiting.bytes(self.apart);
    }

    /// Takes over all that waits in another one, and what is being asked about there: nobody may wait for the answer any more.
    pub(super) fn take_over(&mut self, mut other: Self) {
        let mut asked = other.asked.take().map(|Asked { key, waiting, .. }| (key, waiting));
        while let Some((key, Waiting { first, now, mapped, mixed })) = asked.take().or_else(|| other.take()) {
            other.told();
            self.note(&key);
            let cached = now.clone().filter(|now| matches!(now, Now::Cached(_)));
            let change = change(first.clone(), now);
            if let Some(change) = change {
                self.put(change, mapped);
            } else if let Some(waiting) = self.waiting.get_mut(&key) {
                self.bytes -= waiting.bytes(self.apart);
                waiting.mapped.extend(mapped);
                waiting.now = waiting.now.take().or(cached);
                waiting.first = waiting.first.take().or(first);
                self.bytes += waiting.bytes(self.apart);
            }
            if let Some(waiting) = self.waiting.get_mut(&key) {
                waiting.mixed |= mixed;
            }
        }
    }

    /// Returns the object that has waited longest in the namespace whose turn it is, which counts as waiting until [`Backlog::found`].
    pub(super) fn take(&mut self) -> Option<(ObjectRef, Waiting)> {
        while let Some((number, key)) = self.order.pop() {
            // What was passed on without a question does not wait any more.
            if let Some(waiting) = self.remove(&key) {
                self.bytes -= waiting.bytes(self.apart);
                let asked =
                    Asked { number, key: key.clone(), waiting: waiting.clone(), found: false, overtaken: false };
                self.asked = Some(asked);
                return Some((key, waiting));
            }
        }
        None
    }

    fn remove(&mut self, key: &ObjectRef) -> Option<Waiting> {
        let waiting = self.waiting.remove(key)?;
        let home = home(key);
        if let Some(count) = self.homes.get_mut(&home) {
            *count -= 1;
            if *count == 0 {
                self.homes.remove(&home);
            }
        }
        Some(waiting)
    }

    /// Takes in that an object has changed for which there is no room.
    pub(super) fn overtake(&mut self, key: &ObjectRef) {
        if let Some(asked) = self.asked.as_mut().filter(|asked| asked.key == *key) {
            asked.overtaken = true;
        }
    }

    /// Takes in that the look-ups have followed the object that was taken. Returns true if that has changed meanwhile, and nobody else will ask
    /// about it.
    pub(super) fn found(&mut self) -> bool {
        self.asked.as_mut().is_some_and(|asked| {
            asked.found = true;
            asked.overtaken && !self.waiting.contains_key(&asked.key)
        })
    }

    /// Takes in that all questions about the object that was taken have been asked, and that it was told of.
    pub(super) fn told(&mut self) {
        self.asked = None;
    }

    /// Takes in that whoever asked about the object that was taken never comes back. Returns it, if there was one.
    pub(super) fn lost(&mut self) -> Option<ObjectRef> {
        self.asked.take().map(|asked| asked.key)
    }

    /// Returns true if the look-ups of an object may be behind the caches.
    pub(super) fn contains(&self, key: &ObjectRef) -> bool {
        self.waiting.contains_key(key) || self.behind().is_some_and(|asked| asked.key == *key)
    }

    /// Returns the object that was taken, if its look-ups may be behind the caches.
    fn behind(&self) -> Option<&Asked> {
        self.asked.as_ref().filter(|asked| !asked.found)
    }

    /// Returns the objects whose look-ups may be behind the caches.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectRef> {
        self.waiting.keys().chain(self.behind().map(|asked| &asked.key))
    }

    /// Returns the number of objects that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of objects whose look-ups may be behind the caches, of those in a namespace and those in none, or of all (`None`).
    pub(super) fn behind_in(&self, namespace: Option<&str>) -> usize {
        let count = |home: &str| self.homes.get(home).copied().unwrap_or(0);
        let waiting = namespace.map_or(self.waiting.len(), |namespace| count(namespace) + count(""));
        waiting + usize::from(self.behind().is_some_and(|asked| is_at_home(&asked.key, namespace)))
    }

    /// Returns a number that stands for all that waits now.
    pub(super) fn mark(&self) -> u64 {
        self.last
    }

    /// Returns true if nothing waits any more of what waited at a mark.
    pub(super) fn is_past(&self, mark: u64) -> bool {
        let first = self.order.numbers.first().copied();
        first.into_iter().chain(self.behind().map(|asked| asked.number)).all(|number| number > mark)
    }

    /// Drops the objects that `keep` does not accept.
    pub(super) fn retain(&mut self, keep: impl Fn(&ObjectRef) -> bool) {
        self.order.retain(&keep);
        self.waiting.retain(|key, _| keep(key));
        self.homes.clear();
        for key in self.waiting.keys() {
            *self.homes.entry(home(key)).or_default() += 1;
        }
        self.bytes = self.waiting.values().map(|waiting| waiting.bytes(self.apart)).sum();
    }
}

impl Turns {
    fn push(&mut self, number: u64, key: ObjectRef) {
        let home = home(&key);
        self.numbers.insert(number);
        let queue = self.queues.entry(Arc::clone(&home)).or_default();
        if queue.is_empty() {
            self.next.push_back(home);
        }
        queue.push_back((number, key));
    }

    fn pop(&mut self) -> Option<(u64, ObjectRef)> {
        let home = self.next.pop_front()?;
        let queue = self.queues.get_mut(&home)?;
        let (number, key) = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&home);
        } else {
            self.next.push_back(home);
        }
        self.numbers.remove(&number);
        Some((number, key))
    }

    fn retain(&mut self, keep: impl Fn(&ObjectRef) -> bool) {
        let Self { queues, next, numbers } = self;
        queues.retain(|_, queue| {
            queue.retain(|(number, key)| {
                let stays = keep(key);
                if !stays {
                    numbers.remove(number);
                }
                stays
            });
            !queue.is_empty()
        });
        next.retain(|home| queues.contains_key(home));
    }
}

/// Returns the namespace of an object; "" if it is in none.
fn home(key: &ObjectRef) -> Arc<str> {
    key.namespace.clone().unwrap_or_else(|| "".into())
}

/// Returns true if an object may belong to a primary all of whose objects are in this namespace, or anywhere (`None`).
pub(super) fn is_at_home(key: &ObjectRef, home: Option<&str>) -> bool {
    home.is_none() || key.namespace.is_none() || key.namespace.as_deref() == home
}

impl Waiting {
    /// Adds a change. Changes may come in another order than they have happened in: what is newest counts as now.
    fn add(&mut self, change: Change) {
        let (version, uid) = (change.object().version(), change.object().header().uid.clone());
        let late = self.now.as_ref().is_some_and(|now| now.version() > version);
        let again = matches!((&self.now, &change), (Some(Now::Gone { .. }), Change::Added(_) | Change::Updated { .. }));
        self.mixed |= self.now.as_ref().is_some_and(|now| late || again || !self.is_like(now, &change));
        let (before, now) = match change {
            Change::Added(new) => (None, Now::There(new)),
            Change::Updated { old, new } => (Some(old), Now::There(new)),
            Change::Deleted { last, unknown } => (None, Now::Gone { last, unknown }),
        };
        let older = |first: &Object| before.as_ref().is_none_or(|before| before.version() < first.version());
        match &self.now {
            None => self.first = before,
            // It was deleted and made again in between.
            Some(Now::Gone { last, .. }) if again && !late => self.first = Some(last.clone()),
            Some(_) if late && self.first.as_ref().is_some_and(older) => self.first = before,
            // All count as added, unless another one had the name before.
            Some(Now::There(_) | Now::Cached(_)) if before.is_none() => {
                self.first = self.first.take().filter(|first| first.header().uid != uid);
            }
            Some(_) => {}
        }
        if !late {
            self.now = Some(now);
        }
    }

    /// Returns true if a change is of the sort of those that wait.
    fn is_like(&self, now: &Now, change: &Change) -> bool {
        match change {
            Change::Added(_) => matches!(now, Now::There(_) | Now::Cached(_)) && self.first.is_none(),
            Change::Updated { old, new } => {
                let same = old.header().uid == new.header().uid;
                same && matches!(now, Now::There(_) | Now::Cached(_)) && self.first.is_some()
            }
            Change::Deleted { .. } => matches!(now, Now::Gone { .. }),
        }
    }

    /// Returns the object before the first change, if another one may have its name by now.
    fn former(&self) -> Option<&Object> {
        let same = |first: &&Object| match &self.now {
            Some(Now::There(now) | Now::Gone { last: now, .. }) => now.header().uid == first.header().uid,
            // Which one that is, is not kept.
            Some(Now::Cached(_)) | None => false,
        };
        self.first.as_ref().filter(|first| !same(first))
    }

    /// Keeps nothing of an object that is there: it is asked about as the caches have it.
    fn forget_contents(&mut self) {
        if let Some(Now::There(object)) = &self.now {
            self.now = Some(Now::Cached(object.version()));
        }
    }

    /// Returns the bytes of objects that it keeps, where caches do not.
    fn bytes(&self, apart: bool) -> usize {
        let now = match &self.now {
            Some(Now::Gone { last, .. }) => last.held(),
            Some(Now::There(object)) if apart => object.held(),
            Some(Now::There(_) | Now::Cached(_)) | None => 0,
        };
        now + self.first.as_ref().map_or(0, Object::held)
    }

    /// Returns the change that all changes add up to. What is gone as far as they say may be there again as the cache has
    /// it.
    pub(super) fn change(&self, cached: Option<&Object>) -> Option<Change> {
        match (&self.now, cached) {
            (Some(Now::Gone { last, .. }), Some(new)) if new.version() > last.version() => {
                Some(Change::Updated { old: last.clone(), new: new.clone() })
            }
            // If it is gone by now, another change says so.
            (Some(Now::Cached(_)), cached) => change(self.first.clone(), cached.cloned().map(Now::There)),
            _ => change(self.first.clone(), self.now.clone()),
        }
    }
}

impl Now {
    fn version(&self) -> Version {
        match self {
            Self::There(object) | Self::Gone { last: object, .. } => object.version(),
            Self::Cached(version) => *version,
        }
    }
}

fn change(first: Option<Object>, now: Option<Now>) -> Option<Change> {
    Some(match (now?, first) {
        (Now::Cached(_), _) => return None,
        (Now::There(new), None) => Change::Added(new),
        (Now::There(new), Some(old)) => Change::Updated { old, new },
        (Now::Gone { last, unknown }, _) => Change::Deleted { last, unknown },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers};

    fn object(name: &str, version: u64, filler: usize) -> Object {
        let filler = "x".repeat(filler);
        let json = format!(
            r#"{{"metadata":{{"namespace":"n","name":"{name}","resourceVersion":"{version}"}},"f":"{filler}"}}"#
        );
        Object::parse(&json, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
    }

    /// Returns a change of `a`, from `A1`, `U2` (from 1) or `D2`.
    fn change(word: &str, filler: usize) -> Change {
        let version = word[1..].parse().unwrap();
        match &word[..1] {
            "A" => Change::Added(object("a", version, filler)),
            "U" => Change::Updated { old: object("a", version - 1, filler), new: object("a", version, filler) },
            _ => Change::Deleted { last: object("a", version, filler), unknown: false },
        }
    }

    fn show(change: Option<Change>) -> String {
        match change {
            None => "-".to_owned(),
            Some(Change::Added(new)) => format!("A{}", new.version()),
            Some(Change::Updated { old, new }) => format!("U{}<{}", new.version(), old.version()),
            Some(Change::Deleted { last, .. }) => format!("D{}", last.version()),
        }
    }

    #[test]
    fn the_changes_of_an_object_wait_as_one() {
        // IS-1, IM-5
        for (words, expected) in [
            ("", "-"),
            ("A1", "A1"),
            ("U2", "U2<1"),
            ("A1 U2 U3", "A3*"),
            ("U2 U3", "U3<1"),
            ("A1 D2", "D2*"),
            ("U2 D3", "D3*"),
            ("D2 A3", "U3<2*"),
            ("U2 D3 A4 U5", "U5<3*"),
            // In another order than they have happened in.
            ("U3 A2", "A3*"),
            ("U3 U2", "U3<1*"),
            ("D3 U2", "D3*"),
            ("A2 A2", "A2"),
        ] {
            let mut backlog = Backlog::default();
            backlog.note(&ObjectRef::namespaced("n", "a"));
            for word in words.split_whitespace() {
                assert_eq!(backlog.add(change(word, 0), BTreeSet::new()), None);
            }
            let (_, waiting) = backlog.take().unwrap();
            let mixed = if waiting.mixed { "*" } else { "" };
            assert_eq!(format!("{}{mixed}", show(waiting.change(None))), expected, "{words}");
            assert_eq!((backlog.take(), backlog.bytes), (None, 0));
        }
    }

    #[test]
    fn what_an_object_was_is_kept_only_as_long_as_there_is_room() {
        // IS-1
        let mut backlog = Backlog::default();
        let large = MOST - 1000;
        let other = Change::Updated { old: object("b", 1, large), new: object("b", 2, 0) };
        assert_eq!(backlog.add(other, BTreeSet::new()), None);
        assert_eq!(backlog.add(change("U2", 2000), BTreeSet::new()), None);
        let mapped = BTreeSet::from([ObjectRef::namespaced("n", "p")]);
        let deleted = Change::Deleted { last: object("c", 3, 2000), unknown: false };
        let refused = Refused { change: deleted.clone(), first: None, mapped: mapped.clone() };
        assert_eq!(backlog.add(deleted, mapped), Some(refused));
        let shown =
            std::iter::from_fn(|| backlog.take()).map(|(key, waiting)| format!("{key} {}", show(waiting.change(None))));
        assert_eq!(shown.collect::<Vec<_>>(), ["n/b U2<1", "n/a A2"]);
        assert_eq!(backlog.bytes, 0);
    }

    #[test]
    fn of_a_primary_that_another_one_has_followed_what_tells_it_apart_is_kept_whatever_room_there_is() {
        // AE-2, CF-5
        let gvk = Gvk::parse("v1", "ConfigMap").unwrap();
        let page = |uid: &str, version: u64, filler: usize| {
            let filler = "x".repeat(filler);
            let json = format!(
                r#"{{"metadata":{{"namespace":"n","name":"a","uid":"{uid}","resourceVersion":"{version}"}},"f":"{filler}"}}"#
            );
            Object::parse(&json, &gvk, &Managers::default()).unwrap()
        };
        let made_again = || Change::Updated { old: page("p", 1, 2000), new: page("q", 2, 2000) };
        let later = || Change::Updated { old: page("q", 2, 2000), new: page("q", 3, 2000) };
        let again = || Change::Added(page("q", 3, 2000));
        let gone = || Change::Deleted { last: page("q", 4, 2000), unknown: false };
        let full = |apart: bool| {
            let mut backlog = Backlog::new(apart).with_ends(true);
            let other = Change::Updated { old: object("b", 1, MOST - 1000), new: object("b", 2, 0) };
            assert_eq!(backlog.add(other, BTreeSet::new()), None);
            backlog
        };
        let uid = |object: Option<&Object>| object.map(|object| object.header().uid.to_string());
        let p = Some("p".to_owned());
        for apart in [false, true] {
            for changes in [vec![made_again()], vec![made_again(), later()], vec![made_again(), again()]] {
                for handed_over in [false, true] {
                    let mut backlog = full(apart);
                    for change in &changes {
                        assert_eq!(backlog.add(change.clone(), BTreeSet::new()), None);
                    }
                    if handed_over {
                        let mut heir = full(apart);
                        heir.take_over(backlog);
                        backlog = heir;
                    }
                    let (_, waiting) =
                        std::iter::from_fn(|| backlog.take()).find(|(key, _)| &*key.name == "a").unwrap();
                    let change = waiting.change(Some(&page("q", 3, 2000))).unwrap();
                    assert_eq!(uid(change.made_again()), p, "{apart} {changes:?} {handed_over}");
                    assert!(backlog.bytes < MOST + 2000, "{}", backlog.bytes);
                }
            }
            let mut backlog = full(apart);
            assert_eq!(backlog.add(made_again(), BTreeSet::new()), None);
            let refused = backlog.add(gone(), BTreeSet::new()).unwrap();
            assert_eq!((uid(refused.first.as_ref()), refused.change), (p.clone(), gone()));
        }
        let mut others = Backlog { bytes: MOST, ..Backlog::default() };
        assert_eq!(others.add(made_again(), BTreeSet::new()), None);
        assert_eq!(others.take().unwrap().1.first, None, "whose it was is known otherwise");
    }

    #[test]
    fn what_waited_at_a_mark_has_been_asked_about_once_the_last_of_it_has() {
        let keys = ["a", "b", "c"].map(|name| ObjectRef::namespaced("n", name));
        let mut backlog = Backlog::default();
        assert!(backlog.is_past(backlog.mark()));
        backlog.note(&keys[0]);
        backlog.note(&keys[1]);
        let mark = backlog.mark();
        backlog.note(&keys[2]);
        // Again while it waits is the same; while it is asked about, it waits anew.
        backlog.note(&keys[0]);
        for (expected, past) in [("n/a", false), ("n/b", false), ("n/c", true), ("n/a", true)] {
            let (key, _) = backlog.take().unwrap();
            if expected == "n/a" && !past {
                backlog.note(&key);
            }
            assert_eq!((key.to_string().as_str(), backlog.is_past(mark)), (expected, past));
            assert_eq!(
                backlog.keys().filter(|other| **other == key).count(),
                if past || key != keys[0] { 1 } else { 2 }
            );
            backlog.told();
        }
        assert!(backlog.keys().next().is_none() && backlog.is_past(backlog.mark()));
        backlog.note(&keys[0]);
        assert_eq!([None, Some("n"), Some("m")].map(|home| backlog.behind_in(home)), [1, 1, 0]);
        backlog.note(&ObjectRef::cluster("a"));
        assert_eq!([None, Some("n"), Some("m")].map(|home| backlog.behind_in(home)), [2, 2, 1], "anybody's");
        backlog.retain(|key| key.namespace.is_some());
        backlog.retain(|key| *key != keys[0]);
        assert_eq!([None, Some("n"), Some("m")].map(|home| backlog.behind_in(home)), [0; 3]);
        assert_eq!((backlog.len(), backlog.take(), backlog.is_past(backlog.mark())), (0, None, true));
    }

    #[test]
    fn what_changes_in_one_namespace_delays_another_by_one_object_at_a_time() {
        let mut backlog = Backlog::default();
        let key = |home: &str, n: usize| ObjectRef::namespaced(home, &n.to_string());
        for n in 0..1000 {
            backlog.note(&key("crowd", n));
        }
        let few = [key("few", 0), key("few", 1), ObjectRef::cluster("0")];
        for key in &few {
            backlog.note(key);
        }
        backlog.note(&key("gone", 0));
        backlog.retain(|key| key.namespace.as_deref() != Some("gone"));
        let mark = backlog.mark();
        let next: Vec<_> = std::iter::from_fn(|| backlog.take()).take(7).map(|(key, _)| key.to_string()).collect();
        assert_eq!(next, ["crowd/0", "few/0", "0", "crowd/1", "few/1", "crowd/2", "crowd/3"]);
        assert!(!backlog.is_past(mark));
        assert_eq!(std::iter::from_fn(|| backlog.take()).count(), 996);
        backlog.told();
        assert!(backlog.is_past(mark) && backlog.order.numbers.is_empty() && backlog.order.next.is_empty());
    }

    #[test]
    fn what_waits_is_handed_over_and_what_has_come_since_counts() {
        let (mut before, mut heir) = (Backlog::default(), Backlog::default());
        for word in ["U2", "D3"] {
            assert_eq!(before.add(change(word, 0), BTreeSet::new()), None);
        }
        let added = object("a", 4, 0);
        assert_eq!(heir.add(Change::Added(added.clone()), BTreeSet::new()), None);
        before.note(&ObjectRef::namespaced("n", "b"));
        heir.take_over(before);
        assert_eq!(heir.len(), 2);
        let (_, waiting) = heir.take().unwrap();
        assert_eq!((show(waiting.change(None)).as_str(), waiting.mixed), ("A4", true));
        // What is there again is not told as gone.
        let mut backlog = Backlog::default();
        assert_eq!(backlog.add(change("D3", 0), BTreeSet::new()), None);
        let (_, waiting) = backlog.take().unwrap();
        assert_eq!(show(waiting.change(Some(&added))), "U4<3");
    }

    #[test]
    fn what_caches_have_only_in_part_is_kept_as_far_as_there_is_room() {
        let mut backlog = Backlog::new(true);
        let large = |name: &str, version| object(name, version, MOST / 2 - 1000);
        for name in ["a", "b", "c"] {
            assert_eq!(backlog.add(Change::Added(large(name, 1)), BTreeSet::new()), None);
        }
        assert!(backlog.bytes <= MOST, "{}", backlog.bytes);
        let mut heir = Backlog::new(true);
        heir.take_over(backlog);
        let mut left = Vec::new();
        while let Some((key, waiting)) = heir.take() {
            let now = object(&key.name, 2, 0);
            let [known, there, gone] =
                [waiting.now.is_some(), waiting.change(Some(&now)).is_some(), waiting.change(None).is_some()];
            left.push((key.name.to_string(), known, there, gone));
        }
        let of = |name: &str, gone| (name.to_owned(), true, true, gone);
        assert_eq!(left, [of("a", true), of("b", true), of("c", false)]);
        assert_eq!(heir.bytes, 0);
    }
}

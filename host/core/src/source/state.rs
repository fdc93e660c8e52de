//! The state of a source, and what a change does to it: the caches that it reads, own writes that are missing from
//! them, and look-ups.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::cache::Cache;
use crate::object::{Change, Object, ObjectRef, Version};
use crate::source::answers::Answers;
use crate::source::backlog::{Backlog, EACH, Refused, is_at_home};
use crate::source::behind::Behind;
use crate::source::borrowed::Borrowed;
use crate::source::echo::{EchoFilter, Listing, Released, Verdict};
use crate::source::index::{Key, Lookup};
use crate::source::overlay::Overlay;
use crate::source::patience::Patience;
use crate::source::watched::{Place, Places, is_in, watcher};

/// The most primaries of which it is remembered what the component has said of them.
const MOST_LED: usize = 10_000;

#[derive(Default)]
pub(super) struct State {
    pub(super) places: Places,
    /// The places that the source should watch but can't, with the reason.
    pub(super) lacking: BTreeMap<Place, Arc<str>>,
    /// True if its kind was not known to be served when it was planned.
    pub(super) without_kind: bool,
    /// Why nothing is watched while no cache is attached; `None` if there is nothing to be watched then.
    pub(super) unwatched: Option<Arc<str>>,
    /// The places whose cache is waited for, as it has not all fields of objects yet.
    pub(super) awaited: BTreeSet<Place>,
    /// The places of whose cache not all is taken in yet.
    pub(super) entering: BTreeSet<Place>,
    /// What a source of primaries showed of places that it should read, but does not now; without contents.
    pub(super) left: BTreeMap<Place, BTreeMap<ObjectRef, Object>>,
    /// The versions up to which places were there before they were looked at; none before their first list.
    pub(super) since: BTreeMap<Place, Version>,
    /// The places of which a list is being read.
    pub(super) listing: BTreeSet<Place>,
    pub(super) overlay: Overlay,
    /// The own writes that the overlay can't have, as nothing was read of their namespace.
    pub(super) behind: Behind,
    pub(super) windows: EchoFilter,
    /// The secondaries of each primary as the caches have them (`IM-4`): candidates, to be checked by the mapper.
    pub(super) related: Lookup<ObjectRef>,
    /// The objects under each key of each index as the caches have them: candidates too.
    pub(super) indexes: BTreeMap<Arc<str>, Lookup<Box<str>>>,
    /// True if something has gone that may concern any primary.
    pub(super) everybody: bool,
    /// The memory of the look-ups.
    pub(super) borrowed: Borrowed,
    /// The objects that have found no room in them.
    pub(super) unkeyed: BTreeSet<ObjectRef>,
    /// The objects whose look-ups and changes wait for costly questions.
    pub(super) backlog: Backlog,
    /// The primaries of secondaries, as the component has said.
    pub(super) mapped: Answers,
    /// The secondaries of primaries, as the component has said.
    pub(super) led: Answers,
    /// When exports are asked again that have had no answer.
    pub(super) patience: Patience,
    /// The edition of the controller whose component answers now; `None` if nobody has said.
    pub(super) edition: Option<u64>,
    /// True if what another one has said is to be asked again.
    pub(super) anew: bool,
}

/// Objects that may be what is looked for.
#[derive(Default)]
pub(super) struct Candidates {
    pub(super) objects: BTreeSet<ObjectRef>,
    /// True if they are, as far as the caches go.
    pub(super) exact: bool,
}

impl Candidates {
    /// Returns some objects of a look-up.
    pub(super) fn of<'a, K: Key>(lookup: &Lookup<K>, found: impl IntoIterator<Item = &'a ObjectRef>) -> Self {
        Self { objects: found.into_iter().cloned().collect(), exact: lookup.is_exact() }
    }
}

/// The keys that a change moves in the look-ups; read from the objects before any lock is taken.
pub(super) struct Facts {
    pub(super) primaries: Move<ObjectRef>,
    /// One for each index, ordered by index name.
    pub(super) keys: Vec<Move<Box<str>>>,
    /// True if the primaries are kept in a look-up.
    pub(super) related: bool,
}

/// The keys of an object before and after a change.
pub(super) struct Move<K> {
    /// `None`: the same as after.
    pub(super) before: Option<BTreeSet<K>>,
    pub(super) after: BTreeSet<K>,
}

impl State {
    pub(super) fn cache(&self, key: &ObjectRef) -> Option<&Cache> {
        watcher(&self.places, key).map(|(_, cache)| cache)
    }

    /// Takes in a change. Without facts, its object waits to be asked about.
    pub(super) fn take(&mut self, change: Change, facts: Option<&Facts>) -> Verdict {
        let key = change.object().key().clone();
        let Some((place, cache)) = watcher(&self.places, &key) else {
            return Verdict::Held;
        };
        let (synced, (cached, seen)) = (cache.version(), cache.look(&key));
        // While informers change, another one may still tell: what is read now has its own.
        let version = change.object().version();
        let same = cached.as_ref().is_some_and(|cached| cached.version() == version);
        let ahead = version > seen && !same && !cache.is_unreadable(&key);
        if ahead || cached.is_some_and(|cached| cached.version() > version) {
            return Verdict::Held;
        }
        let listing = if self.listing.contains(place) { Listing::Running } else { Listing::Idle };
        match facts {
            Some(facts) => self.look_up(&key, facts),
            None => {
                self.note(&key);
            }
        }
        if self.overlay.is_empty() {
            return self.windows.admit(change, listing);
        }
        let mapped = self.overlay.saw(&change, synced);
        self.borrow();
        match self.windows.admit(change, listing) {
            // Whoever wrote it has seen it, though no event has shown that.
            Verdict::Pass(change) if !mapped.is_empty() => Verdict::Released(Released { change, mapped }),
            verdict @ (Verdict::Pass(_) | Verdict::Held | Verdict::Released(_)) => verdict,
        }
    }

    /// Takes in a change whose object waits to be asked about, in one step: whoever asks moves the object in the look-ups, and those
    /// whose it was have to be told of the change. Returns one that there is no room to keep.
    pub(super) fn take_later(&mut self, change: Change) -> Option<Refused> {
        let key = change.object().key().clone();
        let known = self.related.known(&key).cloned().unwrap_or_default();
        let written = self.windows.mapped(&key);
        let mut refused = match self.take(change, None) {
            Verdict::Pass(change) => self.put_off(change, BTreeSet::new())?,
            Verdict::Held => {
                self.backlog.concerns(&key, written);
                self.windows.concerns(&key, known);
                return None;
            }
            Verdict::Released(Released { change, mut mapped }) => {
                mapped.extend(known.iter().cloned());
                self.put_off(change, mapped)?
            }
        };
        refused.mapped.extend(known);
        Some(refused)
    }

    /// Has a change asked about later. Returns it if there is no room for that: a deletion also, if there is none for its object.
    pub(super) fn put_off(&mut self, change: Change, mut mapped: BTreeSet<ObjectRef>) -> Option<Refused> {
        let known = self.related.known(change.object().key()).cloned();
        if self.note(change.object().key()) {
            return self.backlog.add(change, mapped);
        }
        mapped.extend(known.into_iter().flatten());
        Some(Refused { change, first: None, mapped })
    }

    /// Notes that the look-ups of an object have to follow it. Returns false if there is no room for that: then it has no keys, and each read
    /// asks it.
    pub(super) fn note(&mut self, key: &ObjectRef) -> bool {
        if self.backlog.waits(key) || self.borrow_with(EACH) {
            self.backlog.note(key);
            return true;
        }
        self.backlog.overtake(key);
        self.have_asked(key);
        false
    }

    /// Has each read ask an object, to which no look-up leads.
    pub(super) fn have_asked(&mut self, key: &ObjectRef) {
        Move::away().apply(key, &mut self.related);
        for lookup in self.indexes.values_mut() {
            Move::away().apply(key, lookup);
        }
        self.unkeyed.insert(key.clone());
    }

    /// Lets the look-ups follow an object. If its keys find no room, it has none, and each read asks it.
    pub(super) fn look_up(&mut self, key: &ObjectRef, facts: &Facts) {
        if self.unkeyed.remove(key) && facts.related {
            // It had none, whatever its object was before.
            self.related.moved(key, &BTreeSet::new(), &facts.primaries.after);
        } else {
            facts.primaries.apply(key, &mut self.related);
        }
        for (lookup, keys) in self.indexes.values_mut().zip(&facts.keys) {
            keys.apply(key, lookup);
        }
        if !self.borrow() {
            self.unkeyed.insert(key.clone());
            self.mapped.forget(key);
            self.related.moved(key, &facts.primaries.after, &BTreeSet::new());
            for (lookup, keys) in self.indexes.values_mut().zip(&facts.keys) {
                lookup.moved(key, &keys.after, &BTreeSet::new());
            }
            self.borrow();
        }
    }

    /// Returns the objects of a namespace, or of all (`None`), that the look-ups may not lead to. Those without a namespace may belong
    /// to anybody.
    pub(super) fn unasked(&self, namespace: Option<&str>) -> impl Iterator<Item = &ObjectRef> {
        let unkeyed = self.unkeyed.iter().filter(|key| !self.backlog.contains(key));
        let all = self.backlog.keys().chain(unkeyed);
        all.filter(move |key| is_at_home(key, namespace))
    }

    /// Lets so many objects wait again whose keys have found no room, those after the `last` first. Returns the last of them; `None` if
    /// there are none.
    pub(super) fn key_again(&mut self, last: Option<&ObjectRef>, most: usize) -> Option<ObjectRef> {
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.unkeyed.range((after, Bound::Unbounded));
        let keys: Vec<_> = rest.chain(&self.unkeyed).take(most.min(self.unkeyed.len())).cloned().collect();
        for key in &keys {
            self.note(key);
        }
        keys.into_iter().last()
    }

    /// Borrows the memory that the look-ups take, answers, and what waits. Returns false if there is not enough.
    pub(super) fn borrow(&mut self) -> bool {
        self.borrow_with(0)
    }

    /// Does so for as many bytes more.
    fn borrow_with(&mut self, more: usize) -> bool {
        let indexes: usize = self.indexes.values().map(Lookup::bytes).sum();
        let answers = self.mapped.bytes() + self.led.bytes() + self.overlay.bytes();
        self.borrowed.fits(self.related.bytes() + indexes + answers + self.backlog.weight() + more)
    }

    /// Keeps what the component has said of a primary, in place of what it has said of others if there is no room for both. Returns
    /// false if it finds none.
    pub(super) fn keep_led(&mut self, primary: &Object, said: BTreeSet<ObjectRef>, current: bool) -> bool {
        if self.led.len() >= MOST_LED {
            self.led.clear();
        }
        self.led.keep(primary, said.clone(), current);
        if self.borrow() {
            return true;
        }
        self.led.clear();
        self.led.keep(primary, said, current);
        let fits = self.borrow();
        if !fits {
            self.led.clear();
            self.borrow();
        }
        fits
    }

    /// Forgets what the component has said of an object that the caches do not show, unless it was just written.
    pub(super) fn forget_answers(&mut self, key: &ObjectRef) {
        if self.overlay.get(key).is_none() {
            self.mapped.forget(key);
        }
        self.patience.forget(key);
    }

    /// Takes in the answer of a write, with its keys. The cache may have it already, while its event is still on the way to this
    /// source: the look-ups lead to it from now on. Whose it is by then is told of what becomes of it.
    pub(super) fn put(&mut self, answer: Object, facts: &Facts) {
        let Some(cache) = self.cache(answer.key()).cloned() else { return };
        if cache.get(answer.key()).is_some_and(|seen| seen.version() == answer.version()) {
            self.look_up(answer.key(), facts);
        }
        let mapped = facts.primaries.after.clone();
        self.backlog.concerns(answer.key(), mapped.clone());
        self.keep(answer, mapped, &cache);
    }

    /// Keeps an answer (`OV-1`). The watch would never catch up with an object that a full cache leaves out: of its answer only the
    /// version is kept, until the cache has come to that.
    pub(super) fn keep(&mut self, answer: Object, mapped: BTreeSet<ObjectRef>, cache: &Cache) {
        let (cached, seen) = cache.look(answer.key());
        let (key, fits) = (answer.key().clone(), cache.is_complete() || cached.is_some());
        self.overlay.put(answer, seen, mapped);
        if !(fits && self.borrow()) {
            self.overlay.lose(&key);
            self.borrow();
        }
    }

    /// Returns true if an object is in a cache, or was just written.
    pub(super) fn shows(&self, key: &ObjectRef) -> bool {
        self.overlay.get(key).is_some() || self.cache(key).is_some_and(|cache| cache.get(key).is_some())
    }

    /// Forgets what the component has said of objects that nothing shows any more, and of which nobody is told that they have gone.
    pub(super) fn forget_unshown(&mut self, keys: Vec<ObjectRef>) {
        for key in keys {
            if !self.shows(&key) && !self.backlog.contains(&key) {
                self.forget_answers(&key);
            }
        }
    }

    /// Drops answers that the cache has overtaken. Returns those whose object is missing from the cache (`true`), and
    /// drops the events that are held about them (`OV-5`).
    pub(super) fn drop_overtaken(&mut self, overtaken: Vec<(bool, Object)>) -> Vec<Object> {
        let dropped = overtaken.into_iter().filter(|(_, own)| self.overlay.remove(own));
        let (ghosts, seen): (Vec<_>, Vec<_>) = dropped.partition(|(ghost, _)| *ghost);
        self.forget_unshown(seen.into_iter().map(|(_, own)| own.key().clone()).collect());
        let ghosts: BTreeMap<ObjectRef, Object> = ghosts.into_iter().map(|(_, own)| (own.key().clone(), own)).collect();
        if !ghosts.is_empty() {
            self.windows.discard(|key| ghosts.contains_key(key));
        }
        ghosts.into_values().collect()
    }

    /// Returns true if an own write, of which only the version is known, is of an object that the cache of a place would show by now, and
    /// does not: it was there, and is gone.
    pub(super) fn has_missed_lost(&self, place: &Place) -> bool {
        let Some(cache) = self.places.get(place).filter(|cache| cache.is_synced() && cache.is_complete()) else {
            return false;
        };
        let gone = |(key, version)| {
            let (cached, seen) = cache.look(key);
            cached.is_none() && version <= seen
        };
        let mut lost = self.overlay.all_lost().filter(|(key, _)| is_in(&self.places, key, place));
        lost.any(gone)
    }

    pub(super) fn forget_unwatched(&mut self) {
        let Self { places, overlay, behind, windows, related, indexes, backlog, unkeyed, mapped, patience, .. } = self;
        let watched = |key: &ObjectRef| watcher(places, key).is_some();
        behind.forget_seen(places);
        overlay.retain(|key, _| watched(key));
        windows.discard(|key| !watched(key));
        related.retain(watched);
        backlog.retain(watched);
        mapped.retain(watched);
        patience.retain(watched);
        unkeyed.retain(watched);
        for lookup in indexes.values_mut() {
            lookup.retain(watched);
        }
        self.borrow();
    }
}

impl<K: Key> Move<K> {
    pub(super) fn nowhere() -> Self {
        Self { before: None, after: BTreeSet::new() }
    }

    /// Returns the move of an object that is gone, for look-ups that know where it was.
    pub(super) fn away() -> Self {
        Self { before: Some(BTreeSet::new()), after: BTreeSet::new() }
    }

    pub(super) fn of(change: &Change, keys: impl Fn(&Object) -> BTreeSet<K>) -> Self {
        match change {
            Change::Added(new) => Self { before: Some(BTreeSet::new()), after: keys(new) },
            Change::Updated { old, new } => Self { before: Some(keys(old)), after: keys(new) },
            Change::Deleted { last, .. } => Self { before: Some(keys(last)), after: BTreeSet::new() },
        }
    }

    pub(super) fn apply(&self, object: &ObjectRef, lookup: &mut Lookup<K>) {
        if let Some(before) = &self.before {
            lookup.moved(object, before, &self.after);
        }
    }

    pub(super) fn either(self) -> BTreeSet<K> {
        let Self { before, mut after } = self;
        after.extend(before.into_iter().flatten());
        after
    }
}

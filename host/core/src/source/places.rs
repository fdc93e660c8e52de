//! Decides what is new when a source begins to read a cache, in place of another one or after a time in which nobody told it anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Source, Trigger};
use crate::cache::Cache;
use crate::object::{Change, Object, ObjectRef};

impl Source {
    /// Begins to read a cache, of one namespace or of all (`None`), in place of the one that was read there before.
    /// Returns the triggers for the queue: objects that were not seen yet count as added (`PO-3`), objects that have
    /// changed since as updated, and objects that are no longer there as deleted. Called by the informer's task
    /// between two events, so that no event is missed and none comes twice; if a list is under way, before
    /// [`Source::before_list`].
    pub fn attach(&self, namespace: Option<&str>, cache: Cache) -> Vec<Trigger> {
        let by_key = |objects: Vec<Object>| -> BTreeMap<_, _> {
            let objects = objects.into_iter();
            objects.map(|object| (object.key().clone(), object)).collect()
        };
        // The answer to an own write is read already, but its event has not come yet: the window decides if that
        // event counts.
        let (mut seen, mut shown) = (by_key(self.list(namespace)), by_key(self.shown(namespace)));
        let (present, shown_to) = cache.snapshot(None);
        let present = self.all_shown(present);
        let entered = cache.clone();
        {
            let (mut state, place) = (self.state.write(), namespace.map(Arc::from));
            state.listing.remove(&place);
            if state.awaited.remove(&place) && !self.is_of_primaries() {
                // What has gone meanwhile may have belonged to anybody.
                state.everybody = true;
                self.work.notify_one();
            }
            let places = Arc::make_mut(&mut state.places);
            if place.is_none() {
                // Otherwise what they showed last would be read for as long as they are there.
                places.clear();
            }
            places.insert(place, cache);
        }
        // The other cache that has the object may be detached next, so the overlay keeps the object.
        let keep = |seen| self.state.write().keep(seen, &entered);
        let mut news = Vec::new();
        for new in present {
            match (seen.remove(new.key()), shown.remove(new.key())) {
                (None, _) | (Some(_), None) => news.push(Change::Added(new)),
                (Some(_), Some(old)) if old.version() < new.version() => {
                    // An heir does not have it in its look-ups yet, and a change that moves nothing would not put it there.
                    self.learn(new.clone());
                    news.push(Change::Updated { old, new });
                }
                // A newer version was seen before: it is read until this cache has it.
                (Some(newest), Some(_)) => {
                    self.learn(new);
                    keep(newest);
                }
            }
        }
        for last in seen.into_values() {
            if last.version() <= shown_to.of(last.key()) {
                let unknown = true;
                news.push(Change::Deleted { last, unknown });
            } else {
                keep(last);
            }
        }
        let mut told: Vec<_> = news.into_iter().flat_map(|change| self.on(change)).collect();
        if entered.is_synced() {
            told.extend(self.gone_meanwhile(namespace));
            self.miss_lost(&namespace.map(Arc::from));
        }
        told.into_iter().chain(self.passed(namespace)).collect()
    }

    /// Adds an object to the look-ups without a trigger.
    fn learn(&self, object: Object) {
        let key = object.key().clone();
        if self.is_costly() {
            return self.note(&key);
        }
        let facts = self.facts(&Change::Added(object));
        self.state.write().look_up(&key, &facts);
    }

    /// Stops reading the cache of a namespace, or of all (`None`): before others are attached (`NS-2`). Returns the
    /// keys of its objects; if these are primaries, the queue may forget them (`NS-3`). Causes no triggers.
    pub fn detach(&self, namespace: Option<&str>) -> Vec<ObjectRef> {
        let place = namespace.map(Arc::from);
        let (cache, comes_back) = {
            let mut state = self.state.write();
            let Some(cache) = Arc::make_mut(&mut state.places).remove(&place) else {
                return Vec::new();
            };
            state.listing.remove(&place);
            state.forget_unwatched();
            (cache, state.lacking.contains_key(&place) || state.awaited.contains(&place))
        };
        // What a run waits for may have gone with it.
        self.progress.notify_waiters();
        if comes_back && self.is_of_primaries() {
            let bare =
                cache.list().iter().filter_map(|object| Some((object.key().clone(), object.bare().ok()?))).collect();
            self.state.write().left.insert(namespace.map(Arc::from), bare);
        }
        let left: Vec<_> = cache.list().iter().map(|object| object.key().clone()).collect();
        for key in &left {
            self.touch(key);
        }
        left
    }

    /// Returns the triggers for primaries that have gone while their namespace could not be read: it has been listed again.
    pub(super) fn gone_meanwhile(&self, namespace: Option<&str>) -> Vec<Trigger> {
        let left = self.state.write().left.remove(&namespace.map(Arc::from)).unwrap_or_default();
        let gone = left.into_values().filter(|last| self.get(last.key()).is_none());
        gone.flat_map(|last| self.triggers_of(Change::Deleted { last, unknown: true })).collect()
    }

    /// Returns a change as one of the object that was there before: a primary may have been made again while it could not be read.
    pub(super) fn since_it_was_left(&self, change: Change) -> Change {
        let Change::Added(new) = change else {
            return change;
        };
        if self.state.read().left.is_empty() {
            return Change::Added(new);
        }
        let mut state = self.state.write();
        let mut old = [new.key().namespace.clone(), None].into_iter();
        let old = old.find_map(|place| state.left.get_mut(&place)?.remove(new.key()));
        match old.filter(|old| old.header().uid != new.header().uid) {
            Some(old) => Change::Updated { old, new },
            None => Change::Added(new),
        }
    }
}

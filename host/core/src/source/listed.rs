//! Decides what lists and bookmarks say of own writes: which the watch has overtaken, and which it never shows (OV).

use std::sync::Arc;

use super::state::State;
use super::watched::{Place, is_in, watcher};
use super::{Role, Source, Trigger};
use crate::object::{Change, ObjectRef};

impl Source {
    /// Takes in that a list of a namespace, or of all (`None`), begins. From now on an event may stand for several
    /// changes (`FW-3`).
    pub fn before_list(&self, namespace: Option<&str>) {
        self.state.write().listing.insert(namespace.map(Arc::from));
    }

    /// Takes in that a list has ended, after all its changes went through [`Source::on`]. Returns the triggers for
    /// the queue: for objects that own writes made and that are already gone (`OV-5`), and for events that were held
    /// for echoes which the list has overtaken.
    pub fn after_list(&self, namespace: Option<&str>) -> Vec<Trigger> {
        let place = namespace.map(Arc::from);
        let (cache, fresh) = {
            let mut state = self.state.write();
            state.listing.remove(&place);
            let Some(cache) = state.places.get(&place).cloned() else {
                return Vec::new();
            };
            let fresh: Vec<_> =
                state.overlay.iter().filter(|own| is_in(&state.places, own.key(), &place)).cloned().collect();
            (cache, fresh)
        };
        let synced = cache.version();
        self.state.write().listed_up_to(&place, synced);
        self.miss_lost(&place);
        let overtaken = fresh.into_iter().filter_map(|own| {
            let (cached, seen) = cache.look(own.key());
            (own.version() <= seen).then(|| (cached.is_none() && cache.is_complete(), own))
        });
        let ghosts = overtaken.collect();
        let (ghosts, released) = {
            let mut state = self.state.write();
            let ghosts = state.drop_overtaken(ghosts);
            let State { windows, places, overlay, behind, .. } = &mut *state;
            behind.forget_seen(places);
            // Of what has found no memory only the version is there to be overtaken.
            overlay.retain(|key, version| !is_in(places, key, &place) || version > cache.look(key).1);
            let released = windows.listed(synced, |key| is_in(places, key, &place));
            state.borrow();
            (ghosts, released)
        };
        let gone = ghosts.into_iter().flat_map(|last| self.triggers_of(Change::Deleted { last, unknown: true }));
        let gone = gone.chain(self.gone_meanwhile(namespace));
        gone.chain(released.into_iter().flat_map(|released| self.released(released))).collect()
    }

    /// Takes in that the cache of a namespace, or of all (`None`), has seen everything up to its version. If an own
    /// write up to that version is missing from it, the watch never shows the object. Returns the triggers for the
    /// queue, for the events that were held behind such writes.
    pub fn passed(&self, namespace: Option<&str>) -> Vec<Trigger> {
        let place = namespace.map(Arc::from);
        let released = {
            let mut state = self.state.write();
            let State { places, overlay, behind, windows, .. } = &mut *state;
            behind.forget_seen(places);
            let Some(cache) = places.get(&place) else {
                return Vec::new();
            };
            let synced = cache.version();
            let covers = |key: &ObjectRef| is_in(places, key, &place);
            let is_past = |key: &ObjectRef, version| covers(key) && version <= cache.look(key).1;
            let past = overlay.versions().filter(|(key, own)| is_past(key, *own)).map(|(key, _)| key.clone());
            let past: Vec<_> = past.collect();
            overlay.retain(|key, version| !is_past(key, version));
            let released = windows.overtaken(synced, covers);
            state.forget_unshown(past);
            state.borrow();
            released
        };
        let gone = self.gone_meanwhile(namespace);
        gone.into_iter().chain(released.into_iter().flat_map(|held| self.released(held))).collect()
    }

    /// Takes in that an object has been deleted of which the cache has had no version that could be read. Returns the triggers for the
    /// queue, if it was read all the same: as an own write made it, or as the cache before had it (`OV-5`, `PO-3`).
    pub fn lost(&self, object: &ObjectRef) -> Vec<Trigger> {
        let (ghosts, place) = {
            let mut state = self.state.write();
            let Some((place, synced)) =
                watcher(&state.places, object).map(|(place, cache)| (place.clone(), cache.version()))
            else {
                return Vec::new();
            };
            // One that is newer may have been made since.
            let own = state.overlay.get(object).filter(|own| own.version() <= synced).cloned();
            let ghosts = state.drop_overtaken(own.into_iter().map(|own| (true, own)).collect());
            state.borrow();
            (ghosts, place)
        };
        self.miss_lost(&place);
        ghosts.into_iter().flat_map(|last| self.triggers_of(Change::Deleted { last, unknown: true })).collect()
    }

    /// Takes in that a list has overtaken own writes whose answers have found no memory. Of objects among them that are not there it is known
    /// neither what they were nor whose: if nobody has been told of them, all primaries are told.
    pub(super) fn miss_lost(&self, place: &Place) {
        let mut state = self.state.write();
        if matches!(self.spec.role, Role::Secondary(_)) && state.has_missed_lost(place) {
            state.everybody = true;
            self.work.notify_one();
        }
    }
}

//! Decides which changes tell of nothing new: objects that were there before the source looked (EP-13).

use super::Source;
use super::state::State;
use super::watched::{Place, watcher};
use crate::cache::Cache;
use crate::object::{Change, Version};
use crate::queue::Urgency;

impl Source {
    /// Returns how urgent the runs are that follow from a change.
    pub(super) fn urgency(&self, change: &Change) -> Urgency {
        match change {
            Change::Added(object) => {
                let state = self.state.read();
                let place = watcher(&state.places, object.key()).map(|(place, _)| place);
                let since = place.and_then(|place| state.since.get(place));
                // Without a first list, all that comes is of it.
                let fresh = since.is_some_and(|since| object.version() > *since);
                if fresh { Urgency::Fresh } else { Urgency::Replayed }
            }
            Change::Updated { .. } | Change::Deleted { .. } => Urgency::Fresh,
        }
    }
}

impl State {
    /// Takes in that a cache is read from now on: what it has is nothing new, nor is its first list.
    pub(super) fn look_at(&mut self, place: &Place, cache: &Cache) {
        if cache.is_synced() {
            self.since.insert(place.clone(), cache.version());
        } else {
            self.since.remove(place);
        }
    }

    /// Takes in that a list up to a version has ended.
    pub(super) fn listed_up_to(&mut self, place: &Place, version: Version) {
        self.since.entry(place.clone()).or_insert(version);
    }
}

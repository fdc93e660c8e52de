//! Decides which caches are behind own writes that nothing keeps: of namespaces that were not watched when the answer came, or were left
//! before a cache had it (OV-1). A cache that is attached later may have been listed before.

use std::collections::BTreeMap;

use crate::object::Version;
use crate::source::watched::{Place, Places, watcher_of};

/// So many namespaces are remembered; of more, only the newest version of all.
const MOST: usize = 1000;

/// The versions of own writes that no cache has shown, by the namespace of the object; `None` for cluster-scoped ones.
#[derive(Clone, Default)]
pub(super) struct Behind {
    written: BTreeMap<Place, Version>,
    /// The newest of those of namespaces for which there was no room.
    others: Version,
}

impl Behind {
    /// Notes a write whose answer is not kept.
    pub(super) fn note(&mut self, namespace: &Place, version: Version) {
        if self.written.len() < MOST || self.written.contains_key(namespace) {
            let known = self.written.entry(namespace.clone()).or_default();
            *known = version.max(*known);
        } else {
            self.others = version.max(self.others);
        }
    }

    /// Returns the version from which on objects of a namespace are known.
    pub(super) fn of(&self, namespace: &Place) -> Version {
        self.written.get(namespace).copied().unwrap_or_default().max(self.others)
    }

    /// Returns a place whose cache is behind, of those for this namespace, or for all (`None`).
    pub(super) fn place<'a>(&self, places: &'a Places, namespace: Option<&str>) -> Option<&'a Place> {
        let inside = |of: &Place| namespace.is_none() || of.as_deref() == namespace;
        let written = self.written.iter().filter(|(of, _)| inside(of));
        let mut written = written.filter_map(|(of, version)| Some((watcher_of(places, of)?, *version)));
        let behind = written.find(|((_, cache), version)| cache.version() < *version).map(|((place, _), _)| place);
        let other = || {
            let home = namespace.map(|namespace| watcher_of(places, &Some(namespace.into())));
            let read = home.map_or_else(|| places.iter().collect(), Vec::from_iter);
            read.into_iter().find(|(_, cache)| cache.version() < self.others).map(|(place, _)| place)
        };
        behind.or_else(other)
    }

    /// Forgets what caches have come to by now.
    pub(super) fn forget_seen(&mut self, places: &Places) {
        self.written.retain(|of, version| watcher_of(places, of).is_none_or(|(_, cache)| cache.version() < *version));
    }
}

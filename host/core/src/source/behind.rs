//! Decides which caches are behind own writes that nothing keeps (OV-1): of namespaces that were not watched when the answer came, or were
//! left before a cache had it; and those that the cache before has shown to the end. A cache that is attached later may be older.

use std::collections::BTreeMap;

use crate::cache::Cache;
use crate::object::{Object, Version};
use crate::source::watched::{Place, Places, watcher_of};

/// So many namespaces are remembered; of more, only the newest version of all.
const MOST: usize = 1000;

/// The versions of own writes by the namespace of the object; `None` for cluster-scoped ones.
#[derive(Clone, Default)]
pub(super) struct Behind {
    /// Those that no cache in use has shown.
    unseen: Newest,
    /// All.
    all: Newest,
}

/// The newest version in each namespace.
#[derive(Clone, Default)]
struct Newest {
    written: BTreeMap<Place, Version>,
    /// The newest of those of namespaces for which there was no room.
    others: Version,
}

impl Behind {
    /// Notes an own write.
    pub(super) fn wrote(&mut self, namespace: &Place, version: Version) {
        self.all.note(namespace, version);
    }

    /// Notes a write whose answer is not kept.
    pub(super) fn note(&mut self, namespace: &Place, version: Version) {
        self.unseen.note(namespace, version);
    }

    /// Notes that a cache which is attached has an object that the one before did not show. If the cache is older than what was written,
    /// the object may have gone since.
    pub(super) fn appeared(&mut self, object: &Object, cache: &Cache) {
        let namespace = &object.key().namespace;
        let written = self.all.of(namespace);
        if object.version() <= written && cache.version() < written {
            self.unseen.note(namespace, written);
        }
    }

    /// Returns the version from which on objects of a namespace are known.
    pub(super) fn of(&self, namespace: &Place) -> Version {
        self.unseen.of(namespace)
    }

    /// Returns a place whose cache is behind, of those for this namespace, or for all (`None`).
    pub(super) fn place<'a>(&self, places: &'a Places, namespace: Option<&str>) -> Option<&'a Place> {
        let inside = |of: &Place| namespace.is_none() || of.as_deref() == namespace;
        let Newest { written, others } = &self.unseen;
        let written = written.iter().filter(|(of, _)| inside(of));
        let mut written = written.filter_map(|(of, version)| Some((watcher_of(places, of)?, *version)));
        let behind = written.find(|((_, cache), version)| cache.version() < *version).map(|((place, _), _)| place);
        let other = || {
            let home = namespace.map(|namespace| watcher_of(places, &Some(namespace.into())));
            let read = home.map_or_else(|| places.iter().collect(), Vec::from_iter);
            read.into_iter().find(|(_, cache)| cache.version() < *others).map(|(place, _)| place)
        };
        behind.or_else(other)
    }

    /// Forgets what caches have come to by now.
    pub(super) fn forget_seen(&mut self, places: &Places) {
        self.unseen
            .written
            .retain(|of, version| watcher_of(places, of).is_none_or(|(_, cache)| cache.version() < *version));
    }
}

impl Newest {
    fn note(&mut self, namespace: &Place, version: Version) {
        if self.written.len() < MOST || self.written.contains_key(namespace) {
            let known = self.written.entry(namespace.clone()).or_default();
            *known = version.max(*known);
        } else {
            self.others = version.max(self.others);
        }
    }

    fn of(&self, namespace: &Place) -> Version {
        self.written.get(namespace).copied().unwrap_or_default().max(self.others)
    }
}

//! Decides which caches are older than own writes that nothing keeps (OV-1). A cache that is attached may be older than what was written to
//! a namespace while nothing was read of it, or than what the cache before has shown to the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cache::Cache;
use crate::object::{Gvk, Object, Version};
use crate::source::watched::{Place, Places, watcher_of};

/// So many namespaces of a kind are remembered; of more, only the newest version of all.
const MOST: usize = 1000;

/// A kind, and its cluster if that is another one than the daemon's.
pub(super) type Kind = (Option<Arc<str>>, Gvk);

/// The newest own writes of a controller by kind, whichever of its sources they concern: it may get others later.
#[derive(Clone, Default)]
pub(super) struct Written(Arc<Mutex<BTreeMap<Kind, Newest>>>);

/// The newest version in each namespace; `None` for cluster-scoped objects.
#[derive(Clone, Default)]
pub(super) struct Newest {
    written: BTreeMap<Place, Version>,
    /// The newest of the namespaces for which there was no room.
    others: Version,
}

/// What a source can't know yet.
#[derive(Clone, Default)]
pub(super) struct Behind {
    /// The versions from which on the objects of a namespace are known.
    namespaces: BTreeMap<Place, Version>,
    /// The versions from which on all objects are known that are read from a place.
    places: BTreeMap<Place, Version>,
}

impl Written {
    /// Notes the answer of an own write to an object of a kind.
    pub(super) fn note(&self, kind: Kind, answer: &Object) {
        self.0.lock().entry(kind).or_default().note(&answer.key().namespace, answer.version());
    }

    /// Returns the newest own writes to a kind.
    pub(super) fn of(&self, kind: &Kind) -> Newest {
        self.0.lock().get(kind).cloned().unwrap_or_default()
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
        self.written.get(namespace).copied().unwrap_or(self.others)
    }
}

impl Behind {
    /// Takes in that a cache is read in a place from now on, and what was read `before`. What has been `written` in namespaces of which
    /// nothing was read is known only when the cache has come to it; and so is what was written after `seen`, when it was looked at what
    /// has been read until now.
    pub(super) fn attached(
        &mut self,
        (place, places): (&Place, &Places),
        before: &Places,
        written: &Newest,
        seen: &Newest,
    ) {
        let Some(cache) = places.get(place) else { return };
        let is_news =
            |namespace: &Place| watcher_of(before, namespace).is_none() || written.of(namespace) > seen.of(namespace);
        for (namespace, version) in &written.written {
            let is_here = watcher_of(places, namespace).is_some_and(|(watching, _)| watching == place);
            if is_here && is_news(namespace) && *version > cache.version() {
                self.namespaces.insert(namespace.clone(), *version);
            }
        }
        let was_read = before.contains_key(place) || before.contains_key(&None);
        if written.others > cache.version() && (!was_read || written.others > seen.others) {
            self.places.insert(place.clone(), written.others);
        }
    }

    /// Notes that a cache which is attached has an object that the one before did not show. If the cache is older than what was written,
    /// the object may have gone since.
    pub(super) fn appeared(&mut self, object: &Object, cache: &Cache, written: &Newest) {
        let namespace = &object.key().namespace;
        let version = written.of(namespace);
        if object.version() <= version && cache.version() < version {
            self.namespaces.insert(namespace.clone(), version);
        }
    }

    /// Returns the version from which on the objects of a namespace are known that are read from a place.
    pub(super) fn of(&self, namespace: &Place, place: &Place) -> Version {
        let known = [self.namespaces.get(namespace), self.places.get(place)];
        known.into_iter().flatten().copied().max().unwrap_or_default()
    }

    /// Returns a place whose cache is behind, of those for this namespace, or for all (`None`).
    pub(super) fn place<'a>(&self, places: &'a Places, namespace: Option<&str>) -> Option<&'a Place> {
        let inside = |of: &Place| namespace.is_none() || of.as_deref() == namespace;
        let namespaces = self.namespaces.iter().filter(|(of, _)| inside(of));
        let namespaces = namespaces.filter_map(|(of, version)| Some((watcher_of(places, of)?, *version)));
        let home = namespace.and_then(|namespace| watcher_of(places, &Some(namespace.into())));
        let read = |place: &Place| namespace.is_none() || home.is_some_and(|(watching, _)| watching == place);
        let whole = self.places.iter().filter(|(place, _)| read(place));
        let whole = whole.filter_map(|(place, version)| Some((places.get_key_value(place)?, *version)));
        let mut all = namespaces.chain(whole);
        all.find(|((_, cache), version)| cache.version() < *version).map(|((place, _), _)| place)
    }

    /// Forgets what caches have come to by now, or is not read any more.
    pub(super) fn forget_seen(&mut self, places: &Places) {
        let is_behind =
            |read: Option<(&Place, &Cache)>, version| read.is_some_and(|(_, cache)| cache.version() < version);
        self.namespaces.retain(|namespace, version| is_behind(watcher_of(places, namespace), *version));
        self.places.retain(|place, version| is_behind(places.get_key_value(place), *version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Writer;

    fn cache(version: u64) -> Cache {
        let mut writer = Writer::default();
        writer.finish_list(Version(version));
        writer.cache()
    }

    fn newest(written: &[(&str, u64)]) -> Newest {
        let mut newest = Newest::default();
        for (namespace, version) in written {
            newest.note(&Some((*namespace).into()), Version(*version));
        }
        newest
    }

    #[test]
    fn a_cache_is_behind_what_was_written_while_it_was_looked_at_what_was_read_before() {
        // OV-1
        let [n, m]: [Place; 2] = ["n", "m"].map(|name| Some(name.into()));
        let places = |version| Arc::new(BTreeMap::from([(n.clone(), cache(version))]));
        let written = newest(&[("n", 5), ("m", 9)]);
        for (case, before, seen, version, of) in [
            ("nothing was read", Places::default(), newest(&[("n", 5)]), 4, 5),
            ("nothing was read, and the cache has it", Places::default(), newest(&[("n", 5)]), 5, 0),
            ("it was written before", places(9), newest(&[("n", 5)]), 4, 0),
            ("it was written meanwhile", places(9), newest(&[("n", 3)]), 4, 5),
            ("the first write was meanwhile", places(9), newest(&[]), 4, 5),
        ] {
            let (mut behind, now) = (Behind::default(), places(version));
            behind.attached((&n, &now), &before, &written, &seen);
            assert_eq!(behind.of(&n, &n), Version(of), "{case}");
            assert_eq!(behind.of(&m, &m), Version(0), "{case}");
            assert_eq!(behind.place(&now, None).is_some(), of > 0, "{case}");
            behind.forget_seen(&places(5));
            assert_eq!(behind.of(&n, &n), Version(0), "{case}");
        }
    }
}

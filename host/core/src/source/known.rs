//! Decides whether a source knows all objects that it is asked for: an object that it does not show may exist all the
//! same.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::State;
use super::watched::{Place, watcher};
use super::{Role, Source, overlay};
use crate::cache::Cache;
use crate::object::{Gvk, Object, ObjectRef, Version};

/// Why a source may not know all objects although all are listed.
const FULL: &str = "its cache is full, and leaves objects out";

/// Why an object is not known that a run has written.
const LOST: &str = "there is no memory (--plugin-memory, --cache-size) for what was written to one of its objects, until the watch shows that";

/// Why nothing is known that a run has written where nothing was read.
const BEHIND: &str = "its cache does not show yet what was written there while it was not watched";

/// Why answers can't be known.
const NO_ROOM: &str = "the keys of its look-ups take more memory than its plugin has (--plugin-memory)";

/// A read asks about no more objects than this that a source has not asked about yet.
pub(super) const MANY: usize = 1000;

/// The objects that a source is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Within<'a> {
    /// One object.
    Object(&'a ObjectRef),
    /// All objects of a namespace.
    Namespace(&'a str),
    /// All objects that belong to a primary.
    Related(&'a ObjectRef),
    /// All objects.
    Everywhere,
    /// All objects under a key of an index.
    Indexed,
}

/// A source does not know all objects that it is asked for. An object that it does not show must not be taken for
/// absent. Retrying later helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("source {source_name} does not know all of {gvk}{} yet: {why}", place.as_deref().map(|name| format!(" in {name}")).unwrap_or_default())]
pub struct Doubt {
    /// The source.
    pub source_name: Arc<str>,
    /// The kind of its objects.
    pub gvk: Gvk,
    /// The namespace that it does not know; `None`: all namespaces, or cluster-scoped objects.
    pub place: Option<Arc<str>>,
    /// The reason.
    pub why: Arc<str>,
}

impl Doubt {
    /// Returns true if it is about what was just written: nobody is to blame that this is not known until the watch shows it.
    pub fn is_of_own_write(&self) -> bool {
        *self.why == *LOST || *self.why == *BEHIND
    }

    /// Returns true if it is about an object that there may have been no room to keep.
    pub fn is_of_room(&self) -> bool {
        *self.why == *FULL
    }
}

impl State {
    /// Returns why what is known of an object may be older than what was written to it; `None` if it is not. `seen` is what its cache has
    /// of it, and up to which version.
    pub(super) fn outdated(
        &self,
        key: &ObjectRef,
        (place, cache): (&Place, &Cache),
        seen: (Option<&Object>, Version),
    ) -> Option<&'static str> {
        let (cached, synced) = seen;
        if self.overlay.lost(key).is_some_and(|lost| lost > synced) {
            return Some(LOST);
        }
        let known = [cached, self.overlay.get(key)].into_iter().flatten().map(Object::version);
        let known = known.fold(cache.version(), Version::max);
        (self.behind.of(&key.namespace, place) > known).then_some(BEHIND)
    }
}

impl Source {
    /// Takes in which namespaces, or all (`None`), should be watched but can't be, and why: nothing is known of them.
    /// Called after the caches of the others have been attached.
    pub fn lacking(&self, places: BTreeMap<Option<Arc<str>>, Arc<str>>) {
        let mut state = self.state.write();
        let State { left, awaited, places: attached, .. } = &mut *state;
        left.retain(|place, _| {
            let listed_later = attached.get(place).is_some_and(|cache| !cache.is_synced());
            places.contains_key(place) || awaited.contains(place) || listed_later
        });
        state.lacking = places;
    }

    /// Takes in whether its kind was not known to be served when it was planned.
    pub fn is_planned(&self, without_kind: bool) {
        self.state.write().without_kind = without_kind;
    }

    /// Returns true if its kind was not known to be served when it was planned: it watches nothing, and would show nothing.
    pub fn is_without_kind(&self) -> bool {
        self.state.read().without_kind
    }

    /// Takes in why nothing is watched while no cache is attached: what there is then is not known.
    pub fn rests(&self, why: &str) {
        self.state.write().unwatched = Some(why.into());
    }

    /// Takes in that it is watched by now, as far as it can be: what is not says itself why.
    pub fn is_demanded(&self) {
        self.state.write().unwatched = None;
    }

    /// Checks that the source is watched, if it is one that is not always.
    ///
    /// # Errors
    /// [`Doubt`] if nothing is watched for it now.
    pub fn watched(&self) -> Result<(), Doubt> {
        self.is_watched(&self.state.read())
    }

    fn is_watched(&self, state: &State) -> Result<(), Doubt> {
        // What should be watched and can't be says why itself.
        let wanted = !state.awaited.is_empty() || state.lacking.contains_key(&None);
        match &state.unwatched {
            Some(why) if state.places.is_empty() && !wanted => Err(self.doubt(&None, why)),
            Some(_) | None => Ok(()),
        }
    }

    /// Takes in that the cache of a namespace, or of all (`None`), has not all fields of objects that the source keeps: nothing
    /// is known until it is attached.
    pub fn awaits(&self, namespace: Option<&str>) {
        self.state.write().awaited.insert(namespace.map(Arc::from));
        self.detach(namespace);
    }

    /// Takes in that such a cache is not waited for any more.
    pub fn gives_up(&self, namespace: Option<&str>) {
        let (mut state, place) = (self.state.write(), namespace.map(Arc::from));
        state.awaited.remove(&place);
        state.left.remove(&place);
    }

    /// Checks that the source knows all objects within `within`. An object that it shows is known, even if others are
    /// not.
    ///
    /// # Errors
    /// [`Doubt`] if an object that is not shown may exist.
    pub fn known(&self, within: Within<'_>) -> Result<(), Doubt> {
        if let Within::Related(primary) = within
            && let Some(why) = self.does_not_lead(primary)
        {
            return Err(self.doubt(&primary.namespace, &why));
        }
        if !self.is_mapped(within) {
            return Err(self.doubt(&None, NO_ROOM));
        }
        if !self.is_asked(within) {
            return Err(
                self.doubt(&None, "the component takes too long to say whose objects are: it rests for a while")
            );
        }
        let state = self.state.read();
        match within {
            Within::Related(_) | Within::Indexed => self.asked_about(&state, within)?,
            // These are found without any look-up.
            Within::Object(_) | Within::Namespace(_) | Within::Everywhere => {}
        }
        match within {
            Within::Object(key) => self.knows(&state, key),
            Within::Namespace(namespace) => self.listed(&state, Some(namespace)),
            Within::Everywhere | Within::Indexed => self.listed(&state, None),
            Within::Related(primary) => match &self.spec.role {
                Role::Primary => self.knows(&state, primary),
                Role::Secondary(mapper) if mapper.stays_at_home(primary) => {
                    self.listed(&state, primary.namespace.as_deref())
                }
                Role::Secondary(_) => self.listed(&state, None),
            },
        }
    }

    /// Checks besides that all objects within `within` are shown: none is left out because a cache is full.
    ///
    /// # Errors
    /// Those of [`Source::known`], and [`Doubt`] if an object may be left out.
    pub fn shows_all(&self, within: Within<'_>) -> Result<(), Doubt> {
        self.known(within)?;
        let namespace = match (within, &self.spec.role) {
            (Within::Object(_), _) | (Within::Related(_), Role::Primary) => return Ok(()),
            (Within::Namespace(namespace), _) => Some(namespace),
            (Within::Related(primary), Role::Secondary(mapper)) if mapper.stays_at_home(primary) => {
                primary.namespace.as_deref()
            }
            (Within::Related(_) | Within::Everywhere | Within::Indexed, _) => None,
        };
        let state = self.state.read();
        let at_home = namespace.map(|namespace| watcher(&state.places, &ObjectRef::namespaced(namespace, "")));
        let full = |(place, cache): (&Place, &Cache)| (!cache.is_complete()).then(|| place.clone());
        let lost = match at_home {
            Some(place) => place.and_then(full),
            None => state.places.iter().find_map(full),
        };
        lost.map_or(Ok(()), |place| Err(self.doubt(&place, FULL)))
    }

    /// Returns true if no object that belongs to a primary can exist without being shown: none is left out because a
    /// cache is full, none is unreadable, and none is in a namespace that is not watched.
    pub fn sees_all_of(&self, primary: &ObjectRef) -> bool {
        let state = self.state.read();
        let whole = |cache: &Cache| cache.is_complete() && cache.unreadable_count() == 0;
        let at_home = match &self.spec.role {
            Role::Primary => true,
            Role::Secondary(mapper) => mapper.stays_at_home(primary),
        };
        let watched = state.places.contains_key(&None) || (at_home && watcher(&state.places, primary).is_some());
        watched && state.places.values().all(whole)
    }

    /// Returns an object; `None` if it is known not to be there.
    ///
    /// # Errors
    /// [`Doubt`] if it is not shown, and may exist all the same.
    pub fn look(&self, key: &ObjectRef) -> Result<Option<Object>, Doubt> {
        if let Some(found) = self.get(key) {
            return Ok(Some(found));
        }
        self.known(Within::Object(key))?;
        // By now it may be shown.
        Ok(self.get(key))
    }

    /// Returns true if what is known of an object may be older than what was written to it.
    pub fn waits_for_own_write(&self, key: &ObjectRef) -> bool {
        self.knows(&self.state.read(), key).is_err_and(|doubt| doubt.is_of_own_write())
    }

    fn knows(&self, state: &State, key: &ObjectRef) -> Result<(), Doubt> {
        let own = state.overlay.get(key);
        let Some((place, cache)) = watcher(&state.places, key) else {
            return own.map_or_else(|| self.nothing_lacks(state, key.namespace.as_deref()), |_| Ok(()));
        };
        let (cached, synced) = cache.look(key);
        if let Some(why) = state.outdated(key, (place, cache), (cached.as_ref(), synced)) {
            return Err(self.doubt(place, why));
        }
        if let Some(found) = overlay::newest(own, cached, synced) {
            let all = found.fields().covers(self.spec.stays());
            return if all {
                Ok(())
            } else {
                Err(self.doubt(place, "its cache has not all fields of this object yet"))
            };
        }
        self.filled(state, place, cache)?;
        if cache.is_unreadable(key) {
            Err(self.doubt(place, "this object can't be read"))
        } else if !cache.is_complete() {
            Err(self.doubt(place, FULL))
        } else {
            Ok(())
        }
    }

    /// Checks that a read does not have to ask about many objects.
    fn asked_about(&self, state: &State, within: Within<'_>) -> Result<(), Doubt> {
        let home = self.home_within(within);
        if state.unasked(home).take(MANY + 1).count() <= MANY {
            return Ok(());
        }
        let why = if state.unkeyed.len() > MANY {
            NO_ROOM.to_owned()
        } else {
            format!("changes of {} objects wait to be asked about", state.backlog.len())
        };
        Err(self.doubt(&None, &why))
    }

    /// Returns the namespace that has all objects that a look-up within `within` may lead to, if it is known that one has.
    pub(super) fn home_within<'p>(&self, within: Within<'p>) -> Option<&'p str> {
        match within {
            Within::Related(primary) => self.home_of(primary),
            Within::Object(_) | Within::Namespace(_) | Within::Everywhere | Within::Indexed => None,
        }
    }

    /// Returns the namespace that has all objects of a primary, if it is known that one has.
    pub(super) fn home_of<'p>(&self, primary: &'p ObjectRef) -> Option<&'p str> {
        match &self.spec.role {
            Role::Secondary(mapper) if mapper.stays_at_home(primary) => primary.namespace.as_deref(),
            Role::Primary | Role::Secondary(_) => None,
        }
    }

    /// Checks that the first lists of a namespace, or of all, are complete.
    fn listed(&self, state: &State, namespace: Option<&str>) -> Result<(), Doubt> {
        let inside = |key: &&ObjectRef| namespace.is_none() || key.namespace.as_deref() == namespace;
        if let Some(key) = state.overlay.all_lost().map(|(key, _)| key).find(inside) {
            return Err(self.doubt(&key.namespace, LOST));
        }
        if let Some(place) = state.behind.place(&state.places, namespace) {
            return Err(self.doubt(place, BEHIND));
        }
        let Some(namespace) = namespace else {
            let mut places = state.places.iter();
            places.try_for_each(|(place, cache)| self.filled(state, place, cache))?;
            return self.nothing_lacks(state, None);
        };
        match watcher(&state.places, &ObjectRef::namespaced(namespace, "")) {
            Some((place, cache)) => self.filled(state, place, cache),
            None => self.nothing_lacks(state, Some(namespace)),
        }
    }

    fn filled(&self, state: &State, place: &Place, cache: &Cache) -> Result<(), Doubt> {
        if !cache.is_synced() {
            return Err(self.doubt(place, "its first list is not complete"));
        }
        if state.entering.contains(place) {
            return Err(self.doubt(place, "not all that is there has been looked through"));
        }
        Ok(())
    }

    fn nothing_lacks(&self, state: &State, namespace: Option<&str>) -> Result<(), Doubt> {
        self.is_watched(state)?;
        let concerns = |place: &Place| namespace.is_none() || place.is_none() || place.as_deref() == namespace;
        if let Some(place) = state.awaited.iter().find(|place| concerns(place)) {
            return Err(self.doubt(place, "its cache has not all fields of objects yet"));
        }
        let mut lacking = state.lacking.iter();
        match lacking.find(|(place, _)| concerns(place)) {
            Some((place, why)) => Err(self.doubt(place, why)),
            None => Ok(()),
        }
    }

    pub(super) fn doubt(&self, place: &Place, why: &str) -> Doubt {
        Doubt {
            source_name: Arc::clone(&self.spec.name),
            gvk: self.spec.gvk.clone(),
            place: place.clone(),
            why: why.into(),
        }
    }
}

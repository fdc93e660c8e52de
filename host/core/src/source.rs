//! One event source of one controller: decides which triggers the queue gets for a change in the caches, and answers
//! reads with own writes included.
//!
//! A source reads one cache or several, one per watched namespace (`IN-2`), which other sources may read too.
//! Overlay, windows, filter, mapper and indexes are its own (`PO-5`). It never calls the queue: its caller passes the
//! [`Trigger`]s on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::cache::Cache;
use crate::manifest::{Bound, Keys};
use crate::object::fields::Fields;
use crate::object::{Change, Gvk, Object, ObjectRef};
use crate::queue::Urgency;
use crate::room::Holding;
use crate::room::charge::Charge;

mod answers;
mod backlog;
mod behind;
mod borrowed;
pub mod callback;
pub mod echo;
mod exports;
pub mod filter;
pub mod index;
mod keys;
mod known;
mod listed;
pub mod mapper;
pub mod on_demand;
pub mod overlay;
mod patience;
mod places;
mod recent;
pub mod registered;
mod relation;
mod replayed;
mod shown;
mod state;
mod telling;
mod touched;
mod watched;
mod write;

use backlog::Backlog;
use behind::Written;
use borrowed::Borrowed;
use callback::{Callback, Faults, questions};
use echo::{EchoFilter, Verdict};
pub use exports::{Exports, RESTS};
use filter::Filter;
use index::{Key, Lookup};
pub use known::{Doubt, Within};
use mapper::Mapper;
pub use places::Attaching;
use recent::Recent;
use state::{Candidates, State};
pub use touched::{Touched, TouchedKeys};
use watched::{is_in, watcher};
pub use write::OwnWrite;

/// An event source. All methods take `&self`; no lock is held during a call to anything but a cache, which calls
/// nothing, and never those of two sources at once.
pub struct Source {
    spec: Spec,
    /// The primaries of its controller, for secondaries that are found through them.
    primaries: Option<Arc<Source>>,
    /// The own writes of its controller, to all kinds.
    written: Written,
    /// The objects that a bounded source has not forgotten.
    recent: Option<Mutex<Recent>>,
    /// Those who want to know of each change.
    touched: Option<Arc<Touched>>,
    state: RwLock<State>,
    /// Something waits to be asked about.
    work: Notify,
    /// Something has been asked about.
    progress: Notify,
}

/// The settings of a source.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name, unique in the controller (`ES-1`).
    pub name: Arc<str>,
    /// The kind of its objects.
    pub gvk: Gvk,
    /// The cluster in which they are, by its name in the manifest; `None`: the daemon's own.
    pub cluster: Option<Arc<str>>,
    /// The role of its objects for the controller.
    pub role: Role,
    /// The filter, which decides which changes matter.
    pub filter: Filter,
    /// Its indexes, by name (`IX-1`).
    pub indexes: BTreeMap<Arc<str>, Keys>,
    /// The fields that it shows of its objects: to all that asks about them, too (`BC-2`).
    pub fields: Fields,
    /// What is forgotten of them (`BC-1`); `None`: nothing.
    pub bounded: Option<Bounded>,
    /// True if its caches are to pack their objects (`BC-4`); it sees nothing of that.
    pub packed: bool,
    /// Takes the failures of what the user asks about objects.
    pub faults: Arc<Faults>,
}

/// What a source forgets of objects that have not been used lately.
#[derive(Clone, Debug)]
pub struct Bounded {
    /// The fields that stay of each object: what identifies it, and what leads to it.
    pub stays: Fields,
    /// What is not forgotten.
    pub bound: Bound,
}

/// The role of objects for a controller (`ID-3`).
#[derive(Clone, Debug)]
pub enum Role {
    /// The objects that the controller reconciles.
    Primary,
    /// Other objects, which belong to the primaries that this mapper returns.
    Secondary(Mapper),
}

/// An event for the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The primary whose key gets the event.
    pub primary: ObjectRef,
    /// The event of the primary.
    pub what: TriggerKind,
    /// Whether something has changed.
    pub urgency: Urgency,
}

/// The receiver of the triggers of sources, called by informers and by own writes that end. Never waits.
pub type Listener = Arc<dyn Fn(Vec<Trigger>) + Send + Sync>;

/// The kind of an event of a primary (`EP-2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriggerKind {
    /// It was added or updated.
    Changed {
        /// True if it is marked for deletion.
        deleting: bool,
    },
    /// It is gone.
    Deleted {
        /// The object as it was last seen.
        last: Object,
        /// True if the deletion itself was missed.
        unknown: bool,
    },
    /// An object that belongs to it has changed.
    Related {
        /// The source that holds it.
        source: Arc<str>,
        /// The object that has changed.
        object: ObjectRef,
        /// True if it is gone.
        gone: bool,
    },
}

/// The reason why a source can't answer. Retrying does not help.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The index was not declared.
    #[error("the source {source_name} has no index {index}")]
    NoIndex {
        /// The source.
        source_name: Arc<str>,
        /// The index.
        index: String,
    },
}

// === impl Source: what is watched ===

impl Source {
    /// Returns a source that watches nothing yet.
    pub fn new(mut spec: Spec) -> Self {
        if let Role::Secondary(mapper) = &spec.role
            && let Some(by) = mapper.index()
        {
            spec.indexes.insert(relation::MAPPED.into(), by.key.clone());
        }
        let recent = spec.bounded.as_ref().map(|bounded| Mutex::new(Recent::new(bounded.bound)));
        let apart = recent.is_some() || !spec.fields.is_whole();
        let backlog = Backlog::new(apart).with_ends(matches!(spec.role, Role::Primary));
        let windows = match &spec.role {
            Role::Primary => EchoFilter::of_primaries(),
            Role::Secondary(_) => EchoFilter::default(),
        };
        let (state, work, progress) =
            (RwLock::new(State { windows, backlog, ..State::default() }), Notify::new(), Notify::new());
        let written = Written::default();
        let source = Self { spec, primaries: None, written, recent, touched: None, state, work, progress };
        source.clear_look_ups();
        source
    }

    fn clear_look_ups(&self) {
        fn lookup<K: Key>(costly: bool) -> Lookup<K> {
            if costly { Lookup::exact() } else { Lookup::default() }
        }
        let costly = self.is_costly();
        let indexes = self.spec.indexes.keys().map(|name| (name.clone(), lookup(costly))).collect();
        let mut state = self.state.write();
        (state.related, state.indexes) = (lookup(costly), indexes);
    }

    /// Lets the plugin borrow the memory that the keys of its look-ups take, and the objects that a bounded source has whole.
    #[must_use]
    pub fn charging(self, holding: impl Fn() -> Option<Holding>) -> Self {
        self.state.write().borrowed = Borrowed(Charge::by(holding()));
        if let Some(recent) = &self.recent {
            recent.lock().charge(holding());
        }
        self
    }

    /// Returns the settings of the source.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Returns true if it watches another cluster than `other`.
    pub fn is_apart_from(&self, other: &Self) -> bool {
        self.spec.cluster != other.spec.cluster
    }

    /// Returns a source that continues where another one of its kind ends: it has seen the same objects, and takes
    /// over the own writes, none of which may be under way. The caller attaches it to every cache that it is to read,
    /// and detaches it from the others; once the one before is told no more, it calls [`Source::hand_over`].
    pub fn heir(spec: Spec, before: &Self) -> Self {
        let heir = Self { written: before.written.clone(), ..Self::new(spec) };
        {
            let (mut state, before) = (heir.state.write(), before.state.read());
            state.places = Arc::clone(&before.places);
            state.listing.clone_from(&before.listing);
            state.since.clone_from(&before.since);
            state.overlay = before.overlay.clone();
            state.windows = before.windows.clone();
            state.left.clone_from(&before.left);
            state.behind = before.behind.clone();
            // What has gone while the other waited may have belonged to anybody.
            state.everybody = !before.awaited.is_empty() && !heir.is_of_primaries();
        }
        heir.work.notify_one();
        heir
    }

    fn is_of_primaries(&self) -> bool {
        matches!(self.spec.role, Role::Primary)
    }

    /// Returns true if a cache for objects of this name is attached.
    pub fn watches(&self, key: &ObjectRef) -> bool {
        self.state.read().cache(key).is_some()
    }

    /// Returns the watched namespaces with their caches, for health (`IE-5`); `None`: all namespaces.
    pub fn places(&self) -> BTreeMap<Option<Arc<str>>, Cache> {
        (*self.state.read().places).clone()
    }

    /// Returns the number of own writes that the watch has not caught up with: answers in the overlay, and windows.
    pub fn own_writes(&self) -> usize {
        let state = self.state.read();
        state.overlay.len() + state.windows.len()
    }

    /// Returns true if all caches are synced: each has been listed once.
    pub fn is_synced(&self) -> bool {
        let places = self.state.read().places.clone();
        places.values().all(Cache::is_synced)
    }
}

// === impl Source: what the informer says ===

impl Source {
    /// Takes in a change that a cache has just taken in, and returns the triggers for the queue. The indexes are up
    /// to date afterwards, even if the filter drops the change (`IS-2`, `IS-3`); a source that asks costly questions
    /// returns none and does both in [`Source::answer`].
    pub fn on(&self, change: Change) -> Vec<Trigger> {
        let Some(change) = self.seen(change) else {
            return Vec::new();
        };
        let change = self.since_it_was_left(change);
        let key = self.touched.is_some().then(|| change.object().key().clone());
        if self.is_costly() {
            let refused = self.state.write().take_later(change);
            if let Some(key) = &key {
                self.touch(key);
            }
            return self.waits(refused);
        }
        let facts = self.facts(&change);
        let verdict = self.state.write().take(change, Some(&facts));
        if let Some(key) = &key {
            self.touch(key);
        }
        match verdict {
            Verdict::Held => Vec::new(),
            Verdict::Pass(change) => self.triggers(&change, facts.primaries.either()),
            Verdict::Released(released) => self.released(released),
        }
    }

    /// Returns the triggers for all objects that the caches show and `which` accepts as if they were added: after a change
    /// of the filter. What was only written may be outside of what is watched.
    pub fn as_added(&self, which: impl Fn(&ObjectRef) -> bool) -> Vec<Trigger> {
        let objects = self.shown(None).into_iter().filter(|object| which(object.key()));
        objects.flat_map(|object| self.triggers_of(Change::Added(object))).collect()
    }
}

// === impl Source: reads ===

impl Source {
    /// Returns an object; `None` if it is not there, or its namespace is not watched (`IN-4`).
    pub fn get(&self, key: &ObjectRef) -> Option<Object> {
        let newest = {
            let state = self.state.read();
            let (place, cache) = watcher(&state.places, key)?;
            let (cached, synced) = cache.look(key);
            if state.outdated(key, (place, cache), (cached.as_ref(), synced)).is_some() {
                // `known` says so.
                return None;
            }
            overlay::newest(state.overlay.get(key), cached, synced)
        };
        newest.and_then(|object| self.show(&object))
    }

    /// Returns the objects of one namespace, or of all (`None`), ordered by namespace and name.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Object> {
        let (places, own) = {
            let state = self.state.read();
            (state.places.clone(), state.overlay.clone())
        };
        let read: Vec<_> = match namespace {
            None => places.iter().collect(),
            Some(namespace) => watcher(&places, &ObjectRef::namespaced(namespace, "")).into_iter().collect(),
        };
        let merged = read.into_iter().flat_map(|(place, cache)| {
            let (cached, seen) = cache.snapshot(namespace);
            let wanted = |key: &ObjectRef| namespace.is_none() || key.namespace.as_deref() == namespace;
            let own = own.iter().filter(|own| wanted(own.key()) && is_in(&places, own.key(), place));
            overlay::merge(own, cached, &seen)
        });
        self.all_shown(merged.collect())
    }

    /// Returns the objects as they are in the caches, without own writes.
    fn shown(&self, namespace: Option<&str>) -> Vec<Object> {
        let places = self.state.read().places.clone();
        let caches = match namespace {
            None => places.values().collect(),
            Some(namespace) => {
                let watcher = watcher(&places, &ObjectRef::namespaced(namespace, ""));
                Vec::from_iter(watcher.map(|(_, cache)| cache))
            }
        };
        let objects = caches.into_iter().flat_map(|cache| cache.snapshot(namespace).0);
        self.all_shown(objects.collect())
    }

    /// Returns the objects under a key of an index, ordered by namespace and name.
    ///
    /// # Errors
    /// [`Error::NoIndex`] if no such index was declared.
    pub fn by_index(&self, index: &str, key: &str) -> Result<Vec<Object>, Error> {
        let Some(keys) = self.spec.indexes.get(index).filter(|_| index != relation::MAPPED) else {
            return Err(Error::NoIndex { source_name: self.spec.name.clone(), index: index.to_owned() });
        };
        let candidates = |state: &State| match state.indexes.get(index) {
            Some(lookup) => Candidates::of(lookup, lookup.get(&key.into())),
            None => Candidates::default(),
        };
        let wanted =
            |object: &Object| self.asked().texts(keys, "object", object, (Callback::Index, index)).contains(key);
        Ok(self.select(None, candidates, wanted))
    }

    /// Returns the number of objects with a finalizer.
    pub fn carrying(&self, finalizer: &str) -> usize {
        let all = self.list(None).into_iter();
        all.filter(|object| object.header().has_finalizer(finalizer)).count()
    }

    /// Returns the objects that `wanted` accepts, of those in the look-up or the overlay, for a `reader` whose they are or for anybody. `wanted` gets the newest
    /// version: the last version of a deleted object may have been under other keys than the one before, so a look-up
    /// can contain too many objects. One that is exact is taken at its word about what is in the caches, but for what
    /// waits to be asked about.
    fn select(
        &self,
        reader: Option<&ObjectRef>,
        candidates: impl FnOnce(&State) -> Candidates,
        wanted: impl Fn(&Object) -> bool,
    ) -> Vec<Object> {
        let (Candidates { objects, exact }, places, own, waiting) = {
            let state = self.state.read();
            let home = reader.and_then(|reader| self.home_of(reader));
            let waiting: BTreeSet<_> = state.unasked(home).cloned().collect();
            (candidates(&state), state.places.clone(), state.overlay.clone(), waiting)
        };
        let _questions = questions();
        let mut keys: BTreeSet<_> = objects.union(&waiting).cloned().collect();
        keys.extend(own.iter().filter(|own| wanted(own)).map(|own| own.key().clone()));
        let newest = keys.iter().filter_map(|key| {
            let (cached, synced) = watcher(&places, key)?.1.look(key);
            let known = exact && own.get(key).is_none() && !waiting.contains(key);
            Some((self.show(&overlay::newest(own.get(key), cached, synced)?)?, known))
        });
        let found: Vec<_> =
            newest.filter(|(object, known)| *known || wanted(object)).map(|(object, _)| object).collect();
        if let Some(reader) = reader {
            self.were_shown(found.iter().filter(|object| waiting.contains(object.key())), reader);
        }
        found
    }
}

impl fmt::Debug for Source {
    /// Writes only the name: the rest is behind a lock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({})", self.spec.name)
    }
}

impl TriggerKind {
    fn of(change: Change) -> Self {
        match change {
            Change::Added(object) | Change::Updated { new: object, .. } => {
                Self::Changed { deleting: object.header().deleting }
            }
            Change::Deleted { last, unknown } => Self::Deleted { last, unknown },
        }
    }
}

#[cfg(test)]
mod tests;

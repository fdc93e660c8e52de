//! Keeps what is known of the operators of the cluster, between who reads them for the supervisor and who says how they are.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use capstan_core::manifest::{Ceilings, OnNewVersion, Operator, object_path};
use capstan_core::object::{Object, ObjectRef, Version};
use capstan_core::operator::ceiling::kinds::Told;
use capstan_core::operator::tenant::{self, Room};
use capstan_core::registry::Digest;
use capstan_core::rollout::File;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::posted::{Posted, Revival, Under};
use super::reads::{Reads, Turn};
use crate::client::InForce;
use crate::informer::pool::Subscription;
use crate::supervisor::supply::Above;

/// How long those that are gone are remembered: they may have left something behind.
pub(super) const FAREWELL: Duration = Duration::from_mins(1);

/// So many of those are remembered.
const REMEMBERED: usize = 1000;

/// So many operators of a namespace are read beyond those that its ceiling permits, to say of each what is wrong.
const SPARE: usize = 16;

/// So many beyond those are said to be too many; of the rest nothing is said, nor kept: whoever makes them without end costs nobody anything.
const TOLD: usize = 64;

/// How the status begins to say what was in force.
const IN_FORCE: &str = "\"inForce\":";

/// The operators of the cluster as they were read last.
pub struct Known {
    /// The daemon's own namespace.
    own: Arc<str>,
    /// What those of other namespaces may have.
    ceilings: Arc<InForce>,
    join: Join,
    watched: Mutex<BTreeMap<Arc<str>, Watched>>,
    all: Mutex<BTreeMap<PathBuf, Posted>>,
    /// What was read since.
    pub(super) reads: Reads,
    /// There may be something to read.
    pub(super) unread: Notify,
    /// The files of what was wanted when all were looked at last.
    wanted: Mutex<BTreeSet<PathBuf>>,
    /// Those that were not too many then, and are still to be read for the first time.
    awaited: Mutex<HashSet<ObjectRef>>,
    /// Those of which nothing is said.
    unsaid: Mutex<HashSet<ObjectRef>>,
    /// Whether the status of each version says that it has been in force: that is looked for once.
    in_force: Mutex<HashMap<ObjectRef, (Version, bool)>>,
    /// Those that are gone, for a while: since when.
    gone: Mutex<Vec<(Instant, Posted)>>,
    /// One is to be looked at again, though it has not changed.
    again: Notify,
    /// Something new has been taken in.
    news: Notify,
}

/// Has the operators of a namespace watched.
pub(super) type Join = Box<dyn Fn(&Arc<str>) -> Subscription + Send + Sync>;

/// The operators of a namespace, as they are watched.
struct Watched {
    operators: Subscription,
    /// Since when the namespace has no ceiling any more.
    left: Option<Instant>,
}

impl Known {
    pub(super) fn new(own: &Arc<str>, ceilings: Arc<InForce>, join: Join) -> Self {
        let known = Self {
            own: Arc::clone(own),
            ceilings,
            join,
            watched: Mutex::default(),
            all: Mutex::default(),
            reads: Reads::default(),
            unread: Notify::new(),
            wanted: Mutex::default(),
            awaited: Mutex::default(),
            unsaid: Mutex::default(),
            in_force: Mutex::default(),
            gone: Mutex::default(),
            again: Notify::new(),
            news: Notify::new(),
        };
        known.join();
        known
    }

    /// Watches the daemon's own namespace, and all that have a ceiling. Those that have none any more are watched a little longer: it is told in the status
    /// of what they have.
    pub(super) fn join(&self) {
        let (ceilings, mut watched) = (self.ceilings.now(), self.watched.lock());
        for namespace in [&self.own].into_iter().chain(ceilings.namespaces()) {
            let join = || Watched { operators: (self.join)(namespace), left: None };
            watched.entry(Arc::clone(namespace)).or_insert_with(join).left = None;
        }
        for (namespace, watched) in &mut *watched {
            if *namespace != self.own && ceilings.of(namespace).is_none() {
                watched.left.get_or_insert_with(Instant::now);
            }
        }
        self.unread.notify_one();
    }

    /// Leaves namespaces that have had no ceiling for a while.
    pub(super) fn leave(&self) {
        let is_over = |watched: &Watched| watched.left.is_some_and(|since| since.elapsed() >= FAREWELL);
        let mut watched = self.watched.lock();
        let left: BTreeSet<_> =
            watched.iter().filter(|(_, one)| is_over(one)).map(|(name, _)| Arc::clone(name)).collect();
        watched.retain(|namespace, _| !left.contains(namespace));
        drop(watched);
        if !left.is_empty() {
            let is_there = |posted: &Posted| posted.key.namespace.as_ref().is_none_or(|one| !left.contains(one));
            self.all.lock().retain(|_, posted| is_there(posted));
            self.again.notify_one();
        }
    }

    /// Returns what holds for the operators of a namespace now.
    fn under(&self, key: &ObjectRef, ceilings: &Ceilings) -> Under {
        match &key.namespace {
            Some(namespace) if *namespace != self.own => {
                ceilings.of(namespace).map_or(Under::Nothing, |ceiling| Under::Ceiling(Arc::clone(ceiling)))
            }
            Some(_) | None => Under::Daemon,
        }
    }

    /// Returns which of these operators are above the ceilings that hold now. Where there are too many, those go first that were applied first.
    pub(super) fn above(&self, operators: &[Operator], told: &Told) -> Above {
        let (ceilings, all) = (self.ceilings.now(), self.all.lock());
        let posted = |operator: &'_ Operator| all.get(operator.origin.file());
        let mut tenants: Vec<_> = operators.iter().filter_map(|one| Some((posted(one)?, one))).collect();
        tenants.sort_by_key(|(posted, _)| (&posted.created, &posted.path));
        let (mut rooms, mut above) = (BTreeMap::new(), Above::default());
        for (posted, operator) in tenants {
            let Some(namespace) = posted.key.namespace.as_ref().filter(|namespace| **namespace != self.own) else {
                continue;
            };
            let may = match ceilings.of(namespace) {
                None => Err(format!("the namespace {namespace} has no ceiling any more")),
                Some(ceiling) => tenant::may_go_on(operator, namespace, ceiling, told).map(|()| ceiling),
            };
            let ceiling = match may {
                Ok(ceiling) => ceiling,
                Err(why) => {
                    above.beyond.insert(Arc::clone(&operator.name), why);
                    continue;
                }
            };
            let room = rooms.entry(namespace).or_insert_with(|| Room::new(ceiling, []));
            if let Err(why) = room.exchange(None, operator) {
                above.without_room.insert(Arc::clone(&operator.name), why);
            }
        }
        above
    }

    /// Whether those of all namespaces have been listed once.
    pub(super) fn is_listed(&self) -> bool {
        self.watched.lock().values().all(|watched| watched.operators.is_filled())
    }

    /// Returns the objects of all namespaces that have been listed.
    fn objects(&self) -> Vec<Object> {
        let watched = self.watched.lock();
        let listed = watched.values().map(|watched| &watched.operators).filter(|operators| operators.is_filled());
        listed.flat_map(|operators| operators.cache.list()).collect()
    }

    /// Returns those of namespaces with a ceiling that are not even read, as there are many more than it permits, and of how many of these nothing is
    /// said: those go first that are wanted, then those that were read or have been in force, then those of which something was said before, then
    /// by name. What was read is never silently left out.
    fn crowd(
        objects: &[Object],
        (wanted, known, awaited): (&BTreeSet<&Path>, &BTreeMap<PathBuf, Posted>, &HashSet<ObjectRef>),
        ceilings: &Ceilings,
        in_force: &mut HashMap<ObjectRef, (Version, bool)>,
    ) -> (HashSet<ObjectRef>, HashSet<ObjectRef>) {
        let mut looked = HashMap::new();
        let mut was_in_force = |object: &Object| {
            let (key, version) = (object.key(), object.version());
            let known = in_force.get(key).filter(|(of, _)| *of == version).map(|(_, found)| *found);
            let found = known.unwrap_or_else(|| object.json().contains(IN_FORCE));
            looked.insert(key.clone(), (version, found));
            found
        };
        let mut rank = |object: &Object| {
            let path = object_path(object.key());
            // Its status says so, perhaps.
            let mut is_next = || awaited.contains(object.key()) || was_in_force(object);
            let new = || if is_next() { 0 } else { 2 };
            let said = known.get(&path).map_or_else(new, |posted| u8::from(posted.is_crowded));
            (!wanted.contains(&*path), said, Arc::clone(&object.key().name))
        };
        let mut namespaces = HashMap::<&Arc<str>, Vec<&Object>>::new();
        for (namespace, object) in objects.iter().filter_map(|one| Some((one.key().namespace.as_ref()?, one))) {
            namespaces.entry(namespace).or_default().push(object);
        }
        let (mut unread, mut unsaid) = (HashSet::new(), HashSet::new());
        for (namespace, all) in namespaces {
            let most = ceilings.of(namespace).map_or(usize::MAX, |ceiling| ceiling.operators.saturating_add(SPARE));
            if all.len() > most {
                let mut ranked: Vec<_> = all.into_iter().map(|object| (rank(object), object.key())).collect();
                ranked.sort();
                for (place, ((_, said, _), key)) in ranked.into_iter().enumerate().skip(most) {
                    let is_said = place < most.saturating_add(TOLD) || said == 0;
                    (if is_said { &mut unread } else { &mut unsaid }).insert(key.clone());
                }
            }
        }
        *in_force = looked;
        (unread, unsaid)
    }

    /// Whether an object is there no more. One that is there but can't be read, for want of room, neither changes nor ends; nor does one of a namespace
    /// that can't be listed.
    fn is_gone(&self, key: &ObjectRef) -> bool {
        let all = self.watched.lock();
        let watched = key.namespace.as_ref().and_then(|namespace| Some(&all.get(namespace)?.operators));
        let listed = watched.filter(|watched| watched.is_filled());
        listed.is_some_and(|watched| watched.cache.get(key).is_none() && !watched.cache.is_unreadable(key))
    }

    /// Whether all are to be looked at again: one has gone, was read, or there are too many.
    pub(super) fn differs(&self) -> bool {
        let (objects, all) = (self.objects(), self.all.lock());
        let (crowd, unsaid) = self.crowded(&objects, &all);
        // What is not one too many any more is read first.
        let is_crowded = |posted: &Posted| posted.is_crowded || !crowd.contains(&posted.key);
        let is_known = |key: &ObjectRef| all.contains_key(&object_path(key));
        let settled = all.values().all(|posted| !self.is_gone(&posted.key) && is_crowded(posted));
        self.reads.has_ready() || !settled || !crowd.iter().all(is_known) || unsaid != *self.unsaid.lock()
    }

    /// Returns which is to be read next: those that are not as they were read last, unless they are too many.
    pub(super) fn next(&self, now: Instant) -> Turn {
        let (ceilings, mut objects, all) = (self.ceilings.now(), self.objects(), self.all.lock());
        let (crowd, unsaid) = self.crowded(&objects, &all);
        objects.retain(|object| !crowd.contains(object.key()) && !unsaid.contains(object.key()));
        let unread = objects.into_iter().filter_map(|object| {
            let under = self.under(object.key(), &ceilings);
            let known = all.get(&object_path(object.key())).filter(|posted| !posted.is_crowded);
            let is_read = known.is_some_and(|posted| posted.is(&object) && posted.under == under);
            (!is_read && !self.reads.has(&object, &under)).then_some((object, under))
        });
        let unread = unread.collect();
        drop(all);
        self.reads.next(unread, now)
    }

    /// Returns those of which there are too many, beside what was wanted last.
    fn crowded(
        &self,
        objects: &[Object],
        known: &BTreeMap<PathBuf, Posted>,
    ) -> (HashSet<ObjectRef>, HashSet<ObjectRef>) {
        let wanted = self.wanted.lock();
        let wanted: BTreeSet<&Path> = wanted.iter().map(PathBuf::as_path).collect();
        Self::crowd(objects, (&wanted, known, &self.awaited.lock()), &self.ceilings.now(), &mut self.in_force.lock())
    }

    /// Waits until one is to be looked at again though it has not changed. If the future is dropped, nothing is lost.
    pub(super) async fn wanted(&self) {
        self.again.notified().await;
    }

    /// Returns all of them as they were read last, where `before` was wanted until now. Those come first that have been in force as they are, then those that have been in
    /// force otherwise, then the oldest: so a name stays with who has it (`OP-4`).
    pub(super) fn look(&self, before: &[Operator]) -> Vec<File> {
        *self.wanted.lock() = before.iter().map(|operator| operator.origin.file().to_owned()).collect();
        let (mut all, mut ready) = (self.all.lock(), self.reads.take());
        let mut known = std::mem::take(&mut *all);
        let mut objects = self.objects();
        let ceilings = self.ceilings.now();
        let wanted: BTreeSet<&Path> = before.iter().map(|operator| operator.origin.file()).collect();
        let mut awaited = self.awaited.lock();
        let (crowd, unsaid) = Self::crowd(&objects, (&wanted, &known, &awaited), &ceilings, &mut self.in_force.lock());
        objects.retain(|object| !unsaid.contains(object.key()));
        known.retain(|_, posted| !unsaid.contains(&posted.key));
        *self.unsaid.lock() = unsaid;
        all.extend(objects.iter().filter_map(|object| {
            let path = object_path(object.key());
            let under = self.under(object.key(), &ceilings);
            let is_it = known.get(&path).is_some_and(|posted| posted.is(object) && posted.under == under);
            let same = known.get(&path).is_some_and(|posted| posted.uid == object.header().uid);
            // One that was made anew is another.
            let posted = if same { known.remove(&path) } else { None };
            let crowded = crowd.contains(object.key());
            let posted = match ready.remove(object.key()).filter(|read| !crowded && read.uid == object.header().uid) {
                _ if crowded => Some(
                    posted
                        .filter(|posted| is_it && posted.is_crowded)
                        .unwrap_or_else(|| Posted::crowded(object, under)),
                ),
                Some(read) => Some(read),
                // Until it is read, it is what it was.
                None => posted,
            };
            Some((path, posted?))
        }));
        let stays = |(path, posted): &(PathBuf, Posted)| !all.contains_key(path) && !self.is_gone(&posted.key);
        let (stays, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = known.into_iter().partition(stays);
        all.extend(stays);
        let mut left = self.gone.lock();
        left.extend(gone.into_values().map(|posted| (Instant::now(), posted)));
        let more = left.len().saturating_sub(REMEMBERED);
        left.drain(..more);
        drop(left);
        for posted in all.values_mut().filter(|posted| posted.content.is_err()) {
            if !wanted.contains(&*posted.path) && posted.revival == Revival::Unneeded && posted.last_good.is_some() {
                posted.revival = Revival::UnderWay;
            }
        }
        let mut sorted: Vec<&Posted> = all.values().collect();
        sorted.sort_by_key(|posted| {
            let before = (!posted.is_as_in_force, posted.last_good.is_none());
            (before, &posted.created, &posted.path)
        });
        let is_unread = |key: &&ObjectRef| !crowd.contains(*key) && !all.contains_key(&object_path(key));
        *awaited = objects.iter().map(Object::key).filter(is_unread).cloned().collect();
        self.unread.notify_one();
        let mut rooms = Rooms::new(&ceilings, before, &all);
        let file = |posted| {
            let posted: &Posted = posted;
            let revived = posted.last_good.as_ref().filter(|_| posted.revival == Revival::UnderWay);
            let content = revived.map_or_else(|| posted.content.clone(), |operator| Ok(operator.clone()));
            let content = rooms.take(posted, content);
            File { path: posted.path.clone(), content: content.map(|operator| vec![operator]) }
        };
        sorted.into_iter().map(file).collect()
    }

    /// Says whose names are taken, and why.
    pub(super) fn refuse(&self, taken: &BTreeMap<&Path, String>) {
        for (path, posted) in &mut *self.all.lock() {
            let refused = taken.get(&**path).map(|why| ("NameTaken", why.clone()));
            if let Some((_, why)) = refused.as_ref().filter(|refused| posted.refused.as_ref() != Some(refused)) {
                tracing::error!(operator = %posted.key, "an operator of the cluster is not heeded: {why}");
            }
            posted.refused = refused;
        }
    }

    /// Returns those that have gone lately.
    pub(super) fn gone(&self) -> Vec<Posted> {
        let mut gone = self.gone.lock();
        gone.retain(|(since, _)| since.elapsed() < FAREWELL);
        gone.iter().map(|(_, posted)| posted.clone()).collect()
    }

    /// Says that what was read last has been taken in: what is known of operators is about that from now on.
    pub(super) fn settle(&self) {
        let mut all = self.all.lock();
        let mut new = all.values_mut().filter(|posted| !posted.is_settled).peekable();
        if new.peek().is_some() {
            new.for_each(|posted| posted.is_settled = true);
            self.news.notify_one();
        }
    }

    /// Waits until something new has been taken in. If the future is dropped, nothing is lost.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// Returns those that have been taken in.
    pub(super) fn settled(&self) -> Vec<Posted> {
        self.all.lock().values().filter(|posted| posted.is_settled).cloned().collect()
    }

    /// Returns what was in force of the operator that is this object, as its status says: what it was given, and its components.
    pub(in crate::supervisor) fn last_in_force(&self, path: &Path) -> Option<(Operator, BTreeMap<Arc<str>, Digest>)> {
        let all = self.all.lock();
        let posted = all.get(path)?;
        posted.last_good.clone().zip(posted.components.clone())
    }

    /// Returns what that version said of newer ones.
    pub(in crate::supervisor) fn last_said(&self, path: &Path) -> OnNewVersion {
        let all = self.all.lock();
        let last_good = all.get(path).and_then(|posted| posted.last_good.as_ref());
        last_good.map(|operator| operator.on_new_version).unwrap_or_default()
    }

    /// Returns an object as it is cached now.
    pub(super) fn object(&self, key: &ObjectRef) -> Option<Object> {
        self.watched.lock().get(key.namespace.as_ref()?)?.operators.cache.get(key)
    }

    /// Sets whether the last good version of what was read is put in place first, and has all looked at again.
    pub(super) fn revive(&self, read: &Posted, revival: Revival) {
        let mut all = self.all.lock();
        let same = |posted: &&mut Posted| (&posted.uid, posted.generation) == (&read.uid, read.generation);
        if let Some(posted) = all.get_mut(&read.path).filter(same) {
            posted.revival = revival;
            posted.is_settled = false;
            self.again.notify_one();
        }
    }
}

/// The room that ceilings have for the operators of their namespaces (`CE-5`).
struct Rooms<'k> {
    ceilings: &'k Ceilings,
    /// What goes on as it is, by path.
    before: BTreeMap<&'k Path, &'k Operator>,
    by_namespace: BTreeMap<&'k Arc<str>, Room<'k>>,
}

impl<'k> Rooms<'k> {
    fn new(ceilings: &'k Ceilings, before: &'k [Operator], all: &'k BTreeMap<PathBuf, Posted>) -> Self {
        let before = before.iter().map(|operator| (operator.origin.file(), operator));
        let before: BTreeMap<_, _> = before.filter(|(path, _)| all.contains_key(*path)).collect();
        Self { ceilings, before, by_namespace: BTreeMap::new() }
    }

    /// Gives an operator its room, if there is some. One that gets none goes on as it was.
    fn take(&mut self, posted: &'k Posted, content: Result<Operator, String>) -> Result<Operator, String> {
        let namespace = posted.key.namespace.as_ref();
        let Some((namespace, ceiling)) = namespace.and_then(|one| Some((one, self.ceilings.of(one)?))) else {
            return content;
        };
        let own = self.before.values().filter(|operator| {
            operator.controllers.values().any(|controller| controller.home.as_ref() == Some(namespace))
        });
        let room = self.by_namespace.entry(namespace).or_insert_with(|| Room::new(ceiling, own.copied()));
        let named = |why: String| format!("{}: spec: {why}", posted.path.display());
        let operator = content?;
        let before = self.before.get(&*posted.path).copied();
        room.exchange(before, &operator).map(|()| operator).map_err(named)
    }
}

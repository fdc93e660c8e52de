//! Keeps what is known of the operators of the cluster, between who reads them for the supervisor and who says how they are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_core::manifest::{Ceilings, Defaults, OnNewVersion, Operator, is_object_path};
use capstan_core::object::{Object, ObjectRef};
use capstan_core::operator::ceiling::kinds::Told;
use capstan_core::operator::tenant::{self, Count, Room};
use capstan_core::registry::Digest;
use capstan_core::rollout::File;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::home::{Entry, Home, Listed, most};
use super::posted::{Posted, Read, Revival, Under, last_in_force};
use super::reads::{Reads, Turn};
use crate::client::InForce;
use crate::informer::pool::Subscription;
use crate::supervisor::supply::Above;

/// How long those that are gone are remembered: they may have left something behind.
pub(super) const FAREWELL: Duration = Duration::from_mins(1);

/// So many of those are remembered.
const REMEMBERED: usize = 1000;

/// The operators of the cluster as they were read last.
pub struct Known {
    /// The daemon's own namespace.
    own: Arc<str>,
    /// What those of other namespaces may have.
    ceilings: Arc<InForce>,
    /// What holds for all of them where they say nothing.
    pub(super) defaults: Arc<Defaults>,
    join: Join,
    watched: Mutex<BTreeMap<Arc<str>, Watched>>,
    reads: Reads,
    /// There may be something to read.
    pub(super) unread: Notify,
    /// Those that are gone, for a while: since when.
    gone: Mutex<Vec<(Instant, Arc<str>, Object)>>,
    /// One is to be looked at again, though it has not changed.
    again: Notify,
    /// Something new has been taken in.
    news: Notify,
}

/// Has the operators of a namespace watched, and sets that one has changed whenever one has.
pub(super) type Join = Box<dyn Fn(&Arc<str>, Arc<AtomicBool>) -> Subscription + Send + Sync>;

/// The operators of a namespace, as they are watched.
struct Watched {
    operators: Subscription,
    /// Since when the namespace has no ceiling any more.
    left: Option<Instant>,
    /// Whether one has changed since it was looked at them.
    changed: Arc<AtomicBool>,
    under: Under,
    /// So many are read.
    most: usize,
    home: Home,
}

impl Known {
    pub(super) fn new(own: &Arc<str>, ceilings: Arc<InForce>, defaults: Arc<Defaults>, join: Join) -> Self {
        let known = Self {
            own: Arc::clone(own),
            ceilings,
            defaults,
            join,
            watched: Mutex::default(),
            reads: Reads::default(),
            unread: Notify::new(),
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
            let join = || {
                let changed = Arc::new(AtomicBool::new(true));
                let operators = (self.join)(namespace, Arc::clone(&changed));
                Watched { operators, left: None, changed, under: Under::Nothing, most: 0, home: Home::default() }
            };
            watched.entry(Arc::clone(namespace)).or_insert_with(join).left = None;
        }
        for (namespace, watched) in &mut *watched {
            let under = self.under(namespace, &ceilings);
            if under == Under::Nothing {
                watched.left.get_or_insert_with(Instant::now);
            }
            if under != watched.under {
                watched.most = most(&under, watched.most);
                watched.under = under;
                watched.changed.store(true, Ordering::Release);
            }
        }
        self.unread.notify_one();
    }

    /// Leaves namespaces that have had no ceiling for a while.
    pub(super) fn leave(&self) {
        let is_over = |watched: &Watched| watched.left.is_some_and(|since| since.elapsed() >= FAREWELL);
        let mut watched = self.watched.lock();
        let before = watched.len();
        watched.retain(|_, one| !is_over(one));
        if watched.len() < before {
            self.again.notify_one();
        }
    }

    /// Returns what holds for the operators of a namespace now.
    fn under(&self, namespace: &Arc<str>, ceilings: &Ceilings) -> Under {
        if *namespace == self.own {
            return Under::Daemon;
        }
        ceilings.of(namespace).map_or(Under::Nothing, |ceiling| Under::Ceiling(Arc::clone(ceiling)))
    }

    /// Returns which of these operators are above the ceilings that hold now. Where there are too many, those go first that were applied first.
    pub(super) fn above(&self, operators: &[Operator], told: &Told) -> Above {
        let ceilings = self.ceilings.now();
        let posted = |operator: &Operator| self.posted(operator.origin.file());
        let mut tenants: Vec<_> = operators.iter().filter_map(|one| Some((posted(one)?, one))).collect();
        tenants.sort_by(|(a, _), (b, _)| (&a.created, &a.path).cmp(&(&b.created, &b.path)));
        let (mut rooms, mut above) = (BTreeMap::new(), Above::default());
        for (posted, operator) in &tenants {
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
            if let Err(why) = room.exchange(None, Count::of(operator)) {
                above.without_room.insert(Arc::clone(&operator.name), why);
            }
        }
        above
    }

    /// Whether those of all namespaces have been listed once.
    pub(super) fn is_listed(&self) -> bool {
        self.watched.lock().values().all(|watched| watched.operators.is_filled())
    }

    /// Returns from when on all are to be looked at again, if they are: one has gone, was read, or there are too many.
    pub(super) fn differs(&self, now: Instant) -> Option<Instant> {
        let mut watched = self.watched.lock();
        let mut next = None;
        for one in watched.values_mut() {
            one.survey(now);
            if one.is_changed() || one.home.is_other() && one.operators.is_filled() {
                let from = one.home.rests(now).unwrap_or(now);
                next = Some(next.map_or(from, |next: Instant| next.min(from)));
            }
        }
        next
    }

    /// Returns which is to be read next: those that are not as they were read last, unless they are too many.
    pub(super) fn next(&self, now: Instant) -> Turn {
        let (mut watched, mut unread, mut rest) = (self.watched.lock(), Vec::new(), None);
        for one in watched.values_mut() {
            one.survey(now);
            unread.extend(one.home.due().map(|object| (object.clone(), one.under.clone())));
            if let Some(until) = one.home.rests(now).filter(|_| one.is_changed()) {
                rest = Some(rest.map_or(until, |rest: Instant| rest.min(until)));
            }
        }
        drop(watched);
        match (self.reads.next(unread, now), rest) {
            (Turn::Nothing, Some(until)) => Turn::Rest(until),
            (Turn::Rest(other), Some(until)) => Turn::Rest(until.min(other)),
            (turn @ (Turn::Nothing | Turn::Rest(_) | Turn::Read(..)), _) => turn,
        }
    }

    /// Takes in what was read of an object, which took so long.
    pub(super) fn read(&self, object: &Object, read: Read, took: Duration) {
        self.reads.took(object, &read.posted.under, took, Instant::now());
        let mut watched = self.watched.lock();
        let home = object.key().namespace.as_ref().and_then(|namespace| watched.get_mut(namespace));
        if let Some(one) = home.filter(|one| one.under == read.posted.under) {
            one.home.read(read);
        }
    }

    /// Waits until one is to be looked at again though it has not changed. If the future is dropped, nothing is lost.
    pub(super) async fn wanted(&self) {
        self.again.notified().await;
    }

    /// Returns all of them as they were read last, where `before` was wanted until now. Those come first that have been in force as they are, then those that have been in
    /// force otherwise, then the oldest: so a name stays with who has it (`OP-4`).
    pub(super) fn look(&self, before: &[Operator]) -> Vec<File> {
        let (ceilings, now) = (self.ceilings.now(), Instant::now());
        let mut wanted = BTreeMap::<&str, BTreeSet<Arc<str>>>::new();
        for (home, name) in before.iter().filter_map(|operator| place(operator.origin.file())) {
            wanted.entry(home).or_default().insert(name.into());
        }
        let mut watched = self.watched.lock();
        for (namespace, one) in &mut *watched {
            let gone = one.take_in(wanted.remove(&**namespace).unwrap_or_default(), now);
            self.bury(gone);
        }
        let before: BTreeMap<_, _> = before.iter().map(|operator| (operator.origin.file(), operator)).collect();
        let mut rooms = Rooms::new(&ceilings, before, &watched);
        let mut sorted: Vec<&mut Entry> = watched.values_mut().flat_map(|one| one.home.entries_mut()).collect();
        sorted.sort_by(|a, b| rank(&a.posted).cmp(&rank(&b.posted)));
        let mut file = |entry: &mut Entry| {
            let (path, before) = (entry.posted.path.clone(), rooms.before(&entry.posted));
            entry.begin(before.is_some());
            let content = entry.content(before, |posted, count| rooms.take(posted, count))?;
            Some(File { path, content: content.map(|operator| vec![operator]) })
        };
        let files = sorted.into_iter().filter_map(&mut file).collect();
        // What has room again is read again.
        for one in watched.values().filter(|one| one.home.lacks()) {
            one.changed.store(true, Ordering::Release);
        }
        self.unread.notify_one();
        files
    }

    /// Remembers those that are gone.
    fn bury(&self, gone: Vec<Arc<Posted>>) {
        let mut left = self.gone.lock();
        left.extend(gone.into_iter().map(|posted| (Instant::now(), Arc::clone(&posted.name), posted.object.clone())));
        let more = left.len().saturating_sub(REMEMBERED);
        left.drain(..more);
    }

    /// Says whose names are taken, and why.
    pub(super) fn refuse(&self, taken: &BTreeMap<&Path, String>) {
        for entry in self.watched.lock().values_mut().flat_map(|one| one.home.entries_mut()) {
            let refused = taken.get(&*entry.posted.path).map(|why| ("NameTaken", why.clone()));
            if entry.posted.refused == refused {
                continue;
            }
            if let Some((_, why)) = &refused {
                tracing::error!(operator = %entry.posted.key, "an operator of the cluster is not heeded: {why}");
            }
            entry.posted_mut().refused = refused;
        }
    }

    /// Returns those that have gone lately, with what they were called.
    pub(super) fn gone(&self) -> Vec<(Arc<str>, Object)> {
        let mut gone = self.gone.lock();
        gone.retain(|(since, ..)| since.elapsed() < FAREWELL);
        gone.iter().map(|(_, name, object)| (Arc::clone(name), object.clone())).collect()
    }

    /// Says that what was read last has been taken in: what is known of operators is about that from now on.
    pub(super) fn settle(&self) {
        let mut watched = self.watched.lock();
        let all = watched.values_mut().flat_map(|one| one.home.entries_mut());
        let mut new = all.filter(|entry| !entry.posted.is_settled).peekable();
        if new.peek().is_some() {
            new.for_each(|entry| entry.posted_mut().is_settled = true);
            self.news.notify_one();
        }
    }

    /// Waits until something new has been taken in. If the future is dropped, nothing is lost.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// Returns those that have been taken in.
    pub(super) fn settled(&self) -> Vec<Arc<Posted>> {
        let watched = self.watched.lock();
        let all = watched.values().flat_map(|one| one.home.entries());
        all.filter(|entry| entry.posted.is_settled).map(|entry| Arc::clone(&entry.posted)).collect()
    }

    fn posted(&self, path: &Path) -> Option<Arc<Posted>> {
        let (home, name) = place(path)?;
        Some(Arc::clone(&self.watched.lock().get(home)?.home.entry(name)?.posted))
    }

    /// Returns what was in force of the operator that is this object, as its status says: what it was given, and its components.
    pub(in crate::supervisor) fn last_in_force(&self, path: &Path) -> Option<(Operator, BTreeMap<Arc<str>, Digest>)> {
        let posted = self.posted(path)?;
        last_in_force(&self.object(&posted.key)?, &self.defaults, &posted.under)
    }

    /// Returns what that version said of newer ones.
    pub(in crate::supervisor) fn last_said(&self, path: &Path) -> OnNewVersion {
        let posted = self.posted(path);
        let last_good = posted.as_ref().and_then(|posted| posted.last_good.as_ref());
        last_good.map(|last_good| last_good.on_new_version).unwrap_or_default()
    }

    /// Returns an object as it is cached now.
    pub(super) fn object(&self, key: &ObjectRef) -> Option<Object> {
        self.watched.lock().get(key.namespace.as_ref()?)?.operators.cache.get(key)
    }

    /// Sets whether the last good version of what was read is put in place first, and has all looked at again, once it is read.
    pub(super) fn revive(&self, read: &Posted, revival: Revival) {
        let mut watched = self.watched.lock();
        let Some(one) = read.key.namespace.as_ref().and_then(|namespace| watched.get_mut(namespace)) else {
            return;
        };
        let same = |entry: &&mut Entry| (&entry.posted.uid, entry.posted.generation) == (&read.uid, read.generation);
        if let Some(entry) = one.home.entry_mut(&read.key.name).filter(same) {
            if entry.revive(revival) {
                one.changed.store(true, Ordering::Release);
                self.unread.notify_one();
            } else {
                self.again.notify_one();
            }
        }
    }
}

/// Returns the namespace and the name of the object that a path stands for.
fn place(path: &Path) -> Option<(&str, &str)> {
    let home = path.parent().filter(|_| is_object_path(path))?;
    Some((home.file_name()?.to_str()?, path.file_name()?.to_str()?))
}

/// Returns what says who has a name before others.
fn rank(posted: &Posted) -> (bool, bool, &str, &PathBuf) {
    (!posted.is_as_in_force, posted.last_good.is_none(), &posted.created, &posted.path)
}

// === impl Watched ===

impl Watched {
    /// Whether one may have changed since it was looked at them. Those of a namespace count once all have come.
    fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire) && self.operators.is_filled()
    }

    /// Does something with those that there are now.
    fn with<T>(&mut self, act: impl FnOnce(&mut Home, &Listed<'_>) -> T) -> T {
        self.changed.store(false, Ordering::Release);
        let cache = &self.operators.cache;
        let objects = cache.list();
        let is_unreadable = |key: &ObjectRef| cache.is_unreadable(key);
        let listed = Listed { objects: &objects, is_unreadable: &is_unreadable, under: &self.under, most: self.most };
        act(&mut self.home, &listed)
    }

    /// Looks at those that there are, if one has changed and they don't rest.
    fn survey(&mut self, now: Instant) {
        if self.is_changed() && self.home.rests(now).is_none() {
            self.with(|home, listed| home.survey(listed, now));
        }
    }

    /// Takes in what is otherwise than it was, unless they rest. Returns those that are gone.
    fn take_in(&mut self, wanted: BTreeSet<Arc<str>>, now: Instant) -> Vec<Arc<Posted>> {
        if self.home.want(wanted) {
            self.changed.store(true, Ordering::Release);
        }
        let is_due = (self.home.is_other() || self.is_changed()) && self.home.rests(now).is_none();
        if is_due && self.operators.is_filled() {
            self.with(|home, listed| home.take_in(listed, now))
        } else {
            Vec::new()
        }
    }
}

/// The room that ceilings have for the operators of their namespaces (`CE-5`).
struct Rooms<'k> {
    ceilings: &'k Ceilings,
    /// What goes on as it is, by path.
    before: BTreeMap<&'k Path, &'k Operator>,
    by_namespace: BTreeMap<Arc<str>, Room<'k>>,
}

impl<'k> Rooms<'k> {
    fn new(
        ceilings: &'k Ceilings,
        mut before: BTreeMap<&'k Path, &'k Operator>,
        watched: &BTreeMap<Arc<str>, Watched>,
    ) -> Self {
        let is_there = |path: &Path| {
            place(path).is_some_and(|(home, name)| watched.get(home).is_some_and(|one| one.home.entry(name).is_some()))
        };
        before.retain(|path, _| is_there(path));
        let mut own = BTreeMap::<&Arc<str>, Vec<&Operator>>::new();
        for operator in before.values() {
            if let Some(home) = operator.controllers.values().find_map(|controller| controller.home.as_ref()) {
                own.entry(home).or_default().push(operator);
            }
        }
        let room =
            |(home, own): (&Arc<str>, Vec<&Operator>)| Some((Arc::clone(home), Room::new(ceilings.of(home)?, own)));
        let by_namespace = own.into_iter().filter_map(room).collect();
        Self { ceilings, before, by_namespace }
    }

    /// Returns what goes on of an operator.
    fn before(&self, posted: &Posted) -> Option<&'k Operator> {
        self.before.get(&*posted.path).copied()
    }

    /// Gives an operator its room, if there is some. One that gets none goes on as it was.
    fn take(&mut self, posted: &Posted, count: Count) -> Result<(), String> {
        let namespace = posted.key.namespace.as_ref();
        let Some((namespace, ceiling)) = namespace.and_then(|one| Some((one, self.ceilings.of(one)?))) else {
            return Ok(());
        };
        let before = self.before(posted).map(Count::of);
        let room = self.by_namespace.entry(Arc::clone(namespace)).or_insert_with(|| Room::new(ceiling, []));
        room.exchange(before, count).map_err(|why| format!("{}: spec: {why}", posted.path.display()))
    }
}

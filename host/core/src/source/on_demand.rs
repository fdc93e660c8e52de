//! Decides when the sources of dependents with an activation condition are watched: as long as such a dependent of some primary is active
//! (`WF-4`, `WF-12`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::registered::{Unfilled, Watch};
use super::{Doubt, Source};
use crate::object::ObjectRef;

/// The sources of a controller that are watched on demand, by name.
#[derive(Default)]
pub struct OnDemand(BTreeMap<Arc<str>, Entry>);

/// Begins to watch for a source, and returns what keeps it watched.
pub type Join = Box<dyn Fn(Telling) -> Arc<dyn Watch> + Send + Sync>;

/// When a source is told what there is already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// Before anything else is done.
    AtOnce,
    /// Beside what else is done, for it may be very much. It is filled once it has been told.
    Beside,
}

/// A dependent of a primary.
pub type User = (ObjectRef, Arc<str>);

/// The dependents that are active.
pub type Users = BTreeSet<User>;

/// Why nothing is known of a source while none of its dependents is active.
const NOBODY: &str =
    "it is watched only while a dependent with an activation condition is active for some primary, and none is";

struct Entry {
    source: Arc<Source>,
    /// The dependents that it holds.
    dependents: BTreeSet<Arc<str>>,
    join: Join,
    demand: parking_lot::Mutex<Demand>,
    /// `None`: it is not watched. Held while that changes, so that an end does not undo a beginning.
    watch: Mutex<Option<Arc<dyn Watch>>>,
}

/// Whose demand it is.
#[derive(Default)]
struct Demand {
    users: BTreeSet<User>,
    /// Another version sees to the source: this one keeps its informers, and leaves alone what it reads.
    retired: bool,
}

// === impl OnDemand ===

impl OnDemand {
    /// Adds a source that holds these dependents, some of which are active already: those among `users`, whichever source has held them so
    /// far.
    pub fn insert(&mut self, source: Arc<Source>, dependents: BTreeSet<Arc<str>>, users: &Users, join: Join) {
        let users: Users = users.iter().filter(|(_, dependent)| dependents.contains(dependent)).cloned().collect();
        if users.is_empty() {
            source.rests(NOBODY);
        }
        let demand = parking_lot::Mutex::new(Demand { users, retired: false });
        let name = Arc::clone(&source.spec().name);
        self.0.insert(name, Entry { source, dependents, join, demand, watch: Mutex::default() });
    }

    /// Begins to watch for the sources with active dependents: before anybody else has this. Returns their names.
    pub fn resume(&mut self) -> BTreeSet<Arc<str>> {
        let mut resumed = BTreeSet::new();
        for (name, Entry { source, join, demand, watch, .. }) in &mut self.0 {
            if !demand.get_mut().users.is_empty() {
                source.is_demanded();
                *watch.get_mut() = Some(join(Telling::AtOnce));
                resumed.insert(Arc::clone(name));
            }
        }
        resumed
    }

    /// Returns true if there are dependents whose sources `before` had not on demand.
    pub fn has_others_than(&self, before: &Self) -> bool {
        let known: BTreeSet<_> = before.0.values().flat_map(|entry| &entry.dependents).collect();
        self.0.values().flat_map(|entry| &entry.dependents).any(|dependent| !known.contains(dependent))
    }

    /// Returns true if another version sees to the sources.
    pub fn is_retired(&self) -> bool {
        self.0.values().any(|entry| entry.demand.lock().retired)
    }

    /// Returns true if there is no such source.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Leaves the sources to another version, and returns the dependents that are active. Runs that have begun may go on with this.
    pub fn retire(&self) -> Users {
        let retire = |entry: &Entry| {
            let mut demand = entry.demand.lock();
            demand.retired = true;
            demand.users.clone()
        };
        self.0.values().flat_map(retire).collect()
    }

    /// Takes in that a dependent is active, and waits until its source is filled, or it is `by` then. Does nothing for a source
    /// that is watched anyway. A run that has begun before another version sees to the sources begins nothing, as nobody would end it.
    ///
    /// # Errors
    /// [`Unfilled`]. What is lacking then is found out by whoever reads it.
    pub async fn enter(&self, source: &str, user: User, by: Instant) -> Result<(), Unfilled> {
        let Some(Entry { source, join, demand, watch, .. }) = self.0.get(source) else {
            return Ok(());
        };
        let watch = {
            let mut watch = watch.lock().await;
            {
                let mut demand = demand.lock();
                if demand.retired && watch.is_none() {
                    let unwatched = |doubt: Doubt| Unfilled { why: doubt.to_string(), outage: true };
                    return source.watched().map_err(unwatched);
                }
                demand.users.insert(user);
                if !demand.retired {
                    source.is_demanded();
                }
            }
            // The run that asks for it holds a slot meanwhile.
            Arc::clone(watch.get_or_insert_with(|| join(Telling::Beside)))
        };
        watch.filled(by).await
    }

    /// Takes in that a dependent is not active. With the last one, its source is not watched any more, and wakes nobody.
    pub async fn leave(&self, source: &str, user: &User) {
        if let Some(entry) = self.0.get(source) {
            entry.retain(|other| other != user).await;
        }
    }

    /// Takes in that the dependents of other primaries are gone.
    pub async fn retain(&self, stays: impl Fn(&ObjectRef) -> bool) {
        for entry in self.0.values() {
            entry.retain(|(primary, _)| stays(primary)).await;
        }
    }
}

impl Entry {
    async fn retain(&self, stays: impl Fn(&User) -> bool) {
        let mut watch = self.watch.lock().await;
        {
            let mut demand = self.demand.lock();
            demand.users.retain(stays);
            if !demand.users.is_empty() {
                return;
            }
            if !demand.retired {
                self.source.rests(NOBODY);
                for place in self.source.places().into_keys() {
                    self.source.detach(place.as_deref());
                }
            }
        }
        drop(watch.take());
    }
}

impl fmt::Debug for OnDemand {
    /// Writes the names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::FutureExt;
    use futures::future::{BoxFuture, ready};

    use super::*;
    use crate::cache::Writer;
    use crate::object::Gvk;
    use crate::object::fields::Fields;
    use crate::source::filter::Filter;
    use crate::source::{Role, Spec, Within};

    /// Says that something is watched until it is dropped.
    struct Watched(Arc<AtomicBool>);

    impl Watch for Watched {
        fn filled(&self, _: Instant) -> BoxFuture<'_, Result<(), Unfilled>> {
            ready(Ok(())).boxed()
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            assert!(self.0.swap(false, Ordering::Relaxed), "once");
        }
    }

    fn source() -> Arc<Source> {
        Arc::new(Source::new(Spec {
            name: "maps".into(),
            gvk: Gvk::parse("v1", "ConfigMap").unwrap(),
            cluster: None,
            role: Role::Primary,
            filter: Filter::default(),
            indexes: BTreeMap::new(),
            fields: Fields::whole(),
            bounded: None,
            packed: false,
            faults: Arc::default(),
        }))
    }

    /// Returns the sources, and whether the one of them is watched.
    fn on_demand(users: &[User]) -> (OnDemand, Arc<AtomicBool>, Arc<Source>) {
        let (watched, source) = (Arc::<AtomicBool>::default(), source());
        let join: Join = {
            let (watched, source) = (Arc::clone(&watched), Arc::clone(&source));
            Box::new(move |_| {
                assert!(!watched.swap(true, Ordering::Relaxed), "once");
                source.attach(None, Writer::default().cache());
                Arc::new(Watched(Arc::clone(&watched)))
            })
        };
        let mut all = OnDemand::default();
        let dependents = BTreeSet::from(["x".into(), "y".into()]);
        all.insert(Arc::clone(&source), dependents, &users.iter().cloned().collect(), join);
        (all, watched, source)
    }

    fn user(primary: &str, dependent: &str) -> User {
        (ObjectRef::namespaced("n", primary), dependent.into())
    }

    #[tokio::test]
    async fn a_source_is_watched_as_long_as_a_dependent_of_some_primary_is_active() {
        // WF-4, WF-12
        let (all, watched, source) = on_demand(&[]);
        let is_watched = || (watched.load(Ordering::Relaxed), !source.places().is_empty());
        let by = Instant::now();
        all.leave("maps", &user("a", "x")).await;
        all.enter("others", user("a", "x"), by).await.unwrap();
        assert_eq!(is_watched(), (false, false));
        for (primary, dependent) in [("a", "x"), ("a", "x"), ("a", "y"), ("b", "x")] {
            all.enter("maps", user(primary, dependent), by).await.unwrap();
            assert_eq!(is_watched(), (true, true));
        }
        all.leave("maps", &user("a", "x")).await;
        all.retain(|primary| *primary.name != *"b").await;
        assert_eq!(is_watched(), (true, true));
        all.leave("maps", &user("a", "y")).await;
        assert_eq!(is_watched(), (false, false));
        all.enter("maps", user("c", "x"), by).await.unwrap();
        assert_eq!(is_watched(), (true, true));
        all.retain(|_| false).await;
        assert_eq!(is_watched(), (false, false));
    }

    #[tokio::test]
    async fn what_nobody_watches_is_not_known_to_be_absent() {
        // WF-12, CX-1a
        let (all, _, source) = on_demand(&[]);
        let why = |within| source.known(within).map_err(|doubt| doubt.why.to_string());
        let key = ObjectRef::namespaced("n", "a");
        for within in [Within::Object(&key), Within::Namespace("n"), Within::Related(&key), Within::Everywhere] {
            assert_eq!(why(within), Err(NOBODY.to_owned()), "{within:?}");
        }
        assert!(source.watched().is_err());
        all.enter("maps", user("a", "x"), Instant::now()).await.unwrap();
        assert_eq!(why(Within::Everywhere), Err("its first list is not complete".to_owned()));
        assert!(source.watched().is_ok());
        all.leave("maps", &user("a", "x")).await;
        assert!(source.watched().is_err());
        // What somebody is active for, and can't be watched, says why.
        source.awaits(None);
        assert!(source.watched().is_ok());
        assert_eq!(why(Within::Everywhere), Err("its cache has not all fields of objects yet".to_owned()));
        source.gives_up(None);
        assert!(source.watched().is_err());
        source.lacking(BTreeMap::from([(None, "it is not served".into())]));
        assert!(source.watched().is_ok());
        assert_eq!(why(Within::Namespace("n")), Err("it is not served".to_owned()));
    }

    #[tokio::test]
    async fn what_an_active_dependent_may_not_read_is_told_with_its_reason() {
        // WF-12, IE-1
        let mut all = OnDemand::default();
        let source = source();
        let denied = || BTreeMap::from(["n", "m"].map(|name| (Some(name.into()), format!("{name} is denied").into())));
        let none: Join = Box::new(|_| Arc::new(Watched(Arc::new(AtomicBool::new(true)))));
        all.insert(Arc::clone(&source), BTreeSet::from(["x".into()]), &Users::new(), none);
        source.lacking(denied());
        let why = |within| source.known(within).map_err(|doubt| doubt.why.to_string());
        let told = |why: &str| (Ok(()), Err(why.to_owned()), Err("m is denied".to_owned()));
        let tells = || (source.watched(), why(Within::Namespace("n")), why(Within::Everywhere));
        assert!(source.watched().is_err());
        all.enter("maps", user("a", "x"), Instant::now()).await.unwrap();
        assert_eq!(tells(), told("n is denied"));
        all.leave("maps", &user("a", "x")).await;
        assert_eq!(why(Within::Namespace("n")), Err(NOBODY.to_owned()));
        assert!(source.watched().is_err());
        // In the next version it is active from the beginning.
        let (mut next, join): (OnDemand, Join) =
            (OnDemand::default(), Box::new(|_| Arc::new(Watched(Arc::new(AtomicBool::new(true))))));
        next.insert(Arc::clone(&source), BTreeSet::from(["x".into()]), &Users::from([user("a", "x")]), join);
        next.resume();
        assert_eq!(tells(), told("n is denied"));
    }

    #[tokio::test]
    async fn who_is_active_is_so_whichever_source_holds_it_next() {
        // PO-3
        let (before, _, _) = on_demand(&[user("a", "y"), user("a", "z")]);
        let (mut after, watched, source) = on_demand(&[]);
        let (join, none): (Join, _) = (Box::new(|_| unreachable!("it is nobody's")), OnDemand::default());
        assert!(after.has_others_than(&none) && !after.has_others_than(&before));
        let Entry { join: joins, .. } = after.0.remove("maps").unwrap();
        after.insert(source, BTreeSet::from(["y".into()]), &before.retire(), joins);
        let mut other = OnDemand::default();
        other.insert(self::source(), BTreeSet::from(["w".into()]), &before.retire(), join);
        assert!(other.resume().is_empty() && other.has_others_than(&before));
        assert_eq!((after.resume().len(), watched.load(Ordering::Relaxed)), (1, true));
    }

    #[tokio::test]
    async fn what_is_active_in_one_version_is_watched_in_the_next_from_its_beginning() {
        let (mut none, watched, _) = on_demand(&[]);
        assert!(none.resume().is_empty() && !watched.load(Ordering::Relaxed));
        let (mut some, watched, _) = on_demand(&[user("a", "x")]);
        assert_eq!(some.resume(), BTreeSet::from(["maps".into()]));
        assert!(watched.load(Ordering::Relaxed));
        some.enter("maps", user("a", "x"), Instant::now()).await.unwrap();
        some.leave("maps", &user("a", "x")).await;
        assert!(!watched.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn a_run_of_a_version_before_does_not_end_what_the_next_one_watches() {
        let (before, watched, source) = on_demand(&[]);
        before.enter("maps", user("a", "x"), Instant::now()).await.unwrap();
        assert_eq!(before.retire(), BTreeSet::from([user("a", "x")]));
        before.leave("maps", &user("a", "x")).await;
        assert!(!watched.load(Ordering::Relaxed), "its own informers");
        assert!(!source.places().is_empty(), "those of the other version");
    }

    #[tokio::test]
    async fn a_run_of_a_version_before_begins_nothing_that_nobody_ends() {
        let (before, watched, source) = on_demand(&[]);
        before.retire();
        let unfilled = before.enter("maps", user("a", "x"), Instant::now()).await.unwrap_err();
        assert!(unfilled.outage && unfilled.why.contains(NOBODY), "{unfilled:?}");
        assert!(!watched.load(Ordering::Relaxed) && source.places().is_empty());
        // What the other version has watched, it reads.
        source.is_demanded();
        source.attach(None, Writer::default().cache());
        assert_eq!(before.enter("maps", user("a", "x"), Instant::now()).await, Ok(()));
        assert!(!watched.load(Ordering::Relaxed));
    }
}

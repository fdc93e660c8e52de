//! Shares informers: one per kind, namespace and selector, however many sources want it, and as long as one wants it (PO rules).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_core::cache::{Cache, Writer};
use capstan_core::object::Gvk;
use capstan_core::room::Room;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Informer, Scope, Shared, State, Subscriber};
use crate::client::{ApiServer, Kind};
use crate::metrics::Metrics;

/// The informers of one cluster. A clone is another handle of the same pool.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    api: Arc<ApiServer>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    /// Bytes of objects that each informer may keep.
    bound: usize,
    /// What all of them may keep together.
    room: Room,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    informers: BTreeMap<Scope, Entry>,
    tasks: JoinSet<()>,
    /// The number of the last member.
    number: u64,
}

/// An informer, and how many want it.
struct Entry {
    shared: Arc<Shared>,
    members: usize,
    /// Ends it alone.
    stop: CancellationToken,
}

/// A share in an informer, which lasts as long as somebody has one.
#[must_use = "the informer ends with its last membership"]
pub struct Membership {
    /// The objects.
    pub cache: Cache,
    /// Whether they are true.
    pub state: watch::Receiver<State>,
    pool: Arc<Inner>,
    scope: Scope,
    number: u64,
}

impl Pool {
    /// Returns a pool without informers; they end with `stop` at the latest. Each keeps objects of so many bytes at most, and of
    /// what all have together no more than leaves something for the others.
    pub fn new(
        api: Arc<ApiServer>,
        metrics: Arc<Metrics>,
        (bound, room): (usize, Room),
        stop: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner {
            api,
            metrics,
            stop,
            bound,
            room,
            running: Mutex::default(),
        }))
    }

    /// Adds a subscriber to an informer and starts it if it does not run yet. If it does, the subscriber is told of all
    /// that is there as if it were new (`PO-3`).
    pub fn join(&self, scope: &Scope, kind: &Kind, subscriber: Subscriber) -> Membership {
        self.enter(scope, kind, Some(subscriber))
    }

    /// Keeps an informer going, and starts it if it does not run yet; nobody is told of what it sees.
    pub fn keep(&self, scope: &Scope, kind: &Kind) -> Membership {
        self.enter(scope, kind, None)
    }

    fn enter(&self, scope: &Scope, kind: &Kind, subscriber: Option<Subscriber>) -> Membership {
        let Self(inner) = self;
        let mut running = inner.running.lock();
        // Those that have ended since are let go.
        while running.tasks.try_join_next().is_some() {}
        running.number += 1;
        let number = running.number;
        let entry = running.entry(scope, inner);
        entry.members += 1;
        let (shared, stop) = (Arc::clone(&entry.shared), entry.stop.clone());
        if let Some(subscriber) = subscriber {
            shared.subscribe(number, subscriber);
        }
        // Taken once, by the first member.
        if let Some(writer) = shared.writer.lock().take() {
            let api = Arc::clone(&inner.api);
            let informer = Informer::new(Arc::clone(&shared), api, kind.clone(), writer);
            running.tasks.spawn(informer.run(stop));
        }
        Membership {
            cache: shared.cache.clone(),
            state: shared.state.subscribe(),
            pool: Arc::clone(inner),
            scope: scope.clone(),
            number,
        }
    }

    /// Lists all objects of these kinds once more, because more is to be kept of each than before. What is cached stays in
    /// use meanwhile.
    pub fn relist(&self, kinds: &BTreeSet<Gvk>) {
        for (scope, entry) in &self.0.running.lock().informers {
            if kinds.contains(&scope.gvk) {
                entry.shared.relist.notify_one();
            }
        }
    }

    /// Returns each informer with its state and the number of its objects.
    pub fn states(&self) -> Vec<(Scope, State, usize)> {
        let running = self.0.running.lock();
        let one = |(scope, entry): (&Scope, &Entry)| {
            let Entry { shared, .. } = entry;
            (
                scope.clone(),
                shared.state.borrow().clone(),
                shared.cache.len(),
            )
        };
        running.informers.iter().map(one).collect()
    }

    /// Waits until all tasks have ended, after the pool's stop.
    pub async fn ended(&self) {
        let mut tasks = std::mem::take(&mut self.0.running.lock().tasks);
        while tasks.join_next().await.is_some() {}
    }
}

impl Shared {
    /// Adds a subscriber, and tells it of all that is there.
    fn subscribe(&self, number: u64, subscriber: Subscriber) {
        let namespace = self.scope.namespace.as_deref();
        let mut subscribers = self.subscribers.write();
        subscriber.tell(subscriber.source.attach(namespace, self.cache.clone()));
        if self.listing.load(Ordering::Relaxed) {
            subscriber.source.before_list(namespace);
        }
        subscribers.push((number, subscriber));
    }
}

impl Running {
    fn entry(&mut self, scope: &Scope, inner: &Inner) -> &mut Entry {
        self.informers.entry(scope.clone()).or_insert_with(|| {
            let holding = inner.room.holding(&scope.to_string().into());
            let writer = Writer::bounded(inner.bound).sharing(holding);
            let (kind, namespace) = (scope.gvk.to_string(), scope.namespace.as_deref());
            let shared = Shared {
                scope: scope.clone(),
                cache: writer.cache(),
                bound: inner.bound,
                writer: Mutex::new(Some(writer)),
                subscribers: RwLock::default(),
                state: watch::Sender::new(State::Listing),
                listing: AtomicBool::new(false),
                relist: Notify::new(),
                metrics: inner.metrics.informers.of(&kind, namespace),
            };
            Entry {
                shared: Arc::new(shared),
                members: 0,
                stop: inner.stop.child_token(),
            }
        })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut running = self.pool.running.lock();
        let Some(entry) = running.informers.get_mut(&self.scope) else {
            return;
        };
        entry
            .shared
            .subscribers
            .write()
            .retain(|(number, _)| *number != self.number);
        entry.members = entry.members.saturating_sub(1);
        if entry.members == 0 {
            entry.stop.cancel();
            running.informers.remove(&self.scope);
            let (kind, namespace) = (self.scope.gvk.to_string(), self.scope.namespace.as_deref());
            let same = |scope: &Scope| {
                scope.gvk == self.scope.gvk && scope.namespace == self.scope.namespace
            };
            // Its metrics do not tell selectors apart.
            if !running.informers.keys().any(same) {
                self.pool.metrics.informers.forget(&kind, namespace);
            }
        }
    }
}

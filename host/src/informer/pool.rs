//! Shares informers: one per kind, namespace and selector, however many sources want it (PO rules).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_core::cache::{Cache, Writer};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Informer, Scope, Shared, State, Subscriber};
use crate::client::{ApiServer, Kind};
use crate::metrics::Metrics;

/// The informers of one cluster.
pub struct Pool {
    api: Arc<ApiServer>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    informers: BTreeMap<Scope, Arc<Shared>>,
    tasks: JoinSet<()>,
}

/// What a source sees of the informer that it joined.
pub struct Membership {
    /// The objects.
    pub cache: Cache,
    /// Whether they are true.
    pub state: watch::Receiver<State>,
}

impl Pool {
    /// Returns a pool without informers; they end with `stop`.
    pub fn new(api: Arc<ApiServer>, metrics: Arc<Metrics>, stop: CancellationToken) -> Self {
        Self {
            api,
            metrics,
            stop,
            running: Mutex::default(),
        }
    }

    /// Adds a subscriber to an informer and starts it if it does not run yet. If it does, the subscriber is told of all
    /// that is there as if it were new (`PO-3`).
    pub fn join(&self, scope: &Scope, kind: &Kind, subscriber: Subscriber) -> Membership {
        let mut running = self.running.lock();
        let shared = running.shared(scope, &self.metrics);
        let mut subscribers = shared.subscribers.write();
        let first = subscribers.is_empty();
        subscriber.tell(
            subscriber
                .source
                .attach(scope.namespace.as_deref(), shared.cache.clone()),
        );
        if shared.listing.load(Ordering::Relaxed) {
            let namespace = scope.namespace.as_deref();
            subscriber.source.before_list(namespace);
        }
        subscribers.push(subscriber);
        drop(subscribers);
        let membership = Membership {
            cache: shared.cache.clone(),
            state: shared.state.subscribe(),
        };
        if first {
            // Taken once: an informer never loses its last subscriber.
            if let Some(writer) = shared.writer.lock().take() {
                let informer = Informer::new(
                    Arc::clone(&shared),
                    Arc::clone(&self.api),
                    kind.clone(),
                    writer,
                );
                running.tasks.spawn(informer.run(self.stop.clone()));
            }
        }
        membership
    }

    /// Returns each informer with its state and the number of its objects.
    pub fn states(&self) -> Vec<(Scope, State, usize)> {
        let running = self.running.lock();
        let one = |(scope, shared): (&Scope, &Arc<Shared>)| {
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
        let mut tasks = std::mem::take(&mut self.running.lock().tasks);
        while tasks.join_next().await.is_some() {}
    }
}

impl Running {
    fn shared(&mut self, scope: &Scope, metrics: &Metrics) -> Arc<Shared> {
        let make = || {
            let writer = Writer::default();
            Arc::new(Shared {
                scope: scope.clone(),
                cache: writer.cache(),
                writer: Mutex::new(Some(writer)),
                subscribers: RwLock::default(),
                state: watch::Sender::new(State::Listing),
                listing: AtomicBool::new(false),
                metrics: metrics
                    .informers
                    .of(&scope.gvk.to_string(), scope.namespace.as_deref()),
            })
        };
        Arc::clone(self.informers.entry(scope.clone()).or_insert_with(make))
    }
}

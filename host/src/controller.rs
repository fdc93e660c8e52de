//! Brings one controller up and runs it: waits for its kinds and caches, then lets its queue loose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cluster::{Cluster, Error, Reason};
use capstan_core::dispatcher::{self, Bounds};
use capstan_core::guest::Guest;
use capstan_core::manifest;
use capstan_core::object::Gvk;
use capstan_core::queue::{Level, Mode, Next, Outcome, Policy, Queue, Ticket, What};
use capstan_core::reconciler::memory::Memory;
use capstan_core::reconciler::visit::{self, Flow};
use capstan_core::reconciler::{self, Controller, Ended, finalizer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admin::Unready;
use crate::client::recorder::Recorder;
use crate::client::{ApiServer, Kind};
use crate::informer::pool::Pool;
use crate::informer::{State, Subscriber};
use crate::metrics::{ControllerRuns, Metrics};

mod plan;

use plan::{Plan, Planned};

/// How long to wait before asking again for a kind that the API server does not serve yet.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// What all controllers of the daemon share.
pub struct Neighbours {
    /// The API server.
    pub api: Arc<ApiServer>,
    /// The informers.
    pub pool: Pool,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Takes Kubernetes Events.
    pub recorder: Recorder,
    /// The daemon's own namespace.
    pub namespace: Arc<str>,
    /// Who the daemon is, in Events and settings.
    pub identity: Arc<str>,
    /// How long runs may take to finish.
    pub drain: Duration,
}

/// What a controller is made from.
pub struct Declared {
    /// What the manifest says of it.
    pub spec: manifest::Controller,
    /// What the manifest says of its plugin.
    pub plugin: manifest::Plugin,
    /// Its plugin, loaded.
    pub guest: Arc<dyn Guest>,
}

/// A controller, to whoever watches it.
pub struct Handle {
    name: Arc<str>,
    queue: Queue,
    memory: Arc<Memory>,
    phase: Mutex<Phase>,
}

/// How far a controller has come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for the API server to serve a kind, or to answer at all.
    Resolving(String),
    /// Waits for caches to fill.
    Filling,
    /// Runs.
    Running,
    /// Has stopped.
    Stopped,
    /// Can't run, for this reason.
    Failed(String),
}

/// The kinds that a controller needs, as discovery knows them.
type Kinds = BTreeMap<Gvk, Kind>;

impl Declared {
    /// Whether something needs cleanup before a primary goes (`DI-2`).
    fn needs_finalizer(&self) -> bool {
        let mut dependents = self.spec.workflow.dependents.values();
        dependents.any(manifest::Dependent::deletable) || self.guest.exports().cleaner
    }
}

impl Handle {
    /// Returns the handle of a controller that is about to start.
    pub fn new(spec: &manifest::Controller) -> Self {
        let policy = Policy {
            retry: spec.retry.clone(),
            rate_limit: spec.rate_limit.clone(),
            max_interval: spec.max_interval,
            mode: Mode::Normal,
        };
        let phase = Mutex::new(Phase::Resolving("starting".to_owned()));
        Self {
            name: Arc::clone(&spec.name),
            queue: Queue::new(policy),
            memory: Arc::default(),
            phase,
        }
    }

    /// Says why it is not ready; none if it is.
    pub fn unready(&self) -> Option<Unready> {
        let why = match &*self.phase.lock() {
            Phase::Resolving(why) | Phase::Failed(why) => why.clone(),
            Phase::Filling => "waiting for its caches to fill".to_owned(),
            Phase::Stopped => "stopped".to_owned(),
            Phase::Running => return None,
        };
        Some(Unready {
            what: format!("controller {}", self.name),
            why,
        })
    }

    /// Returns its state for `/debug/controllers`.
    pub fn describe(&self) -> Value {
        let now = Instant::now();
        let counts = self.queue.counts(now);
        let keys = self.queue.states(now).into_iter().map(|state| {
            json!({
                "key": state.key.to_string(),
                "inFlight": state.in_flight,
                "mark": format!("{:?}", state.mark),
                "attempt": state.retry.map(|retry| retry.attempt),
                "dueInMs": state.due_in.map(|due| u64::try_from(due.as_millis()).unwrap_or(u64::MAX)),
            })
        });
        json!({
            "name": &*self.name,
            "phase": match &*self.phase.lock() {
                Phase::Resolving(_) => "resolving",
                Phase::Filling => "filling",
                Phase::Running => "running",
                Phase::Stopped => "stopped",
                Phase::Failed(_) => "failed",
            },
            "keys": counts.keys,
            "due": counts.due,
            "inFlight": counts.in_flight,
            "states": keys.collect::<Vec<_>>(),
        })
    }

    fn set(&self, phase: Phase) {
        *self.phase.lock() = phase;
    }
}

/// Runs a controller until `stop`, and returns when its last run has ended.
pub async fn run(
    declared: Declared,
    handle: Arc<Handle>,
    neighbours: Arc<Neighbours>,
    stop: CancellationToken,
) {
    let bring_up = bring_up(declared, &handle, &neighbours);
    let controller = tokio::select! {
        controller = bring_up => controller,
        () = stop.cancelled() => return handle.set(Phase::Stopped),
    };
    let controller = match controller {
        Ok(controller) => controller,
        Err(error) => {
            tracing::error!(%error, "the controller can't start");
            return handle.set(Phase::Failed(error.to_string()));
        }
    };
    let metrics = neighbours.metrics.runs.of(&controller.spec.name);
    let bounds = Bounds {
        concurrency: controller.spec.concurrency,
        drain: neighbours.drain,
    };
    handle.set(Phase::Running);
    handle.queue.start(Instant::now());
    tracing::info!(primaries = handle.queue.len(), "controller started");
    let execute = move |ticket| execute(Arc::clone(&controller), ticket, metrics.clone());
    let drained = dispatcher::run(&handle.queue, bounds, stop.cancelled(), execute).await;
    handle.queue.close();
    handle.set(Phase::Stopped);
    tracing::info!(aborted = drained.aborted, "controller stopped");
}

/// One execution, with its metrics and its line in the log.
async fn execute(controller: Arc<Controller>, ticket: Ticket, metrics: ControllerRuns) {
    let started = Instant::now();
    metrics.start(ticket.retry().is_some());
    // An execution that is aborted or panics is counted too.
    let counted = Counted {
        metrics: &metrics,
        started,
        succeeded: false,
    };
    let Ended { finished, error } = reconciler::execute(Arc::clone(&controller), &ticket).await;
    let now = Instant::now();
    let key = ticket.key().clone();
    let what = ticket.finish(finished, now);
    if what.next == Next::Dropped {
        // The primary went during the run, which may have remembered something of it since.
        controller.memory.forget(&key);
        metrics.count_primaries(controller.queue.len());
    }
    counted.end(what.outcome == Outcome::Succeeded);
    log(&what, error.as_deref(), now.duration_since(started));
}

/// Counts the end of a run, also of one that is dropped.
struct Counted<'a> {
    metrics: &'a ControllerRuns,
    started: Instant,
    succeeded: bool,
}

impl Counted<'_> {
    fn end(mut self, succeeded: bool) {
        self.succeeded = succeeded;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.metrics.finish(self.started.elapsed(), self.succeeded);
    }
}

/// `EP-36`: the one line about how a run ended.
fn log(what: &What, error: Option<&str>, took: Duration) {
    let next = next(&what.next);
    let attempt = what.retry.map_or(0, |retry| retry.attempt);
    match (what.outcome, error.unwrap_or("ended without a result")) {
        (Outcome::Succeeded, _) => tracing::debug!(?took, %next, "reconciled"),
        (Outcome::Ignored, _) => tracing::debug!(
            ?took,
            "the run's outcome is ignored: the controller was stopped"
        ),
        (Outcome::Failed(Level::Debug), error) => {
            tracing::debug!(%error, attempt, %next, "the run failed");
        }
        (Outcome::Failed(Level::Info), error) => {
            tracing::info!(%error, attempt, %next, "the run failed");
        }
        (Outcome::Failed(Level::Warning), error) => {
            tracing::warn!(%error, attempt, %next, "the run failed");
        }
        (Outcome::Failed(Level::Error), error) => {
            tracing::error!(%error, attempt, %next, "the run failed");
        }
    }
}

/// Says when a key runs again, for people.
fn next(next: &Next) -> String {
    match next {
        Next::AtOnce => "again at once: an event came meanwhile".to_owned(),
        Next::Retry(after) | Next::Resume(after) => format!("retried in {after:?}"),
        Next::Exhausted(Some(after)) => {
            format!("no retries left: again at the next event, or in {after:?}")
        }
        Next::Exhausted(None) => "no retries left: again at the next event".to_owned(),
        Next::Again(after) => format!("again in {after:?}, as it asked"),
        Next::Idle(Some(after)) => format!("again at the next event, or in {after:?}"),
        Next::Idle(None) => "again at the next event".to_owned(),
        Next::AwaitDeletion => "its deletion is awaited".to_owned(),
        Next::Dropped => "it is gone".to_owned(),
        Next::AtStart => "once the controller is started again".to_owned(),
    }
}

// === bringing up ===

/// Waits for kinds, joins informers and waits for their caches.
async fn bring_up(
    declared: Declared,
    handle: &Handle,
    neighbours: &Neighbours,
) -> Result<Arc<Controller>, visit::Error> {
    let kinds = resolve(&declared.spec, handle, &neighbours.api).await;
    handle.set(Phase::Filling);
    let metrics = neighbours.metrics.runs.of(&declared.spec.name);
    let finalizer = finalizer_name(&declared.spec, &kinds);
    let plan = Plan::new(&declared, &kinds, &finalizer, &neighbours.namespace);
    let mut memberships = Vec::new();
    for Planned { source, scopes } in
        std::iter::once(&plan.primaries).chain(plan.secondaries.values())
    {
        for (scope, kind) in scopes {
            let source = Arc::clone(source);
            let subscriber = Subscriber {
                source,
                queue: handle.queue.clone(),
                metrics: metrics.clone(),
                memory: Arc::clone(&handle.memory),
            };
            memberships.push(neighbours.pool.join(scope, kind, subscriber));
        }
    }
    for membership in memberships {
        filled(membership.state, || membership.cache.is_synced()).await;
    }
    assemble(declared, handle, neighbours, plan, finalizer).map(Arc::new)
}

/// Asks for all kinds until the API server serves them.
async fn resolve(spec: &manifest::Controller, handle: &Handle, api: &ApiServer) -> Kinds {
    let sources = spec.sources.values().map(|source| &source.gvk);
    let dependents = spec.dependents().map(|(_, dependent)| &dependent.gvk);
    let wanted: BTreeSet<_> = std::iter::once(&spec.primary)
        .chain(sources)
        .chain(dependents)
        .collect();
    let mut pause = FIRST_PAUSE;
    loop {
        let mut kinds = Kinds::new();
        let mut failed = None::<Error>;
        for gvk in &wanted {
            match api.resolve(gvk).await {
                Ok(kind) => drop(kinds.insert((*gvk).clone(), kind)),
                Err(error) => failed = Some(error),
            }
        }
        let Some(error) = failed else { return kinds };
        if error.reason == Reason::UnknownKind {
            tracing::warn!(%error, again_in = ?pause, "waiting for a kind");
        } else {
            tracing::error!(%error, again_in = ?pause, "the API server does not tell its kinds");
        }
        handle.set(Phase::Resolving(error.message));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits until a cache has been filled once.
async fn filled(mut state: watch::Receiver<State>, synced: impl Fn() -> bool) {
    while !synced() {
        if state.changed().await.is_err() {
            return;
        }
    }
}

/// `LC-3`
fn finalizer_name(spec: &manifest::Controller, kinds: &Kinds) -> Arc<str> {
    let default = || {
        finalizer::default_name(
            &kinds
                .get(&spec.primary)
                .map(Kind::full_name)
                .unwrap_or_default(),
        )
        .into()
    };
    spec.finalizer.clone().unwrap_or_else(default)
}

/// Puts together what the runs need.
fn assemble(
    declared: Declared,
    handle: &Handle,
    neighbours: &Neighbours,
    plan: Plan,
    finalizer: Arc<str>,
) -> Result<Controller, visit::Error> {
    let Declared {
        spec,
        plugin,
        guest,
    } = declared;
    let Plan {
        primaries,
        secondaries,
        shared,
    } = plan;
    let mut secondaries: BTreeMap<_, _> = secondaries
        .into_iter()
        .map(|(name, planned)| (name, planned.source))
        .collect();
    for (name, holder) in shared {
        if let Some(source) = secondaries.get(&holder).cloned() {
            secondaries.insert(name, source);
        }
    }
    let standalone = spec
        .standalone
        .iter()
        .map(|(name, workflow)| Ok((Arc::clone(name), Flow::new(workflow)?)));
    let (recorder, name, gvk) = (
        neighbours.recorder.clone(),
        Arc::clone(&spec.name),
        spec.primary.clone(),
    );
    Ok(Controller {
        limits: plugin.limits,
        primaries: primaries.source,
        secondaries,
        workflow: Flow::new(&spec.workflow)?,
        standalone: standalone.collect::<Result<_, visit::Error>>()?,
        finalizer,
        guest,
        cluster: Arc::clone(&neighbours.api) as Arc<dyn Cluster>,
        queue: handle.queue.clone(),
        memory: Arc::clone(&handle.memory),
        settings: settings(&spec, neighbours),
        events: Box::new(move |primary, event| recorder.publish(&name, &gvk, primary, event)),
        spec,
    })
}

/// What `context.settings` answers.
fn settings(spec: &manifest::Controller, neighbours: &Neighbours) -> Value {
    json!({
        "controller": spec.settings(),
        "daemon": {
            "identity": &*neighbours.identity,
            "namespace": &*neighbours.namespace,
            "version": env!("CARGO_PKG_VERSION"),
        },
    })
}

//! Brings one controller up and keeps it what the manifest says: waits for its kinds and caches, lets its queue loose, and takes changes while it runs.
//!
//! A change that leaves alone what is watched is put in place at once: the next run sees it, and nothing else notices. For
//! any other, what is needed is made ready first; then the runs under way end, and the queue goes on with the new sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cpu::{Account, Job};
use capstan_core::dispatcher::{self, Bounds};
use capstan_core::guest::{Exports, Guest};
use capstan_core::manifest::{self, OnStartError, OnSwap};
use capstan_core::object::{Gvk, ObjectRef};
use capstan_core::permission::{Home, Permissions};
use capstan_core::queue::{Level, Mode, Next, Outcome, Policy, Queue, Ticket, What};
use capstan_core::reconciler::decision::Finalizers;
use capstan_core::reconciler::flow::{self, Flow};
use capstan_core::reconciler::memory::Memory;
use capstan_core::reconciler::notices::hear;
use capstan_core::reconciler::{self, Controller, Ended, finalizer};
use capstan_core::rollout::{Shape, Step, Version};
use capstan_core::source::{Listener, Within};
use parking_lot::{Mutex, RwLock};
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::meter::Meters;
use crate::client::recorder::{Origin, Recorder};
use crate::client::{Access, ApiServer, Identity, Kind};
use crate::control::Unready;
use crate::informer::pool::{Membership, Pool};
use crate::metrics::{ControllerRuns, Metrics};
use crate::workers::Workers;

mod plan;
mod rights;
mod sources;
mod start;
#[cfg(test)]
mod tests;

use plan::Plan;
use rights::{Lost, Rights};
use sources::{Joined, Sources};
use start::{Come, Rest, prepare};

/// The longest pause before asking again for a kind that the API server does not serve yet, or for a right.
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
    /// What plugins have sent lately.
    pub meters: Meters,
    /// The most requests a second that a manifest can permit a plugin.
    pub requests_per_second: u32,
    /// Where the daemon lives.
    pub home: Home,
    /// Who the daemon is, in Events and settings.
    pub identity: Arc<str>,
    /// How long runs may take to finish.
    pub drain: Duration,
    /// Where runs compute.
    pub workers: Workers,
}

/// What a controller is made from.
pub struct Declared {
    /// The operator that it belongs to.
    pub operator: Arc<str>,
    /// What the manifest says of it.
    pub spec: manifest::Controller,
    /// What the manifest says of its plugin.
    pub plugin: manifest::Plugin,
    /// Its plugin, loaded.
    pub guest: Arc<dyn Guest>,
    /// The digest of its component.
    pub component: Arc<str>,
    /// What its plugin has used.
    pub account: Account,
}

/// A controller, to whoever watches it or changes it.
pub struct Handle {
    name: Arc<str>,
    queue: Queue,
    memory: Arc<Memory>,
    metrics: ControllerRuns,
    phase: Mutex<Phase>,
    /// What it runs without; none if with all that it watches.
    without: Mutex<Option<String>>,
    bounds: watch::Sender<Bounds>,
    /// What it should be.
    wanted: watch::Sender<Arc<Declared>>,
    /// What it is; none until it is up. Whoever changes `wanted` or this holds this lock.
    in_force: RwLock<Option<InForce>>,
}

/// What a controller is.
#[derive(Clone)]
struct InForce {
    declared: Arc<Declared>,
    controller: Arc<Controller>,
}

/// The state of a controller with some of its keys.
pub struct Described {
    /// The state.
    pub state: Value,
    /// How many keys it has.
    pub keys: usize,
    /// The last of them.
    pub last: Option<ObjectRef>,
    /// Whether there are more behind that.
    pub more: bool,
}

/// How far a controller has come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for the API server to serve a kind, to grant a right, or to answer at all.
    Resolving(String),
    /// Waits for caches to fill.
    Filling,
    /// Runs.
    Running,
    /// Runs as before, and waits for what it needs to become another.
    Changing(String),
    /// Has stopped.
    Stopped,
    /// Can't run, for this reason.
    Failed(String),
}

/// The kinds that a controller needs, as discovery knows them.
type Kinds = BTreeMap<Gvk, Kind>;

/// All that a controller needs to run.
struct Prepared {
    declared: Arc<Declared>,
    plan: Plan,
    finalizer: Arc<str>,
    /// What its operator's account has to be permitted meanwhile.
    rights: Option<Rights>,
    /// Whether runs of the one before may be under way.
    entry: Entry,
    /// What is not there.
    rest: Rest,
    /// Keeps the informers going until they are entered.
    _memberships: Vec<Membership>,
}

/// What a controller does while it is prepared to become another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// Nothing runs.
    Start,
    /// It goes on as before.
    Keep,
}

/// Why the runs of a controller have been let end.
enum Break {
    /// It is stopped.
    Stop,
    /// It becomes this one.
    Change(Box<Prepared>),
    /// It lacks this right.
    Rights(Lost),
}

/// What a controller at work has to look at.
#[derive(Default)]
struct Held {
    /// What its operator's account has to be permitted.
    rights: Option<Rights>,
    /// What it was started without.
    rest: Rest,
}

/// The task of a controller.
struct Task<'a> {
    handle: &'a Handle,
    neighbours: &'a Neighbours,
    wanted: watch::Receiver<Arc<Declared>>,
    joined: Joined,
    /// Something is there that it was started without: it is to be prepared anew.
    anew: bool,
}

impl InForce {
    /// Returns which edition another one is: none of its own, if a run does the same in both.
    fn edition_of(&self, after: &Declared) -> u64 {
        let new = !after.version().is_as(self.declared.version());
        self.controller.edition + u64::from(new)
    }

    /// Returns what it has to do to become another.
    fn step(&self, after: &Declared) -> Step {
        self.declared.shape().step(after.shape())
    }
}

impl Declared {
    /// Whether something needs cleanup before a primary goes (`DI-2`).
    fn needs_finalizer(&self) -> bool {
        self.spec.deletes_dependents() || self.guest.exports().cleaner
    }

    fn shape(&self) -> Shape<'_> {
        Shape { spec: &self.spec, finalizer: self.needs_finalizer() }
    }

    fn version(&self) -> Version<'_> {
        Version { spec: &self.spec, plugin: &self.plugin, component: &self.component }
    }

    fn policy(&self) -> Policy {
        let spec = &self.spec;
        Policy {
            retry: spec.retry.clone(),
            rate_limit: spec.rate_limit.clone(),
            max_interval: spec.max_interval,
            min_reschedule: spec.min_reschedule,
            mode: Mode::Normal,
        }
    }

    fn bounds(&self, neighbours: &Neighbours) -> Bounds {
        Bounds { concurrency: self.spec.concurrency, drain: neighbours.drain }
    }
}

// === impl Handle ===

impl Handle {
    /// Returns the handle of a controller that is about to start.
    pub fn new(declared: Declared, neighbours: &Neighbours) -> Self {
        let name = Arc::clone(&declared.spec.name);
        Self {
            queue: Queue::new(declared.policy()),
            memory: Arc::default(),
            metrics: neighbours.metrics.runs.of(&name),
            phase: Mutex::new(Phase::Resolving("starting".to_owned())),
            without: Mutex::default(),
            bounds: watch::Sender::new(declared.bounds(neighbours)),
            wanted: watch::Sender::new(Arc::new(declared)),
            in_force: RwLock::default(),
            name,
        }
    }

    /// Makes it another: at once if what it watches stays, else as soon as what it needs is there.
    pub fn change(&self, declared: Declared, neighbours: &Neighbours) {
        let declared = Arc::new(declared);
        let mut in_force = self.in_force.write();
        let runs = *self.phase.lock() == Phase::Running;
        let settled = in_force.as_ref().filter(|now| {
            let wanted = self.wanted.borrow();
            // One that waits for something is told, and begins again.
            runs && Arc::ptr_eq(&now.declared, &wanted) && wanted.shape().step(declared.shape()) == Step::InPlace
        });
        let next = settled.map(|now| self.successor(now, &declared, neighbours));
        match next {
            Some(Ok(controller)) => {
                let follows = self.put(&mut in_force, &declared, controller, neighbours);
                // Nothing for its task to do.
                self.wanted.send_if_modified(|wanted| {
                    *wanted = Arc::clone(&declared);
                    false
                });
                drop(in_force);
                self.after_swap(follows);
            }
            Some(Err(_)) | None => drop(self.wanted.send_replace(declared)),
        }
    }

    /// Returns the finalizers that primaries carry, and that nobody would remove any more with this in place; with how many these
    /// are. Of primaries of another kind nothing is said: no controller of another one can help them.
    pub fn left_behind(
        &self,
        spec: &manifest::Controller,
        exports: Exports,
        api: &ApiServer,
    ) -> BTreeMap<Arc<str>, usize> {
        let Some(controller) = self.controller() else {
            return BTreeMap::new();
        };
        // Where there are no primaries, none is left behind.
        let none = || controller.primaries.list(None).is_empty();
        if controller.spec.primary != spec.primary || none() {
            return BTreeMap::new();
        }
        let name = finalizer_name(spec, api.known(&spec.primary).as_ref());
        let used = spec.deletes_dependents() || exports.cleaner;
        let after = Finalizers { own: used.then_some(&*name), former: &spec.former_finalizers };
        let carrying = |finalizer: &str| controller.primaries.carrying(finalizer);
        controller.finalizers().left_behind(after, carrying)
    }

    /// Warns of primaries that carry its finalizer, which nobody removes once it is gone.
    pub fn warn_of_carriers(&self) {
        let Some(controller) = self.controller() else {
            return;
        };
        let Some(finalizer) = controller.used_finalizer() else {
            return;
        };
        let primaries = controller.primaries.carrying(finalizer);
        if primaries > 0 {
            tracing::warn!(controller = %self.name, finalizer, primaries, "primaries carry the finalizer of a controller that goes: they can't be deleted until somebody removes it");
        }
    }

    /// Takes in that the API server is back: what waits for it runs soon.
    pub fn resume(&self) {
        self.queue.resume(Instant::now());
    }

    /// Returns who is told of what its sources say: the queue, the memory and the metrics.
    fn listener(&self) -> Listener {
        let (queue, memory, metrics) = (self.queue.clone(), Arc::clone(&self.memory), self.metrics.clone());
        Arc::new(move |notices| {
            metrics.count(hear(&queue, &memory, notices));
            metrics.count_primaries(queue.len());
        })
    }

    /// Says what a change is waiting for, while the controller goes on as it was.
    pub fn waiting(&self) -> Option<String> {
        match &*self.phase.lock() {
            Phase::Changing(why) => Some(why.clone()),
            Phase::Resolving(_) | Phase::Filling | Phase::Running | Phase::Stopped | Phase::Failed(_) => None,
        }
    }

    /// Says why it is not ready; none if it is.
    pub fn unready(&self) -> Option<Unready> {
        let why = match &*self.phase.lock() {
            Phase::Resolving(why) | Phase::Failed(why) => why.clone(),
            Phase::Filling => "waiting for its caches to fill".to_owned(),
            Phase::Stopped => "stopped".to_owned(),
            Phase::Running | Phase::Changing(_) => self.without.lock().clone()?,
        };
        Some(Unready { what: format!("controller {}", self.name), why })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its state for `/debug/controllers`, with the first `limit` keys behind `after`.
    pub fn describe(&self, after: Option<&ObjectRef>, limit: usize) -> Described {
        let now = Instant::now();
        let counts = self.queue.counts(now);
        let mut states = self.queue.states(now, after, limit.saturating_add(1));
        let more = states.len() > limit;
        states.truncate(limit);
        let (shown, last) = (states.len(), states.last().map(|state| state.key.clone()));
        let keys = states.into_iter().map(|state| {
            json!({
                "key": state.key.to_string(),
                "inFlight": state.in_flight,
                "mark": format!("{:?}", state.mark),
                "attempt": state.retry.map(|retry| retry.attempt),
                "dueInMs": state.due_in.map(|due| u64::try_from(due.as_millis()).unwrap_or(u64::MAX)),
            })
        });
        let (phase, why) = match &*self.phase.lock() {
            Phase::Resolving(why) => ("resolving", Some(why.clone())),
            Phase::Filling => ("filling", None),
            Phase::Running => ("running", self.without.lock().clone()),
            Phase::Changing(why) => ("changing", Some(why.clone())),
            Phase::Stopped => ("stopped", None),
            Phase::Failed(why) => ("failed", Some(why.clone())),
        };
        let former: serde_json::Map<_, _> = self.controller().map_or_else(Default::default, |now| {
            let former = now.spec.former_finalizers.iter();
            former.map(|name| (name.to_string(), now.primaries.carrying(name).into())).collect()
        });
        let state = json!({
            "name": &*self.name,
            "phase": phase,
            "why": why,
            "formerFinalizers": former,
            "keys": counts.keys,
            "due": counts.due,
            "inFlight": counts.in_flight,
            "ownWrites": self.controller().map_or(0, |now| now.own_writes()),
            "states": keys.collect::<Vec<_>>(),
        });
        Described { state, keys: shown, last, more }
    }

    /// Says that it can't start, and waits: for a change of its manifest, which ends this.
    async fn failed<T>(&self, why: String) -> T {
        tracing::error!(%why, "the controller does not start");
        self.set(Phase::Failed(why));
        std::future::pending().await
    }

    fn set(&self, phase: Phase) {
        *self.phase.lock() = phase;
    }

    /// Returns the controller that takes the place of another one and watches the same.
    fn successor(
        &self,
        before: &InForce,
        declared: &Declared,
        neighbours: &Neighbours,
    ) -> Result<Controller, flow::Error> {
        let sources = Sources::of(&before.controller);
        assemble(declared, self, neighbours, sources, Some(before))
    }

    /// Puts a controller in place: runs that begin from now on are its. Returns what follows.
    fn put(
        &self,
        in_force: &mut Option<InForce>,
        declared: &Arc<Declared>,
        controller: Controller,
        neighbours: &Neighbours,
    ) -> OnSwap {
        self.memory.begin(controller.edition);
        let before = in_force.replace(InForce { declared: Arc::clone(declared), controller: Arc::new(controller) });
        self.queue.set_policy(declared.policy());
        self.bounds.send_replace(declared.bounds(neighbours));
        // At the start all are told of anyway.
        before.map_or(OnSwap::Nothing, |before| declared.version().follows(before.declared.version()))
    }

    fn after_swap(&self, follows: OnSwap) {
        match follows {
            OnSwap::ReconcileAll => self.queue.event_for_all(Instant::now()),
            OnSwap::Nothing => {}
        }
    }

    /// Returns what runs use now.
    fn controller(&self) -> Option<Arc<Controller>> {
        let in_force = self.in_force.read();
        in_force.as_ref().map(|now| Arc::clone(&now.controller))
    }
}

impl fmt::Debug for Handle {
    /// Writes the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.name)
    }
}

// === impl Entry ===

impl Entry {
    /// Returns how far a controller has come that waits for this.
    fn waiting(self, why: String) -> Phase {
        match self {
            Self::Start => Phase::Resolving(why),
            Self::Keep => Phase::Changing(why),
        }
    }

    fn filling(self) -> Phase {
        match self {
            Self::Start => Phase::Filling,
            Self::Keep => Phase::Changing("waiting for its caches to fill".to_owned()),
        }
    }
}

// === running ===

/// Runs a controller until `stop`, and returns when its last run has ended.
pub async fn run(handle: Arc<Handle>, neighbours: Arc<Neighbours>, stop: CancellationToken) {
    let mut task = Task {
        handle: &handle,
        neighbours: &neighbours,
        wanted: handle.wanted.subscribe(),
        joined: Joined::default(),
        anew: false,
    };
    let mut held = Held::default();
    let mut prepared = tokio::select! {
        biased;
        () = stop.cancelled() => None,
        first = task.prepare(Entry::Start, BTreeSet::new()) => Some(first),
    };
    while let Some(now) = prepared.take() {
        // It may have been taken back while the last runs ended.
        if now.entry == Entry::Start || !task.put_in_place() {
            held = task.take_over(now);
        }
        let mut broken = Break::Stop;
        let until = async { broken = Box::pin(task.until(&stop, &mut held)).await };
        let bounds = handle.bounds.subscribe();
        let execute = {
            let handle = Arc::clone(&handle);
            move |ticket| execute(Arc::clone(&handle), ticket)
        };
        let runtime = neighbours.workers.runtime();
        let drained = dispatcher::run(&handle.queue, runtime, bounds, until, execute).await;
        match broken {
            Break::Stop => tracing::info!(aborted = drained.aborted, "controller stopped"),
            Break::Change(next) => prepared = Some(*next),
            Break::Rights(Lost { name, why }) => {
                tracing::error!(%why, "the controller waits for a right that it had");
                let mut without = held.rest.names();
                // What else there is goes on, if the manifest does not say otherwise.
                let goes_on = handle.wanted.borrow().spec.on_start_error == OnStartError::GoOn;
                without.extend(name.filter(|_| goes_on));
                {
                    // Who changes it at this moment has done so before, or sees that it waits.
                    let _changing = handle.in_force.write();
                    handle.set(Phase::Resolving(why));
                }
                prepared = tokio::select! {
                    biased;
                    () = stop.cancelled() => None,
                    next = Box::pin(task.prepare(Entry::Start, without)) => Some(next),
                };
            }
        }
    }
    handle.queue.close();
    handle.set(Phase::Stopped);
    // Whoever still looks at the handle does not keep the plugin.
    *handle.in_force.write() = None;
}

impl Task<'_> {
    /// Waits until runs have to end; sees meanwhile to what can be seen to while they go on.
    async fn until(&mut self, stop: &CancellationToken, held: &mut Held) -> Break {
        let neighbours = self.neighbours;
        loop {
            let Held { rights, rest } = held;
            let without = rest.names();
            let rights = rights.as_ref();
            tokio::select! {
                biased;
                () = stop.cancelled() => return Break::Stop,
                next = self.changed(without) => {
                    if self.watches_else(&next) {
                        return Break::Change(Box::new(next));
                    }
                    *held = self.take_over(next);
                }
                come = rest.come(&neighbours.api) => match come {
                    Come::Kind => self.anew = true,
                    Come::Cache => self.known_now(rest),
                },
                () = granted(rights) => self.anew = true,
                lost = lost(rights) => return Break::Rights(lost),
            }
        }
    }

    /// Waits for a change that can't be put in place at once, and prepares it. One that is taken back meanwhile costs nothing.
    async fn changed(&mut self, without: BTreeSet<Arc<str>>) -> Prepared {
        loop {
            if !self.anew && self.wanted.changed().await.is_err() {
                // The handle, which has the other end, outlives its task.
                return std::future::pending().await;
            }
            while std::mem::take(&mut self.anew) || !self.put_in_place() {
                let declared = Arc::clone(&self.wanted.borrow_and_update());
                let Self { handle, neighbours, .. } = *self;
                let prepared = prepare(declared, handle, neighbours, Entry::Keep, &without);
                tokio::select! {
                    biased;
                    Ok(()) = self.wanted.changed() => {}
                    prepared = Box::pin(prepared) => return prepared,
                }
            }
        }
    }

    /// Whether what was prepared looks at other objects, or at the same in another way, so that runs under way have to end first.
    fn watches_else(&self, prepared: &Prepared) -> bool {
        let in_force = self.handle.in_force.read();
        let step = in_force.as_ref().map(|now| now.step(&prepared.declared));
        !matches!(step, Some(Step::InPlace | Step::Elsewhere))
    }

    /// Puts in place what is wanted by now, unless it needs other sources than those at work.
    fn put_in_place(&self) -> bool {
        let Self { handle, neighbours, .. } = self;
        let mut in_force = handle.in_force.write();
        let wanted = Arc::clone(&handle.wanted.borrow());
        let successor = in_force
            .as_ref()
            .filter(|now| now.step(&wanted) == Step::InPlace)
            .map(|now| handle.successor(now, &wanted, neighbours));
        let Some(Ok(controller)) = successor else {
            return false;
        };
        let follows = handle.put(&mut in_force, &wanted, controller, neighbours);
        drop(in_force);
        handle.set(Phase::Running);
        handle.after_swap(follows);
        true
    }

    /// Makes ready what is wanted: waits for its kinds, enters its informers, and waits for their caches. Begins again when
    /// something else is wanted.
    async fn prepare(&mut self, entry: Entry, without: BTreeSet<Arc<str>>) -> Prepared {
        let Self { handle, neighbours, wanted, .. } = self;
        loop {
            let declared = Arc::clone(&wanted.borrow_and_update());
            tokio::select! {
                biased;
                Ok(()) = wanted.changed() => wanted.mark_changed(),
                prepared = prepare(declared, handle, neighbours, entry, &without) => return prepared,
            }
        }
    }

    /// Lets the queue loose on what was prepared. Runs before it may be under way only if it looks at the same in other namespaces.
    /// Returns what its operator's account has to be permitted meanwhile, and what it is without.
    fn take_over(&mut self, mut prepared: Prepared) -> Held {
        let (rights, rest) = (prepared.rights.take(), std::mem::take(&mut prepared.rest));
        *self.handle.without.lock() = rest.why();
        if let Some(why) = rest.why() {
            tracing::warn!(%why, "the controller starts without something that it watches");
        }
        if let Err(error) = self.enter(prepared) {
            tracing::error!(%error, "the controller can't run");
            self.joined = Joined::default();
            self.handle.set(Phase::Failed(error.to_string()));
        }
        Held { rights, rest }
    }

    /// Takes in that a cache is filled which it was started without: what failed for that, or is known to be absent now, runs.
    fn known_now(&self, rest: &Rest) {
        *self.handle.without.lock() = rest.why();
        self.handle.queue.event_for_all(Instant::now());
    }

    fn enter(&mut self, prepared: Prepared) -> Result<(), flow::Error> {
        let Self { handle, neighbours, .. } = self;
        let Prepared { declared, plan, finalizer, .. } = prepared;
        let before = handle.in_force.read().clone();
        // Another kind's objects may have the same names.
        let kin = before.as_ref().is_none_or(|now| now.declared.spec.primary == declared.spec.primary);
        if !kin {
            handle.warn_of_carriers();
            handle.queue.retain(|_| false);
            handle.memory.retain(|_| false);
        }
        let known = before.as_ref();
        let known = known.map(|now| (&*now.controller, now.step(&declared)));
        let sources = Sources::planned(&plan, finalizer, known, &self.joined);
        self.joined.become_as(&sources, &plan, &neighbours.pool, &handle.listener());
        plan.say_what_lacks(&sources.primaries, &sources.secondaries);
        let primaries = Arc::clone(&sources.primaries);
        let stays = |key: &ObjectRef| primaries.get(key).is_some() || primaries.known(Within::Object(key)).is_err();
        handle.queue.retain(stays);
        handle.memory.retain(stays);
        let controller = assemble(&declared, handle, neighbours, sources, before.as_ref())?;
        warn_of_unused(&controller);
        let mut in_force = handle.in_force.write();
        let follows = handle.put(&mut in_force, &declared, controller, neighbours);
        drop(in_force);
        handle.set(Phase::Running);
        handle.after_swap(follows);
        handle.queue.start(Instant::now());
        tracing::info!(primaries = handle.queue.len(), "controller started");
        Ok(())
    }
}

/// One execution, which computes when it is its plugin's turn.
async fn execute(handle: Arc<Handle>, ticket: Ticket) {
    let account = handle.wanted.borrow().account.clone();
    let job = Job { controller: Arc::clone(&handle.name), key: Some(ticket.key().clone()) };
    account.run(job, executed(&handle, ticket)).await;
}

/// Runs, with metrics and a line in the log.
async fn executed(handle: &Handle, ticket: Ticket) {
    // The one instant at which a run belongs to the old version or to the new one.
    let Some(controller) = handle.controller() else {
        return;
    };
    let metrics = &handle.metrics;
    let started = Instant::now();
    metrics.start(ticket.retry().is_some());
    // An execution that is aborted or panics is counted too.
    let counted = Counted { metrics, started, succeeded: false };
    let Ended { finished, error, exceeded } = reconciler::execute(Arc::clone(&controller), &ticket).await;
    if let Some(exceeded) = exceeded {
        metrics.exceeded.inc();
        tracing::warn!(%exceeded, "what this run does with documents costs more than it may");
    }
    let now = Instant::now();
    let key = ticket.key().clone();
    let what = ticket.finish(finished, now);
    if what.next == Next::Dropped {
        // The primary went during the run, which may have remembered something of it since.
        controller.memory.forget(&key);
        metrics.count_primaries(controller.queue.len());
    }
    if matches!(what.next, Next::Outage(_)) {
        metrics.outages.inc();
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
        (Outcome::Ignored, _) => tracing::debug!(?took, "the run's outcome is ignored: the controller was stopped"),
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
        Next::Outage(after) => {
            format!("again in {after:?}, or once the API server does its work: no attempt is used up")
        }
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

/// Checks the workflows of a controller once more.
///
/// # Errors
/// If one of them is none, for instance because it has a circle.
pub fn check(spec: &manifest::Controller) -> Result<(), flow::Error> {
    Flows::new(spec).map(drop)
}

/// The workflows of a controller.
struct Flows {
    managed: Flow,
    standalone: BTreeMap<Arc<str>, Flow>,
}

impl Flows {
    fn new(spec: &manifest::Controller) -> Result<Self, flow::Error> {
        let standalone = spec.standalone.iter().map(|(name, workflow)| Ok((Arc::clone(name), Flow::new(workflow)?)));
        Ok(Self { managed: Flow::new(&spec.workflow)?, standalone: standalone.collect::<Result<_, flow::Error>>()? })
    }
}

/// Waits until something may be read that a controller goes on without; for ever, if there is nothing.
async fn granted(rights: Option<&Rights>) {
    match rights {
        Some(rights) => Box::pin(rights.granted()).await,
        None => std::future::pending().await,
    }
}

/// Waits until a right is lost; for ever, if none is needed.
async fn lost(rights: Option<&Rights>) -> Lost {
    match rights {
        Some(rights) => Box::pin(rights.lost()).await,
        None => std::future::pending().await,
    }
}

/// Returns the finalizer: the manifest's, or one made of the kind's full name (`LC-3`).
fn finalizer_name(spec: &manifest::Controller, kind: Option<&Kind>) -> Arc<str> {
    let full_name = || kind.map(Kind::full_name).unwrap_or_default();
    let default = || finalizer::default_name(&full_name()).into();
    spec.finalizer.clone().unwrap_or_else(default)
}

/// Warns of primaries that carry a finalizer which versions before the daemon's start used.
fn warn_of_unused(controller: &Controller) {
    let (finalizer, heeded) = (&controller.finalizer, controller.finalizers());
    if heeded.own.is_some() || heeded.former.contains(finalizer) {
        return;
    }
    let primaries = controller.primaries.carrying(finalizer);
    if primaries > 0 {
        tracing::warn!(%finalizer, primaries, "primaries carry a finalizer that this version does not use: they can't be deleted until `finalizers: {{ formerly: [...] }}` names it");
    }
}

/// Puts together what the runs need; `before` is the controller whose place it takes.
fn assemble(
    declared: &Declared,
    handle: &Handle,
    neighbours: &Neighbours,
    sources: Sources,
    before: Option<&InForce>,
) -> Result<Controller, flow::Error> {
    let Sources { primaries, secondaries, finalizer } = sources;
    let Declared { operator, spec, plugin, guest, .. } = declared;
    let counters = neighbours.metrics.plugins.of(operator, &spec.plugin);
    let per_second = plugin.limits.requests_per_second.min(neighbours.requests_per_second);
    let unit = (operator, &spec.plugin);
    let who = Identity::of(spec.service_account.as_ref(), &neighbours.home.own);
    let api = Access::new(Arc::clone(&neighbours.api), who.clone());
    let cluster = neighbours.meters.api_of(unit, per_second, api, counters.throttled);
    let flows = Flows::new(spec)?;
    Ok(Controller {
        operator: Arc::clone(operator),
        limits: plugin.limits.clone(),
        primaries,
        secondaries,
        workflow: flows.managed,
        standalone: flows.standalone,
        finalizer,
        guest: Arc::clone(guest),
        permissions: Permissions::new(spec, &plugin.capabilities, neighbours.home.clone()),
        cluster: Arc::new(cluster),
        tell: handle.listener(),
        queue: handle.queue.clone(),
        memory: Arc::clone(&handle.memory),
        edition: before.map_or(1, |before| before.edition_of(declared)),
        settings: settings(spec, neighbours),
        events: events(declared, neighbours, who, counters.dropped),
        spec: spec.clone(),
    })
}

/// Returns what takes the Kubernetes Events of a controller.
fn events(declared: &Declared, neighbours: &Neighbours, who: Identity, dropped: Counter) -> reconciler::Events {
    let Declared { operator, spec, .. } = declared;
    let recorder = neighbours.recorder.clone();
    let origin = Origin {
        who,
        plugin: format!("{operator}/{}", spec.plugin).into(),
        controller: Arc::clone(&spec.name),
        gvk: spec.primary.clone(),
        dropped,
    };
    Box::new(move |primary, event| recorder.publish(&origin, primary, event))
}

/// What `context.settings` answers.
fn settings(spec: &manifest::Controller, neighbours: &Neighbours) -> Value {
    json!({
        "controller": spec.settings(),
        "daemon": {
            "identity": &*neighbours.identity,
            "namespace": &*neighbours.home.own,
            "version": env!("CARGO_PKG_VERSION"),
        },
    })
}

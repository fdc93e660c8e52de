//! Holds the wanted version, the running version and the phase of a controller, for code that watches or changes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use capstan_core::conditions::Possible;
use capstan_core::cpu::Job;
use capstan_core::dispatcher::Bounds;
use capstan_core::guest::{Guest, Interface};
use capstan_core::manifest::{self, OnSwap};
use capstan_core::object::ObjectRef;
use capstan_core::queue::Queue;
use capstan_core::reconciler::Controller;
use capstan_core::reconciler::decision::Finalizers;
use capstan_core::reconciler::triggers::enqueue;
use capstan_core::reconciler::verdicts::Verdicts;
use capstan_core::rollout::Step;
use capstan_core::source::callback::Faults;
use capstan_core::source::registered::Registered;
use capstan_core::source::{Doubt, Listener, Source, TriggerKind, Within};
use capstan_core::startup::Obstacle;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::asking::Asker;
use super::assemble::{Kept, assemble, warn_of_abandoned};
use super::declared::{Declared, Environment, KindAt, finalizer_name};
use super::failing::Failing;
use super::registering::{Registrar, registered};
use super::selection::Selection;
use super::sources::Sources;
use super::taking::Taking;
use crate::informer::Scope;
use crate::informer::pool::Subscription;
use crate::logging::runs;
use crate::metrics::ControllerRuns;

mod shown;

pub use shown::{Described, LastFailure};

/// A controller, for code that watches or changes it.
pub struct Handle {
    pub(super) name: Arc<str>,
    pub(super) queue: Queue,
    pub(super) verdicts: Arc<Verdicts>,
    pub(super) metrics: ControllerRuns,
    /// Why primaries fail.
    pub(super) failing: Failing,
    /// Takes the failures of what the user asks about objects.
    pub(super) faults: Arc<Faults>,
    pub(super) phase: Mutex<Phase>,
    /// The parts that it runs without; `None` if nothing is missing.
    pub(super) without: Mutex<Option<Obstacle>>,
    pub(super) bounds: watch::Sender<Bounds>,
    /// The wanted version.
    pub(super) wanted: watch::Sender<Arc<Declared>>,
    /// The running version; `None` until it is up, and once it has stopped. Code that changes `wanted` or this holds
    /// this lock.
    pub(super) in_force: RwLock<Option<InForce>>,
    /// Is told that primaries have gone.
    pub(super) gone: Arc<Notify>,
    /// The edition of that.
    pub(super) edition: watch::Sender<u64>,
    /// The namespaces that its manifest selects. Code that changes the wanted version holds this lock, before that of `in_force`.
    pub(super) selection: Mutex<Selection>,
    /// Is told that something else may be selected.
    pub(super) selecting: Notify,
    /// Why it is not known which namespaces are selected.
    pub(super) unselected: watch::Sender<Option<String>>,
    /// What a version that is being prepared has begun to list: another one that is wanted meanwhile goes on with that.
    pub(super) begun: Mutex<Vec<Subscription>>,
    /// Whether requests from outside are taken.
    pub(super) taking: Taking,
    /// What watches what runs register.
    registrar: Mutex<Option<Arc<Registrar>>>,
}

/// The running version of a controller.
#[derive(Clone)]
pub(super) struct InForce {
    pub(super) declared: Arc<Declared>,
    pub(super) controller: Arc<Controller>,
}

/// What is left to be done after a swap.
#[must_use = "what has to follow the swap"]
pub(super) struct Swapped {
    follows: OnSwap,
    /// True if other finalizers are removed from now on.
    finalizers_changed: bool,
    /// The version that was in place.
    before: Option<InForce>,
    /// The one that is now.
    now: Arc<Controller>,
}

/// The phase of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for the API server to serve a kind, to grant a right, or to answer at all.
    Resolving(Obstacle),
    /// Waits for caches to fill.
    Filling(Obstacle),
    /// Runs.
    Running,
    /// Runs as before, and waits for what its wanted version needs, which this names.
    Changing(String),
    /// Has stopped.
    Stopped,
    /// Can't run, for this reason.
    Failed(Obstacle),
}

impl InForce {
    /// Returns the edition of the next version: the same number if a run does the same in both.
    pub(super) fn edition_of(&self, after: &Declared) -> u64 {
        let new = !after.version().is_as(self.declared.version());
        self.controller.edition + u64::from(new)
    }

    /// Returns what is known of whether the primaries of the next version can have conditions.
    fn conditions_of(&self, after: &Declared) -> Arc<Possible> {
        let same = KindAt::of_primaries(&self.declared.spec) == KindAt::of_primaries(&after.spec);
        if same { Arc::clone(&self.controller.conditions) } else { Arc::default() }
    }

    /// Returns the step by which it becomes the next version.
    pub(super) fn step(&self, after: &Declared) -> Step {
        self.declared.shape().step(after.shape())
    }
}

impl Handle {
    /// Returns the handle of a controller that is about to start.
    pub fn new(declared: Declared, environment: &Environment) -> Self {
        let name = Arc::clone(&declared.spec.name);
        let metrics = environment.metrics.runs.of(&name);
        let mut selection = Selection::default();
        let declared = selection.declare(declared);
        let counted = metrics.clone();
        Self {
            failing: Failing::default(),
            faults: Arc::new(Faults::new(&name, move |callback| counted.count_failed(callback))),
            queue: Queue::new(declared.policy()),
            verdicts: Arc::default(),
            metrics,
            phase: Mutex::new(Phase::Resolving(Obstacle::under_way("starting"))),
            without: Mutex::default(),
            bounds: watch::Sender::new(declared.bounds(environment)),
            wanted: watch::Sender::new(Arc::new(declared)),
            in_force: RwLock::default(),
            gone: Arc::default(),
            edition: watch::Sender::new(0),
            selection: Mutex::new(selection),
            selecting: Notify::new(),
            unselected: watch::Sender::new(None),
            begun: Mutex::default(),
            taking: Taking::default(),
            registrar: Mutex::default(),
            name,
        }
    }

    /// Changes it to another version: at once if what it watches stays, else as soon as what that version needs is
    /// there.
    pub fn change(self: &Arc<Self>, declared: Declared, environment: &Environment) {
        let mut selection = self.selection.lock();
        let declared = selection.declare(declared);
        self.go_over(declared, environment);
        drop(selection);
        self.selecting.notify_one();
    }

    /// Changes it to a version whose namespaces are as they are known to be. The caller holds the lock of `selection`.
    pub(super) fn go_over(self: &Arc<Self>, declared: Declared, environment: &Environment) {
        let declared = Arc::new(declared);
        let mut in_force = self.in_force.write();
        let runs = *self.phase.lock() == Phase::Running;
        let settled = in_force.as_ref().filter(|now| {
            let wanted = self.wanted.borrow();
            // A controller that waits for something is notified, and begins again.
            runs && Arc::ptr_eq(&now.declared, &wanted) && wanted.shape().step(declared.shape()) == Step::InPlace
        });
        let next = settled.map(|now| self.successor(now, &declared, environment));
        match next {
            Some(controller) => {
                let follows = self.put(&mut in_force, &declared, controller, environment);
                // Its task has nothing to do, so it is not notified.
                self.wanted.send_if_modified(|wanted| {
                    *wanted = Arc::clone(&declared);
                    false
                });
                drop(in_force);
                self.after_swap(follows);
            }
            None => drop(self.wanted.send_replace(declared)),
        }
    }

    /// Returns the finalizers that primaries carry and that nothing would remove any more with this version in place,
    /// each with the number of these primaries. Empty if this version reconciles another kind, whatever its version: it
    /// can't help primaries of the old kind.
    ///
    /// # Errors
    /// [`Doubt`] if there may be such finalizers on primaries that are not known.
    pub fn left_behind(
        &self,
        spec: &manifest::Controller,
        guest: &dyn Guest,
        environment: &Environment,
    ) -> Result<BTreeMap<Arc<str>, usize>, Doubt> {
        let Some(controller) = self.controller() else {
            return Ok(BTreeMap::new());
        };
        let known = controller.primaries.shows_all(Within::Everywhere);
        // Without primaries, no finalizer is left behind: one that comes before this version runs is let go by it.
        let none = || known.is_ok() && controller.primaries.list(None).is_empty();
        if !controller.spec.is_kin_of(spec) || none() {
            return Ok(BTreeMap::new());
        }
        let api = self.wanted.borrow().site(environment).api;
        let name = finalizer_name(spec, api.known(&spec.primary).as_ref());
        // In all-events mode the component sees to it.
        let used = spec.all_events() || spec.deletes_dependents() || guest.exports(Interface::Cleaner);
        let after = Finalizers { own: used.then_some(&*name), former: &spec.former_finalizers };
        let carrying = |finalizer: &str| controller.primaries.carrying(finalizer);
        let given = BTreeSet::from([Arc::clone(&controller.finalizer)]);
        let before = if controller.spec.all_events() {
            Finalizers { own: None, former: &given }
        } else {
            controller.finalizers()
        };
        let behind = before.left_behind(after, carrying);
        let unseen = || before.left_behind(after, |_| 1);
        match known {
            Err(doubt) if behind.values().all(|primaries| *primaries == 0) && !unseen().is_empty() => Err(doubt),
            Ok(()) | Err(_) => Ok(behind),
        }
    }

    /// Takes in that the API server is back: keys that wait for it run soon.
    pub fn resume(&self) {
        self.queue.resume(Instant::now());
    }

    /// Returns the listener that passes on triggers of its sources: to the queue, the verdicts and the metrics.
    pub(super) fn listener(&self) -> Listener {
        let (queue, verdicts, metrics) = (self.queue.clone(), Arc::clone(&self.verdicts), self.metrics.clone());
        let (wanted, departed, name) = (self.wanted.subscribe(), Arc::clone(&self.gone), Arc::clone(&self.name));
        Arc::new(move |triggers| {
            runs::caused(&name, &triggers);
            if triggers.iter().any(|trigger| matches!(trigger.what, TriggerKind::Deleted { .. })) {
                departed.notify_one();
            }
            metrics.count(enqueue(&queue, &verdicts, triggers, || wanted.borrow().guest.lasting()));
            metrics.count_primaries(queue.len());
            metrics.count_paused(verdicts.paused());
        })
    }

    /// Returns what begins to ask for its sources.
    pub(super) fn asker(self: &Arc<Self>, environment: &Environment) -> Asker {
        // What it asks for is part of the running version, which the handle has.
        let handle = Arc::downgrade(self);
        Asker {
            running: Arc::new(move || handle.upgrade()?.controller()),
            controller: Arc::clone(&self.name),
            wanted: self.wanted.subscribe(),
            tell: self.listener(),
            runtime: environment.workers.runtime(),
        }
    }

    /// Forgets what primaries that have gone demand to be watched, and why they failed, for as long as this is polled.
    pub(super) async fn forget_gone(&self) {
        loop {
            self.gone.notified().await;
            if let Some(now) = self.controller() {
                let stays = |primary: &ObjectRef| {
                    !matches!(now.primaries.look(primary), Ok(None)) || self.verdicts.departed.has(primary)
                };
                self.failing.retain(stays);
                now.on_demand.retain(stays).await;
            }
        }
    }

    /// Passes on the primaries that no key stands for and that a changed filter lets pass: nothing else tells of them.
    pub(super) fn tell_of_unknown(&self, before: Option<&Controller>, primaries: &Source) {
        if before.is_some_and(|before| before.primaries.spec().filter != primaries.spec().filter) {
            self.listener()(primaries.as_added(|primary| !self.queue.knows(primary)));
        }
    }

    /// Returns the version that runs; `None` if there is none.
    pub fn running(&self) -> Option<Arc<Declared>> {
        self.in_force.read().as_ref().map(|now| Arc::clone(&now.declared))
    }

    /// Returns the field managers of its wanted version, and of the one that runs.
    pub fn field_managers(&self) -> BTreeSet<Arc<str>> {
        let running = self.controller();
        let running = running.iter().flat_map(|controller| controller.spec.managers());
        running.chain(self.wanted.borrow().spec.managers()).collect()
    }

    /// Reports that a version can't start, and waits forever: a change of its manifest drops this future.
    pub(super) async fn failed<T>(&self, declared: &Arc<Declared>, obstacle: Obstacle) -> T {
        tracing::error!(why = %obstacle.why, "the controller does not start");
        self.set(Phase::Failed(obstacle));
        self.leave_begun();
        // What has come to be wanted meanwhile was to follow this one.
        let follows = !Arc::ptr_eq(&self.wanted.borrow(), declared);
        if follows {
            self.wanted.send_modify(|_| ());
        }
        std::future::pending().await
    }

    /// Goes on with these informers, and of those that were begun before with what is to stay: that has listed nothing in vain.
    pub(super) fn go_on_with(&self, begun: Vec<Subscription>, stays: &BTreeSet<&Scope>) {
        let left = {
            let mut kept = self.begun.lock();
            let now: BTreeSet<_> = begun.iter().map(|place| place.scope().clone()).collect();
            let stays = |place: &Subscription| stays.contains(place.scope()) && !now.contains(place.scope());
            let (stay, left): (Vec<_>, Vec<_>) = std::mem::take(&mut *kept).into_iter().partition(stays);
            kept.extend(stay.into_iter().chain(begun));
            left
        };
        // Not under the lock: whoever leaves may have to wait for those who are being told of much.
        drop(left);
    }

    /// Nothing is being prepared any more.
    pub(super) fn leave_begun(&self) {
        self.go_on_with(Vec::new(), &BTreeSet::new());
    }

    pub(super) fn set(&self, phase: Phase) {
        *self.phase.lock() = phase;
    }

    /// Returns the controller that takes the place of `before` and watches the same.
    pub(super) fn successor(
        self: &Arc<Self>,
        before: &InForce,
        declared: &Declared,
        environment: &Environment,
    ) -> Controller {
        let sources = Sources::of(&before.controller);
        self.assemble(declared, environment, sources, Some(before))
    }

    /// Assembles what the runs need; `before` is the version whose place it takes.
    pub(super) fn assemble(
        self: &Arc<Self>,
        declared: &Declared,
        environment: &Environment,
        sources: Sources,
        before: Option<&InForce>,
    ) -> Controller {
        let edition = before.map_or(1, |before| before.edition_of(declared));
        // What runs have registered is of the version that did, in whichever namespaces, and belongs to its primaries.
        let same = |before: &InForce| {
            before.controller.edition == edition && Arc::ptr_eq(&before.controller.primaries, &sources.primaries)
        };
        let step = |before: &InForce| same(before).then(|| before.step(declared));
        let registered = match before.map(|before| (before, step(before))) {
            Some((before, Some(Step::InPlace))) => Arc::clone(&before.controller.registered),
            Some((before, Some(Step::Elsewhere))) if self.follow(&before.controller.registered, declared) => {
                Arc::clone(&before.controller.registered)
            }
            Some((_, Some(Step::Elsewhere | Step::Rewatch) | None)) | None => {
                let kept = (Arc::clone(&self.faults), self.queue.clone());
                let (registered, registrar) =
                    registered(declared, &sources.primaries, environment, self.asker(environment), kept);
                *self.registrar.lock() = Some(registrar);
                registered
            }
        };
        let kept = Kept {
            tell: self.listener(),
            queue: self.queue.clone(),
            verdicts: Arc::clone(&self.verdicts),
            edition,
            registered,
            conditions: before.map(|before| before.conditions_of(declared)).unwrap_or_default(),
        };
        let mut controller = assemble(declared, environment, sources, kept);
        if let Some(before) = before {
            controller.heed_finalizers_of(&before.controller);
        }
        controller
    }

    /// Takes in that nothing is registered any more.
    pub(super) fn forget_registrar(&self) {
        *self.registrar.lock() = None;
    }

    /// Has what runs have registered watch in the namespaces of a version. Returns false if it can't.
    fn follow(&self, registered: &Registered, declared: &Declared) -> bool {
        let registrar = self.registrar.lock().clone();
        let Some(registrar) = registrar else {
            return false;
        };
        registrar.bound(declared);
        if registered.follow() {
            // Nothing else tells of what they showed, until they are registered again.
            self.queue.event_for_all(Instant::now());
        }
        true
    }

    /// Puts a controller in place: runs that begin from now on use it. What it returns has to follow the swap, and without a lock: what
    /// ends with the version before may have to wait for those who are being told of much.
    pub(super) fn put(
        &self,
        in_force: &mut Option<InForce>,
        declared: &Arc<Declared>,
        controller: Controller,
        environment: &Environment,
    ) -> Swapped {
        self.verdicts.begin(controller.edition);
        let edition = controller.edition;
        let registered = Arc::clone(&controller.registered);
        let controller = Arc::new(controller);
        let before = in_force.replace(InForce { declared: Arc::clone(declared), controller: Arc::clone(&controller) });
        controller.ask_this();
        self.edition.send_if_modified(|known| std::mem::replace(known, edition) != edition);
        self.queue.set_policy(declared.policy());
        self.bounds.send_replace(declared.bounds(environment));
        environment.swapped.notify_one();
        // At the start all primaries are enqueued anyway.
        let follows = before.as_ref().map_or(OnSwap::Nothing, |before| {
            let former = &before.controller.registered;
            // Only runs say which dependents are active.
            let demanded = controller.on_demand.has_others_than(&before.controller.on_demand);
            if !demanded && (Arc::ptr_eq(former, &registered) || former.is_empty()) {
                declared.version().follows(before.declared.version())
            } else {
                // Nothing else tells of what the registered sources showed, until they are registered again.
                OnSwap::ReconcileAll
            }
        });
        let finalizers_changed = before.as_ref().is_some_and(|before| {
            let [before, now] = [&before.controller, &controller].map(|controller| controller.finalizers());
            (before.own, before.former) != (now.own, now.former)
        });
        Swapped { follows, finalizers_changed, before, now: controller }
    }

    pub(super) fn after_swap(&self, Swapped { follows, finalizers_changed, before, now }: Swapped) {
        if let Some(before) = before {
            warn_of_abandoned(&before.controller, &now);
        }
        now.ask_anew();
        // What they demand was taken over, who may have gone meanwhile.
        self.gone.notify_one();
        if finalizers_changed {
            self.queue.finalizers_changed(Instant::now());
        }
        if follows == OnSwap::ReconcileAll {
            runs::swapped(&self.name);
            self.queue.swapped(Instant::now());
        }
    }

    /// Does something, about a primary or about none, when it is the turn of the wanted version's plugin to compute.
    pub(super) async fn in_turn<T>(&self, key: Option<ObjectRef>, work: impl Future<Output = T>) -> T {
        let account = self.wanted.borrow().account.clone();
        account.run(Job { controller: Arc::clone(&self.name), key }, work).await
    }

    /// Returns the controller that runs use now; `None` if there is no running version.
    pub(super) fn controller(&self) -> Option<Arc<Controller>> {
        self.in_force.read().as_ref().map(|now| Arc::clone(&now.controller))
    }
}

impl fmt::Debug for Handle {
    /// Writes the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.name)
    }
}

//! Starts a controller: waits for its kinds and caches, then starts its queue; takes changes while it runs.
//!
//! A change that leaves alone what is watched is put in place at once: the next run sees it, and nothing else
//! triggers. For any other change, what it needs is made ready first; then the runs under way end, and the queue
//! continues with the new sources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capstan_core::dispatcher;
use capstan_core::manifest::OnStartError;
use capstan_core::object::ObjectRef;
use capstan_core::rollout::Step;
use capstan_core::startup::Obstacle;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

mod apart;
mod asking;
mod assemble;
mod behind;
mod ceiled;
mod declared;
mod demand;
mod failing;
mod fitting;
mod handle;
pub mod inbound;
mod late;
mod plan;
mod polls;
mod presence;
mod registering;
pub mod rehearsal;
mod renamed;
mod rest;
mod rights;
mod run;
mod selected;
mod selection;
mod sources;
mod start;
mod taking;
#[cfg(test)]
mod tests;

use asking::Asking;
use assemble::warn_of_unused;
pub use declared::{Declared, Environment};
pub use failing::LastError;
pub use handle::{Described, Handle, LastFailure};
use handle::{InForce, Phase};
use polls::Polls;
use renamed::Watched;
use rest::{Come, Lack, Rest};
use rights::{Lost, Rights, lost};
use run::execute;
use selected::follow;
use sources::{Joined, Sources};
use start::{Entry, Prepared, prepare};

/// The reason for which the runs of a controller have to end.
enum Break {
    /// The controller is stopped.
    Stop,
    /// The controller becomes this one.
    Change(Box<Prepared>),
    /// The controller has lost this right.
    Rights(Lost),
}

/// What a running controller waits for, beside a stop and changes of its manifest.
#[derive(Default)]
struct Held {
    /// The rights that its operator's account needs.
    rights: Option<Rights>,
    /// The kinds and caches that it was started without.
    rest: Rest,
}

/// The task of a controller.
struct Task<'a> {
    handle: &'a Arc<Handle>,
    environment: &'a Environment,
    wanted: watch::Receiver<Arc<Declared>>,
    joined: Joined,
    /// One for each source.
    asking: Vec<Asking>,
    /// What is polled outside of the cluster while it runs.
    polls: Polls,
    /// The kinds that it watches.
    watched: Arc<Watched>,
    /// True if something is there now that it was started without, or is another: it has to be prepared again.
    anew: bool,
}

impl Break {
    /// True if requests from outside are not taken from now on either: what their calls read is not kept, or may not be read any more.
    fn ends_requests(&self) -> bool {
        match self {
            Self::Stop | Self::Rights(_) => true,
            Self::Change(_) => false,
        }
    }
}

// === running ===

/// Runs a controller until `stop` is cancelled, and returns when its last run has ended.
pub async fn run(handle: Arc<Handle>, environment: Arc<Environment>, stop: CancellationToken) {
    let mut task = Task {
        handle: &handle,
        environment: &environment,
        wanted: handle.wanted.subscribe(),
        joined: Joined::default(),
        asking: Vec::new(),
        polls: Polls::default(),
        watched: Arc::default(),
        anew: false,
    };
    let _beside = beside(&handle, &environment);
    let mut held = Held::default();
    // What it has been without so far.
    let mut lacked = BTreeMap::new();
    let mut prepared = tokio::select! {
        biased;
        () = stop.cancelled() => None,
        first = task.prepare(Entry::Start, BTreeSet::new()) => Some(first),
    };
    while let Some(now) = prepared.take() {
        // The change may have been taken back while the last runs ended.
        if !task.keeps(&now) {
            held = task.take_over(now, &lacked);
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = task.poll() => {}
        }
        task.start();
        let mut broken = Break::Stop;
        let until = async {
            broken = Box::pin(task.until(&stop, &mut held)).await;
            // Before the last runs end, for what requests would read is not kept.
            handle.taking.go_on(!broken.ends_requests());
        };
        let bounds = handle.bounds.subscribe();
        let execute = {
            let handle = Arc::clone(&handle);
            move |ticket| execute(Arc::clone(&handle), ticket)
        };
        let runtime = environment.workers.runtime();
        let drained = dispatcher::run(&handle.queue, runtime, bounds, until, execute).await;
        lacked = held.rest.lacks();
        task.polls = Polls::default();
        match broken {
            Break::Stop => tracing::info!(aborted = drained.aborted, "controller stopped"),
            Break::Change(next) => prepared = Some(*next),
            Break::Rights(lost) => prepared = task.regain(lost, held.rest.names(), &stop).await,
        }
    }
    handle.leave_begun();
    handle.queue.close();
    handle.set(Phase::Stopped);
    // So that a handle that is still in use does not keep the plugin.
    *handle.in_force.write() = None;
    handle.forget_registrar();
}

/// Begins what goes on beside its runs, until that is dropped.
fn beside(handle: &Arc<Handle>, environment: &Arc<Environment>) -> [AbortOnDropHandle<()>; 4] {
    let runtime = environment.workers.runtime();
    // So that what nobody demands any more is not watched.
    let forget = {
        let handle = Arc::clone(handle);
        async move { handle.forget_gone().await }
    };
    let follow = follow(Arc::clone(handle), Arc::clone(environment)).in_current_span();
    let fits = fitting::follow(Arc::clone(handle), Arc::clone(environment)).in_current_span();
    let kinds = presence::follow(Arc::clone(handle), Arc::clone(environment)).in_current_span();
    [runtime.spawn(forget), runtime.spawn(follow), runtime.spawn(fits), runtime.spawn(kinds)]
        .map(AbortOnDropHandle::new)
}

/// Waits until something else is wanted than `declared`, and more than the same in further namespaces: that comes after it, or those that
/// come one after another would have the first wait for the last.
async fn overtaken(wanted: &mut watch::Receiver<Arc<Declared>>, declared: &Declared, handle: &Handle) {
    loop {
        if wanted.changed().await.is_err() {
            // Never happens: the handle, which has the sender, outlives its task.
            return std::future::pending().await;
        }
        let failed = matches!(*handle.phase.lock(), Phase::Failed(_));
        if failed || !wanted.borrow_and_update().grows_from(declared) {
            return;
        }
    }
}

impl Task<'_> {
    /// Waits until a right that was lost is there again; `None` if the controller is stopped meanwhile. `without` is what it
    /// was without before.
    async fn regain(
        &mut self,
        Lost { names, why }: Lost,
        mut without: BTreeSet<Arc<str>>,
        stop: &CancellationToken,
    ) -> Option<Prepared> {
        let handle = self.handle;
        tracing::error!(%why, "the controller waits for a right that it had");
        // The controller continues without what it may not read, unless the manifest says otherwise.
        let goes_on = handle.wanted.borrow().spec.on_start_error == OnStartError::GoOn;
        if goes_on {
            // Others may have gone while its last runs ended.
            let declared = Arc::clone(&handle.wanted.borrow());
            let closed = apart::all_closed(&declared.spec, &declared.sites(self.environment));
            without.extend(names.into_iter().chain(closed));
        }
        {
            // A change at this moment has either come before, or sees that the controller waits.
            let _changing = handle.in_force.write();
            handle.set(Phase::Resolving(Obstacle::lacking(why)));
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => None,
            next = Box::pin(self.prepare(Entry::Again, without)) => Some(next),
        }
    }

    /// Waits until runs have to end, and returns why. Meanwhile does what can be done while they continue.
    async fn until(&mut self, stop: &CancellationToken, held: &mut Held) -> Break {
        let environment = self.environment;
        loop {
            let Held { rights, rest } = held;
            let without = rest.names();
            let names = without.clone();
            let (rights, handle) = (rights.as_ref(), self.handle);
            // What comes while a version is prepared anew must not begin that again: lists may take longer than questions.
            let settled = !self.anew;
            let declared = self.declared();
            let (sites, watched) = (declared.sites(environment), Arc::clone(&self.watched));
            let returns: Vec<_> = sites.others().map(|(_, site)| site.api.pulse().returns()).collect();
            tokio::select! {
                biased;
                () = stop.cancelled() => return Break::Stop,
                next = self.changed(without) => {
                    if self.watches_else(&next) {
                        return Break::Change(Box::new(next));
                    }
                    let before = held.rest.lacks();
                    *held = self.take_over(next, &before);
                    self.start();
                }
                come = rest.come(rights, &sites, settled) => match come {
                    Come::Anew => self.anew = true,
                    Come::Cache => self.known_now(rest, true),
                },
                lost = lost(rights) => return Break::Rights(lost),
                why = watched.renamed(), if settled => {
                    tracing::warn!(%why, "a kind was made anew: it is watched as it is now");
                    self.anew = true;
                }
                lost = apart::closed(&declared.spec, &sites, &names) => return Break::Rights(lost),
                never = apart::follow(returns, || handle.resume()) => match never {},
            }
        }
    }

    /// Waits for a change that can't be put in place at once, and prepares it. A change that is taken back meanwhile
    /// has no effect.
    async fn changed(&mut self, without: BTreeSet<Arc<str>>) -> Prepared {
        loop {
            // What is wanted may have been prepared in vain before: what counts is that it is not there.
            if !self.anew && self.is_in_force() && self.wanted.changed().await.is_err() {
                // Never happens: the handle, which has the sender, outlives its task.
                return std::future::pending().await;
            }
            while self.anew || !self.put_in_place() {
                let declared = Arc::clone(&self.wanted.borrow_and_update());
                let Self { handle, environment, .. } = *self;
                let prepared = prepare(Arc::clone(&declared), handle, environment, Entry::Keep, &without);
                tokio::select! {
                    biased;
                    () = overtaken(&mut self.wanted, &declared, handle) => {}
                    prepared = Box::pin(prepared) => {
                        self.anew = false;
                        return prepared;
                    }
                }
            }
            // What was taken back needs nothing.
            self.handle.leave_begun();
        }
    }

    /// Returns the version that runs; the wanted one if none does.
    fn declared(&self) -> Arc<Declared> {
        let in_force = self.handle.in_force.read();
        in_force.as_ref().map_or_else(|| Arc::clone(&self.wanted.borrow()), |now| Arc::clone(&now.declared))
    }

    /// True if the wanted version is the one that runs.
    fn is_in_force(&self) -> bool {
        let in_force = self.handle.in_force.read();
        in_force.as_ref().is_some_and(|now| Arc::ptr_eq(&now.declared, &self.wanted.borrow()))
    }

    /// True if the prepared version watches other objects, or the same in another way, so that runs under way have to
    /// end first.
    fn watches_else(&self, prepared: &Prepared) -> bool {
        let in_force = self.handle.in_force.read();
        let step = in_force.as_ref().map(|now| now.step(&prepared.declared));
        !matches!(step, Some(Step::InPlace | Step::Elsewhere)) || self.renames(prepared)
    }

    /// True if a kind that the prepared version watches is another than the one that is watched.
    fn renames(&self, Prepared { plan, declared, .. }: &Prepared) -> bool {
        self.watched.is_renamed_in(&Watched::of(plan, &declared.sites(self.environment)))
    }

    /// Goes on with what runs, in place of the prepared version, if that needs no other sources. Returns true if so.
    fn keeps(&self, prepared: &Prepared) -> bool {
        prepared.entry == Entry::Keep && !self.renames(prepared) && self.put_in_place()
    }

    /// Puts the wanted version in place, unless it needs other sources than the running version. Returns true if it
    /// did.
    fn put_in_place(&self) -> bool {
        let Self { handle, environment, .. } = self;
        let mut in_force = handle.in_force.write();
        let wanted = Arc::clone(&handle.wanted.borrow());
        let successor = in_force
            .as_ref()
            .filter(|now| now.step(&wanted) == Step::InPlace)
            .map(|now| handle.successor(now, &wanted, environment));
        let Some(controller) = successor else {
            return false;
        };
        let follows = handle.put(&mut in_force, &wanted, controller, environment);
        drop(in_force);
        handle.set(Phase::Running);
        handle.after_swap(follows);
        true
    }

    /// Prepares the wanted version: waits for its kinds, joins its informers, and waits for their caches. Begins
    /// again when another version is wanted.
    async fn prepare(&mut self, entry: Entry, without: BTreeSet<Arc<str>>) -> Prepared {
        let Self { handle, environment, wanted, .. } = self;
        loop {
            let declared = Arc::clone(&wanted.borrow_and_update());
            tokio::select! {
                biased;
                () = overtaken(wanted, &declared, handle) => wanted.mark_changed(),
                prepared = prepare(Arc::clone(&declared), handle, environment, entry, &without) => return prepared,
            }
        }
    }

    /// Starts the queue with the prepared version. Runs of the version before may be under way only if the new one
    /// watches the same in other namespaces. `lacked` is what the version before was without. Returns the rights that
    /// its operator's account needs from now on, and what it is without.
    fn take_over(&mut self, mut prepared: Prepared, lacked: &BTreeMap<Arc<str>, Lack>) -> Held {
        let (rights, rest) = (prepared.rights.take(), std::mem::take(&mut prepared.rest));
        if let Some(Obstacle { why, .. }) = rest.why() {
            tracing::warn!(%why, "the controller starts without something that it watches");
        }
        let come = rest.has_come(lacked, |kind, namespace| prepared.plan.watches(kind, namespace));
        self.enter(prepared);
        self.known_now(&rest, come);
        let stays = rest.names();
        if !come && lacked.keys().any(|name| !stays.contains(name)) {
            // Runs may have failed for what has been given up.
            self.handle.queue.event_for_failed(Instant::now());
        }
        Held { rights, rest }
    }

    /// Takes in what it is without, and whether something has `come` that it was without before. Then all keys run: for
    /// some, a run failed without it; for others, an object is known to be absent only now.
    fn known_now(&self, rest: &Rest, come: bool) {
        *self.handle.without.lock() = rest.why();
        if come {
            self.handle.queue.event_for_all(Instant::now());
        }
    }

    fn enter(&mut self, prepared: Prepared) {
        let renamed = self.renames(&prepared);
        self.watched = Arc::new(Watched::of(&prepared.plan, &prepared.declared.sites(self.environment)));
        let Self { handle, environment, .. } = self;
        let Prepared { declared, plan, finalizer, .. } = prepared;
        let before = handle.in_force.read().clone();
        // Another kind's objects may have the same names.
        let kin = before.as_ref().is_none_or(|now| now.declared.spec.is_kin_of(&declared.spec));
        if !kin {
            handle.warn_of_carriers();
            handle.queue.retain(|_| false);
            handle.verdicts.retain(|_| false);
            handle.failing.retain(|_| false);
        }
        let known = before.as_ref().filter(|now| now.declared.leads_as(&declared));
        // What was made of the scopes of kinds holds no more.
        let step = |now: &InForce| if renamed { Step::Rewatch } else { now.step(&declared) };
        let known = known.map(|now| (&*now.controller, step(now)));
        if let Some((now, Step::Elsewhere)) = known {
            behind::warn(now, &plan);
        }
        let mut sources = Sources::planned(&plan, finalizer, known, &self.joined, &*declared.guest);
        let users = known.filter(|_| kin).map(|(now, _)| now.on_demand.retire()).unwrap_or_default();
        self.joined.become_as(&mut sources, &plan, &users, (&declared.sites(environment), &handle.listener()));
        let sought = sources.all();
        // What those put off that go is asked by their heirs, or by nobody: it may be of another kind.
        self.asking.retain(|asking| sought.iter().any(|source| Arc::ptr_eq(source, &asking.source)));
        let new =
            sought.into_iter().filter(|source| !self.asking.iter().any(|asking| Arc::ptr_eq(source, &asking.source)));
        let new: Vec<_> = new.cloned().collect();
        handle.tell_of_unknown(known.map(|(now, _)| now), &sources.primaries);
        let primaries = Arc::clone(&sources.primaries);
        let verdicts = &handle.verdicts;
        // AE-3: what is gone stays until a run about that has succeeded.
        let departed = |key: &ObjectRef| declared.spec.all_events() && verdicts.departed.has(key);
        if !declared.spec.all_events() && !verdicts.departed.is_empty() {
            let primaries = verdicts.departed.len();
            tracing::warn!(
                primaries,
                "no run about the deletion of these primaries has succeeded, and none follows: without `triggerOnAllEvents` there are none"
            );
        }
        let stays = |key: &ObjectRef| !matches!(primaries.look(key), Ok(None)) || departed(key);
        handle.queue.retain(stays);
        handle.verdicts.retain(stays);
        handle.failing.retain(stays);
        handle.metrics.count_paused(handle.verdicts.paused());
        let controller = handle.assemble(&declared, environment, sources, before.as_ref());
        warn_of_unused(&controller);
        let mut in_force = handle.in_force.write();
        let follows = handle.put(&mut in_force, &declared, controller, environment);
        drop(in_force);
        // Only now, for what they ask is asked of the version that is in place.
        let asker = handle.asker(environment);
        self.asking.extend(new.iter().map(|source| asker.begin(source)));
        handle.after_swap(follows);
    }

    /// Begins to poll what is outside of the cluster, and waits until it has been polled once.
    async fn poll(&mut self) {
        let Self { handle, environment, joined, .. } = self;
        if let Some(controller) = handle.controller() {
            self.polls = Polls::start(handle, environment, &controller, &joined.touched);
            let mut news = self.wanted.clone();
            tokio::select! {
                () = self.polls.first(controller.spec.cache_sync_timeout) => {}
                // What is wanted instead may be what polls better.
                Ok(()) = news.changed() => {}
            }
        }
    }

    /// Begins to run what waits, unless that runs already.
    fn start(&self) {
        let handle = self.handle;
        handle.set(Phase::Running);
        handle.queue.start(Instant::now());
        handle.taking.begin();
        tracing::info!(primaries = handle.queue.len(), "controller started");
    }
}

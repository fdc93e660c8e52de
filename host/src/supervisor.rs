//! Keeps what runs as the manifests say: loads what has changed, puts it in place, and goes on with the last good version where that fails.
//!
//! One task, one change after another. Nothing here is on the way of a run: a component is read, compiled and tried while
//! the old one works, and is put in place by [`Handle::change`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use capstan_core::manifest::{Component as Source, Controller, OnNewVersion, Operator, Plugin};
use capstan_core::rollout::Wanted;
use capstan_core::rollout::plan::{self, Attempt, Attempts, Next};
use capstan_core::rollout::values::{Given, given};
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub mod asking;
mod bounds;
mod ceilings;
pub mod disk;
mod finalizers;
pub mod held;
mod inbound;
mod leaving;
mod load;
mod managers;
pub mod objects;
pub mod status;
pub mod supply;
mod values;

use crate::backoff::until;
use crate::clusters::Other;
use crate::controller::{self, Declared, Environment, Handle};
use crate::informer::aside;
use crate::registry::images::Images;
use asking::{Asking, Judged};
use ceilings::Judge;
use leaving::Leaving;
use load::{Change, Loaded, Loading, Outcome, Rollout, load};
use status::{BadManifest, Status};
use supply::{Again, Component, Drain, Supply, Unit};
pub use values::Tokens;
use values::Values;

/// All that runs.
pub struct Supervisor {
    supply: Box<dyn Supply>,
    /// The values of `config` that are elsewhere.
    values: Values,
    /// The components that are in registries.
    images: Images,
    /// Who says whether versions may be put in force that want more.
    asking: Asking,
    environment: Arc<Environment>,
    status: Arc<Status>,
    /// How many runs of one plugin may be under way.
    concurrency: usize,
    /// The plugins and controllers that want more, which has been told.
    capped: BTreeSet<String>,
    /// What the manifests say, each in its last good version.
    operators: Vec<Operator>,
    /// What was tried last of each operator, so that nothing is tried again before something changes.
    tried: BTreeMap<Arc<str>, Attempts>,
    /// What the version of each operator that was put in force last says of newer ones, as long as it is declared.
    said: BTreeMap<Arc<str>, OnNewVersion>,
    /// When something is tried again although nothing has changed: what kept it from being loaded is not its own fault.
    again_at: Option<Instant>,
    /// The operators that are being loaded.
    loading: BTreeMap<Arc<str>, Loading>,
    in_force: BTreeMap<Unit, Version>,
    controllers: BTreeMap<Arc<str>, Running>,
    /// Controllers that have been stopped.
    leaving: Vec<Leaving>,
    /// Whether a source in force takes requests from outside.
    inbound: watch::Sender<bool>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

/// What is in force.
struct Version {
    attempt: Attempt,
    plugin: Arc<dyn Component>,
    /// Waits for the last run in the one before; none if there was none.
    before: Option<Drain>,
}

/// A controller that runs.
struct Running {
    /// The operator that has it.
    operator: Arc<str>,
    handle: Arc<Handle>,
    stop: CancellationToken,
    /// Its last run has ended.
    ended: CancellationToken,
}

// === impl Supervisor ===

impl Supervisor {
    /// Returns a supervisor that runs nothing yet, on the current runtime. It ends with `stop`.
    pub fn new(
        supply: Box<dyn Supply>,
        environment: Arc<Environment>,
        status: Arc<Status>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            supply,
            images: Images::default(),
            asking: Asking::default(),
            values: Values::new(&environment.api, &environment.home.own),
            environment,
            status,
            concurrency: usize::MAX,
            capped: BTreeSet::new(),
            operators: Vec::new(),
            tried: BTreeMap::new(),
            said: BTreeMap::new(),
            again_at: None,
            loading: BTreeMap::new(),
            in_force: BTreeMap::new(),
            controllers: BTreeMap::new(),
            leaving: Vec::new(),
            inbound: watch::Sender::new(false),
            tasks: JoinSet::new(),
            stop,
        }
    }

    /// Returns the supervisor with the components of registries.
    #[must_use]
    pub fn pulling(self, images: Images) -> Self {
        Self { images, ..self }
    }

    /// Starts what the manifests declare, takes their changes until it is stopped, and returns when the last run has ended.
    pub async fn run(mut self) {
        let stop = self.stop.clone();
        let keep = async {
            let mut loads = FuturesUnordered::new();
            let mut again = Some(Again::OnceChanged);
            loop {
                if let Some(again) = again.take() {
                    self.look();
                    loads.extend(self.rollouts(again).into_iter().map(load));
                    self.retire();
                    self.status.begun();
                }
                self.open_or_close();
                tokio::select! {
                    // The same each time, whatever comes at once.
                    biased;
                    changed = self.supply.changed() => {
                        if changed == Again::InAnyCase {
                            self.images.again();
                        }
                        again = Some(changed);
                    }
                    () = self.values.changed() => again = Some(Again::OnceChanged),
                    () = self.images.changed() => again = Some(Again::OnceChanged),
                    () = self.asking.changed() => {
                        self.heed_approvals();
                        again = Some(Again::OnceChanged);
                    }
                    () = self.environment.swapped.notified() => self.want_values(),
                    () = until(self.again_at) => {
                        self.again_at = None;
                        again = Some(Again::OnceChanged);
                    }
                    Some(loaded) = loads.next() => again = self.place(loaded),
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = keep => {}
        }
        while self.tasks.join_next().await.is_some() {}
    }

    /// Reads all manifests.
    fn look(&mut self) {
        self.end_above();
        // What files say is read here, and others go on meanwhile.
        let files = aside(|| self.supply.manifests(&self.operators));
        let files = self.asking.heard(files);
        let Wanted { operators, problems } = Wanted::after(&self.operators, &files);
        self.warn_of_risks(&operators);
        self.operators = operators;
        let (names, files): (BTreeSet<_>, BTreeSet<_>) =
            self.operators.iter().map(|operator| (&operator.name, operator.origin.file())).unzip();
        self.said.retain(|name, _| names.contains(name));
        let goes_on = |file: &Path| files.contains(file);
        let bad = problems.into_iter().map(|(file, problem)| {
            let manifest = BadManifest { goes_on: goes_on(&file), problem };
            (file, manifest)
        });
        self.status.manifests(bad.collect());
        self.cap();
        self.supply.want(&self.operators);
        self.want_values();
        self.images.want(plan::images(&self.operators), |asked| self.values.known(asked));
        self.leaving.retain(|left| !left.ended.is_cancelled());
        // A version that runs may never become what is declared.
        let running = self.controllers.values().map(|running| running.handle.field_managers());
        let leaving = self.leaving.iter().map(|left| left.managers.clone());
        let in_use: BTreeSet<_> = running.chain(leaving).flatten().collect();
        managers::learn(&self.operators, in_use.iter().map(|name| &**name), &self.environment);
    }

    /// Returns what is to be loaded: all that is not in force of the operators that have changed since they were tried.
    fn rollouts(&mut self, again: Again) -> Vec<Rollout> {
        let mut rollouts = Vec::new();
        for operator in &self.operators {
            let in_force = |unit: &Unit| self.in_force.get(unit).map(|version| &version.attempt);
            // What is approved is awaited as values are.
            let is_awaited = self.asking.is_awaited(operator, self.said_in_force(&operator.name));
            let read = |plugin: &Plugin| given(&operator.name, plugin, |asked| self.values.known(asked));
            let values = |plugin: &Plugin| if is_awaited { Given::Unread } else { read(plugin) };
            let content = |component: &Source| match component {
                Source::File(path) => self.supply.content(path),
                Source::Registry(image) => self.images.content(&operator.name, image),
            };
            let attempts = plan::attempts(operator, content, values, in_force);
            let tried = self.tried.get(&operator.name).filter(|_| again == Again::OnceChanged);
            let loading = self.loading.get_mut(&operator.name);
            match (plan::next(&attempts, tried, loading.as_ref().map(|loading| &loading.attempts)), loading) {
                (Next::Wait { superseded }, Some(loading)) => {
                    loading.look_again(superseded);
                    continue;
                }
                (Next::Await { superseded }, loading) => {
                    if let Some(loading) = loading {
                        loading.look_again(superseded);
                    }
                    for (unit, attempt) in &attempts {
                        self.status.loading(unit, &attempt.plugin, attempt.controllers.keys());
                    }
                    continue;
                }
                (Next::Nothing, None) => {
                    // What was awaited meanwhile is not wanted any more.
                    for (unit, attempt) in &attempts {
                        self.status.stays(unit, attempt.plugin.component.as_ref());
                    }
                    continue;
                }
                (Next::Nothing | Next::Wait { .. }, _) => continue,
                (Next::Load, _) => {}
            }
            self.tried.insert(Arc::clone(&operator.name), attempts.clone());
            let changes: Vec<_> =
                attempts.into_iter().filter_map(|(unit, attempt)| self.change(unit, attempt)).collect();
            if changes.is_empty() {
                self.status.ask(&operator.name, None);
            } else {
                let attempts = changes.iter().map(|change| (change.unit.clone(), change.attempt.clone()));
                let superseded = CancellationToken::new();
                let loading = Loading { again: false, attempts: attempts.collect(), superseded: superseded.clone() };
                self.loading.insert(Arc::clone(&operator.name), loading);
                rollouts.push(Rollout {
                    operator: operator.clone(),
                    changes,
                    loader: self.supply.loader(again),
                    drain: self.environment.drain,
                    superseded,
                    judge: Judge::of(operator, &self.environment),
                    runtime: self.environment.workers.runtime(),
                });
            }
        }
        self.end_loading_of_gone();
        rollouts
    }

    /// Returns what a plugin is to become; none if it is that already.
    fn change(&self, unit: Unit, attempt: Attempt) -> Option<Change> {
        let in_force = self.in_force.get(&unit);
        if in_force.is_some_and(|version| version.attempt == attempt) {
            // Also when it was to be something else meanwhile, which was refused.
            self.status.settled(&unit);
            return None;
        }
        let controllers = attempt.controllers.keys();
        self.status.loading(&unit, &attempt.plugin, controllers);
        let before = in_force.and_then(|version| version.before.clone());
        // The one in force keeps its bound until there is another.
        let of = in_force.map_or(&attempt, |version| &version.attempt);
        let cpu = of.plugin.limits.cpu;
        Some(Change {
            writes: in_force.map(|version| version.plugin.writes().clone()),
            before,
            account: self.environment.workers.account(&unit.to_string(), cpu),
            unit,
            attempt,
        })
    }

    /// Ends the loading of operators that no manifest declares any more: others may wait for their turn.
    fn end_loading_of_gone(&self) {
        let declared = |name: &str| self.operators.iter().any(|o| *o.name == *name);
        for (_, loading) in self.loading.iter().filter(|(name, _)| !declared(name)) {
            loading.superseded.cancel();
        }
    }

    /// Puts in place what was loaded for an operator: all of it, or nothing if something that runs would break. Says whether
    /// there is something to look at again.
    fn place(&mut self, loaded: Loaded) -> Option<Again> {
        let Loaded { operator: declared, units, _loader } = loaded;
        let operator = Arc::clone(&declared.name);
        let loading = self.loading.remove(&operator);
        let again = loading.is_some_and(|loading| loading.again);
        let again = again.then_some(Again::OnceChanged);
        let Some(units) = units else {
            // Although it was tried, it may be wanted after all.
            self.tried.remove(&operator);
            return again;
        };
        let units = self.with_safe_finalizers(&operator, units);
        let mut culprit = None;
        for (unit, attempt, loaded) in &units {
            let Err(refusal) = loaded else { continue };
            let goes_on = self.in_force.contains_key(unit);
            self.status.refused(unit, refusal, goes_on);
            if let Some(wait) = refusal.again_in() {
                self.tried.remove(&operator);
                self.again_at.get_or_insert(Instant::now() + wait);
            }
            if refusal.step == "read" && matches!(attempt.plugin.component, Some(Source::Registry(_))) {
                // It is pulled again, and is the same then.
                self.tried.remove(&operator);
            }
            if goes_on || self.runs_any(attempt) {
                culprit = Some(unit.plugin.clone());
            }
        }
        if let Some(culprit) = culprit {
            for (unit, _, _) in units.iter().filter(|(_, _, loaded)| loaded.is_ok()) {
                self.status.held_back(unit, &culprit);
            }
        } else {
            match self.judge(&declared, &units) {
                Judged { asked: Some(asked), .. } => self.have_wait(&operator, asked, &units),
                Judged { asked: None, change } => {
                    self.put_all(&operator, units);
                    self.tell_change(&operator, change);
                }
            }
        }
        again
    }

    fn put_all(&mut self, operator: &Arc<str>, units: Vec<Outcome>) {
        self.stop_unwanted_of(operator);
        // Nothing is waited for: all runs that begin from here on see all of it.
        for (unit, attempt, loaded) in units {
            if let Ok(plugin) = loaded {
                self.put(unit, attempt, plugin);
            }
        }
        self.retire();
    }

    fn put(&mut self, unit: Unit, attempt: Attempt, plugin: Arc<dyn Component>) {
        self.said.insert(Arc::clone(&unit.operator), attempt.on_new_version);
        if let Some(now) = self.in_force.get_mut(&unit)
            && now.plugin.digest() == plugin.digest()
            && now.attempt.is_declared_as(&attempt)
        {
            // Only the file is another, with the same in it.
            now.attempt.component = attempt.component;
            self.status.settled(&unit);
            return;
        }
        let before = self.in_force.remove(&unit);
        let cpu = attempt.plugin.limits.cpu;
        let values = attempt.values.all();
        for (name, spec) in &attempt.controllers {
            let declared = Declared {
                operator: Arc::clone(&unit.operator),
                spec: spec.clone(),
                plugin: attempt.plugin.clone(),
                guest: Arc::clone(&plugin) as _,
                component: plugin.digest().into(),
                values: values.clone(),
                account: self.environment.workers.account(&unit.to_string(), cpu),
                others: self.others(spec),
            };
            match self.controllers.get_mut(name) {
                Some(running) => {
                    running.operator = Arc::clone(&unit.operator);
                    running.handle.change(declared, &self.environment);
                }
                None => self.start(&unit.operator, declared),
            }
        }
        let component = attempt.plugin.component.as_ref();
        self.status.placed(&unit, &plugin, component, attempt.controllers.keys());
        let before = before.map(|version| version.plugin);
        if let Some(before) = &before {
            before.retire();
        }
        let version = Version { attempt, plugin, before: before.map(|before| before.drain()) };
        self.in_force.insert(unit, version);
    }

    /// Returns the other clusters that a controller uses.
    fn others(&self, spec: &Controller) -> BTreeMap<Arc<str>, Arc<Other>> {
        let remotes = spec.remotes.iter();
        remotes.map(|(name, remote)| (Arc::clone(name), self.environment.clusters.of(remote))).collect()
    }

    /// Starts a controller, once those that its operator has stopped have ended.
    fn start(&mut self, operator: &Arc<str>, declared: Declared) {
        let name = Arc::clone(&declared.spec.name);
        self.leaving.retain(|left| !left.ended.is_cancelled());
        let before = self.leaving.iter().filter(|left| left.operator == *operator || left.name == name);
        let before: Vec<_> = before.map(|left| left.ended.clone()).collect();
        let handle = Arc::new(Handle::new(declared, &self.environment));
        self.status.started(&name, &handle);
        let (stop, ended) = (self.stop.child_token(), CancellationToken::new());
        let span = tracing::info_span!("controller", controller = %name);
        let run = {
            let (handle, environment) = (Arc::clone(&handle), Arc::clone(&self.environment));
            // However it ends.
            let (stop, ended) = (stop.clone(), ended.clone().drop_guard());
            async move {
                join_all(before.iter().map(CancellationToken::cancelled)).await;
                controller::run(handle, environment, stop).await;
                drop(ended);
            }
        };
        while self.tasks.try_join_next().is_some() {}
        let runtime = self.environment.workers.runtime();
        self.tasks.spawn_on(run.instrument(span), &runtime);
        let running = Running { operator: Arc::clone(operator), handle, stop, ended };
        self.controllers.insert(name, running);
    }

    fn runs_any(&self, attempt: &Attempt) -> bool {
        let mut names = attempt.controllers.keys();
        names.any(|name| self.controllers.contains_key(name))
    }
}

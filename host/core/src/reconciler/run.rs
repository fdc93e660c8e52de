//! One run: the facts from its start, the values that its calls keep for later calls, and whether the API server was
//! away.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::controller::Controller;
use super::memos::Memos;
use super::outcome::Manner;
use crate::budget::Budget;
use crate::cluster::{self, Cluster, Write};
use crate::dependent::ownership::Mark;
use crate::guest::{ConditionResult, ConditionRole, Context, DesiredSet, RunInfo, WorkflowResult};
use crate::object::{self, Gvk, Object, ObjectRef, Scope};
use crate::queue;
use crate::source::Doubt;
use crate::workflow::Outcome;
use crate::writes;

mod wants;

use wants::Wants;

/// A run.
pub(super) struct Run {
    me: Weak<Self>,
    /// The controller.
    pub(crate) controller: Arc<Controller>,
    /// The primary, as the run received it.
    pub(crate) primary: Object,
    pub(super) info: RunInfo,
    pub(super) requests: AtomicU32,
    /// The objects that were read from the API server because a source had forgotten them.
    pub(super) recalled: AtomicU32,
    /// The work on documents that the run may still do.
    pub(crate) budget: Mutex<Budget>,
    /// True if the API server was away at a request of this run, or has not shown what was written.
    outage: AtomicBool,
    /// True if that was more than requests at which it has failed itself.
    away: AtomicBool,
    /// How long it asked to be left alone then, at the longest.
    left_alone: Mutex<Option<Duration>>,
    /// When what it does now is given up, if that is known.
    pub(super) until: Mutex<Option<Instant>>,
    /// True if the guest has gone while it waited.
    pub(super) asker_gone: AtomicBool,
    pub(super) kept: Mutex<Kept>,
}

/// The values that the calls of a run keep for later calls.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) memos: Memos,
    pub(super) results: HashMap<Option<String>, WorkflowResult>,
    desired: HashMap<Arc<str>, Arc<str>>,
    sets: HashMap<Arc<str>, Arc<DesiredSet>>,
    keys: HashMap<Arc<str>, ObjectRef>,
    /// The objects that dependents want.
    wants: Wants,
    /// The ids of the things outside of the cluster that dependents mean.
    things: HashMap<Arc<str>, Arc<str>>,
    /// What the last visit has found of each node.
    visits: HashMap<Arc<str>, Visited>,
    /// The dependents that are not put right yet, and until when (`LG-1`).
    held: HashMap<Arc<str>, Instant>,
    tree: Option<Arc<Value>>,
    /// The objects of dependents that templates have looked at, since the last visit of each.
    found: Map<String, Value>,
}

/// What a visit has found.
#[derive(Clone, Copy, Default)]
struct Visited {
    ready: bool,
    inactive: bool,
    /// Whether it is wanted; `None` if the visit has failed.
    wanted: Option<bool>,
}

impl Run {
    pub(crate) fn new(controller: Arc<Controller>, primary: Object, info: RunInfo) -> Arc<Self> {
        let budget = controller.budget();
        let make = |me: &Weak<Self>| Self {
            me: Weak::clone(me),
            controller,
            primary,
            info,
            requests: AtomicU32::new(0),
            recalled: AtomicU32::new(0),
            budget: Mutex::new(budget),
            outage: AtomicBool::new(false),
            away: AtomicBool::new(false),
            left_alone: Mutex::default(),
            until: Mutex::default(),
            asker_gone: AtomicBool::new(false),
            kept: Mutex::default(),
        };
        Arc::new_cyclic(make)
    }

    /// Returns this run as the context of a session.
    pub(crate) fn shared(&self) -> Arc<dyn Context> {
        #[expect(clippy::expect_used, reason = "made by `new` alone, in an Arc that whoever calls this has")]
        let run: Arc<Self> = self.me.upgrade().expect("a run that is in use is alive");
        run
    }

    /// Does what is given up then: the calls that it makes are told so.
    pub(super) async fn within<T>(&self, until: Instant, doing: impl Future<Output = T>) -> T {
        let _within = Within::begin(self, until);
        doing.await
    }

    /// False if the primary has been made again meanwhile: what is outside of the cluster by its name is not this run's any more.
    pub(super) fn is_current(&self) -> bool {
        let uid = &self.primary.header().uid;
        self.controller.primaries.get(self.primary.key()).is_none_or(|now| now.header().uid == *uid)
    }

    /// Takes in that it has ended well: a poll finds all that it has written outside of the cluster from now on (`XC-5`).
    pub(super) fn release(&self) {
        for source in self.controller.externals.values() {
            source.release(self.primary.key(), Instant::now());
        }
    }

    /// Returns the primary as a tree, read once per run.
    pub(crate) fn primary_tree(&self) -> Result<Arc<Value>, object::Error> {
        if let Some(tree) = &self.kept.lock().tree {
            return Ok(Arc::clone(tree));
        }
        let tree = Arc::new(self.primary.tree(&mut self.budget.lock())?);
        self.kept.lock().tree = Some(Arc::clone(&tree));
        Ok(tree)
    }

    /// Waits for an answer of the API server, and remembers an outage: also if the caller's time is up before the
    /// answer comes.
    pub(crate) async fn asked<T>(
        &self,
        answer: impl Future<Output = Result<T, cluster::Error>>,
    ) -> Result<T, cluster::Error> {
        let mut waiting = Waiting { run: self, answered: false };
        let answer = answer.await;
        waiting.answered = true;
        if let Err(error) = &answer
            && error.is_outage()
        {
            self.outage.store(true, Ordering::Relaxed);
            self.away.fetch_or(!error.is_fault(), Ordering::Relaxed);
            let mut left_alone = self.left_alone.lock();
            *left_alone = error.retry_after.max(*left_alone);
        }
        answer
    }

    /// Returns how long the API server asks to be left alone.
    pub(super) fn left_alone(&self) -> Option<Duration> {
        *self.left_alone.lock()
    }

    /// Remembers that the API server was away when something was needed of it.
    pub(super) fn missed_server(&self) {
        self.outage.store(true, Ordering::Relaxed);
        self.away.store(true, Ordering::Relaxed);
    }

    /// Returns true if the API server was there all the time, and has failed at requests of this run.
    pub(super) fn met_faults(&self) -> bool {
        self.outage.load(Ordering::Relaxed) && !self.away.load(Ordering::Relaxed)
    }

    /// Takes in that something is not known: while it is what was just written, the run fails for that, and not by its component.
    pub(super) fn doubts(&self, doubt: &Doubt) {
        if doubt.is_of_own_write() {
            self.missed_server();
        }
    }

    /// Returns the context for writes of the guest.
    pub(super) fn write_context(&self) -> writes::WriteContext<'_> {
        writes::WriteContext { run: Some(self), ..self.controller.write_context(self, &self.budget) }
    }

    /// Returns the manner in which the controller writes to the primary.
    pub(super) fn manner(&self) -> Manner {
        self.controller.manner(&self.primary)
    }

    /// Returns the kind of failure if the guest fails: an outage if the API server was away, as the guest is then not
    /// the cause.
    pub(crate) fn sort(&self) -> queue::Failure {
        if self.outage.load(Ordering::Relaxed) { queue::Failure::Outage } else { queue::Failure::Unhandled }
    }

    /// Returns the answer of `desired` from earlier in this run (`CX-3`).
    pub(crate) fn desired(&self, name: &str) -> Option<Arc<str>> {
        self.kept.lock().desired.get(name).cloned()
    }

    pub(crate) fn keep_desired(&self, name: &Arc<str>, answer: &Arc<str>) {
        self.kept.lock().desired.insert(Arc::clone(name), Arc::clone(answer));
    }

    /// Returns the answer of `desired-set` from earlier in this run (`CX-3`).
    pub(crate) fn desired_set(&self, name: &str) -> Option<Arc<DesiredSet>> {
        self.kept.lock().sets.get(name).cloned()
    }

    pub(crate) fn keep_desired_set(&self, name: &Arc<str>, answer: &Arc<DesiredSet>) {
        self.kept.lock().sets.insert(Arc::clone(name), Arc::clone(answer));
    }

    /// Returns the mark of the objects that a dependent makes in this run.
    pub(crate) fn mark(&self, dependent: &str) -> Mark {
        let controller = &self.controller;
        let made_by = (&*controller.operator, &*controller.spec.name, dependent);
        Mark::new(made_by, &self.primary, &controller.spec.primary)
    }

    /// Returns the key of a dependent's object, if this run has found it out.
    pub(super) fn kept_key(&self, name: &str) -> Option<ObjectRef> {
        self.kept.lock().keys.get(name).cloned()
    }

    /// Returns the key of a dependent's object, if this run has found it out, or an earlier one has left a verdict on
    /// it.
    pub(crate) fn known_key(&self, name: &str) -> Option<ObjectRef> {
        self.kept_key(name).or_else(|| self.controller.verdicts.verdict(&self.primary, name).map(|verdict| verdict.key))
    }

    pub(crate) fn keep_key(&self, name: &Arc<str>, key: &ObjectRef) {
        self.kept.lock().keys.insert(Arc::clone(name), key.clone());
    }

    /// Takes in that a dependent wants an object.
    ///
    /// # Errors
    /// The other one that wants it in this run.
    pub(crate) fn want(&self, gvk: &Gvk, key: &ObjectRef, name: &Arc<str>) -> Result<(), Arc<str>> {
        self.kept.lock().wants.take(gvk, key, name)
    }

    /// Returns the dependent that wants an object in this run.
    pub(crate) fn wanted_by(&self, gvk: &Gvk, key: &ObjectRef) -> Option<Arc<str>> {
        self.kept.lock().wants.by(gvk, key)
    }

    /// Takes in that a dependent is visited: what it wanted on a visit before does not count any more.
    pub(crate) fn begin_visit(&self, gvk: &Gvk, name: &str) {
        let kept = &mut *self.kept.lock();
        if kept.visits.contains_key(name) {
            kept.wants.release(gvk, name);
        }
    }

    /// Returns the id of the thing outside of the cluster that a dependent means, if this run has found it out.
    pub(crate) fn kept_thing(&self, name: &str) -> Option<Arc<str>> {
        self.kept.lock().things.get(name).cloned()
    }

    pub(crate) fn keep_thing(&self, name: &Arc<str>, id: &Arc<str>) {
        self.kept.lock().things.insert(Arc::clone(name), Arc::clone(id));
    }

    /// Remembers what a visit has found.
    pub(crate) fn keep_visit(&self, name: &Arc<str>, outcome: &Outcome) {
        let unmet =
            |(role, result): &(ConditionRole, ConditionResult)| *role == ConditionRole::Activation && !result.met;
        let (ready, conditions) = match outcome {
            Outcome::Reconciled { ready, conditions, .. } => (*ready, conditions),
            Outcome::Inactive { conditions }
            | Outcome::Unwanted { conditions }
            | Outcome::Deleted { conditions, .. }
            | Outcome::Failed { conditions, .. } => (false, conditions),
        };
        let wanted = match outcome {
            Outcome::Reconciled { .. } => Some(true),
            Outcome::Inactive { .. } | Outcome::Unwanted { .. } | Outcome::Deleted { .. } => Some(false),
            Outcome::Failed { .. } => None,
        };
        let visited = Visited { ready, inactive: conditions.iter().any(unmet), wanted };
        let kept = &mut self.kept.lock();
        kept.visits.insert(Arc::clone(name), visited);
        kept.found.remove(&**name);
    }

    /// Returns true if what there is of a dependent has been looked up.
    pub(super) fn has_found(&self, name: &str) -> bool {
        self.kept.lock().found.contains_key(name)
    }

    /// Takes what there is of dependents, by name, for one use, if all of it has been looked up.
    pub(super) fn take_found(&self, names: &[&Arc<str>]) -> Option<Value> {
        let found = &mut self.kept.lock().found;
        let all = names.iter().all(|name| found.contains_key(&***name));
        all.then(|| names.iter().filter_map(|name| found.remove_entry(&***name)).collect::<Map<_, _>>().into())
    }

    /// Keeps what there is of dependents, by name.
    pub(super) fn keep_found(&self, found: Value) {
        if let Value::Object(found) = found {
            self.kept.lock().found.extend(found);
        }
    }

    /// Forgets what there is of dependents: others than workflows may have changed it.
    pub(super) fn forget_found(&self) {
        self.kept.lock().found.clear();
    }

    /// Returns true if a dependent was found to be ready.
    pub(crate) fn is_ready(&self, name: &str) -> bool {
        self.kept.lock().visits.get(name).is_some_and(|visited| visited.ready)
    }

    /// Returns true if a visit has found out whether a dependent is wanted.
    pub(crate) fn is_decided(&self, name: &str) -> bool {
        self.kept.lock().visits.get(name).is_some_and(|visited| visited.wanted.is_some())
    }

    /// Returns true if a dependent was found not to be wanted, so that nothing is that depends on it.
    pub(crate) fn is_unwanted(&self, name: &str) -> bool {
        self.kept.lock().visits.get(name).is_some_and(|visited| visited.wanted == Some(false))
    }

    /// Returns true if a dependent was not found to be inactive, so that what there is of it may not even be watched.
    pub(crate) fn is_active(&self, name: &str) -> bool {
        self.kept.lock().visits.get(name).is_none_or(|visited| !visited.inactive)
    }

    /// Takes in that a dependent is not put right until then.
    pub(crate) fn hold(&self, name: &Arc<str>, until: Instant) {
        let held = &mut self.kept.lock().held;
        held.entry(Arc::clone(name)).and_modify(|known| *known = until.min(*known)).or_insert(until);
    }

    /// Returns true if a dependent is not put right yet.
    pub(crate) fn holds(&self, name: &str) -> bool {
        self.kept.lock().held.contains_key(name)
    }

    /// Returns the dependents of the managed workflow that are not put right yet.
    pub(super) fn held(&self) -> Vec<Arc<str>> {
        let managed = &self.controller.spec.workflow.dependents;
        self.kept.lock().held.keys().filter(|name| managed.contains_key(*name)).cloned().collect()
    }

    /// Returns when something of it that others keep changing has to be looked at again: it may be put right then, or they have settled.
    pub(super) fn looks_again(&self, now: Instant) -> Option<Instant> {
        let held = self.kept.lock().held.values().min().copied();
        let told = self.controller.spec.keeps_conditions();
        let settled = || self.controller.verdicts.contested(&self.primary, now).into_iter().map(|(.., at)| at).min();
        held.or_else(|| if told { settled() } else { None })
    }

    pub(crate) fn keep_result(&self, name: Option<String>, result: WorkflowResult) {
        self.kept.lock().results.insert(name, result);
    }
}

/// A request that waits for its answer. If the answer does not come, the run remembers an outage; unless nobody waits for it any more.
struct Waiting<'a> {
    run: &'a Run,
    answered: bool,
}

/// While a run does what is given up at some time.
struct Within<'a> {
    run: &'a Run,
    /// When that around it is given up.
    before: Option<Instant>,
}

impl<'a> Within<'a> {
    fn begin(run: &'a Run, until: Instant) -> Self {
        let mut now = run.until.lock();
        let before = *now;
        *now = Some(before.map_or(until, |before| before.min(until)));
        Self { run, before }
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        *self.run.until.lock() = self.before;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.answered && !self.run.asker_gone.load(Ordering::Relaxed) {
            self.run.missed_server();
        }
    }
}

/// The API server, as calls of the guest use it.
impl Cluster for Run {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, cluster::Error>> {
        self.asked(self.controller.cluster.write(write)).boxed()
    }

    fn dry_run(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, cluster::Error>> {
        self.asked(self.controller.cluster.dry_run(write)).boxed()
    }

    fn get<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, cluster::Error>> {
        self.asked(self.controller.cluster.get(gvk, key)).boxed()
    }

    fn serves<'a>(&'a self, gvk: &'a Gvk) -> BoxFuture<'a, Result<bool, cluster::Error>> {
        self.asked(self.controller.cluster.serves(gvk)).boxed()
    }

    fn scope(&self, gvk: &Gvk) -> Option<Scope> {
        self.controller.cluster.scope(gvk)
    }

    fn is_down(&self) -> bool {
        self.controller.cluster.is_down()
    }
}

//! One run: what is known from its start, and what its calls leave for one another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;

use super::controller::Controller;
use super::memos::Memos;
use crate::budget::Budget;
use crate::cluster::{self, Cluster, Write};
use crate::guest::{Context, RunInfo, WorkflowResult};
use crate::object::{self, Gvk, Object, ObjectRef, Scope};
use crate::queue;
use crate::writes;

/// A run.
pub(super) struct Run {
    me: Weak<Self>,
    /// The controller.
    pub(crate) controller: Arc<Controller>,
    /// The primary, as the run received it.
    pub(crate) primary: Object,
    pub(super) info: RunInfo,
    pub(super) requests: AtomicU32,
    /// What the run may still spend on documents.
    pub(crate) budget: Mutex<Budget>,
    /// Whether the API server was away when it was asked for something in this run.
    outage: AtomicBool,
    pub(super) kept: Mutex<Kept>,
}

/// What the calls of a run leave for one another.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) memos: Memos,
    pub(super) results: HashMap<Option<String>, WorkflowResult>,
    desired: HashMap<Arc<str>, Arc<str>>,
    keys: HashMap<Arc<str>, ObjectRef>,
    tree: Option<Arc<Value>>,
}

impl Run {
    pub(crate) fn new(controller: Arc<Controller>, primary: Object, info: RunInfo) -> Arc<Self> {
        let budget = match controller.guest.holding() {
            Some(holding) => Budget::borrowing(Box::new(holding)),
            None => Budget::of_run(),
        };
        let make = |me: &Weak<Self>| Self {
            me: Weak::clone(me),
            controller,
            primary,
            info,
            requests: AtomicU32::new(0),
            budget: Mutex::new(budget),
            outage: AtomicBool::new(false),
            kept: Mutex::default(),
        };
        Arc::new_cyclic(make)
    }

    /// Returns this run as a session holds it.
    pub(crate) fn shared(&self) -> Arc<dyn Context> {
        #[expect(clippy::expect_used, reason = "made by `new` alone, in an Arc that whoever calls this has")]
        let run: Arc<Self> = self.me.upgrade().expect("a run that is in use is alive");
        run
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

    /// Waits for an answer of the API server, and remembers if it is away; also if the caller's time is up before the answer
    /// comes.
    pub(crate) async fn asked<T>(
        &self,
        answer: impl Future<Output = Result<T, cluster::Error>>,
    ) -> Result<T, cluster::Error> {
        let mut waiting = Waiting { outage: &self.outage, answered: false };
        let answer = answer.await;
        waiting.answered = !matches!(&answer, Err(error) if error.is_outage());
        answer
    }

    /// Returns what writes of the guest need to know.
    pub(super) fn write_context(&self) -> writes::WriteContext<'_> {
        self.controller.write_context(self, &self.budget)
    }

    /// Returns which sort of failure it is if the run fails for what the guest says: none of its own if the API server was
    /// away.
    pub(crate) fn sort(&self) -> queue::Failure {
        if self.outage.load(Ordering::Relaxed) { queue::Failure::Outage } else { queue::Failure::Unhandled }
    }

    /// Returns what `desired` answered earlier in this run (`CX-3`).
    pub(crate) fn desired(&self, name: &str) -> Option<Arc<str>> {
        self.kept.lock().desired.get(name).cloned()
    }

    pub(crate) fn keep_desired(&self, name: &Arc<str>, answer: &Arc<str>) {
        self.kept.lock().desired.insert(Arc::clone(name), Arc::clone(answer));
    }

    /// Returns the name of a dependent's object, if this run has found it out.
    pub(crate) fn known_key(&self, name: &str) -> Option<ObjectRef> {
        let known = self.kept.lock().keys.get(name).cloned();
        known.or_else(|| self.controller.verdicts.verdict(&self.primary, name).map(|verdict| verdict.key))
    }

    pub(crate) fn keep_key(&self, name: &Arc<str>, key: &ObjectRef) {
        self.kept.lock().keys.insert(Arc::clone(name), key.clone());
    }

    pub(crate) fn keep_result(&self, name: Option<String>, result: WorkflowResult) {
        self.kept.lock().results.insert(name, result);
    }
}

/// Waits for an answer; one that does not come, or says that there is an outage, is remembered.
struct Waiting<'a> {
    outage: &'a AtomicBool,
    answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.outage.store(true, Ordering::Relaxed);
        }
    }
}

/// The API server, as calls of the guest have it.
impl Cluster for Run {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, cluster::Error>> {
        self.asked(self.controller.cluster.write(write)).boxed()
    }

    fn get<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, cluster::Error>> {
        self.asked(self.controller.cluster.get(gvk, key)).boxed()
    }

    fn look<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, cluster::Error>> {
        self.asked(self.controller.cluster.look(gvk, key)).boxed()
    }

    fn scope(&self, gvk: &Gvk) -> Option<Scope> {
        self.controller.cluster.scope(gvk)
    }
}

//! One execution, top to bottom: read the primary again, decide, run the workflow, call the guest, write, and say how it ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use crate::budget::{Budget, Exceeded};
use crate::cluster::{self, Cluster, Reason};
use crate::guest::{
    CallReason, Cause, DeleteControl, ErrorControl, Event, Failure, FailureInfo, FailureOrigin, Guest, NextStep,
    NodeFailure, RetryInfo, RunInfo, Session, UpdateControl,
};
use crate::manifest;
use crate::object::{Object, Version};
use crate::operations::{self, Desk};
use crate::permission::Permissions;
use crate::queue::{self, Finished, Queue, Ticket};
use crate::source::{Listener, Source, Within};
use crate::text;
use crate::workflow::Mode;

pub mod context;
pub mod decision;
pub mod finalizer;
pub mod mask;
pub mod memory;
pub mod memos;
pub mod notices;
pub mod outcome;
mod page;
pub mod visit;

use context::Context;
use decision::{Decision, Finalizers};
use memory::{Memory, Verdict};
use outcome::Manner;
use visit::Flow;

/// What the runs of one controller need, put together once.
pub struct Controller {
    /// The operator that declares it.
    pub operator: Arc<str>,
    /// What the manifest says.
    pub spec: manifest::Controller,
    /// What its plugin may use up.
    pub limits: manifest::Limits,
    /// The primaries.
    pub primaries: Arc<Source>,
    /// The secondaries, by the name of the source or of the dependent; a shared source stands under both.
    pub secondaries: BTreeMap<Arc<str>, Arc<Source>>,
    /// The managed workflow.
    pub workflow: Flow,
    /// Workflows that run when called by name.
    pub standalone: BTreeMap<Arc<str>, Flow>,
    /// The finalizer, from the manifest or made of the kind's full name (`LC-3`).
    pub finalizer: Arc<str>,
    /// The plugin.
    pub guest: Arc<dyn Guest>,
    /// What the plugin may do.
    pub permissions: Permissions,
    /// The API server.
    pub cluster: Arc<dyn Cluster>,
    /// Is told of held-back events.
    pub tell: Listener,
    /// The queue.
    pub queue: Queue,
    /// What is remembered from one run to the next.
    pub memory: Arc<Memory>,
    /// Which of its controllers over time this is: its runs trust no verdict of another.
    pub edition: u64,
    /// What `context.settings` answers.
    pub settings: Value,
    /// Takes Kubernetes Events about a primary.
    pub events: Events,
}

/// Takes Kubernetes Events about a primary; never waits.
pub type Events = Box<dyn Fn(&Object, Event) + Send + Sync>;

/// How an execution ended: what the queue is told, and what the log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What the queue is told.
    pub finished: Finished,
    /// The text of the failure; none if it did not fail.
    pub error: Option<String>,
    /// What its documents cost beyond what a run may spend on them; such a run need not have failed.
    pub exceeded: Option<Exceeded>,
}

/// How a run failed, before it is decided what that means.
#[derive(Debug)]
struct Failed {
    origin: FailureOrigin,
    message: String,
    refused: Option<CallReason>,
    dependents: Vec<(String, NodeFailure)>,
    sort: queue::Failure,
}

/// What became of an object that is written until there is no conflict.
enum Settled {
    /// There was nothing to write: it was read, and is like this.
    Read(Object),
    /// It was written, and is like this.
    Wrote(Object),
    /// It is gone.
    Gone,
}

/// Runs one execution, from reading the primary to how it ended.
pub async fn execute(controller: Arc<Controller>, ticket: &Ticket) -> Ended {
    // EP-14: the object may be newer than the event; gone means done.
    let Some(primary) = controller.primaries.get(ticket.key()) else {
        // What a cache does not show yet may be there.
        if let Err(doubt) = controller.primaries.known(Within::Object(ticket.key())) {
            return Ended::failed(doubt.to_string(), queue::Failure::Unhandled);
        }
        controller.memory.forget(ticket.key());
        return Ended::well(Finished::Gone);
    };
    let finalizers = controller.finalizers();
    let decision = finalizers.decide(primary.header());
    let left = finalizers.left(primary.header());
    match decision {
        Decision::Nothing => Ended::DONE,
        Decision::LetGo => match controller.remove_finalizers(&primary, &left).await {
            Ok(_) => {
                controller.memory.forget(primary.key());
                Ended::FINALIZER_REMOVED
            }
            Err(error) => Ended::not_removed(&error),
        },
        Decision::AddFinalizer => match controller.add_finalizer(&primary, &controller.finalizer).await {
            Ok(_) => Ended::DONE,
            Err(error) => Ended::failed(format!("adding the finalizer: {error}"), sort(&error)),
        },
        Decision::Reconcile if !left.is_empty() => {
            match controller.remove_finalizers(&primary, &left).await {
                // Who is going by now has a run of its own.
                Ok(Some(primary)) if !primary.header().deleting => run(controller, primary, ticket, decision).await,
                Ok(_) => Ended::DONE,
                Err(error) => Ended::not_removed(&error),
            }
        }
        Decision::Reconcile | Decision::Cleanup => run(controller, primary, ticket, decision).await,
    }
}

/// Has the guest do it.
async fn run(controller: Arc<Controller>, primary: Object, ticket: &Ticket, decision: Decision) -> Ended {
    let info = run_info(&controller, ticket);
    let run = Context::new(Arc::clone(&controller), primary, info);
    let session = controller.guest.open(run.shared());
    let ended = if decision == Decision::Cleanup {
        cleanup(&run, &*session).await
    } else {
        reconcile(&run, &*session, ticket).await
    };
    let exceeded = run.budget.lock().refused();
    Ended { exceeded, ..ended }
}

async fn reconcile(run: &Arc<Context>, session: &dyn Session, ticket: &Ticket) -> Ended {
    match attempt(run, session).await {
        Ok(control) => Ended::again(outcome::reschedule(control.reschedule)),
        Err(failed) => handle(run, session, failed, ticket).await,
    }
}

/// The managed workflow, the guest's `reconcile`, and the writes that it asks for.
async fn attempt(run: &Arc<Context>, session: &dyn Session) -> Result<UpdateControl, Failed> {
    let controller = &run.controller;
    if controller.workflow.is_managed() {
        visit::managed(run, session, Mode::Reconcile)
            .await
            .map_err(|failed| Failed::of_workflow(failed, run.sort()))?;
    }
    let control =
        session.reconcile(run.primary.json()).await.map_err(|failure| Failed::of_guest(failure, run.sort()))?;
    let planned = outcome::writes(&control.update, &run.primary, &controller.manner(), &mut run.budget.lock())
        .map_err(|failure| Failed::of_guest(failure, queue::Failure::Unhandled))?;
    let mut written = None;
    for mut write in planned {
        if let Some(version) = written {
            write.now_upon(version);
        }
        let done = controller.write_primary(write, &run.budget).await;
        written = done.map_err(|error| Failed::of_write(&error))?;
    }
    Ok(control)
}

/// Asks the guest what a failed run leaves behind (EC rules). In an outage it may say what the status is, but not that the run
/// is over: once the API server does its work again, the primary runs again, and so no failure is the last one.
async fn handle(run: &Arc<Context>, session: &dyn Session, failed: Failed, ticket: &Ticket) -> Ended {
    let controller = &run.controller;
    if !controller.guest.exports().error_handler {
        return Ended::failed(failed.message, failed.sort);
    }
    let outage = failed.sort == queue::Failure::Outage;
    let mut retry = ticket.retry_if_failed();
    retry.last &= !outage;
    let info = FailureInfo {
        origin: failed.origin,
        message: failed.message.clone(),
        refused: failed.refused,
        dependents: failed.dependents,
        retry,
    };
    let control = match session.handle_error(run.primary.json(), &info).await {
        Ok(control) => control,
        Err(second) => {
            tracing::warn!(error = %second.message, "the error handler failed itself");
            return Ended::failed(failed.message, failed.sort);
        }
    };
    let ErrorControl::Handled { status, next } = control else {
        return Ended::failed(failed.message, failed.sort);
    };
    if let Some(status) = status {
        write_error_status(run, status, info.retry).await;
    }
    if outage {
        return Ended::failed(failed.message, failed.sort);
    }
    tracing::info!(error = %failed.message, "the run failed, and the component has dealt with it");
    match next {
        NextStep::Retry => Ended::handled(failed.message),
        // EC-5: no retry means dealt with, as a success.
        NextStep::Stop => Ended::well(Finished::NoRetry { again: None }),
        NextStep::Reschedule(after) => Ended::well(Finished::NoRetry { again: outcome::reschedule(Some(after)) }),
    }
}

/// `EC-4`: a failure of this write never replaces the first one.
async fn write_error_status(run: &Context, status: String, retry: RetryInfo) {
    let controller = &run.controller;
    let update = crate::guest::PrimaryUpdate::Status(status);
    let planned = match outcome::writes(&update, &run.primary, &controller.manner(), &mut run.budget.lock()) {
        Ok(planned) => planned,
        Err(failure) => {
            tracing::error!(error = %failure.message, "the error handler's status can't be written");
            return;
        }
    };
    for write in planned {
        match controller.write_primary(write, &run.budget).await {
            Ok(_) => {}
            Err(error) if error.is_conflict() && !retry.last => {
                tracing::debug!(%error, "error status not written");
            }
            Err(error) if !retry.last => tracing::warn!(%error, "error status not written"),
            Err(error) => tracing::error!(%error, "error status not written"),
        }
    }
}

async fn cleanup(run: &Arc<Context>, session: &dyn Session) -> Ended {
    let controller = &run.controller;
    let cleaner = controller.guest.exports().cleaner;
    let (mut complete, mut failed) = (true, None);
    // DC-5: with explicit invocation only if there is no cleaner that would call it.
    if controller.spec.deletes_dependents() && !(controller.spec.workflow.explicit && cleaner) {
        match visit::managed(run, session, Mode::Cleanup).await {
            Ok(result) => {
                complete = result.complete;
                failed = visit::Failed::of(&result).map(|failed| Failed::of_workflow(failed, run.sort()));
            }
            Err(failed) => {
                let Failed { message, sort, .. } = Failed::of_workflow(failed, run.sort());
                return Ended::failed(message, sort);
            }
        }
    }
    let control = if cleaner { session.cleanup(run.primary.json()).await } else { Ok(DeleteControl::RemoveFinalizer) };
    match control {
        Err(failure) => Ended::failed(failure.message, run.sort()),
        Ok(DeleteControl::KeepFinalizer(after)) => Ended::again(outcome::reschedule(after)),
        // WF-9: nobody is left who would look at the result.
        Ok(DeleteControl::RemoveFinalizer) if let Some(failed) = failed => Ended::failed(failed.message, failed.sort),
        Ok(DeleteControl::RemoveFinalizer) if !complete => Ended::DONE,
        Ok(DeleteControl::RemoveFinalizer) => {
            let mut names = controller.finalizers().left(run.primary.header());
            names.push(&controller.finalizer);
            match controller.remove_finalizers(&run.primary, &names).await {
                Ok(_) => {
                    controller.memory.forget(run.primary.key());
                    Ended::FINALIZER_REMOVED
                }
                Err(error) => Ended::not_removed(&error),
            }
        }
    }
}

/// Says what an error of the API server means for the key.
fn sort(error: &cluster::Error) -> queue::Failure {
    if error.is_outage() {
        queue::Failure::Outage
    } else if error.is_conflict() {
        queue::Failure::Conflict
    } else {
        queue::Failure::Unhandled
    }
}

fn run_info(controller: &Controller, ticket: &Ticket) -> RunInfo {
    RunInfo {
        controller: Arc::clone(&controller.spec.name),
        primary: ticket.key().clone(),
        retry: ticket.retry(),
        primary_deleted: false,
        final_state_unknown: false,
    }
}

// === impl Controller ===

impl Controller {
    /// Returns the finalizer if something needs cleanup (`DI-2`).
    pub fn used_finalizer(&self) -> Option<&str> {
        let used = self.guest.exports().cleaner || self.spec.deletes_dependents();
        used.then_some(&*self.finalizer)
    }

    /// Returns how many own writes its sources still wait to see.
    pub fn own_writes(&self) -> usize {
        // One that several dependents share counts once.
        let mut sources: Vec<_> = self.secondaries.values().collect();
        sources.push(&self.primaries);
        sources.sort_by_key(|source| Arc::as_ptr(source));
        sources.dedup_by_key(|source| Arc::as_ptr(source));
        sources.iter().map(|source| source.own_writes()).sum()
    }

    /// Returns the finalizers that it heeds.
    pub fn finalizers(&self) -> Finalizers<'_> {
        Finalizers { own: self.used_finalizer(), former: &self.spec.former_finalizers }
    }

    /// Returns the hash of a document that the guest or the daemon made, for verdicts on it.
    pub(crate) fn hash(&self, document: &str) -> u64 {
        self.memory.hash(self.edition, document)
    }

    /// Returns how this controller writes to its primaries.
    pub(crate) fn manner(&self) -> Manner {
        Manner {
            gvk: self.spec.primary.clone(),
            manager: Arc::clone(&self.spec.field_manager),
            apply: self.spec.server_side_apply,
            finalizer: self.used_finalizer().map(Into::into),
        }
    }

    /// Returns what writes over this line to the API server need to know.
    pub(crate) fn desk<'a>(&'a self, cluster: &'a dyn Cluster, budget: &'a Mutex<Budget>) -> Desk<'a> {
        Desk {
            cluster,
            primaries: &self.primaries,
            secondaries: &self.secondaries,
            manager: &self.spec.field_manager,
            tell: &self.tell,
            budget,
            permissions: &self.permissions,
            declared: &self.spec.sources,
            finalizer: &self.finalizer,
        }
    }

    /// Writes to a primary unless it would change nothing; the answer is visible to the next reader at once (`UC-5`).
    /// Returns the version that was written, if anything was.
    async fn write_primary(
        &self,
        planned: outcome::Planned,
        budget: &Mutex<Budget>,
    ) -> Result<Option<Version>, cluster::Error> {
        let outcome::Planned { write, applied } = planned;
        let key = write.target.key.clone();
        let slot: Arc<str> = if write.target.subresource.is_some() { "(status)" } else { "(object)" }.into();
        let document = self.hash(&write.verb.body());
        if let (Some(applied), Some(now)) = (&applied, self.primaries.get(&key)) {
            let known = Verdict::of(document, &now);
            if self.memory.verdict(&now, &slot).as_ref() == Some(&known) {
                return Ok(None);
            }
            if operations::is_applied(
                &now,
                applied,
                &self.spec.field_manager,
                write.target.subresource.as_deref(),
                &mut budget.lock(),
            ) {
                self.memory.keep_verdict(&now, &slot, known);
                return Ok(None);
            }
        }
        let Some(object) = self.cluster.write(write).await? else {
            return Ok(None);
        };
        let version = object.version();
        let verdict = Verdict::of(document, &object);
        self.memory.keep_verdict(&object, &slot, verdict);
        self.primaries.put(object);
        Ok(Some(version))
    }

    /// Adds a finalizer to a primary and returns the primary as it is then (`FI-1`, `FI-2`).
    pub(crate) async fn add_finalizer(&self, primary: &Object, finalizer: &str) -> Result<Object, cluster::Error> {
        // Only our own is applied: an apply of another would drop what this manager has applied before.
        let apply = if self.spec.server_side_apply && *finalizer == *self.finalizer {
            finalizer::Apply::Yes
        } else {
            finalizer::Apply::No
        };
        let plan = |now: &Object| finalizer::add(now, &self.spec.primary, finalizer, &self.spec.field_manager, apply);
        Ok(match self.until_no_conflict(primary, plan).await? {
            Settled::Read(now) | Settled::Wrote(now) => {
                self.primaries.put(now.clone());
                now
            }
            Settled::Gone => primary.clone(),
        })
    }

    /// Removes finalizers, all in one write, whose event causes no run. Returns what is left of the primary (`FI-3`).
    pub(crate) async fn remove_finalizers(
        &self,
        primary: &Object,
        finalizers: &[&str],
    ) -> Result<Option<Object>, cluster::Error> {
        let window = self.primaries.begin(primary.key().clone(), |notices| (self.tell)(notices));
        let plan = |now: &Object| finalizer::remove(now, &self.spec.primary, finalizers, &self.spec.field_manager);
        let Some(now) = self.newest_with(primary, finalizers).await? else {
            return Ok(None);
        };
        Ok(match self.until_no_conflict(&now, plan).await? {
            Settled::Wrote(left) => {
                window.wrote(left.clone());
                Some(left)
            }
            // The event of this version is somebody else's, and comes.
            Settled::Read(now) => {
                self.primaries.put(now.clone());
                Some(now)
            }
            Settled::Gone => None,
        })
    }

    /// Returns the newest version of a primary; from the API server, if the caches show none of the finalizers (`FI-3`).
    /// None if it is gone.
    async fn newest_with(&self, primary: &Object, finalizers: &[&str]) -> Result<Option<Object>, cluster::Error> {
        let same = |object: &Object| object.header().uid == primary.header().uid;
        let cached = self.primaries.get(primary.key()).filter(same).unwrap_or_else(|| primary.clone());
        if finalizers.iter().any(|name| cached.header().has_finalizer(name)) {
            return Ok(Some(cached));
        }
        let live = self.cluster.get(&self.spec.primary, primary.key()).await?;
        Ok(live.filter(same))
    }

    /// Writes what `plan` makes of the newest version, up to ten times (`FI-4`).
    async fn until_no_conflict(
        &self,
        primary: &Object,
        plan: impl Fn(&Object) -> Option<cluster::Write>,
    ) -> Result<Settled, cluster::Error> {
        let mut now = primary.clone();
        let mut tries = 0;
        loop {
            let Some(write) = plan(&now) else {
                return Ok(Settled::Read(now));
            };
            tries += 1;
            match self.cluster.write(write).await {
                Ok(object) => return Ok(object.map_or(Settled::Gone, Settled::Wrote)),
                Err(error) if error.reason == Reason::Missing => return Ok(Settled::Gone),
                Err(error) if !error.is_conflict() || tries == finalizer::TRIES => {
                    return Err(error);
                }
                Err(_) => match self.cluster.get(&self.spec.primary, primary.key()).await? {
                    Some(object) if object.header().uid == primary.header().uid => now = object,
                    _ => return Ok(Settled::Gone),
                },
            }
        }
    }
}

// === impl Ended ===

impl Ended {
    /// Done, with nothing special.
    const DONE: Self = Self::well(Finished::DONE);

    /// Done, and only the deletion event is awaited.
    const FINALIZER_REMOVED: Self = Self::well(Finished::Done { finalizer_removed: true, again: None });

    fn not_removed(error: &cluster::Error) -> Self {
        Self::failed(format!("removing the finalizer: {error}"), sort(error))
    }

    const fn well(finished: Finished) -> Self {
        Self { finished, error: None, exceeded: None }
    }

    fn again(again: Option<Duration>) -> Self {
        Self::well(Finished::Done { finalizer_removed: false, again })
    }

    fn failed(error: String, sort: queue::Failure) -> Self {
        Self { finished: Finished::Failed(sort), error: Some(text::kept(error)), exceeded: None }
    }

    fn handled(error: String) -> Self {
        Self { finished: Finished::Failed(queue::Failure::Handled), error: Some(text::kept(error)), exceeded: None }
    }
}

// === impl Failed ===

impl Failed {
    fn of_guest(failure: Failure, sort: queue::Failure) -> Self {
        let origin = match failure.cause {
            Cause::Returned => FailureOrigin::Reconciler,
            Cause::Trap => FailureOrigin::Trap,
            Cause::Timeout => FailureOrigin::Timeout,
            Cause::OutOfMemory => FailureOrigin::OutOfMemory,
            Cause::Other => FailureOrigin::Other,
        };
        Self { origin, message: failure.message, refused: None, dependents: Vec::new(), sort }
    }

    fn of_write(error: &cluster::Error) -> Self {
        Self {
            origin: FailureOrigin::Update,
            message: error.message.clone(),
            refused: Some(operations::refused(error.clone()).reason),
            dependents: Vec::new(),
            sort: sort(error),
        }
    }

    fn of_workflow(failed: visit::Failed, sort: queue::Failure) -> Self {
        let sort = failed.sort(sort);
        let visit::Failed { dependents } = failed;
        let list = dependents.iter().map(|(name, failure)| format!("{name}: {}", failure.message)).collect::<Vec<_>>();
        let message = format!("the workflow failed: {}", list.join("; "));
        let message = text::kept(message);
        Self {
            origin: FailureOrigin::Workflow,
            message,
            refused: (sort == queue::Failure::Conflict).then_some(CallReason::Conflict),
            dependents,
            sort,
        }
    }
}

//! Tells what a run has found out once it has ended: by the standard conditions of its primary (SC rules), and by a Kubernetes Event if
//! it failed (ER-8).

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::controller::Controller;
use super::ended::Ended;
use super::naming;
use crate::budget::{Budget, Exceeded};
use crate::cluster::{self, Reason, Target, Verb, Write};
use crate::conditions::{Dependent, Facts, Failed, Lacks, Next, Verdict, decide, entries, with_ours};
use crate::guest::{
    ConditionRole, Event, FailureClass, FailureOrigin, NextRetry, NodeFailure, NodeResult, WorkflowResult,
};
use crate::manifest::{self, Condition};
use crate::object::{self, Object, ObjectRef};
use crate::queue::{self, Finished, Ticket};

/// How often a write that meets a conflict is sent.
const TRIES: usize = 3;

/// How many runs of a primary at whose requests the API server fails are no reason yet to tell of it.
const PATIENCE: u32 = 2;

/// The end of a run, with what its conditions follow from.
pub(super) struct End<'a> {
    /// The run's ticket.
    pub(super) ticket: &'a Ticket,
    /// True if the run was a clean-up.
    pub(super) cleanup: bool,
    /// The result of the managed workflow, if it has run.
    pub(super) result: Option<WorkflowResult>,
    /// The dependents of it that are not put right yet.
    pub(super) held: Vec<Arc<str>>,
    /// True if the API server was there all the time, and has failed at requests of the run.
    pub(super) faults: bool,
    /// When the run began.
    pub(super) began: (Timestamp, Instant),
}

/// What a run has found out about its primary.
enum Found {
    /// Nothing, or nothing that matters: its conditions stay as they are.
    Nothing,
    /// It is as it should be, as far as the workflow says nothing else.
    Success,
    /// The run has failed.
    Failure(Next),
}

/// What is known where the API server has not done what a run asked for.
#[derive(Clone, Copy)]
struct Unserved {
    /// True if it was there all the time, and has failed at requests of the run.
    faults: bool,
    /// How many runs of the primary failed for it in a row before.
    before: u32,
    /// True if it does no work for anybody.
    everybody: bool,
}

/// Why conditions could not be written.
#[derive(Debug, thiserror::Error)]
enum Unwritten {
    /// A request failed.
    #[error(transparent)]
    Refused(#[from] cluster::Error),
    /// Those that are there can't be read.
    #[error("those that are there can't be read: {0}")]
    Unread(#[from] object::Error),
    /// They are too many to be looked at.
    #[error("those that are there can't be looked at: {0}")]
    Exceeded(#[from] Exceeded),
}

impl Controller {
    /// Gives a primary the conditions that follow from how its run has ended, unless it has them. Returns how the run ends with that:
    /// what else fails does not become worse by it, and only an outage is waited for (`SC-4`).
    pub(super) async fn conclude(&self, primary: &Object, end: End<'_>, ended: Ended) -> Ended {
        let next = match ended.found(end.ticket, self.unserved(&end)) {
            Found::Nothing => return ended,
            Found::Success => None,
            Found::Failure(next) => Some(next),
        };
        let keeps = self.spec.keeps_conditions() && self.conditions.is_known_to_be().await;
        let records = next.is_some() && self.spec.events.of_failures && !ended.finished.is_handled();
        if !keeps && !records {
            return ended;
        }
        let contested = self.verdicts.contested(primary, Instant::now());
        let mut dependents = lacking(&self.spec.workflow, end.result.as_ref(), &mut self.budget());
        for (name, why, _) in &contested {
            let known =
                dependents.iter().any(|dependent| dependent.name == &**name && dependent.lacks == Lacks::Success);
            if !known && self.spec.workflow.dependents.contains_key(name) {
                dependents.retain(|dependent| dependent.name != &**name);
                dependents.push(Dependent { name, lacks: Lacks::Peace, why: Cow::Borrowed(why) });
            }
        }
        for name in &end.held {
            if dependents.iter().all(|dependent| dependent.name != &**name) {
                let why = Cow::Borrowed("it is deleted to be made anew");
                dependents.push(Dependent { name, lacks: Lacks::Readiness, why });
            }
        }
        let failed = next.map(|next| Failed {
            text: ended.error.as_deref().unwrap_or_default(),
            of_workflow: ended.origin == Some(FailureOrigin::Workflow),
            next,
        });
        let verdicts = decide(&Facts { cleanup: end.cleanup, dependents, failed });
        let written = if keeps { self.write_conditions(primary, &verdicts, end.now()).await } else { Ok(()) };
        // EP-34: where the API server fails at this, too, or is not asked for it, it is an outage for all that is known.
        let misses = ended.finished == Finished::Failed(queue::Failure::Outage)
            && (!keeps || matches!(&written, Err(Unwritten::Refused(error)) if error.is_outage()));
        if records && !misses {
            self.record(primary, &verdicts);
        }
        match written {
            Ok(()) => ended,
            Err(Unwritten::Refused(error)) if error.reason == Reason::Missing => ended,
            // As for any other write of the run: once the API server works again it runs again, and no attempt is used up.
            Err(Unwritten::Refused(error)) if error.is_outage() && ended.error.is_none() => Ended {
                exceeded: ended.exceeded,
                recalled: ended.recalled,
                ..Ended::failed(error.message, queue::Failure::Outage, FailureClass::Other).heeding(error.retry_after)
            },
            Err(error) if misses => {
                tracing::debug!(%error, "the conditions of the status are not written");
                ended
            }
            Err(error) => {
                tracing::warn!(%error, "the conditions of the status are not written");
                ended
            }
        }
    }

    /// Returns what is known where the API server has not done what a run asked for.
    fn unserved(&self, end: &End<'_>) -> Unserved {
        let End { ticket, faults, .. } = end;
        Unserved { faults: *faults, before: ticket.outages(), everybody: *faults && self.cluster.is_down() }
    }

    /// Says why a run failed by a Kubernetes Event.
    fn record(&self, primary: &Object, [.., degraded]: &[Verdict; 3]) {
        let (event, name) = naming::of(&self.spec.events, primary, failure(degraded), self.budget());
        (self.events)(primary, event, name);
    }

    async fn write_conditions(
        &self,
        primary: &Object,
        verdicts: &[Verdict; 3],
        now: Timestamp,
    ) -> Result<(), Unwritten> {
        let key = primary.key();
        let newest = match self.primaries.look(key) {
            Ok(Some(newest)) => self.whole(newest).await?,
            Ok(None) => None,
            Err(_) => self.cluster.get(&self.spec.primary, key).await?,
        };
        let Some(newest) = newest.filter(|newest| newest.header().uid == primary.header().uid) else {
            return Ok(());
        };
        let (news, status) = {
            let budget = &mut self.budget();
            let tree = newest.tree(budget)?;
            let before = tree.pointer("/status/conditions").unwrap_or(&Value::Null);
            let Some(news) = entries(before, verdicts, primary.header().generation, now, budget)? else {
                return Ok(());
            };
            let mut status = json!({ "conditions": before });
            with_ours(&mut status, &news, budget)?;
            (news, status)
        };
        let manager = self.spec.conditions_manager();
        let mut metadata = json!({ "name": &*key.name });
        if let (Some(namespace), Some(metadata)) = (&key.namespace, metadata.as_object_mut()) {
            metadata.insert("namespace".to_owned(), json!(&**namespace));
        }
        let body = json!({
            "apiVersion": self.spec.primary.api_version(),
            "kind": &*self.spec.primary.kind,
            "metadata": metadata,
            "status": { "conditions": news },
        });
        let apply = Verb::Apply { body: body.to_string(), manager: manager.clone(), force: true };
        match self.write_status(key, apply).await {
            // What is there does not fit its schema any more, so nothing can be applied to it.
            Err(error) if error.is_misfit() => {
                let upon = json!({ "resourceVersion": newest.version().to_string() });
                let body = json!({ "metadata": upon, "status": status });
                let patch = Verb::MergePatch { body: body.to_string(), manager };
                Ok(self.write_status(key, patch).await?)
            }
            done => Ok(done?),
        }
    }

    /// Writes something of the status that is the daemon's.
    async fn write_status(&self, key: &ObjectRef, verb: Verb) -> Result<(), cluster::Error> {
        let manager = self.spec.conditions_manager();
        // What names a version meets the same conflict again.
        let may_help = matches!(verb, Verb::Apply { .. });
        let own = Write::own(Target::status(self.spec.primary.clone(), key.clone()), verb);
        let write = Write { shows_secret: self.spec.status_shows_secret(), ..own };
        let mut tries = 1;
        loop {
            let window = self.primaries.begin(key.clone(), |triggers| (self.tell)(triggers));
            match self.cluster.write(write.clone()).await {
                Ok(Some(answer)) => {
                    window.answered(answer, &manager);
                    return Ok(());
                }
                Ok(None) => return Ok(()),
                Err(error) if error.is_conflict() && may_help && tries < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the Event that says why a run failed. Those with one reason are counted as one: their texts may differ each time (`ER-8`).
fn failure(degraded: &Verdict) -> Event {
    Event::warning(degraded.reason, degraded.message.clone(), String::new())
}

/// Returns the dependents of a workflow that are not as they should be.
fn lacking<'a>(
    workflow: &manifest::Workflow,
    result: Option<&'a WorkflowResult>,
    budget: &mut Budget,
) -> Vec<Dependent<'a>> {
    let nodes = result.into_iter().flat_map(|result| &result.nodes);
    nodes.filter_map(|node| lacks(workflow.node(&node.name), node, budget)).collect()
}

/// Returns what may be told of why a dependent has failed.
pub(super) fn told<'a>(spec: Option<manifest::Node<'_>>, failure: &'a NodeFailure) -> &'a str {
    // SSA-7: a refusal may quote what was refused.
    if shows_secret(spec) { "the log says why" } else { &failure.message }
}

/// Returns true if what is said of a dependent may have something of a Secret in it.
fn shows_secret(spec: Option<manifest::Node<'_>>) -> bool {
    match spec {
        None => true,
        Some(manifest::Node::Object(spec)) => spec.gvk.is_secret(),
        Some(manifest::Node::Thing(spec)) => spec.state.as_ref().is_some_and(|state| state.dependent.gvk.is_secret()),
    }
}

fn lacks<'a>(spec: Option<manifest::Node<'_>>, node: &'a NodeResult, budget: &mut Budget) -> Option<Dependent<'a>> {
    if let Some(failure) = &node.failed {
        return Some(Dependent { name: &node.name, lacks: Lacks::Success, why: told(spec, failure).into() });
    }
    let unmet = |role| node.conditions.iter().find(|(asked, answer)| *asked == role && !answer.met);
    let of = |lacks, why| Some(Dependent { name: &node.name, lacks, why });
    if unmet(ConditionRole::DeletePostcondition).is_some() {
        return of(Lacks::Deletion, Cow::Borrowed(""));
    }
    let (role, answer) = unmet(ConditionRole::ReadyPostcondition)?;
    let told = spec.is_some_and(|spec| match spec.conditions().of(*role) {
        Some(Condition::Ready(_)) => true,
        // SSA-7: what the component has seen may be a Secret.
        Some(Condition::Export(_)) => !shows_secret(Some(spec)),
        Some(Condition::Gone | Condition::CrdPresent | Condition::Cel(_)) | None => false,
    });
    let detail = answer.detail.as_deref().filter(|_| told);
    let why = detail.and_then(|detail| budget.read(detail).ok()).and_then(|why| why.as_str().map(str::to_owned));
    of(Lacks::Readiness, why.unwrap_or_default().into())
}

impl End<'_> {
    /// Returns the time of day.
    fn now(&self) -> Timestamp {
        let (time, instant) = self.began;
        time.saturating_add(instant.elapsed()).unwrap_or(time)
    }
}

impl Unserved {
    /// Returns true if that is a matter of the primary which has to be told, and no outage: the API server fails at its requests again and
    /// again, and not at everybody's (`EP-34`).
    fn lasts(self) -> bool {
        self.faults && !self.everybody && self.before >= PATIENCE
    }
}

impl Ended {
    /// Returns what the run has found out (`SC-1`).
    fn found(&self, ticket: &Ticket, unserved: Unserved) -> Found {
        let last = ticket.retry_if(self.blame.class).last || self.blame.next == NextRetry::Stop;
        let next = match last {
            true if self.origin == Some(FailureOrigin::Invalid) => Next::Corrected,
            true => Next::Exhausted,
            false => Next::Retry,
        };
        match self.finished {
            // The primary is about to go, or is gone.
            Finished::Done { finalizer_removed: true, .. } | Finished::Gone | Finished::Postponed { .. } => {
                Found::Nothing
            }
            Finished::Done { finalizer_removed: false, .. } => Found::Success,
            Finished::NoRetry { again: Some(_) } => Found::Failure(Next::Retry),
            Finished::NoRetry { again: None } => Found::Failure(Next::Stopped),
            Finished::Failed(failure) => match failure {
                queue::Failure::Outage if unserved.lasts() => Found::Failure(Next::Retry),
                queue::Failure::Outage => Found::Nothing,
                // The next try resolves it.
                queue::Failure::Conflict if !last => Found::Nothing,
                queue::Failure::Conflict
                | queue::Failure::Unhandled
                | queue::Failure::Handled
                | queue::Failure::Delayed(_) => Found::Failure(next),
            },
        }
    }
}

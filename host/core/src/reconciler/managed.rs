//! Runs workflows: the managed one, and those that the guest asks for (WF rules).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::node::Visitor;
use super::reads;
use super::run::Run;
use crate::cel::Template;
use crate::dependent::ownership::Mark;
use crate::guest::{
    CallError, CallReason, Failure, NodeFailure, NodeResult, Place, PrimaryUpdate, Session, UpdateControl,
    WorkflowCall, WorkflowResult,
};
use crate::manifest::{self, Dependent, Node, OnRename};
use crate::object::{Object, ObjectRef};
use crate::queue;
use crate::text;
use crate::workflow::Mode;
use crate::workflow::graph::Graph;

/// The dependents of a managed workflow that failed (`WF-9`).
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) dependents: Vec<(String, NodeFailure)>,
}

impl Failed {
    /// Returns the failures in a result; `None` if no node failed.
    pub(crate) fn of(result: &WorkflowResult) -> Option<Self> {
        let dependents = failures(result);
        (!dependents.is_empty()).then_some(Self { dependents })
    }

    /// Returns the kind of failure for the queue: a conflict if all nodes failed by conflicts and `otherwise` is no
    /// outage, else `otherwise`.
    pub(crate) fn sort(&self, otherwise: queue::Failure) -> queue::Failure {
        let mut failures = self.dependents.iter().map(|(_, failure)| failure);
        let conflict = failures.all(|failure| failure.refused == Some(CallReason::Conflict));
        if conflict && otherwise == queue::Failure::Unhandled { queue::Failure::Conflict } else { otherwise }
    }
}

/// Runs the managed workflow.
///
/// # Errors
/// [`Failed`] if a node failed, unless the manifest leaves failures to the reconciler (`WF-9`).
pub(crate) async fn managed(run: &Run, session: &dyn Session, mode: Mode) -> Result<WorkflowResult, Failed> {
    let workflow = &run.controller.spec.workflow;
    let result = Visitor { run, session, workflow, mode }.walk(&workflow.graph).await;
    let dependents = failures(&result);
    run.keep_result(None, result.clone());
    run.controller.verdicts.keep_walked(run.controller.edition, &run.primary);
    if dependents.is_empty() || workflow.errors_to_reconciler {
        return Ok(result);
    }
    Err(Failed { dependents })
}

/// Returns what a controller without a component answers once its workflow has run (`DT-6`).
pub(crate) async fn reconcile(
    run: &Run,
    session: &dyn Session,
    status: Option<&Template>,
) -> Result<UpdateControl, Failure> {
    let workflow = &run.controller.spec.workflow;
    let update = match status {
        Some(status) => {
            PrimaryUpdate::Status(Visitor { run, session, workflow, mode: Mode::Reconcile }.status(status).await?)
        }
        None => PrimaryUpdate::Nothing,
    };
    Ok(UpdateControl { update, reschedule: None })
}

/// Runs a workflow or a dependent that the guest asks for, in a session of its own, because the guest's is busy.
///
/// # Errors
/// `missing` for an unknown name, `misplaced` for a managed workflow that is not explicit (`CX-2`), `failed` if a node
/// failed, unless the manifest leaves failures to the reconciler (`WF-9`).
pub(crate) async fn by_hand(run: &Run, call: WorkflowCall) -> Result<WorkflowResult, CallError> {
    let controller = &run.controller;
    let session = controller.guest.open_nested(run.shared());
    let (name, mode) = match call {
        WorkflowCall::Reconcile(name) => (name, Mode::Reconcile),
        WorkflowCall::Cleanup(name) => (name, Mode::Cleanup),
        WorkflowCall::ReconcileDependent(name) => {
            return one(run, &*session, &name, Mode::Reconcile).await;
        }
        WorkflowCall::RemoveDependent(name) => {
            return one(run, &*session, &name, Mode::Cleanup).await;
        }
    };
    let manifest::Controller { workflow, standalone, .. } = &controller.spec;
    let workflow = match &name {
        None if !workflow.explicit => {
            let message = "the managed workflow runs by itself; `invocation: explicit` in the manifest leaves it to the component";
            return Err(CallError::new(CallReason::Misplaced, message));
        }
        None => workflow,
        Some(name) => {
            let found = standalone.get(&**name);
            found.ok_or_else(|| unknown("standalone workflow", name, standalone.keys()))?
        }
    };
    let visitor = Visitor { run, session: &*session, workflow, mode };
    let result = visitor.walk(&workflow.graph).await;
    run.keep_result(name, result.clone());
    answer(result, workflow.errors_to_reconciler)
}

/// Runs one standalone dependent, without the dependents that it depends on.
async fn one(run: &Run, session: &dyn Session, name: &str, mode: Mode) -> Result<WorkflowResult, CallError> {
    let workflows = || run.controller.spec.standalone.values();
    let nodes = || workflows().flat_map(manifest::Workflow::nodes);
    let Some((name, node)) = nodes().find(|(other, _)| ***other == *name) else {
        return Err(unknown("standalone dependent", name, nodes().map(|(name, _)| name)));
    };
    let graph = Graph::alone(Arc::clone(name));
    // What depends on it needs what it was before, and has not moved.
    let needed = nodes().any(|(_, other)| other.depends_on().contains(name));
    let workflow = alone((name, node), mode, needed);
    let result = Visitor { run, session, workflow: &workflow, mode }.walk(&graph).await;
    answer(result, false)
}

/// Returns a workflow of one node alone, which others may need.
fn alone((name, node): (&Arc<str>, Node<'_>), mode: Mode, needed: bool) -> manifest::Workflow {
    let (mut dependents, mut outside) = (BTreeMap::new(), BTreeMap::new());
    match node {
        Node::Object(spec) => {
            // What is to be removed by name is, whoever would collect it otherwise.
            let garbage_collected = spec.garbage_collected && mode == Mode::Reconcile;
            let on_rename = if needed && mode == Mode::Reconcile { OnRename::Keep } else { spec.on_rename };
            dependents.insert(Arc::clone(name), Dependent { garbage_collected, on_rename, ..spec.clone() });
        }
        Node::Thing(spec) => drop(outside.insert(Arc::clone(name), spec.clone())),
    }
    manifest::Workflow { dependents, outside, ..manifest::Workflow::default() }
}

fn answer(result: WorkflowResult, lenient: bool) -> Result<WorkflowResult, CallError> {
    let failed = failures(&result);
    if failed.is_empty() || lenient {
        return Ok(result);
    }
    Err(CallError::new(CallReason::Failed, format!("the workflow failed: {}", listed(&failed))))
}

fn unknown<'a>(what: &str, name: &str, names: impl Iterator<Item = &'a Arc<str>>) -> CallError {
    let names = names.map(|name| &**name).collect::<Vec<_>>().join(", ");
    let there = if names.is_empty() { "the manifest declares none".to_owned() } else { format!("there are: {names}") };
    CallError::new(CallReason::Missing, format!("no {what} is called {name:?}; {there}"))
}

/// Returns why dependents failed, in one text.
pub(super) fn listed(failed: &[(String, NodeFailure)]) -> String {
    failed.iter().map(|(name, failure)| format!("{name}: {}", failure.message)).collect::<Vec<_>>().join("; ")
}

/// Returns what of the failures of dependents the text of a run's own failure does not say; `None`: nothing (`WF-9`).
pub(super) fn tolerated(results: &HashMap<Option<String>, WorkflowResult>, error: Option<&str>) -> Option<String> {
    let mut failed: Vec<_> = results.values().flat_map(failures).collect();
    failed.retain(|(_, failure)| !error.is_some_and(|error| error.contains(&failure.message)));
    failed.sort_by(|(one, _), (other, _)| one.cmp(other));
    (!failed.is_empty()).then(|| text::kept(listed(&failed)))
}

fn failures(result: &WorkflowResult) -> Vec<(String, NodeFailure)> {
    let failed = |node: &NodeResult| Some((node.name.clone(), node.failed.clone()?));
    result.nodes.iter().filter_map(failed).collect()
}

/// Returns the objects in a place, of those that belong to the primary. Of a dependent's source, which others may
/// share, this is only the dependent's own object; as long as its name is not known, all objects that are not known
/// to be another dependent's. Of a bulk these are the objects that bear its mark.
///
/// # Errors
/// [`CallReason::Exhausted`] if the marks cost more to read than the run may spend.
pub(crate) fn of_dependent(run: &Run, place: &Place, mut found: Vec<Object>) -> Result<Vec<Object>, CallError> {
    let Place::Source(name) = place else {
        return Ok(found);
    };
    let secondaries = &run.controller.secondaries;
    let Some(source) = secondaries.get(&**name) else {
        return Ok(found);
    };
    let shares = |other: &str| secondaries.get(other).is_some_and(|shared| Arc::ptr_eq(shared, source));
    let dependents =
        run.controller.spec.dependents().filter(|(other, spec)| spec.bulk && spec.manage.create && shares(other));
    let bulks: Vec<_> = dependents.map(|(other, _)| (other, run.mark(other))).collect();
    if !bulks.is_empty() {
        let marked = found.iter().filter(|object| object.header().marked);
        run.budget.lock().text(marked.map(Object::size).sum()).map_err(reads::too_much)?;
        // What bears the mark of a bulk is that dependent's.
        found.retain(|object| {
            let mark = Mark::of(object);
            let owner = bulks.iter().find(|(_, own)| mark.as_ref().is_some_and(|mark| mark.is_alike(own)));
            owner.map_or_else(|| bulks.iter().all(|(bulk, _)| ***bulk != **name), |(bulk, _)| ***bulk == **name)
        });
    }
    if let Some(key) = run.known_key(name) {
        found.retain(|object| *object.key() == key);
        return Ok(found);
    }
    let others = secondaries.iter().filter(|(other, shared)| ***other != **name && Arc::ptr_eq(shared, source));
    let taken: BTreeSet<ObjectRef> = others.filter_map(|(other, _)| run.known_key(other)).collect();
    found.retain(|object| !taken.contains(object.key()));
    Ok(found)
}

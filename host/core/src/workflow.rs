//! Runs the dependents of a workflow in their order, by a given visit function, and waits for all visits.
//!
//! [`graph`] says in which order dependents stand, [`walk`] which of them may be visited now, [`condition`] judges the
//! conditions that need no component. What a visit does is not known here.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::guest::{ConditionResult, ConditionRole, Operation, WorkflowResult};

pub mod condition;
pub mod graph;
pub mod walk;

mod expression;

use graph::Graph;
use walk::Walk;

/// What a workflow is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To bring the dependents in line (`WF-4`).
    Reconcile,
    /// To delete them, before the primary goes (`WF-6`).
    Cleanup,
}

/// A visit to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The dependent to visit.
    pub name: Arc<str>,
    /// What to do there.
    pub task: Task,
    /// Where it stands in the graph.
    position: usize,
}

/// What to do on a visit, in this order. A condition that is not declared is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Ask the activation condition; unmet: [`Outcome::Inactive`]. Ask the reconcile precondition; unmet:
    /// [`Outcome::Unwanted`]. Reconcile, ask the ready postcondition: [`Outcome::Reconciled`] (`WF-4`).
    Reconcile,
    /// Ask the activation condition if that is not known; unmet: [`Outcome::Deleted`] with nothing done, `gone`. Delete
    /// if the daemon may delete it, also what is garbage collected; ask the delete postcondition:
    /// [`Outcome::Deleted`] (`WF-5`).
    Delete(Activation),
    /// Ask the activation condition; unmet: [`Outcome::Deleted`] with nothing done, `gone` (`WF-12`). Delete if the
    /// daemon may delete it and it is not garbage collected; ask the delete postcondition: [`Outcome::Deleted`]
    /// (`WF-6`).
    Cleanup,
}

/// What is known about an activation condition, which is asked once in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// It has been asked, and is met.
    Met,
    /// It has not been asked.
    Unasked,
}

/// What came out of a visit. The conditions are those that were evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The dependent is reconciled.
    Reconciled {
        /// What was done with which object.
        done: Vec<(String, Operation)>,
        /// What the conditions said.
        conditions: Vec<(ConditionRole, ConditionResult)>,
        /// Whether what depends on it may go on.
        ready: bool,
    },
    /// Its activation condition is unmet: its object is left alone, what depends on it is deleted.
    Inactive {
        /// What the conditions said.
        conditions: Vec<(ConditionRole, ConditionResult)>,
    },
    /// Its reconcile precondition is unmet: it is deleted, after what depends on it.
    Unwanted {
        /// What the conditions said.
        conditions: Vec<(ConditionRole, ConditionResult)>,
    },
    /// The dependent is deleted, or there was nothing to delete.
    Deleted {
        /// What was done with which object.
        done: Vec<(String, Operation)>,
        /// What the conditions said.
        conditions: Vec<(ConditionRole, ConditionResult)>,
        /// Whether what it depends on may go.
        gone: bool,
    },
    /// The visit failed.
    Failed {
        /// Why.
        text: String,
        /// What the conditions said before.
        conditions: Vec<(ConditionRole, ConditionResult)>,
    },
}

/// Runs a workflow: calls `visit` for each step as soon as it may begin, several at a time in the caller's task, and
/// returns what became of the dependents once no visit is left (`WF-3`, `WF-7`). Dropping the future drops the visits
/// that are going on.
pub async fn run<V, F>(graph: &Graph, mode: Mode, visit: V) -> WorkflowResult
where
    V: Fn(Step) -> F,
    F: Future<Output = Outcome>,
{
    let mut walk = Walk::new(graph, mode);
    let mut visits = FuturesUnordered::new();
    loop {
        for step in walk.ready() {
            let outcome = visit(step.clone());
            visits.push(async move { (step, outcome.await) });
        }
        match visits.next().await {
            Some((step, outcome)) => walk.done(&step, outcome),
            None => return walk.result(),
        }
    }
}

//! Runs the dependents of a workflow in their order, by a given visit function, and waits for all visits.
//!
//! [`graph`] says in which order dependents stand, [`walk`] which of them may be visited now, [`condition`] judges the
//! conditions that need no component. What a visit does is not known here.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::guest::{ConditionResult, ConditionRole, NodeFailure, Operation, WorkflowResult};

pub mod condition;
pub mod graph;
pub mod walk;

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
        failure: NodeFailure,
        /// What was done before.
        done: Vec<(String, Operation)>,
        /// What the conditions said before.
        conditions: Vec<(ConditionRole, ConditionResult)>,
    },
}

/// Runs a workflow from the beginning of its walk: calls `visit` for each step as soon as it may begin, several at a time in the caller's task, and
/// returns what became of the dependents once no visit is left (`WF-3`, `WF-7`), and which are [settled](Walk::settled). Dropping
/// the future drops the visits that are going on.
pub async fn run<V, F>(mut walk: Walk<'_>, visit: V) -> (WorkflowResult, Vec<Arc<str>>)
where
    V: Fn(Step) -> F,
    F: Future<Output = Outcome>,
{
    let mut visits = FuturesUnordered::new();
    loop {
        for step in walk.ready() {
            let outcome = visit(step.clone());
            visits.push(async move { (step, outcome.await) });
        }
        let Some((step, outcome)) = visits.next().await else {
            let settled = walk.settled();
            return (walk.result(), settled);
        };
        walk.done(&step, outcome);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures::channel::oneshot;

    use super::graph::Graph;
    use super::*;

    /// Returns the graph of dependents with what they depend on, separated by blanks.
    pub(super) fn graph(declared: &[(&str, &str)]) -> Result<Graph, graph::Cycle> {
        let depends_on = |text: &str| text.split_whitespace().map(Into::into).collect();
        Graph::new(&declared.iter().map(|(name, names)| ((*name).into(), depends_on(names))).collect())
    }

    pub(super) fn ready(ready: bool) -> Outcome {
        Outcome::Reconciled { done: vec![("x".to_owned(), Operation::Created)], conditions: Vec::new(), ready }
    }

    #[tokio::test]
    async fn steps_that_may_begin_run_at_the_same_time_and_others_wait() {
        // WF-3, WF-4
        let graph = graph(&[("a", ""), ("b", ""), ("c", "a b"), ("d", "b")]).unwrap();
        let begun = RefCell::new(Vec::new());
        let (finish_a, a_finished) = oneshot::channel::<()>();
        let (finish_a, a_finished) = (RefCell::new(Some(finish_a)), RefCell::new(Some(a_finished)));
        let (result, _) = run(Walk::new(&graph, Mode::Reconcile), |step| {
            begun.borrow_mut().push(step.name.to_string());
            let (finish_a, a_finished) = (&finish_a, &a_finished);
            async move {
                match &*step.name {
                    // a ends only once d has begun, which waits for b alone.
                    "a" => a_finished.take().unwrap().await.unwrap(),
                    "d" => finish_a.take().unwrap().send(()).unwrap(),
                    _ => {}
                }
                ready(true)
            }
        })
        .await;
        assert_eq!(begun.into_inner(), ["a", "b", "d", "c"]);
        assert!(result.complete);
        assert_eq!(result.nodes.iter().map(|node| &*node.name).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }

    #[tokio::test]
    async fn a_clean_up_begins_with_what_nothing_depends_on() {
        // WF-6
        let graph = graph(&[("a", ""), ("b", "a"), ("c", "a"), ("d", "b")]).unwrap();
        let begun = RefCell::new(Vec::new());
        let (result, _) = run(Walk::new(&graph, Mode::Cleanup), |step| {
            begun.borrow_mut().push((step.name.to_string(), step.task));
            async { Outcome::Deleted { done: Vec::new(), conditions: Vec::new(), gone: true } }
        })
        .await;
        let expected = ["d", "c", "b", "a"].map(|name| (name.to_owned(), Task::Cleanup));
        assert_eq!(begun.into_inner(), expected);
        assert!(result.complete);
    }

    #[tokio::test]
    async fn a_workflow_of_nothing_is_complete() {
        let (result, _) = run(Walk::new(&graph(&[]).unwrap(), Mode::Reconcile), |_| async { ready(true) }).await;
        assert_eq!(result, WorkflowResult { nodes: Vec::new(), complete: true });
    }
}

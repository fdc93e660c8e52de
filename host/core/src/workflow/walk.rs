//! Decides which dependents may be visited now, and what the outcome of a visit changes (WF-4 to WF-8).

use super::graph::{Graph, Node};
use super::{Activation, Mode, Outcome, Step, Task};
use crate::guest::{NodeResult, WorkflowResult};

/// A walk over a graph: where each node stands.
#[derive(Clone, Debug)]
pub struct Walk<'g> {
    graph: &'g Graph,
    /// One per node, in the order of the graph.
    places: Vec<Place>,
}

/// A node of the walk.
#[derive(Clone, Debug)]
struct Place {
    state: State,
    /// What became of it so far; none before its first visit.
    result: Option<NodeResult>,
}

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be reconciled once its parents are ready.
    Waiting,
    /// Marked for delete: to be deleted once its children are gone.
    Marked(Activation),
    /// Inactive itself, but its children are to be deleted; then it counts as gone (`WF-5`).
    Inactive,
    /// To be cleaned up once its children are gone.
    Leaving,
    /// Being visited.
    Visited(Task),
    /// Reconciled, and ready.
    Ready,
    /// Reconciled, but its ready postcondition is unmet.
    Unready,
    /// Deleted or inactive, and its delete postcondition is met.
    Gone,
    /// Deleted, but its delete postcondition is unmet.
    Lingering,
    /// A visit failed.
    Failed,
}

impl<'g> Walk<'g> {
    /// Begins a walk.
    pub fn new(graph: &'g Graph, mode: Mode) -> Self {
        let state = match mode {
            Mode::Reconcile => State::Waiting,
            Mode::Cleanup => State::Leaving,
        };
        let places = graph.nodes().iter().map(|_| Place { state, result: None }).collect();
        Self { graph, places }
    }

    /// Returns the visits that may begin now, in the order of the graph, or backwards on a clean-up; each is returned
    /// once. The walk is over when there is none and none is going on.
    pub fn ready(&mut self) -> Vec<Step> {
        self.settle_inactive();
        let mut steps = Vec::new();
        for (position, node) in self.graph.nodes().iter().enumerate() {
            let Some(task) = self.task(position, node) else { continue };
            if let Some(place) = self.places.get_mut(position) {
                place.state = State::Visited(task);
            }
            steps.push(Step { name: node.name.clone(), position, task });
        }
        if steps.iter().any(|step| step.task == Task::Cleanup) {
            steps.reverse();
        }
        steps
    }

    /// Takes in what came out of a visit. An outcome that does not answer the task is a failure; that of a visit that is
    /// not going on changes nothing.
    pub fn done(&mut self, step: &Step, outcome: Outcome) {
        let Some(place) = self.places.get_mut(step.position).filter(|p| p.state == State::Visited(step.task)) else {
            return;
        };
        let result = place.result.get_or_insert_with(|| NodeResult { name: step.name.to_string(), ..Default::default() });
        let (state, done, conditions) = match (step.task, outcome) {
            (Task::Reconcile, Outcome::Reconciled { done, conditions, ready: true }) => (State::Ready, done, conditions),
            (Task::Reconcile, Outcome::Reconciled { done, conditions, .. }) => (State::Unready, done, conditions),
            (Task::Reconcile, Outcome::Inactive { conditions }) => (State::Inactive, Vec::new(), conditions),
            (Task::Reconcile, Outcome::Unwanted { conditions }) => {
                (State::Marked(Activation::Met), Vec::new(), conditions)
            }
            (Task::Delete(_) | Task::Cleanup, Outcome::Deleted { done, conditions, gone: true }) => {
                (State::Gone, done, conditions)
            }
            (Task::Delete(_) | Task::Cleanup, Outcome::Deleted { done, conditions, .. }) => {
                (State::Lingering, done, conditions)
            }
            (_, Outcome::Failed { text, conditions }) => {
                result.failed = Some(text);
                (State::Failed, Vec::new(), conditions)
            }
            (task, outcome) => {
                result.failed = Some(format!("the visit was to answer {task:?}, and answered {outcome:?}"));
                (State::Failed, Vec::new(), Vec::new())
            }
        };
        result.done.extend(done);
        result.conditions.extend(conditions);
        place.state = state;
        if matches!(state, State::Inactive | State::Marked(_)) {
            self.mark_children(step.position);
        }
    }

    /// Returns what became of the nodes that were reached (`WF-8`).
    pub fn result(self) -> WorkflowResult {
        let well = |state| match state {
            State::Unready | State::Lingering | State::Failed | State::Visited(_) => false,
            State::Waiting | State::Marked(_) | State::Inactive | State::Leaving | State::Ready | State::Gone => true,
        };
        let complete = self.places.iter().all(|place| well(place.state));
        WorkflowResult { nodes: self.places.into_iter().filter_map(|place| place.result).collect(), complete }
    }

    /// Returns what may be done with a node now.
    fn task(&self, position: usize, node: &Node) -> Option<Task> {
        match self.state(position)? {
            State::Waiting => self.all(&node.parents, State::Ready).then_some(Task::Reconcile),
            State::Marked(activation) => self.all(&node.children, State::Gone).then_some(Task::Delete(activation)),
            State::Leaving => self.all(&node.children, State::Gone).then_some(Task::Cleanup),
            State::Inactive
            | State::Visited(_)
            | State::Ready
            | State::Unready
            | State::Gone
            | State::Lingering
            | State::Failed => None,
        }
    }

    /// Marks all that depend on a node for delete. None of it can have been reconciled: it waits for this one.
    fn mark_children(&mut self, position: usize) {
        let children = |position: usize| self.graph.nodes().get(position).map_or(&[][..], |node| &node.children);
        let mut rest = children(position).to_vec();
        while let Some(position) = rest.pop() {
            if let Some(place) = self.places.get_mut(position).filter(|place| place.state == State::Waiting) {
                place.state = State::Marked(Activation::Unasked);
                rest.extend(children(position));
            }
        }
    }

    /// Lets inactive nodes count as gone whose children are.
    fn settle_inactive(&mut self) {
        for (position, node) in self.graph.nodes().iter().enumerate().rev() {
            if self.state(position) == Some(State::Inactive)
                && self.all(&node.children, State::Gone)
                && let Some(place) = self.places.get_mut(position)
            {
                place.state = State::Gone;
            }
        }
    }

    fn all(&self, positions: &[usize], state: State) -> bool {
        positions.iter().all(|position| self.state(*position) == Some(state))
    }

    fn state(&self, position: usize) -> Option<State> {
        self.places.get(position).map(|place| place.state)
    }
}

//! Decides which dependents may be visited now, and what the outcome of a visit changes (WF-4 to WF-8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::graph::{Graph, Node};
use super::{Activation, Mode, Outcome, Step, Task};
use crate::guest::{NodeResult, WorkflowResult};

/// A walk over a graph: where each node stands.
#[derive(Clone, Debug)]
pub struct Walk<'g> {
    graph: &'g Graph,
    /// One per node, in the order of the graph.
    places: Vec<Place>,
    /// The nodes that wait for no other one, and have not begun.
    free: BTreeSet<usize>,
    /// How many are being reconciled.
    reconciling: usize,
    /// For each kind, how many of its nodes may still be found to be wanted.
    undecided: Vec<usize>,
}

/// A node of the walk.
#[derive(Clone, Debug)]
struct Place {
    state: State,
    /// What became of it so far; `None` before its first visit.
    result: Option<NodeResult>,
    /// How many nodes that it depends on are not ready.
    unready: usize,
    /// How many nodes that depend on it are not gone.
    left: usize,
    /// The kind of its object, as a number, if others of the walk have that, too.
    kind: Option<usize>,
}

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be reconciled once its parents are ready.
    Waiting,
    /// Marked for delete: to be deleted once its children are gone.
    Marked(Activation),
    /// Inactive: left alone. Nothing waits for it, for what it depends on stays (`WF-5`).
    Inactive,
    /// To be cleaned up once its children are gone.
    Leaving,
    /// Being visited.
    Visited(Task),
    /// Reconciled, and ready.
    Ready,
    /// Reconciled, but its ready postcondition is unmet.
    Unready,
    /// Deleted, or there was nothing to delete, and its delete postcondition is met.
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
        let place = |node: &Node| {
            let (unready, left) = (node.parents.len(), node.children.len());
            Place { state, result: None, unready, left, kind: None }
        };
        let places: Vec<Place> = graph.nodes().iter().map(place).collect();
        let free = (0..places.len()).filter(|at| places.get(*at).is_some_and(|place| place.task().is_some())).collect();
        Self { graph, places, free, reconciling: 0, undecided: Vec::new() }
    }

    /// Tells the walk of which nodes the objects are of one kind, so that they may be the same: such a node is deleted only once it is known
    /// which of the others are wanted, as far as that can be found out in this walk.
    #[must_use]
    pub fn of_kinds<K: Ord>(mut self, kind: impl Fn(&str) -> Option<K>) -> Self {
        let mut kinds: BTreeMap<K, Vec<usize>> = BTreeMap::new();
        for (position, node) in self.graph.nodes().iter().enumerate() {
            if let Some(kind) = kind(&node.name) {
                kinds.entry(kind).or_default().push(position);
            }
        }
        let shared: Vec<Vec<usize>> = kinds.into_values().filter(|alike| alike.len() > 1).collect();
        for (number, alike) in shared.iter().enumerate() {
            for position in alike {
                if let Some(place) = self.places.get_mut(*position) {
                    place.kind = Some(number);
                }
            }
        }
        self.undecided = shared.iter().map(Vec::len).collect();
        self
    }

    /// Returns the visits that may begin now, in the order of the graph, or backwards on a clean-up; each is returned
    /// once. The walk is over when there is none and none is going on.
    pub fn ready(&mut self) -> Vec<Step> {
        let free: Vec<(usize, Task)> = self.free.iter().filter_map(|at| Some((*at, self.task(*at)?))).collect();
        self.reconciling += free.iter().filter(|(_, task)| *task == Task::Reconcile).count();
        let mut steps = Vec::new();
        for (position, task) in free {
            if self.is_held(position, task) {
                continue;
            }
            self.free.remove(&position);
            let node = self.graph.nodes().get(position);
            if let Some((place, node)) = self.places.get_mut(position).zip(node) {
                place.state = State::Visited(task);
                steps.push(Step { name: node.name.clone(), position, task });
            }
        }
        if steps.iter().any(|step| step.task == Task::Cleanup) {
            steps.reverse();
        }
        steps
    }

    /// Whether a deletion waits until it is known who else wants the object: as long as visits may find that out.
    fn is_held(&self, position: usize, task: Task) -> bool {
        let kind = self.places.get(position).and_then(|place| place.kind);
        let undecided = kind.and_then(|kind| self.undecided.get(kind)).is_some_and(|undecided| *undecided > 0);
        matches!(task, Task::Delete(_)) && self.reconciling > 0 && undecided
    }

    /// Takes in what came out of a visit. An outcome that does not answer the task is a failure; that of a visit that is
    /// not going on changes nothing.
    pub fn done(&mut self, step: &Step, outcome: Outcome) {
        let going = State::Visited(step.task);
        let Some(place) = self.places.get_mut(step.position).filter(|place| place.state == going) else {
            return;
        };
        let kind = place.kind;
        let result =
            place.result.get_or_insert_with(|| NodeResult { name: step.name.to_string(), ..Default::default() });
        let (state, done, conditions) = match outcome {
            Outcome::Reconciled { done, conditions, ready } => {
                (if ready { State::Ready } else { State::Unready }, done, conditions)
            }
            Outcome::Inactive { conditions } => (State::Inactive, Vec::new(), conditions),
            Outcome::Unwanted { conditions } => (State::Marked(Activation::Met), Vec::new(), conditions),
            Outcome::Deleted { done, conditions, gone } => {
                (if gone { State::Gone } else { State::Lingering }, done, conditions)
            }
            Outcome::Failed { failure, done, conditions } => {
                result.failed = Some(failure);
                (State::Failed, done, conditions)
            }
        };
        place.state = if answers(state, step.task) {
            state
        } else {
            let text = format!("the visit was for {:?}, its outcome is {state:?}", step.task);
            result.failed = Some(text.into());
            State::Failed
        };
        result.done.extend(done);
        result.conditions.extend(conditions);
        let state = place.state;
        if step.task == Task::Reconcile {
            self.reconciling = self.reconciling.saturating_sub(1);
            self.decide(kind);
        }
        self.go_on(step.position, state);
    }

    /// Finds out who may go on now that a node stands there.
    fn go_on(&mut self, position: usize, state: State) {
        let graph = self.graph;
        let Some(node) = graph.nodes().get(position) else {
            return;
        };
        match state {
            State::Ready => self.each(&node.children, |child| child.unready = child.unready.saturating_sub(1)),
            State::Gone => self.each(&node.parents, |parent| parent.left = parent.left.saturating_sub(1)),
            State::Marked(_) => {
                self.each(&[position], |_| {});
                self.mark_children(position);
            }
            State::Inactive => self.mark_children(position),
            State::Waiting | State::Leaving | State::Visited(_) | State::Unready | State::Lingering | State::Failed => {
            }
        }
    }

    /// Changes nodes, and takes in which of them wait for no other one any more.
    fn each(&mut self, positions: &[usize], change: impl Fn(&mut Place)) {
        for position in positions {
            if let Some(place) = self.places.get_mut(*position) {
                change(place);
                if place.task().is_some() {
                    self.free.insert(*position);
                }
            }
        }
    }

    /// Takes in that it is known of a node of a kind whether it is wanted.
    fn decide(&mut self, kind: Option<usize>) {
        if let Some(undecided) = kind.and_then(|kind| self.undecided.get_mut(kind)) {
            *undecided = undecided.saturating_sub(1);
        }
    }

    /// Returns what became of the nodes that were reached (`WF-8`).
    pub fn result(self) -> WorkflowResult {
        let well = |state| match state {
            State::Unready | State::Lingering | State::Failed | State::Visited(_) => false,
            State::Waiting | State::Marked(_) | State::Inactive | State::Leaving | State::Ready | State::Gone => true,
        };
        let complete = self.places.iter().all(|place| well(place.state));
        let nodes = self.places.into_iter().filter_map(|place| place.result).collect();
        WorkflowResult { nodes, complete }
    }

    /// Returns the nodes that are ready together with all that depends on them: nothing needs what they were before.
    pub fn settled(&self) -> Vec<Arc<str>> {
        let nodes = self.graph.nodes();
        let mut settled = vec![false; nodes.len()];
        // Backwards: what depends on a node stands after it.
        for (position, node) in nodes.iter().enumerate().rev() {
            let well = match self.state(position) {
                Some(State::Ready | State::Inactive | State::Gone) => true,
                Some(
                    State::Waiting
                    | State::Marked(_)
                    | State::Leaving
                    | State::Visited(_)
                    | State::Unready
                    | State::Lingering
                    | State::Failed,
                )
                | None => false,
            };
            let after = |child: &usize| settled.get(*child).copied().unwrap_or_default();
            let well = well && node.children.iter().all(after);
            if let Some(place) = settled.get_mut(position) {
                *place = well;
            }
        }
        let ready = |position: &usize| self.state(*position) == Some(State::Ready);
        (nodes.iter().enumerate().zip(settled))
            .filter(|((position, _), settled)| *settled && ready(position))
            .map(|((_, node), _)| Arc::clone(&node.name))
            .collect()
    }

    /// Returns what may be done with a node now.
    fn task(&self, position: usize) -> Option<Task> {
        self.places.get(position)?.task()
    }

    /// Marks all that depend on a node for delete. None of it can have been reconciled: it waits for this one.
    fn mark_children(&mut self, position: usize) {
        let graph = self.graph;
        let children = |position: usize| graph.nodes().get(position).map_or(&[][..], |node| &node.children);
        let mut rest = children(position).to_vec();
        while let Some(position) = rest.pop() {
            if let Some(place) = self.places.get_mut(position).filter(|place| place.state == State::Waiting) {
                place.state = State::Marked(Activation::Unasked);
                let kind = place.kind;
                self.decide(kind);
                self.each(&[position], |_| {});
                rest.extend(children(position));
            }
        }
    }

    fn state(&self, position: usize) -> Option<State> {
        self.places.get(position).map(|place| place.state)
    }
}

impl Place {
    /// Returns what may be done with the node, if it waits for no other one.
    fn task(&self) -> Option<Task> {
        match self.state {
            State::Waiting => (self.unready == 0).then_some(Task::Reconcile),
            State::Marked(activation) => (self.left == 0).then_some(Task::Delete(activation)),
            State::Leaving => (self.left == 0).then_some(Task::Cleanup),
            State::Inactive
            | State::Visited(_)
            | State::Ready
            | State::Unready
            | State::Gone
            | State::Lingering
            | State::Failed => None,
        }
    }
}

/// Whether a task can lead to a state.
fn answers(state: State, task: Task) -> bool {
    match state {
        State::Ready | State::Unready | State::Inactive | State::Marked(_) => task == Task::Reconcile,
        State::Gone | State::Lingering => task != Task::Reconcile,
        State::Failed => true,
        State::Waiting | State::Leaving | State::Visited(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::{ConditionResult, ConditionRole, Operation};
    use crate::workflow::tests::ready;

    fn graph(declared: &[(&str, &str)]) -> Graph {
        crate::workflow::tests::graph(declared).unwrap()
    }

    const DIAMOND: &[(&str, &str)] = &[("a", ""), ("b", "a"), ("c", "a"), ("d", "b c")];

    fn unwanted() -> Outcome {
        Outcome::Unwanted { conditions: vec![condition(ConditionRole::ReconcilePrecondition)] }
    }

    fn inactive() -> Outcome {
        Outcome::Inactive { conditions: vec![condition(ConditionRole::Activation)] }
    }

    fn deleted(gone: bool) -> Outcome {
        Outcome::Deleted { done: vec![("x".to_owned(), Operation::Deleted)], conditions: Vec::new(), gone }
    }

    fn failed() -> Outcome {
        let done = vec![("x".to_owned(), Operation::Created)];
        Outcome::Failed { failure: "boom".to_owned().into(), done, conditions: Vec::new() }
    }

    fn condition(role: ConditionRole) -> (ConditionRole, ConditionResult) {
        (role, ConditionResult { met: false, detail: None })
    }

    /// Walks by a script: the first outcome given for a dependent and task answers it; what is not scripted goes well.
    /// Returns the visits in their order, one wave per line, and the result.
    fn walk(graph: &Graph, mode: Mode, script: &[(&str, Outcome)]) -> (String, WorkflowResult) {
        let (waves, walk) = walked(graph, mode, script);
        (waves, walk.result())
    }

    fn walked<'g>(graph: &'g Graph, mode: Mode, script: &[(&str, Outcome)]) -> (String, Walk<'g>) {
        walked_from(Walk::new(graph, mode), script)
    }

    fn walked_from<'g>(mut walk: Walk<'g>, script: &[(&str, Outcome)]) -> (String, Walk<'g>) {
        let mut script = script.to_vec();
        let mut waves = Vec::new();
        loop {
            let steps = walk.ready();
            if steps.is_empty() {
                return (waves.join(" | "), walk);
            }
            let letter = |task| match task {
                Task::Reconcile => "",
                Task::Delete(Activation::Met) => "-",
                Task::Delete(Activation::Unasked) => "?",
                Task::Cleanup => "x",
            };
            waves.push(
                steps.iter().map(|step| format!("{}{}", letter(step.task), step.name)).collect::<Vec<_>>().join(" "),
            );
            for step in steps {
                let scripted = script.iter().position(|(name, _)| *name == &*step.name);
                let outcome = match (scripted, step.task) {
                    (Some(position), _) => script.remove(position).1,
                    (None, Task::Reconcile) => ready(true),
                    (None, Task::Delete(_) | Task::Cleanup) => deleted(true),
                };
                walk.done(&step, outcome);
            }
        }
    }

    #[test]
    #[rustfmt::skip]
    fn visits_follow_the_rules() {
        // WF-4, WF-5, WF-7; `?` is a delete that asks for the activation first, `-` one that need not.
        let chain = &[("a", ""), ("b", "a"), ("c", "b")][..];
        for (about, declared, script, visits, complete) in [
            ("all is well", DIAMOND, &[][..], "a | b c | d", true),
            ("a parent is not ready", DIAMOND, &[("b", ready(false))], "a | b c", false),
            ("a parent failed, its sibling goes on", DIAMOND, &[("b", failed())], "a | b c", false),
            ("the root failed", DIAMOND, &[("a", failed())], "a", false),
            ("a leaf is unwanted", DIAMOND, &[("d", unwanted())], "a | b c | d | -d", true),
            ("the root is unwanted", DIAMOND, &[("a", unwanted())], "a | ?d | ?b ?c | -a", true),
            ("one parent is unwanted", DIAMOND, &[("b", unwanted())], "a | b c | ?d | -b", true),
            ("both parents are unwanted", DIAMOND, &[("b", unwanted()), ("c", unwanted())], "a | b c | ?d | -b -c", true),
            ("one parent failed, the other is unwanted", DIAMOND, &[("b", failed()), ("c", unwanted())], "a | b c | ?d | -c", false),
            ("the root is inactive", DIAMOND, &[("a", inactive())], "a | ?d | ?b ?c", true),
            ("a leaf is inactive", DIAMOND, &[("d", inactive())], "a | b c | d", true),
            ("inactive in the middle", chain, &[("b", inactive())], "a | b | ?c", true),
            ("a child lingers", chain, &[("a", unwanted()), ("c", deleted(false))], "a | ?c", false),
            ("a child's deletion failed", chain, &[("a", unwanted()), ("c", failed())], "a | ?c", false),
            ("a grandchild of an inactive one lingers", chain, &[("a", inactive()), ("c", deleted(false))], "a | ?c", false),
            ("its own deletion fails", chain, &[("c", unwanted()), ("c", failed())], "a | b | c | -c", false),
            ("an outcome of the wrong sort", chain, &[("a", deleted(true))], "a", false),
        ] {
            let (found, result) = walk(&graph(declared), Mode::Reconcile, script);
            assert_eq!((&*found, result.complete), (visits, complete), "{about}");
        }
    }

    #[test]
    fn what_may_be_the_same_object_is_deleted_once_it_is_known_which_others_are_wanted() {
        // KD-13: `a`, `b` and `e` are of one kind.
        let graph = graph(&[("a", ""), ("b", "c"), ("c", ""), ("d", "c"), ("e", "d")]);
        let kinds = |name: &str| (!matches!(name, "c" | "d")).then_some(());
        for (about, script, apart, alike) in [
            ("all others are wanted", &[("a", unwanted())][..], "a c | -a b d | e", "a c | b d | e | -a"),
            (
                "one is not, either",
                &[("a", unwanted()), ("b", unwanted())],
                "a c | -a b d | -b e",
                "a c | b d | e | -a -b",
            ),
            ("one is not reached", &[("a", unwanted()), ("d", failed())], "a c | -a b d", "a c | b d | -a"),
            ("none is reached", &[("a", unwanted()), ("c", ready(false))], "a c | -a", "a c | -a"),
            (
                "one goes with what it depends on",
                &[("a", unwanted()), ("d", unwanted())],
                "a c | -a b d | ?e | -d",
                "a c | b d | -a ?e | -d",
            ),
        ] {
            let found = walked(&graph, Mode::Reconcile, script).0;
            let held = walked_from(Walk::new(&graph, Mode::Reconcile).of_kinds(kinds), script).0;
            assert_eq!((&*found, &*held), (apart, alike), "{about}");
        }
        let (all, alike) = (walked(&graph, Mode::Cleanup, &[]).0, Walk::new(&graph, Mode::Cleanup).of_kinds(kinds));
        assert_eq!(walked_from(alike, &[]).0, all, "in a clean-up nothing is wanted");
    }

    #[test]
    fn what_a_node_was_before_is_needed_until_all_that_depends_on_it_is_ready() {
        for (script, settled) in [
            (&[][..], "a b c d"),
            (&[("d", ready(false))], ""),
            (&[("d", failed())], ""),
            (&[("b", failed())], ""),
            (&[("b", ready(false))], ""),
            (&[("d", unwanted())], "a b c"),
            (&[("d", unwanted()), ("d", deleted(false))], ""),
            (&[("d", inactive())], "a b c"),
            (&[("b", unwanted())], "a c"),
            (&[("b", unwanted()), ("c", ready(false))], ""),
        ] {
            let graph = graph(DIAMOND);
            let (_, walk) = walked(&graph, Mode::Reconcile, script);
            assert_eq!(walk.settled().join(" "), settled, "{script:?}");
        }
        let graph = graph(DIAMOND);
        let (_, walk) = walked(&graph, Mode::Cleanup, &[]);
        assert!(walk.settled().is_empty());
    }

    #[test]
    #[rustfmt::skip]
    fn a_clean_up_follows_the_rules() {
        // WF-6, WF-7, WF-12: an inactive dependent is one with nothing deleted.
        for (about, script, visits, complete) in [
            ("all is well", &[][..], "xd | xc xb | xa", true),
            ("a child lingers", &[("b", deleted(false))], "xd | xc xb", false),
            ("a child failed", &[("c", failed())], "xd | xc xb", false),
            ("a leaf failed", &[("d", failed())], "xd", false),
            ("an outcome of the wrong sort", &[("d", ready(true))], "xd", false),
        ] {
            let (found, result) = walk(&graph(DIAMOND), Mode::Cleanup, script);
            assert_eq!((&*found, result.complete), (visits, complete), "{about}");
        }
    }

    #[test]
    fn the_result_has_what_was_reached_in_the_order_of_the_graph() {
        // WF-8
        let graph = graph(&[("a", ""), ("b", "a"), ("c", ""), ("d", "c"), ("e", "")]);
        let ready_detail =
            (ConditionRole::ReadyPostcondition, ConditionResult { met: false, detail: Some("1".to_owned()) });
        let not_ready = Outcome::Reconciled {
            done: vec![("x".to_owned(), Operation::Updated)],
            conditions: vec![ready_detail.clone()],
            ready: false,
        };
        let (_, result) = walk(&graph, Mode::Reconcile, &[("a", not_ready), ("c", unwanted()), ("e", failed())]);
        let node = |name: &str| NodeResult { name: name.to_owned(), ..NodeResult::default() };
        let done = |operation| vec![("x".to_owned(), operation)];
        let nodes = vec![
            NodeResult { done: done(Operation::Updated), conditions: vec![ready_detail], ..node("a") },
            NodeResult {
                done: done(Operation::Deleted),
                conditions: vec![condition(ConditionRole::ReconcilePrecondition)],
                ..node("c")
            },
            NodeResult { done: done(Operation::Deleted), ..node("d") },
            NodeResult { done: done(Operation::Created), failed: Some("boom".to_owned().into()), ..node("e") },
        ];
        assert_eq!(result, WorkflowResult { nodes, complete: false });
    }

    #[test]
    fn an_outcome_counts_once() {
        let graph = graph(&[("a", "")]);
        let mut walk = Walk::new(&graph, Mode::Reconcile);
        let steps = walk.ready();
        assert_eq!(walk.ready(), [], "a visit is handed out once");
        walk.done(&steps[0], ready(true));
        walk.done(&steps[0], failed());
        assert_eq!((walk.ready(), walk.result().complete), (vec![], true));
    }
}

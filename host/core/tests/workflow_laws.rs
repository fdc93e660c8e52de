//! What holds for every walk over every graph, however visits end and in whatever order.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use std::collections::{BTreeMap, BTreeSet};

use capstan_core::guest::Operation;
use capstan_core::workflow::graph::Graph;
use capstan_core::workflow::walk::Walk;
use capstan_core::workflow::{Mode, Outcome, Step, Task};
use proptest::prelude::*;
use proptest::sample::Index;

const SIZE: usize = 9;

/// What becomes of a dependent, in this order of likelihood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Well,
    Unready,
    Unwanted,
    Inactive,
    Failing,
    Lingering,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Well),
        1 => Just(Fate::Unready),
        2 => Just(Fate::Unwanted),
        1 => Just(Fate::Inactive),
        1 => Just(Fate::Failing),
        1 => Just(Fate::Lingering),
    ]
}

/// A graph, with names in no relation to the order; whom each depends on; and the fates.
#[derive(Clone, Debug)]
struct Plan {
    parents: BTreeMap<String, BTreeSet<String>>,
    fates: BTreeMap<String, Fate>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let names = Just((0..SIZE).map(|n| format!("n{n}")).collect::<Vec<_>>()).prop_shuffle();
    let edges = prop::collection::vec(prop::bool::weighted(0.3), SIZE * SIZE);
    (names, edges, prop::collection::vec(fate(), SIZE)).prop_map(|(names, edges, fates)| {
        let parents = |later: usize| {
            (0..later).filter(|earlier| edges[later * SIZE + earlier]).map(|n| names[n].clone()).collect()
        };
        Plan {
            parents: (0..SIZE).map(|n| (names[n].clone(), parents(n))).collect(),
            fates: names.iter().cloned().zip(fates).collect(),
        }
    })
}

impl Plan {
    fn graph(&self) -> Graph {
        let parents = |names: &BTreeSet<String>| names.iter().map(|name| name.as_str().into()).collect();
        let depends_on = self.parents.iter().map(|(name, names)| (name.as_str().into(), parents(names)));
        Graph::new(&depends_on.collect()).unwrap()
    }

    fn ancestors(&self, name: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut rest: Vec<&String> = self.parents[name].iter().collect();
        while let Some(next) = rest.pop() {
            if found.insert(next.clone()) {
                rest.extend(&self.parents[next]);
            }
        }
        found
    }

    fn outcome(&self, step: &Step) -> Outcome {
        let (done, conditions) = (vec![(step.name.to_string(), Operation::Unchanged)], Vec::new());
        match (step.task, self.fates[&*step.name]) {
            (_, Fate::Failing) => Outcome::Failed { failure: "boom".to_owned().into(), done: Vec::new(), conditions },
            (Task::Reconcile, Fate::Unwanted) => Outcome::Unwanted { conditions },
            (Task::Reconcile, Fate::Inactive) => Outcome::Inactive { conditions },
            (Task::Reconcile, fate) => Outcome::Reconciled { done, conditions, ready: fate != Fate::Unready },
            (Task::Delete(_) | Task::Cleanup, fate) => {
                Outcome::Deleted { done, conditions, gone: fate != Fate::Lingering }
            }
        }
    }

    /// Walks, ending visits in the order that `picks` choose. Returns the begins and ends of visits, and whether the
    /// walk was complete.
    fn walk(&self, mode: Mode, picks: &[Index]) -> (Vec<Mark>, bool) {
        let graph = self.graph();
        let mut walk = Walk::new(&graph, mode);
        let (mut going, mut marks, mut picks) = (Vec::new(), Vec::new(), picks.iter().cycle());
        loop {
            for step in walk.ready() {
                marks.push(Mark::Begin(step.name.to_string(), step.task));
                going.push(step);
            }
            if going.is_empty() {
                return (marks, walk.result().complete);
            }
            let step = going.remove(picks.next().unwrap().index(going.len()));
            let outcome = self.outcome(&step);
            marks.push(Mark::End(step.name.to_string(), step.task));
            walk.done(&step, outcome);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Mark {
    Begin(String, Task),
    End(String, Task),
}

fn begin(marks: &[Mark], name: &str, wanted: impl Fn(Task) -> bool) -> Option<usize> {
    marks.iter().position(|mark| matches!(mark, Mark::Begin(found, task) if found == name && wanted(*task)))
}

fn end(marks: &[Mark], name: &str, wanted: impl Fn(Task) -> bool) -> Option<usize> {
    marks.iter().position(|mark| matches!(mark, Mark::End(found, task) if found == name && wanted(*task)))
}

fn reconciles(task: Task) -> bool {
    task == Task::Reconcile
}

fn deletes(task: Task) -> bool {
    matches!(task, Task::Delete(_) | Task::Cleanup)
}

proptest! {
    #[test]
    fn nothing_is_reconciled_or_deleted_twice(plan in plan(), picks in prop::collection::vec(any::<Index>(), 30)) {
        for mode in [Mode::Reconcile, Mode::Cleanup] {
            let (marks, _) = plan.walk(mode, &picks);
            for name in plan.parents.keys() {
                for kind in [reconciles, deletes] {
                    let count = marks.iter().filter(|mark| matches!(mark, Mark::Begin(found, task) if found == name && kind(*task)));
                    prop_assert!(count.count() <= 1, "{} in {:?}", name, marks);
                }
            }
        }
    }

    #[test]
    fn a_dependent_is_reconciled_only_after_all_it_depends_on_is_ready(plan in plan(), picks in prop::collection::vec(any::<Index>(), 30)) {
        // WF-4, WF-7
        let (marks, _) = plan.walk(Mode::Reconcile, &picks);
        for (name, parents) in &plan.parents {
            let own = begin(&marks, name, reconciles);
            let fine = |parent: &String| {
                let ready = matches!(plan.fates[parent], Fate::Well | Fate::Lingering);
                ready && end(&marks, parent, reconciles).is_some_and(|at| own.is_none_or(|own| at < own))
            };
            // And then it is.
            prop_assert_eq!(own.is_some(), parents.iter().all(fine), "{} in {:?}", name, marks);
        }
    }

    #[test]
    fn what_depends_on_a_failure_is_not_reconciled(plan in plan(), picks in prop::collection::vec(any::<Index>(), 30)) {
        // WF-7
        let (marks, complete) = plan.walk(Mode::Reconcile, &picks);
        for name in plan.parents.keys() {
            let failed = plan.ancestors(name).iter().any(|ancestor| plan.fates[ancestor] == Fate::Failing);
            prop_assert!(!failed || begin(&marks, name, reconciles).is_none());
        }
        let failed = marks.iter().any(|mark| matches!(mark, Mark::Begin(name, _) if plan.fates[name] == Fate::Failing));
        prop_assert!(!failed || !complete);
    }

    #[test]
    fn deletion_goes_from_the_leaves_upward(plan in plan(), picks in prop::collection::vec(any::<Index>(), 30)) {
        // WF-5, WF-6
        for mode in [Mode::Reconcile, Mode::Cleanup] {
            let (marks, _) = plan.walk(mode, &picks);
            for (child, parents) in &plan.parents {
                for parent in parents {
                    let Some(own) = begin(&marks, parent, deletes) else { continue };
                    // An inactive child that was reached by reconciling is left alone.
                    let left = plan.fates[child] == Fate::Inactive && begin(&marks, child, reconciles).is_some();
                    let before = end(&marks, child, deletes).is_some_and(|at| at < own);
                    prop_assert!(before || left, "{} before {} in {:?}", child, parent, marks);
                    prop_assert!(!matches!(plan.fates[child], Fate::Failing | Fate::Lingering));
                }
            }
        }
    }

    #[test]
    fn a_clean_up_of_what_is_well_is_a_run_backwards(mut plan in plan(), picks in prop::collection::vec(any::<Index>(), 1)) {
        // WF-6
        plan.fates.values_mut().for_each(|fate| *fate = Fate::Well);
        let first = [picks[0]];
        let (there, complete) = plan.walk(Mode::Reconcile, &first);
        let (back, clean) = plan.walk(Mode::Cleanup, &first);
        prop_assert!(complete && clean);
        prop_assert_eq!((there.len(), back.len()), (2 * SIZE, 2 * SIZE));
        let order: Vec<_> = plan.graph().nodes().iter().map(|node| node.name.to_string()).collect();
        for (child, parents) in &plan.parents {
            for parent in parents {
                let place = |name: &String| order.iter().position(|other| other == name);
                prop_assert!(place(parent) < place(child));
                prop_assert!(begin(&there, parent, reconciles) < begin(&there, child, reconciles));
                prop_assert!(begin(&back, parent, deletes) > begin(&back, child, deletes));
            }
        }
    }

    #[test]
    fn a_walk_says_the_same_in_whatever_order_visits_end(plan in plan(), one in prop::collection::vec(any::<Index>(), 30), other in prop::collection::vec(any::<Index>(), 30)) {
        for mode in [Mode::Reconcile, Mode::Cleanup] {
            let begun = |picks: &[Index]| {
                let (marks, complete) = plan.walk(mode, picks);
                let mut begun: Vec<_> = marks.into_iter().filter_map(|mark| match mark {
                    Mark::Begin(name, task) => Some((name, reconciles(task))),
                    Mark::End(..) => None,
                }).collect();
                begun.sort();
                (begun, complete)
            };
            prop_assert_eq!(begun(&one), begun(&other));
        }
    }
}

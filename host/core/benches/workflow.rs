//! What it takes to plan a workflow: the order of its dependents, and whom to visit after each visit.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark may fail loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capstan_core::workflow::graph::Graph;
use capstan_core::workflow::walk::Walk;
use capstan_core::workflow::{Mode, Outcome};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};

const DEPENDENTS: [usize; 2] = [100, 1_000];

fn main() {
    divan::main();
}

/// Returns dependents each of which depends on up to three others, by chance, but each time the same; their names are in no relation to their
/// order.
fn depends_on(count: usize) -> BTreeMap<Arc<str>, BTreeSet<Arc<str>>> {
    let mut seed = 1_usize;
    let mut below = |most: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % most
    };
    let name = |number: usize| Arc::<str>::from(format!("{:03}-{number}", number * 7919 % 1000));
    let parents = |number: usize, below: &mut dyn FnMut(usize) -> usize| -> BTreeSet<Arc<str>> {
        (0..below(4)).filter(|_| number > 0).map(|_| name(below(number))).collect()
    };
    (0..count).map(|number| (name(number), parents(number, &mut below))).collect()
}

#[divan::bench(args = DEPENDENTS)]
fn order(bencher: Bencher<'_, '_>, count: usize) {
    let depends_on = depends_on(count);
    bencher.counter(ItemsCount::new(count)).bench(|| Graph::new(black_box(&depends_on)).unwrap());
}

/// Each visit ends well before the next one does.
#[divan::bench(args = DEPENDENTS)]
fn walk(bencher: Bencher<'_, '_>, count: usize) {
    let graph = Graph::new(&depends_on(count)).unwrap();
    for mode in [Mode::Reconcile, Mode::Cleanup] {
        assert!(walked(&graph, mode));
    }
    bencher.counter(ItemsCount::new(count)).bench(|| walked(black_box(&graph), Mode::Reconcile));
}

fn walked(graph: &Graph, mode: Mode) -> bool {
    let mut walk = Walk::new(graph, mode);
    let mut going = walk.ready();
    while let Some(step) = going.pop() {
        let (done, conditions) = (Vec::new(), Vec::new());
        let outcome = match mode {
            Mode::Reconcile => Outcome::Reconciled { done, conditions, ready: true },
            Mode::Cleanup => Outcome::Deleted { done, conditions, gone: true },
        };
        walk.done(&step, outcome);
        going.extend(walk.ready());
    }
    walk.result().complete
}

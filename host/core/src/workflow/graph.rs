//! Decides whether declared dependents form a graph without cycles, and in which order they stand (WF-1).

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt;
use std::sync::Arc;

/// The dependents of a workflow in an order in which each comes after what it depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// In order; among those that could come next, by name.
    nodes: Vec<Node>,
}

/// A dependent in the graph. Positions are those in [`Graph::nodes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The dependent's name.
    pub name: Arc<str>,
    /// What it depends on; all before it.
    pub parents: Vec<usize>,
    /// What depends on it; all after it.
    pub children: Vec<usize>,
}

/// Names that depend on each other in a circle (`WF-1`): each on the next, the last on the first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Cycle(pub Vec<Arc<str>>);

/// The most names of a circle that are told.
const TOLD: usize = 20;

impl fmt::Display for Cycle {
    /// Writes `a → b → a`, and not all of a long one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in self.0.iter().take(TOLD) {
            write!(f, "{name} → ")?;
        }
        if let more @ 1.. = self.0.len().saturating_sub(TOLD) {
            write!(f, "… ({more} more) → ")?;
        }
        f.write_str(self.0.first().map_or("", |first| first))
    }
}

impl Graph {
    /// Returns the graph of dependents, given what each depends on. Names that are depended on but are no key are passed over.
    ///
    /// # Errors
    /// [`Cycle`], the first that is met.
    ///
    /// ```
    /// # use std::collections::{BTreeMap, BTreeSet};
    /// # use capstan_core::workflow::graph::Graph;
    /// let depends_on = BTreeMap::from([("a".into(), BTreeSet::from(["b".into()])), ("b".into(), BTreeSet::new())]);
    /// let graph = Graph::new(&depends_on).unwrap();
    /// assert_eq!(graph.nodes().iter().map(|node| &*node.name).collect::<Vec<_>>(), ["b", "a"]);
    /// ```
    pub fn new(depends_on: &BTreeMap<Arc<str>, BTreeSet<Arc<str>>>) -> Result<Self, Cycle> {
        let mut children: BTreeMap<&Arc<str>, Vec<&Arc<str>>> = BTreeMap::new();
        // Those that wait, each for so many others.
        let mut waiting: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for (name, parents) in depends_on {
            let known = parents.iter().filter(|parent| depends_on.contains_key(*parent));
            waiting.insert(name, known.clone().count());
            known.for_each(|parent| children.entry(parent).or_default().push(name));
        }
        let mut free: BTreeSet<&Arc<str>> =
            waiting.extract_if(.., |_, left| *left == 0).map(|(name, _)| name).collect();
        let mut positions: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        let mut nodes: Vec<Node> = Vec::with_capacity(depends_on.len());
        while let Some(name) = free.pop_first() {
            let position = nodes.len();
            let parents = depends_on.get(name).into_iter().flatten();
            let parents: Vec<usize> = parents.filter_map(|parent| positions.get(parent).copied()).collect();
            for parent in &parents {
                if let Some(parent) = nodes.get_mut(*parent) {
                    parent.children.push(position);
                }
            }
            nodes.push(Node { name: Arc::clone(name), parents, children: Vec::new() });
            positions.insert(name, position);
            for child in children.remove(name).unwrap_or_default() {
                if let Entry::Occupied(mut left) = waiting.entry(child) {
                    *left.get_mut() -= 1;
                    if *left.get() == 0 {
                        left.remove();
                        free.insert(child);
                    }
                }
            }
        }
        if waiting.is_empty() { Ok(Self { nodes }) } else { Err(cycle(depends_on, &waiting)) }
    }

    /// Returns the graph of one dependent alone.
    pub fn alone(name: Arc<str>) -> Self {
        Self { nodes: vec![Node { name, parents: Vec::new(), children: Vec::new() }] }
    }

    /// Returns the nodes, each after what it depends on. Backwards it is the order of a clean-up.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
}

/// Follows what is depended on from name to name until one comes again. Each name in `waiting` depends on another one there.
fn cycle(depends_on: &BTreeMap<Arc<str>, BTreeSet<Arc<str>>>, waiting: &BTreeMap<&Arc<str>, usize>) -> Cycle {
    let mut path: Vec<&Arc<str>> = waiting.keys().take(1).copied().collect();
    let waits_for = |name: &&Arc<str>| depends_on.get(*name)?.iter().find(|parent| waiting.contains_key(parent));
    while let Some(next) = path.last().and_then(waits_for) {
        if let Some(start) = path.iter().position(|name| *name == next) {
            path.drain(..start);
            break;
        }
        path.push(next);
    }
    let smallest = path.iter().enumerate().min_by_key(|(_, name)| **name).map_or(0, |(at, _)| at);
    path.rotate_left(smallest);
    Cycle(path.into_iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::workflow::tests::graph;

    type DependsOn = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

    #[test]
    fn a_dependent_stands_after_what_it_depends_on_and_else_by_name() {
        // WF-1
        for (declared, order) in [
            (&[("c", ""), ("a", ""), ("b", "")][..], "a b c"),
            (&[("a", "c"), ("b", ""), ("c", "")], "b c a"),
            (&[("a", "b c"), ("b", "d"), ("c", "d"), ("d", "")], "d b c a"),
            (&[("a", "z"), ("b", "a"), ("c", "a"), ("d", "b c"), ("z", "")], "z a b c d"),
            (&[("a", "unknown")], "a"),
            (&[], ""),
        ] {
            let graph = graph(declared).unwrap();
            assert_eq!(graph.nodes().iter().map(|node| &*node.name).collect::<Vec<_>>().join(" "), order);
        }
    }

    #[test]
    fn a_node_knows_what_is_around_it() {
        let node = |name: &str, parents: &[usize], children: &[usize]| Node {
            name: name.into(),
            parents: parents.to_vec(),
            children: children.to_vec(),
        };
        let nodes = [node("a", &[], &[1, 2]), node("b", &[0], &[3]), node("c", &[0], &[3]), node("d", &[1, 2], &[])];
        assert_eq!(graph(&[("a", ""), ("b", "a"), ("c", "a"), ("d", "b c")]).unwrap().nodes(), nodes);
        assert_eq!(graph(&[("a", "")]), Ok(Graph::alone("a".into())));
    }

    #[test]
    fn a_circle_is_told_by_its_path() {
        // WF-1
        for (declared, text) in [
            (&[("a", "a")][..], "a → a"),
            (&[("a", "b"), ("b", "a")], "a → b → a"),
            (&[("a", "b"), ("b", "c"), ("c", "b"), ("d", "")], "b → c → b"),
            (&[("a", "c"), ("b", "a"), ("c", "b")], "a → c → b → a"),
            (&[("a", "c"), ("b", "d"), ("c", "d"), ("d", "b")], "b → d → b"),
            (&[("a", "d z"), ("d", "e"), ("e", "d"), ("z", "")], "d → e → d"),
            (&[("z", "a"), ("a", "y"), ("y", "z"), ("x", "y")], "a → y → z → a"),
        ] {
            assert_eq!(graph(declared).unwrap_err().to_string(), text);
        }
    }

    fn declared() -> impl Strategy<Value = DependsOn> {
        let name = || "[a-f]".prop_map(Arc::from);
        proptest::collection::btree_map(name(), proptest::collection::btree_set(name(), 0..3), 0..7)
    }

    proptest! {
        #[test]
        fn an_order_is_right_or_the_circle_is_there(declared in declared()) {
            match Graph::new(&declared) {
                Ok(graph) => {
                    let names: Vec<_> = graph.nodes().iter().map(|node| &node.name).collect();
                    let place = |name: &Arc<str>| names.iter().position(|other| *other == name);
                    prop_assert_eq!(names.iter().copied().collect::<BTreeSet<_>>(), declared.keys().collect());
                    prop_assert_eq!(names.len(), declared.len());
                    for (name, parents) in &declared {
                        prop_assert!(parents.iter().all(|parent| place(parent) < place(name)));
                    }
                }
                Err(Cycle(circle)) => {
                    prop_assert!(!circle.is_empty());
                    for (name, next) in circle.iter().zip(circle.iter().cycle().skip(1)) {
                        prop_assert!(declared[name].contains(next));
                    }
                }
            }
        }
    }
}

//! Decides whether declared dependents form a graph without cycles, and in which order they stand (WF-1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::manifest::Workflow;

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

/// Why dependents form no graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name in `dependsOn` that no dependent has (`WF-1`).
    #[error("dependent {dependent} depends on {unknown:?}, which is none of {}", known.join(", "))]
    Unknown {
        /// Who depends.
        dependent: Arc<str>,
        /// On what.
        unknown: Arc<str>,
        /// The names that there are.
        known: Vec<Arc<str>>,
    },
    /// Dependents that depend on each other.
    #[error("dependents wait for each other: {}", path.join(" -> "))]
    Cycle {
        /// Each depends on the next; the first is also the last.
        path: Vec<Arc<str>>,
    },
}

impl Graph {
    /// Returns the graph of a workflow.
    ///
    /// # Errors
    /// [`Error`] for an unknown name or a cycle.
    pub fn new(workflow: &Workflow) -> Result<Self, Error> {
        let mut waiting: BTreeMap<&Arc<str>, &BTreeSet<Arc<str>>> = BTreeMap::new();
        for (dependent, declared) in &workflow.dependents {
            if let Some(unknown) = declared.depends_on.iter().find(|name| !workflow.dependents.contains_key(*name)) {
                let known = workflow.dependents.keys().cloned().collect();
                return Err(Error::Unknown { dependent: dependent.clone(), unknown: unknown.clone(), known });
            }
            waiting.insert(dependent, &declared.depends_on);
        }
        let mut positions: BTreeMap<&str, usize> = BTreeMap::new();
        let mut nodes: Vec<Node> = Vec::with_capacity(waiting.len());
        while !waiting.is_empty() {
            let free = |(_, parents): &(_, &&BTreeSet<Arc<str>>)| parents.iter().all(|p| positions.contains_key(&**p));
            let Some((name, parents)) = waiting.iter().find(free).map(|(name, parents)| (*name, *parents)) else {
                return Err(Error::Cycle { path: cycle(&waiting) });
            };
            let parents: Vec<usize> = parents.iter().filter_map(|parent| positions.get(&**parent).copied()).collect();
            let position = nodes.len();
            for parent in &parents {
                if let Some(parent) = nodes.get_mut(*parent) {
                    parent.children.push(position);
                }
            }
            nodes.push(Node { name: name.clone(), parents, children: Vec::new() });
            positions.insert(name, position);
            waiting.remove(name);
        }
        Ok(Self { nodes })
    }

    /// Returns the nodes, each after what it depends on. Backwards it is the order of a clean-up.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
}

/// Returns a cycle among dependents that all wait for another of them.
fn cycle(waiting: &BTreeMap<&Arc<str>, &BTreeSet<Arc<str>>>) -> Vec<Arc<str>> {
    let mut path: Vec<Arc<str>> = Vec::new();
    let mut next = waiting.keys().next().map(|name| (*name).clone());
    while let Some(name) = next {
        if let Some(start) = path.iter().position(|seen| *seen == name) {
            path.drain(..start);
            path.push(name);
            break;
        }
        let parents = waiting.get(&name).copied();
        next = parents.into_iter().flatten().find(|parent| waiting.contains_key(*parent)).cloned();
        path.push(name);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::tests::{graph, workflow};

    #[test]
    #[rustfmt::skip]
    fn a_dependent_stands_after_what_it_depends_on_and_else_by_name() {
        // WF-1
        for (declared, order) in [
            (&[("c", ""), ("a", ""), ("b", "")][..], "a b c"),
            (&[("a", "c"), ("b", ""), ("c", "")], "b c a"),
            (&[("a", "z"), ("b", "a"), ("c", "a"), ("d", "b c"), ("z", "")], "z a b c d"),
            (&[], ""),
        ] {
            let graph = graph(declared);
            assert_eq!(
                graph
                    .nodes()
                    .iter()
                    .map(|node| &*node.name)
                    .collect::<Vec<_>>()
                    .join(" "),
                order
            );
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
        assert_eq!(graph(&[("a", ""), ("b", "a"), ("c", "a"), ("d", "b c")]).nodes(), nodes);
    }

    #[test]
    #[rustfmt::skip]
    fn what_is_no_graph_is_refused_with_names() {
        // WF-1
        for (declared, text) in [
            (&[("a", "x"), ("b", "")][..], "dependent a depends on \"x\", which is none of a, b"),
            (&[("a", "a")], "dependents wait for each other: a -> a"),
            (&[("a", "b"), ("b", "c"), ("c", "b"), ("d", "")], "dependents wait for each other: b -> c -> b"),
            (&[("a", "c"), ("b", "a"), ("c", "b")], "dependents wait for each other: a -> c -> b -> a"),
            (&[("a", "d z"), ("d", "e"), ("e", "d"), ("z", "")], "dependents wait for each other: d -> e -> d"),
        ] {
            assert_eq!(
                Graph::new(&workflow(declared)).unwrap_err().to_string(),
                text
            );
        }
    }
}

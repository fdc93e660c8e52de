//! Finds dependents that have the same object whatever the primary says: each would undo what the other writes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::super::raw::{self, Named};
use super::super::{Called, Dependent, Node, Workflow};
use super::Check;
use crate::yaml::Slot;

impl Check<'_> {
    /// Finds the second of two dependents of the managed workflow that always mean the same object (`KD-13`). Of one that runs by name, the
    /// component may call one alone.
    pub(super) fn same_objects(&mut self, workflow: &Workflow, field: &Slot<Named<raw::Dependent>>) {
        let mut first = BTreeMap::new();
        for name in always(workflow) {
            let Some((dependent, called)) = workflow.dependents.get(name).and_then(|it| Some((it, called(it)?))) else {
                continue;
            };
            let gvk = &dependent.gvk;
            match first.entry((&gvk.group, &gvk.kind, called)) {
                Entry::Vacant(free) => {
                    free.insert(name);
                }
                Entry::Occupied(taken) => {
                    let message = format!(
                        "found a {gvk} that is always called like that of the dependent `{}`, so that each would undo what the other writes; expected another name, or a condition of which only one is met at a time",
                        taken.get()
                    );
                    let names = field.read().into_iter().flat_map(|named| &named.value.0);
                    let mut names = names.filter_map(|(name, _)| name.read());
                    let place = names.find(|known| known.value.0.0 == *name).map_or(0, |known| known.place);
                    self.fault(place, message);
                }
            }
        }
    }
}

/// Returns the dependents that are wanted whatever the primary says: neither they nor what they depend on asks.
fn always(workflow: &Workflow) -> impl Iterator<Item = &Arc<str>> {
    let nodes = workflow.graph.nodes();
    let mut always: Vec<bool> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let conditions = workflow.node(&node.name).map(Node::conditions);
        let asks_nothing =
            conditions.is_some_and(|all| all.activation.is_none() && all.reconcile_precondition.is_none());
        let is_always = |parent: &usize| always.get(*parent).copied().unwrap_or_default();
        let is_wanted = asks_nothing && node.parents.iter().all(is_always);
        always.push(is_wanted);
    }
    nodes.iter().zip(always).filter(|(_, always)| *always).map(|(node, _)| &node.name)
}

/// Returns how the one object that a dependent writes is called, as the manifest says it; `None` if it does not.
fn called(dependent: &Dependent) -> Option<String> {
    let Dependent { called, template, bulk, manage, .. } = dependent;
    match (called, template) {
        _ if *bulk || !(manage.create || manage.update) => None,
        (Some(Called { name, namespace }), _) => {
            let namespace = namespace.as_ref().map_or("", |namespace| namespace.as_str());
            Some(format!("{} {namespace}", name.as_str()))
        }
        (None, Some(template)) => Some(template.written_name().to_string()),
        (None, None) => None,
    }
}

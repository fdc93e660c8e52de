//! Decides whose shares of objects caches keep: those of the field managers that somebody uses, and no others.

use std::collections::BTreeSet;
use std::sync::Arc;

use capstan_core::manifest::{Controller, Operator};
use capstan_core::object::Gvk;

use crate::controller::Environment;

/// Has the caches keep the shares of all field managers that are declared, and of those that are still `in_use`.
pub(super) fn learn<'a>(
    operators: &'a [Operator],
    in_use: impl Iterator<Item = &'a str>,
    Environment { api, pool, clusters, .. }: &Environment,
) {
    let managers: Vec<_> = declared(operators).flat_map(Controller::managers).collect();
    let mut used: BTreeSet<&str> = managers.iter().map(|manager| &**manager).collect();
    for manager in in_use {
        used.insert(manager);
    }
    let new = api.keep_shares_of(&used);
    for other in clusters.all() {
        other.site.api.keep_shares_of(&used);
    }
    let kinds = kinds(operators, &new);
    if !kinds.is_empty() {
        pool.relist(&kinds);
        // Namespaces of other clusters are others.
        let everywhere = kinds.into_iter().map(|(kind, _)| (kind, None)).collect();
        clusters.all().iter().for_each(|other| other.site.pool.relist(&everywhere));
    }
}

/// Returns the kinds in which some of these field managers may have shares, with the namespace of an operator that works there alone (`CE-2`).
fn kinds(operators: &[Operator], managers: &BTreeSet<&str>) -> BTreeSet<(Gvk, Option<Arc<str>>)> {
    let theirs =
        declared(operators).filter(|controller| controller.managers().any(|manager| managers.contains(&*manager)));
    let kinds = theirs.flat_map(|controller| {
        let sources = controller.sources.values().map(|source| &source.gvk);
        let dependents = controller.dependents().map(|(_, dependent)| &dependent.gvk);
        let kinds = sources.chain(dependents).chain([&controller.primary]);
        kinds.map(|kind| (kind.clone(), controller.home.clone()))
    });
    kinds.collect()
}

fn declared(operators: &[Operator]) -> impl Iterator<Item = &Controller> {
    operators.iter().flat_map(|operator| operator.controllers.values())
}

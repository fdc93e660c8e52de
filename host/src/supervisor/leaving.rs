//! Stops the controllers that no manifest wants any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use capstan_core::manifest::Operator;
use capstan_core::registry::Digest;
use capstan_core::rollout::plan;
use tokio_util::sync::CancellationToken;

use super::supply::Unit;
use super::{Running, Supervisor};

/// Why most controllers end.
const UNDECLARED: &str = "no manifest declares it any more";

/// A controller that has been stopped.
pub(super) struct Leaving {
    /// The operator that had it.
    pub(super) operator: Arc<str>,
    pub(super) name: Arc<str>,
    /// Its field managers.
    pub(super) managers: BTreeSet<Arc<str>>,
    /// Its last run has ended.
    pub(super) ended: CancellationToken,
}

impl Supervisor {
    /// Stops the controllers of an operator that no manifest declares any more.
    pub(super) fn stop_unwanted_of(&mut self, operator: &Arc<str>) {
        let wanted = |name: &Arc<str>| self.operators.iter().any(|o| o.controllers.contains_key(name));
        let running = self.controllers.iter().filter(|(_, running)| running.operator == *operator);
        let unwanted = running.map(|(name, _)| name).filter(|name| !wanted(name));
        for name in unwanted.cloned().collect::<Vec<_>>() {
            self.stop_controller(&name, UNDECLARED);
        }
    }

    pub(super) fn stop_controller(&mut self, name: &Arc<str>, why: &str) {
        if let Some(running) = self.controllers.remove(name) {
            tracing::info!(controller = %name, "{why}");
            self.tell_of_carriers(name, &running);
            running.stop.cancel();
            self.status.stopped(name);
            let Running { operator, handle, ended, .. } = running;
            let managers = handle.field_managers();
            self.leaving.push(Leaving { operator, name: Arc::clone(name), managers, ended });
            self.environment.metrics.runs.forget(name);
        }
    }

    /// Tells of primaries that carry the finalizer of a controller that goes, which nothing removes any more (`OP-8`).
    fn tell_of_carriers(&self, controller: &str, Running { operator, handle, .. }: &Running) {
        let Some((kind, finalizer, primaries)) = handle.warn_of_carriers() else {
            return;
        };
        self.status.left(operator, format!(
            "{primaries} of {kind} carry the finalizer {finalizer} of controller {controller}, which has ended: they can't be deleted until somebody removes it. Apply the operator once more, delete them, and then the operator; or let one go without its clean-up: kubectl patch KIND NAME -n NAMESPACE --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'"
        ));
    }

    /// Ends what no manifest wants any more.
    pub(super) fn retire(&mut self) {
        let in_force = self.in_force.iter().map(|(unit, version)| (unit, &version.attempt));
        for unit in plan::retired(&self.operators, in_force) {
            self.in_force.remove(&unit);
        }
        let units = self.operators.iter().flat_map(|Operator { name, plugins, .. }| {
            plugins.keys().map(|plugin| Unit { operator: Arc::clone(name), plugin: Arc::clone(plugin) })
        });
        self.status.keep(&self.in_force.keys().cloned().chain(units).collect());
        let names: BTreeSet<_> = self.operators.iter().map(|operator| &operator.name).collect();
        self.tried.retain(|name, _| names.contains(name));
        let versions = self.in_force.values();
        let kept: BTreeSet<_> = versions.flat_map(|version| version.attempt.controllers.keys().cloned()).collect();
        let running: Vec<_> = self.controllers.keys().cloned().collect();
        for name in running.into_iter().filter(|name| !kept.contains(name)) {
            self.stop_controller(&name, UNDECLARED);
        }
        let components = self.in_force.values().filter_map(|version| version.attempt.image());
        self.images.hold(components.filter_map(|digest| Digest::parse(digest).ok()).collect());
    }
}

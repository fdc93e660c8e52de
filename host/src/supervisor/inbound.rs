//! Tells the port for requests from outside whether there is anybody to take them, and which tokens they need.

use std::sync::Arc;

use capstan_core::manifest::Controller;
use capstan_core::rollout::values::{Asked, asked, tokens};
use tokio::sync::watch;

use super::{Supervisor, Tokens};
use crate::controller::Declared;

impl Supervisor {
    /// Returns whether a source in force takes requests from outside, whenever that changes.
    pub fn takes_requests(&self) -> watch::Receiver<bool> {
        self.inbound.subscribe()
    }

    /// Returns what looks up tokens.
    pub fn tokens(&self) -> Tokens {
        self.values.tokens()
    }

    /// Has all values read that manifests name, and the tokens of what is in force and of what runs, which may be older versions.
    pub(super) fn want_values(&self) {
        let mut all = asked(&self.operators);
        let mut add = |operator: &Arc<str>, controller: &Controller| {
            all.extend(tokens(controller).map(|value| Asked { operator: Arc::clone(operator), value: value.clone() }));
        };
        for (unit, version) in &self.in_force {
            version.attempt.controllers.values().for_each(|controller| add(&unit.operator, controller));
        }
        self.running().for_each(|declared| add(&declared.operator, &declared.spec));
        self.values.want(all);
    }

    /// Has the port opened or closed, as what is in force and what runs need it.
    pub(super) fn open_or_close(&self) {
        let mut in_force = self.in_force.values().flat_map(|version| version.attempt.controllers.values());
        let takes = |controller: &Controller| !controller.inbound.is_empty();
        let wanted = in_force.any(takes) || self.running().any(|declared| takes(&declared.spec));
        self.inbound.send_if_modified(|now| std::mem::replace(now, wanted) != wanted);
    }

    /// Returns the versions that run, also while those that are in force are being prepared.
    fn running(&self) -> impl Iterator<Item = Arc<Declared>> {
        self.controllers.values().filter_map(|running| running.handle.running())
    }
}

//! Tells the port for requests from outside whether there is anybody to take them, and which tokens they need.

use std::sync::Arc;

use capstan_core::rollout::values::{Asked, asked, tokens};
use tokio::sync::watch;

use super::{Supervisor, Tokens};

impl Supervisor {
    /// Returns whether a source in force takes requests from outside, whenever that changes.
    pub fn takes_requests(&self) -> watch::Receiver<bool> {
        self.inbound.subscribe()
    }

    /// Returns what looks up tokens.
    pub fn tokens(&self) -> Tokens {
        self.values.reader()
    }

    /// Has all values read that manifests name, and the tokens of what is in force, which may be an older version.
    pub(super) fn want_values(&self) {
        let mut all = asked(&self.operators);
        for (unit, version) in &self.in_force {
            let tokens = version.attempt.controllers.values().flat_map(tokens);
            all.extend(tokens.map(|value| Asked { operator: Arc::clone(&unit.operator), value: value.clone() }));
        }
        self.values.want(all);
    }

    /// Has the port opened or closed, as what is in force needs it.
    pub(super) fn open_or_close(&self) {
        let mut controllers = self.in_force.values().flat_map(|version| version.attempt.controllers.values());
        let wanted = controllers.any(|controller| !controller.inbound.is_empty());
        self.inbound.send_if_modified(|now| std::mem::replace(now, wanted) != wanted);
    }
}

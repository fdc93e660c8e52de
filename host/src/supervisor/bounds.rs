//! Bounds how much operators may have at once, and tells of what they give beyond what is to be seen.

use std::collections::{BTreeMap, BTreeSet};

use capstan_core::manifest::Operator;
use capstan_core::permission::risk;

use super::Supervisor;

impl Supervisor {
    /// Returns the supervisor with so many runs of one plugin at most, whatever its manifest says.
    #[must_use]
    pub fn capped(self, concurrency: usize) -> Self {
        Self { concurrency, ..self }
    }

    /// Tells of what new or changed manifests give components beyond what is to be seen.
    pub(super) fn warn_of_risks(&self, operators: &[Operator]) {
        let before: BTreeMap<_, _> = self.operators.iter().map(|operator| (&operator.name, operator)).collect();
        for operator in operators {
            let known = before.get(&operator.name).copied().map(risk::of).unwrap_or_default();
            for risk in risk::of(operator).difference(&known) {
                tracing::warn!(operator = %operator.name, "{risk}");
            }
        }
    }

    /// Bounds what operators may have at once, and tells those that want more.
    pub(super) fn cap(&mut self) {
        let most = self.concurrency;
        let capped = self.operators.iter_mut().flat_map(|o| o.cap_concurrency(most));
        let capped: BTreeSet<_> = capped.collect();
        for message in capped.difference(&self.capped) {
            tracing::warn!("{message}");
        }
        self.capped = capped;
    }
}

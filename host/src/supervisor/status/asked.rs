//! Keeps which versions of operators wait for an approval, and what has changed with the last one, for whoever says it.

use std::sync::Arc;

use capstan_core::operator::approval::Asked;

use super::{Entry, Status, Unit};
use crate::supervisor::supply::Refusal;

/// The step at which a version waits.
const APPROVE: &str = "approve";

/// What is known of the versions of an operator.
#[derive(Debug, Default)]
pub(super) struct Judged {
    asked: Option<Asked>,
    change: Option<Vec<String>>,
}

impl Status {
    /// Says that a plugin waits with the version of its operator.
    pub(in crate::supervisor) fn waits(&self, unit: &Unit, asked: &Asked) {
        self.fail(unit, &Refusal::new(APPROVE, &asked.message()), 0);
    }

    /// Says which version of an operator waits; none any more.
    pub(in crate::supervisor) fn ask(&self, operator: &Arc<str>, asked: Option<Asked>) {
        let mut judged = self.judged.lock();
        let of = judged.entry(Arc::clone(operator)).or_default();
        let is_known = |asked: &Asked| of.asked.as_ref().is_some_and(|known| known.version == asked.version);
        if let Some(asked) = asked.as_ref().filter(|asked| !is_known(asked)) {
            let (difference, command) = (asked.difference.join("; "), &asked.command);
            tracing::warn!(%operator, difference, more = asked.wants_more, command, "a version waits for an approval; what is in force goes on");
        }
        of.asked = asked;
    }

    /// Says what was otherwise in the version that was put in force last.
    pub(in crate::supervisor) fn changed(&self, operator: &Arc<str>, lines: Vec<String>) {
        self.judged.lock().entry(Arc::clone(operator)).or_default().change = Some(lines);
    }

    /// Returns the version of an operator that waits.
    pub(in crate::supervisor) fn asked(&self, operator: &str) -> Option<Asked> {
        self.judged.lock().get(operator)?.asked.clone()
    }

    /// Returns what was otherwise in the version that was put in force last.
    pub(in crate::supervisor) fn change(&self, operator: &str) -> Option<Vec<String>> {
        self.judged.lock().get(operator)?.change.clone()
    }
}

impl Entry {
    /// Whether a version waits for an approval.
    pub(super) fn asks(&self) -> bool {
        self.problem.as_ref().is_some_and(|problem| problem.step == APPROVE)
    }
}

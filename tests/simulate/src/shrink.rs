//! Leaves out the steps of a failing simulation without which it still fails.

use crate::plan::Plan;
use crate::play::{Played, play};

/// Returns a simulation that still fails, with as few steps as can be found by leaving some out, and how it went.
pub(crate) fn shrink(plan: &Plan, played: Played) -> (Plan, Played) {
    let (mut plan, mut played) = (plan.clone(), played);
    let mut part = plan.steps.len().div_ceil(2);
    while part > 0 {
        let (mut at, mut shorter) = (0, false);
        while at < plan.steps.len() {
            let mut less = plan.clone();
            let end = (at + part).min(less.steps.len());
            less.steps.drain(at..end);
            let again = play(&less);
            if again.wrong.is_some() {
                (plan, played, shorter) = (less, again, true);
            } else {
                at += part;
            }
        }
        part = if part == 1 && shorter { 1 } else { part / 2 };
    }
    (plan, played)
}

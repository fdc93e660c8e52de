//! Leaves out the steps of a failing simulation without which it still fails in the same way.

use crate::plan::Plan;
use crate::play::Played;
use crate::world::{DEPENDENTS, Dependent, NAMES};

/// Returns a simulation that still fails in the same way, with as few steps as can be found by leaving some out, and how it went.
/// `play` plays one.
pub(crate) fn shrink(plan: &Plan, played: Played, play: impl Fn(&Plan) -> Played) -> (Plan, Played) {
    let (mut plan, mut played) = (plan.clone(), played);
    let wanted = played.wrong.as_deref().map(way);
    let mut part = plan.steps.len().div_ceil(2);
    while part > 0 {
        let (mut at, mut shorter) = (0, false);
        while at < plan.steps.len() {
            let mut less = plan.clone();
            let end = (at + part).min(less.steps.len());
            less.steps.drain(at..end);
            let again = play(&less);
            if again.wrong.is_some() && again.wrong.as_deref().map(way) == wanted {
                (plan, played, shorter) = (less, again, true);
            } else {
                at += part;
            }
        }
        part = if part == 1 && shorter { 1 } else { part / 2 };
    }
    (plan, played)
}

/// Returns in which way a simulation failed: what was wrong, whatever the object, its version and the time.
fn way(wrong: &str) -> String {
    let names = NAMES.into_iter().flat_map(|(namespace, name)| [namespace, name]);
    let names: Vec<_> = names.chain(DEPENDENTS.into_iter().map(Dependent::name)).collect();
    let word = |word: &str| match word {
        _ if names.contains(&word) => String::new(),
        _ => word.chars().filter(|sign| !sign.is_ascii_digit()).collect(),
    };
    wrong.split(|sign: char| !sign.is_alphanumeric()).map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Act;
    use crate::world::Thing;

    #[test]
    fn what_is_left_is_what_it_takes_to_fail_in_the_same_way() {
        let mut plan = Plan::of(7);
        let (delete, create) = (plan.steps.len() / 4, plan.steps.len() / 2);
        plan.steps.retain(|step| !matches!(step.act, Act::Delete(_) | Act::Create(..) | Act::Compact));
        plan.steps[delete].act = Act::Delete(Thing(1));
        plan.steps[create].act = Act::Create(Thing(1), 77);
        plan.steps.last_mut().unwrap().act = Act::Compact;
        // Without the first it fails as well, but otherwise.
        let play = |plan: &Plan| {
            let has = |wanted: fn(&Act) -> bool| plan.steps.iter().any(|step| wanted(&step.act));
            let deletes = has(|act| matches!(act, Act::Delete(_)));
            let creates = has(|act| matches!(act, Act::Create(..)));
            let wrong = match (deletes, creates) {
                (true, true) => Some(format!("a/one has {} steps", plan.steps.len())),
                (false, true) => Some("b/two is left behind".to_owned()),
                (_, false) => None,
            };
            Played { wrong, lines: vec![plan.steps.len().to_string()] }
        };
        let (less, played) = shrink(&plan, play(&plan), play);
        let acts: Vec<_> = less.steps.iter().map(|step| format!("{:?}", step.act)).collect();
        assert_eq!(acts, ["Delete(Thing(1))", "Create(Thing(1), 77)"]);
        assert_eq!((played.wrong.as_deref(), played.lines), (Some("a/one has 2 steps"), vec!["2".to_owned()]));
    }

    #[test]
    fn a_way_to_fail_has_no_names_and_numbers() {
        let fails = |key, version| way(&format!("a run of {key} sees version {version}, one before it has seen 9"));
        assert_eq!(fails(r#"("a", "one")"#, 17), fails(r#"("b", "three")"#, 8));
        assert_ne!(fails(r#"("a", "one")"#, 17), way(r#"("a", "one") runs for nothing"#));
        assert_eq!(way("a/one-kept is left behind"), way("b/two-plain is left behind"));
    }
}

//! Decides whether a controller starts, given how much is known of the kinds that it watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::manifest::OnStartError;

/// A kind, or part of it, that a controller watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Its name for messages: a kind, or the scope of an informer.
    pub what: Arc<str>,
    /// When it is needed.
    pub needed: Needed,
    /// How much of it is known.
    pub fill: Fill,
}

/// When something that is watched is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// In any case.
    Always,
    /// Only by dependents that have an activation condition.
    IfActive,
}

/// How much is known of something that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fill {
    /// All of it is known.
    Filled,
    /// Not all of it is known yet, and nothing has failed.
    UnderWay,
    /// It can't be listed now, for this reason.
    Lacking(Arc<str>),
}

/// The decision about a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The controller starts.
    Start,
    /// The controller waits for this.
    Wait(Obstacle),
    /// The controller does not start, for this reason.
    Fail(Obstacle),
}

/// Something without which a controller is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// What it is, in one sentence.
    pub why: String,
    /// True if that is only being found out or listed, and nothing has failed.
    pub under_way: bool,
}

impl Obstacle {
    /// Returns something that is lacking.
    pub fn lacking(why: impl Into<String>) -> Self {
        Self { why: why.into(), under_way: false }
    }

    /// Returns something that is being found out or listed.
    pub fn under_way(why: impl Into<String>) -> Self {
        Self { why: why.into(), under_way: true }
    }
}

/// Decides whether a controller starts, given what it watches and whether the time to wait for that is up.
pub fn decide(policy: OnStartError, watched: &[Watched], time_is_up: bool) -> Verdict {
    let open = |watched: &&Watched| match (&watched.fill, watched.needed) {
        (Fill::Filled, _) | (Fill::Lacking(_), Needed::IfActive) => false,
        (Fill::UnderWay, Needed::IfActive) => !time_is_up,
        (Fill::UnderWay | Fill::Lacking(_), Needed::Always) => true,
    };
    // What is lacking is told before what may yet come.
    let Some(first) = watched.iter().filter(open).min_by_key(|watched| watched.fill == Fill::UnderWay) else {
        return Verdict::Start;
    };
    match policy {
        OnStartError::GoOn if time_is_up => Verdict::Start,
        OnStartError::Fail if time_is_up => Verdict::Fail(first.obstacle()),
        OnStartError::GoOn | OnStartError::Fail | OnStartError::Wait => Verdict::Wait(first.obstacle()),
    }
}

/// Returns what is listed at once when a controller starts, one stage after another (ES-2): what has the lowest number first,
/// and what has none after all of them.
pub fn stages<T>(all: impl IntoIterator<Item = (Option<u32>, T)>) -> Vec<Vec<T>> {
    let mut stages = BTreeMap::<_, Vec<T>>::new();
    for (priority, one) in all {
        stages.entry((priority.is_none(), priority)).or_default().push(one);
    }
    stages.into_values().collect()
}

impl Watched {
    /// Returns the reason to wait or fail.
    fn obstacle(&self) -> Obstacle {
        let Self { what, fill, .. } = self;
        match fill {
            Fill::Filled => Obstacle::under_way(format!("{what} is known")),
            Fill::UnderWay => Obstacle::under_way(format!("waiting for the first list of {what}")),
            Fill::Lacking(why) => Obstacle::lacking(format!("{what}: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_starts_as_its_manifest_says_once_it_knows_what_it_needs_or_the_time_is_up() {
        // IE-1
        use Needed::{Always, IfActive};
        use OnStartError::{Fail, GoOn, Wait};
        let lacking = || Fill::Lacking("forbidden".into());
        for (needed, fill, early, late) in [
            (Always, Fill::Filled, "start", ["start"; 3]),
            (IfActive, Fill::Filled, "start", ["start"; 3]),
            (Always, Fill::UnderWay, "wait", ["wait", "start", "fail"]),
            (IfActive, Fill::UnderWay, "wait", ["start"; 3]),
            (Always, lacking(), "wait", ["wait", "start", "fail"]),
            (IfActive, lacking(), "start", ["start"; 3]),
        ] {
            let what = "maps".into();
            let watched = [Watched { what, needed, fill }];
            for (policy, late) in [Wait, GoOn, Fail].into_iter().zip(late) {
                for (time_is_up, expected) in [(false, early), (true, late)] {
                    let verdict = match decide(policy, &watched, time_is_up) {
                        Verdict::Start => "start",
                        Verdict::Wait(_) => "wait",
                        Verdict::Fail(_) => "fail",
                    };
                    assert_eq!(verdict, expected, "{policy:?} {watched:?} {time_is_up}");
                }
            }
        }
        assert_eq!(decide(Wait, &[], false), Verdict::Start);
    }

    #[test]
    fn the_lowest_number_comes_first_and_what_has_none_last() {
        // ES-2
        let all = [(None, "primaries"), (Some(7), "themes"), (Some(2), "maps"), (None, "jobs"), (Some(7), "keys")];
        assert_eq!(stages(all), [vec!["maps"], vec!["themes", "keys"], vec!["primaries", "jobs"]]);
        assert_eq!(stages([(None, "primaries"), (None, "jobs")]), [["primaries", "jobs"]]);
    }

    #[test]
    fn what_is_lacking_is_told_before_what_may_yet_come() {
        // IE-1
        use Needed::{Always, IfActive};
        let watched = |what: &str, needed, fill| Watched { what: what.into(), needed, fill };
        let lacking = || Fill::Lacking("forbidden".into());
        for (watched, expected) in [
            (
                vec![watched("a", Always, Fill::UnderWay), watched("b", Always, lacking())],
                Some(("b: forbidden", false)),
            ),
            (
                vec![watched("a", Always, Fill::Filled), watched("b", Always, Fill::UnderWay)],
                Some(("waiting for the first list of b", true)),
            ),
            (vec![watched("a", Always, lacking()), watched("b", Always, lacking())], Some(("a: forbidden", false))),
            (vec![watched("a", IfActive, lacking()), watched("b", Always, Fill::Filled)], None),
        ] {
            for policy in [OnStartError::Wait, OnStartError::Fail] {
                let told = match decide(policy, &watched, true) {
                    Verdict::Start => None,
                    Verdict::Wait(obstacle) | Verdict::Fail(obstacle) => Some(obstacle),
                };
                let told = told.as_ref().map(|told| (told.why.as_str(), told.under_way));
                assert_eq!(told, expected, "{policy:?} {watched:?}");
            }
        }
    }
}

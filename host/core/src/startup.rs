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
    /// True if it is in another cluster than the daemon's.
    pub elsewhere: bool,
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
    /// True if nothing but other clusters is to blame (`CU-7`).
    pub elsewhere: bool,
}

impl Obstacle {
    /// Returns one that is a matter of the daemon, or of its cluster.
    pub fn here(why: impl Into<String>) -> Self {
        Self { why: why.into(), elsewhere: false }
    }
}

/// Decides whether a controller starts, given what it watches and whether the time to wait for that is up.
pub fn decide(policy: OnStartError, watched: &[Watched], time_is_up: bool) -> Verdict {
    let open = |watched: &&Watched| match (&watched.fill, watched.needed) {
        (Fill::Filled, _) | (Fill::Lacking(_), Needed::IfActive) => false,
        (Fill::UnderWay, Needed::IfActive) => !time_is_up,
        (Fill::UnderWay | Fill::Lacking(_), Needed::Always) => true,
    };
    // What other clusters lack hides nothing that is lacking here.
    let mut all: Vec<_> = watched.iter().filter(open).collect();
    all.sort_by_key(|watched| watched.elsewhere);
    let Some(first) = all.first() else {
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
        let Self { what, fill, elsewhere, .. } = self;
        let why = match fill {
            Fill::Filled => format!("{what} is known"),
            Fill::UnderWay => format!("waiting for the first list of {what}"),
            Fill::Lacking(why) => format!("{what}: {why}"),
        };
        Obstacle { why, elsewhere: *elsewhere }
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
            let watched = [Watched { what, needed, fill, elsewhere: false }];
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
    fn other_clusters_are_to_blame_only_if_nothing_is_lacking_here() {
        // CU-7
        use Needed::{Always, IfActive};
        let [here, there] = [false, true].map(|elsewhere| {
            move |needed, fill| Watched {
                what: if elsewhere { "there" } else { "here" }.into(),
                needed,
                fill,
                elsewhere,
            }
        });
        let lacking = || Fill::Lacking("forbidden".into());
        for (watched, expected) in [
            (vec![there(Always, lacking()), here(Always, Fill::Filled)], Some(("there: forbidden", true))),
            (
                vec![there(Always, lacking()), here(Always, Fill::UnderWay)],
                Some(("waiting for the first list of here", false)),
            ),
            (vec![here(Always, lacking()), there(Always, lacking())], Some(("here: forbidden", false))),
            (
                vec![here(IfActive, lacking()), there(Always, Fill::UnderWay)],
                Some(("waiting for the first list of there", true)),
            ),
            (vec![there(IfActive, lacking()), here(Always, Fill::Filled)], None),
        ] {
            for policy in [OnStartError::Wait, OnStartError::Fail] {
                let told = match decide(policy, &watched, true) {
                    Verdict::Start => None,
                    Verdict::Wait(obstacle) | Verdict::Fail(obstacle) => Some(obstacle),
                };
                let told = told.as_ref().map(|told| (told.why.as_str(), told.elsewhere));
                assert_eq!(told, expected, "{policy:?} {watched:?}");
            }
        }
    }
}

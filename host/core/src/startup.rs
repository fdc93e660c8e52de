//! Decides whether a controller starts, given how much is known of the kinds that it watches.

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
    Wait(String),
    /// The controller does not start, for this reason.
    Fail(String),
}

/// Decides whether a controller starts, given what it watches and whether the time to wait for that is up.
pub fn decide(policy: OnStartError, watched: &[Watched], time_is_up: bool) -> Verdict {
    let open = |watched: &&Watched| match (&watched.fill, watched.needed) {
        (Fill::Filled, _) | (Fill::Lacking(_), Needed::IfActive) => false,
        (Fill::UnderWay, Needed::IfActive) => !time_is_up,
        (Fill::UnderWay | Fill::Lacking(_), Needed::Always) => true,
    };
    let Some(first) = watched.iter().find(open) else {
        return Verdict::Start;
    };
    match policy {
        OnStartError::GoOn if time_is_up => Verdict::Start,
        OnStartError::Fail if time_is_up => Verdict::Fail(first.why()),
        OnStartError::GoOn | OnStartError::Fail | OnStartError::Wait => Verdict::Wait(first.why()),
    }
}

impl Watched {
    /// Returns the reason to wait or fail, for messages.
    fn why(&self) -> String {
        let Self { what, fill, .. } = self;
        match fill {
            Fill::Filled => format!("{what} is known"),
            Fill::UnderWay => format!("waiting for the first list of {what}"),
            Fill::Lacking(why) => format!("{what}: {why}"),
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
}

//! Decides whether a controller starts, given what is known of what it watches.

use std::sync::Arc;

use crate::manifest::OnStartError;

/// Something that a controller watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// What it is, for messages: a kind, or the scope of an informer.
    pub what: Arc<str>,
    /// Whether it is needed.
    pub needed: Needed,
    /// What is known of it.
    pub fill: Fill,
}

/// Whether something that is watched is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// In any case.
    Always,
    /// By dependents alone that have an activation condition.
    IfActive,
}

/// What is known of something that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fill {
    /// All of it.
    Filled,
    /// Not all of it yet, and nothing has failed.
    UnderWay,
    /// It can't be listed now.
    Lacking(Arc<str>),
}

/// Whether a controller starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Start,
    /// It waits for this.
    Wait(String),
    /// It does not, for this reason.
    Fail(String),
}

/// Decides from what is watched, and whether the time to wait for it is up.
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
    /// Returns what is wrong with it, for messages.
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

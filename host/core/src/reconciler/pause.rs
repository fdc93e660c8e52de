//! Decides whether a primary is paused, and when that ends by itself (PA).

use std::time::Duration;

use jiff::Timestamp;

use crate::object::Header;
use crate::object::hold::{self, Apart};

/// Why nothing is done for a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The manifest pauses its controller (`PA-2`).
    Controller,
    /// Its annotation says so, until it is removed or changed (`PA-1`).
    Primary,
    /// Its annotation says so, and for how much longer (`PA-1`).
    For(Duration),
    /// Another daemon holds it, or this one does not hold it, which does nothing else; and for how much longer, if a time ends that (`PA-6`).
    Held(Option<Duration>),
    /// Its annotation says neither `true` nor `false` nor a time: whoever set it wants something to stop (`PA-4`).
    Unclear,
}

impl Pause {
    /// Returns why nothing is done for a primary, `None` if something is; from what the manifest says of its controller, the name under which the
    /// daemon holds primaries, if it does nothing else, and the time.
    pub fn of_primary(primary: &Header, controller: bool, holder: Option<&str>, now: Timestamp) -> Option<Self> {
        let apart = || match hold::apart(primary.held.as_deref(), holder, now)? {
            Apart::Held(left) => Some(Self::Held(left)),
            Apart::Unclear => Some(Self::Unclear),
        };
        Self::of(controller, primary.paused.as_deref(), now).or_else(apart)
    }

    /// Returns why a primary is paused, `None` if it is not; from what the manifest says of its controller, the annotation's
    /// value, and the time.
    fn of(controller: bool, annotation: Option<&str>, now: Timestamp) -> Option<Self> {
        if controller {
            return Some(Self::Controller);
        }
        match annotation?.trim() {
            "true" => Some(Self::Primary),
            "false" => None,
            text => match text.parse::<Timestamp>() {
                // A pause that is over is none.
                Ok(end) => {
                    now.duration_until(end).try_into().ok().filter(|left: &Duration| !left.is_zero()).map(Self::For)
                }
                Err(_) => Some(Self::Unclear),
            },
        }
    }

    /// Returns the time after which the primary has to run by itself; `None` if a change ends the pause.
    pub fn left(self) -> Option<Duration> {
        match self {
            Self::For(left) => Some(left),
            Self::Held(left) => left,
            Self::Controller | Self::Primary | Self::Unclear => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_is_paused_by_its_controller_or_by_its_annotation_until_a_time_or_for_good() {
        // PA-1, PA-2, PA-4
        let now: Timestamp = "2026-11-22T10:00:00Z".parse().unwrap();
        let second = Some(Pause::For(Duration::from_secs(1)));
        for (controller, annotation, pause) in [
            (false, None, None),
            (true, None, Some(Pause::Controller)),
            (true, Some("false"), Some(Pause::Controller)),
            (false, Some("true"), Some(Pause::Primary)),
            (false, Some(" true "), Some(Pause::Primary)),
            (false, Some("false"), None),
            (false, Some("2026-11-22T10:00:01Z"), second),
            (false, Some("2026-11-22T11:00:01+01:00"), second),
            (false, Some("2026-11-22T10:00:00Z"), None),
            (false, Some("2020-01-01T00:00:00Z"), None),
            (false, Some(""), Some(Pause::Unclear)),
            (false, Some("yes"), Some(Pause::Unclear)),
            (false, Some("tomorrow"), Some(Pause::Unclear)),
            (false, Some("2026-11-22"), Some(Pause::Unclear)),
        ] {
            assert_eq!(Pause::of(controller, annotation, now), pause, "{controller} {annotation:?}");
        }
    }
}

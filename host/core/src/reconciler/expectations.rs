//! Decides what is expected of a primary: one thing at a time, until it is cleared or replaced (XP rules).

use std::time::Duration;

use tokio::time::Instant;

use crate::guest::{CallError, CallReason, Expectation};

/// The longest name, in bytes.
const LONGEST_NAME: usize = 253;

/// What is expected of one primary.
#[derive(Debug, Default)]
pub struct Expected(Option<Awaited>);

#[derive(Debug)]
struct Awaited {
    name: Box<str>,
    /// When its time is over; `None`: later than any daemon runs.
    until: Option<Instant>,
}

impl Expected {
    /// Expects something from now on, in place of anything else (`XP-1`).
    ///
    /// # Errors
    /// `invalid` for a name that is empty or too long; then what was expected still is.
    pub fn expect(&mut self, name: &str, timeout: Duration, now: Instant) -> Result<(), CallError> {
        if name.is_empty() || name.len() > LONGEST_NAME {
            let message =
                format!("the name of an expectation has {} bytes; it may have 1 to {LONGEST_NAME}", name.len());
            return Err(CallError::new(CallReason::Invalid, message));
        }
        self.0 = Some(Awaited { name: name.into(), until: now.checked_add(timeout) });
        Ok(())
    }

    /// Returns what is expected. It stays when its time is over (`XP-3`).
    pub fn pending(&self, now: Instant) -> Option<Expectation> {
        let Awaited { name, until } = self.0.as_ref()?;
        Some(Expectation { name: name.to_string(), timed_out: until.is_some_and(|until| now >= until) })
    }

    /// Expects nothing more, if this was expected. Returns whether it was.
    pub fn clear(&mut self, name: &str) -> bool {
        let was = self.0.as_ref().is_some_and(|awaited| *awaited.name == *name);
        if was {
            self.0 = None;
        }
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_expected_until_it_is_cleared_or_replaced_whether_or_not_its_time_is_over() {
        // XP-1, XP-3
        let (mut expected, start) = (Expected::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let is = |name: &str, timed_out| Some(Expectation { name: name.to_owned(), timed_out });
        assert_eq!(expected.pending(start), None);
        assert_eq!(expected.expect("ready", Duration::from_millis(100), start), Ok(()));
        assert_eq!(expected.pending(at(99)), is("ready", false));
        assert_eq!(expected.pending(at(100)), is("ready", true));
        assert_eq!(expected.pending(at(5_000)), is("ready", true), "it is kept");
        assert_eq!(expected.expect("gone", Duration::from_millis(100), at(100)), Ok(()));
        assert_eq!(expected.pending(at(150)), is("gone", false));
        assert!(!expected.clear("ready"));
        assert!(expected.clear("gone"));
        assert_eq!((expected.pending(at(150)), expected.clear("gone")), (None, false));
    }

    #[test]
    fn a_name_is_bounded_and_no_time_is_too_long() {
        let (mut expected, now) = (Expected::default(), Instant::now());
        assert_eq!(expected.expect("ready", Duration::MAX, now), Ok(()));
        for name in [String::new(), "x".repeat(254)] {
            let refused = expected.expect(&name, Duration::ZERO, now).unwrap_err();
            let said = format!("the name of an expectation has {} bytes; it may have 1 to 253", name.len());
            assert_eq!((refused.reason, refused.message), (CallReason::Invalid, said));
        }
        assert_eq!(expected.pending(now), Some(Expectation { name: "ready".to_owned(), timed_out: false }));
    }
}

//! Decides how long to wait before something is tried again: longer each time, and never quite the same.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use capstan_core::cluster::Error;

/// The first pause.
const FIRST: Duration = Duration::from_secs(1);

/// The longest while the API server is away: once it is back, nobody should have to wait for long.
const LONGEST_AWAY: Duration = Duration::from_secs(4);

/// The pauses between the tries of something.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    next: Duration,
    longest: Duration,
}

impl Pause {
    /// Returns the pauses of something that waits for a change at the API server for at most so long.
    pub const fn up_to(longest: Duration) -> Self {
        Self {
            next: FIRST,
            longest,
        }
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        self.next = FIRST;
    }

    /// Returns the pause after this error.
    pub fn after(&mut self, error: &Error) -> Duration {
        self.within(if error.is_outage() {
            LONGEST_AWAY.min(self.longest)
        } else {
            self.longest
        })
    }

    /// Returns the pause after an answer that is not the one that is waited for.
    pub fn longer(&mut self) -> Duration {
        self.within(self.longest)
    }

    /// Returns the pause after something that ended too soon.
    pub fn briefly(&mut self) -> Duration {
        self.within(LONGEST_AWAY)
    }

    fn within(&mut self, longest: Duration) -> Duration {
        let pause = self.next.min(longest);
        self.next = (pause * 2).min(self.longest);
        jitter(pause)
    }
}

/// Returns a time from one half to the whole of this one, by chance.
pub fn jitter(whole: Duration) -> Duration {
    let [a, b, ..] = RandomState::new().hash_one(()).to_le_bytes();
    whole.mul_f64(0.5 + f64::from(u16::from_le_bytes([a, b])) / f64::from(u16::MAX) / 2.0)
}

#[cfg(test)]
mod tests {
    use capstan_core::cluster::Reason;

    use super::*;

    #[test]
    fn pauses_grow_to_four_seconds_in_an_outage_and_to_their_longest_otherwise() {
        for (reason, longest) in [
            (Reason::Unreachable, 4),
            (Reason::Busy, 4),
            (Reason::Forbidden, 32),
        ] {
            let error = Error::new(reason, 0, "");
            let mut pause = Pause::up_to(Duration::from_secs(32));
            for seconds in [1, 2, 4, 8, 16, 32, 64] {
                let whole = Duration::from_secs(seconds.min(longest));
                let found = pause.after(&error);
                assert!(
                    found <= whole && found >= whole / 2,
                    "{found:?} of {whole:?}"
                );
            }
        }
    }

    #[test]
    fn pauses_are_not_the_same() {
        let pauses: std::collections::BTreeSet<_> = (0..100).map(|_| jitter(FIRST)).collect();
        assert!(pauses.len() > 90, "{}", pauses.len());
    }
}

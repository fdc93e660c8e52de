//! Decides how long to wait before something is tried again: longer each time, and never quite the same.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use capstan_core::backoff::shorter;
use capstan_core::cluster::Error;
use tokio::time::{Instant, sleep_until};

/// The first pause.
const FIRST: Duration = Duration::from_secs(1);

/// The longest pause while the API server is away: once it is back, no caller should have to wait for long.
const LONGEST_AWAY: Duration = Duration::from_secs(4);

/// Draws the numbers by which pauses differ: from 0 to 1, another one each time.
#[derive(Clone)]
pub struct Chance {
    draw: Arc<dyn Fn(&str) -> f64 + Send + Sync>,
    whose: Arc<str>,
}

/// The pauses between tries of the same request.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
    longest: Duration,
    chance: Chance,
}

impl Chance {
    /// Returns a `Chance` that draws its numbers from `draw`, which gets the name of the caller that they are for.
    pub fn new(draw: impl Fn(&str) -> f64 + Send + Sync + 'static) -> Self {
        Self { draw: Arc::new(draw), whose: "".into() }
    }

    /// Returns the same for the caller `whose`. So the numbers of a caller need not depend on which caller draws
    /// first.
    pub fn of(&self, whose: &str) -> Self {
        Self { draw: Arc::clone(&self.draw), whose: whose.into() }
    }

    /// Returns a random number from 0 to 1.
    pub fn share(&self) -> f64 {
        (self.draw)(&self.whose).clamp(0.0, 1.0)
    }

    /// Returns a random time from half of `whole` to all of it.
    pub fn jitter(&self, whole: Duration) -> Duration {
        shorter(whole, 0.5, 1.0 - self.share())
    }
}

impl Default for Chance {
    /// Returns a `Chance` whose numbers can't be predicted.
    fn default() -> Self {
        Self::new(|_| {
            let [a, b, ..] = RandomState::new().hash_one(()).to_le_bytes();
            f64::from(u16::from_le_bytes([a, b])) / f64::from(u16::MAX)
        })
    }
}

impl fmt::Debug for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chance")
    }
}

/// Waits until then; for ever without a time.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl Backoff {
    /// Returns pauses that grow up to `longest`, for a caller that waits for a change at the API server.
    pub fn up_to(longest: Duration, chance: &Chance) -> Self {
        Self { next: FIRST, longest, chance: chance.clone() }
    }

    /// Begins again with the first pause.
    pub fn reset(&mut self) {
        self.next = FIRST;
    }

    /// Returns the pause after this error, which is no shorter than the API server asks for.
    pub fn after(&mut self, error: &Error) -> Duration {
        let pause = self.within(if error.is_outage() { LONGEST_AWAY.min(self.longest) } else { self.longest });
        let asked = error.retry_after.unwrap_or_default();
        pause.max(asked + self.chance.jitter(asked) / 2)
    }

    /// Returns the pause after an answer that is not the awaited one.
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
        self.chance.jitter(pause)
    }
}

#[cfg(test)]
mod tests {
    use capstan_core::cluster::Reason;

    use super::*;

    #[test]
    fn pauses_grow_to_four_seconds_in_an_outage_and_to_their_longest_otherwise() {
        // IE-3
        for (reason, longest) in [(Reason::Unreachable, 4), (Reason::Busy, 4), (Reason::Forbidden, 32)] {
            let error = Error::new(reason, 0, "");
            let mut pause = Backoff::up_to(Duration::from_secs(32), &Chance::default());
            for seconds in [1, 2, 4, 8, 16, 32, 64] {
                let whole = Duration::from_secs(seconds.min(longest));
                let found = pause.after(&error);
                assert!(found <= whole && found >= whole / 2, "{found:?} of {whole:?}");
            }
        }
    }

    #[test]
    fn a_pause_is_no_shorter_than_the_api_server_asks_for() {
        // EP-34
        let mut busy = Error::new(Reason::Busy, 429, "");
        busy.retry_after = Some(Duration::from_mins(1));
        let mut pause = Backoff::up_to(Duration::from_secs(32), &Chance::default());
        let found = pause.after(&busy);
        assert!((75..=90).contains(&found.as_secs()), "{found:?}");
    }

    #[test]
    fn a_hundred_callers_do_not_come_back_in_step() {
        // IE-3
        let away = Error::new(Reason::Unreachable, 0, "");
        let pauses: [fn(&mut Backoff, &Error) -> Duration; 3] =
            [Backoff::after, |pause, _| pause.longer(), |pause, _| pause.briefly()];
        for pause in pauses {
            let mut callers = vec![Backoff::up_to(Duration::from_secs(32), &Chance::default()); 100];
            for _ in 0..6 {
                let different: std::collections::BTreeSet<_> =
                    callers.iter_mut().map(|caller| pause(caller, &away)).collect();
                assert!(different.len() > 90, "{different:?}");
            }
        }
    }
}

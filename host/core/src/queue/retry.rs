//! Decides how long a failed key waits before it is retried, and how many times (RT).

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::{grown, shorter};
use crate::guest::{FailureClass, RetryInfo};
use crate::manifest::Retry;

/// The retries of a key since its last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempts {
    /// The number of delays handed out so far.
    consumed: u32,
    /// The end of the last delay; `None` before the first.
    until: Option<Instant>,
    /// The class of the failure that the last delay follows.
    class: FailureClass,
}

/// What a failure says of the delay that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    /// Its class.
    pub(super) class: FailureClass,
    /// True if the component says the delay.
    pub(super) said: bool,
}

impl Attempts {
    /// Returns those of a run that was told of so many attempts.
    pub(super) fn told(attempt: u32) -> Self {
        Self { consumed: attempt, ..Self::default() }
    }

    /// Returns the retry state for the next run, if a failure may be retried by any of these policies. Before the first
    /// delay, it is what an error handler sees on a fresh run (`EC-2`).
    pub(super) fn info<'r>(self, retries: impl IntoIterator<Item = &'r Retry>) -> RetryInfo {
        // RT-3; without a retry policy, the first run is the last.
        let last = retries.into_iter().all(|retry| retry.max_attempts.is_some_and(|max| self.consumed >= max));
        RetryInfo { attempt: self.consumed, last }
    }

    /// Consumes an attempt and returns the delay before it, which `delay` says for its number; `None` if all attempts are
    /// used up.
    pub(super) fn consume(
        &mut self,
        (retry, cause): (&Retry, Cause),
        now: Instant,
        delay: impl FnOnce(u32) -> Duration,
    ) -> Option<Duration> {
        if self.info(Some(retry)).last {
            return None;
        }
        self.consumed = self.consumed.saturating_add(1);
        Some(self.wait(cause, now, delay))
    }

    /// Returns how long a key waits on that has failed during a delay, for which no attempt is consumed (EP-33): for the
    /// rest of it, or, as a delay belongs to the last failure, for as long as `delay` says of the same attempt if this
    /// failure is of another class, or the component says a delay; `None` if its class has no such attempt.
    pub(super) fn resume(
        &mut self,
        (retry, cause): (&Retry, Cause),
        now: Instant,
        delay: impl FnOnce(u32) -> Duration,
    ) -> Option<Duration> {
        if cause.class == self.class && !cause.said {
            return Some(self.left(now));
        }
        if retry.max_attempts.is_some_and(|max| self.consumed > max) {
            self.end_delay();
            return None;
        }
        Some(self.wait(cause, now, delay))
    }

    fn wait(&mut self, cause: Cause, now: Instant, delay: impl FnOnce(u32) -> Duration) -> Duration {
        let delay = delay(self.consumed).min(super::FOREVER);
        (self.until, self.class) = (Some(now + delay), cause.class);
        delay
    }

    /// Takes in that the last failure is followed by no delay.
    pub(super) fn end_delay(&mut self) {
        self.until = None;
    }

    /// Returns the rest of the last delay: zero before the first delay, and after the end of the last.
    pub(super) fn left(self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

/// Returns the delay before the retry of this number, counted from one. The second is as long as the first (`RT-2`).
/// `chance` is a number from 0 to 1.
pub(super) fn delay(retry: &Retry, number: u32, chance: f64) -> Duration {
    let longest = retry.max_interval.unwrap_or(super::FOREVER).min(super::FOREVER);
    let delay = grown(retry.initial_interval, retry.multiplier, number.saturating_sub(2), longest);
    shorter(delay, retry.jitter, chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSE: Cause = Cause { class: FailureClass::Other, said: false };

    fn sequence(retry: &Retry, length: usize) -> Vec<u128> {
        let mut attempts = Attempts::default();
        let delays = std::iter::from_fn(|| attempts.consume((retry, CAUSE), Instant::now(), |n| delay(retry, n, 1.0)));
        delays.take(length).map(|delay| delay.as_millis()).collect()
    }

    #[test]
    fn delays_follow_the_policy() {
        let ms = Duration::from_millis;
        let usual = Retry::default();
        let every_10_s =
            Retry { initial_interval: ms(10_000), multiplier: 1.0, max_attempts: Some(10), ..usual.clone() };
        let table = [
            // RT-2
            (usual.clone(), vec![2000, 2000, 3000, 4500, 6750]),
            // RT-1: the cap
            (
                Retry { max_attempts: Some(9), ..usual.clone() },
                vec![2000, 2000, 3000, 4500, 6750, 10_125, 15_187, 15_187, 15_187],
            ),
            (Retry { max_interval: Some(ms(2500)), ..usual.clone() }, vec![2000, 2000, 2500, 2500, 2500]),
            (Retry { max_interval: Some(ms(1500)), ..usual.clone() }, vec![1500; 5]),
            // RT-1: unlimited
            (Retry { max_attempts: None, max_interval: Some(ms(1000)), ..usual.clone() }, vec![1000; 12]),
            (Retry { max_attempts: Some(0), ..usual.clone() }, vec![]),
            // RT-4
            (every_10_s, vec![10_000; 10]),
            (Retry { initial_interval: ms(150), multiplier: 1.0, ..usual.clone() }, vec![150; 5]),
            // A share of each delay, at most
            (Retry { jitter: 0.5, ..usual.clone() }, vec![1000, 1000, 1500, 2250, 3375]),
            (Retry { jitter: 1.0, max_attempts: Some(2), ..usual }, vec![0, 0]),
        ];
        for (retry, delays) in table {
            assert_eq!(sequence(&retry, 12), delays, "{retry:?}");
        }
    }

    #[test]
    fn no_policy_makes_a_delay_overflow() {
        let wild = |multiplier| Retry { multiplier, max_attempts: None, max_interval: None, ..Retry::default() };
        for retry in [wild(1e300), wild(f64::INFINITY), wild(f64::NAN), wild(-2.0)] {
            let mut attempts = Attempts::told(u32::MAX - 1);
            let now = Instant::now();
            assert!(
                attempts
                    .consume((&retry, CAUSE), now, |n| delay(&retry, n, 0.0))
                    .is_some_and(|delay| delay <= super::super::FOREVER)
            );
            assert!(attempts.consume((&retry, CAUSE), now, |n| delay(&retry, n, 0.0)).is_some());
        }
    }

    #[test]
    fn the_last_attempt_is_known_as_such() {
        // RT-3
        let retry = Retry { max_attempts: Some(2), ..Retry::default() };
        let mut attempts = Attempts::default();
        let mut seen = vec![attempts.info(Some(&retry))];
        while attempts.consume((&retry, CAUSE), Instant::now(), |_| Duration::ZERO).is_some() {
            seen.push(attempts.info(Some(&retry)));
        }
        let info = |attempt, last| RetryInfo { attempt, last };
        assert_eq!(seen, [info(0, false), info(1, false), info(2, true)]);
        // EC-2
        let none = Retry { max_attempts: Some(0), ..Retry::default() };
        assert_eq!(Attempts::default().info(Some(&none)), info(0, true));
        assert_eq!(Attempts::default().info(None), info(0, true));
    }

    #[test]
    fn nothing_is_left_before_the_first_delay_and_after_its_end() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        assert_eq!(attempts.left(now), Duration::ZERO);
        attempts.consume((&Retry::default(), CAUSE), now, |_| Duration::from_secs(2));
        assert_eq!(attempts.left(now + Duration::from_millis(500)), Duration::from_millis(1500));
        assert_eq!(attempts.left(now + Duration::from_secs(3)), Duration::ZERO);
    }
}

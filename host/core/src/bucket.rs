//! Decides how long an action with a rate limit waits: a token bucket with a rate and a burst.

use std::time::Duration;

use tokio::time::Instant;

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The time in which one token comes back.
    pub interval: Duration,
    /// The number of tokens in a full bucket.
    pub burst: u32,
}

/// A token bucket: each action takes one token, and one comes back per interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket {
    /// When all tokens are back; `None` at the beginning.
    full: Option<Instant>,
}

impl Rate {
    /// Returns a rate of `times` a second, with a burst of five times as many.
    pub fn per_second(times: u32) -> Self {
        let times = times.max(1);
        Self { interval: Duration::from_secs(1) / times, burst: times.saturating_mul(5) }
    }
}

impl Bucket {
    /// Takes a token, which may be a future one, and returns the time until it is there.
    pub fn take(&mut self, rate: Rate, now: Instant) -> Duration {
        self.take_many(1, rate, now)
    }

    /// Takes this number of tokens, which may be future ones, and returns the time until they are there.
    pub fn take_many(&mut self, tokens: u32, rate: Rate, now: Instant) -> Duration {
        let full = self.full.map_or(now, |full| full.max(now)) + rate.interval.saturating_mul(tokens);
        self.full = Some(full);
        (full - now).saturating_sub(rate.interval.saturating_mul(rate.burst.max(1)))
    }

    /// Takes this number of tokens if all of them are there, and returns whether they were.
    pub fn take_now(&mut self, tokens: u32, rate: Rate, now: Instant) -> bool {
        let begin = self.full.map_or(now, |full| full.max(now));
        let full = begin + rate.interval.saturating_mul(tokens);
        let there = full - now <= rate.interval.saturating_mul(rate.burst);
        if there {
            self.full = Some(full);
        }
        there
    }

    /// Returns true if all tokens are there.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full.is_none_or(|full| full <= now)
    }

    /// Takes a token if it is there within `longest`, and returns the time until then; `None` otherwise.
    pub fn take_within(&mut self, rate: Rate, longest: Duration, now: Instant) -> Option<Duration> {
        let mut taken = *self;
        let wait = taken.take(rate, now);
        (wait <= longest).then(|| {
            *self = taken;
            wait
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { interval: Duration::from_millis(100), burst: 3 };

    #[test]
    fn many_tokens_are_waited_for_as_long_as_each_alone() {
        let (mut bucket, mut one_by_one, start) = (Bucket::default(), Bucket::default(), Instant::now());
        for (ms, tokens, wait) in [(0, 2, 0), (0, 2, 100), (100, 5, 500), (1000, 0, 0), (1000, 3, 0)] {
            let now = start + Duration::from_millis(ms);
            assert_eq!(bucket.take_many(tokens, RATE, now), Duration::from_millis(wait), "{ms}");
            let each = (0..tokens).map(|_| one_by_one.take(RATE, now)).last();
            assert_eq!(each.unwrap_or_default(), Duration::from_millis(wait), "{ms}");
        }
    }

    #[test]
    fn tokens_that_are_not_all_there_are_not_taken() {
        let (mut bucket, start) = (Bucket::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        // A script of (milliseconds, tokens, taken).
        for (ms, tokens, taken) in [
            (0, 4, false),
            (0, u32::MAX, false),
            (0, 2, true),
            (0, 2, false),
            (0, 1, true),
            (199, 2, false),
            (200, 2, true),
        ] {
            assert_eq!(bucket.take_now(tokens, RATE, at(ms)), taken, "{ms} {tokens}");
        }
        assert!(!bucket.is_full(at(499)) && bucket.is_full(at(500)));
    }

    #[test]
    fn a_bucket_gives_its_tokens_at_once_and_then_one_per_interval() {
        let (mut bucket, start) = (Bucket::default(), Instant::now());
        // A script of (milliseconds, wait).
        for (at, wait) in
            [(0, 0), (0, 0), (0, 0), (0, 100), (0, 200), (250, 50), (1000, 0), (1000, 0), (1000, 0), (1000, 100)]
        {
            let now = start + Duration::from_millis(at);
            assert_eq!(bucket.take(RATE, now), Duration::from_millis(wait), "at {at}");
        }
    }

    #[test]
    fn what_would_wait_too_long_takes_nothing() {
        let (mut bucket, now) = (Bucket::default(), Instant::now());
        let mut take = |ms| bucket.take_within(RATE, Duration::from_millis(ms), now);
        assert_eq!([take(0), take(0), take(0)], [Some(Duration::ZERO); 3]);
        assert_eq!([take(0), take(99)], [None; 2]);
        assert_eq!(take(100), Some(Duration::from_millis(100)));
    }
}

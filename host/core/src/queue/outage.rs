//! Decides when keys run again that failed because the API server could not be reached, was too busy, or failed
//! itself.
//!
//! However many keys wait, only a few of them try each second, so that a server that is down or comes back is not
//! overloaded. The first key that gets an answer brings the others forward, spread over a short time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::{doubled, shorter};
use crate::object::ObjectRef;

/// The longest pause of a key after its first such failure; each further one is twice as long, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(500);

/// The longest pause of a key that waits alone: once the server is back, the key runs after a few seconds at most.
const LONGEST: Duration = Duration::from_secs(4);

/// The pause for each key that waits, so that about four try each second.
const STEP: Duration = Duration::from_millis(333);

/// The longest pause of a key among many: each tries at least this often.
const FARTHEST: Duration = Duration::from_mins(1);

/// The time over which the keys are spread once the server works again.
const SPREAD: Duration = Duration::from_secs(2);

/// The keys of a controller that wait for the API server.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// Their number, those in flight included.
    pub(super) waiting: usize,
    /// The end of the spreading that is under way.
    spreading: Option<Instant>,
}

impl Outage {
    /// Returns the time that a key waits after this number of such failures in a row.
    pub(super) fn pause(&self, key: &ObjectRef, failures: u32) -> Duration {
        let own = doubled(FIRST, failures, LONGEST);
        let waiting = u32::try_from(self.waiting).unwrap_or(u32::MAX);
        let longest = STEP.saturating_mul(waiting).min(FARTHEST).max(own);
        shorter(longest, 0.5, 1.0 - share(key, failures))
    }

    /// Takes in that the API server works again. Returns true if keys are to be brought forward: not while an earlier
    /// spreading is under way.
    pub(super) fn end(&mut self, now: Instant) -> bool {
        if self.waiting == 0 || self.spreading.is_some_and(|until| until > now) {
            return false;
        }
        self.waiting = 0;
        self.spreading = Some(now + SPREAD);
        true
    }

    /// Returns the time at which a key runs that is brought forward.
    pub(super) fn place(key: &ObjectRef, now: Instant) -> Instant {
        now + SPREAD.mul_f64(share(key, 0))
    }
}

/// Returns a number from 0 to 1 that looks random, but is the same for the same input, so that tests are repeatable.
pub(super) fn share(key: &ObjectRef, salt: u32) -> f64 {
    let mut hasher = DefaultHasher::new();
    (key, salt).hash(&mut hasher);
    let [a, b, ..] = hasher.finish().to_le_bytes();
    f64::from(u16::from_le_bytes([a, b])) / f64::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    fn key(number: usize) -> ObjectRef {
        ObjectRef::cluster(&format!("k{number}"))
    }

    /// Returns the times within three minutes at which this many keys try, all of which have failed at the start.
    fn tries(waiting: usize) -> Vec<Duration> {
        let (mut outage, mut due) = (Outage::default(), BinaryHeap::new());
        for n in 0..waiting {
            outage.waiting = n;
            due.push(Reverse((outage.pause(&key(n), 1), n, 1)));
        }
        let mut tries = Vec::new();
        while let Some(Reverse((at, n, failures))) = due.pop() {
            if at < Duration::from_mins(3) {
                tries.push(at);
                due.push(Reverse((at + outage.pause(&key(n), failures + 1), n, failures + 1)));
            }
        }
        tries
    }

    #[test]
    fn somebody_tries_every_few_seconds_and_never_many_at_once() {
        for (waiting, longest_gap, most_per_second) in [(1, 4, 2), (3, 4, 6), (20, 3, 20), (150, 3, 20), (3000, 3, 200)]
        {
            let tries = tries(waiting);
            let later = || tries.iter().skip_while(|at| at.as_secs() < 1);
            let gap = later().zip(later().skip(1)).map(|(a, b)| b.saturating_sub(*a)).max();
            assert!(gap.unwrap() <= Duration::from_secs(longest_gap), "{waiting}: {gap:?}");
            let most = (0..180).map(|s| tries.iter().filter(|at| at.as_secs() == s).count()).max();
            assert!(most.unwrap() <= most_per_second, "{waiting}: {most:?}");
        }
    }

    #[test]
    fn those_that_waited_are_spread_over_two_seconds_once() {
        let (mut outage, now) = (Outage::default(), Instant::now());
        assert!(!outage.end(now), "nobody waits");
        outage.waiting = 1000;
        assert!(outage.end(now));
        let mut tenths = [0; 21];
        for n in 0..1000 {
            let place = Outage::place(&key(n), now) - now;
            tenths[usize::try_from(place.as_millis() / 100).unwrap()] += 1;
        }
        assert!(tenths[..20].iter().all(|n| (20..90).contains(n)), "{tenths:?}");
        outage.waiting = 10;
        assert!(!outage.end(now + SPREAD / 2), "once is enough");
        assert!(outage.end(now + SPREAD));
    }
}

//! Decides from its answers whether the API server works: when to send a probe, when it is down, when it is back.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The silence after which the API server is sent a probe.
const QUIET: Duration = Duration::from_secs(5);

/// The time between two probes while there is no answer.
const AGAIN: Duration = Duration::from_secs(1);

/// The time after which failures and missing answers are reported.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time for which failing writes are reported after the last of them: a key whose writes fail is retried sooner.
const MEMORY: Duration = Duration::from_secs(30);

/// The state of the API server, as far as it is known.
#[derive(Debug)]
pub struct Health {
    /// The time of the last sign of life: an answer, or an event of a watch.
    heard: Instant,
    /// The time of the last probe.
    asked: Instant,
    /// True if a probe had no answer and there was no sign of life since.
    down: bool,
    /// The last failure; `None` if there was none since the last sign of life.
    why: Option<String>,
    writes: Writes,
}

/// The state of writes.
#[derive(Debug, Default)]
struct Writes {
    /// When the writes under way began, by their number.
    waiting: BTreeMap<u64, Instant>,
    number: u64,
    /// When a write was answered last.
    answered: Option<Instant>,
    /// The failures since the last answer.
    failures: Option<Failures>,
}

/// Failed writes without an answered one between them.
#[derive(Debug)]
struct Failures {
    first: Instant,
    last: Instant,
    why: String,
}

/// The result of a sign of life: was the API server down until now?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It was not down.
    Usual,
    /// It was down, and is back.
    Back,
}

impl Health {
    /// Returns the state at the start: the API server works.
    pub fn new(now: Instant) -> Self {
        Self { heard: now, asked: now, down: false, why: None, writes: Writes::default() }
    }

    /// Records a sign of life.
    pub fn heard(&mut self, now: Instant) -> Sign {
        self.heard = now;
        self.why = None;
        if std::mem::take(&mut self.down) { Sign::Back } else { Sign::Usual }
    }

    /// Records that a request failed because the API server could not be reached, was too busy, or failed itself.
    pub fn failed(&mut self, why: &str) {
        self.why = Some(why.to_owned());
    }

    /// Records that a write begins, and returns its number.
    pub fn begin_write(&mut self, now: Instant) -> u64 {
        let Writes { waiting, number, .. } = &mut self.writes;
        *number += 1;
        waiting.insert(*number, now);
        *number
    }

    /// Records that a write is over: answered, failed for this reason, or cancelled by its caller (`None`).
    pub fn end_write(&mut self, number: u64, ended: Option<Result<(), &str>>, now: Instant) {
        let writes = &mut self.writes;
        writes.waiting.remove(&number);
        match ended {
            None => {}
            Some(Ok(())) => {
                writes.answered = Some(now);
                writes.failures = None;
            }
            Some(Err(why)) => {
                let first = writes.failures.as_ref().map_or(now, |failures| failures.first);
                writes.failures = Some(Failures { first, last: now, why: why.to_owned() });
            }
        }
    }

    /// Returns true if the last that was heard of it is that it did not answer, or failed.
    pub fn falters(&self) -> bool {
        self.why.is_some()
    }

    /// Returns when to send the next probe, unless a sign of life comes before.
    pub fn asks_at(&self) -> Instant {
        (self.heard + QUIET).max(self.asked + AGAIN)
    }

    /// Records that a probe is sent.
    pub fn asking(&mut self, now: Instant) {
        self.asked = now;
    }

    /// Records that a probe had no answer. Returns true if the API server is down from now on; false if it was down
    /// already, or has given another sign of life since.
    pub fn silent(&mut self, why: &str) -> bool {
        if self.heard > self.asked {
            return false;
        }
        self.failed(why);
        !std::mem::replace(&mut self.down, true)
    }

    /// Returns the trouble that lasts for so long that it has to be reported; `None` if there is none.
    pub fn trouble(&self, now: Instant) -> Option<String> {
        let quiet = now.saturating_duration_since(self.heard);
        if quiet > PATIENCE {
            let why = self.why.as_deref().unwrap_or("requests are not answered");
            return Some(format!("nothing heard of it for {} s: {why}", quiet.as_secs()));
        }
        let Writes { waiting, answered, failures, .. } = &self.writes;
        if let Some(Failures { first, last, why }) = failures {
            let lasts = now.saturating_duration_since(*first);
            if lasts > PATIENCE && now.saturating_duration_since(*last) < MEMORY {
                return Some(format!("all writes fail for {} s: {why}", lasts.as_secs()));
            }
        }
        let oldest = waiting.values().next()?;
        let waits = now.saturating_duration_since(*oldest);
        let overtaken = answered.is_some_and(|answered| answered > *oldest);
        (waits > PATIENCE && !overtaken).then(|| format!("writes are not answered for {} s", waits.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn who_is_heard_is_not_asked_and_who_is_not_is_asked_each_second() {
        let start = Instant::now();
        let mut health = Health::new(start);
        assert_eq!(health.asks_at(), at(start, 5));
        health.heard(at(start, 4));
        assert_eq!(health.asks_at(), at(start, 9));
        health.asking(at(start, 9));
        assert_eq!(health.asks_at(), at(start, 10));
        health.heard(at(start, 9));
        assert_eq!(health.asks_at(), at(start, 14));
    }

    #[test]
    fn who_was_silent_when_asked_is_back_once_with_the_next_sign() {
        let start = Instant::now();
        let mut health = Health::new(start);
        assert!(!health.falters());
        health.failed("refused");
        assert!(health.falters());
        assert_eq!(health.heard(at(start, 6)), Sign::Usual, "a failure alone is no silence");
        health.asking(at(start, 7));
        assert_eq!([health.silent("refused"), health.silent("refused")], [true, false]);
        assert_eq!(health.heard(at(start, 8)), Sign::Back);
        assert_eq!(health.heard(at(start, 9)), Sign::Usual);
        assert!(!health.silent("too late"), "there was a sign since it was asked");
    }

    #[test]
    fn silence_is_told_after_ten_seconds_with_its_reason() {
        let start = Instant::now();
        let mut health = Health::new(start);
        assert_eq!(health.trouble(at(start, 10)), None);
        let text = "nothing heard of it for 11 s: requests are not answered";
        assert_eq!(health.trouble(at(start, 11)).as_deref(), Some(text));
        health.failed("refused");
        let text = "nothing heard of it for 12 s: refused";
        assert_eq!(health.trouble(at(start, 12)).as_deref(), Some(text));
        health.heard(at(start, 12));
        assert_eq!(health.trouble(at(start, 13)), None);
    }

    #[test]
    fn writes_that_fail_are_told_while_everything_else_works() {
        let start = Instant::now();
        let mut health = Health::new(start);
        let mut write = |second, ended| {
            let now = at(start, second);
            health.heard(now);
            let number = health.begin_write(now);
            health.end_write(number, Some(ended), now);
            health.trouble(now)
        };
        assert_eq!(write(1, Err("HTTP 503")), None);
        assert_eq!(write(11, Err("HTTP 503")), None);
        let text = "all writes fail for 11 s: HTTP 503";
        assert_eq!(write(12, Err("HTTP 503")).as_deref(), Some(text));
        assert_eq!(write(13, Ok(())), None);
        assert_eq!(write(24, Err("HTTP 503")), None);
        write(35, Err("HTTP 503"));
        health.heard(at(start, 70));
        assert_eq!(health.trouble(at(start, 70)), None, "nobody writes any more");
    }

    #[test]
    fn writes_that_hang_are_told_unless_others_overtake_them() {
        let start = Instant::now();
        let mut health = Health::new(start);
        let slow = health.begin_write(start);
        health.heard(at(start, 11));
        let text = "writes are not answered for 11 s";
        assert_eq!(health.trouble(at(start, 11)).as_deref(), Some(text));
        let quick = health.begin_write(at(start, 11));
        health.end_write(quick, Some(Ok(())), at(start, 11));
        assert_eq!(health.trouble(at(start, 12)), None);
        health.end_write(slow, None, at(start, 12));
        health.heard(at(start, 30));
        assert_eq!(health.trouble(at(start, 30)), None);
    }
}

//! Decides whether the API server does its work, from what is heard of it: when to ask, when it is down, when it is back.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// With nothing heard for so long, the API server is asked for a sign of life.
const QUIET: Duration = Duration::from_secs(5);

/// How often it is asked while it gives none.
const AGAIN: Duration = Duration::from_secs(1);

/// What fails or goes unanswered for longer than this is told.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes that fail are told for so long after the last: who waits for them tries again sooner.
const MEMORY: Duration = Duration::from_secs(30);

/// What is known of the API server.
#[derive(Debug)]
pub struct Health {
    /// The last sign of life: an answer, or something on a watch.
    heard: Instant,
    /// When it was asked for one.
    asked: Instant,
    /// Whether it gave none when asked.
    down: bool,
    /// What went wrong last; none if nothing did since the last sign of life.
    why: Option<String>,
    writes: Writes,
}

/// What is known of writes.
#[derive(Debug, Default)]
struct Writes {
    /// Those under way, by number: when they began.
    waiting: BTreeMap<u64, Instant>,
    number: u64,
    /// When one was answered last.
    answered: Option<Instant>,
    /// Those that failed since.
    failures: Option<Failures>,
}

/// Failures without an answer between them.
#[derive(Debug)]
struct Failures {
    first: Instant,
    last: Instant,
    why: String,
}

/// Whether the API server was down until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It was not.
    Usual,
    /// It was.
    Back,
}

impl Health {
    /// Returns what is known at the start: nothing bad.
    pub fn new(now: Instant) -> Self {
        Self { heard: now, asked: now, down: false, why: None, writes: Writes::default() }
    }

    /// Takes in a sign of life.
    pub fn heard(&mut self, now: Instant) -> Sign {
        self.heard = now;
        self.why = None;
        if std::mem::take(&mut self.down) { Sign::Back } else { Sign::Usual }
    }

    /// Takes in that a request failed because the API server was away, too busy, or failed itself.
    pub fn failed(&mut self, why: &str) {
        self.why = Some(why.to_owned());
    }

    /// Takes in that a write begins, and returns its number.
    pub fn begin_write(&mut self, now: Instant) -> u64 {
        let Writes { waiting, number, .. } = &mut self.writes;
        *number += 1;
        waiting.insert(*number, now);
        *number
    }

    /// Takes in that a write is over: answered, failed for this reason, or given up by who wanted it (none).
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

    /// Returns when to ask for a sign of life, unless one comes before.
    pub fn asks_at(&self) -> Instant {
        (self.heard + QUIET).max(self.asked + AGAIN)
    }

    /// Takes in that it is asked.
    pub fn asking(&mut self, now: Instant) {
        self.asked = now;
    }

    /// Takes in that it did not answer when asked. Says whether that is news: not if it is down already, or has given another
    /// sign since.
    pub fn silent(&mut self, why: &str) -> bool {
        if self.heard > self.asked {
            return false;
        }
        self.failed(why);
        !std::mem::replace(&mut self.down, true)
    }

    /// Says what is wrong for so long that somebody should know.
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
        health.failed("refused");
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

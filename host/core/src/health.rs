//! Decides from its answers whether the API server works: when to send a probe, when it is down, when it is back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

mod requests;

use requests::Requests;

/// The silence after which the API server is sent a probe.
const QUIET: Duration = Duration::from_secs(5);

/// The time between two probes while there is no answer.
const AGAIN: Duration = Duration::from_secs(1);

/// The time after which failures and missing answers are reported.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time for which failures are reported after the last of them: a key whose writes fail is retried sooner.
const MEMORY: Duration = Duration::from_secs(30);

/// The account of the daemon's own requests.
pub const DAEMON: &str = "the daemon";

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
    requests: Requests,
}

/// Whose a request is, and what it is about, as far as that says something of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The operator that it is sent for, or [`DAEMON`].
    pub account: Arc<str>,
    /// The API group.
    pub group: Arc<str>,
}

/// Something that is wrong for so long that it has to be reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Whose requests it is about; `None`: it is the API server's, and so everybody's.
    pub account: Option<Arc<str>>,
    /// The explanation.
    pub why: String,
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
        Self { heard: now, asked: now, down: false, why: None, requests: Requests::default() }
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
    pub fn begin_write(&mut self, sender: Sender, now: Instant) -> u64 {
        self.requests.begin_write(sender, now)
    }

    /// Records that a write is over: answered, failed for this reason, or without saying anything of the API server (`None`), as its
    /// caller has cancelled it.
    pub fn end_write(&mut self, number: u64, ended: Option<Result<(), &str>>, now: Instant) {
        self.requests.end_write(number, ended, now);
    }

    /// Records that a read was answered, or failed.
    pub fn end_read(&mut self, sender: &Sender, answered: bool, now: Instant) {
        self.requests.end_read(sender, answered, now);
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

    /// Returns the troubles that last for so long that they have to be reported: one if it is everybody's.
    pub fn troubles(&self, now: Instant) -> Vec<Trouble> {
        let quiet = now.saturating_duration_since(self.heard);
        if quiet > PATIENCE {
            let why = self.why.as_deref().unwrap_or("requests are not answered");
            return vec![Trouble {
                account: None,
                why: format!("nothing heard of it for {} s: {why}", quiet.as_secs()),
            }];
        }
        self.requests.troubles(now)
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
        let all = |why: &str| vec![Trouble { account: None, why: why.to_owned() }];
        assert_eq!(health.troubles(at(start, 10)), []);
        assert_eq!(health.troubles(at(start, 11)), all("nothing heard of it for 11 s: requests are not answered"));
        health.failed("refused");
        assert_eq!(health.troubles(at(start, 12)), all("nothing heard of it for 12 s: refused"));
        health.heard(at(start, 12));
        assert_eq!(health.troubles(at(start, 13)), []);
    }
}

//! Decides whether a request is sent again that the API server had no time for (429) or failed at (5xx), and when.

use std::time::Duration;

use capstan_core::backoff::doubled;
use capstan_core::cluster::{Error, Reason, Verb};
use http::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822;
use tokio::time::Instant;

use crate::backoff::Chance;

/// How often a request is sent in all that the API server is too busy for.
const BUSY: u32 = 5;

/// The same of one that it fails at: whoever waits for it has a place among few, and is better off waiting elsewhere (`EP-34`).
const FAILED: u32 = 3;

/// The shortest pause, whatever the API server asks for; each further one is twice as long, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(100);

/// The longest such pause, and that of an API server which is too busy and does not say for how long.
const LONGEST: Duration = Duration::from_secs(1);

/// So much of the time of a request is left for its last answer: without that it is not sent again.
const ROOM: Duration = Duration::from_secs(3);

/// Nobody leaves the API server alone for longer, whatever it asks for.
const LEFT_ALONE: Duration = Duration::from_hours(1);

/// Whether a request may be sent again where nobody knows whether it was carried out.
#[derive(Clone, Copy)]
pub(super) enum Repeats<'a> {
    /// It may not.
    Never,
    /// It changes nothing.
    Reads,
    /// As this write may.
    Writes(&'a Verb),
}

/// What has become of a request so far.
pub(super) struct Tries {
    /// When its time is up.
    until: Instant,
    /// When the last one began.
    begun: Instant,
    made: u32,
    /// How it failed where it may have been carried out all the same.
    failed: Option<Error>,
}

impl Repeats<'_> {
    fn permits(self) -> bool {
        match self {
            Self::Never => false,
            Self::Reads => true,
            Self::Writes(verb) => verb.may_be_repeated(),
        }
    }
}

impl Tries {
    /// Returns those of a request that begins now, and may take so long.
    pub(super) fn new(now: Instant, limit: Duration) -> Self {
        Self { until: now + limit, begun: now, made: 0, failed: None }
    }

    /// Returns the pause before a request is sent again that was refused so: never shorter than the API server asks for, and not the same
    /// for all.
    ///
    /// # Errors
    /// How the request has failed, if it is not sent again.
    pub(super) fn after(
        &mut self,
        error: Error,
        repeats: Repeats<'_>,
        (now, chance): (Instant, &Chance),
    ) -> Result<Duration, Error> {
        self.made = self.made.saturating_add(1);
        if error.code == 409
            && let Some(failed) = self.failed.take()
        {
            // What was refused may be the echo of what had been carried out.
            return Err(failed);
        }
        let (most, unsaid) = match error.code {
            429 => (BUSY, LONGEST),
            500 | 502..=504 if error.reason == Reason::Unreachable => (FAILED, Duration::ZERO),
            _ => return Err(error),
        };
        let asked = error.retry_after.unwrap_or(unsaid).max(doubled(FIRST, self.made, LONGEST));
        let pause = asked + chance.jitter(asked) / 2;
        let left = self.until.saturating_duration_since(now);
        // What has taken long will take as long again, and say why: a webhook that hangs, perhaps.
        let room = ROOM.max(now.saturating_duration_since(self.begun));
        if self.made >= most || pause + room > left || (error.code != 429 && !repeats.permits()) {
            return Err(error);
        }
        if error.code != 429 {
            self.failed = Some(error);
        }
        self.begun = now + pause;
        Ok(pause)
    }
}

/// Returns how long the API server asks to be left alone; `None` if it does not say so, or in a way that can't be read. `now` counts for a date
/// if the answer has none of its own.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: HeaderName| Some(headers.get(name)?.to_str().ok()?.trim());
    let time = |text: &str| rfc2822::DateTimeParser::new().parse_timestamp(text).ok();
    let asked = text(RETRY_AFTER)?;
    let seconds = asked.parse().ok().map(Duration::from_secs);
    let until = || {
        let from = text(DATE).and_then(time).unwrap_or(now);
        // What is over asks for nothing.
        Some(Duration::try_from(time(asked)?.duration_since(from)).unwrap_or_default())
    };
    seconds.or_else(until).map(|asked| asked.min(LEFT_ALONE))
}

#[cfg(test)]
mod tests {
    use capstan_core::cluster::Deletion;

    use super::*;

    /// Returns an answer with this status, and what it asks for.
    fn answer(code: u16, seconds: Option<u64>) -> Error {
        let reason = match code {
            429 => Reason::Busy,
            409 => Reason::Conflict,
            _ => Reason::Unreachable,
        };
        let mut error = Error::new(reason, code, "");
        error.retry_after = seconds.map(Duration::from_secs);
        error
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_sent_again_within_its_time_and_never_sooner_than_the_api_server_asks_for() {
        // EP-34
        let (bound, unbound) = (Deletion { uid: Some("u".to_owned()), ..Deletion::default() }, Deletion::default());
        let [bound, unbound] = [bound, unbound].map(Verb::Delete);
        let [reads, never] = [Repeats::Reads, Repeats::Never];
        // Pauses are half as long again as they are at least.
        let chance = Chance::new(|_| 1.0);
        for (repeats, code, asked, pauses) in [
            (never, 429, None, &[1500, 1500, 1500, 1500][..]),
            (never, 429, Some(0), &[150, 300, 600, 1200]),
            (never, 429, Some(7), &[10_500, 10_500]),
            (never, 429, Some(60), &[]),
            (reads, 503, None, &[150, 300]),
            (reads, 503, Some(7), &[10_500, 10_500]),
            (reads, 500, Some(60), &[]),
            (reads, 501, None, &[]),
            (Repeats::Writes(&bound), 504, None, &[150, 300]),
            (Repeats::Writes(&unbound), 504, None, &[]),
            (never, 503, None, &[]),
            (reads, 409, None, &[]),
        ] {
            let began = Instant::now();
            let (mut tries, mut now, mut found) = (Tries::new(began, Duration::from_secs(30)), began, Vec::new());
            let failed = loop {
                match tries.after(answer(code, asked), repeats, (now, &chance)) {
                    Ok(pause) => {
                        now += pause;
                        found.push(pause);
                    }
                    Err(failed) => break failed,
                }
            };
            assert_eq!(
                found,
                pauses.iter().copied().map(Duration::from_millis).collect::<Vec<_>>(),
                "{code} {asked:?}"
            );
            assert_eq!(failed, answer(code, asked), "as it was answered last");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_with_what_may_have_been_carried_out_is_the_failure_before_it() {
        // EP-34
        let apply = Verb::Apply { body: "{}".to_owned(), manager: "web".into(), force: true };
        let chance = Chance::default();
        let (repeats, facts) = (Repeats::Writes(&apply), (Instant::now(), &chance));
        for (first, expected) in [(503, 503), (429, 409)] {
            let mut tries = Tries::new(facts.0, Duration::from_secs(30));
            tries.after(answer(first, None), repeats, facts).unwrap();
            let failed = tries.after(answer(409, None), repeats, facts).unwrap_err();
            assert_eq!(failed.code, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_is_not_begun_where_there_is_no_time_for_its_answer() {
        // EP-34: a webhook that hangs is answered for after ten seconds, with its name.
        let (began, chance) = (Instant::now(), Chance::new(|_| 1.0));
        let mut tries = Tries::new(began, Duration::from_secs(30));
        let mut after = |seconds| {
            let failed = (began + Duration::from_secs(seconds), &chance);
            tries.after(answer(500, None), Repeats::Reads, failed).map_err(|error| error.code)
        };
        assert_eq!([after(10), after(20)], [Ok(Duration::from_millis(150)), Err(500)]);
    }

    #[test]
    fn how_long_to_wait_is_read_as_seconds_and_as_a_date_by_the_clock_of_who_says_it() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let today = "Thu, 01 Jan 2026 00:00:00 GMT";
        for (asked, date, expected) in [
            ("7", None, Some(7)),
            (" 0 ", None, Some(0)),
            ("86400", None, Some(3600)),
            ("Thu, 01 Jan 2026 00:01:00 GMT", None, Some(60)),
            ("Thu, 01 Jan 2026 00:01:00 GMT", Some("Thu, 01 Jan 2026 00:00:30 GMT"), Some(30)),
            ("Wed, 31 Dec 2025 23:00:00 GMT", Some(today), Some(0)),
            ("soon", Some(today), None),
            ("-1", None, None),
        ] {
            let mut headers = HeaderMap::from_iter([(RETRY_AFTER, asked.parse().unwrap())]);
            headers.extend(date.map(|date| (DATE, date.parse().unwrap())));
            assert_eq!(retry_after(&headers, now), expected.map(Duration::from_secs), "{asked} {date:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}

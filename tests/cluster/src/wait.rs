//! Waits for a condition by asking again, in real time and with a limit.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "other processes run in real time")]

use std::fmt::Display;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Error, anyhow};

/// The pause after the first look; each pause is twice the one before, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The result of one look at a condition.
#[derive(Debug)]
pub enum Look<T> {
    /// It holds; this is the awaited value.
    Done(T),
    /// It does not hold yet; the text says what was found instead.
    NotYet(String),
    /// It can't hold any more.
    Never(Error),
}

/// Returns the value of `look` as soon as it is not `None`.
///
/// # Errors
/// If the limit has passed; names `what` and the limit.
pub fn until<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    until_done(limit, what, || match look() {
        Some(found) => Look::Done(found),
        None => Look::NotYet(String::new()),
    })
}

/// Returns the value of `look` as soon as it is not an error.
///
/// # Errors
/// If the limit has passed; names `what`, the limit, and the last error of `look`.
pub fn until_ok<T, E: Display>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T, E>,
) -> anyhow::Result<T> {
    until_done(limit, what, || match look() {
        Ok(found) => Look::Done(found),
        Err(error) => Look::NotYet(format!("{error:#}")),
    })
}

/// Returns the value of `look` as soon as the condition holds; ends early with [`Look::Never`].
///
/// # Errors
/// That of [`Look::Never`]; or if the limit has passed: names `what`, the limit, and what was found last.
pub fn until_done<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Look<T>) -> anyhow::Result<T> {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let seen = match look() {
            Look::Done(found) => return Ok(found),
            Look::Never(error) => return Err(error.context(format!("while waiting for {what}"))),
            Look::NotYet(seen) => seen,
        };
        let spent = started.elapsed();
        if spent >= limit {
            let seen = if seen.is_empty() { seen } else { format!("; last seen: {seen}") };
            return Err(anyhow!("waited {limit:?} for {what}{seen}"));
        }
        sleep(pause.min(limit.saturating_sub(spent)));
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Looks again and again for so long, to see that something stays as it is.
///
/// # Errors
/// The first error of `look`; names `what`, and how long it has held.
pub fn holds<E: Display>(time: Duration, what: &str, mut look: impl FnMut() -> Result<(), E>) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let spent = started.elapsed();
        look().map_err(|error| anyhow!("{what} held for {spent:?} instead of {time:?}: {error:#}"))?;
        // The last look is after all of the time.
        if spent >= time {
            return Ok(());
        }
        sleep(LONGEST_PAUSE.min(time.saturating_sub(spent)));
    }
}

/// Measures real time since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn spent(self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_is_asked_again_until_it_holds() {
        let mut looks = 0;
        let found = until(Duration::from_secs(5), "the third look", || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!((found.unwrap(), looks), (3, 3));
    }

    #[test]
    fn past_the_limit_the_error_says_what_was_waited_for_and_what_was_seen() {
        let limit = Duration::from_millis(5);
        let none: anyhow::Result<()> = until(limit, "a pod", || None);
        let wrong: anyhow::Result<()> = until_ok(limit, "a pod", || Err("it is a node"));
        let texts = [none, wrong].map(|result| result.unwrap_err().to_string());
        assert_eq!(texts, ["waited 5ms for a pod", "waited 5ms for a pod; last seen: it is a node"]);
    }

    #[test]
    fn what_is_to_hold_is_looked_at_until_the_time_has_passed() {
        let (time, started, mut last) = (Duration::from_millis(60), Instant::now(), Duration::ZERO);
        let look = || {
            last = started.elapsed();
            Ok::<_, Error>(())
        };
        holds(time, "peace", look).unwrap();
        assert!(last >= time, "{last:?}");
    }

    #[test]
    fn what_does_not_hold_is_told_at_once() {
        let mut looks = 0;
        let result = holds(Duration::from_mins(1), "one pod", || {
            looks += 1;
            if looks == 2 { Err("there are two") } else { Ok(()) }
        });
        let text = result.unwrap_err().to_string();
        assert!(text.starts_with("one pod held for ") && text.ends_with(" instead of 60s: there are two"), "{text}");
        assert_eq!(looks, 2);
    }

    #[test]
    fn what_can_never_hold_ends_the_wait_at_once() {
        let mut looks = 0;
        let result: anyhow::Result<()> = until_done(Duration::from_mins(1), "a reply", || {
            looks += 1;
            Look::Never(anyhow!("the server has ended"))
        });
        assert_eq!(
            (format!("{:#}", result.unwrap_err()), looks),
            ("while waiting for a reply: the server has ended".to_owned(), 1)
        );
    }
}

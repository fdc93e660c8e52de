//! Measures and waits in real time: what is measured are other processes.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "other processes run in real time")]

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};

/// Measures from where it is made.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the start.
    pub fn spent(self) -> Duration {
        self.0.elapsed()
    }
}

/// Returns the wall clock in microseconds since 1970, which is what the daemon's log counts by.
pub fn wall() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(now.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}

/// Lets time pass.
pub fn pass(time: Duration) {
    thread::sleep(time);
}

/// How often something is looked at, and for how long at most.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The pause between two looks.
    pub every: Duration,
    /// After this the wait has failed.
    pub limit: Duration,
}

impl Patience {
    /// Looks every so many milliseconds, for so many seconds.
    pub const fn new(every_ms: u64, limit_s: u64) -> Self {
        Self { every: Duration::from_millis(every_ms), limit: Duration::from_secs(limit_s) }
    }

    /// Waits until `look` finds something, and returns it.
    pub fn until<T>(self, what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let watch = Stopwatch::start();
        loop {
            let looked = look().with_context(|| format!("while waiting for {what}"))?;
            if let Some(found) = looked {
                return Ok(found);
            }
            if watch.spent() > self.limit {
                bail!("waited {:?} for {what}", self.limit);
            }
            pass(self.every);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_what_is_found_or_says_what_it_waited_for() {
        let mut looks = 0;
        let third = Patience::new(0, 60).until("the third look", || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        let none = Patience::new(0, 0).until("a pod", || {
            pass(Duration::from_millis(1));
            Ok(None::<()>)
        });
        assert_eq!((third.unwrap(), none.unwrap_err().to_string()), (3, "waited 0ns for a pod".to_owned()));
    }
}

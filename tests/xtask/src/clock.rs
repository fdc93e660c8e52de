//! Measures real time, in which builds, tests and clusters run, and says it.

#![expect(clippy::disallowed_types, reason = "other processes run in real time")]

use std::time::{Duration, Instant};

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

/// Returns a duration as people say it: `14 ms`, `1.31 s`, `42 s`, `3 min 05 s`.
pub(crate) fn said(time: Duration) -> String {
    // Rounded as all decimals are.
    let millis = (time + Duration::from_micros(500)).as_millis();
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis} ms"),
        1..10 => format!("{:.2} s", time.as_secs_f64()),
        10..120 => format!("{seconds} s"),
        _ => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_said_with_as_many_digits_as_matter() {
        let table = [
            (0, "0 ms"),
            (14_600, "15 ms"),
            (999_400, "999 ms"),
            (999_600, "1.00 s"),
            (1_310_000, "1.31 s"),
            (42_700_000, "42 s"),
            (185_000_000, "3 min 05 s"),
        ];
        let said = table.map(|(micros, _)| said(Duration::from_micros(micros)));
        assert_eq!(said, table.map(|(_, text)| text.to_owned()));
    }
}

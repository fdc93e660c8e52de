//! Decides how long the pause is until something is tried again: longer each time, and never quite the same.

use std::time::Duration;

/// Returns the pause that has been made longer so many times, `factor` times as long each time.
pub fn grown(first: Duration, factor: f64, times: u32, longest: Duration) -> Duration {
    let seconds = first.as_secs_f64() * factor.powi(i32::try_from(times).unwrap_or(i32::MAX));
    // What does not fit into a `Duration` is too long.
    Duration::try_from_secs_f64(seconds).unwrap_or(longest).min(longest)
}

/// Returns the pause after so many failures in a row, twice as long after each as after the one before.
pub fn doubled(first: Duration, failures: u32, longest: Duration) -> Duration {
    grown(first, 2.0, failures.saturating_sub(1), longest)
}

/// Returns a pause that is shorter by a `share` of it at most, as `chance` says, which is a number from 0 to 1.
pub fn shorter(pause: Duration, share: f64, chance: f64) -> Duration {
    pause.mul_f64(1.0 - share * chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_grows_up_to_the_longest_and_is_shorter_by_a_share_at_most() {
        let ms = Duration::from_millis;
        for (failures, expected) in [(0, 100), (1, 100), (2, 200), (5, 1_600), (7, 5_000), (u32::MAX, 5_000)] {
            assert_eq!(doubled(ms(100), failures, ms(5_000)), ms(expected), "{failures}");
        }
        assert_eq!(grown(ms(2_000), 1.5, 3, Duration::MAX), ms(6_750));
        assert_eq!([0.0, 0.5, 1.0, 7.0].map(|chance| shorter(ms(100), 0.5, chance)), [100, 75, 50, 50].map(ms));
    }
}

//! Decides what stands for many times: the middle, the hundredth from the top, the longest.

/// Which of many times, and how many of a hundred do not exceed it.
pub(super) type Rank = (&'static str, usize);
pub(super) const MEDIAN: Rank = ("median", 50);
pub(super) const P99: Rank = ("p99", 99);
pub(super) const MOST: Rank = ("most", 100);

/// Times in milliseconds, the shortest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Spread(Vec<f64>);

impl Spread {
    /// Returns a spread of times in microseconds, in whatever order.
    pub(super) fn of_micros(times: impl IntoIterator<Item = i64>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "times here are far below 2^52")]
        let mut times: Vec<f64> = times.into_iter().map(|us| us as f64 / 1000.0).collect();
        times.sort_by(f64::total_cmp);
        Self(times)
    }

    /// Returns the time that so many of a hundred do not exceed; 0 if there is none.
    pub(super) fn at(&self, (_, percent): Rank) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100);
        let time = self.0.get(rank.saturating_sub(1));
        time.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_told_by_its_middle_and_its_top() {
        let spread = Spread::of_micros((1..=200).rev().map(|ms| ms * 1000));
        let told = |spread: &Spread| [MEDIAN, P99, MOST].map(|rank| spread.at(rank)).map(|ms| format!("{ms}"));
        assert_eq!(told(&spread), ["100", "198", "200"]);
        assert_eq!(told(&Spread::of_micros([1500])), ["1.5"; 3]);
        assert_eq!(told(&Spread::default()), ["0"; 3]);
    }
}

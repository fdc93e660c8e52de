//! Decides everything that is left to chance: the same seed gives the same numbers.

use std::time::Duration;

/// A source of numbers that look random (`SplitMix64`).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// Returns the source of a seed; its numbers are independent of those of another `use_`.
    pub(crate) fn new(seed: u64, use_: u64) -> Self {
        let mut chance = Self(seed ^ use_.wrapping_mul(0xd1b5_4a32_d192_ed03));
        chance.next();
        chance
    }

    /// Returns the source for the caller `whose`.
    pub(crate) fn of((seed, use_): (u64, u64), whose: &str) -> Self {
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self::new(seed ^ whose.bytes().fold(0xcbf2_9ce4_8422_2325, fold), use_)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns true once in `times` calls, on average.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns one of these.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let at = self.below(of.len() as u64);
        &of[usize::try_from(at).unwrap_or_default()]
    }

    /// Returns a time below `end`, in whole milliseconds.
    pub(crate) fn time(&mut self, end: Duration) -> Duration {
        let end = u64::try_from(end.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.below(end))
    }

    /// Returns a number from 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).unwrap_or_default()) / f64::from(u32::MAX)
    }
}

//! Decides everything that would be random: the same seed gives the same answers.

/// A source of numbers that look random (`SplitMix64`).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

/// The letters of generated names.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl Chance {
    /// Returns the source of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
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

    /// Returns a fresh uid.
    pub(crate) fn uid(&mut self) -> String {
        let (a, b) = (self.next(), self.next());
        let variant = 0x8000 | ((b >> 48) & 0x3fff);
        format!(
            "{:08x}-{:04x}-4{:03x}-{variant:04x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            b & 0xffff_ffff_ffff
        )
    }

    /// Returns the suffix of a generated name.
    pub(crate) fn suffix(&mut self) -> String {
        let count = LETTERS.len() as u64;
        let letter = |_| {
            let at = usize::try_from(self.below(count)).unwrap_or_default();
            char::from(LETTERS.get(at).copied().unwrap_or(b'x'))
        };
        (0..5).map(letter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same() {
        let of = |seed| {
            let mut chance = Chance::new(seed);
            (chance.uid(), chance.uid(), chance.suffix())
        };
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        assert_eq!(of(7).0.len(), 36);
    }
}

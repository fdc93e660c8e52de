//! Decides whether the keys of a source's look-ups find room in the memory of the plugin that has declared them.

use crate::room::Holding;

/// So much each source may have, whatever others take, in bytes.
const LEAST: usize = 1 << 20;

/// Memory is borrowed in pieces of this size, in bytes.
const PIECE: usize = 64 << 10;

/// The memory that look-ups have borrowed.
#[derive(Default)]
pub(super) struct Borrowed {
    /// `None`: nobody counts it.
    holding: Option<Holding>,
    bytes: usize,
}

impl Borrowed {
    /// Returns what is borrowed by the plugin of this holding.
    pub(super) fn by(holding: Option<Holding>) -> Self {
        Self { holding, bytes: 0 }
    }

    /// Borrows as much as look-ups of `bytes` take. Returns false if there is not enough; then nothing changes.
    pub(super) fn fits(&mut self, bytes: usize) -> bool {
        let Some(holding) = &mut self.holding else {
            return true;
        };
        let wanted = bytes.next_multiple_of(PIECE);
        let difference = wanted.abs_diff(self.bytes) as u64;
        if wanted <= self.bytes {
            holding.shrink(difference);
        } else if wanted <= LEAST {
            holding.grow_anyway(difference);
        } else if !holding.try_grow(difference) {
            return false;
        }
        self.bytes = wanted;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::Room;

    #[test]
    fn memory_is_borrowed_in_pieces_and_given_back() {
        let room = Room::new(2 * LEAST as u64);
        let mut borrowed = Borrowed::by(Some(room.holding(&"p".into())));
        for (bytes, fits, kept) in [
            (0, true, 0),
            (1, true, PIECE),
            (PIECE, true, PIECE),
            (LEAST + 1, true, LEAST + PIECE),
            (9 * LEAST, false, LEAST + PIECE),
            (7, true, PIECE),
        ] {
            assert_eq!((borrowed.fits(bytes), borrowed.bytes), (fits, kept), "{bytes}");
        }
        let mut hog = room.holding(&"hog".into());
        hog.grow_anyway(2 * LEAST as u64);
        let mut full = Borrowed::by(Some(room.holding(&"p".into())));
        full.bytes = 3 * LEAST;
        assert!(full.fits(3 * LEAST - 1), "nothing more is wanted");
        let mut other = Borrowed::by(Some(Room::new(0).holding(&"p".into())));
        assert!(other.fits(LEAST) && !other.fits(LEAST + 1), "others have it all");
        assert!(Borrowed::default().fits(usize::MAX / 2), "nobody counts it");
    }
}

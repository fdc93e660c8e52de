//! Decides whether the keys of a source's look-ups, and what waits to be asked about, find room in the memory of the plugin that has declared it.

use crate::room::charge::Charge;

/// So much each source may have, whatever others take, in bytes.
const LEAST: usize = 1 << 20;

/// Memory is borrowed in pieces of this size, in bytes.
const PIECE: usize = 64 << 10;

/// The memory that look-ups have borrowed.
#[derive(Default)]
pub(super) struct Borrowed(pub(super) Charge);

impl Borrowed {
    /// Borrows as much as look-ups of `bytes` take. Returns false if there is not enough; then nothing changes.
    pub(super) fn fits(&mut self, bytes: usize) -> bool {
        self.0.set_beyond(LEAST as u64, bytes.next_multiple_of(PIECE) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::Room;

    #[test]
    fn memory_is_borrowed_in_pieces_and_given_back() {
        let room = Room::new(2 * LEAST as u64);
        let by = |room: &Room| Borrowed(Charge::by(Some(room.holding(&"p".into()))));
        let mut borrowed = by(&room);
        for (bytes, fits, kept) in [
            (0, true, 0),
            (1, true, PIECE),
            (PIECE, true, PIECE),
            (LEAST + 1, true, LEAST + PIECE),
            (9 * LEAST, false, LEAST + PIECE),
            (7, true, PIECE),
        ] {
            assert_eq!((borrowed.fits(bytes), borrowed.0.bytes()), (fits, kept as u64), "{bytes}");
        }
        let mut hog = room.holding(&"hog".into());
        hog.grow_anyway(2 * LEAST as u64);
        let mut full = by(&room);
        assert!(full.0.set_beyond(u64::MAX, 3 * LEAST as u64));
        assert!(full.fits(3 * LEAST - 1), "nothing more is wanted");
        let mut other = by(&Room::new(0));
        assert!(other.fits(LEAST) && !other.fits(LEAST + 1), "others have it all");
        assert!(Borrowed::default().fits(usize::MAX / 2), "nobody counts it");
    }
}

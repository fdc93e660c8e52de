//! Keeps count of what something takes of a plugin's memory that grows and shrinks with it.

use super::Holding;

/// The memory that something takes. It is given back when this is dropped.
#[derive(Debug, Default)]
pub struct Charge {
    /// What has it borrowed; `None`: nobody counts it.
    holding: Option<Holding>,
    bytes: u64,
}

impl Charge {
    /// Returns one that has taken nothing yet.
    pub fn by(holding: Option<Holding>) -> Self {
        Self { holding, bytes: 0 }
    }

    /// Has it borrowed by what `holding` returns, unless it is borrowed already.
    pub fn begin(&mut self, holding: impl FnOnce() -> Option<Holding>) {
        if self.holding.is_none() {
            self.holding = holding();
        }
    }

    /// Returns how much it takes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes so much from now on. Returns false if there is not enough; then nothing changes.
    pub fn set(&mut self, bytes: u64) -> bool {
        self.set_beyond(0, bytes)
    }

    /// Does the same, but takes up to `least` bytes whatever others have taken.
    pub fn set_beyond(&mut self, least: u64, bytes: u64) -> bool {
        if let Some(holding) = &mut self.holding {
            let more = bytes.saturating_sub(self.bytes);
            if more > 0 && bytes <= least {
                holding.grow_anyway(more);
            } else if more > 0 && !holding.try_grow(more) {
                return false;
            }
            holding.shrink(self.bytes.saturating_sub(bytes));
        }
        self.bytes = bytes;
        true
    }

    /// Gives so much back.
    pub fn give_back(&mut self, bytes: u64) {
        self.set(self.bytes.saturating_sub(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::Room;

    #[test]
    fn what_something_takes_is_lacking_to_others_until_it_takes_less_or_goes() {
        let room = Room::new(1_000);
        let fits = |bytes| room.holding(&"other".into()).try_grow(bytes);
        let mut charge = Charge::default();
        assert!(charge.set(5_000), "nobody counts it");
        charge = Charge::default();
        charge.begin(|| Some(room.holding(&"p".into())));
        charge.begin(|| None);
        assert!(charge.set(700));
        assert!(!fits(300));
        assert!(!charge.set(1_200));
        assert_eq!(charge.bytes(), 700, "nothing has changed");
        assert!(charge.set_beyond(1_200, 1_200), "so much it has in any case");
        assert!(charge.set(400) && fits(300));
        charge.give_back(300);
        assert_eq!(charge.bytes(), 100);
        assert!(fits(600) && !fits(700));
        drop(charge);
        assert!(fits(750));
    }
}

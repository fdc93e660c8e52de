//! Decides whether a primary that is polled by itself may have more: half of what others leave, and with the others of its namespace three
//! quarters of what other namespaces leave.

/// The bytes that a thing takes beside its text, and a primary beside its things.
pub(super) const EACH: u64 = 160;

/// An answer that is not kept. What was known stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There are too many things.
    #[error("it would have {found} things, and may have {most} (bounded.things)")]
    Things {
        /// How many there would be.
        found: usize,
        /// How many are allowed.
        most: usize,
    },
    /// They take too much memory.
    #[error("its things would take {found} bytes, and may take {most} (bounded.memory)")]
    Bytes {
        /// The bytes that they would take.
        found: u64,
        /// How many are allowed.
        most: u64,
    },
    /// Others should find some, too.
    #[error(
        "the things of one primary may take half of what is free: {found} of {most} (bounded.things and bounded.memory)"
    )]
    Share {
        /// The things that it would have, or the bytes that they would take.
        found: u64,
        /// Half of what is free.
        most: u64,
    },
    /// Other namespaces should find some, too.
    #[error(
        "the things of the primaries of one namespace may take three quarters of what others leave: {found} of {most} (bounded.things and bounded.memory)"
    )]
    Home {
        /// The things that they would have, or the bytes that they would take.
        found: u64,
        /// Three quarters of what others leave.
        most: u64,
    },
    /// Others have the memory.
    #[error("there is no memory for {0} bytes more (--plugin-memory)")]
    Memory(u64),
}

/// Things, and the bytes that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) things: u64,
    pub(super) bytes: u64,
}

/// What is decided by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// What all may have.
    pub(super) most: Taken,
    /// What all have.
    pub(super) all: Taken,
    /// What those of its namespace have; `None` if it is in none.
    pub(super) home: Option<Taken>,
    /// What it has.
    pub(super) before: Taken,
    /// What it would have.
    pub(super) wanted: Taken,
}

impl Taken {
    pub(super) fn less(self, other: Self) -> Self {
        let Self { things, bytes } = self;
        Self { things: things.saturating_sub(other.things), bytes: bytes.saturating_sub(other.bytes) }
    }

    pub(super) fn more(self, other: Self) -> Self {
        let Self { things, bytes } = self;
        Self { things: things.saturating_add(other.things), bytes: bytes.saturating_add(other.bytes) }
    }
}

impl Facts {
    /// Checks that nobody gets more than its share. Who has more already may keep it.
    ///
    /// # Errors
    /// [`Refused`].
    pub(super) fn check(&self) -> Result<(), Refused> {
        self.check_of(|taken| taken.things)?;
        self.check_of(|taken| taken.bytes)
    }

    fn check_of(&self, of: impl Fn(Taken) -> u64) -> Result<(), Refused> {
        let Self { most, all, home, before, wanted } = *self;
        let found = of(wanted);
        if found <= of(before) {
            return Ok(());
        }
        let half = of(most.less(all.less(before))).div_ceil(2);
        if found > half {
            return Err(Refused::Share { found, most: half });
        }
        let Some(home) = home else {
            return Ok(());
        };
        let found = of(home.less(before).more(wanted));
        let three_quarters = of(most.less(all.less(home))).saturating_mul(3).div_ceil(4);
        if found > three_quarters {
            return Err(Refused::Home { found, most: three_quarters });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_may_have_half_and_its_namespace_three_quarters_of_what_others_leave() {
        let of = |things| Taken { things, bytes: 0 };
        let [share, home] =
            [|found, most| Err(Refused::Share { found, most }), |found, most| Err(Refused::Home { found, most })];
        // All, its namespace, itself before and then; of 100 things.
        for (all, at_home, before, wanted, expected) in [
            (0, Some(0), 0, 50, Ok(())),
            (0, Some(0), 0, 51, share(51, 50)),
            (60, Some(60), 0, 15, Ok(())),
            (60, Some(60), 0, 16, home(76, 75)),
            (60, Some(60), 10, 25, Ok(())),
            (60, None, 0, 20, Ok(())),
            (75, Some(0), 0, 13, Ok(())),
            (75, Some(12), 0, 13, Ok(())),
            (90, Some(90), 5, 5, Ok(())),
            (90, Some(90), 5, 4, Ok(())),
            (90, Some(90), 5, 6, home(91, 75)),
        ] {
            let facts =
                Facts { most: of(100), all: of(all), home: at_home.map(of), before: of(before), wanted: of(wanted) };
            assert_eq!(facts.check(), expected, "{facts:?}");
        }
        let bytes = |bytes| Taken { things: 1, bytes };
        let none = Taken::default();
        let facts =
            Facts { most: Taken { things: 9, bytes: 1000 }, all: none, home: None, before: none, wanted: bytes(600) };
        assert_eq!(facts.check(), share(600, 500));
    }
}

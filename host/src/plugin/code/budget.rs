//! Decides what compiling one component may take, with what is left of the memory.

use std::time::Duration;

use capstan_core::manifest::Bytes;

use super::Error;
use crate::plugin::compiler::Limits;
use crate::plugin::room;

/// What compiling one component may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of memory; without it, what there is at that time.
    pub memory: Option<u64>,
    /// CPU time.
    pub cpu: Duration,
    /// Time by the clock. On a busy machine, others are at work meanwhile.
    pub clock: Duration,
}

impl Budget {
    pub(super) fn limits(self) -> Limits {
        let Self { memory, cpu, clock } = self;
        Limits { memory: memory.unwrap_or_else(room::now), cpu, clock }
    }

    /// Refuses to begin with what happens to be left of the memory, if that is next to nothing: it says nothing of the component.
    pub(super) fn suffices(self, limits: Limits) -> Result<(), Error> {
        if self.memory.is_some() || limits.memory >= room::LEAST {
            return Ok(());
        }
        let (left, least) = (Bytes(limits.memory >> 20 << 20), Bytes(room::LEAST));
        Err(Error::Prepare(format!("{left} of memory are left for compiling, and it takes at least {least}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { memory: 1 << 30, cpu: Duration::from_mins(2), clock: Duration::from_mins(6) };

    #[test]
    fn nothing_is_begun_with_next_to_no_memory_unless_somebody_says_so() {
        let budget = |memory| Budget { memory, cpu: LIMITS.cpu, clock: LIMITS.clock };
        let limits = |memory| Limits { memory, ..LIMITS };
        let told = |memory, left| budget(memory).suffices(limits(left)).err();
        for (memory, left, enough) in [
            (None, room::LEAST, true),
            (None, room::LEAST - 1, false),
            (None, 0, false),
            (Some(1 << 20), 1 << 20, true),
        ] {
            let why = told(memory, left);
            assert_eq!(why.is_none(), enough, "{memory:?} {left}: {why:?}");
        }
        assert!(matches!(
            told(None, 63 << 20),
            Some(Error::Prepare(why)) if why == "63Mi of memory are left for compiling, and it takes at least 64Mi"
        ));
    }
}

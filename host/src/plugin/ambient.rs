//! The time and the random numbers that components have: those of the machine, or in a rehearsal always the same ones.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wasmtime_wasi::clocks::WallClock;
use wasmtime_wasi::random::Deterministic;
use wasmtime_wasi::{HostWallClock, WasiCtxBuilder};

/// The time of rehearsals.
pub const REHEARSED: &str = "2000-01-01T00:00:00Z";

/// The same, since 1970.
const SINCE_1970: Duration = Duration::from_hours(262_968);

/// So many random numbers of eight bytes come before they come again.
const NUMBERS: u64 = 1024;

/// Where time and random numbers come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ambient {
    /// From the machine.
    #[default]
    Machine,
    /// It is always [`REHEARSED`], and the numbers are the same in each run.
    Rehearsal,
}

/// A clock that stands.
struct Standing;

impl Ambient {
    /// Returns the time of day, since 1970.
    pub(super) fn now(self) -> Duration {
        match self {
            Self::Machine => WallClock::new().now(),
            Self::Rehearsal => Standing.now(),
        }
    }

    /// Gives an instance its clock, which says the time of day, and its random numbers. How long something takes, it learns of the machine.
    pub(super) fn provide(self, wasi: &mut WasiCtxBuilder) {
        match self {
            Self::Machine => {}
            Self::Rehearsal => {
                wasi.wall_clock(Standing);
                wasi.secure_random(numbers(1)).insecure_random(numbers(2)).insecure_random_seed(3);
            }
        }
    }
}

impl HostWallClock for Standing {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        SINCE_1970
    }
}

/// Returns numbers that look random (`SplitMix64`).
fn numbers(seed: u64) -> Deterministic {
    let number = |n: u64| {
        let mut z = ((seed << 32) | n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    };
    Deterministic::new((1..=NUMBERS).flat_map(number).collect())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    #[test]
    fn the_time_of_rehearsals_is_the_same_as_text_and_as_number() {
        let text: Timestamp = REHEARSED.parse().unwrap();
        assert_eq!(text.as_duration().unsigned_abs(), Ambient::Rehearsal.now());
    }
}

//! Raises the limit of open files: clients must never take the connections that the API server and components need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as the daemon ever uses. Some systems permit a billion, and some programs would keep tables of that size.
const ENOUGH: u64 = 1 << 16;

/// A limit below this is logged: both servers may have 64 connections per address, and each watched kind has one.
const LITTLE: u64 = 512;

/// Raises the soft limit of open files as far as the system permits and the daemon needs.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = raised(&limit);
    if setrlimit(Resource::Nofile, wanted).is_err() {
        tracing::warn!(open_files = ?limit.current, "the limit of open files can't be raised");
    }
    if let Some(little) = wanted.current.filter(|limit| *limit < LITTLE) {
        tracing::warn!(limit = little, "few files may be open at a time; connections to the API server may fail");
    }
}

/// Returns how many files may be open once that has been raised; `None`: as many as are wanted.
pub fn most() -> Option<u64> {
    raised(&getrlimit(Resource::Nofile)).current
}

/// Returns the limit that there should be; `None` in it is no limit.
fn raised(limit: &Rlimit) -> Rlimit {
    let most = limit.maximum.map_or(ENOUGH, |hard| hard.min(ENOUGH));
    Rlimit { current: limit.current.map(|soft| soft.max(most)), maximum: limit.maximum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_permitted_and_sensible_and_never_lowered() {
        let soft = |current, maximum| raised(&Rlimit { current, maximum }).current;
        assert_eq!(soft(Some(1_024), Some(4_096)), Some(4_096));
        assert_eq!(soft(Some(1_024), Some(1 << 30)), Some(ENOUGH));
        assert_eq!(soft(Some(1_024), None), Some(ENOUGH));
        assert_eq!(soft(Some(1 << 20), Some(1 << 20)), Some(1 << 20));
        assert_eq!(soft(None, None), None);
    }
}

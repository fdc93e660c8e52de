//! Makes room for open files: connections of whoever comes must never take those that the API server and components need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as the daemon ever uses. Some systems permit a thousand million, for which others would keep tables.
const ENOUGH: u64 = 1 << 16;

/// Less than this is little: both servers may have 64 connections for each address, and each kind that is watched has one.
const LITTLE: u64 = 512;

/// Raises the soft limit of open files as far as the system permits and makes sense.
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

/// Returns what the limit should be; none is no limit.
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

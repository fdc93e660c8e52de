//! Decides whether a key may run now or has run too often lately (RL).

use std::time::Duration;

use tokio::time::Instant;

use crate::manifest::RateLimit;

/// EP-12: the shortest wait; without it, a key would be looked at again and again when its window is nearly over.
const FLOOR: Duration = Duration::from_millis(50);

/// The runs of one key in its present window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// The start of its first run.
    start: Instant,
    /// The number of runs since then.
    runs: u32,
}

/// Counts a run, or returns the time at which to ask again as the error. The window begins with the first run; a new
/// window begins with the first run that finds the old one both full and over (`RL-1`).
pub(super) fn permit(limit: &RateLimit, window: &mut Option<Window>, now: Instant) -> Result<(), Instant> {
    if limit.max_reconciliations == 0 {
        return Ok(());
    }
    let current = window.get_or_insert(Window { start: now, runs: 0 });
    let end = current.start + limit.within.min(super::FOREVER);
    if current.runs < limit.max_reconciliations {
        current.runs += 1;
    } else if now >= end {
        *current = Window { start: now, runs: 1 };
    } else {
        return Err(end.max(now + FLOOR));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_permitted_or_put_off() {
        // RL-1, EP-12; a script of (milliseconds, wait until), for two runs in three seconds
        let limit = RateLimit { max_reconciliations: 2, within: Duration::from_secs(3) };
        let script = [
            (100, Ok(())),
            (200, Ok(())),
            (300, Err(3100)),
            (3049, Err(3100)),
            (3051, Err(3101)),
            (3099, Err(3149)),
            (3100, Ok(())),
            (3100, Ok(())),
            (3101, Err(6100)),
            // Full and long over: one window, not several.
            (90_000, Ok(())),
            // Not full: the old window continues, however long ago it began.
            (99_000, Ok(())),
            (99_001, Ok(())),
            (99_002, Ok(())),
            (99_003, Err(102_001)),
        ];
        let (start, mut window) = (Instant::now(), None);
        for (at, wanted) in script {
            let at = start + Duration::from_millis(at);
            let wanted = wanted.map_err(|until| start + Duration::from_millis(until));
            assert_eq!(permit(&limit, &mut window, at), wanted);
        }
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        let limit = RateLimit { max_reconciliations: 0, within: Duration::from_secs(3) };
        let mut window = None;
        assert!((0..100).all(|_| permit(&limit, &mut window, Instant::now()).is_ok()));
        assert_eq!(window, None);
    }
}

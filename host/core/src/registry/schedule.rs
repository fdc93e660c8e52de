//! Decides when a registry is asked again for a component (`OC-6`).

use std::time::Duration;

use super::Failure;
use crate::backoff::doubled;

/// The first pause after a failure.
const FIRST: Duration = Duration::from_secs(2);

/// The longest one is as long as the interval, but within these.
const LONGEST: [Duration; 2] = [Duration::from_secs(30), Duration::from_mins(5)];

/// Returns how long it is until a reference is asked for again, of which `failed` is the last failure and how many there were in a row. `None`:
/// never, as what a digest names is there and can't become anything else.
pub fn again(is_pinned: bool, interval: Duration, failed: Option<(&Failure, u32)>) -> Option<Duration> {
    match failed {
        None => (!is_pinned).then_some(interval),
        Some((failure, failures)) => {
            let [least, most] = LONGEST;
            let pause = doubled(FIRST, failures, interval.clamp(least, most));
            Some(pause.max(failure.after.unwrap_or_default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Kind;

    #[test]
    fn a_tag_is_asked_for_at_intervals_a_digest_until_it_is_there_and_both_less_often_if_that_fails() {
        // OC-6
        let (failed, busy) = (
            Failure::new(Kind::Away, ""),
            Failure { after: Some(Duration::from_mins(10)), ..Failure::new(Kind::Away, "") },
        );
        for (is_pinned, interval, failed, expected) in [
            (false, 300, None, Some(300)),
            (true, 300, None, None),
            (true, 300, Some((&failed, 1)), Some(2)),
            (false, 300, Some((&failed, 3)), Some(8)),
            (false, 300, Some((&failed, 99)), Some(300)),
            (false, 1, Some((&failed, 99)), Some(30)),
            (false, 86_400, Some((&failed, 99)), Some(300)),
            (false, 300, Some((&busy, 1)), Some(600)),
        ] {
            let found = again(is_pinned, Duration::from_secs(interval), failed);
            assert_eq!(found, expected.map(Duration::from_secs), "{is_pinned} {interval} {failed:?}");
        }
    }
}

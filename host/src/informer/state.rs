//! Decides what an informer does after a watch has ended: how long it pauses, and where it goes on from.

use std::time::Duration;

use capstan_core::cluster::Error;
use capstan_core::object::Version;

use super::list_watch::End;
use crate::backoff::Backoff;

/// A watch that ends sooner than this has not worked.
const TOO_SOON: Duration = Duration::from_secs(1);

/// The longest pause after a failure (`IE-3`); a watch that lasted for longer than this did work before.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(32);

/// What a cache holds when a watch has ended.
#[derive(Clone, Copy)]
pub(super) struct Held {
    /// Whether the last list was complete.
    pub(super) synced: bool,
    /// Whether there was room for all objects.
    pub(super) complete: bool,
    pub(super) version: Version,
}

/// What an informer does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// Zero if there is none.
    pub(super) pause: Duration,
    /// Where it watches from; `None` = it lists anew.
    pub(super) from: Option<Version>,
}

/// Decides from how a watch ended and how long it lasted.
pub(super) fn next(ended: &Result<End, Error>, lasted: Duration, held: Held, pauses: &mut Backoff) -> Next {
    if lasted > LONGEST_PAUSE || ended.is_ok() && lasted >= TOO_SOON {
        pauses.reset();
    }
    let pause = match ended {
        // What ends at once, again and again, must not spin.
        Ok(_) if lasted < TOO_SOON => pauses.briefly(),
        Ok(_) => Duration::ZERO,
        Err(error) => pauses.after(error),
    };
    let goes_on = match ended {
        // What has been left out is looked for again: there may be room for it by now.
        Ok(End::Closed) => held.synced && held.complete,
        Ok(End::Expired) => false,
        Err(_) => held.synced,
    };
    Next { pause, from: goes_on.then_some(held.version) }
}

#[cfg(test)]
mod tests {
    use capstan_core::cluster::Reason;

    use super::*;
    use crate::backoff::Chance;

    #[test]
    fn an_informer_goes_on_from_where_it_was_and_pauses_for_longer_each_time_it_fails() {
        // IE-2, IE-3, IN-5
        let whole = Held { synced: true, complete: true, version: Version(7) };
        let partial = Held { complete: false, ..whole };
        let broken = Held { synced: false, ..whole };
        let failed = |reason| Err(Error::new(reason, 0, ""));
        let (away, forbidden) = (|| failed(Reason::Unreachable), || failed(Reason::Forbidden));
        let mut pauses = Backoff::up_to(LONGEST_PAUSE, &Chance::new(|_| 1.0));
        // One after the other.
        for (line, (ended, lasted, held, pause, goes_on)) in [
            (Ok(End::Closed), 290, whole, 0, true),
            (Ok(End::Closed), 1, partial, 0, false),
            (Ok(End::Expired), 1, whole, 0, false),
            (Ok(End::Closed), 0, whole, 1, true),
            (Ok(End::Closed), 0, whole, 2, true),
            (Ok(End::Expired), 0, whole, 4, false),
            (Ok(End::Closed), 0, whole, 4, true),
            (Ok(End::Closed), 1, broken, 0, false),
            (away(), 0, whole, 1, true),
            (away(), 32, partial, 2, true),
            (away(), 0, broken, 4, false),
            (away(), 0, whole, 4, true),
            (forbidden(), 0, whole, 8, true),
            (forbidden(), 0, whole, 16, true),
            (forbidden(), 0, whole, 32, true),
            (forbidden(), 0, whole, 32, true),
            (forbidden(), 33, whole, 1, true),
        ]
        .into_iter()
        .enumerate()
        {
            let [lasted, pause] = [lasted, pause].map(Duration::from_secs);
            let next = next(&ended, lasted, held, &mut pauses);
            assert_eq!(next, Next { pause, from: goes_on.then_some(Version(7)) }, "row {line}: {ended:?}");
        }
    }
}

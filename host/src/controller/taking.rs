//! Decides whether a controller takes requests from outside.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a controller takes requests: from when its runs start until they have to end, because it stops or has lost a right.
#[derive(Default)]
pub(super) struct Taking(AtomicBool);

impl Taking {
    pub(super) fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Ends it unless it goes on.
    pub(super) fn go_on(&self, on: bool) {
        self.0.fetch_and(on, Ordering::AcqRel);
    }

    /// Returns what would take a request, if any is taken at the moment.
    pub(super) fn admit<T>(&self, to: Option<T>) -> Option<T> {
        to.filter(|_| self.0.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{Break, Lost};
    use super::*;

    #[test]
    fn requests_are_taken_from_the_start_of_runs_until_a_stop_or_a_lost_right() {
        // IB-1
        let taking = Taking::default();
        assert_eq!(taking.admit(Some(())), None, "its runs have not started");
        for broken in [Break::Stop, Break::Rights(Lost { names: BTreeSet::new(), why: String::new() })] {
            taking.begin();
            assert_eq!((taking.admit(Some(())), taking.admit::<()>(None)), (Some(()), None));
            taking.go_on(!broken.ends_requests());
            assert_eq!(taking.admit(Some(())), None);
        }
    }
}

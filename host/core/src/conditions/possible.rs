//! Waits until it is known whether a kind can have the standard conditions, and remembers that runs have left them out (SC-5).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// How long the end of a run waits until it is known whether its kind can have conditions.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether a kind can have the standard conditions, which is found out while runs take place.
#[derive(Debug, Default)]
pub struct Possible {
    /// `None`: that is not known yet.
    known: watch::Sender<Option<bool>>,
    /// True if a run has left them out.
    missed: AtomicBool,
}

impl Possible {
    /// Takes in whether the kind can have them. Returns true if it can and runs have left them out, which have to be repeated.
    pub fn learn(&self, possible: bool) -> bool {
        self.known.send_replace(Some(possible));
        possible && self.missed.swap(false, Ordering::SeqCst)
    }

    /// Returns whether the kind can have them; `None`: that is not known yet.
    pub fn known(&self) -> Option<bool> {
        *self.known.borrow()
    }

    /// Waits until it is known whether the kind can have them, but not long, and once only. Returns true if it can.
    pub async fn is_known_to_be(&self) -> bool {
        if self.missed.load(Ordering::SeqCst) {
            return self.known() == Some(true);
        }
        let mut known = self.known.subscribe();
        let waiting = known.wait_for(Option::is_some);
        let known = timeout(PATIENCE, waiting).await.is_ok_and(|known| known.is_ok_and(|known| *known == Some(true)));
        if !known {
            self.missed.store(true, Ordering::SeqCst);
        }
        // It may have been learned while the patience ended, by somebody who has not seen that this run misses it.
        known || self.known() == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_not_known_is_waited_for_once() {
        // SC-5
        let possible = Possible::default();
        for patience in [PATIENCE, Duration::ZERO, Duration::ZERO] {
            let began = Instant::now();
            assert!(!possible.is_known_to_be().await);
            assert_eq!(began.elapsed(), patience);
        }
        assert!(possible.learn(true), "runs have to be repeated");
        assert!(possible.is_known_to_be().await);
        assert!(!possible.learn(true));
    }
}

//! Decides whether the main runtime still runs: it beats, and somebody beside it looks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How often a heart beats, and how often that is looked at.
pub const BEAT: Duration = Duration::from_millis(250);

/// What is late by this is worth a line in the log.
const LATE: Duration = Duration::from_secs(1);

/// What is late by this does not come back by itself.
pub const FROZEN: Duration = Duration::from_secs(30);

/// Shows that something runs. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Arc<AtomicU64>);

/// Says what may be to blame, for the log: what has been running for long, one text each.
pub type Suspects = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// Looks at a [`Heartbeat`]. It counts its own looks and reads no clock, so that a process or a machine that was stopped as a whole
/// blames nobody.
pub struct Watchdog {
    heart: Heartbeat,
    suspects: Suspects,
    seen: u64,
    late: Late,
}

/// For how long a heart has not beaten, to whoever asks.
#[derive(Clone, Debug, Default)]
pub struct Late(Arc<AtomicU32>);

/// What a look has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Nothing new.
    AsBefore,
    /// It is late, for the first time since it beat last.
    Late,
    /// It beats again, after having been late by this.
    Back(Duration),
}

// === impl Heartbeat ===

impl Heartbeat {
    /// Beats for ever, on the runtime that is watched.
    pub async fn run(self) {
        loop {
            self.0.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(BEAT).await;
        }
    }
}

// === impl Late ===

impl Late {
    /// Returns how long ago the heart has beaten.
    pub fn by(&self) -> Duration {
        BEAT * self.0.load(Ordering::Relaxed)
    }
}

// === impl Watchdog ===

impl Watchdog {
    /// Returns what watches this heart.
    pub fn new(heart: Heartbeat, suspects: Suspects) -> Self {
        Self { heart, suspects, seen: 0, late: Late::default() }
    }

    /// Returns what says how late it is.
    pub fn late(&self) -> Late {
        self.late.clone()
    }

    /// Looks for ever, on another runtime than the one that is watched, and logs what it sees.
    pub async fn run(mut self) {
        loop {
            tokio::time::sleep(BEAT).await;
            match self.look() {
                Look::AsBefore => {}
                Look::Late => {
                    let suspects = (self.suspects)().join("; ");
                    tracing::warn!(late = ?self.late.by(), suspects, "the main runtime does not run: all operators wait");
                }
                Look::Back(late) => tracing::warn!(?late, "the main runtime runs again"),
            }
        }
    }

    fn look(&mut self) -> Look {
        let Late(missed) = &self.late;
        let beats = self.heart.0.load(Ordering::Relaxed);
        if beats == self.seen {
            missed.fetch_add(1, Ordering::Relaxed);
            let since = BEAT * missed.load(Ordering::Relaxed);
            let first = since >= LATE && since < LATE + BEAT;
            return if first { Look::Late } else { Look::AsBefore };
        }
        self.seen = beats;
        let late = BEAT * missed.swap(0, Ordering::Relaxed);
        if late >= LATE { Look::Back(late) } else { Look::AsBefore }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heart_that_stands_still_is_told_once_and_so_is_its_return() {
        let heart = Heartbeat::default();
        let mut dog = Watchdog::new(heart.clone(), Box::new(Vec::new));
        let mut looks = |beating: bool, times: usize| {
            let looks = (0..times).map(|_| {
                heart.0.fetch_add(u64::from(beating), Ordering::Relaxed);
                dog.look()
            });
            let told: Vec<_> = looks.filter(|look| *look != Look::AsBefore).collect();
            (told, dog.late.by())
        };
        assert_eq!(looks(true, 100), (vec![], Duration::ZERO));
        assert_eq!(looks(false, 3), (vec![], 3 * BEAT));
        assert_eq!(looks(true, 1), (vec![], Duration::ZERO), "a little late is no matter");
        assert_eq!(looks(false, 200), (vec![Look::Late], 200 * BEAT));
        assert!(200 * BEAT > FROZEN);
        assert_eq!(looks(true, 2), (vec![Look::Back(200 * BEAT)], Duration::ZERO));
    }
}

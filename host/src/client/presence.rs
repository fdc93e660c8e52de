//! What is remembered of which kinds an API server serves, and who is told that this has changed, or may have (`WF-11`).

use std::collections::HashMap;
use std::time::Duration;

use capstan_core::object::Gvk;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// The most kinds that are remembered.
pub(super) const MOST_KINDS: usize = 10_000;

/// However often requests are answered as if a kind were not served, whoever heeds that asks no more often than this.
const DOUBT: Duration = Duration::from_secs(1);

/// Which kinds are served, as the last answer about each said it.
pub struct Presence {
    kinds: Mutex<HashMap<Gvk, Known>>,
    flips: watch::Sender<u64>,
    doubts: watch::Sender<()>,
}

/// What is known of a kind.
#[derive(Clone, Copy)]
struct Known {
    served: bool,
    /// The number of the flip that made it so; 0 if it has always been like that.
    flip: u64,
    /// When that was asked.
    asked: Instant,
    /// Whether a request has been answered since then as if it were otherwise.
    doubted: bool,
}

impl Default for Presence {
    fn default() -> Self {
        Self { kinds: Mutex::default(), flips: watch::Sender::new(0), doubts: watch::Sender::new(()) }
    }
}

impl Presence {
    /// Returns what is remembered of a kind; `None` if nobody has asked.
    pub(super) fn of(&self, gvk: &Gvk) -> Option<bool> {
        self.kinds.lock().get(gvk).map(|known| known.served)
    }

    /// Takes in what the answer to a question of that time says of a kind.
    pub(super) fn learn(&self, gvk: &Gvk, served: bool, asked: Instant) {
        let mut kinds = self.kinds.lock();
        match kinds.get_mut(gvk) {
            Some(known) if known.served == served => *known = Known { asked, doubted: false, ..*known },
            Some(known) => {
                let flip = *self.flips.borrow() + 1;
                *known = Known { served, flip, asked, doubted: false };
                self.flips.send_replace(flip);
            }
            None => {
                // Whoever asks for so many names others each time.
                if kinds.len() >= MOST_KINDS {
                    kinds.clear();
                }
                kinds.insert(gvk.clone(), Known { served, flip: 0, asked, doubted: false });
            }
        }
    }

    /// Takes in what it says of the kinds of a group and version that somebody has asked about.
    pub(super) fn learn_all(&self, of: &Gvk, served: impl Fn(&Gvk) -> bool, asked: Instant) {
        let kinds = self.kinds.lock();
        let alike = kinds.keys().filter(|kind| (&kind.group, &kind.version) == (&of.group, &of.version));
        let alike: Vec<_> = alike.cloned().collect();
        drop(kinds);
        for kind in alike {
            self.learn(&kind, served(&kind), asked);
        }
    }

    /// Takes in that a request about a kind was answered as if that were not served, or not as it is known.
    pub(super) fn doubt(&self, gvk: &Gvk) {
        let mut kinds = self.kinds.lock();
        if let Some(known) = kinds.get_mut(gvk).filter(|known| known.served) {
            known.doubted = true;
            self.doubts.send_replace(());
        }
    }

    /// Returns true if a request has been answered as if what is known of a kind were otherwise.
    pub fn is_doubted(&self, gvk: &Gvk) -> bool {
        self.kinds.lock().get(gvk).is_some_and(|known| known.doubted)
    }

    /// Returns true if what is known of a kind is so old; if it is in doubt, as soon as it may be asked again. `None` if nobody has asked.
    pub(super) fn is_older(&self, gvk: &Gvk, age: Duration, now: Instant) -> Option<bool> {
        let known = *self.kinds.lock().get(gvk)?;
        let age = if known.doubted { DOUBT } else { age };
        Some(now.saturating_duration_since(known.asked) >= age)
    }

    /// Returns the number of the last flip: of a kind that is served from then on, or not any more.
    pub fn flips(&self) -> watch::Receiver<u64> {
        self.flips.subscribe()
    }

    /// Returns who is told when it may not hold any more that some kind is served.
    pub fn doubts(&self) -> watch::Receiver<()> {
        self.doubts.subscribe()
    }

    /// Returns true if a kind has flipped after that flip.
    pub fn has_flipped(&self, gvk: &Gvk, since: u64) -> bool {
        self.kinds.lock().get(gvk).is_some_and(|known| known.flip > since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flip_is_told_once_and_a_doubt_only_of_what_is_taken_for_served() {
        // WF-11
        let [one, other] = ["A", "B"].map(|kind| Gvk::parse("a.dev/v1", kind).unwrap());
        let presence = Presence::default();
        let (flips, mut doubts) = (presence.flips(), presence.doubts());
        doubts.mark_unchanged();
        let (mut seen, now) = (Vec::new(), Instant::now());
        for (gvk, served) in [(&one, true), (&one, true), (&one, false), (&other, false), (&other, true), (&one, true)]
        {
            presence.learn(gvk, served, now);
            seen.push((*flips.borrow(), presence.of(gvk)));
        }
        let expected = [(0, true), (0, true), (1, false), (1, false), (2, true), (3, true)];
        assert_eq!(seen, expected.map(|(flip, served)| (flip, Some(served))));
        assert!(presence.has_flipped(&one, 2) && !presence.has_flipped(&other, 2) && presence.has_flipped(&other, 1));
        presence.learn(&one, false, now);
        for (gvk, told) in [(&one, false), (&Gvk::parse("v1", "C").unwrap(), false), (&other, true)] {
            presence.doubt(gvk);
            assert_eq!(doubts.has_changed().unwrap(), told, "{gvk}");
        }
    }

    #[test]
    fn what_is_in_doubt_is_asked_again_after_a_second_and_is_none_then() {
        // IN-6
        let (presence, kind, now) = (Presence::default(), Gvk::parse("a.dev/v1", "A").unwrap(), Instant::now());
        let seconds = Duration::from_secs;
        let is_older = |age, after| presence.is_older(&kind, age, now + after);
        assert_eq!(is_older(seconds(15), seconds(0)), None);
        presence.learn(&kind, true, now);
        let ages = |known: &dyn Fn(u64) -> Option<bool>| [0, 1, 14, 15].map(|after| known(after).unwrap());
        assert_eq!(ages(&|after| is_older(seconds(15), seconds(after))), [false, false, false, true]);
        presence.doubt(&kind);
        assert!(presence.is_doubted(&kind));
        assert_eq!(ages(&|after| is_older(Duration::MAX, seconds(after))), [false, true, true, true]);
        presence.learn(&kind, true, now);
        assert!(!presence.is_doubted(&kind));
        assert_eq!(ages(&|after| is_older(Duration::MAX, seconds(after))), [false; 4]);
    }
}

//! What is remembered of which kinds an API server serves, and who is told that this has changed, or may have (`WF-11`).

use std::collections::HashMap;

use capstan_core::object::Gvk;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::MOST_KINDS;

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

    /// Takes in what an answer says of a kind.
    pub(super) fn learn(&self, gvk: &Gvk, served: bool) {
        let mut kinds = self.kinds.lock();
        match kinds.get_mut(gvk) {
            Some(known) if known.served == served => {}
            Some(known) => {
                let flip = *self.flips.borrow() + 1;
                *known = Known { served, flip };
                self.flips.send_replace(flip);
            }
            None => {
                // Whoever asks for so many names others each time.
                if kinds.len() >= MOST_KINDS {
                    kinds.clear();
                }
                kinds.insert(gvk.clone(), Known { served, flip: 0 });
            }
        }
    }

    /// Takes in that a request about a kind was answered as if that were not served.
    pub(super) fn doubt(&self, gvk: &Gvk) {
        if self.of(gvk) == Some(true) {
            self.doubts.send_replace(());
        }
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
        let mut seen = Vec::new();
        for (gvk, served) in [(&one, true), (&one, true), (&one, false), (&other, false), (&other, true), (&one, true)]
        {
            presence.learn(gvk, served);
            seen.push((*flips.borrow(), presence.of(gvk)));
        }
        let expected = [(0, true), (0, true), (1, false), (1, false), (2, true), (3, true)];
        assert_eq!(seen, expected.map(|(flip, served)| (flip, Some(served))));
        assert!(presence.has_flipped(&one, 2) && !presence.has_flipped(&other, 2) && presence.has_flipped(&other, 1));
        presence.learn(&one, false);
        for (gvk, told) in [(&one, false), (&Gvk::parse("v1", "C").unwrap(), false), (&other, true)] {
            presence.doubt(gvk);
            assert_eq!(doubts.has_changed().unwrap(), told, "{gvk}");
        }
    }
}

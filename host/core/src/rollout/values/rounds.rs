//! Decides which of the values that operators ask for are read, and when (CV-1).

use std::time::Duration;

use tokio::time::Instant;

/// From one time that all values are read to the next.
pub const AGAIN: Duration = Duration::from_secs(15);

/// From one time that those are read which could not be so far to the next.
pub const SOON: Duration = Duration::from_secs(2);

/// When all values are read next. Nothing that is asked for meanwhile moves that.
#[derive(Debug)]
pub struct Rounds {
    all: Instant,
}

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// All values.
    All,
    /// Those that have not been read so far.
    Unread,
}

impl Rounds {
    /// Returns rounds whose first one is due.
    pub const fn new(now: Instant) -> Self {
        Self { all: now }
    }

    /// Returns what is read now, when something new is asked for or [`Rounds::next`] has come.
    pub fn due(&self, now: Instant) -> Reads {
        if now < self.all { Reads::Unread } else { Reads::All }
    }

    /// Takes in that this was read; `jitter` shortens a pause by chance.
    pub fn finish(&mut self, reads: Reads, now: Instant, jitter: impl FnOnce(Duration) -> Duration) {
        match reads {
            Reads::All => self.all = now + jitter(AGAIN),
            Reads::Unread => {}
        }
    }

    /// Returns when to read next if nothing new is asked for. `unread`: some values could not be read.
    pub fn next(&self, unread: bool, now: Instant, jitter: impl FnOnce(Duration) -> Duration) -> Instant {
        if unread { self.all.min(now + jitter(SOON)) } else { self.all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_is_read_again_in_time_whatever_is_asked_for_or_can_not_be_read_meanwhile() {
        // CV-1
        let begun = Instant::now();
        let mut rounds = Rounds::new(begun);
        let secs = Duration::from_secs;
        // At which second it is looked, whether something is unread after that, what is read, and when it is looked again.
        for (at, unread, read, next) in [
            (0, false, Reads::All, 15),
            // Somebody goes on asking for something new.
            (3, false, Reads::Unread, 15),
            (12, false, Reads::Unread, 15),
            (15, false, Reads::All, 30),
            // What can't be read has nothing else read more often, or later.
            (16, true, Reads::Unread, 18),
            (18, true, Reads::Unread, 20),
            (29, true, Reads::Unread, 30),
            (30, true, Reads::All, 32),
            (32, false, Reads::Unread, 45),
            // One that takes long does not have the next one follow at once.
            (70, false, Reads::All, 85),
        ] {
            let now = begun + secs(at);
            let due = rounds.due(now);
            rounds.finish(due, now, |pause| pause);
            assert_eq!((due, rounds.next(unread, now, |pause| pause) - begun), (read, secs(next)), "after {at} s");
        }
    }
}

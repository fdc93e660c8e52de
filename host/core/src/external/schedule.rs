//! Decides when a source outside of the cluster is polled again, and each primary of one that is polled by itself (PP).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::{doubled, shorter};
use crate::manifest::polls::SHORTEST;
use crate::object::ObjectRef;

/// The longest time to the next poll after failures, unless the period is longer.
const LONGEST: Duration = Duration::from_mins(5);

/// The time to the first repetition of a poll that has failed, where there is no period.
const RETRY: Duration = Duration::from_secs(1);

/// After so many failures in a row it is told that a primary can't be polled: fewer may be by chance.
const STREAK: u32 = 3;

/// By which share of it the time to the next poll may be shorter, so that not all come together.
const JITTER: f64 = 0.1;

/// When each primary is polled next. `chance` is a number from 0 to 1 everywhere.
#[derive(Debug)]
pub struct Schedule {
    /// `None`: only who is asked for is polled.
    every: Option<Duration>,
    first_after: Duration,
    /// What failures are tried again by: the period, unless they are not to wait for that.
    retry: Duration,
    /// Those that wait, by time.
    due: BTreeSet<(Instant, ObjectRef)>,
    primaries: BTreeMap<ObjectRef, Entry>,
}

/// A primary whose turn it is: one that is made again under its name is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its name.
    pub primary: ObjectRef,
    /// Its uid.
    pub uid: Box<str>,
}

#[derive(Clone, Debug)]
struct Entry {
    uid: Box<str>,
    /// `None`: it is being polled.
    at: Option<Instant>,
    /// Failures in a row.
    failures: u32,
    /// It has changed while it was polled.
    changed: bool,
    /// What is being polled may be out of date when it comes, so that it is polled again at this time.
    again: Option<Instant>,
}

/// How a poll of a primary has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// Well; it is polled again after this time, or when the manifest says (`None`).
    Well(Option<Duration>),
    /// It has failed, and is tried again.
    Badly,
    /// The manifest does not want it polled: it waits for a change of the primary.
    Unwanted,
}

/// What is news about whether a primary can be polled (`PP-4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streak {
    /// It has failed three times in a row.
    Began,
    /// It has succeeded after that.
    Ended,
}

/// Returns the time to the next poll, after so many failures in a row.
pub fn pause(every: Duration, failures: u32, chance: f64) -> Duration {
    shorter(doubled(every, failures, LONGEST.max(every)), JITTER, chance)
}

impl Schedule {
    /// Returns one without primaries.
    pub fn new(every: Option<Duration>, first_after: Duration) -> Self {
        let retry = every.unwrap_or(RETRY);
        Self { every, first_after, retry, due: BTreeSet::new(), primaries: BTreeMap::new() }
    }

    /// Has failures tried again soon, whatever the period (`IB-6`).
    #[must_use]
    pub fn hasty(self) -> Self {
        Self { retry: RETRY, ..self }
    }

    /// Takes in that a primary has appeared or changed: it is polled after the first delay, unless it is polled anyway (`PP-2`), or is not asked
    /// for (`IB-6`).
    pub fn notice(&mut self, (primary, uid): (&ObjectRef, &str), now: Instant, chance: f64) {
        match self.primaries.get_mut(primary) {
            Some(entry) if *entry.uid == *uid => entry.changed = entry.at.is_none(),
            Some(_) | None if self.every.is_none() => self.remove(primary),
            Some(_) | None => {
                self.remove(primary);
                let at = now + pause(self.first_after, 0, chance);
                self.wait(Turn { primary: primary.clone(), uid: uid.into() }, at, 0);
            }
        }
    }

    /// Takes in that a primary is asked for: it is polled at this time, or earlier, and once more if it is being polled (`IB-6`).
    pub fn ask(&mut self, turn: Turn, at: Instant) {
        match self.primaries.get_mut(&turn.primary) {
            Some(entry) if entry.uid == turn.uid => match entry.at {
                None => entry.again = Some(entry.again.map_or(at, |known| known.min(at))),
                Some(known) if known > at => {
                    entry.at = Some(at);
                    self.due.remove(&(known, turn.primary.clone()));
                    self.due.insert((at, turn.primary));
                }
                Some(_) => {}
            },
            Some(_) | None => {
                self.remove(&turn.primary);
                self.wait(turn, at, 0);
            }
        }
    }

    /// Takes in that a primary is gone: it is not polled again.
    pub fn remove(&mut self, primary: &ObjectRef) {
        if let Some(Entry { at: Some(at), .. }) = self.primaries.remove(primary) {
            self.due.remove(&(at, primary.clone()));
        }
    }

    /// Takes in that what was polled may be out of date: all are polled at once, those under way once more.
    pub fn hurry(&mut self, now: Instant) {
        for entry in self.primaries.values_mut() {
            entry.again = entry.at.is_none().then_some(now);
        }
        for (_, primary) in std::mem::take(&mut self.due) {
            if let Some(entry) = self.primaries.get_mut(&primary) {
                entry.at = Some(now);
            }
            self.due.insert((now, primary));
        }
    }

    /// Returns when the next poll is due; `None` if none is.
    pub fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Returns a primary to poll now; `None` if none is due. It is polled until [`Schedule::finish`].
    pub fn take(&mut self, now: Instant) -> Option<Turn> {
        self.due.first().filter(|(at, _)| *at <= now)?;
        let (_, primary) = self.due.pop_first()?;
        let entry = self.primaries.get_mut(&primary)?;
        (entry.at, entry.changed, entry.again) = (None, false, None);
        Some(Turn { uid: entry.uid.clone(), primary })
    }

    /// Takes in how a poll has ended, and returns what is news of that. Of a primary that has gone meanwhile nothing follows.
    pub fn finish(&mut self, turn: Turn, polled: Polled, now: Instant, chance: f64) -> Option<Streak> {
        let Entry { uid, at: None, failures, changed, again: asked } = self.primaries.get(&turn.primary).cloned()?
        else {
            return None;
        };
        if uid != turn.uid {
            return None;
        }
        let news = match polled {
            Polled::Badly => (failures.saturating_add(1) == STREAK).then_some(Streak::Began),
            Polled::Well(_) => (failures >= STREAK).then_some(Streak::Ended),
            Polled::Unwanted => None,
        };
        match polled {
            Polled::Badly => {
                let failures = failures.saturating_add(1);
                let at = now + pause(self.retry, failures, chance);
                self.wait(turn, asked.map_or(at, |asked| asked.min(at)), failures);
            }
            Polled::Well(_) | Polled::Unwanted if asked.is_some() => self.wait(turn, asked.unwrap_or(now), 0),
            Polled::Well(Some(again)) => self.wait(turn, now + again.max(SHORTEST), 0),
            Polled::Well(None) => match self.every {
                Some(every) => self.wait(turn, now + pause(every, 0, chance), 0),
                None => drop(self.primaries.remove(&turn.primary)),
            },
            Polled::Unwanted => {
                self.primaries.remove(&turn.primary);
                if changed {
                    self.notice((&turn.primary, &uid), now, chance);
                }
            }
        }
        news
    }

    fn wait(&mut self, Turn { primary, uid }: Turn, at: Instant, failures: u32) {
        self.due.insert((at, primary.clone()));
        self.primaries.insert(primary, Entry { uid, at: Some(at), failures, changed: false, again: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn turn(name: &str, uid: &str) -> Turn {
        Turn { primary: ObjectRef::cluster(name), uid: uid.into() }
    }

    #[test]
    fn a_pause_is_a_tenth_shorter_at_most_and_grows_with_failures() {
        // PP-2
        for (every, failures, chance, expected) in [
            (10_000, 0, 0.0, 10_000),
            (10_000, 0, 1.0, 9_000),
            (10_000, 0, 0.5, 9_500),
            (10_000, 1, 0.0, 10_000),
            (10_000, 2, 0.0, 20_000),
            (10_000, 5, 0.0, 160_000),
            (10_000, 6, 0.0, 300_000),
            (10_000, 6, 1.0, 270_000),
            (10_000, 4_000_000_000, 0.0, 300_000),
            (600_000, 9, 0.0, 600_000),
            (600_000, 4_000_000_000, 0.0, 600_000),
            (100, 3, 0.0, 400),
        ] {
            let found = pause(Duration::from_millis(every), failures, chance);
            assert_eq!(found, Duration::from_millis(expected), "{every} {failures} {chance}");
        }
    }

    #[test]
    fn a_primary_is_polled_after_the_first_delay_and_then_each_period_until_it_is_gone() {
        // PP-2
        let (start, a) = (Instant::now(), ObjectRef::cluster("a"));
        let at = |n| start + seconds(n);
        let mut schedule = Schedule::new(Some(seconds(10)), seconds(3));
        assert_eq!(schedule.next(), None);
        schedule.notice((&a, "u"), at(0), 0.0);
        schedule.notice((&a, "u"), at(2), 0.0);
        assert_eq!(schedule.next(), Some(at(3)), "one that waits is not put off");
        assert_eq!((schedule.take(at(2)), schedule.take(at(3))), (None, Some(turn("a", "u"))));
        schedule.notice((&a, "u"), at(4), 0.0);
        assert_eq!((schedule.next(), schedule.take(at(100))), (None, None), "never twice at once");
        schedule.finish(turn("a", "u"), Polled::Well(None), at(5), 0.0);
        assert_eq!(schedule.next(), Some(at(15)));
        assert_eq!(schedule.take(at(15)), Some(turn("a", "u")));
        schedule.finish(turn("a", "u"), Polled::Well(Some(seconds(1))), at(15), 0.0);
        assert_eq!(schedule.next(), Some(at(16)), "as the component says");
        assert_eq!(schedule.take(at(16)), Some(turn("a", "u")));
        schedule.finish(turn("a", "u"), Polled::Well(Some(Duration::ZERO)), at(16), 0.0);
        assert_eq!(schedule.next(), Some(at(16) + SHORTEST));
        schedule.remove(&a);
        assert_eq!((schedule.next(), schedule.take(at(100))), (None, None));
    }

    #[test]
    fn it_is_news_once_that_a_primary_can_not_be_polled_and_once_that_it_can_be_again() {
        // PP-4
        use Polled::{Badly, Unwanted, Well};
        let (mut now, a) = (Instant::now(), ObjectRef::cluster("a"));
        let mut schedule = Schedule::new(Some(seconds(10)), seconds(0));
        schedule.notice((&a, "u"), now, 0.0);
        for (number, (polled, news)) in [
            (Badly, None),
            (Badly, None),
            (Well(None), None),
            (Badly, None),
            (Badly, None),
            (Badly, Some(Streak::Began)),
            (Badly, None),
            (Well(None), Some(Streak::Ended)),
            (Well(None), None),
            (Badly, None),
            (Unwanted, None),
        ]
        .into_iter()
        .enumerate()
        {
            now = schedule.next().unwrap();
            let turn = schedule.take(now).unwrap();
            assert_eq!(schedule.finish(turn, polled, now, 0.0), news, "{number}");
        }
    }

    #[test]
    fn a_poll_that_fails_is_tried_again_and_one_that_ends_after_its_primary_is_not() {
        // PP-2, XC-6
        let (start, a) = (Instant::now(), ObjectRef::cluster("a"));
        let at = |n| start + seconds(n);
        let mut schedule = Schedule::new(Some(seconds(10)), seconds(0));
        schedule.notice((&a, "u"), at(0), 0.0);
        for (begun, next) in [(0, 10), (10, 30), (30, 70)] {
            assert_eq!(schedule.take(at(begun)), Some(turn("a", "u")));
            schedule.finish(turn("a", "u"), Polled::Badly, at(begun), 0.0);
            assert_eq!(schedule.next(), Some(at(next)));
        }
        assert_eq!(schedule.take(at(70)), Some(turn("a", "u")));
        schedule.finish(turn("a", "u"), Polled::Well(None), at(70), 0.0);
        assert_eq!(schedule.next(), Some(at(80)), "a success ends the failures");
        assert_eq!(schedule.take(at(80)), Some(turn("a", "u")));
        schedule.remove(&a);
        schedule.finish(turn("a", "u"), Polled::Well(None), at(81), 0.0);
        assert_eq!(schedule.next(), None);
        // Made again while the poll of the one before is under way: that one's end says nothing of it.
        schedule.notice((&a, "u"), at(90), 0.0);
        schedule.finish(turn("a", "u"), Polled::Unwanted, at(91), 0.0);
        assert_eq!(schedule.next(), Some(at(90)));
    }

    #[test]
    fn who_is_asked_for_is_polled_then_or_earlier_and_again_if_it_is_being_polled() {
        // IB-6
        let (start, a) = (Instant::now(), ObjectRef::cluster("a"));
        let at = |n| start + seconds(n);
        let mut schedule = Schedule::new(None, seconds(0));
        schedule.notice((&a, "u"), at(0), 0.0);
        assert_eq!(schedule.next(), None, "nobody has asked");
        for (asked, next) in [(9, 9), (5, 5), (7, 5)] {
            schedule.ask(turn("a", "u"), at(asked));
            assert_eq!(schedule.next(), Some(at(next)));
        }
        assert_eq!(schedule.take(at(5)), Some(turn("a", "u")));
        schedule.ask(turn("a", "u"), at(6));
        schedule.ask(turn("a", "u"), at(8));
        assert_eq!(schedule.next(), None, "it is being polled");
        schedule.finish(turn("a", "u"), Polled::Well(None), at(6), 0.0);
        assert_eq!((schedule.next(), schedule.take(at(6))), (Some(at(6)), Some(turn("a", "u"))));
        schedule.finish(turn("a", "u"), Polled::Well(None), at(7), 0.0);
        assert_eq!(schedule.next(), None, "there is no period");
        // One that is made again is another one.
        schedule.ask(turn("a", "u"), at(8));
        schedule.notice((&a, "v"), at(8), 0.0);
        assert_eq!(schedule.next(), None);
    }

    #[test]
    fn a_poll_that_was_asked_for_and_fails_is_tried_again_later_each_time() {
        // IB-6
        let hourly = || Schedule::new(Some(seconds(3_600)), seconds(0)).hasty();
        for mut schedule in [Schedule::new(None, seconds(0)), hourly()] {
            let start = Instant::now();
            let at = |n| start + seconds(n);
            schedule.ask(turn("a", "u"), at(0));
            for (begun, next) in [(0, 1), (1, 3), (3, 7)] {
                assert_eq!(schedule.take(at(begun)), Some(turn("a", "u")));
                schedule.finish(turn("a", "u"), Polled::Badly, at(begun), 0.0);
                assert_eq!(schedule.next(), Some(at(next)));
            }
        }
    }

    #[test]
    fn a_primary_that_is_not_wanted_waits_for_a_change() {
        // PP-2
        let (start, a) = (Instant::now(), ObjectRef::cluster("a"));
        let at = |n| start + seconds(n);
        let mut schedule = Schedule::new(Some(seconds(10)), seconds(3));
        for (changed, next) in [(false, None), (true, Some(at(7)))] {
            schedule.notice((&a, "u"), at(0), 0.0);
            assert_eq!(schedule.take(at(3)), Some(turn("a", "u")));
            if changed {
                schedule.notice((&a, "u"), at(4), 0.0);
            }
            schedule.finish(turn("a", "u"), Polled::Unwanted, at(4), 0.0);
            assert_eq!(schedule.next(), next, "{changed}");
        }
    }

    #[test]
    fn after_a_swap_all_that_wait_are_polled_at_once() {
        let start = Instant::now();
        let mut schedule = Schedule::new(Some(seconds(10)), seconds(3));
        for name in ["a", "b", "c"] {
            schedule.notice((&ObjectRef::cluster(name), "u"), start, 0.0);
        }
        let (first, swap) = (schedule.take(start + seconds(3)).unwrap(), start + seconds(4));
        schedule.hurry(swap);
        let rest: Vec<_> = std::iter::from_fn(|| schedule.take(swap)).map(|turn| turn.primary.to_string()).collect();
        assert_eq!((first.primary.to_string(), rest), ("a".to_owned(), vec!["b".to_owned(), "c".to_owned()]));
        // The one under way was asked of the version before.
        schedule.finish(first.clone(), Polled::Well(Some(seconds(1_000))), swap, 0.0);
        assert_eq!(schedule.next(), Some(swap));
        assert_eq!(schedule.take(swap), Some(first.clone()));
        schedule.finish(first.clone(), Polled::Well(Some(seconds(1_000))), swap, 0.0);
        assert_eq!(schedule.next(), Some(swap + seconds(1_000)));
    }

    #[test]
    fn a_primary_made_again_is_polled_as_a_new_one_and_the_end_of_an_old_poll_says_nothing_of_it() {
        // PP-2
        let (start, a) = (Instant::now(), ObjectRef::cluster("a"));
        let at = |n| start + seconds(n);
        let mut schedule = Schedule::new(Some(seconds(100)), seconds(3));
        schedule.notice((&a, "u"), at(0), 0.0);
        let old = schedule.take(at(3)).unwrap();
        schedule.finish(old, Polled::Well(None), at(3), 0.0);
        schedule.notice((&a, "v"), at(4), 0.0);
        assert_eq!(schedule.next(), Some(at(7)), "not in a hundred seconds");
        assert_eq!(schedule.take(at(7)), Some(turn("a", "v")));
        schedule.notice((&a, "w"), at(8), 0.0);
        assert_eq!(schedule.take(at(11)), Some(turn("a", "w")));
        schedule.finish(turn("a", "v"), Polled::Unwanted, at(12), 0.0);
        assert_eq!(schedule.next(), None, "it is being polled");
        schedule.finish(turn("a", "w"), Polled::Well(None), at(13), 0.0);
        assert_eq!(schedule.next(), Some(at(113)));
    }
}

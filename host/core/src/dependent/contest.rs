//! Decides when an object that others keep changing is put right again, so that two who disagree do not write without end (LG rules).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::grown;

/// So often in a row an object is put right at once.
pub const FREE: u32 = 5;

/// The first pause after that, and the longest; each is twice as long as the one before.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_mins(5);

/// Who has left an object alone for so long, or for twice as long as the last pause, has settled.
const SETTLED: Duration = Duration::from_mins(1);

/// What is remembered of an object that has been put right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contest {
    /// The hash of what was wanted.
    wanted: u64,
    /// How often it has been put right in a row.
    times: u32,
    /// When it was last.
    last: Instant,
    /// What others keep changing; `None` until it is written less often for that.
    why: Option<Arc<str>>,
}

impl Contest {
    /// Returns what is remembered of an object that is put right for the first time.
    pub fn new(wanted: u64, now: Instant) -> Self {
        Self { wanted, times: 1, last: now, why: None }
    }

    /// Takes in that it has been put right again. What was before does not count if something else is wanted by now, or if others had
    /// settled.
    pub fn again(&mut self, wanted: u64, now: Instant) {
        if wanted == self.wanted && now < self.settled_at() {
            (self.times, self.last) = (self.times.saturating_add(1), now);
        } else {
            *self = Self::new(wanted, now);
        }
    }

    /// Whether it is about this.
    pub fn is_about(&self, wanted: u64) -> bool {
        self.wanted == wanted
    }

    /// Returns when it may be put right again; `None`: now (`LG-1`).
    pub fn held_until(&self, wanted: u64, now: Instant) -> Option<Instant> {
        let until = self.last + self.pause();
        (wanted == self.wanted && now < until).then_some(until)
    }

    /// Takes in what others keep changing.
    pub fn explain(&mut self, why: Arc<str>) {
        self.why = Some(why);
    }

    /// Returns what others keep changing, as long as it is written less often for that.
    pub fn why(&self, now: Instant) -> Option<&Arc<str>> {
        self.why.as_ref().filter(|_| now < self.settled_at())
    }

    /// Returns when others will have settled, if they leave it alone.
    pub fn settled_at(&self) -> Instant {
        self.last + SETTLED.max(2 * self.pause())
    }

    fn pause(&self) -> Duration {
        match self.times.checked_sub(FREE) {
            Some(more) => grown(FIRST, 2.0, more, LONGEST),
            None => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has others change an object `after` each time that it was put right, for so many times; returns after how many seconds it was
    /// put right each time.
    fn played(times: usize, after: Duration, wanted: impl Fn(usize) -> u64) -> Vec<u64> {
        let start = Instant::now();
        let (mut now, mut contest, mut written) = (start, None::<Contest>, Vec::new());
        for number in 0..times {
            let wanted = wanted(number);
            if let Some(until) = contest.as_ref().and_then(|contest| contest.held_until(wanted, now)) {
                now = until;
            }
            match &mut contest {
                Some(contest) => contest.again(wanted, now),
                None => contest = Some(Contest::new(wanted, now)),
            }
            written.push((now - start).as_secs());
            now += after;
        }
        written
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_others_keep_changing_is_put_right_less_and_less_often() {
        // LG-1
        let at_once = Duration::ZERO;
        let seconds = Duration::from_secs;
        for (case, after, expected) in [
            ("at once", at_once, vec![0, 0, 0, 0, 0, 5, 15, 35, 75, 155, 315, 615, 915]),
            ("within the pauses", seconds(3), vec![0, 3, 6, 9, 12, 17, 27, 47, 87, 167, 327, 627, 927]),
            ("a person, now and then", seconds(61), (0..13).map(|number| number * 61).collect()),
            (
                "somebody who is slower than the first pauses",
                seconds(30),
                vec![0, 30, 60, 90, 120, 150, 180, 210, 250, 330, 490, 790, 1090],
            ),
        ] {
            assert_eq!(played(13, after, |_| 1), expected, "{case}");
        }
        let changing = played(13, at_once, |number| number as u64 / 4);
        assert_eq!(changing, [0; 13], "what is wanted is another thing each time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_contest_ends_when_others_leave_the_object_alone_or_something_else_is_wanted() {
        // LG-2
        let now = Instant::now();
        let mut contest = Contest::new(1, now);
        for _ in 0..6 {
            contest.again(1, now);
        }
        assert_eq!(contest.why(now), None);
        contest.explain("somebody".into());
        let until = now + Duration::from_secs(20);
        assert_eq!(contest.held_until(1, now), Some(until));
        assert_eq!((contest.held_until(2, now), contest.held_until(1, until)), (None, None));
        let settled = now + Duration::from_mins(1);
        assert_eq!(contest.settled_at(), settled);
        assert_eq!(contest.why(settled - Duration::from_millis(1)).map(|why| &**why), Some("somebody"));
        assert_eq!(contest.why(settled), None);
        contest.again(1, settled);
        assert_eq!(contest, Contest::new(1, settled), "from the beginning");
    }
}

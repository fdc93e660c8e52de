//! Decides when informers begin: those of one operator at a bounded rate, so that however many it has, nobody else's wait behind them, and those of
//! single namespaces only while they leave files to others (`NS-6`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::bucket::{Bucket, Rate};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// How fast the informers of one operator begin: each connects, agrees upon TLS and lists, which takes up to some milliseconds.
const RATE: Rate = Rate { interval: Duration::from_millis(10), burst: 200 };

/// The part of all files that may be open which watches of single namespaces may take, two for each.
const PART: u64 = 4;

/// Why an informer does not begin.
pub(super) const NO_FILES: &str = "the daemon may have too few files open for one more watch of a single namespace beside those that its operator has: watch `all`, or fewer namespaces, or raise the limit of open files";

/// When informers begin, by operator.
pub(super) struct Starts {
    turns: BTreeMap<Arc<str>, Bucket>,
    /// The most watches of single namespaces.
    most: u64,
    /// How many each operator has.
    begun: BTreeMap<Arc<str>, u64>,
}

/// When an informer begins, and what ends it.
pub(super) struct Life {
    pub(super) begins: watch::Receiver<Instant>,
    /// Not before this either.
    pub(super) later: Option<Instant>,
    pub(super) stop: CancellationToken,
}

impl Starts {
    /// Returns those of a daemon that may have so many files open; `None`: as many as it wants.
    pub(super) fn new(files: Option<u64>) -> Self {
        Self { turns: BTreeMap::new(), most: files.unwrap_or(u64::MAX) / PART, begun: BTreeMap::new() }
    }

    /// Counts a watch of a single namespace in, unless its operator would have more of them than it leaves to others: so who comes last finds some.
    pub(super) fn begin(&mut self, operator: &Arc<str>) -> bool {
        let all = self.begun.values().sum::<u64>() + 1;
        let has = self.begun.get(operator).copied().unwrap_or_default() + 1;
        let may = has <= self.most.saturating_sub(all);
        if may {
            self.begun.insert(Arc::clone(operator), has);
        }
        may
    }

    /// Counts one that has begun for another operator: the one that wanted it has left it.
    pub(super) fn pass(&mut self, from: &Arc<str>, to: &Arc<str>) {
        self.end(from);
        *self.begun.entry(Arc::clone(to)).or_default() += 1;
    }

    /// Counts one out.
    pub(super) fn end(&mut self, operator: &Arc<str>) {
        if let Some(has) = self.begun.get_mut(operator) {
            *has = has.saturating_sub(1);
        }
        self.begun.retain(|_, has| *has > 0);
    }

    /// Returns when an informer may begin that `operator` wants.
    pub(super) fn next(&mut self, operator: &Arc<str>, now: Instant) -> Instant {
        self.turns.retain(|_, bucket| !bucket.is_full(now));
        now + self.turns.entry(Arc::clone(operator)).or_default().take(RATE, now)
    }
}

impl Life {
    /// Has it try again after a pause.
    pub(super) fn begins_in(&mut self, pause: Duration) {
        self.later = Some(Instant::now() + pause);
    }

    /// Waits until the informer may begin. Returns false if it is to end before that.
    pub(super) async fn begun(&mut self) -> bool {
        loop {
            let begins = self.later.unwrap_or(*self.begins.borrow_and_update());
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return false,
                () = sleep_until(begins) => return true,
                // Another operator wants it sooner.
                Ok(()) = self.begins.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_most_watches_leaves_files_for_as_many_and_who_comes_last_finds_some() {
        // NS-6
        let mut starts = Starts::new(Some(1500));
        let mut begin = |operator: &str| {
            let operator = operator.into();
            (0..2000).filter(|_| starts.begin(&operator)).count()
        };
        assert_eq!(["hog", "other", "third", "hog"].map(&mut begin), [187, 94, 47, 0]);
        starts.end(&"hog".into());
        assert!(starts.begin(&"last".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_informers_one_operator_has_those_of_another_begin_at_once() {
        // NS-6
        let (mut starts, now) = (Starts::new(None), Instant::now());
        let [hog, other] = ["hog", "other"].map(Arc::from);
        let begins: Vec<_> = (0..2000).map(|_| starts.next(&hog, now) - now).collect();
        assert_eq!([begins[199], begins[1999]], [Duration::ZERO, Duration::from_secs(18)]);
        assert_eq!(starts.next(&other, now), now);
        let later = now + Duration::from_secs(30);
        assert_eq!(
            (starts.next(&other, later), starts.turns.len()),
            (later, 1),
            "nothing is kept of who has none to begin"
        );
    }
}

//! Waits for the next primary to work on: the only hand-off between watching and working.
//!
//! Watching calls [`Queue::event`], working awaits [`Queue::next`] and ends each [`Ticket`] with [`Ticket::finish`].
//! Timers, retries and reschedules have no other way in. The queue holds keys, never objects.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use capstan_core::object::ObjectRef;
//! use capstan_core::queue::{Event, Finished, Next, Policy, Queue};
//! use tokio::time::Instant;
//!
//! let queue = Queue::new(Policy::default());
//! let key = ObjectRef::namespaced("default", "page");
//! queue.event(&key, Event::PrimaryChanged { deleting: false }, Instant::now());
//! queue.start(Instant::now());
//! let ticket = queue.next().await.unwrap();
//! assert_eq!(*ticket.key(), key);
//! let what = ticket.finish(Finished::DONE, Instant::now());
//! assert!(matches!(what.next, Next::Idle(Some(_)))); // once more after ten hours
//! # });
//! ```

mod limiter;
mod outage;
mod retry;
mod state;
mod words;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::guest::{FailureClass, RetryInfo};
use crate::object::{Object, ObjectRef};
use state::{Concerned, State, Taken, Turn};
pub use words::{
    Blame, Counts, Deletion, Event, Failure, Finished, KeyState, Level, Mark, Mode, Next, Outcome, Policy, Receipt,
    Settled, Urgency,
};

/// Longer than any daemon runs, and short enough to be added to any instant.
const FOREVER: Duration = Duration::from_hours(30 * 365 * 24);

/// An event that concerns many keys reaches so many of them at a time.
const PORTION: usize = 256;

/// The queue of one controller's keys. A clone is another handle of the same queue.
#[derive(Clone, Debug)]
pub struct Queue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notified when the earliest due key may have changed. Holds one permit, so a change between look and wait is
    /// not lost.
    changed: Notify,
}

/// The right, and the duty, to run a key: no other run gets the key until the ticket is finished. A dropped ticket
/// counts as a failure, so a panic or an abort can't leave its key stuck.
#[derive(Debug)]
#[must_use = "a dropped ticket counts as a failure"]
pub struct Ticket {
    run: Taken,
    queue: Queue,
    /// What is known of its failure, if it fails.
    blame: Blame,
    /// True until the key is given back.
    open: bool,
}

// === impl Queue ===

impl Queue {
    /// Returns an empty queue. Until it is started, it only remembers events (`EP-3`).
    pub fn new(policy: Policy) -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State::new(policy)), changed: Notify::new() }))
    }

    /// Takes in an event of a key, and returns what it led to: a later run, the end of the key, or nothing.
    pub fn event(&self, key: &ObjectRef, event: Event, now: Instant) -> Receipt {
        self.change(|state| state.event(key, (event, Urgency::Fresh), now))
    }

    /// Takes in an event that tells of nothing new: of an object that was there before anybody looked. Its run comes after
    /// those that follow from changes (`EP-13`).
    pub fn replay(&self, key: &ObjectRef, event: Event, now: Instant) -> Receipt {
        self.change(|state| state.event(key, (event, Urgency::Replayed), now))
    }

    /// Takes in that the finalizers that are removed from primaries are others now: primaries that one has been removed from may have
    /// more of them.
    pub fn finalizers_changed(&self, now: Instant) {
        self.concerning(Concerned::Finalized, now);
    }

    /// Returns true if a deletion is run for like any other event (`AE-1`).
    pub fn runs_deletions(&self) -> bool {
        self.0.state.lock().runs_deletions()
    }

    /// Returns true if a key is gone, and a run about that has to follow (`AE-3`).
    pub fn awaits_deletion_run(&self, key: &ObjectRef) -> bool {
        self.0.state.lock().is_gone(key)
    }

    /// Begins to hand out keys: first those with an event that came while the queue was stopped, and those whose last
    /// run failed (`EP-3`). Does nothing if the queue is running or closed.
    pub fn start(&self, now: Instant) {
        self.change(|state| state.start(now));
    }

    /// Hands out no more keys until [`Queue::start`]. Runs under way continue, but their outcome is ignored, and
    /// their keys run again after the start (`LC-22`).
    pub fn stop(&self) {
        self.change(State::stop);
    }

    /// Ends the queue for good: [`Queue::next`] returns `None` from now on, and outcomes are ignored.
    pub fn close(&self) {
        self.change(State::close);
        self.0.changed.notify_one();
    }

    /// Takes in an event that concerns all keys. Each key runs once more, as the rate limit permits.
    pub fn event_for_all(&self, now: Instant) {
        self.concerning(Concerned::All, now);
    }

    /// Takes in that the plugin has another version, or other settings. Each key runs once more, as the rate limit permits, and its attempts are
    /// counted anew: what has failed was another one.
    pub fn swapped(&self, now: Instant) {
        self.concerning(Concerned::Anew, now);
    }

    /// Takes in an event that concerns all keys whose last run has failed: what it failed for may be there now, or not be needed any more.
    pub fn event_for_failed(&self, now: Instant) {
        self.concerning(Concerned::Failed, now);
    }

    /// Takes in an event that concerns many keys: some of them at a time, so that nobody else waits for all of them.
    fn concerning(&self, which: Concerned, now: Instant) {
        let mut keys = self.0.state.lock().concerned(which);
        keys.sort_unstable();
        for keys in keys.chunks(PORTION) {
            self.change(|state| state.event_for(which, keys, now));
        }
    }

    /// Changes the policy from now on. Timers that are already set stay, and so do attempts and rate-limit windows.
    pub fn set_policy(&self, policy: Policy) {
        self.change(|state| state.set_policy(policy));
    }

    /// Takes in that the API server works again after an outage. The keys that wait for it run within the next two
    /// seconds, not all at once.
    pub fn resume(&self, now: Instant) {
        self.change(|state| state.resume(now));
    }

    /// Drops the state of all keys for which `keep` returns false: for namespaces that are no longer watched
    /// (`NS-3`). No cleanup takes place. A run under way ends without effect on the queue.
    pub fn retain(&self, keep: impl Fn(&ObjectRef) -> bool) {
        self.change(|state| state.retain(keep));
    }

    /// Waits until a key may run, and returns its ticket: of those that are not in flight, and are permitted by the rate
    /// limit, the one that has been due for longest; those for which something has changed come first, mostly (`EP-13`). Returns `None` once the queue is closed. The future may be dropped at any
    /// time.
    pub async fn next(&self) -> Option<Ticket> {
        let changed = &self.0.changed;
        loop {
            let turn = self.0.state.lock().take(Instant::now());
            match turn {
                Turn::Run(run) => {
                    // Another waiter may have looked before this one changed what is earliest.
                    changed.notify_one();
                    return Some(Ticket { run, queue: self.clone(), blame: Blame::default(), open: true });
                }
                Turn::Closed => {
                    changed.notify_one();
                    return None;
                }
                Turn::Wait(None) => changed.notified().await,
                Turn::Wait(Some(at)) => tokio::select! {
                    // Either way the loop looks at the queue next; a permit that is left is for the next waiter.
                    biased;
                    () = sleep_until(at) => {}
                    () = changed.notified() => {}
                },
            }
        }
    }

    /// Returns true if an event is waiting for the run in flight to end (`EP-24`).
    pub fn next_imminent(&self, key: &ObjectRef) -> bool {
        self.0.state.lock().imminent(key)
    }

    /// Returns true if the queue has this key.
    pub fn knows(&self, key: &ObjectRef) -> bool {
        self.0.state.lock().knows(key)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.0.state.lock().len()
    }

    /// Returns true if there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys, by state.
    pub fn counts(&self, now: Instant) -> Counts {
        self.0.state.lock().counts(now)
    }

    /// Returns the first `limit` keys after `after`, ordered. For diagnostics.
    pub fn states(&self, now: Instant, after: Option<&ObjectRef>, limit: usize) -> Vec<KeyState> {
        self.0.state.lock().states(now, after, limit)
    }

    /// Changes the state, and wakes a waiter if the earliest due key has changed.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.state.lock();
        let before = state.earliest();
        let result = change(&mut state);
        let after = state.earliest();
        drop(state);
        if before != after {
            self.0.changed.notify_one();
        }
        result
    }
}

// === impl Ticket ===

impl Ticket {
    /// Returns the key to run.
    pub fn key(&self) -> &ObjectRef {
        &self.run.key
    }

    /// Takes in which primary the run is about: failures of another one of its name do not count.
    pub fn about(&mut self, primary: &Object) {
        let Self { run, queue, .. } = self;
        if queue.0.state.lock().about(&run.key, &primary.header().uid) {
            (run.retry, run.outages) = (None, 0);
        }
    }

    /// Returns the retry state; `None` on a fresh run.
    pub fn retry(&self) -> Option<RetryInfo> {
        self.run.retry
    }

    /// Returns how many runs in a row before this one failed for an outage of the API server (`EP-34`).
    pub fn outages(&self) -> u32 {
        self.run.outages
    }

    /// Returns the retry state as an error handler sees it, where a fresh run has one too, of a failure of this class
    /// (`EC-2`).
    pub fn retry_if(&self, class: FailureClass) -> RetryInfo {
        let attempt = self.run.retry.map_or(0, |retry| retry.attempt);
        self.queue.0.state.lock().retry_if(attempt, class)
    }

    /// Takes in what is known of the failure with which the run will be finished.
    pub fn blame(&mut self, blame: Blame) {
        self.blame = blame;
    }

    /// Returns the deletion if this run is about it: in all-events mode only. Such a run has to use the last known
    /// object, even if the cache has a new one under the same key.
    pub fn deletion(&self) -> Option<Deletion> {
        self.run.deletion
    }

    /// Returns true if an event is waiting for this run to end (`EP-24`).
    pub fn next_imminent(&self) -> bool {
        self.queue.next_imminent(self.key())
    }

    /// Gives the key back, and returns what follows from the result of the run. Nothing is logged here: the caller
    /// knows the error, and logs the decision with it.
    pub fn finish(mut self, finished: Finished, now: Instant) -> Settled {
        self.settle(finished, now)
    }

    fn settle(&mut self, finished: Finished, now: Instant) -> Settled {
        self.open = false;
        let settled = self.queue.change(|state| state.finish(&self.run.key, (finished, self.blame), now));
        #[expect(clippy::expect_used, reason = "tickets are made by taking, and are settled by finish or else by drop")]
        settled.expect("a ticket's key is in flight")
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let what = self.settle(Finished::Failed(Failure::Unhandled), Instant::now());
        let key = self.key();
        match what.outcome {
            Outcome::Failed(_) => {
                tracing::error!(%key, next = ?what.next, "an execution ended without a result");
            }
            Outcome::Succeeded | Outcome::Ignored => {
                tracing::debug!(%key, next = ?what.next, "an execution ended without a result");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures::FutureExt;

    use super::*;
    use crate::manifest::Retry;

    const CHANGED: Event = Event::PrimaryChanged { deleting: false };

    fn key(letter: &str) -> ObjectRef {
        ObjectRef::cluster(letter)
    }

    fn running() -> Queue {
        let queue = Queue::new(Policy::default());
        queue.start(Instant::now());
        queue
    }

    /// Takes a ticket that must be there without waiting.
    fn take(queue: &Queue) -> Ticket {
        queue.next().now_or_never().flatten().expect("a due key")
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_wakes_for_an_event_and_for_each_timer() {
        // EP-34, RT-2 by the clock; then IV-1
        let (queue, start) = (running(), Instant::now());
        let event = async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            queue.event(&key("a"), CHANGED, Instant::now());
        };
        let mut ticket = tokio::join!(queue.next(), event).0.unwrap();
        let mut times = vec![start.elapsed().as_millis()];
        for _ in 0..6 {
            ticket.finish(Finished::Failed(Failure::Unhandled), Instant::now());
            ticket = queue.next().await.unwrap();
            times.push(start.elapsed().as_millis());
        }
        assert_eq!(times, [700, 2700, 4700, 7700, 12_200, 18_950, 36_018_950]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_for_all_reaches_each_key_once_in_order_however_many_there_are() {
        let (queue, now) = (running(), Instant::now());
        let names: BTreeSet<_> = (0..=3 * PORTION).map(|n| format!("{n:05}")).collect();
        let run = || -> Vec<_> { (0..names.len()).map(|_| take(&queue)).collect() };
        for name in names.iter().rev() {
            queue.event(&key(name), CHANGED, now);
        }
        let done = |ticket: Ticket| _ = ticket.finish(Finished::DONE, now);
        run().into_iter().for_each(done);
        assert!(queue.next().now_or_never().is_none());
        queue.event_for_all(now);
        let tickets = run();
        assert!(tickets.iter().map(|ticket| &*ticket.key().name).eq(names.iter().map(|name| &**name)));
        assert!(queue.next().now_or_never().is_none(), "once");
        let mut tickets = tickets.into_iter();
        tickets.next().unwrap().finish(Finished::Failed(Failure::Unhandled), now);
        tickets.for_each(done);
        queue.event_for_failed(now);
        assert_eq!(*take(&queue).key(), key("00000"));
        assert!(queue.next().now_or_never().is_none(), "only what has failed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_wakes_for_what_becomes_due_before_its_timer() {
        let (queue, start) = (running(), Instant::now());
        for (letter, ms) in [("a", 9000), ("b", 5000)] {
            queue.event(&key(letter), CHANGED, Instant::now());
            let again = Some(Duration::from_millis(ms));
            take(&queue).finish(Finished::NoRetry { again }, Instant::now());
        }
        let event = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            queue.event(&key("a"), Event::Related, Instant::now());
        };
        let ticket = tokio::join!(queue.next(), event).0.unwrap();
        assert_eq!((ticket.key(), start.elapsed()), (&key("a"), Duration::from_millis(300)));
        let ticket = queue.next().await.unwrap();
        assert_eq!((ticket.key(), start.elapsed()), (&key("b"), Duration::from_secs(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_swap_runs_each_key_once_more_and_counts_attempts_anew() {
        // RT-3
        let policy = Policy { retry: Some(Retry { max_attempts: Some(1), ..Retry::default() }), ..Policy::default() };
        let queue = Queue::new(policy);
        queue.start(Instant::now());
        queue.event(&key("a"), CHANGED, Instant::now());
        let fail = |attempt: Option<u32>| {
            let ticket = take(&queue);
            assert_eq!(ticket.retry().map(|retry| retry.attempt), attempt);
            ticket.finish(Finished::Failed(Failure::Unhandled), Instant::now()).next
        };
        let Next::Retry(delay) = fail(None) else { panic!("no retry") };
        tokio::time::sleep(delay).await;
        assert!(matches!(fail(Some(1)), Next::Exhausted(_)));
        queue.swapped(Instant::now());
        assert!(matches!(fail(None), Next::Retry(_)), "of another version, this is the first");
        // During the delay of the old version, too.
        queue.swapped(Instant::now());
        assert!(matches!(fail(None), Next::Retry(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_for_all_runs_each_key_once_more_and_keeps_attempts() {
        let (queue, start) = (running(), Instant::now());
        for letter in ["c", "b", "a"] {
            queue.event(&key(letter), CHANGED, Instant::now());
        }
        take(&queue).finish(Finished::DONE, Instant::now());
        take(&queue).finish(Finished::Failed(Failure::Unhandled), Instant::now());
        let under_way = take(&queue);
        queue.event_for_all(Instant::now());
        let runs = [take(&queue), take(&queue)];
        let seen = runs.map(|run| (run.key().name.to_string(), run.retry().map(|r| r.attempt)));
        assert_eq!(seen, [("b".to_owned(), Some(1)), ("c".to_owned(), None)]);
        assert!(queue.next().now_or_never().is_none());
        under_way.finish(Finished::DONE, Instant::now());
        assert_eq!(take(&queue).key(), &key("a"));
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_policy_counts_from_the_next_decision_on() {
        let (queue, start) = (running(), Instant::now());
        let interval = |seconds| Policy { max_interval: Some(Duration::from_secs(seconds)), ..Policy::default() };
        queue.event(&key("a"), CHANGED, Instant::now());
        queue.set_policy(interval(60));
        take(&queue).finish(Finished::DONE, Instant::now());
        queue.set_policy(interval(5));
        let run = queue.next().await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_mins(1), "a timer that is set stays");
        run.finish(Finished::DONE, Instant::now());
        let _run = queue.next().await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(65));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_wakes_when_the_queue_is_started() {
        // EP-3
        let (queue, start) = (Queue::new(Policy::default()), Instant::now());
        queue.event(&key("a"), CHANGED, Instant::now());
        let begin = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            queue.start(Instant::now());
        };
        let ticket = tokio::join!(queue.next(), begin).0.unwrap();
        assert_eq!((ticket.key(), start.elapsed()), (&key("a"), Duration::from_secs(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_queue_hands_out_nothing_when_a_timer_ends() {
        // LC-22
        let (queue, start) = (running(), Instant::now());
        queue.event(&key("a"), CHANGED, Instant::now());
        take(&queue).finish(Finished::NoRetry { again: Some(Duration::from_secs(2)) }, Instant::now());
        let pause = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            queue.stop();
            tokio::time::sleep(Duration::from_secs(6)).await;
            queue.start(Instant::now());
        };
        let ticket = tokio::join!(queue.next(), pause).0;
        assert!(ticket.is_some());
        assert_eq!(start.elapsed(), Duration::from_secs(7));
    }

    #[tokio::test(start_paused = true)]
    async fn no_waiter_of_many_is_forgotten() {
        let (queue, start) = (running(), Instant::now());
        let waiters: Vec<_> = (0..5)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.next().await.map(|ticket| ticket.key().to_string()) })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        for letter in ["a", "b", "c"] {
            queue.event(&key(letter), CHANGED, Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        queue.close();
        let mut answers = Vec::new();
        for waiter in waiters {
            answers.push(waiter.await.unwrap());
        }
        answers.sort();
        let wanted = [None, None, Some("a"), Some("b"), Some("c")];
        assert_eq!(answers, wanted.map(|letter| letter.map(str::to_owned)));
        assert_eq!(start.elapsed(), Duration::from_millis(1010));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_without_any_key_learns_that_the_queue_is_closed() {
        let queue = running();
        let close = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            queue.close();
        };
        assert!(tokio::join!(queue.next(), close).0.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_ticket_that_is_dropped_counts_as_a_failure() {
        // EP-14, EP-20
        let (queue, start) = (running(), Instant::now());
        queue.event(&key("a"), CHANGED, Instant::now());
        let panics = queue.clone();
        let task = tokio::spawn(async move {
            let _ticket = panics.next().await;
            panic!("by intent");
        });
        assert!(task.await.is_err());
        let ticket = queue.next().await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(2));
        assert_eq!(ticket.retry(), Some(RetryInfo { attempt: 1, last: false }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_finished_ticket_gives_its_key_back_once() {
        let queue = running();
        queue.event(&key("a"), CHANGED, Instant::now());
        let ticket = take(&queue);
        assert!(!ticket.next_imminent());
        queue.event(&key("a"), Event::Related, Instant::now());
        assert!(ticket.next_imminent());
        assert_eq!(ticket.finish(Finished::DONE, Instant::now()).next, Next::AtOnce);
        let counts = Counts { keys: 1, due: 1, in_flight: 0 };
        assert_eq!(queue.counts(Instant::now()), counts);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_event_is_followed_by_a_run_whoever_takes_it() {
        let queue = running();
        let letters = ["a", "b", "c", "d"];
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let takers: Vec<_> = (0..3)
            .map(|_| {
                let (queue, seen) = (queue.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    while let Some(ticket) = queue.next().await {
                        seen.lock().insert(ticket.key().to_string());
                        tokio::task::yield_now().await;
                        ticket.finish(Finished::DONE, Instant::now());
                    }
                })
            })
            .collect();
        for round in 0..500 {
            seen.lock().clear();
            for letter in letters {
                queue.event(&key(letter), CHANGED, Instant::now());
            }
            let all = async {
                while seen.lock().len() < letters.len() {
                    tokio::task::yield_now().await;
                }
            };
            assert!(tokio::time::timeout(Duration::from_secs(20), all).await.is_ok(), "round {round}");
        }
        queue.close();
        for taker in takers {
            taker.await.unwrap();
        }
    }
}

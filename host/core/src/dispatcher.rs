//! Waits for tickets and runs a given function for each, at most `concurrency` at once; drains when it is stopped.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tracing::Instrument;

use crate::queue::{Queue, Ticket};

/// The bounds of a dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most executions at once; zero counts as one.
    pub concurrency: usize,
    /// The time that runs under way may take after the stop (`LC-21`); then they are aborted.
    pub drain: Duration,
}

/// The result of a dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// The number of runs that were aborted because they took longer than [`Bounds::drain`].
    pub aborted: usize,
}

/// Runs `execute` for each ticket of the queue, each in a task of its own on this runtime, until `stop` is ready or
/// the queue is closed. Then takes no more tickets, waits for the runs under way, and aborts those that take longer
/// than [`Bounds::drain`]. The bounds may change meanwhile.
///
/// A run that panics, and one that is aborted, drops its ticket, which the queue counts as a failure. Dropping the
/// future itself aborts all runs.
pub async fn run<F, E>(
    queue: &Queue,
    runtime: Handle,
    mut bounds: watch::Receiver<Bounds>,
    stop: impl Future<Output = ()>,
    execute: F,
) -> Drained
where
    F: Fn(Ticket) -> E + Send + Sync + 'static,
    E: Future<Output = ()> + Send + 'static,
{
    let execute = Arc::new(execute);
    let mut executions = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let places = bounds.borrow_and_update().concurrency.max(1);
        tokio::select! {
            // Stopping comes before work. Ended runs come before new ones: a run that has ended takes a place until
            // it is joined.
            biased;
            () = &mut stop => break,
            Some(end) = executions.join_next() => report(end),
            Ok(()) = bounds.changed() => {}
            ticket = queue.next(), if executions.len() < places => {
                let Some(ticket) = ticket else { break };
                let span = tracing::info_span!("execution", key = %ticket.key());
                let execute = Arc::clone(&execute);
                // Called inside the task, so that a panic before the first await also ends only the task.
                let execution = async move { execute(ticket).await }.instrument(span);
                executions.spawn_on(execution, &runtime);
            }
        }
    }
    let limit = bounds.borrow().drain;
    drain(executions, limit).await
}

async fn drain(mut executions: JoinSet<()>, limit: Duration) -> Drained {
    let all = async {
        while let Some(end) = executions.join_next().await {
            report(end);
        }
    };
    if timeout(limit, all).await.is_ok() {
        return Drained { aborted: 0 };
    }
    let aborted = executions.len();
    tracing::warn!(aborted, ?limit, "executions take too long to end and are aborted");
    executions.shutdown().await;
    Drained { aborted }
}

/// Logs a run that panicked or was aborted. Its dropped ticket has already counted as a failure of the key.
fn report(end: Result<(), JoinError>) {
    if let Err(error) = end {
        tracing::error!(%error, "an execution did not end");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use parking_lot::Mutex;
    use tokio::sync::oneshot;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::object::ObjectRef;
    use crate::queue::{Event, Failure, Finished, Mark, Policy};

    /// A log of runs: milliseconds, letter, and `+` for begin, `-` for end.
    #[derive(Clone)]
    struct Log {
        start: Instant,
        lines: Arc<Mutex<Vec<String>>>,
    }

    impl Log {
        fn new() -> Self {
            Self { start: Instant::now(), lines: Arc::default() }
        }

        fn write(&self, what: &str) {
            let line = format!("{} {what}", self.start.elapsed().as_millis());
            self.lines.lock().push(line);
        }

        fn read(&self) -> Vec<String> {
            self.lines.lock().clone()
        }
    }

    fn queue_of(letters: &str) -> Queue {
        let queue = Queue::new(Policy { max_interval: None, ..Policy::default() });
        for letter in letters.chars() {
            change(&queue, letter);
        }
        queue.start(Instant::now());
        queue
    }

    fn change(queue: &Queue, letter: char) {
        queue.event(&key(letter), Event::PrimaryChanged { deleting: false }, Instant::now());
    }

    fn key(letter: char) -> ObjectRef {
        ObjectRef::cluster(&letter.to_string())
    }

    fn bounds(concurrency: usize) -> watch::Receiver<Bounds> {
        watch::channel(of(concurrency)).1
    }

    fn of(concurrency: usize) -> Bounds {
        Bounds { concurrency, drain: Duration::from_secs(30) }
    }

    /// Returns a run that takes one second.
    fn one_second(log: &Log) -> impl Fn(Ticket) -> futures::future::BoxFuture<'static, ()> + use<> {
        let log = log.clone();
        move |ticket| {
            let log = log.clone();
            Box::pin(async move {
                log.write(&format!("+{}", ticket.key()));
                sleep(Duration::from_secs(1)).await;
                log.write(&format!("-{}", ticket.key()));
                ticket.finish(Finished::DONE, Instant::now());
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_run_at_once_in_the_order_in_which_they_became_due() {
        let (queue, log) = (queue_of("cab"), Log::new());
        let stop = sleep(Duration::from_millis(2500));
        assert_eq!(run(&queue, Handle::current(), bounds(2), stop, one_second(&log)).await, Drained { aborted: 0 });
        assert_eq!(log.read(), ["0 +c", "0 +a", "1000 -c", "1000 -a", "1000 +b", "2000 -b"]);
        assert_eq!(log.start.elapsed(), Duration::from_millis(2500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bound_of_zero_is_one() {
        let (queue, log) = (queue_of("ab"), Log::new());
        run(&queue, Handle::current(), bounds(0), sleep(Duration::from_secs(3)), one_second(&log)).await;
        assert_eq!(log.read(), ["0 +a", "1000 -a", "1000 +b", "2000 -b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bound_that_grows_counts_at_once() {
        let (queue, log) = (queue_of("ab"), Log::new());
        let (sender, bounds) = watch::channel(of(1));
        let stop = async {
            sleep(Duration::from_millis(400)).await;
            sender.send_replace(of(2));
            sleep(Duration::from_secs(2)).await;
        };
        run(&queue, Handle::current(), bounds, stop, one_second(&log)).await;
        assert_eq!(log.read(), ["0 +a", "400 +b", "1000 -a", "1400 -b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn events_during_an_execution_make_one_more_and_never_two_at_once() {
        // EP-11, EP-15
        let (queue, log) = (queue_of("a"), Log::new());
        let events = async {
            for _ in 0..3 {
                sleep(Duration::from_millis(200)).await;
                change(&queue, 'a');
            }
            sleep(Duration::from_secs(5)).await;
        };
        run(&queue, Handle::current(), bounds(8), events, one_second(&log)).await;
        assert_eq!(log.read(), ["0 +a", "1000 -a", "1000 +a", "2000 -a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_takes_no_more_and_waits_for_those_under_way() {
        // LC-21
        let (queue, log) = (queue_of("abc"), Log::new());
        let stop = sleep(Duration::from_millis(500));
        assert_eq!(run(&queue, Handle::current(), bounds(2), stop, one_second(&log)).await, Drained { aborted: 0 });
        assert_eq!(log.read(), ["0 +a", "0 +b", "1000 -a", "1000 -b"]);
        assert_eq!(log.start.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn closing_the_queue_stops_too() {
        let (queue, log) = (queue_of("abc"), Log::new());
        let close = async {
            sleep(Duration::from_millis(500)).await;
            queue.close();
        };
        let ends = async {
            tokio::join!(run(&queue, Handle::current(), bounds(2), std::future::pending(), one_second(&log)), close).0
        };
        assert_eq!(ends.await, Drained { aborted: 0 });
        assert_eq!(log.start.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_too_long_is_aborted_and_its_key_is_free() {
        // LC-21
        let (queue, start) = (queue_of("ab"), Instant::now());
        let execute = |ticket: Ticket| async move {
            let long = if &*ticket.key().name == "a" { 3600 } else { 20 };
            sleep(Duration::from_secs(long)).await;
            ticket.finish(Finished::DONE, Instant::now());
        };
        let stop = sleep(Duration::from_secs(1));
        assert_eq!(run(&queue, Handle::current(), bounds(2), stop, execute).await, Drained { aborted: 1 });
        assert_eq!(start.elapsed(), Duration::from_secs(31));
        let states = queue.states(Instant::now(), None, usize::MAX);
        let states: BTreeMap<_, _> = states.iter().map(|state| (state.key.to_string(), state)).collect();
        assert_eq!((states["a"].in_flight, states["a"].mark), (false, Mark::Present));
        assert_eq!(states["a"].retry.map(|retry| retry.attempt), Some(1));
        assert_eq!((states["b"].in_flight, states["b"].retry), (false, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failure_of_that_key_alone() {
        // EP-20: a trap must not leave a key stuck.
        let (queue, log) = (queue_of("ab"), Log::new());
        let execute = {
            let log = log.clone();
            move |ticket: Ticket| {
                let attempt = ticket.retry().map_or(0, |retry| retry.attempt);
                log.write(&format!("+{} {attempt}", ticket.key()));
                assert!(ticket.key().name.as_ref() != "a" || attempt > 1, "at once");
                async move {
                    tokio::task::yield_now().await;
                    ticket.finish(Finished::DONE, Instant::now());
                }
            }
        };
        run(&queue, Handle::current(), bounds(1), sleep(Duration::from_secs(10)), execute).await;
        assert_eq!(log.read(), ["0 +a 0", "0 +b 0", "2000 +a 1", "4000 +a 2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dispatcher_that_is_dropped_takes_its_executions_along() {
        let (queue, start) = (queue_of("a"), Instant::now());
        let (alive, dead) = oneshot::channel::<()>();
        let alive = Mutex::new(Some(alive));
        let execute = move |ticket: Ticket| {
            let alive = alive.lock().take();
            async move {
                sleep(Duration::from_hours(1)).await;
                drop(alive);
                ticket.finish(Finished::Failed(Failure::Handled), Instant::now());
            }
        };
        let dispatcher = run(&queue, Handle::current(), bounds(1), std::future::pending(), execute);
        assert!(timeout(Duration::from_secs(1), dispatcher).await.is_err());
        assert!(dead.await.is_err());
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }
}

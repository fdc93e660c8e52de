//! Warm instances between runs: waits for those that nobody has used for a while, and drops them.
//!
//! If another call waits for memory while the plugin has more than its share, all are dropped.
//!
//! An idle daemon must not wake up, so there is a timer only while something waits: it is armed when an instance is put on an
//! empty idle, goes off when the one that has waited longest is over its time, and ends when nothing is left.

use std::sync::{Arc, Weak};

use capstan_core::manifest::Warm;
use capstan_core::room::Room;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

mod state;

use state::State;
pub(super) use state::Wear;

/// The warm instances of a plugin's version. Dropped with all that is on it.
pub(super) struct IdleInstances<T: Send + 'static> {
    inner: Arc<Mutex<Inner<T>>>,
    /// The memory that they take, and the plugin that has it.
    memory: (Room, Arc<str>),
    /// Where the timer runs: runs end anywhere.
    runtime: Handle,
}

struct Inner<T> {
    state: State<T>,
    /// While there is one.
    timer: Option<AbortHandle>,
}

// === impl IdleInstances ===

impl<T: Send + 'static> IdleInstances<T> {
    /// Returns an empty idle for so many instances, whose memory a plugin has of this pool. Its timer runs on this runtime.
    pub(super) fn new(bounds: Warm, room: usize, memory: (Room, Arc<str>), runtime: Handle) -> Self {
        let state = State::new(bounds, room);
        let inner = Arc::new(Mutex::new(Inner { state, timer: None }));
        Self { inner, memory, runtime }
    }

    /// Takes an instance; none if none waits. From now on it is the caller's alone.
    pub(super) fn take(&self) -> Option<T> {
        let mut inner = self.inner.lock();
        let expired = inner.state.expire(Instant::now());
        let taken = inner.state.take();
        drop(inner);
        // Giving memory back takes its time: not under the lock.
        drop(expired);
        taken
    }

    /// Puts an instance back, or drops it if it is not to be used again, or if somebody waits for memory.
    pub(super) fn put(&self, instance: T, wear: Wear) {
        let (memory, plugin) = &self.memory;
        let scarcities = memory.scarcities();
        if memory.is_crowded_by(plugin) {
            return;
        }
        let now = Instant::now();
        let mut inner = self.inner.lock();
        let refused = inner.state.put(instance, wear, now);
        if let (None, Some(at)) = (&inner.timer, inner.state.next()) {
            let timer = tidy(Arc::downgrade(&self.inner), (scarcities, self.memory.clone()), at);
            inner.timer = Some(self.runtime.spawn(timer).abort_handle());
        }
        drop(inner);
        drop(refused);
    }

    /// Drops all, and keeps none from now on.
    pub(super) fn close(&self) {
        let mut inner = self.inner.lock();
        let closed = inner.state.close();
        let timer = inner.timer.take();
        drop(inner);
        drop(closed);
        if let Some(timer) = timer {
            timer.abort();
        }
    }

    /// Returns how many wait.
    pub(super) fn len(&self) -> usize {
        self.inner.lock().state.len()
    }
}

impl<T: Send + 'static> Drop for IdleInstances<T> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Drops what has waited for too long, or all if memory is scarce, until nothing waits.
async fn tidy<T>(
    inner: Weak<Mutex<Inner<T>>>,
    (mut scarcities, (memory, plugin)): (watch::Receiver<()>, (Room, Arc<str>)),
    mut at: Instant,
) {
    loop {
        let scarce = tokio::select! {
            () = sleep_until(at) => false,
            Ok(()) = scarcities.changed() => memory.is_crowded_by(&plugin),
        };
        let Some(inner) = inner.upgrade() else {
            return;
        };
        let (expired, next) = inner.lock().tidied(scarce, Instant::now());
        drop(expired);
        match next {
            Some(next) => at = next,
            None => return,
        }
    }
}

// === impl Inner ===

impl<T> Inner<T> {
    /// Returns what has waited for too long, or all if memory is scarce, and when to look again. If that is never, there is no timer
    /// any more.
    fn tidied(&mut self, scarce: bool, now: Instant) -> (Vec<T>, Option<Instant>) {
        let expired = if scarce { self.state.clear() } else { self.state.expire(now) };
        let next = self.state.next();
        if next.is_none() {
            self.timer = None;
        }
        (expired, next)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;
    use tokio::sync::oneshot::{self, Receiver, Sender};

    use super::*;

    const NEW: Wear = Wear { runs: 1, memory: 0 };

    /// What takes the place of an instance; the receiver hears when it is dropped.
    type Instance = Sender<()>;

    fn instance() -> (Instance, Receiver<()>) {
        oneshot::channel()
    }

    fn dropped(receiver: &mut Receiver<()>) -> bool {
        receiver.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    fn idle() -> IdleInstances<Instance> {
        let bounds = Warm { idle: Duration::from_mins(5), ..Warm::within(0) };
        IdleInstances::new(bounds, 2, (Room::default(), "warm".into()), Handle::current())
    }

    /// Returns how many timers there are.
    fn timers() -> usize {
        Handle::current().metrics().num_alive_tasks()
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_that_nobody_uses_is_dropped_in_time_by_one_timer() {
        let (idle, begin) = (idle(), Instant::now());
        let ((one, first), (other, second)) = (instance(), instance());
        assert_eq!(timers(), 0);
        idle.put(one, NEW);
        tokio::time::sleep(Duration::from_secs(10)).await;
        idle.put(other, NEW);
        assert_eq!(timers(), 1);
        let mut times = Vec::new();
        for receiver in [first, second] {
            assert!(receiver.await.is_err());
            times.push(begin.elapsed().as_secs());
        }
        assert_eq!(times, [300, 310]);
        assert_eq!(timers(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_memory_gets_that_of_idle_instances() {
        let room = Room::new(1000);
        let bounds = Warm { idle: Duration::from_mins(5), ..Warm::within(0) };
        let idle = IdleInstances::new(bounds, 2, (room.clone(), "warm".into()), Handle::current());
        let holding = |name: &str| room.holding(&name.into());
        let mut warm = holding("warm");
        warm.grow_anyway(1000);
        idle.put(warm, NEW);
        let mut other = holding("other");
        let deadline = Instant::now() + Duration::from_secs(1);
        assert_eq!(other.grow(500, deadline).await, Ok(()));
        assert_eq!((idle.len(), timers()), (0, 0));
        let mut more = holding("more");
        let mut waits = Box::pin(more.grow(900, deadline));
        for bytes in [250, 10] {
            let mut warm = holding("warm");
            warm.grow_anyway(bytes);
            idle.put(warm, NEW);
            assert!(waits.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
            assert_eq!(idle.len(), 1, "somebody waits: what is no more than a share stays");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_that_is_over_its_time_is_never_taken() {
        let (idle, (one, mut receiver)) = (idle(), instance());
        idle.put(one, NEW);
        // The timer has not had its turn yet.
        tokio::time::advance(Duration::from_mins(5)).await;
        assert!(idle.take().is_none());
        assert!(dropped(&mut receiver));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_is_the_takers_and_the_timer_ends_without_it() {
        let (idle, (one, mut receiver)) = (idle(), instance());
        idle.put(one, NEW);
        let taken = idle.take().unwrap();
        assert_eq!(idle.len(), 0);
        tokio::time::sleep(Duration::from_secs(301)).await;
        assert_eq!((timers(), dropped(&mut receiver)), (0, false));
        idle.put(taken, NEW);
        assert_eq!((timers(), dropped(&mut receiver)), (1, false));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_instances_go_with_their_pool_and_its_timer() {
        let (idle, (one, mut receiver)) = (idle(), instance());
        idle.put(one, NEW);
        drop(idle);
        assert!(dropped(&mut receiver));
        tokio::task::yield_now().await;
        assert_eq!(timers(), 0);
    }
}

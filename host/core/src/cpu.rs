//! Waits for a slot to compute in, and shares the slots between plugins.
//!
//! [`Account::run`] wraps a run: it asks for a slot at each poll and gives it back at the end of the poll, so a run
//! that waits for an answer holds none. The time of a poll is charged to its plugin.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::object::ObjectRef;

mod state;

use state::{AccountId, Entered, Looked, SeatId, State};

/// A slot that is held for longer than this is replaced by an extra one. A component never computes for longer at a
/// time.
const LONG: Duration = Duration::from_millis(20);

/// A poll that takes longer is reported.
const LATE: Duration = Duration::from_secs(1);

/// The number of runs that may compute at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The usual number: as many as there are cores.
    pub usual: usize,
    /// The most extra slots, one for each slot that is held for long.
    pub extra: usize,
}

/// The slots. Cheap to clone.
#[derive(Clone)]
pub struct Cpu(Arc<Shared>);

/// A handle to the account of a plugin. There is one account for each name, and any number of handles.
pub struct Account {
    cpu: Cpu,
    id: AccountId,
}

/// The controller and primary of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The controller; a word for the work if it belongs to no controller.
    pub controller: Arc<str>,
    /// The primary.
    pub key: Option<ObjectRef>,
}

/// A poll that takes too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The plugin.
    pub plugin: Arc<str>,
    /// The run.
    pub job: Job,
    /// The time that it has taken so far.
    pub held: Duration,
}

/// The time that a plugin has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// The plugin.
    pub plugin: Arc<str>,
    /// The time for which its runs have held slots, all together.
    pub time: Duration,
    /// The time that the longest of its polls under way has taken so far.
    pub held: Duration,
    /// The number of runs that wait for a slot.
    pub waiting: usize,
}

struct Shared {
    state: Mutex<State<Waker>>,
    /// Asks for a call of [`Cpu::look`] soon.
    call: Box<dyn Fn() + Send + Sync>,
}

/// The seat of one run, given up on drop.
struct Seat {
    cpu: Cpu,
    id: SeatId,
}

/// A slot, given back when it is dropped.
struct Slot<'a>(&'a Seat);

thread_local! {
    /// The time that the poll under way on this thread has used elsewhere.
    static ELSEWHERE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Charges time that was used elsewhere, such as in another process, to the poll under way. Outside of a run it is
/// ignored.
pub fn charge(time: Duration) {
    ELSEWHERE.set(ELSEWHERE.get().saturating_add(time));
}

/// Ends the poll and asks for the next one at once, so that a long computation gives others a turn.
///
/// tokio's own `yield_now` asks only when its thread has nothing else to do, or has polled some sixty others.
pub async fn rest() {
    let mut rested = false;
    let poll = |context: &mut Context<'_>| {
        if std::mem::replace(&mut rested, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    };
    std::future::poll_fn(poll).await;
}

// === impl Cpu ===

impl Cpu {
    /// Returns these slots. `call` has to make another task call [`Cpu::look`] soon; it must not wait.
    pub fn new(slots: Slots, call: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State::new(slots)), call: Box::new(call) }))
    }

    /// Returns the account of a plugin. `quota` is the seconds of a slot that it may have in each second; `None`: no
    /// bound.
    pub fn account(&self, plugin: &Arc<str>, quota: Option<f64>) -> Account {
        let id = self.0.state.lock().account(plugin, quota);
        Account { cpu: self.clone(), id }
    }

    /// Handles changes that come with time alone. Returns the polls that have become too long since the last look,
    /// and when to look again; `None`: not before `call` is called.
    pub fn look(&self, now: Instant) -> (Vec<Held>, Option<Instant>) {
        let Looked { wake, late, next } = self.0.state.lock().look(now);
        wake.into_iter().for_each(Waker::wake);
        (late, next)
    }

    /// Returns the time that each plugin has used.
    pub fn spent(&self) -> Vec<Spent> {
        self.0.state.lock().spent(Instant::now())
    }
}

impl fmt::Debug for Cpu {
    /// Writes only the name: the contents change all the time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cpu")
    }
}

// === impl Account ===

impl Account {
    /// Drives a run of the plugin to its end. The run is polled only while it has a slot.
    pub async fn run<F: Future>(&self, job: Job, execution: F) -> F::Output {
        let mut execution = pin!(execution);
        let seat = self.seat(job);
        std::future::poll_fn(|context| seat.poll(execution.as_mut(), context)).await
    }

    fn seat(&self, job: Job) -> Seat {
        let id = self.cpu.0.state.lock().sit(self.id, job);
        Seat { cpu: self.cpu.clone(), id }
    }
}

impl Clone for Account {
    fn clone(&self) -> Self {
        self.cpu.0.state.lock().share(self.id);
        Self { cpu: self.cpu.clone(), id: self.id }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.cpu.0.state.lock().release(self.id);
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account({:?})", self.id)
    }
}

// === impl Seat ===

impl Seat {
    fn poll<F: Future>(&self, execution: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Shared { state, call } = &*self.cpu.0;
        let Entered { may, wake, look } = state.lock().enter(self.id, context.waker(), Instant::now());
        wake.into_iter().for_each(Waker::wake);
        if look {
            call();
        }
        if !may {
            return Poll::Pending;
        }
        let slot = Slot(self);
        ELSEWHERE.take();
        let polled = execution.poll(context);
        drop(slot);
        let elsewhere = ELSEWHERE.take();
        if !elsewhere.is_zero() {
            state.lock().charge(self.id, elsewhere, Instant::now());
        }
        polled
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let wake = self.cpu.0.state.lock().stand_up(self.id, Instant::now());
        wake.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let Seat { cpu, id } = self.0;
        let wake = cpu.0.state.lock().leave(*id, Instant::now());
        wake.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;

//! Decides whether the main runtime still runs: a task on it beats, and a watchdog beside it checks the beats, and says which part holds it up.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

/// The interval at which a heart beats and at which it is looked at.
pub const BEAT: Duration = Duration::from_millis(250);

/// A heart that is late by this is logged.
const LATE: Duration = Duration::from_secs(1);

/// A heart that is late by this is not expected to beat again by itself.
pub const FROZEN: Duration = Duration::from_secs(30);

/// Shows that something runs. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Arc<AtomicU64>);

/// The parts of the work of the main runtime, of which a process has one.
static PARTS: Mutex<Vec<Weak<Part>>> = Mutex::new(Vec::new());

/// A part of the work of the main runtime.
struct Part {
    name: String,
    /// Whether it holds a thread now.
    works: AtomicBool,
}

/// A part of the work of the main runtime that the log names if it holds the others up.
pub struct Named<T> {
    part: Arc<Part>,
    doing: BoxFuture<'static, T>,
}

/// Looks at a [`Heartbeat`]. It counts its own looks and reads no clock, so that nothing is reported after the
/// process or the machine was stopped as a whole.
pub struct Watchdog {
    heart: Heartbeat,
    seen: u64,
    late: Late,
}

/// Shows for how long a heart has not beaten. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Late(Arc<AtomicU32>);

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Nothing new.
    AsBefore,
    /// The heart is late, for the first time since its last beat.
    Late,
    /// The heart beats again, after having been late by this.
    Back(Duration),
}

/// Names a part of the work of the main runtime.
pub fn named<T>(name: impl Into<String>, doing: impl Future<Output = T> + Send + 'static) -> Named<T> {
    let part = Arc::new(Part { name: name.into(), works: AtomicBool::new(false) });
    let mut parts = PARTS.lock();
    parts.retain(|part| part.strong_count() > 0);
    parts.push(Arc::downgrade(&part));
    Named { part, doing: doing.boxed() }
}

/// Returns the names of the parts that hold a thread of the main runtime now.
fn at_work() -> Vec<String> {
    let parts = PARTS.lock();
    let parts = parts.iter().filter_map(Weak::upgrade).filter(|part| part.works.load(Ordering::Acquire));
    parts.map(|part| part.name.clone()).collect()
}

// === impl Named ===

impl<T> Future for Named<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.part.works.store(true, Ordering::Release);
        let polled = self.doing.as_mut().poll(context);
        self.part.works.store(false, Ordering::Release);
        polled
    }
}

// === impl Heartbeat ===

impl Heartbeat {
    /// Beats forever, on the runtime that is watched.
    pub async fn run(self) {
        loop {
            self.0.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(BEAT).await;
        }
    }
}

// === impl Late ===

impl Late {
    /// Returns the time since the heart's last beat.
    pub fn by(&self) -> Duration {
        BEAT * self.0.load(Ordering::Relaxed)
    }
}

// === impl Watchdog ===

impl Watchdog {
    /// Returns the watchdog of this heart.
    pub fn new(heart: Heartbeat) -> Self {
        Self { heart, seen: 0, late: Late::default() }
    }

    /// Returns the view of how late the heart is.
    pub fn late(&self) -> Late {
        self.late.clone()
    }

    /// Looks forever, on another runtime than the one that is watched, and logs what it sees.
    pub async fn run(mut self) {
        loop {
            tokio::time::sleep(BEAT).await;
            match self.look() {
                Look::AsBefore => {}
                Look::Late => {
                    let by = at_work().join("; ");
                    tracing::warn!(late = ?self.late.by(), by, "the main runtime does not run: all operators wait");
                }
                Look::Back(late) => tracing::warn!(?late, "the main runtime runs again"),
            }
        }
    }

    fn look(&mut self) -> Look {
        let Late(missed) = &self.late;
        let beats = self.heart.0.load(Ordering::Relaxed);
        if beats == self.seen {
            missed.fetch_add(1, Ordering::Relaxed);
            let since = BEAT * missed.load(Ordering::Relaxed);
            let first = since >= LATE && since < LATE + BEAT;
            return if first { Look::Late } else { Look::AsBefore };
        }
        self.seen = beats;
        let late = BEAT * missed.swap(0, Ordering::Relaxed);
        if late >= LATE { Look::Back(late) } else { Look::AsBefore }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heart_that_stands_still_is_told_once_and_so_is_its_return() {
        let heart = Heartbeat::default();
        let mut dog = Watchdog::new(heart.clone());
        let mut looks = |beating: bool, times: usize| {
            let looks = (0..times).map(|_| {
                heart.0.fetch_add(u64::from(beating), Ordering::Relaxed);
                dog.look()
            });
            let told: Vec<_> = looks.filter(|look| *look != Look::AsBefore).collect();
            (told, dog.late.by())
        };
        assert_eq!(looks(true, 100), (vec![], Duration::ZERO));
        assert_eq!(looks(false, 3), (vec![], 3 * BEAT));
        assert_eq!(looks(true, 1), (vec![], Duration::ZERO), "a little late is no matter");
        assert_eq!(looks(false, 200), (vec![Look::Late], 200 * BEAT));
        assert!(200 * BEAT > FROZEN);
        assert_eq!(looks(true, 2), (vec![Look::Back(200 * BEAT)], Duration::ZERO));
    }
    #[tokio::test]
    async fn a_part_is_named_while_it_holds_a_thread_and_no_longer() {
        let is_named = || at_work().contains(&"part".to_owned());
        let (tell, told) = tokio::sync::oneshot::channel();
        let part = named("part", async move {
            let before = is_named();
            told.await.unwrap();
            (before, is_named())
        });
        let mut part = Box::pin(part);
        assert!((&mut part).now_or_never().is_none() && !is_named(), "it waits");
        tell.send(()).unwrap();
        assert_eq!((part.await, is_named()), ((true, true), false));
    }
}

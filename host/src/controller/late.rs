//! Waits until the informers of a source have listed all that it watches; for those who can't wait, until somebody has to be woken for that.

use std::sync::{Arc, Weak};

use capstan_core::source::registered::Unfilled;
use futures::FutureExt;
use futures::future::select_all;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::informer::State;
use crate::informer::pool::Subscription;

/// The informers of a source, which it has as long as this is kept.
pub(super) struct Places {
    all: Arc<Vec<Arc<Subscription>>>,
    /// Has those run whose runs could not wait: nothing else tells them.
    wake: Arc<dyn Fn() + Send + Sync>,
    late: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// Whether to wait for what can't be listed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failing {
    /// It may be, soon.
    Waits,
    /// Others fail without it.
    GivesUp,
}

/// Somebody who waits. If nobody does any more, `wake` is called once more is listed than was seen.
struct Waiting<'a> {
    places: &'a Places,
    seen: usize,
    filled: bool,
}

impl Places {
    pub(super) fn new(all: Vec<Arc<Subscription>>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { all: Arc::new(all), wake: Arc::new(wake), late: Mutex::default() }
    }

    /// Waits until all is listed, and told of; of several informers not for those that the API server refuses or that find no room: who rests on
    /// them fails by name, and others do not. If it is not `by` then, or nobody waits for this any more, those who need it are woken later.
    ///
    /// # Errors
    /// [`Unfilled`] says what is not listed.
    pub(super) async fn filled(&self, by: Instant, failing: Failing) -> Result<(), Unfilled> {
        let mut waiting = Waiting { places: self, seen: 0, filled: false };
        let mut lacks = false;
        for place in &*self.all {
            let mut state = place.state.clone();
            loop {
                state.mark_unchanged();
                if place.is_filled() {
                    place.settle();
                    waiting.seen += 1;
                    break;
                }
                let fails = matches!(place.state(), State::Failing(_));
                if fails && self.all.len() > 1 && !place.is_away() {
                    lacks = true;
                    break;
                }
                let gives_up = fails && failing == Failing::GivesUp;
                // An error says that the informer has ended, with the daemon.
                if gives_up || !matches!(timeout_at(by, state.changed()).await, Ok(Ok(()))) {
                    return Err(self.lacks());
                }
            }
        }
        if lacks && waiting.seen == 0 {
            return Err(self.lacks());
        }
        waiting.filled = !lacks;
        Ok(())
    }

    /// Returns the informers.
    pub(super) fn all(&self) -> &[Arc<Subscription>] {
        &self.all
    }

    /// Returns true if somebody is to be woken who is not yet.
    pub(super) fn owes(&self) -> bool {
        self.late.lock().as_ref().is_some_and(|late| !late.is_finished())
    }

    /// Wakes those who need it whenever more is listed than was `seen`, and nothing else is about to be, until all is.
    pub(super) fn wait_on(&self, seen: usize) {
        let mut late = self.late.lock();
        // Without a runtime the daemon is ending.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if late.as_ref().is_none_or(AbortOnDropHandle::is_finished) {
            // Whoever has the informers may leave them at any time, whatever this waits for.
            let (all, wake) = (Arc::downgrade(&self.all), Arc::clone(&self.wake));
            let until_filled = async move {
                let mut known = seen;
                while let Some(Filled { now, all }) = more_filled(&all, known).await {
                    wake();
                    if all {
                        break;
                    }
                    known = now;
                }
            };
            *late = Some(AbortOnDropHandle::new(runtime.spawn(until_filled)));
        }
    }

    /// Says what is not listed.
    fn lacks(&self) -> Unfilled {
        let mut outage = false;
        let Some(place) = self.all.iter().find(|place| !place.is_filled()) else {
            return Unfilled { why: "waiting for its first list".to_owned(), outage };
        };
        let name = place.name();
        let why = match place.state() {
            State::Failing(why) => {
                outage = place.is_away();
                format!("{name} can't be listed: {why}")
            }
            State::Listing | State::Watching => format!("waiting for the first list of {name}"),
        };
        Unfilled { why, outage }
    }
}

/// How many informers have listed all, and whether none is left that has not.
struct Filled {
    now: usize,
    all: bool,
}

/// Waits until more informers than the known ones have listed all, and have told of it, and the others can't list for now. Returns `None` if
/// they are left before.
async fn more_filled(all: &Weak<Vec<Arc<Subscription>>>, known: usize) -> Option<Filled> {
    let mut states: Vec<_> = all.upgrade().iter().flat_map(|all| all.iter()).map(|place| place.state.clone()).collect();
    loop {
        states.iter_mut().for_each(watch::Receiver::mark_unchanged);
        let places = all.upgrade()?;
        let (filled, others): (Vec<_>, Vec<_>) = places.iter().partition(|place| place.is_filled());
        let rests = others.iter().all(|place| matches!(place.state(), State::Failing(_)));
        if rests && (filled.len() > known || others.is_empty()) {
            for place in &filled {
                place.settle();
            }
            return Some(Filled { now: filled.len(), all: others.is_empty() });
        }
        drop(places);
        // An error says that an informer has ended, with the daemon.
        if select_all(states.iter_mut().map(|state| state.changed().boxed())).await.0.is_err() {
            return None;
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.filled {
            self.places.wait_on(self.seen);
        }
    }
}

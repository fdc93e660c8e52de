//! Watches what dependents with an activation condition need, as long as one of them is active (`WF-4`, `WF-12`).

use std::sync::Arc;

use capstan_core::source::on_demand::Join;
use capstan_core::source::registered::Watch;
use capstan_core::source::{Listener, Source};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::plan::Planned;
use crate::informer::pool::{Pool, Subscription, filled};
use crate::informer::{State, Subscriber};

/// The informers of a source that is watched.
struct Places {
    all: Arc<Vec<Subscription>>,
    source: Arc<Source>,
    /// Wakes those whose runs could not wait for it.
    late: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// Returns what has a source of a plan watched.
pub(super) fn join(source: &Arc<Source>, planned: &Planned, pool: &Pool, listener: &Listener) -> Join {
    let (source, pool, listener) = (Arc::clone(source), pool.clone(), Arc::clone(listener));
    let scopes = planned.scopes.clone();
    Box::new(move || {
        tracing::debug!(source = %source.spec().name, "a dependent is active: its source is watched");
        let join = |(scope, kind)| {
            let subscriber = Subscriber { source: Arc::clone(&source), listener: Arc::clone(&listener) };
            pool.join(scope, kind, subscriber)
        };
        let all = Arc::new(scopes.iter().map(|(scope, kind)| join((scope, kind))).collect());
        Arc::new(Places { all, source: Arc::clone(&source), late: Mutex::default() })
    })
}

impl Places {
    /// Has all primaries run once it is filled: their runs may have failed without it, and nothing else tells them.
    fn wait_on(&self) {
        let mut late = self.late.lock();
        if late.as_ref().is_none_or(AbortOnDropHandle::is_finished) {
            let (all, source) = (Arc::clone(&self.all), Arc::clone(&self.source));
            let until_filled = async move {
                filled(&all).await;
                source.wake_all();
            };
            *late = Some(AbortOnDropHandle::new(tokio::spawn(until_filled)));
        }
    }
}

impl Watch for Places {
    /// Waits no longer for what can't be listed now.
    fn filled(&self, by: Instant) -> BoxFuture<'_, Result<(), String>> {
        async move {
            for place in &*self.all {
                let mut state = place.state.clone();
                loop {
                    state.mark_unchanged();
                    if place.is_filled() {
                        break;
                    }
                    let late =
                        matches!(place.state(), State::Failing(_)) || timeout_at(by, state.changed()).await.is_err();
                    if late {
                        self.wait_on();
                        return Err(format!("{} is not listed", place.name()));
                    }
                }
                place.settle();
            }
            Ok(())
        }
        .boxed()
    }
}

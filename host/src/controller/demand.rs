//! Watches what dependents with an activation condition need, as long as one of them is active (`WF-4`, `WF-12`).

use std::sync::Arc;

use capstan_core::source::on_demand::Join;
use capstan_core::source::registered::Watch;
use capstan_core::source::{Listener, Source};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

use super::plan::Planned;
use crate::informer::pool::{Pool, Subscription};
use crate::informer::{State, Subscriber};

/// The informers of a source that is watched.
struct Places(Vec<Subscription>);

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
        Arc::new(Places(scopes.iter().map(|(scope, kind)| join((scope, kind))).collect()))
    })
}

impl Watch for Places {
    /// Waits no longer for what can't be listed now.
    fn filled(&self, by: Instant) -> BoxFuture<'_, Result<(), String>> {
        async move {
            for place in &self.0 {
                let mut state = place.state.clone();
                while !place.is_filled() {
                    state.mark_unchanged();
                    let failing = matches!(place.state(), State::Failing(_));
                    let lacks = || Err(format!("{} is not listed", place.name()));
                    if failing {
                        return lacks();
                    }
                    tokio::select! {
                        biased;
                        Ok(()) = state.changed() => {}
                        () = sleep_until(by) => return lacks(),
                    }
                }
                place.settle();
            }
            Ok(())
        }
        .boxed()
    }
}

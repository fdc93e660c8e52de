//! Watches what dependents with an activation condition need, as long as one of them is active (`WF-4`, `WF-12`).

use std::sync::Arc;

use capstan_core::source::on_demand::Join;
use capstan_core::source::registered::{Unfilled, Watch};
use capstan_core::source::{Listener, Source};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::declared::Sites;
use super::late::{Failing, Places};
use super::plan::Planned;
use crate::client::Kind;
use crate::informer::{Scope, Subscriber};

/// The informers of a source that is watched.
struct Demanded(Places);

/// Returns what has a source of a plan watched.
pub(super) fn join(source: &Arc<Source>, planned: &Planned, sites: &Sites, listener: &Listener) -> Join {
    let (source, sites, listener) = (Arc::clone(source), sites.clone(), Arc::clone(listener));
    let scopes = planned.scopes.clone();
    Box::new(move || {
        tracing::debug!(source = %source.spec().name, "a dependent is active: its source is watched");
        let join = |(scope, kind): &(Scope, Kind)| {
            let subscriber = Subscriber { source: Arc::clone(&source), listener: Arc::clone(&listener) };
            sites.at(scope.cluster.as_ref()).pool.join(scope, kind, subscriber)
        };
        let all = scopes.iter().map(join).collect();
        let woken = Arc::clone(&source);
        Arc::new(Demanded(Places::new(all, move || woken.wake_all())))
    })
}

impl Watch for Demanded {
    /// Waits no longer for what can't be listed now.
    fn filled(&self, by: Instant) -> BoxFuture<'_, Result<(), Unfilled>> {
        self.0.filled(by, Failing::GivesUp).boxed()
    }
}

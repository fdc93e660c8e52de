//! Waits until a controller has to do without another cluster, or one is back that was away.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use capstan_core::manifest::Controller;
use futures::FutureExt;
use futures::future::select_all;
use tokio::sync::watch;

use super::declared::Sites;
use super::rest::kinds_of;
use super::rights::Lost;

/// Waits until another cluster may not be used any more; for ever, if the controller uses none. `without` has the names of what it goes
/// on without already.
pub(super) async fn closed(spec: &Controller, sites: &Sites, without: &BTreeSet<Arc<str>>) -> Lost {
    let used = sites.others().filter_map(|(id, site)| {
        let names = names_in(spec, id);
        let is_used = names.iter().any(|name| !without.contains(name));
        let lost = async move {
            let why = format!("cluster {id}: {}", site.api.shut().await);
            Lost { names, why }
        };
        is_used.then(|| lost.boxed())
    });
    match used.collect::<Vec<_>>() {
        none if none.is_empty() => pending().await,
        used => select_all(used).await.0,
    }
}

/// Returns the names of what is in other clusters that may not be used now.
pub(super) fn all_closed(spec: &Controller, sites: &Sites) -> BTreeSet<Arc<str>> {
    let closed = sites.others().filter(|(_, site)| site.api.closed().is_some());
    closed.flat_map(|(id, _)| names_in(spec, id)).collect()
}

/// Returns the names of what a controller has in a cluster.
fn names_in(spec: &Controller, id: &Arc<str>) -> BTreeSet<Arc<str>> {
    let kinds = kinds_of(spec);
    let of_it = kinds.keys().filter(|at| at.cluster.as_ref() == Some(id));
    of_it.map(|at| at.to_string().into()).collect()
}

/// Calls `back` whenever another cluster that a controller uses is back after it was away. It never ends: what else its caller waits for is
/// not begun anew by a cluster that comes and goes.
pub(super) async fn follow(mut returns: Vec<watch::Receiver<()>>, back: impl Fn()) -> Infallible {
    loop {
        if returns.is_empty() {
            return pending().await;
        }
        let changed = returns.iter_mut().map(|returns| returns.changed().boxed());
        let (ended, number, _) = select_all(changed).await;
        match ended {
            Ok(()) => back(),
            // The cluster is used no more.
            Err(_) => drop(returns.swap_remove(number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_for_clusters_that_come_and_go_goes_on_waiting() {
        let (calls, (first, one), (second, two)) = (Cell::new(0), watch::channel(()), watch::channel(()));
        let mut followed = Box::pin(follow(vec![one, two], || calls.set(calls.get() + 1)));
        for (sender, expected) in [(&first, 1), (&first, 2), (&second, 3)] {
            sender.send_replace(());
            assert!(followed.as_mut().now_or_never().is_none());
            assert_eq!(calls.get(), expected);
        }
        // One that is used no more is no reason to end, either.
        drop(first);
        second.send_replace(());
        assert!(followed.as_mut().now_or_never().is_none());
        assert_eq!(calls.get(), 4);
    }
}

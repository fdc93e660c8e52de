//! Watches what dependents with an activation condition need, as long as one of them is active, and keeps it for a while after that, so that
//! a condition which comes and goes lists nothing anew (`WF-4`, `WF-12`).

use std::sync::Arc;
use std::time::Duration;

use capstan_core::source::on_demand::{Join, Telling};
use capstan_core::source::registered::{Unfilled, Watch};
use capstan_core::source::{Listener, Source};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::declared::Sites;
use super::late::{Failing, Places};
use super::plan::Planned;
use crate::client::Kind;
use crate::informer::pool::Subscription;
use crate::informer::{Need, Scope, Subscriber};

/// So long informers are kept that nobody needs any more. Nobody is told of what they see.
const GRACE: Duration = Duration::from_mins(2);

/// The informers of a source that is watched.
struct Demanded {
    places: Places,
    rest: Arc<Rest>,
}

/// What it takes to keep the informers of a source that is not watched any more.
struct Rest {
    keep: Box<dyn Fn() -> Vec<Subscription> + Send + Sync>,
    /// Ends them.
    kept: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// Returns what has a source of a plan watched.
pub(super) fn join(source: &Arc<Source>, planned: &Planned, sites: &Sites, listener: &Listener) -> Join {
    let (source, sites, listener) = (Arc::clone(source), sites.clone(), Arc::clone(listener));
    let scopes = planned.scopes.clone();
    let rest = {
        let (scopes, sites, need) = (scopes.clone(), sites.clone(), Need::of(source.spec()));
        let keep =
            move |(scope, kind): &(Scope, Kind)| sites.at(scope.cluster.as_ref()).pool.rest(scope, kind, need.clone());
        Arc::new(Rest { keep: Box::new(move || scopes.iter().map(&keep).collect()), kept: Mutex::default() })
    };
    let runtime = Handle::current();
    Box::new(move |telling| {
        tracing::debug!(source = %source.spec().name, "a dependent is active: its source is watched");
        let join = |(scope, kind): &(Scope, Kind)| {
            let subscriber = Subscriber { source: Arc::clone(&source), listener: Arc::clone(&listener) };
            let pool = &sites.at(scope.cluster.as_ref()).pool;
            Arc::new(match telling {
                Telling::AtOnce => pool.join(scope, kind, subscriber),
                Telling::Beside => pool.join_beside(scope, kind, subscriber, |join| drop(runtime.spawn(join))),
            })
        };
        let all = scopes.iter().map(join).collect();
        rest.end();
        let woken = Arc::clone(&source);
        Arc::new(Demanded { places: Places::new(all, move || woken.wake_all()), rest: Arc::clone(&rest) })
    })
}

impl Watch for Demanded {
    /// Waits no longer for what can't be listed now.
    fn filled(&self, by: Instant) -> BoxFuture<'_, Result<(), Unfilled>> {
        self.places.filled(by, Failing::GivesUp).boxed()
    }
}

impl Rest {
    /// Keeps the informers for a while.
    fn begin(&self) {
        // Without a runtime the daemon is ending.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let kept = (self.keep)();
        let until = async move {
            sleep(GRACE).await;
            drop(kept);
        };
        *self.kept.lock() = Some(AbortOnDropHandle::new(runtime.spawn(until)));
    }

    /// Takes in that they are needed again.
    fn end(&self) {
        drop(self.kept.lock().take());
    }
}

impl Drop for Demanded {
    /// The informers are kept before they are left.
    fn drop(&mut self) {
        self.rest.begin();
    }
}

#[cfg(test)]
mod tests {
    use capstan_core::object::Managers;
    use capstan_core::object::fields::Fields;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::client::ApiServer;
    use crate::client::tests::{Answer, Step, config_maps, scripted};
    use crate::informer::Memory;
    use crate::informer::list_watch::tests::{end_of_list, scope};
    use crate::informer::pool::Pool;

    #[tokio::test(start_paused = true)]
    async fn a_dependent_that_is_active_again_soon_has_nothing_listed_anew() {
        // WF-4
        let answer = |_: &str| Answer(Some(200), vec![Step::Comes(end_of_list(1)), Step::Silent]);
        let (client, asked) = scripted(answer);
        let api = Arc::new(ApiServer::new(client, Managers::default()));
        let pool = Pool::new(api, Arc::default(), Memory::new(1 << 20, u64::MAX), CancellationToken::new());
        let need = Need::all(Fields::whole());
        let keep = {
            let (pool, need) = (pool.clone(), need.clone());
            Box::new(move || vec![pool.rest(&scope(), &config_maps(), need.clone())])
        };
        let rest = Arc::new(Rest { keep, kept: Mutex::default() });
        let second = Duration::from_secs(1);
        for _ in 0..100 {
            // As an activation does.
            let all = vec![Arc::new(pool.keep(&scope(), &config_maps(), need.clone()))];
            rest.end();
            assert!(pool.states()[0].needed);
            let watched = Demanded { places: Places::new(all, || ()), rest: Arc::clone(&rest) };
            watched.filled(Instant::now() + second).await.unwrap();
            drop(watched);
            assert!(!pool.states()[0].needed, "it is nobody's trouble that it fails");
            sleep(second).await;
        }
        let lists = || asked.lock().iter().filter(|path| path.contains("sendInitialEvents")).count();
        assert_eq!((lists(), pool.states().len()), (1, 1));
        sleep(GRACE / 2).await;
        assert_eq!(pool.states().len(), 1);
        sleep(GRACE / 2 + second).await;
        assert_eq!((lists(), pool.states().len()), (1, 0), "nobody needs it");
    }
}

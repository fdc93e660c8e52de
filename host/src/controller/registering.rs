//! Watches what runs register: asks for the kind and the rights, joins the informers, and waits until they are filled (`ES-4`).

use std::sync::Arc;

use capstan_core::cluster;
use capstan_core::guest::{CallError, CallReason, Guest};
use capstan_core::manifest::{self, MOST_WATCHES};
use capstan_core::permission::{Home, Permissions};
use capstan_core::queue::Queue;
use capstan_core::source::Source;
use capstan_core::source::callback::Faults;
use capstan_core::source::registered::{Begun, Refused, Registered, Revoke, Unfilled, Watch};
use capstan_core::startup::{Fill, Needed};
use capstan_core::writes::refused;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::asking::{Asker, Asking};
use super::declared::{Declared, Environment, KindAt, Kinds, Sites};
use super::late::{Failing, Places};
use super::plan::{self, Planned};
use super::renamed::Watched;
use super::rights::{Lost, Rights, lost};
use crate::client::{ApiServer, Identity, Kind, Within};
use crate::clusters::Site;
use crate::informer::pool::{Pool, Subscription};
use crate::informer::{Scope, Subscriber};

/// A source that a run registers names no more namespaces: each takes an informer of its own.
const MOST_PLACES: usize = 16;

/// What it takes to watch something for one version of a controller, in whichever namespaces.
pub(super) struct Registrar {
    bounds: RwLock<Arc<Bounds>>,
    guest: Arc<dyn Guest>,
    primaries: Arc<Source>,
    who: Identity,
    sites: Sites,
    within: Option<Within>,
    api: Arc<ApiServer>,
    pool: Pool,
    home: Home,
    faults: Arc<Faults>,
    asker: Asker,
    queue: Queue,
}

/// Where sources may watch.
struct Bounds {
    spec: manifest::Controller,
    permissions: Permissions,
}

/// A source that is watched, as long as this is kept.
struct Watching {
    registrar: Arc<Registrar>,
    declared: manifest::Source,
    source: Arc<Source>,
    /// Its informers, within these bounds.
    places: Mutex<(Arc<Bounds>, Arc<Places>)>,
    _asking: Asking,
    /// Whether it is read by the rights of the operator's account.
    by_account: bool,
    /// Looks after those, and after its kind.
    _ends: AbortOnDropHandle<()>,
}

/// Returns the place for what the runs of a version of a controller register.
pub(super) fn registered(
    declared: &Declared,
    primaries: &Arc<Source>,
    environment: &Environment,
    asker: Asker,
    (faults, queue): (Arc<Faults>, Queue),
) -> (Arc<Registered>, Arc<Registrar>) {
    let Declared { plugin, guest, .. } = declared;
    let home = declared.home(environment);
    let Site { api, pool } = declared.site(environment);
    let registrar = Arc::new(Registrar {
        bounds: RwLock::new(Arc::new(Bounds::of(declared, &home))),
        guest: Arc::clone(guest),
        primaries: Arc::clone(primaries),
        who: declared.who(environment),
        sites: declared.sites(environment),
        within: declared.within_ceiling(environment),
        api,
        pool,
        home,
        faults,
        asker,
        queue,
    });
    let begin = {
        let registrar = Arc::clone(&registrar);
        move |name, declared, revoke| Arc::clone(&registrar).begin(name, declared, revoke).boxed()
    };
    let news = environment.meters.news_of((&declared.operator, &declared.spec.plugin));
    (Registered::new(plugin.limits.sources, news, Box::new(begin)), registrar)
}

impl Bounds {
    fn of(Declared { spec, plugin, .. }: &Declared, home: &Home) -> Self {
        let permissions = Permissions::new(spec, &plugin.capabilities, home.clone());
        Self { spec: spec.clone(), permissions }
    }

    /// Checks that the manifest permits all that a source would watch, in namespaces of its `own` or in those of the controller.
    fn permit(&self, planned: &Planned, own: bool) -> Result<(), CallError> {
        let gvk = &planned.spec.gvk;
        if planned.scopes.is_empty() {
            let message = format!("{gvk} is not watched in the daemon's own namespace, and the source names no other");
            return Err(CallError::new(CallReason::Denied, message));
        }
        let found = planned.scopes.len();
        if found > MOST_PLACES && own {
            let message = format!(
                "the source names {found} namespaces; a run registers at most {MOST_PLACES} at once: leave `namespaces` out, or name fewer"
            );
            return Err(CallError::new(CallReason::Exhausted, message));
        }
        for (scope, kind) in &planned.scopes {
            self.permissions.permit_watch(gvk, kind.scope, scope.namespace.as_deref())?;
        }
        Ok(())
    }
}

impl Registrar {
    /// Lets sources watch from now on where this version has them, which is as the one before but for its namespaces.
    pub(super) fn bound(&self, declared: &Declared) {
        *self.bounds.write() = Arc::new(Bounds::of(declared, &self.home));
    }

    async fn begin(
        self: Arc<Self>,
        name: Arc<str>,
        declared: manifest::Source,
        revoke: Revoke,
    ) -> Result<Begun, Refused> {
        let bounds = Arc::clone(&self.bounds.read());
        for gvk in [&bounds.spec.primary, &declared.gvk] {
            self.sites.kind(&KindAt::of(&bounds.spec, bounds.spec.cluster.as_ref(), gvk)).await.map_err(away)?;
        }
        let planned = self.plan(&bounds, &name, &declared)?;
        self.has_room(&planned)?;
        let rights = self.rights(&planned).await?;
        let (by_account, ends) = (rights.is_some(), self.ends(&planned, rights, revoke));
        let source = Source::new(planned.spec.clone()).charging(|| self.guest.lasting()).beside(&self.primaries);
        let source = Arc::new(source);
        let asking = self.asker.begin(&source);
        let all = planned.scopes.iter().map(|place| self.join(place, &source)).collect();
        tracing::info!(source = %name, gvk = %declared.gvk, "a run has registered a source");
        let places = Mutex::new((bounds, self.places(all)));
        let (registrar, source) = (self, Arc::clone(&source));
        let begun = Arc::clone(&source);
        let watching = Watching { registrar, declared, source, places, _asking: asking, by_account, _ends: ends };
        Ok(Begun { source: begun, watch: Box::new(watching) })
    }

    /// Returns what a source is to watch within bounds, if those permit it.
    fn plan(&self, bounds: &Bounds, name: &Arc<str>, declared: &manifest::Source) -> Result<Planned, CallError> {
        let Bounds { spec, .. } = bounds;
        let mut kinds = Kinds::new();
        for gvk in [&spec.primary, &declared.gvk] {
            let at = KindAt::of(spec, spec.cluster.as_ref(), gvk);
            kinds.extend(self.api.known(gvk).map(|kind| (at, kind)));
        }
        let planned = plan::registered(spec, (name, declared), &kinds, &self.home, &self.faults);
        bounds.permit(&planned, declared.namespaces.is_some())?;
        Ok(planned)
    }

    /// Checks that the operator has no more watches of single namespaces with a source than a manifest may declare (`NS-6`).
    fn has_room(&self, planned: &Planned) -> Result<(), CallError> {
        let (known, more) = self.pool.watches(&planned.scopes);
        if more > 0 && known + more > MOST_WATCHES {
            let message = format!(
                "the operator has {known} watches of single namespaces, and the source would have {more} more; expected at most {MOST_WATCHES} in all"
            );
            return Err(CallError::new(CallReason::Exhausted, message));
        }
        Ok(())
    }

    /// Joins an informer for a source.
    fn join(&self, (scope, kind): &(Scope, Kind), source: &Arc<Source>) -> Arc<Subscription> {
        let subscriber = Subscriber { source: Arc::clone(source), listener: Arc::clone(&self.asker.tell) };
        // It goes on if the run that began it does not wait for its end.
        let spawn = |join| drop(self.asker.spawn(join));
        Arc::new(self.pool.join_beside(scope, kind, subscriber, spawn))
    }

    /// Returns what waits for informers.
    fn places(&self, all: Vec<Arc<Subscription>>) -> Arc<Places> {
        let queue = self.queue.clone();
        Arc::new(Places::new(all, move || queue.event_for_all(Instant::now())))
    }

    /// Asks whether the operator's account may read all that a source would watch; none if the daemon reads for itself.
    async fn rights(&self, planned: &Planned) -> Result<Option<Rights>, Refused> {
        let watched = planned.scopes.iter().map(|(scope, kind)| (scope, kind, Needed::Always));
        let Some(rights) = Rights::to_read((&self.who, self.within.clone()), watched, &self.api) else {
            return Ok(None);
        };
        let (seen, error) = rights.seen().await;
        if let Some(error) = error {
            return Err(away(error));
        }
        for (_, watched) in seen {
            if let Fill::Lacking(why) = watched.fill {
                return Err(CallError::new(CallReason::Rejected, why).into());
            }
        }
        Ok(Some(rights))
    }

    /// Ends a source once a right is lost that it had, or its kind is another, until what this returns is dropped.
    fn ends(&self, planned: &Planned, rights: Option<Rights>, revoke: Revoke) -> AbortOnDropHandle<()> {
        let (queue, name) = (self.queue.clone(), Arc::clone(&planned.spec.name));
        let watched = Watched::new(planned.scopes.iter().map(|(_, kind)| (&self.api, kind)));
        let until = async move {
            tokio::select! {
                biased;
                Lost { why, .. } = lost(rights.as_ref()) => {
                    tracing::error!(source = %name, %why, "a registered source ends with a right that it had");
                }
                why = watched.renamed() => {
                    tracing::warn!(source = %name, %why, "a registered source ends, for its kind was made anew");
                }
            }
            if revoke.revoke() {
                // Whoever registers it again is told why not.
                queue.event_for_all(Instant::now());
            }
        };
        AbortOnDropHandle::new(self.asker.spawn(until.in_current_span()))
    }
}

impl Watch for Watching {
    fn filled(&self, by: Instant) -> BoxFuture<'_, Result<(), Unfilled>> {
        async move {
            let places = Arc::clone(&self.places.lock().1);
            places.filled(by, Failing::Waits).await?;
            let settled = timeout_at(by, self.source.settled_for(None)).await;
            let why = || "waiting until its expressions are asked about what it has found".to_owned();
            settled.map_err(|_| Unfilled { why: why(), outage: false })
        }
        .boxed()
    }

    fn follow(&self) -> bool {
        let Self { registrar, declared, source, places, by_account, .. } = self;
        let left: Vec<_> = {
            let mut places = places.lock();
            let (bounds, before) = &*places;
            let now = Arc::clone(&registrar.bounds.read());
            if Arc::ptr_eq(bounds, &now) {
                return true;
            }
            let Ok(Planned { scopes, .. }) = registrar.plan(&now, &source.spec().name, declared) else {
                return false;
            };
            let stays = |place: &Arc<Subscription>| scopes.iter().any(|(scope, _)| scope == place.scope());
            let is_there = |scope: &Scope| before.all().iter().any(|place| place.scope() == scope);
            let (mut all, left): (Vec<_>, Vec<_>) = before.all().iter().cloned().partition(stays);
            let come: Vec<_> = scopes.iter().filter(|(scope, _)| !is_there(scope)).collect();
            // What the operator's account may read is asked for whoever registers.
            if *by_account && !(come.is_empty() && left.is_empty()) {
                return false;
            }
            // Left only after the others have been joined: in between, nobody else would be told of what comes.
            all.extend(come.into_iter().map(|place| registrar.join(place, source)));
            let after = registrar.places(all);
            // Who waits for the places before, or was promised to be woken, is woken by these.
            if Arc::strong_count(before) > 1 || before.owes() {
                after.wait_on(0);
            }
            *places = (now, after);
            left
        };
        for place in &left {
            // Somebody who waits for it may keep it for a while.
            place.leave();
            source.detach(place.scope().namespace.as_deref());
        }
        true
    }
}

/// Returns the error for a component of an answer of the API server, or of there being none.
fn away(error: cluster::Error) -> Refused {
    Refused { outage: error.is_outage(), error: refused(error) }
}

//! Waits until a controller can start: for its kinds, the rights of its account and its caches, for as long as its manifest says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capstan_core::cluster::{Error, Reason};
use capstan_core::manifest::{self, OnStartError};
use capstan_core::startup::{Fill, Needed, Obstacle, Verdict, Watched, decide, stages};
use futures::FutureExt;
use futures::future::{join_all, select_all};
use tokio::time::{Instant, sleep_until};

use super::declared::{Declared, Environment, KindAt, Kinds, Sites, finalizer_name};
use super::handle::{Handle, Phase};
use super::plan::{Missing, Plan, Planned};
use super::renamed;
use super::rest::{Lack, Place, Questions, Rest, by_cluster, kinds_of, lacking};
use super::rights::{Read, Rights};
use super::selected::unknown;
use crate::client::{Kind, is_beyond};
use crate::informer::pool::Subscription;
use crate::informer::{Need, Scope, State};

/// All that a controller needs to run.
pub(super) struct Prepared {
    pub(super) declared: Arc<Declared>,
    pub(super) plan: Plan,
    pub(super) finalizer: Arc<str>,
    /// What its operator's account has to be permitted meanwhile.
    pub(super) rights: Option<Rights>,
    /// Whether runs of the one before may be under way.
    pub(super) entry: Entry,
    /// What is not there.
    pub(super) rest: Rest,
    /// Keeps the informers going until they are entered.
    _memberships: Vec<Subscription>,
}

/// What a controller does while it is prepared to become another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// Nothing runs yet.
    Start,
    /// Nothing runs any more: something is lost that was there.
    Again,
    /// It goes on as before.
    Keep,
}

/// How long a controller waits, and what for.
struct Patience<'a> {
    spec: &'a manifest::Controller,
    sites: &'a Sites,
    policy: OnStartError,
    until: Instant,
    /// What it is without already.
    without: &'a BTreeSet<Arc<str>>,
}

/// Waits for what a controller watches; from the beginning, if a kind is another one meanwhile (`IN-6`).
pub(super) async fn prepare(
    declared: Arc<Declared>,
    handle: &Handle,
    environment: &Environment,
    entry: Entry,
    without: &BTreeSet<Arc<str>>,
) -> Prepared {
    loop {
        if let Some(prepared) = Box::pin(prepared(&declared, handle, environment, entry, without)).await {
            return prepared;
        }
    }
}

/// Does so once; `None` if a kind is another one meanwhile.
async fn prepared(
    declared: &Arc<Declared>,
    handle: &Handle,
    environment: &Environment,
    entry: Entry,
    without: &BTreeSet<Arc<str>>,
) -> Option<Prepared> {
    let spec = &declared.spec;
    let sites = declared.sites(environment);
    let mut patience = Patience {
        spec,
        sites: &sites,
        policy: entry.policy(spec.on_start_error),
        until: Instant::now() + spec.cache_sync_timeout,
        without,
    };
    let wait = |why| handle.set(entry.waiting(why));
    if let Some(selector) = spec.namespaces.unknown() {
        return Some(unknown(handle, selector, |why| wait(Obstacle::lacking(why))).await);
    }
    let (kinds, missing) = match patience.kinds(&wait).await {
        Ok(found) => found,
        Err(why) => return Some(handle.failed(declared, why).await),
    };
    let finalizer = finalizer_name(spec, kinds.get(&KindAt::of_primaries(spec)));
    let used = declared.needs_finalizer().then(|| Arc::clone(&finalizer));
    let mut plan = Plan::new(spec, used, (&kinds, &missing), &environment.home, &handle.faults);
    if let Some(namespace) = plan.leaves_out() {
        tracing::info!(%namespace, "nothing is done for the daemon's own namespace, which its user can open by --allow-own-namespace");
    }
    let watched = renamed::Watched::of(&plan, &sites);
    let filled = async {
        let mut rights = Rights::of(declared, &plan, environment);
        let denied = match &mut rights {
            Some(rights) => leave_out(rights, &mut plan, patience.rights(rights, &wait).await?),
            None => BTreeMap::new(),
        };
        let fills = |obstacle| handle.set(entry.filling(obstacle));
        fills(Obstacle::under_way("waiting for its caches to fill"));
        let places = patience.fill(&plan, handle, fills).await?;
        let (filled, unfilled): (Vec<_>, Vec<_>) =
            places.into_iter().partition(|(_, _, subscription)| subscription.is_filled());
        let rest = Rest::of(spec, missing, unfilled, denied);
        let memberships = filled.into_iter().map(|(.., place)| place).collect();
        Ok::<_, Obstacle>((rights, rest, memberships))
    };
    let (rights, rest, memberships) = tokio::select! {
        biased;
        why = watched.renamed() => {
            tracing::warn!(%why, "a kind was made anew: it is watched as it is now");
            return None;
        }
        filled = filled => match filled {
            Ok(filled) => filled,
            Err(why) => return Some(handle.failed(declared, why).await),
        },
    };
    handle.leave_begun();
    let declared = Arc::clone(declared);
    Some(Prepared { declared, plan, finalizer, rights, entry, rest, _memberships: memberships })
}

impl Entry {
    /// Returns how far a controller has come that waits for this.
    fn waiting(self, obstacle: Obstacle) -> Phase {
        match self {
            Self::Start | Self::Again => Phase::Resolving(obstacle),
            Self::Keep => Phase::Changing(obstacle.why),
        }
    }

    /// Returns what becomes of a controller that can't have what it needs.
    fn policy(self, declared: OnStartError) -> OnStartError {
        match (self, declared) {
            // What runs goes on, as the last good version always does, and what has run waits until it can again.
            (Self::Keep | Self::Again, OnStartError::Fail) => OnStartError::Wait,
            (Self::Start | Self::Keep | Self::Again, policy) => policy,
        }
    }

    fn filling(self, obstacle: Obstacle) -> Phase {
        match self {
            Self::Start | Self::Again => Phase::Filling(obstacle),
            Self::Keep => Phase::Changing("waiting for its caches to fill".to_owned()),
        }
    }
}

impl Patience<'_> {
    /// Asks for all kinds until it is decided that they are enough. Returns those that are served, and why others are not.
    async fn kinds(&self, wait: impl Fn(Obstacle)) -> Result<(Kinds, BTreeMap<KindAt, Missing>), Obstacle> {
        let wanted = kinds_of(self.spec);
        let mut questions = Questions::new(self.sites, Some(self.until));
        loop {
            let (mut kinds, mut missing) = (Kinds::new(), BTreeMap::<KindAt, Error>::new());
            let ask = async |kinds: Vec<_>| {
                let mut found = Vec::new();
                for at in kinds {
                    let at: &KindAt = at;
                    found.push((at, self.sites.kind(at).await));
                }
                found
            };
            for (at, found) in join_all(by_cluster(wanted.keys()).map(ask)).await.into_iter().flatten() {
                match found {
                    Ok(kind) => drop(kinds.insert(at.clone(), kind)),
                    Err(error) => drop(missing.insert(at.clone(), error)),
                }
            }
            let fill = |at: &KindAt| {
                let error = missing.get(at)?;
                Some(lacking(error, &self.sites.at(at.cluster.as_ref()).api))
            };
            let seen = wanted.iter().map(|(at, needed)| Watched {
                what: at.to_string().into(),
                needed: *needed,
                fill: fill(at).unwrap_or(Fill::Filled),
            });
            let primaries = kinds.contains_key(&KindAt::of_primaries(self.spec));
            let verdict = self.decide(seen.collect(), primaries);
            // What other clusters lack hides nothing that is lacking here.
            let first = missing.iter().min_by_key(|(at, _)| at.cluster.is_some());
            match (&verdict, first) {
                (Verdict::Fail(obstacle), _) => return Err(obstacle.clone()),
                (Verdict::Wait(Obstacle { under_way, .. }), Some((_, error))) => {
                    let after = questions.pause.after(error);
                    if error.reason == Reason::UnknownKind || is_beyond(error) {
                        tracing::warn!(%error, again_in = %manifest::Rounded(after), "waiting for a kind");
                    } else {
                        tracing::error!(%error, again_in = %manifest::Rounded(after), "the API server does not tell its kinds");
                    }
                    wait(Obstacle { why: error.message.clone(), under_way: *under_way });
                    questions.rest(after).await;
                }
                (Verdict::Start | Verdict::Wait(_), _) => {
                    let missing = missing.into_iter().map(|(at, error)| (at, error.into()));
                    return Ok((kinds, missing.collect()));
                }
            }
        }
    }

    /// Asks for the rights of the operator's account until it is decided that they are enough. Returns what is known of them.
    async fn rights(&self, rights: &Rights, wait: impl Fn(Obstacle)) -> Result<Vec<(Read, Watched)>, Obstacle> {
        let mut questions = Questions::new(self.sites, Some(self.until));
        loop {
            let (seen, away) = rights.seen().await;
            let all = seen.iter().map(|(_, watched)| watched.clone()).collect();
            let of_primaries =
                |(read, watched): &(Read, Watched)| read.kind.gvk == self.spec.primary && watched.fill == Fill::Filled;
            let Obstacle { why, under_way } = match self.decide(all, seen.iter().any(of_primaries)) {
                Verdict::Start => return Ok(seen),
                Verdict::Fail(why) => return Err(why),
                Verdict::Wait(obstacle) => obstacle,
            };
            let (why, after) = match away {
                Some(error) => (error.message.clone(), questions.pause.after(&error)),
                None => (why, questions.pause.longer()),
            };
            tracing::warn!(%why, again_in = %manifest::Rounded(after), "waiting for a right");
            wait(Obstacle { why, under_way });
            questions.rest(after).await;
        }
    }

    /// Has informers list what a plan watches, and waits for that, one stage after another (ES-2); `wait` is told what for.
    async fn fill(&mut self, plan: &Plan, handle: &Handle, wait: impl Fn(Obstacle)) -> Result<Vec<Place>, Obstacle> {
        // What is watched on demand is waited for by those who demand it.
        let watched: Vec<_> = plan.scopes().filter(|(.., planned)| !planned.on_demand).collect();
        let all: BTreeSet<_> = watched.iter().map(|(scope, ..)| *scope).collect();
        let mut places = Vec::new();
        let stages = stages(watched.into_iter().map(|each| (each.2.start_priority, each)));
        for (number, stage) in stages.into_iter().enumerate() {
            if number > 0 {
                self.until = Instant::now() + self.spec.cache_sync_timeout;
            }
            let keep = |(scope, kind, planned): &(&Scope, &Kind, &Planned)| {
                let pool = &self.sites.at(scope.cluster.as_ref()).pool;
                pool.keep(scope, kind, Need::of(&planned.spec))
            };
            // Another version may be wanted before all of that is listed.
            handle.go_on_with(stage.iter().map(keep).collect(), &all);
            let named = stage.iter().map(|each| (each.0.to_string().into(), each.2.needed, keep(each)));
            let mut begun: Vec<Place> = named.collect();
            self.filled(&mut begun, &wait).await?;
            places.append(&mut begun);
        }
        Ok(places)
    }

    /// Waits for caches until it is decided that they are enough; `wait` is told which is lacking.
    async fn filled(&self, places: &mut [Place], wait: &impl Fn(Obstacle)) -> Result<(), Obstacle> {
        loop {
            let seen = places.iter().map(|(what, needed, subscription)| Watched {
                what: Arc::clone(what),
                needed: *needed,
                fill: fill(subscription),
            });
            match self.decide(seen.collect(), true) {
                Verdict::Start => return Ok(()),
                Verdict::Fail(why) => return Err(why),
                Verdict::Wait(obstacle) => wait(obstacle),
            }
            let changed = places.iter_mut().map(|(.., subscription)| subscription.state.changed().boxed());
            tokio::select! {
                biased;
                _ = select_all(changed) => {}
                () = sleep_until(self.until), if Instant::now() < self.until => {}
            }
        }
    }

    /// Decides from what is known, and from whether any primaries can be had: without them there is nothing to start with.
    fn decide(&self, mut seen: Vec<Watched>, primaries: bool) -> Verdict {
        if self.policy == OnStartError::GoOn && !primaries {
            return decide(OnStartError::Wait, &seen, false);
        }
        // What is there at work without it may become another without it.
        for watched in &mut seen {
            if self.without.contains(&watched.what) {
                watched.needed = Needed::IfActive;
            }
        }
        decide(self.policy, &seen, Instant::now() >= self.until)
    }
}

/// Leaves out of a plan what is not known to be permitted. Returns that by name.
fn leave_out(rights: &mut Rights, plan: &mut Plan, seen: Vec<(Read, Watched)>) -> BTreeMap<Arc<str>, Lack> {
    let denied: Vec<_> = seen.into_iter().filter(|(_, watched)| watched.fill != Fill::Filled).collect();
    plan.deny(|kind, namespace| {
        let same = |(read, _): &&(Read, Watched)| read.kind == *kind && read.namespace.as_deref() == namespace;
        denied.iter().find(same).map(|(_, watched)| match &watched.fill {
            Fill::Lacking(why) => why.to_string(),
            Fill::Filled | Fill::UnderWay => "whether the operator may list it is not known".to_owned(),
        })
    });
    let lack = |(Read { kind, namespace }, watched): &(Read, Watched)| {
        let at = KindAt { cluster: None, gvk: kind.gvk.clone() };
        let lack = Lack { needed: watched.needed, kind: at, namespace: namespace.clone() };
        (Arc::clone(&watched.what), lack)
    };
    let names = denied.iter().map(lack).collect();
    rights.without(denied.into_iter().map(|(read, _)| read).collect());
    names
}

fn fill(subscription: &Subscription) -> Fill {
    if subscription.is_filled() {
        return Fill::Filled;
    }
    match subscription.state() {
        State::Failing(why) => Fill::Lacking(why.into()),
        State::Listing | State::Watching => Fill::UnderWay,
    }
}

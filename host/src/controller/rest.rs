//! Decides what a controller goes on without, and waits until that is there.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cluster::{Error, Reason};
use capstan_core::manifest;
use capstan_core::startup::{Fill, Needed, Obstacle};
use futures::future::select_all;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::declared::{KindAt, LONGEST_PAUSE, Sites};
use super::plan::Missing;
use super::rights::Rights;
use crate::backoff::Backoff;
use crate::client::{ApiServer, is_beyond};
use crate::informer::Scope;
use crate::informer::pool::Subscription;

/// What a controller was started without.
#[derive(Default)]
pub(super) struct Rest {
    /// Kinds that an API server does not serve.
    kinds: BTreeSet<KindAt>,
    /// Informers whose first list is not complete.
    unfilled: Vec<Subscription>,
    /// All of that by name: it is not waited for again.
    names: BTreeMap<Arc<str>, Lack>,
}

/// Something that a controller watches, and is without.
#[derive(Clone, Debug)]
pub(super) struct Lack {
    pub(super) needed: Needed,
    pub(super) kind: KindAt,
    /// The namespace; `None`: all.
    pub(super) namespace: Option<Arc<str>>,
}

/// Something that a controller was started without is there.
pub(super) enum Come {
    /// A kind is served, or something may be read.
    Anew,
    /// A cache is filled.
    Cache,
}

/// An informer by name, whether it is needed, and what keeps it going.
pub(super) type Place = (Arc<str>, Needed, Subscription);

/// Questions that are put to the API server until the answers are enough.
pub(super) struct Questions {
    pub(super) pause: Backoff,
    /// Are told when an API server is back.
    returns: Vec<watch::Receiver<()>>,
    until: Option<Instant>,
}

impl Questions {
    pub(super) fn new(sites: &Sites, until: Option<Instant>) -> Self {
        let own = &sites.at(None).api;
        let all = sites.others().map(|(_, site)| &site.api).chain([own]);
        let returns = all.map(|api| api.pulse().returns()).collect();
        Self { pause: Backoff::up_to(LONGEST_PAUSE, own.chance()), returns, until }
    }

    /// Waits for so long, or until the API server is back or the time is up.
    pub(super) async fn rest(&mut self, after: Duration) {
        let next = Instant::now() + after;
        let until = self.until.filter(|until| *until > Instant::now());
        tokio::select! {
            biased;
            _ = select_all(self.returns.iter_mut().map(|returns| returns.changed().boxed())) => {}
            () = sleep_until(until.map_or(next, |until| until.min(next))) => {}
        }
    }
}

impl Rest {
    /// Returns what is lacking: kinds, caches that are not filled, and what may not be read.
    pub(super) fn of(
        spec: &manifest::Controller,
        missing: BTreeMap<KindAt, Missing>,
        unfilled: Vec<Place>,
        denied: BTreeMap<Arc<str>, Lack>,
    ) -> Self {
        let needed = kinds_of(spec).into_iter();
        let kinds_missing = needed.filter(|(at, _)| missing.contains_key(at));
        let kinds_missing =
            kinds_missing.map(|(kind, needed)| (Arc::from(kind.to_string()), Lack { needed, kind, namespace: None }));
        let lists = unfilled.iter().map(|(name, needed, place)| {
            let Scope { gvk, namespace, cluster, .. } = place.scope();
            let kind = KindAt { cluster: cluster.clone(), gvk: gvk.clone() };
            (Arc::clone(name), Lack { needed: *needed, kind, namespace: namespace.clone() })
        });
        Self {
            names: kinds_missing.chain(lists).chain(denied).collect(),
            kinds: missing.into_keys().collect(),
            unfilled: unfilled.into_iter().map(|(.., place)| place).collect(),
        }
    }

    /// Returns the names of what is lacking.
    pub(super) fn names(&self) -> BTreeSet<Arc<str>> {
        self.names.keys().cloned().collect()
    }

    /// Returns what is lacking, by name.
    pub(super) fn lacks(&self) -> BTreeMap<Arc<str>, Lack> {
        self.names.clone()
    }

    /// Returns true if something of what was lacking `before` is there now, and not only given up: `watched` says of a kind in a namespace,
    /// or anywhere (`None`), whether the controller still watches it.
    pub(super) fn has_come(
        &self,
        before: &BTreeMap<Arc<str>, Lack>,
        watched: impl Fn(&KindAt, Option<&str>) -> bool,
    ) -> bool {
        let mut come = before.iter().filter(|(name, _)| !self.names.contains_key(*name));
        come.any(|(_, Lack { kind, namespace, .. })| watched(kind, namespace.as_deref()))
    }

    /// Says what is lacking of what is needed in any case; none if nothing is.
    pub(super) fn why(&self) -> Option<Obstacle> {
        let needed = || self.names.iter().filter(|(_, lack)| lack.needed == Needed::Always);
        let names: Vec<_> = needed().map(|(name, _)| &**name).collect();
        (!names.is_empty()).then(|| Obstacle::lacking(format!("runs without {}", names.join(", "))))
    }

    /// Waits until something of it is there, or may be read; for ever, if there is nothing.
    /// Kinds and rights are asked for only if the controller is `settled`, and not being prepared anew for them.
    pub(super) async fn come(&mut self, rights: Option<&Rights>, sites: &Sites, settled: bool) -> Come {
        let Self { kinds, unfilled, .. } = self;
        tokio::select! {
            biased;
            () = can_be_had(kinds, rights, sites), if settled => Come::Anew,
            scope = filled(unfilled) => {
                self.names.remove(&scope);
                Come::Cache
            }
        }
    }
}

/// Waits until one of these kinds is served, or something may be read that a controller goes on without; for ever, if there is nothing.
async fn can_be_had(kinds: &BTreeSet<KindAt>, rights: Option<&Rights>, sites: &Sites) {
    let denied = rights.filter(|rights| rights.lacks_any());
    let mut questions = Questions::new(sites, None);
    while !kinds.is_empty() || denied.is_some() {
        let mut after = questions.pause.longer();
        let mut asked: FuturesUnordered<_> = by_cluster(kinds.iter()).map(|kinds| served(kinds, sites)).collect();
        while let Some(found) = asked.next().await {
            match found {
                Ok(()) => return,
                Err(Some(away)) => after = questions.pause.after(&away),
                Err(None) => {}
            }
        }
        questions.rest(after).await;
        // Denied a moment ago: API servers that disagree for a while must not make the controller start over and over.
        if let Some(rights) = denied
            && rights.granted().await
        {
            return;
        }
    }
    pending::<()>().await;
}

/// Asks whether one of these kinds is served.
///
/// # Errors
/// Why it is not known, if that is so.
async fn served(kinds: Vec<&KindAt>, sites: &Sites) -> Result<(), Option<Error>> {
    let mut away = None;
    for at in kinds {
        match sites.kind(at).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_outage() => away = Some(error),
            Err(_) => {}
        }
    }
    Err(away)
}

/// Returns the kinds of each cluster: an API server tells all of a group at once, and one that does not answer holds up no other.
pub(super) fn by_cluster<'a>(kinds: impl Iterator<Item = &'a KindAt>) -> impl Iterator<Item = Vec<&'a KindAt>> {
    let mut all = BTreeMap::<_, Vec<_>>::new();
    for at in kinds {
        all.entry(&at.cluster).or_default().push(at);
    }
    all.into_values()
}

/// Waits until one of these caches is filled, and leaves it. Returns its name.
async fn filled(places: &mut Vec<Subscription>) -> Arc<str> {
    loop {
        if let Some(at) = places.iter().position(Subscription::is_filled) {
            return places.swap_remove(at).name();
        }
        if places.is_empty() {
            return pending().await;
        }
        let changed = places.iter_mut().map(|place| place.state.changed().boxed());
        drop(select_all(changed).await);
    }
}

/// Returns what a controller watches, and whether it needs each.
pub(super) fn kinds_of(spec: &manifest::Controller) -> BTreeMap<KindAt, Needed> {
    let mut kinds = BTreeMap::new();
    for (_, dependent) in spec.dependents() {
        let at = KindAt::of(spec, spec.cluster.as_ref(), &dependent.gvk);
        let needed = kinds.entry(at).or_insert(Needed::IfActive);
        if dependent.conditions.activation.is_none() {
            *needed = Needed::Always;
        }
    }
    let sources = spec.sources.values();
    let sources = sources.map(|source| KindAt::of(spec, spec.cluster_of(source), &source.gvk));
    for at in sources.chain([KindAt::of_primaries(spec)]) {
        kinds.insert(at, Needed::Always);
    }
    kinds
}

/// Says what an error means for a kind: only an answer says that it is not served, or may not be asked for, or that nobody leads there who could.
pub(super) fn lacking(error: &Error, api: &ApiServer) -> Fill {
    if (error.reason == Reason::UnknownKind || is_beyond(error)) || api.closed().is_some() {
        Fill::Lacking(error.message.as_str().into())
    } else {
        Fill::UnderWay
    }
}

#[cfg(test)]
mod tests {
    use capstan_core::object::Gvk;

    use super::*;

    #[test]
    fn what_is_given_up_has_not_come() {
        // NS-2
        let kind = || KindAt { cluster: None, gvk: Gvk::parse("v1", "ConfigMap").unwrap() };
        let lack = |namespace: &str| Lack { needed: Needed::Always, kind: kind(), namespace: Some(namespace.into()) };
        let lacks = |names: &[&str]| names.iter().map(|name| (Arc::from(*name), lack(name))).collect();
        for (before, after, watched, expected) in [
            (&["b"][..], &[][..], &["a", "b"][..], true),
            (&["b"], &[], &["a"], false),
            (&["b"], &["b"], &["a", "b"], false),
            (&["b", "c"], &["c"], &["a", "c"], false),
            (&["b", "c"], &["c"], &["a", "b", "c"], true),
            (&[], &["b"], &["a", "b"], false),
        ] {
            let rest = Rest { names: lacks(after), ..Rest::default() };
            let watches = |at: &KindAt, namespace: Option<&str>| *at == kind() && watched.contains(&namespace.unwrap());
            assert_eq!(rest.has_come(&lacks(before), watches), expected, "{before:?} {after:?} {watched:?}");
        }
    }
}

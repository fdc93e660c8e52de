//! Other clusters: how each is reached, and what a controller can't have in one of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::names::{DataKey, HolderName, Name};
use super::super::raw::{self, Maybe, MaybeLeaf, Named};
use super::super::{Mapper, Remote, Source};
use super::{Check, get, located};
use crate::yaml::{Located, OrWord, Scalar};

/// The most other clusters of an operator: each takes a client, and is asked for signs of life.
const MOST_CLUSTERS: usize = 16;

impl Check<'_> {
    /// Returns the other clusters of an operator, by name.
    pub(super) fn clusters(&mut self, field: &Maybe<Named<raw::Cluster>>) -> BTreeMap<Arc<str>, Remote> {
        if let Some(named) = located(field) {
            let instead = ": an operator with more is better divided";
            if !self.few(named.place, (named.value.0.len(), "clusters"), MOST_CLUSTERS, instead) {
                return BTreeMap::new();
            }
        }
        let operator = self.operator.clone().unwrap_or_default();
        let mut clusters = BTreeMap::new();
        for (name, _, cluster) in get(field).map(|named| self.each(named)).unwrap_or_default() {
            let kubeconfig = self.need(&cluster.value.kubeconfig, cluster.place, "kubeconfig");
            let secret = kubeconfig.and_then(|kubeconfig| {
                let raw::Kubeconfig::Secret(secret) = &kubeconfig.value;
                self.need(secret, kubeconfig.place, "secret")
            });
            let Some(Located { value: raw::SecretKey { name: secret, key }, place }) = secret else {
                continue;
            };
            let Some(Located { value: Scalar(HolderName(secret)), .. }) = self.need(secret, *place, "name") else {
                continue;
            };
            let key = get(key).map_or_else(|| "kubeconfig".into(), |Scalar(DataKey(key))| Arc::clone(key));
            let remote = Remote {
                id: format!("{operator}/{name}").into(),
                operator: Arc::clone(&operator),
                secret: Arc::clone(secret),
                key,
            };
            clusters.insert(Arc::clone(name), remote);
        }
        clusters
    }

    /// Returns the name of the cluster that something is in, and finds one that the operator does not have.
    pub(super) fn cluster(&mut self, field: &MaybeLeaf<Name>) -> Option<Arc<str>> {
        let Located { value: Scalar(Name(name)), place } = located(field)?;
        match &self.clusters {
            Some(clusters) => {
                let known: Vec<_> = clusters.keys().cloned().collect();
                self.known(*place, "cluster", name, &known.iter().map(|name| &**name).collect());
            }
            None => self.fault(
                *place,
                "found `cluster`; which other clusters are watched only a manifest says: declare the source there",
            ),
        }
        Some(Arc::clone(name))
    }

    /// Returns the cluster that a controller is in, and all that it and its sources use; finds what they can't have there.
    pub(super) fn apart(
        &mut self,
        raw: &raw::Controller,
        sources: &BTreeMap<Arc<str>, Source>,
    ) -> (Option<Arc<str>>, BTreeMap<Arc<str>, Remote>) {
        let cluster = self.cluster(&raw.cluster);
        if cluster.is_some() {
            self.not_own(&raw.namespaces);
        }
        for (name, _, source) in get(&raw.sources).map(|named| self.each(named)).unwrap_or_default() {
            let raw::Source::Informer(informer) = &source.value else {
                continue;
            };
            let found = informer.read().zip(sources.get(name));
            match found.map(|(informer, source)| (&informer.value, located(&informer.value.cluster), source)) {
                Some((informer, Some(Located { place, .. }), source)) => {
                    let own = if informer.namespaces.is_some() {
                        is_own(&informer.namespaces)
                    } else {
                        is_own(&raw.namespaces)
                    };
                    self.source_apart(own, *place, cluster.as_ref(), source);
                }
                Some((informer, None, _)) if cluster.is_some() => self.not_own(&informer.namespaces),
                Some((_, None, _)) | None => {}
            }
        }
        let used = sources.values().filter_map(|source| source.cluster.as_ref()).chain(&cluster);
        let clusters = self.clusters.as_ref();
        let remotes = used.filter_map(|name| Some((Arc::clone(name), clusters?.get(name)?.clone()))).collect();
        (cluster, remotes)
    }

    /// Finds what a source of another cluster can't have.
    fn source_apart(&mut self, own: bool, place: usize, cluster: Option<&Arc<str>>, source: &Source) {
        if source.cluster.as_ref() == cluster {
            self.fault(place, "found the cluster in which the controller is itself; leave it out");
        } else if matches!(source.mapper, Mapper::OwnerReference | Mapper::OwnerKind) {
            self.fault(place, "found another cluster with owner references, which can't lead from one cluster into another; expected another `mapper`, such as `annotations: {}`");
        }
        if own {
            self.fault(place, "found another cluster with `namespaces: own`, the daemon's own namespace, which is not there; expected `namespaces` with `all` or a list");
        }
    }

    /// Finds the daemon's own namespace where there is none.
    fn not_own<T>(&mut self, namespaces: &Maybe<OrWord<raw::All, OrWord<raw::Own, T>>>) {
        if let Some(Located { place, .. }) = located(namespaces).filter(|_| is_own(namespaces)) {
            self.fault(
                *place,
                "found `own`, the daemon's own namespace, which is not in another cluster; expected `all` or a list",
            );
        }
    }
}

fn is_own<T>(namespaces: &Maybe<OrWord<raw::All, OrWord<raw::Own, T>>>) -> bool {
    matches!(get(namespaces), Some(OrWord::Value(OrWord::Word(_))))
}

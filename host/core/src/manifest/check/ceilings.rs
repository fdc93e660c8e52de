//! What the daemon's ceilings mean.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::ceilings::Rules;
use super::super::names::{GroupName, Name, PublicKey, ResourceName};
use super::super::raw::{Maybe, MaybeLeaf, ceilings};
use super::super::units::{Bytes, Counted, Time, Times};
use super::super::{Ceiling, Limits};
use super::plugin::Hosts;
use super::{Check, flag, get, located, time, workers};
use crate::registry::signature::Key;
use crate::yaml::{Leaf, Located, Scalar, Slot};

/// How many operators, plugins and controllers there may be in a namespace, where nothing else is said.
const USUAL: usize = 10;

/// The most keys.
const MOST_KEYS: usize = 16;

impl Check<'_> {
    /// Returns the ceilings by namespace; if not, or if anything was found wrong, there is a fault.
    pub(in crate::manifest) fn ceilings(
        &mut self,
        document: &Slot<ceilings::Document>,
    ) -> Option<BTreeMap<Arc<str>, Arc<Ceiling>>> {
        let Located { value: document, place } = document.read()?;
        let Located { value: spec, place } = self.need(&document.spec, *place, "spec")?;
        let named = self.need(&spec.ceilings, *place, "ceilings")?;
        if named.value.0.is_empty() {
            self.fault(named.place, "found an empty mapping; expected at least one ceiling");
        }
        let mut all = BTreeMap::new();
        for (name, place, raw) in self.each(&named.value) {
            let Some(ceiling) = self.ceiling(name, raw).map(Arc::new) else {
                continue;
            };
            for namespace in &ceiling.namespaces {
                let before: Option<Arc<Ceiling>> = all.insert(Arc::clone(namespace), Arc::clone(&ceiling));
                if let Some(before) = before {
                    let both = format!(
                        "found the namespace `{namespace}` here and in `{}`; expected it in one of them",
                        before.name
                    );
                    self.fault(place, both);
                }
            }
        }
        Some(all)
    }

    fn ceiling(&mut self, name: &Arc<str>, raw: &Located<ceilings::Ceiling>) -> Option<Ceiling> {
        let Located { value: raw, place } = raw;
        let namespaces = self.some(&raw.namespaces, *place, "namespaces", |Scalar(Name(name))| Arc::clone(name));
        let accounts = &raw.service_accounts;
        let accounts = self.some(accounts, *place, "serviceAccounts", |Scalar(Name(name))| Arc::clone(name));
        let rules = self.rules(&raw.rules, *place);
        let hosts = Hosts { http: &raw.http, tcp: &raw.tcp, internal: &raw.internal };
        let (http, tcp) = self.hosts(hosts);
        let registries = located(&raw.registries).map(|Located { value, place }| {
            let items = self.items(value, *place);
            items.into_iter().map(|item| Arc::clone(&item.value.0.0)).collect()
        });
        Some(Ceiling {
            name: Arc::clone(name),
            namespaces: namespaces?,
            service_accounts: accounts?,
            rules: rules?,
            operators: counted(&raw.operators),
            plugins: counted(&raw.plugins),
            controllers: counted(&raw.controllers),
            limits: most(&raw.limits),
            http,
            tcp,
            registries: registries.unwrap_or_default(),
            keys: self.verify_keys(&raw.verify_keys),
            on_new_version: located(&raw.on_new_version).map(|asks| asks.value).unwrap_or_default(),
            inbound: flag(&raw.inbound, false),
        })
    }

    /// Returns the items of a list that must have some.
    fn some<T, K: Ord>(
        &mut self,
        field: &Slot<Vec<Slot<T>>>,
        around: usize,
        name: &str,
        of: impl Fn(&T) -> K,
    ) -> Option<BTreeSet<K>> {
        let Located { value, place } = self.need(field, around, name)?;
        if value.is_empty() {
            self.fault(*place, "found an empty list; expected one item at least");
        }
        Some(self.set(value, *place, of))
    }

    fn rules(&mut self, field: &Slot<Vec<Slot<ceilings::Rule>>>, around: usize) -> Option<Rules> {
        let Located { value, place } = self.need(field, around, "rules")?;
        if value.is_empty() {
            self.fault(*place, "found an empty list; expected one rule at least");
        }
        let mut rules = Rules::new();
        for Located { value: ceilings::Rule { api_groups, resources, verbs }, place } in self.items(value, *place) {
            let groups = self.some(api_groups, *place, "apiGroups", |Scalar(GroupName(group))| Arc::clone(group));
            let resources =
                self.some(resources, *place, "resources", |Scalar(ResourceName(resource))| Arc::clone(resource));
            let verbs = self.some(verbs, *place, "verbs", |verb| *verb).unwrap_or_default();
            for group in groups.iter().flatten() {
                for resource in resources.iter().flatten() {
                    rules.entry((Arc::clone(group), Arc::clone(resource))).or_default().extend(&verbs);
                }
            }
        }
        Some(rules)
    }

    fn verify_keys(&mut self, field: &Maybe<Vec<Leaf<PublicKey>>>) -> Vec<Key> {
        let Some(Located { value, place }) = located(field) else {
            return Vec::new();
        };
        if !self.few(*place, (value.len(), "keys"), MOST_KEYS, "") {
            return Vec::new();
        }
        self.public_keys(value, *place)
    }
}

fn counted(field: &MaybeLeaf<Counted>) -> usize {
    get(field).map_or(USUAL, |Scalar(Counted(n))| *n as usize)
}

fn most(field: &Maybe<ceilings::Most>) -> Limits {
    let usual = Limits::default();
    let Some(most) = get(field) else {
        return usual;
    };
    Limits {
        memory: get(&most.memory).map_or(usual.memory, |Scalar(Bytes(n))| *n),
        timeout: time(&most.timeout, usual.timeout),
        concurrency: workers(&most.concurrency, usual.concurrency),
        cpu: get(&most.cpu).map(|Scalar(Time(cpu))| *cpu),
        requests_per_second: get(&most.requests_per_second).map_or(usual.requests_per_second, |Scalar(Times(n))| *n),
        connections: workers(&most.connections, usual.connections),
        ..usual
    }
}

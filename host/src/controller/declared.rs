//! The inputs of a controller: its part of a manifest, its plugin, and what it shares with other controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cluster::Error;
use capstan_core::cpu::Account;
use capstan_core::dispatcher::Bounds;
use capstan_core::guest::{Guest, Interface};
use capstan_core::manifest::{self, Namespaces};
use capstan_core::object::Gvk;
use capstan_core::operator::ceiling::kinds::fields as fields_of_kinds;
use capstan_core::permission::Home;
use capstan_core::queue::{Mode, Policy};
use capstan_core::reconciler::finalizer;
use capstan_core::rollout::values::Values;
use capstan_core::rollout::{Shape, Version};
use tokio::sync::Notify;

use crate::client::meter::Meters;
use crate::client::recorder::Recorder;
use crate::client::{ApiServer, Identity, InForce, Kind, Within};
use crate::clusters::{Clusters, Other, Site};
use crate::informer::pool::Pool;
use crate::metrics::Metrics;
use crate::workers::Workers;

/// The longest pause before asking again for a kind that the API server does not serve yet, or for a right.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The parts of the daemon that all controllers share.
pub struct Environment {
    /// The API server.
    pub api: Arc<ApiServer>,
    /// The informers.
    pub pool: Pool,
    /// The other clusters that operators use.
    pub clusters: Arc<Clusters>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Takes Kubernetes Events.
    pub recorder: Recorder,
    /// Counts what plugins have sent lately.
    pub meters: Meters,
    /// The most requests a second that a manifest can permit a plugin.
    pub requests_per_second: u32,
    /// The daemon's own namespace, and the one that is closed to components.
    pub home: Home,
    /// The name of the daemon in Events and settings.
    pub identity: Arc<str>,
    /// How long runs may take to finish.
    pub drain: Duration,
    /// The threads on which runs compute.
    pub workers: Workers,
    /// Is told that another version of a controller runs.
    pub swapped: Notify,
    /// The name under which primaries are held for this daemon, which then does nothing for others (`PA-6`).
    pub holder: Option<Arc<str>>,
    /// What operators of other namespaces may have at most.
    pub ceilings: Arc<InForce>,
}

/// A version of a controller, as its manifest declares it, with its plugin.
pub struct Declared {
    /// The operator that it belongs to.
    pub operator: Arc<str>,
    /// Its part of the manifest.
    pub spec: manifest::Controller,
    /// The part of the manifest about its plugin.
    pub plugin: manifest::Plugin,
    /// Its plugin, loaded.
    pub guest: Arc<dyn Guest>,
    /// The digest of its component.
    pub component: Arc<str>,
    /// The values of its plugin's `config` that are elsewhere.
    pub values: Values,
    /// The account of the CPU time that its plugin has used.
    pub account: Account,
    /// The other clusters that it uses, by name.
    pub others: BTreeMap<Arc<str>, Arc<Other>>,
}

/// The kinds that a controller needs, as discovery knows them.
pub(super) type Kinds = BTreeMap<KindAt, Kind>;

/// A kind in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KindAt {
    /// The cluster, as `operator/name`; none: that of the daemon.
    pub(super) cluster: Option<Arc<str>>,
    pub(super) gvk: Gvk,
}

/// The clusters that a controller uses.
#[derive(Clone)]
pub(super) struct Sites {
    own: Site,
    /// As `operator/name`.
    others: BTreeMap<Arc<str>, Site>,
    /// The ceiling, if there is one, and which fields of the manifest name each kind.
    within: Option<(Within, BTreeMap<Gvk, String>)>,
}

impl Sites {
    /// Returns the cluster of this name, as `operator/name`; that of the daemon without one.
    pub(super) fn at(&self, cluster: Option<&Arc<str>>) -> &Site {
        cluster.and_then(|cluster| self.others.get(cluster)).unwrap_or(&self.own)
    }

    /// Returns what a kind is called and where it lives, asking the API server of its cluster the first time.
    ///
    /// # Errors
    /// As [`ApiServer::resolve`]; `Forbidden`, with the fields, if that is more than the ceiling has.
    pub(super) async fn kind(&self, at: &KindAt) -> Result<Kind, Error> {
        let api = &self.at(at.cluster.as_ref()).api;
        let kind = api.resolve(&at.gvk).await?;
        let Some((within, fields)) = self.within.as_ref().filter(|_| at.cluster.is_none()) else {
            return Ok(kind);
        };
        if within.permit_watch(&kind).is_ok() {
            return Ok(kind);
        }
        // It may have been made anew, and be another.
        api.look_again(&at.gvk).await?;
        let kind = api.resolve(&at.gvk).await?;
        within.permit_watch(&kind).map_err(|error| {
            let field = fields.get(&at.gvk).map_or("spec", String::as_str);
            Error::new(error.reason, error.code, format!("{field}: {}", error.message))
        })?;
        Ok(kind)
    }

    /// Returns all of them but that of the daemon.
    pub(super) fn others(&self) -> impl Iterator<Item = (&Arc<str>, &Site)> {
        self.others.iter()
    }
}

impl KindAt {
    /// Returns the kind of a controller's primaries.
    pub(super) fn of_primaries(spec: &manifest::Controller) -> Self {
        Self::of(spec, spec.cluster.as_ref(), &spec.primary)
    }

    /// Returns a kind in the cluster that has this name in the manifest; in that of the daemon without one.
    pub(super) fn of(spec: &manifest::Controller, cluster: Option<&Arc<str>>, gvk: &Gvk) -> Self {
        let remote = cluster.and_then(|cluster| spec.remotes.get(cluster));
        Self { cluster: remote.map(|remote| Arc::clone(&remote.id)), gvk: gvk.clone() }
    }
}

impl fmt::Display for KindAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, gvk } = self;
        match cluster {
            Some(cluster) => write!(f, "{gvk} of cluster {cluster}"),
            None => gvk.fmt(f),
        }
    }
}

impl Declared {
    /// True if something needs cleanup before a primary is deleted (`DI-2`).
    pub(super) fn needs_finalizer(&self) -> bool {
        self.spec.deletes_dependents() || self.guest.exports(Interface::Cleaner)
    }

    /// Whether other clusters of one name are the same ones in another version, so that what is known of their objects goes on.
    pub(super) fn leads_as(&self, other: &Self) -> bool {
        let mut remotes = self.spec.remotes.iter();
        remotes.all(|(name, remote)| other.spec.remotes.get(name).is_none_or(|then| then == remote))
    }

    /// Returns the clusters that it uses.
    pub(super) fn sites(&self, environment: &Environment) -> Sites {
        let site = |api: &Arc<ApiServer>, pool: &Pool| Site { api: Arc::clone(api), pool: pool.of(&self.operator) };
        let own = site(&environment.api, &environment.pool);
        let others = self.others.values();
        let others = others.map(|other| (Arc::clone(&other.id), site(&other.site.api, &other.site.pool)));
        let within = self.within_ceiling(environment).map(|within| {
            let mut fields = BTreeMap::<_, String>::new();
            for (field, gvk) in fields_of_kinds(&self.spec) {
                let all = fields.entry(gvk.clone()).or_default();
                *all = if all.is_empty() { field } else { format!("{all}, {field}") };
            }
            (within, fields)
        });
        Sites { own, others: others.collect(), within }
    }

    /// Returns the ceiling of an operator that has one.
    pub(super) fn within_ceiling(&self, environment: &Environment) -> Option<Within> {
        self.spec.home.as_ref().map(|home| environment.ceilings.of(home))
    }

    /// Returns the cluster in which its primaries are.
    pub(super) fn site(&self, environment: &Environment) -> Site {
        self.sites(environment).at(KindAt::of_primaries(&self.spec).cluster.as_ref()).clone()
    }

    /// Returns who asks the API server of that. In another cluster, that is whom its kubeconfig names.
    pub(super) fn who(&self, environment: &Environment) -> Identity {
        let account = self.spec.service_account.as_ref().filter(|_| self.spec.cluster.is_none());
        Identity::of(account, &environment.home.own)
    }

    /// Returns the same with these namespaces as those that it selects; none: they are not known.
    pub(super) fn within(&self, found: Option<Arc<BTreeSet<Arc<str>>>>) -> Self {
        let Self { operator, spec, plugin, guest, component, values, account, others } = self;
        let mut spec = spec.clone();
        if let Namespaces::Selected(selected) = &mut spec.namespaces {
            selected.found = found;
        }
        Self {
            operator: Arc::clone(operator),
            spec,
            plugin: plugin.clone(),
            guest: Arc::clone(guest),
            component: Arc::clone(component),
            values: values.clone(),
            account: account.clone(),
            others: others.clone(),
        }
    }

    /// Returns true if it is the same as another one, and selects what that selects and more namespaces.
    pub(super) fn grows_from(&self, before: &Self) -> bool {
        let (Namespaces::Selected(now), Namespaces::Selected(then)) = (&self.spec.namespaces, &before.spec.namespaces)
        else {
            return false;
        };
        let (Some(now), Some(then)) = (&now.found, &then.found) else {
            return false;
        };
        let same = Arc::ptr_eq(&self.guest, &before.guest)
            && self.version().is_as(before.version())
            && self.spec.paused == before.spec.paused
            && self.plugin == before.plugin
            && self.others.values().map(Arc::as_ptr).eq(before.others.values().map(Arc::as_ptr));
        same && then.is_subset(now)
    }

    /// Returns the namespace of the daemon, as far as it is in the cluster of its primaries.
    pub(super) fn home(&self, environment: &Environment) -> Home {
        let closed = environment.home.closed.clone().filter(|_| self.spec.cluster.is_none());
        Home { closed, ..environment.home.clone() }
    }

    pub(super) fn shape(&self) -> Shape<'_> {
        Shape { spec: &self.spec, finalizer: self.needs_finalizer() }
    }

    pub(super) fn version(&self) -> Version<'_> {
        let Self { spec, plugin, component, values, .. } = self;
        Version { spec, plugin, component, values }
    }

    pub(super) fn policy(&self) -> Policy {
        let spec = &self.spec;
        Policy {
            retry: spec.retry.clone(),
            retry_by: spec.retry_by.clone(),
            rate_limit: spec.rate_limit.clone(),
            max_interval: spec.max_interval,
            min_reschedule: spec.min_reschedule,
            mode: if spec.all_events() { Mode::AllEvents } else { Mode::Normal },
        }
    }

    pub(super) fn bounds(&self, environment: &Environment) -> Bounds {
        Bounds { concurrency: self.spec.concurrency, drain: environment.drain }
    }
}

/// Returns the finalizer: the manifest's, or one made of the kind's full name (`LC-3`).
pub(super) fn finalizer_name(spec: &manifest::Controller, kind: Option<&Kind>) -> Arc<str> {
    let full_name = || kind.map(Kind::full_name).unwrap_or_default();
    let default = || finalizer::default_name(&full_name()).into();
    spec.finalizer.clone().unwrap_or_else(default)
}

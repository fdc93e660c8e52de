//! One controller as its runs use it: its parts, and the finalizers and the manner of writing that follow from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;

use super::decision::Finalizers;
use super::outcome::Manner;
use super::verdicts::Verdicts;
use crate::budget::Budget;
use crate::cluster::Cluster;
use crate::conditions::Possible;
use crate::external::External;
use crate::guest::{Event, Guest, Interface};
use crate::manifest;
use crate::object::{Object, ObjectRef};
use crate::permission::Permissions;
use crate::queue::Queue;
use crate::source::on_demand::OnDemand;
use crate::source::registered::Registered;
use crate::source::{Listener, Source, Within};
use crate::writes::WriteContext;

/// A controller, as its runs have it.
pub struct Controller {
    /// The operator that declares it.
    pub operator: Arc<str>,
    /// The controller in the manifest.
    pub spec: manifest::Controller,
    /// The limits of its plugin.
    pub limits: manifest::Limits,
    /// The primaries.
    pub primaries: Arc<Source>,
    /// The secondaries, by the name of the source or of the dependent; a shared source is under both.
    pub secondaries: BTreeMap<Arc<str>, Arc<Source>>,
    /// The sources of things outside of the cluster, by name.
    pub externals: BTreeMap<Arc<str>, Arc<External>>,
    /// Those secondaries that are watched only while a dependent is active.
    pub on_demand: Arc<OnDemand>,
    /// The secondaries that runs have registered (`ES-4`).
    pub registered: Arc<Registered>,
    /// The finalizer, from the manifest or derived from the kind's full name (`LC-3`).
    pub finalizer: Arc<str>,
    /// The plugin.
    pub guest: Arc<dyn Guest>,
    /// The permissions of the plugin.
    pub permissions: Permissions,
    /// The API server of its own cluster.
    pub cluster: Arc<dyn Cluster>,
    /// The other clusters that its sources watch, by name (`CU-4`).
    pub elsewhere: BTreeMap<Arc<str>, Elsewhere>,
    /// Receives the triggers of events that were held back.
    pub tell: Listener,
    /// The queue.
    pub queue: Queue,
    /// The memory that is kept from one run to the next.
    pub verdicts: Arc<Verdicts>,
    /// The edition of the controller: its runs trust no verdict of another edition.
    pub edition: u64,
    /// The answer of `context.settings`.
    pub settings: Value,
    /// The name under which primaries are held for this daemon, which does nothing for others; `None`: it does what nobody else holds.
    pub holder: Option<Arc<str>>,
    /// Takes Kubernetes Events about a primary.
    pub events: Events,
    /// Whether its kind can have the standard conditions; of interest only if the manifest asks for them.
    pub conditions: Arc<Possible>,
}

/// Another cluster, of which sources show something.
pub struct Elsewhere {
    /// Its API server, which is only read.
    pub cluster: Arc<dyn Cluster>,
    /// Whether it is away.
    pub away: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Takes Kubernetes Events about a primary, and what they are called if the manifest says it; never waits.
pub type Events = Box<dyn Fn(&Object, Event, Option<String>) + Send + Sync>;

// === impl Controller ===

impl Controller {
    /// Returns the finalizer if something needs cleanup (`DI-2`).
    pub fn used_finalizer(&self) -> Option<&str> {
        let used = self.guest.exports(Interface::Cleaner) || self.spec.deletes_dependents();
        used.then_some(&*self.finalizer)
    }

    /// Returns the finalizer that its component may add and remove as the controller's own: the one in use, and in all-events mode the one that
    /// the manifest names. Another controller may use the default one of the kind (`LC-3`).
    pub fn own_finalizer(&self) -> Option<&str> {
        let named = || self.spec.finalizer.as_deref().filter(|_| self.spec.all_events());
        self.used_finalizer().or_else(named)
    }

    /// Returns what a run, or what is asked beside one, may spend on documents.
    pub(super) fn budget(&self) -> Budget {
        self.guest.holding().map_or_else(Budget::of_run, |holding| Budget::borrowing(Box::new(holding)))
    }

    /// Returns the source of things outside of the cluster of this name, or that of a dependent of this name.
    pub(super) fn external(&self, name: &str) -> Option<&Arc<External>> {
        let of_dependent = || {
            let (_, outside) = self.spec.outside().find(|(dependent, _)| ***dependent == *name)?;
            self.externals.get(&outside.source)
        };
        self.externals.get(name).or_else(of_dependent)
    }

    /// Returns the API server that has the objects of a source.
    pub(super) fn cluster_of(&self, source: &Source) -> &dyn Cluster {
        self.elsewhere_of(source).map_or(&*self.cluster, |elsewhere| &*elsewhere.cluster)
    }

    /// Returns true if a source watches another cluster, and that is away.
    pub(super) fn is_away(&self, source: &Source) -> bool {
        self.elsewhere_of(source).is_some_and(|elsewhere| (elsewhere.away)())
    }

    fn elsewhere_of(&self, source: &Source) -> Option<&Elsewhere> {
        let name = source.spec().cluster.as_ref().filter(|_| source.is_apart_from(&self.primaries))?;
        self.elsewhere.get(name)
    }

    /// Returns the number of own writes that its sources have not seen in a watch yet.
    pub fn own_writes(&self) -> usize {
        let registered: usize = self.registered.watched().values().map(|source| source.own_writes()).sum();
        self.sources().iter().map(|source| source.own_writes()).sum::<usize>() + registered
    }

    /// Waits until its sources have asked about what they have seen so far that may concern a primary; but not long, as its run can ask.
    pub async fn settled_for(&self, primary: &ObjectRef) {
        let registered = self.registered.watched();
        let sources = self.sources().into_iter().chain(registered.values());
        join_all(sources.map(|source| source.settled_for(Some(primary)))).await;
    }

    /// Lets its sources ask this version of the component from now on; [`Controller::ask_anew`] has to follow.
    pub fn ask_this(&self) {
        for source in self.sources() {
            source.ask_edition(self.edition);
        }
    }

    /// Has its sources ask about everything again of which another version of the component has said something.
    pub fn ask_anew(&self) {
        for source in self.sources() {
            source.ask_anew();
        }
    }

    /// Returns true if runs of this version may have begun to watch something of which the version that runs now does not know.
    pub fn watches_apart_from(&self, now: &Self) -> bool {
        // One that is retired may be left by the version that comes next, before that is in place.
        let on_demand = self.on_demand.is_retired()
            || (!Arc::ptr_eq(&self.on_demand, &now.on_demand) && !self.on_demand.is_empty());
        on_demand || (!Arc::ptr_eq(&self.registered, &now.registered) && !self.registered.is_empty())
    }

    /// Returns true if a run of this version about a primary was refused what the version that runs now may do, as only that watches its
    /// namespace.
    pub fn is_outgrown_by(&self, now: &Self, primary: &ObjectRef) -> bool {
        let within =
            |of: &Self| primary.namespace.as_deref().is_none_or(|namespace| of.permissions.is_within(namespace));
        within(now) && !within(self)
    }

    /// Returns the manifest's sources; one that several dependents share once.
    fn sources(&self) -> Vec<&Arc<Source>> {
        let mut seen = BTreeSet::new();
        let all = self.secondaries.values().chain([&self.primaries]);
        all.filter(|source| seen.insert(Arc::as_ptr(source))).collect()
    }

    /// Lets go of the finalizers of the version `before` that primaries of the same kind carry, or may carry: it may have given them
    /// since it was decided that this one may take its place.
    pub fn heed_finalizers_of(&mut self, before: &Self) {
        if !self.spec.is_kin_of(&before.spec) || self.spec.all_events() || before.spec.all_events() {
            return;
        }
        let Finalizers { own, former } = before.finalizers();
        let given = own.into_iter().chain(former.iter().map(|name| &**name));
        // What is not shown, or not as it was written last, may carry it.
        let unseen = before.primaries.shows_all(Within::Everywhere).is_err();
        let carried = |name: &str| unseen || before.primaries.carrying(name) > 0;
        let unheeded = given.filter(|name| self.used_finalizer() != Some(name) && carried(name));
        let unheeded: Vec<Arc<str>> = unheeded.map(Arc::from).collect();
        self.spec.former_finalizers.extend(unheeded);
    }

    /// Returns the finalizers that it uses and has used.
    pub fn finalizers(&self) -> Finalizers<'_> {
        Finalizers { own: self.used_finalizer(), former: &self.spec.former_finalizers }
    }

    /// Returns the hash of a document that the guest or the daemon made, for verdicts on it.
    pub(crate) fn hash(&self, document: &str) -> u64 {
        self.verdicts.hash(self.edition, document)
    }

    /// Returns the manner in which this controller writes to a primary.
    pub(crate) fn manner(&self, primary: &Object) -> Manner {
        // In all-events mode the component has put the finalizer there, or has not.
        let there = |name: &&str| !self.spec.all_events() || primary.header().has_finalizer(name);
        let finalizer = self.own_finalizer().filter(there);
        Manner {
            gvk: self.spec.primary.clone(),
            manager: Arc::clone(&self.spec.field_manager),
            apply: self.spec.server_side_apply,
            finalizer: finalizer.map(Into::into),
            conditions: self.spec.keeps_conditions(),
            validation: self.spec.field_validation,
        }
    }

    /// Returns the context for writes through `cluster`.
    pub(crate) fn write_context<'a>(&'a self, cluster: &'a dyn Cluster, budget: &'a Mutex<Budget>) -> WriteContext<'a> {
        WriteContext {
            cluster,
            run: None,
            primaries: &self.primaries,
            secondaries: &self.secondaries,
            registered: &self.registered,
            manager: &self.spec.field_manager,
            tell: &self.tell,
            budget,
            permissions: &self.permissions,
            declared: &self.spec.sources,
            finalizer: self.own_finalizer(),
            conditions: self.spec.keeps_conditions(),
            validation: self.spec.field_validation,
        }
    }
}

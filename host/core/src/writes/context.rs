//! Defines the context of a write, and decides which cached objects a component may see.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::budget::Budget;
use crate::cluster::{Cluster, FieldValidation};
use crate::guest::{CallError, ObjectTarget};
use crate::manifest;
use crate::object::{Gvk, Object, ObjectRef};
use crate::permission::Permissions;
use crate::source::registered::Registered;
use crate::source::{Doubt, Listener, Source};

/// Asks the API server for what a bounded source has forgotten, as one of the requests that a run may make (`BC-1`).
pub trait Recalls: Sync {
    /// Returns an object as it is now, and as the source shows it; `None` if it is gone.
    fn recall<'a>(&'a self, source: &'a Source, key: &'a ObjectRef)
    -> BoxFuture<'a, Result<Option<Object>, CallError>>;

    /// Takes in why the object of a write is not known.
    fn doubts(&self, doubt: &Doubt);
}

/// The parts of a controller and a run that a write needs.
#[derive(Clone, Copy)]
pub struct WriteContext<'a> {
    /// The API server.
    pub cluster: &'a dyn Cluster,
    /// The run; `None` outside of runs, where nothing is read again.
    pub run: Option<&'a dyn Recalls>,
    /// The primaries.
    pub primaries: &'a Arc<Source>,
    /// The secondaries.
    pub secondaries: &'a BTreeMap<Arc<str>, Arc<Source>>,
    /// The secondaries that runs have registered.
    pub registered: &'a Registered,
    /// The field manager.
    pub manager: &'a Arc<str>,
    /// Called with the triggers of events that were held back.
    pub tell: &'a Listener,
    /// The run's budget for work on documents.
    pub budget: &'a Mutex<Budget>,
    /// The permissions of the component.
    pub permissions: &'a Permissions,
    /// The secondaries that the manifest declares for reading; the other secondaries are those of dependents.
    pub declared: &'a BTreeMap<Arc<str>, manifest::Source>,
    /// The finalizer that is the controller's own, if there is one.
    pub finalizer: Option<&'a str>,
    /// True if the standard conditions of primaries are the daemon's (`SC-3`).
    pub conditions: bool,
    /// What becomes of fields that a kind does not have.
    pub validation: FieldValidation,
}

impl WriteContext<'_> {
    /// Returns true if a component may read everything in a source: in that of primaries, in those that the
    /// manifest declares, and in those that runs have registered, as it permits. The source of a dependent only serves to write it.
    pub fn is_declared(&self, source: &Arc<Source>) -> bool {
        let mut declared = self.declared.keys();
        Arc::ptr_eq(source, self.primaries)
            || declared.any(|name| {
                let found = self.secondaries.get(name);
                found.is_some_and(|found| Arc::ptr_eq(found, source))
            })
            || self.is_registered(source)
    }

    fn is_registered(&self, source: &Arc<Source>) -> bool {
        self.registered.watched().values().any(|found| Arc::ptr_eq(found, source))
    }

    /// Returns true if the component may see the contents of an object.
    pub fn may_see(&self, primary: &Object, gvk: &Gvk, object: &Object) -> bool {
        let key = object.key();
        let namespace = key.namespace.as_deref();
        let owners = &object.header().owners;
        self.permissions.may_read(gvk, namespace)
            || owners.iter().any(|owner| owner.uid == primary.header().uid)
            || sources(self, gvk).iter().any(|source| {
                let declared = self.is_declared(source) && source.get(key).is_some();
                // What a run declares itself leads it to nothing but what it may watch.
                declared || (!self.is_registered(source) && source.relates(object, primary.key()))
            })
    }

    /// Returns true if the event of a write may be filtered: for the run's own primary and for a secondary. The event
    /// of another primary has to reach that primary's own run.
    pub(super) fn filters(&self, source: &Arc<Source>, key: &ObjectRef, primary: &Object) -> bool {
        !Arc::ptr_eq(source, self.primaries) || key == primary.key()
    }
}

/// Returns all sources of a kind in the controller's own cluster, where its writes go: that of the primaries first, those that runs
/// have registered last.
pub(super) fn sources(context: &WriteContext<'_>, gvk: &Gvk) -> Vec<Arc<Source>> {
    let registered = context.registered.watched();
    let all = std::iter::once(context.primaries).chain(context.secondaries.values()).chain(registered.values());
    let cluster = &context.primaries.spec().cluster;
    all.filter(|source| source.spec().gvk == *gvk && source.spec().cluster == *cluster).cloned().collect()
}

pub(super) fn cached(context: &WriteContext<'_>, primary: &Object, target: &ObjectTarget) -> Option<Object> {
    let found = sources(context, &target.gvk).into_iter().filter_map(|source| source.get(&target.key));
    let is_primary = target.gvk == context.primaries.spec().gvk && target.key == *primary.key();
    found
        .max_by_key(|object| (object.version(), object.fields().is_whole()))
        .or_else(|| is_primary.then(|| primary.clone()))
}

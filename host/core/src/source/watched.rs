//! The places that a source watches: decides which cache shows an object.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::Cache;
use crate::object::ObjectRef;

/// The place that one informer watches: a namespace, or all namespaces and cluster-scoped objects (`None`).
pub(super) type Place = Option<Arc<str>>;

/// The watched places with their caches. Replaced as a whole when they change.
pub(super) type Places = Arc<BTreeMap<Place, Cache>>;

/// Returns the cache for an object, if there is one: that of its namespace, or else that of all namespaces.
pub(super) fn watcher<'a>(places: &'a Places, key: &ObjectRef) -> Option<(&'a Place, &'a Cache)> {
    watcher_of(places, &key.namespace)
}

/// Returns the cache for the objects of a namespace, or for cluster-scoped ones (`None`).
pub(super) fn watcher_of<'a>(places: &'a Places, namespace: &Place) -> Option<(&'a Place, &'a Cache)> {
    places.get_key_value(namespace).or_else(|| places.get_key_value(&None))
}

pub(super) fn is_in(places: &Places, key: &ObjectRef, place: &Place) -> bool {
    watcher(places, key).is_some_and(|(watching, _)| watching == place)
}

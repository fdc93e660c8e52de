//! Decides what is stored at which version, and how it has changed since: the model's etcd.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

/// The key of an object in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    /// The number of its kind.
    pub(crate) kind: usize,
    /// `namespace/name`, or the name alone: objects are listed in this order.
    path: String,
}

/// A change.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) id: Id,
    /// The object before; `None` if it is new.
    pub(crate) old: Option<Arc<Value>>,
    /// The object after; `None` if it is deleted.
    pub(crate) new: Option<Arc<Value>>,
    /// Watches show it from this time on.
    pub(crate) visible: Instant,
}

/// All objects, and their changes.
#[derive(Debug)]
pub(crate) struct Store {
    objects: BTreeMap<Id, Arc<Value>>,
    revision: u64,
    /// Changes up to this version are forgotten.
    compacted: u64,
    log: Vec<Change>,
    /// When the last change of each kind is shown; no change is shown before an earlier one of its kind.
    shown: BTreeMap<usize, Instant>,
}

impl Id {
    pub(crate) fn new(kind: usize, namespace: Option<&str>, name: &str) -> Self {
        let path = match namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        };
        Self { kind, path }
    }

    /// Returns its namespace.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.path.split_once('/').map(|(namespace, _)| namespace)
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &str {
        self.path.split_once('/').map_or(self.path.as_str(), |(_, name)| name)
    }

    /// Returns its path, which no other object of its kind has.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

impl Store {
    /// Returns an empty store, at version 1.
    pub(crate) fn new() -> Self {
        Self { objects: BTreeMap::new(), revision: 1, compacted: 0, log: Vec::new(), shown: BTreeMap::new() }
    }

    /// Returns the version of the last change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the version up to which changes are forgotten.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Forgets all changes up to now. They stay for watches under way, for which the API server has them in memory.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.revision;
    }

    /// Returns an object.
    pub(crate) fn get(&self, id: &Id) -> Option<&Arc<Value>> {
        self.objects.get(id)
    }

    /// Returns the objects of a kind, in their order.
    pub(crate) fn of(&self, kind: usize) -> impl Iterator<Item = (&Id, &Arc<Value>)> {
        let first = Id { kind, path: String::new() };
        self.objects.range(first..).take_while(move |(id, _)| id.kind == kind)
    }

    /// Returns all objects.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Id, &Arc<Value>)> {
        self.objects.iter()
    }

    /// Returns the objects of a kind as they were at a version.
    pub(crate) fn as_of(&self, kind: usize, revision: u64) -> BTreeMap<Id, Arc<Value>> {
        let mut objects: BTreeMap<Id, Arc<Value>> =
            self.of(kind).map(|(id, object)| (id.clone(), Arc::clone(object))).collect();
        let undone = self.log.iter().rev().take_while(|change| change.revision > revision);
        for Change { id, old, .. } in undone.filter(|change| change.id.kind == kind) {
            match old {
                Some(old) => objects.insert(id.clone(), Arc::clone(old)),
                None => objects.remove(id),
            };
        }
        objects
    }

    /// Returns the last version of a kind that watches show by now.
    pub(crate) fn seen(&self, kind: usize, now: Instant) -> u64 {
        let hidden = self.log.iter().find(|change| change.id.kind == kind && change.visible > now);
        hidden.map_or(self.revision, |change| change.revision.saturating_sub(1))
    }

    /// Returns the first change of a kind after a version.
    pub(crate) fn after(&self, kind: usize, revision: u64) -> Option<&Change> {
        let from = self.log.partition_point(|change| change.revision <= revision);
        self.log.get(from..)?.iter().find(|change| change.id.kind == kind)
    }

    /// Stores an object, or removes it if `new` is `None`, and returns it with its new version; a removed object as
    /// it was `last`. The change is shown at `visible` at the earliest.
    pub(crate) fn commit(&mut self, id: &Id, new: Option<Value>, last: &Value, visible: Instant) -> Arc<Value> {
        self.revision += 1;
        let mut shown = new.as_ref().unwrap_or(last).clone();
        if let Some(metadata) = shown.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), self.revision.to_string().into());
        }
        let shown = Arc::new(shown);
        let new = new.map(|_| Arc::clone(&shown));
        let old = match &new {
            Some(new) => self.objects.insert(id.clone(), Arc::clone(new)),
            None => self.objects.remove(id),
        };
        let latest = self.shown.entry(id.kind).or_insert(visible);
        *latest = visible.max(*latest);
        self.log.push(Change { revision: self.revision, id: id.clone(), old, new, visible: *latest });
        shown
    }
}

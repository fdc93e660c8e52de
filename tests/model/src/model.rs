//! Decides what a test can do with the model: be its client, act as other clients, and make things go wrong.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::fault::Fault;
use crate::kinds;
use crate::request::Asked;
use crate::rights::Denied;
use crate::server::{ModelService, Server};
use crate::store::Id;
use crate::watch::Cut;
use crate::world::World;

/// A model of the API server. A clone is another handle of the same one.
#[derive(Clone)]
pub struct Model(Arc<Server>);

/// Names a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Which<'a> {
    /// `v1`, `apps/v1`.
    pub api_version: &'a str,
    /// `Deployment`.
    pub kind: &'a str,
}

impl Model {
    /// Returns an API server with the built-in kinds of the model and the namespace `default`. All that would be
    /// random comes from the seed.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Server {
            world: Mutex::new(World::new(seed, Instant::now())),
            changed: Arc::new(Notify::new()),
            hook: Mutex::new(None),
            requests: Mutex::new(0),
        }))
    }

    /// Returns the tower service that answers requests.
    pub fn service(&self) -> ModelService {
        ModelService(Arc::clone(&self.0))
    }

    /// Returns a client. It is to be called on a runtime, which the client's requests then run on.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// Serves the kinds of a `CustomResourceDefinition`.
    pub fn install(&self, definition: &Value) {
        let mut world = self.0.world.lock();
        for kind in kinds::custom(definition) {
            world.add(kind);
        }
    }

    // === what goes wrong ===

    /// Asks `hook` about each request before it is carried out.
    pub fn on_request(&self, hook: impl FnMut(&Asked) -> Fault + Send + 'static) {
        *self.0.hook.lock() = Some(Box::new(hook));
    }

    /// Forgets all changes up to now: watches and lists that continue from an older version are answered 410.
    pub fn compact(&self) {
        self.with(|world, _| world.store.compact());
    }

    /// Cuts the watches of a kind, or of all kinds.
    pub fn cut_watches(&self, which: Option<Which<'_>>, cut: Cut) {
        self.with(|world, _| {
            let number = which.map(|which| world.number(which.api_version, which.kind));
            // A kind that is not known has no watches.
            if number != Some(None) {
                world.cut(number.flatten(), cut);
            }
        });
    }

    /// Shows changes of a kind later by `delay` from now on, in watches and in lists of the version 0. A later change
    /// is never shown before an earlier one, whatever its own delay.
    pub fn delay(&self, which: Which<'_>, delay: Duration) {
        self.kind(which, |world, number| world.set_delay(number, delay));
    }

    /// Serves a kind from now on, or does not. Its objects stay.
    pub fn serve(&self, which: Which<'_>, serves: bool) {
        self.kind(which, |world, number| world.serve(number, serves));
    }

    /// Forbids what `denied` says.
    pub fn forbid(&self, denied: Denied) {
        self.with(|world, _| world.rights.denied.push(denied));
    }

    /// Permits again what an equal `Denied` forbade.
    pub fn permit(&self, denied: &Denied) {
        self.with(|world, _| world.rights.denied.retain(|other| other != denied));
    }

    /// Answers all reviews of rights like this; `None` = with the truth.
    pub fn answer_reviews(&self, allowed: Option<bool>) {
        self.with(|world, _| world.rights.reviews = allowed);
    }

    // === others in the cluster ===

    /// Lets the garbage collector and the namespace controller do what is due by now, and returns the number of
    /// objects changed.
    pub fn collect_garbage(&self) -> usize {
        self.with(World::collect_garbage)
    }

    /// Stores an object without checking any rule, new or in the place of another, and returns it as stored; `None`
    /// if its kind is not known.
    pub fn put(&self, object: &Value) -> Option<Value> {
        self.with(|world, now| world.put(object, now))
    }

    /// Changes an object, its status included, as the field manager `actor`. Returns true if it exists and this
    /// changed it.
    pub fn edit(&self, which: Which<'_>, namespace: Option<&str>, name: &str, change: impl FnOnce(&mut Value)) -> bool {
        self.object_of(which, namespace, name, |world, id, now| world.edit(id, now, change)).unwrap_or_default()
    }

    /// Deletes an object, as far as its finalizers allow. Returns true if it existed.
    pub fn delete(&self, which: Which<'_>, namespace: Option<&str>, name: &str) -> bool {
        self.object_of(which, namespace, name, World::remove).unwrap_or_default()
    }

    // === what is there ===

    /// Returns an object.
    pub fn object(&self, which: Which<'_>, namespace: Option<&str>, name: &str) -> Option<Value> {
        self.object_of(which, namespace, name, |world, id, _| {
            world.store.get(id).map(|object| object.as_ref().clone())
        })?
    }

    /// Returns all objects of a kind, by namespace and name.
    pub fn objects(&self, which: Which<'_>) -> Vec<Arc<Value>> {
        self.with(|world, _| world.objects(which.api_version, which.kind))
    }

    /// Returns all objects there are, by kind, namespace and name.
    pub fn all(&self) -> Vec<Arc<Value>> {
        self.with(|world, _| world.store.all().map(|(_, object)| Arc::clone(object)).collect())
    }

    /// Returns the version of the last change.
    pub fn revision(&self) -> u64 {
        self.with(|world, _| world.store.revision())
    }

    /// Returns how many requests there were.
    pub fn requests(&self) -> u64 {
        *self.0.requests.lock()
    }

    fn with<T>(&self, act: impl FnOnce(&mut World, Instant) -> T) -> T {
        let result = act(&mut self.0.world.lock(), Instant::now());
        self.0.changed.notify_waiters();
        result
    }

    fn kind(&self, which: Which<'_>, act: impl FnOnce(&mut World, usize)) {
        self.with(|world, _| {
            if let Some(number) = world.number(which.api_version, which.kind) {
                act(world, number);
            }
        });
    }

    fn object_of<T>(
        &self,
        which: Which<'_>,
        namespace: Option<&str>,
        name: &str,
        act: impl FnOnce(&mut World, &Id, Instant) -> T,
    ) -> Option<T> {
        self.with(|world, now| {
            let id = world.find(which.api_version, which.kind, namespace, name)?;
            Some(act(world, &id, now))
        })
    }
}

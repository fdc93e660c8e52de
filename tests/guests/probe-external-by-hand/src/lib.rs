//! Writes a thing on an HTTP server itself, or has a standalone workflow run that does: the test guest of scenarios about what components do by
//! hand outside of the cluster. Its spec is in `README.md`.
#![cfg(target_arch = "wasm32")]

use capstan_guest::operations::{self, ObjectRef};
use capstan_guest::{
    Cleaner, Created, Deletion, Dependents, External, Json, Reconciler, Result, Update, cache, context,
    resource_pollers, sources, workflow,
};
use serde_json::{Value, json};
use shop::{Probe, Thing};
use wasip2::http::types::Method;

#[path = "../../probe-external/src/shop.rs"]
mod shop;

/// The source of things, and the dependent that is one.
const THINGS: &str = "things";
const THING: &str = "thing";
/// The standalone workflow.
const ALONE: &str = "alone";

struct Prober;

impl Reconciler for Prober {
    type Primary = Probe;

    fn reconcile(probe: &Probe) -> Result<Update> {
        if is_standalone()? {
            workflow::standalone(ALONE).reconcile()?;
        } else {
            probe.put()?;
        }
        let things: Vec<Thing> = cache::source(THINGS).related().all()?;
        let seen: Vec<Value> = things.into_iter().map(|thing| thing.data).collect();
        Ok(Update::status(json!({ "seen": seen })))
    }
}

impl Cleaner for Prober {
    type Primary = Probe;

    fn cleanup(probe: &Probe) -> Result<Deletion> {
        if is_standalone()? {
            workflow::standalone(ALONE).cleanup()?;
        } else if let Some(thing) = cache::source(THINGS).one::<Thing>()? {
            let id = probe.remove(&thing)?;
            sources::forget(THINGS, &id)?;
            operations::remove(&ObjectRef::of(&probe.map(&id))?)?;
        }
        Ok(Deletion::remove_finalizer())
    }
}

impl Dependents for Prober {
    type Primary = Probe;

    fn desired(name: &str, probe: &Probe) -> Result<Json> {
        Json::of(&probe.thing(name, &probe.spec.data[name]))
    }
}

impl External for Prober {
    type Primary = Probe;

    fn create_external(_: &str, desired: &Json, probe: &Probe) -> Result<Created> {
        let thing = probe.make(&desired.parse()?)?;
        Created::new(&thing)?.state(probe.map(thing.id()?))
    }

    fn update_external(_: &str, actual: &Json, desired: &Json, probe: &Probe) -> Result<Json> {
        Json::of(&probe.replace(&actual.parse()?, &desired.parse()?)?)
    }

    fn remove_external(_: &str, actual: &Json, probe: &Probe) -> Result<()> {
        probe.remove(&actual.parse()?).map(drop)
    }
}

#[resource_pollers]
impl Prober {
    fn things(probe: &Probe) -> Result<Vec<Thing>> {
        let maps: Vec<Value> = cache::kind("v1", "ConfigMap").related().all()?;
        probe.those(maps.iter().filter_map(|map| map["data"]["id"].as_str().map(str::to_owned)))
    }
}

capstan_guest::export!(Prober: Reconciler, Cleaner, Dependents, External, ResourcePollers);

fn is_standalone() -> Result<bool> {
    let settings: Value = context::settings()?;
    Ok(settings.pointer(&format!("/controller/standalone/{ALONE}")).is_some())
}

impl Probe {
    /// Makes the thing, or puts it right, and tells the source of it.
    fn put(&self) -> Result<()> {
        let wanted = self.thing(THING, &self.spec.data[THING]);
        match cache::source(THINGS).one::<Thing>()? {
            None => {
                let made = self.make(&wanted)?;
                operations::create(&self.map(made.id()?))?;
                sources::remember(THINGS, &made, None)
            }
            Some(thing) if thing.data != wanted.data => {
                let now = self.replace(&thing, &wanted)?;
                sources::remember(THINGS, &now, Some(&thing))
            }
            Some(_) => Ok(()),
        }
    }

    fn make(&self, thing: &Thing) -> Result<Thing> {
        let made = self.send(&Method::Post, "/things", Json::of(thing)?.as_str())?;
        Ok(serde_json::from_str(&made.ok_or("the server has no things")?)?)
    }

    fn replace(&self, actual: &Thing, desired: &Thing) -> Result<Thing> {
        let path = format!("/things/{}", actual.id()?);
        let now = self.send(&Method::Put, &path, Json::of(desired)?.as_str())?;
        Ok(serde_json::from_str(&now.ok_or("it is gone")?)?)
    }

    /// Removes a thing, and returns its id.
    fn remove(&self, thing: &Thing) -> Result<String> {
        let id = thing.id()?;
        self.send(&Method::Delete, &format!("/things/{id}"), "")?;
        Ok(id.to_owned())
    }

    /// Returns the config map that remembers an id.
    fn map(&self, id: &str) -> Value {
        let name = &self.metadata.name;
        let owner =
            json!({ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "name": name, "uid": self.metadata.uid });
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": self.metadata.namespace, "ownerReferences": [owner] },
            "data": { "id": id },
        })
    }
}

impl Thing {
    fn id(&self) -> Result<&str> {
        Ok(self.id.as_deref().ok_or("no id")?)
    }
}

//! Has dependents on an HTTP server: the test guest of scenarios about what is outside of the cluster. Its spec is in `README.md`.
#![cfg(target_arch = "wasm32")]

use capstan_guest::{
    Bulks, Created, Dependents, External, Json, Reconciler, Result, Update, cache, context, resource_pollers,
};
use serde_json::{Map, Value, json};
use shop::{Probe, Thing};
use wasip2::http::types::Method;

mod shop;

struct Prober;

impl Reconciler for Prober {
    type Primary = Probe;

    fn reconcile(probe: &Probe) -> Result<Update> {
        let mut status = Map::new();
        let mut seen = Map::new();
        for name in probe.spec.data.keys() {
            let things: Vec<Thing> = cache::source(name).related().all()?;
            if let Some(id) = things.iter().find(|thing| thing.name == "thing").and_then(|thing| thing.id.as_ref()) {
                status.insert("id".to_owned(), json!(id));
            }
            seen.insert(name.clone(), things.into_iter().map(|thing| thing.data).collect());
        }
        status.insert("seen".to_owned(), seen.into());
        Ok(Update::status(status))
    }
}

impl Dependents for Prober {
    type Primary = Probe;

    fn desired(name: &str, probe: &Probe) -> Result<Json> {
        Json::of(&probe.thing(name, &probe.spec.data[name]))
    }
}

impl Bulks for Prober {
    type Primary = Probe;

    fn desired_set(name: &str, probe: &Probe) -> Result<Vec<Json>> {
        let all = probe.spec.data[name].as_object().ok_or("no map")?;
        all.iter().map(|(name, data)| Json::of(&probe.thing(name, data))).collect()
    }
}

impl External for Prober {
    type Primary = Probe;

    fn create_external(name: &str, desired: &Json, probe: &Probe) -> Result<Created> {
        let made = probe.send(&Method::Post, "/things", desired.as_str())?.ok_or("the server has no things")?;
        let thing: Thing = serde_json::from_str(&made)?;
        let created = Created::new(&thing)?;
        let settings: Value = context::settings()?;
        let at = format!("/controller/workflow/dependents/{name}/external/state");
        if settings.pointer(&at).is_none_or(Value::is_null) {
            return Ok(created);
        }
        let map = format!("{}-{}", probe.metadata.name, thing.name);
        created.state(json!({ "metadata": { "name": map }, "data": { "id": thing.id } }))
    }

    fn update_external(_: &str, actual: &Json, desired: &Json, probe: &Probe) -> Result<Json> {
        let Thing { id, .. } = actual.parse()?;
        let path = format!("/things/{}", id.ok_or("no id")?);
        let now = probe.send(&Method::Put, &path, desired.as_str())?.ok_or("it is gone")?;
        Json::of(&serde_json::from_str::<Thing>(&now)?)
    }

    fn remove_external(_: &str, actual: &Json, probe: &Probe) -> Result<()> {
        let Thing { id, .. } = actual.parse()?;
        probe.send(&Method::Delete, &format!("/things/{}", id.ok_or("no id")?), "").map(drop)
    }
}

#[resource_pollers]
impl Prober {
    fn owned(probe: &Probe) -> Result<Vec<Thing>> {
        let all = probe.send(&Method::Get, &format!("/things?owner={}", probe.metadata.uid), "")?;
        Ok(all.map(|all| serde_json::from_str(&all)).transpose()?.unwrap_or_default())
    }

    fn in_status(probe: &Probe) -> Result<Vec<Thing>> {
        probe.those(probe.status.id.iter().cloned())
    }

    fn in_state(probe: &Probe) -> Result<Vec<Thing>> {
        let maps: Vec<Value> = cache::kind("v1", "ConfigMap").related().all()?;
        probe.those(maps.iter().filter_map(|map| map["data"]["id"].as_str().map(str::to_owned)))
    }
}

capstan_guest::export!(Prober: Reconciler, Dependents, Bulks, External, ResourcePollers);

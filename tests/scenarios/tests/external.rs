//! Dependents outside of the cluster: things on a server, which the component writes and a source reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::wait;
use parking_lot::Mutex;
use scenarios::{Daemon, Place, SOON};
use serde_json::{Value, json};

use crate::web;

/// A server with things.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<Stock>>);

#[derive(Default)]
struct Stock {
    things: BTreeMap<String, Value>,
    made: u32,
    polls: u32,
    /// The requests that it refuses.
    refuses: BTreeSet<&'static str>,
    refused: u32,
    /// The requests that have changed something, in order: method, and name of the thing.
    log: Vec<String>,
}

impl Shop {
    /// Opens it, and returns its address.
    fn open(&self) -> String {
        let shop = self.clone();
        let port = web::serve(move |method, path, body| shop.answer(method, path, &body));
        format!("http://127.0.0.1:{port}")
    }

    fn answer(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stock = self.0.lock();
        let stock = &mut *stock;
        if stock.refuses.contains(method) {
            stock.refused += 1;
            return (503, "closed".to_owned());
        }
        let id = path.strip_prefix("/things/").unwrap_or_default().to_owned();
        let found = |thing: Option<&Value>| thing.map_or((404, String::new()), |thing| (200, thing.to_string()));
        let name =
            |thing: Option<&Value>| thing.map_or_else(String::new, |thing| thing["name"].as_str().unwrap().to_owned());
        match (method, &*id) {
            ("GET", "") => {
                stock.polls += 1;
                let owner = path.strip_prefix("/things?owner=").unwrap_or_default();
                let theirs: Vec<_> = stock.things.values().filter(|thing| thing["owner"] == owner).collect();
                (200, json!(theirs).to_string())
            }
            ("GET", id) => {
                stock.polls += 1;
                found(stock.things.get(id))
            }
            ("POST", _) => {
                stock.made += 1;
                let mut thing: Value = serde_json::from_str(body).unwrap();
                thing["id"] = json!(stock.made.to_string());
                stock.log.push(format!("POST {}", name(Some(&thing))));
                stock.things.insert(stock.made.to_string(), thing.clone());
                (200, thing.to_string())
            }
            ("PUT", id) => {
                let mut thing: Value = serde_json::from_str(body).unwrap();
                thing["id"] = json!(id);
                stock.log.push(format!("PUT {}", name(Some(&thing))));
                stock.things.insert(id.to_owned(), thing.clone());
                (200, thing.to_string())
            }
            ("DELETE", id) => {
                let thing = stock.things.remove(id);
                stock.log.push(format!("DELETE {}", name(thing.as_ref())));
                found(thing.as_ref())
            }
            _ => (400, String::new()),
        }
    }

    /// Returns the data of its things, by their names.
    fn data(&self) -> BTreeMap<String, Value> {
        let stock = self.0.lock();
        stock.things.values().map(|thing| (thing["name"].as_str().unwrap().to_owned(), thing["data"].clone())).collect()
    }

    /// Waits until there are these things, once each.
    fn await_data(&self, expected: Value) {
        let wanted: BTreeMap<String, Value> = serde_json::from_value(expected).unwrap();
        let is =
            || if self.data() == wanted && self.count() == wanted.len() { Ok(()) } else { Err(json!(self.data())) };
        wait::until_ok(SOON, "the things", is).unwrap();
    }

    fn count(&self) -> usize {
        self.0.lock().things.len()
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().log)
    }

    fn refuse(&self, methods: &[&'static str]) {
        self.0.lock().refuses = methods.iter().copied().collect();
    }

    /// Waits until it has been polled so many times more.
    fn await_polls(&self, more: u32) {
        let polls = || self.0.lock().polls;
        let then = polls() + more;
        wait::until(SOON, "polls", || (polls() >= then).then_some(())).unwrap();
    }

    /// Waits until it has refused so many requests more.
    fn await_refusals(&self, more: u32) {
        let refused = || self.0.lock().refused;
        let then = refused() + more;
        wait::until(SOON, "refusals", || (refused() >= then).then_some(())).unwrap();
    }
}

/// A place with a shop.
struct Street {
    place: Place,
    shop: Shop,
    url: String,
}

impl Street {
    fn new(prefix: &str) -> Self {
        let shop = Shop::default();
        let url = shop.open();
        Self { place: Place::new(prefix), shop, url }
    }

    fn daemon(&self, fields: &str) -> Daemon {
        self.place.daemon(&self.manifest(fields))
    }

    fn manifest(&self, fields: &str) -> String {
        self.manifest_of("probe-external", "", fields)
    }

    fn manifest_of(&self, guest: &str, capabilities: &str, fields: &str) -> String {
        let plugin = format!("capabilities: {{ http: [\"{}\"]{capabilities} }}\n", self.url);
        let retry = "retry: { initialInterval: 200ms, multiplier: 1, maxAttempts: unlimited }\nrateLimit: none\n";
        let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
        self.place.manifest(guest, primary, &plugin, &format!("{retry}{fields}"))
    }

    fn probe(&self, name: &str, data: Value) {
        self.place.probe(name, self.spec(data));
    }

    fn change(&self, name: &str, data: Value) {
        self.place.merge(&self.place.probes(), name, &json!({ "spec": self.spec(data) }));
    }

    fn spec(&self, data: Value) -> Value {
        json!({ "url": self.url, "data": data })
    }

    fn status(&self, name: &str) -> Value {
        self.place.find(&self.place.probes(), name).unwrap()["status"].clone()
    }

    fn delete(&self, name: &str) {
        self.place.delete(&self.place.probes(), name);
    }

    fn await_gone(&self, name: &str) {
        self.place.await_gone(&self.place.probes(), name);
    }
}

fn polled(source: &str, more: &str, dependents: &str) -> String {
    format!(
        "sources: {{ {source}: {{ pollEach: {{ every: 300ms, id: /id{more} }} }} }}\nworkflow: {{ dependents: {{ {dependents} }} }}\n"
    )
}

fn thing(source: &str, more: &str) -> String {
    format!("thing: {{ external: {{ source: {source}{more} }} }}")
}

#[test]
fn a_dependent_outside_of_the_cluster_is_created_put_right_and_removed_with_its_primary() {
    // XD-1, XD-4, DR-4, DR-5
    let street = Street::new("external");
    let daemon = street.daemon(&polled("owned", "", &thing("owned", "")));
    street.probe("p", json!({ "thing": "first" }));
    street.shop.await_data(json!({ "thing": "first" }));
    let probe =
        street.place.await_object(&street.place.probes(), "p", "the status", |probe| probe["status"]["id"] == "1");
    assert_eq!(probe["status"]["seen"], json!({ "thing": ["first"] }), "the run that creates it reads it");
    let finalizers = probe["metadata"]["finalizers"].as_array().unwrap();
    assert_eq!(finalizers.len(), 1, "{finalizers:?}");
    street.shop.await_polls(3);
    assert_eq!(street.shop.log(), ["POST thing"], "nothing differs");
    street.change("p", json!({ "thing": "second" }));
    street.shop.await_data(json!({ "thing": "second" }));
    street.shop.0.lock().things.get_mut("1").unwrap()["data"] = json!("other");
    street.shop.await_data(json!({ "thing": "second" }));
    street.shop.0.lock().things.clear();
    street.shop.await_data(json!({ "thing": "second" }));
    assert_eq!(street.shop.log(), ["PUT thing", "PUT thing", "POST thing"]);
    street.delete("p");
    street.await_gone("p");
    assert_eq!((street.shop.count(), street.shop.log()), (0, vec!["DELETE thing".to_owned()]));
    assert_eq!(daemon.count("capstan_callback_failures_total", "poller"), 0);
}

#[test]
fn while_the_other_side_is_away_nothing_is_taken_for_absent_and_what_can_not_be_removed_keeps_its_primary() {
    // XD-1, XD-2
    let street = Street::new("external-away");
    street.shop.refuse(&["GET", "POST", "DELETE"]);
    let _daemon = street.daemon(&polled("owned", "", &thing("owned", "")));
    street.probe("p", json!({ "thing": "x" }));
    street.shop.await_refusals(4);
    assert_eq!(street.shop.log(), Vec::<String>::new(), "nobody knows whether there is one");
    street.shop.refuse(&["POST"]);
    street.shop.await_refusals(3);
    street.shop.refuse(&["DELETE"]);
    street.shop.await_data(json!({ "thing": "x" }));
    assert_eq!(street.shop.log(), ["POST thing"]);
    street.delete("p");
    street.shop.await_refusals(3);
    assert!(street.place.find(&street.place.probes(), "p").is_some(), "its finalizer stays");
    street.shop.refuse(&[]);
    street.await_gone("p");
    assert_eq!((street.shop.count(), street.shop.log()), (0, vec!["DELETE thing".to_owned()]));
}

#[test]
fn a_daemon_that_starts_again_finds_what_it_has_made() {
    // XD-1: and of one that is gone already, its absence is a success.
    let street = Street::new("external-again");
    let fields = polled("owned", "", &thing("owned", ""));
    let daemon = street.daemon(&fields);
    street.probe("p", json!({ "thing": "x" }));
    street.shop.await_data(json!({ "thing": "x" }));
    daemon.await_quiet();
    drop(daemon);
    assert_eq!(street.shop.log(), ["POST thing"]);
    let _daemon = street.daemon(&fields);
    street.shop.await_polls(3);
    assert_eq!(street.shop.log(), Vec::<String>::new());
    street.shop.0.lock().things.clear();
    street.delete("p");
    street.await_gone("p");
    assert!(!street.shop.log().contains(&"DELETE thing".to_owned()));
}

#[test]
fn s110_two_dependents_share_a_source_and_are_told_apart_by_a_key() {
    // XD-1
    let street = Street::new("s110");
    let one = |name: &str| format!("{name}: {{ external: {{ source: owned, key: {{ cel: thing.name }} }} }}");
    let _daemon = street.daemon(&polled("owned", "", &format!("{}, {}", one("thing"), one("other"))));
    street.probe("p", json!({ "thing": "val", "other": "val" }));
    street.shop.await_data(json!({ "thing": "val", "other": "val" }));
    street.change("p", json!({ "thing": "updated-val", "other": "updated-val" }));
    street.shop.await_data(json!({ "thing": "updated-val", "other": "updated-val" }));
    let seen = json!({ "thing": ["updated-val"], "other": ["updated-val"] });
    let sees = |probe: &Value| probe["status"]["seen"] == seen;
    street.place.await_object(&street.place.probes(), "p", "one thing of each", sees);
    street.delete("p");
    street.await_gone("p");
    assert_eq!(street.shop.count(), 0);
}

#[test]
fn s085_as_many_things_outside_of_the_cluster_as_the_primary_says() {
    // BD-1, BD-3
    let street = Street::new("s085");
    let many = "many: { external: { source: owned, key: { cel: thing.name } }, bulk: true }";
    let _daemon = street.daemon(&polled("owned", "", many));
    let set = |names: &[&str], data: &str| {
        let all: serde_json::Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), json!(data))).collect();
        Value::Object(all)
    };
    let steps: [&[&str]; 3] = [&["0", "1", "2"], &["0"], &["0", "1", "2", "3", "4"]];
    street.probe("p", json!({ "many": set(steps[0], "x") }));
    street.shop.await_data(set(steps[0], "x"));
    street.change("p", json!({ "many": set(steps[0], "changed") }));
    street.shop.await_data(set(steps[0], "changed"));
    // A merge patch takes a name away by null.
    street.change("p", json!({ "many": { "1": null, "2": null } }));
    street.shop.await_data(set(steps[1], "changed"));
    street.change("p", json!({ "many": set(steps[2], "changed") }));
    street.shop.await_data(set(steps[2], "changed"));
    street.shop.await_polls(2);
    let log = street.shop.log();
    let posts = log.iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!((log.len(), posts), (3 + 3 + 2 + 4, 7), "{log:?}");
    street.delete("p");
    street.await_gone("p");
    assert_eq!(street.shop.count(), 0);
}

#[test]
fn s159_a_dependent_outside_of_the_cluster_keeps_its_id_in_the_status() {
    // XD-3
    let street = Street::new("s159");
    let when = ", when: { cel: \"has(primary.status) && has(primary.status.id)\" }";
    let _daemon = street.daemon(&polled("in-status", when, &thing("in-status", "")));
    street.probe("p", json!({ "thing": "first" }));
    let probe =
        street.place.await_object(&street.place.probes(), "p", "the id", |probe| probe["status"]["id"].is_string());
    assert_eq!(probe["status"]["id"], "1");
    street.shop.await_polls(3);
    assert_eq!(street.shop.log(), ["POST thing"], "exactly one");
    street.change("p", json!({ "thing": "second" }));
    street.shop.await_data(json!({ "thing": "second" }));
    assert_eq!(street.status("p")["id"], "1");
    street.delete("p");
    street.await_gone("p");
    assert_eq!(street.shop.count(), 0);
}

#[test]
fn s098_a_dependent_outside_of_the_cluster_keeps_its_id_in_an_object() {
    // XD-2
    let street = Street::new("s098");
    let fields = polled("in-state", "", &thing("in-state", ", state: { apiVersion: v1, kind: ConfigMap }"));
    let daemon = street.daemon(&fields);
    street.probe("p", json!({ "thing": "first" }));
    street.shop.await_data(json!({ "thing": "first" }));
    let maps = street.place.config_maps();
    let map = street.place.await_object(&maps, "p-thing", "the id", |map| map["data"]["id"] == "1");
    assert_eq!(map["metadata"]["ownerReferences"][0]["name"], "p");
    street.shop.await_polls(3);
    street.change("p", json!({ "thing": "second" }));
    street.shop.await_data(json!({ "thing": "second" }));
    assert_eq!(street.shop.log(), ["POST thing", "PUT thing"]);
    // What is read when the daemon starts is found by the object alone.
    daemon.await_quiet();
    drop(daemon);
    let _daemon = street.daemon(&fields);
    street.shop.await_polls(3);
    assert_eq!(street.shop.log(), Vec::<String>::new());
    street.delete("p");
    street.await_gone("p");
    assert_eq!(street.shop.count(), 0);
    assert!(street.place.find(&maps, "p-thing").is_none());
}

#[test]
fn of_many_things_each_has_an_object_that_remembers_it_until_it_is_gone() {
    // BD-4
    let street = Street::new("external-states");
    let many = "many: { external: { source: in-state, key: { cel: thing.name }, state: { apiVersion: v1, kind: ConfigMap } }, bulk: true }";
    let _daemon = street.daemon(&polled("in-state", "", many));
    street.probe("p", json!({ "many": { "a": 1, "b": 2 } }));
    street.shop.await_data(json!({ "a": 1, "b": 2 }));
    let maps = street.place.config_maps();
    street.place.await_object(&maps, "p-a", "its object", |map| map["data"]["id"] == "1");
    street.place.await_object(&maps, "p-b", "its object", |map| map["data"]["id"] == "2");
    street.shop.refuse(&["DELETE"]);
    street.change("p", json!({ "many": { "a": null } }));
    street.shop.await_refusals(2);
    assert_eq!(street.place.find(&maps, "p-a").unwrap()["data"]["id"], "1", "what remembers it stays");
    street.shop.refuse(&[]);
    street.shop.await_data(json!({ "b": 2 }));
    street.place.await_gone(&maps, "p-a");
    street.delete("p");
    street.await_gone("p");
    assert_eq!(street.shop.count(), 0);
    street.place.await_gone(&maps, "p-b");
    wait::until(Duration::from_secs(1), "the log", || (!street.shop.log().is_empty()).then_some(())).unwrap();
}

/// Has a component write a thing and the config map that remembers its id by hand, with these fields of its manifest.
fn by_hand(prefix: &str, capabilities: &str, fields: &str) {
    let street = Street::new(prefix);
    let manifest = street.manifest_of("probe-external-by-hand", capabilities, fields);
    let daemon = street.place.daemon(&manifest);
    let maps = street.place.config_maps();
    street.probe("p", json!({ "thing": "first" }));
    street.shop.await_data(json!({ "thing": "first" }));
    street.place.await_object(&maps, "p", "the id", |map| map["data"]["id"] == "1");
    let sees = |data: &str| {
        let seen = json!([data]);
        street.place.await_object(&street.place.probes(), "p", data, |probe| probe["status"]["seen"] == seen);
    };
    sees("first");
    street.shop.await_polls(3);
    assert_eq!(street.shop.log(), ["POST thing"]);
    daemon.await_quiet();
    assert_eq!(daemon.runs_of("p"), 2, "after the finalizer, the run that makes it reads it");
    street.change("p", json!({ "thing": "second" }));
    street.shop.await_data(json!({ "thing": "second" }));
    sees("second");
    street.shop.await_polls(3);
    assert_eq!(street.shop.log(), ["PUT thing"]);
    // The config map is all that leads to the thing for a daemon that starts.
    daemon.await_quiet();
    drop(daemon);
    let _daemon = street.place.daemon(&manifest);
    street.shop.await_polls(3);
    assert_eq!(street.shop.log(), Vec::<String>::new());
    street.delete("p");
    street.await_gone("p");
    assert_eq!((street.shop.count(), street.shop.log()), (0, vec!["DELETE thing".to_owned()]));
    street.place.await_gone(&maps, "p");
}

#[test]
fn s099_a_component_writes_what_is_outside_of_the_cluster_itself() {
    // XD-5, ES-2
    let grant = ", kubernetes: [{ apiVersion: v1, kind: ConfigMap, verbs: [create, delete] }]";
    let sources = "sources:
  maps: { informer: { apiVersion: v1, kind: ConfigMap, startPriority: 1 } }
  things: { pollEach: { every: 300ms, id: /id } }
";
    by_hand("s099", grant, sources);
}

#[test]
fn s099_a_component_has_a_standalone_workflow_write_what_is_outside_of_the_cluster() {
    // XD-5, WF-2
    let fields = "sources: { things: { pollEach: { every: 300ms, id: /id } } }
standalone: { alone: { dependents: { thing: { external: { source: things, state: { apiVersion: v1, kind: ConfigMap } } } } } }
";
    by_hand("s099-alone", "", fields);
}

//! Holds the model's garbage collector to the real one: after each operation on a graph of owners, the same is left.

use std::fmt::Write as _;
use std::time::Duration;

use model::Model;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::chance::Chance;
use crate::side::Side;

/// How many graphs there are, how many objects each has, and what is done to it.
pub(crate) const GRAPHS: u64 = 24;
const OBJECTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const OPERATIONS: usize = 8;

/// How long the real garbage collector may take.
const LIMIT: Duration = Duration::from_secs(20);

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// An object as its owners and dependents see it: its name, finalizers and owners, and whether it is being deleted.
///
/// An object that is being deleted has only the owners that are still there: those that are gone are taken from it if
/// the garbage collector looks at it while another is there, and left if the last has gone by then, and it looks when it likes.
type Left = Vec<(String, Value)>;

/// Returns the first difference of a graph.
pub(crate) async fn difference(seed: u64, real: &Side, modelled: &Side, model: &Model, place: &str) -> Option<String> {
    let mut chance = Chance::new(seed);
    let path = format!("/api/v1/namespaces/{place}/configmaps");
    let mut done = String::new();
    for name in OBJECTS {
        let drawn = Drawn::new(&mut chance, name);
        for side in [real, modelled] {
            let object = drawn.object(side, &path).await;
            assert_eq!(side.send("POST", &path, JSON, &object).await.code, 201, "{object}");
        }
        writeln!(done, "  {drawn:?}").ok()?;
        while model.collect_garbage() > 0 {}
    }
    for at in 0..=OPERATIONS {
        let expected = left(modelled, &path).await;
        let found = settled(real, &path, &expected, &format!("sentinel-{at}")).await;
        if found != expected {
            return Some(format!("graph {seed}, after\n{done}    real:  {found:?}\n    model: {expected:?}"));
        }
        let name = chance.of(&OBJECTS);
        let (method, content, body) = if chance.once_in(3) {
            ("PATCH", MERGE, json!({ "metadata": { "finalizers": null } }))
        } else {
            let policy = chance.of(&["Background", "Foreground", "Orphan"]);
            ("DELETE", JSON, json!({ "propagationPolicy": policy }))
        };
        writeln!(done, "  {method} {name} {body}").ok()?;
        for side in [modelled, real] {
            side.send(method, &format!("{path}/{name}"), content, &body).await;
        }
        while model.collect_garbage() > 0 {}
    }
    None
}

/// An object as it is drawn.
#[derive(Debug)]
struct Drawn {
    name: &'static str,
    /// Its owners, and whether their deletion waits for it; an owner that is none of the objects does not exist.
    owners: Vec<(&'static str, bool)>,
    finalizer: bool,
}

impl Drawn {
    /// Draws an object, whose owners come before it: there are no circles.
    fn new(chance: &mut Chance, name: &'static str) -> Self {
        let before: Vec<&'static str> = OBJECTS.into_iter().take_while(|other| *other != name).collect();
        let mut owners: Vec<(&'static str, bool)> = Vec::new();
        for _ in 0..chance.below(3) {
            let owner = if before.is_empty() || chance.once_in(12) { "nobody" } else { chance.of(&before) };
            if owners.iter().all(|(other, _)| *other != owner) {
                owners.push((owner, chance.once_in(2)));
            }
        }
        Self { name, owners, finalizer: chance.once_in(3) }
    }

    /// Returns it with the uids that its owners have at an API server; one that is gone has none there.
    async fn object(&self, side: &Side, path: &str) -> Value {
        let mut references = Vec::new();
        for (owner, blocks) in &self.owners {
            let found = side.send("GET", &format!("{path}/{owner}"), "", &Value::Null).await.body;
            let uid = found["metadata"]["uid"].as_str().unwrap_or("00000000-0000-4000-8000-000000000000");
            references.push(
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": blocks }),
            );
        }
        let finalizers: &[&str] = if self.finalizer { &["example.com/x"] } else { &[] };
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": self.name, "ownerReferences": references, "finalizers": finalizers } })
    }
}

/// Returns what there is.
async fn left(side: &Side, path: &str) -> Left {
    let list = side.send("GET", path, "", &Value::Null).await.body;
    let items = list["items"].as_array().unwrap().iter().map(|item| &item["metadata"]);
    let items: Vec<&Value> =
        items.filter(|metadata| metadata["name"].as_str().is_some_and(|name| OBJECTS.contains(&name))).collect();
    let part = |metadata: &Value| {
        let deleting = metadata["deletionTimestamp"].is_string();
        let counts = |owner: &&Value| !deleting || items.iter().any(|item| item["uid"] == owner["uid"]);
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten().filter(counts);
        json!({
            "owners": owners.map(|owner| owner["name"].clone()).collect::<Vec<Value>>(),
            "finalizers": metadata["finalizers"],
            "deleting": deleting,
        })
    };
    items.iter().map(|metadata| (metadata["name"].as_str().unwrap().to_owned(), part(metadata))).collect()
}

/// Waits until the garbage collector has seen all that is there and has left what is expected, and returns what it has left.
async fn settled(side: &Side, path: &str, expected: &Left, sentinel: &str) -> Left {
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "00000000-0000-4000-8000-000000000000" });
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": sentinel, "ownerReferences": [owner] } });
    assert_eq!(side.send("POST", path, JSON, &object).await.code, 201);
    let end = Instant::now() + LIMIT;
    loop {
        let gone = side.send("GET", &format!("{path}/{sentinel}"), "", &Value::Null).await.code == 404;
        let found = left(side, path).await;
        if (gone && found == *expected) || Instant::now() > end {
            return found;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

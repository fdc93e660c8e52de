//! Holds the model to the real API server: the same operations have the same answers on both.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]

mod cases;
mod chance;
mod garbage;
mod known;
mod lists;
mod normal;
mod object;
mod operation;
mod refused;
mod side;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use cluster::{Cluster, Options, Tool};
use kube::config::{KubeConfigOptions, Kubeconfig};
use model::Model;
use serde_json::{Value, json};
use tokio::runtime;
use tokio::task::JoinSet;

use crate::chance::Chance;
use crate::known::{KNOWN, known};
use crate::operation::{Kind, draw};
use crate::side::{Answer, Side};

/// How many sequences there are that are the same each time, as many as are others each time, and how many operations each has.
const SEQUENCES: u64 = 24;
const OPERATIONS: usize = 60;

/// The folder of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// The kinds that both API servers get.
fn definitions() -> [PathBuf; 2] {
    [root().join("tests/model/tests/differential/thing.yaml"), root().join("tests/guests/probe/crd.yaml")]
}

fn install(model: &Model) {
    for path in definitions() {
        let text = std::fs::read_to_string(path).unwrap();
        for document in text.split("\n---\n") {
            model.install(&serde_yaml::from_str::<Value>(document).unwrap());
        }
    }
}

/// Returns both API servers, each with a new namespace of this name.
async fn places(namespace: &str, seed: u64, real: &kube::Client) -> ([Side; 2], Model) {
    let model = Model::new(seed);
    install(&model);
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    let sides = [real.clone(), model.client()].map(|client| Side::new(client, namespace));
    let made = sides[0].send("POST", "/api/v1/namespaces", "application/json", &object).await;
    assert_eq!(made.code, 201, "{}", made.body);
    model.put(&object).unwrap();
    (sides, model)
}

/// Returns the first difference of a sequence.
async fn difference(seed: u64, real: &kube::Client) -> Option<String> {
    let ([mut real, mut modelled], _) = places(&format!("sequence-{seed}"), seed, real).await;
    let from = [real.version().await, modelled.version().await];
    let mut chance = Chance::new(seed);
    // Few kinds, so that much happens to each object.
    let kinds = [chance.of(&Kind::ALL), chance.of(&Kind::ALL)];
    let mut before = Vec::new();
    for at in 0..OPERATIONS {
        let operation = draw(&mut chance, &kinds);
        if known(&operation).is_some() {
            continue;
        }
        let expected = real.carry_out(&operation).await;
        let found = modelled.carry_out(&operation).await;
        if expected != found {
            let [expected, found] = [expected, found]
                .map(|Answer { code, body, warned }| json!({ "code": code, "warned": warned, "body": body }));
            let before: Vec<String> =
                before.iter().filter(|line: &&String| line.contains(&operation.about())).cloned().collect();
            let before = before[before.len().saturating_sub(6)..].join("\n");
            return Some(format!(
                "seed {seed}, operation {at}, after\n{before}\n      {operation}\n{}",
                sides(&expected, &found)
            ));
        }
        before.push(format!("  {} {operation}", expected.code));
    }
    for kind in BTreeSet::from(kinds) {
        for selector in ["", "&labelSelector=x", "&fieldSelector=metadata.name%3Da"] {
            let expected = real.events(kind, &format!("resourceVersion={}{selector}", from[0]), 1).await;
            let found = modelled.events(kind, &format!("resourceVersion={}{selector}", from[1]), 1).await;
            if expected != found {
                let [expected, found] = [expected, found].map(Value::from);
                return Some(format!("seed {seed}: a watch of {kind:?}{selector}\n{}", sides(&expected, &found)));
            }
        }
        if let Some(found) = lists::difference(kind, &real, &modelled, &from).await {
            return Some(format!("seed {seed}: {found}"));
        }
    }
    None
}

/// Returns the parts in which two documents differ.
fn sides(real: &Value, modelled: &Value) -> String {
    let mut lines = Vec::new();
    parts("", real, modelled, &mut lines);
    lines.join("\n")
}

fn parts(path: &str, real: &Value, modelled: &Value, lines: &mut Vec<String>) {
    match (real, modelled) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let absent = json!("(absent)");
                let [a, b] = [a, b].map(|map| map.get(name).unwrap_or(&absent));
                parts(&format!("{path}.{name}"), a, b, lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                parts(&format!("{path}[{at}]"), a, b, lines);
            }
        }
        (a, b) if a != b => lines.push(format!("  {path}\n    real:  {a}\n    model: {b}")),
        _ => {}
    }
}

#[test]
#[ignore = "needs cluster (starts one of its own, without controllers that would take part)"]
fn the_same_operations_have_the_same_answers() {
    let options = Options { extras: BTreeSet::new(), manifests: definitions().to_vec(), ..Options::default() };
    let cluster = Cluster::start(&options).unwrap();
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let differences = runtime.block_on(differences(&cluster));
    let known = KNOWN.iter().map(|known| format!("  {}: {}", known.what, known.why));
    let known: Vec<String> = known.collect();
    assert!(
        differences.is_empty(),
        "{} differences:\n\n{}\n\nknown and left out:\n{}",
        differences.len(),
        differences.join("\n\n"),
        known.join("\n")
    );
}

#[test]
#[ignore = "needs cluster (starts one of its own, which soon forgets what has been)"]
fn what_is_left_of_owners_and_of_old_versions_is_the_same() {
    let options = Options {
        extras: BTreeSet::from([Tool::KubeControllerManager]),
        apiserver_flags: vec!["--etcd-compaction-interval=1s".to_owned()],
        controller_manager_flags: vec![
            "--controllers=garbage-collector-controller,serviceaccount-controller".to_owned(),
        ],
        ..Options::default()
    };
    let cluster = Cluster::start(&options).unwrap();
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let differences = runtime.block_on(async {
        let real = client(&cluster).await;
        let ([side, modelled], model) = places("old", 1, &real).await;
        let mut differences = lists::too_old(&side, &modelled, &model).await;
        let mut graphs = JoinSet::new();
        for seed in seeds(garbage::GRAPHS) {
            let real = real.clone();
            graphs.spawn(async move {
                let place = format!("graph-{seed}");
                let ([side, modelled], model) = places(&place, seed, &real).await;
                garbage::difference(seed, &side, &modelled, &model, &place).await
            });
        }
        while let Some(found) = graphs.join_next().await {
            differences.extend(found.unwrap());
        }
        differences
    });
    assert!(differences.is_empty(), "{} differences:\n\n{}", differences.len(), differences.join("\n\n"));
}

/// Returns a client that may do everything.
async fn client(cluster: &Cluster) -> kube::Client {
    let config = Kubeconfig::read_from(cluster.admin_kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// Returns the seeds that are asked for: `count` from 1 on, and so many others each time, unless the environment says otherwise.
fn seeds(count: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(first) = number("MODEL_SEED") {
        return (first..first + number("MODEL_SEEDS").unwrap_or(1)).collect();
    }
    let count = number("MODEL_SEEDS").unwrap_or(count);
    // Names of namespaces have them.
    let fresh = 1_000_000 + RandomState::new().hash_one(()) % 1_000_000_000;
    (1..=count).chain(fresh..fresh + count).collect()
}

async fn differences(cluster: &Cluster) -> Vec<String> {
    let real = client(cluster).await;
    let ([side, modelled], _) = places("cases", 1, &real).await;
    let mut differences = cases::differences(&side, &modelled, "cases").await;
    let ([side, modelled], _) = places("lists", 1, &real).await;
    differences.extend(lists::changing(&side, &modelled).await);
    let ([side, modelled], model) = places("forbidden", 1, &real).await;
    differences.extend(refused::forbidden(&side, &modelled, &model).await);
    let ([side, modelled], model) = places("unserved", 1, &real).await;
    differences.extend(refused::unserved(&side, &modelled, &model).await);
    // Each has a namespace of its own, so they don't meet.
    let mut sequences = JoinSet::new();
    for seed in seeds(SEQUENCES) {
        let real = real.clone();
        sequences.spawn(async move { difference(seed, &real).await });
    }
    while let Some(found) = sequences.join_next().await {
        differences.extend(found.unwrap());
    }
    differences
}

//! Decisions on documents, one per file: `golden/shares` and `golden/differences` say whether an object is as wanted, by the fields that we own
//! and without such a record; `golden/trees` whom a walk over a workflow visits, and what it comes to.
//!
//! `BLESS=1` writes what was decided into the files: all from the line `says:` on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};
use std::fs;
use std::path::{Path, PathBuf};

use capstan_core::budget::Budget;
use capstan_core::dependent::managed_fields::Part;
use capstan_core::dependent::{compare_applied, diff};
use capstan_core::guest::{MatchResult, NodeResult, Operation};
use capstan_core::manifest::GenericMatching;
use capstan_core::object::{Gvk, Managers, Object};
use capstan_core::workflow::graph::Graph;
use capstan_core::workflow::walk::Walk;
use capstan_core::workflow::{Mode, Outcome, Step, Task};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Compares what is decided on each file of a folder with what the file says at its end. `about` says what it shows.
fn decide<T: DeserializeOwned>(folder: &str, least: usize, decision: impl Fn(&T) -> Vec<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= least, "only {} cases", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let wrong = |error: &dyn Display| -> ! { panic!("{}: {error}", file.display()) };
        let mut fields: Map<String, Value> = serde_yaml::from_str(&text).unwrap_or_else(|error| wrong(&error));
        let (about, says) = (fields.remove("about").unwrap(), fields.remove("says").unwrap());
        let case = serde_json::from_value(fields.into()).unwrap_or_else(|error| wrong(&error));
        let found = decision(&case);
        if std::env::var_os("BLESS").is_some() {
            let case = text.split_once("says:\n").map_or(&*text, |(case, _)| case);
            let lines: Vec<_> = found.iter().map(|line| format!("- '{}'\n", line.replace('\'', "''"))).collect();
            fs::write(&file, format!("{case}says:\n{}", lines.concat())).unwrap();
        } else {
            assert_eq!(json!(found), says, "{}: {about}", file.display());
        }
    }
}

/// Returns what a comparison says.
fn said(result: &MatchResult) -> Vec<String> {
    match result {
        MatchResult::Matches => vec!["it matches".to_owned()],
        MatchResult::Differs(text) => text.lines().map(str::to_owned).collect(),
    }
}

/// An object, and what we own of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Share {
    /// The entries of managed fields, as `manager/operation`, each with what it owns.
    entries: Vec<(String, Value)>,
    desired: Value,
    actual: Value,
}

#[test]
fn an_object_matches_if_our_share_of_it_is_as_desired() {
    // SSA-1, SSA-2, SSA-3, SSA-4, SSA-5, SN-2
    decide("shares", 18, |case: &Share| {
        let Share { entries, desired, actual } = case;
        let kind = |tree: &Value, field: &str, other: &str| tree[field].as_str().unwrap_or(other).to_owned();
        let (version, kind) = (kind(actual, "apiVersion", "test.dev/v1"), kind(actual, "kind", "Thing"));
        let entry = |(who, owns): &(String, Value)| {
            let (manager, operation) = who.split_once('/').unwrap();
            let fields = json!({ "manager": manager, "operation": operation, "apiVersion": version });
            let more = json!({ "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": owns });
            fields.as_object().unwrap().clone().into_iter().chain(more.as_object().unwrap().clone()).collect::<Value>()
        };
        let mut tree = actual.clone();
        tree["apiVersion"] = json!(version);
        tree["kind"] = json!(kind);
        tree["metadata"]["name"] = json!("a");
        tree["metadata"]["managedFields"] = entries.iter().map(entry).collect();
        let gvk = Gvk::parse(&version, &kind).unwrap();
        let object = Object::parse(&tree.to_string(), &gvk, &Managers::new(["us"])).unwrap();
        match compare_applied(&object, desired, "us", Part::Object, &mut Budget::of_run()) {
            Ok(result) => said(&result),
            Err(error) => vec![format!("error: {error}")],
        }
    });
}

/// Two documents, and how strictly they are compared.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    desired: Value,
    actual: Value,
    /// `object`, or `status`.
    #[serde(default)]
    part: Option<String>,
    #[serde(default)]
    ignore: Vec<String>,
    #[serde(default)]
    strict_metadata: bool,
    #[serde(default)]
    equality: bool,
}

#[test]
fn an_object_matches_if_it_has_all_that_is_desired() {
    // GM-1, GM-2, GM-3, GM-4
    decide("differences", 18, |case: &Difference| {
        let Difference { desired, actual, part, ignore, strict_metadata, equality } = case;
        let budget = &mut Budget::of_run();
        let result = if part.as_deref() == Some("status") {
            diff::compare_status(actual, desired, ignore, budget)
        } else {
            let ignore = ignore.iter().map(|pointer| pointer.as_str().into()).collect();
            let flags = GenericMatching { ignore, strict_metadata: *strict_metadata, equality: *equality };
            diff::compare(actual, desired, &flags, budget)
        };
        said(&result)
    });
}

/// A workflow, and what becomes of its dependents.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tree {
    #[serde(default)]
    cleanup: bool,
    dependents: BTreeMap<String, Dependent>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dependent {
    #[serde(default)]
    after: BTreeSet<String>,
    #[serde(default)]
    fate: Fate,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Fate {
    #[default]
    Well,
    Unready,
    Unwanted,
    Inactive,
    Failing,
    Lingering,
}

#[test]
fn dependents_are_visited_as_the_tree_says() {
    // WF-4, WF-5, WF-6, WF-7, WF-8
    decide("trees", 20, Tree::walked);
}

impl Tree {
    /// Returns who is visited together, in which order, and what the whole comes to.
    fn walked(&self) -> Vec<String> {
        let names = |names: &BTreeSet<String>| names.iter().map(|name| name.as_str().into()).collect();
        let parents = self.dependents.iter().map(|(name, one)| (name.as_str().into(), names(&one.after)));
        let graph = Graph::new(&parents.collect()).unwrap();
        let mut walk = Walk::new(&graph, if self.cleanup { Mode::Cleanup } else { Mode::Reconcile });
        let mut lines = Vec::new();
        loop {
            let steps = walk.ready();
            if steps.is_empty() {
                let result = walk.result();
                lines.extend(result.nodes.iter().map(told));
                lines.push(if result.complete { "complete" } else { "not complete" }.to_owned());
                return lines;
            }
            lines.push(steps.iter().map(visit).collect::<Vec<_>>().join(", "));
            for step in steps {
                walk.done(&step, self.outcome(&step));
            }
        }
    }

    fn outcome(&self, step: &Step) -> Outcome {
        let (conditions, done) = (Vec::new(), |operation| vec![(step.name.to_string(), operation)]);
        match (step.task, self.dependents[&*step.name].fate) {
            (_, Fate::Failing) => Outcome::Failed { failure: "boom".to_owned().into(), done: Vec::new(), conditions },
            (Task::Reconcile, Fate::Unwanted) => Outcome::Unwanted { conditions },
            (Task::Reconcile, Fate::Inactive) => Outcome::Inactive { conditions },
            (Task::Reconcile, fate) => {
                let ready = !matches!(fate, Fate::Unready);
                Outcome::Reconciled { done: done(Operation::Unchanged), conditions, ready }
            }
            // Its activation condition is asked first.
            (Task::Delete(_) | Task::Cleanup, Fate::Inactive) => {
                Outcome::Deleted { done: Vec::new(), conditions, gone: true }
            }
            (Task::Delete(_) | Task::Cleanup, fate) => {
                let gone = !matches!(fate, Fate::Lingering);
                Outcome::Deleted { done: done(Operation::Deleted), conditions, gone }
            }
        }
    }
}

fn visit(step: &Step) -> String {
    let task = match step.task {
        Task::Reconcile => "reconcile",
        Task::Delete(_) => "delete",
        Task::Cleanup => "clean up",
    };
    format!("{task} {}", step.name)
}

fn told(node: &NodeResult) -> String {
    let mut line = format!("{}:", node.name);
    for (_, operation) in &node.done {
        // Writing to a string can't fail.
        let _infallible = write!(line, " {}", format!("{operation:?}").to_lowercase());
    }
    if let Some(failed) = &node.failed {
        let _infallible = write!(line, " failed: {}", failed.message);
    }
    if node.done.is_empty() && node.failed.is_none() { line + " nothing" } else { line }
}

//! Comparisons by managed fields on objects that a real API server has answered with, one per file in `golden/applied`.
//!
//! `BLESS=1` writes the differences that were found into the files that expect some.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use std::path::{Path, PathBuf};

use capstan_core::budget::Budget;
use capstan_core::dependent::compare_applied;
use capstan_core::dependent::managed_fields::Part;
use capstan_core::guest::MatchResult;
use capstan_core::object::{Gvk, Managers, Object};
use serde::Deserialize;
use serde_json::{Value, json};

/// A file of the folder.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What it shows; also in the message of a failure.
    about: String,
    /// Our field manager.
    manager: String,
    /// `status`, or nothing for the object.
    part: Option<String>,
    /// The differences in words; nothing if it matches.
    differs: Option<String>,
    /// What we want.
    desired: Value,
    /// What the API server has.
    actual: Value,
}

impl Case {
    fn part(&self) -> Part {
        match self.part.as_deref() {
            None => Part::Object,
            Some("status") => Part::Status,
            Some(other) => panic!("no such part: {other}"),
        }
    }

    fn object(&self) -> Object {
        let text = |field: &str| self.actual[field].as_str().unwrap().to_owned();
        let gvk = Gvk::parse(&text("apiVersion"), &text("kind")).unwrap();
        Object::parse(&self.actual.to_string(), &gvk, &Managers::new([&*self.manager])).unwrap()
    }

    fn verdict(&self, desired: &Value) -> MatchResult {
        compare_applied(&self.object(), desired, &self.manager, self.part(), &mut Budget::of_run()).unwrap()
    }
}

fn cases() -> Vec<(PathBuf, Case)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/applied");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |file: PathBuf| {
        let case = serde_yaml::from_str(&std::fs::read_to_string(&file).unwrap());
        let case = case.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        (file, case)
    };
    files.into_iter().map(read).collect()
}

#[test]
fn what_a_real_api_server_answers_is_compared_as_the_files_say() {
    let cases = cases();
    assert!(cases.len() > 25, "only {} cases", cases.len());
    for (file, case) in cases {
        let found = match case.verdict(&case.desired) {
            MatchResult::Matches => None,
            MatchResult::Differs(text) => Some(text),
        };
        if std::env::var_os("BLESS").is_some() && case.differs.is_some() {
            bless(&file, &found.unwrap());
        } else {
            assert_eq!(found, case.differs, "{}: {}", file.display(), case.about);
        }
    }
}

/// Replaces the line of the differences.
fn bless(file: &Path, found: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    let line = |line: &str| match line.strip_prefix("differs: ") {
        Some(_) => format!("differs: '{}'\n", found.replace('\'', "''")),
        None => format!("{line}\n"),
    };
    std::fs::write(file, text.lines().map(line).collect::<String>()).unwrap();
}

#[test]
fn changing_any_wanted_value_of_a_match_makes_a_difference() {
    let mut changed = 0;
    for (file, case) in cases().into_iter().filter(|(_, case)| case.differs.is_none()) {
        for pointer in leaves(&case) {
            let mut desired = case.desired.clone();
            let value = desired.pointer_mut(&pointer).unwrap();
            *value = other(value);
            let verdict = case.verdict(&desired);
            assert_ne!(
                verdict,
                MatchResult::Matches,
                "{}: {pointer} is now {}",
                file.display(),
                desired.pointer(&pointer).unwrap()
            );
            changed += 1;
        }
    }
    assert!(changed > 200, "only {changed} values changed");
}

#[test]
fn no_longer_wanting_a_value_of_a_match_makes_a_difference() {
    for (file, case) in cases().into_iter().filter(|(_, case)| case.differs.is_none()) {
        for pointer in leaves(&case) {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            let mut desired = case.desired.clone();
            let name = name.replace("~1", "/").replace("~0", "~");
            match desired.pointer_mut(parent).unwrap() {
                Value::Object(fields) => drop(fields.remove(&name).unwrap()),
                Value::Array(items) => drop(items.remove(name.parse().unwrap())),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                    unreachable!("a parent has children")
                }
            }
            let verdict = case.verdict(&desired);
            assert_ne!(verdict, MatchResult::Matches, "{}: without {pointer}", file.display());
        }
    }
}

/// Returns pointers to all values that were applied and can be told from nothing.
fn leaves(case: &Case) -> Vec<String> {
    let mut leaves = Vec::new();
    collect(&case.desired, String::new(), &mut leaves);
    let recorded = case.actual["metadata"]["managedFields"].to_string();
    let counts = |pointer: &String| match case.part() {
        Part::Status => pointer.starts_with("/status/"),
        Part::Object if pointer.starts_with("/status/") => recorded.contains("f:status"),
        Part::Object => !["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"].contains(&&**pointer),
    };
    leaves.retain(counts);
    leaves
}

fn collect(value: &Value, pointer: String, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                collect(value, format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1")), into);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect(value, format!("{pointer}/{index}"), into);
            }
        }
        Value::String(text) if text.is_empty() => {}
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) => into.push(pointer),
    }
}

/// Returns another value of the same type.
fn other(value: &Value) -> Value {
    match value {
        Value::Bool(truth) => json!(!truth),
        Value::Number(number) => json!(number.as_f64().unwrap() + 7.0),
        Value::String(text) => json!(format!("{text}7")),
        Value::Null | Value::Array(_) | Value::Object(_) => panic!("no leaf: {value}"),
    }
}

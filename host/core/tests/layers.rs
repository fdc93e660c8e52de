//! Holds the modules to their rows: a module may use rows above its own, never its own row or one below.

#![allow(clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sources::files;

mod circles;
mod lengths;
mod sources;

/// The modules, row by row. One that does not exist yet may stand here; one that exists must.
const ROWS: &[&[&str]] = &[
    &["backoff", "budget", "bucket", "health", "lately", "text", "turns", "wire", "yaml"],
    &["object", "patch", "cel"],
    &["cluster", "granted", "room", "kinds", "network", "schema"],
    &["guest", "cpu", "kubeconfig", "registry"],
    &["conditions", "workflow"],
    &["manifest"],
    &["cache", "queue", "dependent", "rollout", "rbac", "permission", "outbox", "startup"],
    &["source", "dispatcher", "external", "operator"],
    &["writes"],
    &["reconciler"],
];

#[test]
fn modules_use_rows_above_their_own_only() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut problems = Vec::new();
    for file in files(&src) {
        let path = file.strip_prefix(&src).expect("a file below src");
        if path == Path::new("lib.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a source file");
        problems.extend(check(&path.to_string_lossy(), &text));
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let circles = circles::circles(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(circles.is_empty(), "\n{}\n", circles.join("\n"));
}

#[test]
fn no_file_is_too_long_to_be_read_at_once() {
    let long = lengths::long(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(long.is_empty(), "\n{}\n", long.join("\n"));
}

#[test]
fn no_module_holds_more_than_a_fifth_of_the_lines() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sizes = BTreeMap::<String, usize>::new();
    for file in files(&src).into_iter().filter(|file| !file.ends_with("tests.rs")) {
        let text = fs::read_to_string(&file).expect("a source file");
        let code = text.split("\n#[cfg(test)]").next().unwrap_or(&text);
        let module = file.strip_prefix(&src).expect("a file below src").iter().next().expect("a name");
        let module = module.to_string_lossy().trim_end_matches(".rs").to_owned();
        *sizes.entry(module).or_default() += code.lines().filter(|line| !line.trim().is_empty()).count();
    }
    let all: usize = sizes.values().sum();
    sizes.retain(|_, size| *size > all / 5);
    assert!(sizes.is_empty(), "of {all} lines: {sizes:?}");
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let texts = [
        ("a", "use crate::{b::{self, C}, d};"),
        ("b", "//! Not [`crate::d`].\nfn f(_: super::d::D) {}\n#[cfg(test)]\nuse super::a::A;"),
        ("d", "use crate::e::f::F;"),
        ("e", "mod f;\nuse f::F;"),
        ("e::f", "use super::E;\nuse super::super::b::B;"),
    ];
    let texts: BTreeMap<_, _> = texts.map(|(module, text)| (module.to_owned(), text.to_owned())).into();
    assert_eq!(circles::found_in(&circles::imports(&texts)), ["b → d → e::f → b"]);
}

#[test]
fn what_breaks_the_rows_is_found_with_file_and_line() {
    let table: [(&str, &str, &[&str]); 10] = [
        ("queue.rs", "use crate::object::Gvk;\nuse crate::manifest::Retry;\nuse crate::queue::Event;", &[]),
        ("object.rs", "\nuse crate::queue::Queue;", &["object.rs:2: object (row 2) uses queue (row 7)"]),
        ("cache/index.rs", "fn f(_: &crate::queue::F) {}", &["cache/index.rs:1: cache (row 7) uses queue (row 7)"]),
        ("queue.rs", "use super::source;", &["queue.rs:1: queue (row 7) uses source (row 8)"]),
        ("queue/state.rs", "use super::super::source::S;", &["queue/state.rs:1: queue (row 7) uses source (row 8)"]),
        ("queue.rs", "//! See [`crate::source`].\n/// And [`crate::reconciler`].", &[]),
        ("queue.rs", "use crate::{object, source};", &["queue.rs:1: one `use crate::…` for each module, please"]),
        ("queue.rs", "use crate::Queue;", &["queue.rs:1: Queue is in no row"]),
        ("plan.rs", "", &["plan.rs:1: plan is in no row"]),
        ("reconciler/outcome.rs", "use crate::object::A; use crate::writes::B;", &[]),
    ];
    for (file, text, problems) in table {
        assert_eq!(check(file, text), problems, "{file}: {text}");
    }
}

/// Returns what is wrong with a file, given by its path below `src`.
fn check(file: &str, text: &str) -> Vec<String> {
    let module = file.split('/').next().unwrap_or(file).trim_end_matches(".rs");
    let Some(own) = row(module) else {
        return vec![format!("{file}:1: {module} is in no row")];
    };
    let mut problems = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let code = line.split("//").next().unwrap_or(line);
        for used in uses(code) {
            let problem = match row(used) {
                _ if used == module => continue,
                None if used.is_empty() => "one `use crate::…` for each module, please".to_owned(),
                None => format!("{used} is in no row"),
                Some(row) if row >= own => format!("{module} (row {own}) uses {used} (row {row})"),
                Some(_) => continue,
            };
            problems.push(format!("{file}:{number}: {problem}"));
        }
    }
    problems
}

/// Returns the modules that a line names: whatever stands after `crate::` (nothing if that is a brace), and the known ones
/// after `super::`.
fn uses(code: &str) -> impl Iterator<Item = &str> {
    let after = |path: &'static str| code.split(path).skip(1).map(name);
    after("crate::").chain(after("super::").filter(|name| row(name).is_some()))
}

fn name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    text.split_at(end.unwrap_or(text.len())).0
}

/// Returns the number of a module's row, counted from one.
fn row(module: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&module)).map(|row| row + 1)
}

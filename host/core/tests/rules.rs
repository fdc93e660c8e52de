//! Holds the ids of rules to `docs/rules.md`: one that is used anywhere stands there, and one that stands there has a test.

#![allow(clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Where the rules are.
const PAGE: &str = "docs/rules.md";

/// The section of rules that do not hold here: nobody has to use or to test these.
const DECLINED: &str = "## What does not apply";

/// Files that are not looked at: the past, what is made from other files, and this one, whose examples are no rules.
const LEFT_OUT: &[&str] = &["CHANGELOG.md", "host/core/tests/rules.rs", "sdk-guest/go/internal/bindings"];

/// Folders that are not looked at, wherever they are, beside those whose name begins with a dot.
const NOT_OURS: &[&str] = &["target", "node_modules", "__pycache__", "dist", "build"];

const TEXTS: &[&str] = &["rs", "wit", "md", "py", "js", "ts", "mjs", "go", "yaml", "toml", "proto"];

#[test]
fn a_rule_that_is_used_is_explained_and_one_that_is_explained_has_a_test() {
    let root = Path::new(ROOT);
    let page = fs::read_to_string(root.join(PAGE)).expect("the page of rules");
    let mut used = Uses::default();
    for file in files(root, root) {
        // What is no text has no ids.
        if let Ok(text) = fs::read_to_string(root.join(&file)) {
            used.take(&file, &text);
        }
    }
    let problems = check(&page, &used);
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn ids_are_found_wherever_they_stand() {
    for (text, expected) in [
        ("// AB-1, AB-2a … AB-12", &["AB-1", "AB-2a", "AB-12"][..]),
        ("(`AB-1`; AB-2.3)", &["AB-1", "AB-2"]),
        ("SSA-1 and UTF-8, SHA-256, BSD-2-Clause", &["SSA-1"]),
        ("xAB-1 AAB-1 AB- AB-x AB-1ab AB-12345 -AB-1 ab-1", &[]),
    ] {
        assert_eq!(ids(text).collect::<Vec<_>>(), expected, "{text}");
    }
}

#[test]
fn what_is_wrong_with_rules_is_told_with_the_id() {
    const ROWS: &str = "| `AB-1` | a |\n\n## What does not apply\n\n| `AB-3` | c |\n";
    let table: [(&str, &Files, &[&str]); 8] = [
        (ROWS, &[("a/tests/x.rs", "AB-1")], &[]),
        (ROWS, &[("src/x.rs", "#[cfg(test)]\npub mod tests {\n// AB-1")], &[]),
        (ROWS, &[("x_test.go", "AB-1"), ("wit/x.wit", "AB-1 AB-3")], &[]),
        (ROWS, &[("src/x.rs", "// AB-1\n#[cfg(test)]\nmod tests;")], &["AB-1 has no test"]),
        (ROWS, &[("test_x.py", "AB-1")], &[]),
        (ROWS, &[("x.test.js", "AB-1 AB-4")], &["AB-4 is not explained: x.test.js"]),
        ("| `AB-1` | a |\n| `AB-1` | b |", &[("tests.rs", "AB-1")], &["AB-1 is explained twice"]),
        ("| `AB-1` | as AB-2 |", &[("tests.rs", "AB-1"), (PAGE, "AB-2")], &["AB-2 is not explained: docs/rules.md"]),
    ];
    for (page, files, problems) in table {
        let mut used = Uses::default();
        for (file, text) in files {
            used.take(Path::new(file), text);
        }
        assert_eq!(check(page, &used), problems, "{page}{files:?}");
    }
}

/// Files, with what is in them.
type Files = [(&'static str, &'static str)];

/// Where which ids are used.
#[derive(Default)]
struct Uses {
    /// By id: one of the files.
    anywhere: BTreeMap<String, PathBuf>,
    /// Those of tests.
    tests: BTreeSet<String>,
}

impl Uses {
    fn take(&mut self, file: &Path, text: &str) {
        for id in ids(text) {
            self.anywhere.entry(id.to_owned()).or_insert_with(|| file.to_owned());
        }
        for id in ids(tests_of(file, text)) {
            self.tests.insert(id.to_owned());
        }
    }
}

/// Returns what is wrong, given the page and where its ids are used.
fn check(page: &str, used: &Uses) -> Vec<String> {
    let (rules, declined) = page.split_once(DECLINED).unwrap_or((page, ""));
    let (mut problems, mut explained) = (Vec::new(), BTreeSet::new());
    for id in rows(rules).chain(rows(declined)) {
        if !explained.insert(id) {
            problems.push(format!("{id} is explained twice"));
        }
    }
    let untested = rows(rules).filter(|id| !used.tests.contains(*id));
    problems.extend(untested.map(|id| format!("{id} has no test")));
    for (id, file) in &used.anywhere {
        if !explained.contains(&**id) {
            problems.push(format!("{id} is not explained: {}", file.display()));
        }
    }
    problems
}

/// Returns the ids of the rows that explain a rule.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter_map(|line| {
        let (id, _) = line.strip_prefix("| `")?.split_once("` |")?;
        (ids(id).next() == Some(id)).then_some(id)
    })
}

/// Returns the part of a file that is tests.
fn tests_of<'a>(file: &Path, text: &'a str) -> &'a str {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let python = name.starts_with("test_") && file.extension().is_some_and(|end| end == "py");
    let ends = ["_test.go", ".test.js", ".test.ts"];
    let named = name == "tests.rs" || python || ends.iter().any(|end| name.ends_with(end));
    if named || file.iter().any(|folder| folder == "tests") {
        return text;
    }
    let marks = text.match_indices("#[cfg(test)]\n").map(|(at, mark)| at + mark.len());
    let mut rests = marks.filter_map(|at| text.get(at..));
    let begins = |rest: &&str| rest.lines().next().is_some_and(|line| line.ends_with("mod tests {"));
    rests.find(begins).unwrap_or_default()
}

/// Returns the ids in a text: two capital letters, or SSA, a dash, a number, perhaps a small letter.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    let apart = |c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_';
    text.split(apart).filter(|word| is_id(word))
}

fn is_id(word: &str) -> bool {
    let Some((group, number)) = word.split_once('-') else {
        return false;
    };
    let number = number.strip_suffix(|c: char| c.is_ascii_lowercase()).unwrap_or(number);
    let group = (group.len() == 2 && group.bytes().all(|b| b.is_ascii_uppercase())) || group == "SSA";
    group && (1..=2).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit())
}

/// Returns the texts below a folder, as paths from the root.
fn files(root: &Path, folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let from_root = path.strip_prefix(root).expect("a path below the root");
        if name.starts_with('.') || LEFT_OUT.iter().any(|left_out| from_root == Path::new(left_out)) {
            continue;
        }
        // Links are not followed.
        let kind = entry.file_type().expect("a file type");
        if kind.is_dir() && !NOT_OURS.contains(&&*name) {
            files.extend(self::files(root, &path));
        } else if kind.is_file() && TEXTS.iter().any(|text| path.extension().is_some_and(|e| e == *text)) {
            files.push(from_root.to_owned());
        }
    }
    files.sort();
    files
}

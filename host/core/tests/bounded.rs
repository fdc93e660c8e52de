//! Holds the code to one way of making a document: by a budget that pays for it.

#![allow(clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::fs;
use std::path::{Path, PathBuf};

/// What makes a tree of a text, or works on trees without a bound, beside where it may stand and why.
const CALLS: &[(&str, &[(&str, &str)])] = &[
    (
        "from_str",
        &[
            ("budget.rs", "the place itself"),
            ("object.rs", "reads a header and passes over the rest"),
            ("object/hold.rs", "reads an annotation of 512 characters at most, and makes no tree"),
            ("object/read.rs", "reads a header and passes over the rest"),
            ("dependent/managed_fields/set.rs", "reads a set of fields, and pays for it"),
            ("object/fields.rs", "passes over what is not kept, once for each level of a pointer, and makes no tree"),
            ("object/pointer.rs", "passes over what is no key, and makes no tree"),
            ("reconciler/mask.rs", "goes through a text that is paid for, and makes no tree"),
            ("dependent/ownership.rs", "reads a mark of some KiB at most, and makes no tree"),
            ("schema/document.rs", "passes over what is not looked for, pays for that, and makes no tree"),
            ("registry/credentials.rs", "reads the names and secrets of a text of 64 KiB at most, and makes no tree"),
            // Texts of the manifest, which is bounded as a whole.
            ("yaml/tree.rs", "a manifest"),
            ("kinds.rs", "the daemon's own table"),
            ("rbac.rs", "the daemon's own table"),
        ],
    ),
    (
        "from_slice",
        &[
            ("registry/artifact.rs", "reads a few fields of 4 MiB at most, and makes no tree"),
            ("registry/answer.rs", "reads two fields of 4 KiB at most, and makes no tree"),
            ("registry/layout.rs", "reads a few fields of 1 MiB at most, and makes no tree"),
            ("registry/referrers.rs", "reads a few fields of 4 MiB at most, and makes no tree"),
            ("registry/signature/bundle.rs", "reads a few fields of 256 KiB at most, and makes no tree"),
            ("registry/signature/simple.rs", "reads a few fields of 256 KiB at most, and makes no tree"),
            ("registry/challenge.rs", "reads two fields of 64 KiB at most, and makes no tree"),
        ],
    ),
    ("json_patch", &[]),
    ("Program::execute", &[]),
    (".execute(&", &[]),
    ("Regex::new", &[]),
];

#[test]
fn documents_are_made_and_changed_within_a_budget() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut problems = Vec::new();
    for file in files(&src) {
        let name = file.strip_prefix(&src).expect("a file below src").to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).expect("a source file");
        problems.extend(check(&name, &text));
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn another_way_of_making_a_document_is_found() {
    let code =
        "fn f() {\n    let tree: Value = serde_json::from_str(text)?;\n}\n#[cfg(test)]\nmod tests { from_str() }";
    let problem = "reconciler.rs:2: from_str: take a budget (`budget.read`)";
    assert_eq!(check("reconciler.rs", code), [problem]);
    assert_eq!(check("budget.rs", code), [""; 0]);
}

/// Returns what is wrong with a file, but for its tests.
fn check(name: &str, text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let mut problems = Vec::new();
    for (line, number) in code.lines().zip(1..) {
        let line = line.split("//").next().unwrap_or(line);
        for (call, allowed) in CALLS {
            if line.contains(call) && !allowed.iter().any(|(file, _)| *file == name) {
                problems.push(format!("{name}:{number}: {call}: take a budget (`budget.read`)"));
            }
        }
    }
    problems
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|kind| kind == "rs")
            && path.file_name().is_some_and(|name| name != "tests.rs")
        {
            found.push(path);
        }
    }
    found
}

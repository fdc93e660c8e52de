//! Holds the host to one way of making a document: by a budget that pays for it.

#![allow(clippy::expect_used, reason = "a test may fail loudly")]

use std::path::Path;

use bounds::{Calls, check, unbounded};

#[path = "../core/tests/bounds/mod.rs"]
mod bounds;

#[path = "../core/tests/sources/mod.rs"]
mod sources;

const CALLS: Calls<'_> = &[
    (
        "serde_json::from_",
        &[
            ("cli/", "works for whoever calls it, on their own machine"),
            ("controller/rehearsal.rs", "plays cases for the command line"),
            ("controller/rehearsal/server.rs", "plays cases for the command line"),
            ("admin/access.rs", "reads reviews of 256 KiB at most"),
            ("client/answer.rs", "reads a few fields, and makes no tree"),
            ("informer/list_watch.rs", "reads a few fields, and makes no tree"),
            (
                "logging/line.rs",
                "the daemon's own fields, and pairs of texts, which are bounded where a component gives them",
            ),
            ("logging/writer.rs", "the daemon's own lines"),
            ("plugin/code/failure.rs", "the daemon's own file"),
            ("registry/kept.rs", "the daemon's own file"),
            ("supervisor/objects/telling.rs", "finds the status, and makes no tree"),
        ],
    ),
    ("Deserializer::from_", &[]),
    ("from_value", &[]),
    ("json_patch::", &[]),
    ("Regex::new", &[]),
];

#[test]
fn documents_are_made_within_a_budget() {
    let problems = unbounded(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), CALLS);
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn another_way_of_making_a_document_is_found() {
    let code = "fn f() {\n    let tree: Value = serde_json::from_str(text)?;\n}\n";
    let problem = "supervisor/objects/posted.rs:2: serde_json::from_: take a budget (`budget.read`)";
    assert_eq!(check("supervisor/objects/posted.rs", code, CALLS), [problem]);
    assert_eq!(check("cli/init.rs", code, CALLS), [""; 0]);
}

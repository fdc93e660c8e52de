//! Holds the code to one way of making a document: by a budget that pays for it.

#![allow(clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::path::Path;

use bounds::{Calls, check, unbounded};

mod bounds;
mod sources;

const CALLS: Calls<'_> = &[
    (
        "from_str",
        &[
            ("budget.rs", "the place itself"),
            ("object.rs", "reads a header and passes over the rest"),
            ("cluster.rs", "reads the version that a write is upon, and passes over the rest"),
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
    let problems = unbounded(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), CALLS);
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn another_way_of_making_a_document_is_found() {
    let code =
        "fn f() {\n    let tree: Value = serde_json::from_str(text)?;\n}\n#[cfg(test)]\nmod tests { from_str() }";
    let problem = "reconciler.rs:2: from_str: take a budget (`budget.read`)";
    assert_eq!(check("reconciler.rs", code, CALLS), [problem]);
    assert_eq!(check("budget.rs", code, CALLS), [""; 0]);
}

//! Holds the files of the host to one direction: none imports what imports it.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use std::path::Path;

#[path = "../core/tests/circles/mod.rs"]
mod circles;

#[test]
fn no_files_import_each_other_in_a_circle() {
    let circles = circles::circles(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(circles.is_empty(), "\n{}\n", circles.join("\n"));
}

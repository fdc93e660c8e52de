//! Holds the files of the host to one direction: none imports what imports it.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use std::path::Path;

#[path = "../core/tests/circles/mod.rs"]
mod circles;

#[path = "../core/tests/lengths/mod.rs"]
mod lengths;

#[path = "../core/tests/sources/mod.rs"]
mod sources;

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

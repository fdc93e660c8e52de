//! Finds files that are too long to be read at once.

use std::fs;
use std::path::{Path, PathBuf};

use super::sources::files;

/// The most lines of a file, beside its tests.
const MOST: usize = 500;

/// Returns the files below a folder that are too long, with their lines.
pub(crate) fn long(src: &Path) -> Vec<String> {
    let told = |file: PathBuf| {
        let lines = lines(&fs::read_to_string(&file).expect("a source file"));
        let text = || format!("{}: {lines} lines beside its tests, and at most {MOST} may be", file.display());
        (lines > MOST).then(text)
    };
    files(src).into_iter().filter(|file| !file.ends_with("tests.rs")).filter_map(told).collect()
}

fn lines(text: &str) -> usize {
    let lines: Vec<_> = text.lines().collect();
    let is_tests = |pair: &[&str]| matches!(pair, ["#[cfg(test)]", next] if next.contains("mod "));
    lines.windows(2).position(is_tests).unwrap_or(lines.len())
}

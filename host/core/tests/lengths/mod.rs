//! Finds files that are too long to be read at once.

use std::fs;
use std::path::Path;

/// The most lines of a file, beside its tests.
const MOST: usize = 500;

/// Returns the files below a folder that are too long, with their lines.
pub(crate) fn long(src: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(src).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(long(&path));
        } else if !path.ends_with("tests.rs") {
            let lines = lines(&fs::read_to_string(&path).expect("a source file"));
            if lines > MOST {
                found.push(format!("{}: {lines} lines beside its tests, and at most {MOST} may be", path.display()));
            }
        }
    }
    found
}

fn lines(text: &str) -> usize {
    let lines: Vec<_> = text.lines().collect();
    let is_tests = |pair: &[&str]| matches!(pair, ["#[cfg(test)]", next] if next.contains("mod "));
    lines.windows(2).position(is_tests).unwrap_or(lines.len())
}

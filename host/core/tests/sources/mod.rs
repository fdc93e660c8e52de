//! Finds the source files below a folder, in the order of their paths.

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let below = |path: PathBuf| match path.extension() {
        _ if path.is_dir() => files(&path),
        Some(extension) if extension == "rs" => vec![path],
        Some(_) | None => Vec::new(),
    };
    let mut files: Vec<_> = paths.flat_map(below).collect();
    files.sort();
    files
}

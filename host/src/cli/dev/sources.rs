//! Waits until the files of a folder have changed that git would keep: sources and manifests, not what is built of them.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ignore::WalkBuilder;
use tokio::time::sleep;

/// How often they are looked at. A change counts when nothing has happened from one look to the next.
const LOOK: Duration = Duration::from_millis(300);

/// The most files that are looked at.
const MOST: usize = 10_000;

/// What is built, whether `.gitignore` names it or not.
const BUILT: [&str; 4] = ["target", "node_modules", "__pycache__", "venv"];

/// The files of a folder, each as its time, size and inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sources(BTreeMap<PathBuf, (i64, i64, u64, u64)>);

impl Sources {
    /// Returns the files as they are now.
    pub(super) fn of(folder: &Path) -> Self {
        let mut walk = WalkBuilder::new(folder);
        walk.require_git(false).parents(false).git_global(false).follow_links(false);
        walk.filter_entry(|entry| !BUILT.iter().any(|built| entry.file_name() == *built));
        let stamp = |at: Metadata| (at.mtime(), at.mtime_nsec(), at.len(), at.ino());
        let files = walk.build().filter_map(Result::ok).filter(|entry| {
            let is_component = entry.path().extension().is_some_and(|end| end == "wasm");
            entry.file_type().is_some_and(|sort| sort.is_file()) && !is_component
        });
        let known = |path: &Path| path.strip_prefix(".").unwrap_or(path).to_owned();
        let stamped = files.filter_map(|entry| Some((known(entry.path()), stamp(entry.metadata().ok()?))));
        Self(stamped.take(MOST).collect())
    }

    /// Waits until the files are others than these, and come to rest; returns which.
    pub(super) async fn changed(&self, folder: &Path) -> Self {
        let mut before = self.clone();
        loop {
            sleep(LOOK).await;
            let now = Self::of(folder);
            if now == before && now != *self {
                return now;
            }
            before = now;
        }
    }

    /// Returns the same without these files.
    pub(super) fn without<'a>(&self, left_out: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        let mut all = self.clone();
        for file in left_out {
            all.0.remove(file);
        }
        all
    }

    /// Returns a file that is another one here than there, or is not in both.
    pub(super) fn difference<'a>(&'a self, other: &'a Self) -> Option<&'a Path> {
        let differs = |(path, stamp): &(&PathBuf, &(i64, i64, u64, u64))| other.0.get(*path) != Some(*stamp);
        let gone = || other.0.keys().find(|path| !self.0.contains_key(*path));
        self.0.iter().find(differs).map(|(path, _)| path).or_else(gone).map(PathBuf::as_path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_of_what_git_would_keep_counts_once_it_is_at_rest() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write(".gitignore", "/build/\n");
        write("src/main.go", "a");
        let before = Sources::of(folder.path());
        for built in ["build/x.js", "target/debug/x", "node_modules/a/b.js", "operator.wasm", ".venv/lib/x.py"] {
            write(built, "x");
        }
        assert_eq!(Sources::of(folder.path()), before);
        write("src/main.go", "ab");
        let after = before.changed(folder.path()).await;
        let source = folder.path().join("src/main.go");
        assert_eq!(after.difference(&before), Some(&*source));
        assert_eq!(after.without([&source]), before.without([&source]));
        fs::remove_file(folder.path().join("src/main.go")).unwrap();
        let gone = after.changed(folder.path()).await;
        assert_eq!(gone.difference(&after), Some(&*folder.path().join("src/main.go")));
    }
}

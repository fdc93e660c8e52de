//! Waits until the files of a folder have changed that git would keep and something is made of: sources and manifests, not what is built of
//! them, golden cases or texts for people.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ignore::WalkBuilder;
use tokio::time::sleep;

use crate::cli::test::FILES_OF_CASES;

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
            entry.file_type().is_some_and(|sort| sort.is_file()) && !is_component && !is_beside(entry.path())
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

    /// Returns what stands for the contents of the files: it is another one if one of them is written anew with other words.
    pub(super) fn content(&self) -> u64 {
        let mut content = DefaultHasher::new();
        for (path, stamp) in &self.0 {
            path.hash(&mut content);
            // Of what is too long for a source, its stamp says enough.
            match (stamp.2 <= 1 << 20).then(|| fs::read(path)) {
                Some(Ok(bytes)) => bytes.hash(&mut content),
                Some(Err(_)) | None => stamp.hash(&mut content),
            }
        }
        content.finish()
    }

    /// Returns a file that is another one here than there, or is not in both.
    pub(super) fn difference<'a>(&'a self, other: &'a Self) -> Option<&'a Path> {
        let differs = |(path, stamp): &(&PathBuf, &(i64, i64, u64, u64))| other.0.get(*path) != Some(*stamp);
        let gone = || other.0.keys().find(|path| !self.0.contains_key(*path));
        self.0.iter().find(differs).map(|(path, _)| path).or_else(gone).map(PathBuf::as_path)
    }
}

/// Whether nothing is made of a file: it belongs to a golden case, or is a text for people.
fn is_beside(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    let of_case = || FILES_OF_CASES.iter().any(|file| name == *file);
    let cases = path.ancestors().nth(2).and_then(Path::file_name);
    let is_text = path.extension().is_some_and(|end| end == "md") || name == "LICENSE";
    is_text || cases.is_some_and(|cases| cases == "cases") && of_case()
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
        for built in [
            "build/x.js",
            "target/debug/x",
            "node_modules/a/b.js",
            "operator.wasm",
            ".venv/lib/x.py",
            "README.md",
            "cases/hello/expected.yaml",
            ".env",
        ] {
            write(built, "x");
        }
        assert_eq!(Sources::of(folder.path()), before);
        write("src/main.go", "ab");
        let after = before.changed(folder.path()).await;
        let source = folder.path().join("src/main.go");
        assert_eq!(after.difference(&before), Some(&*source));
        assert_eq!(after.without([&source]), before.without([&source]));
        write("src/main.go", "ab");
        let same = Sources::of(folder.path());
        assert_eq!(same.content(), after.content());
        write("cases/hello/main.go", "c");
        let another = Sources::of(folder.path());
        assert!(another.content() != after.content());
        fs::remove_file(folder.path().join("cases/hello/main.go")).unwrap();
        fs::remove_file(folder.path().join("src/main.go")).unwrap();
        let gone = after.changed(folder.path()).await;
        assert_eq!(gone.difference(&after), Some(&*folder.path().join("src/main.go")));
    }
}

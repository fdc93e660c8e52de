//! Reads, writes and locks files for what builds: whoever looks sees a file whole, and one process builds at a time.

use std::fs::{self, File, Permissions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use walkdir::WalkDir;

use crate::interrupt;
use crate::ui::Task;

/// Returns the text of a file; an error names it.
pub(crate) fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

pub(crate) fn folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("create {}", path.display()))
}

/// Writes a file unless it says that already; returns whether it had to. Nobody who reads the file sees half of it.
pub(crate) fn put(path: &Path, bytes: &[u8]) -> Result<bool> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    let parent = path.parent().context("a file is in a folder")?;
    folder(parent)?;
    let mut part = tempfile::Builder::new()
        // As any file that a build leaves; the umask still counts.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(parent)?;
    part.write_all(bytes)?;
    part.persist(path).with_context(|| format!("write {}", path.display()))?;
    Ok(true)
}

/// Returns the files below a folder, in order, but for what was installed or built there; of a file, the file.
pub(crate) fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let all = WalkDir::new(folder).sort_by_file_name().into_iter();
    let mut files = Vec::new();
    for entry in all.filter_entry(|entry| entry.file_name() != "node_modules") {
        let entry = entry?;
        let path = entry.path();
        if !path.is_dir() && path.extension().is_none_or(|end| end != "wasm" && end != "pyc") {
            files.push(path.to_owned());
        }
    }
    Ok(files)
}

/// Returns what is in a folder, by name.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    for path in below(from)? {
        let target = to.join(path.strip_prefix(from)?);
        folder(target.parent().unwrap_or(to))?;
        fs::copy(&path, &target).with_context(|| format!("copy {}", path.display()))?;
    }
    Ok(())
}

/// Returns a number that changes with the files below these places, given from `root`.
pub(crate) fn fingerprint(root: &Path, places: &[&Path]) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    for place in places {
        for path in below(&root.join(place))? {
            (path.strip_prefix(root)?, bytes(&path)?).hash(&mut hasher);
        }
    }
    Ok(hasher.finish())
}

/// Returns a lock that ends with the returned file, and with the process. Meanwhile `task` says what is waited for.
pub(crate) fn lock(task: &mut Task, path: &Path, waiting: &str) -> Result<File> {
    folder(path.parent().unwrap_or(path))?;
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {
                task.at(waiting);
                interrupt::pause()?;
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("lock {}", path.display())),
        }
    }
}

/// Returns the folder of the cache with a language's tools of this key. If it is missing, `install` fills one beside it first: an
/// installation that is cut short leaves nothing that looks like one.
pub(crate) fn tools(
    task: &mut Task,
    language: &str,
    key: &impl Hash,
    install: impl FnOnce(&mut Task, &Path) -> Result<()>,
) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let shelf = cluster::cache()?.join(language.to_lowercase());
    let tools = shelf.join(format!("{:016x}", hasher.finish()));
    if tools.is_dir() {
        return Ok(tools);
    }
    let waiting = format!("waiting for another process to install the tools for {language}");
    let _lock = lock(task, &shelf.join("lock"), &waiting)?;
    // Another process may have installed them in the meantime.
    if !tools.is_dir() {
        task.at(&format!("installing the tools for {language} (once)"));
        let part = tools.with_extension("part");
        if part.exists() {
            fs::remove_dir_all(&part).with_context(|| format!("remove {}", part.display()))?;
        }
        folder(&part)?;
        install(task, &part)?;
        fs::rename(&part, &tools).with_context(|| format!("put {}", tools.display()))?;
    }
    Ok(tools)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_what_was_written_and_any_change_of_them_shows() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b.js", "a/c.js", "node_modules/x/d.js", "e.wasm", ".npmrc"] {
            put(&at(name), b"x").unwrap();
        }
        assert_eq!(below(folder.path()).unwrap(), [".npmrc", "a/c.js", "b.js"].map(at));
        let print = || fingerprint(folder.path(), &[Path::new("a"), Path::new("b.js")]).unwrap();
        let before = print();
        put(&at(".npmrc"), b"other").unwrap();
        assert_eq!(print(), before);
        put(&at("b.js"), b"other").unwrap();
        let changed = print();
        fs::rename(at("a/c.js"), at("a/d.js")).unwrap();
        assert!(before != changed && changed != print() && before != print());
    }

    #[test]
    fn a_file_is_only_written_if_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let put = |text: &str| put(&path, text.as_bytes()).unwrap();
        assert_eq!([put("x"), put("x"), put("y")], [true, false, true]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left of the writing");
    }
}

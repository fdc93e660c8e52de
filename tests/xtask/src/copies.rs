//! Copies the workspace, so that a change of its sources can be built and tried without touching them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use anyhow::{Context, Result, bail, ensure};

use crate::files;
use crate::workspace::Workspace;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Edit<'a> {
    pub(crate) file: &'a str,
    /// What is there, once.
    pub(crate) from: &'a str,
    /// What comes in its place.
    pub(crate) to: &'a str,
}

impl Edit<'_> {
    /// Returns what it makes of the text of its file; fails unless its place is there once.
    pub(crate) fn of(self, text: &str) -> Result<String> {
        let Self { file, from, to } = self;
        let times = text.matches(from).count();
        ensure!(times == 1, "{file} should have this once, and has it {times} times: {from}");
        Ok(text.replace(from, to))
    }
}

/// Makes the folder `name` of the target folder what the workspace is, as far as git has it or would take it in, but for the
/// edits. What is the same in it is not touched, and so not compiled again.
///
/// The versions of its packages end with its name: what is built of them is kept apart from what is built of the workspace's.
pub(crate) fn make(workspace: &Workspace, name: &str, edits: &[Edit<'_>]) -> Result<PathBuf> {
    let root = workspace.target.join(name);
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = git.current_dir(&workspace.root).output().context("start git")?;
    if !listed.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    }
    for path in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let (from, to) = (workspace.root.join(path), root.join(path));
        if let Ok(target) = fs::read_link(&from) {
            link(&to, &target)?;
            continue;
        }
        let bytes = match fs::read(&from) {
            Ok(bytes) if path == "Cargo.toml" => renamed(&String::from_utf8(bytes)?, name)?.into_bytes(),
            Ok(bytes) => bytes,
            // Deleted, if not for git.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).context(path.to_owned()),
        };
        files::put(&to, &bytes)?;
    }
    for edit in edits {
        let path = root.join(edit.file);
        files::put(&path, edit.of(&files::text(&path)?)?.as_bytes())?;
    }
    Ok(root)
}

fn renamed(manifest: &str, name: &str) -> Result<String> {
    let (_, rest) = manifest.split_once("[workspace.package]\nversion = \"").context("no version")?;
    let (version, _) = rest.split_once('"').context("no version")?;
    let line = |version| format!("\nversion = \"{version}\"");
    Ok(manifest.replacen(&line(version), &line(&format!("{version}+{name}")), 1))
}

fn link(path: &Path, target: &Path) -> Result<()> {
    if fs::read_link(path).is_ok_and(|there| there == target) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).and_then(|()| symlink(target, path)).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_changed_if_it_is_there_once() {
        let edit = Edit { file: "a.rs", from: "html()", to: "title()" };
        assert_eq!(edit.of("a\n  html(),\n").unwrap(), "a\n  title(),\n");
        for (text, times) in [("a\n", 0), ("html()\nhtml()", 2)] {
            let error = edit.of(text).unwrap_err().to_string();
            assert_eq!(error, format!("a.rs should have this once, and has it {times} times: html()"));
        }
    }

    #[test]
    fn the_packages_of_a_copy_have_versions_of_their_own() {
        let manifest = "[workspace.package]\nversion = \"0.1.0\"\n[x]\nversion = \"0.1.0\"\n";
        let expected = "[workspace.package]\nversion = \"0.1.0+demo\"\n[x]\nversion = \"0.1.0\"\n";
        assert_eq!(renamed(manifest, "demo").unwrap(), expected);
    }
}

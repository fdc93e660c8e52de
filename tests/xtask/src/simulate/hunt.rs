//! Puts faults into a copy of the workspace, one at a time, and has simulations find them there.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{fs, io};

use anyhow::{Context, Result, bail};

use super::fault::Fault;
use crate::table;
use crate::ui::{Ui, whole};
use crate::workspace::Workspace;
use crate::{process, ui};

/// What the versions of the copy's packages end with: what is built of them is kept apart from what is built of the workspace's.
const BUILD: &str = "+fault";

/// Looks for faults, and says what showed them. `command` plays the simulations.
///
/// # Errors
/// When git or cargo fails, a file can't be read or written, or when interrupted.
pub(super) fn hunt(
    ui: &Ui,
    workspace: &Workspace,
    faults: &[&Fault],
    command: impl Fn() -> Command,
) -> Result<ExitCode> {
    let mut rows = Vec::new();
    for fault in faults {
        let copy = copy(workspace)?;
        let file = copy.join(fault.file);
        write(&file, fault.put_into(&read(&file)?)?.as_bytes())?;
        let mut command = command();
        command.current_dir(&copy);
        command.env("CARGO_TARGET_DIR", &workspace.target);
        let mut task = ui.task(fault.name);
        let finished = process::run(command, &mut |line| task.at(line))?;
        let seen = finished.output.iter().find_map(|line| failure(line));
        match &seen {
            Some(_) => task.done(fault.what),
            None => task.failed(fault.what),
        };
        if seen.is_none() && !finished.status.success() {
            whole(&finished.output);
            bail!("with {} nothing can be played", fault.name);
        }
        rows.push((fault, seen.map(|(seed, wrong)| (seed.to_owned(), wrong.to_owned()))));
    }
    let found = rows.iter().all(|(_, seen)| seen.is_some());
    let rows = rows.into_iter().map(|(fault, seen)| {
        let (seed, wrong) = seen.unwrap_or_else(|| ("none".to_owned(), fault.what.to_owned()));
        vec![fault.name.to_owned(), seed, wrong]
    });
    let head = ["fault", "seed", "what was wrong"].map(ui::bold);
    let rows: Vec<_> = std::iter::once(head.to_vec()).chain(rows).collect();
    whole(&[table::render(&rows)]);
    Ok(if found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the seed that failed, and what was wrong, if a line says that.
fn failure(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("seed ")?.split_once(": ")
}

/// Makes the copy what the workspace is, as far as git has it or would take it in. What is the same in it is not touched, and so
/// not compiled again.
fn copy(workspace: &Workspace) -> Result<PathBuf> {
    let root = workspace.target.join("faults");
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = git.current_dir(&workspace.root).output();
    let listed = listed.context("start git")?;
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
            Ok(bytes) if path == "Cargo.toml" => renamed(&String::from_utf8(bytes)?)?.into_bytes(),
            Ok(bytes) => bytes,
            // Deleted, if not for git.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).context(path.to_owned()),
        };
        write(&to, &bytes)?;
    }
    Ok(root)
}

/// Returns the root manifest with the copy's version.
fn renamed(manifest: &str) -> Result<String> {
    let (_, rest) = manifest.split_once("[workspace.package]\nversion = \"").context("no version")?;
    let (version, _) = rest.split_once('"').context("no version")?;
    let ours = |version| format!("\nversion = \"{version}\"");
    Ok(manifest.replacen(&ours(version), &ours(&format!("{version}{BUILD}")), 1))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).and_then(|()| fs::write(path, bytes)).with_context(|| path.display().to_string())
}

fn link(path: &Path, target: &Path) -> Result<()> {
    if fs::read_link(path).is_ok_and(|there| there == target) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).and_then(|()| symlink(target, path)).with_context(|| path.display().to_string())
}

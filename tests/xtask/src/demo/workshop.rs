//! Builds another version of the sample, from a copy of its source, as its author would; the sample itself stays as it is.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::copies::{self, Edit};
use crate::plugins::{PROFILE, TARGET};
use crate::ui::{Task, size};
use crate::workspace::Workspace;
use crate::{files, process};

/// The change of the operator: its pages get a title.
pub(super) const CHANGE: Edit<'_> = Edit {
    file: "plugins/webpage/src/lib.rs",
    from: r#""index.html": page.html()? }"#,
    to: r#""index.html": page.html()?.replace("<html>", "<html><title>Version 2</title>") }"#,
};
/// Under its own name, the copy would be built over what the sample itself is built to.
const NAME: Edit<'_> =
    Edit { file: "plugins/webpage/Cargo.toml", from: "name = \"webpage\"", to: "name = \"webpage-demo\"" };

/// Builds the copy as it is, so that what it needs is there; returns a sentence on it.
pub(super) fn open(task: &mut Task, workspace: &Workspace) -> Result<String> {
    build(task, workspace, &[NAME])?;
    Ok("a copy of the plugin's source, to be changed".to_owned())
}

/// Builds the changed copy, and writes the component to `out`; returns a sentence on it.
pub(super) fn rebuild(task: &mut Task, workspace: &Workspace, out: &Path) -> Result<String> {
    let component = build(task, workspace, &[NAME, CHANGE])?;
    files::put(out, &component)?;
    Ok(format!("webpage ({})", size(component.len() as u64)))
}

/// Returns the place that is changed, and its line before and after.
pub(super) fn change(workspace: &Workspace) -> Result<[String; 3]> {
    let text = files::text(&workspace.root.join(CHANGE.file))?;
    let mut lines = text.lines().zip(1..);
    let (line, number) = lines.find(|(line, _)| line.contains(CHANGE.from)).context("a line to be changed")?;
    let place = format!("{}:{number}", CHANGE.file);
    Ok([place, line.trim().to_owned(), line.trim().replace(CHANGE.from, CHANGE.to)])
}

/// Returns commands by which a visitor changes the copy, builds it, and puts it in the place of `component`.
pub(super) fn by_hand(workspace: &Workspace, component: &Path) -> [String; 2] {
    let source = workspace.target.join("demo").join(CHANGE.file);
    let (command, built) = command(workspace);
    let build = process::typed(command.get_args());
    [
        format!("${{EDITOR:-vi}} {}", source.display()),
        format!("cargo {build} && cp {} {}", built.display(), component.display()),
    ]
}

/// Returns the build of the copy, where all else is built, so that only the sample itself has to be compiled; and its component.
fn command(workspace: &Workspace) -> (Command, PathBuf) {
    let mut command = workspace.cargo();
    command.args(["build", "-p", "webpage-demo", "--target", TARGET, "--profile", PROFILE]);
    command.arg("--manifest-path").arg(workspace.target.join("demo/Cargo.toml"));
    command.arg("--target-dir").arg(&workspace.target);
    (command, workspace.target.join(TARGET).join(PROFILE).join("webpage_demo.wasm"))
}

/// Returns the component that the copy with these edits is built to. Demos at the same time take turns.
fn build(task: &mut Task, workspace: &Workspace, edits: &[Edit<'_>]) -> Result<Vec<u8>> {
    let lock = workspace.target.join("demo.lock");
    let _lock = files::lock(task, &lock, "waiting for another demo, which builds")?;
    copies::make(workspace, "demo", edits)?;
    let (command, built) = command(workspace);
    process::must(task, command, "the build of the copy of the sample")?;
    files::bytes(&built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_has_the_lines_that_are_changed() {
        let workspace = Workspace::load().unwrap();
        for edit in [NAME, CHANGE] {
            edit.of(&files::text(&workspace.root.join(edit.file)).unwrap()).unwrap();
        }
        let [place, before, after] = change(&workspace).unwrap();
        assert!(place.starts_with(CHANGE.file) && before.contains(CHANGE.from) && after.contains(CHANGE.to));
    }
}

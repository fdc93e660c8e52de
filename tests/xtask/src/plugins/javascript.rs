//! Builds the plugins that are written in JavaScript or TypeScript, and runs their unit tests and those of the SDK.
//!
//! The SDK's lock file says which tools are needed. They are installed once, into the cache; the work tree is left alone: what is
//! built and tested is a copy beside which the tools are found.

use std::env::consts::{ARCH, OS};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::{Language, Tested, tested};
use crate::process::found;
use crate::test::tally::Tally;
use crate::ui::Task;
use crate::workspace::Workspace;
use crate::{files, process};

/// The folder of the SDK, which has the builder.
const SDK: &str = "sdk-guest/javascript";
const LOCK: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];
const ENTRIES: [&str; 2] = ["src/operator.js", "src/operator.ts"];
const NODE: u32 = 20;

pub(super) const LANGUAGE: Language = Language { mark: "package.json", inputs: &[SDK], build, test, pack };

fn build(task: &mut Task, workspace: &Workspace, folder: &Path) -> Result<Vec<u8>> {
    let short = workspace.short(folder);
    let entry = ENTRIES.into_iter().find(|entry| folder.join(entry).is_file());
    let entry = entry.with_context(|| format!("{} has no {}", short.display(), ENTRIES.join(" or ")))?;
    let site = site(task, workspace, &[folder])?;
    let place = site.path().join(short);
    let mut command = Command::new("node");
    command.arg(site.path().join(SDK).join("bin/capstan-js.js"));
    command.args(["build", entry, "-o", "component.wasm"]).current_dir(&place);
    process::must(task, command, &format!("the build of {}", short.display()))?;
    files::bytes(&place.join("component.wasm"))
}

fn test(task: &mut Task, workspace: &Workspace, folders: &[PathBuf]) -> Result<Vec<Tested>> {
    let folders: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
    let site = site(task, workspace, &folders)?;
    let mut command = Command::new("node");
    command.args(["--test", "--test-reporter=tap"]).current_dir(site.path());
    let files = files::below(site.path())?;
    command.args(files.iter().filter(|path| path.to_string_lossy().ends_with(".test.js")));
    let (finished, mut tally) = tested(task, command, results)?;
    // A file that can't be loaded counts as a test, and is called by its path.
    let place = format!("{}/", site.path().display());
    for name in &mut tally.failures {
        *name = name.replace(&place, "");
    }
    Ok(vec![(finished, tally)])
}

fn pack(task: &mut Task, workspace: &Workspace, out: &Path) -> Result<()> {
    check_node()?;
    let mut command = Command::new("npm");
    command.args(["pack", "--pack-destination"]).arg(out);
    command.current_dir(workspace.root.join(SDK));
    process::must(task, command, "npm pack")
}

/// Reads the Test Anything Protocol, as Node writes it. The sums follow when the tests are over; before that, a line that begins
/// with `#` may be what a test has printed.
fn results(lines: &[String]) -> Tally {
    let failures = lines.iter().filter_map(|line| found(r"^\s*not ok \d+ - (.*)$", line));
    let mut tally = Tally::of(0, 0, 0, failures.map(|[name]| name.to_owned()).collect());
    for line in lines.iter().skip_while(|line| !line.starts_with("1..")) {
        if let Some([word, number]) = found(r"^# (\w+) (\d+)$", line) {
            tally.count(number, word);
        }
    }
    tally
}

/// Returns a copy of the SDK and of plugins, laid out as in the work tree, with the tools; it goes when it is dropped.
fn site(task: &mut Task, workspace: &Workspace, plugins: &[&Path]) -> Result<TempDir> {
    check_node()?;
    let (tools, site) = (tools(task, workspace)?, tempfile::Builder::new().prefix("capstan-js-").tempdir()?);
    let sdk = site.path().join(SDK);
    files::copy(&workspace.root.join(SDK), &sdk)?;
    symlink(tools.join("node_modules"), sdk.join("node_modules"))?;
    for plugin in plugins {
        let place = site.path().join(workspace.short(plugin));
        files::copy(plugin, &place)?;
        let packages = place.join("node_modules/@capstan");
        files::folder(&packages)?;
        symlink(&sdk, packages.join("guest"))?;
    }
    Ok(site)
}

/// Returns the folder of the installed tools, installing them if they are missing.
fn tools(task: &mut Task, workspace: &Workspace) -> Result<PathBuf> {
    let sdk = workspace.root.join(SDK);
    let [package, lock, npmrc] = LOCK.map(|name| files::bytes(&sdk.join(name)));
    let key = (OS, ARCH, package?, lock?, npmrc?);
    files::tools(task, "JavaScript", &key, |task, to| {
        for name in LOCK {
            fs::copy(sdk.join(name), to.join(name))?;
        }
        let mut command = Command::new("npm");
        command.args(["ci", "--no-progress"]).current_dir(to);
        process::must(task, command, &format!("npm ci in {SDK}")).context(
            "the tools for JavaScript can't be installed: npm comes with Node, and needs its registry this once",
        )
    })
}

fn check_node() -> Result<()> {
    let advice = format!("install Node {NODE} or newer, with npm, from https://nodejs.org");
    let mut command = Command::new("node");
    command.arg("--version");
    let Some(output) = process::output(command)? else {
        bail!("plugins in JavaScript need Node, and there is no `node`: {advice}");
    };
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if major(&said).is_some_and(|major| major >= NODE) {
        return Ok(());
    }
    bail!("plugins in JavaScript need Node {NODE} or newer, and `node --version` says {said:?}: {advice}")
}

fn major(version: &str) -> Option<u32> {
    let [major] = found(r"^v(\d+)\.", version)?;
    major.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_node_are_read() {
        let text = "\
TAP version 13
# Subtest: a page
ok 1 - a page
# Subtest: pages
    # Subtest: one of them
    not ok 1 - one of them
# pass 7
not ok 2 - pages
1..2
# tests 9
# suites 0
# pass 5
# fail 2
# cancelled 1
# skipped 1
# todo 0
# duration_ms 32.8";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let failures = ["one of them", "pages"].map(str::to_owned).to_vec();
        assert_eq!(results(&lines), Tally::of(5, 3, 1, failures));
    }

    #[test]
    fn versions_of_node_are_read() {
        let versions = ["v20.20.2", "v8.0.0", "20.1", ""].map(major);
        assert_eq!(versions, [Some(20), Some(8), None, None]);
    }
}

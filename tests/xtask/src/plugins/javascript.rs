//! Builds the plugins that are written in JavaScript or TypeScript, and runs their unit tests and those of the SDK.
//!
//! The SDK's lock file says which tools are needed. They are installed once, into the cache; the work tree is left alone: what is
//! built and tested is a copy beside which the tools are found.

use std::env::consts::{ARCH, OS};
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::Tested;
use crate::builds;
use crate::process;
use crate::test::tally::Tally;
use crate::ui::Task;
use crate::workspace::Workspace;

/// The folder of the SDK, which has the builder.
const SDK: &str = "sdk-guest/javascript";
/// What says which tools are needed.
const LOCK: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];
/// What an author's file may be called.
const ENTRIES: [&str; 2] = ["src/operator.js", "src/operator.ts"];
/// The oldest Node that will do.
const NODE: u32 = 20;

/// The results of unit tests, as far as they have been read.
#[derive(Debug, Default)]
struct Results {
    tally: Tally,
    /// The tests are over and the sums follow. Before that, a line that begins with `#` may be what a test has printed.
    over: bool,
}

/// A copy of the SDK and of plugins, with the tools; it goes when it is dropped.
struct Site {
    folder: TempDir,
}

/// Builds the plugin in `folder` and writes the component to `out`, unless that was built from the same files.
pub(crate) fn build(task: &mut Task, workspace: &Workspace, folder: &Path, out: &Path) -> Result<()> {
    let name = folder.file_name().context("a plugin has a folder")?;
    let entry = ENTRIES.into_iter().find(|entry| folder.join(entry).is_file());
    let entry =
        entry.with_context(|| format!("{} has no {}", workspace.short(folder).display(), ENTRIES.join(" or ")))?;
    let inputs = inputs(workspace, folder)?;
    let note = out.with_extension("inputs");
    if fs::read_to_string(&note).is_ok_and(|text| text == said(inputs, out)) {
        return Ok(());
    }
    check_node()?;
    let site = Site::new(&workspace.root, &tools(task, workspace)?, &[folder])?;
    let place = site.plugin(name);
    task.at(&format!("building {}", workspace.short(folder).display()));
    let mut command = Command::new("node");
    command
        .arg(site.sdk().join("bin/capstan-js.js"))
        .args(["build", entry, "-o", "component.wasm"])
        .current_dir(&place);
    let what = format!("the build of {}", workspace.short(folder).display());
    builds::must(task, command, &what)?;
    put(out, &fs::read(place.join("component.wasm"))?)?;
    // Last: a build that was cut short is done again.
    put(&note, said(inputs, out).as_bytes())
}

/// Runs the unit tests of the SDK and of the plugins in `folders`, which need no component.
pub(crate) fn test(task: &mut Task, workspace: &Workspace, folders: &[PathBuf]) -> Result<Tested> {
    check_node()?;
    let folders: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
    let site = Site::new(&workspace.root, &tools(task, workspace)?, &folders)?;
    let mut command = Command::new("node");
    command.args(["--test", "--test-reporter=tap"]);
    command.args(test_files(&site.sdk())?);
    for name in folders.iter().filter_map(|folder| folder.file_name()) {
        command.args(test_files(&site.plugin(name))?);
    }
    command.current_dir(site.folder.path());
    let mut results = Results::default();
    let finished = process::run(command, &mut |line| {
        if let Some((_, name)) = line.split_once("# Subtest: ") {
            task.at(name);
        }
        results.read(line);
    })?;
    // A file that can't be loaded counts as a test, and is called by its path.
    let place = format!("{}/", site.folder.path().display());
    let mut tally = results.tally;
    for name in &mut tally.failures {
        *name = name.replace(&place, "");
    }
    if !finished.status.success() {
        tally.failed = tally.failed.max(1);
    }
    Ok(Tested { finished, tally })
}

/// Makes the SDK's package.
pub(crate) fn pack(task: &mut Task, workspace: &Workspace, out: &Path) -> Result<()> {
    check_node()?;
    let mut command = Command::new("npm");
    command.args(["pack", "--pack-destination"]).arg(out);
    command.current_dir(workspace.root.join(SDK));
    builds::must(task, command, "npm pack")
}

// === impl Results ===

impl Results {
    /// Takes in a line of the Test Anything Protocol, as Node writes it.
    fn read(&mut self, line: &str) {
        if let Some((_, name)) = line.trim_start().strip_prefix("not ok ").and_then(|rest| rest.split_once(" - ")) {
            self.tally.failures.push(name.to_owned());
        }
        self.over |= line.starts_with("1..");
        let words = line.strip_prefix("# ").filter(|_| self.over).and_then(|rest| rest.split_once(' '));
        let Some((word, Ok(number))) = words.map(|(word, rest)| (word, rest.parse::<u64>())) else {
            return;
        };
        match word {
            "pass" => self.tally.passed += number,
            "fail" | "cancelled" => self.tally.failed += number,
            "skipped" | "todo" => self.tally.ignored += number,
            _ => {}
        }
    }
}

// === impl Site ===

impl Site {
    /// Copies what is needed, laid out as in the work tree.
    fn new(root: &Path, tools: &Path, plugins: &[&Path]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("capstan-js-").tempdir()?;
        let site = Self { folder };
        copy(&root.join(SDK), &site.sdk())?;
        symlink(tools.join("node_modules"), site.sdk().join("node_modules"))?;
        for plugin in plugins {
            let place = site.plugin(plugin.file_name().unwrap_or_default());
            copy(plugin, &place)?;
            let packages = place.join("node_modules/@capstan");
            fs::create_dir_all(&packages)?;
            symlink(site.sdk(), packages.join("guest"))?;
        }
        Ok(site)
    }

    fn sdk(&self) -> PathBuf {
        self.folder.path().join(SDK)
    }

    fn plugin(&self, name: &OsStr) -> PathBuf {
        self.folder.path().join("plugins").join(name)
    }
}

// === the tools ===

/// Returns the folder of the installed tools, installing them if they are missing.
fn tools(task: &mut Task, workspace: &Workspace) -> Result<PathBuf> {
    let sdk = workspace.root.join(SDK);
    let mut hasher = DefaultHasher::new();
    (OS, ARCH).hash(&mut hasher);
    for name in LOCK {
        let path = sdk.join(name);
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        bytes.hash(&mut hasher);
    }
    let shelf = cluster::cache()?.join("javascript");
    let key = format!("{:016x}", hasher.finish());
    let folder = shelf.join(&key);
    if folder.is_dir() {
        return Ok(folder);
    }
    fs::create_dir_all(&shelf).with_context(|| format!("create {}", shelf.display()))?;
    let _lock = lock(task, &shelf.join(format!("{key}.lock")))?;
    // Another process may have installed them in the meantime.
    if !folder.is_dir() {
        install(task, &sdk, &folder)?;
    }
    Ok(folder)
}

/// Installs the tools in a folder beside `folder` first: an install that is cut short leaves nothing that looks like one.
fn install(task: &mut Task, sdk: &Path, folder: &Path) -> Result<()> {
    task.at("installing the tools for JavaScript (once, about 70 MB)");
    let part = folder.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part).with_context(|| format!("remove {}", part.display()))?;
    }
    fs::create_dir(&part).with_context(|| format!("create {}", part.display()))?;
    for name in LOCK {
        fs::copy(sdk.join(name), part.join(name))?;
    }
    let mut command = Command::new("npm");
    command.args(["ci", "--no-progress"]).current_dir(&part);
    builds::must(task, command, &format!("npm ci in {SDK}")).context(
        "the tools for JavaScript can't be installed: npm comes with Node, and needs its registry this once",
    )?;
    fs::rename(&part, folder).with_context(|| format!("put the tools into {}", folder.display()))
}

/// Returns a lock that ends with the returned file, and with the process.
fn lock(task: &mut Task, path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            task.at("another process installs the tools for JavaScript");
            file.lock()?;
        }
        Err(TryLockError::Error(error)) => return Err(error).context("lock the tools' folder"),
    }
    Ok(file)
}

fn check_node() -> Result<()> {
    let advice = format!("install Node {NODE} or newer, with npm, from https://nodejs.org");
    let output = match Command::new("node").arg("--version").output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("plugins in JavaScript need Node, and there is no `node`: {advice}")
        }
        Err(error) => return Err(error).context("run `node --version`"),
    };
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if major(&said).is_some_and(|major| major >= NODE) {
        return Ok(());
    }
    bail!("plugins in JavaScript need Node {NODE} or newer, and `node --version` says {said:?}: {advice}")
}

/// Returns the first number of `v20.20.2`.
fn major(version: &str) -> Option<u32> {
    version.strip_prefix('v')?.split('.').next()?.parse().ok()
}

// === files ===

/// Returns what the component depends on, as a number.
fn inputs(workspace: &Workspace, plugin: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    for folder in [&workspace.root.join(SDK), plugin] {
        for path in files(folder)? {
            let bytes = fs::read(folder.join(&path));
            bytes.with_context(|| format!("read {}", path.display()))?.hash(&mut hasher);
            path.hash(&mut hasher);
        }
    }
    Ok(hasher.finish())
}

/// Returns the note that a component was built from these inputs. It tells of the component too: worktrees share the folder.
fn said(inputs: u64, component: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    fs::read(component).unwrap_or_default().hash(&mut hasher);
    format!("{inputs:016x} {:016x}\n", hasher.finish())
}

/// Returns the sources below a folder, in order: nothing that was installed or built.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(below) = pending.pop() {
        let entries = fs::read_dir(folder.join(&below));
        for entry in entries.with_context(|| format!("read {}", folder.display()))? {
            let entry = entry?;
            let name = entry.file_name();
            let path = below.join(&name);
            if name == "node_modules" || path.extension() == Some(OsStr::new("wasm")) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                pending.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for path in files(from)? {
        let target = to.join(&path);
        fs::create_dir_all(target.parent().unwrap_or(to))?;
        fs::copy(from.join(&path), &target).with_context(|| format!("copy {}", path.display()))?;
    }
    Ok(())
}

/// Returns the test files of a package, which may have none.
fn test_files(package: &Path) -> Result<Vec<PathBuf>> {
    let folder = package.join("test");
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let all = files(&folder)?.into_iter();
    let tests = all.filter(|path| path.to_string_lossy().ends_with(".test.js"));
    Ok(tests.map(|path| folder.join(path)).collect())
}

/// Writes a file at once: a daemon may be reading it, and never sees half of it.
fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let mut part = tempfile::Builder::new()
        // As any file that a build leaves; the umask still counts.
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    part.write_all(bytes)?;
    part.persist(path).with_context(|| format!("write {}", path.display()))?;
    Ok(())
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
        let mut results = Results::default();
        text.lines().for_each(|line| results.read(line));
        let failures = ["one of them", "pages"].map(str::to_owned).to_vec();
        assert_eq!(results.tally, Tally::of(5, 3, 1, failures));
    }

    #[test]
    fn versions_of_node_are_read() {
        let versions = ["v20.20.2", "v8.0.0", "20.1", ""].map(major);
        assert_eq!(versions, [Some(20), Some(8), None, None]);
    }

    #[test]
    fn sources_are_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["b.js", "a/c.js", "node_modules/x/d.js", "e.wasm", ".npmrc"] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let found = files(folder.path()).unwrap();
        assert_eq!(found, [".npmrc", "a/c.js", "b.js"].map(PathBuf::from));
    }

    #[test]
    fn a_component_counts_as_built_until_it_or_a_source_changes() {
        let root = tempfile::tempdir().unwrap();
        let (plugin, wasm) = (root.path().join("plugins/a"), root.path().join("a.wasm"));
        for folder in [SDK, "plugins/a"] {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("a"), "x").unwrap();
        }
        let workspace =
            Workspace { root: root.path().to_owned(), target: root.path().join("target"), packages: vec![] };
        let note = || said(inputs(&workspace, &plugin).unwrap(), &wasm);
        fs::write(&wasm, "wasm").unwrap();
        let built = note();
        assert_eq!(note(), built);
        fs::write(&wasm, "other").unwrap();
        assert_ne!(note(), built);
        fs::write(&wasm, "wasm").unwrap();
        fs::rename(plugin.join("a"), plugin.join("b")).unwrap();
        assert_ne!(note(), built);
    }
}

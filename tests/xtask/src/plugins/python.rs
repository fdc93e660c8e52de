//! Builds the plugins that are written in Python, and runs their unit tests and those of the SDK.
//!
//! The SDK builds components by itself; what it needs beside Python is in its `requirements.txt`, and is installed once, into
//! the cache. Packages that happen to be installed for Python here are left out, so that builds are the same everywhere.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Tested;
use crate::builds;
use crate::process;
use crate::test::tally::Tally;
use crate::ui::Task;
use crate::workspace::Workspace;

/// The folder of the SDK.
const SDK: &str = "sdk-guest/python";
/// What says which tools are needed, in that folder: to build components,
const LOCK: &str = "requirements.txt";
/// and to make packages of the SDK.
const PACKAGING: &str = "packaging.txt";
/// How the folders of plugins end; before it is the name of the module.
const SUFFIX: &str = "-python";
/// How the names of folders start that tools are installed in.
const PART: &str = "part-";
/// The oldest Python that will do.
const PYTHON: (u32, u32) = (3, 10);

/// Python with the SDK and what it needs.
struct Python {
    /// The folder of the SDK.
    sdk: PathBuf,
    /// The folder of installed tools.
    tools: PathBuf,
}

/// Builds the plugin in `folder` and writes the component to `out`, unless that was built from the same files.
pub(crate) fn build(task: &mut Task, workspace: &Workspace, folder: &Path, out: &Path) -> Result<()> {
    let module = module(folder)?;
    let python = Python::ensure(task, workspace, LOCK)?;
    let inputs = inputs(workspace, folder, &python)?;
    let stamp = out.with_extension("wasm.built");
    let is_built = |built: &str| fs::read_to_string(&stamp).is_ok_and(|said| said == built);
    if is_built(&built(inputs, out)) {
        return Ok(());
    }
    task.at(&format!("building {}", folder.display()));
    let mut command = python.command();
    command.args(["-m", "capstan", "build"]).arg(module);
    command.arg("--output").arg(out);
    builds::must(task, command, &format!("the build of {}", folder.display()))?;
    fs::write(&stamp, built(inputs, out)).with_context(|| format!("write {}", stamp.display()))
}

/// Runs the unit tests of the SDK and of the plugins in `folders`, which need no component.
pub(crate) fn test(task: &mut Task, workspace: &Workspace, folders: &[PathBuf]) -> Result<Tested> {
    let python = Python::ensure(task, workspace, LOCK)?;
    let mut tested = python.tests(task, &python.sdk.join("tests"))?;
    for folder in folders {
        // Where there are no tests, newer Pythons say that as a failure.
        if has_tests(folder)? {
            tested.add(python.tests(task, folder)?);
        }
    }
    Ok(tested)
}

/// Makes the SDK's wheel, out of its archive of sources.
pub(crate) fn pack(task: &mut Task, workspace: &Workspace, out: &Path) -> Result<()> {
    let python = Python::ensure(task, workspace, PACKAGING)?;
    let mut command = python.command();
    command.args(["-m", "build", "--no-isolation", "--outdir"]);
    command.arg(out).arg(&python.sdk);
    builds::must(task, command, "python -m build")
}

/// Says whether a folder has files that Python takes for tests.
fn has_tests(folder: &Path) -> Result<bool> {
    let mut files = Vec::new();
    collect(folder, "py", &mut files)?;
    let mut names = files.iter().filter_map(|file| file.file_name());
    Ok(names.any(|name| name.to_string_lossy().starts_with("test")))
}

/// Returns the author's file in the folder of a plugin: `webpage.py` in `webpage-python`.
fn module(folder: &Path) -> Result<PathBuf> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(SUFFIX).unwrap_or(&name).replace('-', "_");
    let module = folder.join(stem).with_extension("py");
    if !module.is_file() {
        bail!("a plugin in Python is built from its module, and there is no {}", module.display());
    }
    Ok(module)
}

/// Returns what a component and the files that it was built from are, as a text.
fn built(inputs: u64, out: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    // Without a component it says so, and is never what was noted.
    fs::read(out).ok().hash(&mut hasher);
    format!("{inputs:016x} {:016x}\n", hasher.finish())
}

/// Returns what a component depends on: the plugin, the SDK, the contract, and the tools.
fn inputs(workspace: &Workspace, folder: &Path, python: &Python) -> Result<u64> {
    let mut files = Vec::new();
    for (folder, extension) in [(folder, "py"), (&python.sdk.join("src"), "py"), (&workspace.root.join("wit"), "wit")] {
        collect(folder, extension, &mut files)?;
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    python.tools.file_name().hash(&mut hasher);
    for file in files {
        let text = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        (workspace.short(&file), text).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// Adds the files of a kind below a folder.
fn collect(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, extension, files)?;
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    Ok(())
}

// === impl Python ===

impl Python {
    /// Makes sure that the tools are there, installing them if need be.
    fn ensure(task: &mut Task, workspace: &Workspace, lock: &str) -> Result<Self> {
        let sdk = workspace.root.join(SDK);
        let version = version()?;
        let lock = sdk.join(lock);
        let text = fs::read(&lock).with_context(|| format!("read {}", lock.display()))?;
        let mut hasher = DefaultHasher::new();
        (text, &version, env::consts::OS, env::consts::ARCH).hash(&mut hasher);
        let shelf = cluster::cache()?.join("python");
        let tools = shelf.join(format!("{:016x}", hasher.finish()));
        if !tools.is_dir() {
            install(task, &shelf, &tools, &lock)?;
        }
        Ok(Self { sdk, tools })
    }

    /// Returns Python, to be run with the SDK.
    fn command(&self) -> Command {
        let mut path = OsString::from(self.sdk.join("src"));
        path.push(":");
        path.push(&self.tools);
        let mut command = Command::new("python3");
        command
            // Without the packages of this machine.
            .arg("-S")
            .env("PYTHONPATH", path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONUNBUFFERED", "1");
        command
    }

    fn tests(&self, task: &mut Task, folder: &Path) -> Result<Tested> {
        task.at(&format!("the tests in {}", folder.display()));
        let mut command = self.command();
        command.args(["-m", "unittest", "discover"]).current_dir(folder);
        let finished = process::run(command, &mut |line| {
            if !line.trim().is_empty() {
                task.at(line.trim());
            }
        })?;
        let mut tally = results(&finished.output);
        if !finished.status.success() && tally.failed == 0 {
            tally.failed = 1;
            let name = format!("{} (ended without a result)", folder.display());
            tally.failures.push(name);
        }
        Ok(Tested { finished, tally })
    }
}

/// Returns the version of Python. An error says which one is needed.
fn version() -> Result<String> {
    let (major, minor) = PYTHON;
    let need = format!("Python {major}.{minor} or newer is needed for the plugins in Python");
    let how = "install Python 3 with pip (python3 and python3-pip in most distributions), so that `python3` is it";
    let script = "import sys; print('%d.%d' % sys.version_info[:2])";
    let output = match Command::new("python3").args(["-c", script]).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("{need}, and there is no `python3`: {how}")
        }
        Err(error) => return Err(error).context("start python3"),
    };
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let numbers = said.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    match numbers {
        Some(found) if found >= PYTHON => Ok(said),
        Some(_) => bail!("{need}, and this is {said}: {how}"),
        None => bail!("{need}, and `python3` does not say its version: {how}"),
    }
}

/// Installs the tools, unless another process does. Half an installation has another name.
fn install(task: &mut Task, shelf: &Path, tools: &Path, lock: &Path) -> Result<()> {
    fs::create_dir_all(shelf).with_context(|| format!("create {}", shelf.display()))?;
    let _held = hold(task, &shelf.join("lock"))?;
    if tools.is_dir() {
        return Ok(());
    }
    sweep(shelf)?;
    task.at("installing the tools for Python (once)");
    let pip = Command::new("python3").args(["-m", "pip", "--version"]).output();
    if !pip.is_ok_and(|output| output.status.success()) {
        bail!(
            "pip is needed to install the tools for Python: `python3 -m ensurepip`, or python3-pip in most distributions"
        );
    }
    let part = tempfile::Builder::new().prefix(PART).tempdir_in(shelf)?;
    let mut command = Command::new("python3");
    command
        .args(["-m", "pip", "install", "--quiet", "--no-input"])
        .args(["--disable-pip-version-check", "--root-user-action=ignore"])
        .args(["--require-hashes", "--only-binary=:all:", "--no-deps"])
        .arg("--requirement")
        .arg(lock)
        .arg("--target")
        .arg(part.path());
    builds::must(task, command, "the installation of the tools for Python")?;
    fs::rename(part.keep(), tools).with_context(|| format!("put {}", tools.display()))
}

/// Removes what killed installations have left; the lock is held.
fn sweep(shelf: &Path) -> Result<()> {
    for entry in fs::read_dir(shelf)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PART) {
            // A killed pip may still be writing there; the next sweep gets it.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
    Ok(())
}

/// Returns a lock that ends with the returned file, and with the process.
fn hold(task: &mut Task, path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            task.at("waiting for another process to install the tools for Python");
            file.lock()?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).context("lock the folder of the tools for Python");
        }
    }
    Ok(file)
}

/// Reads what unittest writes: `FAIL: test_a (test_b.C.test_a)`, `Ran 8 tests in 0.1s`, `FAILED (failures=1, skipped=2)`.
fn results(lines: &[String]) -> Tally {
    let (mut ran, mut ignored, mut failures) = (0, 0, Vec::new());
    for line in lines {
        let failure = ["FAIL: ", "ERROR: "].iter().find_map(|start| line.strip_prefix(start));
        if let Some(failure) = failure {
            // What follows says which part of the test it was.
            let name = failure.split_once(") ").map_or(failure, |(name, _)| name);
            let name = name.trim_end_matches(')').to_owned() + ")";
            if !failures.contains(&name) {
                failures.push(name);
            }
        } else if let Some(rest) = line.strip_prefix("Ran ") {
            ran = number(rest);
        } else if line.starts_with("OK (") || line.starts_with("FAILED (") {
            let skipped = line.split_once("skipped=").map_or("", |(_, rest)| rest);
            ignored = number(skipped);
        }
    }
    let failed = failures.len() as u64;
    Tally::of(ran.saturating_sub(failed + ignored), failed, ignored, failures)
}

/// Returns the number that a text begins with.
fn number(text: &str) -> u64 {
    let digits = text.find(|letter: char| !letter.is_ascii_digit());
    let digits = digits.map_or(Some(text), |end| text.get(..end));
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Tally {
        results(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_results_of_unittest_are_read() {
        let text = "
.sF.E
======================================================================
ERROR: test_b (test_page.Page.test_b)
----------------------------------------------------------------------
FAIL: test_a (test_page.Page.test_a) (html='x')
FAIL: test_a (test_page.Page.test_a) [y] (html='z')
----------------------------------------------------------------------
Ran 5 tests in 0.010s

FAILED (failures=2, errors=1, skipped=1)";
        let failures = ["b", "a"].map(|name| format!("test_{name} (test_page.Page.test_{name})"));
        assert_eq!(read(text), Tally::of(2, 2, 1, failures.to_vec()));
        let passed = Tally::of(8, 0, 0, Vec::new());
        assert_eq!(read("........\nRan 8 tests in 0.010s\n\nOK"), passed);
        assert_eq!(read("Traceback (most recent call last):"), Tally::default());
    }

    #[test]
    fn a_plugin_is_built_from_the_module_of_its_name() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("web-page-python");
        fs::create_dir(&folder).unwrap();
        let error = module(&folder).unwrap_err().to_string();
        assert!(error.ends_with("web-page-python/web_page.py"), "{error}");
        fs::write(folder.join("web_page.py"), "").unwrap();
        assert_eq!(module(&folder).unwrap(), folder.join("web_page.py"));
    }

    #[test]
    fn a_component_is_as_noted_until_it_or_its_sources_change() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("a.wasm");
        fs::write(&out, "wasm").unwrap();
        let noted = built(1, &out);
        assert_eq!(built(1, &out), noted);
        assert_ne!(built(2, &out), noted);
        fs::write(&out, "other").unwrap();
        assert_ne!(built(1, &out), noted);
        fs::remove_file(&out).unwrap();
        assert_ne!(built(1, &out), noted);
    }
}

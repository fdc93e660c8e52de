//! Builds the plugins that are written in Python, and runs their unit tests and those of the SDK.
//!
//! The SDK builds components by itself; what it needs beside Python is in its `requirements.txt`, and is installed once, into
//! the cache. Packages that happen to be installed for Python here are left out, so that builds are the same everywhere.

use std::env::consts::{ARCH, OS};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::{Language, Tested, tested};
use crate::process::found;
use crate::test::tally::Tally;
use crate::ui::Task;
use crate::workspace::Workspace;
use crate::{files, process};

const SDK: &str = "sdk-guest/python";
/// What says which tools are needed to build components, and to make packages of the SDK.
const LOCK: &str = "sdk-guest/python/requirements.txt";
const PACKAGING: &str = "sdk-guest/python/packaging.txt";
/// How the folders of plugins end; before it is the name of the module.
const SUFFIX: &str = "-python";
const PYTHON: (u32, u32) = (3, 10);

pub(super) const LANGUAGE: Language =
    Language { mark: ".py", inputs: &["sdk-guest/python/src", LOCK, "wit"], build, test, pack };

fn build(task: &mut Task, workspace: &Workspace, folder: &Path) -> Result<Vec<u8>> {
    let (module, out) = (module(folder)?, tempfile::tempdir()?);
    let out = out.path().join("component.wasm");
    let mut command = python(task, workspace, LOCK)?;
    command.args(["-m", "capstan", "build"]).arg(module).arg("--output").arg(&out);
    process::must(task, command, &format!("the build of {}", folder.display()))?;
    files::bytes(&out)
}

fn test(task: &mut Task, workspace: &Workspace, folders: &[PathBuf]) -> Result<Vec<Tested>> {
    let mut runs = Vec::new();
    for folder in std::iter::once(&workspace.root.join(SDK).join("tests")).chain(folders) {
        let files = files::below(folder)?;
        let names = files.iter().filter_map(|file| file.file_name());
        // Where there are no tests, newer Pythons say that as a failure.
        if names.into_iter().any(|name| name.to_string_lossy().starts_with("test")) {
            let mut command = python(task, workspace, LOCK)?;
            command.args(["-m", "unittest", "discover"]).current_dir(folder);
            runs.push(tested(task, command, results)?);
        }
    }
    Ok(runs)
}

/// Makes the SDK's wheel, out of its archive of sources.
fn pack(task: &mut Task, workspace: &Workspace, out: &Path) -> Result<()> {
    let mut command = python(task, workspace, PACKAGING)?;
    command.args(["-m", "build", "--no-isolation", "--outdir"]);
    command.arg(out).arg(workspace.root.join(SDK));
    process::must(task, command, "python -m build")
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

/// Returns Python, to be run with the SDK and the tools of a lock file, without the packages of this machine.
fn python(task: &mut Task, workspace: &Workspace, lock: &str) -> Result<Command> {
    let lock = workspace.root.join(lock);
    let key = (files::bytes(&lock)?, version()?, OS, ARCH);
    let tools = files::tools(task, "Python", &key, |task, to| install(task, &lock, to))?;
    let mut path = OsString::from(workspace.root.join(SDK).join("src"));
    path.push(":");
    path.push(tools);
    let mut command = Command::new("python3");
    command.arg("-S").env("PYTHONPATH", path);
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUNBUFFERED", "1");
    Ok(command)
}

fn version() -> Result<String> {
    let (major, minor) = PYTHON;
    let need = format!("Python {major}.{minor} or newer is needed for the plugins in Python");
    let how = "install Python 3 with pip (python3 and python3-pip in most distributions), so that `python3` is it";
    let mut command = Command::new("python3");
    command.args(["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]);
    let Some(output) = process::output(command)? else {
        bail!("{need}, and there is no `python3`: {how}");
    };
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let numbers = found(r"^(\d+)\.(\d+)$", &said);
    match numbers.and_then(|[major, minor]| Some((major.parse().ok()?, minor.parse().ok()?))) {
        Some(version) if version >= PYTHON => Ok(said),
        Some(_) => bail!("{need}, and this is {said}: {how}"),
        None => bail!("{need}, and `python3` does not say its version: {how}"),
    }
}

fn install(task: &mut Task, lock: &Path, to: &Path) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--version"]);
    if !process::output(pip)?.is_some_and(|output| output.status.success()) {
        bail!(
            "pip is needed to install the tools for Python: `python3 -m ensurepip`, or python3-pip in most distributions"
        );
    }
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--no-input"]);
    command.args(["--disable-pip-version-check", "--root-user-action=ignore"]);
    command.args(["--require-hashes", "--only-binary=:all:", "--no-deps"]);
    command.arg("--requirement").arg(lock).arg("--target").arg(to);
    process::must(task, command, "the installation of the tools for Python")
}

/// Reads what unittest writes: `FAIL: test_a (test_b.C.test_a)`, `Ran 8 tests in 0.1s`, `FAILED (failures=1, skipped=2)`.
fn results(lines: &[String]) -> Tally {
    let (mut tally, mut ran) = (Tally::default(), 0);
    for line in lines {
        // What follows says which part of the test it was.
        if let Some([name]) = found(r"^(?:FAIL|ERROR): (.*?\))(?: |$)", line) {
            tally.fail(name);
        } else if let Some([number]) = found(r"^Ran (\d+) ", line) {
            ran = number.parse().unwrap_or(0);
        } else if let Some([number]) = found(r"^(?:OK|FAILED) \(.*skipped=(\d+)", line) {
            tally.count(number, "skipped");
        }
    }
    tally.failed = tally.failures.len() as u64;
    tally.passed = u64::saturating_sub(ran, tally.failed + tally.ignored);
    tally
}

#[cfg(test)]
mod tests {
    use std::fs;

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
}

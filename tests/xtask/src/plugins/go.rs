//! Builds plugins written in Go, and runs the tests of their SDK and their own.
//!
//! The SDK's tool `component` compiles the parts (a core module, an adapter, their WIT), and here they are joined by the
//! crates that `wasm-tools` is made of: nobody has to install that.

use std::fs::{self, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::Tested;
use crate::builds;
use crate::process;
use crate::test::tally::Tally;
use crate::ui::Task;
use crate::workspace::Workspace;

#[cfg(test)]
mod bindings;

/// Where the SDK is, as seen from the root.
const SDK: &str = "sdk-guest/go";
/// What a core module calls its system, for which the adapter stands in.
const SYSTEM: &str = "wasi_snapshot_preview1";
/// Changes when a component made of the same files would be another one.
const RECIPE: u32 = 1;

/// The results of tests written in Go, as far as they have been read.
#[derive(Debug, Default, PartialEq, Eq)]
struct Results {
    /// Tests that passed.
    passed: u64,
    /// What failed: tests by name, and packages that could not be built.
    failed: Vec<String>,
}

/// Go, in the version that the SDK names.
#[derive(Debug)]
struct Go {
    /// Such as `go1.27.3`.
    toolchain: String,
}

/// Builds the plugin in `folder` and writes its component to `out`, unless that is up to date.
pub(crate) fn build(task: &mut Task, workspace: &Workspace, folder: &Path, out: &Path) -> Result<()> {
    let sdk = workspace.root.join(SDK);
    let inputs = fingerprint(&[&sdk, folder])?;
    let stamp = out.with_extension("wasm.inputs");
    if out.is_file() && fs::read_to_string(&stamp).is_ok_and(|built| built == inputs) {
        return Ok(());
    }
    let go = Go::of(&sdk)?;
    go.ensure(task, folder)?;
    let parts = tempfile::tempdir()?;
    let mut command = go.command(folder);
    command.args(["tool", "component", "-stage"]);
    command.arg(parts.path()).arg(".");
    let short = workspace.short(folder).display();
    builds::must(task, command, &format!("the build of {short}"))?;
    let component = join(parts.path()).with_context(|| format!("make a component of {short}"))?;
    // In this order: a stamp without its component would be believed.
    replace(out, &component)?;
    replace(&stamp, inputs.as_bytes())
}

/// Runs the tests of the SDK, and of the plugins in these folders.
pub(crate) fn test(task: &mut Task, workspace: &Workspace, folders: &[PathBuf]) -> Result<Tested> {
    let sdk = workspace.root.join(SDK);
    let go = Go::of(&sdk)?;
    go.ensure(task, &sdk)?;
    let mut tested = go.test(task, &sdk)?;
    for folder in folders {
        tested.add(go.test(task, folder)?);
    }
    Ok(tested)
}

/// Puts the files that Go fetches as the SDK's module into the folder `go` of `out`, and compiles them there.
pub(crate) fn pack(task: &mut Task, workspace: &Workspace, out: &Path) -> Result<()> {
    let (sdk, module) = (workspace.root.join(SDK), out.join("go"));
    let mut files = Vec::new();
    collect(&sdk, &mut files)?;
    // Go leaves links out.
    for file in files.iter().filter(|file| !file.is_symlink()) {
        let to = module.join(file.strip_prefix(&sdk)?);
        fs::create_dir_all(to.parent().unwrap_or(&module))?;
        fs::copy(file, to).with_context(|| format!("copy {}", file.display()))?;
    }
    let go = Go::of(&sdk)?;
    go.ensure(task, &sdk)?;
    let mut command = go.command(&module);
    command.env("GOPROXY", "off").args(["vet", "./..."]);
    builds::must(task, command, "go vet of the module")
}

// === impl Results ===

impl Results {
    /// Takes in a line of `go test -v`. Subtests are indented and count with their test.
    fn read(&mut self, line: &str) {
        let test = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        if line.starts_with("--- PASS: ") {
            self.passed += 1;
        } else if let Some(name) = line.strip_prefix("--- FAIL: ") {
            self.failed.push(test(name));
        } else if let Some(package) = line.strip_prefix("FAIL\t")
            && package.ends_with("failed]")
        {
            self.failed.push(package.replace('\t', " "));
        }
    }
}

// === impl Go ===

impl Go {
    /// Returns the Go that the module of the SDK asks for.
    fn of(sdk: &Path) -> Result<Self> {
        let file = sdk.join("go.mod");
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let toolchain = text
            .lines()
            .find_map(|line| line.strip_prefix("toolchain "))
            .with_context(|| format!("{} names no toolchain", file.display()))?;
        Ok(Self { toolchain: toolchain.trim().to_owned() })
    }

    /// Returns `go`, to be run in a folder.
    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new("go");
        command
            .current_dir(folder)
            .env("GOTOOLCHAIN", &self.toolchain)
            // What a workspace file above us says is not for us.
            .env("GOWORK", "off");
        command
    }

    fn test(&self, task: &mut Task, folder: &Path) -> Result<Tested> {
        let mut command = self.command(folder);
        command.args(["test", "-v", "./..."]);
        let mut results = Results::default();
        let finished = process::run(command, &mut |line| {
            task.at(line.trim());
            results.read(line);
        })?;
        let Results { passed, failed } = results;
        let mut count = failed.len() as u64;
        if !finished.status.success() {
            count = count.max(1);
        }
        let tally = Tally::of(passed, count, 0, failed);
        Ok(Tested { finished, tally })
    }

    /// Makes sure that the toolchain is there. Go fetches it itself, as a module, and checks it.
    fn ensure(&self, task: &mut Task, folder: &Path) -> Result<()> {
        let Self { toolchain } = self;
        let purpose = format!("Go is needed to build plugins written in it, by its {toolchain}");
        let help = "install Go 1.21 or newer from https://go.dev/dl; it fetches the version that is needed";
        let mut probe = self.command(folder);
        probe.env("GOPROXY", "off").args(["version"]);
        probe.stdout(Stdio::null()).stderr(Stdio::null());
        match probe.status() {
            Ok(status) if status.success() => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("{purpose}, and there is no `go`: {help}")
            }
            Err(error) => return Err(error).context("start go"),
        }
        task.announce(&format!("fetching {toolchain} (once)"));
        let mut fetch = self.command(folder);
        fetch.arg("version");
        builds::must(task, fetch, &format!("`GOTOOLCHAIN={toolchain} go version`"))
            .with_context(|| format!("{purpose}; if yours does not know GOTOOLCHAIN, {help}"))
    }
}

/// Returns the component that the staged parts make.
fn join(parts: &Path) -> Result<Vec<u8>> {
    let mut core = fs::read(parts.join("core.wasm")).context("read core.wasm")?;
    let mut adapter = wat::parse_file(parts.join("adapter.wat"))?;
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(parts.join("wit"))?;
    for (module, name) in [(&mut core, "component"), (&mut adapter, "adapter")] {
        let world = resolve.select_world(&[package], Some(name))?;
        embed_component_metadata(module, &resolve, world, StringEncoding::UTF8)?;
    }
    ComponentEncoder::default().module(&core)?.adapter(SYSTEM, &adapter)?.encode()
}

/// Returns a text that changes with the files of these folders.
fn fingerprint(folders: &[&Path]) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    RECIPE.hash(&mut hasher);
    for folder in folders {
        let mut files = Vec::new();
        collect(folder, &mut files).with_context(|| format!("read {}", folder.display()))?;
        files.sort();
        for file in files {
            file.hash(&mut hasher);
            fs::read(&file).with_context(|| format!("read {}", file.display()))?.hash(&mut hasher);
        }
    }
    Ok(format!("{:016x}\n", hasher.finish()))
}

/// Adds the files below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// Writes a file in one go: somebody may be reading the old one.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let mut part = tempfile::Builder::new()
        // As any file that a build leaves; the umask still counts.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    std::io::Write::write_all(&mut part, bytes)?;
    part.persist(path).with_context(|| format!("write {}", path.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_go_tests_are_counted_without_subtests() {
        let mut results = Results::default();
        let output = "\
=== RUN   TestOne
--- PASS: TestOne (0.00s)
=== RUN   TestTwo
    two_test.go:7: it is not
    --- PASS: TestTwo/inner (0.00s)
--- FAIL: TestTwo (0.00s)
FAIL
FAIL\texample.com/a\t0.005s
# example.com/b
FAIL\texample.com/b [build failed]
FAIL";
        output.lines().for_each(|line| results.read(line));
        let expected =
            Results { passed: 1, failed: vec!["TestTwo".to_owned(), "example.com/b [build failed]".to_owned()] };
        assert_eq!(results, expected);
    }

    #[test]
    fn a_change_of_any_file_is_a_reason_to_build() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        let file = folder.path().join("inner/main.go");
        let fingerprint = || fingerprint(&[folder.path()]).unwrap();
        fs::write(&file, "one").unwrap();
        let one = fingerprint();
        assert_eq!(one, fingerprint());
        fs::write(&file, "two").unwrap();
        let two = fingerprint();
        fs::rename(&file, folder.path().join("main.go")).unwrap();
        let moved = fingerprint();
        assert!(one != two && two != moved && one != moved);
    }

    #[test]
    fn the_toolchain_is_the_one_of_the_sdk() {
        let sdk = Workspace::load().unwrap().root.join(SDK);
        let Go { toolchain } = Go::of(&sdk).unwrap();
        assert!(toolchain.starts_with("go1."), "{toolchain}");
    }
}

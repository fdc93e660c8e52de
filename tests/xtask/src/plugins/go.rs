//! Builds plugins written in Go, and runs the tests of their SDK and their own.
//!
//! The SDK's tool `component` compiles the parts (a core module, an adapter, their WIT), and has the daemon's program join them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Language, Tested, tested};
use crate::process::found;
use crate::test::tally::Tally;
use crate::ui::Task;
use crate::workspace::Workspace;
use crate::{files, process};

#[cfg(test)]
mod bindings;

const SDK: &str = "sdk-guest/go";
/// How components are joined: it changes when one made of the same files would be another.
const RECIPE: &str = "host/src/cli/component.rs";

pub(super) const LANGUAGE: Language = Language { mark: "go.mod", inputs: &[SDK, RECIPE], build, test, pack };

/// Go, in the version that the SDK names.
#[derive(Debug)]
struct Go {
    /// Such as `go1.27.3`.
    toolchain: String,
}

fn build(task: &mut Task, workspace: &Workspace, folder: &Path) -> Result<Vec<u8>> {
    let go = Go::ensure(task, workspace)?;
    process::must(task, workspace.build_daemon(), "the build of the daemon")?;
    let out = tempfile::tempdir()?;
    let component = out.path().join("component.wasm");
    let mut command = go.command(folder);
    command.args(["tool", "component", "-o"]).arg(&component).arg(".").env("CAPSTAN", workspace.daemon());
    process::must(task, command, &format!("the build of {}", workspace.short(folder).display()))?;
    files::bytes(&component)
}

fn test(task: &mut Task, workspace: &Workspace, folders: &[PathBuf]) -> Result<Vec<Tested>> {
    let go = Go::ensure(task, workspace)?;
    let sdk = workspace.root.join(SDK);
    let runs = std::iter::once(&sdk).chain(folders).map(|folder| {
        let mut command = go.command(folder);
        command.args(["test", "-v", "./..."]);
        tested(task, command, results)
    });
    runs.collect()
}

/// Puts the files that Go fetches as the SDK's module into the folder `go` of `out`, and compiles them there.
fn pack(task: &mut Task, workspace: &Workspace, out: &Path) -> Result<()> {
    let (sdk, module) = (workspace.root.join(SDK), out.join("go"));
    files::copy(&sdk, &module)?;
    // Go leaves links out.
    for link in files::below(&sdk)?.iter().filter(|file| file.is_symlink()) {
        fs::remove_file(module.join(link.strip_prefix(&sdk)?))?;
    }
    let mut command = Go::ensure(task, workspace)?.command(&module);
    command.env("GOPROXY", "off").args(["vet", "./..."]);
    process::must(task, command, "go vet of the module")
}

/// Reads what `go test -v` writes. Subtests are indented and count with their test; a package that can't be built is a failure.
fn results(lines: &[String]) -> Tally {
    let mut tally = Tally::default();
    for line in lines {
        if line.starts_with("--- PASS: ") {
            tally.passed += 1;
        } else if let Some([name]) = found(r"^--- FAIL: (\S+)", line).or_else(|| found(r"^FAIL\t(.*failed\])$", line)) {
            tally.failed += 1;
            tally.fail(&name.replace('\t', " "));
        }
    }
    tally
}

/// Returns what `go.mod` of the SDK says after a word.
pub(super) fn named(workspace: &Workspace, word: &str) -> Result<String> {
    let text = files::text(&workspace.root.join(SDK).join("go.mod"))?;
    let value = text.lines().find_map(|line| line.strip_prefix(word));
    Ok(value.with_context(|| format!("go.mod of the SDK has no line `{word}…`"))?.trim().to_owned())
}

impl Go {
    /// Makes sure that the toolchain that the module of the SDK asks for is there. Go fetches it itself, as a module, and checks it.
    fn ensure(task: &mut Task, workspace: &Workspace) -> Result<Self> {
        let sdk = workspace.root.join(SDK);
        let toolchain = named(workspace, "toolchain ")?;
        let purpose = format!("Go is needed to build plugins written in it, by its {toolchain}");
        let help = "install Go 1.21 or newer from https://go.dev/dl; it fetches the version that is needed";
        let go = Self { toolchain };
        let mut probe = go.command(&sdk);
        probe.env("GOPROXY", "off").arg("version");
        match process::output(probe)? {
            None => bail!("{purpose}, and there is no `go`: {help}"),
            Some(output) if output.status.success() => return Ok(go),
            Some(_) => {}
        }
        task.announce(&format!("fetching {} (once)", go.toolchain));
        let mut fetch = go.command(&sdk);
        fetch.arg("version");
        process::must(task, fetch, &format!("`GOTOOLCHAIN={} go version`", go.toolchain))
            .with_context(|| format!("{purpose}; if yours does not know GOTOOLCHAIN, {help}"))?;
        Ok(go)
    }

    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new("go");
        // What a workspace file above us says is not for us.
        command.current_dir(folder).env("GOTOOLCHAIN", &self.toolchain).env("GOWORK", "off");
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_name_a_version_of_go_name_that_of_the_sdk() {
        let workspace = Workspace::load().unwrap();
        let version = named(&workspace, "go ").unwrap();
        for file in [
            "sdk-guest/go/README.md",
            "docs/languages.md",
            "host/templates/go/steps.md",
            "host/templates/go/go.mod",
            "plugins/webpage-go/go.mod",
            "tests/guests/probe-go/go.mod",
        ] {
            let text = files::text(&workspace.root.join(file)).unwrap();
            let named = found(r"[Gg]o (1\.\d+\.\d+)", &text);
            assert_eq!(named, Some([&*version]), "{file}");
        }
    }

    #[test]
    fn the_results_of_go_tests_are_counted_without_subtests() {
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
        let lines: Vec<String> = output.lines().map(str::to_owned).collect();
        let failures = ["TestTwo", "example.com/b [build failed]"].map(str::to_owned).to_vec();
        assert_eq!(results(&lines), Tally::of(1, 2, 0, failures));
    }
}

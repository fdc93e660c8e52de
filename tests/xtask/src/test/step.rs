//! Decides what each step runs, and what it needs.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use anyhow::Result;
use clap::ValueEnum;
use cluster::{SHARED, Tool};

use crate::plugins::{self, Language, Tested};
use crate::test::Run;
use crate::test::tally::Tally;
use crate::ui::{Task, dim, size};
use crate::workspace::Workspace;
use crate::{builds, control_plane, image, packages, process};

/// A step, in the order in which they run: by speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Step {
    /// Is the code formatted?
    Fmt,
    /// The tests of the core.
    Core,
    /// Clippy.
    Lint,
    /// Is the documentation whole?
    Doc,
    /// Build the sample plugins.
    Plugins,
    /// Build the daemon.
    Daemon,
    /// All other tests that need no cluster.
    Unit,
    /// The unit tests of the SDKs and plugins in other languages than Rust.
    Languages,
    /// Are the packages of the SDKs whole?
    Packages,
    /// Start a control plane for the scenarios.
    Cluster,
    /// The tests that need a cluster.
    Scenarios,
    /// Build the container image, and run a daemon out of it.
    Image,
    /// Licences, sources and duplicates of dependencies.
    Deny,
}

/// Which optional tools are installed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tools {
    nextest: bool,
    deny: bool,
}

/// How a step has ended.
pub(crate) struct Shown {
    pub(crate) succeeded: bool,
    pub(crate) tally: Tally,
    /// What there is to say of it.
    pub(crate) detail: String,
}

/// Which packages' tests are run.
#[derive(Clone, Copy)]
enum Packages {
    Core,
    /// Those of the core have run, the others need a cluster.
    Others,
    NeedCluster,
    /// Of those, the ones about the image.
    NeedImage,
}

/// How the names of the tests start that need the container image.
const IMAGE_TESTS: &str = "image::";
/// Names the archive of the image to them.
const IMAGE: &str = "CAPSTAN_IMAGE";

// === impl Step ===

impl Step {
    pub(crate) const ALL: [Self; 13] = [
        Self::Fmt,
        Self::Core,
        Self::Lint,
        Self::Doc,
        Self::Plugins,
        Self::Daemon,
        Self::Unit,
        Self::Languages,
        Self::Packages,
        Self::Cluster,
        Self::Scenarios,
        Self::Image,
        Self::Deny,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Core => "core",
            Self::Lint => "lint",
            Self::Doc => "doc",
            Self::Plugins => "plugins",
            Self::Daemon => "daemon",
            Self::Unit => "unit",
            Self::Languages => "languages",
            Self::Packages => "packages",
            Self::Cluster => "cluster",
            Self::Scenarios => "scenarios",
            Self::Image => "image",
            Self::Deny => "deny",
        }
    }

    /// Returns what it does, for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Fmt => "is the code formatted?",
            Self::Core => "tests of the core",
            Self::Lint => "clippy",
            Self::Doc => "is the documentation whole?",
            Self::Plugins => "building the sample plugins",
            Self::Daemon => "building the daemon",
            Self::Unit => "all other tests without a cluster",
            Self::Languages => "tests of Python, JavaScript and Go",
            Self::Packages => "are the packages of the SDKs whole?",
            Self::Cluster => "starting a control plane",
            Self::Scenarios => "tests on the control plane",
            Self::Image => "building the container image, and its tests",
            Self::Deny => "licences, sources and duplicates of dependencies",
        }
    }

    /// Says whether it has tests that a name can choose.
    pub(crate) fn has_tests(self) -> bool {
        matches!(self, Self::Core | Self::Unit | Self::Scenarios)
    }

    /// Returns the steps without which it can't run.
    pub(crate) fn needs(self) -> &'static [Self] {
        match self {
            Self::Scenarios => &[Self::Plugins, Self::Daemon, Self::Cluster],
            Self::Image => &[Self::Plugins, Self::Cluster],
            // Tests of the daemon load built plugins.
            Self::Unit => &[Self::Plugins],
            Self::Fmt
            | Self::Core
            | Self::Lint
            | Self::Doc
            | Self::Plugins
            | Self::Daemon
            | Self::Languages
            | Self::Packages
            | Self::Cluster
            | Self::Deny => &[],
        }
    }

    /// Returns why it can't run here, if so.
    pub(crate) fn absent(self, tools: Tools) -> Option<&'static str> {
        (self == Self::Deny && !tools.deny).then_some("cargo-deny is not installed")
    }

    /// Runs it. The output of what fails has been shown whole.
    pub(crate) fn run(self, run: &mut Run<'_>, task: &mut Task) -> Result<Shown> {
        let cargo = |words: &[&str]| {
            let mut command = run.workspace.cargo();
            command.args(words);
            command
        };
        match self {
            Self::Fmt => {
                let mut command = cargo(&["fmt", "--all", "--check"]);
                if !console::colors_enabled() {
                    command.args(["--", "--color=never"]);
                }
                run_all(task, [command])
            }
            Self::Core => run.tests(task, Packages::Core),
            Self::Lint => {
                let words = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
                run_all(task, [cargo(&words)])
            }
            Self::Doc => {
                let mut command = cargo(&["doc", "--no-deps"]);
                command.args(["-p", "capstan", "-p", "capstan-core", "-p", "capstan-guest"]);
                command.env("RUSTDOCFLAGS", "-D warnings");
                run_all(task, [command])
            }
            Self::Plugins => plugins::build(task, run.workspace, &[]).map(Shown::succeeded),
            Self::Daemon => run_all(task, [run.workspace.build_daemon()]),
            Self::Unit => run.tests(task, Packages::Others),
            Self::Languages => run.languages(task),
            Self::Packages => run.packages(task),
            Self::Cluster => run.start_cluster(task),
            Self::Scenarios => run.tests(task, Packages::NeedCluster),
            Self::Image => run.image(task),
            Self::Deny => run.deny(task),
        }
    }
}

// === impl Tools ===

impl Tools {
    /// Asks for each tool's version.
    pub(crate) fn find(workspace: &Workspace) -> Self {
        let is_there = |name: &str| {
            let mut command = workspace.cargo();
            command.args([name, "--version"]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        Self { nextest: is_there("nextest"), deny: is_there("deny") }
    }
}

// === impl Shown ===

impl Shown {
    pub(crate) fn failed() -> Self {
        Self { succeeded: false, tally: Tally::default(), detail: String::new() }
    }

    fn succeeded(detail: String) -> Self {
        Self { succeeded: true, tally: Tally::default(), detail }
    }
}

// === impl Run ===

impl Run<'_> {
    fn tests(&self, task: &mut Task, packages: Packages) -> Result<Shown> {
        let doc_tests = || {
            let mut command = self.cargo(&["test", "--doc", "--no-fail-fast"], packages);
            command.arg("--").args(packages.names(self.filter));
            command
        };
        let mut commands = Vec::new();
        if self.tools.nextest {
            let words = ["nextest", "run", "--no-fail-fast", "--no-tests=pass"];
            let mut command = self.cargo(&words, packages);
            if packages.are_ignored() {
                command.args(["--run-ignored", "all"]);
            }
            command.arg("--").args(packages.names(self.filter));
            commands.extend([command, doc_tests()]);
        } else {
            let mut command = self.cargo(&["test", "--no-fail-fast"], packages);
            command.arg("--").args(packages.names(self.filter));
            if packages.are_ignored() {
                command.arg("--include-ignored");
            }
            commands.push(command);
        }
        run_all(task, commands)
    }

    /// Runs the tests of all other languages, whatever becomes of the ones before. They know no filter.
    fn languages(&self, task: &mut Task) -> Result<Shown> {
        let mut shown = Shown::succeeded(String::new());
        for language in Language::ALL {
            let Tested { finished, tally } = plugins::test(task, self.workspace, language)?;
            if !finished.status.success() {
                shown.succeeded = false;
                task.whole(&finished.output);
            }
            shown.tally.add(tally);
        }
        shown.detail = shown.tally.to_string();
        Ok(shown)
    }

    /// Each package counts as a test.
    fn packages(&self, task: &mut Task) -> Result<Shown> {
        let mut shown = Shown::succeeded(String::new());
        for (name, wrong) in packages::check(task, self.workspace)? {
            let lines: Vec<String> = wrong.iter().map(|text| format!("{name} {text}")).collect();
            task.whole(&lines);
            let failures: Vec<String> = (!wrong.is_empty()).then_some(name).into_iter().collect();
            let failed = failures.len() as u64;
            shown.succeeded &= failed == 0;
            shown.tally.add(Tally::of(1 - failed, failed, 0, failures));
        }
        shown.detail = shown.tally.to_string();
        Ok(shown)
    }

    fn cargo(&self, words: &[&str], packages: Packages) -> Command {
        let mut command = self.workspace.cargo();
        command.args(words);
        command.args(packages.arguments());
        if let Some(cluster) = &self.cluster {
            command.env(SHARED, cluster.dir());
        }
        if let Some(image) = &self.image {
            command.env(IMAGE, image);
        }
        command
    }

    fn start_cluster(&mut self, task: &mut Task) -> Result<Shown> {
        // Built here, and not within the time of a test.
        control_plane::prepare(task, BTreeSet::from([Tool::Helm]))?;
        let cluster = control_plane::start(task, control_plane::for_tests(self.workspace)?)?;
        let detail = format!("Kubernetes {}", cluster.version());
        self.cluster = Some(cluster);
        Ok(Shown::succeeded(detail))
    }

    /// The tests of the image are a step of their own: nobody else has to wait until a second daemon is built.
    fn image(&mut self, task: &mut Task) -> Result<Shown> {
        let image = image::for_tests(task, self.workspace)?;
        self.image = Some(image.archive);
        let mut shown = self.tests(task, Packages::NeedImage)?;
        shown.detail = format!("{}; {}", shown.detail, size(image.size));
        Ok(shown)
    }

    /// A new advisory is shown and fails nothing: it would break commits that were right.
    fn deny(&self, task: &mut Task) -> Result<Shown> {
        let check = |checks: &[&str]| {
            let mut command = self.workspace.cargo();
            command.args(["deny", "check"]).args(checks);
            command
        };
        let mut shown = run_all(task, [check(&["bans", "licenses", "sources"])])?;
        let advisories = builds::show(task, check(&["advisories"]), &mut |_| {})?;
        if !advisories.status.success() {
            task.whole(&advisories.output);
            "but look at the advisories above".clone_into(&mut shown.detail);
        }
        Ok(shown)
    }
}

/// Runs commands whatever becomes of the ones before, and adds up their tests.
fn run_all(task: &mut Task, commands: impl IntoIterator<Item = Command>) -> Result<Shown> {
    let mut shown = Shown::succeeded(String::new());
    for mut command in commands {
        command.env("INSTA_UPDATE", "no");
        let line = dim(&format!("$ cargo {}", process::typed(command.get_args())));
        let mut tally = Tally::default();
        let finished = builds::show(task, command, &mut |line| tally.read(line))?;
        if finished.status.success() {
            shown.tally.add(tally);
            continue;
        }
        shown.succeeded = false;
        shown.tally.add(tally.after_failure());
        task.whole(&[line]);
        task.whole(&finished.output);
    }
    shown.detail = shown.tally.to_string();
    Ok(shown)
}

// === impl Packages ===

impl Packages {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Core => &["-p", "capstan-core"],
            Self::Others => {
                &["--workspace", "--exclude", "capstan-core", "--exclude", "scenarios", "--exclude", "cluster"]
            }
            Self::NeedCluster => &["-p", "scenarios", "-p", "cluster", "-p", "model"],
            Self::NeedImage => &["-p", "scenarios"],
        }
    }

    /// Returns the words for the test harness that say which tests are run. Those of the image are few: no filter chooses
    /// among them.
    fn names(self, filter: Option<&str>) -> Vec<&str> {
        match self {
            Self::Core | Self::Others => filter.into_iter().collect(),
            Self::NeedCluster => filter.into_iter().chain(["--skip", IMAGE_TESTS]).collect(),
            Self::NeedImage => vec![IMAGE_TESTS],
        }
    }

    /// Returns whether tests are marked as ignored because they need a cluster.
    fn are_ignored(self) -> bool {
        match self {
            Self::Core | Self::Others => false,
            Self::NeedCluster | Self::NeedImage => true,
        }
    }
}

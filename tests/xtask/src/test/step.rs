//! Decides what each step runs, and what it needs.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;
use cluster::{Options, SHARED, Tool};

use super::stress::Stress;
use super::{Outcome, Run, Shown};
use crate::test::tally::Tally;
use crate::ui::{Task, dim, size};
use crate::workspace::Workspace;
use crate::{control_plane, first_hour, image, packages, plugins, process, servers};

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
    /// Get the servers that tests talk to: a database, a registry.
    Servers,
    /// Start a control plane for the scenarios.
    Cluster,
    /// From an empty folder to a running operator, in each language.
    Init,
    /// The tests that need a cluster.
    Scenarios,
    /// Build the container image, and run a daemon out of it.
    Image,
    /// Licences, sources and duplicates of dependencies.
    Deny,
}

/// The packages whose tests need a cluster: always the same, as fewer would have other features, and be compiled again.
const ON_A_CLUSTER: &str = "-p scenarios -p cluster -p model";
/// How the names of the tests start that need the container image.
const IMAGE_TESTS: &str = "image::";
/// Names the archive of the image to them.
const IMAGE: &str = "CAPSTAN_IMAGE";

// === impl Step ===

impl Step {
    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Returns what it does, for people.
    pub(crate) fn title(self) -> String {
        let value = self.to_possible_value();
        value.as_ref().and_then(|value| value.get_help()).map(ToString::to_string).unwrap_or_default()
    }

    /// Says whether it has tests that a name can choose.
    pub(crate) fn has_tests(self) -> bool {
        matches!(self, Self::Core | Self::Unit | Self::Init | Self::Scenarios)
    }

    /// Returns the steps without which it can't run.
    pub(crate) fn needs(self) -> &'static [Self] {
        use Step::{
            Cluster, Core, Daemon, Deny, Doc, Fmt, Image, Init, Languages, Lint, Packages, Plugins, Scenarios, Servers,
            Unit,
        };
        match self {
            Scenarios => &[Plugins, Daemon, Servers, Cluster],
            Init => &[Daemon, Servers, Cluster],
            Image => &[Plugins, Cluster],
            // Tests of the daemon load built plugins.
            Unit => &[Plugins],
            Fmt | Core | Lint | Doc | Plugins | Daemon | Languages | Packages | Servers | Cluster | Deny => &[],
        }
    }

    /// Returns why it can't run here, if so.
    pub(crate) fn absent(self, workspace: &Workspace) -> Option<String> {
        let is_absent = self == Self::Deny && !has(workspace, "deny");
        is_absent.then(|| "cargo-deny is not installed".to_owned())
    }
}

fn has(workspace: &Workspace, name: &str) -> bool {
    let mut command = workspace.cargo();
    command.args([name, "--version"]);
    process::output(command).is_ok_and(|output| output.is_some_and(|output| output.status.success()))
}

// === impl Run ===

impl Run<'_> {
    /// Runs a step. The output of what fails has been shown whole.
    pub(super) fn run(&mut self, step: Step, task: &mut Task) -> Result<Shown> {
        let names: Vec<&str> = self.filter.into_iter().collect();
        if matches!(step, Step::Init | Step::Scenarios) && self.is_image_wanted && self.ahead.is_none() && !self.stress
        {
            // What keeps it from starting is told where it is built.
            self.ahead = image::ahead(task, self.workspace).ok();
        }
        match step {
            Step::Fmt => {
                let plain = if console::colors_enabled() { "" } else { "-- --color=never" };
                run_all(task, [self.cargo(&format!("fmt --all --check {plain}"))])
            }
            Step::Core => self.tests(task, "-p capstan-core", &names),
            Step::Lint => run_all(task, [self.cargo("clippy --workspace --all-targets -- -D warnings")]),
            Step::Doc => {
                let mut command = self.cargo("doc --no-deps -p capstan -p capstan-core -p capstan-guest");
                command.env("RUSTDOCFLAGS", "-D warnings");
                run_all(task, [command])
            }
            Step::Plugins => Ok(Shown::new(Outcome::Passed, plugins::build(task, self.workspace, &[])?)),
            Step::Daemon => run_all(task, [self.workspace.build_daemon()]),
            // Those of the core have run, the others need a cluster.
            Step::Unit => {
                self.tests(task, "--workspace --exclude capstan-core --exclude scenarios --exclude cluster", &names)
            }
            Step::Languages => self.languages(task),
            Step::Packages => self.packages(task),
            Step::Servers => self.servers(task),
            Step::Cluster => self.start_cluster(task),
            Step::Init => self.init(task),
            Step::Scenarios => {
                let names = [&names[..], &["--skip", IMAGE_TESTS]].concat();
                rounds(self.times, || self.tests(task, ON_A_CLUSTER, &names))
            }
            Step::Image => self.image(task),
            Step::Deny => self.deny(task),
        }
    }

    fn cargo(&self, words: &str) -> Command {
        let mut command = self.workspace.cargo();
        command.args(words.split_whitespace());
        command
    }

    /// Gets the servers, whatever becomes of the ones before.
    fn servers(&mut self, task: &mut Task) -> Result<Shown> {
        let mut last = Ok(());
        for server in &servers::ALL {
            match server.prepare(task) {
                Ok(folder) => self.servers.push((server.variable, folder)),
                Err(error) => last = Err(error),
            }
        }
        last?;
        let folders = self.servers.iter().map(|(_, folder)| self.workspace.short(folder).display().to_string());
        Ok(Shown::new(Outcome::Passed, folders.collect::<Vec<_>>().join(" ")))
    }

    /// Runs the tests of packages: those of these names, and only on a cluster those that are ignored because they need one.
    fn tests(&self, task: &mut Task, packages: &str, names: &[&str]) -> Result<Shown> {
        let ignored = self.cluster.is_some();
        let test = |words: &str, harness: &[&str]| {
            let mut command = self.cargo(&format!("{words} {packages}"));
            command.arg("--").args(names).args(harness);
            command.envs(self.cluster.as_ref().map(|cluster| (SHARED, cluster.dir())));
            command.envs(self.image.as_ref().map(|image| (IMAGE, image)));
            command.envs(self.servers.iter().map(|(variable, folder)| (variable, folder)));
            command
        };
        let all: &[&str] = if ignored { &["--include-ignored"] } else { &[] };
        let (build, tests) = if has(self.workspace, "nextest") {
            let all = if ignored { " --run-ignored all" } else { "" };
            let tests = test(&format!("nextest run --no-fail-fast --no-tests=pass{all}"), &[]);
            ("nextest run --no-run", vec![tests, test("test --doc --no-fail-fast", &[])])
        } else {
            ("test --no-run", vec![test("test --no-fail-fast", all)])
        };
        if !self.stress {
            return run_all(task, tests);
        }
        let built = run_all(task, [test(build, &[])])?;
        if built.outcome != Outcome::Passed {
            return Ok(built);
        }
        let _stress = Stress::start();
        run_all(task, tests)
    }

    /// Runs the tests of all other languages, whatever becomes of the ones before. They know no filter.
    fn languages(&self, task: &mut Task) -> Result<Shown> {
        let mut shown = Shown::new(Outcome::Passed, "");
        for language in plugins::LANGUAGES {
            for (finished, tally) in plugins::test(task, self.workspace, language)? {
                if !finished.status.success() {
                    task.whole(&finished.output);
                }
                shown.add(tally, finished.status.success());
            }
        }
        Ok(shown)
    }

    /// Each package counts as a test.
    fn packages(&self, task: &mut Task) -> Result<Shown> {
        let mut shown = Shown::new(Outcome::Passed, "");
        for (name, wrong) in packages::check(task, self.workspace)? {
            let lines: Vec<String> = wrong.iter().map(|text| format!("{name} {text}")).collect();
            task.whole(&lines);
            let failures: Vec<String> = (!wrong.is_empty()).then_some(name).into_iter().collect();
            let failed = failures.len() as u64;
            shown.add(Tally::of(1 - failed, failed, 0, failures), failed == 0);
        }
        Ok(shown)
    }

    /// Each language counts as a test, and the filter chooses among them.
    fn init(&self, task: &mut Task) -> Result<Shown> {
        let cluster = self.cluster.as_ref().context("a control plane")?;
        let mut shown = Shown::new(Outcome::Passed, "");
        let registry = self.servers.iter().find(|(variable, _)| *variable == servers::REGISTRY.variable);
        let registry = servers::REGISTRY.program(&registry.context("a registry: see the step servers")?.1);
        let filter = self.filter.unwrap_or_default();
        for (language, finished) in first_hour::run(task, self.workspace, (cluster, &registry), filter)? {
            let succeeded = finished.status.success();
            if !succeeded {
                task.whole(&finished.output);
            }
            let failed = u64::from(!succeeded);
            let failures = (!succeeded).then(|| format!("init in {language}")).into_iter().collect();
            shown.add(Tally::of(1 - failed, failed, 0, failures), succeeded);
        }
        Ok(shown)
    }

    fn start_cluster(&mut self, task: &mut Task) -> Result<Shown> {
        // Built here, and not within the time of a test.
        control_plane::prepare(task, BTreeSet::from([Tool::Helm, Tool::Cosign]))?;
        let cluster = control_plane::start(task, Options::of_scenarios(&self.workspace.root)?)?;
        let detail = format!("Kubernetes {}", cluster.version());
        self.cluster = Some(cluster);
        Ok(Shown::new(Outcome::Passed, detail))
    }

    /// The tests of the image are a step of their own: nobody else has to wait until a second daemon is built. They are few: no
    /// filter chooses among them.
    fn image(&mut self, task: &mut Task) -> Result<Shown> {
        if let Some(mut ahead) = self.ahead.take() {
            ahead.wait()?;
        }
        let image = image::for_tests(task, self.workspace)?;
        self.image = Some(image.archive);
        let mut shown = self.tests(task, ON_A_CLUSTER, &[IMAGE_TESTS])?;
        shown.detail = format!("{}; {}", shown.detail, size(image.size));
        Ok(shown)
    }

    /// A new advisory is shown and fails nothing: it would break commits that were right.
    fn deny(&self, task: &mut Task) -> Result<Shown> {
        let mut shown = run_all(task, [self.cargo("deny check bans licenses sources")])?;
        let advisories = process::show(task, self.cargo("deny check advisories"), &mut |_| {})?;
        if !advisories.status.success() {
            task.whole(&advisories.output);
            "but look at the advisories above".clone_into(&mut shown.detail);
        }
        Ok(shown)
    }
}

/// Runs tests so many times, until one fails.
fn rounds(times: u32, mut tests: impl FnMut() -> Result<Shown>) -> Result<Shown> {
    let mut all = Shown::new(Outcome::Passed, "");
    for round in 1..=times {
        let Shown { outcome, tally, .. } = tests()?;
        let succeeded = outcome == Outcome::Passed;
        all.add(tally, succeeded);
        if !succeeded {
            if times > 1 {
                all.detail = format!("{}, in round {round}", all.detail);
            }
            break;
        }
    }
    Ok(all)
}

/// Runs commands whatever becomes of the ones before, and adds up their tests.
fn run_all(task: &mut Task, commands: impl IntoIterator<Item = Command>) -> Result<Shown> {
    let mut shown = Shown::new(Outcome::Passed, "");
    for command in commands {
        let line = dim(&format!("$ cargo {}", process::typed(command.get_args())));
        let mut tally = Tally::default();
        let finished = process::show(task, command, &mut |line| tally.read(line))?;
        let succeeded = finished.status.success();
        shown.add(if succeeded { tally } else { tally.after_failure() }, succeeded);
        if !succeeded {
            task.whole(&[line]);
            task.whole(&finished.output);
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_end_with_the_first_that_fails() {
        let mut left = 3;
        let mut tests = || {
            left -= 1;
            let mut shown = Shown::new(Outcome::Passed, "");
            shown.add(Tally::of(2, u64::from(left == 0), 0, Vec::new()), left != 0);
            Ok(shown)
        };
        let two = rounds(2, &mut tests).unwrap();
        assert_eq!((two.outcome, &*two.detail), (Outcome::Passed, "4 passed"));
        let rest = rounds(20, tests).unwrap();
        assert_eq!((rest.outcome, &*rest.detail), (Outcome::Failed, "2 passed, 1 failed, in round 1"));
    }
}

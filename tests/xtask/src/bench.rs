//! Runs the benchmarks: those of single functions, then those of whole processes.

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::ValueEnum;

use crate::ui::Ui;
use crate::workspace::Workspace;
use crate::{process, servers};

/// `cargo xtask bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask bench                     all
  cargo xtask bench --only functions    queue, matching, one guest call: seconds
  cargo xtask bench --only processes noop    the daemon beside its peers, one benchmark of the name

Built with the profile `perf`: as fast as a release to within a few per cent. Let nothing else run meanwhile.")]
pub(crate) struct Args {
    /// Only benchmarks whose name contains one of these.
    names: Vec<String>,
    /// Only one kind of benchmark.
    #[arg(long, value_enum)]
    only: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Single functions, by `cargo bench`.
    Functions,
    /// Whole processes, on a control plane.
    Processes,
}

/// Runs the command; it goes on after a failure.
pub(crate) fn run(ui: &Ui, workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let mut commands = Vec::new();
    if args.only != Some(Kind::Processes) {
        commands.extend(functions(workspace, &args.names));
    }
    if args.only != Some(Kind::Functions) {
        let mut processes = processes(workspace, &args.names);
        // Without one, the measures that use it say so.
        if let Ok(folder) = servers::REGISTRY.prepare(&mut ui.task("registry")) {
            processes.env(servers::REGISTRY.variable, folder);
        }
        commands.push(processes);
    }
    process::each(ui, commands)
}

/// None if no package has such benchmarks, which cargo would call an error.
fn functions(workspace: &Workspace, names: &[String]) -> Option<Command> {
    let mut command = workspace.cargo();
    command.args(["bench", "--profile", "perf", "--bench", "*"]);
    command.args(workspace.benches.iter().flat_map(|package| ["-p", package]));
    command.arg("--").args(names);
    (!workspace.benches.is_empty()).then_some(command)
}

fn processes(workspace: &Workspace, names: &[String]) -> Command {
    let mut command = workspace.cargo();
    command.args(["run", "--profile", "perf", "-p", "bench", "--"]).args(names);
    command
}

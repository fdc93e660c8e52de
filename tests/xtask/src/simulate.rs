//! Plays what may happen to the daemon on a model of the API server, one simulation for each seed.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::process;
use crate::ui::Ui;
use crate::workspace::Workspace;

/// `cargo xtask simulate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask simulate                            seeds 0 to 299
  cargo xtask simulate --seeds 2000 --from 5000   others
  cargo xtask simulate --seeds 1 --from 813       one of them again

It stops at the first seed that fails, leaves out of it what has nothing to do with that, and prints what is left.")]
pub(crate) struct Args {
    /// How many.
    #[arg(long, value_name = "N", default_value_t = 300)]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Go on after a seed that fails, and print only which they are.
    #[arg(long)]
    all: bool,
    /// Print what happens, also where nothing fails.
    #[arg(long)]
    trace: bool,
    /// Build it as benchmarks are: it takes minutes, and then plays several times as many.
    #[arg(long)]
    optimized: bool,
}

/// Runs the command.
///
/// # Errors
/// When cargo can't be started, or when interrupted.
pub(crate) fn run(ui: &Ui, workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    process::each(ui, vec![command(workspace, args)])
}

fn command(workspace: &Workspace, args: &Args) -> Command {
    let mut command = workspace.cargo();
    command.args(["run", "-q", "-p", "simulate"]);
    if args.optimized {
        command.args(["--profile", "perf"]);
    }
    command.args(["--", "--seeds", &args.seeds.to_string()]);
    command.args(["--from", &args.from.to_string()]);
    command.args(args.all.then_some("--all"));
    command.args(args.trace.then_some("--trace"));
    command
}

//! Plays what may happen to the daemon on a model of the API server, one simulation for each seed.

mod fault;

use std::process::{Command, ExitCode};

use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;

use fault::{FAULTS, Fault};

use crate::ui::Ui;
use crate::workspace::Workspace;
use crate::{copies, process, ui};

const ALL: &str = "all";

/// `cargo xtask simulate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask simulate                            seeds 0 to 299
  cargo xtask simulate --seeds 2000 --from 5000   others
  cargo xtask simulate --seeds 1 --from 813       one of them again
  cargo xtask simulate --fault all                whether it finds faults put into the daemon

It stops at the first seed that fails, leaves out of it what has nothing to do with that, and prints what is left.
A fault is put into a copy of the workspace in target/faults, and nowhere else.")]
pub(crate) struct Args {
    /// How many; 300 if nothing is said, and 2000 to find a fault.
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
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
    /// Have it find a fault, put into the daemon for that; may be said several times.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all", "trace"], value_parser = names())]
    fault: Vec<String>,
}

fn names() -> PossibleValuesParser {
    let faults = FAULTS.iter().map(|fault| fault.name);
    PossibleValuesParser::new(std::iter::once(ALL).chain(faults))
}

pub(crate) fn run(ui: &Ui, workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    if args.fault.is_empty() {
        return process::each(ui, vec![command(workspace, args)]);
    }
    let is_wanted = |fault: &&Fault| args.fault.iter().any(|name| name == ALL || name == fault.name);
    let wanted: Vec<_> = FAULTS.iter().filter(is_wanted).collect();
    hunt(ui, workspace, &wanted, || command(workspace, args))
}

fn command(workspace: &Workspace, args: &Args) -> Command {
    let mut command = workspace.cargo();
    command.args(["run", "-q", "-p", "simulate"]);
    if args.optimized {
        command.args(["--profile", "perf"]);
    }
    let usual = if args.fault.is_empty() { 300 } else { 2000 };
    let seeds = args.seeds.unwrap_or(usual);
    command.args(["--", "--seeds", &seeds.to_string()]);
    command.args(["--from", &args.from.to_string()]);
    command.args(args.all.then_some("--all"));
    command.args((!args.fault.is_empty()).then_some("--brief"));
    command.args(args.trace.then_some("--trace"));
    command
}

/// Puts faults into a copy of the workspace, one at a time, and has simulations find them there; says what showed them. `command` plays the simulations.
fn hunt(ui: &Ui, workspace: &Workspace, faults: &[&Fault], command: impl Fn() -> Command) -> Result<ExitCode> {
    let mut rows = vec![["fault", "seed", "what was wrong"].map(ui::bold).to_vec()];
    let mut code = ExitCode::SUCCESS;
    for fault in faults {
        let Fault { name, what, .. } = fault;
        let mut command = command();
        command.current_dir(copies::make(workspace, "faults", &[fault.edit()])?);
        command.env("CARGO_TARGET_DIR", &workspace.target);
        let mut task = ui.task(name);
        let finished = process::run(command, &mut |line| task.at(line))?;
        let seen = finished.output.iter().find_map(|line| failure(line));
        match seen {
            Some(_) => task.done(what),
            None => task.failed(what),
        };
        if seen.is_none() {
            if !finished.status.success() {
                ui::whole(&finished.output);
                bail!("with {name} nothing can be played");
            }
            code = ExitCode::FAILURE;
        }
        let (seed, wrong) = seen.unwrap_or(("none", what));
        rows.push([*name, seed, wrong].map(str::to_owned).to_vec());
    }
    ui::whole(&[ui::table(&rows)]);
    Ok(code)
}

/// Returns the seed that failed, and what was wrong, if a line says that.
fn failure(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("seed ")?.split_once(": ")
}

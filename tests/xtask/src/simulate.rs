//! Plays what may happen to the daemon on a model of the API server, one simulation for each seed.

mod fault;

use std::path::Path;
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
A fault is put into a copy of the workspace in target/faults, and nowhere else. It counts as found by a seed that
fails with it, and not without it.")]
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
    let seeds = args.seeds.unwrap_or(if args.fault.is_empty() { 300 } else { 2000 });
    if args.fault.is_empty() {
        return process::each(ui, vec![command(workspace, args, (args.from, seeds))]);
    }
    let is_wanted = |fault: &&Fault| args.fault.iter().any(|name| name == ALL || name == fault.name);
    let wanted: Vec<_> = FAULTS.iter().filter(is_wanted).collect();
    let mut rows = vec![["fault", "seed", "what was wrong"].map(ui::bold).to_vec()];
    let mut code = ExitCode::SUCCESS;
    for fault in wanted {
        let found = hunt(ui, workspace, fault, |span| command(workspace, args, span), (args.from, seeds))?;
        if found.is_none() {
            code = ExitCode::FAILURE;
        }
        let (seed, wrong) = found.unwrap_or(("none".to_owned(), fault.what.to_owned()));
        rows.push(vec![fault.name.to_owned(), seed, wrong]);
    }
    ui::whole(&[ui::table(&rows)]);
    Ok(code)
}

/// Returns the command that plays so many seeds from the first on.
fn command(workspace: &Workspace, args: &Args, (first, count): (u64, u64)) -> Command {
    let mut command = workspace.cargo();
    command.args(["run", "-q", "-p", "simulate"]);
    if args.optimized {
        command.args(["--profile", "perf"]);
    }
    command.args(["--", "--seeds", &count.to_string(), "--from", &first.to_string()]);
    command.args(args.all.then_some("--all"));
    command.args((!args.fault.is_empty()).then_some("--brief"));
    command.args(args.trace.then_some("--trace"));
    command
}

/// Puts a fault into a copy of the workspace, and has simulations find it there. Returns the seed, and what showed it.
/// A seed that fails without the fault, too, has not found it. `command` plays the simulations.
fn hunt(
    ui: &Ui,
    workspace: &Workspace,
    fault: &Fault,
    command: impl Fn((u64, u64)) -> Command,
    (mut first, mut left): (u64, u64),
) -> Result<Option<(String, String)>> {
    let Fault { name, what, .. } = fault;
    let copy = copies::make(workspace, "faults", fault.edits)?;
    let mut task = ui.task(name);
    let mut play = |folder: &Path, span| {
        let mut command = command(span);
        command.current_dir(folder).env("CARGO_TARGET_DIR", &workspace.target);
        process::run(command, &mut |line| task.at(line))
    };
    let found = loop {
        let finished = play(&copy, (first, left))?;
        let Some((seed, wrong)) = finished.output.iter().find_map(|line| failure(line)) else {
            if !finished.status.success() {
                ui::whole(&finished.output);
                bail!("with {name} nothing can be played");
            }
            break None;
        };
        if play(&workspace.root, (seed, 1))?.status.success() {
            break Some((seed.to_string(), wrong.to_owned()));
        }
        left = left.saturating_sub(seed - first + 1);
        first = seed + 1;
    };
    match found {
        Some(_) => task.done(what),
        None => task.failed(what),
    };
    Ok(found)
}

/// Returns the seed that failed, and what was wrong, if a line says that.
fn failure(line: &str) -> Option<(u64, &str)> {
    let (seed, wrong) = line.strip_prefix("seed ")?.split_once(": ")?;
    Some((seed.parse().ok()?, wrong))
}

//! The menu: what `cargo` itself can't say, as `cargo xtask COMMAND`.

mod bench;
mod control_plane;
mod copies;
mod demo;
mod files;
mod first_hour;
mod fuzz;
mod image;
mod interrupt;
mod packages;
mod plugins;
mod process;
mod scenarios;
mod servers;
mod simulate;
mod test;
mod ui;
#[cfg(test)]
mod words;
mod workspace;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::interrupt::{INTERRUPTED, Interrupted};
use crate::ui::Ui;
use crate::workspace::Workspace;

/// What cargo itself can't say: components, control planes, the image, the whole test run, the demo, benchmarks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
#[command(after_help = "\
Examples:
  cargo xtask demo              see Capstan work: a control plane, the daemon, a sample operator
  cargo xtask test              all checks and tests, fastest first
  cargo xtask test --only core  the decisions alone
  cargo xtask plugins webpage   build one sample plugin

`cargo xtask COMMAND --help` says more. Needed: Rust by rustup, and Go to build a control plane the first time.")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build the sample plugins as WebAssembly components.
    Plugins(plugins::Args),
    /// Make the packages of the SDKs, as their registries get them.
    Packages(packages::Args),
    /// Start a control plane of local processes and hold it until Ctrl-C.
    Cluster(control_plane::Args),
    /// Build the container image.
    Image(image::Args),
    /// Run all checks and tests, fastest first.
    Test(test::Args),
    /// Show Capstan at work: from an empty cluster to a page that looks after itself.
    Demo(demo::Args),
    /// Print which scenarios tests show, and why not the others.
    Scenarios(scenarios::Args),
    /// Run the benchmarks.
    Bench(bench::Args),
    /// Look for documents that break the work on them.
    Fuzz(fuzz::Args),
    /// Play what may happen to the daemon, on a model of the API server.
    Simulate(simulate::Args),
}

fn main() -> ExitCode {
    let ui = Ui::new();
    let Some(command) = Cli::parse().command else {
        return match Cli::command().print_help() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    };
    match run(&ui, command) {
        Ok(code) => code,
        Err(error) if error.is::<Interrupted>() => ExitCode::from(INTERRUPTED),
        Err(error) => {
            ui::error(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(ui: &Ui, command: Command) -> anyhow::Result<ExitCode> {
    interrupt::watch()?;
    let workspace = Workspace::load()?;
    match command {
        Command::Plugins(args) => plugins::run(ui, &workspace, &args),
        Command::Packages(args) => packages::run(ui, &workspace, &args),
        Command::Cluster(args) => control_plane::run(ui, &workspace, &args),
        Command::Image(args) => image::run(ui, &workspace, &args),
        Command::Test(args) => test::run(ui, &workspace, &args),
        Command::Demo(args) => demo::run(ui, &workspace, &args),
        Command::Scenarios(args) => scenarios::run(ui, &workspace, &args),
        Command::Bench(args) => bench::run(ui, &workspace, &args),
        Command::Fuzz(args) => fuzz::run(ui, &workspace, &args),
        Command::Simulate(args) => simulate::run(ui, &workspace, &args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

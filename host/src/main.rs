//! The binary `capstan`: parses, runs, and exits with a code that means something.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    capstan::main(capstan::args::Cli::parse())
}

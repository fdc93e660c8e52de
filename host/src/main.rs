//! The binary `capstan`: parses the command line, runs the command, and exits with its code.

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    capstan::main(capstan::cli::args::Cli::parse())
}

//! The binary `capstan`: parses, runs, and exits with a code that means something.

use std::process::ExitCode;

use clap::Parser;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    capstan::main(capstan::cli::args::Cli::parse())
}

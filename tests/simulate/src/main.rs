//! Plays simulations until one fails.
#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::process::ExitCode;

use clap::Parser;

/// Plays simulations of the daemon, one for each seed, and stops at the first that fails.
#[derive(Debug, Parser)]
#[command(name = "simulate", max_term_width = 100)]
struct Args {
    /// How many.
    #[arg(long, value_name = "N", default_value_t = 300)]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Go on after a failure.
    #[arg(long)]
    all: bool,
    /// Print what happens, also if nothing fails.
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    #[expect(clippy::disallowed_types, reason = "the time that it really takes")]
    let started = std::time::Instant::now();
    let (mut failed, mut played) = (0_u64, 0_u64);
    for seed in args.from..args.from.saturating_add(args.seeds) {
        if args.trace {
            print(&simulate::trace(seed));
        }
        played += 1;
        let Err(wrong) = simulate::run(seed) else {
            continue;
        };
        failed += 1;
        if args.all {
            println!("seed {seed}: {wrong}");
            continue;
        }
        let failure = simulate::shorten(seed);
        print(&failure.trace);
        println!("\nseed {seed}: {}", failure.wrong);
        println!("again: cargo xtask simulate --seeds 1 --from {seed}");
        break;
    }
    let took = started.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "it is for people")]
    let rate = played as f64 * 60.0 / took.max(0.001);
    println!("{played} seeds in {took:.1} s, {rate:.0} a minute; {failed} failed");
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn print(lines: &[String]) {
    for line in lines {
        println!("{line}");
    }
}

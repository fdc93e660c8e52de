//! Measures the daemon on a real API server: what starting, creating, changing and doing nothing cost it.
//!
//! In reading order: [`measure`] says what is measured, [`stage`] where, [`daemon`] and [`usage`] on whom, [`objects`] and
//! [`load`] with what, [`report`] how it is told. `docs/performance.md` has figures, and how to read them.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a program for the command line"
)]

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};

mod clock;
mod daemon;
mod load;
mod machine;
mod measure;
mod objects;
mod report;
mod stage;
mod subject;
mod usage;

use machine::{Manner, Setting};
use measure::{Measure, Round, Sizes};
use report::Report;
use subject::Subject;

/// Measures the daemon on a control plane of its own.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
#[command(after_help = "\
Measures: check, idle, create, restart, drift, change, noop, cache.

Examples:
  cargo xtask bench --only processes          all measures, once: 4 minutes
  cargo run --profile perf -p bench -- -n 3   three times, from least to most
  cargo run --profile perf -p bench -- create restart -o json

Let nothing else run meanwhile. `CPU of others` says how much did.")]
struct Args {
    /// Only measures whose name contains one of these.
    measures: Vec<String>,
    /// How often everything is measured, each time on a new control plane.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    rounds: usize,
    /// How to print the figures.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Measure what has been built before, whatever the sources say now.
    #[arg(long)]
    no_build: bool,
    /// Measure this binary; nothing is built.
    #[arg(long, value_name = "FILE")]
    capstan: Option<PathBuf>,
    /// How many pages; targets are set for 1,000.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pages: usize,
    /// How many Deployments `cache` has; targets are set for 10,000.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    deployments: usize,
}

/// How figures are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// As JSON.
    Json,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let wanted = wanted(&args.measures);
    if wanted.is_empty() {
        eprintln!("no measure is called so; see --help");
        return Ok(());
    }
    let talkative = std::io::stderr().is_terminal();
    let subject = if args.no_build || args.capstan.is_some() {
        Subject::built(args.capstan)?
    } else {
        Subject::build()?
    };
    let sizes = Sizes {
        pages: args.pages,
        deployments: args.deployments,
    };
    let (mut figures, mut kubernetes) = (Vec::new(), String::new());
    for number in 1..=args.rounds {
        let tell = |what: &str| {
            if talkative {
                eprintln!("round {number}: {what}");
            }
        };
        let (wanted, subject) = (&*wanted, &subject);
        let mut round = Round {
            subject,
            wanted,
            sizes,
            tell: &tell,
            figures: Vec::new(),
            kubernetes: String::new(),
        };
        round.run()?;
        figures.append(&mut round.figures);
        kubernetes = round.kubernetes;
    }
    let manner = Manner {
        kubernetes,
        rounds: args.rounds,
        pages: args.pages,
        deployments: args.deployments,
    };
    let report = Report::new(Setting::of(&subject, manner)?, sizes, figures);
    match args.output {
        Output::Table => print!("{}", report.table()),
        Output::Json => println!("{}", report.json()?),
    }
    Ok(())
}

/// Returns the measures whose name contains one of the words; all, if there is none.
fn wanted(words: &[String]) -> Vec<Measure> {
    let is_meant = |measure: &Measure| {
        words.is_empty() || words.iter().any(|word| measure.name().contains(word))
    };
    Measure::ALL.into_iter().filter(is_meant).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn measures_are_chosen_by_a_part_of_their_name() {
        let words = |words: &[&str]| {
            wanted(
                &words
                    .iter()
                    .map(|word| (*word).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(words(&[]), Measure::ALL);
        assert_eq!(
            words(&["re", "noop"]),
            [Measure::Create, Measure::Restart, Measure::Noop]
        );
        assert_eq!(words(&["queue"]), []);
    }
}

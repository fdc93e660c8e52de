//! Measures the daemon on a real API server: what starting, creating, changing and doing nothing cost it.
//!
//! In reading order: [`measure`] says what is measured, [`stage`] where, [`daemon`], [`diary`] and [`usage`] on whom,
//! [`objects`] and [`load`] with what, [`report`] how it is told. `docs/performance.md` has figures, and how to read them.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is a program for the command line")]

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::Result;
use bench::{clock, daemon, usage};
use clap::{Parser, ValueEnum};

mod diary;
mod load;
mod measure;
mod objects;
mod registry;
mod report;
mod stage;
mod subject;

use measure::{Measure, Rounds, Sizes};
use report::{Report, Setting};
use subject::Subject;

/// Measures the daemon on a control plane of its own.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
#[command(after_help = "\
Measures: check, idle, create, restart, drift, change, noop, cache, swap, swaps, languages,
neighbours, lists, follow, fleet, tenants.

Examples:
  cargo xtask bench --only processes          all measures, once: 15 minutes
  cargo run --profile perf -p bench -- -n 3   three times, from least to most
  cargo run --profile perf -p bench -- create restart -o json
  cargo xtask plugins                         builds the components in all languages, for `languages`

Let nothing else run meanwhile. `CPU of others` says how much did.")]
struct Args {
    /// Only the measures of these names; where there is none of a name, those whose name contains it.
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
    #[command(flatten)]
    sizes: Sizes,
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
    let subject = Subject::find(args.capstan, args.no_build)?;
    let talkative = std::io::stderr().is_terminal();
    let mut rounds = Rounds::new(&subject, &wanted, args.sizes, talkative);
    for number in 1..=args.rounds {
        rounds.number = number;
        rounds.run()?;
    }
    let setting = Setting::of(&subject, rounds.kubernetes, args.rounds, args.sizes)?;
    let report = Report::new(setting, rounds.rows, rounds.remarks);
    match args.output {
        Output::Table => print!("{}", report.table()),
        Output::Json => println!("{}", report.json()?),
    }
    Ok(())
}

/// Returns the measures that are meant by one of the words, by the whole name or else by a part of it; all, if there is none.
fn wanted(words: &[String]) -> Vec<Measure> {
    let all = Measure::value_variants();
    let is_name = |word: &String| all.iter().any(|measure| measure.name() == *word);
    let means = |word: &String, measure: &Measure| {
        if is_name(word) { measure.name() == *word } else { measure.name().contains(word) }
    };
    let is_meant = |measure: &&Measure| words.is_empty() || words.iter().any(|word| means(word, measure));
    all.iter().filter(is_meant).copied().collect()
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
    fn measures_are_chosen_by_their_name_or_a_part_of_it() {
        let words = |words: &[&str]| wanted(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&[]), Measure::value_variants());
        assert_eq!(words(&["re", "noop"]), [Measure::Create, Measure::Restart, Measure::Noop]);
        assert_eq!(words(&["queue"]), []);
        assert_eq!(words(&["swap"]), [Measure::Swap]);
        assert_eq!(words(&["swa"]), [Measure::Swap, Measure::Swaps]);
    }
}

//! The arguments of `capstan test`.

use std::path::PathBuf;

use clap::Args;

use super::Source;

/// `capstan test`.
#[derive(Args, Debug)]
#[command(mut_arg("manifests", |manifests| manifests.required(false).default_value("operator.yaml")))]
#[command(after_help = "\
Examples:
  capstan test                   play all cases of operator.yaml
  capstan test hello             those whose name contains hello
  capstan test --bless           write what came of them; look at the difference before you commit it

A case is a folder: cases/NAME/primary.yaml has the primary, world.yaml what else there is (it may be left out), expected.yaml
what comes of it: writes, status, events. No cluster is needed. Objects of the world that the primary owns count as made by this
operator. Log lines are shown if RUST_LOG is set. Exit status: 0 all are as expected, 1 something is wrong.")]
pub struct Test {
    /// The manifests and the options for their components.
    #[command(flatten)]
    pub source: Source,
    /// The folder of the cases.
    #[arg(long, value_name = "FOLDER", default_value = "cases")]
    pub cases: PathBuf,
    /// Write what comes of the cases as what is expected.
    #[arg(long)]
    pub bless: bool,
    /// Only cases whose name contains this.
    pub filter: Option<String>,
}

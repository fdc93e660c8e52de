//! The arguments of `capstan crd`.

use std::path::PathBuf;

use clap::Args;

/// `capstan crd`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan crd                              in the folder that `capstan init` has made
  capstan crd --check                      does crd.yaml still say what the types say? For CI
  capstan crd greeting

Runs the command `types` of dev.yaml, which prints what the author's types say: an SDK's own, such as `python -m capstan types app.py`, or any
that prints CustomResourceDefinitions, such as controller-gen's. The file is the first one under `crds` there, else crd.yaml.

Exit status: 0 success, 1 something is wrong or, with --check, the file says something else (the message names the fields), 2 wrong usage.")]
pub struct Crd {
    /// The folder of the operator.
    #[arg(default_value = ".", value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Write nothing: say what the file says otherwise than the types.
    #[arg(long)]
    pub check: bool,
}

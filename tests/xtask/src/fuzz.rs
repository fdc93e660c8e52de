//! Looks for documents that break the work on them, with libFuzzer: cargo-fuzz builds and runs each target for a while.

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::ValueEnum;

use crate::ui::Ui;
use crate::workspace::Workspace;
use crate::{files, process};

/// Where cargo-fuzz finds its package.
const FOLDER: &str = "tests/fuzz/libfuzzer";

/// What an input may take, seconds and MiB: the targets themselves assert more. No input is longer, in bytes: documents are made of
/// few bytes.
const BOUNDS: [&str; 3] = ["-timeout=20", "-rss_limit_mb=1024", "-max_len=4096"];

/// `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask fuzz                            all targets, 10 minutes each
  cargo xtask fuzz patching --seconds 60      one of them, for a minute
  cargo install cargo-fuzz --version 0.13.2 --locked    what it needs

What was found before is in target/fuzz/corpus, an input that breaks something in target/fuzz/artifacts.")]
pub(crate) struct Args {
    /// Only these.
    #[arg(value_enum)]
    targets: Vec<Target>,
    /// How long each of them runs.
    #[arg(long, value_name = "N", default_value_t = 600)]
    seconds: u32,
}

/// Work on documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Target {
    /// Whether an object is as it should be.
    Comparing,
    /// What leads from one document to another.
    Patching,
    /// Expressions of a manifest on any documents.
    Cel,
    /// Manifests.
    Manifest,
    /// Fields that are asked for, and keys of indexes.
    Masks,
    /// What the API server records of our fields.
    Fields,
    /// Signatures of components.
    Signatures,
    /// Templates over any primaries.
    Templates,
    /// Schemas of kinds.
    Schemas,
    /// Kubeconfigs of other clusters.
    Kubeconfigs,
    /// Components before they are compiled.
    Components,
    /// Files of `capstan load`.
    Archives,
}

/// Runs the command; it goes on after a failure.
pub(crate) fn run(ui: &Ui, workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let targets = if args.targets.is_empty() { Target::value_variants() } else { &args.targets };
    let commands: Result<Vec<_>> = targets.iter().map(|target| command(workspace, *target, args.seconds)).collect();
    process::each(ui, commands?)
}

fn command(workspace: &Workspace, target: Target, seconds: u32) -> Result<Command> {
    let name = format!("{target:?}").to_lowercase();
    let folder = workspace.target.join("fuzz");
    let [corpus, artifacts] = ["corpus", "artifacts"].map(|kind| folder.join(kind).join(&name));
    files::folder(&corpus)?;
    files::folder(&artifacts)?;
    let mut command = workspace.cargo();
    // The coverage of libFuzzer needs no unstable compiler, the sanitizers would: the code has no `unsafe`.
    command.args(["fuzz", "run", "--sanitizer", "none", "--fuzz-dir", FOLDER]).arg("--target-dir").arg(&folder);
    command.args(matches!(target, Target::Components | Target::Archives).then_some("--features=daemon"));
    command.arg(name).arg(&corpus).arg("--").arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}/", artifacts.display())).args(BOUNDS);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_has_a_program() {
        let root = Workspace::load().unwrap().root;
        for target in Target::value_variants() {
            let name = target.to_possible_value().unwrap();
            let (name, folder) = (name.get_name(), root.join(FOLDER));
            let path = format!("fuzz_targets/{name}.rs");
            let program = std::fs::read_to_string(folder.join(&path)).unwrap();
            // Nothing else builds them; that there is such a function, the tests of `fuzz` show.
            let expected = format!(
                "//! Looks for inputs that break `fuzz::{name}`.\n\n#![no_main]\n\nlibfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::{name}(data));\n"
            );
            assert_eq!(program, expected);
            let declared = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            assert!(declared.contains(&format!("name = {name:?}\npath = {path:?}\n")), "{name}");
        }
    }
}

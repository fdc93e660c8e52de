//! `capstan pull`: gets a component from a registry.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;

use super::registry::{failed, resolved};
use crate::cli::args::Pull;
use crate::read;

/// Pulls, and prints the reference with its digest.
///
/// # Errors
/// If the registry does not give a component, or the file can't be written.
pub async fn run(args: &Pull) -> anyhow::Result<ExitCode> {
    let Pull { reference, output, registry, mirrors } = args;
    let (mut session, resolved) =
        resolved((registry, &mirrors.registry_mirrors), reference, ("pull", read::COMPONENT)).await?;
    // Written in one go: a daemon may be reading the old one.
    let next = output.with_added_extension("next");
    let writing = || format!("write {}", next.display());
    let mut file = File::create(&next).with_context(writing)?;
    let pulled = session.blob(&resolved.artifact.layer, &mut file).await.map_err(failed("pull", reference));
    if pulled.is_err() {
        // It is not whole, and in nobody's way if it stays.
        drop(fs::remove_file(&next));
    }
    pulled?;
    fs::rename(&next, output).with_context(|| format!("write {}", output.display()))?;
    writeln!(std::io::stdout(), "{}", reference.at(&resolved.digest)).context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

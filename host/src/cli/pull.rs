//! `capstan pull`: gets a component from a registry.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::registry::{Failure, Kind};

use super::registry::resolved;
use crate::cli::args::Pull;
use crate::read;
use crate::registry::{Resolved, Session};

/// Pulls, and prints the reference with its digest.
///
/// # Errors
/// If the registry does not give a component, or the file can't be written.
pub async fn run(args: &Pull) -> anyhow::Result<ExitCode> {
    let Pull { reference, output, registry, mirrors } = args;
    // Written in one go: a daemon may be reading the old one.
    let next = output.with_added_extension("next");
    let pull = async |mut session: Session, resolved: Resolved| {
        // What a mirror has sent before is not whole.
        let mut file = File::create(&next)
            .map_err(|error| Failure::new(Kind::Wrong, format!("write {}: {error}", next.display())))?;
        session.blob(&resolved.artifact.layer, &mut file).await?;
        Ok(resolved.digest)
    };
    let asked = (registry, &*mirrors.registry_mirrors);
    let pulled = resolved(asked, reference, ("pull", read::COMPONENT), pull).await;
    if pulled.is_err() {
        // It is not whole, and in nobody's way if it stays.
        drop(fs::remove_file(&next));
    }
    let digest = pulled?;
    fs::rename(&next, output).with_context(|| format!("write {}", output.display()))?;
    writeln!(std::io::stdout(), "{}", reference.at(&digest)).context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

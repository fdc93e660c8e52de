//! `capstan pull`: gets a component from a registry.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::registry::{Failure, Kind};

use super::beside::Beside;
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
    let pull = async |mut session: Session, resolved: Resolved| {
        // What a mirror has sent before is not whole.
        let (beside, mut file) =
            Beside::begin(output).map_err(|error| Failure::new(Kind::Wrong, format!("{error:#}")))?;
        session.blob(&resolved.artifact.layer, &mut file).await?;
        Ok((beside, resolved.digest))
    };
    let asked = (registry, &*mirrors.registry_mirrors);
    let (beside, digest) = resolved(asked, reference, ("pull", read::COMPONENT), pull).await?;
    beside.done()?;
    writeln!(std::io::stdout(), "{}", reference.at(&digest)).context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

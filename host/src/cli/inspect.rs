//! `capstan inspect`: says what a component is, in a file or in a registry.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::registry::challenge::Access;
use capstan_core::registry::{Digest, Reference, artifact};
use ring::digest::{SHA256, digest};

use super::registry::{Facts, failed, session};
use crate::cli::args::{Inspect, Registry};
use crate::read;
use crate::registry::interfaces;

/// Looks, and prints what was found.
///
/// # Errors
/// If there is no component.
pub async fn run(args: &Inspect) -> anyhow::Result<ExitCode> {
    let path = Path::new(&args.subject);
    let facts = match Reference::parse(&args.subject) {
        Ok(reference) if !path.exists() => of_reference(&reference, &args.registry).await?,
        Err(why) if !path.exists() => {
            anyhow::bail!("{}: there is no such file, and it is no reference: {why}", args.subject)
        }
        Ok(_) | Err(_) => of_file(path)?,
    };
    std::io::stdout().write_all(facts.shown(args.output)?.as_bytes()).context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

async fn of_reference(reference: &Reference, registry: &Registry) -> anyhow::Result<Facts> {
    let mut session = session(registry, reference, Access::Pull)?;
    let resolved = session.resolve(u64::MAX).await.map_err(failed("inspect", reference))?;
    let config = session.config(&resolved.artifact.config).await.map_err(failed("inspect", reference))?;
    Ok(Facts {
        reference: Some(reference.at(&resolved.digest).to_string()),
        component: resolved.artifact.layer.digest,
        size: resolved.artifact.layer.size,
        interfaces: artifact::interfaces(&config),
        annotations: resolved.artifact.annotations,
    })
}

fn of_file(path: &Path) -> anyhow::Result<Facts> {
    let what = || format!("read component {}", path.display());
    let component = read::bytes(path, read::COMPONENT).with_context(what)?;
    Ok(Facts {
        reference: None,
        component: Digest::of(digest(&SHA256, &component).as_ref()),
        size: component.len() as u64,
        interfaces: interfaces(&component).map_err(anyhow::Error::msg).with_context(what)?,
        annotations: BTreeMap::new(),
    })
}

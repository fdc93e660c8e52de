//! `capstan load`: puts the components of a file with their signatures into a registry.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::registry::Reference;
use capstan_core::registry::artifact::Descriptor;
use capstan_core::registry::challenge::Access;
use capstan_core::registry::layout::{self, Load, Plan, Signatures, To};
use capstan_core::text;

use super::registry::{failed, sessions, with_signatures};
use crate::cli::args;
use crate::read;
use crate::registry::Session;
use crate::registry::archive::Archive;

/// Loads, and prints each reference with its digest.
///
/// # Errors
/// If the file can't be read or is not whole, or the registry does not take what is in it.
pub async fn run(args: &args::Load) -> anyhow::Result<ExitCode> {
    let args::Load { file, prefix, to, registry } = args;
    let what = || format!("load {}", file.display());
    let archive = Archive::open(file).with_context(what)?;
    let to = match (prefix, to) {
        (_, Some(to)) => To::Only(to.clone()),
        (Some(prefix), None) => To::Below(prefix.clone()),
        (None, None) => anyhow::bail!("expected a prefix, or --to REFERENCE"),
    };
    let items = archive.items().with_context(what)?;
    let Plan { all, left_out } =
        layout::plan(items, &to, read::COMPONENT).map_err(anyhow::Error::msg).with_context(what)?;
    // Nothing of a file that is not whole is put anywhere.
    for part in all.iter().flat_map(parts) {
        archive.check(part).with_context(what)?;
    }
    let references: Vec<_> = all.iter().map(|load| load.to.clone()).collect();
    let mut out = std::io::stdout();
    for (load, mut session) in all.iter().zip(sessions(registry, &references, Access::Push)?) {
        Box::pin(put(&mut session, &archive, load)).await?;
        out.write_all(text::lines(&shown(load)).as_bytes()).context("write to standard output")?;
    }
    for why in &left_out {
        out.write_all(text::lines(&format!("left out: {why}\n")).as_bytes()).context("write to standard output")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts a component into a registry, and then what is signed of it.
async fn put(session: &mut Session, archive: &Archive, load: &Load) -> anyhow::Result<()> {
    let failed = failed("load", &load.to);
    for part in parts(load) {
        let bytes = archive.part(part, read::COMPONENT)?;
        session.upload(part, bytes.into()).await.map_err(&failed)?;
    }
    session.put_component(load).await.map_err(&failed)?;
    for signatures in &load.signatures {
        session.put_signatures(load, signatures).await.map_err(&failed)?;
    }
    Ok(())
}

/// Returns all parts that a component and its signatures consist of, beside their manifests.
fn parts(load: &Load) -> impl Iterator<Item = &Descriptor> {
    let signatures = load.signatures.iter().flat_map(|Signatures { carried, .. }| &carried.parts);
    [&load.artifact.config, &load.artifact.layer].into_iter().chain(signatures)
}

fn shown(load: &Load) -> String {
    let reference = load.to.at(&load.digest);
    let signed = with_signatures(load.signatures.len());
    let from = load.from.as_ref().map(Reference::name).filter(|from| *from != load.to.name());
    let hint = from.filter(|_| !load.signatures.is_empty());
    let hint = hint.map(|from| format!("  signedAs: [{from}] permits those for that name\n")).unwrap_or_default();
    format!("{reference}\n{signed}{hint}")
}

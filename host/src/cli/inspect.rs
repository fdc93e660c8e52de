//! `capstan inspect`: says what a component is, in a file or in a registry.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::registry::difference::{self, Version};
use capstan_core::registry::{Digest, Reference, artifact};

use super::registry::{Facts, failed, resolved};
use crate::cli::args::Inspect;
use crate::read;
use crate::registry::interfaces;

/// Looks, and prints what was found.
///
/// # Errors
/// If there is no component.
pub async fn run(args: &Inspect) -> anyhow::Result<ExitCode> {
    let facts = facts(&args.subject, args).await?;
    let shown = match &args.against {
        Some(other) => difference(&self::facts(other, args).await?, &facts),
        None => facts.shown(args.output)?,
    };
    std::io::stdout().write_all(shown.as_bytes()).context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

async fn facts(subject: &str, args: &Inspect) -> anyhow::Result<Facts> {
    let path = Path::new(subject);
    match Reference::parse(subject) {
        Ok(reference) if !path.exists() => of_reference(&reference, args).await,
        Err(why) if !path.exists() => {
            anyhow::bail!("{subject}: there is no such file, and it is no reference: {why}")
        }
        Ok(_) | Err(_) => of_file(path),
    }
}

/// Returns what is otherwise in a component than in the one before.
fn difference(before: &Facts, after: &Facts) -> String {
    fn version(facts: &Facts) -> Version<'_> {
        Version { interfaces: &facts.interfaces, size: facts.size }
    }
    let mut lines = difference::lines(version(before), version(after));
    if lines.is_empty() {
        let same = if before.component == after.component { "the same component" } else { "no difference" };
        lines.push(same.to_owned());
    }
    lines.iter().fold(String::new(), |text, line| text + line + "\n")
}

async fn of_reference(reference: &Reference, args: &Inspect) -> anyhow::Result<Facts> {
    let Inspect { registry, mirrors, .. } = args;
    let (mut session, resolved) =
        resolved((registry, &mirrors.registry_mirrors), reference, ("inspect", u64::MAX)).await?;
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
        component: Digest::sha256(&component),
        size: component.len() as u64,
        interfaces: interfaces(&component).map_err(anyhow::Error::msg).with_context(what)?,
        annotations: BTreeMap::new(),
    })
}

//! `capstan inspect`: says what a component is, in a file or in a registry.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::operator::difference::{Difference, difference};
use capstan_core::operator::wants::{About, Wants};
use capstan_core::registry::{Digest, Reference, artifact};

use super::registry::{Facts, resolved};
use crate::cli::args::{Inspect, Output};
use crate::files::is_manifest;
use crate::registry::{Resolved, Session, interfaces};
use crate::{operators, read};

/// Looks, and prints what was found.
///
/// # Errors
/// If there is no component.
pub async fn run(args: &Inspect) -> anyhow::Result<ExitCode> {
    let shown = match &args.against {
        Some(other) => told(&beside(other, args).await?, args.output)?,
        None => facts(&args.subject, args).await?.shown(args.output)?,
    };
    std::io::stdout().write_all(shown.as_bytes()).context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what is otherwise in a component, or in the operator of a manifest, than in another one.
async fn beside(other: &str, args: &Inspect) -> anyhow::Result<Difference> {
    match (is_manifest(Path::new(other)), is_manifest(Path::new(&args.subject))) {
        (true, true) => Ok(difference(&of_manifest(Path::new(other))?, &of_manifest(Path::new(&args.subject))?)),
        (false, false) => {
            let (before, after) = (facts(other, args).await?, facts(&args.subject, args).await?);
            let wants = |Facts { interfaces, size, .. }| Wants::of_component(&About { interfaces, size });
            Ok(difference(&wants(before), &wants(after)))
        }
        (true, false) | (false, true) => anyhow::bail!(
            "{} and {other}: one is a manifest and the other one is not; expected two manifests or two components",
            args.subject
        ),
    }
}

/// Returns what the operator of a manifest is given.
fn of_manifest(file: &Path) -> anyhow::Result<Wants> {
    let operators = operators::valid(&[file.to_owned()])?;
    let [operator] = operators.as_slice() else {
        anyhow::bail!("{}: found {} operators; expected one", file.display(), operators.len());
    };
    Ok(Wants::of_manifest(operator))
}

/// Returns a difference in a format.
fn told(difference: &Difference, output: Output) -> anyhow::Result<String> {
    Ok(match output {
        Output::Json => format!("{}\n", serde_json::to_string_pretty(difference)?),
        Output::Yaml => serde_yaml::to_string(difference)?,
        Output::Table if difference.is_empty() => "no difference\n".to_owned(),
        Output::Table => difference.all().iter().fold(String::new(), |text, line| text + line + "\n"),
    })
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

async fn of_reference(reference: &Reference, args: &Inspect) -> anyhow::Result<Facts> {
    let Inspect { registry, mirrors, .. } = args;
    let inspect = async |mut session: Session, resolved: Resolved| {
        let config = session.config(&resolved.artifact.config).await?;
        Ok((resolved, config))
    };
    let asked = (registry, &*mirrors.registry_mirrors);
    let (resolved, config) = resolved(asked, reference, ("inspect", u64::MAX), inspect).await?;
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

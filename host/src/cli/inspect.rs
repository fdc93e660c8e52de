//! `capstan inspect`: says what a component is, in a file or in a registry.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::operator::difference::{Difference, difference};
use capstan_core::operator::wants::{About, Wants};
use capstan_core::registry::{Digest, Failure, Kind, Reference, artifact};

use super::registry::{Facts, resolved};
use crate::cli::args::{Inspect, Output};
use crate::files::is_manifest;
use crate::registry::{Resolved, Session, interfaces};
use crate::{operators, read};

/// What says what a component of a registry imports and exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Its config, which whoever has pushed it wrote: nothing is pulled.
    Config,
    /// Its own bytes (`SG-8`).
    Bytes,
}

/// Looks, and prints what was found.
///
/// # Errors
/// If there is no component.
pub async fn run(args: &Inspect) -> anyhow::Result<ExitCode> {
    let shown = match &args.against {
        Some(other) => told(&beside(other, args).await?, args.output)?,
        None => facts(&args.subject, args, By::Config).await?.shown(args.output)?,
    };
    std::io::stdout().write_all(shown.as_bytes()).context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what is otherwise in a component, or in the operator of a manifest, than in another one.
async fn beside(other: &str, args: &Inspect) -> anyhow::Result<Difference> {
    // Whoever names a file may have it in JSON, too.
    let is_manifest = |file: &Path| is_manifest(file) || file.extension().is_some_and(|end| end == "json");
    match (is_manifest(Path::new(other)), is_manifest(Path::new(&args.subject))) {
        (true, true) => Ok(difference(&of_manifest(Path::new(other))?, &of_manifest(Path::new(&args.subject))?)),
        (false, false) => {
            let (before, after) = (facts(other, args, By::Bytes).await?, facts(&args.subject, args, By::Bytes).await?);
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

async fn facts(subject: &str, args: &Inspect, by: By) -> anyhow::Result<Facts> {
    let path = Path::new(subject);
    match Reference::parse(subject) {
        Ok(reference) if !path.exists() => of_reference(&reference, args, by).await,
        Err(why) if !path.exists() => {
            anyhow::bail!("{subject}: there is no such file, and it is no reference: {why}")
        }
        Ok(_) | Err(_) => of_file(path),
    }
}

async fn of_reference(reference: &Reference, args: &Inspect, by: By) -> anyhow::Result<Facts> {
    let Inspect { registry, mirrors, .. } = args;
    let inspect = async |mut session: Session, resolved: Resolved| {
        let interfaces = match by {
            By::Config => artifact::interfaces(&session.config(&resolved.artifact.config).await?),
            By::Bytes => {
                let mut component = Vec::new();
                session.blob(&resolved.artifact.layer, &mut component).await?;
                interfaces(&component).map_err(|why| Failure::new(Kind::Wrong, why))?
            }
        };
        Ok((resolved, interfaces))
    };
    let most = match by {
        By::Config => u64::MAX,
        By::Bytes => read::COMPONENT,
    };
    let asked = (registry, &*mirrors.registry_mirrors);
    let (resolved, interfaces) = resolved(asked, reference, ("inspect", most), inspect).await?;
    Ok(Facts {
        reference: Some(reference.at(&resolved.digest).to_string()),
        component: resolved.artifact.layer.digest,
        size: resolved.artifact.layer.size,
        interfaces,
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::args::{Cli, Command};
    use crate::registry::tests::fake::{Door, Fake};
    use crate::registry::tests::push;

    /// Returns what is told of a reference beside another one.
    async fn against(before: &str, after: &str) -> anyhow::Result<Vec<String>> {
        let line = ["capstan", "inspect", after, "--against", before, "--insecure"];
        let Command::Inspect(args) = Cli::parse_from(line).command else {
            panic!("another command");
        };
        Ok(beside(before, &args).await?.all())
    }

    #[tokio::test]
    async fn two_components_are_compared_by_their_own_bytes_whatever_their_configs_say() {
        // SG-8: both are pushed with a config that says the same, `a:b/c` and `d`.
        let fake = Fake::start(Door::Open).await;
        let at = |tag: &str| format!("{}/org/a:{tag}", fake.address);
        let component = |text: &str| wat::parse_str(text).unwrap();
        push(&fake, "org/a:1", &component("(component)")).await;
        push(&fake, "org/a:2", &component(r#"(component (import "wasi:sockets/tcp@0.2.6" (instance)))"#)).await;
        push(&fake, "org/a:3", b"no component").await;
        let told = against(&at("1"), &at("2")).await.unwrap().join("\n");
        assert!(told.contains("wasi:sockets/tcp") && !told.contains("a:b/c"), "{told}");
        let error = against(&at("1"), &at("3")).await.unwrap_err().to_string();
        assert!(error.contains(":3: it is not a WebAssembly component"), "{error}");
    }
}

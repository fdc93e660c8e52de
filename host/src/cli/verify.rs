//! `capstan verify`: says whether a component of a registry is signed by a key.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::registry::Reference;
use capstan_core::registry::signature::{COMMAND, Demand, Demands, Signed};
use capstan_core::text;

use super::registry::resolved;
use crate::cli::args::Verify;
use crate::operators;
use crate::registry::{Resolved, Session};

/// Looks, and prints the reference with its digest and who has signed that.
///
/// # Errors
/// If a key can't be read, or the registry does not have the component, or one that is signed.
pub async fn run(args: &Verify) -> anyhow::Result<ExitCode> {
    let Verify { reference, keys, signed_as, registry, mirrors } = args;
    let keys = keys.iter().map(|file| operators::key(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let signed_as = signed_as.iter().map(|name| name.as_str().into()).collect();
    let demands = Demands { all: vec![Demand { whose: COMMAND, keys, signed_as }] };
    let verify = async |mut session: Session, resolved: Resolved| {
        let signed = session.signed(&resolved, &demands).await?;
        Ok(shown(&reference.at(&resolved.digest), &signed))
    };
    let asked = (registry, &*mirrors.registry_mirrors);
    let said = resolved(asked, reference, ("verify", u64::MAX), verify).await?;
    std::io::stdout().write_all(said.as_bytes()).context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn shown(reference: &Reference, signed: &[Signed]) -> String {
    let mut said = format!("{reference}\n");
    for Signed { key, name } in signed {
        let name = name.as_ref().map(|name| format!(" as {name}")).unwrap_or_default();
        // Writing to a string cannot fail.
        let _infallible = writeln!(said, "signed by {key}{name}");
    }
    text::lines(&said)
}

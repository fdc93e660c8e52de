//! `capstan sign`: signs a component of a registry with a key.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::registry::challenge::Access;

use super::registry::{failed, session};
use crate::cli::args::Sign;
use crate::read;
use crate::registry::SigningKey;

/// Signs, and prints the reference with its digest.
///
/// # Errors
/// If the key can't be read or used, or the registry does not have the component or does not take the signature.
pub async fn run(args: &Sign) -> anyhow::Result<ExitCode> {
    let Sign { reference, key, registry } = args;
    let what = || format!("read key {}", key.display());
    let text = read::text(key, read::TEXT).with_context(what)?;
    let key = SigningKey::parse(&text).map_err(anyhow::Error::msg).with_context(what)?;
    let mut session = session(registry, reference, Access::Push)?;
    let resolved = session.resolve(u64::MAX).await.map_err(failed("sign", reference))?;
    session.sign(&resolved, &key).await.map_err(failed("sign", reference))?;
    let said = format!("{}\nsigned by {} as {}\n", reference.at(&resolved.digest), key.key(), reference.name());
    std::io::stdout().write_all(said.as_bytes()).context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

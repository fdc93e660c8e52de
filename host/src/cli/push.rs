//! `capstan push`: puts a component into a registry.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::registry::challenge::Access;
use k8s_openapi::jiff::Timestamp;

use super::registry::{failed, session};
use crate::cli::args;
use crate::read;
use crate::registry::{Push, interfaces};

/// Pushes, and prints the reference with its digest.
///
/// # Errors
/// If the file is no component, or the registry does not take it.
pub async fn run(args: &args::Push) -> anyhow::Result<ExitCode> {
    let args::Push { file, reference, annotations, registry } = args;
    let what = || format!("read component {}", file.display());
    let component = read::bytes(file, read::COMPONENT).with_context(what)?;
    let interfaces = interfaces(&component).map_err(anyhow::Error::msg).with_context(what)?;
    let epoch = std::env::var("SOURCE_DATE_EPOCH").ok().filter(|epoch| !epoch.is_empty());
    let push = Push {
        component: component.into(),
        interfaces,
        annotations: annotations.iter().cloned().collect(),
        created: epoch.map(|epoch| created(&epoch)).transpose()?,
    };
    let pushed = session(registry, reference, Access::Push)?.push(push).await.map_err(failed("push", reference))?;
    writeln!(std::io::stdout(), "{}", reference.at(&pushed.digest)).context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the time that `SOURCE_DATE_EPOCH` says, in RFC 3339.
fn created(epoch: &str) -> anyhow::Result<String> {
    let wrong = || format!("SOURCE_DATE_EPOCH is {epoch:?}; expected seconds since 1970");
    let seconds = epoch.parse().with_context(wrong)?;
    Ok(Timestamp::from_second(seconds).with_context(wrong)?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_a_component_was_made_is_said_in_seconds() {
        assert_eq!(created("1700000000").unwrap(), "2023-11-14T22:13:20Z");
        let said = format!("{:#}", created("today").unwrap_err());
        assert!(said.starts_with("SOURCE_DATE_EPOCH is \"today\"; expected seconds since 1970"), "{said}");
    }
}

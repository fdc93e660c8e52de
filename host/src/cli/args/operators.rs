//! The arguments that say which operators there are, and what becomes of new versions of them.

use capstan_core::manifest::OnNewVersion;
use clap::ValueEnum;

/// Where operators are beside manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operators {
    /// Objects of the cluster.
    Cluster,
}

pub(super) fn on_new_version(text: &str) -> Result<OnNewVersion, String> {
    match text {
        "apply" => Ok(OnNewVersion::Apply),
        "ask" => Ok(OnNewVersion::Ask),
        _ => Err("expected `apply` or `ask`".to_owned()),
    }
}

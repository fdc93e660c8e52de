//! The arguments of `capstan approve`.

use std::path::PathBuf;

use capstan_core::registry::Digest;
use clap::Args;

use super::{Documents, label, name};

/// `capstan approve`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan approve webpage -n capstan                    show what is new in the version that waits, and ask
  capstan approve webpage -n capstan --digest sha256:0123… --yes --reason CHG-42     only if this component waits
  capstan approve pages -n team-a                       an operator of a team; the same as team-a.pages -n capstan
  capstan approve webpage -n capstan -o yaml > approval.yaml     for a repository; write nothing

An approval is an object of kind OperatorApproval, good for exactly the version that is shown. Who may approve needs `get` of
operators.capstan.dev where the operator is, and `create` and `patch` of operatorapprovals.capstan.dev in the daemon's namespace; who writes operators
should not have the second. That of a team is found by its own namespace and name, or by what the daemon calls it: its status says where the approval is read. Of an operator in a file no object says what waits: the daemon's log has the command with --digest and --given.
Exit status: 0 approved, 1 nothing waits, another version does, or nobody has said yes, 2 wrong usage.")]
pub struct Approve {
    /// The operator.
    #[arg(value_parser = name)]
    pub operator: String,
    /// The namespace in which the operator is; for one in a file, or by what the daemon calls it, that of the daemon; without it that of the kubeconfig.
    #[arg(short, long, value_name = "NAME", value_parser = label)]
    pub namespace: Option<String>,
    /// The component that is meant, of a plugin if there are several; may be given several times. Where another one waits, nothing is approved.
    #[arg(long = "digest", value_name = "[PLUGIN=]sha256:…", value_parser = pin)]
    pub digests: Vec<Pin>,
    /// The digest of what the version is given: approves that with the components of --digest, whatever waits.
    #[arg(long, value_name = "sha256:…", value_parser = digest)]
    pub given: Option<Digest>,
    /// Don't ask.
    #[arg(short, long)]
    pub yes: bool,
    /// Print the approval in place of writing it.
    #[arg(long)]
    pub dry_run: bool,
    /// The format in which the approval is printed in place of writing it.
    #[arg(short, long, value_enum)]
    pub output: Option<Documents>,
    /// Why, for people.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Who approves, for people; without it $USER.
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub by: Option<String>,
    /// The kubeconfig file; without it $KUBECONFIG, ~/.kube/config or, in a pod, the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; without it the current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// A component that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The plugin; `None`: any.
    pub plugin: Option<String>,
    /// The component.
    pub digest: Digest,
}

fn digest(text: &str) -> Result<Digest, String> {
    Digest::parse(text)
}

fn pin(text: &str) -> Result<Pin, String> {
    let (plugin, text) = text.split_once('=').map_or((None, text), |(plugin, text)| (Some(plugin.to_owned()), text));
    Ok(Pin { plugin, digest: digest(text)? })
}

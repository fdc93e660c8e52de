//! The arguments of `capstan dev`.

use std::net::SocketAddr;
use std::path::PathBuf;

use capstan_core::object::labels::Selector;
use clap::Args;

use super::address;

/// `capstan dev`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan dev                              in the folder that `capstan init` has made
  capstan dev greeting --context kind-dev
  KUBECONFIG=~/.kube/shared capstan dev --yes --takeover dev=ana

At each change of the folder: runs the command `build` of dev.yaml, writes crd.yaml if the types say something else, checks manifest and component as `capstan check` does,
applies crd.yaml, puts the new version in place while the operator runs, applies example.yaml, and prints each run with its
cause and its writes. If something is wrong, it says so, and the last good version goes on. What .gitignore names is not watched.
It asks before it touches a cluster that is not on this machine. SDKs, tools and the folder's .venv are used as they are.

Exit status: 0 ended by a signal, 1 something is wrong (the message says what), 2 wrong usage, 3 the cluster is not on this machine, and
nobody has said yes.")]
pub struct Dev {
    /// The folder of the operator.
    #[arg(default_value = ".", value_name = "FOLDER")]
    pub folder: PathBuf,
    /// The kubeconfig file; without it $KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; without it the current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Work beside a daemon that is deployed there: on primaries with this label alone, which others leave alone meanwhile. CRD and example are
    /// not applied then.
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub takeover: Option<String>,
    /// The address of probes and diagnostics; without it 127.0.0.1:8080, or a free port if that is taken.
    #[arg(long, value_name = "ADDRESS", value_parser = address, env = "CAPSTAN_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// Use the cluster, wherever it is.
    #[arg(short, long)]
    pub yes: bool,
}

fn label(text: &str) -> Result<String, String> {
    let right = "expected a label as in `kubectl get -l`, such as dev=ana";
    let is_label = text.split_once('=').is_some_and(|(key, _)| !key.is_empty() && !key.contains(['!', ' ', ',']));
    let is_selector = Selector::parse(text).is_ok();
    if is_label && is_selector { Ok(text.to_owned()) } else { Err(right.to_owned()) }
}

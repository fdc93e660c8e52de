//! Decides whether a cluster is one for trying things out on this machine, and asks before another one is touched.

use std::fmt;
use std::io::{BufRead, IsTerminal, Write};
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use http::Uri;

use crate::kubeconfig;

/// What tools call the contexts of clusters that they run on one's own machine: the beginnings, and whole names.
const TOOLS: [&str; 2] = ["kind-", "k3d-"];
const NAMES: [&str; 6] = ["minikube", "docker-desktop", "rancher-desktop", "orbstack", "colima", "microk8s"];

/// Where the operator runs.
#[derive(Debug)]
pub(super) struct Place {
    /// The context of the kubeconfig; `None` in a pod.
    context: Option<String>,
    server: Uri,
    /// The namespace of objects that name none.
    pub(super) namespace: String,
    /// How it is reached.
    pub(super) config: kube::Config,
}

impl Place {
    /// Returns where a kubeconfig leads.
    ///
    /// # Errors
    /// What is wrong with the kubeconfig, or that there is none.
    pub(super) async fn find(file: Option<PathBuf>, context: Option<String>) -> anyhow::Result<Self> {
        let (config, context) = kubeconfig::find_named(file, context).await?;
        Ok(Self { context, server: config.cluster_url.clone(), namespace: config.default_namespace.clone(), config })
    }

    /// Returns true if the cluster is on this machine.
    pub(super) fn is_local(&self) -> bool {
        is_local(self.context.as_deref(), &self.server)
    }

    /// Asks on the terminal whether the cluster may be used; without one, nobody has said yes.
    ///
    /// # Errors
    /// If the terminal can't be read or written.
    pub(super) fn confirmed() -> anyhow::Result<bool> {
        let mut terminal = std::io::stderr();
        if !std::io::stdin().is_terminal() || !terminal.is_terminal() {
            writeln!(
                terminal,
                "error: the cluster is not on this machine, and there is no terminal to ask on; say --yes to use it, or name another by --context"
            )?;
            return Ok(false);
        }
        write!(
            terminal,
            "The cluster is not on this machine. This operator's CRD and example are applied there, and it runs for all that it finds there. Go on? [y/N] "
        )?;
        terminal.flush()?;
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer).context("read the answer")?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { context, server, namespace, .. } = self;
        let server = server.to_string();
        match context {
            Some(context) => write!(f, "context {context}")?,
            None => write!(f, "the service account of the pod")?,
        }
        write!(f, ", {}, namespace {namespace}", server.trim_end_matches('/'))
    }
}

/// Decides whether a cluster is on this machine: it listens on loopback, or a tool for such clusters has named the context and its address
/// is none of the public internet.
fn is_local(context: Option<&str>, server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let named = context.is_some_and(|name| TOOLS.iter().any(|tool| name.starts_with(tool)) || NAMES.contains(&name));
    named
        && match address {
            Some(IpAddr::V4(address)) => address.is_private() || address.is_unspecified(),
            Some(IpAddr::V6(address)) => address.is_unique_local() || address.is_unspecified(),
            // As these tools call themselves where they have a name.
            None => host.rsplit_once('.').is_some_and(|(_, top)| ["internal", "local", "localhost"].contains(&top)),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_on_this_machine_by_its_address_or_by_its_tool() {
        for (context, server, local) in [
            (Some("prod"), "https://127.0.0.1:6443", true),
            (None, "http://localhost:8080", true),
            (Some("prod"), "https://[::1]:6443/", true),
            (Some("kind-dev"), "https://127.0.0.1:39211", true),
            (Some("k3d-dev"), "https://0.0.0.0:6550", true),
            (Some("minikube"), "https://192.168.49.2:8443", true),
            (Some("docker-desktop"), "https://kubernetes.docker.internal:6443", true),
            (Some("minikube"), "https://203.0.113.7:8443", false),
            (Some("kind-of-prod"), "https://api.example.com", false),
            (Some("prod"), "https://192.168.49.2:8443", false),
            (None, "https://10.96.0.1:443", false),
            (Some("localhost"), "https://localhost.example.com", false),
        ] {
            assert_eq!(is_local(context, &server.parse().unwrap()), local, "{context:?} {server}");
        }
    }
}

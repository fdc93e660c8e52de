//! The arguments of `capstan rbac`.

use std::path::PathBuf;

use capstan_core::rbac::people::Collector;
use clap::Args;

use super::{Documents, label, name, pair, segment};

/// `capstan rbac`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan rbac -m webpage.yaml --namespace capstan | kubectl apply -f -
  capstan rbac --ceilings ceilings.yaml --namespace capstan
  capstan rbac -m webpage.yaml --aggregate-to view,edit      who may read, and write, pages: all who have these roles
  capstan rbac -m operators/ --plural Person.example.com=people --cluster-scoped Tenant.example.com

No cluster is asked. Of kinds that are defined beside a manifest, in crd.yaml or the files that dev.yaml there names, plural and scope are known. Of
others the plural is guessed, and they are taken to live in namespaces. Kinds are named Kind.group, or Kind in the core group.")]
pub struct Rbac {
    /// A manifest, or a folder whose *.yaml and *.yml files are manifests; may be given several times.
    #[arg(short, long = "manifest", value_name = "PATH", required_unless_present = "ceilings", value_delimiter = ',')]
    pub manifests: Vec<PathBuf>,
    /// The file that the daemon gets as its `--ceilings`: also the roles that these come to, for the daemon and for their accounts.
    #[arg(long, value_name = "FILE")]
    pub ceilings: Option<PathBuf>,
    /// The file that the daemon gets as its `--defaults`.
    #[arg(long, value_name = "FILE")]
    pub defaults: Option<PathBuf>,
    /// The format of the roles.
    #[arg(short, long, value_enum, default_value_t = Documents::Yaml)]
    pub output: Documents,
    /// The namespace of the daemon and its service account: `own` in manifests.
    #[arg(short, long, alias = "release-namespace", value_name = "NAME", default_value = "default", value_parser = label)]
    pub namespace: String,
    /// The daemon's service account.
    #[arg(long, value_name = "NAME", default_value = "capstan", value_parser = name)]
    pub service_account: String,
    /// The name of roles and bindings; before it stands the daemon's namespace, except for those that are there. Without it `capstan-OPERATOR`, or
    /// `capstan` for several operators.
    #[arg(long, value_name = "NAME", value_parser = segment)]
    pub name: Option<String>,
    /// Also roles of the cluster for people, which these roles of Kubernetes collect (`rbac.authorization.k8s.io/aggregate-to-…`), separated by commas: who
    /// has `view` reads primaries of the manifests, who has `edit` or `admin` writes them, too. With --ceilings the same for operators that are objects, whose
    /// versions `admin` approves. Primaries of kinds of Kubernetes itself are left out.
    #[arg(long, value_parser = collector, value_name = "view|edit|admin", value_delimiter = ',')]
    pub aggregate_to: Vec<Collector>,
    /// A plural that is guessed wrong; may be given several times.
    #[arg(long = "plural", value_name = "KIND=NAME", value_parser = pair)]
    pub plurals: Vec<(String, String)>,
    /// A kind that lives in no namespace; those of Kubernetes itself are known. May be given several times.
    #[arg(long, value_name = "KIND")]
    pub cluster_scoped: Vec<String>,
    /// A subresource that components write with the verbs that `capabilities.kubernetes` has for the kind; may be given
    /// several times.
    #[arg(long = "subresource", value_name = "KIND=NAME", value_parser = pair)]
    pub subresources: Vec<(String, String)>,
}

fn collector(text: &str) -> Result<Collector, String> {
    let all = [Collector::View, Collector::Edit, Collector::Admin];
    all.into_iter().find(|one| one.name() == text).ok_or_else(|| "expected view, edit or admin".to_owned())
}

//! Decides without an API server which kinds are built in, and which of those live in a namespace; and says which verbs there are.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::object::{Gvk, Scope};
use crate::yaml;

/// The part of the chart's table with the scope of kinds; the rest is read by [`crate::rbac`].
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Table {
    cluster_scoped: BTreeSet<String>,
}

static TABLE: LazyLock<Table> = LazyLock::new(of_chart);

/// Reads a part of the chart's table.
#[expect(clippy::expect_used, reason = "the text is fixed, and a test reads it")]
pub(crate) fn of_chart<T: DeserializeOwned>() -> T {
    serde_yaml::from_str(include_str!("../../../charts/capstan/files/rbac.yaml"))
        .expect("the table of the chart is right")
}

/// Returns the name of a kind in tables and settings: `Kind.group`, or `Kind` in the core group.
pub fn kind_name(gvk: &Gvk) -> String {
    if gvk.group.is_empty() { gvk.kind.to_string() } else { format!("{}.{}", gvk.kind, gvk.group) }
}

/// Returns true if a kind is one of Kubernetes itself, judged by its group.
pub fn is_built_in(gvk: &Gvk) -> bool {
    !gvk.group.contains('.') || gvk.group.ends_with(".k8s.io")
}

/// Returns the scope of a kind; `None` if only an API server can tell. A group without a dot has no custom resources,
/// so all its kinds are known; one that ends in `.k8s.io` may have some.
pub fn scope(gvk: &Gvk) -> Option<Scope> {
    if TABLE.cluster_scoped.contains(&kind_name(gvk)) {
        Some(Scope::Cluster)
    } else if gvk.group.contains('.') {
        None
    } else {
        Some(Scope::Namespaced)
    }
}

/// A verb of RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline, transform = yaml::words)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read all objects.
    List,
    /// Receive changes.
    Watch,
    /// Create an object; also needed by an apply if the object does not exist.
    Create,
    /// Replace an object.
    Update,
    /// Change an object.
    Patch,
    /// Delete an object.
    Delete,
}

impl Verb {
    /// Returns the verb as RBAC writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_kind_lives_is_known_of_those_of_kubernetes() {
        for (api_version, kind, expected) in [
            ("v1", "ConfigMap", Some(Scope::Namespaced)),
            ("apps/v1", "Deployment", Some(Scope::Namespaced)),
            ("v1", "Namespace", Some(Scope::Cluster)),
            ("storage.k8s.io/v1", "StorageClass", Some(Scope::Cluster)),
            // A custom resource may have such a group.
            ("networking.k8s.io/v1", "Ingress", None),
            ("sample.dev/v1", "Namespace", None),
        ] {
            let gvk = Gvk::parse(api_version, kind).unwrap();
            assert_eq!(scope(&gvk), expected, "{gvk}");
        }
    }
}

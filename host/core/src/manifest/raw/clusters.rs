//! The fields of other clusters as they are written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::names::{DataKey, HolderName};
use super::MaybeLeaf;
use crate::yaml::{Leaf, Slot};

/// Another cluster.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "OtherCluster")]
pub(in super::super) struct Cluster {
    /// What leads to it: a kubeconfig with one cluster and one user.
    pub(in super::super) kubeconfig: Slot<Kubeconfig>,
}

/// Where a kubeconfig is.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) enum Kubeconfig {
    /// In a Secret of the daemon's own namespace, whose label `capstan.dev/kubeconfig-for` permits it to this operator (`CU-2`).
    Secret(Slot<SecretKey>),
}

/// Where something is in a Secret.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct SecretKey {
    /// The Secret's name.
    pub(in super::super) name: Leaf<HolderName>,
    /// The key of its data.
    #[schemars(extend("default" = "kubeconfig"))]
    pub(in super::super) key: MaybeLeaf<DataKey>,
}

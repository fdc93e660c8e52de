//! The fields of values of `config` that Secrets and ConfigMaps have, as they are written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::names::{DataKey, HolderName};
use super::MaybeLeaf;
use crate::yaml::{Entries, Leaf, Scalar, Slot};

/// Values by their names in `config`.
pub(in super::super) type ConfigFrom = Entries<Scalar<DataKey>, ConfigValue>;

/// Where a value of `config` is.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) enum ConfigValue {
    /// In a Secret of the daemon's own namespace, whose label `capstan.dev/config-for` permits it to this operator (`CV-2`).
    Secret(Slot<ValueKey>),
    /// In a ConfigMap of the daemon's own namespace, whose label `capstan.dev/config-for` permits it to this operator (`CV-2`).
    ConfigMap(Slot<ValueKey>),
}

/// Where a value is in a Secret or ConfigMap.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct ValueKey {
    /// The object's name.
    pub(in super::super) name: Leaf<HolderName>,
    /// The key of its data; without it, the name that the value has in `config`.
    pub(in super::super) key: MaybeLeaf<DataKey>,
}

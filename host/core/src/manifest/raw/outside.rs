//! The fields of dependents outside of the cluster.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::names::{ApiVersion, KindName, Name};
use super::Maybe;
use crate::yaml::{Leaf, Slot};

/// What a dependent is that is outside of the cluster.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Outside {
    /// The source of this controller that knows what there is of it: with `poll`, `pollEach` or `inbound` (`XD-1`).
    pub(in crate::manifest) source: Leaf<Name>,
    /// What tells its things apart, in what there is and in what is desired; without it, their ids (`XD-1`).
    pub(in crate::manifest) key: Maybe<ThingKey>,
    /// The Kubernetes objects that remember the ids of its things. They are watched by a source that is called like the dependent, with
    /// `-state` behind it (`XD-2`).
    pub(in crate::manifest) state: Maybe<StateKind>,
}

/// What tells things apart.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum ThingKey {
    /// A CEL expression over `thing` for a text: `thing.name` (`XD-1`).
    Cel(Slot<String>),
}

/// The kind of objects that remember ids.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct StateKind {
    /// Group and version of the kind.
    pub(in crate::manifest) api_version: Leaf<ApiVersion>,
    /// The kind.
    pub(in crate::manifest) kind: Leaf<KindName>,
}

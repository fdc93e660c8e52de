//! The fields of filters.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::names::Export;
use super::Maybe;
use crate::yaml::{Leaf, Slot};

/// Which changes of primaries make them run. What the daemon itself waits for counts in any case: a deletion, its finalizer
/// that was added, a primary with that finalizer that is marked for deletion, a pause that ends.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct PrimaryFilters {
    /// Whether an addition counts. At the start each primary is one (`CF-1`).
    pub(in crate::manifest) on_add: Maybe<AddFilter>,
    /// Whether an update counts that the built-in rules let pass (`CF-2`).
    pub(in crate::manifest) on_update: Maybe<UpdateFilter>,
    /// Whether an addition or update counts, beside the others (`CF-5`).
    pub(in crate::manifest) generic: Maybe<AddFilter>,
}

/// Which changes of an object, or of a thing outside of the cluster, make its primaries run.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Filters {
    /// Whether an addition counts (`IS-1`).
    pub(in crate::manifest) on_add: Maybe<AddFilter>,
    /// Whether an update counts (`IS-1`).
    pub(in crate::manifest) on_update: Maybe<UpdateFilter>,
    /// Whether a deletion counts (`IS-1`).
    pub(in crate::manifest) on_delete: Maybe<DeleteFilter>,
    /// Whether a change counts, whatever its sort, beside the others (`IS-1`).
    pub(in crate::manifest) generic: Maybe<AddFilter>,
}

/// A filter that is asked about an object.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum AddFilter {
    /// A CEL expression over `object`, as it is or was last seen (`IS-1`).
    Cel(Slot<String>),
    /// The component decides, by its export `filter` (`IS-1`).
    Export(Leaf<Export>),
}

/// A filter that is asked about an update.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum UpdateFilter {
    /// A CEL expression over `object`, as it is, and `oldObject`, as it was (`IS-1`).
    Cel(Slot<String>),
    /// The component decides, by its export `filter` (`IS-1`).
    Export(Leaf<Export>),
}

/// A filter that is asked about a deletion.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum DeleteFilter {
    /// A CEL expression over `object`, as it was last seen, and `finalStateUnknown`, which is true if the deletion itself was missed
    /// (`IS-1`).
    Cel(Slot<String>),
    /// The component decides, by its export `filter` (`IS-1`).
    Export(Leaf<Export>),
}

//! The fields of sources of things outside of the cluster.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::units::{Bytes, Time, Times, Workers};
use super::{Filters, Maybe, MaybeLeaf};
use crate::object::pointer::Pointer;
use crate::yaml::{Leaf, Slot};

/// Things outside of the cluster, which the plugin reads for all primaries at once.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Poll {
    /// The time from one poll to the next, 100 ms or longer; the first is made at the start. A poll comes up to a tenth earlier, so that not
    /// all come together; after failures later (`PP-1`).
    pub(in crate::manifest) every: Leaf<Time>,
    /// Where the id of a thing is: a JSON pointer to a text or a whole number. No two things of a primary have the same (`XC-3`).
    pub(in crate::manifest) id: Leaf<Pointer>,
    /// Which changes of things make their primary run (`XC-7`).
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) filters: Maybe<Filters>,
    /// How much of it is kept. An answer with more is a failure.
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) bounded: Maybe<KeptThings>,
}

/// Things outside of the cluster, which the plugin reads for each primary by itself.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct PollEach {
    /// The time from one poll of a primary to the next, 100 ms or longer, unless the plugin says another. A poll comes up to a tenth earlier,
    /// so that not all come together; after failures later (`PP-2`).
    pub(in crate::manifest) every: Leaf<Time>,
    /// Where the id of a thing is: a JSON pointer to a text or a whole number. No two things of a primary have the same (`XC-3`).
    pub(in crate::manifest) id: Leaf<Pointer>,
    /// The time from when a primary appears to its first poll; without it, as long as `every` (`PP-2`).
    pub(in crate::manifest) first_after: MaybeLeaf<Time>,
    /// Which primaries are polled; without it, all. The others have no things (`PP-2`).
    pub(in crate::manifest) when: Maybe<When>,
    /// How many primaries are polled at once (`PP-2`).
    #[schemars(extend("default" = 1))]
    pub(in crate::manifest) concurrency: MaybeLeaf<Workers>,
    /// Which changes of things make their primary run (`XC-7`).
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) filters: Maybe<Filters>,
    /// How much of it is kept, of all primaries together. An answer with more is a failure.
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) bounded: Maybe<KeptThings>,
}

/// Which primaries are polled.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum When {
    /// Those for which a CEL expression over `primary` is true (`PP-2`).
    Cel(Slot<String>),
}

/// How much a source keeps.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct KeptThings {
    /// The most things.
    #[schemars(extend("default" = 10000))]
    pub(in crate::manifest) things: MaybeLeaf<Times>,
    /// The most memory that they take, which counts as the plugin's.
    #[schemars(extend("default" = "16Mi"))]
    pub(in crate::manifest) memory: MaybeLeaf<Bytes>,
}

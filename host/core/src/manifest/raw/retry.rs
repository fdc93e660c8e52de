//! The fields of how failures are retried.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::units::{Factor, Share, Time, Times};
use super::{Maybe, MaybeLeaf, Nothing, Unlimited};
use crate::yaml::{OrWord, Scalar};

/// The retry policy.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Retry {
    /// The first delay, and the second (`RT-2`).
    #[schemars(extend("default" = "2s"))]
    pub(in crate::manifest) initial_interval: MaybeLeaf<Time>,
    /// The factor from a delay to the next (`RT-2`).
    #[schemars(extend("default" = 1.5))]
    pub(in crate::manifest) multiplier: MaybeLeaf<Factor>,
    /// Retries after the first run, or `unlimited` (`RT-1`).
    #[schemars(extend("default" = 5))]
    pub(in crate::manifest) max_attempts: Maybe<OrWord<Unlimited, Scalar<Times>>>,
    /// The longest delay, at least `initialInterval`; `none` is no bound; without it, `initialInterval` × `multiplier`⁵ (`RT-1`).
    pub(in crate::manifest) max_interval: Maybe<OrWord<Nothing, Scalar<Time>>>,
    /// By which share of it, from 0 to 1, a delay may be shorter, so that primaries that fail together are not retried together (`RT-2`).
    #[schemars(extend("default" = 0))]
    pub(in crate::manifest) jitter: MaybeLeaf<Share>,
    /// How failures of single classes are retried, where that is otherwise. The attempts of all classes are counted together; an outage of the
    /// API server is none of them (`RT-7`).
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) by: Maybe<RetryBy>,
}

/// Classes of failures that are retried otherwise; `none` is not at all.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct RetryBy {
    /// The component returned an error (`RT-7`).
    pub(in crate::manifest) returned: Maybe<OrWord<Nothing, ClassRetry>>,
    /// Dependents of the managed workflow failed, and not all of them for a conflict, or a refusal (`RT-7`).
    pub(in crate::manifest) workflow: Maybe<OrWord<Nothing, ClassRetry>>,
    /// A write of the daemon, of the primary or a dependent, met a newer version (HTTP 409) (`RT-7`).
    pub(in crate::manifest) conflict: Maybe<OrWord<Nothing, ClassRetry>>,
    /// Such a write was refused: it is not valid, not permitted, or its object or kind does not exist (`RT-7`).
    pub(in crate::manifest) rejected: Maybe<OrWord<Nothing, ClassRetry>>,
    /// The component trapped (`RT-7`).
    pub(in crate::manifest) trap: Maybe<OrWord<Nothing, ClassRetry>>,
    /// A call, or the run, took longer than it may (`RT-7`).
    pub(in crate::manifest) timeout: Maybe<OrWord<Nothing, ClassRetry>>,
    /// The component wanted more memory than it may have (`RT-7`).
    pub(in crate::manifest) out_of_memory: Maybe<OrWord<Nothing, ClassRetry>>,
    /// Anything else (`RT-7`).
    pub(in crate::manifest) other: Maybe<OrWord<Nothing, ClassRetry>>,
}

/// The retry policy of one class of failures. What is left out is as in the policy around it.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct ClassRetry {
    /// The first delay, and the second (`RT-2`).
    pub(in crate::manifest) initial_interval: MaybeLeaf<Time>,
    /// The factor from a delay to the next (`RT-2`).
    pub(in crate::manifest) multiplier: MaybeLeaf<Factor>,
    /// The most retries of a primary, whatever the earlier ones were for, or `unlimited` (`RT-1`).
    pub(in crate::manifest) max_attempts: Maybe<OrWord<Unlimited, Scalar<Times>>>,
    /// The longest delay, at least `initialInterval`; `none` is no bound; if the policy around has none either, `initialInterval` ×
    /// `multiplier`⁵ of this class (`RT-1`).
    pub(in crate::manifest) max_interval: Maybe<OrWord<Nothing, Scalar<Time>>>,
    /// By which share of it, from 0 to 1, a delay may be shorter (`RT-2`).
    pub(in crate::manifest) jitter: MaybeLeaf<Share>,
}

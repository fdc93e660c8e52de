//! The fields of the daemon's defaults as they are written: what a manifest leaves out is as they say.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{DocumentVersion, Maybe, MaybeLeaf, Nothing, RateLimit, Retry};
use crate::cluster::FieldValidation;
use crate::manifest::OnStartError;
use crate::manifest::units::{Time, Workers};
use crate::yaml::{OrWord, Scalar, Slot};

/// What holds for all operators of a daemon whose manifests do not say otherwise.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Document {
    /// The version of this format.
    #[serde(rename = "apiVersion")]
    _api_version: Slot<DocumentVersion>,
    /// The kind of this document.
    #[serde(rename = "kind")]
    _kind: Slot<Kind>,
    /// The defaults.
    pub(in crate::manifest) spec: Slot<Spec>,
}

/// The kind of this document.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
enum Kind {
    Defaults,
}

/// The defaults.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Spec {
    /// Of controllers.
    pub(in crate::manifest) controllers: Maybe<Controllers>,
    /// Of dependents.
    pub(in crate::manifest) dependents: Maybe<Dependents>,
}

/// The defaults of dependents that are objects of the cluster, and of the objects that remember things outside of it.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Dependents {
    /// Write and compare by server-side apply (`KD-5`).
    pub(in crate::manifest) server_side_apply: Maybe<bool>,
    /// The kinds that are written otherwise all the same, of whatever version; without it `ConfigMap` and `Secret` (`KD-5`).
    pub(in crate::manifest) server_side_apply_except: Maybe<Vec<Slot<super::Kind>>>,
}

/// The defaults of controllers; each field is that of the same name in a manifest, and counts as a whole.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Controllers {
    /// Ignore updates that change neither generation nor deletion (`CF-2`).
    pub(in crate::manifest) generation_aware: Maybe<bool>,
    /// Patch the primary by server-side apply (`UC-2`).
    pub(in crate::manifest) server_side_apply: Maybe<bool>,
    /// What becomes of fields that are written and that a kind does not have (`FV-1`).
    pub(in crate::manifest) field_validation: Maybe<FieldValidation>,
    /// How failures are retried; `none` is not at all (`RT-1`).
    pub(in crate::manifest) retry: Maybe<OrWord<Nothing, Retry>>,
    /// How often one primary may run; `none` is as often as there is a reason (`RL-1`).
    pub(in crate::manifest) rate_limit: Maybe<OrWord<Nothing, RateLimit>>,
    /// A run that asks to run again does so after this time at the earliest; `none` is at once.
    pub(in crate::manifest) min_reschedule_interval: Maybe<OrWord<Nothing, Scalar<Time>>>,
    /// A primary is reconciled so long after its last run if nothing else is due before; `none` is never without an event (`IV-1`).
    pub(in crate::manifest) max_reconciliation_interval: Maybe<OrWord<Nothing, Scalar<Time>>>,
    /// The time one run may take in all; `none` is as long as its calls may (`RT-6`).
    pub(in crate::manifest) reconciliation_timeout: Maybe<OrWord<Nothing, Scalar<Time>>>,
    /// Runs at once.
    pub(in crate::manifest) concurrency: MaybeLeaf<Workers>,
    /// How long a controller waits at its start until all that it watches is known (`IE-1`).
    pub(in crate::manifest) cache_sync_timeout: MaybeLeaf<Time>,
    /// What it does if that is not so by then (`IE-1`).
    pub(in crate::manifest) on_start_error: Maybe<OnStartError>,
}

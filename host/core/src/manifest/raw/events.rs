//! The fields of Kubernetes Events about primaries.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Maybe;
use crate::yaml::Slot;

/// Kubernetes Events about primaries.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Events {
    /// Which Events of a primary are counted as one, if the component says no key (`ER-7`).
    #[schemars(extend("default" = "message"))]
    pub(in crate::manifest) key: Maybe<EventKey>,
    /// What they are called; without it, by what they have in common with those that are counted as one (`ER-7`).
    pub(in crate::manifest) name: Maybe<EventName>,
    /// Whether they go with their primary, by an owner reference, rather than after the time that the API server keeps them (`ER-7`).
    #[schemars(extend("default" = false))]
    pub(in crate::manifest) owner_reference: Maybe<bool>,
    /// Whether the daemon records a Warning when a run fails, unless the component deals with the failure; one for each reason, counted
    /// (`ER-8`), and Events when what `pollEach` polls fails again and again (`PP-4`).
    #[schemars(extend("default" = true))]
    pub(in crate::manifest) of_failures: Maybe<bool>,
}

/// Which Events are counted as one.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum EventKey {
    /// Those with the same type, reason and message (`ER-4`).
    Message,
    /// Those with the same type and reason; the last message is shown (`ER-7`).
    TypeAndReason,
    /// Those with the same type, reason and text, which a CEL expression over `primary` and `event` says. `event` has `type`, `reason`,
    /// `message`, and, if there are any, `key`, `action` and `component`; without a text, those with the same message (`ER-7`).
    Cel(Slot<String>),
}

/// What Events are called.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum EventName {
    /// As a CEL expression over `primary` and `event` says; if that is no name, or that of another Event, as without it (`ER-7`).
    Cel(Slot<String>),
}

//! The fields of sources that take requests from outside.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::names::{DataKey, HolderName};
use super::super::units::{Bytes, Time, Times, Workers};
use super::polls::KeptThings;
use super::{Filters, Maybe, MaybeLeaf, Nothing};
use crate::object::pointer::Pointer;
use crate::yaml::{self, Leaf, OrWord, Slot};

/// What is told of by requests from outside, at `/OPERATOR/CONTROLLER/SOURCE` of the daemon's `--inbound-listen`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Inbound {
    /// Who may send: whoever has this token, as `Authorization: Bearer TOKEN`. With `none` everybody who reaches the port, so that the
    /// plugin has to look at who sends (`IB-3`).
    pub(in crate::manifest) token: Slot<OrWord<Nothing, Token>>,
    /// Where the id of a thing is: a JSON pointer to a text or a whole number. No two things of a primary have the same (`XC-3`).
    #[schemars(extend("default" = "/id"))]
    pub(in crate::manifest) id: MaybeLeaf<Pointer>,
    /// How the plugin is told of a body: as the text that it is, or in base64 (`IB-4`).
    #[schemars(extend("default" = "text"))]
    pub(in crate::manifest) body: Maybe<BodyForm>,
    /// The largest body, at most 1Mi (`IB-4`).
    #[schemars(extend("default" = "64Ki"))]
    pub(in crate::manifest) body_size: MaybeLeaf<Bytes>,
    /// The most requests a second, five times as many at once after a rest. What is beyond is refused (`IB-4`).
    #[schemars(extend("default" = 10))]
    pub(in crate::manifest) requests_per_second: MaybeLeaf<Times>,
    /// Which changes of things make their primary run (`XC-7`).
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) filters: Maybe<Filters>,
    /// How much of what was told is kept, of all primaries together. What is beyond is refused.
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) bounded: Maybe<KeptThings>,
    /// That the plugin is asked for the things of a primary, by its export `resource-poller`, when a request only says that something has
    /// changed, and when a run reads what nobody has told; without it, only what requests say is known (`IB-6`).
    pub(in crate::manifest) fetch: Maybe<Fetch>,
}

/// When the plugin is asked for the things of a primary, beside what requests say.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Fetch {
    /// The time after which it is asked without a request, 100 ms or longer, in case one was lost; without it, only when there is a reason
    /// (`IB-6`).
    pub(in crate::manifest) every: MaybeLeaf<Time>,
    /// For how many primaries it is asked at once (`IB-6`).
    #[schemars(extend("default" = 1))]
    pub(in crate::manifest) concurrency: MaybeLeaf<Workers>,
}

/// Where a token is.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum Token {
    /// In a Secret of the daemon's own namespace, whose label `capstan.dev/config-for` permits it to this operator (`IB-3`, `CV-2`).
    Secret(Slot<TokenKey>),
}

/// Where a token is in a Secret.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct TokenKey {
    /// The Secret's name.
    pub(in crate::manifest) name: Leaf<HolderName>,
    /// The key of its data: a text of 16 to 512 characters.
    #[schemars(extend("default" = "token"))]
    pub(in crate::manifest) key: MaybeLeaf<DataKey>,
}

/// How the plugin is told of a body.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = yaml::words)]
pub(in crate::manifest) enum BodyForm {
    /// As a text; what is no UTF-8 is refused.
    Text,
    /// In base64.
    Base64,
}

//! The fields of the daemon's ceilings as they are written: what operators of other namespaces may have at most.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::destinations::{HostName, ToHttp, ToTcp};
use super::super::names::{GroupName, PublicKey, RegistryPath, ResourceName};
use super::super::units::{Bytes, Counted, Time, Times, Workers};
use super::{DocumentVersion, Maybe, MaybeLeaf, Named, Names};
use crate::kinds::Verb;
use crate::manifest::OnNewVersion;
use crate::yaml::{Leaf, Slot};

/// What operators that are objects in other namespaces than the daemon's own may have at most.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Document {
    /// The version of this format.
    #[serde(rename = "apiVersion")]
    _api_version: Slot<DocumentVersion>,
    /// The kind of this document.
    #[serde(rename = "kind")]
    _kind: Slot<Kind>,
    /// The ceilings.
    pub(in crate::manifest) spec: Slot<Spec>,
}

/// The kind of this document.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
enum Kind {
    Ceilings,
}

/// The ceilings.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Spec {
    /// The ceilings by name, each for namespaces of its own.
    pub(in crate::manifest) ceilings: Slot<Named<Ceiling>>,
}

/// What the operators of some namespaces may have at most. Each works in its own namespace alone.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Ceiling {
    /// The namespaces whose operators the daemon runs within this ceiling (`CE-1`).
    #[schemars(extend("minItems" = 1))]
    pub(in crate::manifest) namespaces: Slot<Names>,
    /// The service accounts of the operator's namespace in whose name it may act: it has to name one of them as `serviceAccount` (`CE-3`).
    #[schemars(extend("minItems" = 1))]
    pub(in crate::manifest) service_accounts: Slot<Names>,
    /// What it may need of the API server in its namespace, as a Role has it (`CE-3`).
    #[schemars(extend("minItems" = 1))]
    pub(in crate::manifest) rules: Slot<Vec<Slot<Rule>>>,
    /// The operators of one namespace (`CE-5`).
    #[schemars(extend("default" = 10))]
    pub(in crate::manifest) operators: MaybeLeaf<Counted>,
    /// The plugins of all operators of one namespace (`CE-5`).
    #[schemars(extend("default" = 10))]
    pub(in crate::manifest) plugins: MaybeLeaf<Counted>,
    /// The controllers of all operators of one namespace (`CE-5`).
    #[schemars(extend("default" = 10))]
    pub(in crate::manifest) controllers: MaybeLeaf<Counted>,
    /// What each plugin may use up (`CE-4`).
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) limits: Maybe<Most>,
    /// Where plugins may send HTTP requests: an entry permits what a manifest's entry of the same form would (`CE-4`).
    #[schemars(extend("default" = []))]
    pub(in crate::manifest) http: Maybe<Vec<Leaf<ToHttp>>>,
    /// Where plugins may open TCP connections, in the same way (`CE-4`).
    #[schemars(extend("default" = []))]
    pub(in crate::manifest) tcp: Maybe<Vec<Leaf<ToTcp>>>,
    /// Hosts by their full name that may have addresses of a private network (`CE-4`).
    #[schemars(extend("default" = []))]
    pub(in crate::manifest) internal: Maybe<Vec<Leaf<HostName>>>,
    /// The registries that components may come from: `registry.example.com`, or only what is below a path, `ghcr.io/team-a` (`CE-4`).
    #[schemars(extend("default" = []))]
    pub(in crate::manifest) registries: Maybe<Vec<Leaf<RegistryPath>>>,
    /// Public keys in PEM, one of which has to have signed each component, whatever else is demanded (`CE-4`, `SG-1`).
    #[schemars(extend("default" = [], "maxItems" = 16))]
    pub(in crate::manifest) verify_keys: Maybe<Vec<Leaf<PublicKey>>>,
    /// `ask`: versions of its operators that want more wait for an approval, as do the first ones, whatever manifests say (`AP-2`).
    #[schemars(extend("default" = "apply"))]
    pub(in crate::manifest) on_new_version: Maybe<OnNewVersion>,
    /// Whether sources may take requests from outside (`inbound`).
    #[schemars(extend("default" = false))]
    pub(in crate::manifest) inbound: Maybe<bool>,
}

/// What each plugin may use up at most. Without a field, the default of manifests is the most.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Most {
    /// The most that `limits.memory` may be.
    #[schemars(extend("default" = "64Mi"))]
    pub(in crate::manifest) memory: MaybeLeaf<Bytes>,
    /// The most that `limits.timeout` may be.
    #[schemars(extend("default" = "5s"))]
    pub(in crate::manifest) timeout: MaybeLeaf<Time>,
    /// The most that `limits.concurrency` may be, and `concurrency` of controllers.
    #[schemars(extend("default" = 8))]
    pub(in crate::manifest) concurrency: MaybeLeaf<Workers>,
    /// The most that `limits.cpu` may be, which has to be given then; without it, no bound.
    pub(in crate::manifest) cpu: MaybeLeaf<Time>,
    /// The most that `limits.requestsPerSecond` may be.
    #[schemars(extend("default" = 1000))]
    pub(in crate::manifest) requests_per_second: MaybeLeaf<Times>,
    /// The most that `limits.connections` may be.
    #[schemars(extend("default" = 16))]
    pub(in crate::manifest) connections: MaybeLeaf<Workers>,
}

/// Verbs on resources.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Rule {
    /// API groups; `""` is the core group.
    #[schemars(extend("minItems" = 1))]
    pub(in crate::manifest) api_groups: Slot<Vec<Leaf<GroupName>>>,
    /// Resources by their plural, with a subresource if one is meant: `pages`, `pages/status`.
    #[schemars(extend("minItems" = 1))]
    pub(in crate::manifest) resources: Slot<Vec<Leaf<ResourceName>>>,
    /// Verbs.
    #[schemars(extend("minItems" = 1))]
    pub(in crate::manifest) verbs: Slot<Vec<Slot<Verb>>>,
}

//! The fields of a plugin: its component, what it may take, and what it may do.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::destinations::{HostName, ToHttp, ToTcp};
use super::super::names::{ApiVersion, KindName};
use super::super::units::{Bytes, Objects, Registered, Requests, Time, Times, Workers};
use super::super::{Isolation, OnSwap, Permission};
use super::{Component, ConfigFrom, Fresh, Maybe, MaybeLeaf, Namespaces, Warmed};
use crate::yaml::{Leaf, OrWord, Slot};

/// A component, and what it may use.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Plugin {
    /// Where the component is.
    pub(in crate::manifest) component: Slot<Component>,
    /// What it may use up.
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) limits: Maybe<Limits>,
    /// What it may ask for; everything else is denied.
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) capabilities: Maybe<Capabilities>,
    /// Settings of its own, which it reads through `config`.
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) config: Maybe<Map<String, Value>>,
    /// Values of `config`, each a text, that Secrets and ConfigMaps have, by their names in it. When one changes, that is a change of the
    /// plugin's settings (`CV-1`).
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) config_from: Maybe<ConfigFrom>,
    /// Whether each run gets an instance of its own, or with `warm` one that has run before, if one is free: for languages
    /// whose start is slow. What an instance still knows of earlier runs is not to be relied on; one that has failed is never
    /// used again.
    #[schemars(extend("default" = "fresh"))]
    pub(in crate::manifest) instances: Maybe<Instances>,
    /// In which process its instances are: that of the daemon, with those of all others, or with `process` one of their own, which can
    /// reach nothing but the daemon: for components that are trusted less. A call then takes a little longer, and each such
    /// plugin some MiB of memory.
    #[schemars(extend("default" = "shared"))]
    pub(in crate::manifest) isolation: Maybe<Isolation>,
    /// What follows once a changed component, or changed settings of it, are in force: all primaries of its controllers run
    /// once more, or nothing.
    #[schemars(extend("default" = "reconcileAll"))]
    pub(in crate::manifest) on_swap: Maybe<OnSwap>,
}

/// Whether instances are used again: `fresh`, `warm`, or `warm` with its bounds.
pub(in crate::manifest) type Instances = OrWord<Fresh, OrWord<Warmed, Bounded>>;

/// Instances that are used again within bounds.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum Bounded {
    /// They are used again.
    Warm(Slot<Warm>),
}

/// How long an instance is used.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Warm {
    /// It is replaced after so many runs.
    #[schemars(extend("default" = 1000))]
    pub(in crate::manifest) runs: MaybeLeaf<Times>,
    /// It is replaced after a run that leaves it with more memory than this; without it, three quarters of `limits.memory`.
    pub(in crate::manifest) memory: MaybeLeaf<Bytes>,
    /// It is dropped when it has not been used for so long.
    #[schemars(extend("default" = "5m"))]
    pub(in crate::manifest) idle: MaybeLeaf<Time>,
}

/// What a plugin may use up.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Limits {
    /// Memory of an instance, with what the daemon has just made for it; from 64Ki to 4Gi.
    #[schemars(extend("default" = "64Mi"))]
    pub(in crate::manifest) memory: MaybeLeaf<Bytes>,
    /// The time one call may take.
    #[schemars(extend("default" = "5s"))]
    pub(in crate::manifest) timeout: MaybeLeaf<Time>,
    /// Calls at once; nested ones are not counted. The daemon has a bound of its own (`--plugin-concurrency`).
    #[schemars(extend("default" = 8))]
    pub(in crate::manifest) concurrency: MaybeLeaf<Workers>,
    /// Processor time that its runs may use in each second, from `1ms` on; without it as much as there is, shared with others.
    pub(in crate::manifest) cpu: MaybeLeaf<Time>,
    /// Requests to the API server that one run may ask for.
    #[schemars(extend("default" = 100))]
    pub(in crate::manifest) requests: MaybeLeaf<Requests>,
    /// Requests to the API server a second, of all runs together; five times as many at once after a rest. What is beyond
    /// waits. The daemon's `--plugin-requests` bounds it.
    #[schemars(extend("default" = 1000))]
    pub(in crate::manifest) requests_per_second: MaybeLeaf<Times>,
    /// Connections to the network at once, of all runs together, each of which counts for 256Ki of the memory that all plugins share. What is beyond waits; of TCP it is refused.
    #[schemars(extend("default" = 16))]
    pub(in crate::manifest) connections: MaybeLeaf<Workers>,
    /// Objects in one answer of the cache. It ends earlier if they have more bytes than a quarter of `memory`, or 8Mi.
    #[schemars(extend("default" = 500))]
    pub(in crate::manifest) page: MaybeLeaf<Objects>,
    /// Sources that the runs of one controller may have registered at once (`ES-4`).
    #[schemars(extend("default" = 8))]
    pub(in crate::manifest) sources: MaybeLeaf<Registered>,
    /// Log lines of one call, each of which counts for 256 bytes besides its own; what is beyond is dropped, with one warning. All calls of the plugin together may log four times as
    /// much at once, and as much each second.
    #[schemars(extend("default" = "64Ki"))]
    pub(in crate::manifest) log: MaybeLeaf<Bytes>,
    /// What is kept between calls.
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) memo: Maybe<Memo>,
}

/// What is kept between calls.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Memo {
    /// All memos of one run.
    #[schemars(extend("default" = "64Ki"))]
    pub(in crate::manifest) run: MaybeLeaf<Bytes>,
    /// All memos of one primary.
    #[schemars(extend("default" = "4Ki"))]
    pub(in crate::manifest) primary: MaybeLeaf<Bytes>,
    /// All memos of the plugin.
    #[schemars(extend("default" = "64Ki"))]
    pub(in crate::manifest) plugin: MaybeLeaf<Bytes>,
}

/// What a plugin may ask for.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Capabilities {
    /// What it may do with Kubernetes objects, one entry for each kind, or several for different namespaces; at most 256.
    #[schemars(extend("default" = [], "maxItems" = 256))]
    pub(in crate::manifest) kubernetes: Maybe<Vec<Slot<Grant>>>,
    /// Hosts to which it may send HTTP requests (`wasi:http`): a name, all names below a domain (`*.example.com`), or an address; with
    /// `http://` or `https://` only that, with a port that one in place of the usual one.
    #[schemars(extend("default" = [], "maxItems" = 256))]
    pub(in crate::manifest) http: Maybe<Vec<Leaf<ToHttp>>>,
    /// Hosts and ports to which it may open TCP connections (`wasi:sockets`), such as `db.example.com:5432`; the hosts as in `http`. Each list of hosts has at most 256.
    #[schemars(extend("default" = [], "maxItems" = 256))]
    pub(in crate::manifest) tcp: Maybe<Vec<Leaf<ToTcp>>>,
    /// Hosts of `http` and `tcp` by their full name, such as `keycloak.auth.svc`, that may have addresses of a private network, as those of the
    /// cluster's services and pods are. Without it, a name is connected to at public addresses only.
    #[schemars(extend("default" = [], "maxItems" = 256))]
    pub(in crate::manifest) internal: Maybe<Vec<Leaf<HostName>>>,
}

/// What may be done with objects of a kind.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Grant {
    /// Group and version of the kind.
    pub(in crate::manifest) api_version: Leaf<ApiVersion>,
    /// The kind.
    pub(in crate::manifest) kind: Leaf<KindName>,
    /// What is permitted: `get` reads from the caches beyond what belongs to the primary; `watch` lets runs register sources of the kind by
    /// `sources`, which they read as a whole (`ES-4`); the others are the functions of `operations`, with `patch` for `edit`, `json-patch` and `merge-patch`, and `delete` for `remove` and for what leads to
    /// a deletion, such as another's owner reference or finalizer (`RO-1`).
    #[schemars(extend("minItems" = 1))]
    pub(in crate::manifest) verbs: Slot<Vec<Slot<Permission>>>,
    /// Where; without it, where the controller watches its primaries. A kind that lives in no namespace needs `all`, unless it is
    /// that of the primary or of a dependent.
    pub(in crate::manifest) namespaces: Maybe<Namespaces>,
}

//! The fields of a manifest as they are written: the source of the reader, of the JSON schema and of the tables in `docs/manifest.md`.
//!
//! A description ends with the rules that it follows. `default` is what the absence of a field means; a test holds it to
//! the checked types.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::destinations::{HostName, ToHttp, ToTcp};
use super::names::{ApiVersion, Export, FieldManager, FieldSelector, FilePath, Finalizer, Key, KindName, Name};
use super::units::{Bytes, Objects, Priority, Registered, Requests, Time, Times, Workers};
use super::{Isolation, OnStartError, OnSwap, Permission};
use crate::object::pointer::Pointer;
use crate::object::shard::Shard;
use crate::yaml::{Entries, Leaf, ListOr, OrWord, Scalar, Slot, Word};

mod clusters;
mod config;
pub(super) mod defaults;
mod dependent;
mod events;
mod filters;
mod inbound;
mod polls;
mod retry;

pub(super) use clusters::{Cluster, Kubeconfig, SecretKey};
pub(super) use config::{ConfigFrom, ConfigValue, ValueKey};
pub(super) use dependent::{
    Condition, Dependent, ErrorsTo, Generic, Invocation, Match, ObjectName, Standalone, Trait, Workflow,
};
pub(super) use events::{EventKey, EventName, Events};
pub(super) use filters::{AddFilter, DeleteFilter, Filters, PrimaryFilters, UpdateFilter};
pub(super) use inbound::{BodyForm, Inbound, Token, TokenKey};
pub(super) use polls::{KeptThings, Poll, PollEach, When};
pub(super) use retry::{ClassRetry, Retry, RetryBy};

/// A field that may be left out.
pub(super) type Maybe<T> = Option<Slot<T>>;

/// A scalar field that may be left out.
pub(super) type MaybeLeaf<F> = Option<Leaf<F>>;

/// Things by name.
pub(super) type Named<T> = Entries<Scalar<Name>, T>;

/// A list of names.
pub(super) type Names = Vec<Leaf<Name>>;

macro_rules! words {
    ($($type:ident = $word:literal),* $(,)?) => {
        $(
            pub(super) enum $type {}
            impl Word for $type {
                const WORD: &'static str = $word;
            }
        )*
    };
}

words!(
    All = "all",
    Own = "own",
    Nothing = "none",
    Unlimited = "unlimited",
    Fresh = "fresh",
    Warmed = "warm",
    OnlyMetadata = "metadata"
);

/// Returns the JSON schema (draft 2020-12) of one document. It says less than [`parse`](super::parse()) checks: neither
/// names that refer to each other, nor what is within CEL and selectors.
pub fn schema() -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Document>();
    schema.insert("title".to_owned(), "Capstan operator".into());
    schema.to_value()
}

/// Returns the JSON schema of the daemon's defaults.
pub fn schema_of_defaults() -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<defaults::Document>();
    schema.insert("title".to_owned(), "Capstan defaults".into());
    schema.to_value()
}

/// One operator: components, and the controllers that they serve.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Document {
    /// The version of this format.
    #[serde(rename = "apiVersion")]
    _api_version: Slot<DocumentVersion>,
    /// The kind of this document.
    #[serde(rename = "kind")]
    _kind: Slot<DocumentKind>,
    /// Who it is.
    pub(super) metadata: Slot<Metadata>,
    /// What it consists of.
    pub(super) spec: Slot<Spec>,
}

/// The version of this format.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
pub(super) enum DocumentVersion {
    #[serde(rename = "capstan.dev/v1alpha1")]
    V1Alpha1,
}

/// The kind of this document.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
pub(super) enum DocumentKind {
    Operator,
}

/// Who it is.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Metadata {
    /// The operator's name, unique in the daemon.
    pub(super) name: Leaf<Name>,
}

/// What it consists of.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Spec {
    /// The components, by name; at least one.
    #[schemars(extend("minProperties" = 1))]
    pub(super) plugins: Slot<Named<Plugin>>,
    /// The controllers, by name; at least one, each name unique in the daemon (`LC-1`).
    #[schemars(extend("minProperties" = 1))]
    pub(super) controllers: Slot<Named<Controller>>,
    /// Other clusters that controllers and sources may name, at most 16 (`CU-1`).
    #[schemars(extend("default" = {}))]
    pub(super) clusters: Maybe<Named<Cluster>>,
    /// Who the operator is to the API server: what its controllers write, and what they read live, is asked for in the name of
    /// this service account, and they run only while it may list all that they watch. Without it, in the daemon's own.
    pub(super) service_account: Maybe<ServiceAccount>,
}

/// A service account.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ServiceAccount {
    /// Its name.
    pub(super) name: Leaf<Name>,
    /// Its namespace; without it, the daemon's own.
    pub(super) namespace: MaybeLeaf<Name>,
}

/// A component, and what it may use.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Plugin {
    /// Where the component is.
    pub(super) component: Slot<Component>,
    /// What it may use up.
    #[schemars(extend("default" = {}))]
    pub(super) limits: Maybe<Limits>,
    /// What it may ask for; everything else is denied.
    #[schemars(extend("default" = {}))]
    pub(super) capabilities: Maybe<Capabilities>,
    /// Settings of its own, which it reads through `config`.
    #[schemars(extend("default" = {}))]
    pub(super) config: Maybe<Map<String, Value>>,
    /// Values of `config`, each a text, that Secrets and ConfigMaps have, by their names in it. When one changes, that is a change of the
    /// plugin's settings (`CV-1`).
    #[schemars(extend("default" = {}))]
    pub(super) config_from: Maybe<ConfigFrom>,
    /// Whether each run gets an instance of its own, or with `warm` one that has run before, if one is free: for languages
    /// whose start is slow. What an instance still knows of earlier runs is not to be relied on; one that has failed is never
    /// used again.
    #[schemars(extend("default" = "fresh"))]
    pub(super) instances: Maybe<Instances>,
    /// In which process its instances are: that of the daemon, with those of all others, or with `process` one of their own, which can
    /// reach nothing but the daemon: for components that are trusted less. A call then takes a little longer, and each such
    /// plugin some MiB of memory.
    #[schemars(extend("default" = "shared"))]
    pub(super) isolation: Maybe<Isolation>,
    /// What follows once a changed component, or changed settings of it, are in force: all primaries of its controllers run
    /// once more, or nothing.
    #[schemars(extend("default" = "reconcileAll"))]
    pub(super) on_swap: Maybe<OnSwap>,
}

/// Whether instances are used again: `fresh`, `warm`, or `warm` with its bounds.
pub(super) type Instances = OrWord<Fresh, OrWord<Warmed, Bounded>>;

/// Instances that are used again within bounds.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum Bounded {
    /// They are used again.
    Warm(Slot<Warm>),
}

/// How long an instance is used.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Warm {
    /// It is replaced after so many runs.
    #[schemars(extend("default" = 1000))]
    pub(super) runs: MaybeLeaf<Times>,
    /// It is replaced after a run that leaves it with more memory than this; without it, three quarters of `limits.memory`.
    pub(super) memory: MaybeLeaf<Bytes>,
    /// It is dropped when it has not been used for so long.
    #[schemars(extend("default" = "5m"))]
    pub(super) idle: MaybeLeaf<Time>,
}

/// Where a component is.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum Component {
    /// A file; relative to the folder of the manifest.
    Path(Leaf<FilePath>),
}

/// What a plugin may use up.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Limits {
    /// Memory of an instance, with what the daemon has just made for it; from 64Ki to 4Gi.
    #[schemars(extend("default" = "64Mi"))]
    pub(super) memory: MaybeLeaf<Bytes>,
    /// The time one call may take.
    #[schemars(extend("default" = "5s"))]
    pub(super) timeout: MaybeLeaf<Time>,
    /// Calls at once; nested ones are not counted. The daemon has a bound of its own (`--plugin-concurrency`).
    #[schemars(extend("default" = 8))]
    pub(super) concurrency: MaybeLeaf<Workers>,
    /// Processor time that its runs may use in each second, from `1ms` on; without it as much as there is, shared with others.
    pub(super) cpu: MaybeLeaf<Time>,
    /// Requests to the API server that one run may ask for.
    #[schemars(extend("default" = 100))]
    pub(super) requests: MaybeLeaf<Requests>,
    /// Requests to the API server a second, of all runs together; five times as many at once after a rest. What is beyond
    /// waits. The daemon's `--plugin-requests` bounds it.
    #[schemars(extend("default" = 1000))]
    pub(super) requests_per_second: MaybeLeaf<Times>,
    /// Connections to the network at once, of all runs together, each of which counts for 256Ki of the memory that all plugins share. What is beyond waits; of TCP it is refused.
    #[schemars(extend("default" = 16))]
    pub(super) connections: MaybeLeaf<Workers>,
    /// Objects in one answer of the cache. It ends earlier if they have more bytes than a quarter of `memory`, or 8Mi.
    #[schemars(extend("default" = 500))]
    pub(super) page: MaybeLeaf<Objects>,
    /// Sources that the runs of one controller may have registered at once (`ES-4`).
    #[schemars(extend("default" = 8))]
    pub(super) sources: MaybeLeaf<Registered>,
    /// Log lines of one call, each of which counts for 256 bytes besides its own; what is beyond is dropped, with one warning. All calls of the plugin together may log four times as
    /// much at once, and as much each second.
    #[schemars(extend("default" = "64Ki"))]
    pub(super) log: MaybeLeaf<Bytes>,
    /// What is kept between calls.
    #[schemars(extend("default" = {}))]
    pub(super) memo: Maybe<Memo>,
}

/// What is kept between calls.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Memo {
    /// All memos of one run.
    #[schemars(extend("default" = "64Ki"))]
    pub(super) run: MaybeLeaf<Bytes>,
    /// All memos of one primary.
    #[schemars(extend("default" = "4Ki"))]
    pub(super) primary: MaybeLeaf<Bytes>,
    /// All memos of the plugin.
    #[schemars(extend("default" = "64Ki"))]
    pub(super) plugin: MaybeLeaf<Bytes>,
}

/// What a plugin may ask for.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Capabilities {
    /// What it may do with Kubernetes objects, one entry for each kind, or several for different namespaces.
    #[schemars(extend("default" = []))]
    pub(super) kubernetes: Maybe<Vec<Slot<Grant>>>,
    /// Hosts to which it may send HTTP requests (`wasi:http`): a name, all names below a domain (`*.example.com`), or an address; with
    /// `http://` or `https://` only that, with a port that one in place of the usual one.
    #[schemars(extend("default" = []))]
    pub(super) http: Maybe<Vec<Leaf<ToHttp>>>,
    /// Hosts and ports to which it may open TCP connections (`wasi:sockets`), such as `db.example.com:5432`; the hosts as in `http`.
    #[schemars(extend("default" = []))]
    pub(super) tcp: Maybe<Vec<Leaf<ToTcp>>>,
    /// Hosts of `http` and `tcp` by their full name, such as `keycloak.auth.svc`, that may have addresses of a private network, as those of the
    /// cluster's services and pods are. Without it, a name is connected to at public addresses only.
    #[schemars(extend("default" = []))]
    pub(super) internal: Maybe<Vec<Leaf<HostName>>>,
}

/// What may be done with objects of a kind.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Grant {
    /// Group and version of the kind.
    pub(super) api_version: Leaf<ApiVersion>,
    /// The kind.
    pub(super) kind: Leaf<KindName>,
    /// What is permitted: `get` reads from the caches beyond what belongs to the primary; `watch` lets runs register sources of the kind by
    /// `sources`, which they read as a whole (`ES-4`); the others are the functions of `operations`, with `patch` for `edit`, `json-patch` and `merge-patch`, and `delete` for `remove` and for what leads to
    /// a deletion, such as another's owner reference or finalizer (`RO-1`).
    #[schemars(extend("minItems" = 1))]
    pub(super) verbs: Slot<Vec<Slot<Permission>>>,
    /// Where; without it, where the controller watches its primaries. A kind that lives in no namespace needs `all`, unless it is
    /// that of the primary or of a dependent.
    pub(super) namespaces: Maybe<Namespaces>,
}

/// A controller: one kind of primaries, reconciled by one plugin.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Controller {
    /// The plugin that reconciles.
    pub(super) plugin: Leaf<Name>,
    /// The kind of its primaries.
    pub(super) primary: Slot<Kind>,
    /// The cluster, of those in `clusters`, in which its primaries and all that it writes are; without it, that of the daemon (`CU-6`).
    pub(super) cluster: MaybeLeaf<Name>,
    /// Where primaries are watched: everywhere, in the daemon's own namespace, or in these; secondaries follow (`IN-1`).
    #[schemars(extend("default" = "all"))]
    pub(super) namespaces: Maybe<ControllerNamespaces>,
    /// Only primaries with these labels, as for `kubectl -l` (`IN-3`).
    #[schemars(title = "label selector")]
    pub(super) label_selector: Maybe<String>,
    /// Only primaries with these values of fields, as for `kubectl --field-selector`. Which fields can select, the API server decides: of
    /// custom kinds name, namespace, and what their definition names (`IN-3`).
    pub(super) field_selector: MaybeLeaf<FieldSelector>,
    /// Only primaries whose uid or namespace has a hash in these ranges, so that several daemons can share them (`IN-3`).
    pub(super) shard_selector: MaybeLeaf<Shard>,
    /// How many primaries an API server without streaming lists is asked for at once. Of those who share an informer the first decides
    /// (`IN-3`).
    #[schemars(extend("default" = 500))]
    pub(super) page_size: MaybeLeaf<Objects>,
    /// Keep only these fields of primaries in memory, by JSON pointers, or with `metadata` none beside the metadata, of which the API server then
    /// sends no more. What identifies an object, its labels and owner references are always kept, annotations only if they are named
    /// (`BC-2`).
    pub(super) keep: Maybe<Kept>,
    /// Keep all fields of primaries but these. Of the metadata, only annotations can be left out; not together with `keep` (`BC-2`).
    pub(super) drop: Maybe<Vec<Leaf<Pointer>>>,
    /// Ignore updates that change neither generation nor deletion (`CF-2`).
    #[schemars(extend("default" = true))]
    pub(super) generation_aware: Maybe<bool>,
    /// Run for each event of a primary, its deletion too, and leave finalizers to the component, which has no `cleaner`; the controller has
    /// no `workflow` then (`AE-1`).
    #[schemars(extend("default" = false))]
    pub(super) trigger_on_all_events: Maybe<bool>,
    /// Let updates of primaries pass the built-in rules alone (`CF-2`); with `false`, every update counts that `filters` let pass
    /// (`CF-3`).
    #[schemars(extend("default" = true))]
    pub(super) default_filters: Maybe<bool>,
    /// Which changes of primaries make them run (`CF-5`).
    #[schemars(extend("default" = {}))]
    pub(super) filters: Maybe<PrimaryFilters>,
    /// Do nothing for its primaries, clean-up included, until this is taken back; then each runs once (`PA-2`).
    #[schemars(extend("default" = false))]
    pub(super) paused: Maybe<bool>,
    /// How Kubernetes Events about primaries are written (`ER-7`).
    #[schemars(extend("default" = {}))]
    pub(super) events: Maybe<Events>,
    /// The finalizer that is used if something needs cleanup; without it, one made of group and plural (`LC-3`).
    pub(super) finalizer: MaybeLeaf<Finalizer>,
    /// What becomes of finalizers that versions before this one have put on primaries.
    #[schemars(extend("default" = {}))]
    pub(super) finalizers: Maybe<Finalizers>,
    /// How long it waits at its start until all that it watches is known (`IE-1`).
    #[schemars(extend("default" = "2m"))]
    pub(super) cache_sync_timeout: MaybeLeaf<Time>,
    /// What it does if that is not so by then (`IE-1`).
    #[schemars(extend("default" = "goOn"))]
    pub(super) on_start_error: Maybe<OnStartError>,
    /// The field manager of what is written; without it, the controller's name (`LC-4`).
    pub(super) field_manager: MaybeLeaf<FieldManager>,
    /// Patch the primary by server-side apply (`UC-2`).
    #[schemars(extend("default" = true))]
    pub(super) server_side_apply: Maybe<bool>,
    /// How failures are retried; `none` is not at all (`RT-1`).
    #[schemars(extend("default" = {}))]
    pub(super) retry: Maybe<OrWord<Nothing, Retry>>,
    /// How often one primary may run; `none` is as often as there is a reason (`RL-1`).
    #[schemars(extend("default" = { "maxReconciliations": 100, "within": "3s" }))]
    pub(super) rate_limit: Maybe<OrWord<Nothing, RateLimit>>,
    /// A run that asks to run again does so after this time at the earliest, whatever it asks for; `none` is at once.
    #[schemars(extend("default" = "100ms"))]
    pub(super) min_reschedule_interval: Maybe<OrWord<Nothing, Scalar<Time>>>,
    /// A primary is reconciled at least this often; `none` is never without an event (`IV-1`).
    #[schemars(extend("default" = "10h"))]
    pub(super) max_reconciliation_interval: Maybe<OrWord<Nothing, Scalar<Time>>>,
    /// The time one run may take in all, with its workflow and what it waits for; one that takes longer fails. `none` is as long as its
    /// calls may (`RT-6`).
    #[schemars(extend("default" = "none"))]
    pub(super) reconciliation_timeout: Maybe<OrWord<Nothing, Scalar<Time>>>,
    /// Runs at once.
    #[schemars(extend("default" = 8))]
    pub(super) concurrency: MaybeLeaf<Workers>,
    /// Indexes over primaries, by name (`IX-2`). An object has at most 32 keys in each, and one more for each 64 bytes of it.
    #[schemars(extend("default" = {}))]
    pub(super) indexes: Maybe<Named<Index>>,
    /// What is watched or polled beside primaries and dependents, by name (`ES-1`).
    #[schemars(extend("default" = {}))]
    pub(super) sources: Maybe<Named<Source>>,
    /// The dependents that are reconciled before the plugin is asked (`WF-2`).
    pub(super) workflow: Maybe<Workflow>,
    /// Workflows that run when the plugin calls them by name (`WF-2`).
    #[schemars(extend("default" = {}))]
    pub(super) standalone: Maybe<Named<Standalone>>,
}

/// Finalizers of versions before.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Finalizers {
    /// Those that each primary loses at its next run; one that is going, after the clean-up that is due. The one in use stays.
    #[schemars(extend("default" = []))]
    pub(super) formerly: Maybe<Vec<Leaf<Finalizer>>>,
}

/// A kind of Kubernetes objects.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Kind {
    /// Group and version of the kind.
    pub(super) api_version: Leaf<ApiVersion>,
    /// The kind.
    pub(super) kind: Leaf<KindName>,
}

/// Namespaces: `all`, `own`, or a list.
pub(super) type Namespaces = OrWord<All, OrWord<Own, Names>>;

/// The same, or by a selector.
pub(super) type ControllerNamespaces = OrWord<All, OrWord<Own, ListOr<Leaf<Name>, NamespaceSelector>>>;

/// Namespaces by what they are labelled with.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum NamespaceSelector {
    /// Those with these labels, as for `kubectl -l`, at any time: at most 500 (`NS-5`).
    #[schemars(title = "label selector")]
    Selector(Slot<String>),
}

/// The fields that are kept of objects: `metadata`, or pointers.
pub(super) type Kept = OrWord<OnlyMetadata, Vec<Leaf<Pointer>>>;

/// The rate limit.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RateLimit {
    /// At most so many runs of one primary in a window (`RL-1`).
    pub(super) max_reconciliations: Leaf<Times>,
    /// The length of a window, which begins with a run (`RL-1`).
    #[schemars(extend("default" = "10s"))]
    pub(super) within: MaybeLeaf<Time>,
}

/// Something that is watched, or polled.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::large_enum_variant, reason = "there are few, for a moment")]
pub(super) enum Source {
    /// Kubernetes objects.
    Informer(Slot<Informer>),
    /// Things outside of the cluster, which the plugin reads for all primaries at once, by its export `poller` (`PP-1`).
    Poll(Slot<Poll>),
    /// Things outside of the cluster, which the plugin reads for each primary by itself, by its export `resource-poller` (`PP-2`).
    PollEach(Slot<PollEach>),
    /// What is told of by requests from outside, which the plugin understands by its export `inbound` (`IB-1`, `IB-2`).
    Inbound(Slot<Inbound>),
}

/// A watch on Kubernetes objects.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Informer {
    /// Group and version of the kind.
    pub(super) api_version: Leaf<ApiVersion>,
    /// The kind.
    pub(super) kind: Leaf<KindName>,
    /// The cluster, of those in `clusters`, in which they are; without it, that of the controller (`IN-3`, `CU-4`).
    pub(super) cluster: MaybeLeaf<Name>,
    /// Where; without it, where the controller watches its primaries (`IN-1`).
    pub(super) namespaces: Maybe<Namespaces>,
    /// Only objects with these labels, as for `kubectl -l` (`IN-3`).
    #[schemars(title = "label selector")]
    pub(super) label_selector: Maybe<String>,
    /// Only objects with these values of fields, as for `kubectl --field-selector`. Which fields can select, the API server decides: of
    /// custom kinds name, namespace, and what their definition names (`IN-3`).
    pub(super) field_selector: MaybeLeaf<FieldSelector>,
    /// Only objects whose uid or namespace has a hash in these ranges, so that several daemons can share them (`IN-3`).
    pub(super) shard_selector: MaybeLeaf<Shard>,
    /// How many objects an API server without streaming lists is asked for at once. Of those who share an informer the first decides
    /// (`IN-3`).
    #[schemars(extend("default" = 500))]
    pub(super) page_size: MaybeLeaf<Objects>,
    /// Keep only these fields of objects in memory, by JSON pointers, or with `metadata` none beside the metadata, of which the API server then
    /// sends no more. What identifies an object, its labels and owner references are always kept, annotations only if they are named
    /// (`BC-2`).
    pub(super) keep: Maybe<Kept>,
    /// Keep all fields of objects but these. Of the metadata, only annotations can be left out; not together with `keep` (`BC-2`).
    pub(super) drop: Maybe<Vec<Leaf<Pointer>>>,
    /// Whether others that watch the same, with the same selectors, share its informer. With `false` it has one of its own: one more watch
    /// and one more copy in memory, with which nobody else has to do (`PO-4`).
    #[schemars(extend("default" = true))]
    pub(super) shared: Maybe<bool>,
    /// Whether it is listed before others when the controller starts: those with the lowest number first, and what has none, the primaries
    /// among it, after all of them, all at once. `cacheSyncTimeout` counts for each number anew (`ES-2`).
    pub(super) start_priority: MaybeLeaf<Priority>,
    /// Keep only so many objects whole, those that came or were read last. Of the others only what says which they are and how they are found
    /// stays; who reads one asks the API server for it, as one of the requests that a run may make (`BC-1`).
    pub(super) bounded: Maybe<CacheBound>,
    /// How the primaries of an object are found (`IM-1`, `IM-2`).
    #[schemars(extend("default" = "ownerReference"))]
    pub(super) mapper: Maybe<Mapper>,
    /// How the objects of a primary are found, if that does not follow from `mapper`; only together with one (`IM-4`).
    pub(super) secondaries: Maybe<Secondaries>,
    /// Whether `mapper` by `pointer`, `cel`, `export` or `index`, and `secondaries`, may lead from one namespace into another. Whoever may
    /// write such an object anywhere can then attach it to any primary, and wake that.
    #[schemars(extend("default" = false))]
    pub(super) across_namespaces: Maybe<bool>,
    /// Which changes of an object make its primaries run (`IS-1`).
    #[schemars(extend("default" = {}))]
    pub(super) filters: Maybe<Filters>,
    /// Indexes over the objects, by name (`IX-1`). An object has at most 32 keys in each, and one more for each 64 bytes of it.
    #[schemars(extend("default" = {}))]
    pub(super) indexes: Maybe<Named<Index>>,
}

/// How many objects of a source are kept whole.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CacheBound {
    /// The most objects (`BC-1`).
    #[schemars(extend("default" = 1000))]
    pub(super) objects: MaybeLeaf<Objects>,
    /// The most memory of all of them (`BC-1`).
    #[schemars(extend("default" = "8Mi"))]
    pub(super) bytes: MaybeLeaf<Bytes>,
    /// They are forgotten when they have not been read for so long; without it, never for that (`BC-1`).
    pub(super) unused: MaybeLeaf<Time>,
}

/// How the primaries of an object are found.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum Mapper {
    /// By owner references (`IM-1`).
    OwnerReference,
    /// By owner references of the primary's kind, whatever their group: for objects that carry those of a former one (`IM-2`).
    OwnerKind,
    /// By annotations that name the primary (`IM-2`).
    Annotations(Slot<MappingKeys>),
    /// By labels that name the primary (`IM-2`).
    Labels(Slot<MappingKeys>),
    /// By a text, or a list of texts, in the object: the names of primaries, as `name` or `namespace/name` (`IM-2`).
    Pointer(Leaf<Pointer>),
    /// The same by a CEL expression over `object` (`IM-3`).
    Cel(Slot<String>),
    /// By the component, with its export `mapper` (`IM-3`).
    Export(Leaf<Export>),
    /// By an index of the primaries, which say there what they refer to (`IX-2`).
    Index(Slot<IndexMapper>),
}

/// An index of the primaries in which objects are looked up.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct IndexMapper {
    /// Its name in `indexes` of the controller (`IX-2`).
    pub(super) name: Leaf<Name>,
    /// The key, or keys, under which the primaries of an object are in it (`IX-2`).
    #[schemars(extend("default" = { "pointer": "/metadata/name" }))]
    pub(super) key: Maybe<Index>,
}

/// How the objects of a primary are found.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum Secondaries {
    /// By a text, or a list of texts, in the primary: their names, as `name` or `namespace/name` (`IM-4`).
    Pointer(Leaf<Pointer>),
    /// The same by a CEL expression over `primary` (`IM-4`).
    Cel(Slot<String>),
    /// By the component, with its export `secondary-mapper` (`IM-4`).
    Export(Leaf<Export>),
}

/// The keys of annotations or labels that name a primary.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct MappingKeys {
    /// The key that holds the primary's name (`IM-2`).
    #[schemars(extend("default" = "capstan.dev/primary-name"))]
    pub(super) name: MaybeLeaf<Key>,
    /// The key that holds its namespace; `none` if it is always that of the object (`IM-2`).
    #[schemars(extend("default" = "capstan.dev/primary-namespace"))]
    pub(super) namespace: Maybe<OrWord<Nothing, Scalar<Key>>>,
    /// The key that holds its kind as `group/version/Kind`; `none` if it is not looked at (`IM-2`).
    #[schemars(extend("default" = "capstan.dev/primary-type"))]
    pub(super) kind: Maybe<OrWord<Nothing, Scalar<Key>>>,
    /// Whether an object in one namespace may name a primary in another. Whoever may write such an object anywhere can then
    /// attach it to any primary, and wake that.
    #[schemars(extend("default" = false))]
    pub(super) across_namespaces: Maybe<bool>,
}

/// The key under which objects are found.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum Index {
    /// A JSON pointer to a text, or a list of texts (`IX-1`).
    Pointer(Leaf<Pointer>),
    /// A CEL expression over `object` for a text, or a list of texts (`IX-1`).
    Cel(Slot<String>),
}

//! The fields of a manifest as they are written: the source of the reader, of the JSON schema and of the tables in `docs/manifest.md`.
//!
//! A description ends with the rules that it follows. `default` is what the absence of a field means; a test holds it to
//! the checked types.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::names::{ApiVersion, FieldManager, FieldSelector, Finalizer, KindName, Name};
use super::units::{Objects, Time, Times, Workers};
use super::{OnNewVersion, OnStartError, StatusConditions};
use crate::cluster::FieldValidation;
use crate::object::pointer::Pointer;
use crate::object::shard::Shard;
use crate::yaml::{Entries, Leaf, ListOr, OrWord, Scalar, Slot, Word};

pub(super) mod ceilings;
mod clusters;
mod component;
mod config;
pub(super) mod defaults;
mod dependent;
mod events;
mod filters;
mod inbound;
mod outside;
mod plugin;
mod polls;
mod retry;
mod source;

pub(super) use clusters::{Cluster, Kubeconfig, SecretKey};
pub(super) use component::{Authority, AuthorityKey, Component, Verify};
pub(super) use config::{ConfigFrom, ConfigValue, ValueKey};
pub(super) use dependent::{
    Condition, Dependent, ErrorsTo, Generic, Invocation, Made, Match, ObjectName, Standalone, Trait, Workflow,
};
pub(super) use events::{EventKey, EventName, Events};
pub(super) use filters::{AddFilter, DeleteFilter, Filters, PrimaryFilters, UpdateFilter};
pub(super) use inbound::{BodyForm, Fetch, Inbound, Token, TokenKey};
pub(super) use outside::{Outside, StateKind, ThingKey};
pub(super) use plugin::{Bounded, Capabilities, Grant, Instances, Limits, Memo, Plugin};
pub(super) use polls::{KeptThings, Poll, PollEach, When};
pub(super) use retry::{ClassRetry, Retry, RetryBy};
pub(super) use source::{CacheBound, Index, IndexMapper, Informer, Mapper, MappingKeys, Secondaries, Source};

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

/// Returns the JSON schema of the daemon's ceilings.
pub fn schema_of_ceilings() -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<ceilings::Document>();
    schema.insert("title".to_owned(), "Capstan ceilings".into());
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
    /// Its namespace, if it is an object of the cluster; in a file, this and what follows mean nothing to the daemon (`OP-2`).
    #[serde(rename = "namespace")]
    _namespace: MaybeLeaf<Name>,
    /// Its labels, if it is an object of the cluster.
    #[serde(rename = "labels")]
    _labels: Maybe<Map<String, Value>>,
    /// Its annotations, if it is an object of the cluster.
    #[serde(rename = "annotations")]
    _annotations: Maybe<Map<String, Value>>,
}

/// What it consists of.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Spec {
    /// The components, by name; at least one, unless no controller names one.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 64))]
    pub(super) plugins: Maybe<Named<Plugin>>,
    /// The controllers, by name; at least one, each name unique in the daemon (`LC-1`).
    #[schemars(extend("minProperties" = 1, "maxProperties" = 64))]
    pub(super) controllers: Slot<Named<Controller>>,
    /// Other clusters that controllers and sources may name, at most 16 (`CU-1`).
    #[schemars(extend("default" = {}, "maxProperties" = 16))]
    pub(super) clusters: Maybe<Named<Cluster>>,
    /// Who the operator is to the API server: what its controllers write, and what they read live, is asked for in the name of
    /// this service account, and they run only while it may list all that they watch. Without it, in the daemon's own.
    pub(super) service_account: Maybe<ServiceAccount>,
    /// What becomes of a version, of a component or of this manifest, that wants more than the one in force: with `ask` it waits for
    /// `capstan approve`, and so does the first one; what is in force decides, too, so that an edit can't go around it (`AP-2`). Needs a daemon
    /// with `--operators cluster`, whose `--on-new-version ask` says so for all operators.
    #[schemars(extend("default" = "apply"))]
    pub(super) on_new_version: Maybe<OnNewVersion>,
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

/// A controller: one kind of primaries, reconciled by one plugin, or by templates alone.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Controller {
    /// The plugin that reconciles; without it, all that is desired is in templates (`DT-5`).
    pub(super) plugin: MaybeLeaf<Name>,
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
    /// How many primaries an API server without streaming lists is asked for at once. Of those who share an informer the largest holds
    /// (`IN-3`).
    #[schemars(extend("default" = 500))]
    pub(super) page_size: MaybeLeaf<Objects>,
    /// Keep only these fields of primaries in memory, by JSON pointers, or with `metadata` none beside the metadata, of which the API server then
    /// sends no more. What identifies an object, its labels and owner references are always kept, annotations only if they are named
    /// (`BC-2`).
    pub(super) keep: Maybe<Kept>,
    /// Keep all fields of primaries but these. Of the metadata, only annotations can be left out; not together with `keep` (`BC-2`).
    pub(super) drop: Maybe<Vec<Leaf<Pointer>>>,
    /// Keep primaries packed in memory, where that makes them smaller: some 200 bytes of 3 KB where they are much alike, and each read unpacks
    /// what it reads. One watch packs for all who share it, if one of them says so (`BC-4`).
    #[schemars(extend("default" = false))]
    pub(super) packed: Maybe<bool>,
    /// Keep only so many primaries whole, those that came or have run last. Of the others only what says which they are and how they are found
    /// stays: before one of them runs, it is read from the API server (`BC-1`).
    pub(super) bounded: Maybe<CacheBound>,
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
    /// Which conditions the daemon keeps in `status.conditions` of primaries: `standard` are `Ready`, `Progressing` and `Degraded`, by what
    /// runs find, written under the field manager with `/conditions` behind it (`SC-1`).
    #[schemars(extend("default" = "none"))]
    pub(super) status_conditions: Maybe<StatusConditions>,
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
    /// What becomes of fields that are written and that a kind does not have: `strict` refuses the write, `warn` drops them and logs it,
    /// `ignore` drops them (`FV-1`).
    #[schemars(extend("default" = "strict"))]
    pub(super) field_validation: Maybe<FieldValidation>,
    /// How failures are retried; `none` is not at all (`RT-1`).
    #[schemars(extend("default" = {}))]
    pub(super) retry: Maybe<OrWord<Nothing, Retry>>,
    /// How often one primary may run; `none` is as often as there is a reason (`RL-1`).
    #[schemars(extend("default" = { "maxReconciliations": 100, "within": "3s" }))]
    pub(super) rate_limit: Maybe<OrWord<Nothing, RateLimit>>,
    /// A run that asks to run again does so after this time at the earliest, whatever it asks for; `none` is at once.
    #[schemars(extend("default" = "100ms"))]
    pub(super) min_reschedule_interval: Maybe<OrWord<Nothing, Scalar<Time>>>,
    /// A primary is reconciled so long after its last run if nothing else is due before; `none` is never without an event (`IV-1`).
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
    #[schemars(extend("default" = {}, "maxProperties" = 32))]
    pub(super) indexes: Maybe<Named<Index>>,
    /// What is watched or polled beside primaries and dependents, by name (`ES-1`).
    #[schemars(extend("default" = {}, "maxProperties" = 64))]
    pub(super) sources: Maybe<Named<Source>>,
    /// The dependents that are reconciled before the plugin is asked (`WF-2`).
    pub(super) workflow: Maybe<Workflow>,
    /// The status that primaries get once the workflow has run; only without `plugin` (`DT-6`).
    pub(super) status: Maybe<Made>,
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

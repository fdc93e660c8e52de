//! The fields of workflows and their dependents.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::names::{ApiVersion, Export, KindName, Name};
use super::super::{OnImmutable, OnRename, ReadyKind};
use super::{Filters, MappingKeys, Maybe, MaybeLeaf, Named, Names, Outside};
use crate::cluster::FieldValidation;
use crate::object::pointer::Pointer;
use crate::yaml::{Any, Leaf, Slot};

/// The managed workflow.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Workflow {
    /// Who starts it: the daemon, or with `explicit` the plugin (`WF-10`).
    #[schemars(extend("default" = "automatic"))]
    pub(in crate::manifest) invocation: Maybe<Invocation>,
    /// What failures of dependents do: `fail` the run, or leave them to the `reconciler` (`WF-9`).
    #[schemars(extend("default" = "fail"))]
    pub(in crate::manifest) errors: Maybe<ErrorsTo>,
    /// The dependents, by name, unique in the controller (`WF-1`, `DR-6`).
    #[schemars(extend("maxProperties" = 1024))]
    pub(in crate::manifest) dependents: Slot<Named<Dependent>>,
}

/// Who starts a workflow.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(in crate::manifest) enum Invocation {
    Automatic,
    Explicit,
}

/// What failures of dependents do.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(in crate::manifest) enum ErrorsTo {
    Fail,
    Reconciler,
}

/// A workflow that runs when it is called by name.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Standalone {
    /// What failures of dependents do: `fail` the call, or leave them to the `reconciler` (`WF-9`).
    #[schemars(extend("default" = "fail"))]
    pub(in crate::manifest) errors: Maybe<ErrorsTo>,
    /// The dependents, by name, unique in the controller (`WF-1`, `DR-6`).
    #[schemars(extend("maxProperties" = 1024))]
    pub(in crate::manifest) dependents: Slot<Named<Dependent>>,
}

/// Something that the plugin wants: a Kubernetes object, or something outside of the cluster.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Dependent {
    /// Group and version of the kind; required without `external`.
    pub(in crate::manifest) api_version: MaybeLeaf<ApiVersion>,
    /// The kind; required without `external`.
    pub(in crate::manifest) kind: MaybeLeaf<KindName>,
    /// What it is instead of a Kubernetes object, if it is outside of the cluster: the plugin writes it (`XD-1`).
    pub(in crate::manifest) external: Maybe<Outside>,
    /// Whether there are as many objects as the plugin answers to `desired-set`, instead of the one that it answers to `desired`
    /// (`BD-1`).
    #[schemars(extend("default" = false))]
    pub(in crate::manifest) bulk: Maybe<bool>,
    /// What it should be, so that the plugin is not asked for `desired`; not with `bulk` (`DT-1`).
    pub(in crate::manifest) desired: Maybe<Made>,
    /// The dependents of this workflow that must be ready before (`WF-1`).
    #[schemars(extend("default" = [], "maxItems" = 1024))]
    pub(in crate::manifest) depends_on: Maybe<Names>,
    /// What the daemon may do with it (`DR-1`).
    #[schemars(extend("default" = ["create", "update", "delete"]))]
    pub(in crate::manifest) manage: Maybe<Vec<Slot<Trait>>>,
    /// The same as `manage: []` (`DR-1`).
    #[schemars(extend("default" = false))]
    pub(in crate::manifest) read_only: Maybe<bool>,
    /// Its end is left to owner references (`KD-2`).
    #[schemars(extend("default" = true))]
    pub(in crate::manifest) garbage_collected: Maybe<bool>,
    /// Fail if the object exists already, without asking whose it is (`KD-6`).
    #[schemars(extend("default" = false))]
    pub(in crate::manifest) create_only: Maybe<bool>,
    /// Take over an object that exists already and is no other primary's; without it, such an object is an error.
    #[schemars(extend("default" = false))]
    pub(in crate::manifest) adopt: Maybe<bool>,
    /// Write and compare it by server-side apply; without it, as the daemon's defaults say: `false` for `ConfigMap` and `Secret`, else `true` (`KD-5`).
    pub(in crate::manifest) server_side_apply: Maybe<bool>,
    /// What becomes of fields of it that its kind does not have; without it, as the controller says (`FV-1`).
    pub(in crate::manifest) field_validation: Maybe<FieldValidation>,
    /// How it is compared with what is desired (`SSA-6`).
    #[serde(rename = "match")]
    #[schemars(extend("default" = "usual"))]
    pub(in crate::manifest) matching: Maybe<Match>,
    /// The source of this controller that watches it; without it, one of its own, of the same name (`KD-10`).
    pub(in crate::manifest) source: MaybeLeaf<Name>,
    /// Which changes of its object make the primary run; only without `source` (`IS-1`).
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) filters: Maybe<Filters>,
    /// Its name, so that the plugin need not be asked for the desired object first; with `external` its id (`KD-4`).
    pub(in crate::manifest) name: Maybe<ObjectName>,
    /// Its namespace, if that is not the primary's; only with `name` (`KD-4`).
    pub(in crate::manifest) namespace: Maybe<ObjectName>,
    /// What becomes of its object once `desired` answers another name: it stays as long as the primary, or goes once the new one is
    /// ready. Only what bears the mark of this dependent goes (`KD-4`).
    #[schemars(extend("default" = "keep"))]
    pub(in crate::manifest) on_rename: Maybe<OnRename>,
    /// What becomes of its object if it can't be updated to what is desired, because fields of it can't be changed: an error, or it is deleted
    /// and made anew (`TR-2`).
    #[schemars(extend("default" = "fail"))]
    pub(in crate::manifest) on_immutable: Maybe<OnImmutable>,
    /// Apply its object once more if it was applied as another version of its kind than `apiVersion`, and nothing else differs; only with server-side apply, and
    /// without `match: generic` or `dryRun` (`KD-12`).
    #[schemars(extend("default" = false))]
    pub(in crate::manifest) detect_api_version_change: Maybe<bool>,
    /// The annotations that name its primary; only with `garbageCollected: false` (`KD-3`).
    pub(in crate::manifest) mapping: Maybe<MappingKeys>,
    /// Whether it takes part at all. While it does not, its object is left alone, and changes of that wake no primary; while it does for no
    /// primary at all, it is not even watched, unless this looks at its object (`WF-4`).
    pub(in crate::manifest) activation: Maybe<Condition>,
    /// Whether it should exist. While it should not, `desired` is called all the same, to know how the object is called that has to go;
    /// `name` spares that (`WF-4`).
    pub(in crate::manifest) reconcile_precondition: Maybe<Condition>,
    /// Whether what depends on it may go on (`WF-4`).
    pub(in crate::manifest) ready_postcondition: Maybe<Condition>,
    /// Whether what it depends on may be deleted (`WF-5`).
    pub(in crate::manifest) delete_postcondition: Maybe<Condition>,
    /// Settings of its own, which the plugin reads through `context` (`DR-7`).
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) config: Maybe<Map<String, Value>>,
}

/// What the daemon may do with a dependent.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(in crate::manifest) enum Trait {
    Create,
    Update,
    Delete,
}

/// How a dependent is compared with what is desired.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum Match {
    /// By what the daemon owns of it with server-side apply, else by differences (`SSA-1`, `GM-1`).
    Usual,
    /// By differences (`GM-1`).
    Generic(Slot<Generic>),
    /// As usual; but what differs is only written if the API server says that this would change something, which is asked once for each
    /// version of the object and of what is desired (`TR-1`).
    DryRun,
    /// By the component (`SSA-6`).
    Export(Leaf<Export>),
}

/// The comparison by differences.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Generic {
    /// JSON pointers under which differences do not count; all others do, additions too. Not together with `equality` (`GM-2`).
    #[schemars(extend("default" = []))]
    pub(in crate::manifest) ignore: Maybe<Vec<Leaf<Pointer>>>,
    /// Labels and annotations that somebody has added are a difference, too. The object is written then, once for each of its
    /// versions, and they stay (`GM-2`, `KD-8`).
    #[schemars(extend("default" = false))]
    pub(in crate::manifest) strict_metadata: Maybe<bool>,
    /// What somebody has added is a difference, too, but for labels and annotations. It goes if the object is replaced, as a Secret is
    /// (`serverSideApply: false`), and stays if it is applied (`GM-2`, `KD-8`).
    #[schemars(extend("default" = false))]
    pub(in crate::manifest) equality: Maybe<bool>,
}

/// What an object is made from.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum Made {
    /// The object, with CEL expressions in its texts: `${primary.spec.replicas}`. A text that is one expression alone becomes its value, and
    /// null leaves the field out; `$${` stands for `${` (`DT-2`).
    #[schemars(with = "Map<String, Value>")]
    Template(Slot<Any>),
}

/// How the name or the namespace of an object is known.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum ObjectName {
    /// A CEL expression over `primary` (`KD-4`).
    Cel(Slot<String>),
}

/// A condition: exactly one of these.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum Condition {
    /// The object says that it is ready, as `kubectl rollout status` or `kubectl wait` judges; with `condition` by a condition
    /// `Ready` in its status. With `bulk`, each of them does (`WF-11`, `BD-3`).
    Ready(Slot<ReadyKind>),
    /// The object does not exist; with `bulk`, none of them does (`WF-11`, `BD-3`).
    Gone,
    /// The API server serves the dependent's kind; for `activation` alone. A kind that comes or goes while the daemon runs is noticed
    /// (`WF-11`).
    CrdPresent,
    /// A CEL expression over `primary` and `dependent`, which is null if it does not exist; with `bulk` over `primary` and `dependents`,
    /// the list of those that exist (`WF-1`, `BD-3`).
    Cel(Slot<String>),
    /// The component decides (`WF-1`).
    Export(Leaf<Export>),
}

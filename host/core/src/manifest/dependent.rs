//! What a manifest declares of workflows and their dependents.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Filters, MappingKeys, Node, Outside};
use crate::cel::{Expression, Template};
use crate::cluster::FieldValidation;
use crate::guest::ConditionRole;
use crate::object::Gvk;
use crate::workflow::condition::ReadyKind;
use crate::workflow::graph::Graph;
use crate::yaml;

/// Dependents and their order (WF rules).
#[derive(Clone, Default, PartialEq)]
pub struct Workflow {
    /// The dependents that are Kubernetes objects, by name.
    pub dependents: BTreeMap<Arc<str>, Dependent>,
    /// Those outside of the cluster, by name; no dependent has the same.
    pub outside: BTreeMap<Arc<str>, Outside>,
    /// The order in which they stand.
    pub graph: Arc<Graph>,
    /// Whether the reconciler calls it itself (`WF-10`).
    pub explicit: bool,
    /// Whether failures are left to the reconciler instead of failing the run (`WF-9`).
    pub errors_to_reconciler: bool,
}

/// A Kubernetes object that the plugin wants (DR and KD rules).
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "one fact per field of the manifest")]
pub struct Dependent {
    /// Its kind.
    pub gvk: Gvk,
    /// Whether it is as many objects as `desired-set` answers (`BD-1`); default false.
    pub bulk: bool,
    /// What it should be (`DT-1`); `None`: as the component answers.
    pub template: Option<Template>,
    /// Whether what the template makes may hold values of a Secret (`DT-4`): it sees one, or what another template makes of one.
    pub shows_secret: bool,
    /// The dependents that must be ready before.
    pub depends_on: BTreeSet<Arc<str>>,
    /// What the daemon may do with it (`DR-1`); all three by default.
    pub manage: Manage,
    /// Whether deleting it is left to owner references; default true.
    pub garbage_collected: bool,
    /// Fail if the object exists already, without asking whose it is (`KD-6`); default false.
    pub create_only: bool,
    /// Take over an object that exists already and is no other primary's; default false.
    pub adopt: bool,
    /// Whether it is written and compared by server-side apply (`KD-5`).
    pub server_side_apply: bool,
    /// How it is compared.
    pub matching: Matching,
    /// Where the source that holds it is declared; `None`: a source of its own, with the dependent's name (`KD-10`).
    pub source: Option<Arc<str>>,
    /// Which changes of its object make the primary run (`IS-1`); of the dependents that share a source, all have the same.
    pub filters: Filters,
    /// How it is called, so that `desired` need not be asked for it (`KD-4`).
    pub called: Option<Called>,
    /// What becomes of its object under another name.
    pub on_rename: OnRename,
    /// What becomes of its object if fields of it that differ can't be changed.
    pub on_immutable: OnImmutable,
    /// Whether its object is applied once more if it was applied as another version of its kind (`KD-12`).
    pub detect_api_version_change: bool,
    /// The annotations that map it to its primary when it is not garbage collected (`KD-3`).
    pub mapping: MappingKeys,
    /// The conditions, by role.
    pub conditions: Conditions,
    /// What becomes of fields of it that its kind does not have (`FV-1`); default as its controller says.
    pub field_validation: FieldValidation,
    /// What `context.settings` says of it (`DR-7`), a JSON object.
    pub config: Arc<serde_json::Value>,
}

/// Which dependents are written and compared by server-side apply where the manifest says nothing of that (`KD-5`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Applied {
    /// Whether those of most kinds are.
    pub(super) usual: bool,
    /// The groups and kinds of those that are not in any case.
    pub(super) except: Vec<(Arc<str>, Arc<str>)>,
}

/// What becomes of a dependent's object once `desired` answers another name or namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = yaml::words)]
pub enum OnRename {
    /// It stays as long as the primary.
    #[default]
    Keep,
    /// It is deleted once the new one is ready, and all that depends on it.
    Delete,
}

/// What becomes of a dependent's object if it can't be updated to what is desired, and could be made so (`TR-2`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = yaml::words)]
pub enum OnImmutable {
    /// It stays, and the dependent fails.
    #[default]
    Fail,
    /// It is deleted and made anew.
    Recreate,
}

/// How a dependent is called, as CEL expressions over `primary`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// Its name.
    pub name: Expression,
    /// Its namespace; `None`: that of the primary, if its kind lives in one.
    pub namespace: Option<Expression>,
}

/// What the daemon may do with a dependent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manage {
    /// Create it when it is absent.
    pub create: bool,
    /// Update it when it differs.
    pub update: bool,
    /// Delete it when it should not be.
    pub delete: bool,
}

/// How a dependent is compared with its desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Matching {
    /// By managed fields with server-side apply, else by differences (`SSA-1`, `GM-1`).
    #[default]
    Usual,
    /// By differences (GM rules).
    Generic(GenericMatching),
    /// As usual, and what differs by what the API server says that the write would lead to (`TR-1`).
    DryRun,
    /// By this export of the component (`SSA-6`).
    Export(Arc<str>),
}

/// The flags of the comparison by differences (`GM-2`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GenericMatching {
    /// JSON pointers under which differences are tolerated.
    pub ignore: Vec<Arc<str>>,
    /// Any difference of labels or annotations counts.
    pub strict_metadata: bool,
    /// Any difference at all counts.
    pub equality: bool,
}

/// The conditions of a dependent (`WF-1`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Whether it takes part.
    pub activation: Option<Condition>,
    /// Whether it should exist.
    pub reconcile_precondition: Option<Condition>,
    /// Whether what depends on it may go on.
    pub ready_postcondition: Option<Condition>,
    /// Whether what it depends on may go.
    pub delete_postcondition: Option<Condition>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The dependent says in its status that it is ready, as `kubectl rollout status` or `kubectl wait` would judge.
    Ready(ReadyKind),
    /// The dependent's object does not exist (`WF-11`).
    Gone,
    /// The API server serves the dependent's kind (`WF-11`). Only an activation.
    CrdPresent,
    /// A CEL expression over `primary` and `dependent` (null if it does not exist), or the list `dependents`.
    Cel(Expression),
    /// This export of the component.
    Export(Arc<str>),
}

// === impl ===

impl Default for Manage {
    fn default() -> Self {
        Self { create: true, update: true, delete: true }
    }
}

impl Condition {
    /// Returns true if it certainly depends on the dependent's own object. What an export looks at is not known.
    pub(crate) fn reads_dependent(&self) -> bool {
        match self {
            Self::Ready(_) | Self::Gone => true,
            Self::Cel(expression) => expression.reads("dependent") || expression.reads("dependents"),
            Self::Export(_) | Self::CrdPresent => false,
        }
    }
}

impl Workflow {
    /// Whether it runs by itself, before the reconciler (`WF-10`).
    pub(crate) fn is_managed(&self) -> bool {
        !self.explicit && !self.graph.nodes().is_empty()
    }

    /// Returns the node of a name.
    pub fn node(&self, name: &str) -> Option<Node<'_>> {
        let thing = || self.outside.get(name).map(Node::Thing);
        self.dependents.get(name).map(Node::Object).or_else(thing)
    }

    /// Returns all nodes with their names.
    pub fn nodes(&self) -> impl Iterator<Item = (&Arc<str>, Node<'_>)> {
        let objects = self.dependents.iter().map(|(name, dependent)| (name, Node::Object(dependent)));
        objects.chain(self.outside.iter().map(|(name, outside)| (name, Node::Thing(outside))))
    }

    /// Returns what remembers the ids of things outside of the cluster, with its names (`XD-2`).
    pub fn states(&self) -> impl Iterator<Item = (&Arc<str>, &Dependent)> {
        self.outside.values().filter_map(|outside| outside.state.as_ref()).map(|state| (&state.name, &state.dependent))
    }
}

#[expect(clippy::missing_fields_in_debug, reason = "the dependents say what the graph does")]
impl fmt::Debug for Workflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workflow")
            .field("dependents", &self.dependents)
            .field("outside", &self.outside)
            .field("explicit", &self.explicit)
            .field("errors_to_reconciler", &self.errors_to_reconciler)
            .finish()
    }
}

impl Conditions {
    /// Returns the condition of a role.
    pub fn of(&self, role: ConditionRole) -> Option<&Condition> {
        match role {
            ConditionRole::Activation => self.activation.as_ref(),
            ConditionRole::ReconcilePrecondition => self.reconcile_precondition.as_ref(),
            ConditionRole::ReadyPostcondition => self.ready_postcondition.as_ref(),
            ConditionRole::DeletePostcondition => self.delete_postcondition.as_ref(),
        }
    }
}

impl Dependent {
    /// Returns a dependent of a kind about which the manifest says nothing else.
    pub fn of(gvk: Gvk) -> Self {
        let server_side_apply = Applied::default().of(&gvk);
        Self {
            gvk,
            bulk: false,
            template: None,
            shows_secret: false,
            depends_on: BTreeSet::new(),
            manage: Manage::default(),
            garbage_collected: true,
            create_only: false,
            adopt: false,
            server_side_apply,
            field_validation: FieldValidation::default(),
            matching: Matching::default(),
            source: None,
            filters: Filters::default(),
            called: None,
            on_rename: OnRename::default(),
            on_immutable: OnImmutable::default(),
            detect_api_version_change: false,
            mapping: MappingKeys::default(),
            conditions: Conditions::default(),
            config: Arc::new(serde_json::Value::Object(serde_json::Map::new())),
        }
    }

    /// Whether its object may hold values of a Secret, as far as templates make them.
    pub(crate) fn is_secretive(&self) -> bool {
        self.gvk.is_secret() || self.shows_secret
    }

    /// Whether the daemon deletes it itself on cleanup, so that a finalizer is needed (`DR-5`).
    pub fn deletable(&self) -> bool {
        self.manage.delete && !self.garbage_collected
    }

    /// Whether its objects bear a mark that names it: always if no owner reference leads to their primary, and else if the names of
    /// its objects change.
    pub fn is_marked(&self) -> bool {
        !self.garbage_collected || self.bulk || self.on_rename == OnRename::Delete
    }

    /// Whether its object need not be watched while it is inactive (`WF-4`): what decides about that does not look at it.
    pub fn watched_on_demand(&self) -> bool {
        let activation = self.conditions.of(ConditionRole::Activation);
        self.source.is_none() && activation.is_some_and(|condition| !condition.reads_dependent())
    }
}

impl Applied {
    /// Whether dependents of a kind are written and compared by server-side apply if the manifest says nothing of that.
    pub(super) fn of(&self, gvk: &Gvk) -> bool {
        self.usual && !self.except.contains(&gvk.group_kind())
    }
}

impl Default for Applied {
    fn default() -> Self {
        let except = ["ConfigMap", "Secret"].map(|kind| ("".into(), kind.into()));
        Self { usual: true, except: except.into() }
    }
}

//! What an operator declares, as types that cannot be wrong: plugins with limits and permissions, controllers with sources and dependents.
//!
//! [`parse`] is the only way to get one from YAML; see `docs/manifest.md` for the file format. Inside the daemon nothing
//! is checked again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::cel::Expression;
use crate::guest::ConditionRole;
use crate::object::Gvk;
use crate::object::pointer::Pointer;
pub use crate::workflow::condition::ReadyKind;
use crate::workflow::graph::Graph;
pub use crate::yaml::{Errors, Problem};

mod check;
mod names;
mod parse;
mod raw;
mod settings;
mod unique;
mod units;

pub use parse::parse;
pub use raw::schema;
pub use unique::{Origin, check_together};
pub use units::{duration, size};

/// One operator: a document of kind `Operator`.
#[derive(Clone, Debug, PartialEq)]
pub struct Operator {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// The components, by name.
    pub plugins: BTreeMap<Arc<str>, Plugin>,
    /// The controllers, by name.
    pub controllers: BTreeMap<Arc<str>, Controller>,
    /// Where it is written, for messages.
    pub origin: Origin,
}

/// A component, and what it may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Plugin {
    /// The component's file, absolute or resolved against the manifest's folder.
    pub component: PathBuf,
    /// What it may use up.
    pub limits: Limits,
    /// What it may ask for.
    pub capabilities: Capabilities,
    /// Its own configuration, a JSON object.
    pub config: serde_json::Value,
    /// Whether instances are used again.
    pub instances: Instances,
    /// In which process they are.
    pub isolation: Isolation,
    /// What follows a swap.
    pub on_swap: OnSwap,
}

/// Whether instances are used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instances {
    /// Each run gets its own.
    #[default]
    Fresh,
    /// A run gets one that has been used before, if one is free.
    Warm(Warm),
}

/// In which process a plugin's instances are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// In the daemon's, with those of all others.
    #[default]
    Shared,
    /// In one of the plugin's own, which can reach nothing but the daemon.
    Process,
}

/// How long a warm instance is used; one that failed is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warm {
    /// It is replaced after so many runs; default 1000.
    pub runs: usize,
    /// It is replaced after a run that leaves it with more bytes of linear memory; default three quarters of the
    /// limit.
    pub memory: u64,
    /// It is dropped when it has not been used for so long; default 5 min.
    pub idle: Duration,
}

/// What follows once a changed component, or changed settings of it, are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSwap {
    /// All primaries of its controllers run once more, as their rate limits permit.
    #[default]
    ReconcileAll,
    /// Nothing: the next events run the new version.
    Nothing,
}

/// What a controller does if something that it watches can't be listed in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStartError {
    /// It waits on, and runs nothing.
    Wait,
    /// It starts with what is there, and keeps trying the rest.
    #[default]
    GoOn,
    /// It fails, and stays so until its manifest changes.
    Fail,
}

/// What a plugin may use up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of linear memory an instance may have; default 64 MiB.
    pub memory: u64,
    /// How long one call may take; default 5 s.
    pub timeout: Duration,
    /// How many calls may run at once, nested ones not counted; default 8.
    pub concurrency: usize,
    /// Processor time that its runs may use in each second; default: as much as there is.
    pub cpu: Option<Duration>,
    /// Bytes of all memos of one run; default 64 KiB.
    pub memo_run: usize,
    /// Bytes of all memos of one primary; default 4 KiB.
    pub memo_primary: usize,
    /// Bytes of all memos of the plugin; default 64 KiB.
    pub memo_plugin: usize,
    /// Requests to the API server one run may ask for; default 100.
    pub requests: u32,
    /// Requests to the API server a second, of all runs together; default 1000.
    pub requests_per_second: u32,
    /// Objects in one answer of the cache; default 500.
    pub page: u32,
    /// Bytes of log lines one call may write; what is beyond is dropped with one warning; default 64 KiB. All calls of the plugin
    /// together may write four times as much at once, and as much each second.
    pub log: usize,
}

/// What a plugin may ask for; everything else is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// What it may do with Kubernetes objects; a kind may be there several times, for different namespaces.
    pub kubernetes: Vec<Grant>,
}

/// What may be done with objects of a kind, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The kind.
    pub gvk: Gvk,
    /// The verbs.
    pub verbs: BTreeSet<Permission>,
    /// Where; none = where the controller watches. [`Namespaces::All`] is the whole cluster, with what lives in no namespace.
    pub namespaces: Option<Namespaces>,
}

/// A verb that a manifest can permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// Read from the caches beyond what is related to the primary.
    Get,
    /// `operations.create`.
    Create,
    /// `operations.apply`.
    Apply,
    /// `operations.update`.
    Update,
    /// `operations.edit`, `json-patch`, `merge-patch`.
    Patch,
    /// `operations.remove`.
    Delete,
}

/// A controller: one kind of primaries, reconciled by one plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// Its name, unique in the daemon.
    pub name: Arc<str>,
    /// The plugin that reconciles.
    pub plugin: Arc<str>,
    /// The kind of its primaries.
    pub primary: Gvk,
    /// Where primaries are watched; secondaries follow (`IN-1`).
    pub namespaces: Namespaces,
    /// Only primaries with these labels.
    pub label_selector: Option<Arc<str>>,
    /// Whether updates that change neither generation nor deletion are ignored (`CF-2`); default true.
    pub generation_aware: bool,
    /// Whether nothing is done for its primaries until the manifest says otherwise (`PA-2`); default false.
    pub paused: bool,
    /// The finalizer that is used if something needs cleanup; none = one made of group and plural (`LC-3`).
    pub finalizer: Option<Arc<str>>,
    /// Finalizers that versions before this one have put on primaries, and that each loses at its next run.
    pub former_finalizers: BTreeSet<Arc<str>>,
    /// The field manager (`LC-4`); default the controller's name.
    pub field_manager: Arc<str>,
    /// Whether the primary is patched by server-side apply; default true.
    pub server_side_apply: bool,
    /// How failures are retried; none = not at all.
    pub retry: Option<Retry>,
    /// At most so many runs per window and primary (`RL-1`); none = no limit; default 100 within 3 s.
    pub rate_limit: Option<RateLimit>,
    /// A run that asks to run again does so after this time at the earliest; default 100 ms.
    pub min_reschedule: Duration,
    /// A primary is reconciled at least this often (`IV-1`); none = never without an event; default 10 h.
    pub max_interval: Option<Duration>,
    /// Runs at once; default 8.
    pub concurrency: usize,
    /// How long it waits at its start until all that it watches is known; default 2 min.
    pub cache_sync_timeout: Duration,
    /// What it does if that is not so by then.
    pub on_start_error: OnStartError,
    /// Indexes over primaries, by name: JSON pointers to a string or a list of strings (IX rules).
    pub indexes: BTreeMap<Arc<str>, Pointer>,
    /// Watched secondaries that are not dependents, by name.
    pub sources: BTreeMap<Arc<str>, Source>,
    /// The managed workflow.
    pub workflow: Workflow,
    /// Workflows that run when called by name.
    pub standalone: BTreeMap<Arc<str>, Workflow>,
    /// The service account of its operator; none = the daemon's.
    pub service_account: Option<ServiceAccount>,
}

/// A service account, in whose name an operator acts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceAccount {
    /// Its name.
    pub name: Arc<str>,
    /// Its namespace; none = the daemon's own.
    pub namespace: Option<Arc<str>>,
}

/// Which namespaces are watched (`IN-1`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// All of them, by one cluster-wide watch.
    All,
    /// The daemon's own.
    Own,
    /// These, by one watch each.
    Listed(BTreeSet<Arc<str>>),
}

/// The retry policy (RT rules).
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// The first delay; default 2 s.
    pub initial_interval: Duration,
    /// The factor between delays; default 1.5.
    pub multiplier: f64,
    /// Retries after the first run; none = for ever; default 5.
    pub max_attempts: Option<u32>,
    /// The longest delay; none = no bound; default initial × multiplier⁵.
    pub max_interval: Option<Duration>,
}

/// The rate limit (RL rules).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// So many runs …
    pub max_reconciliations: u32,
    /// … within this window; default 10 s.
    pub within: Duration,
}

/// A watched kind of secondaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The kind.
    pub gvk: Gvk,
    /// Where; none = where the primaries are.
    pub namespaces: Option<Namespaces>,
    /// Only those with these labels.
    pub label_selector: Option<Arc<str>>,
    /// How the primaries are found (IM rules).
    pub mapper: Mapper,
    /// Indexes, by name: JSON pointers to a string or a list of strings (IX rules).
    pub indexes: BTreeMap<Arc<str>, Pointer>,
}

/// How the primaries of a secondary are found (`IM-1`, `IM-2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapper {
    /// Owner references of the primary's kind and group.
    OwnerReference,
    /// Annotations with these keys.
    Annotations(MappingKeys),
    /// Labels with these keys.
    Labels(MappingKeys),
}

/// Keys of annotations or labels that name a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingKeys {
    /// Holds the name; default `capstan.dev/primary-name`.
    pub name: Arc<str>,
    /// Holds the namespace; none = the secondary's own; default `capstan.dev/primary-namespace`.
    pub namespace: Option<Arc<str>>,
    /// Holds the kind as `group/version/Kind`; not looked at if absent; default `capstan.dev/primary-type`.
    pub kind: Option<Arc<str>>,
    /// Whether an object in one namespace may name a primary in another; default false.
    pub across_namespaces: bool,
}

/// Dependents and their order (WF rules).
#[derive(Clone, Default, PartialEq)]
pub struct Workflow {
    /// The dependents, by name.
    pub dependents: BTreeMap<Arc<str>, Dependent>,
    /// The order in which they stand.
    pub graph: Arc<Graph>,
    /// Whether the reconciler calls it itself (`WF-10`).
    pub explicit: bool,
    /// Whether failures are left to the reconciler instead of failing the run (`WF-9`).
    pub errors_to_reconciler: bool,
}

/// A Kubernetes object that the plugin wants (DR and KD rules).
#[derive(Clone, Debug, PartialEq)]
pub struct Dependent {
    /// Its kind.
    pub gvk: Gvk,
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
    /// Whether it is written and compared by server-side apply; none = it is, unless it is a `ConfigMap` or `Secret` (`KD-5`).
    pub server_side_apply: Option<bool>,
    /// How it is compared.
    pub matching: Matching,
    /// Where the source that holds it is declared; none = a source of its own, with the dependent's name (`KD-10`).
    pub source: Option<Arc<str>>,
    /// How it is called, so that `desired` need not be asked for it (`KD-4`).
    pub called: Option<Called>,
    /// What becomes of its object under another name.
    pub on_rename: OnRename,
    /// The annotations that map it to its primary when it is not garbage collected (`KD-3`).
    pub mapping: MappingKeys,
    /// The conditions, by role.
    pub conditions: Conditions,
    /// What `context.settings` says of it (`DR-7`), a JSON object.
    pub config: serde_json::Value,
}

/// What becomes of a dependent's object once `desired` answers another name or namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRename {
    /// It stays as long as the primary.
    #[default]
    Keep,
    /// It is deleted once the new one is ready, and all that depends on it.
    Delete,
}

/// How a dependent is called, as CEL expressions over `primary`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// Its name.
    pub name: Expression,
    /// Its namespace; none = that of the primary, if its kind lives in one.
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
    /// A CEL expression over `primary` and `dependent` (null if it does not exist).
    Cel(Expression),
    /// This export of the component.
    Export(Arc<str>),
}

// === impl ===

impl Operator {
    /// Bounds how many runs each plugin and each controller may have at once. Returns a message for each that wants more.
    pub fn cap_concurrency(&mut self, most: usize) -> Vec<String> {
        let operator = &self.name;
        let plugins = self.plugins.iter_mut();
        let plugins = plugins.map(|(name, plugin)| {
            let field = format!("spec.plugins.{name}.limits.concurrency");
            (field, &mut plugin.limits.concurrency)
        });
        let controllers = self.controllers.iter_mut().map(|(name, controller)| {
            let field = format!("spec.controllers.{name}.concurrency");
            (field, &mut controller.concurrency)
        });
        let mut capped = Vec::new();
        for (field, wanted) in plugins.chain(controllers).filter(|(_, wanted)| **wanted > most) {
            capped.push(format!(
                "operator {operator}: {field} is {wanted}, and this daemon permits {most} (--plugin-concurrency): {most} it is"
            ));
            *wanted = most;
        }
        capped
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            timeout: Duration::from_secs(5),
            concurrency: 8,
            cpu: None,
            memo_run: 64 << 10,
            memo_primary: 4 << 10,
            memo_plugin: 64 << 10,
            requests: 100,
            requests_per_second: 1000,
            page: 500,
            log: 64 << 10,
        }
    }
}

impl Warm {
    /// Returns what is usual for instances that may have so many bytes of memory.
    pub fn within(limit: u64) -> Self {
        Self { runs: 1000, memory: limit / 4 * 3, idle: Duration::from_mins(5) }
    }
}

impl Default for Retry {
    /// `RT-1`: five retries after the first run.
    fn default() -> Self {
        Self {
            initial_interval: Duration::from_secs(2),
            multiplier: 1.5,
            max_attempts: Some(5),
            max_interval: Some(Duration::from_secs(2).mul_f64(1.5_f64.powi(5))),
        }
    }
}

impl Default for RateLimit {
    /// More than any primary needs, and little enough that one which never comes to rest harms nobody.
    fn default() -> Self {
        Self { max_reconciliations: 100, within: Duration::from_secs(3) }
    }
}

impl Default for Manage {
    fn default() -> Self {
        Self { create: true, update: true, delete: true }
    }
}

impl Default for MappingKeys {
    fn default() -> Self {
        Self {
            name: "capstan.dev/primary-name".into(),
            namespace: Some("capstan.dev/primary-namespace".into()),
            kind: Some("capstan.dev/primary-type".into()),
            across_namespaces: false,
        }
    }
}

impl Permission {
    /// Returns the word that a manifest has for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Create => "create",
            Self::Apply => "apply",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

impl Workflow {
    /// Whether it runs by itself, before the reconciler (`WF-10`).
    pub(crate) fn is_managed(&self) -> bool {
        !self.explicit && !self.dependents.is_empty()
    }
}

#[expect(clippy::missing_fields_in_debug, reason = "the dependents say what the graph does")]
impl fmt::Debug for Workflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workflow")
            .field("dependents", &self.dependents)
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
    /// Whether the daemon deletes it itself on cleanup, so that a finalizer is needed (`DR-5`).
    pub fn deletable(&self) -> bool {
        self.manage.delete && !self.garbage_collected
    }

    /// Whether it is written and compared by server-side apply (`KD-5`).
    pub fn applied(&self) -> bool {
        let legacy = self.gvk.group.is_empty() && matches!(&*self.gvk.kind, "ConfigMap" | "Secret");
        self.server_side_apply.unwrap_or(!legacy)
    }
}

impl Controller {
    /// Returns all dependents with their names, those of standalone workflows too.
    pub fn dependents(&self) -> impl Iterator<Item = (&Arc<str>, &Dependent)> {
        let standalone = self.standalone.values().flat_map(|workflow| &workflow.dependents);
        self.workflow.dependents.iter().chain(standalone)
    }

    /// Whether the managed workflow has something that the daemon deletes itself (`DR-5`).
    pub fn deletes_dependents(&self) -> bool {
        let mut dependents = self.workflow.dependents.values();
        dependents.any(Dependent::deletable)
    }

    /// Whether the controller writes objects of a kind by itself: its primaries and dependents.
    pub fn writes(&self, gvk: &Gvk) -> bool {
        self.primary == *gvk || self.dependents().any(|(_, dependent)| dependent.gvk == *gvk)
    }
}

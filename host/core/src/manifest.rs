//! What an operator declares, as types that cannot be wrong: plugins with limits and permissions, controllers with sources and dependents.
//!
//! [`parse`] is the only way to get one from YAML (`docs/manifest.md`). Inside the daemon nothing is checked again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cel::Template;
use crate::cluster::FieldValidation;
use crate::guest::FailureClass;
use crate::object::Gvk;
use crate::object::shard::Shard;
pub use crate::workflow::condition::ReadyKind;
pub use crate::yaml::{Errors, Problem};

mod ceilings;
mod check;
mod clusters;
mod component;
mod conditions;
mod config;
mod crowded;
mod definition;
mod dependent;
pub mod described;
mod destinations;
pub mod events;
pub mod filters;
mod finalizers;
pub mod fit;
pub mod inbound;
mod keep;
mod mapping;
mod names;
pub mod needs;
mod outside;
mod parse;
mod plugin;
pub mod polls;
mod raw;
mod registration;
mod settings;
mod unique;
mod units;
mod watches;

pub use ceilings::{Ceiling, Ceilings};
pub use clusters::Remote;
pub use component::{Authority, Component, Image, Verify};
pub(crate) use conditions::LONGEST_MANAGER;
pub use conditions::StatusConditions;
pub use config::{ConfigValue, Holder, Tenant};
pub use crowded::crowded;
pub use definition::definition;
pub(crate) use definition::of_kind;
use dependent::Applied;
pub use dependent::{
    Called, Condition, Conditions, Dependent, GenericMatching, Manage, Matching, OnImmutable, OnRename, Workflow,
};
pub use events::Events;
pub use filters::Filters;
pub use finalizers::{Clash, Finalizing, Where};
pub use inbound::Inbound;
pub use keep::{Bound, Keep, Stored};
pub use mapping::{ByIndex, Keys, Mapper, MappingKeys, Secondaries};
pub use outside::{Node, Outside, State, THING};
pub use parse::{Defaults, parse, parse_object, parse_with};
pub use plugin::{Capabilities, Grant, Instances, Isolation, Limits, OnSwap, Permission, Plugin, Warm};
pub use polls::External;
pub use raw::{schema, schema_of_ceilings, schema_of_defaults};
pub use registration::Registration;
pub use unique::{Origin, check_beside, check_together, is_object_path, object_path};
pub use units::{Bytes, Rounded, Time, duration, size};
pub use watches::{MOST_SELECTED, MOST_WATCHES};

/// One operator: a document of kind `Operator`.
#[derive(Clone, Debug, PartialEq)]
pub struct Operator {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// The components, by name.
    pub plugins: BTreeMap<Arc<str>, Plugin>,
    /// The controllers, by name.
    pub controllers: BTreeMap<Arc<str>, Controller>,
    /// Whether a version that wants more than the one in force waits for an approval (`AP-2`); default that it does not.
    pub on_new_version: OnNewVersion,
    /// Where it is written, for messages.
    pub origin: Origin,
}

/// The plugin of those controllers of an operator that name none: it has no component, and what they use is counted as its own (`DT-7`).
pub const TEMPLATES: &str = "templates";

/// What answers for a primary once its workflow has run.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconciler {
    /// The component.
    Component,
    /// A status, if there is one (`DT-6`).
    Template(Option<Template>),
}

/// What a controller does if something that it watches can't be listed in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnStartError {
    /// It waits on, and runs nothing.
    Wait,
    /// It starts with what is there, and keeps trying the rest. What rests on that fails by name.
    #[default]
    GoOn,
    /// It fails, and stays so until its manifest changes. Others go on.
    Fail,
}

/// What becomes of a version of an operator that wants more than the one in force (AP rules).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = crate::yaml::words)]
pub enum OnNewVersion {
    /// It is put in force.
    #[default]
    Apply,
    /// It waits until somebody approves it.
    Ask,
}

/// A controller: one kind of primaries, reconciled by one plugin, or by templates alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// Its name, unique in the daemon.
    pub name: Arc<str>,
    /// Its name in the manifest, which its component knows it by: the same, but for operators of other namespaces (`CE-2`).
    pub own_name: Arc<str>,
    /// The plugin that reconciles; [`TEMPLATES`] if there is none.
    pub plugin: Arc<str>,
    /// What answers for a primary.
    pub reconciler: Reconciler,
    /// The kind of its primaries.
    pub primary: Gvk,
    /// The cluster in which its primaries and dependents are, by its name; `None`: the daemon's own.
    pub cluster: Option<Arc<str>>,
    /// The other clusters that it and its sources are in, by name.
    pub remotes: BTreeMap<Arc<str>, Remote>,
    /// Where primaries are watched; secondaries follow (`IN-1`).
    pub namespaces: Namespaces,
    /// Only primaries with these labels.
    pub label_selector: Option<Arc<str>>,
    /// Only primaries that these fields select.
    pub field_selector: Option<Arc<str>>,
    /// Only primaries whose hash is in these ranges.
    pub shard_selector: Option<Shard>,
    /// Objects in a page where primaries are listed in pages; default 500.
    pub page_size: u32,
    /// What is kept of primaries (`BC-2`); default everything.
    pub keep: Keep,
    /// How caches have that (`BC-4`); default plain.
    pub stored: Stored,
    /// How many of them are kept whole (`BC-1`); `None`: all.
    pub bounded: Option<Bound>,
    /// Whether updates that change neither generation nor deletion are ignored (`CF-2`, `CF-3`); default true.
    pub generation_aware: bool,
    /// What of its primaries makes it run.
    pub triggered_by: TriggeredBy,
    /// Which changes of primaries make them run (`CF-5`).
    pub filters: Filters,
    /// Whether nothing is done for its primaries until the manifest says otherwise (`PA-2`); default false.
    pub paused: bool,
    /// How Kubernetes Events about its primaries are written.
    pub events: Events,
    /// Which conditions its primaries are given (SC rules); default none.
    pub status_conditions: StatusConditions,
    /// The finalizer that is used if something needs cleanup; `None`: one made of group and plural (`LC-3`).
    pub finalizer: Option<Arc<str>>,
    /// Finalizers that versions before this one have put on primaries, and that each loses at its next run.
    pub former_finalizers: BTreeSet<Arc<str>>,
    /// The field manager (`LC-4`); default the controller's name.
    pub field_manager: Arc<str>,
    /// Whether the primary is patched by server-side apply; default true.
    pub server_side_apply: bool,
    /// What becomes of fields of writes that a kind does not have (`FV-1`); default that they are refused.
    pub field_validation: FieldValidation,
    /// How failures are retried; `None`: not at all.
    pub retry: Option<Retry>,
    /// The policies of single classes of failures, in its place (`RT-7`); empty without one.
    pub retry_by: BTreeMap<FailureClass, Retry>,
    /// At most so many runs per window and primary (`RL-1`); `None`: no limit; default 100 within 3 s.
    pub rate_limit: Option<RateLimit>,
    /// A run that asks to run again does so after this time at the earliest; default 100 ms.
    pub min_reschedule: Duration,
    /// A primary is reconciled so long after its last run if nothing else is due before (`IV-1`); `None`: never without an event; default 10 h.
    pub max_interval: Option<Duration>,
    /// How long a run may take in all (`RT-6`); `None`: as long as its calls may; default none.
    pub run_timeout: Option<Duration>,
    /// Runs at once; default 8.
    pub concurrency: usize,
    /// How long it waits at its start until all that it watches is known; default 2 min.
    pub cache_sync_timeout: Duration,
    /// What it does if something is not known by then.
    pub on_start_error: OnStartError,
    /// Indexes over primaries, by name (IX rules).
    pub indexes: BTreeMap<Arc<str>, Keys>,
    /// Watched secondaries that are not dependents, by name.
    pub sources: BTreeMap<Arc<str>, Source>,
    /// Things outside of the cluster, by name; no source has the same (PP rules).
    pub externals: BTreeMap<Arc<str>, External>,
    /// Which requests are let in at those of them that take requests from outside.
    pub inbound: BTreeMap<Arc<str>, Inbound>,
    /// The managed workflow.
    pub workflow: Workflow,
    /// Workflows that run when called by name.
    pub standalone: BTreeMap<Arc<str>, Workflow>,
    /// The service account of its operator; `None`: the daemon's.
    pub service_account: Option<ServiceAccount>,
    /// The namespace of its operator, where that is another than the daemon's: all that is in the cluster is there (`CE-2`).
    pub home: Option<Arc<str>>,
}

/// What of its primaries makes a controller run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TriggeredBy {
    /// Their changes; their end is cleaned up for, with finalizers.
    #[default]
    Changes,
    /// Their deletion, too; finalizers are the component's own (AE rules).
    AllEvents,
}

/// A service account, in whose name an operator acts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceAccount {
    /// Its name.
    pub name: Arc<str>,
    /// Its namespace; `None`: the daemon's own.
    pub namespace: Option<Arc<str>>,
}

/// Which namespaces are watched (`IN-1`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Namespaces {
    /// All of them, by one cluster-wide watch.
    All,
    /// The daemon's own.
    Own,
    /// These, by one watch each.
    Listed(BTreeSet<Arc<str>>),
    /// Those that a label selector selects at the time, by one watch each (`NS-5`). Only controllers have one.
    Selected(Selected),
}

/// Namespaces by what they are labelled with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selected {
    /// The label selector.
    pub selector: Arc<str>,
    /// The most that may be watched (`NS-6`).
    pub most: usize,
    /// Those that it selects; `None`: that is not known, as in a manifest.
    pub found: Option<Arc<BTreeSet<Arc<str>>>>,
}

/// The retry policy (RT rules).
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// The first delay; default 2 s.
    pub initial_interval: Duration,
    /// The factor between delays; default 1.5.
    pub multiplier: f64,
    /// Retries after the first run; `None`: without end; default 5.
    pub max_attempts: Option<u32>,
    /// The longest delay; `None`: no bound; default initial × multiplier⁵.
    pub max_interval: Option<Duration>,
    /// By which share of it a delay may be shorter; default 0.
    pub jitter: f64,
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
    /// The cluster, by its name; `None`: that of the controller.
    pub cluster: Option<Arc<str>>,
    /// Where; `None`: where the primaries are.
    pub namespaces: Option<Namespaces>,
    /// Only those with these labels.
    pub label_selector: Option<Arc<str>>,
    /// Only those that these fields select.
    pub field_selector: Option<Arc<str>>,
    /// Only those whose hash is in these ranges.
    pub shard_selector: Option<Shard>,
    /// Objects in a page where they are listed in pages; default 500.
    pub page_size: u32,
    /// What is kept of them (`BC-2`); default everything.
    pub keep: Keep,
    /// How caches have that (`BC-4`); default plain.
    pub stored: Stored,
    /// Whether others that watch the same share its informer (`PO-4`); default true.
    pub shared: bool,
    /// Its turn when the controller starts (`ES-2`), the lowest first; `None`: with the primaries, after all others.
    pub start_priority: Option<u32>,
    /// How much of them is in memory whole (`BC-1`); `None`: all.
    pub bounded: Option<Bound>,
    /// How the primaries are found (IM rules).
    pub mapper: Mapper,
    /// How the objects of a primary are found (`IM-4`); `None`: that follows from the mapper.
    pub secondaries: Option<Secondaries>,
    /// Whether texts in objects and primaries, and indexes, may lead from one namespace into another; default false.
    pub across_namespaces: bool,
    /// Which changes make the primaries run (`IS-1`).
    pub filters: Filters,
    /// Indexes, by name (IX rules).
    pub indexes: BTreeMap<Arc<str>, Keys>,
}

// === impl ===

impl Operator {
    /// Bounds how many runs each plugin and each controller may have at once. Returns a message for each that wants more.
    pub fn cap_concurrency(&mut self, most: usize) -> Vec<String> {
        let operator = &self.name;
        let plugins = self.plugins.iter_mut().filter(|(_, plugin)| plugin.component.is_some());
        let plugins = plugins.map(|(name, plugin)| {
            let field = format!("spec.plugins.{name}.limits.concurrency");
            (field, &mut plugin.limits.concurrency)
        });
        let controllers = self.controllers.values_mut().map(|controller| {
            let field = format!("spec.controllers.{}.concurrency", controller.own_name);
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

impl Default for Retry {
    /// `RT-1`: five retries after the first run.
    fn default() -> Self {
        Self {
            initial_interval: Duration::from_secs(2),
            multiplier: 1.5,
            max_attempts: Some(5),
            max_interval: Some(Duration::from_secs(2).mul_f64(1.5_f64.powi(5))),
            jitter: 0.0,
        }
    }
}

impl Default for RateLimit {
    /// More than any primary needs, and little enough that one which never comes to rest harms nobody.
    fn default() -> Self {
        Self { max_reconciliations: 100, within: Duration::from_secs(3) }
    }
}

impl Namespaces {
    /// Returns what is not known yet: the selector, if it is not known what it selects.
    pub fn unknown(&self) -> Option<&Arc<str>> {
        match self {
            Self::Selected(Selected { selector, found: None, .. }) => Some(selector),
            Self::All | Self::Own | Self::Listed(_) | Self::Selected(_) => None,
        }
    }
}

impl Controller {
    /// Returns true if its primaries may be those of another version of it: of the same kind, in the same cluster.
    pub fn is_kin_of(&self, other: &Self) -> bool {
        self.primary.is_kind_of(&other.primary) && self.remote() == other.remote()
    }

    /// Returns the cluster that it is in; `None`: that of the daemon.
    fn remote(&self) -> Option<&Remote> {
        self.remotes.get(self.cluster.as_ref()?)
    }

    /// Returns all workflows.
    pub fn workflows(&self) -> impl Iterator<Item = &Workflow> {
        [&self.workflow].into_iter().chain(self.standalone.values())
    }

    /// Returns all workflows, each with its path in the manifest below the controller's.
    pub fn workflows_by_path(&self) -> impl Iterator<Item = (&Workflow, String)> {
        let standalone = self.standalone.iter().map(|(name, workflow)| (workflow, format!("standalone.{name}")));
        [(&self.workflow, "workflow".to_owned())].into_iter().chain(standalone)
    }

    /// Returns all dependents that are Kubernetes objects with their names, those of standalone workflows too, and what remembers the ids of
    /// those that are none (`XD-2`).
    pub fn dependents(&self) -> impl Iterator<Item = (&Arc<str>, &Dependent)> {
        self.workflows().flat_map(|workflow| workflow.dependents.iter().chain(workflow.states()))
    }

    /// Returns all dependents outside of the cluster with their names.
    pub fn outside(&self) -> impl Iterator<Item = (&Arc<str>, &Outside)> {
        self.workflows().flat_map(|workflow| &workflow.outside)
    }

    /// Returns the dependents whose objects a next version knows nothing of any more: nobody updates or deletes them.
    pub fn abandoned_by<'a>(&'a self, next: &'a Self) -> impl Iterator<Item = &'a Arc<str>> {
        let made = self.workflows().flat_map(Workflow::nodes).filter(|(_, node)| node.manage().create);
        let kept = || next.workflows().flat_map(Workflow::nodes);
        made.map(|(name, _)| name).filter(move |name| kept().all(|(kept, _)| kept != *name))
    }

    /// Whether it has a component, and not only templates.
    pub fn has_component(&self) -> bool {
        self.reconciler == Reconciler::Component
    }

    /// Whether the status that a template makes may hold values of a Secret (`DT-4`).
    pub(crate) fn status_shows_secret(&self) -> bool {
        let of = |template: &Template| self.dependents().any(|(name, of)| of.is_secretive() && template.reads(name));
        self.status().is_some_and(|template| self.primary.is_secret() || of(template))
    }

    /// Returns the template of the status, if there is one.
    pub fn status(&self) -> Option<&Template> {
        match &self.reconciler {
            Reconciler::Template(status) => status.as_ref(),
            Reconciler::Component => None,
        }
    }

    /// Whether it runs for deletions, too, and finalizers are the component's own (AE rules).
    pub fn all_events(&self) -> bool {
        self.triggered_by == TriggeredBy::AllEvents
    }

    /// Whether the managed workflow has something that the daemon deletes itself (`DR-5`).
    pub fn deletes_dependents(&self) -> bool {
        self.workflow.nodes().any(|(_, node)| node.deletable())
    }

    /// Whether the controller writes objects of a kind by itself: its primaries and dependents.
    pub fn writes(&self, gvk: &Gvk) -> bool {
        self.primary == *gvk || self.dependents().any(|(_, dependent)| dependent.gvk == *gvk)
    }
}

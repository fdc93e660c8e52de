//! Defines a plugin of a checked manifest: its component, what it may take, and what it may do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Component, ConfigValue, Namespaces};
use crate::network::Destination;
use crate::object::Gvk;
use crate::yaml;

/// A component, and what it may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Plugin {
    /// Where the component is; `None`: it has none (`DT-7`).
    pub component: Option<Component>,
    /// What it may use up.
    pub limits: Limits,
    /// What it may ask for.
    pub capabilities: Capabilities,
    /// Its own configuration, a JSON object.
    pub config: Arc<serde_json::Value>,
    /// Where the values are that it does not have itself, by their names in it.
    pub config_from: BTreeMap<Arc<str>, ConfigValue>,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = yaml::words)]
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
    /// Runs after which it is replaced; default 1000.
    pub runs: usize,
    /// It is replaced after a run that leaves it with more bytes of linear memory; default three quarters of the
    /// limit.
    pub memory: u64,
    /// It is dropped when it has not been used for so long; default 5 min.
    pub idle: Duration,
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
    /// Connections to the network at once, of all runs together; default 16.
    pub connections: usize,
    /// Objects in one answer of the cache; default 500.
    pub page: u32,
    /// Sources that the runs of one controller may have registered; default 8.
    pub sources: usize,
    /// Bytes of log lines one call may write; what is beyond is dropped with one warning; default 64 KiB. All calls of the plugin
    /// together may write four times as much at once, and as much each second.
    pub log: usize,
}

/// What a plugin may ask for; everything else is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// What it may do with Kubernetes objects; a kind may be there several times, for different namespaces.
    pub kubernetes: Vec<Grant>,
    /// Where it may send HTTP requests.
    pub http: Vec<Destination>,
    /// Where it may open TCP connections.
    pub tcp: Vec<Destination>,
}

/// What may be done with objects of a kind, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The kind.
    pub gvk: Gvk,
    /// The verbs.
    pub verbs: BTreeSet<Permission>,
    /// Where; `None`: where the controller watches. [`Namespaces::All`] is the whole cluster, with what lives in no namespace.
    pub namespaces: Option<Namespaces>,
}

/// What can be permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = yaml::words)]
pub enum Permission {
    /// Read from the caches beyond what is related to the primary.
    Get,
    /// `sources.register`.
    Watch,
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

/// What follows once a changed component, or changed settings of it, are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = yaml::words)]
pub enum OnSwap {
    /// All primaries of its controllers run once more, as their rate limits permit.
    #[default]
    ReconcileAll,
    /// Nothing: the next events run the new version.
    Nothing,
}

impl Plugin {
    /// Returns the values of Secrets and `ConfigMap`s that it names: those of its `config`, and what it takes to get its component.
    pub fn values(&self) -> impl Iterator<Item = &ConfigValue> {
        let image = match &self.component {
            Some(Component::Registry(image)) => Some(image),
            Some(Component::File(_)) | None => None,
        };
        self.config_from.values().chain(image.into_iter().flat_map(|image| image.values()))
    }

    /// Returns the same as [`Plugin::values`], to be changed.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut ConfigValue> {
        let image = match &mut self.component {
            Some(Component::Registry(image)) => Some(image),
            Some(Component::File(_)) | None => None,
        };
        self.config_from.values_mut().chain(image.into_iter().flat_map(|image| image.values_mut()))
    }

    /// Returns that of controllers which have templates in place of a component, within these limits (`DT-7`).
    pub(super) fn of_templates(limits: Limits) -> Self {
        Self {
            component: None,
            limits,
            capabilities: Capabilities::default(),
            config: Arc::new(serde_json::json!({})),
            config_from: BTreeMap::new(),
            instances: Instances::default(),
            isolation: Isolation::default(),
            on_swap: OnSwap::default(),
        }
    }
}

impl Limits {
    /// Returns what holds where nothing is written: as it is by default, or less where a ceiling permits no more (`CE-4`).
    pub(super) fn usual(most: Option<&Self>) -> Self {
        let mut usual = Self::default();
        let Some(Self { memory, timeout, concurrency, cpu, requests_per_second, connections, .. }) = most else {
            return usual;
        };
        usual.memory = usual.memory.min(*memory);
        usual.timeout = usual.timeout.min(*timeout);
        usual.concurrency = usual.concurrency.min(*concurrency);
        usual.cpu = *cpu;
        usual.requests_per_second = usual.requests_per_second.min(*requests_per_second);
        usual.connections = usual.connections.min(*connections);
        usual
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
            connections: 16,
            page: 500,
            sources: 8,
            log: 64 << 10,
        }
    }
}

impl Warm {
    /// Returns the defaults for instances whose memory has this limit.
    pub fn within(limit: u64) -> Self {
        Self { runs: 1000, memory: limit / 4 * 3, idle: Duration::from_mins(5) }
    }
}

impl Permission {
    /// Returns the word that a manifest has for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Apply => "apply",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

//! The inputs of a controller: its part of a manifest, its plugin, and what it shares with other controllers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cpu::Account;
use capstan_core::dispatcher::Bounds;
use capstan_core::guest::{Guest, Interface};
use capstan_core::manifest;
use capstan_core::object::Gvk;
use capstan_core::permission::Home;
use capstan_core::queue::{Mode, Policy};
use capstan_core::reconciler::finalizer;
use capstan_core::rollout::{Shape, Version};

use crate::client::meter::Meters;
use crate::client::recorder::Recorder;
use crate::client::{ApiServer, Kind};
use crate::informer::pool::Pool;
use crate::metrics::Metrics;
use crate::workers::Workers;

/// The longest pause before asking again for a kind that the API server does not serve yet, or for a right.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The parts of the daemon that all controllers share.
pub struct Environment {
    /// The API server.
    pub api: Arc<ApiServer>,
    /// The informers.
    pub pool: Pool,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Takes Kubernetes Events.
    pub recorder: Recorder,
    /// Counts what plugins have sent lately.
    pub meters: Meters,
    /// The most requests a second that a manifest can permit a plugin.
    pub requests_per_second: u32,
    /// The daemon's own namespace, and the one that is closed to components.
    pub home: Home,
    /// The name of the daemon in Events and settings.
    pub identity: Arc<str>,
    /// How long runs may take to finish.
    pub drain: Duration,
    /// The threads on which runs compute.
    pub workers: Workers,
}

/// A version of a controller, as its manifest declares it, with its plugin.
pub struct Declared {
    /// The operator that it belongs to.
    pub operator: Arc<str>,
    /// Its part of the manifest.
    pub spec: manifest::Controller,
    /// The part of the manifest about its plugin.
    pub plugin: manifest::Plugin,
    /// Its plugin, loaded.
    pub guest: Arc<dyn Guest>,
    /// The digest of its component.
    pub component: Arc<str>,
    /// The account of the CPU time that its plugin has used.
    pub account: Account,
}

/// The kinds that a controller needs, as discovery knows them.
pub(super) type Kinds = BTreeMap<Gvk, Kind>;

impl Declared {
    /// True if something needs cleanup before a primary is deleted (`DI-2`).
    pub(super) fn needs_finalizer(&self) -> bool {
        self.spec.deletes_dependents() || self.guest.exports(Interface::Cleaner)
    }

    pub(super) fn shape(&self) -> Shape<'_> {
        Shape { spec: &self.spec, finalizer: self.needs_finalizer() }
    }

    pub(super) fn version(&self) -> Version<'_> {
        Version { spec: &self.spec, plugin: &self.plugin, component: &self.component }
    }

    pub(super) fn policy(&self) -> Policy {
        let spec = &self.spec;
        Policy {
            retry: spec.retry.clone(),
            rate_limit: spec.rate_limit.clone(),
            max_interval: spec.max_interval,
            min_reschedule: spec.min_reschedule,
            mode: if spec.all_events() { Mode::AllEvents } else { Mode::Normal },
        }
    }

    pub(super) fn bounds(&self, environment: &Environment) -> Bounds {
        Bounds { concurrency: self.spec.concurrency, drain: environment.drain }
    }
}

/// Returns the finalizer: the manifest's, or one made of the kind's full name (`LC-3`).
pub(super) fn finalizer_name(spec: &manifest::Controller, kind: Option<&Kind>) -> Arc<str> {
    let full_name = || kind.map(Kind::full_name).unwrap_or_default();
    let default = || finalizer::default_name(&full_name()).into();
    spec.finalizer.clone().unwrap_or_else(default)
}

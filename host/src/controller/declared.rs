//! What a controller is made from: what is declared of it, and what it shares with others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cpu::Account;
use capstan_core::dispatcher::Bounds;
use capstan_core::guest::Guest;
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

/// What all controllers of the daemon share.
pub struct Environment {
    /// The API server.
    pub api: Arc<ApiServer>,
    /// The informers.
    pub pool: Pool,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Takes Kubernetes Events.
    pub recorder: Recorder,
    /// What plugins have sent lately.
    pub meters: Meters,
    /// The most requests a second that a manifest can permit a plugin.
    pub requests_per_second: u32,
    /// Where the daemon lives.
    pub home: Home,
    /// Who the daemon is, in Events and settings.
    pub identity: Arc<str>,
    /// How long runs may take to finish.
    pub drain: Duration,
    /// Where runs compute.
    pub workers: Workers,
}

/// What a controller is made from.
pub struct Declared {
    /// The operator that it belongs to.
    pub operator: Arc<str>,
    /// What the manifest says of it.
    pub spec: manifest::Controller,
    /// What the manifest says of its plugin.
    pub plugin: manifest::Plugin,
    /// Its plugin, loaded.
    pub guest: Arc<dyn Guest>,
    /// The digest of its component.
    pub component: Arc<str>,
    /// What its plugin has used.
    pub account: Account,
}

/// The kinds that a controller needs, as discovery knows them.
pub(super) type Kinds = BTreeMap<Gvk, Kind>;

impl Declared {
    /// Whether something needs cleanup before a primary goes (`DI-2`).
    pub(super) fn needs_finalizer(&self) -> bool {
        self.spec.deletes_dependents() || self.guest.exports().cleaner
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
            mode: Mode::Normal,
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

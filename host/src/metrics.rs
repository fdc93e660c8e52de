//! Counts what the daemon does: one small struct of metrics per part, all registered under one prefix.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::reconciler::triggers::Enqueued;
use capstan_core::source::callback::Callback;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// All metrics of the daemon.
#[derive(Default)]
pub struct Metrics {
    /// Metrics of controllers.
    pub runs: Runs,
    /// Metrics of informers.
    pub informers: Informers,
    /// Metrics of plugins; others are in the status of the supervisor.
    pub plugins: Plugins,
}

/// Metrics of what plugins ask for: requests and Events that were held back or dropped, and connections.
#[derive(Default)]
pub struct Plugins {
    throttled: Family<ByPlugin, Counter>,
    dropped: Family<ByPlugin, Counter>,
    connections: Family<ByDestination, Counter>,
    inbound: Family<ByRequest, Counter>,
}

/// Counts the connections of one plugin.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    family: Family<ByDestination, Counter>,
    operator: Arc<str>,
    plugin: Arc<str>,
}

/// The metrics of one plugin.
#[derive(Clone)]
pub struct PluginMetrics {
    /// Requests that waited because there were too many.
    pub throttled: Counter,
    /// Kubernetes Events that were dropped.
    pub dropped: Counter,
}

/// Metrics of the runs of controllers.
pub struct Runs {
    active: Family<ByController, Gauge>,
    started: Family<ByController, Counter>,
    succeeded: Family<ByController, Counter>,
    failed: Family<ByController, Counter>,
    retried: Family<ByController, Counter>,
    outages: Family<ByController, Counter>,
    exceeded: Family<ByController, Counter>,
    recalled: Family<ByController, Counter>,
    events: Family<ByEvent, Counter>,
    callbacks: Family<ByCallback, Counter>,
    duration: Family<ByController, Histogram, fn() -> Histogram>,
    primaries: Family<ByController, Gauge>,
    paused: Family<ByController, Gauge>,
}

/// The metrics of one controller, looked up once.
#[derive(Clone)]
pub struct ControllerRuns {
    /// Runs under way.
    pub active: Gauge,
    /// Runs started.
    pub started: Counter,
    /// Runs that ended well.
    pub succeeded: Counter,
    /// Runs that failed.
    pub failed: Counter,
    /// Runs that were retries.
    pub retried: Counter,
    /// Runs that failed because the API server was away, and are repeated.
    pub outages: Counter,
    /// Runs whose work on documents went over its budget.
    pub exceeded: Counter,
    /// Objects that runs read from the API server because a bounded cache had forgotten them.
    pub recalled: Counter,
    /// Events of primaries.
    pub primary_events: Counter,
    /// Events of secondaries.
    pub secondary_events: Counter,
    /// Filters without an answer.
    pub failed_filters: Counter,
    /// Mappers without an answer.
    pub failed_mappers: Counter,
    /// Indexes without an answer.
    pub failed_indexes: Counter,
    /// Polls that failed.
    pub failed_polls: Counter,
    /// Requests from outside that were not understood.
    pub failed_requests: Counter,
    /// How long runs take.
    pub duration: Histogram,
    /// The number of primaries.
    pub primaries: Gauge,
    /// Those of them that are paused.
    pub paused: Gauge,
}

/// Metrics of informers.
#[derive(Default)]
pub struct Informers {
    objects: Family<ByInformer, Gauge>,
    bytes: Family<ByInformer, Gauge>,
    unreadable: Family<ByInformer, Gauge>,
    synced: Family<ByInformer, Gauge>,
    failures: Family<ByInformer, Counter>,
    /// How many informers count under each label: it does not tell selectors apart, nor what leads to another cluster.
    used: Mutex<HashMap<ByInformer, usize>>,
}

/// The metrics of one informer.
#[derive(Clone)]
pub struct InformerMetrics {
    /// Objects in its cache.
    pub objects: Gauge,
    /// Bytes that these objects take.
    pub bytes: Gauge,
    /// Objects whose newest version can't be read.
    pub unreadable: Gauge,
    /// 1 once its cache is filled.
    pub synced: Gauge,
    /// Lists and watches that failed.
    pub failures: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByController {
    controller: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByEvent {
    controller: String,
    event: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCallback {
    controller: String,
    callback: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPlugin {
    operator: String,
    plugin: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDestination {
    operator: String,
    plugin: String,
    /// The entry of the manifest; empty if there is none for it.
    to: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRequest {
    /// Empty if the request is to no source.
    controller: String,
    source: String,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByInformer {
    kind: String,
    namespace: String,
    /// As `operator/name`; empty for the daemon's own.
    cluster: String,
}

/// The statuses that are told apart: a component may answer with any.
const STATUSES: [(u16, &str); 22] = [
    (200, "200"),
    (201, "201"),
    (202, "202"),
    (204, "204"),
    (400, "400"),
    (401, "401"),
    (403, "403"),
    (404, "404"),
    (405, "405"),
    (408, "408"),
    (409, "409"),
    (410, "410"),
    (413, "413"),
    (414, "414"),
    (415, "415"),
    (422, "422"),
    (429, "429"),
    (500, "500"),
    (502, "502"),
    (503, "503"),
    (504, "504"),
    (507, "507"),
];

impl Default for Runs {
    fn default() -> Self {
        let buckets = || Histogram::new([0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0]);
        Self {
            active: Family::default(),
            started: Family::default(),
            succeeded: Family::default(),
            failed: Family::default(),
            retried: Family::default(),
            outages: Family::default(),
            exceeded: Family::default(),
            recalled: Family::default(),
            events: Family::default(),
            callbacks: Family::default(),
            duration: Family::new_with_constructor(buckets),
            primaries: Family::default(),
            paused: Family::default(),
        }
    }
}

impl Runs {
    /// Returns the metrics of one controller.
    pub fn of(&self, controller: &str) -> ControllerRuns {
        let label = ByController { controller: controller.to_owned() };
        let event = |event| self.events.get_or_create_owned(&ByEvent { controller: controller.to_owned(), event });
        let failed =
            |callback| self.callbacks.get_or_create_owned(&ByCallback { controller: controller.to_owned(), callback });
        ControllerRuns {
            active: self.active.get_or_create_owned(&label),
            started: self.started.get_or_create_owned(&label),
            succeeded: self.succeeded.get_or_create_owned(&label),
            failed: self.failed.get_or_create_owned(&label),
            retried: self.retried.get_or_create_owned(&label),
            outages: self.outages.get_or_create_owned(&label),
            exceeded: self.exceeded.get_or_create_owned(&label),
            recalled: self.recalled.get_or_create_owned(&label),
            primary_events: event("primary"),
            secondary_events: event("secondary"),
            failed_filters: failed("filter"),
            failed_mappers: failed("mapper"),
            failed_indexes: failed("index"),
            failed_polls: failed("poller"),
            failed_requests: failed("inbound"),
            duration: self.duration.get_or_create_owned(&label),
            primaries: self.primaries.get_or_create_owned(&label),
            paused: self.paused.get_or_create_owned(&label),
        }
    }

    /// Removes the gauges of a controller that has ended; its counters stay, as what they count has happened.
    pub fn forget(&self, controller: &str) {
        let label = ByController { controller: controller.to_owned() };
        self.active.remove(&label);
        self.primaries.remove(&label);
        self.paused.remove(&label);
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("reconciliations_active", "Runs under way", self.active.clone());
        registry.register("reconciliations_started", "Runs started", self.started.clone());
        registry.register("reconciliations_success", "Runs that ended well", self.succeeded.clone());
        registry.register("reconciliations_failure", "Runs that failed", self.failed.clone());
        registry.register("reconciliations_retries", "Runs that were retries", self.retried.clone());
        registry.register(
            "reconciliations_outage_retries",
            "Runs that failed because the API server was away, and are repeated",
            self.outages.clone(),
        );
        registry.register(
            "reconciliations_over_budget",
            "Runs whose work on documents cost more than it may; the log says what and whose",
            self.exceeded.clone(),
        );
        registry.register(
            "reconciliations_recalled",
            "Objects that runs read from the API server because a bounded cache had forgotten them",
            self.recalled.clone(),
        );
        registry.register("events_received", "Events that reached a controller", self.events.clone());
        registry.register(
            "callback_failures",
            "Filters, mappers and indexes that had no answer for an object, be they expressions or exports, polls that failed, and requests from outside that were not understood; the log says why",
            self.callbacks.clone(),
        );
        let help = "How long a run takes";
        registry.register_with_unit("reconciliations_execution_duration", help, Unit::Seconds, self.duration.clone());
        registry.register("custom_resources", "Primaries there are", self.primaries.clone());
        let help = "Primaries that are paused, by their annotation or with their controller";
        registry.register("custom_resources_paused", help, self.paused.clone());
    }
}

impl ControllerRuns {
    /// Sets the number of primaries.
    pub fn count_primaries(&self, primaries: usize) {
        self.primaries.set(i64::try_from(primaries).unwrap_or(i64::MAX));
    }

    /// Sets how many primaries are paused.
    pub fn count_paused(&self, primaries: usize) {
        self.paused.set(i64::try_from(primaries).unwrap_or(i64::MAX));
    }

    /// Counts the start of a run.
    pub fn start(&self, retry: bool) {
        self.active.inc();
        self.started.inc();
        if retry {
            self.retried.inc();
        }
    }

    /// Counts events.
    pub fn count(&self, heard: Enqueued) {
        self.primary_events.inc_by(heard.primary);
        self.secondary_events.inc_by(heard.secondary);
    }

    /// Counts a question about an object that has no answer.
    pub fn count_failed(&self, callback: Callback) {
        match callback {
            Callback::Filter => self.failed_filters.inc(),
            Callback::Mapper => self.failed_mappers.inc(),
            Callback::Index => self.failed_indexes.inc(),
            Callback::Poller => self.failed_polls.inc(),
            Callback::Inbound => self.failed_requests.inc(),
        };
    }

    /// Counts the end of a run.
    pub fn finish(&self, took: Duration, succeeded: bool) {
        self.active.dec();
        self.duration.observe(took.as_secs_f64());
        if succeeded {
            self.succeeded.inc()
        } else {
            self.failed.inc()
        };
    }
}

impl ByInformer {
    fn new(kind: &str, namespace: Option<&str>, cluster: Option<&str>) -> Self {
        let [namespace, cluster] = [namespace, cluster].map(|name| name.unwrap_or_default().to_owned());
        Self { kind: kind.to_owned(), namespace, cluster }
    }
}

impl Informers {
    /// Returns the metrics of one informer, until [`Informers::forget`].
    pub fn of(&self, kind: &str, namespace: Option<&str>, cluster: Option<&str>) -> InformerMetrics {
        let label = ByInformer::new(kind, namespace, cluster);
        *self.used.lock().entry(label.clone()).or_default() += 1;
        InformerMetrics {
            objects: self.objects.get_or_create_owned(&label),
            bytes: self.bytes.get_or_create_owned(&label),
            unreadable: self.unreadable.get_or_create_owned(&label),
            synced: self.synced.get_or_create_owned(&label),
            failures: self.failures.get_or_create_owned(&label),
        }
    }

    /// Removes the metrics of an informer that has ended, unless there is another one like it.
    pub fn forget(&self, kind: &str, namespace: Option<&str>, cluster: Option<&str>) {
        let label = ByInformer::new(kind, namespace, cluster);
        {
            let mut used = self.used.lock();
            if let Some(others) = used.get_mut(&label).filter(|used| **used > 1) {
                *others -= 1;
                return;
            }
            used.remove(&label);
        }
        self.objects.remove(&label);
        self.bytes.remove(&label);
        self.unreadable.remove(&label);
        self.synced.remove(&label);
        self.failures.remove(&label);
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("informer_objects", "Objects in the cache", self.objects.clone());
        registry.register("informer_bytes", "Bytes that the objects in the cache take", self.bytes.clone());
        registry.register(
            "informer_unreadable",
            "Objects whose newest version can't be read, and which count as they were before",
            self.unreadable.clone(),
        );
        registry.register("informer_synced", "1 once the cache is filled", self.synced.clone());
        registry.register("informer_failures", "Lists and watches that failed", self.failures.clone());
    }
}

impl Plugins {
    /// Returns the metrics of one plugin.
    pub fn of(&self, operator: &str, plugin: &str) -> PluginMetrics {
        let label = ByPlugin { operator: operator.to_owned(), plugin: plugin.to_owned() };
        PluginMetrics {
            throttled: self.throttled.get_or_create_owned(&label),
            dropped: self.dropped.get_or_create_owned(&label),
        }
    }

    /// Returns what counts the connections of one plugin.
    pub fn connections(&self, operator: &Arc<str>, plugin: &Arc<str>) -> Connections {
        let family = self.connections.clone();
        Connections { family, operator: Arc::clone(operator), plugin: Arc::clone(plugin) }
    }

    /// Counts a request from outside to a source of a controller, or to none.
    pub fn count_request(&self, to: Option<(&str, &str)>, status: u16) {
        let [controller, source] = to.map_or(["", ""], |(controller, source)| [controller, source]).map(str::to_owned);
        let known = STATUSES.iter().find(|(code, _)| *code == status);
        let status = known.map_or("other", |(_, text)| *text);
        self.inbound.get_or_create_owned(&ByRequest { controller, source, status }).inc();
    }

    fn register(&self, registry: &mut Registry) {
        let help = "Requests from outside, by source and by the status that they were answered with";
        registry.register("inbound_requests", help, self.inbound.clone());
        registry.register(
            "plugin_connections",
            "HTTP requests and TCP connections of the plugin, by entry of its manifest and by result",
            self.connections.clone(),
        );
        registry.register(
            "plugin_requests_throttled",
            "Requests that waited because the plugin has too many a second",
            self.throttled.clone(),
        );
        registry.register(
            "plugin_events_dropped",
            "Kubernetes Events of the plugin that were dropped",
            self.dropped.clone(),
        );
    }
}

impl Connections {
    /// Counts one to what an entry of the manifest names; empty if none does.
    pub fn count(&self, to: String, result: &'static str) {
        let Self { family, operator, plugin } = self;
        let label = ByDestination { operator: operator.to_string(), plugin: plugin.to_string(), to, result };
        family.get_or_create_owned(&label).inc();
    }
}

impl Metrics {
    /// Returns the registry that `/metrics` prints.
    pub fn registry(self: &Arc<Self>) -> Registry {
        let mut registry = Registry::with_prefix("capstan");
        self.runs.register(&mut registry);
        self.informers.register(&mut registry);
        self.plugins.register(&mut registry);
        registry
    }
}

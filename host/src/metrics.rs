//! Counts what the daemon does: one small struct of metrics per part, all registered under one prefix.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::reconciler::triggers::Enqueued;
use capstan_core::source::callback::Callback;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

mod lives;

use lives::{Life, Lives};

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

/// Declares metrics with the same labels: a family of each, and those of one label, looked up once.
macro_rules! metrics {
    ($(#[$about:meta])* $one:ident of $families:ident by $label:ident {
        $($metric:ident: $kind:ident, $name:literal, $help:literal;)*
    }) => {
        $(#[$about])*
        #[derive(Clone)]
        pub struct $one { $(#[doc = $help] pub $metric: $kind,)* }

        #[derive(Default)]
        struct $families { $($metric: Family<$label, $kind>,)* }

        impl $families {
            fn of(&self, label: &$label) -> $one {
                $one { $($metric: self.$metric.get_or_create_owned(label),)* }
            }

            fn remove(&self, label: &$label) {
                $(self.$metric.remove(label);)*
            }

            fn register(&self, registry: &mut Registry) {
                $(registry.register($name, $help, self.$metric.clone());)*
            }
        }
    };
}

metrics! {
    /// The metrics of one controller that only count.
    RunCounts of RunFamilies by ByController {
        active: Gauge, "reconciliations_active", "Runs under way";
        started: Counter, "reconciliations_started", "Runs started";
        succeeded: Counter, "reconciliations_success", "Runs that ended well";
        failed: Counter, "reconciliations_failure", "Runs that failed";
        handled: Counter, "reconciliations_handled",
            "Runs that failed, where the component has dealt with the failure, be they retried or not";
        retried: Counter, "reconciliations_retries", "Runs that were retries";
        outages: Counter, "reconciliations_outage_retries",
            "Runs that failed because the API server was away, and are repeated";
        exceeded: Counter, "reconciliations_over_budget",
            "Runs whose work on documents cost more than it may; the log says what and whose";
        recalled: Counter, "reconciliations_recalled",
            "Objects that runs read from the API server because a bounded cache had forgotten them";
        primaries: Gauge, "custom_resources", "Primaries there are";
        paused: Gauge, "custom_resources_paused",
            "Primaries that are paused, by their annotation or with their controller";
    }
}

metrics! {
    /// The metrics of one informer.
    InformerMetrics of InformerFamilies by ByInformer {
        objects: Gauge, "informer_objects", "Objects in the cache";
        bytes: Gauge, "informer_bytes", "Bytes that the objects in the cache take";
        unreadable: Gauge, "informer_unreadable",
            "Objects whose newest version can't be read, and which count as they were before";
        synced: Gauge, "informer_synced", "1 once the cache is filled";
        failures: Counter, "informer_failures", "Lists and watches that failed";
    }
}

metrics! {
    /// The metrics of one plugin.
    PluginMetrics of PluginFamilies by ByPlugin {
        throttled: Counter, "plugin_requests_throttled",
            "Requests that waited because the plugin has too many a second";
        dropped: Counter, "plugin_events_dropped", "Kubernetes Events of the plugin that were dropped";
    }
}

/// Metrics of what plugins ask for: requests and Events that were held back or dropped, and connections.
#[derive(Default)]
pub struct Plugins {
    families: PluginFamilies,
    connections: Arc<Several<ByPlugin, ByDestination>>,
    lives: Lives<ByPlugin>,
}

/// The metrics of one plugin, while one of its controllers counts.
#[derive(Clone)]
pub struct CountedPlugin {
    /// Those that only count.
    pub counts: PluginMetrics,
    _life: Arc<Life<ByPlugin>>,
}

/// Counts the connections of one plugin.
#[derive(Clone)]
pub struct Connections {
    family: Arc<Several<ByPlugin, ByDestination>>,
    life: Arc<Life<ByPlugin>>,
}

/// How many one thing has at most; then all of its begin anew: names of its manifests come and go.
const SEVERAL: usize = 2048;

/// Counters of which one thing has several.
struct Several<K, L> {
    family: Family<L, Counter>,
    /// The labels of each thing.
    labels: Mutex<HashMap<K, HashSet<L>>>,
}

/// Metrics of the runs of controllers.
pub struct Runs {
    families: RunFamilies,
    events: Family<ByEvent, Counter>,
    callbacks: Family<ByCallback, Counter>,
    duration: Family<ByController, Histogram, fn() -> Histogram>,
    /// Requests from outside; those to no source are of no controller.
    requests: Several<String, ByRequest>,
    lives: Lives<String>,
}

/// The metrics of one controller, looked up once; kept for a while when all of these are dropped.
#[derive(Clone)]
pub struct ControllerRuns {
    /// Those that only count.
    pub counts: RunCounts,
    primary_events: Counter,
    secondary_events: Counter,
    failed_filters: Counter,
    failed_mappers: Counter,
    failed_indexes: Counter,
    failed_polls: Counter,
    failed_requests: Counter,
    duration: Histogram,
    _life: Arc<Life<String>>,
}

/// Metrics of informers.
#[derive(Default)]
pub struct Informers {
    families: InformerFamilies,
    /// How many informers count under each label: it does not tell selectors apart, nor what leads to another cluster.
    used: Mutex<HashMap<ByInformer, usize>>,
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
    status: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByInformer {
    kind: String,
    namespace: String,
    /// As `operator/name`; empty for the daemon's own.
    cluster: String,
}

/// The events and callbacks that are told apart.
const EVENTS: [&str; 2] = ["primary", "secondary"];
const CALLBACKS: [&str; 5] = ["filter", "mapper", "index", "poller", "inbound"];

/// The statuses that are told apart: a component may answer with any.
const STATUSES: [u16; 22] =
    [200, 201, 202, 204, 400, 401, 403, 404, 405, 408, 409, 410, 413, 414, 415, 422, 429, 500, 502, 503, 504, 507];

impl Default for Runs {
    fn default() -> Self {
        let buckets = || Histogram::new([0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0]);
        let duration = Family::new_with_constructor(buckets as fn() -> Histogram);
        let (families, events, callbacks) = (RunFamilies::default(), Family::default(), Family::default());
        Self { families, events, callbacks, duration, requests: Several::default(), lives: Lives::default() }
    }
}

impl<K, L: Clone + Eq + std::hash::Hash> Default for Several<K, L> {
    fn default() -> Self {
        Self { family: Family::default(), labels: Mutex::default() }
    }
}

impl<K: Clone + Eq + std::hash::Hash, L: Clone + Eq + std::hash::Hash> Several<K, L> {
    fn count(&self, of: &K, label: L) {
        let mut labels = self.labels.lock();
        let all = labels.entry(of.clone()).or_default();
        if all.len() >= SEVERAL && !all.contains(&label) {
            for gone in all.drain() {
                self.family.remove(&gone);
            }
        }
        self.family.get_or_create_owned(&label).inc();
        all.insert(label);
    }

    /// Removes all of one thing.
    fn remove(&self, of: &K) {
        let labels = self.labels.lock().remove(of);
        for label in labels.into_iter().flatten() {
            self.family.remove(&label);
        }
    }
}

impl Runs {
    /// Returns the metrics of one controller.
    pub fn of(&self, controller: &str) -> ControllerRuns {
        self.remove_gone();
        let name = controller.to_owned();
        let life = self.lives.begin(&name);
        let label = ByController { controller: name.clone() };
        let event = |event| self.events.get_or_create_owned(&ByEvent { controller: name.clone(), event });
        let failed = |callback| self.callbacks.get_or_create_owned(&ByCallback { controller: name.clone(), callback });
        ControllerRuns {
            counts: self.families.of(&label),
            primary_events: event("primary"),
            secondary_events: event("secondary"),
            failed_filters: failed("filter"),
            failed_mappers: failed("mapper"),
            failed_indexes: failed("index"),
            failed_polls: failed("poller"),
            failed_requests: failed("inbound"),
            duration: self.duration.get_or_create_owned(&label),
            _life: life,
        }
    }

    /// Counts a request from outside to a source of a controller that is there, or to none.
    pub fn count_request(&self, to: Option<(&str, &str)>, status: u16) {
        let [controller, source] = to.map_or(["", ""], |(controller, source)| [controller, source]).map(str::to_owned);
        let status = if STATUSES.contains(&status) { status.to_string() } else { "other".to_owned() };
        self.requests.count(&controller.clone(), ByRequest { controller, source, status });
    }

    /// Removes what is counted of controllers that have been gone for a while.
    fn remove_gone(&self) {
        self.lives.end(Instant::now(), |controller| {
            self.requests.remove(&controller);
            for event in EVENTS {
                self.events.remove(&ByEvent { controller: controller.clone(), event });
            }
            for callback in CALLBACKS {
                self.callbacks.remove(&ByCallback { controller: controller.clone(), callback });
            }
            let label = ByController { controller };
            self.families.remove(&label);
            self.duration.remove(&label);
        });
    }

    /// Removes the gauges of a controller that has ended; its counters stay for a while, as what they count has happened.
    pub fn forget(&self, controller: &str) {
        let label = ByController { controller: controller.to_owned() };
        let RunFamilies { active, primaries, paused, .. } = &self.families;
        for gauge in [active, primaries, paused] {
            gauge.remove(&label);
        }
    }

    fn register(&self, registry: &mut Registry) {
        self.families.register(registry);
        registry.register("events_received", "Events that reached a controller", self.events.clone());
        registry.register(
            "callback_failures",
            "Filters, mappers and indexes that had no answer for an object, be they expressions or exports, polls that failed, and requests from outside that were not understood; the log says why",
            self.callbacks.clone(),
        );
        let help = "How long a run takes";
        let outside = "Requests from outside, by source and by the status that they were answered with";
        registry.register("inbound_requests", outside, self.requests.family.clone());
        registry.register_with_unit("reconciliations_execution_duration", help, Unit::Seconds, self.duration.clone());
    }
}

impl ControllerRuns {
    /// Sets the number of primaries.
    pub fn count_primaries(&self, primaries: usize) {
        self.counts.primaries.set(i64::try_from(primaries).unwrap_or(i64::MAX));
    }

    /// Sets how many primaries are paused.
    pub fn count_paused(&self, primaries: usize) {
        self.counts.paused.set(i64::try_from(primaries).unwrap_or(i64::MAX));
    }

    /// Counts the start of a run.
    pub fn start(&self, retry: bool) {
        self.counts.active.inc();
        self.counts.started.inc();
        if retry {
            self.counts.retried.inc();
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
        self.counts.active.dec();
        self.duration.observe(took.as_secs_f64());
        if succeeded {
            self.counts.succeeded.inc()
        } else {
            self.counts.failed.inc()
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
        self.families.of(&label)
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
        self.families.remove(&label);
    }
}

impl Plugins {
    /// Returns the metrics of one plugin.
    pub fn of(&self, operator: &str, plugin: &str) -> CountedPlugin {
        self.remove_gone();
        let label = ByPlugin { operator: operator.to_owned(), plugin: plugin.to_owned() };
        let life = self.lives.begin(&label);
        CountedPlugin { counts: self.families.of(&label), _life: life }
    }

    /// Returns what counts the connections of one plugin.
    pub fn connections(&self, operator: &str, plugin: &str) -> Connections {
        self.remove_gone();
        let life = self.lives.begin(&ByPlugin { operator: operator.to_owned(), plugin: plugin.to_owned() });
        Connections { family: Arc::clone(&self.connections), life }
    }

    /// Removes what is counted of plugins that have been gone for a while.
    fn remove_gone(&self) {
        self.lives.end(Instant::now(), |plugin| {
            self.connections.remove(&plugin);
            self.families.remove(&plugin);
        });
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "plugin_connections",
            "HTTP requests and TCP connections of the plugin, by entry of its manifest and by result; as capabilities.kubernetes what it asks of the API server, if that was refused here",
            self.connections.family.clone(),
        );
        self.families.register(registry);
    }
}

impl Connections {
    /// Counts one to what an entry of the manifest names; empty if none does.
    pub fn count(&self, to: String, result: &'static str) {
        let of = self.life.name();
        let ByPlugin { operator, plugin } = of.clone();
        self.family.count(of, ByDestination { operator, plugin, to, result });
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connections").field(self.life.name()).finish()
    }
}

/// Removes what is gone when somebody reads.
struct Gone(Arc<Metrics>);

impl Collector for Gone {
    fn encode(&self, _: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.runs.remove_gone();
        self.0.plugins.remove_gone();
        Ok(())
    }
}

impl fmt::Debug for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gone")
    }
}

impl Metrics {
    /// Returns the registry that `/metrics` prints.
    pub fn registry(self: &Arc<Self>) -> Registry {
        let mut registry = Registry::with_prefix("capstan");
        self.runs.register(&mut registry);
        self.informers.families.register(&mut registry);
        self.plugins.register(&mut registry);
        registry.register_collector(Box::new(Gone(Arc::clone(self))));
        registry
    }
}

#[cfg(test)]
mod tests {
    use super::lives::{KEPT, MOST};
    use super::*;

    /// Returns the lines that are about something.
    fn lines(metrics: &Arc<Metrics>, about: &str) -> Vec<String> {
        let registry = metrics.registry();
        let mut text = String::new();
        // What is removed by one reading is not there in the next.
        for _ in 0..2 {
            text.clear();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        }
        text.lines().filter(|line| line.contains(&format!("\"{about}"))).map(str::to_owned).collect()
    }

    /// Returns what counts for an operator and its controller, both of this name, and has counted some of everything.
    fn counting(metrics: &Metrics, name: &str) -> impl Sized + use<> {
        let runs = metrics.runs.of(name);
        runs.start(true);
        runs.finish(Duration::from_secs(1), false);
        runs.count(Enqueued { primary: 1, secondary: 1 });
        runs.count_failed(Callback::Poller);
        metrics.runs.count_request(Some((name, "source")), 202);
        let connections = metrics.plugins.connections(name, "plugin");
        connections.count("example.com".to_owned(), "ok");
        (runs, connections, metrics.plugins.of(name, "plugin"))
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_come_and_go_within_a_plugin_that_stays_are_no_more_than_a_bound() {
        let metrics = Arc::<Metrics>::default();
        let connections = metrics.plugins.connections("one", "plugin");
        for number in 0..3 * SEVERAL {
            connections.count(format!("{number}.example.com"), "ok");
        }
        let found = lines(&metrics, "one").len();
        assert!((1..=SEVERAL + 100).contains(&found), "{found}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_counted_of_what_is_gone_is_kept_for_a_while() {
        let metrics = Arc::<Metrics>::default();
        let (first, second) = (counting(&metrics, "one"), counting(&metrics, "one"));
        let all = lines(&metrics, "one").len();
        assert!(all > 20, "{all}");
        drop(first);
        tokio::time::advance(2 * KEPT).await;
        assert_eq!(lines(&metrics, "one").len(), all, "there is another one of that name");
        drop(second);
        metrics.runs.forget("one");
        let gauges = 3;
        tokio::time::advance(KEPT / 2).await;
        assert_eq!(lines(&metrics, "one").len(), all - gauges);
        let again = counting(&metrics, "one");
        tokio::time::advance(KEPT).await;
        let found = lines(&metrics, "one");
        assert_eq!(found.len(), all, "it is there again");
        assert!(found.iter().any(|line| line.contains("reconciliations_started") && line.ends_with(" 3")), "{found:?}");
        drop(again);
        tokio::time::advance(KEPT).await;
        assert_eq!(lines(&metrics, "one"), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn who_makes_operators_and_deletes_them_fills_no_memory() {
        let metrics = Arc::<Metrics>::default();
        drop(counting(&metrics, "each"));
        let each = lines(&metrics, "each").len();
        for n in 0..2000 {
            drop(counting(&metrics, &format!("operator-{n}")));
            metrics.runs.forget(&format!("operator-{n}"));
        }
        let left = lines(&metrics, "operator-").len();
        assert!(left <= each * MOST, "{left} lines, {each} for each");
        assert_eq!(lines(&metrics, "each"), Vec::<String>::new());
        assert!(!lines(&metrics, "operator-1999").is_empty());
        let kept = metrics.runs.requests.labels.lock().len() + metrics.plugins.connections.labels.lock().len();
        assert!(kept <= 2 * MOST, "{kept}");
    }
}

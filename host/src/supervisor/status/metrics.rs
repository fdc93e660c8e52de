//! Tells the metrics of plugins and controllers that follow from the status.

use std::sync::Arc;

use capstan_core::registry::Kind;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{Entry, Status};
use crate::controller::Handle;
use crate::supervisor::supply::Unit;

/// Tells the metrics of plugins and controllers when they are asked for.
#[derive(Debug)]
pub struct Metrics(pub Arc<Status>);

/// A metric of plugins: its name, what it says, and its value.
type Metric<V> = (&'static str, &'static str, fn(&Entry) -> Option<V>);

const COUNTERS: [Metric<u64>; 8] = [
    ("plugin_calls", "Calls of exports", |entry| Some(entry.totals().calls)),
    ("plugin_errors", "Calls that answered with an error", |entry| Some(entry.totals().errors)),
    ("plugin_broken_calls", "Calls that ended by a trap, a time-out or for want of memory", |entry| {
        Some(entry.totals().broken())
    }),
    (
        "plugin_processes_started",
        "Processes that were started for the instances of a plugin with one of its own",
        |entry| Some(entry.totals().processes_started).filter(|started| *started > 0),
    ),
    ("plugin_instances_started", "Instances that were started", |entry| Some(entry.totals().instances_started)),
    ("plugin_versions_placed", "Versions that were put in place", |entry| Some(entry.placed)),
    ("plugin_versions_refused", "Versions that were refused", |entry| Some(entry.refused)),
    (
        "plugin_compile_failures",
        "Versions that could not be compiled, or not with the memory and time that there is for it",
        |entry| Some(entry.uncompiled),
    ),
];

const GAUGES: [Metric<i64>; 4] = [
    (
        "plugin_approval_required",
        "1 if what the manifest says wants more than what is in force, and waits for `capstan approve`",
        |entry| Some(i64::from(entry.asks())),
    ),
    ("plugin_in_force", "1 if what the manifest says is in force, 0 if another version is, or none", |entry| {
        Some(i64::from(entry.is_in_force()))
    }),
    ("plugin_instances", "Instances there are, at work or waiting", |entry| {
        i64::try_from(entry.in_force.as_ref()?.plugin.usage().instances).ok()
    }),
    ("plugin_instance_memory_peak_bytes", "The most memory that an instance has had", |entry| {
        i64::try_from(entry.in_force.as_ref()?.plugin.usage().peak_memory_bytes).ok()
    }),
];

/// A gauge of controllers: its name, what it says, and its value.
type OfController = (&'static str, &'static str, fn(&Handle) -> i64);

const OF_CONTROLLERS: [OfController; 2] = [
    (
        "controller_ready",
        "1 if the controller runs with all that it needs; else /readyz?verbose says what is lacking",
        |handle| i64::from(handle.unready().is_none()),
    ),
    ("reconciliations_queue", "Primaries that could run now if the controller's concurrency permitted", |handle| {
        i64::try_from(handle.due()).unwrap_or(i64::MAX)
    }),
];

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let plugins = self.0.plugins.lock();
        for (name, help, value) in COUNTERS {
            let values = plugins.iter().map(|(unit, entry)| {
                let value = value(entry).map(ConstCounter::new);
                (labels(unit).to_vec(), value)
            });
            family(&mut encoder, (name, help), &ConstCounter::new(0_u64), values)?;
        }
        for (name, help, value) in GAUGES {
            let values = plugins.iter().map(|(unit, entry)| {
                let value = value(entry).map(ConstGauge::new);
                (labels(unit).to_vec(), value)
            });
            family(&mut encoder, (name, help), &ConstGauge::new(0_i64), values)?;
        }
        let info = plugins.iter().filter_map(|(unit, entry)| {
            let digest = entry.in_force.as_ref()?.plugin.digest().to_owned();
            let facts = [("version", entry.placed.to_string()), ("digest", digest)];
            Some(([labels(unit), facts].concat(), Some(ConstGauge::new(1_i64))))
        });
        let help = "1: the version in force, and its digest";
        family(&mut encoder, ("plugin_info", help), &ConstGauge::new(1_i64), info)?;
        let problems = plugins.iter().filter_map(|(unit, entry)| {
            let step = ("step", entry.problem.as_ref()?.step.clone());
            let labels = [&labels(unit)[..], &[step]].concat();
            Some((labels, Some(ConstGauge::new(1_i64))))
        });
        let help = "1: what the manifest says is not in force, because this step failed; /debug/plugins says why";
        family(&mut encoder, ("plugin_problem", help), &ConstGauge::new(1_i64), problems)?;
        let unsigned = plugins.iter().filter_map(|(unit, entry)| {
            let problem = self.0.seen(unit, entry)?.problem;
            let is_unsigned = problem.is_some_and(|problem| problem.kind == Kind::Unsigned);
            Some((labels(unit).to_vec(), Some(ConstGauge::new(i64::from(is_unsigned)))))
        });
        let help = "1 if what the manifest names in a registry is not signed as it has to be; what was goes on, if there was any";
        family(&mut encoder, ("plugin_unsigned", help), &ConstGauge::new(0_i64), unsigned)?;
        let registries = plugins.iter().filter_map(|(unit, entry)| {
            let failing = self.0.seen(unit, entry)?.problem.is_some();
            Some((labels(unit).to_vec(), Some(ConstGauge::new(i64::from(failing)))))
        });
        let help = "1 if the registry of the component does not give what the manifest names; what it named last goes on, if there was any";
        family(&mut encoder, ("plugin_registry_problem", help), &ConstGauge::new(0_i64), registries)?;
        drop(plugins);
        let controllers = self.0.controllers();
        for (name, help, value) in OF_CONTROLLERS {
            let values = controllers
                .iter()
                .map(|handle| (vec![("controller", handle.name().to_owned())], Some(ConstGauge::new(value(handle)))));
            family(&mut encoder, (name, help), &ConstGauge::new(0_i64), values)?;
        }
        let bad = self.0.manifests.lock().len();
        count(&mut encoder, ("manifest_problems", "Manifests that are not in force as they are"), bad)?;
        let rivals = self.0.rivals.lock().len();
        count(
            &mut encoder,
            ("operator_rivals", "Operators whose status another daemon says, too: two daemons run them"),
            rivals,
        )
    }
}

/// Writes a number.
fn count(encoder: &mut DescriptorEncoder<'_>, (name, help): (&str, &str), many: usize) -> Result<(), std::fmt::Error> {
    let gauge = ConstGauge::new(i64::try_from(many).unwrap_or(i64::MAX));
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

/// A label and its value.
type Label = (&'static str, String);

fn labels(unit: &Unit) -> [Label; 2] {
    [("operator", unit.operator.to_string()), ("plugin", unit.plugin.to_string())]
}

/// Writes the series of a metric; `kind` is one of its values, whichever.
fn family<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    kind: &M,
    series: impl IntoIterator<Item = (Vec<Label>, Option<M>)>,
) -> Result<(), std::fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, kind.metric_type())?;
    for (labels, value) in series {
        if let Some(value) = value {
            value.encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

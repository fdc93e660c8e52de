//! Measures what starts: `capstan check`, a daemon that has nothing to do, and one beside many objects that it does not own.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Measure, Rounds, Span, number};
use crate::clock::pass;
use crate::load;
use crate::objects::{FOREIGN, FOREIGN_PATH, deployment};
use crate::stage::{Stage, WRONG};
use crate::subject::{SAMPLE, Subject};

/// The median of so many checks counts.
const CHECKS: usize = 5;
/// How long a daemon is left alone before its memory is read.
const REST: Duration = Duration::from_secs(10);
const KIB_PER_MIB: f64 = 1024.0;

/// Measures how long `capstan check` takes, and how large the release is.
pub(super) fn check(rounds: &mut Rounds<'_>, stage: &Stage) -> Result<()> {
    rounds.tell("capstan check");
    let manifest = stage.manifest("check", &Subject::sample()?)?;
    let mut times = (0..CHECKS).map(|_| stage.check(&manifest)).collect::<Result<Vec<_>>>()?;
    times.sort();
    if let Some(median) = times.get(CHECKS / 2) {
        rounds.note(Measure::Check, "wall time, median of 5", "s", median.as_secs_f64());
    }
    if let Some(size) = rounds.subject.release_size() {
        rounds.note(Measure::Check, "size of the release", "MiB", size);
    }
    Ok(())
}

/// Measures a daemon without objects.
pub(super) fn idle(rounds: &mut Rounds<'_>, stage: &Stage) -> Result<()> {
    rounds.tell("idle");
    let manifest = stage.manifest("idle", &Subject::sample()?)?;
    let span = Span::begin(stage, None)?;
    let mut daemon = stage.start(&manifest, WRONG)?;
    let ready = daemon.until_ready()?;
    pass(REST);
    rounds.note(Measure::Idle, "start to ready", "s", ready.as_secs_f64());
    span.used(rounds, Measure::Idle, &daemon)?;
    let [pss, peak] = daemon.memory()?;
    rounds.note(Measure::Idle, "Pss", "MiB", pss);
    rounds.note(Measure::Idle, "peak RSS", "MiB", peak);
    daemon.stop()
}

/// Measures a daemon without foreign objects, then the same with them.
pub(super) fn cache(rounds: &mut Rounds<'_>, stage: &Stage) -> Result<()> {
    rounds.tell("cache: idle for comparison");
    let daemon = stage.ready("cache", &Subject::sample()?)?;
    pass(REST);
    let [idle, _] = daemon.memory()?;
    daemon.stop()?;

    let count = rounds.sizes.deployments;
    rounds.tell("cache: creating Deployments");
    stage.namespace(FOREIGN)?;
    load::create(stage, FOREIGN_PATH, count, deployment)?;
    let sample = stage.list(&format!("{FOREIGN_PATH}?limit=1"))?;
    let size = sample.first().map_or(0, |object| object.to_string().len());
    rounds.note(Measure::Cache, "one as JSON", "KiB", number(size) / KIB_PER_MIB);

    rounds.tell("cache: start");
    let manifest = stage.manifest("cache", &Subject::sample()?)?;
    let span = Span::begin(stage, None)?;
    let mut daemon = stage.start(&manifest, WRONG)?;
    let ready = daemon.until_ready()?;
    pass(REST);
    let [pss, peak] = daemon.memory()?;
    let added = pss - idle;
    rounds.note(Measure::Cache, "start to synced", "s", ready.as_secs_f64());
    span.used(rounds, Measure::Cache, &daemon)?;
    let mut note = |name: &str, unit, value| rounds.note(Measure::Cache, name, unit, value);
    note("Pss", "MiB", pss);
    note("Pss above idle", "MiB", added);
    note("one in memory", "KiB", added * KIB_PER_MIB / number(count));
    note("peak RSS", "MiB", peak);
    note("peak RSS / Pss", "", peak / pss);
    span.requests(rounds, Measure::Cache)?;
    daemon.stop()?;
    for (name, manifest) in [("packed", packed()?), ("metadata only", of_metadata()?)] {
        kept(rounds, stage, name, &manifest, idle)?;
    }
    Ok(())
}

/// Measures the same with a manifest that has less kept in memory.
fn kept(rounds: &mut Rounds<'_>, stage: &Stage, name: &str, manifest: &str, idle: f64) -> Result<()> {
    rounds.tell(&format!("cache: start, {name}"));
    let manifest = stage.manifest("kept", manifest)?;
    let before = stage.server_cpu()?;
    let mut daemon = stage.start(&manifest, WRONG)?;
    let ready = daemon.until_ready()?;
    pass(REST);
    let [pss, peak] = daemon.memory()?;
    let (cpu, server) = (daemon.cpu()?, stage.server_cpu()? - before);
    let (added, count) = (pss - idle, rounds.sizes.deployments);
    let mut note = |what: &str, unit, value| rounds.note(Measure::Cache, format!("{name}: {what}"), unit, value);
    note("start to synced", "s", ready.as_secs_f64());
    note("operator CPU", "s", cpu);
    note("server CPU", "s", server);
    note("Pss above idle", "MiB", added);
    note("one in memory", "KiB", added * KIB_PER_MIB / number(count));
    note("peak RSS", "MiB", peak);
    daemon.stop()
}

/// Returns the sample's manifest with a source that shares the watch of Deployments and has them packed.
fn packed() -> Result<String> {
    Subject::manifest(
        SAMPLE,
        &[],
        &["sources: { all: { informer: { apiVersion: apps/v1, kind: Deployment, packed: true } } }"],
    )
}

/// Returns one without dependents, whose source keeps only the metadata of Deployments.
fn of_metadata() -> Result<String> {
    let source = "sources: { all: { informer: { apiVersion: apps/v1, kind: Deployment, keep: metadata } } }";
    let manifest = Subject::manifest(SAMPLE, &[], &[source])?;
    let (manifest, _) = manifest.split_once("      workflow:").context("the sample's manifest has another shape")?;
    Ok(manifest.to_owned())
}

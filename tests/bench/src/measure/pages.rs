//! Measures the life of many pages: created, left alone, drifted, changed, and looked at again and again.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use cluster::{Api, Call};
use serde_json::{Value, json};

use super::{Measure, Rounds, Span, number};
use crate::clock::{Patience, pass};
use crate::daemon::Daemon;
use crate::load;
use crate::objects::{CONFIG_MAPS_PATH, PAGES, PAGES_PATH, html, page, page_name};
use crate::stage::{Stage, WRONG};
use crate::subject::{SAMPLE, Subject};

/// How often the daemon's own count is read at a start, which lasts for tenths of a second, and at most for how long.
pub(super) const START: Patience = Patience::new(10, 60);
/// How often it is read while the daemon works for seconds, and how often all objects are listed: both cost something.
const WORK: Patience = Patience::new(100, 180);
/// How long pages are looked at again and again.
const NOOP: Duration = Duration::from_secs(20);
/// How long it runs before that counts.
const WARM: Duration = Duration::from_secs(2);
/// What makes a daemon look at pages again and again.
pub(super) const AGAIN: [&str; 2] = ["maxReconciliationInterval: 1ms", "rateLimit: none"];
pub(super) const MICRO: f64 = 1e6;

/// A daemon that looks at pages again and again, and what that took in a while.
pub(super) struct Again<'a> {
    pub(super) daemon: Daemon,
    /// The while.
    pub(super) span: Span<'a>,
    pub(super) seconds: f64,
    pub(super) runs: f64,
    /// CPU time of the daemon, and the time from the beginning of each run to its end, all together; in seconds.
    pub(super) cpu: f64,
    pub(super) time: f64,
}

/// Takes the measures that have to do with pages. Each builds on the one before, so those before are taken as well.
pub(super) fn measure(rounds: &mut Rounds<'_>, stage: &Stage) -> Result<()> {
    use Measure::{Change, Drift, Noop, Restart};
    stage.namespace(PAGES)?;
    let daemon = stage.ready("pages", &Subject::sample()?)?;
    create(rounds, stage, &daemon)?;
    daemon.stop()?;
    if rounds.wants(&[Restart, Drift, Change]) {
        let daemon = restart(rounds, stage)?;
        if rounds.wants(&[Drift]) {
            drift(rounds, stage, &daemon)?;
        }
        if rounds.wants(&[Change]) {
            change(rounds, stage, &daemon)?;
        }
        daemon.stop()?;
    }
    if rounds.wants(&[Noop]) {
        noop(rounds, stage)?;
    }
    Ok(())
}

fn create(rounds: &mut Rounds<'_>, stage: &Stage, daemon: &Daemon) -> Result<()> {
    rounds.tell("create");
    let count = rounds.sizes.pages;
    let span = Span::begin(stage, Some(daemon))?;
    load::create(stage, PAGES_PATH, count, |number| page(number, 1))?;
    let created = span.watch.spent();
    let done = until_good(stage, &span, daemon, count)?;
    rounds.note(Measure::Create, "until all are good", "s", done);
    rounds.note(Measure::Create, "the creation itself", "s", created.as_secs_f64());
    span.end(rounds, Measure::Create, daemon)
}

/// Leaves the daemon running.
fn restart(rounds: &mut Rounds<'_>, stage: &Stage) -> Result<Daemon> {
    rounds.tell("restart");
    let manifest = stage.manifest("pages", &Subject::sample()?)?;
    let span = Span::begin(stage, None)?;
    let mut daemon = stage.start(&manifest, WRONG)?;
    let ready = daemon.until_ready()?;
    until_runs(START, &daemon, number(rounds.sizes.pages))?;
    let done = daemon.started.spent();
    rounds.note(Measure::Restart, "until all are reconciled", "s", done.as_secs_f64());
    rounds.note(Measure::Restart, "start to ready", "s", ready.as_secs_f64());
    span.end(rounds, Measure::Restart, &daemon)?;
    Ok(daemon)
}

fn drift(rounds: &mut Rounds<'_>, stage: &Stage, daemon: &Daemon) -> Result<()> {
    rounds.tell("drift");
    let (count, api) = (rounds.sizes.pages, stage.cluster.api());
    let span = Span::begin(stage, Some(daemon))?;
    // A deletion of a collection is what a deletion by its path is, when the path is that of a kind.
    api.call(CONFIG_MAPS_PATH, Call::Delete)?;
    let deleted = span.watch.spent();
    let done = WORK.until("the config maps to be back", || {
        let there = count_of(api, CONFIG_MAPS_PATH)?;
        Ok((there == count).then(|| span.watch.spent()))
    })?;
    rounds.note(Measure::Drift, "until all are back", "s", done.as_secs_f64());
    rounds.note(Measure::Drift, "the deletion itself", "s", deleted.as_secs_f64());
    span.end(rounds, Measure::Drift, daemon)
}

fn change(rounds: &mut Rounds<'_>, stage: &Stage, daemon: &Daemon) -> Result<()> {
    rounds.tell("change");
    let count = rounds.sizes.pages;
    let span = Span::begin(stage, Some(daemon))?;
    load::pace(stage, count, Duration::ZERO, &AtomicBool::new(false), |api, number| {
        let path = format!("{}/{}", PAGES_PATH, page_name(number));
        api.merge(&path, &json!({ "spec": { "html": html(number, 2) } }))?;
        Ok(())
    })?;
    let changed = span.watch.spent();
    until_good(stage, &span, daemon, count)?;
    let wanted: BTreeMap<String, String> =
        (0..count).map(|number| (format!("{}-html", page_name(number)), html(number, 2))).collect();
    let done = until_all(stage, &span, CONFIG_MAPS_PATH, count, |map| {
        let name = map.pointer("/metadata/name").and_then(Value::as_str);
        let text = map.pointer("/data/index.html").and_then(Value::as_str);
        name.and_then(|name| wanted.get(name)).is_some_and(|wanted| Some(wanted.as_str()) == text)
    })?;
    rounds.note(Measure::Change, "until all are as wanted", "s", done);
    rounds.note(Measure::Change, "the change itself", "s", changed.as_secs_f64());
    span.end(rounds, Measure::Change, daemon)
}

fn noop(rounds: &mut Rounds<'_>, stage: &Stage) -> Result<()> {
    rounds.tell("noop");
    let manifest = Subject::manifest(SAMPLE, &[], &AGAIN)?;
    let Again { daemon, span, seconds, runs, cpu, .. } = again(stage, "noop", &manifest, rounds.sizes.pages, NOOP)?;
    span.used(rounds, Measure::Noop, &daemon)?;
    let [pss, peak] = daemon.memory()?;
    for (name, unit, value) in [
        ("reconciles a second", "", runs / seconds),
        ("CPU of a reconcile", "µs", cpu * MICRO / runs.max(1.0)),
        ("cores used", "", cpu / seconds),
        ("Pss", "MiB", pss),
        ("peak RSS", "MiB", peak),
    ] {
        rounds.note(Measure::Noop, name, unit, value);
    }
    span.requests(rounds, Measure::Noop)?;
    daemon.stop()
}

/// Starts a daemon with a manifest that has [`AGAIN`], and measures for a while, once it is warm.
pub(super) fn again<'a>(
    stage: &'a Stage,
    name: &str,
    manifest: &str,
    pages: usize,
    time: Duration,
) -> Result<Again<'a>> {
    let daemon = stage.ready(name, manifest)?;
    until_runs(WORK, &daemon, number(pages))?;
    pass(WARM);
    let span = Span::begin(stage, Some(&daemon))?;
    let used =
        || Ok::<_, Error>((daemon.cpu()?, daemon.metric("capstan_reconciliations_execution_duration_seconds_sum")?));
    let before = used()?;
    pass(time);
    let (runs, after, seconds) = (span.runs(&daemon)?, used()?, span.watch.spent().as_secs_f64());
    Ok(Again { span, seconds, runs, cpu: after.0 - before.0, time: after.1 - before.1, daemon })
}

/// Waits until the daemon has ended so many runs well.
pub(super) fn until_runs(patience: Patience, daemon: &Daemon, count: f64) -> Result<()> {
    let reconciled =
        patience.until("each page to be reconciled", || Ok((daemon.runs("success")? >= count).then_some(())));
    reconciled.with_context(|| daemon.tail())
}

/// Waits until so many pages are published as they are now. Returns when the list was asked for that showed it.
pub(super) fn until_good(stage: &Stage, span: &Span<'_>, daemon: &Daemon, count: usize) -> Result<f64> {
    until_runs(WORK, daemon, span.runs + number(count))?;
    until_all(stage, span, PAGES_PATH, count, is_good)
}

/// Waits until there are so many objects and all are as `wanted` says. Returns when the list was asked for that showed it.
fn until_all(stage: &Stage, span: &Span<'_>, path: &str, count: usize, wanted: impl Fn(&Value) -> bool) -> Result<f64> {
    WORK.until("all objects to be as wanted", || {
        let asked = span.watch.spent();
        let objects = stage.list(path)?;
        let all = objects.len() == count && objects.iter().all(&wanted);
        Ok(all.then_some(asked.as_secs_f64()))
    })
}

/// Whether a page's status says that it is published, as its spec is now.
fn is_good(page: &Value) -> bool {
    let seen = page.pointer("/status/observedGeneration");
    let good = page.pointer("/status/areWeGood") == Some(&Value::Bool(true));
    good && seen.is_some() && seen == page.pointer("/metadata/generation")
}

/// Counts the objects of a kind, of which only one is sent.
fn count_of(api: &Api, path: &str) -> Result<usize> {
    let list = api.get(&format!("{path}?limit=1"))?;
    let items = list.get("items").and_then(Value::as_array).context("a list has items")?;
    let rest = list.pointer("/metadata/remainingItemCount").and_then(Value::as_u64);
    Ok(items.len() + usize::try_from(rest.unwrap_or_default())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_good_when_its_status_is_about_its_newest_spec() {
        let page = |good: bool, seen: Option<u64>| json!({ "metadata": { "generation": 2 }, "status": { "areWeGood": good, "observedGeneration": seen } });
        let pages = [page(true, Some(2)), page(true, Some(1)), page(false, Some(2)), page(true, None), json!({})];
        assert_eq!(pages.each_ref().map(is_good), [true, false, false, false, false]);
    }
}

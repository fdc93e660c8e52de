//! Measures the life of many pages: created, left alone, drifted, changed, and looked at again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use cluster::{Api, Call};
use serde_json::{Value, json};

use super::{Measure, Round, Span, number};
use crate::clock::{Patience, pass};
use crate::daemon::Daemon;
use crate::load;
use crate::objects::{PAGES, config_maps_path, html, page, page_name, pages_path};
use crate::stage::Stage;
use crate::subject::Subject;

/// How often the daemon's own count is read at a start, which lasts for tenths of a second, and at most for how long.
pub(super) const START: Patience = Patience::new(10, 60);
/// How often it is read while the daemon works for seconds: reading costs it something.
pub(super) const WORK: Patience = Patience::new(100, 180);
/// How often all objects are listed, which costs the server something.
const LIST: Patience = Patience::new(100, 180);
/// How long pages are looked at again and again.
const NOOP: Duration = Duration::from_secs(20);
/// How long it runs before that counts.
const WARM: Duration = Duration::from_secs(2);
/// Microseconds in a second.
const MICRO: f64 = 1e6;

/// Takes the measures that have to do with pages. Each builds on the one before, so those before are taken as well.
pub(super) fn measure(round: &mut Round<'_>, stage: &Stage) -> Result<()> {
    use Measure::{Change, Create, Drift, Noop, Restart};
    if !round.wants(&[Create, Restart, Drift, Change, Noop]) {
        return Ok(());
    }
    stage.namespace(PAGES)?;
    let manifest = stage.manifest("pages", &Subject::manifest()?)?;
    let mut daemon = Daemon::start(stage, &manifest)?;
    daemon.until_ready()?;
    create(round, stage, &daemon)?;
    daemon.stop()?;
    if round.wants(&[Restart, Drift, Change]) {
        let daemon = restart(round, stage, &manifest)?;
        if round.wants(&[Drift]) {
            drift(round, stage, &daemon)?;
        }
        if round.wants(&[Change]) {
            change(round, stage, &daemon)?;
        }
        daemon.stop()?;
    }
    if round.wants(&[Noop]) {
        noop(round, stage)?;
    }
    Ok(())
}

fn create(round: &mut Round<'_>, stage: &Stage, daemon: &Daemon) -> Result<()> {
    (round.tell)("create");
    let count = round.sizes.pages;
    let span = Span::begin(stage, Some(daemon))?;
    load::spread(stage, count, |api, number| {
        api.create(&pages_path(), &page(number, 1))?;
        Ok(())
    })?;
    let created = span.spent();
    until_reconciled(WORK, &span, daemon, count)?;
    let done = until_all(stage, &span, &pages_path(), count, is_good)?;
    round.note(Measure::Create, "until all are good", "s", done);
    round.note(Measure::Create, "the creation itself", "s", created.as_secs_f64());
    span.end(round, Measure::Create, daemon)
}

/// Leaves the daemon running.
fn restart(round: &mut Round<'_>, stage: &Stage, manifest: &std::path::Path) -> Result<Daemon> {
    (round.tell)("restart");
    let span = Span::begin(stage, None)?;
    let mut daemon = Daemon::start(stage, manifest)?;
    let ready = daemon.until_ready()?;
    until_reconciled(START, &span, &daemon, round.sizes.pages)?;
    let done = daemon.age();
    round.note(Measure::Restart, "until all are reconciled", "s", done.as_secs_f64());
    round.note(Measure::Restart, "start to ready", "s", ready.as_secs_f64());
    span.end(round, Measure::Restart, &daemon)?;
    Ok(daemon)
}

fn drift(round: &mut Round<'_>, stage: &Stage, daemon: &Daemon) -> Result<()> {
    (round.tell)("drift");
    let count = round.sizes.pages;
    let span = Span::begin(stage, Some(daemon))?;
    // A deletion of a collection is what a deletion by its path is, when the path is that of a kind.
    stage.api().call(&config_maps_path(), Call::Delete)?;
    let deleted = span.spent();
    let done = LIST.until("the config maps to be back", || {
        let there = count_of(stage.api(), &config_maps_path())?;
        Ok((there == count).then(|| span.spent()))
    })?;
    round.note(Measure::Drift, "until all are back", "s", done.as_secs_f64());
    round.note(Measure::Drift, "the deletion itself", "s", deleted.as_secs_f64());
    span.end(round, Measure::Drift, daemon)
}

fn change(round: &mut Round<'_>, stage: &Stage, daemon: &Daemon) -> Result<()> {
    (round.tell)("change");
    let count = round.sizes.pages;
    let span = Span::begin(stage, Some(daemon))?;
    load::spread(stage, count, |api, number| {
        let path = format!("{}/{}", pages_path(), page_name(number));
        api.merge(&path, &json!({ "spec": { "html": html(number, 2) } }))?;
        Ok(())
    })?;
    let changed = span.spent();
    until_reconciled(WORK, &span, daemon, count)?;
    until_all(stage, &span, &pages_path(), count, is_good)?;
    let wanted: BTreeMap<String, String> =
        (0..count).map(|number| (format!("{}-html", page_name(number)), html(number, 2))).collect();
    let done = until_all(stage, &span, &config_maps_path(), count, |map| {
        let name = map.pointer("/metadata/name").and_then(Value::as_str);
        let text = map.get("data").and_then(|data| data.get("index.html")).and_then(Value::as_str);
        name.and_then(|name| wanted.get(name)).is_some_and(|wanted| Some(wanted.as_str()) == text)
    })?;
    round.note(Measure::Change, "until all are as wanted", "s", done);
    round.note(Measure::Change, "the change itself", "s", changed.as_secs_f64());
    span.end(round, Measure::Change, daemon)
}

fn noop(round: &mut Round<'_>, stage: &Stage) -> Result<()> {
    (round.tell)("noop");
    let text = Subject::manifest_with("maxReconciliationInterval: 1ms\n      rateLimit: none")?;
    let manifest = stage.manifest("noop", &text)?;
    let whole = Span::begin(stage, None)?;
    let mut daemon = Daemon::start(stage, &manifest)?;
    daemon.until_ready()?;
    until_reconciled(START, &whole, &daemon, round.sizes.pages)?;
    pass(WARM);
    let span = Span::begin(stage, Some(&daemon))?;
    let cpu = daemon.cpu()?;
    pass(NOOP);
    let (reconciles, cpu, seconds) = (span.reconciles(&daemon)?, daemon.cpu()? - cpu, span.spent().as_secs_f64());
    span.used(round, Measure::Noop, &daemon)?;
    let mut note = |name: &str, unit, value| round.note(Measure::Noop, name, unit, value);
    note("reconciles a second", "", reconciles / seconds);
    note("CPU of a reconcile", "µs", cpu * MICRO / reconciles.max(1.0));
    note("cores used", "", cpu / seconds);
    note("Pss", "MiB", daemon.pss()?);
    note("peak RSS", "MiB", daemon.peak()?);
    span.requests(round, Measure::Noop)?;
    daemon.stop()
}

/// Waits until the daemon has ended as many runs well as there are pages.
pub(super) fn until_reconciled(patience: Patience, span: &Span<'_>, daemon: &Daemon, count: usize) -> Result<()> {
    let reconciled = patience.until("each page to be reconciled", || {
        let so_far = span.reconciles(daemon)?;
        Ok((so_far >= number(count)).then_some(()))
    });
    reconciled.with_context(|| daemon.tail())
}

/// Waits until there are so many objects and all are as `wanted` says. Returns when the list was asked for that showed it.
pub(super) fn until_all(
    stage: &Stage,
    span: &Span<'_>,
    path: &str,
    count: usize,
    wanted: impl Fn(&Value) -> bool,
) -> Result<f64> {
    LIST.until("all objects to be as wanted", || {
        let asked = span.spent();
        let objects = stage.list(path)?;
        let all = objects.len() == count && objects.iter().all(&wanted);
        Ok(all.then_some(asked.as_secs_f64()))
    })
}

/// Whether a page's status says that it is published, as its spec is now.
pub(super) fn is_good(page: &Value) -> bool {
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

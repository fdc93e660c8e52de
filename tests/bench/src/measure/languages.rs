//! Measures the sample in each language: how large it is, how long it takes to compile, and what a run of it costs.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::pages::{START, WORK, is_good, until_all, until_reconciled};
use super::{Measure, Round, Sizes, Span, number};
use crate::clock::pass;
use crate::daemon::Daemon;
use crate::load;
use crate::objects::{PAGES, page, pages_path};
use crate::stage::Stage;
use crate::subject::{Language, Subject};
use crate::usage;

/// How long the daemon is left alone before its memory is read.
const REST: Duration = Duration::from_secs(2);
/// How long pages are looked at again and again before that counts.
const WARM: Duration = Duration::from_secs(2);
/// How long it counts.
const NOOP: Duration = Duration::from_secs(10);
/// Microseconds in a second.
const MICRO: f64 = 1e6;

/// What the manifest says of instances.
const INSTANCES: [&str; 2] = ["fresh", "warm"];

/// Returns how many pages there are.
pub(super) fn pages(sizes: Sizes) -> usize {
    sizes.pages.div_ceil(2)
}

/// Takes the measure.
pub(super) fn measure(round: &mut Round<'_>, stage: &Stage) -> Result<()> {
    if !round.wants(&[Measure::Languages]) {
        return Ok(());
    }
    stage.namespace(PAGES)?;
    (round.tell)("languages: creating pages");
    create(round, stage)?;
    for language in Language::ALL {
        let file = round.subject.component_in(language);
        if !file.is_file() {
            let name = language.name();
            round
                .told
                .remark(format!("{name} is left out: there is no {}; `cargo xtask plugins` builds it", file.display()));
            continue;
        }
        let bytes = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        stage.replace(&component(language), &bytes)?;
        note(round, language, "component", "MiB", size(bytes.len()));
        compile(round, stage, language)?;
        for instances in INSTANCES {
            (round.tell)(&format!("languages: {}, {instances}", language.name()));
            memory(round, stage, language, instances)?;
            runs(round, stage, language, instances)?;
        }
    }
    Ok(())
}

/// Makes the pages and what depends on them, which looks the same in all languages.
fn create(round: &Round<'_>, stage: &Stage) -> Result<()> {
    let manifest = stage.manifest("pages", &Subject::manifest()?)?;
    let mut daemon = Daemon::start(stage, &manifest)?;
    daemon.until_ready()?;
    let (count, span) = (pages(round.sizes), Span::begin(stage, Some(&daemon))?);
    load::spread(stage, count, |api, number| {
        api.create(&pages_path(), &page(number, 1))?;
        Ok(())
    })?;
    until_reconciled(WORK, &span, &daemon, count)?;
    until_all(stage, &span, &pages_path(), count, is_good)?;
    daemon.stop()
}

/// Compiles the component, where no code is kept from before.
fn compile(round: &mut Round<'_>, stage: &Stage, language: Language) -> Result<()> {
    let manifest = manifest(stage, language, "instances: fresh", &[])?;
    stage.forget_code()?;
    let before = usage::children_cpu()?;
    let wall = stage.check(&manifest)?.as_secs_f64();
    let cpu = usage::children_cpu()? - before;
    note(round, language, "compile, wall time", "s", wall);
    note(round, language, "compile, CPU", "s", cpu);
    let again = stage.check(&manifest)?.as_secs_f64();
    note(round, language, "load compiled code, wall time", "s", again);
    Ok(())
}

/// Notes the memory of a daemon that has looked at all pages once, as many at a time as it does by itself.
fn memory(round: &mut Round<'_>, stage: &Stage, language: Language, instances: &str) -> Result<()> {
    let manifest = manifest(stage, language, &format!("instances: {instances}"), &[])?;
    let span = Span::begin(stage, None)?;
    let mut daemon = Daemon::start(stage, &manifest)?;
    daemon.until_ready()?;
    until_reconciled(START, &span, &daemon, pages(round.sizes))?;
    pass(REST);
    let mut note = |what: &str, value| {
        note(round, language, &format!("{instances}: {what}"), "MiB", value);
    };
    note("Pss, all pages seen", daemon.pss()?);
    note("peak RSS", daemon.peak()?);
    note("peak of an instance", daemon.instance_peak()?);
    daemon.stop()
}

/// Notes what a run costs that changes nothing, one after another.
fn runs(round: &mut Round<'_>, stage: &Stage, language: Language, instances: &str) -> Result<()> {
    let again = ["maxReconciliationInterval: 1ms", "rateLimit: none", "concurrency: 1"];
    let manifest = manifest(stage, language, &format!("instances: {instances}"), &again)?;
    let whole = Span::begin(stage, None)?;
    let mut daemon = Daemon::start(stage, &manifest)?;
    daemon.until_ready()?;
    until_reconciled(WORK, &whole, &daemon, pages(round.sizes))?;
    pass(WARM);
    let span = Span::begin(stage, Some(&daemon))?;
    let (cpu, time) = (daemon.cpu()?, daemon.time_of_runs()?);
    pass(NOOP);
    let runs = span.reconciles(&daemon)?.max(1.0);
    let (cpu, time) = (daemon.cpu()? - cpu, daemon.time_of_runs()? - time);
    let others = span.others(&daemon)?;
    let mut note = |what: &str, unit, value| {
        note(round, language, &format!("{instances}: {what}"), unit, value);
    };
    note("CPU of a run", "µs", cpu * MICRO / runs);
    note("wall time of a run", "µs", time * MICRO / runs);
    note("CPU of others", "s", others);
    let (writes, failed) = (span.writes()?, daemon.failures()?);
    if writes > 0.0 || failed > 0.0 {
        let name = language.name();
        round.told.remark(format!(
            "{name}, {instances}: not without effect, there were {writes} writes and {failed} failed runs"
        ));
    }
    daemon.stop()
}

fn manifest(stage: &Stage, language: Language, plugin: &str, controller: &[&str]) -> Result<std::path::PathBuf> {
    let text = Subject::manifest_for(&component(language), plugin, controller)?;
    stage.manifest(&format!("language-{}", language.name()), &text)
}

/// Returns the name of a language's component on the stage.
fn component(language: Language) -> String {
    format!("language-{}.wasm", language.name())
}

fn note(round: &mut Round<'_>, language: Language, what: &str, unit: &'static str, value: f64) {
    let name = format!("{}: {what}", language.name());
    round.note(Measure::Languages, name, unit, value);
}

/// Returns a size in MiB.
fn size(bytes: usize) -> f64 {
    number(bytes) / f64::from(1 << 20)
}

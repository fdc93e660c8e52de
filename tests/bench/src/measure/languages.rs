//! Measures the sample in each language: how large it is, how long it takes to compile, and what a run of it costs.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::pages::{AGAIN, Again, MICRO, START, again, until_good, until_runs};
use super::{Measure, Rounds, Sizes, Span, number};
use crate::clock::pass;
use crate::load;
use crate::objects::{PAGES, PAGES_PATH, page};
use crate::stage::Stage;
use crate::subject::{SAMPLE, Subject};
use crate::usage;

/// How long the daemon is left alone before its memory is read.
const REST: Duration = Duration::from_secs(2);
/// For how long runs count.
const NOOP: Duration = Duration::from_secs(10);
const MIB: f64 = 1_048_576.0;
const INSTANCES: [&str; 2] = ["fresh", "warm"];
/// The languages that the sample is written in, and its components in them. Only the one in Rust is always there.
const LANGUAGES: [(&str, &str); 4] = [
    ("Rust", SAMPLE),
    ("Python", "webpage-python.wasm"),
    ("JavaScript", "webpage-javascript.wasm"),
    ("Go", "webpage-go.wasm"),
];

struct Sample<'a> {
    language: &'static str,
    /// Its component on the stage.
    file: String,
    stage: &'a Stage,
}

pub(super) fn pages(sizes: Sizes) -> usize {
    sizes.pages.div_ceil(2)
}

pub(super) fn measure(rounds: &mut Rounds<'_>, stage: &Stage) -> Result<()> {
    stage.namespace(PAGES)?;
    rounds.tell("languages: creating pages");
    create(rounds, stage)?;
    for (language, name) in LANGUAGES {
        let Subject { component, plugins, .. } = rounds.subject;
        let file = if name == SAMPLE { component.clone() } else { plugins.join(name) };
        if !file.is_file() {
            let file = file.display();
            rounds.remark(format!("{language} is left out: there is no {file}; `cargo xtask plugins` builds it"));
            continue;
        }
        let bytes = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        let sample = Sample { language, file: format!("language-{language}.wasm"), stage };
        stage.replace(&sample.file, &bytes)?;
        sample.note(rounds, "component", "MiB", number(bytes.len()) / MIB);
        sample.compile(rounds)?;
        for instances in INSTANCES {
            rounds.tell(&format!("languages: {language}, {instances}"));
            sample.memory(rounds, instances)?;
            sample.runs(rounds, instances)?;
        }
    }
    Ok(())
}

/// Makes the pages and what depends on them, which looks the same in all languages.
fn create(rounds: &Rounds<'_>, stage: &Stage) -> Result<()> {
    let daemon = stage.ready("pages", &Subject::sample()?)?;
    let (count, span) = (pages(rounds.sizes), Span::begin(stage, Some(&daemon))?);
    load::create(stage, PAGES_PATH, count, |number| page(number, 1))?;
    until_good(stage, &span, &daemon, count)?;
    daemon.stop()
}

impl Sample<'_> {
    /// Compiles the component, where no code is kept from before.
    fn compile(&self, rounds: &mut Rounds<'_>) -> Result<()> {
        let manifest = self.stage.manifest("language", &self.manifest("fresh", &[])?)?;
        self.stage.forget_code()?;
        let before = usage::children_cpu()?;
        let wall = self.stage.check(&manifest)?.as_secs_f64();
        let cpu = usage::children_cpu()? - before;
        self.note(rounds, "compile, wall time", "s", wall);
        self.note(rounds, "compile, CPU", "s", cpu);
        let again = self.stage.check(&manifest)?.as_secs_f64();
        self.note(rounds, "load compiled code, wall time", "s", again);
        Ok(())
    }

    /// Notes the memory of a daemon that has looked at all pages once, as many at a time as it does by itself.
    fn memory(&self, rounds: &mut Rounds<'_>, instances: &str) -> Result<()> {
        let daemon = self.stage.ready("language", &self.manifest(instances, &[])?)?;
        until_runs(START, &daemon, number(pages(rounds.sizes)))?;
        pass(REST);
        let [pss, peak] = daemon.memory()?;
        let instance = daemon.metric("capstan_plugin_instance_memory_peak_bytes")? / MIB;
        for (what, value) in [("Pss, all pages seen", pss), ("peak RSS", peak), ("peak of an instance", instance)] {
            self.note(rounds, &format!("{instances}: {what}"), "MiB", value);
        }
        daemon.stop()
    }

    /// Notes what a run costs that changes nothing, one after another.
    fn runs(&self, rounds: &mut Rounds<'_>, instances: &str) -> Result<()> {
        let manifest = self.manifest(instances, &[&AGAIN[..], &["concurrency: 1"]].concat())?;
        let Again { daemon, span, runs, cpu, time, .. } =
            again(self.stage, "language", &manifest, pages(rounds.sizes), NOOP)?;
        let [_, _, others] = span.cpu(&daemon)?;
        for (what, unit, value) in [
            ("CPU of a run", "µs", cpu * MICRO / runs.max(1.0)),
            ("wall time of a run", "µs", time * MICRO / runs.max(1.0)),
            ("CPU of others", "s", others),
        ] {
            self.note(rounds, &format!("{instances}: {what}"), unit, value);
        }
        let (writes, failed) = (span.writes()?, daemon.runs("failure")?);
        if writes > 0.0 || failed > 0.0 {
            let name = format!("{}, {instances}", self.language);
            rounds.remark(format!("{name}: not without effect, there were {writes} writes and {failed} failed runs"));
        }
        daemon.stop()
    }

    fn manifest(&self, instances: &str, controller: &[&str]) -> Result<String> {
        Subject::manifest(&self.file, &[&format!("instances: {instances}")], controller)
    }

    fn note(&self, rounds: &mut Rounds<'_>, what: &str, unit: &'static str, value: f64) {
        rounds.note(Measure::Languages, format!("{}: {what}", self.language), unit, value);
    }
}

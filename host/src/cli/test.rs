//! `capstan test`: plays golden cases without a cluster, and compares what comes of them with what is expected.

mod case;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use capstan_core::guest::Guest;
use capstan_core::manifest::{Controller, Operator, TEMPLATES};
use capstan_core::room::Room;
use capstan_core::text;

use crate::cli::args::Test;
use crate::controller::rehearsal::{Scene, play};
use crate::operators::{self, Manifests};
use crate::plugin::Templates;
use case::{Case, Expected, folders};

/// How long a case may take in all: what it waits for never comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A controller that cases may be about.
struct Subject<'a> {
    operator: &'a Operator,
    spec: &'a Controller,
    guest: Arc<dyn Guest>,
}

/// What has become of a case.
enum Verdict {
    /// It is as expected; with what was written how often.
    Good(String),
    /// It was written anew.
    Blessed,
    /// It is not; the text shows how.
    Wrong(String),
}

/// Plays the cases, prints what has become of each, and exits with 1 if something is wrong.
///
/// # Errors
/// If there is no case, a manifest is wrong, or a component can't be used.
pub async fn run(args: &Test) -> anyhow::Result<ExitCode> {
    let Test { source, cases, bless, filter } = args;
    let folders = folders(cases, filter.as_deref().unwrap_or_default())?;
    let operators = operators::valid_with(&Manifests::new(&source.manifests, source.defaults.as_deref())?)?;
    let subjects = subjects(&operators, args).await?;
    let (mut wrong, total) = (0, folders.len());
    let mut out = std::io::stdout().lock();
    for folder in folders {
        let begun = Instant::now();
        let verdict =
            judge(&folder, &subjects, *bless).await.unwrap_or_else(|error| Verdict::Wrong(format!("{error:#}")));
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let took = format!("{} ms", begun.elapsed().as_millis());
        match verdict {
            Verdict::Good(what) => writeln!(out, "ok      {name:<24} {what}, {took}")?,
            Verdict::Blessed => writeln!(out, "written {name:<24} {took}")?,
            Verdict::Wrong(why) => {
                wrong += 1;
                writeln!(out, "wrong   {name:<24} {took}\n{}", text::lines(&why))?;
            }
        }
    }
    writeln!(out, "{total} cases, {wrong} wrong")?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Loads the components of all controllers.
async fn subjects<'a>(operators: &'a [Operator], args: &Test) -> anyhow::Result<Vec<Subject<'a>>> {
    let engine = operators::engine(operators)?;
    let cache = operators::code_cache(&args.source);
    let mut subjects = Vec::new();
    for operator in operators {
        let (loaded, failed) = operators::plugins(&engine, &cache, operator).await;
        if let Some((name, why)) = failed.first() {
            anyhow::bail!("{}: {why}", operator.origin.component(name));
        }
        for spec in operator.controllers.values() {
            let guest: Arc<dyn Guest> = match loaded.get(&spec.plugin) {
                Some(plugin) => Arc::new(plugin.clone()),
                None => Arc::new(Templates::new(&operator.name, TEMPLATES, &Room::default())),
            };
            subjects.push(Subject { operator, spec, guest });
        }
    }
    Ok(subjects)
}

/// Plays a case, and says what has become of it.
async fn judge(folder: &Path, subjects: &[Subject<'_>], bless: bool) -> anyhow::Result<Verdict> {
    let case = Case::read(folder)?;
    let expected = if bless { None } else { case.expected()? };
    let subject = subjects.iter().find(|subject| subject.spec.primary == case.kind);
    let Subject { operator, spec, guest } = subject.with_context(|| {
        let kinds: Vec<_> = subjects.iter().map(|subject| subject.spec.primary.to_string()).collect();
        format!(
            "{}:1: no controller has primaries of {}; expected {}",
            case.primary_file().display(),
            case.kind,
            kinds.join(" or ")
        )
    })?;
    let scene =
        Scene { operator, spec, guest: Arc::clone(guest), primary: case.primary.clone(), world: case.world.clone() };
    let played = tokio::time::timeout(PATIENCE, play(scene)).await.context("it waits for what never comes")??;
    let found = Expected::of(played);
    if bless {
        let file = case.expected_file();
        fs::write(&file, found.text()?).with_context(|| format!("write {}", file.display()))?;
        return Ok(Verdict::Blessed);
    }
    Ok(match expected {
        Some(expected) if expected == found => Verdict::Good(found.sum()),
        Some(expected) => {
            let difference = difference(&expected.text()?, &found.text()?);
            Verdict::Wrong(format!("{}: expected (-), and found (+)\n{difference}", case.expected_file().display()))
        }
        None => {
            let file = case.expected_file();
            Verdict::Wrong(format!(
                "{} is missing: --bless writes it\n{}",
                file.display(),
                difference("", &found.text()?)
            ))
        }
    })
}

/// Returns the lines of two texts, those that are only in one of them marked, with a few of both around them.
fn difference(expected: &str, found: &str) -> String {
    similar::TextDiff::from_lines(expected, found).unified_diff().context_radius(3).to_string()
}

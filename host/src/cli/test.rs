//! `capstan test`: plays golden cases without a cluster, and compares what comes of them with what is expected.

mod case;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use capstan_core::guest::Guest;
use capstan_core::manifest::{Controller, Operator, TEMPLATES};
use capstan_core::room::Room;
use capstan_core::text;
use tokio::time::Instant;

use super::beside;
use crate::cli::args::Test;
use crate::controller::rehearsal::{Scene, play};
use crate::operators::{self, Manifests};
use crate::plugin::Templates;
use case::{Case, Expected, folders};

/// How long a case may take in all: what it waits for never comes.
const PATIENCE: Duration = Duration::from_mins(1);

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
    let engine = operators::engine(operators)?.rehearsing();
    let cache = operators::code_cache(&args.source);
    let mut subjects = Vec::new();
    for operator in operators {
        let (loaded, failed) = operators::plugins(&engine, &cache, operator, &BTreeMap::new()).await;
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
        beside::write(&file, found.text()?.as_bytes())?;
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use clap::Parser;

    use super::*;
    use crate::cli::args::{Cli, Command};

    const MANIFEST: &str = "\
apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: { name: pages }
spec:
  controllers:
    pages:
      primary: { apiVersion: sample.dev/v1, kind: Page }
      statusConditions: standard
      workflow:
        dependents:
          map:
            apiVersion: v1
            kind: ConfigMap
            serverSideApply: true
            desired: { template: { metadata: { name: \"${primary.metadata.name}\" }, data: { text: \"${primary.spec.text}\" } } }
";
    const PRIMARY: &str = "apiVersion: sample.dev/v1\nkind: Page\nmetadata: { name: a }\nspec: { text: hello }\n";

    /// A folder with a manifest and one case.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new(files: &[(&str, &str)]) -> Self {
            let place = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(place.case()).unwrap();
            fs::write(place.0.path().join("m.yaml"), MANIFEST).unwrap();
            for (name, text) in files {
                fs::write(place.case().join(name), text).unwrap();
            }
            place
        }

        fn case(&self) -> PathBuf {
            self.0.path().join("cases/a")
        }

        /// Plays the case, and returns what is wrong; nothing if it is as expected.
        async fn play(&self, bless: bool) -> String {
            let manifest = self.0.path().join("m.yaml");
            let line = ["capstan", "test", "-m", manifest.to_str().unwrap()];
            let Command::Test(args) = Cli::parse_from(line).command else { panic!("another command") };
            let operators = operators::valid(&args.source.manifests).unwrap();
            let subjects = subjects(&operators, &args).await.unwrap();
            match judge(&self.case(), &subjects, bless).await {
                Ok(Verdict::Good(_) | Verdict::Blessed) => String::new(),
                Ok(Verdict::Wrong(why)) => why,
                Err(error) => format!("{error:#}"),
            }
        }

        fn expected(&self) -> String {
            fs::read_to_string(self.case().join("expected.yaml")).unwrap()
        }
    }

    #[tokio::test]
    async fn a_case_is_as_it_was_written_until_something_differs() {
        let place = Place::new(&[("primary.yaml", PRIMARY)]);
        let missing = place.play(false).await;
        assert!(missing.contains("expected.yaml is missing: --bless writes it"), "{missing}");
        assert_eq!(place.play(true).await, "");
        let expected = place.expected();
        for part in ["runs: 2", "ended: succeeded", "write: apply v1 ConfigMap default/a", "text: hello", "type: Ready"]
        {
            assert!(expected.contains(part), "{part}: {expected}");
        }
        assert_eq!(place.play(false).await, "");
        fs::write(place.case().join("primary.yaml"), PRIMARY.replace("hello", "bye")).unwrap();
        let wrong = place.play(false).await;
        assert!(wrong.contains("-      text: hello\n+      text: bye\n"), "{wrong}");
    }

    #[tokio::test]
    async fn what_is_expected_is_written_into_the_case_wherever_a_link_leads() {
        let place = Place::new(&[("primary.yaml", PRIMARY)]);
        let elsewhere = place.0.path().join("elsewhere");
        fs::write(&elsewhere, "another's").unwrap();
        std::os::unix::fs::symlink(&elsewhere, place.case().join("expected.yaml")).unwrap();
        assert_eq!(place.play(true).await, "");
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "another's");
        assert!(place.expected().contains("runs: 2"));
    }

    #[tokio::test]
    async fn what_the_primary_owns_counts_as_made_by_the_operator() {
        const OWNED: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  ownerReferences: [{ apiVersion: sample.dev/v1, kind: Page, name: a, uid: '' }]\ndata: { text: hello }\n";
        let foreign = OWNED.replace("name: a, uid", "name: b, uid");
        for (world, ended) in [(OWNED, "ended: succeeded"), (&*foreign, "ended: 'failed: ")] {
            let place = Place::new(&[("primary.yaml", PRIMARY), ("world.yaml", world)]);
            assert_eq!(place.play(true).await, "");
            let expected = place.expected();
            assert!(expected.contains(ended) || expected.contains(&ended.replace('\'', "\"")), "{expected}");
            assert!(world != OWNED || !expected.contains("apply v1 ConfigMap"), "{expected}");
        }
    }

    #[tokio::test]
    async fn what_is_wrong_in_a_case_is_told_at_file_and_line() {
        let expected = "contract: \"0.0.1\"\nruns: 2\nended: succeeded\n";
        let typo = expected.replace("runs", "rnus");
        let table: [(&[(&str, &str)], &str); 5] = [
            (
                &[("primary.yaml", PRIMARY), ("wrold.yaml", "")],
                "wrold.yaml: a case has no such file; expected primary.yaml, world.yaml, expected.yaml",
            ),
            (
                &[("primary.yaml", PRIMARY), ("expected.yaml", expected)],
                "expected.yaml:1: contract: found 0.0.1; this daemon has ",
            ),
            (&[("primary.yaml", PRIMARY), ("expected.yaml", &typo)], "expected.yaml:2:"),
            (
                &[("primary.yaml", "apiVersion: sample.dev/v1\nkind: Paeg\nmetadata: { name: a }\n")],
                "primary.yaml:1: no controller has primaries of sample.dev/v1 Paeg; expected sample.dev/v1 Page",
            ),
            (
                &[("primary.yaml", "apiVersion: sample.dev/v1\nmetadata: { name: a }\n")],
                "primary.yaml:1: the field `kind` is missing",
            ),
        ];
        for (files, expected) in table {
            let said = Place::new(files).play(false).await;
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }
}

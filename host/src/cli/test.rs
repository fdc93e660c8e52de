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
use capstan_core::schema::Definition;
use capstan_core::text;
use tokio::time::Instant;

use super::beside;
use crate::cli::args::Test;
use crate::cli::dev::project;
use crate::controller::rehearsal::{Scene, play};
use crate::operators::{self, Manifests};
use crate::plugin::{Outside, Templates};
pub(super) use case::FILES as FILES_OF_CASES;
use case::{Case, Expected, folders};

/// How long a case may take in all: what it waits for never comes.
const PATIENCE: Duration = Duration::from_mins(1);

/// A controller that cases may be about.
struct Subject<'a> {
    operator: &'a Operator,
    spec: &'a Controller,
    guest: Arc<dyn Guest>,
    /// The kinds that are defined beside the manifest.
    definitions: Arc<[Definition]>,
    /// Where its component gets when it asks for what is outside: nowhere.
    outside: Outside,
}

/// A case that was played.
struct Judged {
    verdict: Verdict,
    /// What else there is to know of it, in lines.
    notes: Vec<String>,
}

/// What has become of a case.
enum Verdict {
    /// It is as expected; with what was written how often.
    Good(String),
    /// It was written anew; with how it ended.
    Blessed(String),
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
    let (mut wrong, mut failing, total) = (0, 0, folders.len());
    let mut out = std::io::stdout().lock();
    for folder in folders {
        let begun = Instant::now();
        let Judged { verdict, notes } = judge(&folder, &subjects, *bless)
            .await
            .unwrap_or_else(|error| Judged { verdict: Verdict::Wrong(format!("{error:#}")), notes: vec![] });
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let took = format!("{} ms", begun.elapsed().as_millis());
        match verdict {
            Verdict::Good(what) => writeln!(out, "ok      {name:<24} {what}, {took}")?,
            Verdict::Blessed(ended) => {
                failing += usize::from(!ended.starts_with("succeeded"));
                writeln!(out, "written {name:<24} {}, {took}", text::said(&ended))?;
            }
            Verdict::Wrong(why) => {
                wrong += 1;
                writeln!(out, "wrong   {name:<24} {took}\n{}", text::lines(&why))?;
            }
        }
        for note in notes {
            writeln!(out, "        {}", text::said(&note))?;
        }
    }
    let failing = if failing == 0 { String::new() } else { format!(", {failing} written whose runs fail") };
    writeln!(out, "{total} cases, {wrong} wrong{failing}")?;
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
        let definitions: Arc<[_]> = project::definitions_in(project::folder_of(operator.origin.file()))?.into();
        for spec in operator.controllers.values() {
            let guest: Arc<dyn Guest> = match loaded.get(&spec.plugin) {
                Some(plugin) => Arc::new(plugin.clone()),
                None => Arc::new(Templates::new(&operator.name, TEMPLATES, &Room::default())),
            };
            let (definitions, outside) = (Arc::clone(&definitions), engine.outside().clone());
            subjects.push(Subject { operator, spec, guest, definitions, outside });
        }
    }
    Ok(subjects)
}

/// Plays a case, and says what has become of it.
async fn judge(folder: &Path, subjects: &[Subject<'_>], bless: bool) -> anyhow::Result<Judged> {
    let case = Case::read(folder)?;
    let expected = if bless { None } else { case.expected()? };
    let subject = subjects.iter().find(|subject| subject.spec.primary == case.kind);
    let Subject { operator, spec, guest, definitions, outside } = subject.with_context(|| {
        let kinds: Vec<_> = subjects.iter().map(|subject| subject.spec.primary.to_string()).collect();
        format!(
            "{}:1: no controller has primaries of {}; expected {}",
            case.primary_file().display(),
            case.kind,
            kinds.join(" or ")
        )
    })?;
    case.check_kinds(operator, spec)?;
    case.check(definitions)?;
    let scene = Scene {
        operator,
        spec,
        guest: Arc::clone(guest),
        primary: case.primary.clone(),
        world: case.world.clone(),
        definitions: Arc::clone(definitions),
    };
    case.check_finalizers(&scene)?;
    let played = tokio::time::timeout(PATIENCE, play(scene)).await;
    let asked = outside.asked();
    let mut played = played.context("it waits for what never comes")??;
    let mut notes = std::mem::take(&mut played.notes);
    notes.extend(asked.iter().map(|asked| unasked(asked)));
    let found = Expected::of(played);
    Ok(Judged { verdict: verdict(&case, expected, found, bless)?, notes })
}

/// Says that what a component has asked for was not reached.
fn unasked(asked: &str) -> String {
    format!("the component asked for {asked}, and was refused: nothing outside is asked in golden cases")
}

/// Compares what has come of a case with what is expected, or writes that.
fn verdict(case: &Case, expected: Option<Expected>, found: Expected, bless: bool) -> anyhow::Result<Verdict> {
    if bless {
        let file = case.expected_file();
        beside::write(&file, found.text()?.as_bytes())?;
        return Ok(Verdict::Blessed(found.ended));
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

    use capstan_core::guest::{
        Answer, Call, Context, Failure, Interface, PrimaryUpdate, Session, UpdateControl, WriteMode, WriteOptions,
        WriteRequest, WriteVerb,
    };
    use capstan_core::object::Gvk;
    use clap::Parser;
    use futures::FutureExt;
    use futures::future::BoxFuture;

    use super::*;
    use crate::cli::args::{Cli, Command};
    use crate::plugin::CONTRACT;

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

    const ASKING: &str = "\
apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: { name: pages }
spec:
  plugins: { p: { component: { path: p.wasm } } }
  controllers:
    pages:
      plugin: p
      primary: { apiVersion: sample.dev/v1, kind: Page }
      sources: { switches: { informer: { apiVersion: v1, kind: Secret, mapper: { export: killed } } } }
";

    /// A component that finds everything as it should be.
    struct Content;

    impl Guest for Content {
        fn open(&self, _: Arc<dyn Context>) -> Box<dyn Session> {
            Box::new(Self)
        }

        fn open_nested(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
            self.open(run)
        }

        fn exports(&self, interface: Interface) -> bool {
            interface == Interface::Reconciler
        }
    }

    impl Session for Content {
        fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<Answer, Failure>> {
            let nothing = UpdateControl { update: PrimaryUpdate::Nothing, reschedule: None };
            std::future::ready(Ok(Answer::Reconcile(nothing))).boxed()
        }
    }

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
            match self.judged(bless).await.map(|judged| judged.verdict) {
                Ok(Verdict::Good(_) | Verdict::Blessed(_)) => String::new(),
                Ok(Verdict::Wrong(why)) => why,
                Err(error) => format!("{error:#}"),
            }
        }

        async fn judged(&self, bless: bool) -> anyhow::Result<Judged> {
            let manifest = self.0.path().join("m.yaml");
            let line = ["capstan", "test", "-m", manifest.to_str().unwrap()];
            let Command::Test(args) = Cli::parse_from(line).command else { panic!("another command") };
            let operators = operators::valid(&args.source.manifests).unwrap();
            let subjects = subjects(&operators, &args).await.unwrap();
            judge(&self.case(), &subjects, bless).await
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

    const TEAMS: &str = "\
apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: { name: teams }
spec:
  controllers:
    teams:
      primary: { apiVersion: sample.dev/v1, kind: Team }
      statusConditions: standard
      workflow:
        dependents:
          namespace:
            apiVersion: v1
            kind: Namespace
            serverSideApply: true
            desired: { template: { metadata: { name: \"team-${primary.metadata.name}\", labels: { team: \"${primary.metadata.name}\" } } } }
            readyPostcondition: { cel: dependent != null }
          quota:
            apiVersion: v1
            kind: ResourceQuota
            serverSideApply: true
            dependsOn: [namespace]
            desired: { template: { metadata: { name: pods, namespace: \"team-${primary.metadata.name}\" }, spec: { hard: { pods: \"4\" } } } }
";
    const TEAM: &str = "apiVersion: sample.dev/v1\nkind: Team\nmetadata: { name: blue }\n";
    const TEAM_CRD: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: teams.sample.dev }
spec:
  group: sample.dev
  scope: Cluster
  names: { kind: Team, plural: teams }
  versions: [{ name: v1, served: true, storage: true, schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } } }]
";

    /// A folder with the operator of teams, its definition under this name, and one case.
    fn teams(definition: &str, files: &[(&str, &str)]) -> Place {
        let place = Place::new(files);
        fs::write(place.0.path().join("m.yaml"), TEAMS).unwrap();
        fs::write(place.0.path().join(definition), TEAM_CRD).unwrap();
        place
    }

    #[tokio::test]
    async fn a_kind_lives_where_the_definition_beside_the_manifest_says() {
        let empty = TEAM.replace("name: blue", "name: blue, namespace: ''");
        for (definition, primary) in [("crd.yaml", TEAM), ("teams.yaml", TEAM), ("crd.yaml", &*empty)] {
            let place = teams(definition, &[("primary.yaml", primary)]);
            if definition != "crd.yaml" {
                fs::write(place.0.path().join("dev.yaml"), format!("crds: [{definition}]\n")).unwrap();
            }
            assert_eq!(place.play(true).await, "");
            let expected = place.expected();
            for part in [
                "ended: succeeded",
                "write: apply v1 Namespace team-blue",
                "write: apply v1 ResourceQuota team-blue/pods",
            ] {
                assert!(expected.contains(part), "{part}: {expected}");
            }
            assert!(!expected.contains("namespace: null"), "{expected}");
        }
        let place = teams("crd.yaml", &[("primary.yaml", &TEAM.replace("name: blue", "name: blue, namespace: a"))]);
        let said = place.play(false).await;
        assert!(said.contains("found metadata.namespace; its kind lives in no namespace: leave it out"), "{said}");
    }

    const GATEWAYS: &str = "\
apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: { name: gateways }
spec:
  controllers:
    gateways:
      primary: { apiVersion: sample.dev/v1, kind: Gateau }
      finalizers: { formerly: [sample.dev/old] }
      workflow:
        dependents:
          map:
            apiVersion: v1
            kind: ConfigMap
            garbageCollected: false
            desired: { template: { metadata: { name: a } } }
";

    #[tokio::test]
    async fn the_default_finalizer_is_by_the_plural_of_the_definition_and_a_deletion_without_it_is_an_error() {
        let crd = TEAM_CRD.replace("kind: Team, plural: teams", "kind: Gateau, plural: gateaux");
        let crd = crd.replace("scope: Cluster", "scope: Namespaced");
        let guess = "; its plural is guessed, as no definition beside the manifest says it";
        for (definition, finalizers, expected) in [
            (Some(&crd), "[gateaux.sample.dev/finalizer]", None),
            (Some(&crd), "[other.dev/a, gateaux.sample.dev/finalizer]", None),
            (Some(&crd), "[sample.dev/old, other.dev/a]", None),
            (None, "[gateaus.sample.dev/finalizer]", None),
            (
                Some(&crd),
                "[gateaus.sample.dev/finalizer]",
                Some("found \"gateaus.sample.dev/finalizer\" and a deletionTimestamp, so controller gateways would clean up nothing; expected gateaux.sample.dev/finalizer or sample.dev/old".to_owned()),
            ),
            (Some(&crd), "[]", Some("found none and a deletionTimestamp".to_owned())),
            (
                None,
                "[gateaux.sample.dev/finalizer]",
                Some(format!("expected gateaus.sample.dev/finalizer or sample.dev/old{guess}")),
            ),
        ] {
            let primary = format!(
                "apiVersion: sample.dev/v1\nkind: Gateau\nmetadata:\n  name: a\n  deletionTimestamp: 2000-01-01T00:00:00Z\n  finalizers: {finalizers}\n"
            );
            let place = Place::new(&[("primary.yaml", &primary)]);
            fs::write(place.0.path().join("m.yaml"), GATEWAYS).unwrap();
            if let Some(definition) = definition {
                fs::write(place.0.path().join("crd.yaml"), definition).unwrap();
            }
            let said = place.play(true).await;
            match expected {
                None => {
                    assert_eq!(said, "");
                    let expected = place.expected();
                    assert!(expected.contains("write: patch sample.dev/v1 Gateau default/a"), "{expected}");
                }
                Some(expected) => {
                    assert!(said.contains("primary.yaml:6: metadata.finalizers: ") && said.contains(&expected), "{said}");
                }
            }
        }
    }

    #[tokio::test]
    async fn an_object_with_the_mark_of_a_dependent_that_its_source_does_not_find_is_told() {
        let found = ", capstan.dev/primary-name: a, capstan.dev/primary-namespace: default, capstan.dev/primary-type: sample.dev/v1/Gateau";
        let primary = "apiVersion: sample.dev/v1\nkind: Gateau\nmetadata: { name: a, deletionTimestamp: 2000-01-01T00:00:00Z, finalizers: [sample.dev/old] }\n";
        let mark = r#"{"operator":"gateways","controller":"gateways","dependent":"map","primary":{"apiVersion":"sample.dev/v1","kind":"Gateau","namespace":"default","name":"a","uid":"00000000-0000-0000-0000-000000000000"}}"#;
        for (more, told) in [("", true), (found, false)] {
            let world = format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: a, annotations: {{ capstan.dev/made-for: '{mark}'{more} }} }}\n"
            );
            let place = Place::new(&[("primary.yaml", primary), ("world.yaml", &world)]);
            fs::write(place.0.path().join("m.yaml"), GATEWAYS).unwrap();
            let notes = place.judged(true).await.unwrap().notes;
            let expected = "v1 ConfigMap default/a has the annotation capstan.dev/made-for of dependent map, which does not find it, and leaves it alone: it is found by the annotations capstan.dev/primary-name, capstan.dev/primary-namespace, capstan.dev/primary-type";
            assert_eq!(notes, if told { vec![expected.to_owned()] } else { vec![] });
            assert_eq!(place.expected().contains("delete v1 ConfigMap default/a"), !told, "{}", place.expected());
        }
    }

    #[tokio::test]
    async fn a_kind_of_the_world_that_the_controller_could_not_look_at_is_told_at_its_line() {
        let world = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: b }\n---\napiVersion: v1\nkind: ConfigMpa\nmetadata: { name: c }\n";
        let place = Place::new(&[("primary.yaml", PRIMARY), ("world.yaml", world)]);
        let said = place.play(true).await;
        let expected = "world.yaml:6: kind: found v1 ConfigMpa, which neither controller pages has as primary, source or dependent nor `capabilities.kubernetes` of its plugin names; did you mean v1 ConfigMap?";
        assert!(said.ends_with(expected), "{said}");
        let place = Place::new(&[("primary.yaml", PRIMARY), ("world.yaml", &world.replace("ConfigMpa", "Service"))]);
        let said = place.play(true).await;
        assert!(said.ends_with("names; there is v1 ConfigMap, sample.dev/v1 Page"), "{said}");
    }

    #[tokio::test]
    async fn texts_that_look_like_other_values_are_the_same_after_a_case_is_written() {
        let place = Place::new(&[("primary.yaml", &PRIMARY.replace("hello", "'017'"))]);
        fs::write(
            place.0.path().join("m.yaml"),
            MANIFEST.replace(" data: {", " data: { a: \"y\", b: \"On\", c: \"1e3\", d: \"0o17\", e: \"~\","),
        )
        .unwrap();
        assert_eq!(place.play(true).await, "");
        assert_eq!(place.play(false).await, "", "{}", place.expected());
    }

    #[tokio::test]
    async fn an_owned_object_that_is_as_desired_is_not_written_whatever_else_a_server_has_said_of_it() {
        const OWNED: &str = "\
apiVersion: v1
kind: Namespace
metadata: { name: team-blue, labels: { team: blue }, generation: 3, ownerReferences: [{ apiVersion: sample.dev/v1, kind: Team, name: blue }] }
status: { phase: Active }
";
        // What it says itself of whose fields are holds.
        let managed = OWNED.replace(
            "generation: 3",
            "managedFields: [{ manager: teams, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, \
             fieldsV1: { 'f:metadata': { 'f:labels': { 'f:team': {} }, 'f:ownerReferences': { 'k:{\"uid\":\"00000000-0000-0000-0000-000000000000\"}': {} } } } }]",
        );
        let managed = format!("{managed}spec: {{ finalizers: [kubernetes] }}\n");
        for world in [OWNED, &managed] {
            let place = teams("crd.yaml", &[("primary.yaml", TEAM), ("world.yaml", world)]);
            assert_eq!(place.play(true).await, "");
            let expected = place.expected();
            assert!(expected.contains("ended: succeeded") && !expected.contains("apply v1 Namespace"), "{expected}");
            assert!(expected.contains("apply v1 ResourceQuota"), "{expected}");
        }
    }

    #[tokio::test]
    async fn objects_are_what_their_definition_makes_of_them_and_what_does_not_fit_is_told_at_its_line() {
        const PAGES: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: pages.sample.dev }
spec:
  group: sample.dev
  scope: Namespaced
  names: { kind: Page, plural: pages }
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: { type: object, properties: { text: { type: string, default: hello, maxLength: 9 } } }
            status: { type: object, x-kubernetes-preserve-unknown-fields: true }
";
        let page = |spec: &str| PRIMARY.replace("{ text: hello }", spec);
        let play = async |primary: &str, definition: &str| {
            let place = Place::new(&[("primary.yaml", primary)]);
            fs::write(place.0.path().join("crd.yaml"), definition).unwrap();
            (place.play(true).await, fs::read_to_string(place.case().join("expected.yaml")).unwrap_or_default())
        };
        let (said, expected) = play(&page("{}"), PAGES).await;
        assert!(
            said.is_empty() && expected.contains("text: hello") && expected.contains("ended: succeeded"),
            "{expected}"
        );
        for (spec, wrong) in [
            ("\n  text: 7", "primary.yaml:5: spec.text: found 7; expected a text"),
            (
                "\n  text: y",
                "primary.yaml:5: spec.text: found true; expected a text; `y` without quotes is true in YAML: quote it if it is a text",
            ),
            ("\n  txet: a", "primary.yaml:5: spec.txet: there is no such field; there is text"),
            (
                "{ text: much too long }",
                "primary.yaml:4: spec.text: found \"much too long\"; expected at most 9 characters",
            ),
        ] {
            let (said, expected) = play(&page(spec), PAGES).await;
            assert!(said.ends_with(wrong) && expected.is_empty(), "{said}");
        }
        // What the operator writes is held to it as well.
        let (_, expected) =
            play(&page("{}"), &PAGES.replace("status: { type: object,", "status: { type: string,")).await;
        assert!(expected.contains("refused: ") && expected.contains("expected a text"), "{expected}");
    }

    #[tokio::test]
    async fn how_a_case_has_ended_is_told_when_it_is_written() {
        let foreign = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: a, ownerReferences: [{ apiVersion: sample.dev/v1, kind: Page, name: b, uid: u }] }\n";
        let place = Place::new(&[("primary.yaml", PRIMARY), ("world.yaml", foreign)]);
        match place.judged(true).await.unwrap().verdict {
            Verdict::Blessed(ended) => assert!(ended.starts_with("failed: "), "{ended}"),
            Verdict::Good(what) | Verdict::Wrong(what) => panic!("{what}"),
        }
    }

    #[tokio::test]
    async fn a_source_whose_mapper_asks_the_component_shows_nothing_and_is_named_where_the_world_has_such_objects() {
        let operators = capstan_core::manifest::parse(ASKING, Path::new("m.yaml")).unwrap();
        let secret = Gvk::parse("v1", "Secret").unwrap();
        let world = |objects: &[&str]| -> Vec<(Gvk, serde_json::Value)> {
            let object = |name: &&str| (secret.clone(), serde_json::json!({ "metadata": { "name": name } }));
            objects.iter().map(object).collect()
        };
        for (objects, expected) in [(&[][..], None), (&["a"][..], Some("source switches asks the component"))] {
            let operator = operators.first().unwrap();
            let spec = operator.controllers.values().next().unwrap();
            let guest: Arc<dyn Guest> = Arc::new(Content);
            let primary = serde_json::json!({ "metadata": { "name": "a" }, "spec": { "text": "hello" } });
            let (world, definitions) = (world(objects), Arc::default());
            let played = play(Scene { operator, spec, guest, primary, world, definitions }).await;
            match (played, expected) {
                (Ok(played), None) => assert!(played.at_rest && played.failure.is_none(), "{played:?}"),
                (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{error}"),
                (played, _) => panic!("{objects:?}: {played:?}"),
            }
        }
    }

    /// A component that creates the same object in each run, and does not care what becomes of it.
    struct Careless(Arc<dyn Context>);

    impl Session for Careless {
        fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<Answer, Failure>> {
            let object =
                r#"{ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a", "namespace": "default" } }"#;
            let options = WriteOptions { mode: WriteMode::Plain, ..WriteOptions::default() };
            let request = WriteRequest { verb: WriteVerb::Create(object.to_owned()), options };
            let nothing = UpdateControl { update: PrimaryUpdate::Nothing, reschedule: None };
            async move {
                drop(self.0.write(request).await);
                Ok(Answer::Reconcile(nothing))
            }
            .boxed()
        }
    }

    /// A component that answers this status in each run.
    struct Stating(&'static str);

    impl Guest for Stating {
        fn open(&self, _: Arc<dyn Context>) -> Box<dyn Session> {
            Box::new(Self(self.0))
        }

        fn open_nested(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
            self.open(run)
        }

        fn exports(&self, interface: Interface) -> bool {
            interface == Interface::Reconciler
        }
    }

    impl Session for Stating {
        fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<Answer, Failure>> {
            let update = PrimaryUpdate::Status(self.0.to_owned());
            std::future::ready(Ok(Answer::Reconcile(UpdateControl { update, reschedule: None }))).boxed()
        }
    }

    #[tokio::test]
    async fn null_in_a_status_that_is_applied_is_refused_where_an_api_server_refuses_it() {
        const PAGES: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: pages.sample.dev }
spec:
  group: sample.dev
  scope: Namespaced
  names: { kind: Page, plural: pages }
  versions:
    - name: v1
      served: true
      storage: true
      subresources: { status: {} }
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: { type: object }
            status:
              type: object
              properties:
                bindings: { type: array, items: { type: string } }
                size: { type: integer, default: 3 }
                owner: { type: string, nullable: true }
";
        let definitions: Arc<[_]> = capstan_core::schema::definitions(PAGES, Path::new("crd.yaml")).unwrap().into();
        let text = ASKING.replace(
            "      sources: { switches: { informer: { apiVersion: v1, kind: Secret, mapper: { export: killed } } } }\n",
            "",
        );
        let operators = capstan_core::manifest::parse(&text, Path::new("m.yaml")).unwrap();
        let operator = operators.first().unwrap();
        let spec = operator.controllers.values().next().unwrap();
        for (status, before, failure) in [
            (r#"{"status":{"bindings":null}}"#, r#"["a"]"#, Some("status.bindings: found null; expected a list")),
            (r#"{"status":{"bindings":["a",null]}}"#, "[]", Some("status.bindings[1]: found null; expected a text")),
            (r#"{"status":{"bindings":[],"size":null,"owner":null}}"#, "[]", None),
        ] {
            let primary =
                format!(r#"{{ "metadata": {{ "name": "a" }}, "spec": {{}}, "status": {{ "bindings": {before} }} }}"#);
            let primary = serde_json::from_str(&primary).unwrap();
            let (guest, definitions) = (Arc::new(Stating(status)) as Arc<dyn Guest>, Arc::clone(&definitions));
            let played = play(Scene { operator, spec, guest, primary, world: vec![], definitions }).await.unwrap();
            match failure {
                Some(why) => assert!(played.failure.as_ref().is_some_and(|said| said.contains(why)), "{played:?}"),
                None => assert_eq!(
                    (played.failure, &played.primary["status"]),
                    (None, &serde_json::json!({ "bindings": [], "size": 3, "owner": null }))
                ),
            }
        }
    }

    struct Opening;

    impl Guest for Opening {
        fn open(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
            Box::new(Careless(run))
        }

        fn open_nested(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
            self.open(run)
        }

        fn exports(&self, interface: Interface) -> bool {
            interface == Interface::Reconciler
        }
    }

    #[tokio::test]
    async fn runs_that_only_had_their_writes_refused_are_told_apart_from_those_that_have_written() {
        let text = ASKING.replace(
            "p.wasm }",
            "p.wasm }, capabilities: { kubernetes: [{ apiVersion: v1, kind: Secret, verbs: [create] }] }",
        );
        let text = text.replace(
            "      sources: { switches: { informer: { apiVersion: v1, kind: Secret, mapper: { export: killed } } } }\n",
            "",
        );
        let operators = capstan_core::manifest::parse(&text, Path::new("m.yaml")).unwrap();
        let operator = operators.first().unwrap();
        let spec = operator.controllers.values().next().unwrap();
        let primary = serde_json::json!({ "metadata": { "name": "a" }, "spec": {} });
        let scene =
            Scene { operator, spec, guest: Arc::new(Opening), primary, world: vec![], definitions: Arc::default() };
        let played = play(scene).await.unwrap();
        assert_eq!((played.runs, played.refused), (10, 9), "{played:?}");
        let ended = Expected::of(played).ended;
        assert_eq!(ended, "not at rest: each of 10 runs has asked for writes; in 9 of them all were refused");
    }

    #[tokio::test]
    async fn what_is_wrong_in_a_case_is_told_at_file_and_line() {
        let expected = "contract: \"0.0.1\"\nruns: 2\nended: succeeded\n";
        let typo = expected.replace("runs", "rnus");
        let few = expected.replace("0.0.1", CONTRACT).replace("runs: 2", "runs: two");
        let table: [(&[(&str, &str)], &str); 6] = [
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
                &[("primary.yaml", PRIMARY), ("expected.yaml", &few)],
                "expected.yaml:2:7: found something else; expected a whole number",
            ),
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

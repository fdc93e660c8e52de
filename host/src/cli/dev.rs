//! `capstan dev`: decides what follows a change of an operator's folder: build, check, apply, swap; the last good version goes on.

use std::fmt::Display;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use capstan_core::object::Managers;
use clap::Parser as _;
use rustix::process::{getpid, kill_process};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::Instant;

mod apply;
pub(in crate::cli) mod build;
mod deployed;
mod lookout;
mod place;
pub(in crate::cli) mod project;
mod sources;
mod takeover;

use crate::cli::args::{Check, Cli, Command, Dev, Output, Run};
use crate::cli::{check, crd};
use crate::client::ApiServer;
use crate::logging::Log;
use crate::operators;
use crate::run;
use crate::shutdown::Signals;
use crate::supervisor::held::Held;
use crate::supervisor::supply::Supply;
use apply::Applier;
use build::Built;
use lookout::Lookout;
use place::Place;
use project::Project;
use sources::Sources;
use takeover::Takeover;

/// The exit status if nobody has said that a cluster may be used.
const REFUSED: u8 = 3;

/// How long runs under way may take to finish when it is to end.
const DRAIN: &str = "2s";

/// Builds, checks and runs the operator of a folder until it is told to stop.
///
/// # Errors
/// If the folder is none of an operator, there is no cluster, or the daemon can't run at all.
pub async fn run(args: Dev, log: Log) -> anyhow::Result<ExitCode> {
    let project = Project::read(&args.folder)?;
    let place = Place::find(args.kubeconfig.clone(), args.context.clone()).await?;
    log.say(&format!("capstan dev: {place}"));
    log.flush(crate::logging::LAST_LINES);
    if !args.yes && !place.is_local() && !Place::confirmed()? {
        return Ok(ExitCode::from(REFUSED));
    }
    let mut signals = Signals::listen().context("listen to signals")?;
    let client = kube::Client::try_from(place.config).context("make a client for the API server")?;
    let api = Arc::new(ApiServer::new(client.clone(), Managers::default()));
    let applier = Applier::new(Arc::clone(&api), &place.namespace);
    let applier = args.takeover.is_none().then_some(applier);
    let check = checked(&daemon(&args, &project)?);
    let lookout = applier.is_some().then(|| Lookout::new(client.clone(), log.clone()));
    let mut author = Author::new(project, check, lookout.clone(), applier, log.clone());
    let begun = async {
        let seen = author.first().await?;
        let manifest = author.project.manifest.clone();
        let takeover = match args.takeover.clone() {
            Some(label) => Some(Takeover::new((client, api), manifest, label, log.clone()).await?),
            None => None,
        };
        anyhow::Ok((seen, takeover))
    };
    let (seen, mut takeover) = tokio::select! {
        biased;
        () = signals.next() => return Ok(ExitCode::SUCCESS),
        begun = begun => begun?,
    };
    let daemon = daemon(&args, &author.project)?;
    let released = Arc::new(Notify::new());
    let supply = Arc::clone(&released);
    let supply = |disk| Box::new(Held::new(disk, supply)) as Box<dyn Supply>;
    let holder = takeover.as_ref().map(|takeover| Arc::clone(&takeover.name));
    let held = async {
        match &mut takeover {
            Some(takeover) => takeover.keep().await,
            None => std::future::pending().await,
        }
    };
    let joined = async {
        match &lookout {
            Some(lookout) => lookout.joined().await,
            None => std::future::pending().await,
        }
    };
    let mut hangup = signal(SignalKind::hangup()).context("listen to signals")?;
    let ended = tokio::select! {
        // The daemon obeys the signals, and ends in order.
        ended = run::run_with(daemon, log, (holder, supply)) => ended,
        failed = author.go_on(seen, &released) => failed.map(|()| ExitCode::SUCCESS),
        failed = held => Err(failed),
        failed = joined => Err(failed),
        failed = closed(&mut hangup) => Err(failed),
    };
    // Only now, for nothing is written any more.
    if let Some(takeover) = &mut takeover {
        takeover.give_back().await;
    }
    ended
}

/// Ends the daemon in order once the terminal is closed: to one without a terminal this signal means something else. It may come twice, and
/// says no more then. Returns only if that can't be done.
async fn closed(hangup: &mut Signal) -> anyhow::Error {
    hangup.recv().await;
    if let Err(error) = kill_process(getpid(), rustix::process::Signal::TERM) {
        return anyhow::Error::new(error).context("end after the terminal was closed");
    }
    std::future::pending().await
}

/// Returns the daemon's arguments: what `capstan run` has if nothing else is said.
fn daemon(args: &Dev, project: &Project) -> anyhow::Result<Run> {
    let mut line = ["capstan", "run", "--drain", DRAIN, "-m"].map(Into::into).to_vec();
    line.push(project.manifest.clone().into_os_string());
    for (flag, value) in [("--kubeconfig", args.kubeconfig.as_ref().map(|file| file.clone().into_os_string()))]
        .into_iter()
        .chain([("--context", args.context.clone().map(Into::into))])
    {
        line.extend(value.into_iter().flat_map(|value| [flag.into(), value]));
    }
    let Command::Run(run) = Cli::try_parse_from(line)?.command else {
        anyhow::bail!("the command line is none of `capstan run`");
    };
    Ok(Run { unasked: true, on_new_version: None, ..run })
}

fn checked(daemon: &Run) -> Check {
    Check {
        source: daemon.source.clone(),
        definitions: Vec::new(),
        pull: true,
        ceilings: None,
        namespace: None,
        output: Output::Table,
    }
}

/// What is done for whoever changes the folder.
struct Author {
    project: Project,
    check: Check,
    /// Looks for others who work on the same primaries; `None`: those are held for this daemon.
    lookout: Option<Lookout>,
    /// Applies CRDs and examples; `None`: what is there is worked on.
    applier: Option<Applier>,
    /// Of what the component was built last.
    built: Option<Sources>,
    /// What has changed during the last build, which is not used for that.
    overtaken: Option<PathBuf>,
    log: Log,
}

impl Author {
    fn new(project: Project, check: Check, lookout: Option<Lookout>, applier: Option<Applier>, log: Log) -> Self {
        Self { project, check, lookout, applier, built: None, overtaken: None, log }
    }

    /// Waits for a first version that is good; returns the files of which it was made.
    async fn first(&mut self) -> anyhow::Result<Sources> {
        loop {
            let seen = Sources::of(&self.project.folder);
            if self.reads() && self.is_good(&seen).await? {
                // Before anything is written: a daemon that is deployed there lives with these definitions, too.
                self.is_alone().await?;
                if self.applies_definitions().await {
                    return Ok(seen);
                }
            }
            self.say(&"nothing runs yet; waiting for a change");
            seen.changed(&self.project.folder).await;
        }
    }

    /// Releases each further version that is good.
    async fn go_on(&mut self, mut seen: Sources, released: &Notify) -> anyhow::Result<()> {
        self.apply_examples().await;
        let manifest = self.project.manifest.clone();
        loop {
            seen.changed(&self.project.folder).await;
            // What changes while it is built is built once more.
            let now = Sources::of(&self.project.folder);
            if let Some(file) = now.difference(&seen) {
                self.say(&format_args!("{} has changed", file.display()));
            }
            seen = now;
            let good = self.reads() && self.is_of(&manifest) && self.is_good(&seen).await?;
            if good && self.stays_alone().await && self.applies_definitions().await {
                released.notify_one();
                self.apply_examples().await;
            } else {
                self.say(&"the last good version goes on");
            }
        }
    }

    /// Reads what the folder says of itself, which may be something else now; tells of what is wrong.
    fn reads(&mut self) -> bool {
        match Project::read(&self.project.folder) {
            Ok(project) => {
                self.check.source.manifests = vec![project.manifest.clone()];
                self.project = project;
                true
            }
            Err(error) => {
                self.say(&format_args!("error: {error:#}"));
                false
            }
        }
    }

    /// Checks that the manifest is the file that runs.
    fn is_of(&self, manifest: &Path) -> bool {
        let same = self.project.manifest == manifest;
        if !same {
            let now = self.project.manifest.display();
            self.say(&format_args!("error: the manifest is {now} now; start `capstan dev` anew for that"));
        }
        same
    }

    /// Makes sure that nobody else works on the primaries that the manifest names, unless they are held for this daemon.
    ///
    /// # Errors
    /// Who does.
    async fn is_alone(&self) -> anyhow::Result<()> {
        let Some(lookout) = &self.lookout else {
            return Ok(());
        };
        let operators = operators::valid(std::slice::from_ref(&self.project.manifest))?;
        lookout.is_alone(takeover::places(&operators)).await
    }

    /// The same for a further version; tells of what is wrong.
    async fn stays_alone(&self) -> bool {
        match self.is_alone().await {
            Ok(()) => true,
            Err(error) => {
                self.say(&format_args!("error: {error:#}"));
                false
            }
        }
    }

    /// Builds and checks; tells of what is wrong.
    async fn is_good(&mut self, now: &Sources) -> anyhow::Result<bool> {
        let sources = now.without(self.project.beside());
        let command = self.project.build.clone().filter(|_| self.built.as_ref() != Some(&sources));
        if let Some(command) = command {
            self.built = None;
            let begun = Instant::now();
            self.progress(&format_args!("building: {command}"));
            let Built { ok, printed } = build::build(&self.project.folder, &command).await?;
            if !ok {
                self.say(&format_args!("{printed}\nerror: `{command}` has failed"));
                return Ok(false);
            }
            self.say(&format_args!("built in {:.1?}", begun.elapsed()));
            if self.is_overtaken(&sources) || !self.is_typed().await {
                return Ok(false);
            }
            self.built = Some(sources);
        }
        self.progress(&"checking");
        self.check.definitions.clone_from(&self.project.definitions);
        let findings = match check::findings(&self.check).await {
            Ok(findings) => findings,
            Err(error) => {
                self.say(&format_args!("error: {error:#}"));
                return Ok(false);
            }
        };
        let told = |finding: &&check::Finding| !finding.ok || finding.kind == "warning";
        for finding in findings.iter().filter(told) {
            self.say(&finding.said());
        }
        Ok(findings.iter().all(|finding| finding.ok))
    }

    /// Returns true if a file has changed while the component was built of it: its steps may have read the one text and the other. What changes
    /// in each build is of the build's own making.
    fn is_overtaken(&mut self, sources: &Sources) -> bool {
        let now = Sources::of(&self.project.folder).without(self.project.beside());
        let changed = now.difference(sources).map(Path::to_owned);
        let before = std::mem::replace(&mut self.overtaken, changed);
        let Some(file) = self.overtaken.as_ref().filter(|file| before.as_ref() != Some(*file)) else {
            return false;
        };
        self.say(&format_args!("{} has changed meanwhile: it is built again", file.display()));
        true
    }

    /// Writes the definition anew if the types have come to another one; tells of what is wrong.
    async fn is_typed(&mut self) -> bool {
        match crd::written(&self.project).await {
            Ok(file) => {
                if let Some(file) = file {
                    self.say(&format_args!("{} has changed, as the types have", file.display()));
                    // It may not have been there before.
                    return self.reads();
                }
                true
            }
            Err(error) => {
                self.say(&format_args!("error: {error:#}"));
                false
            }
        }
    }

    async fn applies_definitions(&mut self) -> bool {
        let Some(applier) = &mut self.applier else {
            return true;
        };
        let applied = applier.apply(&self.project.definitions).await;
        if applied.as_ref().is_ok_and(|names| !names.is_empty()) {
            // What a definition does not have is dropped from what is stored; once it has it again, it has to be said again.
            applier.forget(&self.project.examples);
        }
        self.told(applied)
    }

    async fn apply_examples(&mut self) {
        if let Some(applier) = &mut self.applier {
            let applied = applier.apply(&self.project.examples).await;
            self.told(applied);
        }
    }

    fn told(&self, applied: anyhow::Result<Vec<String>>) -> bool {
        match applied {
            Ok(names) => {
                for name in names {
                    self.say(&format_args!("applied {name}"));
                }
                true
            }
            Err(error) => {
                self.say(&format_args!("error: {error:#}"));
                false
            }
        }
    }

    fn say(&self, line: &dyn Display) {
        self.log.say(&line.to_string());
    }

    /// Tells what takes a while, on a terminal.
    fn progress(&self, line: &dyn Display) {
        if std::io::stderr().is_terminal() {
            self.say(&format_args!("{line} …"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use serde_json::json;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::client::tests::{Answer, Step, scripted};

    const MANIFEST: &str = "apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: { name: pages }
spec:
  controllers:
    pages:
      primary: { apiVersion: sample.dev/v1, kind: Page }
      workflow:
        dependents:
          map:
            apiVersion: v1
            kind: ConfigMap
            serverSideApply: true
            desired: { template: { metadata: { name: \"${primary.metadata.name}\" } } }
";
    const TYPES: &str = r#"{ "apiVersion": "sample.dev/v1", "kind": "Page", "schema": { "type": "object", "properties": { "spec": { "type": "object" } } } }"#;

    /// Returns the author of a folder with these files, and how often it was looked whether somebody else works on its primaries.
    fn author(files: &[(&str, &str)]) -> (tempfile::TempDir, Author, Arc<parking_lot::Mutex<Vec<String>>>) {
        author_beside(files, |_| nothing())
    }

    fn list(items: &[serde_json::Value]) -> Answer {
        let list = json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items });
        Answer(Some(200), vec![Step::Comes(list.to_string())])
    }

    fn nothing() -> Answer {
        list(&[])
    }

    /// The same, where the API server answers so.
    fn author_beside(
        files: &[(&str, &str)],
        answer: impl FnMut(&str) -> Answer + Send + 'static,
    ) -> (tempfile::TempDir, Author, Arc<parking_lot::Mutex<Vec<String>>>) {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in files {
            fs::write(folder.path().join(file), text).unwrap();
        }
        let project = Project::read(folder.path()).unwrap();
        let line = ["capstan", "dev", folder.path().to_str().unwrap()];
        let Command::Dev(args) = Cli::parse_from(line).command else { panic!("another command") };
        let check = checked(&daemon(&args, &project).unwrap());
        let (client, asked) = scripted(answer);
        let api = Arc::new(ApiServer::new(client.clone(), Managers::default()));
        let applier = Some(Applier::new(api, "default"));
        let log = Log::default();
        let lookout = Some(Lookout::new(client, log.clone()));
        (folder, Author::new(project, check, lookout, applier, log), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn as_long_as_nothing_runs_what_the_folder_says_of_itself_is_read_anew() {
        let files = [("dev.yaml", "manifest: a.yaml\n"), ("a.yaml", "no: manifest\n"), ("b.yaml", MANIFEST)];
        let (folder, mut author, _) = author(&files);
        let writes = async {
            sleep(Duration::from_secs(5)).await;
            fs::write(folder.path().join("dev.yaml"), "manifest: b.yaml\n").unwrap();
        };
        let (begun, ()) = tokio::join!(timeout(Duration::from_mins(1), author.first()), writes);
        begun.expect("it is seen").unwrap();
        assert_eq!(author.project.manifest, folder.path().join("b.yaml"));
        assert!(author.is_of(&folder.path().join("b.yaml")) && !author.is_of(&folder.path().join("a.yaml")));
    }

    #[tokio::test]
    async fn a_definition_that_was_just_written_is_one_of_the_folder() {
        let dev = "build: 'true'\ntypes: cat types.json\n";
        let (folder, mut author, _) = author(&[("dev.yaml", dev), ("operator.yaml", MANIFEST), ("types.json", TYPES)]);
        assert_eq!(author.project.definitions, [""; 0].map(PathBuf::from));
        let seen = Sources::of(folder.path());
        assert!(author.is_good(&seen).await.unwrap());
        assert_eq!(author.project.definitions, [folder.path().join("crd.yaml")]);
    }

    #[tokio::test]
    async fn what_was_built_while_its_sources_changed_is_built_again() {
        let once = "build: \"test -e once.wasm || { touch once.wasm; echo changed > app.txt; }\"\n";
        let always = "build: \"date +%N > app.txt\"\n";
        for dev in [once, always] {
            let (folder, mut author, _) =
                author(&[("dev.yaml", dev), ("operator.yaml", MANIFEST), ("app.txt", "first")]);
            assert!(!author.is_good(&Sources::of(folder.path())).await.unwrap(), "{dev}");
            assert!(author.is_good(&Sources::of(folder.path())).await.unwrap(), "{dev}");
        }
    }

    #[tokio::test]
    async fn examples_are_applied_again_once_a_definition_has_changed() {
        const EXAMPLE: &str = "apiVersion: sample.dev/v1\nkind: Page\nmetadata: { name: a }\n";
        const CRD: &str = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: { name: pages.sample.dev }\nspec: { group: sample.dev, names: { kind: Page }, versions: [{ name: v1 }] }\n";
        let kinds = |name: &str, kind: &str, namespaced: bool| json!({ "resources": [{ "name": name, "kind": kind, "namespaced": namespaced }] });
        let object = |name: &str, namespace: Option<&str>| json!({ "metadata": { "name": name, "namespace": namespace, "uid": "u", "resourceVersion": "1" } });
        let files = [("dev.yaml", ""), ("operator.yaml", MANIFEST), ("crd.yaml", CRD), ("example.yaml", EXAMPLE)];
        let (folder, mut author, asked) = author_beside(&files, move |path| {
            let body = match path.split('?').next().unwrap_or_default() {
                "/apis/apiextensions.k8s.io/v1" => {
                    kinds("customresourcedefinitions", "CustomResourceDefinition", false)
                }
                "/apis/sample.dev/v1" => kinds("pages", "Page", true),
                path if path.ends_with("/pages/a") => object("a", Some("default")),
                _ => object("pages.sample.dev", None),
            };
            Answer(Some(200), vec![Step::Comes(body.to_string())])
        });
        let examples = || asked.lock().iter().filter(|path| path.contains("/pages/a")).count();
        for (crd, applied) in [(CRD.to_owned(), 1), (CRD.to_owned(), 1), (format!("{CRD}# another\n"), 2)] {
            fs::write(folder.path().join("crd.yaml"), crd).unwrap();
            assert!(author.applies_definitions().await);
            author.apply_examples().await;
            assert_eq!(examples(), applied);
        }
    }

    #[tokio::test]
    async fn whether_somebody_else_works_on_the_primaries_is_looked_at_again_when_these_are_others() {
        let (folder, author, asked) = author(&[("dev.yaml", ""), ("operator.yaml", MANIFEST)]);
        let site = MANIFEST.replace("kind: Page", "kind: Site");
        let listed = site.replace("kind: Site }", "kind: Site }\n      namespaces: [a]");
        for (manifest, looks) in
            [(MANIFEST, 1), (MANIFEST, 1), (&*site, 2), (&*listed, 3), (&*listed, 3), (MANIFEST, 3)]
        {
            fs::write(folder.path().join("operator.yaml"), manifest).unwrap();
            assert!(author.stays_alone().await);
            let lists = asked.lock().iter().filter(|path| path.starts_with("/apis/apps/v1/deployments")).count();
            assert_eq!(lists, looks, "{manifest}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_is_deployed_later_is_noticed() {
        let labels = json!({ "helm.sh/chart": "capstan-1.0.0", "app.kubernetes.io/instance": "capstan" });
        let daemon = json!({
            "metadata": { "name": "capstan", "namespace": "b", "labels": labels },
            "spec": { "selector": {}, "template": { "spec": { "containers": [{ "name": "capstan", "args": ["run"] }] } } },
        });
        let mut looks = 0;
        let (_folder, author, _) = author_beside(&[("dev.yaml", ""), ("operator.yaml", MANIFEST)], move |path| {
            if path.starts_with("/apis/apps/v1/deployments") {
                looks += 1;
                return if looks < 3 { nothing() } else { list(std::slice::from_ref(&daemon)) };
            }
            assert!(path.starts_with("/api/v1/namespaces/b/configmaps"), "{path}");
            list(&[json!({ "metadata": { "name": "m" }, "data": { "pages.yaml": MANIFEST } })])
        });
        assert!(author.stays_alone().await);
        let begun = Instant::now();
        let who = timeout(Duration::from_mins(5), author.lookout.unwrap().joined()).await.unwrap().to_string();
        assert!(
            who.starts_with("deployment capstan in namespace b runs operator pages for sample.dev/v1 Page"),
            "{who}"
        );
        assert_eq!(begun.elapsed(), Duration::from_mins(1));
    }
}

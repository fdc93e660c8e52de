//! `capstan dev`: decides what follows a change of an operator's folder: build, check, apply, swap; the last good version goes on.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use capstan_core::manifest::Rounded;
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
use crate::client::{ApiServer, told};
use crate::listen;
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

/// Where the daemon listens if nothing else is said, and where `capstan plugins` asks.
const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// How long runs under way may take to finish when it is to end.
const DRAIN: &str = "2s";

/// Builds, checks and runs the operator of a folder until it is told to stop.
///
/// # Errors
/// If the folder is none of an operator, there is no cluster, or the daemon can't run at all.
pub async fn run(mut args: Dev, log: Log) -> anyhow::Result<ExitCode> {
    let project = Project::read(&args.folder)?;
    // Before anything is built or applied.
    let (listener, said) = listening(args.listen, USUAL)?;
    args.listen = Some(listener.local_addr().context("find the own address")?);
    let place = Place::find(args.kubeconfig.clone(), args.context.clone()).await?;
    log.say(&format!("capstan dev: {place}; {said}"));
    log.flush(crate::logging::LAST_LINES);
    if !args.yes && !place.is_local() && !Place::confirmed()? {
        return Ok(ExitCode::from(REFUSED));
    }
    let mut signals = Signals::listen().context("listen to signals")?;
    let client = kube::Client::try_from(place.config).context("make a client for the API server")?;
    let api = Arc::new(ApiServer::new(client.clone(), Managers::default()));
    let applier = args.takeover.is_none().then(|| Applier::new(Arc::clone(&api), &place.namespace));
    let check = checked(&daemon(&args, &project)?);
    let lookout = applier.is_some().then(|| Lookout::new(client.clone(), log.clone()));
    let mut author = Author { lookout: lookout.clone(), applier, log: log.clone(), ..Author::new(project, check) };
    let begun = async {
        let (seen, manifest) = (author.first().await?, author.project.manifest.clone());
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
        ended = run::run_with(daemon, log, (listener, holder, supply)) => ended,
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

/// Listens where it is said, or else at the usual address, or at a free port if that is taken; returns what there is to say of it.
fn listening(said: Option<SocketAddr>, usual: SocketAddr) -> anyhow::Result<(TcpListener, String)> {
    let at = said.unwrap_or(usual);
    let taken = |error: &anyhow::Error| {
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    };
    match listen::ahead(at) {
        Err(error) if said.is_none() && taken(&error) => {
            let listener = listen::ahead(SocketAddr::new(usual.ip(), 0))?;
            let address = listener.local_addr().context("find the own address")?;
            Ok((
                listener,
                format!(
                    "probes and diagnostics at {address}, as {usual} is taken: `capstan plugins --address {address}`"
                ),
            ))
        }
        Err(error) if taken(&error) => Err(error.context("--listen: expected an address that is free, or none")),
        Err(error) => Err(error),
        Ok(listener) => {
            let address = listener.local_addr().context("find the own address")?;
            Ok((listener, format!("probes and diagnostics at {address}")))
        }
    }
}

/// How often what the types say is compared with the definition, until it is that.
const COMPARED: usize = 5;

/// Returns what stands for the contents of types and definitions: of all but the manifest and the examples.
fn typed(project: &Project) -> u64 {
    Sources::of(&project.folder).without([&project.manifest].into_iter().chain(&project.examples)).content()
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
    Ok(Run { unasked: true, on_new_version: None, listen: args.listen.unwrap_or(USUAL), ..run })
}

fn checked(daemon: &Run) -> Check {
    Check {
        source: daemon.source.clone(),
        definitions: Vec::new(),
        pull: true,
        ca: None,
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
    /// What stands for the contents of which the component was built last.
    built: Option<u64>,
    /// The same of types and definitions, as they agreed last.
    typed: Option<u64>,
    /// Whether the last build was of sources that had changed meanwhile.
    overtaken: bool,
    /// The risks that were told last.
    risks: BTreeSet<String>,
    /// Whether it was told that something is wrong.
    is_wrong: bool,
    log: Log,
}

impl Author {
    /// Returns an author for whom nothing was done yet.
    fn new(project: Project, check: Check) -> Self {
        Self {
            project,
            check,
            lookout: None,
            applier: None,
            built: None,
            typed: None,
            overtaken: false,
            risks: BTreeSet::new(),
            is_wrong: false,
            log: Log::default(),
        }
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
            self.next(&seen).await;
        }
    }

    /// Releases each further version that is good.
    async fn go_on(&mut self, mut seen: Sources, released: &Notify) -> anyhow::Result<()> {
        self.apply_examples().await;
        let manifest = self.project.manifest.clone();
        loop {
            seen = self.next(&seen).await;
            let good = self.reads() && self.is_of(&manifest) && self.is_good(&seen).await?;
            if good && self.stays_alone().await && self.applies_definitions().await {
                if std::mem::take(&mut self.is_wrong) {
                    self.say(&"all is right again");
                }
                released.notify_one();
                self.apply_examples().await;
            } else {
                self.is_wrong = true;
                self.say(&"the last good version goes on");
            }
        }
    }

    /// Waits until files have changed, and says of one of them whether that was while these were built.
    async fn next(&self, seen: &Sources) -> Sources {
        let folder = &self.project.folder;
        let when = if Sources::of(folder) == *seen { "" } else { " meanwhile" };
        seen.changed(folder).await;
        // What changes while it is built is built once more.
        let now = Sources::of(folder);
        if let Some(file) = now.difference(seen) {
            self.say(&format_args!("{} has changed{when}", file.display()));
        }
        now
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
                self.say(&format_args!("error: {}", told(&error)));
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
                self.say(&format_args!("error: {}", told(&error)));
                false
            }
        }
    }

    /// Builds and checks; tells of what is wrong.
    async fn is_good(&mut self, now: &Sources) -> anyhow::Result<bool> {
        let sources = now.without(self.project.beside()).content();
        let command = self.project.build.clone().filter(|_| self.built != Some(sources));
        if let Some(command) = command {
            self.built = None;
            let begun = Instant::now();
            self.progress(&format_args!("building: {command}"));
            let Built { ok, printed } = build::build(&self.project.folder, &command).await?;
            if !ok {
                self.say(&format_args!("{printed}\nerror: `{command}` has failed"));
                return Ok(false);
            }
            self.say(&format_args!("built in {}", Rounded(begun.elapsed())));
            if self.is_overtaken(sources) {
                return Ok(false);
            }
            self.built = Some(sources);
        }
        if !self.is_typed().await {
            return Ok(false);
        }
        self.progress(&"checking");
        self.check.definitions.clone_from(&self.project.definitions);
        let mut risks = BTreeSet::new();
        let mut tell = |finding: &check::Finding| {
            let said = finding.said();
            let is_risk = finding.ok && finding.kind == "warning";
            if !finding.ok || is_risk && !self.risks.contains(&said) {
                self.log.say(&said);
            }
            if is_risk {
                risks.insert(said);
            }
            Ok(())
        };
        let found = check::findings(&self.check, &mut tell).await;
        match found {
            Ok(findings) => {
                self.risks = risks;
                if findings.iter().any(|finding| !finding.ok && finding.kind == "plugin") {
                    // It may be gone, or wrong for what is not among its sources: what is saved next builds it.
                    self.built = None;
                }
                Ok(findings.iter().all(|finding| finding.ok))
            }
            Err(error) => {
                self.say(&format_args!("error: {}", told(&error)));
                Ok(false)
            }
        }
    }

    /// Returns true if sources have changed while the component was built of them: its steps may have read the one text and the other. Twice in
    /// a row it is taken all the same: what changes in each build may be of the build's own making.
    fn is_overtaken(&mut self, sources: u64) -> bool {
        let now = Sources::of(&self.project.folder).without(self.project.beside()).content();
        self.overtaken = now != sources && !self.overtaken;
        if self.overtaken {
            self.say(&"its sources have changed meanwhile: it is built again");
        }
        self.overtaken
    }

    /// Writes the definition anew if it is not what the types come to; tells of what is wrong. Types may change while they are read: what was
    /// written is compared once more.
    async fn is_typed(&mut self) -> bool {
        for _ in 0..COMPARED {
            let now = typed(&self.project);
            if self.project.types.is_none() || self.typed == Some(now) {
                return true;
            }
            match crd::written(&self.project).await {
                Ok(None) => {
                    self.typed = Some(now);
                    return true;
                }
                Ok(Some((file, lost))) => {
                    let what = format!("{} is written anew, as the types have it", file.display());
                    self.say(&[vec![what], lost].concat().join("\n  "));
                    // It may not have been there before.
                    if !self.reads() {
                        return false;
                    }
                }
                Err(error) => {
                    self.say(&format_args!("error: {}", told(&error)));
                    return false;
                }
            }
        }
        let command = self.project.types.as_deref().unwrap_or_default();
        self.say(&format_args!("error: `{command}` says something else each time"));
        false
    }

    async fn applies_definitions(&mut self) -> bool {
        let Some(applier) = &mut self.applier else {
            return true;
        };
        // What was edited by hand since is not applied before it is compared with the types.
        if self.project.types.is_some() && self.typed != Some(typed(&self.project)) {
            self.typed = None;
            return false;
        }
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
                self.say(&format_args!("error: {}", told(&error)));
                false
            }
        }
    }

    fn say(&self, line: &dyn Display) {
        self.log.say(&line.to_string());
    }

    /// Tells what takes a while, on a terminal.
    fn progress(&self, line: &dyn Display) {
        if io::stderr().is_terminal() {
            self.say(&format_args!("{line} …"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
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
        (folder, Author { lookout, applier, log, ..Author::new(project, check) }, asked)
    }

    #[tokio::test]
    async fn a_usual_address_that_is_taken_gives_way_to_a_free_port_and_one_that_is_named_does_not() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (first, said) = listening(None, taken).unwrap();
        assert_eq!((first.local_addr().unwrap(), said), (taken, format!("probes and diagnostics at {taken}")));
        let (second, said) = listening(None, taken).unwrap();
        let other = second.local_addr().unwrap();
        assert!(other != taken && other.ip() == taken.ip(), "{other}");
        assert!(said.ends_with(&format!("{taken} is taken: `capstan plugins --address {other}`")), "{said}");
        let refused = format!("{:#}", listening(Some(taken), USUAL).unwrap_err());
        assert!(
            refused.starts_with(&format!("--listen: expected an address that is free, or none: listen on {taken}")),
            "{refused}"
        );
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
    async fn a_definition_that_is_edited_by_hand_is_written_again_though_nothing_is_built() {
        let dev = "build: echo x >> built\ntypes: cat types.json\n";
        let ignored = (".gitignore", "built\n");
        let files = [("dev.yaml", dev), ("operator.yaml", MANIFEST), ("types.json", TYPES), ignored];
        let (folder, mut author, _) = author(&files);
        assert!(author.is_good(&Sources::of(folder.path())).await.unwrap());
        let crd = folder.path().join("crd.yaml");
        let right = fs::read_to_string(&crd).unwrap();
        fs::write(&crd, right.replace("type: object", "type: string")).unwrap();
        assert!(author.is_good(&Sources::of(folder.path())).await.unwrap());
        assert_eq!(fs::read_to_string(&crd).unwrap(), right);
        // The same text written anew builds nothing.
        fs::write(folder.path().join("types.json"), TYPES).unwrap();
        assert!(author.is_good(&Sources::of(folder.path())).await.unwrap());
        assert_eq!(fs::read_to_string(folder.path().join("built")).unwrap(), "x\n");
        fs::write(folder.path().join("types.json"), "no").unwrap();
        assert!(!author.is_good(&Sources::of(folder.path())).await.unwrap());
    }

    #[tokio::test]
    async fn types_that_change_while_they_are_read_are_read_again() {
        let more = TYPES.replace("object\" }", "object\", \"description\": \"more\" }");
        let files =
            |types| [("dev.yaml", types), ("operator.yaml", MANIFEST), ("types.json", TYPES), ("more.json", &*more)];
        let (folder, mut author, _) =
            author(&files("build: 'true'\ntypes: cat types.json && cp more.json types.json\n"));
        for _ in 0..2 {
            assert!(author.is_good(&Sources::of(folder.path())).await.unwrap());
            let crd = fs::read_to_string(folder.path().join("crd.yaml")).unwrap();
            assert!(crd.contains("description: more"), "{crd}");
            // The definition is right, and the types change while that is found out.
            fs::write(folder.path().join("types.json"), TYPES).unwrap();
        }
    }

    #[tokio::test]
    async fn types_that_are_others_each_time_they_are_read_are_an_error() {
        let types = "build: 'true'\ntypes: date +%N >> all; sed \"s/Page/Page$(wc -l < all)/\" types.json\n";
        let (folder, mut author, _) =
            author(&[("dev.yaml", types), ("operator.yaml", MANIFEST), ("types.json", TYPES)]);
        assert!(!author.is_good(&Sources::of(folder.path())).await.unwrap());
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

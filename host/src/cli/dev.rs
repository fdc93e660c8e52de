//! `capstan dev`: decides what follows a change of an operator's folder: build, check, apply, swap; the last good version goes on.

use std::fmt::Display;
use std::io::IsTerminal as _;
use std::path::Path;
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
    let daemon = daemon(&args, &project)?;
    let client = kube::Client::try_from(place.config).context("make a client for the API server")?;
    let api = Arc::new(ApiServer::new(client.clone(), Managers::default()));
    let applier = Applier::new(Arc::clone(&api), &place.namespace);
    let applier = args.takeover.is_none().then_some(applier);
    let manifest = project.manifest.clone();
    let check = checked(&daemon);
    let mut author = Author { project, check, client: client.clone(), applier, built: None, log: log.clone() };
    let begun = async {
        let seen = author.first().await?;
        let takeover = match args.takeover {
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
    let mut hangup = signal(SignalKind::hangup()).context("listen to signals")?;
    let ended = tokio::select! {
        // The daemon obeys the signals, and ends in order.
        ended = run::run_with(daemon, log, (holder, supply)) => ended,
        failed = author.go_on(seen, &released) => failed.map(|()| ExitCode::SUCCESS),
        failed = held => Err(failed),
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

/// Makes sure that no daemon which is deployed there works on the same primaries, as far as that can be seen.
async fn alone(client: &kube::Client, manifest: &Path, log: &Log) -> anyhow::Result<()> {
    let places = takeover::places(&operators::valid(&[manifest.to_owned()])?);
    match deployed::find(client, &places).await {
        Ok(found) if found.is_empty() => Ok(()),
        Ok(found) => anyhow::bail!(
            "{}, and would write what this one writes: scale it to 0, or take some of its primaries by --takeover KEY=VALUE",
            found.join("; ")
        ),
        Err(error) => {
            log.say(&format!(
                "whether a daemon for the same primaries is deployed there can't be found out: {error:#}"
            ));
            Ok(())
        }
    }
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
    client: kube::Client,
    /// Applies CRDs and examples; `None`: what is there is worked on.
    applier: Option<Applier>,
    /// Of what the component was built last.
    built: Option<Sources>,
    log: Log,
}

impl Author {
    /// Waits for a first version that is good; returns the files of which it was made.
    async fn first(&mut self) -> anyhow::Result<Sources> {
        loop {
            let seen = Sources::of(&self.project.folder);
            if self.is_good(&seen).await? {
                // Before anything is written: a daemon that is deployed there lives with these definitions, too.
                if self.applier.is_some() {
                    alone(&self.client, &self.project.manifest, &self.log).await?;
                }
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
        loop {
            seen.changed(&self.project.folder).await;
            // What changes while it is built is built once more.
            let now = Sources::of(&self.project.folder);
            if let Some(file) = now.difference(&seen) {
                self.say(&format_args!("{} has changed", file.display()));
            }
            seen = now;
            // It may say something else now.
            match Project::read(&self.project.folder) {
                Ok(project) => self.project = project,
                Err(error) => {
                    self.say(&format_args!("error: {error:#}\nthe last good version goes on"));
                    continue;
                }
            }
            if self.is_good(&seen).await? && self.applies_definitions().await {
                released.notify_one();
                self.apply_examples().await;
            } else {
                self.say(&"the last good version goes on");
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
            if !self.is_typed().await {
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

    /// Writes the definition anew if the types have come to another one; tells of what is wrong.
    async fn is_typed(&mut self) -> bool {
        match crd::written(&self.project).await {
            Ok(file) => {
                if let Some(file) = file {
                    self.say(&format_args!("{} has changed, as the types have", file.display()));
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

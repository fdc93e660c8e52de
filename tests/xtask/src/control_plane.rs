//! Starts a control plane, showing what takes long, and holds it for whoever wants to use it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use anyhow::{Result, bail};
use cluster::{Cluster, Options, Progress, Tool, Tools};

use crate::interrupt::{self, TICK};
use crate::ui::{self, Task, Ui, bold, cyan, dim, said};
use crate::workspace::Workspace;

/// `cargo xtask cluster`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask cluster
  cargo xtask cluster --kwok --apply plugins/webpage/crd.yaml
  cargo xtask cluster --tests                        to run scenarios on it again and again
  cargo xtask cluster --kubeconfig-only > path.txt

The binaries are built from Go modules the first time (minutes) and kept in ~/.cache/capstan;
KUBEBUILDER_ASSETS=<folder> takes ready-made ones.")]
pub(crate) struct Args {
    /// Add the scheduler, kwok and a node on which pods become ready without containers.
    #[arg(long)]
    kwok: bool,
    /// Apply these files or folders before the controllers start.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    apply: Vec<PathBuf>,
    /// As the scenarios need it: --kwok, and the kinds of the sample plugins.
    #[arg(long)]
    tests: bool,
    /// Print nothing but the path of the kubeconfig.
    #[arg(long)]
    kubeconfig_only: bool,
}

pub(crate) fn run(ui: &Ui, workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let mut options = if args.tests { Options::of_scenarios(&workspace.root)? } else { Options::default() };
    if args.kwok {
        options = options.with_nodes();
    }
    options.manifests.extend(args.apply.iter().cloned());
    if args.kubeconfig_only {
        let cluster = start_telling(options, &mut |_| {})?;
        ui::uncut(cluster.admin_kubeconfig().display());
        return Ok(hold(cluster));
    }
    let cluster = start_shown(ui, "control plane", options)?;
    let export = |name: &str, value: &Path| cyan(&format!("export {name}={}", value.display()));
    let lines = |head: &str, export: String, command: &str| {
        ui::uncut(format!("\n{}\n  {export}\n  {}", bold(head), cyan(command)));
    };
    let get = format!("{} get namespaces", cluster.kubectl_path().display());
    lines("To use it:", export("KUBECONFIG", &cluster.admin_kubeconfig()), &get);
    if args.tests {
        lines("To run tests on it:", export(cluster::SHARED, cluster.dir()), "cargo test -p scenarios");
    }
    ui.line(format!("\n{}", dim("Ctrl-C ends it.")));
    Ok(hold(cluster))
}

/// Builds what is missing and starts a control plane, with a node if kwok is asked for.
pub(crate) fn start(task: &mut Task, options: Options) -> Result<Cluster> {
    start_telling(options, &mut |progress| show(task, &progress))
}

/// As [`start`], with a line on it.
pub(crate) fn start_shown(ui: &Ui, label: &str, options: Options) -> Result<Cluster> {
    let nodes = if options.extras.contains(&Tool::Kwok) { ", one fake node" } else { "" };
    ui.making(label, |task| {
        let cluster = start(task, options)?;
        let detail = format!("Kubernetes {}{nodes}", cluster.version());
        Ok((cluster, detail))
    })
}

pub(crate) fn prepare(task: &mut Task, needs: BTreeSet<Tool>) -> Result<Tools> {
    aside(move |tell| cluster::prepare(&needs, tell), &mut |progress| show(task, &progress))
}

fn start_telling(options: Options, on_progress: &mut dyn FnMut(Progress)) -> Result<Cluster> {
    let start = move |tell: &dyn Fn(Progress)| {
        let cluster = Cluster::start_with(&options, tell)?;
        if options.extras.contains(&Tool::Kwok) {
            cluster.add_node("node-0")?;
        }
        Ok(cluster)
    };
    aside(start, on_progress)
}

/// Waits beside the work, so that Ctrl-C is heard: what the work has started ends with our process.
fn aside<T: Send + 'static>(
    work: impl FnOnce(&dyn Fn(Progress)) -> Result<T> + Send + 'static,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<T> {
    enum News<T> {
        Progress(Progress),
        Done(Result<T>),
    }
    // The other side waits while we show things, which is quick.
    let (sender, receiver) = mpsc::sync_channel(16);
    thread::spawn(move || {
        let done = work(&|progress| drop(sender.send(News::Progress(progress))));
        // Nobody listens any more when interrupted.
        drop(sender.send(News::Done(done)));
    });
    loop {
        interrupt::check()?;
        match receiver.recv_timeout(TICK) {
            Ok(News::Progress(progress)) => on_progress(progress),
            Ok(News::Done(done)) => return done,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("the start of the control plane panicked"),
        }
    }
}

fn show(task: &mut Task, progress: &Progress) {
    task.announce(&match progress {
        Progress::Waiting { lock } => format!("waiting for another process that builds it ({})", lock.display()),
        Progress::Building { tool, position, of } => {
            format!("building {tool}, {position} of {of}: minutes, the first time only")
        }
        Progress::Built { tool, took } => format!("built {tool} in {}", said(*took)),
        Progress::Starting { tool } => return task.at(&format!("starting {tool}")),
        Progress::Started { .. } => return,
    });
}

fn hold(cluster: Cluster) -> ExitCode {
    while interrupt::pause().is_ok() {}
    cluster.stop();
    ExitCode::SUCCESS
}

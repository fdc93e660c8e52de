//! Shows Capstan at work: prepares a stage, plays the acts on it, sums up, and leaves it to the visitor.

mod daemon;
mod script;
mod site;
mod stage;
mod workshop;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use bench::clock::Stopwatch;
use bench::daemon::Daemon;

use crate::demo::site::Site;
use crate::demo::stage::Stage;
use crate::demo::world::PAGE;
use crate::interrupt::{self, Interrupted};
use crate::ui::{Ui, bold, cyan, dim, green, said};
use crate::workspace::Workspace;
use crate::{files, plugins, process, ui};

/// How many last lines of the daemon's log are shown when something goes wrong.
const TAIL: usize = 15;
/// The daemon's log.
const LOG: &str = "daemon.log";

/// `cargo xtask demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The acts: a page is applied, changed, taken off the net and put on it again; its ConfigMap is deleted; the operator itself \
is changed, built and swapped while it runs; the page is spoilt, and deleted. The operator is changed in a copy of its \
source, in <target>/demo.

Examples:
  cargo xtask demo              on a control plane of its own, which stays for you to play with until Ctrl-C
  cargo xtask demo --once       the same as a test: exit status 0 if all was as it should be
  cargo xtask demo --kubeconfig ~/.kube/config --namespace my-demo
                                on a cluster of yours; says first what it writes there, and removes it in the end")]
pub(crate) struct Args {
    /// End after the last act; exit status 1 if something was not as expected.
    #[arg(long)]
    once: bool,
    /// Show it on this cluster instead of on a control plane of local processes.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where the page lives.
    #[arg(long, value_name = "NAME", default_value = "capstan-demo")]
    namespace: String,
    /// Don't ask before writing to a cluster of yours.
    #[arg(long, requires = "kubeconfig")]
    yes: bool,
}

pub(crate) fn run(ui: &Ui, workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    ui.line(format!(
        "\n{}\n{}\n",
        bold("Capstan: an operator is a WebAssembly component and a manifest"),
        dim("The sample looks after web pages. All that you see below happens now."),
    ));
    let mut folder =
        tempfile::Builder::new().prefix("capstan-demo-").tempdir().context("make a folder for the demo")?;
    let visited = args.kubeconfig.as_ref().map(|file| Site::visit(ui, workspace, args, file)).transpose()?;
    ui.line(bold("Preparing"));
    build(ui, workspace)?;
    let mut site = visited.map_or_else(|| Site::start(ui, workspace, args, folder.path()), Ok)?;
    let shown = site.furnish(ui).and_then(|()| play(ui, workspace, args, &site, folder.path()));
    let code = match shown {
        Err(error) if !error.is::<Interrupted>() => {
            folder.disable_cleanup(true);
            fail(ui, &error, &folder.path().join(LOG));
            Ok(ExitCode::FAILURE)
        }
        shown => shown.map(|()| ExitCode::SUCCESS),
    };
    let ended = site.end(ui);
    code.and_then(|code| ended.map(|()| code))
}

fn build(ui: &Ui, workspace: &Workspace) -> Result<()> {
    ui.doing("plugin", |task| plugins::build(task, workspace, &["webpage".to_owned()]))?;
    ui.doing("build", |task| {
        process::must(task, workspace.build_daemon(), "the build of the daemon")?;
        Ok("capstan, the daemon".to_owned())
    })?;
    ui.doing("workshop", |task| workshop::open(task, workspace))
}

/// Says what went wrong, with the end of the daemon's log.
fn fail(ui: &Ui, error: &anyhow::Error, log: &Path) {
    ui.line("");
    ui::error(error);
    if let Ok(text) = files::text(log) {
        ui.line(format!("\n{}", dim(&format!("the end of {}:", log.display()))));
        let mut lines: Vec<String> = text.lines().rev().take(TAIL).map(str::to_owned).collect();
        lines.reverse();
        ui::whole(&lines);
    }
}

fn play(ui: &Ui, workspace: &Workspace, args: &Args, site: &Site, folder: &Path) -> Result<()> {
    let [manifest, component] = site.install(workspace, &folder.join("operator"))?;
    let mut daemon = daemon::start(&workspace.daemon(), &manifest, site, folder.join(LOG))?;
    ui.doing("daemon", |task| daemon::wait(&mut daemon, task))?;
    ui::uncut(dim(&format!("    its log is {}", daemon.log.display())));

    let watch = Stopwatch::start();
    let mut stage = Stage::open(ui, site, &mut daemon)?;
    script::play(&mut stage, workspace, &component)?;
    let summary = format!("All {} acts went as expected, in {}.", stage.acts, said(watch.spent()));
    drop(stage);
    ui.line(format!("\n{}", green(&summary)));
    let (memory, runs, failed) = (daemon::memory(&daemon), daemon.runs("started")?, daemon.runs("failure")?);
    ui.line(format!("The daemon: {memory}, {runs} runs, {failed} of them failed."));
    if !args.once {
        ui.line(format!("\n{}", bold("It is yours now. In another terminal:")));
        for (command, note) in to_try(workspace, site, &daemon, &component) {
            let note = if note.is_empty() { String::new() } else { dim(&format!("   # {note}")) };
            ui::uncut(format!("  {}{note}", cyan(&command)));
        }
        ui.line(format!("\n{}", dim("Ctrl-C ends it all.")));
        while interrupt::pause().is_ok() {
            daemon.check()?;
        }
    }
    daemon.stop()
}

/// Returns commands for the visitor, and what to say of them.
fn to_try(workspace: &Workspace, site: &Site, daemon: &Daemon, component: &Path) -> Vec<(String, &'static str)> {
    let shown = |words: &str| site.shown(words);
    let [change, swap] = workshop::by_hand(workspace, component);
    let address = daemon.address;
    let mut commands: Vec<_> = site.exports().into_iter().map(|line| (line, "")).collect();
    commands.extend([
        (shown("apply -f plugins/webpage/example.yaml"), ""),
        (shown("get webpages,configmaps,deployments,services,ingresses"), "what there is"),
        (shown(&format!(r#"patch webpage {PAGE} --type merge -p '{{"spec":{{"exposed":false}}}}'"#)), "no Ingress"),
        (shown(&format!("delete service {PAGE}")), "comes back"),
        (change, "change the operator …"),
        (swap, "… and swap it"),
        (format!("curl -s http://{address}/debug/plugins"), "which version is at work"),
        (format!("curl -s http://{address}/metrics"), ""),
        (format!("tail -f {}", daemon.log.display()), ""),
    ]);
    commands
}

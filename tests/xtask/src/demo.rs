//! Shows Capstan at work: prepares a stage, plays the acts on it, sums up, and leaves it to the visitor.

mod act;
mod daemon;
mod edit;
mod kubectl;
mod script;
mod site;
mod watch;
mod workshop;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::clock::{Stopwatch, said};
use crate::demo::act::{Props, Stage, Unmet};
use crate::demo::daemon::Daemon;
use crate::demo::script::PAGE;
use crate::demo::site::{Installed, Site};
use crate::demo::watch::Watches;
use crate::demo::workshop::Workshop;
use crate::interrupt::{self, Interrupted};
use crate::ui::{Ui, bold, cyan, dim, green, red, size};
use crate::workspace::Workspace;
use crate::{builds, plugins, ui};

/// The sample that is shown.
const PLUGIN: &str = "webpage";
/// The daemon's log, in the demo's folder.
const LOG: &str = "daemon.log";
/// How many last lines of the daemon's log are shown when something goes wrong.
const TAIL: usize = 15;

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

/// What it takes, beside the cluster.
struct Demo<'a> {
    ui: &'a Ui,
    workspace: &'a Workspace,
    args: &'a Args,
    workshop: Workshop<'a>,
    /// Goes with the demo, unless that fails.
    folder: TempDir,
}

/// Runs the command.
///
/// # Errors
/// When the stage can't be prepared, an act does not go as expected, or when interrupted before the end.
pub(crate) fn run(ui: &Ui, workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    ui.line(format!(
        "\n{}\n{}\n",
        bold("Capstan: an operator is a WebAssembly component and a manifest"),
        dim("The sample looks after web pages. All that you see below happens now."),
    ));
    let folder = tempfile::Builder::new().prefix("capstan-demo-").tempdir().context("make a folder for the demo")?;
    if let Some(kubeconfig) = &args.kubeconfig {
        site::announce(ui, workspace, kubeconfig, args)?;
    }
    ui.line(bold("Preparing"));
    let workshop = build(ui, workspace)?;
    let site = Site::open(ui, workspace, args, &folder)?;
    let demo = Demo { ui, workspace, args, workshop, folder };
    let shown = demo.show(&site);
    let ended = site.end(ui);
    let code = shown?;
    ended?;
    Ok(code)
}

/// Builds all that is shown; returns where more is built later.
fn build<'a>(ui: &Ui, workspace: &'a Workspace) -> Result<Workshop<'a>> {
    ui.doing("plugin", |task| plugins::build(task, workspace, &[PLUGIN.to_owned()]))?;
    ui.doing("build", |task| {
        builds::must(task, workspace.build_daemon(), "the build of the daemon")?;
        Ok("capstan, the daemon".to_owned())
    })?;
    let mut task = ui.task("workshop");
    match Workshop::open(&mut task, workspace, script::edit()) {
        Ok(workshop) => {
            task.done("a copy of the plugin's source, to be changed");
            Ok(workshop)
        }
        Err(error) => {
            task.failed("");
            Err(error)
        }
    }
}

// === impl Demo ===

impl Demo<'_> {
    /// Starts the daemon and plays all acts; a failure keeps the daemon's log.
    fn show(self, site: &Site) -> Result<ExitCode> {
        let error = match self.play(site) {
            Ok(code) => return Ok(code),
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => error,
        };
        let ui = self.ui;
        ui.line("");
        match error.downcast_ref::<Unmet>() {
            Some(unmet) => ui.line(format!("{}\n{unmet}", red("This was not as expected:"))),
            None => ui::error(&error),
        }
        if self.log().exists() {
            let kept = self.folder.keep().join(LOG);
            ui.line(format!("\n{}", dim(&format!("the end of {}:", kept.display()))));
            ui::whole(&daemon::tail(&kept, TAIL));
        }
        Ok(ExitCode::FAILURE)
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join(LOG)
    }

    fn play(&self, site: &Site) -> Result<ExitCode> {
        let Self { ui, workspace, args, workshop, folder } = self;
        let watches = Watches::start(&site.kubectl)?;
        let Installed { manifest, component } = site.install(workspace, folder)?;
        let mut daemon = Daemon::start(&workspace.daemon(), &manifest, &site.kubectl, self.log())?;
        ui.doing("daemon", |task| daemon.wait(task))?;
        ui::uncut(dim(&format!("    its log is {}", daemon.log().display())));

        let watch = Stopwatch::start();
        let props = Props {
            ui,
            kubectl: &site.kubectl,
            watches: &watches,
            workshop,
            component: &component,
            limit: site.limit(),
        };
        let acts = script::acts(&mut Stage::new(props, &mut daemon))?;
        let summary = format!("All {acts} acts went as expected, in {}.", said(watch.spent()));
        ui.line(format!("\n{}", green(&summary)));
        sum_up(ui, &daemon)?;
        drop(watches);
        if args.once {
            return Ok(ExitCode::SUCCESS);
        }
        self.hand_over(site, &daemon, &component);
        while interrupt::pause().is_ok() {
            daemon.check()?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn hand_over(&self, site: &Site, daemon: &Daemon, component: &Path) {
        let ui = self.ui;
        ui.line(format!("\n{}", bold("It is yours now. In another terminal:")));
        for line in site.kubectl.exports() {
            ui::uncut(format!("  {}", cyan(&line)));
        }
        let shown = |words: &str| site.kubectl.shown(words);
        let [change, swap] = self.workshop.by_hand(component);
        let address = daemon.address();
        let examples = [
            (shown("apply -f plugins/webpage/example.yaml"), ""),
            (shown("get webpages,configmaps,deployments,services,ingresses"), "what there is"),
            (shown(&format!(r#"patch webpage {PAGE} --type merge -p '{{"spec":{{"exposed":false}}}}'"#)), "no Ingress"),
            (shown(&format!("delete service {PAGE}")), "comes back"),
            (change, "change the operator …"),
            (swap, "… and swap it"),
            (format!("curl -s http://{address}/debug/plugins"), "which version is at work"),
            (format!("curl -s http://{address}/metrics"), ""),
            (format!("tail -f {}", daemon.log().display()), ""),
        ];
        for (command, note) in examples {
            let note = if note.is_empty() { String::new() } else { dim(&format!("   # {note}")) };
            ui::uncut(format!("  {}{note}", cyan(&command)));
        }
        ui.line(format!("\n{}", dim("Ctrl-C ends it all.")));
    }
}

fn sum_up(ui: &Ui, daemon: &Daemon) -> Result<()> {
    let count = |name: &str| daemon.count(&format!("capstan_reconciliations_{name}_total"));
    let (runs, failed) = (count("started")?, count("failure")?);
    let memory = daemon.memory().map_or_else(
        || "this system does not say how much memory".to_owned(),
        |bytes| format!("{} of memory (Pss)", size(bytes)),
    );
    ui.line(format!("The daemon: {memory}, {runs} runs, {failed} of them failed."));
    Ok(())
}

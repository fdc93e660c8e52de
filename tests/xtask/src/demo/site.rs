//! Decides which cluster the demo is shown on, what it makes there, and how that goes away again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cluster::{Cluster, Options, Tool};

use super::Args;
use super::world::PAGE;
use crate::copies::Edit;
use crate::interrupt::Interrupted;
use crate::ui::{self, Ui, bold};
use crate::workspace::Workspace;
use crate::{control_plane, files};

/// The custom resource, as file and by name.
const CRD: &str = "plugins/webpage/crd.yaml";
const CRD_NAME: &str = "webpages.sample.capstan.dev";

/// A cluster, and what has been made in it.
pub(super) struct Site {
    program: PathBuf,
    pub(super) kubeconfig: PathBuf,
    pub(super) namespace: String,
    root: PathBuf,
    /// None if it is the visitor's.
    own: Option<Cluster>,
    /// What has been made in a cluster of the visitor's, in the order of its making: kind and name.
    made: Vec<[String; 2]>,
}

impl Site {
    pub(super) fn start(ui: &Ui, workspace: &Workspace, args: &Args, folder: &Path) -> Result<Self> {
        // Before the garbage collector starts, it then knows the kind at once.
        let manifests = vec![workspace.root.join(CRD)];
        let options = Options { manifests, ..Options::default() }.with_nodes();
        let cluster = control_plane::start_shown(ui, "control plane", options)?;
        let (program, kubeconfig) = (cluster.kubectl_path().to_owned(), folder.join("kubeconfig"));
        fs::copy(cluster.admin_kubeconfig(), &kubeconfig).with_context(|| format!("write {}", kubeconfig.display()))?;
        let site = Self::new(workspace, args, program, kubeconfig, Some(cluster));
        site.run(&["config", "set-context", "--current"])?;
        Ok(site)
    }

    /// Goes to a cluster of the visitor's: says what will be written to it, and asks.
    pub(super) fn visit(ui: &Ui, workspace: &Workspace, args: &Args, kubeconfig: &Path) -> Result<Self> {
        let mut program = PathBuf::from("kubectl");
        if Command::new(&program).args(["version", "--client"]).output().is_err() {
            ui.doing("kubectl", |task| {
                let tools = control_plane::prepare(task, [Tool::Kubectl].into())?;
                tools.path(Tool::Kubectl)?.clone_into(&mut program);
                Ok(program.display().to_string())
            })?;
        }
        let site = Self::new(workspace, args, program, std::path::absolute(kubeconfig)?, None);
        let target = "jsonpath={.current-context} ({.clusters[0].cluster.server})";
        let target = site.run(&["config", "view", "--minify", "-o", target])?;
        ui.line(format!(
            "{}\n  \
             the kind WebPage (CustomResourceDefinition {CRD_NAME}), unless it is there\n  \
             the namespace {}, unless it is there\n  \
             in it a WebPage {PAGE} and what the operator makes of it: ConfigMap, Deployment (one pod of nginx), Service, Ingress\n\
             The operator runs on this machine, with the rights of {}, and looks at that namespace only.\n\
             All of it is removed in the end.\n",
            bold(&format!("This is going to be written to {target}:")),
            args.namespace,
            workspace.short(kubeconfig).display(),
        ));
        let answer = if args.yes { Some(true) } else { ui::ask("Go on?") };
        let answer = answer.context("nobody is here to be asked: --yes says that this is wanted")?;
        if answer { Ok(site) } else { Err(Interrupted.into()) }
    }

    fn new(workspace: &Workspace, args: &Args, program: PathBuf, kubeconfig: PathBuf, own: Option<Cluster>) -> Self {
        let (namespace, root) = (args.namespace.clone(), workspace.root.clone());
        Self { program, kubeconfig, namespace, root, own, made: Vec::new() }
    }

    /// Makes the custom resource and the namespace where they are missing.
    pub(super) fn furnish(&mut self, ui: &Ui) -> Result<()> {
        ui.doing("custom resource", |_| {
            if self.make("customresourcedefinition", CRD_NAME)? {
                self.run(&["apply", "--server-side", "-f", CRD])?;
            }
            let name = format!("customresourcedefinition/{CRD_NAME}");
            self.run(&["wait", "--for=condition=Established", "--timeout=30s", &name])?;
            Ok(CRD_NAME.to_owned())
        })?;
        let namespace = self.namespace.clone();
        if self.make("namespace", &namespace)? {
            self.run(&["create", "namespace", &namespace])?;
        }
        if !self.make("webpage", PAGE)? {
            bail!("there is a WebPage {PAGE} in {namespace} already: --namespace says another one");
        }
        Ok(())
    }

    /// Returns whether an object is missing, and has to be removed in the end.
    fn make(&mut self, kind: &str, name: &str) -> Result<bool> {
        let is_missing = self.run(&["get", kind, name, "--ignore-not-found", "-o", "name"])?.is_empty();
        self.made.extend(is_missing.then(|| [kind, name].map(str::to_owned)));
        Ok(is_missing)
    }

    /// Returns how long the operator may take for what it does. Nodes of the visitor's have images to pull, and their
    /// garbage collector takes up to half a minute to notice a new kind.
    pub(super) fn limit(&self) -> Duration {
        Duration::from_secs(if self.own.is_some() { 20 } else { 180 })
    }

    /// Puts component and manifest side by side into a new folder, so that what happens to them there happens to nobody else; on a
    /// cluster of the visitor's, the manifest is bound to the namespace. Returns manifest and component.
    pub(super) fn install(&self, workspace: &Workspace, folder: &Path) -> Result<[PathBuf; 2]> {
        let built = workspace.built_plugins();
        fs::create_dir(folder).with_context(|| format!("create {}", folder.display()))?;
        let [manifest, component] = ["webpage.yaml", "webpage.wasm"].map(|name| folder.join(name));
        let from = built.join("webpage.wasm");
        fs::copy(&from, &component).with_context(|| format!("copy {}", from.display()))?;
        let text = files::text(&built.join("webpage.yaml"))?;
        let text = if self.own.is_some() { text } else { bound(&text, &self.namespace)? };
        fs::write(&manifest, text).with_context(|| format!("write {}", manifest.display()))?;
        Ok([manifest, component])
    }

    /// Removes what was made, or ends the control plane.
    pub(super) fn end(self, ui: &Ui) -> Result<()> {
        if let Some(cluster) = self.own {
            cluster.stop();
            return Ok(());
        }
        if self.made.is_empty() {
            return Ok(());
        }
        ui.line("");
        ui.doing("tidying up", |task| {
            for [kind, name] in self.made.iter().rev() {
                task.at(&format!("{kind} {name}"));
                self.run(&["delete", kind, name, "--ignore-not-found", "--timeout=120s"])
                    .with_context(|| format!("{kind} {name} is still there"))?;
            }
            Ok("what was made is gone".to_owned())
        })
    }

    // === kubectl ===

    /// Returns a command of kubectl as a visitor would type it.
    pub(super) fn shown(&self, words: &str) -> String {
        // The kubeconfig of our own cluster says the namespace already.
        let namespace = self.own.is_none().then(|| format!("-n {} ", self.namespace));
        format!("kubectl {}{words}", namespace.unwrap_or_default())
    }

    /// Returns what a visitor's shell needs to be told first.
    pub(super) fn exports(&self) -> Vec<String> {
        let mut lines = vec![format!("export KUBECONFIG={}", self.kubeconfig.display())];
        let folder = self.program.parent().filter(|folder| folder.is_absolute());
        lines.extend(folder.map(|folder| format!("export PATH=$PATH:{}", folder.display())));
        lines
    }

    /// Returns kubectl with its arguments.
    pub(super) fn kubectl(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env("KUBECONFIG", &self.kubeconfig).args(["--namespace", &self.namespace]).args(words);
        command.current_dir(&self.root).stdin(Stdio::null());
        command
    }

    /// Runs kubectl and returns what it wrote. Ctrl-C doesn't end it, so that it can be used to tidy up.
    fn run(&self, words: &[&str]) -> Result<String> {
        let output = self.kubectl(words).output().with_context(|| format!("start {}", self.program.display()))?;
        if !output.status.success() {
            bail!("kubectl {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// Binds the sample's manifest to one namespace.
fn bound(manifest: &str, namespace: &str) -> Result<String> {
    let from = "      plugin: webpage\n";
    let to = format!("{from}      namespaces: [{namespace}]\n");
    Edit { file: "webpage.yaml", from, to: &to }.of(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_of_the_sample_can_be_bound_to_a_namespace() {
        let root = Workspace::load().unwrap().root;
        let manifest = files::text(&root.join("plugins/webpage/webpage.yaml")).unwrap();
        assert!(bound(&manifest, "demo").unwrap().contains("plugin: webpage\n      namespaces: [demo]\n      primary"));
        assert!(bound("{}", "demo").is_err());
    }
}

//! Decides which cluster the demo is shown on, what it makes there, and how that goes away again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cluster::{Cluster, Options, Tool};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::control_plane;
use crate::demo::kubectl::{self, Kubectl};
use crate::demo::script::PAGE;
use crate::demo::{Args, PLUGIN};
use crate::interrupt::Interrupted;
use crate::ui::{self, Ui, bold};
use crate::workspace::Workspace;

/// The custom resource, as file and by name.
const CRD: &str = "plugins/webpage/crd.yaml";
const CRD_NAME: &str = "webpages.sample.capstan.dev";

/// The cluster, and what has been made in it.
pub(crate) struct Site {
    /// How to speak to it.
    pub(crate) kubectl: Kubectl,
    /// None if it is the visitor's.
    own: Option<Cluster>,
    /// What has been made in a cluster of the visitor's, in the order of its making: kind and name.
    made: Vec<(&'static str, String)>,
}

/// What the daemon is given.
pub(crate) struct Installed {
    pub(crate) manifest: PathBuf,
    pub(crate) component: PathBuf,
}

/// Says what will be written to a cluster of the visitor's, and asks.
///
/// # Errors
/// When the answer is no, or nobody can answer.
pub(crate) fn announce(ui: &Ui, workspace: &Workspace, kubeconfig: &Path, args: &Args) -> Result<()> {
    let text = fs::read_to_string(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let config: Value = serde_yaml::from_str(&text).with_context(|| format!("read {}", kubeconfig.display()))?;
    ui.line(format!(
        "{}\n  \
         the kind WebPage (CustomResourceDefinition {CRD_NAME}), unless it is there\n  \
         the namespace {ns}, unless it is there\n  \
         in it a WebPage {PAGE} and what the operator makes of it: ConfigMap, Deployment (one pod of nginx), Service, Ingress\n\
         The operator runs on this machine, with the rights of {}, and looks at that namespace only.\n\
         All of it is removed in the end.\n",
        bold(&format!("This is going to be written to {}:", target(&config))),
        workspace.short(kubeconfig).display(),
        ns = args.namespace,
    ));
    if args.yes {
        return Ok(());
    }
    if !ui::can_ask() {
        bail!("nobody is here to be asked: --yes says that this is wanted");
    }
    if !ui::ask("Go on?") {
        return Err(Interrupted.into());
    }
    Ok(())
}

/// Returns the cluster that a kubeconfig leads to, for people.
fn target(config: &Value) -> String {
    let text = |value: Option<&Value>| Some(value?.as_str()?.to_owned());
    let named = |list: &str, name: &str| {
        let list = config.get(list)?.as_array()?;
        list.iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some(name))
    };
    let context = text(config.get("current-context")).unwrap_or_default();
    let server = named("contexts", &context)
        .and_then(|entry| text(entry.pointer("/context/cluster")))
        .and_then(|name| text(named("clusters", &name)?.pointer("/cluster/server")));
    match server {
        Some(server) => format!("{context} ({server})"),
        None => format!("the cluster of context {context:?}"),
    }
}

// === impl Site ===

impl Site {
    /// Starts a control plane, or goes to the cluster of the visitor; then makes the custom resource and the namespace.
    ///
    /// # Errors
    /// When one of these fails. What has been made in a cluster of the visitor's is removed again.
    pub(crate) fn open(ui: &Ui, workspace: &Workspace, args: &Args, folder: &TempDir) -> Result<Self> {
        let mut site = match &args.kubeconfig {
            None => Self::own(ui, workspace, args, folder)?,
            Some(kubeconfig) => Self::visited(ui, workspace, args, kubeconfig)?,
        };
        match site.furnish(ui) {
            Ok(()) => Ok(site),
            Err(error) => {
                site.end(ui)?;
                Err(error)
            }
        }
    }

    fn own(ui: &Ui, workspace: &Workspace, args: &Args, folder: &TempDir) -> Result<Self> {
        // Before the garbage collector starts, it then knows the kind at once.
        let options =
            control_plane::with_nodes(Options { manifests: vec![workspace.root.join(CRD)], ..Options::default() });
        let cluster = control_plane::start_shown(ui, "control plane", options)?;
        let kubectl = Kubectl {
            program: cluster.kubectl_path().to_owned(),
            kubeconfig: folder.path().join("kubeconfig"),
            namespace: args.namespace.clone(),
            root: workspace.root.clone(),
            namespace_is_default: true,
        };
        fs::copy(cluster.admin_kubeconfig(), &kubectl.kubeconfig)
            .with_context(|| format!("write {}", kubectl.kubeconfig.display()))?;
        kubectl.run(&["config", "set-context", "--current"])?;
        Ok(Self { kubectl, own: Some(cluster), made: Vec::new() })
    }

    fn visited(ui: &Ui, workspace: &Workspace, args: &Args, kubeconfig: &Path) -> Result<Self> {
        let installed = PathBuf::from("kubectl");
        let program = if kubectl::works(&installed) {
            installed
        } else {
            let mut program = PathBuf::new();
            ui.doing("kubectl", |task| {
                let tools = control_plane::prepare(task, [Tool::Kubectl].into())?;
                tools.path(Tool::Kubectl)?.clone_into(&mut program);
                Ok(program.display().to_string())
            })?;
            program
        };
        let kubectl = Kubectl {
            program,
            kubeconfig: std::path::absolute(kubeconfig)?,
            namespace: args.namespace.clone(),
            root: workspace.root.clone(),
            namespace_is_default: false,
        };
        Ok(Self { kubectl, own: None, made: Vec::new() })
    }

    /// Makes the custom resource and the namespace where they are missing.
    fn furnish(&mut self, ui: &Ui) -> Result<()> {
        ui.doing("custom resource", |_| {
            if !self.kubectl.has("customresourcedefinition", CRD_NAME)? {
                self.kubectl.run(&["apply", "--server-side", "-f", CRD])?;
                self.made.push(("customresourcedefinition", CRD_NAME.to_owned()));
            }
            let name = format!("customresourcedefinition/{CRD_NAME}");
            self.kubectl.run(&["wait", "--for=condition=Established", "--timeout=30s", &name])?;
            Ok(CRD_NAME.to_owned())
        })?;
        let namespace = self.kubectl.namespace.clone();
        if !self.kubectl.has("namespace", &namespace)? {
            self.kubectl.run(&["create", "namespace", &namespace])?;
            self.made.push(("namespace", namespace.clone()));
        }
        if self.kubectl.has("webpage", PAGE)? {
            bail!("there is a WebPage {PAGE} in {namespace} already: --namespace says another one");
        }
        self.made.push(("webpage", PAGE.to_owned()));
        Ok(())
    }

    /// Returns how long the operator may take for what it does. Nodes of the visitor's have images to pull, and their
    /// garbage collector takes up to half a minute to notice a new kind.
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(if self.own.is_some() { 20 } else { 180 })
    }

    /// Puts component and manifest side by side into a folder that is the demo's own, so that what happens to them there
    /// happens to nobody else; on a cluster of the visitor's, the manifest is bound to the namespace.
    ///
    /// # Errors
    /// When something can't be read or written.
    pub(crate) fn install(&self, workspace: &Workspace, folder: &TempDir) -> Result<Installed> {
        let built = workspace.built_plugins().join(PLUGIN);
        let own = folder.path().join("operator");
        fs::create_dir(&own).with_context(|| format!("create {}", own.display()))?;
        let installed = Installed {
            manifest: own.join(PLUGIN).with_extension("yaml"),
            component: own.join(PLUGIN).with_extension("wasm"),
        };
        let component = built.with_extension("wasm");
        fs::copy(&component, &installed.component).with_context(|| format!("copy {}", component.display()))?;
        let path = built.with_extension("yaml");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let text = if self.own.is_some() {
            text
        } else {
            let mut manifest: Value = serde_yaml::from_str(&text)?;
            bind(&mut manifest, &self.kubectl.namespace)
                .with_context(|| format!("{} is not as expected", path.display()))?;
            // JSON is YAML.
            manifest.to_string()
        };
        fs::write(&installed.manifest, text).with_context(|| format!("write {}", installed.manifest.display()))?;
        Ok(installed)
    }

    /// Removes what was made, or ends the control plane.
    ///
    /// # Errors
    /// When something could not be removed; the text says what.
    pub(crate) fn end(self, ui: &Ui) -> Result<()> {
        let Self { kubectl, own, made } = self;
        if let Some(cluster) = own {
            cluster.stop();
            return Ok(());
        }
        if made.is_empty() {
            return Ok(());
        }
        ui.line("");
        ui.doing("tidying up", |task| {
            for (kind, name) in made.iter().rev() {
                task.at(&format!("{kind} {name}"));
                kubectl
                    .run(&["delete", kind, name, "--ignore-not-found", "--timeout=120s"])
                    .with_context(|| format!("{kind} {name} is still there"))?;
            }
            Ok("what was made is gone".to_owned())
        })
    }
}

/// Binds a manifest to one namespace.
fn bind(manifest: &mut Value, namespace: &str) -> Option<()> {
    let controllers = manifest.pointer_mut("/spec/controllers")?.as_object_mut()?;
    for controller in controllers.values_mut() {
        controller.as_object_mut()?.insert("namespaces".to_owned(), json!([namespace]));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_is_said_by_its_context_and_server() {
        let config = json!({
            "current-context": "b",
            "contexts": [
                { "name": "a", "context": { "cluster": "x" } },
                { "name": "b", "context": { "cluster": "y" } },
            ],
            "clusters": [
                { "name": "x", "cluster": { "server": "https://x" } },
                { "name": "y", "cluster": { "server": "https://y" } },
            ],
        });
        assert_eq!(target(&config), "b (https://y)");
        assert_eq!(target(&json!({})), "the cluster of context \"\"");
    }

    #[test]
    fn a_manifest_is_bound_to_a_namespace() {
        let mut manifest = json!({ "spec": {
            "plugins": { "webpage": { "component": { "path": "webpage.wasm" } } },
            "controllers": { "webpage": { "plugin": "webpage" } },
        } });
        bind(&mut manifest, "demo").unwrap();
        let expected = json!({ "spec": {
            "plugins": { "webpage": { "component": { "path": "webpage.wasm" } } },
            "controllers": { "webpage": { "plugin": "webpage", "namespaces": ["demo"] } },
        } });
        assert_eq!(manifest, expected);
    }
}

//! Decides what a `Tomcat` and a `Webapp` need: a server as a Deployment whose pods fetch the archives that Webapps name, and what
//! each Webapp is told of it.
//!
//! Two controllers use this component; which of them calls shows in the kind of the primary.

use std::collections::BTreeMap;

use capstan_guest::{Metadata, Reconciler, Result, Update, cache};
use serde::Deserialize;
use serde_json::{Value, json};

/// Where the pods have the archives that they serve.
const FOLDER: &str = "/usr/local/tomcat/webapps";
/// The volume with them.
const VOLUME: &str = "webapps";
/// The annotation of pods that says which archives they have.
const ARTIFACTS: &str = "sample.capstan.dev/artifacts";

/// A primary of either controller.
#[derive(Deserialize)]
#[serde(tag = "kind")]
enum Primary {
    Tomcat(Tomcat),
    Webapp(Webapp),
}

#[derive(Deserialize)]
struct Tomcat {
    metadata: Metadata,
    spec: TomcatSpec,
    #[serde(default)]
    status: TomcatStatus,
}

#[derive(Deserialize)]
struct TomcatSpec {
    version: String,
    replicas: u64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TomcatStatus {
    #[serde(default)]
    ready_replicas: u64,
    /// The archives that all servers have, by their context paths.
    #[serde(default)]
    artifacts: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Webapp {
    metadata: Metadata,
    spec: WebappSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WebappSpec {
    tomcat: String,
    url: String,
    context_path: String,
}

/// The Deployment of a `Tomcat`, as far as it is read here.
#[derive(Deserialize)]
struct Deployment {
    metadata: Metadata,
    spec: DeploymentSpec,
    #[serde(default)]
    status: DeploymentStatus,
}

#[derive(Deserialize)]
struct DeploymentSpec {
    #[serde(default)]
    replicas: u64,
    template: Template,
}

#[derive(Deserialize)]
struct Template {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DeploymentStatus {
    observed_generation: i64,
    replicas: u64,
    updated_replicas: u64,
    ready_replicas: u64,
}

struct TomcatOperator;

impl Reconciler for TomcatOperator {
    type Primary = Primary;

    fn reconcile(primary: &Primary) -> Result<Update> {
        match primary {
            Primary::Tomcat(tomcat) => tomcat.status(),
            Primary::Webapp(webapp) => webapp.status(),
        }
    }
}

#[capstan_guest::dependents]
impl TomcatOperator {
    fn deployment(primary: &Primary) -> Result<Value> {
        primary.tomcat()?.deployment()
    }

    fn service(primary: &Primary) -> Result<Value> {
        let name = &primary.tomcat()?.metadata.name;
        Ok(json!({
            "metadata": { "name": name },
            "spec": { "selector": { "app": name }, "ports": [{ "port": 80, "targetPort": 8080, "protocol": "TCP" }] },
        }))
    }
}

capstan_guest::export!(TomcatOperator: Reconciler, Dependents);

impl Primary {
    fn tomcat(&self) -> Result<&Tomcat> {
        match self {
            Self::Tomcat(tomcat) => Ok(tomcat),
            Self::Webapp(_) => Err("only a Tomcat has dependents".into()),
        }
    }
}

impl Tomcat {
    /// Returns the archives that its Webapps name, by their context paths. Of two with one path the first by name has it.
    fn wanted() -> Result<BTreeMap<String, String>> {
        let mut webapps: Vec<Webapp> = cache::source("webapps").related().all()?;
        webapps.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let mut wanted = BTreeMap::new();
        for WebappSpec { url, context_path, .. } in webapps.into_iter().map(|webapp| webapp.spec) {
            wanted.entry(context_path).or_insert(url);
        }
        Ok(wanted)
    }

    fn deployment(&self) -> Result<Value> {
        let (name, wanted) = (&self.metadata.name, Self::wanted()?);
        let mount = json!([{ "name": VOLUME, "mountPath": FOLDER }]);
        let fetching = wanted.iter().map(|(path, url)| {
            let context = path.trim_start_matches('/');
            // No shell: an address is never more than that.
            let command = json!(["wget", "-O", format!("{FOLDER}/{context}.war"), url]);
            json!({ "name": format!("fetch-{context}"), "image": "busybox:1.37", "command": command, "volumeMounts": mount })
        });
        let fetching: Vec<Value> = fetching.collect();
        let server = json!({
            "name": "tomcat", "image": format!("tomcat:{}", self.spec.version), "volumeMounts": mount,
            "ports": [{ "containerPort": 8080, "protocol": "TCP" }],
        });
        let pod = json!({
            "initContainers": fetching, "containers": [server], "volumes": [{ "name": VOLUME, "emptyDir": {} }],
        });
        // What a template has is read from here, once its pods are there.
        let annotations = json!({ ARTIFACTS: serde_json::to_string(&wanted)? });
        Ok(json!({
            "metadata": { "name": name },
            "spec": { "replicas": self.spec.replicas, "selector": { "matchLabels": { "app": name } }, "template": {
                "metadata": { "labels": { "app": name }, "annotations": annotations },
                "spec": pod,
            } },
        }))
    }

    /// Says how many servers are ready, and which archives all of them have: those of the Deployment once it is rolled out.
    fn status(&self) -> Result<Update> {
        let Some(deployment) = cache::source("deployment").one::<Deployment>()? else {
            return Ok(Update::nothing());
        };
        let artifacts = deployment.artifacts()?.unwrap_or_else(|| self.status.artifacts.clone());
        Ok(Update::status(json!({ "readyReplicas": deployment.status.ready_replicas, "artifacts": artifacts })))
    }
}

impl Deployment {
    /// Returns the archives that all pods have; `None` while pods of another template are there, or not all are ready.
    fn artifacts(&self) -> Result<Option<BTreeMap<String, String>>> {
        let DeploymentStatus { observed_generation, replicas, updated_replicas, ready_replicas } = self.status;
        let wanted = self.spec.replicas;
        let rolled_out = self.metadata.generation.is_some_and(|generation| observed_generation >= generation)
            && [replicas, updated_replicas, ready_replicas].iter().all(|count| *count == wanted);
        let told = self.spec.template.metadata.annotations.get(ARTIFACTS).filter(|_| rolled_out && wanted > 0);
        Ok(told.map(|told| serde_json::from_str(told)).transpose()?)
    }
}

impl Webapp {
    /// Says which archive all servers of its Tomcat have under its path, and if that is not its own, why.
    fn status(&self) -> Result<Update> {
        let WebappSpec { tomcat, url, context_path } = &self.spec;
        let server: Option<Tomcat> = cache::source("server").one()?;
        let served = server.as_ref().and_then(|server| server.status.artifacts.get(context_path));
        let waiting = match (&server, served) {
            (None, _) => Some(format!("there is no Tomcat {tomcat}")),
            (Some(_), Some(served)) if served == url => None,
            (Some(_), Some(other)) => Some(format!("the servers have {other}")),
            (Some(server), None) => {
                Some(format!("{} of {} servers are ready", server.status.ready_replicas, server.spec.replicas))
            }
        };
        let fields = [("deployedArtifact", served.cloned()), ("waitingFor", waiting)];
        let status: BTreeMap<_, _> = fields.into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
        Ok(Update::status(status))
    }
}

#[cfg(test)]
mod tests;

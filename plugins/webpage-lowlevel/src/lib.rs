//! Decides what a `WebPage` needs, and writes it itself: the sample without a workflow.
//!
//! Each write is left out by the daemon if the object is as wanted, and causes no run of its own.

use capstan_guest::operations::{self, ObjectRef};
use capstan_guest::{Metadata, Reconciler, Result, Update, cache};
use serde::Deserialize;
use serde_json::{Value, json};

/// The custom resource, as far as it is read here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WebPage {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    html: String,
    #[serde(default)]
    exposed: bool,
}

struct WebPageOperator;

impl Reconciler for WebPageOperator {
    type Primary = WebPage;

    fn reconcile(page: &WebPage) -> Result<Update> {
        if !page.spec.html.contains("<html") || !page.spec.html.contains("</html>") {
            let message = "spec.html needs <html> and </html>";
            return Ok(Update::status(json!({ "areWeGood": false, "errorMessage": message })));
        }
        for wanted in [page.config_map(), page.deployment(), page.service()] {
            operations::apply(&wanted)?;
        }
        page.ingress()?;
        let deployment: Option<Value> = cache::source("deployments").one()?;
        let replicas = deployment.and_then(|d| d.pointer("/status/readyReplicas")?.as_u64());
        let ready = replicas.is_some_and(|replicas| replicas > 0);
        Ok(Update::status(json!({ "areWeGood": ready, "htmlConfigMap": page.map_name() })))
    }
}

capstan_guest::export!(WebPageOperator: Reconciler);

impl WebPage {
    fn config_map(&self) -> Value {
        self.owned(("v1", "ConfigMap"), &self.map_name(), ("data", json!({ "index.html": self.spec.html })))
    }

    fn deployment(&self) -> Value {
        let mount = json!([{ "name": "html", "mountPath": "/usr/share/nginx/html" }]);
        let container = json!([{ "name": "nginx", "image": "nginx:1.29", "volumeMounts": mount }]);
        let volume = json!([{ "name": "html", "configMap": { "name": self.map_name() } }]);
        let pod =
            json!({ "metadata": { "labels": self.labels() }, "spec": { "containers": container, "volumes": volume } });
        let spec = json!({ "replicas": 1, "selector": { "matchLabels": self.labels() }, "template": pod });
        self.owned(("apps/v1", "Deployment"), &self.metadata.name, ("spec", spec))
    }

    fn service(&self) -> Value {
        let spec = json!({ "selector": self.labels(), "ports": [{ "port": 80, "targetPort": 80, "protocol": "TCP" }] });
        self.owned(("v1", "Service"), &self.metadata.name, ("spec", spec))
    }

    /// Writes the Ingress if the page is exposed, else removes it.
    fn ingress(&self) -> Result<()> {
        let name = &self.metadata.name;
        if self.spec.exposed {
            let service = json!({ "service": { "name": name, "port": { "number": 80 } } });
            let path = json!([{ "path": "/", "pathType": "Prefix", "backend": service }]);
            let spec = json!({ "rules": [{ "http": { "paths": path } }] });
            return operations::apply(&self.owned(("networking.k8s.io/v1", "Ingress"), name, ("spec", spec))).map(drop);
        }
        match cache::source("ingresses").one::<Value>()? {
            Some(ingress) => operations::remove(&ObjectRef::of(&ingress)?),
            None => Ok(()),
        }
    }

    /// Completes an object, whose one field is given: what it is called, and whose it is.
    fn owned(&self, (api_version, kind): (&str, &str), name: &str, content: (&str, Value)) -> Value {
        let (field, value) = content;
        let page = &self.metadata;
        let owner = json!({
            "apiVersion": self.api_version, "kind": self.kind, "name": page.name, "uid": page.uid,
        });
        let labels = self.labels();
        json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": { "name": name, "namespace": page.namespace, "labels": labels, "ownerReferences": [owner] },
            field: value,
        })
    }

    fn map_name(&self) -> String {
        format!("{}-html", self.metadata.name)
    }

    fn labels(&self) -> Value {
        json!({ "app": self.metadata.name })
    }
}

#[cfg(test)]
mod tests;

//! Decides what a `WebPage` needs in the cluster, and what its status says.

use capstan_guest::{ErrorHandler, Failure, Handled, Metadata, Reconciler, Result, Update};
use serde::Deserialize;
use serde_json::{Value, json};

/// The custom resource, as far as it is read here.
#[derive(Deserialize)]
struct WebPage {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    html: String,
}

struct WebPageOperator;

impl Reconciler for WebPageOperator {
    type Primary = WebPage;

    /// The workflow has run before: everything that the page needs is there.
    fn reconcile(page: &WebPage) -> Result<Update> {
        capstan_guest::debug!("page is published", html_config_map = page.config_map());
        Ok(Update::status(page.status()))
    }
}

impl ErrorHandler for WebPageOperator {
    type Primary = WebPage;

    /// Only a change of the page can mend bad HTML, so it is not retried. Anything else is.
    fn handle_error(page: &WebPage, _failure: &Failure) -> Result<Option<Handled>> {
        Ok(match page.html() {
            Ok(_) => None,
            Err(_) => Some(Handled::status(page.status()).stop()),
        })
    }
}

/// The `ConfigMap` comes first in the workflow: if it can't be made, the last good page stays as it is.
#[capstan_guest::dependents]
impl WebPageOperator {
    fn configmap(page: &WebPage) -> Result<Value> {
        Ok(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": page.config_map(), "labels": page.labels() },
            "data": { "index.html": page.html()? },
        }))
    }

    fn deployment(page: &WebPage) -> Value {
        let container = json!({
            "name": "nginx", "image": "nginx:1.29", "ports": [{ "containerPort": 80, "protocol": "TCP" }],
            "volumeMounts": [{ "name": "html", "mountPath": "/usr/share/nginx/html" }],
        });
        let volume = json!({ "name": "html", "configMap": { "name": page.config_map() } });
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": page.metadata.name, "labels": page.labels() },
            "spec": { "replicas": 1, "selector": { "matchLabels": page.labels() }, "template": {
                "metadata": { "labels": page.labels() },
                "spec": { "containers": [container], "volumes": [volume] },
            } },
        })
    }

    fn service(page: &WebPage) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": page.metadata.name, "labels": page.labels() },
            "spec": { "selector": page.labels(), "ports": [{ "port": 80, "targetPort": 80, "protocol": "TCP" }] },
        })
    }

    fn ingress(page: &WebPage) -> Value {
        let service = json!({ "name": page.metadata.name, "port": { "number": 80 } });
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": { "name": page.metadata.name, "labels": page.labels() },
            "spec": { "rules": [{ "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": { "service": service } }] } }] },
        })
    }
}

capstan_guest::export!(WebPageOperator: Reconciler, ErrorHandler, Dependents);

impl WebPage {
    fn html(&self) -> Result<&str> {
        match self.spec.html.as_str() {
            html if html.contains("<html") && html.contains("</html>") => Ok(html),
            _ => Err("spec.html needs <html> and </html>".into()),
        }
    }

    /// Follows from the page alone, so that it is written once for each change of the page.
    fn status(&self) -> Value {
        let (map, at) = (self.config_map(), self.metadata.generation);
        match self.html().err().map(|error| error.message().to_owned()) {
            None => json!({ "areWeGood": true, "htmlConfigMap": map, "observedGeneration": at }),
            Some(e) => json!({ "areWeGood": false, "errorMessage": e, "observedGeneration": at }),
        }
    }

    fn config_map(&self) -> String {
        format!("{}-html", self.metadata.name)
    }

    fn labels(&self) -> Value {
        json!({ "app": self.metadata.name })
    }
}

#[cfg(test)]
mod tests;

//! Decides whether a `WebPage` is right, has its workflow reconciled if so, and says in the status what that came to.

use capstan_guest::workflow::{self, ConditionRole, NodeResult, WorkflowResult};
use capstan_guest::{Cleaner, Deletion, ErrorHandler, Failure, Handled, Metadata, Reconciler, Result, Update};
use serde::Deserialize;
use serde_json::{Value, json};

/// The workflow under `standalone` in the manifest.
const SITE: &str = "site";

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

    /// For a page that is wrong the workflow does not run: what the last good one has made stays.
    fn reconcile(page: &WebPage) -> Result<Update> {
        if let Some(problem) = page.problem() {
            return Ok(Update::status(page.status(Some(problem))));
        }
        // An error if a node failed: `handle_error` says which.
        let result = workflow::standalone(SITE).reconcile()?;
        Ok(Update::status(page.status(awaited(&result).as_deref())))
    }
}

impl ErrorHandler for WebPageOperator {
    type Primary = WebPage;

    /// Says which nodes have failed; the run is retried as the manifest says.
    fn handle_error(page: &WebPage, _failure: &Failure) -> Result<Option<Handled>> {
        let failed = workflow::standalone(SITE).last_result().as_ref().and_then(failed);
        Ok(failed.map(|what| Handled::status(page.status(Some(&what)))))
    }
}

impl Cleaner for WebPageOperator {
    type Primary = WebPage;

    /// Nobody else cleans a standalone workflow up. The page stays until its Ingress is gone; the end of that calls this again.
    fn cleanup(_page: &WebPage) -> Result<Deletion> {
        let result = workflow::standalone(SITE).cleanup()?;
        Ok(if result.complete { Deletion::remove_finalizer() } else { Deletion::keep_finalizer() })
    }
}

#[capstan_guest::dependents]
impl WebPageOperator {
    fn configmap(page: &WebPage) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": page.config_map(), "labels": page.labels() },
            "data": { "index.html": page.spec.html },
        })
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

capstan_guest::export!(WebPageOperator: Reconciler, ErrorHandler, Cleaner, Dependents);

/// Returns the nodes that failed, each with its text; `None` if none did.
fn failed(result: &WorkflowResult) -> Option<String> {
    let failed = result.nodes.iter().filter_map(|node| Some(format!("{}: {}", node.name, node.failed.as_ref()?)));
    let failed: Vec<_> = failed.collect();
    (!failed.is_empty()).then(|| failed.join("; "))
}

/// Returns the nodes that are not ready; `None` once all is as it should be.
fn awaited(result: &WorkflowResult) -> Option<String> {
    let awaited = result.nodes.iter().filter(|node| is_awaited(node)).map(|node| node.name.as_str());
    (!result.complete).then(|| format!("not ready yet: {}", awaited.collect::<Vec<_>>().join(", ")))
}

/// Whether the ready postcondition of a node is not met.
fn is_awaited(node: &NodeResult) -> bool {
    node.conditions.iter().any(|condition| condition.role == ConditionRole::ReadyPostcondition && !condition.met)
}

impl WebPage {
    fn problem(&self) -> Option<&'static str> {
        let html = &self.spec.html;
        let is_page = html.contains("<html") && html.contains("</html>");
        (!is_page).then_some("spec.html needs <html> and </html>")
    }

    fn status(&self, lacking: Option<&str>) -> Value {
        let at = self.metadata.generation;
        match lacking {
            None => json!({ "areWeGood": true, "htmlConfigMap": self.config_map(), "observedGeneration": at }),
            Some(what) => json!({ "areWeGood": false, "errorMessage": what, "observedGeneration": at }),
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

//! Decides what a {{kind}} needs in the cluster, and what its status says.

use capstan_guest::{Metadata, Reconciler, Result, Update, dependents};
use serde::Deserialize;
use serde_json::{Value, json};

/// The custom resource, as far as it is read here.
#[derive(Deserialize)]
struct {{kind}} {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    greeting: String,
    name: String,
}

struct {{kind}}Operator;

#[dependents]
impl {{kind}}Operator {
    /// The ConfigMap that should exist. This comes before `reconcile`; if it fails, nothing is written.
    fn configmap(primary: &{{kind}}) -> Result<Value> {
        Ok(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": primary.metadata.name },
            "data": { "text": primary.spec.text()? },
        }))
    }
}

impl Reconciler for {{kind}}Operator {
    type Primary = {{kind}};

    /// The ConfigMap is there by now: the status says what it has.
    fn reconcile(primary: &{{kind}}) -> Result<Update> {
        Ok(Update::status(json!({ "text": primary.spec.text()? })))
    }
}

capstan_guest::export!({{kind}}Operator: Reconciler, Dependents);

impl Spec {
    /// What the schema in crd.yaml does not check is checked here.
    fn text(&self) -> Result<String> {
        if !self.greeting.contains("{name}") {
            return Err("spec.greeting needs {name}".into());
        }
        Ok(self.greeting.replace("{name}", &self.name))
    }
}

#[cfg(test)]
mod tests;

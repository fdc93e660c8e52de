//! Decides what a {{kind}} needs in the cluster, and what its status says.

use capstan_guest::{Metadata, Problem, Reconciler, Result, Update, Validator, dependents};
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

impl Validator for {{kind}}Operator {
    type Primary = {{kind}};

    /// What the schema in crd.yaml does not check is checked here, before anything is written.
    fn validate(primary: &{{kind}}) -> Result<Vec<Problem>> {
        let named = primary.spec.greeting.contains("{name}");
        Ok(if named { vec![] } else { vec![Problem::at("spec.greeting", "{name} is missing")] })
    }
}

#[dependents]
impl {{kind}}Operator {
    /// The ConfigMap that should exist. This comes before `reconcile`.
    fn configmap(primary: &{{kind}}) -> Result<Value> {
        Ok(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": primary.metadata.name },
            "data": { "text": primary.spec.text() },
        }))
    }
}

impl Reconciler for {{kind}}Operator {
    type Primary = {{kind}};

    /// The ConfigMap is there by now: the status says what it has.
    fn reconcile(primary: &{{kind}}) -> Result<Update> {
        Ok(Update::status(json!({ "text": primary.spec.text() })))
    }
}

capstan_guest::export!({{kind}}Operator: Validator, Reconciler, Dependents);

impl Spec {
    fn text(&self) -> String {
        self.greeting.replace("{name}", &self.name)
    }
}

#[cfg(test)]
mod tests;

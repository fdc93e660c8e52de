//! Decides what a {{kind}} needs in the cluster, and what its status says.

use capstan_guest::types::Resource;
use capstan_guest::{Metadata, Problem, Reconciler, Result, Update, Validator, dependents};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

// From these types, `capstan crd` writes crd.yaml: fields are spelled there as in Kubernetes, `max_length` is `maxLength`.

/// Somebody is greeted.
#[derive(Deserialize, JsonSchema, Resource)]
#[resource(api_version = "{{group}}/v1alpha1"{{called}}, conditions)]
#[resource(column("Ready", r#".status.conditions[?(@.type=="Ready")].status"#), column("Text", ".status.text"))]
pub struct {{kind}} {
    pub metadata: Metadata,
    pub spec: Spec,
    pub status: Option<Status>,
}

/// What is asked for.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// What is said, with {name} in it.
    #[serde(default = "hello")]
    #[schemars(length(max = 256))]
    pub greeting: String,
    /// Who is greeted.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}

/// What is told. The daemon adds the conditions.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// What the ConfigMap says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

fn hello() -> String {
    "Hello, {name}!".to_owned()
}

struct {{kind}}Operator;

impl Validator for {{kind}}Operator {
    type Primary = {{kind}};

    /// What the types can't say is checked here, before anything but the finalizer is written.
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
        Ok(Update::status(Status { text: Some(primary.spec.text()) }))
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

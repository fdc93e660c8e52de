//! Applies the definitions and examples of an operator's folder, those that have changed since.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use capstan_core::cluster::{Cluster as _, FieldValidation, Reason, Target, Verb, Write};
use capstan_core::object::{Gvk, ObjectRef, Scope};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::cli::objects::{objects, text};
use crate::client::{Access, ApiServer, Identity};

/// Who has applied it.
const MANAGER: &str = "capstan-dev";

/// How long the API server may take until it serves what a definition has defined.
const SERVED: Duration = Duration::from_secs(30);

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Applies files to a cluster.
pub(super) struct Applier {
    api: Arc<ApiServer>,
    /// The namespace of objects that name none.
    namespace: Arc<str>,
    /// The files as they were applied.
    applied: BTreeMap<PathBuf, String>,
}

impl Applier {
    pub(super) fn new(api: Arc<ApiServer>, namespace: &str) -> Self {
        Self { api, namespace: namespace.into(), applied: BTreeMap::new() }
    }

    /// Applies the objects of files that are not as they were applied last, waits until what they define is served, and returns their
    /// names.
    ///
    /// # Errors
    /// What is wrong in a file at which line, or what the API server says of which object.
    pub(super) async fn apply(&mut self, files: &[PathBuf]) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        for file in files {
            let now = text(file)?;
            if self.applied.get(file) == Some(&now) {
                continue;
            }
            for (gvk, object) in objects(file)? {
                names.push(self.one(file, gvk, object).await?);
            }
            self.applied.insert(file.clone(), now);
        }
        Ok(names)
    }

    /// Has these files applied again, as if they had changed.
    pub(super) fn forget(&mut self, files: &[PathBuf]) {
        self.applied.retain(|file, _| !files.contains(file));
    }

    async fn one(&self, file: &Path, gvk: Gvk, object: Value) -> anyhow::Result<String> {
        let scope = self.served(&gvk).await.with_context(|| format!("apply {}", file.display()))?;
        let defined = defined(&object);
        let (name, target, write) = self.write(gvk, object, scope);
        let access = Access::new(Arc::clone(&self.api), Identity::Daemon);
        access
            .write(Write::new(target.clone(), write, FieldValidation::Strict))
            .await
            .with_context(|| format!("apply {}", file.display()))?;
        if !defined.is_empty() {
            established(&access, &target).await.with_context(|| format!("apply {}: {name}", file.display()))?;
        }
        for gvk in defined {
            // It may be known by the name or the place that another definition gave it.
            self.api.doubt(&gvk);
            self.served(&gvk).await.with_context(|| format!("wait until {} is served", file.display()))?;
        }
        Ok(name)
    }

    /// Returns the write that applies an object.
    fn write(&self, gvk: Gvk, mut object: Value, scope: Scope) -> (String, Target, Verb) {
        let text = |field: &str| object.pointer(field).and_then(Value::as_str).map(Arc::<str>::from);
        let name = text("/metadata/name").unwrap_or_default();
        let key = match scope {
            Scope::Namespaced => {
                let namespace = text("/metadata/namespace").unwrap_or_else(|| Arc::clone(&self.namespace));
                if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
                    metadata.insert("namespace".to_owned(), json!(&*namespace));
                }
                ObjectRef::namespaced(&namespace, &name)
            }
            Scope::Cluster => ObjectRef::cluster(&name),
        };
        let said = format!("{} {key}", gvk.kind);
        let verb = Verb::Apply { body: object.to_string(), manager: MANAGER.into(), force: true };
        (said, Target::object(gvk, key), verb)
    }

    /// Waits until a kind is served, though not for ever; returns where its objects live.
    async fn served(&self, gvk: &Gvk) -> anyhow::Result<Scope> {
        let until = Instant::now() + SERVED;
        loop {
            match self.api.resolve(gvk).await {
                Ok(kind) => return Ok(kind.scope),
                Err(error) if error.reason == Reason::UnknownKind && Instant::now() < until => sleep(LOOK).await,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Waits until the API server serves what a definition defines, though not for ever.
///
/// # Errors
/// Why it does not: another definition may have its names.
async fn established(access: &Access, definition: &Target) -> anyhow::Result<()> {
    let until = Instant::now() + SERVED;
    loop {
        let found = access.get(&definition.gvk, &definition.key).await?;
        let tree = found.map(|found| serde_json::from_str(found.json())).transpose()?.unwrap_or(Value::Null);
        match accepted(&tree) {
            Some(accepted) => return accepted,
            None if Instant::now() < until => sleep(LOOK).await,
            None => anyhow::bail!("it is not established within {} s", SERVED.as_secs()),
        }
    }
}

/// Whether the API server has taken the names of a definition; `None` as long as it has not said.
fn accepted(definition: &Value) -> Option<anyhow::Result<()>> {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array)?;
    let of = |name: &str| conditions.iter().find(|condition| condition.get("type").is_some_and(|kind| kind == name));
    let says = |name: &str, status: &str| of(name).filter(|one| one.get("status").is_some_and(|now| now == status));
    if let Some(refused) = says("NamesAccepted", "False") {
        let why = refused.get("message").and_then(Value::as_str).unwrap_or("no reason is given");
        return Some(Err(anyhow::anyhow!(
            "its names are not accepted: {why}; delete the definition that has them, or take others, and save it again"
        )));
    }
    says("Established", "True").map(|_| Ok(()))
}

/// Returns the kinds that an object defines: none if it is no definition.
fn defined(object: &Value) -> Vec<Gvk> {
    let text = |value: &Value, field: &str| value.pointer(field).and_then(Value::as_str).map(str::to_owned);
    let (Some("CustomResourceDefinition"), Some(group), Some(kind)) =
        (object.get("kind").and_then(Value::as_str), text(object, "/spec/group"), text(object, "/spec/names/kind"))
    else {
        return Vec::new();
    };
    let versions = object.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    let served = versions.filter(|version| version.get("served") != Some(&Value::Bool(false)));
    let names = served.filter_map(|version| text(version, "/name"));
    names.filter_map(|version| Gvk::parse(&format!("{group}/{version}"), &kind).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_whose_names_another_has_is_told_as_wrong() {
        let with = |conditions: Value| accepted(&json!({ "status": { "conditions": conditions } }));
        let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "message": "\"BatchList\" is already in use" });
        assert!(accepted(&json!({})).is_none() && with(json!([])).is_none());
        assert!(with(json!([condition("Established", "False")])).is_none());
        assert!(with(json!([condition("NamesAccepted", "True"), condition("Established", "True")])).unwrap().is_ok());
        // What it defined before is served as long as another has its new names.
        let refused = with(json!([condition("Established", "True"), condition("NamesAccepted", "False")])).unwrap();
        let said = refused.unwrap_err().to_string();
        assert!(said.starts_with("its names are not accepted: \"BatchList\" is already in use; delete"), "{said}");
    }

    #[test]
    fn a_definition_defines_its_versions_that_are_served() {
        let versions = json!([{ "name": "v1", "served": true }, { "name": "v0", "served": false }]);
        let spec = json!({ "group": "a.dev", "names": { "kind": "Page" }, "versions": versions });
        let found = defined(&json!({ "kind": "CustomResourceDefinition", "spec": spec.clone() }));
        assert_eq!(found, [Gvk::parse("a.dev/v1", "Page").unwrap()]);
        assert_eq!(defined(&json!({ "kind": "ConfigMap", "spec": spec })), []);
    }
}

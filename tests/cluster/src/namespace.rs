//! Decides where a test puts its objects, so that tests that run at the same time don't meet.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::api::Api;
use crate::identity::{User, chance};

/// A namespace of its own for one test. Dropping this requests its deletion, and doesn't wait for it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    api: Api,
}

impl Namespace {
    pub(crate) fn create(api: Api, prefix: &str) -> Result<Self> {
        let name = format!("{prefix}-{}", chance(4)?);
        api.create("/api/v1/namespaces", &json!({ "metadata": { "name": name } }))?;
        Ok(Self { name, api })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of a kind in it: `path("v1", "configmaps")`, `path("apps/v1", "deployments")`.
    pub fn path(&self, api_version: &str, plural: &str) -> String {
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        format!("{root}/{api_version}/namespaces/{}/{plural}", self.name)
    }

    /// Returns a service account of this namespace as a user, creating it if it is not there. It has no rights until
    /// a role is bound to it.
    ///
    /// # Errors
    /// If the API server refuses.
    pub fn service_account(&self, name: &str) -> Result<User> {
        let accounts = self.path("v1", "serviceaccounts");
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
        self.api.apply(&format!("{accounts}/{name}"), "capstan-cluster", &account)?;
        let reply =
            self.api.create(&format!("{accounts}/{name}/token"), &json!({ "spec": { "expirationSeconds": 86400 } }))?;
        let token = reply.pointer("/status/token").and_then(Value::as_str).context("the answer has no token")?;
        Ok(User {
            name: format!("system:serviceaccount:{}:{name}", self.name),
            token: token.to_owned(),
            groups: vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{}", self.name)],
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if !crate::is_kept() {
            // The control plane may be gone already, and its namespaces with it.
            drop(self.api.delete(&format!("/api/v1/namespaces/{}", self.name)));
            drop(self.let_go());
        }
    }
}

impl Namespace {
    /// Takes away the finalizers of custom resources, which nobody else does once the daemons of a test have ended: each namespace that can't
    /// go would be looked at for as long as the control plane lasts.
    fn let_go(&self) -> Result<()> {
        let groups = self.api.get("/apis")?;
        let versions = entries(&groups, "/groups").filter_map(|group| text(group, "/preferredVersion/groupVersion"));
        for version in versions.filter(|version| version.contains(".capstan.dev/")) {
            let kinds = self.api.get(&format!("/apis/{version}"))?;
            let namespaced = |kind: &&Value| kind.get("namespaced") == Some(&json!(true));
            let kinds = entries(&kinds, "/resources").filter(namespaced).filter_map(|kind| text(kind, "/name"));
            for kind in kinds.filter(|name| !name.contains('/')) {
                let path = format!("/apis/{version}/namespaces/{}/{kind}", self.name);
                let found = self.api.get(&path)?;
                let held = entries(&found, "/items").filter(|object| object.pointer("/metadata/finalizers").is_some());
                for name in held.filter_map(|object| text(object, "/metadata/name")) {
                    // It may have gone meanwhile.
                    drop(self.api.merge(&format!("{path}/{name}"), &json!({ "metadata": { "finalizers": null } })));
                }
            }
        }
        Ok(())
    }
}

/// Returns the entries of a list in a document; none if there is no list.
fn entries<'v>(document: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    document.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn text<'v>(document: &'v Value, pointer: &str) -> Option<&'v str> {
    document.pointer(pointer).and_then(Value::as_str)
}

//! Decides what discovery answers: the version of the API server, and the kinds that it serves.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::status::Refusal;
use crate::world::World;

/// Answers a request about the API server itself; `None` if it is about a kind.
pub(crate) fn answer(world: &World, path: &str) -> Option<Result<Value, Refusal>> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["version"] => Some(Ok(json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "model" }))),
        ["healthz" | "livez" | "readyz"] => Some(Ok(json!("ok"))),
        ["api"] => Some(Ok(json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] }))),
        ["apis"] => {
            let groups: BTreeSet<&str> =
                world.served().map(|kind| kind.group.as_str()).filter(|group| !group.is_empty()).collect();
            let groups: Vec<Value> = groups.into_iter().map(|name| group(world, name)).collect();
            Some(Ok(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })))
        }
        ["apis", name] => Some(known(world.served().any(|kind| kind.group == *name), || group(world, name))),
        ["api", version] => Some(resources(world, version)),
        ["apis", name, version] => Some(resources(world, &format!("{name}/{version}"))),
        _ => None,
    }
}

fn known(known: bool, answer: impl FnOnce() -> Value) -> Result<Value, Refusal> {
    if known { Ok(answer()) } else { Err(Refusal::no_page()) }
}

fn group(world: &World, name: &str) -> Value {
    let versions: BTreeSet<&str> =
        world.served().filter(|kind| kind.group == name).map(|kind| kind.version.as_str()).collect();
    let versions: Vec<Value> = versions
        .into_iter()
        .map(|version| json!({ "groupVersion": format!("{name}/{version}"), "version": version }))
        .collect();
    json!({ "kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": versions, "preferredVersion": versions.first() })
}

fn resources(world: &World, api_version: &str) -> Result<Value, Refusal> {
    let kinds: Vec<&Kind> = world.served().filter(|kind| kind.api_version() == api_version).collect();
    let one = |kind: &&Kind| {
        let Kind { name: kind, plural, singular, namespaced, status, .. } = *kind;
        let whole = json!({
            "name": plural, "singularName": singular, "namespaced": namespaced, "kind": kind,
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        });
        let part = json!({ "name": format!("{plural}/status"), "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "patch", "update"] });
        [Some(whole), status.then_some(part)]
    };
    known(!kinds.is_empty(), || {
        let resources: Vec<Value> = kinds.iter().flat_map(one).flatten().collect();
        json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources })
    })
}

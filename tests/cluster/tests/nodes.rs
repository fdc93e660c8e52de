//! Shows that pods become ready without containers where the scheduler and kwok run.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::time::Duration;

use anyhow::Context;
use cluster::{Cluster, Options, Tool, wait};
use serde_json::json;

#[test]
#[ignore = "needs cluster (its own, with kube-scheduler and kwok)"]
fn a_deployment_becomes_available_on_a_node_of_kwok() {
    let options = Options::default().with(Tool::KubeScheduler).with(Tool::Kwok);
    let cluster = Cluster::start(&options).unwrap();
    cluster.add_node("node-0").unwrap();
    let namespace = cluster.namespace("pods").unwrap();
    let deployments = namespace.path("apps/v1", "deployments");
    let labels = json!({ "app": "web" });
    let deployment = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "web", "image": "example.test/web" }] },
            },
        },
    });
    cluster.api().create(&deployments, &deployment).unwrap();
    wait::until_ok(Duration::from_secs(30), "two available pods", || {
        let status = cluster.api().get(&format!("{deployments}/web"))?["status"].take();
        (status["availableReplicas"] == 2).then_some(()).with_context(|| status.to_string())
    })
    .unwrap();
}

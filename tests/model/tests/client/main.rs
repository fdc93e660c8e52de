//! Holds the model to what a client of Kubernetes expects of an API server, under a stopped clock.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail loudly")]

mod cluster;
mod faults;
mod watches;

use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use model::{Model, Which};
use serde_json::{Value, json};

use crate::watches::Lines;

const MAPS: Which<'_> = Which { api_version: "v1", kind: "ConfigMap" };

const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// Sends a request, and returns the code and what is answered.
async fn send(client: &kube::Client, method: &str, path: &str, content: &str, body: &Value) -> (u16, Value) {
    let response = exchange(client, method, path, content, body).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn exchange(
    client: &kube::Client,
    method: &str,
    path: &str,
    content: &str,
    body: &Value,
) -> Result<Response<Body>, kube::Error> {
    let request =
        Request::builder().method(method).uri(path).header("content-type", content).header("user-agent", "test/1");
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    client.send(request.body(Body::from(bytes)).unwrap()).await
}

async fn get(client: &kube::Client, path: &str) -> (u16, Value) {
    send(client, "GET", path, "application/json", &Value::Null).await
}

fn map(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

async fn create(client: &kube::Client, name: &str) -> Value {
    let (code, object) = send(client, "POST", PATH, "application/json", &map(name, &json!({ "a": "1" }))).await;
    assert_eq!(code, 201, "{object}");
    object
}

#[tokio::test(start_paused = true)]
async fn a_client_writes_reads_and_watches() {
    let model = Model::new(1);
    let client = model.client();
    let made = create(&client, "a").await;
    assert_eq!(get(&client, &format!("{PATH}/a")).await, (200, made.clone()));
    let from = made["metadata"]["resourceVersion"].as_str().unwrap();
    let mut lines = Lines::of(&client, &format!("resourceVersion={from}")).await;
    let (_, changed) =
        send(&client, "PATCH", &format!("{PATH}/a"), "application/merge-patch+json", &json!({ "data": { "b": "2" } }))
            .await;
    assert_eq!(changed["data"], json!({ "a": "1", "b": "2" }));
    send(&client, "DELETE", &format!("{PATH}/a"), "application/json", &Value::Null).await;
    assert_eq!(lines.names(2).await, ["MODIFIED a", "DELETED a"]);
    assert_eq!(get(&client, &format!("{PATH}/a")).await.0, 404);
    let (_, list) = get(&client, PATH).await;
    assert_eq!(list["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_seed_and_the_same_requests_always_give_the_same() {
    let run = async |seed| {
        let model = Model::new(seed);
        let client = model.client();
        create(&client, "a").await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let named = json!({ "metadata": { "generateName": "x-" } });
        send(&client, "POST", PATH, "application/json", &named).await;
        model.all().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(run(3).await, run(3).await);
    assert_ne!(run(3).await, run(4).await);
}

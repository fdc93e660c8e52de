//! Holds watches and lists to what a client expects of them.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use kube::client::Body;
use model::{Cut, Model};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{MAPS, PATH, create, exchange, get};

/// Reads the lines of a watch.
pub(crate) struct Lines {
    body: Body,
    rest: Vec<u8>,
}

impl Lines {
    pub(crate) async fn of(client: &kube::Client, query: &str) -> Self {
        let path = format!("/api/v1/configmaps?watch=true&{query}");
        let response = exchange(client, "GET", &path, "", &Value::Null).await.unwrap();
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), rest: Vec::new() }
    }

    /// Returns the next event; none at the end.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                return Some((event["type"].as_str().unwrap().to_owned(), event["object"].clone()));
            }
            let frame = self.body.frame().await?;
            self.rest.extend_from_slice(&frame.unwrap().into_data().unwrap_or(Bytes::new()));
        }
    }

    pub(crate) async fn names(&mut self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..count {
            let (kind, object) = self.next().await.unwrap();
            names.push(format!("{kind} {}", object["metadata"]["name"].as_str().unwrap_or("-")));
        }
        names
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_says_when_it_is_complete_and_goes_on() {
    let model = Model::new(1);
    let client = model.client();
    create(&client, "a").await;
    create(&client, "b").await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=90";
    let mut lines = Lines::of(&client, query).await;
    assert_eq!(lines.names(2).await, ["ADDED a", "ADDED b"]);
    let (kind, mark) = lines.next().await.unwrap();
    assert_eq!(
        (kind.as_str(), &mark["metadata"]["annotations"]),
        ("BOOKMARK", &json!({ "k8s.io/initial-events-end": "true" }))
    );
    create(&client, "c").await;
    assert_eq!(lines.names(1).await, ["ADDED c"]);
    let began = Instant::now();
    assert_eq!(lines.next().await.unwrap().0, "BOOKMARK");
    assert_eq!(began.elapsed(), Duration::from_mins(1));
    assert_eq!(lines.next().await, None);
    assert_eq!(began.elapsed(), Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_labels_lets_an_object_come_and_go() {
    let model = Model::new(1);
    let client = model.client();
    let mut lines = Lines::of(&client, "labelSelector=on").await;
    create(&client, "a").await;
    let edit = |path: &str, value: Value| {
        model.edit(MAPS, Some("default"), "a", |object| {
            let (parent, field) = path.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[field] = value;
        })
    };
    edit("/metadata/labels", json!({ "on": "" }));
    edit("/data/a", json!("2"));
    edit("/metadata/labels", json!({}));
    assert_eq!(lines.names(2).await, ["ADDED a", "MODIFIED a"]);
    let (kind, last) = lines.next().await.unwrap();
    let metadata = &last["metadata"];
    assert_eq!((kind.as_str(), &metadata["labels"]), ("DELETED", &json!({ "on": "" })));
    assert_eq!(metadata["resourceVersion"], model.revision().to_string());
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_can_not_be_gone_on_from() {
    let model = Model::new(1);
    let client = model.client();
    let first = create(&client, "a").await;
    create(&client, "b").await;
    let from = first["metadata"]["resourceVersion"].as_str().unwrap();
    let (_, page) = get(&client, &format!("{PATH}?limit=1")).await;
    let next = page["metadata"]["continue"].as_str().unwrap();
    assert_eq!(get(&client, &format!("{PATH}?limit=1&continue={next}")).await.1["items"][0]["metadata"]["name"], "b");
    let mut under_way = Lines::of(&client, &format!("resourceVersion={from}")).await;
    create(&client, "c").await;
    model.compact();
    assert_eq!(under_way.names(2).await, ["ADDED b", "ADDED c"]);
    let (kind, status) = Lines::of(&client, &format!("resourceVersion={from}")).await.next().await.unwrap();
    assert_eq!((kind.as_str(), &status["code"], &status["reason"]), ("ERROR", &json!(410), &json!("Expired")));
    let (code, status) = get(&client, &format!("{PATH}?limit=1&continue={next}")).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn watches_end_break_and_come_late_as_they_are_told_to() {
    let model = Model::new(1);
    let client = model.client();
    let mut closed = Lines::of(&client, "").await;
    model.cut_watches(Some(MAPS), Cut::Closed);
    assert_eq!(closed.next().await, None);
    let broken = Lines::of(&client, "").await;
    model.cut_watches(None, Cut::Broken);
    assert!({ broken }.body.frame().await.unwrap().is_err());
    model.delay(MAPS, Duration::from_secs(7));
    let mut late = Lines::of(&client, "").await;
    let began = Instant::now();
    create(&client, "a").await;
    model.delay(MAPS, Duration::ZERO);
    create(&client, "b").await;
    let (_, stale) = get(&client, &format!("{PATH}?resourceVersion=0")).await;
    assert_eq!(stale["items"], json!([]));
    assert_eq!(late.names(2).await, ["ADDED a", "ADDED b"]);
    assert_eq!(began.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_no_page_and_ends_its_watches() {
    let model = Model::new(1);
    let client = model.client();
    create(&client, "a").await;
    let mut lines = Lines::of(&client, "").await;
    assert_eq!(lines.names(1).await, ["ADDED a"]);
    model.serve(MAPS, false);
    assert_eq!(lines.next().await, None);
    assert_eq!(get(&client, PATH).await.0, 404);
    let served = async || {
        let (_, list) = get(&client, "/api/v1").await;
        list["resources"].as_array().unwrap().iter().any(|resource| resource["kind"] == "ConfigMap")
    };
    assert!(!served().await);
    model.serve(MAPS, true);
    assert!(served().await);
    assert_eq!(get(&client, &format!("{PATH}/a")).await.0, 200);
}

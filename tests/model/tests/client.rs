//! Holds the model to what a client of Kubernetes expects of an API server, under a stopped clock.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use model::{Cut, Denied, Fault, Loss, Model, Which};
use serde_json::{Value, json};
use tokio::time::Instant;

const MAPS: Which<'_> = Which {
    api_version: "v1",
    kind: "ConfigMap",
};

const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// Sends a request, and returns the code and what is answered.
async fn send(
    client: &kube::Client,
    method: &str,
    path: &str,
    content: &str,
    body: &Value,
) -> (u16, Value) {
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
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content)
        .header("user-agent", "test/1");
    let bytes = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    client.send(request.body(Body::from(bytes)).unwrap()).await
}

async fn get(client: &kube::Client, path: &str) -> (u16, Value) {
    send(client, "GET", path, "application/json", &Value::Null).await
}

fn map(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

async fn create(client: &kube::Client, name: &str) -> Value {
    let (code, object) = send(
        client,
        "POST",
        PATH,
        "application/json",
        &map(name, &json!({ "a": "1" })),
    )
    .await;
    assert_eq!(code, 201, "{object}");
    object
}

/// Reads the lines of a watch.
struct Lines {
    body: Body,
    rest: Vec<u8>,
}

impl Lines {
    async fn of(client: &kube::Client, query: &str) -> Self {
        let path = format!("/api/v1/configmaps?watch=true&{query}");
        let response = exchange(client, "GET", &path, "", &Value::Null)
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        Self {
            body: response.into_body(),
            rest: Vec::new(),
        }
    }

    /// Returns the next event; none at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                return Some((
                    event["type"].as_str().unwrap().to_owned(),
                    event["object"].clone(),
                ));
            }
            let frame = self.body.frame().await?;
            self.rest
                .extend_from_slice(&frame.unwrap().into_data().unwrap_or(Bytes::new()));
        }
    }

    async fn names(&mut self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..count {
            let (kind, object) = self.next().await.unwrap();
            names.push(format!(
                "{kind} {}",
                object["metadata"]["name"].as_str().unwrap_or("-")
            ));
        }
        names
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_writes_reads_and_watches() {
    let model = Model::new(1);
    let client = model.client();
    let made = create(&client, "a").await;
    assert_eq!(
        get(&client, &format!("{PATH}/a")).await,
        (200, made.clone())
    );
    let from = made["metadata"]["resourceVersion"].as_str().unwrap();
    let mut lines = Lines::of(&client, &format!("resourceVersion={from}")).await;
    let (_, changed) = send(
        &client,
        "PATCH",
        &format!("{PATH}/a"),
        "application/merge-patch+json",
        &json!({ "data": { "b": "2" } }),
    )
    .await;
    assert_eq!(changed["data"], json!({ "a": "1", "b": "2" }));
    send(
        &client,
        "DELETE",
        &format!("{PATH}/a"),
        "application/json",
        &Value::Null,
    )
    .await;
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
        model
            .all()
            .iter()
            .map(|object| object.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(run(3).await, run(3).await);
    assert_ne!(run(3).await, run(4).await);
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
    assert_eq!(began.elapsed(), Duration::from_secs(60));
    assert_eq!(lines.next().await, None);
    assert_eq!(began.elapsed(), Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_labels_lets_an_object_come_and_go() {
    let model = Model::new(1);
    let client = model.client();
    let mut lines = Lines::of(&client, "labelSelector=on").await;
    create(&client, "a").await;
    model.edit(MAPS, Some("default"), "a", |object| {
        object["metadata"]["labels"] = json!({ "on": "" })
    });
    model.edit(MAPS, Some("default"), "a", |object| {
        object["data"]["a"] = "2".into()
    });
    model.edit(MAPS, Some("default"), "a", |object| {
        object["metadata"]["labels"] = json!({})
    });
    assert_eq!(lines.names(2).await, ["ADDED a", "MODIFIED a"]);
    let (kind, last) = lines.next().await.unwrap();
    assert_eq!(
        (kind.as_str(), &last["metadata"]["labels"]),
        ("DELETED", &json!({ "on": "" }))
    );
    assert_eq!(
        last["metadata"]["resourceVersion"],
        model.revision().to_string()
    );
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
    assert_eq!(
        get(&client, &format!("{PATH}?limit=1&continue={next}"))
            .await
            .1["items"][0]["metadata"]["name"],
        "b"
    );
    create(&client, "c").await;
    model.compact();
    let (kind, status) = Lines::of(&client, &format!("resourceVersion={from}"))
        .await
        .next()
        .await
        .unwrap();
    assert_eq!(
        (kind.as_str(), &status["code"], &status["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
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
async fn what_goes_wrong_on_the_way_is_what_the_hook_says() {
    let model = Model::new(1);
    let client = model.client();
    let fault = |fault: Fault| model.on_request(move |_| fault.clone());
    fault(Fault::LoseRequest(Loss::Broken));
    assert!(
        exchange(
            &client,
            "POST",
            PATH,
            "application/json",
            &map("a", &json!({}))
        )
        .await
        .is_err()
    );
    assert_eq!(model.object(MAPS, Some("default"), "a"), None);
    fault(Fault::LoseAnswer(Loss::Broken));
    assert!(
        exchange(
            &client,
            "POST",
            PATH,
            "application/json",
            &map("a", &json!({}))
        )
        .await
        .is_err()
    );
    assert!(model.object(MAPS, Some("default"), "a").is_some());
    fault(Fault::LoseAnswer(Loss::Silent));
    let path = format!("{PATH}/a");
    let silent = exchange(&client, "DELETE", &path, "", &Value::Null);
    assert!(
        tokio::time::timeout(Duration::from_secs(30), silent)
            .await
            .is_err()
    );
    assert_eq!(model.object(MAPS, Some("default"), "a"), None);
    fault(Fault::Answer {
        code: 429,
        retry_after: Some(3),
    });
    let response = exchange(&client, "GET", PATH, "", &Value::Null)
        .await
        .unwrap();
    assert_eq!(
        (
            response.status().as_u16(),
            &response.headers()["retry-after"]
        ),
        (429, &"3".parse().unwrap())
    );
    fault(Fault::Cut { after: 10 });
    let mut body = exchange(&client, "GET", PATH, "", &Value::Null)
        .await
        .unwrap()
        .into_body();
    assert_eq!(
        body.frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap()
            .len(),
        10
    );
    assert!(body.frame().await.unwrap().is_err());
    fault(Fault::Delay {
        before: Duration::from_secs(1),
        after: Duration::from_secs(2),
    });
    let began = Instant::now();
    get(&client, PATH).await;
    assert_eq!(began.elapsed(), Duration::from_secs(3));
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
        list["resources"]
            .as_array()
            .unwrap()
            .iter()
            .any(|resource| resource["kind"] == "ConfigMap")
    };
    assert!(!served().await);
    model.serve(MAPS, true);
    assert!(served().await);
    assert_eq!(get(&client, &format!("{PATH}/a")).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn what_is_forbidden_is_refused_and_reviews_say_so() {
    let model = Model::new(1);
    let client = model.client();
    let denied = Denied {
        verb: Some("list".to_owned()),
        ..Denied::default()
    };
    model.forbid(denied.clone());
    let (code, status) = get(&client, PATH).await;
    let message = "configmaps is forbidden: User \"admin\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert_eq!((code, &status["message"]), (403, &json!(message)));
    let review = async || {
        let review = json!({ "spec": { "resourceAttributes": { "verb": "list", "resource": "configmaps" } } });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        send(&client, "POST", path, "application/json", &review)
            .await
            .1["status"]["allowed"]
            .clone()
    };
    assert_eq!(review().await, json!(false));
    model.answer_reviews(Some(true));
    assert_eq!(review().await, json!(true));
    model.permit(&denied);
    assert_eq!(get(&client, PATH).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn what_has_no_owner_any_more_is_collected_when_the_collector_is_told_to() {
    let model = Model::new(1);
    let client = model.client();
    let owner = create(&client, "owner").await;
    let mut owned = map("owned", &json!({}));
    owned["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"] }]);
    send(&client, "POST", PATH, "application/json", &owned).await;
    assert_eq!(model.collect_garbage(), 0);
    model.delete(MAPS, Some("default"), "owner");
    assert_eq!(model.objects(MAPS).len(), 1);
    assert_eq!(model.collect_garbage(), 1);
    assert_eq!(model.objects(MAPS).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_waits_for_what_blocks_it_and_an_orphan_is_left_alone() {
    for (policy, left) in [("Foreground", 0), ("Orphan", 1)] {
        let model = Model::new(1);
        let client = model.client();
        let owner = create(&client, "owner").await;
        let mut owned = map("owned", &json!({}));
        let uid = &owner["metadata"]["uid"];
        owned["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": true }]);
        send(&client, "POST", PATH, "application/json", &owned).await;
        let options = json!({ "propagationPolicy": policy });
        let (_, marked) = send(
            &client,
            "DELETE",
            &format!("{PATH}/owner"),
            "application/json",
            &options,
        )
        .await;
        assert!(
            marked["metadata"]["deletionTimestamp"].is_string(),
            "{marked}"
        );
        while model.collect_garbage() > 0 {}
        assert_eq!(model.objects(MAPS).len(), left, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_all_that_is_in_it() {
    let model = Model::new(1);
    let client = model.client();
    create(&client, "a").await;
    send(
        &client,
        "DELETE",
        "/api/v1/namespaces/default",
        "application/json",
        &Value::Null,
    )
    .await;
    let (code, status) = send(
        &client,
        "POST",
        PATH,
        "application/json",
        &map("b", &json!({})),
    )
    .await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["reason"]),
        (403, &json!("NamespaceTerminating"))
    );
    while model.collect_garbage() > 0 {}
    assert_eq!(model.all().len(), 0);
    let (code, status) = send(
        &client,
        "POST",
        PATH,
        "application/json",
        &map("b", &json!({})),
    )
    .await;
    assert_eq!(
        (code, &status["message"]),
        (404, &json!("namespaces \"default\" not found"))
    );
}

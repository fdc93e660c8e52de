//! Holds pages, streaming lists, bookmarks and what is too old of the model to those of the real API server.

use std::time::Duration;

use model::Model;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::normal;
use crate::operation::Kind;
use crate::side::Side;
use crate::sides;

const JSON: &str = "application/json";
const STREAM: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

/// The kind that is served only when there are versions older than it.
pub(crate) const LATE: &str = include_str!("late.yaml");
const LATE_PATH: &str = "/apis/late.capstan.dev/v1/lates";

/// How long the API server may take to forget what is old.
const LIMIT: Duration = Duration::from_mins(1);

/// Returns the first difference between the ways of reading a kind whose objects nobody changes; `from` are two
/// versions that both API servers had before.
pub(crate) async fn difference(kind: Kind, real: &Side, modelled: &Side, from: &[String; 2]) -> Option<String> {
    for query in [
        "limit=1",
        "limit=1&labelSelector=x",
        "limit=2&resourceVersion=0",
        "limit=1&fieldSelector=metadata.name%21%3Da",
    ] {
        let [expected, found] = [pages(real, kind, query).await, pages(modelled, kind, query).await];
        if expected != found {
            return Some(format!("{kind:?}: pages of {query}\n{}", sides(&expected.into(), &found.into())));
        }
    }
    let queries = [
        (format!("{STREAM}&allowWatchBookmarks=true"), false),
        (format!("{STREAM}&allowWatchBookmarks=true&labelSelector=x"), false),
        (format!("{STREAM}&allowWatchBookmarks=true&resourceVersion=0"), false),
        (format!("{STREAM}&allowWatchBookmarks=true"), true),
        (STREAM.to_owned(), false),
        ("allowWatchBookmarks=true".to_owned(), true),
        ("allowWatchBookmarks=true".to_owned(), false),
        ("resourceVersion=0".to_owned(), false),
    ];
    for (query, continues) in queries {
        let asked = |from: &str| if continues { format!("{query}&resourceVersion={from}") } else { query.clone() };
        let [expected, found] = [asked(&from[0]), asked(&from[1])];
        let (expected, found) = tokio::join!(real.events(kind, &expected, 1), modelled.events(kind, &found, 1));
        if expected != found {
            return Some(format!("{kind:?}: a watch with {query}\n{}", sides(&expected.into(), &found.into())));
        }
    }
    None
}

/// Returns all pages of a list.
async fn pages(side: &Side, kind: Kind, query: &str) -> Vec<Value> {
    let (first, token) = page(side, kind, query).await;
    // Only the first page may name a version.
    let rest = rest(side, kind, query.trim_end_matches("&resourceVersion=0"), token).await;
    [vec![first], rest].concat()
}

/// Returns the pages of a list that a token stands for; none if it is empty.
async fn rest(side: &Side, kind: Kind, query: &str, token: String) -> Vec<Value> {
    let (mut found, mut token) = (Vec::new(), token);
    while !token.is_empty() {
        let (next, after) = page(side, kind, &format!("{query}&continue={token}")).await;
        found.push(next);
        token = after;
    }
    found
}

/// Returns a page, and the token of the next one.
async fn page(side: &Side, kind: Kind, query: &str) -> (Value, String) {
    let mut page = side.send("GET", &format!("{}?{query}", kind.path(side.namespace())), "", &Value::Null).await.body;
    let token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    for item in page["items"].as_array_mut().unwrap() {
        normal::object(item, None);
    }
    normal::list(&mut page);
    (page, token)
}

/// Returns the differences between pages among which something changes.
pub(crate) async fn changing(real: &Side, modelled: &Side) -> Vec<String> {
    let mut both = Vec::new();
    for side in [real, modelled] {
        let path = Kind::ConfigMap.path(side.namespace());
        let make = async |name: &str| {
            let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
            assert_eq!(side.send("POST", &path, JSON, &object).await.code, 201);
        };
        let delete = async |name: &str| {
            assert_eq!(side.send("DELETE", &format!("{path}/{name}"), "", &Value::Null).await.code, 200);
        };
        for name in ["a", "b", "d", "e"] {
            make(name).await;
        }
        let (first, token) = page(side, Kind::ConfigMap, "limit=1").await;
        delete("b").await;
        make("c").await;
        delete("a").await;
        let rest = rest(side, Kind::ConfigMap, "limit=1", token).await;
        both.push(json!({ "first": first, "rest": rest }));
    }
    if both[0] == both[1] {
        return Vec::new();
    }
    vec![format!("pages, with changes after the first\n{}", sides(&both[0], &both[1]))]
}

/// Returns the differences between what both say of versions that are too old. The real API server is one that soon
/// forgets what has been.
pub(crate) async fn too_old(real: &Side, modelled: &Side, model: &Model) -> Vec<String> {
    let mut asked = Vec::new();
    for side in [real, modelled] {
        let path = Kind::ConfigMap.path(side.namespace());
        for name in ["a", "b"] {
            let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
            assert_eq!(side.send("POST", &path, JSON, &object).await.code, 201);
        }
        let page = side.send("GET", &format!("{path}?limit=1"), "", &Value::Null).await.body;
        let (version, token) = (&page["metadata"]["resourceVersion"], &page["metadata"]["continue"]);
        let [version, token] = [version, token].map(|text| text.as_str().unwrap().to_owned());
        assert!(side.send("DELETE", &format!("{path}/a"), "", &Value::Null).await.code < 300);
        asked.push((path.clone(), version, token));
    }
    model.compact();
    model.install(&serde_yaml::from_str(LATE).unwrap());
    let definition: Value = serde_yaml::from_str(LATE).unwrap();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(real.send("POST", definitions, JSON, &definition).await.code, 201);
    until(|| async { real.send("GET", LATE_PATH, "", &Value::Null).await.code == 200 }).await;
    let token = |(path, _, token): &(String, String, String)| format!("{path}?limit=1&continue={token}");
    until(|| async { real.send("GET", &token(&asked[0]), "", &Value::Null).await.code != 200 }).await;
    let mut answers = Vec::new();
    for (side, asked) in [real, modelled].into_iter().zip(&asked) {
        let (path, version, _) = asked;
        let exactly = format!("{path}?resourceVersion={version}&resourceVersionMatch=Exact");
        let mut said = Vec::new();
        for path in [token(asked), exactly] {
            let mut answer = side.send("GET", &path, "", &Value::Null).await;
            let goes_on = answer.body["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            let rest = rest(side, Kind::ConfigMap, "limit=1", goes_on).await;
            answer.body["metadata"] = json!({});
            normal::status(&mut answer.body);
            said.push(json!({ "code": answer.code, "body": answer.body, "goes on with": rest }));
        }
        let mut events = side.lines(LATE_PATH, &format!("resourceVersion={version}"), 1).await;
        for event in &mut events {
            normal::status(&mut event["object"]);
        }
        answers.push(json!({ "lists": said, "watch": events }));
    }
    if answers[0] == answers[1] {
        Vec::new()
    } else {
        vec![format!("what is too old\n{}", sides(&answers[0], &answers[1]))]
    }
}

/// Waits until `look` says that it is so.
pub(crate) async fn until<F: Future<Output = bool>>(look: impl Fn() -> F) {
    let end = Instant::now() + LIMIT;
    while !look().await {
        assert!(Instant::now() < end, "not within {LIMIT:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

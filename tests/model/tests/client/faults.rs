//! Holds what can go wrong to what a test asks for.

use std::time::Duration;

use http_body_util::BodyExt;
use model::{Denied, Fault, Loss, Model};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::{MAPS, PATH, exchange, get, map, send};

#[tokio::test(start_paused = true)]
async fn a_request_is_lost_before_or_after_it_is_carried_out() {
    let (model, client) = faulty();
    let map = map("a", &json!({}));
    let create = async || exchange(&client, "POST", PATH, "application/json", &map).await;
    let there = || model.object(MAPS, Some("default"), "a").is_some();
    fault(&model, Fault::LoseRequest(Loss::Broken));
    assert!(create().await.is_err());
    assert!(!there());
    fault(&model, Fault::LoseAnswer(Loss::Broken));
    assert!(create().await.is_err());
    assert!(there());
    fault(&model, Fault::LoseAnswer(Loss::Silent));
    let path = format!("{PATH}/a");
    let silent = exchange(&client, "DELETE", &path, "", &Value::Null);
    assert!(timeout(Duration::from_secs(30), silent).await.is_err());
    assert!(!there());
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_another_breaks_off_or_comes_late() {
    let (model, client) = faulty();
    let get = async || exchange(&client, "GET", PATH, "", &Value::Null).await.unwrap();
    fault(&model, Fault::Answer { code: 429, retry_after: Some(3) });
    let response = get().await;
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &"3".parse().unwrap()));
    fault(&model, Fault::Cut { after: 10 });
    let mut body = get().await.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 10);
    assert!(body.frame().await.unwrap().is_err());
    let delay = Fault::Delay { before: Duration::from_secs(1), after: Duration::from_secs(2) };
    fault(&model, delay);
    let began = Instant::now();
    get().await;
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

fn faulty() -> (Model, kube::Client) {
    let model = Model::new(1);
    let client = model.client();
    (model, client)
}

fn fault(model: &Model, fault: Fault) {
    model.on_request(move |_| fault.clone());
}

#[tokio::test(start_paused = true)]
async fn what_is_forbidden_is_refused_and_reviews_say_so() {
    let model = Model::new(1);
    let client = model.client();
    let denied = Denied { verb: Some("list".to_owned()), ..Denied::default() };
    model.forbid(denied.clone());
    let (code, status) = get(&client, PATH).await;
    let message = "configmaps is forbidden: User \"admin\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert_eq!((code, &status["message"]), (403, &json!(message)));
    let review = async || {
        let review = json!({ "spec": { "resourceAttributes": { "verb": "list", "resource": "configmaps" } } });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        send(&client, "POST", path, "application/json", &review).await.1["status"]["allowed"].clone()
    };
    assert_eq!(review().await, json!(false));
    model.answer_reviews(Some(true));
    assert_eq!(review().await, json!(true));
    model.permit(&denied);
    assert_eq!(get(&client, PATH).await.0, 200);
}

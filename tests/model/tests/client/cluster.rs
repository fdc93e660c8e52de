//! Holds the other controllers of a cluster to what they do when a test lets them.

use model::Model;
use serde_json::{Value, json};

use crate::{MAPS, PATH, create, map, send};

#[tokio::test(start_paused = true)]
async fn what_has_no_owner_any_more_is_collected_when_the_collector_is_told_to() {
    let model = Model::new(1);
    let client = model.client();
    let owner = create(&client, "owner").await;
    let mut owned = map("owned", &json!({}));
    owned["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"] }]);
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
        let (_, marked) = send(&client, "DELETE", &format!("{PATH}/owner"), "application/json", &options).await;
        assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
        while model.collect_garbage() > 0 {}
        assert_eq!(model.objects(MAPS).len(), left, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_all_that_is_in_it() {
    let model = Model::new(1);
    let client = model.client();
    create(&client, "a").await;
    send(&client, "DELETE", "/api/v1/namespaces/default", "application/json", &Value::Null).await;
    let (code, status) = send(&client, "POST", PATH, "application/json", &map("b", &json!({}))).await;
    assert_eq!((code, &status["details"]["causes"][0]["reason"]), (403, &json!("NamespaceTerminating")));
    while model.collect_garbage() > 0 {}
    assert_eq!(model.all().len(), 0);
    let (code, status) = send(&client, "POST", PATH, "application/json", &map("b", &json!({}))).await;
    assert_eq!((code, &status["message"]), (404, &json!("namespaces \"default\" not found")));
}

//! The sample operator, end to end.

use cluster::wait;
use scenarios::{Daemon, LATER, Place};
use serde_json::{Value, json};

const HTML: &str = "<html><head><title>Hello</title></head><body>x</body></html>";

/// A page becomes a site, follows its spec, and goes with all that it had.
fn lives(place: &Place, daemon: Daemon) {
    let (deployments, services) = (
        place.namespace.path("apps/v1", "deployments"),
        place.namespace.path("v1", "services"),
    );
    let ingresses = place.namespace.path("networking.k8s.io/v1", "ingresses");
    place.create(
        "sample.capstan.dev/v1",
        "WebPage",
        &place.pages(),
        "site",
        json!({ "spec": { "html": HTML } }),
    );
    let ready = |d: &Value| d["status"]["readyReplicas"].as_u64().unwrap_or(0) >= 1;
    wait::until(LATER, "ready replicas", || {
        place.find(&deployments, "site").filter(ready)
    })
    .unwrap();
    place.await_object(&place.pages(), "site", "a good status", |page| {
        page["status"]["areWeGood"] == true
    });
    assert!(place.find(&services, "site").is_some());
    assert!(place.find(&ingresses, "site").is_none());
    let map = place.find(&place.pages(), "site").unwrap()["status"]["htmlConfigMap"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        place.find(&place.config_maps(), &map).unwrap()["data"]["index.html"],
        HTML
    );

    let changed = HTML.replace("Hello", "Changed");
    place.merge(
        &place.pages(),
        "site",
        &json!({ "spec": { "html": changed, "exposed": true } }),
    );
    place.await_object(&place.config_maps(), &map, "the new title", |map| {
        map["data"]["index.html"] == changed
    });
    place.await_object(&ingresses, "site", "the ingress", |_| true);
    place.merge(
        &place.pages(),
        "site",
        &json!({ "spec": { "exposed": false } }),
    );
    place.await_gone(&ingresses, "site");

    place.delete(&place.pages(), "site");
    for (path, name) in [
        (&deployments, "site"),
        (&services, "site"),
        (&place.config_maps(), &map),
    ] {
        place.await_gone(path, name);
    }
    assert!(daemon.stop().success());
}

#[test]
fn s145_a_reconciler_can_write_everything_itself() {
    let place = Place::new("s145");
    let daemon = place.daemon(&place.sample_manifest("webpage-lowlevel"));
    lives(&place, daemon);
}

#[test]
fn s146_a_page_becomes_a_site_by_a_workflow() {
    let place = Place::new("s146");
    let daemon = place.daemon(&place.sample_manifest("webpage"));
    lives(&place, daemon);
}

#[test]
fn invalid_html_is_told_in_the_status_and_mended_by_the_next_change() {
    let place = Place::new("html");
    let _daemon = place.daemon(&place.sample_manifest("webpage"));
    place.create(
        "sample.capstan.dev/v1",
        "WebPage",
        &place.pages(),
        "site",
        json!({ "spec": { "html": "no page" } }),
    );
    let page = place.await_object(&place.pages(), "site", "the error", |page| {
        page["status"]["areWeGood"] == false
    });
    assert!(
        page["status"]["errorMessage"]
            .as_str()
            .unwrap()
            .contains("html"),
        "{page}"
    );
    assert!(place.find(&place.config_maps(), "site-html").is_none());
    place.merge(&place.pages(), "site", &json!({ "spec": { "html": HTML } }));
    let page = place.await_object(&place.pages(), "site", "a good status", |page| {
        page["status"]["areWeGood"] == true
    });
    assert_eq!(page["status"]["errorMessage"], Value::Null);
}

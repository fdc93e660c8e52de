//! The sample operator, end to end.

use cluster::wait;
use scenarios::{Daemon, LATER, Place, component};
use serde_json::{Value, json};

const HTML: &str = "<html><head><title>Hello</title></head><body>x</body></html>";

/// Returns the sample's own manifest, for this namespace alone.
fn manifest(place: &Place) -> String {
    let sample = std::fs::read_to_string(scenarios::repository().join("plugins/webpage/webpage.yaml")).unwrap();
    let sample = sample.replace("path: webpage.wasm", &format!("path: {}", component("webpage").display()));
    let primary = "primary: { apiVersion: sample.capstan.dev/v1, kind: WebPage }";
    let namespace = place.namespace.name();
    sample.replace(primary, &format!("{primary}\n      namespaces: [{namespace}]\n      rateLimit: {{ maxReconciliations: 2, within: 3s }}"))
}

fn pages(place: &Place) -> String {
    place.namespace.path("sample.capstan.dev/v1", "webpages")
}

fn start(place: &Place) -> Daemon {
    place.daemon(&manifest(place))
}

#[test]
fn s146_a_page_becomes_a_site_and_follows_its_spec() {
    let place = Place::new("s146");
    let _daemon = start(&place);
    let (deployments, services) = (place.namespace.path("apps/v1", "deployments"), place.namespace.path("v1", "services"));
    let ingresses = place.namespace.path("networking.k8s.io/v1", "ingresses");
    place.create("sample.capstan.dev/v1", "WebPage", &pages(&place), "site", json!({ "spec": { "html": HTML } }));
    place.await_object(&pages(&place), "site", "a good status", |page| page["status"]["areWeGood"] == true);
    let ready = |d: &Value| d["status"]["readyReplicas"].as_u64().unwrap_or(0) >= 1;
    wait::until(LATER, "ready replicas", || place.find(&deployments, "site").filter(ready)).unwrap();
    assert!(place.find(&services, "site").is_some());
    assert!(place.find(&ingresses, "site").is_none());
    let map = place.find(&pages(&place), "site").unwrap()["status"]["htmlConfigMap"].as_str().unwrap().to_owned();
    assert_eq!(place.find(&place.config_maps(), &map).unwrap()["data"]["index.html"], HTML);

    let changed = HTML.replace("Hello", "Changed");
    place.merge(&pages(&place), "site", &json!({ "spec": { "html": changed, "exposed": true } }));
    place.await_object(&place.config_maps(), &map, "the new title", |map| map["data"]["index.html"] == changed);
    place.await_object(&ingresses, "site", "the ingress", |_| true);
    place.merge(&pages(&place), "site", &json!({ "spec": { "exposed": false } }));
    place.await_gone(&ingresses, "site");

    place.delete(&pages(&place), "site");
    for (path, name) in [(&deployments, "site"), (&services, "site"), (&place.config_maps(), &map)] {
        place.await_gone(path, name);
    }
}

#[test]
fn invalid_html_is_told_in_the_status_and_mended_by_the_next_change() {
    let place = Place::new("html");
    let _daemon = start(&place);
    place.create("sample.capstan.dev/v1", "WebPage", &pages(&place), "site", json!({ "spec": { "html": "no page" } }));
    let page = place.await_object(&pages(&place), "site", "the error", |page| page["status"]["areWeGood"] == false);
    assert!(page["status"]["errorMessage"].as_str().unwrap().contains("html"), "{page}");
    assert!(place.find(&place.config_maps(), "site-html").is_none());
    place.merge(&pages(&place), "site", &json!({ "spec": { "html": HTML } }));
    let page = place.await_object(&pages(&place), "site", "a good status", |page| page["status"]["areWeGood"] == true);
    assert_eq!(page["status"]["errorMessage"], Value::Null);
}

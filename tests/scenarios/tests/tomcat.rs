//! The sample `tomcat`: two controllers of one component, each of which watches the primaries of the other.

use std::fs;

use cluster::Query;
use scenarios::{LATER, Place, component, repository, run};
use serde_json::{Value, json};

const API: &str = "sample.capstan.dev/v1";

/// Returns the sample's manifest, for this namespace alone.
fn manifest(place: &Place) -> String {
    let mut manifest = fs::read_to_string(repository().join("plugins/tomcat/tomcat.yaml")).unwrap();
    manifest = manifest.replace("path: tomcat.wasm", &format!("path: {}", component("tomcat").display()));
    for kind in ["Tomcat", "Webapp"] {
        let primary = format!("primary: {{ apiVersion: {API}, kind: {kind} }}");
        assert!(manifest.contains(&primary), "{manifest}");
        manifest = manifest.replace(&primary, &format!("{primary}\n      namespaces: [{}]", place.namespace.name()));
    }
    manifest
}

#[test]
fn s142_servers_get_the_archives_that_others_name() {
    // IM-2, IX-2
    let place = Place::new("s142");
    let daemon = place.daemon(&manifest(&place));
    let [tomcats, webapps] = ["tomcats", "webapps"].map(|plural| place.namespace.path(API, plural));
    let deployments = place.namespace.path("apps/v1", "deployments");
    let webapp = |name: &str, path: &str, url: &str| {
        let spec = json!({ "tomcat": "shop", "contextPath": path, "url": url });
        place.create(API, "Webapp", &webapps, name, json!({ "spec": spec }));
    };
    let await_status = |path: &str, name: &str, status: Value| {
        place.await_within(LATER, path, name, &status.to_string(), |object| object["status"] == status);
    };
    // The order in which they come does not matter.
    webapp("sample", "/sample", "http://example.com/1.war");
    await_status(&webapps, "sample", json!({ "waitingFor": "there is no Tomcat shop" }));
    place.create(API, "Tomcat", &tomcats, "shop", json!({ "spec": { "replicas": 2 } }));
    await_status(
        &tomcats,
        "shop",
        json!({ "readyReplicas": 2, "artifacts": { "/sample": "http://example.com/1.war" } }),
    );
    await_status(&webapps, "sample", json!({ "deployedArtifact": "http://example.com/1.war" }));
    let service = place.find(&place.namespace.path("v1", "services"), "shop").unwrap();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 8080);
    // One more, and another version of the first.
    webapp("bills", "/bills", "http://example.com/b.war");
    await_status(&webapps, "bills", json!({ "deployedArtifact": "http://example.com/b.war" }));
    place.merge(&webapps, "sample", &json!({ "spec": { "url": "http://example.com/2.war" } }));
    await_status(&webapps, "sample", json!({ "deployedArtifact": "http://example.com/2.war" }));
    let deployment = place.find(&deployments, "shop").unwrap();
    let fetching = deployment["spec"]["template"]["spec"]["initContainers"].as_array().unwrap();
    let fetched: Vec<_> = fetching.iter().map(|one| &one["command"][3]).collect();
    assert_eq!(fetched, ["http://example.com/b.war", "http://example.com/2.war"]);
    // One that goes takes its archive with it, and needs no finalizer for that.
    assert_eq!(place.find(&webapps, "bills").unwrap()["metadata"]["finalizers"], Value::Null);
    place.delete(&webapps, "bills");
    await_status(
        &tomcats,
        "shop",
        json!({ "readyReplicas": 2, "artifacts": { "/sample": "http://example.com/2.war" } }),
    );
    // Nothing is written once all is as it should be, though runs look at it.
    daemon.await_quiet();
    let (since, runs) = (place.cluster.audit().unwrap().mark().unwrap(), daemon.runs());
    place.merge(&deployments, "shop", &json!({ "metadata": { "labels": { "by": "others" } } }));
    daemon.await_runs(runs + 1);
    daemon.await_quiet();
    let query = Query::since(since).user_agent("capstan/").namespace(place.namespace.name()).writes();
    assert_eq!(place.cluster.audit().unwrap().requests(&query).unwrap(), []);
    place.delete(&tomcats, "shop");
    place.await_gone(&deployments, "shop");
    await_status(&webapps, "sample", json!({ "waitingFor": "there is no Tomcat shop" }));
    assert!(!daemon.log().contains("the run failed"), "{}", daemon.log());
}

#[test]
fn the_sample_of_servers_is_right() {
    let built = component("tomcat").with_extension("yaml").display().to_string();
    let definitions = repository().join("plugins/tomcat/crd.yaml").display().to_string();
    let (code, output, errors) = run(&["check", "-m", &built, "--crd", &definitions]);
    assert_eq!(code, 0, "{output}{errors}");
}

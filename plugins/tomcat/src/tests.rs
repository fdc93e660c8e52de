//! What a `Tomcat` and a `Webapp` need and are told, as values.

use capstan_guest::{Dependents, test};

use super::*;

const URL: &str = "https://example.com/shop.war";

fn primary(kind: &str, spec: &Value, status: &Value) -> Primary {
    let metadata = json!({ "name": "shop", "namespace": "web" });
    serde_json::from_value(json!({ "kind": kind, "metadata": metadata, "spec": spec, "status": status })).unwrap()
}

fn tomcat(status: &Value) -> Primary {
    primary("Tomcat", &json!({ "version": "9.0", "replicas": 2 }), status)
}

fn webapp(name: &str, path: &str, url: &str) -> Value {
    json!({ "kind": "Webapp", "metadata": { "name": name }, "spec": { "tomcat": "shop", "contextPath": path, "url": url } })
}

/// Returns a Deployment with as many pods of its template, of 2, and so many ready.
fn deployment(updated: u64, ready: u64) -> Value {
    let annotations = json!({ ARTIFACTS: json!({ "/shop": URL }).to_string() });
    json!({
        "metadata": { "name": "shop", "generation": 3 },
        "spec": { "replicas": 2, "template": { "metadata": { "annotations": annotations } } },
        "status": { "observedGeneration": 3, "replicas": 2, "updatedReplicas": updated, "readyReplicas": ready },
    })
}

#[test]
fn the_pods_of_a_tomcat_fetch_the_archives_of_its_webapps() {
    let webapps =
        [("b", "/shop", "https://example.com/other.war"), ("a", "/shop", URL), ("c", "/bills", "http://x/b.war")];
    let run = webapps
        .into_iter()
        .fold(test::Run::new(), |run, (name, path, url)| run.secondary("webapps", webapp(name, path, url)));
    let answer = test::with(run, || TomcatOperator::desired("deployment", &tomcat(&json!({})))).answer;
    let deployment: Value = answer.unwrap().parse().unwrap();
    let template = &deployment["spec"]["template"];
    let fetching = template["spec"]["initContainers"].as_array().unwrap();
    let commands: Vec<_> =
        fetching.iter().map(|one| (one["name"].as_str().unwrap(), one["command"][3].as_str().unwrap())).collect();
    assert_eq!(
        commands,
        [("fetch-bills", "http://x/b.war"), ("fetch-shop", URL)],
        "of two with one path the first by name"
    );
    assert_eq!(fetching[1]["command"][2], "/usr/local/tomcat/webapps/shop.war");
    let told = template["metadata"]["annotations"][ARTIFACTS].as_str().unwrap();
    assert_eq!(told, r#"{"/bills":"http://x/b.war","/shop":"https://example.com/shop.war"}"#);
}

#[test]
fn an_archive_is_served_once_all_pods_of_its_template_are_ready() {
    let before = json!({ "readyReplicas": 2, "artifacts": { "/old": "http://x/old.war" } });
    for (updated, ready, artifacts) in [
        (1, 2, json!({ "/old": "http://x/old.war" })),
        (2, 1, json!({ "/old": "http://x/old.war" })),
        (2, 2, json!({ "/shop": URL })),
    ] {
        let run = test::Run::new().secondary("deployment", deployment(updated, ready));
        let answer = test::with(run, || TomcatOperator::reconcile(&tomcat(&before))).answer;
        assert_eq!(answer, Ok(Update::status(json!({ "readyReplicas": ready, "artifacts": artifacts }))));
    }
}

#[test]
fn a_webapp_is_told_what_its_server_has_under_its_path() {
    let server = |artifacts: Value| json!({ "kind": "Tomcat", "metadata": { "name": "shop" }, "spec": { "version": "9.0", "replicas": 2 }, "status": { "readyReplicas": 1, "artifacts": artifacts } });
    for (server, expected) in [
        (None, json!({ "waitingFor": "there is no Tomcat shop" })),
        (Some(server(json!({}))), json!({ "waitingFor": "1 of 2 servers are ready" })),
        (
            Some(server(json!({ "/shop": "http://x/old.war" }))),
            json!({ "deployedArtifact": "http://x/old.war", "waitingFor": "the servers have http://x/old.war" }),
        ),
        (Some(server(json!({ "/shop": URL }))), json!({ "deployedArtifact": URL })),
    ] {
        let run = server.into_iter().fold(test::Run::new(), |run, server| run.secondary("server", server));
        let webapp = serde_json::from_value(webapp("shop", "/shop", URL)).unwrap();
        let answer = test::with(run, || TomcatOperator::reconcile(&webapp)).answer;
        assert_eq!(answer, Ok(Update::status(expected)));
    }
}

//! What a page needs and is told, as values.

use capstan_guest::{Dependents, Origin, context::Retry, test};

use super::*;

const GOOD: &str = "<html><body>hello</body></html>";

fn page(html: &str) -> WebPage {
    let page = json!({
        "apiVersion": "sample.capstan.dev/v1",
        "kind": "WebPage",
        "metadata": { "name": "hello", "namespace": "web", "generation": 3 },
        "spec": { "html": html, "exposed": true },
    });
    serde_json::from_value(page).unwrap()
}

fn failure() -> Failure {
    let message = "configmap: it did not work".to_owned();
    Failure {
        origin: Origin::Workflow,
        message,
        refused: None,
        dependents: vec![],
        retry: Retry { attempt: 0, last: false },
    }
}

#[test]
fn a_good_page_is_told_so_from_the_page_alone() {
    let answer = test::with(test::Run::new(), || WebPageOperator::reconcile(&page(GOOD))).answer;
    let status = json!({ "areWeGood": true, "htmlConfigMap": "hello-html", "observedGeneration": 3 });
    assert_eq!(answer, Ok(Update::status(status)));
}

#[test]
fn bad_html_fails_the_config_map_and_ends_in_the_status() {
    for html in ["hello", "<html>", "</html>", ""] {
        let message = "spec.html needs <html> and </html>";
        assert_eq!(WebPageOperator::configmap(&page(html)).unwrap_err().message(), message);
        let status = json!({ "areWeGood": false, "errorMessage": message, "observedGeneration": 3 });
        let answer = WebPageOperator::handle_error(&page(html), &failure());
        assert_eq!(answer, Ok(Some(Handled::status(status).stop())), "{html}");
    }
}

#[test]
fn a_failure_of_a_good_page_is_retried() {
    assert_eq!(WebPageOperator::handle_error(&page(GOOD), &failure()), Ok(None));
}

#[test]
fn the_config_map_has_the_page() {
    let expected = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "hello-html", "labels": { "app": "hello" } },
        "data": { "index.html": GOOD },
    });
    assert_eq!(WebPageOperator::configmap(&page(GOOD)), Ok(expected));
}

#[test]
fn the_deployment_mounts_the_config_map() {
    let deployment = WebPageOperator::deployment(&page(GOOD));
    assert_eq!(deployment["metadata"]["name"], "hello");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"], json!([{ "name": "html", "configMap": { "name": "hello-html" } }]));
    assert_eq!(pod["containers"][0]["volumeMounts"][0]["name"], "html");
}

#[test]
fn deployment_and_service_select_the_same_pods() {
    let deployment = WebPageOperator::deployment(&page(GOOD));
    let service = WebPageOperator::service(&page(GOOD));
    let labels = json!({ "app": "hello" });
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(service["spec"]["selector"], labels);
}

#[test]
fn the_ingress_leads_to_the_service() {
    let service = WebPageOperator::service(&page(GOOD));
    let ingress = WebPageOperator::ingress(&page(GOOD));
    let backend = &ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"];
    assert_eq!(backend["name"], service["metadata"]["name"]);
    assert_eq!(backend["port"]["number"], service["spec"]["ports"][0]["port"]);
}

#[test]
fn every_dependent_of_the_manifest_is_known_by_name() {
    let manifest = include_str!("../webpage.yaml");
    for name in ["configmap", "deployment", "service", "ingress"] {
        assert!(manifest.contains(&format!("{name}:")), "{name} is not in the manifest");
        assert!(WebPageOperator::desired(name, &page(GOOD)).is_ok(), "{name}");
    }
    let error = WebPageOperator::desired("secret", &page(GOOD)).unwrap_err();
    let message = "this component has no desired state for `secret`; it has: configmap, deployment, service, ingress";
    assert_eq!(error.message(), message);
}

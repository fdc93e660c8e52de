//! What a page needs and is told, as values.

use capstan_guest::context::Retry;
use capstan_guest::workflow::ConditionOutcome;
use capstan_guest::{Dependents, Origin, test};

use super::*;

const GOOD: &str = "<html><body>hello</body></html>";

fn page(html: &str) -> WebPage {
    let page = json!({
        "apiVersion": "sample.capstan.dev/v1", "kind": "WebPage",
        "metadata": { "name": "hello", "namespace": "web", "generation": 3 }, "spec": { "html": html, "exposed": true },
    });
    serde_json::from_value(page).unwrap()
}

fn bad(message: &str) -> Value {
    json!({ "areWeGood": false, "errorMessage": message, "observedGeneration": 3 })
}

fn node(name: &str) -> NodeResult {
    NodeResult { name: name.to_owned(), done: vec![], conditions: vec![], failed: None }
}

/// A run in which the workflow comes to this.
fn run(nodes: Vec<NodeResult>, complete: bool) -> test::Run {
    test::Run::new().workflow(SITE, WorkflowResult { nodes, complete })
}

#[test]
fn a_page_is_good_once_its_workflow_is_complete() {
    let recorded = test::with(run(vec![node("configmap")], true), || WebPageOperator::reconcile(&page(GOOD)));
    let status = json!({ "areWeGood": true, "htmlConfigMap": "hello-html", "observedGeneration": 3 });
    assert_eq!(recorded.answer, Ok(Update::status(status)));
}

#[test]
fn what_is_not_ready_is_named() {
    let ready = |met| vec![ConditionOutcome { role: ConditionRole::ReadyPostcondition, met, detail: None }];
    let nodes = vec![
        NodeResult { conditions: ready(true), ..node("configmap") },
        NodeResult { conditions: ready(false), ..node("deployment") },
    ];
    let recorded = test::with(run(nodes, false), || WebPageOperator::reconcile(&page(GOOD)));
    assert_eq!(recorded.answer, Ok(Update::status(bad("not ready yet: deployment"))));
}

#[test]
fn for_bad_html_the_workflow_does_not_run() {
    for html in ["hello", "<html>", "</html>", ""] {
        let recorded = test::with(run(vec![], true), || {
            (WebPageOperator::reconcile(&page(html)), workflow::standalone(SITE).last_result())
        });
        let expected = Ok(Update::status(bad("spec.html needs <html> and </html>")));
        assert_eq!(recorded.answer, (expected, None), "{html}");
    }
}

#[test]
fn what_failed_is_told_by_name_and_retried() {
    let nodes = vec![
        node("configmap"),
        NodeResult { failed: Some("it is another's".to_owned()), ..node("service") },
        NodeResult { failed: Some("HTTP 422".to_owned()), ..node("deployment") },
    ];
    let failure = Failure {
        origin: Origin::Reconciler,
        message: "the workflow failed".to_owned(),
        refused: None,
        dependents: vec![],
        retry: Retry { attempt: 0, last: false },
    };
    let recorded = test::with(run(nodes, false), || {
        let before = WebPageOperator::handle_error(&page(GOOD), &failure);
        drop(workflow::standalone(SITE).reconcile());
        (before, WebPageOperator::handle_error(&page(GOOD), &failure))
    });
    let told = Handled::status(bad("service: it is another's; deployment: HTTP 422"));
    assert_eq!(recorded.answer, (Ok(None), Ok(Some(told))), "without a result it is some other failure");
}

#[test]
fn the_page_goes_once_all_that_is_taken_down_is_gone() {
    for (complete, expected) in [(true, Deletion::remove_finalizer()), (false, Deletion::keep_finalizer())] {
        let recorded = test::with(run(vec![node("ingress")], complete), || WebPageOperator::cleanup(&page("bad")));
        assert_eq!(recorded.answer, Ok(expected));
    }
}

#[test]
fn objects_select_and_name_one_another() {
    let page = page(GOOD);
    let [map, deployment] = [WebPageOperator::configmap(&page), WebPageOperator::deployment(&page)];
    let [service, ingress] = [WebPageOperator::service(&page), WebPageOperator::ingress(&page)];
    let pod = &deployment["spec"]["template"];
    assert_eq!(pod["spec"]["volumes"][0]["configMap"]["name"], map["metadata"]["name"]);
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"]);
    assert_eq!(service["spec"]["selector"], pod["metadata"]["labels"]);
    let backend = &ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"];
    assert_eq!(backend["name"], service["metadata"]["name"]);
    assert_eq!(backend["port"]["number"], service["spec"]["ports"][0]["port"]);
}

#[test]
fn the_workflow_and_its_dependents_are_those_of_the_manifest() {
    let manifest = include_str!("../webpage-standalone.yaml");
    for name in [SITE, "configmap", "deployment", "service", "ingress"] {
        assert!(manifest.contains(&format!("{name}:\n")), "{name} is not in the manifest");
    }
    for name in ["configmap", "deployment", "service", "ingress"] {
        assert!(WebPageOperator::desired(name, &page(GOOD)).is_ok(), "{name}");
    }
}

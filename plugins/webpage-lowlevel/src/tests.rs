//! What is written for a page, as values.

use capstan_guest::test;

use super::*;

fn page(html: &str) -> WebPage {
    let page = json!({
        "apiVersion": "sample.capstan.dev/v1", "kind": "WebPage",
        "metadata": { "name": "hello", "namespace": "web", "uid": "u" }, "spec": { "html": html },
    });
    serde_json::from_value(page).unwrap()
}

#[test]
fn a_page_gets_its_objects_and_is_good_once_it_is_served() {
    let ready = json!({ "metadata": { "name": "hello" }, "status": { "readyReplicas": 1 } });
    let run = test::Run::new().secondary("deployments", ready);
    let recorded = test::with(run, || WebPageOperator::reconcile(&page("<html></html>")));
    let status = json!({ "areWeGood": true, "htmlConfigMap": "hello-html" });
    assert_eq!(recorded.answer, Ok(Update::status(status)));
    assert_eq!(recorded.writes.len(), 3);
}

#[test]
fn bad_html_is_told_and_nothing_is_written() {
    let recorded = test::with(test::Run::new(), || WebPageOperator::reconcile(&page("hello")));
    assert_eq!(recorded.writes.len(), 0);
}

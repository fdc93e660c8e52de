//! Decides what the objects are that a daemon is measured with: pages of 2 KB, Deployments of 6 KB that it does not own, and
//! probes that say who has answered them.

use serde_json::{Value, json};

pub(crate) const PAGES: &str = "pages";
/// The namespace of the Deployments that nobody owns.
pub(crate) const FOREIGN: &str = "foreign";

/// How large a page's HTML is, in bytes.
const HTML: usize = 2000;

pub(crate) const PAGES_PATH: &str = "/apis/sample.capstan.dev/v1/namespaces/pages/webpages";
pub(crate) const CONFIG_MAPS_PATH: &str = "/api/v1/namespaces/pages/configmaps";
pub(crate) const FOREIGN_PATH: &str = "/apis/apps/v1/namespaces/foreign/deployments";

pub(crate) fn page_name(number: usize) -> String {
    format!("page-{number:04}")
}

/// Returns a page; editions differ in their HTML.
pub(crate) fn page(number: usize, edition: usize) -> Value {
    json!({
        "apiVersion": "sample.capstan.dev/v1",
        "kind": "WebPage",
        "metadata": { "name": page_name(number) },
        "spec": { "exposed": false, "html": html(number, edition) },
    })
}

/// Returns the HTML of a page, always of the same size.
pub(crate) fn html(number: usize, edition: usize) -> String {
    let head = format!("<html>\n<head><title>Page {number}, edition {edition}</title></head>\n<body>\n");
    let tail = "\n</body>\n</html>\n";
    let room = HTML.saturating_sub(head.len() + tail.len());
    let text = "<p class=\"text\">The quick brown fox jumps over the lazy dog, and over the fence.</p>\n";
    let body: String = text.chars().cycle().take(room).collect();
    [&head, body.as_str(), tail].concat()
}

pub(crate) fn probes_path(namespace: &str) -> String {
    format!("/apis/test.capstan.dev/v1/namespaces/{namespace}/probes")
}

pub(crate) fn probe_name(number: usize) -> String {
    format!("probe-{number:04}")
}

pub(crate) fn probe(number: usize) -> Value {
    labelled_probe(&probe_name(number), "none", &probe_spec(0))
}

/// Returns a probe that one of several controllers selects by the crowd that it is of.
pub(crate) fn labelled_probe(name: &str, crowd: &str, spec: &Value) -> Value {
    let metadata = json!({ "name": name, "labels": { "crowd": crowd } });
    json!({ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "metadata": metadata, "spec": spec })
}

/// Returns the spec of a probe that hears of an event. Its condition answers in the log, with the number of the event as the
/// name of a sight: what the daemon's configuration is, and how this version of the component fails, see [`crate::diary`].
/// The dependent under the condition never comes about, so a run writes nothing.
pub(crate) fn probe_spec(event: usize) -> Value {
    let steps = json!([
        { "see": ["config"] },
        { "failTimes": 1, "mayFail": true, "as": event.to_string() },
    ]);
    let nothing = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "none" } });
    json!({ "conditions": { "answer": { "met": false, "do": steps } }, "dependents": { "answer": nothing } })
}

/// Returns a Deployment as companies have them: two containers with probes, resources, environment and volumes. With the
/// API server's defaults and managedFields it is of 6 KB.
pub(crate) fn deployment(number: usize) -> Value {
    let text = include_str!("objects/deployment.json").replace("NUMBER", &format!("{number:05}"));
    serde_json::from_str(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_of_one_size_and_differ_by_number_and_edition() {
        let texts = [html(1, 1), html(2, 1), html(1, 2), html(999, 1)];
        assert_eq!(texts.each_ref().map(String::len), [HTML; 4]);
        assert!(texts.iter().all(|text| text.ends_with("</body>\n</html>\n")));
        assert_ne!(texts[0], texts[1]);
        assert_ne!(texts[0], texts[2]);
    }

    #[test]
    fn a_deployment_has_its_number_in_its_name() {
        assert_eq!(deployment(7).pointer("/metadata/name"), Some(&json!("checkout-service-00007")));
    }
}

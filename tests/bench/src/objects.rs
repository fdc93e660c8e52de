//! Decides what the objects are that a daemon is measured with: pages of 2 KB, Deployments of 6 KB that it does not own, and
//! probes that say who has answered them.

use serde_json::{Value, json};

/// The namespace of the pages.
pub(crate) const PAGES: &str = "pages";
/// The namespace of the Deployments that nobody owns.
pub(crate) const FOREIGN: &str = "foreign";

/// How large a page's HTML is, in bytes.
const HTML: usize = 2000;

/// Returns the path of all objects of the sample's kind, or of one.
pub(crate) fn pages_path() -> String {
    format!("/apis/sample.capstan.dev/v1/namespaces/{PAGES}/webpages")
}

/// Returns the path of the pages' config maps.
pub(crate) fn config_maps_path() -> String {
    format!("/api/v1/namespaces/{PAGES}/configmaps")
}

/// Returns the path of the Deployments that nobody owns.
pub(crate) fn foreign_path() -> String {
    format!("/apis/apps/v1/namespaces/{FOREIGN}/deployments")
}

/// Returns the name of a page.
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

/// Returns the path of the probes of a namespace.
pub(crate) fn probes_path(namespace: &str) -> String {
    format!("/apis/test.capstan.dev/v1/namespaces/{namespace}/probes")
}

/// Returns the name of a probe.
pub(crate) fn probe_name(number: usize) -> String {
    format!("probe-{number:04}")
}

/// Returns a probe that has not heard of an event yet.
pub(crate) fn probe(number: usize) -> Value {
    json!({
        "apiVersion": "test.capstan.dev/v1",
        "kind": "Probe",
        "metadata": { "name": probe_name(number) },
        "spec": probe_spec(0),
    })
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
    let name = format!("checkout-service-{number:05}");
    let labels = json!({
        "app.kubernetes.io/name": "checkout-service",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/part-of": "shop",
    });
    let annotations = json!({
        "meta.helm.sh/release-name": name,
        "meta.helm.sh/release-namespace": FOREIGN,
    });
    let selector = json!({ "app.kubernetes.io/name": "checkout-service", "app.kubernetes.io/instance": name });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "labels": labels, "annotations": annotations },
        "spec": {
            "replicas": 3,
            "revisionHistoryLimit": 5,
            "selector": { "matchLabels": selector },
            "strategy": { "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
            "template": {
                "metadata": { "labels": labels, "annotations": {
                    "prometheus.io/scrape": "true", "prometheus.io/port": "9090",
                } },
                "spec": {
                    "serviceAccountName": "checkout-service",
                    "terminationGracePeriodSeconds": 45,
                    "securityContext": { "runAsNonRoot": true, "runAsUser": 10001, "fsGroup": 10001 },
                    "containers": [application(number), sidecar()],
                    "volumes": [
                        { "name": "config", "configMap": { "name": format!("{name}-config") } },
                        { "name": "scratch", "emptyDir": { "sizeLimit": "256Mi" } },
                    ],
                },
            },
        },
    })
}

fn application(number: usize) -> Value {
    let probe = |path: &str, period: u32| json!({ "httpGet": { "path": path, "port": "http" }, "periodSeconds": period, "failureThreshold": 3 });
    let from = |field: &str| json!({ "fieldRef": { "fieldPath": field } });
    json!({
        "name": "application",
        "image": "registry.example.com/shop/checkout-service:4.17.2",
        "args": ["--config=/etc/checkout/config.yaml", "--log-format=json"],
        "env": [
            { "name": "POD_NAME", "valueFrom": from("metadata.name") },
            { "name": "SHARD", "value": format!("{number}") },
            { "name": "DATABASE_URL", "valueFrom": { "secretKeyRef": { "name": "checkout-database", "key": "url" } } },
        ],
        "ports": [
            { "name": "http", "containerPort": 8080, "protocol": "TCP" },
            { "name": "metrics", "containerPort": 9090, "protocol": "TCP" },
        ],
        "livenessProbe": probe("/livez", 20),
        "readinessProbe": probe("/readyz", 5),
        "resources": { "requests": { "cpu": "250m", "memory": "256Mi" }, "limits": { "memory": "512Mi" } },
        "securityContext": { "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true },
        "volumeMounts": [
            { "name": "config", "mountPath": "/etc/checkout", "readOnly": true },
            { "name": "scratch", "mountPath": "/tmp" },
        ],
    })
}

fn sidecar() -> Value {
    json!({
        "name": "log-shipper",
        "image": "registry.example.com/platform/log-shipper:1.9.0",
        "resources": { "requests": { "cpu": "20m", "memory": "32Mi" }, "limits": { "memory": "64Mi" } },
        "volumeMounts": [{ "name": "scratch", "mountPath": "/var/log/application" }],
    })
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
}

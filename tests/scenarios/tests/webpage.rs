//! The sample operator, end to end: the same in each language, since its manifests differ in the component alone.

use std::fs;

use cluster::{Query, wait};
use scenarios::{Daemon, LATER, Place, SOON, repository};
use serde_json::{Value, json};

use crate::languages::daemon;

const SAMPLES: [&str; 4] = ["webpage", "webpage-python", "webpage-javascript", "webpage-go"];

const HTML: &str = "<html><head><title>Grüße 👋</title></head><body>x</body></html>";

/// Which instances the runs of a sample get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instances {
    Fresh,
    Warm,
}

/// A page in the cluster, whatever the language of its operator.
struct Page {
    place: Place,
    daemon: Daemon,
}

impl Page {
    fn new(sample: &str, instances: Instances) -> Self {
        let place = Place::new("page");
        let mut manifest = place.sample_manifest(sample);
        if instances == Instances::Warm {
            let limits = "      limits:";
            assert_eq!(manifest.matches(limits).count(), 1);
            manifest = manifest.replace(limits, &format!("      instances: warm\n{limits}"));
        }
        let daemon = daemon(&place, &manifest);
        let (spec, pages) = (json!({ "spec": { "html": HTML } }), place.pages());
        place.create("sample.capstan.dev/v1", "WebPage", &pages, "site", spec);
        Self { place, daemon }
    }

    fn change(&self, spec: Value) {
        let (pages, spec) = (self.place.pages(), json!({ "spec": spec }));
        self.place.merge(&pages, "site", &spec);
    }

    fn delete(&self) {
        self.place.delete(&self.place.pages(), "site");
    }

    /// Waits until the status is about this generation, and compares it.
    fn has_status(&self, generation: u64, mut status: Value) {
        status["observedGeneration"] = generation.into();
        let what = format!("the status of generation {generation}");
        let pages = self.place.pages();
        let page =
            self.place.await_object(&pages, "site", &what, |page| page["status"]["observedGeneration"] == generation);
        assert_eq!(page["status"], status);
    }

    fn is_good(&self, generation: u64) {
        let status = json!({ "areWeGood": true, "htmlConfigMap": "site-html" });
        self.has_status(generation, status);
    }

    fn path(&self, object: &Value) -> String {
        let api_version = object["apiVersion"].as_str().unwrap();
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let plural = kind.strip_suffix('s').map(|stem| format!("{stem}ses"));
        let plural = plural.unwrap_or_else(|| format!("{kind}s"));
        self.place.namespace.path(api_version, &plural)
    }

    /// Waits until the status is about this generation, and has become this one.
    fn comes_to(&self, generation: u64, mut status: Value) {
        status["observedGeneration"] = generation.into();
        let (pages, what) = (self.place.pages(), status.to_string());
        self.place.await_within(LATER, &pages, "site", &what, |page| page["status"] == status);
    }

    /// Waits until the cluster has exactly this object, as the API server completes it, owned by the page, and returns it.
    fn has(&self, wanted: &Value) -> Value {
        let found = self.has_unowned(wanted);
        let page = self.place.find(&self.place.pages(), "site").unwrap();
        let owner = json!([{
            "apiVersion": "sample.capstan.dev/v1", "kind": "WebPage", "name": "site", "uid": page["metadata"]["uid"],
            "controller": false, "blockOwnerDeletion": false,
        }]);
        assert_eq!(found["metadata"]["ownerReferences"], owner);
        found
    }

    /// As [`Page::has`], whoever owns it.
    fn has_unowned(&self, wanted: &Value) -> Value {
        let path = self.path(wanted);
        let name = wanted["metadata"]["name"].as_str().unwrap();
        let mut dry = wanted.clone();
        dry["metadata"]["name"] = "dry".into();
        let api = self.place.cluster.api();
        let dry = api.create(&format!("{path}?dryRun=All"), &dry).unwrap();
        let found = wait::until_ok(SOON, name, || match self.place.find(&path, name) {
            Some(found) if content(&found) == content(&dry) => Ok(found),
            Some(found) => Err(format!("{} instead of {}", content(&found), content(&dry))),
            None => Err("nothing".to_owned()),
        });
        found.unwrap()
    }

    fn has_no(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.place.await_gone(&self.path(object), name);
    }

    /// Waits until the Deployment is as ready as it gets, so that no event of it is to come.
    fn is_served(&self) {
        let path = self.place.namespace.path("apps/v1", "deployments");
        let ready = |deployment: &Value| deployment["status"]["readyReplicas"] == 1;
        let found = wait::until(LATER, "a ready replica", || self.place.find(&path, "site").filter(ready));
        found.unwrap();
        await_endpoint(&self.place, "site");
        self.daemon.await_quiet();
    }
}

/// Waits until a service leads to something that serves.
pub(crate) fn await_endpoint(place: &Place, service: &str) {
    let slices = place.namespace.path("discovery.k8s.io/v1", "endpointslices");
    let of_service = format!("{slices}?labelSelector=kubernetes.io/service-name={service}");
    wait::until_ok(LATER, "a ready endpoint", || {
        let slices = place.cluster.api().get(&of_service).unwrap();
        let is_ready = |endpoint: &Value| endpoint["conditions"]["ready"] == true;
        let mut endpoints =
            slices["items"].as_array().into_iter().flatten().filter_map(|slice| slice["endpoints"].as_array());
        if endpoints.any(|endpoints| endpoints.iter().any(is_ready)) { Ok(()) } else { Err(slices) }
    })
    .unwrap();
}

/// Returns what the author of an object decides, without what the API server chooses.
fn content(object: &Value) -> Value {
    let mut spec = object["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.retain(|field, _| field != "clusterIP" && field != "clusterIPs");
    }
    json!({ "labels": object["metadata"]["labels"], "spec": spec, "data": object["data"] })
}

fn object(api_version: &str, kind: &str, name: &str, field: &str, content: Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": { "name": name, "labels": { "app": "site" } },
        field: content,
    })
}

fn config_map(html: &str) -> Value {
    let data = json!({ "index.html": html });
    object("v1", "ConfigMap", "site-html", "data", data)
}

fn deployment() -> Value {
    let labels = json!({ "app": "site" });
    let container = json!({
        "name": "nginx", "image": "nginx:1.29", "ports": [{ "containerPort": 80, "protocol": "TCP" }],
        "volumeMounts": [{ "name": "html", "mountPath": "/usr/share/nginx/html" }],
    });
    let volume = json!({ "name": "html", "configMap": { "name": "site-html" } });
    let spec = json!({
        "replicas": 1, "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": { "containers": [container], "volumes": [volume] } },
    });
    object("apps/v1", "Deployment", "site", "spec", spec)
}

fn service() -> Value {
    let ports = json!([{ "port": 80, "targetPort": 80, "protocol": "TCP" }]);
    let spec = json!({ "selector": { "app": "site" }, "ports": ports });
    object("v1", "Service", "site", "spec", spec)
}

fn ingress() -> Value {
    let backend = json!({ "service": { "name": "site", "port": { "number": 80 } } });
    let paths = json!([{ "path": "/", "pathType": "Prefix", "backend": backend }]);
    let spec = json!({ "rules": [{ "http": { "paths": paths } }] });
    object("networking.k8s.io/v1", "Ingress", "site", "spec", spec)
}

/// A page becomes a site, follows its spec, survives bad HTML, and goes with all that it had.
pub(crate) fn a_page_lives(sample: &str, instances: Instances) {
    let page = Page::new(sample, instances);
    page.is_good(1);
    for object in [config_map(HTML), deployment(), service()] {
        page.has(&object);
    }
    assert!(page.place.find(&page.path(&ingress()), "site").is_none());
    page.is_served();

    let changed = HTML.replace('x', "y");
    page.change(json!({ "html": changed, "exposed": true }));
    page.is_good(2);
    let before = [config_map(&changed), deployment(), service(), ingress()];
    let before = before.map(|object| page.has(&object)["metadata"]["uid"].take());
    page.change(json!({ "exposed": false }));
    page.is_good(3);
    page.has_no(&ingress());

    page.daemon.await_quiet();
    let runs = page.daemon.runs();
    page.change(json!({ "html": "no page" }));
    let message = "spec.html needs <html> and </html>";
    page.has_status(4, json!({ "areWeGood": false, "errorMessage": message }));
    page.daemon.await_quiet();
    assert_eq!(page.daemon.runs(), runs + 1);
    let state = &page.daemon.controllers()["controllers"][0]["states"][0];
    assert_eq!(state["attempt"], Value::Null, "no retry is to come");
    let after = [config_map(&changed), deployment(), service()];
    let after = after.map(|object| page.has(&object)["metadata"]["uid"].take());
    assert_eq!(before[..3], after, "what the last good page had made stays");

    page.change(json!({ "html": HTML }));
    page.is_good(5);
    page.has(&config_map(HTML));
    page.delete();
    for object in [config_map(HTML), deployment(), service()] {
        page.has_no(&object);
    }
    page.daemon.await_quiet();
    let started = instances_started(&page.daemon);
    match instances {
        // One for each generation, and the one that is started for a try when the plugin is loaded.
        Instances::Fresh => assert!(started >= 6, "{started}"),
        // One for all of them, and the one for a try.
        Instances::Warm => assert!(started <= 2, "{started}"),
    }
    assert!(page.daemon.stop().success());
}

/// Returns how many instances of the one plugin have been started.
fn instances_started(daemon: &Daemon) -> u64 {
    let report: Value = serde_json::from_str(&daemon.get("/debug/plugins").1).unwrap();
    let started = &report["plugins"][0]["usage"]["instancesStarted"];
    started.as_u64().unwrap()
}

// === the tests; those of other languages are in `languages.rs` ===

#[test]
fn the_manifests_of_the_sample_differ_in_the_component_and_its_memory_alone() {
    let manifests = SAMPLES.map(|sample| {
        let file = repository().join(format!("plugins/{sample}/{sample}.yaml"));
        let text = fs::read_to_string(file).unwrap();
        let mut manifest: Value = serde_yaml::from_str(&text).unwrap();
        let plugin = &mut manifest["spec"]["plugins"]["webpage"];
        let path = plugin["component"]["path"].take();
        assert_eq!(path, format!("{sample}.wasm"));
        assert!(plugin["limits"]["memory"].take().is_string());
        manifest
    });
    for manifest in &manifests {
        assert_eq!(*manifest, manifests[0]);
    }
}

#[test]
fn s145_a_reconciler_can_write_everything_itself() {
    let place = Place::new("s145");
    let daemon = place.daemon(&place.sample_manifest("webpage-lowlevel"));
    let (deployments, services) =
        (place.namespace.path("apps/v1", "deployments"), place.namespace.path("v1", "services"));
    let ingresses = place.namespace.path("networking.k8s.io/v1", "ingresses");
    place.create("sample.capstan.dev/v1", "WebPage", &place.pages(), "site", json!({ "spec": { "html": HTML } }));
    let ready = |d: &Value| d["status"]["readyReplicas"].as_u64().unwrap_or(0) >= 1;
    wait::until(LATER, "ready replicas", || place.find(&deployments, "site").filter(ready)).unwrap();
    place.await_within(LATER, &place.pages(), "site", "a good status", |page| page["status"]["areWeGood"] == true);
    assert!(place.find(&services, "site").is_some());
    await_endpoint(&place, "site");
    let (_, index) = daemon.get("/");
    assert_eq!(daemon.get("/debug").1, index);
    let pages: Vec<_> =
        index.lines().filter_map(|line| line.trim().split(' ').next().filter(|word| word.starts_with('/'))).collect();
    assert_eq!(
        pages,
        ["/livez", "/readyz?verbose", "/metrics", "/debug/controllers", "/debug/workflows", "/debug/plugins"]
    );
    // HE-2
    for page in pages {
        assert_eq!(daemon.get(page).0, 200, "{page}");
    }
    assert!(place.find(&ingresses, "site").is_none());
    let map = place.find(&place.pages(), "site").unwrap()["status"]["htmlConfigMap"].as_str().unwrap().to_owned();
    assert_eq!(place.find(&place.config_maps(), &map).unwrap()["data"]["index.html"], HTML);

    let changed = HTML.replace("Grüße", "Servus");
    assert_ne!(changed, HTML);
    place.merge(&place.pages(), "site", &json!({ "spec": { "html": changed, "exposed": true } }));
    place.await_object(&place.config_maps(), &map, "the new title", |map| map["data"]["index.html"] == changed);
    place.await_object(&ingresses, "site", "the ingress", |_| true);
    place.merge(&place.pages(), "site", &json!({ "spec": { "exposed": false } }));
    place.await_gone(&ingresses, "site");

    place.delete(&place.pages(), "site");
    for (path, name) in [(&deployments, "site"), (&services, "site"), (&place.config_maps(), &map)] {
        place.await_gone(path, name);
    }
    assert!(daemon.stop().success());
}

#[test]
fn s146_a_page_becomes_a_site_by_a_workflow() {
    a_page_lives("webpage", Instances::Fresh);
}

#[test]
fn s147_a_page_becomes_a_site_by_a_workflow_that_its_reconciler_has_run() {
    // WF-2, WF-5, WF-6
    let page = Page::new("webpage-standalone", Instances::Fresh);
    let good = || json!({ "areWeGood": true, "htmlConfigMap": "site-html" });
    page.comes_to(1, good());
    for object in [config_map(HTML), deployment(), service()] {
        page.has(&object);
    }
    assert!(page.place.find(&page.path(&ingress()), "site").is_none());
    page.is_served();
    let changed = HTML.replace('x', "y");
    page.change(json!({ "html": changed, "exposed": true }));
    page.comes_to(2, good());
    let objects = || [config_map(&changed), deployment(), service()];
    let uids = || objects().map(|object| page.has(&object)["metadata"]["uid"].take());
    let before = uids();
    let found = page.has_unowned(&ingress());
    assert_eq!(found["metadata"]["ownerReferences"], Value::Null, "its end is the component's");

    // What others change is put right, whatever writes it.
    page.place.merge(&page.path(&service()), "site", &json!({ "spec": { "selector": { "app": "other" } } }));
    page.place.merge(&page.path(&config_map("")), "site-html", &json!({ "data": { "index.html": "other" } }));
    page.place.merge(&page.path(&ingress()), "site", &json!({ "metadata": { "labels": { "app": "other" } } }));
    assert_eq!(uids(), before);
    page.has_unowned(&ingress());

    page.change(json!({ "exposed": false }));
    page.comes_to(3, good());
    page.has_no(&ingress());

    // A bad page has nothing but its status written.
    page.daemon.await_quiet();
    let audit = page.place.cluster.audit().unwrap();
    let since = audit.mark().unwrap();
    page.change(json!({ "html": "no page", "exposed": true }));
    page.comes_to(4, json!({ "areWeGood": false, "errorMessage": "spec.html needs <html> and </html>" }));
    page.daemon.await_quiet();
    let query = Query::since(since).user_agent("capstan/").namespace(page.place.namespace.name()).writes();
    let written: Vec<_> = audit.requests(&query).unwrap().into_iter().map(|request| request.resource).collect();
    assert_eq!(written, ["webpages"]);
    assert_eq!(uids(), before);

    // The page goes after its Ingress, and the rest after the page.
    page.change(json!({ "html": HTML }));
    page.comes_to(5, good());
    page.has_unowned(&ingress());
    let finalizers = page.place.find(&page.place.pages(), "site").unwrap()["metadata"]["finalizers"].take();
    assert_eq!(finalizers.as_array().map(Vec::len), Some(1), "{finalizers}");
    page.delete();
    page.place.await_gone(&page.place.pages(), "site");
    assert!(page.place.find(&page.path(&ingress()), "site").is_none());
    for object in objects() {
        page.has_no(&object);
    }
    assert!(!page.daemon.log().contains("the run failed"), "{}", page.daemon.log());
    assert!(page.daemon.stop().success());
}

#[test]
fn a_workflow_that_its_reconciler_has_run_says_which_node_failed_and_is_retried() {
    // WF-7, WF-8, EC-5
    let place = Place::new("failing");
    let daemon = daemon(&place, &place.sample_manifest("webpage-standalone"));
    let services = place.namespace.path("v1", "services");
    place.create("v1", "Service", &services, "site", json!({ "spec": { "ports": [{ "port": 1 }] } }));
    let spec = json!({ "spec": { "html": HTML, "exposed": true } });
    place.create("sample.capstan.dev/v1", "WebPage", &place.pages(), "site", spec);
    let says = |page: &Value, text: &str| page["status"]["errorMessage"].as_str().is_some_and(|e| e.starts_with(text));
    let failed = place.await_object(&place.pages(), "site", "what failed", |page| says(page, "service: Service "));
    assert_eq!(failed["status"]["areWeGood"], false);
    // Others are made all the same, and what depends on it is not.
    assert!(place.find(&place.namespace.path("apps/v1", "deployments"), "site").is_some());
    assert!(place.find(&place.namespace.path("networking.k8s.io/v1", "ingresses"), "site").is_none());
    place.delete(&services, "site");
    place.await_within(LATER, &place.pages(), "site", "a good status", |page| page["status"]["areWeGood"] == true);
    assert!(daemon.count("capstan_reconciliations_handled_total", "") > 0);
}

#[test]
fn a_page_becomes_a_site_in_a_warm_instance() {
    a_page_lives("webpage", Instances::Warm);
}

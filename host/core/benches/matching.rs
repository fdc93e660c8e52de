//! How long it takes to find out that a dependent is as desired: what a restart does for every dependent of every primary.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a benchmark may fail loudly")]

use capstan_core::budget::Budget;
use capstan_core::dependent::managed_fields::{self, Comparison, Part};
use capstan_core::dependent::{self, compare_applied, diff};
use capstan_core::guest::MatchResult;
use capstan_core::manifest::GenericMatching;
use capstan_core::object::{Gvk, Managers, Object};
use divan::{Bencher, black_box};
use serde_json::{Value, json};

fn main() {
    divan::main();
}

/// A Deployment as an API server answered it, beside its managed fields, and what was applied.
struct Case {
    object: Object,
    desired: Value,
}

/// One of 2 KB beside 1.3 KB of managed fields of one manager, and one of 6 KB that two others have written to, too.
const CASES: [&str; 2] = ["2 KB", LARGE];
const LARGE: &str = "6 KB, three managers";

fn case(name: &str) -> Case {
    let mut file: Value = serde_yaml::from_str(include_str!("../tests/golden/applied/deployment.yaml")).unwrap();
    if name == LARGE {
        enlarge(&mut file);
    }
    let gvk = Gvk::parse("apps/v1", "Deployment").unwrap();
    let object = Object::parse(&file["actual"].to_string(), &gvk, &Managers::new(["webpage"])).unwrap();
    Case { object, desired: file["desired"].clone() }
}

/// Adds variables that are applied, and what a controller and a person have written.
fn enlarge(file: &mut Value) {
    let name = |number: usize| format!("SETTING_{number:02}");
    let variable =
        |number| json!({ "name": name(number), "value": format!("https://settings.example.com/{}", "x".repeat(40)) });
    for tree in ["desired", "actual"] {
        let env = &mut file[tree]["spec"]["template"]["spec"]["containers"][0]["env"];
        env.as_array_mut().unwrap().extend((0..40).map(variable));
    }
    let actual = &mut file["actual"];
    let own = "/metadata/managedFields/0/fieldsV1/f:spec/f:template/f:spec/f:containers/k:{\"name\":\"nginx\"}/f:env";
    let owned = actual.pointer_mut(own).unwrap().as_object_mut().unwrap();
    owned.extend((0..40).map(|number| {
        let key = format!("k:{}", json!({ "name": name(number) }));
        (key, json!({ ".": {}, "f:name": {}, "f:value": {} }))
    }));
    let [revision, restarted] = ["deployment.kubernetes.io/revision", "kubectl.kubernetes.io/restartedAt"];
    actual["metadata"]["annotations"] = json!({ revision: "7", restarted: "2026-01-01T00:00:00Z" });
    actual["status"] = json!({ "observedGeneration": 7, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
        "conditions": [{ "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "Deployment has minimum availability." }] });
    let shares = [
        json!({ "manager": "kubectl-rollout", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1":
            { "f:spec": { "f:template": { "f:metadata": { "f:annotations": { (format!("f:{restarted}")): {} } } } } } }),
        json!({ "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "apps/v1", "subresource": "status", "fieldsType": "FieldsV1", "fieldsV1":
            { "f:metadata": { "f:annotations": { ".": {}, (format!("f:{revision}")): {} } }, "f:status": { "f:observedGeneration": {}, "f:replicas": {},
              "f:updatedReplicas": {}, "f:readyReplicas": {}, "f:availableReplicas": {}, "f:conditions": { "k:{\"type\":\"Available\"}": { ".": {}, "f:type": {}, "f:status": {} } } } } }),
    ];
    let mut bare = actual.clone();
    bare["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert!(bare.to_string().len() > 6_000, "{} bytes", bare.to_string().len());
    actual["metadata"]["managedFields"].as_array_mut().unwrap().extend(shares);
}

/// All of it: from the cached text to the verdict.
#[divan::bench(args = CASES)]
fn cached_text_by_managed_fields(bencher: Bencher<'_, '_>, name: &str) {
    let Case { object, desired } = case(name);
    bencher.bench(|| {
        let verdict =
            compare_applied(black_box(&object), &desired, "webpage", Part::Object, &mut Budget::of_run()).unwrap();
        assert_eq!(verdict, MatchResult::Matches);
    });
}

/// Without reading the cached text.
#[divan::bench(args = CASES)]
fn trees_by_managed_fields(bencher: Bencher<'_, '_>, name: &str) {
    let Case { object, desired } = case(name);
    let actual = object.tree(&mut Budget::of_run()).unwrap();
    let share = dependent::share(&object, "webpage", Part::Object);
    let fields = &*share.unwrap().unwrap().fields;
    let ignore: &[&str] = &[];
    bencher.bench(|| {
        let comparison = Comparison {
            fields: Some(fields),
            actual: black_box(&actual),
            desired: &desired,
            part: Part::Object,
            ignore,
        };
        managed_fields::compare(&comparison, &mut Budget::of_run()).unwrap()
    });
}

/// Reading the cached text alone.
#[divan::bench(args = CASES)]
fn reading_the_cached_text(bencher: Bencher<'_, '_>, name: &str) {
    let Case { object, .. } = case(name);
    bencher.bench(|| black_box(&object).tree(&mut Budget::of_run()).unwrap());
}

/// Reading what the component answered.
#[divan::bench(args = CASES)]
fn reading_the_answer(bencher: Bencher<'_, '_>, name: &str) {
    let text = case(name).desired.to_string();
    bencher.bench(|| serde_json::from_str::<Value>(black_box(&text)).unwrap());
}

#[divan::bench(args = CASES)]
fn trees_by_differences(bencher: Bencher<'_, '_>, name: &str) {
    let Case { object, desired } = case(name);
    let actual = object.tree(&mut Budget::of_run()).unwrap();
    bencher.bench(|| diff::compare(black_box(&actual), &desired, &GenericMatching::default(), &mut Budget::of_run()));
}

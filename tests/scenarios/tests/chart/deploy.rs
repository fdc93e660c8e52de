//! The documents of `docs/deploy.md`: each can be read, and what is an operator in them is one.

use std::fs;
use std::process::Command;

use scenarios::{capstan, repository};
use serde_json::{Value, json};

use super::helm::{documents, template};

/// Returns the documents of the page.
fn page() -> Vec<Value> {
    let page = fs::read_to_string(repository().join("docs/deploy.md")).unwrap();
    let fences = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    fences.flat_map(documents).collect()
}

/// Checks a manifest as its reader would.
fn check(manifest: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("operator.yaml");
    fs::write(&file, manifest).unwrap();
    let output = Command::new(capstan()).args(["check", "-m"]).arg(&file).env_remove("RUST_LOG").output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    assert!(output.status.success(), "{said}\n{manifest}");
}

#[test]
fn the_documents_for_git_ops_are_right_and_so_are_the_operators_in_them() {
    let (mut kinds, mut operators) = (Vec::new(), 0);
    for document in page() {
        let kind = document["kind"].as_str().unwrap_or_else(|| panic!("{document}")).to_owned();
        assert!(document["apiVersion"].is_string() && document["metadata"]["name"].is_string(), "{document}");
        if kind == "Operator" {
            operators += 1;
            check(&document.to_string());
        }
        let values = [&document["spec"]["values"], &document["spec"]["source"]["helm"]["valuesObject"]];
        for values in values.into_iter().filter(|values| values.is_object()) {
            let found = template("operators.yaml", "capstan", values).unwrap_or_else(|error| panic!("{error}"));
            for map in found.iter().filter(|map| map["kind"] == "ConfigMap") {
                for manifest in map["data"].as_object().into_iter().flat_map(|data| data.values()) {
                    operators += 1;
                    check(manifest.as_str().unwrap());
                }
            }
            template("deployment.yaml", "capstan", values).unwrap();
        }
        kinds.push(kind);
    }
    for kind in ["OCIRepository", "HelmRelease", "Kustomization", "Application", "Operator"] {
        assert!(kinds.contains(&kind.to_owned()), "{kind} is not in {kinds:?}");
    }
    assert_eq!(operators, 2);
    let wrong = json!({ "operators": { "web": { "manifest": { "spec": { "controlers": {} } } } } });
    assert!(template("operators.yaml", "capstan", &wrong).is_err());
}

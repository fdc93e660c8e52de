//! What a manifest names of its kinds, and they do not have: `check` refuses it, and a daemon warns of it.

use std::fs;
use std::path::Path;

use scenarios::{Folder, Place, Start, component, repository, run};
use serde_json::{Value, json};

/// Returns the definition of the sample's kind, of which the schema leaves nothing open.
fn definition() -> String {
    repository().join("plugins/webpage/crd.yaml").display().to_string()
}

/// Returns a manifest of the sample with these fields, one in each line.
fn manifest(fields: &[&str]) -> String {
    let fields: String = fields.iter().map(|field| format!("      {field}\n")).collect();
    format!(
        "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: sample }}\nspec:\n  plugins:\n    sample:\n      component: {{ path: {} }}\n  controllers:\n    sample:\n      plugin: sample\n      primary: {{ apiVersion: sample.capstan.dev/v1, kind: WebPage }}\n{fields}",
        component("webpage").display()
    )
}

/// Runs `capstan check` over a manifest with these definitions. Returns the exit code, and all of its output.
fn check(manifest: &str, definitions: &[&str], more: &[&str]) -> (i32, String) {
    let folder = Folder::new();
    folder.put("operator.yaml", manifest);
    let [file, cache] = ["operator.yaml", "code"].map(|name| folder.path(name).display().to_string());
    let mut arguments = vec!["check", "-m", &file, "--code-cache", &cache];
    for file in definitions {
        arguments.extend(["--crd", file]);
    }
    arguments.extend(more);
    let (code, out, err) = run(&arguments);
    let root = Path::new(&file).parent().unwrap().display().to_string();
    (code, format!("{out}{err}").replace(&root, "."))
}

const RIGHT: [&str; 2] =
    ["keep: [/spec, /status/areWeGood]", "filters: { generic: { cel: has(object.spec.exposed) } }"];
const WRONG: [&str; 2] = ["drop: [/status/areWeGod]", "filters: { generic: { cel: has(object.spec.exposd) } }"];

/// LC-14
#[test]
fn check_refuses_what_a_manifest_names_and_its_kind_does_not_have_with_file_and_line() {
    let (code, said) = check(&manifest(&WRONG), &[&definition()], &[]);
    assert_eq!(code, 1, "{said}");
    for expected in [
        "ok     crd ",
        "WebPage.sample.capstan.dev (v1)",
        "./operator.yaml:12:14: spec.controllers.sample.drop[0]: found `/status/areWeGod`; sample.capstan.dev/v1 WebPage has no field `areWeGod` in `/status`; did you mean `areWeGood`?",
        "12 |       drop: [/status/areWeGod]\n   |              ^^^^^^^^^^^^^^^^",
        "./operator.yaml:13:50: spec.controllers.sample.filters.generic.cel: found `object.spec.exposd`; sample.capstan.dev/v1 WebPage has no field `exposd` in `object.spec`; did you mean `exposed`?",
        "= fields here: exposed, html",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in:\n{said}");
    }
    let (code, said) = check(&manifest(&WRONG), &[&definition()], &["-o", "json"]);
    // Standard error follows.
    let findings: Value = serde_json::Deserializer::from_str(&said).into_iter().next().unwrap().unwrap();
    let wrong: Vec<_> = findings.as_array().unwrap().iter().filter(|finding| finding["ok"] == false).collect();
    assert_eq!((code, wrong.len(), &wrong[0]["kind"]), (1, 1, &json!("manifest")));
}

/// SC-5
#[test]
fn check_refuses_conditions_for_a_kind_that_can_not_have_them() {
    let fields = ["statusConditions: standard"];
    let (code, said) = check(&manifest(&fields), &[&definition()], &[]);
    let expected = "./operator.yaml:12:25: spec.controllers.sample.statusConditions: found `standard`; sample.capstan.dev/v1 WebPage has no field `conditions` in `/status`";
    assert!(code == 1 && said.contains(expected), "{code} {said}");
    let probes = repository().join("tests/guests/probe/crd.yaml").display().to_string();
    let of_probes =
        manifest(&fields).replace("sample.capstan.dev/v1, kind: WebPage", "test.capstan.dev/v1, kind: Probe");
    let (code, said) = check(&of_probes, &[&probes], &[]);
    assert_eq!(code, 0, "{said}");
}

/// LC-14
#[test]
fn check_has_nothing_against_fields_that_exist_or_kinds_that_no_file_defines() {
    let others = repository().join("tests/guests/probe/crd.yaml").display().to_string();
    for (fields, definitions) in
        [(&RIGHT, &[&*definition(), &others][..]), (&RIGHT, &[]), (&WRONG, &[]), (&WRONG, &[&others])]
    {
        let (code, said) = check(&manifest(fields), definitions, &[]);
        assert_eq!(code, 0, "{fields:?} {definitions:?}\n{said}");
    }
}

/// LC-14
#[test]
fn check_refuses_a_file_that_has_no_definition() {
    let folder = Folder::new();
    folder.put("crd.yaml", fs::read_to_string(definition()).unwrap().replace("scope: Namespaced", "scope: Names"));
    let file = folder.path("crd.yaml").display().to_string();
    let sample = repository().join("plugins/webpage/webpage.yaml").display().to_string();
    for (file, expected) in [
        (&file, "crd.yaml:11:10: spec.scope: found `Names`; expected `Namespaced` or `Cluster`"),
        (&sample, "webpage.yaml:2:7: kind: found `Operator`; expected a CustomResourceDefinition"),
        (&"missing.yaml".to_owned(), "read missing.yaml: No such file or directory"),
    ] {
        let (code, said) = check(&manifest(&RIGHT), &[file], &[]);
        assert!(code == 1 && said.contains(expected), "{code} {said}");
    }
}

/// LC-14
#[test]
fn a_daemon_warns_of_fields_that_the_api_server_does_not_know_and_runs_all_the_same() {
    let place = Place::new("fit");
    let primary = "{ apiVersion: sample.capstan.dev/v1, kind: WebPage }";
    let of = |fields: &[&str]| place.manifest("webpage", primary, "", &fields.join("\n"));
    let both = format!("{}---\n{}", of(&WRONG), place.renamed(&of(&RIGHT), "right"));
    let daemon = Start::new(&both).run(&place).until_ready();
    let name = place.namespace.name();
    for (field, text) in [("drop[0]", "did you mean `areWeGood`?"), ("filters.generic.cel", "did you mean `exposed`?")]
    {
        let line = daemon.await_line(text);
        let line: Value = serde_json::from_str(&line).unwrap();
        let said = line.to_string();
        assert_eq!(line["level"], "WARN", "{said}");
        for expected in [
            &format!("spec.controllers.{name}.{field}"),
            &format!("\"operator\":\"{name}\""),
            &format!("\"controller\":\"{name}\""),
        ] {
            assert!(said.contains(expected), "{expected} is not in {said}");
        }
    }
    let warned = |controller: &str| {
        let of = |line: &&Value| line.to_string().contains("what its kind does not have");
        daemon
            .lines()
            .iter()
            .filter(of)
            .filter(|line| line.to_string().contains(&format!("\"controller\":\"{controller}\"")))
            .count()
    };
    assert_eq!((warned(name), warned(&format!("{name}-right"))), (2, 0));
}

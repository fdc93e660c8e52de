//! Names that a manifest uses and a component does not have: found before they are in force.

use std::fs;
use std::process::{Command, Stdio};

use cluster::wait;
use scenarios::{Folder, Place, capstan, component, replace};
use serde_json::json;

use crate::languages::COMPILING;

/// Returns the sample's component, in which a dependent has another name of the same length.
fn misnamed() -> Vec<u8> {
    replace(&fs::read(component("webpage")).unwrap(), b"deployment", b"deploiment")
}

/// Returns a folder with the sample's manifest, and its component beside it.
fn sample(place: &Place) -> Folder {
    let folder = Folder::new();
    folder.put("webpage.wasm", fs::read(component("webpage")).unwrap());
    folder.put("operator.yaml", beside(place, "webpage"));
    folder
}

fn beside(place: &Place, sample: &str) -> String {
    let path = component(sample).display().to_string();
    place.sample_manifest(sample).replace(&path, "webpage.wasm")
}

/// Runs `capstan check`, and waits until its components are compiled. Returns whether all is right, and all of its output.
fn check(file: &str) -> (bool, String) {
    let said = tempfile::NamedTempFile::new().unwrap();
    let to = || Stdio::from(said.reopen().unwrap());
    let arguments = ["check", "-m", file];
    let mut check = Command::new(capstan()).args(arguments).stdout(to()).stderr(Stdio::null()).spawn().unwrap();
    let ended = wait::until(COMPILING, "the component to be compiled", || check.try_wait().unwrap());
    drop(check.kill());
    (ended.unwrap().success(), fs::read_to_string(said.path()).unwrap())
}

// LC-15
#[test]
fn a_swap_to_a_component_that_lacks_a_name_is_refused_and_the_last_good_version_goes_on() {
    let place = Place::new("names-swap");
    let folder = sample(&place);
    let daemon = folder.daemon(&place);
    let page = |name: &str| {
        let pages = place.pages();
        place.create("sample.capstan.dev/v1", "WebPage", &pages, name, json!({ "spec": { "html": "<html></html>" } }));
        place.await_object(&place.namespace.path("apps/v1", "deployments"), name, "to be there", |_| true);
    };
    page("before");
    folder.put("webpage.wasm", misnamed());
    let row = daemon.await_plugin("webpage", "outdated", 1);
    let problem = row["problem"]["message"].as_str().unwrap();
    assert_eq!(row["problem"]["step"], "check", "{problem}");
    for words in [
        "does not answer to all names that the manifest uses",
        "spec.controllers.webpage.workflow.dependents.deployment: the component has no desired state for `deployment`; did you mean `deploiment`?",
        "operator.yaml:",
    ] {
        assert!(problem.contains(words), "{words} is not in {problem}");
    }
    page("meanwhile");
    // A manifest that misspells one is refused, too.
    folder.put("webpage.wasm", fs::read(component("webpage")).unwrap());
    daemon.await_plugin("webpage", "active", 1);
    folder.put(
        "operator.yaml",
        beside(&place, "webpage").replace("service:", "servise:").replace("[service]", "[servise]"),
    );
    let row = daemon.await_plugin("webpage", "outdated", 1);
    let problem = row["problem"]["message"].as_str().unwrap();
    assert!(problem.contains("the component has no desired state for `servise`; did you mean `service`?"), "{problem}");
    page("afterwards");
}

// LC-15
#[test]
fn check_finds_a_wrong_name_in_each_language_and_names_that_nobody_uses() {
    let place = Place::new("names-check");
    for sample in ["webpage", "webpage-python", "webpage-javascript", "webpage-go"] {
        let folder = Folder::new();
        let manifest = place.sample_manifest(sample);
        folder.put("right.yaml", manifest.clone());
        let (ok, said) = check(&folder.path("right.yaml").display().to_string());
        assert!(ok && !said.contains("warning"), "{sample}: {said}");
        folder.put("wrong.yaml", manifest.replace("configmap:", "config-map:").replace("[configmap]", "[config-map]"));
        let (ok, said) = check(&folder.path("wrong.yaml").display().to_string());
        assert!(!ok, "{sample}: {said}");
        let expected =
            "dependents.config-map: the component has no desired state for `config-map`; did you mean `configmap`?";
        assert!(said.contains(expected) && said.contains("it has: `configmap`"), "{sample}: {said}");
        let (start, end) = (manifest.find("          ingress:").unwrap(), manifest.len());
        folder.put("less.yaml", format!("{}{}", &manifest[..start], &manifest[end..]));
        let (ok, said) = check(&folder.path("less.yaml").display().to_string());
        assert!(
            ok && said.contains("no manifest here uses what it has: desired state for `ingress`"),
            "{sample}: {said}"
        );
    }
}

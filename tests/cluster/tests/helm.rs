//! Shows that Helm is built in the version that is pinned.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::process::Command;

use cluster::{Tool, prepare};

#[test]
#[ignore = "builds helm the first time (minutes)"]
fn helm_says_the_version_that_is_pinned() {
    let tools = prepare(&[Tool::Helm].into(), &cluster::tools::to_stderr).unwrap();
    let helm = Command::new(tools.path(Tool::Helm).unwrap())
        .args(["version", "--template", "{{ .Version }}"])
        .output()
        .unwrap();
    let said = String::from_utf8(helm.stdout).unwrap();
    let go_mod = include_str!("../go/helm/go.mod");
    assert!(go_mod.contains(&format!("helm.sh/helm/v4 {said} ")), "{said}");
}

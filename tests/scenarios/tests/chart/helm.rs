//! Calls the real helm with the chart.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use cluster::{Cluster, Tool, Tools};
use scenarios::repository;
use serde_json::Value;

/// Returns the folder of the chart.
pub(super) fn chart() -> PathBuf {
    repository().join("charts/capstan")
}

/// Returns the examples of values, which are called like the samples that they install.
pub(super) fn examples() -> Vec<String> {
    let files = fs::read_dir(chart().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<_> = files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// Runs helm without a cluster; returns what it wrote, or what it complained of.
pub(super) fn offline(arguments: &[&str]) -> Result<String, String> {
    run(&mut command(), arguments)
}

/// Runs helm as the administrator of a cluster; returns what it wrote, or what it complained of.
pub(super) fn helm(cluster: &Cluster, arguments: &[&str]) -> Result<String, String> {
    run(command().env("KUBECONFIG", cluster.admin_kubeconfig()), arguments)
}

/// Returns the objects of one of the chart's templates with these values, a JSON document.
pub(super) fn template(file: &str, namespace: &str, values: &Value) -> Result<Vec<Value>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("values.json");
    fs::write(&path, values.to_string()).unwrap();
    let (chart, file) = (chart(), format!("templates/{file}"));
    let arguments = [
        "template",
        "capstan",
        chart.to_str().unwrap(),
        "--namespace",
        namespace,
        "--values",
        path.to_str().unwrap(),
        "--show-only",
        &file,
    ];
    offline(&arguments).map(|text| documents(&text))
}

/// Reads the documents of a YAML stream.
pub(super) fn documents(text: &str) -> Vec<Value> {
    // A separator is a line of its own: keys have dashes, too.
    let text = format!("\n{text}");
    let parts =
        text.split("\n---\n").filter(|part| part.lines().any(|line| !line.is_empty() && !line.starts_with('#')));
    parts.map(|part| serde_yaml::from_str(part).unwrap()).collect()
}

fn command() -> Command {
    static TOOLS: OnceLock<Tools> = OnceLock::new();
    let tools =
        TOOLS.get_or_init(|| cluster::prepare(&BTreeSet::from([Tool::Helm]), &cluster::tools::to_stderr).unwrap());
    let mut command = Command::new(tools.path(Tool::Helm).unwrap());
    // Nothing of the user's own: neither a cluster nor plugins.
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("helm");
    command.env("KUBECONFIG", "/dev/null").stdin(Stdio::null());
    for part in ["CACHE", "CONFIG", "DATA"] {
        command.env(format!("HELM_{part}_HOME"), own.join(part));
    }
    command
}

fn run(command: &mut Command, arguments: &[&str]) -> Result<String, String> {
    let output = command.args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

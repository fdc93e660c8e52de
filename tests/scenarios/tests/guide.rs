//! The pages of `docs/guide`, and how the chart is installed by `docs/install.md` and README.md: each command is run as it stands there, on a control
//! plane of its own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use cluster::{Cluster, Options, Tool};
use scenarios::mariadb::{MariaDb, PASSWORD};
use scenarios::{capstan, component, repository};

const PAGES: [&str; 3] = ["1-templates.md", "2-component.md", "3-database.md"];

/// A daemon goes on beside what follows, until the next one, or the end; its log is shown if something fails.
const PROLOGUE: &str = r#"set -eo pipefail
daemon=
ended() { code=$?; [ -z "$daemon" ] || { kill -INT "$daemon"; wait "$daemon"; } || true; [ $code = 0 ] || cat daemon.log; exit $code; }
trap ended EXIT
"#;

/// Returns the commands in the fences of a page.
fn commands(page: &str) -> Vec<&str> {
    let fences = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    fences.flat_map(str::lines).collect()
}

/// What of the installation is not run, by its first words.
const LEFT: [(&str, &str); 4] = [
    ("cargo xtask plugins", "the component is built already"),
    ("helm test", "nobody runs pods here; what the chart's pod does is a test of its own"),
    ("cargo xtask image", "an image is a test of its own"),
    ("skopeo copy", "there is no registry of images"),
];

/// Returns what a reader is too slow to notice: a kind is served a moment after its definition is there.
fn awaited(command: &str) -> Option<&'static str> {
    if command.starts_with("kubectl apply -f plugins/webpage/crd.yaml") {
        Some("kubectl wait --for=condition=Established --timeout=60s crd/webpages.sample.capstan.dev")
    } else if command.contains("--set operatorObjects.enabled=true") {
        Some("kubectl wait --for=condition=Established --timeout=60s crd/operators.capstan.dev")
    } else {
        None
    }
}

/// Returns the commands in the fences of a document, each in one line and without what is said of it.
fn whole(document: &str) -> Vec<String> {
    let document = document.replace("\\\n", "");
    commands(&document).into_iter().map(|line| line.split(" #").next().unwrap().trim_end().to_owned()).collect()
}

/// Returns a script that says and runs each command until one fails.
fn script(commands: &[&str]) -> String {
    let lines = commands.iter().map(|command| {
        let run = if command.starts_with("capstan run") {
            format!("{command} >daemon.log 2>&1 & daemon=$!")
        } else {
            (*command).to_owned()
        };
        format!("echo '$ {}'\n{run}\n", command.replace('\'', r"'\''"))
    });
    std::iter::once(PROLOGUE.to_owned()).chain(lines).collect()
}

/// Makes a folder that has what the pages use of this repository, and the programs that they ask for.
fn lay_out(home: &Path, cluster: &Cluster) {
    let [programs, built] = ["bin", "target/plugins"].map(|name| home.join(name));
    for folder in [&programs, &built] {
        fs::create_dir_all(folder).unwrap();
    }
    symlink(capstan(), programs.join("capstan")).unwrap();
    symlink(cluster.kubectl_path(), programs.join("kubectl")).unwrap();
    symlink(repository().join("plugins"), home.join("plugins")).unwrap();
    for sample in ["webpage", "mysql-schema"] {
        let component = component(sample);
        symlink(&component, built.join(component.file_name().unwrap())).unwrap();
        fs::copy(component.with_extension("yaml"), built.join(format!("{sample}.yaml"))).unwrap();
    }
}

#[test]
fn every_command_of_the_guide_does_what_its_page_says() {
    let (cluster, server) = (Cluster::start(&Options::default()).unwrap(), MariaDb::start());
    let home = tempfile::tempdir().unwrap();
    lay_out(home.path(), &cluster);
    let path = format!("{}:{}", home.path().join("bin").display(), std::env::var("PATH").unwrap());
    for name in PAGES {
        let page = fs::read_to_string(repository().join("docs/guide").join(name)).unwrap();
        // What a reader has of their own.
        let page = page.replace("SERVER=127.0.0.1:3306", &format!("SERVER={}", server.address()));
        let page = page.replace("password=s3cr3t", &format!("password={PASSWORD}"));
        let commands = commands(&page);
        assert!(commands.iter().any(|command| command.starts_with("capstan run")), "{name}");
        let mut shell = Command::new("bash");
        shell.arg("-c").arg(script(&commands)).current_dir(home.path()).env("PATH", &path);
        shell.env("KUBECONFIG", cluster.admin_kubeconfig()).env("CAPSTAN_LISTEN", "127.0.0.1:0").env_remove("RUST_LOG");
        let ended = shell.output().unwrap();
        let [out, err] = [&ended.stdout, &ended.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(ended.status.success(), "{name}:\n{out}\n{err}");
    }
    let left = server.query("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME LIKE '%orders'");
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn every_command_of_the_installation_is_run_or_has_a_reason_why_not() {
    let read = |path: &str| fs::read_to_string(repository().join(path)).unwrap();
    let page = read("docs/install.md");
    let commands = whole(&page);
    // README.md says the same in short.
    let readme = read("README.md");
    let short = readme.split("\n## ").find(|section| section.starts_with("Install it\n")).unwrap();
    for command in whole(short) {
        assert!(commands.contains(&command), "{command}");
    }
    for (begins, why) in LEFT {
        assert!(commands.iter().any(|command| command.starts_with(begins)), "{begins}: {why}");
    }
    let cluster = Cluster::start(&Options::default()).unwrap();
    let home = tempfile::tempdir().unwrap();
    lay_out(home.path(), &cluster);
    let helm = cluster::prepare(&BTreeSet::from([Tool::Helm]), &cluster::tools::to_stderr).unwrap();
    symlink(helm.path(Tool::Helm).unwrap(), home.path().join("bin/helm")).unwrap();
    symlink(repository().join("charts"), home.path().join("charts")).unwrap();
    // What a reader has of their own.
    let values = page.split("```yaml\n").find(|fence| fence.starts_with("# operators.yaml\n")).unwrap();
    fs::write(home.path().join("operators.yaml"), values.split("```").next().unwrap()).unwrap();
    fs::copy(component("webpage"), home.path().join("pages.wasm")).unwrap();
    for manifest in ["pages.yaml", "webpage.yaml"] {
        fs::copy(component("webpage").with_extension("yaml"), home.path().join(manifest)).unwrap();
    }
    for namespace in ["team-a", "team-b"] {
        cluster.kubectl(&["create", "namespace", namespace]).unwrap();
    }
    let is_run = |command: &&str| !LEFT.iter().any(|(begins, _)| command.starts_with(begins));
    let run = commands.iter().map(String::as_str).filter(is_run);
    let run: Vec<&str> = run.flat_map(|command| [Some(command), awaited(command)].into_iter().flatten()).collect();
    let mut shell = Command::new("bash");
    let path = format!("{}:{}", home.path().join("bin").display(), std::env::var("PATH").unwrap());
    shell.arg("-c").arg(script(&run)).current_dir(home.path()).env("PATH", &path).env_remove("RUST_LOG");
    shell.env("KUBECONFIG", cluster.admin_kubeconfig());
    for part in ["CACHE", "CONFIG", "DATA"] {
        shell.env(format!("HELM_{part}_HOME"), home.path().join(part));
    }
    let ended = shell.output().unwrap();
    let [out, err] = [&ended.stdout, &ended.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(ended.status.success(), "{out}\n{err}");
    // All of it was installed, and is gone.
    assert_eq!(cluster.kubectl(&["get", "deployments", "-n", "capstan", "-o", "name"]).unwrap(), "");
}

//! `capstan dev`: beside a daemon that is deployed, and in clusters that it may not touch.

use std::fs::{self, File};
use std::process::{Child, Command, ExitStatus, Stdio};

use cluster::wait;
use jiff::{SignedDuration, Timestamp};
use scenarios::{Daemon, Folder, Place, SOON, capstan, run};
use serde_json::{Value, json};

/// Returns a manifest without a component, whose config maps say by whom they are.
fn manifest(place: &Place, by: &str) -> String {
    let name = place.namespace.name();
    format!(
        "apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: {{ name: {name} }}
spec:
  controllers:
    {name}:
      primary: {{ apiVersion: test.capstan.dev/v1, kind: Probe }}
      namespaces: [{name}]
      workflow:
        dependents:
          map:
            apiVersion: v1
            kind: ConfigMap
            desired: {{ template: {{ metadata: {{ name: \"${{primary.metadata.name}}\" }}, data: {{ by: {by} }} }} }}
"
    )
}

/// A running `capstan dev`.
struct Dev {
    child: Child,
    folder: Folder,
}

impl Dev {
    fn start(place: &Place, arguments: &[&str]) -> Self {
        let folder = Folder::new();
        folder.put("operator.yaml", manifest(place, "dev"));
        folder.put("dev.yaml", "crds: []\n");
        let mut command = Command::new(capstan());
        command.arg("dev").arg(folder.path("")).args(arguments).env_remove("RUST_LOG").stdin(Stdio::null());
        command.env("KUBECONFIG", place.cluster.admin_kubeconfig()).env("CAPSTAN_LISTEN", "127.0.0.1:0");
        let log = File::create(folder.path(".log")).unwrap();
        Self { child: command.stdout(Stdio::null()).stderr(log).spawn().unwrap(), folder }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path(".log")).unwrap()
    }

    fn await_line(&self, text: &str) {
        let told = || if self.log().contains(text) { Ok(()) } else { Err(self.log()) };
        wait::until_ok(SOON, &format!("a line with {text:?}"), told).unwrap();
    }

    fn await_end(&mut self) -> ExitStatus {
        wait::until(SOON, "its end", || self.child.try_wait().unwrap()).unwrap()
    }

    fn end(mut self, signal: &str) -> ExitStatus {
        let id = self.child.id().to_string();
        // A terminal that is closed may say so twice.
        for _ in 0..if signal == "HUP" { 2 } else { 1 } {
            assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        }
        self.await_end()
    }
}

#[expect(clippy::print_stderr, reason = "what a test that fails needs to be looked into")]
impl Drop for Dev {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- capstan dev\n{}---", self.log());
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn await_by(place: &Place, name: &str, by: &str) {
    place.await_object(&place.config_maps(), name, &format!("to be by {by}"), |map| map["data"]["by"] == by);
}

/// Returns how often a daemon has written the config map of this name.
fn written(daemon: &Daemon, name: &str) -> usize {
    let of = |line: &&Value| {
        line["message"] == "dependent written" && line["object"].as_str().is_some_and(|object| object.ends_with(name))
    };
    daemon.lines().iter().filter(of).count()
}

#[test]
fn beside_a_daemon_that_is_deployed_dev_has_what_has_its_label_and_gives_it_back() {
    // PA-6
    let place = Place::new("devtakeover");
    let deployed = place.daemon(&manifest(&place, "deployed"));
    place.probe("other", json!({}));
    place.labelled_probe("mine", "dev", json!({}));
    await_by(&place, "other", "deployed");
    await_by(&place, "mine", "deployed");
    let once = || if written(&deployed, "/mine") == 1 { Ok(()) } else { Err(deployed.log()) };
    wait::until_ok(SOON, "the write in the log", once).unwrap();
    let dev = Dev::start(&place, &["--takeover", "dev="]);
    dev.await_line("Probe mine is held for this daemon");
    await_by(&place, "mine", "dev");
    place.delete(&place.config_maps(), "mine");
    await_by(&place, "mine", "dev");
    place.delete(&place.config_maps(), "other");
    await_by(&place, "other", "deployed");
    deployed.await_quiet();
    assert_eq!(written(&deployed, "/mine"), 1, "the deployed daemon leaves it alone");
    assert!(!dev.log().contains("/other"), "{}", dev.log());
    assert!(dev.end("HUP").success(), "as when its terminal is closed");
    await_by(&place, "mine", "deployed");
    let mine = place.find(&place.probes(), "mine").unwrap();
    assert!(mine["metadata"]["annotations"]["capstan.dev/held"].is_null(), "{mine}");
}

#[test]
fn what_was_held_by_a_daemon_that_died_goes_back_by_itself() {
    // PA-6
    let place = Place::new("devdied");
    let _deployed = place.daemon(&manifest(&place, "deployed"));
    place.labelled_probe("mine", "dev", json!({}));
    let mut dev = Dev::start(&place, &["--takeover", "dev="]);
    await_by(&place, "mine", "dev");
    dev.child.kill().unwrap();
    let mine = place.find(&place.probes(), "mine").unwrap();
    let held = mine["metadata"]["annotations"]["capstan.dev/held"].as_str().unwrap();
    let mut hold: Value = serde_json::from_str(held).unwrap();
    let end: Timestamp = hold["until"].as_str().unwrap().parse().unwrap();
    assert!(end < Timestamp::now() + SignedDuration::from_secs(61), "{held}");
    // Nobody waits a minute here: as if most of it were over, and another one had had it, of which it is told.
    hold["until"] = json!((Timestamp::now() + SignedDuration::from_secs(2)).to_string());
    hold["holder"] = json!("somebody who is gone");
    let annotations = json!({ "capstan.dev/held": hold.to_string() });
    place.merge(&place.probes(), "mine", &json!({ "metadata": { "annotations": annotations } }));
    await_by(&place, "mine", "deployed");
}

#[test]
fn dev_does_not_run_beside_a_daemon_that_the_chart_has_deployed_for_the_same_primaries() {
    let place = Place::new("devalone");
    let name = place.namespace.name();
    let labels = json!({ "helm.sh/chart": "capstan-0.1.0", "app.kubernetes.io/instance": "there" });
    let metadata = json!({ "labels": labels });
    let data = json!({ "web.yaml": manifest(&place, "deployed") });
    place.create("v1", "ConfigMap", &place.config_maps(), "there", json!({ "metadata": metadata, "data": data }));
    let selector = json!({ "app": "there" });
    let template =
        json!({ "metadata": { "labels": selector }, "spec": { "containers": [{ "name": "a", "image": "a" }] } });
    let spec = json!({ "replicas": 1, "selector": { "matchLabels": selector }, "template": template });
    let path = place.namespace.path("apps/v1", "deployments");
    place.create("apps/v1", "Deployment", &path, "there", json!({ "metadata": metadata, "spec": spec }));
    let mut dev = Dev::start(&place, &[]);
    assert_eq!(dev.await_end().code(), Some(1));
    let said = format!(
        "deployment there in namespace {name} runs operator {name} for test.capstan.dev/v1 Probe, and would write what this one writes"
    );
    assert!(dev.log().contains(&said), "{}", dev.log());
    // Scaled to 0, it does nothing.
    place.merge(&path, "there", &json!({ "spec": { "replicas": 0 } }));
    let dev = Dev::start(&place, &[]);
    place.probe("p", json!({}));
    await_by(&place, "p", "dev");
    dev.await_line("run ok");
}

#[test]
fn a_cluster_elsewhere_is_not_touched_unless_somebody_says_so() {
    let folder = Folder::new();
    folder.put("operator.yaml", "");
    folder.put("dev.yaml", "");
    folder.put(
        "kubeconfig",
        "apiVersion: v1\nkind: Config\ncurrent-context: prod\ncontexts: [{ name: prod, context: { cluster: a, user: a } }]\nclusters: [{ name: a, cluster: { server: \"https://203.0.113.7:6443\" } }]\nusers: [{ name: a, user: {} }]\n",
    );
    let [place, kubeconfig] = ["", "kubeconfig"].map(|name| folder.path(name).display().to_string());
    let (code, _, said) = run(&["dev", &place, "--kubeconfig", &kubeconfig]);
    assert_eq!(code, 3, "{said}");
    let expected =
        "capstan dev: context prod, https://203.0.113.7:6443, namespace default; probes and diagnostics at 127.0.0.1:";
    assert!(said.starts_with(expected), "{said}");
    let refused = "\nerror: the cluster is not on this machine, and there is no terminal to ask on; say --yes";
    assert!(said.contains(refused), "{said}");
}

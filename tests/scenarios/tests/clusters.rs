//! Another cluster, on an API server of its own: who may use it, what is seen of it, and what its loss means.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster::{Cluster, Options, wait};
use scenarios::proxy::Line;
use scenarios::{Daemon, LATER, Place, Start, repository};
use serde_json::{Value, json};

/// Reads of the source `remote` what belongs to the primary, and puts it into the status.
const MESSAGE: &str = "remoteConfigMapMessage";

/// Two clusters: that of the daemon, and another one with a namespace of the same name.
struct Pair {
    place: Place,
    other: &'static Cluster,
}

/// Returns the other cluster, which knows probes and has no controllers.
fn other() -> &'static Cluster {
    static OTHER: OnceLock<Cluster> = OnceLock::new();
    OTHER.get_or_init(|| {
        let manifests = vec![repository().join("tests/guests/probe/crd.yaml")];
        let options = Options { manifests, extras: [].into(), ..Options::default() };
        let cluster = Cluster::start(&options).unwrap();
        let established = ["wait", "--for=condition=Established", "--timeout=30s", "crd/probes.test.capstan.dev"];
        cluster.kubectl(&established).unwrap();
        cluster
    })
}

impl Pair {
    fn new(prefix: &str) -> Self {
        let (place, other) = (Place::new(prefix), other());
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": place.namespace.name() } });
        other.api().create("/api/v1/namespaces", &namespace).unwrap();
        Self { place, other }
    }

    /// Returns a kubeconfig of the other cluster's administrator.
    fn kubeconfig(&self) -> Value {
        let admin = self.other.user(cluster::ADMIN).unwrap();
        let authority = STANDARD.encode(self.other.ca_pem());
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x", "preferences": {},
            "clusters": [{ "name": "c", "cluster": { "server": self.other.url(), "certificate-authority-data": authority } }],
            "users": [{ "name": "u", "user": { "token": admin.token } }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
        })
    }

    /// The name of a Secret for this place.
    fn secret(&self, name: &str) -> String {
        format!("{}-{name}", self.place.namespace.name())
    }

    fn path(name: &str) -> String {
        format!("/api/v1/namespaces/default/secrets/{name}")
    }

    /// Puts a kubeconfig into a Secret of the daemon's own namespace, which permits it to the operator of this place.
    fn put(&self, name: &str, kubeconfig: &Value) {
        let labels = json!({ "capstan.dev/kubeconfig-for": self.place.namespace.name() });
        self.put_with(name, kubeconfig, labels, json!({ "capstan.dev/kubeconfig-reaches": "127.0.0.1" }));
    }

    fn put_with(&self, name: &str, kubeconfig: &Value, labels: Value, annotations: Value) {
        let name = self.secret(name);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": name, "labels": labels, "annotations": annotations },
            "stringData": { "kubeconfig": kubeconfig.to_string() },
        });
        let api = self.place.cluster.api();
        if api.find(&Self::path(&name)).unwrap().is_some() {
            api.merge(&Self::path(&name), &json!({ "stringData": secret["stringData"] })).unwrap();
        } else {
            api.create("/api/v1/namespaces/default/secrets", &secret).unwrap();
        }
    }

    /// Returns a manifest with these clusters, each with a Secret of its name, and a source `remote` of config maps in the first.
    fn manifest(&self, clusters: &[&str], fields: &str) -> String {
        let source = format!(
            "sources:\n  remote: {{ informer: {{ apiVersion: v1, kind: ConfigMap, cluster: {}, mapper: {{ annotations: {{}} }} }} }}\n{fields}",
            clusters[0]
        );
        self.with_clusters(&self.place.probe_manifest(&source), clusters)
    }

    fn with_clusters(&self, manifest: &str, clusters: &[&str]) -> String {
        let one =
            |name: &&str| format!("    {name}: {{ kubeconfig: {{ secret: {{ name: {} }} }} }}\n", self.secret(name));
        let clusters: String = clusters.iter().map(one).collect();
        manifest.replacen("spec:\n", &format!("spec:\n  clusters:\n{clusters}"), 1)
    }

    fn config_maps(&self) -> String {
        self.place.config_maps()
    }

    /// Lets a Secret permit its kubeconfig to these operators; to nobody without any.
    fn permit(&self, name: &str, operators: Option<&str>) {
        let labels = json!({ "metadata": { "labels": { "capstan.dev/kubeconfig-for": operators } } });
        self.place.cluster.api().merge(&Self::path(&self.secret(name)), &labels).unwrap();
    }

    /// Starts a daemon whose controllers wait a second for what they watch, and which need not become ready.
    fn start(&self, manifest: &str) -> Daemon {
        Start::new(manifest).run(&self.place)
    }

    /// Creates a probe that counts its runs, whatever is in other clusters.
    fn bystander(&self, name: &str) {
        let count = json!([{ "memo": { "lifetime": "primary", "count": "runs" }, "as": "runs" }]);
        self.place.probe(name, json!({ "reconcile": { "do": count, "status": {}, "reschedule": 300 } }));
    }

    fn runs(&self, name: &str) -> u64 {
        let probe = self.place.find(&self.place.probes(), name).unwrap();
        probe["status"]["runs"].as_u64().unwrap_or_default()
    }

    /// Waits until a bystander has run again a few times.
    fn await_bystander(&self, name: &str) {
        let before = self.runs(name);
        let more = || Some(()).filter(|()| self.runs(name) >= before + 2);
        wait::until(LATER, "the bystander to run", more).unwrap();
    }

    /// Creates a config map in the other cluster that names a probe of the daemon's.
    fn remote_map(&self, name: &str, primary: &str, message: &str) {
        let map = self.place.map_of(primary, name, json!({ "message": message }));
        self.other.api().create(&self.config_maps(), &map).unwrap();
    }

    /// Creates a probe that puts the message of its remote config map into its status.
    fn reader(&self, name: &str) {
        let read = json!({ "read": { "in": { "source": "remote" }, "select": "one" }, "show": ["/data/message"], "as": MESSAGE });
        self.place.probe(name, json!({ "reconcile": { "do": read, "status": {} } }));
    }

    /// Waits until a probe shows a message.
    fn await_message(&self, name: &str, message: &str) {
        let shown = |probe: &Value| probe["status"][MESSAGE]["/data/message"] == message;
        wait::until_ok(LATER, message, || match self.place.find(&self.place.probes(), name) {
            Some(probe) if shown(&probe) => Ok(()),
            probe => Err(format!("{probe:?}")),
        })
        .unwrap();
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let api = self.place.cluster.api();
        let list = api.get("/api/v1/namespaces/default/secrets").unwrap();
        for secret in list["items"].as_array().unwrap() {
            let name = secret["metadata"]["name"].as_str().unwrap();
            if name.starts_with(self.place.namespace.name()) {
                drop(api.delete(&Self::path(name)));
            }
        }
    }
}

/// Returns how a cluster of this name is, as `/debug/controllers` says it.
fn cluster_of(daemon: &Daemon, name: &str) -> Value {
    let controllers = daemon.controllers();
    let mut all = controllers["clusters"].as_array().unwrap().iter();
    all.find(|cluster| cluster["name"].as_str().unwrap().ends_with(name)).cloned().unwrap_or_default()
}

/// Waits until a cluster is as wanted.
fn await_cluster(daemon: &Daemon, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let found = wait::until_ok(LATER, what, || match cluster_of(daemon, name) {
        cluster if wanted(&cluster) => Ok(cluster),
        cluster => Err(format!("{cluster}; {}", daemon.log())),
    });
    found.unwrap()
}

#[test]
fn s032_a_source_watches_in_another_cluster() {
    // IN-3, CU-4, IM-2
    let pair = Pair::new("s032");
    pair.put("edge", &pair.kubeconfig());
    let daemon = pair.place.daemon(&pair.manifest(&["edge"], ""));
    pair.reader("p");
    pair.remote_map("m", "p", "initial");
    pair.await_message("p", "initial");
    let path = format!("{}/m", pair.config_maps());
    pair.other.api().merge(&path, &json!({ "data": { "message": "changed" } })).unwrap();
    pair.await_message("p", "changed");
    assert_eq!(pair.place.find(&pair.config_maps(), "m"), None, "there is no such config map in the primary cluster");
    let labels = format!("kind=\"v1 ConfigMap\",namespace=\"{0}\",cluster=\"{0}/edge\"", pair.place.namespace.name());
    assert_eq!(daemon.count("capstan_informer_synced", &labels), 1, "{}", daemon.get("/metrics").1);
    assert_eq!(daemon.count("capstan_cluster_up", "edge"), 1);
}

/// What a controller waits for at its start, and how a failure is retried: once, after which nothing follows by itself.
const BRIEFLY: &str = "cacheSyncTimeout: 1s\nretry: { maxAttempts: 1, initialInterval: 200ms }\n";

/// Waits for a line about a run that failed for this reason.
fn await_failure(daemon: &Daemon, key: &str, why: &str) {
    let failed = |line: &Value| {
        let told = line["error"].as_str().or(line["fields"]["error"].as_str()).unwrap_or_default();
        line["message"] == "the run failed" && line.to_string().contains(&format!("/{key}\"")) && told.contains(why)
    };
    let told = || if daemon.lines().iter().any(failed) { Ok(()) } else { Err(daemon.log()) };
    wait::until_ok(LATER, why, told).unwrap();
}

#[test]
fn a_cluster_is_used_by_those_whom_its_secret_names_for_as_long_as_it_does() {
    // CU-1, CU-2, CU-7
    let pair = Pair::new("permit");
    pair.remote_map("m", "p", "secret");
    // Another operator's.
    let annotations = json!({ "capstan.dev/kubeconfig-reaches": "127.0.0.1" });
    pair.put_with("edge", &pair.kubeconfig(), json!({ "capstan.dev/kubeconfig-for": "other" }), annotations);
    let daemon = pair.start(&pair.manifest(&["edge"], BRIEFLY));
    pair.reader("p");
    pair.bystander("b");
    let why = "its label capstan.dev/kubeconfig-for does not name the operator";
    await_failure(&daemon, "p", why);
    pair.await_bystander("b");
    let down = cluster_of(&daemon, "edge");
    assert_eq!(down["up"], false);
    assert!(down["why"].as_str().unwrap().contains(why), "{down}");

    let name = pair.place.namespace.name();
    pair.permit("edge", Some(&format!("other_{name}")));
    pair.await_message("p", "secret");
    assert_eq!(cluster_of(&daemon, "edge")["up"], true);

    pair.permit("edge", None);
    await_cluster(&daemon, "edge", "the end", |cluster| cluster["up"] == false);
    let shown =
        |daemon: &Daemon| daemon.informers(name).iter().any(|one| one["scope"].as_str().unwrap().contains("edge"));
    wait::until(LATER, "the end of the watch", || (!shown(&daemon)).then_some(())).unwrap();
    let failures = |daemon: &Daemon| daemon.lines().iter().filter(|line| line["message"] == "the run failed").count();
    let before = failures(&daemon);
    pair.place.merge(&pair.place.probes(), "p", &json!({ "spec": { "reconcile": { "status": { "more": true } } } }));
    wait::until(LATER, "a run that finds nothing", || (failures(&daemon) > before).then_some(())).unwrap();
    pair.await_bystander("b");
    assert!(!daemon.log().contains(&pair.other.user(cluster::ADMIN).unwrap().token), "no token is in the log");
    assert_eq!(daemon.get("/readyz").0, 200);
}

#[test]
fn a_kubeconfig_that_says_what_none_may_say_is_refused_and_the_others_are_used() {
    // CU-3
    let pair = Pair::new("refused");
    let with = |change: Value| {
        let mut kubeconfig = pair.kubeconfig();
        for (pointer, value) in change.as_object().unwrap() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            kubeconfig.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        kubeconfig
    };
    let user = "/users/0/user";
    let two = json!([pair.kubeconfig()["contexts"][0], { "name": "y", "context": { "cluster": "c", "user": "u" } }]);
    let refused = [
        (
            "exec",
            with(json!({ user: { "exec": { "command": "/bin/hunter2" } } })),
            "users[0].user.exec: it would run a program",
        ),
        (
            "provider",
            with(json!({ user: { "auth-provider": { "name": "gcp" } } })),
            "users[0].user.auth-provider: it would run a program",
        ),
        (
            "file",
            with(json!({ user: { "tokenFile": "/etc/hunter2" } })),
            "users[0].user.tokenFile: it would read a file",
        ),
        (
            "proxy",
            with(json!({ "/clusters/0/cluster/proxy-url": "http://hunter2" })),
            "the daemon connects to the server itself",
        ),
        (
            "trusting",
            with(json!({ "/clusters/0/cluster/insecure-skip-tls-verify": true })),
            "the server has to show its certificate",
        ),
        ("two", with(json!({ "/contexts": two })), "it has 2 contexts; expected one"),
        ("text", json!("hunter2"), "it is not a mapping"),
    ];
    for (name, kubeconfig, _) in &refused {
        pair.put(name, kubeconfig);
    }
    pair.put("good", &pair.kubeconfig());
    // The platform has not said that it may be on this machine.
    let labels = json!({ "capstan.dev/kubeconfig-for": pair.place.namespace.name() });
    pair.put_with("local", &pair.kubeconfig(), labels, json!({}));
    let mut expected: Vec<_> = refused.iter().map(|(name, _, why)| (*name, (*why).to_owned())).collect();
    expected
        .push(("local", "its server 127.0.0.1 has the address 127.0.0.1: it is an address of the machine".to_owned()));
    expected.push(("missing", "there is none".to_owned()));

    let names: Vec<_> = ["good"].into_iter().chain(expected.iter().map(|(name, _)| *name)).collect();
    let source = |name: &&str| {
        format!(
            "  {name}: {{ informer: {{ apiVersion: v1, kind: ConfigMap, cluster: {name}, mapper: {{ annotations: {{}} }} }} }}\n"
        )
    };
    let more: String = names[1..].iter().map(source).collect();
    let daemon = pair.start(&pair.manifest(&names, &format!("{more}{BRIEFLY}")));
    pair.reader("p");
    pair.remote_map("m", "p", "seen");
    pair.await_message("p", "seen");
    for (name, why) in expected {
        let found = await_cluster(&daemon, &format!("/{name}"), name, |cluster| cluster["up"] == false);
        assert!(found["why"].as_str().unwrap().contains(&why), "{name}: {found}");
    }
    assert!(!daemon.log().contains("hunter2"), "{}", daemon.log());
}

#[test]
fn a_token_that_is_refused_is_replaced_by_a_newer_one_without_a_restart() {
    // CU-2, CU-7
    let pair = Pair::new("token");
    let mut expired = pair.kubeconfig();
    expired["users"][0]["user"]["token"] = "expired".into();
    pair.put("edge", &expired);
    pair.remote_map("m", "p", "initial");
    let daemon = pair.start(&pair.manifest(&["edge"], BRIEFLY));
    pair.reader("p");
    pair.bystander("b");
    await_failure(&daemon, "p", "HTTP 401");
    pair.await_bystander("b");
    pair.put("edge", &pair.kubeconfig());
    pair.await_message("p", "initial");
    pair.put("edge", &expired);
    await_cluster(&daemon, "edge", "its refusal", |cluster| {
        cluster["why"].as_str().is_some_and(|why| why.contains("401"))
    });
    pair.put("edge", &pair.kubeconfig());
    let path = format!("{}/m", pair.config_maps());
    pair.other.api().merge(&path, &json!({ "data": { "message": "changed" } })).unwrap();
    pair.await_message("p", "changed");
    assert!(!daemon.log().contains("no retries left"), "no attempt is used up: {}", daemon.log());
}

#[test]
fn a_cluster_that_is_away_holds_nobody_else_up_and_goes_on_where_it_was() {
    // CU-7
    let pair = Pair::new("away");
    let line = Line::to(pair.other);
    line.cut();
    let mut by_line = pair.kubeconfig();
    by_line["clusters"][0]["cluster"]["server"] = line.url().into();
    pair.put("edge", &by_line);
    pair.remote_map("m", "p", "initial");
    let daemon = pair.start(&pair.manifest(&["edge"], BRIEFLY));
    pair.reader("p");
    pair.bystander("b");
    await_failure(&daemon, "p", "edge");
    pair.await_bystander("b");
    daemon.await_lacking(&["/edge: nothing heard of it for"]);
    assert_eq!((daemon.get("/readyz").1.as_str(), daemon.count("capstan_cluster_up", "edge")), ("ok\n", 0));
    // Longer than two attempts and the pause between them.
    pair.await_bystander("b");

    line.mend();
    pair.await_message("p", "initial");
    await_cluster(&daemon, "edge", "its return", |cluster| cluster["up"] == true);
    assert!(!daemon.log().contains("no retries left"), "no attempt is used up: {}", daemon.log());

    line.cut();
    await_cluster(&daemon, "edge", "its loss", |cluster| cluster["up"] == false);
    pair.await_bystander("b");
    // What the cache has is shown on.
    pair.reader("q");
    pair.await_message("p", "initial");
    assert_eq!(daemon.get("/readyz").0, 200);
    let path = format!("{}/m", pair.config_maps());
    pair.other.api().merge(&path, &json!({ "data": { "message": "changed" } })).unwrap();
    line.mend();
    pair.await_message("p", "changed");
}

#[test]
fn a_kind_that_the_other_cluster_does_not_serve_fails_by_name_and_is_watched_once_it_does() {
    // IE-1, CU-7
    let pair = Pair::new("unserved");
    pair.put("edge", &pair.kubeconfig());
    let namespace = pair.place.namespace.name();
    let group = format!("{namespace}.test.capstan.dev");
    let kind = format!("apiVersion: {group}/v1, kind: Note");
    let manifest = pair
        .manifest(&["edge"], BRIEFLY)
        .replace("apiVersion: v1, kind: ConfigMap, cluster", &format!("{kind}, cluster"));
    let daemon = pair.start(&manifest);
    pair.reader("p");
    pair.bystander("b");
    await_failure(&daemon, "p", &format!("{group}/v1 Note"));
    pair.await_bystander("b");
    daemon.await_lacking(&["Note of cluster"]);
    assert_eq!(daemon.get("/readyz").1, "ok\n", "it is no matter of the daemon's");
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let version = json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": anything } });
    let definition = json!({
        "metadata": { "name": format!("notes.{group}") },
        "spec": { "group": group, "names": { "kind": "Note", "plural": "notes" }, "scope": "Namespaced", "versions": [version] },
    });
    let api = pair.other.api();
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).unwrap();
    let notes = format!("/apis/{group}/v1/namespaces/{namespace}/notes");
    wait::until_ok(LATER, "the kind to be served", || api.get(&notes)).unwrap();
    let mut note = pair.place.map_of("p", "m", json!({ "message": "at last" }));
    note["apiVersion"] = format!("{group}/v1").into();
    note["kind"] = "Note".into();
    api.create(&notes, &note).unwrap();
    pair.await_message("p", "at last");
    wait::until_ok(LATER, "nothing to be missing", || match daemon.get("/readyz?verbose").1 {
        told if told.contains("Note of cluster") => Err(told),
        _ => Ok(()),
    })
    .unwrap();
}

#[test]
fn a_controller_in_another_cluster_has_all_of_it_there() {
    // CU-5, CU-6
    let pair = Pair::new("whole");
    pair.put("edge", &pair.kubeconfig());
    let fields = "cluster: edge\nworkflow: { dependents: { map: { apiVersion: v1, kind: ConfigMap } } }\n";
    let plugin = "capabilities: { kubernetes: [{ apiVersion: v1, kind: ConfigMap, verbs: [create] }] }\n";
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    let manifest = pair.place.manifest("probe", primary, plugin, fields);
    let daemon = pair.place.daemon(&pair.with_clusters(&manifest, &["edge"]));
    let (here, there) = (pair.place.cluster.api(), pair.other.api());
    let namespace = pair.place.namespace.name();
    let written =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "written", "namespace": namespace } });
    let spec = json!({
        "dependents": { "map": { "metadata": { "name": "p" }, "data": { "k": "v" } } },
        "reconcile": {
            "do": [
                { "write": { "verb": "create", "object": written, "mode": "plain" }, "tell": true, "mayFail": true },
                { "event": { "reason": "Seen", "message": "there" } },
            ],
            "status": { "seen": true },
        },
    });
    let probe = json!({ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "metadata": { "name": "p", "namespace": namespace }, "spec": spec });
    let probes = pair.place.probes();
    // One here is nobody's.
    here.create(&probes, &probe).unwrap();
    there.create(&probes, &probe).unwrap();
    let path = format!("{probes}/p");
    let seen = wait::until_ok(LATER, "its status", || match there.get(&path).unwrap() {
        probe if probe["status"]["seen"] == true => Ok(probe),
        probe => Err(format!("{probe} {}", daemon.log())),
    })
    .unwrap();
    assert_eq!(seen["metadata"]["finalizers"], json!(["probes.test.capstan.dev/finalizer"]));
    let maps = |api: &cluster::Api, name: &str| api.find(&format!("{}/{name}", pair.config_maps())).unwrap();
    let of = |map: Option<Value>| map.map(|map| map["metadata"]["ownerReferences"][0]["uid"].clone());
    assert_eq!(of(maps(there, "p")), Some(seen["metadata"]["uid"].clone()));
    assert!(maps(there, "written").is_some());
    let events = pair.place.namespace.path("v1", "events");
    wait::until(LATER, "its event", || {
        let events = there.get(&events).unwrap();
        events["items"].as_array().unwrap().iter().any(|event| event["reason"] == "Seen").then_some(())
    })
    .unwrap();
    there.delete(&path).unwrap();
    wait::until(LATER, "its end", || there.find(&path).unwrap().is_none().then_some(())).unwrap();
    assert!(maps(here, "p").is_none() && maps(here, "written").is_none());
    let untouched = here.get(&path).unwrap();
    assert_eq!((untouched.get("status"), untouched["metadata"].get("finalizers")), (None, None));
    assert_eq!(here.get(&events).unwrap()["items"], json!([]));
}

#[test]
fn a_controller_in_another_cluster_waits_for_it_and_goes_on_with_it() {
    // CU-6, CU-7
    let pair = Pair::new("return");
    let line = Line::to(pair.other);
    let mut by_line = pair.kubeconfig();
    by_line["clusters"][0]["cluster"]["server"] = line.url().into();
    pair.put("edge", &by_line);
    let retry = "cluster: edge\nretry: { maxAttempts: 1, initialInterval: 200ms }\n";
    let daemon = pair.place.daemon(&pair.with_clusters(&pair.place.probe_manifest(retry), &["edge"]));
    let namespace = pair.place.namespace.name();
    let count = json!([{ "memo": { "lifetime": "primary", "count": "runs" }, "as": "runs" }]);
    let spec = json!({ "reconcile": { "do": count, "status": {}, "reschedule": 300 } });
    let probe = json!({ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "metadata": { "name": "p", "namespace": namespace }, "spec": spec });
    let (there, path) = (pair.other.api(), format!("{}/p", pair.place.probes()));
    there.create(&pair.place.probes(), &probe).unwrap();
    let runs = || there.get(&path).unwrap()["status"]["runs"].as_u64().unwrap_or_default();
    let go_on = |before: u64| wait::until(LATER, "the probe to run", || (runs() >= before + 2).then_some(())).unwrap();
    go_on(0);
    line.cut();
    await_cluster(&daemon, "edge", "its loss", |cluster| cluster["up"] == false);
    assert_eq!(daemon.get("/readyz").0, 200);
    let before = runs();
    line.mend();
    go_on(before);
    assert!(!daemon.log().contains("no retries left"), "no attempt is used up");
    assert!(daemon.count("capstan_reconciliations_outage_retries_total", "") > 0);
    assert_eq!(daemon.count("capstan_reconciliations_retries_total", ""), 0);
}

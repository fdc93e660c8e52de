//! The Helm chart, by the real helm on a real API server: what it installs runs, with the rights that it says and no others.

use std::collections::BTreeSet;
use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::{Api, Cluster, Options, Query, User, wait};
use scenarios::{Daemon, LATER, Place, SOON, Start, component, run};
use serde_json::{Value, json};

mod beside;
mod deploy;
mod helm;
mod pod;
mod readme;
mod rights;

use helm::{chart, documents, examples, helm, offline, template};
use pod::{Pod, Way};

const HTML: &str = "<html><head><title>Hello</title></head><body>x</body></html>";

/// An installed release of the chart; it is called like its namespace.
struct Release {
    place: Place,
}

impl Release {
    /// Installs the sample, for its namespace alone, by one command.
    fn install(prefix: &str) -> Self {
        let release = Self { place: Place::new(prefix) };
        let name = release.place.namespace.name();
        release.helm("install", &["--set", &format!("fullnameOverride={name}")]).unwrap();
        release
    }

    /// Runs `helm install` or `helm upgrade` with the sample's values and more arguments.
    fn helm(&self, verb: &str, more: &[&str]) -> Result<String, String> {
        let name = self.place.namespace.name();
        let (chart, data) = (chart(), Data::new());
        let example = chart.join("examples/webpage.yaml");
        let arguments = [
            verb,
            name,
            chart.to_str().unwrap(),
            "--namespace",
            name,
            "--values",
            example.to_str().unwrap(),
            "--set-file",
            &data.argument(),
            "--set",
            "operators.webpage.manifest.spec.controllers.webpage.namespaces=own",
            // A namespace per test: its pages are beside the daemon.
            "--set",
            "allowOwnNamespace=true",
        ];
        helm(self.place.cluster, &[&arguments[..], more].concat())
    }

    fn upgrade(&self, more: &[&str]) {
        let name = format!("fullnameOverride={}", self.place.namespace.name());
        self.helm("upgrade", &[&["--set", &name], more].concat()).unwrap();
    }

    fn find(&self, api_version: &str, plural: &str) -> Value {
        let path = self.place.namespace.path(api_version, plural);
        self.place.find(&path, self.place.namespace.name()).unwrap()
    }

    fn deployment(&self) -> Value {
        self.find("apps/v1", "deployments")
    }

    /// Plays the pod of the Deployment.
    fn daemon(&self, way: Way) -> Daemon {
        let spec = &self.deployment()["spec"]["template"]["spec"];
        Pod::new(self.place.cluster, self.place.namespace.name(), spec).daemon(way)
    }

    /// Returns the requests of the release's service account.
    fn requests(&self) -> Vec<cluster::Request> {
        let name = self.place.namespace.name();
        let user = format!("system:serviceaccount:{name}:{name}");
        let audit = self.place.cluster.audit().unwrap();
        audit.requests(&Query::default().user(user)).unwrap()
    }

    fn page(&self, html: &str) {
        let spec = json!({ "spec": { "html": html } });
        self.place.create("sample.capstan.dev/v1", "WebPage", &self.place.pages(), "site", spec);
    }

    fn await_good(&self) {
        let pages = self.place.pages();
        self.place.await_object(&pages, "site", "a good status", |page| page["status"]["areWeGood"] == true);
    }
}

/// The sample's component, as `base64` prints it.
struct Data(tempfile::NamedTempFile);

impl Data {
    fn new() -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = STANDARD.encode(fs::read(component("webpage")).unwrap());
        let lines: Vec<_> = text.as_bytes().chunks(76).collect();
        fs::write(&file, lines.join(&b"\n"[..])).unwrap();
        Self(file)
    }

    /// Returns what `--set-file` is given.
    fn argument(&self) -> String {
        format!("operators.webpage.components.webpage.data={}", self.0.path().display())
    }
}

// === what is installed runs ===

#[test]
fn what_one_command_installs_runs_with_the_rights_that_it_says() {
    let release = Release::install("chart");
    let daemon = release.daemon(Way::best()).until_ready();
    release.page(HTML);
    release.await_good();
    let deployments = release.place.namespace.path("apps/v1", "deployments");
    let ready = |site: &Value| site["status"]["readyReplicas"].as_u64().unwrap_or(0) >= 1;
    wait::until(LATER, "a site that is up", || release.place.find(&deployments, "site").filter(ready)).unwrap();
    let requests = release.requests();
    let refused: Vec<_> = requests.iter().filter(|request| request.code == 403).collect();
    assert!(!requests.is_empty() && refused.is_empty(), "{refused:?}");
    assert!(daemon.stop().success());
}

#[test]
fn a_right_that_is_taken_away_is_told_by_verb_and_kind() {
    let release = Release::install("chart-less");
    let roles = release.place.namespace.path("rbac.authorization.k8s.io/v1", "roles");
    let name = release.place.namespace.name();
    let mut role = release.place.find(&roles, name).unwrap();
    for rule in role["rules"].as_array_mut().unwrap() {
        if rule["resources"] == json!(["configmaps"]) {
            let verbs = rule["verbs"].as_array_mut().unwrap();
            verbs.retain(|verb| verb != "update");
        }
    }
    release.place.merge(&roles, name, &json!({ "rules": role["rules"] }));
    let daemon = release.daemon(Way::best()).until_ready();
    release.page(HTML);
    release.await_good();
    let changed = json!({ "spec": { "html": HTML.replace("Hello", "Changed") } });
    release.place.merge(&release.place.pages(), "site", &changed);
    let line = daemon.await_line("HTTP 403");
    assert!(
        line.contains("update v1 ConfigMap") && line.contains("cannot update resource \\\"configmaps\\\""),
        "{line}"
    );
    let refused = release.requests().into_iter().find(|request| request.code == 403).unwrap();
    assert_eq!((refused.verb, refused.resource), ("update".to_owned(), "configmaps".to_owned()));
}

#[test]
fn the_pod_runs_with_other_paths_where_namespaces_of_users_are_forbidden() {
    let release = Release::install("chart-folder");
    let daemon = release.daemon(Way::Folder).until_ready();
    release.page(HTML);
    release.await_good();
    assert!(daemon.stop().success());
}

#[test]
fn a_component_that_is_missing_keeps_neither_the_pod_nor_the_others_from_running() {
    let release = Release::install("chart-lacks");
    let other = "operators.other.manifest.spec";
    let sets = [
        format!("{other}.plugins.other.limits.memory=64Mi"),
        format!("{other}.controllers.other.plugin=other"),
        format!("{other}.controllers.other.primary.apiVersion=test.capstan.dev/v1"),
        format!("{other}.controllers.other.primary.kind=Probe"),
        format!("{other}.controllers.other.namespaces=own"),
        "operators.other.components.other.configMap.name=nowhere".to_owned(),
        "operators.other.components.other.configMap.key=other.wasm".to_owned(),
    ];
    release.upgrade(&["--set", &sets.join(",")]);
    let daemon = release.daemon(Way::best());
    release.page(HTML);
    release.await_good();
    daemon.await_lacking(&["/etc/capstan/components/other/other/other.wasm"]);
}

#[test]
fn helm_test_checks_manifests_and_components() {
    let release = Release::install("chart-test");
    let name = release.place.namespace.name();
    let checked = || {
        let hooks = helm(release.place.cluster, &["get", "hooks", name, "-n", name]).unwrap();
        let [check] = &documents(&hooks)[..] else { panic!("{hooks}") };
        assert_eq!(check["metadata"]["annotations"]["helm.sh/hook"], "test");
        let output = Pod::new(release.place.cluster, name, &check["spec"]).run(Way::best());
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), said.concat())
    };
    let (well, said) = checked();
    assert!(well && said.contains("ok     controller  webpage"), "{said}");
    release.upgrade(&["--set", "defaults.controllers.concurrency=many"]);
    let (well, said) = checked();
    assert!(!well && said.contains("/etc/capstan/defaults/defaults.yaml:"), "{said}");
    release.upgrade(&["--set", "defaults.controllers.concurrency=2"]);
    assert!(checked().0);
    let team = release.place.cluster.namespace("chart-team").unwrap();
    let key = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
    let ceiling = |host: &str| {
        json!({ "operatorObjects": { "enabled": true, "definition": false, "ceilings": { "teams": {
            "namespaces": [team.name()], "serviceAccounts": ["pages"], "verifyKeys": [key], "http": ["a.dev"], "internal": [host],
            "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }],
        } } } })
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    for (host, right, expected) in [("a.dev", true, team.name()), ("b.dev", false, "spec.ceilings.teams.internal[0]")] {
        fs::write(&file, ceiling(host).to_string()).unwrap();
        release.upgrade(&["--values", file.path().to_str().unwrap()]);
        let (well, said) = checked();
        assert_eq!(well, right, "{said}");
        assert!(said.contains("ceiling") && said.contains(expected), "{said}");
    }
    release.upgrade(&[]);
    // What no schema can find.
    let service = "operators.webpage.manifest.spec.controllers.webpage.workflow.dependents.service";
    release.upgrade(&["--set", &format!("{service}.dependsOn={{confgmap}}")]);
    let (well, said) = checked();
    assert!(!well && said.contains("did you mean `configmap`?"), "{said}");
}

#[test]
fn the_pod_meets_the_restricted_standard() {
    let release = Release::install("chart-hard");
    let name = release.place.namespace.name();
    let label = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    release.place.merge("/api/v1/namespaces", name, &label);
    let pods = release.place.namespace.path("v1", "pods?dryRun=All");
    let mut pod = json!({ "metadata": { "name": "pod" }, "spec": release.deployment()["spec"]["template"]["spec"] });
    release.place.cluster.api().create(&pods, &pod).unwrap();
    pod["spec"]["containers"][0]["securityContext"]["capabilities"] = Value::Null;
    let refused = release.place.cluster.api().create(&pods, &pod).unwrap_err();
    assert!(refused.to_string().contains("violates PodSecurity \"restricted:latest\""), "{refused}");
}

// === operators that are objects ===

#[test]
fn operators_are_applied_in_the_release_s_namespace_and_say_which_rights_they_lack() {
    // OP-1, OP-3, AP-2, AP-3
    let release = Release { place: Place::new("chart-op") };
    let (place, name) = (&release.place, release.place.namespace.name());
    let own = "allowOwnNamespace=true,operatorObjects.enabled=true,operatorObjects.onNewVersion=ask";
    let full = format!("fullnameOverride={name}");
    // The kind is there already, and others use it.
    let chart = chart();
    let install = ["install", name, chart.to_str().unwrap(), "--namespace", name, "--set", own, "--set", &full];
    helm(place.cluster, &[&install[..], &["--take-ownership"]].concat()).unwrap();
    for kind in ["operators.capstan.dev", "operatorapprovals.capstan.dev"] {
        let kind = place.find("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind).unwrap();
        assert_eq!(kind["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    }
    let daemon = release.daemon(Way::best());
    let template = json!({ "metadata": { "name": "${primary.metadata.name}" }, "data": { "says": "hello" } });
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "desired": { "template": template } });
    let controller = json!({
        "primary": { "apiVersion": "test.capstan.dev/v1", "kind": "Probe" },
        "namespaces": "own",
        "workflow": { "dependents": { "map": map } },
    });
    let operator = json!({
        "apiVersion": "capstan.dev/v1alpha1",
        "kind": "Operator",
        "metadata": { "name": name },
        "spec": { "controllers": { name: controller } },
    });
    let operators = place.namespace.path("capstan.dev/v1alpha1", "operators");
    place.cluster.kubectl_with_input(&["apply", "-n", name, "-f", "-"], &operator.to_string()).unwrap();
    let waits = |object: &Value| object["status"]["state"] == "WaitingForApproval";
    place.await_within(LATER, &operators, name, "the first version to wait", waits);
    let kubeconfig = place.cluster.admin_kubeconfig().display().to_string();
    let (code, _, error) = run(&["approve", name, "-n", name, "--yes", "--kubeconfig", &kubeconfig]);
    assert_eq!(code, 0, "{error}");
    let lacks = |object: &Value| {
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.find(|condition| condition["type"] == "Ready");
        ready.is_some_and(|ready| {
            ready["reason"] == "Lacking" && ready["message"].as_str().unwrap().contains("is forbidden")
        })
    };
    place.await_within(LATER, &operators, name, "the rights that it lacks", lacks);
    // What it needs is printed.
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, operator.to_string()).unwrap();
    let file = file.path().to_str().unwrap();
    let rights = run(&["rbac", "-m", file, "-n", name, "--service-account", name, "--name", &format!("{name}-more")]);
    place.cluster.kubectl_with_input(&["apply", "-f", "-"], &rights.1).unwrap();
    let ready = ["wait", "--for=condition=Ready", "--timeout=60s", "-n", name];
    place.cluster.kubectl(&[&ready[..], &[&format!("operators.capstan.dev/{name}")]].concat()).unwrap();
    place.probe("first", json!({}));
    place.await_object(&place.config_maps(), "first", "what it says", |map| map["data"]["says"] == "hello");
    assert!(daemon.stop().success());
    helm(place.cluster, &["uninstall", name, "--namespace", name]).unwrap();
    assert!(place.find(&operators, name).is_some(), "all operators would go with their kind");
}

// === upgrades and the end ===

#[test]
fn what_the_daemon_takes_live_does_not_roll_the_pod_and_the_rest_does() {
    let release = Release::install("chart-roll");
    let template = || release.deployment()["spec"]["template"].clone();
    let before = template();
    let map = format!("{}-operators", release.place.namespace.name());
    let manifest = || {
        let map = release.place.find(&release.place.config_maps(), &map).unwrap();
        map["data"]["webpage.yaml"].as_str().unwrap().to_owned()
    };
    let limits = "operators.webpage.manifest.spec.plugins.webpage.limits.memory=32Mi";
    assert!(manifest().contains("memory: 64Mi"));
    release.upgrade(&["--set", limits]);
    assert!(manifest().contains("memory: 32Mi"));
    assert_eq!(template(), before);
    for change in ["drain=1m", "log.level=debug", "image.tag=other", "defaults.controllers.concurrency=2"] {
        release.upgrade(&["--set", change]);
        assert_ne!(template(), before, "{change}");
    }
}

#[test]
fn the_pod_is_given_longer_than_the_daemon_takes_to_drain() {
    let seconds = |drain: &str| {
        let objects = template("deployment.yaml", "home", &json!({ "drain": drain })).unwrap();
        objects[0]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].clone()
    };
    let table = [("30s", 45), ("1m30s", 105), ("1h", 3615), ("500ms", 16), ("1h1m1s1ms", 3677)];
    for (drain, expected) in table {
        assert_eq!(seconds(drain), expected, "{drain}");
    }
}

#[test]
fn nothing_is_left_of_a_release_that_is_uninstalled() {
    let release = Release::install("chart-end");
    let (name, cluster) = (release.place.namespace.name(), release.place.cluster);
    let kinds = "deployments,configmaps,secrets,services,serviceaccounts,roles,rolebindings,networkpolicies,\
                 poddisruptionbudgets,clusterroles,clusterrolebindings";
    let all = || {
        let arguments = ["-n", name, "get", kinds, "-o", "name"];
        let text = cluster.kubectl(&arguments).unwrap();
        text.lines().filter(|line| line.contains(name)).map(str::to_owned).collect::<Vec<_>>()
    };
    release.upgrade(&["--set", "podDisruptionBudget.enabled=true,metrics.enabled=true,rbac.extraRules[0].verbs={get},rbac.extraRules[0].nonResourceURLs={/version}"]);
    let installed = all();
    for kind in ["deployment", "role.", "networkpolicy", "poddisruptionbudget", "clusterrolebinding"] {
        assert!(installed.iter().any(|line| line.starts_with(kind)), "{kind} in {installed:?}");
    }
    helm(cluster, &["uninstall", name, "-n", name, "--wait"]).unwrap();
    wait::until_ok(LATER, "nothing to be left", || match all() {
        left if left.is_empty() => Ok(()),
        left => Err(left.join(" ")),
    })
    .unwrap();
}

// === values ===

#[test]
fn the_chart_has_no_lint() {
    let chart = chart();
    let chart = chart.to_str().unwrap();
    let everything = "metrics.enabled=true,serviceMonitor.enabled=true,podDisruptionBudget.enabled=true";
    offline(&["lint", "--strict", chart]).unwrap();
    for name in examples() {
        let example = format!("{chart}/examples/{name}.yaml");
        let data = format!("operators.{name}.components.{name}.data=AGFzbQ0AAQA=");
        offline(&["lint", "--strict", chart, "-f", &example, "--set", &data]).unwrap();
        offline(&["lint", "--strict", chart, "-f", &example, "--set", &data, "--set", everything]).unwrap();
    }
}

#[test]
fn the_example_to_learn_operating_with_is_scraped_with_a_token_and_has_limits() {
    let text = fs::read_to_string(chart().join("examples/operations.yaml")).unwrap();
    let mut values: Value = serde_yaml::from_str(&text).unwrap();
    values["operators"]["operations"]["components"] = json!({ "operations": { "data": "AGFzbQ0AAQA=" } });
    let rendered = |file: &str| template(file, "capstan", &values).unwrap();
    let monitor = rendered("servicemonitor.yaml").remove(0);
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!((&endpoint["port"], &endpoint["interval"]), (&json!("metrics"), &json!("15s")));
    assert!(endpoint["bearerTokenFile"].is_string(), "{endpoint}");
    let service = rendered("service.yaml").remove(0);
    assert_eq!(service["spec"]["ports"][0]["name"], endpoint["port"]);
    for (label, value) in monitor["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(service["metadata"]["labels"][label], *value, "{label}");
    }
    let objects = rendered("rbac.yaml");
    let reader =
        |object: &&Value| object["kind"] == "ClusterRoleBinding" && object["subjects"][0]["name"] == "prometheus";
    assert_eq!(objects.iter().filter(reader).count(), 1);
    let pod = &rendered("deployment.yaml")[0]["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["resources"]["limits"]["memory"], "512Mi");
    assert!(pod["containers"][0]["args"].as_array().unwrap().contains(&json!("--metrics-auth=token")), "{pod}");
}

#[test]
fn a_value_that_is_wrong_is_refused_with_its_place_and_what_would_be_right() {
    let chart = chart();
    let chart = chart.to_str().unwrap();
    let example = format!("{chart}/examples/webpage.yaml");
    let table = [
        ("service.port=many", "at '/service/port': got string, want integer"),
        ("defaults.controllers.retries=none", "additional properties 'retries' not allowed"),
        ("servce.port=1", "additional properties 'servce' not allowed"),
        ("replicas=2", "additional properties 'replicas' not allowed"),
        ("log.format=xml", "at '/log/format': value must be one of 'auto', 'text', 'json'"),
        ("drain=30", "at '/drain': got number, want string"),
        ("image.digest=latest", "at '/image/digest': 'latest' does not match pattern"),
        ("operators.Web.manifest=x", "at '/operators': additional properties 'Web' not allowed"),
        (
            "operators.webpage.manifest.spec.controllers=1",
            "at '/operators/webpage/manifest/spec/controllers': got number, want object",
        ),
        (
            "operators.webpage.manifest.spec.controllers.webpage.namespaces=everywhere",
            "at '/operators/webpage/manifest/spec/controllers/webpage/namespaces': value must be 'all'",
        ),
        (
            "operators.webpage.manifest.spec.controllers.webpage.finaliser=x.dev/y",
            "at '/operators/webpage/manifest/spec/controllers/webpage': additional properties 'finaliser' not allowed",
        ),
        (
            "operators.webpage.manifest.spec.controllers.webpage.retry.maxAtempts=3",
            "at '/operators/webpage/manifest/spec/controllers/webpage/retry': additional properties 'maxAtempts' not allowed",
        ),
        (
            "operators.webpage.manifest.spec.plugins.webpage.limits.memry=1Mi",
            "at '/operators/webpage/manifest/spec/plugins/webpage/limits': additional properties 'memry' not allowed",
        ),
        (
            "operators.webpage.manifest.spec.controllers.webpage.workflow.dependents.service.dependson=x",
            "/controllers/webpage/workflow/dependents/service': additional properties 'dependson' not allowed",
        ),
        ("operators.webpage.manifest.kind=Operatr", "at '/operators/webpage/manifest/kind': value must be 'Operator'"),
        ("operators.webpage.components.webpage.configMap.name=x", "missing property 'key'"),
        (
            "operators.webpage.manifest.spec.plugins.second.limits.memory=1Mi",
            "operators.webpage.components.second: say where the component is",
        ),
        (
            "operators.webpage.components.page.data=AGFzbQ0AAQA=",
            "operators.webpage.components.page: the manifest declares no plugin of that name; there are: webpage",
        ),
        (
            "operators.webpage.components.webpage.data=hello",
            "operators.webpage.components.webpage.data: expected a WebAssembly component in base64",
        ),
        ("serviceMonitor.enabled=true", "serviceMonitor.enabled needs metrics.enabled"),
        ("compile.timeout=0s", "at '/compile/timeout': '0s' does not match pattern '[1-9]'"),
        ("insecureRegistries={https://r.dev}", "at '/insecureRegistries/0'"),
        ("verifyKeys={-----BEGIN PUBLIC KEY-----}", "at '/verifyKeys/0'"),
        (
            "verifyKeys={-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----}",
            "verifyKeys[0]: found PEM without a key; expected a public key",
        ),
        ("registryMirrors.ghcr\\.io={https://x.dev}", "at '/registryMirrors/ghcr.io/0'"),
        ("registryMirrors.ghcr\\.io={mirror}", "at '/registryMirrors/ghcr.io/0'"),
        ("registryMirrors.ghcr\\.io={only}", "registryMirrors.ghcr.io: found `only` without a mirror"),
        (
            "registryMirrors.ghcr\\.io/org={x.dev}",
            "at '/registryMirrors': additional properties 'ghcr.io/org' not allowed",
        ),
        ("registryMirrors.https://ghcr\\.io={x.dev}", "additional properties 'https://ghcr.io' not allowed"),
        (
            "codeCache.size=2Gi",
            "codeCache.sizeLimit: 1152Mi is less than codeCache.size and componentCache.size, 2Gi and 128Mi",
        ),
        ("operatorObjects.onNewVersion=ask", "operatorObjects.onNewVersion: ask needs operatorObjects.enabled"),
    ];
    let ceiling = |name: &str, namespace: &str| {
        let rules = "rules[0].apiGroups={example.com},rules[0].resources={pages},rules[0].verbs={get}";
        let fields = format!("namespaces={{{namespace}}},serviceAccounts={{pages}},{rules}");
        fields.split(',').map(|field| format!(",operatorObjects.ceilings.{name}.{field}")).collect::<String>()
    };
    let on = "operatorObjects.enabled=true";
    let a = ceiling("a", "team");
    let ceilings = [
        (a.trim_start_matches(',').to_owned(), "operatorObjects.ceilings needs operatorObjects.enabled"),
        (
            format!("{on}{a},operatorObjects.ceilings.a.operatrs=2"),
            "at '/operatorObjects/ceilings/a': additional properties 'operatrs' not allowed",
        ),
        (
            format!("{on}{a},operatorObjects.ceilings.a.limits.memry=1Mi"),
            "at '/operatorObjects/ceilings/a/limits': additional properties 'memry' not allowed",
        ),
        (
            format!("{on}{}", ceiling("a", "default")),
            "operatorObjects.ceilings.a.namespaces: default is the release's own namespace",
        ),
        (
            format!("{on}{a}{}", ceiling("b", "team")),
            "operatorObjects.ceilings.b.namespaces: team is in the ceiling a, too; expected it in one of them",
        ),
    ];
    let ceilings = ceilings.iter().map(|(value, expected)| (&**value, *expected));
    for (value, expected) in table.into_iter().chain(ceilings) {
        let component = "operators.webpage.components.webpage.data=AGFzbQ0AAQA=";
        let refused = offline(&["template", chart, "-f", &example, "--set", component, "--set", value]);
        let said = refused.expect_err(value);
        assert!(said.contains(expected), "{value}: {expected:?} is not in:\n{said}");
    }
}

#[test]
fn a_component_comes_from_where_the_values_say() {
    let file = json!({ "key": "page.wasm", "name": "pages" });
    let table = [
        (json!({ "configMap": file }), "configMap", "page.wasm"),
        (json!({ "secret": file }), "secret", "page.wasm"),
        (json!({ "data": "AGFzbQ0AAQA=" }), "configMap", "component.wasm"),
        (
            json!({ "volume": { "source": { "persistentVolumeClaim": { "claimName": "pages" } }, "path": "a/b.wasm" } }),
            "persistentVolumeClaim",
            "a/b.wasm",
        ),
        (json!({ "image": { "reference": "registry.example/pages:1", "path": "page.wasm" } }), "image", "page.wasm"),
    ];
    for (component, source, path) in table {
        let operator = json!({
            "manifest": rights::manifest(json!({}), json!({})),
            "components": { "p": component },
        });
        let values = json!({ "operators": { "o": operator } });
        let operators = template("operators.yaml", "home", &values).unwrap();
        let manifest: Value = serde_yaml::from_str(operators[0]["data"]["o.yaml"].as_str().unwrap()).unwrap();
        let folder = "/etc/capstan/components/o/p";
        assert_eq!(manifest["spec"]["plugins"]["p"]["component"], json!({ "path": format!("{folder}/{path}") }));
        let spec = &template("deployment.yaml", "home", &values).unwrap()[0]["spec"]["template"]["spec"];
        let mounts = spec["containers"][0]["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["mountPath"] == folder).unwrap();
        assert_eq!(mount["readOnly"], true);
        let volumes = spec["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        assert!(volume[source].is_object(), "{volume}");
    }
}

#[test]
fn a_plugins_requests_are_bounded_if_that_is_wanted() {
    let bounds = |values: &Value| {
        let objects = template("deployment.yaml", "home", values)?;
        let arguments = &objects[0]["spec"]["template"]["spec"]["containers"][0]["args"];
        let arguments = arguments.as_array().unwrap().iter();
        let bounds =
            arguments.filter_map(|argument| argument.as_str()?.strip_prefix("--plugin-requests=").map(str::to_owned));
        Ok::<_, String>(bounds.collect::<Vec<_>>())
    };
    for (requests, expected) in [
        (Value::Null, vec![]),
        (json!(20), vec!["20".to_owned()]),
        (json!(4_294_967_295_u32), vec!["4294967295".to_owned()]),
    ] {
        assert_eq!(bounds(&json!({ "pluginRequests": requests })), Ok(expected));
    }
    for requests in [json!(0), json!(1.5), json!("20"), json!(4_294_967_296_u64)] {
        let refused = bounds(&json!({ "pluginRequests": requests })).unwrap_err();
        assert!(refused.contains("pluginRequests"), "{refused}");
    }
}

#[test]
fn probes_have_a_port_of_their_own_and_metrics_have_one_if_that_is_wanted() {
    let render = |file: &str, values: &Value| template(file, "home", values).unwrap().remove(0);
    let container = |values: &Value| {
        let deployment = render("deployment.yaml", values);
        deployment["spec"]["template"]["spec"]["containers"][0].clone()
    };
    let has = |container: &Value, argument: &str| {
        let arguments = container["args"].as_array().unwrap();
        assert!(arguments.contains(&json!(argument)), "{argument} in {container}");
    };
    let closed = container(&json!({}));
    assert_eq!(closed["ports"].as_array().unwrap().len(), 1);
    let port = &closed["ports"][0];
    has(&closed, &format!("--listen=[::]:{}", port["containerPort"]));
    has(&closed, "--admin-listen=127.0.0.1:8081");
    assert_eq!(closed["env"][1]["value"], "127.0.0.1:8081", "for `capstan plugins`");
    for (probe, path) in [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        let get = json!({ "path": path, "port": port["name"] });
        assert_eq!(closed[probe]["httpGet"], get);
        assert_eq!(closed[probe]["timeoutSeconds"], 5);
    }
    assert_eq!(template("service.yaml", "home", &json!({})).unwrap_or_default(), Vec::<Value>::new());

    let values = json!({ "metrics": { "enabled": true } });
    let open = container(&values);
    let port = &open["ports"][1];
    has(&open, &format!("--admin-listen=127.0.0.1:8081,[::]:{}", port["containerPort"]));
    has(&open, "--metrics-auth=token");
    let service = render("service.yaml", &values);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], port["name"]);
    assert_eq!(service["spec"]["selector"], render("deployment.yaml", &values)["spec"]["selector"]["matchLabels"]);
}

#[test]
fn compiled_code_is_kept_as_long_as_the_pod_or_on_a_claim() {
    let about = |values: &Value| {
        let pod = template("deployment.yaml", "home", values).unwrap().remove(0)["spec"]["template"]["spec"].clone();
        let volumes = pod["volumes"].as_array().unwrap();
        let mut volume = volumes.iter().find(|volume| volume["name"] == "code").unwrap().clone();
        volume.as_object_mut().unwrap().remove("name");
        let arguments = pod["containers"][0]["args"].as_array().unwrap();
        let sizes: Vec<_> =
            arguments.iter().filter_map(|argument| argument.as_str()?.strip_prefix("--code-cache-size=")).collect();
        (volume, sizes.join(" "))
    };
    assert_eq!(about(&json!({})), (json!({ "emptyDir": { "sizeLimit": "1152Mi" } }), "768Mi".to_owned()));
    let values = json!({ "codeCache": { "size": "3Gi", "persistentVolumeClaim": "code" } });
    let check = json!({ "manifests": ["/operators"], "codeCache": values["codeCache"] });
    let check = template("tests/check.yaml", "home", &check).unwrap().remove(0);
    assert!(!check["spec"]["volumes"].to_string().contains("persistentVolumeClaim"), "the daemon is at work there");
    assert_eq!(about(&values), (json!({ "persistentVolumeClaim": { "claimName": "code" } }), "3Gi".to_owned()));
    let values = json!({ "componentCache": { "size": "2Gi" }, "codeCache": { "sizeLimit": "3Gi" }, "insecureRegistries": ["r.dev:5000", "s.dev"] });
    let pod = template("deployment.yaml", "home", &values).unwrap().remove(0)["spec"]["template"]["spec"].clone();
    for argument in ["--component-cache-size=2Gi", "--insecure-registry=r.dev:5000", "--insecure-registry=s.dev"] {
        assert!(pod["containers"][0]["args"].as_array().unwrap().contains(&json!(argument)), "{argument}");
    }
    let values = json!({
        "registryMirrors": { "docker.io": ["m.io/hub", "only"], "*": ["m.io/all"] },
        "proxy": { "https": "http://p.io:3128", "noProxy": "m.io,10.0.0.0/8" },
    });
    let pod = template("deployment.yaml", "home", &values).unwrap().remove(0)["spec"]["template"]["spec"].clone();
    let container = &pod["containers"][0];
    for argument in ["docker.io=m.io/hub", "docker.io=only", "*=m.io/all"] {
        let argument = json!(format!("--registry-mirror={argument}"));
        assert!(container["args"].as_array().unwrap().contains(&argument), "{container}");
    }
    let set = json!([
        { "name": "HTTPS_PROXY", "value": "http://p.io:3128" },
        { "name": "NO_PROXY", "value": "m.io,10.0.0.0/8" },
    ]);
    assert_eq!(container["env"].as_array().unwrap()[2..], set.as_array().unwrap()[..]);
    let key = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
    let values = json!({ "verifyKeys": [key] });
    let pod = template("deployment.yaml", "home", &values).unwrap().remove(0)["spec"]["template"].clone();
    let argument = json!("--verify-key=/etc/capstan/verify-keys/0.pub");
    assert!(pod["spec"]["containers"][0]["args"].as_array().unwrap().contains(&argument), "{pod}");
    assert!(pod["metadata"]["annotations"]["capstan.dev/verify-keys"].is_string(), "{pod}");
    let keys = template("verify-keys.yaml", "home", &values).unwrap().remove(0);
    assert_eq!(keys["data"], json!({ "0.pub": key }));
    assert!(template("deployment.yaml", "home", &json!({ "verifyKeys": ["cosign.pub"] })).is_err());
    let refused = template("deployment.yaml", "home", &json!({ "codeCache": { "size": "1.5Gi" } })).unwrap_err();
    assert!(refused.contains("codeCache"), "{refused}");
}

#[test]
fn requests_from_outside_have_a_port_and_a_service_only_if_that_is_wanted() {
    // IB-3
    let values = |fields: Value| json!({ "inbound": fields });
    let all = |values: &Value| {
        let pod = template("deployment.yaml", "home", values).unwrap().remove(0)["spec"]["template"]["spec"].clone();
        let services = template("service.yaml", "home", values).unwrap_or_default();
        let policy = template("networkpolicy.yaml", "home", values).unwrap().remove(0);
        (pod["containers"][0].clone(), pod["volumes"].to_string(), services, policy["spec"]["ingress"].clone())
    };
    let (closed, volumes, services, ingress) = all(&json!({}));
    let told = closed.to_string() + &volumes;
    assert!(!told.contains("inbound"), "{told}");
    assert_eq!((services, ingress), (Vec::new(), json!([])));

    let peers = json!([{ "podSelector": {} }]);
    let (open, volumes, services, ingress) = all(&values(json!({ "enabled": true, "port": 443, "from": peers })));
    assert!(open["args"].as_array().unwrap().contains(&json!("--inbound-listen=[::]:8083")), "{open}");
    assert!(!open["args"].to_string().contains("inbound-tls") && !volumes.contains("inbound-tls"), "{open}");
    assert_eq!(open["ports"][1], json!({ "name": "inbound", "containerPort": 8083, "protocol": "TCP" }));
    assert_eq!(services[0]["metadata"]["name"], "capstan-inbound");
    assert_eq!(
        services[0]["spec"]["ports"][0],
        json!({ "name": "inbound", "port": 443, "targetPort": "inbound", "protocol": "TCP" })
    );
    assert_eq!(ingress, json!([{ "from": peers, "ports": [{ "port": "inbound", "protocol": "TCP" }] }]));
    let (_, _, _, ingress) = all(&values(json!({ "enabled": true })));
    assert_eq!(ingress, json!([]), "nobody, unless it is said who");

    let (open, volumes, _, _) = all(&values(json!({ "enabled": true, "tlsSecret": "cert" })));
    for argument in
        ["--inbound-tls-cert=/etc/capstan/inbound-tls/tls.crt", "--inbound-tls-key=/etc/capstan/inbound-tls/tls.key"]
    {
        assert!(open["args"].as_array().unwrap().contains(&json!(argument)), "{open}");
    }
    assert!(volumes.contains(r#""secretName":"cert""#), "{volumes}");
    assert!(open["volumeMounts"].to_string().contains("/etc/capstan/inbound-tls"), "{open}");
}

#[test]
fn metrics_are_read_with_a_token_and_the_daemon_may_ask_whose_it_is() {
    let names = |values: &Value| {
        let objects = template("rbac.yaml", "home", values).unwrap_or_default();
        let name = |object: &Value| object["metadata"]["name"].as_str().map(str::to_owned);
        objects.iter().filter_map(name).collect::<BTreeSet<_>>()
    };
    let metrics = |auth: &str| {
        let reader = json!({ "kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring" });
        json!({ "metrics": { "enabled": true, "auth": auth, "readers": [reader] }, "serviceMonitor": { "enabled": true } })
    };
    let endpoint = |auth: &str| {
        let monitor = template("servicemonitor.yaml", "home", &metrics(auth)).unwrap().remove(0);
        monitor["spec"]["endpoints"][0].clone()
    };
    let (token, none) = (names(&metrics("token")), names(&metrics("none")));
    for name in ["home:capstan-metrics-auth", "home:capstan-metrics-reader"] {
        assert!(token.contains(name), "{token:?}");
        assert!(!none.contains(name) && !names(&json!({})).contains(name), "{none:?}");
    }
    let file = "/var/run/secrets/kubernetes.io/serviceaccount/token";
    assert_eq!(endpoint("token")["bearerTokenFile"], file);
    assert_eq!(endpoint("none")["bearerTokenFile"], Value::Null);
}

#[test]
fn without_an_operator_there_is_nothing_to_run() {
    let replicas = |values: Value| template("deployment.yaml", "home", &values).unwrap()[0]["spec"]["replicas"].clone();
    assert_eq!(replicas(json!({})), 0);
    assert_eq!(replicas(json!({ "manifests": ["/operators"] })), 1);
    let operator = json!({ "manifest": rights::manifest(json!({}), json!({})), "components": { "p": { "data": "AGFzbQ0AAQA=" } } });
    assert_eq!(replicas(json!({ "operators": { "o": operator } })), 1);
}

#[test]
fn a_network_policy_lets_in_only_who_reads_metrics_that_are_served() {
    let policy = |enabled: bool, values: Value| {
        let values = json!({ "metrics": { "enabled": enabled }, "networkPolicy": values });
        let objects = template("networkpolicy.yaml", "home", &values).unwrap();
        objects[0]["spec"].clone()
    };
    let peers = json!([{ "podSelector": {} }]);
    let open = |peers: &Value| json!([{ "from": peers, "ports": [{ "port": "metrics", "protocol": "TCP" }] }]);
    for (enabled, values, expected) in [
        (false, json!({}), json!([])),
        (false, json!({ "from": peers }), json!([])),
        (true, json!({}), open(&json!([{ "namespaceSelector": {} }]))),
        (true, json!({ "from": peers }), open(&peers)),
        (true, json!({ "from": [] }), json!([])),
    ] {
        let policy = policy(enabled, values);
        assert_eq!(policy["ingress"], expected);
        assert_eq!(policy["policyTypes"], json!(["Ingress"]));
    }
    let egress = json!([{ "ports": [{ "port": 6443 }] }]);
    let some = policy(false, json!({ "egress": egress }));
    assert_eq!(some["egress"], egress);
    assert_eq!(some["policyTypes"], json!(["Ingress", "Egress"]));
}

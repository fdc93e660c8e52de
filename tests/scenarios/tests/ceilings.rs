//! Operators of other namespaces than the daemon's own: each works in its namespace alone, within a ceiling, and in the name of an account there.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use cluster::{Namespace, Query, wait};
use scenarios::registry::Registry;
use scenarios::{Daemon, LATER, Place, Start, capstan, component, run};
use serde_json::{Value, json};

/// A daemon's own namespace, with teams that have namespaces of theirs.
struct Company {
    place: Place,
    teams: Vec<Namespace>,
    folder: tempfile::TempDir,
}

impl Company {
    /// Returns a place with so many teams, which may have what `rules` and `more` say; the daemon's account and theirs have the rights that the
    /// daemon prints.
    fn new(prefix: &str, teams: usize, rules: &Value, more: Value) -> Self {
        let place = Place::new(prefix);
        let teams: Vec<_> = (0..teams).map(|_| place.cluster.namespace(prefix).unwrap()).collect();
        let mut ceiling = json!({
            "namespaces": teams.iter().map(Namespace::name).collect::<Vec<_>>(),
            "serviceAccounts": ["pages"],
            "rules": rules,
        });
        ceiling.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let ceilings = json!({ "apiVersion": "capstan.dev/v1alpha1", "kind": "Ceilings", "spec": { "ceilings": { "teams": ceiling } } });
        let company = Self { place, teams, folder: tempfile::tempdir().unwrap() };
        fs::write(company.ceilings(), ceilings.to_string()).unwrap();
        let own = ["--namespace", company.place.namespace.name(), "--service-account", "daemon", "--name", "company"];
        let (code, rights, err) =
            run(&[&["rbac", "--ceilings", company.ceilings().to_str().unwrap()], &own[..]].concat());
        assert_eq!(code, 0, "{err}");
        company.place.cluster.kubectl_with_input(&["apply", "-f", "-"], &rights).unwrap();
        company
    }

    fn ceilings(&self) -> PathBuf {
        self.folder.path().join("ceilings.yaml")
    }

    /// Starts a daemon with the rights of its account, and none else.
    fn daemon(&self) -> Daemon {
        let account = self.place.namespace.service_account("daemon").unwrap();
        let (ceilings, cache) = (self.ceilings(), self.folder.path().join("components"));
        let own = [
            "--operators",
            "cluster",
            "--ceilings",
            ceilings.to_str().unwrap(),
            "--namespace",
            self.place.namespace.name(),
            "--component-cache",
            cache.to_str().unwrap(),
        ];
        Start::on_objects()
            .kubeconfig(self.place.cluster.kubeconfig(&account).unwrap())
            .arguments(&own)
            .run(&self.place)
    }

    fn apply(&self, object: &Value) {
        self.place.cluster.kubectl_with_input(&["apply", "-f", "-"], &object.to_string()).unwrap();
    }

    /// Waits until the state of a team's operator is this for what its object says now, and returns the object.
    fn await_state(&self, team: &Namespace, name: &str, state: &str) -> Value {
        let path = team.path("capstan.dev/v1alpha1", "operators");
        self.place.await_within(LATER, &path, name, state, |object| {
            object["status"]["state"] == state
                && object["status"]["observedGeneration"] == object["metadata"]["generation"]
        })
    }

    fn probe(&self, team: &Namespace, name: &str) {
        let path = team.path("test.capstan.dev/v1", "probes");
        self.place.create("test.capstan.dev/v1", "Probe", &path, name, json!({ "spec": {} }));
    }

    /// Waits until a config map of a team says this, and returns it.
    fn await_map(&self, team: &Namespace, name: &str, says: &str) -> Value {
        self.place.await_within(LATER, &team.path("v1", "configmaps"), name, says, |map| map["data"]["says"] == says)
    }
}

/// Returns an operator of a namespace, whose config maps say this.
fn operator(namespace: &str, name: &str, says: &str) -> Value {
    let template = json!({ "metadata": { "name": "${primary.metadata.name}" }, "data": { "says": says } });
    let controller = json!({
        "primary": { "apiVersion": "test.capstan.dev/v1", "kind": "Probe" },
        "namespaces": "own",
        "workflow": { "dependents": { "map": { "apiVersion": "v1", "kind": "ConfigMap", "desired": { "template": template } } } },
    });
    json!({
        "apiVersion": "capstan.dev/v1alpha1",
        "kind": "Operator",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "serviceAccount": { "name": "pages" }, "controllers": { name: controller } },
    })
}

fn probes_and_maps() -> Value {
    let all = ["get", "list", "watch", "create", "update", "patch"];
    json!([
        { "apiGroups": ["test.capstan.dev"], "resources": ["probes", "probes/status"], "verbs": all },
        { "apiGroups": [""], "resources": ["configmaps", "events"], "verbs": all },
    ])
}

fn message(object: &Value, kind: &str) -> String {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == kind).unwrap();
    found["message"].as_str().unwrap().to_owned()
}

#[test]
fn operators_of_teams_have_names_namespaces_and_accounts_of_their_own() {
    // CE-1, CE-2, CE-3
    let company = Company::new("ce-teams", 2, &probes_and_maps(), json!({}));
    let daemon = company.daemon();
    for team in &company.teams {
        company.apply(&operator(team.name(), "web", team.name()));
        company.probe(team, "first");
    }
    for team in &company.teams {
        let active = company.await_state(team, "web", "Active");
        assert_eq!(active["status"]["version"], 1, "{active}");
        // The daemon's own account may not write config maps.
        let map = company.await_map(team, "first", team.name());
        let managers: Vec<_> = map["metadata"]["managedFields"].as_array().unwrap().iter().collect();
        assert!(
            managers.iter().any(|entry| entry["manager"] == format!("capstan.{}.web", team.name())),
            "{managers:?}"
        );
        let name = format!("{}.web", team.name());
        assert!(daemon.controller(&name).is_some(), "{}", daemon.controllers());
    }
    let [one, two] = &company.teams[..] else { panic!() };
    // The end of the one is none of the other.
    company.place.delete(&one.path("capstan.dev/v1alpha1", "operators"), "web");
    wait::until(LATER, "the end of it", || daemon.controller(&format!("{}.web", one.name())).is_none().then_some(()))
        .unwrap();
    company.probe(two, "second");
    company.await_map(two, "second", two.name());
    daemon.stop();
}

#[test]
fn an_operator_that_is_added_has_nothing_of_other_teams_listed_again() {
    // CE-2
    let company = Company::new("ce-lists", 2, &probes_and_maps(), json!({}));
    let [one, two] = &company.teams[..] else { panic!() };
    let daemon = company.daemon();
    let add = |team: &Namespace| {
        company.apply(&operator(team.name(), "web", team.name()));
        company.probe(team, "first");
        company.await_map(team, "first", team.name());
        company.await_state(team, "web", "Active");
    };
    add(one);
    let lists = || {
        let query = Query::default().namespace(one.name()).resource("probes").verbs(["list", "watch"]);
        company.place.cluster.audit().unwrap().count(&query).unwrap()
    };
    let before = lists();
    add(two);
    assert_eq!((lists(), before > 0), (before, true));
    daemon.stop();
}

#[test]
fn what_is_above_a_ceiling_is_refused_with_the_field_and_what_was_in_force_goes_on() {
    // CE-1, CE-3, CE-5
    let company = Company::new("ce-above", 1, &probes_and_maps(), json!({ "operators": 1 }));
    let daemon = company.daemon();
    let team = &company.teams[0];
    let good = operator(team.name(), "web", "good");
    company.apply(&good);
    company.await_state(team, "web", "Active");
    let controller = "/spec/controllers/web";
    for (pointer, field, value, expected) in [
        (
            controller,
            "namespaces",
            json!("all"),
            "spec.controllers.web.namespaces: found all namespaces; the ceiling `teams` permits the namespace of the operator alone",
        ),
        (
            "/spec/serviceAccount",
            "name",
            json!("admin"),
            "spec.serviceAccount.name: found `admin`; the ceiling `teams` permits pages",
        ),
        (
            &format!("{controller}/workflow/dependents/map"),
            "onRename",
            json!("delete"),
            "spec: found a need for delete of configmaps; the ceiling `teams` permits get, list, watch, create, update, patch",
        ),
    ] {
        let mut above = good.clone();
        above.pointer_mut(pointer).unwrap()[field] = value;
        company.apply(&above);
        let refused = company.await_state(team, "web", "Outdated");
        let found = message(&refused, "Loaded");
        assert!(found.contains(expected), "{found}");
    }
    company.probe(team, "first");
    company.await_map(team, "first", "good");
    // Another one is too many, and is none of who was there first.
    company.apply(&good);
    company.await_state(team, "web", "Active");
    company.apply(&operator(team.name(), "more", "more"));
    let refused = company.await_state(team, "more", "Failed");
    let found = message(&refused, "Loaded");
    assert!(found.contains("with it the namespace has 2 operators; the ceiling `teams` permits 1"), "{found}");
    // Nobody looks after a namespace that has no ceiling.
    let other = company.place.cluster.namespace("ce-none").unwrap();
    company.apply(&operator(other.name(), "web", "none"));
    company.apply(&operator(team.name(), "web", "better"));
    company.await_map(team, "first", "better");
    let none = company.place.find(&other.path("capstan.dev/v1alpha1", "operators"), "web").unwrap();
    assert!(none["status"].is_null(), "{none}");
    daemon.stop();
}

#[test]
fn what_runs_has_its_room_whoever_asks_for_more_and_of_a_crowd_most_is_not_read() {
    // CE-5
    let company = Company::new("ce-room", 1, &probes_and_maps(), json!({ "operators": 2, "controllers": 2 }));
    let daemon = company.daemon();
    let team = &company.teams[0];
    for name in ["one", "two"] {
        company.apply(&operator(team.name(), name, name));
        company.await_state(team, name, "Active");
    }
    let mut larger = operator(team.name(), "one", "one");
    let mut second = larger["spec"]["controllers"]["one"].clone();
    second["labelSelector"] = json!("never");
    larger["spec"]["controllers"]["more"] = second;
    company.apply(&larger);
    let refused = company.await_state(team, "one", "Outdated");
    let found = message(&refused, "Loaded");
    assert!(found.contains("with it the namespace has 3 controllers; the ceiling `teams` permits 2"), "{found}");
    daemon.stop();
    // After a restart, what ran runs.
    let daemon = company.daemon();
    company.await_state(team, "two", "Active");
    company.await_state(team, "one", "Outdated");
    for number in 10..40 {
        company.apply(&operator(team.name(), &format!("x{number}"), "x"));
    }
    let refused = company.await_state(team, "x39", "Failed");
    let found = message(&refused, "Loaded");
    assert!(found.contains("the namespace has many more operators than its ceiling permits"), "{found}");
    company.apply(&operator(team.name(), "two", "three"));
    company.await_state(team, "two", "Active");
    daemon.stop();
}

#[test]
fn a_team_pulls_its_component_with_a_secret_of_its_own() {
    // CE-2, CE-4
    let mut registry = Registry::start();
    let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let rules = json!([
        { "apiGroups": ["sample.capstan.dev"], "resources": ["webpages", "webpages/status"], "verbs": all },
        { "apiGroups": ["apps"], "resources": ["deployments"], "verbs": all },
        { "apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": all },
        { "apiGroups": [""], "resources": ["configmaps", "services", "secrets", "events"], "verbs": all },
    ]);
    let permitted = format!("{}/team", registry.address());
    let company =
        Company::new("ce-pull", 1, &rules, json!({ "registries": [permitted], "limits": { "memory": "128Mi" } }));
    let (place, team) = (&company.place, &company.teams[0]);
    let label = json!({ "labels": { "capstan.dev/config-for": "pages" } });
    let secret = json!({
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": label,
        "stringData": { ".dockerconfigjson": registry.login() },
    });
    let ca = fs::read_to_string(registry.certificate()).unwrap();
    place.create(
        "v1",
        "ConfigMap",
        &team.path("v1", "configmaps"),
        "ca",
        json!({ "metadata": label, "data": { "ca.crt": ca } }),
    );
    let reference = format!("{}/team/webpage:1", registry.address());
    let ca = registry.certificate().display().to_string();
    let mut command = Command::new(capstan());
    command.args(["push", &component("webpage").display().to_string(), &reference, "--ca", &ca]).env_remove("RUST_LOG");
    let output = command.env("DOCKER_CONFIG", registry.docker_config()).output().unwrap();
    assert!(output.status.success(), "{output:?}");

    let sample: Value = serde_yaml::from_str(&place.sample_manifest("webpage")).unwrap();
    let mut operator = json!({ "apiVersion": "capstan.dev/v1alpha1", "kind": "Operator", "spec": sample["spec"] });
    operator["metadata"] = json!({ "name": "pages", "namespace": team.name() });
    operator["spec"]["serviceAccount"] = json!({ "name": "pages" });
    let controllers = operator["spec"]["controllers"].as_object_mut().unwrap();
    controllers.values_mut().for_each(|controller| controller["namespaces"] = json!("own"));
    let component = |oci: &str| json!({ "oci": oci, "pullSecret": "pull", "ca": { "configMap": { "name": "ca" } } });
    operator["spec"]["plugins"]["webpage"]["component"] = component(&reference.replace("/team/", "/other/"));
    let daemon = company.daemon();
    company.apply(&operator);
    let refused = company.await_state(team, "pages", "Failed");
    let found = message(&refused, "Loaded");
    assert!(found.contains(&format!("; the ceiling `teams` permits {permitted}")), "{found}");

    operator["spec"]["plugins"]["webpage"]["component"] = component(&reference);
    company.apply(&operator);
    place.create("v1", "Secret", &team.path("v1", "secrets"), "pull", secret);
    company.await_state(team, "pages", "Active");
    let page = json!({ "spec": { "html": "<html>1</html>" } });
    let pages = team.path("sample.capstan.dev/v1", "webpages");
    place.create("sample.capstan.dev/v1", "WebPage", &pages, "page", page);
    place.await_within(LATER, &team.path("apps/v1", "deployments"), "page", "made", |_| true);
    daemon.stop();
    registry.stop();
}

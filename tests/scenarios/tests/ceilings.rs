//! Operators of other namespaces than the daemon's own: each works in its namespace alone, within a ceiling, and in the name of an account there.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use cluster::{Namespace, Query, wait};
use scenarios::registry::Registry;
use scenarios::{Daemon, LATER, Place, Start, capstan, component, run};
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

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
        let company = Self { place, teams, folder: tempfile::tempdir().unwrap() };
        company.lay(rules, more);
        let own = ["--namespace", company.place.namespace.name(), "--service-account", "daemon", "--name", "company"];
        let (code, rights, err) =
            run(&[&["rbac", "--ceilings", company.ceilings().to_str().unwrap()], &own[..]].concat());
        assert_eq!(code, 0, "{err}");
        company.place.cluster.kubectl_with_input(&["apply", "-f", "-"], &rights).unwrap();
        company
    }

    /// Writes the file of ceilings.
    fn lay(&self, rules: &Value, more: Value) {
        let mut ceiling = json!({
            "namespaces": self.teams.iter().map(Namespace::name).collect::<Vec<_>>(),
            "serviceAccounts": ["pages"],
            "rules": rules,
        });
        ceiling.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let ceilings = json!({ "apiVersion": "capstan.dev/v1alpha1", "kind": "Ceilings", "spec": { "ceilings": { "teams": ceiling } } });
        fs::write(self.ceilings(), ceilings.to_string()).unwrap();
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

    /// Waits until the status of a team's operator says this.
    fn await_said(&self, team: &Namespace, name: &str, words: &str) {
        let path = team.path("capstan.dev/v1alpha1", "operators");
        self.place
            .await_within(LATER, &path, name, words, |object| said(object).iter().any(|said| said.contains(words)));
    }

    /// Has the API server serve a kind, whose objects live in namespaces or in none.
    fn define(&self, group: &str, plural: &str, scope: &str) {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let version = json!({ "name": "v1", "served": true, "storage": true, "subresources": { "status": {} }, "schema": { "openAPIV3Schema": schema } });
        let names = json!({ "kind": "Person", "plural": plural, "singular": "person" });
        let crd = json!({ "spec": { "group": group, "names": names, "scope": scope, "versions": [version] } });
        let name = format!("{plural}.{group}");
        self.place.create("apiextensions.k8s.io/v1", "CustomResourceDefinition", CRDS, &name, crd);
        let wait = ["wait", "--for=condition=Established", "--timeout=30s", &format!("crd/{name}")];
        self.place.cluster.kubectl(&wait).unwrap();
    }

    fn undefine(&self, group: &str, plural: &str) {
        let name = format!("{plural}.{group}");
        self.place.delete(CRDS, &name);
        self.place.await_gone(CRDS, &name);
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

/// Returns the messages of all conditions of an operator.
fn said(object: &Value) -> Vec<String> {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().filter_map(|condition| Some(condition["message"].as_str()?.to_owned())).collect()
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
    // A watch lists as well.
    let lists = || {
        let query = Query::default().namespace(one.name()).resource("probes").verbs(["list", "watch"]);
        company.place.cluster.audit().unwrap().count(&query).unwrap()
    };
    let before = wait::until(LATER, "its watch", || Some(lists()).filter(|lists| *lists > 0)).unwrap();
    add(two);
    assert_eq!(lists(), before);
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
            "spec.controllers.web.workflow.dependents.map: found a need for delete of configmaps; the ceiling `teams` permits get, list, watch, create, update, patch",
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
fn a_team_that_makes_operators_without_end_costs_others_nothing() {
    // CE-5
    let company = Company::new("ce-flood", 2, &probes_and_maps(), json!({ "operators": 2 }));
    let daemon = company.daemon();
    let (flooding, other) = (&company.teams[0], &company.teams[1]);
    company.apply(&operator(other.name(), "web", "good"));
    company.await_state(other, "web", "Active");
    let (api, path) = (company.place.cluster.api(), flooding.path("capstan.dev/v1alpha1", "operators"));
    for number in 0..1500 {
        api.create(&path, &operator(flooding.name(), &format!("x{number}"), "x")).unwrap();
        if number % 100 == 0 {
            assert_eq!(daemon.get("/livez").0, 200);
        }
    }
    company.probe(other, "first");
    company.await_map(other, "first", "good");
    // Those that it may have, those that are read, and those of which it is said that they are too many.
    let said = || {
        let all = api.get(&path).unwrap();
        let said = all["items"].as_array().unwrap().iter().filter(|object| object["status"]["state"].is_string());
        said.count()
    };
    wait::until(LATER, "what is said", || (said() == 2 + 16 + 64).then_some(())).unwrap();
    company.apply(&operator(other.name(), "web", "better"));
    company.await_map(other, "first", "better");
    assert_eq!((daemon.get("/livez").0, said()), (200, 2 + 16 + 64));
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

#[test]
fn a_kind_is_within_a_ceiling_by_its_real_plural_and_scope_whatever_a_guess_permits() {
    // CE-6
    let all = ["get", "list", "watch", "create", "update", "patch"];
    let group = format!("kinds-{}.capstan.dev", std::process::id());
    let mut rules = probes_and_maps();
    rules
        .as_array_mut()
        .unwrap()
        .push(json!({ "apiGroups": [group], "resources": ["people", "people/status"], "verbs": all }));
    let company = Company::new("ce-kinds", 1, &rules, json!({}));
    let team = &company.teams[0];
    let audit = company.place.cluster.audit().unwrap();
    let mark = audit.mark().unwrap();
    let daemon = company.daemon();
    let mut person = operator(team.name(), "web", "person");
    person["spec"]["controllers"]["web"]["primary"] = json!({ "apiVersion": format!("{group}/v1"), "kind": "Person" });
    // Nobody knows yet what the kind will be called; of a group that has no rules, it does not matter.
    company.apply(&person);
    company.await_said(team, "web", &format!("{group}/v1 Person"));
    let mut other = operator(team.name(), "other", "other");
    other["spec"]["controllers"]["other"]["primary"] = json!({ "apiVersion": "elsewhere.dev/v1", "kind": "Person" });
    company.apply(&other);
    company.await_state(team, "other", "Failed");
    company.await_said(
        team,
        "other",
        "spec.controllers.other.primary: found a need for get, list, watch, patch of <Person>.elsewhere.dev",
    );

    // By the controller that waits for it, or by who would put it in force once more.
    let refused = "the ceiling `teams` permits nothing of it, and people, people/status of its group";
    company.define(&group, "persons", "Namespaced");
    company.await_said(team, "web", refused);
    // So is whatever comes later.
    let mut late = operator(team.name(), "late", "late");
    late["spec"]["controllers"]["late"]["primary"] = person["spec"]["controllers"]["web"]["primary"].clone();
    company.apply(&late);
    company.await_state(team, "late", "Failed");
    company.await_said(team, "late", &format!("spec.controllers.late.primary: found a need for get, list, watch, patch of persons.{group}; the ceiling `teams` permits nothing of it"));
    company.place.delete(&team.path("capstan.dev/v1alpha1", "operators"), "late");

    // Made anew under the name that the ceiling has, it is what the operator waits for.
    company.undefine(&group, "persons");
    company.define(&group, "people", "Namespaced");
    company.await_state(team, "web", "Active");
    let path = team.path(&format!("{group}/v1"), "people");
    company.place.create(&format!("{group}/v1"), "Person", &path, "first", json!({}));
    company.await_map(team, "first", "person");

    company.undefine(&group, "people");
    company.define(&group, "people", "Cluster");
    company.await_said(
        team,
        "web",
        &format!(
            "found {group}/v1 Person, which lives in no namespace; the ceiling `teams` permits what lives in {} alone",
            team.name()
        ),
    );
    company.place.create(&format!("{group}/v1"), "Person", &format!("/apis/{group}/v1/people"), "second", json!({}));
    company.undefine(&group, "people");

    company.define(&group, "persons", "Namespaced");
    company.await_said(team, "web", refused);
    // No request has gone out for what the ceiling does not have.
    let asked = |query: Query| audit.requests(&query.user_agent("capstan/")).unwrap();
    let persons = asked(Query::since(mark).resource("persons"));
    assert!(persons.is_empty(), "{persons:?}");
    daemon.stop();
    company.undefine(&group, "persons");
}

#[test]
fn a_ceiling_that_is_lowered_ends_what_is_above_it_and_one_that_is_raised_starts_what_waited() {
    // CE-7
    let rules = probes_and_maps();
    let company = Company::new("ce-lower", 2, &rules, json!({}));
    let daemon = company.daemon();
    let [team, other] = &company.teams[..] else { panic!() };
    for name in ["one", "two"] {
        let mut labelled = operator(team.name(), name, name);
        labelled["spec"]["controllers"][name]["labelSelector"] = json!(format!("of={name}"));
        company.apply(&labelled);
        company.await_state(team, name, "Active");
    }
    company.apply(&operator(other.name(), "web", "web"));
    company.await_state(other, "web", "Active");
    let runs = |name: &str| daemon.controller(&format!("{}.{name}", team.name())).is_some();

    // What is broken changes nothing, and is told once.
    fs::write(company.ceilings(), "kind: Ceilings").unwrap();
    daemon.await_line("the ceilings that it had last hold");
    assert!(runs("one") && runs("two"));
    wait::until(LATER, "the metric", || (daemon.count("capstan_manifest_problems", "") == 1).then_some(())).unwrap();

    // There is room for one: it is the one that was applied first.
    company.lay(&rules, json!({ "operators": 1 }));
    company.await_state(team, "two", "Failed");
    company.await_said(team, "two", "with it the namespace has 2 operators; the ceiling `teams` permits 1");
    assert!(runs("one") && !runs("two"));
    assert_eq!(daemon.count("capstan_manifest_problems", ""), 1, "the operator alone");

    // Nothing goes on that may not any more, nor does its last good version.
    let mut lower = rules.clone();
    lower[1]["verbs"] = json!(["get", "list", "watch"]);
    company.lay(&lower, json!({}));
    let words = "spec.controllers.one.workflow.dependents.map: found a need for create, update of configmaps; the ceiling `teams` permits get, list, watch";
    company.await_state(team, "one", "Failed");
    company.await_said(team, "one", words);
    company.await_state(other, "web", "Failed");
    daemon.await_line("the operator ends: it is more than its ceiling permits by now");
    assert!(!runs("one") && !runs("two"));

    // Whatever waited begins.
    company.lay(&rules, json!({}));
    for name in ["one", "two"] {
        company.await_state(team, name, "Active");
    }
    company.await_state(other, "web", "Active");
    let labels = json!({ "metadata": { "labels": { "of": "two" } }, "spec": {} });
    let path = team.path("test.capstan.dev/v1", "probes");
    company.place.create("test.capstan.dev/v1", "Probe", &path, "first", labels);
    company.await_map(team, "first", "two");

    // A namespace without a ceiling has no operators any more.
    company.lay(&rules, json!({ "namespaces": [team.name()] }));
    company.await_state(other, "web", "Failed");
    company.await_said(other, "web", &format!("the namespace {} has no ceiling any more", other.name()));
    company.probe(other, "none");
    assert!(runs("one") && runs("two"));
    company.lay(&rules, json!({}));
    company.await_state(other, "web", "Active");
    company.await_map(other, "none", "web");
    daemon.stop();
}

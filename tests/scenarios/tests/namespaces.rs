//! Which primaries run when the namespaces of a controller change while it runs.

use std::fs;

use cluster::wait;
use scenarios::{Daemon, Folder, LATER, Place, SOON, replaced_exports};
use serde_json::{Value, json};

/// A place and a neighbour of it, and a daemon whose controller watches in changing namespaces.
struct Two {
    own: Place,
    other: Place,
    manifest: String,
    folder: Folder,
    daemon: Daemon,
}

impl Two {
    fn new(prefix: &str) -> Self {
        let (own, other) = (Place::new(prefix), Place::new(&format!("{prefix}-other")));
        // Where all namespaces are watched, the primaries of other tests must not be ours.
        let manifest = own.able_manifest(&format!("labelSelector: of={}\n", own.namespace.name()));
        // Without a cleaner there are no runs for finalizers.
        let folder = replaced_exports(&manifest, &[("cleaner", "tidying")]);
        let manifest = fs::read_to_string(folder.path("operator.yaml")).unwrap();
        let daemon = folder.daemon(&own);
        Self { own, other, manifest, folder, daemon }
    }

    /// Creates a probe that makes a config map of its name.
    fn probe(&self, place: &Place, name: &str) {
        let object = place.map_of(name, name, json!({ "v": "made" }));
        let steps = json!({ "write": { "verb": "apply", "object": object }, "tell": true });
        let labels = json!({ "of": self.own.namespace.name() });
        let probe = json!({ "metadata": { "labels": labels }, "spec": { "reconcile": { "do": steps } } });
        place.create("test.capstan.dev/v1", "Probe", &place.probes(), name, probe);
    }

    /// Has the controller watch in these namespaces, or in all, and waits until it does.
    fn watch(&self, namespaces: &[&str]) {
        let text = if namespaces.is_empty() { "all".to_owned() } else { format!("[{}]", namespaces.join(", ")) };
        let before = format!("namespaces: [{}]", self.own.namespace.name());
        let manifest = self.manifest.replace(&before, &format!("namespaces: {text}"));
        assert!(manifest.contains(&text), "{manifest}");
        self.folder.put("operator.yaml", manifest);
        let mut wanted: Vec<_> = namespaces.iter().map(|name| format!(" in {name}")).collect();
        if namespaces.is_empty() {
            wanted.push(String::new());
        }
        wanted.sort_unstable();
        let watched = || {
            let informers = self.daemon.controllers()["informers"].clone();
            let watching = informers.as_array().unwrap().iter().filter(|informer| informer["state"] == "watching");
            let scope = |informer: &Value| {
                let scope = informer["scope"].as_str()?.strip_prefix("test.capstan.dev/v1 Probe")?;
                Some(scope.split(" where ").next()?.to_owned())
            };
            let mut scopes: Vec<_> = watching.filter_map(scope).collect();
            scopes.sort_unstable();
            scopes
        };
        let changed = || if watched() == wanted { Ok(()) } else { Err(json!(watched())) };
        wait::until_ok(LATER, &text, changed).unwrap();
        self.daemon.await_quiet();
    }

    /// Waits until these primaries have run so often, and asserts that they have not run more often once all is quiet.
    fn ran(&self, runs: &[(&str, usize)]) {
        let found = || runs.iter().map(|(name, _)| (*name, self.daemon.runs_of(name))).collect::<Vec<_>>();
        let ran = || if found() == runs { Ok(()) } else { Err(format!("{:?}", found())) };
        wait::until_ok(SOON, "these runs", ran).unwrap();
        self.daemon.await_quiet();
        assert_eq!(found(), runs);
    }
}

/// Labels the namespace of a place, or takes the label away.
fn label(place: &Place, team: &Value) {
    let path = format!("/api/v1/namespaces/{}", place.namespace.name());
    place.cluster.api().merge(&path, &json!({ "metadata": { "labels": { "team": team } } })).unwrap();
}

/// Waits until a controller has found that these namespaces are selected.
fn await_selected(daemon: &Daemon, controller: &str, names: &[&str]) {
    let wanted: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    wait::until_ok(LATER, &format!("{names:?} selected"), || {
        let found = daemon.controller(controller).unwrap_or_default()["selectedNamespaces"].clone();
        if found == json!(wanted) { Ok(()) } else { Err(found) }
    })
    .unwrap();
    daemon.await_quiet();
}

#[test]
fn namespaces_that_are_selected_by_labels_come_and_go_while_the_controller_runs() {
    // NS-5, NS-2, NS-3
    let two = Two::new("ns5");
    let (own, other) = (two.own.namespace.name(), two.other.namespace.name());
    let team = json!(own);
    two.probe(&two.own, "first");
    two.probe(&two.other, "foreign");
    two.ran(&[("first", 1), ("foreign", 0)]);
    label(&two.own, &team);
    let manifest =
        two.manifest.replace(&format!("namespaces: [{own}]"), &format!("namespaces: {{ selector: team={own} }}"));
    assert_ne!(manifest, two.manifest);
    two.folder.put("operator.yaml", &manifest);
    await_selected(&two.daemon, own, &[own]);
    two.ran(&[("first", 1), ("foreign", 0)]);
    label(&two.other, &team);
    await_selected(&two.daemon, own, &[own, other]);
    two.ran(&[("first", 1), ("foreign", 1)]);
    // Another version has the same ones, at once: both run once more.
    two.folder.put("operator.yaml", format!("{manifest}      minRescheduleInterval: 1s\n"));
    two.ran(&[("first", 2), ("foreign", 2)]);
    label(&two.own, &Value::Null);
    await_selected(&two.daemon, own, &[other]);
    two.probe(&two.own, "late");
    two.other.merge(&two.other.config_maps(), "foreign", &json!({ "data": { "v": "by others" } }));
    two.ran(&[("first", 2), ("foreign", 3), ("late", 0)]);
    label(&two.other, &Value::Null);
    await_selected(&two.daemon, own, &[]);
    assert_eq!(two.daemon.get("/readyz").0, 200);
    label(&two.own, &team);
    two.ran(&[("first", 3), ("foreign", 3), ("late", 1)]);
}

#[test]
fn a_controller_starts_with_what_is_selected_and_with_nothing() {
    // NS-5
    let place = Place::new("ns5start");
    let own = place.namespace.name();
    let manifest = place.able_manifest("");
    let selecting =
        manifest.replace(&format!("namespaces: [{own}]"), &format!("namespaces: {{ selector: 'team in ({own})' }}"));
    assert_ne!(manifest, selecting);
    let written = place.map_of("p", "made", json!({ "v": "made" }));
    let steps = json!({ "write": { "verb": "apply", "object": written }, "as": "made" });
    place.probe("p", json!({ "reconcile": { "do": steps, "status": {} } }));
    let daemon = place.daemon(&selecting);
    await_selected(&daemon, own, &[]);
    assert_eq!(daemon.runs(), 0);
    label(&place, &json!(own));
    // It is permitted to write there, too.
    place.await_object(&place.probes(), "p", "its status", |p| p["status"]["made"] == "made");
    assert!(daemon.stop().success());
    place.merge(
        &place.probes(),
        "p",
        &json!({ "status": null, "spec": { "reconcile": { "do": null, "status": { "again": true } } } }),
    );
    let daemon = place.daemon(&selecting);
    place.await_object(&place.probes(), "p", "its status", |p| p["status"]["again"] == true);
    assert_eq!(daemon.controller(own).unwrap()["selectedNamespaces"], json!([own]));
}

#[test]
fn s011_namespaces_that_come_run_what_is_in_them_and_those_that_go_run_nothing() {
    // NS-2, NS-3
    let two = Two::new("s011");
    let (own, other) = (two.own.namespace.name(), two.other.namespace.name());
    two.probe(&two.own, "first");
    two.probe(&two.other, "foreign");
    two.ran(&[("first", 1), ("foreign", 0)]);
    two.watch(&[own, other]);
    two.ran(&[("first", 1), ("foreign", 1)]);
    two.watch(&[other]);
    two.probe(&two.own, "late");
    two.own.merge(&two.own.config_maps(), "first", &json!({ "data": { "v": "by others" } }));
    two.ran(&[("first", 1), ("foreign", 1), ("late", 0)]);
    two.other.merge(&two.other.config_maps(), "foreign", &json!({ "data": { "v": "by others" } }));
    two.ran(&[("first", 1), ("foreign", 2)]);
}

#[test]
fn s011_all_namespaces_run_what_was_not_watched_and_nothing_else() {
    let two = Two::new("s011all");
    let own = two.own.namespace.name();
    two.probe(&two.own, "first");
    two.probe(&two.other, "foreign");
    two.ran(&[("first", 1), ("foreign", 0)]);
    two.watch(&[]);
    two.ran(&[("first", 1), ("foreign", 1)]);
    two.watch(&[own]);
    two.probe(&two.own, "second");
    two.probe(&two.other, "late");
    two.ran(&[("first", 1), ("foreign", 1), ("second", 1), ("late", 0)]);
}

#[test]
fn a_dependent_in_a_namespace_that_is_being_deleted_fails_by_name_and_hinders_nobody() {
    let (place, going) = (Place::new("stays"), Place::new("going"));
    let (own, other) = (place.namespace.name(), going.namespace.name());
    // What is held there keeps the namespace from going.
    let held = json!({ "metadata": { "finalizers": ["test.capstan.dev/held"] } });
    place.create("v1", "ConfigMap", &going.config_maps(), "held", held);
    place.cluster.api().delete(&format!("/api/v1/namespaces/{other}")).unwrap();
    let fields = format!(
        "labelSelector: place={own}\nretry: {{ initialInterval: 200ms, multiplier: 1, maxAttempts: unlimited }}\nworkflow:\n  dependents:\n    here: {{ apiVersion: v1, kind: ConfigMap }}\n    there: {{ apiVersion: v1, kind: ConfigMap, reconcilePrecondition: {{ cel: primary.spec.both }} }}\n"
    );
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: ClusterProbe }";
    let manifest = place.manifest("probe", primary, "", &fields);
    let manifest = manifest.replace(&format!("namespaces: [{own}]"), &format!("namespaces: [{own}, {other}]"));
    let daemon = place.daemon(&manifest);
    let probes = "/apis/test.capstan.dev/v1/clusterprobes";
    let probe = |name: &str, both: bool| {
        let map =
            |namespace: &str| json!({ "metadata": { "name": name, "namespace": namespace }, "data": { "v": "a" } });
        let dependents = json!({ "here": map(own), "there": map(other) });
        let spec = json!({ "both": both, "dependents": dependents, "reconcile": { "status": { "ok": true } } });
        let probe = json!({ "metadata": { "labels": { "place": own } }, "spec": spec });
        place.create("test.capstan.dev/v1", "ClusterProbe", probes, name, probe);
    };
    let [both, alone] = [format!("{own}-both"), format!("{own}-alone")];
    probe(&both, true);
    let told = "because it is being terminated";
    let line = daemon.await_line(told);
    assert!(line.contains("there: ") && line.contains(&both), "{line}");
    place.await_object(&place.config_maps(), &both, "what is elsewhere", |_| true);
    // It is tried again, and another primary is served meanwhile.
    wait::until(LATER, "another try", || (daemon.log().matches(told).count() > 2).then_some(())).unwrap();
    probe(&alone, false);
    place.await_object(probes, &alone, "its status", |probe| probe["status"]["ok"] == true);
    assert_eq!(daemon.get("/livez").0, 200);
    // The namespace goes, and one of its name comes.
    going.merge(&going.config_maps(), "held", &json!({ "metadata": { "finalizers": null } }));
    place.await_gone("/api/v1/namespaces", other);
    let anew = json!({ "metadata": { "name": other } });
    place.cluster.api().create("/api/v1/namespaces", &anew).unwrap();
    place.await_within(LATER, &going.config_maps(), &both, "it in the new namespace", |_| true);
    place.await_within(LATER, probes, &both, "its status", |probe| probe["status"]["ok"] == true);
    for name in [&both, &alone] {
        place.delete(probes, name);
        place.await_gone(probes, name);
    }
}

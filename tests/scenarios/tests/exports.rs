//! What the component itself decides about objects: which changes count, whose they are, and what happens if it does not know.

use std::time::Duration;

use cluster::wait;
use scenarios::{Daemon, Folder, LATER, Place, SOON, component, run};
use serde_json::{Value, json};

/// The annotation in which an object says what the component answers about it.
const SPEC: &str = "test.capstan.dev/spec";

/// What a filter that has no answer is told as.
const PASSES: &str = "a filter has no answer: the event counts";
/// What a mapper that has no answer is told as.
const STAYS: &str = "a mapper has no answer: what was known of the object stays, and it is asked again";

/// Returns the fields of a config map that names a primary, and says what the component answers about it.
fn map(primary: &str, spec: &Value, data: &str) -> Value {
    let annotations = json!({ "capstan.dev/primary-name": primary, SPEC: spec.to_string() });
    json!({ "metadata": { "annotations": annotations }, "data": { "value": data } })
}

/// Creates such a config map.
fn create(place: &Place, name: &str, fields: Value) {
    place.create("v1", "ConfigMap", &place.config_maps(), name, fields);
}

/// Returns a spec whose runs show which config maps belong to the probe, and count themselves.
fn looking() -> Value {
    let related = json!({ "read": { "in": { "source": "maps" }, "select": "related" }, "as": "maps" });
    json!([related, { "memo": { "lifetime": "primary", "count": "runs" }, "as": "runs" }])
}

/// Returns a manifest of a source `maps` of config maps with these fields.
fn manifest(place: &Place, fields: &str) -> String {
    let source = format!("sources:\n  maps: {{ informer: {{ apiVersion: v1, kind: ConfigMap, {fields} }} }}\n");
    place.manifest("probe", "{ apiVersion: test.capstan.dev/v1, kind: Probe }", "limits: { timeout: 1s }\n", &source)
}

/// Waits until the config maps of a probe are these, as its last run has seen them.
fn await_maps(place: &Place, name: &str, maps: &[&str]) {
    let expected: Vec<_> = maps.iter().map(|map| json!(map)).collect();
    place.await_object(&place.probes(), name, &format!("{maps:?} of {name}"), |probe| {
        let seen = probe["status"]["maps"].as_array();
        seen.is_some_and(|seen| *seen == expected)
    });
}

/// Returns how many lines say that with these words.
fn lines(daemon: &Daemon, message: &str, words: &str) -> usize {
    let lines = daemon.lines();
    lines.iter().filter(|line| line["message"] == message && line.to_string().contains(words)).count()
}

/// Waits until so many questions by this callback have had no answer.
fn await_failures(daemon: &Daemon, callback: &str, least: u64) {
    wait::until_ok(LATER, "failures", || match daemon.count("capstan_callback_failures_total", callback) {
        found if found >= least => Ok(()),
        found => Err(format!("{found}; log:\n{}", daemon.log())),
    })
    .unwrap();
}

#[test]
fn a_filter_by_export_leaves_out_what_the_component_does_not_accept() {
    // CF-5, IS-1
    let place = Place::new("export-filter");
    let fields = "mapper: { annotations: {} }, filters: { generic: { export: visible } }";
    let filters = "filters: { onUpdate: { export: wanted } }\n";
    let daemon = place.daemon(&format!("{}{}", manifest(&place, fields), indented(filters)));
    place.probe("p", json!({ "reconcile": { "do": looking() } }));
    daemon.await_quiet();
    let settled = daemon.runs();
    let hidden = json!({ "filters": { "visible": { "accepts": false } } });
    create(&place, "hidden", map("p", &hidden, "first"));
    create(&place, "shown", map("p", &json!({}), "first"));
    await_maps(&place, "p", &["hidden", "shown"]);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), settled + 1, "the map that is left out is in the cache all the same");
    place.merge(&place.config_maps(), "hidden", &json!({ "data": { "value": "second" } }));
    place.delete(&place.config_maps(), "hidden");
    daemon.await_quiet();
    assert_eq!(daemon.runs(), settled + 1, "neither its changes nor its end count");
    place.merge(&place.config_maps(), "shown", &json!({ "data": { "value": "second" } }));
    daemon.await_runs(settled + 2);
    await_maps(&place, "p", &["shown"]);

    let unwanted = json!({ "spec": { "filters": { "wanted": { "accepts": false } } } });
    place.merge(&place.probes(), "p", &unwanted);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), settled + 2, "a change of the primary that is left out");
    place.merge(&place.probes(), "p", &json!({ "spec": { "filters": null } }));
    daemon.await_runs(settled + 3);
    assert_eq!(daemon.count("capstan_callback_failures_total", ""), 0);
}

/// Returns fields of a controller as they stand in a manifest.
fn indented(fields: &str) -> String {
    fields.lines().map(|line| format!("      {line}\n")).collect()
}

#[test]
fn a_secondary_that_an_export_maps_wakes_its_primaries_of_before_and_now() {
    // IM-3, IM-4, IM-5
    let (place, elsewhere) = (Place::new("export-mapper"), Place::new("export-elsewhere"));
    let (here, there) = (place.namespace.name(), elsewhere.namespace.name());
    let manifest = manifest(&place, "mapper: { export: to-probes }");
    let daemon = place.daemon(&manifest.replace(&format!("[{here}]"), &format!("[{here}, {there}]")));
    elsewhere.probe("p", json!({ "reconcile": { "do": looking() } }));
    await_maps(&elsewhere, "p", &[]);
    for name in ["p", "q", "r"] {
        place.probe(name, json!({ "reconcile": { "do": looking() } }));
    }
    let of = |keys: &[&str]| json!({ "mappers": { "to-probes": { "keys": keys } } });
    create(&place, "one", map("", &of(&["p", "q"]), ""));
    create(&place, "none", map("", &json!({}), ""));
    await_maps(&place, "p", &["one"]);
    await_maps(&place, "q", &["one"]);
    daemon.await_quiet();
    let runs = |name: &str| place.find(&place.probes(), name).unwrap()["status"]["runs"].as_u64();
    let before = ["p", "q", "r"].map(runs);
    place.merge(&place.config_maps(), "one", &map("", &of(&["q", "r"]), ""));
    await_maps(&place, "p", &[]);
    await_maps(&place, "r", &["one"]);
    daemon.await_quiet();
    assert_eq!(["p", "q", "r"].map(runs), before.map(|runs| runs.map(|runs| runs + 1)), "one run each");
    // Those of other namespaces are not for it to wake.
    let before = elsewhere.find(&elsewhere.probes(), "p").unwrap()["status"].take();
    place.merge(&place.config_maps(), "one", &map("", &of(&[&format!("{there}/p")]), ""));
    await_maps(&place, "q", &[]);
    await_maps(&place, "r", &[]);
    daemon.await_quiet();
    assert_eq!(elsewhere.find(&elsewhere.probes(), "p").unwrap()["status"], before, "it has not run");
    place.merge(&place.config_maps(), "one", &map("", &of(&["p"]), ""));
    await_maps(&place, "p", &["one"]);
    // One of there is for the same export to say.
    create(&elsewhere, "two", map("", &of(&["p"]), ""));
    await_maps(&elsewhere, "p", &["two"]);
    // That it led into another namespace was told.
    daemon.await_line("acrossNamespaces");
    assert_eq!(daemon.count("capstan_callback_failures_total", ""), 1);
}

#[test]
fn a_primary_names_its_secondaries_by_an_export() {
    // IM-4, IM-6
    let place = Place::new("export-secondaries");
    let fields = "mapper: { export: to-probes }, secondaries: { export: to-maps }";
    let daemon = place.daemon(&manifest(&place, fields));
    for name in ["one", "two"] {
        create(&place, name, map("", &json!({ "mappers": { "to-probes": { "keys": ["p"] } } }), ""));
    }
    let spec = |keys: &[&str]| json!({ "reconcile": { "do": looking() }, "secondaryMappers": { "to-maps": { "keys": keys } } });
    place.probe("p", spec(&["one", "gone"]));
    await_maps(&place, "p", &["one"]);
    place.merge(&place.probes(), "p", &json!({ "spec": spec(&["two"]) }));
    await_maps(&place, "p", &["two"]);
    daemon.await_quiet();
    let runs = daemon.runs();
    place.merge(&place.config_maps(), "one", &json!({ "data": { "value": "changed" } }));
    daemon.await_runs(runs + 1);
    // What can't be known is an error of the run that reads it, by name.
    let fails = json!({ "do": { "fail": "no way" } });
    place.merge(&place.probes(), "p", &json!({ "spec": { "secondaryMappers": { "to-maps": fails } } }));
    daemon.await_line("its `secondaries` has no answer: no way");
    await_failures(&daemon, "mapper", 1);
}

#[test]
fn a_filter_or_mapper_that_traps_or_does_not_end_is_named_once_and_what_it_would_say_counts() {
    // IS-1, IM-3
    let place = Place::new("export-fails");
    let fields = "mapper: { export: to-probes }, filters: { generic: { export: visible } }";
    let daemon = place.daemon(&manifest(&place, fields));
    place.probe("p", json!({ "reconcile": { "do": looking() } }));
    let spec =
        |filter: Value, mapper: Value| json!({ "filters": { "visible": filter }, "mappers": { "to-probes": mapper } });
    let does = |step: &str| json!({ "do": step, "accepts": false });
    let to_p = json!({ "keys": ["p"] });
    for (name, step, why) in [("traps", "trap", "traps on purpose"), ("endless", "loop", "took longer than")] {
        create(&place, name, map("", &spec(does(step), to_p.clone()), ""));
        wait::until(LATER, "the filter to be named", || (lines(&daemon, PASSES, why) > 0).then_some(())).unwrap();
    }
    await_maps(&place, "p", &["endless", "traps"]);
    for value in ["1", "2", "3"] {
        let runs = daemon.runs();
        place.merge(&place.config_maps(), "traps", &json!({ "data": { "value": value } }));
        daemon.await_runs(runs + 1);
    }
    assert_eq!(lines(&daemon, PASSES, "traps on purpose"), 1, "once for a cause");

    // What was known of a map stays, whatever becomes of its mapper, until that has an answer again.
    let mut fails = to_p.clone();
    fails["do"] = json!({ "fail": "not now" });
    place.merge(&place.config_maps(), "traps", &map("", &spec(json!({ "accepts": true }), fails), ""));
    wait::until(LATER, "the mapper to be named", || (lines(&daemon, STAYS, "not now") > 0).then_some(())).unwrap();
    daemon.await_quiet();
    await_maps(&place, "p", &["endless", "traps"]);
    let before = daemon.count("capstan_callback_failures_total", "mapper");
    await_failures(&daemon, "mapper", before + 1);
    place.merge(&place.config_maps(), "traps", &map("", &spec(json!({ "accepts": true }), json!({})), ""));
    await_maps(&place, "p", &["endless"]);
}

#[test]
fn a_mapper_that_spins_delays_no_events_of_another_operator() {
    // IM-3
    let place = Place::new("export-spins");
    let folder = Folder::new();
    let spins = manifest(&place, "mapper: { export: to-probes }")
        .replace("timeout: 1s", "timeout: 5s")
        .replace("\n      sources:", "\n      labelSelector: spins\n      sources:");
    let other = manifest(&place, "mapper: { annotations: {} }")
        .replace("\n      sources:", "\n      labelSelector: other\n      sources:");
    folder.put("spins.yaml", spins);
    folder.put("other.yaml", place.renamed(&other, "other"));
    let daemon = folder.daemon(&place);
    place.labelled_probe("victim", "other", json!({ "reconcile": { "do": looking() } }));
    place.await_object(&place.probes(), "victim", "its first run", |probe| probe["status"]["runs"].is_u64());
    let endless = json!({ "mappers": { "to-probes": { "do": "loop" } } });
    for n in 0..20 {
        create(&place, &format!("endless-{n}"), map("nobody", &endless, ""));
    }
    await_failures(&daemon, "mapper", 1);
    create(&place, "map", map("victim", &json!({}), "0"));
    let mut longest = Duration::ZERO;
    for n in 1..=30 {
        let runs = daemon.count("capstan_reconciliations_started_total", "other");
        let begun = tokio::time::Instant::now();
        place.merge(&place.config_maps(), "map", &json!({ "data": { "value": n.to_string() } }));
        wait::until(SOON, "a run", || {
            (daemon.count("capstan_reconciliations_started_total", "other") > runs).then_some(())
        })
        .unwrap();
        longest = longest.max(begun.elapsed());
        daemon.await_quiet();
    }
    assert!(longest < Duration::from_secs(3), "{longest:?}, and the mapper has five seconds each time");
}

#[test]
fn a_component_without_the_exports_that_the_manifest_names_is_refused_by_their_names() {
    let place = Place::new("export-lacks");
    let fields = "mapper: { export: a }, secondaries: { export: b }, filters: { onDelete: { export: c } }";
    let folder = Folder::new();
    let manifest = manifest(&place, fields)
        .replace(&component("probe").display().to_string(), &component("webpage").display().to_string());
    folder.put("operator.yaml", manifest);
    let (code, out, told) = run(&["check", "-m", &folder.path("operator.yaml").display().to_string()]);
    assert_ne!(code, 0, "{out}{told}");
    let told = format!("{out}{told}");
    for expected in [
        "`mapper` (",
        "maps.informer.mapper.export",
        "`secondary-mapper` (",
        "informer.secondaries.export",
        "`filter` (",
        "informer.filters.onDelete.export",
    ] {
        assert!(told.contains(expected), "{expected} in {told}");
    }
}

//! What changes while the daemon runs: components, manifests, and bad input in their place.

use std::fs;

use cluster::{Query, wait};
use scenarios::{Daemon, Folder, LATER, Place, SOON, Start, component, replace, run};
use serde_json::{Value, json};

const PROBE: &str = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
/// A source of config maps, which say by an annotation whose they are.
const SOURCE: &str =
    "sources:\n  maps: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { annotations: {} } } }\n";
const OLD: &str = "nginx:1.29";
const NEW: &str = "nginx:1.30";

/// Returns the sample's component in a version whose deployments have this image.
fn webpage(image: &str) -> Vec<u8> {
    let bytes = fs::read(component("webpage")).unwrap();
    replace(&bytes, OLD.as_bytes(), image.as_bytes())
}

/// Returns the probe's component in a version that is another one by its bytes alone.
fn probe(version: u32) -> Vec<u8> {
    let bytes = fs::read(component("probe")).unwrap();
    let text = format!("traps on {version:07}");
    replace(&bytes, b"traps on purpose", text.as_bytes())
}

/// Returns a manifest with the component beside it.
fn beside(manifest: &str, plugin: &str) -> String {
    let path = component(plugin).display().to_string();
    manifest.replace(&path, &format!("{plugin}.wasm"))
}

/// Returns the sample's manifest, with the component beside it.
fn web_manifest(place: &Place) -> String {
    beside(&place.sample_manifest("webpage"), "webpage")
}

/// Returns a manifest of one controller over probes, with the component beside it.
fn probe_manifest(place: &Place, plugin_fields: &str, fields: &str) -> String {
    beside(&place.manifest("probe", PROBE, plugin_fields, fields), "probe")
}

/// Returns a folder with the probe's component and this manifest.
fn probe_folder(manifest: &str) -> Folder {
    let folder = Folder::new();
    folder.put("probe.wasm", probe(1));
    folder.put("operator.yaml", manifest);
    folder
}

/// Returns a folder with the sample's component and this manifest.
fn web_folder(manifest: &str) -> Folder {
    let folder = Folder::new();
    folder.put("webpage.wasm", webpage(OLD));
    folder.put("operator.yaml", manifest);
    folder
}

fn html(text: &str) -> Value {
    json!({ "spec": { "html": format!("<html>{text}</html>") } })
}

/// Creates a page, and waits until all is said and done about it.
fn settled_page(place: &Place, daemon: &Daemon) {
    let (kind, pages) = ("WebPage", place.pages());
    place.create("sample.capstan.dev/v1", kind, &pages, "page", html("1"));
    wait::until_ok(LATER, "the page to be served", || match place.find(&deployments(place), "page") {
        Some(deployment) if deployment["status"]["readyReplicas"] == 1 => Ok(()),
        found => Err(format!("{found:?}")),
    })
    .unwrap();
    daemon.await_quiet();
}

fn deployments(place: &Place) -> String {
    place.namespace.path("apps/v1", "deployments")
}

fn image(place: &Place) -> Value {
    let deployment = place.find(&deployments(place), "page").unwrap();
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].clone()
}

fn await_image(place: &Place, wanted: &str) {
    wait::until_ok(SOON, &format!("image {wanted}"), || match image(place) {
        found if found == wanted => Ok(()),
        found => Err(found),
    })
    .unwrap();
}

/// Waits until a probe's status is as `wanted` says.
fn await_status(place: &Place, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let probe = place.await_object(&place.probes(), name, what, |p| wanted(&p["status"]));
    probe["status"].clone()
}

/// Changes a probe, and waits until that has been reconciled.
fn proves_work(place: &Place, name: &str, change: &str) {
    let changed = place.merge(&place.probes(), name, &json!({ "spec": { "anything": change } }));
    let generation = &changed["metadata"]["generation"];
    await_status(place, name, &format!("{change} to be reconciled"), |s| s["observedGeneration"] == *generation);
}

/// A probe that writes its status in each run, with these sights.
fn seeing(sights: Value) -> Value {
    json!({ "reconcile": { "do": sights, "status": {} } })
}

/// Counts the runs for the life of the primary.
fn counting() -> Value {
    seeing(json!([{ "memo": { "lifetime": "primary", "count": "runs" }, "as": "runs" }]))
}

fn runs_of(daemon: &Daemon, controller: &str) -> u64 {
    let label = format!("controller=\"{controller}\"");
    daemon.count("capstan_reconciliations_started_total", &label)
}

// === components ===

/// Asserts that a component that is changed in this way takes over, and nothing else changes.
fn takes_over(prefix: &str, lay: impl Fn(&Folder, &str), change: impl Fn(&Folder, &Daemon, &str)) {
    let place = Place::new(prefix);
    let (folder, manifest) = (Folder::new(), web_manifest(&place));
    lay(&folder, &manifest);
    let daemon = folder.daemon(&place);
    settled_page(&place, &daemon);
    assert_eq!(image(&place), OLD);
    let first = daemon.await_plugin("webpage", "active", 1);
    let audit = place.cluster.audit().unwrap();
    let mark = audit.mark().unwrap();
    change(&folder, &daemon, &manifest);
    let second = daemon.await_plugin("webpage", "active", 2);
    await_image(&place, NEW);
    let line = daemon.await_line("the plugin is swapped");
    assert!(line.contains("webpage/webpage"), "{line}");
    assert_eq!((&first["refused"], &second["refused"], &second["problem"]), (&json!(0), &json!(0), &Value::Null));
    assert_eq!(daemon.count("capstan_plugin_versions_placed_total", ""), 2);
    // The caches stay.
    let query = Query::since(mark).user_agent("capstan/").namespace(place.namespace.name()).verbs(["list", "watch"]);
    assert_eq!(audit.requests(&query).unwrap(), []);
    // It is still the same process, and has not begun again.
    let begun = |line: &Value| line["message"] == "controller started";
    assert_eq!(daemon.lines().iter().filter(|line| begun(line)).count(), 1);
    assert!(daemon.stop().success());
}

fn lay_files(folder: &Folder, manifest: &str) {
    folder.put("webpage.wasm", webpage(OLD));
    folder.put("operator.yaml", manifest);
}

#[test]
fn a_component_that_is_renamed_over_takes_over() {
    takes_over("renamed", lay_files, |folder, _, _| {
        folder.put("webpage.wasm", webpage(NEW));
    });
}

#[test]
fn a_component_that_is_written_slowly_takes_over_once_it_is_whole() {
    takes_over("slowly", lay_files, |folder, daemon, _| {
        let half = folder.begin("webpage.wasm", webpage(NEW));
        // Far longer than a change needs to settle.
        for _ in 0..3 {
            daemon.await_quiet();
        }
        let now = daemon.plugin("webpage").unwrap();
        assert_eq!((&now["state"], &now["version"], &now["refused"]), (&json!("active"), &json!(1), &json!(0)));
        half.finish();
    });
}

#[test]
fn a_component_in_a_config_map_takes_over() {
    takes_over(
        "flipped",
        |folder, manifest| {
            let old = webpage(OLD);
            let files = [("webpage.wasm", &old[..]), ("operator.yaml", manifest.as_bytes())];
            folder.flip("1", &files);
        },
        |folder, _, manifest| {
            let new = webpage(NEW);
            let files = [("webpage.wasm", &new[..]), ("operator.yaml", manifest.as_bytes())];
            folder.flip("2", &files);
        },
    );
}

#[test]
fn a_component_that_is_replaced_by_itself_is_no_new_version() {
    let place = Place::new("itself");
    let folder = web_folder(&web_manifest(&place));
    let daemon = folder.daemon(&place);
    settled_page(&place, &daemon);
    let runs = daemon.runs();
    folder.put("webpage.wasm", webpage(OLD));
    // What comes after it shows that it has been seen.
    folder.put("other.yaml", "nonsense");
    daemon.await_bad_manifests(1);
    daemon.await_plugin("webpage", "active", 1);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs);
}

#[test]
fn with_on_swap_nothing_the_next_event_runs_the_new_version() {
    let place = Place::new("onswap");
    let manifest = web_manifest(&place)
        .replace("component: { path: webpage.wasm }\n", "component: { path: webpage.wasm }\n      onSwap: nothing\n");
    assert!(manifest.contains("onSwap"));
    let folder = web_folder(&manifest);
    let daemon = folder.daemon(&place);
    settled_page(&place, &daemon);
    let runs = daemon.runs();
    folder.put("webpage.wasm", webpage(NEW));
    daemon.await_plugin("webpage", "active", 2);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs);
    assert_eq!(image(&place), OLD);
    place.merge(&place.pages(), "page", &html("2"));
    await_image(&place, NEW);
}

#[test]
fn a_run_under_way_ends_on_the_old_version_and_the_next_begins_on_the_new_one() {
    let place = Place::new("underway");
    let config = |word: &str| probe_manifest(&place, &format!("config: {{ word: {word} }}"), "");
    let folder = probe_folder(&config("old"));
    let daemon = folder.daemon(&place);
    place.probe("p", json!({}));
    daemon.await_quiet();
    let runs = daemon.runs();
    place.merge(&place.probes(), "p", &json!({ "spec": seeing(json!([{ "busyMs": 4000 }, { "see": ["config"] }])) }));
    daemon.await_runs(runs + 1);
    folder.put("operator.yaml", config("new"));
    daemon.await_plugin("probe", "active", 2);
    assert_eq!((daemon.active(), daemon.runs()), (1, runs + 1), "the old run is under way, and no other one beside it");
    await_status(&place, "p", "the old run's end", |s| s["config"]["word"] == "old");
    await_status(&place, "p", "the new run's end", |s| s["config"]["word"] == "new");
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs + 2);
}

// === settings ===

#[test]
fn changed_config_is_in_force_without_an_event() {
    let place = Place::new("config");
    let manifest = |word: &str| probe_manifest(&place, &format!("config: {{ word: {word} }}"), "");
    let folder = probe_folder(&manifest("old"));
    let daemon = folder.daemon(&place);
    place.probe("p", seeing(json!([{ "see": ["config"] }])));
    for (version, word) in (1..).zip(["old", "new", "newer"]) {
        folder.put("operator.yaml", manifest(word));
        daemon.await_plugin("probe", "active", version);
        await_status(&place, "p", word, |s| s["config"]["word"] == word);
    }
}

#[test]
fn changed_limits_are_in_force_without_an_event() {
    let place = Place::new("limits");
    let retry = "retry: { maxAttempts: 1, initialInterval: 10ms }";
    let manifest = |time: &str| probe_manifest(&place, &format!("limits: {{ timeout: {time} }}"), retry);
    let folder = probe_folder(&manifest("300ms"));
    let daemon = folder.daemon(&place);
    place.probe("p", seeing(json!([{ "busyMs": 1000 }])));
    daemon.await_line("no retries left");
    daemon.await_quiet();
    assert_eq!(place.find(&place.probes(), "p").unwrap()["status"], Value::Null);
    folder.put("operator.yaml", manifest("10s"));
    await_status(&place, "p", "a run in time", |s| s["observedGeneration"] == 1);
}

#[test]
fn changed_permissions_are_in_force_without_an_event() {
    let place = Place::new("permit");
    let manifest = |verbs: &str| {
        let grant = format!("capabilities:\n  kubernetes: [{{ apiVersion: v1, kind: ConfigMap, verbs: [{verbs}] }}]\n");
        probe_manifest(&place, &grant, SOURCE)
    };
    let folder = probe_folder(&manifest("get"));
    let _daemon = folder.daemon(&place);
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "cm", "namespace": place.namespace.name() } });
    let apply = json!([{ "write": { "verb": "apply", "object": map }, "mayFail": true }]);
    place.probe("p", seeing(apply));
    await_status(&place, "p", "a refusal", |s| s["refused"]["refused"] == "denied");
    folder.put("operator.yaml", manifest("get, apply"));
    await_status(&place, "p", "the write", |s| s["write"] == "cm");
    folder.put("operator.yaml", manifest("get"));
    await_status(&place, "p", "a refusal again", |s| s["refused"]["refused"] == "denied");
}

#[test]
fn changed_concurrency_counts_while_runs_are_under_way() {
    let place = Place::new("bounds");
    let manifest = |count: u32| probe_manifest(&place, "", &format!("concurrency: {count}"));
    let folder = probe_folder(&manifest(1));
    let daemon = folder.daemon(&place);
    for name in ["a", "b"] {
        place.probe(name, json!({}));
    }
    daemon.await_quiet();
    let runs = daemon.runs();
    for name in ["a", "b"] {
        let busy = seeing(json!([{ "busyMs": 4000 }]));
        place.merge(&place.probes(), name, &json!({ "spec": busy }));
    }
    daemon.await_runs(runs + 1);
    folder.put("operator.yaml", manifest(2));
    daemon.await_plugin("probe", "active", 2);
    wait::until(SOON, "both runs at once", || (daemon.active() == 2).then_some(())).unwrap();
    assert_eq!(daemon.runs(), runs + 2);
}

#[test]
fn retries_are_counted_anew_after_a_swap() {
    // RT-3
    let place = Place::new("retries");
    let retry = "retry: { initialInterval: 200ms, multiplier: 1, maxAttempts: 1000 }";
    let config = |word: &str| probe_manifest(&place, &format!("config: {{ word: {word} }}"), retry);
    let folder = probe_folder(&config("old"));
    let daemon = folder.daemon(&place);
    place.probe("p", json!({ "reconcile": { "do": [{ "fail": "on purpose" }] } }));
    let attempts = || -> Vec<u64> {
        let lines = daemon.lines().into_iter();
        let failed = lines.filter(|line| line["message"] == "the run failed");
        // One that the swap's event has met uses up no attempt.
        let counted = failed.filter(|line| {
            let next = line["next"].as_str().unwrap();
            !next.starts_with("again at once")
        });
        counted.map(|line| line["attempt"].as_u64().unwrap()).collect()
    };
    // Each version fails for the first time, and then goes on counting.
    let counted = |versions: usize| {
        wait::until_ok(SOON, &format!("attempts of {versions} versions"), || {
            let attempts = attempts();
            let firsts: Vec<_> = attempts.iter().enumerate().filter(|(_, attempt)| **attempt == 1).collect();
            match firsts.last() {
                Some((at, _)) if firsts.len() == versions && attempts.len() >= at + 4 => Ok(()),
                _ => Err(format!("{attempts:?}")),
            }
        })
        .unwrap();
    };
    counted(1);
    folder.put("operator.yaml", config("new"));
    daemon.await_plugin("probe", "active", 2);
    counted(2);
    folder.put("probe.wasm", probe(2));
    daemon.await_plugin("probe", "active", 3);
    counted(3);
    let attempts = attempts();
    let goes_on = |pair: &[u64]| pair[1] == pair[0] + 1 || pair[1] == 1;
    assert!(attempts.windows(2).all(goes_on), "{attempts:?}");
}

#[test]
fn timers_stay_over_a_swap() {
    let place = Place::new("timers");
    let name = place.namespace.name();
    let manifest = probe_manifest(&place, "onSwap: nothing", "");
    let folder = probe_folder(&manifest);
    let daemon = folder.daemon(&place);
    place.probe("p", json!({ "reconcile": { "reschedule": 60_000 } }));
    let due = || daemon.controller(name).unwrap()["states"][0]["dueInMs"].as_u64();
    // Before its first run it is due at once.
    let timer = || due().filter(|due| (30_000..60_000).contains(due));
    let before = wait::until(SOON, "the timer", timer).unwrap();
    daemon.await_quiet();
    let runs = daemon.runs();
    folder.put("probe.wasm", probe(2));
    daemon.await_plugin("probe", "active", 2);
    let after = due().unwrap();
    assert!(after < before, "{after} {before}");
    assert_eq!(daemon.runs(), runs);
}

// === capstan plugins ===

#[test]
fn a_running_daemon_can_be_asked_how_its_plugins_are() {
    let place = Place::new("asked");
    let folder = web_folder(&web_manifest(&place));
    let daemon = folder.daemon(&place);
    let ask = |output| run(&["plugins", "--address", daemon.address(), "-o", output]);
    let (code, table, _) = ask("table");
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((code, lines.len()), (0, 2), "{table}");
    assert_eq!(lines[0][..5], ["OPERATOR", "NAME", "STATE", "VERSION", "DIGEST"]);
    assert_eq!(lines[1][..4], ["webpage", "webpage", "active", "1"]);
    folder.put("webpage.wasm", b"no component");
    daemon.await_plugin("webpage", "outdated", 1);
    let (code, json, _) = ask("json");
    assert_eq!(code, 1, "what is wanted is not in force");
    let said: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(said["plugins"][0]["problem"]["step"], "verify");
    let (code, table, _) = ask("table");
    assert_eq!(code, 1);
    assert!(table.contains("it is not WebAssembly"), "{table}");
}

#[test]
fn a_running_daemon_says_why_primaries_fail_until_they_end_well_or_are_gone() {
    let place = Place::new("why");
    let retry = "retry: { initialInterval: 100ms, maxAttempts: 1 }\n";
    let daemon = place.daemon(&place.probe_manifest(retry));
    let shown = || daemon.controller(place.namespace.name());
    let fails = || json!({ "reconcile": { "do": [{ "fail": "the disk\nis full" }] } });
    place.probe("p", fails());
    let error = wait::until(SOON, "the last error", || {
        let error = shown()?["states"][0]["lastError"].clone();
        (error["attempt"] == 1).then_some(error)
    })
    .unwrap();
    assert_eq!(error["class"], "returned", "{error}");
    assert!(error["message"].as_str().unwrap().ends_with(r"the disk\nis full") && error["time"].is_string(), "{error}");
    let (code, table, _) = run(&["plugins", "--address", daemon.address()]);
    assert_eq!(code, 0, "{table}");
    let key = format!("{}/p at ", place.namespace.name());
    for words in ["1 of 1 primaries fail; last", &key, "returned, after 1 retries", r"the disk\nis full"] {
        assert!(table.contains(words), "{words} is not in {table}");
    }
    let forgotten = || {
        let shown = shown()?;
        (shown["failing"] == 0 && shown["lastError"].is_null()).then_some(())
    };
    place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "do": null } } }));
    wait::until(SOON, "what is put right to be forgotten", forgotten).unwrap();
    place.probe("goes", fails());
    wait::until(SOON, "another to fail", || (shown()?["failing"] == 1).then_some(())).unwrap();
    place.delete(&place.probes(), "goes");
    wait::until(SOON, "what is gone to be forgotten", forgotten).unwrap();
}

#[test]
fn asking_where_no_daemon_is_says_so() {
    // Bound for a moment, so that nobody else is there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let (code, _, said) = run(&["plugins", "--address", &address]);
    assert_eq!(code, 1);
    assert!(said.contains(&format!("ask the daemon at {address}")), "{said}");
}

// === operators that come and go ===

#[test]
fn an_operator_that_comes_starts_and_one_that_goes_stops_and_others_are_not_touched() {
    let (stays, comes) = (Place::new("stays"), Place::new("comes"));
    let folder = probe_folder(&probe_manifest(&stays, "", ""));
    let daemon = folder.daemon(&stays);
    stays.probe("p", seeing(json!([])));
    await_status(&stays, "p", "its status", |s| s["observedGeneration"] == 1);
    daemon.await_quiet();
    let name = stays.namespace.name();
    let untouched = runs_of(&daemon, name);
    comes.probe("p", counting());
    for round in ["first", "second"] {
        folder.put("second.yaml", probe_manifest(&comes, "", ""));
        await_status(&comes, "p", "its status", |s| s["runs"] == 1);
        proves_work(&comes, "p", round);
        assert!(!daemon.informers(comes.namespace.name()).is_empty());
        daemon.await_quiet();
        folder.remove("second.yaml");
        wait::until_ok(SOON, "the end of its watches", || match daemon.informers(comes.namespace.name()) {
            informers if informers.is_empty() => Ok(()),
            informers => Err(json!(informers)),
        })
        .unwrap();
        assert_eq!(daemon.controller(comes.namespace.name()), None);
        let operators = |report: &Value| -> Vec<String> {
            let rows = report["plugins"].as_array().unwrap().iter();
            rows.map(|row| row["operator"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(operators(&daemon.plugins()), [name]);
        let last = comes.merge(&comes.probes(), "p", &json!({ "spec": { "anything": "unseen" }, "status": {} }));
        // Some other event, which comes later, is reconciled.
        proves_work(&stays, "p", round);
        daemon.await_quiet();
        let now = comes.find(&comes.probes(), "p").unwrap();
        assert_eq!(now["status"], last["status"]);
        comes.delete(&comes.probes(), "p");
        comes.merge(&comes.probes(), "p", &json!({ "metadata": { "finalizers": null } }));
        comes.await_gone(&comes.probes(), "p");
        comes.probe("p", counting());
        assert_eq!(daemon.get("/readyz").0, 200);
    }
    // One run for each change of its own.
    assert_eq!(runs_of(&daemon, name), untouched + 2);
    let row = daemon.plugin("probe").unwrap();
    assert_eq!(row["version"], 1);
}

#[test]
fn a_manifest_that_is_renamed_is_the_same_operator() {
    let place = Place::new("mv");
    let folder = probe_folder(&probe_manifest(&place, "", ""));
    let daemon = folder.daemon(&place);
    place.probe("p", seeing(json!([])));
    await_status(&place, "p", "its status", |s| s["observedGeneration"] == 1);
    daemon.await_quiet();
    let runs = daemon.runs();
    fs::rename(folder.path("operator.yaml"), folder.path("renamed.yaml")).unwrap();
    // What comes after it shows that it has been seen.
    folder.put("other.yaml", "nonsense");
    daemon.await_bad_manifests(1);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs);
    let begun = |line: &Value| line["message"] == "controller started";
    assert_eq!(daemon.lines().iter().filter(|line| begun(line)).count(), 1);
}

// === other things to watch ===

#[test]
fn a_changed_selector_watches_anew_and_keeps_memos_of_primaries_that_stay() {
    // IN-3, PO-1
    let place = Place::new("selector");
    let manifest = |selector: &str| probe_manifest(&place, "", &format!("labelSelector: \"{selector}\""));
    let folder = probe_folder(&manifest("team = a"));
    let daemon = folder.daemon(&place);
    for team in ["a", "b"] {
        let fields = json!({ "metadata": { "labels": { "team": team } }, "spec": counting() });
        place.create("test.capstan.dev/v1", "Probe", &place.probes(), team, fields);
    }
    await_status(&place, "a", "a run", |s| s["runs"] == 1);
    folder.put("operator.yaml", manifest("team in (a, b)"));
    await_status(&place, "b", "its first run", |s| s["runs"] == 1);
    await_status(&place, "a", "one more run", |s| s["runs"] == 2);
    daemon.await_quiet();
    folder.put("operator.yaml", manifest("team = b"));
    await_status(&place, "b", "one more run", |s| s["runs"] == 2);
    daemon.await_quiet();
    place.merge(&place.probes(), "a", &json!({ "spec": { "anything": 1 } }));
    proves_work(&place, "b", "something later");
    daemon.await_quiet();
    let status = |name: &str| place.find(&place.probes(), name).unwrap()["status"].clone();
    assert_eq!(status("a")["runs"], 2, "it is no primary any more");
    assert_eq!(status("b")["runs"], 3);
    folder.put("operator.yaml", manifest("team = a"));
    await_status(&place, "a", "a new life", |s| s["runs"] == 1 && s["observedGeneration"] == 2);
    assert_eq!(daemon.informers(place.namespace.name()).len(), 1);
}

#[test]
fn changed_namespaces_are_watched_and_left() {
    // IN-1, NS-2, NS-3
    let (one, two) = (Place::new("one"), Place::new("two"));
    let alone = probe_manifest(&one, "", "");
    let namespaces = |names: &str| {
        let before = format!("namespaces: [{}]", one.namespace.name());
        let after = alone.replace(&before, &format!("namespaces: [{names}]"));
        assert!(after.contains(names));
        after
    };
    let folder = probe_folder(&alone);
    let daemon = folder.daemon(&one);
    for place in [&one, &two] {
        place.probe("p", counting());
    }
    await_status(&one, "p", "a run", |s| s["runs"] == 1);
    let (first, second) = (one.namespace.name(), two.namespace.name());
    // A run that is under way is not waited for.
    one.probe("slow", seeing(json!([{ "busyMs": 4000 }])));
    wait::until(SOON, "the slow run", || (daemon.active() == 1).then_some(())).unwrap();
    folder.put("operator.yaml", namespaces(&format!("{first}, {second}")));
    await_status(&two, "p", "its first run", |s| s["runs"] == 1);
    // The other has written its status, and may not have ended yet.
    wait::until(SOON, "the slow run to go on alone", || (daemon.active() == 1).then_some(())).unwrap();
    daemon.await_quiet();
    let status = one.find(&one.probes(), "p").unwrap()["status"].clone();
    assert_eq!(status["runs"], 1, "nothing has changed for it");
    folder.put("operator.yaml", namespaces(second));
    wait::until_ok(SOON, "the first to be left", || match daemon.informers(first) {
        informers if informers.is_empty() => Ok(()),
        informers => Err(json!(informers)),
    })
    .unwrap();
    proves_work(&two, "p", "something");
    let controller = daemon.controller(first).unwrap();
    assert_eq!((&controller["phase"], &controller["keys"]), (&json!("running"), &json!(1)));
    // Nobody cleans up there.
    one.delete(&one.probes(), "p");
    proves_work(&two, "p", "something later");
    daemon.await_quiet();
    let left = one.find(&one.probes(), "p").unwrap();
    assert_eq!(left["metadata"]["finalizers"], json!(["probes.test.capstan.dev/finalizer"]));
}

#[test]
fn a_finalizer_that_would_be_left_behind_is_refused_until_the_manifest_says_what_becomes_of_it() {
    let place = Place::new("formerly");
    let manifest = |more: &str| probe_manifest(&place, "", &format!("serverSideApply: false\n{more}"));
    let folder = probe_folder(&manifest("finalizer: a.dev/old"));
    let daemon = folder.daemon(&place);
    for name in ["live", "going"] {
        place.probe(name, json!({ "reconcile": { "status": {} }, "cleanup": { "keep": true } }));
        await_status(&place, name, "a run", |s| s["observedGeneration"] == 1);
    }
    place.delete(&place.probes(), "going");
    daemon.await_quiet();
    folder.put("operator.yaml", manifest("finalizer: a.dev/new"));
    let row = daemon.await_plugin("probe", "outdated", 1);
    let problem = row["problem"].to_string();
    for words in ["2 primaries carry the finalizer a.dev/old", "formerly: [a.dev/old]"] {
        assert!(problem.contains(words), "{problem}");
    }
    folder.put("operator.yaml", manifest("finalizer: a.dev/new\nfinalizers: { formerly: [a.dev/old] }"));
    place.await_object(&place.probes(), "live", "its new finalizer", |p| {
        p["metadata"]["finalizers"] == json!(["a.dev/new"])
    });
    let let_go = json!({ "spec": { "cleanup": { "keep": false } } });
    place.merge(&place.probes(), "going", &let_go);
    place.await_gone(&place.probes(), "going");
    wait::until_ok(SOON, "the last one to be seen gone", || {
        let controller = daemon.controller(place.namespace.name()).unwrap();
        let left = &controller["formerFinalizers"];
        if *left == json!({ "a.dev/old": 0 }) { Ok(()) } else { Err(left.clone()) }
    })
    .unwrap();
}

#[test]
fn what_was_made_for_a_dependent_that_the_manifest_has_no_more_stays_and_is_told_of() {
    let place = Place::new("abandoned");
    let workflow = "workflow:\n  dependents:\n    cm: { apiVersion: v1, kind: ConfigMap }\n";
    let folder = probe_folder(&probe_manifest(&place, "", workflow));
    let daemon = folder.daemon(&place);
    let desired = json!({ "cm": { "metadata": { "name": "p" }, "data": { "a": "b" } } });
    place.probe("p", json!({ "reconcile": { "status": { "n": 1 } }, "dependents": desired }));
    place.await_object(&place.config_maps(), "p", "the dependent", |_| true);
    folder.put("operator.yaml", probe_manifest(&place, "", ""));
    let told = daemon.await_line("does not have these dependents any more");
    assert!(told.contains("\"dependents\":\"cm\""), "{told}");
    place.merge(&place.probes(), "p", &json!({ "spec": { "reconcile": { "status": { "n": 2 } } } }));
    await_status(&place, "p", "a run of the new version", |status| status["n"] == 2);
    assert!(place.find(&place.config_maps(), "p").is_some());
}

#[test]
fn a_new_source_runs_nobody_where_nothing_follows_a_swap() {
    let place = Place::new("follows");
    let manifest = |source: &str| probe_manifest(&place, "onSwap: nothing\n", source);
    let folder = probe_folder(&manifest(""));
    let daemon = folder.daemon(&place);
    place.probe("p", counting());
    await_status(&place, "p", "a run", |s| s["runs"] == 1);
    daemon.await_quiet();
    let runs = daemon.runs();
    let source = "sources:\n  maps: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { annotations: {} } } }\n";
    folder.put("operator.yaml", manifest(source));
    wait::until(SOON, "the new watch", || (daemon.informers(place.namespace.name()).len() == 2).then_some(())).unwrap();
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs);
    proves_work(&place, "p", "something");
}

#[test]
fn a_new_source_is_watched() {
    let place = Place::new("source");
    let folder = probe_folder(&probe_manifest(&place, "", ""));
    let daemon = folder.daemon(&place);
    place.probe("p", counting());
    await_status(&place, "p", "a run", |s| s["runs"] == 1);
    daemon.await_quiet();
    let source = "sources:\n  maps: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { annotations: {} } } }\n";
    folder.put("operator.yaml", probe_manifest(&place, "", source));
    wait::until(SOON, "the new watch", || (daemon.informers(place.namespace.name()).len() == 2).then_some(())).unwrap();
    let taken = || await_status(&place, "p", "a run more", |s| s["runs"].as_u64() > Some(1));
    taken();
    daemon.await_quiet();
    let runs = taken()["runs"].as_u64().unwrap();
    let annotations = json!({ "capstan.dev/primary-name": "p" });
    let fields = json!({ "metadata": { "annotations": annotations } });
    place.create("v1", "ConfigMap", &place.config_maps(), "cm", fields);
    await_status(&place, "p", "the map's run", |s| s["runs"] == runs + 1);
}

/// A kind of a test's own. Dropping it deletes it.
struct Things<'a> {
    place: &'a Place,
    /// Where its definition is.
    path: String,
}

impl<'a> Things<'a> {
    const DEFINITIONS: &'static str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

    fn group(place: &Place) -> String {
        format!("{}.test.capstan.dev", place.namespace.name())
    }

    fn new(place: &'a Place) -> Self {
        let group = Self::group(place);
        let name = format!("things.{group}");
        let version = json!({
            "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
            "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
        });
        let definition = json!({
            "metadata": { "name": name },
            "spec": { "group": group, "names": { "kind": "Thing", "plural": "things" }, "scope": "Namespaced", "versions": [version] },
        });
        let api = place.cluster.api();
        api.create(Self::DEFINITIONS, &definition).unwrap();
        Self { place, path: format!("{}/{name}", Self::DEFINITIONS) }
    }
}

impl Drop for Things<'_> {
    fn drop(&mut self) {
        drop(self.place.cluster.api().delete(&self.path));
    }
}

#[test]
fn of_another_kind_of_primaries_nothing_is_remembered() {
    let place = Place::new("kind");
    let (group, _things) = (Things::group(&place), Things::new(&place));
    let manifest = probe_manifest(&place, "", "");
    let folder = probe_folder(&manifest);
    let _daemon = folder.daemon(&place);
    let paths = [place.probes(), place.namespace.path(&format!("{group}/v1"), "things")];
    let memo = |deed: Value| seeing(json!([{ "memo": deed, "as": "memo" }]));
    let get = memo(json!({ "lifetime": "primary", "get": "who" }));
    let thing =
        json!({ "apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": { "name": "p" }, "spec": get });
    wait::until_ok(SOON, "the kind to be served", || place.cluster.api().create(&paths[1], &thing)).unwrap();
    place.probe("p", memo(json!({ "lifetime": "primary", "put": "who", "value": "a probe" })));
    await_status(&place, "p", "a run", |s| s["memo"] == "a probe");
    let other = format!("{{ apiVersion: {group}/v1, kind: Thing }}");
    folder.put("operator.yaml", manifest.replace(PROBE, &other));
    let thing = wait::until(LATER, "the thing to be reconciled", || {
        place.find(&paths[1], "p").filter(|thing| thing["status"]["observedGeneration"] == 1)
    })
    .unwrap();
    assert_eq!(thing["status"]["memo"], Value::Null, "{thing}");
}

#[test]
fn a_kind_that_is_not_installed_yet_is_waited_for_while_all_goes_on() {
    let place = Place::new("later");
    let group = Things::group(&place);
    let manifest = |word: &str, source: &str| probe_manifest(&place, &format!("config: {{ word: {word} }}"), source);
    let source = format!(
        "sources:\n  things: {{ informer: {{ apiVersion: {group}/v1, kind: Thing, mapper: {{ annotations: {{}} }} }} }}\n"
    );
    let folder = probe_folder(&manifest("old", ""));
    let daemon = folder.daemon(&place);
    place.probe("p", seeing(json!([{ "see": ["config"] }])));
    await_status(&place, "p", "a run", |s| s["config"]["word"] == "old");
    folder.put("operator.yaml", manifest("new", &source));
    let line = daemon.await_line("waiting for a kind");
    assert!(line.contains(&format!("{group}/v1 Thing")), "{line}");
    proves_work(&place, "p", "something");
    let controller = daemon.controller(place.namespace.name()).unwrap();
    assert_eq!(controller["phase"], "changing");
    let why = controller["why"].as_str().unwrap();
    assert!(why.contains("Thing"), "{why}");
    let status = place.find(&place.probes(), "p").unwrap()["status"].clone();
    assert_eq!(status["config"]["word"], "old", "all of it changes at once");
    assert_eq!(daemon.get("/readyz").0, 200);
    let things = Things::new(&place);
    wait::until_ok(LATER, "the new settings", || match place.find(&place.probes(), "p") {
        Some(probe) if probe["status"]["config"]["word"] == "new" => Ok(()),
        found => Err(format!("{found:?}")),
    })
    .unwrap();
    let controller = daemon.controller(place.namespace.name()).unwrap();
    assert_eq!(controller["phase"], "running");
    drop(things);
}

#[test]
fn a_change_that_waits_for_a_kind_can_be_taken_back() {
    let place = Place::new("back");
    let folder = probe_folder(&probe_manifest(&place, "", ""));
    let daemon = folder.daemon(&place);
    place.probe("p", seeing(json!([{ "see": ["config"] }])));
    await_status(&place, "p", "a run", |s| s["observedGeneration"] == 1);
    let source = "sources:\n  things: { informer: { apiVersion: nowhere.dev/v1, kind: Nothing, mapper: { annotations: {} } } }\n";
    folder.put("operator.yaml", probe_manifest(&place, "", source));
    daemon.await_line("waiting for a kind");
    folder.put("operator.yaml", probe_manifest(&place, "config: { word: new }", ""));
    await_status(&place, "p", "the new settings", |s| s["config"]["word"] == "new");
    wait::until_ok(SOON, "it to run as usual", || match daemon.controller(place.namespace.name()).unwrap() {
        controller if controller["phase"] == "running" => Ok(()),
        controller => Err(controller),
    })
    .unwrap();
}

#[test]
fn a_change_that_is_taken_back_costs_nothing() {
    let place = Place::new("nothing");
    let manifest = probe_manifest(&place, "", "");
    let folder = probe_folder(&manifest);
    let daemon = folder.daemon(&place);
    place.probe("p", counting());
    await_status(&place, "p", "a run", |s| s["runs"] == 1);
    daemon.await_quiet();
    let audit = place.cluster.audit().unwrap();
    let (mark, runs) = (audit.mark().unwrap(), daemon.runs());
    let source = "sources:\n  things: { informer: { apiVersion: nowhere.dev/v1, kind: Nothing, mapper: { annotations: {} } } }\n";
    folder.put("operator.yaml", probe_manifest(&place, "", source));
    daemon.await_line("waiting for a kind");
    folder.put("operator.yaml", manifest);
    wait::until_ok(SOON, "it to run as usual", || match daemon.controller(place.namespace.name()).unwrap() {
        controller if controller["phase"] == "running" => Ok(()),
        controller => Err(controller),
    })
    .unwrap();
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs);
    let query = Query::since(mark).user_agent("capstan/").namespace(place.namespace.name());
    assert_eq!(audit.requests(&query).unwrap(), []);
    let begun = |line: &Value| line["message"] == "controller started";
    assert_eq!(daemon.lines().iter().filter(|line| begun(line)).count(), 1);
}

// === bad input ===

/// A workflow whose condition the component has to export.
const CONDITION: &str = "workflow:\n  dependents:\n    cm: { apiVersion: v1, kind: ConfigMap, reconcilePrecondition: { export: exposed } }\n";

#[test]
fn a_bad_component_leaves_the_last_good_version_at_work_until_a_good_one_comes() {
    let place = Place::new("badwasm");
    let folder = probe_folder(&probe_manifest(&place, "", CONDITION));
    let daemon = folder.daemon(&place);
    let desired = json!({ "cm": { "metadata": { "name": "cm" } } });
    place
        .probe("p", json!({ "reconcile": { "status": {} }, "dependents": desired, "conditions": { "exposed": true } }));
    await_status(&place, "p", "a run", |s| s["observedGeneration"] == 1);
    let whole = probe(1);
    let cases: [(Option<Vec<u8>>, &[&str]); 7] = [
        (Some(whole[..whole.len() / 2].to_vec()), &["is cut off"]),
        (Some(b"hello".to_vec()), &["is not WebAssembly"]),
        (Some(b"\0asm\x01\0\0\0".to_vec()), &["is a core module, not a component"]),
        (
            Some(replace(&whole, b"@0.1.0", b"@0.2.0")),
            &["was built for capstan:operator 0.2.0, this daemon offers 0.1.0"],
        ),
        (Some(webpage(OLD)), &["lacks exports that the manifest needs", "`condition`"]),
        (
            Some(replace(&whole, b"capstan:operator/recorder@", b"capstan:operator/telegram@")),
            &["imports what this daemon does not offer", "telegram"],
        ),
        (None, &["No such file"]),
    ];
    let metric = |name: &str| daemon.count(&format!("capstan_plugin_{name}"), "");
    for ((content, texts), (refused, version)) in cases.into_iter().zip((1..).zip(1..)) {
        match content {
            Some(content) => folder.put("probe.wasm", content),
            None => folder.remove("probe.wasm"),
        }
        let row = daemon.await_plugin("probe", "outdated", version);
        let message = row["problem"]["message"].as_str().unwrap();
        for text in texts.iter().chain(&["probe.wasm"]) {
            assert!(message.contains(text), "{text:?} is not in: {message}");
        }
        assert_ne!(row["problem"]["step"], "");
        assert_eq!(row["refused"], refused);
        assert_eq!(metric("versions_refused_total"), u64::from(refused));
        assert_eq!(metric("in_force"), 0);
        let lines = daemon.lines();
        let told: Vec<&Value> =
            lines.iter().filter(|line| line["level"] == "ERROR" && line.to_string().contains(texts[0])).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].to_string().contains("the last good one goes on"), "{told:?}");
        proves_work(&place, "p", &format!("beside bad version {refused}"));
        assert_eq!(daemon.get("/readyz").0, 200);
        folder.put("probe.wasm", probe(refused + 1));
        let row = daemon.await_plugin("probe", "active", version + 1);
        assert_eq!(row["problem"], Value::Null);
        assert_eq!(metric("in_force"), 1);
        proves_work(&place, "p", &format!("after bad version {refused}"));
    }
}

#[test]
fn a_bad_component_is_mended_by_the_one_that_is_in_force() {
    let place = Place::new("mended");
    let folder = probe_folder(&probe_manifest(&place, "", ""));
    let daemon = folder.daemon(&place);
    place.probe("p", seeing(json!([])));
    await_status(&place, "p", "a run", |s| s["observedGeneration"] == 1);
    daemon.await_quiet();
    let runs = daemon.runs();
    folder.put("probe.wasm", "hello");
    daemon.await_plugin("probe", "outdated", 1);
    folder.put("probe.wasm", probe(1));
    let row = daemon.await_plugin("probe", "active", 1);
    assert_eq!(row["problem"], Value::Null);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs);
}

#[test]
fn a_manifest_that_breaks_leaves_its_last_good_version_at_work_until_it_is_mended() {
    let place = Place::new("badyaml");
    let manifest = |word: &str| probe_manifest(&place, &format!("config: {{ word: {word} }}"), "");
    let folder = probe_folder(&manifest("v1"));
    let daemon = folder.daemon(&place);
    place.probe("p", seeing(json!([{ "see": ["config"] }])));
    await_status(&place, "p", "a run", |s| s["config"]["word"] == "v1");
    let good = manifest("v1");
    let unknown = good.replace("config:", "konfig:");
    let unexported = probe_manifest(&place, "", "primary: twice");
    let cases: [(&str, &[&str]); 4] = [
        ("spec: [", &["operator.yaml:"]),
        ("", &["operator.yaml"]),
        (&unknown, &["operator.yaml:8:", "konfig", "config"]),
        (&unexported, &["operator.yaml:", "primary"]),
    ];
    for ((text, texts), version) in cases.into_iter().zip(1..) {
        folder.put("operator.yaml", text);
        let problems = daemon.await_bad_manifests(1);
        let (file, problem) = &problems[0];
        assert!(file.ends_with("/operator.yaml"), "{file}");
        for text in texts {
            assert!(problem.contains(text), "{text:?} is not in: {problem}");
        }
        let lines = daemon.lines();
        let told = lines.iter().filter(|line| line["level"] == "ERROR" && line["message"] == **problem);
        assert_eq!(told.count(), 1, "{problem}");
        daemon.await_plugin("probe", "active", version);
        proves_work(&place, "p", &format!("beside bad manifest {version}"));
        let word = format!("v{}", version + 1);
        folder.put("operator.yaml", manifest(&word));
        daemon.await_bad_manifests(0);
        daemon.await_plugin("probe", "active", version + 1);
        await_status(&place, "p", &word, |s| s["config"]["word"] == *word);
    }
}

#[test]
fn a_manifest_that_breaks_while_its_last_good_version_works_leaves_the_daemon_ready() {
    let place = Place::new("badready");
    let folder = probe_folder(&probe_manifest(&place, "", ""));
    let daemon = folder.daemon(&place);
    folder.put("operator.yaml", "spec: [");
    daemon.await_bad_manifests(1);
    let (code, body) = daemon.get("/readyz");
    assert_eq!(code, 200, "{body}");
}

/// A manifest of an operator with both plugins and a controller of each, with the components beside it.
fn both_manifest(place: &Place) -> String {
    let namespace = place.namespace.name();
    format!(
        "apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: {{ name: {namespace} }}
spec:
  plugins:
    probe: {{ component: {{ path: probe.wasm }} }}
    webpage: {{ component: {{ path: webpage.wasm }} }}
  controllers:
    {namespace}-probe: {{ plugin: probe, primary: {PROBE}, namespaces: [{namespace}] }}
    {namespace}-page:
      plugin: webpage
      primary: {{ apiVersion: sample.capstan.dev/v1, kind: WebPage }}
      namespaces: [{namespace}]
      workflow:
        dependents:
          configmap: {{ apiVersion: v1, kind: ConfigMap }}
          deployment: {{ apiVersion: apps/v1, kind: Deployment, dependsOn: [configmap] }}
"
    )
}

/// An operator of two plugins: the new version of one is good, that of the other one is not.
struct HalfGood {
    place: Place,
    folder: Folder,
    daemon: Daemon,
}

impl HalfGood {
    fn new(prefix: &str) -> Self {
        let (place, folder) = (Place::new(prefix), Folder::new());
        let this = |probe: &[u8], image: &str, version: &str| {
            Self::flip(&place, &folder, version, probe, image);
        };
        this(&probe(1), OLD, "1");
        let daemon = folder.daemon(&place);
        settled_page(&place, &daemon);
        this(b"hello", NEW, "2");
        daemon.await_plugin("probe", "outdated", 1);
        daemon.await_plugin("webpage", "outdated", 1);
        Self { place, folder, daemon }
    }

    fn flip(place: &Place, folder: &Folder, version: &str, probe: &[u8], image: &str) {
        let (manifest, page) = (both_manifest(place), webpage(image));
        let files = [("operator.yaml", manifest.as_bytes()), ("probe.wasm", probe), ("webpage.wasm", &page)];
        folder.flip(version, &files);
    }
}

#[test]
fn an_operator_changes_as_a_whole_or_not_at_all() {
    let HalfGood { place, folder, daemon } = HalfGood::new("whole");
    let message = |name: &str| daemon.plugin(name).unwrap()["problem"]["message"].clone();
    assert!(message("probe").as_str().unwrap().contains("probe.wasm"), "{}", message("probe"));
    assert!(message("webpage").as_str().unwrap().contains("plugin probe"), "{}", message("webpage"));
    place.merge(&place.pages(), "page", &html("2"));
    place.await_object(&place.config_maps(), "page-html", "the event", |map| {
        map["data"]["index.html"] == "<html>2</html>"
    });
    daemon.await_quiet();
    assert_eq!(image(&place), OLD);
    HalfGood::flip(&place, &folder, "3", &probe(2), NEW);
    daemon.await_plugin("probe", "active", 2);
    daemon.await_plugin("webpage", "active", 2);
    await_image(&place, NEW);
}

#[test]
fn what_is_held_back_stays_so_when_something_else_changes() {
    let HalfGood { place, folder, daemon } = HalfGood::new("heldback");
    folder.put("other.yaml", "nonsense");
    daemon.await_bad_manifests(1);
    daemon.await_quiet();
    daemon.await_quiet();
    let states = ["probe", "webpage"].map(|name| {
        let row = daemon.plugin(name).unwrap();
        (row["state"].clone(), row["version"].clone())
    });
    let outdated = (json!("outdated"), json!(1));
    assert_eq!(states, [outdated.clone(), outdated]);
    assert_eq!(image(&place), OLD);
}

#[test]
fn a_controller_goes_on_when_its_plugin_is_to_be_replaced_by_one_that_does_not_load() {
    let place = Place::new("gone");
    let manifest = probe_manifest(&place, "", "");
    let folder = probe_folder(&manifest);
    let daemon = folder.daemon(&place);
    place.probe("p", seeing(json!([])));
    await_status(&place, "p", "a run", |s| s["observedGeneration"] == 1);
    let other = manifest
        .replace("    probe:\n", "    other:\n")
        .replace("plugin: probe", "plugin: other")
        .replace("probe.wasm", "other.wasm");
    folder.put("operator.yaml", other);
    daemon.await_line("other.wasm");
    daemon.await_quiet();
    proves_work(&place, "p", "something");
    folder.put("other.wasm", probe(2));
    daemon.await_plugin("other", "active", 1);
    proves_work(&place, "p", "something else");
    assert_eq!(daemon.plugin("probe"), None);
}

#[test]
fn a_controller_name_in_use_is_refused_while_the_first_goes_on() {
    let place = Place::new("inuse");
    let name = place.namespace.name();
    let manifest = probe_manifest(&place, "", "");
    let folder = probe_folder(&manifest);
    let daemon = folder.daemon(&place);
    place.probe("p", seeing(json!([])));
    await_status(&place, "p", "a run", |s| s["observedGeneration"] == 1);
    daemon.await_quiet();
    let runs = daemon.runs();
    let second = manifest.replace(&format!("metadata: {{ name: {name} }}"), "metadata: { name: other }");
    // Before the first one in the order of names.
    folder.put("a.yaml", &second);
    let problems = daemon.await_bad_manifests(1);
    let (file, problem) = &problems[0];
    assert!(file.ends_with("/a.yaml"), "{file}");
    for text in ["found a second controller", name, "operator.yaml:"] {
        assert!(problem.contains(text), "{problem}");
    }
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs);
    proves_work(&place, "p", "something");
    folder.remove("operator.yaml");
    daemon.await_bad_manifests(0);
    wait::until_ok(SOON, "the other one to have the name", || match daemon.plugin("probe") {
        Some(row) if row["operator"] == "other" => Ok(()),
        row => Err(format!("{row:?}")),
    })
    .unwrap();
    proves_work(&place, "p", "something else");
}

#[test]
fn two_manifests_may_swap_their_names() {
    let (one, two) = (Place::new("names"), Place::new("names"));
    let manifests = [&one, &two].map(|place| probe_manifest(place, "", ""));
    let folder = Folder::new();
    let lay = |version: &str, a: &str, b: &str| {
        let files = [("probe.wasm", &probe(1)[..]), ("a.yaml", a.as_bytes()), ("b.yaml", b.as_bytes())];
        folder.flip(version, &files);
    };
    lay("1", &manifests[0], &manifests[1]);
    let daemon = folder.daemon(&one);
    let word = |manifest: &str, word: &str| {
        manifest.replace(
            "component: { path: probe.wasm }\n",
            &format!("component: {{ path: probe.wasm }}\n      config: {{ word: {word} }}\n"),
        )
    };
    lay("2", &word(&manifests[1], "b"), &word(&manifests[0], "a"));
    one.probe("p", seeing(json!([{ "see": ["config"] }])));
    await_status(&one, "p", "its new settings", |s| s["config"]["word"] == "a");
    daemon.await_bad_manifests(0);
}

#[test]
fn a_hangup_has_what_was_refused_tried_again() {
    let place = Place::new("hangup");
    let folder = probe_folder(&probe_manifest(&place, "", ""));
    let daemon = folder.daemon(&place);
    place.probe("p", seeing(json!([])));
    await_status(&place, "p", "a run", |s| s["observedGeneration"] == 1);
    daemon.await_quiet();
    let runs = daemon.runs();
    let refused = |count: u64| {
        wait::until_ok(SOON, &format!("{count} refusals"), || match daemon.plugin("probe").unwrap() {
            row if row["state"] == "outdated" && row["refused"] == count => Ok(()),
            row => Err(format!("{row:?}")),
        })
        .unwrap();
    };
    folder.put("probe.wasm", "hello");
    refused(1);
    // Another change does not have it tried again …
    folder.put("other.yaml", "nonsense");
    daemon.await_bad_manifests(1);
    daemon.await_quiet();
    refused(1);
    // … but a signal does.
    daemon.hang_up();
    refused(2);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs, "what is in force is left alone");
}

// === at the edges ===

#[test]
fn an_operator_that_comes_back_waits_for_its_last_runs() {
    let place = Place::new("comeback");
    let manifest = probe_manifest(&place, "", "");
    let folder = probe_folder(&manifest);
    let daemon = folder.daemon(&place);
    place.probe("p", json!({}));
    daemon.await_quiet();
    let runs = daemon.runs();
    place.merge(&place.probes(), "p", &json!({ "spec": seeing(json!([{ "busyMs": 4000 }])) }));
    daemon.await_runs(runs + 1);
    folder.remove("operator.yaml");
    daemon.await_line("no manifest declares it any more");
    folder.put("operator.yaml", manifest);
    let starts = |lines: &[Value], message: &str| -> Vec<usize> {
        let all = lines.iter().enumerate();
        all.filter(|(_, line)| line["message"] == message).map(|(at, _)| at).collect()
    };
    let lines = wait::until(LATER, "the new controller", || {
        let lines = daemon.lines();
        (starts(&lines, "controller started").len() == 2).then_some(lines)
    })
    .unwrap();
    let (started, stopped) = (starts(&lines, "controller started"), starts(&lines, "controller stopped"));
    assert!(stopped.first().is_some_and(|stopped| *stopped < started[1]), "a key must not run twice at once");
}

#[test]
fn a_new_version_that_needs_a_permission_which_is_not_given_leaves_the_last_good_one_at_work() {
    let place = Place::new("ungranted");
    // One controller without dependents: the sample writes the status, the other one applies objects by itself.
    let page = "{ apiVersion: sample.capstan.dev/v1, kind: WebPage }";
    let manifest = |fields: &str| beside(&place.manifest("webpage", page, fields, ""), "webpage");
    let folder = web_folder(&manifest(""));
    let daemon = folder.daemon(&place);
    folder.put("webpage.wasm", fs::read(component("webpage-lowlevel")).unwrap());
    let row = daemon.await_plugin("webpage", "outdated", 1);
    let problem = row["problem"]["message"].as_str().unwrap();
    for text in ["`apply`", "permits that on no kind", "spec.plugins.webpage.capabilities.kubernetes"] {
        assert!(problem.contains(text), "{text:?} is not in: {problem}");
    }
    place.create("sample.capstan.dev/v1", "WebPage", &place.pages(), "page", html("1"));
    place.await_object(&place.pages(), "page", "its status", |page| page["status"]["areWeGood"] == true);
    // With the permission it takes over.
    folder.put(
        "operator.yaml",
        manifest("capabilities:\n  kubernetes: [{ apiVersion: v1, kind: ConfigMap, verbs: [apply, delete] }]\n"),
    );
    daemon.await_plugin("webpage", "active", 2);
}

#[test]
fn a_folder_that_goes_away_leaves_all_at_work() {
    let (place, folder) = (Place::new("away"), Folder::new());
    fs::create_dir(folder.path("manifests")).unwrap();
    folder.put("manifests/probe.wasm", probe(1));
    folder.put("manifests/operator.yaml", probe_manifest(&place, "", ""));
    let daemon = Start::at(&folder.path("manifests")).run(&place).until_ready();
    place.probe("p", seeing(json!([])));
    await_status(&place, "p", "a run", |s| s["observedGeneration"] == 1);
    fs::rename(folder.path("manifests"), folder.path("elsewhere")).unwrap();
    wait::until_ok(SOON, "the missing folder to be told", || match daemon.plugins() {
        report if report["manifests"] != json!([]) => Ok(()),
        report => Err(report),
    })
    .unwrap();
    daemon.await_quiet();
    proves_work(&place, "p", "something");
    fs::rename(folder.path("elsewhere"), folder.path("manifests")).unwrap();
    daemon.await_bad_manifests(0);
    folder.put("manifests/probe.wasm", probe(2));
    daemon.await_plugin("probe", "active", 2);
}

#[test]
fn a_file_that_is_being_written_holds_up_nothing_else() {
    let place = Place::new("holdup");
    let folder = probe_folder(&probe_manifest(&place, "", ""));
    folder.put("webpage.wasm", webpage(OLD));
    folder.put("page.yaml", web_manifest(&place));
    let daemon = folder.daemon(&place);
    let half = folder.begin("probe.wasm", probe(2));
    folder.put("webpage.wasm", webpage(NEW));
    daemon.await_plugin("webpage", "active", 2);
    half.finish();
    daemon.await_plugin("probe", "active", 2);
    assert_eq!(daemon.plugin("probe").unwrap()["refused"], 0);
}

#[test]
fn a_file_that_is_given_up_while_it_is_written_holds_up_nothing() {
    let place = Place::new("givenup");
    let manifest = probe_manifest(&place, "", "");
    let folder = probe_folder(&manifest);
    let daemon = folder.daemon(&place);
    folder.put("other.wasm", probe(2));
    let half = folder.begin("probe.wasm", probe(3));
    folder.put("operator.yaml", manifest.replace("probe.wasm", "other.wasm"));
    daemon.hang_up();
    daemon.await_plugin("probe", "active", 2);
    half.finish();
    folder.put("other.wasm", probe(4));
    daemon.await_plugin("probe", "active", 3);
}

#[test]
fn a_long_run_of_one_operator_holds_up_no_other_one() {
    let place = Place::new("longrun");
    let manifest = |word: &str| {
        let fields = format!("config: {{ word: {word} }}\nlimits: {{ timeout: 30s }}\nonSwap: nothing");
        probe_manifest(&place, &fields, "")
    };
    let folder = probe_folder(&manifest("v1"));
    folder.put("webpage.wasm", webpage(OLD));
    folder.put("page.yaml", web_manifest(&place));
    let daemon = folder.daemon(&place);
    place.probe("p", json!({}));
    daemon.await_quiet();
    let runs = daemon.runs();
    let busy = seeing(json!([{ "busyMs": 12_000 }]));
    place.merge(&place.probes(), "p", &json!({ "spec": busy }));
    daemon.await_runs(runs + 1);
    folder.put("operator.yaml", manifest("v2"));
    daemon.await_plugin("probe", "active", 2);
    // The third version waits for the first one, whose run is under way.
    folder.put("operator.yaml", manifest("v3"));
    daemon.await_plugin("probe", "loading", 2);
    folder.put("webpage.wasm", webpage(NEW));
    daemon.await_plugin("webpage", "active", 2);
    assert_eq!(daemon.active(), 1);
    daemon.await_plugin("probe", "active", 3);
}

#[test]
fn what_is_said_of_a_version_in_force_is_not_that_of_a_refused_one() {
    let place = Place::new("said");
    let name = place.namespace.name();
    let manifest = probe_manifest(&place, "", "");
    let folder = probe_folder(&manifest);
    let daemon = folder.daemon(&place);
    let first = daemon.await_plugin("probe", "active", 1);
    let renamed = manifest
        .replace(&format!("    {name}:\n"), &format!("    {name}-new:\n"))
        .replace("probe.wasm", "missing.wasm");
    folder.put("operator.yaml", renamed);
    let now = daemon.await_plugin("probe", "outdated", 1);
    assert!(daemon.controller(name).is_some());
    assert_eq!((&now["controllers"], &now["component"]), (&first["controllers"], &first["component"]));
}

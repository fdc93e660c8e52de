//! The sample `operations`, held to its README: each metric that it names is there, with the value that it says, and pages and commands say what it says.

use std::collections::BTreeSet;
use std::fs;

use cluster::wait;
use scenarios::{Daemon, LATER, Place, component, repository, run};
use serde_json::{Value, json};

const API: &str = "sample.capstan.dev/v1";

/// Returns a file of the sample.
fn file(name: &str) -> String {
    fs::read_to_string(repository().join("plugins/operations").join(name)).unwrap()
}

/// Starts the sample, for this namespace alone.
fn daemon(place: &Place) -> Daemon {
    let mut manifest = file("operations.yaml");
    manifest = manifest.replace("path: operations.wasm", &format!("path: {}", component("operations").display()));
    for kind in ["QuickTask", "SlowTask"] {
        let primary = format!("primary: {{ apiVersion: {API}, kind: {kind} }}");
        assert!(manifest.contains(&primary), "{manifest}");
        manifest = manifest.replace(&primary, &format!("{primary}\n      namespaces: [{}]", place.namespace.name()));
    }
    place.daemon(&manifest)
}

/// Returns the first two cells of the rows whose first one is code that begins like this.
fn rows<'a>(readme: &'a str, beginning: &str) -> Vec<(&'a str, &'a str)> {
    let cells = |line: &'a str| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        Some((cells.next()?.strip_suffix('`')?, cells.next()?))
    };
    readme.lines().filter_map(cells).filter(|(first, _)| first.starts_with(beginning)).collect()
}

/// Returns the metrics that a text names.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
    words.filter(|word| word.starts_with("capstan_")).collect()
}

fn await_done(place: &Place, plural: &str, name: &str) -> Value {
    let path = place.namespace.path(API, plural);
    place.await_within(LATER, &path, name, "its end", |task| task["status"]["state"] == "Done")
}

/// Waits until a task's last run has failed for this class.
fn await_class(daemon: &Daemon, controller: &str, task: &str, class: &str) {
    wait::until_ok(LATER, &format!("a failure of {task}"), || {
        let found = daemon.controller(controller).unwrap();
        let mut states = found["states"].as_array().unwrap().iter();
        let state = states.find(|state| state["key"].as_str().unwrap().ends_with(&format!("/{task}")));
        if state.is_some_and(|state| state["lastError"]["class"] == class) { Ok(()) } else { Err(found) }
    })
    .unwrap();
}

#[test]
fn what_the_readme_of_the_sample_says_of_metrics_pages_and_commands_is_so() {
    // HE-1, HE-2
    let place = Place::new("operations");
    let (daemon, readme) = (daemon(&place), file("README.md"));
    place
        .cluster
        .kubectl_with_input(&["apply", "-n", place.namespace.name(), "-f", "-"], &file("example.yaml"))
        .unwrap();
    await_done(&place, "quicktasks", "good");
    await_done(&place, "slowtasks", "slow");
    let failures = || daemon.count("capstan_reconciliations_failure_total", "\"quicktasks\"");
    wait::until(LATER, "the last retry", || (failures() >= 4).then_some(())).unwrap();
    daemon.await_quiet();
    let metrics = daemon.get("/metrics").1;
    let is_there = |name: &str| {
        metrics.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
    };
    let names = named(&readme);
    let missing: Vec<_> = names.iter().filter(|name| !is_there(name)).collect();
    assert!(names.len() > 20 && missing.is_empty(), "{missing:?}");

    let values = rows(&readme, "capstan_");
    assert!(values.len() > 10, "{values:?}");
    for (series, expected) in values {
        let found = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse::<f64>().ok());
        let number = |text: &str| text.parse::<f64>().unwrap();
        let holds = match expected.strip_prefix("at least ") {
            Some(least) => found.is_some_and(|found| found >= number(least)),
            None => found == Some(number(expected)),
        };
        assert!(holds, "{series} is {found:?}, not {expected}");
    }
    let pages = rows(&readme, "/");
    assert_eq!(pages.len(), 6, "{pages:?}");
    for (page, status) in pages {
        assert_eq!(daemon.get(page).0.to_string(), status, "{page}");
    }
    assert_eq!(daemon.get("/readyz?verbose").1, "ok\n");

    let (code, said, errors) = run(&["plugins", "--address", daemon.address()]);
    for words in [
        "operations/operations: 1 of 3 primaries fail; last quicktasks ",
        ", returned, after 3 retries\n  fails on purpose: spec.failures is 100",
    ] {
        assert!(
            code == 0 && said.contains(words) && words.split('\n').all(|line| readme.contains(line)),
            "{said}{errors}"
        );
    }
    let (built, definitions) =
        (component("operations").with_extension("yaml"), repository().join("plugins/operations/crd.yaml"));
    let (code, said, errors) =
        run(&["check", "-m", &built.display().to_string(), "--crd", &definitions.display().to_string()]);
    assert_eq!(code, 0, "{said}{errors}");
    assert!(daemon.stop().success());
}

#[test]
fn tasks_fail_wait_and_end_in_the_ways_that_the_readme_of_the_sample_has_one_play() {
    // RT-6, EP-31
    let place = Place::new("playing");
    let daemon = daemon(&place);
    let create = |kind: &str, name: &str, spec: Value| {
        let path = place.namespace.path(API, &format!("{}s", kind.to_lowercase()));
        place.create(API, kind, &path, name, json!({ "spec": spec }));
    };
    let slow = ["a", "b", "c", "d", "e"];
    for name in slow {
        create("SlowTask", name, json!({ "computeMs": 500 }));
    }
    let queue = || daemon.count("capstan_reconciliations_queue", "\"slowtasks\"");
    wait::until(LATER, "a queue", || (queue() >= 2).then_some(())).unwrap();
    for name in slow {
        await_done(&place, "slowtasks", name);
    }
    assert_eq!(queue(), 0);
    create("QuickTask", "failing", json!({ "failures": 100 }));
    await_class(&daemon, "quicktasks", "failing", "returned");
    place.merge(&place.namespace.path(API, "quicktasks"), "failing", &json!({ "spec": { "failures": 0 } }));
    await_done(&place, "quicktasks", "failing");
    create("SlowTask", "large", json!({ "memoryMi": 32 }));
    await_class(&daemon, "slowtasks", "large", "outOfMemory");
    assert!(daemon.count("capstan_plugin_broken_calls_total", "") > 0);
    create("QuickTask", "long", json!({ "computeMs": 8000 }));
    await_class(&daemon, "quicktasks", "long", "timeout");
}

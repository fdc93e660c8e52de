//! An operator whose components have a process of their own: it works as any other, and what becomes of the process is its own affair.

use std::path::Path;
use std::process::Command;

use cluster::wait;
use scenarios::{Daemon, Folder, LATER, Place, Start};
use serde_json::{Value, json};

/// Waits until a primary has been reconciled.
fn reconciled(place: &Place, name: &str) {
    place.await_object(&place.probes(), name, "its status", |probe| probe["status"]["seen"] == true);
}

/// Creates a primary of the operator with this label, and waits until it has been reconciled.
fn reconciles(place: &Place, name: &str, label: &str) {
    let spec = json!({ "reconcile": {
        "do": [{ "see": ["run", "config"] }, { "print": 100 }], "status": { "seen": true },
    } });
    place.labelled_probe(name, label, spec);
    reconciled(place, name);
}

/// Returns the number of the plugin's process, once there is one.
fn process(daemon: &Daemon) -> u64 {
    let process = wait::until_ok(LATER, "a process of the plugin", || {
        let plugins = daemon.plugins();
        let mut rows = plugins["plugins"].as_array().unwrap().iter();
        let process = rows.find_map(|row| row["process"].as_u64());
        process.ok_or(plugins)
    });
    process.unwrap()
}

#[test]
fn a_plugin_in_a_process_of_its_own_works_and_its_death_harms_nobody_else() {
    let place = Place::new("apart");
    let apart = place.manifest(
        "probe",
        "{ apiVersion: test.capstan.dev/v1, kind: Probe }",
        "isolation: process\nlimits: { timeout: 60s }",
        "labelSelector: apart",
    );
    let beside = place.renamed(&place.probe_manifest("labelSelector: beside"), "beside");
    let daemon = Start::new(&format!("{apart}---\n{beside}")).run(&place).until_ready();
    let ready = daemon.await_line("its process is ready");
    let ready: Value = serde_json::from_str(&ready).unwrap();
    if cfg!(target_os = "linux") {
        assert!(ready.to_string().contains("seccomp"), "{ready}");
    }
    reconciles(&place, "one", "apart");
    reconciles(&place, "other", "beside");

    // Killed in the middle of a run, it costs that run; the next one has another process, once the run is retried or changed.
    let first = process(&daemon);
    let steps = json!([{ "printText": "and round it goes\n" }, "loop"]);
    place.labelled_probe("endless", "apart", json!({ "reconcile": { "do": steps } }));
    daemon.await_line("and round it goes");
    let mut kill = Command::new("kill");
    let killed = kill.args(["-s", "KILL", &first.to_string()]).status();
    assert!(killed.unwrap().success());
    let failed = daemon.await_line("has ended (signal 9");
    assert!(failed.contains("/probe"), "{failed}");
    reconciles(&place, "beside-it", "beside");
    let well = json!({ "spec": { "reconcile": { "do": [], "status": { "seen": true } } } });
    place.merge(&place.probes(), "endless", &well);
    reconciled(&place, "endless");
    let second = process(&daemon);
    assert_ne!(first, second);
    assert_eq!(daemon.get("/livez").0, 200);

    // It goes with the daemon.
    assert!(daemon.stop().success());
    await_end(second);
}

/// Waits until a process is gone.
fn await_end(process: u64) {
    wait::until(LATER, "the end of the process", || (!Path::new(&format!("/proc/{process}")).exists()).then_some(()))
        .unwrap();
}

#[test]
fn a_plugin_gets_a_process_of_its_own_and_goes_back_while_it_works() {
    let (place, folder) = (Place::new("moves"), Folder::new());
    let manifest = |isolation: &str| {
        place.manifest(
            "probe",
            "{ apiVersion: test.capstan.dev/v1, kind: Probe }",
            &format!("isolation: {isolation}"),
            "labelSelector: apart",
        )
    };
    folder.put("operator.yaml", manifest("shared"));
    let daemon = folder.daemon(&place);
    reconciles(&place, "one", "apart");
    assert!(daemon.await_plugin("probe", "active", 1)["process"].is_null());

    folder.put("operator.yaml", manifest("process"));
    daemon.await_plugin("probe", "active", 2);
    let process = process(&daemon);
    reconciles(&place, "two", "apart");
    let usage = &daemon.plugin("probe").unwrap()["usage"];
    assert_eq!(usage["processesStarted"], 1, "{usage}");

    folder.put("operator.yaml", manifest("shared"));
    assert!(daemon.await_plugin("probe", "active", 3)["process"].is_null());
    reconciles(&place, "three", "apart");
    await_end(process);
    let started = daemon.count("capstan_plugin_processes_started_total", "");
    assert_eq!(started, 1);
}

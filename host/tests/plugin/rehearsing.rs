use std::fs;
use std::process::Command;
use std::time::Duration;

use capstan_core::manifest::{Instances, Limits, Warm};
use serde_json::json;

use crate::asks::{probe_in, seen};
use crate::calls::engine;
use crate::guests::sample;
use crate::runs::script;

#[tokio::test]
async fn in_a_rehearsal_the_time_stands_and_random_numbers_are_the_same_in_each_run() {
    let limits = Limits::default();
    let engine = engine(&limits).rehearsing();
    let warm = Warm { runs: 1000, memory: u64::MAX, idle: Duration::from_mins(5) };
    let plugin = probe_in(&engine, limits, Instances::Warm(warm)).await;
    let sights = || json!({ "see": ["now", "nowMs", "uuid", "random"] });
    let first = seen(&plugin, &script(), sights()).await;
    assert_eq!((&first["now"], &first["nowMs"]), (&json!("2000-01-01T00:00:00Z"), &json!(946_684_800_000.0)));
    assert_eq!(seen(&plugin, &script(), sights()).await, first);
    let twice = seen(&plugin, &script(), json!([{ "see": ["uuid"] }, { "see": ["random"] }])).await;
    assert_ne!(twice["random"], json!(vec![0; 8]), "{twice}");
}

#[test]
fn what_a_component_writes_at_a_time_is_the_same_whenever_a_case_is_played() {
    let place = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| fs::write(place.path().join(file), text).unwrap();
    let manifest = json!({
        "apiVersion": "capstan.dev/v1alpha1", "kind": "Operator", "metadata": { "name": "test" },
        "spec": {
            "plugins": { "probe": { "component": { "path": sample("probe") } } },
            "controllers": { "probes": { "plugin": "probe", "primary": { "apiVersion": "test.capstan.dev/v1", "kind": "Probe" } } },
        },
    });
    let primary = json!({
        "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "metadata": { "name": "a" },
        "spec": { "reconcile": { "do": { "see": ["now", "uuid"] } } },
    });
    fs::create_dir_all(place.path().join("cases/a")).unwrap();
    write("m.yaml", &manifest.to_string());
    write("cases/a/primary.yaml", &primary.to_string());
    let play = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
        command.current_dir(place.path()).args(["test", "-m", "m.yaml"]).args(more);
        let played = command.output().unwrap();
        let said = [played.stdout, played.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        assert!(played.status.success(), "{said}");
    };
    play(&["--bless"]);
    let expected = fs::read_to_string(place.path().join("cases/a/expected.yaml")).unwrap();
    assert!(expected.contains(r#"now: "2000-01-01T00:00:00Z""#), "{expected}");
    play(&[]);
}

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use capstan_core::manifest::{Instances, Limits, Warm};
use serde_json::{Value, json};

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

/// A folder with a manifest and one case.
struct Place(tempfile::TempDir);

impl Place {
    /// Makes the case of a primary with this spec, whose component may do this.
    fn new(component: &str, capabilities: &Value, spec: &Value) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let plugin = json!({ "component": { "path": sample(component) }, "capabilities": capabilities });
        let manifest = json!({
            "apiVersion": "capstan.dev/v1alpha1", "kind": "Operator", "metadata": { "name": "test" },
            "spec": {
                "plugins": { "probe": plugin },
                "controllers": { "probes": { "plugin": "probe", "primary": { "apiVersion": "test.capstan.dev/v1", "kind": "Probe" } } },
            },
        });
        let primary = json!({
            "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "metadata": { "name": "a" }, "spec": spec,
        });
        fs::create_dir_all(place.0.path().join("cases/a")).unwrap();
        place.write("m.yaml", &manifest.to_string());
        place.write("cases/a/primary.yaml", &primary.to_string());
        place
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.path().join(file), text).unwrap();
    }

    /// Plays the case, and returns what is said of it.
    fn play(&self, more: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
        command.current_dir(self.0.path()).args(["test", "-m", "m.yaml"]).args(more);
        let played = command.output().unwrap();
        let said = [played.stdout, played.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        assert!(played.status.success(), "{said}");
        said
    }

    fn expected(&self) -> String {
        fs::read_to_string(self.0.path().join("cases/a/expected.yaml")).unwrap()
    }
}

#[test]
fn what_a_component_writes_at_a_time_is_the_same_whenever_a_case_is_played() {
    let place = Place::new("probe", &json!({}), &json!({ "reconcile": { "do": { "see": ["now", "uuid"] } } }));
    place.play(&["--bless"]);
    let expected = place.expected();
    assert!(expected.contains(r#"now: "2000-01-01T00:00:00Z""#), "{expected}");
    place.play(&[]);
}

#[test]
fn in_a_golden_case_nothing_outside_is_connected_or_looked_up_and_that_is_said_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let url = format!("http://{at}/page");
    let tcp = json!({ "tcp": [at, "localhost:80"], "internal": ["localhost"] });
    for (component, capabilities, spec, seen, asked) in [
        (
            "probe",
            tcp,
            json!({ "reconcile": { "do": [{ "connect": at }] } }),
            ["tcp: connection refused", "lookup: uncategorized error"],
            vec![at.clone(), "localhost:80".to_owned()],
        ),
        (
            "probe-http",
            json!({ "http": [format!("http://{at}")] }),
            json!({ "requests": [{ "url": url, "post": "hello", "times": 2 }] }),
            ["error: ErrorCode::ConnectionRefused", ""],
            vec![format!("http://{at}")],
        ),
    ] {
        let place = Place::new(component, &capabilities, &spec);
        let said = place.play(&["--bless"]);
        let expected = place.expected();
        assert!(seen.iter().all(|seen| expected.contains(seen)), "{expected}");
        for asked in asked {
            let note = format!(
                "        the component asked for {asked}, and was refused: nothing outside is asked in golden cases\n"
            );
            assert_eq!(said.matches(&note).count(), 1, "{said}");
        }
        let reached = listener.accept().map(drop).map_err(|error| error.kind());
        assert_eq!(reached, Err(ErrorKind::WouldBlock), "{component} has reached the server");
    }
}

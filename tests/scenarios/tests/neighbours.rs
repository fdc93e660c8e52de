//! What one plugin, its primaries, or whoever reaches a port does, and what others notice of it: nothing.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::time::Duration;

use cluster::wait;
use scenarios::{Daemon, Place, SOON, component};
use serde_json::{Value, json};

/// Counts failures that components deal with, as those here do.
const HANDLED: &str = "capstan_reconciliations_handled_total";

/// How long the attack of a test goes on.
const WHILE: Duration = Duration::from_secs(5);

/// Waits while something is done by others.
fn let_pass(time: Duration) {
    let begun = tokio::time::Instant::now();
    wait::until(2 * time, "time to pass", || (begun.elapsed() >= time).then_some(())).unwrap();
}

/// Returns a spec that fails with this text, again and again, as fast as it can.
fn failing(text: &str) -> Value {
    json!({ "reconcile": { "do": [{ "fail": text }] }, "onError": { "next": { "reschedule": 0 } } })
}

/// Creates a primary, and waits until it has been reconciled.
fn reconciles(place: &Place, name: &str) {
    place.probe(name, json!({ "reconcile": { "status": { "seen": true } } }));
    place.await_object(&place.probes(), name, "its status", |probe| probe["status"]["seen"] == true);
}

#[test]
fn a_component_that_fails_all_the_time_with_a_long_text_fills_no_log() {
    let place = Place::new("long-failure");
    let daemon = place.daemon(&place.probe_manifest(""));
    place.probe("noisy", failing(&"x".repeat(1 << 20)));
    daemon.await_runs(20);
    let_pass(WHILE);
    let (log, runs) = (daemon.log(), daemon.runs());
    assert!(log.len() < 1 << 20, "{} bytes of log for {runs} runs", log.len());
    assert!(log.contains("bytes left out"), "{log}");
    daemon.blames(place.namespace.name(), "bytes left out", HANDLED);
    reconciles(&place, "victim");
}

#[test]
fn a_failure_can_not_pass_for_a_line_of_the_log() {
    let place = Place::new("forged");
    let daemon = place.daemon(&place.probe_manifest(""));
    place.probe("p", failing("oops\n{\"level\":\"ERROR\",\"forged\":1}\n\u{1b}[31mred\u{202e}txt\u{200b}"));
    let line = daemon.await_line("oops");
    daemon.blames(place.namespace.name(), "oops", HANDLED);
    assert!(line.contains(r"oops\\n{"), "{line}");
    for hidden in ['\u{1b}', '\u{202e}', '\u{200b}'] {
        assert!(!daemon.log().contains(hidden), "{line}");
    }
    assert!(daemon.lines().iter().all(|line| line["forged"].is_null()));
}

#[test]
fn a_log_that_nobody_reads_holds_nothing_up() {
    let place = Place::new("unread-log");
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("operator.yaml");
    std::fs::write(&manifest, place.probe_manifest("")).unwrap();
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = probe.local_addr().unwrap().to_string();
    drop(probe);
    let mut daemon = Command::new(scenarios::capstan())
        .args(["run", "--log-format", "json", "--listen", &address, "-m"])
        .arg(&manifest)
        .env("KUBECONFIG", place.cluster.admin_kubeconfig())
        // So much that the pipe is full at once.
        .env("RUST_LOG", "trace")
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    assert!(component("probe").exists());
    place.probe("noisy", json!({ "reconcile": { "do": [{ "print": 60_000 }], "reschedule": 0 } }));
    reconciles(&place, "victim");
    let_pass(WHILE);
    reconciles(&place, "another");
    assert_eq!(get(&address, "/livez").as_deref(), Some("ok\n"));
    assert_eq!(get(&address, "/readyz").as_deref(), Some("ok\n"));
    // How many lines go until any is dropped is up to the system.
    assert!(get(&address, "/metrics").unwrap().contains("\ncapstan_log_lines_dropped_total "));
    signal(daemon.id(), "TERM");
    let ended = wait::until_ok(SOON, "the end", || daemon.try_wait().unwrap().ok_or("it runs"));
    drop(daemon.kill());
    drop(daemon.wait());
    assert!(ended.unwrap().success());
}

#[test]
fn connections_that_ask_nothing_take_nothing_from_others() {
    let place = Place::new("half-open");
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("operator.yaml");
    std::fs::write(&manifest, place.probe_manifest("")).unwrap();
    let mut command = Command::new("sh");
    // As container runtimes have it.
    command.args(["-c", "ulimit -Sn 1024; exec \"$@\"", "sh"]).arg(scenarios::capstan());
    command.args(["run", "--log-format", "json", "--listen", "127.0.0.1:0", "-m"]).arg(&manifest);
    command.env("KUBECONFIG", place.cluster.admin_kubeconfig());
    let daemon = Daemon::spawn(command, folder).until_ready();
    let mut open = Vec::new();
    for n in 0..1_100 {
        // Those that the daemon has closed are kept open on this side, too.
        if let Ok(mut stream) = TcpStream::connect(daemon.address()) {
            drop(write!(stream, "GET /metrics HTTP/1.1\r\nx: {n}\r\n"));
            open.push(stream);
        }
    }
    reconciles(&place, "victim");
    assert_eq!(get(daemon.address(), "/livez").as_deref(), Some("ok\n"));
    let line = daemon.await_line("there is no room for more connections");
    assert!(line.contains("127.0.0.1"), "{line}");
    let files = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    assert!(files < 200, "{files} open files");
    let mut stream = TcpStream::connect(daemon.address()).unwrap();
    let long = format!("GET /livez HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(320 << 10));
    drop(stream.write_all(long.as_bytes()));
    let mut answer = String::new();
    drop(stream.read_to_string(&mut answer));
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert!(daemon.stop().success());
}

/// Returns the body of a page; none if it does not come within a second.
fn get(address: &str, path: &str) -> Option<String> {
    let address = address.to_socket_addrs().ok()?.next()?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

//! Requests from outside: which are let in, what they are answered with, and what follows from them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use cluster::{Cluster, wait};
use scenarios::{Daemon, LATER, Place, SOON, Start};
use serde_json::{Value, json};

const TOKEN: &str = "open-sesame-open-sesame";

/// A Secret with the token in the namespace in which these daemons are, which goes with the test.
struct Secret {
    cluster: &'static Cluster,
    path: String,
}

impl Secret {
    fn new(place: &Place) -> Self {
        let name = place.namespace.name();
        let metadata = json!({ "name": name, "labels": { "capstan.dev/config-for": name } });
        let secret =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": { "token": TOKEN } });
        place.cluster.api().create("/api/v1/namespaces/default/secrets", &secret).unwrap();
        Self { cluster: place.cluster, path: format!("/api/v1/namespaces/default/secrets/{name}") }
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        drop(self.cluster.api().delete(&self.path));
    }
}

/// Returns a manifest with a source `hooks` that has these fields beside a token.
fn manifest(place: &Place, fields: &str) -> String {
    let name = place.namespace.name();
    let token = format!("token: {{ secret: {{ name: {name} }} }}");
    place.probe_manifest(&format!("sources: {{ hooks: {{ inbound: {{ {token}, {fields} }} }} }}\nrateLimit: none\n"))
}

/// Where a daemon takes requests.
pub(crate) struct Door {
    address: String,
    path: String,
}

impl Door {
    /// Starts a daemon, and waits until its port is open.
    pub(crate) fn of(place: &Place, manifest: &str) -> (Daemon, Self) {
        let daemon = Start::new(manifest).arguments(&["--inbound-listen", "127.0.0.1:0"]).run(place).until_ready();
        let door = Self::open(place, &daemon);
        (daemon, door)
    }

    /// Waits until the port of a daemon is open, and has a token.
    fn open(place: &Place, daemon: &Daemon) -> Self {
        let line: Value = serde_json::from_str(&daemon.await_line("taking requests from outside")).unwrap();
        let address = line["fields"]["address"].as_str().or(line["address"].as_str()).unwrap().to_owned();
        let path = format!("/{0}/{0}/hooks", place.namespace.name());
        let door = Self { address, path };
        wait::until_ok(LATER, "its token to be read", || match door.send("POST", "", Some(TOKEN), "{}") {
            (503, why) => Err(why),
            _ => Ok(()),
        })
        .unwrap();
        door
    }

    /// Sends a request to what follows the path of the source, and returns status and text.
    pub(crate) fn send(&self, method: &str, rest: &str, token: Option<&str>, body: &str) -> (u16, String) {
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!("{method} {}{rest} HTTP/1.1\r\nhost: x\r\nx-kind: push\r\n{token}", self.path);
        self.raw(&format!("{head}content-length: {}\r\n\r\n", body.len()), body.as_bytes())
    }

    fn raw(&self, head: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LATER)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        // What is refused may not be read to its end.
        drop(stream.write_all(body));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        let answer = String::from_utf8(answer).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap_or_default();
        (head.split(' ').nth(1).map_or(0, |code| code.parse().unwrap()), text.to_owned())
    }

    /// Sends a body with the token.
    fn post(&self, body: Value) -> (u16, String) {
        self.send("POST", "", Some(TOKEN), &body.to_string())
    }
}

/// Returns a request that says that a probe has a thing.
fn present(place: &Place, name: &str, thing: Value) -> Value {
    json!({ "events": [{ "namespace": place.namespace.name(), "name": name, "present": thing }] })
}

/// Creates a probe that shows the things of its primary.
fn shower(place: &Place, name: &str) {
    let read =
        json!({ "read": { "in": { "source": "hooks" }, "select": "related" }, "as": "things", "show": ["/id", "/v"] });
    let get = json!({ "read": { "in": { "source": "hooks" }, "select": { "named": { "name": "1" } } }, "as": "one", "show": ["/v"] });
    place.probe(name, json!({ "reconcile": { "do": [read, get], "status": {} } }));
}

fn await_things(place: &Place, name: &str, things: Value) -> Value {
    let what = format!("{things} of {name}");
    place.await_object(&place.probes(), name, &what, |probe| probe["status"]["things"] == things)
}

#[test]
fn a_request_with_the_token_wakes_the_primary_whose_run_sees_what_it_says() {
    // IB-1, IB-2, IB-3, XC-6
    let place = Place::new("inbound");
    let _secret = Secret::new(&place);
    shower(&place, "a");
    let (daemon, door) = Door::of(&place, &manifest(&place, "bodySize: 2Ki, requestsPerSecond: 1000"));
    await_things(&place, "a", json!([]));
    daemon.await_quiet();
    let runs = daemon.runs();
    let body = present(&place, "a", json!({ "id": 1, "v": "x" })).to_string();
    for (method, rest, token, status) in [
        ("POST", "", None, 401),
        ("POST", "", Some("open-sesame-open-sesamE"), 401),
        ("GET", "", Some(TOKEN), 405),
        ("PUT", "", Some(TOKEN), 405),
        ("POST", "x", Some(TOKEN), 404),
        ("POST", "/../../x", None, 401),
    ] {
        assert_eq!(door.send(method, rest, token, &body).0, status, "{method} {rest} {token:?}");
    }
    let nowhere = Door { path: format!("/other/{}/hooks", place.namespace.name()), address: door.address.clone() };
    assert_eq!(nowhere.post(json!({})).0, 404, "another operator has no such controller");
    let large = "x".repeat(10 << 20);
    for (token, status) in [(Some(TOKEN), [413, 0]), (Some("wrong-wrong-wrong-wrong"), [401, 0]), (None, [401, 0])] {
        let (found, why) = door.send("POST", "", token, &large);
        assert!(status.contains(&found), "{found} {why}");
    }
    let announced = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 10485760\r\n\r\n",
        door.path
    );
    // Nothing of the body is sent, nor waited for.
    let unnamed = announced.replace(&format!("authorization: Bearer {TOKEN}\r\n"), "");
    assert_eq!(door.raw(&unnamed, b"").0, 401);
    let (status, why) = door.raw(&announced, b"");
    assert_eq!((status, &*why), (413, "the body has more than 2048 bytes (bodySize)\n"));
    let chunked = announced.replace("content-length: 10485760", "transfer-encoding: chunked");
    let chunk = format!("1000\r\n{}\r\n0\r\n\r\n", "x".repeat(4096));
    assert_eq!(door.raw(&chunked, chunk.as_bytes()).0, 413);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs, "nothing of that is an event");

    assert_eq!(door.post(present(&place, "a", json!({ "id": 1, "v": "x" }))), (202, String::new()));
    let probe = await_things(&place, "a", json!([{ "/id": 1, "/v": "x" }]));
    assert_eq!(probe["status"]["one"]["/v"], "x", "{probe}");
    daemon.await_quiet();
    let (runs, metric) = (daemon.runs(), daemon.count("capstan_inbound_requests_total", "status=\"401\""));
    assert!(metric >= 3, "{metric}");
    assert_eq!(door.post(present(&place, "a", json!({ "v": "x", "id": 1 }))).0, 202);
    assert_eq!(door.post(present(&place, "nobody", json!({ "id": 1 }))).0, 202);
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs, "what is equal, or of nobody, wakes nobody");
    let wake =
        json!({ "events": [{ "namespace": place.namespace.name(), "name": "a" }], "status": 200, "text": "thanks" });
    assert_eq!(door.post(wake), (200, "thanks".to_owned()));
    daemon.await_runs(runs + 1);

    let (status, echo) = door.send("POST", "/b%20c?d=e", Some(TOKEN), r#"{ "echo": true }"#);
    let echo: Value = serde_json::from_str(&echo).unwrap();
    let headers = json!({ "host": "x", "x-kind": "push", "content-length": "16" });
    assert_eq!((status, echo), (202, json!({ "source": "hooks", "path": "/b%20c?d=e", "headers": headers })));

    // Who does not wait for the answer has told it all the same.
    let slow =
        json!({ "do": [{ "busyMs": 500 }], "events": present(&place, "a", json!({ "id": 2, "v": "y" }))["events"] })
            .to_string();
    let head = format!("POST {} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n", door.path);
    let mut stream = TcpStream::connect(&door.address).unwrap();
    write!(stream, "{head}content-length: {}\r\n\r\n{slow}", slow.len()).unwrap();
    drop(stream);
    await_things(&place, "a", json!([{ "/id": 1, "/v": "x" }, { "/id": 2, "/v": "y" }]));

    place.delete(&place.probes(), "a");
    place.await_gone(&place.probes(), "a");
    let polled = || daemon.controllers()["controllers"][0]["polled"]["hooks"].clone();
    let left = || if polled()["things"] == 0 { Ok(()) } else { Err(polled()) };
    wait::until_ok(SOON, "its things to be forgotten", left).unwrap();
    assert!(!daemon.log().contains("sesame"), "the token is nowhere in the log");
}

#[test]
fn a_request_that_only_says_that_something_has_changed_has_it_read_before_the_primary_runs() {
    // IB-6
    let place = Place::new("inbound-fetch");
    let _secret = Secret::new(&place);
    let look = json!([{ "read": { "in": { "source": "hooks" }, "select": "related" }, "as": "things", "show": ["/id", "/count"] }]);
    // Each poll of `a` finds another thing, those of `b` find the same.
    for (name, count) in [("a", true), ("b", false)] {
        let polls = json!({ "hooks": { "things": [{ "id": 1 }], "count": count } });
        place.probe(name, json!({ "reconcile": { "do": look, "status": {} }, "polls": polls }));
    }
    let (daemon, door) = Door::of(&place, &manifest(&place, "fetch: {}, requestsPerSecond: 1000"));
    await_things(&place, "a", json!([{ "/id": 1, "/count": 1 }]));
    await_things(&place, "b", json!([{ "/id": 1, "/count": null }]));
    daemon.await_quiet();
    let runs = daemon.runs();
    let namespace = place.namespace.name();
    let both = json!({ "events": [{ "namespace": namespace, "name": "a" }, { "namespace": namespace, "name": "b" }] });
    assert_eq!(door.post(both).0, 202);
    await_things(&place, "a", json!([{ "/id": 1, "/count": 2 }]));
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs + 1, "nothing of b has changed");
    // What a request says itself stands beside what was read, and nothing is read for it.
    assert_eq!(door.post(present(&place, "a", json!({ "id": 2 }))).0, 202);
    await_things(&place, "a", json!([{ "/id": 1, "/count": 2 }, { "/id": 2, "/count": null }]));
}

#[test]
fn a_component_that_fails_traps_or_is_slow_over_requests_harms_no_runs() {
    // IB-4, IB-5
    let place = Place::new("inbound-bad");
    let _secret = Secret::new(&place);
    shower(&place, "a");
    let fields = "requestsPerSecond: 1000";
    let manifest = manifest(&place, fields);
    let manifest =
        manifest.replacen("  controllers:\n", "      limits: { timeout: 2s, concurrency: 2 }\n  controllers:\n", 1);
    let (daemon, door) = Door::of(&place, &manifest);
    await_things(&place, "a", json!([]));
    let event = json!([{ "namespace": place.namespace.name(), "name": "a", "present": { "id": 7 } }]);
    for (body, status) in [
        (json!({ "do": [{ "fail": "no sense" }], "events": event }), 500),
        (json!({ "do": [{ "trap": null }], "events": event }), 500),
        (json!({ "do": [{ "loop": null }], "events": event }), 500),
        (json!({ "do": [{ "allocate": null }], "events": event }), 500),
        (json!({ "status": 99, "events": event }), 500),
        (json!({ "events": [event[0], { "name": "a", "present": {} }] }), 500),
    ] {
        let (found, why) = door.post(body.clone());
        assert_eq!((found, &*why), (status, "the request was not understood; the daemon's log says why\n"), "{body}");
    }
    assert_eq!(door.send("POST", "", Some(TOKEN), "\u{1}").0, 500, "what is no JSON the component refuses");
    assert_eq!(daemon.count("capstan_callback_failures_total", "callback=\"inbound\""), 7);
    daemon.await_line("a request from outside was not taken in as a whole");
    assert!(!daemon.log().contains("\"id\":7"), "nothing of a request is in the log");

    // One call of two is left to runs, whatever comes in.
    let slow = json!({ "do": [{ "busyMs": 1000 }] });
    std::thread::scope(|scope| {
        let sent: Vec<_> = (0..40).map(|_| scope.spawn(|| door.post(slow.clone()).0)).collect();
        assert!(place.find(&place.probes(), "a").is_some());
        place.merge(&place.probes(), "a", &json!({ "spec": { "reconcile": { "status": { "seen": true } } } }));
        place.await_object(&place.probes(), "a", "a run beside them", |probe| probe["status"]["seen"] == true);
        assert!(sent.iter().any(|sent| !sent.is_finished()), "it did not wait for them");
        let mut statuses: Vec<_> = sent.into_iter().map(|sent| sent.join().unwrap()).collect();
        statuses.sort_unstable();
        statuses.dedup();
        assert!(statuses.iter().all(|status| [202, 503].contains(status)), "{statuses:?}");
        assert!(statuses.contains(&202) && statuses.contains(&503), "{statuses:?}");
    });
    assert_eq!(door.post(json!({})).0, 202);
}

/// Says that something is over once this is dropped, whatever has happened.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_flood_without_token_is_nothing_to_the_component_and_one_with_it_is_slowed_down() {
    // IB-3, IB-4
    let place = Place::new("inbound-flood");
    let _secret = Secret::new(&place);
    let own = "rateLimit: none\n      labelSelector: own\n";
    let own = manifest(&place, "requestsPerSecond: 2").replace("rateLimit: none\n", own);
    let other = place.renamed(&place.probe_manifest("labelSelector: other\n"), "other");
    let (daemon, door) = Door::of(&place, &format!("{own}---\n{other}"));
    place.labelled_probe("b", "other", json!({}));
    // Each call of the component would fail, and be counted.
    let body = json!({ "do": [{ "fail": "a call" }] });
    let calls = || daemon.count("capstan_callback_failures_total", "callback=\"inbound\"");
    assert_eq!((door.post(body.clone()).0, calls()), (500, 1));
    let (wrong, text) = (Some("wrong-wrong-wrong-wrong"), body.to_string());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for _ in 0..4 {
            scope.spawn(|| {
                let mut sent = 0;
                while sent < 500 || !over.load(Ordering::Relaxed) {
                    assert_eq!(door.send("POST", "", wrong, &text).0, 401);
                    sent += 1;
                }
                assert_eq!(door.send("POST", "", None, &text).0, 401);
                assert_eq!(door.send("POST", "x", Some(TOKEN), &text).0, 404);
                assert_eq!(door.send("PUT", "", Some(TOKEN), &text).0, 405);
            });
        }
        // Another operator goes on meanwhile, from an event to the status.
        for n in 1..=3 {
            place.merge(&place.probes(), "b", &json!({ "spec": { "reconcile": { "status": { "n": n } } } }));
            place.await_object(&place.probes(), "b", "a run beside the flood", |probe| probe["status"]["n"] == n);
        }
    });
    assert_eq!((calls(), daemon.get("/readyz").0), (1, 200));
    let statuses: Vec<_> = (0..40).map(|_| door.post(body.clone()).0).collect();
    let count = |status: u16| statuses.iter().filter(|found| **found == status).count();
    assert!(count(429) >= 20 && count(429) + count(500) == 40, "{statuses:?}");
    assert_eq!(calls(), 1 + count(500) as u64);
}

#[test]
fn requests_go_on_while_the_component_is_swapped_and_the_port_closes_with_the_last_source() {
    // IB-5
    let place = Place::new("inbound-swap");
    let _secret = Secret::new(&place);
    shower(&place, "a");
    let folder = scenarios::Folder::new();
    let with = |fields: &str| manifest(&place, fields);
    folder.put("operator.yaml", with("requestsPerSecond: 1000"));
    let path = folder.path("operator.yaml");
    let daemon = Start::at(&path).arguments(&["--inbound-listen", "127.0.0.1:0"]).run(&place).until_ready();
    let door = Door::open(&place, &daemon);
    let settled = || match door.post(json!({})) {
        (202, _) => Ok(()),
        (status, why) => Err(format!("{status} {why}")),
    };
    assert_eq!(door.post(present(&place, "a", json!({ "id": 0, "v": 0 }))).0, 202);
    for n in 1..=5 {
        folder.put("operator.yaml", with(&format!("requestsPerSecond: {}", 1000 + n)));
        for m in 0..10 {
            let (status, why) = door.post(present(&place, "a", json!({ "id": n, "v": m })));
            assert_eq!(status, 202, "{why}");
        }
    }
    let thing = |id: u32, v: u32| json!({ "/id": id, "/v": v });
    let all: Vec<_> = (0..=5).map(|n| thing(n, if n == 0 { 0 } else { 9 })).collect();
    await_things(&place, "a", json!(all));
    folder.put("operator.yaml", place.probe_manifest("rateLimit: none\n"));
    let closed = || TcpStream::connect(&door.address).map_or(Ok(()), |_| Err("open"));
    wait::until_ok(SOON, "the port to be closed", closed).unwrap();
    folder.put("operator.yaml", with(""));
    wait::until_ok(LATER, "the port to be open again", || {
        TcpStream::connect(&door.address).map_err(|error| error.to_string())?;
        settled()
    })
    .unwrap();
}

#[test]
fn a_version_that_is_being_prepared_takes_no_requests_from_the_one_that_runs() {
    // IB-3, IB-5
    let place = Place::new("inbound-waits");
    let _secret = Secret::new(&place);
    shower(&place, "a");
    let folder = scenarios::Folder::new();
    let first = manifest(&place, "requestsPerSecond: 1000");
    folder.put("operator.yaml", &first);
    let path = folder.path("operator.yaml");
    let daemon = Start::at(&path).arguments(&["--inbound-listen", "127.0.0.1:0"]).run(&place).until_ready();
    let door = Door::open(&place, &daemon);
    let waits = "\nsources: { things: { informer: { apiVersion: nowhere.dev/v1, kind: Nothing, mapper: { annotations: {} } } } }\n";
    let other = format!("{waits}rateLimit: none\n");
    for (n, next) in [place.probe_manifest(&other), first.clone(), place.probe_manifest(&other)].into_iter().enumerate()
    {
        folder.put("operator.yaml", &next);
        let phase = if n == 1 { "running" } else { "changing" };
        let name = place.namespace.name();
        let reached =
            || if daemon.controller(name).unwrap()["phase"] == phase { Ok(()) } else { Err(daemon.controllers()) };
        wait::until_ok(LATER, phase, reached).unwrap();
        assert_eq!(door.post(present(&place, "a", json!({ "id": 1, "v": n }))), (202, String::new()));
        await_things(&place, "a", json!([{ "/id": 1, "/v": n }]));
    }
    folder.put("operator.yaml", place.probe_manifest("rateLimit: none\n"));
    let closed = || TcpStream::connect(&door.address).map_or(Ok(()), |_| Err("open"));
    wait::until_ok(SOON, "the port to be closed", closed).unwrap();
}

#[test]
fn an_operator_reaches_no_source_of_another_and_not_with_its_token() {
    // IB-3
    let place = Place::new("inbound-two");
    let _secret = Secret::new(&place);
    let one = manifest(&place, "requestsPerSecond: 1000");
    // The Secret's label does not name it.
    let other = place.renamed(&one, "other");
    let (_daemon, door) = Door::of(&place, &format!("{one}---\n{other}"));
    let name = place.namespace.name();
    for (path, status) in [
        (format!("/{name}/{name}/hooks"), 202),
        (format!("/{name}-other/{name}-other/hooks"), 503),
        (format!("/{name}-other/{name}/hooks"), 404),
        (format!("/{name}/{name}-other/hooks"), 404),
    ] {
        let door = Door { path: path.clone(), address: door.address.clone() };
        assert_eq!(door.post(json!({})).0, status, "{path}");
    }
}

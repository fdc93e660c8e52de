//! What components reach of the network, what they don't, and what others notice of it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use cluster::wait;
use parking_lot::Mutex;
use scenarios::{Daemon, Folder, LATER, Place, SOON};
use serde_json::{Value, json};

/// A server on loopback. It lasts as long as the process.
struct Server {
    port: u16,
    state: Arc<Seen>,
}

/// What it has seen.
#[derive(Default)]
struct Seen {
    open: AtomicUsize,
    heads: Mutex<Vec<String>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, state) = (listener.local_addr().unwrap().port(), Arc::<Seen>::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                state.open.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    state.answer(&stream);
                    drop(stream);
                    state.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { port, state }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Returns `capabilities` that permit this server, by its address.
    fn permitted(&self) -> String {
        format!("capabilities: {{ http: [\"http://127.0.0.1:{}\"] }}\n", self.port)
    }

    /// Waits until nobody is connected.
    fn await_closed(&self) {
        let open = || match self.state.open.load(Ordering::SeqCst) {
            0 => Ok(()),
            open => Err(format!("{open} are open")),
        };
        wait::until_ok(SOON, "connections to be closed", open).unwrap();
    }

    /// Returns the heads of the requests so far.
    fn heads(&self) -> Vec<String> {
        self.state.heads.lock().clone()
    }
}

impl Seen {
    /// Answers one request as its path says.
    fn answer(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        self.heads.lock().push(head.clone());
        let path = head.split(' ').nth(1).unwrap_or_default();
        let mut out = stream;
        let mut say = |text: &str| out.write_all(text.as_bytes()).is_ok();
        if let Some(to) = path.strip_prefix("/to?") {
            say(&format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n"));
        } else if path == "/drip" {
            say("HTTP/1.1 200 OK\r\n\r\n");
            // Nothing more is asked, so that is a pause.
            drop(stream.set_read_timeout(Some(Duration::from_millis(50))));
            while say("x") {
                drop(reader.read_line(&mut head));
            }
        } else if path == "/huge" {
            say("HTTP/1.1 200 OK\r\n\r\n");
            let much = "x".repeat(64 << 10);
            while say(&much) {}
        } else if path == "/headers" {
            let one = format!("x: {}\r\n", "y".repeat(1 << 10));
            say(&format!("HTTP/1.1 200 OK\r\n{}content-length: 0\r\n\r\n", one.repeat(64)));
        } else if path == "/sink" {
            drop(std::io::copy(&mut reader, &mut std::io::sink()));
        } else if path == "/silent" {
            // Until the other side has had enough of it.
            drop(reader.read_line(&mut head));
        } else {
            say("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
        }
    }
}

fn daemon(place: &Place, plugin: &str) -> Daemon {
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    place.daemon(&place.manifest("probe-http", primary, plugin, "retry: { maxAttempts: 1, initialInterval: 100ms }\n"))
}

/// Has requests made, and returns what came of them.
fn answers(place: &Place, name: &str, requests: Value) -> Vec<Value> {
    place.probe(name, json!({ "requests": requests }));
    let told = wait::until_ok(LATER, "answers", || match place.find(&place.probes(), name) {
        Some(probe) => probe["status"]["answers"].as_array().cloned().ok_or(probe),
        None => Err(Value::Null),
    });
    told.unwrap()
}

#[test]
fn a_component_asks_a_server_that_its_manifest_names_and_no_other() {
    let (place, server, other) = (Place::new("http"), Server::start(), Server::start());
    let daemon = daemon(&place, &server.permitted());
    let localhost = server.url("/").replace("127.0.0.1", "localhost");
    let told = answers(
        &place,
        "p",
        json!([
            { "url": server.url("/hello?token=secret") },
            { "url": server.url("/hello"), "post": "some text" },
            { "url": other.url("/?token=secret") },
            { "url": localhost },
            { "url": "http://127.1/" },
            { "url": format!("http://127.0.0.1:{}@127.0.0.1:{}/", server.port, other.port) },
            { "url": server.url("/").replace("http:", "https:") },
            { "url": server.url(&format!("/to?{}", other.url("/"))), "follow": true },
            { "url": server.url(&format!("/{}", "x".repeat(9000))) },
        ]),
    );
    let hello = json!({ "code": 200, "length": 5, "text": "hello" });
    assert_eq!(told[..2], [hello.clone(), hello]);
    let errors: Vec<_> = told[2..].iter().map(|told| told["error"].as_str().unwrap_or_default()).collect();
    let denied = "ErrorCode::HttpRequestDenied";
    assert_eq!(errors, [denied, denied, denied, "ErrorCode::HttpRequestUriInvalid", denied, denied, "path"]);
    assert_eq!(other.heads().len(), 0);
    let heads = server.heads();
    assert_eq!(heads.len(), 3, "{heads:?}");
    for head in heads {
        let head = head.to_lowercase();
        assert!(
            !head.contains("authorization") && head.contains(&format!("host: 127.0.0.1:{}", server.port)),
            "{head}"
        );
    }
    let line = daemon.await_line(&format!("no connection to http://127.0.0.1:{}", other.port));
    assert!(line.contains("the manifest does not permit it; add it to `http`"), "{line}");
    assert!(!daemon.log().contains("token=secret"));
    let named = format!("to=\"http://127.0.0.1:{}\",result=\"ok\"", server.port);
    assert_eq!(daemon.count("capstan_plugin_connections_total", &named), 3);
    assert_eq!(daemon.count("capstan_plugin_connections_total", "to=\"\",result=\"denied\""), 5);
}

#[test]
fn a_name_is_not_reached_at_an_address_of_the_machine() {
    let (place, server) = (Place::new("rebound"), Server::start());
    let plugin = format!(
        "capabilities: {{ http: [\"http://localhost:{0}\", \"http://nobody.invalid:{0}\"], internal: [localhost] }}\n",
        server.port
    );
    let daemon = daemon(&place, &plugin);
    let told = answers(
        &place,
        "p",
        json!([
            { "url": format!("http://localhost:{}/", server.port) },
            { "url": format!("http://LOCALHOST.:{}/", server.port) },
            { "url": format!("http://nobody.invalid:{}/", server.port) },
        ]),
    );
    let prohibited = json!("ErrorCode::DestinationIpProhibited");
    assert_eq!([&told[0]["error"], &told[1]["error"]], [&prohibited, &prohibited]);
    assert!(told[2]["error"].as_str().unwrap().starts_with("ErrorCode::DnsError"), "{told:?}");
    assert_eq!(server.heads().len(), 0);
    daemon.await_line("localhost has the address 127.0.0.1: it is the address of the API server");
}

#[test]
fn a_server_that_is_slow_or_never_ends_costs_a_component_its_call_and_others_nothing() {
    let (place, server) = (Place::new("drip"), Server::start());
    let plugin = format!("limits: {{ timeout: 3s, memory: 4Mi, connections: 3 }}\n{}", server.permitted());
    let daemon = daemon(&place, &plugin);
    for (name, path) in [("drip", "/drip"), ("silent", "/silent")] {
        place.probe(name, json!({ "requests": [{ "url": server.url(path) }] }));
    }
    // Meanwhile, another.
    let told = answers(&place, "victim", json!([{ "url": server.url("/hello") }]));
    assert_eq!(told[0]["code"], 200);
    daemon.await_line("the component took longer than 3s (limits.timeout)");
    let told = answers(
        &place,
        "huge",
        json!([{ "url": server.url("/huge") }, { "url": server.url("/headers") }, { "url": server.url("/sink"), "size": 5 << 20 }]),
    );
    let errors: Vec<_> = told.iter().map(|told| told["error"].as_str().unwrap_or_default()).collect();
    assert!(errors[0].contains("HTTP response body size"), "{told:?}");
    assert!(told[0]["length"].as_u64().unwrap() <= 4 << 20, "{told:?}");
    assert!(errors[1].starts_with("ErrorCode::HttpResponseHeaderSectionSize"), "{told:?}");
    assert!(errors[2].starts_with("ErrorCode::HttpRequestBodySize"), "{told:?}");
    place.delete(&place.probes(), "drip");
    place.delete(&place.probes(), "silent");
    server.await_closed();
}

#[test]
fn what_a_call_has_opened_is_closed_when_it_ends_or_traps() {
    let (place, server) = (Place::new("held"), Server::start());
    let plugin = format!("instances: warm\n{}", server.permitted());
    let _daemon = daemon(&place, &plugin);
    let held = json!({ "url": server.url("/drip"), "hold": true, "times": 9 });
    let told = answers(&place, "held", json!([held]));
    assert_eq!(told[0]["error"], "ErrorCode::ConnectionLimitReached");
    server.await_closed();
    place.probe("traps", json!({ "requests": [held], "trap": true }));
    let heads = || if server.heads().len() > 8 { Ok(()) } else { Err("no request") };
    wait::until_ok(SOON, "requests of the one that traps", heads).unwrap();
    server.await_closed();
    // The instance is still good for something.
    assert_eq!(answers(&place, "next", json!([{ "url": server.url("/hello") }]))[0]["code"], 200);
}

#[test]
fn a_thousand_requests_in_a_row_are_answered() {
    let (place, server) = (Place::new("thousand"), Server::start());
    let daemon = daemon(&place, &format!("limits: {{ timeout: 1m }}\n{}", server.permitted()));
    let told = answers(&place, "p", json!([{ "url": server.url("/hello"), "times": 1000 }]));
    assert_eq!(told[0], json!({ "code": 200, "length": 5, "text": "hello" }));
    assert_eq!(server.heads().len(), 1000);
    server.await_closed();
    let files = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    assert!(files < 100, "{files} open files");
}

#[test]
fn a_component_that_sends_requests_is_loaded_only_if_it_may() {
    let place = Place::new("no-http");
    let daemon = place.manifest("probe-http", "{ apiVersion: test.capstan.dev/v1, kind: Probe }", "", "");
    let daemon = scenarios::Start::new(&daemon).run(&place);
    let line = daemon.await_line("wasi:http/types@");
    assert!(line.contains("the manifest permits it no host; add those that it needs to `capabilities.http`"), "{line}");
}

#[test]
fn python_connects_by_its_own_library_to_what_its_manifest_permits() {
    let (place, server, other) = (Place::new("python-tcp"), Server::start(), Server::start());
    let plugin = format!(
        "capabilities: {{ tcp: [\"127.0.0.1:{0}\", \"localhost:{0}\"], internal: [localhost] }}\n",
        server.port
    );
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    let _daemon = place.daemon(&place.manifest("probe-python", primary, &plugin, "retry: { maxAttempts: 1 }\n"));
    let told = answers(&place, "p", json!([{ "url": server.url("/hello") }, { "url": other.url("/") }]));
    assert_eq!(told[0], json!({ "code": 200, "text": "hello" }));
    assert!(told[1]["error"].as_str().is_some_and(|error| !error.is_empty()), "{told:?}");
    assert_eq!((server.heads().len(), other.heads().len()), (1, 0));
}

/// Has a probe connect by TCP, and returns what became of that.
fn connects(place: &Place, name: &str, to: &str) -> Value {
    place.probe(name, json!({ "reconcile": { "do": [{ "connect": to }], "status": {} } }));
    let told = place.await_object(&place.probes(), name, "its status", |p| p["status"]["connect"].is_object());
    told["status"]["connect"].clone()
}

#[test]
fn tcp_reaches_the_ports_that_the_manifest_names_and_nobody_listens() {
    let (place, server, other) = (Place::new("tcp"), Server::start(), Server::start());
    let plugin = format!("capabilities: {{ tcp: [\"127.0.0.1:{0}\", \"localhost:{0}\"] }}\n", server.port);
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    let daemon = place.daemon(&place.manifest("probe", primary, &format!("instances: warm\n{plugin}"), ""));
    let told = connects(&place, "named", &format!("127.0.0.1:{}", server.port));
    assert_eq!(told["tcp"], "open", "{told}");
    for refused in ["listen", "udp"] {
        assert_eq!(told[refused], "permission denied", "{refused}: {told}");
    }
    // The name is permitted, but leads to the machine itself.
    assert_ne!(told["lookup"], "open", "{told}");
    daemon.await_line("localhost has the address 127.0.0.1: it is the address of the API server");
    for (name, to) in [("other", other.port), ("api", api_port(&place))] {
        let told = connects(&place, name, &format!("127.0.0.1:{to}"));
        assert_eq!(told["tcp"], "permission denied", "{name}: {told}");
    }
    server.await_closed();
    let named = format!("to=\"127.0.0.1:{}\",result=\"ok\"", server.port);
    assert_eq!(daemon.count("capstan_plugin_connections_total", &named), 1);
}

fn api_port(place: &Place) -> u16 {
    place.cluster.url().rsplit(':').next().unwrap().trim_end_matches('/').parse().unwrap()
}

#[test]
fn a_host_that_comes_into_the_manifest_is_reached_and_one_that_goes_is_not() {
    let (place, one, other) = (Place::new("hosts"), Server::start(), Server::start());
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    let manifest = |server: &Server| place.manifest("probe-http", primary, &server.permitted(), "");
    let folder = Folder::new();
    folder.put("operator.yaml", manifest(&one));
    let daemon = folder.daemon(&place);
    daemon.await_plugin("probe-http", "active", 1);
    let asked = json!([{ "url": one.url("/") }, { "url": other.url("/") }]);
    let reached =
        |name| answers(&place, name, asked.clone()).iter().map(|told| told["code"] == 200).collect::<Vec<_>>();
    assert_eq!(reached("before"), [true, false]);
    folder.put("operator.yaml", manifest(&other));
    daemon.await_plugin("probe-http", "active", 2);
    assert_eq!(reached("after"), [false, true]);
}

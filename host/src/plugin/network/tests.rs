use capstan_core::manifest::Limits;
use futures::FutureExt as _;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;
use crate::plugin::output::Output;

fn network(capabilities: &Capabilities, connections: usize, room: &Room) -> Arc<Network> {
    let outside = Outside::new([8081].into(), Arc::default());
    outside.guard(["10.96.0.1".parse().unwrap()].into());
    let limits = Limits { connections, ..Limits::default() };
    let name: Arc<str> = "guest".into();
    Arc::new(Network::new(&outside, (&name, &name), capabilities, &limits, room))
}

fn line(network: &Arc<Network>) -> Line {
    let output = Output::new(("guests".into(), "guest".into()), 1 << 20, Arc::default());
    let home = Home::Here(Arc::new(Mutex::new(output)));
    let mut line = Line::new(network, &home);
    line.begin(Instant::now() + Duration::from_secs(5));
    line
}

fn tcp(entries: &[&str], internal: bool) -> Capabilities {
    let read = |text: &&str| Destination { internal, ..Destination::tcp(text).unwrap() };
    Capabilities { tcp: entries.iter().map(read).collect(), ..Capabilities::default() }
}

fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

#[test]
fn nobody_reaches_the_pages_of_the_daemon_whatever_the_manifest_permits() {
    let network =
        network(&tcp(&["127.0.0.1:8081", "[::1]:8081", "127.0.0.1:8082", "10.0.0.1:8081"], true), 8, &Room::default());
    let line = line(&network);
    for (address, reached) in
        [("127.0.0.1:8081", false), ("[::1]:8081", false), ("127.0.0.1:8082", true), ("10.0.0.1:8081", true)]
    {
        assert_eq!(line.call.connects(at(address)), reached, "{address}");
    }
}

#[tokio::test]
async fn where_networks_lead_nowhere_nothing_is_connected_or_looked_up_not_even_before_the_first_call() {
    let outside = Outside::nowhere();
    let name: Arc<str> = "guest".into();
    let http = vec![Destination::http("http://127.0.0.1:9000").unwrap()];
    let capabilities = Capabilities { http: http.clone(), ..tcp(&["127.0.0.1:9000", "localhost:80"], true) };
    let network = Network::new(&outside, (&name, &name), &capabilities, &Limits::default(), &Room::default());
    let home =
        Home::Here(Arc::new(Mutex::new(Output::new(("guests".into(), "guest".into()), 1 << 20, Arc::default()))));
    let line = Line::new(&Arc::new(network), &home);
    assert!(!line.call.connects(at("127.0.0.1:9000")));
    let target = Target::new(Some(Scheme::Http), "127.0.0.1", 9000);
    assert!(matches!(line.call.carried(&http[0], &target).await, Err(Failed::Nowhere)));
    let resolved = line.call.network.resolve(&Target::new(None, "localhost", 80), true).await;
    assert!(matches!(resolved, Err(Failed::Nowhere)));
    assert_eq!(outside.asked(), ["127.0.0.1:9000".to_owned()].into());
}

#[test]
fn nobody_reaches_the_pages_of_the_daemon_by_the_address_of_the_pod() {
    // Where there is no network but loopback, there is nothing to see.
    let Some(address) = here::of_interface() else { return };
    let [page, other] = [8081, 8082].map(|port| SocketAddr::new(address, port));
    let entries = [page.to_string(), other.to_string()];
    let network = network(&tcp(&entries.each_ref().map(String::as_str), true), 8, &Room::default());
    let line = line(&network);
    assert_eq!([page, other].map(|address| line.call.connects(address)), [false, true]);
}

#[test]
fn a_call_makes_few_sockets_connected_or_not_and_its_instance_is_not_used_again() {
    let network = network(&tcp(&["127.0.0.1:9000"], false), 8, &Room::default());
    let mut line = line(&network);
    assert!(!line.is_used_up());
    let made = (0..100).filter(|_| line.takes_socket()).count();
    assert_eq!((made, line.is_used_up()), (2 * OPEN, true));
}

#[test]
fn tcp_connects_where_a_permitted_name_has_led_to() {
    let network = network(&tcp(&["db.prod.svc:5432", "127.0.0.1:9000"], true), 8, &Room::default());
    let mut line = line(&network);
    let connects = |line: &Line, address| line.call.connects(at(address));
    assert!(!connects(&line, "10.0.0.7:5432"), "nobody has asked for the name");
    let target = Target::new(None, "db.prod.svc", 0);
    let found = ["10.0.0.7", "127.0.0.1", "10.96.0.1"].map(|address| address.parse().unwrap());
    let open = line.call.learn(&network.tcp[..1], &target, found.into()).unwrap();
    assert_eq!(open, [found[0]]);
    for (address, may) in [
        ("10.0.0.7:5432", true),
        ("[::ffff:10.0.0.7]:5432", true),
        ("10.0.0.7:5433", false),
        ("10.0.0.8:5432", false),
        ("127.0.0.1:5432", false),
        ("10.96.0.1:5432", false),
        ("127.0.0.1:9000", true),
    ] {
        assert_eq!(connects(&line, address), may, "{address}");
    }
    line.begin(Instant::now());
    assert!(line.is_used_up());
    assert!(!connects(&line, "10.0.0.7:5432"), "what one call has looked up is nothing to the next");
}

#[test]
fn a_name_that_leads_nowhere_but_to_closed_addresses_says_so() {
    let network = network(&tcp(&["db.prod.svc:5432"], false), 8, &Room::default());
    let line = line(&network);
    let target = Target::new(None, "db.prod.svc", 0);
    let found = vec!["10.0.0.7".parse().unwrap()];
    let failed = line.call.learn(&network.tcp, &target, found).unwrap_err();
    assert_eq!(
        failed.to_string(),
        "db.prod.svc has the address 10.0.0.7: it is an address of a private network; add the host to `capabilities.internal`"
    );
}

#[tokio::test]
async fn connections_are_bounded_by_call_and_plugin_and_charged() {
    let full = network(&Capabilities::default(), 10, &Room::new(CONNECTION / 2));
    assert!(matches!(line(&full).call.open().await, Err(Failed::NoRoom(_))));
    let network = network(&Capabilities::default(), 10, &Room::default());
    let (one, other) = (line(&network), line(&network));
    let mut open = Vec::new();
    for _ in 0..OPEN {
        open.push(one.call.open().await.unwrap());
    }
    assert!(matches!(one.call.open().await, Err(Failed::TooMany)));
    let more = [other.call.open().await.unwrap(), other.call.open().await.unwrap()];
    // The plugin has no more, so it waits for one of its own.
    let mut waiting = std::pin::pin!(other.call.open());
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(open.pop());
    assert!(waiting.await.is_ok());
    drop(more);
}

#[tokio::test]
async fn what_waits_for_a_connection_ends_with_the_call() {
    let network = network(&Capabilities::default(), 1, &Room::default());
    let (one, mut other) = (line(&network), line(&network));
    let held = one.call.open().await.unwrap();
    let call = Arc::clone(&other.call);
    other.end();
    assert!(matches!(call.within(call.open()).await, Err(Failed::Over)));
    assert_eq!(call.open.load(Ordering::Relaxed), 0);
    drop(held);
}

/// Serves TLS on loopback with a certificate of its own, and returns that and the port.
async fn serve_tls() -> (CertificateDer<'static>, u16) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(acceptor.accept(stream).await);
        }
    });
    (cert.der().clone(), port)
}

#[tokio::test]
async fn tls_is_spoken_with_a_server_whose_certificate_is_trusted_and_no_other() {
    let (certificate, port) = serve_tls().await;
    let entry = Destination::http(&format!("https://127.0.0.1:{port}")).unwrap();
    let target = Target::new(Some(Scheme::Https), "127.0.0.1", port);
    let capabilities = Capabilities { http: vec![entry.clone()], ..Capabilities::default() };
    for trusted in [true, false] {
        let mut roots = RootCertStore::empty();
        if trusted {
            roots.add(certificate.clone()).unwrap();
        }
        let outside = Outside::trusting(roots);
        let name: Arc<str> = "guest".into();
        let network = Network::new(&outside, (&name, &name), &capabilities, &Limits::default(), &Room::default());
        let stream = line(&Arc::new(network)).call.carried(&entry, &target).await.map(drop);
        assert_eq!(stream.is_ok(), trusted, "{stream:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_that_compute_much_rest_and_those_of_other_plugins_do_not() {
    let of_plugin = || network(&tcp(&[], false), 8, &Room::default());
    let (busy, other) = (of_plugin(), of_plugin());
    let spend = |network: &Arc<Network>, ms| line(network).call.spend(Duration::from_millis(ms)).as_millis();
    for (ms, rest) in [(50, 0), (50, 0), (30, 120)] {
        assert_eq!(spend(&busy, ms), rest, "{ms}");
    }
    assert_eq!(spend(&other, 50), 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(spend(&busy, 100), 0);
}

//! Registries that are reached by a proxy, and those that are not.

use capstan_core::registry::challenge::Access;
use capstan_core::registry::{Credentials, Reference};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::super::tests::fake::{Door, Fake};
use super::super::tests::{push, way};
use super::super::{Session, Way};
use super::*;

fn session(reference: &str, proxies: Proxies, is_insecure: bool) -> Session {
    let way = Way { proxies, ..way() };
    Session::new(way, &Reference::parse(reference).unwrap(), (Credentials::Anonymous, Access::Pull), is_insecure)
}

#[test]
fn which_registries_are_reached_by_a_proxy_is_as_the_environment_says() {
    // PX-1
    let no = "one.io,.two.io,10.0.0.0/8,192.0.2.7,2001:db8::/32";
    for (no, url, expected) in [
        (no, "https://r.io/", Some("http://secure.io:3128")),
        (no, "http://r.io/", Some("http://plain.io:3128")),
        (no, "https://one.io/", None),
        (no, "https://a.one.io/", None),
        (no, "https://none.io/", Some("http://secure.io:3128")),
        (no, "https://a.two.io/", None),
        (no, "https://10.1.2.3/", None),
        (no, "https://11.1.2.3/", Some("http://secure.io:3128")),
        (no, "https://192.0.2.7:5000/", None),
        (no, "https://[2001:db8::1]/", None),
        // What is on this machine is never reached by another.
        (no, "http://127.0.0.1:5000/", None),
        (no, "https://[::1]:5000/", None),
        (no, "https://localhost:5000/", None),
        ("*", "https://r.io/", None),
        ("", "https://r.io/", Some("http://secure.io:3128")),
    ] {
        let proxies = Proxies::new("http://plain.io:3128", "http://user:hush@secure.io:3128", no);
        let found = proxies.of(&Url::parse(url).unwrap());
        assert_eq!(found.as_ref().map(Proxy::shown).as_deref(), expected, "{url}");
        assert!(!format!("{proxies:?} {found:?}").contains("hush"));
    }
    assert!(Proxies::default().of(&Url::parse("https://r.io/").unwrap()).is_none());
}

#[tokio::test]
async fn without_tls_the_proxy_is_asked_for_the_whole_address_and_with_no_proxy_it_is_not() {
    // PX-1, PX-2
    let fake = Fake::start(Door::Open).await;
    let pushed = push(&fake, "a:1", b"component").await;
    fake.asked();
    let proxy = format!("http://{}", fake.address);
    let resolved = session("r.test/a:1", Proxies::new(&proxy, "", ""), true).resolve(64).await.unwrap();
    assert_eq!(resolved.digest, pushed.digest);
    assert_eq!(fake.asked()[0].line, "GET http://r.test/v2/a/manifests/1");
    let failure = session("r.test/a:1", Proxies::new(&proxy, "", "r.test"), true).resolve(64).await.unwrap_err();
    assert!(failure.message.contains("the host of http://r.test has no address"), "{failure}");
    assert_eq!(fake.asked(), []);
}

/// A proxy that answers so to what it is asked first, and then returns that with the next byte that comes.
async fn proxy(answer: &'static str) -> (String, AbortOnDropHandle<(String, Option<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        (String::from_utf8(head).unwrap(), stream.read_u8().await.ok())
    });
    (address, AbortOnDropHandle::new(asked))
}

#[tokio::test]
async fn with_tls_the_proxy_connects_and_hears_nothing_of_what_is_said() {
    // PX-2
    for (answer, user, expected) in [
        ("HTTP/1.1 200 OK\r\n\r\n", "", "TLS with https://r.test"),
        ("HTTP/1.1 407 No\r\nA: b\r\n\r\n", "user:hush@", "it does not take who asks (407)"),
        ("HTTP/1.1 502 Bad\r\n\r\n", "", "it answers 502 when asked for r.test:443"),
        ("SSH-2.0-x\r\n\r\n", "", "its answer is none of HTTP"),
    ] {
        let (address, asked) = proxy(answer).await;
        let proxies = Proxies::new("", &format!("http://{user}{address}"), "");
        let failure = session("r.test/a:1", proxies, false).resolve(64).await.unwrap_err();
        assert!(failure.message.contains(expected) && !failure.message.contains("hush"), "{failure}");
        let (head, next) = asked.await.unwrap();
        assert!(head.starts_with("CONNECT r.test:443 HTTP/1.1\r\nHost: r.test:443\r\n"), "{head}");
        assert_eq!(head.contains("Proxy-Authorization: Basic dXNlcjpodXNo\r\n"), !user.is_empty());
        // The beginning of TLS.
        assert_eq!(next == Some(0x16), answer.contains("200"));
    }
}

#[tokio::test]
async fn a_proxy_that_is_away_or_is_no_proxy_of_http_is_said() {
    // PX-2
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for (proxy, expected) in [
        (format!("http://user:hush@{gone}"), format!("the proxy http://{gone} can't be reached: ")),
        (
            "socks5://p.io:1080".to_owned(),
            "the proxy socks5://p.io:1080 can't be used; expected one of http://".to_owned(),
        ),
        (
            "https://p.io:3129".to_owned(),
            "the proxy https://p.io:3129 can't be used; expected one of http://".to_owned(),
        ),
    ] {
        let failure = session("r.test/a:1", Proxies::new("", &proxy, ""), false).resolve(64).await.unwrap_err();
        assert!(failure.message.starts_with(&expected), "{failure}");
    }
}

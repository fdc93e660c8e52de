//! Sessions with a registry that does what is right, and with one that does not.

use std::collections::BTreeMap;
use std::future::pending;

use bytes::Bytes;
use capstan_core::registry::artifact::Interfaces;
use futures::stream;
use http::Response;
use tokio::time::{Instant, interval};

use super::*;
use crate::names::tests::known;
use fake::{Asked, Body, Door, Fake, bytes, hanging, pieces, text, with};

mod carried;
pub(crate) mod fake;
mod signed;
pub(crate) use signed::{key, sign};

const COMPONENT: &[u8] = b"\0asm, let us say";
const MOST: u64 = 64;

pub(crate) fn way() -> Way {
    Way {
        roots: Arc::new(RootCertStore::empty()),
        reach: Arc::new(|_, _| Ok(())),
        names: Names::default(),
        proxies: Proxies::default(),
        patience: Patience::default(),
    }
}

fn user() -> Credentials {
    Credentials::User { name: "user".to_owned(), password: "pass".to_owned() }
}

fn session(reference: &str, credentials: Credentials) -> Session {
    let reference = Reference::parse(reference).unwrap();
    Session::new(way(), &reference, (credentials, Access::Push), true)
}

/// Pushes a component under a name.
pub(crate) async fn push(fake: &Fake, name: &str, component: &[u8]) -> Resolved {
    let push = Push {
        component: Bytes::copy_from_slice(component),
        interfaces: Interfaces { imports: vec!["a:b/c".to_owned()], exports: vec!["d".to_owned()] },
        annotations: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        created: None,
    };
    session(&format!("{}/{name}", fake.address), user()).push(push).await.unwrap()
}

/// Pulls by a reference, and returns the component or why there is none.
async fn pull(reference: &str, credentials: Credentials) -> Result<Vec<u8>, Failure> {
    pull_by(session(reference, credentials)).await
}

async fn pull_by(mut session: Session) -> Result<Vec<u8>, Failure> {
    let resolved = session.resolve(MOST).await?;
    let mut out = Vec::new();
    session.blob(&resolved.artifact.layer, &mut out).await?;
    Ok(out)
}

#[tokio::test]
async fn what_is_pushed_is_pulled_again_by_tag_and_by_digest_whoever_is_let_in() {
    // OC-2, OC-3
    for door in [Door::Open, Door::Basic, Door::Bearer] {
        let fake = Fake::start(door).await;
        let pushed = push(&fake, "org/page:1", COMPONENT).await;
        for name in [":1".to_owned(), format!("@{}", pushed.digest), format!(":gone@{}", pushed.digest)] {
            let reference = format!("{}/org/page{name}", fake.address);
            assert_eq!(pull(&reference, user()).await.unwrap(), COMPONENT, "{door:?} {reference}");
        }
        let mut session = session(&format!("{}/org/page:1", fake.address), user());
        let resolved = session.resolve(MOST).await.unwrap();
        assert_eq!(resolved, pushed);
        let config = session.config(&resolved.artifact.config).await.unwrap();
        assert_eq!(capstan_core::registry::artifact::interfaces(&config).imports, ["a:b/c"]);
        assert!(session.still_names(&pushed.digest).await.unwrap());
        assert!(!session.still_names(&capstan_core::registry::Digest::sha256(b"other")).await.unwrap());
        // Nothing is uploaded a second time.
        fake.asked();
        assert_eq!(push(&fake, "org/page:2", COMPONENT).await.digest, pushed.digest);
        assert!(fake.asked().iter().all(|asked| !asked.line.contains("uploads")));
    }
}

#[tokio::test]
async fn who_is_not_let_in_is_told_so_and_shows_nothing_before_it_is_asked() {
    // OC-3, OC-5
    let fake = Fake::start(Door::Open).await;
    push(&fake, "a:1", COMPONENT).await;
    let reference = format!("{}/a:1", fake.address);
    pull(&reference, user()).await.unwrap();
    assert!(fake.asked().iter().all(|asked| asked.who.is_none()));
    let wrong = || Credentials::User { name: "user".to_owned(), password: "hush".to_owned() };
    for (door, who, expected) in [
        (Door::Basic, Credentials::Anonymous, "it wants to know who asks (401), and there are no credentials for it"),
        (Door::Basic, wrong(), "it does not take the user's name and password (401)"),
        (Door::Bearer, Credentials::Anonymous, "there are no credentials for it"),
        (
            Door::Bearer,
            wrong(),
            "/token, where it sends those who ask: it does not take the user's name and password (401)",
        ),
    ] {
        fake.closes(door);
        let failure = pull(&reference, who).await.unwrap_err();
        let expected = expected.replace("/token", &format!("http://{}", fake.address));
        assert!(failure.message.contains(&expected) && failure.kind == Kind::Denied, "{failure:?}");
        assert!(!failure.message.contains("hush"));
    }
}

#[tokio::test]
async fn another_server_never_gets_to_know_who_asks() {
    // OC-4
    let (fake, other) = (Fake::start(Door::Basic).await, Fake::start(Door::Open).await);
    let pushed = push(&fake, "a:1", COMPONENT).await;
    let layer = pushed.artifact.layer.digest.to_string();
    other.keep(&format!("a/{layer}"), COMPONENT);
    let to = other.address.clone();
    let blob = format!("GET /v2/a/blobs/{layer}");
    fake.fails(move |asked| {
        (asked.line == blob && asked.who.is_some())
            .then(|| with(text(307, ""), "location", &format!("http://{to}{}", &blob[4..])))
    });
    let reference = format!("{}/a:1", fake.address);
    assert_eq!(pull(&reference, user()).await.unwrap(), COMPONENT);
    assert_eq!(other.asked().into_iter().map(|asked| asked.who).collect::<Vec<_>>(), [None]);
    // Not even if that asks for it, or sends back.
    other.closes(Door::Basic);
    assert_eq!(pull(&reference, user()).await.unwrap_err().kind, Kind::Denied);
    let back = format!("http://{}/v2/a/blobs/{layer}", fake.address);
    other.fails(move |_| Some(with(text(307, ""), "location", &back)));
    fake.asked();
    assert_eq!(pull(&reference, user()).await.unwrap_err().kind, Kind::Denied);
    assert_eq!(fake.asked().last().unwrap().who, None);
    // Where tokens are given leads nowhere else.
    fake.closes(Door::Bearer);
    let to = format!("http://{}/token", other.address);
    fake.fails(move |asked| asked.line.starts_with("GET /token").then(|| with(text(307, ""), "location", &to)));
    other.asked();
    let failure = pull(&reference, user()).await.unwrap_err();
    assert!(failure.message.contains("it answers 307 when asked for a token"), "{failure:?}");
    assert_eq!(other.asked(), []);
}

type Answer = dyn Fn(&Asked) -> Response<Body> + Send + Sync;

/// Something that a registry does wrong: on which requests, what it answers, and what is said of it.
struct Wrong {
    of: &'static str,
    answer: Box<Answer>,
    kind: Kind,
    expected: &'static str,
}

fn wrong(
    of: &'static str,
    kind: Kind,
    expected: &'static str,
    answer: impl Fn(&Asked) -> Response<Body> + Send + Sync + 'static,
) -> Wrong {
    Wrong { of, answer: Box::new(answer), kind, expected }
}

fn all_that_is_wrong() -> Vec<Wrong> {
    let (manifest, blob) = ("/manifests/", "/blobs/");
    let endless = |_: &Asked| pieces(stream::repeat(Bytes::from_static(&[b' '; 1 << 14])));
    let slow = |_: &Asked| {
        let ticks = stream::unfold(interval(Duration::from_millis(10)), |mut ticks| async move {
            ticks.tick().await;
            Some((Bytes::from_static(b" "), ticks))
        });
        pieces(ticks)
    };
    let status = |status: u16| move |_: &Asked| with(text(status, ""), "retry-after", "7");
    let index = r#"{"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
    vec![
        wrong(manifest, Kind::Denied, "who asks may not have the manifest (403)", status(403)),
        wrong(manifest, Kind::Missing, "it does not have the manifest (404)", status(404)),
        wrong(manifest, Kind::Away, "it is asked too often (429)", status(429)),
        wrong(manifest, Kind::Away, "it fails (500)", status(500)),
        wrong(blob, Kind::Denied, "who asks may not have the component (403)", status(403)),
        wrong(manifest, Kind::Away, "nothing more came for 0.3 s", |_| hanging()),
        wrong(manifest, Kind::Away, "the manifest took longer than 1 s", slow),
        wrong(manifest, Kind::Wrong, "the manifest has more than 4194304 bytes", endless),
        wrong(manifest, Kind::Wrong, "the registry's answer is no manifest of an artifact", |_| text(200, "<html>")),
        wrong(manifest, Kind::Wrong, "found an index of images for", move |_| text(200, index)),
        wrong(manifest, Kind::Wrong, "found `text/html`", |_| with(text(200, "{}"), "content-type", "text/html")),
        wrong(manifest, Kind::Away, "it redirects more than 5 times", |asked| {
            let path = asked.line.split(' ').nth(1).unwrap();
            with(text(302, ""), "location", path)
        }),
        wrong(manifest, Kind::Away, "its redirect is not followed: `file:///etc/passwd` is no address", |_| {
            with(text(302, ""), "location", "file:///etc/passwd")
        }),
        wrong(manifest, Kind::Away, "it answers 304 when asked for the manifest", |_| text(304, "")),
        wrong(blob, Kind::Away, "it sends sha256:", |_| text(200, "other, of a kind")),
        wrong(blob, Kind::Away, "it sends more than the 16 bytes that the manifest says", endless),
        wrong(blob, Kind::Away, "it sends 3 of the 16 bytes that the manifest says", |_| {
            bytes(200, Bytes::from_static(b"abc"))
        }),
        wrong(blob, Kind::Away, "nothing more came for 0.3 s", |_| hanging()),
        wrong(blob, Kind::Away, "the component took longer than 1 s", |_| {
            pieces(stream::unfold(interval(Duration::from_millis(100)), |mut ticks| async move {
                ticks.tick().await;
                Some((Bytes::from_static(b"x"), ticks))
            }))
        }),
    ]
}

#[tokio::test]
async fn whatever_a_registry_does_wrong_ends_in_time_and_with_a_clear_sentence() {
    // OC-2, OC-4, OC-5
    let fake = Fake::start(Door::Open).await;
    assert_eq!(COMPONENT.len(), 16);
    push(&fake, "a:1", COMPONENT).await;
    let reference = format!("{}/a:1", fake.address);
    for Wrong { of, answer, kind, expected } in all_that_is_wrong() {
        fake.fails(move |asked| (asked.line.starts_with("GET") && asked.line.contains(of)).then(|| answer(asked)));
        let begun = Instant::now();
        // Only what the case is about ends it, however slow the machine is.
        let (second, usual) = (Duration::from_secs(1), Patience::default());
        let patience = match expected {
            _ if expected.contains("nothing more came") => Patience { idle: second * 3 / 10, ..usual },
            _ if expected.contains("took longer") => Patience { answer: second, whole: second, ..usual },
            _ => usual,
        };
        let (way, named) = (Way { patience, ..way() }, Reference::parse(&reference).unwrap());
        let failure = pull_by(Session::new(way, &named, (user(), Access::Pull), true)).await.unwrap_err();
        assert!(failure.message.contains(expected) && failure.kind == kind, "{expected}: {failure:?}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{expected}: {:?}", begun.elapsed());
    }
    fake.mends();
    assert!(pull(&reference, user()).await.is_ok());
}

#[tokio::test]
async fn a_registry_says_how_long_it_wants_to_be_left_alone_and_what_is_too_large_is_not_asked_for() {
    // OC-2, OC-5
    let fake = Fake::start(Door::Open).await;
    push(&fake, "a:1", &[7; 65]).await;
    fake.asked();
    let reference = format!("{}/a:1", fake.address);
    let failure = pull(&reference, user()).await.unwrap_err();
    assert_eq!(failure, Failure::new(Kind::Wrong, "the component has 65 bytes; at most 64 are taken"));
    assert!(fake.asked().iter().all(|asked| !asked.line.contains("/blobs/")));
    fake.fails(|_| Some(with(text(429, ""), "retry-after", "7")));
    assert_eq!(pull(&reference, user()).await.unwrap_err().after, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn a_manifest_that_is_not_what_the_reference_names_is_not_taken() {
    // OC-2
    let fake = Fake::start(Door::Open).await;
    let right = push(&fake, "a:1", COMPONENT).await;
    let other = push(&fake, "a:2", b"other").await;
    let to = format!("GET /v2/a/manifests/{}", right.digest);
    let location = format!("/v2/a/manifests/{}", other.digest);
    fake.fails(move |asked| (asked.line == to).then(|| with(text(302, ""), "location", &location)));
    let failure = pull(&format!("{}/a@{}", fake.address, right.digest), user()).await.unwrap_err();
    assert_eq!(failure.message, format!("it sends a manifest that is {}; expected {}", other.digest, right.digest));
}

#[tokio::test]
async fn a_server_that_takes_a_connection_and_says_nothing_is_given_up() {
    // OC-5
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let _held = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
        let _connection = silent.accept().await.unwrap();
        pending::<()>().await;
    }));
    let patience = Patience { idle: Duration::from_millis(300), ..Patience::default() };
    let (way, named) = (Way { patience, ..way() }, Reference::parse(&format!("{address}/a:1")).unwrap());
    let failure = pull_by(Session::new(way, &named, (user(), Access::Pull), true)).await.unwrap_err();
    assert_eq!(failure.message, format!("the answer of http://{address} took longer than 0.3 s"));
    let gone = Fake::start(Door::Open).await.address;
    let failure = pull(&format!("{gone}/a:1"), user()).await.unwrap_err();
    assert!(failure.message.starts_with(&format!("http://{gone} can't be reached: ")), "{failure}");
}

#[tokio::test]
async fn the_name_of_a_registry_is_looked_up_in_full_before_it_is_sought_within_the_cluster() {
    // OC-4: else a service `example` in a namespace `com` would be asked.
    for (names, found) in [
        (&["registry.example.com", "registry.example.com."][..], "registry.example.com."),
        (&["registry.example.com"], "registry.example.com. registry.example.com"),
    ] {
        let (names, asked) = known(names, "127.0.0.1");
        let reference = Reference::parse("registry.example.com:1/a:1").unwrap();
        let way = Way { names, ..way() };
        let mut session = Session::new(way, &reference, (Credentials::Anonymous, Access::Pull), true);
        let failure = session.resolve(MOST).await.unwrap_err();
        assert!(failure.message.contains("can't be reached"), "{failure:?}");
        assert_eq!(asked.lock().join(" "), found);
    }
}

#[tokio::test]
async fn an_address_that_is_closed_is_not_connected_to() {
    // OC-4
    let fake = Fake::start(Door::Open).await;
    let reference = Reference::parse(&format!("{}/a:1", fake.address)).unwrap();
    let way = Way { reach: Arc::new(|_, _| Err(Closed::Link)), ..way() };
    let mut session = Session::new(way, &reference, (Credentials::Anonymous, Access::Pull), true);
    let failure = session.resolve(MOST).await.unwrap_err();
    assert!(failure.kind == Kind::Denied && failure.message.contains("those are never reached"), "{failure:?}");
    assert_eq!(fake.asked(), []);
}

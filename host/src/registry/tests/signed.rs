//! Signatures in a registry that lists them, and in one that does not.

use capstan_core::registry::artifact::{Descriptor, MANIFEST};
use capstan_core::registry::signature::{Demand, Demands, LONGEST, bundle};
use capstan_core::registry::{Digest, referrers};
use rcgen::{KeyPair, PKCS_ED25519};
use serde_json::json;

use super::fake::{Door, Fake, text, with};
use super::*;

/// Returns a new key.
pub(crate) fn key() -> SigningKey {
    SigningKey::parse(&KeyPair::generate().unwrap().serialize_pem()).unwrap()
}

/// Signs what is under a name.
pub(crate) async fn sign(fake: &Fake, name: &str, key: &SigningKey) -> Digest {
    let mut session = session(&format!("{}/{name}", fake.address), user());
    let resolved = session.resolve(MOST).await.unwrap();
    session.sign(&resolved, key).await.unwrap()
}

pub(super) fn by(keys: &[&SigningKey]) -> Demands {
    let keys = keys.iter().map(|key| key.key().clone()).collect();
    Demands { all: vec![Demand { whose: "--key", keys, signed_as: Vec::new() }] }
}

/// Looks for what is demanded, and returns how many signatures were read, or why it is not met.
pub(super) async fn signed(fake: &Fake, name: &str, demands: &Demands) -> Result<usize, Failure> {
    let reference = Reference::parse(&format!("{}/{name}", fake.address)).unwrap();
    // Some of these searches take hundreds of questions.
    let way = Way { patience: Patience { whole: Duration::from_mins(1), ..Patience::default() }, ..way() };
    let mut session = Session::new(way, &reference, (user(), Access::Pull), true);
    let resolved = session.resolve(MOST).await?;
    session.signed(&resolved, demands).await.map(|signed| signed.len())
}

#[tokio::test]
async fn what_is_signed_is_found_again_whether_the_registry_lists_it_or_a_tag_does() {
    // SG-5, SG-7
    for lists in [true, false] {
        let fake = Fake::start(Door::Bearer).await;
        fake.lists(lists);
        let pushed = push(&fake, "org/a:1", COMPONENT).await;
        let edwards = KeyPair::generate_for(&PKCS_ED25519).unwrap().serialize_pem();
        let (first, second, other) = (key(), SigningKey::parse(&edwards).unwrap(), key());
        let failure = signed(&fake, "org/a:1", &by(&[&first])).await.unwrap_err();
        assert!(failure.kind == Kind::Unsigned && failure.message.ends_with("found none"), "{failure}");
        for key in [&first, &second] {
            sign(&fake, "org/a:1", key).await;
        }
        for key in [&first, &second] {
            assert!(signed(&fake, "org/a:1", &by(&[&other, key])).await.is_ok());
        }
        let tag = format!("org/a:{}", Reference::referrers_tag(&pushed.digest));
        assert_eq!(fake.kept(&tag).is_none(), lists);
        let failure = signed(&fake, "org/a:1", &by(&[&other])).await.unwrap_err();
        assert!(failure.message.contains("found one by another key, as it says sha256:"), "{failure}");
        // Who demands nothing asks for nothing.
        fake.asked();
        signed(&fake, "org/a:1", &Demands::default()).await.unwrap();
        assert!(fake.asked().iter().all(|asked| !asked.line.contains("referrers") && !asked.line.contains("sha256-")));
        // Nor is a signature of one component that of another, and one under another name is good for none here.
        push(&fake, "org/a:2", b"other").await;
        assert_eq!(signed(&fake, "org/a:2", &by(&[&first])).await.unwrap_err().kind, Kind::Unsigned);
    }
}

#[tokio::test]
async fn a_signature_for_another_repository_is_none_here_unless_that_name_is_permitted() {
    // SG-3
    let (fake, key) = (Fake::start(Door::Open).await, key());
    let pushed = push(&fake, "a:1", COMPONENT).await;
    sign(&fake, "a:1", &key).await;
    push(&fake, "b:1", COMPONENT).await;
    // Everything under the other name, as a copy of the repository has it.
    let tag = Reference::referrers_tag(&pushed.digest);
    let list = fake.kept(&format!("a:{tag}")).unwrap();
    let referrer = referrers::listed(&list).unwrap().0.remove(0);
    let manifest = fake.kept(&format!("a@{referrer}")).unwrap();
    let part = referrers::parts(&manifest).0.remove(0).descriptor.digest;
    for (name, bytes) in [
        (format!("b:{tag}"), list),
        (format!("b@{referrer}"), manifest),
        (format!("b/{part}"), fake.kept(&format!("a/{part}")).unwrap()),
    ] {
        fake.keep(&name, bytes);
    }
    let mut demands = by(&[&key]);
    let failure = signed(&fake, "b:1", &demands).await.unwrap_err();
    let expected = format!("found one for the name {0}/a; expected {0}/b, or --signed-as {0}/a", fake.address);
    assert!(failure.message.contains(&expected), "{failure}");
    demands.all[0].signed_as = vec![format!("{}/a", fake.address).into()];
    assert_eq!(signed(&fake, "b:1", &demands).await, Ok(1));
}

#[tokio::test]
async fn a_list_that_somebody_else_writes_at_the_same_time_is_written_again() {
    // SG-7
    let (fake, key) = (Fake::start(Door::Open).await, key());
    let pushed = push(&fake, "a:1", COMPONENT).await;
    let lost = std::sync::atomic::AtomicUsize::new(0);
    let tag = format!("PUT /v2/a/manifests/{}", Reference::referrers_tag(&pushed.digest));
    // It says that it has written the list, and has not.
    fake.fails(move |asked| {
        let is_list = asked.line == tag;
        (is_list && lost.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2).then(|| text(201, ""))
    });
    sign(&fake, "a:1", &key).await;
    assert_eq!(signed(&fake, "a:1", &by(&[&key])).await, Ok(1));
    let tag = format!("PUT /v2/a/manifests/{}", Reference::referrers_tag(&pushed.digest));
    fake.fails(move |asked| (asked.line == tag).then(|| text(201, "")));
    let mut session = session(&format!("{}/a:1", fake.address), user());
    let resolved = session.resolve(MOST).await.unwrap();
    let failure = session.sign(&resolved, &super::key()).await.unwrap_err();
    assert!(failure.message.contains("somebody else keeps writing sha256-"), "{failure}");
}

#[tokio::test]
async fn whatever_refers_to_a_component_what_is_looked_at_of_it_is_bounded() {
    // SG-6
    let fake = Fake::start(Door::Open).await;
    let pushed = push(&fake, "a:1", COMPONENT).await;
    let key = key();
    let config = Descriptor { media_type: referrers::EMPTY.to_owned(), digest: Digest::sha256(b"{}"), size: 2 };
    let (mut list, mut layers) = (Vec::new(), Vec::new());
    for number in 0..3_000 {
        let layer = Bytes::from(number.to_string());
        let part = Descriptor {
            media_type: bundle::BUNDLE.to_owned(),
            digest: Digest::sha256(&layer),
            size: layer.len() as u64,
        };
        let manifest = referrers::manifest(&part, &config, &config.digest);
        let digest = Digest::sha256(&manifest);
        list.push(json!({ "mediaType": MANIFEST, "digest": digest, "size": 1 }));
        layers.push(json!(part));
        fake.keep(&format!("a/{}", part.digest), layer);
        fake.keep(&format!("a@{digest}"), manifest);
    }
    let [tag, old] =
        [Reference::referrers_tag, Reference::signatures_tag].map(|tag| format!("a:{}", tag(&pushed.digest)));
    fake.keep(&tag, json!({ "manifests": list }).to_string());
    fake.keep(&old, json!({ "layers": layers }).to_string());
    fake.asked();
    let failure = signed(&fake, "a:1", &by(&[&key])).await.unwrap_err();
    let asked = fake.asked().len();
    assert!(failure.message.ends_with("and 125 more that are not good, and 5872 not looked at"), "{failure}");
    assert_eq!(asked, 1 + 1 + 1 + 64 + 64 + 1 + 64);
    // One list that is as long as none may be, and one signature.
    let huge = json!({ "manifests": [], "annotations": { "a": "x".repeat(5 << 20) } }).to_string();
    fake.keep(&tag, huge);
    let failure = signed(&fake, "a:1", &by(&[&key])).await.unwrap_err();
    assert_eq!(failure, Failure::new(Kind::Wrong, "the manifest has more than 4194304 bytes"));
    let part = Descriptor { size: LONGEST as u64 + 1, ..config.clone() };
    fake.keep(&tag, json!({ "manifests": [] }).to_string());
    fake.keep(
        &old,
        json!({ "layers": [{ "mediaType": bundle::BUNDLE, "digest": part.digest, "size": part.size }] }).to_string(),
    );
    let failure = signed(&fake, "a:1", &by(&[&key])).await.unwrap_err();
    assert!(failure.message.ends_with("found none"), "{failure}");
}

#[tokio::test]
async fn a_registry_that_fails_is_no_proof_that_something_is_not_signed() {
    // SG-4, SG-5
    let (fake, key) = (Fake::start(Door::Open).await, key());
    push(&fake, "a:1", COMPONENT).await;
    let referrer = sign(&fake, "a:1", &key).await;
    let of_manifest = format!("/manifests/{referrer}");
    for (of, status, kind) in [
        ("/referrers/", 500, Kind::Away),
        ("/referrers/", 403, Kind::Denied),
        ("/manifests/sha256-", 429, Kind::Away),
        (of_manifest.as_str(), 503, Kind::Away),
        (of_manifest.as_str(), 404, Kind::Unsigned),
    ] {
        let of_it = of.to_owned();
        fake.fails(move |asked| asked.line.contains(&of_it).then(|| text(status, "")));
        let failure = signed(&fake, "a:1", &by(&[&key])).await.unwrap_err();
        assert_eq!(failure.kind, kind, "{of} {status}: {failure}");
    }
    // What it says that knows nothing of referrers.
    for status in [200, 400, 404, 405, 406, 501] {
        fake.fails(move |asked| {
            asked.line.contains("/referrers/").then(|| with(text(status, "<html>"), "content-type", "text/html"))
        });
        assert_eq!(signed(&fake, "a:1", &by(&[&key])).await, Ok(1), "{status}");
    }
}

#[test]
fn a_private_key_is_read_as_openssl_writes_it_and_nothing_of_another_one_is_shown() {
    // SG-7
    let of = |label: &str| format!("-----BEGIN {label}-----\nc2VjcmV0\n-----END {label}-----\n");
    for (text, expected) in [
        (String::new(), "found no PEM; expected a private key in PEM (PKCS#8, ECDSA P-256 or Ed25519)"),
        (of("PRIVATE KEY"), "found a key of another kind; expected"),
        (of("EC PRIVATE KEY"), "found a key that is no PKCS#8, which `openssl pkcs8 -topk8 -nocrypt` makes of it"),
        (of("PUBLIC KEY"), "found a public key; expected"),
        (of("ENCRYPTED SIGSTORE PRIVATE KEY"), "found a key that is encrypted; expected"),
        (of("CERTIFICATE"), "found something else; expected"),
    ] {
        let found = SigningKey::parse(&text).err().unwrap();
        assert!(found.starts_with(expected) && !found.contains("c2VjcmV0"), "{found}");
    }
}

#[tokio::test]
async fn a_list_that_comes_in_pages_is_read_to_its_end_at_the_same_server() {
    // SG-5, SG-6
    let (fake, other, key) = (Fake::start(Door::Bearer).await, Fake::start(Door::Open).await, key());
    fake.lists(true);
    let pushed = push(&fake, "a:1", COMPONENT).await;
    sign(&fake, "a:1", &key).await;
    // Pages of nothing, of which the last one leads to what is right: to that of the path, or of another server.
    let line = format!("GET /v2/a/referrers/{}", pushed.digest);
    let paged = |pages: usize, last: String| {
        let line = line.clone();
        fake.fails(move |asked| {
            let page = match asked.line.strip_prefix(&line)? {
                "" => 0,
                query => query.strip_prefix("?page=")?.parse::<usize>().ok()?,
            };
            let link = if page + 1 < pages { format!("<?page={}>; rel=\"next\"", page + 1) } else { last.clone() };
            (page < pages)
                .then(|| with(with(text(200, r#"{"manifests":[]}"#), "content-type", referrers::INDEX), "link", &link))
        });
    };
    let path = line.trim_start_matches("GET ");
    let right = format!("<{path}?rest>; rel=\"next\"");
    for pages in [1, 3, referrers::PAGES - 1] {
        paged(pages, right.clone());
        fake.asked();
        assert_eq!(signed(&fake, "a:1", &by(&[&key])).await, Ok(1), "{pages}");
        let lists = fake.asked().into_iter().filter(|asked| asked.line.starts_with(&line)).count();
        assert_eq!(lists, pages + 1);
        let mut session = session(&format!("{}/a:1", fake.address), user());
        let resolved = session.resolve(MOST).await.unwrap();
        let (carried, left_out) = session.signatures(&resolved).await.unwrap();
        assert_eq!((carried.len(), left_out), (1, vec![]), "{pages}");
    }
    let unread = "the list of its signatures is not read to its end: it";
    let elsewhere = format!("<http://{}{path}>; rel=next", other.address);
    for (pages, last, expected) in [
        (referrers::PAGES, right, format!("{unread} has more than 16 pages")),
        (1, elsewhere, format!("{unread} goes on at another server, http://{}", other.address)),
    ] {
        paged(pages, last);
        let failure = signed(&fake, "a:1", &by(&[&key])).await.unwrap_err();
        assert!(failure.kind == Kind::Unsigned && failure.message.contains(&expected), "{failure}");
    }
    assert_eq!(other.asked(), []);
}

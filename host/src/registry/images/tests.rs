//! What manifests name in registries, with a registry that does what is right, is away, or does wrong.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use capstan_core::manifest::{ConfigValue, Holder, Verify};

use super::super::SigningKey;
use super::super::tests::fake::{Door, Fake, hanging, text};
use super::super::tests::{key as signing_key, push, sign};
use super::*;

mod rotated;

/// What `docker login` writes for `user` with the password `pass`.
fn config(fake: &Fake) -> Arc<str> {
    config_of(fake, "dXNlcjpwYXNz")
}

/// What `docker login` writes for who is `auth` at a registry.
fn config_of(fake: &Fake, auth: &str) -> Arc<str> {
    format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, fake.address).into()
}

fn images(folder: &Path) -> Images {
    images_signed(folder, None)
}

fn images_signed(folder: &Path, floor: Option<Demand>) -> Images {
    let place = Place { folder: folder.join("components"), key: None, most: 1 << 20 };
    Images::new(Outside::default(), Some(place), Rules { floor, ..Rules::default() })
}

fn key(operator: &str, reference: &str, secret: Option<&str>) -> Key {
    let secret =
        secret.map(|name| ConfigValue { holder: Holder::PullSecret, name: name.into(), key: "x".into(), tenant: None });
    let image = Image {
        reference: Reference::parse(reference).unwrap(),
        pull_secret: secret,
        interval: Duration::from_millis(20),
        insecure: true,
        authority: None,
        verify: None,
        ceiling: Vec::new(),
    };
    (operator.into(), image)
}

impl Images {
    /// Waits until an image is so, and returns how it is.
    async fn until(&self, (operator, image): &Key, what: &str, is: impl Fn(&Seen) -> bool) -> Seen {
        let begun = Instant::now();
        loop {
            let seen = self.seen(operator, image).unwrap();
            if is(&seen) {
                return seen;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}: {seen:?}");
            drop(timeout(Duration::from_millis(20), self.changed()).await);
        }
    }

    async fn component(&self, key: &Key) -> Vec<u8> {
        let seen = self.until(key, "pulled", |seen| seen.known.is_some()).await;
        self.read(&seen.known.unwrap().component).unwrap()
    }
}

#[tokio::test]
async fn what_a_tag_names_anew_is_pulled_and_what_was_good_goes_on_whatever_the_registry_says_later() {
    // OC-6, OC-7
    let (fake, folder) = (Fake::start(Door::Open).await, tempfile::tempdir().unwrap());
    push(&fake, "a:1", b"first").await;
    let images = images(folder.path());
    let key = key("web", &format!("{}/a:1", fake.address), None);
    images.want([key.clone()], |_| None);
    assert_eq!(images.component(&key).await, b"first");
    let second = push(&fake, "a:1", b"second").await;
    let seen =
        images.until(&key, "second", |seen| seen.known.as_ref().is_some_and(|k| k.digest == second.digest)).await;
    assert_eq!(images.read(&seen.known.clone().unwrap().component).unwrap(), b"second");
    // Asked again and again, it says the same, and nothing is pulled.
    fake.asked();
    images.until(&key, "asked", |now| now.checked != seen.checked || !fake.asked().is_empty()).await;
    assert!(fake.asked().iter().all(|asked| asked.line.starts_with("HEAD /v2/a/manifests/1")));
    for status in [401, 403, 404, 429, 500] {
        fake.fails(move |_| Some(text(status, "")));
        let message = format!("({status})");
        images.again();
        let is = |seen: &Seen| seen.problem.as_ref().is_some_and(|problem| problem.message.contains(&message));
        let seen = images.until(&key, &message, is).await;
        assert_eq!(seen.known.unwrap().digest, second.digest);
        assert!(seen.next.is_some());
        assert!(matches!(images.content(&key.0, &key.1), Content::Whole(_)));
    }
    // Nor does what is no component come in its place.
    fake.fails(|asked| Some(text(if asked.line.starts_with("HEAD") { 404 } else { 200 }, "<html>")));
    images.again();
    let is = |seen: &Seen| seen.problem.as_ref().is_some_and(|problem| problem.kind == Kind::Wrong);
    assert_eq!(images.until(&key, "wrong", is).await.known.unwrap().digest, second.digest);
    fake.mends();
    images.again();
    images.until(&key, "mended", |seen| seen.problem.is_none()).await;
}

#[tokio::test]
async fn what_is_never_answered_keeps_no_other_team_from_the_same_registry() {
    // OC-6
    let (fake, folder) = (Fake::start(Door::Open).await, tempfile::tempdir().unwrap());
    push(&fake, "a:1", b"first").await;
    let evil = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&evil);
    fake.fails(move |request| {
        request.line.contains("/evil-").then(|| {
            asked.fetch_add(1, Ordering::SeqCst);
            hanging()
        })
    });
    let images = images(folder.path());
    let never = |n| key(&format!("greedy.{n}"), &format!("{}/evil-{n}:1", fake.address), None);
    let (all, each) = AT_ONCE;
    let same = format!("{}/a:1", fake.address);
    let greedy = || (0..4 * all).map(never).chain([key("greedy.same", &same, None)]);
    images.want(greedy(), |_| None);
    let begun = Instant::now();
    while evil.load(Ordering::SeqCst) < each && begun.elapsed() < Duration::from_secs(20) {
        sleep(Duration::from_millis(5)).await;
    }
    let key = key("web", &same, None);
    images.want(greedy().chain([key.clone()]), |_| None);
    assert_eq!(images.component(&key).await, b"first");
    assert_eq!(evil.load(Ordering::SeqCst), each);
}

#[tokio::test]
async fn what_many_operators_name_at_once_is_pulled_once() {
    // OC-8
    let (fake, folder) = (Fake::start(Door::Open).await, tempfile::tempdir().unwrap());
    push(&fake, "a:1", &vec![7; 1 << 16]).await;
    let images = images(folder.path());
    let keys: Vec<_> = (0..8).map(|n| key(&format!("o{n}"), &format!("{}/a:1", fake.address), None)).collect();
    fake.asked();
    images.want(keys.clone(), |_| None);
    for key in &keys {
        assert_eq!(images.component(key).await.len(), 1 << 16);
    }
    let pulls = fake.asked().into_iter().filter(|asked| asked.line.starts_with("GET /v2/a/blobs/"));
    assert_eq!(pulls.count(), 1);
}

#[tokio::test]
async fn a_registry_that_is_away_stops_no_start_if_what_it_named_last_is_kept() {
    // OC-7
    let (fake, folder) = (Fake::start(Door::Open).await, tempfile::tempdir().unwrap());
    let pushed = push(&fake, "a:1", b"first").await;
    let tag = key("web", &format!("{}/a:1", fake.address), None);
    let pinned = key("web", &format!("{}/a@{}", fake.address, pushed.digest), None);
    let other = key("web", &format!("{}/a:2", fake.address), None);
    {
        let images = images(folder.path());
        images.want([tag.clone(), pinned.clone()], |_| None);
        assert_eq!(images.component(&tag).await, b"first");
        assert_eq!(images.component(&pinned).await, b"first");
    }
    fake.fails(|_| Some(text(503, "")));
    fake.asked();
    let images = images(folder.path());
    images.want([tag.clone(), pinned.clone(), other.clone()], |_| None);
    assert_eq!(images.component(&tag).await, b"first");
    assert_eq!(images.component(&pinned).await, b"first");
    let seen = images.seen(&tag.0, &tag.1).unwrap();
    assert_eq!(seen.problem.unwrap().message, "it fails (503)");
    assert_eq!(images.seen(&pinned.0, &pinned.1).unwrap().problem, None);
    assert!(fake.asked().iter().all(|asked| !asked.line.contains("sha256")));
    // One that nobody has ever seen has nothing to go on with.
    images.until(&other, "failed", |seen| seen.problem.is_some()).await;
    assert_eq!(images.content(&other.0, &other.1), Content::Refused("it fails (503)".into()));
}

#[tokio::test]
async fn what_was_pulled_for_one_operator_is_given_to_no_other_that_has_no_right_to_it() {
    // OC-8
    let (fake, folder) = (Fake::start(Door::Basic).await, tempfile::tempdir().unwrap());
    let pushed = push(&fake, "private/a:1", b"secret").await;
    let reference = format!("{}/private/a@{}", fake.address, pushed.digest);
    let (owner, thief) = (key("owner", &reference, Some("regcred")), key("thief", &reference, None));
    let login = config(&fake);
    let known = move |asked: &Asked| (&*asked.value.name == "regcred").then(|| Ok(login.clone()));
    let images = images(folder.path());
    images.want([owner.clone()], &known);
    assert_eq!(images.component(&owner).await, b"secret");
    images.want([owner.clone(), thief.clone()], &known);
    let seen = images.until(&thief, "refused", |seen| seen.problem.is_some()).await;
    assert_eq!((seen.known, seen.problem.unwrap().kind), (None, Kind::Denied));
    // Nor by a manifest of its own that names the component.
    let manifest = pushed.artifact;
    fake.keep("public/b:1", capstan_core::registry::artifact::manifest(&manifest));
    fake.closes(Door::Open);
    let borrowed = key("thief", &format!("{}/public/b:1", fake.address), None);
    images.want([owner.clone(), borrowed.clone()], &known);
    let seen = images.until(&borrowed, "refused", |seen| seen.problem.is_some()).await;
    assert_eq!(seen.problem.unwrap().message, "it does not have the component (404)");
    // Nor by a registry that says it has what it has not.
    fake.fails(|asked| asked.line.contains("/public/b/blobs/").then(|| text(200, "public")));
    images.again();
    let found = format!("it sends {}", Digest::sha256(b"public"));
    let is = |seen: &Seen| seen.problem.as_ref().is_some_and(|problem| problem.message.starts_with(&found));
    assert_eq!(images.until(&borrowed, "sent", is).await.known, None);
    fake.mends();
    // Another operator with the same right has it, and nothing is pulled again.
    fake.closes(Door::Basic);
    fake.asked();
    let friend = key("friend", &reference, Some("regcred"));
    images.want([owner, friend.clone()], &known);
    assert_eq!(images.component(&friend).await, b"secret");
    assert_eq!(fake.asked(), []);
}

#[tokio::test]
async fn a_secret_that_is_not_given_is_an_error_of_its_own_and_nobody_is_asked_in_nobodys_name() {
    // OC-3
    let (fake, folder) = (Fake::start(Door::Open).await, tempfile::tempdir().unwrap());
    push(&fake, "a:1", b"first").await;
    let images = images(folder.path());
    let key = key("web", &format!("{}/a:1", fake.address), Some("regcred"));
    fake.asked();
    images.want([key.clone()], |_| None);
    assert_eq!(images.content(&key.0, &key.1), Content::Pulled);
    images.want([key.clone()], |_| Some(Err("there is none in the namespace home".into())));
    let seen = images.until(&key, "refused", |seen| seen.problem.is_some()).await;
    let expected = "pullSecret: Secret regcred: there is none in the namespace home";
    assert_eq!(seen.problem.unwrap().message, expected);
    assert_eq!(fake.asked(), []);
    images.want([key.clone()], |_| Some(Ok(config(&fake))));
    assert_eq!(images.component(&key).await, b"first");
}

#[tokio::test]
async fn one_bad_registry_holds_up_no_other_and_one_without_tls_is_asked_only_if_that_is_permitted() {
    // OC-4, OC-5
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hangs = silent.local_addr().unwrap();
    let (fake, folder) = (Fake::start(Door::Open).await, tempfile::tempdir().unwrap());
    push(&fake, "a:1", b"first").await;
    let bad = (0..9).map(|number| key("bad", &format!("{hangs}/a:{number}"), None));
    let elsewhere = key("far", "registry.example.com:5000/a:1", None);
    let good = key("web", &format!("{}/a:1", fake.address), None);
    let images = images(folder.path());
    images.want(bad.chain([elsewhere.clone(), good.clone()]), |_| None);
    assert_eq!(images.component(&good).await, b"first");
    let seen = images.until(&elsewhere, "refused", |seen| seen.problem.is_some()).await;
    assert_eq!(seen.problem.unwrap().message, ONLY_HERE);
}

#[test]
fn what_is_in_use_is_kept_whatever_it_takes_and_what_is_damaged_is_not_used() {
    // OC-7
    let folder = tempfile::tempdir().unwrap();
    let place = Place { folder: folder.path().join("components"), key: None, most: 100 };
    let kept = Kept::at(&place).unwrap();
    let [first, second, third] = [1, 2, 3].map(|byte| Digest::of(&[byte; 32]));
    let draft = || {
        let draft = kept.draft().unwrap();
        io::Write::write_all(&mut draft.file(), &[7; 60]).unwrap();
        draft
    };
    let keep = |digest: &Digest, in_use: &[&Digest]| {
        Kept::keep(draft(), digest).unwrap();
        let components = in_use.iter().chain(&[digest]).map(|digest| (*digest).clone()).collect();
        kept.make_room(&InUse { components, ..InUse::default() });
    };
    keep(&first, &[]);
    let begun = draft();
    keep(&second, &[&first]);
    assert!(kept.has(&first) && kept.has(&second));
    keep(&third, &[&first]);
    assert_eq!((kept.has(&first), kept.has(&second), kept.has(&third)), (true, false, true));
    Kept::keep(begun, &second).unwrap();
    assert!(kept.has(&second), "what is being written is not removed by what others keep");
    assert_eq!(kept.read(&first).unwrap(), [7; 60]);
    let file = place.folder.join(format!("{}.wasm", first.hex()));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[5] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert!(!kept.has(&first) && kept.read(&first).is_err());
}

#[test]
fn what_is_remembered_of_references_in_use_stays_however_many_others_there_are() {
    // OC-7: as credentials come and go, there are many.
    let folder = tempfile::tempdir().unwrap();
    let kept = Kept::at(&Place { folder: folder.path().join("components"), key: None, most: 1000 }).unwrap();
    let digest = Digest::of(&[1; 32]);
    Kept::keep(kept.draft().unwrap(), &digest).unwrap();
    let known = Known { digest: digest.clone(), component: digest, signed: Vec::new() };
    let right = |number: usize| {
        let user = Credentials::User { name: "a".to_owned(), password: number.to_string() };
        Right::of(&Reference::parse("r.io/a:1").unwrap(), false, &[user])
    };
    (0..1100).for_each(|number| kept.remember(&right(number), &known));
    kept.make_room(&InUse {
        components: BTreeSet::from([known.component.clone()]),
        rights: BTreeSet::from([right(0)]),
    });
    assert_eq!([0, 1, 1099].map(|number| kept.known(&right(number)).is_some()), [true, false, true]);
}

#[tokio::test]
async fn what_is_lost_or_damaged_is_pulled_again_when_it_is_needed() {
    // OC-7
    let (fake, folder) = (Fake::start(Door::Open).await, tempfile::tempdir().unwrap());
    let pushed = push(&fake, "a:1", b"first").await;
    let images = images(folder.path());
    for name in ["a:1".to_owned(), format!("a@{}", pushed.digest)] {
        let key = key("web", &format!("{}/{name}", fake.address), None);
        images.want([key.clone()], |_| None);
        assert_eq!(images.component(&key).await, b"first");
        let component = images.seen(&key.0, &key.1).unwrap().known.unwrap().component;
        std::fs::remove_file(folder.path().join(format!("components/{}.wasm", component.hex()))).unwrap();
        images.read(&component).unwrap_err();
        assert_eq!(images.component(&key).await, b"first", "{name}");
    }
}

#[tokio::test]
async fn what_is_to_start_without_its_registry_is_not_removed_for_want_of_room() {
    // OC-7: one registry is silent while another gives something new.
    let (fake, folder) = (Fake::start(Door::Open).await, tempfile::tempdir().unwrap());
    let place = Place { folder: folder.path().join("components"), key: None, most: 1500 };
    let images = || Images::new(Outside::default(), Some(place.clone()), Rules::default());
    push(&fake, "a:1", &[1; 1000]).await;
    push(&fake, "b:1", &[2; 1000]).await;
    let [a, b] = ["a:1", "b:1"].map(|name| key("web", &format!("{}/{name}", fake.address), None));
    {
        let images = images();
        images.want([a.clone(), b.clone()], |_| None);
        images.component(&a).await;
        images.component(&b).await;
    }
    push(&fake, "b:1", &[3; 1000]).await;
    fake.fails(|asked| asked.line.contains("/a/").then(|| text(503, "")));
    let images = images();
    images.want([a.clone(), b.clone()], |_| None);
    let is_new = |seen: &Seen| seen.known.is_some() && seen.problem.is_none();
    images.until(&b, "pulled", is_new).await;
    assert_eq!(images.component(&a).await, [1; 1000]);
}

/// Returns the same key, whose image has to be signed by one of these.
fn verified((operator, image): &Key, keys: &[&SigningKey]) -> Key {
    let keys = keys.iter().map(|key| key.key().clone()).collect();
    (Arc::clone(operator), Image { verify: Some(Verify { keys, signed_as: Vec::new() }), ..image.clone() })
}

fn floor(key: &SigningKey) -> Demand {
    Demand { whose: "--verify-key", keys: vec![key.key().clone()], signed_as: Vec::new() }
}

fn is_unsigned(seen: &Seen) -> bool {
    seen.problem.as_ref().is_some_and(|problem| problem.kind == Kind::Unsigned)
}

#[tokio::test]
async fn what_is_not_signed_is_never_in_force_and_what_was_goes_on_until_it_is() {
    // SG-1, SG-4
    let (fake, folder, signer) = (Fake::start(Door::Open).await, tempfile::tempdir().unwrap(), signing_key());
    push(&fake, "a:1", b"first").await;
    let images = images(folder.path());
    let key = verified(&key("web", &format!("{}/a:1", fake.address), None), &[&signer]);
    images.want([key.clone()], |_| None);
    images.until(&key, "unsigned", is_unsigned).await;
    assert!(matches!(images.content(&key.0, &key.1), Content::Refused(_)));
    // No part of it was pulled.
    assert!(fake.asked().iter().all(|asked| !asked.line.starts_with("GET /v2/a/blobs/")));
    sign(&fake, "a:1", &signer).await;
    assert_eq!(images.component(&key).await, b"first");
    let first = images.until(&key, "signed", |seen| seen.problem.is_none()).await.known.unwrap();
    assert_eq!(first.signed[0].key, *signer.key().digest());
    // One that somebody else has signed.
    push(&fake, "a:1", b"second").await;
    sign(&fake, "a:1", &signing_key()).await;
    images.again();
    assert_eq!(images.until(&key, "unsigned", is_unsigned).await.known, Some(first));
    sign(&fake, "a:1", &signer).await;
    images.again();
    images.until(&key, "signed", |seen| seen.problem.is_none()).await;
    assert_eq!(images.component(&key).await, b"second");
}

#[tokio::test]
async fn what_the_daemon_demands_holds_beside_what_an_operator_demands() {
    // SG-1
    let (fake, folder) = (Fake::start(Door::Open).await, tempfile::tempdir().unwrap());
    let (platform, author) = (signing_key(), signing_key());
    push(&fake, "a:1", b"first").await;
    let images = images_signed(folder.path(), Some(floor(&platform)));
    let plain = key("plain", &format!("{}/a:1", fake.address), None);
    let own = verified(&key("own", &format!("{}/a:1", fake.address), None), &[&author]);
    images.want([plain.clone(), own.clone()], |_| None);
    for key in [&plain, &own] {
        let seen = images.until(key, "unsigned", is_unsigned).await;
        assert!(seen.problem.unwrap().message.contains("of --verify-key"));
    }
    sign(&fake, "a:1", &author).await;
    images.again();
    images
        .until(&own, "asked", |seen| is_unsigned(seen) && seen.problem.as_ref().unwrap().message.contains("one by"))
        .await;
    assert_eq!(images.seen(&plain.0, &plain.1).unwrap().known, None);
    sign(&fake, "a:1", &platform).await;
    images.again();
    assert_eq!(images.component(&plain).await, b"first");
    assert_eq!(images.component(&own).await, b"first");
}

#[tokio::test]
async fn what_was_signed_by_a_key_that_is_still_good_starts_without_the_registry_and_nothing_else_does() {
    // SG-4
    let (fake, folder) = (Fake::start(Door::Open).await, tempfile::tempdir().unwrap());
    let (old, new) = (signing_key(), signing_key());
    let pushed = push(&fake, "a:1", b"first").await;
    let [tag, pinned] = [":1".to_owned(), format!("@{}", pushed.digest)]
        .map(|name| key("web", &format!("{}/a{name}", fake.address), None));
    sign(&fake, "a:1", &old).await;
    let keys = |keys: &[&SigningKey]| [verified(&tag, keys), verified(&pinned, keys)];
    {
        let images = images(folder.path());
        images.want(keys(&[&old]), |_| None);
        for key in keys(&[&old]) {
            assert_eq!(images.component(&key).await, b"first");
        }
    }
    fake.fails(|_| Some(text(503, "")));
    for (wanted, floor, is_there) in [
        (keys(&[&old]), None, true),
        (keys(&[&new, &old]), None, true),
        (keys(&[&new]), None, false),
        (keys(&[&old]), Some(floor(&new)), false),
    ] {
        let images = images_signed(folder.path(), floor);
        images.want(wanted.clone(), |_| None);
        for key in &wanted {
            let seen = images.until(key, "asked", |seen| seen.known.is_some() || seen.problem.is_some()).await;
            assert_eq!(seen.known.is_some(), is_there, "{key:?}");
        }
    }
}

/// Returns images of a registry that has these mirrors, each without TLS.
fn mirrored(folder: &Path, entries: &[String]) -> Images {
    let place = Place { folder: folder.join("components"), key: None, most: 1 << 20 };
    let entries: Vec<_> = entries.iter().map(|entry| mirror::Entry::parse(entry).unwrap()).collect();
    let mirrors = Mirrors::of(&entries).unwrap();
    Images::new(Outside::default(), Some(place), Rules { mirrors, ..Rules::default() })
}

#[tokio::test]
async fn a_mirror_is_asked_first_and_who_asks_the_registry_is_unknown_to_it() {
    // MR-1, MR-2, MR-3
    let (origin, first, second) =
        (Fake::start(Door::Basic).await, Fake::start(Door::Open).await, Fake::start(Door::Open).await);
    push(&origin, "org/a:1", b"of the registry").await;
    push(&second, "m/org/a:1", b"of the mirror").await;
    second.asked();
    let folder = tempfile::tempdir().unwrap();
    let entries = [format!("{}={}", origin.address, first.address), format!("{}={}/m", origin.address, second.address)];
    let images = mirrored(folder.path(), &entries);
    let key = key("a", &format!("{}/org/a:1", origin.address), Some("secret"));
    let secret = config(&origin);
    // Mirrors on this machine are spoken to without TLS only where the platform says so.
    images.want([key.clone()], |_| Some(Ok(secret.clone())));
    let seen = images.until(&key, "pulled", |seen| seen.known.is_some()).await;
    assert_eq!(images.read(&seen.known.unwrap().component).unwrap(), b"of the registry");
    assert_eq!((seen.mirror, first.asked().len(), second.asked().len()), (None, 0, 0));
    drop(images);

    let images = mirrored(folder.path(), &entries);
    let insecure = BTreeSet::from([first.address.clone(), second.address.clone()]);
    let rules = Rules { insecure, mirrors: images.0.rules.mirrors.clone(), ..Rules::default() };
    let place = Place { folder: folder.path().join("others"), key: None, most: 1 << 20 };
    let images = Images::new(Outside::default(), Some(place), rules);
    images.want([key.clone()], |_| Some(Ok(secret.clone())));
    let seen = images.until(&key, "pulled", |seen| seen.known.is_some()).await;
    assert_eq!(images.read(&seen.known.unwrap().component).unwrap(), b"of the mirror");
    assert_eq!(seen.mirror.as_deref(), Some(second.address.as_str()));
    let asked = [first.asked(), second.asked()].concat();
    assert!(asked.iter().any(|asked| asked.line == "GET /v2/org/a/manifests/1"), "{asked:?}");
    assert!(asked.iter().all(|asked| asked.who.is_none()), "{asked:?}");
    // A mirror that fails leaves it to the registry, and one that is back is asked again.
    second.fails(|_| Some(text(503, "")));
    let seen = images.until(&key, "the registry", |seen| seen.mirror.is_none()).await;
    assert_eq!(images.read(&seen.known.unwrap().component).unwrap(), b"of the registry");
    second.mends();
    images.until(&key, "the mirror", |seen| seen.mirror.is_some()).await;
    origin.closes(Door::Bearer);
    second.fails(|_| Some(text(404, "")));
    origin.fails(|_| Some(text(500, "")));
    let seen = images.until(&key, "what nobody has", |seen| seen.problem.is_some()).await;
    let message = seen.problem.unwrap().message;
    assert!(message.starts_with(&format!("{}: it fails (500); before that, mirrors: ", origin.address)), "{message}");
    // What was good goes on.
    assert!(seen.known.is_some());
}

#[tokio::test]
async fn what_a_mirror_has_is_signed_for_the_registry_and_else_it_is_not_taken() {
    // MR-3
    let (origin, copy, signer) = (Fake::start(Door::Open).await, Fake::start(Door::Open).await, signing_key());
    push(&origin, "a:1", b"component").await;
    sign(&origin, "a:1", &signer).await;
    push(&copy, "a:1", b"another").await;
    sign(&copy, "a:1", &signer).await;
    let folder = tempfile::tempdir().unwrap();
    let demand = Demand { whose: "--verify-key", keys: vec![signer.key().clone()], signed_as: Vec::new() };
    let entry = mirror::Entry::parse(&format!("{}={}", origin.address, copy.address)).unwrap();
    let rules = Rules {
        floor: Some(demand),
        insecure: BTreeSet::from([copy.address.clone()]),
        mirrors: Mirrors::of(&[entry]).unwrap(),
        ..Rules::default()
    };
    let place = Place { folder: folder.path().join("components"), key: None, most: 1 << 20 };
    let images = Images::new(Outside::default(), Some(place), rules);
    let key = key("a", &format!("{}/a:1", origin.address), None);
    images.want([key.clone()], |_| None);
    // It is signed there, but for the name of the mirror.
    let seen = images.until(&key, "pulled", |seen| seen.known.is_some()).await;
    assert_eq!((images.read(&seen.known.unwrap().component).unwrap(), seen.mirror), (b"component".to_vec(), None));
    // As a mirror has it that copies the repository.
    for name in origin.names() {
        copy.keep(&name, origin.kept(&name).unwrap());
    }
    let seen = images.until(&key, "the mirror", |seen| seen.mirror.is_some()).await;
    assert_eq!(images.read(&seen.known.unwrap().component).unwrap(), b"component");
}

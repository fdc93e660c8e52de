//! Components that are carried with their signatures from one registry to another, each of which lists what refers to something, or does not.

use capstan_core::registry::layout::{self, Item, Listed, Load, Signatures, To};
use capstan_core::registry::signature::simple;
use capstan_core::registry::{Digest, artifact, referrers};
use serde_json::{Value, json};

use super::fake::{Door, Fake, text};
use super::*;
use signed::{by, key, sign, signed};

/// Gets a component with its signatures, as it is loaded to a name elsewhere.
async fn saved(fake: &Fake, name: &str, to: &str) -> Result<(Load, Vec<String>), Failure> {
    let mut session = session(&format!("{}/{name}", fake.address), user());
    let resolved = session.resolve(MOST).await?;
    let (signatures, left_out) = session.signatures(&resolved).await?;
    let listed = |descriptor: &artifact::Descriptor, name: Option<String>| Listed {
        descriptor: descriptor.clone(),
        name,
        artifact_type: None,
    };
    let (digest, size) = (resolved.digest.clone(), resolved.manifest.len() as u64);
    let media_type = resolved.media_type.clone();
    let component = listed(&artifact::Descriptor { media_type, digest, size }, Some("a".to_owned()));
    let mut items = vec![Item { listed: component, manifest: resolved.manifest }];
    items.extend(signatures.iter().map(|Signatures { carried, tag }| Item {
        listed: listed(&carried.descriptor, tag.clone()),
        manifest: carried.manifest.clone(),
    }));
    let mut plan = layout::plan(items, &To::Only(Reference::parse(to).unwrap()), MOST).unwrap();
    assert_eq!(plan.left_out, Vec::<String>::new());
    Ok((plan.all.remove(0), left_out))
}

/// Puts that there, with the parts that the first registry has in a repository.
async fn load(from: (&Fake, &str), load: &Load) {
    let mut session = session(&load.to.to_string(), user());
    let signatures = load.signatures.iter().flat_map(|signatures| &signatures.carried.parts);
    for part in [&load.artifact.config, &load.artifact.layer].into_iter().chain(signatures) {
        let bytes = from.0.kept(&format!("{}/{}", from.1, part.digest)).unwrap();
        session.upload(part, bytes).await.unwrap();
    }
    session.put_component(load).await.unwrap();
    for signatures in &load.signatures {
        session.put_signatures(load, signatures).await.unwrap();
    }
}

/// Puts a signature beside a component as those before cosign 3 did, for whoever looks no further than its place.
fn sign_by_tag(fake: &Fake, digest: &Digest) {
    let (payload, config) = (&b"{}"[..], &b"{ }"[..]);
    let part = |kind: &str, bytes: &[u8]| json!({ "mediaType": kind, "digest": Digest::sha256(bytes).to_string(), "size": bytes.len() });
    let mut layer = part(simple::PAYLOAD, payload);
    layer["annotations"] = json!({ simple::SIGNATURE: "AA==" });
    let manifest = json!({ "schemaVersion": 2, "config": part("x", config), "layers": [layer] });
    fake.keep(&format!("org/a:{}", Reference::signatures_tag(digest)), manifest.to_string());
    for bytes in [payload, config] {
        fake.keep(&format!("org/a/{}", Digest::sha256(bytes)), bytes);
    }
}

#[tokio::test]
async fn what_was_signed_verifies_after_it_was_carried_whichever_of_the_registries_lists_signatures() {
    // LY-1, LY-4
    for (from_lists, to_lists) in [(true, true), (true, false), (false, true), (false, false)] {
        let (from, to) = (Fake::start(Door::Bearer).await, Fake::start(Door::Basic).await);
        from.lists(from_lists);
        to.lists(to_lists);
        let (first, second, other) = (key(), key(), key());
        let pushed = push(&from, "org/a:1", COMPONENT).await;
        sign(&from, "org/a:1", &first).await;
        sign(&from, "org/a:1", &second).await;
        sign_by_tag(&from, &pushed.digest);
        let (plan, left_out) = saved(&from, "org/a:1", &format!("{}/b/a:2", to.address)).await.unwrap();
        assert_eq!((plan.signatures.len(), left_out), (3, vec![]));
        load((&from, "org/a"), &plan).await;
        for key in [&first, &second] {
            let mut demands = by(&[key]);
            // They say the name that it had.
            assert_eq!(signed(&to, "b/a:2", &demands).await.unwrap_err().kind, Kind::Unsigned);
            demands.all[0].signed_as = vec![format!("{}/org/a", from.address).into()];
            assert!(signed(&to, "b/a:2", &demands).await.is_ok(), "{from_lists} {to_lists}");
        }
        assert_eq!(signed(&to, "b/a:2", &by(&[&other])).await.unwrap_err().kind, Kind::Unsigned);
        let tag = format!("b/a:{}", Reference::signatures_tag(&pushed.digest));
        assert_eq!(to.kept(&tag), from.kept(&tag.replace("b/a", "org/a")));
        // What lists them by tag says what they are, and is only where nothing else does.
        let list = to.kept(&format!("b/a:{}", Reference::referrers_tag(&pushed.digest)));
        assert_eq!(list.is_none(), to_lists);
        if let Some(list) = list {
            let list: Value = serde_json::from_slice(&list).unwrap();
            assert_eq!(list["manifests"][1]["artifactType"], "application/vnd.dev.sigstore.bundle.v0.3+json");
        }
        // A second time changes nothing.
        load((&from, "org/a"), &plan).await;
        let (again, _) = saved(&to, "b/a:2", &plan.to.to_string()).await.unwrap();
        assert_eq!(again.signatures.len(), 3);
    }
}

#[tokio::test]
async fn a_signature_that_nobody_can_get_is_said_and_a_registry_that_fails_is_no_component_without_signatures() {
    // LY-1
    let (fake, key) = (Fake::start(Door::Open).await, key());
    let pushed = push(&fake, "org/a:1", COMPONENT).await;
    sign(&fake, "org/a:1", &key).await;
    let list = fake.kept(&format!("org/a:{}", Reference::referrers_tag(&pushed.digest))).unwrap();
    let (digest, to) = (referrers::listed(&list).unwrap().0.remove(0), format!("{}/b:1", fake.address));
    let of = digest.to_string();
    for (status, expected) in [(404, None), (503, Some(Kind::Away)), (403, Some(Kind::Denied))] {
        let of = of.clone();
        fake.fails(move |asked| asked.line.ends_with(&of).then(|| text(status, "")));
        match (saved(&fake, "org/a:1", &to).await, expected) {
            (Ok((load, left_out)), None) => {
                assert_eq!(load.signatures, []);
                assert_eq!(left_out, [format!("{digest}: it does not have the signature (404)")]);
            }
            (Err(failure), Some(kind)) => assert_eq!(failure.kind, kind),
            (found, _) => panic!("{status}: {found:?}"),
        }
    }
}

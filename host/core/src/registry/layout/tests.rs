//! What stands in a layout, and what of it goes where.

use serde_json::{Value, json};

use super::super::artifact::{CONFIG, LAYER};
use super::super::signature::bundle::BUNDLE;
use super::super::signature::simple;
use super::*;

fn digest(byte: u8) -> Digest {
    Digest::of(&[byte; 32])
}

fn part(media_type: &str, byte: u8) -> Value {
    json!({ "mediaType": media_type, "digest": digest(byte).to_string(), "size": 9 })
}

fn item(name: Option<&str>, manifest: &Value) -> Item {
    let manifest = manifest.to_string().into_bytes();
    let media_type = MANIFEST.to_owned();
    let descriptor = Descriptor { media_type, digest: Digest::sha256(&manifest), size: manifest.len() as u64 };
    Item { listed: Listed { descriptor, name: name.map(str::to_owned), artifact_type: None }, manifest }
}

/// Returns a component whose bytes have this digest.
fn component(name: Option<&str>, byte: u8) -> Item {
    item(name, &json!({ "schemaVersion": 2, "config": part(CONFIG, 1), "layers": [part(LAYER, byte)] }))
}

/// Returns a bundle that refers to a component.
fn bundle(of: &Item) -> Item {
    let subject = json!({ "mediaType": MANIFEST, "digest": of.listed.descriptor.digest.to_string(), "size": 9 });
    let config = part("application/vnd.oci.empty.v1+json", 2);
    item(None, &json!({ "artifactType": BUNDLE, "config": config, "layers": [part(BUNDLE, 3)], "subject": subject }))
}

/// Returns signatures of before cosign 3, under this name.
fn signatures(name: &str, byte: u8) -> Item {
    let mut layer = part(simple::PAYLOAD, byte);
    layer["annotations"] = json!({ simple::SIGNATURE: "AA==" });
    item(Some(name), &json!({ "config": part(CONFIG, 4), "layers": [layer] }))
}

fn below(prefix: &str) -> To {
    To::Below(Prefix::parse(prefix).unwrap())
}

/// Says what goes where, with how many manifests of signatures, and how many of them by tag.
fn told(items: Vec<Item>, to: &To) -> Result<Vec<String>, String> {
    let Plan { all, left_out } = plan(items, to, 100)?;
    let told = all.iter().map(|load| {
        let by_tag = load.signatures.iter().filter(|signatures| signatures.tag.is_some()).count();
        format!("{} {}/{}", load.to, load.signatures.len(), by_tag)
    });
    Ok(told.chain(left_out.into_iter().map(|why| format!("left out: {why}"))).collect())
}

#[test]
fn a_path_names_a_part_or_nothing_and_none_leads_out() {
    // LY-2
    let blob = path(&digest(7));
    for (path, expected) in [
        ("oci-layout", Ok(Place::Mark)),
        ("./index.json", Ok(Place::List)),
        (blob.as_str(), Ok(Place::Blob(digest(7)))),
        ("blobs/", Ok(Place::Other)),
        ("blobs/sha256/12", Ok(Place::Other)),
        ("blobs/sha512/12", Ok(Place::Other)),
        ("manifest.json", Ok(Place::Other)),
        ("a..b", Ok(Place::Other)),
        ("../index.json", Err("`../index.json` leads out of it; expected paths within")),
        ("blobs/../../x", Err("`blobs/../../x` leads out of it; expected paths within")),
        ("/etc/passwd", Err("`/etc/passwd` leads out of it; expected paths within")),
    ] {
        assert_eq!(place(path), expected.map_err(str::to_owned), "{path}");
    }
}

#[test]
fn what_is_listed_is_read_again_and_another_layout_is_refused() {
    // LY-1, LY-2
    let reference = |text: &str| Reference::parse(text).unwrap();
    let pinned = format!("r.io/a@{}", digest(1));
    assert_eq!(name(&reference("r.io/a:1")), "r.io/a:1");
    assert_eq!(name(&reference(&format!("r.io/a:1@{}", digest(1)))), "r.io/a:1");
    assert_eq!(name(&reference(&pinned)), pinned);
    let descriptor = Descriptor { media_type: MANIFEST.to_owned(), digest: digest(1), size: 2 };
    let all = [
        Listed { descriptor: descriptor.clone(), name: Some("r.io/a:1".to_owned()), artifact_type: None },
        Listed { descriptor, name: None, artifact_type: Some(BUNDLE.to_owned()) },
    ];
    let written = write_list(&all);
    assert_eq!(read_list(&written).unwrap(), all);
    let shown: Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(shown["manifests"][0]["annotations"], json!({ "org.opencontainers.image.ref.name": "r.io/a:1" }));
    assert_eq!((&shown["schemaVersion"], &shown["mediaType"]), (&json!(2), &json!(INDEX)));
    let many = vec![part(MANIFEST, 1); MOST + 1];
    for (text, expected) in [
        (json!({ "manifests": many }).to_string(), "`index.json` lists 1025 manifests; at most 1024 are taken"),
        ("{}".to_owned(), "`index.json` is no index of manifests, from line 1, column 2: missing field `manifests`"),
        (r#"{"manifests":[{"mediaType":"a","digest":"md5:1","size":1}]}"#.to_owned(), "`md5:1` is no digest"),
        ("<".to_owned(), "`index.json` is no index of manifests, from line 1, column 1"),
    ] {
        let found = read_list(text.as_bytes()).unwrap_err();
        assert!(found.contains(expected), "{found}");
    }
    assert_eq!(read_mark(MARK_TEXT), Ok(()));
    assert_eq!(
        read_mark(br#"{"imageLayoutVersion":"2.0.0"}"#).unwrap_err(),
        "it is a layout of version `2.0.0`; expected 1.0.0"
    );
    assert_eq!(read_mark(b"{}").unwrap_err(), "`oci-layout` says no `imageLayoutVersion`; expected 1.0.0");
}

#[test]
fn each_component_goes_below_the_prefix_or_the_only_one_where_it_is_said() {
    // LY-3
    let (to, only) = (below("in.io:5000/mirror/"), To::Only(Reference::parse("in.io/b:2").unwrap()));
    let a = || component(Some("ghcr.io/org/a:1"), 7);
    let pinned = format!("ghcr.io/org/a@{}", a().listed.descriptor.digest);
    for (items, to, expected) in [
        (vec![a()], &to, Ok(vec!["in.io:5000/mirror/org/a:1 0/0"])),
        (
            vec![component(Some("docker.io/a:1"), 7), component(Some("ghcr.io/b:1"), 8)],
            &to,
            Ok(vec!["in.io:5000/mirror/library/a:1 0/0", "in.io:5000/mirror/b:1 0/0"]),
        ),
        (vec![a()], &only, Ok(vec!["in.io/b:2 0/0"])),
        (vec![component(None, 7)], &only, Ok(vec!["in.io/b:2 0/0"])),
        (vec![component(Some("1.2"), 7)], &only, Ok(vec!["in.io/b:2 0/0"])),
        (
            vec![component(Some("1.2"), 7)],
            &to,
            Err("`1.2` does not say of which repository it is; expected --to REFERENCE"),
        ),
        (vec![a(), component(Some("ghcr.io/b:1"), 8)], &only, Err("there are 2 components in it, and --to takes one")),
        (
            vec![a(), component(Some("docker.io/org/a:1"), 8)],
            &to,
            Err("ghcr.io/org/a:1 and docker.io/org/a:1 would both become in.io:5000/mirror/org/a:1"),
        ),
        (vec![a(), a()], &to, Ok(vec!["in.io:5000/mirror/org/a:1 0/0", "in.io:5000/mirror/org/a:1 0/0"])),
        (vec![component(Some(&pinned), 8)], &to, Err("what would be written is sha256:")),
        (vec![], &to, Err("there is no component in it; found nothing")),
        (
            vec![item(Some("x"), &json!({ "config": part("a", 1), "layers": [part("text/plain", 1)] }))],
            &to,
            Err("there is no component in it; found `x`: found one layer `text/plain`"),
        ),
    ] {
        match (told(items, to), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
            (found, expected) => panic!("{found:?}; expected {expected:?}"),
        }
    }
    let by_digest = told(vec![component(Some(&pinned), 7)], &to).unwrap();
    assert_eq!(by_digest, [format!("in.io:5000/mirror/org/a@{} 0/0", a().listed.descriptor.digest)]);
}

#[test]
fn signatures_go_with_the_component_that_they_are_of_and_with_no_other() {
    // LY-1, LY-3
    let (a, b) = (component(Some("ghcr.io/org/a:1"), 7), component(Some("ghcr.io/org/b:1"), 8));
    let again = component(Some("ghcr.io/other/a:1"), 7);
    let tag = Reference::signatures_tag(&a.listed.descriptor.digest);
    let (to, only) = (below("in.io"), To::Only(Reference::parse("in.io/x:1").unwrap()));
    let by_tag = |repository: &str, byte| signatures(&format!("ghcr.io/{repository}:{tag}"), byte);
    let found = told(vec![bundle(&a), by_tag("org/a", 5), a.clone(), b.clone()], &to);
    assert_eq!(found.unwrap(), ["in.io/org/a:1 2/1", "in.io/org/b:1 0/0"]);
    // Where the same component is in two repositories, what is under a tag is of one.
    let found = told(vec![a.clone(), again, bundle(&a), by_tag("org/a", 5)], &to);
    assert_eq!(found.unwrap(), ["in.io/org/a:1 2/1", "in.io/other/a:1 1/0"]);
    let found = told(vec![a.clone(), signatures(&tag, 5)], &only);
    assert_eq!(found.unwrap(), ["in.io/x:1 1/1"]);
    let found = told(vec![b, bundle(&a), by_tag("org/a", 5)], &to).unwrap();
    assert_eq!(found[0], "in.io/org/b:1 0/0");
    assert!(found[1..].iter().all(|why| why.ends_with("it signs nothing that is in the file")), "{found:?}");
    assert_eq!(found.len(), 3);
}

#[test]
fn a_prefix_is_a_registry_with_a_path_or_without() {
    // LY-3
    for (text, expected) in [
        ("in.io", Ok("in.io")),
        ("in.io:5000/", Ok("in.io:5000")),
        ("127.0.0.1:5000/a/b", Ok("127.0.0.1:5000/a/b")),
        ("mirror", Err("the host of the registry is missing")),
        ("in.io/a:1", Err("expected a prefix without tag or digest")),
        ("https://in.io", Err("expected no `https://`")),
        ("in.io/A", Err("`A/a` is no repository")),
        ("", Err("the host of the registry is missing")),
    ] {
        match (Prefix::parse(text), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found.0, expected),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{text}: {found}"),
            (found, expected) => panic!("{text}: {found:?}; expected {expected:?}"),
        }
    }
}

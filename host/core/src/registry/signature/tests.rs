//! Signatures made here, each wrong in one thing.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use ring::signature::Ed25519KeyPair;
use ring::signature::KeyPair as _;
use serde_json::{Value, json};

use super::*;

const MANIFEST: &[u8] = b"{\"schemaVersion\":2}";

struct Signer(Ed25519KeyPair, Key);

impl Signer {
    fn new(seed: u8) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
        let key = Key::ed25519(pair.public_key().as_ref().try_into().unwrap());
        Self(pair, key)
    }

    fn signature(&self, message: &[u8]) -> String {
        STANDARD.encode(self.0.sign(message))
    }

    /// Returns a bundle as it is right, of a statement that may not be.
    fn bundle(&self, statement: &[u8]) -> Value {
        let bundle = bundle::write(statement, self.0.sign(&bundle::message(statement)).as_ref(), &self.1);
        serde_json::from_slice(&bundle).unwrap()
    }

    fn simple(&self, payload: &str) -> Document {
        Document::Simple { payload: payload.into(), signature: self.signature(payload.as_bytes()) }
    }
}

fn document(bundle: &Value) -> Document {
    Document::Bundle(bundle.to_string().into_bytes())
}

/// Returns a bundle with one thing in it changed.
fn with(bundle: &Value, pointer: &str, value: Value) -> Document {
    let mut bundle = bundle.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = bundle.pointer_mut(parent).unwrap();
    match name.parse::<usize>() {
        Ok(at) => parent[at] = value,
        Err(_) => parent[name] = value,
    }
    document(&bundle)
}

#[track_caller]
fn rejected(document: &Document, key: &Key, expected: &str) {
    let digest = Digest::sha256(MANIFEST);
    let subject = Subject { digest: &digest, manifest: MANIFEST };
    let found = document.verify(subject, [key].into_iter()).unwrap_err();
    assert!(found.contains(expected), "{found}\n{expected}");
}

#[test]
fn a_bundle_is_good_if_its_key_has_signed_this_digest_and_what_else_it_may_say_is_said_of_it() {
    // SG-2, SG-3
    let (signer, digest) = (Signer::new(1), Digest::sha256(MANIFEST));
    let subject = Subject { digest: &digest, manifest: MANIFEST };
    let (key, others) = (&signer.1, Signer::new(2).1);
    let verify = |document: &Document| document.verify(subject, [&others, key].into_iter());
    let statement = bundle::statement("r.io/a", &digest);
    let good = signer.bundle(&statement);
    let signed = Signed { key: key.digest().clone(), name: Some("r.io/a".to_owned()) };
    assert_eq!(verify(&document(&good)), Ok(signed.clone()));
    // As for URLs, which JSON of protocol buffers may have.
    let sig = STANDARD.decode(good["dsseEnvelope"]["signatures"][0]["sig"].as_str().unwrap()).unwrap();
    assert_eq!(verify(&with(&good, "/dsseEnvelope/signatures/0/sig", json!(URL_SAFE.encode(sig)))), Ok(signed));
    // A signature of the manifest's bytes.
    let mut message = good.clone();
    message.as_object_mut().unwrap().remove("dsseEnvelope");
    message["messageSignature"] = json!({ "messageDigest": {}, "signature": signer.signature(MANIFEST) });
    assert_eq!(verify(&document(&message)), Ok(Signed { key: key.digest().clone(), name: None }));
    let hint = format!("by another key, as it says sha256:{}…", &key.digest().hex()[..16]);
    rejected(&document(&message), &others, &hint);
    rejected(&document(&good), &others, &hint);
    let none = with(&good, "/verificationMaterial/publicKey/hint", json!("who knows"));
    assert_eq!(none.verify(subject, [&others].into_iter()), Err("by another key".to_owned()));
    // The key is found by its signature, whatever the bundle says.
    assert!(verify(&none).is_ok());
    let other = signer.signature(b"other");
    let forged = with(&message, "/messageSignature/signature", json!(other));
    rejected(&forged, key, "that names the key sha256:");
}

#[test]
fn a_bundle_that_is_anything_else_is_refused_with_what_was_found() {
    // SG-2, SG-6
    let (signer, digest) = (Signer::new(1), Digest::sha256(MANIFEST));
    let key = &signer.1;
    let good = signer.bundle(&bundle::statement("", &digest));
    let payload = json!(STANDARD.encode(bundle::statement("", &Digest::sha256(b"other"))));
    for (pointer, value, expected) in [
        ("/mediaType", json!("application/vnd.dev.sigstore.bundle+json;version=0.1"), "expected `application/vnd.dev"),
        ("/mediaType", json!(7), "that is no bundle"),
        (
            "/verificationMaterial",
            json!({ "certificate": { "rawBytes": "AA==" } }),
            "by a certificate; expected one by a key",
        ),
        ("/dsseEnvelope", Value::Null, "with neither `dsseEnvelope` nor `messageSignature`"),
        ("/messageSignature", json!({ "signature": "" }), "with `dsseEnvelope` and `messageSignature`"),
        ("/dsseEnvelope/signatures", json!([]), "with 0 signatures in its envelope; expected 1"),
        ("/dsseEnvelope/signatures", json!([{ "sig": "" }, { "sig": "" }]), "with 2 signatures in its envelope"),
        ("/dsseEnvelope/signatures/0/sig", json!("…"), "with what is no base64"),
        ("/dsseEnvelope/signatures/0/sig", json!(""), "but is not by it"),
        ("/dsseEnvelope/payload", json!("…"), "with what is no base64"),
        ("/dsseEnvelope/payload", payload, "but is not by it"),
        ("/dsseEnvelope/payloadType", json!("text/plain"), "but is not by it"),
    ] {
        rejected(&with(&good, pointer, value), key, expected);
    }
    rejected(&Document::Bundle(b"[".repeat(100_000)), key, "that is no bundle, from line 1, column 1");
    rejected(&Document::Bundle(good.to_string()[..99].into()), key, "that is no bundle");
}

#[test]
fn what_is_signed_is_a_statement_that_this_digest_is_signed_and_no_other_statement() {
    // SG-2
    let (signer, digest) = (Signer::new(1), Digest::sha256(MANIFEST));
    let right: Value = serde_json::from_slice(&bundle::statement("", &digest)).unwrap();
    let sbom = "https://spdx.dev/Document";
    for (field, value, expected) in [
        ("_type", json!("https://in-toto.io/Statement/v2"), "of a `https://in-toto.io/Statement/v2`; expected of a"),
        ("predicateType", json!(sbom), "that is an attestation, `https://spdx.dev/Document`; expected a signature"),
        ("subject", json!([]), "of nothing; expected of sha256:"),
        ("subject", json!([{ "digest": { "sha512": "00" } }]), "of sha512:00; expected of sha256:"),
        ("subject", json!([{ "digest": { "sha256": Digest::sha256(b"other").hex() } }]), "; expected of sha256:"),
        ("subject", json!(digest.to_string()), "of what is no statement of in-toto"),
    ] {
        let mut statement = right.clone();
        statement[field] = value;
        rejected(&document(&signer.bundle(statement.to_string().as_bytes())), &signer.1, expected);
    }
    let message = b"DSSEv1 4 text 2 {} ".as_slice();
    let text = json!({
        "payload": STANDARD.encode("{}"), "payloadType": "text", "signatures": [{ "sig": signer.signature(message.trim_ascii_end()) }],
    });
    let good = signer.bundle(right.to_string().as_bytes());
    rejected(
        &with(&good, "/dsseEnvelope", text),
        &signer.1,
        "of a `text`; expected of a `application/vnd.in-toto+json`",
    );
}

#[test]
fn a_signature_of_the_older_format_is_good_if_its_text_names_this_digest() {
    // SG-2, SG-3
    let (signer, digest) = (Signer::new(1), Digest::sha256(MANIFEST));
    let text = |name: &str, digest: &str, kind: &str| {
        let identity = json!({ "docker-reference": name });
        let critical = json!({ "identity": identity, "image": { "docker-manifest-digest": digest }, "type": kind });
        json!({ "critical": critical, "optional": null }).to_string()
    };
    let (right, kind) = (digest.to_string(), "cosign container image signature");
    let subject = Subject { digest: &digest, manifest: MANIFEST };
    let signed = |name: Option<&str>| Signed { key: signer.1.digest().clone(), name: name.map(str::to_owned) };
    for (name, kind, expected) in [
        ("r.io/a", kind, signed(Some("r.io/a"))),
        ("", kind, signed(None)),
        ("", "atomic container signature", signed(None)),
    ] {
        let found = signer.simple(&text(name, &right, kind)).verify(subject, [&signer.1].into_iter());
        assert_eq!(found, Ok(expected));
    }
    let other = Digest::sha256(b"other").to_string();
    rejected(&signer.simple(&text("", &other, kind)), &signer.1, &format!("of {other}; expected of {right}"));
    rejected(&signer.simple(&text("", &right, "x\n")), &signer.1, r"of a `x\n`; expected of a `cosign container");
    rejected(&signer.simple("{}"), &signer.1, "of what is no `application/vnd.dev.cosign.simplesigning.v1+json`");
    rejected(&signer.simple(&text("", &right, kind)), &Signer::new(2).1, "by another key");
    let forged = Document::Simple { payload: text("", &right, kind).into(), signature: signer.signature(b"other") };
    rejected(&forged, &signer.1, "by another key");
    let broken = Document::Simple { payload: Vec::new(), signature: "…".to_owned() };
    rejected(&broken, &signer.1, "that is no base64");
}

fn by(seed: u8, name: Option<&str>) -> Signed {
    Signed { key: Signer::new(seed).1.digest().clone(), name: name.map(str::to_owned) }
}

#[test]
fn each_demand_is_met_by_one_of_its_keys_for_the_right_name_and_none_by_what_another_one_demands() {
    // SG-1, SG-3
    let key = |seed| Signer::new(seed).1;
    let own = Demand { whose: "component.verify", keys: vec![key(1), key(2)], signed_as: vec!["old.io/page".into()] };
    let floor = Demand { whose: "--verify-key", keys: vec![key(3)], signed_as: vec![] };
    let reference = Reference::parse("r.io/org/page:1").unwrap();
    let right = Some("r.io/org/page");
    let demands = |all: &[&Demand]| Demands { all: all.iter().map(|demand| (*demand).clone()).collect() };
    for (all, signed, expected) in [
        (demands(&[]), vec![], ""),
        (demands(&[&own]), vec![], "by one of the keys of component.verify (KEY1, KEY2); found none"),
        (demands(&[&own]), vec![by(2, None)], ""),
        (demands(&[&own]), vec![by(2, right)], ""),
        (demands(&[&own]), vec![by(2, Some("r.io/org/page:2"))], ""),
        (demands(&[&own]), vec![by(2, Some("old.io/page"))], ""),
        (
            demands(&[&own]),
            vec![by(2, Some("r.io/org/other"))],
            "found one for the name r.io/org/other; expected r.io/org/page, or r.io/org/other in component.verify.signedAs",
        ),
        (demands(&[&own]), vec![by(2, Some("page"))], "found one for the name page; expected r.io/org/page"),
        (demands(&[&own]), vec![by(3, None)], "found one by KEY3, which is not of component.verify"),
        (
            demands(&[&own, &floor]),
            vec![by(1, None)],
            "by the key of --verify-key (KEY3); found one by KEY1, which is not of --verify-key",
        ),
        (demands(&[&own, &floor]), vec![by(3, None)], "by one of the keys of component.verify"),
        (demands(&[&own, &floor]), vec![by(3, None), by(1, right)], ""),
        // No manifest says for which names the keys of others are good.
        (demands(&[&own, &floor]), vec![by(1, right), by(3, right)], ""),
        (
            demands(&[&own, &floor]),
            vec![by(1, Some("old.io/page")), by(3, Some("old.io/page"))],
            "by the key of --verify-key (KEY3); found one for the name old.io/page; expected r.io/org/page: a copy elsewhere is good for them under its first name, by a mirror",
        ),
    ] {
        let shown = |text: String, seed: u8| text.replace(&format!("KEY{seed}"), &short(key(seed).digest()));
        let expected = (1..=3).fold(expected.to_owned(), shown);
        let found = Found { signed: signed.clone(), ..Found::default() };
        let judged = all.judge(&reference, &found).err().unwrap_or_default();
        assert!(judged.contains(&expected) && judged.is_empty() == expected.is_empty(), "{judged}\n{expected}");
        assert_eq!(all.are_met(&reference, &signed), expected.is_empty());
    }
}

#[test]
fn what_is_told_of_bad_signatures_is_bounded() {
    // SG-6
    let demands = Demands { all: vec![Demand { whose: "it", keys: vec![Signer::new(1).1], signed_as: Vec::new() }] };
    let reference = Reference::parse("r.io/a:1").unwrap();
    for (kinds, left_out, expected) in [
        (0, 7, "found none; 7 that may be some were not looked at"),
        (1, 0, "found one of kind 0"),
        (9, 0, "found one of kind 0; one of kind 1; one of kind 2; and 6 more that are not good"),
        (9, 7, "one of kind 2; and 6 more that are not good, and 7 not looked at"),
    ] {
        let rejected = (0..kinds).map(|kind| format!("of kind {kind}")).collect();
        let said = demands.judge(&reference, &Found { rejected, left_out, ..Found::default() }).unwrap_err();
        assert!(said.ends_with(expected), "{said}");
    }
}

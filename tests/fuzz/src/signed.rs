//! Signatures, and lists of them, as whoever writes to a registry may have put them there.

use capstan_core::registry::signature::{Document, Key, LONGEST, Subject};
use capstan_core::registry::{Digest, referrers};

use crate::bounded::within_bounds;

/// What nobody has signed.
const MANIFEST: &[u8] = b"{}";

/// What is said of something signed is read or refused, and by nobody's key nothing is signed.
pub fn signatures(data: &[u8]) {
    let data = data.get(..LONGEST).unwrap_or(data);
    let text = String::from_utf8_lossy(data);
    let keys = [Key::ed25519([7; 32]), Key::p256([7; 64])];
    let digest = Digest::of(&[7; 32]);
    let subject = Subject { digest: &digest, manifest: MANIFEST };
    within_bounds(|| {
        // Some of the same bytes in each place that has some.
        let statement = serde_json::json!({ "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": { "publicKey": { "hint": text } },
            "dsseEnvelope": { "payload": text, "payloadType": text, "signatures": [{ "sig": text }] } });
        let simple = Document::Simple { payload: data.to_vec(), signature: text.clone().into_owned() };
        for document in [Document::Bundle(data.to_vec()), Document::Bundle(statement.to_string().into()), simple] {
            let found = document.verify(subject, keys.iter());
            assert!(found.is_err_and(|why| !why.is_empty() && why.len() < 1_024));
        }
        if let Ok((digests, _)) = referrers::listed(data) {
            assert!(digests.len() <= referrers::MOST);
        }
        assert!(referrers::parts(data).0.len() <= referrers::MOST);
        if let Ok(key) = Key::parse(&text) {
            assert!(!key.has_signed(MANIFEST, data));
        }
    });
}

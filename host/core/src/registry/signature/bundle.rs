//! Reads and writes bundles of Sigstore: what a key has signed about the manifest of a component.
//!
//! A bundle holds an envelope (DSSE) around a statement (in-toto) that names the digest, or a signature of the bytes themselves.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::{Digest, Key, Signed, Subject, by_none, of_another};
use crate::text::said_within;

/// The media type of a bundle.
pub const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// What a statement is, and what this one states: that its subject is signed.
const STATEMENT: &str = "https://in-toto.io/Statement/v1";
const STATEMENT_TOO: &str = "https://in-toto.io/Statement/v0.1";
const PAYLOAD: &str = "application/vnd.in-toto+json";
/// What the statement of a signature says it is.
pub const PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";

/// The most characters that are shown of what others call something.
const SHOWN: usize = 100;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    media_type: String,
    verification_material: Material,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dsse_envelope: Option<Envelope>,
    #[serde(default, skip_serializing)]
    message_signature: Option<Message>,
}

/// How the signature is to be verified, as far as that is heeded: a certificate says nothing to those who have keys.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    public_key: Option<Hint>,
}

#[derive(Serialize, Deserialize)]
struct Hint {
    #[serde(default)]
    hint: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<Signature>,
}

#[derive(Serialize, Deserialize)]
struct Signature {
    sig: String,
}

#[derive(Deserialize)]
struct Message {
    signature: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<About>,
    predicate_type: String,
    #[serde(default, skip_deserializing)]
    predicate: Nothing,
}

/// What else a statement says: nothing.
#[derive(Default, Serialize)]
struct Nothing {}

#[derive(Serialize, Deserialize)]
struct About {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
    digest: BTreeMap<String, String>,
}

/// Holds a bundle against keys, and returns what it says of the subject.
///
/// # Errors
/// Why it is no good signature of it by one of them: the end of a sentence that begins with "one".
pub fn verify<'a>(
    bundle: &[u8],
    subject: Subject<'_>,
    keys: impl Iterator<Item = &'a Key> + Clone,
) -> Result<Signed, String> {
    let bundle: Bundle = serde_json::from_slice(bundle).map_err(|error| {
        format!("that is no bundle, from line {}, column {}; expected `{BUNDLE}`", error.line(), error.column())
    })?;
    if bundle.media_type != BUNDLE {
        return Err(format!("that is `{}`; expected `{BUNDLE}`", said_within(&bundle.media_type, SHOWN)));
    }
    let Some(Hint { hint }) = bundle.verification_material.public_key else {
        return Err("by a certificate; expected one by a key (`cosign sign --key`)".to_owned());
    };
    let signer = |message: &[u8], signature: &str| signer(message, signature, &hint, keys);
    match (bundle.dsse_envelope, bundle.message_signature) {
        (Some(envelope), None) => {
            let [Signature { sig }] = envelope.signatures.as_slice() else {
                return Err(format!("with {} signatures in its envelope; expected 1", envelope.signatures.len()));
            };
            let payload = decoded(&envelope.payload)?;
            let key = signer(&encoded(&envelope.payload_type, &payload), sig)?;
            Ok(Signed { key, name: stated(&envelope.payload_type, &payload, subject.digest)? })
        }
        (None, Some(Message { signature })) => Ok(Signed { key: signer(subject.manifest, &signature)?, name: None }),
        (None, None) => Err("with neither `dsseEnvelope` nor `messageSignature`; expected one of them".to_owned()),
        (Some(_), Some(_)) => Err("with `dsseEnvelope` and `messageSignature`; expected one of them".to_owned()),
    }
}

/// Returns the statement that a manifest with this digest is signed, under the name of its repository.
pub fn statement(name: &str, digest: &Digest) -> Vec<u8> {
    let about =
        About { name: name.to_owned(), digest: BTreeMap::from([("sha256".to_owned(), digest.hex().to_owned())]) };
    let statement = Statement {
        kind: STATEMENT.to_owned(),
        subject: vec![about],
        predicate_type: PREDICATE.to_owned(),
        predicate: Nothing {},
    };
    serde_json::to_vec(&statement).unwrap_or_default()
}

/// Returns what is signed of a statement.
pub fn message(statement: &[u8]) -> Vec<u8> {
    encoded(PAYLOAD, statement)
}

/// Returns the bundle of a statement and the signature of its message by a key.
pub fn write(statement: &[u8], signature: &[u8], key: &Key) -> Vec<u8> {
    let hint = STANDARD.encode(key.digest().bytes());
    let bundle = Bundle {
        media_type: BUNDLE.to_owned(),
        verification_material: Material { public_key: Some(Hint { hint }) },
        dsse_envelope: Some(Envelope {
            payload: STANDARD.encode(statement),
            payload_type: PAYLOAD.to_owned(),
            signatures: vec![Signature { sig: STANDARD.encode(signature) }],
        }),
        message_signature: None,
    };
    serde_json::to_vec(&bundle).unwrap_or_default()
}

/// Returns the digest of the key by which a message is signed.
fn signer<'a>(
    message: &[u8],
    signature: &str,
    hint: &str,
    keys: impl Iterator<Item = &'a Key> + Clone,
) -> Result<Digest, String> {
    let signature = decoded(signature)?;
    let found = keys.clone().find(|key| key.has_signed(message, &signature));
    // What it says of the key is only for people: who has signed is found out by trying.
    let hinted = STANDARD.decode(hint).ok().filter(|hint| hint.len() == 32).map(|hint| Digest::of(&hint));
    found.map(|key| key.digest().clone()).ok_or_else(|| by_none(keys, hinted.as_ref()))
}

/// Returns the name under which a statement says that the subject is signed, if it says one.
fn stated(kind: &str, payload: &[u8], subject: &Digest) -> Result<Option<String>, String> {
    if kind != PAYLOAD {
        return Err(format!("of a `{}`; expected of a `{PAYLOAD}`", said_within(kind, SHOWN)));
    }
    let statement: Statement =
        serde_json::from_slice(payload).map_err(|_| "of what is no statement of in-toto".to_owned())?;
    if !matches!(statement.kind.as_str(), STATEMENT | STATEMENT_TOO) {
        return Err(format!("of a `{}`; expected of a `{STATEMENT}`", said_within(&statement.kind, SHOWN)));
    }
    if statement.predicate_type != PREDICATE {
        let found = said_within(&statement.predicate_type, SHOWN);
        return Err(format!("that is an attestation, `{found}`; expected a signature, `{PREDICATE}`"));
    }
    let sha256 = |about: &&About| about.digest.get("sha256").is_some_and(|hex| hex == subject.hex());
    if let Some(About { name, .. }) = statement.subject.iter().find(sha256) {
        return Ok(Some(name.clone()).filter(|name| !name.is_empty()));
    }
    let first = statement.subject.first().and_then(|about| about.digest.iter().next());
    let found = first.map_or_else(|| "nothing".to_owned(), |(kind, hex)| format!("{kind}:{hex}"));
    Err(of_another(&found, subject))
}

/// Returns the bytes of base64 that is either the usual one or that for URLs, as JSON of protocol buffers may have both.
fn decoded(text: &str) -> Result<Vec<u8>, String> {
    let usual = text.replace('-', "+").replace('_', "/");
    STANDARD.decode(usual).map_err(|_| "with what is no base64".to_owned())
}

/// Returns what an envelope signs of its payload ("pre-authentication encoding" of DSSE).
fn encoded(kind: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

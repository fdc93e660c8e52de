//! Reads signatures as cosign 2 and those before wrote them: a text of "simple signing", whose signature stands beside it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{Digest, Key, Signed, by_none, of_another};
use crate::text::said_within;

/// The media type of the text, and where its signature stands.
pub const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation of the layer that has the signature, in base64.
pub const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// What the text says that it is.
const KINDS: [&str; 2] = ["cosign container image signature", "atomic container signature"];

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    #[serde(default)]
    identity: Identity,
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Identity {
    #[serde(default)]
    docker_reference: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Image {
    docker_manifest_digest: String,
}

/// Holds a text and its signature against keys, and returns what they say of what has this digest.
///
/// # Errors
/// Why they are no good signature of it by one of them: the end of a sentence that begins with "one".
pub fn verify<'a>(
    (payload, signature): (&[u8], &str),
    subject: &Digest,
    mut keys: impl Iterator<Item = &'a Key> + Clone,
) -> Result<Signed, String> {
    let signature = STANDARD.decode(signature).map_err(|_| format!("with a `{SIGNATURE}` that is no base64"))?;
    let key = keys.find(|key| key.has_signed(payload, &signature)).ok_or_else(|| by_none(keys, None))?;
    let Payload { critical: Critical { identity, image, kind } } =
        serde_json::from_slice(payload).map_err(|_| format!("of what is no `{PAYLOAD}`"))?;
    if !KINDS.contains(&kind.as_str()) {
        return Err(format!("of a `{}`; expected of a `{}`", said_within(&kind, 100), KINDS[0]));
    }
    if image.docker_manifest_digest != subject.to_string() {
        return Err(of_another(&image.docker_manifest_digest, subject));
    }
    let name = Some(identity.docker_reference).filter(|name| !name.is_empty());
    Ok(Signed { key: key.digest().clone(), name })
}

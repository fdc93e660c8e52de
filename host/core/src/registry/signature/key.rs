//! Reads public keys, and finds that a signature is by one of them.

use std::fmt;
use std::sync::Arc;

use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};

use super::pem;
use crate::registry::Digest;
use crate::text::said_within;

/// What is expected.
pub const WHAT: &str = "a public key in PEM (ECDSA P-256, Ed25519, or RSA of 2048 to 8192 bits), as `cosign public-key` and `openssl pkey -pubout` write it";

/// The most bytes of a key's text.
pub const LONGEST: usize = 16 << 10;

/// What stands before the point of a key on P-256, and before an Ed25519 key.
const P256: &[u8] =
    b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00\x04";
const EDWARDS: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";
/// What says that a key is RSA, and that it is on a curve.
const RSA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
const CURVE: &[u8] = b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01";

/// Bytes of a coordinate on P-256, and of an Ed25519 key; bits of the modulus of an RSA key.
const POINT: usize = 32;
const BITS: [usize; 2] = [2048, 8192];

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;

/// A public key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// That of the `SubjectPublicKeyInfo`, as cosign calls keys, too.
    digest: Digest,
    kind: Kind,
    bytes: Arc<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    P256,
    Ed25519,
    Rsa,
}

impl Key {
    /// Reads a key in PEM.
    ///
    /// # Errors
    /// What was found, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("found {} bytes; expected {WHAT}", text.len()));
        }
        let (label, der) = pem::read(text).map_err(|found| format!("{found}; expected {WHAT}"))?;
        if label.contains("PRIVATE") {
            return Err(format!("found a private key, which is for nobody else to see; expected {WHAT}"));
        }
        if label != "PUBLIC KEY" {
            return Err(format!("found {}; expected {WHAT}", said_within(label, 40)));
        }
        Self::of_info(&der).map_err(|found| format!("found {found}; expected {WHAT}"))
    }

    /// Returns an Ed25519 key.
    pub fn ed25519(key: [u8; POINT]) -> Self {
        let digest = Digest::sha256(&[EDWARDS, &key].concat());
        Self { digest, kind: Kind::Ed25519, bytes: key.into() }
    }

    /// Returns a key on P-256, of its coordinates.
    pub fn p256(x_and_y: [u8; 2 * POINT]) -> Self {
        let digest = Digest::sha256(&[P256, &x_and_y].concat());
        Self { digest, kind: Kind::P256, bytes: [&[4], &x_and_y[..]].concat().into() }
    }

    /// Returns the digest of the key.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Whether it is Ed25519.
    pub fn is_ed25519(&self) -> bool {
        self.kind == Kind::Ed25519
    }

    /// Whether a signature of a message is by this key.
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithms: &[&'static dyn VerificationAlgorithm] = match self.kind {
            Kind::P256 => &[&ECDSA_P256_SHA256_ASN1],
            Kind::Ed25519 => &[&ED25519],
            Kind::Rsa => &[&RSA_PKCS1_2048_8192_SHA256, &RSA_PSS_2048_8192_SHA256],
        };
        let key = |algorithm| UnparsedPublicKey::new(algorithm, &self.bytes);
        algorithms.iter().any(|algorithm| key(*algorithm).verify(message, signature).is_ok())
    }

    /// Reads a `SubjectPublicKeyInfo`.
    fn of_info(der: &[u8]) -> Result<Self, String> {
        let point = |prefix: &[u8]| der.strip_prefix(prefix);
        if let Some(Ok(point)) = point(P256).map(<[u8; 2 * POINT]>::try_from) {
            return Ok(Self::p256(point));
        }
        if let Some(Ok(point)) = point(EDWARDS).map(<[u8; POINT]>::try_from) {
            return Ok(Self::ed25519(point));
        }
        let damaged = || "a public key that is damaged".to_owned();
        let (info, rest) = element(SEQUENCE, der).ok_or_else(damaged)?;
        let (algorithm, info) = element(SEQUENCE, info).ok_or_else(damaged)?;
        if algorithm.starts_with(CURVE) {
            return Err("a key on another curve than P-256, or one whose point is compressed".to_owned());
        }
        if algorithm != RSA {
            return Err("a key of another kind".to_owned());
        }
        let (bits, end) = element(BIT_STRING, info).ok_or_else(damaged)?;
        let key = bits.strip_prefix(&[0]).filter(|_| rest.is_empty() && end.is_empty()).ok_or_else(damaged)?;
        let bits = modulus(key).ok_or_else(damaged)?;
        let [least, most] = BITS;
        if !(least..=most).contains(&bits) {
            return Err(format!("an RSA key of {bits} bits"));
        }
        Ok(Self { digest: Digest::sha256(der), kind: Kind::Rsa, bytes: key.into() })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.digest)
    }
}

impl fmt::Display for Key {
    /// Writes the digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digest.fmt(f)
    }
}

/// Returns how many bits the modulus of an RSA key has.
fn modulus(key: &[u8]) -> Option<usize> {
    let (key, _) = element(SEQUENCE, key)?;
    let (number, _) = element(INTEGER, key)?;
    let number = number.strip_prefix(&[0]).unwrap_or(number);
    let first = number.first()?;
    Some(number.len() * 8 - usize::try_from(first.leading_zeros()).ok()?)
}

/// Returns the content of the element with this tag that DER begins with, and what is behind it.
fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let [found, length, rest @ ..] = der else {
        return None;
    };
    let (length, rest) = match length {
        0..0x80 => (usize::from(*length), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), rest.get(2..)?),
        0x80 | 0x83.. => return None,
    };
    (*found == tag).then(|| rest.split_at_checked(length)).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::vectors::{ED25519, OTHER, P256, RSA};
    use super::*;

    #[test]
    fn keys_are_read_as_cosign_and_openssl_write_them_and_all_else_is_refused_with_what_was_found() {
        // SG-2
        for (vector, kind) in [(&P256, Kind::P256), (&ED25519, Kind::Ed25519), (&RSA, Kind::Rsa), (&OTHER, Kind::P256)]
        {
            let key = Key::parse(vector.key).unwrap();
            assert_eq!((key.kind, key.digest().hex()), (kind, vector.digest));
        }
        let of = |label: &str, body: &str| format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
        let two = format!("{0}{0}", P256.key);
        let cut = P256.key.replace("-----END", "-----");
        let long = " ".repeat(LONGEST + 1);
        for (text, expected) in [
            ("", "found no PEM; expected a public key in PEM (ECDSA P-256"),
            ("cosign.pub", "found no PEM"),
            (long.as_str(), "found 16385 bytes"),
            (two.as_str(), "found more than one block of PEM"),
            (cut.as_str(), "found PEM of which the end of PUBLIC KEY is missing"),
            (&of("PUBLIC KEY", "AAA"), "found PUBLIC KEY that is damaged"),
            (&of("PUBLIC KEY", ""), "found a public key that is damaged"),
            (&of("PUBLIC KEY", "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE"), "found a public key that is damaged"),
            (&of("ENCRYPTED SIGSTORE PRIVATE KEY", "AAAA"), "found a private key, which is for nobody else to see"),
            (&of("CERTIFICATE", "AAAA"), "found CERTIFICATE; expected"),
            (super::super::vectors::P384, "found a key on another curve than P-256"),
            (super::super::vectors::RSA_1024, "found an RSA key of 1024 bits"),
            (super::super::vectors::X25519, "found a key of another kind"),
        ] {
            let found = Key::parse(text).unwrap_err();
            assert!(found.starts_with(expected), "{text}: {found}");
        }
    }
}

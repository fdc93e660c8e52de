//! Signs a manifest: puts a bundle beside it that refers to it, as `cosign sign --key` does.

use bytes::Bytes;
use capstan_core::registry::answer::Part;
use capstan_core::registry::artifact::{Descriptor, MANIFEST};
use capstan_core::registry::signature::{Key, bundle, pem};
use capstan_core::registry::{Digest, Failure, Reference, referrers};
use http::{HeaderName, Method};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};

use super::exchange::Ask;
use super::pull::Resolved;
use super::push::described;
use super::{Session, away};

/// What a registry answers with that lists what refers to something by itself.
const LISTED: HeaderName = HeaderName::from_static("oci-subject");

/// How often a list is written again that somebody else has written meanwhile.
const TRIES: usize = 5;

/// What is expected of a key.
const WHAT: &str =
    "a private key in PEM (PKCS#8, ECDSA P-256 or Ed25519), as `openssl genpkey -algorithm ed25519` writes it";

/// A private key.
pub struct SigningKey {
    pair: Pair,
    key: Key,
}

enum Pair {
    P256(EcdsaKeyPair, SystemRandom),
    Ed25519(Ed25519KeyPair),
}

impl SigningKey {
    /// Reads a key in PEM.
    ///
    /// # Errors
    /// What was found, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (label, der) = pem::read(text).map_err(|found| format!("{found}; expected {WHAT}"))?;
        let why = match label {
            "PRIVATE KEY" => "a key of another kind",
            "EC PRIVATE KEY" => "a key that is no PKCS#8, which `openssl pkcs8 -topk8 -nocrypt` makes of it",
            "PUBLIC KEY" => "a public key",
            _ if label.contains("ENCRYPTED") => "a key that is encrypted",
            _ => "something else",
        };
        let random = SystemRandom::new();
        if label == "PRIVATE KEY" {
            if let Ok(pair) = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der, &random)
                && let Some(Ok(point)) = pair.public_key().as_ref().strip_prefix(&[4]).map(TryInto::try_into)
            {
                return Ok(Self { pair: Pair::P256(pair, random), key: Key::p256(point) });
            }
            if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der)
                && let Ok(point) = pair.public_key().as_ref().try_into()
            {
                return Ok(Self { pair: Pair::Ed25519(pair), key: Key::ed25519(point) });
            }
        }
        Err(format!("found {why}; expected {WHAT}"))
    }

    /// Returns the public key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Failure> {
        match &self.pair {
            Pair::P256(pair, random) => {
                let signature =
                    pair.sign(random, message).map_err(|_| away("it can't be signed: there is no chance"))?;
                Ok(signature.as_ref().to_vec())
            }
            Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }
}

impl Session {
    /// Signs what was resolved under the name of its repository, and returns the digest of what refers to it then.
    ///
    /// # Errors
    /// Why it is not signed.
    pub async fn sign(&mut self, resolved: &Resolved, key: &SigningKey) -> Result<Digest, Failure> {
        let statement = bundle::statement(&self.reference.name(), &resolved.digest);
        let signature = key.sign(&bundle::message(&statement))?;
        let bundle = Bytes::from(bundle::write(&statement, &signature, key.key()));
        let config = Bytes::from_static(referrers::NOTHING);
        let (layer, empty) = (described(bundle::BUNDLE, &bundle), described(referrers::EMPTY, &config));
        self.upload(&layer, bundle).await?;
        self.upload(&empty, config).await?;
        let subject = Descriptor {
            media_type: resolved.media_type.clone(),
            digest: resolved.digest.clone(),
            size: resolved.manifest.len() as u64,
        };
        let manifest = Bytes::from(referrers::manifest(&layer, &subject, &empty.digest));
        let referrer = described(MANIFEST, &manifest);
        if !self.put(&referrer.digest.to_string(), manifest, MANIFEST).await? {
            self.list(&resolved.digest, &referrer, bundle::BUNDLE).await?;
        }
        Ok(referrer.digest)
    }

    /// Writes a manifest, and returns whether the registry lists it by itself as what refers to something.
    pub(super) async fn put(&mut self, name: &str, manifest: Bytes, media_type: &'static str) -> Result<bool, Failure> {
        let ask = Ask::new(Method::PUT, self.url(&format!("manifests/{name}"))?, Part::Upload);
        let answer = self.ask(Ask { body: Some((manifest, media_type)), ..ask }).await?;
        Ok(answer.header(&LISTED).is_some())
    }

    /// Adds something to the list of what refers to a manifest, under the tag that stands for that list. Nothing but a second look shows that
    /// nobody else has written it at the same time.
    pub(super) async fn list(
        &mut self,
        subject: &Digest,
        referrer: &Descriptor,
        artifact_type: &str,
    ) -> Result<(), Failure> {
        let tag = Reference::referrers_tag(subject);
        for _ in 0..TRIES {
            let list = self.tagged(&tag).await?;
            match referrers::with(list.as_deref(), referrer, artifact_type).map_err(away)? {
                None => return Ok(()),
                Some(list) => drop(self.put(&tag, list.into(), referrers::INDEX).await?),
            }
        }
        let list = self.tagged(&tag).await?;
        match referrers::with(list.as_deref(), referrer, artifact_type).map_err(away)? {
            None => Ok(()),
            Some(_) => Err(away(format!("somebody else keeps writing {tag}; sign again"))),
        }
    }
}

//! Pulls a component: its manifest by tag once, and all else by the digests that this leads to (OC rules).

use std::io::Write;

use capstan_core::registry::answer::Part;
use capstan_core::registry::artifact::{self, Artifact, Descriptor, Found};
use capstan_core::registry::{Digest, Failure, Kind, Url};
use http::Method;
use http::header::{CONTENT_TYPE, HeaderName};
use ring::digest::{Context, SHA256};

use super::exchange::Ask;
use super::{Session, away, within};

/// The most bytes of a manifest, and of a config.
pub(super) const MANIFEST: usize = 4 << 20;
const CONFIG: usize = 1 << 20;

/// What registries say of the digest of a manifest: a hint.
const HINT: HeaderName = HeaderName::from_static("docker-content-digest");

/// A manifest as it came.
pub(super) struct Came {
    pub(super) bytes: Vec<u8>,
    media_type: Option<String>,
}

/// What a reference names at the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The digest of the manifest.
    pub digest: Digest,
    /// The manifest, or index, itself.
    pub manifest: Vec<u8>,
    /// What it is.
    pub media_type: String,
    /// What it leads to.
    pub artifact: Artifact,
}

impl Session {
    /// Returns what the reference names, where a component may have `most` bytes.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn resolve(&mut self, most: u64) -> Result<Resolved, Failure> {
        let asked = self.reference.asked().to_owned();
        let expected = self.reference.digest().cloned();
        let (digest, came, found) = self.manifest(&asked, expected, most).await?;
        let artifact = match found {
            Found::Artifact(artifact) => artifact,
            // That of the index is what the reference names, and what it leads to is by digest.
            Found::Manifest(Descriptor { digest, .. }) => {
                match self.manifest(&digest.to_string(), Some(digest.clone()), most).await?.2 {
                    Found::Artifact(artifact) => artifact,
                    Found::Manifest(_) => return Err(Failure::new(Kind::Wrong, "found an index within an index")),
                }
            }
        };
        let media_type = artifact::media_type(&came.bytes, came.media_type.as_deref());
        Ok(Resolved { digest, manifest: came.bytes, media_type, artifact })
    }

    /// Whether the registry says that the reference still names this digest. That is a hint: if it says no, or nothing, it is resolved again.
    ///
    /// # Errors
    /// Why nobody knows.
    pub async fn still_names(&mut self, digest: &Digest) -> Result<bool, Failure> {
        let url = self.url(&format!("manifests/{}", self.reference.asked()))?;
        let ask = Ask { accept: Some(artifact::ACCEPT), ..Ask::new(Method::HEAD, url, Part::Manifest) };
        let limit = self.way.patience.answer;
        let answer = within(limit, "the manifest", self.ask(ask)).await?;
        Ok(answer.header(&HINT).is_some_and(|hint| hint == digest.to_string()))
    }

    /// Whether the registry says that it has a part. That is a hint: nothing is sent.
    pub async fn says_to_have(&mut self, part: &Descriptor) -> bool {
        let Ok(url) = self.url(&format!("blobs/{}", part.digest)) else {
            return false;
        };
        let limit = self.way.patience.answer;
        within(limit, "the component", self.ask(Ask::new(Method::HEAD, url, Part::Blob))).await.is_ok()
    }

    /// Writes a part to `out`, no more than it should have. What is written is whole only if this ends well.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn blob(&mut self, part: &Descriptor, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
        let ask = Ask::new(Method::GET, self.url(&format!("blobs/{}", part.digest))?, Part::Blob);
        let limit = self.way.patience.whole;
        let copied = async {
            let mut answer = self.ask(ask).await?;
            let (mut context, mut size) = (Context::new(&SHA256), 0);
            while let Some(more) = answer.next().await? {
                size += more.len() as u64;
                if size > part.size {
                    return Err(away(format!("it sends more than the {} bytes that the manifest says", part.size)));
                }
                context.update(&more);
                out.write_all(&more).map_err(|error| away(format!("it can't be written: {error}")))?;
            }
            if size < part.size {
                return Err(away(format!("it sends {size} of the {} bytes that the manifest says", part.size)));
            }
            let found = Digest::of(context.finish().as_ref());
            if found != part.digest {
                return Err(away(format!("it sends {found}; expected {}", part.digest)));
            }
            Ok(())
        };
        within(limit, "the component", copied).await
    }

    /// Returns the config of an artifact.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn config(&mut self, config: &Descriptor) -> Result<Vec<u8>, Failure> {
        if config.size > CONFIG as u64 {
            return Err(Failure::new(Kind::Wrong, format!("the config has more than {CONFIG} bytes")));
        }
        let mut bytes = Vec::new();
        self.blob(config, &mut bytes).await?;
        Ok(bytes)
    }

    /// Returns a manifest, its digest, and what it leads to.
    async fn manifest(
        &mut self,
        asked: &str,
        expected: Option<Digest>,
        most: u64,
    ) -> Result<(Digest, Came, Found), Failure> {
        let (digest, came) = self.bytes(asked, expected, (Part::Manifest, MANIFEST)).await?;
        let content = artifact::read(&came.bytes, came.media_type.as_deref(), most);
        Ok((digest, came, content.map_err(|why| Failure::new(Kind::Wrong, why))?))
    }

    /// Returns a manifest of at most so many bytes, and its digest, which is of the bytes that came.
    pub(super) async fn bytes(
        &mut self,
        asked: &str,
        expected: Option<Digest>,
        (part, most): (Part, usize),
    ) -> Result<(Digest, Came), Failure> {
        let ask = Ask::new(Method::GET, self.url(&format!("manifests/{asked}"))?, part);
        let ask = Ask { accept: Some(artifact::ACCEPT), ..ask };
        let limit = self.way.patience.answer;
        let answer = within(limit, "the manifest", self.ask(ask)).await?;
        let media_type = answer.header(&CONTENT_TYPE);
        let bytes = answer.bytes(most, "the manifest").await?;
        let found = Digest::sha256(&bytes);
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            return Err(away(format!("it sends a manifest that is {found}; expected {expected}")));
        }
        Ok((found, Came { bytes, media_type }))
    }

    /// Returns the address of something in the repository.
    pub(super) fn url(&self, below: &str) -> Result<Url, Failure> {
        Url::of(&self.reference, self.scheme, below).map_err(away)
    }
}

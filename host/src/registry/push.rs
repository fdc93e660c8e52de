//! Pushes a component: its parts, as far as they are not there, and then the manifest that names them.

use std::collections::BTreeMap;

use bytes::Bytes;
use capstan_core::registry::answer::Part;
use capstan_core::registry::artifact::{self, Artifact, Descriptor, Interfaces};
use capstan_core::registry::{Digest, Failure};
use http::Method;
use http::header::LOCATION;

use super::exchange::Ask;
use super::pull::Resolved;
use super::{Session, away};

/// The media type of what is uploaded.
const BYTES: &str = "application/octet-stream";

/// What is pushed.
#[derive(Debug)]
pub struct Push {
    /// The component.
    pub component: Bytes,
    /// The names of its imports and exports.
    pub interfaces: Interfaces,
    /// What its author says of it.
    pub annotations: BTreeMap<String, String>,
    /// When it was made, in RFC 3339, if somebody says so.
    pub created: Option<String>,
}

impl Session {
    /// Pushes a component under the reference, and returns what that names afterwards.
    ///
    /// # Errors
    /// Why it is not there.
    pub async fn push(&mut self, push: Push) -> Result<Resolved, Failure> {
        let Push { component, interfaces, annotations, created } = push;
        let layer = described(artifact::LAYER, &component);
        let config = Bytes::from(artifact::config(&interfaces, &layer.digest, created));
        let artifact = Artifact { config: described(artifact::CONFIG, &config), layer, annotations };
        self.upload(&artifact.layer, component).await?;
        self.upload(&artifact.config, config).await?;
        let manifest = artifact::manifest(&artifact);
        let digest = described(artifact::MANIFEST, &manifest).digest;
        if let Some(named) = self.reference.digest().filter(|named| **named != digest) {
            return Err(away(format!("what would be written is {digest}; the reference names {named}")));
        }
        let name = self.reference.tag().map_or_else(|| digest.to_string(), str::to_owned);
        self.put(&name, Bytes::copy_from_slice(&manifest), artifact::MANIFEST).await?;
        Ok(Resolved { digest, manifest, media_type: artifact::MANIFEST.to_owned(), artifact })
    }

    /// Uploads a part, unless it is there.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn upload(&mut self, part: &Descriptor, bytes: Bytes) -> Result<(), Failure> {
        if self.says_to_have(part).await {
            return Ok(());
        }
        let begin = Ask::new(Method::POST, self.url("blobs/uploads/")?, Part::Upload);
        let url = begin.url.clone();
        let begun = self.ask(Ask { body: Some((Bytes::new(), BYTES)), ..begin }).await?;
        let location = begun.header(&LOCATION).ok_or_else(|| away("it does not say where to upload to"))?;
        let to = url.follow(&location).map_err(|why| away(format!("where it wants the upload: {why}")))?;
        if !to.same_server(&url) {
            return Err(away(format!("it wants the upload at another server, {}", to.server())));
        }
        let to = to.with(&format!("digest={}", part.digest));
        let put = Ask::new(Method::PUT, to, Part::Upload);
        self.ask(Ask { body: Some((bytes, BYTES)), ..put }).await.map(drop)
    }
}

/// Returns how a manifest names a part.
pub(super) fn described(media_type: &str, bytes: &[u8]) -> Descriptor {
    let digest = Digest::sha256(bytes);
    Descriptor { media_type: media_type.to_owned(), digest, size: bytes.len() as u64 }
}

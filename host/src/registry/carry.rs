//! Carries components from one registry to another: gets the signatures of one as they are, and puts parts and manifests as they are.

use std::collections::BTreeSet;

use bytes::Bytes;
use capstan_core::registry::answer::Part;
use capstan_core::registry::artifact::MANIFEST;
use capstan_core::registry::layout::{Load, Signatures};
use capstan_core::registry::referrers::Carried;
use capstan_core::registry::{Failure, Kind, Reference, referrers};

use super::pull::Resolved;
use super::{Session, signatures, within};

impl Session {
    /// Returns all manifests with signatures of what was resolved, wherever signatures are looked for (`SG-5`), and why others are left out.
    ///
    /// # Errors
    /// Why nobody knows.
    pub async fn signatures(&mut self, resolved: &Resolved) -> Result<(Vec<Signatures>, Vec<String>), Failure> {
        let limit = self.way.patience.whole;
        within(limit, "the search for its signatures", Box::pin(self.collect(resolved))).await
    }

    async fn collect(&mut self, resolved: &Resolved) -> Result<(Vec<Signatures>, Vec<String>), Failure> {
        let (digest, mut all, mut left_out) = (&resolved.digest, Vec::new(), Vec::new());
        let (mut lists, mut pages) = (Vec::new(), self.referrers(digest)?);
        while let Some(page) = pages.next(self).await? {
            lists.push(page);
        }
        left_out.extend(pages.unread());
        lists.extend(self.tagged(&Reference::referrers_tag(digest)).await?);
        let mut seen = BTreeSet::new();
        for list in lists {
            let (digests, more) = referrers::listed(&list).map_err(|why| Failure::new(Kind::Wrong, why))?;
            if more > 0 {
                left_out.push(format!("{more} that refer to it: there are too many"));
            }
            for digest in digests.into_iter().filter(|digest| seen.insert(digest.clone())) {
                let asked = digest.to_string();
                let found = self.bytes(&asked, Some(digest), (Part::Signature, signatures::MANIFEST)).await;
                match found {
                    Ok((_, manifest)) => match Carried::read(MANIFEST, &manifest.bytes) {
                        Ok(Some(carried)) => all.push(Signatures { carried, tag: None }),
                        // Something else that refers to it.
                        Ok(None) => {}
                        Err(why) => left_out.push(format!("{asked}: {why}")),
                    },
                    Err(failure) if matches!(failure.kind, Kind::Missing | Kind::Wrong) => {
                        left_out.push(format!("{asked}: {failure}"));
                    }
                    Err(failure) => return Err(failure),
                }
            }
        }
        let tag = Reference::signatures_tag(digest);
        if let Some(manifest) = self.tagged(&tag).await? {
            match Carried::read(MANIFEST, &manifest) {
                Ok(Some(carried)) => all.push(Signatures { carried, tag: Some(tag) }),
                Ok(None) => {}
                Err(why) => left_out.push(format!("{tag}: {why}")),
            }
        }
        Ok((all, left_out))
    }

    /// Puts the manifest of a component under the reference, all of whose parts are there.
    ///
    /// # Errors
    /// Why it is not there.
    pub async fn put_component(&mut self, load: &Load) -> Result<(), Failure> {
        let name = load.to.tag().map_or_else(|| load.digest.to_string(), str::to_owned);
        self.put(&name, Bytes::copy_from_slice(&load.manifest), load.media_type).await.map(drop)
    }

    /// Puts a manifest with signatures beside their component, all of whose parts are there.
    ///
    /// # Errors
    /// Why it is not there.
    pub async fn put_signatures(
        &mut self,
        load: &Load,
        Signatures { carried, tag }: &Signatures,
    ) -> Result<(), Failure> {
        let Carried { descriptor, manifest, artifact_type, .. } = carried;
        let name = tag.clone().unwrap_or_else(|| descriptor.digest.to_string());
        let is_listed = self.put(&name, Bytes::copy_from_slice(manifest), MANIFEST).await?;
        if tag.is_none() && !is_listed {
            self.list(&load.digest, descriptor, artifact_type).await?;
        }
        Ok(())
    }
}

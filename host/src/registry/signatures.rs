//! Looks for the signatures of a manifest: in what refers to it, under the tag that stands for that, and where cosign 2 put them (SG rules).

use capstan_core::registry::answer::Part;
use capstan_core::registry::signature::{Demands, Document, Found, Signed, Subject};
use capstan_core::registry::{Failure, Kind, Reference, referrers};

use super::pull::Resolved;
use super::{Session, within};

/// The most bytes of a list of what refers to a manifest, and of the manifest of a signature.
const LIST: usize = 4 << 20;
pub(super) const MANIFEST: usize = 256 << 10;

/// A search for signatures, until what is demanded is met.
struct Search<'a> {
    resolved: &'a Resolved,
    reference: Reference,
    demands: &'a Demands,
    found: Found,
    /// What could not be looked at, for now.
    failed: Option<Failure>,
}

impl Session {
    /// Finds that what was resolved is signed as it is demanded, and returns what the signatures say.
    ///
    /// # Errors
    /// What was found in place of a signature, or why nobody knows.
    pub async fn signed(&mut self, resolved: &Resolved, demands: &Demands) -> Result<Vec<Signed>, Failure> {
        if demands.is_empty() {
            return Ok(Vec::new());
        }
        let reference = self.origin.clone();
        let mut search = Search { resolved, reference, demands, found: Found::default(), failed: None };
        let limit = self.way.patience.whole;
        within(limit, "the search for its signatures", Box::pin(search.run(self))).await?;
        let Search { reference, found, failed, .. } = search;
        match demands.judge(&reference, &found) {
            Ok(()) => Ok(found.signed),
            // What could not be looked at may be what is lacking.
            Err(why) => Err(failed.unwrap_or_else(|| Failure::new(Kind::Unsigned, format!("it is not signed: {why}")))),
        }
    }

    /// Returns what a tag names; `None` if there is nothing.
    pub(super) async fn tagged(&mut self, tag: &str) -> Result<Option<Vec<u8>>, Failure> {
        match self.bytes(tag, None, (Part::Signature, LIST)).await {
            Ok((_, answer)) => Ok(Some(answer.bytes)),
            Err(failure) if failure.kind == Kind::Missing => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

impl Search<'_> {
    async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        let digest = &self.resolved.digest;
        let (list, tag) = (Reference::referrers_tag(digest), Reference::signatures_tag(digest));
        let mut pages = session.referrers(digest)?;
        let mut left = referrers::MOST;
        while !self.is_over()
            && let Some(page) = pages.next(session).await?
        {
            left = self.list(session, &page, left).await;
        }
        self.found.rejected.extend(pages.unread());
        if !self.is_over()
            && let Some(list) = session.tagged(&list).await?
        {
            self.list(session, &list, referrers::MOST).await;
        }
        if !self.is_over()
            && let Some(manifest) = session.tagged(&tag).await?
        {
            self.manifest(session, &manifest, referrers::MOST).await;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.demands.are_met(&self.reference, &self.found.signed)
    }

    /// Looks at what a list has, of which some may be signatures, at most at so many, and returns how many are left then.
    async fn list(&mut self, session: &mut Session, list: &[u8], mut left: usize) -> usize {
        let (digests, more) = match referrers::listed(list) {
            Ok(listed) => listed,
            Err(why) => {
                self.found.rejected.push(format!("list that can't be read: {why}"));
                return left;
            }
        };
        self.found.left_out += more;
        for digest in digests {
            if self.is_over() {
                break;
            }
            if left == 0 {
                self.found.left_out += 1;
                continue;
            }
            let asked = digest.to_string();
            match session.bytes(&asked, Some(digest), (Part::Signature, MANIFEST)).await {
                Ok((_, answer)) => left = self.manifest(session, &answer.bytes, left).await,
                Err(failure) => self.fails(failure),
            }
        }
        left
    }

    /// Looks at the signatures of a manifest, at most at so many, and returns how many are left then.
    async fn manifest(&mut self, session: &mut Session, manifest: &[u8], mut left: usize) -> usize {
        let (parts, more) = referrers::parts(manifest);
        self.found.left_out += more + parts.len().saturating_sub(left);
        for part in parts.into_iter().take(left) {
            if self.is_over() {
                break;
            }
            left -= 1;
            let mut bytes = Vec::new();
            if let Err(failure) = session.blob(&part.descriptor, &mut bytes).await {
                self.fails(failure);
                continue;
            }
            let document = match part.signature {
                Some(signature) => Document::Simple { payload: bytes, signature },
                None => Document::Bundle(bytes),
            };
            let subject = Subject { digest: &self.resolved.digest, manifest: &self.resolved.manifest };
            match document.verify(subject, self.demands.keys()) {
                Ok(signed) => self.found.signed.push(signed),
                Err(why) => self.found.rejected.push(why),
            }
        }
        left
    }

    /// Remembers that something could not be looked at. What is not there, or is wrong, is no signature.
    fn fails(&mut self, failure: Failure) {
        match failure.kind {
            Kind::Away | Kind::Denied => self.failed = Some(failure),
            Kind::Wrong | Kind::Missing | Kind::Unsigned => {
                self.found.rejected.push(format!("that can't be had: {failure}"));
            }
        }
    }
}

//! Gets the list of what refers to a manifest, page by page: where a page says so, it goes on at the same server (SG-3).

use capstan_core::registry::answer::Part;
use capstan_core::registry::{Digest, Failure, Kind, Url, referrers};
use http::Method;
use http::header::{CONTENT_TYPE, LINK};

use super::exchange::Ask;
use super::{Session, within};

/// The most bytes of a page, and of all together.
const PAGE: usize = 4 << 20;
const ALL: usize = 16 << 20;

/// A list of what refers to a manifest, as far as it has been read.
pub(super) struct Pages {
    next: Option<Url>,
    read: usize,
    bytes: usize,
    /// Why the rest is not read.
    unread: Option<String>,
}

impl Session {
    /// Returns the list of what refers to a manifest, of which nothing has been read; it is empty if the registry has none.
    pub(super) fn referrers(&self, digest: &Digest) -> Result<Pages, Failure> {
        Ok(Pages { next: Some(self.url(&format!("referrers/{digest}"))?), read: 0, bytes: 0, unread: None })
    }
}

impl Pages {
    /// Returns the next page; `None`: there is no other, or it is not read.
    pub(super) async fn next(&mut self, session: &mut Session) -> Result<Option<Vec<u8>>, Failure> {
        let Some(url) = self.next.take() else {
            return Ok(None);
        };
        if self.read == referrers::PAGES || self.bytes > ALL {
            self.unread = Some(format!("it has more than {} pages, or {ALL} bytes", referrers::PAGES));
            return Ok(None);
        }
        let ask = Ask::new(Method::GET, url.clone(), Part::Referrers);
        let ask = Ask { accept: Some(referrers::ACCEPT), ..ask };
        let limit = session.way.patience.answer;
        let answer = match within(limit, "a list of signatures", session.ask(ask)).await {
            Ok(answer) => answer,
            Err(failure) if failure.kind == Kind::Missing => return Ok(None),
            Err(failure) => return Err(failure),
        };
        // Some answer with a page for people to all that they do not know.
        if answer.header(&CONTENT_TYPE).is_none_or(|kind| !kind.starts_with(referrers::INDEX)) {
            return Ok(None);
        }
        let links = answer.headers(&LINK);
        let next = referrers::next(links.iter().map(String::as_str)).map(|link| url.next(link)).transpose();
        self.next = next.unwrap_or_else(|why| {
            self.unread = Some(why);
            None
        });
        let page = answer.bytes(PAGE, "the list of its signatures").await?;
        self.read += 1;
        self.bytes += page.len();
        Ok(Some(page))
    }

    /// Says why the rest is not read, if that is so.
    pub(super) fn unread(self) -> Option<String> {
        self.unread.map(|why| format!("the list of its signatures is not read to its end: {why}"))
    }
}

//! Turns the API server's list and watch answers into objects, one line at a time, so that a long list is never held twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use capstan_core::cluster::{Error, Reason};
use capstan_core::object::{Managers, Object, ObjectRef, Version};
use capstan_core::text::{LONGEST, said_within};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client::{ApiServer, Broken, Kind, collect, escape};
use crate::pause::Chance;

/// The API server ends a watch after this time; we then ask again from where we were.
const WATCH_SECONDS: u64 = 290;

/// A watch on which nothing is heard for this long is opened anew (bookmarks come about every minute).
const SILENCE: Duration = Duration::from_secs(100);

/// The same once the API server is back after it was away: the connection may have gone with it.
const DOUBT: Duration = Duration::from_secs(2);

/// How long a page of a list may take.
const PAGE_TIMEOUT: Duration = Duration::from_mins(1);

/// Objects per page where a list is used; fewer if they are so large that the page is too long.
const PAGE: usize = 500;

/// The longest page of a list.
const PAGE_BYTES: usize = 64 << 20;

/// The longest event of a watch: one object, which is never longer than 3 MiB.
const EVENT: usize = 16 << 20;

/// What is watched: the key by which informers are shared (`PO-1`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The kind.
    pub gvk: capstan_core::object::Gvk,
    /// The namespace; none = all.
    pub namespace: Option<Arc<str>>,
    /// Where all namespaces are watched: the one that is left out.
    pub except: Option<Arc<str>>,
    /// The label selector; none = all.
    pub labels: Option<Arc<str>>,
}

/// One kind in one scope, at the API server.
pub(crate) struct Feed {
    api: Arc<ApiServer>,
    kind: Kind,
    scope: Scope,
    managers: Managers,
}

/// What comes in.
#[derive(Debug)]
pub(crate) enum Item {
    /// The API server has accepted a watch.
    Connected,
    /// An object of the initial list.
    Listed(Object),
    /// The initial list is complete, as of this version.
    Synced(Version),
    /// An object is new or has changed.
    Applied(Object),
    /// An object is gone; as it was last.
    Deleted(Object),
    /// Nothing changed up to this version.
    Bookmark(Version),
    /// An object can't be read, whose name may be; the rest goes on.
    Unreadable {
        /// Which it is.
        key: Option<ObjectRef>,
        /// Whether it is gone.
        gone: bool,
        /// What is wrong with it.
        error: capstan_core::object::Error,
    },
}

/// How a watch ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The API server closed it, as it does every few minutes.
    Closed,
    /// The version to go on from is too old (410): list again.
    Expired,
}

impl Feed {
    pub(crate) fn new(api: Arc<ApiServer>, kind: Kind, scope: Scope) -> Self {
        let managers = api.managers();
        Self {
            api,
            kind,
            scope,
            managers,
        }
    }

    /// Learns whose shares of objects are to be kept by now.
    pub(crate) fn refresh(&mut self) {
        self.managers = self.api.managers();
    }

    /// Returns by what pauses differ.
    pub(crate) fn chance(&self) -> &Chance {
        self.api.chance()
    }

    /// Waits for this time, or until the API server is back after it was away.
    pub(crate) async fn rest(&self, pause: Duration) {
        let mut returns = self.api.pulse().returns();
        let chance = self.api.chance();
        tokio::select! {
            // What is over is over: nobody waits again for an API server that comes back just then.
            biased;
            () = tokio::time::sleep(pause) => {}
            Ok(()) = returns.changed() => tokio::time::sleep(chance.jitter(super::RETURN)).await,
        }
    }

    /// Lists and then watches in one request (a streaming list).
    ///
    /// # Errors
    /// [`Reason::Rejected`] if the API server does not know streaming lists: use [`Feed::list`] and [`Feed::watch`].
    pub(crate) async fn stream(&self, sink: &mut impl FnMut(Item)) -> Result<End, Error> {
        let query = format!(
            "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}"
        );
        let body = self
            .api
            .stream(&self.kind, "list and watch", &self.path(&query))
            .await?;
        let mut initial = true;
        self.read_events(body, &mut |item| match item {
            Item::Applied(object) if initial => sink(Item::Listed(object)),
            Item::Synced(version) => {
                initial = false;
                sink(Item::Synced(version));
            }
            other @ (Item::Connected
            | Item::Listed(_)
            | Item::Applied(_)
            | Item::Deleted(_)
            | Item::Bookmark(_)
            | Item::Unreadable { .. }) => sink(other),
        })
        .await
    }

    /// Lists in pages.
    pub(crate) async fn list(&self, sink: &mut impl FnMut(Item)) -> Result<(), Error> {
        let (mut next, mut limit) = (None::<String>, PAGE);
        loop {
            let mut query = format!("limit={limit}");
            if let Some(next) = &next {
                query = format!("{query}&continue={}", escape(next));
            }
            let body = self
                .api
                .stream(&self.kind, "list", &self.path(&query))
                .await?;
            let page = tokio::time::timeout(PAGE_TIMEOUT, collect(body, PAGE_BYTES)).await;
            let bytes = match page {
                Ok(Ok(bytes)) => bytes,
                Ok(Err(Broken::Long)) if limit > 1 => {
                    limit = limit.div_ceil(8);
                    continue;
                }
                Ok(Err(Broken::Long)) => {
                    let what = format!("one object makes a page of more than {PAGE_BYTES} bytes");
                    return Err(self.unusable(&what));
                }
                Ok(Err(Broken::Off(why))) => return Err(self.broken(&why)),
                Err(_) => return Err(self.broken(&"a page of the list takes too long")),
            };
            self.api.pulse().heard();
            let page: Page<'_> = serde_json::from_slice(&bytes).map_err(|e| self.unusable(&e))?;
            for raw in page.items {
                sink(self.object(raw.get(), Item::Listed));
            }
            next = page.metadata.next.filter(|next| !next.is_empty());
            if next.is_none() {
                let version = page.metadata.resource_version.unwrap_or_default();
                sink(Item::Synced(Version::parse(&version).unwrap_or_default()));
                return Ok(());
            }
        }
    }

    /// Watches from a version on.
    pub(crate) async fn watch(
        &self,
        from: Version,
        sink: &mut impl FnMut(Item),
    ) -> Result<End, Error> {
        let query = format!(
            "watch=true&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}"
        );
        match self
            .api
            .stream(&self.kind, "watch", &self.path(&query))
            .await
        {
            Ok(body) => {
                sink(Item::Connected);
                self.read_events(body, sink).await
            }
            Err(error) if error.code == 410 => Ok(End::Expired),
            Err(error) => Err(error),
        }
    }

    fn path(&self, query: &str) -> String {
        let path = self.kind.path(self.scope.namespace.as_deref());
        let mut path = format!("{path}?{query}");
        if let Some(labels) = &self.scope.labels {
            path = format!("{path}&labelSelector={}", escape(labels));
        }
        if let Some(except) = &self.scope.except {
            let fields = format!("metadata.namespace!={except}");
            path = format!("{path}&fieldSelector={}", escape(&fields));
        }
        path
    }

    async fn read_events(&self, mut body: Body, sink: &mut impl FnMut(Item)) -> Result<End, Error> {
        let mut buffer = BytesMut::new();
        // So many bytes of an unfinished line are known to have no end in them.
        let mut searched = 0;
        let (mut returns, mut patience) = (self.api.pulse().returns(), SILENCE);
        loop {
            while let Some(found) = buffer
                .get(searched..)
                .and_then(|rest| memchr::memchr(b'\n', rest))
            {
                let line = buffer.split_to(searched + found);
                buffer.advance(1);
                searched = 0;
                if let Some(end) = self.read_event(&line, sink)? {
                    return Ok(end);
                }
            }
            searched = buffer.len();
            if searched > EVENT {
                let what = format!("an event is longer than {EVENT} bytes");
                return Err(self.unusable(&what));
            }
            let frame = tokio::select! {
                // What has come is a better sign than any other.
                biased;
                frame = tokio::time::timeout(patience, body.frame()) => frame,
                Ok(()) = returns.changed() => {
                    patience = self.api.chance().jitter(DOUBT);
                    continue;
                }
            };
            match frame {
                // Nobody knows whether anything still comes.
                Err(_) | Ok(None) => return Ok(End::Closed),
                Ok(Some(Err(error))) => return Err(self.broken(&error)),
                Ok(Some(Ok(frame))) => {
                    self.api.pulse().heard();
                    patience = SILENCE;
                    if let Ok(data) = frame.into_data() {
                        buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    fn read_event(&self, line: &[u8], sink: &mut impl FnMut(Item)) -> Result<Option<End>, Error> {
        let event: Event<'_> = serde_json::from_slice(line).map_err(|e| self.unusable(&e))?;
        match event.kind {
            "ADDED" | "MODIFIED" => sink(self.object(event.object.get(), Item::Applied)),
            "DELETED" => sink(match self.object(event.object.get(), Item::Deleted) {
                Item::Unreadable { key, error, .. } => Item::Unreadable {
                    key,
                    gone: true,
                    error,
                },
                gone => gone,
            }),
            "BOOKMARK" => {
                let mark: Mark<'_> =
                    serde_json::from_str(event.object.get()).map_err(|e| self.unusable(&e))?;
                let version = Version::parse(&mark.metadata.resource_version)
                    .map_err(|e| self.unusable(&e))?;
                let last = mark
                    .metadata
                    .annotations
                    .is_some_and(|raw| raw.get().contains("k8s.io/initial-events-end"));
                sink(if last {
                    Item::Synced(version)
                } else {
                    Item::Bookmark(version)
                });
            }
            "ERROR" => {
                let status: Status = serde_json::from_str(event.object.get()).unwrap_or_default();
                if status.code == 410 {
                    return Ok(Some(End::Expired));
                }
                let reason = if matches!(status.code, 401 | 403) {
                    Reason::Forbidden
                } else {
                    Reason::Unreachable
                };
                let message = format!(
                    "watch {}: {} (HTTP {})",
                    self.kind.gvk,
                    said_within(&status.message, LONGEST / 2),
                    status.code
                );
                return Err(Error::new(reason, status.code, message));
            }
            _ => {}
        }
        Ok(None)
    }

    fn object(&self, json: &str, item: impl FnOnce(Object) -> Item) -> Item {
        match Object::parse(json, &self.kind.gvk, &self.managers) {
            Ok(object) => item(object),
            Err(error) => Item::Unreadable {
                key: Object::name_of(json),
                gone: false,
                error,
            },
        }
    }

    fn broken(&self, text: &dyn std::fmt::Display) -> Error {
        let message = format!("watch {}: the connection broke: {text}", self.kind.gvk);
        Error::new(Reason::Unreachable, 0, message)
    }

    fn unusable(&self, text: &dyn std::fmt::Display) -> Error {
        let message = format!("watch {}: what came can't be used: {text}", self.kind.gvk);
        Error::new(Reason::Unusable, 0, message)
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Mark<'a> {
    #[serde(borrow)]
    metadata: MarkMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MarkMeta<'a> {
    resource_version: String,
    #[serde(borrow, default)]
    annotations: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Page<'a> {
    metadata: PageMeta,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl std::fmt::Display for Scope {
    /// Writes `v1 ConfigMap in default where app=a`, as in messages.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.gvk.fmt(f)?;
        if let Some(namespace) = &self.namespace {
            write!(f, " in {namespace}")?;
        }
        if let Some(except) = &self.except {
            write!(f, " outside of {except}")?;
        }
        if let Some(labels) = &self.labels {
            write!(f, " where {labels}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::tests::{answering, config_maps};

    async fn feed(body: usize) -> Feed {
        let kind = config_maps();
        let scope = Scope {
            gvk: kind.gvk.clone(),
            namespace: None,
            except: None,
            labels: None,
        };
        Feed::new(Arc::new(answering("200 OK", body).await), kind, scope)
    }

    #[tokio::test]
    async fn an_event_without_an_end_is_given_up() {
        let feed = feed(EVENT * 2).await;
        let error = feed.watch(Version(1), &mut |_| {}).await.unwrap_err();
        assert_eq!(error.reason, Reason::Unusable);
        let text =
            "watch v1 ConfigMap: what came can't be used: an event is longer than 16777216 bytes";
        assert_eq!(error.message, text);
    }

    #[tokio::test]
    async fn a_page_without_an_end_is_asked_for_with_fewer_objects_and_then_given_up() {
        let feed = feed(PAGE_BYTES + 1).await;
        let error = feed.list(&mut |_| {}).await.unwrap_err();
        assert_eq!(error.reason, Reason::Unusable);
        assert!(
            error
                .message
                .ends_with("one object makes a page of more than 67108864 bytes")
        );
    }
}

//! Turns the API server's list and watch answers into objects, one line at a time, so that a long list is never held twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use capstan_core::cluster::{Error, Reason};
use capstan_core::object::{Managers, Object, Version};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client::{ApiServer, Kind, escape};

/// The API server ends a watch after this time; we then ask again from where we were.
const WATCH_SECONDS: u64 = 290;

/// A watch on which nothing is heard for this long is taken for dead (bookmarks come about every minute).
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS + 10);

/// How long a page of a list may take.
const PAGE_TIMEOUT: Duration = Duration::from_mins(1);

/// Objects per page where a list is used.
const PAGE: usize = 500;

/// What is watched: the key by which informers are shared (`PO-1`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The kind.
    pub gvk: capstan_core::object::Gvk,
    /// The namespace; none = all.
    pub namespace: Option<Arc<str>>,
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
    /// Something that is no object; the rest goes on.
    Unreadable(capstan_core::object::Error),
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
            | Item::Unreadable(_)) => sink(other),
        })
        .await
    }

    /// Lists in pages.
    pub(crate) async fn list(&self, sink: &mut impl FnMut(Item)) -> Result<(), Error> {
        let mut next = None::<String>;
        loop {
            let mut query = format!("limit={PAGE}");
            if let Some(next) = &next {
                query = format!("{query}&continue={}", escape(next));
            }
            let body = self
                .api
                .stream(&self.kind, "list", &self.path(&query))
                .await?;
            let page = tokio::time::timeout(PAGE_TIMEOUT, body.collect()).await;
            let page = page.map_err(|_| self.broken(&"a page of the list takes too long"))?;
            let bytes = page.map_err(|e| self.broken(&e))?.to_bytes();
            let page: Page<'_> = serde_json::from_slice(&bytes).map_err(|e| self.broken(&e))?;
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
        match &self.scope.labels {
            Some(labels) => format!("{path}?{query}&labelSelector={}", escape(labels)),
            None => format!("{path}?{query}"),
        }
    }

    async fn read_events(&self, mut body: Body, sink: &mut impl FnMut(Item)) -> Result<End, Error> {
        let mut buffer = BytesMut::new();
        // So many bytes of an unfinished line are known to have no end in them.
        let mut searched = 0;
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
            let frame = tokio::time::timeout(SILENCE, body.frame()).await;
            match frame.map_err(|_| self.broken(&"nothing heard for minutes"))? {
                None => return Ok(End::Closed),
                Some(Err(error)) => return Err(self.broken(&error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    fn read_event(&self, line: &[u8], sink: &mut impl FnMut(Item)) -> Result<Option<End>, Error> {
        let event: Event<'_> = serde_json::from_slice(line).map_err(|e| self.broken(&e))?;
        match event.kind {
            "ADDED" | "MODIFIED" => sink(self.object(event.object.get(), Item::Applied)),
            "DELETED" => sink(self.object(event.object.get(), Item::Deleted)),
            "BOOKMARK" => {
                let mark: Mark<'_> =
                    serde_json::from_str(event.object.get()).map_err(|e| self.broken(&e))?;
                let version =
                    Version::parse(&mark.metadata.resource_version).map_err(|e| self.broken(&e))?;
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
                    self.kind.gvk, status.message, status.code
                );
                return Err(Error {
                    reason,
                    code: status.code,
                    message,
                });
            }
            _ => {}
        }
        Ok(None)
    }

    fn object(&self, json: &str, item: impl FnOnce(Object) -> Item) -> Item {
        match Object::parse(json, &self.kind.gvk, &self.managers) {
            Ok(object) => item(object),
            Err(error) => Item::Unreadable(error),
        }
    }

    fn broken(&self, text: &dyn std::fmt::Display) -> Error {
        let message = format!("watch {}: the connection broke: {text}", self.kind.gvk);
        Error {
            reason: Reason::Unreachable,
            code: 0,
            message,
        }
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
        if let Some(labels) = &self.labels {
            write!(f, " where {labels}")?;
        }
        Ok(())
    }
}

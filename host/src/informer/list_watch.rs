//! Turns the API server's list and watch answers into objects, one line at a time, so that a long list is never held twice.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use capstan_core::cluster::{Error, Reason};
use capstan_core::object::fields::Fields;
use capstan_core::object::shard::Shard;
use capstan_core::object::{Managers, Object, ObjectRef, Scope as ObjectScope, Version};
use capstan_core::text::{LONGEST, said_within};
use http_body_util::BodyExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::lines::Lines;
use super::page::{PAGE_BYTES, Page, PageSize};
use crate::backoff::Chance;
use crate::client::request::{self, Asked, Form, Selection};
use crate::client::transit::{Transit, Unread};
use crate::client::{ApiServer, Broken, Kind};

/// The API server ends a watch after a time from one half to the whole of this, never the same: those that began together must
/// not come back together. We then ask again from where we were.
const WATCH: Duration = Duration::from_secs(290);

/// A watch on which nothing is heard for so long is opened anew: from three quarters to the whole of this, as bookmarks come about
/// every minute.
const SILENCE: Duration = Duration::from_secs(100);

/// The same once the API server is back after it was away: the connection may have gone with it.
const DOUBT: Duration = Duration::from_secs(2);

/// How long a page of a list may take.
const PAGE_TIMEOUT: Duration = Duration::from_mins(1);

/// The longest event of a watch: one object, which is never longer than 3 MiB.
const EVENT: usize = 16 << 20;

/// What is watched: the key by which informers are shared (`PO-1`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The kind.
    pub gvk: capstan_core::object::Gvk,
    /// The namespace; none = all.
    pub namespace: Option<Arc<str>>,
    /// The cluster, as `operator/name`; none = that of the daemon.
    pub cluster: Option<Arc<str>>,
    /// Where all namespaces are watched: the one in which nothing is; of the kind Namespace, the one that is left out itself.
    pub except: Option<Arc<str>>,
    /// What selects objects.
    pub selectors: Selectors,
    /// The source that does not share it with any other (`PO-4`).
    pub alone: Option<Arc<str>>,
    /// The objects of a page, where lists come in pages.
    pub page: PageSize,
}

/// What selects objects of a kind; none = all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selectors {
    /// By labels.
    pub labels: Option<Arc<str>>,
    /// By fields.
    pub fields: Option<Arc<str>>,
    /// By the hash of something.
    pub shard: Option<Shard>,
}

/// One kind in one scope, at the API server.
pub(crate) struct ListWatch {
    api: Arc<ApiServer>,
    /// The memory of what comes in.
    transit: Transit,
    kind: Kind,
    scope: Scope,
    /// The objects of a page: as many as anybody wants who shares it.
    page: Arc<AtomicU32>,
    managers: Managers,
    /// What is kept of objects.
    fields: Fields,
    chance: Chance,
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

fn silence(chance: &Chance) -> Duration {
    SILENCE / 2 + chance.jitter(SILENCE) / 2
}

impl ListWatch {
    pub(crate) fn new((api, transit): (Arc<ApiServer>, Transit), kind: Kind, scope: Scope) -> Self {
        let managers = api.managers();
        let chance = api.chance().of(&scope.to_string());
        let page = Arc::new(AtomicU32::new(scope.page.0));
        Self { api, transit, kind, scope, page, managers, fields: Fields::whole(), chance }
    }

    /// Returns the same with pages of as many objects as this says when each is asked for.
    pub(crate) fn paged_as(self, page: &Arc<AtomicU32>) -> Self {
        Self { page: Arc::clone(page), ..self }
    }

    /// Learns whose shares of objects are to be kept by now, and which of their fields.
    pub(crate) fn refresh(&mut self, fields: Fields) {
        self.managers = self.api.managers();
        self.fields = fields;
    }

    /// Returns by what pauses differ.
    pub(crate) fn chance(&self) -> &Chance {
        &self.chance
    }

    /// Waits for this time, or until the API server is back after it was away.
    pub(crate) async fn rest(&self, pause: Duration) {
        let mut returns = self.api.pulse().returns();
        let chance = self.chance();
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
    /// [`Reason::Rejected`] if the API server does not know streaming lists: use [`ListWatch::list`] and [`ListWatch::watch`].
    pub(crate) async fn stream(&self, sink: &mut impl FnMut(Item)) -> Result<End, Error> {
        let body = self.api.stream(&self.kind, "list and watch", self.changes(None)).await?;
        let mut initial = true;
        let mut take = |item| match item {
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
        };
        match self.read_events(body, &mut take).await? {
            End::Closed if initial => Err(self.broken(&"the list ended before it was complete")),
            end @ (End::Closed | End::Expired) => Ok(end),
        }
    }

    /// Lists in pages.
    pub(crate) async fn list(&self, sink: &mut impl FnMut(Item)) -> Result<(), Error> {
        // Fewer if they are so large that the page is too long.
        let (mut next, mut most) = (None::<String>, u32::MAX);
        loop {
            let limit = self.page.load(Ordering::Relaxed).min(most);
            let request =
                self.scope.asks(self.form(), |which| request::page(&self.kind, which, limit, next.as_deref()));
            let body = self.api.stream(&self.kind, "list", request).await?;
            let mut load = self.transit.load();
            let page = tokio::time::timeout(PAGE_TIMEOUT, load.collect(body, PAGE_BYTES)).await;
            let bytes = match page {
                Ok(Ok(bytes)) => bytes,
                Ok(Err(Unread::Broken(Broken::Long) | Unread::NoRoom(_))) if limit > 1 => {
                    most = limit.div_ceil(8);
                    continue;
                }
                Ok(Err(Unread::NoRoom(why))) => return Err(self.unusable(&why)),
                Ok(Err(Unread::Broken(Broken::Long))) => {
                    let what = format!("one object makes a page of more than {PAGE_BYTES} bytes");
                    return Err(self.unusable(&what));
                }
                Ok(Err(Unread::Broken(Broken::Off(why)))) => return Err(self.broken(&why)),
                Err(_) => return Err(self.broken(&"a page of the list takes too long")),
            };
            self.api.pulse().heard();
            let page: Page<'_> = serde_json::from_slice(&bytes).map_err(|e| self.unusable(&e))?;
            for raw in page.items {
                self.object(raw.get(), false, Item::Listed)?.into_iter().for_each(&mut *sink);
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
    pub(crate) async fn watch(&self, from: Version, sink: &mut impl FnMut(Item)) -> Result<End, Error> {
        match self.api.stream(&self.kind, "watch", self.changes(Some(from))).await {
            Ok(body) => {
                sink(Item::Connected);
                self.read_events(body, sink).await
            }
            Err(error) if error.code == 410 => Ok(End::Expired),
            Err(error) => Err(error),
        }
    }

    fn form(&self) -> Form {
        if self.fields.is_metadata() { Form::Metadata } else { Form::Whole }
    }

    fn changes(&self, from: Option<Version>) -> Asked {
        let seconds = self.chance().jitter(WATCH).as_secs();
        self.scope.asks(self.form(), |which| request::watch(&self.kind, which, from, seconds))
    }

    async fn read_events(&self, mut body: Body, sink: &mut impl FnMut(Item)) -> Result<End, Error> {
        let (mut lines, mut load) = (Lines::default(), self.transit.load());
        let (mut returns, mut patience) = (self.api.pulse().returns(), silence(self.chance()));
        let mut relinked = self.api.relinked();
        loop {
            while let Some(line) = lines.next() {
                if let Some(end) = self.read_event(&line, sink)? {
                    return Ok(end);
                }
            }
            if lines.rest() > EVENT {
                let what = format!("an event is longer than {EVENT} bytes");
                return Err(self.unusable(&what));
            }
            load.is(lines.rest()).await.map_err(|why| self.unusable(&why))?;
            let frame = tokio::select! {
                biased;
                // Whoever may not use the cluster any more is told nothing more of it.
                Ok(()) = relinked.changed() => return Ok(End::Closed),
                // What has come is a better sign than any other.
                frame = tokio::time::timeout(patience, body.frame()) => frame,
                // However much of it still comes: a watch that never says what it began to say is none.
                () = lines.late() => return Err(self.broken(&"an event takes too long")),
                Ok(()) = returns.changed() => {
                    patience = self.chance().jitter(DOUBT);
                    continue;
                }
            };
            match frame {
                // Nobody knows whether anything still comes.
                Err(_) | Ok(None) => return Ok(End::Closed),
                // However a watch ends, what came is true: it goes on from there. What ails a connection, the next request says.
                Ok(Some(Err(error))) => {
                    tracing::debug!(kind = %self.kind.gvk, %error, "the connection of a watch ended");
                    return Ok(End::Closed);
                }
                Ok(Some(Ok(frame))) => {
                    self.api.pulse().heard();
                    patience = silence(self.chance());
                    if let Ok(data) = frame.into_data() {
                        lines.come(&data);
                    }
                }
            }
        }
    }

    fn read_event(&self, line: &[u8], sink: &mut impl FnMut(Item)) -> Result<Option<End>, Error> {
        let event: Event<'_> = serde_json::from_slice(line).map_err(|e| self.unusable(&e))?;
        match event.kind {
            "ADDED" | "MODIFIED" => {
                self.object(event.object.get(), false, Item::Applied)?.into_iter().for_each(sink);
            }
            "DELETED" => self.object(event.object.get(), true, Item::Deleted)?.into_iter().for_each(sink),
            "BOOKMARK" => {
                let mark: Mark<'_> = serde_json::from_str(event.object.get()).map_err(|e| self.unusable(&e))?;
                let version = Version::parse(&mark.metadata.resource_version).map_err(|e| self.unusable(&e))?;
                let last = mark.metadata.annotations.is_some_and(|raw| raw.get().contains("k8s.io/initial-events-end"));
                sink(if last { Item::Synced(version) } else { Item::Bookmark(version) });
            }
            "ERROR" => {
                let Status { code, message, .. } = serde_json::from_str(event.object.get()).unwrap_or_default();
                let code = code.and_then(|code| code.try_into().ok()).unwrap_or_default();
                let reason = match code {
                    410 => return Ok(Some(End::Expired)),
                    401 | 403 => Reason::Forbidden,
                    _ => Reason::Unreachable,
                };
                let (kind, message) = (&self.kind.gvk, message.unwrap_or_default());
                let message = format!("watch {kind}: {} (HTTP {code})", said_within(&message, LONGEST / 2));
                return Err(Error::new(reason, code, message));
            }
            _ => {}
        }
        Ok(None)
    }

    /// Reads an object; none if it is of another shard, of which an API server that knows no shards tells, too.
    ///
    /// # Errors
    /// [`Reason::UnknownKind`] if it lives where no object of its kind did.
    fn object(&self, json: &str, gone: bool, item: impl FnOnce(Object) -> Item) -> Result<Option<Item>, Error> {
        match Object::parse_fields(json, &self.kind.gvk, &self.managers, &self.fields) {
            Ok(object) => {
                self.belongs(object.key())?;
                let ours = self.scope.selectors.shard.as_ref().is_none_or(|shard| shard.takes(object.header()));
                Ok(ours.then(|| item(object)))
            }
            Err(error) => Ok(Some(Item::Unreadable { key: Object::name_of(json), gone, error })),
        }
    }

    /// Checks that an object lives where its kind does. If the kind was made anew meanwhile, nobody is told of its objects before it is
    /// watched as it is: they may be in namespaces that the manifest does not name (`IN-6`).
    fn belongs(&self, key: &ObjectRef) -> Result<(), Error> {
        let (scope, gvk) = (self.kind.scope, &self.kind.gvk);
        if key.namespace.is_some() == (scope == ObjectScope::Namespaced) {
            return Ok(());
        }
        self.api.doubt(gvk);
        let [was, is] = match scope {
            ObjectScope::Namespaced => ["in namespaces", "in none"],
            ObjectScope::Cluster => ["in no namespace", "in namespaces"],
        };
        let message =
            format!("watch {gvk}: the kind lived {was}, and lives {is} now: it is watched as it is once that is known");
        Err(Error::new(Reason::UnknownKind, 0, message))
    }

    fn broken(&self, text: &dyn fmt::Display) -> Error {
        Error::new(Reason::Unreachable, 0, format!("watch {}: the connection broke: {text}", self.kind.gvk))
    }

    fn unusable(&self, text: &dyn fmt::Display) -> Error {
        Error::new(Reason::Unusable, 0, format!("watch {}: what came can't be used: {text}", self.kind.gvk))
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

impl Scope {
    /// Returns what is asked for of its objects.
    fn asks(&self, form: Form, request: impl FnOnce(&Selection<'_>) -> Asked) -> Asked {
        let Self { namespace, except, selectors: Selectors { labels, fields, shard }, .. } = self;
        let field = if self.gvk.is_namespace() { "name" } else { "namespace" };
        let except = except.as_ref().map(|except| format!("metadata.{field}!={except}"));
        let fields: Vec<&str> = except.as_deref().into_iter().chain(fields.as_deref()).collect();
        let fields = (!fields.is_empty()).then(|| fields.join(","));
        let [namespace, labels] = [namespace, labels].map(Option::as_deref);
        let (fields, shard) = (fields.as_deref(), shard.as_ref().map(Shard::as_str));
        request(&Selection { namespace, labels, fields, shard, form })
    }

    /// Returns the account of its cache: that of the namespace, or of the kind if it is read in all namespaces; that of another cluster for
    /// all of it. Whoever watches a namespace in many ways has no more for it than others have.
    pub(super) fn account(&self) -> Arc<str> {
        match (&self.cluster, &self.namespace) {
            (Some(cluster), _) => format!("cluster {cluster}").into(),
            (None, Some(namespace)) => format!("namespace {namespace}").into(),
            (None, None) => self.gvk.to_string().into(),
        }
    }

    /// Returns the account of its cache within its cluster.
    pub(super) fn share(&self) -> Arc<str> {
        Self { cluster: None, ..self.clone() }.account()
    }
}

impl fmt::Display for Scope {
    /// Writes `v1 ConfigMap in default where app=a`, as in messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.gvk.fmt(f)?;
        if let Some(namespace) = &self.namespace {
            write!(f, " in {namespace}")?;
        }
        if let Some(except) = &self.except {
            write!(f, " {} {except}", if self.gvk.is_namespace() { "without" } else { "outside of" })?;
        }
        let Selectors { labels, fields, shard } = &self.selectors;
        let all = [labels.as_deref(), fields.as_deref(), shard.as_ref().map(Shard::as_str)];
        for (at, selector) in all.into_iter().flatten().enumerate() {
            write!(f, " {} {selector}", if at == 0 { "where" } else { "and" })?;
        }
        if let Some(cluster) = &self.cluster {
            write!(f, " of cluster {cluster}")?;
        }
        if let Some(source) = &self.alone {
            write!(f, " for {source} alone")?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::super::Memory;
    use super::super::lines::EVENT_TIMEOUT;
    use super::*;
    use crate::client::tests::{Answer, Step, answering, config_maps, scripted};

    pub(crate) fn scope() -> Scope {
        Scope {
            gvk: config_maps().gvk,
            namespace: None,
            cluster: None,
            except: None,
            selectors: Selectors::default(),
            alone: None,
            page: PageSize::default(),
        }
    }

    /// Returns the memory of what comes in, of which there is enough.
    fn transit() -> Transit {
        Memory::new(0, 1 << 30).transit("maps".into())
    }

    async fn list_watch(body: usize) -> ListWatch {
        let api = Arc::new(answering("200 OK", body).await);
        ListWatch::new((api, transit()), config_maps(), scope())
    }

    /// Returns a list-watch of an API server that answers as `answer` says, and the paths that it was asked for.
    fn scripted_feed(answer: impl FnMut(&str) -> Answer + Send + 'static) -> (ListWatch, Arc<Mutex<Vec<String>>>) {
        let (client, asked) = scripted(answer);
        let api = Arc::new(ApiServer::new(client, Managers::default()));
        (ListWatch::new((api, transit()), config_maps(), scope()), asked)
    }

    /// Returns the event of an object, as a watch has it.
    pub(in super::super) fn event(kind: &str, name: &str, version: u64) -> String {
        format!("{{\"type\":\"{kind}\",\"object\":{}}}\n", map(name, version))
    }

    /// Returns a config map as JSON.
    pub(in super::super) fn map(name: &str, version: u64) -> String {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"namespace":"n","name":"{name}","uid":"{name}","resourceVersion":"{version}"}}}}"#
        )
    }

    /// Returns the bookmark that ends an initial list.
    pub(crate) fn end_of_list(version: u64) -> String {
        format!(
            "{{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{version}\",\"annotations\":{{\"k8s.io/initial-events-end\":\"true\"}}}}}}}}\n"
        )
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_in_waits_for_memory_and_is_given_up_or_asked_for_in_less_at_once_if_there_is_none() {
        let memory = Memory::new(0, 0);
        let mut rest = memory.transit("maps".into()).load();
        rest.is(23 << 20).await.unwrap();
        let large = map("a", 2).replace("\"metadata\"", &format!("\"f\":\"{}\",\"metadata\"", "x".repeat(9 << 20)));
        let (event, page) = (format!("{{\"type\":\"ADDED\",\"object\":{large}}}\n"), |items: &str| {
            format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{items}]}}"#)
        });
        let (client, asked) = scripted(move |path| {
            let text = match path {
                path if path.contains("watch=true") => event.clone(),
                path if path.contains("limit=500") => page(&large),
                _ => page(&map("a", 2)),
            };
            // It comes bit by bit, and the end of it later.
            let bits = text.as_bytes().chunks(1 << 20).map(|bit| Step::Comes(String::from_utf8(bit.to_vec()).unwrap()));
            Answer(Some(200), bits.collect())
        });
        let api = Arc::new(ApiServer::new(client, Managers::default()));
        let list_watch = ListWatch::new((api, memory.transit("maps".into())), config_maps(), scope());
        let names = Mutex::new(0);
        let mut count = |item| *names.lock() += usize::from(matches!(item, Item::Applied(_) | Item::Listed(_)));
        let error = list_watch.watch(Version(1), &mut count).await.unwrap_err();
        assert!(error.message.contains("--cache-memory"), "{error}");
        list_watch.list(&mut count).await.unwrap();
        let pages = asked.lock().iter().filter(|path| !path.contains("watch")).count();
        assert_eq!((pages, *names.lock()), (2, 1), "a smaller page");
        let frees = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            drop(rest);
        };
        let (ended, ()) = tokio::join!(list_watch.watch(Version(1), &mut count), frees);
        assert!(ended.is_ok());
        assert_eq!(*names.lock(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_whose_connection_ends_within_the_body_has_ended_like_any_other() {
        for last in [None, Some(Step::Cut)] {
            let mut steps = vec![Step::Comes(event("ADDED", "a", 2))];
            steps.extend(last);
            let mut steps = Some(steps);
            let (list_watch, _) = scripted_feed(move |_| Answer(Some(200), steps.take().unwrap()));
            let mut items = Vec::new();
            let ended = list_watch.watch(Version(1), &mut |item| items.push(item)).await;
            assert!(matches!(ended, Ok(End::Closed)), "{ended:?}");
            assert!(matches!(items.as_slice(), [Item::Connected, Item::Applied(_)]), "{items:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_told_of_objects_that_live_where_those_of_their_kind_did_not() {
        // IN-6
        let spaced = map("a", 2);
        let bare = spaced.replace(r#""namespace":"n","#, "");
        let event = |kind: &str, object: &str| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
        for (lives, object, told) in [
            (ObjectScope::Namespaced, &spaced, true),
            (ObjectScope::Namespaced, &bare, false),
            (ObjectScope::Cluster, &spaced, false),
            (ObjectScope::Cluster, &bare, true),
        ] {
            let page = format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{object}]}}"#);
            let events = ["ADDED", "MODIFIED", "DELETED"].map(|kind| event(kind, object));
            let (client, _) = scripted(move |path| match path {
                path if path.contains("watch=true") => Answer(Some(200), vec![Step::Comes(events.concat())]),
                _ => Answer(Some(200), vec![Step::Comes(page.clone())]),
            });
            let api = Arc::new(ApiServer::new(client, Managers::default()));
            let kind = Kind { scope: lives, ..config_maps() };
            let list_watch = ListWatch::new((api, transit()), kind, scope());
            let mut objects = 0;
            let mut count = |item| match item {
                Item::Listed(_) | Item::Applied(_) | Item::Deleted(_) => objects += 1,
                Item::Connected | Item::Synced(_) | Item::Bookmark(_) | Item::Unreadable { .. } => {}
            };
            let ends = [list_watch.list(&mut count).await, list_watch.watch(Version(1), &mut count).await.map(drop)];
            assert_eq!(objects, if told { 4 } else { 0 }, "{lives:?}: {object}");
            for end in ends {
                assert_eq!(end.map_err(|error| error.reason).err(), (!told).then_some(Reason::UnknownKind));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_ends_before_it_is_complete_has_failed() {
        for (complete, last, fails) in [
            (false, None, true),
            (false, Some(Step::Cut), true),
            (false, Some(Step::Silent), true),
            (true, None, false),
            (true, Some(Step::Cut), false),
            (true, Some(Step::Silent), false),
        ] {
            let mut steps = vec![Step::Comes(event("ADDED", "a", 2))];
            steps.extend(complete.then(|| Step::Comes(end_of_list(2))));
            steps.extend(last);
            let mut steps = Some(steps);
            let (list_watch, _) = scripted_feed(move |_| Answer(Some(200), steps.take().unwrap()));
            let ended = list_watch.stream(&mut |_| {}).await;
            if fails {
                let error = ended.unwrap_err();
                assert_eq!(error.reason, Reason::Unreachable);
                let text = "watch v1 ConfigMap: the connection broke: the list ended before it was complete";
                assert!(error.message.starts_with(text), "{}", error.message);
            } else {
                assert!(matches!(ended, Ok(End::Closed)), "{ended:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_selected_is_asked_for_and_what_is_of_another_shard_is_left_out() {
        // IN-3
        let upper = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')";
        let selectors = Selectors {
            labels: Some("a=b".into()),
            fields: Some("metadata.name!=x".into()),
            shard: Shard::parse(upper).ok(),
        };
        let scope = Scope { except: Some("closed".into()), selectors, page: PageSize(7), ..scope() };
        // An API server that knows no shards: by its uid only the first is of ours.
        let watched = ["a", "one"].map(|name| Step::Comes(event("ADDED", name, 2)));
        let page = format!(r#"{{"metadata":{{"resourceVersion":"2"}},"items":[{},{}]}}"#, map("a", 1), map("one", 2));
        let mut answers = vec![vec![Step::Comes(page)], watched.into()];
        let (client, asked) = scripted(move |_| Answer(Some(200), answers.remove(0)));
        let api = Arc::new(ApiServer::new(client, Managers::default()));
        let list_watch = ListWatch::new((api, transit()), config_maps(), scope.clone());
        let mut names = Vec::new();
        let mut sink = |item| match item {
            Item::Listed(object) | Item::Applied(object) => names.push(object.key().name.to_string()),
            Item::Connected | Item::Synced(_) | Item::Deleted(_) | Item::Bookmark(_) | Item::Unreadable { .. } => {}
        };
        list_watch.list(&mut sink).await.unwrap();
        list_watch.watch(Version(2), &mut sink).await.unwrap();
        assert_eq!(names, ["a", "a"]);
        let asked = asked.lock().clone();
        assert!(asked[0].contains("limit=7"), "{asked:?}");
        let selected = "labelSelector=a%3Db&fieldSelector=metadata.namespace%21%3Dclosed%2Cmetadata.name%21%3Dx&shardSelector=shardRange%28object";
        assert!(asked.iter().all(|path| path.contains(selected)), "{asked:?}");
        assert_eq!(
            scope.to_string(),
            format!("v1 ConfigMap outside of closed where a=b and metadata.name!=x and {upper}")
        );
        let namespaces = Scope { gvk: capstan_core::object::Gvk::parse("v1", "Namespace").unwrap(), ..scope };
        namespaces
            .asks(Form::Whole, |which| {
                assert_eq!(which.fields, Some("metadata.name!=closed,metadata.name!=x"));
                Ok(http::Request::default())
            })
            .unwrap();
    }

    #[test]
    fn whoever_watches_a_namespace_in_many_ways_has_one_account_for_it() {
        let of = |namespace: Option<&str>, labels: &str| {
            let selectors = Selectors { labels: Some(labels.into()), ..Selectors::default() };
            Scope { namespace: namespace.map(Arc::from), selectors, ..scope() }.account().to_string()
        };
        assert_eq!(
            (of(Some("team"), "a=b"), of(Some("team"), "c=d")),
            ("namespace team".into(), "namespace team".into())
        );
        assert_eq!(of(None, "a=b"), "v1 ConfigMap");
        // CU-1
        let remote = |namespace: Option<&str>| {
            let cluster = Some("pages/edge".into());
            Scope { namespace: namespace.map(Arc::from), cluster, ..scope() }.account().to_string()
        };
        assert_eq!([remote(Some("team")), remote(None)], ["cluster pages/edge", "cluster pages/edge"]);
    }

    #[test]
    fn how_long_pages_are_does_not_tell_informers_apart() {
        // PO-1
        let (one, other) = (scope(), Scope { page: PageSize(7), ..scope() });
        let selected = Scope { selectors: Selectors { fields: Some("a=b".into()), ..Selectors::default() }, ..scope() };
        assert_eq!(BTreeSet::from([one, other, selected]).len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_began_together_do_not_end_together() {
        // IN-5
        let mut seconds = BTreeSet::new();
        let mut silence = BTreeSet::new();
        for _ in 0..50 {
            let (list_watch, asked) = scripted_feed(|_| Answer(Some(200), vec![Step::Silent]));
            let began = Instant::now();
            drop(list_watch.stream(&mut |_| {}).await);
            list_watch.watch(Version(1), &mut |_| {}).await.unwrap();
            silence.insert(began.elapsed());
            for path in &*asked.lock() {
                let (_, time) = path.split_once("&timeoutSeconds=").unwrap();
                seconds.insert(time.parse::<u64>().unwrap());
            }
        }
        assert!(seconds.len() > 30, "{seconds:?}");
        assert!(seconds.iter().all(|time| (145..=290).contains(time)));
        assert!(silence.len() > 30, "{silence:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_waited_for_without_end() {
        let seconds = Duration::from_secs;
        // No answer at all.
        let (list_watch, _) = scripted_feed(|_| Answer(None, Vec::new()));
        for watch in [false, true] {
            let began = Instant::now();
            let error = if watch {
                list_watch.watch(Version(1), &mut |_| {}).await.unwrap_err()
            } else {
                list_watch.list(&mut |_| {}).await.unwrap_err()
            };
            assert_eq!(began.elapsed(), seconds(30));
            assert!(error.message.ends_with("no answer within 30 s"), "{error}");
        }
        // A page that does not end.
        let (list_watch, _) = scripted_feed(|_| Answer(Some(200), vec![Step::Silent]));
        let began = Instant::now();
        let error = list_watch.list(&mut |_| {}).await.unwrap_err();
        assert_eq!(began.elapsed(), seconds(60));
        let late = "a page of the list takes too long";
        assert!(error.message.ends_with(late), "{error}");
        // A watch on which nothing comes: from its beginning, and after the last that came.
        for (pause, within) in [(None, 75..=100), (Some(70), 145..=170)] {
            let steps = move || {
                let comes = pause.map(|pause| {
                    let event = event("ADDED", "a", 2);
                    [Step::Rests(seconds(pause)), Step::Comes(event)]
                });
                comes.into_iter().flatten().chain([Step::Silent]).collect()
            };
            let (list_watch, _) = scripted_feed(move |_| Answer(Some(200), steps()));
            let began = Instant::now();
            let ended = list_watch.watch(Version(1), &mut |_| {}).await;
            assert!(matches!(ended, Ok(End::Closed)), "{ended:?}");
            let lasted = began.elapsed();
            assert!(within.contains(&lasted.as_secs()), "{pause:?}: {lasted:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_comes_a_byte_now_and_then_is_not_waited_for_without_end() {
        let seconds = Duration::from_secs;
        // Whole events may come as slowly as they like.
        let drips = |text: String| text.into_bytes().into_iter().map(|byte| Step::Comes(char::from(byte).to_string()));
        let pauses = |steps: Vec<Step>| steps.into_iter().flat_map(move |step| [Step::Rests(seconds(40)), step]);
        let whole = (2..9).map(|version| Step::Comes(event("ADDED", "a", version))).collect();
        let steps: Vec<_> = pauses(whole).chain(pauses(drips(event("ADDED", "b", 9)).collect())).collect();
        let (list_watch, _) = scripted_feed(move |_| Answer(Some(200), steps.clone()));
        let (began, mut applied) = (Instant::now(), 0);
        let mut count = |item| applied += usize::from(matches!(item, Item::Applied(_)));
        let error = list_watch.watch(Version(1), &mut count).await.unwrap_err();
        assert_eq!((applied, began.elapsed()), (7, seconds(8 * 40) + EVENT_TIMEOUT));
        assert_eq!(error.reason, Reason::Unreachable);
        assert!(error.message.ends_with("the connection broke: an event takes too long"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_watch_is_given_up_soon_after_the_api_server_was_away() {
        let mut signs = 0;
        let (list_watch, _) = scripted_feed(move |path| {
            if path != "/version" {
                return Answer(Some(200), vec![Step::Silent]);
            }
            signs += 1;
            // It is asked after 5 s, for 2 s, and then answers.
            Answer((signs > 1).then_some(200), Vec::new())
        });
        let (began, mut sink) = (Instant::now(), |_| {});
        let ended = tokio::select! {
            ended = list_watch.watch(Version(1), &mut sink) => ended,
            () = list_watch.api.listen(|| {}) => unreachable!("it listens for ever"),
        };
        assert!(matches!(ended, Ok(End::Closed)), "{ended:?}");
        let lasted = began.elapsed();
        let [least, most] = [8, 9].map(Duration::from_secs);
        assert!((least..=most).contains(&lasted), "{lasted:?}");
    }

    #[tokio::test]
    async fn an_event_without_an_end_is_given_up() {
        let list_watch = list_watch(EVENT * 2).await;
        let error = list_watch.watch(Version(1), &mut |_| {}).await.unwrap_err();
        assert_eq!(error.reason, Reason::Unusable);
        let text = "watch v1 ConfigMap: what came can't be used: an event is longer than 16777216 bytes";
        assert_eq!(error.message, text);
    }

    #[tokio::test]
    async fn a_page_without_an_end_is_asked_for_with_fewer_objects_and_then_given_up() {
        let list_watch = list_watch(PAGE_BYTES + 1).await;
        let error = list_watch.list(&mut |_| {}).await.unwrap_err();
        assert_eq!(error.reason, Reason::Unusable);
        assert!(error.message.ends_with("one object makes a page of more than 67108864 bytes"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_pages_of_a_list_come_in_order_and_the_last_one_ends_it() {
        let page = |names: [&str; 2], version: u64, next: &str| {
            let items = names.map(|name| map(name, 1)).join(",");
            format!(r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":[{items}]}}"#)
        };
        let mut pages =
            [page(["d", "a"], 5, "one/+="), page(["c", "b"], 5, "two"), page(["f", "e"], 6, "")].into_iter();
        let (list_watch, asked) = scripted_feed(move |_| Answer(Some(200), vec![Step::Comes(pages.next().unwrap())]));
        let mut items = Vec::new();
        let sink = &mut |item| match item {
            Item::Listed(object) => items.push(object.key().name.to_string()),
            Item::Synced(version) => items.push(format!("all at {version}")),
            Item::Connected | Item::Applied(_) | Item::Deleted(_) | Item::Bookmark(_) | Item::Unreadable { .. } => {
                items.push("something else".to_owned());
            }
        };
        list_watch.list(sink).await.unwrap();
        assert_eq!(items, ["d", "a", "c", "b", "f", "e", "all at 6"]);
        let list = "/api/v1/configmaps?limit=500";
        let next = |token: &str| format!("{list}&continue={token}");
        let expected = [list.to_owned(), next("one%2F%2B%3D"), next("two")];
        assert_eq!(*asked.lock(), expected);
    }
}

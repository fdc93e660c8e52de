//! Keeps one cache true: lists, watches, and hands each change to the sources that subscribed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_core::cache::{Cache, Event, Writer};
use capstan_core::cluster::Error;
use capstan_core::object::{Change, Version};
use capstan_core::source::{Listener, Notice, Source};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Notify, watch};
use tokio::task::block_in_place;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{ApiServer, Kind};
use crate::metrics::InformerMetrics;
use crate::pause::Pause;
use feed::{End, Feed, Item};

pub mod feed;
pub mod pool;

pub use feed::Scope;

/// A watch that ends sooner than this has not worked.
const TOO_SOON: Duration = Duration::from_secs(1);

/// The longest pause after a failure (`IE-3`); one that lasted for longer than this did work before.
const LONGEST_PAUSE: Duration = Duration::from_secs(32);

/// Once the API server is back, all informers ask it again within this time.
const RETURN: Duration = Duration::from_secs(1);

/// Whether an informer's cache is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The first list is under way.
    Listing,
    /// It is, and changes come in.
    Watching,
    /// The last try failed, for this reason; it goes on trying. What the cache holds may be old, or nothing at all.
    Failing(String),
}

/// A source that is told of changes, and who is told what that means.
#[derive(Clone)]
pub struct Subscriber {
    /// The source.
    pub source: Arc<Source>,
    /// Is told what the source says.
    pub listener: Listener,
}

/// Each with the number of its membership.
type Subscribers = Vec<(u64, Subscriber)>;

/// What the informer's task and its subscribers share.
pub(crate) struct Shared {
    scope: Scope,
    cache: Cache,
    /// Bytes of objects that it may keep.
    bound: usize,
    /// None once the task has it.
    writer: Mutex<Option<Writer>>,
    subscribers: RwLock<Subscribers>,
    state: watch::Sender<State>,
    /// A list is being taken in.
    listing: AtomicBool,
    /// Everything is to be listed once more.
    relist: Notify,
    metrics: InformerMetrics,
}

/// The task of one informer.
pub(crate) struct Informer {
    shared: Arc<Shared>,
    feed: Feed,
    writer: Writer,
    /// Whether the API server serves streaming lists.
    streaming: bool,
    /// A list has begun and is not complete: what the cache holds is no state to watch on from.
    listing: bool,
}

/// Does what may take long, or wait for long, so that no other task of the runtime waits with it.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        // There is no other thread to go on with, or no runtime at all.
        Ok(_) | Err(_) => work(),
    }
}

fn deliver(subscribers: &Subscribers, change: &Change) {
    for (_, subscriber) in subscribers {
        subscriber.tell(subscriber.source.on(change.clone()));
    }
}

impl Shared {
    /// Returns the subscribers; nobody joins or leaves as long as that is held. A change and its telling are within one hold, so
    /// that whoever joins is told of it once.
    fn present(&self) -> RwLockReadGuard<'_, Subscribers> {
        // Whoever joins is being told of much, perhaps.
        self.subscribers
            .try_read()
            .unwrap_or_else(|| aside(|| self.subscribers.read()))
    }

    /// Returns the state in which changes come in, but not all of them can be kept.
    fn full(&self) -> State {
        let Self { bound, cache, .. } = self;
        let [taken, mebibytes] = [cache.bytes(), *bound].map(|bytes| bytes >> 20);
        State::Failing(format!(
            "its cache is full: {} objects take {taken} MiB, and others are left out: nothing is done about those until there is room; it may have {mebibytes} MiB (--cache-size), if other caches leave it so much (--cache-memory); delete what is too large or too much, watch less by namespaces or a selector, or raise those",
            cache.len()
        ))
    }

    fn before_list(&self) {
        // Set under the lock that joining takes: who joins later is told by whoever lets it join.
        let subscribers = self.present();
        self.listing.store(true, Ordering::Relaxed);
        for (_, subscriber) in &*subscribers {
            subscriber
                .source
                .before_list(self.scope.namespace.as_deref());
        }
    }

    fn after_list(&self, subscribers: &Subscribers) {
        self.listing.store(false, Ordering::Relaxed);
        for (_, subscriber) in subscribers {
            subscriber.tell(
                subscriber
                    .source
                    .after_list(self.scope.namespace.as_deref()),
            );
        }
    }

    /// Says that something is left out, once.
    fn fill_up(&self) {
        let watching = *self.state.borrow() == State::Watching;
        if watching {
            let full = self.full();
            if let State::Failing(why) = &full {
                tracing::error!(kind = %self.scope, why, "not everything is watched any more");
            }
            self.set(full);
        }
    }

    fn set(&self, state: State) {
        let full = state == State::Watching && !self.cache.is_complete();
        let state = if full { self.full() } else { state };
        self.metrics.synced.set(i64::from(self.cache.is_synced()));
        self.state.send_if_modified(|now| {
            let changed = *now != state;
            *now = state;
            changed
        });
    }
}

impl Subscriber {
    fn tell(&self, notices: Vec<Notice>) {
        if !notices.is_empty() {
            (self.listener)(notices);
        }
    }
}

impl Informer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        api: Arc<ApiServer>,
        kind: Kind,
        writer: Writer,
    ) -> Self {
        let feed = Feed::new(api, kind, shared.scope.clone());
        Self {
            shared,
            feed,
            writer,
            streaming: true,
            listing: false,
        }
    }

    /// Runs until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let token = stop.clone();
        tokio::select! {
            // Nothing comes in any more once it is to end.
            biased;
            () = token.cancelled() => {}
            () = self.keep_true() => {}
        }
    }

    async fn keep_true(&mut self) {
        let mut pause = Pause::up_to(LONGEST_PAUSE, self.feed.chance());
        let mut from = None::<Version>;
        loop {
            let started = Instant::now();
            let shared = Arc::clone(&self.shared);
            let ended = tokio::select! {
                // What has come is taken in first: the list that follows is then as new.
                biased;
                ended = self.follow(from) => ended,
                () = shared.relist.notified() => {
                    from = None;
                    continue;
                }
            };
            let lasted = started.elapsed() > LONGEST_PAUSE;
            let synced = self.writer.cache().is_synced() && !self.listing;
            match ended {
                Ok(end) => {
                    // What ends at once, again and again, must not spin.
                    if started.elapsed() < TOO_SOON {
                        self.feed.rest(pause.briefly()).await;
                    } else {
                        pause.reset();
                    }
                    let version = self.writer.cache().version();
                    // What has been left out is looked for again: there may be room for it by now.
                    let complete = self.writer.cache().is_complete();
                    from = (synced && complete && matches!(end, End::Closed)).then_some(version);
                }
                Err(error) => {
                    if lasted {
                        pause.reset();
                    }
                    let again_in = pause.after(&error);
                    tracing::warn!(kind = %self.shared.scope.gvk, %error, ?again_in, "watching failed");
                    self.shared.metrics.failures.inc();
                    self.shared.set(State::Failing(error.message));
                    self.feed.rest(again_in).await;
                    from = synced.then(|| self.writer.cache().version());
                }
            }
        }
    }

    async fn follow(&mut self, from: Option<Version>) -> Result<End, Error> {
        match from {
            Some(version) => self.watch(version).await,
            None => self.list_and_watch().await,
        }
    }

    /// Lists, in one stream with the watch if the API server can, and watches on.
    async fn list_and_watch(&mut self) -> Result<End, Error> {
        self.feed.refresh();
        self.shared.before_list();
        self.listing = true;
        self.writer.start_list();
        if self.streaming {
            let Self {
                shared,
                feed,
                writer,
                streaming,
                listing,
            } = self;
            let streamed = feed
                .stream(&mut |item| take(shared, writer, listing, item))
                .await;
            match streamed {
                Err(error) if matches!(error.code, 400 | 422) => {
                    tracing::info!(kind = %shared.scope.gvk, %error, "the API server serves no streaming lists, using pages");
                    *streaming = false;
                }
                ended => return ended,
            }
        }
        let Self {
            shared,
            feed,
            writer,
            listing,
            ..
        } = self;
        feed.list(&mut |item| take(shared, writer, listing, item))
            .await?;
        let version = self.writer.cache().version();
        self.watch(version).await
    }

    async fn watch(&mut self, from: Version) -> Result<End, Error> {
        let Self {
            shared,
            feed,
            writer,
            listing,
            ..
        } = self;
        feed.watch(from, &mut |item| take(shared, writer, listing, item))
            .await
    }
}

/// Takes one thing in, and hands on what it changes.
fn take(shared: &Shared, writer: &mut Writer, listing: &mut bool, item: Item) {
    let subscribers = shared.present();
    let change = match item {
        Item::Connected => {
            // A list that is under way says itself when it is complete.
            if !*listing {
                shared.set(State::Watching);
            }
            None
        }
        Item::Listed(object) => writer.list_item(object),
        Item::Synced(version) => {
            for change in writer.finish_list(version) {
                deliver(&subscribers, &change);
            }
            if *listing {
                *listing = false;
                shared.after_list(&subscribers);
            }
            tracing::debug!(kind = %shared.scope.gvk, objects = writer.cache().len(), "cache filled");
            shared.set(State::Watching);
            None
        }
        Item::Applied(object) => writer.apply(Event::Applied(object)),
        Item::Deleted(object) => writer.apply(Event::Deleted(object)),
        Item::Bookmark(version) => {
            writer.apply(Event::Bookmark(version));
            for (_, subscriber) in &*subscribers {
                let namespace = shared.scope.namespace.as_deref();
                subscriber.tell(subscriber.source.passed(namespace));
            }
            None
        }
        Item::Unreadable {
            key: Some(key),
            gone: true,
            ..
        } => writer.lose(&key),
        Item::Unreadable { key, error, .. } => {
            // Quirk 15: one object that can't be read does not stop the others.
            if writer.quarantine(key.as_ref()) {
                let object = key.map(|key| key.to_string());
                tracing::error!(kind = %shared.scope.gvk, object, %error, "an object can't be read; it counts as it was before, if that could be read");
            }
            None
        }
    };
    if let Some(change) = change {
        deliver(&subscribers, &change);
    }
    drop(subscribers);
    if !writer.cache().is_complete() {
        shared.fill_up();
    }
    let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let cache = writer.cache();
    shared.metrics.bytes.set(number(cache.bytes()));
    shared.metrics.objects.set(number(cache.len()));
    shared
        .metrics
        .unreadable
        .set(number(cache.unreadable().len()));
}

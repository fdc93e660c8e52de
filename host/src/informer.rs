//! Keeps one cache true: lists, watches, and hands each change to the sources that subscribed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use capstan_core::cache::{Cache, Event, Writer};
use capstan_core::cluster::Error;
use capstan_core::manifest::Rounded;
use capstan_core::object::{Change, ObjectRef, Version};
use capstan_core::source::{Listener, Source, Trigger};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Notify, watch};
use tokio::task::block_in_place;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::{Backoff, until};
use crate::client::transit::Transit;
use crate::client::{ApiServer, Kind};
use crate::metrics::InformerMetrics;
use joining::Joining;
use kept::Kept;
pub use kept::Need;
use list_watch::{End, Item, ListWatch};
pub use memory::Memory;
use state::{Held, LONGEST_PAUSE};

mod joining;
mod kept;
mod lines;
pub mod list_watch;
mod memory;
mod packing;
mod page;
pub mod pool;
mod starts;
mod state;

pub use list_watch::{Scope, Selectors};
pub use page::PageSize;

/// Once the API server is back, all informers ask it again within this time.
const RETURN: Duration = Duration::from_secs(1);

/// Why somebody who needs more fields than others who share an informer does not get them.
pub(crate) const NO_ROOM: &str = "what it keeps of objects finds no room beside what others keep of them: it knows nothing of them until others leave or an hour has passed; keep less (keep, drop, bounded), watch alone (shared: false), or raise --cache-size and --cache-memory";

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

/// Who shares an informer, each with the number of its subscription.
#[derive(Default)]
struct Subscribers {
    /// Those who are told of changes.
    present: Vec<(u64, Subscriber)>,
    /// Those who are being told of what there is.
    joining: Vec<Joining>,
    /// Those who need more fields than what is cached has.
    waiting: Vec<(u64, Subscriber)>,
}

/// What the informer's task and its subscribers share.
pub(crate) struct Shared {
    /// What it watches, and what that is called.
    id: (Scope, Kind),
    cache: Cache,
    /// The objects of a page of its lists.
    page: Arc<AtomicU32>,
    /// Bytes of objects that it may keep.
    bound: usize,
    /// None once the task has it.
    writer: Mutex<Option<Writer>>,
    subscribers: RwLock<Subscribers>,
    /// Those of them, by the numbers of their subscriptions, who have not been told of all that is there.
    untold: Mutex<BTreeSet<u64>>,
    /// What is kept of objects.
    kept: Kept,
    state: watch::Sender<State>,
    /// The last try failed because the API server was away.
    away: AtomicBool,
    /// A list is being taken in.
    listing: AtomicBool,
    /// Everything is to be listed once more, after the list under way if there is one.
    due: AtomicBool,
    /// Wakes whoever waits for that.
    relist: Notify,
    /// Wakes who packs what is cached.
    repack: Notify,
    metrics: InformerMetrics,
}

/// The task of one informer.
pub(crate) struct Informer {
    shared: Arc<Shared>,
    list_watch: ListWatch,
    /// Who takes in what comes, and who packs what is there, are one task: neither waits for the other.
    writer: Arc<Mutex<Writer>>,
    /// Whether the API server serves streaming lists.
    streaming: bool,
    /// A list has begun and is not complete: what the cache holds is no state to watch on from.
    listing: bool,
}

/// Does what may take long, or wait for long, so that no other task of the runtime waits with it.
pub(crate) fn aside<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        // There is no other thread to go on with, or no runtime at all.
        Ok(_) | Err(_) => work(),
    }
}

fn deliver(subscribers: &Subscribers, change: &Change) {
    for (_, subscriber) in &subscribers.present {
        subscriber.tell(subscriber.source.on(change.clone()));
    }
    for joining in &subscribers.joining {
        joining.miss(change.object().key());
    }
}

/// Takes in that an object is gone whose last version can't be read. Returns the change, if the cache had one that could be.
fn lose(subscribers: &Subscribers, writer: &mut Writer, object: &ObjectRef) -> Option<Change> {
    let change = writer.lose(object);
    if change.is_none() {
        for (_, subscriber) in &subscribers.present {
            subscriber.tell(subscriber.source.lost(object));
        }
        for joining in &subscribers.joining {
            joining.miss(object);
        }
    }
    change
}

impl Shared {
    /// Returns what it watches.
    fn scope(&self) -> &Scope {
        &self.id.0
    }

    /// Returns the subscribers; nobody joins or leaves as long as that is held. A change and its telling are within one hold, so
    /// that whoever joins is told of it once.
    fn present(&self) -> RwLockReadGuard<'_, Subscribers> {
        // Whoever joins is being told of much, perhaps.
        self.subscribers.try_read().unwrap_or_else(|| aside(|| self.subscribers.read()))
    }

    /// Returns the state in which changes come in, but not all of them can be kept.
    fn full(&self) -> State {
        let Self { bound, cache, .. } = self;
        let [taken, mebibytes] = [cache.bytes(), *bound].map(|bytes| bytes >> 20);
        State::Failing(format!(
            "its cache is full: {} objects take {taken} MiB, {} can't be read, and others are left out: nothing is done about those until there is room; it may have {mebibytes} MiB (--cache-size), if other caches leave it so much (--cache-memory); delete what is too large or too much, watch less by namespaces or a selector, or raise those",
            cache.len(),
            cache.unreadable_count()
        ))
    }

    /// Takes in that a list begins. Returns what it is cut down to.
    fn before_list(&self) -> Need {
        // Set under the lock that joining takes: who joins later is told by whoever lets it join.
        let subscribers = self.present();
        self.listing.store(true, Ordering::Relaxed);
        self.due.store(false, Ordering::Relaxed);
        let need = self.kept.begin(self.cache.is_empty(), Instant::now());
        for (_, subscriber) in &subscribers.present {
            subscriber.source.before_list(self.scope().namespace.as_deref());
        }
        need
    }

    /// Has everything listed once more.
    fn list_again(&self) {
        self.due.store(true, Ordering::Relaxed);
        self.relist.notify_one();
    }

    /// Waits until everything is to be listed once more and no list is under way: lists that are cut off again and again would
    /// tell nobody what is there. Nor do they follow each other without a rest.
    async fn relists(&self) {
        loop {
            let (now, rests, again) = (Instant::now(), self.kept.rests(), self.kept.again());
            if again.is_some_and(|again| again <= now) && self.kept.try_again() {
                self.due.store(true, Ordering::Relaxed);
            }
            let due = self.due.load(Ordering::Relaxed) && !self.listing.load(Ordering::Relaxed);
            let rests = rests.filter(|rests| due && *rests > now);
            if due && rests.is_none() {
                return;
            }
            let next = rests.or(again.filter(|again| *again > now));
            tokio::select! {
                () = self.relist.notified() => {}
                () = until(next) => {}
            }
        }
    }

    fn after_list(&self, subscribers: &Subscribers) {
        self.listing.store(false, Ordering::Relaxed);
        if self.due.load(Ordering::Relaxed) {
            self.relist.notify_one();
        }
        for (_, subscriber) in &subscribers.present {
            subscriber.tell(subscriber.source.after_list(self.scope().namespace.as_deref()));
        }
    }

    /// Lets those join who have waited for fields that every cached object has by now.
    fn let_in(self: &Arc<Self>) {
        let subscribers = &self.subscribers;
        let mut subscribers = subscribers.try_write().unwrap_or_else(|| aside(|| subscribers.write()));
        self.kept.end(Instant::now());
        let waiting = std::mem::take(&mut subscribers.waiting).into_iter();
        let (ready, waiting): (Vec<_>, _) =
            waiting.partition(|(_, subscriber)| self.kept.has(subscriber.source.spec().stays()));
        subscribers.waiting = waiting;
        self.admit(&mut subscribers, ready);
        // Whoever waits for a filled cache looks again.
        self.state.send_modify(|_| {});
    }

    /// Has somebody give in who needs more fields than others, if what is needed of each object finds no room. Returns true if so.
    fn give_way(&self) -> bool {
        if !self.kept.give_in(Instant::now()) {
            return false;
        }
        let namespace = self.scope().namespace.as_deref();
        let subscribers = || self.subscribers.try_write().unwrap_or_else(|| aside(|| self.subscribers.write()));
        let yields = |subscriber: &Subscriber| self.kept.yields(subscriber.source.spec().stays());
        let gone: Vec<_> = {
            let Subscribers { present, joining, waiting } = &mut *subscribers();
            let joining = joining.extract_if(.., |joining| yields(&joining.subscriber));
            let joining = joining.map(|Joining { number, subscriber, .. }| (number, subscriber));
            let gone = present.extract_if(.., |(_, subscriber)| yields(subscriber)).chain(joining).collect::<Vec<_>>();
            waiting.extend(gone.iter().cloned());
            gone
        };
        for (number, Subscriber { source, .. }) in &gone {
            self.untold.lock().insert(*number);
            tracing::error!(kind = %self.scope(), source = %source.spec().name, "{NO_ROOM}");
            source.awaits(namespace);
        }
        self.list_again();
        // Whoever waits for a filled cache looks again.
        self.state.send_modify(|_| {});
        true
    }

    /// Says that something is left out, once.
    fn fill_up(&self) {
        let watching = *self.state.borrow() == State::Watching;
        if watching {
            let full = self.full();
            if let State::Failing(why) = &full {
                tracing::error!(kind = %self.scope(), why, "not everything is watched any more");
            }
            self.set(full);
        }
    }

    /// Tells the metrics what is cached.
    fn measure(&self, cache: &Cache) {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let Self { metrics, .. } = self;
        metrics.bytes.set(number(cache.bytes()));
        metrics.objects.set(number(cache.len()));
        metrics.unreadable.set(number(cache.unreadable_count()));
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
    fn tell(&self, triggers: Vec<Trigger>) {
        if !triggers.is_empty() {
            (self.listener)(triggers);
        }
    }
}

impl Informer {
    pub(crate) fn new(shared: Arc<Shared>, (api, transit): (Arc<ApiServer>, Transit), writer: Writer) -> Self {
        let (scope, kind) = shared.id.clone();
        let list_watch = ListWatch::new((api, transit), kind, scope).paged_as(&shared.page);
        Self { shared, list_watch, writer: Arc::new(Mutex::new(writer)), streaming: true, listing: false }
    }

    /// Runs until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let token = stop.clone();
        let packing = packing::pack(Arc::clone(&self.shared), Arc::clone(&self.writer));
        tokio::select! {
            // Nothing comes in any more once it is to end, and what comes in goes before what is there.
            biased;
            () = token.cancelled() => {}
            () = self.keep_true() => {}
            () = packing => {}
        }
    }

    async fn keep_true(&mut self) {
        let mut pause = Backoff::up_to(LONGEST_PAUSE, self.list_watch.chance());
        let mut from = None::<Version>;
        loop {
            let started = Instant::now();
            let shared = Arc::clone(&self.shared);
            let ended = tokio::select! {
                // What has come is taken in first: the list that follows is then as new.
                biased;
                ended = self.follow(from) => ended,
                () = shared.relists() => {
                    from = None;
                    continue;
                }
            };
            let cache = &self.shared.cache;
            let synced = cache.is_synced() && !self.listing;
            let held = Held { synced, complete: cache.is_complete(), version: cache.version() };
            let next = state::next(&ended, started.elapsed(), held, &mut pause);
            if let Err(error) = ended {
                tracing::warn!(kind = %self.shared.scope().gvk, %error, again_in = %Rounded(next.pause), "watching failed");
                self.shared.metrics.failures.inc();
                self.shared.away.store(error.is_outage(), Ordering::Relaxed);
                self.shared.set(State::Failing(error.message));
            }
            if !next.pause.is_zero() {
                self.list_watch.rest(next.pause).await;
            }
            from = next.from;
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
        let Need { comes, stays, .. } = self.shared.before_list();
        self.list_watch.refresh(comes);
        self.listing = true;
        {
            let mut writer = self.writer.lock();
            writer.keep(stays);
            writer.start_list();
        }
        if self.streaming {
            let Self { shared, list_watch, writer, streaming, listing } = self;
            let streamed = list_watch.stream(&mut |item| take(shared, &mut writer.lock(), listing, item)).await;
            match streamed {
                Err(error) if matches!(error.code, 400 | 422) => {
                    tracing::info!(kind = %shared.scope().gvk, %error, "the API server serves no streaming lists, using pages");
                    *streaming = false;
                }
                ended => return ended,
            }
        }
        let Self { shared, list_watch, writer, listing, .. } = self;
        list_watch.list(&mut |item| take(shared, &mut writer.lock(), listing, item)).await?;
        let version = self.shared.cache.version();
        self.watch(version).await
    }

    async fn watch(&mut self, from: Version) -> Result<End, Error> {
        let Self { shared, list_watch, writer, listing, .. } = self;
        list_watch.watch(from, &mut |item| take(shared, &mut writer.lock(), listing, item)).await
    }
}

/// Takes one thing in, and hands on what it changes.
fn take(shared: &Arc<Shared>, writer: &mut Writer, listing: &mut bool, item: Item) {
    let subscribers = shared.present();
    let complete = *listing && matches!(item, Item::Synced(_));
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
            tracing::debug!(kind = %shared.scope().gvk, objects = writer.cache().len(), "cache filled");
            shared.set(State::Watching);
            None
        }
        Item::Applied(object) => writer.apply(Event::Applied(object)),
        Item::Deleted(object) => writer.apply(Event::Deleted(object)),
        Item::Bookmark(version) => {
            writer.apply(Event::Bookmark(version));
            for (_, subscriber) in &subscribers.present {
                let namespace = shared.scope().namespace.as_deref();
                subscriber.tell(subscriber.source.passed(namespace));
            }
            None
        }
        Item::Unreadable { key: Some(key), gone: true, .. } => lose(&subscribers, writer, &key),
        Item::Unreadable { key, error, .. } => {
            // IE-2: one object that can't be read does not stop the others.
            if writer.quarantine(key.as_ref()) {
                let object = key.map(|key| key.to_string());
                tracing::error!(kind = %shared.scope().gvk, object, %error, "an object can't be read; it counts as it was before, if that could be read");
            }
            None
        }
    };
    if let Some(change) = change {
        deliver(&subscribers, &change);
    }
    drop(subscribers);
    if complete {
        shared.let_in();
    }
    if !writer.cache().is_complete() && (*listing || !writer.is_full() || !shared.give_way()) {
        shared.fill_up();
    }
    if writer.is_due() {
        shared.repack.notify_one();
    }
    shared.measure(&writer.cache());
}

#[cfg(test)]
mod tests {
    use capstan_core::object::fields::Fields;
    use capstan_core::object::pointer::Pointer;
    use capstan_core::object::{Managers, Object, ObjectRef};
    use capstan_core::source::{TriggerKind, Within};
    use tokio::time::sleep;

    use super::list_watch::tests::{end_of_list, event, map, scope};
    use super::pool::Pool;
    use super::pool::tests::{keeping, subscriber};
    use super::*;
    use crate::client::tests::{Answer, Step, config_maps, scripted};

    /// Returns a pool of informers of an API server that gives these answers one after the other, and what it was asked for.
    fn pool(answers: Vec<Vec<Step>>) -> (Pool, Arc<Mutex<Vec<String>>>) {
        let mut answers = answers.into_iter();
        let (client, asked) = scripted(move |_| match answers.next() {
            Some(steps) if steps.is_empty() => Answer(Some(400), steps),
            Some(steps) => Answer(Some(200), steps),
            None => Answer(Some(200), vec![Step::Silent]),
        });
        let api = Arc::new(ApiServer::new(client, Managers::default()));
        let memory = Memory::new(1 << 20, u64::MAX);
        let pool = Pool::new(api, Arc::default(), memory, CancellationToken::new());
        (pool, asked)
    }

    /// Returns for each request what it is.
    fn sorts(asked: &Mutex<Vec<String>>) -> String {
        let asked = asked.lock();
        let sort = |path: &String| match path {
            path if path.contains("sendInitialEvents") => "stream",
            path if path.contains("watch=true") => "watch",
            path if path.contains("&continue=") => "next page",
            _ => "page",
        };
        asked.iter().map(sort).collect::<Vec<_>>().join(", ")
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_is_opened_again_from_where_it_was_and_the_cache_stays_true() {
        for end in [None, Some(Step::Cut)] {
            let later = Duration::from_secs(5);
            let whole = end_of_list(7);
            let mut first = vec![Step::Comes(whole), Step::Rests(later)];
            first.extend(end);
            let (pool, asked) = pool(vec![first]);
            let member = pool.keep(&scope(), &config_maps(), Need::all(Fields::whole()));
            let mut state = member.state.clone();
            let seen = Arc::new(Mutex::new(vec![state.borrow_and_update().clone()]));
            let noted = Arc::clone(&seen);
            tokio::spawn(async move {
                while state.changed().await.is_ok() {
                    noted.lock().push(state.borrow_and_update().clone());
                }
            });
            sleep(Duration::from_secs(20)).await;
            assert_eq!(*seen.lock(), [State::Listing, State::Watching]);
            assert_eq!(sorts(&asked), "stream, watch");
            let again = asked.lock()[1].clone();
            assert!(again.contains("&resourceVersion=7&"), "{again}");
        }
    }

    /// Returns the names of the objects that a cache has.
    fn names(cache: &Cache) -> Vec<String> {
        let objects = cache.list().into_iter();
        let mut names: Vec<_> = objects.map(|object| object.key().name.to_string()).collect();
        names.sort();
        names
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_breaks_off_deletes_nothing_and_is_no_state_to_watch_on_from() {
        let comes = |texts: &[String]| vec![Step::Comes(texts.concat())];
        let expired = "{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n".to_owned();
        let page = |items: &[String], next: &str| {
            let items = items.join(",");
            let text = format!(r#"{{"metadata":{{"resourceVersion":"5","continue":"{next}"}},"items":[{items}]}}"#);
            vec![Step::Comes(text)]
        };
        let [a, b] = [event("ADDED", "a", 1), event("ADDED", "b", 2)];
        let streams = |end: Option<Step>| {
            let mut broken = comes(std::slice::from_ref(&a));
            broken.extend(end);
            let whole = comes(&[a.clone(), b.clone(), end_of_list(2), expired.clone()]);
            let mut again = comes(&[a.clone(), end_of_list(5)]);
            again.push(Step::Silent);
            vec![whole, broken, again]
        };
        let pages = vec![
            // It serves no streams.
            Vec::new(),
            page(&[map("a", 1), map("b", 2)], ""),
            comes(std::slice::from_ref(&expired)),
            page(&[map("a", 1)], "more"),
            vec![Step::Cut],
            page(&[map("a", 1)], ""),
        ];
        for (answers, before, after) in [
            (streams(None), "stream, stream", "stream"),
            (streams(Some(Step::Cut)), "stream, stream", "stream"),
            (pages, "stream, page, watch, page, next page", "page, watch"),
        ] {
            let (pool, asked) = pool(answers);
            let (subscriber, told) = subscriber();
            let member = pool.join(&scope(), &config_maps(), subscriber);
            while sorts(&asked) != before {
                sleep(Duration::from_millis(10)).await;
            }
            sleep(Duration::from_millis(100)).await;
            assert_eq!((names(&member.cache), told.lock().len()), (vec!["a".into(), "b".into()], 2));
            let state = member.state.borrow().clone();
            assert!(matches!(state, State::Failing(_)), "{state:?}");

            sleep(Duration::from_secs(5)).await;
            assert_eq!(sorts(&asked), format!("{before}, {after}"));
            assert_eq!((names(&member.cache), told.lock().len()), (vec!["a".to_owned()], 3));
            let last = told.lock().pop().map(|trigger| trigger.what);
            assert!(matches!(last, Some(TriggerKind::Deleted { unknown: true, .. })));
            assert_eq!(*member.state.borrow(), State::Watching);
        }
    }

    /// Returns what has been told of an object.
    fn heard_of(object: &ObjectRef, told: &Mutex<Vec<Trigger>>) -> Vec<&'static str> {
        let told = told.lock();
        let of_it = told.iter().filter(|trigger| trigger.primary == *object);
        let what = of_it.map(|trigger| match trigger.what {
            TriggerKind::Changed { .. } => "changed",
            TriggerKind::Deleted { .. } => "deleted",
            TriggerKind::Related { .. } => "related",
        });
        what.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_echo_that_falls_into_the_gap_of_a_broken_list_is_no_longer_awaited_once_one_is_complete() {
        // FW-3.3, FW-4
        let second = Duration::from_secs(1);
        let expired = "{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n".to_owned();
        let first = |changes: &str| {
            let whole = event("ADDED", "a", 1) + &end_of_list(1);
            let rests = || Step::Rests(second);
            let steps = [Step::Comes(whole), rests(), Step::Comes(changes.to_owned()), rests()];
            steps.into_iter().chain([Step::Comes(expired.clone())])
        };
        let broken = || vec![Step::Comes(event("ADDED", "b", 4)), Step::Cut];
        let last = |objects: &str| vec![Step::Comes(objects.to_owned() + &end_of_list(5)), Step::Silent];
        let shown = event("ADDED", "a", 3) + &event("ADDED", "b", 4);
        let (gone, changed) = (event("ADDED", "b", 4), event("MODIFIED", "a", 2));
        for (changes, listed, heard) in [
            ("", &shown, "changed"),
            (&*changed, &shown, "changed"),
            ("", &gone, "deleted"),
            (&*changed, &gone, "deleted"),
        ] {
            let what = format!("{changes} {listed}");
            let (pool, asked) = pool(vec![first(changes).collect(), broken(), last(listed)]);
            let (subscriber, told) = subscriber();
            let source = Arc::clone(&subscriber.source);
            let member = pool.join(&scope(), &config_maps(), subscriber);
            sleep(second / 2).await;
            assert_eq!(std::mem::take(&mut *told.lock()).len(), 1, "{what}");
            let own = ObjectRef::namespaced("n", "a");
            let write = source.begin(own.clone(), |_| ());
            sleep(second).await;
            let answer = Object::parse(&map("a", 3), &config_maps().gvk, &Managers::default());
            write.wrote(answer.unwrap());
            while sorts(&asked) != "stream, stream" {
                sleep(second / 100).await;
            }
            sleep(second / 10).await;
            assert_eq!((heard_of(&own, &told), source.own_writes()), (vec![], 2), "{what}: in the gap");
            sleep(second * 5).await;
            assert_eq!(sorts(&asked), "stream, stream, stream");
            assert_eq!((heard_of(&own, &told), source.own_writes()), (vec![heard], 0), "{what}");
            assert_eq!(*member.state.borrow(), State::Watching);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_needs_more_fields_waits_for_a_list_that_has_them_and_others_notice_nothing() {
        // BC-2
        let only = |field| Fields::only(&[Pointer::parse(field).unwrap()]);
        let item = event("ADDED", "a", 1).replace("\"metadata\"", r#""data":{"a":"1","b":"2"},"metadata""#);
        let list = |version| vec![Step::Comes(item.clone() + &end_of_list(version)), Step::Silent];
        let (pool, asked) = pool(vec![list(1), list(2), list(3)]);
        let has = |object: Option<Object>| {
            let text = object.unwrap().json().to_owned();
            [text.contains("\"a\":\"1\""), text.contains("\"b\":\"2\"")]
        };
        let key = ObjectRef::namespaced("n", "a");
        let soon = Duration::from_millis(10);
        let (one, told_one) = keeping(only("/data/a"));
        let first = pool.join(&scope(), &config_maps(), one.clone());
        sleep(soon).await;
        assert_eq!((first.is_filled(), told_one.lock().len()), (true, 1));
        assert_eq!(has(first.cache.get(&key)), [true, false]);

        let (two, told_two) = keeping(only("/data/b"));
        let second = pool.join(&scope(), &config_maps(), two.clone());
        let unknown = two.source.known(Within::Everywhere).is_err();
        assert_eq!((second.is_filled(), unknown, told_two.lock().len()), (false, true, 0));
        let mut state = second.state.clone();
        state.borrow_and_update();
        state.changed().await.unwrap();
        sleep(soon).await;
        assert_eq!((second.is_filled(), told_one.lock().len(), told_two.lock().len()), (true, 1, 1));
        assert_eq!((sorts(&asked), has(first.cache.get(&key))), ("stream, stream".to_owned(), [true, true]));
        assert_eq!((has(one.source.get(&key)), has(two.source.get(&key))), ([true, false], [false, true]));

        drop(first);
        sleep(soon).await;
        assert_eq!((sorts(&asked), has(second.cache.get(&key))), ("stream, stream, stream".to_owned(), [false, true]));
        assert_eq!((second.is_filled(), told_two.lock().len()), (true, 1), "what is the same is no change");
    }

    #[tokio::test(start_paused = true)]
    async fn who_needs_more_than_there_is_room_for_fails_alone_and_gets_it_once_others_have_left() {
        // BC-2
        let large = format!("\"data\":{{\"a\":\"1\",\"b\":\"{}\"}},\"metadata\"", "x".repeat(3 << 20));
        let object = event("ADDED", "a", 2).replace("\"metadata\"", &large);
        let stream = || vec![Step::Comes(object.clone()), Step::Comes(end_of_list(7)), Step::Silent];
        let (pool, asked) = pool(std::iter::repeat_with(stream).take(5).collect());
        let key = ObjectRef::namespaced("n", "a");
        let soon = Duration::from_secs(1);
        let pointer = [Pointer::parse("/data/a").unwrap()];
        let (modest, told) = keeping(Fields::only(&pointer));
        let first = pool.join(&scope(), &config_maps(), modest.clone());
        sleep(soon).await;
        assert_eq!((first.is_filled(), first.state(), told.lock().len()), (true, State::Watching, 1));

        let (greedy, _) = subscriber();
        let second = pool.join(&scope(), &config_maps(), greedy.clone());
        sleep(soon).await;
        assert_eq!(sorts(&asked), "stream, stream, stream", "as before, with all fields, as before");
        assert_eq!((first.is_filled(), first.state()), (true, State::Watching));
        assert_eq!((modest.source.shows_all(Within::Everywhere), told.lock().len()), (Ok(()), 1));
        assert!(modest.source.get(&key).is_some());
        assert_eq!((second.is_filled(), second.state()), (false, State::Failing(NO_ROOM.to_owned())));
        assert!(greedy.source.known(Within::Everywhere).is_err() && greedy.source.get(&key).is_none());

        drop(first);
        sleep(soon).await;
        assert_eq!(sorts(&asked), "stream, stream, stream, stream");
        let State::Failing(why) = second.state() else { panic!("there is no room for it at all") };
        assert!(why.starts_with("its cache is full"), "{why}");
        drop(second);
    }
}

//! Shares informers: one per kind as it is called, namespace and selector, however many sources want it, and as long as one wants it (PO rules).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use capstan_core::cache::Cache;
use capstan_core::object::{Gvk, ObjectRef};
use capstan_core::room::Owners;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::joining::Join;
use super::kept::{Kept, Need};
use super::starts::{Life, NO_FILES, Starts};
use super::{Informer, Memory, Scope, Shared, State, Subscriber, aside};
use crate::client::{ApiServer, Kind};
use crate::descriptors;
use crate::metrics::Metrics;
use crate::watchdog::named;

/// How long after it could not begin for want of files an informer tries again.
const AGAIN: Duration = Duration::from_secs(10);

/// The informers of one cluster, as one operator wants them. A clone is another handle of the same pool.
#[derive(Clone)]
pub struct Pool(Arc<Inner>, Arc<str>);

struct Inner {
    api: Arc<ApiServer>,
    metrics: Arc<Metrics>,
    /// Where informers run, whoever wants them.
    runtime: Handle,
    stop: CancellationToken,
    /// What informers may take.
    memory: Memory,
    running: Mutex<Running>,
}

struct Running {
    /// By what they watch, and what that is called: a kind that was made anew may be another.
    informers: BTreeMap<(Scope, Kind), Entry>,
    tasks: JoinSet<()>,
    starts: Starts,
    /// The number of the last member.
    number: u64,
}

/// An informer, and how many want it.
struct Entry {
    shared: Arc<Shared>,
    members: usize,
    /// Those of them who need it no more, but may again.
    resting: usize,
    /// The operators that want it.
    owners: Owners,
    /// When it begins.
    begins: watch::Sender<Instant>,
    /// The operator for which it is counted, as a watch of a single namespace that has begun.
    counted: Option<Arc<str>>,
    /// Ends it alone.
    stop: CancellationToken,
}

/// How an informer is.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What it watches.
    pub scope: Scope,
    /// Whether anybody needs it now.
    pub needed: bool,
    /// Its state.
    pub state: State,
    /// How many objects it has.
    pub objects: usize,
    /// The objects whose newest version can't be read.
    pub unreadable: Vec<ObjectRef>,
}

/// A share in an informer, which lasts as long as somebody has one.
#[must_use = "the informer ends with its last subscription"]
pub struct Subscription {
    /// The objects.
    pub cache: Cache,
    /// Whether they are true.
    pub state: watch::Receiver<State>,
    pool: Arc<Inner>,
    shared: Arc<Shared>,
    /// Who has it.
    operator: Arc<str>,
    number: u64,
    /// What is needed of each object.
    need: Need,
    /// Nobody needs it now.
    rests: bool,
}

impl Pool {
    /// Returns a pool without informers; they end with `stop` at the latest. They run on the runtime that this is called on.
    pub fn new(api: Arc<ApiServer>, metrics: Arc<Metrics>, memory: Memory, stop: CancellationToken) -> Self {
        let starts = Starts::new(descriptors::most());
        let running = Mutex::new(Running { informers: BTreeMap::new(), tasks: JoinSet::new(), starts, number: 0 });
        Self(Arc::new(Inner { api, metrics, runtime: Handle::current(), stop, memory, running }), Arc::default())
    }

    /// Returns the same pool for an operator: its informers begin at a bounded rate, and are waited for by nobody else's (`NS-6`).
    #[must_use]
    pub fn of(&self, operator: &Arc<str>) -> Self {
        Self(Arc::clone(&self.0), Arc::clone(operator))
    }

    /// Adds a subscriber to an informer and starts it if it does not run yet. If it does, the subscriber is told of all
    /// that is there as if it were new (`PO-3`); once it is there, if it needs more fields than others did.
    pub fn join(&self, scope: &Scope, kind: &Kind, subscriber: Subscriber) -> Subscription {
        let (subscription, join) = self.begin(scope, kind, subscriber);
        if let Some(mut join) = join {
            while join.step() {}
        }
        subscription
    }

    /// Does the same, but has it told by a task, which gives others a turn in between: there may be very much to tell. It is filled once all
    /// has been told.
    pub fn join_beside(
        &self,
        scope: &Scope,
        kind: &Kind,
        subscriber: Subscriber,
        spawn: impl FnOnce(BoxFuture<'static, ()>),
    ) -> Subscription {
        let (subscription, join) = self.begin(scope, kind, subscriber);
        if let Some(join) = join {
            spawn(join.rested().boxed());
        }
        subscription
    }

    /// Keeps an informer going for somebody who needs this, and starts it if it does not run yet; nobody is told of what it sees.
    pub fn keep(&self, scope: &Scope, kind: &Kind, need: Need) -> Subscription {
        let (subscription, life) = self.0.admit((scope, kind), need, &self.1);
        self.start(&subscription.shared, life);
        subscription
    }

    /// Keeps an informer going that nobody needs now: it is as if it were not there to those who ask how the daemon is.
    pub fn rest(&self, scope: &Scope, kind: &Kind, need: Need) -> Subscription {
        let mut subscription = self.keep(scope, kind, need);
        subscription.rests = true;
        if let Some(entry) = self.0.running.lock().informers.get_mut(&subscription.shared.id) {
            entry.resting += 1;
        }
        subscription
    }

    /// Counts a subscriber in, and begins to tell it.
    fn begin(&self, scope: &Scope, kind: &Kind, subscriber: Subscriber) -> (Subscription, Option<Join>) {
        let need = Need::of(subscriber.source.spec());
        let (subscription, life) = self.0.admit((scope, kind), need, &self.1);
        let Subscription { shared, number, .. } = &subscription;
        let join = shared.subscribe(*number, subscriber);
        self.start(shared, life);
        (subscription, join)
    }

    /// Starts an informer if it does not run yet.
    fn start(&self, shared: &Arc<Shared>, mut life: Life) {
        let Self(inner, _) = self;
        // Taken once, by the first member.
        let writer = shared.writer.lock().take();
        if let Some(writer) = writer {
            let server = (Arc::clone(&inner.api), inner.memory.transit(shared.scope().account()));
            let informer = Informer::new(Arc::clone(shared), server, writer);
            let (pool, there) = (Arc::downgrade(inner), Arc::clone(shared));
            let may = move || pool.upgrade().is_some_and(|pool| pool.running.lock().begin(&there));
            let waits = Arc::clone(shared);
            let run = async move {
                while life.begun().await {
                    if may() {
                        return informer.run(life.stop).await;
                    }
                    waits.set(State::Failing(NO_FILES.to_owned()));
                    life.begins_in(AGAIN);
                }
            };
            let informing = named(format!("the informer of {}", shared.scope()), run);
            let mut running = inner.running.lock();
            running.tasks.spawn_on(informing, &inner.runtime);
        }
    }

    /// Lists all objects of these kinds once more, each of one namespace or of all, because more is to be kept of each than
    /// before. What is cached stays in use meanwhile.
    pub fn relist(&self, kinds: &BTreeSet<(Gvk, Option<Arc<str>>)>) {
        let is_meant = |Scope { gvk, namespace, .. }: &Scope| {
            let of = |only| kinds.contains(&(gvk.clone(), only));
            match namespace {
                Some(namespace) => of(None) || of(Some(Arc::clone(namespace))),
                None => kinds.range((gvk.clone(), None::<Arc<str>>)..).next().is_some_and(|(kind, _)| kind == gvk),
            }
        };
        for ((scope, _), entry) in &self.0.running.lock().informers {
            if is_meant(scope) {
                entry.shared.list_again();
            }
        }
    }

    /// Returns how many informers of single namespaces its operator has, and how many more it would have with these.
    pub fn watches(&self, with: &[(Scope, Kind)]) -> (usize, usize) {
        let running = self.0.running.lock();
        let single = |(scope, _): &&(Scope, Kind)| scope.namespace.is_some();
        let has = |id: &&(Scope, Kind)| running.informers.get(*id).is_some_and(|entry| entry.owners.has(&self.1));
        let known = running.informers.keys().filter(single).filter(has).count();
        (known, with.iter().filter(single).filter(|id| !has(id)).count())
    }

    /// Returns how each informer is.
    pub fn states(&self) -> Vec<Seen> {
        let running = self.0.running.lock();
        let one = |((scope, _), entry): (&(Scope, Kind), &Entry)| {
            let Entry { shared, .. } = entry;
            Seen {
                scope: scope.clone(),
                needed: entry.members > entry.resting,
                state: shared.state.borrow().clone(),
                objects: shared.cache.len(),
                unreadable: shared.cache.unreadable(),
            }
        };
        running.informers.iter().map(one).collect()
    }

    /// Waits until all tasks have ended, after the pool's stop.
    pub async fn ended(&self) {
        let mut tasks = std::mem::take(&mut self.0.running.lock().tasks);
        while tasks.join_next().await.is_some() {}
    }
}

impl Inner {
    /// Counts a member in, and returns when the informer begins, and what ends it.
    fn admit(self: &Arc<Self>, which: (&Scope, &Kind), need: Need, operator: &Arc<str>) -> (Subscription, Life) {
        let mut running = self.running.lock();
        // Those that have ended since are let go.
        while running.tasks.try_join_next().is_some() {}
        running.number += 1;
        let number = running.number;
        let entry = running.entry(which, operator, self);
        entry.members += 1;
        if entry.shared.kept.add(number, &need) {
            entry.shared.list_again();
        }
        if need.packed {
            entry.shared.repack.notify_one();
        }
        let subscription = Subscription {
            cache: entry.shared.cache.clone(),
            state: entry.shared.state.subscribe(),
            pool: Arc::clone(self),
            shared: Arc::clone(&entry.shared),
            operator: Arc::clone(operator),
            number,
            need,
            rests: false,
        };
        (subscription, Life { begins: entry.begins.subscribe(), later: None, stop: entry.stop.clone() })
    }
}

impl Entry {
    /// Whether its turn is still to come.
    fn waits(&self, now: Instant) -> bool {
        let begins = *self.begins.borrow();
        begins > now
    }
}

impl Running {
    /// Counts an informer as one that begins, if it may: for the first of those that want it which may. One that nobody wants any more is told to
    /// end elsewhere.
    fn begin(&mut self, shared: &Arc<Shared>) -> bool {
        let Self { informers, starts, .. } = self;
        let single = shared.scope().namespace.is_some();
        let entry = informers.get_mut(&shared.id).filter(|entry| single && Arc::ptr_eq(&entry.shared, shared));
        let Some(entry) = entry else {
            return true;
        };
        entry.counted = entry.owners.all().into_iter().find(|operator| starts.begin(operator));
        entry.counted.is_some()
    }

    fn entry(&mut self, (scope, kind): (&Scope, &Kind), operator: &Arc<str>, inner: &Inner) -> &mut Entry {
        let (id, now) = ((scope.clone(), kind.clone()), Instant::now());
        let Self { informers, starts, .. } = self;
        let known = informers.get(&id).filter(|entry| entry.owners.add(operator) && entry.waits(now));
        if let Some(entry) = informers.get(&id) {
            entry.shared.page.fetch_max(scope.page.0, Ordering::Relaxed);
        }
        if let Some(entry) = known {
            let sooner = starts.next(operator, now);
            entry.begins.send_modify(|begins| *begins = sooner.min(*begins));
        }
        informers.entry(id.clone()).or_insert_with(|| {
            let owners = Owners::default();
            owners.add(operator);
            let writer = inner.memory.writer(&scope.account(), &scope.share(), &owners);
            let (kind, namespace) = (scope.gvk.to_string(), scope.namespace.as_deref());
            let shared = Shared {
                page: Arc::new(AtomicU32::new(id.0.page.0)),
                id,
                cache: writer.cache(),
                bound: inner.memory.each(),
                writer: Mutex::new(Some(writer)),
                subscribers: RwLock::default(),
                untold: Mutex::default(),
                kept: Kept::default(),
                state: watch::Sender::new(State::Listing),
                away: AtomicBool::new(false),
                listing: AtomicBool::new(false),
                due: AtomicBool::new(false),
                relist: Notify::new(),
                repack: Notify::new(),
                metrics: inner.metrics.informers.of(&kind, namespace, scope.cluster.as_deref()),
            };
            let begins = watch::Sender::new(starts.next(operator, now));
            Entry {
                shared: Arc::new(shared),
                members: 0,
                resting: 0,
                owners,
                begins,
                counted: None,
                stop: inner.stop.child_token(),
            }
        })
    }
}

impl Subscription {
    /// Returns what its informer watches.
    pub fn scope(&self) -> &Scope {
        self.shared.scope()
    }

    /// Returns the same for messages.
    pub fn name(&self) -> Arc<str> {
        self.shared.scope().to_string().into()
    }

    /// Returns how it is, as far as this subscriber is concerned.
    pub fn state(&self) -> State {
        if self.shared.kept.yields(&self.need.stays) {
            return State::Failing(super::NO_ROOM.to_owned());
        }
        self.state.borrow().clone()
    }

    /// Returns true if it can't be listed because the API server is away.
    pub fn is_away(&self) -> bool {
        matches!(*self.state.borrow(), State::Failing(_)) && self.shared.away.load(Ordering::Relaxed)
    }

    /// Returns true if the cache is filled: a list has ended, of every object there is what is needed, and its subscriber has been told of it.
    pub fn is_filled(&self) -> bool {
        let untold = self.shared.untold.lock().contains(&self.number);
        !untold && self.cache.is_synced() && self.shared.kept.has(&self.need.stays)
    }
}

impl Subscription {
    /// Waits until all that is cached has been told to its subscriber.
    pub fn settle(&self) {
        // What comes in is cached and told within one hold.
        let subscribers = &self.shared.subscribers;
        drop(subscribers.try_write().unwrap_or_else(|| aside(|| subscribers.write())));
    }
}

impl Subscription {
    /// Tells the subscriber nothing more, and begins to tell it nothing, though the informer goes on until this is dropped.
    pub fn leave(&self) {
        // Another may be told of much right now: that is waited for before anybody else has to wait for this one.
        let stays = |(number, _): &(u64, Subscriber)| *number != self.number;
        let subscribers = &self.shared.subscribers;
        {
            let mut subscribers = subscribers.try_write().unwrap_or_else(|| aside(|| subscribers.write()));
            subscribers.present.retain(stays);
            let joining = subscribers.joining.extract_if(.., |joining| joining.number == self.number);
            let mut gone: Vec<_> = joining.map(|joining| (joining.number, joining.subscriber)).collect();
            gone.extend(subscribers.waiting.extract_if(.., |one| !stays(one)));
            self.shared.untold.lock().remove(&self.number);
            let waits = |source| subscribers.waiting.iter().any(|(_, other)| Arc::ptr_eq(&other.source, source));
            for (_, gone) in gone.iter().filter(|(_, gone)| !waits(&gone.source)) {
                gone.source.gives_up(self.shared.scope().namespace.as_deref());
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.leave();
        let scope = self.shared.scope();
        let mut running = self.pool.running.lock();
        let Running { informers, starts, .. } = &mut *running;
        let Some(entry) = informers.get_mut(&self.shared.id) else {
            return;
        };
        entry.members = entry.members.saturating_sub(1);
        let has_left = entry.owners.remove(&self.operator);
        entry.resting = entry.resting.saturating_sub(usize::from(self.rests));
        if self.shared.kept.remove(self.number) {
            self.shared.list_again();
        }
        if self.need.packed {
            self.shared.repack.notify_one();
        }
        let counted = entry.counted.as_mut().filter(|counted| has_left && **counted == self.operator);
        if let (Some(counted), Some(other)) = (counted, entry.owners.all().first()) {
            starts.pass(counted, other);
            counted.clone_from(other);
        }
        if entry.members == 0 {
            entry.stop.cancel();
            let entry = informers.remove(&self.shared.id);
            if let Some(operator) = entry.and_then(|entry| entry.counted) {
                starts.end(&operator);
            }
            let (kind, namespace) = (scope.gvk.to_string(), scope.namespace.as_deref());
            self.pool.metrics.informers.forget(&kind, namespace, scope.cluster.as_deref());
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::mpsc;
    use std::thread;

    use capstan_core::cache::Writer;
    use capstan_core::object::fields::Fields;
    use capstan_core::object::{Managers, Object, Version};
    use capstan_core::source::filter::Filter;
    use capstan_core::source::{Role, Source, Spec, Trigger};
    use tokio::runtime;
    use tokio::time::sleep;

    use super::super::list_watch::tests::end_of_list;
    use super::super::{Item, PageSize, Selectors, take};
    use super::*;
    use crate::client::tests::{Answer, Step, answering, config_maps, scripted};

    const SOON: Duration = Duration::from_secs(5);

    /// A pool with one worker, whose API server fails, and an informer that somebody keeps.
    struct Place {
        pool: Pool,
        scope: Scope,
        shared: Arc<Shared>,
        member: Option<Subscription>,
        runtime: runtime::Runtime,
    }

    fn place() -> Place {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let scope = super::super::list_watch::tests::scope();
        let api = runtime.block_on(answering("503 Service Unavailable", 0));
        let entered = runtime.enter();
        let pool = Pool::new(Arc::new(api), Arc::default(), Memory::new(1 << 20, u64::MAX), CancellationToken::new());
        drop(entered);
        let member = runtime.block_on(async { pool.keep(&scope, &config_maps(), Need::all(Fields::whole())) });
        let shared = Arc::clone(&pool.0.running.lock().informers[&(scope.clone(), config_maps())].shared);
        Place { pool, scope, shared, member: Some(member), runtime }
    }

    /// Returns a subscriber, and what it is told.
    pub(in super::super) fn subscriber() -> (Subscriber, Arc<Mutex<Vec<Trigger>>>) {
        keeping(Fields::whole())
    }

    /// Returns a subscriber that keeps some fields, and what it is told.
    pub(in super::super) fn keeping(fields: Fields) -> (Subscriber, Arc<Mutex<Vec<Trigger>>>) {
        let told = Arc::<Mutex<Vec<Trigger>>>::default();
        let subscriber = Subscriber {
            source: Arc::new(Source::new(Spec {
                name: "primaries".into(),
                gvk: config_maps().gvk,
                cluster: None,
                role: Role::Primary,
                filter: Filter::default(),
                indexes: BTreeMap::new(),
                fields,
                bounded: None,
                packed: false,
                faults: Arc::default(),
            })),
            listener: Arc::new({
                let told = Arc::clone(&told);
                move |triggers| told.lock().extend(triggers)
            }),
        };
        (subscriber, told)
    }

    /// Returns an informer that has listed all, whose events the test gives.
    pub(in super::super) fn shared(writer: &Writer) -> Arc<Shared> {
        Arc::new(Shared {
            id: (super::super::list_watch::tests::scope(), config_maps()),
            page: Arc::default(),
            cache: writer.cache(),
            bound: 1 << 20,
            writer: Mutex::new(None),
            subscribers: RwLock::default(),
            untold: Mutex::default(),
            kept: Kept::default(),
            state: watch::Sender::new(State::Watching),
            away: AtomicBool::new(false),
            listing: AtomicBool::new(false),
            due: AtomicBool::new(false),
            relist: Notify::new(),
            repack: Notify::new(),
            metrics: Metrics::default().informers.of("ConfigMap", None, None),
        })
    }

    impl Place {
        /// Keeps everybody from coming and going until it is dropped.
        fn hold(&self) -> mpsc::Sender<()> {
            let shared = Arc::clone(&self.shared);
            let (release, released) = mpsc::channel();
            let (tell, told) = mpsc::channel();
            thread::spawn(move || {
                let _held = shared.subscribers.read();
                tell.send(()).unwrap();
                released.recv().unwrap_err();
            });
            told.recv().unwrap();
            release
        }

        /// Returns what `act` returns if that is soon; it is done on a thread of its own.
        fn soon<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Option<T> {
            let (tell, told) = mpsc::channel();
            thread::spawn(move || drop(tell.send(act())));
            told.recv_timeout(SOON).ok()
        }
    }

    #[test]
    fn whoever_joins_and_is_told_of_much_holds_up_neither_the_pool_nor_the_runtime() {
        let place = place();
        let held = place.hold();
        let (pool, scope) = (place.pool.clone(), place.scope.clone());
        let (begin, begun) = mpsc::channel();
        let joining = place.runtime.spawn(async move {
            begin.send(()).unwrap();
            pool.join(&scope, &config_maps(), subscriber().0)
        });
        begun.recv_timeout(SOON).unwrap();
        let (tell, told) = mpsc::channel();
        place.runtime.spawn(async move { tell.send(()) });
        assert_eq!(told.recv_timeout(SOON), Ok(()), "the only worker");
        let pool = place.pool.clone();
        let states = Place::soon(move || pool.states().len());
        assert_eq!(states, Some(1));
        drop(held);
        drop(place.runtime.block_on(joining).unwrap());
    }

    #[test]
    fn whoever_leaves_meanwhile_does_not_either() {
        let mut place = place();
        let held = place.hold();
        let (member, (begin, begun)) = (place.member.take(), mpsc::channel());
        let leaving = place.runtime.spawn(async move {
            begin.send(()).unwrap();
            drop(member);
        });
        begun.recv_timeout(SOON).unwrap();
        let (tell, told) = mpsc::channel();
        place.runtime.spawn(async move { tell.send(()) });
        assert_eq!(told.recv_timeout(SOON), Ok(()), "the only worker");
        let pool = place.pool.clone();
        assert_eq!(Place::soon(move || pool.states().len()), Some(1));
        drop(held);
        place.runtime.block_on(leaving).unwrap();
        assert_eq!(place.pool.states().len(), 0);
    }

    #[test]
    fn an_object_that_a_list_shows_unreadable_is_not_told_as_deleted() {
        // IE-2
        let Place { shared, .. } = &place();
        let json = r#"{"metadata":{"name":"a","namespace":"n","uid":"1","resourceVersion":"7"}}"#;
        let broken = r#"{"metadata":{"name":"a","namespace":"n","uid":"1","resourceVersion":"x"}}"#;
        let parse = |json| Object::parse(json, &config_maps().gvk, &Managers::default());
        let (mut writer, (subscriber, told)) = (Writer::bounded(1 << 20), subscriber());
        subscriber.source.attach(None, writer.cache());
        shared.subscribers.write().present.push((1, subscriber));
        let unreadable =
            |gone| Item::Unreadable { key: Object::name_of(broken), gone, error: parse(broken).unwrap_err() };
        let taken = |writer: &mut Writer, item| {
            take(shared, writer, &mut false, item);
            std::mem::take(&mut *told.lock())
        };
        let applied = taken(&mut writer, Item::Applied(parse(json).unwrap()));
        assert_eq!(applied.len(), 1);
        writer.start_list();
        assert_eq!(taken(&mut writer, unreadable(false)), []);
        assert_eq!(taken(&mut writer, Item::Synced(Version(9))), [], "it stays");
        assert_eq!(writer.cache().unreadable(), [ObjectRef::namespaced("n", "a")], "it is named");
        assert_eq!(shared.metrics.unreadable.get(), 1);
        assert_eq!(taken(&mut writer, unreadable(true)).len(), 1, "it is gone");
        assert_eq!(shared.metrics.unreadable.get(), 0);
    }

    #[test]
    fn nobody_joins_between_a_change_and_those_who_are_told_of_it() {
        let json = r#"{"metadata":{"name":"a","namespace":"n","uid":"1","resourceVersion":"7"}}"#;
        let object = Object::parse(json, &config_maps().gvk, &Managers::default()).unwrap();
        let mut writer = Writer::bounded(1 << 20);
        let shared = shared(&writer);
        let (late, told_of) = subscriber();
        let (tell, told) = mpsc::channel();
        thread::scope(|threads| {
            let joining = shared.subscribers.write();
            let there = Arc::clone(&shared);
            threads.spawn(move || {
                take(&there, &mut writer, &mut false, Item::Applied(object));
                tell.send(()).unwrap();
            });
            assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
            assert_eq!(shared.cache.len(), 0, "whoever joins now is told of it later");
            drop(joining);
            told.recv_timeout(SOON).unwrap();
        });
        let mut join = shared.subscribe(1, late).unwrap();
        while join.step() {}
        assert_eq!((shared.cache.len(), told_of.lock().len()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_called_otherwise_by_now_is_watched_beside_what_it_was_called_before() {
        // IN-6
        let (client, asked) = scripted(|_| Answer(Some(200), vec![Step::Comes(end_of_list(1)), Step::Silent]));
        let (api, stop) = (ApiServer::new(client, Managers::default()), CancellationToken::new());
        let pool = Pool::new(Arc::new(api), Arc::default(), Memory::new(1 << 20, u64::MAX), stop);
        let scope = super::super::list_watch::tests::scope();
        let plates = Kind { plural: "plates".into(), ..config_maps() };
        let keep = |kind: &Kind| pool.keep(&scope, kind, Need::all(Fields::whole()));
        let members = [config_maps(), plates.clone(), config_maps()].map(|kind| keep(&kind));
        sleep(Duration::from_secs(1)).await;
        let paths = asked.lock().iter().map(|path| path.split('?').next().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(paths, ["/api/v1/configmaps", "/api/v1/plates"]);
        assert!(members.iter().all(Subscription::is_filled));
        let [one, other, another] = members;
        drop((one, another));
        assert_eq!((pool.states().len(), other.is_filled()), (1, true));
        drop(other);
        assert_eq!(pool.states().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_very_many_informers_holds_up_nobody_elses_nor_those_that_others_want_too() {
        // NS-6
        let (client, asked) = scripted(|_| Answer(Some(200), vec![Step::Comes(end_of_list(1)), Step::Silent]));
        let (api, stop) = (ApiServer::new(client, Managers::default()), CancellationToken::new());
        let pool = Pool::new(Arc::new(api), Arc::default(), Memory::new(1 << 20, u64::MAX), stop);
        let scope =
            |namespace: String| Scope { namespace: Some(namespace.into()), ..super::super::list_watch::tests::scope() };
        let keep = |pool: &Pool, name: String| pool.keep(&scope(name), &config_maps(), Need::all(Fields::whole()));
        pool.0.running.lock().starts = Starts::new(None);
        let [hog, other] = ["hog", "other"].map(|operator| pool.of(&operator.into()));
        let mut members: Vec<_> = (0..1000).map(|n| keep(&hog, format!("n{n}"))).collect();
        members.extend(["own".to_owned(), "n999".to_owned()].map(|name| keep(&other, name)));
        sleep(Duration::from_millis(1)).await;
        let listed = || members.iter().filter(|member| member.is_filled()).count();
        let [.., last, own, common] = members.as_slice() else { panic!("no members") };
        assert!(listed() < 210 && own.is_filled() && common.is_filled() && last.is_filled(), "{}", listed());
        sleep(Duration::from_secs(20)).await;
        assert_eq!((listed(), asked.lock().len()), (1002, 1001));
        let watches = |pool: &Pool, with: &[&str]| {
            pool.watches(&with.iter().map(|name| (scope((*name).to_owned()), config_maps())).collect::<Vec<_>>())
        };
        assert_eq!([&hog, &other, &pool].map(|pool| watches(pool, &[])), [(1000, 0), (2, 0), (0, 0)]);
        assert_eq!(watches(&other, &["own", "n999", "new"]), (2, 1), "what it watches already is no more");
        // What one leaves is the other's alone.
        drop(members.drain(..1000));
        assert_eq!([&hog, &other].map(|pool| watches(pool, &[])), [(0, 0), (2, 0)]);
        let counted = |pool: &Pool| {
            pool.0.running.lock().informers.values().filter_map(|one| one.counted.clone()).collect::<Vec<_>>()
        };
        assert_eq!(counted(&pool), [Arc::from("other"), "other".into()]);
    }

    #[tokio::test(start_paused = true)]
    async fn of_those_who_share_an_informer_nobody_makes_its_lists_longer() {
        // PO-1
        let page = r#"{"metadata":{"resourceVersion":"1","continue":"more"},"items":[]}"#;
        let (client, asked) = scripted(move |path| {
            let streams = path.contains("sendInitialEvents");
            let step = Step::Comes(page.to_owned());
            if streams {
                Answer(Some(422), vec![])
            } else {
                Answer(Some(200), vec![Step::Rests(Duration::from_secs(1)), step])
            }
        });
        let api = Arc::new(ApiServer::new(client, Managers::default()));
        let pool = Pool::new(api, Arc::default(), Memory::new(1 << 20, u64::MAX), CancellationToken::new());
        let with = |page| Scope { page: PageSize(page), ..super::super::list_watch::tests::scope() };
        let keep = |page| pool.keep(&with(page), &config_maps(), Need::all(Fields::whole()));
        let _small = keep(1);
        sleep(Duration::from_secs(3)).await;
        let limits = || {
            let limit = |path: &String| path.split("limit=").nth(1)?.split('&').next().map(str::to_owned);
            std::mem::take(&mut *asked.lock()).iter().filter_map(limit).collect::<BTreeSet<_>>()
        };
        assert_eq!(limits(), BTreeSet::from(["1".to_owned()]));
        let _usual = keep(500);
        sleep(Duration::from_secs(2)).await;
        limits();
        sleep(Duration::from_secs(3)).await;
        assert_eq!(limits(), BTreeSet::from(["500".to_owned()]), "from the next page on");
    }

    #[tokio::test(start_paused = true)]
    async fn the_informers_end_at_once_whatever_they_wait_for() {
        // ES-3
        let scope = |namespace: &str| Scope {
            gvk: config_maps().gvk,
            namespace: Some(namespace.into()),
            cluster: None,
            except: None,
            selectors: Selectors::default(),
            alone: None,
            page: PageSize::default(),
        };
        let (client, asked) = scripted(|path| match path {
            path if path.contains("/hangs/") => Answer(None, Vec::new()),
            path if path.contains("/silent/") => Answer(Some(200), vec![Step::Silent]),
            path if path.contains("/watches/") => Answer(Some(200), vec![Step::Comes(end_of_list(1)), Step::Silent]),
            _ => Answer(Some(500), Vec::new()),
        });
        let (api, stop) = (ApiServer::new(client, Managers::default()), CancellationToken::new());
        let memory = Memory::new(1 << 20, u64::MAX);
        let pool = Pool::new(Arc::new(api), Arc::default(), memory, stop.clone());
        let names = ["hangs", "silent", "watches", "fails"];
        let _members = names.map(|name| pool.keep(&scope(name), &config_maps(), Need::all(Fields::whole())));
        sleep(Duration::from_secs(10)).await;
        assert!(asked.lock().len() >= names.len());
        let (began, asked_before) = (Instant::now(), asked.lock().len());
        stop.cancel();
        pool.ended().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        sleep(Duration::from_mins(10)).await;
        assert_eq!(asked.lock().len(), asked_before);
    }
}

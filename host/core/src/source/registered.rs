//! Decides which sources runs may register beside those that the manifest declares, and has those that they have (`ES-4`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;

use super::Source;
use crate::bucket::{Bucket, Rate};
use crate::guest::{CallError, CallReason};
use crate::manifest::{self, Namespaces, Registration, Selected};

/// The most expressions of all registered sources together that are asked about events, as of a manifest.
const MOST_ASKED: usize = 32;

/// Why nothing is known of a source that is deregistered.
const ENDED: &str = "it is not watched any more: it was deregistered";

/// How often a plugin registers sources that are not there yet: each is listed, in each namespace that it names, and it is asked whether it may be.
const OFTEN: Rate = Rate { interval: Duration::from_secs(1), burst: 100 };

/// A source with more lists than this is refused for that.
const MOST_LISTS: usize = 16;

/// How often sources were registered lately, by all runs of a plugin, whichever of its versions and controllers.
#[derive(Debug, Default)]
pub struct News(Mutex<Bucket>);

/// The sources that runs of one version of a controller have registered. They end with this.
pub struct Registered {
    me: Weak<Self>,
    /// The most sources.
    most: usize,
    begin: Begin,
    news: Arc<News>,
    state: RwLock<State>,
}

/// The registered sources that are watched, by name.
pub type Watched = Arc<BTreeMap<Arc<str>, Arc<Source>>>;

/// Begins to watch what a source with this name is declared to.
///
/// # Errors
/// If the source can't be, as [`CallReason`] says.
pub type Begin =
    Box<dyn Fn(Arc<str>, manifest::Source, Revoke) -> BoxFuture<'static, Result<Begun, Refused>> + Send + Sync>;

/// A source can't be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why not.
    pub error: CallError,
    /// True if the API server was away: nobody else is to blame.
    pub outage: bool,
}

/// A source that is watched as long as this is kept.
pub struct Begun {
    /// The source.
    pub source: Arc<Source>,
    /// What keeps it watched.
    pub watch: Box<dyn Watch>,
}

/// Keeps a source watched.
pub trait Watch: Send + Sync {
    /// Waits until all that the source watches is listed.
    ///
    /// # Errors
    /// [`Unfilled`], once it is `by`.
    fn filled(&self, by: Instant) -> BoxFuture<'_, Result<(), Unfilled>>;

    /// Watches from now on what the source would if it were registered now, in the namespaces that its controller has by now. Returns false
    /// if it can't: then it has to be registered anew.
    fn follow(&self) -> bool {
        true
    }
}

/// Not all that a source watches is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfilled {
    /// Why not.
    pub why: String,
    /// True if the API server was away.
    pub outage: bool,
}

/// Ends one registration from elsewhere than a run.
pub struct Revoke {
    registered: Weak<Registered>,
    name: Arc<str>,
    entry: Weak<Entry>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Arc<str>, Arc<Entry>>,
    /// Those of them that are watched. Replaced as a whole.
    watched: Watched,
}

/// A registered source.
struct Entry {
    registration: Registration,
    begun: OnceCell<Begun>,
    /// True once it is deregistered.
    ended: watch::Sender<bool>,
    /// How many wait until it has begun.
    trying: AtomicUsize,
    /// Somebody has been told that it is declared in another way.
    told: AtomicBool,
}

/// Takes a registration back that has not come to anything.
struct Try<'a> {
    registered: &'a Registered,
    name: &'a str,
    entry: &'a Arc<Entry>,
}

// === impl Registered ===

impl Registered {
    /// Returns the place for so many sources at most, each of which begins like that. Its plugin shares `news` with others.
    pub fn new(most: usize, news: Arc<News>, begin: Begin) -> Arc<Self> {
        Arc::new_cyclic(|me| Self { me: Weak::clone(me), most, begin, news, state: RwLock::default() })
    }

    /// Returns the place of a controller whose runs can't register anything.
    pub fn none() -> Arc<Self> {
        let refused = || CallError::new(CallReason::Misplaced, "nothing can be registered here");
        Self::new(0, Arc::default(), Box::new(move |_, _, _| Box::pin(async move { Err(refused().into()) })))
    }

    /// Returns the sources that are watched, by name.
    pub fn watched(&self) -> Watched {
        Arc::clone(&self.state.read().watched)
    }

    /// Returns true if none is registered.
    pub fn is_empty(&self) -> bool {
        self.state.read().entries.is_empty()
    }

    /// Returns true if a source of this name is registered, whether it is watched yet or not.
    pub fn has(&self, name: &str) -> bool {
        self.state.read().entries.contains_key(name)
    }

    /// Returns a registration that is there, under this name and with this declaration.
    pub fn known(&self, name: &str, text: &str) -> Option<Registration> {
        let state = self.state.read();
        let found = state.entries.get(name).map(|entry| &entry.registration);
        found.filter(|registration| *registration.text == *text).cloned()
    }

    /// Registers a source, and waits until all that it watches is listed. Returns false if there is one of that name, which is then kept.
    ///
    /// # Errors
    /// [`Refused`]: `exhausted`, if there are too many; `unreachable`, if it is not listed `by` then: it is kept, and whoever registers it next waits
    /// on; `conflict`, if it is deregistered meanwhile; those of [`Begin`].
    pub async fn register(&self, name: &str, registration: Registration, by: Instant) -> Result<bool, Refused> {
        let (entry, new) = self.enter(name, registration, Instant::now())?;
        let trying = Try { registered: self, name, entry: &entry };
        let begun = entry.begun.get_or_try_init(|| self.begin(name, &entry)).await?;
        drop(trying);
        // The namespaces may have become others while it began.
        if !begun.watch.follow() {
            self.end(name, &entry);
        }
        let mut ended = entry.ended.subscribe();
        let filled = tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => None,
            filled = begun.watch.filled(by) => Some(filled),
        };
        match filled {
            None => {
                Err(CallError::new(CallReason::Conflict, format!("source {name} was deregistered meanwhile")).into())
            }
            Some(Ok(())) => Ok(new),
            Some(Err(Unfilled { why, outage })) => {
                let error = CallError::new(CallReason::Unreachable, format!("source {name}: {why}"));
                Err(Refused { error, outage })
            }
        }
    }

    /// Has all sources watch in the namespaces that the controller has by now. Returns true if some have ended because they can't.
    pub fn follow(&self) -> bool {
        let entries: Vec<_> = {
            let state = self.state.read();
            state.entries.iter().map(|(name, entry)| (Arc::clone(name), Arc::clone(entry))).collect()
        };
        // Those that are still to begin follow by themselves.
        let stuck = entries.iter().filter(|(_, entry)| entry.begun.get().is_some_and(|begun| !begun.watch.follow()));
        stuck.filter(|(name, entry)| self.end(name, entry)).count() > 0
    }

    /// Deregisters a source: from now on it wakes nobody. Returns false if there is none.
    pub fn deregister(&self, name: &str) -> bool {
        let entry = self.state.read().entries.get(name).cloned();
        entry.is_some_and(|entry| self.end(name, &entry))
    }

    /// Returns the entry of a name, and whether it is new.
    fn enter(&self, name: &str, registration: Registration, now: Instant) -> Result<(Arc<Entry>, bool), CallError> {
        let exhausted = |message: String| Err(CallError::new(CallReason::Exhausted, message));
        let mut state = self.state.write();
        let State { entries, .. } = &mut *state;
        if let Some(entry) = entries.get(name) {
            let other = entry.registration.source != registration.source && !entry.told.swap(true, Ordering::Relaxed);
            if other {
                tracing::warn!(source = %name, "a run registers a source in another way than it is registered already: it stays as it is; deregister it first");
            }
            entry.trying.fetch_add(1, Ordering::Relaxed);
            return Ok((Arc::clone(entry), false));
        }
        if entries.len() >= self.most {
            let names = entries.keys().map(|name| &**name).collect::<Vec<_>>().join(", ");
            let most = self.most;
            return exhausted(format!("there are {most} registered sources already (limits.sources): {names}"));
        }
        let asked = entries.values().map(|entry| entry.registration.asked).sum::<usize>() + registration.asked;
        if asked > MOST_ASKED {
            return exhausted(format!(
                "registered sources would have {asked} CEL expressions that are asked about each event; they may have {MOST_ASKED}"
            ));
        }
        if !self.news.0.lock().take_now(lists(&registration), OFTEN, now) {
            return exhausted(
                "sources are registered and deregistered too often: one a second, in the long run".into(),
            );
        }
        let entry = Arc::new(Entry {
            registration,
            begun: OnceCell::new(),
            ended: watch::Sender::new(false),
            trying: AtomicUsize::new(1),
            told: AtomicBool::new(false),
        });
        entries.insert(name.into(), Arc::clone(&entry));
        Ok((entry, true))
    }

    /// Begins to watch, and lets runs read what is there.
    async fn begin(&self, name: &str, entry: &Arc<Entry>) -> Result<Begun, Refused> {
        let name: Arc<str> = name.into();
        let revoke =
            Revoke { registered: Weak::clone(&self.me), name: Arc::clone(&name), entry: Arc::downgrade(entry) };
        let begun = (self.begin)(Arc::clone(&name), entry.registration.source.clone(), revoke).await?;
        begun.source.rests(ENDED);
        let mut state = self.state.write();
        if state.has(&name, entry) {
            Arc::make_mut(&mut state.watched).insert(name, Arc::clone(&begun.source));
        }
        Ok(begun)
    }

    /// Ends an entry, if it is still there. Returns whether it was.
    fn end(&self, name: &str, entry: &Arc<Entry>) -> bool {
        self.end_if(name, entry, || true)
    }

    /// Ends an entry if it is still there and `ends` says so, which nobody can change by entering it. Returns whether it did.
    fn end_if(&self, name: &str, entry: &Arc<Entry>, ends: impl FnOnce() -> bool) -> bool {
        {
            let mut state = self.state.write();
            if !ends() || !state.has(name, entry) {
                return false;
            }
            state.entries.remove(name);
            Arc::make_mut(&mut state.watched).remove(name);
        }
        entry.ended.send_replace(true);
        // Whoever still has it reads nothing from it, and what comes in for it until it is dropped wakes nobody.
        if let Some(Begun { source, .. }) = entry.begun.get() {
            for place in source.places().into_keys() {
                source.detach(place.as_deref());
            }
        }
        true
    }
}

/// Returns how many lists a source takes that is new.
fn lists(registration: &Registration) -> u32 {
    let lists = match &registration.source.namespaces {
        Some(Namespaces::Listed(names)) => names.len().clamp(1, MOST_LISTS),
        Some(Namespaces::Selected(Selected { found: Some(names), .. })) => names.len().clamp(1, MOST_LISTS),
        Some(Namespaces::All | Namespaces::Own | Namespaces::Selected(_)) | None => 1,
    };
    u32::try_from(lists).unwrap_or(u32::MAX)
}

impl State {
    fn has(&self, name: &str, entry: &Arc<Entry>) -> bool {
        self.entries.get(name).is_some_and(|there| Arc::ptr_eq(there, entry))
    }
}

impl fmt::Debug for Registered {
    /// Writes the names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.watched().keys()).finish()
    }
}

impl Revoke {
    /// Deregisters the source, if it is still the same. Returns whether it was.
    pub fn revoke(&self) -> bool {
        let (Some(registered), Some(entry)) = (self.registered.upgrade(), self.entry.upgrade()) else {
            return false;
        };
        registered.end(&self.name, &entry)
    }
}

impl From<CallError> for Refused {
    fn from(error: CallError) -> Self {
        Self { error, outage: false }
    }
}

impl Drop for Try<'_> {
    fn drop(&mut self) {
        let Self { registered, name, entry } = self;
        // Others who wait for the same begin it instead.
        let last = || entry.trying.fetch_sub(1, Ordering::Relaxed) == 1 && !entry.begun.initialized();
        registered.end_if(name, entry, last);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::FutureExt;
    use tokio::time::timeout_at;

    use super::*;
    use crate::cache::{Event, Writer};
    use crate::manifest::Mapper as Declared;
    use crate::object::fields::Fields;
    use crate::object::{Change, Gvk, Managers, Object, Scope};
    use crate::source::filter::Filter;
    use crate::source::mapper::Mapper;
    use crate::source::{Role, Spec, Within};

    /// Sources that are filled when the test says so, and how many have begun.
    struct Place {
        registered: Arc<Registered>,
        filled: watch::Sender<bool>,
        begun: Arc<AtomicUsize>,
        /// Why none can begin.
        fails: Arc<RwLock<Option<CallReason>>>,
        /// Those that can't follow the controller.
        stuck: Arc<RwLock<Vec<Arc<str>>>>,
    }

    /// Says of a source that goes by a name whether it can follow its controller.
    struct Filled(watch::Receiver<bool>, Arc<RwLock<Vec<Arc<str>>>>, Arc<str>);

    impl Watch for Filled {
        fn filled(&self, by: Instant) -> BoxFuture<'_, Result<(), Unfilled>> {
            let mut filled = self.0.clone();
            async move {
                let waits = timeout_at(by, filled.wait_for(|filled| *filled));
                let late = |_| Unfilled { why: "waiting for the first list".to_owned(), outage: false };
                waits.await.map(drop).map_err(late)
            }
            .boxed()
        }

        fn follow(&self) -> bool {
            !self.1.read().contains(&self.2)
        }
    }

    fn pages() -> Gvk {
        Gvk::parse("a.dev/v1", "Page").unwrap()
    }

    fn spec(name: &Arc<str>, gvk: &Gvk) -> Spec {
        let mapper = Mapper::new(pages(), Scope::Namespaced, Declared::OwnerReference);
        Spec {
            name: Arc::clone(name),
            gvk: gvk.clone(),
            cluster: None,
            role: Role::Secondary(mapper),
            filter: Filter::default(),
            indexes: BTreeMap::new(),
            fields: Fields::whole(),
            bounded: None,
            packed: false,
            faults: Arc::default(),
        }
    }

    fn place(most: usize, filled: bool) -> Place {
        sharing(&Arc::default(), most, filled)
    }

    fn sharing(news: &Arc<News>, most: usize, filled: bool) -> Place {
        let filled = watch::Sender::new(filled);
        let (begun, fails) = (Arc::<AtomicUsize>::default(), Arc::<RwLock<Option<CallReason>>>::default());
        let stuck = Arc::<RwLock<Vec<Arc<str>>>>::default();
        let begin: Begin = {
            let (filled, begun, fails) = (filled.subscribe(), Arc::clone(&begun), Arc::clone(&fails));
            let stuck = Arc::clone(&stuck);
            Box::new(move |name, declared, _| {
                let (filled, fails, begun) = (filled.clone(), Arc::clone(&fails), Arc::clone(&begun));
                let stuck = Arc::clone(&stuck);
                async move {
                    tokio::task::yield_now().await;
                    if let Some(reason) = *fails.read() {
                        return Err(CallError::new(reason, "on purpose").into());
                    }
                    begun.fetch_add(1, Ordering::Relaxed);
                    let source = Arc::new(Source::new(spec(&name, &declared.gvk)));
                    Ok(Begun { source, watch: Box::new(Filled(filled, stuck, name)) })
                }
                .boxed()
            })
        };
        Place { registered: Registered::new(most, Arc::clone(news), begin), filled, begun, fails, stuck }
    }

    fn declared(kind: &str, more: &str) -> Registration {
        let text = format!(r#"{{"informer":{{"apiVersion":"v1","kind":"{kind}"{more}}}}}"#);
        Registration::parse("a", &text, &BTreeMap::new()).unwrap()
    }

    impl Place {
        async fn register(&self, name: &str, registration: Registration) -> Result<bool, (CallReason, String)> {
            let by = Instant::now() + Duration::from_secs(1);
            let registered = self.registered.register(name, registration, by).await;
            registered.map_err(|Refused { error, .. }| (error.reason, error.message))
        }

        fn names(&self) -> Vec<String> {
            let watched = self.registered.watched();
            watched.iter().map(|(name, source)| format!("{name}: {}", source.spec().gvk)).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_begins_once_and_is_kept_under_its_name_however_it_is_declared_again() {
        // ES-4
        let place = place(8, true);
        let secrets = || declared("Secret", "");
        // From two runs at once.
        let both = tokio::join!(place.register("a", secrets()), place.register("a", secrets()));
        assert_eq!(both, (Ok(true), Ok(false)));
        assert_eq!(place.register("a", declared("Pod", "")).await, Ok(false));
        assert_eq!(place.register("b", declared("Pod", "")).await, Ok(true));
        assert_eq!(place.names(), ["a: v1 Secret", "b: v1 Pod"]);
        assert_eq!(place.begun.load(Ordering::Relaxed), 2);
        assert!(place.registered.known("a", &secrets().text).is_some());
        assert!(place.registered.known("a", &declared("Pod", "").text).is_none());
        assert_eq!((place.registered.deregister("a"), place.registered.deregister("a")), (true, false));
        assert_eq!(place.register("a", declared("Pod", "")).await, Ok(true));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_listed_in_time_is_named_and_goes_on_for_the_next_run() {
        let place = place(8, false);
        let late = (CallReason::Unreachable, "source a: waiting for the first list".to_owned());
        assert_eq!(place.register("a", declared("Secret", "")).await, Err(late));
        assert_eq!(place.names(), ["a: v1 Secret"]);
        place.filled.send_replace(true);
        assert_eq!(place.register("a", declared("Secret", "")).await, Ok(false));
        assert_eq!(place.begun.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_not_begin_leaves_nothing() {
        let place = place(1, true);
        *place.fails.write() = Some(CallReason::Missing);
        let missing = Err((CallReason::Missing, "on purpose".to_owned()));
        assert_eq!(place.register("a", declared("Secret", "")).await, missing);
        assert!(place.registered.is_empty() && place.names().is_empty());
        // A run whose time is up is dropped.
        *place.fails.write() = None;
        assert!(place.register("a", declared("Secret", "")).now_or_never().is_none());
        assert!(place.registered.is_empty());
        assert_eq!(place.register("b", declared("Secret", "")).await, Ok(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_waits_for_what_another_one_registers_goes_on_if_that_is_cut_off() {
        // ES-4
        let place = place(8, true);
        let mut first = Box::pin(place.register("a", declared("Secret", "")));
        assert!(first.as_mut().now_or_never().is_none(), "it begins");
        let mut second = Box::pin(place.register("a", declared("Secret", "")));
        assert!(second.as_mut().now_or_never().is_none(), "it waits for the first one");
        drop(first);
        assert_eq!((second.await, place.names()), (Ok(false), vec!["a: v1 Secret".to_owned()]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deregistered_source_wakes_nobody_and_whoever_waits_for_it_is_told() {
        // ES-4
        let place = place(8, false);
        let owned = r#"{"metadata":{"namespace":"n","name":"s","uid":"u","resourceVersion":"2","ownerReferences":[{"apiVersion":"a.dev/v1","kind":"Page","name":"p","uid":"v"}]}}"#;
        let owned = Object::parse(owned, &Gvk::parse("v1", "Secret").unwrap(), &Managers::default()).unwrap();
        let waits = place.register("a", declared("Secret", ""));
        let ends = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let source = Arc::clone(&place.registered.watched()["a"]);
            let mut writer = Writer::default();
            source.attach(None, writer.cache());
            assert_eq!(writer.apply(Event::Applied(owned.clone())).map(|change| source.on(change).len()), Some(1));
            assert!(place.registered.deregister("a"));
            // Its informer may be about to tell it of something.
            assert_eq!(source.on(Change::Deleted { last: owned, unknown: false }), []);
            assert_eq!(source.list(None), []);
            let why = source.known(Within::Everywhere).unwrap_err().to_string();
            assert!(
                why.ends_with("it is not watched any more: it was deregistered"),
                "a read that is under way: {why}"
            );
        };
        let (waited, ()) = tokio::join!(waits, ends);
        assert_eq!(waited, Err((CallReason::Conflict, "source a was deregistered meanwhile".to_owned())));
        assert!(place.names().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_no_more_sources_and_expressions_than_they_may_be_nor_come_and_go_too_often() {
        let few = place(2, true);
        for (name, expected) in [("a", Ok(true)), ("b", Ok(true))] {
            assert_eq!(few.register(name, declared("Secret", "")).await, expected);
        }
        let (reason, message) = few.register("c", declared("Secret", "")).await.unwrap_err();
        assert_eq!(reason, CallReason::Exhausted);
        assert_eq!(message, "there are 2 registered sources already (limits.sources): a, b");
        assert_eq!(few.register("a", declared("Secret", "")).await, Ok(false));

        let asking = place(64, true);
        let generic = r#","filters":{"generic":{"cel":"true"}}"#;
        for n in 0..MOST_ASKED {
            assert_eq!(asking.register(&format!("s{n}"), declared("Secret", generic)).await, Ok(true));
        }
        assert_eq!(asking.register("s", declared("Secret", "")).await, Ok(true));
        let (reason, message) = asking.register("t", declared("Secret", generic)).await.unwrap_err();
        assert_eq!((reason, message.contains("33 CEL expressions")), (CallReason::Exhausted, true), "{message}");

        let busy = place(1, true);
        let mut refused = None;
        for n in 0..200 {
            refused = refused.or(busy.register("a", declared("Secret", "")).await.err().map(|(reason, _)| (n, reason)));
            busy.registered.deregister("a");
        }
        assert_eq!(refused, Some((100, CallReason::Exhausted)));
        let (wide, mut begun) = (place(1, true), 0);
        let everywhere = r#","namespaces":["a","b","c","d"]"#;
        while wide.register("a", declared("Secret", everywhere)).await.is_ok() {
            begun += 1;
            wide.registered.deregister("a");
        }
        assert_eq!(begun, 25, "four lists each");
        // Another controller of the plugin, or another version of it, has no more for itself.
        let news = Arc::default();
        let [one, other] = [sharing(&news, 64, true), sharing(&news, 64, true)];
        for n in 0..50 {
            for place in [&one, &other] {
                assert_eq!(place.register(&format!("s{n}"), declared("Secret", "")).await, Ok(true));
            }
        }
        let (reason, _) = other.register("t", declared("Secret", "")).await.unwrap_err();
        assert_eq!(reason, CallReason::Exhausted);
    }

    #[tokio::test(start_paused = true)]
    async fn sources_go_on_where_their_controller_watches_by_now_and_end_if_they_cannot() {
        // ES-4, NS-2
        let place = place(9, true);
        for name in ["a", "b"] {
            assert_eq!(place.register(name, declared("ConfigMap", "")).await, Ok(true));
        }
        assert!(!place.registered.follow());
        assert_eq!(place.names().len(), 2);
        place.stuck.write().push("b".into());
        assert!(place.registered.follow());
        assert_eq!(place.names(), ["a: v1 ConfigMap"]);
        assert!(!place.registered.follow(), "it has ended");
        // One that is only beginning finds out itself.
        let late = place.register("b", declared("ConfigMap", "")).await;
        assert_eq!(late.map_err(|(reason, _)| reason), Err(CallReason::Conflict));
        assert_eq!(place.names().len(), 1);
        place.stuck.write().clear();
        assert_eq!(place.register("b", declared("ConfigMap", "")).await, Ok(true));
    }
}

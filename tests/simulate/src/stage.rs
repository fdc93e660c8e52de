//! Keeps what all parts of a simulation share: faults to come, what has happened, and what must not have happened.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use capstan_core::guest::RetryInfo;
use capstan_core::object::MARK;
use http::Method;
use model::{Asked, Fault, Loss, Model};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::chance::Chance;
use crate::plan::{Moment, Plan, Sort, Whim};
use crate::world::{Dependent, MAPS, THINGS, Variant};

/// Longer than a version takes to be loaded and put in place, though it is not wanted any more by then.
const LOADED: Duration = Duration::from_secs(40);

/// A primary by namespace and name.
pub(crate) type Key = (String, String);

/// The newest version of each object, by kind, namespace and name, that the answer to a write has told.
pub(crate) type Written = BTreeMap<(String, Key), Known>;

/// The state that all parts of a simulation share.
pub(crate) struct Stage {
    pub(crate) model: Model,
    /// Notified when the daemon has to crash at once.
    pub(crate) crash: Notify,
    started: Instant,
    state: Mutex<State>,
}

/// How long after a component was loaded a run may be the first of it that fails: those that are put off meanwhile follow.
const SWAP: Duration = Duration::from_mins(1);

struct State {
    /// The sources of how long requests take, one per path, as the order of requests is not always the same.
    ways: BTreeMap<String, Chance>,
    seed: u64,
    /// The longest time that a request, or an answer, takes to arrive.
    longest: Duration,
    troubles: VecDeque<(Sort, Fault)>,
    whims: VecDeque<Whim>,
    /// The moment at which the daemon has to crash.
    crashes: Option<Moment>,
    /// The fault of every request; `None` if there is no outage.
    outage: Option<Fault>,
    writes: u64,
    lines: Vec<String>,
    wrong: Option<String>,
    /// The runs under way.
    running: BTreeMap<Key, Run>,
    /// The last run of each primary that has ended, since the daemon's start.
    last: BTreeMap<Key, Run>,
    /// The runs that have begun since the last [`Stage::take_told`].
    told: Vec<Told>,
    /// True if primaries leave the selection and come back: the daemon forgets them meanwhile.
    forgets: bool,
    /// True if runs may fail before the component sees anything of them.
    hides: bool,
    /// When a component was loaded last that may have been put in force since: attempts are counted anew then.
    loaded: Option<Instant>,
    /// What the daemon knows to have written since its start.
    written: Written,
    /// The primaries that have run since the last [`Stage::take_runs`].
    ran: BTreeSet<Key>,
    seen: BTreeMap<Key, Seen>,
    variant: Variant,
    /// When the last version ceased to be wanted that watches fewer namespaces.
    fewer: Option<Instant>,
    /// The number of writes to each primary without an answer of success, since it was created last.
    refused: BTreeMap<Key, u32>,
    /// The number of runs of each primary, since it was created last.
    runs: BTreeMap<Key, u32>,
    /// The uids of objects that components have written to.
    met: BTreeSet<String>,
    /// The uids of objects that no run had been about when they were written to, by the name of the ones before them.
    early: BTreeSet<String>,
    /// The versions of primaries that a component has made, and whose events it has asked to filter.
    hushed: BTreeSet<u64>,
}

/// What the runs of the daemon, since its start, have seen of a primary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) generation: u64,
    pub(crate) dependents: BTreeMap<&'static str, Known>,
}

/// What runs have read of a dependent.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) uid: String,
    /// The newest version.
    pub(crate) version: u64,
}

/// A run of a primary.
#[derive(Clone, Debug)]
struct Run {
    /// Its number among those of the primary.
    number: u32,
    /// The number of the retry that it is told to be.
    attempt: Option<u32>,
    /// What the daemon knew to have written when it began.
    written: Written,
    /// The uid of its primary; `None` until it is known.
    uid: Option<String>,
    end: End,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It may fail for what the API server answers.
    Unknown,
    /// The component has failed.
    Failed,
    /// The component has answered a status that is written already.
    Succeeded,
    /// The component has answered a status. The run succeeds if the daemon knows of a version later than this one.
    Writes(u64),
}

/// A run as the component sees it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) key: Key,
    pub(crate) at: Instant,
    /// `None` until it has ended.
    pub(crate) end: Option<Instant>,
    pub(crate) retry: Option<RetryInfo>,
}

/// Ends a run when it is dropped.
pub(crate) struct Running {
    stage: Arc<Stage>,
    key: Key,
}

impl Stage {
    pub(crate) fn new(model: Model, plan: &Plan) -> Self {
        Self {
            model,
            crash: Notify::new(),
            started: Instant::now(),
            state: Mutex::new(State {
                ways: BTreeMap::new(),
                seed: plan.seed,
                longest: plan.way,
                troubles: VecDeque::new(),
                whims: VecDeque::new(),
                crashes: None,
                outage: None,
                writes: 0,
                lines: Vec::new(),
                wrong: None,
                running: BTreeMap::new(),
                last: BTreeMap::new(),
                told: Vec::new(),
                forgets: plan.forgets(),
                hides: plan.hides(),
                written: Written::new(),
                ran: BTreeSet::new(),
                seen: BTreeMap::new(),
                variant: Variant::Usual,
                fewer: None,
                refused: BTreeMap::new(),
                runs: BTreeMap::new(),
                met: BTreeSet::new(),
                early: BTreeSet::new(),
                loaded: None,
                hushed: BTreeSet::new(),
            }),
        }
    }

    // === what has happened ===

    /// Adds a line to the log of what has happened.
    pub(crate) fn note(&self, what: impl AsRef<str>) {
        let at = self.started.elapsed().as_secs_f64();
        let line = format!("{at:9.3} {}", what.as_ref());
        self.state.lock().lines.push(line);
    }

    /// Notes that something has happened that must not happen. The first such thing counts.
    pub(crate) fn wrong(&self, what: impl AsRef<str>) {
        self.note(format!("WRONG: {}", what.as_ref()));
        let wrong = &mut self.state.lock().wrong;
        wrong.get_or_insert_with(|| what.as_ref().to_owned());
    }

    pub(crate) fn is_wrong(&self) -> Option<String> {
        self.state.lock().wrong.clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.state.lock().lines.clone()
    }

    /// Returns how many writes the daemon has sent, but for Kubernetes Events.
    pub(crate) fn writes(&self) -> u64 {
        self.state.lock().writes
    }

    // === what is about to go wrong ===

    pub(crate) fn trouble(&self, sort: Sort, fault: Fault) {
        self.state.lock().troubles.push_back((sort, fault));
    }

    pub(crate) fn whim(&self, whim: Whim) {
        self.state.lock().whims.push_back(whim);
    }

    pub(crate) fn crash(&self, moment: Moment) {
        match moment {
            Moment::Now => self.crash.notify_one(),
            Moment::BeforeWrite | Moment::AfterWrite => self.state.lock().crashes = Some(moment),
        }
    }

    pub(crate) fn outage(&self, outage: Option<Fault>) {
        self.state.lock().outage = outage;
    }

    /// Lets nothing go wrong any more.
    pub(crate) fn heal(&self) {
        let mut state = self.state.lock();
        state.troubles.clear();
        state.whims.clear();
        state.crashes = None;
        state.outage = None;
    }

    /// Decides the fault of a request.
    pub(crate) fn decide(&self, asked: &Asked) -> Fault {
        let mut state = self.state.lock();
        let sort = sort(asked);
        // A Kubernetes Event may be written minutes after what it is about (ER-6).
        if sort == Some(Sort::Write) && !asked.path.contains("/events/") && !asked.path.ends_with("/events") {
            state.writes += 1;
        }
        if let Some(outage) = &state.outage {
            return outage.clone();
        }
        if sort == Some(Sort::Write)
            && let Some(moment) = state.crashes.take()
        {
            self.crash.notify_one();
            return match moment {
                Moment::AfterWrite => Fault::LoseAnswer(Loss::Silent),
                Moment::Now | Moment::BeforeWrite => Fault::LoseRequest(Loss::Silent),
            };
        }
        let armed = state.troubles.iter().position(|(of, _)| Some(*of) == sort);
        if let Some((_, fault)) = armed.and_then(|at| state.troubles.remove(at)) {
            return fault;
        }
        let longest = state.longest;
        let seed = state.seed;
        let fresh = || Chance::of((seed, 2), &asked.path);
        let way = state.ways.entry(asked.path.clone()).or_insert_with(fresh);
        Fault::Delay { before: way.time(longest), after: way.time(longest) }
    }

    /// Takes in how a request was answered; `None` = it was not answered.
    pub(crate) fn answered(&self, method: &Method, (what, path): (&str, &str), code: Option<u16>) {
        match code {
            Some(code) => self.note(format!("{what} -> {code}")),
            None => self.note(format!("{what} -> nothing")),
        }
        if *method != Method::GET && !matches!(code, Some(200..=299)) {
            let mut parts = path.split('/').skip_while(|part| *part != "namespaces").skip(1);
            let (Some(namespace), Some(plural), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
                return;
            };
            if plural == "things" {
                let key = (namespace.to_owned(), name.to_owned());
                *self.state.lock().refused.entry(key).or_default() += 1;
            }
        }
    }

    /// Takes in that the daemon deletes an object: what depends on it has to be gone, if it was made for the same primary.
    pub(crate) fn deletes(&self, path: &str) {
        let mut parts = path.split('/').skip_while(|part| *part != "namespaces").skip(1);
        let (Some(namespace), Some(_), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            return;
        };
        let Some(primary) = name.strip_suffix(Dependent::Kept.name()) else {
            return;
        };
        let later = (namespace.to_owned(), format!("{primary}{}", Dependent::Later.name()));
        let kept = self.there(&(namespace.to_owned(), name.to_owned()));
        let waits = |there: Value| {
            let whose = made_for(&there);
            whose.is_some() && whose == kept.as_ref().and_then(made_for)
        };
        if self.there(&later).is_some_and(waits) {
            self.wrong(format!("{namespace}/{name} is deleted before what depends on it"));
        }
    }

    fn there(&self, (namespace, name): &Key) -> Option<Value> {
        self.model.object(MAPS, Some(namespace), name)
    }

    /// Takes in that the daemon knows what an object is after a write of its own.
    pub(crate) fn wrote(&self, object: &Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let known = Known { uid: text("uid"), version: text("resourceVersion").parse().unwrap_or_default() };
        let mut state = self.state.lock();
        // A run about the one before may write the status of a primary that was made again.
        if kind == THINGS.kind && object["status"].is_object() {
            state.comes_early(&known.uid);
        }
        let last = state.written.entry((kind, (text("namespace"), text("name")))).or_insert_with(|| known.clone());
        if known.version > last.version {
            *last = known;
        }
    }

    /// Takes in that a component has written to an object.
    pub(crate) fn met(&self, uid: &str) {
        let mut state = self.state.lock();
        state.met.insert(uid.to_owned());
        state.comes_early(uid);
    }

    pub(crate) fn has_met(&self, uid: &str) -> bool {
        self.state.lock().met.contains(uid)
    }

    /// Takes in that a component has made this version of a primary, and that its event causes no run.
    pub(crate) fn hush(&self, version: u64) {
        self.state.lock().hushed.insert(version);
    }

    pub(crate) fn is_hushed(&self, version: u64) -> bool {
        self.state.lock().hushed.contains(&version)
    }

    /// Takes in that a primary was created.
    pub(crate) fn created(&self, key: &Key) {
        let mut state = self.state.lock();
        state.refused.remove(key);
        state.runs.remove(key);
    }

    pub(crate) fn refused(&self, key: &Key) -> u32 {
        self.state.lock().refused.get(key).copied().unwrap_or_default()
    }

    /// Returns how many runs of a primary have begun since it was created.
    pub(crate) fn runs(&self, key: &Key) -> u32 {
        self.state.lock().runs.get(key).copied().unwrap_or_default()
    }

    // === runs ===

    /// Takes in that the daemon has ended: nothing runs, and the next one has seen nothing.
    pub(crate) fn forget(&self) {
        let mut state = self.state.lock();
        state.running.clear();
        state.last.clear();
        state.written.clear();
        state.seen.clear();
    }

    /// Takes in a new version of the manifest. What was read in namespaces that are not watched any more is
    /// forgotten.
    pub(crate) fn swap(&self, variant: Variant) {
        let mut state = self.state.lock();
        if state.variant == Variant::Fewer {
            state.fewer = Some(Instant::now());
        }
        state.variant = variant;
        for ((namespace, _), seen) in &mut state.seen {
            if !variant.watches(namespace) {
                seen.dependents.clear();
            }
        }
        let State { written, running, .. } = &mut *state;
        for written in running.values_mut().map(|run| &mut run.written).chain([written]) {
            written.retain(|(_, (namespace, _)), _| variant.watches(namespace));
        }
    }

    /// True if a namespace has to be watched, by the version that is wanted and by any that may still be put in place before that.
    pub(crate) fn watches(&self, namespace: &str) -> bool {
        let state = self.state.lock();
        let is_over = || state.fewer.is_none_or(|since| since.elapsed() > LOADED);
        state.variant.watches(namespace) && (Variant::Fewer.watches(namespace) || is_over())
    }

    /// Begins a run.
    pub(crate) fn begin(self: &Arc<Self>, key: Key, retry: Option<RetryInfo>) -> Running {
        let before = {
            let mut state = self.state.lock();
            state.ran.insert(key.clone());
            state.told.push(Told { key: key.clone(), at: Instant::now(), end: None, retry });
            *state.runs.entry(key.clone()).or_default() += 1;
            let number = 1 + state.running.get(&key).or(state.last.get(&key)).map_or(0, |run| run.number);
            let attempt = retry.map(|retry| retry.attempt);
            let run = Run { number, attempt, written: state.written.clone(), uid: None, end: End::Unknown };
            state.running.insert(key.clone(), run)
        };
        if before.is_some() {
            self.wrong(format!("two runs of {key:?} at once"));
        }
        Running { stage: Arc::clone(self), key }
    }

    /// Returns what the daemon knew to have written of an object when the run of a primary began that is under way.
    pub(crate) fn written(&self, of: &Key, kind: &str, name: &str) -> Option<Known> {
        let state = self.state.lock();
        let object = (kind.to_owned(), (of.0.clone(), name.to_owned()));
        state.running.get(of)?.written.get(&object).cloned()
    }

    /// Takes in that a component was loaded, which is put in force then.
    pub(crate) fn loaded(&self) {
        self.state.lock().loaded = Some(Instant::now());
    }

    /// Takes in which primary a run is about. Returns what is wrong with what it was told of retries, as far as follows
    /// from the run before.
    pub(crate) fn is_about(&self, key: &Key, uid: &str) -> Option<String> {
        let mut state = self.state.lock();
        let State { running, last, forgets, hides, early, loaded, .. } = &mut *state;
        if *hides {
            return None;
        }
        let run = running.get_mut(key).filter(|run| run.uid.is_none())?;
        run.uid = Some(uid.to_owned());
        let last = last.get(key).filter(|last| last.uid.as_deref() == Some(uid))?;
        let (told, before) = (run.attempt.unwrap_or_default(), last.attempt.unwrap_or_default());
        let next = run.number == last.number + 1;
        let right = match last.end {
            End::Succeeded if next => run.attempt.is_none(),
            // It was read before its event came, which begins it anew.
            End::Failed if run.attempt.is_none() && early.remove(uid) => true,
            End::Failed if run.attempt.is_none() && loaded.is_some_and(|at| at.elapsed() < SWAP) => true,
            End::Failed if next && !*forgets => run.attempt.is_some() && (before..=before + 1).contains(&told),
            End::Succeeded | End::Failed | End::Unknown | End::Writes(_) => {
                told <= before + run.number.saturating_sub(last.number)
            }
        };
        (!right).then(|| format!("a run of {key:?} is told attempt {:?}, after {last:?}", run.attempt))
    }

    /// Takes in that the component has failed.
    pub(crate) fn fails(&self, key: &Key) {
        if let Some(run) = self.state.lock().running.get_mut(key) {
            run.end = End::Failed;
        }
    }

    /// Takes in that the component has answered a status, and if that has to be written.
    pub(crate) fn answers(&self, key: &Key, has_to_write: bool) {
        let mut state = self.state.lock();
        let version = state.version_of_primary(key);
        if let Some(run) = state.running.get_mut(key) {
            run.end = if has_to_write { End::Writes(version) } else { End::Succeeded };
        }
    }

    /// Returns the runs that have begun since the last call.
    pub(crate) fn take_told(&self) -> Vec<Told> {
        std::mem::take(&mut self.state.lock().told)
    }

    /// Returns the runs that have begun since the last call of [`Stage::take_told`].
    pub(crate) fn told(&self) -> Vec<Told> {
        self.state.lock().told.clone()
    }

    /// Returns the primaries that have run since the last call.
    pub(crate) fn take_runs(&self) -> BTreeSet<Key> {
        std::mem::take(&mut self.state.lock().ran)
    }

    /// Returns the next whim of a run, or of what the component desires.
    pub(crate) fn next_whim(&self, of_desired: bool) -> Option<Whim> {
        let whims = &mut self.state.lock().whims;
        let at = whims.iter().position(|whim| whim.is_of_desired() == of_desired)?;
        whims.remove(at)
    }

    pub(crate) fn seen(&self, key: &Key) -> Option<Seen> {
        self.state.lock().seen.get(key).cloned()
    }

    pub(crate) fn see(&self, key: &Key, seen: Seen) {
        self.state.lock().seen.insert(key.clone(), seen);
    }
}

impl State {
    /// Returns the version of a primary that the daemon knows to have written.
    fn version_of_primary(&self, key: &Key) -> u64 {
        let written = self.written.get(&(THINGS.kind.to_owned(), key.clone()));
        written.map(|known| known.version).unwrap_or_default()
    }

    /// Notes what the daemon has written to, if no run has been about it.
    fn comes_early(&mut self, uid: &str) {
        let mut runs = self.running.values().chain(self.last.values());
        if !runs.any(|run| run.uid.as_deref() == Some(uid)) {
            self.early.insert(uid.to_owned());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.stage.state.lock();
        if let Some(told) = state.told.iter_mut().rfind(|told| told.key == self.key) {
            told.end = Some(Instant::now());
        }
        let version = state.version_of_primary(&self.key);
        let Some(mut run) = state.running.remove(&self.key) else { return };
        run.end = match run.end {
            End::Writes(before) if version > before => End::Succeeded,
            End::Writes(_) => End::Unknown,
            end @ (End::Unknown | End::Failed | End::Succeeded) => end,
        };
        run.written.clear();
        state.last.insert(self.key.clone(), run);
    }
}

/// Returns the sort of a request; `None` for requests that fail only when all do.
pub(crate) fn sort(asked: &Asked) -> Option<Sort> {
    if asked.path == "/version" || asked.path.contains("selfsubjectaccessreviews") {
        return None;
    }
    Some(if asked.watches() {
        Sort::Watch
    } else if asked.reads() {
        Sort::Read
    } else {
        Sort::Write
    })
}

/// Returns the uid of the primary that an object was made for, by its mark.
fn made_for(object: &Value) -> Option<String> {
    let mark = object["metadata"]["annotations"][MARK].as_str()?;
    let mark: Value = serde_json::from_str(mark).ok()?;
    Some(mark["primary"]["uid"].as_str()?.to_owned())
}

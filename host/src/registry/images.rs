//! Keeps what manifests name in registries: asks what tags name again and again, and pulls what is new (`OC-6` to `OC-8`).
//!
//! A thread of its own for all of them: what registries send, its hashing and the disk hold nothing else up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use capstan_core::manifest::Image;
use capstan_core::operator::difference::difference;
use capstan_core::operator::tenant;
use capstan_core::operator::wants::{About, Wants};
use capstan_core::registry::challenge::Access;
use capstan_core::registry::mirror::{self, Mirrors};
use capstan_core::registry::signature::{Demand, Demands};
use capstan_core::registry::{Credentials, Digest, Failure, Kind, Reference, schedule};
use capstan_core::rollout::plan::Content;
use capstan_core::rollout::values::{Asked, Known as Value};
use capstan_core::turns::Turns;
use k8s_openapi::jiff::{Timestamp, ToSpan as _};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::kept::{InUse, Kept, Known, Place, Right};
use super::{Patience, Proxies, Session, Way, interfaces};
use crate::names::Names;
use crate::plugin::Outside;
use facts::Facts;
use remembered::Asker;

mod facts;
mod pulling;
mod remembered;

/// How many questions one registry is asked at once, and of those by one team: what is never answered there keeps no other team waiting.
const AT_ONCE: (usize, usize) = (8, 2);

/// How long a registry may take, where it is known what the reference named last and nothing is in force yet.
const HEAD_START: Duration = Duration::from_secs(5);

/// What manifests name in registries. Cheap to clone.
#[derive(Clone, Default)]
pub struct Images(Arc<Shared>);

#[derive(Default)]
struct Shared {
    outside: Outside,
    place: Option<Place>,
    /// Opened with the first component.
    kept: OnceLock<Kept>,
    rules: Rules,
    all: Mutex<BTreeMap<Key, Entry>>,
    /// The components of what runs, which references may name no more.
    in_force: Mutex<BTreeSet<Digest>>,
    /// What is known has changed.
    changed: Notify,
    turns: Mutex<BTreeMap<Arc<str>, Turns>>,
    /// When something was wanted for the first time.
    begun: OnceLock<Instant>,
    thread: OnceLock<Option<(Handle, DropGuard)>>,
}

/// What holds for all registries.
#[derive(Debug, Default)]
pub struct Rules {
    /// Registries that may speak without TLS, with their ports.
    pub insecure: BTreeSet<String>,
    /// Whose signature each component needs, whatever its operator says (`SG-1`).
    pub floor: Option<Demand>,
    /// Where registries are mirrored.
    pub mirrors: Mirrors,
    /// By which proxies they are reached.
    pub proxies: Proxies,
}

/// An image, as an operator names it: whoever else names it may have no right to it.
type Key = (Arc<str>, Image);

struct Entry {
    facts: Facts,
    seen: Seen,
    task: Option<AbortOnDropHandle<()>>,
    /// What is remembered of it, once that has been looked up.
    held: Option<Held>,
}

/// What does not go as long as an image is wanted.
#[derive(Default)]
struct Held {
    /// Those of the last times that it was asked for, the newest last.
    rights: VecDeque<Right>,
    component: Option<Digest>,
}

/// So many of those are held: whoever moves a tag all the time fills no disk.
const HELD: usize = 32;

/// How long after the first images nothing goes for want of room because what one needs has not been read, so that nobody knows what is remembered of
/// it. Later ones keep nothing back: whoever names others again and again would have all kept for ever.
const UNREAD: Duration = Duration::from_mins(1);

/// How an image is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// What it named when the registry answered last.
    pub known: Option<Known>,
    /// When the registry was asked last.
    pub checked: Option<Timestamp>,
    /// When it is asked again; `None`: it is being asked, or never is again.
    pub next: Option<Timestamp>,
    /// The mirror that answered; `None`: the registry itself did, or nobody.
    pub mirror: Option<Arc<str>>,
    /// Why that did not end well.
    pub problem: Option<Failure>,
}

// === impl Images ===

impl Images {
    /// Returns nothing yet. Registries are reached as by `outside`.
    pub fn new(outside: Outside, place: Option<Place>, rules: Rules) -> Self {
        Self(Arc::new(Shared { outside, place, rules, ..Shared::default() }))
    }

    /// Sets what operators name, where `known` is what is known of values of Secrets and `ConfigMap`s: from now on it is asked for.
    pub fn want(&self, wanted: impl IntoIterator<Item = Key>, known: impl Fn(&Asked) -> Option<Value>) {
        let wanted = wanted.into_iter().map(|key| (Facts::of(&key, &known), key));
        let wanted: Vec<_> = wanted.collect();
        self.0.begun.get_or_init(Instant::now);
        let mut all = self.0.all.lock();
        let mut before = std::mem::take(&mut *all);
        for (facts, key) in wanted {
            let (seen, held) = match before.remove(&key) {
                Some(entry) if entry.facts == facts && entry.task.is_some() => {
                    all.insert(key, entry);
                    continue;
                }
                Some(Entry { seen, held, .. }) => (seen, held),
                None => Default::default(),
            };
            let task = facts.is_read(&key.1).then(|| self.ask(&key, &facts));
            all.insert(key, Entry { facts, seen, task: task.flatten(), held });
        }
    }

    /// Takes in which components are in force: they stay, whatever references name by now.
    pub fn hold(&self, in_force: BTreeSet<Digest>) {
        *self.0.in_force.lock() = in_force;
    }

    /// Has all registries asked at once, whatever they have said before.
    pub fn again(&self) {
        let mut all = self.0.all.lock();
        for (key, entry) in all.iter_mut().filter(|(_, entry)| entry.task.is_some()) {
            entry.task = self.ask(key, &entry.facts);
        }
    }

    /// Waits until what is known has changed. If the future is dropped, no change is lost.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Returns the state of an image. What was good once goes on, whatever the registry says later (`OC-7`).
    pub fn content(&self, operator: &str, image: &Image) -> Content {
        match self.seen(operator, image) {
            Some(Seen { known: Some(known), .. }) => Content::Whole(known.component.to_string().into()),
            Some(Seen { problem: Some(problem), .. }) => Content::Refused(problem.message.into()),
            Some(_) | None => Content::Pulled,
        }
    }

    /// Returns how an image is; `None` if nobody wants it.
    pub fn seen(&self, operator: &str, image: &Image) -> Option<Seen> {
        let all = self.0.all.lock();
        all.get(&(operator.into(), image.clone())).map(|entry| entry.seen.clone())
    }

    /// Returns a component that was pulled. One that is lost or damaged is pulled again.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn read(&self, component: &Digest) -> io::Result<Vec<u8>> {
        let read = self.0.kept()?.read(component);
        if read.is_err() {
            let mut all = self.0.all.lock();
            let is_it = |entry: &Entry| entry.seen.known.as_ref().is_some_and(|known| known.component == *component);
            for (key, entry) in all.iter_mut().filter(|(_, entry)| is_it(entry)) {
                entry.seen.known = None;
                entry.task = self.ask(key, &entry.facts);
            }
        }
        read
    }

    fn ask(&self, key: &Key, facts: &Facts) -> Option<AbortOnDropHandle<()>> {
        let task = Arc::clone(&self.0).keep(key.clone(), facts.clone());
        Some(AbortOnDropHandle::new(self.0.runtime()?.spawn(task)))
    }
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Images")
    }
}

/// Why HTTP without TLS is not spoken.
const ONLY_HERE: &str =
    "`insecure` is for a registry on this machine, written as its address, and those of --insecure-registry";

/// Why nothing is pulled where nothing can be kept.
const NO_FOLDER: &str = "there is no folder for components (--component-cache)";

fn unkept(error: impl fmt::Display) -> Failure {
    Failure::new(Kind::Away, format!("it can't be kept: {error}"))
}

// === impl Shared ===

impl Shared {
    fn kept(&self) -> io::Result<&Kept> {
        if let Some(kept) = self.kept.get() {
            return Ok(kept);
        }
        let place = self.place.as_ref().ok_or_else(|| io::Error::other(NO_FOLDER))?;
        let kept = Kept::at(place)?;
        Ok(self.kept.get_or_init(|| kept))
    }

    /// Takes in what is remembered of an image, so that it stays.
    fn hold(&self, key: &Key, asker: &Asker<'_>, known: Option<&Known>) {
        if let Some(entry) = self.all.lock().get_mut(key) {
            let held = entry.held.get_or_insert_default();
            for right in asker.held(known) {
                held.rights.retain(|other| *other != right);
                held.rights.push_back(right);
            }
            held.rights.drain(..held.rights.len().saturating_sub(HELD));
            if let Some(known) = known {
                held.component = Some(known.component.clone());
            }
        }
    }

    /// Returns what may not go for want of room; `None` as long as that is not known.
    fn in_use(&self) -> Option<InUse> {
        let mut in_use = InUse { components: self.in_force.lock().clone(), ..InUse::default() };
        let is_early = self.begun.get().is_none_or(|begun| begun.elapsed() < UNREAD);
        for Entry { seen, held, .. } in self.all.lock().values() {
            in_use.components.extend(seen.known.iter().map(|known| known.component.clone()));
            match held {
                Some(Held { rights, component }) => {
                    in_use.rights.extend(rights.iter().cloned());
                    in_use.components.extend(component.clone());
                }
                None if is_early => return None,
                None => {}
            }
        }
        Some(in_use)
    }

    fn make_room(&self, kept: &Kept) {
        if let Some(in_use) = self.in_use() {
            kept.make_room(&in_use);
        }
    }

    /// Returns where registries are asked: a thread that begins with the first question, and ends with this.
    fn runtime(&self) -> Option<Handle> {
        let thread = self.thread.get_or_init(|| {
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.inspect_err(|error| warn!(%error, "no registry can be asked")).ok()?;
            let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
            let until = stop.clone();
            let thread = thread::Builder::new().name("registries".to_owned());
            let thread = thread.spawn(move || runtime.block_on(until.cancelled_owned()));
            drop(thread.inspect_err(|error| warn!(%error, "no registry can be asked")).ok()?);
            Some((handle, stop.drop_guard()))
        });
        thread.as_ref().map(|(handle, _)| handle.clone())
    }

    /// Asks for an image, for ever.
    async fn keep(self: Arc<Self>, key: Key, facts: Facts) {
        let mut failures = 0;
        loop {
            let looked = self.look(&key, &facts).await;
            failures = if looked.problem.is_none() { 0 } else { failures + 1 };
            let (_, image) = &key;
            let failed = looked.problem.as_ref().map(|failure| (failure, failures));
            let pause = schedule::again(image.reference.digest().is_some(), image.interval, failed);
            self.tell(&key, looked, pause);
            match pause {
                Some(pause) => sleep(pause).await,
                None => return,
            }
        }
    }

    /// Asks for an image once. What is remembered of it counts where the registry gives nothing (`OC-7`).
    async fn look(&self, key: &Key, facts: &Facts) -> Looked {
        let (operator, image) = key;
        let kept = match self.kept() {
            Ok(kept) => kept,
            Err(error) => return Looked::failed(unkept(error)),
        };
        let places = self.rules.mirrors.places(&image.reference);
        let credentials = places.iter().map(|place| facts.credentials(image, place)).collect::<Result<Vec<_>, _>>();
        let credentials = match credentials {
            Ok(credentials) => credentials,
            Err(failure) => {
                // What the operator had stays its own.
                let asker = Asker { operator, image, credentials: &[] };
                let remembered = asker.recall(kept, |_| true);
                self.hold(key, &asker, remembered.as_ref().map(|found| &found.known));
                return Looked::failed(failure);
            }
        };
        let asker = Asker { operator, image, credentials: &credentials };
        let demands = image.demands(self.rules.floor.as_ref());
        let remembered = asker.recall(kept, |known| demands.are_met(&image.reference, &known.signed));
        self.hold(key, &asker, remembered.as_ref().map(|found| &found.known));
        if let Some(found) = remembered.as_ref().filter(|found| found.is_given()) {
            asker.remember(kept, found);
            if image.reference.digest().is_some() {
                return Looked { known: Some(found.known.clone()), ..Looked::default() };
            }
        }
        let starts = self.all.lock().get(key).is_none_or(|entry| entry.seen.known.is_none());
        let limit = if starts && remembered.is_some() { HEAD_START } else { Duration::MAX };
        // Who else asks for the same and has nothing of it is given what the first one has pulled.
        let first = remembered.is_none().then(|| self.turns(&asker.right().name(), (1, 1)));
        let asked = self.asked(&asker, (&places, first.as_ref()), (kept, facts, &demands));
        let late = |_| Failure::new(Kind::Away, format!("it does not answer within {} s", limit.as_secs()));
        match timeout(limit, asked).await.map_err(late).flatten() {
            Ok((known, mirror)) => {
                self.hold(key, &asker, Some(&known));
                self.make_room(kept);
                Looked { known: Some(known), mirror, problem: None }
            }
            Err(problem) => {
                let known = remembered.and_then(|found| found.without(&problem));
                Looked { known, problem: Some(problem), mirror: None }
            }
        }
    }

    /// Asks each place for an image until one says what it is, and returns that with the mirror that has said so.
    async fn asked(
        &self,
        asker: &Asker<'_>,
        (places, first): (&[Reference], Option<&Turns>),
        (kept, facts, demands): (&Kept, &Facts, &Demands),
    ) -> Result<(Known, Option<Arc<str>>), Failure> {
        let Asker { operator, image, credentials } = *asker;
        let mut failures = Vec::new();
        for (place, who) in places.iter().zip(credentials) {
            let pulled = async {
                let session = self.session((image, place), facts, who.clone())?;
                let turns = self.turns(place.registry(), AT_ONCE);
                let team = tenant::team(operator);
                let _turn = turns.wait(&team).await;
                // Last: whoever has it waits for no other turn, so that nobody waits behind what another team has queued.
                let _first = match first {
                    Some(first) => Some(first.wait(&team).await),
                    None => None,
                };
                // Somebody else may have been given it meanwhile. What was signed well enough then, by keys that are still good for it, needs no
                // registry (`SG-4`).
                let remembered = asker.recall(kept, |known| demands.are_met(&image.reference, &known.signed));
                let found = pulling::pull(session, kept, (remembered.as_ref(), demands)).await?;
                asker.remember(kept, &found);
                Ok(found.known)
            };
            match pulled.await {
                Ok(known) => return Ok((known, (*place != image.reference).then(|| place.registry().into()))),
                Err(failure) => failures.push((place.clone(), failure)),
            }
        }
        Err(mirror::failed(failures, &image.reference).unwrap_or_else(|| Failure::new(Kind::Away, "nobody is asked")))
    }

    /// Returns a session with the registry of an image, or with a mirror of that: how one is reached is for the platform to say.
    fn session(
        &self,
        (image, place): (&Image, &Reference),
        facts: &Facts,
        credentials: Credentials,
    ) -> Result<Session, Failure> {
        let Image { reference, insecure, .. } = image;
        let is_permitted = self.rules.insecure.contains(place.registry());
        let is_insecure = if place == reference { *insecure } else { is_permitted };
        if is_insecure && !place.is_here() && !is_permitted {
            return Err(Failure::new(Kind::Denied, ONLY_HERE));
        }
        let outside = self.outside.clone();
        let reach = Arc::new(move |to: &_, address| outside.check(to, address));
        let mut way = Way {
            roots: self.outside.roots(),
            reach,
            names: Names::default(),
            proxies: self.rules.proxies.clone(),
            patience: Patience::default(),
        };
        if let Some(authority) = facts.authority(image) {
            let trusting = authority.and_then(|pem| way.trusting(&pem));
            way = trusting.map_err(|why| Failure::new(Kind::Denied, format!("ca: {why}")))?;
        }
        Ok(Session::new(way, place, (credentials, Access::Pull), is_insecure).in_place_of(reference))
    }

    /// Returns the turns of questions to a registry, or for what somebody has a right to: one that hangs holds up no others.
    fn turns(&self, of: &str, (all, each): (usize, usize)) -> Turns {
        let mut turns = self.turns.lock();
        turns.retain(|_, turns| !turns.is_unused());
        turns.entry(of.into()).or_insert_with(|| Turns::new(all, each)).clone()
    }

    /// Says what was found. What was known before stays until there is another.
    fn tell(&self, key: &Key, Looked { known, mirror, problem }: Looked, pause: Option<Duration>) {
        let (operator, image) = key;
        let reference = &image.reference;
        let mut all = self.all.lock();
        let Some(Entry { seen, .. }) = all.get_mut(key) else {
            return;
        };
        let now = Timestamp::now();
        let seconds = pause.and_then(|pause| i64::try_from(pause.as_secs()).ok());
        let next = seconds.and_then(|seconds| now.checked_add(seconds.seconds()).ok());
        let known = known.filter(|_| problem.is_none() || seen.known.is_none()).or_else(|| seen.known.clone());
        let found = Seen { known, checked: Some(now), next, mirror, problem };
        let before = std::mem::replace(seen, found.clone());
        drop(all);
        let Seen { known, mirror, problem, .. } = found;
        if (&before.known, &before.mirror, &before.problem) == (&known, &mirror, &problem) {
            return;
        }
        let digest = known.as_ref().map(|known| known.digest.to_string());
        if let (Some(before), Some(after)) = (&before.known, &known) {
            self.compare((operator, reference), &before.component, &after.component);
        }
        match problem {
            Some(error) if error.kind == Kind::Unsigned => {
                warn!(%operator, %reference, %error, digest, "what the reference names is not put in place; what it named last goes on, if there is any");
            }
            Some(error) if digest.is_some() => {
                warn!(%operator, %reference, %error, digest, "the registry does not say what the reference names; what it named last goes on");
            }
            Some(error) => warn!(%operator, %reference, %error, "the registry does not give what the reference names"),
            None => info!(%operator, %reference, digest, mirror = mirror.as_deref(), "the reference names this"),
        }
        self.changed.notify_one();
    }
}

impl Shared {
    /// Says what a version asks for and offers otherwise than the one before, as its own bytes say it (`SG-8`).
    fn compare(&self, (operator, reference): (&str, &Reference), before: &Digest, after: &Digest) {
        let about = |component: &Digest| {
            let bytes = self.kept().ok()?.read(component).ok()?;
            let about = About { interfaces: interfaces(&bytes).ok()?, size: bytes.len() as u64 };
            Some(Wants::of_component(&about))
        };
        if before == after {
            return;
        }
        let (Some(before), Some(after)) = (about(before), about(after)) else {
            return;
        };
        let lines = difference(&before, &after).all();
        info!(%operator, %reference, difference = lines.join("; "), "the reference names another version");
    }
}

/// What came of a question.
#[derive(Default)]
struct Looked {
    known: Option<Known>,
    /// Who answered in place of the registry.
    mirror: Option<Arc<str>>,
    problem: Option<Failure>,
}

impl Looked {
    fn failed(problem: Failure) -> Self {
        Self { problem: Some(problem), ..Self::default() }
    }
}

#[cfg(test)]
mod tests;

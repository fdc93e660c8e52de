//! What one source knows of things outside of the cluster, and which primaries a new answer of the component concerns (XC).
//!
//! It never calls the component, nor the queue: its caller polls, and passes on whose things have changed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::manifest;
use crate::object::ObjectRef;
use crate::room::Holding;
use crate::room::charge::Charge;

mod ahead;
mod asks;
mod differs;
mod known;
mod meant;
mod pushed;
mod reading;
pub mod schedule;
mod shares;
mod things;
mod written;

pub use ahead::Began;
use ahead::Doubts;
use asks::Asks;
pub use differs::{Change, Differs};
use known::{After, Known};
pub use meant::{Keyed, Unclear, key_of};
pub use reading::Unknown;
pub use shares::Refused;
use shares::{Facts, Taken};
pub use things::{Problem, Things, read};
pub use written::Write;

/// A source of things outside of the cluster.
pub struct External {
    /// Its name, unique in the controller (`ES-1`).
    pub name: Arc<str>,
    /// What the manifest says of it.
    pub spec: manifest::External,
    state: Mutex<State>,
    /// Primaries that are being polled by themselves, or wait for that.
    polled: Mutex<Waiting>,
    asks: Asks,
}

/// Who is polled by itself, or waits for that.
#[derive(Default)]
struct Waiting {
    locks: BTreeMap<ObjectRef, Weak<tokio::sync::Mutex<()>>>,
    /// Those that nobody waits for any more are forgotten once there are so many: each costs a few others then, however many wait.
    most: usize,
}

/// The right to poll one primary, until it is dropped.
pub type Alone = OwnedMutexGuard<()>;

#[derive(Default)]
struct State {
    primaries: BTreeMap<ObjectRef, Known>,
    /// All things, and the bytes that they take.
    things: usize,
    taken: Charge,
    /// The same of the primaries of each namespace, if they are polled by themselves.
    homes: BTreeMap<Arc<str>, Taken>,
    /// Whether it has been polled for all primaries at once.
    outcome: Outcome,
    /// Failures in a row.
    failures: u32,
    /// The primaries of which the last answer for all was of no use, and why.
    refused: BTreeMap<ObjectRef, Arc<str>>,
    /// The primaries of which it is not known what there is, as a write had no answer.
    doubts: Doubts,
}

/// How it stands with a primary that is polled by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its things are those that the last poll with success has found.
    Polled,
    /// No poll has succeeded, so its things are not known.
    Failed,
    /// No poll has ended: nothing is known but what runs have written.
    Awaited,
    /// The manifest does not want it polled: it has no things.
    Unwanted,
}

/// How the first poll for all primaries has gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Outcome {
    /// It has not ended.
    #[default]
    Awaited,
    /// It has failed, and so have all since.
    Failed(Arc<str>),
    /// It, or one since, has succeeded.
    Known,
}

/// What an answer for all primaries has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The primaries whose things differ from before.
    pub primaries: Vec<Differs>,
    /// True if nothing was known before, so that runs may have failed for that.
    pub known_now: bool,
    /// True if the answer was of no use for other primaries than the one before was.
    pub refused_anew: bool,
}

/// What there is in a source, in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The primaries of which something is known.
    pub primaries: usize,
    /// Their things.
    pub things: usize,
    /// The bytes that these take.
    pub bytes: u64,
    /// The polls that have failed since the last one that succeeded.
    pub failures: u32,
}

// === impl External: what polls have found ===

impl External {
    /// Returns a source that knows nothing yet.
    pub fn new(name: &Arc<str>, spec: manifest::External) -> Self {
        let (state, polled) = <(Mutex<State>, Mutex<Waiting>)>::default();
        Self { name: Arc::clone(name), spec, state, polled, asks: Asks::default() }
    }

    /// Takes in an answer for all primaries, to a question that `began` then: those that are not in it have no things (`XC-2`). Of those that
    /// it `refused` to read, with the reasons, what was known stays. `holding` returns the memory to borrow from.
    ///
    /// # Errors
    /// [`Refused`]; then nothing has changed.
    pub fn take_all(
        &self,
        began: Began,
        answer: BTreeMap<ObjectRef, Things>,
        refused: BTreeMap<ObjectRef, Arc<str>>,
        holding: impl FnOnce() -> Option<Holding>,
    ) -> Result<Changed, Refused> {
        let mut state = self.state.lock();
        let answer = state.confirmed(began, answer, &refused);
        let stays = refused.keys().filter_map(|key| Some((key, state.primaries.get(key)?)));
        let things = stays
            .clone()
            .map(|(_, known)| known.things.len())
            .chain(answer.values().map(|known| known.things.len()))
            .sum();
        let kept: u64 = stays.map(|(_, known)| known.bytes).sum();
        let bytes = kept + answer.values().map(|known| known.bytes).sum::<u64>();
        state.resize(&self.spec, (things, bytes), holding)?;
        let mut before = std::mem::take(&mut state.primaries);
        for key in refused.keys() {
            let known = before.remove_entry(key);
            state.primaries.extend(known);
        }
        // Their reasons may differ each time: those are told once.
        let useless = answer.is_empty() && !refused.is_empty();
        let refused_anew = !refused.keys().eq(state.refused.keys()) && !refused.is_empty();
        state.refused = refused;
        let mut changed = Vec::new();
        for (primary, now) in answer {
            let known = before.remove(&primary).map(|known| known.things).unwrap_or_default();
            let differences = Change::all(&known, &now.things);
            if !differences.is_empty() {
                changed.push(Differs { primary: primary.clone(), things: differences });
            }
            state.primaries.insert(primary, now);
        }
        for (primary, known) in before.into_iter().filter(|(_, known)| !known.things.is_empty()) {
            changed.push(Differs { primary, things: Change::all(&known.things, &Things::new()) });
        }
        let known_now = std::mem::replace(&mut state.outcome, Outcome::Known) != Outcome::Known;
        if !useless {
            state.failures = 0;
        }
        Ok(Changed { primaries: changed, known_now, refused_anew })
    }

    /// Takes in an answer for one primary, to a question that `began` then, and returns what of its things differs from before (`XC-1`).
    ///
    /// # Errors
    /// As [`External::take_all`].
    pub fn take_one(
        &self,
        began: Began,
        (primary, uid): (&ObjectRef, &str),
        things: Things,
        holding: impl FnOnce() -> Option<Holding>,
    ) -> Result<Vec<Change>, Refused> {
        let mut state = self.state.lock();
        let nothing = Known::of((primary, uid), Things::new(), Standing::Awaited);
        let before = state.primaries.get(primary).filter(|known| *known.uid == *uid).unwrap_or(&nothing);
        let known = before.answered((primary, uid), things, began.0);
        let changes = Change::all(&before.things, &known.things);
        state.make_room(&self.spec, primary, (known.taken(), true), holding)?;
        state.primaries.insert(primary.clone(), known);
        state.failures = 0;
        Ok(changes)
    }

    /// Takes in what a run has written outside of the cluster for its primary, unless something newer is known (`XC-4`). Where nothing has been
    /// polled for the primary alone, the first poll that begins after the run confirms it.
    ///
    /// # Errors
    /// As [`External::take_all`].
    pub fn write(
        &self,
        (primary, uid): (&ObjectRef, &str),
        id: &Arc<str>,
        write: Write,
        holding: impl FnOnce() -> Option<Holding>,
    ) -> Result<(), Refused> {
        let mut state = self.state.lock();
        state.disown(primary, Some(uid));
        let by_itself = self.spec.is_by_primary();
        let pushed = self.spec.is_only_told();
        let known = state.primaries.get(primary).filter(|known| known.uid.is_empty() || *known.uid == *uid);
        let new = match known {
            Some(_) => None,
            // Nothing else says what it has.
            None if pushed => Some(Known::of((primary, uid), Things::new(), Standing::Polled)),
            None if by_itself => Some(Known::of((primary, uid), Things::new(), Standing::Awaited)),
            // What the answer for all says of it is of no use, so that what else it has is not known.
            None if state.refused.contains_key(primary) => {
                Some(Known::of((primary, ""), Things::new(), Standing::Awaited))
            }
            None => Some(Known::of((primary, ""), Things::new(), Standing::Polled)),
        };
        let known = new.as_ref().or_else(|| state.primaries.get(primary));
        let Some(after) = known.and_then(|known| known.after(primary, id, write)) else {
            return Ok(());
        };
        let after = if pushed { after.settled() } else { after };
        state.put(&self.spec, (primary, id), (new, after), holding)?;
        if let Some(known) = state.primaries.get_mut(primary) {
            (known.held, known.writer) = (u64::MAX, uid.into());
        }
        Ok(())
    }

    /// Takes in that a run of a primary has ended well: by now it has written all by which a poll finds what it has made (`XC-5`).
    pub fn release(&self, primary: &ObjectRef, now: Instant) {
        let written = {
            let State { primaries, doubts, .. } = &mut *self.state.lock();
            let Some(known) = primaries.get_mut(primary).filter(|known| known.held == u64::MAX) else {
                return;
            };
            known.held = doubts.tick();
            (!known.written.is_empty()).then(|| known.uid.clone())
        };
        // IB-6: nobody was asked again as long as that could not have shown it.
        if let Some(uid) = written {
            self.settle_later((primary, &uid), now);
        }
    }

    /// Takes in that a primary has no things because the manifest does not want it polled, or that they are not known because a poll
    /// has failed: then those that were known stay.
    pub fn note(&self, primary: &ObjectRef, uid: &str, standing: Standing) {
        let mut state = self.state.lock();
        let known = state.primaries.get_mut(primary).filter(|known| *known.uid == *uid);
        if let Some(known) = known.filter(|_| standing == Standing::Failed) {
            if known.standing == Standing::Awaited {
                known.standing = standing;
            }
            return;
        }
        state.forget(primary);
        state.primaries.insert(primary.clone(), Known::of((primary, uid), Things::new(), standing));
    }

    /// Takes in that a poll has failed: what was known stays. Returns how many have in a row.
    pub fn fail(&self, why: &str) -> u32 {
        let mut state = self.state.lock();
        if state.outcome != Outcome::Known {
            state.outcome = Outcome::Failed(why.into());
        }
        state.failures = state.failures.saturating_add(1);
        state.failures
    }

    /// Forgets what it knows of a primary that has gone (`XC-6`). Where an answer for all says what there is, the next one is right, whatever
    /// runs have written.
    pub fn forget(&self, primary: &ObjectRef) {
        self.asks.forget(primary, None);
        let mut state = self.state.lock();
        if self.spec.is_by_primary() {
            state.forget(primary);
        } else {
            state.disown(primary, None);
        }
    }

    /// Forgets what it knows of a primary of this uid.
    pub fn forget_one(&self, primary: &ObjectRef, uid: &str) {
        let mut state = self.state.lock();
        if state.primaries.get(primary).is_some_and(|known| *known.uid == *uid) {
            state.forget(primary);
        }
    }

    /// Waits until nobody else polls a primary.
    pub async fn alone(&self, primary: &ObjectRef) -> Alone {
        let lock = {
            let Waiting { locks, most } = &mut *self.polled.lock();
            let known = locks.get(primary).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                if locks.len() >= *most {
                    locks.retain(|_, lock| lock.strong_count() > 0);
                    *most = 2 * locks.len() + 16;
                }
                let lock = Arc::<tokio::sync::Mutex<()>>::default();
                locks.insert(primary.clone(), Arc::downgrade(&lock));
                lock
            })
        };
        lock.lock_owned().await
    }

    /// Returns the primaries of which something is known.
    pub fn keys(&self) -> Vec<ObjectRef> {
        self.state.lock().primaries.keys().cloned().collect()
    }

    /// Returns the primaries that have been polled by themselves.
    pub fn polled(&self) -> Vec<schedule::Turn> {
        let state = self.state.lock();
        let polled = state.primaries.iter().filter(|(_, known)| known.standing == Standing::Polled);
        polled.map(|(key, known)| schedule::Turn { primary: key.clone(), uid: known.uid.clone() }).collect()
    }

    /// Returns what there is in it.
    pub fn counts(&self) -> Counts {
        let State { primaries, things, taken, failures, .. } = &*self.state.lock();
        Counts { primaries: primaries.len(), things: *things, bytes: taken.bytes(), failures: *failures }
    }
}

impl State {
    /// Returns what is known of all primaries by an answer, after what runs have written since the one before (`XC-5`). Where it was refused, the
    /// next one confirms.
    fn confirmed(
        &self,
        Began(began): Began,
        mut answer: BTreeMap<ObjectRef, Things>,
        refused: &BTreeMap<ObjectRef, Arc<str>>,
    ) -> BTreeMap<ObjectRef, Known> {
        let written =
            self.primaries.iter().filter(|(key, known)| !known.written.is_empty() && !refused.contains_key(key));
        let mut all = BTreeMap::new();
        for (key, known) in written {
            let known = known.answered((key, ""), answer.remove(key).unwrap_or_default(), began);
            if !known.things.is_empty() || !known.written.is_empty() {
                all.insert(key.clone(), known);
            }
        }
        all.extend(answer.into_iter().map(|(key, things)| {
            let known = Known::of((&key, ""), things, Standing::Polled);
            (key, known)
        }));
        all
    }

    /// Makes room for what is known of a primary by then. One that is polled `by_itself` may have half of what others leave; those of its
    /// namespace may have three quarters of what others leave.
    fn make_room(
        &mut self,
        spec: &manifest::External,
        primary: &ObjectRef,
        (wanted, by_itself): (Taken, bool),
        holding: impl FnOnce() -> Option<Holding>,
    ) -> Result<(), Refused> {
        let home = |home| self.homes.get(home).copied().unwrap_or_default();
        let all = Taken { things: self.things as u64, bytes: self.taken.bytes() };
        let before = self.primaries.get(primary).map(Known::taken).unwrap_or_default();
        if by_itself {
            let most = Taken { things: spec.things as u64, bytes: spec.memory };
            Facts { most, all, home: primary.namespace.as_ref().map(home), before, wanted }.check()?;
        }
        let Taken { things, bytes } = all.less(before).more(wanted);
        self.resize(spec, (usize::try_from(things).unwrap_or(usize::MAX), bytes), holding)?;
        if by_itself {
            self.move_in(primary, before, wanted);
        }
        Ok(())
    }

    /// Puts what a write of one thing makes of what is known of a primary in its place, which may be `new`.
    fn put(
        &mut self,
        spec: &manifest::External,
        (primary, id): (&ObjectRef, &Arc<str>),
        (new, after): (Option<Known>, After),
        holding: impl FnOnce() -> Option<Holding>,
    ) -> Result<(), Refused> {
        self.make_room(spec, primary, (after.taken, spec.is_by_primary()), holding)?;
        self.primaries.extend(new.map(|new| (primary.clone(), new)));
        if let Some(known) = self.primaries.get_mut(primary) {
            known.take(id, after);
        }
        Ok(())
    }

    /// Takes in that a primary has so much, and what it had before.
    fn move_in(&mut self, primary: &ObjectRef, before: Taken, now: Taken) {
        let Some(name) = &primary.namespace else {
            return;
        };
        let home = self.homes.entry(Arc::clone(name)).or_default();
        *home = home.less(before).more(now);
        if *home == Taken::default() {
            self.homes.remove(name);
        }
    }

    /// Ends what runs have written where an answer for all says what there is, unless they were those of a primary of this uid.
    fn disown(&mut self, primary: &ObjectRef, but: Option<&str>) {
        let written = |known: &&mut Known| known.uid.is_empty() && !known.written.is_empty();
        let known = self.primaries.get_mut(primary).filter(written);
        if let Some(known) = known.filter(|known| Some(&*known.writer) != but) {
            self.taken.give_back(known.settle());
        }
    }

    fn forget(&mut self, primary: &ObjectRef) {
        self.doubts.forget(primary);
        if let Some(known) = self.primaries.remove(primary) {
            let before = known.taken();
            self.move_in(primary, before, Taken::default());
            self.things -= known.things.len();
            self.taken.give_back(before.bytes);
        }
    }

    /// Makes room for so many things, and bytes of them.
    fn resize(
        &mut self,
        spec: &manifest::External,
        (things, bytes): (usize, u64),
        holding: impl FnOnce() -> Option<Holding>,
    ) -> Result<(), Refused> {
        let (too_many, too_large) = (things > spec.things, bytes > spec.memory);
        if too_many && things > self.things {
            return Err(Refused::Things { found: things, most: spec.things });
        }
        if too_large && bytes > self.taken.bytes() {
            return Err(Refused::Bytes { found: bytes, most: spec.memory });
        }
        self.taken.begin(holding);
        if !self.taken.set(bytes) {
            return Err(Refused::Memory(bytes.saturating_sub(self.taken.bytes())));
        }
        self.things = things;
        Ok(())
    }
}

impl fmt::Debug for External {
    /// Writes only the name: what it knows is nobody's affair.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "External({})", self.name)
    }
}

#[cfg(test)]
mod tests;

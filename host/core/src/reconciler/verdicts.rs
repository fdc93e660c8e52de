//! Remembers, per primary, the results of comparisons and the memos of the guest, so that a run that changes nothing
//! costs little.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::guest::Expectation;
use crate::object::{Object, ObjectRef, Version};
use crate::reconciler::departed::Departed;
use crate::reconciler::expectations::Expected;
use crate::reconciler::memos::Memos;
use crate::room::Holding;
use crate::room::charge::Charge;

mod bulk;
mod contests;
mod unwritten;
mod walks;

pub use bulk::Matched;
pub use contests::Contests;
pub use unwritten::{Kept, Unwritten};
pub use walks::{Reached, Walk, Walked, Walks};

/// So many inactive dependents of a primary are remembered whatever there is of memory: most have fewer.
const FREE: usize = 8;

/// The memory that each of the others takes, in bytes.
const EACH: u64 = 256;

/// The memory of a controller between its runs.
#[derive(Default)]
pub struct Verdicts {
    hasher: RandomState,
    primaries: Mutex<HashMap<ObjectRef, Remembered>>,
    /// The primaries whose last run did nothing because they are paused (`PA-5`).
    paused: Mutex<BTreeSet<ObjectRef>>,
    /// The last known objects of primaries that are gone, in all-events mode (`AE-2`).
    pub departed: Departed,
    /// What the workflows of primaries came to, for people.
    pub walks: Walks,
    /// The edition of the running controller; changed under the lock of `primaries`.
    edition: AtomicU64,
}

/// The memory of one primary. Bounded: one verdict per dependent and two for itself, those of bulks as long as their plugin has
/// memory for them, objects that could not be written yet likewise, memos within their limit, one expectation with a short name, one entry per inactive dependent, of many as long as there is memory, and one per dependent whose creation was not answered, and those of a few objects that have been put right lately.
#[derive(Default)]
struct Remembered {
    /// The uid of the primary: nothing is remembered of another primary with the same name.
    uid: Box<str>,
    /// By dependent, in order.
    verdicts: Vec<(Arc<str>, Verdict)>,
    bulks: HashMap<Arc<str>, Matched>,
    unwritten: HashMap<Arc<str>, Unwritten>,
    memos: Memos,
    expected: Expected,
    /// By dependent, in order.
    asleep: Vec<(Arc<str>, Asleep)>,
    /// The memory for those, if they are many.
    taken: Option<Box<Charge>>,
    unanswered: Vec<(Arc<str>, ObjectRef)>,
    contests: Contests,
    /// The last edition in which the managed workflow has been walked to its end.
    walked: Option<u64>,
}

/// An inactive dependent: its object is not looked at, so changes of it cause no run (`WF-4`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asleep {
    /// The source that holds its object.
    pub source: Arc<str>,
    /// The dependents that the source is for: one list for all of a primary that have the source.
    pub sharers: Arc<[Arc<str>]>,
    /// The key of its object, if that is known.
    pub object: Option<ObjectRef>,
}

/// A document that an object was found to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The hash of the guest's answer.
    pub answer: u64,
    /// The object that it was compared with.
    pub key: ObjectRef,
    /// The version of that object.
    pub version: Version,
}

impl Verdict {
    /// Returns the verdict that this version of an object matches an answer.
    pub fn of(answer: u64, object: &Object) -> Self {
        Self { answer, key: object.key().clone(), version: object.version() }
    }
}

impl Verdicts {
    /// Returns the hash of a document in an edition of a controller. Another edition may compare in another way, so
    /// its hashes differ, and it trusts none of these verdicts.
    pub fn hash(&self, edition: u64, document: &str) -> u64 {
        self.hasher.hash_one((edition, document))
    }

    /// Returns the last verdict on a dependent of a primary.
    pub fn verdict(&self, primary: &Object, name: &str) -> Option<Verdict> {
        let primaries = self.primaries.lock();
        primaries.get(primary.key())?.of(primary)?.verdict(name).cloned()
    }

    /// Keeps the verdict that an object matches.
    pub fn keep_verdict(&self, primary: &Object, name: &Arc<str>, verdict: Verdict) {
        self.change(primary, |remembered| {
            keep(&mut remembered.verdicts, name, Some(verdict));
        });
    }

    /// Returns the verdict that an object of a bulk matches an answer.
    pub fn verdict_of_bulk(&self, primary: &Object, name: &str, answer: u64) -> Option<Verdict> {
        let primaries = self.primaries.lock();
        let bulks = &primaries.get(primary.key())?.of(primary)?.bulks;
        bulks.get(name)?.get(answer).cloned()
    }

    /// Calls `act` to change the verdicts on the objects of a bulk.
    pub fn change_bulk(&self, primary: &Object, name: &Arc<str>, act: impl FnOnce(&mut Matched)) {
        self.change(primary, |remembered| act(remembered.bulks.entry(Arc::clone(name)).or_default()));
    }

    /// Returns an object that should remember the id of a thing of a dependent, and could not be written, with the key of the thing.
    pub fn unwritten(&self, primary: &Object, dependent: &str) -> Option<(Arc<str>, Kept)> {
        let primaries = self.primaries.lock();
        primaries.get(primary.key())?.of(primary)?.unwritten.get(dependent)?.first()
    }

    /// Calls `act` to change which objects could not be written that should remember the ids of a dependent's things.
    pub fn change_unwritten(&self, primary: &Object, dependent: &Arc<str>, act: impl FnOnce(&mut Unwritten)) {
        self.change(primary, |remembered| act(remembered.unwritten.entry(Arc::clone(dependent)).or_default()));
    }

    /// Returns the object of a dependent that may have been created: its creation has no answer.
    pub fn unanswered(&self, primary: &Object, dependent: &str) -> Option<ObjectRef> {
        let primaries = self.primaries.lock();
        let all = &primaries.get(primary.key())?.of(primary)?.unanswered;
        all.iter().find(|(known, _)| &**known == dependent).map(|(_, key)| key.clone())
    }

    /// Remembers that the creation of a dependent's object has no answer; `None`: it has one.
    pub fn keep_unanswered(&self, primary: &Object, dependent: &Arc<str>, key: Option<ObjectRef>) {
        self.change(primary, |remembered| {
            remembered.unanswered.retain(|(known, _)| known != dependent);
            remembered.unanswered.extend(key.map(|key| (Arc::clone(dependent), key)));
        });
    }

    /// Returns until when an object or thing of a dependent is not put right again, if others have changed it back too often, and whether it is
    /// known what they change.
    pub fn held(
        &self,
        primary: &Object,
        (dependent, key): (&str, &str),
        wanted: u64,
        now: Instant,
    ) -> Option<(Instant, bool)> {
        let primaries = self.primaries.lock();
        let contest = primaries.get(primary.key())?.of(primary)?.contests.get(dependent, key)?;
        Some((contest.held_until(wanted, now)?, contest.why(now).is_some()))
    }

    /// Returns the dependents of a primary whose objects others keep changing, with what they change, and when they will have settled.
    pub fn contested(&self, primary: &Object, now: Instant) -> Vec<(Arc<str>, Arc<str>, Instant)> {
        let primaries = self.primaries.lock();
        let remembered = primaries.get(primary.key()).and_then(|remembered| remembered.of(primary));
        let open = remembered.into_iter().flat_map(|remembered| remembered.contests.open(now));
        open.map(|(name, why, settled)| (Arc::clone(name), Arc::clone(why), settled)).collect()
    }

    /// Calls `act` to change what is remembered of objects that have been put right.
    pub fn change_contests(&self, primary: &Object, act: impl FnOnce(&mut Contests)) {
        self.change(primary, |remembered| act(&mut remembered.contests));
    }

    /// Remembers, for an edition of a controller, that a dependent of a primary is inactive; `None`: it is active.
    /// Of many inactive ones nothing is remembered for which there is no memory: their objects cause runs. `holding` returns the memory to
    /// borrow from.
    pub fn keep_activity(
        &self,
        edition: u64,
        primary: &Object,
        (dependent, asleep): (&Arc<str>, Option<Asleep>),
        holding: impl FnOnce() -> Option<Holding>,
    ) {
        self.change(primary, |remembered| {
            // A run of an earlier edition used conditions that may no longer be declared.
            if self.edition.load(Ordering::Relaxed) != edition {
                return;
            }
            keep(&mut remembered.asleep, dependent, asleep);
            if !remembered.pays(holding) {
                keep(&mut remembered.asleep, dependent, None);
            }
        });
    }

    /// Returns the dependents that a source is for, if one of them is remembered as inactive.
    pub fn sharers(&self, primary: &Object, source: &str) -> Option<Arc<[Arc<str>]>> {
        let primaries = self.primaries.lock();
        let asleep = primaries.get(primary.key())?.of(primary)?.of_source(source).next()?;
        Some(Arc::clone(&asleep.sharers))
    }

    /// Remembers that a run of an edition has walked the managed workflow of a primary to its end: what it has not reached is not active.
    pub fn keep_walked(&self, edition: u64, primary: &Object) {
        self.change(primary, |remembered| remembered.walked = Some(edition));
    }

    /// Returns true if a run of an edition has walked the managed workflow of a primary to its end.
    pub fn has_walked(&self, edition: u64, primary: &Object) -> bool {
        let primaries = self.primaries.lock();
        let remembered = primaries.get(primary.key()).and_then(|remembered| remembered.of(primary));
        remembered.is_some_and(|remembered| remembered.walked == Some(edition))
    }

    /// Returns true if a change of a source's object causes a run of a primary: not if the object can only be that of
    /// an inactive dependent.
    pub fn wakes(&self, primary: &ObjectRef, source: &str, object: &ObjectRef) -> bool {
        let primaries = self.primaries.lock();
        let Some(remembered) = primaries.get(primary) else {
            return true;
        };
        let theirs = remembered.of_source(source).any(|asleep| asleep.object.as_ref() == Some(object));
        // Two dependents may have one object, if only one of them is ever active.
        let has = |name: &Arc<str>| remembered.verdict(name).is_none_or(|verdict| verdict.key == *object);
        let Some(Asleep { sharers, .. }) = remembered.of_source(source).next() else {
            return true;
        };
        let mut awake = sharers.iter().filter(|name| remembered.is_awake(name)).peekable();
        awake.peek().is_some() && (!theirs || awake.any(has))
    }

    /// Returns true if all dependents that a source is for are known to be inactive for a primary.
    pub fn is_asleep(&self, primary: &Object, source: &str) -> bool {
        let primaries = self.primaries.lock();
        let Some(remembered) = primaries.get(primary.key()).and_then(|remembered| remembered.of(primary)) else {
            return false;
        };
        remembered
            .of_source(source)
            .next()
            .is_some_and(|asleep| !asleep.sharers.iter().any(|name| remembered.is_awake(name)))
    }

    /// Sets the edition of the running controller. If it changes, inactive dependents are forgotten.
    pub fn begin(&self, edition: u64) {
        let mut primaries = self.primaries.lock();
        if self.edition.swap(edition, Ordering::Relaxed) != edition {
            for remembered in primaries.values_mut() {
                remembered.asleep.clear();
                remembered.taken = None;
            }
        }
    }

    /// Returns a memo of a primary.
    pub fn memo(&self, primary: &Object, key: &str) -> Option<String> {
        let primaries = self.primaries.lock();
        let memos = &primaries.get(primary.key())?.of(primary)?.memos;
        memos.get(key).map(str::to_owned)
    }

    /// Calls `act` to change the memos of a primary.
    pub fn change_memos<T>(&self, primary: &Object, act: impl FnOnce(&mut Memos) -> T) -> T {
        self.change(primary, |remembered| act(&mut remembered.memos))
    }

    /// Returns what is expected of a primary.
    pub fn expected(&self, primary: &Object, now: Instant) -> Option<Expectation> {
        let primaries = self.primaries.lock();
        primaries.get(primary.key())?.of(primary)?.expected.pending(now)
    }

    /// Calls `act` to change what is expected of a primary.
    pub fn change_expected<T>(&self, primary: &Object, act: impl FnOnce(&mut Expected) -> T) -> T {
        self.change(primary, |remembered| act(&mut remembered.expected))
    }

    /// Calls `act` to change the memory of a primary, which is empty if the primary has been made again since.
    fn change<T>(&self, primary: &Object, act: impl FnOnce(&mut Remembered) -> T) -> T {
        let mut primaries = self.primaries.lock();
        let remembered = primaries.entry(primary.key().clone()).or_default();
        if remembered.of(primary).is_none() {
            *remembered = Remembered { uid: primary.header().uid.clone(), ..Remembered::default() };
        }
        act(remembered)
    }

    /// Forgets all primaries for which `keep` returns false.
    pub fn retain(&self, keep: impl Fn(&ObjectRef) -> bool) {
        self.primaries.lock().retain(|key, _| keep(key));
        self.departed.retain(&keep);
        self.walks.retain(&keep);
        self.paused.lock().retain(keep);
    }

    /// Forgets a primary, unless what is remembered is of another one that has come under its name.
    pub fn forget_of(&self, primary: &Object) {
        let mut primaries = self.primaries.lock();
        let is_another = |remembered: &Remembered| remembered.of(primary).is_none();
        if primaries.get(primary.key()).is_some_and(is_another) {
            return;
        }
        primaries.remove(primary.key());
        drop(primaries);
        self.walks.forget(primary.key());
        self.note_pause(primary.key(), false);
    }

    /// Forgets a primary that is gone, unless what is remembered is of the one that is there `now` under its name.
    pub fn forget_unless(&self, primary: &ObjectRef, now: Option<&Object>) {
        let mut primaries = self.primaries.lock();
        let of_now = |remembered: &Remembered| now.is_some_and(|now| remembered.of(now).is_some());
        if primaries.get(primary).is_some_and(|remembered| !of_now(remembered)) {
            primaries.remove(primary);
        }
        drop(primaries);
        if now.is_none() {
            self.walks.forget(primary);
        }
        self.note_pause(primary, false);
    }

    /// Notes whether a primary is paused.
    pub fn note_pause(&self, primary: &ObjectRef, paused: bool) {
        let mut all = self.paused.lock();
        if !paused {
            all.remove(primary);
        } else if !all.contains(primary) {
            all.insert(primary.clone());
        }
    }

    /// Whether the last run of a primary did nothing because it is paused.
    pub fn is_paused(&self, primary: &ObjectRef) -> bool {
        self.paused.lock().contains(primary)
    }

    /// Returns how many primaries are paused.
    pub fn paused(&self) -> usize {
        self.paused.lock().len()
    }

    /// Returns the number of primaries of whose runs something is remembered, that are gone and still have a run to come, or whose last walk
    /// is kept: those count most of which there are most.
    pub fn remembered(&self) -> usize {
        let of_runs = self.primaries.lock().len();
        of_runs.max(self.departed.len()).max(self.walks.len())
    }
}

impl Remembered {
    /// Returns the memory if it is of a primary with the same uid.
    fn of(&self, primary: &Object) -> Option<&Self> {
        (self.uid == primary.header().uid).then_some(self)
    }

    /// Returns the inactive dependents that a source is for.
    fn of_source(&self, source: &str) -> impl Iterator<Item = &Asleep> {
        self.asleep.iter().map(|(_, asleep)| asleep).filter(move |asleep| *asleep.source == *source)
    }

    /// Has the inactive dependents beyond a few counted. Returns false if there is no memory for them.
    fn pays(&mut self, holding: impl FnOnce() -> Option<Holding>) -> bool {
        let many = self.asleep.len().saturating_sub(FREE) as u64;
        if many == 0 {
            self.taken = None;
            return true;
        }
        let taken = self.taken.get_or_insert_default();
        taken.begin(holding);
        taken.set(many * EACH)
    }

    fn verdict(&self, dependent: &str) -> Option<&Verdict> {
        let at = find(&self.verdicts, dependent).ok()?;
        self.verdicts.get(at).map(|(_, verdict)| verdict)
    }

    /// Returns true if a dependent is not known to be inactive.
    fn is_awake(&self, dependent: &str) -> bool {
        find(&self.asleep, dependent).is_err()
    }
}

/// Returns where something is in a list by name, or where it belongs.
fn find<T>(all: &[(Arc<str>, T)], name: &str) -> Result<usize, usize> {
    all.binary_search_by(|(known, _)| (**known).cmp(name))
}

/// Sets or removes something in a list by name. Most have a few entries: a tree would take more memory.
fn keep<T>(all: &mut Vec<(Arc<str>, T)>, name: &Arc<str>, value: Option<T>) {
    match (find(all, name), value) {
        (Ok(at), Some(value)) => {
            if let Some((_, old)) = all.get_mut(at) {
                *old = value;
            }
        }
        (Ok(at), None) => drop(all.remove(at)),
        (Err(at), Some(value)) => all.insert(at, (Arc::clone(name), value)),
        (Err(_), None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers};
    use crate::room::Room;

    #[test]
    fn of_a_primary_that_was_made_again_nothing_is_remembered() {
        let gvk = Gvk::parse("sample.dev/v1", "Page").unwrap();
        let page = |uid: &str| {
            let text = format!(r#"{{"metadata":{{"namespace":"n","name":"a","uid":"{uid}"}}}}"#);
            Object::parse(&text, &gvk, &Managers::default()).unwrap()
        };
        let (first, second) = (page("u-1"), page("u-2"));
        let (memory, slot) = (Verdicts::default(), Arc::from("cm"));
        let keep = |page: &Object, value: &str| {
            let (bound, value) = ((1024, "limits.memo.primary"), Some(value.to_owned()));
            memory.change_memos(page, |memos| memos.keep("m", value, bound, || None))
        };
        memory.keep_verdict(&first, &slot, Verdict::of(1, &first));
        keep(&first, "one").unwrap();
        let known = |page| (memory.memo(page, "m"), memory.verdict(page, "cm").is_some());
        assert_eq!(known(&first), (Some("one".to_owned()), true));
        assert_eq!(known(&second), (None, false));
        keep(&second, "two").unwrap();
        assert_eq!(known(&second), (Some("two".to_owned()), false));
        assert_eq!(known(&first), (None, false));
        // A run of the first one ends after the second has come, and after that has gone.
        memory.forget_unless(second.key(), Some(&second));
        assert_eq!(known(&second), (Some("two".to_owned()), false));
        memory.forget_unless(second.key(), None);
        assert_eq!(known(&second), (None, false));
        // That the first one has gone may be told late.
        keep(&second, "two").unwrap();
        memory.forget_of(&first);
        assert_eq!(known(&second), (Some("two".to_owned()), false));
        memory.forget_of(&second);
        assert_eq!(known(&second), (None, false));
    }

    #[test]
    fn of_many_inactive_dependents_as_many_are_remembered_as_there_is_memory_for() {
        let gvk = Gvk::parse("sample.dev/v1", "Page").unwrap();
        let text = r#"{"metadata":{"namespace":"n","name":"a","uid":"u-1"}}"#;
        let page = Object::parse(text, &gvk, &Managers::default()).unwrap();
        let (memory, room) = (Verdicts::default(), Room::new(8 * 3 * EACH));
        let keep = |number: usize, sleeps: bool| {
            let source = Arc::from(format!("{number:02}"));
            let asleep = Asleep { source: Arc::clone(&source), sharers: Arc::new([Arc::clone(&source)]), object: None };
            let holding = || Some(room.holding(&"p".into()).lasting());
            memory.keep_activity(0, &page, (&source, sleeps.then_some(asleep)), holding);
        };
        let asleep = || (0..20).filter(|number| memory.is_asleep(&page, &format!("{number:02}"))).count();
        (0..20).for_each(|number| keep(number, true));
        assert_eq!(asleep(), FREE + 3);
        keep(0, false);
        assert_eq!(asleep(), FREE + 2);
        keep(19, true);
        keep(18, true);
        assert_eq!(asleep(), FREE + 3);
        memory.begin(1);
        let mut all = room.holding(&"p".into()).lasting();
        assert!(all.try_grow(3 * EACH), "it is given back");
    }

    #[test]
    fn what_is_remembered_of_inactive_dependents_grows_with_them_and_not_with_their_square() {
        let gvk = Gvk::parse("sample.dev/v1", "Page").unwrap();
        let text = r#"{"metadata":{"namespace":"n","name":"a","uid":"u-1"}}"#;
        let page = Object::parse(text, &gvk, &Managers::default()).unwrap();
        let (memory, names) = (Verdicts::default(), ["one", "two", "three"].map(Arc::<str>::from));
        for name in &names {
            let sharers = memory.sharers(&page, "maps").unwrap_or_else(|| names.iter().cloned().collect());
            let asleep = Asleep { source: "maps".into(), sharers, object: None };
            memory.keep_activity(0, &page, (name, Some(asleep)), || None);
        }
        assert_eq!(memory.sharers(&page, "others"), None);
        let primaries = memory.primaries.lock();
        let lists: Vec<_> = primaries[page.key()].asleep.iter().map(|(_, asleep)| &asleep.sharers).collect();
        assert!(lists.len() == 3 && lists.iter().all(|list| Arc::ptr_eq(list, lists[0])));
    }

    #[test]
    fn a_change_wakes_a_primary_unless_it_can_only_be_that_of_an_inactive_dependent() {
        // WF-4
        let gvk = Gvk::parse("sample.dev/v1", "Page").unwrap();
        let text = r#"{"metadata":{"namespace":"n","name":"a","uid":"u-1"}}"#;
        let page = Object::parse(text, &gvk, &Managers::default()).unwrap();
        let key = |name| ObjectRef::namespaced("n", name);
        let asleep = |sharers: usize, object: Option<&'static str>| Asleep {
            source: "maps".into(),
            sharers: ["one", "two"].map(Arc::from).into_iter().take(sharers).collect(),
            object: object.map(key),
        };
        for (inactive, own, other, elsewhere) in [
            (vec![], true, true, true),
            (vec![("one", asleep(1, None))], false, false, true),
            // What the other one has is not known.
            (vec![("one", asleep(2, Some("own")))], true, true, true),
            (vec![("one", asleep(2, None))], true, true, true),
            (vec![("one", asleep(2, None)), ("two", asleep(2, None))], false, false, true),
        ] {
            let memory = Verdicts::default();
            for (dependent, asleep) in inactive.clone() {
                memory.keep_activity(0, &page, (&dependent.into(), Some(asleep)), || None);
            }
            let wakes = |source, object| memory.wakes(page.key(), source, &key(object));
            let found = (wakes("maps", "own"), wakes("maps", "other"), wakes("rest", "own"));
            assert_eq!(found, (own, other, elsewhere), "{inactive:?}");
            for (dependent, _) in inactive {
                memory.keep_activity(0, &page, (&dependent.into(), None), || None);
            }
            assert!(wakes("maps", "own"), "it is active again");
        }
        // The object of an inactive dependent may be that of an active one, too.
        let memory = Verdicts::default();
        let other =
            Object::parse(r#"{"metadata":{"namespace":"n","name":"other"}}"#, &gvk, &Managers::default()).unwrap();
        memory.keep_verdict(&page, &"two".into(), Verdict::of(1, &other));
        let own = Object::parse(r#"{"metadata":{"namespace":"n","name":"own"}}"#, &gvk, &Managers::default()).unwrap();
        memory.keep_verdict(&page, &"one".into(), Verdict::of(1, &own));
        memory.keep_activity(0, &page, (&"one".into(), Some(asleep(2, Some("own")))), || None);
        assert!(!memory.wakes(page.key(), "maps", own.key()));
        memory.keep_verdict(&page, &"two".into(), Verdict::of(1, &own));
        assert!(memory.wakes(page.key(), "maps", own.key()));
        let memory = Verdicts::default();
        for (edition, awake) in [(0, false), (1, true), (2, true)] {
            // The running edition is 0, then 1; at last a run of 0 ends late.
            memory.begin(edition.min(1));
            if edition != 1 {
                memory.keep_activity(0, &page, (&"one".into(), Some(asleep(1, None))), || None);
            }
            assert_eq!(memory.wakes(page.key(), "maps", &key("own")), awake);
        }
    }
}

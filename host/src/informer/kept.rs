//! Decides which fields an informer keeps of objects: those that all who share it need together; who gives in if these find no room;
//! whether an object in the cache has what somebody needs; and when everything may be listed once more for that (BC).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use capstan_core::object::fields::Fields;
use capstan_core::source::Spec;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Between two lists for what is needed lies as many times as much time as the first of them took.
const REST: u32 = 3;

/// It is never more than this.
const LONGEST_REST: Duration = Duration::from_mins(1);

/// Whoever gave in is tried again after this time.
const AGAIN: Duration = Duration::from_hours(1);

/// What somebody needs of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The fields of an object that comes.
    pub comes: Fields,
    /// The fields that have to be in the cache of every object, of those.
    pub stays: Fields,
}

impl Need {
    /// Returns that all of these fields are needed of every object.
    pub fn all(fields: Fields) -> Self {
        Self { stays: fields.clone(), comes: fields }
    }

    /// Returns what a source needs.
    pub fn of(spec: &Spec) -> Self {
        Self { comes: spec.fields.clone(), stays: spec.stays().clone() }
    }

    fn union(&self, other: &Self) -> Self {
        Self { comes: self.comes.union(&other.comes), stays: self.stays.union(&other.stays) }
    }
}

/// What an informer keeps.
pub(super) struct Kept(Mutex<State>);

#[derive(Debug)]
struct State {
    /// What each of those who share it needs, by the number of its subscription.
    needed: BTreeMap<u64, Need>,
    /// Those who have given in, because what all need finds no room: what they need does not count.
    yielding: BTreeSet<u64>,
    /// When the last of them gave in.
    yielded: Option<Instant>,
    /// What the next list is cut down to: what all others need.
    wanted: Need,
    /// What the list under way, or the last one, is cut down to; `None` before the first.
    listed: Option<Need>,
    /// What every cached object has.
    there: Fields,
    /// When the list under way began.
    began: Option<Instant>,
    /// Before this no list begins for what is needed.
    rests: Option<Instant>,
}

impl Kept {
    /// Takes in that somebody else needs this. Returns true if everything has to be listed once more for that.
    pub(super) fn add(&self, number: u64, need: &Need) -> bool {
        let mut state = self.0.lock();
        state.needed.insert(number, need.clone());
        state.sum_up()
    }

    /// Takes in that somebody is gone. Returns true if everything should be listed once more, as less is needed.
    pub(super) fn remove(&self, number: u64) -> bool {
        let mut state = self.0.lock();
        state.needed.remove(&number);
        // There may be room for the others now.
        state.yielding.clear();
        state.sum_up()
    }

    /// Takes in that what all need finds no room. Returns who gives in, if that helps the others: of those without whom less would be kept,
    /// the last who came. Everything is to be listed once more then.
    pub(super) fn give_in(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        if state.listed.as_ref() != Some(&state.wanted) {
            // Another list is due, which may find room.
            return None;
        }
        let counted: Vec<_> = state.counted().map(|(number, _)| number).collect();
        let lessens = |number: &u64| {
            let others = union(state.counted().filter(|(other, _)| other != number).map(|(_, need)| need));
            others.is_some_and(|others| others.stays != state.wanted.stays)
        };
        let number = counted.into_iter().rev().find(lessens)?;
        state.yielding.insert(number);
        state.yielded = Some(now);
        state.sum_up();
        Some(number)
    }

    /// Returns true if somebody has given in.
    pub(super) fn yields(&self, number: u64) -> bool {
        self.0.lock().yielding.contains(&number)
    }

    /// Returns when those who have given in are tried again; `None` if nobody has.
    pub(super) fn again(&self) -> Option<Instant> {
        let state = self.0.lock();
        state.yielded.filter(|_| !state.yielding.is_empty()).map(|yielded| yielded + AGAIN)
    }

    /// Lets those who have given in count again. Returns true if everything has to be listed once more for that.
    pub(super) fn try_again(&self) -> bool {
        let mut state = self.0.lock();
        state.yielding.clear();
        state.sum_up()
    }

    /// Returns before when no list begins for what is needed; `None` if one may at any time.
    pub(super) fn rests(&self) -> Option<Instant> {
        self.0.lock().rests
    }

    /// Takes in that a list begins, beside what is cached already. Returns what it is cut down to.
    pub(super) fn begin(&self, nothing_cached: bool, now: Instant) -> Need {
        let mut state = self.0.lock();
        state.began = Some(now);
        let need = state.wanted.clone();
        state.there = if nothing_cached { need.stays.clone() } else { state.there.meet(&need.stays) };
        state.listed = Some(need.clone());
        need
    }

    /// Takes in that the list is complete.
    pub(super) fn end(&self, now: Instant) {
        let mut state = self.0.lock();
        let rest = |began: Instant| now + (now.saturating_duration_since(began) * REST).min(LONGEST_REST);
        state.rests = state.began.take().map(rest);
        state.there = state.listed.as_ref().map(|listed| listed.stays.clone()).unwrap_or_default();
    }

    /// Returns true if every cached object has these fields.
    pub(super) fn has(&self, fields: &Fields) -> bool {
        self.0.lock().there.covers(fields)
    }
}

impl Default for Kept {
    /// Returns what is kept as long as nothing is cached, and nobody needs anything.
    fn default() -> Self {
        let none = Need::all(Fields::metadata());
        Self(Mutex::new(State {
            needed: BTreeMap::new(),
            yielding: BTreeSet::new(),
            yielded: None,
            wanted: none,
            listed: None,
            there: Fields::whole(),
            began: None,
            rests: None,
        }))
    }
}

impl State {
    /// Returns those whose needs count.
    fn counted(&self) -> impl Iterator<Item = (u64, &Need)> {
        let counts = |(number, _): &(u64, &Need)| !self.yielding.contains(number);
        self.needed.iter().map(|(number, need)| (*number, need)).filter(counts)
    }

    /// Sums up what is needed. Returns true if that is not what was listed.
    fn sum_up(&mut self) -> bool {
        let Some(wanted) = union(self.counted().map(|(_, need)| need)) else {
            return false;
        };
        self.wanted = wanted;
        self.listed.as_ref().is_some_and(|listed| *listed != self.wanted)
    }
}

/// Returns what all of these need together; `None` if there are none.
fn union<'a>(mut needs: impl Iterator<Item = &'a Need>) -> Option<Need> {
    let first = needs.next()?.clone();
    Some(needs.fold(first, |all, one| all.union(one)))
}

#[cfg(test)]
mod tests {
    use capstan_core::object::pointer::Pointer;

    use super::*;

    fn only(names: &[&str]) -> Fields {
        let pointers: Vec<_> = names.iter().map(|name| Pointer::parse(name).unwrap()).collect();
        Fields::only(&pointers)
    }

    #[test]
    fn what_is_there_is_what_the_last_whole_list_was_cut_down_to() {
        // BC-2
        let start = Instant::now();
        let (a, b, both) = (only(&["/a"]), only(&["/b"]), only(&["/a", "/b"]));
        let kept = Kept::default();
        let need = |fields: &Fields| Need::all(fields.clone());
        assert!(!kept.add(1, &need(&a)), "no list has begun");
        assert!(kept.has(&both), "of nothing");
        assert_eq!(kept.begin(true, start), need(&a));
        assert_eq!((kept.has(&a), kept.has(&b)), (true, false), "as it is taken in");
        kept.end(start);
        assert!(kept.add(2, &need(&b)), "more is needed");
        assert_eq!(kept.begin(false, start), need(&both));
        assert_eq!((kept.has(&a), kept.has(&b)), (true, false), "some are as they were");
        kept.end(start);
        assert!(kept.has(&both));
        assert!(!kept.add(3, &need(&a)), "is there");
        assert!(!kept.remove(1), "somebody else needs it");
        assert!(kept.remove(3), "nobody needs it");
        assert_eq!(kept.begin(false, start), need(&b));
        assert_eq!((kept.has(&a), kept.has(&b)), (false, true), "from its beginning on");
        kept.end(start);
        kept.add(4, &need(&a));
        kept.begin(false, start);
        kept.remove(2);
        assert_eq!(
            (kept.begin(false, start), kept.has(&a), kept.has(&b)),
            (need(&a), false, false),
            "none is complete"
        );
        kept.end(start);
        assert_eq!((kept.has(&a), kept.has(&b)), (true, false));
        assert!(!kept.remove(4), "the informer ends");
    }

    #[test]
    fn what_one_forgets_comes_all_the_same_and_stays_if_another_needs_it() {
        // BC-1
        let start = Instant::now();
        let (whole, few) = (Fields::whole(), only(&["/a"]));
        let kept = Kept::default();
        kept.add(1, &Need { comes: whole.clone(), stays: few.clone() });
        assert_eq!(kept.begin(true, start), Need { comes: whole.clone(), stays: few.clone() });
        kept.end(start);
        assert_eq!((kept.has(&few), kept.has(&whole)), (true, false));
        assert!(kept.add(2, &Need::all(whole.clone())));
        assert_eq!(kept.begin(false, start), Need::all(whole));
    }

    #[test]
    fn who_needs_most_gives_in_if_there_is_no_room_for_all_and_is_tried_again_later() {
        // BC-2
        let start = Instant::now();
        let (whole, few, other) = (Fields::whole(), only(&["/a"]), only(&["/b"]));
        let listed = |kept: &Kept| {
            let need = kept.begin(false, start);
            kept.end(start);
            need.stays
        };
        for (needs, expected) in [
            (vec![&few], vec![None]),
            (vec![&few, &few], vec![None]),
            (vec![&few, &whole], vec![Some(1), None]),
            (vec![&whole, &few], vec![Some(0), None]),
            (vec![&whole, &whole, &few], vec![None]),
            (vec![&few, &other], vec![Some(1), None]),
            (vec![&few, &other, &whole], vec![Some(2), Some(1), None]),
        ] {
            let kept = Kept::default();
            for (number, need) in (0..).zip(&needs) {
                kept.add(number, &Need::all((*need).clone()));
            }
            assert_eq!(kept.give_in(start), None, "nothing has been listed");
            for gives_in in expected {
                listed(&kept);
                assert_eq!(kept.give_in(start), gives_in, "{needs:?}");
                assert_eq!(kept.give_in(start), None, "a list is due, or nobody can");
                assert!(gives_in.is_none_or(|number| kept.yields(number)));
            }
        }
        let kept = Kept::default();
        kept.add(1, &Need::all(few.clone()));
        kept.add(2, &Need::all(whole.clone()));
        assert_eq!((listed(&kept), kept.again()), (whole.clone(), None));
        assert_eq!((kept.give_in(start), kept.again()), (Some(2), Some(start + AGAIN)));
        assert_eq!((listed(&kept), kept.has(&few), kept.has(&whole)), (few.clone(), true, false));
        assert_eq!((kept.try_again(), kept.again(), kept.yields(2)), (true, None, false));
        assert_eq!((listed(&kept), kept.give_in(start)), (whole.clone(), Some(2)));
        listed(&kept);
        assert!(kept.remove(1), "there may be room now");
        assert_eq!(listed(&kept), whole);
    }

    #[test]
    fn lists_for_what_is_needed_rest_as_long_as_they_took_several_times() {
        let start = Instant::now();
        let kept = Kept::default();
        assert_eq!(kept.rests(), None);
        for (took, rest) in [(0, 0), (2, 6), (20, 60), (300, 60)] {
            let end = start + Duration::from_secs(took);
            kept.begin(false, start);
            kept.end(end);
            assert_eq!(kept.rests(), Some(end + Duration::from_secs(rest)));
        }
    }
}

//! Decides which fields an informer keeps of objects: those that all who share it need together; who gives in if these find no room;
//! whether an object in the cache has what somebody needs; and when everything may be listed once more for that (BC).

use std::collections::BTreeMap;
use std::mem;
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
    /// Whether they are to be packed there (`BC-4`).
    pub packed: bool,
}

impl Need {
    /// Returns that all of these fields are needed of every object.
    pub fn all(fields: Fields) -> Self {
        Self { stays: fields.clone(), comes: fields, packed: false }
    }

    /// Returns what a source needs.
    pub fn of(spec: &Spec) -> Self {
        Self { comes: spec.fields.clone(), stays: spec.stays().clone(), packed: spec.packed }
    }

    fn union(&self, other: &Self) -> Self {
        let packed = self.packed || other.packed;
        Self { comes: self.comes.union(&other.comes), stays: self.stays.union(&other.stays), packed }
    }

    /// Returns true if it is of the same fields: whether they are packed is nothing to list again for.
    fn is_of_same_fields(&self, other: &Self) -> bool {
        self.comes == other.comes && self.stays == other.stays
    }
}

/// What an informer keeps.
pub(super) struct Kept(Mutex<State>);

struct State {
    /// What each of those who share it needs, by the number of its subscription.
    needed: BTreeMap<u64, Need>,
    /// What finds no room beside what others need. Whoever needs as much gives in: it does not count.
    too_much: Vec<Fields>,
    /// When the last of it was found out.
    yielded: Option<Instant>,
    /// It was seen that nobody can give in.
    stuck: bool,
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
    /// The rest that is put off until after the list for those who have given in.
    owed: Duration,
}

impl Kept {
    /// Takes in that somebody else needs this. Returns true if everything has to be listed once more for that.
    pub(super) fn add(&self, number: u64, need: &Need) -> bool {
        let mut state = self.0.lock();
        state.needed.insert(number, need.clone());
        state.sum_up()
    }

    /// Takes in that somebody is gone. Returns true if everything should be listed once more, as less is needed, or as there may be room for
    /// more.
    pub(super) fn remove(&self, number: u64) -> bool {
        let mut state = self.0.lock();
        let Some(need) = state.needed.remove(&number) else {
            return false;
        };
        if !state.yields(&need.stays) {
            let left = union(state.counted().map(|(_, need)| need));
            if left.is_none_or(|left| left.stays != state.wanted.stays) {
                state.too_much.clear();
            }
        }
        state.sum_up()
    }

    /// Takes in that what all need finds no room. Returns true if somebody gives in, so that there may be room for the others, after everything
    /// has been listed once more: of those without whom less would be kept the last who came, and all who need as much.
    pub(super) fn give_in(&self, now: Instant) -> bool {
        let mut state = self.0.lock();
        if state.stuck || state.listed.as_ref().is_none_or(|listed| !listed.is_of_same_fields(&state.wanted)) {
            // Else another list is due, which may find room.
            return false;
        }
        let lessens = |fields: &&Fields| {
            let others = union(state.counted().map(|(_, need)| need).filter(|need| !need.stays.covers(fields)));
            others.is_some_and(|others| others.stays != state.wanted.stays)
        };
        let needs: Vec<_> = state.counted().map(|(_, need)| &need.stays).collect();
        let Some(fields) = needs.into_iter().rev().find(lessens).cloned() else {
            state.stuck = true;
            return false;
        };
        state.too_much.push(fields);
        state.yielded = Some(now);
        // Those who keep what they had don't wait for that; whoever has too much listed again and again gains nothing.
        state.owed = state.rests.take().map_or(Duration::ZERO, |rests| rests.saturating_duration_since(now));
        state.sum_up();
        true
    }

    /// Returns true if who needs these fields gives in.
    pub(super) fn yields(&self, fields: &Fields) -> bool {
        self.0.lock().yields(fields)
    }

    /// Returns when those who have given in are tried again; `None` if nobody has.
    pub(super) fn again(&self) -> Option<Instant> {
        let state = self.0.lock();
        state.yielded.filter(|_| !state.too_much.is_empty()).map(|yielded| yielded + AGAIN)
    }

    /// Lets those who have given in count again. Returns true if everything has to be listed once more for that.
    pub(super) fn try_again(&self) -> bool {
        let mut state = self.0.lock();
        state.too_much.clear();
        state.sum_up()
    }

    /// Returns before when no list begins for what is needed; `None` if one may at any time.
    pub(super) fn rests(&self) -> Option<Instant> {
        self.0.lock().rests
    }

    /// Takes in that a list begins, beside what is cached already. Returns what it is cut down to.
    pub(super) fn begin(&self, nothing_cached: bool, now: Instant) -> Need {
        let mut state = self.0.lock();
        (state.began, state.stuck) = (Some(now), false);
        let need = state.wanted.clone();
        state.there = if nothing_cached { need.stays.clone() } else { state.there.meet(&need.stays) };
        state.listed = Some(need.clone());
        need
    }

    /// Takes in that the list is complete.
    pub(super) fn end(&self, now: Instant) {
        let mut state = self.0.lock();
        let owed = mem::take(&mut state.owed);
        let rest = |began: Instant| now + (now.saturating_duration_since(began) * REST + owed).min(LONGEST_REST);
        state.rests = state.began.take().map(rest);
        state.there = state.listed.as_ref().map(|listed| listed.stays.clone()).unwrap_or_default();
    }

    /// Returns true if what is cached is to be packed: if one of those says so who share it.
    pub(super) fn packs(&self) -> bool {
        self.0.lock().needed.values().any(|need| need.packed)
    }

    /// Returns true if every cached object has these fields, and will have them.
    pub(super) fn has(&self, fields: &Fields) -> bool {
        let state = self.0.lock();
        state.there.covers(fields) && !state.yields(fields)
    }
}

impl Default for Kept {
    /// Returns what is kept as long as nothing is cached, and nobody needs anything.
    fn default() -> Self {
        let none = Need::all(Fields::metadata());
        Self(Mutex::new(State {
            needed: BTreeMap::new(),
            too_much: Vec::new(),
            yielded: None,
            stuck: false,
            wanted: none,
            listed: None,
            there: Fields::whole(),
            began: None,
            rests: None,
            owed: Duration::ZERO,
        }))
    }
}

impl State {
    fn yields(&self, fields: &Fields) -> bool {
        self.too_much.iter().any(|too_much| fields.covers(too_much))
    }

    /// Returns those whose needs count.
    fn counted(&self) -> impl DoubleEndedIterator<Item = (u64, &Need)> {
        let counts = |(_, need): &(u64, &Need)| !self.yields(&need.stays);
        self.needed.iter().map(|(number, need)| (*number, need)).filter(counts)
    }

    /// Sums up what is needed. Returns true if that is not what was listed.
    fn sum_up(&mut self) -> bool {
        self.stuck = false;
        let Some(wanted) = union(self.counted().map(|(_, need)| need)) else {
            return false;
        };
        self.wanted = wanted;
        self.listed.as_ref().is_some_and(|listed| !listed.is_of_same_fields(&self.wanted))
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
        let need = Need { comes: whole.clone(), stays: few.clone(), packed: false };
        kept.add(1, &need);
        assert_eq!(kept.begin(true, start), need);
        kept.end(start);
        assert_eq!((kept.has(&few), kept.has(&whole)), (true, false));
        assert!(kept.add(2, &Need::all(whole.clone())));
        assert_eq!(kept.begin(false, start), Need::all(whole));
    }

    #[test]
    fn what_is_cached_is_packed_as_long_as_one_of_those_who_share_it_says_so_and_nothing_is_listed_for_that() {
        // BC-4
        let start = Instant::now();
        let whole = || Need::all(Fields::whole());
        let packed = Need { packed: true, ..whole() };
        let kept = Kept::default();
        kept.add(1, &whole());
        kept.begin(true, start);
        kept.end(start);
        assert_eq!((kept.packs(), kept.add(2, &packed), kept.packs()), (false, false, true));
        assert!(kept.has(&Fields::whole()));
        assert_eq!((kept.remove(2), kept.packs()), (false, false));
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
            (vec![&few, &whole], vec![Some(&few), None]),
            (vec![&whole, &few], vec![Some(&few), None]),
            (vec![&whole, &few, &whole], vec![Some(&few), None]),
            (vec![&few, &other], vec![Some(&few), None]),
        ] {
            let kept = Kept::default();
            for (number, need) in (0..).zip(&needs) {
                kept.add(number, &Need::all((*need).clone()));
            }
            assert!(!kept.give_in(start), "nothing has been listed");
            for left in expected {
                listed(&kept);
                assert_eq!(kept.give_in(start), left.is_some(), "{needs:?}");
                assert!(!kept.give_in(start), "a list is due, or nobody can");
                let counts: Vec<_> = needs.iter().filter(|need| !kept.yields(need)).collect();
                assert!(left.is_none_or(|left| counts.iter().all(|need| ***need == *left)), "{needs:?}: {counts:?}");
                assert!(!counts.is_empty());
            }
        }
    }

    #[test]
    fn who_has_given_in_is_tried_again_once_others_have_left_or_later() {
        // BC-2
        let start = Instant::now();
        let (whole, few) = (Fields::whole(), only(&["/a"]));
        let kept = Kept::default();
        let listed = || {
            let need = kept.begin(false, start);
            kept.end(start);
            need.stays
        };
        kept.add(1, &Need::all(few.clone()));
        kept.add(2, &Need::all(whole.clone()));
        assert_eq!((listed(), kept.again(), kept.has(&whole)), (whole.clone(), None, true));
        assert!(kept.give_in(start));
        assert_eq!((kept.again(), kept.rests(), kept.has(&whole)), (Some(start + AGAIN), None, false));
        assert_eq!((listed(), kept.has(&few), kept.has(&whole)), (few.clone(), true, false));
        assert!(!kept.add(3, &Need::all(whole.clone())), "who needs as much gives in, too");
        assert!(!kept.remove(3), "that makes no room");
        assert!(kept.yields(&whole));
        assert_eq!((kept.try_again(), kept.again(), kept.yields(&whole)), (true, None, false));
        assert_eq!((listed(), kept.give_in(start)), (whole.clone(), true));
        listed();
        kept.add(4, &Need::all(few.clone()));
        assert!(!kept.remove(4) && kept.yields(&whole), "somebody else needs as much");
        assert!(kept.remove(1), "there may be room now");
        assert_eq!(listed(), whole);
    }

    #[test]
    fn who_needs_too_much_again_and_again_has_nothing_listed_without_a_rest() {
        let (start, whole, few) = (Instant::now(), Fields::whole(), only(&["/a"]));
        let second = Duration::from_secs(1);
        let kept = Kept::default();
        kept.add(1, &Need::all(few.clone()));
        kept.begin(true, start);
        kept.end(start + second);
        let rests = kept.rests().unwrap();
        assert_eq!(rests, start + 4 * second);
        assert!(kept.add(2, &Need::all(whole.clone())));
        kept.begin(false, rests);
        let full = rests + second;
        kept.end(full);
        assert!(kept.give_in(full) && kept.rests().is_none(), "others get back what they had at once");
        kept.begin(false, full);
        kept.end(full + second);
        assert_eq!(kept.rests(), Some(full + second + 3 * second + 3 * second), "that of both");
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

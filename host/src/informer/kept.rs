//! Decides which fields an informer keeps of objects: those that all who share it need together; and whether an object in the cache has
//! what somebody needs (BC).

use std::collections::BTreeMap;

use capstan_core::object::fields::Fields;
use capstan_core::source::Spec;
use parking_lot::Mutex;

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

struct State {
    /// What each of those who share it needs, by the number of its subscription.
    needed: BTreeMap<u64, Need>,
    /// What the next list is cut down to: what all of them need.
    wanted: Need,
    /// What the list under way, or the last one, is cut down to; `None` before the first.
    listed: Option<Need>,
    /// What every cached object has.
    there: Fields,
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
        state.sum_up()
    }

    /// Takes in that a list begins, beside what is cached already. Returns what it is cut down to.
    pub(super) fn begin(&self, nothing_cached: bool) -> Need {
        let mut state = self.0.lock();
        let need = state.wanted.clone();
        state.there = if nothing_cached { need.stays.clone() } else { state.there.meet(&need.stays) };
        state.listed = Some(need.clone());
        need
    }

    /// Takes in that the list is complete.
    pub(super) fn end(&self) {
        let mut state = self.0.lock();
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
        Self(Mutex::new(State { needed: BTreeMap::new(), wanted: none, listed: None, there: Fields::whole() }))
    }
}

impl State {
    fn sum_up(&mut self) -> bool {
        let mut needed = self.needed.values();
        let Some(first) = needed.next() else {
            return false;
        };
        self.wanted = needed.fold(first.clone(), |all, one| all.union(one));
        self.listed.as_ref().is_some_and(|listed| *listed != self.wanted)
    }
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
        let (a, b, both) = (only(&["/a"]), only(&["/b"]), only(&["/a", "/b"]));
        let kept = Kept::default();
        let need = |fields: &Fields| Need::all(fields.clone());
        assert!(!kept.add(1, &need(&a)), "no list has begun");
        assert!(kept.has(&both), "of nothing");
        assert_eq!(kept.begin(true), need(&a));
        assert_eq!((kept.has(&a), kept.has(&b)), (true, false), "as it is taken in");
        kept.end();
        assert!(kept.add(2, &need(&b)), "more is needed");
        assert_eq!(kept.begin(false), need(&both));
        assert_eq!((kept.has(&a), kept.has(&b)), (true, false), "some are as they were");
        kept.end();
        assert!(kept.has(&both));
        assert!(!kept.add(3, &need(&a)), "is there");
        assert!(!kept.remove(1), "somebody else needs it");
        assert!(kept.remove(3), "nobody needs it");
        assert_eq!(kept.begin(false), need(&b));
        assert_eq!((kept.has(&a), kept.has(&b)), (false, true), "from its beginning on");
        kept.end();
        kept.add(4, &need(&a));
        kept.begin(false);
        kept.remove(2);
        assert_eq!((kept.begin(false), kept.has(&a), kept.has(&b)), (need(&a), false, false), "none is complete");
        kept.end();
        assert_eq!((kept.has(&a), kept.has(&b)), (true, false));
        assert!(!kept.remove(4), "the informer ends");
    }

    #[test]
    fn what_one_forgets_comes_all_the_same_and_stays_if_another_needs_it() {
        // BC-1
        let (whole, few) = (Fields::whole(), only(&["/a"]));
        let kept = Kept::default();
        kept.add(1, &Need { comes: whole.clone(), stays: few.clone() });
        assert_eq!(kept.begin(true), Need { comes: whole.clone(), stays: few.clone() });
        kept.end();
        assert_eq!((kept.has(&few), kept.has(&whole)), (true, false));
        assert!(kept.add(2, &Need::all(whole.clone())));
        assert_eq!(kept.begin(false), Need::all(whole));
    }
}

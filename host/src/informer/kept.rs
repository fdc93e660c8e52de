//! Decides which fields an informer keeps of objects: those that all who share it need together; and whether an object in the cache has
//! what somebody needs (BC).

use std::collections::BTreeMap;

use capstan_core::object::fields::Fields;
use parking_lot::Mutex;

/// What an informer keeps.
pub(super) struct Kept(Mutex<State>);

struct State {
    /// What each of those who share it needs, by the number of its subscription.
    needed: BTreeMap<u64, Fields>,
    /// What the next list is cut down to: what all of them need.
    wanted: Fields,
    /// What the list under way, or the last one, is cut down to; `None` before the first.
    listed: Option<Fields>,
    /// What every cached object has.
    there: Fields,
}

impl Kept {
    /// Takes in that somebody else needs these fields. Returns true if everything has to be listed once more for that.
    pub(super) fn add(&self, number: u64, fields: &Fields) -> bool {
        let mut state = self.0.lock();
        state.needed.insert(number, fields.clone());
        state.sum_up()
    }

    /// Takes in that somebody is gone. Returns true if everything should be listed once more, as less is needed.
    pub(super) fn remove(&self, number: u64) -> bool {
        let mut state = self.0.lock();
        state.needed.remove(&number);
        state.sum_up()
    }

    /// Takes in that a list begins, beside what is cached already. Returns what it is cut down to.
    pub(super) fn begin(&self, nothing_cached: bool) -> Fields {
        let mut state = self.0.lock();
        let fields = state.wanted.clone();
        state.there = if nothing_cached { fields.clone() } else { state.there.meet(&fields) };
        state.listed = Some(fields.clone());
        fields
    }

    /// Takes in that the list is complete.
    pub(super) fn end(&self) {
        let mut state = self.0.lock();
        state.there = state.listed.clone().unwrap_or_default();
    }

    /// Returns true if every cached object has these fields.
    pub(super) fn has(&self, fields: &Fields) -> bool {
        self.0.lock().there.covers(fields)
    }
}

impl Default for Kept {
    /// Returns what is kept as long as nothing is cached, and nobody needs anything.
    fn default() -> Self {
        let none = Fields::metadata();
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
        assert!(!kept.add(1, &a), "no list has begun");
        assert!(kept.has(&both), "of nothing");
        assert_eq!(kept.begin(true), a);
        assert_eq!((kept.has(&a), kept.has(&b)), (true, false), "as it is taken in");
        kept.end();
        assert!(kept.add(2, &b), "more is needed");
        assert_eq!(kept.begin(false), both);
        assert_eq!((kept.has(&a), kept.has(&b)), (true, false), "some are as they were");
        kept.end();
        assert!(kept.has(&both));
        assert!(!kept.add(3, &a), "is there");
        assert!(!kept.remove(1), "somebody else needs it");
        assert!(kept.remove(3), "nobody needs it");
        assert_eq!(kept.begin(false), b);
        assert_eq!((kept.has(&a), kept.has(&b)), (false, true), "from its beginning on");
        kept.end();
        kept.add(4, &a);
        kept.begin(false);
        kept.remove(2);
        assert_eq!((kept.begin(false), kept.has(&a), kept.has(&b)), (a.clone(), false, false), "none is complete");
        kept.end();
        assert_eq!((kept.has(&a), kept.has(&b)), (true, false));
        assert!(!kept.remove(4), "the informer ends");
    }
}

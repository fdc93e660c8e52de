//! Decides what comes before a write outside of the cluster, and after one without an answer: whether there is room for what will be there,
//! and that its primary is polled again before it is known what is (XD).

use std::collections::BTreeMap;

use super::shares::{Facts, Taken};
use super::things::LONGEST;
use super::{External, Refused};
use crate::object::ObjectRef;

impl External {
    /// Checks that there is room for one thing more of a primary, of so many bytes: what can't be remembered should not be made.
    ///
    /// # Errors
    /// [`Refused`]
    pub fn room_for(&self, primary: &ObjectRef, bytes: usize) -> Result<(), Refused> {
        let state = self.state.lock();
        let more = Taken { things: 1, bytes: bytes as u64 + LONGEST as u64 };
        let all = Taken { things: state.things as u64, bytes: state.taken.bytes() };
        let most = Taken { things: self.spec.things as u64, bytes: self.spec.memory };
        let before = state.primaries.get(primary).map(super::known::Known::taken).unwrap_or_default();
        if self.spec.is_by_primary() {
            let home = |home| state.homes.get(home).copied().unwrap_or_default();
            let home = primary.namespace.as_ref().map(home);
            Facts { most, all, home, before, wanted: before.more(more) }.check()?;
        }
        let Taken { things, bytes } = all.more(more);
        if things > most.things {
            return Err(Refused::Things {
                found: usize::try_from(things).unwrap_or(usize::MAX),
                most: self.spec.things,
            });
        }
        if bytes > most.bytes { Err(Refused::Bytes { found: bytes, most: most.bytes }) } else { Ok(()) }
    }

    /// Notes that a poll begins, for [`External::settle`].
    pub fn begin(&self) -> Began {
        Began(self.state.lock().doubts.tick())
    }

    /// Takes in that it is not known any more what a primary has: nothing is read or made of its things before a poll has succeeded that
    /// begins later. Where nothing is polled, requests go on telling what there is.
    pub fn doubt(&self, primary: &ObjectRef, uid: &str) {
        if self.spec.is_only_told() {
            return;
        }
        let doubts = &mut self.state.lock().doubts;
        let now = doubts.tick();
        doubts.open.insert(primary.clone(), (uid.into(), now));
    }

    /// Takes in that a poll has succeeded, for the primaries that it `concerns`. Returns those whose things are known again.
    pub fn settle(&self, Began(began): Began, concerns: impl Fn(&ObjectRef) -> bool) -> Vec<ObjectRef> {
        self.asks.settle(Began(began), &concerns);
        let doubts = &mut self.state.lock().doubts;
        let settled = |key: &ObjectRef, since: u64| since < began && concerns(key);
        let open = doubts.open.iter().filter(|(key, (_, since))| settled(key, *since));
        let known: Vec<_> = open.map(|(key, _)| key.clone()).collect();
        for key in &known {
            doubts.open.remove(key);
        }
        known
    }
}

/// When a poll has begun.
#[derive(Clone, Copy, Debug)]
pub struct Began(pub(super) u64);

/// The primaries of which it is not known what there is, each with its uid, and since when.
#[derive(Default)]
pub(super) struct Doubts {
    open: BTreeMap<ObjectRef, (Box<str>, u64)>,
    clock: u64,
}

impl Doubts {
    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Returns true if it is not known what a primary has.
    pub(super) fn has(&self, primary: &ObjectRef, uid: &str) -> bool {
        self.open.get(primary).is_some_and(|(of, _)| **of == *uid)
    }

    /// Forgets a primary.
    pub(super) fn forget(&mut self, primary: &ObjectRef) {
        self.open.remove(primary);
    }
}

#[cfg(test)]
mod tests {
    use crate::external::tests::{each, things};
    use crate::external::{Refused, Write};
    use crate::object::ObjectRef;

    #[test]
    fn what_is_not_known_any_more_is_polled_again_and_what_was_written_meanwhile_stays() {
        // XD-1, XC-5
        let (source, a) = (each(), ObjectRef::namespaced("n", "a"));
        source.take_one(source.begin(), (&a, "u"), things("1=x"), || None).unwrap();
        source.doubt(&a, "other");
        assert!(source.knows(&a, "u"), "another one's run says nothing of it");
        source.write((&a, "u"), &"2".into(), Write::Created("y".into()), || None).unwrap();
        source.doubt(&a, "u");
        assert!(!source.knows(&a, "u"));
        assert_eq!(source.of(&a, "u"), things("1=x 2=y"), "who does not write may look at what was known");
        let began = source.begin();
        source.take_one(source.begin(), (&a, "u"), things("3=z"), || None).unwrap();
        assert_eq!(source.settle(began, |key| *key == a), std::slice::from_ref(&a));
        assert_eq!((source.knows(&a, "u"), source.of(&a, "u")), (true, things("2=y 3=z")));
    }

    #[test]
    fn a_poll_that_has_begun_before_a_write_without_an_answer_does_not_say_what_there_is() {
        // XD-1
        let (source, [a, b]) = (each(), ["a", "b"].map(|name| ObjectRef::namespaced("n", name)));
        let before = source.begin();
        source.doubt(&a, "u");
        source.take_one(source.begin(), (&a, "u"), things("1=x"), || None).unwrap();
        assert_eq!(source.settle(before, |key| *key == a), []);
        assert!(!source.knows(&a, "u") && source.known_of(&a, "u").is_err());
        let after = source.begin();
        assert_eq!(source.settle(after, |key| *key == b), [], "of another primary");
        assert_eq!(source.settle(after, |_| true), std::slice::from_ref(&a));
        assert!(source.knows(&a, "u") && source.known_of(&a, "u").is_ok());
        source.doubt(&a, "u");
        assert!(source.known_of(&a, "of the next one of its name").is_ok());
        source.forget(&a);
        assert!(source.known_of(&a, "u").is_ok());
    }

    #[test]
    fn there_is_room_for_one_more_as_long_as_a_write_of_it_would_be_kept() {
        // XD-1
        let (source, a) = (each(), ObjectRef::namespaced("n", "a"));
        let most = source.spec.things;
        assert_eq!(source.room_for(&a, 10), Ok(()));
        let many = (0..most / 2).map(|number| format!("{number}=x")).collect::<Vec<_>>().join(" ");
        source.take_one(source.begin(), (&a, "u"), things(&many), || None).unwrap();
        assert!(
            matches!(source.room_for(&a, 10), Err(Refused::Share { .. } | Refused::Home { .. })),
            "half of what others leave"
        );
        assert!(source.room_for(&ObjectRef::namespaced("m", "b"), 100_000_000).is_err());
    }
}

//! Decides what comes before a write outside of the cluster, and after one without an answer: whether there is room for what will be there,
//! and that its primary is polled again before it is known what is (XD).

use super::shares::{Facts, Taken};
use super::things::LONGEST;
use super::{External, Refused, Standing};
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

    /// Takes in that it is not known any more what a primary has that is polled by itself: it is polled before a run looks again.
    pub fn doubt(&self, primary: &ObjectRef, uid: &str) {
        if self.spec.each().is_none() {
            return;
        }
        let mut state = self.state.lock();
        let known = state.primaries.get_mut(primary).filter(|known| *known.uid == *uid);
        if let Some(known) = known.filter(|known| known.standing == Standing::Polled) {
            known.standing = Standing::Awaited;
        }
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
        source.take_one(&a, "u", things("1=x"), || None).unwrap();
        source.doubt(&a, "other");
        assert!(source.knows(&a, "u"), "another one's run says nothing of it");
        source.write((&a, "u"), &"2".into(), Write::Created("y".into()), || None).unwrap();
        source.doubt(&a, "u");
        assert!(!source.knows(&a, "u"));
        assert_eq!(source.of(&a, "u"), things("1=x 2=y"), "who does not write may look at what was known");
        source.take_one(&a, "u", things("3=z"), || None).unwrap();
        assert_eq!((source.knows(&a, "u"), source.of(&a, "u")), (true, things("2=y 3=z")));
    }

    #[test]
    fn there_is_room_for_one_more_as_long_as_a_write_of_it_would_be_kept() {
        // XD-1
        let (source, a) = (each(), ObjectRef::namespaced("n", "a"));
        let most = source.spec.things;
        assert_eq!(source.room_for(&a, 10), Ok(()));
        let many = (0..most / 2).map(|number| format!("{number}=x")).collect::<Vec<_>>().join(" ");
        source.take_one(&a, "u", things(&many), || None).unwrap();
        assert!(
            matches!(source.room_for(&a, 10), Err(Refused::Share { .. } | Refused::Home { .. })),
            "half of what others leave"
        );
        assert!(source.room_for(&ObjectRef::namespaced("m", "b"), 100_000_000).is_err());
    }
}

//! Decides which verdicts on the objects of a bulk dependent are kept: as many as its last answer has objects, and its plugin has
//! memory for.

use std::collections::{HashMap, HashSet};

use super::Verdict;
use crate::room::Holding;

/// The memory that a verdict takes, in bytes.
const EACH: u64 = 128;

/// The verdicts on the objects of a bulk dependent, by the answer that each object matches. Their memory is given back when they are
/// dropped.
#[derive(Default)]
pub struct Matched {
    verdicts: HashMap<u64, Verdict>,
    holding: Option<Holding>,
}

impl Matched {
    /// Returns the verdict on the object that was found to match an answer.
    pub fn get(&self, answer: u64) -> Option<&Verdict> {
        self.verdicts.get(&answer)
    }

    /// Keeps a verdict, unless there is no memory for it: then the object is compared again. `holding` returns the memory to borrow
    /// from, and is called for the first one.
    pub fn keep(&mut self, verdict: Verdict, holding: impl FnOnce() -> Option<Holding>) {
        if self.holding.is_none() {
            self.holding = holding();
        }
        let known = self.verdicts.contains_key(&verdict.answer);
        let lent = known || self.holding.as_mut().is_none_or(|holding| holding.try_grow(EACH));
        if lent {
            self.verdicts.insert(verdict.answer, verdict);
        }
    }

    /// Forgets the verdicts on what is no longer answered.
    pub fn retain(&mut self, answers: &HashSet<u64>) {
        let before = self.verdicts.len();
        self.verdicts.retain(|answer, _| answers.contains(answer));
        let gone = u64::try_from(before - self.verdicts.len()).unwrap_or(u64::MAX);
        if let Some(holding) = &mut self.holding {
            holding.shrink(gone.saturating_mul(EACH));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{ObjectRef, Version};
    use crate::room::Room;

    #[test]
    fn verdicts_borrow_what_they_take_and_go_with_the_answers_that_they_are_about() {
        // BD-1
        let room = Room::new(8 * 3 * EACH);
        let mut matched = Matched::default();
        let keep = |matched: &mut Matched, answer: u64| {
            let key = ObjectRef::namespaced("n", "a");
            matched.keep(Verdict { answer, key, version: Version(1) }, || Some(room.holding(&"p".into()).lasting()));
            matched.get(answer).is_some()
        };
        assert_eq!([1, 2, 3, 4, 3].map(|answer| keep(&mut matched, answer)), [true, true, true, false, true]);
        matched.retain(&HashSet::from([2]));
        assert_eq!([1, 2, 3].map(|answer| matched.get(answer).is_some()), [false, true, false]);
        assert_eq!([4, 5, 6].map(|answer| keep(&mut matched, answer)), [true, true, false], "there is room again");
    }
}

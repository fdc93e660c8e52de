//! Decides which verdicts on the objects of a bulk dependent are kept: as many as its last answer has objects, and its plugin has
//! memory for.

use std::collections::{HashMap, HashSet};

use super::Verdict;
use crate::room::Holding;
use crate::room::charge::Charge;

/// The memory that a verdict takes, in bytes.
const EACH: u64 = 128;

/// The verdicts on the objects of a bulk dependent, by the answer that each object matches. Their memory is given back when they are
/// dropped.
#[derive(Default)]
pub struct Matched {
    verdicts: HashMap<u64, Verdict>,
    taken: Charge,
}

impl Matched {
    /// Returns the verdict on the object that was found to match an answer.
    pub fn get(&self, answer: u64) -> Option<&Verdict> {
        self.verdicts.get(&answer)
    }

    /// Keeps a verdict, unless there is no memory for it: then the object is compared again. `holding` returns the memory to borrow
    /// from, and is called for the first one.
    pub fn keep(&mut self, verdict: Verdict, holding: impl FnOnce() -> Option<Holding>) {
        self.taken.begin(holding);
        let known = self.verdicts.contains_key(&verdict.answer);
        if known || self.taken.set(self.taken.bytes() + EACH) {
            self.verdicts.insert(verdict.answer, verdict);
        }
    }

    /// Forgets the verdicts on what is no longer answered.
    pub fn retain(&mut self, answers: &HashSet<u64>) {
        self.verdicts.retain(|answer, _| answers.contains(answer));
        let left = u64::try_from(self.verdicts.len()).unwrap_or(u64::MAX);
        self.taken.give_back(self.taken.bytes().saturating_sub(left.saturating_mul(EACH)));
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

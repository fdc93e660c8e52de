//! Keeps what the component has said of objects, each answer for one version of an object.

use std::collections::{BTreeMap, BTreeSet};

use crate::object::pointer::MOST;
use crate::object::{Object, ObjectRef, Version};

/// The memory that an answer takes, and each object in it, beside the texts, in bytes.
const EACH: usize = 160;

/// The answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    known: BTreeMap<ObjectRef, Answer>,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Answer {
    uid: Box<str>,
    version: Version,
    said: BTreeSet<ObjectRef>,
    /// What was said of versions before, and is not any more: a change that nobody has been told of concerns them, too.
    untold: BTreeSet<ObjectRef>,
    /// False if another component would be asked now.
    current: bool,
}

impl Answers {
    /// Keeps an answer in place of the one about the version before. Returns false if that leaves too many to be told of the change.
    pub(super) fn keep(&mut self, object: &Object, said: BTreeSet<ObjectRef>, current: bool) -> bool {
        let header = object.header();
        let newer = |known: &Answer| known.version > header.version || (known.version == header.version && !current);
        let stays = |known: &Answer| known.uid == header.uid && known.current && newer(known);
        if self.known.get(object.key()).is_some_and(stays) {
            return true;
        }
        let (key, mut untold) = (object.key().clone(), BTreeSet::new());
        if let Some(before) = self.known.remove(&key) {
            self.bytes -= before.bytes();
            untold = before.untold;
            untold.extend(before.said.into_iter().filter(|other| !said.contains(other)));
        }
        let few = untold.len() <= MOST;
        if !few {
            untold.clear();
        }
        let answer = Answer { uid: header.uid.clone(), version: header.version, said, untold, current };
        self.bytes += answer.bytes();
        self.known.insert(key, answer);
        few
    }

    /// Takes in that a change of an object is told, and returns those who were named of it before.
    pub(super) fn told(&mut self, object: &ObjectRef) -> BTreeSet<ObjectRef> {
        let Some(answer) = self.known.get_mut(object) else {
            return BTreeSet::new();
        };
        self.bytes -= answer.bytes();
        let untold = std::mem::take(&mut answer.untold);
        self.bytes += answer.bytes();
        untold
    }

    /// Returns true if anything was said of an object of this name.
    pub(super) fn has(&self, object: &ObjectRef) -> bool {
        self.known.contains_key(object)
    }

    /// Returns what was said of an object, in this version or one before.
    pub(super) fn of(&self, object: &Object) -> Option<&BTreeSet<ObjectRef>> {
        let answer = self.known.get(object.key())?;
        (answer.uid == object.header().uid).then_some(&answer.said)
    }

    /// Returns true if it was said of this version of an object.
    pub(super) fn is_current(&self, object: &Object) -> bool {
        let answer = self.known.get(object.key());
        let same = |answer: &Answer| answer.uid == object.header().uid && answer.version == object.version();
        answer.is_some_and(|answer| answer.current && same(answer))
    }

    /// Takes in that all answers may be others now.
    pub(super) fn doubt(&mut self) {
        self.known.values_mut().for_each(|answer| answer.current = false);
    }

    /// Forgets what was said of an object.
    pub(super) fn forget(&mut self, object: &ObjectRef) {
        let gone = self.known.remove(object);
        self.bytes -= gone.map_or(0, |gone| gone.bytes());
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Keeps only the answers about objects that `keep` accepts.
    pub(super) fn retain(&mut self, keep: impl Fn(&ObjectRef) -> bool) {
        self.known.retain(|key, _| keep(key));
        self.bytes = self.known.values().map(Answer::bytes).sum();
    }

    /// Returns the memory that they take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of objects that something was said of.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

impl Answer {
    fn bytes(&self) -> usize {
        let text = |key: &ObjectRef| key.name.len() + key.namespace.as_deref().map_or(0, str::len);
        EACH + self.said.iter().chain(&self.untold).map(|key| EACH + text(key)).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers};

    fn object(name: &str, uid: &str, version: u64) -> Object {
        let json = format!(
            r#"{{"metadata":{{"namespace":"n","name":"{name}","uid":"{uid}","resourceVersion":"{version}"}}}}"#
        );
        Object::parse(&json, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
    }

    fn said(names: &[&str]) -> BTreeSet<ObjectRef> {
        names.iter().map(|name| ObjectRef::namespaced("n", name)).collect()
    }

    #[test]
    fn an_answer_is_of_one_version_and_stays_until_there_is_another() {
        // IM-3
        let mut answers = Answers::default();
        let first = object("a", "1", 1);
        assert!(!answers.is_current(&first) && answers.of(&first).is_none());
        answers.keep(&first, said(&["p"]), true);
        for (case, object, current, known) in [
            ("the same", object("a", "1", 1), true, true),
            ("a later version", object("a", "1", 2), false, true),
            ("made again", object("a", "2", 1), false, false),
            ("another", object("b", "1", 1), false, false),
        ] {
            assert_eq!((answers.is_current(&object), answers.of(&object).is_some()), (current, known), "{case}");
        }
        answers.keep(&object("a", "1", 2), said(&["q"]), true);
        assert_eq!(answers.of(&first), Some(&said(&["q"])));
        answers.doubt();
        assert!(!answers.is_current(&object("a", "1", 2)), "another component would be asked");
        assert_eq!(answers.of(&first), Some(&said(&["q"])));
        answers.keep(&object("b", "1", 1), said(&[]), false);
        assert!(!answers.is_current(&object("b", "1", 1)));
        // A component that is not asked any more may answer late.
        answers.keep(&object("b", "1", 1), said(&["p"]), true);
        answers.keep(&object("b", "1", 1), said(&["q"]), false);
        assert_eq!(answers.of(&object("b", "1", 1)), Some(&said(&["p"])));
    }

    #[test]
    fn the_memory_of_answers_is_counted_and_given_back() {
        let mut answers = Answers::default();
        answers.keep(&object("a", "1", 1), said(&["p", "q"]), true);
        assert_eq!(answers.bytes(), 3 * EACH + 4);
        answers.keep(&object("a", "1", 2), said(&["p"]), true);
        assert_eq!(answers.bytes(), 3 * EACH + 4, "one of them is still to be told");
        let a = ObjectRef::namespaced("n", "a");
        assert_eq!((answers.told(&a), answers.told(&a)), (said(&["q"]), said(&[])));
        answers.keep(&object("b", "1", 2), said(&[]), true);
        assert_eq!((answers.bytes(), answers.len()), (3 * EACH + 2, 2));
        answers.retain(|key| &*key.name != "a");
        assert_eq!(answers.bytes(), EACH);
        answers.forget(&ObjectRef::namespaced("n", "b"));
        answers.forget(&ObjectRef::namespaced("n", "b"));
        assert_eq!((answers.bytes(), answers.len()), (0, 0));
    }
}

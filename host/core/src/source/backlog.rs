//! Keeps the objects about which costly questions are still to be asked: each once, with the change that its events add up to.
//!
//! Questions in CEL would hold up the informer, and with it all other controllers that share it. So what changes is only
//! noted there, and asked about when it is the operator's turn.

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::object::{Change, Object, ObjectRef};

/// The most bytes of objects that are kept for questions, beside those that the caches have.
const MOST: usize = 4 << 20;

/// The objects that wait, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    order: VecDeque<(u64, ObjectRef)>,
    waiting: HashMap<ObjectRef, Waiting>,
    /// The object that is being asked about.
    asked: Option<(u64, ObjectRef)>,
    /// The number of the last object that has come.
    last: u64,
    bytes: usize,
}

/// What waits for one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    /// The object before the first change that waits; `None` if it was new then, or if that is not kept.
    pub(super) first: Option<Object>,
    /// How it is now; `None` if no change of it counts, and only the look-ups have to follow.
    pub(super) now: Option<Now>,
    /// The primaries that get a trigger besides those of the change.
    pub(super) mapped: BTreeSet<ObjectRef>,
}

/// How an object is after all changes that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Now {
    /// It is there.
    There(Object),
    /// It is gone.
    Gone {
        /// The object as it was last seen.
        last: Object,
        /// True if the deletion itself was missed.
        unknown: bool,
    },
}

impl Backlog {
    /// Notes that the look-ups of an object have to follow it.
    pub(super) fn note(&mut self, key: &ObjectRef) {
        if !self.waiting.contains_key(key) {
            self.last += 1;
            self.order.push_back((self.last, key.clone()));
            self.waiting.insert(key.clone(), Waiting::default());
        }
    }

    /// Notes a change, and more primaries that are to be told of it. Returns it again if there is no room to keep it:
    /// then it has to be passed on without a question.
    pub(super) fn add(&mut self, change: Change, mapped: BTreeSet<ObjectRef>) -> Option<(Change, BTreeSet<ObjectRef>)> {
        let key = change.object().key().clone();
        self.note(&key);
        let waiting = self.waiting.get_mut(&key)?;
        self.bytes -= waiting.bytes();
        if matches!(change, Change::Deleted { .. }) && self.bytes + change.object().json().len() > MOST {
            let Waiting { mapped: before, .. } = std::mem::take(waiting);
            return Some((change, before.into_iter().chain(mapped).collect()));
        }
        waiting.add(change);
        waiting.mapped.extend(mapped);
        if self.bytes + waiting.bytes() > MOST {
            // What it was is not kept: it counts as new.
            waiting.first = None;
        }
        self.bytes += waiting.bytes();
        None
    }

    /// Returns the object that has waited longest, which counts as waiting until [`Backlog::asked`].
    pub(super) fn take(&mut self) -> Option<(ObjectRef, Waiting)> {
        let (number, key) = self.order.pop_front()?;
        let waiting = self.waiting.remove(&key)?;
        self.bytes -= waiting.bytes();
        self.asked = Some((number, key.clone()));
        Some((key, waiting))
    }

    /// Takes in that all questions about the object that was taken have been asked.
    pub(super) fn asked(&mut self) {
        self.asked = None;
    }

    /// Returns the same for a source that continues where this one ends. What is being asked about is passed on by the
    /// other; the look-ups of the new one have to follow it, too.
    pub(super) fn heir(&self) -> Self {
        let mut heir = Self { asked: None, ..self.clone() };
        if let Some((_, key)) = &self.asked {
            heir.note(key);
        }
        heir
    }

    /// Returns the objects whose look-ups may be behind the caches.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectRef> {
        self.waiting.keys().chain(self.asked.iter().map(|(_, key)| key))
    }

    /// Returns the number of objects that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns a number that stands for all that waits now.
    pub(super) fn mark(&self) -> u64 {
        self.last
    }

    /// Returns true if nothing waits any more of what waited at a mark.
    pub(super) fn is_past(&self, mark: u64) -> bool {
        self.order.front().into_iter().chain(&self.asked).all(|(number, _)| *number > mark)
    }

    /// Drops the objects that `keep` does not accept.
    pub(super) fn retain(&mut self, keep: impl Fn(&ObjectRef) -> bool) {
        self.order.retain(|(_, key)| keep(key));
        self.waiting.retain(|key, _| keep(key));
        self.bytes = self.waiting.values().map(Waiting::bytes).sum();
    }
}

impl Waiting {
    fn add(&mut self, change: Change) {
        let known = self.now.is_some();
        let (before, now) = match change {
            Change::Added(new) => (None, Now::There(new)),
            Change::Updated { old, new } => (Some(old), Now::There(new)),
            Change::Deleted { last, unknown } => (Some(last.clone()), Now::Gone { last, unknown }),
        };
        if !known {
            self.first = before;
        }
        self.now = Some(now);
    }

    /// Returns the bytes of objects that it keeps, where caches do not.
    fn bytes(&self) -> usize {
        let gone = match &self.now {
            Some(Now::Gone { last, .. }) => last.json().len(),
            Some(Now::There(_)) | None => 0,
        };
        gone + self.first.as_ref().map_or(0, |first| first.json().len())
    }

    /// Returns the change that all changes add up to.
    pub(super) fn change(&self) -> Option<Change> {
        Some(match (self.now.clone()?, self.first.clone()) {
            (Now::There(new), None) => Change::Added(new),
            (Now::There(new), Some(old)) => Change::Updated { old, new },
            (Now::Gone { last, unknown }, _) => Change::Deleted { last, unknown },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers};

    fn object(name: &str, version: u64, filler: usize) -> Object {
        let filler = "x".repeat(filler);
        let json = format!(
            r#"{{"metadata":{{"namespace":"n","name":"{name}","resourceVersion":"{version}"}},"f":"{filler}"}}"#
        );
        Object::parse(&json, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
    }

    /// Returns a change of `a`, from `A1`, `U2` (from 1) or `D2`.
    fn change(word: &str, filler: usize) -> Change {
        let version = word[1..].parse().unwrap();
        match &word[..1] {
            "A" => Change::Added(object("a", version, filler)),
            "U" => Change::Updated { old: object("a", version - 1, filler), new: object("a", version, filler) },
            _ => Change::Deleted { last: object("a", version, filler), unknown: false },
        }
    }

    fn show(change: Option<Change>) -> String {
        match change {
            None => "-".to_owned(),
            Some(Change::Added(new)) => format!("A{}", new.version()),
            Some(Change::Updated { old, new }) => format!("U{}<{}", new.version(), old.version()),
            Some(Change::Deleted { last, .. }) => format!("D{}", last.version()),
        }
    }

    #[test]
    fn the_changes_of_an_object_wait_as_one() {
        // IS-1, IM-5
        for (words, expected) in [
            ("", "-"),
            ("A1", "A1"),
            ("U2", "U2<1"),
            ("A1 U2 U3", "A3"),
            ("U2 U3", "U3<1"),
            ("A1 D2", "D2"),
            ("U2 D3", "D3"),
            ("D2 A3", "U3<2"),
            ("U2 D3 A4 U5", "U5<1"),
        ] {
            let mut backlog = Backlog::default();
            backlog.note(&ObjectRef::namespaced("n", "a"));
            for word in words.split_whitespace() {
                assert_eq!(backlog.add(change(word, 0), BTreeSet::new()), None);
            }
            let (_, waiting) = backlog.take().unwrap();
            assert_eq!(show(waiting.change()), expected, "{words}");
            assert_eq!((backlog.take(), backlog.bytes), (None, 0));
        }
    }

    #[test]
    fn what_an_object_was_is_kept_only_as_long_as_there_is_room() {
        // IS-1
        let mut backlog = Backlog::default();
        let large = MOST - 1000;
        let other = Change::Updated { old: object("b", 1, large), new: object("b", 2, 0) };
        assert_eq!(backlog.add(other, BTreeSet::new()), None);
        assert_eq!(backlog.add(change("U2", 2000), BTreeSet::new()), None);
        let mapped = BTreeSet::from([ObjectRef::namespaced("n", "p")]);
        let deleted = Change::Deleted { last: object("c", 3, 2000), unknown: false };
        assert_eq!(backlog.add(deleted.clone(), mapped.clone()), Some((deleted, mapped)));
        let shown =
            std::iter::from_fn(|| backlog.take()).map(|(key, waiting)| format!("{key} {}", show(waiting.change())));
        assert_eq!(shown.collect::<Vec<_>>(), ["n/b U2<1", "n/a A2", "n/c -"]);
        assert_eq!(backlog.bytes, 0);
    }

    #[test]
    fn what_waited_at_a_mark_has_been_asked_about_once_the_last_of_it_has() {
        let keys = ["a", "b", "c"].map(|name| ObjectRef::namespaced("n", name));
        let mut backlog = Backlog::default();
        assert!(backlog.is_past(backlog.mark()));
        backlog.note(&keys[0]);
        backlog.note(&keys[1]);
        let mark = backlog.mark();
        backlog.note(&keys[2]);
        // Again while it waits is the same; while it is asked about, it waits anew.
        backlog.note(&keys[0]);
        for (expected, past) in [("n/a", false), ("n/b", false), ("n/c", true), ("n/a", true)] {
            let (key, _) = backlog.take().unwrap();
            if expected == "n/a" && !past {
                backlog.note(&key);
            }
            assert_eq!((key.to_string().as_str(), backlog.is_past(mark)), (expected, past));
            assert_eq!(
                backlog.keys().filter(|other| **other == key).count(),
                if past || key != keys[0] { 1 } else { 2 }
            );
            // One that continues meanwhile asks about it, too.
            assert!(backlog.heir().waiting.contains_key(&key) && backlog.heir().asked.is_none());
            backlog.asked();
        }
        assert!(backlog.keys().next().is_none() && backlog.is_past(backlog.mark()));
        backlog.note(&keys[0]);
        backlog.retain(|key| *key != keys[0]);
        assert_eq!((backlog.len(), backlog.take(), backlog.is_past(backlog.mark())), (0, None, true));
    }
}

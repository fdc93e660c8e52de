//! Decides when an export is asked again that has had no answer: about the object, and about any if it took too long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::doubled;
use crate::object::ObjectRef;

/// The pause after the first failure; each further one in a row doubles it.
const FIRST: Duration = Duration::from_secs(1);

/// The longest pause for an object.
const LONGEST: Duration = Duration::from_mins(5);

/// The longest pause for an export that takes too long.
const LONGEST_REST: Duration = Duration::from_mins(1);

/// The failures of the exports of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Patience {
    objects: BTreeMap<ObjectRef, Failed>,
    /// The same, in the order in which they are due.
    order: BTreeSet<(Instant, ObjectRef)>,
    /// Exports that have taken too long, by the field of the manifest.
    slow: BTreeMap<&'static str, Failed>,
}

/// What has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failed {
    /// How often in a row.
    times: u32,
    /// When it is asked again.
    due: Instant,
}

impl Patience {
    /// Takes in that the export of a field was asked about an object and had no answer.
    pub(super) fn failed(&mut self, object: &ObjectRef, field: &'static str, now: Instant) {
        let times = self.objects.get(object).map_or(0, |failed| failed.times).saturating_add(1);
        // Before that, nobody is asked; and others come first, which may have an answer.
        let first = self.slow.get(field).map_or(now, |slow| now.max(slow.due));
        self.put(object, Failed { times, due: first + doubled(FIRST, times, LONGEST) });
    }

    /// Takes in that the export of a field was not asked about an object, as it rests.
    pub(super) fn postponed(&mut self, object: &ObjectRef, field: &'static str, now: Instant) {
        let times = self.objects.get(object).map_or(0, |failed| failed.times);
        let due = self.slow.get(field).map_or(now, |slow| slow.due);
        self.put(object, Failed { times, due });
    }

    fn put(&mut self, object: &ObjectRef, failed: Failed) {
        self.forget(object);
        self.order.insert((failed.due, object.clone()));
        self.objects.insert(object.clone(), failed);
    }

    /// Forgets the failures about an object.
    pub(super) fn forget(&mut self, object: &ObjectRef) {
        if let Some((object, failed)) = self.objects.remove_entry(object) {
            self.order.remove(&(failed.due, object));
        }
    }

    /// Forgets all failures, and returns the objects.
    pub(super) fn clear(&mut self) -> Vec<ObjectRef> {
        std::mem::take(self).objects.into_keys().collect()
    }

    /// Returns the objects about which nobody has been asked.
    pub(super) fn postponed_ones(&self) -> impl Iterator<Item = &ObjectRef> {
        self.objects.iter().filter(|(_, failed)| failed.times == 0).map(|(key, _)| key)
    }

    /// Keeps only the failures about objects that `keep` accepts.
    pub(super) fn retain(&mut self, keep: impl Fn(&ObjectRef) -> bool) {
        self.objects.retain(|key, _| keep(key));
        self.order.retain(|(_, key)| keep(key));
    }

    /// Returns true if an object is to be asked about again.
    pub(super) fn waits(&self, object: &ObjectRef) -> bool {
        self.objects.contains_key(object)
    }

    /// Returns when to ask again about the next object.
    pub(super) fn next(&self) -> Option<Instant> {
        // One that has been due is asked about, or gone, or due again.
        self.order.first().map(|(due, _)| *due)
    }

    /// Returns the objects about which it is time to ask, once each, those first that have been due for longest.
    pub(super) fn due(&mut self, now: Instant) -> Vec<ObjectRef> {
        let mut due = Vec::new();
        while let Some((_, key)) = self.order.first().filter(|(when, _)| *when <= now).cloned() {
            let times = self.objects.get(&key).map_or(0, |failed| failed.times);
            // Until then it has been asked, or waits to be.
            self.put(&key, Failed { times, due: now + LONGEST });
            due.push(key);
        }
        due
    }

    /// Takes in that the export of a field has ended, and whether it took too long.
    pub(super) fn ended(&mut self, field: &'static str, slow: bool, now: Instant) {
        if slow {
            let times = self.slow.get(field).map_or(0, |failed| failed.times).saturating_add(1);
            self.slow.insert(field, Failed { times, due: now + doubled(FIRST, times, LONGEST_REST) });
        } else {
            self.slow.remove(field);
        }
    }

    /// Returns true if the export of a field is not asked now, because it took too long.
    pub(super) fn rests(&self, field: &'static str, now: Instant) -> bool {
        self.slow.get(field).is_some_and(|failed| now < failed.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectRef {
        ObjectRef::namespaced("n", name)
    }

    #[test]
    fn an_object_is_asked_about_again_later_each_time() {
        // IM-3
        let start = Instant::now();
        let mut patience = Patience::default();
        let mut pauses = Vec::new();
        let mut now = start;
        for _ in 0..11 {
            patience.failed(&key("a"), "mapper", now);
            let next = patience.next().unwrap();
            pauses.push((next - now).as_secs());
            assert!(patience.waits(&key("a")) && !patience.waits(&key("b")));
            assert_eq!(patience.due(next - Duration::from_millis(1)), []);
            assert_eq!(patience.due(next), [key("a")]);
            assert_eq!(patience.due(next), [], "once");
            now = next;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        patience.forget(&key("a"));
        assert_eq!(patience.next(), None);
        patience.failed(&key("a"), "mapper", now);
        assert_eq!(patience.next(), Some(now + FIRST));
        patience.retain(|_| false);
        assert_eq!(patience.next(), None);
    }

    #[test]
    fn an_export_that_took_too_long_is_asked_about_nothing_for_a_while() {
        // IM-3, IS-1
        let start = Instant::now();
        let mut patience = Patience::default();
        let at = |millis| start + Duration::from_millis(millis);
        patience.ended("generic", true, start);
        for (millis, field, rests) in
            [(0, "generic", true), (999, "generic", true), (1000, "generic", false), (0, "onAdd", false)]
        {
            assert_eq!(patience.rests(field, at(millis)), rests, "{field} after {millis} ms");
        }
        patience.ended("generic", true, at(1000));
        assert!(patience.rests("generic", at(2999)) && !patience.rests("generic", at(3000)));
        for n in 0..20 {
            patience.ended("generic", true, at(n));
        }
        assert!(!patience.rests("generic", at(19) + LONGEST_REST), "never longer than that");
        patience.ended("generic", false, at(19));
        assert!(!patience.rests("generic", at(19)));
        // What waits behind it is asked about afterwards, and before the one that has taken too long.
        patience.ended("mapper", true, start);
        patience.ended("mapper", true, start);
        patience.failed(&key("a"), "mapper", start);
        patience.postponed(&key("b"), "mapper", start);
        assert_eq!((patience.next(), patience.due(at(2000))), (Some(at(2000)), vec![key("b")]));
        patience.postponed(&key("b"), "mapper", start);
        assert_eq!(patience.due(at(3000)), [key("b"), key("a")]);
    }
}

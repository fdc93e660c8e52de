//! Remembers which objects of a primary, and things of it outside of the cluster, have been put right lately, and forgets those that others
//! leave alone (LG-2).

use std::sync::Arc;

use tokio::time::Instant;

use crate::dependent::contest::Contest;

/// The most objects of a primary; the one that was put right first is forgotten for another one.
const MOST: usize = 32;

/// What has been put right, each with its dependent and how it is called, in the order in which they came.
#[derive(Default)]
pub struct Contests(Vec<(Arc<str>, Box<str>, Contest)>);

impl Contests {
    /// Returns what is remembered of an object.
    pub fn get(&self, dependent: &str, key: &str) -> Option<&Contest> {
        self.0.iter().find(|(name, object, _)| **name == *dependent && **object == *key).map(|(_, _, contest)| contest)
    }

    /// Takes in that an object was put right.
    pub fn note(&mut self, dependent: &Arc<str>, key: &str, wanted: u64, now: Instant) {
        self.0.retain(|(_, _, contest)| now < contest.settled_at());
        if let Some(contest) = self.of(dependent, key) {
            return contest.again(wanted, now);
        }
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        self.0.push((Arc::clone(dependent), key.into(), Contest::new(wanted, now)));
    }

    /// Takes in what others keep changing of an object.
    pub fn explain(&mut self, dependent: &str, key: &str, why: Arc<str>) {
        if let Some(contest) = self.of(dependent, key) {
            contest.explain(why);
        }
    }

    /// Forgets what the daemon itself deletes, or all of a dependent (`None`).
    pub fn forget(&mut self, dependent: &str, key: Option<&str>) {
        let of = |name: &str, object: &str| *name == *dependent && key.is_none_or(|key| *object == *key);
        self.0.retain(|(name, object, _)| !of(name, object));
    }

    /// Forgets a contest about something else than what is wanted now (`LG-2`).
    pub fn forget_former(&mut self, dependent: &str, key: &str, wanted: u64) {
        self.0.retain(|(name, object, contest)| **name != *dependent || **object != *key || contest.is_about(wanted));
    }

    /// Returns the dependents whose objects others keep changing, with what they change, and when they will have settled.
    pub fn open(&self, now: Instant) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, Instant)> {
        self.0.iter().filter_map(move |(name, _, contest)| Some((name, contest.why(now)?, contest.settled_at())))
    }

    fn of(&mut self, dependent: &str, key: &str) -> Option<&mut Contest> {
        let mut all = self.0.iter_mut();
        all.find(|(name, object, _)| **name == *dependent && **object == *key).map(|(_, _, contest)| contest)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_so_many_objects_are_remembered_and_none_that_others_leave_alone() {
        // LG-2
        let (mut contests, dependent, now) = (Contests::default(), Arc::from("maps"), Instant::now());
        let key = |number: usize| format!("n/{number}");
        for number in 0..=MOST {
            contests.note(&dependent, &key(number), 1, now);
        }
        assert_eq!(contests.0.len(), MOST);
        assert!(contests.get("maps", &key(0)).is_none() && contests.get("other", &key(1)).is_none());
        contests.forget("maps", Some(&key(1)));
        assert!(contests.get("maps", &key(1)).is_none() && contests.get("maps", &key(2)).is_some());
        contests.explain("maps", &key(2), "somebody".into());
        assert_eq!(contests.open(now).count(), 1);
        contests.note(&dependent, &key(0), 1, now + Duration::from_hours(1));
        assert_eq!(contests.0.len(), 1, "the others have settled");
        contests.forget("maps", None);
        assert!(contests.0.is_empty());
    }
}

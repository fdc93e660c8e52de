//! Remembers what has been for a time, and no more of it than there is room for: what comes beyond that is not remembered.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// Values by key, each for the same time.
#[derive(Debug)]
pub struct Lately<K, V> {
    most: usize,
    time: Duration,
    /// Until when each is known.
    known: HashMap<K, (Instant, V)>,
}

impl<K: Eq + Hash, V> Lately<K, V> {
    /// Returns one that remembers so many at once, each for this time.
    pub fn new(most: usize, time: Duration) -> Self {
        Self { most, time, known: HashMap::new() }
    }

    /// Returns what is remembered.
    pub fn get(&self, key: &K, now: Instant) -> Option<&V> {
        self.known.get(key).filter(|(until, _)| now < *until).map(|(_, value)| value)
    }

    /// Remembers a value from now on, in place of the one before. Returns false if there is no room for it.
    pub fn put(&mut self, key: K, value: V, now: Instant) -> bool {
        if self.known.len() >= self.most {
            self.known.retain(|_, (until, _)| now < *until);
        }
        let fits = self.known.len() < self.most || self.known.contains_key(&key);
        if fits {
            self.known.insert(key, (now + self.time, value));
        }
        fits
    }

    /// Returns how many take up room, those that are forgotten next among them.
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// Returns true if nothing is remembered any more.
    pub fn is_over(&self, now: Instant) -> bool {
        self.known.values().all(|(until, _)| now >= *until)
    }

    /// Forgets a value.
    pub fn forget(&mut self, key: &K) {
        self.known.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_been_is_remembered_for_a_time_and_as_far_as_there_is_room() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut lately = Lately::new(2, Duration::from_secs(10));
        assert!(lately.put("a", 1, at(0)) && lately.put("b", 2, at(5)));
        assert!(!lately.put("c", 3, at(9)), "there is no room");
        assert!(lately.put("b", 4, at(9)), "it is there already");
        let found =
            |lately: &Lately<_, i32>, seconds| ["a", "b", "c"].map(|key| lately.get(&key, at(seconds)).copied());
        assert_eq!(found(&lately, 9), [Some(1), Some(4), None]);
        assert_eq!(found(&lately, 10), [None, Some(4), None], "the first is forgotten");
        assert!(lately.put("c", 5, at(10)), "there is room again");
        lately.forget(&"b");
        assert_eq!(found(&lately, 10), [None, None, Some(5)]);
        assert_eq!([19, 20].map(|seconds| lately.is_over(at(seconds))), [false, true]);
    }
}

//! Decides which instance a run gets, and which are not used again.

use std::collections::VecDeque;
use std::time::Duration;

use capstan_core::manifest::Warm;
use tokio::time::Instant;

/// No instance waits longer than a hundred days: an instant much further off may not exist.
const LONGEST: Duration = Duration::from_hours(2400);

/// Instances that wait for a run.
#[derive(Debug)]
pub(super) struct State<T> {
    bounds: Warm,
    /// How many may wait.
    room: usize,
    /// The most recently used is the last, so that the first can go idle.
    idle: VecDeque<Idle<T>>,
}

#[derive(Debug)]
struct Idle<T> {
    instance: T,
    /// When it will have waited for too long.
    until: Instant,
}

/// What an instance has behind it when a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plugin) struct Wear {
    /// Executions.
    pub(in crate::plugin) runs: usize,
    /// Bytes of linear memory that it has now.
    pub(in crate::plugin) memory: usize,
}

// === impl State ===

impl<T> State<T> {
    pub(super) fn new(bounds: Warm, room: usize) -> Self {
        Self { bounds, room, idle: VecDeque::new() }
    }

    /// Takes back an instance whose run has ended.
    ///
    /// # Errors
    /// The instance, if it is not to be used again.
    pub(super) fn put(&mut self, instance: T, wear: Wear, now: Instant) -> Result<(), T> {
        let worn =
            wear.runs >= self.bounds.runs || u64::try_from(wear.memory).is_ok_and(|memory| memory > self.bounds.memory);
        if worn || self.idle.len() >= self.room {
            return Err(instance);
        }
        self.idle.push_back(Idle { instance, until: now + self.bounds.idle.min(LONGEST) });
        Ok(())
    }

    /// Takes the instance that was used last. Those that are over their time must have been removed.
    pub(super) fn take(&mut self) -> Option<T> {
        self.idle.pop_back().map(|idle| idle.instance)
    }

    /// Removes those that have waited for too long.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<T> {
        let over = self.idle.partition_point(|idle| idle.until <= now);
        self.idle.drain(..over).map(|idle| idle.instance).collect()
    }

    /// Returns when the next one will have waited for too long; none if none waits.
    pub(super) fn next(&self) -> Option<Instant> {
        self.idle.front().map(|idle| idle.until)
    }

    /// Removes all, and takes none back from now on.
    pub(super) fn close(&mut self) -> Vec<T> {
        self.room = 0;
        self.clear()
    }

    /// Removes all.
    pub(super) fn clear(&mut self) -> Vec<T> {
        self.idle.drain(..).map(|idle| idle.instance).collect()
    }

    /// Returns how many wait.
    pub(super) fn len(&self) -> usize {
        self.idle.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Wear = Wear { runs: 1, memory: 10 };

    fn state() -> State<&'static str> {
        let bounds = Warm { runs: 3, memory: 100, idle: Duration::from_mins(1) };
        State::new(bounds, 2)
    }

    #[test]
    fn the_most_recently_used_is_taken_first() {
        let (mut state, now) = (state(), Instant::now());
        assert_eq!(state.take(), None);
        assert_eq!(state.put("one", NEW, now), Ok(()));
        assert_eq!(state.put("two", NEW, now), Ok(()));
        assert_eq!([state.take(), state.take(), state.take()], [Some("two"), Some("one"), None]);
    }

    #[test]
    fn what_is_worn_out_is_not_used_again() {
        for (runs, memory, kept) in
            [(2, 100, true), (3, 100, false), (4, 0, false), (1, 101, false), (1, usize::MAX, false)]
        {
            let put = state().put("one", Wear { runs, memory }, Instant::now());
            assert_eq!(put.is_ok(), kept, "{runs} runs, {memory} bytes");
        }
    }

    #[test]
    fn no_more_wait_than_could_be_in_use() {
        let (mut state, now) = (state(), Instant::now());
        let put = ["one", "two", "three"].map(|name| state.put(name, NEW, now));
        assert_eq!(put, [Ok(()), Ok(()), Err("three")]);
    }

    #[test]
    fn what_has_waited_for_too_long_is_removed_and_the_rest_says_when_it_will_be() {
        let (mut state, begin) = (state(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(state.next(), None);
        assert_eq!(state.put("one", NEW, at(0)), Ok(()));
        assert_eq!(state.put("two", NEW, at(10)), Ok(()));
        assert_eq!(state.next(), Some(at(60)));
        assert_eq!(state.expire(at(59)), [] as [&str; 0]);
        assert_eq!(state.expire(at(60)), ["one"]);
        assert_eq!((state.len(), state.next()), (1, Some(at(70))));
        assert_eq!(state.expire(at(100)), ["two"]);
        assert_eq!((state.len(), state.next()), (0, None));
    }

    #[test]
    fn one_that_is_used_now_and_then_never_waits_for_too_long() {
        let (mut state, begin) = (state(), Instant::now());
        for n in 0..5 {
            let now = begin + Duration::from_secs(59) * n;
            assert_eq!(state.expire(now), [] as [&str; 0]);
            assert_eq!(state.take(), (n > 0).then_some("one"));
            assert_eq!(state.put("one", NEW, now), Ok(()));
        }
    }

    #[test]
    fn a_time_beyond_all_measure_is_long_enough() {
        let bounds = Warm { idle: Duration::MAX, ..Warm::within(100) };
        let (mut state, now) = (State::new(bounds, 1), Instant::now());
        assert_eq!(state.put("one", NEW, now), Ok(()));
        assert_eq!(state.next(), Some(now + LONGEST));
    }

    #[test]
    fn a_closed_pool_is_empty_and_takes_nothing_back() {
        let (mut state, now) = (state(), Instant::now());
        assert_eq!(state.put("one", NEW, now), Ok(()));
        assert_eq!(state.close(), ["one"]);
        assert_eq!(state.put("two", NEW, now), Err("two"));
        assert_eq!((state.take(), state.next()), (None, None));
    }
}

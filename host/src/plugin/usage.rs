//! Counts what a plugin does: its calls and how they ended, its instances, its memory, its time.

use std::sync::Arc;
use std::time::Duration;

use capstan_core::guest::Cause;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// What a version of a plugin has done since it was loaded, and what it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Calls of exports that are over, however they ended, also those that nobody waited for any more.
    pub calls: u64,
    /// Calls that answered with an error.
    pub errors: u64,
    /// Calls that trapped.
    pub traps: u64,
    /// Calls that took longer than `limits.timeout`.
    pub timeouts: u64,
    /// Calls that wanted more memory than `limits.memory`.
    pub out_of_memory: u64,
    /// Calls that could not be made, or whose answer could not be read.
    pub unusable: u64,
    /// Milliseconds spent in calls, all together. They include waiting for what a call asked the daemon for.
    pub call_ms: u64,
    /// Executions under way, whether they have called yet or not, and those on their behalf.
    pub executions: usize,
    /// Processes started so far, if it has one of its own.
    pub processes_started: u64,
    /// Instances started so far, with the one that is started for a try when the plugin is loaded.
    pub instances_started: u64,
    /// Instances there are.
    pub instances: usize,
    /// Those of them that wait to be used again.
    pub instances_idle: usize,
    /// The most linear memory that an instance has had, in bytes.
    pub peak_memory_bytes: u64,
}

/// Usage as it is counted, and the time in full. Locked for a moment only.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<(Usage, Duration)>);

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// With an answer.
    Well,
    /// Otherwise.
    Badly(Cause),
    /// Not at all: it was dropped.
    Abandoned,
}

/// A run under way, until it is dropped.
pub(super) struct Execution(Arc<Counters>);

/// An instance that is alive, until it is dropped.
pub(super) struct Alive(Arc<Counters>);

// === impl Usage ===

impl Usage {
    /// Returns the number of calls that had no good end.
    pub fn failed(&self) -> u64 {
        self.errors + self.broken()
    }

    /// Returns the number of those after which the instance was thrown away.
    pub fn broken(&self) -> u64 {
        self.traps + self.timeouts + self.out_of_memory + self.unusable
    }

    /// Returns the same, where what only grows began with what another version has done.
    #[must_use]
    pub fn after(self, before: &Self) -> Self {
        Self {
            calls: before.calls + self.calls,
            errors: before.errors + self.errors,
            traps: before.traps + self.traps,
            timeouts: before.timeouts + self.timeouts,
            out_of_memory: before.out_of_memory + self.out_of_memory,
            unusable: before.unusable + self.unusable,
            processes_started: before.processes_started + self.processes_started,
            instances_started: before.instances_started + self.instances_started,
            ..self
        }
    }
}

// === impl Counters ===

impl Counters {
    /// Counts a call that is over.
    pub(super) fn call(&self, ended: Ended, took: Duration) {
        let (usage, time) = &mut *self.0.lock();
        usage.calls += 1;
        *time += took;
        match ended {
            Ended::Well | Ended::Abandoned => {}
            Ended::Badly(Cause::Returned) => usage.errors += 1,
            Ended::Badly(Cause::Trap) => usage.traps += 1,
            Ended::Badly(Cause::Timeout) => usage.timeouts += 1,
            Ended::Badly(Cause::OutOfMemory) => usage.out_of_memory += 1,
            Ended::Badly(Cause::Other) => usage.unusable += 1,
        }
    }

    /// Learns how much memory an instance has.
    pub(super) fn memory(&self, bytes: usize) {
        let (usage, _) = &mut *self.0.lock();
        usage.peak_memory_bytes = usage.peak_memory_bytes.max(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Counts a run until the answer is dropped.
    pub(super) fn execution(self: &Arc<Self>) -> Execution {
        self.0.lock().0.executions += 1;
        Execution(Arc::clone(self))
    }

    /// Counts a process that was started.
    pub(super) fn process(&self) {
        self.0.lock().0.processes_started += 1;
    }

    /// Counts an instance that has started, until the answer is dropped.
    pub(super) fn instance(self: &Arc<Self>) -> Alive {
        let (usage, _) = &mut *self.0.lock();
        usage.instances_started += 1;
        usage.instances += 1;
        Alive(Arc::clone(self))
    }

    /// Returns the numbers, with those of the instances that wait.
    pub(super) fn usage(&self, idle: usize) -> Usage {
        let (usage, time) = *self.0.lock();
        Usage { call_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX), instances_idle: idle, ..usage }
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.0.0.lock().0.executions -= 1;
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.0.lock().0.instances -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_how_they_ended() {
        let counters = Counters::default();
        let second = Duration::from_secs(1);
        for ended in [
            Ended::Well,
            Ended::Well,
            Ended::Badly(Cause::Returned),
            Ended::Badly(Cause::Trap),
            Ended::Badly(Cause::Timeout),
            Ended::Badly(Cause::OutOfMemory),
            Ended::Badly(Cause::Other),
            Ended::Abandoned,
        ] {
            counters.call(ended, second);
        }
        let expected = Usage {
            calls: 8,
            errors: 1,
            traps: 1,
            timeouts: 1,
            out_of_memory: 1,
            unusable: 1,
            call_ms: 8000,
            ..Usage::default()
        };
        assert_eq!(counters.usage(0), expected);
    }

    #[test]
    fn what_is_alive_is_counted_until_it_is_dropped_and_the_peak_stays() {
        let counters = Arc::new(Counters::default());
        let (one, other, run) = (counters.instance(), counters.instance(), counters.execution());
        for bytes in [5, 7, 6] {
            counters.memory(bytes);
        }
        let lasting = Usage { instances_started: 2, peak_memory_bytes: 7, instances_idle: 1, ..Usage::default() };
        let meanwhile = Usage { instances: 2, executions: 1, ..lasting };
        assert_eq!(counters.usage(1), meanwhile);
        drop((one, other, run));
        assert_eq!(counters.usage(1), lasting);
    }
}

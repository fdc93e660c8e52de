//! Counts what a plugin does: its calls and how they ended, its instances, its memory, its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use capstan_core::guest::Cause;

/// What a version of a plugin has done since it was loaded. The numbers are read one after another while it works, so they may
/// differ by what happened meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Calls that are over, however they ended.
    pub calls: u64,
    /// Calls that ended with an error which the component returned.
    pub errors: u64,
    /// Calls that ended with a trap.
    pub traps: u64,
    /// Calls that took longer than `limits.timeout`.
    pub timeouts: u64,
    /// Calls that wanted more memory than `limits.memory`.
    pub out_of_memory: u64,
    /// Calls that could not be made, or whose answer could not be read.
    pub unusable: u64,
    /// Calls that nobody waited for any more.
    pub abandoned: u64,
    /// Time spent in calls, all together. It includes waiting for what a call asked the daemon for.
    pub time: Duration,
    /// Executions under way, whether they have called yet or not, and those on their behalf.
    pub executions: usize,
    /// Processes started for it.
    pub processes: u64,
    /// Instances started, with the one that is started for a try when the plugin is loaded.
    pub started: u64,
    /// Instances alive now.
    pub instances: usize,
    /// Those of them that wait for a run.
    pub idle: usize,
    /// The most linear memory that an instance has had, in bytes.
    pub peak_memory: u64,
}

/// Usage as it is counted: no locks.
#[derive(Debug, Default)]
pub(super) struct Counters {
    calls: AtomicU64,
    errors: AtomicU64,
    traps: AtomicU64,
    timeouts: AtomicU64,
    out_of_memory: AtomicU64,
    unusable: AtomicU64,
    abandoned: AtomicU64,
    /// Nanoseconds: enough for 584 years.
    time: AtomicU64,
    executions: AtomicUsize,
    processes: AtomicU64,
    started: AtomicU64,
    instances: AtomicUsize,
    peak_memory: AtomicU64,
}

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

// === impl Counters ===

impl Counters {
    /// Counts a call that is over.
    pub(super) fn call(&self, ended: Ended, took: Duration) {
        add(&self.calls, 1);
        add(&self.time, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        match ended {
            Ended::Well => {}
            Ended::Abandoned => add(&self.abandoned, 1),
            Ended::Badly(Cause::Returned) => add(&self.errors, 1),
            Ended::Badly(Cause::Trap) => add(&self.traps, 1),
            Ended::Badly(Cause::Timeout) => add(&self.timeouts, 1),
            Ended::Badly(Cause::OutOfMemory) => add(&self.out_of_memory, 1),
            Ended::Badly(Cause::Other) => add(&self.unusable, 1),
        }
    }

    /// Learns how much memory an instance has.
    pub(super) fn memory(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        // Most often it is no news, and reading is cheaper.
        if bytes > self.peak_memory.load(Ordering::Relaxed) {
            self.peak_memory.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a run until the answer is dropped.
    pub(super) fn execution(self: &Arc<Self>) -> Execution {
        self.executions.fetch_add(1, Ordering::Relaxed);
        Execution(Arc::clone(self))
    }

    /// Counts a process that was started.
    pub(super) fn process(&self) {
        add(&self.processes, 1);
    }

    /// Counts an instance that has started, until the answer is dropped.
    pub(super) fn instance(self: &Arc<Self>) -> Alive {
        add(&self.started, 1);
        self.instances.fetch_add(1, Ordering::Relaxed);
        Alive(Arc::clone(self))
    }

    /// Returns the numbers, with those of the instances that wait.
    pub(super) fn usage(&self, idle: usize) -> Usage {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Usage {
            calls: read(&self.calls),
            errors: read(&self.errors),
            traps: read(&self.traps),
            timeouts: read(&self.timeouts),
            out_of_memory: read(&self.out_of_memory),
            unusable: read(&self.unusable),
            abandoned: read(&self.abandoned),
            time: Duration::from_nanos(read(&self.time)),
            executions: self.executions.load(Ordering::Relaxed),
            processes: read(&self.processes),
            started: read(&self.started),
            instances: self.instances.load(Ordering::Relaxed),
            idle,
            peak_memory: read(&self.peak_memory),
        }
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.0.executions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.instances.fetch_sub(1, Ordering::Relaxed);
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
            abandoned: 1,
            time: 8 * second,
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
        let lasting = Usage { started: 2, peak_memory: 7, idle: 1, ..Usage::default() };
        let meanwhile = Usage { instances: 2, executions: 1, ..lasting };
        assert_eq!(counters.usage(1), meanwhile);
        drop((one, other, run));
        assert_eq!(counters.usage(1), lasting);
    }
}

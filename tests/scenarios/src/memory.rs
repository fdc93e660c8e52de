//! Measures the memory of a daemon and of the processes that it starts: those that compile, and those of plugins.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often is looked which processes there are. What each has had at most, the kernel knows.
const LOOK: Duration = Duration::from_millis(50);

/// The memory of a daemon with its children, watched until this is dropped.
pub struct Memory {
    daemon: u32,
    most: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    watch: Option<JoinHandle<()>>,
}

impl Memory {
    /// Watches a daemon from now on.
    pub fn of(daemon: u32) -> Self {
        let (most, over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (seen, ended) = (Arc::clone(&most), Arc::clone(&over));
        let watch = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                seen.fetch_max(sum(daemon, "VmHWM:"), Ordering::Relaxed);
                thread::park_timeout(LOOK);
            }
        });
        Self { daemon, most, over, watch: Some(watch) }
    }

    /// Returns the most that all of them had at a time, in bytes: of those that there were at once, what each has had at most.
    pub fn peak(&self) -> u64 {
        self.most.fetch_max(sum(self.daemon, "VmHWM:"), Ordering::Relaxed);
        self.most.load(Ordering::Relaxed)
    }

    /// Returns what they have now beside the files that they map, in bytes.
    pub fn held(&self) -> u64 {
        sum(self.daemon, "RssAnon:")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(watch) = self.watch.take() {
            watch.thread().unpark();
            drop(watch.join());
        }
    }
}

/// Returns the sum of a field of `status` over a process and those that it has started, in bytes. A process that has just ended has nothing.
fn sum(process: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    let own = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() << 10;
    own + children(process).into_iter().map(|child| sum(child, field)).sum::<u64>()
}

/// Returns the processes that the threads of a process have started.
fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let started = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    threads.map(started).flat_map(|list| list.split(' ').filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect()
}

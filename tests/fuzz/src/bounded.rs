//! Measures what a piece of work takes, and fails if that is more than it may be.

use std::time::Duration;

use capstan_core::budget::WEIGHT;
use peak_alloc::PeakAlloc;
use rustix::time::{ClockId, clock_gettime};

/// Counts what is allocated.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// More memory than any work on documents takes: two of them, what becomes of them, and what is between.
const MEMORY_BOUND: usize = 4 * WEIGHT;

/// What a budget of an operation pays for takes less time of a processor, also with a slow build.
const TIME_BOUND: Duration = Duration::from_secs(4);

/// Does some work, and asserts that it took neither too much memory nor too much time of a processor.
///
/// Threads share the count, so that only one may be at work.
pub(crate) fn within_bounds(work: impl FnOnce()) {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let begun = spent();
    work();
    let (took, peak) = (spent().saturating_sub(begun), MEMORY.peak_usage());
    let held = peak.saturating_sub(before);
    assert!(held <= MEMORY_BOUND, "it took {held} bytes");
    assert!(took <= TIME_BOUND, "it took {took:?}");
}

/// Returns the time for which this thread has computed.
fn spent() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a time since the thread began")
}

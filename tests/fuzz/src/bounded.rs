//! Measures what a piece of work takes, and fails if that is more than it may be.

#![expect(clippy::disallowed_types, reason = "what is measured runs in real time")]

use std::time::{Duration, Instant};

use capstan_core::budget::WEIGHT;
use peak_alloc::PeakAlloc;

/// Counts what is allocated.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// More memory than any work on documents takes: two of them, what becomes of them, and what is between.
const MEMORY_BOUND: usize = 4 * WEIGHT;

/// Longer than what a budget of an operation pays for takes with a slow build on a busy machine.
const TIME_BOUND: Duration = Duration::from_secs(20);

/// Does some work, and asserts that it took neither too much memory nor too long.
///
/// Threads share the count, so that only one may be at work.
pub(crate) fn within_bounds(work: impl FnOnce()) {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let begun = Instant::now();
    work();
    let (took, peak) = (begun.elapsed(), MEMORY.peak_usage());
    let held = peak.saturating_sub(before);
    assert!(held <= MEMORY_BOUND, "it took {held} bytes");
    assert!(took <= TIME_BOUND, "it took {took:?}");
}

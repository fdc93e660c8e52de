//! Measures that the queue takes no memory for events that tell it nothing new. What is allocated is counted for the whole process, so this
//! is its only test.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use capstan_core::object::ObjectRef;
use capstan_core::queue::{Event, Policy, Queue, Receipt, Ticket};
use futures::FutureExt as _;
use peak_alloc::PeakAlloc;
use tokio::time::Instant;

/// Counts what is allocated.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const CHANGED: Event = Event::PrimaryChanged { deleting: false };

/// Who runs the tests allocates, too, now and then: of so many measurements one has to be its own.
const MEASUREMENTS: u32 = 20;

/// Returns how many bytes some work has taken at once.
fn taken(mut work: impl FnMut()) -> usize {
    let once = |_| {
        MEMORY.reset_peak_usage();
        let before = MEMORY.current_usage();
        work();
        MEMORY.peak_usage() - before
    };
    (0..MEASUREMENTS).map(once).min().unwrap()
}

#[test]
fn a_repeated_event_of_a_known_key_allocates_nothing() {
    // EP-11
    let keys: Vec<_> = (0..1000).map(|n| ObjectRef::namespaced("n", &format!("k{n}"))).collect();
    let (queue, now) = (Queue::new(Policy::default()), Instant::now());
    let events = |event: Event| {
        for key in &keys {
            assert_eq!(queue.event(key, event, now), Receipt::Marked);
        }
    };
    let begun = taken_once(|| events(CHANGED));
    assert!(begun > 0, "a new key takes memory");
    for event in [CHANGED, Event::Related] {
        assert_eq!(taken(|| events(event)), 0, "{event:?} before the start");
    }
    queue.start(now);
    for event in [CHANGED, Event::Related] {
        assert_eq!(taken(|| events(event)), 0, "{event:?} of keys that are due");
    }
    let tickets: Vec<Ticket> = keys.iter().filter_map(|_| queue.next().now_or_never().flatten()).collect();
    assert_eq!(tickets.len(), keys.len());
    for event in [CHANGED, Event::Related] {
        assert_eq!(taken(|| events(event)), 0, "{event:?} of keys in flight");
    }
}

/// Returns how many bytes some work has taken that can be done once.
fn taken_once(work: impl FnOnce()) -> usize {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    work();
    MEMORY.peak_usage() - before
}

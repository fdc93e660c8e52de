//! What a key costs: time per event, take and finish, and memory while it is idle.

#![allow(clippy::expect_used, reason = "a benchmark may fail loudly")]

use capstan_core::object::ObjectRef;
use capstan_core::queue::{Event, Failure, Finished, Policy, Queue, Ticket};
use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher, black_box};
use futures::FutureExt;
use tokio::time::Instant;

/// For `fill`, whose "max alloc" divided by the keys is what an idle key takes (names not counted).
#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

const KEYS: [usize; 2] = [1_000, 100_000];

/// Keys in one sample of the benchmarks of single steps: many, because one takes as long as a look at the clock.
const ROUNDS: usize = 1_000;

fn main() {
    divan::main();
}

fn keys(count: usize) -> Vec<ObjectRef> {
    (0..count).map(|n| ObjectRef::namespaced("default", &format!("page-{n:06}"))).collect()
}

fn take(queue: &Queue) -> Ticket {
    let ticket = queue.next().now_or_never().flatten();
    ticket.expect("a due key")
}

/// Returns a running queue in which each key has run once and waits for its maximal interval.
fn filled(keys: &[ObjectRef]) -> Queue {
    let queue = Queue::new(Policy::default());
    let now = Instant::now();
    queue.start(now);
    for key in keys {
        queue.event(key, Event::PrimaryChanged { deleting: false }, now);
    }
    for _ in keys {
        take(&queue).finish(Finished::DONE, now);
    }
    queue
}

/// One key after the other: an event, its run, its end.
#[divan::bench(args = KEYS)]
fn event_next_finish(bencher: Bencher<'_, '_>, count: usize) {
    let keys = keys(count);
    let queue = filled(&keys);
    let mut order = keys.iter().cycle().step_by(7919);
    bencher.counter(ItemsCount::new(ROUNDS)).bench_local(|| {
        for key in order.by_ref().take(ROUNDS) {
            queue.event(key, Event::Related, Instant::now());
            black_box(take(&queue).finish(Finished::DONE, Instant::now()));
        }
    });
}

/// The same for a run that fails, with its retry.
#[divan::bench(args = KEYS)]
fn event_next_fail(bencher: Bencher<'_, '_>, count: usize) {
    let keys = keys(count);
    let queue = filled(&keys);
    let mut order = keys.iter().cycle().step_by(7919);
    let failed = Finished::Failed(Failure::Unhandled);
    bencher.counter(ItemsCount::new(ROUNDS)).bench_local(|| {
        for key in order.by_ref().take(ROUNDS) {
            queue.event(key, Event::Related, Instant::now());
            black_box(take(&queue).finish(failed, Instant::now()));
        }
    });
}

/// All keys due at the same time, as after a start: events first, then all runs.
#[divan::bench(args = KEYS, sample_count = 10)]
fn burst(bencher: Bencher<'_, '_>, count: usize) {
    let keys = keys(count);
    let queue = filled(&keys);
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        for key in &keys {
            queue.event(key, Event::Related, Instant::now());
        }
        for _ in &keys {
            take(&queue).finish(Finished::DONE, Instant::now());
        }
    });
}

/// Events of keys that are due already, nine of ten that come: no allocation.
#[divan::bench(args = KEYS, sample_count = 10)]
fn repeated(bencher: Bencher<'_, '_>, count: usize) {
    let keys = keys(count);
    let queue = filled(&keys);
    let event = |key| queue.event(key, Event::Related, Instant::now());
    for key in &keys {
        event(key);
    }
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        for key in &keys {
            black_box(event(key));
        }
    });
}

/// All keys due, every other one because something has changed: both are handed out in turns.
#[divan::bench(args = KEYS, sample_count = 10)]
fn burst_beside_replays(bencher: Bencher<'_, '_>, count: usize) {
    let keys = keys(count);
    let queue = filled(&keys);
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        for (number, key) in keys.iter().enumerate() {
            let now = Instant::now();
            if number % 2 == 0 {
                queue.event(key, Event::Related, now)
            } else {
                queue.replay(key, Event::Related, now)
            };
        }
        for _ in &keys {
            take(&queue).finish(Finished::DONE, Instant::now());
        }
    });
}

/// From nothing to idle keys.
#[divan::bench(args = KEYS, sample_count = 5)]
fn fill(bencher: Bencher<'_, '_>, count: usize) {
    let keys = keys(count);
    bencher.counter(ItemsCount::new(count)).bench_local(|| filled(&keys));
}

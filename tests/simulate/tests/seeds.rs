//! Plays seeds that are the same each time, and some that are not.

#![allow(clippy::panic, reason = "a test may fail loudly")]

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// Plays seeds, and says how to play the first again that fails.
fn play(seeds: Range<u64>) {
    for seed in seeds {
        if let Err(wrong) = simulate::run(seed) {
            let trace = simulate::shorten(seed).trace.join("\n");
            panic!("seed {seed}: {wrong}\n{trace}\nagain: cargo xtask simulate --seeds 1 --from {seed}");
        }
    }
}

#[test]
fn the_first_seeds_fail_in_nothing() {
    play(0..100);
}

#[test]
fn more_seeds_fail_in_nothing() {
    play(100..200);
}

#[test]
fn still_more_seeds_fail_in_nothing() {
    play(200..300);
}

#[test]
fn fresh_seeds_fail_in_nothing() {
    play(fresh(100));
}

#[test]
fn more_fresh_seeds_fail_in_nothing() {
    play(fresh(100));
}

/// Returns so many seeds, others each time.
fn fresh(count: u64) -> Range<u64> {
    let first = RandomState::new().hash_one(()) >> 16;
    first..first + count
}

#[test]
fn a_seed_is_the_same_each_time() {
    for seed in 0..40 {
        let (first, second) = (simulate::trace(seed), simulate::trace(seed));
        let differs = first.iter().zip(&second).find(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

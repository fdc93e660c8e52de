//! Plays what may happen to the daemon's code, informers included, on a model of the API server with a stopped clock.
//!
//! In reading order: [`run`] plays seeds one after the other; `plan` draws from a seed what happens, `world` has the
//! objects and the manifest, `play` makes it happen (`play/calm`: retries, timers and starts, one at a time), `stage` is
//! what all parts share, `line` carries requests, `script` is the component, `folder` has its manifest and component,
//! `daemon` puts the daemon together, `verdict` finds what is wrong, `panics` what the daemon has caught, and `shrink` leaves out steps that the failure does
//! not need.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod chance;
mod daemon;
mod folder;
mod line;
mod panics;
mod plan;
mod play;
mod script;
mod shrink;
mod stage;
mod verdict;
mod world;

use plan::Plan;
use play::play;

/// The failure of a simulation.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The first thing that must not have happened.
    pub wrong: String,
    /// The log of what happened, shortened.
    pub trace: Vec<String>,
}

/// Plays the simulation of a seed.
///
/// # Errors
/// The first thing that was wrong.
pub fn run(seed: u64) -> Result<(), String> {
    play(&Plan::of(seed)).wrong.map_or(Ok(()), Err)
}

/// Plays the simulation of a failing seed again and again, each time with fewer steps.
pub fn shorten(seed: u64) -> Failure {
    let plan = Plan::of(seed);
    let played = play(&plan);
    let (plan, played) = shrink::shrink(&plan, played, play);
    let mut trace = vec![format!("{:?}, lag {:?}, way {:?}", plan.setup, plan.lag, plan.way)];
    trace.extend(played.lines);
    Failure { seed, wrong: played.wrong.unwrap_or_default(), trace }
}

/// Returns what happens in the simulation of a seed.
pub fn trace(seed: u64) -> Vec<String> {
    play(&Plan::of(seed)).lines
}

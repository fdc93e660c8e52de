//! Components, loaded and called: what is refused, what a call costs its instance, and what it may ask.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail loudly")]
#![allow(missing_docs, unreachable_pub, reason = "a test")]

#[cfg(target_os = "linux")]
#[path = "plugin/apart.rs"]
mod apart;
#[path = "plugin/asks.rs"]
mod asks;
#[path = "plugin/calls.rs"]
mod calls;
#[path = "plugin/compiling.rs"]
mod compiling;
#[path = "plugin/describing.rs"]
mod describing;
#[path = "plugin/guests.rs"]
mod guests;
#[path = "plugin/loading.rs"]
mod loading;
#[path = "plugin/rehearsing.rs"]
mod rehearsing;
#[path = "plugin/runs.rs"]
mod runs;
#[path = "plugin/usage.rs"]
mod usage;
#[path = "plugin/warm.rs"]
mod warm;

//! Starts a daemon as a process of its own and looks at it from outside, in real time: for benchmarks, and for the demo.

pub mod clock;
pub mod daemon;
pub mod usage;

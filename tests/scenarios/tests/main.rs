//! What Capstan does on a real API server, one module per theme. A test that shows a scenario starts with its number.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod bad_input;
mod base;
mod dependents;
mod lifecycle;
mod operations;
mod webpage;

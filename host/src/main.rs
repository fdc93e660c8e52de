//! Parses, runs, exits with a code that means something.
fn main() {}

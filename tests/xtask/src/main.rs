//! Menu.
fn main() {}

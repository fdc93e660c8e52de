//! The command line: what may be typed, and the commands that come to an end by themselves.

pub mod args;
pub mod check;
pub mod plugins;
pub mod rbac;

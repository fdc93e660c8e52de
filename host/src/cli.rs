//! The command line: its arguments, and the commands that end by themselves.

pub mod args;
pub mod check;
pub mod component;
mod daemon;
pub mod dev;
pub mod graph;
pub mod init;
mod objects;
pub mod plugins;
pub mod rbac;
pub mod test;

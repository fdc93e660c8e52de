//! The command line: its arguments, and the commands that end by themselves.

pub mod approve;
pub mod args;
mod beside;
pub mod check;
pub mod component;
pub mod crd;
mod daemon;
pub mod dev;
pub mod graph;
pub mod init;
pub mod inspect;
pub mod load;
mod objects;
pub mod plugins;
pub mod pull;
pub mod push;
pub mod rbac;
mod registry;
pub mod save;
pub mod sign;
pub mod test;
pub mod verify;

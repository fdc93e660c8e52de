//! What is decided of operators that are objects of the cluster: which names they may have, and what their status says.

pub mod names;
pub mod status;

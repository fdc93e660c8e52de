//! What is decided of operators that are objects of the cluster: which names they may have, what those of other namespaces than the daemon's may
//! be, and what their status says.

pub mod ceiling;
pub mod names;
pub mod status;
pub mod tenant;

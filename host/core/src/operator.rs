//! What is decided of operators: what a version of one wants more than another, whether it waits for an approval, which names those may have that
//! are objects of the cluster, what those of other namespaces than the daemon's may be, and what their status says.

pub mod approval;
pub mod ceiling;
pub mod difference;
pub mod names;
pub mod status;
pub mod tenant;
pub mod wants;

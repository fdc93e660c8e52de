//! Decides what is asked of registries of OCI artifacts, and what their answers mean (OC rules).
//!
//! Whoever runs a registry is nobody whom the daemon trusts: each text of it is bounded before it comes here, read once, and shown only as
//! [`text`](crate::text) shows texts of others.

pub mod answer;
pub mod artifact;
pub mod challenge;
pub mod credentials;
pub mod layout;
pub mod mirror;
pub mod reference;
pub mod referrers;
pub mod schedule;
pub mod signature;
pub mod url;

pub use answer::{Failure, Kind};
pub use credentials::Credentials;
pub use reference::{Digest, Reference};
pub use url::Url;

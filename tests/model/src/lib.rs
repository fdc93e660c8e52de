//! Decides what a Kubernetes API server would answer, in this process and the same every time: a model for tests.
//!
//! In reading order: [`Model`] is the API server to a test, `server` and `body` carry requests and answers, `world`
//! answers them; `write`, `apply`, `delete`, `read` and `watch` are its verbs, `rules`, `defaults` and `kinds` have
//! the differences between kinds, `managed`, `owner`, `merge`, `typed` and `fields` server-side apply, `store` what
//! is kept at which version. `tests/differential.rs` shows how far it is like the real one.
//!
//! Nothing in it is random and nothing waits for real time: under a stopped clock, the same requests in the same
//! order have the same answers.

mod apply;
mod body;
mod chance;
mod decode;
mod defaults;
mod delete;
mod discovery;
mod duplicate;
mod edit;
mod fault;
mod fields;
mod gc;
mod kinds;
mod managed;
mod merge;
mod meta;
mod model;
mod owner;
mod read;
mod request;
mod rights;
mod rules;
mod schema;
mod selector;
mod server;
mod service_ip;
mod status;
mod store;
mod typed;
mod watch;
mod world;
mod write;
mod wrong;

pub use body::ModelBody;
pub use fault::{ConnectionBroken, Fault, Loss};
pub use model::{Model, Which};
pub use request::Asked;
pub use rights::Denied;
pub use server::ModelService;
pub use watch::Cut;

//! Event sources that come and go while the controller runs.
//!
//! ```
//! # use capstan_guest::{Result, Update, secondaries, sources};
//! use serde_json::json;
//!
//! fn reconcile() -> Result<Update> {
//!     sources::register("keys", &json!({ "informer": { "apiVersion": "v1", "kind": "Secret" } }))?;
//!     let keys = secondaries("keys")?.len();
//!     Ok(Update::status(json!({ "keys": keys })))
//! }
//! # let recorded = capstan_guest::test::with(capstan_guest::test::Run::new(), || reconcile());
//! # assert_eq!(recorded.answer, Ok(Update::status(json!({ "keys": 0 }))));
//! # assert_eq!(recorded.registered["keys"]["informer"]["kind"], "Secret");
//! ```
//!
//! A source is one of the controller: it wakes all primaries that its objects belong to. Register it in each run; where it is there already,
//! that costs nothing. The manifest has to permit `watch` on the kind.

use serde::Serialize;

use crate::{Error, Json, Result, daemon};

/// Starts a source, declared as in the manifest under `sources`, and waits until its cache is filled. Returns false if there is one of that
/// name, which is then kept.
pub fn register(name: &str, declaration: &impl Serialize) -> Result<bool> {
    let declaration = Json::of(declaration)?;
    daemon::sources::register(name, declaration.as_str()).map_err(Error::of_call)
}

/// Tells a source of things outside of the cluster that this run has made a thing for its primary, or put it in the place of `replaced`: it is
/// read from now on, and the next poll does not undo it. Nothing happens if something newer is known already.
pub fn remember<T: Serialize>(name: &str, actual: &T, replaced: Option<&T>) -> Result<()> {
    let actual = Json::of(actual)?;
    let replaced = replaced.map(Json::of).transpose()?;
    daemon::sources::remember(name, actual.as_str(), replaced.as_ref().map(Json::as_str)).map_err(Error::of_call)
}

/// Tells a source of things outside of the cluster that this run has removed its primary's thing with this id.
pub fn forget(name: &str, id: &str) -> Result<()> {
    daemon::sources::forget(name, id).map_err(Error::of_call)
}

/// Stops a source that was started by [`register`], if there is one.
pub fn deregister(name: &str) -> Result<()> {
    daemon::sources::deregister(name).map_err(Error::of_call)
}

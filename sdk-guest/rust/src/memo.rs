//! Keeps values in the daemon, because instances share nothing and do not last.
//!
//! ```
//! # use capstan_guest::memo::{self, Lifetime};
//! # capstan_guest::test::with(capstan_guest::test::Run::new(), || {
//! memo::set(Lifetime::Primary, "seen", &3)?;
//! assert_eq!(memo::get::<u32>(Lifetime::Primary, "seen")?, Some(3));
//! # Ok::<_, capstan_guest::Error>(())
//! # }).answer?;
//! # Ok::<_, capstan_guest::Error>(())
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::imports::capstan::operator as contract;
use crate::{Error, Json, Result, daemon, json};

/// How long a value is kept.
pub type Lifetime = contract::memo::Lifetime;

/// Returns the value of a key; `None` if there is none.
pub fn get<T: DeserializeOwned>(lifetime: Lifetime, key: &str) -> Result<Option<T>> {
    daemon::memo::get(lifetime, key).map(|text| json::parse(&text)).transpose()
}

/// Sets the value of a key. Fails with [`Reason::Exhausted`](crate::Reason::Exhausted) beyond the manifest's bound.
pub fn set(lifetime: Lifetime, key: &str, value: &impl Serialize) -> Result<()> {
    daemon::memo::put(lifetime, key, Some(Json::of(value)?.as_str())).map_err(Error::of_call)
}

/// Removes a key.
pub fn remove(lifetime: Lifetime, key: &str) -> Result<()> {
    daemon::memo::put(lifetime, key, None).map_err(Error::of_call)
}

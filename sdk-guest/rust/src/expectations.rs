//! One thing per primary that is expected to come true in time. The daemon keeps it; the component itself finds out whether it has.
//!
//! ```
//! # use std::time::Duration;
//! # use capstan_guest::{Result, Update, secondary};
//! use capstan_guest::expectations::{self, Outcome};
//!
//! # use serde_json::json;
//! fn reconcile() -> Result<Update> {
//!     let is_ready = || Ok(secondary("deployment")?.is_some_and(|found| found["status"]["readyReplicas"] == 3));
//!     let timeout = Duration::from_secs(30);
//!     Ok(match expectations::check("ready", is_ready)? {
//!         None if expectations::check_and_set("ready", timeout, is_ready)? => Update::nothing().reschedule(timeout),
//!         None | Some(Outcome::Fulfilled) => Update::status(json!({ "message": "it is ready" })),
//!         Some(Outcome::TimedOut) => Update::status(json!({ "message": "it takes too long" })),
//!         Some(Outcome::Pending) => Update::nothing().reschedule(timeout),
//!     })
//! }
//! # let run = || capstan_guest::test::with(capstan_guest::test::Run::new(), || reconcile()).answer;
//! # assert_eq!(run(), Ok(Update::nothing().reschedule(Duration::from_secs(30))));
//! ```
//!
//! Nothing calls the component when the time is over: reschedule. An expectation is lost when the daemon stops.

use std::time::Duration;

use crate::bindings::imports::capstan::operator as contract;
use crate::{Error, Result, daemon};

/// What is expected, and whether its time is over.
pub type Expectation = contract::expectations::Expectation;

/// What has become of an expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has come true, in time or not; it is expected no more.
    Fulfilled,
    /// Its time is over. It is expected until it is cleared or replaced.
    TimedOut,
    /// It has not come true yet.
    Pending,
}

/// Expects something of the primary, in place of anything else. Fails with [`Reason::Invalid`](crate::Reason::Invalid) for a name
/// that is empty or longer than 253 bytes.
pub fn expect(name: &str, timeout: Duration) -> Result<()> {
    let timeout = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    daemon::expectations::expect(name, timeout).map_err(Error::of_call)
}

/// Returns what is expected of the primary.
pub fn pending() -> Option<Expectation> {
    daemon::expectations::pending()
}

/// Expects this no more. Returns whether it was expected.
pub fn clear(name: &str) -> bool {
    daemon::expectations::clear(name)
}

/// Expects something, unless it is so already. Returns whether it is expected now.
pub fn check_and_set(name: &str, timeout: Duration, is_so: impl FnOnce() -> Result<bool>) -> Result<bool> {
    if is_so()? {
        return Ok(false);
    }
    expect(name, timeout)?;
    Ok(true)
}

/// Returns what has become of an expectation; `None` if nothing of this name is expected.
pub fn check(name: &str, is_so: impl FnOnce() -> Result<bool>) -> Result<Option<Outcome>> {
    let Some(Expectation { timed_out, .. }) = pending().filter(|pending| pending.name == name) else {
        return Ok(None);
    };
    Ok(Some(if is_so()? {
        clear(name);
        Outcome::Fulfilled
    } else if timed_out {
        Outcome::TimedOut
    } else {
        Outcome::Pending
    }))
}

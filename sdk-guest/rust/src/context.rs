//! Says what is known about the run that the current call belongs to.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::bindings::imports::capstan::operator as contract;
use crate::{Result, daemon, json};

/// What is known about a run from its start.
pub type RunInfo = contract::context::RunInfo;
/// How often the primary has failed in a row.
pub type Retry = contract::types::RetryInfo;

/// Returns the current run; `None` in a call outside a run.
pub fn run() -> Option<RunInfo> {
    daemon::context::run()
}

/// Returns the retry state; `None` on a fresh run.
pub fn retry() -> Option<Retry> {
    run().and_then(|run| run.retry)
}

/// Says whether an event for this primary is waiting already, so that another run follows at once.
pub fn next_imminent() -> bool {
    daemon::context::next_imminent()
}

/// Returns how long the current call may still take.
pub fn time_left() -> Duration {
    Duration::from_millis(daemon::context::time_left_ms().into())
}

/// Returns the settings in force: `controller` as in the manifest, and `daemon` with identity, namespace and version. `T`
/// names the fields that are of interest, or is `serde_json::Value`.
pub fn settings<T: DeserializeOwned>() -> Result<T> {
    json::parse(&daemon::context::settings()).map_err(|error| error.context("settings"))
}

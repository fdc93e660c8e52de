//! Asks the component whether a primary is one that it can work with, before anything but its finalizer is written for it (VA).

use std::sync::Arc;

use super::beside::Beside;
use super::ended::Failed;
use super::run::Run;
use crate::guest::Interface;

/// Fails if the component finds something wrong with the primary. What is on its way to be gone is not looked at: it has to come to its end,
/// however wrong it is (`VA-3`).
pub(super) async fn validate(run: &Arc<Run>) -> Result<(), Failed> {
    let going = run.info.primary_deleted || run.primary.header().deleting;
    if going || !run.controller.guest.exports(Interface::Validator) {
        return Ok(());
    }
    // Its own session, which ends before that of the run begins to compute: nothing that a run may do works in it.
    let context = Beside::alone(&run.controller, run.primary.clone());
    let session = run.controller.guest.open(context);
    let found = session.validate(run.primary.json(), None).await;
    let found = found.map_err(|failure| Failed::of_guest(failure, run.sort()))?;
    if found.problems.is_empty() { Ok(()) } else { Err(Failed::of_primary(&found.problems)) }
}

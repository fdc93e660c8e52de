//! Asks the component when a failed run is retried, where a retry would follow (RT-5).

use std::borrow::Cow;
use std::sync::Arc;

use super::Ended;
use super::run::Run;
use crate::guest::{FailedRun, Interface, NextRetry, Session};
use crate::queue::{Blame, Failure, Finished, Ticket};

/// Returns how the run ends, with what the component says of its retry. Without an answer, the manifest says when it is.
pub(super) async fn decide(run: &Arc<Run>, session: &dyn Session, ticket: &Ticket, ended: Ended) -> Ended {
    let retry = ticket.retry_if(ended.blame.class);
    let open = is_open(ended.finished) && ended.blame.next == NextRetry::Declared;
    let asks = open && !retry.last && run.controller.guest.exports(Interface::RetryPolicy);
    if !asks {
        return ended;
    }
    let message = ended.error.clone().unwrap_or_default();
    let failed = FailedRun { class: ended.blame.class, message, retry };
    let next = session.decide_retry(run.primary.json(), Cow::Borrowed(&failed)).await.unwrap_or_else(|second| {
        tracing::warn!(error = %second.message, "the retry policy failed itself: the run is retried as the manifest says");
        NextRetry::Declared
    });
    Ended { blame: Blame { next, ..ended.blame }, ..ended }
}

/// Whether nobody has said yet when a run that ends like that is retried.
fn is_open(finished: Finished) -> bool {
    match finished {
        Finished::Failed(Failure::Unhandled | Failure::Handled | Failure::Conflict) => true,
        // An outage is retried until it is over.
        Finished::Failed(Failure::Delayed(_) | Failure::Outage)
        | Finished::Done { .. }
        | Finished::NoRetry { .. }
        | Finished::Gone
        | Finished::Postponed { .. } => false,
    }
}

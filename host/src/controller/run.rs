//! Executes one run of a controller when it is its plugin's turn, and counts and logs how it ended.

use std::sync::Arc;
use std::time::Duration;

use capstan_core::guest::{FailureClass, FailureOrigin};
use capstan_core::manifest::Rounded;
use capstan_core::queue::{Event, Level, Next, Outcome, Settled, Ticket};
use capstan_core::reconciler::{self, Controller, Ended};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::failing::{Handled, LastError};
use super::handle::Handle;
use crate::logging::runs;
use crate::metrics::ControllerRuns;

/// Executes one run, which computes when it is its plugin's turn.
pub(super) async fn execute(handle: Arc<Handle>, ticket: Ticket) {
    handle.in_turn(Some(ticket.key().clone()), Box::pin(executed(&handle, ticket))).await;
}

/// Executes the run, with metrics and a line in the log.
async fn executed(handle: &Handle, mut ticket: Ticket) {
    if let Some(controller) = handle.controller() {
        controller.settled_for(ticket.key()).await;
    }
    // The one instant at which it is decided whether a run belongs to the old version or to the new one.
    let Some(controller) = handle.controller() else {
        return;
    };
    let metrics = &handle.metrics;
    let started = Instant::now();
    metrics.start(ticket.retry().is_some());
    runs::retried(ticket.retry());
    // A run that is aborted or panics is counted too.
    let counted = Counted { metrics, started, succeeded: false };
    let Ended { finished, error, tolerated, origin, blame, exceeded, recalled } = {
        let now = Timestamp::now();
        reconciler::execute(Arc::clone(&controller), &mut ticket, now).await
    };
    metrics.counts.recalled.inc_by(recalled.into());
    if let Some(exceeded) = exceeded {
        metrics.counts.exceeded.inc();
        tracing::warn!(%exceeded, "what this run does with documents costs more than it may");
    }
    let now = Instant::now();
    let again = |now: &Controller| controller.watches_apart_from(now) || controller.is_outgrown_by(now, ticket.key());
    if handle.controller().is_some_and(|now| again(&now)) {
        // Nobody else tells of what this run alone has begun to watch, or of what it was refused.
        handle.queue.event(ticket.key(), Event::Related, now);
    }
    let (key, departed) = (ticket.key().clone(), ticket.deletion().is_some());
    let last = departed.then(|| controller.verdicts.departed.get(&key)).flatten();
    let what = ticket.finish(finished, now);
    // AE-3: what is still to be run for, or has gone since, is kept.
    let left = what.next == Next::Dropped || departed;
    if let Some(last) = last.filter(|_| !controller.queue.awaits_deletion_run(&key)) {
        controller.verdicts.departed.forget(&last);
    }
    tell(handle.failing.tolerated(&key, tolerated.as_deref()), tolerated);
    let handled = handle.failing.handled(&key, error.as_deref().filter(|_| finished.is_handled()));
    let failed = |error: &String| LastError::new(error, blame.class, what.retry.map_or(0, |retry| retry.attempt));
    handle.failing.ended(&key, error.as_ref().filter(|_| what.next != Next::Dropped).map(failed));
    if what.next == Next::Dropped {
        // The primary was deleted during the run, or left what is selected, and the run may have written it, and stored verdicts on it, since;
        // another one may have come under its name.
        controller.verdicts.forget_unless(&key, controller.primaries.cached(&key).as_ref());
        metrics.count_primaries(controller.queue.len());
    }
    if left {
        // What its dependents had watched may have been demanded since others were told that it has gone.
        handle.gone.notify_one();
    }
    metrics.count_paused(controller.verdicts.paused());
    if handled.is_some() {
        metrics.counts.handled.inc();
    }
    if matches!(what.next, Next::Outage(_)) {
        metrics.counts.outages.inc();
    }
    counted.end(what.outcome == Outcome::Succeeded);
    let took = now.duration_since(started);
    if !controller.verdicts.is_paused(&key) {
        runs::ended(error.as_deref(), &next(&what.next, origin), took);
    }
    log((&what, origin), error.as_deref().map(|error| (error, blame.class)), handled, took);
}

/// Counts the end of a run, also of one that is dropped.
struct Counted<'a> {
    metrics: &'a ControllerRuns,
    started: Instant,
    succeeded: bool,
}

impl Counted<'_> {
    fn end(mut self, succeeded: bool) {
        self.succeeded = succeeded;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.metrics.finish(self.started.elapsed(), self.succeeded);
    }
}

/// Logs which failures of dependents a run has left to the component, once for each cause (`WF-9`).
fn tell(known: Option<Handled>, tolerated: Option<String>) {
    let error = tolerated.unwrap_or_default();
    match known {
        Some(Handled::New) => tracing::warn!(%error, "dependents failed, which is left to the component"),
        Some(Handled::Again) => tracing::debug!(%error, "dependents failed, which is left to the component"),
        None => {}
    }
}

/// Logs how a run ended, in one line (`EP-36`, `EC-5`).
fn log(
    (what, origin): (&Settled, Option<FailureOrigin>),
    error: Option<(&str, FailureClass)>,
    handled: Option<Handled>,
    took: Duration,
) {
    let next = next(&what.next, origin);
    let attempt = what.retry.map_or(0, |retry| retry.attempt);
    let (error, class) = error.unwrap_or(("ended without a result", FailureClass::Other));
    let class = class.name();
    match (what.outcome, handled) {
        (Outcome::Succeeded | Outcome::Failed(Level::Warning), Some(Handled::New)) => {
            tracing::warn!(%error, class, attempt, %next, handled = true, "the run failed");
        }
        (Outcome::Succeeded | Outcome::Failed(Level::Warning), Some(Handled::Again)) => {
            tracing::debug!(%error, class, attempt, %next, handled = true, "the run failed");
        }
        (Outcome::Succeeded, None) => tracing::debug!(took = %Rounded(took), %next, "reconciled"),
        (Outcome::Ignored, _) => {
            tracing::debug!(took = %Rounded(took), "the run's outcome is ignored: the controller was stopped");
        }
        (Outcome::Failed(Level::Debug), _) => tracing::debug!(%error, class, attempt, %next, "the run failed"),
        (Outcome::Failed(Level::Info), _) => tracing::info!(%error, class, attempt, %next, "the run failed"),
        (Outcome::Failed(Level::Warning), None) => tracing::warn!(%error, class, attempt, %next, "the run failed"),
        (Outcome::Failed(Level::Error), _) => tracing::error!(%error, class, attempt, %next, "the run failed"),
    }
}

/// Returns when a key runs again, as a text for people.
fn next(next: &Next, origin: Option<FailureOrigin>) -> String {
    match next {
        // A primary that is wrong has no retries to begin with.
        Next::Exhausted(_) if origin == Some(FailureOrigin::Invalid) => "again once it is corrected".to_owned(),
        Next::AtOnce => "again at once: an event came meanwhile".to_owned(),
        Next::Retry(after) | Next::Resume(after) => format!("retried in {}", Rounded(*after)),
        Next::Outage(after) => {
            format!("again in {}, or once the API server does its work: no attempt is used up", Rounded(*after))
        }
        Next::Exhausted(Some(after)) => {
            format!("no retries left: again at the next event, or in {}", Rounded(*after))
        }
        Next::Exhausted(None) => "no retries left: again at the next event".to_owned(),
        Next::Again(after) => format!("again in {}, as it asked", Rounded(*after)),
        Next::Idle(Some(after)) => format!("again at the next event, or in {}", Rounded(*after)),
        Next::Idle(None) => "again at the next event".to_owned(),
        Next::AwaitDeletion => "its deletion is awaited".to_owned(),
        Next::Dropped => "it is gone".to_owned(),
        Next::AtStart => "once the controller is started again".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_runs_again_once_it_is_corrected_and_not_when_retries_would_be_left() {
        let last = Next::Exhausted(Some(Duration::from_hours(10)));
        assert_eq!(next(&last, Some(FailureOrigin::Invalid)), "again once it is corrected");
        assert_eq!(next(&last, None), "no retries left: again at the next event, or in 10h");
        let idle = Next::Idle(Some(Duration::from_hours(10)));
        assert_eq!(next(&idle, None), "again at the next event, or in 10h");
        assert_eq!(next(&Next::Retry(Duration::from_nanos(5_725_248_263)), None), "retried in 5.7s");
    }
}

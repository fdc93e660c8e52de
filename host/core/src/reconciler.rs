//! Decides the order of a run: read the primary again, decide, run the workflow, call the guest, write, and return
//! the result.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout};

use crate::cluster;
use crate::guest::{
    Cause, DeleteControl, ErrorControl, Failure, FailureClass, FailureInfo, FailureOrigin, Interface, NextStep,
    PrimaryUpdate, RetryInfo, RunInfo, Session, UpdateControl,
};
use crate::manifest::{self, Reconciler};
use crate::object::hold::{self, Apart, HELD};
use crate::object::{Object, ObjectRef, PAUSED};
use crate::queue::{self, Finished, Ticket};
use crate::text;
use crate::workflow::Mode;

mod answers;
mod beside;
mod blame;
pub mod callbacks;
mod concluding;
mod controller;
pub mod decision;
pub mod departed;
mod ended;
pub mod expectations;
pub mod finalizer;
pub mod inbound;
mod managed;
pub mod mask;
pub mod memos;
mod naming;
mod node;
pub mod outcome;
mod page;
mod passing;
pub mod pause;
pub mod polling;
mod primary;
mod reads;
mod registering;
mod remembering;
mod retry;
mod run;
pub mod triggers;
mod validating;
pub mod verdicts;

use concluding::End;
pub use controller::{Controller, Elsewhere, Events};
use decision::Decision;
pub use ended::Ended;
use ended::Failed;
use pause::Pause;
use run::Run;

/// How often it is looked whether the primary of a run has another holder meanwhile.
const LOOK: Duration = Duration::from_millis(200);

/// When a run began: by the time of day, and by the clock.
type Began = (Timestamp, Instant);

/// Executes one run: reads the primary again, adds or removes finalizers, or reconciles or cleans up. Returns the
/// result of the run; the caller finishes the ticket with it. `now` is the time of day, by which pauses end.
pub async fn execute(controller: Arc<Controller>, ticket: &mut Ticket, now: Timestamp) -> Ended {
    let ended = perform(controller, ticket, now).await;
    ticket.blame(ended.blame);
    ended
}

async fn perform(controller: Arc<Controller>, ticket: &mut Ticket, now: Timestamp) -> Ended {
    let began = (now, Instant::now());
    if ticket.deletion().is_some() {
        return depart(controller, ticket, began).await;
    }
    // EP-14: the object may be newer than the event; if it is gone, the run is done.
    let (primary, recalled) = match found(&controller, ticket.key()).await {
        Ok(found) => found,
        Err(ended) => return ended,
    };
    let ended = upon(controller, primary, ticket, began).await;
    Ended { recalled: ended.recalled + recalled, ..ended }
}

/// Does what a primary needs.
async fn upon(controller: Arc<Controller>, primary: Object, ticket: &mut Ticket, began: Began) -> Ended {
    ticket.about(&primary);
    if let Some(ended) = paused(&controller, &primary, began.0) {
        return ended;
    }
    let (key, held) = (ticket.key().clone(), Arc::clone(&controller));
    tokio::select! {
        biased;
        ended = decided(controller, primary, (ticket, began)) => ended,
        // PA-6: what it waits for is given up, and nothing more is written.
        ended = taken(&held, &key, began) => ended,
    }
}

/// Waits until a primary is held for another daemon than this one, and returns how the run ends then.
async fn taken(controller: &Controller, key: &ObjectRef, (now, since): Began) -> Ended {
    loop {
        sleep(LOOK).await;
        let now = now.saturating_add(since.elapsed()).unwrap_or(now);
        let Ok(Some(primary)) = controller.primaries.look(key) else {
            continue;
        };
        let held = hold::apart(primary.header().held.as_deref(), controller.holder.as_deref(), now);
        if let Some(Apart::Held(left)) = held {
            tracing::info!("the run is broken off: its primary is held by another daemon");
            return Ended::again(left);
        }
    }
}

/// Decides what is done for a primary that is not paused, and does it.
async fn decided(controller: Arc<Controller>, primary: Object, (ticket, began): (&Ticket, Began)) -> Ended {
    if controller.spec.all_events() {
        // AE-1: finalizers are the component's own.
        return run(controller, primary, (ticket, began), Decision::Reconcile).await;
    }
    let finalizers = controller.finalizers();
    let decision = finalizers.decide(primary.header());
    let left = finalizers.left(primary.header());
    let not_begun = |ended: Ended, error: &cluster::Error| {
        let cleanup = decision == Decision::LetGo;
        let end = End { ticket, cleanup, result: None, held: Vec::new(), faults: error.is_fault(), began };
        controller.conclude(&primary, end, ended)
    };
    match decision {
        Decision::Nothing => Ended::DONE,
        Decision::LetGo => match controller.remove_finalizers(&primary, &left).await {
            Ok(_) => {
                controller.verdicts.forget_of(&primary);
                Ended::FINALIZER_REMOVED
            }
            Err(error) => not_begun(Ended::not_removed(&error), &error).await,
        },
        Decision::AddFinalizer => match controller.add_finalizer(&primary, &controller.finalizer).await {
            Ok(_) => Ended::DONE,
            Err(error) => not_begun(Ended::not_added(&error), &error).await,
        },
        Decision::Reconcile if !left.is_empty() => {
            match controller.remove_finalizers(&primary, &left).await {
                Ok(Some(answer)) => {
                    // Another run may have written it meanwhile.
                    let newer =
                        |now: &Object| now.header().uid == answer.header().uid && now.version() > answer.version();
                    let newest = controller.primaries.get(answer.key()).filter(newer);
                    let primary = newest.filter(|now| !controller.primaries.has_forgotten(now)).unwrap_or(answer);
                    // A primary that is being deleted by now gets a run of its own.
                    if primary.header().deleting {
                        return Ended::DONE;
                    }
                    run(controller, primary, (ticket, began), decision).await
                }
                Ok(None) => Ended::DONE,
                Err(error) => not_begun(Ended::not_removed(&error), &error).await,
            }
        }
        Decision::Reconcile | Decision::Cleanup => run(controller, primary, (ticket, began), decision).await,
    }
}

/// Returns how a run ends that finds its primary paused; `None` if it is not.
fn paused(controller: &Controller, primary: &Object, now: Timestamp) -> Option<Ended> {
    let header = primary.header();
    let pause = Pause::of_primary(header, controller.spec.paused, controller.holder.as_deref(), now);
    controller.verdicts.note_pause(primary.key(), pause.is_some());
    let pause = pause?;
    if pause == Pause::Unclear {
        let [paused, held] =
            [&header.paused, &header.held].map(|found| text::said(found.as_deref().unwrap_or_default()));
        tracing::warn!(%paused, %held, "paused: the annotation {PAUSED} should be true, false or a time such as 2027-01-31T12:00:00Z, and {HELD} as `capstan dev` writes it");
    }
    Some(Ended::again(pause.left()))
}

/// Returns the primary of a run, and how often it was read from the API server for that, or how the run ends without it.
async fn found(controller: &Controller, key: &ObjectRef) -> Result<(Object, u32), Ended> {
    match controller.primaries.look(key) {
        Ok(Some(primary)) => {
            let recalled = u32::from(controller.primaries.has_forgotten(&primary));
            let whole = controller.whole(primary).await;
            whole.map_err(|error| Ended::unread(&error))?.map(|whole| (whole, recalled)).ok_or(Ended::DONE)
        }
        Ok(None) => {
            if !controller.spec.all_events() {
                controller.verdicts.forget_unless(key, None);
            }
            Err(Ended::well(Finished::Gone))
        }
        Err(doubt) => {
            let sort = if doubt.is_of_own_write() { queue::Failure::Outage } else { queue::Failure::Unhandled };
            Err(Ended::failed(doubt.to_string(), sort, FailureClass::Other))
        }
    }
}

/// Executes a run about a primary that is gone, in all-events mode (`AE-2`). What is gone can't be paused any more; its
/// controller can.
async fn depart(controller: Arc<Controller>, ticket: &Ticket, began: Began) -> Ended {
    controller.verdicts.note_pause(ticket.key(), controller.spec.paused);
    if controller.spec.paused {
        return Ended::well(Finished::Postponed { until: None });
    }
    let Some(last) = controller.verdicts.departed.get(ticket.key()) else {
        return Ended::DONE;
    };
    let apart = |of: &Object| hold::apart(of.header().held.as_deref(), controller.holder.as_deref(), began.0);
    let successor = controller.primaries.get(ticket.key());
    let next_is_held = successor.is_some_and(|next| matches!(apart(&next), Some(Apart::Held(_))));
    match apart(&last) {
        // Who has held it has the next one of its name, too, and is done with it.
        _ if next_is_held && last.header().held.is_some() => return Ended::DONE,
        // PA-6: whoever held it may have gone before it ran about its end.
        Some(Apart::Held(Some(left))) => return Ended::well(Finished::Postponed { until: Some(left) }),
        Some(Apart::Held(None)) => return Ended::DONE,
        Some(Apart::Unclear) | None => {}
    }
    run(controller, last, (ticket, began), Decision::Reconcile).await
}

/// Calls the guest, in a session for this run.
async fn run(
    controller: Arc<Controller>,
    primary: Object,
    (ticket, began): (&Ticket, Began),
    decision: Decision,
) -> Ended {
    let info = run_info(&controller, ticket);
    let run = Run::new(Arc::clone(&controller), primary, info);
    let session = controller.guest.open(run.shared());
    let ended = if decision == Decision::Cleanup {
        let cleaned = in_time(&run, async { Ok(cleanup(&run, &*session).await) }).await;
        cleaned.unwrap_or_else(Ended::of)
    } else {
        reconcile(&run, &*session, ticket).await
    };
    let ended = retry::decide(&run, &*session, ticket, ended).await;
    drop(session);
    let mut results = std::mem::take(&mut run.kept.lock().results);
    run.controller.verdicts.walks.keep(run.primary.key(), &results, Instant::now());
    let tolerated = managed::tolerated(&results, ended.error.as_deref());
    let ended = if run.info.primary_deleted {
        ended
    } else {
        let result = results.remove(&None);
        let cleanup = decision == Decision::Cleanup;
        let end = End { ticket, cleanup, result, held: run.held(), faults: run.met_faults(), began };
        run.controller.conclude(&run.primary, end, ended).await
    };
    if ended.error.is_none() {
        run.release();
    }
    let now = Instant::now();
    let ended = ended.at_the_latest(run.looks_again(now).map(|at| at.saturating_duration_since(now)));
    let exceeded = run.budget.lock().refused();
    let recalled = run.recalled.load(Ordering::Relaxed);
    Ended { tolerated, exceeded, recalled, ..ended.heeding(run.left_alone()) }
}

async fn reconcile(run: &Arc<Run>, session: &dyn Session, ticket: &Ticket) -> Ended {
    match in_time(run, attempt(run, session)).await {
        Ok(control) if run.info.primary_deleted => {
            // AE-4
            if control.reschedule.is_some() {
                tracing::warn!("the component asks to run again for a primary that is gone, which is ignored");
            }
            Ended::DONE
        }
        Ok(control) => Ended::again(outcome::reschedule(control.reschedule)),
        Err(failed) => handle(run, session, failed, ticket).await,
    }
}

/// Waits for what a run does, as long as the manifest lets it take (`RT-6`). What it waits for then is given up.
async fn in_time<T>(run: &Run, doing: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let Some(limit) = run.controller.spec.run_timeout else {
        return doing.await;
    };
    timeout(limit, run.within(Instant::now() + limit, doing)).await.unwrap_or_else(|_elapsed| {
        let message = format!("the run took longer than {} (reconciliationTimeout)", manifest::Time(limit));
        Err(Failed::of_guest(Failure::new(Cause::Timeout, message), run.sort()))
    })
}

/// Prepares the run, runs the managed workflow, calls the guest's `reconcile`, and carries out the writes that it asks
/// for.
async fn attempt(run: &Arc<Run>, session: &dyn Session) -> Result<UpdateControl, Failed> {
    let controller = &run.controller;
    validating::validate(run).await?;
    initialize(run, session).await?;
    if controller.spec.workflow.is_managed() {
        managed::managed(run, session, Mode::Reconcile)
            .await
            .map_err(|failed| Failed::of_workflow(failed, run.sort()))?;
    }
    let control = match &controller.spec.reconciler {
        Reconciler::Component => session.reconcile(run.primary.json()).await,
        Reconciler::Template(status) => managed::reconcile(run, session, status.as_ref()).await,
    };
    let control = control.map_err(|failure| Failed::of_guest(failure, run.sort()))?;
    if run.info.primary_deleted {
        if control.update != PrimaryUpdate::Nothing {
            tracing::warn!("the component answers what to write to a primary that is gone, which is ignored");
        }
        return Ok(control);
    }
    let planned = outcome::writes(&control.update, &run.primary, &run.manner(), &mut run.budget.lock())
        .map_err(|failure| Failed::of_guest(failure, queue::Failure::Unhandled))?;
    let mut written = None;
    for mut write in planned {
        if let Some(version) = written {
            write.now_upon(version);
        }
        let done = run.asked(controller.write_primary(&run.primary, write, &run.budget)).await;
        written = match done {
            // AE-1: the component has let it go itself, in this run. The one about its deletion follows.
            Err(error) if controller.spec.all_events() && has_gone(run, &error).await => {
                tracing::debug!(%error, "the primary has gone meanwhile");
                break;
            }
            done => done.map_err(|error| Failed::of_write(&error))?,
        };
    }
    Ok(control)
}

/// Whether a write of the primary has failed because it is gone. What names its uid is a conflict then.
async fn has_gone(run: &Run, error: &cluster::Error) -> bool {
    if !error.is_conflict() {
        return error.reason == cluster::Reason::Missing;
    }
    let Run { controller, primary, .. } = run;
    let found = run.asked(controller.cluster.get(&controller.spec.primary, primary.key())).await;
    found.is_ok_and(|found| found.is_none_or(|found| found.header().uid != primary.header().uid))
}

/// Calls the guest's initializer, if it has one (`CI-1`).
async fn initialize(run: &Run, session: &dyn Session) -> Result<(), Failed> {
    if !run.controller.guest.exports(Interface::Initializer) {
        return Ok(());
    }
    session.initialize(run.primary.json()).await.map_err(|failure| Failed::of_guest(failure, run.sort()))
}

/// Calls the guest's error handler after a failure (EC rules). In an outage the handler may set the status, but can't
/// end the retries: once the API server works again, the primary runs again, so no failure is the last one.
async fn handle(run: &Arc<Run>, session: &dyn Session, failed: Failed, ticket: &Ticket) -> Ended {
    let controller = &run.controller;
    if let (Some(_), FailureOrigin::Workflow) = (controller.spec.status(), failed.origin) {
        let retry = ticket.retry_if(failed.class);
        let told = match failed.sort {
            // The next try resolves it.
            queue::Failure::Outage => false,
            queue::Failure::Conflict => retry.last,
            queue::Failure::Unhandled | queue::Failure::Handled | queue::Failure::Delayed(_) => true,
        };
        let telling = async {
            tell_status(run, session, retry).await;
            Ok(())
        };
        if told && let Err(late) = in_time(run, telling).await {
            tracing::warn!(error = %late.message, "the status is not told after a failure");
        }
    }
    if !controller.guest.exports(Interface::ErrorHandler) {
        return Ended::of(failed);
    }
    let outage = failed.sort == queue::Failure::Outage;
    let mut retry = ticket.retry_if(failed.class);
    retry.last &= !outage;
    retry.last |= failed.origin == FailureOrigin::Invalid;
    let Failed { origin, message, refused, dependents, sort, class } = failed;
    let info = FailureInfo { origin, message: message.clone(), refused, dependents, retry };
    let control = match session.handle_error(run.primary.json(), Cow::Borrowed(&info)).await {
        Ok(control) => control,
        Err(second) => {
            tracing::warn!(error = %second.message, "the error handler failed itself");
            return Ended::failed(message, sort, class).from(origin);
        }
    };
    let ErrorControl::Handled { status, next } = control else {
        return Ended::failed(message, sort, class).from(origin);
    };
    if let Some(status) = status.filter(|_| !run.info.primary_deleted) {
        write_error_status(run, status, info.retry).await;
    }
    if outage || origin == FailureOrigin::Invalid {
        return Ended::failed(message, sort, class).from(origin);
    }
    // EC-5: without a retry, the failure is handled, and the run counts as a success.
    let finished = match next {
        NextStep::Retry => Finished::Failed(queue::Failure::Handled),
        NextStep::RetryAfter(after) => Finished::Failed(queue::Failure::Delayed(after)),
        NextStep::Stop => Finished::NoRetry { again: None },
        // AE-3: only its success ends the run about a deletion.
        NextStep::Reschedule(after) if run.info.primary_deleted => Finished::Failed(queue::Failure::Delayed(after)),
        NextStep::Reschedule(after) => Finished::NoRetry { again: outcome::reschedule(Some(after)) },
    };
    Ended { finished, ..Ended::failed(message, sort, class).from(origin) }
}

/// Writes the status that the manifest says after a workflow that has failed (`DT-6`).
async fn tell_status(run: &Run, session: &dyn Session, retry: RetryInfo) {
    match managed::reconcile(run, session, run.controller.spec.status()).await {
        Ok(UpdateControl { update: PrimaryUpdate::Status(status), .. }) => write_error_status(run, status, retry).await,
        Ok(_) => {}
        Err(failure) => tracing::warn!(error = %failure, "the status can't be made after a failure"),
    }
}

/// Writes the status from the error handler. A failure of this write never replaces the first failure (`EC-4`).
async fn write_error_status(run: &Run, status: String, retry: RetryInfo) {
    let controller = &run.controller;
    let update = PrimaryUpdate::Status(status);
    let planned = match outcome::writes(&update, &run.primary, &run.manner(), &mut run.budget.lock()) {
        Ok(planned) => planned,
        Err(failure) => {
            tracing::error!(error = %failure.message, "the error handler's status can't be written");
            return;
        }
    };
    for write in planned {
        match controller.write_primary(&run.primary, write, &run.budget).await {
            Ok(_) => {}
            Err(error) if error.is_conflict() && !retry.last => {
                tracing::debug!(%error, "error status not written");
            }
            Err(error) if !retry.last => tracing::warn!(%error, "error status not written"),
            Err(error) => tracing::error!(%error, "error status not written"),
        }
    }
}

async fn cleanup(run: &Arc<Run>, session: &dyn Session) -> Ended {
    let controller = &run.controller;
    if let Err(failed) = initialize(run, session).await {
        return Ended::of(failed);
    }
    let cleaner = controller.guest.exports(Interface::Cleaner);
    let (mut complete, mut failed) = (true, None);
    // DC-5: with explicit invocation, the workflow is cleaned up here only if there is no `cleanup` that would call
    // it.
    if controller.spec.deletes_dependents() && !(controller.spec.workflow.explicit && cleaner) {
        match managed::managed(run, session, Mode::Cleanup).await {
            Ok(result) => {
                complete = result.complete;
                failed = managed::Failed::of(&result).map(|failed| Failed::of_workflow(failed, run.sort()));
            }
            Err(failed) => return Ended::of(Failed::of_workflow(failed, run.sort())),
        }
    }
    let control = if cleaner { session.cleanup(run.primary.json()).await } else { Ok(DeleteControl::RemoveFinalizer) };
    match control {
        Err(failure) => Ended::of(Failed::of_guest(failure, run.sort())),
        Ok(DeleteControl::KeepFinalizer(after)) => Ended::again(outcome::reschedule(after)),
        // WF-9: a failed node fails the run; once the finalizer is removed, no run would look at the failure.
        Ok(DeleteControl::RemoveFinalizer) if let Some(failed) = failed => Ended::of(failed),
        Ok(DeleteControl::RemoveFinalizer) if !complete => Ended::DONE,
        // What the run has read since shows nothing: it may have left behind what was there.
        Ok(DeleteControl::RemoveFinalizer) if !controller.primaries.watches(run.primary.key()) => Ended::failed(
            "the namespace of the primary is not watched any more: its finalizer stays".to_owned(),
            queue::Failure::Unhandled,
            FailureClass::Other,
        ),
        Ok(DeleteControl::RemoveFinalizer) => {
            let mut names = controller.finalizers().left(run.primary.header());
            names.push(&controller.finalizer);
            match run.asked(controller.remove_finalizers(&run.primary, &names)).await {
                Ok(_) => {
                    controller.verdicts.forget_of(&run.primary);
                    Ended::FINALIZER_REMOVED
                }
                Err(error) => Ended::not_removed(&error),
            }
        }
    }
}

fn run_info(controller: &Controller, ticket: &Ticket) -> RunInfo {
    RunInfo {
        controller: Arc::clone(&controller.spec.own_name),
        primary: Some(ticket.key().clone()),
        beside: false,
        retry: ticket.retry(),
        primary_deleted: ticket.deletion().is_some(),
        final_state_unknown: ticket.deletion().is_some_and(|deletion| deletion.unknown),
    }
}

//! Polls things outside of the cluster: calls the component beside all runs, takes in what it answers, and has those primaries run
//! whose things have changed (PP).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::controller::Controller;
use super::memos::Memos;
use super::reads::Reader;
use crate::budget::Budget;
use crate::cluster::Deletion;
use crate::external::schedule::{Polled, Turn};
use crate::external::{self, External, Standing};
use crate::guest::{
    CallError, CallReason, CompareQuestion, Context, Event, Expectation, Failure, Lifetime, MatchResult, ObjectTarget,
    Page, Place, Query, RunInfo, Session, WorkflowCall, WorkflowResult, WriteRequest,
};
use crate::manifest::polls::PRIMARY;
use crate::object::{Object, ObjectRef};
use crate::source::callback::{Asked, Callback, wanted};
use crate::source::{Trigger, TriggerKind};

/// A call beside all runs, as its component sees it.
struct Polling {
    controller: Arc<Controller>,
    /// The primary; `None` if it is for all of them.
    primary: Option<Object>,
    requests: AtomicU32,
    budget: Mutex<Budget>,
}

/// Polls a source for all primaries at once (`PP-1`). Those whose things have changed run; if nothing was known before, all do.
///
/// # Errors
/// That of the component, or what is wrong with its answer. What was known stays.
pub async fn poll(controller: &Arc<Controller>, source: &External) -> Result<(), Failure> {
    let polling = Polling::new(controller, None);
    let session = controller.guest.open(Arc::<Polling>::clone(&polling));
    let answer = session.poll(&source.name).await?;
    let mut primaries = BTreeMap::<ObjectRef, Vec<String>>::new();
    for one in answer.primaries {
        primaries.entry(one.primary).or_default().extend(one.things);
    }
    let things = {
        let mut budget = polling.budget.lock();
        let read = primaries.into_iter().filter(|(_, answer)| !answer.is_empty()).map(|(primary, answer)| {
            let things = external::read(&answer, &source.spec.id, &mut budget);
            things.map(|things| (primary, things))
        });
        read.collect::<Result<_, _>>().map_err(|problem| Failure::other(problem.to_string()))?
    };
    let changed = source.take_all(things, || controller.guest.holding());
    let changed = changed.map_err(|refused| Failure::other(refused.to_string()))?;
    tell(controller, source, changed.primaries);
    if changed.known_now {
        controller.queue.event_for_all(Instant::now());
    }
    Ok(())
}

/// Polls a source for one primary, as it is now (`PP-2`). Nobody else polls it meanwhile. One that is gone, or has been made again, is not
/// polled.
///
/// # Errors
/// As [`poll`].
pub async fn poll_one(controller: &Arc<Controller>, source: &External, turn: &Turn) -> Result<Polled, Failure> {
    let Turn { primary: key, uid } = turn;
    let Some(primary) = current(controller, turn) else {
        return Ok(Polled::Unwanted);
    };
    if !is_wanted(controller, source, &primary) {
        source.note(key, uid, Standing::Unwanted);
        return Ok(Polled::Unwanted);
    }
    let polling = Polling::new(controller, Some(primary.clone()));
    let session = controller.guest.open(Arc::<Polling>::clone(&polling));
    // A run that waits for the same things may have the turn that this call needs.
    session.ready().await?;
    let _alone = source.alone(key).await;
    if current(controller, turn).is_none() {
        return Ok(Polled::Unwanted);
    }
    let answer = ask(&*session, &polling, source, &primary).await;
    let there = current(controller, turn).is_some();
    if answer.is_err() && there {
        source.note(key, uid, Standing::Failed);
    }
    let (changed, again) = answer?;
    if changed {
        tell(controller, source, vec![key.clone()]);
    }
    // XC-6: it may have gone meanwhile.
    if !there && !controller.queue.knows(key) {
        source.forget_one(key, uid);
    }
    Ok(Polled::Well(again))
}

/// Returns a primary as it is now, if it is still the one whose turn it is.
fn current(controller: &Controller, Turn { primary, uid }: &Turn) -> Option<Object> {
    controller.primaries.get(primary).filter(|now| *now.header().uid == **uid)
}

/// Polls a source for a primary whose things a run wants to see, unless that was done before. It causes no run (`PP-2`).
///
/// # Errors
/// `unreachable`, if the component fails, or if the primary has gone meanwhile.
pub(super) async fn first(controller: &Arc<Controller>, source: &External, primary: &Object) -> Result<(), CallError> {
    let turn = Turn { primary: primary.key().clone(), uid: primary.header().uid.as_ref().into() };
    let Turn { primary: key, uid } = &turn;
    let known = || source.spec.each().is_none() || source.knows(key, uid);
    if known() || !is_wanted(controller, source, primary) {
        return Ok(());
    }
    let _alone = source.alone(key).await;
    if known() {
        return Ok(());
    }
    let unreachable =
        |why: String| CallError::new(CallReason::Unreachable, format!("polling source {}: {why}", source.name));
    let gone = || current(controller, &turn).is_none().then(|| unreachable(format!("{key} has gone meanwhile")));
    gone().map_or(Ok(()), Err)?;
    let polling = Polling::new(controller, Some(primary.clone()));
    let session = controller.guest.open_nested(Arc::<Polling>::clone(&polling));
    let asked = ask(&*session, &polling, source, primary).await;
    // What was polled for it is forgotten once its run has ended.
    gone().map_or(Ok(()), Err)?;
    asked.map(drop).map_err(|failure| unreachable(failure.message))
}

/// Asks the component for the things of a primary. Returns whether they have changed, and when to ask again.
async fn ask(
    session: &dyn Session,
    polling: &Polling,
    source: &External,
    primary: &Object,
) -> Result<(bool, Option<Duration>), Failure> {
    let answer = session.poll_one(&source.name, primary.json()).await?;
    let things = external::read(&answer.things, &source.spec.id, &mut polling.budget.lock());
    let things = things.map_err(|problem| Failure::other(problem.to_string()))?;
    let holding = || polling.controller.guest.holding();
    let changed = source.take_one(primary.key(), &primary.header().uid, things, holding);
    Ok((changed.map_err(|refused| Failure::other(refused.to_string()))?, answer.again))
}

/// Returns true if the manifest wants a primary polled. A question without an answer counts as answered with yes.
fn is_wanted(controller: &Controller, source: &External, primary: &Object) -> bool {
    let Some(when) = source.spec.each().and_then(|each| each.when.as_ref()) else {
        return true;
    };
    wanted(when, PRIMARY, primary).unwrap_or_else(|problem| {
        let asked = Asked { source: &source.name, faults: &controller.primaries.spec().faults };
        asked.tell(Callback::Poller, "when", primary.key(), &problem);
        true
    })
}

/// Has primaries run whose things have changed, if they are there.
fn tell(controller: &Controller, source: &External, primaries: Vec<ObjectRef>) {
    let there = primaries.into_iter().filter(|primary| controller.primaries.get(primary).is_some());
    let triggers: Vec<_> = there
        .map(|primary| {
            let what = TriggerKind::Related { source: Arc::clone(&source.name), object: primary.clone() };
            Trigger { primary, what }
        })
        .collect();
    if !triggers.is_empty() {
        (controller.tell)(triggers);
    }
}

// === impl Polling ===

impl Polling {
    fn new(controller: &Arc<Controller>, primary: Option<Object>) -> Arc<Self> {
        let budget = match controller.guest.holding() {
            Some(holding) => Budget::borrowing(Box::new(holding)),
            None => Budget::of_run(),
        };
        let (controller, requests) = (Arc::clone(controller), AtomicU32::new(0));
        Arc::new(Self { controller, primary, requests, budget: Mutex::new(budget) })
    }

    fn reader(&self) -> Reader<'_> {
        let Self { controller, primary, budget, .. } = self;
        Reader { controller, primary: primary.as_ref(), budget, waits: true, run: None }
    }
}

/// Returns the error of what only a run can do.
fn misplaced() -> CallError {
    CallError::new(
        CallReason::Misplaced,
        "there is no run: the component is only being asked for things outside of the cluster",
    )
}

fn refused<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T, CallError>> {
    ready(Err(misplaced())).boxed()
}

impl Context for Polling {
    fn info(&self) -> RunInfo {
        RunInfo {
            controller: Arc::clone(&self.controller.spec.name),
            primary: self.primary.as_ref().map(|primary| primary.key().clone()),
            beside: true,
            retry: None,
            primary_deleted: false,
            final_state_unknown: false,
        }
    }

    fn requests(&self) -> &AtomicU32 {
        &self.requests
    }

    fn next_imminent(&self) -> bool {
        false
    }

    fn settings(&self) -> String {
        self.controller.settings.to_string()
    }

    fn find_all(&self, query: Query) -> BoxFuture<'_, Result<Page, CallError>> {
        async move { self.reader().find_all(&query).await }.boxed()
    }

    fn find_one(&self, place: Place) -> BoxFuture<'_, Result<Option<String>, CallError>> {
        async move { self.reader().find_one(&place, |found| found).await }.boxed()
    }

    fn find_named(&self, place: Place, key: ObjectRef) -> BoxFuture<'_, Result<Option<String>, CallError>> {
        async move { self.reader().find_named(&place, &key).await }.boxed()
    }

    fn write(&self, _: WriteRequest) -> BoxFuture<'_, Result<String, CallError>> {
        refused()
    }

    fn remove(&self, _: ObjectTarget, _: Deletion) -> BoxFuture<'_, Result<(), CallError>> {
        refused()
    }

    fn add_finalizer(&self, _: Option<String>) -> BoxFuture<'_, Result<String, CallError>> {
        refused()
    }

    fn remove_finalizer(&self, _: Option<String>) -> BoxFuture<'_, Result<String, CallError>> {
        refused()
    }

    fn compare(&self, _: CompareQuestion) -> Result<MatchResult, CallError> {
        Err(misplaced())
    }

    fn workflow(&self, _: WorkflowCall) -> BoxFuture<'_, Result<WorkflowResult, CallError>> {
        refused()
    }

    fn last_result(&self, _: Option<&str>) -> Option<WorkflowResult> {
        None
    }

    fn memo(&self, lifetime: Lifetime, key: &str) -> Option<String> {
        match (lifetime, &self.primary) {
            (Lifetime::Primary, Some(primary)) => self.controller.verdicts.memo(primary, key),
            (Lifetime::Run | Lifetime::Primary | Lifetime::Plugin, _) => None,
        }
    }

    fn set_memo(&self, lifetime: Lifetime, key: &str, value: Option<String>) -> Result<(), CallError> {
        let Controller { verdicts, guest, limits, .. } = &*self.controller;
        let (Lifetime::Primary, Some(primary)) = (lifetime, &self.primary) else {
            return Err(misplaced());
        };
        let bound = (limits.memo_primary, "limits.memo.primary");
        verdicts.change_memos(primary, |memos: &mut Memos| memos.keep(key, value, bound, || guest.holding()))
    }

    fn expect(&self, _: &str, _: Duration) -> Result<(), CallError> {
        Err(misplaced())
    }

    fn pending_expectation(&self) -> Option<Expectation> {
        None
    }

    fn clear_expectation(&self, _: &str) -> bool {
        false
    }

    fn publish(&self, _: Event) {
        tracing::debug!("a Kubernetes Event is dropped: there is no run that it could be about");
    }
}

//! Answers what a component may ask while it is called beside all runs: it reads, and changes nothing but memos.

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
use crate::guest::{
    CallError, CallReason, CompareQuestion, Context, Event, Expectation, Lifetime, MatchResult, ObjectTarget, Page,
    Place, Query, RunInfo, WorkflowCall, WorkflowResult, WriteRequest,
};
use crate::object::{Object, ObjectRef};

/// Calls beside all runs, as their component sees them.
pub(super) struct Beside {
    pub(super) controller: Arc<Controller>,
    /// The primary; `None` if they are for no one primary.
    primary: Option<Object>,
    /// True if it sees the primary alone.
    alone: bool,
    requests: AtomicU32,
    pub(super) budget: Mutex<Budget>,
}

// === impl Beside ===

impl Beside {
    /// Returns one for calls about a primary, or about none.
    pub(super) fn new(controller: &Arc<Controller>, primary: Option<Object>) -> Arc<Self> {
        let budget = Mutex::new(controller.budget());
        let (controller, requests) = (Arc::clone(controller), AtomicU32::new(0));
        Arc::new(Self { controller, primary, alone: false, requests, budget })
    }

    /// Returns one for a call about a primary that is to follow from that alone.
    pub(super) fn alone(controller: &Arc<Controller>, primary: Object) -> Arc<Self> {
        let budget = Mutex::new(controller.budget());
        let (controller, requests) = (Arc::clone(controller), AtomicU32::new(0));
        Arc::new(Self { controller, primary: Some(primary), alone: true, requests, budget })
    }

    /// Begins another call of the same session: it may cost as much as the first.
    pub(super) fn again(&self) {
        *self.budget.lock() = self.controller.budget();
    }

    fn reader(&self) -> Result<Reader<'_>, CallError> {
        let Self { controller, primary, budget, .. } = self;
        if self.alone {
            return Err(CallError::new(CallReason::Misplaced, "`validate` sees the primary alone"));
        }
        Ok(Reader { controller, primary: primary.as_ref(), budget, waits: true, run: None })
    }
}

/// Returns the error of what only a run can do.
fn misplaced() -> CallError {
    CallError::new(CallReason::Misplaced, "there is no run: the component is only being asked, beside all runs")
}

/// Returns the error of what is about a primary that is not there any more.
fn gone() -> CallError {
    CallError::new(CallReason::Misplaced, "the primary that the component is asked about has gone meanwhile")
}

fn refused<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T, CallError>> {
    ready(Err(misplaced())).boxed()
}

impl Context for Beside {
    fn info(&self) -> RunInfo {
        RunInfo {
            controller: Arc::clone(&self.controller.spec.own_name),
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
        async move { self.reader()?.find_all(&query).await }.boxed()
    }

    fn find_one(&self, place: Place) -> BoxFuture<'_, Result<Option<String>, CallError>> {
        async move { self.reader()?.find_one(&place, Ok).await }.boxed()
    }

    fn find_named(&self, place: Place, key: ObjectRef) -> BoxFuture<'_, Result<Option<String>, CallError>> {
        async move { self.reader()?.find_named(&place, &key).await }.boxed()
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

    fn workflow(&self, _: WorkflowCall, _: Instant) -> BoxFuture<'_, Result<WorkflowResult, CallError>> {
        refused()
    }

    fn last_result(&self, _: Option<&str>) -> Option<WorkflowResult> {
        None
    }

    fn register(&self, _: String, _: String, _: Instant) -> BoxFuture<'_, Result<bool, CallError>> {
        refused()
    }

    fn deregister(&self, _: &str) -> Result<(), CallError> {
        Err(misplaced())
    }

    fn remember(&self, _: &str, _: String, _: Option<String>) -> Result<(), CallError> {
        Err(misplaced())
    }

    fn forget(&self, _: &str, _: &str) -> Result<(), CallError> {
        Err(misplaced())
    }

    fn memo(&self, lifetime: Lifetime, key: &str) -> Option<String> {
        match (lifetime, &self.primary) {
            (Lifetime::Primary, Some(primary)) if !self.alone => self.controller.verdicts.memo(primary, key),
            (Lifetime::Run | Lifetime::Primary | Lifetime::Plugin, _) => None,
        }
    }

    fn set_memo(&self, lifetime: Lifetime, key: &str, value: Option<String>) -> Result<(), CallError> {
        let Controller { verdicts, guest, limits, .. } = &*self.controller;
        let (Lifetime::Primary, Some(primary), false) = (lifetime, &self.primary, self.alone) else {
            return Err(misplaced());
        };
        let there = |now: &Object| now.header().uid == primary.header().uid;
        if !self.controller.primaries.get(primary.key()).is_some_and(|now| there(&now)) {
            return Err(gone());
        }
        let bound = (limits.memo_primary, "limits.memo.primary");
        verdicts.change_memos(primary, |memos: &mut Memos| memos.keep(key, value, bound, || guest.lasting()))
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

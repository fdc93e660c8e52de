//! What a component asks its run for, within the limits of its plugin.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use capstan_core::cluster::Deletion;
use capstan_core::guest::{
    CallError, CallReason, Context, Event, Function, Lifetime, ObjectTarget, Page, Query, WorkflowCall, WorkflowResult,
    WriteRequest,
};
use tokio::time::Instant;
use tracing::warn;

use super::Facts;
use super::ending::early;
use super::instance::called;

/// A component in a call. Cheap to make.
pub(super) struct Asking {
    /// The plugin.
    pub(super) facts: Arc<Facts>,
    /// The run that the call belongs to; none while a plugin is loaded.
    pub(super) run: Option<Arc<dyn Context>>,
    /// Whose function is called; none if none is.
    pub(super) call: Option<Function>,
}

impl Asking {
    /// Returns the run of the call in progress.
    pub(super) fn run(&self) -> Result<&Arc<dyn Context>, CallError> {
        let outside = || CallError::new(CallReason::Misplaced, "there is no run: the component is only being loaded");
        self.run.as_ref().ok_or_else(outside)
    }

    /// Returns the run, of which a request to the API server is counted.
    fn counted(&self) -> Result<&Arc<dyn Context>, CallError> {
        let limit = self.facts.limits.requests;
        let run = self.run()?;
        let counted =
            run.requests().fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < limit).then_some(n + 1));
        let message = || format!("this run has made its {limit} requests already (limits.requests)");
        match counted {
            Ok(_) => Ok(run),
            Err(_) => Err(CallError::new(CallReason::Exhausted, message())),
        }
    }

    /// Tells whoever runs the daemon if the component asks for what its manifest does not permit, or for more than its limits: it need not
    /// say so itself.
    fn told<T>(&self, answer: Result<T, CallError>) -> Result<T, CallError> {
        let Facts { name, network, .. } = &*self.facts;
        answer.inspect_err(|error| {
            let sorts = [(CallReason::Denied, "denied"), (CallReason::Exhausted, "limited")];
            if let Some((_, result)) = sorts.into_iter().find(|(reason, _)| *reason == error.reason) {
                network.refused(result);
                warn!(plugin = %name, call = called(self.call), %error, "the component asks for more than it may");
            }
        })
    }

    pub(super) async fn find_all(&self, mut query: Query) -> Result<Page, CallError> {
        let most = self.facts.limits.page;
        query.limit = Some(query.limit.map_or(most, |limit| limit.min(most)));
        self.told(self.run()?.find_all(query).await)
    }

    pub(super) async fn write(&self, request: WriteRequest) -> Result<String, CallError> {
        let writing = async { self.counted()?.write(request).await };
        self.told(writing.await)
    }

    pub(super) async fn remove(&self, target: ObjectTarget, deletion: Deletion) -> Result<(), CallError> {
        let removing = async { self.counted()?.remove(target, deletion).await };
        self.told(removing.await)
    }

    pub(super) async fn add_finalizer(&self, finalizer: Option<String>) -> Result<String, CallError> {
        let adding = async { self.counted()?.add_finalizer(finalizer).await };
        self.told(adding.await)
    }

    pub(super) async fn remove_finalizer(&self, finalizer: Option<String>) -> Result<String, CallError> {
        let removing = async { self.counted()?.remove_finalizer(finalizer).await };
        self.told(removing.await)
    }

    /// Runs a workflow or a dependent for a call that has to be over then.
    pub(super) async fn workflow(&self, call: WorkflowCall, deadline: Instant) -> Result<WorkflowResult, CallError> {
        // CX-2
        if !matches!(self.call, Some(Function::Reconcile | Function::Cleanup)) {
            let message = format!("a workflow runs in `reconcile` and `cleanup`, not in `{}`", called(self.call));
            return Err(CallError::new(CallReason::Misplaced, message));
        }
        self.told(self.counted())?.workflow(call, deadline).await
    }

    /// Registers a source within the time of the call, of which some is left to say why not.
    pub(super) async fn register(
        &self,
        name: String,
        declaration: String,
        deadline: Instant,
    ) -> Result<bool, CallError> {
        self.told(self.run()?.register(name, declaration, early(deadline)).await)
    }

    /// Whether the call depends on nothing but what it is given (`VA-1`): its answer is not asked for again when a memo changes.
    fn has_no_memos(&self) -> bool {
        matches!(self.call, None | Some(Function::Validate | Function::Describe))
    }

    pub(super) fn memo(&self, lifetime: Lifetime, key: &str) -> Option<String> {
        match (lifetime, &self.facts.memo) {
            (Lifetime::Plugin, Some(_)) if self.has_no_memos() => None,
            (Lifetime::Plugin, Some(memo)) => memo.lock().get(key).map(str::to_owned),
            (Lifetime::Run | Lifetime::Primary | Lifetime::Plugin, _) => self.run.as_ref()?.memo(lifetime, key),
        }
    }

    pub(super) fn set_memo(&self, lifetime: Lifetime, key: &str, value: Option<String>) -> Result<(), CallError> {
        let Facts { memo, limits, room, unit, .. } = &*self.facts;
        match (lifetime, memo) {
            (Lifetime::Plugin, Some(_)) if self.has_no_memos() => {
                let message = format!("there are no memos in `{}`", called(self.call));
                Err(CallError::new(CallReason::Misplaced, message))
            }
            (Lifetime::Plugin, Some(memo)) => {
                let holding = || Some(room.holding(unit).lasting());
                let bound = (limits.memo_plugin, "limits.memo.plugin");
                memo.lock().keep(key, value, bound, holding)
            }
            (Lifetime::Run | Lifetime::Primary | Lifetime::Plugin, _) => self.run()?.set_memo(lifetime, key, value),
        }
    }

    pub(super) fn publish(&self, event: Event) {
        if self.run.is_none() {
            return;
        }
        // An Event is a request, too: one more than the run may make is dropped.
        if let Ok(run) = self.told(self.counted()) {
            run.publish(event);
        }
    }
}

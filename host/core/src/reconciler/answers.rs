//! Answers the calls that a guest may make during a run: caches, writes, workflows, memos (CX rules).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::callbacks::Callbacks;
use super::controller::Controller;
use super::managed;
use super::memos::Memos;
use super::naming;
use super::polling;
use super::reads::Reader;
use super::run::Run;
use super::{registering, remembering};
use crate::cluster::Deletion;
use crate::guest::{
    CallError, CallReason, CompareQuestion, Context, Event, Expectation, Lifetime, MatchResult, ObjectTarget, Page,
    Place, Query, RunInfo, Selection, WorkflowCall, WorkflowResult, WriteRequest,
};
use crate::manifest::Permission;
use crate::object::{Object, ObjectRef};
use crate::source::{Doubt, Source};
use crate::writes::{self, Recalls};

impl Context for Run {
    fn info(&self) -> RunInfo {
        self.info.clone()
    }

    fn requests(&self) -> &AtomicU32 {
        &self.requests
    }

    fn until(&self) -> Option<Instant> {
        *self.until.lock()
    }

    fn next_imminent(&self) -> bool {
        self.controller.queue.next_imminent(self.primary.key())
    }

    fn settings(&self) -> String {
        self.controller.settings.to_string()
    }

    fn find_all(&self, query: Query) -> BoxFuture<'_, Result<Page, CallError>> {
        async move {
            self.fetch(&query.place, &query.selection).await?;
            self.reader().find_all(&query).await
        }
        .boxed()
    }

    fn find_one(&self, place: Place) -> BoxFuture<'_, Result<Option<String>, CallError>> {
        async move {
            self.fetch(&place, &Selection::Related).await?;
            self.reader().find_one(&place, |found| managed::of_dependent(self, &place, found)).await
        }
        .boxed()
    }

    fn find_named(&self, place: Place, key: ObjectRef) -> BoxFuture<'_, Result<Option<String>, CallError>> {
        async move {
            self.fetch(&place, &Selection::Related).await?;
            self.reader().find_named(&place, &key).await
        }
        .boxed()
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<String, CallError>> {
        async move { writes::write(&self.write_context(), &self.primary, request).await }.boxed()
    }

    fn remove(&self, target: ObjectTarget, deletion: Deletion) -> BoxFuture<'_, Result<(), CallError>> {
        async move { writes::remove(&self.write_context(), &self.primary, target, deletion).await }.boxed()
    }

    fn add_finalizer(&self, finalizer: Option<String>) -> BoxFuture<'_, Result<String, CallError>> {
        async move {
            self.may_finalize(finalizer.as_deref())?;
            let finalizer = finalizer.unwrap_or_else(|| self.controller.finalizer.to_string());
            let adding = self.controller.add_finalizer(&self.primary, &finalizer);
            let done = self.asked(adding).await;
            done.map(|object| object.json().to_owned()).map_err(writes::refused)
        }
        .boxed()
    }

    fn remove_finalizer(&self, finalizer: Option<String>) -> BoxFuture<'_, Result<String, CallError>> {
        async move {
            self.may_finalize(finalizer.as_deref())?;
            let finalizer = finalizer.unwrap_or_else(|| self.controller.finalizer.to_string());
            let names = [&*finalizer];
            let removing = self.controller.remove_finalizers(&self.primary, &names);
            let done = self.asked(removing).await;
            done.map(|left| left.unwrap_or_else(|| self.primary.clone()).json().to_owned()).map_err(writes::refused)
        }
        .boxed()
    }

    fn compare(&self, question: CompareQuestion) -> Result<MatchResult, CallError> {
        writes::compare(&self.write_context(), &self.primary, &question)
    }

    fn workflow(&self, call: WorkflowCall, by: Instant) -> BoxFuture<'_, Result<WorkflowResult, CallError>> {
        self.within(by, managed::by_hand(self, call)).boxed()
    }

    fn last_result(&self, name: Option<&str>) -> Option<WorkflowResult> {
        self.kept.lock().results.get(&name.map(str::to_owned)).cloned()
    }

    fn register(&self, name: String, declaration: String, by: Instant) -> BoxFuture<'_, Result<bool, CallError>> {
        registering::register(self, name, declaration, by).boxed()
    }

    fn deregister(&self, name: &str) -> Result<(), CallError> {
        registering::deregister(&self.controller, name)
    }

    fn remember(&self, source: &str, actual: String, replaced: Option<String>) -> Result<(), CallError> {
        remembering::remember(self, source, actual, replaced)
    }

    fn forget(&self, source: &str, id: &str) -> Result<(), CallError> {
        remembering::forget(self, source, id)
    }

    fn memo(&self, lifetime: Lifetime, key: &str) -> Option<String> {
        match lifetime {
            Lifetime::Run => self.kept.lock().memos.get(key).map(str::to_owned),
            Lifetime::Primary => self.controller.verdicts.memo(&self.primary, key),
            // The plugin's memos are kept with the plugin, and never asked for here.
            Lifetime::Plugin => None,
        }
    }

    fn set_memo(&self, lifetime: Lifetime, key: &str, value: Option<String>) -> Result<(), CallError> {
        let Controller { verdicts, guest, limits, .. } = &*self.controller;
        let keep = |memos: &mut Memos, bound| memos.keep(key, value, bound, || guest.lasting());
        match lifetime {
            Lifetime::Run => {
                let bound = (limits.memo_run, "limits.memo.run");
                keep(&mut self.kept.lock().memos, bound)
            }
            Lifetime::Primary => {
                verdicts.change_memos(&self.primary, |memos| keep(memos, (limits.memo_primary, "limits.memo.primary")))
            }
            Lifetime::Plugin => Err(CallError::new(CallReason::Misplaced, "the plugin keeps its own memos")),
        }
    }

    fn expect(&self, name: &str, timeout: Duration) -> Result<(), CallError> {
        let now = Instant::now();
        self.controller.verdicts.change_expected(&self.primary, |expected| expected.expect(name, timeout, now))
    }

    fn pending_expectation(&self) -> Option<Expectation> {
        self.controller.verdicts.expected(&self.primary, Instant::now())
    }

    fn clear_expectation(&self, name: &str) -> bool {
        self.controller.verdicts.change_expected(&self.primary, |expected| expected.clear(name))
    }

    fn publish(&self, event: Event) {
        let (event, name) = naming::named(self, event);
        (self.controller.events)(&self.primary, event, name);
    }
}

impl Recalls for Run {
    fn recall<'a>(
        &'a self,
        source: &'a Source,
        key: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<Option<Object>, CallError>> {
        async move {
            self.count_request()?;
            self.recalled.fetch_add(1, Ordering::Relaxed);
            let looking = self.controller.cluster_of(source).look(&source.spec().gvk, key);
            let found = self.asked(looking).await.map_err(writes::refused)?;
            Ok(found.map(|found| source.recall(found)))
        }
        .boxed()
    }

    fn doubts(&self, doubt: &Doubt) {
        Run::doubts(self, doubt);
    }
}

impl Run {
    /// Returns what reads the caches for this run.
    fn reader(&self) -> Reader<'_> {
        let Self { controller, primary, budget, .. } = self;
        Reader { controller, primary: Some(primary), budget, waits: false, run: Some(self) }
    }

    /// Has the component asked what of a source belongs to the primary, where that is for it to say and not known yet.
    pub(super) async fn heed(&self, source: &Source) -> Result<(), Doubt> {
        source.heed(self.primary.key(), &Callbacks::nested(&self.controller)).await
    }

    /// Counts a request that this run makes for its component.
    pub(super) fn count_request(&self) -> Result<(), CallError> {
        let limit = self.controller.limits.requests;
        let more = |n| (n < limit).then_some(n + 1);
        let counted = self.requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let message = || format!("this run has made its {limit} requests already (limits.requests)");
        counted.map(drop).map_err(|_| CallError::new(CallReason::Exhausted, message()))
    }

    /// Has the things of the primary read, if a source outside of the cluster is asked for them and has never read them (`PP-2`).
    async fn fetch(&self, place: &Place, selection: &Selection) -> Result<(), CallError> {
        let external = self.reader().external(place).filter(|_| *selection == Selection::Related);
        match external {
            // What is gone is not polled any more.
            Some(external) if !self.info.primary_deleted => {
                polling::first(&self.controller, external, &self.primary).await
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Checks that the component may change a finalizer of the primary: the controller's own, or another one if the
    /// component may patch and delete the primary.
    fn may_finalize(&self, finalizer: Option<&str>) -> Result<(), CallError> {
        let controller = &self.controller;
        let finalizer = finalizer.unwrap_or(&controller.finalizer);
        if controller.own_finalizer() == Some(finalizer) {
            return Ok(());
        }
        let (gvk, key) = (&controller.spec.primary, self.primary.key());
        for verb in [Permission::Patch, Permission::Delete] {
            controller.permissions.permit(verb, gvk, key).map_err(|denied| CallError {
                message: format!(
                    "the finalizer {finalizer} is not the controller's own, which is one that it uses, or names as `finalizer` with `triggerOnAllEvents`; another one takes `patch` and `delete`: {}",
                    denied.message
                ),
                ..denied
            })?;
        }
        Ok(())
    }
}

//! A loaded component as the daemon's [`Guest`]: who may call when, and in which instance.
//!
//! [`engine`] is made once, [`Plugin::load`] once per version of a component, a session once per execution.

pub mod engine;
pub mod loader;

mod bindings;
mod code;
mod convert;
mod imports;
mod instance;
mod output;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capstan_core::guest::{
    ConditionResult, DeleteControl, ErrorControl, Exports, Failure, FailureInfo, Guest,
    MatchQuestion, MatchResult, Run, Session, UpdateControl,
};
use capstan_core::manifest::{Capabilities, Limits};
use capstan_core::object::Gvk;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{MutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use tracing::warn;
use wasmtime::component::InstancePre;

pub use bindings::CONTRACT;
use engine::{Busy, Engine};
use instance::{Answer, Call, Indices, Instance, State};
use output::Output;

/// A loaded version of a component. Cheap to clone. Its memory goes with the last session.
#[derive(Clone)]
pub struct Plugin {
    inner: Arc<Loaded>,
}

struct Loaded {
    engine: Engine,
    facts: Arc<Facts>,
    pre: InstancePre<State>,
    exports: Arc<Indices>,
    /// One permit per run at a time (`limits.concurrency`); stands before the pool, whose exhaustion is an error.
    permits: Arc<Semaphore>,
}

/// What the host functions know of a plugin.
pub(crate) struct Facts {
    /// Its name in the manifest.
    name: Arc<str>,
    /// What it may use up.
    limits: Limits,
    /// What it may ask for.
    capabilities: Capabilities,
    /// Its configuration, as JSON.
    config: String,
    /// What each controller that uses it declares.
    controllers: BTreeMap<Arc<str>, Declared>,
    /// Values kept as long as this version is loaded.
    memo: Mutex<Memo>,
}

/// What a controller declares, as far as permissions go.
struct Declared {
    /// The kind of its primaries.
    primary: Gvk,
    /// Its finalizer, if it is named.
    finalizer: Option<Arc<str>>,
    /// The kinds that it watches: primaries, sources, dependents.
    watched: BTreeSet<Gvk>,
}

/// Values under keys, bounded in bytes.
#[derive(Debug, Default)]
struct Memo {
    values: BTreeMap<String, String>,
    /// Bytes of all keys and values.
    size: usize,
}

/// The calls of one execution.
struct Execution {
    plugin: Arc<Loaded>,
    run: Arc<dyn Run>,
    nesting: Nesting,
    output: Arc<Mutex<Output>>,
    /// Calls take turns.
    seat: tokio::sync::Mutex<Seat>,
}

/// Whether an execution has a permit of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nesting {
    /// It takes one at its first call, and keeps it to its end.
    Own,
    /// It is part of a call that has one (rule 8 of the contract).
    Callers,
}

/// What an execution holds between its calls.
#[derive(Default)]
struct Seat {
    permit: Option<OwnedSemaphorePermit>,
    instance: Option<Instance>,
}

/// A call whose turn it is. Dropped without [`Turn::end`], the instance is gone.
struct Turn<'a> {
    execution: &'a Execution,
    seat: MutexGuard<'a, Seat>,
    instance: Option<Instance>,
    call: Call,
    deadline: Instant,
    _busy: Busy<'a>,
}

// === impl Plugin ===

impl Plugin {
    /// Returns its name in the manifest.
    pub fn name(&self) -> &Arc<str> {
        &self.inner.facts.name
    }

    /// Returns how many runs are using it now.
    pub fn busy(&self) -> usize {
        self.inner
            .facts
            .limits
            .concurrency
            .saturating_sub(self.inner.permits.available_permits())
    }

    fn session(&self, run: Arc<dyn Run>, nesting: Nesting) -> Box<dyn Session> {
        let facts = &self.inner.facts;
        let output = Output::new(Arc::clone(&facts.name), Some(&run.info()), facts.limits.log);
        Box::new(Execution {
            plugin: Arc::clone(&self.inner),
            run,
            nesting,
            output: Arc::new(Mutex::new(output)),
            seat: tokio::sync::Mutex::default(),
        })
    }
}

impl Guest for Plugin {
    fn open(&self, run: Arc<dyn Run>) -> Box<dyn Session> {
        self.session(run, Nesting::Own)
    }

    fn open_nested(&self, run: Arc<dyn Run>) -> Box<dyn Session> {
        self.session(run, Nesting::Callers)
    }

    fn exports(&self) -> Exports {
        self.inner.exports.exports()
    }
}

// === impl Execution ===

impl Execution {
    /// Waits for its turn and, if need be, for a permit; from then on the time counts.
    async fn turn(&self, call: Call) -> Result<Turn<'_>, Failure> {
        let Loaded {
            engine,
            permits,
            facts,
            ..
        } = &*self.plugin;
        let mut seat = self.seat.lock().await;
        if self.nesting == Nesting::Own && seat.permit.is_none() {
            let permit = Arc::clone(permits).acquire_owned().await;
            seat.permit = Some(permit.map_err(|_| Failure::other("the plugin is being unloaded"))?);
        }
        self.output.lock().begin(call.name());
        let instance = seat.instance.take();
        let deadline = Instant::now() + facts.limits.timeout;
        Ok(Turn {
            execution: self,
            seat,
            instance,
            call,
            deadline,
            _busy: engine.enter(),
        })
    }

    async fn reconcile(&self, primary: &str) -> Result<UpdateControl, Failure> {
        let mut turn = self.turn(Call::Reconcile).await?;
        let answer = timeout_at(turn.deadline, async {
            turn.instance().await?.reconcile(primary).await
        })
        .await;
        turn.end(answer)
    }

    async fn cleanup(&self, primary: &str) -> Result<DeleteControl, Failure> {
        let mut turn = self.turn(Call::Cleanup).await?;
        let answer = timeout_at(turn.deadline, async {
            turn.instance().await?.cleanup(primary).await
        })
        .await;
        turn.end(answer)
    }

    async fn handle_error(
        &self,
        primary: &str,
        failed: &FailureInfo,
    ) -> Result<ErrorControl, Failure> {
        let mut turn = self.turn(Call::HandleError).await?;
        let answer = timeout_at(turn.deadline, async {
            turn.instance().await?.handle_error(primary, failed).await
        });
        let answer = answer.await;
        turn.end(answer)
    }

    async fn desired(&self, name: &str, primary: &str) -> Result<String, Failure> {
        let mut turn = self.turn(Call::Desired).await?;
        let answer = timeout_at(turn.deadline, async {
            turn.instance().await?.desired(name, primary).await
        })
        .await;
        turn.end(answer)
    }

    async fn matches(&self, question: MatchQuestion<'_>) -> Result<MatchResult, Failure> {
        let mut turn = self.turn(Call::Match).await?;
        let answer = timeout_at(turn.deadline, async {
            turn.instance().await?.matches(question).await
        })
        .await;
        turn.end(answer)
    }

    async fn is_met(
        &self,
        name: &str,
        dependent: &str,
        primary: &str,
    ) -> Result<ConditionResult, Failure> {
        let mut turn = self.turn(Call::IsMet).await?;
        let answer = timeout_at(turn.deadline, async {
            turn.instance()
                .await?
                .is_met(name, dependent, primary)
                .await
        });
        let answer = answer.await;
        turn.end(answer)
    }
}

impl Session for Execution {
    fn reconcile<'a>(&'a self, primary: &'a str) -> BoxFuture<'a, Result<UpdateControl, Failure>> {
        Box::pin(self.reconcile(primary))
    }

    fn cleanup<'a>(&'a self, primary: &'a str) -> BoxFuture<'a, Result<DeleteControl, Failure>> {
        Box::pin(self.cleanup(primary))
    }

    fn handle_error<'a>(
        &'a self,
        primary: &'a str,
        failed: &'a FailureInfo,
    ) -> BoxFuture<'a, Result<ErrorControl, Failure>> {
        Box::pin(self.handle_error(primary, failed))
    }

    fn desired<'a>(
        &'a self,
        name: &'a str,
        primary: &'a str,
    ) -> BoxFuture<'a, Result<String, Failure>> {
        Box::pin(self.desired(name, primary))
    }

    fn matches<'a>(
        &'a self,
        question: MatchQuestion<'a>,
    ) -> BoxFuture<'a, Result<MatchResult, Failure>> {
        Box::pin(self.matches(question))
    }

    fn is_met<'a>(
        &'a self,
        name: &'a str,
        dependent: &'a str,
        primary: &'a str,
    ) -> BoxFuture<'a, Result<ConditionResult, Failure>> {
        Box::pin(self.is_met(name, dependent, primary))
    }
}

// === impl Turn ===

impl Turn<'_> {
    /// Returns the execution's instance, ready for the call; a new one if there is none.
    async fn instance(&mut self) -> wasmtime::Result<&mut Instance> {
        let Execution {
            plugin,
            run,
            output,
            ..
        } = self.execution;
        let instance = if let Some(instance) = self.instance.take() {
            instance
        } else {
            let (facts, run) = (Arc::clone(&plugin.facts), Some(Arc::clone(run)));
            let state = State::new(facts, run, Arc::clone(output));
            let exports = Arc::clone(&plugin.exports);
            Instance::start(&plugin.pre, exports, state, self.deadline).await?
        };
        let instance = self.instance.insert(instance);
        instance.begin(self.call, self.deadline);
        Ok(instance)
    }

    /// Keeps the instance if the call gave an answer, and says why if it did not.
    fn end<T>(mut self, answer: Result<Answer<T>, Elapsed>) -> Result<T, Failure> {
        let Execution { plugin, output, .. } = self.execution;
        let mut output = output.lock();
        output.finish();
        let limits = &plugin.facts.limits;
        match answer {
            Ok(Ok(answer)) => {
                self.seat.instance = self.instance.take();
                answer.map_err(|message| Failure {
                    cause: capstan_core::guest::Cause::Returned,
                    message,
                })
            }
            Ok(Err(error)) => {
                let failure = instance::failure(&error, limits, output.last_words());
                let (plugin, call) = (&plugin.facts.name, self.call.name());
                warn!(%plugin, call, error = %failure, stack = instance::stack(&error), "the instance is thrown away");
                Err(failure)
            }
            Err(Elapsed { .. }) => Err(instance::overdue(limits.timeout)),
        }
    }
}

// === impl Memo ===

impl Memo {
    fn get(&self, key: &str) -> Option<String> {
        self.values.get(key).cloned()
    }

    /// Sets or removes a value.
    ///
    /// # Errors
    /// The size that it would have, if that is beyond `limit`; then nothing has changed.
    fn set(&mut self, key: String, value: Option<String>, limit: usize) -> Result<(), usize> {
        let old = self.values.get(&key).map_or(0, |old| key.len() + old.len());
        let new = value.as_ref().map_or(0, |value| key.len() + value.len());
        let size = self.size - old + new;
        if size > limit && new > old {
            return Err(size);
        }
        self.size = size;
        match value {
            Some(value) => self.values.insert(key, value),
            None => self.values.remove(&key),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memo_is_bounded_by_all_its_keys_and_values() {
        let mut memo = Memo::default();
        let value = |text: &str| Some(text.to_owned());
        assert_eq!(memo.set("a".to_owned(), value("1234"), 10), Ok(()));
        assert_eq!(memo.set("b".to_owned(), value("12345"), 10), Err(11));
        assert_eq!(
            (memo.get("a"), memo.get("b"), memo.size),
            (value("1234"), None, 5)
        );
        assert_eq!(memo.set("a".to_owned(), value("123456789"), 10), Ok(()));
        assert_eq!(memo.set("a".to_owned(), None, 10), Ok(()));
        assert_eq!(memo.set("a".to_owned(), None, 10), Ok(()));
        assert_eq!((memo.get("a"), memo.size), (None, 0));
    }
}

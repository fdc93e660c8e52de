//! A loaded component as the daemon's [`Guest`]: who may call when, and in which instance.
//!
//! [`engine`] is made once, [`Plugin::load`] once per version of a component, a session once per execution. What a session
//! leaves goes to the `shelf`, if the manifest wants instances warm.

pub mod bounds;
pub mod engine;
pub mod loader;

mod bindings;
mod code;
mod compiler;
mod convert;
mod imports;
mod instance;
mod output;
mod room;
mod shelf;
mod usage;

use std::fmt;
use std::sync::{Arc, Weak};

use capstan_core::bucket::Bucket;
use capstan_core::guest::{
    Cause, ConditionResult, DeleteControl, ErrorControl, Exports, Failure, FailureInfo, Guest,
    MatchQuestion, MatchResult, Run, Session, UpdateControl,
};
use capstan_core::manifest::Limits;
use capstan_core::reconciler::memos::Memos;
use capstan_core::room::{Holding, Room};
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
use loader::Compiled;
use output::Output;
use shelf::Shelf;
pub use usage::Usage;
use usage::{Counters, Ended};

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
    /// Where instances wait to be used again; none if each execution gets a fresh one. An instance is started only if none
    /// waits, so there are never more of them than could be in use at once, which is what the pool has room for.
    shelf: Option<Shelf<Instance>>,
    counters: Arc<Counters>,
    /// SHA-256 of the component, in hexadecimal.
    digest: String,
    compiled: Compiled,
    /// Keeps its code in the cache.
    _hold: code::Hold,
}

/// A loaded version of a component that is kept by its runs alone; by default none.
#[derive(Clone, Debug, Default)]
pub struct WeakPlugin(Weak<Loaded>);

impl WeakPlugin {
    /// Returns it; none if it is gone.
    pub fn upgrade(&self) -> Option<Plugin> {
        Some(Plugin {
            inner: self.0.upgrade()?,
        })
    }
}

/// What the host functions know of a plugin.
pub(crate) struct Facts {
    /// Its name in the manifest.
    name: Arc<str>,
    /// The same after that of the operator: no other plugin has it.
    unit: Arc<str>,
    /// What it may use up.
    limits: Limits,
    /// Its configuration, as JSON.
    config: String,
    /// What it may still log.
    log: Arc<Mutex<Bucket>>,
    /// Values kept as long as this version is loaded.
    memo: Mutex<Memos>,
    /// The memory that all plugins share.
    room: Room,
}

/// The calls of one execution.
struct Execution {
    plugin: Arc<Loaded>,
    run: Arc<dyn Run>,
    nesting: Nesting,
    /// Calls take turns.
    seat: tokio::sync::Mutex<Seat>,
    _counted: usage::Execution,
}

/// Whether an execution has a permit of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nesting {
    /// It takes one at its first call, and keeps it to its end.
    Own,
    /// It is part of a call that has one (rule 8 of the contract).
    Callers,
}

/// What an execution holds between its calls. The instance goes before the permit that it was made on.
#[derive(Default)]
struct Seat {
    instance: Option<Instance>,
    permit: Option<OwnedSemaphorePermit>,
}

/// A call whose turn it is. Unless [`Turn::end`] has seen an answer, the instance goes with it.
struct Turn<'a> {
    execution: &'a Execution,
    /// None if it has none yet, or has given it back.
    instance: Option<Instance>,
    seat: MutexGuard<'a, Seat>,
    /// Where the instance prints to, as soon as there is one.
    output: Option<Arc<Mutex<Output>>>,
    call: Call,
    begun: Instant,
    ended: Ended,
    _busy: Busy<'a>,
}

// === impl Facts ===

impl Facts {
    /// Returns where a new instance prints to.
    fn output(&self) -> Output {
        let Self {
            name, limits, log, ..
        } = self;
        Output::new(Arc::clone(name), limits.log, Arc::clone(log))
    }
}

// === impl Plugin ===

impl fmt::Debug for Plugin {
    /// Writes the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plugin({})", self.name())
    }
}

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

    /// Returns what finds it again as long as it is in use.
    pub fn downgrade(&self) -> WeakPlugin {
        WeakPlugin(Arc::downgrade(&self.inner))
    }

    /// Waits until no run is using it.
    pub async fn drained(&self) {
        let Loaded { permits, facts, .. } = &*self.inner;
        let all = u32::try_from(facts.limits.concurrency).unwrap_or(u32::MAX);
        // An error would say that nobody can begin any more.
        drop(permits.acquire_many(all.max(1)).await);
    }

    /// Returns the SHA-256 of the component, in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.inner.digest
    }

    /// Returns where its machine code came from, and how long that took.
    pub fn compiled(&self) -> Compiled {
        self.inner.compiled
    }

    /// Returns what it has done since it was loaded.
    pub fn usage(&self) -> Usage {
        let Loaded {
            shelf, counters, ..
        } = &*self.inner;
        counters.usage(shelf.as_ref().map_or(0, Shelf::len))
    }

    /// Drops the instances that wait to be used again, and keeps none from now on: for a version that has been replaced, whose
    /// last runs are still under way. Executions work as before.
    pub fn retire(&self) {
        if let Some(shelf) = &self.inner.shelf {
            shelf.close();
        }
    }

    fn session(&self, run: Arc<dyn Run>, nesting: Nesting) -> Box<dyn Session> {
        Box::new(Execution {
            plugin: Arc::clone(&self.inner),
            run,
            nesting,
            seat: tokio::sync::Mutex::default(),
            _counted: self.inner.counters.execution(),
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

    fn holding(&self) -> Option<Holding> {
        let Facts { room, unit, .. } = &*self.inner.facts;
        Some(room.holding(unit))
    }
}

// === impl Execution ===

impl Execution {
    /// Waits for its turn and, if need be, for a permit; from then on the time counts.
    async fn turn(&self, call: Call) -> Result<Turn<'_>, Failure> {
        let Loaded {
            engine, permits, ..
        } = &*self.plugin;
        let mut seat = self.seat.lock().await;
        if self.nesting == Nesting::Own && seat.permit.is_none() {
            let permit = Arc::clone(permits).acquire_owned().await;
            seat.permit = Some(permit.map_err(|_| Failure::other("the plugin is being unloaded"))?);
        }
        Ok(Turn {
            execution: self,
            instance: seat.instance.take(),
            seat,
            output: None,
            call,
            begun: Instant::now(),
            ended: Ended::Abandoned,
            _busy: engine.enter(),
        })
    }

    async fn reconcile(&self, primary: &str) -> Result<UpdateControl, Failure> {
        let mut turn = self.turn(Call::Reconcile).await?;
        let answer = timeout_at(turn.deadline(), async {
            turn.instance().await?.reconcile(primary).await
        })
        .await;
        turn.end(answer)
    }

    async fn cleanup(&self, primary: &str) -> Result<DeleteControl, Failure> {
        let mut turn = self.turn(Call::Cleanup).await?;
        let answer = timeout_at(turn.deadline(), async {
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
        let answer = timeout_at(turn.deadline(), async {
            turn.instance().await?.handle_error(primary, failed).await
        });
        let answer = answer.await;
        turn.end(answer)
    }

    async fn desired(&self, name: &str, primary: &str) -> Result<String, Failure> {
        let mut turn = self.turn(Call::Desired).await?;
        let answer = timeout_at(turn.deadline(), async {
            turn.instance().await?.desired(name, primary).await
        })
        .await;
        turn.end(answer)
    }

    async fn matches(&self, question: MatchQuestion<'_>) -> Result<MatchResult, Failure> {
        let mut turn = self.turn(Call::Match).await?;
        let answer = timeout_at(turn.deadline(), async {
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
        let answer = timeout_at(turn.deadline(), async {
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

impl Drop for Execution {
    /// Puts its instance where the next execution finds it, before the permit goes to somebody who looks there.
    fn drop(&mut self) {
        let instance = self.seat.get_mut().instance.take();
        if let (Some(mut instance), Some(shelf)) = (instance, &self.plugin.shelf) {
            let wear = instance.release();
            shelf.put(instance, wear);
        }
    }
}

// === impl Turn ===

impl Turn<'_> {
    fn deadline(&self) -> Instant {
        self.begun + self.execution.plugin.facts.limits.timeout
    }

    /// Returns the execution's instance, ready for the call. If it has none, it gets a warm one, or else a new one.
    async fn instance(&mut self) -> wasmtime::Result<&mut Instance> {
        let (deadline, call) = (self.deadline(), self.call);
        let instance = match self.instance.take().or_else(|| self.warm()) {
            Some(instance) => {
                let output = self.output.insert(Arc::clone(instance.output()));
                output.lock().begin(call.name());
                instance
            }
            None => self.start().await?,
        };
        let instance = self.instance.insert(instance);
        instance.begin(call, deadline);
        Ok(instance)
    }

    /// Takes an instance that another execution has left.
    fn warm(&self) -> Option<Instance> {
        let Execution { plugin, run, .. } = self.execution;
        let mut instance = plugin.shelf.as_ref()?.take()?;
        instance.assign(Arc::clone(run));
        Some(instance)
    }

    async fn start(&mut self) -> wasmtime::Result<Instance> {
        let Execution { plugin, run, .. } = self.execution;
        let Loaded { facts, exports, .. } = &**plugin;
        let mut output = facts.output();
        output.assign(&run.info());
        output.begin(self.call.name());
        let output = self.output.insert(Arc::new(Mutex::new(output)));
        let state = State::new(Arc::clone(facts), Some(Arc::clone(run)), Arc::clone(output));
        let (deadline, exports) = (self.deadline(), Arc::clone(exports));
        Instance::start(&plugin.pre, exports, state, deadline, &plugin.counters).await
    }

    /// Keeps the instance if the call gave an answer, and says why if it did not.
    fn end<T>(mut self, answer: Result<Answer<T>, Elapsed>) -> Result<T, Failure> {
        let result = match answer {
            Ok(Ok(answer)) => answer.map_err(|message| self.returned(&message)),
            Ok(Err(error)) => Err(self.broken(&error)),
            Err(Elapsed { .. }) => Err(instance::overdue(
                self.execution.plugin.facts.limits.timeout,
            )),
        };
        self.ended = match &result {
            Ok(_) => Ended::Well,
            Err(failure) => Ended::Badly(failure.cause),
        };
        result
    }

    /// Returns the failure that the component answered with. What it says goes into the log, and counts as if printed.
    fn returned(&self, message: &str) -> Failure {
        let failure = Failure::new(Cause::Returned, message);
        if let Some(output) = &self.output {
            output.lock().charge(failure.message.len());
        }
        failure
    }

    /// Returns the failure of a call that did not come to an answer.
    fn broken(&self, error: &wasmtime::Error) -> Failure {
        let Facts { name, limits, .. } = &*self.execution.plugin.facts;
        let words = self.output.as_ref().and_then(|output| {
            let mut output = output.lock();
            output.finish();
            output.last_words()
        });
        let failure = instance::failure(error, limits, words);
        let (plugin, call) = (name, self.call.name());
        warn!(%plugin, call, error = %failure, stack = instance::stack(error), "the instance is thrown away");
        failure
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(output) = &self.output {
            output.lock().finish();
        }
        let counters = &self.execution.plugin.counters;
        let instance = self.instance.take();
        if let Some(instance) = &instance {
            counters.memory(instance.memory());
        }
        // An instance that was left in the middle of a call, for whatever reason, is never entered again.
        match self.ended {
            Ended::Well | Ended::Badly(Cause::Returned) => self.seat.instance = instance,
            Ended::Badly(Cause::Trap | Cause::Timeout | Cause::OutOfMemory | Cause::Other)
            | Ended::Abandoned => drop(instance),
        }
        counters.call(self.ended, self.begun.elapsed());
    }
}

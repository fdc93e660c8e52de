//! A call, from the moment when it is its turn: which instance it gets, by when it has to be over, and what becomes of both.

use std::sync::Arc;
use std::time::Duration;

use capstan_core::guest::{Answer, Cause, Failure, Function};
use parking_lot::Mutex;
use tokio::sync::MutexGuard;
use tokio::time::Instant;
use tokio::time::error::Elapsed;
use tracing::warn;

use super::ending::{self, Broken};
use super::engine::Busy;
use super::instance::{self, called};
use super::output::Output;
use super::place::Instance;
use super::usage::Ended;
use super::{Execution, Facts, Loaded, Nesting, Seat};

/// A call whose turn it is. Unless [`Turn::end`] has seen an answer, the instance goes with it.
pub(super) struct Turn<'a> {
    execution: &'a Execution,
    /// None if it has none yet, or has given it back.
    instance: Option<Instance>,
    seat: MutexGuard<'a, Seat>,
    /// Where the instance prints to, as soon as there is one.
    output: Option<Arc<Mutex<Output>>>,
    call: Option<Function>,
    begun: Instant,
    ended: Ended,
    /// None if others keep time for it.
    _busy: Option<Busy<'a>>,
}

// === impl Execution ===

impl Execution {
    /// Waits for its turn and, if need be, for a permit; from then on the time counts.
    pub(super) async fn turn(&self, call: Option<Function>) -> Result<Turn<'_>, Failure> {
        let Loaded { engine, place, .. } = &*self.plugin;
        let mut seat = self.seat.lock().await;
        self.permit(&mut seat).await?;
        if seat.instance.is_none() {
            self.ready().await?;
        }
        Ok(Turn {
            execution: self,
            instance: seat.instance.take(),
            seat,
            output: None,
            call,
            begun: Instant::now(),
            ended: Ended::Abandoned,
            _busy: place.is_here().then(|| engine.enter()),
        })
    }

    /// Waits for a permit, unless it has one or needs none.
    pub(super) async fn permit(&self, seat: &mut Seat) -> Result<(), Failure> {
        if self.nesting == Nesting::Own && seat.permit.is_none() {
            let permit = Arc::clone(&self.plugin.permits).acquire_owned().await;
            seat.permit = Some(permit.map_err(|_| Failure::other("the plugin is being unloaded"))?);
        }
        Ok(())
    }

    /// Waits until there can be an instance.
    async fn ready(&self) -> Result<(), Failure> {
        let Loaded { place, facts, counters, .. } = &*self.plugin;
        place.ready().await.map_err(|ending| {
            let failure = ending.failure(&facts.limits, None);
            counters.call(Ended::Badly(failure.cause), Duration::ZERO);
            failure
        })
    }
}

// === impl Turn ===

impl Turn<'_> {
    pub(super) fn deadline(&self) -> Instant {
        self.begun + self.execution.plugin.facts.limits.timeout
    }

    /// Returns the run's instance, ready for the call. If it has none, it gets a warm one, or else a new one.
    pub(super) async fn instance(&mut self) -> wasmtime::Result<&mut Instance> {
        let instance = match self.instance.take().or_else(|| self.warm()) {
            Some(instance) => {
                let output = self.output.insert(Arc::clone(instance.output()));
                output.lock().begin(called(self.call));
                instance
            }
            None => self.start().await?,
        };
        Ok(self.instance.insert(instance))
    }

    /// Takes an instance that another run has left.
    fn warm(&self) -> Option<Instance> {
        let Execution { plugin, run, .. } = self.execution;
        let idle = plugin.idle.as_ref()?;
        let mut instance = std::iter::from_fn(|| idle.take()).find(Instance::is_alive)?;
        instance.assign(Arc::clone(run));
        Some(instance)
    }

    async fn start(&mut self) -> wasmtime::Result<Instance> {
        let Execution { plugin, run, .. } = self.execution;
        let mut output = plugin.facts.output();
        output.assign(&run.info());
        output.begin(called(self.call));
        let output = self.output.insert(Arc::new(Mutex::new(output)));
        let (run, output) = (Arc::clone(run), Arc::clone(output));
        plugin.place.start(Some(run), output, self.deadline()).await
    }

    /// Keeps the instance if the call gave an answer, and says why if it did not.
    pub(super) fn end(mut self, answer: Result<instance::Ended<Answer>, Elapsed>) -> Result<Answer, Failure> {
        let result = match answer {
            Ok(Ok(answer)) => answer.map_err(|message| self.returned(&message)),
            Ok(Err(error)) => Err(self.broken(&error)),
            Err(Elapsed { .. }) => Err(ending::overdue(self.execution.plugin.facts.limits.timeout)),
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
        let facts = &*self.execution.plugin.facts;
        let Facts { name, limits, .. } = facts;
        let words = self.output.as_ref().and_then(|output| {
            let mut output = output.lock();
            output.finish();
            output.last_words()
        });
        let Broken { ending, stack } = Broken::of(error);
        let failure = ending.failure(limits, words);
        let (operator, plugin, call) = (facts.operator(), name, called(self.call));
        warn!(%operator, %plugin, call, error = %failure, stack, "the instance is thrown away");
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
            Ended::Well | Ended::Badly(Cause::Returned) => self.seat.instance = instance.filter(Instance::is_alive),
            Ended::Badly(Cause::Trap | Cause::Timeout | Cause::OutOfMemory | Cause::Other) | Ended::Abandoned => {
                drop(instance);
            }
        }
        counters.call(self.ended, self.begun.elapsed());
    }
}

//! Where a plugin's instances are: among all others in this process, or in one of their own. For who calls them it makes no difference.

use std::sync::Arc;

use capstan_core::guest::{Answer, Call, Context};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::convert::checked;
use super::ending::Ending;
use super::idle::Wear;
use super::instance::{self, Ended, Parts};
use super::output::{Home, Output};
use super::process::{Apart, Remote};

/// Where instances are.
pub(super) enum Place {
    Here(Parts),
    Apart(Apart),
}

/// An instance. It belongs to one run at a time.
pub(super) enum Instance {
    Here(Box<instance::Instance>, Arc<Mutex<Output>>),
    Apart(Box<Remote>),
}

impl Place {
    pub(super) fn is_here(&self) -> bool {
        matches!(self, Self::Here(_))
    }

    /// Waits until instances can be started.
    ///
    /// # Errors
    /// If there is no process for them.
    pub(super) async fn ready(&self) -> Result<(), Ending> {
        match self {
            Self::Here(_) => Ok(()),
            Self::Apart(apart) => apart.process().await.map(drop),
        }
    }

    /// Returns the number of the process that they have for themselves.
    pub(super) fn process_id(&self) -> Option<u32> {
        match self {
            Self::Here(_) => None,
            Self::Apart(apart) => apart.id(),
        }
    }

    /// Returns a new instance. Its start functions have run, or run with its first call.
    pub(super) async fn start(
        &self,
        run: Option<Arc<dyn Context>>,
        output: Arc<Mutex<Output>>,
        deadline: Instant,
    ) -> wasmtime::Result<Instance> {
        match self {
            Self::Here(parts) => {
                let home = Home::Here(Arc::clone(&output));
                let started = instance::Instance::start(parts, run, home, deadline).await?;
                Ok(Instance::Here(Box::new(started), output))
            }
            Self::Apart(apart) => {
                let remote = Remote::new(apart, run, output, deadline).await?;
                Ok(Instance::Apart(Box::new(remote)))
            }
        }
    }
}

impl Instance {
    /// Whether it may be used again.
    pub(super) fn is_alive(&self) -> bool {
        match self {
            Self::Here(instance, _) => instance.is_alive(),
            Self::Apart(remote) => remote.is_alive(),
        }
    }

    /// Begins a run in an instance that has been used before.
    pub(super) fn assign(&mut self, run: Arc<dyn Context>) {
        match self {
            Self::Here(instance, output) => {
                output.lock().assign(&run.info());
                instance.assign(run);
            }
            Self::Apart(remote) => remote.assign(run),
        }
    }

    /// Ends a run, if the instance is to be used again: nothing is kept of it but what the component knows. Returns
    /// what the instance has behind it.
    pub(super) fn release(&mut self) -> Wear {
        match self {
            Self::Here(instance, _) => instance.release(),
            Self::Apart(remote) => remote.release(),
        }
    }

    /// Returns how many bytes of linear memory it has, which never shrinks.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Here(instance, _) => instance.memory(),
            Self::Apart(remote) => remote.memory(),
        }
    }

    /// Returns where it prints to.
    pub(super) fn output(&self) -> &Arc<Mutex<Output>> {
        match self {
            Self::Here(_, output) => output,
            Self::Apart(remote) => remote.output(),
        }
    }

    /// Makes a call, which has to be over then.
    pub(super) async fn answer(&mut self, call: &Call<'_>, deadline: Instant) -> Ended<Answer> {
        let answer = match self {
            Self::Here(instance, _) => instance.answer(call, deadline).await?,
            Self::Apart(remote) => remote.answer(call, deadline).await?,
        };
        Ok(match answer {
            Ok(answer) => Ok(checked(answer)?),
            Err(message) => Err(message),
        })
    }
}

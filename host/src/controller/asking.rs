//! Asks what the sources of a controller have put off, when it is its operator's turn.

use std::sync::Arc;

use capstan_core::cpu::Job;
use capstan_core::source::{Listener, Source};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::declared::{Declared, Environment};
use super::handle::Handle;

/// Asks for one source, until this is dropped.
pub(super) struct Asking {
    pub(super) source: Arc<Source>,
    _task: AbortOnDropHandle<()>,
}

impl Asking {
    /// Begins to ask for a source of this controller.
    pub(super) fn begin(source: &Arc<Source>, handle: &Handle, environment: &Environment) -> Self {
        let (wanted, tell) = (handle.wanted.subscribe(), handle.listener());
        let ask = ask(Arc::clone(source), Arc::clone(&handle.name), wanted, tell);
        Self { source: Arc::clone(source), _task: AbortOnDropHandle::new(environment.workers.runtime().spawn(ask)) }
    }
}

async fn ask(source: Arc<Source>, controller: Arc<str>, wanted: watch::Receiver<Arc<Declared>>, tell: Listener) {
    loop {
        source.has_questions().await;
        let account = wanted.borrow().account.clone();
        let job = Job { controller: Arc::clone(&controller), key: None };
        account.run(job, source.answer(&tell)).await;
    }
}

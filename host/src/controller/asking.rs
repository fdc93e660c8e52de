//! Asks what the sources of a controller have put off, when it is its operator's turn.

use std::sync::Arc;

use capstan_core::cpu::Job;
use capstan_core::source::{Listener, Source};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::declared::{Declared, Environment};
use super::handle::Handle;

/// Asks for one source, until this is dropped and nothing waits any more: by then, nothing is put off any more.
pub(super) struct Asking {
    pub(super) source: Arc<Source>,
    _stop: DropGuard,
}

impl Asking {
    /// Begins to ask for a source of this controller.
    pub(super) fn begin(source: &Arc<Source>, handle: &Handle, environment: &Environment) -> Self {
        let stop = CancellationToken::new();
        let (wanted, tell) = (handle.wanted.subscribe(), handle.listener());
        let ask = ask(Arc::clone(source), Arc::clone(&handle.name), (wanted, tell), stop.clone());
        environment.workers.runtime().spawn(ask);
        Self { source: Arc::clone(source), _stop: stop.drop_guard() }
    }
}

async fn ask(
    source: Arc<Source>,
    controller: Arc<str>,
    (wanted, tell): (watch::Receiver<Arc<Declared>>, Listener),
    stop: CancellationToken,
) {
    let mut ended = false;
    while !ended {
        tokio::select! {
            biased;
            () = source.has_questions() => {}
            () = stop.cancelled() => ended = true,
        }
        let account = wanted.borrow().account.clone();
        let job = Job { controller: Arc::clone(&controller), key: None };
        account.run(job, source.answer(&tell)).await;
    }
}

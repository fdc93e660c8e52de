//! Asks what the sources of a controller have put off, when it is its operator's turn.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cpu::Job;
use capstan_core::reconciler::callbacks::Callbacks;
use capstan_core::source::Source;
use futures::FutureExt as _;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

use super::declared::Environment;
use super::handle::Handle;

/// How often it is tried whether there is memory now for the keys of objects that have found none.
const AGAIN: Duration = Duration::from_secs(10);

/// Asks for one source, until this is dropped.
pub(super) struct Asking {
    pub(super) source: Arc<Source>,
    _task: AbortOnDropHandle<()>,
}

impl Asking {
    /// Begins to ask for a source of this controller.
    pub(super) fn begin(source: &Arc<Source>, handle: &Arc<Handle>, environment: &Environment) -> Self {
        let ask = ask(Arc::clone(source), Arc::clone(handle));
        Self { source: Arc::clone(source), _task: AbortOnDropHandle::new(environment.workers.runtime().spawn(ask)) }
    }
}

async fn ask(source: Arc<Source>, handle: Arc<Handle>) {
    let tell = handle.listener();
    let (mut again, mut last) = (interval(AGAIN), None);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = source.has_questions() => {}
            _ = again.tick() => {
                last = source.key_again(last.as_ref());
                continue;
            }
        }
        let account = handle.wanted.borrow().account.clone();
        let job = Job { controller: Arc::clone(&handle.name), key: None };
        let exports = {
            let handle = Arc::clone(&handle);
            Callbacks::beside(move || handle.controller())
        };
        let answered = AssertUnwindSafe(account.run(job, source.answer(&tell, &exports))).catch_unwind().await;
        if answered.is_err() {
            // What else waits is asked about; runs wait for that.
            tracing::error!(source = %source.spec().name, "the daemon has panicked over a question about an object: nobody is told of this change of it");
            source.ask_on();
        }
    }
}

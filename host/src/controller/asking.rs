//! Asks what the sources of a controller have put off, when it is its operator's turn.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cpu::Job;
use capstan_core::reconciler::Controller;
use capstan_core::reconciler::callbacks::Callbacks;
use capstan_core::source::{Listener, Source};
use futures::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

use super::declared::Declared;

/// Begins to ask for sources of one controller, whichever version of it runs.
#[derive(Clone)]
pub(super) struct Asker {
    pub(super) controller: Arc<str>,
    pub(super) wanted: watch::Receiver<Arc<Declared>>,
    pub(super) tell: Listener,
    pub(super) runtime: Handle,
    /// Returns the running version.
    pub(super) running: Arc<dyn Fn() -> Option<Arc<Controller>> + Send + Sync>,
}

/// How often it is tried whether there is memory now for the keys of objects that have found none.
const AGAIN: Duration = Duration::from_secs(10);

/// Asks for one source, until this is dropped.
pub(super) struct Asking {
    pub(super) source: Arc<Source>,
    _task: AbortOnDropHandle<()>,
}

impl Asker {
    /// Spawns a task where sources are asked for.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.runtime.spawn(task)
    }

    /// Begins to ask for a source.
    pub(super) fn begin(&self, source: &Arc<Source>) -> Asking {
        let ask = ask(Arc::clone(source), self.clone());
        Asking { source: Arc::clone(source), _task: AbortOnDropHandle::new(self.runtime.spawn(ask)) }
    }
}

async fn ask(source: Arc<Source>, asker: Asker) {
    let Asker { controller, wanted, tell, running, .. } = asker;
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
        let account = wanted.borrow().account.clone();
        let job = Job { controller: Arc::clone(&controller), key: None };
        let exports = {
            let running = Arc::clone(&running);
            Callbacks::beside(move || running())
        };
        let answered = AssertUnwindSafe(account.run(job, source.answer(&tell, &exports))).catch_unwind().await;
        if answered.is_err() {
            // What else waits is asked about; runs wait for that.
            tracing::error!(source = %source.spec().name, "the daemon has panicked over a question about an object: nobody is told of this change of it");
            source.ask_on();
        }
    }
}

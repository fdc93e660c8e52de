//! Calls the exports of a component that are asked about objects: beside all runs when it is the operator's turn, or on behalf of a
//! run that reads what they say.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::beside::Beside;
use super::controller::Controller;
use crate::guest::{Changed, Failure, Named, Session};
use crate::object::{Change, Object, ObjectRef};
use crate::source::Exports;

/// The calls after which an instance makes room for others of its plugin.
const TURN: usize = 64;

/// Asks the component that is in force. Calls that come one after another share an instance.
pub struct Callbacks {
    /// Returns the controller that is in force; `None` if there is none any more.
    now: Box<dyn Fn() -> Option<Arc<Controller>> + Send + Sync>,
    nesting: Nesting,
    /// What is used again for the next call.
    open: Mutex<Option<Open>>,
    edition: AtomicU64,
}

/// On whose permit the component is called.
#[derive(Clone, Copy)]
enum Nesting {
    /// One of its own.
    Own,
    /// That of the run that reads.
    Callers,
}

/// A session that has calls left.
struct Open {
    beside: Arc<Beside>,
    session: Box<dyn Session>,
    left: usize,
}

// === impl Callbacks ===

impl Callbacks {
    /// Returns those of whichever controller is in force when they are called, beside all runs.
    pub fn beside(now: impl Fn() -> Option<Arc<Controller>> + Send + Sync + 'static) -> Self {
        Self { now: Box::new(now), nesting: Nesting::Own, open: Mutex::default(), edition: AtomicU64::new(0) }
    }

    /// Returns those of the controller of a run, on behalf of that.
    pub(super) fn nested(controller: &Arc<Controller>) -> Self {
        let controller = Arc::clone(controller);
        let edition = AtomicU64::new(controller.edition);
        let now: Box<dyn Fn() -> _ + Send + Sync> = Box::new(move || Some(Arc::clone(&controller)));
        Self { now, nesting: Nesting::Callers, open: Mutex::default(), edition }
    }

    /// Returns a session for one more call.
    fn open(&self) -> Result<Open, Failure> {
        let kept = self.open.lock().take();
        // Another version may be in force by now, which would be asked again.
        let in_force = |open: &Open| (self.now)().is_some_and(|now| Arc::ptr_eq(&now, &open.beside.controller));
        if let Some(open) = kept.filter(in_force) {
            open.beside.again();
            return Ok(open);
        }
        let (beside, session) = self.session(None)?;
        Ok(Open { beside, session, left: TURN })
    }

    fn session(&self, primary: Option<&Object>) -> Result<(Arc<Beside>, Box<dyn Session>), Failure> {
        let controller = (self.now)().ok_or_else(|| Failure::other("the controller is being stopped"))?;
        self.edition.store(controller.edition, Ordering::Relaxed);
        let beside = Beside::new(&controller, primary.cloned());
        let context = Arc::<Beside>::clone(&beside);
        let session = match self.nesting {
            Nesting::Own => controller.guest.open(context),
            Nesting::Callers => controller.guest.open_nested(context),
        };
        Ok((beside, session))
    }

    /// Keeps a session for the next call, unless others have waited long enough for what it holds.
    fn put(&self, open: Open) {
        let left = open.left.saturating_sub(1);
        if left > 0 {
            *self.open.lock() = Some(Open { left, ..open });
        }
    }
}

impl Callbacks {
    /// Returns whether a change of something that is no object matters, by the filter `name`.
    ///
    /// # Errors
    /// That of the component.
    pub(super) async fn accepts_change(&self, name: &str, change: Changed<'_>) -> Result<bool, Failure> {
        let open = self.open()?;
        let answer = open.session.accepts(name, change).await;
        self.put(open);
        answer
    }
}

impl Exports for Callbacks {
    fn accepts<'a>(&'a self, name: &'a str, change: &'a Change) -> BoxFuture<'a, Result<bool, Failure>> {
        self.accepts_change(name, changed(change)).boxed()
    }

    fn primaries<'a>(&'a self, name: &'a str, secondary: &'a Object) -> BoxFuture<'a, Result<Vec<ObjectRef>, Failure>> {
        async move {
            let open = self.open()?;
            let answer = open.session.to_primaries(name, secondary.json()).await;
            self.put(open);
            answer.map(|Named { keys }| keys)
        }
        .boxed()
    }

    fn secondaries<'a>(&'a self, name: &'a str, primary: &'a Object) -> BoxFuture<'a, Result<Vec<ObjectRef>, Failure>> {
        async move {
            let (_beside, session) = self.session(Some(primary))?;
            let answer = session.to_secondaries(name, primary.json()).await;
            answer.map(|Named { keys }| keys)
        }
        .boxed()
    }

    fn edition(&self) -> u64 {
        self.edition.load(Ordering::Relaxed)
    }

    fn rest(&self) {
        let open = self.open.lock().take();
        drop(open);
    }
}

/// Returns a change as the component is told of it.
fn changed(change: &Change) -> Changed<'_> {
    match change {
        Change::Added(object) => Changed::Added(object.json()),
        Change::Updated { old, new } => Changed::Updated { before: old.json(), after: new.json() },
        Change::Deleted { last, unknown } => Changed::Deleted { last: last.json(), unknown: *unknown },
    }
}

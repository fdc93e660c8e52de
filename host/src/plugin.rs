//! A loaded component as the daemon's [`Guest`]: who may call when, and in which instance.
//!
//! [`engine`] is made once, [`Plugin::load`] once per version of a component, a session once per run. What a session
//! leaves goes to the `idle`, if the manifest wants instances warm.

pub mod bounds;
pub mod engine;
pub mod loader;
pub mod weight;

mod ambient;
mod asking;
mod bindings;
mod code;
mod command;
mod compiler;
mod convert;
mod ending;
mod idle;
mod imports;
mod instance;
mod network;
mod output;
mod place;
mod process;
mod room;
mod templates;
mod turn;
mod usage;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use capstan_core::guest::{Answer, Call, Context, Description, Failure, Guest, Interface, Session};
use capstan_core::manifest::{Limits, Permission};
use capstan_core::operator::wants::About;
use capstan_core::reconciler::memos::Memos;
use capstan_core::room::{Holding, Room};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;

use ambient::Ambient;
pub use ambient::REHEARSED;
pub use bindings::CONTRACT;
use engine::Engine;
use idle::IdleInstances;
use network::Network;
pub use network::outside::Outside;
use output::Output;
use place::{Instance, Place};
pub use templates::Templates;
use usage::Counters;
pub use usage::Usage;

/// A loaded version of a component. Cheap to clone. Its memory goes with the last session.
#[derive(Clone)]
pub struct Plugin {
    inner: Arc<Loaded>,
}

struct Loaded {
    engine: Engine,
    facts: Arc<Facts>,
    place: Place,
    exports: BTreeSet<Interface>,
    /// The names that it answers to; `None` if it does not say.
    description: Option<Description>,
    /// The ways in which it can ask to write.
    writes: BTreeSet<Permission>,
    about: About,
    /// One permit per run at a time (`limits.concurrency`); stands before the pool, whose exhaustion is an error.
    permits: Arc<Semaphore>,
    /// Where instances wait to be used again; none if each run gets a fresh one. An instance is started only if none
    /// waits, so there are never more of them than could be in use at once, which is what the pool has room for.
    idle: Option<IdleInstances<Instance>>,
    counters: Arc<Counters>,
    /// SHA-256 of the component, in hexadecimal.
    digest: String,
    /// Whether its machine code had been compiled before, and was kept.
    from_cache: bool,
    /// Keeps its code where others find it: in memory, and in the cache.
    _mapped: code::SharedCode,
    /// What describes it once more, in the process that its instances have for themselves.
    _beside: Option<Holding>,
}

/// A loaded version of a component, as it is run, shown and replaced.
pub trait Component: Guest + fmt::Debug {
    /// Returns the SHA-256 of the component, in hexadecimal.
    fn digest(&self) -> &str;

    /// Returns the ways in which it can ask to write, as the manifest would permit it.
    fn writes(&self) -> &BTreeSet<Permission>;

    /// Returns what it imports and exports, and its size; `None` if templates are in its place.
    fn about(&self) -> Option<&About>;

    /// Returns what it has done since it was loaded.
    fn usage(&self) -> Usage;

    /// Returns the number of the process that its instances have for themselves; none if they have none.
    fn process_id(&self) -> Option<u32>;

    /// Says that another version is in force: the instances that wait to be used again are dropped, and none is kept from now
    /// on. Executions under way work as before.
    fn retire(&self);

    /// Returns how to wait until no run uses it.
    fn drain(&self) -> Drain;
}

/// Waits until no run uses a version. It keeps nothing of it.
pub type Drain = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

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
    log: Arc<Mutex<output::Shared>>,
    /// Values kept as long as this version is loaded. None: the daemon keeps them, and this is another process.
    memo: Option<Mutex<Memos>>,
    /// The memory that all plugins share.
    room: Room,
    /// To whom it may connect.
    network: Arc<Network>,
    /// Where its time and random numbers come from.
    ambient: Ambient,
    /// Bytes of memory that describe each of its instances.
    weight: u64,
}

/// The calls of one run.
struct Execution {
    plugin: Arc<Loaded>,
    run: Arc<dyn Context>,
    nesting: Nesting,
    /// Calls take turns.
    seat: tokio::sync::Mutex<Seat>,
    _counted: usage::Execution,
}

/// Whether a run has a permit of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nesting {
    /// It takes one at its first call, and keeps it to its end.
    Own,
    /// It is part of a call that has one (rule 8 of the contract).
    Callers,
}

/// What a run holds between its calls. The instance goes before the permit that it was made on.
#[derive(Default)]
struct Seat {
    instance: Option<Instance>,
    permit: Option<OwnedSemaphorePermit>,
}

// === impl Facts ===

impl Facts {
    /// Returns the name of the operator.
    fn operator(&self) -> Arc<str> {
        self.unit.rsplit_once('/').map_or("", |(operator, _)| operator).into()
    }

    /// Returns where a new instance prints to.
    fn output(&self) -> Output {
        let Self { name, limits, log, .. } = self;
        Output::new((self.operator(), Arc::clone(name)), limits.log, Arc::clone(log))
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

    /// Whether its machine code had been compiled before, and was kept.
    pub fn from_cache(&self) -> bool {
        self.inner.from_cache
    }

    /// Returns which names it answers to; `None` if it does not say.
    pub fn description(&self) -> Option<&Description> {
        self.inner.description.as_ref()
    }

    fn session(&self, run: Arc<dyn Context>, nesting: Nesting) -> Box<dyn Session> {
        Box::new(Execution {
            plugin: Arc::clone(&self.inner),
            run,
            nesting,
            seat: tokio::sync::Mutex::default(),
            _counted: self.inner.counters.execution(),
        })
    }
}

impl Component for Plugin {
    fn digest(&self) -> &str {
        &self.inner.digest
    }

    fn writes(&self) -> &BTreeSet<Permission> {
        &self.inner.writes
    }

    fn about(&self) -> Option<&About> {
        Some(&self.inner.about)
    }

    fn usage(&self) -> Usage {
        let Loaded { idle, counters, .. } = &*self.inner;
        counters.usage(idle.as_ref().map_or(0, IdleInstances::len))
    }

    fn process_id(&self) -> Option<u32> {
        self.inner.place.process_id()
    }

    fn retire(&self) {
        if let Some(idle) = &self.inner.idle {
            idle.close();
        }
    }

    fn drain(&self) -> Drain {
        let Loaded { permits, facts, .. } = &*self.inner;
        let all = u32::try_from(facts.limits.concurrency).unwrap_or(u32::MAX).max(1);
        let permits = Arc::clone(permits);
        Arc::new(move || {
            let permits = Arc::clone(&permits);
            // An error would say that nobody can begin any more.
            Box::pin(async move { drop(permits.acquire_many(all).await) })
        })
    }
}

impl Guest for Plugin {
    fn description(&self) -> Option<&Description> {
        self.inner.description.as_ref()
    }

    fn open(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
        self.session(run, Nesting::Own)
    }

    fn open_nested(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
        self.session(run, Nesting::Callers)
    }

    fn exports(&self, interface: Interface) -> bool {
        self.inner.exports.contains(&interface)
    }

    fn holding(&self) -> Option<Holding> {
        let Facts { room, unit, .. } = &*self.inner.facts;
        Some(room.holding(unit))
    }
}

// === impl Execution ===

impl Session for Execution {
    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            let mut turn = self.turn(call.function()).await?;
            let deadline = turn.deadline();
            let answer = timeout_at(deadline, async { turn.instance().await?.answer(&call, deadline).await }).await;
            turn.end(answer)
        })
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move { self.permit(&mut *self.seat.lock().await).await })
    }
}

impl Drop for Execution {
    /// Puts its instance where the next run finds it, before the permit goes to somebody who looks there.
    fn drop(&mut self) {
        let instance = self.seat.get_mut().instance.take();
        let instance = instance.filter(Instance::is_alive);
        if let (Some(mut instance), Some(idle)) = (instance, &self.plugin.idle) {
            let wear = instance.release();
            idle.put(instance, wear);
        }
    }
}

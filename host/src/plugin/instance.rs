//! An instance of a component: a store with a memory limit and a deadline per call, dropped when a call goes wrong. It belongs
//! to one run at a time.

use std::borrow::Cow;
use std::sync::Arc;

use capstan_core::cpu;
use capstan_core::guest::{
    CallError, CallReason, ConditionResult, Context, DeleteControl, ErrorControl, Exports, FailureInfo, MatchQuestion,
    MatchResult, UpdateControl,
};
use capstan_core::room::Holding;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use wasmtime::component::{self, ComponentExportIndex, InstancePre, ResourceTable};
use wasmtime::{ResourceLimiterAsync, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView, async_trait};

use super::Facts;
use super::bindings::capstan::operator::types;
use super::bindings::exports::capstan::operator::{cleaner, condition, dependent, error_handler, reconciler};
use super::ending::{NoRoom, Otherwise, OverMemory, OverTables, Overdue};
use super::engine::ELEMENTS;
use super::idle::Wear;
use super::output::{Home, Pipe, Stream};
use super::process::Wire;
use super::usage::{Alive, Counters};

/// Bytes that one call of a host function, or the answer of an export, may make the daemon allocate. Objects in etcd
/// are smaller than 1.5 MiB.
pub(super) const HOSTCALL: usize = 4 << 20;

/// Streams and pollables that an instance may hold.
const RESOURCES: usize = 1024;

/// A component that runs.
pub(super) struct Instance {
    store: Store<State>,
    handle: component::Instance,
    exports: Arc<Indices>,
    /// Runs that it has behind it.
    runs: usize,
    _alive: Alive,
}

/// What the daemon keeps beside a running component.
pub(super) struct State {
    /// The plugin.
    pub(super) facts: Arc<Facts>,
    /// The run that calls belong to; none while a plugin is loaded, and between runs.
    pub(super) run: Option<Arc<dyn Context>>,
    /// Where prints and log lines go, and who is asked for memory and time.
    pub(super) home: Home,
    /// The call in progress.
    pub(super) call: Call,
    /// When it has to be over.
    pub(super) deadline: Instant,
    limiter: Limiter,
    wasi: WasiCtx,
    /// What the component has handles of. They are part of its memory: the C library keeps its standard streams in there.
    table: ResourceTable,
}

/// The exports that the daemon calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Start,
    Reconcile,
    Cleanup,
    HandleError,
    Desired,
    Match,
    IsMet,
}

/// The exports of a component, found once.
#[derive(Default)]
pub(super) struct Indices {
    pub(super) reconciler: Option<reconciler::GuestIndices>,
    pub(super) cleaner: Option<cleaner::GuestIndices>,
    pub(super) error_handler: Option<error_handler::GuestIndices>,
    pub(super) dependent: Option<dependent::GuestIndices>,
    pub(super) condition: Option<condition::GuestIndices>,
    /// `match` of `matcher`, bound by hand.
    pub(super) matcher: Option<ComponentExportIndex>,
}

/// A call of an export, with its arguments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Question<'a> {
    /// Only start, for a try.
    Start,
    Reconcile {
        primary: &'a str,
    },
    Cleanup {
        primary: &'a str,
    },
    HandleError {
        primary: &'a str,
        failed: Cow<'a, FailureInfo>,
    },
    Desired {
        name: &'a str,
        primary: &'a str,
    },
    Match(#[serde(borrow)] MatchQuestion<'a>),
    IsMet {
        name: &'a str,
        dependent: &'a str,
        primary: &'a str,
    },
}

/// What an export has answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Returned {
    Started,
    Reconciled(UpdateControl),
    CleanedUp(DeleteControl),
    Handled(ErrorControl),
    Desired(String),
    Compared(MatchResult),
    Asked(ConditionResult),
}

/// Bounds the memories of one instance, all together, and its tables.
struct Limiter {
    /// Bytes in use.
    used: usize,
    /// Bytes allowed (`limits.memory`).
    limit: usize,
    /// Elements of tables in use.
    elements: usize,
    /// Bytes of the answer that the daemon has made for the component last: about to be copied into its memory, it counts as
    /// its own until the next one.
    answer: usize,
    /// What it holds of the memory that all plugins share.
    share: Share,
    /// When a wait for more of that has to be over.
    deadline: Instant,
}

/// Part of the memory that all plugins share.
enum Share {
    Held(Holding),
    /// The daemon holds it, and is asked.
    Asked(Arc<Wire>),
}

/// The manifest does without this interface, but now it is called.
#[derive(Debug, thiserror::Error)]
#[error("the component does not export `{0}`")]
struct NotExported(&'static str);

// === impl Returned ===

impl Returned {
    /// Returns which export answers like that.
    pub(super) fn call(&self) -> Call {
        match self {
            Self::Started => Call::Start,
            Self::Reconciled(_) => Call::Reconcile,
            Self::CleanedUp(_) => Call::Cleanup,
            Self::Handled(_) => Call::HandleError,
            Self::Desired(_) => Call::Desired,
            Self::Compared(_) => Call::Match,
            Self::Asked(_) => Call::IsMet,
        }
    }
}

// === impl Question ===

impl Question<'_> {
    /// Returns which export is called.
    pub(super) fn call(&self) -> Call {
        match self {
            Self::Start => Call::Start,
            Self::Reconcile { .. } => Call::Reconcile,
            Self::Cleanup { .. } => Call::Cleanup,
            Self::HandleError { .. } => Call::HandleError,
            Self::Desired { .. } => Call::Desired,
            Self::Match(_) => Call::Match,
            Self::IsMet { .. } => Call::IsMet,
        }
    }
}

// === impl Call ===

impl Call {
    /// Returns the function's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Reconcile => "reconcile",
            Self::Cleanup => "cleanup",
            Self::HandleError => "handle-error",
            Self::Desired => "desired",
            Self::Match => "match",
            Self::IsMet => "is-met",
        }
    }

    /// Whether workflows may be run by hand during this call (`CX-2`).
    pub(super) fn may_run_workflows(self) -> bool {
        match self {
            Self::Reconcile | Self::Cleanup => true,
            Self::Start | Self::HandleError | Self::Desired | Self::Match | Self::IsMet => false,
        }
    }
}

// === impl Indices ===

impl Indices {
    /// Returns which interfaces there are.
    pub(super) fn exports(&self) -> Exports {
        Exports {
            reconciler: self.reconciler.is_some(),
            cleaner: self.cleaner.is_some(),
            error_handler: self.error_handler.is_some(),
            dependent: self.dependent.is_some(),
            matcher: self.matcher.is_some(),
            condition: self.condition.is_some(),
        }
    }

    /// Returns their names.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let names = [
            ("reconciler", self.reconciler.is_some()),
            ("cleaner", self.cleaner.is_some()),
            ("error-handler", self.error_handler.is_some()),
            ("dependent", self.dependent.is_some()),
            ("matcher", self.matcher.is_some()),
            ("condition", self.condition.is_some()),
        ];
        let exported = names.into_iter().filter(|(_, exported)| *exported);
        exported.map(|(name, _)| name).collect()
    }
}

// === impl State ===

impl State {
    /// Returns the state of an instance that has not started.
    pub(super) fn new(facts: Arc<Facts>, run: Option<Arc<dyn Context>>, home: Home) -> Self {
        let pipe = |stream| Pipe { home: home.clone(), stream };
        let wasi = WasiCtx::builder()
            .stdout(pipe(Stream::Out))
            .stderr(pipe(Stream::Err))
            .max_random_size(64 << 10)
            // The functions are linked because Python imports them; no component has a network.
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .build();
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES);
        let limit = usize::try_from(facts.limits.memory).unwrap_or(usize::MAX);
        let limiter = Limiter {
            used: 0,
            limit,
            elements: 0,
            answer: 0,
            share: match &home {
                Home::Here(_) => Share::Held(facts.room.holding(&facts.unit)),
                Home::Apart(wire) => Share::Asked(Arc::clone(wire)),
            },
            deadline: Instant::now(),
        };
        let deadline = Instant::now();
        Self { facts, run, home, call: Call::Start, deadline, limiter, wasi, table }
    }
}

impl State {
    /// Counts an answer of so many bytes as the component's memory.
    ///
    /// # Errors
    /// If there is no room for it.
    pub(super) fn answer(&mut self, bytes: usize) -> Result<(), CallError> {
        let Limiter { used, limit, answer, .. } = &mut self.limiter;
        let left = limit.saturating_sub(*used);
        if bytes > left {
            let message =
                format!("the answer has {bytes} bytes, and {left} are left of the component's memory (limits.memory)");
            return Err(CallError::new(CallReason::Exhausted, message));
        }
        *answer = bytes;
        Ok(())
    }

    /// Sets when the call that begins has to be over.
    fn due(&mut self, deadline: Instant) {
        self.deadline = deadline;
        let left = deadline.saturating_duration_since(Instant::now());
        // Early enough that the reason is told, and not that the call took too long.
        self.limiter.deadline = deadline.checked_sub(left / 8).unwrap_or(deadline);
        self.limiter.answer = 0;
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

#[async_trait]
impl ResourceLimiterAsync for Limiter {
    async fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let used = self.used.saturating_sub(current).saturating_add(desired);
        if used.saturating_add(self.answer) > self.limit {
            return Err(OverMemory.into());
        }
        let bytes = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
        let more = bytes(used.saturating_sub(self.used));
        if more > 0 {
            let grown = match &mut self.share {
                Share::Held(holding) => {
                    let grown = holding.grow(more, self.deadline).await;
                    grown.map_err(|error| error.to_string())
                }
                Share::Asked(wire) => wire.grow(bytes(used)),
            };
            grown.map_err(NoRoom)?;
        }
        self.used = used;
        Ok(true)
    }

    async fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let elements = self.elements.saturating_sub(current).saturating_add(desired);
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        if elements > ELEMENTS {
            return Err(OverTables.into());
        }
        self.elements = elements;
        Ok(true)
    }

    /// Core instances: Rust makes 3, Go 5, JavaScript 9, Python 14 and one per native module.
    fn instances(&self) -> usize {
        256
    }

    fn tables(&self) -> usize {
        64
    }

    fn memories(&self) -> usize {
        16
    }
}

// === impl Instance ===

impl Instance {
    /// Starts a component. Its start functions run within `deadline`, if the caller waits no longer.
    pub(super) async fn start(
        pre: &InstancePre<State>,
        exports: Arc<Indices>,
        state: State,
        deadline: Instant,
        counters: &Arc<Counters>,
    ) -> wasmtime::Result<Self> {
        let mut store = Store::new(pre.engine(), state);
        store.limiter_async(|state| &mut state.limiter);
        store.set_hostcall_fuel(HOSTCALL);
        store.epoch_deadline_callback(|store| {
            if let Home::Apart(wire) = &store.data().home {
                // Who has started this process says how long a call may take, and when it goes on.
                wire.rest().map_err(|_gone| Overdue)?;
                return Ok(UpdateDeadline::Continue(1));
            }
            // The caller's timer says the same, but only when the runtime gets to look at it.
            if Instant::now() >= store.data().deadline {
                return Err(Overdue.into());
            }
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(cpu::rest())))
        });
        store.data_mut().due(deadline);
        store.set_epoch_deadline(1);
        let handle = pre.instantiate_async(&mut store).await?;
        Ok(Self { store, handle, exports, runs: 0, _alive: counters.instance() })
    }

    /// Begins a run in an instance that has been used before.
    pub(super) fn assign(&mut self, run: Arc<dyn Context>) {
        self.store.data_mut().run = Some(run);
    }

    /// Ends a run, if the instance is to be used again: nothing is kept of it but what the component knows. Returns
    /// what the instance has behind it.
    pub(super) fn release(&mut self) -> Wear {
        self.runs += 1;
        // A run may hold its plugin, and so the instances that wait there.
        self.store.data_mut().run = None;
        Wear { runs: self.runs, memory: self.memory() }
    }

    /// Returns how many bytes of linear memory it has, which never shrinks.
    pub(super) fn memory(&self) -> usize {
        self.store.data().limiter.used
    }

    /// Begins a call.
    pub(super) fn begin(&mut self, call: Call, deadline: Instant) {
        let state = self.store.data_mut();
        state.call = call;
        state.due(deadline);
        self.store.set_epoch_deadline(1);
    }

    /// Makes a call.
    pub(super) async fn answer(&mut self, question: &Question<'_>) -> Answer<Returned> {
        Ok(match question {
            Question::Start => {
                self.check()?;
                Ok(Returned::Started)
            }
            Question::Reconcile { primary } => self.reconcile(primary).await?.map(Returned::Reconciled),
            Question::Cleanup { primary } => self.cleanup(primary).await?.map(Returned::CleanedUp),
            Question::HandleError { primary, failed } => {
                let answer = self.handle_error(primary, failed).await?;
                answer.map(Returned::Handled)
            }
            Question::Desired { name, primary } => self.desired(name, primary).await?.map(Returned::Desired),
            Question::Match(question) => self.matches(*question).await?.map(Returned::Compared),
            Question::IsMet { name, dependent, primary } => {
                let answer = self.is_met(name, dependent, primary).await?;
                answer.map(Returned::Asked)
            }
        })
    }

    /// Looks at the signature of each export.
    ///
    /// # Errors
    /// The interface that has another signature, and what is wrong.
    fn check(&mut self) -> Result<(), Otherwise> {
        let Self { store, handle, exports, .. } = self;
        let named = |interface: &'static str| {
            move |error: wasmtime::Error| Otherwise { interface: interface.to_owned(), reason: format!("{error:#}") }
        };
        if let Some(indices) = &exports.reconciler {
            indices.load(&mut *store, handle).map_err(named("reconciler"))?;
        }
        if let Some(indices) = &exports.cleaner {
            indices.load(&mut *store, handle).map_err(named("cleaner"))?;
        }
        if let Some(indices) = &exports.error_handler {
            indices.load(&mut *store, handle).map_err(named("error-handler"))?;
        }
        if let Some(indices) = &exports.dependent {
            indices.load(&mut *store, handle).map_err(named("dependent"))?;
        }
        if let Some(indices) = &exports.condition {
            indices.load(&mut *store, handle).map_err(named("condition"))?;
        }
        if let Some(index) = exports.matcher {
            load_match(handle, store, index).map_err(named("matcher"))?;
        }
        Ok(())
    }

    async fn reconcile(&mut self, primary: &str) -> Answer<UpdateControl> {
        let Self { store, handle, exports, .. } = self;
        let indices = exports.reconciler.as_ref().ok_or(NotExported("reconciler"))?;
        let guest = indices.load(&mut *store, handle)?;
        Ok(guest.call_reconcile(store, &primary.to_owned()).await?.map(Into::into))
    }

    async fn cleanup(&mut self, primary: &str) -> Answer<DeleteControl> {
        let Self { store, handle, exports, .. } = self;
        let indices = exports.cleaner.as_ref().ok_or(NotExported("cleaner"))?;
        let guest = indices.load(&mut *store, handle)?;
        Ok(guest.call_cleanup(store, &primary.to_owned()).await?.map(Into::into))
    }

    async fn handle_error(&mut self, primary: &str, failed: &FailureInfo) -> Answer<ErrorControl> {
        let Self { store, handle, exports, .. } = self;
        let indices = exports.error_handler.as_ref().ok_or(NotExported("error-handler"))?;
        let guest = indices.load(&mut *store, handle)?;
        Ok(guest.call_handle_error(store, &primary.to_owned(), &failed.into()).await?.map(Into::into))
    }

    async fn desired(&mut self, name: &str, primary: &str) -> Answer<String> {
        let Self { store, handle, exports, .. } = self;
        let indices = exports.dependent.as_ref().ok_or(NotExported("dependent"))?;
        let guest = indices.load(&mut *store, handle)?;
        guest.call_desired(store, name, &primary.to_owned()).await
    }

    async fn matches(&mut self, question: MatchQuestion<'_>) -> Answer<MatchResult> {
        let Self { store, handle, exports, .. } = self;
        let index = exports.matcher.ok_or(NotExported("matcher"))?;
        let MatchQuestion { name, actual, desired, primary } = question;
        let (answer,) = load_match(handle, store, index)?.call_async(store, (name, actual, desired, primary)).await?;
        Ok(answer.map(Into::into))
    }

    async fn is_met(&mut self, name: &str, dependent: &str, primary: &str) -> Answer<ConditionResult> {
        let Self { store, handle, exports, .. } = self;
        let indices = exports.condition.as_ref().ok_or(NotExported("condition"))?;
        let guest = indices.load(&mut *store, handle)?;
        let answer = guest.call_is_met(store, name, dependent, &primary.to_owned()).await?;
        Ok(match answer {
            Ok(result) => Ok(result.try_into()?),
            Err(message) => Err(message),
        })
    }
}

/// What a call ends with: an answer, an error that the component returned, or no answer at all.
pub(super) type Answer<T> = wasmtime::Result<Result<T, String>>;

type Match<'a> = component::TypedFunc<(&'a str, &'a str, &'a str, &'a str), (Result<types::MatchResult, String>,)>;

fn load_match<'a>(
    handle: &component::Instance,
    store: &mut Store<State>,
    index: ComponentExportIndex,
) -> wasmtime::Result<Match<'a>> {
    handle.get_typed_func(store, index)
}

#[cfg(test)]
mod tests {
    use capstan_core::room::Room;

    use super::*;

    fn limiter(limit: usize, room: &Room) -> Limiter {
        Limiter {
            used: 0,
            limit,
            elements: 0,
            answer: 0,
            share: Share::Held(room.holding(&"guest".into())),
            deadline: Instant::now(),
        }
    }

    #[tokio::test]
    async fn all_memories_of_an_instance_are_bounded_together() {
        let mut limiter = limiter(10, &Room::default());
        assert!(limiter.memory_growing(0, 4, None).await.unwrap());
        assert!(limiter.memory_growing(0, 4, None).await.unwrap());
        assert!(limiter.memory_growing(4, 7, None).await.unwrap_err().is::<OverMemory>());
        assert!(limiter.memory_growing(4, 6, None).await.unwrap());
        // Its own bound is the component's affair.
        assert!(!limiter.memory_growing(4, 1000, Some(5)).await.unwrap());
        assert_eq!(limiter.used, 10);
    }

    #[tokio::test]
    async fn what_the_daemon_has_made_for_it_counts_and_so_does_what_all_plugins_have() {
        let mut own = limiter(10, &Room::default());
        own.answer = 4;
        let more = own.memory_growing(0, 7, None).await;
        assert!(more.unwrap_err().is::<OverMemory>());
        assert!(own.memory_growing(0, 6, None).await.unwrap());

        let room = Room::new(10);
        let mut one = limiter(100, &room);
        assert!(one.memory_growing(0, 7, None).await.unwrap());
        let more = limiter(100, &room).memory_growing(0, 4, None).await;
        assert!(more.unwrap_err().is::<NoRoom>());
        drop(one);
        assert!(limiter(100, &room).memory_growing(0, 5, None).await.unwrap());
    }

    #[tokio::test]
    async fn all_tables_of_an_instance_are_bounded_together() {
        let mut limiter = limiter(0, &Room::default());
        let half = ELEMENTS / 2;
        assert!(limiter.table_growing(0, half, None).await.unwrap());
        assert!(limiter.table_growing(0, half, None).await.unwrap());
        let more = limiter.table_growing(half, half + 1, None).await;
        assert!(more.unwrap_err().is::<OverTables>());
        // Its own bound is the component's affair.
        assert!(!limiter.table_growing(half, ELEMENTS, Some(half)).await.unwrap());
        assert_eq!(limiter.elements, ELEMENTS);
    }
}

//! How components run: the configuration of wasmtime, and the ticker that interrupts a call which takes long.
//!
//! Both have one owner, so that they cannot disagree: code that is compiled to look at the epoch hangs for ever if nobody
//! moves it.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::ambient::Ambient;
use super::network::outside::Outside;
use capstan_core::manifest::Limits;
use capstan_core::room::Room;
use parking_lot::Mutex;
use tracing::warn;
use wasmtime::{Config, Enabled, EngineWeak, PoolingAllocationConfig, WasmBacktraceDetails};

/// How often a call that computes looks at its deadline, and lets other tasks run.
pub const TICK: Duration = Duration::from_millis(5);

/// The stack that a component may use; what is deeper is a recursion without end. An instance keeps what it has touched of it.
pub(super) const STACK: usize = 1 << 20;

/// Frames kept of a trap.
pub(super) const FRAMES: usize = 8;

/// Memories that the pool has for each instance. Rust, Go and Python have 1, `QuickJS` has 2. Each is 4 GiB of
/// address space.
const MEMORIES: u32 = 4;

/// Tables that the pool has for each instance. All languages that are known have 2.
const TABLES: u32 = 8;

/// Elements that the tables of an instance may have. Python starts with 5 702, Go with 6 888, and with the types of
/// Kubernetes with 12 567; `StarlingMonkey` with 7 691.
pub(super) const ELEMENTS: usize = 100_000;

/// Bytes that wasmtime may need to describe an instance, beside its memories and tables. Rust needs 9 KB, `QuickJS` 46,
/// Go 96, Python 406.
const DESCRIPTION: usize = 4 << 20;

/// What a free slot keeps of its memory, and of its stack, to save page faults of the next instance.
const KEEP: usize = 256 << 10;
const KEEP_OF_STACK: usize = 16 << 10;

/// Where components run. Cheap to clone; the ticker ends with the last clone.
#[derive(Clone)]
pub struct Engine {
    wasm: wasmtime::Engine,
    ticker: Arc<Ticker>,
    pool: Pool,
    /// The memory that all plugins share.
    room: Room,
    /// The command that starts a process for a plugin; none if there is none.
    command: Option<Arc<[OsString]>>,
    /// What the networks of all plugins have in common.
    outside: Outside,
    /// Made when the first component needs it.
    apart: Arc<Mutex<Option<Engine>>>,
    /// Where the time and the random numbers of its components come from.
    ambient: Ambient,
}

/// How many instances may exist at once. Address space is reserved for each, memory is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Instances, of all plugins together.
    pub instances: u32,
}

/// A call in progress: while there is one, the ticker ticks.
pub(super) struct Busy<'a>(&'a Ticker);

/// Why components cannot be run at all. Not worth retrying.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// wasmtime refuses its configuration, which is the case on a processor that it does not know.
    #[error("configure the engine: {0:#}")]
    Configure(wasmtime::Error),
    /// The ticker's thread.
    #[error("start the thread that keeps time for components")]
    Thread(#[source] std::io::Error),
}

struct Ticker {
    beat: Arc<Beat>,
    /// None only while it is dropped.
    thread: Option<JoinHandle<()>>,
}

/// What the ticker's thread and the calls share.
#[derive(Default)]
struct Beat {
    /// Calls in progress.
    calls: AtomicUsize,
    /// True while the thread sleeps until somebody calls.
    parked: AtomicBool,
    /// The engine is gone.
    stop: AtomicBool,
}

// === impl Pool ===

impl Pool {
    /// Returns the room that these plugins need: per permitted run one instance and one for what it asks for on the way
    /// (rule 8 of the contract), twice, because two versions of a plugin live side by side while it is replaced.
    pub fn of<'a>(limits: impl IntoIterator<Item = &'a Limits>) -> Self {
        let runs: usize = limits.into_iter().map(|limits| limits.concurrency).sum();
        Self { instances: u32::try_from(runs.saturating_mul(4)).unwrap_or(u32::MAX).max(4) }
    }

    /// Returns the pool that comes after this one for what needs more: at least twice as large, because each pool keeps its address space for as
    /// long as something runs in it, and plugins may come one by one.
    #[must_use]
    pub fn grown(self, needed: Self) -> Self {
        Self { instances: needed.instances.max(self.instances.saturating_mul(2)) }
    }

    /// Whether there is room in it for everything that needs a pool like the other.
    pub fn holds(self, other: Self) -> bool {
        self.instances >= other.instances
    }
}

// === impl Engine ===

impl Engine {
    /// Starts an engine with room for so many instances. Where the address space cannot be had (a limit of the
    /// process), each instance is allocated by itself, which is slower.
    ///
    /// # Errors
    /// [`Error`]: then no component can run on this machine.
    pub fn new(pool: Pool) -> Result<Self, Error> {
        Self::first_of(&[pool])
    }

    /// Starts an engine with the first of these pools whose address space can be had.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn first_of(pools: &[Pool]) -> Result<Self, Error> {
        let mut why = None;
        for pool in pools {
            match pooled(*pool) {
                Ok(wasm) => return Self::of(wasm, *pool),
                Err(error) => why = Some(error),
            }
        }
        let error = why.map(|error| format!("{error:#}")).unwrap_or_default();
        warn!(error, "no pool of instances; each is allocated by itself");
        Self::without_pool()
    }

    /// Returns what it has room for. Without a pool, that is as much as the machine has.
    pub fn pool(&self) -> Pool {
        self.pool
    }

    /// Returns an engine for components that do not fit the pool ([`unfit`]): it allocates each instance by itself.
    pub(super) fn apart(&self) -> Result<Self, Error> {
        let mut apart = self.apart.lock();
        if let Some(engine) = &*apart {
            return Ok(engine.clone());
        }
        let engine = Self::without_pool()?.with_room(self.room.clone()).with_outside(self.outside.clone());
        let engine = Self { ambient: self.ambient, ..engine };
        *apart = Some(engine.clone());
        Ok(engine)
    }

    fn without_pool() -> Result<Self, Error> {
        let wasm = unpooled().map_err(Error::Configure)?;
        let endless = Pool { instances: u32::MAX };
        Self::of(wasm, endless)
    }

    /// Starts an engine of this, which begins with the ticker's thread.
    pub(super) fn of(wasm: wasmtime::Engine, pool: Pool) -> Result<Self, Error> {
        let ticker = Arc::new(Ticker::start(wasm.weak()).map_err(Error::Thread)?);
        let apart = Arc::default();
        let (room, outside) = (Room::default(), Outside::default());
        Ok(Self { wasm, ticker, pool, room, command: None, outside, apart, ambient: Ambient::default() })
    }

    /// Returns the engine with what the networks of its components have in common.
    #[must_use]
    pub fn with_outside(self, outside: Outside) -> Self {
        Self { outside, ..self }
    }

    /// Returns the engine for rehearsals: for its components it is always 1 January 2000, their random numbers are the same in each run,
    /// each run has an instance of its own, and nothing outside is reached.
    #[must_use]
    pub fn rehearsing(self) -> Self {
        Self { ambient: Ambient::Rehearsal, ..self.without_network() }
    }

    /// Returns the engine for components that are only looked at: no connection is opened and no name looked up for them.
    #[must_use]
    pub fn without_network(self) -> Self {
        Self { outside: Outside::nowhere(), ..self }
    }

    /// Returns where the time and the random numbers of its components come from.
    pub(super) fn ambient(&self) -> Ambient {
        self.ambient
    }

    /// Returns what the networks of its components have in common.
    pub fn outside(&self) -> &Outside {
        &self.outside
    }

    /// Returns the engine with memory that its components share with those of other engines.
    #[must_use]
    pub fn with_room(self, room: Room) -> Self {
        Self { room, ..self }
    }

    /// Returns the engine with processes for plugins that want one: this command line starts one, and is expected to end up in
    /// [`super::loader::run_apart`].
    #[must_use]
    pub fn with_processes(self, command: impl IntoIterator<Item = OsString>) -> Self {
        Self { command: Some(command.into_iter().collect()), ..self }
    }

    /// Returns what starts a process for a plugin.
    pub(super) fn command(&self) -> Option<&Arc<[OsString]>> {
        self.command.as_ref()
    }

    /// Returns the memory that its components share.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Keeps the ticker going until the answer is dropped.
    pub(super) fn enter(&self) -> Busy<'_> {
        self.ticker.enter();
        Busy(&self.ticker)
    }

    pub(super) fn wasm(&self) -> &wasmtime::Engine {
        &self.wasm
    }
}

/// Returns what all components have in common.
pub(super) fn config() -> Config {
    let mut config = Config::new();
    config
        // Fuel would cost a fifth of the speed.
        .epoch_interruption(true)
        // Components are called one at a time; with this support a call takes 1.2 µs instead of 0.3.
        .concurrency_support(false)
        .max_wasm_stack(STACK)
        .async_stack_size(2 * STACK)
        // Otherwise the next instance would keep what this one has touched.
        .async_stack_zeroing(true)
        .wasm_backtrace_max_frames(NonZeroUsize::new(4 * FRAMES))
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        // Only for debuggers and profilers of native code.
        .native_unwind_info(false);
    config
}

/// Returns what runs components in such a pool, without a ticker.
pub(super) fn pooled(pool: Pool) -> wasmtime::Result<wasmtime::Engine> {
    wasmtime::Engine::new(config().allocation_strategy(pooling(pool)))
}

/// Returns what runs components that do not fit a pool, without a ticker.
pub(super) fn unpooled() -> wasmtime::Result<wasmtime::Engine> {
    wasmtime::Engine::new(&config())
}

/// Returns a pool for so many instances. How much each may have is bounded per plugin, see `instance::Limiter`; here it is
/// said what must be reserved ahead. A component that is loaded into the pool needs no more than the share of one instance,
/// so the pool is never exhausted before there are too many instances. What does not fit goes to [`Engine::apart`].
fn pooling(pool: Pool) -> PoolingAllocationConfig {
    let count = pool.instances;
    let mut pooling = PoolingAllocationConfig::new();
    pooling
        .total_component_instances(count)
        .total_memories(count.saturating_mul(MEMORIES))
        .max_memories_per_component(MEMORIES)
        .max_memories_per_module(MEMORIES)
        .total_tables(count.saturating_mul(TABLES))
        .max_tables_per_component(TABLES)
        .max_tables_per_module(TABLES)
        .table_elements(ELEMENTS)
        .total_stacks(count)
        // Only counted, and bounded per instance: nothing is reserved for them.
        .total_core_instances(u32::MAX)
        .max_core_instance_size(DESCRIPTION)
        .max_component_instance_size(DESCRIPTION)
        .max_unused_warm_slots(0)
        .linear_memory_keep_resident(KEEP)
        .async_stack_keep_resident(KEEP_OF_STACK)
        .table_keep_resident(64 << 10)
        .pagemap_scan(Enabled::Auto);
    pooling
}

/// Whether an error says that a component needs more than the pool has for one instance. wasmtime has no type for this, but
/// names its allocator in each of these messages, beside the limit.
pub(super) fn unfit(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| cause.to_string().contains("pooling allocator"))
}

// === impl Ticker ===

impl Ticker {
    fn start(engine: EngineWeak) -> std::io::Result<Self> {
        let beat = Arc::new(Beat::default());
        let thread = thread::Builder::new().name("ticker".into()).spawn({
            let beat = Arc::clone(&beat);
            move || beat.run(&engine)
        })?;
        Ok(Self { beat, thread: Some(thread) })
    }

    fn enter(&self) {
        let first = self.beat.calls.fetch_add(1, Ordering::SeqCst) == 0;
        if first && self.beat.parked.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    fn leave(&self) {
        self.beat.calls.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.beat.stop.store(true, Ordering::SeqCst);
        self.wake();
        let ended = self.thread.take().map(JoinHandle::join);
        debug_assert!(!matches!(ended, Some(Err(_))), "the ticker panicked");
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

// === impl Beat ===

impl Beat {
    /// Ticks while there are calls, and sleeps while there are none: an idle daemon must not wake up.
    fn run(&self, engine: &EngineWeak) {
        while !self.stop.load(Ordering::SeqCst) {
            if self.calls.load(Ordering::SeqCst) == 0 {
                self.parked.store(true, Ordering::SeqCst);
                // Asked again: a call that came in between has not seen `parked`.
                if self.calls.load(Ordering::SeqCst) == 0 && !self.stop.load(Ordering::SeqCst) {
                    thread::park();
                }
                self.parked.store(false, Ordering::SeqCst);
            } else {
                thread::park_timeout(TICK);
                match engine.upgrade() {
                    Some(engine) => engine.increment_epoch(),
                    None => return,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until the ticker sleeps or not.
    fn until_parked_is(engine: &Engine, expected: bool) {
        let begun = tokio::time::Instant::now();
        while engine.ticker.beat.parked.load(Ordering::SeqCst) != expected {
            assert!(begun.elapsed() < Duration::from_secs(5), "the ticker should be parked: {expected}");
            thread::yield_now();
        }
    }

    #[test]
    fn the_ticker_sleeps_while_there_is_no_call() {
        let engine = Engine::new(Pool { instances: 1 }).unwrap();
        until_parked_is(&engine, true);
        let (one, other) = (engine.enter(), engine.enter());
        until_parked_is(&engine, false);
        drop(one);
        assert!(!engine.ticker.beat.parked.load(Ordering::SeqCst));
        drop(other);
        until_parked_is(&engine, true);
    }

    #[test]
    fn the_ticker_ends_with_the_engine() {
        let engine = Engine::new(Pool { instances: 1 }).unwrap();
        let beat = Arc::downgrade(&engine.ticker.beat);
        let clone = engine.clone();
        drop(engine);
        assert!(beat.upgrade().is_some());
        drop(clone);
        assert!(beat.upgrade().is_none(), "the thread still has it");
    }

    #[test]
    fn the_pool_has_room_for_nested_calls_and_two_versions() {
        let limits = |concurrency| Limits { concurrency, ..Limits::default() };
        assert_eq!(Pool::of([&limits(8), &limits(2)]), Pool { instances: 40 });
        assert_eq!(Pool::of([]), Pool { instances: 4 });
    }

    #[test]
    fn plugins_that_come_one_by_one_need_few_pools() {
        let each = Limits { concurrency: 8, ..Limits::default() };
        let (mut pool, mut pools) = (Pool::of([]), 0);
        for plugins in 1..=100 {
            let needed = Pool::of((0..plugins).map(|_| &each));
            if !pool.holds(needed) {
                (pool, pools) = (pool.grown(needed), pools + 1);
            }
            assert!(pool.holds(needed));
        }
        assert_eq!((pool, pools), (Pool { instances: 4096 }, 8));
    }

    #[test]
    fn where_a_pool_with_room_to_spare_cannot_be_had_there_is_one_that_suffices() {
        let engine = Engine::first_of(&[Pool { instances: 1 << 20 }, Pool { instances: 4 }]).unwrap();
        assert!(pooled(&engine));
        assert_eq!(engine.pool(), Pool { instances: 4 });
    }

    fn pooled(engine: &Engine) -> bool {
        engine.wasm().pooling_allocator_metrics().is_some()
    }

    #[test]
    fn without_address_space_there_is_no_pool() {
        // A million instances would need 16 PiB.
        let engine = Engine::new(Pool { instances: 1 << 20 }).unwrap();
        assert!(!pooled(&engine));
        assert!(engine.pool().holds(Pool { instances: 1 << 20 }));
    }

    #[test]
    fn an_engine_says_what_it_has_room_for() {
        let engine = Engine::new(Pool { instances: 4 }).unwrap();
        assert!(pooled(&engine));
        let fits = [3, 4, 5].map(|instances| engine.pool().holds(Pool { instances }));
        assert_eq!(fits, [true, true, false]);
    }

    #[test]
    fn what_does_not_fit_the_pool_has_one_engine_beside_it() {
        let engine = Engine::new(Pool { instances: 4 }).unwrap();
        let (one, other) = (engine.apart().unwrap(), engine.clone().apart().unwrap());
        assert!(!pooled(&one));
        assert!(wasmtime::Engine::same(one.wasm(), other.wasm()));
    }
}

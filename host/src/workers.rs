//! Gives runs their threads, with slots that plugins share, and watches for polls that take too long.
//!
//! Informers, requests and pages stay on the main runtime, so they continue whatever runs do. Controllers are here,
//! beside their runs, so that a run begins and ends without another thread. There is always one thread more than
//! slots, so that timers fire, runs are handed out, and a new run finds out that it has to wait.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use capstan_core::cpu::{Account, Cpu, Held, Slots, Spent};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::Instant;

/// A metric of each plugin: its name, its help, and the function that returns its value.
type Gauge = (&'static str, &'static str, fn(&Spent) -> f64);

/// The nice value of the threads: those that watch, send and answer go first when there is not enough CPU for all.
const NICE: i32 = 5;

/// The threads and their slots. Dropping this ends them without waiting for runs under way.
pub struct Workers {
    cpu: Cpu,
    threads: Threads,
}

/// The threads on which runs compute.
enum Threads {
    /// Threads of their own.
    Own {
        /// `None` only while it is dropped.
        runtime: Option<Runtime>,
        _watch: Watch,
    },
    /// The threads of a runtime that has other users, too. Nothing watches for polls that take long.
    Given(Handle),
}

/// Metrics of the time for which plugins compute, hold a thread, or wait.
#[derive(Debug)]
pub struct Metrics(pub Cpu);

/// The thread that looks for polls that take too long. It sleeps while nothing is polled.
struct Watch {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

// === impl Workers ===

impl Workers {
    /// Starts one thread per core, some more for when threads are held for long, and the one beyond the slots.
    ///
    /// # Errors
    /// If the system refuses the threads.
    pub fn start() -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let slots = Slots { usual: cores, extra: cores.clamp(2, 16) };
        let thread = Arc::new(OnceLock::<Thread>::new());
        let cpu = Cpu::new(slots, {
            let thread = Arc::clone(&thread);
            move || {
                if let Some(thread) = thread.get() {
                    thread.unpark();
                }
            }
        });
        let watch = Watch::start(cpu.clone(), &thread)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(slots.usual + slots.extra + 1)
            .thread_name("executions")
            .on_thread_start(step_back)
            .on_thread_park(crate::allocator::give_back)
            .enable_all()
            .build()?;
        Ok(Self { cpu, threads: Threads::Own { runtime: Some(runtime), _watch: watch } })
    }

    /// Uses a runtime that exists already for runs, and starts no threads.
    pub fn here(runtime: Handle, slots: Slots) -> Self {
        Self { cpu: Cpu::new(slots, || {}), threads: Threads::Given(runtime) }
    }

    /// Returns the slots.
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// Returns the account of a plugin, which may compute for `cpu` in each second; `None` = no limit.
    pub fn account(&self, plugin: &str, cpu: Option<Duration>) -> Account {
        let quota = cpu.as_ref().map(Duration::as_secs_f64);
        self.cpu.account(&plugin.into(), quota)
    }

    /// Returns the runtime on which to spawn runs.
    pub fn runtime(&self) -> Handle {
        match &self.threads {
            Threads::Own { runtime: Some(runtime), .. } => runtime.handle().clone(),
            Threads::Own { runtime: None, .. } => Handle::current(),
            Threads::Given(runtime) => runtime.clone(),
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if let Threads::Own { runtime, .. } = &mut self.threads
            && let Some(runtime) = runtime.take()
        {
            runtime.shutdown_background();
        }
    }
}

/// Lowers the priority of the calling thread.
fn step_back() {
    // On Linux this changes the calling thread alone. A thread that has a lower priority already keeps it.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "the threads of executions are as important as the others");
    }
}

// === impl Watch ===

impl Watch {
    fn start(cpu: Cpu, slot: &OnceLock<Thread>) -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("watch".into()).spawn({
            let ended = Arc::clone(&ended);
            move || {
                while !ended.load(Ordering::Acquire) {
                    let (late, next) = cpu.look(Instant::now());
                    late.iter().for_each(tell);
                    match next {
                        Some(at) => {
                            thread::park_timeout(at.saturating_duration_since(Instant::now()));
                        }
                        None => thread::park(),
                    }
                }
            }
        })?;
        slot.get_or_init(|| thread.thread().clone());
        Ok(Self { ended, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "the watch panicked");
        }
    }
}

fn tell(late: &Held) {
    let Held { plugin, job, held } = late;
    let key = job.key.as_ref().map(ToString::to_string);
    tracing::warn!(%plugin, controller = %job.controller, key, ?held, "an execution computes for long without giving others a turn; they have other threads");
}

// === impl Metrics ===

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let spent = self.0.spent();
        let labels = |spent: &Spent| match spent.plugin.split_once('/') {
            Some((operator, plugin)) => [("operator", operator.to_owned()), ("plugin", plugin.to_owned())],
            None => [("operator", String::new()), ("plugin", spent.plugin.to_string())],
        };
        let used = ConstCounter::new(0.0);
        let help = "Time for which the executions of a plugin have computed, and the daemon on their behalf";
        let mut family = encoder.encode_descriptor("plugin_cpu_seconds", help, None, used.metric_type())?;
        for one in &spent {
            let value = ConstCounter::new(one.time.as_secs_f64());
            value.encode(family.encode_family(&labels(one))?)?;
        }
        let gauges: [Gauge; 2] = [
            (
                "plugin_held_seconds",
                "How long the longest poll of a plugin's executions under way has taken so far",
                |one| one.held.as_secs_f64(),
            ),
            ("plugin_waiting", "Executions of a plugin that wait to compute", |one| {
                f64::from(u32::try_from(one.waiting).unwrap_or(u32::MAX))
            }),
        ];
        for (name, help, value) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, ConstGauge::new(0.0).metric_type())?;
            for one in &spent {
                ConstGauge::new(value(one)).encode(family.encode_family(&labels(one))?)?;
            }
        }
        Ok(())
    }
}

//! Decides what Ctrl-C does: the first one lets everything end in order, the second one ends it at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use bench::clock::Patience;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

static STOPPED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The exit status then, as a shell has it.
pub(crate) const INTERRUPTED: u8 = 130;
/// How often a wait looks whether it has been interrupted.
pub(crate) const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

pub(crate) fn watch() -> Result<()> {
    let stopped = STOPPED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal finds nothing to shut down yet. What we have started ends with us: see
        // `process`.
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(stopped))
            .and_then(|_| flag::register(signal, Arc::clone(stopped)))
            .context("listen for Ctrl-C")?;
    }
    Ok(())
}

/// Returns an error once interrupted.
pub(crate) fn check() -> Result<(), Interrupted> {
    let stopped = STOPPED.get();
    if stopped.is_some_and(|stopped| stopped.load(Ordering::SeqCst)) { Err(Interrupted) } else { Ok(()) }
}

/// Waits a moment, or less when interrupted.
pub(crate) fn pause() -> Result<(), Interrupted> {
    thread::park_timeout(TICK);
    check()
}

/// Returns what `look` finds, asking again until it finds something; fails when that many seconds have passed, or when interrupted.
pub(crate) fn until<T>(seconds: u64, what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    Patience::new(20, seconds).until(what, || {
        check()?;
        look()
    })
}

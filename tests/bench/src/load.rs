//! Sends requests in parallel, over a few connections that are kept open: as fast as they go, or at a constant rate.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use cluster::Api;

use crate::clock::{Stopwatch, pass};
use crate::stage::Stage;

/// Connections at once.
const CONNECTIONS: usize = 4;

/// Does `send` for each number below `count`, spread over the connections.
///
/// # Errors
/// The first error of `send`; the connections then end after the request that they are at.
pub(crate) fn spread(stage: &Stage, count: usize, send: impl Fn(&Api, usize) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        let api = stage.connection()?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(());
            }
            if let Err(error) = send(&api, number) {
                next.store(count, Ordering::Relaxed);
                return Err(error);
            }
        }
    };
    together(work).map(drop)
}

/// Does `send` for 0, 1, 2, … in turn, one each `every`, until `stop`; returns what it answered. What could not be sent in
/// time is sent as soon as a connection is free.
///
/// # Errors
/// The first error of `send`; the connections then end after the request that they are at.
pub(crate) fn pace<T: Send>(
    stage: &Stage,
    every: Duration,
    stop: &AtomicBool,
    send: impl Fn(&Api, usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (next, watch) = (AtomicUsize::new(0), Stopwatch::start());
    let work = || -> Result<Vec<T>> {
        let (api, mut answers) = (stage.connection()?, Vec::new());
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let due = every.saturating_mul(u32::try_from(number)?);
            pass(due.saturating_sub(watch.spent()));
            match send(&api, number) {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(answers)
    };
    Ok(together(work)?.into_iter().flatten().collect())
}

/// Does a work once for each connection, all at the same time.
fn together<T: Send>(work: impl Fn() -> Result<T> + Sync) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let workers = [(); CONNECTIONS].map(|()| scope.spawn(&work));
        let ends = workers.map(|worker| {
            let end = worker.join();
            end.unwrap_or_else(|_| Err(anyhow!("a connection's thread has panicked")))
        });
        ends.into_iter().collect()
    })
}

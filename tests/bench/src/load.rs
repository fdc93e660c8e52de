//! Sends requests in parallel, over a few connections that are kept open: as fast as they go, or at a constant rate.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use cluster::Api;
use serde_json::Value;

use crate::clock::{Stopwatch, pass};
use crate::stage::Stage;

const CONNECTIONS: usize = 4;

pub(crate) fn create(stage: &Stage, path: &str, count: usize, object: impl Fn(usize) -> Value + Sync) -> Result<()> {
    let create = |api: &Api, number| {
        api.create(path, &object(number))?;
        Ok(())
    };
    pace(stage, count, Duration::ZERO, &AtomicBool::new(false), create).map(drop)
}

/// Does `send` for each number below `count`, one each `every`, until `stop`; returns what it answered. What could not be sent in
/// time is sent as soon as a connection is free. After an error the connections end, each after the request that it is at.
pub(crate) fn pace<T: Send>(
    stage: &Stage,
    count: usize,
    every: Duration,
    stop: &AtomicBool,
    send: impl Fn(&Api, usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (next, watch) = (AtomicUsize::new(0), Stopwatch::start());
    let work = || -> Result<Vec<T>> {
        let (api, mut answers) = (stage.connection()?, Vec::new());
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
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
    let answers = thread::scope(|scope| {
        let workers = [(); CONNECTIONS].map(|()| scope.spawn(work));
        let ends = workers.map(|worker| {
            let end = worker.join();
            end.unwrap_or_else(|_| Err(anyhow!("a connection's thread has panicked")))
        });
        ends.into_iter().collect::<Result<Vec<_>>>()
    });
    Ok(answers?.into_iter().flatten().collect())
}

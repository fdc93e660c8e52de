//! Sends requests in parallel, over a few connections that are kept open.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Result, anyhow};
use cluster::Api;

use crate::stage::Stage;

/// Connections at once.
const CONNECTIONS: usize = 4;

/// Does `send` for each number below `count`, spread over the connections.
///
/// # Errors
/// The first error of `send`; the connections then end after the request that they are at.
pub(crate) fn spread(
    stage: &Stage,
    count: usize,
    send: impl Fn(&Api, usize) -> Result<()> + Sync,
) -> Result<()> {
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
    thread::scope(|scope| {
        let workers = [(); CONNECTIONS].map(|()| scope.spawn(work));
        let ends = workers.map(|worker| {
            let end = worker.join();
            end.unwrap_or_else(|_| Err(anyhow!("a connection's thread has panicked")))
        });
        ends.into_iter().collect()
    })
}

//! Waits for signals: the first drains, the second aborts.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The exit status of an aborted process, as shells have it for SIGINT.
pub const ABORTED: u8 = 130;

/// The exit status of a process that does not end by itself in time.
pub const STUCK: u8 = 1;

/// How long the rest of the shutdown may take after the runs have ended: last events, informers.
const AFTERWARDS: Duration = Duration::from_secs(10);

/// The signals of this process.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Starts to listen for SIGINT and SIGTERM.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Cancels `stop` at the first signal. Returns the exit status at the second signal, or when the runs (`drain`) and
/// the rest of the shutdown (10 s) have taken too long.
pub async fn obey(mut signal: impl AsyncFnMut(), stop: &CancellationToken, drain: Duration) -> u8 {
    signal().await;
    tracing::info!("signal received, letting runs under way finish; once more aborts them");
    stop.cancel();
    let limit = drain.saturating_add(AFTERWARDS);
    if tokio::time::timeout(limit, signal()).await.is_ok() {
        tracing::warn!("second signal received, aborting");
        ABORTED
    } else {
        tracing::error!(?limit, "the process does not come to its end, aborting");
        STUCK
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// Obeys signals that come at these seconds.
    async fn obeyed(signals: &[u64]) -> (u8, Duration, bool) {
        let (begun, stop) = (Instant::now(), CancellationToken::new());
        let mut signals = signals.iter();
        let next = async || match signals.next() {
            Some(&at) => tokio::time::sleep_until(begun + Duration::from_secs(at)).await,
            None => std::future::pending().await,
        };
        let code = obey(next, &stop, Duration::from_secs(30)).await;
        (code, begun.elapsed(), stop.is_cancelled())
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_signal_aborts_and_so_does_an_end_that_does_not_come() {
        let seconds = Duration::from_secs;
        assert_eq!(obeyed(&[1, 3]).await, (ABORTED, seconds(3), true));
        assert_eq!(obeyed(&[1]).await, (STUCK, seconds(41), true));
    }
}

//! Waits for signals: the first drains, the second aborts.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The status with which an aborted process exits, as shells have it for SIGINT.
pub const ABORTED: u8 = 130;

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
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Cancels `stop` at the first signal and returns at the second.
    pub async fn run(mut self, stop: CancellationToken) {
        self.next().await;
        tracing::info!("signal received, letting runs under way finish; once more aborts them");
        stop.cancel();
        self.next().await;
        tracing::warn!("second signal received, aborting");
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

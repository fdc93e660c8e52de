//! Time and chance, from the daemon, which can record and replay them.

use crate::daemon;

/// Returns the time as Kubernetes writes it: `2026-01-31T12:00:00Z`.
pub fn now() -> String {
    daemon::system::now()
}

/// Returns the time in milliseconds since 1970, with fractions.
pub fn now_ms() -> f64 {
    daemon::system::now_ms()
}

/// Returns random bytes, at most 4096.
pub fn random_bytes(len: u32) -> Vec<u8> {
    daemon::system::random_bytes(len)
}

/// Returns a random UUID (version 4).
pub fn uuid() -> String {
    daemon::system::uuid()
}

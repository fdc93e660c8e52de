//! Time and chance, from the daemon, which can record and replay them.

use crate::daemon;

/// How many random bytes the daemon gives at once.
const PIECE: u32 = 4096;

/// Returns the time as Kubernetes writes it: `2026-01-31T12:00:00Z`.
pub fn now() -> String {
    daemon::system::now()
}

/// Returns the time in milliseconds since 1970, with fractions.
pub fn now_ms() -> f64 {
    daemon::system::now_ms()
}

/// Returns so many random bytes.
pub fn random_bytes(len: u32) -> Vec<u8> {
    let pieces = (0..len).step_by(PIECE as usize);
    pieces.flat_map(|start| daemon::system::random_bytes(PIECE.min(len - start))).collect()
}

/// Returns a random UUID (version 4).
pub fn uuid() -> String {
    daemon::system::uuid()
}

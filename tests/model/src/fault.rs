//! Decides what can go wrong with a request if a test wants it.

use std::time::Duration;

/// A fault that happens to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// The request is answered with this status, and not carried out.
    Answer {
        /// The HTTP code.
        code: u16,
        /// The seconds of `Retry-After`, if there is that header.
        retry_after: Option<u64>,
    },
    /// The request does not arrive.
    LoseRequest(Loss),
    /// The request is carried out, and the answer does not arrive.
    LoseAnswer(Loss),
    /// The request is carried out, and the answer breaks off after some bytes, before its end.
    Cut {
        /// The number of bytes that arrive.
        after: usize,
    },
    /// The request takes some time.
    Delay {
        /// The time until it is carried out.
        before: Duration,
        /// The time from then until it is answered.
        after: Duration,
    },
}

/// The way in which a request or an answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The connection breaks: the client knows at once.
    Broken,
    /// Nothing arrives any more, forever.
    Silent,
}

/// The error that the client gets if a connection breaks.
#[derive(Debug)]
pub struct ConnectionBroken;

impl std::fmt::Display for ConnectionBroken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection broke")
    }
}

impl std::error::Error for ConnectionBroken {}

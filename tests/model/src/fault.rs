//! Decides what can go wrong with a request, when a test says so.

use std::time::Duration;

/// What goes wrong with a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// It is answered with this status, and not carried out.
    Answer {
        /// The HTTP code.
        code: u16,
        /// The seconds of `Retry-After`, if that is said.
        retry_after: Option<u64>,
    },
    /// It does not arrive.
    LoseRequest(Loss),
    /// It is carried out, and the answer does not arrive.
    LoseAnswer(Loss),
    /// It is carried out, and the answer breaks off after so many bytes, before its end.
    Cut {
        /// How many bytes arrive.
        after: usize,
    },
    /// It takes its time.
    Delay {
        /// Until it is carried out.
        before: Duration,
        /// From then on until it is answered.
        after: Duration,
    },
}

/// How something does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The connection breaks: whoever asked knows at once.
    Broken,
    /// Nothing is heard any more, for ever.
    Silent,
}

/// What whoever asked is told if a connection breaks.
#[derive(Debug)]
pub struct ConnectionBroken;

impl std::fmt::Display for ConnectionBroken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection broke")
    }
}

impl std::error::Error for ConnectionBroken {}

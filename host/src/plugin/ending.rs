//! What it means that a call came to no answer: the failure, where it trapped, and what is said of it.

use std::time::Duration;

use capstan_core::guest::{Cause, Context, Failure};
use capstan_core::manifest::{Bytes, Limits, Time};
use capstan_core::text::{LONGEST, said, said_within};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use wasmtime::{Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::engine::{ELEMENTS, FRAMES};

/// The call took longer than the manifest allows.
#[derive(Debug, thiserror::Error)]
#[error("the call is over its time")]
pub(super) struct Overdue;

/// The component wanted more memory than the manifest allows.
#[derive(Debug, thiserror::Error)]
#[error("the component wanted more memory than it may have")]
pub(super) struct OverMemory;

/// All plugins together have no more memory.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoRoom(pub(super) String);

/// The component wanted larger tables than any may have.
#[derive(Debug, thiserror::Error)]
#[error("the component wanted larger tables than it may have")]
pub(super) struct OverTables;

/// An export is not as the contract says.
#[derive(Clone, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("`{interface}` is not as the contract says: {reason}")]
pub(super) struct Otherwise {
    pub(super) interface: String,
    pub(super) reason: String,
}

/// How a call came to no answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Ending {
    Overdue,
    OverMemory,
    NoRoom(String),
    OverTables,
    /// The component ended itself.
    Exit(i32),
    Trap {
        reason: String,
        /// The innermost function of the author's own.
        place: Option<String>,
    },
    Otherwise(Otherwise),
    /// The process that the component runs in has ended, or had to be.
    Gone(String),
    /// Anything else.
    Unusable(String),
}

/// The same with the functions on the stack, as an error.
#[derive(Clone, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("the call came to no answer: {ending:?}")]
pub(super) struct Broken {
    pub(super) ending: Ending,
    pub(super) stack: String,
}

impl Broken {
    /// Returns what an error of wasmtime means.
    pub(super) fn of(error: &wasmtime::Error) -> Self {
        match error.downcast_ref() {
            Some(Self { ending, stack }) => Self { ending: ending.clone(), stack: said(stack).into_owned() },
            None => Self { ending: Ending::of(error), stack: stack(error) },
        }
    }
}

impl From<Ending> for wasmtime::Error {
    fn from(ending: Ending) -> Self {
        let stack = String::new();
        Broken { ending, stack }.into()
    }
}

impl Ending {
    fn of(error: &wasmtime::Error) -> Self {
        if error.is::<Overdue>() {
            return Self::Overdue;
        }
        if error.is::<OverMemory>() {
            return Self::OverMemory;
        }
        if let Some(NoRoom(why)) = error.downcast_ref() {
            return Self::NoRoom(why.clone());
        }
        if error.is::<OverTables>() {
            return Self::OverTables;
        }
        if let Some(I32Exit(code)) = error.downcast_ref() {
            return Self::Exit(*code);
        }
        if let Some(otherwise) = error.downcast_ref::<Otherwise>() {
            return Self::Otherwise(otherwise.clone());
        }
        match error.downcast_ref::<Trap>() {
            Some(trap) => Self::Trap { reason: reason(*trap), place: place(error) },
            None => Self::Unusable(error.root_cause().to_string()),
        }
    }

    /// Returns the failure that it means. `words` is what the component said before.
    pub(super) fn failure(&self, limits: &Limits, words: Option<String>) -> Failure {
        // Where it trapped has room beside it.
        let words = words.map(|words| said_within(&words, LONGEST / 2).into_owned());
        match self {
            Self::Overdue => overdue(limits.timeout),
            Self::OverMemory => {
                let most = Bytes(limits.memory);
                let message = format!("the component wanted more than {most} of memory (limits.memory)");
                Failure::new(Cause::OutOfMemory, message)
            }
            Self::NoRoom(why) => {
                let message = format!("the component could not have more memory: {why}");
                Failure::new(Cause::OutOfMemory, message)
            }
            Self::OverTables => {
                let message = format!("the component wanted tables of more than {ELEMENTS} elements");
                Failure::new(Cause::OutOfMemory, message)
            }
            Self::Exit(code) => {
                let said = words.map(|words| format!(": {words}")).unwrap_or_default();
                let message = format!("the component ended itself with exit({code}){said}");
                Failure::new(Cause::Trap, message)
            }
            Self::Trap { reason, place } => {
                let place = place.as_deref().map(|name| said_within(name, LONGEST / 4));
                let place = place.map(|name| format!(" (in `{name}`)"));
                let place = place.unwrap_or_default();
                let why = words.as_deref().unwrap_or(reason);
                let message = format!("the component trapped: {why}{place}");
                Failure::new(Cause::Trap, message)
            }
            Self::Gone(why) => Failure::new(Cause::Trap, why),
            Self::Otherwise(otherwise) => unusable(&otherwise.to_string()),
            Self::Unusable(why) => unusable(why),
        }
    }
}

fn unusable(why: &str) -> Failure {
    Failure::other(format!("the call could not be made, or its answer not be read: {why}"))
}

/// Returns the failure of a call that is over its time.
pub(super) fn overdue(timeout: Duration) -> Failure {
    let message = format!("the component took longer than {} (limits.timeout)", Time(timeout));
    Failure::new(Cause::Timeout, message)
}

/// Returns when a call is given up that has to be over then: before that, if its run is.
pub(super) fn until(run: Option<&dyn Context>, deadline: Instant) -> Instant {
    run.and_then(Context::until).map_or(deadline, |until| until.min(deadline))
}

/// Returns by when to give up what a call waits for that has to be over then: early enough that the reason is told, and not that the call
/// took too long.
pub(super) fn early(deadline: Instant) -> Instant {
    let left = deadline.saturating_duration_since(Instant::now());
    deadline.checked_sub(left / 8).unwrap_or(deadline)
}

/// Returns the functions on the stack when it trapped, innermost first.
fn backtrace(error: &wasmtime::Error) -> Vec<String> {
    let frames = error.downcast_ref::<WasmBacktrace>().map(WasmBacktrace::frames).unwrap_or_default();
    let name = |frame: &wasmtime::FrameInfo| match frame.func_name() {
        Some(name) => format!("{:#}", rustc_demangle::demangle(name)),
        None => format!("function {}", frame.func_index()),
    };
    frames.iter().map(name).collect()
}

/// Returns the innermost function that is the author's own.
fn place(error: &wasmtime::Error) -> Option<String> {
    const MACHINERY: [&str; 10] =
        ["core::", "std::", "alloc::", "<core::", "<std::", "<alloc::", "__", "rust_", "abort", "function "];
    let name = backtrace(error).into_iter().find(|name| !MACHINERY.iter().any(|prefix| name.starts_with(prefix)))?;
    Some(name)
}

/// Returns the first frames, for the log.
fn stack(error: &wasmtime::Error) -> String {
    let mut frames = backtrace(error);
    frames.truncate(FRAMES);
    said(&frames.join(" < ")).into_owned()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "not our own, and open: what it says of itself is good enough")]
fn reason(trap: Trap) -> String {
    match trap {
        Trap::UnreachableCodeReached => "unreachable executed".to_owned(),
        Trap::StackOverflow => "its stack is exhausted, as by a recursion without end".to_owned(),
        Trap::MemoryOutOfBounds => "memory access out of bounds, as by a recursion without end".to_owned(),
        other => other.to_string().trim_start_matches("wasm trap: ").to_owned(),
    }
}

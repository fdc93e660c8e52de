//! What a component prints and logs: line by line into the daemon's log, as much as its budget allows.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use capstan_core::guest::RunInfo;
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tracing::{debug, error, info, trace, warn};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// A line that is longer is cut in pieces.
const LINE: usize = 8 << 10;

/// Lines kept to find out what a component said before it trapped.
const LAST: usize = 24;

/// Where the output of one execution goes. The calls of an execution take turns, so there is one call at a time.
pub(super) struct Output {
    plugin: Arc<str>,
    controller: Arc<str>,
    /// The primary, as `namespace/name`.
    key: String,
    /// The export that is called.
    call: &'static str,
    /// Bytes that one call may write (`limits.log`).
    budget: usize,
    /// What is left of it.
    left: usize,
    /// Bytes of this call that were dropped.
    dropped: usize,
    /// Begun lines.
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// The last lines of stderr in this call, the dropped ones too.
    last: VecDeque<String>,
}

/// The standard output or error of an instance.
#[derive(Clone)]
pub(super) struct Pipe {
    pub(super) output: Arc<Mutex<Output>>,
    pub(super) stream: Stream,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Standard output, logged as information.
    Out,
    /// Standard error, logged as a warning.
    Err,
}

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

// === impl Output ===

impl Output {
    /// Returns the output of an execution; without a run, of the dry run that loads a plugin.
    pub(super) fn new(plugin: Arc<str>, run: Option<&RunInfo>, budget: usize) -> Self {
        Self {
            plugin,
            controller: run.map(|run| Arc::clone(&run.controller)).unwrap_or_default(),
            key: run.map(|run| run.primary.to_string()).unwrap_or_default(),
            call: "",
            budget,
            left: budget,
            dropped: 0,
            stdout: Vec::new(),
            stderr: Vec::new(),
            last: VecDeque::new(),
        }
    }

    /// Begins a call, with a fresh budget.
    pub(super) fn begin(&mut self, call: &'static str) {
        self.call = call;
        self.left = self.budget;
        self.dropped = 0;
        self.last.clear();
    }

    /// Ends a call: lines without an end are written, and what was dropped is told.
    pub(super) fn finish(&mut self) {
        for stream in [Stream::Out, Stream::Err] {
            let rest = std::mem::take(self.begun(stream));
            if !rest.is_empty() {
                self.printed(stream, &rest);
            }
        }
        if self.dropped > 0 {
            let Self { plugin, controller, key, call, dropped, budget, .. } = self;
            warn!(target: "guest", %plugin, %controller, %key, call, dropped, budget, "output beyond limits.log was dropped (bytes)");
        }
    }

    /// Takes what was printed; whole lines go out.
    pub(super) fn print(&mut self, stream: Stream, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let begun = self.begun(stream);
            begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") || begun.len() >= LINE {
                let line = std::mem::take(begun);
                self.printed(stream, &line);
            }
        }
    }

    /// Takes a line of the interface `log`.
    pub(super) fn log(&mut self, level: Level, message: &str, fields: &[(String, String)]) {
        let mut text = String::new();
        for (name, value) in fields {
            let gap = if text.is_empty() { "" } else { " " };
            // Writing to a string cannot fail.
            let _infallible = write!(text, "{gap}{name}={value:?}");
        }
        self.line(level, message, &text);
    }

    /// Returns what the component said about its end, if it said something that looks like that: the message of a
    /// panic or of an uncaught exception, in one line.
    pub(super) fn last_words(&self) -> Option<String> {
        let lines = || self.last.iter().map(String::as_str);
        // Rust: "thread '<unnamed>' (1) panicked at src/lib.rs:3:5:", then the message.
        if let Some(at) = lines().rposition(|line| line.contains("panicked at ")) {
            let place = lines().nth(at)?.split_once("panicked at ")?.1.trim_end_matches(':');
            let message = lines().skip(at + 1).find(|line| !line.is_empty() && !line.starts_with("note: "));
            return Some(match message {
                Some(message) => format!("panicked at {place}: {message}"),
                None => format!("panicked at {place}"),
            });
        }
        // Go.
        if let Some(line) = lines().rev().find(|line| line.starts_with("panic: ") || line.starts_with("fatal error: ")) {
            return Some(line.to_owned());
        }
        // Python: the last line of a traceback.
        let traceback = lines().any(|line| line.starts_with("Traceback (most recent call last)"));
        lines().rev().find(|line| !line.is_empty()).filter(|_| traceback).map(str::to_owned)
    }

    fn begun(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Out => &mut self.stdout,
            Stream::Err => &mut self.stderr,
        }
    }

    fn printed(&mut self, stream: Stream, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end_matches(['\n', '\r']);
        match stream {
            Stream::Out => self.line(Level::Info, line, ""),
            Stream::Err => {
                if self.last.len() == LAST {
                    self.last.pop_front();
                }
                self.last.push_back(line.to_owned());
                self.line(Level::Warn, line, "");
            }
        }
    }

    /// Writes a line, if the budget allows.
    fn line(&mut self, level: Level, line: &str, fields: &str) {
        let size = line.len() + fields.len() + 1;
        if size > self.left {
            // What comes after is dropped too: a log with holes misleads.
            self.left = 0;
            self.dropped += size;
            return;
        }
        self.left -= size;
        let Self { plugin, controller, key, call, .. } = self;
        match level {
            Level::Trace => trace!(target: "guest", %plugin, %controller, %key, call, fields, "{line}"),
            Level::Debug => debug!(target: "guest", %plugin, %controller, %key, call, fields, "{line}"),
            Level::Info => info!(target: "guest", %plugin, %controller, %key, call, fields, "{line}"),
            Level::Warn => warn!(target: "guest", %plugin, %controller, %key, call, fields, "{line}"),
            Level::Error => error!(target: "guest", %plugin, %controller, %key, call, fields, "{line}"),
        }
    }
}

// === impl Pipe ===

impl IsTerminal for Pipe {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Pipe {
    /// Only asked for by WASI 0.3, which is not linked.
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Pipe {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.output.lock().print(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 << 10)
    }
}

#[async_trait]
impl Pollable for Pipe {
    async fn ready(&mut self) {}
}

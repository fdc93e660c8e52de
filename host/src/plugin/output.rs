//! What a component prints and logs: line by line into the daemon's log, as much as its budget allows.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capstan_core::bucket::{Bucket, Rate};
use capstan_core::guest::RunInfo;
use capstan_core::lately::Lately;
use capstan_core::text::one_line;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWrite;
use tokio::time::Instant;
use tracing::{debug, error, info, trace, warn};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use super::process::Wire;

/// A line that is longer is cut in pieces.
const LINE: usize = 8 << 10;

/// What a line counts for beside its own bytes: the log writes when it was said, where and about what besides.
const BESIDE: usize = 256;

/// Lines kept to find out what a component said before it trapped.
const LAST: usize = 24;

/// Bytes kept of each of them.
const WORDS: usize = 1 << 10;

/// What Rust says below each panic; nobody sets variables of a component.
const BACKTRACE: &[u8] = b"note: run with `RUST_BACKTRACE";

/// The field with a stack, and how many are remembered for how long, so that each is logged once.
const STACK: &str = "stack";
const STACKS: usize = 64;

/// The least bytes of what can be a stack.
const STACKED: usize = 16;

const REMEMBERED: Duration = Duration::from_mins(10);

/// Where the output of an instance goes. It has one call at a time, and belongs to one run at a time.
pub(super) struct Output {
    operator: Arc<str>,
    plugin: Arc<str>,
    controller: Arc<str>,
    /// The primary, as `namespace/name`.
    key: String,
    /// The export that is called.
    call: &'static str,
    /// Bytes that one call may write (`limits.log`), of which each line takes [`BESIDE`] besides its own.
    budget: usize,
    /// What is left of it.
    left: usize,
    /// What all instances of the plugin share.
    shared: Arc<Mutex<Shared>>,
    /// Bytes of this call that were dropped.
    dropped: usize,
    /// Begun lines, each shorter than [`LINE`].
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// The last lines of stderr in this call, the dropped ones too.
    last: VecDeque<String>,
}

/// What all instances of a plugin share.
pub(super) struct Shared {
    /// Bytes that all calls together may write.
    bytes: Bucket,
    /// The stacks that were logged, by their hashes.
    stacks: Lately<u64, ()>,
}

/// Whom an instance belongs to.
#[derive(Clone)]
pub(super) enum Home {
    /// This process, which is the daemon.
    Here(Arc<Mutex<Output>>),
    /// The daemon, which has started this process for it.
    Apart(Arc<Wire>),
}

/// The standard output or error of an instance.
#[derive(Clone)]
pub(super) struct Pipe {
    pub(super) home: Home,
    pub(super) stream: Stream,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stream {
    /// Standard output, logged as information.
    Out,
    /// Standard error, logged as a warning.
    Err,
}

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl Default for Shared {
    fn default() -> Self {
        Self { bytes: Bucket::default(), stacks: Lately::new(STACKS, REMEMBERED) }
    }
}

// === impl Output ===

impl Output {
    /// Returns the output of an instance that nobody uses yet. `shared` is of all instances of a plugin.
    pub(super) fn new((operator, plugin): (Arc<str>, Arc<str>), budget: usize, shared: Arc<Mutex<Shared>>) -> Self {
        Self {
            operator,
            plugin,
            controller: Arc::default(),
            key: String::new(),
            call: "",
            budget,
            left: budget,
            shared,
            dropped: 0,
            stdout: Vec::new(),
            stderr: Vec::new(),
            last: VecDeque::new(),
        }
    }

    /// Begins a run: from now on what is printed is its own. Nothing is left of the one before, because
    /// [`Output::finish`] has written its begun lines.
    pub(super) fn assign(&mut self, run: &RunInfo) {
        self.controller = Arc::clone(&run.controller);
        self.key = run.primary.as_ref().map(ToString::to_string).unwrap_or_default();
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
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let Self { operator, plugin, controller, key, call, budget, .. } = self;
            warn!(%operator, %plugin, %controller, %key, call, dropped, budget, "output beyond limits.log was dropped (bytes)");
        }
    }

    /// Counts what goes into the log otherwise, such as a failure: it is told in any case.
    pub(super) fn charge(&mut self, size: usize) {
        let cost = cost(size);
        self.left = self.left.saturating_sub(cost);
        self.has_room(cost);
    }

    /// Takes what was printed; whole lines go out. However much it is, no more than a line of it is kept.
    pub(super) fn print(&mut self, stream: Stream, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // A line that is as long as the room for it goes out, with or without an end.
            let room = bytes.len().min(LINE - self.begun(stream).len());
            let (next, _) = bytes.split_at(room);
            let end = memchr::memchr(b'\n', next).map_or(room, |at| at + 1);
            let (piece, rest) = bytes.split_at(end);
            bytes = rest;
            let begun = self.begun(stream);
            begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") || begun.len() == LINE {
                let mut line = std::mem::take(begun);
                self.printed(stream, &line);
                line.clear();
                *self.begun(stream) = line;
            }
        }
    }

    /// Takes a line of the interface `log`.
    pub(super) fn log(&mut self, level: Level, message: &str, fields: &[(String, String)]) {
        let size = message.len() + size_of(fields);
        if cost(size) > self.left {
            // What will be dropped is not put together first.
            self.drop_bytes(size);
            return;
        }
        let stack =
            fields.iter().find(|(name, value)| name == STACK && value.len() >= STACKED).map(|(_, value)| hash(value));
        let now = Instant::now();
        // Retries would fill the log with it.
        let known = stack.is_some_and(|stack| self.shared.lock().stacks.get(&stack, now).is_some());
        let value = |name: &str, value| if known && name == STACK { "as before" } else { value };
        let given = fields.iter().map(|(name, text)| (&**name, value(name, &**text))).collect::<Vec<_>>();
        let written = self.line(level, message, &serde_json::to_string(&given).unwrap_or_default());
        if let Some(stack) = stack.filter(|_| written && !known) {
            self.shared.lock().stacks.put(stack, (), now);
        }
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
        if let Some(line) = lines().rev().find(|line| line.starts_with("panic: ") || line.starts_with("fatal error: "))
        {
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
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let level = match stream {
            Stream::Out => Level::Info,
            Stream::Err => {
                if self.last.len() == LAST {
                    self.last.pop_front();
                }
                let words = line.get(..WORDS).unwrap_or(line);
                let words = String::from_utf8_lossy(words);
                let kept = words.get(..words.floor_char_boundary(WORDS));
                self.last.push_back(kept.unwrap_or_default().to_owned());
                Level::Warn
            }
        };
        // A panic of Rust has an empty line before it, and advice for whoever can set variables after it.
        if matches!(stream, Stream::Err) && (line.is_empty() || line.starts_with(BACKTRACE)) {
            return;
        }
        if cost(line.len() + 1) <= self.left {
            self.line(level, &String::from_utf8_lossy(line), "");
        } else {
            // What will be dropped is not made a text first.
            self.drop_bytes(line.len() + 1);
        }
    }

    /// What comes after is dropped too: a log with holes misleads.
    fn drop_bytes(&mut self, size: usize) {
        self.left = 0;
        self.dropped += size;
    }

    /// Takes so many bytes of what all calls of the plugin together may write: four times what one may, and that much each second.
    fn has_room(&self, size: usize) -> bool {
        let bytes = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let rate = Rate {
            interval: Duration::from_secs(1) / bytes(self.budget).max(1),
            burst: bytes(self.budget).saturating_mul(4),
        };
        let mut shared = self.shared.lock();
        shared.bytes.take_now(bytes(size), rate, Instant::now())
    }

    /// Writes a line with fields, which are JSON, pairs of texts, or nothing, if the budget allows. Returns whether it does.
    fn line(&mut self, level: Level, line: &str, fields: &str) -> bool {
        let size = line.len() + fields.len() + 1;
        let cost = cost(size);
        if cost > self.left || !self.has_room(cost) {
            self.drop_bytes(size);
            return false;
        }
        self.left -= cost;
        let line = one_line(line);
        let Self { operator, plugin, controller, key, call, .. } = self;
        match level {
            Level::Trace => {
                trace!(target: "guest", %operator, %plugin, %controller, %key, call, fields, "{line}");
            }
            Level::Debug => {
                debug!(target: "guest", %operator, %plugin, %controller, %key, call, fields, "{line}");
            }
            Level::Info => {
                info!(target: "guest", %operator, %plugin, %controller, %key, call, fields, "{line}");
            }
            Level::Warn => {
                warn!(target: "guest", %operator, %plugin, %controller, %key, call, fields, "{line}");
            }
            Level::Error => {
                error!(target: "guest", %operator, %plugin, %controller, %key, call, fields, "{line}");
            }
        }
        true
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns how many bytes fields have.
pub(super) fn size_of(fields: &[(String, String)]) -> usize {
    fields.iter().map(|(name, value)| name.len() + value.len()).sum()
}

/// Returns what a line of so many bytes takes of the budget.
fn cost(size: usize) -> usize {
    size.saturating_add(BESIDE)
}

// === impl Home ===

impl Home {
    /// Takes a line of the interface `log`.
    pub(super) fn log(&self, level: Level, message: String, fields: Vec<(String, String)>) {
        match self {
            Self::Here(output) => output.lock().log(level, &message, &fields),
            Self::Apart(wire) => wire.log(level, message, fields),
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
        match &self.home {
            Home::Here(output) => output.lock().print(self.stream, &bytes),
            Home::Apart(wire) => wire.print(self.stream, &bytes),
        }
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

#[cfg(test)]
mod tests {
    use capstan_core::object::ObjectRef;

    use super::*;
    use crate::logging::line;
    use crate::logging::writer::Form;

    /// Returns what is logged, one line each, without time.
    fn logged(budget: usize, act: impl FnOnce(&mut Output)) -> Vec<String> {
        let run = RunInfo {
            controller: "web".into(),
            primary: Some(ObjectRef::namespaced("default", "page")),
            beside: false,
            retry: None,
            primary_deleted: false,
            final_state_unknown: false,
        };
        line::tests::logged(Form::Text, || {
            let mut output = Output::new(("pages".into(), "webpage".into()), budget, Arc::default());
            output.assign(&run);
            output.begin("reconcile");
            act(&mut output);
        })
    }

    const WHERE: &str = "operator=pages plugin=webpage controller=web key=default/page call=reconcile";

    #[test]
    fn prints_are_logged_line_by_line_with_plugin_and_primary() {
        let lines = logged(2000, |output| {
            output.print(Stream::Out, b"one\ntw");
            output.print(Stream::Err, b"oh\r\n");
            output.print(Stream::Out, b"o\nthree");
            output.log(
                Level::Debug,
                "seen",
                &[("page".to_owned(), "a b".to_owned()), ("n".to_owned(), "1".to_owned())],
            );
            output.finish();
        });
        assert_eq!(
            lines,
            [
                format!("INFO one {WHERE}"),
                format!("WARN oh {WHERE}"),
                format!("INFO two {WHERE}"),
                format!(r#"DEBUG seen {WHERE} page="a b" n=1"#),
                format!("INFO three {WHERE}"),
            ]
        );
    }

    #[test]
    fn of_a_panic_what_says_nothing_is_left_out() {
        let lines = logged(2000, |output| {
            output.print(Stream::Err, b"\nthread 'main' panicked at src/lib.rs:3:5:\nno page\n");
            output
                .print(Stream::Err, b"note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n");
        });
        assert_eq!(
            lines,
            [format!("WARN thread 'main' panicked at src/lib.rs:3:5: {WHERE}"), format!("WARN no page {WHERE}")]
        );
    }

    #[test]
    fn a_line_cannot_pass_for_another() {
        let lines = logged(1000, |output| {
            let fields = [("a\nb".to_owned(), "c\nd".to_owned())];
            output.log(Level::Info, "one\nERROR two\x1b[31m", &fields);
        });
        let expected = format!(r"INFO one\nERROR two\u{{1b}}[31m {WHERE}");
        assert_eq!(lines, [&*expected, r"    a\nb: c", "    d"]);
    }

    #[test]
    fn what_is_beyond_the_budget_is_dropped_with_one_warning_until_the_next_call() {
        let lines = logged(BESIDE + 8, |output| {
            for _ in 0..100 {
                output.print(Stream::Out, b"four\n");
            }
            output.finish();
            output.begin("cleanup");
            output.print(Stream::Out, b"again\n");
            output.finish();
        });
        let dropped = format!("WARN output beyond limits.log was dropped (bytes) {WHERE} dropped=495 budget=264");
        let again = WHERE.replace("reconcile", "cleanup");
        assert_eq!(lines, [format!("INFO four {WHERE}"), dropped, format!("INFO again {again}")]);
    }

    #[tokio::test(start_paused = true)]
    async fn lines_cost_what_is_logged_with_them_however_short_they_are() {
        let calls = 100;
        let lines = logged(64 << 10, |output| {
            for _ in 0..calls {
                output.begin("reconcile");
                output.print(Stream::Out, &[b'\n'; 10_000]);
                output.finish();
            }
        });
        let (guest, told): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.starts_with("INFO"));
        assert_eq!(told.len(), calls, "one warning for each call");
        assert_eq!(guest.len(), 4 * (64 << 10) / (BESIDE + 1));
    }

    #[test]
    fn a_stack_is_logged_once_and_not_on_each_retry() {
        let stack =
            |at: &str| vec![("error".to_owned(), "oh".to_owned()), ("stack".to_owned(), format!("main < run < {at}"))];
        let lines = logged(64 << 10, |output| {
            for at in ["a.py:1", "a.py:1", "a.py:2"] {
                output.log(Level::Error, "failed", &stack(at));
            }
        });
        let line = |stack: &str| format!("ERROR failed {WHERE} error=oh stack=\"{stack}\"");
        assert_eq!(lines, [line("main < run < a.py:1"), line("as before"), line("main < run < a.py:2")]);
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let lines = logged(1 << 20, |output| {
            for _ in 0..LINE / 1024 * 2 {
                output.print(Stream::Out, &[b'x'; 1024]);
            }
        });
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn however_much_is_printed_little_is_kept() {
        let mut output = Output::new(("pages".into(), "webpage".into()), 64 << 10, Arc::default());
        let bytes = vec![0xff; 4 << 20];
        for stream in [Stream::Out, Stream::Err] {
            for _ in 0..LAST {
                output.print(stream, &bytes);
            }
        }
        let last: usize = output.last.iter().map(String::capacity).sum();
        let begun = output.stdout.capacity() + output.stderr.capacity();
        assert!(last <= LAST * WORDS && begun <= 4 * LINE, "{last} and {begun} bytes are kept");
    }

    #[test]
    fn a_line_that_is_logged_beyond_the_budget_is_dropped_with_its_fields() {
        let lines = logged(BESIDE + 10, |output| {
            output.log(Level::Info, "seen", &[("page".to_owned(), "a".repeat(100))]);
            output.finish();
        });
        let dropped = format!("WARN output beyond limits.log was dropped (bytes) {WHERE} dropped=108 budget=266");
        assert_eq!(lines, [dropped]);
    }

    #[test]
    fn the_last_words_are_what_looks_like_an_end() {
        let rust =
            "\nthread '<unnamed>' (1) panicked at src/lib.rs:3:5:\nno page\nnote: run with `RUST_BACKTRACE=1` …\n";
        let silent = "thread 'main' panicked at src/lib.rs:3:5:\nnote: run with …\n";
        let go = "panic: no page\n\ngoroutine 1 [running]:\nmain.main()\n";
        let python = "Traceback (most recent call last):\n  File \"app.py\", line 3\nValueError: no page\n";
        for (printed, words) in [
            (rust, Some("panicked at src/lib.rs:3:5: no page")),
            (silent, Some("panicked at src/lib.rs:3:5")),
            (go, Some("panic: no page")),
            (python, Some("ValueError: no page")),
            ("reconciling\n", None),
            ("", None),
        ] {
            let mut output = Output::new(("pages".into(), "webpage".into()), 0, Arc::default());
            output.print(Stream::Err, printed.as_bytes());
            assert_eq!(output.last_words().as_deref(), words, "{printed}");
            output.begin("desired");
            assert_eq!(output.last_words(), None, "of the call before");
        }
    }
}

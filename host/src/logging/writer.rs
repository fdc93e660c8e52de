//! Writes log lines to standard error on a thread of its own; it drops and counts lines rather than let callers wait.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use capstan_core::text;
use parking_lot::{Condvar, Mutex};
use serde_json::{Map, Value};
use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

use super::meter::GUEST;

/// The most bytes that wait to be written, beside as many again that are being written.
const ROOM: usize = 4 << 20;

/// The part of [`ROOM`] that lines of components may take; the rest is for the daemon's own.
const GUESTS: usize = ROOM / 2;

/// The longest line, in bytes.
const LONGEST: usize = 64 << 10;

/// The longest string in a line of JSON that is too long as a whole, in bytes.
const LONGEST_TEXT: usize = 4 << 10;

/// The bytes of memory that are kept once a burst is written.
const USUAL: usize = 64 << 10;

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    /// Notified when there is something to write.
    filled: Condvar,
    /// Notified when all is written.
    emptied: Condvar,
    dropped: AtomicU64,
    /// The part of them that was reported.
    told: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Whole lines.
    waiting: Vec<u8>,
    /// The number of these bytes that come from components.
    of_guests: usize,
    /// True while a part is being written.
    writing: bool,
}

/// The format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// As JSON objects.
    Json,
}

/// The origin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The daemon.
    Daemon,
    /// A component.
    Guest,
}

/// Puts the lines of a subscriber into a [`Queue`].
#[derive(Clone, Debug)]
pub struct Lines {
    queue: Arc<Queue>,
    form: Form,
}

/// Puts one line into the queue.
#[derive(Debug)]
pub struct Line<'a> {
    lines: &'a Lines,
    speaker: Speaker,
}

// === impl Queue ===

impl Queue {
    /// Returns the writer for a subscriber's lines.
    pub fn lines(self: &Arc<Self>, form: Form) -> Lines {
        Lines { queue: Arc::clone(self), form }
    }

    /// Starts the thread that writes to standard error. If the system refuses the thread, this can't be reported
    /// anywhere.
    pub fn start(self: &Arc<Self>) {
        let queue = Arc::clone(self);
        let thread = std::thread::Builder::new().name("log".to_owned());
        drop(thread.spawn(move || queue.write_all(&mut io::stderr())));
    }

    /// Adds a line, or drops it if too many bytes wait.
    pub fn push(&self, speaker: Speaker, line: &str) {
        let mut state = self.state.lock();
        let of_guests = match speaker {
            Speaker::Daemon => state.of_guests,
            Speaker::Guest => state.of_guests + line.len(),
        };
        if state.waiting.len() + line.len() > ROOM || of_guests > GUESTS {
            drop(state);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.of_guests = of_guests;
        state.waiting.extend_from_slice(line.as_bytes());
        drop(state);
        self.filled.notify_one();
    }

    /// Waits until all is written, at most for `limit`.
    pub fn flush(&self, limit: Duration) {
        let mut state = self.state.lock();
        let busy = |state: &mut State| state.writing || !state.waiting.is_empty();
        self.emptied.wait_while_for(&mut state, busy, limit);
    }

    /// Returns how many lines were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns how many lines were dropped since the last call.
    pub fn dropped_since(&self) -> u64 {
        let dropped = self.dropped();
        dropped - self.told.swap(dropped, Ordering::Relaxed)
    }

    /// Writes the lines that come, forever.
    fn write_all(&self, out: &mut impl io::Write) {
        let mut lines = Vec::new();
        loop {
            let mut state = self.state.lock();
            state.writing = false;
            if state.waiting.is_empty() {
                self.emptied.notify_all();
            }
            self.filled.wait_while(&mut state, |state| state.waiting.is_empty());
            std::mem::swap(&mut lines, &mut state.waiting);
            state.of_guests = 0;
            state.writing = true;
            drop(state);
            if out.write_all(&lines).is_err() {
                // This can't be reported anywhere.
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            lines.clear();
            lines.shrink_to(USUAL);
        }
    }
}

// === impl Lines ===

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Line { lines: self, speaker: Speaker::Daemon }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Self::Writer {
        Line { lines: self, speaker: if about.target() == GUEST { Speaker::Guest } else { Speaker::Daemon } }
    }
}

impl io::Write for Line<'_> {
    /// Adds a whole line: a subscriber writes each event in one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let Lines { queue, form } = self.lines;
        match form {
            Form::Text => queue.push(self.speaker, &cut(&text)),
            Form::Json => queue.push(self.speaker, &json(&text)),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Cuts a line that is too long.
fn cut(line: &str) -> std::borrow::Cow<'_, str> {
    if line.len() <= LONGEST {
        return line.into();
    }
    format!("{}\n", text::said_within(line.trim_end(), LONGEST)).into()
}

/// Returns a line of JSON without invisible characters. JSON itself escapes control characters, and it has the others
/// only in its strings, where they can be escaped.
fn json(line: &str) -> String {
    let line = if line.len() > LONGEST { shorter(line) } else { line.to_owned() };
    if line.trim_end().chars().all(text::is_plain) {
        return line;
    }
    let mut shown = String::with_capacity(line.len());
    for c in line.chars() {
        if c == '\n' || text::is_plain(c) {
            shown.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _infallible = std::fmt::Write::write_fmt(&mut shown, format_args!("\\u{unit:04x}"));
            }
        }
    }
    shown
}

/// Returns a line of JSON with shorter strings; only the main fields if the line is still too long.
fn shorter(line: &str) -> String {
    let mut event: Map<String, Value> = serde_json::from_str(line).unwrap_or_default();
    for value in event.values_mut() {
        if let Value::String(text) = value {
            *text = text::said_within(text, LONGEST_TEXT).into_owned();
        }
    }
    let whole = format!("{}\n", Value::Object(event.clone()));
    if whole.len() <= LONGEST {
        return whole;
    }
    event.retain(|field, value| {
        matches!(field.as_str(), "timestamp" | "level" | "message" | "error" | "plugin" | "controller" | "key" | "call")
            && value.is_string()
    });
    format!("{}\n", Value::Object(event))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Passes on what is written, and waits until that is taken.
    struct Pipe(mpsc::SyncSender<Vec<u8>>);

    impl io::Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn reader(queue: &Arc<Queue>) -> mpsc::Receiver<Vec<u8>> {
        let (sender, receiver) = mpsc::sync_channel(0);
        let queue = Arc::clone(queue);
        std::thread::spawn(move || queue.write_all(&mut Pipe(sender)));
        receiver
    }

    #[test]
    fn nobody_waits_for_a_reader_that_does_not_read_and_what_waits_is_bounded() {
        let queue = Arc::<Queue>::default();
        let reader = reader(&queue);
        let line = format!("{}\n", "x".repeat(1023));
        let lines = 3 * ROOM / line.len();
        for _ in 0..lines {
            queue.push(Speaker::Daemon, &line);
        }
        // It waits for the reader, and gives up.
        queue.flush(Duration::from_millis(20));
        let dropped = usize::try_from(queue.dropped()).unwrap();
        assert_eq!(queue.dropped_since(), queue.dropped());
        assert_eq!(queue.dropped_since(), 0);
        let mut read = 0;
        while read < (lines - dropped) * line.len() {
            let part = reader.recv_timeout(Duration::from_secs(10)).unwrap();
            assert!(part.len() <= ROOM && part.ends_with(b"\n"), "whole lines");
            read += part.len();
        }
        queue.flush(Duration::from_secs(10));
        assert!((lines / 3..=2 * lines / 3 + 1).contains(&(lines - dropped)), "{dropped}");
    }

    #[test]
    fn components_leave_room_for_the_daemons_own_lines() {
        let queue = Arc::<Queue>::default();
        let subscriber = tracing_subscriber::fmt().with_writer(queue.lines(Form::Text));
        tracing::subscriber::with_default(subscriber.finish(), || {
            let text = "x".repeat(1 << 10);
            for _ in 0..2 * ROOM / text.len() {
                tracing::info!(target: GUEST, "{text}");
            }
            let dropped = queue.dropped();
            assert!(dropped > 0, "components have said too much");
            for n in 0..1_000 {
                tracing::warn!(n, "the run failed");
            }
            assert_eq!(queue.dropped(), dropped, "of the daemon's own");
        });
        let reader = reader(&queue);
        let read = reader.recv_timeout(Duration::from_secs(10)).unwrap();
        let text = String::from_utf8(read).unwrap();
        let (own, others): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.contains("the run failed"));
        let others: usize = others.iter().map(|line| line.len() + 1).sum();
        assert_eq!(own.len(), 1_000);
        assert!((GUESTS - 2_000..=GUESTS).contains(&others), "{others}");
        // A written line makes room.
        queue.push(Speaker::Guest, "again\n");
        let again = reader.recv_timeout(Duration::from_secs(10));
        assert_eq!(again.unwrap(), b"again\n");
    }

    #[test]
    fn a_line_of_json_hides_nothing_and_is_bounded() {
        let event = serde_json::json!({ "timestamp": "t", "error": "a\u{202e}b\u{e0041}\n", "n": 1 });
        let line = json(&format!("{event}\n"));
        assert_eq!(line, "{\"error\":\"a\\u202eb\\udb40\\udc41\\n\",\"n\":1,\"timestamp\":\"t\"}\n");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), event);

        let long = serde_json::json!({ "level": "WARN", "error": "x".repeat(4 << 20), "key": "a/b" });
        let line = json(&format!("{long}\n"));
        let read: Value = serde_json::from_str(&line).unwrap();
        assert!(line.len() < LONGEST_TEXT + 100, "{}", line.len());
        assert_eq!((&read["level"], &read["key"]), (&"WARN".into(), &"a/b".into()));

        let many: Map<_, _> = (0..99).map(|n| (n.to_string(), "x".repeat(9_000).into())).collect();
        assert!(json(&Value::Object(many).to_string()).len() < LONGEST);
    }
}

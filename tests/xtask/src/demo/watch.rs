//! Waits for what happens to the objects of one namespace: one watch per kind, as kubectl writes it.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::clock::Stopwatch;
use crate::demo::kubectl::Kubectl;
use crate::demo::world::{Change, Event, Kind};
use crate::process::{self, Process};

/// The watches. Dropping them ends them.
pub(crate) struct Watches {
    /// Kept for their drop.
    _processes: Vec<Process>,
    clock: Stopwatch,
    receiver: Receiver<Result<Event, String>>,
}

impl Watches {
    /// Starts a watch for each kind.
    ///
    /// # Errors
    /// When kubectl can't be started.
    pub(crate) fn start(kubectl: &Kubectl) -> Result<Self> {
        let clock = Stopwatch::start();
        // More than happens while one line is written.
        let (sender, receiver) = mpsc::sync_channel(256);
        let mut processes = Vec::new();
        for kind in Kind::ALL {
            let path = format!(
                "{}/namespaces/{}/{}?watch=true&timeoutSeconds=86400",
                kind.root(),
                kubectl.namespace,
                kind.plural()
            );
            let mut command = kubectl.command(&["get", "--raw", &path]);
            let (reader, writer) = std::io::pipe()?;
            command.stdout(writer.try_clone()?).stderr(writer);
            processes.push(Process::start(command)?);
            let sender = sender.clone();
            thread::spawn(move || read(kind, clock, reader, &sender));
        }
        Ok(Self { _processes: processes, clock, receiver })
    }

    /// Returns the time that events are told in: since the watches were started.
    pub(crate) fn now(&self) -> Duration {
        self.clock.spent()
    }

    /// Returns the next event, or none if there is none for so long.
    ///
    /// # Errors
    /// When a watch has ended.
    pub(crate) fn next(&self, limit: Duration) -> Result<Option<Event>> {
        match self.receiver.recv_timeout(limit) {
            Ok(Ok(event)) => Ok(Some(event)),
            Ok(Err(why)) => bail!(why),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the watches have ended"),
        }
    }
}

fn read(kind: Kind, clock: Stopwatch, stream: impl std::io::Read, sender: &SyncSender<Result<Event, String>>) {
    process::each_line(stream, |line| {
        let event = event(kind, clock.spent(), &line);
        let event = event.with_context(|| format!("the watch of {}s said: {line}", kind.name()));
        sender.send(event.map_err(|error| error.to_string())).is_ok()
    });
    // Nobody listens any more at the end of the demo.
    drop(sender.send(Err(format!("the watch of {}s has ended", kind.name()))));
}

/// Reads a line of a watch; none if it is not an event.
fn event(kind: Kind, at: Duration, line: &str) -> Option<Event> {
    let mut line: Value = serde_json::from_str(line).ok()?;
    let change = match line.get("type")?.as_str()? {
        "ADDED" | "MODIFIED" => Change::Put,
        "DELETED" => Change::Gone,
        _ => return None,
    };
    let object = line.get_mut("object")?.take();
    Some(Event { at, kind, change, object })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_of_a_watch_is_an_event_and_an_error_is_not() {
        let at = Duration::from_millis(7);
        let line = |word: &str| json!({ "type": word, "object": { "a": 1 } }).to_string();
        let expected = |change| Event { at, kind: Kind::Service, change, object: json!({ "a": 1 }) };
        let table = [
            (line("ADDED"), Some(expected(Change::Put))),
            (line("MODIFIED"), Some(expected(Change::Put))),
            (line("DELETED"), Some(expected(Change::Gone))),
            (line("ERROR"), None),
            ("Error from server (Forbidden)".to_owned(), None),
        ];
        for (line, expected) in table {
            assert_eq!(event(Kind::Service, at, &line), expected, "{line}");
        }
    }
}

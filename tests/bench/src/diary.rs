//! Decides what a daemon's log says: which version of the probe has answered whom and when, and when versions came into force.
//!
//! A log line costs the daemon less than a status, and no request. Two versions of the component differ in one text: how they
//! fail on purpose.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// How the probe fails on purpose, as it is built.
const TEXT: &[u8] = b"fails on purpose";
/// How its second edition does, in as many bytes.
const OTHER: &[u8] = b"fails as planned";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edition {
    /// The probe as it is built.
    First,
    /// The same with another text in it.
    Second,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) edition: Edition,
    /// What `edition` was in its configuration.
    pub(crate) config: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// When, by the daemon's clock, in microseconds.
    pub(crate) at: i64,
    /// The probe, with its namespace.
    pub(crate) probe: String,
    /// The last event that the probe had heard of.
    pub(crate) event: usize,
    pub(crate) version: Version,
}

pub(crate) struct Diary {
    file: File,
    /// The begin of a line that has no end yet.
    rest: Vec<u8>,
    /// What a run has said whose second line has not come yet, by probe.
    halves: BTreeMap<String, Half>,
    pub(crate) answers: Vec<Answer>,
    /// When versions came into force, by the daemon's clock, in microseconds; the first one is 1.
    pub(crate) placed: BTreeMap<usize, i64>,
}

#[derive(Default)]
struct Half {
    event: Option<(i64, usize, Edition)>,
    config: Option<u64>,
}

/// A line of the log, as far as we read it.
#[derive(Deserialize)]
struct Line {
    timestamp: Timestamp,
    level: String,
    message: Option<String>,
    /// The probe, if the component wrote the line.
    key: Option<String>,
    /// What the component logged beside the message.
    #[serde(default)]
    fields: Fields,
    /// The version that has come into force.
    version: Option<usize>,
}

/// What the probe saw, and under which name it says so.
#[derive(Default, Deserialize)]
struct Fields {
    name: Option<String>,
    sight: Option<String>,
}

// === impl Edition ===

impl Edition {
    /// Returns the component of this edition.
    pub(crate) fn of(self, probe: &[u8]) -> Result<Vec<u8>> {
        let mut places = (0..probe.len()).filter(|at| probe.get(*at..).is_some_and(|rest| rest.starts_with(TEXT)));
        let (Some(at), None) = (places.next(), places.next()) else {
            bail!("the probe does not say exactly once how it fails on purpose");
        };
        let mut bytes = probe.to_vec();
        if let (Self::Second, Some(place)) = (self, bytes.get_mut(at..at + OTHER.len())) {
            place.copy_from_slice(OTHER);
        }
        Ok(bytes)
    }

    fn that_says(text: &str) -> Option<Self> {
        let begins = |with| text.as_bytes().starts_with(with);
        if begins(TEXT) { Some(Self::First) } else { begins(OTHER).then_some(Self::Second) }
    }
}

// === impl Diary ===

impl Diary {
    pub(crate) fn open(log: &Path) -> Result<Self> {
        Ok(Self {
            file: File::open(log).with_context(|| format!("read {}", log.display()))?,
            rest: Vec::new(),
            halves: BTreeMap::new(),
            answers: Vec::new(),
            placed: BTreeMap::new(),
        })
    }

    /// Reads what has been written since.
    pub(crate) fn read(&mut self) -> Result<()> {
        let mut bytes = std::mem::take(&mut self.rest);
        self.file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n');
        self.rest = bytes.split_off(whole.map_or(0, |end| end + 1));
        for line in bytes.split(|byte| *byte == b'\n') {
            // What is no JSON was written by something else than the log: a panic.
            match serde_json::from_slice(line) {
                Ok(line) => self.take(line)?,
                Err(_) if line.is_empty() => {}
                Err(_) => bail!("the daemon says: {}", String::from_utf8_lossy(line)),
            }
        }
        Ok(())
    }

    fn take(&mut self, line: Line) -> Result<()> {
        let message = line.message.unwrap_or_default();
        if line.level == "ERROR" {
            bail!("the daemon says: {message}");
        }
        let at = line.timestamp.as_microsecond();
        if let Some(number) = line.version {
            self.placed.insert(number, at);
        }
        if let (Some(probe), Some((name, sight))) = (line.key, line.fields.seen()) {
            self.hear(at, probe, &name, &sight);
        }
        Ok(())
    }

    /// Takes half of what a run says. A probe has one run at a time, so that the halves can't be mixed up.
    fn hear(&mut self, at: i64, probe: String, name: &str, sight: &Value) {
        let half = self.halves.entry(probe.clone()).or_default();
        if name == "config" {
            half.config = sight.get("edition").and_then(Value::as_u64);
        } else if let Some(text) = sight.get("message").and_then(Value::as_str) {
            let edition = Edition::that_says(text);
            half.event = edition.and_then(|edition| Some((at, name.parse().ok()?, edition)));
        }
        if let (Some((at, event, edition)), Some(config)) = (half.event, half.config) {
            self.halves.remove(&probe);
            let version = Version { edition, config };
            self.answers.push(Answer { at, probe, event, version });
        }
    }
}

impl Fields {
    fn seen(self) -> Option<(String, Value)> {
        Some((self.name?, serde_json::from_str(&self.sight?).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn line(key: &str, name: &str, sight: &Value) -> String {
        let fields = serde_json::json!({ "name": name, "sight": sight.to_string() });
        let line = serde_json::json!({
            "timestamp": "1970-01-01T00:00:01.000002Z", "level": "INFO", "plugin": "probe", "key": key,
            "fields": fields, "message": "seen",
        });
        format!("{line}\n")
    }

    #[test]
    fn an_answer_is_two_lines_of_one_probe_and_a_line_counts_when_it_is_whole() {
        let path = std::env::temp_dir().join(format!("diary-{}.log", std::process::id()));
        let mut log = File::create(&path).unwrap();
        let mut diary = Diary::open(&path).unwrap();
        let failed = serde_json::json!({ "code": null, "message": "fails as planned, attempt 0" });
        let config = line("a/p", "config", &serde_json::json!({ "edition": 3 }));
        let (begin, end) = config.split_at(30);
        let placed =
            r#"{"timestamp":"1970-01-01T00:00:02Z","level":"INFO","version":4,"digest":"x","message":"in force"}"#;
        writeln!(log, "{placed}").unwrap();
        write!(log, "{}{begin}", line("a/p", "17", &failed)).unwrap();
        diary.read().unwrap();
        assert_eq!(diary.answers, []);
        write!(log, "{end}{}", line("a/q", "18", &failed)).unwrap();
        diary.read().unwrap();
        let version = Version { edition: Edition::Second, config: 3 };
        let answer = Answer { at: 1_000_002, probe: "a/p".to_owned(), event: 17, version };
        assert_eq!(diary.answers, [answer]);
        assert_eq!(diary.placed, BTreeMap::from([(4, 2_000_000)]));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_wrong_with_the_daemon_ends_the_reading() {
        let path = std::env::temp_dir().join(format!("diary-wrong-{}.log", std::process::id()));
        let wrong = r#"{"timestamp":"1970-01-01T00:00:02Z","level":"ERROR","message":"no such file"}"#;
        for (text, said) in [(wrong, "no such file"), ("thread 'main' panicked", "thread 'main' panicked")] {
            std::fs::write(&path, format!("{text}\n")).unwrap();
            let read = Diary::open(&path).unwrap().read();
            assert_eq!(read.unwrap_err().to_string(), format!("the daemon says: {said}"));
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn editions_differ_in_the_one_text() {
        let probe = b"\0asm..fails on purpose, attempt ..";
        let editions = [Edition::First, Edition::Second].map(|edition| edition.of(probe).unwrap());
        assert_eq!(editions[0], probe);
        assert_eq!(editions[1], b"\0asm..fails as planned, attempt ..");
        assert!(Edition::First.of(b"\0asm").is_err());
        assert!(Edition::First.of(&[probe, &probe[..]].concat()).is_err());
    }
}

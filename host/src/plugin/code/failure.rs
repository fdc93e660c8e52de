//! What is remembered of components that could not be compiled, and whether they would fail again.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::Error;
use crate::folder::{Folder, Keep};
use crate::plugin::compiler::Limits;
use crate::read;

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Failures that are remembered.
const FAILURES: usize = 64;

/// How often this program may end while a component is compiled, before that is taken for the component's fault.
const DEATHS: u32 = 2;

/// Memory may differ so much from the last time (1 in so many parts) and count as the same.
const SAME: u64 = 4;

/// What is remembered of a component that could not be compiled.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Failure {
    /// The version of this program.
    version: String,
    limits: Limits,
    /// How it ended; none if nobody lived to say it.
    verdict: Option<Verdict>,
    /// How often it was begun without an end.
    deaths: u32,
}

/// Why a component can't be compiled.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Verdict {
    Invalid(String),
    Costly(String),
}

/// That a component is being compiled, and nothing is known of the end yet.
pub(super) struct Attempt {
    folder: Option<Arc<Folder>>,
    digest: String,
    failure: Failure,
}

impl Attempt {
    /// Writes it down, so that what ends this program does not do so again and again.
    pub(super) fn begin(folder: Option<Arc<Folder>>, digest: &str, limits: Limits) -> Self {
        let before = folder.as_ref().and_then(|folder| Failure::read(folder, digest));
        let deaths = match before {
            Some(failure) if failure.is_of(limits) => failure.deaths,
            Some(_) | None => 0,
        };
        let attempt = Self {
            folder,
            digest: digest.to_owned(),
            failure: Failure { version: VERSION.to_owned(), limits, verdict: None, deaths: deaths + 1 },
        };
        attempt.write();
        attempt
    }

    /// Remembers how it has failed.
    pub(super) fn failed(mut self, verdict: Verdict) {
        self.failure.verdict = Some(verdict);
        self.write();
    }

    fn write(&self) {
        let Some(folder) = &self.folder else {
            return;
        };
        let written = serde_json::to_vec(&self.failure).map_err(io::Error::other);
        let written = written.and_then(|text| folder.write(&Failure::name(&self.digest), &text));
        if let Err(error) = written {
            warn!(%error, "what is compiled can't be written down; it may be tried again at the next start");
        }
        folder.prune(&["failed"], Keep::Entries(FAILURES), |_| false);
    }
}

impl Drop for Attempt {
    /// It has succeeded, or nobody wants it any more.
    fn drop(&mut self) {
        if let (None, Some(folder)) = (&self.failure.verdict, &self.folder) {
            // If it was not written, it is not there.
            drop(folder.remove(&Failure::name(&self.digest)));
        }
    }
}

impl Failure {
    fn name(digest: &str) -> String {
        format!("{digest}.failed")
    }

    /// Returns what is remembered. What can't be read is as good as nothing.
    pub(super) fn read(folder: &Folder, digest: &str) -> Option<Self> {
        let content = folder.read(&Self::name(digest), read::TEXT).ok()??;
        serde_json::from_slice(&content).ok()
    }

    /// Whether it would end in the same way with these limits.
    pub(super) fn counts(&self, now: Limits) -> bool {
        self.is_of(now) && (self.verdict.is_some() || self.deaths >= DEATHS)
    }

    fn is_of(&self, now: Limits) -> bool {
        let Limits { memory, cpu, .. } = self.limits;
        // What is left of the machine's memory is never the same twice.
        let same = memory.saturating_add(memory / SAME);
        self.version == VERSION && now.memory <= same && now.cpu <= cpu
    }

    pub(super) fn error(self) -> Error {
        match self.verdict {
            Some(Verdict::Invalid(why)) => Error::Invalid(why),
            Some(Verdict::Costly(why)) => Error::Costly(format!("{why}, as was found out before")),
            None => Error::Costly(format!("the daemon was ended {} times while it was compiled", self.deaths)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMITS: Limits = Limits { memory: 1 << 30, cpu: Duration::from_mins(2), clock: Duration::from_mins(6) };

    fn failure(verdict: Option<Verdict>, deaths: u32) -> Failure {
        Failure { version: VERSION.to_owned(), limits: LIMITS, verdict, deaths }
    }

    #[test]
    fn a_failure_counts_until_there_is_more_room_or_another_program() {
        let costly = || Some(Verdict::Costly("it is a bomb".to_owned()));
        let memory = |memory| Limits { memory, ..LIMITS };
        let cpu = |seconds| Limits { cpu: Duration::from_secs(seconds), ..LIMITS };
        for (limits, expected) in [
            (LIMITS, true),
            (memory(512 << 20), true),
            (memory(1200 << 20), true),
            (memory(2 << 30), false),
            (cpu(60), true),
            (cpu(121), false),
        ] {
            assert_eq!(failure(costly(), 1).counts(limits), expected, "{limits:?}");
        }
        let mut old = failure(costly(), 1);
        old.version = "0.0.1".to_owned();
        assert!(!old.counts(LIMITS));
    }

    #[test]
    fn a_component_during_which_the_daemon_ended_is_tried_once_more() {
        assert!(!failure(None, 1).counts(LIMITS));
        assert!(failure(None, 2).counts(LIMITS));
        let why = failure(None, 2).error().to_string();
        assert_eq!(why, "the daemon was ended 2 times while it was compiled");
    }

    #[test]
    fn a_failure_is_remembered_and_an_attempt_that_nobody_wants_any_more_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Arc::new(Folder::open(&dir.path().join("code"), None).unwrap());
        let begin = || Attempt::begin(Some(Arc::clone(&folder)), "ab", LIMITS);
        let deaths = || Failure::read(&folder, "ab").map(|failure| failure.deaths);
        let attempt = begin();
        assert_eq!(deaths(), Some(1));
        std::mem::forget(attempt);
        let attempt = begin();
        assert_eq!(deaths(), Some(2));
        drop(attempt);
        assert_eq!(deaths(), None);
        begin().failed(Verdict::Costly("no".to_owned()));
        assert!(Failure::read(&folder, "ab").unwrap().verdict.is_some());
    }
}

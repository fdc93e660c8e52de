//! Remembers why the last run of a primary failed, for as long as none has ended well since, and not of more primaries than there is room
//! for.

use std::collections::HashMap;

use capstan_core::guest::FailureClass;
use capstan_core::object::ObjectRef;
use capstan_core::text::said_within;
use k8s_openapi::jiff::{Timestamp, Unit};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The most primaries of a controller whose failures are remembered: of others it is known that they fail, and not why.
const MOST: usize = 1000;

/// The longest text that is remembered of a failure, in bytes; the log has more of it.
const LONGEST: usize = 512;

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastError {
    /// When it ended, in RFC 3339.
    pub time: String,
    /// How many retries there had been before it.
    pub attempt: u32,
    /// The class of the failure, as under `retry.by` in the manifest.
    pub class: String,
    /// What the log says of it: one line of at most 512 bytes, without the content of Secrets.
    pub message: String,
}

/// Whether it is known already what a component has dealt with, or may deal with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handled {
    /// That was not so in the primary's last run, or there is no room to know it.
    New,
    /// It was the same in its last run.
    Again,
}

/// The failures of a controller's runs.
#[derive(Default)]
pub(super) struct Failing(Mutex<State>);

#[derive(Default)]
struct State {
    errors: HashMap<ObjectRef, LastError>,
    /// Whose run failed last of those that still fail.
    last: Option<ObjectRef>,
    /// What the component has dealt with in the last run.
    handled: Causes,
    /// Which failures of dependents were left to the component in the last run.
    tolerated: Causes,
}

/// The causes of failures that the runs of primaries go on in spite of.
#[derive(Default)]
struct Causes(HashMap<ObjectRef, String>);

impl LastError {
    /// Returns that of a run that ends now.
    pub(super) fn new(message: &str, class: FailureClass, attempt: u32) -> Self {
        let now = Timestamp::now();
        Self {
            time: now.round(Unit::Second).unwrap_or(now).to_string(),
            attempt,
            class: class.name().to_owned(),
            message: said_within(message, LONGEST).into_owned(),
        }
    }
}

impl Failing {
    /// Takes in how a run about a primary ended; `None`: well.
    pub(super) fn ended(&self, key: &ObjectRef, error: Option<LastError>) {
        let mut state = self.0.lock();
        let Some(error) = error else {
            state.forget(key);
            return;
        };
        if state.errors.len() < MOST || state.errors.contains_key(key) {
            state.errors.insert(key.clone(), error);
            state.last = Some(key.clone());
        }
    }

    /// Takes in what of a run's failure the component has dealt with, if it has, and returns whether that is known already (`EC-5`).
    pub(super) fn handled(&self, key: &ObjectRef, message: Option<&str>) -> Option<Handled> {
        self.0.lock().handled.hear(key, message)
    }

    /// Takes in which failures of dependents a run has left to the component, if there were any, and returns whether they are known
    /// already (`WF-9`).
    pub(super) fn tolerated(&self, key: &ObjectRef, message: Option<&str>) -> Option<Handled> {
        self.0.lock().tolerated.hear(key, message)
    }

    /// Forgets all primaries but these.
    pub(super) fn retain(&self, stays: impl Fn(&ObjectRef) -> bool) {
        let mut state = self.0.lock();
        state.errors.retain(|key, _| stays(key));
        state.handled.0.retain(|key, _| stays(key));
        state.tolerated.0.retain(|key, _| stays(key));
        if state.last.as_ref().is_some_and(|last| !stays(last)) {
            state.last = None;
        }
    }

    /// Returns why the last run of a primary failed; `None` if it ended well, or that is not remembered.
    pub(super) fn of(&self, key: &ObjectRef) -> Option<LastError> {
        self.0.lock().errors.get(key).cloned()
    }

    /// Returns how many fail, as far as is remembered.
    pub(super) fn count(&self) -> usize {
        self.0.lock().errors.len()
    }

    /// Returns the primary whose run failed last, and why; `None` if none fails.
    pub(super) fn last(&self) -> Option<(ObjectRef, LastError)> {
        let state = self.0.lock();
        let newest = || state.errors.iter().max_by_key(|(_, error)| &error.time).map(|(key, _)| key);
        let key = state.last.as_ref().or_else(newest)?;
        Some((key.clone(), state.errors.get(key)?.clone()))
    }
}

impl Causes {
    /// Takes in the cause of this run; `None`: there is none.
    fn hear(&mut self, key: &ObjectRef, message: Option<&str>) -> Option<Handled> {
        let Self(known) = self;
        let Some(message) = message else {
            known.remove(key);
            return None;
        };
        let message = said_within(message, LONGEST);
        let before = known.get(key);
        if before.is_some_and(|before| *before == message) {
            return Some(Handled::Again);
        }
        if before.is_some() || known.len() < MOST {
            known.insert(key.clone(), message.into_owned());
        }
        Some(Handled::New)
    }
}

impl State {
    fn forget(&mut self, key: &ObjectRef) {
        self.errors.remove(key);
        if self.last.as_ref() == Some(key) {
            self.last = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectRef {
        ObjectRef::namespaced("n", name)
    }

    fn error(time: &str) -> LastError {
        let error = LastError::new("no", FailureClass::Returned, 2);
        LastError { time: format!("2026-11-25T10:00:0{time}Z"), ..error }
    }

    #[test]
    fn what_fails_is_known_until_it_ends_well_or_is_gone() {
        let failing = Failing::default();
        let last = || failing.last().map(|(key, _)| key.name.to_string());
        assert_eq!((failing.count(), last()), (0, None));
        for (name, time) in [("a", "1"), ("b", "2"), ("c", "3")] {
            failing.ended(&key(name), Some(error(time)));
        }
        assert_eq!((failing.count(), last().as_deref()), (3, Some("c")));
        assert_eq!(failing.of(&key("a")), Some(error("1")));
        failing.ended(&key("c"), None);
        assert_eq!((failing.count(), last().as_deref()), (2, Some("b")), "the newest that still fails");
        failing.retain(|key| &*key.name == "a");
        assert_eq!((failing.count(), last().as_deref(), failing.of(&key("b"))), (1, Some("a"), None));
    }

    #[test]
    fn what_a_component_deals_with_is_new_once_for_each_cause() {
        // EC-5
        let failing = Failing::default();
        let handled = |name: &str, message: Option<&str>| failing.handled(&key(name), message);
        for (name, message, expected) in [
            ("a", Some("full"), Some(Handled::New)),
            ("a", Some("full"), Some(Handled::Again)),
            ("b", Some("full"), Some(Handled::New)),
            ("a", Some("away"), Some(Handled::New)),
            ("a", Some("away"), Some(Handled::Again)),
            // It ends well, or fails otherwise.
            ("a", None, None),
            ("a", Some("away"), Some(Handled::New)),
        ] {
            assert_eq!(handled(name, message), expected, "{name} {message:?}");
        }
        // WF-9: what is left to it is another matter.
        assert_eq!(failing.tolerated(&key("b"), Some("full")), Some(Handled::New));
        assert_eq!(failing.tolerated(&key("b"), Some("full")), Some(Handled::Again));
        assert_eq!(handled("b", Some("full")), Some(Handled::Again));
        failing.retain(|_| false);
        assert_eq!(failing.tolerated(&key("b"), Some("full")), Some(Handled::New));
        assert_eq!(handled("b", Some("full")), Some(Handled::New));
        for number in 0..=MOST {
            handled(&number.to_string(), Some("full"));
        }
        assert_eq!(handled(&MOST.to_string(), Some("full")), Some(Handled::New), "there is no room to know it");
    }

    #[test]
    fn what_is_remembered_is_one_line_and_no_more_than_there_is_room_for() {
        let long = LastError::new(&format!("a\n{}", "x".repeat(1000)), FailureClass::Trap, 0);
        assert!(long.message.len() <= LONGEST && long.message.starts_with(r"a\nxx"), "{}", long.message);
        assert_eq!((&*long.class, long.attempt), ("trap", 0));
        let failing = Failing::default();
        for number in 0..=MOST {
            failing.ended(&key(&number.to_string()), Some(error("1")));
        }
        assert_eq!(failing.count(), MOST);
        failing.ended(&key("0"), Some(error("2")));
        assert_eq!(failing.of(&key("0")), Some(error("2")), "it is there already");
    }
}

//! Own writes under way: decides when the window of a write opens, when it closes, and whether the echo is swallowed
//! (FW).

use std::fmt;

use super::behind::Kind;
use super::state::Facts;
use super::{Role, Source, Trigger};
use crate::cache::Cache;
use crate::dependent::managed_fields;
use crate::object::{Change, Gvk, Object, ObjectRef};

/// An own write under way, with its window (`FW-1`). If it is dropped without an answer, the write has failed
/// (`FW-5`).
#[must_use = "a window that is dropped at once filters nothing"]
pub struct OwnWrite<'a, F: FnOnce(Vec<Trigger>)> {
    source: &'a Source,
    key: ObjectRef,
    /// The object as it was known when the write began.
    known: Option<Object>,
    /// `None` once it has been called.
    tell: Option<F>,
}

impl Source {
    /// Opens a window for a write of this object that is about to start: events of the object are held (`FW-1`). Once
    /// the write has ended, `tell` is called with the triggers for the queue, if there are any.
    pub fn begin<F: FnOnce(Vec<Trigger>)>(&self, key: ObjectRef, tell: F) -> OwnWrite<'_, F> {
        {
            let mut state = self.state.write();
            let synced = state.cache(&key).map(Cache::version).unwrap_or_default();
            state.windows.open(&key, synced);
        }
        let known = self.get(&key);
        OwnWrite { source: self, key, known, tell: Some(tell) }
    }

    /// Keeps the answer of a write, so that it is read at once; its events are not filtered (`OV-1`, `RO-3`).
    ///
    /// After a deletion there is nothing to keep, unless the answer is an object that still exists and is marked for
    /// deletion.
    pub fn put(&self, answer: Object) {
        let answer = self.cut(answer);
        let facts = self.facts(&Change::Added(answer.clone()));
        self.written.note(self.kind(), &answer);
        self.state.write().put(answer, &facts);
    }

    /// Takes in the answer of a write to an object that no source reads, but may read later.
    pub fn wrote_unread(&self, gvk: &Gvk, answer: &Object) {
        self.written.note((self.spec.cluster.clone(), gvk.clone()), answer);
    }

    /// Returns what own writes are known by.
    pub(super) fn kind(&self) -> Kind {
        (self.spec.cluster.clone(), self.spec.gvk.clone())
    }

    /// Returns what an object that a run has written would have to say to be somebody's secondary, if it is nobody's: its changes cause no run.
    pub(super) fn missing(&self, facts: &Facts) -> Option<String> {
        match &self.spec.role {
            Role::Secondary(mapper) if facts.primaries.after.is_empty() => mapper.sign(),
            Role::Primary | Role::Secondary(_) => None,
        }
    }

    fn answered(&self, key: &ObjectRef, answer: Object) -> Vec<Trigger> {
        let facts = self.facts(&Change::Added(answer.clone()));
        if let Some(missing) = self.missing(&facts) {
            self.asked().tell_of_stray(key, &missing);
        }
        let released = {
            let mut state = self.state.write();
            // An answer about another object, or about one that is not watched, has no echo.
            if answer.key() == key && state.cache(key).is_some() {
                state.windows.answered(key, answer.version(), facts.primaries.after.clone());
            }
            self.written.note(self.kind(), &answer);
            state.put(answer, &facts);
            state.windows.close(key)
        };
        released.map(|released| self.released(released)).unwrap_or_default()
    }

    fn failed(&self, key: &ObjectRef) -> Vec<Trigger> {
        let released = self.state.write().windows.close(key);
        released.map(|released| self.released(released)).unwrap_or_default()
    }
}

impl<F: FnOnce(Vec<Trigger>)> OwnWrite<'_, F> {
    /// Ends the write with its answer, which is read from now on and whose echo is swallowed; not if it has made a
    /// primary, of which the queue learns by that event.
    pub fn wrote(mut self, answer: Object) {
        let answer = self.source.cut(answer);
        if self.has_made_primary(&answer) {
            return self.source.put(answer);
        }
        let triggers = self.source.answered(&self.key, answer);
        self.tell(triggers);
    }

    /// Ends the write with its answer, which is read from now on. Its echo is swallowed unless it may be the event of
    /// another client's change, as the answer differs in more than what `manager` owns, or in nothing (`FW-8`, `RO-7`).
    pub fn answered(self, answer: Object, manager: &str) {
        let answer = self.source.cut(answer);
        if self.is_alone(&answer) && managed_fields::is_our_change(self.known.as_ref(), &answer, manager) {
            self.wrote(answer);
        } else {
            tracing::debug!(object = %self.key, "the answer may be somebody else's change: its event is not swallowed");
            self.source.put(answer);
        }
    }

    fn has_made_primary(&self, answer: &Object) -> bool {
        let same = |known: &Object| known.header().uid == answer.header().uid;
        matches!(self.source.spec.role, Role::Primary) && !self.known.as_ref().is_some_and(same)
    }

    /// Returns true if no other write may have made the object, if it was not known: the answer to this one may then
    /// be somebody's change of it.
    fn is_alone(&self, answer: &Object) -> bool {
        let older = || self.source.get(&self.key).is_some_and(|other| other.version() < answer.version());
        self.known.is_some() || (self.source.state.read().windows.writes(&self.key) == 1 && !older())
    }

    fn tell(&mut self, triggers: Vec<Trigger>) {
        if let Some(tell) = self.tell.take()
            && !triggers.is_empty()
        {
            tell(triggers);
        }
    }
}

impl<F: FnOnce(Vec<Trigger>)> Drop for OwnWrite<'_, F> {
    /// `FW-5`: ends the write as failed, also when the run was cancelled or panicked.
    fn drop(&mut self) {
        if self.tell.is_some() {
            let triggers = self.source.failed(&self.key);
            self.tell(triggers);
        }
    }
}

impl<F: FnOnce(Vec<Trigger>)> fmt::Debug for OwnWrite<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnWrite({:?}, {})", self.source, self.key)
    }
}

//! Decides which triggers follow from a change, and under which keys its object is found; at once if that costs little,
//! else when it is the operator's turn.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use super::backlog::Waiting;
use super::callback::Callback;
use super::echo::Released;
use super::state::{Facts, Move};
use super::{Listener, Role, Source, Trigger, TriggerKind};
use crate::cpu;
use crate::object::{Change, Object, ObjectRef};

impl Source {
    /// Returns the keys that a change moves.
    pub(super) fn facts(&self, change: &Change) -> Facts {
        let primaries = match &self.spec.role {
            Role::Primary => Move::nowhere(),
            Role::Secondary(mapper) => match change {
                Change::Updated { old, new } if mapper.same(old, new) => {
                    Move { before: None, after: self.primaries_of_object(new) }
                }
                // What primaries say changes without the object, so it is not kept.
                Change::Added(_) | Change::Updated { .. } | Change::Deleted { .. } if mapper.asks_primaries() => {
                    Move { before: None, after: self.primaries_of(change) }
                }
                Change::Added(_) | Change::Updated { .. } | Change::Deleted { .. } => {
                    Move::of(change, |object| self.primaries_of_object(object))
                }
            },
        };
        let indexes = self.spec.indexes.iter();
        let keys = indexes
            .map(|(name, keys)| {
                Move::of(change, |object| self.asked().texts(keys, "object", object, (Callback::Index, name)))
            })
            .collect();
        Facts { primaries, keys }
    }

    /// Returns the keys of an object as it is in the caches; `None`: it is not there.
    fn facts_now(&self, object: Option<&Object>) -> Facts {
        if let Some(object) = object {
            return self.facts(&Change::Added(object.clone()));
        }
        let asks_primaries = matches!(&self.spec.role, Role::Secondary(mapper) if mapper.asks_primaries());
        let primaries = if asks_primaries { Move::nowhere() } else { Move::away() };
        Facts { primaries, keys: self.spec.indexes.iter().map(|_| Move::away()).collect() }
    }

    /// Returns the triggers for what a window releases.
    pub(super) fn released(&self, Released { change, mut mapped }: Released) -> Vec<Trigger> {
        if self.spec.is_costly() {
            return self.put_off(change, mapped);
        }
        mapped.extend(self.primaries_of(&change));
        self.triggers(change, mapped)
    }

    /// Returns the triggers for a change that no window has held.
    pub(super) fn triggers_of(&self, change: Change) -> Vec<Trigger> {
        self.released(Released { change, mapped: BTreeSet::new() })
    }

    /// Returns the primaries of a secondary before and after a change (`IM-5`).
    fn primaries_of(&self, change: &Change) -> BTreeSet<ObjectRef> {
        match &self.spec.role {
            Role::Primary => BTreeSet::new(),
            Role::Secondary(_) => Move::of(change, |object| self.primaries_of_object(object)).either(),
        }
    }

    /// Returns the triggers for a change that no window holds back (`FW-6`).
    pub(super) fn triggers(&self, change: Change, primaries: BTreeSet<ObjectRef>) -> Vec<Trigger> {
        let concerns_nobody = matches!(self.spec.role, Role::Secondary(_)) && primaries.is_empty();
        if concerns_nobody || !self.spec.filter.accepts(&change, self.asked()) {
            return Vec::new();
        }
        self.accepted(change, primaries)
    }

    /// Returns the triggers for a change that matters.
    fn accepted(&self, change: Change, primaries: BTreeSet<ObjectRef>) -> Vec<Trigger> {
        match &self.spec.role {
            Role::Primary => {
                let key = change.object().key().clone();
                let trigger = |what| Trigger { primary: key.clone(), what };
                // The daemon's state of a primary belongs to its uid.
                let before = change.made_again().map(|last| TriggerKind::Deleted { last: last.clone(), unknown: true });
                let before: Vec<_> = before.into_iter().map(trigger).collect();
                let now = trigger(TriggerKind::of(change));
                before.into_iter().chain([now]).collect()
            }
            Role::Secondary(_) => {
                let related = |primary| Trigger {
                    primary,
                    what: TriggerKind::Related {
                        source: Arc::clone(&self.spec.name),
                        object: change.object().key().clone(),
                    },
                };
                primaries.into_iter().map(related).collect()
            }
        }
    }
}

// === impl Source: what is asked later ===

impl Source {
    /// Waits until something is to be asked about. [`Source::answer`] does it.
    pub async fn has_questions(&self) {
        self.work.notified().await;
    }

    /// Asks about all that waits, and passes on the triggers. Gives others a turn after each object.
    pub async fn answer(&self, tell: &Listener) {
        while let Some(triggers) = self.ask() {
            if !triggers.is_empty() {
                tell(triggers);
            }
            cpu::rest().await;
        }
    }

    /// Waits until all that waits now has been asked about: from then on, look-ups show at least what the caches show
    /// now. Somebody has to call [`Source::answer`].
    pub async fn settled(&self) {
        let mark = self.state.read().backlog.mark();
        loop {
            let mut progress = pin!(self.progress.notified());
            progress.as_mut().enable();
            if self.state.read().backlog.is_past(mark) {
                return;
            }
            progress.await;
        }
    }

    /// Lets the look-ups follow an object later.
    pub(super) fn note(&self, key: &ObjectRef) {
        self.state.write().backlog.note(key);
        self.work.notify_one();
    }

    /// Lets a change be asked about later. Returns the triggers for the queue if there is no room to keep it: then
    /// no filter is asked, as if it had no answer.
    fn put_off(&self, change: Change, mapped: BTreeSet<ObjectRef>) -> Vec<Trigger> {
        let left = self.state.write().backlog.add(change, mapped);
        self.work.notify_one();
        let Some((change, mut primaries)) = left else {
            return Vec::new();
        };
        let known = self.state.read().related.known(change.object().key()).cloned();
        primaries.extend(known.into_iter().flatten());
        if matches!(&self.spec.role, Role::Secondary(mapper) if mapper.asks_primaries()) {
            primaries.extend(self.primaries_of(&change));
        }
        self.accepted(change, primaries)
    }

    /// Asks about the object that has waited longest. Returns the triggers for the queue; `None` if nothing waits.
    pub(super) fn ask(&self) -> Option<Vec<Trigger>> {
        let (key, waiting) = self.state.write().backlog.take()?;
        let newest = self.cached(&key);
        let facts = self.facts_now(newest.as_ref());
        let known = {
            let mut state = self.state.write();
            let known = state.related.known(&key).cloned();
            state.look_up(&key, &facts);
            state.backlog.asked();
            known
        };
        self.progress.notify_waiters();
        let change = waiting.change();
        let Waiting { first, mapped: mut primaries, .. } = waiting;
        let Some(change) = change else {
            return Some(Vec::new());
        };
        primaries.extend(known.into_iter().flatten().chain(facts.primaries.after));
        if matches!(self.spec.role, Role::Secondary(_)) {
            let newest = newest.map(|object| object.version());
            let others = first.iter().chain([change.object()]).filter(|object| Some(object.version()) != newest);
            primaries.extend(others.flat_map(|object| self.primaries_of_object(object)));
        }
        Some(self.triggers(change, primaries))
    }

    /// Returns an object as the caches have it.
    fn cached(&self, key: &ObjectRef) -> Option<Object> {
        let cache = self.state.read().cache(key).cloned();
        cache?.get(key)
    }
}

//! Decides which triggers follow from a change, and under which keys its object is found; at once if that costs little,
//! else when it is the operator's turn.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::backlog::{Refused, Waiting};
use super::callback::{Callback, questions};
use super::echo::Released;
use super::exports::Exports;
use super::filter::Sort;
use super::known::{MANY, Within};
use super::state::{Facts, Move, State};
use super::{Listener, Role, Source, Spec, Trigger, TriggerKind};
use crate::cpu;
use crate::manifest::Keys;
use crate::object::{Change, Object, ObjectRef};
use crate::queue::Urgency;

/// A run waits so long for objects to be asked about that its reads can ask about, too.
pub(super) const MOMENT: Duration = Duration::from_secs(1);

/// A read waits so long until no more is to be asked about than it can ask about itself.
const LONG: Duration = Duration::from_secs(5);

/// It is tried for so many objects at a time whether there is memory for their keys now.
const PORTION: usize = 1000;

/// More indexes than this cost too much where events come in: each goes through the text of an object.
const MANY_INDEXES: usize = 8;

impl Spec {
    /// Returns true if what the user asks about objects costs much more than a look at their text: then it is asked
    /// elsewhere than where events come in.
    pub(super) fn is_costly(&self) -> bool {
        let mapper = match &self.role {
            Role::Primary => false,
            Role::Secondary(mapper) => mapper.is_costly(),
        };
        let indexes = self.indexes.len() > MANY_INDEXES || self.indexes.values().any(Keys::is_costly);
        mapper || self.filter.is_costly() || indexes
    }
}

impl Source {
    /// Returns the keys that a change moves.
    pub(super) fn facts(&self, change: &Change) -> Facts {
        let _questions = questions();
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
        Facts { primaries, keys, related: !self.asks_primaries() }
    }

    /// Returns the keys of an object as it is in the caches; `None`: it is not there.
    fn facts_now(&self, object: Option<&Object>) -> Facts {
        if let Some(object) = object {
            return self.facts(&Change::Added(object.clone()));
        }
        let primaries = if self.asks_primaries() { Move::nowhere() } else { Move::away() };
        let keys = self.spec.indexes.iter().map(|_| Move::away()).collect();
        Facts { primaries, keys, related: !self.asks_primaries() }
    }

    /// Returns the triggers for what a window releases.
    pub(super) fn released(&self, Released { change, mut mapped }: Released) -> Vec<Trigger> {
        if self.is_costly() {
            return self.put_off(change, mapped);
        }
        mapped.extend(self.primaries_of(&change));
        self.triggers(&change, mapped)
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
    pub(super) fn triggers(&self, change: &Change, primaries: BTreeSet<ObjectRef>) -> Vec<Trigger> {
        let filter = &self.spec.filter;
        let accepts = || {
            if self.can_be_asked(change) {
                filter.accepts(change, self.asked())
            } else {
                filter.accepts_unseen(change, Sort::One)
            }
        };
        if self.concerns_nobody(&primaries) || !accepts() {
            return Vec::new();
        }
        self.accepted(change, primaries)
    }

    fn concerns_nobody(&self, primaries: &BTreeSet<ObjectRef>) -> bool {
        matches!(self.spec.role, Role::Secondary(_)) && primaries.is_empty()
    }

    /// Returns the triggers for a change that matters.
    fn accepted(&self, change: &Change, primaries: BTreeSet<ObjectRef>) -> Vec<Trigger> {
        let urgency = self.urgency(change);
        match &self.spec.role {
            Role::Primary => {
                let key = change.object().key().clone();
                let trigger = |what| Trigger { primary: key.clone(), what, urgency };
                // The daemon's state of a primary belongs to its uid.
                let before = change.made_again().map(|last| TriggerKind::Deleted { last: last.clone(), unknown: true });
                let before: Vec<_> = before.into_iter().map(trigger).collect();
                let now = trigger(TriggerKind::of(change.clone()));
                before.into_iter().chain([now]).collect()
            }
            Role::Secondary(_) => {
                let related = |primary| Trigger {
                    primary,
                    what: TriggerKind::Related {
                        source: Arc::clone(&self.spec.name),
                        object: change.object().key().clone(),
                        gone: matches!(change, Change::Deleted { .. }),
                    },
                    urgency,
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
        tokio::select! {
            () = self.work.notified() => {}
            () = self.again() => {}
        }
    }

    /// Has objects asked about again whose keys have found no room, as there may be some now; a portion of them, if there are many.
    /// Goes on after the `last` that was asked about so, and returns the last one now.
    pub fn key_again(&self, last: Option<&ObjectRef>) -> Option<ObjectRef> {
        let last = self.state.write().key_again(last, PORTION)?;
        self.work.notify_one();
        Some(last)
    }

    /// Has all primaries told that something has come or gone that may concern them.
    pub fn wake_all(&self) {
        self.state.write().everybody = true;
        self.work.notify_one();
    }

    /// Has what still waits asked about, after asking was broken off.
    pub fn ask_on(&self) {
        self.work.notify_one();
    }

    /// Asks about all that waits, and passes on the triggers. Gives others a turn after each object.
    pub async fn answer(&self, tell: &Listener, exports: &dyn Exports) {
        loop {
            if let Some(primaries) = self.index_of_primaries() {
                // What they ask may need what this source has of the component.
                exports.rest();
                primaries.settled().await;
            }
            let Some(triggers) = self.ask(exports).await else {
                return;
            };
            if !triggers.is_empty() {
                tell(triggers);
            }
            cpu::rest().await;
        }
    }

    /// Returns the primaries if objects are found by an index of theirs that is behind them for a while.
    fn index_of_primaries(&self) -> Option<&Self> {
        let Role::Secondary(mapper) = &self.spec.role else {
            return None;
        };
        let primaries = self.primaries.as_deref().filter(|primaries| primaries.spec.is_costly());
        primaries.filter(|_| mapper.index().is_some())
    }

    /// Returns true if what the user asks costs much more than a look at the text of objects: then it is asked elsewhere
    /// than where events come in.
    pub(super) fn is_costly(&self) -> bool {
        self.spec.is_costly() || self.index_of_primaries().is_some()
    }

    /// Hands over what it has put off, and is told no more, to those that continue it: to each of them all.
    pub fn hand_over(&self, heirs: &[&Self]) {
        let (backlog, everybody) = {
            let state = &mut *self.state.write();
            (std::mem::take(&mut state.backlog), std::mem::take(&mut state.everybody))
        };
        for heir in heirs {
            {
                let mut state = heir.state.write();
                state.backlog.take_over(backlog.clone());
                state.everybody |= everybody;
            }
            heir.work.notify_one();
        }
        self.progress.notify_waiters();
    }

    /// Waits until all that waits now has been asked about: from then on, look-ups show at least what the caches show
    /// now. Somebody has to call [`Source::answer`].
    pub async fn settled(&self) {
        let mark = self.state.read().backlog.mark();
        self.progressed(|state| state.backlog.is_past(mark)).await;
    }

    /// Waits until something is so.
    async fn progressed(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            let mut progress = pin!(self.progress.notified());
            progress.as_mut().enable();
            if is_so(&self.state.read()) {
                return;
            }
            progress.await;
        }
    }

    /// Waits until what waits now and may concern a primary, or any (`None`), has been asked about; for a moment only, unless that is more
    /// than reads ask about themselves.
    pub async fn settled_for(&self, primary: Option<&ObjectRef>) {
        if self.is_of_primaries() && self.spec.indexes.is_empty() {
            return;
        }
        let (home, moment) = (primary.and_then(|primary| self.home_of(primary)), Instant::now() + MOMENT);
        let mark = self.state.read().backlog.mark();
        let behind = |State { backlog, .. }: &State| if backlog.is_past(mark) { 0 } else { backlog.behind_in(home) };
        if timeout_at(moment, self.progressed(|state| behind(state) == 0)).await.is_err() {
            self.progressed(|state| behind(state) <= MANY).await;
        }
    }

    /// Waits until no more of what waits has to be asked about by a look-up within `within` than reads ask about themselves; not for long.
    pub async fn caught_up(&self, within: Within<'_>) {
        let (home, until) = match within {
            Within::Related(_) | Within::Indexed => (self.home_within(within), Instant::now() + LONG),
            Within::Object(_) | Within::Namespace(_) | Within::Everywhere => return,
        };
        // If it takes longer, reads ask about themselves.
        drop(timeout_at(until, self.progressed(|state| state.backlog.behind_in(home) <= MANY)).await);
    }

    /// Takes in that a primary has been shown an object as its own. If that waits to be asked about, no event has told whose it is: the primary
    /// is told of what becomes of it.
    pub fn was_shown(&self, object: &Object, primary: &ObjectRef) {
        if self.state.read().backlog.waits(object.key()) {
            self.state.write().backlog.concerns(object.key(), BTreeSet::from([primary.clone()]));
        }
    }

    /// Does so for objects that waited when they were read, and may not any more.
    pub(super) fn were_shown<'a>(&self, objects: impl Iterator<Item = &'a Object>, primary: &ObjectRef) {
        for object in objects {
            let mut state = self.state.write();
            let mapped = BTreeSet::from([primary.clone()]);
            let seen = state.cache(object.key()).map(|cache| cache.look(object.key()));
            let has_changed = seen.is_some_and(|(cached, seen)| {
                object.version() <= seen && cached.is_none_or(|cached| cached.version() != object.version())
            });
            if !state.backlog.concerns(object.key(), mapped.clone()) && has_changed {
                let refused = state.put_off(Change::Added(object.clone()), mapped);
                state.everybody |= refused.is_some();
                self.work.notify_one();
            }
        }
    }

    /// Lets the look-ups follow an object later.
    pub(super) fn note(&self, key: &ObjectRef) {
        self.state.write().note(key);
        self.work.notify_one();
    }

    /// Lets a change be asked about later, as [`Source::waits`] says.
    fn put_off(&self, change: Change, mapped: BTreeSet<ObjectRef>) -> Vec<Trigger> {
        let refused = self.state.write().put_off(change, mapped);
        self.waits(refused)
    }

    /// Has what now waits asked about. Returns the triggers for the queue of a change that there was no room to keep:
    /// then no filter is asked, as if it had no answer, and all primaries run that it may concern.
    pub(super) fn waits(&self, refused: Option<Refused>) -> Vec<Trigger> {
        let Some(Refused { change, first, mapped: mut primaries }) = refused else {
            self.work.notify_one();
            return Vec::new();
        };
        let key = change.object().key();
        let gone = self.facts_now(None);
        {
            let mut state = self.state.write();
            primaries.extend(state.related.known(key).cloned().into_iter().flatten());
            state.look_up(key, &gone);
            let stays = !matches!(change, Change::Deleted { .. });
            if stays {
                state.unkeyed.insert(key.clone());
            }
            state.everybody |= self.asks_primaries() || stays && !self.is_of_primaries();
        }
        self.work.notify_one();
        self.former(first.as_ref(), &change).into_iter().chain(self.accepted(&change, primaries)).collect()
    }

    pub(super) fn asks_primaries(&self) -> bool {
        matches!(&self.spec.role, Role::Secondary(mapper) if mapper.asks_primaries())
    }

    /// Asks about the object that has waited longest. Returns the triggers for the queue; `None` if nothing waits.
    pub(super) async fn ask(&self, exports: &dyn Exports) -> Option<Vec<Trigger>> {
        let (key, waiting) = {
            let mut state = self.state.write();
            // Whoever asked about it has panicked: reads ask it.
            if let Some(lost) = state.backlog.lost() {
                state.unkeyed.insert(lost);
            }
            let Some(taken) = state.backlog.take() else {
                let everybody = std::mem::take(&mut state.everybody);
                drop(state);
                // What waited has been passed on without a question, perhaps.
                self.progress.notify_waiters();
                return everybody.then(|| self.triggers_of_all());
            };
            taken
        };
        let newest = self.mapped(&key, exports).await;
        let facts = self.facts_now(newest.as_ref());
        let known = {
            let mut state = self.state.write();
            let known = state.related.known(&key).cloned();
            state.look_up(&key, &facts);
            if state.backlog.found() {
                state.have_asked(&key);
            }
            known
        };
        self.progress.notify_waiters();
        let known = known.into_iter().flatten().chain(facts.primaries.after).collect();
        let triggers = self.tell_of(waiting, newest, known, exports).await;
        let gone = self.cached(&key).is_none();
        let everybody = {
            let mut state = self.state.write();
            if gone {
                state.forget_answers(&key);
            }
            // From here on nobody else has to tell of it.
            state.backlog.told();
            std::mem::take(&mut state.everybody)
        };
        let all = if everybody { self.triggers_of_all() } else { Vec::new() };
        Some(all.into_iter().chain(triggers).collect())
    }

    /// Returns the triggers for what has waited, with the primaries that are known of its object.
    async fn tell_of(
        &self,
        waiting: Waiting,
        newest: Option<Object>,
        known: BTreeSet<ObjectRef>,
        exports: &dyn Exports,
    ) -> Vec<Trigger> {
        let change = waiting.change(newest.as_ref());
        let Waiting { first, mapped: mut primaries, mixed, .. } = waiting;
        let Some(change) = change else {
            return Vec::new();
        };
        let former = self.former(first.as_ref(), &change);
        primaries.extend(known);
        primaries.extend(self.state.write().mapped.told(change.object().key()));
        if matches!(self.spec.role, Role::Secondary(_)) {
            let asked = newest.map(|object| object.version()).filter(|_| !self.is_mapped_by_versions());
            let others = first.into_iter().chain([change.object().clone()]);
            let others = others.filter(|object| Some(object.version()) != asked).collect();
            primaries.extend(self.primaries_before(others, exports).await);
        }
        if self.concerns_nobody(&primaries) {
            return Vec::new();
        }
        let sort = if mixed { Sort::Mixed } else { Sort::One };
        let accepted = if self.can_be_asked(&change) {
            self.accepts(&change, sort, exports).await
        } else {
            self.spec.filter.accepts_unseen(&change, sort)
        };
        if !accepted {
            return Vec::new();
        }
        former.into_iter().chain(self.accepted(&change, primaries)).collect()
    }

    /// Returns the trigger for the end of a primary that was there before changes that end with the end of another one of its name (`AE-2`).
    fn former(&self, first: Option<&Object>, change: &Change) -> Option<Trigger> {
        let Change::Deleted { last, .. } = change else {
            return None;
        };
        let former = first.filter(|first| self.is_of_primaries() && first.header().uid != last.header().uid)?;
        let what = TriggerKind::Deleted { last: former.clone(), unknown: true };
        Some(Trigger { primary: former.key().clone(), what, urgency: self.urgency(change) })
    }

    /// Returns a trigger for each primary: something has gone, and it is not known whom it concerns.
    fn triggers_of_all(&self) -> Vec<Trigger> {
        let all = self.primaries.as_ref().map(|primaries| primaries.list(None)).unwrap_or_default();
        let related = |primary: &Object| Trigger {
            primary: primary.key().clone(),
            what: TriggerKind::Related {
                source: Arc::clone(&self.spec.name),
                object: ObjectRef::cluster(""),
                gone: true,
            },
            urgency: Urgency::Replayed,
        };
        all.iter().map(related).collect()
    }

    /// Returns an object as this source shows it of the caches, without own writes.
    pub fn cached(&self, key: &ObjectRef) -> Option<Object> {
        let cache = self.state.read().cache(key).cloned();
        cache?.get(key).and_then(|object| self.show(&object))
    }
}

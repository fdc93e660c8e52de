//! What a source that is told of things from outside takes in: one thing of one primary after another (IB).

use std::sync::Arc;

use tokio::time::Instant;

use super::known::Known;
use super::written::Write;
use super::{Change, External, Refused, Standing, State, Things};
use crate::object::ObjectRef;
use crate::room::Holding;

impl External {
    /// Takes in that a primary has a thing, or none with this id any more, and returns what that changes (`IB-2`). What was known
    /// of one with another uid is forgotten. `holding` returns the memory to borrow from.
    ///
    /// # Errors
    /// [`Refused`]; then nothing has changed.
    pub fn learn(
        &self,
        (primary, uid): (&ObjectRef, &str),
        id: &Arc<str>,
        now: Option<Arc<str>>,
        holding: impl FnOnce() -> Option<Holding>,
    ) -> Result<Option<Change>, Refused> {
        let mut state = self.state.lock();
        let fetched = !self.spec.is_only_told();
        if fetched {
            state.note_told(primary, uid);
        }
        let known = state.primaries.get(primary).filter(|known| *known.uid == *uid);
        let before = known.and_then(|known| known.written.now(id, known.things.get(id)));
        let change = Change::of(before, now.as_ref());
        let write = match (before, now) {
            (before, now) if before == now.as_ref() => return Ok(None),
            (None, Some(now)) => Write::Created(now),
            (Some(before), Some(now)) => Write::Replaced { before: Arc::clone(before), now },
            (_, None) => Write::Removed,
        };
        let new = known.is_none().then(|| Known::of((primary, uid), Things::new(), Standing::Polled));
        let Some(after) = new.as_ref().or(known).and_then(|known| known.after(primary, id, write)) else {
            return Ok(None);
        };
        let after = if fetched { after } else { after.settled() };
        state.put(&self.spec, (primary, id), (new, after), holding)?;
        Ok(change)
    }

    /// Forgets what it knows of a primary under another uid than this one, as [`External::forget`] does.
    pub fn forget_others(&self, primary: &ObjectRef, uid: &str) {
        self.asks.forget(primary, Some(uid));
        let mut state = self.state.lock();
        state.disown(primary, Some(uid));
        if state.primaries.get(primary).is_some_and(|known| !known.uid.is_empty() && *known.uid != *uid) {
            state.forget(primary);
        }
    }

    /// Takes in that a request only says that something of a primary has changed. Returns true if its things are read then, and it runs if they
    /// differ (`IB-6`); else nothing is known of what has changed.
    pub fn hint(&self, primary: &ObjectRef, uid: &str, now: Instant) -> bool {
        let fetched = self.spec.each().is_some();
        if fetched {
            self.ask((primary, uid), now);
        }
        fetched
    }

    /// Takes in that the component has understood a request.
    pub fn understood(&self) {
        self.state.lock().failures = 0;
    }
}

impl State {
    /// Notes that something is told of a primary now. What else it has is asked for before anybody reads it.
    fn note_told(&mut self, primary: &ObjectRef, uid: &str) {
        let told = self.doubts.tick();
        if self.primaries.get(primary).is_none_or(|known| *known.uid != *uid) {
            self.forget(primary);
            self.primaries.insert(primary.clone(), Known::of((primary, uid), Things::new(), Standing::Awaited));
        }
        if let Some(known) = self.primaries.get_mut(primary) {
            known.told = told;
        }
    }
}

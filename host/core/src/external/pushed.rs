//! What a source that is told of things from outside takes in: one thing of one primary after another (IB).

use std::sync::Arc;

use super::{External, Known, Refused, Standing, Things};
use crate::object::ObjectRef;
use crate::room::Holding;

impl External {
    /// Takes in that a primary has a thing, or none with this id any more, and returns whether that differs from before (`IB-2`). What was known
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
    ) -> Result<bool, Refused> {
        let mut state = self.state.lock();
        let before = state.primaries.get(primary).filter(|known| *known.uid == *uid);
        let things = before.map(|known| &known.things);
        if things.and_then(|things| things.get(id)) == now.as_ref() {
            return Ok(false);
        }
        let mut things: Things = things.cloned().unwrap_or_default();
        match now {
            Some(now) => drop(things.insert(Arc::clone(id), now)),
            None => drop(things.remove(id)),
        }
        state.settle(&self.spec, primary, Known::of(uid, things, Standing::Polled), holding)?;
        Ok(true)
    }

    /// Takes in that the component has understood a request.
    pub fn understood(&self) {
        self.state.lock().failures = 0;
    }
}

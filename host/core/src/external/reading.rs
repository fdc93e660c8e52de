//! Says what a source knows of a primary's things, or that it does not know that yet (XC).

use std::sync::Arc;

use super::{External, Outcome, Standing, Things};
use crate::object::ObjectRef;

/// Things that are not known yet. They must not be taken for absent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// They have not been read yet.
    #[error("source {0} has not been polled yet")]
    Awaited(Arc<str>),
    /// They are read again, as something was written that had no answer, or could not be remembered.
    #[error("source {0} has not been polled since a write that had no answer")]
    Unanswered(Arc<str>),
    /// They could not be read so far.
    #[error("source {0} has not been polled with success yet: {1}")]
    Failed(Arc<str>, Arc<str>),
}

impl External {
    /// Checks that it has been polled for all primaries at once, if it is at all.
    ///
    /// # Errors
    /// [`Unknown`].
    pub fn known(&self) -> Result<(), Unknown> {
        if self.spec.is_by_primary() {
            return Ok(());
        }
        match &self.state.lock().outcome {
            Outcome::Known => Ok(()),
            Outcome::Awaited => Err(Unknown::Awaited(Arc::clone(&self.name))),
            Outcome::Failed(why) => Err(Unknown::Failed(Arc::clone(&self.name), Arc::clone(why))),
        }
    }

    /// Checks that something is known of a primary, if the answer for all is of no use for it.
    ///
    /// # Errors
    /// [`Unknown`].
    pub fn known_of(&self, primary: &ObjectRef, uid: &str) -> Result<(), Unknown> {
        self.known()?;
        let state = self.state.lock();
        if state.doubts.has(primary, uid) {
            return Err(Unknown::Unanswered(Arc::clone(&self.name)));
        }
        let known = state.primaries.get(primary).is_some_and(|known| known.standing != Standing::Awaited);
        match state.refused.get(primary).filter(|_| !known) {
            Some(why) => Err(Unknown::Failed(Arc::clone(&self.name), Arc::clone(why))),
            None => Ok(()),
        }
    }

    /// Whether a primary has been polled by itself.
    pub fn knows(&self, primary: &ObjectRef, uid: &str) -> bool {
        self.standing(primary, uid) == Some(Standing::Polled) && !self.state.lock().doubts.has(primary, uid)
    }

    /// Returns how it stands with a primary that is polled by itself; `None`: it has not been its turn yet.
    pub fn standing(&self, primary: &ObjectRef, uid: &str) -> Option<Standing> {
        let state = self.state.lock();
        let known = state.primaries.get(primary).filter(|known| *known.uid == *uid);
        known.map(|known| known.standing).filter(|standing| *standing != Standing::Awaited)
    }

    /// Returns the things of a primary by their ids; none if it has none, or is another one than that of which it has.
    pub fn of(&self, primary: &ObjectRef, uid: &str) -> Things {
        let state = self.state.lock();
        let known = state.primaries.get(primary).filter(|known| known.uid.is_empty() || *known.uid == *uid);
        known.map(|known| known.things.clone()).unwrap_or_default()
    }

    /// Returns the things of all primaries of a namespace, or of all (`None`), ordered by primary and id.
    pub fn all(&self, namespace: Option<&str>) -> Vec<(ObjectRef, Things)> {
        let state = self.state.lock();
        let within = |key: &ObjectRef| namespace.is_none() || key.namespace.as_deref() == namespace;
        let found = state.primaries.iter().filter(|(key, _)| within(key));
        found.map(|(key, known)| (key.clone(), known.things.clone())).collect()
    }
}

//! Says what has been gone for so long that its series need not be read any more.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long the series of what is gone are kept: whoever reads them now and then reads their last values.
pub(super) const KEPT: Duration = Duration::from_hours(1);

/// The most that is gone and has its series still: who makes things and deletes them, again and again, fills no memory.
pub(super) const MOST: usize = 256;

/// What is counted, and what of it is gone.
pub(super) struct Lives<K>(Arc<Mutex<State<K>>>);

struct State<K> {
    /// How many count under each name.
    used: HashMap<K, usize>,
    /// Since when nobody does, oldest first.
    gone: VecDeque<(Instant, K)>,
}

/// Somebody counts under a name, until this is dropped.
pub(super) struct Life<K: Clone + Eq + Hash> {
    lives: Arc<Mutex<State<K>>>,
    name: K,
}

// === impl Lives ===

impl<K> Default for Lives<K> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { used: HashMap::new(), gone: VecDeque::new() })))
    }
}

impl<K: Clone + Eq + Hash> Lives<K> {
    /// Counts under a name from now on.
    pub(super) fn begin(&self, name: &K) -> Arc<Life<K>> {
        let mut state = self.0.lock();
        state.gone.retain(|(_, gone)| gone != name);
        *state.used.entry(name.clone()).or_default() += 1;
        drop(state);
        Arc::new(Life { lives: Arc::clone(&self.0), name: name.clone() })
    }

    /// Removes the series of what has been gone for long enough, by `remove`; what comes back meanwhile waits, and begins anew.
    pub(super) fn end(&self, now: Instant, remove: impl FnMut(K)) {
        let State { gone, .. } = &mut *self.0.lock();
        let old = gone.iter().take_while(|(since, _)| now >= *since + KEPT).count();
        let count = old.max(gone.len().saturating_sub(MOST));
        gone.drain(..count).map(|(_, name)| name).for_each(remove);
    }
}

impl<K: Clone + Eq + Hash> Life<K> {
    /// Returns the name.
    pub(super) fn name(&self) -> &K {
        &self.name
    }
}

impl<K: Clone + Eq + Hash> Drop for Life<K> {
    fn drop(&mut self) {
        let State { used, gone } = &mut *self.lives.lock();
        if let Some(others) = used.get_mut(&self.name).filter(|used| **used > 1) {
            *others -= 1;
            return;
        }
        used.remove(&self.name);
        gone.push_back((Instant::now(), self.name.clone()));
    }
}

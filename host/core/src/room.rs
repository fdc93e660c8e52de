//! Waits for memory, of which there are two bounded pools: one shared by all plugins, and one for all caches.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::budget::Lender;

pub mod charge;
mod state;

use state::State;

/// A pool of memory with a bound. Cheap to clone.
#[derive(Clone)]
pub struct Room(Arc<Mutex<State<Tell>>>, watch::Sender<()>);

/// Wakes a waiter; returns false if it no longer waits.
type Tell = Box<dyn FnOnce() -> bool + Send>;

/// The memory of one holder, such as an instance. It is given back on drop.
#[derive(Debug)]
pub struct Holding {
    room: Room,
    plugin: Arc<str>,
    /// Whose that is; `None`: its own.
    owners: Option<Owners>,
    bytes: u64,
    /// What it has beyond the pool.
    excess: u64,
    /// It lasts longer than a call.
    lasting: bool,
}

/// Those who share something that takes memory, such as a cache: who has many of these has no more by right than who has one.
#[derive(Clone, Debug, Default)]
pub struct Owners(Arc<Mutex<Shares>>);

#[derive(Debug, Default)]
struct Shares {
    /// How many each of them has.
    of: BTreeMap<Arc<str>, usize>,
    /// Says which of them there have been: no others ever had the same, also not where these were before.
    word: u64,
    /// The pool that it takes memory from, and the account there.
    account: Option<(Room, Arc<str>)>,
}

/// The words that owners have had.
static WORDS: AtomicU64 = AtomicU64::new(1);

/// So much any holding may have beyond the pool, in bytes, and an eighth of what it has.
const EXCESS: u64 = 64 << 10;

/// A wait for memory. Memory that arrives after the waiter has given up is given back.
struct Ask {
    room: Room,
    plugin: Arc<str>,
    bytes: u64,
    number: u64,
    got: oneshot::Receiver<()>,
}

/// There is not enough memory. Worth retrying later, except for [`Error::TooMuch`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request is larger than the pool.
    #[error("{bytes} bytes are more than the {total} that the daemon has for all plugins (--plugin-memory)")]
    TooMuch {
        /// The bytes asked for.
        bytes: u64,
        /// The bytes of the pool.
        total: u64,
    },
    /// Others hold the memory.
    #[error(
        "the {total} bytes that the daemon has for plugins (--plugin-memory) are used up: {bytes} more were waited for in vain, {most} bytes of it has {holder}"
    )]
    UsedUp {
        /// The bytes asked for.
        bytes: u64,
        /// The bytes of the pool.
        total: u64,
        /// The holder of most of it.
        holder: Arc<str>,
        /// The bytes that this holder has.
        most: u64,
    },
}

// === impl Owners ===

impl Owners {
    /// Returns all of them.
    pub fn all(&self) -> Vec<Arc<str>> {
        self.0.lock().of.keys().cloned().collect()
    }

    /// Whether this is one of them.
    pub fn has(&self, owner: &Arc<str>) -> bool {
        self.0.lock().of.contains_key(owner)
    }

    /// Adds one share of somebody. Returns false if it has others.
    pub fn add(&self, owner: &Arc<str>) -> bool {
        let mut all = self.0.lock();
        let shares = all.of.entry(Arc::clone(owner)).or_default();
        *shares += 1;
        let is_new = *shares == 1;
        if is_new {
            all.word = WORDS.fetch_add(1, Ordering::Relaxed);
        }
        is_new
    }

    /// Takes one share of somebody away. Returns true if it has no other: what is held counts for the others then.
    pub fn remove(&self, owner: &Arc<str>) -> bool {
        let account = {
            let mut all = self.0.lock();
            let Some(shares) = all.of.get_mut(owner) else {
                return false;
            };
            *shares -= 1;
            if *shares > 0 {
                return false;
            }
            all.of.remove(owner);
            all.account.clone()
        };
        if let Some((room, name)) = account {
            room.0.lock().leaves(&name, self.id(), owner);
        }
        true
    }

    /// Returns what tells them from the owners of something else.
    fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

// === impl Room ===

impl Room {
    /// Returns a pool of `total` bytes.
    pub fn new(total: u64) -> Self {
        Self(Arc::new(Mutex::new(State::new(total))), watch::Sender::default())
    }

    /// Returns how many bytes it has for all.
    pub fn total(&self) -> u64 {
        self.0.lock().total()
    }

    /// Returns true if somebody waits for memory while a plugin has more than its share.
    pub fn is_crowded_by(&self, plugin: &Arc<str>) -> bool {
        self.0.lock().is_crowded_by(plugin)
    }

    /// Returns what changes whenever somebody begins to wait for memory.
    pub fn scarcities(&self) -> watch::Receiver<()> {
        self.1.subscribe()
    }

    /// Returns the pool, which knows whose a plugin is.
    fn state(&self, plugin: &Arc<str>, owners: Option<&Owners>) -> MutexGuard<'_, State<Tell>> {
        let mut state = self.0.lock();
        if let Some(owners) = owners {
            let all = owners.0.lock();
            state.belongs(plugin, (owners.id(), all.word), all.of.keys());
        }
        state
    }

    /// Returns an empty holding for a plugin.
    pub fn holding(&self, plugin: &Arc<str>) -> Holding {
        Holding { room: self.clone(), plugin: Arc::clone(plugin), owners: None, bytes: 0, excess: 0, lasting: false }
    }
}

impl Default for Room {
    /// Returns a pool without a bound.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Room({})", self.total())
    }
}

// === impl Holding ===

impl Holding {
    /// Returns this one, empty, as that of something which is not its own. Owners have one holding of this kind.
    #[must_use]
    pub fn of(mut self, owners: &Owners) -> Self {
        owners.0.lock().account = Some((self.room.clone(), Arc::clone(&self.plugin)));
        self.owners = Some(owners.clone());
        self
    }

    /// Returns this one, empty, as that of something that lasts longer than a call.
    #[must_use]
    pub fn lasting(mut self) -> Self {
        self.lasting = true;
        self
    }

    /// Takes `bytes` more, and waits for them until `deadline` at the longest.
    ///
    /// # Errors
    /// [`Error::TooMuch`] at once, [`Error::UsedUp`] at the deadline.
    pub async fn grow(&mut self, bytes: u64, deadline: Instant) -> Result<(), Error> {
        let mut ask = {
            let mut state = self.room.state(&self.plugin, self.owners.as_ref());
            let total = state.total();
            if self.bytes.saturating_add(bytes) > total {
                return Err(Error::TooMuch { bytes, total });
            }
            if state.take(&self.plugin, bytes) {
                self.bytes += bytes;
                return Ok(());
            }
            let (tell, got) = oneshot::channel();
            let tell = Box::new(move || tell.send(()).is_ok());
            let number = state.wait(&self.plugin, bytes, tell);
            self.room.1.send_replace(());
            let Self { room, plugin, .. } = &*self;
            Ask { room: room.clone(), plugin: Arc::clone(plugin), bytes, number, got }
        };
        // The memory may have come in time, or just after the deadline.
        let in_time = timeout_at(deadline, &mut ask.got).await;
        if matches!(in_time, Ok(Ok(()))) || ask.has_got() {
            ask.bytes = 0;
            self.bytes += bytes;
            return Ok(());
        }
        Err(self.used_up(bytes))
    }

    /// Takes `bytes` more if they are available at once and no other holder of the plugin waits. Returns true if they
    /// were taken.
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let had = {
            let mut state = self.room.state(&self.plugin, self.owners.as_ref());
            if self.lasting { state.take_lasting(&self.plugin, bytes) } else { state.take(&self.plugin, bytes) }
        };
        if had {
            self.bytes += bytes;
        }
        had
    }

    /// Takes `bytes` more, even beyond the bound.
    pub fn grow_anyway(&mut self, bytes: u64) {
        let mut state = self.room.state(&self.plugin, self.owners.as_ref());
        state.hand_out(&self.plugin, bytes);
        if self.lasting {
            state.lasts(&self.plugin, bytes, 0);
        }
        drop(state);
        self.bytes += bytes;
    }

    /// Takes `bytes` more, beyond the pool if that has none: no more than a small share of what is held, so that nobody else has less
    /// for it. Returns true if they were taken.
    pub fn exceed(&mut self, bytes: u64) -> bool {
        if self.try_grow(bytes) {
            return true;
        }
        let fits = self.excess.saturating_add(bytes) <= self.bytes / 8 + EXCESS;
        if fits {
            self.excess += bytes;
        }
        fits
    }

    /// Gives `bytes` back.
    pub fn shrink(&mut self, bytes: u64) {
        let beyond = bytes.min(self.excess);
        self.excess -= beyond;
        let bytes = bytes - beyond;
        let bytes = bytes.min(self.bytes);
        if bytes > 0 {
            self.bytes -= bytes;
            self.give_back(bytes);
        }
    }

    fn give_back(&self, bytes: u64) {
        let mut state = self.room.0.lock();
        if self.lasting {
            state.lasts(&self.plugin, 0, bytes);
        }
        state.give_back(&self.plugin, bytes);
    }

    fn used_up(&self, bytes: u64) -> Error {
        let state = self.room.0.lock();
        let (holder, most) = state.most().unwrap_or_default();
        Error::UsedUp { bytes, total: state.total(), holder, most }
    }
}

impl Lender for Holding {
    fn lend(&mut self, bytes: usize) -> bool {
        self.try_grow(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.give_back(self.bytes);
        }
    }
}

// === impl Ask ===

impl Ask {
    /// Ends the wait and returns true if the memory has come.
    fn has_got(&mut self) -> bool {
        self.got.close();
        self.got.try_recv().is_ok()
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let got = self.has_got();
        let mut state = self.room.0.lock();
        if got {
            state.give_back(&self.plugin, self.bytes);
        } else {
            state.leave(&self.plugin, self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(4)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_there_is_waited_for_until_the_deadline_and_then_told_with_who_has_it() {
        let room = Room::new(100);
        let (mut hog, mut other) = (room.holding(&"hog".into()), room.holding(&"other".into()));
        assert_eq!(hog.grow(75, soon()).await, Ok(()));
        let begun = Instant::now();
        let refused = other.grow(60, soon()).await.unwrap_err();
        assert_eq!(begun.elapsed(), Duration::from_secs(4));
        assert_eq!(
            refused.to_string(),
            "the 100 bytes that the daemon has for plugins (--plugin-memory) are used up: 60 more were waited for in vain, 75 bytes of it has hog"
        );
        let (got, ()) = tokio::join!(other.grow(60, soon()), async { drop(hog) });
        assert_eq!(got, Ok(()));
        drop(other);
        assert_eq!(room.holding(&"new".into()).grow(75, soon()).await, Ok(()));
    }

    #[test]
    fn what_lasts_longer_than_calls_leaves_something_for_those() {
        let room = Room::new(800);
        let holding = || room.holding(&"p".into());
        let (mut keys, mut things) = (holding().lasting(), holding().lasting());
        assert!(keys.try_grow(60) && things.try_grow(40), "an eighth");
        assert!(!keys.try_grow(1) && !things.try_grow(1));
        assert!(holding().try_grow(100), "calls have their share");
        keys.shrink(10);
        assert!(things.try_grow(10));
        drop(keys);
        assert!(things.try_grow(50) && !things.try_grow(1));
        things.grow_anyway(5);
        things.shrink(6);
        assert!(things.try_grow(1) && !things.try_grow(1));
    }

    #[test]
    fn those_who_have_left_what_stays_lessen_nobodys_share() {
        let room = Room::new(1000);
        let owners = Owners::default();
        owners.add(&"stays".into());
        let mut cache = room.holding(&"common".into()).of(&owners);
        for number in 0..1000 {
            let guest = format!("guest {number}").into();
            assert!(owners.add(&guest) && !owners.add(&guest));
            assert!(number > 99 || cache.try_grow(1));
            assert!(!owners.remove(&guest) && owners.remove(&guest) && !owners.remove(&guest));
        }
        let mut hog = room.holding(&"hog".into());
        while hog.try_grow(1) {}
        let mut other = room.holding(&"other".into());
        assert!(other.try_grow(100) && other.try_grow(25), "its share is a quarter, as far as an eighth stays free");
    }

    #[test]
    fn owners_that_come_to_be_where_others_were_are_others() {
        let room = Room::new(1000);
        let mut stays = room.holding(&"common".into()).of(&Owners::default());
        assert!(stays.try_grow(10));
        for number in 0..100 {
            let (owners, owner) = (Owners::default(), format!("owner {number}").into());
            owners.add(&owner);
            let mut cache = room.holding(&"common".into()).of(&owners);
            assert!(cache.try_grow(1));
            let name = Arc::from("common");
            assert!(room.0.lock().is_of(&name, &owner), "{owner}");
            drop(cache);
            owners.remove(&owner);
            assert!(!room.0.lock().is_of(&name, &owner), "{owner}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_never_be_is_refused_at_once() {
        let mut holding = Room::new(100).holding(&"a".into());
        assert_eq!(holding.grow(60, soon()).await, Ok(()));
        let refused = Error::TooMuch { bytes: 41, total: 100 };
        assert_eq!(holding.grow(41, soon()).now_or_never(), Some(Err(refused)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_to_one_who_has_gone_is_given_back() {
        let room = Room::new(100);
        let plugin = "a".into();
        let (mut one, mut other) = (room.holding(&plugin), room.holding(&plugin));
        assert_eq!(one.grow(60, soon()).await, Ok(()));
        let mut wait = Box::pin(other.grow(60, soon()));
        assert_eq!((&mut wait).now_or_never(), None);
        drop(one);
        drop(wait);
        assert_eq!(room.0.lock().most(), None);
    }
}

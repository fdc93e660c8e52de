//! Decides how much memory the informers of one cluster have for what they keep, and for what is on its way to them.

use std::sync::Arc;
use std::time::Duration;

use capstan_core::cache::Writer;
use capstan_core::room::{Holding, Room};
use tokio::time::Instant;

/// What is on its way takes no memory from caches, but a quarter of what those have at most, and this if that is less.
const LEAST_TRANSIT: u64 = 32 << 20;

/// So much of what comes in on one connection is nobody's to count: less than what the connection itself takes.
const PIECE: usize = 64 << 10;

/// How long it is waited for memory until what comes in is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the informers of one cluster may take. A clone is another handle of the same.
#[derive(Clone)]
pub struct Memory {
    /// Bytes of objects that each informer may keep.
    each: usize,
    /// Bytes that all informers may keep.
    total: u64,
    /// What all caches keep together.
    all: Room,
    /// What those of other clusters keep together.
    others: Room,
    /// What those of this cluster keep together; none for that of the daemon.
    here: Option<Room>,
    /// What is on its way.
    transit: Room,
    /// The same of all other clusters together.
    elsewhere: Room,
}

/// The memory of what is on its way to one informer.
#[derive(Clone)]
pub(crate) struct Transit {
    room: Room,
    account: Arc<str>,
}

/// What has come in on one connection, and is not read yet.
pub(crate) struct Load {
    holding: Holding,
    bytes: usize,
}

/// There is no memory for what comes in. Worth retrying later, or with less at once.
#[derive(Debug, thiserror::Error)]
#[error("there is no memory for what comes in, which caches take too much of at once (--cache-memory)")]
pub(crate) struct NoRoom;

impl Memory {
    /// Returns what the informers of the daemon's own cluster have: `each` so many bytes at most, all of them, those of other clusters
    /// included, `total`.
    pub fn new(each: usize, total: u64) -> Self {
        Self {
            each,
            total,
            all: Room::new(total),
            others: Room::new(total / 2),
            here: None,
            transit: Room::new((total / 4).max(LEAST_TRANSIT)),
            elsewhere: Room::new((total / 8).max(LEAST_TRANSIT)),
        }
    }

    /// Returns what the informers of one more cluster have: no more than a quarter of all, and no more than half of it with those of further
    /// clusters (`CU-1`).
    #[must_use]
    pub fn of_other(&self) -> Self {
        let here = Some(Room::new(self.total / 4));
        Self { here, transit: self.elsewhere.clone(), ..self.clone() }
    }

    /// Returns the bytes that each informer may keep.
    pub(super) fn each(&self) -> usize {
        self.each
    }

    /// Returns the writer of the cache of an informer, which counts for `account`, and for `share` in its cluster.
    pub(super) fn writer(&self, account: &Arc<str>, share: &Arc<str>) -> Writer {
        let writer = Writer::bounded(self.each).sharing(self.all.holding(account));
        match &self.here {
            None => writer,
            Some(here) => writer.sharing(self.others.holding(account)).sharing(here.holding(share)),
        }
    }

    /// Returns the memory of what is on its way to an informer.
    pub(super) fn transit(&self, account: Arc<str>) -> Transit {
        Transit { room: self.transit.clone(), account }
    }
}

impl Transit {
    /// Returns the memory of one connection.
    pub(super) fn load(&self) -> Load {
        Load { holding: self.room.holding(&self.account), bytes: 0 }
    }
}

impl Load {
    /// Takes in how many bytes wait to be read. Waits until there is memory for them, so that nothing more comes in meanwhile.
    ///
    /// # Errors
    /// [`NoRoom`] if there is none for too long.
    pub(super) async fn is(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let wanted = if bytes <= PIECE { 0 } else { bytes.next_multiple_of(PIECE) };
        let difference = wanted.abs_diff(self.bytes) as u64;
        if wanted < self.bytes {
            self.holding.shrink(difference);
        } else if wanted > self.bytes {
            self.holding.grow(difference, Instant::now() + PATIENCE).await.map_err(|_| NoRoom)?;
        }
        self.bytes = wanted;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use capstan_core::cache::Event;
    use capstan_core::object::{Gvk, Managers, Object};
    use futures::FutureExt;

    use super::*;

    /// Returns how many MiB of objects a cache takes in.
    fn filled(writer: &mut Writer) -> usize {
        let object = |n: usize| {
            let json = format!(
                r#"{{"metadata":{{"namespace":"n","name":"o{n}","resourceVersion":"{n}"}},"f":"{}"}}"#,
                "x".repeat(1 << 18)
            );
            Object::parse(&json, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
        };
        (1..=1000).take_while(|n| writer.apply(Event::Applied(object(*n))).is_some()).count();
        writer.cache().bytes() >> 20
    }

    #[test]
    fn other_clusters_have_a_part_of_the_memory_for_caches_and_leave_the_rest_to_the_daemons_own() {
        // CU-1
        let memory = Memory::new(1 << 30, 32 << 20);
        let clusters = ["edge", "far", "off"].map(|name| (memory.of_other(), Arc::from(name)));
        let mut writers: Vec<_> = clusters.iter().map(|(memory, name)| memory.writer(name, &"maps".into())).collect();
        let taken: Vec<_> = writers.iter_mut().map(filled).collect();
        assert!(taken[0] == 5 && taken.iter().all(|taken| (1..=8).contains(taken)), "{taken:?}");
        assert!(taken.iter().sum::<usize>() <= 16, "{taken:?}");
        let mut own = memory.writer(&"maps".into(), &"maps".into());
        assert!(filled(&mut own) >= 8, "{own:?}");
        // Several watches of one cluster have no more than one.
        let (whole, name) = (Memory::new(1 << 30, 32 << 20), "edge".into());
        let (edge, far) = (whole.of_other(), whole.of_other());
        let mut several = ["maps", "secrets", "pods"].map(|share| edge.writer(&name, &share.into()));
        let taken: usize = several.iter_mut().map(filled).sum();
        assert!((5..=8).contains(&taken), "{taken}");
        assert!(filled(&mut far.writer(&"far".into(), &"maps".into())) >= 4);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_on_its_way_waits_for_memory_for_a_while() {
        let memory = Memory::new(1 << 20, 0);
        let [mut own, mut other] = ["maps", "edge"].map(|name| memory.transit(name.into()).load());
        for (bytes, held) in
            [(0, 0), (PIECE, 0), (PIECE + 1, 2 * PIECE), (24 << 20, 24 << 20), (1, 0), (20 << 20, 20 << 20)]
        {
            own.is(bytes).await.unwrap();
            assert_eq!(own.bytes, held);
        }
        other.is(1 << 20).await.unwrap();
        let start = Instant::now();
        assert!(other.is(16 << 20).await.is_err());
        assert_eq!(start.elapsed(), PATIENCE);
        let mut waits = Box::pin(other.is(16 << 20));
        assert!(waits.as_mut().now_or_never().is_none());
        drop(own);
        assert!(waits.await.is_ok());
    }
}

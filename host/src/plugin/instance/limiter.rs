//! Bounds the memory of one instance: its linear memories, its tables, what describes it, and the answers that are made for it.

use std::sync::Arc;

use capstan_core::room::Holding;
use tokio::time::Instant;
use wasmtime::ResourceLimiterAsync;
use wasmtime_wasi::async_trait;

use crate::plugin::ending::{NoRoom, OverMemory, OverTables};
use crate::plugin::engine::{ELEMENTS, STACK};
use crate::plugin::process::Wire;

/// Bytes of an element of a table.
const ELEMENT: usize = 8;

/// Bounds the memories of one instance, all together, with its tables and what describes it.
pub(super) struct Limiter {
    /// Bytes in use.
    used: usize,
    /// Bytes allowed (`limits.memory`).
    limit: usize,
    /// Elements of tables in use.
    elements: usize,
    /// Bytes of the answer that the daemon has made for the component last: about to be copied into its memory, it counts as
    /// its own until the next one.
    answer: usize,
    /// What it holds of the memory that all plugins share.
    share: Share,
    /// When a wait for more of that has to be over.
    deadline: Instant,
}

/// Part of the memory that all plugins share.
pub(super) enum Share {
    Held(Holding),
    /// The daemon holds it, and is asked.
    Asked(Arc<Wire>),
}

impl Limiter {
    /// Returns one for an instance that has nothing yet, and may have so many bytes.
    pub(super) fn new(limit: usize, share: Share) -> Self {
        Self { used: 0, limit, elements: 0, answer: 0, share, deadline: Instant::now() }
    }

    /// Returns how many bytes are in use.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Begins a call, in which a wait for memory has to be over then.
    pub(super) fn call(&mut self, deadline: Instant) {
        (self.deadline, self.answer) = (deadline, 0);
    }

    /// Counts an answer of so many bytes.
    ///
    /// # Errors
    /// How many are left, if that is less.
    pub(super) fn answer(&mut self, bytes: usize) -> Result<(), usize> {
        let left = self.limit.saturating_sub(self.used);
        if bytes > left {
            return Err(left);
        }
        self.answer = bytes;
        Ok(())
    }

    /// Takes the memory for what an instance has before any of its own: what describes it and, beside its limit, the stack of its calls, of
    /// which nobody sees how deep they have been.
    pub(super) async fn begin(&mut self, weight: u64) -> wasmtime::Result<()> {
        if let Share::Held(holding) = &mut self.share {
            let grown = holding.grow(STACK as u64, self.deadline).await;
            grown.map_err(|error| NoRoom(error.to_string()))?;
        }
        self.grow(0, usize::try_from(weight).unwrap_or(usize::MAX)).await
    }

    /// Takes memory for something that grows from so many bytes to so many.
    async fn grow(&mut self, current: usize, desired: usize) -> wasmtime::Result<()> {
        let used = self.used.saturating_sub(current).saturating_add(desired);
        if used.saturating_add(self.answer) > self.limit {
            return Err(OverMemory.into());
        }
        let bytes = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
        let more = bytes(used.saturating_sub(self.used));
        if more > 0 {
            let grown = match &mut self.share {
                Share::Held(holding) => {
                    let grown = holding.grow(more, self.deadline).await;
                    grown.map_err(|error| error.to_string())
                }
                Share::Asked(wire) => wire.grow(bytes(used)),
            };
            grown.map_err(NoRoom)?;
        }
        self.used = used;
        Ok(())
    }
}

#[async_trait]
impl ResourceLimiterAsync for Limiter {
    async fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        self.grow(current, desired).await?;
        Ok(true)
    }

    async fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let elements = self.elements.saturating_sub(current).saturating_add(desired);
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        if elements > ELEMENTS {
            return Err(OverTables.into());
        }
        self.grow(current.saturating_mul(ELEMENT), desired.saturating_mul(ELEMENT)).await?;
        self.elements = elements;
        Ok(true)
    }

    /// Core instances: Rust makes 3, Go 5, JavaScript 9, Python 14 and one per native module.
    fn instances(&self) -> usize {
        256
    }

    fn tables(&self) -> usize {
        64
    }

    fn memories(&self) -> usize {
        16
    }
}

#[cfg(test)]
mod tests {
    use capstan_core::room::Room;

    use super::*;

    fn limiter(limit: usize, room: &Room) -> Limiter {
        Limiter::new(limit, Share::Held(room.holding(&"guest".into())))
    }

    #[tokio::test]
    async fn all_memories_of_an_instance_are_bounded_together() {
        let mut limiter = limiter(10, &Room::default());
        assert!(limiter.memory_growing(0, 4, None).await.unwrap());
        assert!(limiter.memory_growing(0, 4, None).await.unwrap());
        assert!(limiter.memory_growing(4, 7, None).await.unwrap_err().is::<OverMemory>());
        assert!(limiter.memory_growing(4, 6, None).await.unwrap());
        // Its own bound is the component's affair.
        assert!(!limiter.memory_growing(4, 1000, Some(5)).await.unwrap());
        assert_eq!(limiter.used, 10);
    }

    #[tokio::test]
    async fn what_the_daemon_has_made_for_it_counts_and_so_does_what_all_plugins_have() {
        let mut own = limiter(10, &Room::default());
        own.answer = 4;
        let more = own.memory_growing(0, 7, None).await;
        assert!(more.unwrap_err().is::<OverMemory>());
        assert!(own.memory_growing(0, 6, None).await.unwrap());

        let room = Room::new(10);
        let mut one = limiter(100, &room);
        assert!(one.memory_growing(0, 7, None).await.unwrap());
        let more = limiter(100, &room).memory_growing(0, 4, None).await;
        assert!(more.unwrap_err().is::<NoRoom>());
        drop(one);
        assert!(limiter(100, &room).memory_growing(0, 5, None).await.unwrap());
    }

    #[tokio::test]
    async fn all_tables_of_an_instance_are_bounded_together() {
        let mut limiter = limiter(1 << 20, &Room::default());
        let half = ELEMENTS / 2;
        assert!(limiter.table_growing(0, half, None).await.unwrap());
        assert!(limiter.table_growing(0, half, None).await.unwrap());
        let more = limiter.table_growing(half, half + 1, None).await;
        assert!(more.unwrap_err().is::<OverTables>());
        // Its own bound is the component's affair.
        assert!(!limiter.table_growing(half, ELEMENTS, Some(half)).await.unwrap());
        assert_eq!((limiter.elements, limiter.used), (ELEMENTS, ELEMENTS * ELEMENT));
    }
}

//! Decides how long what comes in waits for memory, and takes it in no faster than there is some.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use capstan_core::budget::Budget;
use capstan_core::room::{Holding, Room};
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::Instant;

use super::{Broken, chain};

/// So much of what comes in on one connection is nobody's to count: less than what the connection itself takes.
const PIECE: usize = 64 << 10;

/// How long it is waited for memory until what comes in is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The memory of what is on its way to somebody.
#[derive(Clone)]
pub struct Transit {
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
#[error("there is no memory for what comes in, which caches and others take too much of at once (--cache-memory)")]
pub(crate) struct NoRoom;

/// Why a body can't be read.
pub(crate) enum Unread {
    /// It is too long, or broke off.
    Broken(Broken),
    /// There is no memory for it.
    NoRoom(NoRoom),
}

impl Transit {
    /// Returns what `account` takes of a room.
    pub fn new(room: Room, account: Arc<str>) -> Self {
        Self { room, account }
    }

    /// Returns what somebody else takes of the same room.
    pub(crate) fn of(&self, account: Arc<str>) -> Self {
        Self { room: self.room.clone(), account }
    }

    /// Returns who takes it.
    pub(crate) fn account(&self) -> &Arc<str> {
        &self.account
    }

    /// Returns the budget of a run for documents that are made of what has come in.
    pub(crate) fn budget(&self) -> Budget {
        Budget::borrowing(Box::new(self.room.holding(&self.account)))
    }

    /// Returns the memory of one connection.
    pub(crate) fn load(&self) -> Load {
        Load { holding: self.room.holding(&self.account), bytes: 0 }
    }
}

impl Load {
    /// Takes in how many bytes wait to be read. Waits until there is memory for them, so that nothing more comes in meanwhile.
    ///
    /// # Errors
    /// [`NoRoom`] if there is none for too long.
    pub(crate) async fn is(&mut self, bytes: usize) -> Result<(), NoRoom> {
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

    /// Returns a body that has so many bytes at most, for all of which there is memory while it comes in.
    ///
    /// # Errors
    /// [`Unread`] if it is longer, breaks off, or finds no memory.
    pub(crate) async fn collect(&mut self, body: Body, most: usize) -> Result<Bytes, Unread> {
        let (mut body, mut whole) = (body, BytesMut::new());
        // All at once if its length is known: two of which each has a part could wait for one another.
        let length = http_body::Body::size_hint(&body).exact().and_then(|length| usize::try_from(length).ok());
        if let Some(length) = length.filter(|length| *length <= most) {
            self.is(length).await.map_err(Unread::NoRoom)?;
        }
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Unread::Broken(Broken::Off(chain(&error))))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if whole.len() + data.len() > most {
                return Err(Unread::Broken(Broken::Long));
            }
            let so_far = (whole.len() + data.len()).max(length.unwrap_or(0));
            self.is(so_far).await.map_err(Unread::NoRoom)?;
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_of_a_known_length_wait_for_all_of_their_memory_so_that_none_has_a_part_that_another_needs() {
        let transit = Transit::new(Room::new(32 << 20), "maps".into());
        let long = 20 << 20;
        let (mut one, mut other) = (transit.load(), transit.load());
        assert!(one.collect(Body::from(vec![b'x'; long]), long).await.is_ok());
        let mut waits = Box::pin(other.collect(Body::from(vec![b'y'; long]), long));
        assert!(waits.as_mut().now_or_never().is_none());
        drop(one);
        assert!(waits.await.is_ok());
        let longer = transit.load().collect(Body::from(vec![b'z'; long]), long - 1).await;
        assert!(matches!(longer, Err(Unread::Broken(Broken::Long))));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_on_its_way_waits_for_memory_for_a_while() {
        let room = Room::new(32 << 20);
        let [mut own, mut other] = ["maps", "edge"].map(|name| Transit::new(room.clone(), name.into()).load());
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
